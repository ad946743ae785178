#include "import/onnx/emit.h"

#include <math.h>
#include <string.h>

/* ---- constants
 * ---------------------------------------------------------------------------------------------------------- */

tn_value *emit_number(onnx_ctx *c, tn_dtype dtype, double value)
{
    return tn_scalar_constant(&c->b, dtype, value);
}

static tn_value *number_constant(onnx_ctx *c, tn_dtype dtype, tn_number number)
{
    return tn_constant(&c->b, tn_tensor_splat(c->session, dtype, 0, NULL, number));
}

tn_value *emit_lowest(onnx_ctx *c, tn_dtype dtype)
{
    return number_constant(c, dtype, tn_number_lowest(dtype));
}

tn_value *emit_highest(onnx_ctx *c, tn_dtype dtype)
{
    return number_constant(c, dtype, tn_number_highest(dtype));
}

tn_value *emit_identity(onnx_ctx *c, tn_opcode combine, tn_dtype dtype)
{
    switch (combine) {
    case TN_OP_maximum:
        return emit_lowest(c, dtype);
    case TN_OP_minimum:
        return emit_highest(c, dtype);
    default:
        return emit_number(c, dtype, combine == TN_OP_multiply);
    }
}

tn_value *emit_fill(onnx_ctx *c, tn_value *scalar, const tn_dim *dims, int rank)
{
    return rank == 0 ? scalar : tn_broadcast_in_dim(&c->b, scalar, dims, rank, NULL);
}

tn_value *emit_doubles(onnx_ctx *c, tn_dtype dtype, const double *values, int64_t count)
{
    size_t bytes;
    if (!tn_dtype_bytes(dtype, count, &bytes))
        return NULL;
    void *data = tn_alloc_aligned(&c->session->arena, bytes + 1, 64);
    for (int64_t i = 0; i < count; i++)
        tn_number_store(dtype, data, i, tn_number_from_double(dtype, values[i]));
    tn_tensor *tensor = TN_NEW(&c->session->arena, tn_tensor);
    *tensor = (tn_tensor){.dtype = dtype, .rank = 1, .dim = {count}, .data = data};
    return tn_constant(&c->b, tensor);
}

/* ---- elementwise
 * ---------------------------------------------------------------------------------------------------------- */

tn_value *emit_add(onnx_ctx *c, tn_value *x, tn_value *y)
{
    return tn_binary_b(&c->b, TN_OP_add, x, y);
}
tn_value *emit_sub(onnx_ctx *c, tn_value *x, tn_value *y)
{
    return tn_binary_b(&c->b, TN_OP_subtract, x, y);
}
tn_value *emit_mul(onnx_ctx *c, tn_value *x, tn_value *y)
{
    return tn_binary_b(&c->b, TN_OP_multiply, x, y);
}
tn_value *emit_div(onnx_ctx *c, tn_value *x, tn_value *y)
{
    return tn_binary_b(&c->b, TN_OP_divide, x, y);
}
tn_value *emit_max(onnx_ctx *c, tn_value *x, tn_value *y)
{
    return tn_binary_b(&c->b, TN_OP_maximum, x, y);
}
tn_value *emit_min(onnx_ctx *c, tn_value *x, tn_value *y)
{
    return tn_binary_b(&c->b, TN_OP_minimum, x, y);
}
tn_value *emit_and(onnx_ctx *c, tn_value *x, tn_value *y)
{
    return tn_binary_b(&c->b, TN_OP_and, x, y);
}
tn_value *emit_or(onnx_ctx *c, tn_value *x, tn_value *y)
{
    return tn_binary_b(&c->b, TN_OP_or, x, y);
}
tn_value *emit_unary(onnx_ctx *c, tn_opcode code, tn_value *x)
{
    return tn_unary(&c->b, code, x);
}

tn_value *emit_add_number(onnx_ctx *c, tn_value *x, double value)
{
    return !x ? NULL : emit_add(c, x, emit_number(c, x->type.dtype, value));
}

tn_value *emit_mul_number(onnx_ctx *c, tn_value *x, double value)
{
    return !x ? NULL : emit_mul(c, x, emit_number(c, x->type.dtype, value));
}

tn_value *emit_compare(onnx_ctx *c, const char *direction, tn_value *x, tn_value *y)
{
    tn_type type;
    if (!x || !y || !tn_broadcast_types(&c->b, (tn_value *[]){x, y}, 2, &type))
        return NULL;
    return tn_compare(&c->b, direction, tn_broadcast_to(&c->b, x, type.dim, type.rank),
                      tn_broadcast_to(&c->b, y, type.dim, type.rank));
}

tn_value *emit_compare_number(onnx_ctx *c, const char *direction, tn_value *x, double value)
{
    return !x ? NULL : emit_compare(c, direction, x, emit_number(c, x->type.dtype, value));
}

tn_value *emit_select(onnx_ctx *c, tn_value *pred, tn_value *x, tn_value *y)
{
    tn_type type;
    if (!pred || !x || !y || !tn_broadcast_types(&c->b, (tn_value *[]){pred, x, y}, 3, &type))
        return NULL;
    return tn_select(&c->b, tn_broadcast_to(&c->b, pred, type.dim, type.rank),
                     tn_broadcast_to(&c->b, x, type.dim, type.rank), tn_broadcast_to(&c->b, y, type.dim, type.rank));
}

tn_value *emit_clamp(onnx_ctx *c, tn_value *x, double low, double high)
{
    return !x ? NULL
              : emit_min(c, emit_max(c, x, emit_number(c, x->type.dtype, low)), emit_number(c, x->type.dtype, high));
}

tn_value *emit_floor_mod(onnx_ctx *c, tn_value *x, tn_value *y)
{
    tn_value *rest = tn_binary_b(&c->b, TN_OP_remainder, x, y);
    if (!rest || tn_dtype_class(rest->type.dtype) == TN_CLASS_UINT)
        return rest;
    tn_value *apart =
        tn_binary_b(&c->b, TN_OP_xor, emit_compare_number(c, "LT", rest, 0), emit_compare_number(c, "LT", y, 0));
    tn_value *fix = emit_and(c, apart, emit_compare_number(c, "NE", rest, 0));
    return emit_select(c, fix, emit_add(c, rest, y), rest);
}

/* log(1 + e^x) without overflow: max(x, 0) + log1p(e^-|x|). */
tn_value *emit_softplus(onnx_ctx *c, tn_value *x)
{
    if (!x)
        return NULL;
    tn_value *small = emit_unary(c, TN_OP_exponential, emit_unary(c, TN_OP_negate, emit_unary(c, TN_OP_abs, x)));
    return emit_add(c, emit_max(c, x, emit_number(c, x->type.dtype, 0)), emit_unary(c, TN_OP_log_plus_one, small));
}

/* ---- shape
 * ---------------------------------------------------------------------------------------------------------------- */

tn_dim emit_dim(onnx_ctx *c, int64_t value)
{
    return tn_dim_const(c->session, value);
}

tn_value *emit_size(onnx_ctx *c, tn_dim dim, tn_dtype dtype)
{
    if (tn_dim_is_const(dim))
        return tn_is_float(dtype) ? emit_number(c, dtype, (double)dim->value)
                                  : tn_int_constant(&c->b, dtype, dim->value);
    return tn_convert(&c->b, tn_dimension(&c->b, dim), dtype);
}

tn_value *emit_reshape(onnx_ctx *c, tn_value *x, int rank, const tn_dim *dims)
{
    return tn_reshape(&c->b, x, dims, rank);
}

tn_value *emit_slice_axis(onnx_ctx *c, tn_value *x, int axis, tn_dim start, tn_dim limit, int64_t step)
{
    if (!x)
        return NULL;
    tn_dim low[TN_MAX_RANK], high[TN_MAX_RANK];
    int64_t strides[TN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++) {
        low[i] = i == axis ? start : emit_dim(c, 0);
        high[i] = i == axis ? limit : x->type.dim[i];
        strides[i] = i == axis ? step : 1;
    }
    return tn_slice(&c->b, x, low, high, strides);
}

static bool has_rank(onnx_ctx *c, const tn_value *x, int rank)
{
    if (!x || x->type.rank == rank)
        return x != NULL;
    tn_error(c->session, TN_INVALID, c->b.loc, "an operand of rank %d is expected here, found rank %d", rank,
             x->type.rank);
    c->b.failed = true;
    return false;
}

tn_value *emit_broadcast(onnx_ctx *c, tn_value *x, const tn_dim *dims, int rank, const int64_t *axes, int n)
{
    return has_rank(c, x, n) ? tn_broadcast_in_dim(&c->b, x, dims, rank, axes) : NULL;
}

tn_value *emit_transpose(onnx_ctx *c, tn_value *x, const int64_t *permutation, int n)
{
    return has_rank(c, x, n) ? tn_transpose(&c->b, x, permutation) : NULL;
}

tn_value *emit_along(onnx_ctx *c, tn_value *x, const tn_type *like, int axis)
{
    return emit_broadcast(c, x, like->dim, like->rank, EMIT_AXES(axis));
}

tn_value *emit_iota_like(onnx_ctx *c, tn_dtype dtype, const tn_type *like, int axis)
{
    return tn_iota(&c->b, dtype, like->dim, like->rank, axis);
}

tn_value *emit_pad_zero(onnx_ctx *c, tn_value *x, const tn_dim *low, const tn_dim *high, tn_value *fill)
{
    static const int64_t none[TN_MAX_RANK];
    return !x ? NULL : tn_pad(&c->b, x, fill, low, high, none);
}

static tn_attr ints_attr(tn_attr_name name, const int64_t *ints, int n)
{
    return (tn_attr){.name = name, .n = n, .ints = ints};
}

static tn_attr dims_attr(tn_attr_name name, const tn_dim *dims, int n)
{
    return (tn_attr){.name = name, .n = n, .dims = dims};
}

static tn_attr int_attr(tn_attr_name name, int64_t value)
{
    return (tn_attr){.name = name, .i = value};
}

static tn_value *first_result(tn_op *op)
{
    return op ? &op->result[0] : NULL;
}

tn_value *emit_take(onnx_ctx *c, tn_value *x, tn_value *indices, int axis)
{
    if (!x || !indices)
        return NULL;
    int64_t offset[TN_MAX_RANK], at[] = {axis};
    tn_dim sizes[TN_MAX_RANK];
    int noffset = 0, rank = x->type.rank;
    for (int i = 0; i < rank; i++) {
        sizes[i] = i == axis ? emit_dim(c, 1) : x->type.dim[i];
        if (i != axis)
            offset[noffset++] = i;
    }
    tn_attr attrs[] = {
        ints_attr(TN_A_offset_dims, offset, noffset),
        ints_attr(TN_A_collapsed_slice_dims, at, 1),
        ints_attr(TN_A_operand_batching_dims, NULL, 0),
        ints_attr(TN_A_indices_batching_dims, NULL, 0),
        ints_attr(TN_A_start_index_map, at, 1),
        int_attr(TN_A_index_vector_dim, 1),
        dims_attr(TN_A_sizes, sizes, rank),
    };
    return first_result(tn_build(&c->b, TN_OP_gather, (tn_value *[]){x, indices}, 2, attrs, TN_COUNT(attrs), NULL, 0));
}

/* A gather wants an element even where it takes none: a zero is put behind the last one. */
tn_value *emit_take_some(onnx_ctx *c, tn_value *x, tn_value *indices, int axis)
{
    if (!x || tn_dim_le(c->session, emit_dim(c, 1), x->type.dim[axis]))
        return emit_take(c, x, indices, axis);
    tn_dim low[TN_MAX_RANK], high[TN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++) {
        low[i] = emit_dim(c, 0);
        high[i] = emit_dim(c, i == axis);
    }
    return emit_take(c, emit_pad_zero(c, x, low, high, emit_number(c, x->type.dtype, 0)), indices, axis);
}

tn_value *emit_take_nd(onnx_ctx *c, tn_value *x, tn_value *indices)
{
    if (!x || !indices)
        return NULL;
    int k = (int)indices->type.dim[1]->value, rank = x->type.rank;
    int64_t offset[TN_MAX_RANK], leading[TN_MAX_RANK];
    tn_dim sizes[TN_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        sizes[i] = i < k ? emit_dim(c, 1) : x->type.dim[i];
        leading[i] = i;
        if (i >= k)
            offset[i - k] = i - k + 1;
    }
    tn_attr attrs[] = {
        ints_attr(TN_A_offset_dims, offset, rank - k),
        ints_attr(TN_A_collapsed_slice_dims, leading, k),
        ints_attr(TN_A_operand_batching_dims, NULL, 0),
        ints_attr(TN_A_indices_batching_dims, NULL, 0),
        ints_attr(TN_A_start_index_map, leading, k),
        int_attr(TN_A_index_vector_dim, 1),
        dims_attr(TN_A_sizes, sizes, rank),
    };
    return first_result(tn_build(&c->b, TN_OP_gather, (tn_value *[]){x, indices}, 2, attrs, TN_COUNT(attrs), NULL, 0));
}

/* (old, new) -> new. */
static tn_block *replace_block(onnx_ctx *c, tn_dtype dtype)
{
    tn_block *block = tn_block_new(c->b.graph, NULL);
    tn_type scalar = tn_type_scalar(dtype);
    tn_block_arg(block, &scalar, NULL);
    tn_value *update = tn_block_arg(block, &scalar, NULL);
    tn_builder inner = tn_builder_at_end(block, c->b.loc);
    tn_return(&inner, &update, 1);
    return block;
}

tn_value *emit_put_nd(onnx_ctx *c, tn_value *x, tn_value *indices, tn_value *updates, tn_opcode combine)
{
    if (!x || !indices || !updates)
        return NULL;
    int k = (int)indices->type.dim[1]->value, rank = x->type.rank;
    int64_t window[TN_MAX_RANK], leading[TN_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        leading[i] = i;
        if (i >= k)
            window[i - k] = i - k + 1;
    }
    tn_attr attrs[] = {
        ints_attr(TN_A_update_window_dims, window, rank - k),
        ints_attr(TN_A_inserted_window_dims, leading, k),
        ints_attr(TN_A_input_batching_dims, NULL, 0),
        ints_attr(TN_A_scatter_indices_batching_dims, NULL, 0),
        ints_attr(TN_A_scatter_dims_to_operand_dims, leading, k),
        int_attr(TN_A_index_vector_dim, 1),
    };
    tn_block *region = combine == TN_OP_return ? replace_block(c, x->type.dtype)
                                               : tn_combine_block(c->b.graph, combine, x->type.dtype);
    return first_result(
        tn_build(&c->b, TN_OP_scatter, (tn_value *[]){x, indices, updates}, 3, attrs, TN_COUNT(attrs), &region, 1));
}

tn_value *emit_axis_to_last(onnx_ctx *c, tn_value *x, int axis)
{
    if (!x || axis == x->type.rank - 1)
        return x;
    int64_t permutation[TN_MAX_RANK];
    int n = 0;
    for (int i = 0; i < x->type.rank; i++)
        if (i != axis)
            permutation[n++] = i;
    permutation[n] = axis;
    return tn_transpose(&c->b, x, permutation);
}

tn_value *emit_axis_from_last(onnx_ctx *c, tn_value *x, int axis)
{
    if (!x || axis == x->type.rank - 1)
        return x;
    int64_t permutation[TN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++)
        permutation[i] = i < axis ? i : i == axis ? x->type.rank - 1 : i - 1;
    return tn_transpose(&c->b, x, permutation);
}

/* ---- reductions
 * ------------------------------------------------------------------------------------------------------------ */

tn_value *emit_reduce(onnx_ctx *c, tn_opcode combine, tn_value *x, const int64_t *axes, int n)
{
    return n == 0 ? x : tn_reduce(&c->b, combine, x, axes, n);
}

tn_value *emit_sum_axis(onnx_ctx *c, tn_value *x, int axis)
{
    return emit_reduce(c, TN_OP_add, x, (int64_t[]){axis}, 1);
}

static bool holds(const int64_t *axes, int n, int axis)
{
    for (int i = 0; i < n; i++)
        if (axes[i] == axis)
            return true;
    return false;
}

tn_value *emit_spread(onnx_ctx *c, tn_value *reduced, const tn_type *like, const int64_t *axes, int n)
{
    int64_t kept[TN_MAX_RANK];
    int nkept = 0;
    for (int i = 0; i < like->rank; i++)
        if (!holds(axes, n, i))
            kept[nkept++] = i;
    return nkept == like->rank ? reduced : emit_broadcast(c, reduced, like->dim, like->rank, kept, nkept);
}

tn_value *emit_keep(onnx_ctx *c, tn_value *reduced, const tn_type *like, const int64_t *axes, int n)
{
    tn_dim dims[TN_MAX_RANK];
    for (int i = 0; i < like->rank; i++)
        dims[i] = holds(axes, n, i) ? emit_dim(c, 1) : like->dim[i];
    return tn_reshape(&c->b, reduced, dims, like->rank);
}

tn_value *emit_count(onnx_ctx *c, const tn_type *type, const int64_t *axes, int n, tn_dtype dtype)
{
    tn_dim count = emit_dim(c, 1);
    for (int i = 0; i < n; i++)
        count = tn_dim_mul(c->session, count, type->dim[axes[i]]);
    return emit_size(c, count, dtype);
}

tn_value *emit_comes_before(tn_builder *b, const char *direction, tn_value *x, tn_value *y)
{
    tn_value *less = tn_compare(b, direction, x, y);
    if (!tn_is_float(x->type.dtype))
        return less;
    tn_value *great = strcmp(direction, "GT") == 0 ? x : y, *small = great == x ? y : x;
    tn_value *nan = tn_compare(b, "NE", great, great), *number = tn_compare(b, "EQ", small, small);
    return tn_binary_b(b, TN_OP_or, less, tn_binary_b(b, TN_OP_and, nan, number));
}

tn_dtype emit_sum_type(tn_dtype dtype)
{
    return tn_is_float(dtype) && tn_dtype_bits(dtype) < 32 ? TN_F32 : dtype;
}

tn_value *emit_mean(onnx_ctx *c, tn_value *x, const int64_t *axes, int n)
{
    if (!x)
        return NULL;
    tn_dtype dtype = x->type.dtype, wide = emit_sum_type(dtype);
    x = tn_convert(&c->b, x, wide);
    tn_value *mean = emit_div(c, emit_reduce(c, TN_OP_add, x, axes, n), emit_count(c, &x->type, axes, n, wide));
    return mean ? tn_convert(&c->b, mean, dtype) : NULL;
}

tn_value *emit_softmax(onnx_ctx *c, tn_value *x, const int64_t *axes, int n, bool log)
{
    if (!x)
        return NULL;
    tn_type type = x->type;
    tn_value *top = emit_spread(c, emit_reduce(c, TN_OP_maximum, x, axes, n), &type, axes, n);
    tn_value *shifted = emit_sub(c, x, top);
    tn_value *power = emit_unary(c, TN_OP_exponential, shifted);
    tn_value *sum = emit_reduce(c, TN_OP_add, power, axes, n);
    if (log)
        return emit_sub(c, shifted, emit_spread(c, emit_unary(c, TN_OP_log, sum), &type, axes, n));
    return emit_div(c, power, emit_spread(c, sum, &type, axes, n));
}

tn_value *emit_centered(onnx_ctx *c, tn_value *x, const int64_t *axes, int n, tn_value **mean, tn_value **variance)
{
    *mean = emit_mean(c, x, axes, n);
    tn_value *centered = !x ? NULL : emit_sub(c, x, emit_spread(c, *mean, &x->type, axes, n));
    *variance = emit_mean(c, emit_mul(c, centered, centered), axes, n);
    return centered;
}

tn_value *emit_arg_max(onnx_ctx *c, tn_value *x, int axis, bool last)
{
    if (!x)
        return NULL;
    tn_type type = x->type;
    int64_t axes[] = {axis};
    tn_value *top = emit_spread(c, emit_reduce(c, TN_OP_maximum, x, axes, 1), &type, axes, 1);
    tn_value *hit = emit_compare(c, "EQ", x, top);
    if (tn_is_float(type.dtype))
        hit = emit_or(c, hit, emit_compare(c, "NE", x, x));
    tn_dtype index = type.dim[axis]->hi <= INT32_MAX ? TN_I32 : TN_I64;
    tn_value *none = last ? emit_number(c, index, -1) : emit_highest(c, index);
    tn_value *position = emit_select(c, hit, emit_iota_like(c, index, &type, axis), none);
    return tn_convert(&c->b, emit_reduce(c, last ? TN_OP_maximum : TN_OP_minimum, position, axes, 1), TN_I64);
}

tn_value *emit_window(onnx_ctx *c, tn_opcode combine, tn_value *x, const tn_dim *window, const int64_t *strides,
                      const int64_t *dilations, const tn_dim *low, const tn_dim *high)
{
    if (!x)
        return NULL;
    int rank = x->type.rank;
    int64_t ones[TN_MAX_RANK];
    for (int i = 0; i < rank; i++)
        ones[i] = 1;
    tn_attr attrs[] = {
        dims_attr(TN_A_window, window, rank),      ints_attr(TN_A_window_strides, strides ? strides : ones, rank),
        ints_attr(TN_A_base_dilation, ones, rank), ints_attr(TN_A_window_dilation, dilations ? dilations : ones, rank),
        dims_attr(TN_A_padding_low, low, rank),    dims_attr(TN_A_padding_high, high, rank),
    };
    tn_block *region = tn_combine_block(c->b.graph, combine, x->type.dtype);
    tn_value *operands[] = {x, emit_identity(c, combine, x->type.dtype)};
    return first_result(tn_build(&c->b, TN_OP_reduce_window, operands, 2, attrs, TN_COUNT(attrs), &region, 1));
}

/* Known length: log2(n) steps, each adding the array moved by 1, 2, 4, … (Hillis and Steele, 1986). Unknown: one window
 * a position. */
/* Each element by itself from the first on: fine where they are few. */
static tn_value *scan_by_window(onnx_ctx *c, tn_opcode combine, tn_value *x, int axis)
{
    tn_dim low[TN_MAX_RANK], high[TN_MAX_RANK], window[TN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++) {
        low[i] = high[i] = emit_dim(c, 0);
        window[i] = emit_dim(c, 1);
    }
    window[axis] = tn_dim_max(c->session, x->type.dim[axis], emit_dim(c, 1));
    low[axis] = tn_dim_sub(c->session, window[axis], emit_dim(c, 1));
    return emit_window(c, combine, x, window, NULL, NULL, low, high);
}

enum { SCAN_BLOCK = 64, SCAN_LEVELS = 3 };

/* Blocks by themselves; then what stands before each block, which is the scan of the blocks' last elements: n * SCAN_BLOCK operations a level. */
static tn_value *scan_by_blocks(onnx_ctx *c, tn_opcode combine, tn_value *x, int axis, int levels)
{
    tn_session *s = c->session;
    int rank = x->type.rank;
    tn_dim length = x->type.dim[axis], block = emit_dim(c, SCAN_BLOCK);
    if (length->hi <= SCAN_BLOCK || levels == 0 || rank == TN_MAX_RANK)
        return scan_by_window(c, combine, x, axis);
    tn_value *fill = emit_identity(c, combine, x->type.dtype);
    tn_dim blocks = tn_dim_ceildiv(s, length, block), whole = tn_dim_mul(s, blocks, block), low[TN_MAX_RANK], high[TN_MAX_RANK], split[TN_MAX_RANK];
    int64_t others[TN_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        low[i] = high[i] = emit_dim(c, 0);
        split[i < axis ? i : i + 1] = x->type.dim[i];
        others[i] = i <= axis ? i : i + 1;
    }
    high[axis] = tn_dim_sub(s, whole, length);
    split[axis] = blocks, split[axis + 1] = block;
    tn_value *inner = tn_reshape(&c->b, emit_pad_zero(c, x, low, high, fill), split, rank + 1);
    inner = inner ? scan_by_window(c, combine, inner, axis + 1) : NULL;
    tn_value *last = emit_slice_axis(c, inner, axis + 1, emit_dim(c, SCAN_BLOCK - 1), block, 1);
    tn_dim dims[TN_MAX_RANK];
    memcpy(dims, x->type.dim, sizeof dims);
    dims[axis] = blocks;
    last = last ? tn_reshape(&c->b, last, dims, rank) : NULL;
    tn_value *before = last ? scan_by_blocks(c, combine, last, axis, levels - 1) : NULL;
    low[axis] = emit_dim(c, 1), high[axis] = emit_dim(c, -1);
    before = emit_broadcast(c, before ? emit_pad_zero(c, before, low, high, fill) : NULL, split, rank + 1, others, rank);
    tn_value *y = before && inner ? tn_binary(&c->b, combine, before, inner) : NULL;
    dims[axis] = whole;
    return y ? emit_slice_axis(c, tn_reshape(&c->b, y, dims, rank), axis, emit_dim(c, 0), length, 1) : NULL;
}

tn_value *emit_scan(onnx_ctx *c, tn_opcode combine, tn_value *x, int axis)
{
    if (!x)
        return NULL;
    tn_dtype dtype = x->type.dtype, wide = emit_sum_type(dtype);
    x = scan_by_blocks(c, combine, tn_convert(&c->b, x, wide), axis, SCAN_LEVELS - 1);
    return x ? tn_convert(&c->b, x, dtype) : NULL;
}

/* ---- products
 * -------------------------------------------------------------------------------------------------------------- */

static tn_value *with_batch(onnx_ctx *c, tn_value *x, const tn_type *batch)
{
    tn_dim dims[TN_MAX_RANK];
    memcpy(dims, batch->dim, sizeof dims);
    dims[batch->rank] = x->type.dim[x->type.rank - 2];
    dims[batch->rank + 1] = x->type.dim[x->type.rank - 1];
    return tn_broadcast_to(&c->b, x, dims, batch->rank + 2);
}

/* The common batch dimensions of two operands of rank >= 2: by broadcasting stand-ins of the batch part's shape. */
static bool common_batch(onnx_ctx *c, tn_value *x, tn_value *y, tn_type *out)
{
    tn_value stand[2] = {*x, *y};
    stand[0].type.rank -= 2;
    stand[1].type.rank -= 2;
    return tn_broadcast_types(&c->b, (tn_value *[]){&stand[0], &stand[1]}, 2, out);
}

/* True when all dimensions before the last two are 1. */
static bool is_matrix(const tn_value *x)
{
    for (int i = 0; i < x->type.rank - 2; i++)
        if (!tn_dim_is(x->type.dim[i], 1))
            return false;
    return true;
}

static tn_value *batched_product(onnx_ctx *c, tn_value *x, tn_value *y)
{
    int rank = x->type.rank;
    if (is_matrix(y) && y->type.rank <= rank) {
        y = tn_reshape(&c->b, y, y->type.dim + y->type.rank - 2, 2);
        return tn_dot_general(&c->b, x, y, NULL, NULL, 0, (int64_t[]){rank - 1}, (int64_t[]){0}, 1);
    }
    tn_type batch;
    if (!common_batch(c, x, y, &batch))
        return NULL;
    int64_t axes[TN_MAX_RANK];
    for (int i = 0; i < batch.rank; i++)
        axes[i] = i;
    return tn_dot_general(&c->b, with_batch(c, x, &batch), with_batch(c, y, &batch), axes, axes, batch.rank,
                          (int64_t[]){batch.rank + 1}, (int64_t[]){batch.rank}, 1);
}

tn_value *emit_matmul(onnx_ctx *c, tn_value *x, tn_value *y)
{
    if (!x || !y)
        return NULL;
    if (x->type.rank < 1 || y->type.rank < 1) {
        has_rank(c, x->type.rank < 1 ? x : y, 1);
        return NULL;
    }
    bool row = x->type.rank == 1, column = y->type.rank == 1;
    if (row)
        x = tn_reshape(&c->b, x, (tn_dim[]){emit_dim(c, 1), x->type.dim[0]}, 2);
    if (column)
        y = tn_reshape(&c->b, y, (tn_dim[]){y->type.dim[0], emit_dim(c, 1)}, 2);
    tn_value *product = !x || !y ? NULL : batched_product(c, x, y);
    if (!product || (!row && !column))
        return product;
    tn_dim dims[TN_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < product->type.rank; i++)
        if (!(row && i == product->type.rank - 2) && !(column && i == product->type.rank - 1))
            dims[rank++] = product->type.dim[i];
    return tn_reshape(&c->b, product, dims, rank);
}

/* ---- loops
 * ------------------------------------------------------------------------------------------------------------------ */

bool emit_counted_loop(onnx_ctx *c, tn_value *trips, tn_value *const *init, int n, emit_body *body, void *context,
                       tn_value **final)
{
    tn_value *start[33], *carried[33], *next[33];
    if (!trips || n > 32)
        return false;
    start[0] = tn_int_constant(&c->b, TN_I64, 0);
    for (int i = 0; i < n; i++)
        if (!(start[i + 1] = init[i]))
            return false;
    tn_block *regions[2] = {tn_block_new(c->b.graph, NULL), tn_block_new(c->b.graph, NULL)};
    for (int i = 0; i <= n; i++) {
        tn_value *argument = tn_block_arg(regions[0], &start[i]->type, NULL);
        carried[i] = tn_block_arg(regions[1], &start[i]->type, NULL);
        if (i == 0)
            next[0] = argument;
    }
    tn_builder outer = c->b;
    c->b = tn_builder_at_end(regions[0], outer.loc);
    tn_value *more = tn_compare(&c->b, "LT", next[0], trips);
    tn_return(&c->b, &more, 1);
    c->b = tn_builder_at_end(regions[1], outer.loc);
    next[0] = tn_binary(&c->b, TN_OP_add, carried[0], tn_int_constant(&c->b, TN_I64, 1));
    bool good = body(c, context, carried[0], carried + 1, next + 1) && !c->b.failed;
    if (good)
        tn_return(&c->b, next, n + 1);
    c->b = outer;
    c->b.failed |= !good;
    tn_op *loop = good ? tn_build(&c->b, TN_OP_while, start, n + 1, NULL, 0, regions, 2) : NULL;
    for (int i = 0; loop && i < n; i++)
        final[i] = &loop->result[i + 1];
    return loop != NULL;
}

/* ---- random numbers
 * ------------------------------------------------------------------------------------------------------------ */

static tn_value *word(onnx_ctx *c, uint32_t value)
{
    return tn_int_constant(&c->b, TN_U32, value);
}

static tn_value *rotate_left(onnx_ctx *c, tn_value *x, int bits)
{
    return emit_or(c, tn_binary_b(&c->b, TN_OP_shift_left, x, word(c, (uint32_t)bits)),
                   tn_binary_b(&c->b, TN_OP_shift_right_logical, x, word(c, (uint32_t)(32 - bits))));
}

/* The block cipher: two counter words and two key words to two random words, in place. */
static void threefry(onnx_ctx *c, const uint32_t key[2], tn_value *x[2])
{
    static const int rotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
    uint32_t keys[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA};
    x[0] = emit_add(c, x[0], word(c, keys[0]));
    x[1] = emit_add(c, x[1], word(c, keys[1]));
    for (uint32_t round = 0; round < 20; round++) {
        x[0] = emit_add(c, x[0], x[1]);
        x[1] = tn_binary(&c->b, TN_OP_xor, rotate_left(c, x[1], rotations[round % 8]), x[0]);
        if (round % 4 == 3) {
            uint32_t turn = round / 4 + 1;
            x[0] = emit_add(c, x[0], word(c, keys[turn % 3]));
            x[1] = emit_add(c, x[1], word(c, keys[(turn + 1) % 3] + turn));
        }
    }
}

/* Row-major position of each element, as two words of 32 bits. */
static void positions(onnx_ctx *c, const tn_dim *dims, int rank, tn_value *x[2])
{
    tn_value *at = emit_fill(c, tn_int_constant(&c->b, TN_U64, 0), dims, rank);
    tn_dim weight = emit_dim(c, 1);
    for (int i = rank - 1; i >= 0; i--) {
        at = emit_add(c, at, emit_mul(c, tn_iota(&c->b, TN_U64, dims, rank, i), emit_size(c, weight, TN_U64)));
        weight = tn_dim_mul(c->session, weight, dims[i]);
    }
    x[0] = tn_convert(&c->b, at, TN_U32);
    x[1] = tn_convert(&c->b, tn_binary_b(&c->b, TN_OP_shift_right_logical, at, tn_int_constant(&c->b, TN_U64, 32)),
                      TN_U32);
}

uint64_t emit_random_key(onnx_ctx *c, const onnx_node *n)
{
    union {
        double number;
        uint64_t bits;
    } seed = {.bits = c->nodes};
    if (onnx_has_attr(n, "seed")) /* Dropout's is an integer */
        seed.number = strcmp(n->op_type, "Dropout") == 0 ? (double)onnx_attr_int(c, n, "seed", 0)
                                                         : onnx_attr_float(c, n, "seed", 0);
    return tn_hash_u64(seed.bits + 1);
}

static void random_words(onnx_ctx *c, const onnx_node *n, const tn_dim *dims, int rank, tn_value *x[2])
{
    uint64_t mixed = emit_random_key(c, n);
    positions(c, dims, rank, x);
    threefry(c, (uint32_t[]){(uint32_t)mixed, (uint32_t)(mixed >> 32)}, x);
}

/* The upper 24 bits as a multiple of 2^-24: exact in f32. */
static tn_value *unit_interval(onnx_ctx *c, tn_value *bits)
{
    tn_value *top = tn_binary_b(&c->b, TN_OP_shift_right_logical, bits, word(c, 8));
    return emit_mul_number(c, tn_convert(&c->b, top, TN_F32), 0x1p-24);
}

tn_value *emit_uniform(onnx_ctx *c, const onnx_node *n, const tn_dim *dims, int rank)
{
    tn_value *x[2];
    random_words(c, n, dims, rank, x);
    return unit_interval(c, x[0]);
}

/* sqrt(-2 log(1 - u)) cos(2 pi v); 1 - u is in (0, 1], so the logarithm is finite. */
tn_value *emit_normal(onnx_ctx *c, const onnx_node *n, const tn_dim *dims, int rank)
{
    tn_value *x[2];
    random_words(c, n, dims, rank, x);
    tn_value *u = emit_unary(c, TN_OP_negate, unit_interval(c, x[0]));
    tn_value *radius = emit_unary(c, TN_OP_sqrt, emit_mul_number(c, emit_unary(c, TN_OP_log_plus_one, u), -2));
    return emit_mul(c, radius, emit_unary(c, TN_OP_cosine, emit_mul_number(c, unit_interval(c, x[1]), 2 * M_PI)));
}
