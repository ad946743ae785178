/* A Loop IR function as an LLVM function of type tn_kernel_fn. */
#include <stdarg.h>
#include <string.h>

#include <llvm-c/DebugInfo.h>

#include "target/llvm/internal.h"

enum { MOST_LANES = 256 };

static void emit_block(tn_emitter *e, const tn_lblock *block);

LLVMValueRef tn_emit_refuse(tn_emitter *e, LLVMTypeRef type, const char *format, ...)
{
    if (e->status == TN_OK) {
        va_list args;
        tn_text what = {.arena = &e->session->arena};
        va_start(args, format);
        tn_text_addv(&what, format, args);
        va_end(args);
        e->status = tn_error(e->session, TN_UNSUPPORTED, (tn_loc){.line = e->line}, "kernel @%s: machine '%s' can't do %s", e->func->name,
                             e->machine->name, what.at);
    }
    return type ? LLVMGetPoison(type) : NULL;
}

LLVMBasicBlockRef tn_emit_block_after(tn_emitter *e, const char *name)
{
    LLVMBasicBlockRef block = LLVMAppendBasicBlockInContext(e->context, e->function, name);
    LLVMMoveBasicBlockAfter(block, LLVMGetInsertBlock(e->builder));
    return block;
}

/* ---- operations on vectors ------------------------------------------------------------------------------------------------ */

static LLVMValueRef emit_fn(tn_emitter *e, const tn_lop *op)
{
    LLVMValueRef args[3];
    for (int i = 0; i < op->noperands; i++)
        args[i] = tn_emit_value(e, op->operand[i]);
    LLVMValueRef v = tn_emit_fn(e, op->fn, op->operand[op->noperands - 1]->type.dtype, args);
    for (int i = 0; op->contract && e->machine->gpu && i < op->result->type.lanes; i++) {
        LLVMValueRef lane = tn_emit_lane(e, v, i);
        if (LLVMIsAInstruction(lane) && LLVMCanValueUseFastMathFlags(lane))
            LLVMSetFastMathFlags(lane, LLVMFastMathAllowContract);
    }
    return v;
}

/* bool lanes count as the bytes they are in memory. */
static LLVMValueRef emit_bitcast(tn_emitter *e, const tn_lop *op)
{
    tn_ltype from = op->operand[0]->type, to = op->result->type;
    LLVMValueRef x = tn_emit_value(e, op->operand[0]);
    if (from.dtype == TN_BOOL)
        x = LLVMBuildZExt(e->builder, x, tn_emit_int_type(e, 8, from.lanes), "");
    x = LLVMBuildBitCast(e->builder, x, tn_emit_memory_type(e, to.dtype, to.lanes), "");
    return to.dtype == TN_BOOL ? LLVMBuildICmp(e->builder, LLVMIntNE, x, LLVMConstNull(LLVMTypeOf(x)), "") : x;
}

static LLVMValueRef emit_iota(tn_emitter *e, const tn_lop *op)
{
    LLVMValueRef lanes[MOST_LANES];
    tn_ltype type = op->result->type;
    for (int i = 0; i < type.lanes; i++)
        lanes[i] = tn_emit_number(e, type.dtype, 1, tn_number_from_int(type.dtype, i));
    return type.lanes == 1 ? lanes[0] : LLVMConstVector(lanes, (unsigned)type.lanes);
}

static LLVMValueRef lane_numbers(tn_emitter *e, const int *numbers, int n)
{
    LLVMValueRef lanes[MOST_LANES];
    LLVMTypeRef i32 = tn_emit_int_type(e, 32, 1);
    for (int i = 0; i < n; i++)
        lanes[i] = numbers[i] < 0 ? LLVMGetPoison(i32) : tn_emit_int(i32, numbers[i]);
    return LLVMConstVector(lanes, (unsigned)n);
}

/* A matrix is turned by as many rounds of shuffles as it has bits in a row's number, and LLVM tries to merge each shuffle with all those before it,
 * which costs five times as much as any other instruction. It does not see through this, which becomes no code. */
static LLVMValueRef close_shuffles(tn_emitter *e, tn_ltype held, LLVMValueRef value)
{
    LLVMTypeRef type = LLVMTypeOf(value);
    int bits = held.lanes * tn_dtype_bits(held.dtype);
    if (held.dtype == TN_BOOL || bits % 64)
        return value;
    LLVMValueRef floats = LLVMBuildBitCast(e->builder, value, tn_emit_float_type(e, bits / 32), "");
    return LLVMBuildBitCast(e->builder, tn_emit_intrinsic_same(e, "llvm.arithmetic.fence", &floats, 1), type, "");
}

/* The operands may have one lane, the result too. */
static LLVMValueRef emit_shuffle(tn_emitter *e, const tn_lop *op)
{
    LLVMTypeRef i32 = tn_emit_int_type(e, 32, 1);
    LLVMValueRef x = tn_emit_value(e, op->operand[0]), y = tn_emit_value(e, op->operand[1]);
    int have = op->operand[0]->type.lanes, want = op->result->type.lanes;
    if (have == 1) {
        LLVMTypeRef one = LLVMVectorType(LLVMTypeOf(x), 1);
        x = LLVMBuildBitCast(e->builder, x, one, ""), y = LLVMBuildBitCast(e->builder, y, one, "");
    }
    if (want == 1) {
        int lane = op->lanes[0];
        return LLVMBuildExtractElement(e->builder, lane < have ? x : y, tn_emit_int(i32, lane < 0 ? 0 : lane % have), "");
    }
    LLVMValueRef result = LLVMBuildShuffleVector(e->builder, x, y, lane_numbers(e, op->lanes, want), "");
    bool second = x != y && LLVMIsAShuffleVectorInst(x) && LLVMIsAShuffleVectorInst(y);
    return second ? close_shuffles(e, op->result->type, result) : result;
}

/* Lane by lane: a GPU has no vectors, and predicates that it combines for nothing. */
static LLVMValueRef combine_bools(tn_emitter *e, LLVMValueRef x, int lanes, bool any)
{
    LLVMValueRef result = tn_emit_lane(e, x, 0);
    for (int i = 1; i < lanes; i++)
        result = LLVMBuildBinOp(e->builder, any ? LLVMOr : LLVMAnd, result, tn_emit_lane(e, x, i), "");
    return result;
}

static LLVMValueRef emit_hreduce(tn_emitter *e, const tn_lop *op)
{
    LLVMValueRef x = tn_emit_value(e, op->operand[0]);
    tn_dtype dtype = op->operand[0]->type.dtype;
    int lanes = op->operand[0]->type.lanes;
    if (lanes & (lanes - 1))
        return tn_emit_refuse(e, tn_emit_type(e, dtype, 1), "hreduce over %d lanes, which is no power of two", lanes);
    bool any = op->fn == TN_S_or || op->fn == TN_S_add || op->fn == TN_S_max, all = op->fn == TN_S_and || op->fn == TN_S_mul || op->fn == TN_S_min;
    if (dtype == TN_BOOL && (any || all) && e->machine->gpu)
        return combine_bools(e, x, lanes, any);
    if (dtype == TN_BOOL && (any || all)) { /* a mask register is one number */
        LLVMTypeRef bits = LLVMIntTypeInContext(e->context, (unsigned)lanes);
        LLVMValueRef mask = LLVMBuildBitCast(e->builder, x, bits, "");
        return LLVMBuildICmp(e->builder, any ? LLVMIntNE : LLVMIntEQ, mask, any ? LLVMConstNull(bits) : LLVMConstAllOnes(bits), "");
    }
    for (int half = lanes / 2; half > 0; half /= 2) {
        LLVMValueRef args[2] = {tn_emit_slice(e, x, 0, half), tn_emit_slice(e, x, half, half)};
        x = tn_emit_fn(e, op->fn, dtype, args);
    }
    return x;
}

static LLVMValueRef emit_address(tn_emitter *e, const tn_lop *op)
{
    return LLVMBuildPtrToInt(e->builder, tn_emit_value(e, op->operand[0]), tn_emit_int_type(e, 64, 1), "");
}

static LLVMValueRef emit_value_op(tn_emitter *e, const tn_lop *op)
{
    tn_ltype type = op->result->type;
    LLVMValueRef x = op->noperands > 0 ? tn_emit_value(e, op->operand[0]) : NULL;
    switch (op->code) {
    case TN_L_const: return tn_emit_number(e, type.dtype, type.lanes, op->number);
    case TN_L_fn: return emit_fn(e, op);
    case TN_L_cast: return tn_emit_cast(e, x, op->operand[0]->type.dtype, type.dtype);
    case TN_L_bitcast: return emit_bitcast(e, op);
    case TN_L_splat: return tn_emit_splat(e, x, type.lanes);
    case TN_L_iota: return emit_iota(e, op);
    case TN_L_extract: return LLVMBuildExtractElement(e->builder, x, tn_emit_value(e, op->operand[1]), "");
    case TN_L_insert:
        return LLVMBuildInsertElement(e->builder, x, tn_emit_value(e, op->operand[1]), tn_emit_value(e, op->operand[2]), "");
    case TN_L_shuffle: return emit_shuffle(e, op);
    case TN_L_hreduce: return emit_hreduce(e, op);
    case TN_L_intrinsic: return tn_emit_machine_op(e, op);
    case TN_L_memory: return LLVMConstNull(LLVMPointerTypeInContext(e->context, 0)); /* accesses make their addresses themselves */
    case TN_L_thread: return tn_emit_thread(e);
    case TN_L_cta: return tn_emit_cta(e);
    case TN_L_lane_xor:
    case TN_L_lane_at: return tn_emit_other_lane(e, op);
    case TN_L_address: return emit_address(e, op);
    case TN_L_asm: return tn_emit_asm(e, op);
    default: return tn_emit_refuse(e, tn_emit_type(e, type.dtype, type.lanes), "the operation %s", tn_lop_name(op->code));
    }
}

/* ---- control flow -------------------------------------------------------------------------------------------------------------- */

/* The loop that the branch closes is not unrolled by whoever compiles the code further. */
static void keep_rolled(tn_emitter *e, LLVMValueRef branch)
{
    static const char name[] = "llvm.loop.unroll.disable";
    LLVMMetadataRef what = LLVMMDStringInContext2(e->context, name, strlen(name)), disable = LLVMMDNodeInContext2(e->context, &what, 1);
    LLVMMetadataRef self = LLVMTemporaryMDNode(e->context, NULL, 0), parts[2] = {self, disable}, loop = LLVMMDNodeInContext2(e->context, parts, 2);
    LLVMMetadataReplaceAllUsesWith(self, loop); /* a loop's node names itself first */
    LLVMSetMetadata(branch, LLVMGetMDKindIDInContext(e->context, "llvm.loop", 9), LLVMMetadataAsValue(e->context, loop));
}

/* The exit test stands at the end; before the first iteration only where lo < hi is not plain. */
static void emit_for(tn_emitter *e, const tn_lop *op)
{
    LLVMBuilderRef b = e->builder;
    const tn_lblock *block = op->region[0];
    LLVMValueRef lo = tn_emit_value(e, op->operand[0]), hi = tn_emit_value(e, op->operand[1]), step = tn_emit_value(e, op->operand[2]);
    LLVMValueRef both = op->kind == TN_FOR_GRID && e->machine->gpu ? tn_emit_gpu_grid(e, op, &lo, &step) : NULL;
    LLVMBasicBlockRef before = LLVMGetInsertBlock(b), body = tn_emit_block_after(e, "loop");
    LLVMPositionBuilderAtEnd(b, body);
    LLVMValueRef index = LLVMBuildPhi(b, LLVMTypeOf(lo), block->arg->name ? block->arg->name : "");
    e->values[block->arg->id] = index;
    LLVMValueRef grows = both ? LLVMBuildPhi(b, LLVMTypeOf(step), "") : step;
    const tn_lop *around = e->loop;
    LLVMBasicBlockRef before_it = e->before;
    e->loop = op, e->before = before;
    emit_block(e, block);
    e->loop = around, e->before = before_it;
    LLVMValueRef next = LLVMBuildNSWAdd(b, index, both ? LLVMBuildZExt(b, grows, LLVMTypeOf(lo), "") : grows, ""), turned = both ? LLVMBuildSub(b, both, grows, "") : NULL;
    LLVMValueRef more = LLVMBuildICmp(b, LLVMIntSLT, next, hi, "");
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(b), after = tn_emit_block_after(e, "done");
    LLVMValueRef branch = LLVMBuildCondBr(b, more, body, after);
    if (e->role && e->role_block == 1) /* copies for the other role, and may have given its registers away */
        keep_rolled(e, branch);
    LLVMAddIncoming(index, (LLVMValueRef[]){lo, next}, (LLVMBasicBlockRef[]){before, latch}, 2);
    if (both)
        LLVMAddIncoming(grows, (LLVMValueRef[]){step, turned}, (LLVMBasicBlockRef[]){before, latch}, 2);
    LLVMPositionBuilderAtEnd(b, before);
    LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntSLT, lo, hi, ""), body, after);
    LLVMPositionBuilderAtEnd(b, after);
}

static void emit_if(tn_emitter *e, const tn_lop *op)
{
    LLVMBuilderRef b = e->builder;
    LLVMBasicBlockRef before = LLVMGetInsertBlock(b), then = tn_emit_block_after(e, "then");
    LLVMPositionBuilderAtEnd(b, then);
    emit_block(e, op->region[0]);
    LLVMBasicBlockRef then_end = LLVMGetInsertBlock(b), otherwise = tn_emit_block_after(e, "else");
    LLVMPositionBuilderAtEnd(b, otherwise);
    if (op->nregions > 1 && op->region[1])
        emit_block(e, op->region[1]);
    LLVMBasicBlockRef after = tn_emit_block_after(e, "endif");
    LLVMBuildBr(b, after);
    LLVMPositionBuilderAtEnd(b, then_end);
    LLVMBuildBr(b, after);
    LLVMPositionBuilderAtEnd(b, before);
    LLVMBuildCondBr(b, tn_emit_value(e, op->operand[0]), then, otherwise);
    LLVMPositionBuilderAtEnd(b, after);
}

/* One block of roles, from a basic block of its own on; gives that and the one that it ends in. */
static LLVMBasicBlockRef emit_role(tn_emitter *e, const tn_lop *op, int i, LLVMBasicBlockRef *end)
{
    LLVMBasicBlockRef start = tn_emit_block_after(e, "role");
    LLVMPositionBuilderAtEnd(e->builder, start);
    e->role = op;
    e->role_block = i;
    e->instance = i == 0 && op->instances > 1 ? tn_emit_instance(e) : NULL;
    emit_block(e, op->region[i]);
    e->role = NULL;
    *end = LLVMGetInsertBlock(e->builder);
    return start;
}

/* All meet behind it; where nothing follows, the kernel's end is enough. */
static void emit_roles(tn_emitter *e, const tn_lop *op)
{
    LLVMBuilderRef b = e->builder;
    LLVMValueRef thread = tn_emit_thread(e), is_first = LLVMBuildICmp(b, LLVMIntULT, thread, tn_emit_int(LLVMTypeOf(thread), op->number.i), "");
    LLVMBasicBlockRef before = LLVMGetInsertBlock(b), end[2], first = emit_role(e, op, 0, &end[0]), second = emit_role(e, op, 1, &end[1]);
    LLVMBasicBlockRef after = tn_emit_block_after(e, "endroles");
    for (int i = 0; i < 2; i++) {
        LLVMPositionBuilderAtEnd(b, end[i]);
        LLVMBuildBr(b, after);
    }
    LLVMPositionBuilderAtEnd(b, before);
    LLVMBuildCondBr(b, is_first, first, second);
    LLVMPositionBuilderAtEnd(b, after);
    if (op->next)
        tn_emit_barrier(e);
}

static void emit_while(tn_emitter *e, const tn_lop *op)
{
    LLVMBuilderRef b = e->builder;
    const tn_lop *yield = op->region[0]->last;
    LLVMBasicBlockRef head = tn_emit_block_after(e, "while");
    LLVMBuildBr(b, head);
    LLVMPositionBuilderAtEnd(b, head);
    emit_block(e, op->region[0]);
    LLVMBasicBlockRef test = LLVMGetInsertBlock(b), body = tn_emit_block_after(e, "do");
    LLVMPositionBuilderAtEnd(b, body);
    emit_block(e, op->region[1]);
    LLVMBuildBr(b, head);
    LLVMBasicBlockRef after = tn_emit_block_after(e, "endwhile");
    LLVMPositionBuilderAtEnd(b, test);
    LLVMBuildCondBr(b, tn_emit_value(e, yield->operand[0]), body, after);
    LLVMPositionBuilderAtEnd(b, after);
}

/* ---- printing ------------------------------------------------------------------------------------------------------------------ */

/* A value as printf takes it, and how it is to be printed. */
static LLVMValueRef printable(tn_emitter *e, const tn_lvalue *x, bool hex, tn_text *format)
{
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef i64 = tn_emit_int_type(e, 64, 1);
    LLVMValueRef value = tn_emit_value(e, x);
    tn_dtype dtype = x->type.dtype;
    if (hex) {
        int bits = tn_dtype_bits(dtype);
        if (tn_is_float(dtype))
            value = LLVMBuildBitCast(b, value, tn_emit_int_type(e, bits, 1), "");
        tn_text_add(format, "0x%%0%dllx", (int)tn_max(1, bits / 4));
        return LLVMBuildZExt(b, value, i64, "");
    }
    if (tn_is_float(dtype)) {
        tn_text_add(format, "%%f");
        return tn_emit_cast(e, value, dtype, TN_F64);
    }
    tn_text_add(format, tn_is_unsigned(dtype) ? "%%llu" : "%%lld");
    return tn_is_unsigned(dtype) ? LLVMBuildZExt(b, value, i64, "") : LLVMBuildSExt(b, value, i64, "");
}

/* One call of printf for a line: lines of several threads do not mix. What the text says stands in the format with its % doubled. */
static void emit_print(tn_emitter *e, const tn_lop *op)
{
    LLVMTypeRef i32 = tn_emit_int_type(e, 32, 1), pointer = LLVMPointerTypeInContext(e->context, 0);
    LLVMTypeRef type = LLVMFunctionType(i32, &pointer, 1, true);
    LLVMValueRef *args = TN_NEW_ARRAY(&e->session->arena, LLVMValueRef, (size_t)op->noperands + 1);
    tn_text format = {.arena = &e->session->arena};
    const char *at = op->name, *text;
    size_t len;
    int n = 0;
    for (tn_lpiece piece; (piece = tn_l_print_piece(&at, &text, &len)) != TN_L_PIECE_END;) {
        if (piece != TN_L_PIECE_TEXT) {
            args[n + 1] = printable(e, op->operand[n], piece == TN_L_PIECE_HEX, &format);
            n++;
            continue;
        }
        for (size_t i = 0; i < len; i++)
            tn_text_add(&format, text[i] == '%' ? "%%%%" : "%c", text[i]);
    }
    tn_text_add(&format, "\n");
    args[0] = LLVMBuildGlobalStringPtr(e->builder, format.at, "line");
    if (e->machine->gpu)
        tn_emit_gpu_print(e, args[0], args + 1, n);
    else
        LLVMBuildCall2(e->builder, type, tn_emit_library_function(e, "printf", type), args, (unsigned)n + 1, "");
}

/* A check that fails leaves its line in the first word of scratch, or a GPU's word for it, and ends the kernel (there: the thread). */
static void emit_trap(tn_emitter *e, const tn_lop *op)
{
    LLVMBuilderRef b = e->builder;
    LLVMBasicBlockRef before = LLVMGetInsertBlock(b), holds = tn_emit_block_after(e, "holds");
    LLVMBasicBlockRef fails = LLVMAppendBasicBlockInContext(e->context, e->function, "fails");
    LLVMPositionBuilderAtEnd(b, fails);
    if (e->machine->gpu) {
        tn_emit_gpu_trap(e, op->number.i);
    } else {
        LLVMBuildStore(b, tn_emit_int(tn_emit_int_type(e, 64, 1), op->number.i), e->scratch);
        LLVMBuildRetVoid(b);
    }
    LLVMPositionBuilderAtEnd(b, before);
    LLVMBuildCondBr(b, tn_emit_value(e, op->operand[0]), holds, fails);
    LLVMPositionBuilderAtEnd(b, holds);
}

static void emit_op(tn_emitter *e, const tn_lop *op)
{
    e->line = op->line;
    if (op->result && op->result->type.lanes > MOST_LANES) {
        tn_emit_refuse(e, NULL, "a vector of %d lanes (at most %d)", op->result->type.lanes, MOST_LANES);
        return;
    }
    switch (op->code) {
    case TN_L_for: emit_for(e, op); break;
    case TN_L_if: emit_if(e, op); break;
    case TN_L_while: emit_while(e, op); break;
    case TN_L_roles: emit_roles(e, op); break;
    case TN_L_trap: emit_trap(e, op); break;
    case TN_L_print: emit_print(e, op); break;
    case TN_L_barrier: tn_emit_barrier(e); break;
    case TN_L_fence: tn_emit_gpu_fence(e, op->scope); break;
    case TN_L_machine: tn_emit_gpu_machine(e, op); break;
    case TN_L_yield: break; /* emit_while reads it */
    case TN_L_alloc:
    case TN_L_load:
    case TN_L_gather:
    case TN_L_store:
    case TN_L_scatter:
    case TN_L_atomic:
    case TN_L_atomic_load:
    case TN_L_cas:
    case TN_L_prefetch: tn_emit_memory_op(e, op); break;
    default: e->values[op->result->id] = emit_value_op(e, op); break;
    }
}

static void emit_block(tn_emitter *e, const tn_lblock *block)
{
    LLVMValueRef scratch_at = e->scratch_at; /* what a block allocates ends with it */
    for (const tn_lop *op = block->first; op && e->status == TN_OK; op = op->next)
        emit_op(e, op);
    e->scratch_at = scratch_at;
}

/* ---- the function --------------------------------------------------------------------------------------------------------------- */

static void add_attributes(tn_emitter *e)
{
    char width[16];
    snprintf(width, sizeof width, "%d", e->machine->vector.bits);
    tn_emit_text_attribute(e, e->function, "prefer-vector-width", width);
    tn_emit_attribute(e, e->function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, "nounwind");
    tn_emit_attribute(e, e->function, 1, "readonly"); /* the two arrays of arguments; nothing else points to them */
    tn_emit_attribute(e, e->function, 2, "readonly");
    tn_emit_attribute(e, e->function, 1, "noalias");
    tn_emit_attribute(e, e->function, 2, "noalias");
    tn_emit_attribute(e, e->function, 5, "noalias"); /* scratch is the caller's own */
}

static LLVMValueRef load_argument(tn_emitter *e, unsigned array, size_t i, LLVMTypeRef type, const char *name)
{
    LLVMValueRef index = tn_emit_int(tn_emit_int_type(e, 64, 1), (int64_t)i);
    LLVMValueRef at = LLVMBuildInBoundsGEP2(e->builder, type, LLVMGetParam(e->function, array), &index, 1, "");
    LLVMValueRef load = LLVMBuildLoad2(e->builder, type, at, name ? name : "");
    LLVMSetAlignment(load, 8);
    LLVMSetMetadata(load, e->invariant_load, LLVMMetadataAsValue(e->context, LLVMMDNodeInContext2(e->context, NULL, 0)));
    return load;
}

static void bind_parameters(tn_emitter *e)
{
    const tn_lfunc *func = e->func;
    size_t buffers = (size_t)func->nbuffers, sizes = tn_size_count(func);
    LLVMTypeRef pointer = LLVMPointerTypeInContext(e->context, 0), i64 = tn_emit_int_type(e, 64, 1);
    for (size_t i = 0; i < func->params.len; i++) {
        const tn_lvalue *param = func->params.at[i];
        LLVMValueRef *value = &e->values[param->id];
        if (i < buffers)
            *value = load_argument(e, 0, i, pointer, param->name);
        else if (i < buffers + sizes)
            *value = load_argument(e, 1, i - buffers, i64, param->name);
        else
            *value = LLVMGetParam(e->function, (unsigned)(2 + i - buffers - sizes));
    }
    e->scratch = LLVMGetParam(e->function, 4);
    e->scratch_at = tn_emit_int(i64, tn_kernel_traps(func) ? TN_SCRATCH_ALIGN : 0);
}

/* tn_kernel_fn. */
static void emit_cpu_function(tn_emitter *e)
{
    LLVMTypeRef pointer = LLVMPointerTypeInContext(e->context, 0), i64 = LLVMInt64TypeInContext(e->context);
    LLVMTypeRef params[5] = {pointer, pointer, i64, i64, pointer};
    static const char *const names[5] = {"buffers", "sizes", "begin", "end", "scratch"};
    e->function = LLVMAddFunction(e->module, e->func->name, LLVMFunctionType(LLVMVoidTypeInContext(e->context), params, 5, false));
    for (unsigned i = 0; i < 5; i++)
        LLVMSetValueName2(LLVMGetParam(e->function, i), names[i], strlen(names[i]));
    add_attributes(e);
}

void tn_emit_kernel(tn_emitter *e, const tn_lfunc *func)
{
    e->func = func;
    e->values = TN_NEW_ARRAY(&e->session->arena, LLVMValueRef, func->next_id);
    if (e->machine->gpu)
        tn_emit_gpu_function(e);
    else
        emit_cpu_function(e);
    LLVMBasicBlockRef entry = LLVMAppendBasicBlockInContext(e->context, e->function, "entry");
    LLVMBasicBlockRef start = LLVMAppendBasicBlockInContext(e->context, e->function, "start");
    LLVMPositionBuilderAtEnd(e->allocas, entry);
    LLVMPositionBuilderAtEnd(e->builder, start);
    if (!e->machine->gpu)
        bind_parameters(e);
    e->streams = false;
    emit_block(e, func->body);
    if (e->streams)
        LLVMBuildFence(e->builder, LLVMAtomicOrderingSequentiallyConsistent, false, "");
    LLVMBuildRetVoid(e->builder);
    LLVMBuildBr(e->allocas, start);
}
