/* Kernels to machine code: equal ones once, in parallel.
 *
 * Kernels are equal if their Tile IR prints alike but for the name. Lowering and the loop passes work in the session (they intern names and
 * dimensions), one kernel after the other; LLVM, where the time goes, runs in all threads, a batch of kernels a module. */
#include <stdlib.h>
#include <string.h>

#include "plan/internal.h"

enum { BATCHES_A_THREAD = 4 };

const tn_tbuffer *tn_plan_parameter(const tn_kernel *kernel, int i)
{
    for (size_t k = 0; k < kernel->buffers.len; k++)
        if (kernel->buffers.at[k].mode != TN_LOCAL && i-- == 0)
            return &kernel->buffers.at[k];
    return NULL;
}

/* The text from the parameter list on, in the place of the one before. */
static const char *canonical_text(tn_text *text, const tn_kernel *kernel)
{
    text->len = 0;
    tn_text_kernel(text, kernel);
    const char *open = strchr(text->at, '(');
    return open ? open : text->at;
}

static bool has_sized_alloc(const tn_lblock *block)
{
    for (const tn_lop *op = block->first; op; op = op->next) {
        if (op->code == TN_L_alloc && op->size < 0)
            return true;
        for (int i = 0; i < op->nregions; i++)
            if (has_sized_alloc(op->region[i]))
                return true;
    }
    return false;
}

/* Scratch is asked for at each change of sizes, so what does not depend on them is found once. */
static int64_t fixed_scratch(const tn_lfunc *loop)
{
    int64_t bytes;
    return !has_sized_alloc(loop->body) && tn_kernel_scratch(loop, NULL, &bytes) ? bytes : -1;
}

static const char *default_passes(const tn_exec_options *options)
{
    return options->loop_passes ? options->loop_passes : tn_loop_pipeline;
}

tn_status tn_plan_lower_kernel(tn_session *session, const tn_exec_options *options, const tn_machine *machine, tn_kernel *tile, tn_exec_kernel *out)
{
    tn_lfunc *loop;
    if (options->verify)
        TN_TRY(tn_tile_verify(tile));
    TN_TRY(tn_lower(session, tile, machine, &loop));
    tn_pass_options pass = {.vector = machine->vector};
    TN_TRY(tn_loop_run_passes(loop, default_passes(options), &pass, options->verify, options->print_after));
    *out = (tn_exec_kernel){.tile = tile, .loop = loop, .symbol = loop->name, .scratch = fixed_scratch(loop), .traps = tn_kernel_traps(loop),
                            .threads = loop->threads, .shared = tn_loop_shared_bytes(loop),
                            .cluster = loop->cluster, .persistent = loop->persistent, .nmaps = (int)loop->maps.len, .map = tn_plan_maps(loop)};
    out->nsizes = (int)loop->params.len - loop->nbuffers - 2; /* all but %begin, %end */
    return TN_OK;
}

static void find_sizes(tn_exec *exec, tn_exec_kernel *kernel)
{
    size_t buffers = (size_t)kernel->loop->nbuffers;
    kernel->size = TN_NEW_ARRAY(&exec->session->arena, int, (size_t)kernel->nsizes + 1);
    for (int i = 0; i < kernel->nsizes; i++)
        kernel->size[i] = tn_plan_slot(exec, tn_dim_symbol(exec->session, kernel->loop->params.at[buffers + (size_t)i]->name));
}

static tn_status lower_kernel(tn_exec *exec, const tn_exec_options *options, tn_kernel *tile)
{
    tn_exec_kernel kernel;
    TN_TRY(tn_plan_lower_kernel(exec->session, options, exec->machine, tile, &kernel));
    find_sizes(exec, &kernel);
    TN_PUSH(&exec->session->arena, &exec->kernels, kernel);
    return TN_OK;
}

/* Lowerings of graph kernels know no node. */
static void name_nodes(tn_session *session, size_t first, const tn_exec_step *step)
{
    for (size_t i = first; i < session->diags.len && step->step->ops.len; i++)
        if (!session->diags.at[i].loc.node) {
            session->diags.at[i].loc = step->step->ops.at[0]->loc;
            session->diags.at[i].loc.node = step->nodes;
        }
}

tn_status tn_plan_lower(tn_exec *exec, const tn_exec_options *options)
{
    tn_session *session = exec->session;
    tn_map seen = {.arena = &session->arena}, lowered = {.arena = &session->arena}; /* text, tn_kernel -> kernel + 1 */
    tn_text room = {.arena = &session->arena};
    size_t errors = session->errors;
    double start = tn_seconds();
    for (size_t i = 0; i < exec->steps.len; i++) {
        tn_exec_step *step = &exec->steps.at[i];
        if (step->step->kind != TN_STEP_KERNEL)
            continue;
        uintptr_t known = (uintptr_t)tn_map_get(&lowered, TN_KEY(step->step->kernel)); /* of a step that runs twice: lowering changed its text */
        const char *text = known ? NULL : canonical_text(&room, step->step->kernel);
        if (!known)
            known = (uintptr_t)tn_map_get_str(&seen, text);
        if (!known) {
            size_t before = session->diags.len;
            void **cell = tn_map_at_str(&seen, text);
            tn_status status = lower_kernel(exec, options, step->step->kernel);
            name_nodes(session, before, step);
            if (status != TN_OK && (status != TN_UNSUPPORTED || session->errors == errors))
                return status;
            known = exec->kernels.len;
            if (status == TN_OK)
                *cell = *tn_map_at(&lowered, TN_KEY(step->step->kernel)) = (void *)known;
        }
        step->kernel = (int)known - 1;
        for (int s = 0; step->kernel >= 0 && s < exec->kernels.at[step->kernel].nsizes; s++) {
            int group = exec->symbols.at[exec->kernels.at[step->kernel].size[s]].group;
            step->group = group > step->group ? group : step->group;
        }
        if (session->progress)
            session->progress(session->progress_context, "lower", i + 1, exec->steps.len);
    }
    exec->lower_seconds += tn_seconds() - start;
    return session->errors == errors ? TN_OK : TN_UNSUPPORTED; /* all that is unsupported was named */
}

/* ---- machine code ------------------------------------------------------------------------------------------------------ */

typedef struct batch {
    tn_session session; /* diagnostics and memory of this job */
    jmp_buf oom;
    tn_lfunc **funcs;
    size_t n;
    const tn_kernel *first;
    const char *key; /* in the cache; NULL: not there */
    tn_blob blob, cubin;
    bool known;      /* from the cache */
    tn_status status;
} batch;

typedef struct emission {
    const tn_exec *exec;
    const tn_exec_options *options;
    batch *batches;
    size_t nbatches;
} emission;

static void session_start(tn_session *session, jmp_buf *oom)
{
    session->arena.on_oom = oom;
    session->strings.arena = session->options.arena = &session->arena;
}

/* No data: there is no ptxas. */
static tn_status assemble(tn_session *session, const tn_machine *machine, const tn_exec_options *options, const tn_blob *ptx, tn_blob *cubin)
{
    tn_ptxas_report report;
    return tn_ptxas(session, options->architecture ? options->architecture : machine->name, ptx, cubin, &report);
}

static void emit_batch(void *context, size_t i)
{
    const emission *e = context;
    batch *b = &e->batches[i];
    session_start(&b->session, &b->oom);
    b->status = b->known ? TN_OK : TN_NO_MEMORY;
    if (b->known || setjmp(b->oom))
        return;
    b->status = tn_llvm_emit(&b->session, b->funcs, b->n, e->exec->machine, e->exec->machine->gpu ? TN_EMIT_ASM : TN_EMIT_OBJECT, e->options->level, &b->blob);
    if (b->status == TN_OK && e->exec->machine->gpu)
        b->status = assemble(&b->session, e->exec->machine, e->options, &b->blob, &b->cubin);
}

/* A batch's diagnostics become the session's; its memory goes. */
static tn_status finish_batch(tn_exec *exec, batch *b)
{
    for (size_t i = 0; i < b->session.diags.len; i++) {
        const tn_diag *d = &b->session.diags.at[i];
        if (d->severity == TN_ERROR)
            tn_error(exec->session, d->status, d->loc, "%s", d->message);
        else if (d->severity == TN_PRINT)
            tn_said(exec->session, d->loc, d->message);
        else if (d->severity == TN_NOTE)
            tn_note(exec->session, d->loc, "%s", d->message);
        else
            tn_warning(exec->session, d->loc, "%s", d->message);
    }
    if (b->status == TN_NO_MEMORY && b->session.errors == 0)
        tn_error(exec->session, TN_NO_MEMORY, TN_NO_LOC, "no memory to compile kernels");
    exec->code_bytes += b->cubin.data ? b->cubin.size : b->blob.size;
    if (exec->machine->gpu) {
        exec->images[exec->nimages++] = (tn_exec_image){b->blob, b->cubin};
    } else {
        if (b->status == TN_OK)
            b->status = tn_jit_add_object(exec->session, exec->jit, b->blob.data, b->blob.size);
        free(b->blob.data);
    }
    tn_arena_free(&b->session.arena);
    return b->status;
}

/* Kernels dealt out like cards, so that a batch has large and small ones. */
static void deal(tn_exec *exec, emission *e)
{
    tn_arena *arena = &exec->session->arena;
    for (size_t k = 0; k < e->nbatches; k++)
        e->batches[k].funcs = TN_NEW_ARRAY(arena, tn_lfunc *, exec->kernels.len / e->nbatches + 1);
    for (size_t i = 0; i < exec->kernels.len; i++) {
        batch *b = &e->batches[i % e->nbatches];
        b->funcs[b->n++] = (tn_lfunc *)(uintptr_t)exec->kernels.at[i].loop;
        b->first = b->first ? b->first : exec->kernels.at[i].tile;
        exec->kernels.at[i].image = (int)(i % e->nbatches);
    }
}

/* ---- code for a GPU in the cache ------------------------------------------------------------------------------------------- */

/* What the key of a kernel says, of the first; then the loops of all, since code depends on nothing else, and whether ptxas is there. */
static const char *batch_key(const tn_exec *exec, const tn_exec_options *options, const batch *b)
{
    tn_exec_options named = *options;
    named.machine = exec->machine;
    const char *one = tn_cache_key(b->first, &named);
    tn_text text = {.arena = &exec->session->arena};
    if (!one)
        return NULL;
    tn_text_add(&text, "%s\na batch of %zu, %s\n", one, b->n, tn_ptxas_is_there(&exec->session->arena) ? "assembled" : "as PTX");
    for (size_t i = 0; i < b->n; i++)
        tn_text_lfunc(&text, b->funcs[i]);
    return text.at;
}

/* The PTX's size is without the NUL that stands behind it. */
static bool copy_blob(const char *data, size_t size, tn_blob *out)
{
    *out = (tn_blob){malloc(size + 1), size};
    if (!out->data)
        return false;
    memcpy(out->data, data, size);
    out->data[size] = 0;
    return true;
}

static void find_batch(const tn_exec *exec, const tn_exec_options *options, batch *b)
{
    tn_code code;
    b->key = batch_key(exec, options, b);
    if (!b->key || !tn_cache_get(options->cache, b->key, b->first, &code))
        return;
    const char *ptx = tn_code_ptx(&code);
    b->known = code.threads > 0 && copy_blob(ptx, strlen(ptx), &b->blob) && (!code.cubin_bytes || copy_blob(tn_code_cubin(&code), code.cubin_bytes, &b->cubin));
    if (!b->known) {
        free(b->blob.data);
        b->blob = (tn_blob){NULL, 0};
    }
    tn_code_free(&code);
}

/* As the code of a kernel is kept: the cubin, and PTX with its NUL behind it. */
static void keep_batch(const tn_exec *exec, const tn_exec_options *options, const batch *b)
{
    tn_code code = {.symbol = b->funcs[0]->name, .threads = b->funcs[0]->threads, .cubin_bytes = b->cubin.size, .machine = exec->machine};
    code.object.size = b->cubin.size + b->blob.size + 1;
    code.object.data = malloc(code.object.size);
    if (!code.object.data)
        return;
    if (b->cubin.size)
        memcpy(code.object.data, b->cubin.data, b->cubin.size);
    memcpy(code.object.data + b->cubin.size, b->blob.data, b->blob.size + 1);
    tn_cache_put(options->cache, b->key, b->first, &code);
    free(code.object.data);
}

static tn_status find_functions(tn_exec *exec)
{
    for (size_t i = 0; i < exec->kernels.len; i++) {
        tn_exec_kernel *kernel = &exec->kernels.at[i];
        kernel->fn = (tn_kernel_fn)(uintptr_t)tn_jit_symbol(exec->jit, kernel->symbol);
        if (!kernel->fn)
            return tn_error(exec->session, TN_UNSUPPORTED, TN_NO_LOC, "kernel @%s: the linker could not place it", kernel->symbol);
    }
    return TN_OK;
}

tn_status tn_plan_link(tn_exec *exec, const tn_exec_options *options)
{
    size_t threads = (size_t)tn_max(1, options->threads ? options->threads : tn_cpu_count());
    size_t batches = threads == 1 ? 1 : threads * BATCHES_A_THREAD;
    emission e = {.exec = exec, .options = options, .nbatches = batches < exec->kernels.len ? batches : exec->kernels.len};
    double start = tn_seconds();
    if (exec->machine->gpu)
        exec->images = TN_NEW_ARRAY(&exec->session->arena, tn_exec_image, e.nbatches + 1);
    else
        TN_TRY(tn_jit_new(exec->session, &exec->jit));
    e.batches = TN_NEW_ARRAY(&exec->session->arena, batch, e.nbatches + 1);
    if (exec->kernels.len)
        deal(exec, &e);
    bool cached = exec->machine->gpu && options->cache;
    for (size_t i = 0; cached && i < e.nbatches; i++)
        find_batch(exec, options, &e.batches[i]);
    tn_parallel_for((int)threads, e.nbatches, emit_batch, &e);
    tn_status status = TN_OK;
    for (size_t i = 0; i < e.nbatches; i++) {
        tn_status one = finish_batch(exec, &e.batches[i]);
        if (cached && one == TN_OK && e.batches[i].key && !e.batches[i].known)
            keep_batch(exec, options, &e.batches[i]);
        status = status == TN_OK ? one : status;
    }
    exec->emit_seconds = tn_seconds() - start;
    start = tn_seconds();
    if (status == TN_OK && !exec->machine->gpu)
        status = find_functions(exec);
    exec->link_seconds = tn_seconds() - start;
    return status;
}

/* ---- texts --------------------------------------------------------------------------------------------------------------- */

static tn_status lower_all(tn_session *session, const tn_program *program, const tn_exec_options *options, tn_exec *exec)
{
    *exec = (tn_exec){.session = session, .program = program, .machine = options->machine ? options->machine : tn_machine_find(NULL)};
    exec->slots.arena = &session->arena;
    TN_TRY(tn_plan_steps(exec));
    return tn_plan_lower(exec, options);
}

static tn_status emit_cubin(tn_session *session, tn_lfunc *const *funcs, size_t n, const tn_exec *exec, const tn_exec_options *options, tn_blob *out)
{
    tn_blob ptx;
    TN_TRY(tn_llvm_emit(session, funcs, n, exec->machine, TN_EMIT_ASM, options->level, &ptx));
    tn_status status = assemble(session, exec->machine, options, &ptx, out);
    free(ptx.data);
    if (status != TN_OK || out->data)
        return status;
    return tn_error(session, TN_UNSUPPORTED, TN_NO_LOC, "machine '%s': an object of it is a cubin, which only ptxas makes; it is neither in the PATH nor in $TENON_PTXAS, or it "
                    "refused", exec->machine->name);
}

tn_status tn_exec_emit(tn_session *session, const tn_program *program, const tn_exec_options *options, tn_emit what, tn_blob *out)
{
    tn_exec exec;
    TN_TRY(lower_all(session, program, options, &exec));
    tn_lfunc **funcs = TN_NEW_ARRAY(&session->arena, tn_lfunc *, exec.kernels.len + 1);
    for (size_t i = 0; i < exec.kernels.len; i++)
        funcs[i] = (tn_lfunc *)(uintptr_t)exec.kernels.at[i].loop;
    if (exec.machine->gpu && what == TN_EMIT_OBJECT)
        return emit_cubin(session, funcs, exec.kernels.len, &exec, options, out);
    return tn_llvm_emit(session, funcs, exec.kernels.len, exec.machine, what, options->level, out);
}

tn_status tn_exec_loop_text(tn_session *session, const tn_program *program, const tn_exec_options *options, tn_text *out)
{
    tn_exec exec;
    TN_TRY(lower_all(session, program, options, &exec));
    for (size_t i = 0; i < exec.kernels.len; i++)
        tn_text_lfunc(out, exec.kernels.at[i].loop);
    return TN_OK;
}
