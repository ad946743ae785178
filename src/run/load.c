/* What runs once: packing of weights and whatever else depends on constants alone. */
#include <stdlib.h>

#include "run/device.h"

/* Buffers of the init steps that are not kept have memory while they run. */
static tn_status prepare_buffers(struct tn_context *s, const tn_step *step)
{
    const tn_exec *exec = s->exec;
    for (int a = 0; a < step->nargs; a++) {
        int b = step->args[a];
        const tn_pbuffer *buffer = &exec->program->buffers.at[b];
        size_t bytes;
        if (!tn_values_eval(&s->values, buffer->elements, &s->layout.elements[b]) ||
            !tn_dtype_bytes(buffer->type.dtype, s->layout.elements[b], &bytes))
            return tn_error(&s->session, TN_INVALID, TN_NO_LOC, "buffer %d of a step that runs at load: its size is not constant", b);
        s->layout.bytes[b] = (int64_t)bytes;
        if (s->pointer[b])
            continue;
        s->pointer[b] = s->staging[b] = tn_state_memory(s, (int64_t)bytes, tn_state_buffer_text(s, b));
        if (!s->pointer[b])
            return tn_state_why(s);
    }
    return TN_OK;
}

static tn_status run_init(struct tn_context *s)
{
    const tn_exec *exec = s->exec;
    for (size_t i = 0; i < exec->steps.len; i++) {
        if (!exec->steps.at[i].step->init)
            continue;
        TN_TRY(prepare_buffers(s, exec->steps.at[i].step));
        if (exec->steps.at[i].group > 0 || (exec->steps.at[i].kernel >= 0 && exec->kernels.at[exec->steps.at[i].kernel].nsizes > 0))
            return tn_error(&s->session, TN_UNSUPPORTED, TN_NO_LOC, "kernel @%s runs at load, but depends on a size that only a run knows", exec->steps.at[i].name);
        if (exec->steps.at[i].kernel >= 0)
            TN_TRY(tn_state_plan_step(s, (int)i));
    }
    return tn_state_run_block(s, exec->init_block);
}

static tn_status loaded(tn_exec *exec, double start)
{
    if (exec->gpu)
        tn_device_loaded(exec);
    exec->load_seconds = tn_seconds() - start;
    return TN_OK;
}

tn_status tn_exec_load(tn_session *session, tn_exec *exec, tn_pool *pool)
{
    struct tn_context *s;
    double start = tn_seconds();
    if (exec->machine->gpu)
        TN_TRY(tn_device_load(session, exec));
    if (exec->blocks.at[exec->init_block].n == 0)
        return loaded(exec, start);
    if (tn_state_new(exec, pool, &s) != TN_OK)
        return tn_error(session, TN_NO_MEMORY, TN_NO_LOC, "no memory to prepare the constants");
    s->session.arena.on_oom = session->arena.on_oom;
    tn_status status = run_init(s);
    if (status == TN_OK && s->gpu)
        status = tn_gpu_wait(&s->session, s->gpu->exec->gpu, s->gpu->stream);
    for (size_t i = 0; i < s->session.diags.len; i++)
        tn_error(session, s->session.diags.at[i].status, s->session.diags.at[i].loc, "%s", s->session.diags.at[i].message);
    tn_state_free(s);
    return status == TN_OK ? loaded(exec, start) : status;
}
