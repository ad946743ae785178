/* Tile IR -> Loop IR: what is the same for every target around the programs. */
#include "target/lower/lower.h"

tn_status tn_lower(tn_session *session, tn_kernel *kernel, const tn_machine *machine, tn_lfunc **out)
{
    return (machine->gpu ? tn_gpu_lower : tn_cpu_lower)(session, kernel, machine, out);
}

/* Quotient or remainder of numbers of programs. GPUs divide 64 bits slowly, and are given fewer than 2^32 programs. */
static tn_lvalue *divide(lower *L, tn_lbuilder *b, tn_scalar fn, tn_lvalue *x, tn_lvalue *y)
{
    if (!L->machine->gpu)
        return tn_l_fn2(b, fn, x, y);
    return tn_l_cast(b, tn_l_fn2(b, fn, tn_l_cast(b, x, TN_U32), tn_l_cast(b, y, TN_U32)), TN_I64);
}

static tn_dim count_of(const lower *L, const tn_trange *g) { return tn_dim_ceildiv(L->session, g->limit, tn_dim_const(L->session, g->step.size)); }

static void set_coordinate(lower *L, tn_lbuilder *b, const tn_trange *g, tn_lvalue *at)
{
    *tn_map_at(&L->scalars, TN_KEY(g->value)) = tn_l_fn2(b, TN_S_mul, at, tn_l_index(b, g->step.size));
}

/* *program := its quotient by n, and the remainder, where n is more than most programs: most users' grids have one dimension. A GPU, whose every program would wait for
 * the division before its first load, branches past it (LayerNorm of 1024 columns, with one rounding of products and sums, 0.93 to 0.98 of a copy). */
static tn_lvalue *take_seldom(lower *L, tn_lbuilder *b, tn_lvalue **program, tn_lvalue *n)
{
    tn_lvalue *zero = tn_l_index(b, 0), *part[2] = {tn_l_cast(b, *program, TN_U32), tn_l_const(b, tn_lscalar(TN_U32), tn_number_from_int(TN_U32, 0))}, *kept[2];
    for (int i = 0; i < 2; i++) { /* remainder, quotient; numbers of 32 bits, of which it is known that they are not negative */
        kept[i] = tn_l_alloc(b, i ? "rest" : "at", TN_U32, TN_SPACE_REG, 1);
        tn_l_store(b, kept[i], zero, part[i], NULL);
    }
    tn_lbuilder in = tn_l_in(b, tn_l_if(b, tn_l_fn2(b, TN_S_ge, *program, n))->region[0]);
    for (int i = 0; i < 2; i++)
        tn_l_store(&in, kept[i], zero, tn_l_cast(&in, divide(L, &in, i ? TN_S_div : TN_S_rem, *program, n), TN_U32), NULL);
    *program = tn_l_cast(b, tn_l_load(b, kept[1], zero, 1, NULL, NULL), TN_I64);
    return tn_l_cast(b, tn_l_load(b, kept[0], zero, 1, NULL, NULL), TN_I64);
}

/* Where the assembler makes a branch worth it: it gives large programs more registers behind one (softmax of 65536 columns: 96 for 64, of 16384: 49 for 40). */
static bool branches_past_division(const lower *L, const tn_lvalue *n)
{
    enum { SMALL = 4 /* warps */ };
    int64_t known;
    return L->machine->gpu && !tn_l_is_const(n, &known) && tn_schedule_get(&L->kernel->schedule, "", "warps", SMALL) <= SMALL;
}

/* Takes the least digit of a number of programs. */
static tn_lvalue *take_digit(lower *L, tn_lbuilder *b, tn_dim count, bool last, tn_lvalue **program)
{
    tn_lvalue *n = lower_dim(L, count);
    if (tn_dim_is(count, 1))
        return tn_l_index(b, 0);
    if (last)
        return *program;
    if (branches_past_division(L, n))
        return take_seldom(L, b, program, n);
    tn_lvalue *at = divide(L, b, TN_S_rem, *program, n);
    *program = divide(L, b, TN_S_div, *program, n);
    return at;
}

/* The coordinate that bands of the last one go across: the nearest one before it that has several programs (columns in blocks of a tile have one within a block). NULL: none. */
static const tn_trange *across_bands(lower *L)
{
    const tn_kernel *k = L->kernel;
    size_t n = k->grid.len;
    if (n < 2 || tn_dim_is(count_of(L, &k->grid.at[n - 1]), 1))
        return NULL;
    for (n--; n > 0 && tn_dim_is(count_of(L, &k->grid.at[n - 1]), 1); n--)
        ;
    return n ? &k->grid.at[n - 1] : NULL;
}

/* The last coordinate, walked in bands of `height` (schedule: `group`), across another one: programs that run side by side share what both are of. */
static void open_bands(lower *L, tn_lbuilder *b, int64_t height, const tn_trange *across, tn_lvalue **program)
{
    const tn_trange *down = &L->kernel->grid.at[L->kernel->grid.len - 1];
    tn_dim columns = count_of(L, across), rows = count_of(L, down), whole = tn_dim_const(L->session, height);
    tn_lvalue *at = take_digit(L, b, tn_dim_mul(L->session, rows, columns), across == L->kernel->grid.at, program), *most = tn_l_index(b, height);
    tn_lvalue *of_band = lower_dim(L, tn_dim_mul(L->session, columns, whole)), *first = tn_l_fn2(b, TN_S_mul, divide(L, b, TN_S_div, at, of_band), most);
    at = divide(L, b, TN_S_rem, at, of_band);
    tn_lvalue *there = rows->multiple % height == 0 ? most : tn_l_fn2(b, TN_S_min, tn_l_fn2(b, TN_S_sub, lower_dim(L, rows), first), most); /* the last band may be less high */
    set_coordinate(L, b, across, divide(L, b, TN_S_div, at, there));
    set_coordinate(L, b, down, tn_l_fn2(b, TN_S_add, first, divide(L, b, TN_S_rem, at, there)));
}

/* The coordinate by which programs have more or less to do goes slowest; of the others bands, of which each goes through all of it, so that what the programs of a
 * band read, which are at one place of their loops together, is not too much for the L2: 32 streams, or 64 if there are no more. */
static void open_longest_first(lower *L, tn_lbuilder *b, tn_lvalue *program)
{
    enum { MOST = 64, BAND = 32 };
    const tn_kernel *k = L->kernel;
    const tn_trange *slow = NULL;
    tn_dim all = tn_dim_const(L->session, 1);
    for (size_t i = 0; i < k->grid.len; i++)
        if (k->grid.at[i].value == L->longest.coordinate)
            slow = &k->grid.at[i];
        else
            all = tn_dim_mul(L->session, all, count_of(L, &k->grid.at[i]));
    tn_lvalue *n = lower_dim(L, count_of(L, slow)), *others = lower_dim(L, all), *first = tn_l_index(b, 0), *there = others;
    if (!tn_dim_is_const(all) || all->value > MOST) {
        tn_lvalue *height = tn_l_fn3(b, TN_S_select, tn_l_fn2(b, TN_S_le, others, tn_l_index(b, MOST)), others, tn_l_index(b, BAND)), *of_band = tn_l_fn2(b, TN_S_mul, n, height);
        first = tn_l_fn2(b, TN_S_mul, divide(L, b, TN_S_div, program, of_band), height);
        program = divide(L, b, TN_S_rem, program, of_band);
        there = tn_l_fn2(b, TN_S_min, tn_l_fn2(b, TN_S_sub, others, first), height);
    }
    tn_lvalue *at = divide(L, b, TN_S_div, program, there), *rest = tn_l_fn2(b, TN_S_add, first, divide(L, b, TN_S_rem, program, there));
    set_coordinate(L, b, slow, L->longest.last ? tn_l_fn2(b, TN_S_sub, tn_l_fn2(b, TN_S_sub, n, tn_l_index(b, 1)), at) : at);
    size_t outermost = slow == &k->grid.at[0];
    for (size_t i = k->grid.len; i-- > 0;)
        if (&k->grid.at[i] != slow)
            set_coordinate(L, b, &k->grid.at[i], take_digit(L, b, count_of(L, &k->grid.at[i]), i == outermost, &rest));
}

static void open_grid(lower *L, tn_lbuilder *b, tn_lop *loop)
{
    const tn_kernel *k = L->kernel;
    tn_lvalue *program = loop->region[0]->arg;
    if (L->longest.coordinate) {
        open_longest_first(L, b, program);
        return;
    }
    int64_t height = tn_schedule_get(&k->schedule, "", "group", 1);
    const tn_trange *across = height > 1 ? across_bands(L) : NULL;
    size_t n = k->grid.len - (across != NULL);
    if (across)
        open_bands(L, b, height, across, &program);
    while (n-- > 0)
        if (&k->grid.at[n] != across)
            set_coordinate(L, b, &k->grid.at[n], take_digit(L, b, count_of(L, &k->grid.at[n]), n == 0, &program));
}

/* Our own buffers start at lines; what a user's pointer names starts at an element, unless more is promised. */
static int64_t alignment_of(const tn_kernel *kernel, const tn_tbuffer *t)
{
    return kernel->scalars.len ? tn_max(tn_max(1, tn_dtype_bits(tn_dtype_real(t->dtype)) / 8), t->align) : 64;
}

static void open_buffers(lower *L)
{
    const tn_kernel *kernel = L->kernel;
    L->buffer = TN_NEW_ARRAY(&L->arena, tn_lvalue *, kernel->buffers.len + 1);
    for (size_t i = 0; i < kernel->buffers.len; i++) {
        const tn_tbuffer *t = &kernel->buffers.at[i];
        if (t->mode != TN_LOCAL)
            L->buffer[i] = tn_lfunc_buffer(L->func, t->name, t->dtype, t->mode == TN_READ && !L->func->overlap, alignment_of(kernel, t));
    }
}

void lower_programs(lower *L, tn_lbuilder *b, void (*body)(lower *L, tn_lbuilder *b))
{
    const tn_lfunc *func = L->func;
    tn_lvalue *begin = func->params.at[func->params.len - 2], *end = func->params.at[func->params.len - 1], *one = tn_l_index(&L->entry, 1);
    tn_lop *loop = tn_l_for(b, "program", begin, end, one, TN_FOR_GRID);
    loop->turned = L->longest.coordinate;
    if (!L->entry.before)
        L->entry.before = loop;
    tn_lbuilder in = tn_l_in(b, loop->region[0]);
    scope s = lower_open(L);
    open_grid(L, &in, loop);
    body(L, &in);
    lower_close(L, s);
}

tn_status lower_run(lower *L, tn_lfunc **out)
{
    L->roots.arena = L->wide.arena = L->memory.arena = L->dims.arena = L->places.arena = L->gathered.arena = L->scalars.arena = L->memo_head.arena = &L->arena;
    L->func = tn_lfunc_new(L->session, L->kernel->name);
    lower_find_roots(L);
    L->func->overlap = L->kernel->overlap || lower_writes_unknown(L, L->kernel->body);
    open_buffers(L);
    lower_collect_symbols(L);
    lower_collect_scalars(L);
    tn_lfunc_index(L->func, "begin");
    tn_lfunc_index(L->func, "end");
    tn_lbuilder b = tn_lbuilder_at_end(L->func, L->func->body);
    L->entry = b; /* sizes are computed once, before the programs */
    lower_scalar_parameters(L);
    L->target->open_locals(L, &L->entry);
    L->target->programs(L, &b);
    tn_status status = L->status;
    tn_arena_free(&L->arena);
    if (status == TN_OK)
        *out = L->func;
    return status;
}
