/* No group takes longer than a kernel for each of its operations, as src/fuse/cost.c estimates both: random graphs, and chains under windows, where what is computed once a tap
 * costs more than storing it. */
#include <stdio.h>

#include "plan_test.h"

#include "graph_random.h"
#include "opt/opt.h"

static const char *const machines[] = {"avx2", "avx512", "sm_90a"};

static size_t check_steps(const tn_steps *steps, const char *what)
{
    size_t groups = 0;
    for (size_t i = 0; i < steps->list.len; i++) {
        const tn_step *s = steps->list.at[i];
        groups += s->ns > 0;
        if (s->ns > s->apart_ns * (1 + 1e-9))
            fail_msg("%s: %s takes %g ns, its operations apart %g ns", what, s->kernel->name, s->ns, s->apart_ns);
        for (int b = 0; b < s->nblocks; b++)
            groups += check_steps(&s->blocks[b], what);
    }
    return groups;
}

static tn_status fuse(tn_session *session, tn_graph *graph, const char *machine, tn_program *program)
{
    tn_opt_options opt = {.verify = true};
    tn_fuse_options options = {.target = tn_machine_tile_target(tn_machine_find(machine), 2), .estimate = true};
    TN_TRY(tn_opt_run(session, graph, NULL, &opt));
    TN_TRY(tn_fuse_check(graph));
    return tn_fuse(session, graph, &options, program);
}

static void test_random_graphs(void **state)
{
    (void)state;
    size_t groups = 0;
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        tn_session *session = tn_session_new();
        maker *k = calloc(1, sizeof *k);
        make_graph(k, session, seed);
        tn_program program = {0};
        if (fuse(session, k->graph, machines[seed % TN_COUNT(machines)], &program) == TN_OK)
            groups += check_steps(&program.steps, tn_format(&session->arena, "graph %llu", (unsigned long long)seed));
        free(k);
        tn_session_free(session);
    }
    assert_true(groups > 5000);
}

/* A pool of `window` taps of a chain of so many additions, each of which a kernel may compute again for each tap. Returns how many kernels it becomes. */
static size_t pool_of_chain(const char *machine, int window, int additions)
{
    tn_session *session = tn_session_new();
    char text[8192];
    int at = snprintf(text, sizeof text, "graph @f(%%x: f32[64, 4096]) -> (y) {\n  %%i = constant dense<-inf> : f32[]\n  %%a0 = abs %%x : f32[64, 4096]\n");
    for (int i = 1; i < additions; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "  %%a%d = %s %%a%d, %%x : f32[64, 4096]\n", i, i % 2 ? "subtract" : "multiply", i - 1);
    snprintf(text + at, sizeof text - (size_t)at,
             "  %%y = reduce_window %%a%d, %%i, window = [1, %d], window_strides = [1, 1], base_dilation = [1, 1], window_dilation = [1, 1], padding_low = [0, 0], padding_high = [0, 0] : f32[64, %d] {\n"
             "  ^(%%p: f32[], %%q: f32[]):\n    %%m = maximum %%p, %%q : f32[]\n    return %%m\n  }\n  return %%y\n}\n",
             additions - 1, window, 4096 - window + 1);
    tn_graph_module *module;
    tn_program program = {0};
    if (tn_graph_parse(session, "pool", text, strlen(text), &module) != TN_OK || fuse(session, module->graphs.at[0], machine, &program) != TN_OK) {
        tn_print_diags(session, stderr);
        fail_msg("%s", text);
    }
    check_steps(&program.steps, machine);
    size_t kernels = program.steps.list.len;
    tn_session_free(session);
    return kernels;
}

static void test_windows(void **state)
{
    (void)state;
    for (size_t m = 0; m < TN_COUNT(machines); m++) {
        assert_int_equal(pool_of_chain(machines[m], 2, 1), 1); /* cheaper again than stored */
        assert_in_range(pool_of_chain(machines[m], 256, 40), 2, 41);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_graphs), cmocka_unit_test(test_windows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
