/* Elementwise operations: one scalar kernel, applied to every element. Also the kernels' own meaning, shared with the
 * scalar regions of reduce, sort and the like. */
#include "eval/internal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

tn_kernel tn_kernel_of(const tn_op *op)
{
    tn_kernel k = {.fn = tn_op_scalar(op), .to = op->result[0].type.dtype};
    k.from = tn_operand(op, op->noperands - 1)->type.dtype;
    switch (op->code) {
    case TN_OP_compare:
        k.kind = tn_attr_int(op, TN_A_total_order, 0) && tn_is_float(k.from) ? TN_KERNEL_TOTAL_ORDER : TN_KERNEL_SCALAR;
        break;
    case TN_OP_complex:
        k.kind = TN_KERNEL_COMPLEX;
        break;
    case TN_OP_convert:
        k.kind = tn_attr_int(op, TN_A_saturate, 0) && (k.to == TN_F8E4M3 || k.to == TN_F8E5M2) ? TN_KERNEL_SATURATE
                                                                                               : TN_KERNEL_CONVERT;
        break;
    case TN_OP_reduce_precision:
        k.kind = TN_KERNEL_PRECISION;
        k.exponent_bits = (int)tn_min(tn_attr_int(op, TN_A_exponent_bits, 11), 11);
        k.mantissa_bits = (int)tn_min(tn_attr_int(op, TN_A_mantissa_bits, 52), 52);
        break;
    case TN_OP_clamp:
        k.from = tn_operand(op, 1)->type.dtype;
        break;
    default:
        break;
    }
    assert(k.kind != TN_KERNEL_SCALAR || k.fn != TN_SCALAR_NONE);
    return k;
}

/* IEEE totalOrder as an integer key: -NaN < -inf < … < -0 < +0 < … < inf < NaN. */
static int64_t order_key(double value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits < 0 ? bits ^ INT64_MAX : bits;
}

static tn_number compare_total(const tn_kernel *k, const tn_number *x)
{
    tn_number keys[2] = {{.i = order_key(x[0].f)}, {.i = order_key(x[1].f)}};
    return tn_scalar_eval(k->fn, TN_I64, keys);
}

static tn_number convert_saturating(const tn_kernel *k, tn_number x)
{
    const double most = k->to == TN_F8E4M3 ? 448 : 57344;
    double value = tn_number_to_double(k->from, x);
    if (value > most || value < -most)
        value = copysign(most, value);
    return tn_number_from_double(k->to, value);
}

/* Fields of the float formats, for arithmetic on their bits. */
typedef struct float_format {
    int exponent_bits, mantissa_bits;
} float_format;

static float_format format_of(tn_dtype dtype)
{
    switch (dtype) {
    case TN_F8E4M3:
        return (float_format){4, 3};
    case TN_F8E5M2:
        return (float_format){5, 2};
    case TN_F16:
        return (float_format){5, 10};
    case TN_BF16:
        return (float_format){8, 7};
    case TN_F32:
        return (float_format){8, 23};
    default:
        return (float_format){11, 52};
    }
}

/* Rounds to the nearest with m mantissa bits (ties to even), then to infinity or zero what e exponent bits cannot hold.
 * As in XLA the rounding works on the bits of the source format, and what would be subnormal becomes zero. */
static tn_number reduce_precision(const tn_kernel *k, tn_number x)
{
    const float_format f = format_of(k->from);
    uint64_t bits = 0, sign, magnitude, exponent_mask = ((1ull << f.exponent_bits) - 1) << f.mantissa_bits;
    if (isnan(x.f))
        return k->mantissa_bits > 0 ? x : tn_number_from_double(k->from, copysign(INFINITY, x.f));
    tn_number_store(k->from, &bits, 0, x);
    sign = bits & 1ull << (f.exponent_bits + f.mantissa_bits);
    magnitude = bits ^ sign;
    if (k->mantissa_bits < f.mantissa_bits) {
        int dropped = f.mantissa_bits - k->mantissa_bits;
        uint64_t odd = magnitude >> dropped & 1;
        magnitude += (1ull << (dropped - 1)) - 1 + odd;
        magnitude &= ~((1ull << dropped) - 1);
    }
    if (k->exponent_bits < f.exponent_bits) {
        uint64_t source_bias = (1ull << (f.exponent_bits - 1)) - 1, bias = (1ull << (k->exponent_bits - 1)) - 1;
        uint64_t exponent = magnitude & exponent_mask;
        if (exponent > (source_bias + bias) << f.mantissa_bits)
            return tn_number_from_double(k->from, sign ? -INFINITY : INFINITY);
        if (exponent <= (source_bias - bias) << f.mantissa_bits)
            magnitude = 0;
    }
    bits = sign | magnitude;
    return tn_number_load(k->from, &bits, 0);
}

tn_number tn_kernel_eval(const tn_kernel *k, const tn_number *x)
{
    switch (k->kind) {
    case TN_KERNEL_SCALAR:
        return tn_scalar_eval(k->fn, k->from, x);
    case TN_KERNEL_TOTAL_ORDER:
        return compare_total(k, x);
    case TN_KERNEL_COMPLEX:
        return (tn_number){.f = x[0].f, .im = x[1].f};
    case TN_KERNEL_CONVERT:
        return tn_number_convert(x[0], k->from, k->to);
    case TN_KERNEL_SATURATE:
        return convert_saturating(k, x[0]);
    case TN_KERNEL_PRECISION:
        return reduce_precision(k, x[0]);
    }
    return x[0];
}

/* ---- whole tensors ----------------------------------------------------------------------------------------------- */

/* The four sums and products of f32, where models spend their elements: +, -, *, / of floats in float round as in
 * double and then to float (double has more than twice the bits). False if this is not such a case. */
static bool fast_f32(const tn_kernel *k, tn_eval_value *const *in, float *y, int64_t n)
{
    if (k->kind != TN_KERNEL_SCALAR || k->from != TN_F32 || tn_scalar_arity(k->fn) != 2)
        return false;
    const tn_loose_f32 *a = in[0]->tensor.data, *b = in[1]->tensor.data;
    const int64_t sa = !in[0]->tensor.splat && tn_count_of(&in[0]->tensor) == n,
                  sb = !in[1]->tensor.splat && tn_count_of(&in[1]->tensor) == n;
    switch (k->fn) {
    case TN_S_add:
        for (int64_t i = 0; i < n; i++)
            y[i] = a[i * sa] + b[i * sb];
        return true;
    case TN_S_sub:
        for (int64_t i = 0; i < n; i++)
            y[i] = a[i * sa] - b[i * sb];
        return true;
    case TN_S_mul:
        for (int64_t i = 0; i < n; i++)
            y[i] = a[i * sa] * b[i * sb];
        return true;
    case TN_S_div:
        for (int64_t i = 0; i < n; i++)
            y[i] = a[i * sa] / b[i * sb];
        return true;
    default:
        return false;
    }
}

/* y[i] = kernel(x0[i], x1[i], …); an operand of rank 0 is used for every element. */
static EVAL(elementwise)
{
    const tn_kernel k = tn_kernel_of(op);
    assert(op->noperands >= 1 && op->noperands <= 3);
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    const tn_tensor *y = &out[0]->tensor;
    const int64_t n = tn_count_of(y);
    int64_t step[3] = {0};
    TN_TRY(tn_eval_work(e, op->loc, n, 1));
    for (int j = 0; j < op->noperands; j++) {
        const tn_tensor *x = &in[j]->tensor;
        for (int d = 0; x->rank && d < y->rank; d++)
            if (x->rank != y->rank || x->dim[d] != y->dim[d])
                return tn_eval_expect(e, op, "size of a dimension of an operand", y->dim[d],
                                      d < x->rank ? x->dim[d] : 0);
        step[j] = x->rank && !x->splat;
    }
    if (fast_f32(&k, in, tn_eval_data(out[0]), n))
        return TN_OK;
    for (int64_t i = 0; i < n; i++) {
        tn_number x[3];
        for (int j = 0; j < op->noperands; j++)
            x[j] = tn_number_load(in[j]->tensor.dtype, in[j]->tensor.data, i * step[j]);
        tn_number_store(y->dtype, tn_eval_data(out[0]), i, tn_kernel_eval(&k, x));
    }
    return TN_OK;
}

#define ELEMENTWISE(name)                                                                                              \
    EVAL(name)                                                                                                         \
    {                                                                                                                  \
        return tn_eval_elementwise(e, op, in, out);                                                                    \
    }
ELEMENTWISE(abs)
ELEMENTWISE(negate)
ELEMENTWISE(sign)
ELEMENTWISE(floor)
ELEMENTWISE(ceil)
ELEMENTWISE(round_nearest_even)
ELEMENTWISE(round_nearest_afz)
ELEMENTWISE(sqrt)
ELEMENTWISE(rsqrt)
ELEMENTWISE(cbrt)
ELEMENTWISE(exponential)
ELEMENTWISE(exponential_minus_one)
ELEMENTWISE(log)
ELEMENTWISE(log_plus_one)
ELEMENTWISE(logistic)
ELEMENTWISE(sine)
ELEMENTWISE(cosine)
ELEMENTWISE(tan)
ELEMENTWISE(tanh)
ELEMENTWISE(erf)
ELEMENTWISE(asin)
ELEMENTWISE(acos)
ELEMENTWISE(atan)
ELEMENTWISE(sinh)
ELEMENTWISE(cosh)
ELEMENTWISE(asinh)
ELEMENTWISE(acosh)
ELEMENTWISE(atanh)
ELEMENTWISE(is_finite)
ELEMENTWISE(not)
ELEMENTWISE(popcnt)
ELEMENTWISE(count_leading_zeros)
ELEMENTWISE(real)
ELEMENTWISE(imag)
ELEMENTWISE(add)
ELEMENTWISE(subtract)
ELEMENTWISE(multiply)
ELEMENTWISE(divide)
ELEMENTWISE(remainder)
ELEMENTWISE(power)
ELEMENTWISE(maximum)
ELEMENTWISE(minimum)
ELEMENTWISE(and)
ELEMENTWISE(or)
ELEMENTWISE(xor)
ELEMENTWISE(shift_left)
ELEMENTWISE(shift_right_arithmetic)
ELEMENTWISE(shift_right_logical)
ELEMENTWISE(atan2)
ELEMENTWISE(compare)
ELEMENTWISE(select)
ELEMENTWISE(clamp)
ELEMENTWISE(complex)
ELEMENTWISE(convert)
ELEMENTWISE(reduce_precision)
