/* Runs cases of the ONNX backend suite through the importer and the reference interpreter.
 *     suite_eval [-v] CASE_FOLDER...
 * Prints "PASS name", "FAIL name: why" or "UNSUPPORTED name: why", one a line, and the counts at the end. Every case
 * runs in a process of its own with a time limit, so that a crash is one line too ("CRASH name"). -v: the whole
 * diagnostics. Exit code: 0 if nothing crashed. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "eval/eval.h"
#include "import/import.h"

enum { SECONDS = 60, MAX_VALUES = 256 };
enum { PASS, FAIL, UNSUPPORTED };

static const char *line_of(tn_session *session)
{
    for (size_t i = 0; i < session->diags.len; i++)
        if (session->diags.at[i].severity == TN_ERROR)
            return session->diags.at[i].message;
    return "no diagnostic";
}

static bool exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

/* |have - want| <= 1e-7 + 1e-3 * |want|, NaN equal to NaN: the suite's own rule. */
static bool close_enough(double have, double want)
{
    if (isnan(want) || isnan(have))
        return isnan(want) && isnan(have);
    return have == want || fabs(have - want) <= 1e-7 + 1e-3 * fabs(want);
}

static bool element_ok(const tn_tensor *have, const tn_tensor *want, int64_t i)
{
    tn_number x = tn_tensor_at(have, i), y = tn_tensor_at(want, i);
    if (tn_is_complex(want->dtype))
        return close_enough(x.f, y.f) && close_enough(x.im, y.im);
    return close_enough(tn_number_to_double(have->dtype, x), tn_number_to_double(want->dtype, y));
}

static bool compare(tn_arena *arena, int index, const tn_tensor *have, const tn_tensor *want, const char **why)
{
    int64_t count, wrong = 0, first = -1;
    bool same = have->dtype == want->dtype && have->rank == want->rank;
    for (int i = 0; same && i < want->rank; i++)
        same = have->dim[i] == want->dim[i];
    if (!same) {
        tn_text text = {.arena = arena};
        tn_text_add(&text, "output %d: found %s[", index, tn_dtype_text(have->dtype));
        for (int i = 0; i < have->rank; i++)
            tn_text_add(&text, " %lld", (long long)have->dim[i]);
        tn_text_add(&text, " ], expected %s[", tn_dtype_text(want->dtype));
        for (int i = 0; i < want->rank; i++)
            tn_text_add(&text, " %lld", (long long)want->dim[i]);
        tn_text_add(&text, " ]");
        *why = text.at;
        return false;
    }
    if (!tn_tensor_count(want, &count))
        return false;
    for (int64_t i = 0; i < count; i++)
        if (!element_ok(have, want, i)) {
            wrong++;
            first = first < 0 ? i : first;
        }
    if (wrong) {
        tn_text text = {.arena = arena};
        tn_text_add(&text, "output %d: %lld of %lld elements differ, first at %lld: found ", index, (long long)wrong,
                    (long long)count, (long long)first);
        tn_text_number(&text, have->dtype, tn_tensor_at(have, first));
        tn_text_add(&text, ", expected ");
        tn_text_number(&text, want->dtype, tn_tensor_at(want, first));
        *why = text.at;
    }
    return wrong == 0;
}

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
            return *why = line_of(session), FAIL;
    }
    if (tn_eval_graph(session, arena, graph, given, results, NULL) != TN_OK)
        return *why = line_of(session), FAIL;
    for (int i = 0; i < outputs; i++) {
        if (tn_read_tensor_proto(session, tn_format(arena, "%s/output_%d.pb", folder, i), &wanted) != TN_OK)
            return *why = line_of(session), FAIL;
        if (!compare(arena, i, results[i], &wanted, why))
            return FAIL;
    }
    return PASS;
}

static int run_case(tn_session *session, const char *folder, const char **why)
{
    tn_model model;
    tn_status status = tn_import_onnx(session, tn_format(&session->arena, "%s/model.onnx", folder), NULL, &model);
    if (status != TN_OK)
        return *why = line_of(session), status == TN_UNSUPPORTED ? UNSUPPORTED : FAIL;
    if (tn_graph_verify(model.module->graphs.at[0]) != TN_OK)
        return *why = tn_format(&session->arena, "verify: %s", line_of(session)), FAIL;
    int result = PASS;
    for (int set = 0; result == PASS; set++) {
        const char *data = tn_format(&session->arena, "%s/test_data_set_%d", folder, set);
        if (!exists(data))
            break;
        result = run_set(session, model.module->graphs.at[0], data, why);
    }
    tn_model_free(&model);
    return result;
}

static void print_line(const char *word, const char *name, const char *why)
{
    printf("%s %s%s", word, name, why ? ": " : "");
    for (; why && *why; why++)
        putchar(*why == '\n' ? ' ' : *why);
    putchar('\n');
    fflush(stdout);
}

static int in_child(const char *folder, const char *name, bool verbose)
{
    static const char *const words[] = {"PASS", "FAIL", "UNSUPPORTED"};
    tn_session session = {0};
    const char *why = NULL;
    alarm(SECONDS);
    int result = run_case(&session, folder, &why);
    print_line(words[result], name, why);
    if (verbose && result != PASS)
        tn_print_diags(&session, stdout);
    fflush(stdout);
    tn_arena_free(&session.arena);
    return result;
}

int main(int argc, char **argv)
{
    int counts[4] = {0}, first = argc > 1 && !strcmp(argv[1], "-v") ? 2 : 1;
    for (int i = first; i < argc; i++) {
        const char *slash = strrchr(argv[i], '/'), *name = slash ? slash + 1 : argv[i];
        fflush(stdout);
        pid_t child = fork();
        if (child == 0)
            _exit(in_child(argv[i], name, first == 2));
        int state = 0;
        waitpid(child, &state, 0);
        int result = WIFEXITED(state) && WEXITSTATUS(state) < 3 ? WEXITSTATUS(state) : 3;
        if (result == 3)
            print_line(WIFSIGNALED(state) && WTERMSIG(state) == SIGALRM ? "TIMEOUT" : "CRASH", name, NULL);
        counts[result]++;
    }
    printf("%d pass, %d fail, %d unsupported, %d crash\n", counts[0], counts[1], counts[2], counts[3]);
    return counts[3] ? 1 : 0;
}
