/* Types and constants of the emitted LLVM IR, and the pieces that every subject builds from. */
#include <assert.h>
#include <string.h>

#include "target/llvm/internal.h"

bool tn_is_narrow_float(tn_dtype dtype) { return tn_is_float(dtype) && tn_dtype_bits(dtype) < 32; }

static LLVMTypeRef with_lanes(LLVMTypeRef type, int lanes)
{
    return lanes > 1 ? LLVMVectorType(type, (unsigned)lanes) : type;
}

LLVMTypeRef tn_emit_int_type(tn_emitter *e, int bits, int lanes)
{
    return with_lanes(LLVMIntTypeInContext(e->context, (unsigned)bits), lanes);
}

LLVMTypeRef tn_emit_float_type(tn_emitter *e, int lanes) { return with_lanes(LLVMFloatTypeInContext(e->context), lanes); }

LLVMTypeRef tn_emit_double_type(tn_emitter *e, int lanes) { return with_lanes(LLVMDoubleTypeInContext(e->context), lanes); }

LLVMTypeRef tn_emit_memory_type(tn_emitter *e, tn_dtype dtype, int lanes)
{
    if (dtype == TN_F32)
        return tn_emit_float_type(e, lanes);
    if (dtype == TN_F64)
        return tn_emit_double_type(e, lanes);
    if (!tn_is_complex(dtype))
        return tn_emit_int_type(e, tn_dtype_bits(dtype), lanes);
    if (lanes > 1)
        tn_emit_refuse(e, NULL, "vectors of %s", tn_dtype_text(dtype));
    return dtype == TN_C64 ? tn_emit_float_type(e, 2) : tn_emit_double_type(e, 2);
}

LLVMTypeRef tn_emit_type(tn_emitter *e, tn_dtype dtype, int lanes)
{
    return dtype == TN_BOOL ? tn_emit_int_type(e, 1, lanes) : tn_emit_memory_type(e, dtype, lanes);
}

int tn_emit_lanes(LLVMTypeRef type)
{
    return LLVMGetTypeKind(type) == LLVMVectorTypeKind ? (int)LLVMGetVectorSize(type) : 1;
}

/* A constant in every lane of `type`. */
static LLVMValueRef constant_lanes(LLVMTypeRef type, LLVMValueRef lane)
{
    enum { most = 256 };
    LLVMValueRef lanes[most];
    int n = tn_emit_lanes(type);
    if (n == 1)
        return lane;
    if (LLVMIsNull(lane))
        return LLVMConstNull(type);
    assert(n <= most);
    for (int i = 0; i < n; i++)
        lanes[i] = lane;
    return LLVMConstVector(lanes, (unsigned)n);
}

static LLVMTypeRef lane_type(LLVMTypeRef type)
{
    return LLVMGetTypeKind(type) == LLVMVectorTypeKind ? LLVMGetElementType(type) : type;
}

LLVMValueRef tn_emit_int(LLVMTypeRef type, int64_t value)
{
    return constant_lanes(type, LLVMConstInt(lane_type(type), (unsigned long long)value, true));
}

LLVMValueRef tn_emit_real(LLVMTypeRef type, double value)
{
    return constant_lanes(type, LLVMConstReal(lane_type(type), value));
}

LLVMValueRef tn_emit_number(tn_emitter *e, tn_dtype dtype, int lanes, tn_number number)
{
    LLVMTypeRef type = tn_emit_type(e, dtype, lanes);
    if (tn_is_complex(dtype)) {
        LLVMTypeRef part = LLVMGetElementType(type);
        return LLVMConstVector((LLVMValueRef[]){LLVMConstReal(part, number.f), LLVMConstReal(part, number.im)}, 2);
    }
    if (!tn_is_float(dtype))
        return tn_emit_int(type, number.i);
    if (!tn_is_narrow_float(dtype))
        return tn_emit_real(type, number.f);
    uint16_t bits = 0;
    tn_number_store(dtype, &bits, 0, number);
    return tn_emit_int(type, bits);
}

LLVMValueRef tn_emit_splat(tn_emitter *e, LLVMValueRef scalar, int lanes)
{
    if (lanes == 1)
        return scalar;
    LLVMTypeRef type = LLVMVectorType(LLVMTypeOf(scalar), (unsigned)lanes);
    if (LLVMIsConstant(scalar))
        return constant_lanes(type, scalar);
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
    LLVMValueRef poison = LLVMGetPoison(type);
    LLVMValueRef first = LLVMBuildInsertElement(e->builder, poison, scalar, LLVMConstInt(i32, 0, false), "");
    return LLVMBuildShuffleVector(e->builder, first, poison, LLVMConstNull(LLVMVectorType(i32, (unsigned)lanes)), "");
}

/* What was put there, without taking it out again. NULL: not known. */
static LLVMValueRef known_lane(LLVMValueRef vector, int lane)
{
    if (LLVMIsConstant(vector))
        return LLVMGetAggregateElement(vector, (unsigned)lane);
    for (; LLVMIsAInsertElementInst(vector); vector = LLVMGetOperand(vector, 0)) {
        LLVMValueRef at = LLVMGetOperand(vector, 2);
        if (!LLVMIsAConstantInt(at))
            return NULL;
        if (LLVMConstIntGetZExtValue(at) == (unsigned)lane)
            return LLVMGetOperand(vector, 1);
    }
    if (!LLVMIsAShuffleVectorInst(vector))
        return NULL;
    int from = LLVMGetMaskValue(vector, (unsigned)lane), have = tn_emit_lanes(LLVMTypeOf(LLVMGetOperand(vector, 0)));
    return from >= 0 ? known_lane(LLVMGetOperand(vector, from >= have), from % have) : NULL;
}

LLVMValueRef tn_emit_lane(tn_emitter *e, LLVMValueRef vector, int lane)
{
    if (tn_emit_lanes(LLVMTypeOf(vector)) == 1)
        return vector;
    LLVMValueRef known = known_lane(vector, lane);
    if (known)
        return known;
    return LLVMBuildExtractElement(e->builder, vector, LLVMConstInt(LLVMInt32TypeInContext(e->context), (unsigned)lane, false), "");
}

LLVMValueRef tn_emit_with_lane(tn_emitter *e, LLVMValueRef vector, LLVMValueRef value, int lane)
{
    return LLVMBuildInsertElement(e->builder, vector, value, LLVMConstInt(LLVMInt32TypeInContext(e->context), (unsigned)lane, false), "");
}

LLVMValueRef tn_emit_slice(tn_emitter *e, LLVMValueRef vector, int first, int n)
{
    enum { most = 256 };
    LLVMValueRef lanes[most];
    if (n == 1)
        return tn_emit_lane(e, vector, first);
    assert(n <= most);
    for (int i = 0; i < n; i++)
        lanes[i] = LLVMConstInt(LLVMInt32TypeInContext(e->context), (unsigned)(first + i), false);
    return LLVMBuildShuffleVector(e->builder, vector, LLVMGetPoison(LLVMTypeOf(vector)), LLVMConstVector(lanes, (unsigned)n), "");
}

LLVMValueRef tn_emit_intrinsic(tn_emitter *e, const char *name, const LLVMTypeRef *overload, size_t noverload,
                               LLVMValueRef *args, unsigned nargs)
{
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    assert(id && "an LLVM intrinsic's name is misspelt in our tables");
    LLVMTypeRef *types = (LLVMTypeRef *)overload;
    LLVMValueRef function = LLVMGetIntrinsicDeclaration(e->module, id, types, noverload);
    return LLVMBuildCall2(e->builder, LLVMIntrinsicGetType(e->context, id, types, noverload), function, args, nargs, "");
}

LLVMValueRef tn_emit_intrinsic_same(tn_emitter *e, const char *name, LLVMValueRef *args, unsigned nargs)
{
    LLVMTypeRef type = LLVMTypeOf(args[0]);
    return tn_emit_intrinsic(e, name, &type, 1, args, nargs);
}

void tn_emit_attribute(tn_emitter *e, LLVMValueRef function, LLVMAttributeIndex at, const char *name)
{
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(function, at, LLVMCreateEnumAttribute(e->context, kind, 0));
}

void tn_emit_text_attribute(tn_emitter *e, LLVMValueRef function, const char *name, const char *value)
{
    LLVMAttributeRef attribute = LLVMCreateStringAttribute(e->context, name, (unsigned)strlen(name), value, (unsigned)strlen(value));
    LLVMAddAttributeAtIndex(function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, attribute);
}
