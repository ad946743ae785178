/* Runs cases of the ONNX backend suite as compiled code, through the public API.
 *     suite_run [-v] [-j N] [-t SECONDS] [--machine NAME] [--passes LIST] [--option NAME=VALUE] CASE...
 * A case is a folder of the suite, or NAME.onnx of the light models: its one input is then 0, 1/n, 2/n, … as the suite's runner feeds it.
 * Prints "PASS name", "FAIL name: why", "UNSUPPORTED name: why", "CRASH name" or "TIMEOUT name", one a line, and the counts at the end.
 * Exit code: 0 if nothing crashed. */
#include "suite.h"

enum { MAX_VALUES = 256, MAX_OPTIONS = 16 };

/* Set once from the command line, before any case runs. */
static struct settings {
    tn_compile_options compile;
    const char *name[MAX_OPTIONS], *value[MAX_OPTIONS];
    int n;
} settings;

static DLTensor to_dlpack(tn_tensor *t)
{
    return (DLTensor){.data = (void *)t->data, .device = {1, 0}, .ndim = t->rank, .dtype = tn_dtype_to_dlpack(t->dtype), .shape = t->dim};
}

static tn_tensor from_dlpack(const DLTensor *t)
{
    tn_tensor out = {.dtype = tn_dtype_from_dlpack(t->dtype), .rank = t->ndim, .data = t->data};
    for (int i = 0; i < t->ndim; i++)
        out.dim[i] = t->shape[i];
    return out;
}

typedef struct running {
    tn_session *session;
    tn_network *network;
    tn_context *context;
    const char **why;
} running;

static int fail(running *r)
{
    *r->why = suite_first_error(r->session);
    return SUITE_FAIL;
}

/* wanted(i): path of output i as the suite has it */
static int run_once(running *r, tn_tensor *inputs, const char *folder, const char *prefix)
{
    tn_arena *arena = &r->session->arena;
    size_t ninputs = tn_input_count(r->network), noutputs = tn_output_count(r->network);
    DLTensor in[MAX_VALUES], out[MAX_VALUES] = {{0}};
    for (size_t i = 0; i < ninputs; i++)
        in[i] = to_dlpack(&inputs[i]);
    if (tn_run(r->context, in, ninputs, out, noutputs) != TN_OK) {
        *r->why = tn_format(arena, "run: %s", tn_context_error(r->context));
        return SUITE_FAIL;
    }
    for (size_t i = 0; i < noutputs; i++) {
        tn_tensor wanted, found = from_dlpack(&out[i]);
        if (tn_read_tensor_proto(r->session, tn_format(arena, "%s/%soutput_%zu.pb", folder, prefix, i), &wanted) != TN_OK)
            return fail(r);
        if (!suite_compare(arena, (int)i, &found, &wanted, r->why))
            return SUITE_FAIL;
        tn_tensor_free(&out[i]);
    }
    return SUITE_PASS;
}

static int run_set(running *r, const char *folder)
{
    tn_tensor inputs[MAX_VALUES];
    for (size_t i = 0; i < tn_input_count(r->network); i++)
        if (tn_read_tensor_proto(r->session, tn_format(&r->session->arena, "%s/input_%zu.pb", folder, i), &inputs[i]) != TN_OK)
            return fail(r);
    return run_once(r, inputs, folder, "");
}

static int run_sets(running *r, const char *folder)
{
    int result = SUITE_PASS;
    for (int set = 0; result == SUITE_PASS; set++) {
        const char *data = tn_format(&r->session->arena, "%s/test_data_set_%d", folder, set);
        if (!suite_exists(data))
            break;
        result = run_set(r, data);
    }
    return result;
}

/* inputs in dense float32: i / n, unknown sizes 1 */
static int run_light(running *r, const char *path)
{
    tn_tensor inputs[MAX_VALUES];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < tn_input_count(r->network); i++) {
        tn_value_info info;
        int64_t count;
        tn_input_info(r->network, i, &info);
        inputs[i] = (tn_tensor){.dtype = TN_F32, .rank = info.rank};
        for (int d = 0; d < info.rank; d++)
            inputs[i].dim[d] = info.dim[d] < 0 ? 1 : info.dim[d];
        if (!tn_tensor_count(&inputs[i], &count) || tn_dtype_from_dlpack(info.dtype) != TN_F32) {
            *r->why = "an input is not of type f32, or too large";
            return SUITE_FAIL;
        }
        float *data = TN_NEW_ARRAY(&r->session->arena, float, (size_t)count + 1);
        for (int64_t k = 0; k < count; k++)
            data[k] = (float)((double)k / (double)count);
        inputs[i].data = data;
    }
    const char *folder = slash ? tn_strndup(&r->session->arena, path, (size_t)(slash - path)) : ".";
    return run_once(r, inputs, folder, tn_format(&r->session->arena, "%.*s_", (int)strlen(name) - 5, name));
}

static int failed(running *r, tn_status status)
{
    fail(r);
    return status == TN_UNSUPPORTED ? SUITE_UNSUPPORTED : SUITE_FAIL;
}

static int run_case(tn_session *session, const char *path, const char **why)
{
    running r = {.session = session, .why = why};
    tn_executable *executable;
    bool light = suite_is_file(path);
    for (int i = 0; i < settings.n; i++)
        tn_session_option(session, settings.name[i], settings.value[i]);
    tn_status status = tn_load_onnx(session, light ? path : tn_format(&session->arena, "%s/model.onnx", path), NULL, &r.network);
    if (status != TN_OK)
        return failed(&r, status);
    if (tn_input_count(r.network) > MAX_VALUES || tn_output_count(r.network) > MAX_VALUES)
        return *why = "too many inputs or outputs", SUITE_FAIL;
    status = tn_compile(session, r.network, &settings.compile, &executable);
    if (status != TN_OK)
        return failed(&r, status);
    if (tn_context_new(executable, &r.context) != TN_OK)
        return *why = "no context", SUITE_FAIL;
    int result = light ? run_light(&r, path) : run_sets(&r, path);
    tn_context_free(r.context);
    tn_executable_free(executable);
    tn_network_free(r.network);
    return result;
}

static int own_option(int argc, char **argv)
{
    if (argc < 2)
        return 0;
    if (!strcmp(argv[0], "--machine"))
        settings.compile.machine = argv[1];
    else if (!strcmp(argv[0], "--passes"))
        settings.compile.passes = argv[1];
    else if (!strcmp(argv[0], "--option") && strchr(argv[1], '=') && settings.n < MAX_OPTIONS) {
        char *equals = strchr(argv[1], '=');
        *equals = 0;
        settings.name[settings.n] = argv[1];
        settings.value[settings.n++] = equals + 1;
    } else
        return 0;
    return 2;
}

int main(int argc, char **argv)
{
    suite_options options = {.run = run_case, .seconds = 60, .jobs = 1};
    settings.compile.threads = 1;
    int first = suite_arguments(&options, argc, argv, own_option);
    if (first < 0) {
        fprintf(stderr, "usage: suite_run [-v] [-j N] [-t SECONDS] [--machine NAME] [--passes LIST] [--option NAME=VALUE] CASE...\n");
        return 2;
    }
    return suite_run_all(&options, argv + first, argc - first);
}
