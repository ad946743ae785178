/* Random graphs keep their meaning, to the bit, through every pass and through the default list; running once more
 * changes nothing. */
#include "unit.h"

#include "opt/opt.h"
#include "opt_random.h"

enum { SEEDS = 300, OPS = 40 };

static void report(tn_session *session, const char *pass, uint64_t seed, const char *before, const tn_graph *graph)
{
    tn_text text = {.arena = &session->arena};
    tn_text_graph(&text, graph);
    printf("pass %s, seed %llu\nbefore:\n%s\nafter:\n%s\n", pass, (unsigned long long)seed, before, text.at);
    tn_print_diags(session, stdout);
}

static const char *text_of(tn_session *session, const tn_graph *graph)
{
    tn_text text = {.arena = &session->arena};
    tn_text_graph(&text, graph);
    return text.at;
}

static bool same_values(const tn_tensor *x, const tn_tensor *y)
{
    int64_t n, m;
    if (x->dtype != y->dtype || x->rank != y->rank || !tn_tensor_count(x, &n) || !tn_tensor_count(y, &m) || n != m)
        return false;
    for (int i = 0; i < x->rank; i++)
        if (x->dim[i] != y->dim[i])
            return false;
    for (int64_t i = 0; i < n; i++)
        if (!tn_number_same(x->dtype, tn_tensor_at(x, i), tn_tensor_at(y, i)))
            return false;
    return true;
}

enum { OUTPUTS = RANDOM_OUTPUTS };

typedef struct sizes {
    int64_t b, s;
} sizes;
static const sizes runs[] = {{1, 0}, {2, 3}, {3, 1}};

/* False: inputs of these sizes do not run (their symbols occur nowhere, or a size is negative). */
static bool evaluate(tn_session *session, const tn_graph *graph, uint64_t seed, sizes z, tn_tensor **out)
{
    size_t errors = session->errors, ndiags = session->diags.len;
    bool ok = tn_eval_graph(session, &session->arena, graph, random_inputs(session, graph, seed, z.b, z.s), out,
                            NULL) == TN_OK;
    session->errors = errors;
    session->diags.len = ndiags;
    return ok;
}

static void check(const char *passes, uint64_t seed, bool convolutions)
{
    tn_session session = {0};
    tn_tensor *before[TN_COUNT(runs)][OUTPUTS], *after[OUTPUTS];
    bool ran[TN_COUNT(runs)];
    tn_opt_options options = {.verify = true};
    tn_graph *graph = random_graph(&session, seed, OPS, convolutions);
    const char *text = text_of(&session, graph);
    for (size_t r = 0; r < TN_COUNT(runs); r++)
        ran[r] = evaluate(&session, graph, seed, runs[r], before[r]);
    bool fine = tn_graph_verify(graph) == TN_OK && tn_opt_run(&session, graph, passes, &options) == TN_OK &&
                session.diags.len == 0;
    for (size_t r = 0; fine && r < TN_COUNT(runs); r++) {
        fine = !ran[r] || evaluate(&session, graph, seed, runs[r], after);
        for (int i = 0; fine && ran[r] && i < OUTPUTS; i++)
            fine = same_values(before[r][i], after[i]);
        if (!fine)
            print_message("b = %lld, s = %lld\n", (long long)runs[r].b, (long long)runs[r].s);
    }
    const char *once = text_of(&session, graph);
    bool again =
        fine && tn_opt_run(&session, graph, passes, &options) == TN_OK && !strcmp(once, text_of(&session, graph));
    if (!fine)
        report(&session, passes, seed, text, graph);
    else if (!again)
        report(&session, passes, seed, once, graph);
    assert_true(fine);
    assert_true(again);
    tn_arena_free(&session.arena);
}

static void check_all(const char *passes, bool convolutions)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        check(passes, seed, convolutions);
}

static void test_shapes(void **state)
{
    (void)state, check_all("shapes", false);
}
static void test_canonicalize(void **state)
{
    (void)state, check_all("canonicalize", true);
}
static void test_fold(void **state)
{
    (void)state, check_all("fold", false);
}
static void test_simplify(void **state)
{
    (void)state, check_all("simplify", false);
}
static void test_layout(void **state)
{
    (void)state, check_all("layout", false);
}
static void test_cse(void **state)
{
    (void)state, check_all("cse", false);
}
static void test_dce(void **state)
{
    (void)state, check_all("dce", false);
}
static void test_default(void **state)
{
    (void)state, check_all("default", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),   cmocka_unit_test(test_canonicalize), cmocka_unit_test(test_fold),
        cmocka_unit_test(test_simplify), cmocka_unit_test(test_layout),       cmocka_unit_test(test_cse),
        cmocka_unit_test(test_dce),      cmocka_unit_test(test_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
