/* Loops of two products of which the second one's left operand is made of the first one's result (attention): a turn's first product runs with the second one of the
 * turn before, so that what lies between them is computed while warpgroups multiply.
 *
 *     turn first:  S = first; between: P, state
 *     loop:        S = first of this turn           under way
 *                  second of the turn before, by P  under way too
 *                  wait for S; between: P', state   while the second one still runs
 *                  wait for the second one; what comes of it; P := P'
 *     behind:      second of the last turn
 *
 * The body's operations are parted: `late` is what comes of the second dot, `early` the rest, which no late result is for. What late operations read of early ones
 * crosses from turn to turn in registers. The order in which boxes are awaited is that of the loop as it stands, so that the producer is none the wiser.
 *
 * Registers that a product under way reads must not be written, so P' is packed behind the wait. The assembler moves a wait up over arithmetic that does not need it,
 * but not into another basic block: the loop of the mbarrier's wait for the next right operand stands before it. */
#include "target/gpu/dot.h"

/* ---- which loops ------------------------------------------------------------------------------------------------------------- */

enum { MOST_WORDS = 192 /* registers of a thread: both products' sums and what crosses */ };

/* Computed by threads from registers and memory, or nothing that a dot is made of. */
static bool may_run_between(const tn_top *op)
{
    for (int r = 0; op->code == TN_T_if && r < op->nregions; r++)
        for (const tn_top *in = op->region[r]->first; in; in = in->next)
            if (in->code == TN_T_dot || !(may_run_between(in) || in->code == TN_T_yield))
                return false;
    return op->code == TN_T_if || op->code == TN_T_reduce || (lower_is_expression(op) && op->code != TN_T_gather && op->code != TN_T_asm);
}

static bool is_movement(const tn_top *op) { return op->code == TN_T_broadcast || op->code == TN_T_reshape || op->code == TN_T_permute; }

bool gpu_is_free(const tn_tvalue *v, const tn_top *loop, int *budget)
{
    const tn_top *op = v->def;
    if (--*budget < 0)
        return false;
    if (!op)
        return v->block != loop->region[0] || v == loop->region[0]->arg;
    if (op->block != loop->region[0])
        return true;
    if (!lower_is_expression(op))
        return false;
    for (int i = 0; i < op->noperands; i++)
        if (!gpu_is_free(op->operand[i], loop, budget))
            return false;
    for (int d = 0; op->view && d < op->view->rank; d++)
        if (!gpu_is_free(op->subscript[d].value, loop, budget))
            return false;
    return true;
}

/* The two dots, if the loop does nothing else that must stay in its order. */
static bool find_dots(lower *L, gpu_overlap *x)
{
    int budget = LOWER_BUDGET;
    for (const tn_top *op = x->loop->region[0]->first; op; op = op->next) {
        if (op->code != TN_T_dot) {
            if (op->code != TN_T_yield && !may_run_between(op))
                return false;
            continue;
        }
        if (x->second || op->result->type.dtype != TN_F32 || !gpu_dot_is_by_groups(L, op) || !gpu_reads_own_rings(L, op))
            return false;
        if (x->first)
            x->second = op;
        else
            x->first = op;
    }
    return x->second && gpu_is_free(x->first->operand[0], x->loop, &budget) && gpu_is_free(x->first->operand[1], x->loop, &budget) &&
           tn_map_get(&GPU(L)->ready, TN_KEY(&x->first->operand[0])) && tn_map_get(&GPU(L)->ready, TN_KEY(&x->first->operand[1])) &&
           tn_map_get(&GPU(L)->ready, TN_KEY(&x->second->operand[1])) && !tn_map_get(&GPU(L)->ready, TN_KEY(&x->second->operand[0]));
}

static bool is_late(const gpu_overlap *x, const tn_top *op) { return tn_map_get(&x->late, TN_KEY(op)) != NULL; }

/* Parts operations and state: late is what depends on the second dot, or on late state. False: that can't be. */
static bool part(lower *L, gpu_overlap *x)
{
    const tn_tblock *body = x->loop->region[0];
    tn_map late = {.arena = &L->arena}; /* values */
    bool more = true;
    *tn_map_at(&x->late, TN_KEY(x->second)) = (void *)(uintptr_t)x->second;
    *tn_map_at(&late, TN_KEY(x->second->result)) = (void *)(uintptr_t)x->second;
    while (more) {
        more = false;
        for (const tn_top *op = body->first; op != body->last; op = op->next) {
            if (op == x->second || !lower_depends_on(op, &late))
                continue;
            if (!lower_is_expression(op) || lower_is_load(op))
                return false;
            *tn_map_at(&x->late, TN_KEY(op)) = (void *)(uintptr_t)op;
            *tn_map_at(&late, TN_KEY(op->result)) = (void *)(uintptr_t)op;
        }
        for (int i = 0; i < x->loop->nresults; i++) {
            bool is = tn_map_get(&late, TN_KEY(body->last->operand[i])) != NULL;
            more |= is && !x->late_state[i];
            x->late_state[i] |= is;
            if (is)
                *tn_map_at(&late, TN_KEY(&body->arg[1 + i])) = (void *)(uintptr_t)x->loop;
        }
    }
    return !lower_depends_on(x->second, &late) && !lower_depends_on(x->first, &late);
}

/* What of v, which late operations read, crosses. */
static bool cross(lower *L, gpu_overlap *x, const tn_tvalue *v)
{
    const tn_tblock *body = x->loop->region[0];
    int budget = LOWER_BUDGET;
    if (!v->def && v->block == body)
        return v == body->arg || x->late_state[v - body->arg - 1];
    if (!v->def || v->def->block != body || is_late(x, v->def) || gpu_is_free(v, x->loop, &budget))
        return true;
    if (is_movement(v->def) && v != x->second->operand[0])
        return cross(L, x, v->def->operand[0]);
    for (int i = 0; i < x->ncross; i++)
        if (x->cross[i] == v)
            return true;
    if (x->ncross == (int)TN_COUNT(x->cross) || v->type.pointer)
        return false;
    x->cross[x->ncross++] = v;
    x->words += gpu_words(L, &v->type);
    return true;
}

static bool find_crossing(lower *L, gpu_overlap *x)
{
    const tn_tvalue *left = x->second->operand[0];
    if (!cross(L, x, left) || !x->ncross)
        return false;
    for (const tn_top *op = x->loop->region[0]->first; op; op = op->next)
        for (int i = 0; is_late(x, op) && i < op->noperands; i++)
            if (!cross(L, x, op->operand[i]))
                return false;
    for (x->source = left; x->source->def && x->source->def->code == TN_T_cast; x->source = x->source->def->operand[0])
        ;
    for (const tn_top *op = x->loop->region[0]->first; op != x->first; op = op->next) /* all of it comes of the first dot or later */
        for (int i = 0; i < x->ncross; i++)
            if (x->cross[i]->def == op)
                return false;
    return x->source->type.dtype == TN_F32 && x->source->def && x->source->def->block == x->loop->region[0] && gpu_fragments_of_dot(L, x->second, &x->fragments);
}

void gpu_find_overlap(void *context, tn_top *loop)
{
    lower *L = context;
    gpu_overlap *x = TN_NEW(&L->arena, gpu_overlap);
    *x = (gpu_overlap){.loop = loop, .late = {.arena = &L->arena}};
    if (loop->code != TN_T_for || !find_dots(L, x) || !part(L, x) || !find_crossing(L, x) ||
        gpu_words(L, &x->first->result->type) + gpu_words(L, &x->second->result->type) + x->words > MOST_WORDS)
        return;
    TN_PUSH(&L->arena, &GPU(L)->overlaps, x);
    tn_text_add(&GPU(L)->remarks, "\na turn's first product runs with the second one of the turn before");
}

const gpu_overlap *gpu_overlap_of(lower *L, const tn_top *loop)
{
    for (size_t i = 0; i < GPU(L)->overlaps.len; i++)
        if (GPU(L)->overlaps.at[i]->loop == loop)
            return GPU(L)->overlaps.at[i];
    return NULL;
}

/* ---- whose turn it is to multiply -------------------------------------------------------------------------------------------- */

/* Operations on every score between the products. */
static int64_t steps_between(const gpu_overlap *x)
{
    int64_t steps = 0;
    for (const tn_top *op = x->loop->region[0]->first; op; op = op->next)
        steps += op->code == TN_T_map && !is_late(x, op) && op->result->type.rank == 2 && op->result->type.extent[0].size == x->first->result->type.extent[0].size &&
                 op->result->type.extent[1].size == x->first->result->type.extent[1].size;
    return steps;
}

void gpu_take_group_turn(lower *L, tn_lbuilder *b)
{
    tn_l_machine(b, "turn_take", (tn_lvalue *[]){gpu_plus(b, gpu_group_of(L), tn_l_index(b, GPU_TURNS))}, 1);
}

void gpu_pass_group_turn(lower *L, tn_lbuilder *b)
{
    tn_l_machine(b, "turn_pass", (tn_lvalue *[]){tn_l_fn2(b, TN_S_sub, tn_l_index(b, GPU_TURNS + 1), gpu_group_of(L))}, 1);
}

/* Two warpgroups issue their products in turns, so that they do not compute at the same time, where products are short for what is between them. */
static bool takes_turns(const lower *L, const gpu_overlap *x)
{
    /* An H200, without turns and with them, of cuDNN's rate: two steps, heads of 64, 0.85 and 0.95, of 128, with sums by threads, 1.03 and 1.06, causal 1.13 and 1.33. */
    enum { EACH = 128 /* depth and columns beside a step: 256 beside two were the longest measured */ };
    const gpu_lower *g = (const gpu_lower *)L;
    return g->warps == 4 * GPU_TAKERS && x->first->operand[0]->type.extent[1].size + x->second->result->type.extent[1].size <= EACH * steps_between(x);
}

static void take_turn(lower *L, tn_lbuilder *b, const gpu_overlap *x)
{
    if (takes_turns(L, x))
        gpu_take_group_turn(L, b);
}

static void pass_turn(lower *L, tn_lbuilder *b, const gpu_overlap *x)
{
    if (takes_turns(L, x))
        gpu_pass_group_turn(L, b);
}

typedef struct any_turns {
    lower *L;
    bool found;
} any_turns;

static void find_turns(void *context, tn_top *op)
{
    any_turns *any = context;
    const gpu_overlap *x = gpu_overlap_of(any->L, op);
    any->found |= x ? takes_turns(any->L, x) : op->code == TN_T_for && gpu_late_takes_turns(any->L, op);
}

void gpu_start_turns(lower *L, tn_lbuilder *b)
{
    any_turns any = {.L = L};
    tn_tile_walk(L->kernel->body, find_turns, &any);
    if (!any.found)
        return;
    tn_lbuilder last = tn_l_in(b, tn_l_if(b, tn_l_fn2(b, TN_S_ne, gpu_group_of(L), tn_l_index(b, 0)))->region[0]);
    tn_l_machine(&last, "turn_pass", (tn_lvalue *[]){tn_l_index(&last, GPU_TURNS)}, 1);
}

/* ---- turns ---------------------------------------------------------------------------------------------------------------------- */

typedef struct turns {
    const gpu_overlap *x;
    place *const *state;
    place *cross[TN_COUNT(((gpu_overlap *)NULL)->cross)];
    tn_lvalue *at; /* index of the turn whose late part is to come */
} turns;

static scope open_turn(lower *L, const turns *t, tn_lvalue *index)
{
    scope s = lower_open(L);
    lower_memo(L, &t->x->loop->region[0]->arg[0], NULL, (element){index, NULL});
    return s;
}

/* Late operations find what crossed in the places of the turn before; `kept`: those that this turn has given it. */
static void enter_late(lower *L, const turns *t, place **kept)
{
    for (int i = 0; i < t->x->ncross; i++) {
        kept[i] = tn_map_get(&L->places, TN_KEY(t->x->cross[i]));
        lower_set_place(L, t->x->cross[i], t->cross[i]);
    }
}

static void leave_late(lower *L, const turns *t, place *const *kept)
{
    for (int i = 0; i < t->x->ncross; i++)
        lower_set_place(L, t->x->cross[i], kept[i]);
}

static gpu_product *start_early(lower *L, tn_lbuilder *b, const turns *t, tn_lvalue *index)
{
    const gpu_overlap *x = t->x;
    scope s = open_turn(L, t, index);
    for (const tn_top *op = x->loop->region[0]->first; op != x->first && L->status == TN_OK; op = op->next)
        if (!is_late(x, op))
            gpu_op(L, b, op);
    gpu_await_dot(L, b, x->first);
    take_turn(L, b, x);
    gpu_product *p = L->status == TN_OK ? gpu_start_dot(L, b, x->first, NULL) : NULL;
    lower_close(L, s);
    return p;
}

static void finish_early(lower *L, tn_lbuilder *b, const turns *t, gpu_product *first, int others, tn_lvalue *index)
{
    const gpu_overlap *x = t->x;
    gpu_end_dot(L, b, first, others);
    gpu_release_dot(L, b, x->first);
    scope s = open_turn(L, t, index);
    for (const tn_top *op = x->first->next; op && L->status == TN_OK; op = op->next) {
        if (is_late(x, op))
            continue;
        gpu_op(L, b, op);
        if (op->nresults == 1 && op->result == x->source && !tn_map_get(&L->places, TN_KEY(x->source)))
            gpu_keep(L, b, x->source);
    }
    lower_close(L, s);
}

/* The state and what crosses, for the turn that comes: behind the end of products that read what crossed before. */
static void hand_over(lower *L, tn_lbuilder *b, const turns *t, tn_lvalue *index)
{
    const gpu_overlap *x = t->x;
    const tn_tblock *body = x->loop->region[0];
    const place *source = tn_map_get(&L->places, TN_KEY(x->source));
    bool early[TN_TILE_CARRIED];
    if (L->status != TN_OK)
        return;
    if (source && source->held) {
        tn_lop *loop = tn_l_for(b, "r", tn_l_index(b, 0), tn_l_index(b, tn_layout_regs(&source->held->layout)), tn_l_index(b, 1), TN_FOR_UNROLL);
        tn_lbuilder in = tn_l_in(b, loop->region[0]);
        tn_l_machine(&in, "not_before", (tn_lvalue *[]){source->held->regs, loop->region[0]->arg}, 2);
    }
    scope s = open_turn(L, t, index);
    for (int i = 0; i < x->ncross; i++)
        gpu_materialise_into(L, b, x->cross[i], t->cross[i]);
    for (int i = 0; i < x->loop->nresults; i++)
        early[i] = !x->late_state[i];
    gpu_carry(L, b, body->arg + 1, body->last->operand, t->state, x->loop->nresults, early);
    lower_close(L, s);
    tn_l_store(b, t->at, tn_l_index(b, 0), index, NULL);
}

static gpu_product *start_late(lower *L, tn_lbuilder *b, const turns *t)
{
    place *kept[TN_COUNT(t->cross)];
    scope s = open_turn(L, t, tn_l_load(b, t->at, tn_l_index(b, 0), 1, NULL, NULL));
    enter_late(L, t, kept);
    for (const tn_top *op = t->x->loop->region[0]->first; op != t->x->second && L->status == TN_OK; op = op->next)
        if (is_late(t->x, op))
            gpu_op(L, b, op);
    gpu_locate_dot(L, b, t->x->second);
    gpu_product *p = L->status == TN_OK ? gpu_start_dot(L, b, t->x->second, t->cross[0]) : NULL;
    leave_late(L, t, kept);
    lower_close(L, s);
    return p;
}

static void finish_late(lower *L, tn_lbuilder *b, const turns *t, gpu_product *second)
{
    const gpu_overlap *x = t->x;
    const tn_tblock *body = x->loop->region[0];
    place *kept[TN_COUNT(t->cross)];
    gpu_end_dot(L, b, second, 0);
    scope s = open_turn(L, t, tn_l_load(b, t->at, tn_l_index(b, 0), 1, NULL, NULL));
    enter_late(L, t, kept);
    for (const tn_top *op = x->second->next; op && L->status == TN_OK; op = op->next)
        if (is_late(x, op))
            gpu_op(L, b, op);
    if (L->status == TN_OK)
        gpu_carry(L, b, body->arg + 1, body->last->operand, t->state, x->loop->nresults, x->late_state);
    leave_late(L, t, kept);
    lower_close(L, s);
}

static void first_turn(lower *L, tn_lbuilder *b, const turns *t, tn_lvalue *index)
{
    region r = gpu_enter(L);
    gpu_product *first = start_early(L, b, t, index);
    if (!first)
        return;
    pass_turn(L, b, t->x);
    finish_early(L, b, t, first, 0, index);
    gpu_await_dot(L, b, t->x->second);
    hand_over(L, b, t, index);
    gpu_leave(L, NULL, r);
}

static void next_turn(lower *L, tn_lbuilder *b, const turns *t, tn_lvalue *index)
{
    gpu_product *first = start_early(L, b, t, index), *second = first ? start_late(L, b, t) : NULL;
    if (!second)
        return;
    pass_turn(L, b, t->x);
    finish_early(L, b, t, first, 1, index);
    gpu_await_next_dot(L, b, t->x->second);
    finish_late(L, b, t, second);
    gpu_release_dot_before(L, b, t->x->second, NULL);
    hand_over(L, b, t, index);
}

static void last_turn(lower *L, tn_lbuilder *b, const turns *t)
{
    region r = gpu_enter(L);
    take_turn(L, b, t->x);
    gpu_product *second = start_late(L, b, t);
    if (!second)
        return;
    pass_turn(L, b, t->x);
    finish_late(L, b, t, second);
    gpu_release_dot(L, b, t->x->second);
    gpu_leave(L, NULL, r);
}

/* ---- sums of rows ---------------------------------------------------------------------------------------------------------------- */

typedef struct uses {
    const tn_tvalue *of;
    int n;
} uses;

static void count_uses(void *context, tn_top *op)
{
    uses *u = context;
    for (int i = 0; i < op->noperands; i++)
        u->n += op->operand[i] == u->of;
}

static int uses_of(const tn_tblock *body, const tn_tvalue *v)
{
    uses u = {.of = v};
    tn_tile_walk(body, count_uses, &u);
    return u.n;
}

/* v is what the loop carries, or a product of it, which nobody else looks at. */
static bool is_carried_times(const tn_tblock *body, const tn_tvalue *v, const tn_tvalue *carried)
{
    const tn_top *op = v->def;
    if (v == carried || uses_of(body, v) != 1)
        return v == carried && uses_of(body, v) == 1;
    return op && op->block == body && op->code == TN_T_map && op->fn == TN_S_mul &&
           (is_carried_times(body, op->operand[0], carried) || is_carried_times(body, op->operand[1], carried));
}

/* The reduction whose sums the loop adds to what it carries as number i, times something perhaps, so that threads may do it each by itself. NULL: there is none, or two
 * warpgroups take no turns: without lanes that wait for each other those fall into step, and heads of 128, causal, took 1.15 times as long. */
static const tn_top *own_sums(lower *L, const gpu_overlap *x, int i, const place *state)
{
    const tn_tblock *body = x->loop->region[0];
    const tn_tvalue *carried = &body->arg[1 + i], *next = body->last->operand[i];
    const tn_top *op = next->def;
    bool fma = op && op->fn == TN_S_fma;
    if (!(takes_turns(L, x) || GPU(L)->warps > 4 * GPU_TAKERS) || x->late_state[i] || !state->held || !op || op->block != body || op->code != TN_T_map || !(fma || op->fn == TN_S_add) || uses_of(body, next) != 1)
        return NULL;
    for (int way = 0; way < 2; way++) {
        const tn_tvalue *sums = op->operand[fma ? 2 : way], *rest = op->operand[fma ? way : 1 - way];
        if (sums->def && sums->def->block == body && uses_of(body, sums) == 1 && is_carried_times(body, rest, carried) && gpu_sums_by_threads(L, sums->def, &state->held->layout))
            return sums->def;
    }
    return NULL;
}

static bool new_crossing(lower *L, tn_lbuilder *b, turns *t)
{
    for (int i = 0; i < t->x->ncross; i++) {
        const tn_tvalue *v = t->x->cross[i];
        tn_layout layout = t->x->fragments;
        if (i && v->type.rank && !gpu_natural_layout(L, v, &layout))
            return false;
        t->cross[i] = gpu_new_place(L, b, &v->type, &layout, "crossing");
    }
    t->at = tn_l_alloc(b, "turn", TN_I64, TN_SPACE_REG, 1);
    return true;
}

void gpu_lower_overlapped(lower *L, tn_lbuilder *b, const gpu_overlap *x, tn_lvalue *lo, tn_lvalue *hi, tn_lvalue *step, place *const *state)
{
    turns t = {.x = x, .state = state};
    const tn_top *op = x->loop;
    for (int i = 0; i < op->nresults; i++)
        lower_set_place(L, &op->region[0]->arg[1 + i], state[i]);
    if (!new_crossing(L, b, &t))
        return;
    const tn_top *own[TN_TILE_CARRIED];
    for (int i = 0; i < op->nresults; i++)
        if ((own[i] = own_sums(L, x, i, state[i])))
            gpu_start_own_sums(L, b, own[i], state[i]);
    tn_lbuilder in = tn_l_in(b, tn_l_if(b, tn_l_fn2(b, TN_S_lt, lo, hi))->region[0]);
    region all = gpu_enter(L);
    first_turn(L, &in, &t, lo);
    tn_lop *loop = tn_l_for(&in, "i", gpu_plus(&in, lo, step), hi, step, TN_FOR_SERIAL);
    tn_lbuilder turn = tn_l_in(&in, loop->region[0]);
    region r = gpu_enter(L);
    if (L->status == TN_OK)
        next_turn(L, &turn, &t, loop->region[0]->arg);
    gpu_leave(L, &turn, r);
    if (L->status == TN_OK)
        last_turn(L, &in, &t);
    gpu_leave(L, NULL, all);
    for (int i = 0; i < op->nresults && L->status == TN_OK; i++)
        if (own[i])
            gpu_end_own_sums(L, b, own[i], state[i]);
    for (size_t i = 0; i < all.nbefore; i++) /* there may be no turn */
        TN_PUSH(&L->arena, &GPU(L)->touched, all.before[i]);
}
