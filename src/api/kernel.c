/* Kernels in Triton's language. A module has an inner session of its own: what its kernels are made of goes when the last of them does, and their symbols
 * (a number called n) are not those of a network that is compiled in the same session. Diagnostics go on to the caller's session after each call. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "run/run.h"
#include "triton/triton.h"

typedef struct home {
    tn_session session;
    _Atomic int users; /* the module, and each kernel */
} home;

struct tn_module {
    tn_session *session;
    home *home;
    tn_triton_module *triton;
};

struct tn_compiled_kernel {
    home *home;
    tn_kernel *kernel; /* as the front end made it */
    tn_code code;
    tn_launcher *launcher;         /* one of the two: for a CPU, for a GPU */
    tn_gpu_launcher *gpu_launcher;
    const tn_launch_value *values;
    tn_kernel_info info;
};

/* ---- homes ------------------------------------------------------------------------------------------------------------------ */

static home *new_home(void)
{
    home *h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->session.strings.arena = h->session.options.arena = &h->session.arena;
    h->users = 1;
    return h;
}

static void leave(home *h)
{
    if (!h || atomic_fetch_sub(&h->users, 1) != 1)
        return;
    tn_arena_free(&h->session.arena);
    free(h);
}

typedef struct passing_on {
    tn_session *to;
    tn_session *from;
} passing_on;

static tn_status pass_on(void *argument)
{
    const passing_on *p = argument;
    for (size_t i = 0; i < p->from->diags.len; i++) {
        const tn_diag *d = &p->from->diags.at[i];
        if (d->severity == TN_ERROR)
            tn_error(p->to, d->status, d->loc, "%s", d->message);
        else if (d->severity == TN_PRINT)
            tn_said(p->to, d->loc, d->message);
        else
            (d->severity == TN_WARNING ? tn_warning : tn_note)(p->to, d->loc, "%s", d->message);
    }
    return TN_OK;
}

/* Calls fn with the inner session ready; its messages become the outer session's. */
static tn_status call_inside(tn_session *session, home *h, tn_status (*fn)(void *argument), void *argument)
{
    passing_on p = {session, &h->session};
    tn_status status = tn_api_guard(&h->session, fn, argument);
    tn_status passed = tn_api_guard(session, pass_on, &p);
    h->session.diags.len = h->session.errors = 0;
    return status == TN_OK ? passed : status;
}

/* ---- modules ------------------------------------------------------------------------------------------------------------------ */

typedef struct module_call {
    tn_module *module;
    int unit, other, first_line;
    const char *file, *text, *name, *function;
    size_t size, n;
    const char *config;
    int *out_unit;
    const tn_triton_parameter *parameters;
} module_call;

static tn_status make_module(void *argument)
{
    module_call *c = argument;
    c->module->triton = tn_triton_module_new(&c->module->home->session);
    return TN_OK;
}

tn_status tn_module_new(tn_session *session, tn_module **out)
{
    if (!session || !out)
        return TN_USAGE;
    tn_module *module = calloc(1, sizeof *module);
    module_call c = {.module = module};
    if (!module || !(module->home = new_home())) {
        free(module);
        return TN_NO_MEMORY;
    }
    module->session = session;
    tn_status status = call_inside(session, module->home, make_module, &c);
    if (status == TN_OK)
        *out = module;
    else
        tn_module_free(module);
    return status;
}

void tn_module_free(tn_module *module)
{
    if (!module)
        return;
    leave(module->home);
    free(module);
}

static tn_status inside(module_call *c, tn_status (*fn)(void *argument))
{
    return call_inside(c->module->session, c->module->home, fn, c);
}

static tn_status add(void *argument)
{
    const module_call *c = argument;
    return tn_triton_add(c->module->triton, c->file, c->first_line, c->text, c->size, c->out_unit);
}

tn_status tn_module_add(tn_module *module, const char *file, int first_line, const char *text, size_t size, int *unit)
{
    int number;
    module_call c = {.module = module, .file = file, .first_line = first_line, .text = text ? text : "", .size = size, .out_unit = &number};
    if (!module || !file || (!text && size) || !unit)
        return TN_USAGE;
    TN_TRY(inside(&c, add));
    *unit = number;
    return TN_OK;
}

static tn_status bind(void *argument)
{
    const module_call *c = argument;
    return tn_triton_bind(c->module->triton, c->unit, c->name, c->text);
}

tn_status tn_module_bind(tn_module *module, int unit, const char *name, const char *literal)
{
    module_call c = {.module = module, .unit = unit, .name = name, .text = literal};
    return module && name && literal ? inside(&c, bind) : TN_USAGE;
}

static tn_status bind_function(void *argument)
{
    const module_call *c = argument;
    return tn_triton_bind_function(c->module->triton, c->unit, c->name, c->other, c->function);
}

tn_status tn_module_bind_function(tn_module *module, int unit, const char *name, int other, const char *function)
{
    module_call c = {.module = module, .unit = unit, .name = name, .other = other, .function = function};
    return module && name && function ? inside(&c, bind_function) : TN_USAGE;
}

static tn_status find_parameters(void *argument)
{
    module_call *c = argument;
    return tn_triton_parameters(c->module->triton, c->unit, c->function, &c->parameters, &c->n);
}

tn_status tn_module_parameter(tn_module *module, int unit, const char *function, size_t i, tn_kernel_parameter *out)
{
    module_call c = {.module = module, .unit = unit, .function = function};
    if (!module || !function || !out)
        return TN_USAGE;
    TN_TRY(inside(&c, find_parameters));
    if (i >= c.n)
        return TN_USAGE;
    const tn_triton_parameter *p = &c.parameters[i];
    *out = (tn_kernel_parameter){.name = p->name, .constexpr_ = p->constexpr, .optional = p->optional, .do_not_specialize = p->do_not_specialize, .type = p->type};
    return TN_OK;
}

size_t tn_module_parameter_count(tn_module *module, int unit, const char *function)
{
    module_call c = {.module = module, .unit = unit, .function = function};
    return module && function && inside(&c, find_parameters) == TN_OK ? c.n : 0;
}

static tn_status count_configs(void *argument)
{
    module_call *c = argument;
    return tn_triton_configs(c->module->triton, c->unit, c->function, &c->n);
}

size_t tn_module_config_count(tn_module *module, int unit, const char *function)
{
    module_call c = {.module = module, .unit = unit, .function = function};
    return module && function && inside(&c, count_configs) == TN_OK ? c.n : 0;
}

static tn_status find_config(void *argument)
{
    module_call *c = argument;
    c->config = tn_triton_config(c->module->triton, c->unit, c->function, c->n);
    return TN_OK;
}

const char *tn_module_config(tn_module *module, int unit, const char *function, size_t i)
{
    module_call c = {.module = module, .unit = unit, .function = function, .n = i};
    return module && function && inside(&c, find_config) == TN_OK ? c.config : NULL;
}

/* ---- the front end ---------------------------------------------------------------------------------------------------------- */

typedef struct compilation {
    tn_session *session; /* the inner one */
    tn_module *module;
    int unit;
    const char *function;
    const char *const *arguments;
    size_t narguments;
    tn_kernel_options options;
    tn_exec_options exec;
    int device; /* number of the GPU */
    tn_triton_kernel front;
    const tn_triton_parameter *parameters; /* of the function */
    double front_seconds;
    tn_stage stage;
    tn_blob blob;
    tn_compiled_kernel *kernel;
} compilation;

/* Numbers that are called like a size of the grid get another name: the two would be one. */
static void separate_from_grid(tn_triton_kernel *front)
{
    tn_kernel *kernel = front->kernel;
    tn_session *session = kernel->session;
    for (size_t i = 0; i < front->nvalues; i++) {
        tn_triton_value *v = (tn_triton_value *)(uintptr_t)&front->value[i];
        if (v->scalar < 0 || v->type.pointer)
            continue;
        for (size_t g = 0; g < kernel->grid.len; g++) {
            const tn_dim limit = kernel->grid.at[g].limit;
            if (limit->kind == TN_DIM_SYMBOL && !strcmp(limit->name, v->name))
                v->name = kernel->scalars.at[v->scalar]->name = tn_intern_z(session, tn_format(&session->arena, "%s.number", v->name));
        }
    }
}

enum { MOST_WARPS = 32, MOST_STAGES = 8 };

static tn_status check_options(tn_session *session, const tn_kernel_options *o)
{
    if (o->num_warps < 0 || o->num_warps > MOST_WARPS || (o->num_warps & (o->num_warps - 1)))
        return tn_error(session, TN_USAGE, TN_NO_LOC, "num_warps: expected a power of two up to %d, or 0 for the kernel's own, found %d", MOST_WARPS, o->num_warps);
    const struct { const char *name; int value; } numbers[] = {{"num_stages", o->num_stages}, {"threads", o->threads}, {"config", o->config}};
    for (size_t i = 0; i < TN_COUNT(numbers); i++)
        if (numbers[i].value < 0)
            return tn_error(session, TN_USAGE, TN_NO_LOC, "%s: expected a number that is not negative, found %d", numbers[i].name, numbers[i].value);
    return tn_api_check_print(session, o->print_after, true);
}

/* On a GPU the kernel's warps work on a program together, and stages of a product's operands are on their way: autotune's configurations say how many without a
 * check. More stages than there can be are as many as there can be. */
static tn_status schedule_for_gpu(const compilation *c)
{
    int warps = c->front.num_warps, stages = c->front.num_stages;
    if (warps < 1 || warps > MOST_WARPS || (warps & (warps - 1)))
        return tn_error(c->session, TN_USAGE, TN_NO_LOC, "kernel %s: num_warps is %d, and can be a power of two up to %d", c->function, warps, MOST_WARPS);
    int ctas = tn_gpu_cluster(c->session, c->front.kernel, c->exec.machine);
    tn_schedule_set(c->front.kernel, "", "warps", ctas > 1 ? tn_min(warps, TN_CLUSTER_WARPS) : warps);
    if (ctas > 1)
        tn_schedule_set(c->front.kernel, "", "cluster", ctas);
    tn_schedule_set(c->front.kernel, "", "stages", stages < 1 ? 1 : stages > MOST_STAGES ? MOST_STAGES : stages);
    return TN_OK;
}

static tn_status run_front_end(compilation *c)
{
    TN_TRY(check_options(c->session, &c->options));
    double start = tn_seconds();
    size_t n;
    tn_numerics numerics;
    TN_TRY(tn_api_numerics(c->session, tn_map_get_str(&c->module->session->options, "numerics"), &numerics));
    c->session->dims = NULL; /* symbols are a kernel's own: what is known of n in one is not known in the next */
    c->exec = (tn_exec_options){.level = TN_API_CODE_LEVEL, .verify = c->options.verify != 0};
    TN_TRY(tn_gpu_machine(c->session, c->options.machine, &c->exec.machine, &c->device));
    bool gpu = c->exec.machine->gpu;
    if (gpu)
        c->exec.architecture = tn_gpu_architecture(&c->session->arena, c->exec.machine, c->device);
    tn_triton_options options = {.num_warps = c->options.num_warps, .num_stages = c->options.num_stages, .config = c->options.config, .debug = c->options.debug != 0,
                                 .gpu = tn_gpu_capability(c->exec.machine), .apart = gpu && c->options.apart, .contract = gpu && !c->options.strict && numerics != TN_NUMERICS_STRICT};
    TN_TRY(tn_triton_compile(c->module->triton, c->unit, c->function, c->arguments, c->narguments, &options, &c->front));
    TN_TRY(tn_triton_parameters(c->module->triton, c->unit, c->function, &c->parameters, &n));
    separate_from_grid(&c->front);
    if (gpu)
        TN_TRY(schedule_for_gpu(c));
    const char *print = c->options.print_after;
    c->exec.print_after = print && !strcmp(print, "tile") ? print : tn_api_loop_print(print);
    c->front_seconds = tn_seconds() - start;
    return TN_OK;
}

/* ---- what a launch brings --------------------------------------------------------------------------------------------------- */

static tn_launch_value describe_value(const tn_triton_value *v)
{
    return (tn_launch_value){.name = v->name, .dtype = v->type.dtype, .pointer = v->buffer >= 0};
}

/* Values of the arguments that are no constants, in order: those of the front end (a descriptor has several), and numbers that are always 1, of which it
 * makes constants. */
static size_t list_values(const compilation *c, tn_launch_value *out)
{
    const tn_triton_value *v = c->front.value, *end = v + c->front.nvalues;
    size_t n = 0;
    for (size_t i = 0; i < c->narguments; i++) {
        const char *text = c->arguments[i], *name = c->parameters[i].name;
        size_t len = strlen(name);
        if (!text || text[0] == '=')
            continue;
        if (strchr(text, '=')) {
            int64_t one = strcmp(strchr(text, '='), "=1") == 0;
            out[n++] = (tn_launch_value){.name = name, .dtype = TN_I64, .one = one};
            continue;
        }
        size_t first = n;
        for (; v < end && !strncmp(v->name, name, len) && (!v->name[len] || v->name[len] == '.'); v++)
            out[n++] = describe_value(v);
        if (n > first && strchr(text, ':'))
            out[first].divisor = strtoll(strchr(text, ':') + 1, NULL, 10);
    }
    return n;
}

/* ---- compiling ---------------------------------------------------------------------------------------------------------------- */

static bool code_from_disk(compilation *c, const char *folder, const char *key)
{
    tn_session *session = c->session;
    size_t diags = session->diags.len, errors = session->errors;
    tn_code *code = &c->kernel->code;
    if (!folder || !key || !tn_cache_get(folder, key, c->front.kernel, code))
        return false;
    if (tn_code_link(session, code) == TN_OK)
        return true;
    tn_code_free(code); /* whole, but not what the linker takes: as if it were not there */
    session->diags.len = diags;
    session->errors = errors;
    return false;
}

static tn_status make_code(compilation *c)
{
    tn_code *code = &c->kernel->code;
    const char *folder = tn_cache_folder(&c->session->arena, c->options.cache);
    const char *key = folder ? tn_cache_key(c->front.kernel, &c->exec) : NULL;
    bool shown = c->exec.print_after || c->exec.verify; /* then the work itself is wanted */
    c->kernel->info.cached = !shown && code_from_disk(c, folder, key);
    code->machine = c->exec.machine;
    if (c->kernel->info.cached)
        return TN_OK;
    TN_TRY(tn_code_compile(c->front.kernel, &c->exec, code));
    if (key)
        tn_cache_put(folder, key, c->front.kernel, code);
    return tn_code_link(c->session, code);
}

static uint64_t written_by(const tn_kernel *kernel, const tn_launch_value *values, size_t n)
{
    uint64_t written = 0;
    for (size_t i = 0; i < n && i < 64; i++)
        for (size_t b = 0; values[i].pointer && b < kernel->buffers.len; b++)
            if (!strcmp(kernel->buffers.at[b].name, values[i].name) && kernel->buffers.at[b].mode != TN_READ)
                written |= (uint64_t)1 << i;
    return written;
}

static tn_status make_launcher(compilation *c, size_t nvalues)
{
    tn_compiled_kernel *k = c->kernel;
    tn_pools *pools = c->module->session->pools;
    if (!c->exec.machine->gpu) {
        k->info.threads = c->options.threads > 0 ? c->options.threads : tn_pools_cpus(pools);
        return tn_launcher_new(c->session, &k->code, k->kernel, pools, k->info.threads, k->values, nvalues, &k->launcher);
    }
    const char *missing = tn_gpu_refusal(c->session, c->exec.machine, c->device);
    k->info.threads = k->code.threads;
    k->info.shared_bytes = (size_t)k->code.shared;
    TN_TRY(tn_gpu_launcher_new(c->session, &k->code, k->kernel, c->device, missing, k->values, nvalues, &k->gpu_launcher));
    if (!tn_gpu_launcher_registers(k->gpu_launcher, &k->info.registers, &k->info.spill_bytes))
        k->info.registers = k->info.spill_bytes = -1;
    return TN_OK;
}

static tn_status compile(void *argument)
{
    compilation *c = argument;
    tn_compiled_kernel *k = c->kernel;
    TN_TRY(run_front_end(c));
    const char *refusal = c->exec.machine->gpu ? NULL : tn_machine_refusal(&c->session->arena, c->exec.machine);
    if (refusal)
        return tn_error(c->session, TN_UNSUPPORTED, TN_NO_LOC, "%s", refusal);
    k->kernel = c->front.kernel;
    TN_TRY(make_code(c));
    tn_launch_value *values = TN_NEW_ARRAY(&c->session->arena, tn_launch_value, c->narguments + c->front.nvalues + 1);
    size_t n = list_values(c, values);
    k->values = values;
    k->info = (tn_kernel_info){.nvalues = n, .code_bytes = k->code.code_bytes, .front_seconds = c->front_seconds, .lower_seconds = k->code.lower_seconds,
                               .emit_seconds = k->code.emit_seconds, .cached = k->info.cached, .num_warps = c->front.num_warps, .num_stages = c->front.num_stages,
                               .machine = c->exec.machine->name, .pointer_accesses = k->code.pointer_accesses, .device = c->exec.machine->gpu ? c->device : -1,
                               .written = written_by(k->kernel, values, n)};
    double start = tn_seconds();
    TN_TRY(make_launcher(c, n));
    k->info.link_seconds = k->code.link_seconds + tn_seconds() - start;
    return TN_OK;
}

static bool is_usable(const tn_session *session, const tn_module *module, const char *function, const char *const *arguments, size_t narguments)
{
    return session && module && function && (arguments || !narguments) && module->session == session;
}

static compilation start(tn_module *module, int unit, const char *function, const char *const *arguments, size_t narguments, const tn_kernel_options *options)
{
    compilation c = {.session = &module->home->session, .module = module, .unit = unit, .function = function, .arguments = arguments, .narguments = narguments};
    if (options)
        c.options = *options;
    return c;
}

tn_status tn_kernel_compile(tn_session *session, tn_module *module, int unit, const char *function, const char *const *arguments, size_t narguments,
                            const tn_kernel_options *options, tn_compiled_kernel **out)
{
    if (!is_usable(session, module, function, arguments, narguments) || !out)
        return TN_USAGE;
    if (!session->pools && !(session->pools = tn_pools_new()))
        return TN_NO_MEMORY;
    compilation c = start(module, unit, function, arguments, narguments, options);
    c.kernel = calloc(1, sizeof *c.kernel);
    if (!c.kernel)
        return TN_NO_MEMORY;
    c.kernel->home = module->home;
    atomic_fetch_add(&module->home->users, 1);
    tn_status status = call_inside(session, module->home, compile, &c);
    if (status == TN_OK)
        *out = c.kernel;
    else
        tn_compiled_kernel_free(c.kernel);
    return status;
}

void tn_compiled_kernel_free(tn_compiled_kernel *kernel)
{
    if (!kernel)
        return;
    tn_launcher_free(kernel->launcher);
    tn_gpu_launcher_free(kernel->gpu_launcher);
    tn_code_free(&kernel->code);
    leave(kernel->home);
    free(kernel);
}

/* ---- stages -------------------------------------------------------------------------------------------------------------------- */

static tn_status emit(void *argument)
{
    static const tn_emit emits[] = {[TN_STAGE_LLVM] = TN_EMIT_LLVM, [TN_STAGE_ASM] = TN_EMIT_ASM, [TN_STAGE_OBJECT] = TN_EMIT_OBJECT};
    compilation *c = argument;
    tn_text text = {.arena = &c->session->arena};
    TN_TRY(run_front_end(c));
    if (c->stage > TN_STAGE_LOOP)
        return tn_code_emit(c->front.kernel, &c->exec, emits[c->stage], &c->blob);
    TN_TRY((c->stage == TN_STAGE_TILE ? tn_code_tile_text : tn_code_loop_text)(c->front.kernel, &c->exec, &text));
    return tn_api_keep_text(&text, &c->blob);
}

tn_status tn_kernel_emit(tn_session *session, tn_module *module, int unit, const char *function, const char *const *arguments, size_t narguments,
                         const tn_kernel_options *options, tn_stage stage, char **out, size_t *size)
{
    if (!is_usable(session, module, function, arguments, narguments) || !out || !size || stage <= TN_STAGE_GRAPH || stage > TN_STAGE_OBJECT)
        return TN_USAGE;
    compilation c = start(module, unit, function, arguments, narguments, options);
    c.stage = stage;
    tn_status status = call_inside(session, module->home, emit, &c);
    if (status != TN_OK) {
        free(c.blob.data);
        return status;
    }
    *out = c.blob.data;
    *size = c.blob.size;
    return TN_OK;
}

/* ---- launching -------------------------------------------------------------------------------------------------------------------- */

static _Thread_local char launch_error[1024]; /* of this thread's last launch */

static tn_status refuse_launch(const char *why)
{
    snprintf(launch_error, sizeof launch_error, "%s", why);
    return TN_USAGE;
}

tn_status tn_kernel_launch_on(const tn_compiled_kernel *kernel, const int64_t grid[3], const tn_kernel_value *values, size_t nvalues, void *stream)
{
    launch_error[0] = 0;
    if (!kernel || !grid || (!values && nvalues))
        return refuse_launch("no kernel, grid or values were given");
    if (kernel->gpu_launcher)
        return tn_gpu_launcher_run(kernel->gpu_launcher, grid, values, nvalues, stream, launch_error, sizeof launch_error);
    if (stream)
        return refuse_launch("a stream was given, and the kernel was compiled for a CPU");
    return tn_launcher_run(kernel->launcher, grid, values, nvalues, launch_error, sizeof launch_error);
}

tn_status tn_kernel_launch(const tn_compiled_kernel *kernel, const int64_t grid[3], const tn_kernel_value *values, size_t nvalues)
{
    return tn_kernel_launch_on(kernel, grid, values, nvalues, NULL);
}

tn_status tn_kernel_wait(const tn_compiled_kernel *kernel, void *stream)
{
    launch_error[0] = 0;
    if (!kernel)
        return refuse_launch("no kernel was given");
    return kernel->gpu_launcher ? tn_gpu_launcher_wait(kernel->gpu_launcher, stream, launch_error, sizeof launch_error) : TN_OK;
}

const struct tn_gpu *tn_api_kernel_gpu(const tn_compiled_kernel *kernel)
{
    return kernel->gpu_launcher ? tn_gpu_launcher_gpu(kernel->gpu_launcher) : NULL;
}

const char *tn_kernel_error(void)
{
    return launch_error;
}

tn_status tn_kernel_describe(const tn_compiled_kernel *kernel, tn_kernel_info *out)
{
    if (!kernel || !out)
        return TN_USAGE;
    *out = kernel->info;
    out->scratch_bytes = kernel->launcher ? (size_t)tn_launcher_scratch(kernel->launcher) : 0;
    return TN_OK;
}

/* ---- the checked run ---------------------------------------------------------------------------------------------------------------- */

typedef struct check_call {
    const tn_compiled_kernel *kernel;
    const int64_t *grid;
    const tn_kernel_value *values;
    const int64_t *elements;
    const int *fresh;
} check_call;

static size_t value_called(const check_call *c, const char *name, bool pointer)
{
    size_t n = c->kernel->info.nvalues;
    for (size_t i = 0; i < n; i++)
        if (!c->kernel->values[i].one && c->kernel->values[i].pointer == pointer && !strcmp(c->kernel->values[i].name, name))
            return i;
    return n;
}

static bool number_called(void *context, const char *name, int64_t *out)
{
    const check_call *c = context;
    const tn_kernel *kernel = c->kernel->kernel;
    size_t i = value_called(c, name, false);
    if (i < c->kernel->info.nvalues) {
        *out = tn_launch_bits(c->kernel->values[i].dtype, c->values[i]);
        return true;
    }
    for (size_t g = 0; g < kernel->grid.len; g++) /* the innermost coordinate is the first of the grid */
        if (!strcmp(kernel->grid.at[g].limit->name, name)) {
            *out = c->grid[kernel->grid.len - 1 - g];
            return true;
        }
    return false;
}

static tn_status check(void *argument)
{
    check_call *c = argument;
    const tn_kernel *kernel = c->kernel->kernel;
    tn_arena *arena = &kernel->session->arena;
    char error[1024];
    tn_tile_arg *buffers = TN_NEW_ARRAY(arena, tn_tile_arg, kernel->buffers.len + 1);
    bool *fresh = TN_NEW_ARRAY(arena, bool, kernel->buffers.len + 1);
    tn_status status = tn_launch_check(c->kernel->values, c->grid, c->values, c->kernel->info.nvalues, error, sizeof error);
    if (status != TN_OK)
        return tn_error(kernel->session, status, TN_NO_LOC, "%s", error);
    for (size_t i = 0; i < kernel->buffers.len; i++) {
        size_t v = value_called(c, kernel->buffers.at[i].name, true);
        buffers[i] = (tn_tile_arg){c->values[v].pointer, c->elements ? c->elements[v] : -1};
        fresh[i] = c->fresh && c->fresh[v];
    }
    tn_tile_check_options options = {.fresh = fresh};
    return tn_tile_check(kernel, buffers, number_called, c, &options);
}

tn_status tn_kernel_check(tn_session *session, const tn_compiled_kernel *kernel, const int64_t grid[3], const tn_kernel_value *values, size_t nvalues,
                          const int64_t *elements, const int *fresh)
{
    if (!session || !kernel || !grid || (!values && nvalues))
        return TN_USAGE;
    if (nvalues != kernel->info.nvalues)
        return tn_error(session, TN_USAGE, TN_NO_LOC, "kernel %s takes %zu values, found %zu", kernel->code.symbol, kernel->info.nvalues, nvalues);
    check_call c = {kernel, grid, values, elements, fresh};
    return call_inside(session, kernel->home, check, &c);
}
