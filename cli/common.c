/* What commands share: diagnostics, loading, progress. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

int cli_fail(cli *c, tn_status status)
{
    cli_progress_end(c);
    tn_print_diags(c->session, stderr);
    if (status != TN_OK && c->session->errors == 0)
        fprintf(stderr, "tenon: %s\n", status == TN_NO_MEMORY ? "out of memory" : "the request can't be done");
    return status == TN_OK ? EXIT_RIGHT : status == TN_MISMATCH ? EXIT_DIFFERS : status == TN_USAGE ? EXIT_USAGE : EXIT_INPUT;
}

tn_status cli_load(cli *c, tn_network **out)
{
    tn_load_options options = {c->dim_names.at, c->dim_sizes.at, c->dim_names.len};
    size_t len = strlen(c->file);
    cli_progress_start(c);
    if (len > 3 && !strcmp(c->file + len - 3, ".tn"))
        return tn_load_text(c->session, c->file, out);
    return tn_load_onnx(c->session, c->file, &options, out);
}

tn_compile_options cli_compile_options(const cli *c)
{
    return (tn_compile_options){.machine = c->machine, .threads = (int)tn_min(c->threads, 1 << 16), .passes = c->passes, .print_after = c->print_after, .verify = c->verify};
}

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

int cli_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
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
    static const char *const names[] = {[TN_STAGE_GRAPH] = "graph", [TN_STAGE_TILE] = "tile", [TN_STAGE_LOOP] = "loop",
                                        [TN_STAGE_LLVM] = "llvm",   [TN_STAGE_ASM] = "asm",   [TN_STAGE_OBJECT] = "obj"};
    for (size_t i = 0; i < TN_COUNT(names); i++)
        if (strcmp(names[i], name) == 0)
            return *out = (tn_stage)i, true;
    return false;
}
