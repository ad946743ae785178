/* tenon opt: IR text in, passes, IR text out. The text says which IR it is: behind its `symbols` a graph begins with `graph`; a kernel of the Tile IR has
 * a `grid(` behind its parameters, one of the Loop IR has none. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "fuse/fuse.h"
#include "loop/loop.h"
#include "opt/opt.h"
#include "plan/plan.h"
#include "target/target.h"
#include "tile/tile.h"

typedef enum level { LEVEL_GRAPH, LEVEL_TILE, LEVEL_LOOP, LEVEL_LLVM, LEVEL_ASM } level;
static const char *const level_names[] = {"graph", "tile", "loop", "llvm", "asm"};

typedef struct optimizer {
    cli *c;
    tn_session *session;
    const tn_machine *machine;
    tn_pass_options loop_options;
    level to;
    bool go_on; /* --lower was given */
    tn_text out;
    tn_blob blob;
} optimizer;

static const char *skip_comments(const char *at)
{
    for (;;) {
        while (isspace((unsigned char)*at))
            at++;
        if (at[0] != '/' || at[1] != '/')
            return at;
        at += strcspn(at, "\n");
    }
}

static bool detect(const char *source, level *out)
{
    const char *at = skip_comments(source);
    bool symbols = false;
    *out = LEVEL_GRAPH;
    for (; !strncmp(at, "symbols", 7); at = skip_comments(at + strcspn(at, "\n"))) /* graphs and kernels both may begin so */
        symbols = true;
    if (!strncmp(at, "graph", 5) || (symbols && strncmp(at, "kernel", 6)))
        return true;
    const char *open = strchr(at, '{'), *grid = strstr(at, "grid");
    *out = grid && open && grid < open ? LEVEL_TILE : LEVEL_LOOP;
    return !strncmp(at, "kernel", 6);
}

/* The list without the prefix: loop-simplify and simplify are one pass. */
static char *strip_prefix(tn_arena *arena, const char *list, const char *prefix)
{
    tn_text text = {.arena = arena};
    tn_text_put(&text, "", 0);
    for (const char *at = list; *at;) {
        size_t len = strcspn(at, ","), skip = !strncmp(at, prefix, strlen(prefix)) ? strlen(prefix) : 0;
        tn_text_add(&text, "%s%.*s", text.len ? "," : "", (int)(len - skip), at + skip);
        at += len + (at[len] == ',');
    }
    return text.at;
}

/* ---- loop ------------------------------------------------------------------------------------------------------------------ */

static tn_status finish_loops(optimizer *o, tn_lfunc *const *funcs, size_t n)
{
    if (o->go_on && o->to > LEVEL_LOOP)
        return tn_llvm_emit(o->session, funcs, n, o->machine, o->to == LEVEL_LLVM ? TN_EMIT_LLVM : TN_EMIT_ASM, 2, &o->blob);
    for (size_t i = 0; i < n; i++)
        tn_text_lfunc(&o->out, funcs[i]);
    return TN_OK;
}

static const char *print_after(const optimizer *o, const char *prefix)
{
    const char *name = o->c->print_after;
    return name && !strncmp(name, prefix, strlen(prefix)) ? name + strlen(prefix) : name;
}

static tn_status opt_loop(optimizer *o, const char *source, size_t len)
{
    tn_lfuncs funcs = {0};
    TN_TRY(tn_loop_parse(o->session, o->c->file, source, len, &funcs));
    for (size_t i = 0; i < funcs.len; i++) {
        TN_TRY(tn_loop_verify(funcs.at[i], 0));
        if (o->c->passes)
            TN_TRY(tn_loop_run_passes(funcs.at[i], strip_prefix(&o->session->arena, o->c->passes, "loop-"), &o->loop_options, true, print_after(o, "loop-")));
    }
    return finish_loops(o, funcs.at, funcs.len);
}

/* ---- tile ------------------------------------------------------------------------------------------------------------------ */

static tn_status run_tile_pass(optimizer *o, tn_kernel *kernel, const char *name, size_t len)
{
    for (const tn_tile_pass *pass = tn_tile_passes; pass->name; pass++) {
        const char *bare = !strncmp(pass->name, "tile-", 5) ? pass->name + 5 : pass->name;
        if (strlen(bare) != len || strncmp(bare, name, len) != 0)
            continue;
        TN_TRY(pass->run(kernel));
        return tn_tile_verify(kernel);
    }
    tn_text text = {.arena = &o->session->arena};
    for (const tn_tile_pass *pass = tn_tile_passes; pass->name; pass++)
        tn_text_add(&text, "%s%s", text.len ? ", " : "", pass->name);
    return tn_error(o->session, TN_USAGE, TN_NO_LOC, "there is no pass '%.*s' on tiles; there are: %s", (int)len, name, text.at);
}

static tn_status run_tile_passes(optimizer *o, tn_kernel *kernel)
{
    const char *list = o->c->passes ? strip_prefix(&o->session->arena, o->c->passes, "tile-") : "";
    while (*list) {
        size_t len = strcspn(list, ",");
        TN_TRY(run_tile_pass(o, kernel, list, len));
        list += len + (list[len] == ',');
    }
    return TN_OK;
}

/* Kernels on to loops: scalar ones for --lower=loop, through the whole pipeline for machine code. */
static tn_status lower_kernels(optimizer *o, tn_kernel *const *kernels, size_t n)
{
    tn_lfunc **funcs = TN_NEW_ARRAY(&o->session->arena, tn_lfunc *, n + 1);
    for (size_t i = 0; i < n; i++) {
        TN_TRY(tn_lower(o->session, kernels[i], o->machine, &funcs[i]));
        TN_TRY(tn_loop_verify(funcs[i], 0));
        if (o->to > LEVEL_LOOP)
            TN_TRY(tn_loop_run_passes(funcs[i], tn_loop_pipeline, &o->loop_options, true, print_after(o, "loop-")));
    }
    return finish_loops(o, funcs, n);
}

static tn_status opt_tile(optimizer *o, const char *source, size_t len)
{
    tn_kernels kernels = {0};
    TN_TRY(tn_tile_parse(o->session, o->c->file, source, len, &kernels));
    for (size_t i = 0; i < kernels.len; i++) {
        TN_TRY(tn_tile_verify(kernels.at[i]));
        TN_TRY(run_tile_passes(o, kernels.at[i]));
    }
    if (o->go_on && o->to > LEVEL_TILE)
        return lower_kernels(o, kernels.at, kernels.len);
    for (size_t i = 0; i < kernels.len; i++)
        tn_text_kernel(&o->out, kernels.at[i]);
    return TN_OK;
}

/* ---- graph ----------------------------------------------------------------------------------------------------------------- */

static tn_status lower_graph(optimizer *o, tn_graph *graph)
{
    tn_program program = {0};
    tn_fuse_options options = {.target = tn_machine_tile_target(o->machine, o->c->threads ? (int)o->c->threads : tn_cpu_count()),
                               .no_fusion = tn_opt_list_has(o->c->passes, "-fuse")};
    TN_TRY(tn_fuse_check(graph));
    TN_TRY(tn_fuse(o->session, graph, &options, &program));
    tn_exec_options exec = {.machine = o->machine, .level = 2, .verify = true};
    if (o->to == LEVEL_TILE)
        tn_text_program(&o->out, &program);
    else if (o->to == LEVEL_LOOP)
        return tn_exec_loop_text(o->session, &program, &exec, &o->out);
    else
        return tn_exec_emit(o->session, &program, &exec, o->to == LEVEL_LLVM ? TN_EMIT_LLVM : TN_EMIT_ASM, &o->blob);
    return TN_OK;
}

static tn_status opt_graph(optimizer *o, const char *source, size_t len)
{
    tn_graph_module *module;
    tn_opt_options options = {.verify = true, .print_after = o->c->print_after};
    TN_TRY(tn_graph_parse(o->session, o->c->file, source, len, &module));
    for (size_t i = 0; i < module->graphs.len; i++) {
        tn_graph *graph = module->graphs.at[i];
        TN_TRY(tn_graph_verify(graph));
        if (o->c->passes || (o->go_on && o->to > LEVEL_GRAPH)) /* a lowering takes graphs as the default passes leave them */
            TN_TRY(tn_opt_run(o->session, graph, o->c->passes, &options));
        if (o->go_on && o->to > LEVEL_GRAPH)
            TN_TRY(lower_graph(o, graph));
        else
            tn_text_graph(&o->out, graph);
    }
    return TN_OK;
}

/* ---- the command ------------------------------------------------------------------------------------------------------------- */

static tn_status prepare(optimizer *o)
{
    cli *c = o->c;
    o->session = c->session;
    o->out.arena = &c->session->arena;
    o->machine = tn_machine_find(c->machine);
    if (!o->machine)
        return tn_error(o->session, TN_USAGE, TN_NO_LOC, "unknown machine '%s'; `tenon info` lists those there are", c->machine);
    o->loop_options.vector = o->machine->vector;
    o->go_on = c->lower != NULL;
    for (size_t i = 1; c->lower && i < TN_COUNT(level_names); i++)
        if (!strcmp(level_names[i], c->lower))
            o->to = (level)i;
    return c->lower && o->to == LEVEL_GRAPH ? tn_error(o->session, TN_USAGE, TN_NO_LOC, "--lower=%s: expected tile, loop, llvm or asm", c->lower) : TN_OK;
}

static tn_status optimize(optimizer *o, const tn_file *file)
{
    level from;
    const char *source = tn_strndup(&o->session->arena, file->data ? (const char *)file->data : "", file->size);
    if (!detect(source, &from))
        return tn_error(o->session, TN_INVALID, (tn_loc){.file = o->c->file}, "expected text that begins with `graph`, `symbols` or `kernel`");
    return from == LEVEL_GRAPH ? opt_graph(o, source, file->size) : from == LEVEL_TILE ? opt_tile(o, source, file->size) : opt_loop(o, source, file->size);
}

static tn_status write_result(optimizer *o)
{
    const char *data = o->blob.data ? o->blob.data : o->out.at;
    size_t size = o->blob.data ? o->blob.size : o->out.len;
    if (o->c->output)
        return tn_file_write(o->session, o->c->output, data, size);
    if (size)
        fwrite(data, 1, size, stdout);
    return TN_OK;
}

int cli_opt(cli *c)
{
    optimizer o = {.c = c};
    tn_file file = {0};
    tn_status status = prepare(&o);
    if (status == TN_OK)
        status = tn_file_map(c->session, c->file, &file);
    if (status == TN_OK)
        status = optimize(&o, &file);
    if (status == TN_OK)
        status = write_result(&o);
    int code = cli_fail(c, status);
    free(o.blob.data);
    if (file.data)
        tn_file_unmap(&file);
    return code;
}
