/* Symbols: bound from inputs, checked, born during a run; strided and unaligned tensors of the caller; outputs of all kinds. */
#include "plan_test.h"

typedef struct running {
    tn_exec *exec;
    tn_pool *pool;
    tn_context *context;
} running;

static running start(fixture *f)
{
    running r = {.exec = make_exec(f, false), .pool = tn_pool_new(2)};
    assert_int_equal(tn_exec_load(f->session, r.exec, r.pool), TN_OK);
    assert_int_equal(tn_state_new(r.exec, r.pool, &r.context), TN_OK);
    return r;
}

static void end(fixture *f, running *r)
{
    tn_context_free(r->context);
    tn_pool_free(r->pool);
    tn_exec_free(r->exec);
    fixture_end(f);
}

/* x: f32[s], y: f32[s] -> x and y, through temporaries. */
static void make_symbolic(fixture *f)
{
    fixture_start(f);
    tn_dim s = tn_dim_declare(f->session, "s", 0, 4096, 2);
    int x = add_input(f, TN_F32, s), y = add_input(f, TN_F32, s), t = add_temp(f, TN_F32, s);
    int out = add_buffer(f, TN_B_OUTPUT, TN_F32, 0, s), second = add_buffer(f, TN_B_OUTPUT, TN_F32, 1, s);
    add_copy(f, &f->program.steps, t, x);
    add_copy(f, &f->program.steps, out, t);
    add_copy(f, &f->program.steps, second, y);
    set_outputs(f, 2, (int[]){0, 1});
}

static void one_executable_serves_all_sizes(void **state)
{
    (void)state;
    fixture f;
    make_symbolic(&f);
    running r = start(&f);
    static float x[4096], y[4096];
    for (int i = 0; i < 4096; i++)
        x[i] = (float)i, y[i] = (float)(2 * i);
    for (int64_t size = 4096; size >= 0; size -= 512) {
        DLTensor in[2] = {vector(TN_F32, x, &size), vector(TN_F32, y, &size)}, out[2] = {{0}};
        int rank;
        int64_t shape[TN_MAX_RANK];
        assert_int_equal(tn_output_shape(r.context, in, 2, 0, &rank, shape), TN_OK);
        assert_int_equal(rank, 1);
        assert_int_equal(shape[0], size);
        assert_int_equal(tn_run(r.context, in, 2, out, 2), TN_OK);
        assert_memory_equal(out[0].data, x, sizeof(float) * (size_t)size);
        assert_memory_equal(out[1].data, y, sizeof(float) * (size_t)size);
        tn_tensor_free(&out[0]);
        tn_tensor_free(&out[1]);
    }
    end(&f, &r);
}

static void check_refusal(running *r, int64_t n, int64_t m, tn_dtype dtype, const char *expected)
{
    static float x[8192];
    DLTensor in[2] = {vector(TN_F32, x, &n), vector(dtype, x, &m)}, out[2] = {{0}};
    assert_true(tn_run(r->context, in, 2, out, 2) != TN_OK);
    if (!strstr(tn_context_error(r->context), expected))
        fail_msg("expected '%s' in '%s'", expected, tn_context_error(r->context));
    assert_null(out[0].data);
}

static void wrong_inputs_are_named(void **state)
{
    (void)state;
    fixture f;
    make_symbolic(&f);
    running r = start(&f);
    check_refusal(&r, 16, 18, TN_F32, "found 18");
    check_refusal(&r, 17, 17, TN_F32, "multiple of 2");
    check_refusal(&r, 8192, 8192, TN_F32, "[0, 4096]");
    check_refusal(&r, 16, 16, TN_F64, "expected elements of type f32, found f64");
    check_refusal(&r, -2, -2, TN_F32, "negative");
    int64_t n = 16;
    float x[16] = {0};
    DLTensor in[2] = {vector(TN_F32, x, &n), vector(TN_F32, x, &n)}, out[2] = {{0}};
    assert_int_equal(tn_run(r.context, in, 1, out, 2), TN_USAGE);
    in[0].device.device_type = 2;
    assert_int_equal(tn_run(r.context, in, 2, out, 2), TN_USAGE);
    end(&f, &r);
}

static void any_strides_and_alignments_serve(void **state)
{
    (void)state;
    fixture f;
    make_symbolic(&f);
    running r = start(&f);
    float dense[8] = {1, 2, 3, 4, 5, 6, 7, 8}, sparse[16], result[16] = {0};
    char bytes[8 * sizeof(float) + 1];
    int64_t size = 8, two = 2;
    for (int i = 0; i < 8; i++)
        sparse[2 * i] = dense[i];
    DLTensor in[2] = {vector(TN_F32, sparse, &size), vector(TN_F32, bytes, &size)}, out[2] = {vector(TN_F32, result, &size), {0}};
    in[0].strides = &two;
    in[1].byte_offset = 1;
    memcpy(bytes + 1, dense, sizeof dense);
    out[0].strides = &two;
    assert_int_equal(tn_run(r.context, in, 2, out, 2), TN_OK);
    for (int i = 0; i < 8; i++) {
        assert_true(result[2 * i] == dense[i]);
        assert_true(result[2 * i + 1] == 0);
    }
    assert_memory_equal(out[1].data, dense, sizeof dense);
    tn_tensor_free(&out[1]);
    int64_t wrong = 7;
    out[0].shape = &wrong;
    assert_int_equal(tn_run(r.context, in, 2, out, 2), TN_USAGE);
    assert_non_null(strstr(tn_context_error(r.context), "expected size 8"));
    end(&f, &r);
}

/* n comes from a tensor while the program runs; buffers of n elements are placed then. */
static void sizes_may_be_born_during_a_run(void **state)
{
    (void)state;
    fixture f;
    fixture_start(&f);
    tn_dim one = tn_dim_const(f.session, 1), n = tn_dim_declare(f.session, "n", 0, 100, 1), all = tn_dim_const(f.session, 100);
    int count = add_input(&f, TN_I64, one), x = add_input(&f, TN_F32, all);
    (void)x;
    int t = add_temp(&f, TN_F32, n), u = add_temp(&f, TN_F32, n), out = add_buffer(&f, TN_B_OUTPUT, TN_F32, 0, n);
    tn_step *define = add_step(&f, &f.program.steps, TN_STEP_DEFINE, 1, &count);
    define->dim = n;
    define->upper = all;
    add_copy(&f, &f.program.steps, t, x);
    add_copy(&f, &f.program.steps, u, t);
    add_copy(&f, &f.program.steps, out, u);
    tn_type type = tn_type_make(TN_F32, 1, &n);
    tn_value *result = tn_graph_input(f.graph, NULL, &type); /* stands for the value; the program does not read it */
    f.graph->body->nargs--;
    tn_builder b = tn_builder_at_end(f.graph->body, TN_NO_LOC);
    tn_return(&b, &result, 1);
    running r = start(&f);
    float data[100];
    for (int i = 0; i < 100; i++)
        data[i] = (float)i;
    int64_t ones = 1, hundred = 100;
    for (int64_t value = 100; value >= 0; value -= 7) {
        DLTensor in[2] = {vector(TN_I64, &value, &ones), vector(TN_F32, data, &hundred)}, output = {.data = NULL};
        int rank;
        int64_t shape[TN_MAX_RANK];
        assert_int_equal(tn_run(r.context, in, 2, &output, 1), TN_OK);
        assert_int_equal(output.shape[0], value);
        assert_memory_equal(output.data, data, sizeof(float) * (size_t)value);
        tn_tensor_free(&output);
        if (value == 100)
            assert_int_equal(tn_output_shape(r.context, in, 2, 0, &rank, shape), TN_OK);
    }
    int64_t too_many = 101;
    DLTensor in[2] = {vector(TN_I64, &too_many, &ones), vector(TN_F32, data, &hundred)}, output = {.data = NULL};
    assert_int_equal(tn_run(r.context, in, 2, &output, 1), TN_INVALID);
    assert_non_null(strstr(tn_context_error(r.context), "expected a value in [0, 100], found 101"));
    end(&f, &r);
}

/* An `if` picks its branch by a value; a `case` beyond its branches takes the last. */
static void branches_are_chosen_by_values(void **state)
{
    (void)state;
    fixture f;
    fixture_start(&f);
    tn_dim one = tn_dim_const(f.session, 1), n = tn_dim_const(f.session, 3);
    int choice = add_input(&f, TN_I32, one), x = add_input(&f, TN_F32, n), y = add_input(&f, TN_F32, n), z = add_input(&f, TN_F32, n);
    int t = add_temp(&f, TN_F32, n), out = add_buffer(&f, TN_B_OUTPUT, TN_F32, 0, n);
    tn_step *s = add_step(&f, &f.program.steps, TN_STEP_CASE, 1, &choice);
    s->nblocks = 3;
    s->blocks = TN_NEW_ARRAY(&f.session->arena, tn_steps, 3);
    add_copy(&f, &s->blocks[0], t, x);
    add_copy(&f, &s->blocks[1], t, y);
    add_copy(&f, &s->blocks[2], t, z);
    add_copy(&f, &f.program.steps, out, t);
    set_outputs(&f, 1, (int[]){1});
    running r = start(&f);
    float data[3][3] = {{1, 1, 1}, {2, 2, 2}, {3, 3, 3}};
    int64_t ones = 1, size = 3;
    for (int32_t c = -1; c < 5; c++) {
        DLTensor in[4] = {vector(TN_I32, &c, &ones), vector(TN_F32, data[0], &size), vector(TN_F32, data[1], &size), vector(TN_F32, data[2], &size)},
                 output = {.data = NULL};
        assert_int_equal(tn_run(r.context, in, 4, &output, 1), TN_OK);
        assert_memory_equal(output.data, data[c >= 0 && c < 3 ? c : 2], sizeof data[0]);
        tn_tensor_free(&output);
    }
    end(&f, &r);
}

/* A splat constant fills its buffer; others are used where they are, at an odd address too. */
static void constants_lie_where_they_are(void **state)
{
    (void)state;
    fixture f;
    fixture_start(&f);
    tn_dim n = tn_dim_const(f.session, 4);
    static const _Alignas(8) char bytes[17] = {0};
    tn_tensor *splat = TN_NEW(&f.session->arena, tn_tensor), *odd = TN_NEW(&f.session->arena, tn_tensor), *even = TN_NEW(&f.session->arena, tn_tensor);
    static const float value = 3;
    *splat = (tn_tensor){TN_F32, 1, {4}, &value, true, NULL};
    *odd = (tn_tensor){TN_F32, 1, {4}, bytes + 1, false, NULL};
    *even = (tn_tensor){TN_F32, 1, {4}, bytes, false, NULL};
    const tn_tensor *constants[3] = {splat, odd, even};
    add_input(&f, TN_F32, n);
    for (int i = 0; i < 3; i++) {
        int c = add_buffer(&f, TN_B_CONSTANT, TN_F32, 0, n);
        f.program.buffers.at[c].constant = constants[i];
        add_copy(&f, &f.program.steps, add_buffer(&f, TN_B_OUTPUT, TN_F32, i, n), c);
    }
    set_outputs(&f, 3, (int[]){0, 0, 0});
    running r = start(&f);
    assert_ptr_equal(r.exec->buffers[5].fixed, bytes);
    assert_ptr_equal(r.exec->buffers[3].fixed, bytes + 1);
    float x[4] = {0};
    int64_t size = 4;
    DLTensor in = vector(TN_F32, x, &size), out[3] = {{0}};
    assert_int_equal(tn_run(r.context, &in, 1, out, 3), TN_OK);
    assert_true(((float *)out[0].data)[3] == 3);
    for (int i = 0; i < 3; i++)
        tn_tensor_free(&out[i]);
    end(&f, &r);
}

/* What an init step computes is there in every run. */
static void init_steps_run_once_at_load(void **state)
{
    (void)state;
    fixture f;
    fixture_start(&f);
    tn_dim n = tn_dim_const(f.session, 4);
    static const float values[4] = {1, 2, 3, 4};
    tn_tensor *tensor = TN_NEW(&f.session->arena, tn_tensor);
    *tensor = (tn_tensor){TN_F32, 1, {4}, values, false, NULL};
    add_input(&f, TN_F32, n);
    int c = add_buffer(&f, TN_B_CONSTANT, TN_F32, 0, n), between = add_temp(&f, TN_F32, n), kept = add_temp(&f, TN_F32, n);
    f.program.buffers.at[c].constant = tensor;
    f.program.buffers.at[kept].persistent = true;
    add_copy(&f, &f.program.steps, between, c);
    add_copy(&f, &f.program.steps, kept, between);
    f.program.steps.list.at[0]->init = f.program.steps.list.at[1]->init = true;
    add_copy(&f, &f.program.steps, add_buffer(&f, TN_B_OUTPUT, TN_F32, 0, n), kept);
    set_outputs(&f, 1, (int[]){0});
    running r = start(&f);
    float x[4] = {0};
    int64_t size = 4;
    for (int i = 0; i < 2; i++) {
        DLTensor in = vector(TN_F32, x, &size), out = {.data = NULL};
        assert_int_equal(tn_run(r.context, &in, 1, &out, 1), TN_OK);
        assert_memory_equal(out.data, values, sizeof values);
        tn_tensor_free(&out);
    }
    end(&f, &r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_executable_serves_all_sizes), cmocka_unit_test(wrong_inputs_are_named),
        cmocka_unit_test(any_strides_and_alignments_serve), cmocka_unit_test(sizes_may_be_born_during_a_run),
        cmocka_unit_test(branches_are_chosen_by_values),   cmocka_unit_test(constants_lie_where_they_are),
        cmocka_unit_test(init_steps_run_once_at_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
