/* eval_graph FILE: runs the first graph of a text file, which takes no inputs, on the reference interpreter and writes
 * its results to standard output: for each a line "type dim dim …" and the bytes. Exit 1: diagnostics are on standard
 * error. */
#include "eval/eval.h"

#include <stdlib.h>

static bool write_tensor(const tn_tensor *t)
{
    int64_t n = 0;
    size_t bytes = 0;
    printf("%s", tn_dtype_text(t->dtype));
    for (int i = 0; i < t->rank; i++)
        printf(" %lld", (long long)t->dim[i]);
    putchar('\n');
    if (!tn_tensor_count(t, &n) || !tn_dtype_bytes(t->dtype, t->splat ? 1 : n, &bytes))
        return false;
    for (int64_t i = 0; i < (t->splat ? n : 1); i++)
        if (fwrite(t->data, 1, bytes, stdout) != bytes)
            return false;
    return true;
}

static tn_status run(tn_session *session, tn_arena *arena, const char *path)
{
    tn_file file = {0};
    tn_graph_module *module = NULL;
    TN_TRY(tn_file_map(session, path, &file));
    tn_status status = tn_graph_parse(session, path, (const char *)file.data, file.size, &module);
    tn_file_unmap(&file);
    TN_TRY(status);
    if (module->graphs.len == 0 || module->graphs.at[0]->body->nargs)
        return tn_error(session, TN_INVALID, TN_NO_LOC, "expected a graph without inputs");
    const tn_graph *graph = module->graphs.at[0];
    int n = graph->body->last->noperands;
    tn_tensor **outputs = TN_NEW_ARRAY(arena, tn_tensor *, (size_t)n);
    TN_TRY(tn_graph_verify(graph));
    TN_TRY(tn_eval_graph(session, arena, graph, NULL, outputs, NULL));
    for (int i = 0; i < n; i++)
        if (!write_tensor(outputs[i]))
            return tn_error(session, TN_IO, TN_NO_LOC, "cannot write");
    return TN_OK;
}

int main(int argc, char **argv)
{
    tn_session session = {0};
    tn_arena arena = {0};
    if (argc != 2) {
        fprintf(stderr, "usage: eval_graph FILE\n");
        return 2;
    }
    tn_status status = run(&session, &arena, argv[1]);
    tn_print_diags(&session, stderr);
    tn_arena_free(&arena);
    tn_arena_free(&session.arena);
    return status != TN_OK;
}
