/* Constants: where they lie, or in memory of their own. A weight in an ONNX file may start at any byte; the kernels that read it are
 * compiled for that, so it is never copied but where an `init` step packs it. */
#include <stdlib.h>
#include <string.h>

#include "plan/internal.h"

/* Bytes that a pointer to elements of `dtype` must be a multiple of. */
static size_t element_align(tn_dtype dtype)
{
    size_t bytes = (size_t)tn_dtype_bits(dtype) / 8;
    return bytes < 1 ? 1 : tn_is_complex(dtype) ? bytes / 2 : bytes;
}

static bool is_misaligned(const tn_pbuffer *buffer)
{
    const tn_tensor *t = buffer->constant;
    return buffer->kind == TN_B_CONSTANT && t && !t->splat && (uintptr_t)t->data % element_align(t->dtype) != 0;
}

void tn_plan_mark_misaligned(tn_exec *exec)
{
    for (size_t i = 0; i < exec->steps.len; i++) {
        const tn_exec_step *s = &exec->steps.at[i];
        for (int a = 0; s->kernel >= 0 && a < s->step->nargs; a++)
            if (is_misaligned(tn_plan_buffer(exec, s->step->args[a])))
                exec->kernels.at[s->kernel].loop->params.at[a]->align = 1;
    }
}

/* Memory for a constant, where code will run. */
static tn_status own(tn_exec *exec, int buffer, size_t bytes)
{
    tn_exec_buffer *b = &exec->buffers[buffer];
    size_t rounded = (bytes + TN_ALIGN - 1) & ~(size_t)(TN_ALIGN - 1);
    b->fixed_bytes = bytes;
    exec->owned_bytes += rounded;
    if (exec->bare)
        return TN_OK;
    void *memory = tn_alloc_tensor(rounded);
    if (!memory)
        return tn_error(exec->session, TN_NO_MEMORY, TN_NO_LOC, "no memory for %zu bytes of constants", bytes);
    b->fixed = memory;
    b->owned = true;
    return TN_OK;
}

static void fill_splat(void *to, const tn_tensor *tensor, int64_t n)
{
    tn_number value = tn_tensor_at(tensor, 0);
    for (int64_t i = 0; i < n; i++)
        tn_number_store(tensor->dtype, to, i, value);
}

static tn_status place_constant(tn_exec *exec, int buffer, int64_t n, size_t bytes)
{
    const tn_tensor *tensor = tn_plan_buffer(exec, buffer)->constant;
    bool splat = tensor->splat && n > 1;
    if (!splat && bytes > 0) {
        exec->buffers[buffer].fixed = tensor->data;
        exec->buffers[buffer].fixed_bytes = bytes;
        exec->constant_bytes += exec->buffers[buffer].first >= 0 ? bytes : 0; /* else only read at load */
        return TN_OK;
    }
    TN_TRY(own(exec, buffer, bytes));
    if (splat && !exec->bare)
        fill_splat((void *)(uintptr_t)exec->buffers[buffer].fixed, tensor, n);
    return TN_OK;
}

/* A constant or persistent buffer's size is a number. */
static tn_status static_bytes(tn_exec *exec, int buffer, int64_t *n, size_t *bytes)
{
    const tn_pbuffer *b = tn_plan_buffer(exec, buffer);
    if (!tn_dim_is_const(b->elements) || !tn_dtype_bytes(b->type.dtype, b->elements->value, bytes))
        return tn_error(exec->session, TN_NO_MEMORY, TN_NO_LOC, "constant '%s': its size overflows", b->name ? b->name : "");
    *n = b->elements->value;
    return TN_OK;
}

/* ---- packed by another executable ------------------------------------------------------------------------------------------------ */

/* What a step that packs reads: a constant's bytes as they are stored, or a packed buffer by its address alone. */
typedef struct source {
    const void *at;
    size_t bytes;
} source;

static source source_of(const tn_exec *exec, int buffer)
{
    const tn_pbuffer *b = tn_plan_buffer(exec, buffer);
    size_t bytes = 0;
    if (!b->constant || !b->constant->data)
        return (source){exec->buffers[buffer].fixed, 0};
    if (!tn_dim_is_const(b->elements) || !tn_dtype_bytes(b->type.dtype, b->constant->splat ? 1 : b->elements->value, &bytes))
        return (source){NULL, 0};
    return (source){b->constant->data, bytes};
}

/* The code of a step that packs, and what it reads; NULL: that is not known, or it writes more than one buffer. */
static const char *packing_key(tn_arena *arena, const tn_exec *exec, const tn_exec_step *s, int *out)
{
    tn_text text = {.arena = arena}, code = {.arena = arena};
    *out = -1;
    if (s->kernel < 0 || !s->step->init || exec->kernels.at[s->kernel].nsizes)
        return NULL;
    for (int a = 0; a < s->step->nargs; a++) {
        source from = source_of(exec, s->step->args[a]);
        bool writes = tn_plan_parameter(s->step->kernel, a)->mode != TN_READ;
        if (writes ? *out >= 0 : !from.at)
            return NULL;
        if (writes)
            *out = s->step->args[a];
        else
            tn_text_add(&text, "%llx %zu ", (unsigned long long)(from.bytes ? tn_hash(from.at, from.bytes, 0) : TN_KEY(from.at)), from.bytes);
    }
    tn_text_lfunc(&code, exec->kernels.at[s->kernel].loop);
    tn_text_add(&text, "%s", strchr(code.at, '(')); /* all but the name */
    return *out >= 0 ? text.at : NULL;
}

/* Hashes may be equal by chance. */
static bool reads_the_same(const tn_exec *a, const tn_exec_step *x, const tn_exec *b, const tn_exec_step *y)
{
    for (int i = 0; i < x->step->nargs; i++) {
        source from = source_of(a, x->step->args[i]), to = source_of(b, y->step->args[i]);
        if (tn_plan_parameter(x->step->kernel, i)->mode == TN_READ && from.at != to.at && (!from.bytes || from.bytes != to.bytes || memcmp(from.at, to.at, from.bytes)))
            return false;
    }
    return true;
}

void tn_plan_share_packed(tn_exec *exec, const tn_exec *from)
{
    tn_arena arena = {.on_oom = exec->session->arena.on_oom};
    tn_map packed = {.arena = &arena}; /* key -> step of `from` + 1 */
    tn_exec_block *load = &exec->blocks.at[exec->init_block];
    int out, other, kept = 0;
    for (size_t i = 0; i < from->steps.len; i++) {
        const char *key = packing_key(&arena, from, &from->steps.at[i], &out);
        if (key && from->buffers[out].fixed)
            *tn_map_at_str(&packed, key) = (void *)(i + 1);
    }
    for (int i = 0; i < load->n; i++) {
        const tn_exec_step *s = &exec->steps.at[load->step[i]];
        const char *key = packing_key(&arena, exec, s, &out);
        size_t known = key ? (size_t)tn_map_get_str(&packed, key) : 0;
        if (known && reads_the_same(exec, s, from, &from->steps.at[known - 1])) {
            packing_key(&arena, from, &from->steps.at[known - 1], &other);
            exec->buffers[out].fixed = from->buffers[other].fixed;
            exec->buffers[out].fixed_bytes = from->buffers[other].fixed_bytes;
            exec->owned_bytes += (exec->buffers[out].fixed_bytes + TN_ALIGN - 1) & ~(size_t)(TN_ALIGN - 1); /* a run takes it, whoever made it */
        } else {
            load->step[kept++] = load->step[i];
        }
    }
    load->n = kept;
    tn_arena_free(&arena);
}

tn_status tn_plan_constants(tn_exec *exec)
{
    for (size_t b = 0; b < exec->program->buffers.len; b++) {
        const tn_pbuffer *buffer = tn_plan_buffer(exec, (int)b);
        bool constant = buffer->kind == TN_B_CONSTANT;
        int64_t n = 0;
        size_t bytes;
        if ((!constant && !buffer->persistent) || exec->buffers[b].fixed)
            continue;
        TN_TRY(static_bytes(exec, (int)b, &n, &bytes));
        if (constant && buffer->constant)
            TN_TRY(place_constant(exec, (int)b, n, bytes));
        else if (exec->machine->gpu) /* its memory is there, not here */
            exec->buffers[b].fixed_bytes = bytes, exec->owned_bytes += bytes;
        else
            TN_TRY(own(exec, (int)b, bytes));
    }
    return TN_OK;
}

void tn_exec_drop_constants(tn_exec *exec)
{
    for (size_t b = 0; exec->buffers && b < exec->program->buffers.len; b++)
        if (exec->buffers[b].owned) {
            free((void *)(uintptr_t)exec->buffers[b].fixed);
            exec->buffers[b].fixed = NULL;
            exec->buffers[b].owned = false;
        }
}
