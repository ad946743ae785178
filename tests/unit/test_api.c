/* The public API: from text to results, texts of stages, errors, several threads. Includes nothing but tenon.h and the test library. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tenon/tenon.h"

static const char source[] = "symbols b in [0, 1000]\n"
                             "graph @f(%x: f32[b, 8], %y: f32[b, 8]) {\n"
                             "  %0 = multiply %x, %y : f32[b, 8]\n"
                             "  %1 = constant dense<0.0> : f32[]\n"
                             "  %2 = reduce %0, %1, dimensions = [1] : f32[b] {\n"
                             "  ^(%a: f32[], %c: f32[]):\n"
                             "    %3 = add %a, %c : f32[]\n"
                             "    return %3\n"
                             "  }\n"
                             "  return %2, %0\n"
                             "}\n";

typedef struct loaded {
    char path[32];
    tn_session *session;
    tn_network *network;
    tn_executable *executable;
} loaded;

static void write_source(loaded *l, const char *text)
{
    strcpy(l->path, "tenon-test-XXXXXX.tn");
    int fd = mkstemps(l->path, 3);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static int set_up(void **state)
{
    loaded *l = calloc(1, sizeof *l);
    write_source(l, source);
    l->session = tn_session_new();
    assert_int_equal(tn_load_text(l->session, l->path, &l->network), TN_OK);
    tn_compile_options options = {.threads = 2};
    assert_int_equal(tn_compile(l->session, l->network, &options, &l->executable), TN_OK);
    *state = l;
    return 0;
}

static int tear_down(void **state)
{
    loaded *l = *state;
    tn_executable_free(l->executable);
    tn_network_free(l->network);
    tn_session_free(l->session);
    unlink(l->path);
    free(l);
    return 0;
}

typedef struct inputs {
    float x[1000 * 8], y[1000 * 8];
    int64_t shape[2];
    DLTensor tensor[2];
} inputs;

static void fill(inputs *in, int64_t b)
{
    in->shape[0] = b, in->shape[1] = 8;
    for (int i = 0; i < b * 8; i++)
        in->x[i] = (float)(i % 13), in->y[i] = (float)(i % 7);
    for (int i = 0; i < 2; i++)
        in->tensor[i] = (DLTensor){.data = i ? in->y : in->x, .device = {1, 0}, .ndim = 2, .dtype = {2, 32, 1}, .shape = in->shape};
}

static void check_results(const inputs *in, const DLTensor *out)
{
    assert_int_equal(out[0].ndim, 1);
    assert_int_equal(out[0].shape[0], in->shape[0]);
    for (int64_t r = 0; r < in->shape[0]; r++) {
        float sum = 0;
        for (int64_t c = 0; c < 8; c++) {
            sum += in->x[r * 8 + c] * in->y[r * 8 + c];
            assert_true(((float *)out[1].data)[r * 8 + c] == in->x[r * 8 + c] * in->y[r * 8 + c]);
        }
        assert_true(((float *)out[0].data)[r] == sum); /* small integers: exact in any order */
    }
}

static void run_and_check(tn_context *context, int64_t b)
{
    inputs *in = malloc(sizeof *in);
    DLTensor out[2] = {{0}};
    fill(in, b);
    assert_int_equal(tn_run(context, in->tensor, 2, out, 2), TN_OK);
    assert_string_equal(tn_context_error(context), "");
    check_results(in, out);
    tn_tensor_free(&out[0]);
    tn_tensor_free(&out[1]);
    assert_null(out[0].data);
    free(in);
}

static void one_compile_serves_all_sizes(void **state)
{
    loaded *l = *state;
    tn_context *context;
    assert_int_equal(tn_context_new(l->executable, &context), TN_OK);
    static const int64_t sizes[] = {1, 2, 3, 7, 64, 1000, 997, 0, 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        run_and_check(context, sizes[i]);
    tn_context_free(context);
}

static void describes_itself(void **state)
{
    loaded *l = *state;
    tn_value_info info;
    const char *name;
    int64_t uses;
    tn_executable_info about;
    assert_int_equal(tn_input_count(l->network), 2);
    assert_int_equal(tn_output_count(l->network), 2);
    assert_int_equal(tn_input_info(l->network, 0, &info), TN_OK);
    assert_string_equal(info.name, "x");
    assert_string_equal(info.dtype_name, "f32");
    assert_int_equal(info.rank, 2);
    assert_int_equal(info.dim[0], -1);
    assert_string_equal(info.dim_text[0], "b");
    assert_int_equal(info.dim[1], 8);
    assert_int_equal(tn_output_info(l->network, 0, &info), TN_OK);
    assert_int_equal(info.rank, 1);
    assert_int_equal(tn_input_info(l->network, 2, &info), TN_USAGE);
    assert_int_equal(tn_operator_info(l->network, 0, &name, &uses), TN_OK);
    assert_string_equal(name, "multiply");
    assert_int_equal(uses, 1);
    assert_int_equal(tn_executable_describe(l->executable, &about), TN_OK);
    assert_true(about.kernels >= 1 && about.kernel_steps >= about.kernels);
    assert_int_equal(about.threads, 2);
}

static void errors_say_what_and_where(void **state)
{
    loaded *l = *state;
    tn_diagnostic d;
    tn_network *network = NULL;
    assert_int_equal(tn_load_onnx(l->session, "/nonexistent.onnx", NULL, &network), TN_IO);
    assert_int_equal(tn_diagnostic_at(l->session, 0, &d), TN_OK);
    assert_int_equal(d.severity, 2);
    assert_int_equal(d.status, TN_IO);
    assert_non_null(strstr(d.message, "/nonexistent.onnx"));
    tn_diagnostics_clear(l->session);
    assert_int_equal(tn_diagnostic_count(l->session), 0);
    assert_int_equal(tn_load_onnx_bytes(l->session, "bytes", "\x01garbage", 8, NULL, &network), TN_INVALID);
    assert_true(tn_diagnostic_count(l->session) > 0);
    assert_int_equal(tn_load_onnx_bytes(l->session, "bytes", NULL, 0, NULL, &network), TN_INVALID);
    tn_diagnostics_clear(l->session);
    tn_executable *executable;
    tn_compile_options options = {.machine = "z80"};
    assert_int_equal(tn_compile(l->session, l->network, &options, &executable), TN_USAGE);
    assert_int_equal(tn_diagnostic_at(l->session, 0, &d), TN_OK);
    assert_non_null(strstr(d.message, "z80"));
    assert_null(network);
    assert_int_equal(tn_compile(NULL, l->network, NULL, &executable), TN_USAGE);
    assert_int_equal(tn_run(NULL, NULL, 0, NULL, 0), TN_USAGE);
}

static void text_at_fault_has_a_line(void **state)
{
    (void)state;
    loaded l = {.session = tn_session_new()};
    tn_diagnostic d;
    write_source(&l, "graph @f(%x: f32[2]) {\n  %0 = nonsense %x : f32[2]\n  return %0\n}\n");
    assert_int_equal(tn_load_text(l.session, l.path, &l.network), TN_INVALID);
    assert_int_equal(tn_diagnostic_at(l.session, 0, &d), TN_OK);
    assert_int_equal(d.line, 2);
    unlink(l.path);
    tn_session_free(l.session);
}

static void every_stage_has_a_text(void **state)
{
    loaded *l = *state;
    static const char *const expected[] = {"graph @f", "grid(", "%begin", "define", ".text", "\177ELF"};
    for (tn_stage s = TN_STAGE_GRAPH; s <= TN_STAGE_OBJECT; s++) {
        char *text;
        size_t size;
        assert_int_equal(tn_emit_stage(l->session, l->network, NULL, s, &text, &size), TN_OK);
        assert_true(size > 0);
        if (s == TN_STAGE_OBJECT)
            assert_memory_equal(text, expected[s], 4);
        else
            assert_non_null(strstr(text, expected[s]));
        tn_free(text);
    }
}

static void memory_is_known_before_the_run(void **state)
{
    loaded *l = *state;
    tn_context *context;
    tn_memory_info memory;
    inputs *in = malloc(sizeof *in);
    int rank;
    int64_t shape[12];
    fill(in, 100);
    assert_int_equal(tn_context_new(l->executable, &context), TN_OK);
    assert_int_equal(tn_memory_needed(context, in->tensor, 2, &memory), TN_OK);
    assert_int_equal(memory.inputs, 2 * 3200);
    assert_int_equal(memory.outputs, 3200 + 400);
    assert_true(memory.complete && memory.arena >= memory.lower_bound);
    assert_int_equal(tn_output_shape(context, in->tensor, 2, 1, &rank, shape), TN_OK);
    assert_true(rank == 2 && shape[0] == 100 && shape[1] == 8);
    in->shape[1] = 9;
    assert_int_equal(tn_output_shape(context, in->tensor, 2, 1, &rank, shape), TN_INVALID);
    assert_non_null(strstr(tn_context_error(context), "found 9"));
    tn_context_free(context);
    free(in);
}

static void profiles_count_runs(void **state)
{
    loaded *l = *state;
    tn_context *context;
    tn_profile_row row;
    assert_int_equal(tn_context_new(l->executable, &context), TN_OK);
    tn_profile_start(context, 1);
    run_and_check(context, 10);
    run_and_check(context, 20);
    assert_true(tn_profile_count(context) >= 1);
    assert_int_equal(tn_profile_at(context, 0, &row), TN_OK);
    assert_int_equal(row.runs, 2);
    assert_true(row.seconds >= row.least_seconds && row.least_seconds > 0);
    assert_int_equal(tn_profile_at(context, 1000, &row), TN_USAGE);
    tn_context_free(context);
}

static void the_reference_agrees(void **state)
{
    loaded *l = *state;
    inputs *in = malloc(sizeof *in);
    DLTensor out[2];
    fill(in, 33);
    assert_int_equal(tn_run_reference(l->session, l->network, in->tensor, 2, out, 2), TN_OK);
    check_results(in, out);
    tn_tensor_free(&out[0]);
    tn_tensor_free(&out[1]);
    assert_int_equal(tn_check(l->session, l->network, NULL, in->tensor, 2), TN_OK);
    free(in);
}

/* One executable, one context a thread, sizes that differ. */
static void *run_many(void *argument)
{
    tn_context *context;
    assert_int_equal(tn_context_new(argument, &context), TN_OK);
    for (int i = 0; i < 50; i++)
        run_and_check(context, 1 + (i * 37) % 999);
    tn_context_free(context);
    return NULL;
}

static void several_threads_run_one_executable(void **state)
{
    loaded *l = *state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_many, l->executable), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

/* Two sessions compile at once. */
static void *compile_and_run(void *argument)
{
    tn_session *session = tn_session_new();
    tn_network *network;
    tn_executable *executable;
    tn_compile_options options = {.threads = 1};
    assert_int_equal(tn_load_text(session, argument, &network), TN_OK);
    assert_int_equal(tn_compile(session, network, &options, &executable), TN_OK);
    run_many(executable);
    tn_executable_free(executable);
    tn_network_free(network);
    tn_session_free(session);
    return NULL;
}

static void sessions_are_independent(void **state)
{
    loaded *l = *state;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, compile_and_run, l->path), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(one_compile_serves_all_sizes), TEST(describes_itself),       TEST(errors_say_what_and_where),
        TEST(text_at_fault_has_a_line),     TEST(every_stage_has_a_text), TEST(memory_is_known_before_the_run),
        TEST(profiles_count_runs),          TEST(the_reference_agrees),   TEST(several_threads_run_one_executable),
        TEST(sessions_are_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
