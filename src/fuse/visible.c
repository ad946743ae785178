/* Which keys a block of rows can see, where a mask hides the others by -inf: bounds of the loop over keys.
 *
 *     select(cond, score, -inf)      cond: comparisons of coordinates (iota, sizes, sums), joined by `and`; or a constant
 *
 * A comparison of affine functions of row and key says key < row + c or key >= row + c; a constant's elements are looked at for the least and greatest distance of
 * key and row. What comes behind the select must leave -inf as it is, so that what a hidden key adds to sums is 0 whatever its score is.
 *
 *     score + select(cond, 0, lowest)   is the same where every row sees the first key: at -65504 or less, which is the least finite f16, weights are 0 but for scores
 *                                       that differ by as much; a row that sees nothing would weigh all keys alike
 *
 * Comparisons say as well from where to where all rows of a block see all keys. */
#include "fuse/internal.h"

#include <math.h>
#include <string.h>

/* Bounds at a row; NULL: none. */
typedef struct bounds {
    emitter *E;
    int row, key;
    int64_t M;
    tn_tvalue *first, *limit;         /* of what some row of a block sees */
    tn_tvalue *all_first, *all_limit; /* of what all see; if nothing was left out */
    bool partial;                     /* something was */
} bounds;

static int only_way(const demand *d)
{
    int way = -1;
    for (int i = 0; i < d->nargs; i++)
        if (d->arg[i] && d->arg[i]->wide) {
            if (way >= 0)
                return -1;
            way = i;
        }
    return way;
}

/* The select that gives what d adds to a score, 0 or the lowest number; *inverted: the latter where its condition holds. NULL: it adds something else. */
static const demand *select_of_addition(const demand *d, int way, bool *inverted)
{
    const double lowest = -65504;
    const demand *x = d->arg[1 - way];
    double seen, hidden;
    while (x && (op_is_view(x->op) || x->op->code == TN_OP_convert))
        x = x->arg[0];
    if (!x || tn_op_scalar(x->op) != TN_S_select || !attention_number(tn_operand(x->op, 1), &seen) || !attention_number(tn_operand(x->op, 2), &hidden))
        return NULL;
    *inverted = hidden == 0;
    return (seen == 0 && hidden <= lowest) || (hidden == 0 && seen <= lowest) ? x : NULL;
}

static bool first_key_is_seen(fuser *F, const demand *d, int operand, bool inverted);

const demand *attention_hider(fuser *F, const demand *d, int way, bool *inverted)
{
    double number;
    tn_scalar fn = tn_op_scalar(d->op);
    *inverted = way == 2;
    if (fn == TN_S_select && way > 0)
        return attention_number(tn_operand(d->op, 3 - way), &number) && number == -INFINITY ? d : NULL;
    const demand *select = fn == TN_S_add ? select_of_addition(d, way, inverted) : NULL;
    return select && first_key_is_seen(F, select, 0, *inverted) ? select : NULL;
}

attention_step attention_step_of(fuser *F, const demand *d, int *way, double *by)
{
    tn_scalar fn = tn_op_scalar(d->op);
    bool inverted;
    *way = only_way(d);
    if (*way < 0)
        return STEP_OTHER;
    if (attention_hider(F, d, *way, &inverted))
        return STEP_HIDES;
    if (fn == TN_S_mul || (fn == TN_S_div && *way == 0))
        return !attention_number(tn_operand(d->op, 1 - *way), by) ? STEP_OTHER : fn == TN_S_mul ? STEP_SCALES : STEP_DIVIDES;
    return d->op->code == TN_OP_convert || op_is_view(d->op) ? STEP_MOVES : STEP_OTHER;
}

/* ---- comparisons of coordinates ------------------------------------------------------------------------------------------ */

static bool coordinate(fuser *F, const demand *d, int operand, affine *out)
{
    const tn_value *v = tn_operand(d->op, operand);
    const tn_tensor *constant = fuse_single_constant(v);
    const demand *x = d->arg[operand];
    if (tn_is_float(v->type.dtype) || v->type.dtype == TN_BOOL || tn_dtype_bits(v->type.dtype) < 32)
        return false;
    if (constant) {
        memset(out, 0, sizeof *out);
        out->base = tn_dim_const(F->session, tn_number_to_int(constant->dtype, tn_tensor_at(constant, 0)));
        return true;
    }
    if (!x)
        return false;
    if (x->op->code == TN_OP_iota) {
        const coord *c = &x->map->c[tn_attr_int(x->op, TN_A_iota_dimension, 0)];
        *out = c->a;
        return !c->dyn;
    }
    if (x->op->code == TN_OP_dimension) {
        memset(out, 0, sizeof *out);
        out->base = tn_find_attr(x->op, TN_A_dim)->dim;
        return true;
    }
    if (op_is_view(x->op) || x->op->code == TN_OP_convert)
        return coordinate(F, x, 0, out);
    tn_scalar fn = tn_op_scalar(x->op);
    affine a, b;
    if ((fn != TN_S_add && fn != TN_S_sub) || !coordinate(F, x, 0, &a) || !coordinate(F, x, 1, &b))
        return false;
    b = affine_scale(F, &b, tn_dim_const(F->session, fn == TN_S_sub ? -1 : 1));
    *out = affine_add(F, &a, &b);
    return true;
}

static tn_tvalue *at_row(const bounds *t, bool last)
{
    tn_tvalue *start = t->E->start[t->row];
    return last ? tn_t_map2(&t->E->b, TN_S_add, start, tn_t_index(&t->E->b, t->M - 1)) : start;
}

static void lower(bounds *t, tn_tvalue **limit, tn_tvalue *to) { *limit = *limit ? tn_t_map2(&t->E->b, TN_S_min, *limit, to) : to; }
static void raise(bounds *t, tn_tvalue **first, tn_tvalue *to) { *first = *first ? tn_t_map2(&t->E->b, TN_S_max, *first, to) : to; }

/* Where e is 0 or less, keys are visible: at the first or the last row, whose number the map has. */
static tn_tvalue *bound_at(bounds *t, const affine *e, bool last)
{
    emitter *E = t->E;
    if (t->row < 0)
        return emit_affine(E, e);
    tn_tvalue *start = E->start[t->row];
    E->start[t->row] = at_row(t, last);
    tn_tvalue *bound = emit_affine(E, e);
    E->start[t->row] = start;
    return bound;
}

/* Visible only where e <= 0, e a function of key (times 1 or -1), row, and what is one for the program. False: it is something else. */
static bool not_above_zero(bounds *t, const affine *e)
{
    emitter *E = t->E;
    fuser *F = E->F;
    const group *g = E->g;
    affine rest = *e;
    tn_dim by = e->coef[t->key];
    int64_t slope = 0;
    if (!by || !(tn_dim_is(by, 1) || tn_dim_is(by, -1)))
        return false;
    bool above = tn_dim_is(by, 1); /* key <= -rest, else key >= rest */
    rest.coef[t->key] = NULL;
    if (above) {
        rest = affine_scale(F, &rest, tn_dim_const(F->session, -1));
        rest.base = tn_dim_add(F->session, rest.base, tn_dim_const(F->session, 1));
    }
    for (int j = 0; j < g->ndims; j++)
        if (rest.coef[j] && (!E->start[j] || g->dim[j].absorbed || (j == t->row && !tn_dim_is_const(rest.coef[j]))))
            return false;
    if (t->row >= 0 && rest.coef[t->row])
        slope = rest.coef[t->row]->value;
    bool last = (slope > 0) == above;
    if (above) {
        lower(t, &t->limit, bound_at(t, &rest, last));
        lower(t, &t->all_limit, bound_at(t, &rest, !last));
    } else {
        raise(t, &t->first, bound_at(t, &rest, last));
        raise(t, &t->all_first, bound_at(t, &rest, !last));
    }
    return true;
}

/* What is 0 or less where the comparison holds; false: it is none of coordinates. */
static bool compared(fuser *F, const demand *d, bool inverted, affine *e)
{
    tn_scalar fn = tn_op_scalar(d->op);
    affine a, b;
    if ((fn != TN_S_gt && fn != TN_S_ge && fn != TN_S_lt && fn != TN_S_le) || !coordinate(F, d, 0, &a) || !coordinate(F, d, 1, &b))
        return false;
    bool greater = (fn == TN_S_gt || fn == TN_S_ge) != inverted, strict = (fn == TN_S_gt || fn == TN_S_lt) != inverted;
    affine negative = affine_scale(F, greater ? &a : &b, tn_dim_const(F->session, -1));
    *e = affine_add(F, greater ? &b : &a, &negative);
    if (strict)
        e->base = tn_dim_add(F->session, e->base, tn_dim_const(F->session, 1));
    return true;
}

/* At 0 of the keys and all other coordinates, which are 0 or more. */
static bool holds_at_first_key(fuser *F, const demand *d, bool inverted)
{
    affine e;
    const group *g = d->group;
    if (!compared(F, d, inverted, &e) || !tn_dim_is_const(e.base) || e.base->value > 0)
        return false;
    for (int j = 0; j < g->ndims; j++)
        if (j != g->attention->key && e.coef[j] && (!tn_dim_is_const(e.coef[j]) || e.coef[j]->value > 0))
            return false;
    return true;
}

static bool first_key_is_seen(fuser *F, const demand *d, int operand, bool inverted)
{
    const demand *x = d->arg[operand];
    tn_scalar fn = x ? tn_op_scalar(x->op) : TN_SCALAR_NONE;
    if (!x)
        return false;
    if (op_is_view(x->op) || fn == TN_S_not)
        return first_key_is_seen(F, x, 0, inverted != (fn == TN_S_not));
    if (fn == (inverted ? TN_S_or : TN_S_and))
        return first_key_is_seen(F, x, 0, inverted) && first_key_is_seen(F, x, 1, inverted);
    return x->op->code == TN_OP_compare && holds_at_first_key(F, x, inverted);
}

/* ---- constants ----------------------------------------------------------------------------------------------------------- */

/* Which coordinate of the map is dim j, once, shifted by *base; -1: none; -2: in another way. */
static int coordinate_of(const group *g, const fmap *m, int j, int64_t *base)
{
    int found = -1;
    *base = 0;
    for (int i = 0; i < m->rank; i++) {
        const affine *a = &m->c[i].a;
        if (m->c[i].dyn)
            return -2;
        if (j < 0 || !a->coef[j])
            continue;
        for (int k = 0; k < g->ndims; k++)
            if (k != j && a->coef[k])
                return -2;
        if (found >= 0 || !tn_dim_is(a->coef[j], 1) || !tn_dim_is_const(a->base))
            return -2;
        found = i;
        *base = a->base->value;
    }
    return found;
}

static void constant(bounds *t, const demand *d, int operand, bool inverted)
{
    enum { MOST = 1 << 24 };
    emitter *E = t->E;
    const tn_tensor *c = tn_constant_of(tn_operand(d->op, operand));
    const fmap *m = d->argmap[operand];
    int64_t n, key_base, row_base, columns = 1, rows = 1;
    if (!c || c->splat || !m || m->guards || !tn_tensor_count(c, &n) || n > MOST || (t->row >= 0 && E->g->dim[t->row].absorbed))
        return;
    int key = coordinate_of(E->g, m, t->key, &key_base), row = coordinate_of(E->g, m, t->row, &row_base), parts[FUSE_DIMS];
    if (key < 0 || row == -2 || (t->row >= 0 && fuse_parts_of(E->g, t->row, parts) > 1))
        return;
    for (int i = key + 1; i < c->rank; i++)
        columns *= c->dim[i];
    for (int i = row + 1; row >= 0 && i < c->rank; i++)
        rows *= c->dim[i];
    const uint8_t *seen = c->data;
    int64_t least = INT64_MAX, most = INT64_MIN;
    for (int64_t i = 0; i < n; i++)
        if ((seen[i] != 0) != inverted) {
            int64_t at = i / columns % c->dim[key] - key_base - (row >= 0 ? i / rows % c->dim[row] - row_base : 0);
            least = tn_min(least, at);
            most = tn_max(most, at);
        }
    if (least > most)
        return; /* nobody sees anything: the softmax of -inf alone */
    tn_tbuilder *b = &E->b;
    tn_tvalue *first = tn_t_index(b, least), *limit = tn_t_index(b, most + 1);
    raise(t, &t->first, row >= 0 ? tn_t_map2(b, TN_S_add, at_row(t, false), first) : first);
    lower(t, &t->limit, row >= 0 ? tn_t_map2(b, TN_S_add, at_row(t, true), limit) : limit);
}

/* ---- conditions ---------------------------------------------------------------------------------------------------------- */

static void condition(bounds *t, const demand *d, int operand, bool inverted)
{
    const demand *x = d->arg[operand];
    affine e;
    if (!x) {
        constant(t, d, operand, inverted);
        t->partial = true;
        return;
    }
    tn_scalar fn = tn_op_scalar(x->op);
    if (op_is_view(x->op)) {
        condition(t, x, 0, inverted);
    } else if (fn == TN_S_not) {
        condition(t, x, 0, !inverted);
    } else if (fn == (inverted ? TN_S_or : TN_S_and)) {
        condition(t, x, 0, inverted);
        condition(t, x, 1, inverted);
    } else {
        bool known = x->op->code == TN_OP_compare && compared(t->E->F, x, inverted, &e) && not_above_zero(t, &e);
        t->partial |= !known;
    }
}

attention_keys attention_visible(emitter *E, int row, int64_t M, int64_t N)
{
    const attention *a = E->g->attention;
    bounds t = {.E = E, .row = row, .key = a->key, .M = M};
    tn_tbuilder *b = &E->b;
    int rank = E->rank, axis[FUSE_DIMS];
    memcpy(axis, E->axis, sizeof axis);
    for (int j = 0; j < E->g->ndims; j++)
        E->axis[j] = -1;
    E->rank = 0;
    int way;
    double by;
    bool inverted;
    for (demand *d = a->scores; d != a->keys_demand; d = d->arg[way]) {
        attention_step step = attention_step_of(E->F, d, &way, &by);
        bool scales = step == STEP_SCALES || step == STEP_DIVIDES, before = t.partial;
        if (step == STEP_OTHER || (scales && (!(by > 0) || isinf(by))))
            break;
        if (step != STEP_HIDES)
            continue;
        const demand *select = attention_hider(E->F, d, way, &inverted);
        t.partial = false;
        condition(&t, select, 0, inverted);
        d->bounded = !t.partial;
        t.partial |= before;
    }
    tn_tvalue *zero = tn_t_index(b, 0), *step = tn_t_index(b, N), *keys = tn_t_size(b, fuse_whole_extent(E->F, E->g, a->key));
    attention_keys k = {.all_first = t.all_first, .all_limit = t.all_limit ? tn_t_map2(b, TN_S_min, t.all_limit, keys) : keys};
    k.first = t.first ? tn_t_map2(b, TN_S_mul, tn_t_map2(b, TN_S_div, tn_t_map2(b, TN_S_max, t.first, zero), step), step) : zero;
    k.limit = t.limit ? tn_t_map2(b, TN_S_min, t.limit, keys) : keys;
    memcpy(E->axis, axis, sizeof axis);
    E->rank = rank;
    return k;
}
