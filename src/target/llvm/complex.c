/* Complex numbers: a scalar is a vector of its two parts; there are no vectors of complex. Computed in f64 as tn_scalar_eval does, so that
 * c64 is rounded once; functions that the C library has are its own. */
#include <stdio.h>
#include <string.h>

#include "target/llvm/internal.h"

typedef struct parts { /* both f64 */
    LLVMValueRef re, im;
} parts;

static parts widen(tn_emitter *e, tn_dtype dtype, LLVMValueRef z)
{
    if (dtype == TN_C64)
        z = LLVMBuildFPExt(e->builder, z, tn_emit_double_type(e, 2), "");
    return (parts){tn_emit_lane(e, z, 0), tn_emit_lane(e, z, 1)};
}

static LLVMValueRef join(tn_emitter *e, LLVMValueRef re, LLVMValueRef im)
{
    LLVMTypeRef i32 = tn_emit_int_type(e, 32, 1), type = LLVMVectorType(LLVMTypeOf(re), 2);
    LLVMValueRef half = LLVMBuildInsertElement(e->builder, LLVMGetPoison(type), re, tn_emit_int(i32, 0), "");
    return LLVMBuildInsertElement(e->builder, half, im, tn_emit_int(i32, 1), "");
}

static LLVMValueRef narrow(tn_emitter *e, tn_dtype dtype, parts z)
{
    LLVMValueRef value = join(e, z.re, z.im);
    return dtype == TN_C64 ? LLVMBuildFPTrunc(e->builder, value, tn_emit_float_type(e, 2), "") : value;
}

static LLVMValueRef real_number(tn_emitter *e, double value) { return tn_emit_real(tn_emit_double_type(e, 1), value); }

static LLVMValueRef real_fn(tn_emitter *e, tn_scalar fn, LLVMValueRef x) { return tn_emit_fn(e, fn, TN_F64, &x); }

static LLVMValueRef copy_sign(tn_emitter *e, LLVMValueRef magnitude, LLVMValueRef sign)
{
    LLVMValueRef args[2] = {magnitude, sign};
    return tn_emit_intrinsic_same(e, "llvm.copysign", args, 2);
}

/* ---- the C library ------------------------------------------------------------------------------------------------------ */

/* double complex f(double complex, …): on x86-64 and AArch64 the parts travel in registers of their own, as separate doubles do. */
static parts call_complex(tn_emitter *e, const char *name, const parts *args, unsigned n)
{
    LLVMTypeRef f64 = tn_emit_double_type(e, 1), both[2] = {f64, f64}, params[4] = {f64, f64, f64, f64};
    LLVMTypeRef type = LLVMFunctionType(LLVMStructTypeInContext(e->context, both, 2, false), params, 2 * n, false);
    LLVMValueRef values[4], function = tn_emit_library_function(e, name, type);
    for (unsigned i = 0; i < n; i++)
        values[2 * i] = args[i].re, values[2 * i + 1] = args[i].im;
    LLVMValueRef result = LLVMBuildCall2(e->builder, type, function, values, 2 * n, "");
    return (parts){LLVMBuildExtractValue(e->builder, result, 0, ""), LLVMBuildExtractValue(e->builder, result, 1, "")};
}

static LLVMValueRef magnitude(tn_emitter *e, parts z)
{
    LLVMTypeRef f64 = tn_emit_double_type(e, 1), params[2] = {f64, f64}, type = LLVMFunctionType(f64, params, 2, false);
    LLVMValueRef args[2] = {z.re, z.im};
    return LLVMBuildCall2(e->builder, type, tn_emit_library_function(e, "hypot", type), args, 2, "");
}

/* ---- arithmetic --------------------------------------------------------------------------------------------------------- */

static parts multiply(tn_emitter *e, parts a, parts b)
{
    LLVMBuilderRef build = e->builder;
    return (parts){LLVMBuildFSub(build, LLVMBuildFMul(build, a.re, b.re, ""), LLVMBuildFMul(build, a.im, b.im, ""), ""),
                   LLVMBuildFAdd(build, LLVMBuildFMul(build, a.re, b.im, ""), LLVMBuildFMul(build, a.im, b.re, ""), "")};
}

static parts scale(tn_emitter *e, parts z, LLVMValueRef by)
{
    return (parts){LLVMBuildFMul(e->builder, z.re, by, ""), LLVMBuildFMul(e->builder, z.im, by, "")};
}

static parts choose(tn_emitter *e, LLVMValueRef condition, parts yes, parts no)
{
    return (parts){LLVMBuildSelect(e->builder, condition, yes.re, no.re, ""), LLVMBuildSelect(e->builder, condition, yes.im, no.im, "")};
}

/* a * conj(b) */
static parts multiply_conjugate(tn_emitter *e, parts a, parts b)
{
    return multiply(e, a, (parts){b.re, LLVMBuildFNeg(e->builder, b.im, "")});
}

static LLVMValueRef is_infinite(tn_emitter *e, LLVMValueRef x)
{
    return LLVMBuildFCmp(e->builder, LLVMRealOEQ, real_fn(e, TN_S_abs, x), real_number(e, __builtin_inf()), "");
}

/* An infinite part becomes +-1, a finite one +-0. */
static parts boxed(tn_emitter *e, parts z)
{
    LLVMValueRef re = LLVMBuildUIToFP(e->builder, is_infinite(e, z.re), tn_emit_double_type(e, 1), "");
    LLVMValueRef im = LLVMBuildUIToFP(e->builder, is_infinite(e, z.im), tn_emit_double_type(e, 1), "");
    return (parts){copy_sign(e, re, z.re), copy_sign(e, im, z.im)};
}

/* What C17, annex G.5.1, gives where the formula says NaN twice: a number over 0 or infinity over a number is infinite, a number over infinity
 * is 0. */
static parts recover_quotient(tn_emitter *e, parts a, parts b, LLVMValueRef norm, parts quotient)
{
    LLVMBuilderRef build = e->builder;
    LLVMValueRef infinity = real_number(e, __builtin_inf()), zero = real_number(e, 0);
    LLVMValueRef lost = LLVMBuildAnd(build, LLVMBuildFCmp(build, LLVMRealUNO, quotient.re, quotient.re, ""),
                                     LLVMBuildFCmp(build, LLVMRealUNO, quotient.im, quotient.im, ""), "");
    LLVMValueRef a_infinite = LLVMBuildOr(build, is_infinite(e, a.re), is_infinite(e, a.im), "");
    LLVMValueRef b_infinite = LLVMBuildOr(build, is_infinite(e, b.re), is_infinite(e, b.im), "");
    LLVMValueRef a_finite = LLVMBuildAnd(build, real_fn(e, TN_S_is_finite, a.re), real_fn(e, TN_S_is_finite, a.im), "");
    LLVMValueRef b_finite = LLVMBuildAnd(build, real_fn(e, TN_S_is_finite, b.re), real_fn(e, TN_S_is_finite, b.im), "");
    LLVMValueRef a_some = LLVMBuildNot(build, LLVMBuildAnd(build, LLVMBuildFCmp(build, LLVMRealUNO, a.re, a.re, ""),
                                                           LLVMBuildFCmp(build, LLVMRealUNO, a.im, a.im, ""), ""), "");
    LLVMValueRef by_zero = LLVMBuildAnd(build, LLVMBuildFCmp(build, LLVMRealOEQ, norm, zero, ""), a_some, "");
    parts small = scale(e, multiply_conjugate(e, a, boxed(e, b)), zero);
    parts large = scale(e, multiply_conjugate(e, boxed(e, a), b), infinity);
    parts result = choose(e, LLVMBuildAnd(build, b_infinite, a_finite, ""), small, quotient);
    result = choose(e, LLVMBuildAnd(build, a_infinite, b_finite, ""), large, result);
    result = choose(e, by_zero, scale(e, a, copy_sign(e, infinity, b.re)), result);
    return choose(e, lost, result, quotient);
}

/* 2^-k where 2^k <= x < 2^(k + 1); a large power for denormals and 0, a small one for the top and what is no number. */
static LLVMValueRef inverse_power(tn_emitter *e, LLVMValueRef x)
{
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef i64 = tn_emit_int_type(e, 64, 1), f64 = tn_emit_double_type(e, 1);
    LLVMValueRef exponent = LLVMBuildAnd(b, LLVMBuildBitCast(b, x, i64, ""), tn_emit_int(i64, INT64_C(0x7ff) << 52), "");
    LLVMValueRef inverse = LLVMBuildBitCast(b, LLVMBuildSub(b, tn_emit_int(i64, INT64_C(2046) << 52), exponent, ""), f64, "");
    LLVMValueRef first = LLVMBuildICmp(b, LLVMIntEQ, exponent, LLVMConstNull(i64), "");
    LLVMValueRef last = LLVMBuildICmp(b, LLVMIntUGE, exponent, tn_emit_int(i64, INT64_C(2046) << 52), "");
    inverse = LLVMBuildSelect(b, first, real_number(e, 0x1p1022), inverse, "");
    return LLVMBuildSelect(b, last, real_number(e, 0x1p-1022), inverse, "");
}

static LLVMValueRef greater_part(tn_emitter *e, parts z)
{
    LLVMValueRef sizes[2] = {real_fn(e, TN_S_abs, z.re), real_fn(e, TN_S_abs, z.im)};
    return tn_emit_intrinsic_same(e, "llvm.maximum", sizes, 2);
}

/* a * conj(b) / |b|^2, b scaled by a power of two so that its square neither overflows nor vanishes, a kept from the top of the range. */
static parts divide(tn_emitter *e, parts a, parts b)
{
    LLVMBuilderRef build = e->builder;
    LLVMValueRef by = inverse_power(e, greater_part(e, b));
    LLVMValueRef is_large = LLVMBuildFCmp(build, LLVMRealOGT, greater_part(e, a), real_number(e, 1), "");
    LLVMValueRef down = LLVMBuildSelect(build, is_large, real_number(e, 0.0625), real_number(e, 1), "");
    LLVMValueRef up = LLVMBuildSelect(build, is_large, real_number(e, 16), real_number(e, 1), "");
    parts scaled = scale(e, b, by), top = multiply_conjugate(e, scale(e, a, down), scaled);
    LLVMValueRef norm = LLVMBuildFAdd(build, LLVMBuildFMul(build, scaled.re, scaled.re, ""), LLVMBuildFMul(build, scaled.im, scaled.im, ""), "");
    parts ratio = {LLVMBuildFDiv(build, top.re, norm, ""), LLVMBuildFDiv(build, top.im, norm, "")};
    return recover_quotient(e, a, b, norm, scale(e, scale(e, ratio, by), up));
}

static parts add_one(tn_emitter *e, parts z) { return (parts){LLVMBuildFAdd(e->builder, real_number(e, 1), z.re, ""), z.im}; }

static parts one(tn_emitter *e) { return (parts){real_number(e, 1), real_number(e, 0)}; }

static LLVMValueRef is_zero(tn_emitter *e, parts z)
{
    LLVMValueRef zero = real_number(e, 0);
    return LLVMBuildAnd(e->builder, LLVMBuildFCmp(e->builder, LLVMRealOEQ, z.re, zero, ""), LLVMBuildFCmp(e->builder, LLVMRealOEQ, z.im, zero, ""), "");
}

/* ---- functions ------------------------------------------------------------------------------------------------------------ */

static parts complex_sign(tn_emitter *e, parts z)
{
    LLVMBuilderRef b = e->builder;
    LLVMValueRef size = magnitude(e, z), nan = real_number(e, __builtin_nan(""));
    parts unit = {LLVMBuildFDiv(b, z.re, size, ""), LLVMBuildFDiv(b, z.im, size, "")};
    return choose(e, LLVMBuildFCmp(b, LLVMRealUNO, z.re, z.im, ""), (parts){nan, nan}, choose(e, is_zero(e, z), z, unit));
}

static parts complex_expm1(tn_emitter *e, parts z)
{
    LLVMBuilderRef b = e->builder;
    LLVMValueRef half = real_fn(e, TN_S_sin, LLVMBuildFMul(b, z.im, real_number(e, 0.5), ""));
    LLVMValueRef twice = LLVMBuildFMul(b, LLVMBuildFMul(b, real_number(e, 2), half, ""), half, "");
    LLVMValueRef re = LLVMBuildFMul(b, real_fn(e, TN_S_expm1, z.re), real_fn(e, TN_S_cos, z.im), "");
    return (parts){LLVMBuildFSub(b, re, twice, ""), LLVMBuildFMul(b, real_fn(e, TN_S_exp, z.re), real_fn(e, TN_S_sin, z.im), "")};
}

static parts complex_log1p(tn_emitter *e, parts z)
{
    LLVMBuilderRef b = e->builder;
    LLVMValueRef half = real_number(e, 0.5), above = add_one(e, z).re;
    LLVMValueRef is_far = LLVMBuildOr(b, LLVMBuildFCmp(b, LLVMRealOGT, real_fn(e, TN_S_abs, z.re), half, ""),
                                      LLVMBuildFCmp(b, LLVMRealOGT, real_fn(e, TN_S_abs, z.im), half, ""), "");
    LLVMValueRef square = LLVMBuildFMul(b, z.re, LLVMBuildFAdd(b, real_number(e, 2), z.re, ""), "");
    square = LLVMBuildFAdd(b, square, LLVMBuildFMul(b, z.im, z.im, ""), "");
    LLVMValueRef angle[2] = {z.im, above};
    parts shifted = add_one(e, z), far = call_complex(e, "clog", &shifted, 1);
    parts near = {LLVMBuildFMul(b, half, real_fn(e, TN_S_log1p, square), ""), tn_emit_fn(e, TN_S_atan2, TN_F64, angle)};
    return choose(e, is_far, far, near);
}

/* 1 / (1 + e^-z), or e^z / (1 + e^z) on the left, so that the exponential does not overflow. */
static parts complex_logistic(tn_emitter *e, parts z)
{
    LLVMBuilderRef b = e->builder;
    LLVMValueRef right = LLVMBuildFCmp(b, LLVMRealOGE, z.re, real_number(e, 0), "");
    parts negated = {LLVMBuildFNeg(b, z.re, ""), LLVMBuildFNeg(b, z.im, "")}, argument = choose(e, right, negated, z);
    parts power = call_complex(e, "cexp", &argument, 1);
    return divide(e, choose(e, right, one(e), power), add_one(e, power));
}

static parts complex_pow(tn_emitter *e, const parts *args)
{
    LLVMBuilderRef b = e->builder;
    LLVMValueRef zero = real_number(e, 0), vanishes = LLVMBuildFCmp(b, LLVMRealOGT, args[1].re, zero, "");
    parts power = call_complex(e, "cpow", args, 2);
    power = choose(e, LLVMBuildAnd(b, is_zero(e, args[0]), vanishes, ""), (parts){zero, zero}, power);
    return choose(e, is_zero(e, args[1]), one(e), power);
}

static parts wide_fn(tn_emitter *e, tn_scalar fn, const parts *args)
{
    switch (fn) {
    case TN_S_mul: return multiply(e, args[0], args[1]);
    case TN_S_div: return divide(e, args[0], args[1]);
    case TN_S_pow: return complex_pow(e, args);
    case TN_S_sign: return complex_sign(e, args[0]);
    case TN_S_expm1: return complex_expm1(e, args[0]);
    case TN_S_log1p: return complex_log1p(e, args[0]);
    case TN_S_logistic: return complex_logistic(e, args[0]);
    case TN_S_rsqrt: return divide(e, one(e), call_complex(e, "csqrt", args, 1));
    default: {
        char name[16]; /* sqrt exp log sin cos tan tanh */
        snprintf(name, sizeof name, "c%s", tn_scalar_name(fn));
        return call_complex(e, name, args, 1);
    }
    }
}

static LLVMValueRef compare(tn_emitter *e, tn_scalar fn, LLVMValueRef *args)
{
    LLVMValueRef lanes = LLVMBuildFCmp(e->builder, fn == TN_S_eq ? LLVMRealOEQ : LLVMRealUNE, args[0], args[1], "");
    LLVMValueRef first = tn_emit_lane(e, lanes, 0), second = tn_emit_lane(e, lanes, 1);
    return fn == TN_S_eq ? LLVMBuildAnd(e->builder, first, second, "") : LLVMBuildOr(e->builder, first, second, "");
}

LLVMValueRef tn_emit_complex_fn(tn_emitter *e, tn_scalar fn, tn_dtype dtype, LLVMValueRef *args)
{
    parts wide[2];
    switch (fn) {
    case TN_S_neg: return LLVMBuildFNeg(e->builder, args[0], "");
    case TN_S_add: return LLVMBuildFAdd(e->builder, args[0], args[1], "");
    case TN_S_sub: return LLVMBuildFSub(e->builder, args[0], args[1], "");
    case TN_S_real: return tn_emit_lane(e, args[0], 0);
    case TN_S_imag: return tn_emit_lane(e, args[0], 1);
    case TN_S_eq:
    case TN_S_ne: return compare(e, fn, args);
    default: break;
    }
    for (int i = 0; i < tn_scalar_arity(fn); i++)
        wide[i] = widen(e, dtype, args[i]);
    if (fn == TN_S_abs)
        return tn_emit_cast(e, magnitude(e, wide[0]), TN_F64, tn_dtype_real(dtype));
    return narrow(e, dtype, wide_fn(e, fn, wide));
}

LLVMValueRef tn_emit_complex_cast(tn_emitter *e, LLVMValueRef value, tn_dtype from, tn_dtype to)
{
    tn_dtype part = tn_dtype_real(to);
    if (!tn_is_complex(from))
        return join(e, tn_emit_cast(e, value, from, part), LLVMConstNull(tn_emit_type(e, part, 1)));
    if (!tn_is_complex(to))
        return tn_emit_cast(e, tn_emit_lane(e, value, 0), tn_dtype_real(from), to);
    return to == TN_C128 ? LLVMBuildFPExt(e->builder, value, tn_emit_double_type(e, 2), "")
                         : LLVMBuildFPTrunc(e->builder, value, tn_emit_float_type(e, 2), "");
}
