/* Rules on operations that move data, and on those that read moved data: compositions, cancellations, and movement
 * that turns out to be none. All are exact: an element is only fetched from elsewhere. */
#include "opt/internal.h"

#include <string.h>

static tn_dim size_of(rewriter *rw, int64_t value)
{
    return tn_dim_const(rw->session, value);
}
static const tn_type *type_of(const tn_op *op, int i)
{
    return &tn_operand(op, i)->type;
}

/* Both shapes without their sizes of 1 are the same. */
static bool differs_by_units(rewriter *rw, const tn_type *a, const tn_type *b)
{
    int i = 0, k = 0;
    for (;;) {
        while (i < a->rank && tn_dim_is(a->dim[i], 1))
            i++;
        while (k < b->rank && tn_dim_is(b->dim[k], 1))
            k++;
        if (i == a->rank || k == b->rank)
            return i == a->rank && k == b->rank;
        if (!tn_dim_eq(rw->session, a->dim[i++], b->dim[k++]))
            return false;
    }
}

/* ---- transpose ----------------------------------------------------------------------------------------------------
 */

/* transpose(x, [0, 1, …]) -> x */
static bool transpose_nothing(rewriter *rw, tn_op *op)
{
    return permutation_is_identity(ints_of(op, TN_A_permutation), op->result[0].type.rank) &&
           rw_replace(rw, op, tn_operand(op, 0));
}

/* transpose(transpose(x, p), q) -> transpose(x, r), r[i] = p[q[i]] */
static bool transpose_twice(rewriter *rw, tn_op *op)
{
    const tn_value *inner = tn_operand(op, 0);
    int64_t r[TN_MAX_RANK];
    if (!tn_is_op(inner, TN_OP_transpose))
        return false;
    const int64_t *p = ints_of(inner->def, TN_A_permutation), *q = ints_of(op, TN_A_permutation);
    for (int i = 0; i < inner->type.rank; i++)
        r[i] = p[q[i]];
    return rw_replace(rw, op, tn_transpose(&rw->b, tn_operand(inner->def, 0), r));
}

/* Only sizes of 1 change places: no element moves, so it is a reshape. */
static bool transpose_units(rewriter *rw, tn_op *op)
{
    const tn_type *from = type_of(op, 0), *to = &op->result[0].type;
    const int64_t *p = ints_of(op, TN_A_permutation);
    int64_t last = -1;
    for (int i = 0; i < to->rank; i++) {
        if (tn_dim_is(from->dim[p[i]], 1))
            continue;
        if (p[i] < last)
            return false;
        last = p[i];
    }
    return rw_replace(rw, op, tn_reshape(&rw->b, tn_operand(op, 0), to->dim, to->rank));
}

/* transpose(broadcast_in_dim(x)) -> broadcast_in_dim(x) */
static bool transpose_broadcast(rewriter *rw, tn_op *op)
{
    const tn_value *inner = tn_operand(op, 0);
    const tn_type *to = &op->result[0].type;
    int64_t inverse[TN_MAX_RANK], map[TN_MAX_RANK];
    if (!tn_is_op(inner, TN_OP_broadcast_in_dim))
        return false;
    const int64_t *p = ints_of(op, TN_A_permutation), *spread = ints_of(inner->def, TN_A_broadcast_dimensions);
    for (int i = 0; i < to->rank; i++)
        inverse[p[i]] = i;
    tn_value *x = tn_operand(inner->def, 0);
    for (int i = 0; i < x->type.rank; i++)
        map[i] = inverse[spread[i]];
    return rw_replace(rw, op, tn_broadcast_in_dim(&rw->b, x, to->dim, to->rank, map));
}

/* transpose(iota) -> iota along the dimension's new place */
static bool transpose_iota(rewriter *rw, tn_op *op)
{
    const tn_value *inner = tn_operand(op, 0);
    const tn_type *to = &op->result[0].type;
    int axis = 0;
    if (!tn_is_op(inner, TN_OP_iota))
        return false;
    while (ints_of(op, TN_A_permutation)[axis] != tn_attr_int(inner->def, TN_A_iota_dimension, 0))
        axis++;
    return rw_replace(rw, op, tn_iota(&rw->b, to->dtype, to->dim, to->rank, axis));
}

/* ---- reshape ------------------------------------------------------------------------------------------------------
 */

static bool reshape_nothing(rewriter *rw, tn_op *op)
{
    return types_agree(rw->session, type_of(op, 0), &op->result[0].type) && rw_replace(rw, op, tn_operand(op, 0));
}

/* reshape(reshape(x)) -> reshape(x) */
static bool reshape_twice(rewriter *rw, tn_op *op)
{
    const tn_value *inner = tn_operand(op, 0);
    const tn_type *to = &op->result[0].type;
    return tn_is_op(inner, TN_OP_reshape) &&
           rw_replace(rw, op, tn_reshape(&rw->b, tn_operand(inner->def, 0), to->dim, to->rank));
}

/* reshape(broadcast_in_dim(x)) -> broadcast_in_dim(x) where only sizes of 1 come and go, or x is a scalar */
static bool reshape_broadcast(rewriter *rw, tn_op *op)
{
    const tn_value *inner = tn_operand(op, 0);
    const tn_type *from = &inner->type, *to = &op->result[0].type;
    int64_t map[TN_MAX_RANK], place[TN_MAX_RANK];
    if (!tn_is_op(inner, TN_OP_broadcast_in_dim))
        return false;
    tn_value *x = tn_operand(inner->def, 0);
    if (x->type.rank > 0 && !differs_by_units(rw, from, to))
        return rw_decline(rw, op, "it mixes broadcast sizes with others");
    const int64_t *spread = ints_of(inner->def, TN_A_broadcast_dimensions);
    for (int i = 0, k = 0; x->type.rank > 0 && i < from->rank; i++) {
        if (tn_dim_is(from->dim[i], 1))
            continue;
        while (tn_dim_is(to->dim[k], 1))
            k++;
        place[i] = k++;
    }
    for (int i = 0; i < x->type.rank; i++) {
        if (tn_dim_is(from->dim[spread[i]], 1))
            return rw_decline(rw, op, "a size of 1 of the operand has no place in the result");
        map[i] = place[spread[i]];
    }
    return rw_replace(rw, op, tn_broadcast_in_dim(&rw->b, x, to->dim, to->rank, map));
}

/* ---- broadcast_in_dim ------------------------------------------------------------------------------------------ */

static bool broadcast_nothing(rewriter *rw, tn_op *op)
{
    return permutation_is_identity(ints_of(op, TN_A_broadcast_dimensions), type_of(op, 0)->rank) &&
           types_agree(rw->session, type_of(op, 0), &op->result[0].type) && rw_replace(rw, op, tn_operand(op, 0));
}

/* broadcast_in_dim(broadcast_in_dim(x)) -> broadcast_in_dim(x) */
static bool broadcast_twice(rewriter *rw, tn_op *op)
{
    const tn_value *inner = tn_operand(op, 0);
    const tn_type *to = &op->result[0].type;
    int64_t map[TN_MAX_RANK];
    if (!tn_is_op(inner, TN_OP_broadcast_in_dim))
        return false;
    tn_value *x = tn_operand(inner->def, 0);
    for (int i = 0; i < x->type.rank; i++)
        map[i] = ints_of(op, TN_A_broadcast_dimensions)[ints_of(inner->def, TN_A_broadcast_dimensions)[i]];
    return rw_replace(rw, op, tn_broadcast_in_dim(&rw->b, x, to->dim, to->rank, map));
}

/* broadcast_in_dim(reshape(x)) -> broadcast_in_dim(x) where the reshape only puts sizes of 1 between */
static bool broadcast_reshape(rewriter *rw, tn_op *op)
{
    const tn_value *inner = tn_operand(op, 0);
    const tn_type *to = &op->result[0].type;
    int64_t map[TN_MAX_RANK];
    int k = 0;
    if (!tn_is_op(inner, TN_OP_reshape))
        return false;
    tn_value *x = tn_operand(inner->def, 0);
    for (int i = 0; i < x->type.rank; i++, k++) {
        while (k < inner->type.rank && !tn_dim_eq(rw->session, x->type.dim[i], inner->type.dim[k]) &&
               tn_dim_is(inner->type.dim[k], 1))
            k++;
        if (k == inner->type.rank || !tn_dim_eq(rw->session, x->type.dim[i], inner->type.dim[k]))
            return rw_decline(rw, op, "the reshape does more than put sizes of 1 between");
        map[i] = ints_of(op, TN_A_broadcast_dimensions)[k];
    }
    for (; k < inner->type.rank; k++)
        if (!tn_dim_is(inner->type.dim[k], 1))
            return false;
    return rw_replace(rw, op, tn_broadcast_in_dim(&rw->b, x, to->dim, to->rank, map));
}

/* A constant's sizes of 1 that are spread out say nothing: f32[1, 64, 1, 1] -> f32[64]. */
static bool broadcast_constant_units(rewriter *rw, tn_op *op)
{
    tn_value *x = tn_operand(op, 0);
    const tn_type *to = &op->result[0].type;
    const int64_t *spread = ints_of(op, TN_A_broadcast_dimensions);
    tn_type small = {.dtype = x->type.dtype};
    int64_t map[TN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++)
        if (!tn_dim_is(x->type.dim[i], 1)) {
            map[small.rank] = spread[i];
            small.dim[small.rank++] = x->type.dim[i];
        }
    if (!tn_constant_of(x) || small.rank == x->type.rank)
        return false;
    return rw_replace(
        rw, op, tn_broadcast_in_dim(&rw->b, build_reshaped(&rw->b, x, small.dim, small.rank), to->dim, to->rank, map));
}

/* ---- slice --------------------------------------------------------------------------------------------------------
 */

static bool slices_all_of(rewriter *rw, const tn_op *op, int i)
{
    return tn_dim_is(dims_of(op, TN_A_start)[i], 0) &&
           tn_dim_eq(rw->session, dims_of(op, TN_A_limit)[i], type_of(op, 0)->dim[i]) &&
           (ints_of(op, TN_A_strides)[i] == 1 || tn_dim_is(op->result[0].type.dim[i], 1));
}

static bool slice_nothing(rewriter *rw, tn_op *op)
{
    for (int i = 0; i < type_of(op, 0)->rank; i++)
        if (!slices_all_of(rw, op, i) || !tn_dim_eq(rw->session, op->result[0].type.dim[i], type_of(op, 0)->dim[i]))
            return false;
    return rw_replace(rw, op, tn_operand(op, 0));
}

/* slice(slice(x)) -> slice(x): start = a.start + b.start * a.stride, stride = a.stride * b.stride */
static bool slice_twice(rewriter *rw, tn_op *op)
{
    tn_session *s = rw->session;
    const tn_value *inner = tn_operand(op, 0);
    tn_dim start[TN_MAX_RANK], limit[TN_MAX_RANK];
    int64_t stride[TN_MAX_RANK];
    if (!tn_is_op(inner, TN_OP_slice))
        return false;
    for (int i = 0; i < inner->type.rank; i++) {
        int64_t a = ints_of(inner->def, TN_A_strides)[i], b = ints_of(op, TN_A_strides)[i];
        tn_dim count = op->result[0].type.dim[i];
        start[i] = tn_dim_add(s, dims_of(inner->def, TN_A_start)[i],
                              tn_dim_mul(s, dims_of(op, TN_A_start)[i], size_of(rw, a)));
        if (!tn_mul(a, b, &stride[i]) || stride[i] > INT32_MAX)
            return rw_decline(rw, op, "the strides together are too large");
        if (a == 1) { /* limit: right behind the last element */
            limit[i] = tn_dim_add(s, dims_of(inner->def, TN_A_start)[i], dims_of(op, TN_A_limit)[i]);
        } else if (count->lo >= 1) {
            tn_dim last = tn_dim_mul(s, tn_dim_sub(s, count, size_of(rw, 1)), size_of(rw, stride[i]));
            limit[i] = tn_dim_add(s, tn_dim_add(s, start[i], last), size_of(rw, 1));
        } else {
            return rw_decline(rw, op, "it may be empty");
        }
    }
    return rw_replace(rw, op, tn_slice(&rw->b, tn_operand(inner->def, 0), start, limit, stride));
}

/* slice(concatenate(x, y, …)) -> slice(y) where only y is read */
static bool slice_concatenate(rewriter *rw, tn_op *op)
{
    tn_session *s = rw->session;
    const tn_value *inner = tn_operand(op, 0);
    if (!tn_is_op(inner, TN_OP_concatenate))
        return false;
    int axis = (int)tn_attr_int(inner->def, TN_A_dimension, 0), rank = inner->type.rank;
    tn_dim begin = size_of(rw, 0), start[TN_MAX_RANK], limit[TN_MAX_RANK];
    memcpy(start, dims_of(op, TN_A_start), (size_t)rank * sizeof *start);
    memcpy(limit, dims_of(op, TN_A_limit), (size_t)rank * sizeof *limit);
    for (int k = 0; k < inner->def->noperands; k++) {
        tn_dim end = tn_dim_add(s, begin, tn_operand(inner->def, k)->type.dim[axis]);
        if (tn_dim_le(s, begin, start[axis]) && tn_dim_le(s, limit[axis], end)) {
            start[axis] = tn_dim_sub(s, start[axis], begin);
            limit[axis] = tn_dim_sub(s, limit[axis], begin);
            return rw_replace(rw, op,
                              tn_slice(&rw->b, tn_operand(inner->def, k), start, limit, ints_of(op, TN_A_strides)));
        }
        begin = end;
    }
    return rw_decline(rw, op, "it reads more than one operand of the concatenate");
}

/* slice(pad(x)) -> slice(x) where no padding is read */
static bool slice_pad(rewriter *rw, tn_op *op)
{
    tn_session *s = rw->session;
    const tn_value *inner = tn_operand(op, 0);
    tn_dim start[TN_MAX_RANK], limit[TN_MAX_RANK];
    if (!tn_is_op(inner, TN_OP_pad))
        return false;
    tn_value *x = tn_operand(inner->def, 0);
    for (int i = 0; i < x->type.rank; i++) {
        tn_dim low = dims_of(inner->def, TN_A_low)[i];
        start[i] = tn_dim_sub(s, dims_of(op, TN_A_start)[i], low);
        limit[i] = tn_dim_sub(s, dims_of(op, TN_A_limit)[i], low);
        if (ints_of(inner->def, TN_A_interior)[i] || start[i]->lo < 0 || !tn_dim_le(s, limit[i], x->type.dim[i]))
            return rw_decline(rw, op, "it may read padding");
    }
    return rw_replace(rw, op, tn_slice(&rw->b, x, start, limit, ints_of(op, TN_A_strides)));
}

/* slice(broadcast_in_dim(x)) -> broadcast_in_dim(slice(x)): dimensions that are spread out are just made smaller. */
static bool slice_broadcast(rewriter *rw, tn_op *op)
{
    const tn_value *inner = tn_operand(op, 0);
    const tn_type *to = &op->result[0].type;
    tn_dim start[TN_MAX_RANK], limit[TN_MAX_RANK];
    int64_t stride[TN_MAX_RANK];
    if (!tn_is_op(inner, TN_OP_broadcast_in_dim))
        return false;
    tn_value *x = tn_operand(inner->def, 0);
    const int64_t *spread = ints_of(inner->def, TN_A_broadcast_dimensions);
    for (int i = 0; i < x->type.rank; i++) {
        bool one = tn_dim_is(x->type.dim[i], 1);
        start[i] = one ? size_of(rw, 0) : dims_of(op, TN_A_start)[spread[i]];
        limit[i] = one ? size_of(rw, 1) : dims_of(op, TN_A_limit)[spread[i]];
        stride[i] = one ? 1 : ints_of(op, TN_A_strides)[spread[i]];
    }
    tn_value *part = x->type.rank ? tn_slice(&rw->b, x, start, limit, stride) : x;
    return rw_replace(rw, op, tn_broadcast_in_dim(&rw->b, part, to->dim, to->rank, spread));
}

/* ---- concatenate, pad, reverse --------------------------------------------------------------------------------- */

enum { MOST_JOINED = 4096 };

/* concatenate(x) -> x; operands of size 0 go; concatenate(concatenate(x, y), z) -> concatenate(x, y, z) */
static bool concatenate_flat(rewriter *rw, tn_op *op)
{
    int axis = (int)tn_attr_int(op, TN_A_dimension, 0), n = 0, total = 0;
    bool changes = op->noperands == 1;
    for (int i = 0; i < op->noperands; i++) {
        const tn_value *x = tn_operand(op, i);
        bool nested =
            tn_is_op(x, TN_OP_concatenate) && tn_attr_int(x->def, TN_A_dimension, 0) == axis && tn_has_one_use(x);
        total += nested ? x->def->noperands : 1;
        changes |= nested || tn_dim_is(x->type.dim[axis], 0);
    }
    if (!changes || total > MOST_JOINED)
        return false;
    tn_value **list = TN_NEW_ARRAY(&rw->session->arena, tn_value *, (size_t)total);
    for (int i = 0; i < op->noperands; i++) {
        tn_value *x = tn_operand(op, i);
        bool nested =
            tn_is_op(x, TN_OP_concatenate) && tn_attr_int(x->def, TN_A_dimension, 0) == axis && tn_has_one_use(x);
        for (int k = 0; nested && k < x->def->noperands; k++)
            list[n++] = tn_operand(x->def, k);
        if (!nested && !tn_dim_is(x->type.dim[axis], 0))
            list[n++] = x;
    }
    if (n == 0)
        return rw_replace(rw, op, tn_operand(op, 0));
    return rw_replace(rw, op, n == 1 ? list[0] : tn_concatenate(&rw->b, list, n, axis));
}

/* Two slices of one value that lie side by side along the axis. */
static bool slices_meet(rewriter *rw, const tn_value *a, const tn_value *b, int axis)
{
    if (!tn_is_op(a, TN_OP_slice) || !tn_is_op(b, TN_OP_slice) || tn_operand(a->def, 0) != tn_operand(b->def, 0))
        return false;
    for (int i = 0; i < a->type.rank; i++) {
        bool same = dims_of(a->def, TN_A_start)[i] == dims_of(b->def, TN_A_start)[i] &&
                    dims_of(a->def, TN_A_limit)[i] == dims_of(b->def, TN_A_limit)[i];
        bool adjacent = tn_dim_eq(rw->session, dims_of(a->def, TN_A_limit)[i], dims_of(b->def, TN_A_start)[i]) &&
                        ints_of(a->def, TN_A_strides)[i] == 1;
        if (ints_of(a->def, TN_A_strides)[i] != ints_of(b->def, TN_A_strides)[i] || !(i == axis ? adjacent : same))
            return false;
    }
    return true;
}

/* concatenate(x[0:3], x[3:5]) -> x[0:5] */
static bool concatenate_slices(rewriter *rw, tn_op *op)
{
    int axis = (int)tn_attr_int(op, TN_A_dimension, 0), n = 0;
    tn_value **list = TN_NEW_ARRAY(&rw->session->arena, tn_value *, (size_t)op->noperands);
    for (int i = 0; i < op->noperands; i++) {
        tn_value *x = tn_operand(op, i);
        if (n == 0 || !slices_meet(rw, list[n - 1], x, axis)) {
            list[n++] = x;
            continue;
        }
        const tn_op *first = list[n - 1]->def;
        tn_dim limit[TN_MAX_RANK];
        memcpy(limit, dims_of(first, TN_A_limit), (size_t)x->type.rank * sizeof *limit);
        limit[axis] = dims_of(x->def, TN_A_limit)[axis];
        list[n - 1] =
            tn_slice(&rw->b, tn_operand(first, 0), dims_of(first, TN_A_start), limit, ints_of(first, TN_A_strides));
        if (!list[n - 1])
            return false;
    }
    return n < op->noperands && rw_replace(rw, op, n == 1 ? list[0] : tn_concatenate(&rw->b, list, n, axis));
}

/* pad by nothing -> x; pad by nothing but negative amounts -> slice */
static bool pad_less(rewriter *rw, tn_op *op)
{
    tn_session *s = rw->session;
    const tn_type *from = type_of(op, 0);
    tn_dim start[TN_MAX_RANK], limit[TN_MAX_RANK];
    int64_t stride[TN_MAX_RANK];
    for (int i = 0; i < from->rank; i++) {
        tn_dim low = dims_of(op, TN_A_low)[i], high = dims_of(op, TN_A_high)[i];
        if (ints_of(op, TN_A_interior)[i] || low->hi > 0 || high->hi > 0)
            return false;
        start[i] = tn_dim_sub(s, size_of(rw, 0), low);
        limit[i] = tn_dim_add(s, from->dim[i], high);
        stride[i] = 1;
        if (!tn_dim_le(s, start[i], limit[i]))
            return rw_decline(rw, op, "it may take away more than there is");
    }
    return rw_replace(rw, op, tn_slice(&rw->b, tn_operand(op, 0), start, limit, stride));
}

static bool same_padding(const tn_value *a, const tn_value *b)
{
    tn_number x, y;
    return a == b || (value_splat(a, &x) && value_splat(b, &y) && tn_number_same(a->type.dtype, x, y));
}

/* pad(pad(x, v), v) -> pad(x, v) with the amounts added */
static bool pad_twice(rewriter *rw, tn_op *op)
{
    tn_session *s = rw->session;
    const tn_value *inner = tn_operand(op, 0);
    tn_dim low[TN_MAX_RANK], high[TN_MAX_RANK];
    if (!tn_is_op(inner, TN_OP_pad) || !same_padding(tn_operand(op, 1), tn_operand(inner->def, 1)))
        return false;
    for (int i = 0; i < inner->type.rank; i++) {
        tn_dim a = dims_of(inner->def, TN_A_low)[i], b = dims_of(inner->def, TN_A_high)[i],
               c = dims_of(op, TN_A_low)[i], d = dims_of(op, TN_A_high)[i];
        if (ints_of(op, TN_A_interior)[i] || ints_of(inner->def, TN_A_interior)[i] || a->lo < 0 || b->lo < 0 ||
            c->lo < 0 || d->lo < 0)
            return rw_decline(rw, op, "only edges padded by amounts that are not negative add up");
        low[i] = tn_dim_add(s, a, c);
        high[i] = tn_dim_add(s, b, d);
    }
    return rw_replace(
        rw, op, tn_pad(&rw->b, tn_operand(inner->def, 0), tn_operand(op, 1), low, high, ints_of(op, TN_A_interior)));
}

/* reverse(reverse(x)) and the reversal of sizes of 1: what is left of the dimensions */
static bool reverse_less(rewriter *rw, tn_op *op)
{
    tn_value *x = tn_operand(op, 0);
    int n, m = 0, left = 0;
    const int64_t *list = tn_attr_ints(op, TN_A_dimensions, &n), *inner = NULL;
    int64_t rest[TN_MAX_RANK];
    if (tn_is_op(x, TN_OP_reverse)) {
        inner = tn_attr_ints(x->def, TN_A_dimensions, &m);
        x = tn_operand(x->def, 0);
    }
    for (int i = 0; i < x->type.rank; i++)
        if (ints_contain(list, n, i) != ints_contain(inner, m, i) && !tn_dim_is(x->type.dim[i], 1))
            rest[left++] = i;
    if (!inner && left == n)
        return false;
    return rw_replace(rw, op, left ? tn_reverse(&rw->b, x, rest, left) : x);
}

/* ---- gather and dynamic slices at known places ----------------------------------------------------------------- */

/* A scalar index as a dimension: a constant, or a size; NULL: not known. */
static tn_dim known_index(rewriter *rw, const tn_value *v)
{
    const tn_tensor *constant = tn_constant_of(v);
    tn_dtype narrow = v->type.dtype; /* which a size may not fit */
    int64_t count;
    if (tn_is_op(v, TN_OP_convert) || tn_is_op(v, TN_OP_reshape))
        v = tn_operand(v->def, 0);
    if (tn_is_op(v, TN_OP_dimension)) {
        tn_dim size = tn_find_attr(v->def, TN_A_dim)->dim;
        return v->type.dtype == narrow || size->hi <= INT8_MAX ? size : NULL;
    }
    if (!constant || !tn_tensor_count(constant, &count) || count != 1)
        return NULL;
    int64_t value = tn_number_to_int(constant->dtype, tn_tensor_at(constant, 0));
    return value > -INT32_MAX && value < INT32_MAX ? size_of(rw, value) : NULL;
}

/* clamp(index, 0, size - length) */
static tn_dim clamped(rewriter *rw, tn_dim index, tn_dim size, tn_dim length)
{
    tn_dim most = tn_dim_sub(rw->session, size, length);
    return tn_dim_max(rw->session, tn_dim_min(rw->session, index, most), size_of(rw, 0));
}

static tn_value *slice_from(rewriter *rw, tn_value *x, const tn_dim *start, const tn_dim *length)
{
    tn_dim limit[TN_MAX_RANK];
    int64_t stride[TN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++) {
        limit[i] = tn_dim_add(rw->session, start[i], length[i]);
        stride[i] = 1;
    }
    return tn_slice(&rw->b, x, start, limit, stride);
}

/* dynamic_slice(x, 1, 2) -> slice(x); a dimension read whole starts at 0 wherever it is asked to */
static bool dynamic_slice_known(rewriter *rw, tn_op *op)
{
    tn_value *x = tn_operand(op, 0);
    tn_dim start[TN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++) {
        tn_dim size = x->type.dim[i], length = dims_of(op, TN_A_sizes)[i],
               index = known_index(rw, tn_operand(op, 1 + i));
        start[i] = tn_dim_eq(rw->session, size, length) ? size_of(rw, 0)
                   : index                              ? clamped(rw, index, size, length)
                                                        : NULL;
        if (!start[i])
            return rw_decline(rw, op, "a start is known only at run time");
    }
    return rw_replace(rw, op, slice_from(rw, x, start, dims_of(op, TN_A_sizes)));
}

/* dynamic_update_slice(x, y) -> y when y has x's shape */
static bool dynamic_update_whole(rewriter *rw, tn_op *op)
{
    return types_agree(rw->session, type_of(op, 0), type_of(op, 1)) && rw_replace(rw, op, tn_operand(op, 1));
}

/* Reads one slice, at a place that is known: gather -> reshape(slice) */
static bool gather_one(rewriter *rw, tn_op *op)
{
    tn_value *x = tn_operand(op, 0);
    const tn_tensor *indices = tn_constant_of(tn_operand(op, 1));
    const tn_type *type = type_of(op, 1), *to = &op->result[0].type;
    int nbatch, nmap;
    tn_attr_ints(op, TN_A_operand_batching_dims, &nbatch);
    const int64_t *map = tn_attr_ints(op, TN_A_start_index_map, &nmap);
    tn_dim start[TN_MAX_RANK];
    for (int i = 0; i < type->rank; i++)
        if (i != tn_attr_int(op, TN_A_index_vector_dim, 0) && !tn_dim_is(type->dim[i], 1))
            return false;
    if (nbatch || (nmap && !indices))
        return false;
    for (int i = 0; i < x->type.rank; i++)
        start[i] = size_of(rw, 0);
    for (int k = 0; k < nmap; k++) {
        int64_t index = tn_number_to_int(indices->dtype, tn_tensor_at(indices, k));
        if (index <= -INT32_MAX || index >= INT32_MAX)
            return false;
        start[map[k]] = clamped(rw, size_of(rw, index), x->type.dim[map[k]], dims_of(op, TN_A_sizes)[map[k]]);
    }
    return rw_replace(rw, op, tn_reshape(&rw->b, slice_from(rw, x, start, dims_of(op, TN_A_sizes)), to->dim, to->rank));
}

/* Indices first, first + step, … of a list: an iota or a constant. */
static bool read_progression(const tn_value *v, int64_t *first, int64_t *step)
{
    const tn_tensor *t = tn_constant_of(v);
    int64_t count;
    *first = 0;
    *step = 1;
    int wide = 0;
    for (int i = 0; i < v->type.rank; i++)
        wide += !tn_dim_is(v->type.dim[i], 1);
    if (wide != 1)
        return false;
    if (tn_is_op(v, TN_OP_iota))
        return !tn_dim_is(v->type.dim[tn_attr_int(v->def, TN_A_iota_dimension, 0)], 1);
    if (!t || t->splat || !tn_tensor_count(t, &count) || count < 2)
        return false;
    *first = tn_number_to_int(t->dtype, tn_tensor_at(t, 0));
    if (!tn_sub(tn_number_to_int(t->dtype, tn_tensor_at(t, 1)), *first, step) || *step == 0 || *step < -INT32_MAX ||
        *step > INT32_MAX)
        return false;
    for (int64_t i = 1, at = *first; i < count; i++)
        if (!tn_add(at, *step, &at) || tn_number_to_int(t->dtype, tn_tensor_at(t, i)) != at)
            return false;
    return true;
}

/* x[first : first + count * step : step] along the axis, backwards for a negative step; NULL: it would be clamped, so
 * it is not that. */
static tn_value *strided_part(rewriter *rw, tn_value *x, int axis, int64_t first, int64_t step, tn_dim count)
{
    tn_session *s = rw->session;
    tn_dim start[TN_MAX_RANK], limit[TN_MAX_RANK];
    int64_t stride[TN_MAX_RANK], back = axis;
    for (int i = 0; i < x->type.rank; i++) {
        start[i] = size_of(rw, 0);
        limit[i] = x->type.dim[i];
        stride[i] = 1;
    }
    tn_dim reach = tn_dim_mul(s, tn_dim_sub(s, count, size_of(rw, 1)), size_of(rw, step));
    tn_dim last = tn_dim_add(s, size_of(rw, first), reach), least = step > 0 ? size_of(rw, first) : last,
           most = step > 0 ? last : size_of(rw, first);
    start[axis] = least;
    limit[axis] = tn_dim_add(s, most, size_of(rw, 1));
    stride[axis] = step > 0 ? step : -step;
    if (least->lo < 0 || (!tn_dim_is_const(count) && (step != 1 || first != 0)) ||
        !tn_dim_le(s, limit[axis], x->type.dim[axis]))
        return NULL;
    tn_value *part = tn_slice(&rw->b, x, start, limit, stride);
    return step > 0 ? part : tn_reverse(&rw->b, part, &back, 1);
}

/* Picks evenly spaced rows along one axis: gather -> slice, transposed if the picked axis stands elsewhere in the
 * result */
static bool gather_evenly(rewriter *rw, tn_op *op)
{
    tn_value *x = tn_operand(op, 0), *indices = tn_operand(op, 1);
    int nbatch, nmap, ncollapsed, noffset, axis, k = 0;
    tn_attr_ints(op, TN_A_operand_batching_dims, &nbatch);
    const int64_t *map = tn_attr_ints(op, TN_A_start_index_map, &nmap),
                  *collapsed = tn_attr_ints(op, TN_A_collapsed_slice_dims, &ncollapsed);
    const int64_t *offset = tn_attr_ints(op, TN_A_offset_dims, &noffset);
    const tn_type *to = &op->result[0].type;
    int64_t first, step, permutation[TN_MAX_RANK];
    if (nbatch || nmap != 1 || ncollapsed != 1 || collapsed[0] != map[0] || !read_progression(indices, &first, &step))
        return false;
    axis = (int)map[0];
    tn_dim count = size_of(rw, 1);
    for (int i = 0; i < indices->type.rank; i++)
        count = tn_dim_is(indices->type.dim[i], 1) ? count : indices->type.dim[i];
    for (int i = 0; i < x->type.rank; i++)
        if (i != axis && !tn_dim_eq(rw->session, dims_of(op, TN_A_sizes)[i], x->type.dim[i]))
            return false;
    tn_value *part = strided_part(rw, x, axis, first, step, count);
    if (!part)
        return rw_decline(rw, op, "indices may be clamped");
    int before = 0; /* sizes of the operand that stand before the picked axis in the result */
    for (int i = 0; i < to->rank && (ints_contain(offset, noffset, i) || tn_dim_is(to->dim[i], 1)); i++)
        before += ints_contain(offset, noffset, i);
    for (int i = 0; i < x->type.rank; i++) {
        if (k == before)
            permutation[k++] = axis;
        if (i != axis)
            permutation[k++] = i;
    }
    if (k == before)
        permutation[k++] = axis;
    return rw_replace(rw, op, tn_reshape(&rw->b, tn_transpose(&rw->b, part, permutation), to->dim, to->rank));
}

/* ---- reductions ---------------------------------------------------------------------------------------------------
 */

/* combine(init, x) for every element: what a reduction over sizes of 1 is. */
static tn_value *combine_with_init(rewriter *rw, const tn_op *op)
{
    tn_value *x = tn_operand(op, 0), *init = tn_operand(op, 1);
    tn_opcode combine = region_combine(op->region[0]);
    if (combine == TN_OP_COUNT || op->noperands != 2)
        return NULL;
    return tn_binary(&rw->b, combine, tn_broadcast_to(&rw->b, init, x->type.dim, x->type.rank), x);
}

/* reduce(x, init) over sizes of 1 -> reshape(combine(init, x)); the neutral element of a sum is -0, so 0 + x stays */
static bool reduce_units(rewriter *rw, tn_op *op)
{
    int n;
    const int64_t *list = tn_attr_ints(op, TN_A_dimensions, &n);
    const tn_type *to = &op->result[0].type;
    for (int i = 0; i < n; i++)
        if (!tn_dim_is(type_of(op, 0)->dim[list[i]], 1))
            return false;
    return op->nresults == 1 && rw_replace(rw, op, tn_reshape(&rw->b, combine_with_init(rw, op), to->dim, to->rank));
}

/* Some of the dimensions have size 1: those go first, by a reshape. */
static bool reduce_some_units(rewriter *rw, tn_op *op)
{
    int n, left = 0;
    const int64_t *list = tn_attr_ints(op, TN_A_dimensions, &n);
    tn_value *x = tn_operand(op, 0);
    tn_type small = {.dtype = x->type.dtype};
    int64_t rest[TN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++) {
        bool reduced = ints_contain(list, n, i);
        if (reduced && tn_dim_is(x->type.dim[i], 1))
            continue;
        if (reduced)
            rest[left++] = small.rank;
        small.dim[small.rank++] = x->type.dim[i];
    }
    if (op->noperands != 2 || left == n || left == 0)
        return false;
    tn_value *operands[] = {tn_reshape(&rw->b, x, small.dim, small.rank), tn_operand(op, 1)};
    tn_attr change = attr_ints(TN_A_dimensions, rest, left);
    tn_op *made = build_like(&rw->b, op, operands, &change, 1);
    return made && rw_replace(rw, op, &made->result[0]);
}

/* reduce_window whose windows hold one element each, all of them */
static bool window_of_one(rewriter *rw, tn_op *op)
{
    if (op->nresults != 1)
        return false;
    for (int i = 0; i < type_of(op, 0)->rank; i++)
        if (!tn_dim_is(dims_of(op, TN_A_window)[i], 1) || ints_of(op, TN_A_window_strides)[i] != 1 ||
            ints_of(op, TN_A_base_dilation)[i] != 1 || !tn_dim_is(dims_of(op, TN_A_padding_low)[i], 0) ||
            !tn_dim_is(dims_of(op, TN_A_padding_high)[i], 0))
            return false;
    return rw_replace(rw, op, combine_with_init(rw, op));
}

/* sort of size 1 -> its operands */
static bool sort_one(rewriter *rw, tn_op *op)
{
    tn_value **out = TN_NEW_ARRAY(&rw->session->arena, tn_value *, (size_t)op->noperands);
    for (int i = 0; i < op->noperands; i++)
        out[i] = tn_operand(op, i);
    return tn_dim_is(type_of(op, 0)->dim[tn_attr_int(op, TN_A_dimension, 0)], 1) && rw_replace_all(rw, op, out);
}

/* ---- products -----------------------------------------------------------------------------------------------------
 */

/* p[list[i]] for each i. */
static void through(const int64_t *p, const int64_t *list, int n, int64_t *out)
{
    for (int i = 0; i < n; i++)
        out[i] = p[list[i]];
}

/* The dimensions of a transposed operand that are neither batch nor contracted come in x's order. */
static bool free_in_order(const int64_t *p, int rank, const int64_t *batch, int nb, const int64_t *contract, int nc)
{
    int64_t last = -1;
    for (int i = 0; i < rank; i++) {
        if (ints_contain(batch, nb, i) || ints_contain(contract, nc, i))
            continue;
        if (p[i] < last)
            return false;
        last = p[i];
    }
    return true;
}

/* dot_general(transpose(x), y) -> dot_general(x, y) with its dimensions renamed, if the result's dimensions keep their
 * order */
static bool dot_transposed(rewriter *rw, tn_op *op)
{
    static const tn_attr_name batch_name[] = {TN_A_lhs_batch, TN_A_rhs_batch},
                              contract_name[] = {TN_A_lhs_contract, TN_A_rhs_contract};
    for (int side = 0; side < 2; side++) {
        const tn_value *v = tn_operand(op, side);
        int nb, nc;
        int64_t new_batch[TN_MAX_RANK], new_contract[TN_MAX_RANK];
        const int64_t *batch = tn_attr_ints(op, batch_name[side], &nb),
                      *contract = tn_attr_ints(op, contract_name[side], &nc);
        if (!tn_is_op(v, TN_OP_transpose))
            continue;
        const int64_t *p = ints_of(v->def, TN_A_permutation);
        if (!free_in_order(p, v->type.rank, batch, nb, contract, nc))
            continue;
        through(p, batch, nb, new_batch);
        through(p, contract, nc, new_contract);
        tn_attr changes[] = {attr_ints(batch_name[side], new_batch, nb),
                             attr_ints(contract_name[side], new_contract, nc)};
        tn_value *operands[] = {tn_operand(op, 0), tn_operand(op, 1)};
        operands[side] = tn_operand(v->def, 0);
        tn_op *made = build_like(&rw->b, op, operands, changes, 2);
        return made && rw_replace(rw, op, &made->result[0]);
    }
    return false;
}

const rule opt_movement_rules[] = {
    RULE(transpose, transpose_nothing, EXACT),
    RULE(transpose, transpose_twice, EXACT),
    RULE(transpose, transpose_units, EXACT),
    RULE(transpose, transpose_broadcast, EXACT),
    RULE(transpose, transpose_iota, EXACT),
    RULE(reshape, reshape_nothing, EXACT),
    RULE(reshape, reshape_twice, EXACT),
    RULE(reshape, reshape_broadcast, EXACT),
    RULE(broadcast_in_dim, broadcast_nothing, EXACT),
    RULE(broadcast_in_dim, broadcast_twice, EXACT),
    RULE(broadcast_in_dim, broadcast_reshape, EXACT),
    RULE(broadcast_in_dim, broadcast_constant_units, EXACT),
    RULE(slice, slice_nothing, EXACT),
    RULE(slice, slice_twice, EXACT),
    RULE(slice, slice_concatenate, EXACT),
    RULE(slice, slice_pad, EXACT),
    RULE(slice, slice_broadcast, EXACT),
    RULE(concatenate, concatenate_flat, EXACT),
    RULE(concatenate, concatenate_slices, EXACT),
    RULE(pad, pad_less, EXACT),
    RULE(pad, pad_twice, EXACT),
    RULE(reverse, reverse_less, EXACT),
    RULE(dynamic_slice, dynamic_slice_known, EXACT),
    RULE(dynamic_update_slice, dynamic_update_whole, EXACT),
    RULE(gather, gather_one, EXACT),
    RULE(gather, gather_evenly, EXACT),
    RULE(reduce, reduce_units, EXACT),
    RULE(reduce, reduce_some_units, EXACT),
    RULE(reduce_window, window_of_one, EXACT),
    RULE(sort, sort_one, EXACT),
    RULE(dot_general, dot_transposed, EXACT),
    {.apply = NULL},
};
