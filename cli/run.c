/* tenon run: one run, its outputs in short and, if asked for, in files. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

static tn_status save(cli *c, const tn_network *network, const DLTensor *outputs, size_t n)
{
    bool pb = c->format && !strcmp(c->format, "pb");
    if (mkdir(c->save, 0777) != 0 && errno != EEXIST)
        return tn_error(c->session, TN_IO, TN_NO_LOC, "cannot make folder '%s': %m", c->save);
    for (size_t i = 0; i < n; i++) {
        tn_value_info info;
        tn_output_info(network, i, &info);
        const char *path = tn_format(&c->session->arena, "%s/output_%zu.%s", c->save, i, pb ? "pb" : "npy");
        TN_TRY(pb ? cli_pb_write(c->session, path, &outputs[i], info.name) : cli_npy_write(c->session, path, &outputs[i]));
    }
    return TN_OK;
}

/* A context's messages become the session's, so that they are printed like all others. */
static tn_status run_compiled(cli *c, const tn_network *network, const DLTensor *inputs, DLTensor *outputs)
{
    tn_executable *executable;
    tn_context *context = NULL;
    tn_compile_options options = cli_compile_options(c);
    TN_TRY(tn_compile(c->session, network, &options, &executable));
    cli_progress_end(c);
    tn_status status = tn_context_new(executable, &context);
    if (status == TN_OK) {
        status = tn_run(context, inputs, tn_input_count(network), outputs, tn_output_count(network));
        if (status != TN_OK)
            tn_error(c->session, status, TN_NO_LOC, "%s", tn_context_error(context));
    }
    tn_context_free(context);
    tn_executable_free(executable);
    return status;
}

static tn_status run(cli *c, const tn_network *network, cli_tensor **inputs)
{
    size_t n = tn_output_count(network);
    DLTensor *outputs = TN_NEW_ARRAY(&c->session->arena, DLTensor, n + 1);
    TN_TRY(cli_inputs(c, network, inputs));
    DLTensor *dl = cli_dl_tensors(c, *inputs, tn_input_count(network));
    TN_TRY(c->reference ? tn_run_reference(c->session, network, dl, tn_input_count(network), outputs, n) : run_compiled(c, network, dl, outputs));
    for (size_t i = 0; i < n; i++) {
        tn_value_info info;
        tn_output_info(network, i, &info);
        cli_print_tensor("output", i, info.name, &outputs[i]);
    }
    tn_status status = c->save ? save(c, network, outputs, n) : TN_OK;
    for (size_t i = 0; i < n; i++)
        tn_tensor_free(&outputs[i]);
    return status;
}

int cli_run(cli *c)
{
    tn_network *network = NULL;
    cli_tensor *inputs = NULL;
    if (c->format && strcmp(c->format, "npy") && strcmp(c->format, "pb")) {
        fprintf(stderr, "tenon: --format=%s: expected npy or pb\n", c->format);
        return EXIT_USAGE;
    }
    tn_status status = cli_load(c, &network);
    if (status == TN_OK)
        status = run(c, network, &inputs);
    int code = cli_fail(c, status);
    cli_tensors_free(inputs, tn_input_count(network));
    tn_network_free(network);
    return code;
}
