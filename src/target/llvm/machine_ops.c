/* The operation `intrinsic`: a row of cpu/intrinsics.def, by name. */
#include <assert.h>
#include <string.h>

#include "target/internal.h"
#include "target/llvm/internal.h"

typedef struct machine_op {
    const char *name, *feature, *intrinsic, *types;
} machine_op;

static const machine_op machine_ops[] = {
#define MACHINE_OP(name, feature, intrinsic, types) {#name, feature, intrinsic, types},
#include "target/cpu/intrinsics.def"
#undef MACHINE_OP
};

static const machine_op *find(const char *name)
{
    for (size_t i = 0; i < TN_COUNT(machine_ops); i++)
        if (!strcmp(machine_ops[i].name, name))
            return &machine_ops[i];
    return NULL;
}

static void add_type(tn_text *text, tn_ltype type)
{
    tn_text_add(text, type.lanes > 1 ? "%s%s%d" : "%s", tn_dtype_text(type.dtype), "x", type.lanes);
}

/* "result(operands)", as the table writes it. */
static const char *types_of(tn_arena *arena, const tn_lop *op)
{
    tn_text text = {.arena = arena};
    add_type(&text, op->result->type);
    for (int i = 0; i < op->noperands; i++) {
        tn_text_add(&text, "%s", i == 0 ? "(" : ", ");
        add_type(&text, op->operand[i]->type);
    }
    tn_text_add(&text, ")");
    return text.at;
}

/* Rows of loop/gpu_functions.def are of f32, any number of lanes. */
static bool is_gpu_fn(const tn_lop *op)
{
    for (int i = 0; i < op->noperands; i++)
        if (op->operand[i]->type.dtype != TN_F32 || op->operand[i]->type.lanes != op->result->type.lanes)
            return false;
    tn_number any, zeros[3] = {0};
    return op->result->type.dtype == TN_F32 && op->noperands <= 3 && tn_l_gpu_eval(op->name, zeros, op->noperands, &any);
}

static LLVMValueRef emit_gpu_fn(tn_emitter *e, const tn_lop *op)
{
    LLVMValueRef args[3];
    for (int i = 0; i < op->noperands; i++)
        args[i] = tn_emit_value(e, op->operand[i]);
    return tn_emit_gpu_fn(e, op->name, args, (unsigned)op->noperands);
}

/* What an intrinsic with a mask has behind its operands: what lanes that are masked out get, the mask, the rounding mode. */
static LLVMValueRef behind_operands(LLVMTypeRef type)
{
    enum { AS_SET = 4 };
    if (LLVMGetTypeKind(type) != LLVMIntegerTypeKind)
        return LLVMGetPoison(type);
    return LLVMGetIntTypeWidth(type) == 32 ? LLVMConstInt(type, AS_SET, false) : LLVMConstAllOnes(type);
}

LLVMValueRef tn_emit_machine_op(tn_emitter *e, const tn_lop *op)
{
    LLVMTypeRef want = tn_emit_type(e, op->result->type.dtype, op->result->type.lanes), params[5];
    if (e->machine->gpu && is_gpu_fn(op))
        return emit_gpu_fn(e, op);
    const machine_op *row = find(op->name);
    if (!row)
        return tn_emit_refuse(e, want, "intrinsic '%s': no machine has it", op->name);
    if (!tn_machine_has(e->machine, row->feature))
        return tn_emit_refuse(e, want, "intrinsic '%s', which needs %s", op->name, row->feature);
    const char *types = types_of(&e->session->arena, op);
    if (strcmp(types, row->types) != 0)
        return tn_emit_refuse(e, want, "intrinsic '%s' on %s: its types are %s", op->name, types, row->types);
    unsigned id = LLVMLookupIntrinsicID(row->intrinsic, strlen(row->intrinsic));
    LLVMTypeRef type = LLVMIntrinsicGetType(e->context, id, NULL, 0);
    int nparams = (int)LLVMCountParamTypes(type);
    assert(id && op->noperands <= nparams && nparams <= 5);
    LLVMGetParamTypes(type, params);
    LLVMValueRef args[5], function = LLVMGetIntrinsicDeclaration(e->module, id, NULL, 0);
    for (int i = 0; i < nparams; i++)
        args[i] = i < op->noperands ? LLVMBuildBitCast(e->builder, tn_emit_value(e, op->operand[i]), params[i], "") : behind_operands(params[i]);
    return LLVMBuildBitCast(e->builder, LLVMBuildCall2(e->builder, type, function, args, (unsigned)nparams, ""), want, "");
}
