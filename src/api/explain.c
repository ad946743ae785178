/* tn_explain: compiles, runs for the times if asked to, and makes the report of it. */
#include <math.h>
#include <stdlib.h>

#include "api/report.h"

typedef struct explain_call {
    tn_session *session;
    const tn_network *network;
    const tn_compile_options *options;
    const DLTensor *inputs;
    size_t ninputs;
    double seconds;
    tn_executable *executable;
    tn_context *context;
    DLTensor *outputs;
    tn_pool *pool;
    tn_report *report;
    report_source source;
} explain_call;

/* ---- sizes without a run ----------------------------------------------------------------------------------------------------------- */

static tn_status take_shapes(explain_call *c, tn_shape *shapes)
{
    const tn_block *body = c->network->graph->body;
    if (c->ninputs != (size_t)body->nargs)
        return tn_error(c->session, TN_USAGE, TN_NO_LOC, "expected %d inputs, found %zu", body->nargs, c->ninputs);
    for (size_t i = 0; i < c->ninputs; i++) {
        int rank = body->arg[i]->type.rank;
        if (c->inputs[i].ndim != rank || (rank > 0 && !c->inputs[i].shape))
            return tn_error(c->session, TN_USAGE, TN_NO_LOC, "input %zu '%s': expected a shape of rank %d", i, body->arg[i]->name ? body->arg[i]->name : "", rank);
        shapes[i] = (tn_shape){rank, c->inputs[i].shape};
    }
    return TN_OK;
}

/* What is known before a run: group 0. */
static tn_status plan(explain_call *c)
{
    tn_arena *arena = &c->report->arena;
    const tn_exec *exec = tn_exec_choose(c->executable->exec, c->inputs, c->ninputs);
    tn_shape *shapes = TN_NEW_ARRAY(arena, tn_shape, c->ninputs + 1);
    TN_TRY(take_shapes(c, shapes));
    tn_values *values = TN_NEW(arena, tn_values);
    *values = (tn_values){exec, TN_NEW_ARRAY(arena, int64_t, exec->symbols.len + 1), TN_NEW_ARRAY(arena, bool, exec->symbols.len + 1)};
    tn_layout *layout = TN_NEW(arena, tn_layout);
    tn_layout_new(arena, exec, layout);
    bool *valid = TN_NEW_ARRAY(arena, bool, (size_t)exec->ngroups);
    TN_TRY(tn_values_bind(c->session, arena, values, shapes));
    TN_TRY(tn_layout_group(c->session, arena, values, 0, layout));
    valid[0] = true;
    c->source.values = values;
    c->source.layout = layout;
    c->source.valid = valid;
    return TN_OK;
}

/* ---- a run -------------------------------------------------------------------------------------------------------------------------- */

enum { MOST_RUNS = 1 << 16 };

static tn_status run_once(explain_call *c, double *seconds)
{
    size_t n = tn_output_count(c->network);
    double start = tn_seconds();
    tn_status status = tn_run(c->context, c->inputs, c->ninputs, c->outputs, n);
    *seconds = tn_seconds() - start;
    if (status == TN_OK)
        for (size_t i = 0; i < n; i++)
            tn_tensor_free(&c->outputs[i]);
    return status == TN_OK ? TN_OK : tn_error(c->session, status, TN_NO_LOC, "%s", tn_context_error(c->context));
}

/* The first run plans memory and warms up; it counts for nothing. */
static tn_status run_for(explain_call *c)
{
    double now, end = tn_seconds() + c->seconds;
    c->outputs = TN_NEW_ARRAY(&c->report->arena, DLTensor, tn_output_count(c->network) + 1);
    TN_TRY(tn_context_new(c->executable, &c->context));
    TN_TRY(run_once(c, &now));
    tn_profile_start(c->context, 1);
    for (c->report->runs = 0; c->report->runs < MOST_RUNS && (c->report->runs == 0 || tn_seconds() < end); c->report->runs++) {
        TN_TRY(run_once(c, &now));
        c->report->run_ms = c->report->runs == 0 ? now * 1e3 : fmin(c->report->run_ms, now * 1e3);
    }
    const tn_context *ran = c->context->last;
    c->source.context = ran;
    c->source.values = &ran->values;
    c->source.layout = &ran->layout;
    c->source.valid = ran->valid;
    return TN_OK;
}

/* The sizes that a variant has fixed, by the names that its inputs have without. */
static const char *variant_text(tn_arena *arena, const tn_exec *all, const tn_exec *variant)
{
    tn_text text = {.arena = arena};
    tn_map seen = {.arena = arena};
    for (int i = 0; i < all->ninputs; i++) {
        const tn_type *type = &all->program->graph->body->arg[i]->type, *fixed = &variant->program->graph->body->arg[i]->type;
        for (int d = 0; d < type->rank; d++) {
            if (type->dim[d]->kind != TN_DIM_SYMBOL || !tn_dim_is_const(fixed->dim[d]) || tn_map_get_str(&seen, type->dim[d]->name))
                continue;
            *tn_map_at_str(&seen, type->dim[d]->name) = (void *)1;
            tn_text_add(&text, "%s%s=%lld", text.len ? "," : "", type->dim[d]->name, (long long)fixed->dim[d]->value);
        }
    }
    return text.at ? text.at : "";
}

static void collect_variants(tn_report *r, const tn_exec *all, const tn_exec *chosen)
{
    for (int i = 0; i < all->nvariants; i++)
        TN_PUSH(&r->arena, &r->variants, ((struct report_variant){variant_text(&r->arena, all, all->variant[i]), all->variant[i] == chosen}));
}

/* ---- the whole ----------------------------------------------------------------------------------------------------------------------- */

static tn_status explain(void *argument)
{
    explain_call *c = argument;
    tn_report *r = c->report;
    const char *refusal = NULL;
    r->session = c->session;
    r->arena.on_oom = c->session->arena.on_oom;
    r->run_ms = NAN;
    TN_TRY(tn_api_refusal(c->session, c->options, &refusal));
    r->no_times = refusal ? refusal : c->seconds > 0 ? NULL : "it was not run";
    TN_TRY(tn_api_compile_network(c->session, c->network, c->options, &(tn_compile_how){&r->declined, r->no_times != NULL}, &c->executable));
    const tn_exec *exec = tn_exec_choose(c->executable->exec, c->inputs, c->ninputs);
    collect_variants(r, c->executable->exec, exec);
    r->model = c->network->file;
    r->machine = exec->machine->name;
    r->threads = c->executable->threads;
    r->device = exec->machine->gpu ? exec->device : -1;
    c->source.before = c->network->graph;
    c->source.exec = exec;
    c->source.precision = c->executable->precision;
    if (!exec->machine->gpu && !(c->pool = tn_pool_new(r->threads)))
        return TN_NO_MEMORY;
    r->has_rates = tn_rates_find(c->session, exec->machine, c->pool, &r->rates);
    TN_TRY(r->no_times ? plan(c) : run_for(c));
    report_collect(r, &c->source);
    return TN_OK;
}

tn_status tn_explain(tn_session *session, const tn_network *network, const tn_compile_options *options, const DLTensor *inputs, size_t ninputs, double seconds, tn_report **out)
{
    explain_call c = {.session = session, .network = network, .options = options, .inputs = inputs, .ninputs = ninputs, .seconds = seconds};
    if (!session || !network || !out || (!inputs && ninputs) || !(seconds >= 0))
        return TN_USAGE;
    c.report = calloc(1, sizeof *c.report);
    if (!c.report)
        return TN_NO_MEMORY;
    tn_status status = tn_api_guard(session, explain, &c);
    c.report->arena.on_oom = NULL;
    tn_context_free(c.context);
    tn_pool_free(c.pool);
    tn_executable_free(c.executable);
    if (status == TN_OK)
        *out = c.report;
    else
        tn_report_free(c.report);
    return status;
}

void tn_report_free(tn_report *report)
{
    if (!report)
        return;
    tn_arena_free(&report->arena);
    free(report);
}

/* ---- texts --------------------------------------------------------------------------------------------------------------------------- */

typedef struct text_call {
    const tn_report *report;
    tn_report_form form;
    tn_arena arena;
    tn_blob blob;
} text_call;

static tn_status make_text(void *argument)
{
    text_call *c = argument;
    c->arena.on_oom = c->report->session->arena.on_oom;
    tn_text text = {.arena = &c->arena};
    bool made = true;
    if (c->form == TN_REPORT_TEXT)
        report_as_text(c->report, &text);
    else
        made = (c->form == TN_REPORT_JSON ? report_as_json : report_as_page)(c->report, &text);
    return made ? tn_api_keep_text(&text, &c->blob) : TN_NO_MEMORY;
}

tn_status tn_report_text(const tn_report *report, tn_report_form form, char **out, size_t *size)
{
    text_call c = {.report = report, .form = form};
    if (!report || !out || !size || (unsigned)form > TN_REPORT_HTML)
        return TN_USAGE;
    tn_status status = tn_api_guard(report->session, make_text, &c);
    c.arena.on_oom = NULL;
    tn_arena_free(&c.arena);
    if (status != TN_OK)
        return status;
    *out = c.blob.data;
    *size = c.blob.size;
    return TN_OK;
}
