/* Conversions, as tn_number_convert defines them: every result rounded once to nearest even, floats to integers by
 * truncation with saturation and NaN giving 0. */
#include "target/internal.h"
#include "target/llvm/internal.h"

static LLVMValueRef bits_as_float(tn_emitter *e, LLVMValueRef bits)
{
    return LLVMBuildBitCast(e->builder, bits, tn_emit_float_type(e, tn_emit_lanes(LLVMTypeOf(bits))), "");
}

static LLVMValueRef float_as_bits(tn_emitter *e, LLVMValueRef value)
{
    return LLVMBuildBitCast(e->builder, value, tn_emit_int_type(e, 32, tn_emit_lanes(LLVMTypeOf(value))), "");
}

static LLVMTypeRef half_type(tn_emitter *e, int lanes)
{
    LLVMTypeRef half = LLVMHalfTypeInContext(e->context);
    return lanes > 1 ? LLVMVectorType(half, (unsigned)lanes) : half;
}

/* Does the machine convert between f16 and f32? Without it LLVM would call its own run-time library. */
static bool has_half_conversions(const tn_machine *machine)
{
    return tn_machine_has(machine, "f16c") || tn_machine_has(machine, "neon");
}

/* f16 bits (zero-extended to i32) -> f32 with integer steps. Shifted into place, a finite number is too small by 2^112, and the product
 * with that power is exact, denormals included. */
static LLVMValueRef half_to_float(tn_emitter *e, LLVMValueRef wide)
{
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef i32 = LLVMTypeOf(wide), f32 = tn_emit_float_type(e, tn_emit_lanes(i32));
    LLVMValueRef magnitude = LLVMBuildAnd(b, wide, tn_emit_int(i32, 0x7fff), "");
    LLVMValueRef sign = LLVMBuildShl(b, LLVMBuildAnd(b, wide, tn_emit_int(i32, 0x8000), ""), tn_emit_int(i32, 16), "");
    LLVMValueRef placed = LLVMBuildShl(b, magnitude, tn_emit_int(i32, 13), "");
    LLVMValueRef finite = float_as_bits(e, LLVMBuildFMul(b, bits_as_float(e, placed), tn_emit_real(f32, 0x1p112), ""));
    LLVMValueRef special = LLVMBuildOr(b, placed, tn_emit_int(i32, 0x7f800000), "");
    LLVMValueRef is_special = LLVMBuildICmp(b, LLVMIntUGE, magnitude, tn_emit_int(i32, 0x7c00), "");
    return bits_as_float(e, LLVMBuildOr(b, sign, LLVMBuildSelect(b, is_special, special, finite, ""), ""));
}

/* f32 -> f16 bits in i32. Below the normal range, adding 0.5 makes the FPU round at f16's last denormal place; elsewhere the bits are
 * rounded by an addition whose carry may reach the exponent, up to infinity. */
static LLVMValueRef float_to_half(tn_emitter *e, LLVMValueRef value)
{
    LLVMBuilderRef b = e->builder;
    LLVMValueRef bits = float_as_bits(e, value);
    LLVMTypeRef i32 = LLVMTypeOf(bits), f32 = LLVMTypeOf(value);
    LLVMValueRef magnitude = LLVMBuildAnd(b, bits, tn_emit_int(i32, 0x7fffffff), "");
    LLVMValueRef sign = LLVMBuildAnd(b, LLVMBuildLShr(b, bits, tn_emit_int(i32, 16), ""), tn_emit_int(i32, 0x8000), "");
    LLVMValueRef denormal = LLVMBuildFAdd(b, bits_as_float(e, magnitude), tn_emit_real(f32, 0.5), "");
    denormal = LLVMBuildSub(b, float_as_bits(e, denormal), tn_emit_int(i32, 0x3f000000), "");
    LLVMValueRef odd = LLVMBuildAnd(b, LLVMBuildLShr(b, magnitude, tn_emit_int(i32, 13), ""), tn_emit_int(i32, 1), "");
    LLVMValueRef normal = LLVMBuildAdd(b, magnitude, tn_emit_int(i32, (int64_t)0xfff - (INT64_C(112) << 23)), "");
    normal = LLVMBuildLShr(b, LLVMBuildAdd(b, normal, odd, ""), tn_emit_int(i32, 13), "");
    LLVMValueRef is_denormal = LLVMBuildICmp(b, LLVMIntULT, magnitude, tn_emit_int(i32, 0x38800000), "");
    LLVMValueRef is_nan = LLVMBuildICmp(b, LLVMIntUGT, magnitude, tn_emit_int(i32, 0x7f800000), "");
    LLVMValueRef is_large = LLVMBuildICmp(b, LLVMIntUGE, magnitude, tn_emit_int(i32, 0x47800000), "");
    LLVMValueRef special = LLVMBuildSelect(b, is_nan, tn_emit_int(i32, 0x7e00), tn_emit_int(i32, 0x7c00), "");
    LLVMValueRef finite = LLVMBuildSelect(b, is_denormal, denormal, normal, "");
    return LLVMBuildOr(b, sign, LLVMBuildSelect(b, is_large, special, finite, ""), "");
}

/* f32 -> bf16 bits in i32: round the upper half by addition. The machine's own instruction is not used: it flushes denormals. */
static LLVMValueRef float_to_bfloat(tn_emitter *e, LLVMValueRef value)
{
    LLVMBuilderRef b = e->builder;
    LLVMValueRef bits = float_as_bits(e, value);
    LLVMTypeRef i32 = LLVMTypeOf(bits);
    LLVMValueRef upper = LLVMBuildLShr(b, bits, tn_emit_int(i32, 16), "");
    LLVMValueRef odd = LLVMBuildAnd(b, upper, tn_emit_int(i32, 1), "");
    LLVMValueRef rounded = LLVMBuildAdd(b, LLVMBuildAdd(b, bits, tn_emit_int(i32, 0x7fff), ""), odd, "");
    LLVMValueRef quiet = LLVMBuildOr(b, upper, tn_emit_int(i32, 0x40), "");
    LLVMValueRef is_nan = LLVMBuildFCmp(b, LLVMRealUNO, value, value, "");
    return LLVMBuildSelect(b, is_nan, quiet, LLVMBuildLShr(b, rounded, tn_emit_int(i32, 16), ""), "");
}

static LLVMValueRef refuse_cast(tn_emitter *e, LLVMTypeRef type, tn_dtype from, tn_dtype to)
{
    return tn_emit_refuse(e, type, "cast from %s to %s: the pass `expand` rewrites it; run it before this stage", tn_dtype_text(from),
                          tn_dtype_text(to));
}

static LLVMValueRef narrow_to_float(tn_emitter *e, LLVMValueRef value, tn_dtype from)
{
    int lanes = tn_emit_lanes(LLVMTypeOf(value));
    LLVMTypeRef f32 = tn_emit_float_type(e, lanes), i32 = tn_emit_int_type(e, 32, lanes);
    if (e->machine->gpu && (tn_dtype_bits(from) == 16 || e->machine->vector.f8))
        return tn_emit_gpu_widen(e, value, from);
    if (from == TN_F16 && has_half_conversions(e->machine))
        return LLVMBuildFPExt(e->builder, LLVMBuildBitCast(e->builder, value, half_type(e, lanes), ""), f32, "");
    if (from != TN_F16 && from != TN_BF16)
        return refuse_cast(e, f32, from, TN_F32);
    LLVMValueRef wide = LLVMBuildZExt(e->builder, value, i32, "");
    if (from == TN_F16)
        return half_to_float(e, wide);
    return bits_as_float(e, LLVMBuildShl(e->builder, wide, tn_emit_int(i32, 16), ""));
}

static LLVMValueRef float_to_narrow(tn_emitter *e, LLVMValueRef value, tn_dtype to)
{
    int lanes = tn_emit_lanes(LLVMTypeOf(value));
    LLVMTypeRef type = tn_emit_type(e, to, lanes);
    if (e->machine->gpu && (tn_dtype_bits(to) == 16 || e->machine->vector.f8))
        return tn_emit_gpu_narrow(e, value, to);
    if (to == TN_F16 && has_half_conversions(e->machine))
        return LLVMBuildBitCast(e->builder, LLVMBuildFPTrunc(e->builder, value, half_type(e, lanes), ""), type, "");
    if (to != TN_F16 && to != TN_BF16)
        return refuse_cast(e, type, TN_F32, to);
    return LLVMBuildTrunc(e->builder, to == TN_F16 ? float_to_half(e, value) : float_to_bfloat(e, value), type, "");
}

/* f64 -> f32 rounding to odd: toward zero, then the last bit set if digits were lost. Rounding the result again, to 22 bits or fewer,
 * gives what one rounding would. S. Boldo, G. Melquiond, "Emulation of FMA and correctly rounded sums", 2008. */
static LLVMValueRef double_to_odd_float(tn_emitter *e, LLVMValueRef value)
{
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef f64 = LLVMTypeOf(value);
    LLVMValueRef near = LLVMBuildFPTrunc(b, value, tn_emit_float_type(e, tn_emit_lanes(f64)), "");
    LLVMValueRef bits = float_as_bits(e, near), back = LLVMBuildFPExt(b, near, f64, "");
    LLVMValueRef args[2] = {back, value};
    LLVMValueRef above = LLVMBuildFCmp(b, LLVMRealOGT, tn_emit_intrinsic_same(e, "llvm.fabs", &args[0], 1),
                                       tn_emit_intrinsic_same(e, "llvm.fabs", &args[1], 1), "");
    LLVMValueRef inexact = LLVMBuildFCmp(b, LLVMRealONE, back, value, "");
    bits = LLVMBuildSub(b, bits, LLVMBuildZExt(b, above, LLVMTypeOf(bits), ""), "");
    return bits_as_float(e, LLVMBuildOr(b, bits, LLVMBuildZExt(b, inexact, LLVMTypeOf(bits), ""), ""));
}

static LLVMValueRef float_to_float(tn_emitter *e, LLVMValueRef value, tn_dtype from, tn_dtype to)
{
    int lanes = tn_emit_lanes(LLVMTypeOf(value));
    if (tn_is_narrow_float(from))
        return tn_emit_cast(e, narrow_to_float(e, value, from), TN_F32, to);
    if (from == TN_F32 && to == TN_F64)
        return LLVMBuildFPExt(e->builder, value, tn_emit_double_type(e, lanes), "");
    if (from == TN_F32)
        return float_to_narrow(e, value, to);
    if (to == TN_F32)
        return LLVMBuildFPTrunc(e->builder, value, tn_emit_float_type(e, lanes), "");
    return float_to_narrow(e, double_to_odd_float(e, value), to);
}

static LLVMValueRef float_to_integer(tn_emitter *e, LLVMValueRef value, tn_dtype from, tn_dtype to)
{
    if (tn_is_narrow_float(from))
        value = narrow_to_float(e, value, from);
    LLVMTypeRef float_type = LLVMTypeOf(value);
    if (to == TN_BOOL)
        return LLVMBuildFCmp(e->builder, LLVMRealUNE, value, tn_emit_real(float_type, 0), "");
    LLVMTypeRef types[2] = {tn_emit_type(e, to, tn_emit_lanes(float_type)), float_type};
    return tn_emit_intrinsic(e, tn_is_unsigned(to) ? "llvm.fptoui.sat" : "llvm.fptosi.sat", types, 2, &value, 1);
}

/* A 64-bit integer with its lowest digits folded into one that says whether any was set, where it has more digits than f64: then exact as
 * f64, and rounding that to a narrow float is one rounding. */
static LLVMValueRef keep_double_digits(tn_emitter *e, LLVMValueRef value, bool is_unsigned)
{
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef i64 = LLVMTypeOf(value);
    LLVMValueRef args[2] = {value, LLVMConstNull(LLVMInt1TypeInContext(e->context))};
    LLVMValueRef magnitude = is_unsigned ? value : tn_emit_intrinsic(e, "llvm.abs", &i64, 1, args, 2);
    LLVMValueRef is_long = LLVMBuildICmp(b, LLVMIntUGE, magnitude, tn_emit_int(i64, INT64_C(1) << 53), "");
    LLVMValueRef low = LLVMBuildAnd(b, value, tn_emit_int(i64, 0x7ff), "");
    LLVMValueRef lost = LLVMBuildZExt(b, LLVMBuildICmp(b, LLVMIntNE, low, LLVMConstNull(i64), ""), i64, "");
    LLVMValueRef kept = LLVMBuildOr(b, LLVMBuildAnd(b, value, tn_emit_int(i64, ~INT64_C(0x7ff)), ""),
                                    LLVMBuildShl(b, lost, tn_emit_int(i64, 11), ""), "");
    return LLVMBuildSelect(b, is_long, kept, value, "");
}

static LLVMValueRef integer_to_float(tn_emitter *e, LLVMValueRef value, tn_dtype from, tn_dtype to)
{
    int lanes = tn_emit_lanes(LLVMTypeOf(value)), bits = from == TN_BOOL ? 1 : tn_dtype_bits(from);
    bool is_unsigned = tn_is_unsigned(from);
    if (tn_is_narrow_float(to)) { /* f32 holds 24 bits exactly, f64 53 */
        tn_dtype through = bits <= 16 ? TN_F32 : TN_F64;
        if (bits == 64)
            value = keep_double_digits(e, value, is_unsigned);
        return float_to_float(e, integer_to_float(e, value, from, through), through, to);
    }
    LLVMTypeRef type = tn_emit_type(e, to, lanes);
    return is_unsigned ? LLVMBuildUIToFP(e->builder, value, type, "") : LLVMBuildSIToFP(e->builder, value, type, "");
}

static LLVMValueRef integer_to_integer(tn_emitter *e, LLVMValueRef value, tn_dtype from, tn_dtype to)
{
    LLVMTypeRef have = LLVMTypeOf(value), want = tn_emit_type(e, to, tn_emit_lanes(have));
    if (to == TN_BOOL)
        return LLVMBuildICmp(e->builder, LLVMIntNE, value, LLVMConstNull(have), "");
    if (from == TN_BOOL || (tn_dtype_bits(from) < tn_dtype_bits(to) && tn_is_unsigned(from)))
        return LLVMBuildZExt(e->builder, value, want, "");
    if (tn_dtype_bits(from) == tn_dtype_bits(to))
        return value;
    return tn_dtype_bits(from) < tn_dtype_bits(to) ? LLVMBuildSExt(e->builder, value, want, "")
                                                   : LLVMBuildTrunc(e->builder, value, want, "");
}

LLVMValueRef tn_emit_cast(tn_emitter *e, LLVMValueRef value, tn_dtype from, tn_dtype to)
{
    if (from == to)
        return value;
    if (tn_is_complex(from) || tn_is_complex(to))
        return tn_emit_complex_cast(e, value, from, to);
    if (tn_is_float(from))
        return tn_is_float(to) ? float_to_float(e, value, from, to) : float_to_integer(e, value, from, to);
    return tn_is_float(to) ? integer_to_float(e, value, from, to) : integer_to_integer(e, value, from, to);
}
