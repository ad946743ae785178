/* Products, convolutions, pools. */
#include "import/onnx/window.h"

#include <math.h>
#include <string.h>

/* ---- products
 * -------------------------------------------------------------------------------------------------------------- */

bool onnx_op_matmul(onnx_ctx *c, const onnx_node *n)
{
    return onnx_set_output(c, n, 0, emit_matmul(c, n->input[0], n->input[1]));
}

static tn_value *swap_last(onnx_ctx *c, tn_value *x)
{
    int64_t permutation[TN_MAX_RANK];
    int rank = x->type.rank;
    for (int i = 0; i < rank; i++)
        permutation[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
    return rank < 2 ? x : tn_transpose(&c->b, x, permutation);
}

/* com.microsoft FusedMatMul: alpha * op(A) op(B), op a transposition of the last two dimensions. */
bool onnx_op_fused_matmul(onnx_ctx *c, const onnx_node *n)
{
    if (onnx_attr_int(c, n, "transBatchA", 0) || onnx_attr_int(c, n, "transBatchB", 0))
        return onnx_unsupported(c, n, "transBatchA and transBatchB must be 0");
    tn_value *x = n->input[0], *y = n->input[1];
    if (onnx_attr_int(c, n, "transA", 0))
        x = swap_last(c, x);
    if (onnx_attr_int(c, n, "transB", 0))
        y = swap_last(c, y);
    double alpha = onnx_attr_float(c, n, "alpha", 1);
    tn_value *product = emit_matmul(c, x, y);
    return onnx_set_output(c, n, 0, alpha == 1 ? product : emit_mul_number(c, product, alpha));
}

/* alpha * A' B' + beta * C. */
bool onnx_op_gemm(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *y = n->input[1], *bias = onnx_in(n, 2);
    double alpha = onnx_attr_float(c, n, "alpha", 1), beta = onnx_attr_float(c, n, "beta", 1);
    int64_t left = onnx_attr_int(c, n, "transA", 0) ? 0 : 1, right = onnx_attr_int(c, n, "transB", 0) ? 1 : 0;
    tn_value *product = tn_dot_general(&c->b, x, y, NULL, NULL, 0, &left, &right, 1);
    if (alpha != 1)
        product = emit_mul_number(c, product, alpha);
    if (bias && beta != 0)
        product = emit_add(c, product, beta == 1 ? bias : emit_mul_number(c, bias, beta));
    return onnx_set_output(c, n, 0, product);
}

/* ---- convolutions
 * ------------------------------------------------------------------------------------------------------------ */

bool onnx_op_conv(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *weight = n->input[1], *bias = onnx_in(n, 2);
    onnx_window w;
    if (!onnx_read_window(c, n, &x->type, &weight->type, &w))
        return false;
    tn_value *y = onnx_convolution(c, x, weight, &w, onnx_attr_int(c, n, "group", 1));
    if (bias && y)
        y = emit_add(c, y, emit_along(c, bias, &y->type, 1));
    return onnx_set_output(c, n, 0, y);
}

/* [C, M / g, …] of a transposed convolution to [M, C / g, …] of a plain one, window mirrored. */
static tn_value *mirrored_weight(onnx_ctx *c, tn_value *weight, int64_t groups)
{
    tn_type t = weight->type;
    int rank = t.rank;
    int64_t spatial[TN_MAX_RANK], permutation[TN_MAX_RANK + 1];
    tn_dim split[TN_MAX_RANK + 1], joined[TN_MAX_RANK];
    for (int i = 2; i < rank; i++)
        spatial[i - 2] = i;
    weight = tn_reverse(&c->b, weight, spatial, rank - 2);
    tn_dim g = emit_dim(c, groups);
    split[0] = g;
    split[1] = tn_dim_floordiv(c->session, t.dim[0], g);
    joined[0] = tn_dim_mul(c->session, t.dim[1], g);
    joined[1] = split[1];
    for (int i = 0; i <= rank; i++)
        permutation[i] = i;
    permutation[1] = 2;
    permutation[2] = 1;
    for (int i = 1; i < rank; i++)
        split[i + 1] = t.dim[i];
    memcpy(joined + 2, t.dim + 2, sizeof(tn_dim) * (size_t)(rank - 2));
    if (groups == 1)
        return weight ? tn_transpose(&c->b, weight, (int64_t[TN_MAX_RANK]){1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
                      : NULL;
    weight = weight ? tn_reshape(&c->b, weight, split, rank + 1) : NULL;
    weight = weight ? tn_transpose(&c->b, weight, permutation) : NULL;
    return weight ? tn_reshape(&c->b, weight, joined, rank) : NULL;
}

/* Sizes of a transposed convolution's result and the padding that it takes off, from output_shape, auto_pad or pads. */
typedef struct transposed {
    int64_t output_padding[TN_MAX_RANK], pads[2 * TN_MAX_RANK];
    const int64_t *shape;
    bool same, upper;
} transposed;

static bool read_transposed(onnx_ctx *c, const onnx_node *n, int spatial, transposed *t)
{
    const char *mode = onnx_attr_string(c, n, "auto_pad", "NOTSET");
    int given;
    t->shape = onnx_attr_ints(c, n, "output_shape", &given);
    t->upper = strcmp(mode, "SAME_UPPER") == 0;
    t->same = t->upper || strcmp(mode, "SAME_LOWER") == 0;
    if (t->shape && given == spatial + 2) {
        t->shape += 2; /* some exporters give batch and channels too */
        given = spatial;
    }
    if (t->shape && given != spatial)
        return onnx_error(c, n, "`output_shape` must have %d entries, found %d", spatial, given);
    return onnx_read_ints(c, n, "output_padding", spatial, 0, 0, t->output_padding) &&
           onnx_read_ints(c, n, "pads", 2 * spatial, 0, 0, t->pads);
}

/* Padding of the plain convolution over the input spread by the stride: extent - 1 less what is taken off, at both
 * ends. */
static void transposed_padding(onnx_ctx *c, const transposed *t, int i, tn_dim size, tn_dim extent, int64_t stride,
                               onnx_window *w)
{
    tn_session *s = c->session;
    tn_dim reach = tn_dim_sub(s, extent, emit_dim(c, 1)), step = emit_dim(c, stride);
    tn_dim low = emit_dim(c, t->pads[i]), high = emit_dim(c, t->pads[w->n + i]),
           extra = emit_dim(c, t->output_padding[i]);
    if (t->shape || t->same) {
        tn_dim full =
            tn_dim_add(s, tn_dim_add(s, tn_dim_mul(s, tn_dim_sub(s, size, emit_dim(c, 1)), step), extent), extra);
        tn_dim want = t->shape ? emit_dim(c, t->shape[i]) : tn_dim_mul(s, size, step);
        tn_dim total = tn_dim_sub(s, full, want);
        tn_dim off = tn_dim_max(s, total, emit_dim(c, 0)), half = tn_dim_floordiv(s, off, emit_dim(c, 2));
        low = t->upper ? half : tn_dim_sub(s, off, half);
        high = tn_dim_sub(s, total, low); /* negative: the result goes on with zeros */
    }
    w->low[i] = tn_dim_sub(s, reach, low);
    w->high[i] = tn_dim_add(s, tn_dim_sub(s, reach, high), extra);
}

bool onnx_op_conv_transpose(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *weight = n->input[1], *bias = onnx_in(n, 2);
    int64_t groups = onnx_attr_int(c, n, "group", 1);
    onnx_window w;
    transposed t;
    if (x->type.rank < 3 || weight->type.rank != x->type.rank)
        return onnx_error(c, n, "input and weight must have one rank of at least 3, found %d and %d", x->type.rank,
                          weight->type.rank);
    if (groups < 1)
        return onnx_error(c, n, "`group` must be at least 1, found %lld", (long long)groups);
    w = (onnx_window){.n = x->type.rank - 2};
    if (!onnx_read_ints(c, n, "strides", w.n, 1, 1, w.strides) ||
        !onnx_read_ints(c, n, "dilations", w.n, 1, 1, w.dilations) || !read_transposed(c, n, w.n, &t))
        return false;
    for (int i = 0; i < w.n; i++) {
        w.kernel[i] = weight->type.dim[i + 2];
        transposed_padding(c, &t, i, x->type.dim[i + 2], onnx_window_extent(c, &w, i), w.strides[i], &w);
        w.spread[i] = w.strides[i];
        w.strides[i] = 1;
    }
    tn_value *y = onnx_convolution(c, x, mirrored_weight(c, weight, groups), &w, groups);
    if (bias && y)
        y = emit_add(c, y, emit_along(c, bias, &y->type, 1));
    return onnx_set_output(c, n, 0, y);
}

/* x [N, C, L] by a causal depthwise kernel, after the last k - 1 positions that past_state holds. */
bool onnx_op_causal_conv(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *weight = n->input[1], *bias = onnx_in(n, 2), *past = onnx_in(n, 3);
    if (!tn_dim_is_const(weight->type.dim[0]))
        return onnx_unsupported(c, n, "the number of channels must be known");
    const char *activation = onnx_attr_string(c, n, "activation", "none");
    tn_dim zero = emit_dim(c, 0), one = emit_dim(c, 1), carry = tn_dim_sub(c->session, weight->type.dim[2], one);
    tn_value *whole;
    if (past)
        whole = tn_concatenate(&c->b, (tn_value *[]){past, x}, 2, 2);
    else
        whole = emit_pad_zero(c, x, (tn_dim[]){zero, zero, carry}, (tn_dim[]){zero, zero, zero},
                              emit_number(c, x->type.dtype, 0));
    onnx_window w = {
        .n = 1, .kernel = {weight->type.dim[2]}, .strides = {1}, .dilations = {1}, .low = {zero}, .high = {zero}};
    tn_value *y = onnx_convolution(c, whole, weight, &w, weight->type.dim[0]->value);
    if (bias && y)
        y = emit_add(c, y, emit_along(c, bias, &y->type, 1));
    if (strcmp(activation, "none") != 0)
        y = emit_mul(c, y, emit_unary(c, TN_OP_logistic, y));
    if (!whole || !onnx_set_output(c, n, 0, y))
        return false;
    tn_dim length = whole->type.dim[2];
    return onnx_set_output(c, n, 1, emit_slice_axis(c, whole, 2, tn_dim_sub(c->session, length, carry), length, 1));
}

/* ---- pools
 * --------------------------------------------------------------------------------------------------------------------
 */

static tn_value *pool(onnx_ctx *c, tn_opcode combine, tn_value *x, const onnx_window *w)
{
    tn_dim window[TN_MAX_RANK], low[TN_MAX_RANK], high[TN_MAX_RANK];
    int64_t strides[TN_MAX_RANK], dilations[TN_MAX_RANK];
    for (int i = 0; i < w->n + 2; i++) {
        bool space = i >= 2;
        window[i] = space ? w->kernel[i - 2] : emit_dim(c, 1);
        low[i] = space ? w->low[i - 2] : emit_dim(c, 0);
        high[i] = space ? tn_dim_add(c->session, w->high[i - 2], w->extra[i - 2]) : emit_dim(c, 0);
        strides[i] = space ? w->strides[i - 2] : 1;
        dilations[i] = space ? w->dilations[i - 2] : 1;
    }
    return emit_window(c, combine, x, window, strides, dilations, low, high);
}

/* How many elements each window along spatial axis i covers: [out_i]. Padding counts when `padding` is set; what
 * ceil_mode adds never does. */
static tn_value *covered(onnx_ctx *c, const onnx_window *w, int i, tn_dim size, tn_dtype dtype, bool padding)
{
    tn_dim low = w->low[i], high = w->high[i], none = emit_dim(c, 0);
    if (padding) {
        size = tn_dim_add(c->session, tn_dim_add(c->session, size, low), high);
        low = high = none;
    }
    high = tn_dim_add(c->session, high, w->extra[i]);
    tn_value *ones = emit_fill(c, emit_number(c, dtype, 1), &size, 1);
    return emit_window(c, TN_OP_add, ones, &w->kernel[i], &w->strides[i], &w->dilations[i], &low, &high);
}

bool onnx_op_average_pool(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    tn_dtype dtype = emit_sum_type(x->type.dtype);
    bool padding = onnx_attr_int(c, n, "count_include_pad", 0);
    onnx_window w;
    if (!onnx_read_window(c, n, &x->type, NULL, &w))
        return false;
    tn_value *y = pool(c, TN_OP_add, tn_convert(&c->b, x, dtype), &w), *divisor = NULL;
    tn_dim fixed = emit_dim(c, 1);
    for (int i = 0; y && i < w.n; i++) {
        bool whole = tn_dim_is(w.extra[i], 0) && (padding || (tn_dim_is(w.low[i], 0) && tn_dim_is(w.high[i], 0)));
        if (whole) {
            fixed = tn_dim_mul(c->session, fixed, w.kernel[i]);
            continue;
        }
        tn_value *along = emit_along(c, covered(c, &w, i, x->type.dim[i + 2], dtype, padding), &y->type, i + 2);
        divisor = divisor ? emit_mul(c, divisor, along) : along;
    }
    tn_value *taps = emit_size(c, fixed, dtype);
    y = emit_div(c, y,
                 !divisor              ? taps
                 : tn_dim_is(fixed, 1) ? divisor
                                       : emit_mul(c, divisor, taps));
    return onnx_set_output(c, n, 0, tn_convert(&c->b, y, x->type.dtype));
}

/* Row-major position of every element of `type`, i64; column: the spatial dimensions count from the first. */
static tn_value *flat_positions(onnx_ctx *c, const tn_type *type, bool column)
{
    tn_dim weight[TN_MAX_RANK], step = emit_dim(c, 1);
    for (int i = 0; i < type->rank; i++) {
        int at = column && i < type->rank - 2 ? i + 2 : type->rank - 1 - i;
        weight[at] = step;
        step = tn_dim_mul(c->session, step, type->dim[at]);
    }
    tn_value *sum = NULL;
    for (int i = 0; i < type->rank; i++) {
        tn_value *term = emit_mul(c, emit_iota_like(c, TN_I64, type, i), emit_size(c, weight[i], TN_I64));
        sum = sum ? emit_add(c, sum, term) : term;
    }
    return sum;
}

static tn_value *window_tap(onnx_ctx *c, tn_value *padded, const onnx_window *w, const int64_t *tap)
{
    tn_dim start[TN_MAX_RANK], limit[TN_MAX_RANK];
    int64_t step[TN_MAX_RANK];
    for (int i = 0; i < w->n + 2; i++) {
        start[i] = emit_dim(c, i < 2 ? 0 : tap[i - 2] * w->dilations[i - 2]);
        step[i] = i < 2 ? 1 : w->strides[i - 2];
        if (i < 2) {
            limit[i] = padded->type.dim[i];
            continue;
        }
        tn_dim last =
            tn_dim_mul(c->session, tn_dim_sub(c->session, w->out[i - 2], emit_dim(c, 1)), emit_dim(c, step[i]));
        limit[i] = tn_dim_add(c->session, tn_dim_add(c->session, start[i], last), emit_dim(c, 1));
    }
    return tn_slice(&c->b, padded, start, limit, step);
}

static tn_value *pad_space(onnx_ctx *c, tn_value *x, const onnx_window *w, tn_value *fill)
{
    tn_dim low[TN_MAX_RANK], high[TN_MAX_RANK];
    for (int i = 0; i < w->n + 2; i++) {
        low[i] = i < 2 ? emit_dim(c, 0) : w->low[i - 2];
        high[i] = i < 2 ? emit_dim(c, 0) : tn_dim_add(c->session, w->high[i - 2], w->extra[i - 2]);
    }
    return emit_pad_zero(c, x, low, high, fill);
}

/* Largest element and its position, tap by tap of the window: strided slices, compared in row-major order. */
static bool max_pool_indices(onnx_ctx *c, const onnx_node *n, const onnx_window *w)
{
    enum { MAX_TAPS = 1024 };
    tn_value *x = n->input[0];
    int64_t taps = 1, tap[TN_MAX_RANK];
    for (int i = 0; i < w->n; i++)
        taps = tn_dim_is_const(w->kernel[i]) && w->kernel[i]->value <= MAX_TAPS ? taps * w->kernel[i]->value
                                                                                : MAX_TAPS + 1;
    if (taps > MAX_TAPS)
        return onnx_unsupported(c, n, "a window of more than %d elements with positions", MAX_TAPS);
    tn_value *values = pad_space(c, x, w, emit_lowest(c, x->type.dtype));
    tn_value *places = flat_positions(c, &x->type, onnx_attr_int(c, n, "storage_order", 0));
    places = pad_space(c, places, w, emit_number(c, TN_I64, -1));
    tn_value *best = NULL, *at = NULL;
    for (int64_t k = 0; values && places && k < taps; k++) {
        for (int64_t i = w->n - 1, rest = k; i >= 0; rest /= w->kernel[i]->value, i--)
            tap[i] = rest % w->kernel[i]->value;
        tn_value *value = window_tap(c, values, w, tap), *place = window_tap(c, places, w, tap);
        tn_value *better =
            !best ? NULL : emit_or(c, emit_compare(c, "GT", value, best), emit_compare_number(c, "LT", at, 0));
        best = best ? emit_max(c, best, value) : value;
        at = at ? emit_select(c, better, place, at) : place;
    }
    return onnx_set_output(c, n, 0, best) && onnx_set_output(c, n, 1, at);
}

bool onnx_op_max_pool(onnx_ctx *c, const onnx_node *n)
{
    onnx_window w;
    if (!onnx_read_window(c, n, &n->input[0]->type, NULL, &w))
        return false;
    if (onnx_wants(n, 1))
        return max_pool_indices(c, n, &w);
    return onnx_set_output(c, n, 0, pool(c, TN_OP_maximum, n->input[0], &w));
}

static tn_value *to_power(onnx_ctx *c, tn_value *x, double p)
{
    x = emit_unary(c, TN_OP_abs, x);
    if (!x || p == 1)
        return x;
    return p == 2 ? emit_mul(c, x, x) : tn_binary_b(&c->b, TN_OP_power, x, emit_number(c, x->type.dtype, p));
}

static tn_value *from_power(onnx_ctx *c, tn_value *x, double p)
{
    if (!x || p == 1)
        return x;
    return p == 2 ? emit_unary(c, TN_OP_sqrt, x)
                  : tn_binary_b(&c->b, TN_OP_power, x, emit_number(c, x->type.dtype, 1 / p));
}

static double norm_order(onnx_ctx *c, const onnx_node *n)
{
    return c->opset < 2 ? onnx_attr_float(c, n, "p", 2) : (double)onnx_attr_int(c, n, "p", 2);
}

bool onnx_op_lp_pool(onnx_ctx *c, const onnx_node *n)
{
    onnx_window w;
    if (!onnx_read_window(c, n, &n->input[0]->type, NULL, &w))
        return false;
    double p = norm_order(c, n);
    return onnx_set_output(c, n, 0, from_power(c, pool(c, TN_OP_add, to_power(c, n->input[0], p), &w), p));
}

/* GlobalAveragePool, GlobalMaxPool, GlobalLpPool: over all spatial dimensions, kept with size 1. */
bool onnx_op_global_pool(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *y;
    int64_t axes[TN_MAX_RANK];
    int count = x->type.rank - 2;
    if (count < 0)
        return onnx_error(c, n, "input must have at least rank 2, found %d", x->type.rank);
    for (int i = 0; i < count; i++)
        axes[i] = i + 2;
    if (strcmp(n->op_type, "GlobalAveragePool") == 0) {
        y = emit_mean(c, x, axes, count);
    } else if (strcmp(n->op_type, "GlobalMaxPool") == 0) {
        y = emit_reduce(c, TN_OP_maximum, x, axes, count);
    } else {
        double p = norm_order(c, n);
        y = from_power(c, emit_reduce(c, TN_OP_add, to_power(c, x, p), axes, count), p);
    }
    return onnx_set_output(c, n, 0, emit_keep(c, y, &x->type, axes, count));
}

/* Values go to the positions that MaxPool gave; the rest is 0. A larger output_shape adds zeros at the ends. */
bool onnx_op_max_unpool(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *places = n->input[1];
    tn_type type = x->type;
    onnx_window w;
    if (!onnx_read_window(c, n, &type, NULL, &w))
        return false;
    for (int i = 0; i < w.n; i++) {
        tn_dim reach =
            tn_dim_mul(c->session, tn_dim_sub(c->session, type.dim[i + 2], emit_dim(c, 1)), emit_dim(c, w.strides[i]));
        tn_dim pads = tn_dim_add(c->session, w.low[i], w.high[i]);
        type.dim[i + 2] = tn_dim_sub(c->session, tn_dim_add(c->session, reach, w.kernel[i]), pads);
    }
    tn_dim total = tn_type_elements(c->session, &type), count = tn_type_elements(c->session, &x->type);
    tn_value *flat = emit_fill(c, emit_number(c, type.dtype, 0), &total, 1);
    places = tn_reshape(&c->b, places, (tn_dim[]){count, emit_dim(c, 1)}, 2);
    flat = emit_put_nd(c, flat, places, tn_reshape(&c->b, x, &count, 1), TN_OP_return);
    tn_value *y = flat ? tn_reshape(&c->b, flat, type.dim, type.rank) : NULL;
    tn_dim want[TN_MAX_RANK], low[TN_MAX_RANK], high[TN_MAX_RANK];
    if (!y || !onnx_in(n, 2))
        return onnx_set_output(c, n, 0, y);
    if (!onnx_runtime_dims(c, n, n->input[2], type.rank, NULL, want))
        return false;
    for (int i = 0; i < type.rank; i++) {
        low[i] = emit_dim(c, 0);
        high[i] = tn_dim_sub(c->session, want[i], type.dim[i]);
    }
    return onnx_set_output(c, n, 0, emit_pad_zero(c, y, low, high, emit_number(c, type.dtype, 0)));
}
