/* Executables on a GPU: loaded once, run by contexts. What a context holds as pointers are addresses of the GPU then. */
#include <stdlib.h>
#include <string.h>

#include "run/device.h"

/* ---- loading --------------------------------------------------------------------------------------------------------------- */

static const char **names_of(tn_session *session, tn_lvalue *const *params, int n)
{
    const char **names = TN_NEW_ARRAY(&session->arena, const char *, (size_t)n + 1);
    for (int i = 0; i < n; i++)
        names[i] = params[i]->name;
    return names;
}

static tn_gpu_entry entry_of(tn_session *session, const tn_gpu *gpu, const tn_exec_kernel *kernel)
{
    const tn_lfunc *loop = kernel->loop;
    tn_lvalue *const *params = loop->params.at;
    return (tn_gpu_entry){gpu, kernel->symbol, names_of(session, params, loop->nbuffers), names_of(session, params + loop->nbuffers, kernel->nsizes),
                          loop->nbuffers, kernel->nsizes, kernel->nmaps, kernel->cluster, kernel->persistent, kernel->map, 0};
}

static tn_status load_code(tn_session *session, const tn_exec *exec, struct tn_exec_gpu *g)
{
    g->module = TN_NEW_ARRAY(&session->arena, CUmodule, exec->nimages + 1);
    g->kernel = TN_NEW_ARRAY(&session->arena, tn_gpu_kernel, exec->kernels.len + 1);
    g->entry = TN_NEW_ARRAY(&session->arena, tn_gpu_entry, exec->kernels.len + 1);
    bool *waits = TN_NEW_ARRAY(&session->arena, bool, exec->nimages + 1);
    for (; g->nmodules < exec->nimages; g->nmodules++) {
        const tn_exec_image *image = &exec->images[g->nmodules];
        waits[g->nmodules] = strstr(image->ptx.data, TN_GPU_WAIT) != NULL;
        TN_TRY(tn_gpu_load_either(session, g->gpu, image->cubin.data, image->ptx.data, &g->module[g->nmodules]));
    }
    for (size_t k = 0; k < exec->kernels.len; k++) {
        const tn_exec_kernel *kernel = &exec->kernels.at[k];
        if (kernel->shared > UINT32_MAX)
            return tn_error(session, TN_UNSUPPORTED, TN_NO_LOC, "kernel @%s wants %lld bytes of shared memory", kernel->symbol, (long long)kernel->shared);
        TN_TRY(tn_gpu_function(session, g->gpu, g->module[kernel->image], kernel->symbol, (unsigned)kernel->shared, &g->kernel[k]));
        g->kernel[k].waits = waits[kernel->image];
        g->kernel[k].cluster = (unsigned)kernel->cluster;
        g->entry[k] = entry_of(session, g->gpu, kernel);
        TN_TRY(tn_gpu_entry_prepare(session, g->module[kernel->image], &g->entry[k]));
    }
    return TN_OK;
}

/* Buffers that are fixed for all runs, or only read at load; each at a multiple of 256, as memory of its own would be. */
static tn_status place_fixed(tn_session *session, const tn_exec *exec, struct tn_exec_gpu *g, bool kept, CUdeviceptr *memory)
{
    enum { APART = 256 };
    int64_t total = 0;
    for (int place = 0; place < 2; place++) { /* first how much, then where */
        int64_t at = 0;
        for (size_t b = 0; b < exec->program->buffers.len; b++) {
            const tn_pbuffer *buffer = &exec->program->buffers.at[b];
            bool fixed = buffer->kind == TN_B_CONSTANT || buffer->persistent;
            if (!fixed || (exec->buffers[b].first >= 0 || buffer->persistent) != kept)
                continue;
            if (place)
                g->fixed[b] = *memory + (CUdeviceptr)at;
            if (!tn_add(at, ((int64_t)exec->buffers[b].fixed_bytes + APART) & -(int64_t)APART, &at))
                return tn_error(session, TN_NO_MEMORY, TN_NO_LOC, "the constants' size overflows");
        }
        total = at;
        if (!place && total > 0)
            TN_TRY(tn_gpu_pool_take(session, g->pool, total, NULL, memory));
    }
    return TN_OK;
}

static tn_status copy_constants(tn_session *session, const tn_exec *exec, struct tn_exec_gpu *g)
{
    for (size_t b = 0; b < exec->program->buffers.len; b++)
        if (exec->buffers[b].fixed)
            TN_TRY(tn_gpu_copy_in(session, g->gpu, g->fixed[b], exec->buffers[b].fixed, (int64_t)exec->buffers[b].fixed_bytes, NULL));
    return tn_gpu_wait(session, g->gpu, NULL);
}

tn_status tn_device_load(tn_session *session, tn_exec *exec)
{
    const char *refusal = tn_gpu_refusal(session, exec->machine, exec->device);
    if (refusal)
        return tn_error(session, TN_UNSUPPORTED, TN_NO_LOC, "%s", refusal);
    struct tn_exec_gpu *g = exec->gpu = TN_NEW(&session->arena, struct tn_exec_gpu);
    TN_TRY(tn_gpu_pool_new(session, exec->device, &g->pool));
    g->gpu = tn_gpu_pool_gpu(g->pool);
    g->fixed = TN_NEW_ARRAY(&session->arena, CUdeviceptr, exec->program->buffers.len + 1);
    TN_TRY(load_code(session, exec, g));
    TN_TRY(place_fixed(session, exec, g, true, &g->kept));
    TN_TRY(place_fixed(session, exec, g, false, &g->temporary));
    return copy_constants(session, exec, g);
}

void tn_device_loaded(tn_exec *exec)
{
    struct tn_exec_gpu *g = exec->gpu;
    tn_gpu_pool_give(g->pool, g->temporary, NULL);
    g->temporary = 0;
    tn_gpu_pool_trim(g->pool);
    tn_exec_drop_constants(exec);
}

/* What can't be given back is nobody's error any more. */
static void forget(tn_session *quiet)
{
    tn_arena_free(&quiet->arena);
    *quiet = (tn_session){.errors = 0};
    quiet->strings.arena = quiet->options.arena = &quiet->arena;
}

void tn_exec_unload(tn_exec *exec)
{
    struct tn_exec_gpu *g = exec ? exec->gpu : NULL;
    tn_session quiet = {.errors = 0};
    quiet.strings.arena = quiet.options.arena = &quiet.arena;
    for (size_t i = 0; g && i < g->nmodules; i++)
        tn_gpu_unload(&quiet, g->gpu, g->module[i]);
    if (g)
        tn_gpu_pool_drop(g->pool);
    if (exec)
        exec->gpu = NULL;
    forget(&quiet);
}

/* ---- contexts ---------------------------------------------------------------------------------------------------------------- */

tn_status tn_device_run_new(struct tn_context *s)
{
    const tn_exec *exec = s->exec;
    const tn_gpu *gpu = exec->gpu->gpu;
    size_t most = 0, nbuffers = exec->program->buffers.len + 1;
    struct tn_gpu_run *r = s->gpu = TN_NEW(&s->arena, struct tn_gpu_run);
    r->exec = exec->gpu;
    r->encoded = TN_NEW_ARRAY(&s->arena, tn_gpu_encoded *, exec->steps.len + 1);
    for (size_t i = 0; i < exec->steps.len; i++)
        if (exec->steps.at[i].kernel >= 0) {
            const tn_gpu_entry *entry = &exec->gpu->entry[exec->steps.at[i].kernel];
            most = (size_t)tn_max((int64_t)most, (int64_t)tn_gpu_entry_params(entry));
            r->encoded[i] = tn_gpu_encoded_new(&s->arena, entry);
        }
    r->values = TN_NEW_ARRAY(&s->arena, uint64_t, most + 1);
    r->params = TN_NEW_ARRAY(&s->arena, void *, most + 1);
    r->host = TN_NEW_ARRAY(&s->arena, void *, nbuffers);
    r->host_size = TN_NEW_ARRAY(&s->arena, int64_t, nbuffers);
    tn_replay_prepare(s);
    for (size_t b = 0; b < exec->program->buffers.len; b++)
        s->pointer[b] = (void *)(uintptr_t)exec->gpu->fixed[b];
    TN_TRY(tn_gpu_stream_new(&s->session, gpu, &r->own));
    r->stream = r->own;
    TN_TRY(tn_gpu_stream_new(&s->session, gpu, &r->recorder));
    TN_TRY(tn_gpu_event_new(&s->session, gpu, true, &r->start));
    return tn_gpu_event_new(&s->session, gpu, true, &r->end);
}

void tn_device_wait_quietly(const struct tn_context *s)
{
    tn_session quiet = {.errors = 0};
    quiet.strings.arena = quiet.options.arena = &quiet.arena;
    if (s->gpu->stream)
        tn_gpu_wait(&quiet, s->gpu->exec->gpu, s->gpu->stream);
    forget(&quiet);
}

void tn_device_run_free(struct tn_context *s)
{
    struct tn_gpu_run *r = s->gpu;
    const tn_gpu *gpu = r->exec->gpu;
    tn_session quiet = {.errors = 0};
    quiet.strings.arena = quiet.options.arena = &quiet.arena;
    tn_replay_free(s);
    if (r->stream)
        tn_gpu_pool_forget(r->exec->pool, r->stream);
    for (int i = 0; i < 2; i++) {
        CUevent event = i ? r->end : r->start;
        CUstream stream = i ? r->recorder : r->own;
        if (event)
            tn_gpu_event_free(&quiet, gpu, event);
        if (stream)
            tn_gpu_stream_free(&quiet, gpu, stream);
    }
    for (size_t b = 0; r->host && b < s->exec->program->buffers.len; b++)
        free(r->host[b]);
    forget(&quiet);
}

tn_status tn_state_set_stream(struct tn_context *s, void *stream)
{
    struct tn_gpu_run *r = s->gpu;
    if (!r)
        return tn_error(&s->session, TN_USAGE, TN_NO_LOC, "a stream is given to a context that runs on the CPU");
    CUstream wanted = stream ? stream : r->own;
    if (wanted == r->stream)
        return TN_OK;
    TN_TRY(tn_gpu_wait(&s->session, r->exec->gpu, r->stream));
    tn_gpu_pool_forget(r->exec->pool, r->stream);
    r->stream = wanted;
    return TN_OK;
}

/* ---- steps ----------------------------------------------------------------------------------------------------------------------- */

static CUstream target(const struct tn_context *s) { return s->gpu->recording ? s->gpu->recorder : s->gpu->stream; }

static tn_status launch(struct tn_context *s, int index)
{
    const tn_exec_step *step = &s->exec->steps.at[index];
    const tn_exec_kernel *kernel = &s->exec->kernels.at[step->kernel];
    const tn_launch *l = &s->launch[index];
    uint64_t *value = s->gpu->values;
    tn_tensor_map maps[TN_MOST_MAPS];
    unsigned grid[3] = {1, 1, 1}, block[3] = {(unsigned)kernel->threads, 1, 1};
    char error[512];
    if (l->programs <= 0)
        return TN_OK;
    for (int a = 0; a < step->step->nargs; a++)
        *value++ = (uintptr_t)tn_state_argument(s, index, a);
    for (int i = 0; i < kernel->nsizes; i++)
        *value++ = (uint64_t)l->sizes[i];
    tn_status status = tn_gpu_arguments(&s->gpu->exec->entry[step->kernel], s->gpu->encoded[index], s->gpu->values, l->programs, maps, s->gpu->params, &grid[0], error, sizeof error);
    if (status != TN_OK)
        return tn_error(&s->session, status, TN_NO_LOC, "%s", error);
    s->time[index].threads = kernel->threads;
    bool early = s->gpu->behind_kernel;
    s->gpu->behind_kernel = s->gpu->in_section;
    return tn_gpu_launch(&s->session, s->gpu->exec->gpu, &s->gpu->exec->kernel[step->kernel], grid, block, target(s), early, s->gpu->params);
}

static tn_status copy(struct tn_context *s, const tn_step *step)
{
    int to = step->args[0], from = step->args[1];
    int64_t bytes = tn_min(s->layout.bytes[to], s->layout.bytes[from]);
    if (s->pointer[to] == s->pointer[from])
        return TN_OK;
    s->gpu->behind_kernel = false;
    return tn_gpu_copy(&s->session, s->gpu->exec->gpu, tn_gpu_address(s->pointer[to]), tn_gpu_address(s->pointer[from]), bytes, target(s));
}

tn_status tn_device_step(struct tn_context *s, int step)
{
    const tn_step *what = s->exec->steps.at[step].step;
    return what->kind == TN_STEP_KERNEL ? launch(s, step) : copy(s, what);
}

tn_status tn_device_read(struct tn_context *s, const void *from, void *to, int64_t bytes)
{
    TN_TRY(tn_gpu_copy_out(&s->session, s->gpu->exec->gpu, to, tn_gpu_address(from), bytes, s->gpu->stream));
    return tn_gpu_wait(&s->session, s->gpu->exec->gpu, s->gpu->stream);
}

tn_status tn_state_flush(struct tn_context *s)
{
    const tn_gpu *gpu = s->gpu ? s->gpu->exec->gpu : NULL;
    CUdeviceptr memory;
    if (!gpu || gpu->info.l2_bytes <= 0)
        return TN_OK;
    TN_TRY(tn_gpu_pool_take(&s->session, s->gpu->exec->pool, gpu->info.l2_bytes, s->gpu->stream, &memory));
    tn_status status = tn_gpu_fill(&s->session, gpu, memory, 0, gpu->info.l2_bytes, s->gpu->stream);
    tn_gpu_pool_give(s->gpu->exec->pool, memory, s->gpu->stream);
    return status;
}

tn_status tn_device_time(struct tn_context *s, tn_status (*run)(struct tn_context *s, int which), int which, double *seconds)
{
    const tn_gpu *gpu = s->gpu->exec->gpu;
    TN_TRY(tn_gpu_event_record(&s->session, gpu, s->gpu->start, s->gpu->stream));
    TN_TRY(run(s, which));
    TN_TRY(tn_gpu_event_record(&s->session, gpu, s->gpu->end, s->gpu->stream));
    TN_TRY(tn_gpu_event_wait(&s->session, gpu, s->gpu->end));
    return tn_gpu_event_seconds(&s->session, gpu, s->gpu->start, s->gpu->end, seconds);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------------------------- */

/* What a tensor on a GPU that a run allocated needs to be given back: behind its shape. */
typedef struct owner {
    tn_gpu_pool *pool;
    CUdeviceptr memory;
    CUstream stream;
    bool idle; /* the run was waited for */
} owner;

typedef struct device_shape {
    int64_t dims[TN_MAX_RANK];
    owner owner;
} device_shape;

tn_status tn_device_tensor_new(struct tn_context *s, int64_t bytes, const int64_t *dims, int rank, tn_dtype dtype, DLTensor *out)
{
    struct tn_gpu_run *r = s->gpu;
    CUdeviceptr memory;
    device_shape *shape = calloc(1, sizeof *shape);
    if (!shape)
        return tn_error(&s->session, TN_NO_MEMORY, TN_NO_LOC, "no memory for a tensor's shape");
    *out = (DLTensor){.device = {TN_DEVICE_CUDA, s->exec->device}, .ndim = rank, .dtype = tn_dtype_to_dlpack(dtype), .shape = shape->dims};
    if (rank)
        memcpy(shape->dims, dims, sizeof *dims * (size_t)rank);
    tn_status status = tn_gpu_pool_take(&s->session, r->exec->pool, bytes, r->stream, &memory);
    if (status != TN_OK) {
        free(shape);
        *out = (DLTensor){.ndim = 0};
        return status;
    }
    tn_gpu_pool_hold(r->exec->pool);
    shape->owner = (owner){r->exec->pool, memory, r->stream, r->stream == r->own};
    out->data = (void *)(uintptr_t)memory;
    return TN_OK;
}

void tn_device_tensor_free(DLTensor *tensor)
{
    device_shape *shape = (device_shape *)(void *)tensor->shape;
    if (shape->owner.idle)
        tn_gpu_pool_give_idle(shape->owner.pool, shape->owner.memory);
    else
        tn_gpu_pool_give(shape->owner.pool, shape->owner.memory, shape->owner.stream);
    tn_gpu_pool_drop(shape->owner.pool);
    free(shape);
}
