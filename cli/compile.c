/* tenon compile: what a network looks like at one stage. */
#include <string.h>

#include "cli.h"

static const struct {
    const char *name;
    tn_stage stage;
} stages[] = {{"graph", TN_STAGE_GRAPH}, {"tile", TN_STAGE_TILE}, {"loop", TN_STAGE_LOOP}, {"llvm", TN_STAGE_LLVM}, {"asm", TN_STAGE_ASM}, {"obj", TN_STAGE_OBJECT}};

static tn_status compile(cli *c, const tn_network *network, tn_stage stage)
{
    tn_compile_options options = cli_compile_options(c);
    char *text;
    size_t size;
    TN_TRY(tn_emit_stage(c->session, network, &options, stage, &text, &size));
    cli_progress_end(c);
    tn_status status = TN_OK;
    if (c->output)
        status = tn_file_write(c->session, c->output, text, size);
    else
        fwrite(text, 1, size, stdout);
    tn_free(text);
    return status;
}

int cli_compile(cli *c)
{
    tn_network *network = NULL;
    size_t s = 0;
    while (s < TN_COUNT(stages) && c->emit && strcmp(stages[s].name, c->emit) != 0)
        s++;
    if (!c->emit || s == TN_COUNT(stages)) {
        fprintf(stderr, "tenon: compile needs --emit=graph, tile, loop, llvm, asm or obj%s%s\n", c->emit ? ", found " : "", c->emit ? c->emit : "");
        return EXIT_USAGE;
    }
    tn_status status = cli_load(c, &network);
    if (status == TN_OK)
        status = compile(c, network, stages[s].stage);
    int code = cli_fail(c, status);
    tn_network_free(network);
    return code;
}
