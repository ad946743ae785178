/* Every pass keeps the meaning of random kernels, on every machine: the interpreter runs both sides on random data. */
#include "loop_random.h"

static void check_list(uint64_t seeds, const char *list)
{
    for (uint64_t seed = 0; seed < seeds; seed++) {
        tn_session session = {0};
        tn_lfunc *func = make_kernel(&session, seed);
        assert_int_equal(tn_loop_verify(func, 0), TN_OK);
        for (size_t i = 0; i < TN_COUNT(machines); i++) {
            tn_lfunc *after = copy_kernel(func);
            run_passes(after, list, &machines[i]);
            uint64_t r = seed;
            int64_t indices[] = {(int64_t)(next_random(&r) % 120), (int64_t)(next_random(&r) % 9), 0, 1};
            assert_same_effect(func, after, indices, seed);
            assert_true(tn_loop_size(after) <= 40 * tn_loop_size(func) + 200 || strstr(list, "unroll"));
            /* What a pass leaves prints and reads back. */
            assert_string_equal(kernel_text(after), kernel_text(copy_kernel(after)));
        }
        tn_arena_free(&session.arena);
    }
}

static void test_simplify(void **state)
{
    (void)state;
    check_list(200, "simplify,simplify");
}
static void test_hoist(void **state)
{
    (void)state;
    check_list(200, "hoist");
}
static void test_vectorize(void **state)
{
    (void)state;
    check_list(300, "vectorize");
}
static void test_unroll(void **state)
{
    (void)state;
    check_list(100, "unroll");
}
static void test_expand(void **state)
{
    (void)state;
    check_list(100, "expand");
}
static void test_pipeline(void **state)
{
    (void)state;
    check_list(300, tn_loop_pipeline);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_simplify), cmocka_unit_test(test_hoist),  cmocka_unit_test(test_vectorize),
        cmocka_unit_test(test_unroll),   cmocka_unit_test(test_expand), cmocka_unit_test(test_pipeline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
