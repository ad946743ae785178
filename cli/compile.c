/* tenon compile: what a network looks like at one stage. */
#include <string.h>

#include "cli.h"
#include "run/run.h"

static tn_status compile(cli *c, const tn_network *network, tn_stage stage)
{
    tn_compile_options options = cli_compile_options(c);
    const tn_machine *machine;
    int device;
    char *text;
    size_t size;
    TN_TRY(tn_gpu_machine(c->session, options.machine, &machine, &device));
    if (cli_is_gpu_stage(c->emit) && !machine->gpu)
        return tn_error(c->session, TN_USAGE, TN_NO_LOC, "--emit=%s is of a GPU's code: --target=cuda, or a GPU's --machine", c->emit);
    TN_TRY(tn_emit_stage(c->session, network, &options, stage, &text, &size));
    cli_progress_end(c);
    return cli_put(c, text, size);
}

int cli_compile(cli *c)
{
    tn_network *network = NULL;
    tn_stage stage;
    if (!c->emit || !cli_stage(c->emit, &stage)) {
        fprintf(stderr, "tenon: compile needs --emit=graph, schedule, tile, loop, llvm, asm, obj, ptx or cubin%s%s\n", c->emit ? ", found " : "", c->emit ? c->emit : "");
        return EXIT_USAGE;
    }
    if (cli_is_gpu_stage(c->emit) && !c->target && !c->machine)
        c->target = "cuda";
    tn_status status = cli_load(c, &network);
    if (status == TN_OK)
        status = compile(c, network, stage);
    int code = cli_fail(c, status);
    tn_network_free(network);
    return code;
}
