/* Random small graphs for the tests of src/opt: elementwise operations, data movement, reductions, windows and products
 * over f32, i32, i64 and bool, sizes static or made of the symbols b and s. The same seed gives the same graph. */
#ifndef TN_OPT_RANDOM_H
#define TN_OPT_RANDOM_H

#include <math.h>
#include <string.h>

#include "eval/eval.h"

typedef struct maker {
    tn_session *session;
    tn_graph *graph;
    tn_builder b;
    uint64_t seed;
    tn_value *pool[96];
    int n;
    bool convolutions;
} maker;

static uint64_t dice(maker *m, uint64_t sides)
{
    m->seed = m->seed * 6364136223846793005u + 1442695040888963407u;
    return (m->seed >> 33) % sides;
}

static tn_dim size(maker *m, int64_t value)
{
    return tn_dim_const(m->session, value);
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

static tn_dtype random_dtype(maker *m)
{
    static const tn_dtype list[] = {TN_F32, TN_F32, TN_F32, TN_I32, TN_I64, TN_BOOL};
    return list[dice(m, TN_COUNT(list))];
}

static tn_number random_number(maker *m, tn_dtype dtype)
{
    static const double floats[] = {0,   -0.0,     1,         -1,    2,      0.5,  -3.25,
                                    NAN, INFINITY, -INFINITY, 1e-40, -1e-42, 3e38, 1.0 / 3};
    static const int64_t ints[] = {0, 1, -1, 2, 3, -7, INT32_MAX, INT32_MIN, 5};
    if (dtype == TN_BOOL)
        return (tn_number){.u = dice(m, 2)};
    if (tn_is_float(dtype))
        return tn_number_from_double(dtype, floats[dice(m, TN_COUNT(floats))]);
    return tn_number_from_int(dtype, ints[dice(m, TN_COUNT(ints))]);
}

static tn_dim random_dim(maker *m)
{
    switch (dice(m, 8)) {
    case 0:
        return tn_dim_symbol(m->session, "b");
    case 1:
        return tn_dim_symbol(m->session, "s");
    case 2:
    case 3:
        return size(m, 1);
    default:
        return size(m, 2 + (int64_t)dice(m, 3));
    }
}

static void add(maker *m, tn_value *v)
{
    if (v && m->n < (int)TN_COUNT(m->pool))
        m->pool[m->n++] = v;
}

static tn_tensor *random_tensor(maker *m, tn_dtype dtype, int rank, const int64_t *dims)
{
    tn_tensor *t = TN_NEW(&m->session->arena, tn_tensor);
    size_t bytes = 0;
    int64_t count;
    *t = (tn_tensor){.dtype = dtype, .rank = rank};
    memcpy(t->dim, dims, (size_t)rank * sizeof *dims);
    if (!tn_tensor_count(t, &count) || !tn_dtype_bytes(dtype, count, &bytes))
        return NULL;
    char *data = tn_alloc(&m->session->arena, bytes + 16);
    for (int64_t i = 0; i < count; i++)
        tn_number_store(dtype, data, i, random_number(m, dtype));
    t->data = data;
    return t;
}

static tn_value *random_constant(maker *m, tn_dtype dtype, const tn_dim *dims, int rank)
{
    int64_t sizes[TN_MAX_RANK];
    for (int i = 0; i < rank; i++)
        sizes[i] = tn_dim_is_const(dims[i]) ? dims[i]->value : 1;
    if (dice(m, 2))
        return tn_constant(&m->b, tn_tensor_splat(m->session, dtype, rank, sizes, random_number(m, dtype)));
    return tn_constant(&m->b, random_tensor(m, dtype, rank, sizes));
}

static tn_value *any(maker *m)
{
    return m->pool[dice(m, (uint64_t)m->n)];
}

/* A value of this type: one that there is, or a broadcast of a random scalar or vector. */
static tn_value *like(maker *m, const tn_type *type, tn_dtype dtype)
{
    tn_type wanted = *type;
    wanted.dtype = dtype;
    for (int tries = 0; tries < 6; tries++) {
        tn_value *v = any(m);
        if (tn_type_same(&v->type, &wanted))
            return v;
    }
    int64_t axis = (int64_t)dice(m, (uint64_t)type->rank + 1);
    if (axis < type->rank && tn_dim_is_const(type->dim[axis]))
        return tn_broadcast_in_dim(&m->b, random_constant(m, dtype, &type->dim[axis], 1), type->dim, type->rank, &axis);
    return tn_broadcast_to(&m->b, random_constant(m, dtype, NULL, 0), type->dim, type->rank);
}

/* ---- operations ------------------------------------------------------------------------------------------------ */

static tn_value *random_unary(maker *m)
{
    static const tn_opcode floats[] = {
        TN_OP_negate, TN_OP_abs,         TN_OP_sign, TN_OP_floor, TN_OP_round_nearest_even,
        TN_OP_sqrt,   TN_OP_exponential, TN_OP_ceil};
    static const tn_opcode ints[] = {TN_OP_negate, TN_OP_abs, TN_OP_not, TN_OP_sign};
    tn_value *x = any(m);
    if (x->type.dtype == TN_BOOL)
        return tn_unary(&m->b, TN_OP_not, x);
    return tn_unary(&m->b,
                    tn_is_float(x->type.dtype) ? floats[dice(m, TN_COUNT(floats))] : ints[dice(m, TN_COUNT(ints))], x);
}

static tn_value *random_binary(maker *m)
{
    static const tn_opcode floats[] = {TN_OP_add,     TN_OP_subtract, TN_OP_multiply, TN_OP_divide,
                                       TN_OP_maximum, TN_OP_minimum,  TN_OP_power};
    static const tn_opcode ints[] = {TN_OP_add,     TN_OP_subtract, TN_OP_multiply, TN_OP_divide, TN_OP_maximum,
                                     TN_OP_minimum, TN_OP_and,      TN_OP_or,       TN_OP_xor,    TN_OP_shift_left};
    static const tn_opcode bools[] = {TN_OP_and, TN_OP_or, TN_OP_xor, TN_OP_add, TN_OP_multiply, TN_OP_maximum};
    tn_value *x = any(m), *y = dice(m, 8) ? like(m, &x->type, x->type.dtype) : x;
    if (dice(m, 2)) {
        tn_value *t = x;
        x = y;
        y = t;
    }
    tn_dtype dtype = x ? x->type.dtype : TN_F32;
    tn_opcode code = dtype == TN_BOOL     ? bools[dice(m, TN_COUNT(bools))]
                     : tn_is_float(dtype) ? floats[dice(m, TN_COUNT(floats))]
                                          : ints[dice(m, TN_COUNT(ints))];
    return tn_binary(&m->b, code, x, y);
}

static tn_value *random_compare(maker *m)
{
    static const char *const directions[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
    tn_value *x = any(m);
    return tn_compare(&m->b, directions[dice(m, 6)], x, dice(m, 6) ? like(m, &x->type, x->type.dtype) : x);
}

static tn_value *random_select(maker *m)
{
    tn_value *x = any(m);
    tn_value *p = like(m, &x->type, TN_BOOL);
    return tn_select(&m->b, p, x, like(m, &x->type, x->type.dtype));
}

static tn_value *random_clamp(maker *m)
{
    tn_value *x = any(m);
    if (x->type.dtype == TN_BOOL)
        return NULL;
    tn_value *operands[] = {random_constant(m, x->type.dtype, NULL, 0), x, random_constant(m, x->type.dtype, NULL, 0)};
    tn_op *op = tn_build(&m->b, TN_OP_clamp, operands, 3, NULL, 0, NULL, 0);
    return op ? &op->result[0] : NULL;
}

static tn_value *random_convert(maker *m)
{
    static const tn_dtype list[] = {TN_F32, TN_F64, TN_F16, TN_I32, TN_I64, TN_I8, TN_U8, TN_BOOL};
    return tn_convert(&m->b, tn_convert(&m->b, any(m), list[dice(m, TN_COUNT(list))]), random_dtype(m));
}

static tn_value *random_transpose(maker *m)
{
    tn_value *x = any(m);
    int64_t p[TN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++)
        p[i] = i;
    for (int i = x->type.rank - 1; i > 0; i--) {
        int k = (int)dice(m, (uint64_t)i + 1);
        int64_t t = p[i];
        p[i] = p[k];
        p[k] = t;
    }
    return tn_transpose(&m->b, x, p);
}

/* Merges two dimensions, splits one, or puts in or takes out a size of 1. */
static tn_value *random_reshape(maker *m)
{
    tn_value *x = any(m);
    tn_dim dims[TN_MAX_RANK];
    int n = 0, rank = x->type.rank, at = rank ? (int)dice(m, (uint64_t)rank) : 0, how = (int)dice(m, 3);
    for (int i = 0; i < rank; i++) {
        tn_dim d = x->type.dim[i];
        if (i == at && how == 0 && i + 1 < rank) {
            dims[n++] = tn_dim_mul(m->session, d, x->type.dim[i + 1]);
            i++;
        } else if (i == at && how == 1 && tn_dim_is(d, 4)) {
            dims[n++] = size(m, 2);
            dims[n++] = size(m, 2);
        } else if (!(i == at && how == 2 && tn_dim_is(d, 1))) {
            dims[n++] = d;
        }
    }
    if (n == rank && n < 5 && how == 2) {
        memmove(dims + at + 1, dims + at, (size_t)(n - at) * sizeof *dims);
        dims[at] = size(m, 1);
        n++;
    }
    return tn_reshape(&m->b, x, dims, n);
}

static tn_value *random_broadcast(maker *m)
{
    tn_value *x = any(m);
    tn_dim dims[TN_MAX_RANK];
    int64_t map[TN_MAX_RANK];
    int n = 0;
    if (x->type.rank > 2)
        return NULL;
    for (int i = 0; i < x->type.rank; i++) {
        if (dice(m, 2))
            dims[n++] = random_dim(m);
        map[i] = n;
        dims[n++] = tn_dim_is(x->type.dim[i], 1) ? random_dim(m) : x->type.dim[i];
    }
    dims[n++] = random_dim(m);
    return tn_broadcast_in_dim(&m->b, x, dims, n, map);
}

static tn_value *random_slice(maker *m)
{
    tn_value *x = any(m);
    tn_dim start[TN_MAX_RANK], limit[TN_MAX_RANK];
    int64_t stride[TN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++) {
        int64_t least = tn_max(x->type.dim[i]->lo, 0),
                cut = (int64_t)dice(m, (uint64_t)tn_min(least, 3) + 1) * (int64_t)dice(m, 2);
        start[i] = size(m, cut);
        limit[i] = dice(m, 3) || cut == least ? x->type.dim[i] : tn_dim_sub(m->session, x->type.dim[i], size(m, 1));
        stride[i] = dice(m, 4) ? 1 : 2;
        if (cut == least)
            limit[i] = dice(m, 2) ? size(m, least) : x->type.dim[i];
    }
    return tn_slice(&m->b, x, start, limit, stride);
}

static tn_value *random_pad(maker *m)
{
    tn_value *x = any(m);
    tn_dim low[TN_MAX_RANK], high[TN_MAX_RANK];
    int64_t interior[TN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++) {
        low[i] = size(m, (int64_t)dice(m, 3) - (x->type.dim[i]->lo > 1));
        high[i] = size(m, (int64_t)dice(m, 2));
        interior[i] = dice(m, 6) == 0;
    }
    return tn_pad(&m->b, x, random_constant(m, x->type.dtype, NULL, 0), low, high, interior);
}

static tn_value *random_concatenate(maker *m)
{
    tn_value *x = any(m), *list[3];
    int n = 1 + (int)dice(m, 3);
    if (x->type.rank == 0)
        return NULL;
    list[0] = x;
    for (int i = 1; i < n; i++)
        list[i] = like(m, &x->type, x->type.dtype);
    return tn_concatenate(&m->b, list, n, (int)dice(m, (uint64_t)x->type.rank));
}

static tn_value *random_reverse(maker *m)
{
    tn_value *x = any(m);
    int64_t axis = x->type.rank ? (int64_t)dice(m, (uint64_t)x->type.rank) : 0;
    return x->type.rank ? tn_reverse(&m->b, x, &axis, 1) : NULL;
}

static tn_value *random_reduce(maker *m)
{
    static const tn_opcode codes[] = {TN_OP_add, TN_OP_maximum, TN_OP_minimum, TN_OP_multiply};
    tn_value *x = any(m);
    int64_t axes[TN_MAX_RANK];
    int n = 0;
    for (int i = 0; i < x->type.rank; i++)
        if (dice(m, 2))
            axes[n++] = i;
    return tn_reduce(&m->b, codes[dice(m, TN_COUNT(codes))], x, axes, n);
}

static tn_value *random_window(maker *m)
{
    static const tn_opcode codes[] = {TN_OP_add, TN_OP_maximum};
    tn_value *x = any(m);
    int rank = x->type.rank;
    tn_dim window[TN_MAX_RANK], low[TN_MAX_RANK], high[TN_MAX_RANK];
    int64_t strides[TN_MAX_RANK], base[TN_MAX_RANK], dilation[TN_MAX_RANK];
    if (rank == 0)
        return NULL;
    for (int i = 0; i < rank; i++) {
        window[i] = size(m, 1 + (int64_t)dice(m, 2));
        low[i] = size(m, (int64_t)dice(m, 2));
        high[i] = size(m, (int64_t)dice(m, 2));
        strides[i] = 1 + (int64_t)dice(m, 2);
        base[i] = 1 + (dice(m, 5) == 0);
        dilation[i] = 1 + (dice(m, 5) == 0);
    }
    tn_attr attrs[] = {{.name = TN_A_window, .n = rank, .dims = window},
                       {.name = TN_A_window_strides, .n = rank, .ints = strides},
                       {.name = TN_A_base_dilation, .n = rank, .ints = base},
                       {.name = TN_A_window_dilation, .n = rank, .ints = dilation},
                       {.name = TN_A_padding_low, .n = rank, .dims = low},
                       {.name = TN_A_padding_high, .n = rank, .dims = high}};
    tn_value *operands[] = {x, random_constant(m, x->type.dtype, NULL, 0)};
    tn_block *region = tn_combine_block(m->graph, codes[dice(m, 2)], x->type.dtype);
    tn_op *op = tn_build(&m->b, TN_OP_reduce_window, operands, 2, attrs, TN_COUNT(attrs), &region, 1);
    return op ? &op->result[0] : NULL;
}

/* x times a value of x's shape, contracted along one dimension, batched along another or none */
static tn_value *random_dot(maker *m)
{
    tn_value *x = any(m);
    int rank = x->type.rank;
    if (rank == 0 || rank > 3 || x->type.dtype == TN_BOOL)
        return NULL;
    int64_t contract = (int64_t)dice(m, (uint64_t)rank), batch = (contract + 1) % rank;
    int nbatch = rank > 1 && dice(m, 2);
    return tn_dot_general(&m->b, x, like(m, &x->type, x->type.dtype), &batch, &batch, nbatch, &contract, &contract, 1);
}

/* Integers, since canonicalize may sum in another order. */
static tn_value *random_convolution(maker *m)
{
    static const char *const layouts[] = {"bf0", "b0f", "f0b"}, *const kernels[] = {"oi0", "0io", "io0"};
    tn_value *x = any(m);
    if (!m->convolutions || x->type.rank != 3 || x->type.dtype != TN_I32)
        return NULL;
    const char *lhs = layouts[dice(m, 3)], *rhs = kernels[dice(m, 3)];
    tn_dim feature = x->type.dim[strchr(lhs, 'f') - lhs], shape[3];
    bool depthwise = dice(m, 2);
    int64_t batches = !depthwise && tn_dim_is_const(x->type.dim[strchr(lhs, 'b') - lhs]) &&
                              x->type.dim[strchr(lhs, 'b') - lhs]->value % 2 == 0
                          ? 2
                          : 1;
    if (!tn_dim_is_const(feature))
        return NULL;
    shape[strchr(rhs, 'o') - rhs] = depthwise ? feature : size(m, 2);
    shape[strchr(rhs, 'i') - rhs] = depthwise ? size(m, 1) : feature;
    shape[strchr(rhs, '0') - rhs] = size(m, 2);
    int64_t stride = 1 + (int64_t)dice(m, 2), base = 1 + (int64_t)dice(m, 2), dilation = 1 + (int64_t)dice(m, 2),
            reversal = (int64_t)dice(m, 2);
    tn_dim low = size(m, (int64_t)dice(m, 3)), high = size(m, (int64_t)dice(m, 3));
    tn_attr attrs[] = {{.name = TN_A_lhs_layout, .s = lhs},
                       {.name = TN_A_rhs_layout, .s = rhs},
                       {.name = TN_A_out_layout, .s = layouts[dice(m, 3)]},
                       {.name = TN_A_window_strides, .n = 1, .ints = &stride},
                       {.name = TN_A_padding_low, .n = 1, .dims = &low},
                       {.name = TN_A_padding_high, .n = 1, .dims = &high},
                       {.name = TN_A_base_dilation, .n = 1, .ints = &base},
                       {.name = TN_A_window_dilation, .n = 1, .ints = &dilation},
                       {.name = TN_A_window_reversal, .n = 1, .ints = &reversal},
                       {.name = TN_A_feature_group_count, .i = depthwise ? feature->value : 1},
                       {.name = TN_A_batch_group_count, .i = batches}};
    tn_value *operands[] = {x, random_constant(m, TN_I32, shape, 3)};
    tn_op *op = tn_build(&m->b, TN_OP_convolution, operands, 2, attrs, TN_COUNT(attrs), NULL, 0);
    return op ? &op->result[0] : NULL;
}

/* Picks rows at constant places, some out of range, some evenly spaced. */
static tn_value *random_gather(maker *m)
{
    tn_value *x = any(m);
    int rank = x->type.rank, n = 0;
    if (rank == 0 || rank > 3)
        return NULL;
    int64_t axis = (int64_t)dice(m, (uint64_t)rank), count = 1 + (int64_t)dice(m, 3), first = (int64_t)dice(m, 3),
            step = (int64_t)dice(m, 4) - 1;
    int64_t place = (int64_t)dice(m, (uint64_t)rank), offset[TN_MAX_RANK], values[3];
    tn_dim sizes[TN_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        sizes[i] = i == axis ? size(m, 1) : x->type.dim[i];
        if (i != place)
            offset[n++] = i;
    }
    for (int i = 0; i < count; i++)
        values[i] = first + step * i;
    tn_attr attrs[] = {{.name = TN_A_offset_dims, .n = n, .ints = offset},
                       {.name = TN_A_collapsed_slice_dims, .n = 1, .ints = &axis},
                       {.name = TN_A_operand_batching_dims},
                       {.name = TN_A_indices_batching_dims},
                       {.name = TN_A_start_index_map, .n = 1, .ints = &axis},
                       {.name = TN_A_index_vector_dim, .i = 1},
                       {.name = TN_A_sizes, .n = rank, .dims = sizes}};
    tn_value *operands[] = {x, tn_constant(&m->b, tn_tensor_from_i64(m->session, 1, &count, values))};
    tn_op *op = tn_build(&m->b, TN_OP_gather, operands, 2, attrs, TN_COUNT(attrs), NULL, 0);
    return op ? &op->result[0] : NULL;
}

static tn_value *random_dynamic_slice(maker *m)
{
    tn_value *x = any(m), *operands[1 + TN_MAX_RANK] = {x};
    tn_dim sizes[TN_MAX_RANK];
    int rank = x->type.rank;
    for (int i = 0; i < rank; i++) {
        operands[1 + i] = dice(m, 4) ? tn_int_constant(&m->b, TN_I64, (int64_t)dice(m, 5) - 1)
                                     : tn_dimension(&m->b, tn_dim_symbol(m->session, "b"));
        sizes[i] = dice(m, 2) && x->type.dim[i]->lo > 0 ? size(m, 1) : x->type.dim[i];
    }
    tn_attr attr = {.name = TN_A_sizes, .n = rank, .dims = sizes};
    tn_op *op = tn_build(&m->b, TN_OP_dynamic_slice, operands, 1 + rank, &attr, 1, NULL, 0);
    return op ? &op->result[0] : NULL;
}

/* Neighbouring parts of a value, joined again. */
static tn_value *random_parts(maker *m)
{
    tn_value *x = any(m), *part[2];
    int rank = x->type.rank, axis = rank ? (int)dice(m, (uint64_t)rank) : 0;
    tn_dim start[TN_MAX_RANK], limit[TN_MAX_RANK];
    int64_t stride[TN_MAX_RANK];
    if (rank == 0 || x->type.dim[axis]->lo < 1)
        return NULL;
    for (int i = 0; i < rank; i++) {
        start[i] = size(m, 0);
        limit[i] = x->type.dim[i];
        stride[i] = 1;
    }
    limit[axis] = size(m, 1);
    part[0] = tn_slice(&m->b, x, start, limit, stride);
    start[axis] = limit[axis];
    limit[axis] = x->type.dim[axis];
    part[1] = tn_slice(&m->b, x, start, limit, stride);
    return tn_concatenate(&m->b, part, 2, axis);
}

/* The whole of a value, or a part of it, written over. */
static tn_value *random_update(maker *m)
{
    tn_value *x = any(m), *operands[2 + TN_MAX_RANK] = {x, like(m, &x->type, x->type.dtype)};
    for (int i = 0; i < x->type.rank; i++)
        operands[2 + i] = tn_int_constant(&m->b, TN_I64, (int64_t)dice(m, 3));
    tn_op *op = tn_build(&m->b, TN_OP_dynamic_update_slice, operands, 2 + x->type.rank, NULL, 0, NULL, 0);
    return op ? &op->result[0] : NULL;
}

static tn_value *random_sort(maker *m)
{
    tn_value *x = any(m);
    if (x->type.rank == 0 || x->type.dtype == TN_BOOL)
        return NULL;
    tn_block *region = tn_block_new(m->graph, NULL);
    tn_type scalar = tn_type_scalar(x->type.dtype);
    tn_value *p = tn_block_arg(region, &scalar, NULL), *q = tn_block_arg(region, &scalar, NULL);
    tn_builder inner = tn_builder_at_end(region, TN_NO_LOC);
    tn_value *less = tn_compare(&inner, "LT", p, q);
    tn_return(&inner, &less, 1);
    tn_attr attr = {.name = TN_A_dimension, .i = (int64_t)dice(m, (uint64_t)x->type.rank)};
    tn_op *op = tn_build(&m->b, TN_OP_sort, &x, 1, &attr, 1, &region, 1);
    return op ? &op->result[0] : NULL;
}

static tn_value *random_complex(maker *m)
{
    tn_value *x = any(m);
    if (x->type.dtype != TN_F32)
        return NULL;
    tn_value *operands[] = {x, like(m, &x->type, TN_F32)};
    tn_op *op = tn_build(&m->b, TN_OP_complex, operands, 2, NULL, 0, NULL, 0);
    return op ? tn_unary(&m->b, dice(m, 2) ? TN_OP_real : TN_OP_imag, &op->result[0]) : NULL;
}

/* if p { x + x } { x }, with p known or not */
static tn_value *random_if(maker *m)
{
    tn_value *x = any(m), *p = dice(m, 2) ? tn_int_constant(&m->b, TN_BOOL, (int64_t)dice(m, 2))
                                          : tn_reduce(&m->b, TN_OP_or, like(m, &x->type, TN_BOOL),
                                                      (int64_t[]){0, 1, 2, 3, 4}, x->type.rank);
    tn_block *region[2] = {tn_block_new(m->graph, NULL), tn_block_new(m->graph, NULL)};
    for (int i = 0; i < 2; i++) {
        tn_builder inner = tn_builder_at_end(region[i], TN_NO_LOC);
        tn_value *y = i ? x : tn_binary(&inner, x->type.dtype == TN_BOOL ? TN_OP_or : TN_OP_maximum, x, x);
        tn_return(&inner, &y, 1);
    }
    tn_op *op = tn_build(&m->b, TN_OP_if, &p, 1, NULL, 0, region, 2);
    return op ? &op->result[0] : NULL;
}

/* A composite of one operation, and a barrier behind it. */
static tn_value *random_composite(maker *m)
{
    tn_value *x = any(m);
    tn_block *region = tn_block_new(m->graph, NULL);
    tn_value *arg = tn_block_arg(region, &x->type, NULL);
    tn_builder inner = tn_builder_at_end(region, TN_NO_LOC);
    tn_value *y = tn_binary(&inner, x->type.dtype == TN_BOOL ? TN_OP_and : TN_OP_add, arg, arg);
    tn_return(&inner, &y, 1);
    tn_attr attr = {.name = TN_A_name, .s = "twice"};
    tn_op *op = tn_build(&m->b, TN_OP_composite, &x, 1, &attr, 1, &region, 1);
    y = op ? &op->result[0] : NULL;
    op = tn_build(&m->b, TN_OP_optimization_barrier, &y, 1, NULL, 0, NULL, 0);
    return op ? &op->result[0] : NULL;
}

/* Arithmetic on sizes. */
static tn_value *random_size(maker *m)
{
    static const tn_opcode codes[] = {TN_OP_add,    TN_OP_subtract,  TN_OP_multiply,
                                      TN_OP_divide, TN_OP_remainder, TN_OP_maximum};
    tn_value *x = tn_dimension(&m->b, random_dim(m)), *y = tn_dimension(&m->b, random_dim(m));
    x = tn_binary(&m->b, codes[dice(m, TN_COUNT(codes))], x, y);
    if (dice(m, 3) == 0)
        x = tn_convert(&m->b, tn_compare(&m->b, "LT", x, y), TN_I64);
    return x;
}

static tn_value *random_source(maker *m)
{
    tn_dim dims[3];
    int rank = 1 + (int)dice(m, 3);
    for (int i = 0; i < rank; i++)
        dims[i] = random_dim(m);
    if (dice(m, 3) == 0)
        return tn_iota(&m->b, TN_I32, dims, rank, (int)dice(m, (uint64_t)rank));
    return random_constant(m, random_dtype(m), dims, rank);
}

/* ---- the graph ----------------------------------------------------------------------------------------------------
 */

static void random_op(maker *m)
{
    static tn_value *(*const make[])(maker *) = {
        random_unary,     random_binary,  random_binary,      random_binary,      random_compare,       random_select,
        random_clamp,     random_convert, random_transpose,   random_transpose,   random_reshape,       random_reshape,
        random_broadcast, random_slice,   random_pad,         random_concatenate, random_reverse,       random_reduce,
        random_window,    random_dot,     random_convolution, random_gather,      random_dynamic_slice, random_size,
        random_source,    random_parts,   random_update,      random_sort,        random_complex,       random_if,
        random_composite,
    };
    enum { MOST_ELEMENTS = 400 };
    size_t facts = m->graph->equal.len;
    const tn_op *mark = m->graph->body->last;
    tn_value *v = make[dice(m, TN_COUNT(make))](m);
    bool fine = v && !m->b.failed && m->graph->equal.len == facts;
    for (int i = 0; fine && i < v->type.rank; i++)
        fine = v->type.dim[i]->lo >= 0;
    tn_dim elements = fine ? tn_type_elements(m->session, &v->type) : NULL;
    if (fine && elements->hi <= MOST_ELEMENTS && v->type.rank <= 5) {
        add(m, v);
        return;
    }
    while (m->graph->body->last != mark)
        tn_erase(m->graph->body->last);
    m->graph->equal.len = facts;
    m->b.failed = false;
    m->session->diags.len = m->session->errors = 0;
}

enum { RANDOM_OUTPUTS = 10 };

/* Inputs of all types, `ops` operations; the last values and some others are returned. */
static tn_graph *random_graph(tn_session *session, uint64_t seed, int ops, bool convolutions)
{
    static const tn_dtype types[] = {TN_F32, TN_F32, TN_I32, TN_BOOL};
    maker m = {.session = session,
               .graph = tn_graph_new(session, "random"),
               .seed = seed * 0x9e3779b97f4a7c15u + 1,
               .convolutions = convolutions};
    tn_dim_declare(session, "b", 1, 3, 1);
    tn_dim_declare(session, "s", 0, 3, 1);
    for (size_t i = 0; i < TN_COUNT(types); i++) {
        tn_type type = {.dtype = types[i], .rank = 1 + (int)dice(&m, 3)};
        for (int k = 0; k < type.rank; k++)
            type.dim[k] = random_dim(&m);
        add(&m, tn_graph_input(m.graph, NULL, &type));
    }
    m.b = tn_builder_at_end(m.graph->body, TN_NO_LOC);
    for (int i = 0; i < ops; i++)
        random_op(&m);
    tn_value *out[RANDOM_OUTPUTS];
    for (int i = 0; i < RANDOM_OUTPUTS; i++)
        out[i] = i < RANDOM_OUTPUTS / 2 ? m.pool[m.n - 1 - i] : any(&m);
    tn_return(&m.b, out, RANDOM_OUTPUTS);
    return m.graph;
}

/* Inputs for b and s of these values. */
static const tn_tensor **random_inputs(tn_session *session, const tn_graph *graph, uint64_t seed, int64_t b, int64_t s)
{
    maker m = {.session = session, .seed = seed};
    tn_dim_env env = {.values = {.arena = &session->arena}, .arena = &session->arena};
    const tn_tensor **in = TN_NEW_ARRAY(&session->arena, const tn_tensor *, (size_t)graph->body->nargs);
    tn_env_set(&env, "b", b);
    tn_env_set(&env, "s", s);
    for (int i = 0; i < graph->body->nargs; i++) {
        const tn_type *type = &graph->body->arg[i]->type;
        int64_t dims[TN_MAX_RANK];
        for (int k = 0; k < type->rank; k++)
            tn_env_eval(&env, type->dim[k], &dims[k]);
        in[i] = random_tensor(&m, type->dtype, type->rank, dims);
    }
    return in;
}

#endif
