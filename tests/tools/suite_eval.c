/* Runs cases of the ONNX backend suite through the importer and the reference interpreter.
 *     suite_eval [-v] [-j N] [-t SECONDS] CASE_FOLDER...
 * Prints "PASS name", "FAIL name: why", "UNSUPPORTED name: why", "CRASH name" or "TIMEOUT name", one a line, and the counts at the end.
 * -v: the whole diagnostics. Exit code: 0 if nothing crashed. */
#include "suite.h"

#include "eval/eval.h"

enum { MAX_VALUES = 256 };

static int run_set(tn_session *session, const tn_graph *graph, const char *folder, const char **why)
{
    tn_arena *arena = &session->arena;
    tn_tensor inputs[MAX_VALUES], wanted;
    const tn_tensor *given[MAX_VALUES];
    int outputs = graph->body->last->noperands;
    tn_tensor **results = TN_NEW_ARRAY(arena, tn_tensor *, (size_t)outputs + 1);
    for (int i = 0; i < graph->body->nargs && i < MAX_VALUES; i++) {
        given[i] = &inputs[i];
        if (tn_read_tensor_proto(session, tn_format(arena, "%s/input_%d.pb", folder, i), &inputs[i]) != TN_OK)
            return *why = suite_first_error(session), SUITE_FAIL;
    }
    if (tn_eval_graph(session, arena, graph, given, results, NULL) != TN_OK)
        return *why = suite_first_error(session), SUITE_FAIL;
    for (int i = 0; i < outputs; i++) {
        if (tn_read_tensor_proto(session, tn_format(arena, "%s/output_%d.pb", folder, i), &wanted) != TN_OK)
            return *why = suite_first_error(session), SUITE_FAIL;
        if (!suite_compare(arena, i, results[i], &wanted, why))
            return SUITE_FAIL;
    }
    return SUITE_PASS;
}

static int run_case(tn_session *session, const char *folder, const char **why)
{
    tn_model model;
    tn_status status = tn_import_onnx(session, tn_format(&session->arena, "%s/model.onnx", folder), NULL, &model);
    if (status != TN_OK)
        return *why = suite_first_error(session), status == TN_UNSUPPORTED ? SUITE_UNSUPPORTED : SUITE_FAIL;
    if (tn_graph_verify(model.module->graphs.at[0]) != TN_OK)
        return *why = tn_format(&session->arena, "verify: %s", suite_first_error(session)), SUITE_FAIL;
    int result = SUITE_PASS;
    for (int set = 0; result == SUITE_PASS; set++) {
        const char *data = tn_format(&session->arena, "%s/test_data_set_%d", folder, set);
        if (!suite_exists(data))
            break;
        result = run_set(session, model.module->graphs.at[0], data, why);
    }
    tn_model_free(&model);
    return result;
}

int main(int argc, char **argv)
{
    suite_options options = {.run = run_case, .seconds = 60, .jobs = 1};
    int first = suite_arguments(&options, argc, argv, NULL);
    if (first < 0) {
        fprintf(stderr, "usage: suite_eval [-v] [-j N] [-t SECONDS] CASE_FOLDER...\n");
        return 2;
    }
    return suite_run_all(&options, argv + first, argc - first);
}
