/* Which keys a block of rows can see, where a mask hides the others by -inf: bounds of the loop over keys.
 *
 *     select(cond, score, -inf)      cond: comparisons of coordinates (iota, sizes, sums), joined by `and`; or a constant
 *
 * A comparison of affine functions of row and key says key < row + c or key >= row + c; a constant's elements are looked at for the least and greatest distance of
 * key and row. What comes behind the select must leave -inf as it is, so that what a hidden key adds to sums is 0 whatever its score is. */
#include "fuse/internal.h"

#include <math.h>
#include <string.h>

/* Bounds at a row; NULL: none. */
typedef struct bounds {
    emitter *E;
    int row, key;
    int64_t M;
    tn_tvalue *first, *limit;
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

attention_step attention_step_of(const demand *d, int *way, double *by)
{
    tn_scalar fn = tn_op_scalar(d->op);
    *way = only_way(d);
    if (*way < 0)
        return STEP_OTHER;
    if (fn == TN_S_select && *way > 0)
        return attention_number(tn_operand(d->op, 3 - *way), by) && *by == -INFINITY ? STEP_HIDES : STEP_OTHER;
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

static void lower(bounds *t, tn_tvalue *limit) { t->limit = t->limit ? tn_t_map2(&t->E->b, TN_S_min, t->limit, limit) : limit; }
static void raise(bounds *t, tn_tvalue *first) { t->first = t->first ? tn_t_map2(&t->E->b, TN_S_max, t->first, first) : first; }

/* Visible only where e <= 0, e a function of key (times 1 or -1), row, and what is one for the program. */
static void not_above_zero(bounds *t, const affine *e)
{
    emitter *E = t->E;
    fuser *F = E->F;
    const group *g = E->g;
    affine rest = *e;
    tn_dim by = e->coef[t->key];
    int64_t slope = 0;
    if (!by || !(tn_dim_is(by, 1) || tn_dim_is(by, -1)))
        return;
    bool above = tn_dim_is(by, 1); /* key <= -rest, else key >= rest */
    rest.coef[t->key] = NULL;
    if (above) {
        rest = affine_scale(F, &rest, tn_dim_const(F->session, -1));
        rest.base = tn_dim_add(F->session, rest.base, tn_dim_const(F->session, 1));
    }
    for (int j = 0; j < g->ndims; j++)
        if (rest.coef[j] && (!E->start[j] || g->dim[j].absorbed || (j == t->row && !tn_dim_is_const(rest.coef[j]))))
            return;
    if (t->row >= 0 && rest.coef[t->row])
        slope = rest.coef[t->row]->value;
    tn_tvalue *start = t->row >= 0 ? E->start[t->row] : NULL;
    if (start)
        E->start[t->row] = at_row(t, (slope > 0) == above);
    tn_tvalue *bound = emit_affine(E, &rest);
    if (start)
        E->start[t->row] = start;
    (above ? lower : raise)(t, bound);
}

static void compare(bounds *t, const demand *d, bool inverted)
{
    fuser *F = t->E->F;
    tn_scalar fn = tn_op_scalar(d->op);
    affine a, b, e;
    if (!coordinate(F, d, 0, &a) || !coordinate(F, d, 1, &b))
        return;
    tn_dim one = tn_dim_const(F->session, 1), minus = tn_dim_const(F->session, -1);
    bool greater = (fn == TN_S_gt || fn == TN_S_ge) != inverted, strict = (fn == TN_S_gt || fn == TN_S_lt) != inverted;
    if (fn != TN_S_gt && fn != TN_S_ge && fn != TN_S_lt && fn != TN_S_le)
        return;
    affine negative = affine_scale(F, greater ? &a : &b, minus);
    e = affine_add(F, greater ? &b : &a, &negative);
    if (strict)
        e.base = tn_dim_add(F->session, e.base, one);
    not_above_zero(t, &e);
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
    raise(t, row >= 0 ? tn_t_map2(b, TN_S_add, at_row(t, false), first) : first);
    lower(t, row >= 0 ? tn_t_map2(b, TN_S_add, at_row(t, true), limit) : limit);
}

/* ---- conditions ---------------------------------------------------------------------------------------------------------- */

static void condition(bounds *t, const demand *d, int operand, bool inverted)
{
    const demand *x = d->arg[operand];
    if (!x) {
        constant(t, d, operand, inverted);
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
    } else if (x->op->code == TN_OP_compare) {
        compare(t, x, inverted);
    }
}

void attention_visible(emitter *E, int row, int64_t M, int64_t N, tn_tvalue **first, tn_tvalue **limit)
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
    for (const demand *d = a->scores; d != a->keys_demand; d = d->arg[way]) {
        attention_step step = attention_step_of(d, &way, &by);
        bool scales = step == STEP_SCALES || step == STEP_DIVIDES;
        if (step == STEP_OTHER || (scales && (!(by > 0) || isinf(by))))
            break;
        if (step == STEP_HIDES)
            condition(&t, d, 0, way == 2);
    }
    tn_tvalue *zero = tn_t_index(b, 0), *step = tn_t_index(b, N), *keys = tn_t_size(b, fuse_whole_extent(E->F, E->g, a->key));
    *first = t.first ? tn_t_map2(b, TN_S_mul, tn_t_map2(b, TN_S_div, tn_t_map2(b, TN_S_max, t.first, zero), step), step) : zero;
    *limit = t.limit ? tn_t_map2(b, TN_S_min, t.limit, keys) : keys;
    memcpy(E->axis, axis, sizeof axis);
    E->rank = rank;
}
