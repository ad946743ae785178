/* The scalar functions of base/scalars.def, lane by lane. Simple rows are instructions or LLVM intrinsics; what no machine has is a call
 * of the C library for each lane: right, and slow, because the pass `expand` has replaced what matters. */
#include <stdio.h>
#include <string.h>

#include "target/internal.h"
#include "target/llvm/internal.h"

/* How a row looks on f32 and f64 where it is one call: an LLVM intrinsic or a function of the C library (f32: with an f). */
typedef struct float_row {
    const char *intrinsic, *library;
} float_row;

static const float_row float_rows[TN_SCALAR_COUNT] = {
#define LIBRARY(name) [TN_S_##name] = {.library = #name},
    LIBRARY(cbrt) LIBRARY(exp) LIBRARY(exp2) LIBRARY(expm1) LIBRARY(log) LIBRARY(log2) LIBRARY(log1p) LIBRARY(sin) LIBRARY(cos)
    LIBRARY(tan) LIBRARY(tanh) LIBRARY(erf) LIBRARY(asin) LIBRARY(acos) LIBRARY(atan) LIBRARY(sinh) LIBRARY(cosh) LIBRARY(asinh)
    LIBRARY(acosh) LIBRARY(atanh) LIBRARY(pow) LIBRARY(atan2)
#undef LIBRARY
    [TN_S_rem] = {.library = "fmod"},
    [TN_S_abs] = {.intrinsic = "llvm.fabs"},
    [TN_S_floor] = {.intrinsic = "llvm.floor"},
    [TN_S_ceil] = {.intrinsic = "llvm.ceil"},
    [TN_S_trunc] = {.intrinsic = "llvm.trunc"},
    [TN_S_round_even] = {.intrinsic = "llvm.roundeven"},
    [TN_S_round_away] = {.intrinsic = "llvm.round"},
    [TN_S_sqrt] = {.intrinsic = "llvm.sqrt"},
    [TN_S_max] = {.intrinsic = "llvm.maximum"},
    [TN_S_min] = {.intrinsic = "llvm.minimum"},
    [TN_S_fma] = {.intrinsic = "llvm.fma"},
};

static LLVMValueRef refuse_fn(tn_emitter *e, LLVMTypeRef type, tn_scalar fn, tn_dtype dtype)
{
    return tn_emit_refuse(e, type, "%s on %s", tn_scalar_name(fn), tn_dtype_text(dtype));
}

/* ---- the C library --------------------------------------------------------------------------------------------------- */

LLVMValueRef tn_emit_library_function(tn_emitter *e, const char *name, LLVMTypeRef type)
{
    LLVMValueRef function = LLVMGetNamedFunction(e->module, name);
    if (function)
        return function;
    if (e->machine->gpu)
        tn_emit_refuse(e, NULL, "a call of the C library's %s", name);
    function = LLVMAddFunction(e->module, name, type);
    /* nobuiltin: LLVM must neither fold the call with its host's library nor trade it for another function. */
    static const char *const attributes[] = {"nounwind", "nobuiltin", "willreturn"};
    for (size_t i = 0; i < TN_COUNT(attributes); i++)
        tn_emit_attribute(e, function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, attributes[i]);
    return function;
}

static LLVMValueRef call_library(tn_emitter *e, const char *base_name, tn_dtype dtype, LLVMValueRef *args, unsigned nargs)
{
    char name[16];
    LLVMTypeRef type = LLVMTypeOf(args[0]), scalar = tn_emit_type(e, dtype, 1);
    int lanes = tn_emit_lanes(type);
    snprintf(name, sizeof name, "%s%s", base_name, dtype == TN_F32 ? "f" : "");
    LLVMTypeRef params[3] = {scalar, scalar, scalar}, signature = LLVMFunctionType(scalar, params, nargs, false);
    LLVMValueRef function = tn_emit_library_function(e, name, signature), result = LLVMGetPoison(type);
    for (int i = 0; i < lanes; i++) {
        LLVMValueRef lane[3];
        for (unsigned k = 0; k < nargs; k++)
            lane[k] = tn_emit_lane(e, args[k], i);
        LLVMValueRef y = LLVMBuildCall2(e->builder, signature, function, lane, nargs, "");
        if (lanes == 1)
            return y;
        LLVMValueRef at = LLVMConstInt(LLVMInt32TypeInContext(e->context), (unsigned)i, false);
        result = LLVMBuildInsertElement(e->builder, result, y, at, "");
    }
    return result;
}

/* ---- f32 and f64 -------------------------------------------------------------------------------------------------------- */

static LLVMValueRef select_nan(tn_emitter *e, LLVMValueRef tested, LLVMValueRef if_nan, LLVMValueRef otherwise)
{
    LLVMValueRef is_nan = LLVMBuildFCmp(e->builder, LLVMRealUNO, tested, tested, "");
    return LLVMBuildSelect(e->builder, is_nan, if_nan, otherwise, "");
}

/* The operand that is a number; of two numbers, the greater (least). */
static LLVMValueRef prefer_number(tn_emitter *e, const char *intrinsic, LLVMValueRef *args)
{
    LLVMValueRef both = tn_emit_intrinsic_same(e, intrinsic, args, 2);
    return select_nan(e, args[0], args[1], select_nan(e, args[1], args[0], both));
}

static LLVMValueRef float_sign(tn_emitter *e, LLVMValueRef x)
{
    LLVMTypeRef type = LLVMTypeOf(x);
    LLVMValueRef args[2] = {tn_emit_real(type, 1), x};
    LLVMValueRef one = tn_emit_intrinsic_same(e, "llvm.copysign", args, 2);
    LLVMValueRef is_other = LLVMBuildFCmp(e->builder, LLVMRealUEQ, x, LLVMConstNull(type), ""); /* zeros and NaN are their own sign */
    return LLVMBuildSelect(e->builder, is_other, x, one, "");
}

static LLVMValueRef logistic(tn_emitter *e, tn_dtype dtype, LLVMValueRef x)
{
    LLVMValueRef one = tn_emit_real(LLVMTypeOf(x), 1), negated = LLVMBuildFNeg(e->builder, x, "");
    LLVMValueRef below = LLVMBuildFAdd(e->builder, one, call_library(e, "exp", dtype, &negated, 1), "");
    return LLVMBuildFDiv(e->builder, one, below, "");
}

static LLVMValueRef is_finite(tn_emitter *e, LLVMValueRef x)
{
    LLVMTypeRef type = LLVMTypeOf(x);
    LLVMValueRef magnitude = tn_emit_intrinsic_same(e, "llvm.fabs", &x, 1);
    return LLVMBuildFCmp(e->builder, LLVMRealOLT, magnitude, tn_emit_real(type, __builtin_inf()), "");
}

/* AVX-512DQ's vrange orders zeros as all four functions do, and prefers a number to a quiet NaN: where NaN wins, that is left to mend. NULL: no such
 * instruction for this type. */
static LLVMValueRef ranged(tn_emitter *e, tn_scalar fn, tn_dtype dtype, LLVMValueRef *args)
{
    bool max = fn == TN_S_max || fn == TN_S_maxnum, number = fn == TN_S_maxnum || fn == TN_S_minnum;
    if (!max && fn != TN_S_min && fn != TN_S_minnum)
        return NULL;
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef type = LLVMTypeOf(args[0]), i32 = LLVMInt32TypeInContext(e->context);
    int lanes = tn_emit_lanes(type), bits = lanes * tn_dtype_bits(dtype);
    if (!strstr(e->machine->needs, "avx512dq") || (bits != 512 && bits != 256 && bits != 128))
        return NULL;
    char name[64];
    snprintf(name, sizeof name, "llvm.x86.avx512.mask.range.%s.%d", dtype == TN_F32 ? "ps" : "pd", bits);
    LLVMTypeRef mask = LLVMIntTypeInContext(e->context, lanes < 8 ? 8 : (unsigned)lanes);
    LLVMValueRef call[6] = {args[0],           args[1], LLVMConstInt(i32, max ? 5 : 4, false), LLVMGetPoison(type),
                            LLVMConstAllOnes(mask), LLVMConstInt(i32, 4, false)};
    LLVMTypeRef params[6];
    unsigned n = bits == 512 ? 6 : 5; /* only the widest has a rounding operand */
    for (unsigned i = 0; i < n; i++)
        params[i] = LLVMTypeOf(call[i]);
    LLVMTypeRef signature = LLVMFunctionType(type, params, n, false);
    LLVMValueRef function = LLVMGetNamedFunction(e->module, name);
    if (!function)
        function = LLVMAddFunction(e->module, name, signature);
    LLVMValueRef ordered = LLVMBuildCall2(b, signature, function, call, n, "");
    if (number)
        return ordered;
    LLVMValueRef is_nan = LLVMBuildFCmp(b, LLVMRealUNO, args[0], args[1], "");
    return LLVMBuildSelect(b, is_nan, LLVMBuildFAdd(b, args[0], args[1], ""), ordered, "");
}

static LLVMValueRef float_fn(tn_emitter *e, tn_scalar fn, tn_dtype dtype, LLVMValueRef *args)
{
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef type = LLVMTypeOf(args[0]);
    unsigned nargs = (unsigned)tn_scalar_arity(fn);
    LLVMValueRef in_range = ranged(e, fn, dtype, args);
    if (in_range)
        return in_range;
    if (float_rows[fn].intrinsic)
        return tn_emit_intrinsic_same(e, float_rows[fn].intrinsic, args, nargs);
    if (float_rows[fn].library)
        return call_library(e, float_rows[fn].library, dtype, args, nargs);
    switch (fn) {
    case TN_S_neg: return LLVMBuildFNeg(b, args[0], "");
    case TN_S_add: return LLVMBuildFAdd(b, args[0], args[1], "");
    case TN_S_sub: return LLVMBuildFSub(b, args[0], args[1], "");
    case TN_S_mul: return LLVMBuildFMul(b, args[0], args[1], "");
    case TN_S_div:
    case TN_S_div_full: return LLVMBuildFDiv(b, args[0], args[1], "");
    case TN_S_eq: return LLVMBuildFCmp(b, LLVMRealOEQ, args[0], args[1], "");
    case TN_S_ne: return LLVMBuildFCmp(b, LLVMRealUNE, args[0], args[1], "");
    case TN_S_lt: return LLVMBuildFCmp(b, LLVMRealOLT, args[0], args[1], "");
    case TN_S_le: return LLVMBuildFCmp(b, LLVMRealOLE, args[0], args[1], "");
    case TN_S_gt: return LLVMBuildFCmp(b, LLVMRealOGT, args[0], args[1], "");
    case TN_S_ge: return LLVMBuildFCmp(b, LLVMRealOGE, args[0], args[1], "");
    case TN_S_rsqrt: return LLVMBuildFDiv(b, tn_emit_real(type, 1), tn_emit_intrinsic_same(e, "llvm.sqrt", args, 1), "");
    case TN_S_logistic: return logistic(e, dtype, args[0]);
    case TN_S_sign: return float_sign(e, args[0]);
    case TN_S_is_finite: return is_finite(e, args[0]);
    case TN_S_maxnum: /* what a GPU has for llvm.maxnum is exactly it: PTX orders zeros by sign */
        return e->machine->gpu ? tn_emit_intrinsic_same(e, "llvm.maxnum", args, 2) : prefer_number(e, "llvm.maximum", args);
    case TN_S_minnum:
        return e->machine->gpu ? tn_emit_intrinsic_same(e, "llvm.minnum", args, 2) : prefer_number(e, "llvm.minimum", args);
    case TN_S_clamp: {
        LLVMValueRef low[2] = {args[1], args[0]};
        LLVMValueRef high[2] = {tn_emit_intrinsic_same(e, "llvm.maximum", low, 2), args[2]};
        return tn_emit_intrinsic_same(e, "llvm.minimum", high, 2);
    }
    default: return refuse_fn(e, type, fn, dtype);
    }
}

/* a * b + c in f64, rounded to odd: the product is exact, the error of the sum is known (D. Knuth, TAOCP 2, 4.2.2), and where there is one, an
 * even last digit moves toward the exact sum. Rounding that to a narrow float is the one rounding of fma. */
static LLVMValueRef odd_multiply_add(tn_emitter *e, LLVMValueRef *args)
{
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef f64 = LLVMTypeOf(args[0]), i64 = tn_emit_int_type(e, 64, tn_emit_lanes(f64));
    LLVMValueRef zero = LLVMConstNull(f64), product = LLVMBuildFMul(b, args[0], args[1], ""), c = args[2];
    LLVMValueRef sum = LLVMBuildFAdd(b, product, c, ""), part = LLVMBuildFSub(b, sum, product, "");
    LLVMValueRef error = LLVMBuildFAdd(b, LLVMBuildFSub(b, product, LLVMBuildFSub(b, sum, part, ""), ""), LLVMBuildFSub(b, c, part, ""), "");
    LLVMValueRef inexact = LLVMBuildFCmp(b, LLVMRealONE, error, zero, "");
    LLVMValueRef shrinks = LLVMBuildXor(b, LLVMBuildFCmp(b, LLVMRealOLT, error, zero, ""), LLVMBuildFCmp(b, LLVMRealOLT, sum, zero, ""), "");
    LLVMValueRef bits = LLVMBuildBitCast(b, sum, i64, ""), odd = LLVMBuildAnd(b, bits, tn_emit_int(i64, 1), "");
    LLVMValueRef moves = LLVMBuildAnd(b, inexact, LLVMBuildICmp(b, LLVMIntEQ, odd, LLVMConstNull(i64), ""), "");
    LLVMValueRef by = LLVMBuildSelect(b, shrinks, tn_emit_int(i64, -1), tn_emit_int(i64, 1), "");
    by = LLVMBuildSelect(b, moves, by, LLVMConstNull(i64), "");
    return LLVMBuildBitCast(b, LLVMBuildAdd(b, bits, by, ""), f64, "");
}

/* f16, bf16: computed in f32, whose 24 digits make the second rounding harmless for + - * / and sqrt; fma needs more. */
static LLVMValueRef narrow_float_fn(tn_emitter *e, tn_scalar fn, tn_dtype dtype, LLVMValueRef *args)
{
    LLVMValueRef wide[3], paired = e->machine->gpu ? tn_emit_gpu_paired(e, fn, dtype, args) : NULL;
    tn_dtype through = fn == TN_S_fma ? TN_F64 : TN_F32;
    if (paired)
        return paired;
    for (int i = 0; i < tn_scalar_arity(fn); i++)
        wide[i] = tn_emit_cast(e, args[i], dtype, through);
    LLVMValueRef result = fn == TN_S_fma ? odd_multiply_add(e, wide) : tn_emit_fn(e, fn, through, wide);
    return tn_scalar_result(fn, dtype) == TN_BOOL ? result : tn_emit_cast(e, result, through, dtype);
}

/* ---- integers ------------------------------------------------------------------------------------------------------------ */

static bool is_constant_between(LLVMValueRef value, unsigned long long low, unsigned long long high)
{
    if (tn_emit_lanes(LLVMTypeOf(value)) > 1) {
        if (!LLVMIsConstant(value))
            return false;
        LLVMValueRef lane = LLVMGetAggregateElement(value, 0);
        for (int i = 1; lane && i < tn_emit_lanes(LLVMTypeOf(value)); i++)
            if (LLVMGetAggregateElement(value, (unsigned)i) != lane)
                return false;
        return lane && is_constant_between(lane, low, high);
    }
    if (!LLVMIsAConstantInt(value) || LLVMGetIntTypeWidth(LLVMTypeOf(value)) > 64)
        return false;
    unsigned long long bits = LLVMConstIntGetZExtValue(value);
    return low <= bits && bits <= high;
}

static int lane_bits(LLVMValueRef value)
{
    LLVMTypeRef type = LLVMTypeOf(value);
    return (int)LLVMGetIntTypeWidth(tn_emit_lanes(type) > 1 ? LLVMGetElementType(type) : type);
}

/* a / b or a rem b where LLVM leaves b = 0 and INT_MIN / -1 undefined: those divide by 1 and are put right after (x / 0 = all ones, x rem 0 = x;
 * INT_MIN / 1 and INT_MIN rem 1 are what the table asks for already). */
static LLVMValueRef integer_divide(tn_emitter *e, tn_scalar fn, bool is_unsigned, LLVMValueRef a, LLVMValueRef b)
{
    LLVMBuilderRef build = e->builder;
    LLVMTypeRef type = LLVMTypeOf(a);
    LLVMOpcode code = fn == TN_S_div ? (is_unsigned ? LLVMUDiv : LLVMSDiv) : is_unsigned ? LLVMURem : LLVMSRem;
    unsigned long long largest = ~0ull >> (64 - lane_bits(b));
    if (is_constant_between(b, 1, is_unsigned ? largest : largest - 1))
        return LLVMBuildBinOp(build, code, a, b, "");
    LLVMValueRef is_zero = LLVMBuildICmp(build, LLVMIntEQ, b, LLVMConstNull(type), ""), unsafe = is_zero;
    if (!is_unsigned) {
        LLVMValueRef is_min = LLVMBuildICmp(build, LLVMIntEQ, a, tn_emit_int(type, INT64_MIN >> (64 - lane_bits(b))), "");
        LLVMValueRef is_minus = LLVMBuildICmp(build, LLVMIntEQ, b, LLVMConstAllOnes(type), "");
        unsafe = LLVMBuildOr(build, is_zero, LLVMBuildAnd(build, is_min, is_minus, ""), "");
    }
    LLVMValueRef safe = LLVMBuildSelect(build, unsafe, tn_emit_int(type, 1), b, "");
    LLVMValueRef result = LLVMBuildBinOp(build, code, a, safe, "");
    return LLVMBuildSelect(build, is_zero, fn == TN_S_div ? LLVMConstAllOnes(type) : a, result, "");
}

/* A shift by the width or more (the amount is unsigned: negative ones too) gives 0, or the sign. */
static LLVMValueRef shift(tn_emitter *e, tn_scalar fn, LLVMValueRef a, LLVMValueRef by)
{
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef type = LLVMTypeOf(a);
    LLVMValueRef last = tn_emit_int(type, lane_bits(a) - 1);
    LLVMOpcode code = fn == TN_S_shl ? LLVMShl : fn == TN_S_shr_arith ? LLVMAShr : LLVMLShr;
    if (is_constant_between(by, 0, (unsigned)lane_bits(a) - 1))
        return LLVMBuildBinOp(b, code, a, by, "");
    LLVMValueRef inside = LLVMBuildICmp(b, LLVMIntULE, by, last, "");
    if (fn == TN_S_shr_arith)
        return LLVMBuildAShr(b, a, LLVMBuildSelect(b, inside, by, last, ""), "");
    LLVMValueRef amount = LLVMBuildSelect(b, inside, by, LLVMConstNull(type), "");
    return LLVMBuildSelect(b, inside, LLVMBuildBinOp(b, code, a, amount, ""), LLVMConstNull(type), "");
}

/* base^exponent by squaring, one step for each bit of the exponent; negative exponents: 1 -> 1, -1 -> +-1, else 0. */
static LLVMValueRef integer_power(tn_emitter *e, bool is_unsigned, LLVMValueRef base, LLVMValueRef exponent)
{
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef type = LLVMTypeOf(base);
    LLVMValueRef zero = LLVMConstNull(type), one = tn_emit_int(type, 1), result = one, square = base;
    int bits = lane_bits(base);
    for (int i = 0; i < bits - !is_unsigned; i++) {
        LLVMValueRef bit = LLVMBuildAnd(b, exponent, tn_emit_int(type, (int64_t)(UINT64_C(1) << i)), "");
        LLVMValueRef factor = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntNE, bit, zero, ""), square, one, "");
        result = LLVMBuildMul(b, result, factor, "");
        square = LLVMBuildMul(b, square, square, "");
    }
    if (is_unsigned)
        return result;
    LLVMValueRef odd = LLVMBuildICmp(b, LLVMIntNE, LLVMBuildAnd(b, exponent, one, ""), zero, "");
    LLVMValueRef is_one = LLVMBuildICmp(b, LLVMIntEQ, base, one, "");
    LLVMValueRef is_minus = LLVMBuildICmp(b, LLVMIntEQ, base, LLVMConstAllOnes(type), "");
    LLVMValueRef inverse = LLVMBuildSelect(b, is_minus, LLVMBuildSelect(b, odd, LLVMConstAllOnes(type), one, ""),
                                           LLVMBuildSelect(b, is_one, one, zero, ""), "");
    return LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntSLT, exponent, zero, ""), inverse, result, "");
}

/* In twice the width. */
static LLVMValueRef high_product(tn_emitter *e, tn_dtype dtype, LLVMValueRef x, LLVMValueRef y)
{
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef type = LLVMTypeOf(x), element = LLVMIntTypeInContext(e->context, 2 * (unsigned)lane_bits(x));
    int lanes = tn_emit_lanes(type);
    LLVMTypeRef wide = lanes > 1 ? LLVMVectorType(element, (unsigned)lanes) : element;
    LLVMOpcode extend = tn_is_unsigned(dtype) ? LLVMZExt : LLVMSExt;
    LLVMValueRef product = LLVMBuildMul(b, LLVMBuildCast(b, extend, x, wide, ""), LLVMBuildCast(b, extend, y, wide, ""), "");
    LLVMValueRef high = LLVMBuildLShr(b, product, tn_emit_int(wide, tn_dtype_bits(dtype)), "");
    return LLVMBuildTrunc(b, high, type, "");
}

static LLVMValueRef integer_sign(tn_emitter *e, bool is_unsigned, LLVMValueRef x)
{
    LLVMTypeRef type = LLVMTypeOf(x);
    LLVMValueRef zero = LLVMConstNull(type);
    LLVMValueRef positive = LLVMBuildZExt(e->builder, LLVMBuildICmp(e->builder, LLVMIntNE, x, zero, ""), type, "");
    if (is_unsigned)
        return positive;
    LLVMValueRef negative = LLVMBuildICmp(e->builder, LLVMIntSLT, x, zero, "");
    return LLVMBuildSelect(e->builder, negative, LLVMConstAllOnes(type), positive, "");
}

static LLVMValueRef count_leading_zeros(tn_emitter *e, LLVMValueRef x)
{
    LLVMTypeRef type = LLVMTypeOf(x);
    LLVMValueRef args[2] = {x, LLVMConstNull(LLVMInt1TypeInContext(e->context))};
    return tn_emit_intrinsic(e, "llvm.ctlz", &type, 1, args, 2);
}

static LLVMValueRef integer_abs(tn_emitter *e, LLVMValueRef x)
{
    LLVMTypeRef type = LLVMTypeOf(x);
    LLVMValueRef args[2] = {x, LLVMConstNull(LLVMInt1TypeInContext(e->context))}; /* INT_MIN stays */
    return tn_emit_intrinsic(e, "llvm.abs", &type, 1, args, 2);
}

static LLVMValueRef integer_fn(tn_emitter *e, tn_scalar fn, tn_dtype dtype, LLVMValueRef *args)
{
    LLVMBuilderRef b = e->builder;
    bool is_unsigned = tn_is_unsigned(dtype);
    const char *const max = is_unsigned ? "llvm.umax" : "llvm.smax", *const min = is_unsigned ? "llvm.umin" : "llvm.smin";
    switch (fn) {
    case TN_S_neg: return LLVMBuildNeg(b, args[0], "");
    case TN_S_not: return LLVMBuildNot(b, args[0], "");
    case TN_S_abs: return is_unsigned ? args[0] : integer_abs(e, args[0]);
    case TN_S_sign: return integer_sign(e, is_unsigned, args[0]);
    case TN_S_popcnt: return tn_emit_intrinsic_same(e, "llvm.ctpop", args, 1);
    case TN_S_clz: return count_leading_zeros(e, args[0]);
    case TN_S_add: return LLVMBuildAdd(b, args[0], args[1], "");
    case TN_S_sub: return LLVMBuildSub(b, args[0], args[1], "");
    case TN_S_mul: return LLVMBuildMul(b, args[0], args[1], "");
    case TN_S_mulhi: return high_product(e, dtype, args[0], args[1]);
    case TN_S_div:
    case TN_S_rem: return integer_divide(e, fn, is_unsigned, args[0], args[1]);
    case TN_S_pow: return integer_power(e, is_unsigned, args[0], args[1]);
    case TN_S_max: return tn_emit_intrinsic_same(e, max, args, 2);
    case TN_S_min: return tn_emit_intrinsic_same(e, min, args, 2);
    case TN_S_and: return LLVMBuildAnd(b, args[0], args[1], "");
    case TN_S_or: return LLVMBuildOr(b, args[0], args[1], "");
    case TN_S_xor: return LLVMBuildXor(b, args[0], args[1], "");
    case TN_S_shl:
    case TN_S_shr_arith:
    case TN_S_shr_logical: return shift(e, fn, args[0], args[1]);
    case TN_S_eq: return LLVMBuildICmp(b, LLVMIntEQ, args[0], args[1], "");
    case TN_S_ne: return LLVMBuildICmp(b, LLVMIntNE, args[0], args[1], "");
    case TN_S_lt: return LLVMBuildICmp(b, is_unsigned ? LLVMIntULT : LLVMIntSLT, args[0], args[1], "");
    case TN_S_le: return LLVMBuildICmp(b, is_unsigned ? LLVMIntULE : LLVMIntSLE, args[0], args[1], "");
    case TN_S_gt: return LLVMBuildICmp(b, is_unsigned ? LLVMIntUGT : LLVMIntSGT, args[0], args[1], "");
    case TN_S_ge: return LLVMBuildICmp(b, is_unsigned ? LLVMIntUGE : LLVMIntSGE, args[0], args[1], "");
    case TN_S_clamp: {
        LLVMValueRef low[2] = {args[1], args[0]};
        LLVMValueRef high[2] = {tn_emit_intrinsic_same(e, max, low, 2), args[2]};
        return tn_emit_intrinsic_same(e, min, high, 2);
    }
    default: return refuse_fn(e, LLVMTypeOf(args[0]), fn, dtype);
    }
}

static LLVMValueRef bool_fn(tn_emitter *e, tn_scalar fn, LLVMValueRef *args)
{
    switch (fn) {
    case TN_S_add:
    case TN_S_max: return LLVMBuildOr(e->builder, args[0], args[1], "");
    case TN_S_mul:
    case TN_S_min: return LLVMBuildAnd(e->builder, args[0], args[1], "");
    default: return integer_fn(e, fn, TN_BOOL, args);
    }
}

/* A GPU computes what has 32 bits and more lane by lane: vectors would be put together and taken apart again by each of LLVM's passes. */
static LLVMValueRef lane_by_lane(tn_emitter *e, tn_scalar fn, tn_dtype dtype, LLVMValueRef *args, int lanes)
{
    LLVMValueRef result = NULL;
    for (int i = 0; i < lanes; i++) {
        LLVMValueRef lane[3];
        for (int k = 0; k < tn_scalar_arity(fn); k++)
            lane[k] = tn_emit_lane(e, args[k], i);
        LLVMValueRef y = tn_emit_fn(e, fn, dtype, lane);
        result = tn_emit_with_lane(e, i ? result : LLVMGetPoison(LLVMVectorType(LLVMTypeOf(y), (unsigned)lanes)), y, i);
    }
    return result;
}

LLVMValueRef tn_emit_fn(tn_emitter *e, tn_scalar fn, tn_dtype dtype, LLVMValueRef *args)
{
    int lanes = e->machine->gpu ? tn_emit_lanes(LLVMTypeOf(args[0])) : 1;
    if (lanes > 1 && (dtype == TN_BOOL || (tn_dtype_bits(dtype) >= 32 && !tn_is_complex(dtype))) && tn_scalar_accepts(fn, dtype))
        return lane_by_lane(e, fn, dtype, args, lanes);
    if (fn == TN_S_select)
        return LLVMBuildSelect(e->builder, args[0], args[1], args[2], "");
    if (!tn_scalar_accepts(fn, dtype))
        return refuse_fn(e, LLVMTypeOf(args[0]), fn, dtype);
    if (tn_is_complex(dtype))
        return tn_emit_complex_fn(e, fn, dtype, args);
    if (tn_is_narrow_float(dtype))
        return narrow_float_fn(e, fn, dtype, args);
    if (tn_is_float(dtype))
        return float_fn(e, fn, dtype, args);
    return dtype == TN_BOOL ? bool_fn(e, fn, args) : integer_fn(e, fn, dtype, args);
}
