/* Normalisations, written out: reductions, broadcasts, elementwise arithmetic. Variances are means of squared
 * deviations. */
#include "import/onnx/emit.h"

#include <string.h>

static tn_value *inverse_deviation(onnx_ctx *c, tn_value *variance, double epsilon)
{
    return emit_unary(c, TN_OP_rsqrt, emit_add_number(c, variance, epsilon));
}

/* ---- batch normalisation
 * -------------------------------------------------------------------------------------------------- */

/* A parameter of shape [C] or, before opset 9 with spatial = 0, [C, D1, …]: to x's shape from axis 1 on. */
static tn_value *from_channel(onnx_ctx *c, tn_value *p, const tn_type *like)
{
    int64_t axes[TN_MAX_RANK];
    for (int i = 0; p && i < p->type.rank; i++)
        axes[i] = i + 1;
    return !p ? NULL : tn_broadcast_in_dim(&c->b, p, like->dim, like->rank, axes);
}

static bool batch_norm_training(onnx_ctx *c, const onnx_node *n, double epsilon)
{
    tn_value *x = n->input[0], *mean, *variance;
    int64_t axes[TN_MAX_RANK];
    int count = 0;
    for (int i = 0; i < x->type.rank; i++)
        if (i != 1)
            axes[count++] = i;
    tn_value *centered = emit_centered(c, x, axes, count, &mean, &variance);
    tn_value *scale =
        emit_mul(c, tn_convert(&c->b, n->input[1], x->type.dtype), inverse_deviation(c, variance, epsilon));
    tn_value *y = emit_mul(c, centered, from_channel(c, scale, &x->type));
    y = emit_add(c, y, from_channel(c, tn_convert(&c->b, n->input[2], x->type.dtype), &x->type));
    if (!onnx_set_output(c, n, 0, y))
        return false;
    double momentum = onnx_attr_float(c, n, "momentum", 0.9f);
    for (int i = 0; i < 2; i++) {
        tn_value *running = n->input[3 + i],
                 *current = tn_convert(&c->b, i == 0 ? mean : variance, running->type.dtype);
        tn_value *next = emit_add(c, emit_mul_number(c, running, momentum), emit_mul_number(c, current, 1 - momentum));
        if (!onnx_set_output(c, n, 1 + i, next))
            return false;
    }
    return true;
}

/* Inference: x * a + b with a = scale / sqrt(var + eps), b = bias - mean * a, so that constants fold to two vectors. */
bool onnx_op_batch_norm(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    double epsilon = onnx_attr_float(c, n, "epsilon", 1e-5f);
    if (x->type.rank < 2)
        return onnx_error(c, n, "input must have at least rank 2, found %d", x->type.rank);
    if (onnx_attr_int(c, n, "training_mode", 0))
        return batch_norm_training(c, n, epsilon);
    if (c->opset < 14 && n->noutputs > 1 && onnx_wants(n, 1))
        return onnx_unsupported(c, n, "outputs of training before opset 14");
    tn_dtype wide = n->input[4]->type.dtype, work = x->type.dtype;
    if (tn_dtype_bits(work) < 32) /* every step would be rounded */
        wide = work = TN_F32;
    tn_value *deviation = emit_unary(c, TN_OP_sqrt, emit_add_number(c, tn_convert(&c->b, n->input[4], wide), epsilon));
    tn_value *a = emit_div(c, tn_convert(&c->b, n->input[1], wide), deviation);
    tn_value *b = emit_sub(c, tn_convert(&c->b, n->input[2], wide), emit_mul(c, tn_convert(&c->b, n->input[3], wide), a));
    a = from_channel(c, tn_convert(&c->b, a, work), &x->type);
    b = from_channel(c, tn_convert(&c->b, b, work), &x->type);
    tn_value *y = emit_add(c, emit_mul(c, tn_convert(&c->b, x, work), a), b);
    return onnx_set_output(c, n, 0, tn_convert(&c->b, y, x->type.dtype));
}

/* ---- layer normalisation
 * ---------------------------------------------------------------------------------------------------- */

typedef struct layer_norm {
    int64_t axes[TN_MAX_RANK];
    int count;
    double epsilon;
    tn_dtype work; /* precision of the statistics */
} layer_norm;

static bool read_layer_norm(onnx_ctx *c, const onnx_node *n, const tn_type *type, layer_norm *out)
{
    int axis;
    if (!onnx_axis(c, n, onnx_attr_int(c, n, "axis", -1), type->rank, &axis))
        return false;
    *out = (layer_norm){.epsilon = onnx_attr_float(c, n, "epsilon", 1e-5f), .work = type->dtype};
    if (onnx_attr_int(c, n, "stash_type", 1) == 1 && tn_dtype_bits(type->dtype) < 32)
        out->work = TN_F32;
    for (int i = axis; i < type->rank; i++)
        out->axes[out->count++] = i;
    return true;
}

/* A parameter over the normalised axes, broadcast NumPy's way. */
static tn_value *parameter(onnx_ctx *c, tn_value *p, const tn_type *like)
{
    p = tn_convert(&c->b, p, like->dtype);
    return !p ? NULL : tn_broadcast_to(&c->b, p, like->dim, like->rank);
}

/* (x - mean) / sqrt(var + eps), or x / sqrt(mean square + eps) without centering; in x's type. mean: NULL when not
 * centred. */
static tn_value *normalised(onnx_ctx *c, tn_value *x, const layer_norm *l, bool center, tn_value **mean,
                            tn_value **inverse)
{
    tn_type type = x->type;
    tn_value *wide = tn_convert(&c->b, x, l->work), *variance;
    *mean = NULL;
    if (center)
        wide = emit_centered(c, wide, l->axes, l->count, mean, &variance);
    else
        variance = emit_mean(c, emit_mul(c, wide, wide), l->axes, l->count);
    *inverse = inverse_deviation(c, variance, l->epsilon);
    if (!wide || !*inverse)
        return NULL;
    return tn_convert(&c->b, emit_mul(c, wide, emit_spread(c, *inverse, &wide->type, l->axes, l->count)), type.dtype);
}

/* normalised * scale + bias. */
static tn_value *scaled(onnx_ctx *c, tn_value *y, tn_value *scale, tn_value *bias)
{
    if (!y)
        return NULL;
    tn_type type = y->type;
    if (scale)
        y = emit_mul(c, y, parameter(c, scale, &type));
    return bias ? emit_add(c, y, parameter(c, bias, &type)) : y;
}

/* LayerNormalization; and SimplifiedLayerNormalization, RMSNormalization without mean and bias. */
bool onnx_op_layer_norm(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *mean, *inverse;
    bool center = strcmp(n->op_type, "LayerNormalization") == 0;
    layer_norm l;
    if (!read_layer_norm(c, n, &x->type, &l))
        return false;
    tn_value *y = normalised(c, x, &l, center, &mean, &inverse);
    if (!onnx_set_output(c, n, 0, scaled(c, y, n->input[1], center ? onnx_in(n, 2) : NULL)))
        return false;
    if (center && onnx_wants(n, 1) && !onnx_set_output(c, n, 1, emit_keep(c, mean, &x->type, l.axes, l.count)))
        return false;
    int last = center ? 2 : 1;
    return !onnx_wants(n, last) || onnx_set_output(c, n, last, emit_keep(c, inverse, &x->type, l.axes, l.count));
}

/* com.microsoft SkipLayerNormalization (input, skip, gamma, beta, bias) and SkipSimplifiedLayerNormalization (input,
 * skip, gamma, bias): normalises input + skip + bias, which is output 3. */
bool onnx_op_skip_layer_norm(onnx_ctx *c, const onnx_node *n)
{
    bool center = strcmp(n->op_type, "SkipLayerNormalization") == 0;
    tn_value *bias = onnx_in(n, center ? 4 : 3), *mean, *inverse;
    tn_value *x = emit_add(c, n->input[0], n->input[1]);
    if (bias)
        x = emit_add(c, x, bias);
    if (!x || x->type.rank < 1)
        return onnx_error(c, n, "the input must have at least rank 1");
    layer_norm l = {
        .axes = {x->type.rank - 1}, .count = 1, .work = tn_dtype_bits(x->type.dtype) < 32 ? TN_F32 : x->type.dtype};
    l.epsilon = onnx_attr_float(c, n, "epsilon", center ? 1e-12f : 1e-6f);
    tn_value *y = normalised(c, x, &l, center, &mean, &inverse);
    if (onnx_wants(n, 1) || onnx_wants(n, 2))
        return onnx_unsupported(c, n, "outputs `mean` and `inv_std_var`");
    return onnx_set_output(c, n, 0, scaled(c, y, n->input[2], center ? onnx_in(n, 3) : NULL)) &&
           onnx_set_output(c, n, 3, x);
}

/* ---- instance and group normalisation
 * -------------------------------------------------------------------------------------------- */

bool onnx_op_instance_norm(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *mean, *inverse;
    if (x->type.rank < 3)
        return onnx_error(c, n, "input must have at least rank 3, found %d", x->type.rank);
    layer_norm l = {
        .count = x->type.rank - 2, .epsilon = onnx_attr_float(c, n, "epsilon", 1e-5f), .work = x->type.dtype};
    for (int i = 0; i < l.count; i++)
        l.axes[i] = i + 2;
    tn_value *y = normalised(c, x, &l, true, &mean, &inverse);
    y = emit_mul(c, y, from_channel(c, n->input[1], &x->type));
    return onnx_set_output(c, n, 0, emit_add(c, y, from_channel(c, n->input[2], &x->type)));
}

/* [N, C, …] as [N, G, C / G, …], normalised over all but N and G. Scale and bias: a group (opset < 21) or a channel an
 * entry. */
bool onnx_op_group_norm(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *mean, *inverse;
    int64_t groups = onnx_attr_int(c, n, "num_groups", 0);
    tn_type type = x->type;
    if (type.rank < 2 || groups < 1 || type.rank + 1 > TN_MAX_RANK)
        return onnx_error(c, n, "`num_groups` must be at least 1 and the input's rank at least 2");
    tn_dim dims[TN_MAX_RANK] = {type.dim[0], emit_dim(c, groups),
                                tn_dim_floordiv(c->session, type.dim[1], emit_dim(c, groups))};
    for (int i = 2; i < type.rank; i++)
        dims[i + 1] = type.dim[i];
    x = tn_reshape(&c->b, x, dims, type.rank + 1);
    if (!x)
        return false;
    layer_norm l = {.count = type.rank - 1, .epsilon = onnx_attr_float(c, n, "epsilon", 1e-5f), .work = type.dtype};
    if (onnx_attr_int(c, n, "stash_type", 1) == 1 && tn_dtype_bits(type.dtype) < 32)
        l.work = TN_F32;
    for (int i = 0; i < l.count; i++)
        l.axes[i] = i + 2;
    tn_value *y = normalised(c, x, &l, true, &mean, &inverse);
    tn_value *scale = n->input[1], *bias = n->input[2];
    if (c->opset < 21)
        y = emit_add(c, emit_mul(c, y, from_channel(c, scale, &x->type)), from_channel(c, bias, &x->type));
    y = y ? tn_reshape(&c->b, y, type.dim, type.rank) : NULL;
    if (c->opset >= 21)
        y = emit_add(c, emit_mul(c, y, from_channel(c, scale, &type)), from_channel(c, bias, &type));
    return onnx_set_output(c, n, 0, y);
}

/* ---- others
 * ------------------------------------------------------------------------------------------------------------------------
 */

/* x / (bias + alpha / size * sum of squares over `size` channels around)^beta. */
bool onnx_op_lrn(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    int64_t size = onnx_attr_int(c, n, "size", 0);
    if (size < 1 || x->type.rank < 2)
        return onnx_error(c, n, "`size` must be at least 1 and the input's rank at least 2");
    tn_dim window[TN_MAX_RANK], low[TN_MAX_RANK], high[TN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++) {
        window[i] = emit_dim(c, i == 1 ? size : 1);
        low[i] = emit_dim(c, i == 1 ? (size - 1) / 2 : 0);
        high[i] = emit_dim(c, i == 1 ? size / 2 : 0);
    }
    tn_value *squares = emit_window(c, TN_OP_add, emit_mul(c, x, x), window, NULL, NULL, low, high);
    double alpha = onnx_attr_float(c, n, "alpha", 1e-4f), beta = onnx_attr_float(c, n, "beta", 0.75f);
    tn_value *base =
        emit_add_number(c, emit_mul_number(c, squares, alpha / (double)size), onnx_attr_float(c, n, "bias", 1));
    tn_value *power = tn_binary_b(&c->b, TN_OP_power, base, emit_number(c, x->type.dtype, beta));
    return onnx_set_output(c, n, 0, emit_div(c, x, power));
}

/* x / |x|_p along the axis; 0 where the norm is 0. */
bool onnx_op_lp_norm(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *norm;
    int axis;
    int64_t p = onnx_attr_int(c, n, "p", 2);
    if (!onnx_axis(c, n, onnx_attr_int(c, n, "axis", -1), x->type.rank, &axis))
        return false;
    if (p != 1 && p != 2)
        return onnx_error(c, n, "`p` must be 1 or 2, found %lld", (long long)p);
    int64_t axes[] = {axis};
    if (p == 1)
        norm = emit_sum_axis(c, emit_unary(c, TN_OP_abs, x), axis);
    else
        norm = emit_unary(c, TN_OP_sqrt, emit_sum_axis(c, emit_mul(c, x, x), axis));
    norm = emit_spread(c, norm, &x->type, axes, 1);
    tn_value *zero = emit_number(c, x->type.dtype, 0);
    return onnx_set_output(c, n, 0, emit_select(c, emit_compare_number(c, "EQ", norm, 0), zero, emit_div(c, x, norm)));
}

bool onnx_op_mean_variance_norm(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *mean, *variance;
    int count;
    const int64_t *given = onnx_attr_ints(c, n, "axes", &count);
    int64_t axes[TN_MAX_RANK] = {0, 2, 3};
    if (!onnx_axes(c, n, given ? given : axes, given ? count : 3, x->type.rank, axes))
        return false;
    count = given ? count : 3;
    tn_value *centered = emit_centered(c, x, axes, count, &mean, &variance);
    tn_value *deviation = emit_add_number(c, emit_unary(c, TN_OP_sqrt, variance), 1e-9);
    return onnx_set_output(c, n, 0, emit_div(c, centered, emit_spread(c, deviation, &x->type, axes, count)));
}
