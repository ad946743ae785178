/* tenon check: is the compiled code right? */
#include <string.h>

#include "cli.h"

static tn_status check(cli *c, const tn_network *network, cli_tensor **inputs)
{
    tn_compile_options options = cli_compile_options(c);
    size_t n = tn_input_count(network);
    TN_TRY(cli_inputs(c, network, inputs));
    TN_TRY(tn_check(c->session, network, &options, cli_dl_tensors(c, *inputs, n), n));
    cli_progress_end(c);
    printf("compiled code agrees with the reference\n");
    return TN_OK;
}

int cli_check(cli *c)
{
    tn_network *network = NULL;
    cli_tensor *inputs = NULL;
    tn_status status = cli_load(c, &network);
    if (status == TN_OK)
        status = check(c, network, &inputs);
    int code = cli_fail(c, status);
    cli_tensors_free(inputs, tn_input_count(network));
    tn_network_free(network);
    return code;
}
