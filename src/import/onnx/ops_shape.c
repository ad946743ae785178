/* Operators about shapes: they look at or change the shape of a tensor, or make one from its shape. Data-dependent
 * picking of elements is in ops_index.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "import/onnx/emit.h"

static tn_dim num(onnx_ctx *c, int64_t value)
{
    return tn_dim_const(c->session, value);
}

/* ---- Shape, Size
 * ------------------------------------------------------------------------------------------------------------ */

bool onnx_Shape(onnx_ctx *c, const onnx_node *n)
{
    const tn_type *t = &n->input[0]->type;
    int64_t start = onnx_attr_int(c, n, "start", 0), end = onnx_attr_int(c, n, "end", t->rank);
    start = tn_max(0, tn_min(start < 0 ? start + t->rank : start, t->rank));
    end = tn_max(start, tn_min(end < 0 ? end + t->rank : end, t->rank));
    return onnx_set_output(c, n, 0, onnx_dims_value(c, TN_I64, 1, t->dim + start, (int)(end - start)));
}

bool onnx_Size(onnx_ctx *c, const onnx_node *n)
{
    tn_dim elements = tn_type_elements(c->session, &n->input[0]->type);
    return onnx_set_output(c, n, 0, onnx_dims_value(c, TN_I64, 0, &elements, 1));
}

/* ---- Reshape
 * ------------------------------------------------------------------------------------------------------------------ */

/* The size that -1 stands for: the elements of x by the product of the other sizes. Equal factors cancel first, so that
 * [b, 4, 8] -> [b, -1] needs no division. */
static tn_dim inferred_size(onnx_ctx *c, const tn_type *x, const tn_dim *out, int rank, int hole)
{
    bool used[TN_MAX_RANK] = {false};
    tn_dim over = num(c, 1), under = num(c, 1);
    for (int i = 0; i < rank; i++) {
        int j = 0;
        while (j < x->rank && (i == hole || used[j] || !tn_dim_eq(c->session, x->dim[j], out[i])))
            j++;
        if (i != hole && j < x->rank)
            used[j] = true;
        else if (i != hole)
            under = tn_dim_mul(c->session, under, out[i]);
    }
    for (int j = 0; j < x->rank; j++)
        if (!used[j])
            over = tn_dim_mul(c->session, over, x->dim[j]);
    return tn_dim_is(under, 0) ? num(c, 0) : onnx_dim_div(c, over, under);
}

/* A shape that is only known at run time, with its 0 (copy) and -1 (infer) replaced by operations on it. */
static tn_value *resolve_shape(onnx_ctx *c, const tn_type *x, tn_value *shape, int rank, bool allowzero)
{
    tn_dim copy[TN_MAX_RANK], total = tn_type_elements(c->session, x);
    const int64_t axis = 0;
    tn_value *s = tn_convert(&c->b, shape, TN_I64);
    for (int i = 0; i < rank; i++)
        copy[i] = i < x->rank ? x->dim[i] : num(c, 1);
    if (!allowzero)
        s = emit_select(c, emit_compare_number(c, "EQ", s, 0), onnx_dims_value(c, TN_I64, 1, copy, rank), s);
    tn_value *hole = emit_compare_number(c, "EQ", s, -1);
    tn_value *others = emit_select(c, hole, emit_number(c, TN_I64, 1), s);
    others = emit_max(c, emit_reduce(c, TN_OP_multiply, others, &axis, 1), emit_number(c, TN_I64, 1));
    return emit_select(c, hole, emit_div(c, emit_size(c, total, TN_I64), others), s);
}

/* The dims of Reshape's result, from the contents of its shape input. */
static bool reshape_dims(onnx_ctx *c, const onnx_node *n, tn_value *shape, tn_dim *out, int *rank)
{
    const tn_type *x = &n->input[0]->type;
    bool allowzero = onnx_attr_int(c, n, "allowzero", 0) != 0, complete = true;
    tn_dim known[ONNX_MAX_KNOWN] = {NULL}, upper[TN_MAX_RANK], total = tn_type_elements(c->session, x);
    int hole = -1, count;
    if (shape->type.rank != 1 || !tn_is_integer(shape->type.dtype) || !tn_dim_is_const(shape->type.dim[0]) ||
        shape->type.dim[0]->value > TN_MAX_RANK)
        return onnx_unsupported(c, n, "the shape must be a list of at most %d integers whose number is known",
                                TN_MAX_RANK);
    *rank = (int)shape->type.dim[0]->value;
    if (!onnx_partial_dims(c, shape, known, &count))
        memset(known, 0, sizeof known);
    for (int i = 0; i < *rank; i++) {
        if (known[i] && tn_dim_is(known[i], 0) && !allowzero) {
            if (i >= x->rank)
                return onnx_error(c, n, "0 in the shape copies dimension %d, which the data does not have", i);
            known[i] = x->dim[i];
        } else if (known[i] && tn_dim_is(known[i], -1)) {
            if (hole >= 0)
                return onnx_error(c, n, "the shape has more than one -1");
            hole = i;
        } else if (known[i] && known[i]->hi < 0) {
            return onnx_error(c, n, "the shape has a negative size at position %d", i);
        }
        complete &= known[i] != NULL;
        upper[i] = total;
    }
    if (!complete) {
        tn_value *s = resolve_shape(c, x, shape, *rank, allowzero);
        if (!s)
            return false;
        if (hole >= 0)
            known[hole] = NULL; /* read back from the run-time value, like the rest */
        onnx_set_known_dims(c, s, known, *rank);
        /* No size is larger than the number of elements, unless there are none. */
        return onnx_runtime_dims(c, n, s, *rank, tn_dim_is(total, 0) ? NULL : upper, out);
    }
    memcpy(out, known, (size_t)*rank * sizeof *out);
    if (hole >= 0)
        out[hole] = inferred_size(c, x, out, *rank, hole);
    return true;
}

bool onnx_Reshape(onnx_ctx *c, const onnx_node *n)
{
    tn_dim dims[TN_MAX_RANK];
    int rank = 0, count;
    const int64_t *attr = onnx_attr_ints(c, n, "shape", &count);
    tn_value *shape = attr && count <= TN_MAX_RANK ? onnx_ints(c, TN_I64, attr, count) : onnx_in(n, 1);
    if (!shape)
        return onnx_error(c, n, "no shape is given");
    return reshape_dims(c, n, shape, dims, &rank) &&
           onnx_set_output(c, n, 0, tn_reshape(&c->b, n->input[0], dims, rank));
}

bool onnx_Flatten(onnx_ctx *c, const onnx_node *n)
{
    const tn_type *t = &n->input[0]->type;
    int64_t axis = onnx_attr_int(c, n, "axis", 1);
    if (axis < -t->rank || axis > t->rank)
        return onnx_error(c, n, "axis %lld is outside [%d, %d]", (long long)axis, -t->rank, t->rank);
    axis = axis < 0 ? axis + t->rank : axis;
    tn_dim dims[2] = {tn_dim_product(c->session, t->dim, (int)axis),
                      tn_dim_product(c->session, t->dim + axis, t->rank - (int)axis)};
    return onnx_set_output(c, n, 0, tn_reshape(&c->b, n->input[0], dims, 2));
}

/* ---- axes known only at run time: the result's sizes become symbols, computed by operations on small lists
 * -------------------- */

/* Which of `rank` positions the axes name: bool[rank]. */
static tn_value *axes_mask(onnx_ctx *c, tn_value *axes, int rank)
{
    int64_t one = 1;
    tn_value *a = tn_convert(&c->b, axes, TN_I64);
    tn_dim square[2] = {num(c, rank), axes->type.dim[0]};
    a = a ? emit_select(c, emit_compare_number(c, "LT", a, 0), emit_add_number(c, a, rank), a) : NULL;
    return emit_reduce(c, TN_OP_or, emit_compare(c, "EQ", tn_iota(&c->b, TN_I64, square, 2, 0), a), &one, 1);
}

/* How many set positions stand before each: i64[rank]. */
static tn_value *count_before(onnx_ctx *c, tn_value *mask, int rank)
{
    int64_t one = 1;
    tn_dim square[2] = {num(c, rank), num(c, rank)};
    tn_value *before =
        emit_compare(c, "LT", tn_iota(&c->b, TN_I64, square, 2, 1), tn_iota(&c->b, TN_I64, square, 2, 0));
    return emit_reduce(c, TN_OP_add, tn_convert(&c->b, emit_and(c, before, mask), TN_I64), &one, 1);
}

static bool axes_count(onnx_ctx *c, const onnx_node *n, int *count)
{
    const tn_value *axes = onnx_in(n, 1);
    if (!axes || axes->type.rank != 1 || !tn_is_integer(axes->type.dtype) || !tn_dim_is_const(axes->type.dim[0]) ||
        axes->type.dim[0]->value > TN_MAX_RANK)
        return onnx_error(c, n, "the axes must be a list of integers whose number is known");
    *count = (int)axes->type.dim[0]->value;
    return true;
}

/* Dimension j of the result is the j-th one that the axes do not name. */
static bool squeeze_runtime(onnx_ctx *c, const onnx_node *n)
{
    const tn_type *t = &n->input[0]->type;
    int count;
    const int64_t one = 1;
    tn_dim dims[TN_MAX_RANK];
    if (!axes_count(c, n, &count))
        return false;
    int rank = t->rank - count;
    if (rank < 0 || t->rank == 0)
        return onnx_error(c, n, "%d axes for a tensor of rank %d", count, t->rank);
    tn_dim square[2] = {num(c, rank), num(c, t->rank)};
    tn_value *keep = tn_unary(&c->b, TN_OP_not, axes_mask(c, n->input[1], t->rank));
    tn_value *place =
        emit_compare(c, "EQ", tn_iota(&c->b, TN_I64, square, 2, 0), keep ? count_before(c, keep, t->rank) : NULL);
    tn_value *sizes = onnx_dims_value(c, TN_I64, 1, t->dim, t->rank);
    sizes =
        emit_reduce(c, TN_OP_add, emit_select(c, emit_and(c, place, keep), sizes, emit_number(c, TN_I64, 0)), &one, 1);
    return sizes && onnx_runtime_dims(c, n, sizes, rank, NULL, dims) &&
           onnx_set_output(c, n, 0, tn_reshape(&c->b, n->input[0], dims, rank));
}

/* Dimension k of the result is 1 if the axes name it, else that of the input at k minus the axes before k. */
static bool unsqueeze_runtime(onnx_ctx *c, const onnx_node *n)
{
    const tn_type *t = &n->input[0]->type;
    int count;
    tn_dim dims[TN_MAX_RANK], padded[TN_MAX_RANK];
    if (!axes_count(c, n, &count))
        return false;
    int rank = t->rank + count;
    if (rank > TN_MAX_RANK)
        return onnx_unsupported(c, n, "the result has more than %d dimensions", TN_MAX_RANK);
    for (int i = 0; i < rank; i++)
        padded[i] = i < t->rank ? t->dim[i] : num(c, 1);
    tn_value *mask = axes_mask(c, n->input[1], rank);
    tn_value *before = mask ? count_before(c, mask, rank) : NULL;
    tn_value *at = emit_sub(c, tn_iota(&c->b, TN_I64, (tn_dim[1]){num(c, rank)}, 1, 0), before);
    tn_value *sizes = emit_take(c, onnx_dims_value(c, TN_I64, 1, padded, rank), at, 0);
    sizes = emit_select(c, mask, emit_number(c, TN_I64, 1), sizes);
    return sizes && onnx_runtime_dims(c, n, sizes, rank, NULL, dims) &&
           onnx_set_output(c, n, 0, tn_reshape(&c->b, n->input[0], dims, rank));
}

/* Whether input i is given and its contents are not constant. */
static bool only_at_run_time(onnx_ctx *c, const onnx_node *n, int i)
{
    int64_t list[TN_MAX_RANK];
    int count;
    return onnx_in(n, i) && !onnx_static_ints(c, n->input[i], list, TN_MAX_RANK, &count) &&
           !onnx_constant_tensor(c, n->input[i]);
}

bool onnx_Squeeze(onnx_ctx *c, const onnx_node *n)
{
    if (only_at_run_time(c, n, 1))
        return squeeze_runtime(c, n);
    const tn_type *t = &n->input[0]->type;
    int64_t axes[TN_MAX_RANK];
    int count, rank = 0;
    tn_dim dims[TN_MAX_RANK];
    bool drop[TN_MAX_RANK] = {false};
    if (!onnx_axes_of(c, n, "axes", 1, t->rank, axes, &count))
        return false;
    for (int i = 0; i < t->rank && count < 0; i++) /* the rank depends on which sizes are 1: those of a run are taken as others */
        if (!tn_dim_is(t->dim[i], 1))
            onnx_assume_not(c, n, t->dim[i], 1, "without `axes` the result would have another rank");
    for (int i = 0; i < count; i++) {
        if (tn_dim_ne(c->session, t->dim[axes[i]], num(c, 1)))
            return onnx_error(c, n, "dimension %d is not 1 and cannot be squeezed", (int)axes[i]);
        drop[axes[i]] = true;
    }
    for (int i = 0; i < t->rank; i++)
        if (!drop[i] && !(count < 0 && tn_dim_is(t->dim[i], 1)))
            dims[rank++] = t->dim[i];
    return onnx_set_output(c, n, 0, tn_reshape(&c->b, n->input[0], dims, rank));
}

bool onnx_Unsqueeze(onnx_ctx *c, const onnx_node *n)
{
    if (only_at_run_time(c, n, 1))
        return unsqueeze_runtime(c, n);
    const tn_type *t = &n->input[0]->type;
    int64_t raw[TN_MAX_RANK], axes[TN_MAX_RANK];
    int count;
    tn_dim dims[TN_MAX_RANK] = {NULL};
    const int64_t *list = onnx_attr_ints(c, n, "axes", &count);
    if (!list) {
        if (!onnx_in(n, 1) || !onnx_static_ints(c, n->input[1], raw, TN_MAX_RANK, &count))
            return onnx_unsupported(c, n, "the axes must be constant");
        list = raw;
    }
    int rank = t->rank + count;
    if (rank > TN_MAX_RANK)
        return onnx_unsupported(c, n, "the result has more than %d dimensions", TN_MAX_RANK);
    if (!onnx_axes(c, n, list, count, rank, axes))
        return false;
    for (int i = 0; i < count; i++)
        dims[axes[i]] = num(c, 1);
    for (int i = 0, j = 0; i < rank; i++)
        if (!dims[i])
            dims[i] = t->dim[j++];
    return onnx_set_output(c, n, 0, tn_reshape(&c->b, n->input[0], dims, rank));
}

bool onnx_Transpose(onnx_ctx *c, const onnx_node *n)
{
    int rank = n->input[0]->type.rank, count;
    int64_t perm[TN_MAX_RANK];
    const int64_t *list = onnx_attr_ints(c, n, "perm", &count);
    for (int i = 0; i < rank; i++)
        perm[i] = rank - 1 - i;
    if (list && count != rank)
        return onnx_error(c, n, "perm has %d entries for a tensor of rank %d", count, rank);
    if (list && !onnx_axes(c, n, list, count, rank, perm))
        return false;
    return onnx_set_output(c, n, 0, tn_transpose(&c->b, n->input[0], perm));
}

/* ---- Concat, Split
 * ------------------------------------------------------------------------------------------------------------ */

bool onnx_Concat(onnx_ctx *c, const onnx_node *n)
{
    int axis;
    for (int i = 0; i < n->ninputs; i++)
        if (!n->input[i] || n->input[i]->type.rank != n->input[0]->type.rank)
            return onnx_error(c, n, "input %d is missing or of another rank than the first", i);
    if (!onnx_axis(c, n, onnx_attr_int(c, n, "axis", 1), n->input[0]->type.rank, &axis))
        return false;
    return onnx_set_output(c, n, 0, n->ninputs == 1 ? n->input[0] : tn_concatenate(&c->b, n->input, n->ninputs, axis));
}

static bool split_sizes(onnx_ctx *c, const onnx_node *n, tn_dim whole, int parts, tn_dim *sizes)
{
    int count;
    const int64_t *list = onnx_attr_ints(c, n, "split", &count);
    if (list || onnx_in(n, 1)) {
        if (!list)
            return onnx_runtime_dims(c, n, n->input[1], parts, NULL, sizes);
        if (count != parts)
            return onnx_error(c, n, "%d sizes for %d outputs", count, parts);
        for (int i = 0; i < parts; i++)
            sizes[i] = num(c, list[i]);
        return true;
    }
    /* Equal parts; the last one is what is left (opset 18), so it may be smaller or empty. */
    tn_dim size = tn_dim_ceildiv(c->session, whole, num(c, parts));
    for (int i = 0; i < parts; i++)
        sizes[i] =
            i < parts - 1 ? size : tn_dim_sub(c->session, whole, tn_dim_mul(c->session, size, num(c, parts - 1)));
    return true;
}

bool onnx_Split(onnx_ctx *c, const onnx_node *n)
{
    int axis, parts = n->noutputs;
    tn_dim sizes[ONNX_MAX_KNOWN], at = num(c, 0);
    if (!onnx_axis(c, n, onnx_attr_int(c, n, "axis", 0), n->input[0]->type.rank, &axis))
        return false;
    if (parts < 1 || parts > ONNX_MAX_KNOWN)
        return onnx_unsupported(c, n, "%d outputs", parts);
    if (!split_sizes(c, n, n->input[0]->type.dim[axis], parts, sizes))
        return false;
    for (int i = 0; i < parts; i++) {
        if (sizes[i]->hi < 0)
            return onnx_error(c, n, "part %d has a negative size", i);
        tn_dim end = tn_dim_add(c->session, at, sizes[i]);
        if (!onnx_set_output(c, n, i, emit_slice_axis(c, n->input[0], axis, at, end, 1)) && onnx_wants(n, i))
            return false;
        at = end;
    }
    return true;
}

/* ---- Slice
 * ---------------------------------------------------------------------------------------------------------------------
 */

typedef struct slice_range {
    tn_dim start, end;                 /* as given, not normalised; NULL: only known at run time */
    tn_value *start_value, *end_value; /* i64, rank 0, in that case */
    int64_t step;
} slice_range;

/* Ends this large mean "to the end" in every exporter (2^31 - 1, 2^63 - 1, 10^9), whatever a symbolic size may be. */
static bool is_open_end(tn_dim given)
{
    return tn_dim_is_const(given) && given->value >= 1000000000;
}

/* A given bound, counted from the end when negative, kept in [low, d - 1 + back]; an expression is taken to be
 * non-negative. */
static tn_dim slice_bound(onnx_ctx *c, tn_dim given, tn_dim d, int64_t low, int64_t back)
{
    tn_session *s = c->session;
    tn_dim high = tn_dim_add(s, d, num(c, back - 1));
    if (is_open_end(given) && !tn_dim_is_const(d))
        return high;
    if (tn_dim_is_const(given) && given->value <= -1000000000 && !tn_dim_is_const(d))
        return num(c, low);
    if (given->hi < 0)
        given = tn_dim_add(s, given, d);
    return tn_dim_max(s, num(c, low), tn_dim_min(s, given, high));
}

/* Symbolic bounds a constant apart (x[-1:], x[i:i + k]) give a static size; that they lie inside is a fact that the run
 * checks. Not x[-k:] in general, which means all of a shorter x. */
static bool slice_fixed(onnx_ctx *c, const slice_range *r, tn_dim d, tn_dim *start, tn_dim *end)
{
    tn_session *s = c->session;
    if (tn_dim_is_const(d) && tn_dim_is_const(r->start))
        return false;
    *start = r->start->hi < 0 ? tn_dim_add(s, d, r->start) : r->start;
    *end = is_open_end(r->end) ? d : r->end->hi < 0 ? tn_dim_add(s, d, r->end) : r->end;
    tn_dim size = tn_dim_sub(s, *end, *start);
    if (r->start->hi < 0 && !tn_dim_is(size, 1))
        return false;
    return !tn_dim_is_const(*start) && tn_dim_is_const(size) && size->value > 0 &&
           (!tn_dim_is_const(d) || size->value <= d->value);
}

static tn_value *slice_forward(onnx_ctx *c, tn_value *x, int axis, const slice_range *r)
{
    tn_dim d = x->type.dim[axis], fixed_start, fixed_end;
    if (slice_fixed(c, r, d, &fixed_start, &fixed_end))
        return emit_slice_axis(c, x, axis, fixed_start, fixed_end, r->step);
    tn_dim start = slice_bound(c, r->start, d, 0, 1), end = slice_bound(c, r->end, d, 0, 1);
    if (tn_dim_is(start, 0) && tn_dim_eq(c->session, end, d) && r->step == 1)
        return x;
    return emit_slice_axis(c, x, axis, start, tn_dim_max(c->session, start, end), r->step);
}

/* Negative step: the same elements upwards, then reversed. */
static tn_value *slice_backward(onnx_ctx *c, tn_value *x, int axis, const slice_range *r)
{
    tn_session *s = c->session;
    tn_dim d = x->type.dim[axis], step = num(c, -r->step);
    tn_dim start = slice_bound(c, r->start, d, 0, 0), end = slice_bound(c, r->end, d, -1, 0);
    tn_dim count = tn_dim_max(s, num(c, 0), tn_dim_ceildiv(s, tn_dim_sub(s, start, end), step));
    if (tn_dim_is(count, 0))
        return emit_slice_axis(c, x, axis, num(c, 0), num(c, 0), 1);
    tn_dim last = tn_dim_sub(s, start, tn_dim_mul(s, tn_dim_sub(s, count, num(c, 1)), step));
    const int64_t axes[1] = {axis};
    x = emit_slice_axis(c, x, axis, last, tn_dim_add(s, start, num(c, 1)), -r->step);
    return x ? tn_reverse(&c->b, x, axes, 1) : NULL;
}

/* A bound as a run-time scalar, counted from the start and kept in [low, high]. */
static tn_value *runtime_bound(onnx_ctx *c, tn_dim known, tn_value *value, tn_value *size, tn_value *low,
                               tn_value *high)
{
    tn_value *v = known ? emit_size(c, known, TN_I64) : value;
    v = emit_select(c, emit_compare_number(c, "LT", v, 0), emit_add(c, v, size), v);
    return emit_min(c, emit_max(c, v, low), high);
}

/* Bounds known only at run time: start and length become symbols, so that the result's size is one. */
static tn_value *slice_runtime(onnx_ctx *c, const onnx_node *n, tn_value *x, int axis, const slice_range *r)
{
    tn_dim d = x->type.dim[axis], start, length;
    tn_value *size = emit_size(c, d, TN_I64), *zero = emit_number(c, TN_I64, 0);
    tn_value *from = runtime_bound(c, r->start, r->start_value, size, zero, size);
    tn_value *to = runtime_bound(c, r->end, r->end_value, size, zero, size);
    tn_value *span = emit_max(c, emit_sub(c, to, from), zero);
    if (!from || !span || !onnx_runtime_dims(c, n, from, 1, &d, &start) ||
        !onnx_runtime_dims(c, n, span, 1, &d, &length))
        return NULL;
    return emit_slice_axis(c, x, axis, start, tn_dim_add(c->session, start, length), r->step);
}

/* Step of any sign, known only at run time (or negative with such bounds): element k is the one at start + k * step. */
static tn_value *slice_by_index(onnx_ctx *c, const onnx_node *n, tn_value *x, int axis, const slice_range *r,
                                tn_value *step)
{
    tn_dim d = x->type.dim[axis], count;
    tn_value *size = emit_size(c, d, TN_I64), *zero = emit_number(c, TN_I64, 0), *one = emit_number(c, TN_I64, 1);
    tn_value *back = emit_compare_number(c, "LT", step, 0), *last = emit_sub(c, size, one);
    tn_value *high = emit_select(c, back, last, size), *low = emit_select(c, back, emit_number(c, TN_I64, -1), zero);
    tn_value *from = runtime_bound(c, r->start, r->start_value, size, zero, high);
    tn_value *to = runtime_bound(c, r->end, r->end_value, size, low, high);
    tn_value *span = emit_select(c, back, emit_sub(c, from, to), emit_sub(c, to, from));
    tn_value *far = emit_max(c, size, one); /* a longer step gives no other elements, but could overflow */
    step = emit_min(c, emit_max(c, step, emit_unary(c, TN_OP_negate, far)), far);
    tn_value *stride = emit_max(c, emit_unary(c, TN_OP_abs, step), one);
    tn_value *many = emit_max(c, emit_div(c, emit_add(c, span, emit_sub(c, stride, one)), stride), zero);
    many = emit_select(c, emit_compare_number(c, "EQ", step, 0), emit_number(c, TN_I64, -1), many); /* no count at all: an error */
    if (!many || !from || !onnx_runtime_dims(c, n, many, 1, &d, &count))
        return NULL;
    tn_value *at = emit_add(c, emit_mul(c, tn_iota(&c->b, TN_I64, &count, 1, 0), step), from);
    return emit_take(c, x, at, axis);
}

/* Element i of a list that Slice was given as attribute or input: a dim, or a run-time scalar. */
static bool slice_operand(onnx_ctx *c, const onnx_node *n, const char *name, int input, int i, int count, tn_dim *dim,
                          tn_value **value)
{
    int have;
    tn_dim known[ONNX_MAX_KNOWN];
    const int64_t *list = onnx_attr_ints(c, n, name, &have);
    *dim = NULL;
    if (list)
        return have == count ? (*dim = num(c, list[i]), true)
                             : onnx_error(c, n, "%s has %d entries, expected %d", name, have, count);
    tn_value *v = onnx_in(n, input);
    if (!v || v->type.rank != 1 || !tn_dim_is(v->type.dim[0], count))
        return onnx_error(c, n, "%s must be a list of %d integers", name, count);
    if (onnx_partial_dims(c, v, known, &have) && known[i])
        *dim = known[i];
    else
        *value = tn_convert(&c->b, tn_reshape(&c->b, emit_slice_axis(c, v, 0, num(c, i), num(c, i + 1), 1), NULL, 0),
                            TN_I64);
    return *dim || *value;
}

static int slice_count(onnx_ctx *c, const onnx_node *n)
{
    int count;
    if (onnx_attr_ints(c, n, "starts", &count))
        return count;
    tn_value *v = onnx_in(n, 1);
    return v && v->type.rank == 1 && tn_dim_is_const(v->type.dim[0]) && v->type.dim[0]->value <= TN_MAX_RANK
               ? (int)v->type.dim[0]->value
               : -1;
}

/* The entry of a list (i64) that belongs to `axis`, `otherwise` if the axes do not name it; named: bool[], whether they
 * do. */
static tn_value *entry_of_axis(onnx_ctx *c, tn_value *here, tn_value *list, tn_value *otherwise, tn_value *named)
{
    const int64_t zero = 0;
    tn_value *entry = emit_reduce(c, TN_OP_add, emit_select(c, here, list, emit_number(c, TN_I64, 0)), &zero, 1);
    return emit_select(c, named, entry, otherwise);
}

/* Axes known only at run time: every dimension is sliced by what the lists have for it. */
static bool slice_runtime_axes(onnx_ctx *c, const onnx_node *n, int count)
{
    tn_value *x = n->input[0], *list[5] = {NULL};
    const int64_t zero = 0;
    for (int i = 1; i < 5; i++) {
        tn_value *v = onnx_in(n, i);
        if (!v && i == 4)
            continue;
        if (!v || v->type.rank != 1 || !tn_is_integer(v->type.dtype) || !tn_dim_is(v->type.dim[0], count))
            return onnx_error(c, n, "starts, ends, axes and steps must be integer lists of one length");
        list[i] = tn_convert(&c->b, v, TN_I64);
    }
    tn_value *axes =
        emit_select(c, emit_compare_number(c, "LT", list[3], 0), emit_add_number(c, list[3], x->type.rank), list[3]);
    for (int axis = 0; x && axis < n->input[0]->type.rank; axis++) {
        slice_range r = {0};
        tn_value *here = emit_compare_number(c, "EQ", axes, axis), *named = emit_reduce(c, TN_OP_or, here, &zero, 1);
        tn_value *one = emit_number(c, TN_I64, 1), *none = emit_number(c, TN_I64, 0);
        r.start_value = entry_of_axis(c, here, list[1], none, named);
        r.end_value = entry_of_axis(c, here, list[2], emit_size(c, x->type.dim[axis], TN_I64), named);
        x = slice_by_index(c, n, x, axis, &r, list[4] ? entry_of_axis(c, here, list[4], one, named) : one);
    }
    return onnx_set_output(c, n, 0, x);
}

static tn_value *slice_one_axis(onnx_ctx *c, const onnx_node *n, tn_value *x, int axis, const slice_range *r,
                                tn_value *step)
{
    bool known = r->start && r->end;
    if (step || (!known && r->step < 0))
        return slice_by_index(c, n, x, axis, r, step ? step : onnx_int(c, TN_I64, r->step));
    return !known        ? slice_runtime(c, n, x, axis, r)
           : r->step > 0 ? slice_forward(c, x, axis, r)
                         : slice_backward(c, x, axis, r);
}

bool onnx_Slice(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    int64_t axes[TN_MAX_RANK];
    int count = slice_count(c, n), naxes;
    if (count < 0 || count > x->type.rank)
        return onnx_error(c, n, "starts must be a list with at most as many entries as the data has dimensions");
    if (only_at_run_time(c, n, 3))
        return slice_runtime_axes(c, n, count);
    if (!onnx_axes_of(c, n, "axes", 3, x->type.rank, axes, &naxes))
        return false;
    if (naxes >= 0 && naxes != count)
        return onnx_error(c, n, "starts and axes have different lengths");
    for (int i = 0; i < count; i++) {
        slice_range r = {.step = 1};
        tn_dim step = NULL;
        tn_value *step_value = NULL;
        int axis = naxes < 0 ? i : (int)axes[i];
        if (!slice_operand(c, n, "starts", 1, i, count, &r.start, &r.start_value) ||
            !slice_operand(c, n, "ends", 2, i, count, &r.end, &r.end_value))
            return false;
        if (onnx_in(n, 4) && !slice_operand(c, n, "steps", 4, i, count, &step, &step_value))
            return false;
        if (step && tn_dim_is_const(step))
            r.step = step->value;
        else if (step)
            step_value = emit_size(c, step, TN_I64);
        if (r.step == 0 || r.step == INT64_MIN)
            return onnx_error(c, n, "a step of %lld", (long long)r.step);
        if (!(x = slice_one_axis(c, n, x, axis, &r, step_value)))
            return false;
    }
    return onnx_set_output(c, n, 0, x);
}

/* ---- Expand, Tile, Pad
 * ---------------------------------------------------------------------------------------------------------- */

/* One of two differences must be 0, or the sizes do not go together. */
static void require_product(onnx_ctx *c, const onnx_node *n, int axis, tn_dim x, tn_dim y)
{
    tn_session *s = c->session;
    tn_require_equal(&c->b, tn_dim_mul(s, x, y), num(c, 0), tn_format(&s->arena, "%s: dimension %d of the input is neither 1 nor what the shape says", n->op_type, axis));
}

/* One axis of x to a size that the run tells. *size: what it becomes, to where x has 1, else x's own. The elements are taken by their index: which of
 * the two it is, is not known. */
static tn_value *expand_axis(onnx_ctx *c, const onnx_node *n, tn_value *x, int axis, tn_dim to, tn_dim *size)
{
    tn_session *s = c->session;
    tn_dim have = x->type.dim[axis], one = num(c, 1), least = tn_dim_min(s, have, to);
    /* have * to / the smaller one, if that is not 0: the other where one is 1, both where they are equal, 0 where one is */
    *size = tn_dim_floordiv(s, tn_dim_mul(s, have, to), tn_dim_max(s, least, one));
    require_product(c, n, axis, tn_dim_sub(s, least, one), tn_dim_sub(s, *size, least));
    tn_value *at = tn_iota(&c->b, TN_I64, size, 1, 0);
    return emit_take_some(c, x, emit_min(c, at, emit_size(c, tn_dim_sub(s, have, one), TN_I64)), axis);
}

bool onnx_Expand(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *shape = n->input[1];
    tn_dim want[ONNX_MAX_KNOWN], dims[TN_MAX_RANK];
    if (shape->type.rank != 1 || !tn_dim_is_const(shape->type.dim[0]) || shape->type.dim[0]->value > TN_MAX_RANK)
        return onnx_unsupported(c, n, "the shape must be a list of at most %d integers whose number is known",
                                TN_MAX_RANK);
    int count = (int)shape->type.dim[0]->value, rank = count > x->type.rank ? count : x->type.rank;
    if (!onnx_runtime_dims(c, n, shape, count, NULL, want))
        return false;
    for (int i = 0; i < rank; i++) {
        int j = i - (rank - x->type.rank), k = i - (rank - count);
        tn_dim one = num(c, 1), have = j >= 0 ? x->type.dim[j] : one, to = k >= 0 ? want[k] : one;
        if (to->hi < 0)
            return onnx_error(c, n, "the shape has a negative size at position %d", k);
        dims[i] = tn_dim_is(have, 1) ? to : have;
        if (dims[i] == have && tn_dim_is_const(to) && to->value != 1 && tn_dim_ne(c->session, have, to))
            return onnx_error(c, n, "dimension %d does not broadcast to the shape", j);
        if (!tn_dim_is_const(have) && tn_dim_is_const(to) && to->value != 1)
            dims[i] = to;
        if (tn_dim_is_const(to) || tn_dim_is(have, 1) || tn_dim_eq(c->session, have, to))
            continue;
        if (tn_dim_is_const(have)) /* it stays what it is */
            require_product(c, n, j, tn_dim_sub(c->session, to, one), tn_dim_sub(c->session, to, have));
        else if (x)
            x = expand_axis(c, n, x, j, to, &dims[i]);
    }
    return onnx_set_output(c, n, 0, tn_broadcast_to(&c->b, x, dims, rank));
}

/* x repeated along one axis: a new dimension before it, broadcast, and merged. */
static tn_value *tile_axis(onnx_ctx *c, tn_value *x, int axis, tn_dim repeat)
{
    tn_dim dims[TN_MAX_RANK], merged[TN_MAX_RANK];
    int64_t map[TN_MAX_RANK];
    int rank = x->type.rank;
    for (int i = 0; i < rank; i++) {
        map[i] = i < axis ? i : i + 1;
        dims[map[i]] = merged[i] = x->type.dim[i];
    }
    dims[axis] = repeat;
    merged[axis] = tn_dim_mul(c->session, repeat, merged[axis]);
    x = tn_broadcast_in_dim(&c->b, x, dims, rank + 1, map);
    return tn_reshape(&c->b, x, merged, rank);
}

bool onnx_Tile(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    tn_dim repeats[ONNX_MAX_KNOWN];
    int rank = x->type.rank;
    if (!onnx_in(n, 1))
        return onnx_error(c, n, "no repeats are given");
    if (c->opset < 6)
        return onnx_unsupported(c, n, "the form of opsets before 6");
    if (!onnx_runtime_dims(c, n, n->input[1], rank, NULL, repeats))
        return false;
    for (int i = 0; i < rank && x; i++) {
        if (repeats[i]->hi < 0)
            return onnx_error(c, n, "a negative number of repeats");
        if (tn_dim_is(repeats[i], 1))
            continue;
        if (rank + 1 > TN_MAX_RANK)
            return onnx_unsupported(c, n, "rank %d", rank);
        x = tile_axis(c, x, i, repeats[i]);
    }
    return onnx_set_output(c, n, 0, x);
}

/* Axes known only at run time: each dimension's pads are symbols, 0 for those that the axes do not name. */
static bool runtime_pads(onnx_ctx *c, const onnx_node *n, tn_dim *low, tn_dim *high)
{
    const int64_t zero = 0;
    int rank = n->input[0]->type.rank;
    tn_value *axes = tn_convert(&c->b, n->input[3], TN_I64), *pads = tn_convert(&c->b, onnx_in(n, 1), TN_I64);
    if (!axes || !pads || axes->type.rank != 1 || pads->type.rank != 1)
        return onnx_error(c, n, "pads and axes must be lists of integers");
    tn_dim count = axes->type.dim[0];
    axes = emit_select(c, emit_compare_number(c, "LT", axes, 0), emit_add_number(c, axes, rank), axes);
    for (int side = 0; side < 2; side++) {
        tn_dim from = side ? count : num(c, 0);
        tn_value *half = emit_slice_axis(c, pads, 0, from, tn_dim_add(c->session, from, count), 1);
        for (int i = 0; i < rank; i++) {
            tn_value *entry = emit_select(c, emit_compare_number(c, "EQ", axes, i), half, emit_number(c, TN_I64, 0));
            entry = emit_reduce(c, TN_OP_add, entry, &zero, 1);
            if (!entry || !onnx_runtime_dims(c, n, entry, 1, NULL, side ? &high[i] : &low[i]))
                return false;
        }
    }
    return true;
}

/* low and high for each dimension, from attribute or input, and the axes of opset 18. */
/* Pads of either sign: what a run tells is what is above 0 less what is below. The number of elements of a tensor with more than three such axes would be a longer
 * expression than a dimension may be: those are taken as not negative, and a run where one is says so. */
static bool signed_dims(onnx_ctx *c, const onnx_node *n, tn_value *value, int count, tn_dim *out)
{
    tn_dim known[ONNX_MAX_KNOWN] = {NULL}, above[ONNX_MAX_KNOWN], below[ONNX_MAX_KNOWN];
    int have = 0;
    bool all = onnx_partial_dims(c, value, known, &have) && have == count;
    for (int i = 0; i < count && all; i++)
        all = known[i] != NULL;
    if (all || value->type.rank != 1 || count > 2 * 3)
        return onnx_runtime_dims(c, n, value, count, NULL, out);
    tn_value *none = emit_number(c, value->type.dtype, 0);
    if (!onnx_runtime_dims(c, n, emit_max(c, value, none), count, NULL, above) ||
        !onnx_runtime_dims(c, n, emit_max(c, emit_unary(c, TN_OP_negate, value), none), count, NULL, below))
        return false;
    for (int i = 0; i < count; i++)
        out[i] = have == count && known[i] ? known[i] : tn_dim_sub(c->session, above[i], below[i]);
    return true;
}

static bool read_pads(onnx_ctx *c, const onnx_node *n, tn_dim *low, tn_dim *high)
{
    int rank = n->input[0]->type.rank, count, naxes = rank;
    int64_t axes[TN_MAX_RANK];
    tn_dim pads[2 * TN_MAX_RANK];
    const int64_t *list = onnx_attr_ints(c, n, c->opset < 2 ? "paddings" : "pads", &count);
    for (int i = 0; i < rank; i++) {
        axes[i] = i;
        low[i] = high[i] = num(c, 0);
    }
    if (only_at_run_time(c, n, 3))
        return runtime_pads(c, n, low, high);
    if (onnx_in(n, 3) && !onnx_axes_of(c, n, "axes", 3, rank, axes, &naxes))
        return false;
    if (list && count != 2 * rank)
        return onnx_error(c, n, "%d pads for a tensor of rank %d", count, rank);
    for (int i = 0; list && i < count; i++)
        pads[i] = num(c, list[i]);
    if (!list && !onnx_in(n, 1))
        return onnx_error(c, n, "no pads are given");
    if (!list && !signed_dims(c, n, n->input[1], 2 * naxes, pads))
        return false;
    for (int i = 0; i < naxes; i++) {
        low[axes[i]] = pads[i];
        high[axes[i]] = pads[i + naxes];
    }
    return true;
}

static tn_value *flip(onnx_ctx *c, tn_value *x, int axis)
{
    const int64_t axes[1] = {axis};
    return x ? tn_reverse(&c->b, x, axes, 1) : NULL;
}

/* What stands before (side 0) or after (side 1) x on this axis: `amount` elements. */
static tn_value *padding(onnx_ctx *c, tn_value *x, int axis, tn_dim amount, int side, char mode)
{
    tn_session *s = c->session;
    tn_dim d = x->type.dim[axis], zero = num(c, 0), one = num(c, 1), dims[TN_MAX_RANK];
    if (mode == 'w')
        return side == 0 ? emit_slice_axis(c, x, axis, tn_dim_sub(s, d, amount), d, 1)
                         : emit_slice_axis(c, x, axis, zero, amount, 1);
    if (mode == 'r')
        return flip(c,
                    side == 0 ? emit_slice_axis(c, x, axis, one, tn_dim_add(s, amount, one), 1)
                              : emit_slice_axis(c, x, axis, tn_dim_sub(s, tn_dim_sub(s, d, one), amount),
                                                tn_dim_sub(s, d, one), 1),
                    axis);
    tn_value *edge = side == 0 ? emit_slice_axis(c, x, axis, zero, one, 1)
                               : emit_slice_axis(c, x, axis, tn_dim_sub(s, d, one), d, 1);
    memcpy(dims, x->type.dim, sizeof dims);
    dims[axis] = amount;
    return edge ? tn_broadcast_to(&c->b, edge, dims, x->type.rank) : NULL;
}

/* Position in [0, d) that position i of the padded axis shows. */
static int64_t padded_index(int64_t i, int64_t d, char mode)
{
    if (mode == 'w' || d == 1)
        return ((i % d) + d) % d;
    int64_t period = 2 * (d - 1), j = ((i % period) + period) % period;
    return j < d ? j : period - j;
}

/* Padding wider than the data: the elements by number. */
static tn_value *pad_by_index(onnx_ctx *c, const onnx_node *n, tn_value *x, int axis, int64_t low, int64_t high,
                              char mode)
{
    int64_t d = x->type.dim[axis]->value, count;
    if (d == 0 || low < 0 || high < 0 || !tn_add(low, high, &count) || !tn_add(count, d, &count) || count > 1 << 20) {
        onnx_error(c, n, "cannot pad dimension %d of size %lld by %lld and %lld", axis, (long long)d, (long long)low,
                   (long long)high);
        return NULL;
    }
    if (!onnx_charge(c, n, (size_t)count * 16))
        return NULL;
    int64_t *index = TN_NEW_ARRAY(&c->session->arena, int64_t, (size_t)count);
    for (int64_t i = 0; i < count; i++)
        index[i] = padded_index(i - low, d, mode);
    return emit_take(c, x, onnx_ints(c, TN_I64, index, (int)count), axis);
}

static tn_value *pad_axis(onnx_ctx *c, const onnx_node *n, tn_value *x, int axis, tn_dim low, tn_dim high, char mode)
{
    tn_dim d = x->type.dim[axis];
    int64_t room = mode == 'r' ? 1 : 0;
    if (mode != 'e' && tn_dim_is_const(d) && tn_dim_is_const(low) && tn_dim_is_const(high) &&
        (low->value + room > d->value || high->value + room > d->value))
        return pad_by_index(c, n, x, axis, low->value, high->value, mode);
    tn_value *parts[3];
    int count = 0;
    if (!tn_dim_is(low, 0))
        parts[count++] = padding(c, x, axis, low, 0, mode);
    parts[count++] = x;
    if (!tn_dim_is(high, 0))
        parts[count++] = padding(c, x, axis, high, 1, mode);
    return count == 1 ? x : tn_concatenate(&c->b, parts, count, axis);
}

/* Negative pads crop, in every mode. */
static tn_value *crop_axis(onnx_ctx *c, tn_value *x, int axis, tn_dim *low, tn_dim *high)
{
    tn_session *s = c->session;
    tn_dim zero = num(c, 0), start = zero, end = x->type.dim[axis];
    if ((*low)->lo < 0) { /* or the run tells its sign */
        start = tn_dim_max(s, tn_dim_sub(s, zero, *low), zero);
        *low = tn_dim_max(s, *low, zero);
    }
    if ((*high)->lo < 0) {
        end = tn_dim_add(s, end, tn_dim_min(s, *high, zero));
        *high = tn_dim_max(s, *high, zero);
    }
    return start == zero && end == x->type.dim[axis] ? x : emit_slice_axis(c, x, axis, start, end, 1);
}

static tn_value *pad_value(onnx_ctx *c, const onnx_node *n)
{
    tn_value *v = c->opset >= 11 ? onnx_in(n, 2) : NULL;
    if (!v)
        return emit_number(c, n->input[0]->type.dtype, onnx_attr_float(c, n, "value", 0));
    return v->type.rank == 0 ? v : tn_reshape(&c->b, v, NULL, 0);
}

bool onnx_Pad(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    tn_dim low[TN_MAX_RANK], high[TN_MAX_RANK];
    const char *mode = onnx_attr_string(c, n, "mode", "constant");
    int64_t none[TN_MAX_RANK] = {0};
    bool constant = !strcmp(mode, "constant");
    if (!constant && strcmp(mode, "reflect") && strcmp(mode, "edge") && strcmp(mode, "wrap"))
        return onnx_unsupported(c, n, "mode '%s'", mode);
    if (!read_pads(c, n, low, high))
        return false;
    if (constant)
        return onnx_set_output(c, n, 0, tn_pad(&c->b, x, pad_value(c, n), low, high, none));
    for (int i = 0; i < n->input[0]->type.rank && x; i++) {
        x = crop_axis(c, x, i, &low[i], &high[i]);
        x = x ? pad_axis(c, n, x, i, low[i], high[i], mode[0]) : NULL;
    }
    return onnx_set_output(c, n, 0, x);
}

/* ---- constants
 * --------------------------------------------------------------------------------------------------------------------
 */

bool onnx_Identity(onnx_ctx *c, const onnx_node *n)
{
    return onnx_set_output(c, n, 0, n->input[0]);
}

static tn_value *float_list(onnx_ctx *c, const float *values, int count, int rank)
{
    tn_tensor *t = TN_NEW(&c->session->arena, tn_tensor);
    *t = (tn_tensor){.dtype = TN_F32,
                     .rank = rank,
                     .dim = {count},
                     .data = tn_memdup(&c->session->arena, values, (size_t)count * sizeof *values)};
    return tn_constant(&c->b, t);
}

bool onnx_Constant(onnx_ctx *c, const onnx_node *n)
{
    int count;
    tn_value *v = NULL;
    const float *floats;
    const int64_t *ints;
    if (onnx_has_attr(n, "value")) {
        const tn_tensor *t = onnx_attr_tensor(c, n, "value");
        v = t ? tn_constant(&c->b, t) : NULL;
    } else if (onnx_has_attr(n, "value_float")) {
        float f = (float)onnx_attr_float(c, n, "value_float", 0);
        v = float_list(c, &f, 1, 0);
    } else if (onnx_has_attr(n, "value_int")) {
        v = onnx_int(c, TN_I64, onnx_attr_int(c, n, "value_int", 0));
    } else if ((floats = onnx_attr_floats(c, n, "value_floats", &count))) {
        v = float_list(c, floats, count, 1);
    } else if ((ints = onnx_attr_ints(c, n, "value_ints", &count))) {
        v = onnx_ints(c, TN_I64, ints, count);
    } else {
        return onnx_unsupported(c, n, "only tensors, numbers and lists of numbers are supported as values");
    }
    return onnx_set_output(c, n, 0, v);
}

/* A splat of any size costs one element when the shape is static. */
static tn_value *filled(onnx_ctx *c, const tn_tensor *value, const tn_dim *dims, int rank)
{
    int64_t sizes[TN_MAX_RANK] = {0};
    tn_number x = value ? tn_tensor_at(value, 0) : (tn_number){0};
    tn_dtype dtype = value ? value->dtype : TN_F32;
    bool is_static = true;
    for (int i = 0; i < rank; i++) {
        is_static &= tn_dim_is_const(dims[i]);
        sizes[i] = is_static ? dims[i]->value : 0;
    }
    if (is_static)
        return tn_constant(&c->b, tn_tensor_splat(c->session, dtype, rank, sizes, x));
    return emit_fill(c, tn_constant(&c->b, tn_tensor_splat(c->session, dtype, 0, NULL, x)), dims, rank);
}

bool onnx_ConstantOfShape(onnx_ctx *c, const onnx_node *n)
{
    tn_dim dims[ONNX_MAX_KNOWN];
    int64_t count;
    const tn_type *t = &n->input[0]->type;
    const tn_tensor *value = onnx_attr_tensor(c, n, "value");
    if (value && (!tn_tensor_count(value, &count) || count != 1))
        return onnx_error(c, n, "'value' must have one element");
    if (t->rank != 1 || !tn_dim_is_const(t->dim[0]) || t->dim[0]->value > TN_MAX_RANK)
        return onnx_unsupported(c, n, "the shape must be a list of at most %d integers whose number is known",
                                TN_MAX_RANK);
    int rank = (int)t->dim[0]->value;
    if (!onnx_runtime_dims(c, n, n->input[0], rank, NULL, dims))
        return false;
    for (int i = 0; i < rank; i++)
        if (dims[i]->hi < 0)
            return onnx_error(c, n, "the shape has a negative size");
    return onnx_set_output(c, n, 0, filled(c, value, dims, rank));
}

/* How many numbers Range gives, when its inputs are known; NULL: they are not (or the step's sign is not). */
static tn_dim range_count(onnx_ctx *c, const onnx_node *n)
{
    tn_dim a[ONNX_MAX_KNOWN], b[ONNX_MAX_KNOWN], step[ONNX_MAX_KNOWN];
    double x, y, z;
    int k;
    tn_session *s = c->session;
    if (onnx_constant_number(c, n->input[0], &x) && onnx_constant_number(c, n->input[1], &y) &&
        onnx_constant_number(c, n->input[2], &z)) {
        double count = ceil((y - x) / z);
        return z == 0 || !(count < 1e15) ? NULL : num(c, count > 0 ? (int64_t)count : 0);
    }
    if (!onnx_known_dims(c, n->input[0], a, &k) || !onnx_known_dims(c, n->input[1], b, &k) ||
        !onnx_known_dims(c, n->input[2], step, &k) || !tn_dim_is_const(step[0]) || step[0]->value == 0 ||
        step[0]->value == INT64_MIN)
        return NULL;
    tn_dim span = step[0]->value > 0 ? tn_dim_sub(s, b[0], a[0]) : tn_dim_sub(s, a[0], b[0]);
    return tn_dim_max(s, num(c, 0), tn_dim_ceildiv(s, span, num(c, llabs(step[0]->value))));
}

bool onnx_Range(onnx_ctx *c, const onnx_node *n)
{
    tn_dtype dtype = n->input[0]->type.dtype;
    tn_value *in[3];
    for (int i = 0; i < 3; i++) {
        if (n->input[i]->type.dtype != dtype)
            return onnx_error(c, n, "start, limit and delta must have one type");
        in[i] = n->input[i]->type.rank ? tn_reshape(&c->b, n->input[i], NULL, 0) : n->input[i];
    }
    tn_dim count = range_count(c, n);
    if (!count) {
        tn_value *span = tn_convert(&c->b, emit_sub(c, in[1], in[0]), TN_F64);
        tn_value *steps = emit_unary(c, TN_OP_ceil, emit_div(c, span, tn_convert(&c->b, in[2], TN_F64)));
        tn_value *size = emit_max(c, tn_convert(&c->b, steps, TN_I64), emit_number(c, TN_I64, 0));
        if (!size || !onnx_runtime_dims(c, n, size, 1, NULL, &count))
            return false;
    }
    tn_value *y = tn_iota(&c->b, dtype, &count, 1, 0);
    double start, delta;
    if (!onnx_constant_number(c, in[2], &delta) || delta != 1)
        y = emit_mul(c, y, in[2]);
    if (!onnx_constant_number(c, in[0], &start) || start != 0)
        y = emit_add(c, y, in[0]);
    return onnx_set_output(c, n, 0, y);
}

/* ---- types
 * --------------------------------------------------------------------------------------------------------------------------
 */

/* Casts to 8-bit floats saturate unless the attribute says otherwise; those to 4-bit integers keep the low bits, by way
 * of i32. */
static tn_value *cast(onnx_ctx *c, const onnx_node *n, tn_value *x, tn_dtype dtype)
{
    bool narrow = dtype == TN_F8E4M3 || dtype == TN_F8E5M2;
    if (tn_dtype_bits(dtype) == 4 && tn_is_float(x->type.dtype))
        return tn_convert(&c->b, tn_convert(&c->b, x, TN_I32), dtype);
    if (!narrow || !onnx_attr_int(c, n, "saturate", 1) || x->type.dtype == dtype)
        return tn_convert(&c->b, x, dtype);
    tn_attr attrs[2] = {{.name = TN_A_dtype, .i = dtype}, {.name = TN_A_saturate, .i = 1}};
    tn_op *op = tn_build(&c->b, TN_OP_convert, &x, 1, attrs, 2, NULL, 0);
    return op ? &op->result[0] : NULL;
}

bool onnx_Cast(onnx_ctx *c, const onnx_node *n)
{
    if (!onnx_has_attr(n, "to"))
        return onnx_error(c, n, "attribute 'to' is missing");
    tn_dtype dtype = onnx_attr_dtype(c, n, "to", TN_NO_DTYPE);
    return dtype != TN_NO_DTYPE && onnx_set_output(c, n, 0, cast(c, n, n->input[0], dtype));
}

bool onnx_CastLike(onnx_ctx *c, const onnx_node *n)
{
    return onnx_set_output(c, n, 0, cast(c, n, n->input[0], n->input[1]->type.dtype));
}

/* ---- masks
 * --------------------------------------------------------------------------------------------------------------------------
 */

bool onnx_Where(onnx_ctx *c, const onnx_node *n)
{
    if (n->input[0]->type.dtype != TN_BOOL || n->input[1]->type.dtype != n->input[2]->type.dtype)
        return onnx_error(c, n, "the condition must be bool, and both choices of one type");
    return onnx_set_output(c, n, 0, emit_select(c, n->input[0], n->input[1], n->input[2]));
}

/* column - row of each element of the last two dimensions: which diagonal it is on. */
static tn_value *diagonal_of(onnx_ctx *c, const tn_type *t)
{
    return emit_sub(c, tn_iota(&c->b, TN_I64, t->dim, t->rank, t->rank - 1),
                    tn_iota(&c->b, TN_I64, t->dim, t->rank, t->rank - 2));
}

bool onnx_Trilu(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *k = onnx_in(n, 1);
    if (x->type.rank < 2)
        return onnx_error(c, n, "the input must be a matrix or a batch of them");
    k = !k ? emit_number(c, TN_I64, 0) : tn_convert(&c->b, k->type.rank ? tn_reshape(&c->b, k, NULL, 0) : k, TN_I64);
    tn_value *keep = emit_compare(c, onnx_attr_int(c, n, "upper", 1) ? "GE" : "LE", diagonal_of(c, &x->type), k);
    return onnx_set_output(c, n, 0, emit_select(c, keep, x, emit_number(c, x->type.dtype, 0)));
}

bool onnx_EyeLike(onnx_ctx *c, const onnx_node *n)
{
    const tn_type *t = &n->input[0]->type;
    tn_dtype dtype = onnx_attr_dtype(c, n, "dtype", t->dtype);
    if (t->rank != 2)
        return onnx_error(c, n, "the input must be a matrix");
    if (dtype == TN_NO_DTYPE)
        return false;
    tn_value *on = emit_compare(c, "EQ", diagonal_of(c, t), onnx_int(c, TN_I64, onnx_attr_int(c, n, "k", 0)));
    return onnx_set_output(c, n, 0, tn_convert(&c->b, on, dtype));
}

/* ---- rearrangements
 * -------------------------------------------------------------------------------------------------------------------
 */

/* N x C x H x W seen as six dimensions in two of which the block lies. */
static bool block_size(onnx_ctx *c, const onnx_node *n, tn_dim *out)
{
    int64_t size = onnx_attr_int(c, n, "blocksize", 0);
    if (n->input[0]->type.rank != 4)
        return onnx_error(c, n, "the input must have rank 4");
    if (size < 1 || size > 1 << 15)
        return onnx_error(c, n, "a blocksize of %lld", (long long)size);
    *out = num(c, size);
    return true;
}

bool onnx_DepthToSpace(onnx_ctx *c, const onnx_node *n)
{
    static const int64_t dcr[6] = {0, 3, 4, 1, 5, 2}, crd[6] = {0, 1, 4, 2, 5, 3};
    tn_session *s = c->session;
    tn_dim k;
    const tn_dim *d = n->input[0]->type.dim;
    const char *mode = onnx_attr_string(c, n, "mode", "DCR");
    if (!block_size(c, n, &k))
        return false;
    bool is_crd = !strcmp(mode, "CRD");
    if (!is_crd && strcmp(mode, "DCR"))
        return onnx_error(c, n, "mode '%s'", mode);
    tn_dim depth = tn_dim_floordiv(s, d[1], tn_dim_mul(s, k, k));
    tn_dim split_dcr[6] = {d[0], k, k, depth, d[2], d[3]}, split_crd[6] = {d[0], depth, k, k, d[2], d[3]};
    tn_dim merged[4] = {d[0], depth, tn_dim_mul(s, d[2], k), tn_dim_mul(s, d[3], k)};
    tn_value *x = tn_reshape(&c->b, n->input[0], is_crd ? split_crd : split_dcr, 6);
    x = tn_transpose(&c->b, x, is_crd ? crd : dcr);
    return onnx_set_output(c, n, 0, tn_reshape(&c->b, x, merged, 4));
}

bool onnx_SpaceToDepth(onnx_ctx *c, const onnx_node *n)
{
    static const int64_t perm[6] = {0, 3, 5, 1, 2, 4};
    tn_session *s = c->session;
    tn_dim k;
    const tn_dim *d = n->input[0]->type.dim;
    if (!block_size(c, n, &k))
        return false;
    tn_dim h = tn_dim_floordiv(s, d[2], k), w = tn_dim_floordiv(s, d[3], k);
    tn_dim split[6] = {d[0], d[1], h, k, w, k}, merged[4] = {d[0], tn_dim_mul(s, d[1], tn_dim_mul(s, k, k)), h, w};
    tn_value *x = tn_transpose(&c->b, tn_reshape(&c->b, n->input[0], split, 6), perm);
    return onnx_set_output(c, n, 0, tn_reshape(&c->b, x, merged, 4));
}
