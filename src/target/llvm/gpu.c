/* What differs where the module is PTX: a kernel is an entry with a parameter a value, and programs and threads are numbers that the hardware has.
 *
 *     .entry kernel(buffers …, sizes …, begin, end, maps …)
 *
 * CTA number c of n runs the programs begin + c, begin + c + n, … below end, with as many threads as the kernel says (in clusters: cluster number c of n); instances of a role take turns at them. Buffers are plain pointers: LLVM finds
 * that those of an entry are global. A map is 128 bytes of its own, and stays where parameters are: instructions take its address. */
#include <stdlib.h>
#include <string.h>

#include "target/llvm/internal.h"

enum { SHARED_SPACE = 3 }; /* LLVM's number of the address space */
enum { PTX_KERNEL = 71 }; /* LLVM's number of the calling convention ptx_kernel */
enum { GLOBAL_SPACE = 1, MAP_BYTES = 128, MAP_ALIGN = 64 };

/* sm_90 and later: maps, clusters, kernels that begin early. */
static bool is_hopper(const tn_emitter *e) { return atoi(e->machine->name + strlen("sm_")) >= 90; }

static LLVMMetadataRef number_fact(tn_emitter *e, int value) { return LLVMValueAsMetadata(tn_emit_int(tn_emit_int_type(e, 32, 1), value)); }

/* `name` says something of the function in the module's list of such facts. */
static void annotate(tn_emitter *e, const char *name, LLVMMetadataRef value)
{
    LLVMMetadataRef fact[3] = {LLVMValueAsMetadata(e->function), LLVMMDStringInContext2(e->context, name, strlen(name)), value};
    LLVMAddNamedMetadataOperand(e->module, "nvvm.annotations", LLVMMetadataAsValue(e->context, LLVMMDNodeInContext2(e->context, fact, 3)));
}

/* ---- maps ---- */

static void add_nowhere(tn_emitter *e)
{
    if (LLVMGetNamedGlobal(e->module, TN_NOWHERE))
        return;
    LLVMTypeRef type = LLVMArrayType2(tn_emit_int_type(e, 8, 1), TN_NOWHERE_BYTES);
    LLVMValueRef global = LLVMAddGlobalInAddressSpace(e->module, type, TN_NOWHERE, GLOBAL_SPACE);
    LLVMSetInitializer(global, LLVMConstNull(type));
    LLVMSetAlignment(global, TN_NOWHERE_BYTES);
}

static void set_alignment(tn_emitter *e, LLVMAttributeIndex at, uint64_t bytes)
{
    unsigned kind = LLVMGetEnumAttributeKindForName("align", strlen("align"));
    LLVMAddAttributeAtIndex(e->function, at, LLVMCreateEnumAttribute(e->context, kind, bytes));
}

/* Parameters by value that nobody writes: else LLVM would copy each to the stack, whose address no instruction takes. */
static void bind_maps(tn_emitter *e)
{
    LLVMTypeRef type = LLVMArrayType2(tn_emit_int_type(e, 8, 1), MAP_BYTES);
    LLVMMetadataRef constant[TN_MOST_MAPS];
    unsigned byval = LLVMGetEnumAttributeKindForName("byval", strlen("byval"));
    size_t n = e->func->maps.len, first = e->func->params.len;
    for (size_t i = 0; i < n; i++) {
        const tn_lvalue *map = e->func->maps.at[i].value;
        LLVMAttributeIndex at = (LLVMAttributeIndex)(first + i + 1);
        e->values[map->id] = LLVMGetParam(e->function, (unsigned)(first + i));
        LLVMSetValueName2(e->values[map->id], map->name, strlen(map->name));
        LLVMAddAttributeAtIndex(e->function, at, LLVMCreateTypeAttribute(e->context, byval, type));
        set_alignment(e, at, MAP_ALIGN);
        constant[i] = number_fact(e, (int)(first + i + 1));
    }
    annotate(e, "grid_constant", LLVMMDNodeInContext2(e->context, constant, n));
    add_nowhere(e);
}

/* ---- the entry ---- */

/* Whether warpgroups hand registers over, which ptxas only heeds if it knows how many CTAs a processor runs. */
static bool shares_registers(const tn_lblock *block)
{
    for (const tn_lop *op = block->first; op; op = op->next) {
        if (op->code == TN_L_machine && !strncmp(op->name, "setmaxnreg", strlen("setmaxnreg")))
            return true;
        for (int i = 0; i < op->nregions; i++)
            if (shares_registers(op->region[i]))
                return true;
    }
    return false;
}

void tn_emit_gpu_function(tn_emitter *e)
{
    const tn_lfunc *func = e->func;
    size_t n = func->params.len, all = n + func->maps.len;
    LLVMTypeRef *types = TN_NEW_ARRAY(&e->session->arena, LLVMTypeRef, all + 1);
    for (size_t i = 0; i < all; i++)
        types[i] = i < (size_t)func->nbuffers || i >= n ? LLVMPointerTypeInContext(e->context, 0) : tn_emit_int_type(e, 64, 1);
    e->function = LLVMAddFunction(e->module, func->name, LLVMFunctionType(LLVMVoidTypeInContext(e->context), types, (unsigned)all, false));
    LLVMSetFunctionCallConv(e->function, PTX_KERNEL);
    tn_emit_text_attribute(e, e->function, "target-cpu", e->machine->cpu);
    tn_emit_text_attribute(e, e->function, "target-features", e->machine->features);
    tn_emit_attribute(e, e->function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, "nounwind");
    annotate(e, "reqntidx", number_fact(e, func->threads));
    if (func->resident || shares_registers(func->body))
        annotate(e, "minctasm", number_fact(e, tn_max(func->resident, 1)));
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
    if (func->maps.len)
        bind_maps(e);
    if (func->maps.len && !is_hopper(e))
        tn_emit_refuse(e, NULL, "tensor maps, which the kernel has of %%%s", func->maps.at[0].buffer->name);
    if (func->cluster && !is_hopper(e))
        tn_emit_refuse(e, NULL, "clusters");
}

static LLVMValueRef special_register(tn_emitter *e, const char *name)
{
    return LLVMBuildZExt(e->builder, tn_emit_intrinsic(e, name, NULL, 0, NULL, 0), tn_emit_int_type(e, 64, 1), "");
}

/* Kernels let the one behind them begin, and wait for the one before. So that one's CTAs come as soon as there is room for them, and wait, and neither a launch's latency
 * nor a CTA's start stands between two kernels, if the launch says so (run/replay.c); else both instructions do nothing. Into PTX and not into the module, because LLVM
 * may move loads from what a kernel only reads across any instruction, and what the kernel before writes is that too. */
tn_text tn_emit_gpu_waits(tn_emitter *e, const char *ptx)
{
    static const char entry[] = ".entry ", body[] = "\n{\n", lines[] = "\tgriddepcontrol.launch_dependents;\n\t" TN_GPU_WAIT ";\n";
    tn_text out = {.arena = &e->session->arena};
    const char *next = ptx;
    while (is_hopper(e) && (next = strstr(next, entry)) && (next = strstr(next, body))) {
        next += strlen(body);
        tn_text_add(&out, "%.*s%s", (int)(next - ptx), ptx, lines);
        ptx = next;
    }
    tn_text_add(&out, "%s", ptx);
    return out;
}

LLVMValueRef tn_emit_thread(tn_emitter *e) { return special_register(e, "llvm.nvvm.read.ptx.sreg.tid.x"); }

/* Masked, so that LLVM knows how large it may be. */
LLVMValueRef tn_emit_cta(tn_emitter *e)
{
    LLVMValueRef number = special_register(e, "llvm.nvvm.read.ptx.sreg.cluster.ctarank");
    return LLVMBuildAnd(e->builder, number, tn_emit_int(LLVMTypeOf(number), e->func->cluster - 1), "");
}

/* ---- what threads share ---- */

LLVMValueRef tn_emit_shared(tn_emitter *e, int64_t at)
{
    LLVMTypeRef i8 = tn_emit_int_type(e, 8, 1);
    if (!e->shared) {
        e->shared = LLVMAddGlobalInAddressSpace(e->module, LLVMArrayType2(i8, 0), "$shared", SHARED_SPACE);
        LLVMSetAlignment(e->shared, 1024);
    }
    LLVMValueRef offset = tn_emit_int(tn_emit_int_type(e, 32, 1), at);
    return LLVMConstInBoundsGEP2(i8, e->shared, &offset, 1);
}

void tn_emit_barrier(tn_emitter *e)
{
    LLVMTypeRef i32 = tn_emit_int_type(e, 32, 1);
    if (!e->role) {
        tn_emit_intrinsic(e, "llvm.nvvm.barrier0", NULL, 0, NULL, 0);
        return;
    }
    int second = (int)e->role->number.i;
    LLVMValueRef number = tn_emit_int(i32, e->role_block ? 1 + e->role->instances : 1), threads = tn_emit_int(i32, e->role_block ? e->func->threads - second : second / e->role->instances);
    if (e->instance)
        number = LLVMBuildAdd(e->builder, number, e->instance, "");
    tn_emit_intrinsic(e, "llvm.nvvm.barrier", NULL, 0, (LLVMValueRef[]){number, threads}, 2);
}

/* By way of a lane, so that the assembler sees that a warp has one. */
LLVMValueRef tn_emit_instance(tn_emitter *e)
{
    LLVMTypeRef i32 = tn_emit_int_type(e, 32, 1);
    LLVMValueRef thread = tn_emit_intrinsic(e, "llvm.nvvm.read.ptx.sreg.tid.x", NULL, 0, NULL, 0);
    LLVMValueRef mine = LLVMBuildUDiv(e->builder, thread, tn_emit_int(i32, e->role->number.i / e->role->instances), "");
    return tn_emit_intrinsic(e, "llvm.nvvm.shfl.sync.idx.i32", NULL, 0, (LLVMValueRef[]){LLVMConstAllOnes(i32), mine, tn_emit_int(i32, 0), tn_emit_int(i32, TN_WARP - 1)}, 4);
}

/* LLVM's membar would be a sequentially consistent one, which takes longer. */
void tn_emit_gpu_fence(tn_emitter *e, tn_lscope scope)
{
    static const char *const texts[] = {[TN_SCOPE_GPU] = "fence.acq_rel.gpu;", [TN_SCOPE_CTA] = "fence.acq_rel.cta;", [TN_SCOPE_SYS] = "fence.acq_rel.sys;"};
    LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->context), NULL, 0, false);
    LLVMValueRef code = LLVMGetInlineAsm(type, texts[scope], strlen(texts[scope]), "~{memory}", 9, true, false, LLVMInlineAsmDialectATT, false);
    LLVMBuildCall2(e->builder, type, code, NULL, 0, "");
}

/* A 32-bit word of another lane. */
static LLVMValueRef other_word(tn_emitter *e, const tn_lop *op, LLVMValueRef word)
{
    LLVMTypeRef i32 = tn_emit_int_type(e, 32, 1);
    bool by_xor = op->code == TN_L_lane_xor;
    LLVMValueRef lane = by_xor ? tn_emit_int(i32, op->number.i) : LLVMBuildTrunc(e->builder, tn_emit_value(e, op->operand[1]), i32, "");
    LLVMValueRef args[4] = {LLVMConstAllOnes(i32), word, lane, tn_emit_int(i32, TN_WARP - 1)};
    return tn_emit_intrinsic(e, by_xor ? "llvm.nvvm.shfl.sync.bfly.i32" : "llvm.nvvm.shfl.sync.idx.i32", NULL, 0, args, 4);
}

LLVMValueRef tn_emit_other_lane(tn_emitter *e, const tn_lop *op)
{
    LLVMBuilderRef b = e->builder;
    LLVMValueRef x = tn_emit_value(e, op->operand[0]);
    LLVMTypeRef type = LLVMTypeOf(x), i32 = tn_emit_int_type(e, 32, 1), i64 = tn_emit_int_type(e, 64, 1);
    int bits = op->operand[0]->type.dtype == TN_BOOL ? 1 : tn_dtype_bits(op->operand[0]->type.dtype);
    if (bits < 32)
        return LLVMBuildTrunc(b, other_word(e, op, LLVMBuildZExt(b, x, i32, "")), type, "");
    if (bits == 32)
        return LLVMBuildBitCast(b, other_word(e, op, LLVMBuildBitCast(b, x, i32, "")), type, "");
    LLVMValueRef half = tn_emit_int(i64, 32), both = LLVMBuildBitCast(b, x, i64, "");
    LLVMValueRef low = other_word(e, op, LLVMBuildTrunc(b, both, i32, "")), high = other_word(e, op, LLVMBuildTrunc(b, LLVMBuildLShr(b, both, half, ""), i32, ""));
    both = LLVMBuildOr(b, LLVMBuildZExt(b, low, i64, ""), LLVMBuildShl(b, LLVMBuildZExt(b, high, i64, ""), half, ""), "");
    return LLVMBuildBitCast(b, both, type, "");
}

/* ---- inline assembly ---- */

/* Registers of PTX by their letter in a constraint; 0: none. */
static int register_bits(char letter) { return letter == 'h' ? 16 : letter == 'r' || letter == 'f' ? 32 : letter == 'l' || letter == 'd' ? 64 : 0; }

static LLVMTypeRef register_type(tn_emitter *e, char letter)
{
    return letter == 'f'   ? LLVMFloatTypeInContext(e->context)
           : letter == 'd' ? LLVMDoubleTypeInContext(e->context)
                           : tn_emit_int_type(e, register_bits(letter), 1);
}

/* The bits of a value in a type of another width, zeros above. */
static LLVMValueRef through_bits(tn_emitter *e, LLVMValueRef x, int from, int to, LLVMTypeRef type)
{
    LLVMValueRef bits = LLVMBuildBitCast(e->builder, x, tn_emit_int_type(e, from, 1), "");
    return LLVMBuildBitCast(e->builder, LLVMBuildIntCast2(e->builder, bits, tn_emit_int_type(e, to, 1), false, ""), type, "");
}

static int bits_of(tn_dtype dtype) { return dtype == TN_BOOL ? 1 : tn_dtype_bits(dtype); }
static bool fits_register(tn_dtype dtype, char letter) { return !tn_is_complex(dtype) && bits_of(dtype) <= register_bits(letter); }

/* Constraints are "=f,f,r": a letter for the result, and one for each operand. */
LLVMValueRef tn_emit_asm(tn_emitter *e, const tn_lop *op)
{
    enum { MOST = 16 };
    const char *text = op->name, *end = strchr(text, '\n');
    tn_dtype dtype = op->result->type.dtype;
    LLVMTypeRef types[MOST], result = tn_emit_type(e, dtype, 1);
    LLVMValueRef args[MOST];
    bool ok = e->machine->gpu && end && op->noperands <= MOST && end - text == 2 + 2 * op->noperands && text[0] == '=' && fits_register(dtype, text[1]);
    for (int i = 0; ok && i < op->noperands; i++) {
        tn_dtype from = op->operand[i]->type.dtype;
        char letter = text[3 + 2 * i];
        ok = text[2 + 2 * i] == ',' && fits_register(from, letter);
        if (!ok)
            break;
        types[i] = register_type(e, letter);
        args[i] = through_bits(e, tn_emit_value(e, op->operand[i]), bits_of(from), register_bits(letter), types[i]);
    }
    if (!ok)
        return tn_emit_refuse(e, result, "inline assembly with constraints other than =x,x…, x one of h, r, l, f, d and as wide as the value");
    LLVMTypeRef out = register_type(e, text[1]), type = LLVMFunctionType(out, types, (unsigned)op->noperands, false);
    LLVMValueRef code = LLVMGetInlineAsm(type, end + 1, strlen(end + 1), text, (size_t)(end - text), true, false, LLVMInlineAsmDialectATT, false);
    return through_bits(e, LLVMBuildCall2(e->builder, type, code, args, (unsigned)op->noperands, ""), register_bits(text[1]), bits_of(dtype), result);
}

/* ---- programs ---- */

LLVMValueRef tn_emit_gpu_grid(tn_emitter *e, const tn_lop *op, LLVMValueRef *lo, LLVMValueRef *step)
{
    LLVMBuilderRef b = e->builder;
    LLVMValueRef number = special_register(e, "llvm.nvvm.read.ptx.sreg.ctaid.x"), count = special_register(e, "llvm.nvvm.read.ptx.sreg.nctaid.x");
    if (e->func->cluster) { /* its CTAs have numbers that follow each other */
        LLVMValueRef ctas = tn_emit_int(LLVMTypeOf(count), e->func->cluster);
        number = LLVMBuildUDiv(b, number, ctas, "");
        count = LLVMBuildUDiv(b, count, ctas, "");
    }
    if (e->instance) {
        LLVMValueRef instance = LLVMBuildZExt(b, e->instance, LLVMTypeOf(count), "");
        number = LLVMBuildAdd(b, number, LLVMBuildMul(b, instance, count, ""), "");
        count = LLVMBuildMul(b, count, tn_emit_int(LLVMTypeOf(count), e->role->instances), "");
    }
    LLVMValueRef one = *step, mine = LLVMBuildMul(b, number, one, "");
    *lo = LLVMBuildAdd(b, *lo, mine, "");
    *step = LLVMBuildMul(b, one, count, "");
    if (!op->turned)
        return NULL;
    /* From c of a round to n - 1 - c of the next one, and so on: steps of 2 (n - c) - 1 and 2 c + 1 in turns. What a round that is not full lacks is behind the end. */
    LLVMTypeRef i32 = tn_emit_int_type(e, 32, 1); /* the role that copies has few registers */
    LLVMValueRef two = tn_emit_int(i32, 2), both = LLVMBuildMul(b, LLVMBuildTrunc(b, *step, i32, ""), two, ""), twice = LLVMBuildMul(b, LLVMBuildTrunc(b, mine, i32, ""), two, "");
    *step = LLVMBuildSub(b, LLVMBuildSub(b, both, twice, ""), LLVMBuildTrunc(b, one, i32, ""), "");
    return both;
}
