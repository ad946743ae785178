/* The state of a run: sizes, memory, pointers. What is known from the inputs' shapes is kept while they stay the same. */
#include <stdlib.h>
#include <string.h>

#include "run/device.h"

static void give_back_memory(struct tn_context *s);

static tn_arena *arena_of(struct tn_context *state) { return &state->arena; }

static void forget_scratch(struct tn_context *s)
{
    for (size_t k = 0; k < s->exec->kernels.len; k++)
        s->kernel_scratch[k] = s->exec->kernels.at[k].scratch;
}

static void make_arrays(struct tn_context *s)
{
    const tn_exec *exec = s->exec;
    tn_arena *arena = arena_of(s);
    size_t nbuffers = exec->program->buffers.len + 1, nsteps = exec->steps.len + 1, ngroups = (size_t)exec->ngroups;
    s->values = (tn_values){exec, TN_NEW_ARRAY(arena, int64_t, exec->symbols.len + 1), TN_NEW_ARRAY(arena, bool, exec->symbols.len + 1)};
    tn_layout_new(arena, exec, &s->layout);
    s->shape = (int64_t(*)[TN_MAX_RANK])tn_alloc_array(arena, (size_t)exec->ninputs + 1, sizeof *s->shape);
    s->valid = TN_NEW_ARRAY(arena, bool, ngroups);
    s->defined = TN_NEW_ARRAY(arena, int64_t, ngroups);
    s->pointer = TN_NEW_ARRAY(arena, void *, nbuffers);
    s->staging = TN_NEW_ARRAY(arena, void *, nbuffers);
    s->staging_size = TN_NEW_ARRAY(arena, int64_t, nbuffers);
    s->segment = TN_NEW_ARRAY(arena, void *, ngroups);
    s->segment_size = TN_NEW_ARRAY(arena, int64_t, ngroups);
    s->launch = TN_NEW_ARRAY(arena, tn_launch, nsteps);
    s->kernel_scratch = TN_NEW_ARRAY(arena, int64_t, exec->kernels.len + 1);
    s->time = TN_NEW_ARRAY(arena, tn_step_time, nsteps);
    s->scratch = TN_NEW_ARRAY(arena, void *, (size_t)tn_pool_threads(s->pool));
    s->ours = TN_NEW_ARRAY(arena, bool, (size_t)exec->noutputs + 1);
    for (size_t i = 0; i < exec->steps.len; i++) {
        if (exec->steps.at[i].kernel >= 0)
            s->launch[i].sizes = TN_NEW_ARRAY(arena, int64_t, (size_t)exec->kernels.at[exec->steps.at[i].kernel].nsizes + 1);
        if (exec->steps.at[i].step->offset)
            s->launch[i].offset = TN_NEW_ARRAY(arena, int64_t, (size_t)exec->steps.at[i].step->nargs + 1);
    }
    forget_scratch(s);
    for (size_t b = 0; b < exec->program->buffers.len; b++)
        s->pointer[b] = (void *)(uintptr_t)exec->buffers[b].fixed;
}

tn_status tn_state_new(const tn_exec *exec, tn_pool *pool, struct tn_context **out)
{
    jmp_buf oom;
    struct tn_context *s = calloc(1, sizeof *s);
    if (!s)
        return TN_NO_MEMORY;
    s->exec = exec;
    s->pool = pool;
    s->arena.on_oom = &oom;
    s->session.arena.on_oom = &oom;
    s->session.strings.arena = s->session.options.arena = &s->session.arena;
    if (setjmp(oom)) {
        tn_state_free(s);
        return TN_NO_MEMORY;
    }
    make_arrays(s);
    tn_status status = exec->gpu ? tn_device_run_new(s) : TN_OK;
    if (status != TN_OK) {
        tn_state_free(s);
        return status;
    }
    s->variant = TN_NEW_ARRAY(&s->arena, struct tn_context *, (size_t)exec->nvariants + 1);
    for (int i = 0; i < exec->nvariants && status == TN_OK; i++)
        status = tn_state_new(exec->variant[i], pool, &s->variant[i]);
    if (status != TN_OK) {
        tn_state_free(s);
        return status;
    }
    s->arena.on_oom = s->session.arena.on_oom = NULL;
    s->last = *out = s;
    return TN_OK;
}

/* As far as its sizes are numbers: what is wrong with the rest says who binds them. */
static bool fits(const tn_exec *exec, const DLTensor *inputs)
{
    for (int i = 0; i < exec->ninputs; i++) {
        const tn_type *type = &exec->program->graph->body->arg[i]->type;
        if (inputs[i].ndim != type->rank || (type->rank > 0 && !inputs[i].shape))
            return false;
        for (int d = 0; d < type->rank; d++)
            if (tn_dim_is_const(type->dim[d]) && type->dim[d]->value != inputs[i].shape[d])
                return false;
    }
    return true;
}

/* Number of the variant; -1: none fits. */
static int choose_variant(const tn_exec *exec, const DLTensor *inputs, size_t ninputs)
{
    for (int v = 0; v < exec->nvariants && ninputs == (size_t)exec->ninputs; v++)
        if (fits(exec->variant[v], inputs))
            return v;
    return -1;
}

const tn_exec *tn_exec_choose(const tn_exec *exec, const DLTensor *inputs, size_t ninputs)
{
    int v = choose_variant(exec, inputs, ninputs);
    return v < 0 ? exec : exec->variant[v];
}

struct tn_context *tn_state_choose(struct tn_context *s, const DLTensor *inputs, size_t ninputs)
{
    int v = choose_variant(s->exec, inputs, ninputs);
    struct tn_context *chosen = v < 0 ? s : s->variant[v];
    if (chosen != s->last && s->exec->memory_limit) {
        give_back_memory(s->last);
        s->last->bound = false;
    }
    return s->last = chosen;
}

void tn_state_free(struct tn_context *s)
{
    if (!s)
        return;
    for (int i = 0; s->variant && i < s->exec->nvariants; i++)
        tn_state_free(s->variant[i]);
    if (s->gpu)
        tn_device_wait_quietly(s);
    for (int g = 0; s->segment && g < s->exec->ngroups; g++)
        tn_state_give(s, s->segment[g]);
    for (size_t b = 0; s->staging && b < s->exec->program->buffers.len; b++)
        tn_state_give(s, s->staging[b]);
    if (s->gpu)
        tn_device_run_free(s);
    for (int w = 0; s->scratch && w < tn_pool_threads(s->pool); w++)
        free(s->scratch[w]);
    tn_arena_free(&s->session.arena);
    tn_arena_free(&s->work);
    tn_arena_free(&s->arena);
    free(s);
}

/* ---- memory -------------------------------------------------------------------------------------------------------------- */

void *tn_state_host_memory(struct tn_context *s, int64_t bytes, const char *what)
{
    size_t rounded = ((size_t)tn_max(bytes, 1) + TN_ALIGN - 1) & ~(size_t)(TN_ALIGN - 1);
    void *memory = tn_alloc_tensor(rounded);
    if (!memory)
        tn_error(&s->session, TN_NO_MEMORY, TN_NO_LOC, "no memory for %zu bytes: %s", rounded, what);
    return memory;
}

void *tn_state_memory(struct tn_context *s, int64_t bytes, const char *what)
{
    CUdeviceptr memory;
    if (!s->gpu)
        return tn_state_host_memory(s, bytes, what);
    if (tn_gpu_pool_take(&s->session, s->gpu->exec->pool, bytes, s->gpu->stream, &memory) == TN_OK)
        return (void *)(uintptr_t)memory;
    tn_error(&s->session, tn_state_why(s), TN_NO_LOC, "%lld bytes were wanted: %s", (long long)bytes, what);
    return NULL;
}

const char *tn_state_buffer_text(struct tn_context *s, int buffer)
{
    static const char *const kinds[] = {[TN_B_INPUT] = "input", [TN_B_OUTPUT] = "output", [TN_B_CONSTANT] = "constant", [TN_B_TEMP] = "intermediate"};
    const tn_pbuffer *b = &s->exec->program->buffers.at[buffer];
    return tn_format(&s->session.arena, "%s '%s'", kinds[b->kind], b->name ? b->name : "");
}

void tn_state_give(struct tn_context *s, void *memory)
{
    if (s->gpu)
        tn_gpu_pool_give(s->gpu->exec->pool, tn_gpu_address(memory), s->gpu->stream);
    else
        free(memory);
}

static const char *segment_text(struct tn_context *s, int group)
{
    const char *where = tn_plan_step_text(&s->session.arena, s->exec, tn_layout_fullest(&s->work, s->exec, &s->layout, group));
    return tn_format(&s->session.arena, "intermediates, of which most is alive in %s", where);
}

/* A segment grows when a run needs more; without a limit of memory it is not given back before the context ends. */
static tn_status ensure_segment(struct tn_context *s, int group)
{
    int64_t wanted = s->layout.segment[group];
    if (wanted > s->segment_size[group]) {
        void *old = s->segment[group];
        s->segment_size[group] = 0;
        s->segment[group] = NULL;
        tn_state_give(s, old);
        s->segment[group] = tn_state_memory(s, wanted, segment_text(s, group));
        if (!s->segment[group])
            return tn_state_why(s);
        s->segment_size[group] = wanted;
    }
    for (size_t b = 0; b < s->exec->program->buffers.len; b++)
        if (s->exec->buffers[b].group == group && s->layout.offset[b] >= 0)
            s->pointer[b] = (char *)s->segment[group] + s->layout.offset[b];
    return TN_OK;
}

static tn_status ensure_scratch(struct tn_context *s, int step)
{
    int64_t wanted = step >= 0 ? s->launch[step].scratch : 0;
    if (wanted <= s->scratch_size)
        return TN_OK;
    const char *what = tn_format(&s->session.arena, "scratch of each of %d workers in %s", tn_pool_threads(s->pool), tn_plan_step_text(&s->session.arena, s->exec, step));
    s->scratch_size = 0;
    for (int w = 0; w < tn_pool_threads(s->pool); w++) {
        free(s->scratch[w]);
        s->scratch[w] = tn_state_host_memory(s, wanted, what);
        if (!s->scratch[w])
            return TN_NO_MEMORY;
    }
    s->scratch_size = wanted;
    return TN_OK;
}

/* With a limit of memory nothing is kept of runs with other sizes. */
static void give_back_memory(struct tn_context *s)
{
    for (int g = 0; g < s->exec->ngroups; g++) {
        tn_state_give(s, s->segment[g]);
        s->segment[g] = NULL;
        s->segment_size[g] = 0;
    }
    for (int w = 0; w < tn_pool_threads(s->pool); w++) {
        free(s->scratch[w]);
        s->scratch[w] = NULL;
    }
    s->scratch_size = 0;
}

/* ---- launches ------------------------------------------------------------------------------------------------------------ */

static bool count_programs(const struct tn_context *s, const tn_kernel *kernel, int64_t *out)
{
    *out = 1;
    for (size_t i = 0; i < kernel->grid.len; i++) {
        int64_t limit;
        if (!tn_values_eval(&s->values, kernel->grid.at[i].limit, &limit) || limit < 0 ||
            !tn_mul(*out, tn_ceildiv(limit, tn_max(kernel->grid.at[i].step.size, 1)), out))
            return false;
    }
    return true;
}

/* Equal kernels have equal sizes: walking one's code is enough. */
static bool find_scratch(struct tn_context *s, int index, tn_launch *l)
{
    int64_t *known = &s->kernel_scratch[index];
    if (*known < 0 && !tn_kernel_scratch(s->exec->kernels.at[index].loop, l->sizes, known))
        return false;
    l->scratch = *known;
    return true;
}

static bool find_offsets(const struct tn_context *s, const tn_step *step, int64_t *offset)
{
    for (int a = 0; offset && a < step->nargs; a++) {
        int bytes = tn_dtype_bits(s->exec->program->buffers.at[step->args[a]].type.dtype) / 8;
        offset[a] = 0;
        if (step->offset[a] && (!tn_values_eval(&s->values, step->offset[a], &offset[a]) || !tn_mul(offset[a], bytes, &offset[a])))
            return false;
    }
    return true;
}

static tn_status plan_launch(struct tn_context *s, int index)
{
    const tn_exec_step *step = &s->exec->steps.at[index];
    const tn_exec_kernel *kernel = &s->exec->kernels.at[step->kernel];
    tn_launch *l = &s->launch[index];
    for (int i = 0; i < kernel->nsizes; i++)
        l->sizes[i] = s->values.value[kernel->size[i]];
    if (!find_offsets(s, step->step, l->offset))
        return tn_error(&s->session, TN_NO_MEMORY, TN_NO_LOC, "kernel @%s: where its arguments begin overflows for these sizes", step->name);
    if (!count_programs(s, kernel->tile, &l->programs) || (!s->gpu && !find_scratch(s, step->kernel, l)))
        return tn_error(&s->session, TN_NO_MEMORY, TN_NO_LOC, "kernel @%s: its grid or scratch memory overflows for these sizes", step->name);
    l->traffic = 0;
    for (int a = 0; a < step->step->nargs; a++)
        l->traffic += s->layout.bytes[step->step->args[a]];
    if (s->gpu)
        return TN_OK;
    l->work = tn_kernel_work(kernel->tile, &s->values);
    return TN_OK;
}

/* With all groups that are laid out, before anything of this one is allocated. */
static tn_status check_limit(struct tn_context *s, int group, int most_scratch)
{
    if (!s->exec->memory_limit)
        return TN_OK;
    tn_run_memory m;
    int64_t worker = tn_max(s->scratch_size, most_scratch >= 0 ? s->launch[most_scratch].scratch : 0), scratch;
    worker = worker > 0 ? tn_layout_rounded(worker) : 0;
    s->valid[group] = true;
    if (!tn_mul(worker, tn_pool_threads(s->pool), &scratch))
        scratch = INT64_MAX / 4;
    tn_layout_sum(&s->work, s->exec, &s->layout, s->valid, scratch, &m);
    s->valid[group] = false;
    return tn_plan_check_limit(&s->session, s->exec, &m);
}

/* Sizes of what stands in the group, placed; then its memory. */
static tn_status plan_group(struct tn_context *s, int group)
{
    int most_scratch = -1;
    TN_TRY(tn_layout_group(&s->session, &s->work, &s->values, group, &s->layout));
    forget_scratch(s);
    for (size_t i = 0; i < s->exec->steps.len; i++) {
        const tn_exec_step *step = &s->exec->steps.at[i];
        if (step->kernel < 0 || step->group != group || step->step->init)
            continue;
        TN_TRY(plan_launch(s, (int)i));
        if (most_scratch < 0 || s->launch[i].scratch > s->launch[most_scratch].scratch)
            most_scratch = (int)i;
    }
    TN_TRY(check_limit(s, group, most_scratch));
    TN_TRY(ensure_segment(s, group));
    return s->gpu ? TN_OK : ensure_scratch(s, most_scratch);
}

tn_status tn_state_plan_group(struct tn_context *s, int group)
{
    s->work.on_oom = s->session.arena.on_oom;
    s->valid[group] = false;
    tn_status status = plan_group(s, group);
    tn_arena_free(&s->work);
    s->valid[group] = status == TN_OK;
    return status;
}

tn_status tn_state_plan_step(struct tn_context *s, int step)
{
    TN_TRY(plan_launch(s, step));
    return s->gpu ? TN_OK : ensure_scratch(s, step);
}

/* ---- shapes -------------------------------------------------------------------------------------------------------------- */

static bool same_shapes(const struct tn_context *s, const DLTensor *inputs)
{
    for (int i = 0; i < s->exec->ninputs; i++)
        for (int d = 0; d < inputs[i].ndim; d++)
            if (s->shape[i][d] != inputs[i].shape[d])
                return false;
    return s->bound;
}

static tn_status bind(struct tn_context *s, const DLTensor *inputs)
{
    s->work.on_oom = s->session.arena.on_oom;
    tn_shape *shapes = TN_NEW_ARRAY(&s->work, tn_shape, (size_t)s->exec->ninputs + 1);
    for (int i = 0; i < s->exec->ninputs; i++)
        shapes[i] = (tn_shape){inputs[i].ndim, inputs[i].shape};
    tn_status status = tn_values_bind(&s->session, &s->work, &s->values, shapes);
    tn_arena_free(&s->work);
    TN_TRY(status);
    memset(s->valid, 0, sizeof *s->valid * (size_t)s->exec->ngroups);
    if (s->exec->memory_limit)
        give_back_memory(s);
    return tn_state_plan_group(s, 0);
}

static tn_status check_input(struct tn_context *s, int i, const DLTensor *input)
{
    const tn_value *value = s->exec->program->graph->body->arg[i];
    const char *name = value->name ? value->name : "";
    tn_dtype dtype = tn_dtype_from_dlpack(input->dtype);
    TN_TRY(tn_state_check_device(s, "input", i, input->device));
    if (dtype != value->type.dtype)
        return tn_error(&s->session, TN_INVALID, TN_NO_LOC, "input %d '%s': expected elements of type %s, found %s", i, name,
                        tn_dtype_text(value->type.dtype), dtype == TN_NO_DTYPE ? "a type that Tenon lacks" : tn_dtype_text(dtype));
    if (input->ndim != value->type.rank)
        return tn_error(&s->session, TN_INVALID, TN_NO_LOC, "input %d '%s': expected rank %d, found %d", i, name, value->type.rank, input->ndim);
    if (input->ndim > 0 && !input->shape)
        return tn_error(&s->session, TN_USAGE, TN_NO_LOC, "input %d '%s': its shape is NULL", i, name);
    return TN_OK;
}

tn_status tn_state_bind(struct tn_context *s, const DLTensor *inputs, size_t ninputs)
{
    if (ninputs != (size_t)s->exec->ninputs)
        return tn_error(&s->session, TN_USAGE, TN_NO_LOC, "expected %d inputs, found %zu", s->exec->ninputs, ninputs);
    for (int i = 0; i < s->exec->ninputs; i++)
        TN_TRY(check_input(s, i, &inputs[i]));
    if (same_shapes(s, inputs))
        return TN_OK;
    s->bound = false;
    TN_TRY(bind(s, inputs));
    for (int i = 0; i < s->exec->ninputs; i++)
        for (int d = 0; d < inputs[i].ndim; d++)
            s->shape[i][d] = inputs[i].shape[d];
    s->bound = true;
    return TN_OK;
}

void tn_state_output_shape(const struct tn_context *s, int output, int64_t *dims)
{
    const tn_value *value = tn_operand(s->exec->program->graph->body->last, output);
    for (int d = 0; d < value->type.rank; d++)
        if (!tn_values_eval(&s->values, value->type.dim[d], &dims[d]))
            dims[d] = -1;
}
