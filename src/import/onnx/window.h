/* Windows of convolutions and pools: what their shared attributes say, a spatial dimension an entry. */
#ifndef TN_IMPORT_ONNX_WINDOW_H
#define TN_IMPORT_ONNX_WINDOW_H

#include "import/onnx/emit.h"

typedef struct onnx_window {
    int n; /* spatial dimensions: rank - 2 */
    tn_dim kernel[TN_MAX_RANK];
    int64_t strides[TN_MAX_RANK], dilations[TN_MAX_RANK];
    int64_t spread[TN_MAX_RANK];                /* transposed convolution: the input's base dilation; 0: 1 */
    tn_dim low[TN_MAX_RANK], high[TN_MAX_RANK]; /* padding as given or by auto_pad */
    tn_dim extra[TN_MAX_RANK];                  /* ceil_mode: what the last window reaches beyond the padding, >= 0 */
    tn_dim out[TN_MAX_RANK];
    bool padded, ceiled; /* some padding or extra is not proven 0 */
} onnx_window;

/* Reads kernel_shape, strides, dilations, pads, auto_pad, ceil_mode for an input of type x. weight: an operand of rank
 * n + 2 whose last n dimensions are the kernel (NULL: kernel_shape is required). A diagnostic when lengths or values do
 * not fit. */
bool onnx_read_window(onnx_ctx *c, const onnx_node *n, const tn_type *x, const tn_type *weight, onnx_window *out);
/* Lists of n entries that default to `otherwise`; values must be at least `least`. */
bool onnx_read_ints(onnx_ctx *c, const onnx_node *n, const char *name, int count, int64_t otherwise, int64_t least,
                    int64_t *out);
tn_dim onnx_window_extent(onnx_ctx *c, const onnx_window *w, int i); /* dilation * (kernel - 1) + 1 */

/* x [N, C, …] by weight [M, C / groups, …]; integer operands accumulate in their own type. */
tn_value *onnx_convolution(onnx_ctx *c, tn_value *x, tn_value *weight, const onnx_window *w, int64_t groups);

#endif
