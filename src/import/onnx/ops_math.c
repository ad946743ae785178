/* Elementwise operators: arithmetic, comparison, logic, activations. */
#include "import/onnx/emit.h"

#include <math.h>
#include <string.h>

/* ---- one operand
 * -------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *type;
    tn_opcode code;
} codes[] = {
    {"Abs", TN_OP_abs},        {"Neg", TN_OP_negate},
    {"Sign", TN_OP_sign},      {"Floor", TN_OP_floor},
    {"Ceil", TN_OP_ceil},      {"Round", TN_OP_round_nearest_even},
    {"Sqrt", TN_OP_sqrt},      {"Exp", TN_OP_exponential},
    {"Log", TN_OP_log},        {"Sigmoid", TN_OP_logistic},
    {"Sin", TN_OP_sine},       {"Cos", TN_OP_cosine},
    {"Tan", TN_OP_tan},        {"Tanh", TN_OP_tanh},
    {"Erf", TN_OP_erf},        {"Asin", TN_OP_asin},
    {"Acos", TN_OP_acos},      {"Atan", TN_OP_atan},
    {"Sinh", TN_OP_sinh},      {"Cosh", TN_OP_cosh},
    {"Asinh", TN_OP_asinh},    {"Acosh", TN_OP_acosh},
    {"Atanh", TN_OP_atanh},    {"Not", TN_OP_not},
    {"BitwiseNot", TN_OP_not}, {"Add", TN_OP_add},
    {"Sub", TN_OP_subtract},   {"Mul", TN_OP_multiply},
    {"Div", TN_OP_divide},     {"And", TN_OP_and},
    {"Or", TN_OP_or},          {"Xor", TN_OP_xor},
    {"BitwiseAnd", TN_OP_and}, {"BitwiseOr", TN_OP_or},
    {"BitwiseXor", TN_OP_xor}, {"Sum", TN_OP_add},
    {"Mean", TN_OP_add},       {"Max", TN_OP_maximum},
    {"Min", TN_OP_minimum},
};

static tn_opcode code_of(const onnx_node *n)
{
    for (size_t i = 0; i < TN_COUNT(codes); i++)
        if (strcmp(codes[i].type, n->op_type) == 0)
            return codes[i].code;
    return TN_OP_COUNT;
}

bool onnx_op_unary(onnx_ctx *c, const onnx_node *n)
{
    return onnx_set_output(c, n, 0, emit_unary(c, code_of(n), n->input[0]));
}

bool onnx_op_reciprocal(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    return onnx_set_output(c, n, 0, emit_div(c, emit_number(c, x->type.dtype, 1), x));
}

bool onnx_op_is_nan(onnx_ctx *c, const onnx_node *n)
{
    return onnx_set_output(c, n, 0, tn_compare(&c->b, "NE", n->input[0], n->input[0]));
}

bool onnx_op_is_inf(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    bool negative = onnx_attr_int(c, n, "detect_negative", 1), positive = onnx_attr_int(c, n, "detect_positive", 1);
    if (x->type.dtype == TN_F8E4M3 || (!negative && !positive)) /* no such values, or none wanted */
        return onnx_set_output(c, n, 0, emit_fill(c, emit_number(c, TN_BOOL, 0), x->type.dim, x->type.rank));
    if (negative && positive)
        x = emit_unary(c, TN_OP_abs, x);
    return onnx_set_output(c, n, 0, emit_compare_number(c, "EQ", x, positive ? INFINITY : -INFINITY));
}

bool onnx_op_bit_cast(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    tn_dtype to = onnx_attr_dtype(c, n, "to", TN_NO_DTYPE);
    if (to == TN_NO_DTYPE)
        return false;
    if (to == TN_BOOL || x->type.dtype == TN_BOOL) { /* a byte that is 0 or 1 */
        bool byte = tn_dtype_bits(to) == 8 && tn_dtype_bits(x->type.dtype) == 8 && !tn_is_float(to) &&
                    !tn_is_float(x->type.dtype);
        return byte ? onnx_set_output(c, n, 0, tn_convert(&c->b, x, to))
                    : onnx_unsupported(c, n, "bool against other than integers of 8 bits");
    }
    if (tn_dtype_bits(to) != tn_dtype_bits(x->type.dtype))
        return onnx_error(c, n, "`to` must have as many bits as the input's type %s, found %s",
                          tn_dtype_text(x->type.dtype), tn_dtype_text(to));
    tn_op *op = tn_build(&c->b, TN_OP_bitcast_convert, &x, 1, &(tn_attr){.name = TN_A_dtype, .i = to}, 1, NULL, 0);
    return onnx_set_output(c, n, 0, op ? &op->result[0] : NULL);
}

/* ---- several operands
 * ----------------------------------------------------------------------------------------------------- */

/* Before opset 7 a second operand was aligned at `axis` by attribute; without it, shapes agree or trailing ones match.
 */
static tn_value *align_second(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *y = n->input[1];
    int64_t axis = onnx_attr_int(c, n, "axis", -1);
    if (c->opset >= 7 || !onnx_attr_int(c, n, "broadcast", 0) || !onnx_has_attr(n, "axis"))
        return y;
    tn_dim dims[TN_MAX_RANK];
    int at;
    if (!onnx_axis(c, n, axis, x->type.rank, &at))
        return NULL;
    if (at + y->type.rank > x->type.rank) {
        onnx_error(c, n, "second operand of rank %d does not fit at axis %d of rank %d", y->type.rank, at,
                   x->type.rank);
        return NULL;
    }
    for (int i = 0; i < x->type.rank - at; i++)
        dims[i] = i < y->type.rank ? y->type.dim[i] : emit_dim(c, 1);
    return emit_reshape(c, y, x->type.rank - at, dims);
}

bool onnx_op_binary(onnx_ctx *c, const onnx_node *n)
{
    tn_value *y = align_second(c, n);
    return y && onnx_set_output(c, n, 0, tn_binary_b(&c->b, code_of(n), n->input[0], y));
}

bool onnx_op_compare(onnx_ctx *c, const onnx_node *n)
{
    static const char *const rows[][2] = {
        {"Equal", "EQ"}, {"Greater", "GT"}, {"Less", "LT"}, {"GreaterOrEqual", "GE"}, {"LessOrEqual", "LE"}};
    const char *direction = NULL;
    for (size_t i = 0; i < TN_COUNT(rows); i++)
        if (strcmp(rows[i][0], n->op_type) == 0)
            direction = rows[i][1];
    tn_value *y = align_second(c, n);
    return y && onnx_set_output(c, n, 0, emit_compare(c, direction, n->input[0], y));
}

/* Sum, Mean, Max, Min of any number of operands, from left to right. */
bool onnx_op_variadic(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    for (int i = 1; i < n->ninputs; i++) {
        if (!n->input[i])
            return onnx_error(c, n, "operand %d is missing", i);
        x = tn_binary_b(&c->b, code_of(n), x, n->input[i]);
    }
    if (strcmp(n->op_type, "Mean") == 0 && n->ninputs > 1)
        x = !x ? NULL : emit_div(c, x, emit_number(c, x->type.dtype, n->ninputs));
    return onnx_set_output(c, n, 0, x);
}

bool onnx_op_mod(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *y = n->input[1];
    bool truncated = onnx_attr_int(c, n, "fmod", 0);
    return onnx_set_output(c, n, 0, truncated ? tn_binary_b(&c->b, TN_OP_remainder, x, y) : emit_floor_mod(c, x, y));
}

/* The result has the base's type; an integer base with a fractional exponent is computed in f64. x^2 is x * x (the same
 * bits). */
bool onnx_op_pow(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *y = align_second(c, n);
    tn_dtype type = x->type.dtype;
    double exponent;
    if (!y)
        return false;
    if (onnx_constant_number(c, y, &exponent) && exponent == 2 && y->type.rank == 0)
        return onnx_set_output(c, n, 0, emit_mul(c, x, x));
    tn_dtype work = tn_is_integer(type) && tn_is_float(y->type.dtype) ? TN_F64 : type;
    tn_value *power = tn_binary_b(&c->b, TN_OP_power, tn_convert(&c->b, x, work), tn_convert(&c->b, y, work));
    return onnx_set_output(c, n, 0, tn_convert(&c->b, power, type));
}

bool onnx_op_bit_shift(onnx_ctx *c, const onnx_node *n)
{
    const char *direction = onnx_attr_string(c, n, "direction", "");
    bool left = strcmp(direction, "LEFT") == 0;
    if (!left && strcmp(direction, "RIGHT") != 0)
        return onnx_error(c, n, "`direction` must be LEFT or RIGHT, found '%s'", direction);
    tn_opcode code = left ? TN_OP_shift_left : TN_OP_shift_right_logical;
    return onnx_set_output(c, n, 0, tn_binary_b(&c->b, code, n->input[0], n->input[1]));
}

/* Bounds are attributes before opset 11, optional inputs since. An upper bound below the lower one wins. */
bool onnx_op_clip(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *low = onnx_in(n, 1), *high = onnx_in(n, 2);
    if (c->opset < 11) {
        low = onnx_has_attr(n, "min") ? emit_number(c, x->type.dtype, onnx_attr_float(c, n, "min", 0)) : NULL;
        high = onnx_has_attr(n, "max") ? emit_number(c, x->type.dtype, onnx_attr_float(c, n, "max", 0)) : NULL;
    }
    if (low)
        x = emit_max(c, x, low);
    if (high)
        x = emit_min(c, x, high);
    return onnx_set_output(c, n, 0, x);
}

/* ---- activations
 * ------------------------------------------------------------------------------------------------------------ */

bool onnx_op_relu(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    return onnx_set_output(c, n, 0, emit_max(c, x, emit_number(c, x->type.dtype, 0)));
}

/* The tanh form for 16 bits and fewer, as x times logistic of twice what tanh is taken of: the same function, which loses no bits where tanh is near -1. In f32, as
 * frameworks do, as x (a + b x^2), whose numbers take in what follows; but for what x is multiplied with, whose own rounding a machine's short forms need. */
static tn_value *narrow_gelu(onnx_ctx *c, tn_value *narrow)
{
    tn_dtype type = narrow->type.dtype;
    const double scale = sqrt(8 / M_PI);
    tn_value *x = tn_convert(&c->b, narrow, TN_F32);
    tn_value *inner = emit_mul(c, x, emit_add_number(c, emit_mul_number(c, emit_mul(c, x, x), 0.044715 * scale), scale));
    return emit_mul(c, narrow, tn_convert(&c->b, emit_unary(c, TN_OP_logistic, inner), type));
}

/* 0.5 x (1 + erf(x / sqrt 2)), or the tanh form. */
static tn_value *gelu(onnx_ctx *c, tn_value *x, bool tanh_form)
{
    tn_value *inner;
    if (tanh_form && tn_is_float(x->type.dtype) && tn_dtype_bits(x->type.dtype) <= 16)
        return narrow_gelu(c, x);
    if (tanh_form) {
        tn_value *cube = emit_mul(c, emit_mul(c, x, x), x);
        inner = emit_mul_number(c, emit_add(c, x, emit_mul_number(c, cube, 0.044715)), sqrt(2 / M_PI));
        inner = emit_unary(c, TN_OP_tanh, inner);
    } else {
        inner = emit_unary(c, TN_OP_erf, emit_mul_number(c, x, M_SQRT1_2));
    }
    return emit_mul(c, emit_mul_number(c, x, 0.5), emit_add_number(c, inner, 1));
}

bool onnx_op_gelu(onnx_ctx *c, const onnx_node *n)
{
    return onnx_set_output(c, n, 0,
                           gelu(c, n->input[0], strcmp(onnx_attr_string(c, n, "approximate", "none"), "tanh") == 0));
}

/* com.microsoft FastGelu and BiasGelu: x (+ bias). */
bool onnx_op_bias_gelu(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = onnx_in(n, 1) ? emit_add(c, n->input[0], n->input[1]) : n->input[0];
    return onnx_set_output(c, n, 0, gelu(c, x, strcmp(n->op_type, "FastGelu") == 0));
}

/* com.microsoft QuickGelu has Swish's form with alpha = 1.702 by default. */
bool onnx_op_swish(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    double alpha = onnx_attr_float(c, n, "alpha", strcmp(n->op_type, "QuickGelu") == 0 ? 1.702 : 1);
    tn_value *scaled = alpha == 1 ? x : emit_mul_number(c, x, alpha);
    return onnx_set_output(c, n, 0, emit_mul(c, x, emit_unary(c, TN_OP_logistic, scaled)));
}

/* The gate's Swish times the second operand. */
bool onnx_op_swiglu(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    tn_value *scaled = emit_mul_number(c, x, onnx_attr_float(c, n, "alpha", 1));
    return onnx_set_output(c, n, 0, emit_mul(c, emit_mul(c, x, emit_unary(c, TN_OP_logistic, scaled)), n->input[1]));
}

bool onnx_op_mish(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    return onnx_set_output(c, n, 0, emit_mul(c, x, emit_unary(c, TN_OP_tanh, emit_softplus(c, x))));
}

bool onnx_op_softplus(onnx_ctx *c, const onnx_node *n)
{
    return onnx_set_output(c, n, 0, emit_softplus(c, n->input[0]));
}

bool onnx_op_softsign(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    return onnx_set_output(c, n, 0, emit_div(c, x, emit_add_number(c, emit_unary(c, TN_OP_abs, x), 1)));
}

static tn_value *hard_sigmoid(onnx_ctx *c, tn_value *x, double alpha, double beta)
{
    return emit_clamp(c, emit_add_number(c, emit_mul_number(c, x, alpha), beta), 0, 1);
}

bool onnx_op_hard_sigmoid(onnx_ctx *c, const onnx_node *n)
{
    double alpha = onnx_attr_float(c, n, "alpha", 0.2f), beta = onnx_attr_float(c, n, "beta", 0.5f);
    return onnx_set_output(c, n, 0, hard_sigmoid(c, n->input[0], alpha, beta));
}

bool onnx_op_hard_swish(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    return onnx_set_output(c, n, 0, emit_mul(c, x, hard_sigmoid(c, x, 1.0 / 6, 0.5)));
}

/* scale * x above 0, slope * (e^x - 1) below. */
static tn_value *exponential_linear(onnx_ctx *c, tn_value *x, double scale, double slope)
{
    tn_value *below = emit_mul_number(c, emit_unary(c, TN_OP_exponential_minus_one, x), slope);
    tn_value *above = scale == 1 ? x : emit_mul_number(c, x, scale);
    return emit_select(c, emit_compare_number(c, "GT", x, 0), above, below);
}

bool onnx_op_elu(onnx_ctx *c, const onnx_node *n)
{
    return onnx_set_output(c, n, 0, exponential_linear(c, n->input[0], 1, onnx_attr_float(c, n, "alpha", 1)));
}

bool onnx_op_selu(onnx_ctx *c, const onnx_node *n)
{
    bool old = c->opset < 6;
    double alpha = onnx_attr_float(c, n, "alpha", old ? 1.6732f : 1.67326319217681884765625f);
    double gamma = onnx_attr_float(c, n, "gamma", old ? 1.0507f : 1.05070102214813232421875f);
    return onnx_set_output(c, n, 0, exponential_linear(c, n->input[0], gamma, gamma * alpha));
}

bool onnx_op_celu(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    double alpha = onnx_attr_float(c, n, "alpha", 1);
    tn_value *power = emit_unary(c, TN_OP_exponential_minus_one, emit_div(c, x, emit_number(c, x->type.dtype, alpha)));
    tn_value *zero = emit_number(c, x->type.dtype, 0);
    return onnx_set_output(c, n, 0,
                           emit_add(c, emit_max(c, x, zero), emit_min(c, emit_mul_number(c, power, alpha), zero)));
}

bool onnx_op_leaky_relu(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    tn_value *below = emit_mul_number(c, x, onnx_attr_float(c, n, "alpha", 0.01f));
    return onnx_set_output(c, n, 0, emit_select(c, emit_compare_number(c, "LT", x, 0), below, x));
}

/* Before opset 7 a slope of rank 1 belongs to the channels, axis 1. */
bool onnx_op_prelu(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *slope = n->input[1];
    if (c->opset < 7 && slope->type.rank == 1 && x->type.rank > 1 && !tn_dim_is(slope->type.dim[0], 1))
        slope = emit_along(c, slope, &x->type, 1);
    return onnx_set_output(c, n, 0, emit_select(c, emit_compare_number(c, "LT", x, 0), emit_mul(c, x, slope), x));
}

bool onnx_op_thresholded_relu(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    tn_value *above = emit_compare_number(c, "GT", x, onnx_attr_float(c, n, "alpha", 1));
    return onnx_set_output(c, n, 0, emit_select(c, above, x, emit_number(c, x->type.dtype, 0)));
}

bool onnx_op_shrink(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    double bias = onnx_attr_float(c, n, "bias", 0), lambda = onnx_attr_float(c, n, "lambd", 0.5);
    tn_value *rest = emit_select(c, emit_compare_number(c, "GT", x, lambda), emit_add_number(c, x, -bias),
                                 emit_number(c, x->type.dtype, 0));
    if (tn_is_integer(x->type.dtype)) { /* fractional bounds: compare and move as f64 */
        tn_value *wide = tn_convert(&c->b, x, TN_F64);
        rest = emit_select(c, emit_compare_number(c, "GT", wide, lambda), emit_add_number(c, wide, -bias),
                           emit_number(c, TN_F64, 0));
        rest = emit_select(c, emit_compare_number(c, "LT", wide, -lambda), emit_add_number(c, wide, bias), rest);
        return onnx_set_output(c, n, 0, tn_convert(&c->b, rest, x->type.dtype));
    }
    return onnx_set_output(c, n, 0,
                           emit_select(c, emit_compare_number(c, "LT", x, -lambda), emit_add_number(c, x, bias), rest));
}

/* ---- softmax and its kin
 * ------------------------------------------------------------------------------------------------------ */

/* Since opset 13 one axis; before, all axes from `axis` on are one. */
static bool softmax_axes(onnx_ctx *c, const onnx_node *n, int64_t *axes, int *count)
{
    int rank = n->input[0]->type.rank, axis;
    bool joint = c->opset < 13;
    int64_t given = onnx_attr_int(c, n, "axis", joint ? 1 : -1);
    *count = 0;
    if (joint && given == rank) /* nothing is reduced: each element on its own */
        return true;
    if (!onnx_axis(c, n, given, rank, &axis))
        return false;
    for (int i = axis; i < (joint ? rank : axis + 1); i++)
        axes[(*count)++] = i;
    return true;
}

bool onnx_op_softmax(onnx_ctx *c, const onnx_node *n)
{
    int64_t axes[TN_MAX_RANK];
    int count;
    if (!softmax_axes(c, n, axes, &count))
        return false;
    return onnx_set_output(c, n, 0, emit_softmax(c, n->input[0], axes, count, strcmp(n->op_type, "LogSoftmax") == 0));
}

/* 1 at the first largest element along the axes (taken as one), 0 elsewhere. */
bool onnx_op_hardmax(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    int64_t axes[TN_MAX_RANK];
    int count, axis;
    if (!softmax_axes(c, n, axes, &count))
        return false;
    tn_type shape = x->type;
    if (count == 1) {
        axis = (int)axes[0];
    } else {
        int outer = shape.rank - count;
        axis = 1;
        tn_dim dims[] = {tn_dim_product(c->session, shape.dim, outer),
                         tn_dim_product(c->session, shape.dim + outer, count)};
        x = emit_reshape(c, x, 2, dims);
    }
    if (!x)
        return false;
    int64_t at[] = {axis};
    tn_value *place = emit_spread(c, emit_arg_max(c, x, axis, false), &x->type, at, 1);
    tn_value *hit = emit_compare(c, "EQ", emit_iota_like(c, TN_I64, &x->type, axis), place);
    return onnx_set_output(c, n, 0, emit_reshape(c, tn_convert(&c->b, hit, shape.dtype), shape.rank, shape.dim));
}

/* ---- running sums
 * --------------------------------------------------------------------------------------------------------------- */

static tn_value *shift_in(onnx_ctx *c, tn_value *x, int axis, tn_value *fill)
{
    tn_dim low[TN_MAX_RANK], high[TN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++) {
        low[i] = emit_dim(c, i == axis);
        high[i] = emit_dim(c, i == axis ? -1 : 0);
    }
    return emit_pad_zero(c, x, low, high, fill);
}

static tn_value *cumulative(onnx_ctx *c, const onnx_node *n, tn_value *x, int axis)
{
    bool product = strcmp(n->op_type, "CumProd") == 0, backward = onnx_attr_int(c, n, "reverse", 0);
    int64_t at[] = {axis};
    if (backward)
        x = tn_reverse(&c->b, x, at, 1);
    if (x && onnx_attr_int(c, n, "exclusive", 0))
        x = shift_in(c, x, axis, emit_number(c, x->type.dtype, product));
    x = emit_scan(c, product ? TN_OP_multiply : TN_OP_add, x, axis);
    return backward && x ? tn_reverse(&c->b, x, at, 1) : x;
}

/* CumSum, CumProd. An axis that is only known when the graph runs chooses between the results along all axes. */
bool onnx_op_cumulative(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *y = NULL;
    int64_t given;
    int count, axis, rank = x->type.rank;
    if (onnx_static_ints(c, n->input[1], &given, 1, &count) && count == 1)
        return onnx_axis(c, n, given, rank, &axis) && onnx_set_output(c, n, 0, cumulative(c, n, x, axis));
    tn_value *wanted = tn_reshape(&c->b, n->input[1], NULL, 0);
    wanted = emit_select(c, emit_compare_number(c, "LT", wanted, 0), emit_add_number(c, wanted, rank), wanted);
    for (int i = 0; i < rank; i++) {
        tn_value *along = cumulative(c, n, x, i);
        y = y ? emit_select(c, emit_compare_number(c, "EQ", wanted, i), along, y) : along;
    }
    return onnx_set_output(c, n, 0, y ? y : x);
}

/* ---- random numbers
 * -------------------------------------------------------------------------------------------------------------- */

bool onnx_op_bernoulli(onnx_ctx *c, const onnx_node *n)
{
    tn_value *p = n->input[0];
    tn_dtype to = onnx_attr_dtype(c, n, "dtype", p->type.dtype);
    if (to == TN_NO_DTYPE)
        return false;
    tn_value *draw = emit_uniform(c, n, p->type.dim, p->type.rank);
    return onnx_set_output(c, n, 0, tn_convert(&c->b, emit_compare(c, "LT", draw, tn_convert(&c->b, p, TN_F32)), to));
}

/* RandomNormal, RandomUniform: shape by attribute; …Like: of the input. */
bool onnx_op_random(onnx_ctx *c, const onnx_node *n)
{
    bool like = n->ninputs > 0, normal = strstr(n->op_type, "Normal") != NULL;
    tn_dim dims[TN_MAX_RANK];
    int rank = 0;
    const int64_t *shape = like ? NULL : onnx_attr_ints(c, n, "shape", &rank);
    if (rank > TN_MAX_RANK)
        return onnx_unsupported(c, n, "rank %d is more than %d", rank, TN_MAX_RANK);
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0)
            return onnx_error(c, n, "`shape` must not be negative, found %lld", (long long)shape[i]);
        dims[i] = emit_dim(c, shape[i]);
    }
    if (like) {
        rank = n->input[0]->type.rank;
        memcpy(dims, n->input[0]->type.dim, sizeof dims);
    }
    tn_dtype to =
        onnx_attr_dtype(c, n, "dtype", like && tn_is_float(n->input[0]->type.dtype) ? n->input[0]->type.dtype : TN_F32);
    if (to == TN_NO_DTYPE)
        return false;
    double low = onnx_attr_float(c, n, normal ? "mean" : "low", 0),
           high = onnx_attr_float(c, n, normal ? "scale" : "high", 1);
    onnx_drawing drawing = {.key = emit_random_key(c, n), .normal = normal, .scale = (float)(normal ? high : high - low), .offset = (float)low};
    tn_value *drawn = like ? NULL : onnx_draw(c, &drawing, to, dims, rank);
    if (drawn)
        return onnx_set_output(c, n, 0, drawn);
    tn_value *x = normal ? emit_normal(c, n, dims, rank) : emit_uniform(c, n, dims, rank);
    x = emit_add_number(c, emit_mul_number(c, x, normal ? high : high - low), low);
    return onnx_set_output(c, n, 0, tn_convert(&c->b, x, to));
}

/* Draws from unnormalised logarithmic probabilities [B, C]: the largest after adding -log(-log(u)) to each (Gumbel). */
bool onnx_op_multinomial(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    int64_t samples = onnx_attr_int(c, n, "sample_size", 1);
    tn_dtype to = onnx_attr_dtype(c, n, "dtype", TN_I32);
    if (x->type.rank != 2 || samples < 0 || to == TN_NO_DTYPE)
        return onnx_error(c, n, "the input must have rank 2 and `sample_size` not be negative");
    tn_dim dims[] = {x->type.dim[0], emit_dim(c, samples), x->type.dim[1]};
    tn_value *draw = emit_add_number(c, emit_uniform(c, n, dims, 3), 0x1p-25);
    for (int i = 0; i < 2; i++)
        draw = emit_unary(c, TN_OP_negate, emit_unary(c, TN_OP_log, draw));
    tn_value *wide = emit_broadcast(c, tn_convert(&c->b, x, TN_F32), dims, 3, EMIT_AXES(0, 2));
    return onnx_set_output(c, n, 0, tn_convert(&c->b, emit_arg_max(c, emit_add(c, wide, draw), 2, false), to));
}

/* Not in training: the input, and a mask of true. In training: scaled by 1 / (1 - ratio) where the draw keeps it. */
bool onnx_op_dropout(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *training = onnx_in(n, 2), *y = x;
    tn_dtype mask_type = c->opset >= 10 ? TN_BOOL : x->type.dtype;
    double known = 0, ratio = 0.5;
    bool inference = !training || (onnx_constant_number(c, training, &known) && known == 0);
    tn_value *mask = emit_fill(c, emit_number(c, mask_type, 1), x->type.dim, x->type.rank);
    bool has_ratio = onnx_in(n, 1) && !onnx_constant_number(c, n->input[1], &ratio);
    if (!inference && (has_ratio || ratio > 0)) {
        tn_value *rate = has_ratio ? tn_convert(&c->b, n->input[1], TN_F32) : emit_number(c, TN_F32, ratio);
        rate = rate ? tn_reshape(&c->b, rate, NULL, 0) : NULL;
        tn_value *drawn = emit_compare(c, "GE", emit_uniform(c, n, x->type.dim, x->type.rank), rate);
        tn_value *scale = emit_div(c, emit_number(c, TN_F32, 1), emit_sub(c, emit_number(c, TN_F32, 1), rate));
        tn_value *kept = emit_mul(c, x, tn_convert(&c->b, scale, x->type.dtype));
        kept = emit_select(c, drawn, kept, emit_number(c, x->type.dtype, 0));
        tn_value *on = tn_reshape(&c->b, training, NULL, 0);
        y = emit_select(c, on, kept, x);
        mask = emit_or(c, drawn, emit_unary(c, TN_OP_not, on));
    }
    return onnx_set_output(c, n, 0, y) && onnx_set_output(c, n, 1, mask);
}
