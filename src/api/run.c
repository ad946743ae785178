/* Contexts and runs. */
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"

tn_status tn_context_new(const tn_executable *executable, tn_context **out)
{
    return executable && out ? tn_state_new(executable->exec, executable->pool, out) : TN_USAGE;
}

void tn_context_free(tn_context *context)
{
    tn_state_free(context);
}

void tn_tensor_free(DLTensor *tensor)
{
    if (tensor)
        tn_state_release(tensor);
}

typedef struct stream_call {
    tn_context *context;
    void *stream;
} stream_call;

static tn_status set_stream(void *argument)
{
    stream_call *c = argument;
    return tn_state_set_stream(c->context, c->stream);
}

tn_status tn_context_set_stream(tn_context *context, void *stream)
{
    stream_call c = {context, stream};
    if (!context)
        return TN_USAGE;
    context->last = context;
    tn_state_clear(context);
    tn_status status = tn_api_guard(&context->session, set_stream, &c);
    for (int i = 0; i < context->exec->nvariants && status == TN_OK; i++) {
        status = tn_context_set_stream(context->variant[i], stream);
        context->last = status == TN_OK ? context : context->variant[i];
    }
    return status;
}

typedef struct upload_call {
    tn_context *context;
    const DLTensor *from;
    DLTensor *to;
} upload_call;

static tn_status upload(void *argument)
{
    upload_call *c = argument;
    return tn_state_upload(c->context, c->from, c->to);
}

tn_status tn_tensor_upload(tn_context *context, const DLTensor *from, DLTensor *to)
{
    DLTensor made = {.ndim = 0};
    upload_call c = {context, from, &made};
    if (!context || !from || !to)
        return TN_USAGE;
    context->last = context;
    tn_state_clear(context);
    tn_status status = tn_api_guard(&context->session, upload, &c);
    if (status == TN_OK)
        *to = made;
    else
        tn_tensor_free(&made);
    return status;
}

typedef struct run_call {
    tn_context *context;
    const DLTensor *inputs;
    size_t ninputs;
    DLTensor *outputs;
    size_t noutputs;
} run_call;

static tn_status run(void *argument)
{
    run_call *c = argument;
    return tn_state_run(c->context, c->inputs, c->ninputs, c->outputs, c->noutputs);
}

static tn_status prepare(void *argument)
{
    run_call *c = argument;
    return tn_state_prepare(c->context, c->inputs, c->ninputs);
}

tn_status tn_run(tn_context *context, const DLTensor *inputs, size_t ninputs, DLTensor *outputs, size_t noutputs)
{
    run_call c = {context, inputs, ninputs, outputs, noutputs};
    if (!context || (!inputs && ninputs) || (!outputs && noutputs))
        return TN_USAGE;
    c.context = context = tn_state_choose(context, inputs, ninputs);
    tn_status status = tn_api_guard(&context->session, run, &c);
    if (status != TN_OK && context->outputs) /* left by a jump, out of memory */
        tn_state_abandon(context);
    return status;
}

static tn_status join_diagnostics(void *argument)
{
    tn_context *context = argument;
    tn_text text = {.arena = &context->session.arena};
    for (size_t i = 0; i < context->session.diags.len; i++) {
        const tn_diag *d = &context->session.diags.at[i];
        tn_text_add(&text, "%s", text.len ? "\n" : "");
        if (d->loc.node)
            tn_text_add(&text, "node '%s': ", d->loc.node);
        tn_text_add(&text, "%s", d->message);
    }
    context->error_text = text.at;
    return TN_OK;
}

const char *tn_context_error(const tn_context *context)
{
    tn_context *c = context ? context->last : NULL; /* the text is made when it is asked for */
    if (!c || c->session.diags.len == 0)
        return "";
    c->error_text = NULL;
    return tn_api_guard(&c->session, join_diagnostics, c) == TN_OK && c->error_text ? c->error_text : "out of memory";
}

tn_status tn_output_shape(tn_context *context, const DLTensor *inputs, size_t ninputs, size_t i, int *rank, int64_t *shape)
{
    run_call c = {.context = context, .inputs = inputs, .ninputs = ninputs};
    if (!context || (!inputs && ninputs) || !rank || !shape || i >= (size_t)context->exec->noutputs)
        return TN_USAGE;
    c.context = context = tn_state_choose(context, inputs, ninputs);
    TN_TRY(tn_api_guard(&context->session, prepare, &c));
    *rank = tn_operand(context->exec->program->graph->body->last, (int)i)->type.rank;
    tn_state_output_shape(context, (int)i, shape);
    return TN_OK;
}

/* ---- memory, times ------------------------------------------------------------------------------------------------------------ */

tn_status tn_memory_needed(tn_context *context, const DLTensor *inputs, size_t ninputs, tn_memory_info *out)
{
    run_call c = {.context = context, .inputs = inputs, .ninputs = ninputs};
    tn_arena scratch = {0};
    tn_run_memory memory;
    if (!context || (!inputs && ninputs) || !out)
        return TN_USAGE;
    c.context = context = tn_state_choose(context, inputs, ninputs);
    TN_TRY(tn_api_guard(&context->session, prepare, &c));
    int64_t bytes = context->scratch_size * tn_pool_threads(context->pool);
    tn_layout_sum(&scratch, context->exec, &context->layout, context->valid, bytes, &memory);
    tn_arena_free(&scratch);
    *out = tn_api_memory_info(context->exec, &memory);
    return TN_OK;
}

void tn_profile_start(tn_context *context, int on)
{
    if (!context)
        return;
    for (int i = 0; i < context->exec->nvariants; i++)
        tn_profile_start(context->variant[i], on);
    context->profiling = on != 0;
    memset(context->time, 0, sizeof *context->time * context->exec->steps.len);
}

/* The i-th kernel step that runs every time; -1: none. */
static int kernel_step(const tn_exec *exec, size_t i)
{
    for (size_t s = 0; s < exec->steps.len; s++)
        if (exec->steps.at[s].kernel >= 0 && !exec->steps.at[s].step->init && i-- == 0)
            return (int)s;
    return -1;
}

size_t tn_profile_count(const tn_context *context)
{
    size_t n = 0;
    context = context ? context->last : NULL;
    for (size_t s = 0; context && s < context->exec->steps.len; s++)
        n += context->exec->steps.at[s].kernel >= 0 && !context->exec->steps.at[s].step->init;
    return n;
}

tn_status tn_profile_at(const tn_context *context, size_t i, tn_profile_row *out)
{
    context = context ? context->last : NULL;
    int s = context ? kernel_step(context->exec, i) : -1;
    if (s < 0 || !out)
        return TN_USAGE;
    const tn_step_time *time = &context->time[s];
    const tn_exec_step *step = &context->exec->steps.at[s];
    *out = (tn_profile_row){.kernel = step->name, .nodes = step->nodes, .runs = time->runs, .programs = context->launch[s].programs,
                            .seconds = time->seconds, .least_seconds = time->least, .bytes = context->launch[s].traffic, .threads = time->threads};
    return TN_OK;
}
