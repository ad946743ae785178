/* Buffers: where they live, and how lanes are read from and written to them. */
#include "target/llvm/internal.h"

enum { ZEROS = 16 }; /* bytes of the widest element */

/* One memory operation's operands, taken apart. */
typedef struct access {
    const tn_lvalue *buffer, *offset_value, *mask_value;
    tn_dtype dtype;
    int lanes;
    LLVMValueRef base, offset, value, mask, other; /* absent ones NULL */
    bool stream;
    tn_lscope scope; /* of an atomic that says it in its name: CTA or SYS */
} access;

static LLVMValueRef operand_or_null(const tn_emitter *e, const tn_lop *op, int i)
{
    return i < op->noperands ? tn_emit_value(e, op->operand[i]) : NULL;
}

static access take_apart(const tn_emitter *e, const tn_lop *op)
{
    bool loads = op->code == TN_L_load || op->code == TN_L_gather || op->code == TN_L_atomic_load;
    access a = {.buffer = op->operand[0], .offset_value = op->operand[1], .dtype = op->operand[0]->type.dtype};
    a.lanes = loads ? op->result->type.lanes : op->operand[2]->type.lanes;
    a.base = tn_emit_value(e, a.buffer);
    a.offset = tn_emit_value(e, a.offset_value);
    a.value = loads ? NULL : tn_emit_value(e, op->operand[2]);
    a.mask = op->code == TN_L_cas ? NULL : operand_or_null(e, op, loads ? 2 : 3); /* of cas: emit_cas */
    a.mask_value = a.mask ? op->operand[loads ? 2 : 3] : NULL;
    a.other = loads ? operand_or_null(e, op, 3) : NULL;
    a.stream = op->stream && !e->machine->gpu;
    a.scope = e->machine->gpu && a.buffer->type.space == TN_SPACE_GLOBAL ? op->scope : TN_SCOPE_GPU;
    return a;
}

/* ---- where a buffer lives ------------------------------------------------------------------------------------------------ */

static LLVMValueRef bump_scratch(tn_emitter *e, const tn_lop *op)
{
    if (e->machine->gpu)
        return tn_emit_refuse(e, LLVMPointerTypeInContext(e->context, 0), "a local buffer that is too large for the stack, or of a size known late");
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef i8 = tn_emit_int_type(e, 8, 1), i64 = tn_emit_int_type(e, 64, 1);
    LLVMValueRef start = LLVMBuildInBoundsGEP2(b, i8, e->scratch, &e->scratch_at, 1, ""), size;
    int64_t bytes = 0, per_element = (int64_t)op->result->type.lanes * tn_dtype_bits(op->result->type.dtype);
    if (op->size >= 0) {
        if (!tn_buffer_bytes(op->result->type, op->size, &bytes))
            return tn_emit_refuse(e, LLVMTypeOf(start), "a local buffer of %lld elements", (long long)op->size);
        size = tn_emit_int(i64, bytes);
    } else {
        LLVMValueRef args[2] = {tn_emit_value(e, op->operand[0]), LLVMConstNull(i64)};
        LLVMValueRef bits = LLVMBuildMul(b, tn_emit_intrinsic_same(e, "llvm.smax", args, 2), tn_emit_int(i64, per_element), "");
        size = LLVMBuildLShr(b, LLVMBuildAdd(b, bits, tn_emit_int(i64, 7), ""), tn_emit_int(i64, 3), "");
    }
    LLVMValueRef end = LLVMBuildAdd(b, LLVMBuildAdd(b, e->scratch_at, size, ""), tn_emit_int(i64, TN_SCRATCH_ALIGN - 1), "");
    e->scratch_at = LLVMBuildAnd(b, end, tn_emit_int(i64, -TN_SCRATCH_ALIGN), "");
    return start;
}

/* On the stack in the entry block, so that SROA may turn it into registers; its contents are undefined at the alloc, so one home serves all
 * iterations of a loop round it. */
static LLVMValueRef emit_alloc(tn_emitter *e, const tn_lop *op)
{
    int64_t bytes = 0;
    if (op->result->type.space == TN_SPACE_SHARED)
        return tn_emit_shared(e, op->at);
    if (!tn_alloc_on_stack(op))
        return bump_scratch(e, op);
    tn_buffer_bytes(op->result->type, op->size, &bytes);
    LLVMTypeRef array = LLVMArrayType2(tn_emit_int_type(e, 8, 1), (uint64_t)tn_max(bytes, 1));
    LLVMValueRef home = LLVMBuildAlloca(e->allocas, array, op->result->name ? op->result->name : "");
    LLVMSetAlignment(home, TN_SCRATCH_ALIGN);
    return home;
}

/* Of a GPU's global memory, as LLVM counts address spaces: an address there is the same number as without a space. */
enum { GLOBAL_SPACE = 1 };

/* An address from a number: an offset from a null pointer would be one that no object has, which LLVM takes for an access that never happens. */
static LLVMValueRef absolute_address(tn_emitter *e, const access *a)
{
    int lanes = tn_emit_lanes(LLVMTypeOf(a->offset));
    LLVMTypeRef pointer = LLVMPointerTypeInContext(e->context, e->machine->gpu ? GLOBAL_SPACE : 0), i64 = tn_emit_int_type(e, 64, lanes);
    LLVMValueRef offset = a->offset;
    if (LLVMTypeOf(offset) != i64)
        offset = LLVMBuildSExt(e->builder, offset, i64, "");
    LLVMValueRef bytes = LLVMBuildMul(e->builder, offset, tn_emit_int(i64, tn_dtype_bits(a->dtype) / 8), "");
    return LLVMBuildIntToPtr(e->builder, bytes, lanes > 1 ? LLVMVectorType(pointer, (unsigned)lanes) : pointer, "");
}

static bool is_outside(const tn_lvalue *v, const tn_lop *loop)
{
    const tn_lblock *at = loop->block;
    while (at && at != v->block)
        at = at->parent ? at->parent->block : NULL;
    return at || !v->block;
}

static bool is_add(const tn_lvalue *v) { return v->def && v->def->code == TN_L_fn && v->def->fn == TN_S_add; }

/* An offset that is a number known before the innermost loop and one of the loop's own: what is known becomes a pointer before the loop, and the rest fits into the
 * instruction. As a sum it would be an addition for each of a product's rows, which keep an address alive for what is unrolled: then LLVM's scheduler, short of
 * registers for addresses, puts off the multiply-adds until it is out of vectors. NULL: the offset is no such sum. */
static LLVMValueRef address_by_parts(tn_emitter *e, const access *a)
{
    const tn_lvalue *sum = a->offset_value;
    int64_t constant = 0, more;
    if (e->machine->gpu || !e->loop || a->offset_value->type.lanes > 1 || a->buffer->type.lanes > 1 || a->offset != tn_emit_value(e, sum))
        return NULL;
    for (; is_add(sum) && tn_l_is_const(sum->def->operand[1], &more); sum = sum->def->operand[0])
        constant += more;
    if (!is_add(sum) || !is_outside(a->buffer, e->loop))
        return NULL;
    const tn_lvalue *known = sum->def->operand[0], *own = sum->def->operand[1];
    if (is_outside(known, e->loop) == is_outside(own, e->loop))
        return NULL;
    if (is_outside(own, e->loop)) {
        const tn_lvalue *other = known;
        known = own, own = other;
    }
    LLVMTypeRef element = tn_emit_memory_type(e, a->dtype, 1);
    LLVMValueRef offset = tn_emit_value(e, known), rest = tn_emit_value(e, own);
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->builder);
    LLVMPositionBuilderAtEnd(e->builder, e->before);
    LLVMValueRef start = LLVMBuildGEP2(e->builder, element, a->base, &offset, 1, "");
    LLVMPositionBuilderAtEnd(e->builder, here);
    if (constant)
        rest = LLVMBuildAdd(e->builder, rest, tn_emit_int(LLVMTypeOf(rest), constant), "");
    return LLVMBuildGEP2(e->builder, element, start, &rest, 1, ""); /* the pointer itself may lie outside of the buffer */
}

static LLVMValueRef address(tn_emitter *e, const access *a)
{
    LLVMValueRef offset = a->offset;
    if (a->buffer->def && a->buffer->def->code == TN_L_memory)
        return absolute_address(e, a);
    LLVMValueRef parts = address_by_parts(e, a);
    if (parts)
        return parts;
    if (a->buffer->type.lanes > 1) { /* the elements are vectors */
        LLVMTypeRef type = LLVMTypeOf(offset);
        offset = LLVMBuildMul(e->builder, offset, tn_emit_int(type, a->buffer->type.lanes), "");
    }
    LLVMTypeRef element = tn_emit_memory_type(e, a->dtype, 1);
    if (a->mask) /* lanes that are off may point anywhere */
        return LLVMBuildGEP2(e->builder, element, a->base, &offset, 1, "");
    return LLVMBuildInBoundsGEP2(e->builder, element, a->base, &offset, 1, "");
}

static unsigned alignment(tn_dtype dtype) { return (unsigned)tn_dtype_bits(tn_dtype_real(dtype)) / 8; }

/* A GPU takes whole vectors only where they are aligned: what the buffer and the offset promise. */
static unsigned vector_alignment(const tn_emitter *e, const access *a, unsigned element)
{
    int64_t bytes = tn_dtype_bits(a->dtype) / 8;
    if (!e->machine->gpu || a->lanes == 1 || a->offset_value->type.lanes > 1)
        return element;
    return (unsigned)tn_max(tn_min(a->buffer->align, tn_l_multiple(a->offset_value, NULL) * bytes), element);
}

/* A buffer that may start between elements (a weight where its file has it) says so by its own alignment. */
static unsigned load_alignment(const tn_emitter *e, const access *a)
{
    unsigned element = alignment(a->dtype), start = (unsigned)a->buffer->align;
    return start > 0 && start < element ? start : vector_alignment(e, a, element);
}

/* ---- values and what memory holds -------------------------------------------------------------------------------------------- */

static LLVMValueRef to_memory(tn_emitter *e, tn_dtype dtype, LLVMValueRef value)
{
    if (dtype != TN_BOOL)
        return value;
    return LLVMBuildZExt(e->builder, value, tn_emit_int_type(e, 8, tn_emit_lanes(LLVMTypeOf(value))), "");
}

/* A bool from outside may be any byte; our own is 0 or 1, and truncation folds with the extension that stored it. */
static LLVMValueRef from_memory(tn_emitter *e, const access *a, LLVMValueRef value)
{
    if (a->dtype != TN_BOOL)
        return value;
    LLVMTypeRef type = LLVMTypeOf(value);
    if (a->buffer->type.space == TN_SPACE_GLOBAL)
        return LLVMBuildICmp(e->builder, LLVMIntNE, value, LLVMConstNull(type), "");
    return LLVMBuildTrunc(e->builder, value, tn_emit_int_type(e, 1, tn_emit_lanes(type)), "");
}

static LLVMValueRef full_mask(tn_emitter *e, const access *a)
{
    LLVMTypeRef type = tn_emit_int_type(e, 1, a->lanes);
    if (!a->mask)
        return LLVMConstAllOnes(type);
    return tn_emit_lanes(LLVMTypeOf(a->mask)) == a->lanes ? a->mask : tn_emit_splat(e, a->mask, a->lanes);
}

static LLVMValueRef other_value(tn_emitter *e, const access *a)
{
    LLVMTypeRef type = tn_emit_type(e, a->dtype, a->lanes);
    if (!a->other)
        return LLVMConstNull(type);
    return tn_emit_lanes(LLVMTypeOf(a->other)) == a->lanes ? a->other : tn_emit_splat(e, a->other, a->lanes);
}

static LLVMValueRef mark_load(tn_emitter *e, const access *a, LLVMValueRef load)
{
    if (a->buffer->readonly) {
        LLVMMetadataRef node = LLVMMDNodeInContext2(e->context, NULL, 0);
        LLVMSetMetadata(load, e->invariant_load, LLVMMetadataAsValue(e->context, node));
    }
    return load;
}

/* ---- one lane under a condition ------------------------------------------------------------------------------------------------ */

typedef struct branch {
    LLVMBasicBlockRef before, join;
} branch;

static branch begin_if(tn_emitter *e, LLVMValueRef condition)
{
    branch br = {.before = LLVMGetInsertBlock(e->builder)};
    LLVMBasicBlockRef then = tn_emit_block_after(e, "on");
    LLVMBuilderRef b = e->builder;
    LLVMPositionBuilderAtEnd(b, then);
    br.join = tn_emit_block_after(e, "off");
    LLVMPositionBuilderAtEnd(b, br.before);
    LLVMBuildCondBr(b, condition, then, br.join);
    LLVMPositionBuilderAtEnd(b, then);
    return br;
}

/* Returns `value` if the branch was taken, else `other` (both NULL: nothing to merge). */
static LLVMValueRef end_if(tn_emitter *e, branch br, LLVMValueRef value, LLVMValueRef other)
{
    LLVMBasicBlockRef from = LLVMGetInsertBlock(e->builder);
    LLVMBuildBr(e->builder, br.join);
    LLVMPositionBuilderAtEnd(e->builder, br.join);
    if (!value)
        return NULL;
    LLVMValueRef phi = LLVMBuildPhi(e->builder, LLVMTypeOf(value), "");
    LLVMAddIncoming(phi, (LLVMValueRef[]){value, other}, (LLVMBasicBlockRef[]){from, br.before}, 2);
    return phi;
}

/* ---- lanes under conditions on a GPU ------------------------------------------------------------------------------------------- */

/* A GPU's memory that other threads see: an instruction takes the condition. */
static bool is_guarded(const tn_emitter *e, const access *a)
{
    tn_space space = a->buffer->type.space;
    return e->machine->gpu && a->mask && (space == TN_SPACE_GLOBAL || space == TN_SPACE_SHARED) && tn_dtype_bits(a->dtype) >= 8;
}

/* The one condition of all lanes; NULL: they differ. */
static LLVMValueRef one_condition(tn_emitter *e, const access *a)
{
    const tn_lop *def = a->mask_value->def;
    if (a->lanes == 1)
        return a->mask;
    if (def && def->code == TN_L_splat)
        return tn_emit_value(e, def->operand[0]);
    return def && def->code == TN_L_const ? tn_emit_lane(e, a->mask, 0) : NULL;
}

/* The constant part of an offset goes into the instruction: accesses side by side then share their address. */
static int64_t take_constant(const tn_emitter *e, access *a)
{
    const tn_lop *def = a->offset_value->def;
    int64_t constant, most = INT64_C(1) << 20;
    if (!def || def->code != TN_L_fn || def->fn != TN_S_add || a->offset_value->type.lanes > 1 || !tn_l_is_const(def->operand[1], &constant) ||
        constant <= -most || constant >= most)
        return 0;
    a->offset = tn_emit_value(e, def->operand[0]);
    return constant;
}

static tn_guarded guarded(tn_emitter *e, access a, LLVMValueRef condition, unsigned align)
{
    int64_t constant = take_constant(e, &a);
    return (tn_guarded){address(e, &a), condition, constant * (tn_dtype_bits(a.dtype) / 8), align, a.buffer->type.space == TN_SPACE_SHARED, a.buffer->readonly};
}

/* Whether all lanes are on, if there are instructions for more than one of them at once; else NULL. */
static LLVMValueRef all_lanes(tn_emitter *e, const access *a, unsigned align)
{
    LLVMValueRef all = NULL;
    if (a->offset_value->type.lanes > 1 || align < 2 * alignment(a->dtype))
        return NULL;
    for (int i = 0; i < a->lanes; i++) {
        LLVMValueRef lane = tn_emit_lane(e, a->mask, i);
        all = all ? LLVMBuildAnd(e->builder, all, lane, "") : lane;
    }
    return all;
}

/* Lane i alone, its offset that of the first one or its own. `all`: that has been seen to where it holds; NULL: it hasn't. */
static tn_guarded guarded_lane(tn_emitter *e, const access *a, int i, LLVMValueRef all, unsigned align)
{
    access lane = *a;
    bool own = a->offset_value->type.lanes > 1;
    lane.offset = own ? tn_emit_lane(e, a->offset, i) : a->offset;
    LLVMValueRef on = tn_emit_lane(e, a->mask, i);
    tn_guarded g = guarded(e, lane, all ? LLVMBuildAnd(e->builder, on, LLVMBuildNot(e->builder, all, ""), "") : on, align);
    g.at += own ? 0 : i * (tn_dtype_bits(a->dtype) / 8);
    return g;
}

static LLVMValueRef guarded_load(tn_emitter *e, const access *a, LLVMValueRef other)
{
    LLVMValueRef condition = a->offset_value->type.lanes > 1 ? NULL : one_condition(e, a), result = LLVMGetPoison(LLVMTypeOf(other));
    if (condition) {
        tn_guarded g = guarded(e, *a, condition, load_alignment(e, a));
        return tn_emit_guarded_load(e, &g, other);
    }
    unsigned element = alignment(a->dtype), start = (unsigned)a->buffer->align, align = load_alignment(e, a);
    LLVMValueRef all = all_lanes(e, a, align);
    if (all) {
        tn_guarded g = guarded(e, *a, all, align);
        other = tn_emit_guarded_load(e, &g, other);
    }
    for (int i = 0; i < a->lanes; i++) {
        tn_guarded g = guarded_lane(e, a, i, all, start > 0 && start < element ? start : element);
        LLVMValueRef lane = tn_emit_guarded_load(e, &g, tn_emit_lane(e, other, i));
        result = a->lanes == 1 ? lane : LLVMBuildInsertElement(e->builder, result, lane, tn_emit_int(tn_emit_int_type(e, 32, 1), i), "");
    }
    return result;
}

static void guarded_store(tn_emitter *e, const access *a, LLVMValueRef value)
{
    LLVMValueRef condition = a->offset_value->type.lanes > 1 ? NULL : one_condition(e, a);
    if (condition) {
        tn_guarded g = guarded(e, *a, condition, vector_alignment(e, a, alignment(a->dtype)));
        tn_emit_guarded_store(e, &g, value);
        return;
    }
    unsigned align = vector_alignment(e, a, alignment(a->dtype));
    LLVMValueRef all = all_lanes(e, a, align);
    if (all) {
        tn_guarded g = guarded(e, *a, all, align);
        tn_emit_guarded_store(e, &g, value);
    }
    for (int i = 0; i < a->lanes; i++) {
        tn_guarded g = guarded_lane(e, a, i, all, alignment(a->dtype));
        tn_emit_guarded_store(e, &g, tn_emit_lane(e, value, i));
    }
}

/* ---- nibbles -------------------------------------------------------------------------------------------------------------------- */

static LLVMValueRef nibble_address(tn_emitter *e, LLVMValueRef base, LLVMValueRef offset)
{
    LLVMValueRef byte = LLVMBuildAShr(e->builder, offset, tn_emit_int(LLVMTypeOf(offset), 1), "");
    return LLVMBuildGEP2(e->builder, tn_emit_int_type(e, 8, 1), base, &byte, 1, "");
}

static LLVMValueRef nibble_shift(tn_emitter *e, LLVMValueRef offset)
{
    LLVMTypeRef type = LLVMTypeOf(offset), i8 = tn_emit_int_type(e, 8, 1);
    LLVMValueRef odd = LLVMBuildAnd(e->builder, offset, tn_emit_int(type, 1), "");
    return LLVMBuildTrunc(e->builder, LLVMBuildShl(e->builder, odd, tn_emit_int(type, 2), ""), i8, "");
}

static LLVMValueRef load_nibble(tn_emitter *e, const access *a, LLVMValueRef offset)
{
    LLVMBuilderRef b = e->builder;
    LLVMValueRef byte = LLVMBuildLoad2(b, tn_emit_int_type(e, 8, 1), nibble_address(e, a->base, offset), "");
    mark_load(e, a, byte);
    return LLVMBuildTrunc(b, LLVMBuildLShr(b, byte, nibble_shift(e, offset), ""), tn_emit_int_type(e, 4, 1), "");
}

static void store_nibble(tn_emitter *e, const access *a, LLVMValueRef offset, LLVMValueRef value)
{
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef i8 = tn_emit_int_type(e, 8, 1);
    LLVMValueRef at = nibble_address(e, a->base, offset), by = nibble_shift(e, offset);
    LLVMValueRef keep = LLVMBuildNot(b, LLVMBuildShl(b, tn_emit_int(i8, 15), by, ""), "");
    LLVMValueRef kept = LLVMBuildAnd(b, LLVMBuildLoad2(b, i8, at, ""), keep, "");
    LLVMValueRef placed = LLVMBuildShl(b, LLVMBuildZExt(b, value, i8, ""), by, "");
    LLVMBuildStore(b, LLVMBuildOr(b, kept, placed, ""), at);
}

static LLVMValueRef lane_offset(tn_emitter *e, const access *a, int lane)
{
    if (tn_emit_lanes(LLVMTypeOf(a->offset)) > 1)
        return tn_emit_lane(e, a->offset, lane);
    return LLVMBuildAdd(e->builder, a->offset, tn_emit_int(LLVMTypeOf(a->offset), lane), "");
}

static LLVMValueRef load_nibble_lane(tn_emitter *e, const access *a, int lane)
{
    LLVMValueRef offset = lane_offset(e, a, lane);
    if (!a->mask)
        return load_nibble(e, a, offset);
    LLVMValueRef other = tn_emit_lane(e, other_value(e, a), lane);
    branch br = begin_if(e, tn_emit_lane(e, full_mask(e, a), lane));
    return end_if(e, br, load_nibble(e, a, offset), other);
}

static void store_nibble_lane(tn_emitter *e, const access *a, int lane)
{
    LLVMValueRef offset = lane_offset(e, a, lane), value = tn_emit_lane(e, a->value, lane);
    if (!a->mask) {
        store_nibble(e, a, offset, value);
        return;
    }
    branch br = begin_if(e, tn_emit_lane(e, full_mask(e, a), lane));
    store_nibble(e, a, offset, value);
    end_if(e, br, NULL, NULL);
}

static bool whole_bytes(const access *a)
{
    return !a->mask && a->lanes % 2 == 0 && a->offset_value->type.lanes == 1 && tn_l_multiple(a->offset_value, NULL) > 1;
}

static LLVMValueRef load_nibbles(tn_emitter *e, const access *a)
{
    LLVMTypeRef type = tn_emit_type(e, a->dtype, a->lanes);
    if (whole_bytes(a)) { /* little-endian: lane 0 of a bit cast is the low nibble */
        LLVMTypeRef bytes = tn_emit_int_type(e, 8, a->lanes / 2);
        LLVMValueRef load = LLVMBuildLoad2(e->builder, bytes, nibble_address(e, a->base, a->offset), "");
        LLVMSetAlignment(load, 1);
        return LLVMBuildBitCast(e->builder, mark_load(e, a, load), type, "");
    }
    if (a->lanes == 1)
        return load_nibble_lane(e, a, 0);
    LLVMValueRef result = LLVMGetPoison(type);
    for (int i = 0; i < a->lanes; i++) {
        LLVMValueRef lane = load_nibble_lane(e, a, i);
        result = LLVMBuildInsertElement(e->builder, result, lane, tn_emit_int(tn_emit_int_type(e, 32, 1), i), "");
    }
    return result;
}

static void store_nibbles(tn_emitter *e, const access *a)
{
    if (whole_bytes(a)) {
        LLVMValueRef bytes = LLVMBuildBitCast(e->builder, a->value, tn_emit_int_type(e, 8, a->lanes / 2), "");
        LLVMSetAlignment(LLVMBuildStore(e->builder, bytes, nibble_address(e, a->base, a->offset)), 1);
        return;
    }
    for (int i = 0; i < a->lanes; i++)
        store_nibble_lane(e, a, i);
}

/* ---- whole bytes ------------------------------------------------------------------------------------------------------------------ */

/* Registers of a GPU, which SROA had better find lane by lane (tn_emit_fn). */
static bool is_lanes(const tn_emitter *e, const access *a)
{
    const tn_lop *alloc = a->buffer->def;
    return e->machine->gpu && a->lanes > 1 && tn_dtype_bits(a->dtype) >= 32 && !tn_is_complex(a->dtype) && alloc && alloc->code == TN_L_alloc &&
           alloc->result->type.space != TN_SPACE_SHARED && a->buffer->type.lanes == 1;
}

static LLVMValueRef lane_address(tn_emitter *e, const access *a, LLVMValueRef at, int lane)
{
    LLVMValueRef by = tn_emit_int(tn_emit_int_type(e, 64, 1), lane);
    return lane ? LLVMBuildInBoundsGEP2(e->builder, tn_emit_memory_type(e, a->dtype, 1), at, &by, 1, "") : at;
}

static LLVMValueRef load_lanes(tn_emitter *e, const access *a, LLVMValueRef at)
{
    LLVMValueRef result = LLVMGetPoison(tn_emit_memory_type(e, a->dtype, a->lanes));
    for (int i = 0; i < a->lanes; i++) {
        LLVMValueRef load = LLVMBuildLoad2(e->builder, tn_emit_memory_type(e, a->dtype, 1), lane_address(e, a, at, i), "");
        LLVMSetAlignment(load, alignment(a->dtype));
        result = tn_emit_with_lane(e, result, load, i);
    }
    return result;
}

static LLVMValueRef store_lanes(tn_emitter *e, const access *a, LLVMValueRef at)
{
    LLVMValueRef store = NULL;
    for (int i = 0; i < a->lanes; i++) {
        store = LLVMBuildStore(e->builder, tn_emit_lane(e, a->value, i), lane_address(e, a, at, i));
        LLVMSetAlignment(store, alignment(a->dtype));
    }
    return store;
}

static LLVMValueRef plain_load(tn_emitter *e, const access *a, LLVMValueRef at)
{
    if (is_lanes(e, a))
        return load_lanes(e, a, at);
    LLVMValueRef load = LLVMBuildLoad2(e->builder, tn_emit_memory_type(e, a->dtype, a->lanes), at, "");
    LLVMSetAlignment(load, load_alignment(e, a));
    return from_memory(e, a, mark_load(e, a, load));
}

/* What a load that is off reads: a branch for each would cut loops into pieces, for the CPU and for what LLVM has to do. */
static LLVMValueRef zeros(tn_emitter *e)
{
    if (!e->zeros) {
        LLVMTypeRef type = LLVMArrayType2(tn_emit_int_type(e, 8, 1), ZEROS);
        e->zeros = LLVMAddGlobal(e->module, type, "zeros");
        LLVMSetInitializer(e->zeros, LLVMConstNull(type));
        LLVMSetGlobalConstant(e->zeros, true);
        LLVMSetLinkage(e->zeros, LLVMPrivateLinkage);
        LLVMSetAlignment(e->zeros, ZEROS);
    }
    return e->zeros;
}

/* A thread's own memory, all lanes inside it: what is off is read too, or written back, so that the buffer still becomes registers. */
static bool is_blended(const tn_emitter *e, const access *a)
{
    const tn_lop *alloc = a->buffer->def;
    int64_t first;
    return e->machine->gpu && a->mask && alloc && alloc->code == TN_L_alloc && alloc->result->type.space != TN_SPACE_SHARED && a->buffer->type.lanes == 1 &&
           tn_l_is_const(a->offset_value, &first) && first >= 0 && first <= alloc->size - a->lanes;
}

static LLVMValueRef blended_load(tn_emitter *e, const access *a)
{
    access all = *a;
    all.mask = NULL;
    return LLVMBuildSelect(e->builder, full_mask(e, a), plain_load(e, a, address(e, &all)), other_value(e, a), "");
}

static LLVMValueRef emit_load(tn_emitter *e, const access *a)
{
    if (is_blended(e, a))
        return blended_load(e, a);
    if (is_guarded(e, a))
        return from_memory(e, a, guarded_load(e, a, to_memory(e, a->dtype, other_value(e, a))));
    LLVMValueRef at = address(e, a);
    if (!a->mask)
        return plain_load(e, a, at);
    LLVMValueRef mask = full_mask(e, a), other = other_value(e, a);
    if (a->lanes == 1 && e->machine->gpu) { /* a branch is a predicate there */
        branch br = begin_if(e, mask);
        return end_if(e, br, plain_load(e, a, at), other);
    }
    if (a->lanes == 1) {
        LLVMValueRef value = plain_load(e, a, LLVMBuildSelect(e->builder, mask, at, zeros(e), ""));
        return LLVMIsNull(other) ? value : LLVMBuildSelect(e->builder, mask, value, other, "");
    }
    LLVMTypeRef types[2] = {tn_emit_memory_type(e, a->dtype, a->lanes), LLVMTypeOf(at)};
    LLVMValueRef args[4] = {at, tn_emit_int(tn_emit_int_type(e, 32, 1), load_alignment(e, a)), mask, to_memory(e, a->dtype, other)};
    return from_memory(e, a, tn_emit_intrinsic(e, "llvm.masked.load", types, 2, args, 4));
}

static LLVMValueRef plain_store(tn_emitter *e, const access *a, LLVMValueRef at)
{
    if (is_lanes(e, a))
        return store_lanes(e, a, at);
    LLVMValueRef store = LLVMBuildStore(e->builder, to_memory(e, a->dtype, a->value), at);
    LLVMSetAlignment(store, vector_alignment(e, a, alignment(a->dtype)));
    return store;
}

static void blended_store(tn_emitter *e, const access *a)
{
    access all = *a;
    all.mask = NULL;
    LLVMValueRef at = address(e, &all);
    all.value = LLVMBuildSelect(e->builder, full_mask(e, a), a->value, plain_load(e, &all, at), "");
    plain_store(e, &all, at);
}

static void stream_store(tn_emitter *e, const access *a, LLVMValueRef at)
{
    LLVMMetadataRef one = LLVMValueAsMetadata(tn_emit_int(tn_emit_int_type(e, 32, 1), 1));
    LLVMValueRef store = plain_store(e, a, at);
    LLVMSetAlignment(store, (unsigned)a->lanes * alignment(a->dtype));
    LLVMSetMetadata(store, LLVMGetMDKindIDInContext(e->context, "nontemporal", 11), LLVMMetadataAsValue(e->context, LLVMMDNodeInContext2(e->context, &one, 1)));
    e->streams = true;
}

static void masked_store(tn_emitter *e, const access *a, LLVMValueRef at)
{
    LLVMValueRef value = to_memory(e, a->dtype, a->value);
    LLVMTypeRef types[2] = {LLVMTypeOf(value), LLVMTypeOf(at)};
    LLVMValueRef args[4] = {value, at, tn_emit_int(tn_emit_int_type(e, 32, 1), alignment(a->dtype)), full_mask(e, a)};
    tn_emit_intrinsic(e, "llvm.masked.store", types, 2, args, 4);
}

/* Only whole vectors go past the caches. */
static void masked_stream_store(tn_emitter *e, const access *a, LLVMValueRef at)
{
    LLVMTypeRef bits = LLVMIntTypeInContext(e->context, (unsigned)a->lanes);
    LLVMValueRef mask = LLVMBuildBitCast(e->builder, full_mask(e, a), bits, "");
    branch all = begin_if(e, LLVMBuildICmp(e->builder, LLVMIntEQ, mask, LLVMConstAllOnes(bits), ""));
    stream_store(e, a, at);
    LLVMBasicBlockRef some = all.join, done = tn_emit_block_after(e, "stored");
    LLVMBuildBr(e->builder, done);
    LLVMPositionBuilderAtEnd(e->builder, some);
    masked_store(e, a, at);
    LLVMBuildBr(e->builder, done);
    LLVMPositionBuilderAtEnd(e->builder, done);
}

/* LLVM stores vectors of bytes four by four on a GPU, whatever they are cast to. */
static bool is_byte_vector(const tn_emitter *e, const access *a)
{
    bool memory = a->buffer->type.space == TN_SPACE_GLOBAL || a->buffer->type.space == TN_SPACE_SHARED;
    return e->machine->gpu && memory && !a->mask && a->lanes > 4 && tn_dtype_bits(a->dtype) == 8 && a->offset_value->type.lanes == 1;
}

static void emit_store(tn_emitter *e, const access *a)
{
    if (is_blended(e, a)) {
        blended_store(e, a);
        return;
    }
    if (is_guarded(e, a)) {
        guarded_store(e, a, to_memory(e, a->dtype, a->value));
        return;
    }
    if (is_byte_vector(e, a)) {
        tn_guarded g = guarded(e, *a, NULL, vector_alignment(e, a, alignment(a->dtype)));
        tn_emit_guarded_store(e, &g, to_memory(e, a->dtype, a->value));
        return;
    }
    LLVMValueRef at = address(e, a);
    if (a->mask && a->lanes == 1) {
        branch br = begin_if(e, a->mask);
        plain_store(e, a, at);
        end_if(e, br, NULL, NULL);
    } else if (a->stream && a->lanes > 1) {
        a->mask ? masked_stream_store(e, a, at) : stream_store(e, a, at);
    } else {
        a->mask ? masked_store(e, a, at) : (void)plain_store(e, a, at);
    }
}

static LLVMValueRef emit_gather(tn_emitter *e, const access *a)
{
    if (is_guarded(e, a))
        return from_memory(e, a, guarded_load(e, a, to_memory(e, a->dtype, other_value(e, a))));
    LLVMValueRef at = address(e, a);
    LLVMTypeRef types[2] = {tn_emit_memory_type(e, a->dtype, a->lanes), LLVMTypeOf(at)};
    LLVMValueRef args[4] = {at, tn_emit_int(tn_emit_int_type(e, 32, 1), load_alignment(e, a)), full_mask(e, a),
                            to_memory(e, a->dtype, other_value(e, a))};
    return from_memory(e, a, tn_emit_intrinsic(e, "llvm.masked.gather", types, 2, args, 4));
}

static void emit_scatter(tn_emitter *e, const access *a)
{
    if (is_guarded(e, a)) {
        guarded_store(e, a, to_memory(e, a->dtype, a->value));
        return;
    }
    LLVMValueRef at = address(e, a), value = to_memory(e, a->dtype, a->value);
    LLVMTypeRef types[2] = {LLVMTypeOf(value), LLVMTypeOf(at)};
    LLVMValueRef args[4] = {value, at, tn_emit_int(tn_emit_int_type(e, 32, 1), alignment(a->dtype)), full_mask(e, a)};
    tn_emit_intrinsic(e, "llvm.masked.scatter", types, 2, args, 4);
}

/* ---- atomics ---------------------------------------------------------------------------------------------------------------------- */

/* Every atomic is sequentially consistent: kernels build locks and counters of them, and no CPU makes much of a weaker order here. */
static const LLVMAtomicOrdering order = LLVMAtomicOrderingSequentiallyConsistent;

/* The end of a scoped instruction's name: "add" of unsigned 32 bits is "add.u32". */
static const char *instruction_of(tn_emitter *e, const char *name, char kind, tn_dtype dtype)
{
    return tn_format(&e->session->arena, "%s.%c%d", name, kind, tn_dtype_bits(dtype));
}

/* Stores `wanted` where `seen` is, both as bits; what is there and whether it did. */
static LLVMValueRef compare_exchange(tn_emitter *e, const access *a, LLVMValueRef at, LLVMValueRef seen, LLVMValueRef wanted)
{
    if (a->scope != TN_SCOPE_GPU) {
        LLVMTypeRef bits = LLVMTypeOf(seen), parts[2] = {bits, tn_emit_int_type(e, 1, 1)};
        LLVMValueRef old = tn_emit_scoped_atomic(e, a->scope, instruction_of(e, "cas", 'b', a->dtype), bits, (LLVMValueRef[]){at, seen, wanted}, 3);
        LLVMValueRef none = LLVMGetUndef(LLVMStructTypeInContext(e->context, parts, 2, false));
        return LLVMBuildInsertValue(e->builder, LLVMBuildInsertValue(e->builder, none, old, 0, ""), LLVMBuildICmp(e->builder, LLVMIntEQ, old, seen, ""), 1, "");
    }
    LLVMValueRef pair = LLVMBuildAtomicCmpXchg(e->builder, at, seen, wanted, order, order, false);
    LLVMSetAlignment(pair, alignment(a->dtype));
    return pair;
}

/* Compare and swap until nobody came between: works for every function of two operands. */
static LLVMValueRef swap_loop(tn_emitter *e, const access *a, tn_scalar fn, LLVMValueRef at)
{
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef bits = tn_emit_int_type(e, tn_dtype_bits(a->dtype), 1), type = tn_emit_memory_type(e, a->dtype, 1);
    LLVMValueRef first = LLVMBuildLoad2(b, bits, at, "");
    LLVMSetAlignment(first, alignment(a->dtype));
    LLVMSetOrdering(first, LLVMAtomicOrderingMonotonic); /* a guess, which the swap puts right */
    LLVMBasicBlockRef before = LLVMGetInsertBlock(b), loop = tn_emit_block_after(e, "swap");
    LLVMBuildBr(b, loop);
    LLVMPositionBuilderAtEnd(b, loop);
    LLVMValueRef seen = LLVMBuildPhi(b, bits, "");
    LLVMValueRef old = from_memory(e, a, LLVMBuildBitCast(b, seen, type, "")), args[2] = {old, a->value};
    LLVMValueRef wanted = to_memory(e, a->dtype, tn_emit_fn(e, fn, a->dtype, args));
    LLVMValueRef pair = compare_exchange(e, a, at, seen, LLVMBuildBitCast(b, wanted, bits, ""));
    LLVMBasicBlockRef tail = LLVMGetInsertBlock(b), done = tn_emit_block_after(e, "swapped");
    LLVMAddIncoming(seen, (LLVMValueRef[]){first, LLVMBuildExtractValue(b, pair, 0, "")}, (LLVMBasicBlockRef[]){before, tail}, 2);
    LLVMBuildCondBr(b, LLVMBuildExtractValue(b, pair, 1, ""), done, loop);
    LLVMPositionBuilderAtEnd(b, done);
    return old;
}

static bool native_atomic(tn_scalar fn, bool is_unsigned, LLVMAtomicRMWBinOp *out)
{
    switch (fn) {
    case TN_S_add: return *out = LLVMAtomicRMWBinOpAdd, true;
    case TN_S_sub: return *out = LLVMAtomicRMWBinOpSub, true;
    case TN_S_and: return *out = LLVMAtomicRMWBinOpAnd, true;
    case TN_S_or: return *out = LLVMAtomicRMWBinOpOr, true;
    case TN_S_xor: return *out = LLVMAtomicRMWBinOpXor, true;
    case TN_S_max: return *out = is_unsigned ? LLVMAtomicRMWBinOpUMax : LLVMAtomicRMWBinOpMax, true;
    case TN_S_min: return *out = is_unsigned ? LLVMAtomicRMWBinOpUMin : LLVMAtomicRMWBinOpMin, true;
    default: return false;
    }
}

/* A value as the bits that memory holds, and back. */
static LLVMValueRef as_bits(tn_emitter *e, const access *a, LLVMValueRef value)
{
    return LLVMBuildBitCast(e->builder, to_memory(e, a->dtype, value), tn_emit_int_type(e, tn_dtype_bits(a->dtype), 1), "");
}

static LLVMValueRef from_bits(tn_emitter *e, const access *a, LLVMValueRef bits)
{
    return from_memory(e, a, LLVMBuildBitCast(e->builder, bits, tn_emit_memory_type(e, a->dtype, 1), ""));
}

/* Of 32 or 64 bits; NULL: there is none. */
static LLVMValueRef scoped_lane(tn_emitter *e, const access *a, tn_scalar fn, LLVMValueRef at)
{
    static const struct {
        tn_scalar fn;
        const char *name;
        char kind; /* 0: s or u */
    } rows[] = {{TN_S_add, "add", 'u'}, {TN_S_and, "and", 'b'}, {TN_S_or, "or", 'b'}, {TN_S_xor, "xor", 'b'}, {TN_S_max, "max", 0}, {TN_S_min, "min", 0}};
    LLVMValueRef args[2] = {at, a->value};
    if (tn_dtype_bits(a->dtype) < 32 || !tn_is_integer(a->dtype))
        return NULL;
    if (fn == TN_S_sub) {
        args[1] = LLVMBuildNeg(e->builder, a->value, "");
        fn = TN_S_add;
    }
    for (size_t i = 0; i < TN_COUNT(rows); i++)
        if (rows[i].fn == fn)
            return tn_emit_scoped_atomic(e, a->scope, instruction_of(e, rows[i].name, rows[i].kind ? rows[i].kind : tn_is_unsigned(a->dtype) ? 'u' : 's', a->dtype),
                                         LLVMTypeOf(a->value), args, 2);
    return NULL;
}

static LLVMValueRef exchange_lane(tn_emitter *e, const access *a, LLVMValueRef at)
{
    if (a->scope != TN_SCOPE_GPU && tn_dtype_bits(a->dtype) >= 32) {
        LLVMValueRef args[2] = {at, as_bits(e, a, a->value)};
        return from_bits(e, a, tn_emit_scoped_atomic(e, a->scope, instruction_of(e, "exch", 'b', a->dtype), LLVMTypeOf(args[1]), args, 2));
    }
    LLVMValueRef old = LLVMBuildAtomicRMW(e->builder, LLVMAtomicRMWBinOpXchg, at, as_bits(e, a, a->value), order, false);
    LLVMSetAlignment(old, alignment(a->dtype));
    return from_bits(e, a, old);
}

/* A GPU adds floats where the memory is, which many threads that add to one place need: a loop would take turns by thousands. In global memory it takes f32
 * denormals for zeros; that is the price. */
static bool adds_there(const tn_emitter *e, const access *a, tn_scalar fn)
{
    return e->machine->gpu && fn == TN_S_add && (a->dtype == TN_F32 || a->dtype == TN_F64);
}

static LLVMValueRef atomic_lane(tn_emitter *e, const access *a, tn_scalar fn, LLVMValueRef at)
{
    LLVMAtomicRMWBinOp native;
    if (fn == TN_SCALAR_NONE)
        return exchange_lane(e, a, at);
    if (a->scope != TN_SCOPE_GPU && adds_there(e, a, fn))
        return tn_emit_scoped_atomic(e, a->scope, instruction_of(e, "add", 'f', a->dtype), LLVMTypeOf(a->value), (LLVMValueRef[]){at, a->value}, 2);
    LLVMValueRef scoped = a->scope != TN_SCOPE_GPU ? scoped_lane(e, a, fn, at) : NULL;
    if (scoped)
        return scoped;
    if (adds_there(e, a, fn))
        native = LLVMAtomicRMWBinOpFAdd;
    else if (!tn_is_integer(a->dtype) || !native_atomic(fn, tn_is_unsigned(a->dtype), &native))
        return swap_loop(e, a, fn, at);
    LLVMValueRef old = LLVMBuildAtomicRMW(e->builder, native, at, a->value, order, false);
    LLVMSetAlignment(old, alignment(a->dtype));
    return old;
}

static bool has_atomics(const access *a)
{
    return tn_dtype_bits(a->dtype) >= (a->scope != TN_SCOPE_GPU ? 16 : 8) && !tn_is_complex(a->dtype);
}

/* As others see memory at this moment: of one piece, each time. */
static LLVMValueRef emit_atomic_load(tn_emitter *e, const access *a)
{
    LLVMTypeRef type = tn_emit_type(e, a->dtype, 1);
    if (tn_dtype_bits(a->dtype) < 8 || tn_is_complex(a->dtype))
        return tn_emit_refuse(e, type, "a volatile load of %s", tn_dtype_text(a->dtype));
    LLVMValueRef at = address(e, a);
    branch br = {NULL, NULL};
    if (a->mask)
        br = begin_if(e, a->mask);
    LLVMValueRef bits = LLVMBuildLoad2(e->builder, tn_emit_int_type(e, tn_dtype_bits(a->dtype), 1), at, "");
    LLVMSetAlignment(bits, alignment(a->dtype));
    LLVMSetVolatile(bits, true); /* PTX: seen by all of the system */
    if (!e->machine->gpu)
        LLVMSetOrdering(bits, LLVMAtomicOrderingAcquire);
    LLVMValueRef x = from_bits(e, a, bits);
    return a->mask ? end_if(e, br, x, LLVMConstNull(type)) : x;
}

static LLVMValueRef emit_cas(tn_emitter *e, const tn_lop *op, const access *a)
{
    LLVMTypeRef type = tn_emit_type(e, a->dtype, 1);
    LLVMValueRef mask = operand_or_null(e, op, 4), wanted = tn_emit_value(e, op->operand[3]), at = address(e, a);
    if (!has_atomics(a))
        return tn_emit_refuse(e, type, "cas of %s", tn_dtype_text(a->dtype));
    branch br = {NULL, NULL};
    if (mask)
        br = begin_if(e, mask);
    LLVMValueRef pair = compare_exchange(e, a, at, as_bits(e, a, a->value), as_bits(e, a, wanted));
    LLVMValueRef old = from_bits(e, a, LLVMBuildExtractValue(e->builder, pair, 0, ""));
    return mask ? end_if(e, br, old, LLVMConstNull(type)) : old;
}

static LLVMValueRef emit_atomic(tn_emitter *e, const access *a, tn_scalar fn)
{
    LLVMTypeRef type = tn_emit_type(e, a->dtype, 1);
    bool two = fn == TN_SCALAR_NONE || (tn_scalar_arity(fn) == 2 && tn_scalar_result(fn, a->dtype) == a->dtype);
    if (a->lanes > 1 || !has_atomics(a) || !two)
        return tn_emit_refuse(e, type, "atomic %s on %d lanes of %s", fn == TN_SCALAR_NONE ? "exchange" : tn_scalar_name(fn), a->lanes,
                              tn_dtype_text(a->dtype));
    LLVMValueRef at = address(e, a);
    if (!a->mask)
        return atomic_lane(e, a, fn, at);
    branch br = begin_if(e, a->mask);
    return end_if(e, br, atomic_lane(e, a, fn, at), LLVMConstNull(type));
}

static void emit_prefetch(tn_emitter *e, const access *a, int level)
{
    LLVMTypeRef i32 = tn_emit_int_type(e, 32, 1);
    LLVMValueRef at = address(e, a), args[4] = {at, tn_emit_int(i32, 0), tn_emit_int(i32, level == 1 ? 3 : 2), tn_emit_int(i32, 1)};
    tn_emit_intrinsic_same(e, "llvm.prefetch", args, 4); /* a read, of data */
}

void tn_emit_memory_op(tn_emitter *e, const tn_lop *op)
{
    if (op->code == TN_L_alloc) {
        e->values[op->result->id] = emit_alloc(e, op);
        return;
    }
    if (op->code == TN_L_prefetch) {
        access at = {.buffer = op->operand[0], .offset_value = op->operand[1], .dtype = op->operand[0]->type.dtype, .lanes = 1};
        at.base = tn_emit_value(e, at.buffer), at.offset = tn_emit_value(e, at.offset_value);
        if (tn_dtype_bits(at.dtype) >= 8 && !e->machine->gpu) /* a hint that a GPU does without */
            emit_prefetch(e, &at, (int)op->number.i);
        return;
    }
    access a = take_apart(e, op);
    bool nibbles = tn_dtype_bits(a.dtype) < 8;
    LLVMValueRef result = NULL;
    if ((op->code == TN_L_gather || op->code == TN_L_scatter) && a.buffer->type.lanes > 1) {
        tn_emit_refuse(e, NULL, "%s on a buffer of vectors", tn_lop_name(op->code));
        return;
    }
    switch (op->code) {
    case TN_L_load: result = nibbles ? load_nibbles(e, &a) : emit_load(e, &a); break;
    case TN_L_gather: result = nibbles ? load_nibbles(e, &a) : emit_gather(e, &a); break;
    case TN_L_store: nibbles ? store_nibbles(e, &a) : emit_store(e, &a); break;
    case TN_L_scatter: nibbles ? store_nibbles(e, &a) : emit_scatter(e, &a); break;
    case TN_L_atomic_load: result = emit_atomic_load(e, &a); break;
    case TN_L_cas: result = emit_cas(e, op, &a); break;
    default: result = emit_atomic(e, &a, op->fn); break;
    }
    if (result)
        e->values[op->result->id] = result;
}
