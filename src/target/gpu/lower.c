/* Tile IR -> Loop IR for NVIDIA GPUs: what one thread of a CTA does. docs/gpu.md is the design.
 *
 * A program is a CTA; its `warps` x 32 threads share out every tile. A tile is an expression, whose elements are computed where a nest needs them, or a place:
 * registers, that a layout shares out (nest.c), and shared memory once other threads want its elements. Sinks make nests over the registers of a layout
 * (choose.c says which): stores, reductions (reduce.c), and values that are kept because several nests want them. Scalars are computed by every thread. */
#include "target/gpu/dot.h"
#include "target/gpu/lower.h"

#include <assert.h>
#include <string.h>

void gpu_refuse(lower *L, const tn_top *op, const char *what)
{
    if (L->status == TN_OK)
        L->status = tn_error(L->session, TN_UNSUPPORTED, op->loc, "kernel %s: %s has no GPU lowering", L->kernel->name, what ? what : tn_format(&L->session->arena, "'%s'", tn_top_name(op->code)));
}

tn_lvalue *gpu_is_first_thread(lower *L) { return tn_l_fn2(&L->entry, TN_S_eq, GPU(L)->thread, tn_l_index(&L->entry, 0)); }

/* ---- stores ------------------------------------------------------------------------------------------------------------------ */

bool gpu_sink_layout(lower *L, const tn_tvalue *v, tn_layout *out)
{
    if (v->type.rank)
        return gpu_natural_layout(L, v, out);
    *out = gpu_scalar_layout(L);
    return true;
}

/* Registers of a thread that hold what v is computed from. */
static int64_t held_words(lower *L, const tn_tvalue *v, int *budget)
{
    const place *p = tn_map_get(&L->places, TN_KEY(v));
    int64_t words = 0;
    if (p || !v->def || --*budget < 0 || !lower_is_expression(v->def) || lower_is_load(v->def))
        return p && p->held && !p->buffer && !p->held->own ? gpu_words(L, &v->type) : 0;
    for (int i = 0; i < v->def->noperands; i++)
        words += held_words(L, v->def->operand[i], budget);
    return words;
}

/* What is stored had better be computed before the store's nest is opened: it would load what another thread stores; or a barrier comes first, across which fewer
 * registers hold the result than what it is made of. */
static bool compute_before_store(lower *L, const tn_top *op, const tn_tvalue *v, const tn_layout *layout)
{
    int budget = LOWER_BUDGET;
    if (v->type.rank == 0)
        return false;
    return gpu_next_meets(L, op, layout) || (gpu_store_waits(L, op, layout) && held_words(L, v, &budget) > tn_max(gpu_words(L, &v->type), gpu_thread_room(L)));
}

/* Whole accesses. Where each element is one of its own, addresses take the registers that selects of bounds would: without those the assembler spills some
 * (LayerNorm of 16001 columns: 86 registers, 64 and 88 bytes of memory without selects). */
static bool is_stored_in_vectors(lower *L, const tn_top *store)
{
    enum { VECTOR_BITS = 8 * 16 };
    int axis;
    int64_t multiple;
    return gpu_neighbours(L, store, &axis, &multiple) && multiple * tn_dtype_bits(lower_accessed_tile(store)->type.dtype) % VECTOR_BITS == 0;
}

static void lower_store(lower *L, tn_lbuilder *b, const tn_top *op)
{
    const tn_tvalue *v = lower_accessed_tile(op);
    tn_layout layout, better;
    nest n;
    if (gpu_store_result(L, b, op) || !gpu_sink_layout(L, v, &layout))
        return;
    if (v->type.rank && op->view && gpu_store_is_scattered(L, op, &layout)) { /* fragments: whole rows are stored, or pieces of 64 bytes at least */
        int64_t multiple;
        int axis;
        place *p = tn_map_get(&L->places, TN_KEY(v));
        if (!p)
            p = gpu_materialise(L, b, v, &layout);
        if (!(p->held && gpu_neighbours(L, op, &axis, &multiple) && gpu_gather_neighbours(L, b, &v->type, p, axis, multiple, &layout)) && gpu_store_whole_rows(L, op, &layout, &better))
            layout = better;
    }
    gpu_prepare_access(L, b, op, &layout);
    if (compute_before_store(L, op, v, &layout)) {
        gpu_materialise(L, b, v, &layout);
        gpu_prepare_access(L, b, op, &layout);
    }
    gpu_touch_global(L, b, lower_accessed(L, op), op, &layout, true);
    tn_lbuilder in = *b;
    gpu_open(L, &in, &layout, &n);
    L->sink = op->view && is_stored_in_vectors(L, op) ? op : NULL;
    L->sink_index = n.idx;
    element e = lower_element(L, &in, v, n.idx);
    L->sink = NULL;
    access a = op->view ? lower_resolve(L, &in, op, n.idx) : lower_pointed(L, &in, op, n.idx);
    tn_lvalue *memory = op->view ? L->buffer[op->view->buffer] : lower_pointed_memory(L, op);
    tn_l_store(&in, memory, a.offset, e.value, lower_and(&in, gpu_owns(L, &layout), lower_and(&in, a.exists, e.present)));
    gpu_close(L, &n);
}

/* ---- loads -------------------------------------------------------------------------------------------------------------------- */

/* Where it stands, not later: something in between may write what it reads. */
static bool must_load_now(lower *L, const tn_top *load)
{
    int buffer = lower_accessed(L, load);
    if (buffer >= 0 && L->kernel->buffers.at[buffer].mode == TN_READ && !L->func->overlap)
        return false;
    tn_map marked = {.arena = &L->arena};
    *tn_map_at(&marked, TN_KEY(load->result)) = (void *)load;
    bool written = false;
    for (const tn_top *op = load->next; op; op = op->next) {
        bool uses = lower_depends_on(op, &marked);
        if (uses && written)
            return true;
        if (lower_writes(L, op, buffer)) {
            if (uses && !lower_same_element(L, load, op))
                return true;
            written = true;
        }
        written |= lower_synchronises(op);
        for (int i = 0; uses && i < op->nresults; i++)
            *tn_map_at(&marked, TN_KEY(&op->result[i])) = (void *)op;
    }
    return false;
}

void gpu_keep(lower *L, tn_lbuilder *b, const tn_tvalue *v)
{
    tn_layout layout;
    if (gpu_natural_layout(L, v, &layout))
        gpu_materialise(L, b, v, &layout);
}

/* More than one access of a thread: all are made before any is waited for, in a nest that does nothing else. */
static bool is_load_of_several(const lower *L, const tn_top *op)
{
    enum { ACCESS = 4, MOST = 64 }; /* registers */
    int64_t words = gpu_words(L, &op->result->type);
    return words > ACCESS && words <= MOST;
}

/* What is loaded behind reductions, while a row waits in shared memory, is loaded where it is used, so that few registers do, and three or more CTAs run side by
 * side (LayerNorm of 16384 columns: 0.95 of a copy; with loads in a nest of their own and 47 registers 0.87). */
static bool leave_to_nest(lower *L, const tn_top *op)
{
    enum { LEAST_THREADS = 256 /* smaller CTAs are many anyway */, VECTOR_BYTES = 16 };
    int threads = 32 * GPU(L)->warps, resident = gpu_resident(L), axis;
    int64_t multiple;
    if (!GPU(L)->waits || GPU(L)->multiplies || threads < LEAST_THREADS || resident < 2 || L->func->overlap || must_load_now(L, op))
        return false;
    if (!gpu_neighbours(L, op, &axis, &multiple) || multiple * tn_dtype_bits(op->result->type.dtype) % (8 * VECTOR_BYTES)) /* an address an element takes registers */
        return false;
    L->func->resident = resident;
    return true;
}

static void lower_load(lower *L, tn_lbuilder *b, const tn_top *op)
{
    if (op->result->type.rank == 0) {
        int buffer = lower_accessed(L, op);
        gpu_touch_global(L, b, buffer, op, NULL, false);
        lower_scalar(L, b, op->result);
        return;
    }
    if (tn_map_get(&L->places, TN_KEY(op->result)) || gpu_take_arrival(L, b, op)) /* ahead of its turn; by boxes */
        return;
    if (tn_map_get(&GPU(L)->ready, TN_KEY(op->result))) { /* a ring of copies has it */
        gpu_boxes *whole = gpu_boxes_of_load(L, op);
        if (whole)
            gpu_await_boxes(L, b, whole);
        return;
    }
    bool worth = gpu_is_worth_keeping(L, op->result);
    if (!worth && (is_load_of_several(L, op) ? leave_to_nest(L, op) : !must_load_now(L, op)))
        return;
    gpu_keep(L, b, op->result);
    place *p = tn_map_get(&L->places, TN_KEY(op->result));
    int64_t registers;
    if (p && p->held && gpu_had_better_wait(L, op->result, &p->held->layout, &registers))
        gpu_let_wait(L, b, &op->result->type, p, registers);
}

/* ---- print, assert --------------------------------------------------------------------------------------------------------------- */

static void lower_print(lower *L, tn_lbuilder *b, const tn_top *op)
{
    tn_lbuilder in = *b;
    if (op->noperands == 0) {
        in = tn_l_in(b, tn_l_if(b, gpu_is_first_thread(L))->region[0]);
        lower_print_text(L, &in, op);
    }
    for (int i = 0; i < op->noperands; i++) {
        tn_layout layout;
        nest n;
        if (!gpu_sink_layout(L, op->operand[i], &layout))
            return;
        gpu_prepare_own(L, b, op->operand[i], &layout);
        in = *b;
        gpu_open(L, &in, &layout, &n);
        tn_lvalue *owns = gpu_owns(L, &layout);
        if (owns)
            in = tn_l_in(&in, tn_l_if(&in, owns)->region[0]);
        lower_print_element(L, &in, op, i, n.idx);
        gpu_close(L, &n);
    }
}

static void lower_assert(lower *L, tn_lbuilder *b, const tn_top *op)
{
    tn_layout layout;
    nest n;
    if (!gpu_sink_layout(L, op->operand[0], &layout))
        return;
    gpu_prepare_own(L, b, op->operand[0], &layout);
    tn_lbuilder in = *b;
    gpu_open(L, &in, &layout, &n);
    tn_l_trap(&in, lower_assertion(L, &in, op, n.idx), tn_max(op->loc.line, 1));
    gpu_close(L, &n);
}

/* ---- control ------------------------------------------------------------------------------------------------------------------------ */

static void bind_state(lower *L, const tn_tvalue *args, place *const *state, int n)
{
    for (int i = 0; i < n; i++)
        lower_set_place(L, &args[i], state[i]);
}

/* Registers for what a loop or branch gives. */
static bool new_state(lower *L, tn_lbuilder *b, const tn_top *op, tn_tvalue *const *like, place **out, const char *name)
{
    for (int i = 0; i < op->nresults; i++) {
        tn_layout layout = {0};
        if (op->result[i].type.rank && !gpu_natural_layout(L, like[i], &layout))
            return false;
        out[i] = gpu_new_place(L, b, &op->result[i].type, &layout, name);
        out[i]->root = lower_root(L, &op->result[i]);
    }
    return true;
}

static void copy_registers(tn_lbuilder *b, const tn_ttype *type, const place *to, const place *from)
{
    tn_lvalue *r = tn_l_index(b, 0);
    tn_lbuilder in = *b;
    if (type->rank) {
        tn_lop *loop = tn_l_for(b, "r", r, tn_l_index(b, to->held->regs->def->size), tn_l_index(b, 1), TN_FOR_UNROLL);
        in = tn_l_in(b, loop->region[0]);
        r = loop->region[0]->arg;
    }
    tn_l_store(&in, type->rank ? to->held->regs : to->buffer, r, tn_l_load(&in, type->rank ? from->held->regs : from->buffer, r, 1, NULL, NULL), NULL);
}

/* Is one of `args`, but the one that v itself becomes, among what v is computed from? */
static bool reads_state(lower *L, const tn_tvalue *v, const tn_tvalue *args, int n, const tn_tvalue *own, int *budget)
{
    if (v >= args && v < args + n)
        return v != own;
    if (!v->def || --*budget < 0 || (tn_map_get(&L->places, TN_KEY(v)) && v->type.rank == 0))
        return *budget < 0;
    const place *p = tn_map_get(&L->places, TN_KEY(v));
    if (p && !p->kept)
        return false;
    for (int i = 0; i < v->def->noperands; i++)
        if (reads_state(L, v->def->operand[i], args, n, own, budget))
            return true;
    return false;
}

void gpu_carry(lower *L, tn_lbuilder *b, const tn_tvalue *args, tn_tvalue *const *values, place *const *state, int n, const bool *chosen)
{
    place *next[TN_TILE_CARRIED];
    bool apart = false;
    for (int i = 0; i < n; i++) {
        int budget = LOWER_BUDGET;
        if (chosen && !chosen[i])
            continue;
        apart |= reads_state(L, values[i], args, n, &args[i], &budget);
        if (state[i]->held && state[i]->buffer)
            apart = true;
    }
    for (int i = 0; i < n; i++) {
        tn_layout layout = state[i]->held ? state[i]->held->layout : (tn_layout){0};
        if (chosen && !chosen[i])
            continue;
        next[i] = state[i];
        if (apart) {
            next[i] = gpu_new_place(L, b, &args[i].type, &layout, "next");
            next[i]->root = state[i]->root;
        }
        gpu_materialise_into(L, b, values[i], next[i]);
    }
    for (int i = 0; apart && i < n; i++)
        if (!chosen || chosen[i])
            copy_registers(b, &args[i].type, state[i], next[i]);
}

enum { MOST_TURNS = 4, MOST_AHEAD = 16 };

/* v is computed from what the loop carries. */
static bool is_carried(const tn_top *loop, const tn_tvalue *v, int *budget)
{
    const tn_tvalue *args = loop->region[0]->arg;
    if (v > args && v < args + loop->region[0]->nargs)
        return true;
    if (--*budget < 0)
        return true;
    for (int i = 0; v->def && v->def->block == loop->region[0] && i < v->def->noperands; i++)
        if (is_carried(loop, v->def->operand[i], budget))
            return true;
    for (int d = 0; v->def && v->def->view && d < v->def->view->rank; d++)
        if (is_carried(loop, v->def->subscript[d].value, budget))
            return true;
    return false;
}

/* What several turns of a loop load, in registers: those of the turns that come next, while these compute. */
typedef struct ahead {
    int turns, n;
    const tn_top *load[MOST_AHEAD];
    place *place[MOST_TURNS][MOST_AHEAD];
} ahead;

/* Loads that can be made ahead of their turn: of a loop that does nothing but load, at places that it does not compute on the way, and compute. As many turns at
 * once as have enough in flight. A loop of unknown length by long steps (`few`) is often one turn, a row by a block that holds it: where that loads much, CTAs side by
 * side hide each other's waits better than registers for turns that never come. */
static void find_ahead(lower *L, const tn_top *op, bool few, ahead *a)
{
    enum { WORDS = 32, MOST_WORDS = 64 /* of a thread, in flight */, MOST_OF_FEW = 4 };
    int64_t words = 0;
    int n = 0;
    for (const tn_top *in = op->region[0]->first; in; in = in->next) {
        bool load = lower_is_load(in);
        int budget = LOWER_BUDGET;
        if (in->code != TN_T_yield && (!lower_is_expression(in) || in->code == TN_T_gather))
            return;
        if (!load || in->result->type.rank == 0)
            continue;
        if (n == MOST_AHEAD || is_carried(op, in->result, &budget))
            return;
        a->load[n++] = in;
        words += gpu_words(L, &in->result->type);
    }
    if (words > (few ? MOST_OF_FEW : MOST_WORDS))
        return;
    a->n = n;
    while (words && a->turns < MOST_TURNS && 2 * a->turns * words <= WORDS)
        a->turns *= 2;
}

/* One turn, after its loads, if they were made ahead. */
static void lower_turn(lower *L, tn_lbuilder *in, const tn_top *op, tn_lvalue *index, place *const *state)
{
    int n = op->nresults;
    scope s = lower_open(L);
    lower_memo(L, &op->region[0]->arg[0], NULL, (element){index, NULL});
    bind_state(L, op->region[0]->arg + 1, state, n);
    gpu_start_late_turn(L, index);
    gpu_block(L, in, op->region[0]);
    gpu_end_late_turn(L, in, state);
    if (L->status == TN_OK)
        gpu_carry(L, in, op->region[0]->arg + 1, op->region[0]->last->operand, state, n, NULL);
    lower_close(L, s);
}

/* Where there are turns left: what was touched before counts behind it too, for a barrier among the loads is not met where there are none. */
static void load_turns(lower *L, tn_lbuilder *at, const tn_top *op, tn_lvalue *index, tn_lvalue *step, tn_lvalue *end, const ahead *a)
{
    tn_lbuilder some = tn_l_in(at, tn_l_if(at, tn_l_fn2(at, TN_S_lt, index, end))->region[0]), *b = &some;
    region all = gpu_enter(L);
    for (int u = 0; u < a->turns; u++) {
        scope s = lower_open(L);
        region r = gpu_enter(L);
        lower_memo(L, &op->region[0]->arg[0], NULL, (element){tn_l_fn2(b, TN_S_add, index, tn_l_fn2(b, TN_S_mul, tn_l_index(b, u), step)), NULL});
        for (int i = 0; i < a->n && L->status == TN_OK; i++)
            gpu_materialise_into(L, b, a->load[i]->result, a->place[u][i]);
        gpu_leave(L, NULL, r);
        lower_close(L, s);
    }
    for (size_t i = 0; i < all.nbefore; i++)
        TN_PUSH(&L->arena, &GPU(L)->touched, all.before[i]);
}

static bool new_ahead(lower *L, tn_lbuilder *b, ahead *a)
{
    for (int i = 0; i < a->n; i++) {
        const tn_tvalue *v = a->load[i]->result;
        tn_layout layout;
        if (!gpu_natural_layout(L, v, &layout))
            return false;
        for (int u = 0; u < a->turns; u++) {
            a->place[u][i] = gpu_new_place(L, b, &v->type, &layout, "ahead");
            a->place[u][i]->root = lower_root(L, v);
            a->place[u][i]->kept = true;
        }
    }
    return true;
}

/* The loop from lo to hi, a->turns turns at once. */
static void lower_loop(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *lo, tn_lvalue *hi, tn_lvalue *step, ahead *a, gpu_ring *ring, place *const *state)
{
    tn_lvalue *all = tn_l_fn2(b, TN_S_mul, step, tn_l_index(b, a->turns));
    if (!new_ahead(L, b, a))
        return;
    if (a->n)
        load_turns(L, b, op, lo, step, hi, a);
    tn_lop *loop = tn_l_for(b, "i", lo, hi, all, TN_FOR_SERIAL);
    tn_lbuilder in = tn_l_in(b, loop->region[0]);
    tn_lvalue *index = loop->region[0]->arg;
    region r = gpu_enter(L);
    int64_t first, last;
    r.runs = tn_l_is_const(lo, &first) && tn_l_is_const(hi, &last) && first < last;
    if (ring)
        gpu_run_ring(L, &in, ring, index);
    ahead now = *a;
    if (a->n && new_ahead(L, &in, &now)) {
        for (int u = 0; u < a->turns; u++)
            for (int i = 0; i < a->n; i++)
                copy_registers(&in, &a->load[i]->result->type, now.place[u][i], a->place[u][i]);
        load_turns(L, &in, op, tn_l_fn2(&in, TN_S_add, index, all), step, hi, a);
    }
    for (int u = 0; u < a->turns && L->status == TN_OK; u++) {
        region turn = gpu_enter(L);
        for (int i = 0; i < a->n; i++)
            lower_set_place(L, a->load[i]->result, now.place[u][i]);
        lower_turn(L, &in, op, tn_l_fn2(&in, TN_S_add, index, tn_l_fn2(&in, TN_S_mul, tn_l_index(&in, u), step)), state);
        gpu_leave(L, NULL, turn);
    }
    for (int i = 0; i < a->n; i++)
        lower_set_place(L, a->load[i]->result, NULL);
    gpu_leave(L, &in, r);
}

void gpu_loop_bounds(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue **lo, tn_lvalue **hi, tn_lvalue **step)
{
    int64_t by;
    *lo = lower_scalar(L, b, op->operand[0]), *hi = lower_scalar(L, b, op->operand[1]), *step = lower_scalar(L, b, op->operand[2]);
    if (!tn_l_is_const(*step, &by)) /* a user's, at launch: one that does not go up would never end */
        *hi = tn_l_fn3(b, TN_S_select, tn_l_fn2(b, TN_S_gt, *step, tn_l_const(b, tn_lscalar((*step)->type.dtype), tn_number_from_int((*step)->type.dtype, 0))),
                       tn_l_cast(b, *hi, TN_I64), tn_l_cast(b, *lo, TN_I64));
    *lo = tn_l_cast(b, *lo, TN_I64), *hi = tn_l_cast(b, *hi, TN_I64), *step = tn_l_cast(b, *step, TN_I64);
}

static void lower_for(lower *L, tn_lbuilder *b, const tn_top *op)
{
    int n = op->nresults;
    place *state[TN_TILE_CARRIED];
    tn_tvalue *like[TN_TILE_CARRIED] = {NULL};
    for (int i = 0; i < n; i++) /* who wants them in the loop knows better than what they start at */
        like[i] = tn_map_get(&GPU(L)->demands, TN_KEY(&op->region[0]->arg[1 + i])) ? &op->region[0]->arg[1 + i] : op->operand[3 + i];
    tn_lvalue *lo, *hi, *step;
    gpu_loop_bounds(L, b, op, &lo, &hi, &step);
    if (!new_state(L, b, op, like, state, "carried"))
        return;
    for (int i = 0; i < n; i++)
        gpu_materialise_into(L, b, op->operand[3 + i], state[i]);
    const gpu_overlap *overlap = gpu_overlap_of(L, op);
    if (overlap) {
        gpu_lower_overlapped(L, b, overlap, lo, hi, step, state);
        bind_state(L, op->result, state, n);
        return;
    }
    gpu_settle_operands(L, b, op);
    gpu_ring *ring = gpu_ring_of_loop(L, op);
    if (ring) {
        gpu_set_loop(ring, lo, hi, step);
        gpu_start_ring(L, b, ring);
    }
    ahead a = {.turns = 1}, one = {.turns = 1};
    enum { LONG_STEP = 1024 };
    int64_t first, last, by;
    bool known = tn_l_is_const(lo, &first) && tn_l_is_const(hi, &last) && tn_l_is_const(step, &by) && by > 0;
    if (!ring)
        find_ahead(L, op, !known && tn_l_is_const(step, &by) && by >= LONG_STEP, &a);
    if (a.turns > 1) { /* those that are over come behind */
        tn_lvalue *all = tn_l_fn2(b, TN_S_mul, step, tn_l_index(b, a.turns)), *span = tn_l_fn2(b, TN_S_max, tn_l_fn2(b, TN_S_sub, hi, lo), tn_l_index(b, 0));
        tn_lvalue *whole = known ? tn_l_index(b, first + tn_max(last - first, 0) / (by * a.turns) * (by * a.turns))
                                 : tn_l_fn2(b, TN_S_add, lo, tn_l_fn2(b, TN_S_mul, tn_l_fn2(b, TN_S_div, span, all), all));
        lower_loop(L, b, op, lo, whole, step, &a, NULL, state);
        lo = whole;
        a = one;
    }
    gpu_late *outer = GPU(L)->late;
    GPU(L)->late = ring ? NULL : gpu_enter_late(L, b, op, lo, hi);
    if (!tn_l_is_const(lo, &first) || !tn_l_is_const(hi, &last) || first < last)
        lower_loop(L, b, op, lo, hi, step, &a, ring, state);
    gpu_leave_late(L, b, GPU(L)->late);
    GPU(L)->late = outer;
    if (ring)
        gpu_end_ring(L, b, ring);
    gpu_forget_operands(L, op);
    bind_state(L, op->result, state, n);
}

static void lower_while(lower *L, tn_lbuilder *b, const tn_top *op)
{
    int n = op->nresults;
    place *state[TN_TILE_CARRIED];
    if (!new_state(L, b, op, op->operand, state, "carried"))
        return;
    for (int i = 0; i < n; i++)
        gpu_materialise_into(L, b, op->operand[i], state[i]);
    tn_lop *loop = tn_l_while(b);
    tn_lbuilder in = tn_l_in(b, loop->region[0]);
    region r = gpu_enter(L);
    scope s = lower_open(L);
    bind_state(L, op->region[0]->arg, state, n);
    gpu_block(L, &in, op->region[0]);
    tn_l_yield(&in, lower_scalar(L, &in, op->region[0]->last->operand[0]));
    lower_close(L, s);
    gpu_leave(L, NULL, r);
    in = tn_l_in(b, loop->region[1]);
    s = lower_open(L);
    bind_state(L, op->region[1]->arg, state, n);
    gpu_block(L, &in, op->region[1]);
    if (L->status == TN_OK)
        gpu_carry(L, &in, op->region[1]->arg, op->region[1]->last->operand, state, n, NULL);
    gpu_leave(L, &in, r);
    lower_close(L, s);
    bind_state(L, op->result, state, n);
}

static void lower_if(lower *L, tn_lbuilder *b, const tn_top *op)
{
    gpu_lower *g = GPU(L);
    place *out[TN_TILE_CARRIED];
    if (!new_state(L, b, op, op->region[0]->last->operand, out, "if"))
        return;
    tn_lop *branch = tn_l_if(b, lower_scalar(L, b, op->operand[0]));
    region r = gpu_enter(L);
    for (int side = 0; side < 2; side++) {
        tn_lbuilder in = tn_l_in(b, branch->region[side]);
        scope s = lower_open(L);
        gpu_block(L, &in, op->region[side]);
        for (int i = 0; i < op->nresults && L->status == TN_OK; i++)
            gpu_materialise_into(L, &in, op->region[side]->last->operand[i], out[i]);
        gpu_leave(L, NULL, r);
        lower_close(L, s);
        g->touched.len = 0; /* the other side, and what follows, find what was before */
        for (size_t i = 0; i < r.nbefore; i++)
            TN_PUSH(&L->arena, &g->touched, r.before[i]);
    }
    for (size_t i = r.log; i < g->log.len; i++) /* and what follows all of both */
        TN_PUSH(&L->arena, &g->touched, g->log.at[i]);
    bind_state(L, op->result, out, op->nresults);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------------------------------ */

static void lower_gather(lower *L, tn_lbuilder *b, const tn_top *op)
{
    const tn_tvalue *source = op->operand[0];
    place *p = tn_map_get(&L->places, TN_KEY(source));
    tn_layout layout;
    if (!gpu_natural_layout(L, source, &layout))
        return;
    if (!p || p->kept) { /* frozen: absent elements are 0 */
        p = gpu_new_place(L, b, &source->type, &layout, "source");
        p->root = lower_root(L, source);
        gpu_materialise_into(L, b, source, p);
    }
    gpu_share(L, b, &source->type, p, NULL);
    *tn_map_at(&L->gathered, TN_KEY(op)) = p;
    gpu_keep(L, b, op->result);
}

/* A tile in registers stays there under another shape. False: it is none, or can't. */
static bool rename_registers(lower *L, const tn_top *op)
{
    const tn_ttype *type = &op->result->type;
    const place *from = tn_map_get(&L->places, TN_KEY(op->operand[0]));
    tn_layout layout;
    if (!from || !from->held || from->held->once || from->present || !tn_layout_reshape(&from->held->layout, type, &layout))
        return false;
    place *to = tn_memdup(&L->arena, from, sizeof *from);
    to->held = tn_memdup(&L->arena, from->held, sizeof *from->held);
    to->held->layout = layout;
    to->buffer = NULL;
    lower_set_place(L, op->result, to);
    TN_PUSH(&L->arena, &GPU(L)->made, op->result);
    return true;
}

static void lower_op(lower *L, tn_lbuilder *b, const tn_top *op)
{
    b->line = op->loc.line;
    switch (op->code) {
    case TN_T_store:
    case TN_T_store_ptr:
        lower_store(L, b, op);
        return;
    case TN_T_load:
    case TN_T_load_ptr:
        lower_load(L, b, op);
        return;
    case TN_T_reduce:
    case TN_T_fold:
        if (op->code == TN_T_fold && gpu_is_dot_fold(op))
            gpu_dot(L, b, op);
        else if (op->code == TN_T_reduce && op->ordered)
            gpu_reduce_tree(L, b, op);
        else
            gpu_reduce(L, b, op);
        return;
    case TN_T_dot:
        if (op != GPU(L)->product)
            gpu_dot(L, b, op);
        return;
    case TN_T_scan:
        gpu_scan(L, b, op);
        return;
    case TN_T_sort:
        gpu_sort(L, b, op);
        return;
    case TN_T_histogram:
        gpu_histogram(L, b, op);
        return;
    case TN_T_gather:
        lower_gather(L, b, op);
        return;
    case TN_T_for:
        lower_for(L, b, op);
        return;
    case TN_T_while:
        lower_while(L, b, op);
        return;
    case TN_T_if:
        lower_if(L, b, op);
        return;
    case TN_T_atomic:
    case TN_T_atomic_ptr:
    case TN_T_atomic_load:
    case TN_T_cas_ptr:
        gpu_atomic(L, b, op);
        return;
    case TN_T_fence:
        gpu_fence(L, b, op);
        return;
    case TN_T_print:
        lower_print(L, b, op);
        return;
    case TN_T_assert:
        lower_assert(L, b, op);
        return;
    case TN_T_yield:
        return;
    case TN_T_reshape:
        if (rename_registers(L, op))
            return;
        /* fall through */
    default:
        if (!(tn_top_traits(op->code) & TN_T_PURE) || op->nregions)
            gpu_refuse(L, op, NULL);
        else if (op->code == TN_T_asm && op->result->type.rank) /* once, whoever wants it */
            gpu_keep(L, b, op->result);
        else if (op->nresults == 1 && op->result->type.rank == 0)
            lower_scalar(L, b, op->result); /* once, here, not in every nest that uses it */
        else if (op->nresults == 1 && !gpu_is_copied(L, op->result) && gpu_is_worth_keeping(L, op->result))
            gpu_keep(L, b, op->result);
        return; /* other pure operations are computed where they are used */
    }
}

static int64_t shared_end(const tn_lvalue *buffer) { return buffer->def->at + buffer->def->size * ((tn_dtype_bits(buffer->type.dtype) + 7) / 8); }

/* What it took for itself is free behind it, unless it is so little that a barrier, which who takes it next waits at, costs more. */
void gpu_op(lower *L, tn_lbuilder *b, const tn_top *op)
{
    enum { LITTLE = 4 << 10 /* bytes */ };
    gpu_lower *g = GPU(L);
    int64_t before = g->shared;
    size_t shares = g->shares.len;
    gpu_await_products(L, b, op);
    lower_op(L, b, op);
    for (size_t i = shares; i < g->shares.len; i++) /* what is read later too */
        before = tn_max(before, shared_end(g->shares.at[i]->buffer));
    if (g->shared - before >= LITTLE && g->ctas == 1) /* other CTAs may send to what takes its place while it is still read */
        gpu_give_back(L, before);
}

/* Registers of a thread that are different elements of a load: axes that no subscript names repeat. INT64_MAX: not known. */
static int64_t words_loaded(lower *L, const tn_top *load)
{
    bool named[TN_TILE_RANK] = {0};
    int axes[TN_TILE_RANK], rank = 0;
    tn_layout layout;
    for (int d = 0; d < load->view->rank; d++)
        for (int i = 0; i < load->subscript[d].naxes; i++)
            named[load->subscript[d].axis[i]] = true;
    for (int i = 0; i < load->result->type.rank; i++)
        if (named[i])
            axes[rank++] = i;
    if (!gpu_natural_layout(L, load->result, &layout))
        return INT64_MAX;
    layout = tn_layout_restrict(&layout, rank, axes);
    return tn_ceildiv((int64_t)tn_layout_regs(&layout) * tn_dtype_bits(load->result->type.dtype), 32);
}

/* Short loads that stand behind a loop of products and need nothing of it are made before it, and have arrived when it ends: a bias (16384x3072x768 with GELU: 0.93
 * to 1.0 of cuBLAS's bare product). */
static void load_ahead(lower *L, tn_lbuilder *b, const tn_top *loop)
{
    enum { MOST = 16 }; /* registers of all: accumulators have most */
    int64_t words = 0;
    tn_map marked = {.arena = &L->arena};
    for (const tn_top *op = loop; op && L->status == TN_OK; op = op->next) {
        bool known = op != loop && !lower_depends_on(op, &marked) && (tn_top_traits(op->code) & TN_T_PURE || lower_is_load(op));
        int buffer = lower_is_load(op) ? lower_accessed(L, op) : -1;
        if (buffer >= 0 && (L->kernel->buffers.at[buffer].mode != TN_READ || L->func->overlap))
            known = false;
        for (int i = 0; !known && i < op->nresults; i++)
            *tn_map_at(&marked, TN_KEY(&op->result[i])) = (void *)op;
        if (!known || buffer < 0 || op->code != TN_T_load || !op->view || op->result->type.rank == 0 || tn_map_get(&GPU(L)->ready, TN_KEY(op->result)))
            continue;
        int64_t more = words_loaded(L, op);
        if (more > MOST - words)
            continue;
        words += more;
        lower_load(L, b, op);
    }
}

void gpu_block(lower *L, tn_lbuilder *b, const tn_tblock *block)
{
    for (const tn_top *op = block->first; op && L->status == TN_OK; op = op->next) {
        if (gpu_is_fed_by_boxes(L, op))
            load_ahead(L, b, op);
        gpu_op(L, b, op);
    }
}

static void open_locals(lower *L, tn_lbuilder *b)
{
    const tn_kernel *k = L->kernel;
    L->func->threads = GPU(L)->warps * 32;
    GPU(L)->thread = tn_l_thread(b);
    if (GPU(L)->ctas > 1) {
        L->func->cluster = GPU(L)->ctas;
        GPU(L)->cta = tn_l_cta(b);
    }
    for (size_t i = 0; i < k->buffers.len; i++) {
        const tn_tbuffer *t = &k->buffers.at[i];
        if (t->mode != TN_LOCAL)
            continue;
        if (!tn_dim_is_const(t->elements)) {
            L->status = tn_error(L->session, TN_UNSUPPORTED, TN_NO_LOC, "kernel %s: the local buffer %%%s, whose size is not constant, has no GPU lowering", k->name, t->name);
            return;
        }
        L->buffer[i] = gpu_shared(L, t->name, t->dtype, t->elements->value);
    }
}

static void lower_body(lower *L, tn_lbuilder *b)
{
    region r = gpu_enter(L);
    r.programs = true;
    gpu_start_cluster(L, b);
    gpu_fetch_arrivals(L, b);
    gpu_block(L, b, L->kernel->body);
    gpu_end_cluster(L);
    gpu_release_program(L, b);
    if (GPU(L)->arrivals.len)
        gpu_end_results(L, b);
    gpu_leave(L, b, r);
}

static void all_programs(lower *L, tn_lbuilder *b)
{
    gpu_lower *g = GPU(L);
    if (L->status != TN_OK)
        return;
    tn_tile_walk(L->kernel->body, gpu_issue_early, L);
    gpu_survey(L);
    gpu_plan_boxes(L);
    if (g->boxes.len)
        gpu_choose_order(L);
    else if (!g->multiplies && g->ctas == 1)
        gpu_plan_turned(L);
    if (g->boxes.len)
        gpu_programs_by_roles(L, b, lower_body);
    else
        lower_programs(L, b, lower_body);
    g->crowded = L->status == TN_OK && (g->boxes.len || g->rings) && g->most_at_once > gpu_most_shared(L);
    if (L->status == TN_OK && (g->crowded || g->own_memory)) {
        L->status = TN_NO_MEMORY; /* nobody is told: fewer stages, or one instance, are tried */
        return;
    }
    if (L->status == TN_OK && g->most_at_once > gpu_most_shared(L))
        L->status = tn_error(L->session, TN_UNSUPPORTED, TN_NO_LOC, "kernel %s: needs %lld bytes of shared memory, and machine '%s' has %lld a program; smaller tiles or fewer stages need less",
                             L->kernel->name, (long long)g->most_at_once, L->machine->name, (long long)gpu_most_shared(L));
    L->func->remarks = tn_format(&L->session->arena, "%d conversions through shared memory, %lld bytes moved; %lld bytes of it%s", g->conversions, (long long)g->converted_bytes,
                                 (long long)g->most_at_once, g->remarks.at ? g->remarks.at : "");
}

/* What a kernel needs of shared memory besides its rings is known once it is lowered. */
typedef struct attempt {
    int stages; /* of a ring at most; 0: there are none */
    bool alone; /* one instance */
    const char *apart; /* why no cluster; NULL: as the schedule has it */
    bool crowded, own_memory, again; /* what came of it: rings do not fit; instances need memory of their own; the cluster can't */
} attempt;

static tn_status lower_with(tn_session *session, tn_kernel *kernel, const tn_machine *machine, attempt *a, tn_lfunc **out)
{
    enum { WARPS = 4 };
    static const lower_target gpu = {"GPU", gpu_place_element, NULL, open_locals, all_programs};
    gpu_lower state = {.base = {.target = &gpu, .session = session, .kernel = kernel, .machine = machine}, .most_stages = a->stages, .alone = a->alone, .instances = 1};
    lower *L = &state.base;
    L->arena.on_oom = session->arena.on_oom;
    state.remarks.arena = state.remarked.arena = state.votes.arena = state.classes.arena = state.demands.arena = state.parts.arena = state.prepared.arena = state.ready.arena =
        state.own_sums.arena = &L->arena;
    state.warps = (int)tn_schedule_get(&kernel->schedule, "", "warps", WARPS);
    state.ctas = (int)tn_schedule_get(&kernel->schedule, "", "cluster", 1);
    if (state.ctas > 1 && !a->apart)
        a->apart = !machine->groups ? "the machine has none" : state.ctas & (state.ctas - 1) ? "of 2, 4 or 8 CTAs" : gpu_cluster_obstacle(kernel);
    if (state.ctas > 1 && a->apart) {
        tn_text_add(&state.remarks, "\nno cluster: %s", a->apart);
        state.warps = (int)tn_min((int64_t)state.warps * state.ctas, TN_MOST_THREADS / TN_WARP);
    }
    if (a->apart)
        state.ctas = 1;
    tn_status status = lower_run(L, out);
    bool gave_up = state.apart && !a->apart;
    a->again = gave_up;
    if (gave_up)
        a->apart = state.apart;
    a->crowded = state.crowded;
    a->own_memory = state.own_memory;
    return status;
}

/* Rings get less, and instances are given up, if they have to be. */
tn_status tn_gpu_lower(tn_session *session, tn_kernel *kernel, const tn_machine *machine, tn_lfunc **out)
{
    enum { MOST_STAGES = 8, LEAST_STAGES = 2 };
    attempt a = {.stages = MOST_STAGES};
    assert(machine->gpu);
    TN_TRY(tn_tile_bind(kernel));
    tn_status status = lower_with(session, kernel, machine, &a, out);
    while (a.crowded || a.own_memory || a.again) {
        if (a.own_memory)
            a.alone = true;
        else if (!a.again)
            a.stages = a.stages > LEAST_STAGES ? a.stages - 1 : 0;
        status = lower_with(session, kernel, machine, &a, out);
    }
    return status;
}
