/* What commands share: diagnostics, loading, progress. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "run/run.h"

int cli_fail(cli *c, tn_status status)
{
    cli_progress_end(c);
    tn_print_diags(c->session, stderr);
    if (status != TN_OK && c->session->errors == 0)
        fprintf(stderr, "tenon: %s\n", status == TN_NO_MEMORY ? "out of memory" : "the request can't be done");
    return status == TN_OK ? EXIT_RIGHT : status == TN_MISMATCH ? EXIT_DIFFERS : status == TN_USAGE ? EXIT_USAGE : EXIT_INPUT;
}

static bool names_gpu(const cli *c) { return c->target && (!strcmp(c->target, "cuda") || !strncmp(c->target, "cuda:", 5)); }

tn_status cli_check_target(cli *c)
{
    const tn_machine *machine;
    int device;
    if (!c->target)
        return TN_OK;
    if (strcmp(c->target, "cpu") && !names_gpu(c))
        return tn_error(c->session, TN_USAGE, TN_NO_LOC, "--target=%s: expected cpu, cuda or cuda:N", c->target);
    TN_TRY(tn_gpu_machine(c->session, c->machine ? c->machine : names_gpu(c) ? c->target : NULL, &machine, &device));
    if (machine->gpu != names_gpu(c))
        return tn_error(c->session, TN_USAGE, TN_NO_LOC, "--target=%s: machine '%s' is %s", c->target, machine->name, machine->gpu ? "a GPU's" : "a CPU's");
    return TN_OK;
}

tn_status cli_load(cli *c, tn_network **out)
{
    tn_load_options options = {c->dim_names.at, c->dim_sizes.at, c->dim_names.len};
    TN_TRY(cli_check_target(c));
    cli_progress_start(c);
    if (cli_ends_with(c->file, ".tn"))
        return tn_load_text(c->session, c->file, out);
    return tn_load_onnx(c->session, c->file, &options, out);
}

/* Sizes of inputs are those to measure kernels at. */
static void tell_sizes(cli *c)
{
    tn_text list = {.arena = &c->session->arena};
    for (size_t i = 0; i < c->sizes.len; i++)
        tn_text_add(&list, "%s%s=%s", i ? "," : "", c->sizes.at[i].name, c->sizes.at[i].value);
    if (c->sizes.len)
        tn_session_option(c->session, "tune-sizes", list.at);
}

tn_compile_options cli_compile_options(cli *c)
{
    const char *machine = c->machine;
    tell_sizes(c);
    if (names_gpu(c)) /* the GPU's number goes behind a row's name */
        machine = machine ? tn_format(&c->session->arena, "%s%s", machine, strchr(machine, ':') ? "" : c->target + strlen("cuda")) : c->target;
    return (tn_compile_options){.machine = machine, .threads = (int)tn_min(c->threads, 1 << 16), .passes = c->passes, .print_after = c->print_after, .verify = c->verify};
}

bool cli_is_gpu_stage(const char *name) { return strcmp(name, "ptx") == 0 || strcmp(name, "cubin") == 0; }

static void show_progress(void *context, const char *stage, size_t done, size_t total)
{
    (void)context;
    fprintf(stderr, "\r\033[K%s %zu of %zu", stage, done, total);
    fflush(stderr);
}

void cli_progress_start(cli *c)
{
    if (isatty(STDERR_FILENO))
        tn_session_progress(c->session, show_progress, NULL);
}

void cli_progress_end(cli *c)
{
    if (c->session->progress)
        fprintf(stderr, "\r\033[K");
    tn_session_progress(c->session, NULL, NULL);
}

bool cli_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

void cli_print_json_text(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        unsigned char ch = (unsigned char)*text;
        if (ch == '"' || ch == '\\')
            printf("\\%c", ch);
        else if (ch < 0x20)
            printf("\\u%04x", ch);
        else
            putchar(ch);
    }
    putchar('"');
}

tn_status cli_put(cli *c, char *text, size_t size)
{
    tn_status status = TN_OK;
    if (c->output)
        status = tn_file_write(c->session, c->output, text, size);
    else
        fwrite(text, 1, size, stdout);
    tn_free(text);
    return status;
}

bool cli_stage(const char *name, tn_stage *out)
{
    static const struct { const char *name; tn_stage stage; } of_gpus[] = {{"ptx", TN_STAGE_ASM}, {"cubin", TN_STAGE_OBJECT}};
    static const char *const names[] = {[TN_STAGE_GRAPH] = "graph", [TN_STAGE_TILE] = "tile", [TN_STAGE_LOOP] = "loop",
                                        [TN_STAGE_LLVM] = "llvm",   [TN_STAGE_ASM] = "asm",   [TN_STAGE_OBJECT] = "obj", [TN_STAGE_SCHEDULE] = "schedule"};
    for (size_t i = 0; i < TN_COUNT(names); i++)
        if (strcmp(names[i], name) == 0)
            return *out = (tn_stage)i, true;
    for (size_t i = 0; i < TN_COUNT(of_gpus); i++)
        if (strcmp(of_gpus[i].name, name) == 0)
            return *out = of_gpus[i].stage, true;
    return false;
}
