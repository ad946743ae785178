/* The meaning of the scalar functions (scalars.def). One function a class of types computes in the wide form of
 * tn_number; the result is rounded or wrapped to its type once, at the end. For add, sub, mul, div and sqrt on 32 bits or
 * fewer the double's own rounding before that one changes nothing, as 53 >= 2 * 24 + 2 (S. A. Figueroa, "When is double
 * rounding innocuous?", 1995); fma needs, and gets, rounding to odd. */
#include "base/internal.h"

#include <assert.h>
#include <complex.h>
#include <math.h>
#include <string.h>

/* Header order: complex.h takes the name I. */
#undef I

/* ---- the table ----------------------------------------------------------------------------------------------------- */

typedef enum result_rule { RESULT_SAME, RESULT_BOOL, RESULT_REAL } result_rule;

typedef struct scalar_row {
    const char *name;
    int arity;
    unsigned accepts;
    result_rule result;
    unsigned traits;
} scalar_row;

enum {
    B = TN_CLASS_BOOL,
    I = TN_CLASS_INT,
    U = TN_CLASS_UINT,
    F = TN_CLASS_FLOAT,
    C = TN_CLASS_COMPLEX,
    ANY = B | I | U | F | C,
    COMMUTES = TN_SCALAR_COMMUTES,
    ASSOCIATES = TN_SCALAR_ASSOCIATES,
    IDEMPOTENT = TN_SCALAR_IDEMPOTENT,
    CHEAP = TN_SCALAR_CHEAP
};

static const scalar_row rows[TN_SCALAR_COUNT] = {
    [TN_SCALAR_NONE] = {"?", 0, 0, RESULT_SAME, 0},
#define SCALAR(name, arity, accepts, result, traits) [TN_S_##name] = {#name, arity, accepts, RESULT_##result, traits},
#include "base/scalars.def"
#undef SCALAR
};

const char *tn_scalar_name(tn_scalar fn)
{
    return rows[fn].name;
}

tn_scalar tn_scalar_from_name(const char *name)
{
    for (int fn = TN_SCALAR_NONE + 1; fn < TN_SCALAR_COUNT; fn++)
        if (!strcmp(rows[fn].name, name))
            return (tn_scalar)fn;
    return TN_SCALAR_NONE;
}

int tn_scalar_arity(tn_scalar fn)
{
    return rows[fn].arity;
}

unsigned tn_scalar_traits(tn_scalar fn)
{
    return rows[fn].traits;
}

bool tn_scalar_accepts(tn_scalar fn, tn_dtype dtype)
{
    return (rows[fn].accepts & tn_dtype_class(dtype)) != 0;
}

tn_dtype tn_scalar_result(tn_scalar fn, tn_dtype dtype)
{
    if (rows[fn].result == RESULT_BOOL)
        return TN_BOOL;
    return rows[fn].result == RESULT_REAL ? tn_dtype_real(dtype) : dtype;
}

/* ---- bool ---------------------------------------------------------------------------------------------------------- */

static uint64_t eval_bool(tn_scalar fn, uint64_t a, uint64_t b)
{
    switch (fn) {
    case TN_S_not:
        return !a;
    case TN_S_add:
    case TN_S_max:
    case TN_S_or:
        return a | b;
    case TN_S_mul:
    case TN_S_min:
    case TN_S_and:
        return a & b;
    case TN_S_xor:
    case TN_S_ne:
        return a ^ b;
    case TN_S_eq:
        return a == b;
    case TN_S_lt:
        return a < b;
    case TN_S_le:
        return a <= b;
    case TN_S_gt:
        return a > b;
    case TN_S_ge:
        return a >= b;
    default:
        assert(!"no function of bool");
        return 0;
    }
}

/* ---- integers ------------------------------------------------------------------------------------------------------ */

static bool int_less(bool is_signed, uint64_t a, uint64_t b)
{
    return is_signed ? (int64_t)a < (int64_t)b : a < b;
}

static uint64_t int_div(bool is_signed, uint64_t a, uint64_t b)
{
    if (b == 0)
        return ~UINT64_C(0);
    if (!is_signed)
        return a / b;
    return (int64_t)b == -1 ? -a : (uint64_t)((int64_t)a / (int64_t)b);
}

static uint64_t int_mulhi(bool is_signed, int bits, uint64_t a, uint64_t b)
{
    if (is_signed)
        return (uint64_t)(((__int128)(int64_t)a * (int64_t)b) >> bits);
    return (uint64_t)(((unsigned __int128)a * b) >> bits);
}

static uint64_t int_rem(bool is_signed, uint64_t a, uint64_t b)
{
    if (b == 0)
        return a;
    if (!is_signed)
        return a % b;
    return (int64_t)b == -1 ? 0 : (uint64_t)((int64_t)a % (int64_t)b);
}

static uint64_t int_pow(bool is_signed, uint64_t base, uint64_t exponent)
{
    if (is_signed && (int64_t)exponent < 0) {
        if (base == 1)
            return 1;
        return (int64_t)base != -1 ? 0 : exponent & 1 ? base : 1;
    }
    uint64_t power = 1;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1)
            power *= base;
    return power;
}

/* The amount counts as unsigned: a negative one is out of range as well. */
static uint64_t int_shift(tn_scalar fn, int bits, uint64_t a, uint64_t amount)
{
    uint64_t raw = a << (64 - bits) >> (64 - bits);
    bool out_of_range = amount >= (uint64_t)bits;
    if (fn == TN_S_shl)
        return out_of_range ? 0 : raw << amount;
    if (fn == TN_S_shr_logical)
        return out_of_range ? 0 : raw >> amount;
    int64_t extended = (int64_t)(a << (64 - bits)) >> (64 - bits);
    return (uint64_t)(extended >> (out_of_range ? (uint64_t)bits - 1 : amount));
}

static uint64_t int_unary(tn_scalar fn, bool is_signed, int bits, uint64_t a)
{
    uint64_t raw = a << (64 - bits) >> (64 - bits);
    bool negative = is_signed && (int64_t)a < 0;
    switch (fn) {
    case TN_S_neg:
        return -a;
    case TN_S_abs:
        return negative ? -a : a;
    case TN_S_sign:
        return negative ? ~UINT64_C(0) : a != 0;
    case TN_S_not:
        return ~a;
    case TN_S_popcnt:
        return (uint64_t)__builtin_popcountll(raw);
    case TN_S_clz:
        return (uint64_t)(raw ? __builtin_clzll(raw) - (64 - bits) : bits);
    default:
        assert(!"no unary function of integers");
        return 0;
    }
}

static uint64_t int_compare(tn_scalar fn, bool is_signed, uint64_t a, uint64_t b)
{
    switch (fn) {
    case TN_S_eq:
        return a == b;
    case TN_S_ne:
        return a != b;
    case TN_S_lt:
        return int_less(is_signed, a, b);
    case TN_S_le:
        return !int_less(is_signed, b, a);
    case TN_S_gt:
        return int_less(is_signed, b, a);
    case TN_S_ge:
        return !int_less(is_signed, a, b);
    default:
        assert(!"no function of integers");
        return 0;
    }
}

static uint64_t int_max(bool is_signed, uint64_t a, uint64_t b)
{
    return int_less(is_signed, a, b) ? b : a;
}

static uint64_t int_min(bool is_signed, uint64_t a, uint64_t b)
{
    return int_less(is_signed, b, a) ? b : a;
}

static uint64_t eval_integer(tn_scalar fn, tn_dtype dtype, const tn_number *x)
{
    bool is_signed = tn_dtype_class(dtype) == TN_CLASS_INT;
    int bits = tn_dtype_bits(dtype);
    if (rows[fn].arity == 1)
        return int_unary(fn, is_signed, bits, x[0].u);
    uint64_t a = x[0].u, b = x[1].u;
    switch (fn) {
    case TN_S_add:
        return a + b;
    case TN_S_sub:
        return a - b;
    case TN_S_mul:
        return a * b;
    case TN_S_mulhi:
        return int_mulhi(is_signed, bits, a, b);
    case TN_S_div:
        return int_div(is_signed, a, b);
    case TN_S_rem:
        return int_rem(is_signed, a, b);
    case TN_S_pow:
        return int_pow(is_signed, a, b);
    case TN_S_max:
        return int_max(is_signed, a, b);
    case TN_S_min:
        return int_min(is_signed, a, b);
    case TN_S_clamp:
        return int_min(is_signed, int_max(is_signed, b, a), x[2].u);
    case TN_S_and:
        return a & b;
    case TN_S_or:
        return a | b;
    case TN_S_xor:
        return a ^ b;
    case TN_S_shl:
    case TN_S_shr_arith:
    case TN_S_shr_logical:
        return int_shift(fn, bits, a, b);
    default:
        return int_compare(fn, is_signed, a, b);
    }
}

/* ---- floats -------------------------------------------------------------------------------------------------------- */

static double float_sign(double x)
{
    return isnan(x) || x == 0 ? x : copysign(1, x);
}

/* exp of the negative side only: no overflow, and small results keep their digits. */
static double float_logistic(double x)
{
    double e = exp(-fabs(x));
    return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

/* -0 is less than +0. */
static bool float_less(double a, double b)
{
    return a < b || (a == b && signbit(a) && !signbit(b));
}

static double float_max(double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    return float_less(a, b) ? b : a;
}

static double float_min(double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    return float_less(b, a) ? b : a;
}

static double float_maxnum(double a, double b)
{
    return isnan(a) ? b : isnan(b) ? a : float_max(a, b);
}

static double float_minnum(double a, double b)
{
    return isnan(a) ? b : isnan(b) ? a : float_min(a, b);
}

/* a * b + c for types of 32 bits or fewer. The product is exact in double; the sum, if it is not, becomes the odd one of
 * its two neighbours, so that the later rounding to the type sees that digits were lost. */
static double narrow_fma(double a, double b, double c)
{
    double product = a * b, sum = product + c;
    if (!isfinite(sum))
        return sum;
    double of_product = sum - c;
    double error = (product - of_product) + (c - (sum - of_product)); /* Knuth's two-sum: exact */
    uint64_t code;
    memcpy(&code, &sum, sizeof code);
    return error == 0 || code & 1 ? sum : nextafter(sum, error > 0 ? INFINITY : -INFINITY);
}

static double float_unary(tn_scalar fn, double x)
{
    switch (fn) {
    case TN_S_neg:
        return -x;
    case TN_S_abs:
        return fabs(x);
    case TN_S_sign:
        return float_sign(x);
    case TN_S_floor:
        return floor(x);
    case TN_S_ceil:
        return ceil(x);
    case TN_S_trunc:
        return trunc(x);
    case TN_S_round_even:
        return roundeven(x);
    case TN_S_round_away:
        return round(x);
    case TN_S_sqrt:
        return sqrt(x);
    case TN_S_rsqrt:
        return 1 / sqrt(x);
    case TN_S_cbrt:
        return cbrt(x);
    case TN_S_exp:
        return exp(x);
    case TN_S_exp2:
        return exp2(x);
    case TN_S_expm1:
        return expm1(x);
    case TN_S_log:
        return log(x);
    case TN_S_log2:
        return log2(x);
    case TN_S_log1p:
        return log1p(x);
    case TN_S_logistic:
        return float_logistic(x);
    case TN_S_sin:
        return sin(x);
    case TN_S_cos:
        return cos(x);
    case TN_S_tan:
        return tan(x);
    case TN_S_tanh:
        return tanh(x);
    case TN_S_erf:
        return erf(x);
    case TN_S_asin:
        return asin(x);
    case TN_S_acos:
        return acos(x);
    case TN_S_atan:
        return atan(x);
    case TN_S_sinh:
        return sinh(x);
    case TN_S_cosh:
        return cosh(x);
    case TN_S_asinh:
        return asinh(x);
    case TN_S_acosh:
        return acosh(x);
    case TN_S_atanh:
        return atanh(x);
    default:
        assert(!"no unary function of floats");
        return NAN;
    }
}

static double float_other(tn_scalar fn, tn_dtype dtype, const tn_number *x)
{
    double a = x[0].f, b = x[1].f;
    switch (fn) {
    case TN_S_add:
        return a + b;
    case TN_S_sub:
        return a - b;
    case TN_S_mul:
        return a * b;
    case TN_S_div:
    case TN_S_div_full:
        return a / b;
    case TN_S_rem:
        return fmod(a, b);
    case TN_S_pow:
        return pow(a, b);
    case TN_S_atan2:
        return atan2(a, b);
    case TN_S_max:
        return float_max(a, b);
    case TN_S_min:
        return float_min(a, b);
    case TN_S_maxnum:
        return float_maxnum(a, b);
    case TN_S_minnum:
        return float_minnum(a, b);
    case TN_S_fma:
        return dtype == TN_F64 ? fma(a, b, x[2].f) : narrow_fma(a, b, x[2].f);
    case TN_S_clamp:
        return float_min(float_max(b, a), x[2].f);
    default:
        assert(!"no function of floats");
        return NAN;
    }
}

static bool float_to_bool(tn_scalar fn, double a, double b)
{
    switch (fn) {
    case TN_S_is_finite:
        return isfinite(a);
    case TN_S_eq:
        return a == b;
    case TN_S_ne:
        return a != b;
    case TN_S_lt:
        return a < b;
    case TN_S_le:
        return a <= b;
    case TN_S_gt:
        return a > b;
    case TN_S_ge:
        return a >= b;
    default:
        assert(!"no predicate of floats");
        return false;
    }
}

/* ---- complex ------------------------------------------------------------------------------------------------------- */

static double complex complex_sign(double complex z)
{
    if (isnan(creal(z)) || isnan(cimag(z)))
        return __builtin_complex((double)NAN, (double)NAN);
    return z == 0 ? z : z / cabs(z);
}

/* e^z - 1 without the cancellation near 0: cos y - 1 = -2 sin^2(y / 2). */
static double complex complex_expm1(double complex z)
{
    double x = creal(z), y = cimag(z), half = sin(y / 2);
    return __builtin_complex(expm1(x) * cos(y) - 2 * half * half, exp(x) * sin(y));
}

/* log(1 + z): |1 + z|^2 - 1 = x (2 + x) + y^2 keeps the digits of a small z. */
static double complex complex_log1p(double complex z)
{
    double x = creal(z), y = cimag(z);
    if (fabs(x) > 0.5 || fabs(y) > 0.5)
        return clog(1 + z);
    return __builtin_complex(0.5 * log1p(x * (2 + x) + y * y), atan2(y, 1 + x));
}

static double complex complex_logistic(double complex z)
{
    if (creal(z) >= 0)
        return 1 / (1 + cexp(-z));
    double complex e = cexp(z);
    return e / (1 + e);
}

static double complex complex_pow(double complex base, double complex exponent)
{
    if (exponent == 0)
        return 1;
    if (base == 0 && creal(exponent) > 0)
        return 0;
    return cpow(base, exponent);
}

/* The four-product formula: an infinity may meet 0 and give NaN, as compiled code does. */
static double complex complex_mul(double complex a, double complex b)
{
    return __builtin_complex(creal(a) * creal(b) - cimag(a) * cimag(b), creal(a) * cimag(b) + cimag(a) * creal(b));
}

static double complex eval_complex(tn_scalar fn, double complex a, double complex b)
{
    switch (fn) {
    case TN_S_neg:
        return -a;
    case TN_S_abs:
        return cabs(a);
    case TN_S_sign:
        return complex_sign(a);
    case TN_S_sqrt:
        return csqrt(a);
    case TN_S_rsqrt:
        return 1 / csqrt(a);
    case TN_S_exp:
        return cexp(a);
    case TN_S_expm1:
        return complex_expm1(a);
    case TN_S_log:
        return clog(a);
    case TN_S_log1p:
        return complex_log1p(a);
    case TN_S_logistic:
        return complex_logistic(a);
    case TN_S_sin:
        return csin(a);
    case TN_S_cos:
        return ccos(a);
    case TN_S_tan:
        return ctan(a);
    case TN_S_tanh:
        return ctanh(a);
    case TN_S_real:
        return creal(a);
    case TN_S_imag:
        return cimag(a);
    case TN_S_add:
        return a + b;
    case TN_S_sub:
        return a - b;
    case TN_S_mul:
        return complex_mul(a, b);
    case TN_S_div:
        return a / b;
    case TN_S_pow:
        return complex_pow(a, b);
    default:
        assert(!"no function of complex numbers");
        return NAN;
    }
}

/* ---- all types ----------------------------------------------------------------------------------------------------- */

static tn_number round_complex(tn_dtype result, double complex value)
{
    return tn_number_convert((tn_number){.f = creal(value), .im = cimag(value)}, TN_C128, result);
}

static tn_number eval_on_complex(tn_scalar fn, tn_dtype dtype, const tn_number *x)
{
    double complex a = __builtin_complex(x[0].f, x[0].im), b = rows[fn].arity == 2 ? __builtin_complex(x[1].f, x[1].im) : 0;
    if (rows[fn].result == RESULT_BOOL)
        return (tn_number){.u = fn == TN_S_eq ? a == b : a != b};
    return round_complex(tn_scalar_result(fn, dtype), eval_complex(fn, a, b));
}

static tn_number eval_on_float(tn_scalar fn, tn_dtype dtype, const tn_number *x)
{
    if (rows[fn].result == RESULT_BOOL)
        return (tn_number){.u = float_to_bool(fn, x[0].f, rows[fn].arity == 2 ? x[1].f : 0)};
    double value = rows[fn].arity == 1 ? float_unary(fn, x[0].f) : float_other(fn, dtype, x);
    return tn_number_from_double(dtype, value);
}

tn_number tn_scalar_eval(tn_scalar fn, tn_dtype dtype, const tn_number *operands)
{
    assert(tn_scalar_accepts(fn, dtype));
    if (fn == TN_S_select)
        return operands[0].u ? operands[1] : operands[2];
    switch (tn_dtype_class(dtype)) {
    case TN_CLASS_BOOL:
        return (tn_number){.u = eval_bool(fn, operands[0].u, rows[fn].arity > 1 ? operands[1].u : 0)};
    case TN_CLASS_INT:
    case TN_CLASS_UINT:
        return (tn_number){.i = tn_wrap(tn_scalar_result(fn, dtype), eval_integer(fn, dtype, operands))};
    case TN_CLASS_FLOAT:
        return eval_on_float(fn, dtype, operands);
    case TN_CLASS_COMPLEX:
        return eval_on_complex(fn, dtype, operands);
    }
    return (tn_number){0};
}

bool tn_scalar_identity(tn_scalar fn, tn_dtype dtype, tn_number *out)
{
    switch (fn) {
    case TN_S_add:
    case TN_S_or:
    case TN_S_xor:
        *out = tn_number_from_int(dtype, 0);
        return true;
    case TN_S_mul:
        *out = tn_number_from_int(dtype, 1);
        return true;
    case TN_S_max:
    case TN_S_maxnum:
        *out = tn_number_lowest(dtype);
        return true;
    case TN_S_min:
    case TN_S_minnum:
        *out = tn_number_highest(dtype);
        return true;
    case TN_S_and:
        *out = dtype == TN_BOOL ? tn_number_from_int(dtype, 1) : tn_number_from_int(dtype, -1);
        return true;
    default:
        return false;
    }
}
