/* The operation `machine`: an instruction of gpu/instructions.def as inline PTX. Its register parts are words (f32, or 32 bits of anything), read before and
 * written after it, so that buffers whose offsets are constants become values. */
#include <stdlib.h>
#include <string.h>

#include "target/llvm/internal.h"

typedef struct ptx {
    const char *name, *text;
    int least;
} ptx;

static const ptx rows[] = {
#define PTX(name, least, text) {#name, text, least},
#include "target/gpu/instructions.def"
#undef PTX
};

enum { MOST_WORDS = 320, WORD = 4, PIECE = 16 /* bytes that descriptors count in */ };

/* One instruction's operands as LLVM counts them: what is written, then what is read. */
typedef struct assembly {
    int first[TN_L_PARTS]; /* number of a part's first operand in the text */
    int words[TN_L_PARTS];
    LLVMTypeRef out[MOST_WORDS], in[MOST_WORDS];
    LLVMValueRef arg[MOST_WORDS];
    int nout, nin;
    tn_text constraints;
} assembly;

static void add_constraint(assembly *a, const char *text) { tn_text_add(&a->constraints, a->constraints.len ? ",%s" : "%s", text); }

/* Accumulators; factors of f32 are tf32, whose registers are of bits. */
static bool is_f32(const tn_lpart *part) { return part->dtype == TN_F32 && part->how & TN_PART_W; }

static LLVMValueRef word_address(tn_emitter *e, const tn_lop *op, int operand, int word)
{
    LLVMValueRef bytes = tn_emit_value(e, op->operand[operand + 1]);
    LLVMTypeRef type = LLVMTypeOf(bytes);
    bytes = LLVMBuildMul(e->builder, bytes, tn_emit_int(type, tn_dtype_bits(op->operand[operand]->type.dtype) / 8), "");
    bytes = LLVMBuildAdd(e->builder, bytes, tn_emit_int(type, (int64_t)word * WORD), "");
    return LLVMBuildInBoundsGEP2(e->builder, tn_emit_int_type(e, 8, 1), tn_emit_value(e, op->operand[operand]), &bytes, 1, "");
}

static void add_in(assembly *a, LLVMValueRef value, const char *constraint)
{
    a->in[a->nin] = LLVMTypeOf(value);
    a->arg[a->nin++] = value;
    add_constraint(a, constraint);
}

static LLVMTypeRef word_type(tn_emitter *e, const tn_lpart *part) { return is_f32(part) ? tn_emit_float_type(e, 1) : tn_emit_int_type(e, 32, 1); }

static void add_outputs(tn_emitter *e, const tn_linstruction *row, assembly *a)
{
    for (int p = 0; p < tn_l_instruction_parts(row); p++) {
        const tn_lpart *part = &row->part[p];
        a->words[p] = part->kind == TN_PART_REG ? tn_l_part_bytes(part) / WORD : 1;
        if (part->kind != TN_PART_REG || !(part->how & TN_PART_W))
            continue;
        a->first[p] = a->nout;
        for (int i = 0; i < a->words[p]; i++) {
            a->out[a->nout++] = word_type(e, part);
            add_constraint(a, is_f32(part) ? "=f" : "=r");
        }
    }
}

static void add_registers(tn_emitter *e, const tn_lop *op, const tn_linstruction *row, assembly *a, int p, bool tied)
{
    const tn_lpart *part = &row->part[p];
    for (int i = 0; i < a->words[p]; i++) {
        char constraint[16];
        snprintf(constraint, sizeof constraint, "%d", a->first[p] + i);
        LLVMValueRef load = LLVMBuildLoad2(e->builder, word_type(e, part), word_address(e, op, tn_l_part_operand(row, p), i), "");
        LLVMSetAlignment(load, WORD);
        add_in(a, load, tied ? constraint : is_f32(part) ? "f" : "r");
    }
}

static void add_memory(tn_emitter *e, const tn_lop *op, assembly *a, int operand, bool shared)
{
    const tn_lvalue *buffer = op->operand[operand];
    LLVMTypeRef i32 = tn_emit_int_type(e, 32, 1), i64 = tn_emit_int_type(e, 64, 1);
    LLVMValueRef base = tn_emit_value(e, buffer), offset = tn_emit_value(e, op->operand[operand + 1]);
    int64_t bytes = tn_dtype_bits(buffer->type.dtype) / 8;
    if (shared) { /* addresses there have 32 bits */
        offset = LLVMBuildMul(e->builder, LLVMBuildTrunc(e->builder, offset, i32, ""), tn_emit_int(i32, bytes), "");
        add_in(a, LLVMBuildAdd(e->builder, LLVMBuildPtrToInt(e->builder, base, i32, ""), offset, ""), "r");
        return;
    }
    offset = LLVMBuildMul(e->builder, offset, tn_emit_int(i64, bytes), "");
    add_in(a, LLVMBuildAdd(e->builder, LLVMBuildPtrToInt(e->builder, base, i64, ""), offset, ""), "l");
}

static bool is_divisible(const tn_lvalue *v, int64_t by) { return tn_l_multiple(v, NULL) % by == 0; }

/* An index that `by`, a power of two, divides, divided by it, term by term: what is constant stays apart, so that several that differ in it share the rest. */
static LLVMValueRef divided(tn_emitter *e, const tn_lvalue *v, int64_t by)
{
    LLVMValueRef whole = tn_emit_value(e, v);
    LLVMTypeRef type = LLVMTypeOf(whole);
    const tn_lop *op = v->def;
    int64_t constant;
    if (tn_l_is_const(v, &constant))
        return tn_emit_int(type, constant / by);
    if (op && op->code == TN_L_fn && op->fn == TN_S_add && is_divisible(op->operand[0], by) && is_divisible(op->operand[1], by))
        return LLVMBuildAdd(e->builder, divided(e, op->operand[0], by), divided(e, op->operand[1], by), "");
    if (op && op->code == TN_L_fn && op->fn == TN_S_mul && tn_l_is_const(op->operand[1], &constant) && constant % by == 0)
        return LLVMBuildMul(e->builder, tn_emit_value(e, op->operand[0]), tn_emit_int(type, constant / by), "");
    return LLVMBuildUDiv(e->builder, whole, tn_emit_int(type, by), "");
}

/* wgmma's description of a matrix in shared memory: rows of 128 bytes, permuted by 128 bytes' worth (bit 62), 8 of them 1024 bytes; boxes `apart`. Its low bits are the
 * address in pieces of 16 bytes: that of the buffer, which is the same in every turn, and what is added to it, which never carries. (By address instead, shifted and
 * masked for each instruction: 20 uniform instructions between two products, longer than one of 128 columns takes.) */
static void add_tile(tn_emitter *e, const tn_lop *op, const tn_linstruction *row, assembly *a, int p)
{
    LLVMTypeRef i32 = tn_emit_int_type(e, 32, 1), i64 = tn_emit_int_type(e, 64, 1);
    int operand = tn_l_part_operand(row, p);
    int64_t apart = 0, bytes = tn_dtype_bits(op->operand[operand]->type.dtype) / 8;
    int constants = 0; /* behind the parts: how far boxes are apart, a matrix after the other */
    while (row->part[constants].kind != TN_PART_CONSTANT)
        constants++;
    for (int i = 0; i < p; i++)
        constants += row->part[i].kind == TN_PART_TILE;
    tn_l_is_const(op->operand[tn_l_part_operand(row, constants)], &apart);
    LLVMValueRef at = LLVMBuildPtrToInt(e->builder, tn_emit_value(e, op->operand[operand]), i32, "");
    at = LLVMBuildLShr(e->builder, LLVMBuildAnd(e->builder, at, tn_emit_int(i32, 0x3ffff), ""), tn_emit_int(i32, 4), "");
    int64_t fixed = INT64_C(1) << 62 | (INT64_C(1024) >> 4) << 32 | (tn_max(apart, 16) >> 4 & 0x3fff) << 16;
    at = LLVMBuildOr(e->builder, LLVMBuildZExt(e->builder, at, i64, ""), tn_emit_int(i64, fixed), "");
    add_in(a, LLVMBuildAdd(e->builder, at, divided(e, op->operand[operand + 1], PIECE / bytes), ""), "l");
}

static void add_inputs(tn_emitter *e, const tn_lop *op, const tn_linstruction *row, assembly *a)
{
    for (int pass = 0; pass < 2; pass++) /* what is tied to outputs comes last: the text does not name it */
        for (int p = 0; p < tn_l_instruction_parts(row); p++) {
            const tn_lpart *part = &row->part[p];
            bool tied = part->kind == TN_PART_REG && part->how == (TN_PART_R | TN_PART_W);
            if (tied != (pass == 1) || !(part->kind != TN_PART_REG || part->how & TN_PART_R))
                continue;
            int operand = tn_l_part_operand(row, p);
            if (!tied)
                a->first[p] = a->nout + a->nin;
            if (part->kind == TN_PART_REG)
                add_registers(e, op, row, a, p, tied);
            else if (part->kind == TN_PART_TILE)
                add_tile(e, op, row, a, p);
            else if (part->kind == TN_PART_MAP)
                add_in(a, tn_emit_value(e, op->operand[operand]), "l");
            else if (part->kind == TN_PART_SHARED || part->kind == TN_PART_GLOBAL)
                add_memory(e, op, a, operand, part->kind == TN_PART_SHARED);
            else
                add_in(a, LLVMBuildTrunc(e->builder, tn_emit_value(e, op->operand[operand]), tn_emit_int_type(e, 32, 1), ""),
                       part->kind == TN_PART_CONSTANT ? "n" : "r");
        }
}

static const char *text_of(tn_emitter *e, const ptx *row, const tn_linstruction *instruction, const assembly *a)
{
    tn_text text = {.arena = &e->session->arena};
    for (const char *c = row->text; *c; c++) {
        if (*c != '%') {
            tn_text_put(&text, c, 1);
            continue;
        }
        int p = *++c - '0';
        bool several = instruction->part[p].kind == TN_PART_REG && a->words[p] > 1;
        tn_text_add(&text, several ? "{" : "");
        for (int i = 0; i < a->words[p]; i++)
            tn_text_add(&text, i ? ", $%d" : "$%d", a->first[p] + i);
        tn_text_add(&text, several ? "}" : "");
    }
    return text.at ? text.at : ""; /* of none: only what depends on it */
}

static LLVMTypeRef result_type(tn_emitter *e, assembly *a)
{
    return a->nout == 0 ? LLVMVoidTypeInContext(e->context) : a->nout == 1 ? a->out[0] : LLVMStructTypeInContext(e->context, a->out, (unsigned)a->nout, false);
}

static void store_outputs(tn_emitter *e, const tn_lop *op, const tn_linstruction *row, const assembly *a, LLVMValueRef call)
{
    for (int p = 0; p < tn_l_instruction_parts(row); p++) {
        const tn_lpart *part = &row->part[p];
        for (int i = 0; part->kind == TN_PART_REG && part->how & TN_PART_W && i < a->words[p]; i++) {
            LLVMValueRef word = a->nout == 1 ? call : LLVMBuildExtractValue(e->builder, call, (unsigned)(a->first[p] + i), "");
            LLVMSetAlignment(LLVMBuildStore(e->builder, word, word_address(e, op, tn_l_part_operand(row, p), i)), WORD);
        }
    }
}

void tn_emit_gpu_machine(tn_emitter *e, const tn_lop *op)
{
    const tn_linstruction *instruction = tn_l_instruction(op->name);
    const ptx *row = NULL;
    for (size_t i = 0; i < TN_COUNT(rows); i++)
        if (!strcmp(rows[i].name, op->name))
            row = &rows[i];
    if (!row || !e->machine->gpu || atoi(e->machine->name + strlen("sm_")) < row->least) {
        tn_emit_refuse(e, NULL, "the instruction '%s'", op->name);
        return;
    }
    assembly *a = TN_NEW(&e->session->arena, assembly);
    a->constraints.arena = &e->session->arena;
    add_outputs(e, instruction, a);
    add_inputs(e, op, instruction, a);
    add_constraint(a, "~{memory}");
    const char *text = text_of(e, row, instruction, a);
    LLVMTypeRef type = LLVMFunctionType(result_type(e, a), a->in, (unsigned)a->nin, false);
    LLVMValueRef code = LLVMGetInlineAsm(type, text, strlen(text), a->constraints.at, a->constraints.len, true, false, LLVMInlineAsmDialectATT, false);
    LLVMValueRef call = LLVMBuildCall2(e->builder, type, code, a->arg, (unsigned)a->nin, "");
    static const char *const attributes[] = {"convergent", "nounwind"};
    for (size_t i = 0; i < TN_COUNT(attributes); i++) {
        unsigned kind = LLVMGetEnumAttributeKindForName(attributes[i], strlen(attributes[i]));
        LLVMAddCallSiteAttribute(call, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(e->context, kind, 0));
    }
    store_outputs(e, op, instruction, a, call);
}
