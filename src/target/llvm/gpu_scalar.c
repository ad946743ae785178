/* What a GPU's instructions compute of scalars: the rows of loop/gpu_functions.def, and casts between f32 and the narrow floats. LLVM 19 has no intrinsic for
 * some of them, and for the others a choice of its own between packed and single forms, so they are spelled in PTX. */
#include <string.h>

#include "target/internal.h"
#include "target/llvm/internal.h"

LLVMValueRef tn_emit_ptx(tn_emitter *e, LLVMTypeRef type, const char *text, const char *constraints, LLVMValueRef *args, unsigned nargs)
{
    LLVMTypeRef params[4];
    for (unsigned i = 0; i < nargs; i++)
        params[i] = LLVMTypeOf(args[i]);
    LLVMTypeRef signature = LLVMFunctionType(type, params, nargs, false);
    LLVMValueRef code = LLVMGetInlineAsm(signature, text, strlen(text), constraints, strlen(constraints), false, false, LLVMInlineAsmDialectATT, false);
    LLVMValueRef call = LLVMBuildCall2(e->builder, signature, code, args, nargs, "");
    static const char *const attributes[] = {"nounwind", "memory"}; /* memory(none): its value 0 */
    for (size_t i = 0; i < TN_COUNT(attributes); i++) {
        unsigned kind = LLVMGetEnumAttributeKindForName(attributes[i], strlen(attributes[i]));
        LLVMAddCallSiteAttribute(call, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(e->context, kind, 0));
    }
    return call;
}

/* ---- functions ------------------------------------------------------------------------------------------------------------ */

typedef struct gpu_fn {
    const char *name, *text;
} gpu_fn;

static const gpu_fn gpu_fns[] = {
#define ARGS_1 " $0, $1;"
#define ARGS_2 " $0, $1, $2;"
#define ARGS_3 " $0, $1, $2, $3;"
#define GPU_FN(name, arity, ptx, value) {#name, ptx ARGS_##arity},
#include "loop/gpu_functions.def"
#undef GPU_FN
};

LLVMValueRef tn_emit_gpu_fn(tn_emitter *e, const char *name, LLVMValueRef *args, unsigned nargs)
{
    static const char *const constraints[] = {"", "=f,f", "=f,f,f", "=f,f,f,f"};
    LLVMTypeRef type = LLVMTypeOf(args[0]), f32 = tn_emit_float_type(e, 1);
    int lanes = tn_emit_lanes(type);
    LLVMValueRef result = LLVMGetPoison(type);
    for (size_t row = 0; row < TN_COUNT(gpu_fns); row++) {
        if (strcmp(gpu_fns[row].name, name) != 0)
            continue;
        for (int i = 0; i < lanes; i++) {
            LLVMValueRef lane[3];
            for (unsigned k = 0; k < nargs; k++)
                lane[k] = tn_emit_lane(e, args[k], i);
            LLVMValueRef y = tn_emit_ptx(e, f32, gpu_fns[row].text, constraints[nargs], lane, nargs);
            result = lanes == 1 ? y : tn_emit_with_lane(e, result, y, i);
        }
        return result;
    }
    return NULL;
}

/* ---- from f32 ------------------------------------------------------------------------------------------------------------- */

/* The packed instructions take the upper half first. Of f8 they saturate, which is mended before or after. */
typedef struct narrow_form {
    const char *pair, *constraints;
    int bits; /* of what `pair` gives */
} narrow_form;

static const narrow_form narrow_forms[TN_DTYPE_COUNT] = {
    [TN_BF16] = {"cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", 32},
    [TN_F16] = {"cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", 32},
    [TN_F8E4M3] = {"cvt.rn.satfinite.e4m3x2.f32 $0, $2, $1;", "=h,f,f", 16},
    [TN_F8E5M2] = {"cvt.rn.satfinite.e5m2x2.f32 $0, $2, $1;", "=h,f,f", 16},
};

static LLVMValueRef magnitude_test(tn_emitter *e, LLVMRealPredicate test, LLVMValueRef x, double limit)
{
    LLVMValueRef a = tn_emit_intrinsic_same(e, "llvm.fabs", &x, 1);
    return LLVMBuildFCmp(e->builder, test, a, tn_emit_real(LLVMTypeOf(x), limit), "");
}

/* f8e4m3fn has no infinity: what rounds past its largest number is NaN (464 is a tie, to the even 448). */
static LLVMValueRef nan_past_e4m3(tn_emitter *e, LLVMValueRef x)
{
    return LLVMBuildSelect(e->builder, magnitude_test(e, LLVMRealOGT, x, 464), tn_emit_real(LLVMTypeOf(x), __builtin_nan("")), x, "");
}

/* The code behind the largest number is infinity's: 61440 and beyond go there. */
static LLVMValueRef infinity_past_e5m2(tn_emitter *e, LLVMValueRef codes, LLVMValueRef low, LLVMValueRef high)
{
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef i16 = tn_emit_int_type(e, 16, 1);
    LLVMValueRef zero = LLVMConstNull(i16);
    codes = LLVMBuildAdd(b, codes, LLVMBuildSelect(b, magnitude_test(e, LLVMRealOGE, low, 61440), tn_emit_int(i16, 1), zero, ""), "");
    return LLVMBuildAdd(b, codes, LLVMBuildSelect(b, magnitude_test(e, LLVMRealOGE, high, 61440), tn_emit_int(i16, 256), zero, ""), "");
}

static LLVMValueRef narrow_pair(tn_emitter *e, LLVMValueRef low, LLVMValueRef high, tn_dtype to)
{
    const narrow_form *form = &narrow_forms[to];
    LLVMValueRef args[2] = {low, high};
    if (to == TN_F8E4M3)
        args[0] = nan_past_e4m3(e, low), args[1] = nan_past_e4m3(e, high);
    LLVMValueRef pair = tn_emit_ptx(e, tn_emit_int_type(e, form->bits, 1), form->pair, form->constraints, args, 2);
    return to == TN_F8E5M2 ? infinity_past_e5m2(e, pair, low, high) : pair;
}

LLVMValueRef tn_emit_gpu_narrow(tn_emitter *e, LLVMValueRef value, tn_dtype to)
{
    int lanes = tn_emit_lanes(LLVMTypeOf(value));
    LLVMTypeRef type = tn_emit_type(e, to, lanes), pair = tn_emit_int_type(e, narrow_forms[to].bits, 1);
    LLVMValueRef zero = tn_emit_real(tn_emit_float_type(e, 1), 0);
    if (lanes == 1)
        return LLVMBuildTrunc(e->builder, narrow_pair(e, value, zero, to), type, "");
    LLVMValueRef pairs = LLVMGetPoison(LLVMVectorType(pair, (unsigned)(lanes + 1) / 2));
    for (int i = 0; i < lanes; i += 2)
        pairs = tn_emit_with_lane(e, pairs, narrow_pair(e, tn_emit_lane(e, value, i), i + 1 < lanes ? tn_emit_lane(e, value, i + 1) : zero, to), i / 2);
    if (lanes % 2 == 0)
        return LLVMBuildBitCast(e->builder, pairs, type, "");
    LLVMValueRef all = LLVMBuildBitCast(e->builder, pairs, tn_emit_type(e, to, lanes + 1), "");
    return tn_emit_slice(e, all, 0, lanes);
}

/* ---- in 16 bits, two by two ------------------------------------------------------------------------------------------------- */

/* Rounded once, as f32's result is when it is rounded to 16 bits: f32 has two digits more than twice theirs. bf16's sums and products are fma's on every GPU. */
typedef struct paired_form {
    const char *text;
    uint32_t third; /* in both halves */
} paired_form;

static const paired_form paired_bf16[TN_SCALAR_COUNT] = {
    [TN_S_add] = {"fma.rn.bf16x2 $0, $1, $3, $2;", 0x3f803f80}, /* by 1 */
    [TN_S_sub] = {"fma.rn.bf16x2 $0, $2, $3, $1;", 0xbf80bf80}, /* by -1 */
    [TN_S_mul] = {"fma.rn.bf16x2 $0, $1, $2, $3;", 0x80008000}, /* to -0, which changes no sum */
    [TN_S_max] = {"max.NaN.bf16x2 $0, $1, $2;", 0},
    [TN_S_min] = {"min.NaN.bf16x2 $0, $1, $2;", 0},
};
static const paired_form paired_f16[TN_SCALAR_COUNT] = {
    [TN_S_add] = {"add.rn.f16x2 $0, $1, $2;", 0},
    [TN_S_sub] = {"sub.rn.f16x2 $0, $1, $2;", 0},
    [TN_S_mul] = {"mul.rn.f16x2 $0, $1, $2;", 0},
    [TN_S_max] = {"max.NaN.f16x2 $0, $1, $2;", 0},
    [TN_S_min] = {"min.NaN.f16x2 $0, $1, $2;", 0},
};

LLVMValueRef tn_emit_gpu_paired(tn_emitter *e, tn_scalar fn, tn_dtype dtype, LLVMValueRef *args)
{
    const paired_form *form = dtype == TN_BF16 ? &paired_bf16[fn] : &paired_f16[fn];
    LLVMTypeRef type = LLVMTypeOf(args[0]), word = tn_emit_int_type(e, 32, 1);
    int lanes = tn_emit_lanes(type);
    if ((dtype != TN_BF16 && dtype != TN_F16) || !form->text || lanes % 2)
        return NULL;
    LLVMTypeRef words = LLVMVectorType(word, (unsigned)lanes / 2);
    LLVMValueRef x = LLVMBuildBitCast(e->builder, args[0], words, ""), y = LLVMBuildBitCast(e->builder, args[1], words, ""), result = LLVMGetPoison(words);
    for (int i = 0; i < lanes / 2; i++) {
        LLVMValueRef pair[3] = {tn_emit_lane(e, x, i), tn_emit_lane(e, y, i), tn_emit_int(word, form->third)};
        result = tn_emit_with_lane(e, result, tn_emit_ptx(e, word, form->text, form->third ? "=r,r,r,r" : "=r,r,r", pair, form->third ? 3 : 2), i);
    }
    return LLVMBuildBitCast(e->builder, result, type, "");
}

/* ---- to f32 --------------------------------------------------------------------------------------------------------------- */

static LLVMValueRef half_lane(tn_emitter *e, LLVMValueRef bits) { return tn_emit_ptx(e, tn_emit_float_type(e, 1), "cvt.f32.f16 $0, $1;", "=f,h", &bits, 1); }

static LLVMValueRef from_words(tn_emitter *e, LLVMValueRef word) { return LLVMBuildBitCast(e->builder, word, tn_emit_float_type(e, 1), ""); }

/* Two lanes in one word, low half first. */
static void widen_pair(tn_emitter *e, LLVMValueRef word, tn_dtype from, LLVMValueRef lane[2])
{
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef i16 = tn_emit_int_type(e, 16, 1), i32 = tn_emit_int_type(e, 32, 1);
    if (from == TN_BF16) {
        lane[0] = from_words(e, LLVMBuildShl(b, word, tn_emit_int(i32, 16), ""));
        lane[1] = from_words(e, LLVMBuildAnd(b, word, tn_emit_int(i32, (int64_t)0xffff0000), ""));
        return;
    }
    lane[0] = half_lane(e, LLVMBuildTrunc(b, word, i16, ""));
    lane[1] = half_lane(e, LLVMBuildTrunc(b, LLVMBuildLShr(b, word, tn_emit_int(i32, 16), ""), i16, ""));
}

/* f8 becomes f16 two by two, which holds each of its values. */
static LLVMValueRef halves_of_f8(tn_emitter *e, LLVMValueRef codes, tn_dtype from)
{
    const char *text = from == TN_F8E4M3 ? "cvt.rn.f16x2.e4m3x2 $0, $1;" : "cvt.rn.f16x2.e5m2x2 $0, $1;";
    return tn_emit_ptx(e, tn_emit_int_type(e, 32, 1), text, "=r,h", &codes, 1);
}

static LLVMValueRef widen_one(tn_emitter *e, LLVMValueRef value, tn_dtype from)
{
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef i32 = tn_emit_int_type(e, 32, 1);
    LLVMValueRef pair[2];
    if (from == TN_BF16)
        return from_words(e, LLVMBuildShl(b, LLVMBuildZExt(b, value, i32, ""), tn_emit_int(i32, 16), ""));
    if (from == TN_F16)
        return half_lane(e, value);
    widen_pair(e, halves_of_f8(e, LLVMBuildZExt(b, value, tn_emit_int_type(e, 16, 1), ""), from), from, pair);
    return pair[0];
}

LLVMValueRef tn_emit_gpu_widen(tn_emitter *e, LLVMValueRef value, tn_dtype from)
{
    int lanes = tn_emit_lanes(LLVMTypeOf(value)), bits = tn_dtype_bits(from);
    LLVMValueRef result = LLVMGetPoison(tn_emit_float_type(e, lanes));
    if (lanes == 1)
        return widen_one(e, value, from);
    LLVMValueRef pairs = lanes % 2 ? NULL : LLVMBuildBitCast(e->builder, value, tn_emit_int_type(e, 2 * bits, lanes / 2), "");
    for (int i = 0; i < lanes; i += 2) {
        LLVMValueRef pair[2];
        if (!pairs) {
            pair[0] = widen_one(e, tn_emit_lane(e, value, i), from);
            pair[1] = i + 1 < lanes ? widen_one(e, tn_emit_lane(e, value, i + 1), from) : NULL;
        } else {
            LLVMValueRef word = tn_emit_lane(e, pairs, i / 2);
            widen_pair(e, bits == 8 ? halves_of_f8(e, word, from) : word, from, pair);
        }
        result = tn_emit_with_lane(e, result, pair[0], i);
        if (pair[1])
            result = tn_emit_with_lane(e, result, pair[1], i + 1);
    }
    return result;
}
