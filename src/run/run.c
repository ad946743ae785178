/* The steps of an executable, one after the other. */
#include <stdlib.h>
#include <string.h>

#include "run/device.h"

/* Below this much work a second thread costs more than it brings. */
static const double share_ns = 6000;

/* ---- kernels --------------------------------------------------------------------------------------------------------------- */

typedef struct kernel_call {
    const struct tn_context *state;
    const tn_exec_kernel *kernel;
    const int64_t *sizes;
    void *const *buffers;
    int64_t grain, programs; /* a unit of the split is `grain` programs */
} kernel_call;

static void call_kernel(void *context, int64_t begin, int64_t end, int worker)
{
    const kernel_call *call = context;
    int64_t first = begin * call->grain, last = tn_min(end * call->grain, call->programs);
    call->kernel->fn(call->buffers, call->sizes, first, last, call->state->scratch[worker]);
}

static void clear_traps(struct tn_context *s, int threads)
{
    for (int w = 0; w < threads; w++)
        *(int64_t *)s->scratch[w] = 0;
}

static tn_status check_traps(struct tn_context *s, const tn_exec_step *step, int threads)
{
    for (int w = 0; w < threads; w++) {
        int64_t line = *(int64_t *)s->scratch[w];
        if (line)
            return tn_error(&s->session, TN_INVALID, TN_NO_LOC, "kernel @%s: a check failed (line %lld of its source)", step->name, (long long)line);
    }
    return TN_OK;
}

static tn_status run_kernel(struct tn_context *s, int index)
{
    enum { FEW = 32 };
    const tn_exec_step *step = &s->exec->steps.at[index];
    const tn_exec_kernel *kernel = &s->exec->kernels.at[step->kernel];
    const tn_launch *l = &s->launch[index];
    void *few[FEW], **buffers = step->step->nargs <= FEW ? few : malloc(sizeof *buffers * (size_t)step->step->nargs);
    if (!buffers)
        return tn_error(&s->session, TN_NO_MEMORY, TN_NO_LOC, "no memory for the arguments of kernel @%s", step->name);
    for (int a = 0; a < step->step->nargs; a++)
        buffers[a] = tn_state_argument(s, index, a);
    int64_t grain = tn_max(1, tn_schedule_get(&kernel->tile->schedule, "", "threads-grain", 1));
    kernel_call call = {s, kernel, l->sizes, buffers, grain, l->programs};
    double wanted = l->work / share_ns;
    int threads = wanted < 2 ? 1 : wanted < tn_pool_threads(s->pool) ? (int)wanted : tn_pool_threads(s->pool);
    if (kernel->traps)
        clear_traps(s, tn_pool_threads(s->pool));
    if (l->programs > 0)
        threads = tn_pool_run(s->pool, tn_ceildiv(l->programs, grain), threads, call_kernel, &call);
    s->time[index].threads = threads;
    if (buffers != few)
        free(buffers);
    return kernel->traps ? check_traps(s, step, tn_pool_threads(s->pool)) : TN_OK;
}

/* ---- other steps ----------------------------------------------------------------------------------------------------------- */

static tn_status read_scalar(struct tn_context *s, int buffer, int64_t *out)
{
    tn_dtype dtype = s->exec->program->buffers.at[buffer].type.dtype;
    int64_t copy[2] = {0, 0};
    const void *at = s->pointer[buffer];
    if (s->gpu) {
        TN_TRY(tn_device_read(s, at, copy, tn_min((int64_t)sizeof copy, s->layout.bytes[buffer])));
        at = copy;
    }
    *out = tn_number_to_int(dtype, tn_number_load(dtype, at, 0));
    return TN_OK;
}

static tn_status run_copy(struct tn_context *s, const tn_step *step)
{
    int to = step->args[0], from = step->args[1];
    int64_t bytes = tn_min(s->layout.bytes[to], s->layout.bytes[from]);
    if (bytes > 0 && s->pointer[to] != s->pointer[from])
        memmove(s->pointer[to], s->pointer[from], (size_t)bytes);
    return TN_OK;
}

static tn_status run_define(struct tn_context *s, const tn_exec_step *step)
{
    int64_t value;
    int group = step->defines;
    TN_TRY(read_scalar(s, step->step->args[0], &value));
    TN_TRY(tn_values_define(&s->session, &s->values, step, value));
    if (!s->valid[group] || s->defined[group] != value) {
        for (int g = group; g < s->exec->ngroups; g++) /* what comes later may depend on it */
            s->valid[g] = false;
        TN_TRY(tn_state_plan_group(s, group));
        s->defined[group] = value;
    }
    return tn_state_take_outputs(s, group);
}

static tn_status run_while(struct tn_context *s, const tn_exec_step *step)
{
    for (;;) {
        int64_t on;
        TN_TRY(tn_state_run_block(s, step->blocks[0]));
        TN_TRY(read_scalar(s, step->step->args[0], &on));
        if (!on)
            return TN_OK;
        TN_TRY(tn_state_run_block(s, step->blocks[1]));
    }
}

static tn_status run_choice(struct tn_context *s, const tn_exec_step *step)
{
    int64_t choice;
    TN_TRY(read_scalar(s, step->step->args[0], &choice));
    if (step->step->kind == TN_STEP_IF)
        choice = choice ? 0 : 1;
    else if (choice < 0 || choice >= step->nblocks)
        choice = step->nblocks - 1;
    return choice < step->nblocks ? tn_state_run_block(s, step->blocks[choice]) : TN_OK;
}

static tn_status run_step(struct tn_context *s, int index)
{
    const tn_exec_step *step = &s->exec->steps.at[index];
    switch (step->step->kind) {
    case TN_STEP_KERNEL: return s->gpu ? tn_device_step(s, index) : run_kernel(s, index);
    case TN_STEP_COPY: return s->gpu ? tn_device_step(s, index) : run_copy(s, step->step);
    case TN_STEP_DEFINE: return run_define(s, step);
    case TN_STEP_WHILE: return run_while(s, step);
    case TN_STEP_IF:
    case TN_STEP_CASE: return run_choice(s, step);
    }
    return TN_OK;
}

static tn_status time_step(struct tn_context *s, int index)
{
    double start = tn_seconds(), taken;
    bool apart = s->gpu && s->exec->steps.at[index].step->nblocks == 0; /* events are for one thing at a time */
    tn_status status = apart ? tn_device_time(s, run_step, index, &taken) : run_step(s, index);
    if (!apart)
        taken = tn_seconds() - start;
    tn_step_time *t = &s->time[index];
    t->least = t->runs == 0 || taken < t->least ? taken : t->least;
    t->seconds += taken;
    t->runs++;
    return status;
}

tn_status tn_state_run_block(struct tn_context *s, int block)
{
    const tn_exec_block *b = &s->exec->blocks.at[block];
    for (int i = 0; i < b->n;) {
        const section *at = s->gpu ? &s->gpu->section[b->step[i]] : NULL;
        if (at && at->n > 0 && !s->profiling)
            TN_TRY(tn_replay_section(s, &b->step[i], at));
        else
            TN_TRY(s->profiling ? time_step(s, b->step[i]) : run_step(s, b->step[i]));
        i += at && at->n > 0 && !s->profiling ? at->n : 1;
    }
    return TN_OK;
}

/* ---- runs ------------------------------------------------------------------------------------------------------------------- */

void tn_state_clear(struct tn_context *s)
{
    if (s->session.diags.len == 0 && s->session.arena.bytes == 0)
        return;
    tn_arena_free(&s->session.arena);
    s->session = (tn_session){.arena.on_oom = s->session.arena.on_oom};
    s->session.strings.arena = s->session.options.arena = &s->session.arena;
}

tn_status tn_state_prepare(struct tn_context *s, const DLTensor *inputs, size_t ninputs)
{
    tn_state_clear(s);
    return tn_state_bind(s, inputs, ninputs);
}

static tn_status run(struct tn_context *s, const DLTensor *inputs, size_t ninputs, size_t noutputs)
{
    if (noutputs != (size_t)s->exec->noutputs)
        return tn_error(&s->session, TN_USAGE, TN_NO_LOC, "expected %d outputs, found %zu", s->exec->noutputs, noutputs);
    TN_TRY(tn_state_bind(s, inputs, ninputs));
    TN_TRY(tn_state_take_inputs(s, inputs));
    TN_TRY(tn_state_take_outputs(s, 0));
    if (s->gpu && s->gpu->timed && !s->profiling)
        TN_TRY(tn_device_time(s, tn_state_run_block, s->exec->main_block, &s->gpu->seconds));
    else
        TN_TRY(tn_state_run_block(s, s->exec->main_block));
    return tn_state_give_outputs(s);
}

tn_status tn_state_run(struct tn_context *s, const DLTensor *inputs, size_t ninputs, DLTensor *outputs, size_t noutputs)
{
    tn_state_clear(s);
    s->outputs = outputs;
    memset(s->ours, 0, sizeof *s->ours * (size_t)s->exec->noutputs);
    if (s->gpu) {
        s->gpu->host_tensors = false;
        s->gpu->seconds = -1;
    }
    tn_status status = run(s, inputs, ninputs, noutputs);
    if (status != TN_OK && s->gpu)
        tn_device_wait_quietly(s); /* the caller's memory is the caller's again */
    if (status != TN_OK)
        tn_state_drop_outputs(s);
    s->outputs = NULL;
    return status;
}

void tn_state_time_runs(struct tn_context *s, bool on)
{
    if (s->gpu)
        s->gpu->timed = on;
    for (int i = 0; i < s->exec->nvariants; i++)
        tn_state_time_runs(s->variant[i], on);
}

double tn_state_seconds(const struct tn_context *s) { return s->gpu ? s->last->gpu->seconds : -1; }

void tn_state_abandon(struct tn_context *s)
{
    tn_state_stop_recording(s);
    if (s->gpu)
        tn_device_wait_quietly(s);
    tn_state_drop_outputs(s);
    s->outputs = NULL;
    s->bound = false;
}
