/* Where an operation reads its operands, as affine maps of the group's dims. */
#include "fuse/internal.h"

#include <assert.h>
#include <string.h>

static tn_dim konst(fuser *F, int64_t v) { return tn_dim_const(F->session, v); }

/* ---- affine ---------------------------------------------------------------------------------------------------------- */

static affine affine_const(fuser *F, tn_dim base)
{
    affine a;
    memset(&a, 0, sizeof a);
    a.base = base ? base : konst(F, 0);
    return a;
}

static void affine_set(affine *a, int j, tn_dim coef) { a->coef[j] = tn_dim_is(coef, 0) ? NULL : coef; }

affine affine_scale(fuser *F, const affine *a, tn_dim by)
{
    affine r = affine_const(F, tn_dim_mul(F->session, a->base, by));
    for (int j = 0; j < FUSE_DIMS; j++)
        if (a->coef[j])
            affine_set(&r, j, tn_dim_mul(F->session, a->coef[j], by));
    return r;
}

affine affine_add(fuser *F, const affine *a, const affine *b)
{
    affine r = affine_const(F, tn_dim_add(F->session, a->base, b->base));
    for (int j = 0; j < FUSE_DIMS; j++)
        if (a->coef[j] || b->coef[j])
            affine_set(&r, j, !a->coef[j] ? b->coef[j] : !b->coef[j] ? a->coef[j] : tn_dim_add(F->session, a->coef[j], b->coef[j]));
    return r;
}

static affine affine_plus(fuser *F, const affine *a, tn_dim c)
{
    affine r = *a;
    r.base = tn_dim_add(F->session, a->base, c);
    return r;
}

bool affine_is_dim(const affine *a, int ndims, int *dim)
{
    int found = -1;
    if (!tn_dim_is(a->base, 0))
        return false;
    for (int j = 0; j < ndims; j++) {
        if (!a->coef[j])
            continue;
        if (found >= 0 || !tn_dim_is(a->coef[j], 1))
            return false;
        found = j;
    }
    *dim = found;
    return found >= 0;
}

static bool affine_is_zero(const affine *a)
{
    for (int j = 0; j < FUSE_DIMS; j++)
        if (a->coef[j])
            return false;
    return tn_dim_is(a->base, 0);
}

static bool affine_same(const affine *a, const affine *b)
{
    return a->base == b->base && memcmp(a->coef, b->coef, sizeof a->coef) == 0;
}

/* ---- maps ---------------------------------------------------------------------------------------------------------------- */

fmap *map_new(fuser *F, group *g, int rank)
{
    fmap *m = TN_NEW(F->arena, fmap);
    m->rank = rank;
    m->c = TN_NEW_ARRAY(F->arena, coord, (size_t)(rank ? rank : 1));
    for (int i = 0; i < rank; i++)
        m->c[i].a = affine_const(F, NULL);
    TN_PUSH(F->arena, &g->maps, m);
    return m;
}

static fmap *map_like(fuser *F, group *g, const fmap *from, int rank)
{
    fmap *m = map_new(F, g, rank);
    m->guards = from->guards;
    m->movement_only = from->movement_only;
    m->repeated = from->repeated;
    return m;
}

bool map_same(const fmap *a, const fmap *b, int ndims)
{
    (void)ndims;
    if (a->rank != b->rank || a->guards != b->guards || a->movement_only != b->movement_only || a->repeated != b->repeated)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->c[i].dyn != b->c[i].dyn || !affine_same(&a->c[i].a, &b->c[i].a))
            return false;
    return true;
}

fmap *map_identity(fuser *F, group *g, int rank, const int *dims)
{
    fmap *m = map_new(F, g, rank);
    for (int i = 0; i < rank; i++)
        affine_set(&m->c[i].a, dims ? dims[i] : i, konst(F, 1));
    return m;
}

static void add_guard(fuser *F, fmap *m, const affine *at, tn_dim limit)
{
    fguard *guard = TN_NEW(F->arena, fguard);
    *guard = (fguard){*at, limit, m->guards};
    m->guards = guard;
}

/* ---- reshape ---------------------------------------------------------------------------------------------------------------- */

/* Splits group dim j of extent a * inner into j (a) and a new dim (inner) right after it. */
int fuse_split_dim(fuser *F, group *g, int j, tn_dim outer, tn_dim inner)
{
    int k = g->ndims++;
    g->dim[k] = (gdim){.extent = inner, .fold = g->dim[j].fold};
    g->dim[j].extent = outer;
    int at = 0;
    while (g->order[at] != j)
        at++;
    memmove(&g->order[at + 2], &g->order[at + 1], sizeof(int) * (size_t)(k - at - 1));
    g->order[at + 1] = k;
    for (size_t i = 0; i < g->maps.len; i++) {
        fmap *m = g->maps.at[i];
        for (int c = 0; c < m->rank; c++) {
            affine *a = &m->c[c].a;
            if (a->coef[j] && !a->coef[k]) {
                a->coef[k] = a->coef[j];
                a->coef[j] = tn_dim_mul(F->session, a->coef[j], inner);
            }
        }
        for (fguard *q = m->guards; q; q = q->next)
            if (q->at.coef[j] && !q->at.coef[k]) {
                q->at.coef[k] = q->at.coef[j];
                q->at.coef[j] = tn_dim_mul(F->session, q->at.coef[j], inner);
            }
    }
    return k;
}

/* Splits the one dim of a's terms that straddles multiples of `inner`, each of which is so many of its steps: all that stays below it must be less than `inner`. Terms of `rest` are no
 * multiples. outer: how often `inner` goes into what a walks, if a is a dim alone. */
static bool split_straddling(fuser *F, group *g, const affine *a, const affine *rest, tn_dim inner, tn_dim outer)
{
    tn_session *s = F->session;
    int alone;
    bool is_dim = affine_is_dim(a, g->ndims, &alone);
    for (int j = 0; j < g->ndims && g->ndims < FUSE_DIMS; j++) {
        if (!rest->coef[j] || g->dim[j].whole)
            continue;
        tn_dim steps = tn_dim_floordiv(s, inner, rest->coef[j]), one = konst(F, 1), most = rest->base;
        if (!tn_dim_eq(s, tn_dim_mul(s, steps, rest->coef[j]), inner))
            continue;
        tn_dim times = is_dim ? outer : tn_dim_floordiv(s, g->dim[j].extent, steps);
        for (int d = 0; d < g->ndims; d++)
            if (rest->coef[d])
                most = tn_dim_add(s, most, tn_dim_mul(s, rest->coef[d], tn_dim_sub(s, d == j ? steps : g->dim[d].extent, one)));
        if (!tn_dim_eq(s, tn_dim_mul(s, times, steps), g->dim[j].extent) || !tn_dim_le(s, tn_dim_add(s, most, one), inner))
            continue;
        fuse_split_dim(F, g, j, times, steps);
        return true;
    }
    return false;
}

/* Quotient and remainder of an affine expression by `inner`, where 0 <= a < outer * inner: exact when every coefficient is a multiple of `inner`
 * or belongs to a part that stays below it; else a dim is split, if that makes it so, and the caller must come again. */
static bool affine_divide(fuser *F, group *g, const affine *a, tn_dim inner, tn_dim outer, affine *q, affine *r)
{
    *q = affine_const(F, NULL);
    *r = affine_const(F, NULL);
    if (affine_is_zero(a))
        return true;
    if (tn_dim_is(inner, 1)) {
        *q = *a;
        return true;
    }
    if (tn_dim_is(outer, 1)) {
        *r = *a;
        return true;
    }
    /* Terms that are multiples of `inner` go to the quotient; the rest must be a sum that stays below `inner`. */
    tn_session *s = F->session;
    tn_dim most = a->base;
    affine rest = affine_const(F, a->base), whole = affine_const(F, NULL);
    if (!tn_dim_is_const(a->base) || a->base->value < 0)
        return false;
    for (int d = 0; d < g->ndims; d++) {
        if (!a->coef[d])
            continue;
        tn_dim quotient = tn_dim_floordiv(s, a->coef[d], inner);
        if (tn_dim_eq(s, tn_dim_mul(s, quotient, inner), a->coef[d])) {
            affine_set(&whole, d, quotient);
        } else if (a->coef[d]->lo < 0) {
            return false;
        } else {
            affine_set(&rest, d, a->coef[d]);
            most = tn_dim_add(s, most, tn_dim_mul(s, a->coef[d], tn_dim_sub(s, g->dim[d].extent, konst(F, 1))));
        }
    }
    if (tn_dim_le(s, tn_dim_add(s, most, konst(F, 1)), inner)) {
        *q = whole;
        *r = rest;
        return true;
    }
    return (g->kind != GROUP_PRODUCT || g->scaled) && split_straddling(F, g, a, &rest, inner, outer);
}

/* Coordinates of `from` (operand) whose row-major position equals that of m's coordinates in `to` (result). Dims are matched in runs of equal
 * product, so that only what really changes is multiplied out and divided again. */
static bool reshape_coords(fuser *F, group *g, const fmap *m, const tn_type *to, const tn_type *from, fmap *r)
{
    tn_session *s = F->session;
    int i = 0, j = 0;
    while (i < from->rank || j < to->rank) {
        tn_dim pi = konst(F, 1), pj = konst(F, 1);
        int i0 = i, j0 = j;
        if (i < from->rank)
            pi = from->dim[i++];
        if (j < to->rank)
            pj = to->dim[j++];
        while (!tn_dim_eq(s, pi, pj)) {
            if (i < from->rank && (j >= to->rank || (tn_dim_le(s, pi, pj) && !tn_dim_le(s, pj, pi)) || tn_dim_is(pi, 1)))
                pi = tn_dim_mul(s, pi, from->dim[i++]);
            else if (j < to->rank)
                pj = tn_dim_mul(s, pj, to->dim[j++]);
            else if (i < from->rank)
                pi = tn_dim_mul(s, pi, from->dim[i++]);
            else
                return false;
        }
        for (int t = j0; t < j; t++)
            if (m->c[t].dyn && (j - j0 != 1 || i - i0 != 1))
                return false;
        if (i - i0 == 1 && j - j0 == 1) {
            r->c[i0] = m->c[j0];
            continue;
        }
        /* a dim of splitting below rewrites m in place, so the linear position is computed when it is needed */
        for (int t = i - 1; t >= i0; t--) {
            affine linear = affine_const(F, NULL);
            for (int u = j0; u < j; u++) {
                affine scaled = affine_scale(F, &linear, to->dim[u]);
                linear = affine_add(F, &scaled, &m->c[u].a);
            }
            tn_dim inner = tn_dim_product(s, &from->dim[t + 1], i - t - 1), outer = tn_dim_product(s, &from->dim[i0], t - i0 + 1);
            affine q, rest, high, coordinate;
            if (!affine_divide(F, g, &linear, inner, outer, &q, &rest))
                return false;
            if (t == i0) {
                r->c[t].a = q;
                continue;
            }
            if (!affine_divide(F, g, &q, from->dim[t], tn_dim_product(s, &from->dim[i0], t - i0), &high, &coordinate))
                return false;
            r->c[t].a = coordinate;
        }
    }
    return true;
}

/* After splits, positions found first may be stale: derive until nothing splits. */
static fmap *derive_reshape(fuser *F, group *g, demand *d)
{
    const tn_type *from = &tn_operand(d->op, 0)->type, *to = &d->op->result->type;
    for (;;) {
        int before = g->ndims;
        fmap *r = map_like(F, g, d->map, from->rank);
        bool ok = reshape_coords(F, g, d->map, to, from, r);
        if (!ok)
            return NULL;
        if (g->ndims == before)
            return r;
    }
}

/* ---- the others ------------------------------------------------------------------------------------------------------------- */

static fmap *derive_broadcast(fuser *F, group *g, demand *d)
{
    const tn_value *x = tn_operand(d->op, 0);
    int n;
    const int64_t *dims = tn_attr_ints(d->op, TN_A_broadcast_dimensions, &n);
    fmap *r = map_like(F, g, d->map, x->type.rank);
    for (int i = 0; i < x->type.rank; i++)
        if (!tn_dim_is(x->type.dim[i], 1) || tn_dim_is(d->op->result->type.dim[dims[i]], 1))
            r->c[i] = d->map->c[dims[i]];
    return r;
}

static fmap *derive_transpose(fuser *F, group *g, demand *d)
{
    int n;
    const int64_t *p = tn_attr_ints(d->op, TN_A_permutation, &n);
    fmap *r = map_like(F, g, d->map, n);
    for (int i = 0; i < n; i++)
        r->c[p[i]] = d->map->c[i];
    return r;
}

static fmap *derive_slice(fuser *F, group *g, demand *d)
{
    int n;
    const tn_dim *start = tn_attr_dims(d->op, TN_A_start, &n);
    const int64_t *stride = tn_attr_ints(d->op, TN_A_strides, &n);
    fmap *r = map_like(F, g, d->map, n);
    for (int i = 0; i < n; i++) {
        if (d->map->c[i].dyn && stride[i] != 1)
            return NULL;
        affine scaled = affine_scale(F, &d->map->c[i].a, konst(F, stride[i]));
        r->c[i].a = affine_plus(F, &scaled, start[i]);
        r->c[i].dyn = d->map->c[i].dyn;
    }
    return r;
}

static fmap *derive_reverse(fuser *F, group *g, demand *d)
{
    const tn_type *type = &d->op->result->type;
    int n;
    const int64_t *dims = tn_attr_ints(d->op, TN_A_dimensions, &n);
    fmap *r = map_like(F, g, d->map, type->rank);
    for (int i = 0; i < type->rank; i++)
        r->c[i] = d->map->c[i];
    for (int k = 0; k < n; k++) {
        int i = (int)dims[k];
        if (r->c[i].dyn)
            return NULL;
        affine minus = affine_scale(F, &r->c[i].a, konst(F, -1));
        r->c[i].a = affine_plus(F, &minus, tn_dim_sub(F->session, type->dim[i], konst(F, 1)));
    }
    return r;
}

static fmap *derive_pad(fuser *F, group *g, demand *d)
{
    const tn_type *type = &tn_operand(d->op, 0)->type;
    int n;
    const tn_dim *low = tn_attr_dims(d->op, TN_A_low, &n), *high = tn_attr_dims(d->op, TN_A_high, &n);
    const int64_t *interior = tn_attr_ints(d->op, TN_A_interior, &n);
    if (d->map->movement_only)
        return NULL;
    fmap *r = map_like(F, g, d->map, n);
    for (int i = 0; i < n; i++) {
        if (interior[i] || d->map->c[i].dyn)
            return NULL;
        r->c[i].a = affine_plus(F, &d->map->c[i].a, tn_dim_sub(F->session, konst(F, 0), low[i]));
        if (!(low[i]->hi <= 0 && high[i]->hi <= 0))
            add_guard(F, r, &r->c[i].a, type->dim[i]);
    }
    return r;
}

static fmap *derive_concatenate(fuser *F, group *g, demand *d, int which)
{
    const tn_type *type = &tn_operand(d->op, which)->type;
    int axis = (int)tn_attr_int(d->op, TN_A_dimension, 0);
    if (d->map->movement_only || d->map->c[axis].dyn)
        return NULL;
    tn_dim before = konst(F, 0);
    for (int k = 0; k < which; k++)
        before = tn_dim_add(F->session, before, tn_operand(d->op, k)->type.dim[axis]);
    fmap *r = map_like(F, g, d->map, type->rank);
    for (int i = 0; i < type->rank; i++)
        r->c[i] = d->map->c[i];
    r->c[axis].a = affine_plus(F, &r->c[axis].a, tn_dim_sub(F->session, konst(F, 0), before));
    add_guard(F, r, &r->c[axis].a, type->dim[axis]);
    return r;
}

static dynamic_index *dynamic(fuser *F, const tn_op *op, int operand, fmap *at, tn_dim limit)
{
    dynamic_index *dyn = TN_NEW(F->arena, dynamic_index);
    *dyn = (dynamic_index){operand, tn_operand(op, operand), at, NULL, limit};
    return dyn;
}

static fmap *derive_dynamic_slice(fuser *F, group *g, demand *d, int i)
{
    const tn_type *type = &tn_operand(d->op, 0)->type;
    if (i > 0)
        return map_like(F, g, d->map, 0);
    if (d->map->movement_only)
        return NULL;
    int n;
    const tn_dim *sizes = tn_attr_dims(d->op, TN_A_sizes, &n);
    fmap *r = map_like(F, g, d->map, n);
    for (int k = 0; k < n; k++) {
        if (d->map->c[k].dyn)
            return NULL;
        r->c[k] = d->map->c[k];
        if (tn_dim_eq(F->session, sizes[k], type->dim[k]))
            continue; /* the whole axis: the start is clamped to 0 */
        r->c[k].dyn = dynamic(F, d->op, k + 1, map_like(F, g, d->map, 0), tn_dim_sub(F->session, type->dim[k], sizes[k]));
    }
    return r;
}

static bool among(const int64_t *list, int n, int64_t x, int *at)
{
    for (int i = 0; i < n; i++)
        if (list[i] == x) {
            if (at)
                *at = i;
            return true;
        }
    return false;
}

/* The map at which a gather reads its indices: batch dims of the result, and `component` along the index vector. */
static fmap *gather_indices(fuser *F, group *g, demand *d, int component)
{
    const tn_type *type = &tn_operand(d->op, 1)->type, *out = &d->op->result->type;
    int n_offset;
    const int64_t *offset = tn_attr_ints(d->op, TN_A_offset_dims, &n_offset);
    int64_t vector = tn_attr_int(d->op, TN_A_index_vector_dim, 0);
    fmap *r = map_like(F, g, d->map, type->rank);
    int k = 0;
    for (int i = 0; i < out->rank; i++) {
        if (among(offset, n_offset, i, NULL))
            continue;
        if (k == vector)
            k++;
        r->c[k++] = d->map->c[i];
    }
    if (vector < type->rank)
        r->c[vector].a = affine_const(F, konst(F, component));
    return r;
}

static fmap *derive_gather(fuser *F, group *g, demand *d, int i)
{
    const tn_type *type = &tn_operand(d->op, 0)->type, *out = &d->op->result->type;
    int n_offset, n_collapsed, n_map, n_batch, n_sizes;
    const int64_t *offset = tn_attr_ints(d->op, TN_A_offset_dims, &n_offset);
    const int64_t *collapsed = tn_attr_ints(d->op, TN_A_collapsed_slice_dims, &n_collapsed);
    const int64_t *index_map = tn_attr_ints(d->op, TN_A_start_index_map, &n_map);
    const int64_t *batching = tn_attr_ints(d->op, TN_A_operand_batching_dims, &n_batch);
    const int64_t *indices_batching = tn_attr_ints(d->op, TN_A_indices_batching_dims, &n_batch);
    const tn_dim *sizes = tn_attr_dims(d->op, TN_A_sizes, &n_sizes);
    int64_t vector = tn_attr_int(d->op, TN_A_index_vector_dim, 0);
    if (d->map->movement_only)
        return NULL;
    for (int k = 0; k < out->rank; k++)
        if (d->map->c[k].dyn)
            return NULL;
    if (i == 1)
        return gather_indices(F, g, d, 0);
    fmap *r = map_like(F, g, d->map, type->rank);
    int next = 0, at;
    for (int k = 0; k < type->rank; k++) {
        if (among(batching, n_batch, k, &at)) {
            int position = 0; /* of the indices' batch dim among the result's batch dims */
            for (int64_t q = 0; q < indices_batching[at]; q++)
                position += q != vector;
            for (int q = 0; q < out->rank; q++)
                if (!among(offset, n_offset, q, NULL) && position-- == 0)
                    r->c[k] = d->map->c[q];
            continue;
        }
        if (!among(collapsed, n_collapsed, k, NULL))
            r->c[k] = d->map->c[offset[next++]];
        if (among(index_map, n_map, k, &at) && !tn_dim_eq(F->session, sizes[k], type->dim[k]))
            r->c[k].dyn = dynamic(F, d->op, 1, gather_indices(F, g, d, at), tn_dim_sub(F->session, type->dim[k], sizes[k]));
    }
    return r;
}

static fmap *derive_update_slice(fuser *F, group *g, demand *d, int i)
{
    if (i >= 2)
        return map_like(F, g, d->map, 0);
    if (d->map->movement_only)
        return NULL;
    if (i == 0)
        return d->map;
    for (int k = 0; k < d->map->rank; k++)
        if (d->map->c[k].dyn)
            return NULL;
    return d->map; /* read through index tiles: emit.c */
}

fmap *derive_operand(fuser *F, group *g, demand *d, int i)
{
    const tn_op *op = d->op;
    if (tn_op_traits(op->code) & TN_ELEMENTWISE)
        return tn_operand(op, i)->type.rank == d->map->rank ? d->map : map_like(F, g, d->map, 0);
    switch (op->code) {
    case TN_OP_bitcast_convert:
        return d->map;
    case TN_OP_reshape:
        return derive_reshape(F, g, d);
    case TN_OP_broadcast_in_dim:
        return derive_broadcast(F, g, d);
    case TN_OP_transpose:
        return derive_transpose(F, g, d);
    case TN_OP_slice:
        return derive_slice(F, g, d);
    case TN_OP_reverse:
        return derive_reverse(F, g, d);
    case TN_OP_pad:
        return i == 0 ? derive_pad(F, g, d) : map_like(F, g, d->map, 0);
    case TN_OP_concatenate:
        return derive_concatenate(F, g, d, i);
    case TN_OP_dynamic_slice:
        return derive_dynamic_slice(F, g, d, i);
    case TN_OP_gather:
        return derive_gather(F, g, d, i);
    case TN_OP_dynamic_update_slice:
        return derive_update_slice(F, g, d, i);
    default:
        return NULL;
    }
}
