/* Discrete Fourier transforms as products with tables, window functions, the mel filter bank. */
#include "import/onnx/emit.h"

#include <math.h>
#include <string.h>

/* ---- transforms
 * -------------------------------------------------------------------------------------------------------------- */

/* cos and sin of 2 pi i k / length for i < rows, k < columns; i k is reduced modulo the length first, so that no
 * precision is lost. */
static void twiddles(onnx_ctx *c, tn_dim rows, tn_dim columns, tn_dim length, tn_dtype dtype, tn_value **cosine,
                     tn_value **sine)
{
    tn_dim dims[] = {rows, columns};
    tn_value *product = emit_mul(c, tn_iota(&c->b, TN_I64, dims, 2, 0), tn_iota(&c->b, TN_I64, dims, 2, 1));
    tn_value *turn =
        tn_convert(&c->b, tn_binary_b(&c->b, TN_OP_remainder, product, emit_size(c, length, TN_I64)), TN_F64);
    tn_value *angle = emit_div(c, emit_mul_number(c, turn, 2 * M_PI), emit_size(c, length, TN_F64));
    *cosine = tn_convert(&c->b, emit_unary(c, TN_OP_cosine, angle), dtype);
    *sine = tn_convert(&c->b, emit_unary(c, TN_OP_sine, angle), dtype);
}

static tn_value *contract_last(onnx_ctx *c, tn_value *x, tn_value *table)
{
    return !x ? NULL : tn_dot_general(&c->b, x, table, NULL, NULL, 0, (int64_t[]){x->type.rank - 1}, (int64_t[]){0}, 1);
}

/* Part 0 (real) or 1 (imaginary) of [..., 1 or 2], with the axis moved to the end; NULL when there is none. */
static tn_value *complex_part(onnx_ctx *c, tn_value *x, int which, int axis)
{
    int last = x->type.rank - 1;
    if (!tn_dim_is(x->type.dim[last], 2) && which == 1)
        return NULL;
    tn_value *part = emit_slice_axis(c, x, last, emit_dim(c, which), emit_dim(c, which + 1), 1);
    part = part ? tn_reshape(&c->b, part, x->type.dim, last) : NULL;
    return emit_axis_to_last(c, part, axis);
}

/* The signal's axis cut or filled with zeros to `length`. */
static tn_value *with_length(onnx_ctx *c, tn_value *x, int axis, tn_dim length)
{
    tn_dim size = x->type.dim[axis], low[TN_MAX_RANK], high[TN_MAX_RANK];
    if (tn_dim_eq(c->session, size, length))
        return x;
    for (int i = 0; i < x->type.rank; i++)
        low[i] = high[i] = emit_dim(c, 0);
    high[axis] = tn_dim_sub(c->session, length, size); /* negative: cut */
    return emit_pad_zero(c, x, low, high, emit_number(c, x->type.dtype, 0));
}

static tn_value *interleave(onnx_ctx *c, tn_value *real, tn_value *imaginary)
{
    tn_dim dims[TN_MAX_RANK];
    if (!real)
        return NULL;
    int rank = real->type.rank;
    memcpy(dims, real->type.dim, sizeof dims);
    dims[rank] = emit_dim(c, 1);
    real = tn_reshape(&c->b, real, dims, rank + 1);
    if (!imaginary)
        return real;
    imaginary = tn_reshape(&c->b, imaginary, dims, rank + 1);
    return real && imaginary ? tn_concatenate(&c->b, (tn_value *[]){real, imaginary}, 2, rank) : NULL;
}

/* Forward: sum of x_i e^(-2 pi i k / N), bins k < N, or k <= N / 2 when onesided. */
static tn_value *forward(onnx_ctx *c, tn_value *x, int axis, tn_dim length, bool onesided)
{
    x = with_length(c, x, axis, length);
    if (!x)
        return NULL;
    tn_dim bins =
        onesided ? tn_dim_add(c->session, tn_dim_floordiv(c->session, length, emit_dim(c, 2)), emit_dim(c, 1)) : length;
    tn_value *cosine, *sine, *re = complex_part(c, x, 0, axis), *im = complex_part(c, x, 1, axis);
    twiddles(c, length, bins, length, x->type.dtype, &cosine, &sine);
    tn_value *real = contract_last(c, re, cosine), *imaginary = emit_unary(c, TN_OP_negate, contract_last(c, re, sine));
    if (im) {
        real = emit_add(c, real, contract_last(c, im, sine));
        imaginary = emit_add(c, imaginary, contract_last(c, im, cosine));
    }
    return interleave(c, emit_axis_from_last(c, real, axis), emit_axis_from_last(c, imaginary, axis));
}

/* Inverse of all N bins: mean of X_k e^(+2 pi i k / N). */
static tn_value *backward(onnx_ctx *c, tn_value *x, int axis, tn_dim length)
{
    x = with_length(c, x, axis, length);
    if (!x)
        return NULL;
    tn_value *cosine, *sine, *re = complex_part(c, x, 0, axis), *im = complex_part(c, x, 1, axis);
    twiddles(c, length, length, length, x->type.dtype, &cosine, &sine);
    tn_value *real = contract_last(c, re, cosine), *imaginary = contract_last(c, re, sine);
    if (im) {
        real = emit_sub(c, real, contract_last(c, im, sine));
        imaginary = emit_add(c, imaginary, contract_last(c, im, cosine));
    }
    tn_value *size = emit_size(c, length, x->type.dtype);
    return interleave(c, emit_axis_from_last(c, emit_div(c, real, size), axis),
                      emit_axis_from_last(c, emit_div(c, imaginary, size), axis));
}

/* Inverse of the N / 2 + 1 bins of a real signal: bins other than the first, and the last of an even N, count twice. */
static tn_value *backward_real(onnx_ctx *c, tn_value *x, int axis, tn_dim length)
{
    tn_session *s = c->session;
    tn_dim bins = tn_dim_add(s, tn_dim_floordiv(s, length, emit_dim(c, 2)), emit_dim(c, 1));
    x = with_length(c, x, axis, bins);
    if (!x)
        return NULL;
    tn_dtype dtype = x->type.dtype;
    tn_value *cosine, *sine, *re = complex_part(c, x, 0, axis), *im = complex_part(c, x, 1, axis);
    twiddles(c, bins, length, length, dtype, &cosine, &sine);
    tn_value *k = tn_iota(&c->b, TN_I64, &bins, 1, 0);
    tn_value *once = emit_or(c, emit_compare_number(c, "EQ", k, 0),
                             emit_compare(c, "EQ", emit_mul_number(c, k, 2), emit_size(c, length, TN_I64)));
    tn_value *weight = emit_select(c, once, emit_number(c, dtype, 1), emit_number(c, dtype, 2));
    weight = emit_div(c, weight, emit_size(c, length, dtype));
    if (!weight || !cosine || !sine)
        return NULL;
    tn_value *y = contract_last(c, re, emit_mul(c, cosine, emit_along(c, weight, &cosine->type, 0)));
    if (im)
        y = emit_sub(c, y, contract_last(c, im, emit_mul(c, sine, emit_along(c, weight, &sine->type, 0))));
    return interleave(c, emit_axis_from_last(c, y, axis), NULL);
}

static bool has_parts(const tn_value *x)
{
    int rank = x->type.rank;
    return rank >= 2 && (tn_dim_is(x->type.dim[rank - 1], 1) || tn_dim_is(x->type.dim[rank - 1], 2));
}

typedef struct dft {
    bool inverse, onesided;
    tn_value *length; /* NULL: the axis's own */
} dft;

static tn_value *transformed(onnx_ctx *c, const onnx_node *n, const dft *d, tn_value *x, int axis)
{
    tn_dim length = x->type.dim[axis];
    if (d->inverse && d->onesided)
        length = tn_dim_mul(c->session, emit_dim(c, 2), tn_dim_sub(c->session, length, emit_dim(c, 1)));
    if (d->length && !onnx_runtime_dims(c, n, d->length, 1, NULL, &length))
        return NULL;
    if (d->inverse)
        return d->onesided ? backward_real(c, x, axis, length) : backward(c, x, axis, length);
    return forward(c, x, axis, length, d->onesided);
}

/* An axis that is only known when the graph runs: the whole transforms along all axes, one of them chosen, then cut
 * when onesided. */
static bool dft_of_runtime_axis(onnx_ctx *c, const onnx_node *n, const dft *d)
{
    tn_value *x = n->input[0], *y = NULL, *parts[TN_MAX_RANK];
    int rank = x->type.rank;
    if (d->length || (d->inverse && d->onesided))
        return onnx_unsupported(c, n, "`axis` must be a constant when the length changes");
    dft whole = {.inverse = d->inverse};
    tn_value *wanted = tn_reshape(&c->b, n->input[2], NULL, 0);
    wanted = emit_select(c, emit_compare_number(c, "LT", wanted, 0), emit_add_number(c, wanted, rank), wanted);
    for (int i = 0; i < rank - 1; i++) {
        tn_value *along = transformed(c, n, &whole, x, i);
        y = y ? emit_select(c, emit_compare_number(c, "EQ", wanted, i), along, y) : along;
    }
    if (!d->onesided || !y)
        return onnx_set_output(c, n, 0, y);
    tn_dim start[TN_MAX_RANK], limit[TN_MAX_RANK], one = emit_dim(c, 1);
    int64_t step[TN_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        tn_dim size = y->type.dim[i],
               half = tn_dim_add(c->session, tn_dim_floordiv(c->session, size, emit_dim(c, 2)), one);
        tn_value *cut = emit_select(c, emit_compare_number(c, "EQ", wanted, i), emit_size(c, half, TN_I64),
                                    emit_size(c, size, TN_I64));
        parts[i] = cut ? tn_reshape(&c->b, cut, &one, 1) : NULL;
        if (!parts[i])
            return false;
        start[i] = emit_dim(c, 0);
        step[i] = 1;
    }
    tn_value *sizes = tn_concatenate(&c->b, parts, rank, 0);
    if (!sizes || !onnx_runtime_dims(c, n, sizes, rank, y->type.dim, limit))
        return false;
    return onnx_set_output(c, n, 0, tn_slice(&c->b, y, start, limit, step));
}

bool onnx_op_dft(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    dft d = {.inverse = onnx_attr_int(c, n, "inverse", 0),
             .onesided = onnx_attr_int(c, n, "onesided", 0),
             .length = onnx_in(n, 1)};
    int64_t given = c->opset < 20 ? onnx_attr_int(c, n, "axis", 1) : -2;
    int count = 1, axis;
    if (!has_parts(x))
        return onnx_error(c, n, "the last dimension must be 1 (real) or 2 (real and imaginary)");
    if (c->opset >= 20 && onnx_in(n, 2) && (!onnx_static_ints(c, n->input[2], &given, 1, &count) || count != 1))
        return dft_of_runtime_axis(c, n, &d);
    if (!onnx_axis(c, n, given, x->type.rank, &axis))
        return false;
    if (axis == x->type.rank - 1)
        return onnx_error(c, n, "`axis` must not be the last one, which holds the real and imaginary parts");
    return onnx_set_output(c, n, 0, transformed(c, n, &d, x, axis));
}

/* signal [B, L, 1 or 2] in frames of `frame_length`, frame_step apart, times the window, transformed. */
bool onnx_op_stft(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *window = onnx_in(n, 2);
    tn_session *s = c->session;
    tn_dim step, length;
    if (!has_parts(x))
        return onnx_error(c, n, "the signal must end in a dimension of 1 (real) or 2 (real and imaginary)");
    if (!onnx_runtime_dims(c, n, n->input[1], 1, NULL, &step))
        return false;
    length = window ? window->type.dim[0] : x->type.dim[1];
    if (onnx_in(n, 3) && !window && !onnx_runtime_dims(c, n, n->input[3], 1, NULL, &length))
        return false;
    tn_dim frames = tn_dim_add(s, onnx_dim_div(c, tn_dim_sub(s, x->type.dim[1], length), step), emit_dim(c, 1));
    tn_dim dims[] = {frames, length}, flat = tn_dim_mul(s, frames, length);
    tn_dim wide[] = {x->type.dim[0], frames, length, x->type.dim[2]};
    tn_value *at = emit_mul(c, tn_iota(&c->b, TN_I64, dims, 2, 0), emit_size(c, step, TN_I64));
    at = emit_add(c, at, tn_iota(&c->b, TN_I64, dims, 2, 1));
    at = at ? tn_reshape(&c->b, at, &flat, 1) : NULL;
    tn_value *cut = emit_take(c, x, at, 1);
    cut = cut ? tn_reshape(&c->b, cut, wide, 4) : NULL;
    if (cut && window)
        cut = emit_mul(c, cut, emit_along(c, tn_convert(&c->b, window, cut->type.dtype), &cut->type, 2));
    return onnx_set_output(c, n, 0, cut ? forward(c, cut, 2, length, onnx_attr_int(c, n, "onesided", 1)) : NULL);
}

/* ---- windows
 * ---------------------------------------------------------------------------------------------------------------------
 */

/* a0 - a1 cos(2 pi i / N) + a2 cos(4 pi i / N), N the size, less 1 unless periodic. */
bool onnx_op_window(onnx_ctx *c, const onnx_node *n)
{
    static const struct {
        const char *type;
        double a[3];
    } rows[] = {{"HannWindow", {0.5, 0.5, 0}},
                {"HammingWindow", {25.0 / 46, 21.0 / 46, 0}},
                {"BlackmanWindow", {0.42, 0.5, 0.08}}};
    const double *a = rows[0].a;
    for (size_t i = 0; i < TN_COUNT(rows); i++)
        if (strcmp(rows[i].type, n->op_type) == 0)
            a = rows[i].a;
    tn_dtype to = onnx_attr_dtype(c, n, "output_datatype", TN_F32);
    tn_dim size;
    if (to == TN_NO_DTYPE || !onnx_runtime_dims(c, n, n->input[0], 1, NULL, &size))
        return false;
    tn_value *period = emit_size(c, size, TN_F64);
    if (!onnx_attr_int(c, n, "periodic", 1))
        period = emit_add_number(c, period, -1);
    tn_value *angle = emit_div(c, emit_mul_number(c, tn_iota(&c->b, TN_F64, &size, 1, 0), 2 * M_PI), period);
    tn_value *y = emit_add_number(c, emit_mul_number(c, emit_unary(c, TN_OP_cosine, angle), -a[1]), a[0]);
    if (a[2] != 0)
        y = emit_add(c, y, emit_mul_number(c, emit_unary(c, TN_OP_cosine, emit_mul_number(c, angle, 2)), a[2]));
    return onnx_set_output(c, n, 0, tn_convert(&c->b, y, to));
}

static tn_value *scalar_input(onnx_ctx *c, const onnx_node *n, int i)
{
    tn_value *x = tn_convert(&c->b, n->input[i], TN_F64);
    return x ? tn_reshape(&c->b, x, NULL, 0) : NULL;
}

static tn_value *mel_of(onnx_ctx *c, tn_value *hertz)
{
    return emit_mul_number(c, emit_unary(c, TN_OP_log, emit_add_number(c, emit_mul_number(c, hertz, 1.0 / 700), 1)),
                           2595 / M_LN10);
}

/* Triangles over the spectrum's bins: rising from the left to the centre edge, falling to the right one. */
bool onnx_op_mel_weight_matrix(onnx_ctx *c, const onnx_node *n)
{
    tn_session *s = c->session;
    tn_dim bins, length;
    tn_dtype to = onnx_attr_dtype(c, n, "output_datatype", TN_F32);
    if (to == TN_NO_DTYPE || !onnx_runtime_dims(c, n, n->input[0], 1, NULL, &bins) ||
        !onnx_runtime_dims(c, n, n->input[1], 1, NULL, &length))
        return false;
    tn_dim rows = tn_dim_add(s, tn_dim_floordiv(s, length, emit_dim(c, 2)), emit_dim(c, 1));
    tn_dim edges = tn_dim_add(s, bins, emit_dim(c, 2)), dims[] = {rows, bins};
    tn_value *low = mel_of(c, scalar_input(c, n, 3)), *high = mel_of(c, scalar_input(c, n, 4));
    tn_value *step = emit_div(c, emit_sub(c, high, low), emit_size(c, edges, TN_F64));
    tn_value *mel = emit_add(c, emit_mul(c, tn_iota(&c->b, TN_F64, &edges, 1, 0), step), low);
    tn_value *hertz = emit_unary(c, TN_OP_exponential, emit_mul_number(c, mel, M_LN10 / 2595));
    hertz = emit_mul_number(c, emit_add_number(c, hertz, -1), 700);
    tn_value *at = emit_mul(c, hertz, emit_add_number(c, emit_size(c, length, TN_F64), 1));
    at = emit_unary(c, TN_OP_floor, emit_div(c, at, scalar_input(c, n, 2)));
    tn_value *edge[3];
    for (int i = 0; i < 3; i++) {
        edge[i] = emit_slice_axis(c, at, 0, emit_dim(c, i), tn_dim_add(s, bins, emit_dim(c, i)), 1);
        if (!edge[i])
            return false;
        edge[i] = emit_broadcast(c, edge[i], dims, 2, EMIT_AXES(1));
    }
    tn_value *row = tn_iota(&c->b, TN_F64, dims, 2, 0), *zero = emit_number(c, TN_F64, 0),
             *one = emit_number(c, TN_F64, 1);
    tn_value *rise = emit_sub(c, edge[1], edge[0]), *fall = emit_sub(c, edge[2], edge[1]);
    tn_value *up = emit_div(c, emit_sub(c, row, edge[0]), emit_max(c, rise, one));
    up = emit_select(c, emit_compare_number(c, "EQ", rise, 0), one, up);
    tn_value *down = emit_div(c, emit_sub(c, edge[2], row), emit_max(c, fall, one));
    tn_value *rising = emit_and(c, emit_compare(c, "GE", row, edge[0]), emit_compare(c, "LE", row, edge[1]));
    tn_value *falling = emit_and(c, emit_compare(c, "GT", row, edge[1]), emit_compare(c, "LT", row, edge[2]));
    tn_value *y = emit_select(c, rising, up, emit_select(c, falling, down, zero));
    return onnx_set_output(c, n, 0, tn_convert(&c->b, y, to));
}
