#include "import/onnx/window.h"

#include <string.h>

bool onnx_read_ints(onnx_ctx *c, const onnx_node *n, const char *name, int count, int64_t otherwise, int64_t least,
                    int64_t *out)
{
    int given;
    const int64_t *list = onnx_attr_ints(c, n, name, &given);
    if (list && given != count)
        return onnx_error(c, n, "`%s` must have %d entries, found %d", name, count, given);
    for (int i = 0; i < count; i++) {
        out[i] = list ? list[i] : otherwise;
        if (out[i] < least || out[i] > INT32_MAX)
            return onnx_error(c, n, "`%s` must be at least %lld and below 2^31, found %lld", name, (long long)least,
                              (long long)out[i]);
    }
    return true;
}

tn_dim onnx_window_extent(onnx_ctx *c, const onnx_window *w, int i)
{
    tn_dim gaps = tn_dim_sub(c->session, w->kernel[i], emit_dim(c, 1));
    return tn_dim_add(c->session, tn_dim_mul(c->session, gaps, emit_dim(c, w->dilations[i])), emit_dim(c, 1));
}

static bool read_kernel(onnx_ctx *c, const onnx_node *n, const tn_type *weight, onnx_window *w)
{
    int given;
    const int64_t *list = onnx_attr_ints(c, n, "kernel_shape", &given);
    if (list && given != w->n)
        return onnx_error(c, n, "`kernel_shape` must have %d entries, found %d", w->n, given);
    if (!list && !weight)
        return onnx_error(c, n, "`kernel_shape` is missing");
    for (int i = 0; i < w->n; i++) {
        w->kernel[i] = list ? emit_dim(c, list[i]) : weight->dim[i + 2];
        if (list && (list[i] < 1 || list[i] > INT32_MAX))
            return onnx_error(c, n, "`kernel_shape` must be at least 1 and below 2^31, found %lld", (long long)list[i]);
        if (list && weight && tn_dim_ne(c->session, weight->dim[i + 2], w->kernel[i]))
            return onnx_error(c, n, "`kernel_shape` does not agree with the weight's shape in spatial dimension %d", i);
    }
    return true;
}

/* SAME: ceil(size / stride) outputs; the padding they need is halved, the odd one goes to the end (UPPER) or the start
 * (LOWER). */
static void pad_same(onnx_ctx *c, onnx_window *w, int i, tn_dim size, bool upper)
{
    tn_session *s = c->session;
    tn_dim stride = emit_dim(c, w->strides[i]);
    w->out[i] = tn_dim_ceildiv(s, size, stride);
    tn_dim last = tn_dim_mul(s, tn_dim_sub(s, w->out[i], emit_dim(c, 1)), stride);
    tn_dim need = tn_dim_sub(s, tn_dim_add(s, last, onnx_window_extent(c, w, i)), size);
    tn_dim total = tn_dim_max(s, need, emit_dim(c, 0));
    tn_dim half = tn_dim_floordiv(s, total, emit_dim(c, 2)), rest = tn_dim_sub(s, total, half);
    w->low[i] = upper ? half : rest;
    w->high[i] = upper ? rest : half;
}

/* Explicit padding. Rounding up adds a last window only if it starts inside the input or the padding before it. */
static void pad_explicit(onnx_ctx *c, onnx_window *w, int i, tn_dim size, bool ceil)
{
    tn_session *s = c->session;
    tn_dim stride = emit_dim(c, w->strides[i]), start = tn_dim_add(s, size, w->low[i]);
    tn_dim whole = tn_dim_add(s, start, w->high[i]);
    tn_dim room = tn_dim_sub(s, whole, onnx_window_extent(c, w, i));
    if (!ceil) {
        w->out[i] = tn_dim_add(s, tn_dim_floordiv(s, room, stride), emit_dim(c, 1));
        return;
    }
    w->out[i] =
        tn_dim_min(s, tn_dim_add(s, tn_dim_ceildiv(s, room, stride), emit_dim(c, 1)), tn_dim_ceildiv(s, start, stride));
    tn_dim last = tn_dim_mul(s, tn_dim_sub(s, w->out[i], emit_dim(c, 1)), stride);
    tn_dim over = tn_dim_sub(s, tn_dim_add(s, last, onnx_window_extent(c, w, i)), whole);
    w->extra[i] = tn_dim_max(s, over, emit_dim(c, 0));
}

static bool read_padding(onnx_ctx *c, const onnx_node *n, const tn_type *x, onnx_window *w)
{
    const char *mode = onnx_attr_string(c, n, "auto_pad", "NOTSET");
    bool upper = strcmp(mode, "SAME_UPPER") == 0, same = upper || strcmp(mode, "SAME_LOWER") == 0,
         valid = strcmp(mode, "VALID") == 0;
    int64_t pads[2 * TN_MAX_RANK];
    if (!same && !valid && strcmp(mode, "NOTSET") != 0)
        return onnx_error(c, n, "`auto_pad` must be NOTSET, SAME_UPPER, SAME_LOWER or VALID, found '%s'", mode);
    if (!onnx_read_ints(c, n, "pads", 2 * w->n, 0, INT32_MIN, pads))
        return false;
    bool ceil = onnx_attr_int(c, n, "ceil_mode", 0);
    for (int i = 0; i < w->n; i++) {
        w->extra[i] = emit_dim(c, 0);
        if (same) {
            pad_same(c, w, i, x->dim[i + 2], upper);
        } else {
            w->low[i] = emit_dim(c, valid ? 0 : pads[i]);
            w->high[i] = emit_dim(c, valid ? 0 : pads[w->n + i]);
            pad_explicit(c, w, i, x->dim[i + 2], ceil);
        }
        w->padded |= !tn_dim_is(w->low[i], 0) || !tn_dim_is(w->high[i], 0);
        w->ceiled |= !tn_dim_is(w->extra[i], 0);
    }
    return true;
}

bool onnx_read_window(onnx_ctx *c, const onnx_node *n, const tn_type *x, const tn_type *weight, onnx_window *out)
{
    *out = (onnx_window){.n = x->rank - 2};
    if (x->rank < 3)
        return onnx_error(c, n, "input must have at least rank 3 (batch, channels, space), found %d", x->rank);
    if (weight && weight->rank != x->rank)
        return onnx_error(c, n, "the weight must have the input's rank %d, found %d", x->rank, weight->rank);
    return read_kernel(c, n, weight, out) && onnx_read_ints(c, n, "strides", out->n, 1, 1, out->strides) &&
           onnx_read_ints(c, n, "dilations", out->n, 1, 1, out->dilations) && read_padding(c, n, x, out);
}

/* "bf01…": two leading letters, then the spatial digits. */
static const char *layout(onnx_ctx *c, const char *leading, int spatial)
{
    char text[TN_MAX_RANK + 1];
    int len = 2;
    memcpy(text, leading, 2);
    for (int i = 0; i < spatial; i++)
        text[len++] = (char)('0' + i);
    return tn_intern(c->session, text, (size_t)len);
}

tn_value *onnx_convolution(onnx_ctx *c, tn_value *x, tn_value *weight, const onnx_window *w, int64_t groups)
{
    int64_t spread[TN_MAX_RANK], zeros[TN_MAX_RANK] = {0};
    for (int i = 0; i < w->n; i++)
        spread[i] = w->spread[i] ? w->spread[i] : 1;
    const char *data = layout(c, "bf", w->n);
    tn_attr attrs[] = {
        {.name = TN_A_lhs_layout, .s = data},
        {.name = TN_A_rhs_layout, .s = layout(c, "oi", w->n)},
        {.name = TN_A_out_layout, .s = data},
        {.name = TN_A_window_strides, .n = w->n, .ints = w->strides},
        {.name = TN_A_padding_low, .n = w->n, .dims = w->low},
        {.name = TN_A_padding_high, .n = w->n, .dims = w->high},
        {.name = TN_A_base_dilation, .n = w->n, .ints = spread},
        {.name = TN_A_window_dilation, .n = w->n, .ints = w->dilations},
        {.name = TN_A_window_reversal, .n = w->n, .ints = zeros},
        {.name = TN_A_feature_group_count, .i = groups},
        {.name = TN_A_batch_group_count, .i = 1},
    };
    if (!x || !weight)
        return NULL;
    tn_op *op = tn_build(&c->b, TN_OP_convolution, (tn_value *[]){x, weight}, 2, attrs, TN_COUNT(attrs), NULL, 0);
    return op ? &op->result[0] : NULL;
}
