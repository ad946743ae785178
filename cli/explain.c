/* tenon explain: what became of a network, as text, JSON or a page. */
#include "cli.h"

static const double one_run = 1e-9;

static tn_status check_output(cli *c)
{
    if (!c->output || cli_ends_with(c->output, ".html") || cli_ends_with(c->output, ".json"))
        return TN_OK;
    return tn_error(c->session, TN_USAGE, TN_NO_LOC, "-o %s: expected FILE.html or FILE.json", c->output);
}

/* The file that was asked for, and to standard output the text, or with --json the object. */
static tn_status put_report(cli *c, const tn_report *report)
{
    char *text;
    size_t size;
    const char *file = c->output;
    c->output = NULL;
    TN_TRY(tn_report_text(report, c->json ? TN_REPORT_JSON : TN_REPORT_TEXT, &text, &size));
    TN_TRY(cli_put(c, text, size));
    c->output = file;
    if (!file)
        return TN_OK;
    TN_TRY(tn_report_text(report, cli_ends_with(file, ".json") ? TN_REPORT_JSON : TN_REPORT_HTML, &text, &size));
    return cli_put(c, text, size);
}

static tn_status explain(cli *c, const tn_network *network, cli_tensor **inputs)
{
    tn_compile_options options = cli_compile_options(c);
    tn_report *report;
    size_t ninputs = tn_input_count(network);
    double seconds = c->no_run ? 0 : c->seconds > 0 ? c->seconds : one_run;
    TN_TRY(cli_inputs(c, network, inputs));
    TN_TRY(tn_explain(c->session, network, &options, cli_dl_tensors(c, *inputs, ninputs), ninputs, seconds, &report));
    cli_progress_end(c);
    tn_status status = put_report(c, report);
    tn_report_free(report);
    return status;
}

int cli_explain(cli *c)
{
    tn_network *network = NULL;
    cli_tensor *inputs = NULL;
    tn_status status = check_output(c);
    if (status == TN_OK)
        status = cli_load(c, &network);
    if (status == TN_OK)
        status = explain(c, network, &inputs);
    int code = cli_fail(c, status);
    cli_tensors_free(inputs, tn_input_count(network));
    tn_network_free(network);
    return code;
}
