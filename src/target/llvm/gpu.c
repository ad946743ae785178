/* What differs where the module is PTX: a kernel is an entry with a parameter a value, and programs and threads are numbers that the hardware has.
 *
 *     .entry kernel(buffers …, sizes …, begin, end)
 *
 * CTA number c of n runs the programs begin + c, begin + c + n, … below end, with as many threads as the kernel says. Buffers are plain pointers: LLVM finds
 * that those of an entry are global. */
#include <string.h>

#include "target/llvm/internal.h"

enum { PTX_KERNEL = 71 }; /* LLVM's number of the calling convention ptx_kernel */

/* `name` says something of the function in the module's list of such facts. */
static void annotate(tn_emitter *e, const char *name, int value)
{
    LLVMMetadataRef fact[3] = {LLVMValueAsMetadata(e->function), LLVMMDStringInContext2(e->context, name, strlen(name)),
                               LLVMValueAsMetadata(tn_emit_int(tn_emit_int_type(e, 32, 1), value))};
    LLVMAddNamedMetadataOperand(e->module, "nvvm.annotations", LLVMMetadataAsValue(e->context, LLVMMDNodeInContext2(e->context, fact, 3)));
}

void tn_emit_gpu_function(tn_emitter *e)
{
    const tn_lfunc *func = e->func;
    size_t n = func->params.len;
    LLVMTypeRef *types = TN_NEW_ARRAY(&e->session->arena, LLVMTypeRef, n + 1);
    for (size_t i = 0; i < n; i++)
        types[i] = i < (size_t)func->nbuffers ? LLVMPointerTypeInContext(e->context, 0) : tn_emit_int_type(e, 64, 1);
    e->function = LLVMAddFunction(e->module, func->name, LLVMFunctionType(LLVMVoidTypeInContext(e->context), types, (unsigned)n, false));
    LLVMSetFunctionCallConv(e->function, PTX_KERNEL);
    tn_emit_text_attribute(e, e->function, "target-cpu", e->machine->cpu);
    tn_emit_text_attribute(e, e->function, "target-features", e->machine->features);
    tn_emit_attribute(e, e->function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, "nounwind");
    annotate(e, "reqntidx", func->threads);
    for (size_t i = 0; i < n; i++) {
        const tn_lvalue *param = func->params.at[i];
        e->values[param->id] = LLVMGetParam(e->function, (unsigned)i);
        if (param->name)
            LLVMSetValueName2(e->values[param->id], param->name, strlen(param->name));
        if (i < (size_t)func->nbuffers && param->readonly) { /* nothing writes what it points to: loads may go through the read-only path */
            tn_emit_attribute(e, e->function, (LLVMAttributeIndex)i + 1, "noalias");
            tn_emit_attribute(e, e->function, (LLVMAttributeIndex)i + 1, "readonly");
        }
    }
}

static LLVMValueRef special_register(tn_emitter *e, const char *name)
{
    return LLVMBuildZExt(e->builder, tn_emit_intrinsic(e, name, NULL, 0, NULL, 0), tn_emit_int_type(e, 64, 1), "");
}

LLVMValueRef tn_emit_thread(tn_emitter *e) { return special_register(e, "llvm.nvvm.read.ptx.sreg.tid.x"); }

void tn_emit_gpu_grid(tn_emitter *e, LLVMValueRef *lo, LLVMValueRef *step)
{
    LLVMValueRef first = LLVMBuildMul(e->builder, special_register(e, "llvm.nvvm.read.ptx.sreg.ctaid.x"), *step, "");
    *lo = LLVMBuildAdd(e->builder, *lo, first, "");
    *step = LLVMBuildMul(e->builder, *step, special_register(e, "llvm.nvvm.read.ptx.sreg.nctaid.x"), "");
}
