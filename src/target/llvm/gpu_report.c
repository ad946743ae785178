/* What code on a GPU tells its host: lines printed by the driver's vprintf, and the number of an assertion that failed. */
#include "target/llvm/internal.h"

/* The driver takes the values packed into a buffer, 8 bytes each, and what they are from the format. */
void tn_emit_gpu_print(tn_emitter *e, LLVMValueRef format, LLVMValueRef *values, int n)
{
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef i32 = tn_emit_int_type(e, 32, 1), i64 = tn_emit_int_type(e, 64, 1), pointer = LLVMPointerTypeInContext(e->context, 0);
    LLVMTypeRef params[2] = {pointer, pointer}, type = LLVMFunctionType(i32, params, 2, false);
    LLVMValueRef vprintf = LLVMGetNamedFunction(e->module, "vprintf"), args[2] = {format, LLVMConstNull(pointer)};
    if (!vprintf)
        vprintf = LLVMAddFunction(e->module, "vprintf", type);
    if (n > 0) {
        args[1] = LLVMBuildAlloca(e->allocas, LLVMArrayType2(i64, (uint64_t)n), "values");
        LLVMSetAlignment(args[1], 8);
    }
    for (int i = 0; i < n; i++) {
        LLVMValueRef at = tn_emit_int(i64, i);
        LLVMSetAlignment(LLVMBuildStore(b, values[i], LLVMBuildInBoundsGEP2(b, i64, args[1], &at, 1, "")), 8);
    }
    LLVMBuildCall2(b, type, vprintf, args, 2, "");
}

/* The first failure stays: others find that the word is not 0. The thread ends; the others go on. */
void tn_emit_gpu_trap(tn_emitter *e, int64_t number)
{
    LLVMTypeRef i64 = tn_emit_int_type(e, 64, 1);
    LLVMValueRef word = LLVMGetNamedGlobal(e->module, TN_TRAPPED);
    if (!word) {
        word = LLVMAddGlobalInAddressSpace(e->module, i64, TN_TRAPPED, 1);
        LLVMSetInitializer(word, LLVMConstNull(i64));
        LLVMSetAlignment(word, 8);
    }
    LLVMBuildAtomicCmpXchg(e->builder, word, LLVMConstNull(i64), tn_emit_int(i64, number), LLVMAtomicOrderingMonotonic, LLVMAtomicOrderingMonotonic, false);
    LLVMBuildRetVoid(e->builder);
}
