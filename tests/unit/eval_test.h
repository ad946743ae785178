/* For tests of the reference interpreter. A test is one graph in text form that returns pairs: what an operation gave,
 * and the constant that it must equal, bit for bit (any NaN equals any NaN). */
#ifndef TN_EVAL_TEST_H
#define TN_EVAL_TEST_H

#include "unit.h"

#include "eval/eval.h"

#include <stdlib.h>
#include <string.h>

typedef struct tn_eval_run {
    tn_session session;
    tn_arena arena;
    tn_graph *graph;
    tn_tensor *output[16];
    tn_status status;
} tn_eval_run;

static inline void run_end(tn_eval_run *run)
{
    tn_arena_free(&run->arena);
    tn_arena_free(&run->session.arena);
}

/* Parses the graph `body` is part of: arguments, then a body. A test that does not parse fails. */
static inline void run_parse(tn_eval_run *run, const char *source)
{
    tn_graph_module *module = NULL;
    *run = (tn_eval_run){0};
    if (tn_graph_parse(&run->session, "test.tn", source, strlen(source), &module) != TN_OK || module->graphs.len == 0) {
        tn_print_diags(&run->session, stderr);
        fail_msg("does not parse:\n%s", source);
    }
    run->graph = module->graphs.at[0];
    assert_in_range(run->graph->body->last->noperands, 0, 16);
}

static inline void run_graph(tn_eval_run *run, const char *source, const tn_tensor *const *inputs,
                             const tn_eval_options *options)
{
    run_parse(run, source);
    run->status = tn_eval_graph(&run->session, &run->arena, run->graph, inputs, run->output, options);
}

static inline void print_tensor(const tn_tensor *t, const char *what)
{
    tn_arena arena = {0};
    tn_text text = {.arena = &arena};
    int64_t n = 0;
    tn_tensor_count(t, &n);
    tn_text_add(&text, "%s: %s[", what, tn_dtype_text(t->dtype));
    for (int i = 0; i < t->rank; i++)
        tn_text_add(&text, "%s%lld", i ? ", " : "", (long long)t->dim[i]);
    tn_text_add(&text, "]");
    for (int64_t i = 0; i < n && i < 64; i++) {
        tn_text_add(&text, " ");
        tn_text_number(&text, t->dtype, tn_tensor_at(t, i));
    }
    fprintf(stderr, "%s\n", text.at);
    tn_arena_free(&arena);
}

static inline bool tensors_equal(const tn_tensor *a, const tn_tensor *b)
{
    int64_t n = 0;
    if (a->dtype != b->dtype || a->rank != b->rank || !tn_tensor_count(a, &n))
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    for (int64_t i = 0; i < n; i++)
        if (!tn_number_same(a->dtype, tn_tensor_at(a, i), tn_tensor_at(b, i)))
            return false;
    return true;
}

/* Runs a body without inputs and compares the pairs that it returns. */
static inline void check(const char *body)
{
    tn_eval_run run;
    tn_arena scratch = {0};
    run_graph(&run, tn_format(&scratch, "graph @test() {\n%s\n}\n", body), NULL, NULL);
    if (run.status != TN_OK) {
        tn_print_diags(&run.session, stderr);
        fail_msg("does not run:\n%s", body);
    }
    for (int i = 0; i + 1 < run.graph->body->last->noperands; i += 2)
        if (!tensors_equal(run.output[i], run.output[i + 1])) {
            print_tensor(run.output[i], "found");
            print_tensor(run.output[i + 1], "expected");
            fail_msg("pair %d differs:\n%s", i / 2, body);
        }
    tn_arena_free(&scratch);
    run_end(&run);
}

/* Runs a whole source without inputs that must fail with `status` and a message that holds `part`. */
static inline void check_fails(const char *source, const tn_eval_options *options, tn_status status, const char *part)
{
    tn_eval_run run;
    run_graph(&run, source, NULL, options);
    assert_int_equal(run.status, status);
    assert_true(run.session.diags.len > 0);
    const char *message = run.session.diags.at[run.session.diags.len - 1].message;
    if (!strstr(message, part))
        fail_msg("expected \"%s\" in: %s", part, message);
    run_end(&run);
}

#endif
