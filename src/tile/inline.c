/* inline: what surely runs once is no loop. A `for` of one trip becomes its body; a fold whose ranges end in their first strips becomes its body and a
 * `reduce` of what that yields. So a row that fits one tile is loaded once (tile-simplify merges the loads), however many folds walk it.
 *
 * A limit is known by its bounds: a constant, or a size whose symbols have some. A fold leaves out the elements past a range's limit, which a `reduce` does
 * not do: they are absent already where a load of a view that ends there made them; elsewhere they become the identity. Which axes the ranges walk is asked
 * before anything changes, because the definition speaks of the fold as it stands (tn_fold_range_of).
 *
 * A fold without axes gives its body's value. Absent elements of that would be the identity: a reduction over a unit axis makes them so.
 *
 * Not inlined: a `for` that starts with, or gives, what may be absent (there is no operation that only freezes); a fold of `order tree` whose last
 * elements would have to become identities (combined with one, a value may change its bits: -0 + 0). A range that ends in its first strip goes from a fold
 * that has others, if it walks no axis. */
#include "tile/simplify.h"

#include <string.h>

typedef struct inliner {
    tn_kernel *kernel;
    tn_map became;      /* value -> the one that takes its place */
    const tn_top *fold; /* the innermost whose body is visited, and that stays */
} inliner;

static void visit_block(inliner *in, tn_tblock *block);

static void resolve(void *context, tn_tvalue **use)
{
    for (tn_tvalue *to; (to = tn_map_get(context, TN_KEY(*use)));)
        *use = to;
}

static void replace(inliner *in, const tn_tvalue *v, tn_tvalue *by)
{
    resolve(&in->became, &by);
    *tn_map_at(&in->became, TN_KEY(v)) = by;
}

/* Puts operations that were made aside before op. */
static void place(tn_tblock *aside, tn_top *op)
{
    while (aside->first) {
        tn_top *next = aside->first;
        tn_top_move_before(next, op);
        tn_learn(next);
    }
}

/* ---- how often ------------------------------------------------------------------------------------------------------- */

static bool bounds_of(const tn_tvalue *v, int64_t *lo, int64_t *hi)
{
    const tn_number *c = tn_tile_constant(v);
    if (c)
        *lo = *hi = tn_number_to_int(v->type.dtype, *c);
    else if (v->def && v->def->code == TN_T_size)
        *lo = v->def->dim->lo, *hi = v->def->dim->hi;
    else
        return false;
    return true;
}

/* 0: not known. */
static int64_t size_of(const tn_kernel *kernel, tn_extent e)
{
    for (size_t i = 0; e.param && i < kernel->schedule.bind.len; i++)
        if (kernel->schedule.bind.at[i].param == e.param)
            return kernel->schedule.bind.at[i].value;
    return e.size;
}

static bool loop_runs_once(const tn_top *loop)
{
    int64_t lo[3], hi[3], end;
    for (int i = 0; i < 3; i++)
        if (!bounds_of(loop->operand[i], &lo[i], &hi[i]))
            return false;
    return lo[2] > 0 && hi[0] < lo[1] && (!tn_add(lo[0], lo[2], &end) || hi[1] <= end);
}

static bool range_runs_once(const inliner *in, const tn_top *fold, int range)
{
    int64_t lo, hi;
    return bounds_of(fold->operand[range], &lo, &hi) && lo >= 1 && hi <= size_of(in->kernel, fold->step[range]);
}

/* ---- what a fold leaves out ------------------------------------------------------------------------------------------ */

typedef struct ending {
    tn_session *session;
    const tn_tvalue *start, *limit; /* a range's */
} ending;

static bool absent_past(const ending *e, const tn_tvalue *v, int axis, tn_axis_search *search);

/* The view has no element of its dimension d past the limit, and the load asks for some. */
static bool load_ends(const ending *e, const tn_top *load, int axis, tn_axis_search *search)
{
    const tn_top *limit = e->limit->def;
    tn_dim end = limit->code == TN_T_size ? limit->dim : tn_dim_const(e->session, tn_number_to_int(e->limit->type.dtype, limit->number));
    for (int d = 0; !load->view->padded && d < load->view->rank; d++) {
        const tn_subscript *s = &load->subscript[d];
        if (s->block && s->axis[0] == axis && s->value == e->start && !s->inside && tn_dim_le(e->session, load->view->shape[d], end))
            return true;
        for (int k = 0; !s->block && k < s->naxes; k++)
            if (s->axis[k] == axis && absent_past(e, s->value, k, search))
                return true;
    }
    return false;
}

/* Elements of v at start + i >= limit along the axis are surely absent. */
static bool absent_past(const ending *e, const tn_tvalue *v, int axis, tn_axis_search *search)
{
    const tn_top *op = v->def;
    if (!op || !tn_axis_search_enter(search, v, axis))
        return false;
    if (op->code == TN_T_load)
        return load_ends(e, op, axis, search);
    bool ends[3] = {false};
    for (int i = 0; i < op->noperands && i < 3; i++) {
        int from = tn_axis_of_operand(op, i, axis);
        ends[i] = from >= 0 && absent_past(e, op->operand[i], from, search);
    }
    return op->code == TN_T_map && op->fn == TN_S_select ? ends[0] || (ends[1] && ends[2]) : ends[0] || ends[1] || ends[2];
}

/* Ranges as bits: those that walk an axis of what is combined; by axis, those whose limits have to be checked. */
typedef struct cuts {
    unsigned walking, range[TN_TILE_RANK];
    bool any;
} cuts;

static bool is_cut(const inliner *in, const tn_top *fold, int range, int axis)
{
    const tn_top *yield = fold->region[0]->last;
    ending e = {in->kernel->session, &fold->region[0]->arg[range], fold->operand[range]};
    int64_t lo, hi, extent = size_of(in->kernel, yield->operand[0]->type.extent[axis]);
    if (bounds_of(fold->operand[range], &lo, &hi) && extent && lo >= extent)
        return false;
    for (int k = 0; k < yield->noperands; k++) { /* an element is left out where any of the tiles' is absent */
        tn_axis_search search = {.n = 0};
        if (absent_past(&e, yield->operand[k], axis, &search))
            return false;
    }
    return true;
}

static cuts cuts_of(const inliner *in, const tn_top *fold)
{
    cuts c = {.any = false};
    const tn_top *yield = fold->region[0]->last;
    for (int a = 0; a < yield->operand[0]->type.rank; a++)
        for (int k = 0; k < yield->noperands; k++) {
            int range = tn_fold_range_of(fold, yield->operand[k], a);
            c.walking |= range < 0 ? 0 : 1u << range;
            if (range >= 0 && range_runs_once(in, fold, range) && is_cut(in, fold, range, a))
                c.range[a] |= 1u << range;
            c.any |= c.range[a] != 0;
        }
    return c;
}

/* ---- folds ----------------------------------------------------------------------------------------------------------- */

static tn_tvalue *zero_before(inliner *in, tn_top *op)
{
    tn_tblock aside = {.first = NULL};
    tn_tbuilder b = tn_tbuilder_at(in->kernel, &aside, op->loc);
    tn_tvalue *zero = tn_t_index(&b, 0);
    place(&aside, op);
    return zero;
}

/* Is the element's place below the limits of the ranges that cut the tile? */
static tn_tvalue *inside_mask(tn_tbuilder *b, const tn_top *fold, const cuts *c, tn_ttype type)
{
    tn_tvalue *all = NULL, *zero = tn_t_index(b, 0);
    type.dtype = TN_I64;
    for (int a = 0; a < type.rank; a++)
        for (int r = 0; r < fold->nranges; r++) {
            if (!(c->range[a] >> r & 1))
                continue;
            tn_tvalue *below = tn_t_map2(b, TN_S_lt, tn_t_range(b, zero, type.extent[a]), fold->operand[r]);
            tn_ttype mask = type;
            mask.dtype = TN_BOOL;
            below = tn_t_broadcast(b, below, mask, &a);
            all = all ? tn_t_map2(b, TN_S_and, all, below) : below;
        }
    return all;
}

static bool all_present(tn_tvalue *const *values, int n)
{
    bool present = true;
    for (int i = 0; i < n; i++)
        present &= tn_fact_present(values[i]);
    return present;
}

/* May v be seen where a loop or a fold gave it? Not where the fold that both stand in would leave out a part of it. */
static bool may_show(const inliner *in, const tn_tvalue *v)
{
    for (int a = 0; in->fold && a < v->type.rank; a++)
        if (tn_fold_range_of(in->fold, v, a) >= 0)
            return false;
    return true;
}

static bool all_plain(const inliner *in, tn_tvalue *const *values, int n)
{
    bool plain = all_present(values, n);
    for (int i = 0; plain && i < n; i++)
        plain = may_show(in, values[i]);
    return plain;
}

/* A schedule's words on a fold of products go to the product. */
static void pass_label(const tn_top *fold, const tn_tvalue *value)
{
    if (value->def && value->def->code == TN_T_dot && !value->def->label)
        value->def->label = fold->label;
}

static void inline_fold(inliner *in, tn_top *fold, const cuts *c)
{
    tn_top *yield = fold->region[0]->last;
    int n = fold->nresults, axes[TN_TILE_RANK] = {0}, naxes = fold->naxes;
    tn_tblock aside = {.first = NULL};
    tn_tbuilder b = tn_tbuilder_at(in->kernel, &aside, fold->loc);
    while (fold->region[0]->first != yield)
        tn_top_move_before(fold->region[0]->first, fold);
    tn_tvalue *x[TN_TILE_COMBINED];
    memcpy(x, yield->operand, sizeof *x * (size_t)n);
    tn_tvalue *mask = c->any ? inside_mask(&b, fold, c, x[0]->type) : NULL;
    for (int i = 0; mask && i < n; i++) {
        tn_ttype element = tn_tscalar(x[i]->type.dtype);
        x[i] = tn_t_map3(&b, TN_S_select, mask, x[i], tn_t_const(&b, element, fold->identity[i]));
    }
    place(&aside, fold);
    bool plain = naxes == 0 && all_plain(in, x, n);
    for (int i = 0; !plain && naxes == 0 && i < n; i++) {
        tn_ttype type = x[i]->type;
        memmove(&type.extent[1], &type.extent[0], sizeof type.extent[0] * (size_t)type.rank++);
        type.extent[0] = tn_extent_const(1);
        x[i] = tn_t_reshape(&b, x[i], type);
    }
    memcpy(axes, fold->axis, sizeof *axes * (size_t)naxes);
    tn_top *reduce = plain ? NULL : tn_t_reduce(&b, x, n, naxes ? naxes : 1, axes, fold->identity);
    if (reduce) {
        reduce->region[0] = fold->region[1];
        reduce->region[0]->parent = reduce;
        reduce->ordered = fold->ordered;
        reduce->label = fold->label;
        place(&aside, fold);
    } else if (n == 1) {
        pass_label(fold, x[0]);
    }
    for (int i = 0; i < n; i++) {
        if (reduce)
            reduce->result[i].name = fold->result[i].name;
        replace(in, &fold->result[i], reduce ? &reduce->result[i] : x[i]);
    }
    tn_top_unlink(fold);
}

/* Takes the ranges in `gone` (bits) from the fold. */
static void drop_ranges(inliner *in, tn_top *fold, unsigned gone)
{
    const tn_tvalue *old = fold->region[0]->arg;
    tn_ttype types[TN_TILE_RANK] = {{.rank = 0}};
    int n = 0, was = fold->nranges;
    for (int r = 0; r < was; r++)
        if (!(gone >> r & 1)) {
            types[n] = old[r].type;
            fold->operand[n] = fold->operand[r];
            fold->step[n++] = fold->step[r];
        }
    tn_tblock_args(in->kernel, fold->region[0], types, n);
    for (int r = 0, at = 0; r < was; r++)
        if (!(gone >> r & 1)) {
            tn_tvalue *arg = &fold->region[0]->arg[at++];
            arg->name = old[r].name;
            replace(in, &old[r], arg);
        }
    fold->nranges = fold->noperands = n;
    memset(&fold->step[n], 0, sizeof fold->step[0] * (size_t)(was - n));
}

static void set_present(tn_tblock *block)
{
    for (int i = 0; i < block->nargs; i++)
        tn_fact_set(&block->arg[i], true, TN_ROOT_UNKNOWN);
}

static void visit_fold(inliner *in, tn_top *fold)
{
    unsigned once = 0, all = (1u << fold->nranges) - 1;
    cuts c = cuts_of(in, fold);
    for (int r = 0; r < fold->nranges; r++)
        once |= (unsigned)range_runs_once(in, fold, r) << r;
    bool inlines = once == all && !(c.any && fold->ordered) && (fold->naxes || fold->region[0]->last->operand[0]->type.rank < TN_TILE_RANK);
    if (!inlines) /* without it another range would be the first that is found to walk its axes */
        once &= ~c.walking;
    if (!inlines && once == all) /* one stays, to be the loop */
        once &= once - 1;
    tn_tvalue *zero = once ? zero_before(in, fold) : NULL;
    for (int r = 0; r < fold->nranges; r++)
        if (once >> r & 1)
            replace(in, &fold->region[0]->arg[r], zero);
    if (once && !inlines)
        drop_ranges(in, fold, once);
    const tn_top *outside = in->fold;
    in->fold = inlines ? NULL : fold; /* what an inlined one leaves out is settled: c */
    for (int r = 0; r < 2; r++) {
        set_present(fold->region[r]);
        visit_block(in, fold->region[r]);
    }
    in->fold = outside;
    if (inlines)
        inline_fold(in, fold, &c);
}

/* ---- loops ----------------------------------------------------------------------------------------------------------- */

static void visit_for(inliner *in, tn_top *loop)
{
    tn_tblock *body = loop->region[0];
    bool once = loop_runs_once(loop) && all_present(loop->operand + 3, loop->nresults);
    set_present(body);
    if (once) {
        replace(in, &body->arg[0], loop->operand[0]);
        for (int i = 0; i < loop->nresults; i++)
            replace(in, &body->arg[1 + i], loop->operand[3 + i]);
    }
    visit_block(in, body);
    if (!once || !all_plain(in, body->last->operand, loop->nresults))
        return;
    for (int i = 0; i < loop->nresults; i++)
        replace(in, &loop->result[i], body->last->operand[i]);
    while (body->first != body->last)
        tn_top_move_before(body->first, loop);
    tn_top_unlink(loop);
}

/* ---- the pass -------------------------------------------------------------------------------------------------------- */

static void visit_block(inliner *in, tn_tblock *block)
{
    for (tn_top *op = block->first, *next; op; op = next) {
        next = op->next;
        tn_top_uses(op, resolve, &in->became);
        tn_learn(op);
        if (op->code == TN_T_fold) {
            visit_fold(in, op);
        } else if (op->code == TN_T_for) {
            visit_for(in, op);
        } else {
            for (int r = 0; r < op->nregions; r++) {
                set_present(op->region[r]);
                visit_block(in, op->region[r]);
            }
        }
    }
}

tn_status tn_tile_inline(tn_kernel *kernel)
{
    tn_arena arena = {.on_oom = kernel->session->arena.on_oom};
    inliner in = {.kernel = kernel, .became = {.arena = &arena}};
    tn_learn_parameters(kernel);
    visit_block(&in, kernel->body);
    tn_prune_schedule(kernel);
    tn_arena_free(&arena);
    return TN_OK;
}
