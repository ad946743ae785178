/* Where local buffers live. Small ones of constant size are on the stack (the emitter's entry block), so that LLVM may keep them in
 * registers; the rest lie in the scratch memory that the caller passes, one after another in program order, each at a multiple of 64. A
 * buffer lives to the end of its block, so blocks side by side use the same bytes: the peak over all of them is what a kernel needs. The
 * emitter (memory.c) computes the same offsets with the same rule. */
#include <string.h>

#include "target/llvm/internal.h"

enum {
    REG_LIMIT = 32 << 10,  /* bytes of a `reg` buffer: more than any register file, so that oddities still run */
    LOCAL_LIMIT = 2 << 10, /* bytes of a `local` buffer: what may become registers; the stack of a worker stays small */
};

bool tn_buffer_bytes(tn_ltype type, int64_t n, int64_t *bytes)
{
    size_t size;
    int64_t elements;
    if (!tn_mul(n, type.lanes, &elements) || !tn_dtype_bytes(type.dtype, elements, &size) || size > INT64_MAX)
        return false;
    *bytes = (int64_t)size;
    return true;
}

size_t tn_size_count(const tn_lfunc *func)
{
    size_t n = func->params.len - (size_t)func->nbuffers;
    tn_lvalue *const *last = func->params.at + func->params.len;
    bool has_range = n >= 2 && last[-2]->name && !strcmp(last[-2]->name, "begin") && last[-1]->name && !strcmp(last[-1]->name, "end");
    return has_range ? n - 2 : n;
}

bool tn_alloc_on_stack(const tn_lop *alloc)
{
    int64_t bytes;
    tn_ltype type = alloc->result->type;
    return alloc->size >= 0 && tn_buffer_bytes(type, alloc->size, &bytes) &&
           bytes <= (type.space == TN_SPACE_REG ? REG_LIMIT : LOCAL_LIMIT);
}

static bool has_traps(const tn_lblock *block)
{
    for (const tn_lop *op = block->first; op; op = op->next) {
        if (op->code == TN_L_trap)
            return true;
        for (int i = 0; i < op->nregions; i++)
            if (has_traps(op->region[i]))
                return true;
    }
    return false;
}

bool tn_kernel_traps(const tn_lfunc *func) { return has_traps(func->body); }

/* ---- evaluating a size ------------------------------------------------------------------------------------------------------- */

typedef struct walk {
    const tn_lfunc *func;
    const int64_t *sizes;
    tn_arena arena;
    tn_map known; /* tn_number * by value */
    int64_t peak;
} walk;

static bool evaluate(walk *w, const tn_lvalue *value, tn_number *out);

static bool evaluate_parameter(const walk *w, const tn_lvalue *value, tn_number *out)
{
    for (size_t i = (size_t)w->func->nbuffers; i < w->func->params.len; i++)
        if (w->func->params.at[i] == value) {
            size_t index = i - (size_t)w->func->nbuffers;
            if (index >= tn_size_count(w->func))
                return false; /* %begin, %end: not known before the grid is cut */
            out->i = w->sizes[index];
            return true;
        }
    return false;
}

static bool evaluate_op(walk *w, const tn_lop *op, tn_number *out)
{
    tn_number args[3];
    if (op->code == TN_L_const)
        return *out = op->number, true;
    if ((op->code != TN_L_fn && op->code != TN_L_cast) || op->noperands > 3)
        return false;
    for (int i = 0; i < op->noperands; i++)
        if (!evaluate(w, op->operand[i], &args[i]))
            return false;
    tn_dtype dtype = op->operand[op->noperands - 1]->type.dtype;
    *out = op->code == TN_L_cast ? tn_number_convert(args[0], dtype, op->result->type.dtype) : tn_scalar_eval(op->fn, dtype, args);
    return true;
}

static bool evaluate(walk *w, const tn_lvalue *value, tn_number *out)
{
    if (value->type.lanes != 1 || value->type.buffer)
        return false;
    if (!value->def)
        return evaluate_parameter(w, value, out);
    tn_number *known = tn_map_get(&w->known, TN_KEY(value));
    if (!known) {
        if (!evaluate_op(w, value->def, out))
            return false;
        known = tn_memdup(&w->arena, out, sizeof *out);
        *tn_map_at(&w->known, TN_KEY(value)) = known;
    }
    *out = *known;
    return true;
}

/* ---- the layout ---------------------------------------------------------------------------------------------------------------- */

static bool place(walk *w, const tn_lop *alloc, int64_t *at)
{
    tn_number size = {.i = alloc->size};
    int64_t bytes, end;
    if (alloc->size < 0 && !evaluate(w, alloc->operand[0], &size))
        return false;
    if (!tn_buffer_bytes(alloc->result->type, tn_max(size.i, 0), &bytes) || !tn_add(*at, bytes, &end) ||
        !tn_add(end, TN_SCRATCH_ALIGN - 1, &end))
        return false;
    *at = end & -(int64_t)TN_SCRATCH_ALIGN;
    w->peak = tn_max(w->peak, *at);
    return true;
}

static bool walk_block(walk *w, const tn_lblock *block, int64_t at)
{
    for (const tn_lop *op = block->first; op; op = op->next) {
        if (op->code == TN_L_alloc && !tn_alloc_on_stack(op) && !place(w, op, &at))
            return false;
        for (int i = 0; i < op->nregions; i++)
            if (!walk_block(w, op->region[i], at))
                return false;
    }
    return true;
}

bool tn_kernel_scratch(const tn_lfunc *func, const int64_t *sizes, int64_t *bytes)
{
    walk w = {.func = func, .sizes = sizes};
    w.known.arena = &w.arena;
    w.peak = tn_kernel_traps(func) ? TN_SCRATCH_ALIGN : 0;
    bool ok = walk_block(&w, func->body, w.peak);
    *bytes = ok ? w.peak : 0;
    tn_arena_free(&w.arena);
    return ok;
}
