/* One kernel of a user to machine code. */
#include <stdlib.h>
#include <string.h>

#include "plan/internal.h"

/* ---- assertions ---------------------------------------------------------------------------------------------------------- */

/* Code says which assertion failed by a number, not by its line, so that the same code serves a text that was moved, and a file is known too. */
static void number_assertion(void *context, tn_top *op)
{
    if (op->code == TN_T_assert)
        op->loc.line = ++*(int *)context;
}

typedef struct assertion_search {
    int64_t left;
    const tn_top *found;
} assertion_search;

static void find_assertion(void *context, tn_top *op)
{
    assertion_search *s = context;
    if (op->code == TN_T_assert && --s->left == 0)
        s->found = op;
}

const tn_top *tn_code_assertion(const tn_kernel *kernel, int64_t number)
{
    assertion_search s = {.left = number};
    tn_tile_walk(kernel->body, find_assertion, &s);
    return s.found;
}

/* ---- stages ---------------------------------------------------------------------------------------------------------------- */

static bool prints(const tn_exec_options *options, const char *stage)
{
    return options->print_after && (!strcmp(options->print_after, stage) || !strcmp(options->print_after, "all"));
}

/* A copy to work on. Its name may be one that code has another use for: authors call kernels `exp`. */
static tn_kernel *copy_of(const tn_kernel *kernel)
{
    tn_kernel *tile = tn_kernel_clone(kernel);
    if (tn_llvm_is_library_name(tile->name))
        tile->name = tn_format(&tile->session->arena, "%s.kernel", tile->name);
    return tile;
}

static tn_status optimize(const tn_exec_options *options, tn_kernel *tile)
{
    TN_TRY(tn_tile_optimize(tile));
    if (options->machine->gpu)
        TN_TRY(tn_tile_straighten(tile));
    if (prints(options, "tile")) {
        tn_text text = {.arena = &tile->session->arena};
        tn_text_kernel(&text, tile);
        fprintf(stderr, "// after the passes on the Tile IR\n%s", text.at);
    }
    return TN_OK;
}

static tn_status lower(const tn_exec_options *options, tn_kernel *tile, tn_exec_kernel *out)
{
    TN_TRY(optimize(options, tile));
    return tn_plan_lower_kernel(tile->session, options, options->machine, tile, out);
}

/* ---- code ------------------------------------------------------------------------------------------------------------------- */

static const char **names_of(tn_session *session, tn_lvalue *const *params, int n)
{
    const char **names = TN_NEW_ARRAY(&session->arena, const char *, (size_t)n + 1);
    for (int i = 0; i < n; i++)
        names[i] = params[i]->name;
    return names;
}

const char *tn_code_ptx(const tn_code *code) { return code->object.data + code->cubin_bytes; }

const void *tn_code_cubin(const tn_code *code) { return code->cubin_bytes ? code->object.data : NULL; }

/* A cubin, which the driver wants to start where memory does, and the PTX with its NUL. Takes both blobs. */
static tn_status join_gpu_code(tn_session *session, tn_blob *cubin, tn_blob *ptx, tn_code *out)
{
    size_t size = cubin->size + ptx->size + 1;
    out->object = *ptx;
    out->cubin_bytes = cubin->size;
    if (cubin->data && !(out->object.data = realloc(cubin->data, size))) {
        free(cubin->data);
        free(ptx->data);
        return tn_error(session, TN_NO_MEMORY, TN_NO_LOC, "no memory for %zu bytes of code", size);
    }
    if (cubin->data) {
        memcpy(out->object.data + cubin->size, ptx->data, ptx->size + 1); /* tn_llvm_emit puts a NUL behind text */
        free(ptx->data);
    }
    out->object.size = size;
    return TN_OK;
}

static tn_status emit_gpu(tn_session *session, tn_lfunc *loop, const tn_exec_options *options, tn_code *out)
{
    tn_blob ptx, cubin;
    TN_TRY(tn_llvm_emit(session, &loop, 1, options->machine, TN_EMIT_ASM, options->level, &ptx));
    tn_status status = tn_ptxas(session, options->architecture ? options->architecture : options->machine->name, &ptx, &cubin, &out->report);
    if (status == TN_OK)
        return join_gpu_code(session, &cubin, &ptx, out);
    free(ptx.data);
    return status;
}

static void take_notes(tn_session *session, size_t from, tn_code *code)
{
    size_t n = 0;
    tn_diag *notes = TN_NEW_ARRAY(&session->arena, tn_diag, session->diags.len - from + 1);
    for (size_t i = from; i < session->diags.len; i++)
        if (session->diags.at[i].severity == TN_NOTE)
            notes[n++] = session->diags.at[i];
    code->note = notes;
    code->nnotes = n;
}

tn_status tn_code_compile(const tn_kernel *kernel, const tn_exec_options *options, tn_code *out)
{
    tn_session *session = kernel->session;
    tn_kernel *tile = copy_of(kernel);
    size_t notes = session->diags.len;
    tn_exec_kernel lowered;
    int assertions = 0;
    double start = tn_seconds();
    tn_tile_walk(tile->body, number_assertion, &assertions);
    TN_TRY(lower(options, tile, &lowered));
    tn_lfunc *loop = (tn_lfunc *)(uintptr_t)lowered.loop;
    *out = (tn_code){.symbol = lowered.symbol, .nbuffers = loop->nbuffers, .nsizes = lowered.nsizes, .scratch = lowered.scratch, .traps = lowered.traps, .loop = loop,
                      .cluster = lowered.cluster, .persistent = lowered.persistent, .nmaps = lowered.nmaps, .map = lowered.map};
    out->buffer = names_of(session, loop->params.at, loop->nbuffers);
    out->size = names_of(session, loop->params.at + loop->nbuffers, lowered.nsizes);
    out->pointer_accesses = tn_tile_pointer_accesses(tile);
    out->machine = options->machine;
    double lowering = tn_seconds();
    if (options->machine->gpu) {
        out->scratch = 0;
        out->threads = loop->threads;
        out->shared = tn_loop_shared_bytes(loop);
        TN_TRY(emit_gpu(session, loop, options, out));
    } else {
        TN_TRY(tn_llvm_emit(session, &loop, 1, options->machine, TN_EMIT_OBJECT, options->level, &out->object));
    }
    take_notes(session, notes, out);
    out->lower_seconds = lowering - start;
    out->emit_seconds = tn_seconds() - lowering;
    return TN_OK;
}

tn_status tn_code_link(tn_session *session, tn_code *code)
{
    double start = tn_seconds();
    code->code_bytes = code->object.size;
    if (code->threads) /* a launcher gives it to the driver */
        return TN_OK;
    TN_TRY(tn_jit_new(session, &code->jit));
    TN_TRY(tn_jit_add_object(session, code->jit, code->object.data, code->object.size));
    code->fn = (tn_kernel_fn)(uintptr_t)tn_jit_symbol(code->jit, code->symbol);
    if (!code->fn)
        return tn_error(session, TN_UNSUPPORTED, TN_NO_LOC, "kernel @%s: the linker could not place it", code->symbol);
    free(code->object.data);
    code->object = (tn_blob){NULL, 0};
    code->link_seconds = tn_seconds() - start;
    return TN_OK;
}

void tn_code_free(tn_code *code)
{
    if (!code)
        return;
    tn_jit_free(code->jit);
    free(code->object.data);
    code->jit = NULL;
    code->object.data = NULL;
}

/* ---- texts -------------------------------------------------------------------------------------------------------------------- */

static void text_note(tn_text *text, const tn_diag *note)
{
    tn_text_add(text, "// ");
    if (note->loc.file)
        tn_text_add(text, "%s:%d:%d: ", note->loc.file, note->loc.line, note->loc.column);
    for (const char *at = note->message; *at; at++)
        tn_text_add(text, *at == '\n' ? "\n// " : "%c", *at);
    tn_text_add(text, "\n");
}

tn_status tn_code_tile_text(const tn_kernel *kernel, const tn_exec_options *options, tn_text *out)
{
    tn_session *session = kernel->session;
    tn_kernel *tile = copy_of(kernel);
    size_t notes = session->diags.len;
    tn_code code = {.symbol = NULL};
    TN_TRY(optimize(options, tile));
    take_notes(session, notes, &code);
    for (size_t i = 0; i < code.nnotes; i++)
        text_note(out, &code.note[i]);
    tn_text_kernel(out, tile);
    return TN_OK;
}

tn_status tn_code_loop_text(const tn_kernel *kernel, const tn_exec_options *options, tn_text *out)
{
    tn_exec_kernel lowered;
    TN_TRY(lower(options, copy_of(kernel), &lowered));
    tn_text_lfunc(out, lowered.loop);
    return TN_OK;
}

static tn_status emit_cubin(tn_session *session, tn_lfunc *loop, const tn_exec_options *options, tn_blob *out)
{
    tn_code code = {.symbol = NULL};
    TN_TRY(emit_gpu(session, loop, options, &code));
    if (code.cubin_bytes) {
        *out = (tn_blob){code.object.data, code.cubin_bytes};
        return TN_OK;
    }
    free(code.object.data);
    return tn_error(session, TN_UNSUPPORTED, TN_NO_LOC, "machine '%s': an object of it is a cubin, which only ptxas makes; it is neither in the PATH nor in $TENON_PTXAS, or it "
                    "refused", options->machine->name);
}

tn_status tn_code_emit(const tn_kernel *kernel, const tn_exec_options *options, tn_emit what, tn_blob *out)
{
    tn_exec_kernel lowered;
    TN_TRY(lower(options, copy_of(kernel), &lowered));
    tn_lfunc *loop = (tn_lfunc *)(uintptr_t)lowered.loop;
    if (what == TN_EMIT_OBJECT && options->machine->gpu)
        return emit_cubin(kernel->session, loop, options, out);
    return tn_llvm_emit(kernel->session, &loop, 1, options->machine, what, options->level, out);
}
