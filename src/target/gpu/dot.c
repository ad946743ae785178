/* Products: `dot`, and a fold that adds one up.
 *
 * The accumulators are registers, in the layout of the instruction that fits the types and extents, else in the layout of the result's shape, by
 * multiply-adds; a fold keeps them over its ranges. What follows reads them as a place in that layout.
 *
 *   instructions     operands go to shared memory (operand.c), a strip of k at a time; warps share out the result, and load fragments of both
 *   pipeline         of a fold whose operands are plain loads: strips are copied without registers, `stages` - 1 of them ahead, into a ring of buffers
 *                      copies of strips 0 … stages - 2
 *                      each strip: wait until it is there; barrier; copy strip + stages - 1 to where strip - 1 was; fragments and products
 *   blocks           the same by multiply-adds, for types that no instruction takes, and f32 that must not lose bits (blocks.c)
 *   multiply-adds    what is left, small extents too: each thread adds up its elements, k after k */
#include "target/gpu/dot.h"

#include <assert.h>

/* f8 is f16's product unless warpgroups multiply: what mma of f8 asks for (8.9, PTX 8.4) is not faster than that on Hopper. */
static const gpu_mma instructions[] = {
    {TN_BF16, TN_BF16, TN_F32, "mma_m16n8k16_bf16", "bf16"},
    {TN_F16, TN_F16, TN_F32, "mma_m16n8k16_f16", "f16"},
    {TN_F32, TN_F32, TN_F32, "mma_m16n8k8_tf32", "tf32"}, /* if the dot's precision allows it */
    {TN_I8, TN_I8, TN_I32, "mma_m16n8k32_s8", "s8"},
    {TN_U8, TN_U8, TN_I32, "mma_m16n8k32_u8", "u8"},
    {TN_I8, TN_U8, TN_I32, "mma_m16n8k32_s8_u8", "s8_u8"},
    {TN_U8, TN_I8, TN_I32, "mma_m16n8k32_u8_s8", "u8_s8"},
    {TN_F8E4M3, TN_F8E4M3, TN_F32, "mma_m16n8k16_f16", "e4m3_e4m3"},
    {TN_F8E4M3, TN_F8E5M2, TN_F32, "mma_m16n8k16_f16", "e4m3_e5m2"},
    {TN_F8E5M2, TN_F8E4M3, TN_F32, "mma_m16n8k16_f16", "e5m2_e4m3"},
    {TN_F8E5M2, TN_F8E5M2, TN_F32, "mma_m16n8k16_f16", "e5m2_e5m2"},
};

typedef struct product {
    const tn_top *op, *dot;
    tn_dtype factor, sum; /* of the operands, of the accumulators */
    const gpu_mma *mma;   /* NULL: multiply-adds */
    bool halves;          /* factors of f8 become f16 in registers, which loses nothing */
    bool blocks;          /* multiply-adds, a block of the result a thread (blocks.c) */
    gpu_warps warps;
    int group_columns;    /* of one instruction of a warpgroup; 0: warps work alone */
    tn_layout layout;
    gpu_operand operand[2], raw[2]; /* raw: copied as it lies, and turned into the operand (its width is 0: it is not) */
    tn_lvalue *side;      /* which of two buffers the next turned strip goes into */
    place *acc;
    const tn_top *user;   /* what adds the dot to something, at which the accumulators start; NULL: nothing */
    bool walks;           /* one loop over all strips, that a ring feeds */
    bool copied;          /* a ring of copies feeds it */
    bool behind;          /* copies come behind a strip's products, which run on into the next turn */
    int apart;            /* a fold's, whose strips have sums of their own: what comes of them is added to the accumulators in so many parts; 0: products are added to those */
    tn_lvalue *later;     /* of a fold's turn by warpgroups: it is not the first one, which makes the accumulators; NULL: they are there */
} product;

/* The one dot that v is computed from, element by element: scaled, cast, or itself; NULL: there is none, or several. */
static const tn_top *dot_in(const tn_tvalue *v, const tn_tblock *block, int *budget)
{
    const tn_top *op = v->def, *dot = NULL;
    if (!op || op->block != block || --*budget < 0)
        return NULL;
    if (op->code == TN_T_dot)
        return op;
    for (int i = 0; (op->code == TN_T_map || op->code == TN_T_cast) && i < op->noperands; i++) {
        const tn_top *found = dot_in(op->operand[i], block, budget);
        if (found && dot)
            return NULL;
        dot = found ? found : dot;
    }
    return dot;
}

static const tn_top *dot_of(const tn_top *op)
{
    int budget = LOWER_BUDGET;
    return op->code == TN_T_dot ? op : dot_in(op->region[0]->last->operand[0], op->region[0], &budget);
}

static bool is_scaled(const tn_top *fold) { return fold->region[0]->last->operand[0]->def->code != TN_T_dot; }

/* Nothing else in the body wants the dot: what is added up is computed from it alone, and from what no other dot gives. */
static bool adds_up_one(const tn_top *fold, const tn_top *dot)
{
    for (const tn_top *op = fold->region[0]->first; op; op = op->next)
        if (op != dot && op->code != TN_T_yield && op->code != TN_T_load && !lower_is_expression(op))
            return false;
    return fold->result->type.dtype == fold->region[0]->last->operand[0]->type.dtype;
}

bool gpu_is_dot_fold(const tn_top *fold)
{
    if (fold->naxes || fold->nresults != 1 || fold->ordered || tn_combine_fn(fold->region[1]) != TN_S_add)
        return false;
    const tn_top *dot = dot_of(fold);
    return dot && (!is_scaled(fold) || adds_up_one(fold, dot));
}

/* ---- which instruction -------------------------------------------------------------------------------------------------- */

/* Sums of halves are kept in f32. */
static tn_dtype sum_type(const tn_top *dot)
{
    tn_dtype type = dot->result->type.dtype;
    return tn_is_float(type) && tn_dtype_bits(type) < 32 ? TN_F32 : type;
}

static bool depends_on_dot(const tn_tvalue *v, const tn_tblock *block, int *budget)
{
    const tn_top *op = v->def;
    const tn_tblock *home = op ? op->block : NULL;
    while (home && home != block && home->parent && home->parent->code == TN_T_if)
        home = home->parent->block;
    if (!op || --*budget < 0 || home != block)
        return false;
    if (op->code == TN_T_dot)
        return true;
    for (int i = 0; i < op->noperands; i++)
        if (depends_on_dot(op->operand[i], block, budget))
            return true;
    for (int r = 0; op->code == TN_T_if && r < op->nregions; r++)
        for (int i = 0; i < op->region[r]->last->noperands; i++)
            if (depends_on_dot(op->region[r]->last->operand[i], block, budget))
                return true;
    return false;
}

/* One of several products of a chain: rows of the first one's result are what the second one's left operand is made of, so that warps hold whole rows. */
static bool is_in_chain(const tn_top *dot)
{
    for (const tn_top *op = dot->block->first; op; op = op->next) {
        int budget = LOWER_BUDGET;
        if (op->code == TN_T_dot && (depends_on_dot(op->operand[0], op->block, &budget) || depends_on_dot(op->operand[1], op->block, &budget)))
            return true;
    }
    return false;
}

/* As square a part of the result for each warp as there is: what it reads of both operands is least. */
static gpu_warps share_out(lower *L, const tn_top *dot, int64_t m, int64_t n)
{
    int warps = GPU(L)->warps;
    gpu_warps best = {0, 0};
    int64_t least = INT64_MAX;
    for (int along_m = 1; along_m <= warps; along_m *= 2) {
        int along_n = warps / along_m;
        if (along_m * GPU_MMA_M > m || along_n * 2 * GPU_MMA_N > n)
            continue;
        int64_t reads = m / along_m + n / along_n;
        if (reads < least || (reads == least && m >= n) || (along_n == 1 && is_in_chain(dot))) {
            least = along_n == 1 && is_in_chain(dot) ? 0 : reads;
            best = (gpu_warps){along_m, along_n};
        }
    }
    return best;
}

static bool is_power(int64_t x) { return x > 0 && (x & (x - 1)) == 0; }

static const gpu_mma *find_instruction(const product *p)
{
    for (size_t i = 0; i < TN_COUNT(instructions); i++) {
        const gpu_mma *row = &instructions[i];
        if (row->left == p->factor && row->right == p->dot->operand[1]->type.dtype && row->sum == p->sum)
            return row->left == TN_F32 && p->dot->precision == TN_IEEE ? NULL : row;
    }
    return NULL;
}

/* Its elements are neighbours along k where it comes from, or it is computed: then it may lie so in shared memory, though wgmma can't turn it. */
static bool may_lie_along_k(const lower *L, const tn_top *dot, int number)
{
    const tn_top *load = dot->operand[number]->def;
    int64_t multiple;
    int axis;
    return dot->operand[number]->type.dtype == TN_BF16 || dot->operand[number]->type.dtype == TN_F16 || !load || load->code != TN_T_load ||
           !gpu_neighbours(L, load, &axis, &multiple) || axis == 1 - number;
}

/* Columns between powers of two that instructions of halves are there for, all of a strip's sums by one: they are never made in parts. */
static bool is_uneven(const tn_top *fold, tn_dtype factor, int64_t n)
{
    return tn_dtype_bits(factor) == 16 && (n == 160 || n == 192 || n == 224) && !is_scaled(fold) && !dot_of(fold)->imprecise;
}

/* Columns of an instruction of a warpgroup, for a dot that a fold adds up, in a loop, or once a program: it reads factors from shared memory, whole rows of 128 bytes. */
static int group_columns_of(const lower *L, const product *p)
{
    enum { M = 64, LEAST_N = 64, MOST_N = 256, LEAST_DEPTH = 128 /* bytes */, MOST_SUMS = 128 };
    const tn_top *dot = p->dot;
    const tn_top *fold = dot->block->parent;
    const tn_ttype *type = &dot->result->type;
    int64_t m = type->extent[0].size, n = type->extent[1].size, groups = GPU(L)->warps / 4;
    int64_t depth = dot->operand[0]->type.extent[1].size * tn_dtype_bits(p->factor) / 8;
    bool adds = fold && fold->code == TN_T_fold && gpu_is_dot_fold(fold) && dot_of(fold) == dot;
    bool loops = (!fold || fold->code == TN_T_for) && n <= MOST_N && may_lie_along_k(L, dot, 0) && may_lie_along_k(L, dot, 1);
    bool fits = L->machine->groups && dot->precision != TN_TF32X3 && (adds || loops);
    if (!fits || GPU(L)->warps % 4 || m % (M * groups) || n < LEAST_N || (!is_power(n) && !(adds && is_uneven(fold, p->factor, n))) || depth < LEAST_DEPTH || m * n > MOST_SUMS * 128 * groups)
        return 0;
    return (int)tn_min(n, MOST_N);
}

/* Sums of a strip that have registers of their own beside the accumulators: all at once, or of warpgroups in two parts where those of all would leave none for anything else. */
static void set_apart(product *p)
{
    enum { MOST_SUMS = 64, MOST_PARTS = 2, COLUMNS = 128 };
    if (p->op == p->dot || !(is_scaled(p->op) || (p->group_columns && p->dot->imprecise)))
        return;
    p->apart = p->group_columns && tn_layout_regs(&p->layout) > MOST_SUMS ? MOST_PARTS : 1;
    if (p->apart > 1)
        p->group_columns = tn_min(p->group_columns, COLUMNS);
}

/* Finds the instruction, how warps share out the result, and in which layout. */
static void choose(lower *L, product *p)
{
    const tn_ttype *x = &p->dot->operand[0]->type, *type = &p->dot->result->type;
    const gpu_mma *found = find_instruction(p);
    if (x->rank != 2 || !is_power(x->extent[0].size) || !is_power(x->extent[1].size))
        return;
    bool even = is_power(type->extent[1].size);
    if (found && x->extent[1].size * tn_dtype_bits(x->dtype) / 8 >= GPU_MMA_DEPTH) {
        p->group_columns = group_columns_of(L, p);
        if (p->group_columns && !tn_layout_wgmma_acc(type, GPU(L)->warps, p->group_columns, &p->layout))
            p->group_columns = 0;
        if (!p->group_columns && even)
            p->warps = share_out(L, p->dot, type->extent[0].size, type->extent[1].size);
        if (p->group_columns || (p->warps.m && tn_layout_mma_acc(type, p->warps.m, p->warps.n, &p->layout))) {
            p->mma = found;
            p->halves = !p->group_columns && tn_is_f8(p->factor);
            return;
        }
    }
    p->blocks = even && p->factor == p->sum && gpu_block_layout(L, p->dot, &p->warps, &p->layout);
}

static product product_of(lower *L, const tn_top *op)
{
    const tn_top *dot = dot_of(op);
    product p = {.op = op, .dot = dot, .factor = dot->operand[0]->type.dtype, .sum = sum_type(dot)};
    choose(L, &p);
    set_apart(&p);
    return p;
}

bool gpu_dot_is_by_groups(lower *L, const tn_top *dot) { return product_of(L, dot).group_columns > 0; }

/* Registers of rows and columns that scale v's sums, and of the indices that they are loaded at. */
static int64_t scale_words(const tn_tvalue *v, const tn_tblock *block, const tn_layout *layout)
{
    enum { WITH_INDEX = 2 };
    const tn_top *op = v->def;
    int64_t words = 0;
    if (!op || op->block != block)
        return 0;
    if (op->code == TN_T_broadcast && op->operand[0]->type.rank == 1) {
        tn_layout line = tn_layout_restrict(layout, 1, op->axis);
        return (int64_t)WITH_INDEX * tn_layout_regs(&line);
    }
    for (int i = 0; (op->code == TN_T_map || op->code == TN_T_cast) && i < op->noperands; i++)
        words += scale_words(op->operand[i], block, layout);
    return words;
}

int64_t gpu_sum_words(lower *L, const tn_top *dot)
{
    const tn_top *fold = dot->block->parent;
    int64_t words = gpu_words(L, &dot->result->type);
    if (!fold || fold->code != TN_T_fold || !gpu_is_dot_fold(fold) || dot_of(fold) != dot)
        return words;
    product p = product_of(L, fold);
    return p.apart ? words + words / p.apart + scale_words(fold->region[0]->last->operand[0], fold->region[0], &p.layout) : words;
}

/* Its operands lie in shared memory as operand.c has them. */
static bool is_tiled(const product *p) { return p->mma || p->blocks; }

bool gpu_dot_is_tiled(lower *L, const tn_top *dot)
{
    product p = product_of(L, dot);
    return is_tiled(&p);
}

void gpu_survey_dot(lower *L, const tn_top *dot)
{
    product p = product_of(L, dot);
    if (!is_tiled(&p))
        return;
    gpu_set_class_layout(L, &dot->result->type, &p.layout);
    if (is_in_chain(dot)) { /* what goes along with its rows (maxima, sums) lies where they do */
        tn_ttype rows = dot->result->type;
        tn_layout layout = tn_layout_restrict(&p.layout, 1, (int[]){0});
        rows.rank = 1;
        gpu_set_class_layout(L, &rows, &layout);
    }
}

/* ---- by instructions ---------------------------------------------------------------------------------------------------------- */

static tn_lbuilder unrolled_from(tn_lbuilder *b, const char *name, int64_t first, int64_t last, tn_lvalue **index)
{
    tn_lop *loop = tn_l_for(b, name, tn_l_index(b, first), tn_l_index(b, last), tn_l_index(b, 1), TN_FOR_UNROLL);
    *index = loop->region[0]->arg;
    return tn_l_in(b, loop->region[0]);
}

tn_lbuilder gpu_unrolled(tn_lbuilder *b, const char *name, int64_t count, tn_lvalue **index) { return unrolled_from(b, name, 0, count, index); }

void gpu_round(tn_lbuilder *b, tn_lvalue *regs, int64_t count)
{
    tn_lvalue *i;
    tn_lbuilder in = gpu_unrolled(b, "r", count, &i);
    tn_l_machine(&in, "round_tf32", (tn_lvalue *[]){regs, i}, 2);
}

/* Fragments of an operand for 32 bytes of k, and what goes into the instruction. */
typedef struct factor {
    tn_lvalue *loaded, *ready;
    tn_lvalue *rest; /* tf32x3: what rounding left */
    int64_t count;   /* registers */
} factor;

static factor new_factor(tn_lbuilder *b, const product *p, int number, int64_t fragments)
{
    const gpu_operand *o = &p->operand[number];
    factor f = {.count = fragments * (number ? 8 : 16) / o->bytes};
    f.loaded = f.ready = tn_l_alloc(b, number ? "b" : "a", o->value->type.dtype, TN_SPACE_REG, f.count);
    if (p->halves)
        f.ready = tn_l_alloc(b, number ? "bh" : "ah", TN_F16, TN_SPACE_REG, f.count);
    if (p->dot->precision == TN_TF32X3)
        f.rest = tn_l_alloc(b, number ? "bl" : "al", TN_F32, TN_SPACE_REG, f.count);
    return f;
}

/* x = what is rounded + rest; the rest of an infinity is 0. */
static void round_apart(tn_lbuilder *b, const factor *f)
{
    tn_lvalue *i;
    tn_lbuilder in = gpu_unrolled(b, "r", f->count, &i);
    tn_lvalue *x = tn_l_load(&in, f->loaded, i, 1, NULL, NULL);
    tn_l_machine(&in, "round_tf32", (tn_lvalue *[]){f->loaded, i}, 2);
    tn_lvalue *rest = tn_l_fn2(&in, TN_S_sub, x, tn_l_load(&in, f->loaded, i, 1, NULL, NULL));
    tn_lvalue *zero = tn_l_const(&in, tn_lscalar(TN_F32), tn_number_from_int(TN_F32, 0));
    tn_l_store(&in, f->rest, i, tn_l_fn3(&in, TN_S_select, tn_l_fn2(&in, TN_S_eq, rest, rest), rest, zero), NULL);
    tn_l_machine(&in, "round_tf32", (tn_lvalue *[]){f->rest, i}, 2);
}

/* A fragment of 32 bytes of f8 becomes two of f16. Which k they belong to does not matter, as long as both factors' do alike: the first and the second halves of
 * words, so that nothing leaves its thread. Words of the left factor are two rows' turn by turn. */
static void widen(tn_lbuilder *b, const factor *f, bool left)
{
    enum { PAIR = 2 };
    tn_lvalue *i, *half, *row, *e;
    int64_t rows = left ? 2 : 1;
    tn_lbuilder in = gpu_unrolled(b, "f", f->count / (rows * 2 * PAIR), &i);
    in = gpu_unrolled(&in, "h", 2, &half);
    in = gpu_unrolled(&in, "w", rows, &row);
    in = gpu_unrolled(&in, "e", PAIR, &e);
    tn_lvalue *base = gpu_plus(&in, gpu_times(&in, i, rows * 2 * PAIR), e);
    tn_lvalue *from = gpu_plus(&in, base, gpu_plus(&in, gpu_times(&in, row, 2 * PAIR), gpu_times(&in, half, PAIR)));
    tn_lvalue *to = gpu_plus(&in, base, gpu_plus(&in, gpu_times(&in, half, rows * PAIR), gpu_times(&in, row, PAIR)));
    tn_l_store(&in, f->ready, to, tn_l_cast(&in, tn_l_load(&in, f->loaded, from, 1, NULL, NULL), TN_F16), NULL);
}

static void load_factor(lower *L, tn_lbuilder *b, const product *p, const factor *f, int number, int64_t fragments, tn_lvalue *k)
{
    gpu_load_fragments(L, b, &p->operand[number], p->warps, f->loaded, (int)fragments, k);
    if (f->rest)
        round_apart(b, f);
    else if (p->halves)
        widen(b, f, number == 0);
    else if (p->mma->left == TN_F32)
        gpu_round(b, f->loaded, f->count);
}

/* The accumulators, and what the operands hold now: one strip. */
static void multiply(lower *L, tn_lbuilder *b, const product *p)
{
    const tn_ttype *type = &p->dot->result->type;
    int bytes = p->operand[0].bytes, left = 16 / bytes, right = 8 / bytes, steps = p->halves ? 2 : 1;
    int64_t rows = type->extent[0].size / (GPU_MMA_M * p->warps.m), columns = type->extent[1].size / (GPU_MMA_N * p->warps.n);
    int64_t depth = p->dot->operand[0]->type.extent[1].size * bytes / GPU_MMA_DEPTH;
    tn_lvalue *i, *j, *k, *held = p->operand[0].fragments ? p->operand[0].fragments->held->regs : NULL;
    factor x = {.ready = held}, y;
    if (!held)
        x = new_factor(b, p, 0, rows);
    y = new_factor(b, p, 1, columns);
    bool many = p->dot->precision == TN_TF32X3 || gpu_loads_elements(&p->operand[0]) || gpu_loads_elements(&p->operand[1]); /* values at once are no registers */
    tn_lop *loop = tn_l_for(b, "k", tn_l_index(b, 0), tn_l_index(b, depth), tn_l_index(b, 1), many ? TN_FOR_SERIAL : TN_FOR_UNROLL);
    tn_lbuilder in = tn_l_in(b, loop->region[0]);
    k = loop->region[0]->arg;
    if (!held)
        load_factor(L, &in, p, &x, 0, rows, k);
    load_factor(L, &in, p, &y, 1, columns, k);
    in = gpu_unrolled(&in, "m", rows, &i);
    in = gpu_unrolled(&in, "n", columns, &j);
    tn_lvalue *acc = gpu_times(&in, gpu_plus(&in, gpu_times(&in, i, columns), j), 4), *sums = p->acc->held->regs;
    tn_lvalue *a = held ? gpu_times(&in, gpu_plus(&in, gpu_times(&in, i, depth), k), left) : gpu_times(&in, i, left), *c = gpu_times(&in, j, right);
    if (x.rest) { /* the small ones first */
        tn_l_machine(&in, p->mma->name, (tn_lvalue *[]){sums, acc, x.rest, a, y.ready, c}, 6);
        tn_l_machine(&in, p->mma->name, (tn_lvalue *[]){sums, acc, x.ready, a, y.rest, c}, 6);
    }
    for (int s = 0; s < steps; s++) {
        tn_lvalue *at = gpu_plus(&in, a, tn_l_index(&in, s * left / 2)), *ct = gpu_plus(&in, c, tn_l_index(&in, s * right / 2));
        tn_l_machine(&in, p->mma->name, (tn_lvalue *[]){sums, acc, x.ready, at, y.ready, ct}, 6);
    }
}

/* Number of the thread's warpgroup, by way of a lane, so that the assembler sees that a warp has one: what follows from it is in uniform registers. */
tn_lvalue *gpu_group_of(lower *L)
{
    enum { BITS = TN_LAYOUT_LANE_BITS + 2 };
    tn_lbuilder *e = &L->entry;
    return tn_l_lane_at(e, tn_l_fn2(e, TN_S_shr_logical, GPU(L)->thread, tn_l_index(e, BITS)), tn_l_index(e, 0));
}

/* Products of a strip by warpgroups: into which registers, one of how many parts of them; of which k, in instructions. */
typedef struct batch {
    tn_lvalue *sums;
    int part, parts;
    int64_t first, last;
    bool makes; /* the sums are not added to */
    tn_lvalue *unless; /* makes: unless this holds, which it never does, but the assembler can't know; NULL: always */
} batch;

/* The same by warpgroups; the products are under way when it ends. */
static void multiply_batch(lower *L, tn_lbuilder *b, const product *p, const batch *of)
{
    enum { M = 64 };
    const tn_ttype *type = &p->dot->result->type;
    int deep = GPU_MMA_DEPTH / p->operand[0].bytes; /* of one instruction */
    int64_t groups = GPU(L)->warps / 4, rows = type->extent[0].size / (M * groups), columns = type->extent[1].size / p->group_columns;
    int64_t depth = p->dot->operand[0]->type.extent[1].size / deep, mine[2][2] = {{0, columns}, {0, rows}}, *parted = mine[columns < of->parts];
    tn_lvalue *group = groups > 1 ? gpu_group_of(L) : tn_l_index(b, 0), *i, *j, *k;
    const char *name = tn_format(&L->session->arena, "wgmma_m64n%dk%d_%s%s", p->group_columns, deep, p->mma->group, p->operand[0].fragments ? "_held" : "");
    parted[0] = of->part * parted[1] / of->parts;
    parted[1] = (of->part + 1) * parted[1] / of->parts;
    tn_l_machine(b, "wgmma_fence", NULL, 0);
    tn_lbuilder in = unrolled_from(b, "k", of->first, of->last, &k);
    tn_lvalue *adds = tn_l_index(&in, 1), *below = tn_l_fn2(&in, TN_S_gt, k, tn_l_index(&in, of->first));
    if (of->makes)
        adds = tn_l_cast(&in, of->unless ? tn_l_fn2(&in, TN_S_or, of->unless, below) : below, TN_I64);
    else if (p->later)
        adds = tn_l_cast(&in, tn_l_fn2(&in, TN_S_or, p->later, below), TN_I64);
    in = unrolled_from(&in, "n", mine[0][0], mine[0][1], &j);
    in = unrolled_from(&in, "m", mine[1][0], mine[1][1], &i);
    tn_lvalue *acc = gpu_times(&in, gpu_plus(&in, gpu_times(&in, j, rows), i), p->group_columns / 2);
    gpu_matrix y = gpu_matrix_of(&in, &p->operand[1], gpu_times(&in, j, p->group_columns / M), k);
    if (p->operand[0].fragments) {
        tn_lvalue *held = p->operand[0].fragments->held->regs, *at = gpu_times(&in, gpu_plus(&in, gpu_times(&in, i, depth), k), 8);
        tn_l_machine(&in, name, (tn_lvalue *[]){of->sums, acc, held, at, p->operand[1].buffer, y.at, y.apart, y.turned, adds}, 9);
    } else {
        gpu_matrix x = gpu_matrix_of(&in, &p->operand[0], gpu_plus(&in, gpu_times(&in, i, groups), group), k);
        tn_l_machine(&in, name, (tn_lvalue *[]){of->sums, acc, p->operand[0].buffer, x.at, p->operand[1].buffer, y.at, x.apart, y.apart, x.turned, y.turned, adds}, 11);
    }
    tn_l_machine(b, "wgmma_commit", NULL, 0);
}

static int64_t instructions_deep(const product *p) { return p->dot->operand[0]->type.extent[1].size * p->operand[0].bytes / GPU_MMA_DEPTH; }

/* A product by warpgroups that no fold adds up and that starts at nothing: its first instruction makes the sums. Zeros before it are a register each, and between two
 * instructions' ptxas gives products up that run on (C7520). */
static bool makes_result(const product *p) { return p->op == p->dot && p->group_columns && !p->apart && !p->user; }

static void multiply_by_groups(lower *L, tn_lbuilder *b, const product *p)
{
    multiply_batch(L, b, p, &(batch){.sums = p->acc->held->regs, .parts = 1, .last = instructions_deep(p), .makes = makes_result(p)});
}

/* All products are done: so many sums from number `first` on are registers. */
static void end_sums(tn_lbuilder *b, const product *p, tn_lvalue *sums, int64_t first, int64_t count)
{
    tn_lbuilder in = *b;
    const char *name = tn_format(&b->func->session->arena, p->sum == TN_I32 ? "wgmma_end_%lld_i32" : "wgmma_end_%lld", (long long)count);
    tn_l_machine(&in, name, (tn_lvalue *[]){sums, tn_l_index(b, first)}, 2);
}

/* They hold nothing yet: the first product makes them. */
static void start_sums_of(tn_lbuilder *b, const product *p, tn_lvalue *sums, int64_t first, int64_t count)
{
    const char *name = tn_format(&b->func->session->arena, p->sum == TN_I32 ? "wgmma_start_%lld_i32" : "wgmma_start_%lld", (long long)count);
    tn_l_machine(b, name, (tn_lvalue *[]){sums, tn_l_index(b, first)}, 2);
}

static void end_groups(tn_lbuilder *b, const product *p) { end_sums(b, p, p->acc->held->regs, 0, tn_layout_regs(&p->layout)); }

static bool lies_as_fragments(const lower *L, const product *p, const gpu_operand *o, tn_layout *out)
{
    gpu_warps warps = p->group_columns ? (gpu_warps){((const gpu_lower *)L)->warps, 1} : p->warps;
    return p->mma && o->bytes == 2 && tn_layout_mma_a(&o->value->type, warps.m, warps.n, out) && tn_layout_same_threads(&o->layout, out);
}

bool gpu_lies_as_fragments(lower *L, const tn_top *dot, const gpu_operand *o, tn_layout *out)
{
    product p = product_of(L, dot);
    return lies_as_fragments(L, &p, o, out);
}

/* The left operand where the accumulators of an earlier product lie already: those of two instructions side by side are a fragment. */
static void keep_fragments(lower *L, tn_lbuilder *b, product *p)
{
    gpu_operand *o = &p->operand[0];
    tn_layout wanted;
    if (o->width || !lies_as_fragments(L, p, o, &wanted))
        return;
    gpu_prepare_own(L, b, o->value, &wanted);
    place *fragments = gpu_new_place(L, b, &o->value->type, &wanted, "a");
    gpu_materialise_into(L, b, o->value, fragments);
    o->fragments = fragments;
}

void gpu_give_buffer(lower *L, gpu_operand *o, int64_t stages)
{
    enum { ALIGN = 1024 };
    GPU(L)->shared = (GPU(L)->shared + ALIGN - 1) / ALIGN * ALIGN;
    o->buffer = gpu_shared(L, o->left ? "a" : "b", o->value->type.dtype, gpu_operand_elements(o) * stages);
}

/* Into the buffer that the products of the strip before do not read. */
static void turn(lower *L, tn_lbuilder *b, product *p, int number)
{
    gpu_operand *o = &p->operand[number];
    o->stage = gpu_times(b, tn_l_load(b, p->side, tn_l_index(b, 0), 1, NULL, NULL), gpu_operand_elements(o));
    gpu_turn_operand(L, b, &p->raw[number], o);
}

/* Operands that go through registers, into one buffer each. */
static void fill(lower *L, tn_lbuilder *b, product *p)
{
    for (int i = 0; i < 2; i++) {
        gpu_operand *o = &p->operand[i];
        if (o->width || o->settled)
            continue;
        if (i == 0)
            keep_fragments(L, b, p);
        if (o->fragments)
            continue;
        if (!o->buffer && !gpu_is_stored_twice(L, b, p->dot, i, o))
            gpu_give_buffer(L, o, p->raw[i].width ? 2 : 1);
        if (p->raw[i].width)
            turn(L, b, p, i);
        else
            gpu_fill_operand(L, b, o);
        if (p->group_columns)
            tn_l_machine(b, "fence_async", NULL, 0);
    }
    if (p->operand[0].apart || p->operand[1].apart)
        gpu_barrier(L, b);
    for (int i = 0; i < 2; i++)
        if (!p->operand[i].width && !p->operand[i].fragments && !p->operand[i].apart)
            gpu_touch_shared(L, b, p->operand[i].buffer, false);
}

/* ---- by multiply-adds ---------------------------------------------------------------------------------------------------------- */

static place *shared_factor(lower *L, tn_lbuilder *b, const tn_tvalue *v)
{
    tn_layout layout;
    if (!gpu_natural_layout(L, v, &layout))
        return NULL;
    place *p = gpu_new_place(L, b, &v->type, &layout, "factor");
    gpu_materialise_into(L, b, v, p);
    gpu_share(L, b, &v->type, p, NULL);
    return p;
}

static tn_lvalue *factor_at(tn_lbuilder *b, const place *p, const tn_tvalue *v, tn_lvalue *const *idx, tn_dtype sum)
{
    return tn_l_cast(b, tn_l_load(b, p->buffer, lower_place_offset(b, p, v->type.rank, idx), 1, NULL, NULL), sum);
}

static void multiply_add(lower *L, tn_lbuilder *b, const product *p)
{
    const tn_tvalue *x = p->dot->operand[0], *y = p->dot->operand[1];
    int r = x->type.rank;
    place *from[2];
    for (int i = 0; i < 2; i++)
        if (!(from[i] = shared_factor(L, b, p->dot->operand[i])))
            return;
    for (int i = 0; i < 2; i++)
        gpu_touch_shared(L, b, from[i]->buffer, false);
    tn_lop *loop = tn_l_for(b, "k", tn_l_index(b, 0), tn_l_index(b, x->type.extent[r - 1].size), tn_l_index(b, 1), TN_FOR_SERIAL);
    tn_lbuilder in = tn_l_in(b, loop->region[0]);
    nest n;
    gpu_open(L, &in, &p->layout, &n);
    tn_lvalue *left[TN_TILE_RANK], *right[TN_TILE_RANK], *regs = p->acc->held->regs;
    for (int a = 0; a < r; a++)
        left[a] = right[a] = n.idx[a];
    left[r - 1] = right[r - 2] = loop->region[0]->arg;
    tn_lvalue *operands[3] = {factor_at(&in, from[0], x, left, p->sum), factor_at(&in, from[1], y, right, p->sum), tn_l_load(&in, regs, n.reg, 1, NULL, NULL)};
    tn_l_store(&in, regs, n.reg, tn_is_float(p->sum) ? tn_l_fn(&in, TN_S_fma, operands, 3) : gpu_plus(&in, tn_l_fn2(&in, TN_S_mul, operands[0], operands[1]), operands[2]), NULL);
    gpu_close(L, &n);
}

/* The accumulators' type: that of what is added up of strips, or of products. */
static tn_dtype accumulator_type(const product *p) { return p->apart ? p->op->result->type.dtype : p->sum; }

static void set_all(tn_lbuilder *b, const product *p, const place *sums, tn_dtype type, tn_number to)
{
    tn_lvalue *r;
    tn_lbuilder in = gpu_unrolled(b, "r", tn_layout_regs(&p->layout), &r);
    tn_l_store(&in, sums->held->regs, r, tn_l_const(&in, tn_lscalar(type), to), NULL);
}

/* ---- one strip, or all -------------------------------------------------------------------------------------------------------- */

/* The accumulators and one part of what the fold adds up of a strip. */
static void accumulate_part(lower *L, tn_lbuilder *b, const product *p, int part)
{
    nest n;
    tn_lbuilder in = *b;
    tn_lvalue *sums = p->acc->held->regs;
    gpu_open_part(L, &in, &p->layout, part, p->apart, &n);
    tn_lvalue *x = lower_element(L, &in, p->op->region[0]->last->operand[0], n.idx).value;
    tn_lvalue *sum = tn_l_fn(&in, TN_S_add, (tn_lvalue *[]){tn_l_load(&in, sums, n.reg, 1, NULL, NULL), x}, 2);
    sum->def->contract = L->kernel->contract && tn_l_contracts(TN_S_add, x->type.dtype); /* what scales x and this may round once */
    tn_l_store(&in, sums, n.reg, sum, NULL);
    gpu_close(L, &n);
}

/* In registers before there is anything to wait for: what is loaded, and spread to rows or columns of the sums. */
static void keep_scales(lower *L, tn_lbuilder *b, const tn_tvalue *v, const tn_tblock *block)
{
    const tn_top *op = v->def;
    bool spread = op && op->code == TN_T_broadcast;
    if (!op || op->block != block || op->code == TN_T_dot || (spread && !op->operand[0]->type.rank))
        return;
    if (spread && !tn_map_get(&L->places, TN_KEY(op->operand[0])))
        gpu_keep(L, b, op->operand[0]);
    for (int i = 0; (op->code == TN_T_map || op->code == TN_T_cast) && i < op->noperands; i++)
        keep_scales(L, b, op->operand[i], block);
}

/* Sums from number `first` on are made in the registers of those from number `from` on, which are done with: the assembler, which would rather have others and issue products
 * early, runs out of registers. */
static void take_over(tn_lbuilder *b, tn_lvalue *sums, int64_t first, int64_t from, int64_t count)
{
    tn_lvalue *r;
    tn_lbuilder in = unrolled_from(b, "r", first, first + count, &r);
    tn_l_store(&in, sums, r, tn_l_load(&in, sums, gpu_plus(&in, r, tn_l_index(&in, from - first)), 1, NULL, NULL), NULL);
}

/* A strip's products by warpgroups: of as many as the dot allows at once. While one warpgroup adds what they gave, others multiply. boxes: whose turn it is, which ends with the
 * last product; NULL: none's. */
static void multiply_parts(lower *L, tn_lbuilder *b, const product *p, const place *sums, gpu_boxes *boxes)
{
    int64_t deep = GPU_MMA_DEPTH / p->operand[0].bytes, last = instructions_deep(p), each = p->dot->imprecise ? tn_max(p->dot->imprecise / deep, 1) : last;
    int mine = tn_layout_regs(&p->layout) / p->apart;
    for (int part = 0; part < p->apart; part++)
        for (int64_t k = 0; k < last && L->status == TN_OK; k += each) {
            batch of = {.sums = sums->held->regs, .part = part, .parts = p->apart, .first = k, .last = tn_min(k + each, last), .makes = true};
            if (part && !k)
                take_over(b, of.sums, (int64_t)part * mine, (int64_t)(part - 1) * mine, mine);
            else if (!k)
                start_sums_of(b, p, of.sums, 0, mine);
            multiply_batch(L, b, p, &of);
            end_sums(b, p, of.sums, (int64_t)part * mine, mine);
            if (boxes && part == p->apart - 1 && of.last == last)
                gpu_release_boxes(L, b, boxes, false, NULL);
            accumulate_part(L, b, p, part);
        }
}

static void multiply_strip(lower *L, tn_lbuilder *b, const product *p)
{
    if (p->blocks)
        gpu_multiply_blocks(L, b, p->dot, p->warps, p->operand, p->acc->held->regs);
    else if (!is_tiled(p))
        multiply_add(L, b, p);
    else if (p->group_columns)
        multiply_by_groups(L, b, p);
    else
        multiply(L, b, p);
}

/* A strip's products in sums of their own. */
static void multiply_apart(lower *L, tn_lbuilder *b, const product *p, gpu_boxes *boxes)
{
    tn_ttype type = p->dot->result->type;
    product strip = *p;
    type.dtype = p->sum;
    strip.acc = gpu_new_place(L, b, &type, &p->layout, "products");
    keep_scales(L, b, p->op->region[0]->last->operand[0], p->op->region[0]);
    lower_set_place(L, p->dot->result, strip.acc);
    if (p->group_columns) {
        multiply_parts(L, b, p, strip.acc, boxes);
    } else {
        set_all(b, p, strip.acc, p->sum, tn_number_from_int(p->sum, 0));
        multiply_strip(L, b, &strip);
        accumulate_part(L, b, p, 0);
    }
    lower_set_place(L, p->dot->result, NULL);
}

static void add_strip(lower *L, tn_lbuilder *b, product *p, gpu_boxes *boxes)
{
    if (is_tiled(p))
        fill(L, b, p);
    if (L->status != TN_OK)
        return;
    if (p->apart) {
        multiply_apart(L, b, p, boxes);
        return;
    }
    multiply_strip(L, b, p);
    if (p->group_columns && !p->copied && !gpu_runs_late(L, p->dot))
        end_groups(b, p);
}

static void body_of_fold(lower *L, tn_lbuilder *b, const product *p)
{
    const tn_top *outer = GPU(L)->product;
    GPU(L)->product = p->dot;
    gpu_block(L, b, p->op->region[0]);
    GPU(L)->product = outer;
}

static void open_ranges(lower *L, tn_lbuilder *b, const tn_top *op)
{
    static const char *const names[TN_TILE_RANK] = {"k0", "k1", "k2", "k3", "k4", "k5"};
    for (int i = 0; i < op->nranges; i++) {
        tn_lop *loop = tn_l_for(b, names[i], tn_l_index(b, 0), lower_scalar(L, b, op->operand[i]), tn_l_index(b, op->step[i].size), TN_FOR_SERIAL);
        *b = tn_l_in(b, loop->region[0]);
        lower_memo(L, &op->region[0]->arg[i], NULL, (element){loop->region[0]->arg, NULL});
    }
}

static void add_strips(lower *L, tn_lbuilder *b, product *p)
{
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    region r = gpu_enter(L);
    open_ranges(L, &in, p->op);
    body_of_fold(L, &in, p);
    if (L->status == TN_OK)
        add_strip(L, &in, p, NULL);
    gpu_leave(L, &in, r);
    lower_close(L, s);
}

/* ---- where sums start ----------------------------------------------------------------------------------------------------------- */

/* What the sum starts at: 0, or a fold's identity. */
static void clear(tn_lbuilder *b, const product *p)
{
    tn_dtype type = accumulator_type(p);
    set_all(b, p, p->acc, type, p->op == p->dot ? tn_number_from_int(type, 0) : p->op->identity[0]);
}

/* Products by warpgroups of the first strip make the sums, if those start at 0: no register is written before. */
static bool makes_sums(const product *p)
{
    return p->op != p->dot && p->group_columns && !p->apart && p->walks && tn_number_same(p->sum, p->op->identity[0], tn_number_from_int(p->sum, 0));
}

/* Where there is no strip. Behind the loop, so that the zeros are no values that it starts with. */
static void clear_unless_made(tn_lbuilder *b, const product *p, const gpu_ring *turns)
{
    tn_lvalue *none = tn_l_fn2(b, TN_S_ge, turns->first, turns->limit);
    int64_t known;
    if (tn_l_is_const(none, &known) && !known)
        return;
    tn_lbuilder in = tn_l_in(b, tn_l_if(b, none)->region[0]);
    clear(&in, p);
}

/* ---- the pipeline ------------------------------------------------------------------------------------------------------------------ */

/* Which operands are copied, and how far ahead. */
static gpu_ring ring_of(lower *L, product *p)
{
    gpu_ring r = {.index = &p->op->region[0]->arg[0], .groups = p->group_columns > 0};
    int64_t other = 0;
    for (int i = 0; i < 2; i++) {
        gpu_operand *o = &p->operand[i];
        if (o->lies != o->inner) {
            gpu_operand_to_turn(o, &p->raw[i]);
            gpu_plan_copies(L, p->op, &p->raw[i]);
        } else {
            gpu_plan_copies(L, p->op, o);
        }
        if (o->width || p->raw[i].width)
            r.operand[r.n++] = o->width ? o : &p->raw[i];
        if (!o->width)
            other += gpu_operand_elements(o) * o->bytes * (p->raw[i].width ? 2 : 1);
    }
    p->behind = p->group_columns && r.n == 2 && !p->apart;
    gpu_fit_ring(L, &r, p->op->label, other, p->behind ? 2 : 1);
    p->copied = r.n > 0;
    return r;
}

/* Several ranges are one loop over all their strips. */
void gpu_count_turns(lower *L, tn_lbuilder *b, const tn_top *op, gpu_ring *ring)
{
    tn_lvalue *turns = tn_l_index(b, 1);
    if (op->nranges == 1) {
        gpu_set_loop(ring, tn_l_index(b, 0), lower_scalar(L, b, op->operand[0]), tn_l_index(b, op->step[0].size));
        return;
    }
    for (int i = 0; i < op->nranges; i++) {
        int64_t step = op->step[i].size;
        tn_lvalue *limit = tn_l_fn2(b, TN_S_max, lower_scalar(L, b, op->operand[i]), tn_l_index(b, 0));
        ring->strip[i] = step;
        ring->count[i] = step == 1 ? limit : tn_l_fn2(b, TN_S_div, gpu_plus(b, limit, tn_l_index(b, step - 1)), tn_l_index(b, step));
        turns = tn_l_fn2(b, TN_S_mul, turns, ring->count[i]);
    }
    ring->nranges = op->nranges;
    gpu_set_loop(ring, tn_l_index(b, 0), turns, tn_l_index(b, 1));
}

static void add_strips_ahead(lower *L, tn_lbuilder *b, product *p, gpu_ring *ring)
{
    gpu_count_turns(L, b, p->op, ring);
    gpu_start_ring(L, b, ring);
    if (p->raw[0].width || p->raw[1].width) {
        tn_lvalue *zero = tn_l_index(b, 0);
        p->side = tn_l_alloc(b, "side", TN_I64, TN_SPACE_REG, 1);
        tn_l_store(b, p->side, zero, zero, NULL);
    }
    tn_lop *loop = tn_l_for(b, "k0", ring->first, ring->limit, ring->step, TN_FOR_SERIAL);
    tn_lbuilder in = tn_l_in(b, loop->region[0]);
    tn_lvalue *k = loop->region[0]->arg;
    scope s = lower_open(L);
    region r = gpu_enter(L);
    gpu_wait_for_turn(L, &in, ring);
    if (!p->behind)
        gpu_copy_ahead(L, &in, ring, k);
    scope turn = lower_open(L); /* what follows from this turn's index is something else in the copies for a later one */
    gpu_bind_turn(L, &in, ring, k);
    p->later = makes_sums(p) ? tn_l_fn2(&in, TN_S_ne, k, ring->first) : NULL;
    body_of_fold(L, &in, p);
    if (L->status == TN_OK)
        add_strip(L, &in, p, NULL);
    lower_close(L, turn);
    if (p->side) {
        tn_lvalue *none = tn_l_index(&in, 0);
        tn_l_store(&in, p->side, none, tn_l_fn2(&in, TN_S_sub, tn_l_index(&in, 1), tn_l_load(&in, p->side, none, 1, NULL, NULL)), NULL);
    }
    if (p->behind) /* the products of the strip before are done in this thread's group, so in all after the next barrier */
        gpu_copy_ahead(L, &in, ring, k);
    if (p->group_columns && !p->apart)
        tn_l_machine(&in, "wgmma_wait", (tn_lvalue *[]){tn_l_index(&in, p->behind)}, 1);
    gpu_leave(L, &in, r);
    lower_close(L, s);
    if (p->group_columns && !p->apart)
        end_groups(b, p);
    if (makes_sums(p))
        clear_unless_made(b, p, ring);
    gpu_end_ring(L, b, ring);
}

/* ---- strips apart, ahead ------------------------------------------------------------------------------------------------------------ */

/* Of strips of boxes whose sums are apart, the next part's products (of the last part: the first one's of the next strip) are issued as soon as a part is added up. So a warpgroup has
 * nothing under way only while it adds, and others multiply then; addresses and waits come while products run.
 *
 *     wait for strip 0; products of its first part
 *     each strip but the last:   wait for part 0, add it up; products of part 1
 *                                wait for the next strip's boxes, and for part 1; give the strip back; add part 1 up; products of the next strip's part 0
 *     the last strip:            the same without a next one */
static bool may_run_ahead(const product *p, const gpu_boxes *boxes)
{
    int64_t deep = GPU_MMA_DEPTH / p->operand[0].bytes;
    bool whole = !p->dot->imprecise || p->dot->imprecise >= instructions_deep(p) * deep;
    return p->apart && p->group_columns && whole && gpu_box_is_ahead(boxes);
}

static int sums_of_part(const product *p) { return (int)(tn_layout_regs(&p->layout) / p->apart); }

/* unless: see batch. Without it the assembler would have other registers for the next part than for this one, and issue products before those are added up, for which there are too few. */
static void issue_part(lower *L, tn_lbuilder *b, const product *p, const place *sums, int part, tn_lvalue *unless)
{
    multiply_batch(L, b, p, &(batch){.sums = sums->held->regs, .part = part, .parts = p->apart, .last = instructions_deep(p), .makes = true, .unless = unless});
}

/* What was added up of a part is there before what follows: then its registers are free. */
static void settle_part(tn_lbuilder *b, const product *p, int part)
{
    tn_lvalue *r;
    int mine = sums_of_part(p);
    tn_lbuilder in = unrolled_from(b, "r", (int64_t)part * mine, (int64_t)(part + 1) * mine, &r);
    tn_l_machine(&in, "not_before", (tn_lvalue *[]){p->acc->held->regs, r}, 2);
}

/* Operands of the turn that is now. */
static void locate_strip(lower *L, tn_lbuilder *b, product *p)
{
    gpu_locate_dot(L, b, p->dot);
    for (int i = 0; i < 2; i++)
        gpu_ready_operand(L, p->dot, i, &p->operand[i]);
}

static void await_strip(lower *L, tn_lbuilder *b, product *p, gpu_boxes *boxes)
{
    gpu_await_boxes(L, b, boxes);
    locate_strip(L, b, p);
}

/* Its first part's products are under way. more: the next strip's are, when it ends. */
static void end_strip(lower *L, tn_lbuilder *b, product *p, const place *sums, gpu_boxes *boxes, bool more)
{
    int mine = sums_of_part(p);
    for (int part = 0; part < p->apart && L->status == TN_OK; part++) {
        bool last = part == p->apart - 1;
        int next = last ? 0 : part + 1;
        if (last && more) {
            gpu_next_boxes(b, boxes);
            await_strip(L, b, p, boxes);
        }
        end_sums(b, p, sums->held->regs, (int64_t)part * mine, mine);
        if (last)
            gpu_release_boxes(L, b, boxes, more, NULL);
        accumulate_part(L, b, p, part);
        if (last && !more)
            continue;
        settle_part(b, p, part);
        take_over(b, sums->held->regs, (int64_t)next * mine, (int64_t)part * mine, mine);
        issue_part(L, b, p, sums, next, gpu_box_is_none(b, boxes));
    }
}

static void add_strip_ahead(lower *L, tn_lbuilder *b, product *p, const place *sums, gpu_boxes *boxes, tn_lvalue *k, bool more)
{
    gpu_ring *turns = gpu_box_turns(boxes);
    const tn_tblock *block = p->op->region[0];
    scope s = lower_open(L);
    region r = gpu_enter(L);
    locate_strip(L, b, p);
    gpu_bind_turn(L, b, turns, k);
    body_of_fold(L, b, p);
    keep_scales(L, b, block->last->operand[0], block);
    lower_set_place(L, p->dot->result, (place *)(uintptr_t)sums);
    end_strip(L, b, p, sums, boxes, more);
    lower_set_place(L, p->dot->result, NULL);
    gpu_leave(L, b, r);
    lower_close(L, s);
}

static void run_ahead(lower *L, tn_lbuilder *b, product *p, gpu_boxes *boxes)
{
    gpu_ring *turns = gpu_box_turns(boxes);
    tn_ttype type = p->dot->result->type;
    tn_lbuilder in = *b;
    tn_lvalue *any = tn_l_fn2(b, TN_S_lt, turns->first, turns->limit);
    int64_t known;
    type.dtype = p->sum;
    if (tn_l_is_const(any, &known) && !known)
        return;
    if (!tn_l_is_const(any, &known))
        in = tn_l_in(b, tn_l_if(b, any)->region[0]);
    scope s = lower_open(L);
    region r = gpu_enter(L);
    place *sums = gpu_new_place(L, &in, &type, &p->layout, "products");
    await_strip(L, &in, p, boxes);
    start_sums_of(&in, p, sums->held->regs, 0, sums_of_part(p));
    issue_part(L, &in, p, sums, 0, NULL);
    tn_lvalue *span = tn_l_fn2(&in, TN_S_sub, tn_l_fn2(&in, TN_S_sub, turns->limit, turns->first), tn_l_index(&in, 1));
    tn_lvalue *last = gpu_plus(&in, turns->first, tn_l_fn2(&in, TN_S_mul, tn_l_fn2(&in, TN_S_div, span, turns->step), turns->step));
    tn_lop *loop = tn_l_for(&in, "k0", turns->first, last, turns->step, TN_FOR_SERIAL);
    tn_lbuilder body = tn_l_in(&in, loop->region[0]);
    add_strip_ahead(L, &body, p, sums, boxes, loop->region[0]->arg, true);
    if (L->status == TN_OK)
        add_strip_ahead(L, &in, p, sums, boxes, last, false);
    gpu_next_boxes(&in, boxes);
    gpu_leave(L, &in, r);
    lower_close(L, s);
}

/* The same where a producer copies: a strip's products run on while the next one's operands are waited for, and are done when that one's were issued. */
static void add_strips_of_boxes(lower *L, tn_lbuilder *b, product *p, gpu_boxes *boxes)
{
    gpu_ring *turns = gpu_box_turns(boxes);
    gpu_count_turns(L, b, p->op, turns);
    gpu_take_turn(L, b);
    if (may_run_ahead(p, boxes)) {
        run_ahead(L, b, p, boxes);
        gpu_pass_turn(L, b);
        return;
    }
    tn_lop *loop = tn_l_for(b, "k0", turns->first, turns->limit, turns->step, TN_FOR_SERIAL);
    tn_lbuilder in = tn_l_in(b, loop->region[0]);
    tn_lvalue *k = loop->region[0]->arg;
    scope s = lower_open(L);
    region r = gpu_enter(L);
    gpu_await_boxes(L, &in, boxes);
    for (int i = 0; i < 2; i++)
        gpu_ready_operand(L, p->dot, i, &p->operand[i]);
    p->copied = true;
    p->later = makes_sums(p) ? tn_l_fn2(&in, TN_S_ne, k, turns->first) : NULL;
    gpu_bind_turn(L, &in, turns, k);
    body_of_fold(L, &in, p);
    if (L->status == TN_OK)
        add_strip(L, &in, p, boxes);
    if (!p->apart) {
        tn_l_machine(&in, "wgmma_wait", (tn_lvalue *[]){tn_l_index(&in, 1)}, 1);
        gpu_release_boxes(L, &in, boxes, true, tn_l_fn2(&in, TN_S_ne, k, turns->first));
    }
    gpu_next_boxes(&in, boxes);
    gpu_leave(L, &in, r);
    lower_close(L, s);
    gpu_pass_turn(L, b);
    if (p->apart)
        return;
    end_groups(b, p);
    if (makes_sums(p))
        clear_unless_made(b, p, turns);
    gpu_release_boxes(L, b, boxes, true, tn_l_fn2(b, TN_S_lt, turns->first, turns->limit));
}

/* ---- the whole -------------------------------------------------------------------------------------------------------------------------- */

/* A load of a row or column without gaps, by numbers. Products would wait long for a tile. */
static bool loads_line(const tn_top *load)
{
    bool plain = load->code == TN_T_load && load->result->type.rank <= 1;
    for (int d = 0; plain && d < load->view->rank; d++)
        plain = !load->subscript[d].value->type.rank;
    return plain && tn_top_loads_all(load);
}

/* Every element exists, as far as one can tell without looking at memory. */
static bool is_whole(lower *L, const tn_tvalue *v, int *budget)
{
    const place *p = tn_map_get(&L->places, TN_KEY(v));
    const tn_top *op = v->def;
    if (--*budget < 0 || (p && p->present))
        return false;
    if ((p && !p->kept) || !op || op->code == TN_T_const || op->code == TN_T_range || op->code == TN_T_size || loads_line(op))
        return true;
    if (op->code != TN_T_map && op->code != TN_T_cast && op->code != TN_T_broadcast && op->code != TN_T_reshape && op->code != TN_T_permute)
        return false;
    for (int i = 0; i < op->noperands; i++)
        if (!is_whole(L, op->operand[i], budget))
            return false;
    return true;
}

static const tn_tvalue *unmoved(const tn_tvalue *v) /* what a movement moves is made where it is wanted */
{
    while (v->def && (v->def->code == TN_T_broadcast || v->def->code == TN_T_reshape || v->def->code == TN_T_permute))
        v = v->def->operand[0];
    return v;
}

static bool is_before(const tn_tvalue *v, const tn_top *op)
{
    v = unmoved(v);
    for (const tn_top *at = op->next; at; at = at->next)
        if (v->def == at)
            return false;
    return v->def != op;
}

/* What is there since before the dot's block is taken away behind the dot as fast: an H200, three products by rows, -1 %. */
static bool takes_away(const tn_top *user, const tn_top *dot)
{
    const tn_top *from = user->operand[0] == dot->result ? unmoved(user->operand[1])->def : NULL;
    return user->fn == TN_S_sub && from && from->block == dot->block;
}

/* The one operation that uses the dot, if it adds it to something or takes something from it: `acc + dot`, `x * y + dot`, `dot - x`. */
static const tn_top *addition_of(lower *L, const tn_top *dot)
{
    const tn_top *user = NULL;
    int uses = 0;
    tn_map marked = {.arena = &L->arena};
    *tn_map_at(&marked, TN_KEY(dot->result)) = (void *)(uintptr_t)dot;
    for (const tn_top *op = dot->next; op; op = op->next) {
        int before = uses;
        for (int i = 0; i < op->noperands; i++)
            uses += op->operand[i] == dot->result;
        if (uses > before)
            user = op;
        else if (lower_depends_on(op, &marked))
            return NULL;
    }
    bool adds = user && uses == 1 && user->code == TN_T_map &&
                (user->fn == TN_S_add || takes_away(user, dot) || (user->fn == TN_S_fma && user->operand[2] == dot->result));
    return adds && sum_type(dot) == dot->result->type.dtype ? user : NULL;
}

const tn_tvalue *gpu_added_to(lower *L, const tn_top *dot)
{
    const tn_top *user = addition_of(L, dot);
    int budget = LOWER_BUDGET;
    const tn_tvalue *other = user ? user->operand[user->operand[0] == dot->result] : NULL;
    return other && user->fn != TN_S_fma && is_whole(L, other, &budget) ? other : NULL;
}

/* The same, if what it is added to stands before the dot: the accumulators start at that. */
static const tn_top *addition(lower *L, const product *p)
{
    const tn_top *user = p->group_columns && p->dot->imprecise ? NULL : addition_of(L, p->dot);
    int budget = LOWER_BUDGET;
    for (int i = 0; user && i < user->noperands; i++)
        if (user->operand[i] != p->dot->result && (!is_before(user->operand[i], p->dot) || !is_whole(L, user->operand[i], &budget)))
            return NULL;
    return user;
}

static void start_at(lower *L, tn_lbuilder *b, const product *p, const tn_top *user)
{
    if (user->fn == TN_S_add) {
        gpu_materialise_into(L, b, user->operand[user->operand[0] == p->dot->result], p->acc);
        return;
    }
    nest n;
    bool less = user->fn == TN_S_sub;
    for (int i = less; i < 2; i++)
        gpu_prepare_own(L, b, user->operand[i], &p->layout);
    tn_lbuilder in = *b;
    gpu_open(L, &in, &p->layout, &n);
    tn_lvalue *y = lower_element(L, &in, user->operand[1], n.idx).value;
    tn_lvalue *from = less ? tn_l_fn1(&in, TN_S_neg, y) : tn_l_fn2(&in, TN_S_mul, lower_element(L, &in, user->operand[0], n.idx).value, y);
    tn_l_store(&in, p->acc->held->regs, n.reg, from, NULL);
    gpu_close(L, &n);
}

/* Sums that were kept in a wider type become the result's. */
static place *narrowed(lower *L, tn_lbuilder *b, const product *p)
{
    tn_lvalue *r;
    if (accumulator_type(p) == p->op->result->type.dtype)
        return p->acc;
    place *out = gpu_new_place(L, b, &p->op->result->type, &p->layout, "product");
    tn_lbuilder in = gpu_unrolled(b, "r", tn_layout_regs(&p->layout), &r);
    tn_l_store(&in, out->held->regs, r, tn_l_cast(&in, tn_l_load(&in, p->acc->held->regs, r, 1, NULL, NULL), p->op->result->type.dtype), NULL);
    return out;
}

/* What is to be multiplied, by what, and the accumulators. */
static bool open_product(lower *L, tn_lbuilder *b, const tn_top *op, product *p)
{
    *p = product_of(L, op);
    if (!is_tiled(p) && !gpu_class_layout(L, &p->dot->result->type, &p->layout))
        return false;
    for (int i = 0; is_tiled(p) && i < 2; i++)
        if (!gpu_operand_of(L, p->dot, i, &p->operand[i]))
            return false;
    tn_ttype sums = p->dot->result->type;
    sums.dtype = accumulator_type(p);
    p->acc = gpu_new_place(L, b, &sums, &p->layout, "acc");
    p->user = op == p->dot ? addition(L, p) : NULL;
    return true;
}

static void start_sums(lower *L, tn_lbuilder *b, const product *p)
{
    if (p->user)
        start_at(L, b, p, p->user);
    else if (makes_result(p))
        start_sums_of(b, p, p->acc->held->regs, 0, tn_layout_regs(&p->layout));
    else if (!makes_sums(p))
        clear(b, p);
}

static void close_product(lower *L, tn_lbuilder *b, const product *p)
{
    if (L->status == TN_OK)
        lower_set_place(L, p->user ? p->user->result : p->op->result, narrowed(L, b, p));
}

bool gpu_fragments_of_dot(lower *L, const tn_top *dot, tn_layout *out)
{
    const tn_ttype *type = &dot->operand[0]->type;
    tn_layout has;
    return tn_dtype_bits(type->dtype) == 16 && gpu_dot_is_by_groups(L, dot) && tn_layout_mma_a(type, GPU(L)->warps, 1, out) && gpu_class_layout(L, type, &has) &&
           tn_layout_same_threads(&has, out);
}

product *gpu_start_dot(lower *L, tn_lbuilder *b, const tn_top *dot, const place *fragments)
{
    product *p = TN_NEW(&L->arena, product);
    if (!open_product(L, b, dot, p))
        return NULL;
    start_sums(L, b, p);
    for (int i = 0; i < 2; i++)
        gpu_ready_operand(L, dot, i, &p->operand[i]);
    if (fragments)
        p->operand[0].fragments = fragments;
    multiply_by_groups(L, b, p);
    return p;
}

void gpu_end_sums(lower *L, tn_lbuilder *b, const place *sums, int others)
{
    const char *name = tn_format(&L->session->arena, "wgmma_until_%d", tn_layout_regs(&sums->held->layout));
    tn_l_machine(b, name, (tn_lvalue *[]){sums->held->regs, tn_l_index(b, 0), tn_l_index(b, others)}, 3);
}

void gpu_close_dot(lower *L, tn_lbuilder *b, const product *p) { close_product(L, b, p); }

void gpu_end_dot(lower *L, tn_lbuilder *b, const product *p, int others)
{
    gpu_end_sums(L, b, p->acc, others);
    close_product(L, b, p);
}

/* Issued; others wait for it. */
static void leave_under_way(lower *L, tn_lbuilder *b, const product *p)
{
    bool stored = false;
    for (int i = 0; i < 2; i++)
        stored |= !p->operand[i].width && !p->operand[i].fragments && !p->operand[i].settled;
    gpu_run_late(L, b, p->dot, tn_memdup(&L->arena, p, sizeof *p), p->user ? p->user->result : NULL, stored);
}

void gpu_dot(lower *L, tn_lbuilder *b, const tn_top *op)
{
    const tn_top *dot = dot_of(op);
    product p;
    if (!open_product(L, b, op, &p))
        return;
    int64_t shared = GPU(L)->shared;
    gpu_boxes *boxes = op == dot ? NULL : gpu_boxes_of_fold(L, dot);
    gpu_ring ring = {.n = 0};
    if (op != dot && !boxes && is_tiled(&p))
        ring = ring_of(L, &p);
    p.walks = boxes || ring.n;
    if (p.user)
        gpu_await_products(L, b, p.user);
    start_sums(L, b, &p);
    if (op == dot) {
        gpu_await_dot(L, b, dot);
        for (int i = 0; is_tiled(&p) && i < 2; i++)
            gpu_ready_operand(L, dot, i, &p.operand[i]);
        gpu_before_late(L, b, dot);
        add_strip(L, b, &p, NULL);
        if (L->status == TN_OK && gpu_runs_late(L, dot)) {
            leave_under_way(L, b, &p);
            return;
        }
        gpu_release_dot(L, b, dot);
    } else if (boxes) {
        add_strips_of_boxes(L, b, &p, boxes);
    } else {
        if (ring.n)
            add_strips_ahead(L, b, &p, &ring);
        else
            add_strips(L, b, &p);
        GPU(L)->shared = shared; /* what was made inside is not there behind it */
    }
    close_product(L, b, &p);
}
