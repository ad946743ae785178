/* From a network to an executable, or to the text of a stage. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "opt/opt.h"

typedef struct compilation {
    tn_session *session;
    tn_graph *graph;
    const tn_compile_options *options;
    tn_compile_how how;
    const tn_machine *machine;
    int threads, device;
    tn_numerics numerics;
    tn_precision precision;
    tn_program *program;
    tn_pool *pool;       /* of a CPU's threads, or of one beside a GPU; made when it is first wanted */
    tn_tuner *tuner;
    bool only_plan;      /* nothing is measured */
    bool listed;         /* schedules are printed */
    int64_t memory_limit; /* bytes; 0: none */
    double graph_seconds, fuse_seconds;
} compilation;

const char *tn_api_loop_print(const char *print_after)
{
    if (print_after && !strncmp(print_after, "loop-", 5))
        return print_after + 5;
    return print_after && !strcmp(print_after, "all") ? print_after : NULL;
}

tn_status tn_api_check_print(tn_session *session, const char *print_after, bool users)
{
    if (!print_after || !strcmp(print_after, "all") || (users && !strcmp(print_after, "tile")))
        return TN_OK;
    tn_text names = {.arena = &session->arena};
    tn_text_add(&names, users ? "all, tile" : "all");
    for (const tn_opt_pass *pass = tn_opt_passes; !users && pass->name; pass++) {
        if (!strcmp(pass->name, print_after))
            return TN_OK;
        tn_text_add(&names, ", %s", pass->name);
    }
    for (const tn_loop_pass *pass = tn_loop_passes; pass->name; pass++) {
        if (!strncmp(print_after, "loop-", 5) && !strcmp(pass->name, print_after + 5))
            return TN_OK;
        tn_text_add(&names, ", loop-%s", pass->name);
    }
    return tn_error(session, TN_USAGE, TN_NO_LOC, "print-after: no pass is called '%s'; there are %s", print_after, names.at);
}

static tn_status start(compilation *c)
{
    static const tn_compile_options defaults;
    c->options = c->options ? c->options : &defaults;
    TN_TRY(tn_gpu_machine(c->session, c->options->machine, &c->machine, &c->device));
    if (c->options->threads < 0)
        return tn_error(c->session, TN_USAGE, TN_NO_LOC, "threads: expected a number from 0 (all that this process may use), found %d", c->options->threads);
    c->threads = c->options->threads ? c->options->threads : tn_cpu_count();
    return tn_api_check_print(c->session, c->options->print_after, false);
}

tn_status tn_api_numerics(tn_session *session, const char *wanted, tn_numerics *out)
{
    static const char *const names[] = {[TN_NUMERICS_PARITY] = "parity", [TN_NUMERICS_STRICT] = "strict", [TN_NUMERICS_FAST] = "fast"};
    *out = TN_NUMERICS_PARITY;
    if (!wanted)
        return TN_OK;
    for (size_t i = 0; i < TN_COUNT(names); i++)
        if (!strcmp(names[i], wanted)) {
            *out = (tn_numerics)i;
            return TN_OK;
        }
    return tn_error(session, TN_USAGE, TN_NO_LOC, "option numerics: expected parity, strict or fast");
}

static tn_status optimize(compilation *c)
{
    tn_opt_options options = {.verify = c->options->verify != 0, .print_after = c->options->print_after, .gpu = c->machine->gpu, .declined = c->how.declined};
    TN_TRY(tn_api_numerics(c->session, tn_map_get_str(&c->session->options, "numerics"), &options.numerics));
    c->numerics = options.numerics;
    const char *precision = tn_map_get_str(&c->session->options, "matmul-precision");
    if (precision && !tn_precision_from_text(precision, &c->precision))
        return tn_error(c->session, TN_USAGE, TN_NO_LOC, "option matmul-precision: expected ieee, tf32x3 or tf32, found '%s'", precision);
    double start = tn_seconds();
    TN_TRY(tn_opt_run(c->session, c->graph, c->options->passes, &options));
    c->graph_seconds = tn_seconds() - start;
    return TN_OK;
}

static tn_exec_options exec_options(const compilation *c)
{
    return (tn_exec_options){.machine = c->machine, .threads = c->threads, .print_after = tn_api_loop_print(c->options->print_after), .level = TN_API_CODE_LEVEL,
                             .verify = c->options->verify != 0, .device = c->device, .memory_limit = c->memory_limit,
                             .cache = c->machine->gpu ? tn_cache_folder(&c->session->arena, NULL) : NULL,
                             .architecture = c->machine->gpu ? tn_gpu_architecture(&c->session->arena, c->machine, c->device) : NULL};
}

static tn_status make_pool(compilation *c)
{
    if (!c->pool)
        c->pool = tn_pool_new(c->machine->gpu ? 1 : c->threads);
    return c->pool ? TN_OK : TN_NO_MEMORY;
}

/* ---- schedules -------------------------------------------------------------------------------------------------------------- */

/* Option tune-sizes: "batch=64,length=128"; orders of steps are chosen for them too. */
static bool size_of(void *context, const char *name, int64_t *size)
{
    const char *list = tn_map_get_str(&((const tn_session *)context)->options, "tune-sizes");
    size_t len = strlen(name);
    for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, name, len) && at[len] == '=') {
            *size = strtoll(at + len + 1, NULL, 10);
            return *size >= 0;
        }
    return false;
}

static tn_status tune_options(compilation *c, bool measure, tn_tune_options *out)
{
    const char *tune = tn_map_get_str(&c->session->options, "tune");
    bool off = tune && !strcmp(tune, "off");
    char *end = NULL;
    double seconds = tune && !off ? strtod(tune, &end) : 0;
    if (end && (end == tune || *end || !(seconds >= 0)))
        return tn_error(c->session, TN_USAGE, TN_NO_LOC, "option tune: expected seconds or off, found '%s'", tune);
    *out = (tn_tune_options){.seconds = measure ? seconds : 0, .records = !off, .folder = tn_cache_folder(&c->session->arena, NULL), .threads = c->threads,
                             .schedule = tn_map_get_str(&c->session->options, "schedule"), .listed = c->listed,
                             .bench = {.options = exec_options(c), .size = size_of, .size_context = c->session}};
    out->bench.options.print_after = NULL;
    if (out->seconds > 0)
        TN_TRY(make_pool(c));
    out->bench.pool = c->pool;
    return TN_OK;
}

/* ---- the order of steps, the limit of memory ------------------------------------------------------------------------------------------------------------------- */

static tn_status memory_limit(tn_session *session, int64_t *out)
{
    static const char units[] = "KMG";
    const char *text = tn_map_get_str(&session->options, "memory-limit");
    char *end = NULL;
    if (!text)
        return *out = 0, TN_OK;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (end == text || errno || n <= 0 || (*end && (!unit || end[1])) || !tn_mul(n, INT64_C(1) << (unit ? 10 * (unit - units + 1) : 0), out))
        return tn_error(session, TN_USAGE, TN_NO_LOC, "option memory-limit: expected bytes, as 1000000, 512K, 64M or 2G, found '%s'", text);
    return TN_OK;
}

static bool has_symbols(const tn_exec *exec)
{
    for (size_t i = 0; i < exec->symbols.len; i++)
        if (exec->symbols.at[i].group == 0)
            return true;
    return false;
}

/* Is the limit kept, with these sizes? Else how many bytes of intermediates may be alive so that it is. last: an error if it is sure that it is not. */
static tn_status ask_memory(compilation *c, const tn_plan_sizes *sizes, bool last, bool *fits, int64_t *most)
{
    tn_exec *exec;
    tn_run_memory m;
    bool known;
    tn_exec_options options = exec_options(c);
    options.print_after = NULL;
    TN_TRY(tn_exec_plan(c->session, c->program, &options, &exec));
    tn_status status = tn_plan_memory_at(c->session, exec, sizes, c->threads, &known, &m);
    *fits = status != TN_OK || !known || m.peak <= c->memory_limit;
    if (!*fits && last && !has_symbols(exec))
        status = tn_plan_check_limit(c->session, exec, &m);
    *most = *fits ? 0 : c->memory_limit - (m.peak - m.arena) - (m.arena - m.bound); /* what placement loses is lost again */
    tn_exec_free(exec);
    return status;
}

/* Steps run twice where that keeps the limit. With symbols it is checked again when a run tells their sizes, before it allocates anything. */
static tn_status keep_limit(compilation *c, const tn_plan_sizes *sizes)
{
    enum { TRIES = 3 };
    bool fits = false;
    int64_t most = 0;
    TN_TRY(memory_limit(c->session, &c->memory_limit));
    if (!c->memory_limit)
        return TN_OK;
    for (int i = 0; i < TRIES; i++) {
        TN_TRY(ask_memory(c, sizes, false, &fits, &most));
        if (fits)
            return TN_OK;
        if (most <= 0 || !tn_plan_recompute(c->program, sizes, most))
            break;
    }
    return ask_memory(c, sizes, true, &fits, &most);
}

static tn_status plan_memory(compilation *c)
{
    tn_plan_sizes sizes = {size_of, c->session};
    tn_plan_order(c->program, &sizes);
    return keep_limit(c, &sizes);
}

/* ---- kernels ---------------------------------------------------------------------------------------------------------------- */

static tn_status fuse(compilation *c)
{
    tn_fuse_options options = {.target = tn_machine_tile_target(c->machine, c->threads), .no_fusion = tn_opt_list_has(c->options->passes, "-fuse"), .numerics = c->numerics, .precision = c->precision};
    tn_tune_options tuning;
    double start = tn_seconds();
    TN_TRY(tn_fuse_check(c->graph));
    TN_TRY(tune_options(c, !c->only_plan && !c->how.plan_only && !options.no_fusion, &tuning)); /* what kernels apart are for is not their speed */
    TN_TRY(tn_tuner_new(c->session, &tuning, &c->tuner));
    TN_TRY(tn_tune(c->tuner, c->graph, &options));
    options.chooser = tn_tuner_chooser(c->tuner);
    c->program = TN_NEW(&c->session->arena, tn_program);
    TN_TRY(tn_fuse(c->session, c->graph, &options, c->program));
    c->fuse_seconds = tn_seconds() - start;
    TN_TRY(plan_memory(c));
    return tn_tuner_finish(c->tuner);
}

/* What the compilation has outside the session; the pool may be an executable's by then. */
static void end(compilation *c)
{
    tn_tuner_free(c->tuner);
    tn_pool_free(c->pool);
    c->tuner = NULL;
    c->pool = NULL;
}

/* Said before anything is compiled for it. */
static tn_status check_gpu(const compilation *c)
{
    const char *refusal = c->machine->gpu ? tn_gpu_refusal(c->session, c->machine, c->device) : NULL;
    return refusal ? tn_error(c->session, TN_UNSUPPORTED, TN_NO_LOC, "%s", refusal) : TN_OK;
}

/* ---- variants ------------------------------------------------------------------------------------------------------------------ */

static bool names_size(const tn_graph *graph, const char *name)
{
    for (int i = 0; i < graph->body->nargs; i++)
        for (int d = 0; d < graph->body->arg[i]->type.rank; d++)
            if (tn_dim_mentions(graph->body->arg[i]->type.dim[d], name))
                return true;
    return false;
}

/* One "s=128,b=1": facts of the graph, which the pass `shapes` puts in everywhere. *end: behind it. */
static tn_status fix_sizes(tn_session *session, tn_graph *graph, const char *text, const char **end)
{
    const char *at = text;
    for (bool more = true; more; at = *end + more) {
        size_t len = strcspn(at, "=,;");
        const char *name = tn_strndup(&session->arena, at, len);
        char *behind = NULL;
        errno = 0;
        long long size = at[len] == '=' ? strtoll(at + len + 1, &behind, 10) : 0;
        if (!behind || behind == at + len + 1 || errno || size < 0 || !strchr(",;", *behind))
            return tn_error(session, TN_USAGE, TN_NO_LOC, "option variants: expected NAME=N,NAME=N, found '%.*s'", (int)strcspn(text, ";"), text);
        if (!names_size(graph, name))
            return tn_error(session, TN_USAGE, TN_NO_LOC, "option variants: no input has a dimension called '%s'", name);
        tn_dim symbol = tn_dim_symbol(session, name), fixed = tn_dim_const(session, size);
        if (size < symbol->lo || size > symbol->hi || (symbol->multiple > 1 && size % symbol->multiple))
            return tn_error(session, TN_USAGE, TN_NO_LOC, "option variants: %s=%lld is not a size that the network takes", name, size);
        TN_PUSH(&session->arena, &graph->equal, ((struct tn_dim_equal){.a = symbol, .b = fixed}));
        *end = behind;
        more = *behind == ',';
    }
    return TN_OK;
}

/* The network once more for the sizes at `text`. Kernels and weights that the first has too are its own on a CPU. */
static tn_status make_variant(compilation *c, tn_executable *e, const tn_graph *source, const char *text, const char **end)
{
    compilation v = {.session = c->session, .options = c->options, .how = c->how, .machine = c->machine, .threads = c->threads, .device = c->device};
    v.graph = tn_graph_clone(v.session, source);
    TN_TRY(fix_sizes(v.session, v.graph, text, end));
    TN_TRY(optimize(&v));
    tn_status status = fuse(&v);
    tn_tuner_free(v.tuner);
    tn_pool_free(v.pool);
    TN_TRY(status);
    tn_exec_options options = exec_options(&v);
    options.shared = v.how.plan_only ? NULL : e->exec;
    TN_TRY((v.how.plan_only ? tn_exec_plan : tn_exec_new)(v.session, v.program, &options, &e->exec->variant[e->exec->nvariants]));
    e->exec->nvariants++;
    return v.how.plan_only ? TN_OK : tn_exec_load(v.session, e->exec->variant[e->exec->nvariants - 1], e->pool);
}

/* Option variants: "s=128,b=1;s=512". */
static tn_status make_variants(compilation *c, tn_executable *e, const tn_graph *source)
{
    const char *at = tn_map_get_str(&c->session->options, "variants");
    size_t most = 1;
    for (const char *text = at; text && *text; text++)
        most += *text == ';';
    e->exec->variant = TN_NEW_ARRAY(&c->session->arena, tn_exec *, most);
    while (at && *at) {
        const char *text = at;
        tn_status status = make_variant(c, e, source, text, &at);
        if (status) /* the model may have none of the sizes that the error is about */
            tn_note(c->session, TN_NO_LOC, "while compiling the variant '%.*s'", (int)strcspn(text, ";"), text);
        TN_TRY(status);
        at += *at == ';';
    }
    return TN_OK;
}

/* ---- executables ----------------------------------------------------------------------------------------------------------- */

typedef struct compile_call {
    compilation c;
    const tn_graph *source; /* to be copied; NULL: c.graph is ours */
    tn_executable *executable;
} compile_call;

static tn_status build(void *argument)
{
    compile_call *call = argument;
    compilation *c = &call->c;
    tn_executable *e = call->executable;
    TN_TRY(start(c));
    if (!c->how.plan_only)
        TN_TRY(check_gpu(c));
    if (call->source)
        c->graph = tn_graph_clone(c->session, call->source);
    TN_TRY(optimize(c));
    TN_TRY(fuse(c));
    tn_exec_options options = exec_options(c);
    TN_TRY((c->how.plan_only ? tn_exec_plan : tn_exec_new)(c->session, c->program, &options, &e->exec));
    e->threads = c->threads;
    e->precision = c->precision;
    if (c->how.plan_only)
        return call->source ? make_variants(c, e, call->source) : TN_OK;
    TN_TRY(make_pool(c));
    e->pool = c->pool;
    c->pool = NULL;
    e->graph_seconds = c->graph_seconds;
    e->fuse_seconds = c->fuse_seconds;
    TN_TRY(tn_exec_load(c->session, e->exec, e->pool));
    return call->source ? make_variants(c, e, call->source) : TN_OK;
}

static tn_status compile(compile_call *call, tn_executable **out)
{
    call->executable = calloc(1, sizeof *call->executable);
    if (!call->executable)
        return TN_NO_MEMORY;
    call->executable->session = call->c.session;
    tn_status status = tn_api_guard(call->c.session, build, call);
    end(&call->c);
    if (status == TN_OK)
        *out = call->executable;
    else
        tn_executable_free(call->executable);
    return status;
}

tn_status tn_api_compile(tn_session *session, tn_graph *graph, const tn_compile_options *options, tn_executable **out)
{
    compile_call call = {.c = {.session = session, .options = options, .graph = graph}};
    return compile(&call, out);
}

tn_status tn_compile(tn_session *session, const tn_network *network, const tn_compile_options *options, tn_executable **out)
{
    return tn_api_compile_network(session, network, options, &(tn_compile_how){.plan_only = false}, out);
}

tn_status tn_api_compile_network(tn_session *session, const tn_network *network, const tn_compile_options *options, const tn_compile_how *how, tn_executable **out)
{
    compile_call call = {.c = {.session = session, .options = options, .how = *how}, .source = network ? network->graph : NULL};
    return session && network && out ? compile(&call, out) : TN_USAGE;
}

tn_status tn_api_refusal(tn_session *session, const tn_compile_options *options, const char **out)
{
    const tn_machine *machine;
    int device;
    TN_TRY(tn_gpu_machine(session, options ? options->machine : NULL, &machine, &device));
    *out = machine->gpu ? tn_gpu_refusal(session, machine, device) : tn_machine_refusal(&session->arena, machine);
    return TN_OK;
}

void tn_executable_free(tn_executable *executable)
{
    if (!executable)
        return;
    for (int i = 0; executable->exec && i < executable->exec->nvariants; i++) {
        tn_exec_unload(executable->exec->variant[i]);
        tn_exec_free(executable->exec->variant[i]);
    }
    tn_exec_unload(executable->exec);
    tn_exec_free(executable->exec);
    tn_pool_free(executable->pool);
    free(executable);
}

tn_status tn_executable_describe(const tn_executable *executable, tn_executable_info *out)
{
    if (!executable || !out)
        return TN_USAGE;
    const tn_exec *exec = executable->exec;
    *out = (tn_executable_info){
        .kernels = exec->kernels.len,
        .kernel_steps = exec->kernel_steps,
        .constant_bytes = exec->constant_bytes,
        .packed_bytes = exec->owned_bytes,
        .code_bytes = exec->code_bytes,
        .graph_seconds = executable->graph_seconds,
        .fuse_seconds = executable->fuse_seconds,
        .lower_seconds = exec->lower_seconds,
        .emit_seconds = exec->emit_seconds,
        .link_seconds = exec->link_seconds,
        .load_seconds = exec->load_seconds,
        .threads = tn_pool_threads(executable->pool),
        .machine = exec->machine->name,
        .device = exec->gpu ? exec->device : -1,
    };
    return TN_OK;
}

/* ---- stages ---------------------------------------------------------------------------------------------------------------- */

typedef struct stage_call {
    compilation c;
    const tn_graph *source;
    tn_stage stage;
    tn_blob blob;
} stage_call;

tn_status tn_api_keep_text(const tn_text *text, tn_blob *out)
{
    out->size = text->len;
    out->data = malloc(text->len + 1);
    if (!out->data)
        return TN_NO_MEMORY;
    if (text->len)
        memcpy(out->data, text->at, text->len);
    out->data[text->len] = 0;
    return TN_OK;
}

static tn_status emit_stage(void *argument)
{
    static const tn_emit emits[] = {[TN_STAGE_LLVM] = TN_EMIT_LLVM, [TN_STAGE_ASM] = TN_EMIT_ASM, [TN_STAGE_OBJECT] = TN_EMIT_OBJECT};
    enum { SHOWN_ELEMENTS = 64 };
    stage_call *call = argument;
    compilation *c = &call->c;
    tn_text text = {.arena = &c->session->arena};
    TN_TRY(start(c));
    c->graph = tn_graph_clone(c->session, call->source);
    TN_TRY(optimize(c));
    if (call->stage == TN_STAGE_GRAPH) {
        tn_text_graph_elided(&text, c->graph, SHOWN_ELEMENTS);
        return tn_api_keep_text(&text, &call->blob);
    }
    TN_TRY(fuse(c));
    tn_exec_options options = exec_options(c);
    if (call->stage == TN_STAGE_TILE)
        tn_text_program(&text, c->program);
    else if (call->stage == TN_STAGE_SCHEDULE)
        tn_text_schedule(&text, c->tuner);
    else if (call->stage == TN_STAGE_LOOP)
        TN_TRY(tn_exec_loop_text(c->session, c->program, &options, &text));
    else
        return tn_exec_emit(c->session, c->program, &options, emits[call->stage], &call->blob);
    return tn_api_keep_text(&text, &call->blob);
}

tn_status tn_emit_stage(tn_session *session, const tn_network *network, const tn_compile_options *options, tn_stage stage, char **out, size_t *size)
{
    if (!session || !network || !out || !size || (unsigned)stage > TN_STAGE_SCHEDULE)
        return TN_USAGE;
    stage_call call = {.c = {.session = session, .options = options, .listed = stage == TN_STAGE_SCHEDULE}, .source = network->graph, .stage = stage};
    tn_status status = tn_api_guard(session, emit_stage, &call);
    end(&call.c);
    if (status != TN_OK) {
        free(call.blob.data);
        return status;
    }
    *out = call.blob.data;
    *size = call.blob.size;
    return TN_OK;
}

/* ---- memory ------------------------------------------------------------------------------------------------------------------ */

tn_memory_info tn_api_memory_info(const tn_exec *exec, const tn_run_memory *memory)
{
    const tn_exec_step *step = memory->step >= 0 ? &exec->steps.at[memory->step] : NULL;
    const tn_step *what = step ? step->step : NULL;
    return (tn_memory_info){
        .arena = (size_t)memory->arena,
        .lower_bound = (size_t)memory->bound,
        .total = (size_t)memory->total,
        .scratch = (size_t)memory->scratch,
        .inputs = (size_t)memory->inputs,
        .outputs = (size_t)memory->outputs,
        .complete = memory->complete,
        .weights = (size_t)memory->weights,
        .packed = (size_t)memory->packed,
        .peak = (size_t)memory->peak,
        .step = !step ? "" : step->name ? step->name : what->ops.len ? tn_op_name(what->ops.at[0]->code) : "copy",
        .nodes = step && step->nodes ? step->nodes : "",
    };
}

typedef struct memory_call {
    compilation c;
    const tn_graph *source;
    const DLTensor *inputs;
    size_t ninputs;
    tn_memory_info *out;
} memory_call;

static tn_status check_ranks(const memory_call *call)
{
    const tn_block *body = call->source->body;
    if (call->ninputs != (size_t)body->nargs)
        return tn_error(call->c.session, TN_USAGE, TN_NO_LOC, "expected %d inputs, found %zu", body->nargs, call->ninputs);
    for (int i = 0; i < body->nargs; i++)
        if (call->inputs[i].ndim != body->arg[i]->type.rank || (call->inputs[i].ndim > 0 && !call->inputs[i].shape))
            return tn_error(call->c.session, TN_USAGE, TN_NO_LOC, "input %d: expected a shape of rank %d", i, body->arg[i]->type.rank);
    return TN_OK;
}

static tn_status network_memory(void *argument)
{
    memory_call *call = argument;
    compilation *c = &call->c;
    tn_exec *exec;
    tn_run_memory memory;
    TN_TRY(check_ranks(call));
    TN_TRY(start(c));
    c->graph = tn_graph_clone(c->session, call->source);
    TN_TRY(optimize(c));
    TN_TRY(fuse(c));
    tn_exec_options options = exec_options(c);
    double start_time = tn_seconds();
    TN_TRY(tn_exec_plan(c->session, c->program, &options, &exec));
    tn_shape *shapes = TN_NEW_ARRAY(&c->session->arena, tn_shape, call->ninputs + 1);
    for (size_t i = 0; i < call->ninputs; i++)
        shapes[i] = (tn_shape){call->inputs[i].ndim, call->inputs[i].shape};
    tn_status status = tn_plan_memory(c->session, exec, shapes, c->threads, &memory);
    if (status == TN_OK)
        status = tn_plan_check_limit(c->session, exec, &memory);
    if (status == TN_OK)
        *call->out = tn_api_memory_info(exec, &memory);
    call->out->graph_seconds = c->graph_seconds;
    call->out->fuse_seconds = c->fuse_seconds;
    call->out->lower_seconds = exec->lower_seconds;
    call->out->plan_seconds = tn_seconds() - start_time - exec->lower_seconds;
    tn_exec_free(exec);
    return status;
}

tn_status tn_network_memory(tn_session *session, const tn_network *network, const tn_compile_options *options, const DLTensor *inputs, size_t ninputs, tn_memory_info *out)
{
    if (!session || !network || (!inputs && ninputs) || !out)
        return TN_USAGE;
    memory_call call = {.c = {.session = session, .options = options, .only_plan = true}, .source = network->graph, .inputs = inputs, .ninputs = ninputs, .out = out};
    tn_status status = tn_api_guard(session, network_memory, &call);
    end(&call.c);
    return status;
}

void tn_free(void *memory)
{
    free(memory);
}
