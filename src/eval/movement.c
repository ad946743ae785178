/* Operations that make or move data: each result element is one operand element, padding, or its own position. Moves
 * are copies of a strided box from one tensor to another. */
#include "eval/internal.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* ---- the one copy ------------------------------------------------------------------------------------------------ */

static void copy_row(const tn_eval_value *to, int64_t at, int64_t step, const tn_tensor *from, int64_t from_at,
                     int64_t from_step, int64_t n)
{
    const tn_dtype dtype = to->tensor.dtype;
    const size_t size = (size_t)tn_dtype_bits(dtype) / 8;
    char *y = (char *)(uintptr_t)to->tensor.data;
    const char *x = from->data;
    if (tn_dtype_bits(dtype) < 8) {
        for (int64_t i = 0; i < n; i++)
            tn_number_store(dtype, y, at + i * step, tn_number_load(dtype, x, from_at + i * from_step));
    } else if (step == 1 && from_step == 1) {
        memcpy(y + at * (int64_t)size, x + from_at * (int64_t)size, (size_t)n * size);
    } else if (size == 4) {
        for (int64_t i = 0; i < n; i++)
            memcpy(y + (at + i * step) * 4, x + (from_at + i * from_step) * 4, 4);
    } else {
        for (int64_t i = 0; i < n; i++)
            memcpy(y + (at + i * step) * (int64_t)size, x + (from_at + i * from_step) * (int64_t)size, size);
    }
}

void tn_copy_box(tn_eval_value *to, int64_t to_at, const int64_t *to_strides, const tn_tensor *from, int64_t from_at,
                 const int64_t *from_strides, int rank, const int64_t *sizes)
{
    int64_t index[TN_MAX_RANK] = {0}, zeros[TN_MAX_RANK] = {0};
    assert(to->tensor.dtype == from->dtype);
    if (from->splat)
        from_at = 0, from_strides = zeros;
    for (int i = 0; i < rank; i++)
        if (sizes[i] == 0)
            return;
    const int outer = rank > 0 ? rank - 1 : 0;
    do {
        int64_t at = to_at, source = from_at;
        for (int i = 0; i < outer; i++)
            at += index[i] * to_strides[i], source += index[i] * from_strides[i];
        copy_row(to, at, rank ? to_strides[outer] : 0, from, source, rank ? from_strides[outer] : 0,
                 rank ? sizes[outer] : 1);
    } while (tn_next_index(outer, sizes, index));
}

/* Fills the whole result from `from`, whose position is from_at + sum index[i] * from_strides[i]. */
static tn_status fill(tn_evaluator *e, const tn_op *op, tn_eval_value *to, const tn_tensor *from, int64_t from_at,
                      const int64_t *from_strides)
{
    int64_t strides[TN_MAX_RANK];
    tn_strides_of(to->tensor.rank, to->tensor.dim, strides);
    TN_TRY(tn_eval_work(e, op->loc, tn_count_of(&to->tensor), 1));
    tn_copy_box(to, 0, strides, from, from_at, from_strides, to->tensor.rank, to->tensor.dim);
    return TN_OK;
}

/* ---- sources ----------------------------------------------------------------------------------------------------- */

EVAL(constant)
{
    (void)in;
    return tn_eval_borrow(e, op->loc, tn_find_attr(op, TN_A_value)->tensor, &out[0]);
}

EVAL(iota)
{
    (void)in;
    const int axis = (int)tn_attr_int(op, TN_A_iota_dimension, 0);
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    const tn_tensor *y = &out[0]->tensor;
    const int64_t n = tn_count_of(y);
    int64_t strides[TN_MAX_RANK];
    if (axis < 0 || axis >= y->rank)
        return tn_eval_expect(e, op, "iota_dimension below the rank", y->rank - 1, axis);
    tn_strides_of(y->rank, y->dim, strides);
    TN_TRY(tn_eval_work(e, op->loc, n, 1));
    for (int64_t i = 0; i < n; i++)
        tn_number_store(y->dtype, tn_eval_data(out[0]), i,
                        tn_number_from_int(y->dtype, i / strides[axis] % y->dim[axis]));
    return TN_OK;
}

EVAL(dimension)
{
    (void)in;
    int64_t size;
    TN_TRY(tn_eval_dim(e, op->loc, tn_find_attr(op, TN_A_dim)->dim, &size));
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    tn_number_store(out[0]->tensor.dtype, tn_eval_data(out[0]), 0, (tn_number){.i = size});
    return TN_OK;
}

/* A symbol is born from a value. Inside a region that runs again it gets a new value each time. */
EVAL(define_dimension)
{
    (void)out;
    const tn_dim symbol = tn_find_attr(op, TN_A_dim)->dim;
    const tn_attr *upper = tn_find_attr(op, TN_A_upper);
    const int64_t size = tn_number_to_int(in[0]->tensor.dtype, tn_at(&in[0]->tensor, 0));
    int64_t most = symbol->hi;
    if (upper)
        TN_TRY(tn_eval_dim(e, op->loc, upper->dim, &most));
    if (size < 0 || size < symbol->lo || size > most || (symbol->multiple > 1 && size % symbol->multiple))
        return tn_error(e->session, TN_INVALID, op->loc,
                        "define_dimension: %s is to be in [%" PRId64 ", %" PRId64 "] and a multiple of %" PRId64
                        ", found %" PRId64,
                        symbol->name, symbol->lo, most, symbol->multiple, size);
    if (!e->env)
        return tn_error(e->session, TN_UNSUPPORTED, op->loc, "define_dimension: no symbols may be defined here");
    if (tn_env_set(e->env, symbol->name, size))
        return TN_OK;
    if (!op->block->parent)
        return tn_error(e->session, TN_INVALID, op->loc, "define_dimension: %s already has another value than %" PRId64,
                        symbol->name, size);
    *(int64_t *)tn_map_get_str(&e->env->values, symbol->name) = size;
    return TN_OK;
}

/* ---- moves ------------------------------------------------------------------------------------------------------- */

EVAL(broadcast_in_dim)
{
    const tn_tensor *x = &in[0]->tensor;
    int n = 0;
    const int64_t *map = tn_attr_ints(op, TN_A_broadcast_dimensions, &n);
    int64_t from[TN_MAX_RANK], strides[TN_MAX_RANK] = {0};
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    const tn_tensor *y = &out[0]->tensor;
    if (n != x->rank)
        return tn_eval_expect(e, op, "length of broadcast_dimensions", x->rank, n);
    tn_strides_of(x->rank, x->dim, from);
    for (int i = 0; i < n; i++) {
        if (map[i] < 0 || map[i] >= y->rank)
            return tn_eval_expect(e, op, "broadcast_dimensions below the rank", y->rank - 1, map[i]);
        if (x->dim[i] != 1 && x->dim[i] != y->dim[map[i]])
            return tn_eval_expect(e, op, "size of a broadcast dimension", y->dim[map[i]], x->dim[i]);
        strides[map[i]] = x->dim[i] == 1 ? 0 : from[i];
    }
    return fill(e, op, out[0], x, 0, strides);
}

EVAL(reshape)
{
    const int64_t n = tn_count_of(&in[0]->tensor), flat[1] = {n}, one[1] = {1};
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    if (tn_count_of(&out[0]->tensor) != n)
        return tn_eval_expect(e, op, "number of elements", tn_count_of(&out[0]->tensor), n);
    TN_TRY(tn_eval_work(e, op->loc, n, 1));
    tn_copy_box(out[0], 0, one, &in[0]->tensor, 0, one, 1, flat);
    return TN_OK;
}

EVAL(transpose)
{
    const tn_tensor *x = &in[0]->tensor;
    int n = 0;
    const int64_t *permutation = tn_attr_ints(op, TN_A_permutation, &n);
    int64_t from[TN_MAX_RANK], strides[TN_MAX_RANK];
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    if (n != x->rank)
        return tn_eval_expect(e, op, "length of permutation", x->rank, n);
    tn_strides_of(n, x->dim, from);
    for (int i = 0; i < n; i++) {
        if (permutation[i] < 0 || permutation[i] >= n || out[0]->tensor.dim[i] != x->dim[permutation[i]])
            return tn_eval_expect(e, op, "a dimension of the result after permutation", out[0]->tensor.dim[i],
                                  permutation[i]);
        strides[i] = from[permutation[i]];
    }
    return fill(e, op, out[0], x, 0, strides);
}

EVAL(slice)
{
    const tn_tensor *x = &in[0]->tensor;
    int n = 0;
    const int64_t *step = tn_attr_ints(op, TN_A_strides, &n);
    int64_t start[TN_MAX_RANK], limit[TN_MAX_RANK], strides[TN_MAX_RANK], at = 0;
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    TN_TRY(tn_eval_dims(e, op, TN_A_start, x->rank, start));
    TN_TRY(tn_eval_dims(e, op, TN_A_limit, x->rank, limit));
    if (n != x->rank)
        return tn_eval_expect(e, op, "length of strides", x->rank, n);
    tn_strides_of(n, x->dim, strides);
    for (int i = 0; i < n; i++) {
        if (start[i] < 0 || start[i] > limit[i] || limit[i] > x->dim[i] || step[i] < 1)
            return tn_error(e->session, TN_INVALID, op->loc,
                            "slice: dimension %d: expected 0 <= start <= limit <= %" PRId64
                            " and stride >= 1, found start %" PRId64 ", limit %" PRId64 ", stride %" PRId64,
                            i, x->dim[i], start[i], limit[i], step[i]);
        if (out[0]->tensor.dim[i] != tn_ceildiv(limit[i] - start[i], step[i]))
            return tn_eval_expect(e, op, "size of a dimension of the result", tn_ceildiv(limit[i] - start[i], step[i]),
                                  out[0]->tensor.dim[i]);
        at += start[i] * strides[i];
        strides[i] = out[0]->tensor.dim[i] > 1 ? strides[i] * step[i] : 0;
    }
    return fill(e, op, out[0], x, at, strides);
}

EVAL(reverse)
{
    const tn_tensor *x = &in[0]->tensor;
    int n = 0;
    const int64_t *axes = tn_attr_ints(op, TN_A_dimensions, &n);
    int64_t strides[TN_MAX_RANK], at = 0;
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    tn_strides_of(x->rank, x->dim, strides);
    for (int i = 0; i < x->rank; i++)
        if (tn_among(i, axes, n) && x->dim[i] > 0)
            at += (x->dim[i] - 1) * strides[i], strides[i] = -strides[i];
    return fill(e, op, out[0], x, at, strides);
}

/* One dimension of pad: which operand elements [first, first + count) land inside the result, and where the first does.
 */
typedef struct padded_range {
    int64_t first, count, at;
} padded_range;

static padded_range pad_range(int64_t size, int64_t result, int64_t low, int64_t interior)
{
    const int64_t step = interior + 1;
    int64_t first = low < 0 ? tn_ceildiv(-low, step) : 0;
    int64_t last = result - 1 - low < 0 ? -1 : tn_min((result - 1 - low) / step, size - 1);
    return (padded_range){first, last >= first ? last - first + 1 : 0, low + first * step};
}

EVAL(pad)
{
    const tn_tensor *x = &in[0]->tensor;
    int n = 0;
    const int64_t *interior = tn_attr_ints(op, TN_A_interior, &n);
    int64_t low[TN_MAX_RANK], sizes[TN_MAX_RANK], from[TN_MAX_RANK], to[TN_MAX_RANK], none[TN_MAX_RANK] = {0};
    int64_t from_at = 0, to_at = 0;
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    TN_TRY(tn_eval_dims(e, op, TN_A_low, x->rank, low));
    if (n != x->rank)
        return tn_eval_expect(e, op, "length of interior", x->rank, n);
    const tn_tensor *y = &out[0]->tensor;
    tn_strides_of(n, x->dim, from);
    tn_strides_of(n, y->dim, to);
    for (int i = 0; i < n; i++) {
        if (interior[i] < 0 || interior[i] > INT64_MAX / 2 / (x->dim[i] + 1) || low[i] <= -(INT64_MAX / 2))
            return tn_eval_expect(e, op, "padding of a dimension in range", 0, interior[i]);
        padded_range r = pad_range(x->dim[i], y->dim[i], low[i], interior[i]);
        sizes[i] = r.count;
        from_at += r.count ? r.first * from[i] : 0;
        to_at += r.count ? r.at * to[i] : 0;
    }
    TN_TRY(fill(e, op, out[0], &in[1]->tensor, 0, none));
    for (int i = 0; i < n; i++)
        to[i] = sizes[i] > 1 ? to[i] * (interior[i] + 1) : 0;
    tn_copy_box(out[0], to_at, to, x, from_at, from, n, sizes);
    return TN_OK;
}

EVAL(concatenate)
{
    const int axis = (int)tn_attr_int(op, TN_A_dimension, 0);
    int64_t to[TN_MAX_RANK], from[TN_MAX_RANK], at = 0;
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    const tn_tensor *y = &out[0]->tensor;
    if (axis < 0 || axis >= y->rank)
        return tn_eval_expect(e, op, "dimension below the rank", y->rank - 1, axis);
    tn_strides_of(y->rank, y->dim, to);
    TN_TRY(tn_eval_work(e, op->loc, tn_count_of(y), 1));
    for (int j = 0; j < op->noperands; j++) {
        const tn_tensor *x = &in[j]->tensor;
        for (int i = 0; i < y->rank; i++)
            if (i != axis && (x->rank != y->rank || x->dim[i] != y->dim[i]))
                return tn_eval_expect(e, op, "size of a dimension of an operand", y->dim[i], x->dim[i]);
        if (x->dim[axis] > y->dim[axis] - at)
            return tn_eval_expect(e, op, "sum of the operands' sizes", y->dim[axis], at + x->dim[axis]);
        tn_strides_of(x->rank, x->dim, from);
        tn_copy_box(out[0], at * to[axis], to, x, 0, from, x->rank, x->dim);
        at += x->dim[axis];
    }
    return at == y->dim[axis] ? TN_OK : tn_eval_expect(e, op, "sum of the operands' sizes", y->dim[axis], at);
}

/* Position in x (strides given) of the box that starts at the scalars `starts`, clamped so that it stays inside. */
static tn_status clamped_start(tn_evaluator *e, const tn_op *op, const tn_tensor *x, const int64_t *strides,
                               const int64_t *sizes, tn_eval_value *const *starts, int nstarts, int64_t *at)
{
    if (nstarts != x->rank)
        return tn_eval_expect(e, op, "number of start indices", x->rank, nstarts);
    *at = 0;
    for (int i = 0; i < x->rank; i++) {
        if (sizes[i] > x->dim[i] || starts[i]->tensor.rank)
            return tn_eval_expect(e, op, "size of the slice at most", x->dim[i], sizes[i]);
        tn_number start = tn_at(&starts[i]->tensor, 0);
        int64_t most = x->dim[i] - sizes[i];
        bool above =
            tn_dtype_class(starts[i]->tensor.dtype) == TN_CLASS_UINT ? start.u > (uint64_t)most : start.i > most;
        *at += (above ? most : tn_max(start.i, 0)) * strides[i];
    }
    return TN_OK;
}

EVAL(dynamic_slice)
{
    const tn_tensor *x = &in[0]->tensor;
    int64_t strides[TN_MAX_RANK], at;
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    tn_strides_of(x->rank, x->dim, strides);
    TN_TRY(clamped_start(e, op, x, strides, out[0]->tensor.dim, in + 1, op->noperands - 1, &at));
    return fill(e, op, out[0], x, at, strides);
}

EVAL(dynamic_update_slice)
{
    const tn_tensor *x = &in[0]->tensor, *update = &in[1]->tensor;
    int64_t strides[TN_MAX_RANK], from[TN_MAX_RANK], at;
    if (update->rank != x->rank)
        return tn_eval_expect(e, op, "rank of the update", x->rank, update->rank);
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    tn_strides_of(x->rank, x->dim, strides);
    tn_strides_of(x->rank, update->dim, from);
    TN_TRY(clamped_start(e, op, x, strides, update->dim, in + 2, op->noperands - 2, &at));
    TN_TRY(fill(e, op, out[0], x, 0, strides));
    tn_copy_box(out[0], at, strides, update, 0, from, x->rank, update->dim);
    return TN_OK;
}

/* Same bits in order; a wider element is so many narrower ones in a last dimension, lowest bits first. */
EVAL(bitcast_convert)
{
    const tn_tensor *x = &in[0]->tensor;
    size_t bytes = 0, from = 0;
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    const tn_tensor *y = &out[0]->tensor;
    const int64_t n = tn_count_of(x);
    bool known = tn_dtype_bytes(y->dtype, tn_count_of(y), &bytes) && tn_dtype_bytes(x->dtype, n, &from);
    assert(known), (void)known;
    if (bytes != from || (y->dtype == TN_BOOL && x->dtype != TN_BOOL))
        return tn_eval_expect(e, op, "bytes of the result, bool only from bool", (int64_t)from, (int64_t)bytes);
    TN_TRY(tn_eval_work(e, op->loc, n, 1));
    if (!x->splat) {
        if (bytes)
            memcpy(tn_eval_data(out[0]), x->data, bytes);
        return TN_OK;
    }
    for (int64_t i = 0; i < n; i++)
        tn_number_store(x->dtype, tn_eval_data(out[0]), i, tn_at(x, 0));
    return TN_OK;
}
