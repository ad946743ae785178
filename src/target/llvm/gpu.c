/* What differs where the module is PTX: a kernel is an entry with a parameter a value, and programs and threads are numbers that the hardware has.
 *
 *     .entry kernel(buffers …, sizes …, begin, end)
 *
 * CTA number c of n runs the programs begin + c, begin + c + n, … below end, with as many threads as the kernel says. Buffers are plain pointers: LLVM finds
 * that those of an entry are global. */
#include <string.h>

#include "target/llvm/internal.h"

enum { PTX_KERNEL = 71 }; /* LLVM's number of the calling convention ptx_kernel */

static void add_text_attribute(tn_emitter *e, const char *name, const char *value)
{
    LLVMAttributeRef attribute = LLVMCreateStringAttribute(e->context, name, (unsigned)strlen(name), value, (unsigned)strlen(value));
    LLVMAddAttributeAtIndex(e->function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, attribute);
}

static void add_enum_attribute(tn_emitter *e, unsigned at, const char *name)
{
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(e->function, at, LLVMCreateEnumAttribute(e->context, kind, 0));
}

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
    add_text_attribute(e, "target-cpu", e->machine->cpu);
    add_text_attribute(e, "target-features", e->machine->features);
    add_enum_attribute(e, (unsigned)LLVMAttributeFunctionIndex, "nounwind");
    annotate(e, "reqntidx", func->threads);
    for (size_t i = 0; i < n; i++) {
        const tn_lvalue *param = func->params.at[i];
        e->values[param->id] = LLVMGetParam(e->function, (unsigned)i);
        if (param->name)
            LLVMSetValueName2(e->values[param->id], param->name, strlen(param->name));
        if (i < (size_t)func->nbuffers && param->readonly) { /* nothing writes what it points to: loads may go through the read-only path */
            add_enum_attribute(e, (unsigned)i + 1, "noalias");
            add_enum_attribute(e, (unsigned)i + 1, "readonly");
        }
    }
}

static LLVMValueRef special_register(tn_emitter *e, const char *name)
{
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMValueRef function = LLVMGetIntrinsicDeclaration(e->module, id, NULL, 0);
    LLVMValueRef number = LLVMBuildCall2(e->builder, LLVMGlobalGetValueType(function), function, NULL, 0, "");
    return LLVMBuildZExt(e->builder, number, tn_emit_int_type(e, 64, 1), "");
}

LLVMValueRef tn_emit_thread(tn_emitter *e) { return special_register(e, "llvm.nvvm.read.ptx.sreg.tid.x"); }

void tn_emit_gpu_grid(tn_emitter *e, LLVMValueRef *lo, LLVMValueRef *step)
{
    LLVMValueRef first = LLVMBuildMul(e->builder, special_register(e, "llvm.nvvm.read.ptx.sreg.ctaid.x"), *step, "");
    *lo = LLVMBuildAdd(e->builder, *lo, first, "");
    *step = LLVMBuildMul(e->builder, *step, special_register(e, "llvm.nvvm.read.ptx.sreg.nctaid.x"), "");
}
