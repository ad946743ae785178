/* Shorthand for operator functions: arithmetic that broadcasts NumPy's way, constants, reductions and their way back.
 * All take NULL operands (a builder's failure further up) and then give NULL; none reports twice. */
#ifndef TN_IMPORT_ONNX_EMIT_H
#define TN_IMPORT_ONNX_EMIT_H

#include "import/onnx/internal.h"

/* ---- constants
 * ---------------------------------------------------------------------------------------------------------- */
tn_value *emit_number(onnx_ctx *c, tn_dtype dtype, double value);        /* rank 0 */
tn_value *emit_lowest(onnx_ctx *c, tn_dtype dtype);                      /* identity of max: -inf, INT_MIN, false */
tn_value *emit_highest(onnx_ctx *c, tn_dtype dtype);                     /* identity of min */
tn_value *emit_identity(onnx_ctx *c, tn_opcode combine, tn_dtype dtype); /* of add, multiply, maximum, minimum, or */
tn_value *emit_fill(onnx_ctx *c, tn_value *scalar, const tn_dim *dims, int rank);         /* rank 0 to any shape */
tn_value *emit_doubles(onnx_ctx *c, tn_dtype dtype, const double *values, int64_t count); /* rank 1 constant */

/* ---- elementwise; operands of one type, shapes broadcast
 * ------------------------------------------------------------------ */
tn_value *emit_add(onnx_ctx *c, tn_value *x, tn_value *y);
tn_value *emit_sub(onnx_ctx *c, tn_value *x, tn_value *y);
tn_value *emit_mul(onnx_ctx *c, tn_value *x, tn_value *y);
tn_value *emit_div(onnx_ctx *c, tn_value *x, tn_value *y);
tn_value *emit_max(onnx_ctx *c, tn_value *x, tn_value *y);
tn_value *emit_min(onnx_ctx *c, tn_value *x, tn_value *y);
tn_value *emit_and(onnx_ctx *c, tn_value *x, tn_value *y);
tn_value *emit_or(onnx_ctx *c, tn_value *x, tn_value *y);
tn_value *emit_add_number(onnx_ctx *c, tn_value *x, double value);
tn_value *emit_mul_number(onnx_ctx *c, tn_value *x, double value);
tn_value *emit_unary(onnx_ctx *c, tn_opcode code, tn_value *x);
tn_value *emit_compare(onnx_ctx *c, const char *direction, tn_value *x, tn_value *y);
tn_value *emit_compare_number(onnx_ctx *c, const char *direction, tn_value *x, double value);
tn_value *emit_select(onnx_ctx *c, tn_value *pred, tn_value *x, tn_value *y);
tn_value *emit_clamp(onnx_ctx *c, tn_value *x, double low, double high);
/* Remainder with the divisor's sign (Python's %). */
tn_value *emit_floor_mod(onnx_ctx *c, tn_value *x, tn_value *y);
tn_value *emit_softplus(onnx_ctx *c, tn_value *x);

/* ---- shape
 * ---------------------------------------------------------------------------------------------------------------- */
tn_dim emit_dim(onnx_ctx *c, int64_t value);
tn_value *emit_size(onnx_ctx *c, tn_dim dim, tn_dtype dtype); /* rank 0, converted from i64 */
tn_value *emit_reshape(onnx_ctx *c, tn_value *x, int rank, const tn_dim *dims);
/* Axes as an array and its length. */
#define EMIT_AXES(...) (const int64_t[]){__VA_ARGS__}, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
/* broadcast_in_dim and transpose of a value that should have rank n; a diagnostic when a file gave it another. */
tn_value *emit_broadcast(onnx_ctx *c, tn_value *x, const tn_dim *dims, int rank, const int64_t *axes, int n);
tn_value *emit_transpose(onnx_ctx *c, tn_value *x, const int64_t *permutation, int n);
/* Slices one axis: [start, limit) by step. */
tn_value *emit_slice_axis(onnx_ctx *c, tn_value *x, int axis, tn_dim start, tn_dim limit, int64_t step);
/* x of rank 1 along `axis` of the shape of `like`. */
tn_value *emit_along(onnx_ctx *c, tn_value *x, const tn_type *like, int axis);
tn_value *emit_iota_like(onnx_ctx *c, tn_dtype dtype, const tn_type *like, int axis);
tn_value *emit_pad_zero(onnx_ctx *c, tn_value *x, const tn_dim *low, const tn_dim *high, tn_value *fill);
/* Elements of x at the positions of `indices` (rank 1, in range) along axis. */
tn_value *emit_take(onnx_ctx *c, tn_value *x, tn_value *indices, int axis);
tn_value *emit_take_some(onnx_ctx *c, tn_value *x, tn_value *indices, int axis); /* the axis may have no elements, then there are no indices */
/* Rows of x: indices is [m, k], row i gives a position in x's first k axes; result [m, rest of x]. Clamped to the
 * bounds. */
tn_value *emit_take_nd(onnx_ctx *c, tn_value *x, tn_value *indices);
/* Writes (combine == TN_OP_return) or combines updates [m, rest of x] into x at indices [m, k]; out of bounds is
 * dropped. */
tn_value *emit_put_nd(onnx_ctx *c, tn_value *x, tn_value *indices, tn_value *updates, tn_opcode combine);
/* x with `axis` moved to the end, and back. */
tn_value *emit_axis_to_last(onnx_ctx *c, tn_value *x, int axis);
tn_value *emit_axis_from_last(onnx_ctx *c, tn_value *x, int axis);

/* ---- reductions
 * ------------------------------------------------------------------------------------------------------------ */
tn_value *emit_reduce(onnx_ctx *c, tn_opcode combine, tn_value *x, const int64_t *axes, int n); /* the axes vanish */
tn_value *emit_sum_axis(onnx_ctx *c, tn_value *x, int axis);
/* A reduced value back to the shape `like` that it was reduced from; with size 1 in place of the axes. */
tn_value *emit_spread(onnx_ctx *c, tn_value *reduced, const tn_type *like, const int64_t *axes, int n);
tn_value *emit_keep(onnx_ctx *c, tn_value *reduced, const tn_type *like, const int64_t *axes, int n);
tn_value *emit_count(onnx_ctx *c, const tn_type *type, const int64_t *axes, int n,
                     tn_dtype dtype); /* elements reduced, rank 0 */
/* Whether x comes before y when sorted by direction, LT or GT. NaN counts as the greatest float: an order that holds for every pair, so that any
 * way of sorting gives the same. */
tn_value *emit_comes_before(tn_builder *b, const char *direction, tn_value *x, tn_value *y);
/* In what a mean or a norm of `dtype` is computed: f16 would overflow in the sum, or in the count, long before the result does. */
tn_dtype emit_sum_type(tn_dtype dtype);
tn_value *emit_mean(onnx_ctx *c, tn_value *x, const int64_t *axes, int n);
/* Softmax over axes jointly; *log: its logarithm instead. */
tn_value *emit_softmax(onnx_ctx *c, tn_value *x, const int64_t *axes, int n, bool log);
/* x - mean and the mean of its square over the axes, both without the axes spread back (two passes). */
tn_value *emit_centered(onnx_ctx *c, tn_value *x, const int64_t *axes, int n, tn_value **mean, tn_value **variance);
/* Position of the first (last) largest element along axis, which vanishes; i64. A NaN counts as largest. */
tn_value *emit_arg_max(onnx_ctx *c, tn_value *x, int axis, bool last);
/* Windowed reduction over x with one entry of every array a dimension of x; the identity pads. */
tn_value *emit_window(onnx_ctx *c, tn_opcode combine, tn_value *x, const tn_dim *window, const int64_t *strides,
                      const int64_t *dilations, const tn_dim *low, const tn_dim *high);
/* Inclusive scan along axis. */
tn_value *emit_scan(onnx_ctx *c, tn_opcode combine, tn_value *x, int axis);

/* ---- products
 * -------------------------------------------------------------------------------------------------------------- */
/* NumPy's matmul: ranks 1 and up, batch dimensions broadcast. */
tn_value *emit_matmul(onnx_ctx *c, tn_value *x, tn_value *y);

/* ---- loops
 * ------------------------------------------------------------------------------------------------------------------ */
/* A `while` that counts i = 0, 1, … trips - 1 (i64) and carries n values whose types do not change. The body function
 * is called once, with the builder inside the body; it fills next[] and returns false on a failure. final: n values
 * after the last trip. */
typedef bool emit_body(onnx_ctx *c, void *context, tn_value *i, tn_value *const *carried, tn_value **next);
bool emit_counted_loop(onnx_ctx *c, tn_value *trips, tn_value *const *init, int n, emit_body *body, void *context,
                       tn_value **final);

/* ---- random numbers
 * ------------------------------------------------------------------------------------------------------------ */
/* Threefry-2x32 of 20 rounds (Salmon et al., 2011) on the element's position, keyed by the node's `seed` attribute, or
 * by the node's place in the model when it has none: the same numbers in every run. f32 of `dims`. */
uint64_t emit_random_key(onnx_ctx *c, const onnx_node *n); /* from the attribute `seed`, else from the node's number */
tn_value *emit_uniform(onnx_ctx *c, const onnx_node *n, const tn_dim *dims, int rank); /* [0, 1), multiples of 2^-24 */
tn_value *emit_normal(onnx_ctx *c, const onnx_node *n, const tn_dim *dims, int rank);  /* Box-Muller */

#endif
