/* Loop passes one by one: what text tests can't say well (tiling, interchange, growth, time). */
#include "loop_test.h"

#include "loop/internal.h"

static const char *const two_loops = "kernel @k(%x: global f32 readonly, %y: global f32, %n: index, %m: index) {\n"
                                     "  for %i = 0 to %n step 1 {\n"
                                     "    %r = mul %i, %m : index\n"
                                     "    for %j = 0 to %m step 1 vector {\n"
                                     "      %o = add %r, %j : index\n"
                                     "      %v = load %x[%o] : f32\n"
                                     "      %w = add %v, %v : f32\n"
                                     "      store %y[%o], %w\n"
                                     "    }\n"
                                     "  }\n"
                                     "}\n";

static const char *const nest = "kernel @k(%x: global f32 readonly, %y: global f32, %n: index, %m: index) {\n"
                                "  for %i = 0 to %n step 1 {\n"
                                "    %two = const 2 : index\n"
                                "    %h = div %m, %two : index\n"
                                "    for %j = 0 to %h step 1 vector {\n"
                                "      %r = mul %i, %m : index\n"
                                "      %o = add %r, %j : index\n"
                                "      %v = load %x[%o] : f32\n"
                                "      store %y[%o], %v\n"
                                "    }\n"
                                "  }\n"
                                "}\n";

static void test_tile(void **state)
{
    (void)state;
    tn_session session = {0};
    tn_lfunc *before = parse_kernel(&session, two_loops), *after = parse_kernel(&session, two_loops);
    assert_int_equal(tn_loop_tile(after, "j", 7), TN_OK);
    assert_int_equal(tn_loop_tile(after, "i", 3), TN_OK);
    assert_int_equal(tn_loop_verify(after, 0), TN_OK);
    assert_non_null(tn_l_find_loop(after, "j.tile"));
    assert_int_equal(tn_l_find_loop(after, "j")->kind, TN_FOR_VECTOR);
    assert_same_effect(before, after, (int64_t[]){10, 33}, 1);
    assert_same_effect(before, after, (int64_t[]){0, 5}, 1);
    assert_int_equal(tn_loop_tile(after, "k", 3), TN_INVALID);
    assert_string_equal(session.diags.at[0].message, "kernel @k: tile: no loop has the index %k");
    assert_int_equal(tn_loop_tile(after, "i", 0), TN_INVALID);
    tn_arena_free(&session.arena);
}

static void test_interchange(void **state)
{
    (void)state;
    tn_session session = {0};
    tn_lfunc *before = parse_kernel(&session, nest), *after = parse_kernel(&session, nest);
    assert_int_equal(tn_loop_interchange(after, "i", "j"), TN_OK);
    assert_int_equal(tn_loop_verify(after, 0), TN_OK);
    assert_ptr_equal(tn_l_find_loop(after, "i")->block->parent, tn_l_find_loop(after, "j"));
    assert_int_equal(tn_l_find_loop(after, "j")->kind, TN_FOR_VECTOR);
    assert_same_effect(before, after, (int64_t[]){10, 33}, 1);
    tn_lfunc *imperfect = parse_kernel(&session, two_loops);
    assert_int_equal(tn_loop_interchange(imperfect, "i", "j"), TN_INVALID);
    assert_non_null(strstr(session.diags.at[0].message, "computes with its index outside the inner loop"));
    assert_int_equal(tn_loop_interchange(imperfect, "j", "i"), TN_INVALID);
    assert_int_equal(tn_loop_interchange(imperfect, "i", "q"), TN_INVALID);
    tn_arena_free(&session.arena);
}

/* Interchange, then widening the loop that is now outside. */
static void test_interchange_vectorize(void **state)
{
    (void)state;
    for (size_t i = 0; i < TN_COUNT(machines); i++) {
        tn_session session = {0};
        tn_lfunc *before = parse_kernel(&session, nest), *after = parse_kernel(&session, nest);
        assert_int_equal(tn_loop_interchange(after, "i", "j"), TN_OK);
        run_passes(after, tn_loop_pipeline, &machines[i]);
        assert_same_effect(before, after, (int64_t[]){10, 77}, 1);
        tn_arena_free(&session.arena);
    }
}

/* A straight body of n additions and n multiplications. */
static tn_lfunc *long_body(tn_session *session, int n)
{
    tn_text text = {.arena = &session->arena};
    tn_text_add(
        &text,
        "kernel @k(%%x: global f32 readonly, %%y: global f32, %%n: index) {\n  for %%i = 0 to %%n step 1 vector {\n"
        "    %%v0 = load %%x[%%i] : f32\n");
    for (int i = 0; i < n; i++)
        tn_text_add(&text, "    %%w%d = mul %%v%d, %%v0 : f32\n    %%v%d = add %%w%d, %%v%d : f32\n", i, i, i + 1, i,
                    i);
    tn_text_add(&text, "    store %%y[%%i], %%v%d\n  }\n}\n", n);
    return parse_kernel(session, text.at);
}

/* Code grows with the operations, not faster; and time, or this test does not end. */
static void test_linear(void **state)
{
    (void)state;
    static const int sizes[] = {5, 1000, 30000};
    for (size_t m = 0; m < TN_COUNT(machines); m++)
        for (size_t i = 0; i < TN_COUNT(sizes); i++) {
            tn_session session = {0};
            tn_lfunc *func = long_body(&session, sizes[i]);
            size_t before = tn_loop_size(func);
            run_passes(func, tn_loop_pipeline, &machines[m]);
            if (tn_loop_size(func) > 6 * before + 60)
                fail_msg("%zu operations became %zu", before, tn_loop_size(func));
            tn_arena_free(&session.arena);
        }
}

/* The builders fold as they go, and never wrongly. */
static void test_builder_folds(void **state)
{
    (void)state;
    tn_session session = {0};
    tn_lfunc *func = tn_lfunc_new(&session, "k");
    tn_lvalue *n = tn_lfunc_index(func, "n");
    tn_lbuilder b = tn_lbuilder_at_end(func, func->body);
    tn_lvalue *zero = tn_l_index(&b, 0), *one = tn_l_index(&b, 1), *two = tn_l_index(&b, 2);
    assert_ptr_equal(tn_l_fn2(&b, TN_S_add, n, zero), n);
    assert_ptr_equal(tn_l_fn2(&b, TN_S_mul, one, n), n);
    assert_ptr_equal(tn_l_fn2(&b, TN_S_div, n, one), n);
    assert_ptr_equal(tn_l_fn2(&b, TN_S_sub, tn_l_fn2(&b, TN_S_add, n, two), two), n);
    int64_t value;
    assert_true(tn_l_is_const(tn_l_fn2(&b, TN_S_sub, n, n), &value) && value == 0);
    assert_true(tn_l_is_const(tn_l_fn2(&b, TN_S_mul, two, two), &value) && value == 4);
    assert_true(tn_l_is_const(tn_l_fn2(&b, TN_S_lt, one, two), &value) && value == 1);
    assert_false(tn_l_is_const(n, &value));
    tn_lvalue *max = tn_l_index(&b, INT64_MAX);
    assert_true(tn_l_is_const(tn_l_fn2(&b, TN_S_add, max, one), &value) && value == INT64_MIN);
    tn_lvalue *f = tn_l_cast(&b, n, TN_F32), *minus = tn_l_const(&b, tn_lscalar(TN_F32), (tn_number){.f = -0.0});
    tn_lvalue *plus = tn_l_const(&b, tn_lscalar(TN_F32), (tn_number){.f = 0.0});
    assert_ptr_equal(tn_l_fn2(&b, TN_S_add, f, minus), f);
    assert_ptr_not_equal(tn_l_fn2(&b, TN_S_add, f, plus), f);
    assert_ptr_equal(tn_l_fn2(&b, TN_S_sub, f, plus), f);
    assert_ptr_not_equal(tn_l_fn2(&b, TN_S_sub, f, minus), f);
    tn_arena_free(&session.arena);
}

/* A pass list with a wrong name says which. */
static void test_unknown_pass(void **state)
{
    (void)state;
    tn_session session = {0};
    tn_lfunc *func = parse_kernel(&session, nest);
    assert_int_equal(tn_loop_run_passes(func, "simplify,vectorise", &machines[0], true, NULL), TN_USAGE);
    assert_string_equal(session.diags.at[0].message, "there is no pass 'vectorise' on loops; there are: simplify, hoist, vectorize, unroll, expand");
    tn_arena_free(&session.arena);
}

/* Unrolling stops before it floods memory; what stays is a loop. */
static void test_unroll_limit(void **state)
{
    (void)state;
    tn_session session = {0};
    tn_lfunc *func =
        parse_kernel(&session, "kernel @k(%y: global i64) {\n  for %i = 0 to 1000000000000 step 1 unroll {\n"
                               "    for %j = 0 to 100000 step 1 unroll {\n      store %y[%i], %j\n    }\n  }\n}\n");
    run_passes(func, "unroll", &machines[0]);
    assert_true(tn_loop_size(func) < 100);
    tn_arena_free(&session.arena);
}

/* What has an order between iterations stays scalar; arithmetic on addresses and gathers from them widen. */
static void test_ordered(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "%a = atomic add %y[%z], %v : i32\nstore %y[%i], %a",
        "%a = atomic %y[%z], %v : i32\nstore %y[%i], %a",
        "%a = cas %y[%z], %v, %w : i32\nstore %y[%i], %a",
        "%m = memory : global i32\n%b = address %x : index\n%four = const 4 : index\n%e = div %b, %four : index\n"
        "%p = add %e, %i : index\n%a = load %m[%p] : i32\nstore %y[%i], %a",
        "%m = memory : global i32\n%b = address %y : index\n%four = const 4 : index\n%e = div %b, %four : index\n"
        "%two = const 2 : index\n%t = mul %i, %two : index\n%p = add %e, %t : index\nstore %m[%p], %v",
    };
    for (size_t m = 0; m < TN_COUNT(machines); m++)
        for (size_t i = 0; i < TN_COUNT(bodies); i++) {
            tn_session session = {0};
            const char *text = tn_format(&session.arena,
                                         "kernel @k(%%x: global i32, %%y: global i32, %%n: index) overlap {\n%%z = const 3 : index\n"
                                         "for %%i = 0 to %%n step 1 vector {\n%%v = load %%x[%%i] : i32\n%%w = neg %%v : i32\n%s\n}\n}\n",
                                         bodies[i]);
            tn_lfunc *before = parse_kernel(&session, text), *after = parse_kernel(&session, text);
            run_passes(after, tn_loop_pipeline, &machines[m]);
            assert_same_effect(before, after, (int64_t[]){77}, 1);
            bool widened = strstr(kernel_text(after), "i32x") != NULL;
            assert_int_equal(widened, i >= 3);
            tn_arena_free(&session.arena);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tile),
        cmocka_unit_test(test_interchange),
        cmocka_unit_test(test_interchange_vectorize),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_builder_folds),
        cmocka_unit_test(test_unknown_pass),
        cmocka_unit_test(test_unroll_limit),
        cmocka_unit_test(test_ordered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
