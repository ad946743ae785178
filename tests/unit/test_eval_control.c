/* Regions and the driver: loops, branches, symbols, limits, memory given back, single operations. */
#include "eval_test.h"

static void branches(void **state)
{
    (void)state;
    check("  %p = constant dense<true> : bool[]\n"
          "  %a = constant dense<[1, 2]> : i32[2]\n"
          "  %0 = if %p : i32[2] {\n"
          "    %b = add %a, %a : i32[2]\n"
          "    return %b\n"
          "  } {\n"
          "    return %a\n"
          "  }\n"
          "  %i = constant dense<-1> : i32[]\n"
          "  %1 = case %i : i32[2] {\n"
          "    return %a\n"
          "  } {\n"
          "    %b = multiply %0, %0 : i32[2]\n"
          "    return %b\n"
          "  }\n"
          "  %e0 = constant dense<[2, 4]> : i32[2]\n"
          "  %e1 = constant dense<[4, 16]> : i32[2]\n"
          "  return %0, %e0, %1, %e1");
}

static void loops(void **state)
{
    (void)state;
    /* 5 factorial, with a value from outside used on every turn, and an inner reduction */
    check("  %one = constant dense<1> : i32[]\n"
          "  %n = constant dense<5> : i32[]\n"
          "  %v = constant dense<[1, 1]> : i32[2]\n"
          "  %z = constant dense<0> : i32[]\n"
          "  %0, %1, %2 = while %n, %one, %v : i32[], i32[], i32[2] {\n"
          "  ^(%i: i32[], %f: i32[], %w: i32[2]):\n"
          "    %c = compare %i, %one, direction = \"GT\" : bool[]\n"
          "    return %c\n"
          "  } {\n"
          "  ^(%i: i32[], %f: i32[], %w: i32[2]):\n"
          "    %g = multiply %f, %i : i32[]\n"
          "    %j = subtract %i, %one : i32[]\n"
          "    %s = reduce %w, %z, dimensions = [0] : i32[] {\n"
          "    ^(%x: i32[], %y: i32[]):\n"
          "      %t = add %x, %y : i32[]\n"
          "      return %t\n"
          "    }\n"
          "    %b = broadcast_in_dim %s, shape = [2], broadcast_dimensions = [] : i32[2]\n"
          "    return %j, %g, %b\n"
          "  }\n"
          "  %e1 = constant dense<120> : i32[]\n"
          "  %e2 = constant dense<[16, 16]> : i32[2]\n"
          "  return %0, %one, %1, %e1, %2, %e2");
}

static void wrappers(void **state)
{
    (void)state;
    check("  %a = constant dense<[1, 2]> : i32[2]\n"
          "  %0, %1 = optimization_barrier %a, %a : i32[2], i32[2]\n"
          "  %2 = composite %0, name = \"twice\" : i32[2] {\n"
          "  ^(%x: i32[2]):\n"
          "    %y = add %x, %x : i32[2]\n"
          "    return %y\n"
          "  }\n"
          "  %e = constant dense<[2, 4]> : i32[2]\n"
          "  return %1, %a, %2, %e");
}

static const char doubled[] = "graph @g(%x: f32[b, 2*s], %y: f32[s]) {\n"
                              "  %0 = dimension dim = s : i64[]\n"
                              "  %1 = reshape %x, shape = [2*b, s] : f32[2*b, s]\n"
                              "  return %0, %1\n"
                              "}\n";

static const tn_tensor *zeros(tn_session *session, tn_dtype dtype, int rank, const int64_t *dims)
{
    return tn_tensor_splat(session, dtype, rank, dims, (tn_number){0});
}

static void symbols(void **state)
{
    (void)state;
    tn_eval_run run;
    run_parse(&run, doubled);
    const tn_tensor *inputs[2] = {zeros(&run.session, TN_F32, 2, (int64_t[]){3, 10}),
                                  zeros(&run.session, TN_F32, 1, (int64_t[]){5})};
    assert_int_equal(tn_eval_graph(&run.session, &run.arena, run.graph, inputs, run.output, NULL), TN_OK);
    assert_int_equal(tn_tensor_at(run.output[0], 0).i, 5);
    assert_int_equal(run.output[1]->dim[0], 6);
    assert_int_equal(run.output[1]->dim[1], 5);
    run_end(&run);
}

static void wrong_inputs(void **state)
{
    (void)state;
    static const struct {
        tn_dtype dtype;
        int rank;
        int64_t dims[3];
        const char *message;
    } rows[] = {
        {TN_F32, 2, {3, 9}, "dimension 1 is 2*s, which no whole s makes 9"},
        {TN_F32, 2, {3, 8}, "dimension 0 is s = 4, found 5"},
        {TN_F32, 1, {3}, "rank is 2, found 1"},
        {TN_I32, 2, {3, 10}, "element type is f32, found i32"},
    };
    for (size_t i = 0; i < TN_COUNT(rows); i++) {
        tn_eval_run run;
        run_parse(&run, doubled);
        const tn_tensor *inputs[2] = {zeros(&run.session, rows[i].dtype, rows[i].rank, rows[i].dims),
                                      zeros(&run.session, TN_F32, 1, (int64_t[]){5})};
        assert_int_equal(tn_eval_graph(&run.session, &run.arena, run.graph, inputs, run.output, NULL), TN_INVALID);
        const char *message = run.session.diags.at[0].message;
        if (!strstr(message, rows[i].message))
            fail_msg("expected \"%s\" in: %s", rows[i].message, message);
        run_end(&run);
    }
}

static void born_symbols(void **state)
{
    (void)state;
    check("  %n = constant dense<2> : i64[]\n"
          "  define_dimension %n, dim = k, upper = 3\n"
          "  %a = constant dense<[1, 2, 3]> : i32[3]\n"
          "  %0 = slice %a, start = [0], limit = [k], strides = [1] : i32[k]\n"
          "  %1 = dimension dim = k + 1 : i64[]\n"
          "  %e0 = constant dense<[1, 2]> : i32[2]\n"
          "  %e1 = constant dense<3> : i64[]\n"
          "  return %0, %e0, %1, %e1");
    check_fails(
        "graph @g() {\n  %n = constant dense<4> : i64[]\n  define_dimension %n, dim = k, upper = 3\n  return %n\n}\n",
        NULL, TN_INVALID, "k is to be in [0, 3]");
    /* what only the run can see: the slice would leave its operand */
    check_fails("graph @g() {\n"
                "  %n = constant dense<5> : i64[]\n"
                "  define_dimension %n, dim = k, upper = 9\n"
                "  %a = constant dense<[1, 2, 3]> : i32[3]\n"
                "  %0 = slice %a, start = [0], limit = [k], strides = [1] : i32[k]\n"
                "  return %0\n"
                "}\n",
                NULL, TN_INVALID, "limit <= 3");
}

static const char endless[] = "graph @g() {\n"
                              "  %t = constant dense<true> : bool[]\n"
                              "  %0 = while %t : bool[] {\n"
                              "  ^(%x: bool[]):\n"
                              "    return %x\n"
                              "  } {\n"
                              "  ^(%x: bool[]):\n"
                              "    return %x\n"
                              "  }\n"
                              "  return %0\n"
                              "}\n";

static void limits(void **state)
{
    (void)state;
    check_fails(endless, &(tn_eval_options){.max_work = 100000}, TN_UNSUPPORTED, "more than 100000 steps");
    check_fails("graph @g() {\n  %0 = iota shape = [1000, 1000], dtype = f32, iota_dimension = 0 : f32[1000, 1000]\n  "
                "return %0\n}\n",
                &(tn_eval_options){.max_bytes = 1000000}, TN_NO_MEMORY, "raise max_bytes");
    check_fails("graph @g() {\n  %c = constant dense<1> : i32[]\n  custom_call %c, name = \"mine\"\n  return %c\n}\n",
                NULL, TN_UNSUPPORTED, "'mine'");
}

static void freed(void **state)
{
    (void)state;
    /* 20 tensors of 4 MB one after the other fit in 12 MB: at most two and the working memory are alive at once */
    char source[4096];
    size_t at = (size_t)snprintf(
        source, sizeof source,
        "graph @g() {\n  %%0 = iota shape = [1000000], dtype = f32, iota_dimension = 0 : f32[1000000]\n");
    for (int i = 1; i < 20; i++)
        at += (size_t)snprintf(source + at, sizeof source - at, "  %%%d = negate %%%d : f32[1000000]\n", i, i - 1);
    snprintf(source + at, sizeof source - at, "  return %%19\n}\n");
    tn_eval_run run;
    run_graph(&run, source, NULL, &(tn_eval_options){.max_bytes = 12000000});
    assert_int_equal(run.status, TN_OK);
    assert_true(tn_tensor_at(run.output[0], 999999).f == -999999);
    run_end(&run);
}

static tn_status count_ops(void *context, const tn_op *op, tn_tensor *const *results)
{
    assert_true(op->nresults == 0 || results[0]->dtype == op->result[0].type.dtype);
    return ++*(int *)context == 3 ? TN_MISMATCH : TN_OK;
}

static void watched(void **state)
{
    (void)state;
    tn_eval_run run;
    int seen = 0;
    run_graph(&run,
              "graph @g() {\n  %0 = constant dense<1> : i32[]\n  %1 = add %0, %0 : i32[]\n  %2 = add %1, %1 : i32[]\n  "
              "%3 = add %2, %2 : i32[]\n  return %3\n}\n",
              NULL, &(tn_eval_options){.watch = count_ops, .watch_context = &seen});
    assert_int_equal(run.status, TN_MISMATCH);
    assert_int_equal(seen, 3);
    run_end(&run);
}

static void single_operations(void **state)
{
    (void)state;
    tn_eval_run run;
    run_parse(&run, "graph @g(%x: i32[3], %z: i32[]) {\n"
                    "  %0 = reduce %x, %z, dimensions = [0] : i32[] {\n"
                    "  ^(%a: i32[], %b: i32[]):\n"
                    "    %s = add %a, %b : i32[]\n"
                    "    return %s\n"
                    "  }\n"
                    "  return %0\n"
                    "}\n");
    const int64_t dims[1] = {3};
    const tn_tensor *operands[2] = {tn_tensor_splat(&run.session, TN_I32, 1, dims, (tn_number){.i = 7}),
                                    tn_tensor_splat(&run.session, TN_I32, 0, NULL, (tn_number){.i = 1})};
    assert_int_equal(tn_eval_op(&run.session, &run.arena, run.graph->body->first, operands, run.output, NULL, NULL),
                     TN_OK);
    assert_int_equal(tn_tensor_at(run.output[0], 0).i, 22);
    run_end(&run);
}

static void environments(void **state)
{
    (void)state;
    tn_session session = {0};
    tn_arena arena = {0};
    tn_dim_env env = {.arena = &arena};
    tn_dim a = tn_dim_symbol(&session, "a"), b = tn_dim_symbol(&session, "b");
    int64_t value;
    assert_false(tn_env_eval(&env, a, &value));
    assert_true(tn_env_set(&env, "a", 3));
    assert_true(tn_env_set(&env, "a", 3));
    assert_false(tn_env_set(&env, "a", 4));
    /* a * b + 2 = 14 gives b = 4 */
    tn_dim dim = tn_dim_add(&session, tn_dim_mul(&session, a, b), tn_dim_const(&session, 2));
    tn_type type = tn_type_make(TN_F32, 1, &dim);
    assert_int_equal(tn_env_bind(&session, &env, TN_NO_LOC, "x", &type, 1, (int64_t[]){14}), TN_OK);
    assert_true(tn_env_eval(&env, b, &value));
    assert_int_equal(value, 4);
    assert_int_equal(tn_env_bind(&session, &env, TN_NO_LOC, "x", &type, 1, (int64_t[]){13}), TN_INVALID);
    tn_dim c = tn_dim_declare(&session, "c", 4, 8, 4);
    tn_type narrow = tn_type_make(TN_F32, 1, &c);
    assert_int_equal(tn_env_bind(&session, &env, TN_NO_LOC, "x", &narrow, 1, (int64_t[]){6}), TN_INVALID);
    assert_int_equal(tn_env_bind(&session, &env, TN_NO_LOC, "x", &narrow, 1, (int64_t[]){8}), TN_OK);
    tn_arena_free(&arena);
    tn_arena_free(&session.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(branches),     cmocka_unit_test(loops),
        cmocka_unit_test(wrappers),     cmocka_unit_test(symbols),
        cmocka_unit_test(wrong_inputs), cmocka_unit_test(born_symbols),
        cmocka_unit_test(limits),       cmocka_unit_test(freed),
        cmocka_unit_test(watched),      cmocka_unit_test(single_operations),
        cmocka_unit_test(environments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
