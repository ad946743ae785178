/* Graph groups with a GPU's tiles on a CPU: shapes that need more than one tile, where random graphs are small. Sums of small integers are exact. */
#include <stdio.h>

#include "plan_test.h"

#include "opt/opt.h"

typedef struct shape {
    const char *text;  /* of the operand: its sizes */
    int64_t size[3];
    int rank;
    int axis;          /* that is summed; -1: all of them */
    size_t kernels;
} shape;

static const char *graph_text(tn_session *session, const shape *s)
{
    char result[64] = "";
    for (int i = 0; i < s->rank && s->axis >= 0; i++)
        if (i != s->axis)
            snprintf(result + strlen(result), sizeof result - strlen(result), "%s%lld", *result ? ", " : "", (long long)s->size[i]);
    const char *axes = s->axis >= 0 ? tn_format(&session->arena, "%d", s->axis) : s->rank == 1 ? "0" : "0, 1, 2";
    return tn_format(&session->arena,
                     "graph @f(%%x: i32[%s]) {\n  %%z = constant dense<0> : i32[]\n  %%s = reduce %%x, %%z, dimensions = [%s] : i32[%s] {\n"
                     "  ^(%%a: i32[], %%b: i32[]):\n    %%c = add %%a, %%b : i32[]\n    return %%c\n  }\n  return %%s\n}\n",
                     s->text, axes, result);
}

static void check_sum(const shape *s)
{
    tn_session *session = tn_session_new();
    const char *text = graph_text(session, s);
    tn_graph_module *module;
    tn_opt_options opt = {.verify = true};
    if (tn_graph_parse(session, "test", text, strlen(text), &module) != TN_OK || tn_opt_run(session, module->graphs.at[0], NULL, &opt) != TN_OK) {
        tn_print_diags(session, stderr);
        fail_msg("%s", text);
    }
    tn_program program = {0};
    tn_fuse_options fuse = {.target = tn_machine_tile_target(tn_machine_find("sm_90a"), 1)};
    assert_int_equal(tn_fuse(session, module->graphs.at[0], &fuse, &program), TN_OK);
    assert_int_equal(program.steps.list.len, s->kernels);
    tn_exec_options options = {.machine = tn_machine_find("baseline"), .threads = 1, .level = 1, .verify = true};
    tn_exec *exec;
    tn_context *context;
    tn_pool *pool = tn_pool_new(1);
    assert_int_equal(tn_exec_new(session, &program, &options, &exec), TN_OK);
    assert_int_equal(tn_exec_load(session, exec, pool), TN_OK);
    assert_int_equal(tn_state_new(exec, pool, &context), TN_OK);

    int64_t n = 1, kept = 1, inner = 1, out_size[3];
    int rank = 0;
    for (int i = 0; i < s->rank; i++) {
        n *= s->size[i];
        inner *= s->axis >= 0 && i > s->axis ? s->size[i] : 1;
        if (s->axis >= 0 && i != s->axis)
            kept *= out_size[rank++] = s->size[i];
    }
    int32_t *x = malloc(sizeof *x * (size_t)n), *got = calloc((size_t)kept, sizeof *got), *want = calloc((size_t)kept, sizeof *want);
    for (int64_t i = 0; i < n; i++) {
        x[i] = (int32_t)(i * 7 % 13) - 5;
        want[s->axis < 0 ? 0 : i / (inner * s->size[s->axis]) * inner + i % inner] += x[i];
    }
    DLTensor in = {.data = x, .device = {1, 0}, .ndim = s->rank, .dtype = tn_dtype_to_dlpack(TN_I32), .shape = (int64_t *)s->size};
    DLTensor out = {.data = got, .device = {1, 0}, .ndim = rank, .dtype = tn_dtype_to_dlpack(TN_I32), .shape = out_size};
    if (tn_run(context, &in, 1, &out, 1) != TN_OK)
        fail_msg("%s", tn_context_error(context));
    assert_memory_equal(got, want, sizeof *got * (size_t)kept);
    free(x), free(got), free(want);
    tn_context_free(context);
    tn_exec_free(exec);
    tn_pool_free(pool);
    tn_session_free(session);
}

static void sums_of_large_tensors(void **state)
{
    (void)state;
    static const shape shapes[] = {
        {"1048576", {1048576}, 1, -1, 2},             /* parts of everything */
        {"1048575", {1048575}, 1, -1, 1},             /* no part of a power of two: one program's strips */
        {"4, 262144", {4, 262144}, 2, 1, 2},          /* few long rows */
        {"3, 100001", {3, 100001}, 2, 1, 1},          /* that have no parts, and end inside a strip */
        {"200, 5003", {200, 5003}, 2, 1, 1},          /* rows as a whole, padded to 5120 */
        {"1003, 700", {1003, 700}, 2, 1, 1},          /* several rows a program; the last ones are not there */
        {"16384, 40", {16384, 40}, 2, 0, 2},          /* few columns */
        {"333, 5000", {333, 5000}, 2, 0, 1},          /* columns by strips of rows */
        {"64, 32, 1024", {64, 32, 1024}, 3, -1, 2},
        {"100, 300, 77", {100, 300, 77}, 3, 1, 1},
    };
    for (size_t i = 0; i < TN_COUNT(shapes); i++)
        check_sum(&shapes[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_of_large_tensors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
