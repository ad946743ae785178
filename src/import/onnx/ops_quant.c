/* Quantisation, and products of quantised integers. Rounding is to nearest even; conversion to an integer type
 * saturates. */
#include "import/onnx/window.h"

#include <string.h>

/* ---- scales and zero points
 * --------------------------------------------------------------------------------------------- */

/* A scale or zero point in x's shape: of one element; rank 1, along `axis`; or of x's rank, `block` elements of the
 * axis an entry. */
static tn_value *granular(onnx_ctx *c, const onnx_node *n, tn_value *p, const tn_type *like, int64_t axis,
                          int64_t block)
{
    int at;
    if (p->type.rank == 0)
        return emit_fill(c, p, like->dim, like->rank);
    if (p->type.rank == 1 && tn_dim_is(p->type.dim[0], 1) && (like->rank != 1 || block == 0))
        return emit_fill(c, tn_reshape(&c->b, p, NULL, 0), like->dim, like->rank);
    if (like->rank == 1)
        axis = 0;
    if (!onnx_axis(c, n, axis, like->rank, &at))
        return NULL;
    if (p->type.rank == 1 && (block == 0 || like->rank > 1))
        return emit_along(c, p, like, at);
    if (p->type.rank != like->rank || block < 1 || like->rank == TN_MAX_RANK) {
        onnx_error(c, n, "a scale of rank %d needs an input of that rank and `block_size`, found rank %d and %lld",
                   p->type.rank, like->rank, (long long)block);
        return NULL;
    }
    tn_dim wide[TN_MAX_RANK], joined[TN_MAX_RANK];
    int64_t axes[TN_MAX_RANK];
    for (int i = 0; i < like->rank; i++) {
        axes[i] = i <= at ? i : i + 1;
        wide[axes[i]] = joined[i] = p->type.dim[i];
    }
    wide[at + 1] = emit_dim(c, block);
    joined[at] = tn_dim_mul(c->session, joined[at], wide[at + 1]);
    p = tn_broadcast_in_dim(&c->b, p, wide, like->rank + 1, axes);
    p = p ? tn_reshape(&c->b, p, joined, like->rank) : NULL;
    return emit_slice_axis(c, p, at, emit_dim(c, 0), like->dim[at], 1);
}

static tn_value *convert_saturating(onnx_ctx *c, tn_value *x, tn_dtype to, bool saturate)
{
    tn_attr attrs[] = {{.name = TN_A_dtype, .i = to}, {.name = TN_A_saturate, .i = saturate}};
    tn_op *op = x ? tn_build(&c->b, TN_OP_convert, &x, 1, attrs, saturate ? 2 : 1, NULL, 0) : NULL;
    return op ? &op->result[0] : NULL;
}

/* round(x / scale) + zero, saturated; operands of one float type and shape. zero: NULL for none. */
static tn_value *quantised(onnx_ctx *c, tn_value *x, tn_value *scale, tn_value *zero, tn_dtype to, bool saturate)
{
    tn_value *y = emit_div(c, x, scale);
    if (tn_is_float(to)) {
        if (zero)
            y = emit_add(c, y, tn_convert(&c->b, zero, y ? y->type.dtype : TN_F32));
        return convert_saturating(c, y, to, saturate);
    }
    y = emit_unary(c, TN_OP_round_nearest_even, y);
    if (y && tn_dtype_bits(y->type.dtype) < 32) /* a zero point of 16 bits is not exact in f16 */
        y = tn_convert(&c->b, y, TN_F32);
    if (zero && y)
        y = emit_add(c, y, tn_convert(&c->b, zero, y->type.dtype));
    return tn_convert(&c->b, y, to);
}

bool onnx_op_quantize(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *scale = n->input[1], *zero = onnx_in(n, 2);
    tn_dtype to = onnx_attr_dtype(c, n, "output_dtype", zero ? zero->type.dtype : TN_U8);
    if (onnx_has_attr(n, "output_dtype") && onnx_attr_int(c, n, "output_dtype", 0) == 0)
        to = zero ? zero->type.dtype : TN_U8;
    tn_dtype work = tn_is_float(scale->type.dtype) ? scale->type.dtype : TN_F32;
    if (onnx_attr_int(c, n, "precision", 0))
        work = onnx_attr_dtype(c, n, "precision", work);
    if (to == TN_NO_DTYPE || work == TN_NO_DTYPE)
        return false;
    int64_t axis = onnx_attr_int(c, n, "axis", 1), block = onnx_attr_int(c, n, "block_size", 0);
    scale = granular(c, n, tn_convert(&c->b, scale, work), &x->type, axis, block);
    zero = zero ? granular(c, n, zero, &x->type, axis, block) : NULL;
    bool saturate = onnx_attr_int(c, n, "saturate", 1);
    return onnx_set_output(c, n, 0, quantised(c, tn_convert(&c->b, x, work), scale, zero, to, saturate));
}

/* (x - zero) * scale in the output's type; the difference is exact in 32 bits. */
bool onnx_op_dequantize(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *scale = n->input[1], *zero = onnx_in(n, 2);
    tn_dtype to = scale->type.dtype;
    if (onnx_attr_int(c, n, "output_dtype", 0))
        to = onnx_attr_dtype(c, n, "output_dtype", to);
    if (to == TN_NO_DTYPE)
        return false;
    int64_t axis = onnx_attr_int(c, n, "axis", 1), block = onnx_attr_int(c, n, "block_size", 0);
    tn_dtype exact = tn_is_float(x->type.dtype) ? TN_F32 : TN_I32;
    tn_value *y = tn_convert(&c->b, x, exact);
    if (zero)
        y = emit_sub(c, y, tn_convert(&c->b, granular(c, n, zero, &x->type, axis, block), exact));
    scale = granular(c, n, tn_convert(&c->b, scale, to), &x->type, axis, block);
    return onnx_set_output(c, n, 0, emit_mul(c, tn_convert(&c->b, y, to), scale));
}

/* u8 with the range widened to hold 0: scale = (max - min) / 255, zero = saturate(round(-min / scale)). */
static tn_value *dynamically_quantised(onnx_ctx *c, tn_value *x, tn_value **scale_out, tn_value **zero_out)
{
    tn_dtype dtype = x->type.dtype;
    int64_t axes[TN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++)
        axes[i] = i;
    tn_value *zero = emit_number(c, dtype, 0);
    tn_value *high = emit_max(c, emit_reduce(c, TN_OP_maximum, x, axes, x->type.rank), zero);
    tn_value *low = emit_min(c, emit_reduce(c, TN_OP_minimum, x, axes, x->type.rank), zero);
    tn_value *scale = emit_div(c, emit_sub(c, high, low), emit_number(c, dtype, 255));
    tn_value *safe = emit_select(c, emit_compare_number(c, "EQ", scale, 0), emit_number(c, dtype, 1), scale);
    tn_value *point = emit_unary(c, TN_OP_round_nearest_even, emit_div(c, emit_unary(c, TN_OP_negate, low), safe));
    point = tn_convert(&c->b, emit_clamp(c, point, 0, 255), TN_U8);
    *scale_out = scale;
    *zero_out = point;
    return quantised(c, x, safe, point, TN_U8, true);
}

bool onnx_op_dynamic_quantize(onnx_ctx *c, const onnx_node *n)
{
    tn_value *scale, *zero, *y = dynamically_quantised(c, n->input[0], &scale, &zero);
    return onnx_set_output(c, n, 0, y) && onnx_set_output(c, n, 1, scale) && onnx_set_output(c, n, 2, zero);
}

/* ---- products
 * --------------------------------------------------------------------------------------------------------------- */

/* x as i32 less its zero point, which is of one element, or rank 1 along `axis`, or broadcast. */
static tn_value *centered_integer(onnx_ctx *c, tn_value *x, tn_value *zero, int axis)
{
    tn_value *wide = tn_convert(&c->b, x, TN_I32);
    if (!zero || !wide)
        return wide;
    zero = tn_convert(&c->b, zero, TN_I32);
    if (zero && zero->type.rank == 1)
        zero =
            tn_dim_is(zero->type.dim[0], 1) ? tn_reshape(&c->b, zero, NULL, 0) : emit_along(c, zero, &wide->type, axis);
    return emit_sub(c, wide, zero);
}

static tn_value *integer_matmul(onnx_ctx *c, tn_value *x, tn_value *x_zero, tn_value *y, tn_value *y_zero)
{
    int row = x->type.rank < 2 ? 0 : x->type.rank - 2;
    return emit_matmul(c, centered_integer(c, x, x_zero, row), centered_integer(c, y, y_zero, y->type.rank - 1));
}

bool onnx_op_matmul_integer(onnx_ctx *c, const onnx_node *n)
{
    return onnx_set_output(c, n, 0, integer_matmul(c, n->input[0], onnx_in(n, 2), n->input[1], onnx_in(n, 3)));
}

/* A scale of rank 1 belongs to rows (left operand) or columns: [M] becomes [M, 1] against the product. */
static tn_value *row_scale(onnx_ctx *c, tn_value *scale)
{
    if (scale->type.rank != 1 || tn_dim_is(scale->type.dim[0], 1))
        return scale;
    return tn_reshape(&c->b, scale, (tn_dim[]){scale->type.dim[0], emit_dim(c, 1)}, 2);
}

bool onnx_op_qlinear_matmul(onnx_ctx *c, const onnx_node *n)
{
    tn_value *sum = integer_matmul(c, n->input[0], n->input[2], n->input[3], n->input[5]), *zero = n->input[7];
    tn_dtype work = TN_F32;
    tn_value *scale =
        emit_mul(c, row_scale(c, tn_convert(&c->b, n->input[1], work)), tn_convert(&c->b, n->input[4], work));
    tn_value *ratio = emit_div(c, tn_convert(&c->b, n->input[6], work), scale);
    tn_value *y = emit_div(c, tn_convert(&c->b, sum, work), ratio);
    y = emit_add(c, emit_unary(c, TN_OP_round_nearest_even, y), tn_convert(&c->b, zero, work));
    return onnx_set_output(c, n, 0, tn_convert(&c->b, y, zero->type.dtype));
}

static tn_value *integer_conv(onnx_ctx *c, const onnx_node *n, tn_value *x, tn_value *x_zero, tn_value *w,
                              tn_value *w_zero)
{
    onnx_window window;
    if (!onnx_read_window(c, n, &x->type, &w->type, &window))
        return NULL;
    return onnx_convolution(c, centered_integer(c, x, x_zero, 1), centered_integer(c, w, w_zero, 0), &window,
                            onnx_attr_int(c, n, "group", 1));
}

bool onnx_op_conv_integer(onnx_ctx *c, const onnx_node *n)
{
    tn_value *y = integer_conv(c, n, n->input[0], onnx_in(n, 2), n->input[1], onnx_in(n, 3));
    return y && onnx_set_output(c, n, 0, y);
}

bool onnx_op_qlinear_conv(onnx_ctx *c, const onnx_node *n)
{
    tn_value *y = integer_conv(c, n, n->input[0], n->input[2], n->input[3], n->input[5]), *zero = n->input[7];
    if (!y)
        return false;
    tn_type type = y->type;
    if (onnx_in(n, 8))
        y = emit_add(c, y, emit_along(c, n->input[8], &type, 1));
    tn_value *weight_scale = n->input[4];
    if (weight_scale->type.rank == 1)
        weight_scale = tn_dim_is(weight_scale->type.dim[0], 1) ? tn_reshape(&c->b, weight_scale, NULL, 0)
                                                               : emit_along(c, weight_scale, &type, 1);
    tn_value *scale = emit_div(c, emit_mul(c, n->input[1], weight_scale), n->input[6]);
    y = emit_unary(c, TN_OP_round_nearest_even, emit_mul(c, tn_convert(&c->b, y, TN_F32), scale));
    y = emit_add(c, y, tn_convert(&c->b, zero, TN_F32));
    return onnx_set_output(c, n, 0, tn_convert(&c->b, y, zero->type.dtype));
}

/* ---- com.microsoft
 * ------------------------------------------------------------------------------------------------------------ */

/* (x - zero) * scale as f32; scale and zero of one element. zero may be NULL. */
static tn_value *dequantised(onnx_ctx *c, tn_value *x, tn_value *scale, tn_value *zero)
{
    tn_value *wide = centered_integer(c, x, zero, 0);
    return emit_mul(c, tn_convert(&c->b, wide, TN_F32), scale);
}

static tn_value *requantised(onnx_ctx *c, tn_value *x, tn_value *scale, tn_value *zero, tn_dtype to)
{
    return quantised(c, x, scale, zero, to, true);
}

/* QLinearAdd, QLinearMul: A, scale, zero, B, scale, zero, C's scale, zero. */
bool onnx_op_qlinear_binary(onnx_ctx *c, const onnx_node *n)
{
    tn_value *a = dequantised(c, n->input[0], n->input[1], onnx_in(n, 2));
    tn_value *b = dequantised(c, n->input[3], n->input[4], onnx_in(n, 5));
    tn_value *y = strcmp(n->op_type, "QLinearAdd") == 0 ? emit_add(c, a, b) : emit_mul(c, a, b);
    return onnx_set_output(c, n, 0, requantised(c, y, n->input[6], onnx_in(n, 7), n->input[0]->type.dtype));
}

/* QLinearSigmoid, QLinearLeakyRelu: X, scale, zero, Y's scale, zero. */
bool onnx_op_qlinear_unary(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = dequantised(c, n->input[0], n->input[1], onnx_in(n, 2)), *y;
    if (strcmp(n->op_type, "QLinearSigmoid") == 0)
        y = emit_unary(c, TN_OP_logistic, x);
    else
        y = emit_select(c, emit_compare_number(c, "LT", x, 0),
                        emit_mul_number(c, x, onnx_attr_float(c, n, "alpha", 0.01f)), x);
    return onnx_set_output(c, n, 0, requantised(c, y, n->input[3], onnx_in(n, 4), n->input[0]->type.dtype));
}

/* MatMulIntegerToFloat: A, B, A's scale, B's scale (one, or one a column), zeros, bias. DynamicQuantizeMatMul: A (f32,
 * quantised here), B, B's scale, zero, bias. */
bool onnx_op_matmul_to_float(onnx_ctx *c, const onnx_node *n)
{
    bool dynamic = strcmp(n->op_type, "DynamicQuantizeMatMul") == 0;
    tn_value *a = n->input[0], *a_scale = dynamic ? NULL : n->input[2], *a_zero = dynamic ? NULL : onnx_in(n, 4);
    tn_value *b_scale = n->input[dynamic ? 2 : 3], *b_zero = onnx_in(n, dynamic ? 3 : 5),
             *bias = onnx_in(n, dynamic ? 4 : 6);
    if (a->type.rank < 1 || n->input[1]->type.rank < 1)
        return onnx_error(c, n, "operands must have at least rank 1");
    if (dynamic)
        a = dynamically_quantised(c, a, &a_scale, &a_zero);
    tn_value *sum = !a ? NULL : integer_matmul(c, a, a_zero, n->input[1], b_zero);
    tn_value *y = emit_mul(c, tn_convert(&c->b, sum, TN_F32), emit_mul(c, a_scale, b_scale));
    return onnx_set_output(c, n, 0, bias ? emit_add(c, y, bias) : y);
}
