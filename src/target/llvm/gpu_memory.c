/* Accesses of a GPU under a condition: one instruction that a predicate guards, where LLVM has only branches.
 *
 *     @p ld.global.nc.v4.b32 {r0, r1, r2, r3}, [a + 16]     r0 … r3 hold what is taken instead if p is off
 *
 * A value is cut into pieces of at most 16 bytes, each as wide as the alignment allows, and each made of registers of 32, 16 or (in one of 16) 8 bits. */
#include "target/llvm/internal.h"

enum { MOST_BYTES = 16 /* of one instruction */, MOST_REGISTERS = 4 };

/* How a value lies in memory: `registers` of `unit` bytes an instruction, `pieces` instructions. */
typedef struct cut {
    int unit, registers, pieces;
} cut;

static cut cut_bytes(int64_t bytes, int64_t align)
{
    int64_t piece = tn_min(tn_min(bytes & -bytes, align), MOST_BYTES);
    int unit = (int)tn_min(piece, 4);
    return (cut){unit, (int)piece / unit, (int)(bytes / piece)};
}

static int64_t bytes_of(tn_emitter *e, LLVMTypeRef type)
{
    return (int64_t)(LLVMSizeOfTypeInBits(LLVMGetModuleDataLayout(e->module), type) / 8);
}

/* The type of a value seen as its units, and of one register. A unit of 8 bits is in a register of 16. */
static LLVMTypeRef units_type(tn_emitter *e, const cut *c) { return LLVMVectorType(tn_emit_int_type(e, 8 * c->unit, 1), (unsigned)(c->registers * c->pieces)); }
static LLVMTypeRef register_type(tn_emitter *e, const cut *c) { return tn_emit_int_type(e, tn_max(8 * c->unit, 16), 1); }

static LLVMValueRef get_unit(tn_emitter *e, const cut *c, LLVMValueRef units, int i)
{
    LLVMValueRef unit = LLVMBuildExtractElement(e->builder, units, tn_emit_int(tn_emit_int_type(e, 32, 1), i), "");
    return c->unit == 1 ? LLVMBuildZExt(e->builder, unit, register_type(e, c), "") : unit;
}

static LLVMValueRef put_unit(tn_emitter *e, const cut *c, LLVMValueRef units, int i, LLVMValueRef unit)
{
    if (c->unit == 1)
        unit = LLVMBuildTrunc(e->builder, unit, tn_emit_int_type(e, 8, 1), "");
    return LLVMBuildInsertElement(e->builder, units, unit, tn_emit_int(tn_emit_int_type(e, 32, 1), i), "");
}

static LLVMValueRef call_text(tn_emitter *e, const tn_text *text, const tn_text *constraints, LLVMTypeRef result, LLVMValueRef *args, unsigned n, bool effect)
{
    LLVMTypeRef types[2 + MOST_REGISTERS];
    for (unsigned i = 0; i < n; i++)
        types[i] = LLVMTypeOf(args[i]);
    LLVMTypeRef type = LLVMFunctionType(result, types, n, false);
    LLVMValueRef code = LLVMGetInlineAsm(type, text->at, text->len, constraints->at, constraints->len, effect, false, LLVMInlineAsmDialectATT, false);
    return LLVMBuildCall2(e->builder, type, code, args, n, "");
}

/* "{$0, $1}": registers of an instruction from number `first` on. */
static void add_registers(tn_text *text, const cut *c, int first)
{
    for (int i = 0; i < c->registers; i++)
        tn_text_add(text, "%s$%d", i ? ", " : c->registers > 1 ? "{" : "", first + i);
    tn_text_add(text, c->registers > 1 ? "}" : "");
}

static const char *space_of(const tn_guarded *g) { return g->shared ? "shared" : "global"; }

static void add_width(tn_text *text, const cut *c)
{
    static const char *const vectors[] = {"", "", ".v2", "", ".v4"};
    tn_text_add(text, "%s.b%d", vectors[c->registers], 8 * c->unit);
}

static LLVMValueRef address_number(tn_emitter *e, const tn_guarded *g)
{
    return LLVMBuildPtrToInt(e->builder, g->address, tn_emit_int_type(e, g->shared ? 32 : 64, 1), "");
}

static char address_letter(const tn_guarded *g) { return g->shared ? 'r' : 'l'; }
static char register_letter(const cut *c) { return c->unit == 4 ? 'r' : 'h'; }

/* One instruction; its registers start as those of `other` from unit `first` on. */
static LLVMValueRef load_piece(tn_emitter *e, const tn_guarded *g, const cut *c, LLVMValueRef address, LLVMValueRef other, LLVMValueRef units, int first)
{
    tn_text text = {.arena = &e->session->arena}, constraints = {.arena = &e->session->arena};
    int n = c->registers;
    LLVMValueRef args[2 + MOST_REGISTERS] = {address, g->condition};
    LLVMTypeRef one = register_type(e, c), types[MOST_REGISTERS] = {one, one, one, one};
    tn_text_add(&text, "@$%d ld.%s%s", n + 1, space_of(g), g->readonly && !g->shared ? ".nc" : "");
    add_width(&text, c);
    tn_text_add(&text, " ");
    add_registers(&text, c, 0);
    tn_text_add(&text, ", [$%d+%lld];", n, (long long)(g->at + (int64_t)first * c->unit));
    for (int i = 0; i < n; i++)
        tn_text_add(&constraints, "=%c,", register_letter(c));
    tn_text_add(&constraints, "%c,b", address_letter(g));
    for (int i = 0; i < n; i++) {
        tn_text_add(&constraints, ",%d", i);
        args[2 + i] = get_unit(e, c, other, first + i);
    }
    if (!g->readonly)
        tn_text_add(&constraints, ",~{memory}");
    LLVMTypeRef result = n == 1 ? one : LLVMStructTypeInContext(e->context, types, (unsigned)n, false);
    LLVMValueRef loaded = call_text(e, &text, &constraints, result, args, (unsigned)n + 2, !g->readonly);
    for (int i = 0; i < n; i++)
        units = put_unit(e, c, units, first + i, n == 1 ? loaded : LLVMBuildExtractValue(e->builder, loaded, (unsigned)i, ""));
    return units;
}

LLVMValueRef tn_emit_guarded_load(tn_emitter *e, const tn_guarded *g, LLVMValueRef other)
{
    LLVMTypeRef type = LLVMTypeOf(other);
    cut c = cut_bytes(bytes_of(e, type), g->align);
    LLVMValueRef before = LLVMBuildBitCast(e->builder, other, units_type(e, &c), ""), units = LLVMGetPoison(units_type(e, &c)), address = address_number(e, g);
    for (int i = 0; i < c.pieces; i++)
        units = load_piece(e, g, &c, address, before, units, i * c.registers);
    return LLVMBuildBitCast(e->builder, units, type, "");
}

void tn_emit_guarded_store(tn_emitter *e, const tn_guarded *g, LLVMValueRef value)
{
    cut c = cut_bytes(bytes_of(e, LLVMTypeOf(value)), g->align);
    LLVMValueRef units = LLVMBuildBitCast(e->builder, value, units_type(e, &c), ""), args[2 + MOST_REGISTERS] = {address_number(e, g), g->condition};
    int before = g->condition ? 2 : 1;
    for (int piece = 0; piece < c.pieces; piece++) {
        tn_text text = {.arena = &e->session->arena}, constraints = {.arena = &e->session->arena};
        int first = piece * c.registers;
        tn_text_add(&text, "%sst.%s", g->condition ? "@$1 " : "", space_of(g));
        add_width(&text, &c);
        tn_text_add(&text, " [$0+%lld], ", (long long)(g->at + (int64_t)first * c.unit));
        add_registers(&text, &c, before);
        tn_text_add(&text, ";");
        tn_text_add(&constraints, g->condition ? "%c,b" : "%c", address_letter(g));
        for (int i = 0; i < c.registers; i++) {
            tn_text_add(&constraints, ",%c", register_letter(&c));
            args[before + i] = get_unit(e, &c, units, first + i);
        }
        tn_text_add(&constraints, ",~{memory}");
        call_text(e, &text, &constraints, LLVMVoidTypeInContext(e->context), args, (unsigned)(before + c.registers), true);
    }
}

LLVMValueRef tn_emit_scoped_atomic(tn_emitter *e, tn_lscope scope, const char *what, LLVMTypeRef type, LLVMValueRef *args, unsigned nargs)
{
    bool real = LLVMGetTypeKind(type) == LLVMFloatTypeKind || LLVMGetTypeKind(type) == LLVMDoubleTypeKind;
    uint64_t bits = real ? LLVMGetTypeKind(type) == LLVMFloatTypeKind ? 32 : 64 : LLVMGetIntTypeWidth(type);
    const char *letter = real ? bits == 32 ? "f" : "d" : bits == 16 ? "h" : bits == 32 ? "r" : "l";
    tn_text text = {.arena = &e->session->arena}, constraints = {.arena = &e->session->arena};
    tn_text_add(&text, "atom.relaxed.%s.global.%s $0, [$1]", scope == TN_SCOPE_SYS ? "sys" : "cta", what);
    tn_text_add(&constraints, "=%s,l", letter);
    for (unsigned i = 1; i < nargs; i++) {
        tn_text_add(&text, ", $%u", i + 1);
        tn_text_add(&constraints, ",%s", letter);
    }
    tn_text_add(&text, ";");
    tn_text_add(&constraints, ",~{memory}");
    args[0] = LLVMBuildPtrToInt(e->builder, args[0], tn_emit_int_type(e, 64, 1), "");
    return call_text(e, &text, &constraints, type, args, nargs, true);
}
