/* Whole programs on a GPU that is a fake: its memory is the host's, and its kernels are run by the interpreter of the Loop IR. Seen from there: what is copied, what
 * is captured and replayed, what waits, and that nothing is left over, whatever fails. */
#include "plan_test.h"

#include <dirent.h>
#include <dlfcn.h>
#include <math.h>
#include <unistd.h>

#include "fake_cuda.h"
#include "loop/loop.h"
#include "run/cuda.h"

/* A library of this name that is already there is the one that dlopen finds. */
static fake_state *fake;

static int start_tests(void **state)
{
    (void)state;
    void *library = dlopen(FAKE_CUDA, RTLD_NOW);
    fake = library ? dlsym(library, "fake_cuda") : NULL;
    setenv("TENON_PTXAS", "", 1); /* what code there is does not matter */
    setenv("TENON_CACHE", "", 1);
    return fake && tn_gpu_count(NULL) == 1 ? 0 : -1;
}

static void check_clean(void)
{
    assert_int_equal(fake->pushed, 0);
    assert_int_equal(fake->told_inside, 0); /* by then a jump may leave, as there is no memory for words */
    assert_int_equal(fake->retained, 0);
    assert_int_equal(fake->memory, 0);
    assert_int_equal(fake->modules, 0);
    assert_int_equal(fake->streams, 0);
    assert_int_equal(fake->events, 0);
    assert_int_equal(fake->graphs, 0);
    assert_int_equal(fake->execs, 0);
}

static void fail_next(const char *call, int result, int after)
{
    fake->failing = call, fake->result = result, fake->after = after;
}

/* ---- the pool --------------------------------------------------------------------------------------------------------------- */

static void blocks_are_used_again(void **state)
{
    (void)state;
    tn_session *s = new_test_session();
    tn_gpu_pool *pool;
    CUstream one, two;
    CUdeviceptr a, b, c;
    assert_int_equal(tn_gpu_pool_new(s, 0, &pool), TN_OK);
    const tn_gpu *gpu = tn_gpu_pool_gpu(pool);
    assert_int_equal(tn_gpu_stream_new(s, gpu, &one), TN_OK);
    assert_int_equal(tn_gpu_stream_new(s, gpu, &two), TN_OK);

    assert_int_equal(tn_gpu_pool_take(s, pool, 1000, one, &a), TN_OK);
    assert_int_equal(tn_gpu_pool_take(s, pool, 1000, one, &b), TN_OK);
    assert_true(a != b && a % 256 == 0 && b % 256 == 0);
    assert_int_equal(tn_gpu_pool_state(pool).used, 2048);
    fake->waits = 0;
    tn_gpu_pool_give(pool, a, one);
    assert_int_equal(tn_gpu_pool_take(s, pool, 600, one, &c), TN_OK); /* of the same class */
    assert_true(c == a);
    assert_int_equal(fake->waits, 0);
    tn_gpu_pool_give(pool, a, one);
    assert_int_equal(tn_gpu_pool_take(s, pool, 1024, two, &c), TN_OK);
    assert_true(c == a);
    assert_int_equal(fake->waits, 1);
    assert_int_equal(tn_gpu_pool_take(s, pool, 1025, two, &c), TN_OK); /* of the next */
    assert_true(c != a && c != b);
    assert_int_equal(tn_gpu_pool_state(pool).allocations, 3);

    /* The block of the own stream goes first; a stream that has ended is not waited for. */
    tn_gpu_pool_give(pool, a, two);
    tn_gpu_pool_give(pool, b, one);
    CUdeviceptr d;
    assert_int_equal(tn_gpu_pool_take(s, pool, 1000, two, &d), TN_OK);
    assert_true(d == a);
    tn_gpu_pool_forget(pool, one);
    assert_int_equal(tn_gpu_pool_take(s, pool, 1000, two, &d), TN_OK);
    assert_true(d == b);
    assert_int_equal(fake->waits, 1);
    tn_gpu_pool_give_idle(pool, b);
    assert_int_equal(tn_gpu_pool_take(s, pool, 1000, one, &d), TN_OK);
    assert_true(d == b);
    assert_int_equal(fake->waits, 1);

    /* Out of memory: what nobody uses goes back first. */
    tn_gpu_pool_give(pool, a, one);
    tn_gpu_pool_give(pool, c, one);
    fake->most_bytes = 8192;
    int64_t unused = tn_gpu_pool_state(pool).unused;
    assert_true(unused >= 2048);
    assert_int_equal(tn_gpu_pool_take(s, pool, 7000, one, &c), TN_OK);
    assert_int_equal(tn_gpu_pool_state(pool).unused, 0);
    assert_int_equal(tn_gpu_pool_take(s, pool, 7000, one, &d), TN_NO_MEMORY);
    assert_true(d == 0);
    assert_string_equal(last_message(s), "cuMemAlloc_v2 failed: FAKE_OUT_OF_MEMORY (all is taken)");
    assert_int_equal(tn_gpu_pool_take(s, pool, INT64_MAX, one, &d), TN_NO_MEMORY);
    fake->most_bytes = 0;

    /* A block whose end can't be marked is given back to the driver. */
    int blocks = fake->memory;
    fail_next("cuEventRecord", 1, 0);
    tn_gpu_pool_give(pool, c, one);
    fake->failing = NULL;
    assert_int_equal(fake->memory, blocks - 1);

    /* The last who holds it frees it, blocks in use too. */
    assert_int_equal(tn_gpu_stream_free(s, gpu, one), TN_OK);
    assert_int_equal(tn_gpu_stream_free(s, gpu, two), TN_OK);
    tn_gpu_pool_hold(pool);
    tn_gpu_pool_drop(pool);
    assert_true(fake->memory > 0);
    tn_gpu_pool_drop(pool);
    check_clean();
    free_test_session(s);
}

static void modules_are_asked(void **state)
{
    (void)state;
    tn_session *s = new_test_session();
    tn_gpu gpu;
    CUdeviceptr memory;
    assert_int_equal(tn_gpu_open(s, 0, &gpu), TN_OK);
    fail_next("cuMemAlloc_v2", 2, 0);
    assert_int_equal(tn_gpu_alloc(s, &gpu, 6, &memory), TN_NO_MEMORY);
    fake->failing = NULL;
    assert_int_equal(fake->pushed, 0);

    CUmodule module;
    CUdeviceptr at;
    int64_t bytes;
    int blocks;
    tn_gpu_kernel f;
    assert_int_equal(tn_gpu_load(s, &gpu, "good", &module), TN_OK);
    assert_int_equal(tn_gpu_global(s, &gpu, module, "v", &at, &bytes), TN_OK);
    assert_true(at != 0 && bytes == 12);
    assert_int_equal(tn_gpu_global(s, &gpu, module, "w", &at, &bytes), TN_INVALID);
    assert_non_null(strstr(last_message(s), "cuModuleGetGlobal_v2 failed: FAKE_ERROR (went wrong): w"));
    assert_int_equal(tn_gpu_function(s, &gpu, module, "f", 0, &f), TN_OK);
    assert_int_equal(tn_gpu_occupancy(s, &gpu, &f, 256, &blocks), TN_OK);
    assert_int_equal(blocks, 8);
    assert_int_equal(tn_gpu_unload(s, &gpu, module), TN_OK);
    assert_int_equal(tn_gpu_close(s, &gpu), TN_OK);
    check_clean();
    free_test_session(s);
}

/* ---- programs of copies ------------------------------------------------------------------------------------------------------ */

typedef struct running {
    tn_exec *exec;
    tn_pool *pool;
    tn_context *context;
} running;

static running start(fixture *f)
{
    running r = {.pool = tn_pool_new(1)};
    tn_exec_options options = {.machine = tn_machine_find("sm_90a"), .threads = 1};
    assert_int_equal(tn_exec_new(f->session, &f->program, &options, &r.exec), TN_OK);
    assert_int_equal(tn_exec_load(f->session, r.exec, r.pool), TN_OK);
    assert_int_equal(tn_state_new(r.exec, r.pool, &r.context), TN_OK);
    return r;
}

static void end(fixture *f, running *r)
{
    tn_context_free(r->context);
    tn_exec_unload(r->exec);
    tn_exec_free(r->exec);
    tn_pool_free(r->pool);
    fixture_end(f);
    check_clean();
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

enum { MOST = 4096 };
static float x[MOST], y[MOST];

static void fill(void)
{
    for (int i = 0; i < MOST; i++)
        x[i] = (float)i, y[i] = (float)(-2 * i);
}

static void run_host(running *r, int64_t size)
{
    DLTensor in[2] = {vector(TN_F32, x, &size), vector(TN_F32, y, &size)}, out[2] = {{0}};
    if (tn_run(r->context, in, 2, out, 2) != TN_OK)
        fail_msg("%s", tn_context_error(r->context));
    assert_int_equal(out[0].device.device_type, 1);
    assert_memory_equal(out[0].data, x, sizeof(float) * (size_t)size);
    assert_memory_equal(out[1].data, y, sizeof(float) * (size_t)size);
    tn_tensor_free(&out[0]);
    tn_tensor_free(&out[1]);
}

static void check_counts(int captures, int instances, int updates, int replays)
{
    assert_int_equal(fake->captures, captures);
    assert_int_equal(fake->instances, instances);
    assert_int_equal(fake->updates, updates);
    assert_int_equal(fake->replays, replays);
}

static void sizes_are_captured_when_they_come_again(void **state)
{
    (void)state;
    fixture f;
    make_symbolic(&f);
    fill();
    running r = start(&f);
    fake->captures = fake->instances = fake->updates = fake->replays = 0;
    run_host(&r, 4096);
    check_counts(0, 0, 0, 0);
    run_host(&r, 4096);
    check_counts(1, 1, 0, 1);
    run_host(&r, 4096);
    check_counts(1, 1, 0, 2);
    for (int i = 0; i < 3; i++) /* sizes that take turns */
        for (int64_t size = 100; size < 108; size += 2)
            run_host(&r, size);
    check_counts(5, 4, 1, 10); /* the first one's graph became another's */
    run_host(&r, 0);
    run_host(&r, 0);
    run_host(&r, 0);
    assert_int_equal(fake->pushed, 0);
    end(&f, &r);
}

static void tensors_are_used_where_they_lie(void **state)
{
    (void)state;
    fixture f;
    make_symbolic(&f);
    fill();
    running r = start(&f);
    int64_t size = 1000;
    DLTensor host[2] = {vector(TN_F32, x, &size), vector(TN_F32, y, &size)}, in[2], out[2] = {{.device = {2, 0}}, {.device = {2, 0}}};
    assert_int_equal(tn_tensor_upload(r.context, &host[0], &in[0]), TN_OK);
    assert_int_equal(tn_tensor_upload(r.context, &host[1], &in[1]), TN_OK);
    assert_true(in[0].data != host[0].data && in[0].device.device_type == 2 && in[0].ndim == 1 && in[0].shape[0] == size);
    int copies = fake->copies;
    assert_int_equal(tn_run(r.context, in, 2, out, 2), TN_OK);
    assert_int_equal(fake->copies, copies + 3); /* the program's own */
    assert_int_equal(out[0].device.device_type, 2);
    assert_memory_equal(out[0].data, x, sizeof(float) * (size_t)size); /* the fake's memory is ours */
    assert_memory_equal(out[1].data, y, sizeof(float) * (size_t)size);

    /* Outputs with data are written in place; a graph belongs to its addresses. */
    fake->captures = fake->replays = 0;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tn_run(r.context, in, 2, out, 2), TN_OK);
        check_counts(1, fake->instances, fake->updates, i + 1);
    }
    DLTensor swapped[2] = {in[1], in[0]};
    assert_int_equal(tn_run(r.context, swapped, 2, out, 2), TN_OK);
    assert_int_equal(fake->replays, 2);
    assert_memory_equal(out[0].data, y, sizeof(float) * (size_t)size);
    assert_int_equal(tn_run(r.context, in, 2, out, 2), TN_OK);
    assert_int_equal(fake->replays, 3);
    assert_memory_equal(out[0].data, x, sizeof(float) * (size_t)size);

    /* A part of a tensor, and tensors of both kinds. */
    int64_t part = 10;
    DLTensor mixed[2] = {in[0], vector(TN_F32, y, &part)}, results[2] = {{0}, {.device = {2, 0}}};
    mixed[0].shape = &part, mixed[0].byte_offset = 16; /* too few for the loads of kernels */
    assert_int_equal(tn_run(r.context, mixed, 2, results, 2), TN_OK);
    assert_memory_equal(results[0].data, x + 4, sizeof(float) * 10);
    DLTensor odd[2] = {results[0], results[1]};
    odd[1].data = out[1].data, odd[1].byte_offset = 4;
    assert_int_equal(tn_run(r.context, mixed, 2, odd, 2), TN_OK);
    assert_memory_equal((float *)out[1].data + 1, y, sizeof(float) * 10);
    assert_true(((float *)out[1].data)[0] == y[0] && ((float *)out[1].data)[11] == y[11]);
    memcpy(out[1].data, y, sizeof(float) * 12);
    assert_memory_equal(results[1].data, y, sizeof(float) * 10);
    assert_int_equal(results[0].device.device_type, 1);

    /* What can't be used is named. */
    int64_t two = 2;
    DLTensor wrong[2] = {in[0], in[1]}, none[2] = {{0}, {0}};
    wrong[0].shape = wrong[1].shape = &part;
    wrong[0].strides = &two;
    assert_int_equal(tn_run(r.context, wrong, 2, none, 2), TN_UNSUPPORTED);
    assert_string_equal(tn_context_error(r.context), "input 0: a tensor on a GPU must be dense");
    wrong[0].strides = NULL, wrong[0].device.device_id = 1;
    assert_int_equal(tn_run(r.context, wrong, 2, none, 2), TN_USAGE);
    assert_non_null(strstr(tn_context_error(r.context), "of GPU 0 (device 2), found device 2, number 1"));
    wrong[0].device.device_id = 0, none[1].device.device_type = 7;
    assert_int_equal(tn_run(r.context, wrong, 2, none, 2), TN_USAGE);
    assert_null(none[0].data);

    for (int i = 0; i < 2; i++) {
        tn_tensor_free(&in[i]);
        tn_tensor_free(&results[i]);
    }
    tn_tensor_free(&out[0]);
    tn_context_free(r.context); /* one output lives on */
    tn_exec_unload(r.exec);
    tn_exec_free(r.exec);
    tn_pool_free(r.pool);
    assert_true(fake->memory > 0);
    assert_memory_equal(out[1].data, y, sizeof(float) * (size_t)size);
    tn_tensor_free(&out[1]);
    fixture_end(&f);
    check_clean();
}

static void host_tensors_may_have_strides(void **state)
{
    (void)state;
    fixture f;
    make_symbolic(&f);
    running r = start(&f);
    float dense[8] = {1, 2, 3, 4, 5, 6, 7, 8}, sparse[16], result[16] = {0};
    int64_t size = 8, two = 2;
    for (int i = 0; i < 8; i++)
        sparse[2 * i] = dense[i];
    for (int turn = 0; turn < 3; turn++) {
        DLTensor in[2] = {vector(TN_F32, sparse, &size), vector(TN_F32, dense, &size)}, out[2] = {vector(TN_F32, result, &size), {0}};
        in[0].strides = out[0].strides = &two;
        memset(result, 0, sizeof result);
        assert_int_equal(tn_run(r.context, in, 2, out, 2), TN_OK);
        for (int i = 0; i < 8; i++)
            assert_true(result[2 * i] == dense[i] && result[2 * i + 1] == 0);
        assert_memory_equal(out[1].data, dense, sizeof dense);
        tn_tensor_free(&out[1]);
    }
    end(&f, &r);
}

static void the_callers_stream_is_used(void **state)
{
    (void)state;
    fixture f;
    make_symbolic(&f);
    fill();
    running r = start(&f);
    tn_gpu gpu;
    CUstream stream;
    assert_int_equal(tn_gpu_open(f.session, 0, &gpu), TN_OK);
    assert_int_equal(tn_gpu_stream_new(f.session, &gpu, &stream), TN_OK);
    assert_int_equal(tn_context_set_stream(r.context, stream), TN_OK);
    int64_t size = 500;
    DLTensor host[2] = {vector(TN_F32, x, &size), vector(TN_F32, y, &size)}, in[2], out[2] = {{.device = {2, 0}}, {.device = {2, 0}}};
    assert_int_equal(tn_tensor_upload(r.context, &host[0], &in[0]), TN_OK);
    assert_int_equal(tn_tensor_upload(r.context, &host[1], &in[1]), TN_OK);
    fail_next("cuStreamSynchronize", 1, 0); /* nobody waits */
    for (int i = 0; i < 3; i++)
        assert_int_equal(tn_run(r.context, in, 2, out, 2), TN_OK);
    assert_memory_equal(out[1].data, y, sizeof(float) * (size_t)size);
    CUgraphExec captured = NULL; /* a graph of the caller's has the steps */
    int replays = fake->replays;
    memset(out[1].data, 0, sizeof(float) * (size_t)size);
    assert_int_equal(tn_gpu_capture(f.session, &gpu, stream), TN_OK);
    assert_int_equal(tn_run(r.context, in, 2, out, 2), TN_OK);
    assert_int_equal(tn_gpu_capture_end(f.session, &gpu, stream, &captured), TN_OK);
    assert_int_equal(fake->replays, replays);
    assert_true(((float *)out[1].data)[1] == 0);
    assert_int_equal(tn_gpu_graph_launch(f.session, &gpu, captured, stream), TN_OK);
    assert_memory_equal(out[1].data, y, sizeof(float) * (size_t)size);
    assert_int_equal(tn_gpu_graph_free(f.session, &gpu, captured), TN_OK);
    DLTensor back[2] = {{0}, {0}};
    assert_int_equal(tn_run(r.context, in, 2, back, 2), TN_INVALID); /* but for the host's */
    assert_null(back[0].data);
    fake->failing = NULL;
    run_host(&r, 500);
    for (int i = 0; i < 2; i++) {
        tn_tensor_free(&in[i]);
        tn_tensor_free(&out[i]);
    }
    assert_int_equal(tn_context_set_stream(r.context, NULL), TN_OK);
    assert_int_equal(tn_gpu_stream_free(f.session, &gpu, stream), TN_OK);
    run_host(&r, 600);
    assert_int_equal(tn_gpu_close(f.session, &gpu), TN_OK);
    end(&f, &r);
}

static void failures_leave_nothing(void **state)
{
    (void)state;
    static const struct { const char *call; int result, after; tn_status status; } faults[] = {
        {"cuMemcpyHtoDAsync_v2", 1, 0, TN_INVALID},    {"cuMemcpyHtoDAsync_v2", 1, 1, TN_INVALID}, {"cuMemcpyDtoDAsync_v2", 1, 0, TN_INVALID},
        {"cuMemcpyDtoDAsync_v2", 1, 2, TN_INVALID},    {"cuMemcpyDtoHAsync_v2", 1, 0, TN_INVALID}, {"cuStreamBeginCapture_v2", 1, 0, TN_INVALID},
        {"cuStreamEndCapture", 1, 0, TN_INVALID},      {"cuGraphInstantiateWithFlags", 2, 0, TN_NO_MEMORY}, {"cuGraphLaunch", 700, 0, TN_INVALID},
        {"cuStreamSynchronize", 700, 0, TN_INVALID},   {"cuMemAlloc_v2", 2, 0, TN_NO_MEMORY},      {"cuMemAlloc_v2", 2, 2, TN_NO_MEMORY},
        {"cuCtxPushCurrent_v2", 201, 3, TN_INVALID},
    };
    fill();
    for (size_t i = 0; i < TN_COUNT(faults); i++) {
        fixture f;
        make_symbolic(&f);
        running r = start(&f);
        bool failed = false;
        for (int turn = 0; turn < 3; turn++) {
            int64_t size = 128;
            DLTensor in[2] = {vector(TN_F32, x, &size), vector(TN_F32, y, &size)}, out[2] = {{0}, {.device = {2, 0}}};
            fail_next(faults[i].call, faults[i].result, faults[i].after);
            tn_status status = tn_run(r.context, in, 2, out, 2);
            fake->failing = NULL;
            assert_int_equal(fake->pushed, 0);
            if (status != TN_OK) {
                failed = true;
                assert_int_equal(status, faults[i].status);
                assert_non_null(strstr(tn_context_error(r.context), faults[i].call));
                assert_true(!out[0].data && !out[1].data);
            }
            tn_tensor_free(&out[0]);
            tn_tensor_free(&out[1]);
            if (status != TN_OK)
                run_host(&r, 128);
        }
        if (!failed)
            fail_msg("%s never failed", faults[i].call);
        end(&f, &r);
    }
}

static void loading_may_fail(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuDevicePrimaryCtxRetain", "cuDeviceGetAttribute", "cuStreamCreate", "cuEventCreate"};
    for (size_t i = 0; i < TN_COUNT(calls); i++) {
        fixture f;
        make_symbolic(&f);
        running r = {.pool = tn_pool_new(1)};
        tn_exec_options options = {.machine = tn_machine_find("sm_80"), .threads = 1};
        assert_int_equal(tn_exec_new(f.session, &f.program, &options, &r.exec), TN_OK);
        fail_next(calls[i], 1, 0);
        if (tn_exec_load(f.session, r.exec, r.pool) == TN_OK)
            assert_true(tn_state_new(r.exec, r.pool, &r.context) != TN_OK);
        fake->failing = NULL;
        assert_null(r.context);
        end(&f, &r);
    }
    fixture f;
    make_symbolic(&f);
    tn_exec *exec;
    tn_exec_options options = {.machine = tn_machine_find("sm_80"), .threads = 1, .device = 3};
    assert_int_equal(tn_exec_new(f.session, &f.program, &options, &exec), TN_OK);
    assert_int_equal(tn_exec_load(f.session, exec, NULL), TN_UNSUPPORTED);
    assert_string_equal(last_message(f.session), "machine 'sm_80' can't run here: there is no GPU 3: CUDA's driver shows 1, counted from 0");
    tn_exec_unload(exec);
    tn_exec_free(exec);
    fixture_end(&f);
    check_clean();
}

/* ---- sizes and choices that lie in the GPU's memory ------------------------------------------------------------------------------- */

static void sizes_may_be_born_during_a_run(void **state)
{
    (void)state;
    fixture f;
    fixture_start(&f);
    tn_dim one = tn_dim_const(f.session, 1), n = tn_dim_declare(f.session, "n", 0, 100, 1), all = tn_dim_const(f.session, 100);
    int count = add_input(&f, TN_I64, one), from = add_input(&f, TN_F32, all);
    int t = add_temp(&f, TN_F32, n), u = add_temp(&f, TN_F32, n), out = add_buffer(&f, TN_B_OUTPUT, TN_F32, 0, n);
    tn_step *define = add_step(&f, &f.program.steps, TN_STEP_DEFINE, 1, &count);
    define->dim = n;
    define->upper = all;
    add_copy(&f, &f.program.steps, t, from);
    add_copy(&f, &f.program.steps, u, t);
    add_copy(&f, &f.program.steps, out, u);
    tn_type type = tn_type_make(TN_F32, 1, &n);
    tn_value *result = tn_graph_input(f.graph, NULL, &type); /* stands for the value; the program does not read it */
    f.graph->body->nargs--;
    tn_builder b = tn_builder_at_end(f.graph->body, TN_NO_LOC);
    tn_return(&b, &result, 1);
    running r = start(&f);
    fill();
    int64_t ones = 1, hundred = 100;
    for (int64_t turn = 0; turn < 20; turn++) {
        int64_t value = turn < 16 ? 100 - 6 * turn : 50;
        DLTensor in[2] = {vector(TN_I64, &value, &ones), vector(TN_F32, x, &hundred)}, output = {.device = {turn & 1 ? 2 : 0, 0}};
        assert_int_equal(tn_run(r.context, in, 2, &output, 1), TN_OK);
        assert_int_equal(output.shape[0], value);
        assert_memory_equal(output.data, x, sizeof(float) * (size_t)value);
        tn_tensor_free(&output);
    }
    int64_t too_many = 101;
    DLTensor in[2] = {vector(TN_I64, &too_many, &ones), vector(TN_F32, x, &hundred)}, output = {.data = NULL};
    assert_int_equal(tn_run(r.context, in, 2, &output, 1), TN_INVALID);
    assert_non_null(strstr(tn_context_error(r.context), "expected a value in [0, 100], found 101"));
    end(&f, &r);
}

static void branches_are_chosen_by_values(void **state)
{
    (void)state;
    fixture f;
    fixture_start(&f);
    tn_dim one = tn_dim_const(f.session, 1), n = tn_dim_const(f.session, 3);
    int choice = add_input(&f, TN_I32, one), from[3], t = 0;
    for (int i = 0; i < 3; i++)
        from[i] = add_input(&f, TN_F32, n);
    t = add_temp(&f, TN_F32, n);
    int u = add_temp(&f, TN_F32, n), out = add_buffer(&f, TN_B_OUTPUT, TN_F32, 0, n);
    tn_step *s = add_step(&f, &f.program.steps, TN_STEP_CASE, 1, &choice);
    s->nblocks = 3;
    s->blocks = TN_NEW_ARRAY(&f.session->arena, tn_steps, 3);
    for (int i = 0; i < 3; i++) {
        add_copy(&f, &s->blocks[i], t, from[i]);
        add_copy(&f, &s->blocks[i], u, t);
    }
    add_copy(&f, &f.program.steps, out, u);
    set_outputs(&f, 1, (int[]){1});
    running r = start(&f);
    float data[3][3] = {{1, 1, 1}, {2, 2, 2}, {3, 3, 3}};
    int64_t ones = 1, size = 3;
    for (int turn = 0; turn < 3; turn++)
        for (int32_t c = -1; c < 5; c++) {
            DLTensor in[4] = {vector(TN_I32, &c, &ones), vector(TN_F32, data[0], &size), vector(TN_F32, data[1], &size), vector(TN_F32, data[2], &size)},
                     output = {.data = NULL};
            assert_int_equal(tn_run(r.context, in, 4, &output, 1), TN_OK);
            assert_memory_equal(output.data, data[c >= 0 && c < 3 ? c : 2], sizeof data[0]);
            tn_tensor_free(&output);
        }
    end(&f, &r);
}

/* Constants at any byte, splats, and what is computed from them at load. */
static void constants_are_put_there_once(void **state)
{
    (void)state;
    fixture f;
    fixture_start(&f);
    tn_dim n = tn_dim_const(f.session, 4);
    static const float values[4] = {1, 2, 3, 4}, value = 3;
    static _Alignas(8) char bytes[17];
    memcpy(bytes + 1, values, sizeof values);
    tn_tensor *splat = TN_NEW(&f.session->arena, tn_tensor), *odd = TN_NEW(&f.session->arena, tn_tensor);
    *splat = (tn_tensor){TN_F32, 1, {4}, &value, true, NULL};
    *odd = (tn_tensor){TN_F32, 1, {4}, bytes + 1, false, NULL};
    add_input(&f, TN_F32, n);
    int c = add_buffer(&f, TN_B_CONSTANT, TN_F32, 0, n), d = add_buffer(&f, TN_B_CONSTANT, TN_F32, 0, n), e = add_buffer(&f, TN_B_CONSTANT, TN_F32, 0, n);
    int between = add_temp(&f, TN_F32, n), kept = add_temp(&f, TN_F32, n);
    f.program.buffers.at[c].constant = f.program.buffers.at[e].constant = odd;
    f.program.buffers.at[d].constant = splat;
    f.program.buffers.at[kept].persistent = true;
    add_copy(&f, &f.program.steps, between, c);
    add_copy(&f, &f.program.steps, kept, between);
    f.program.steps.list.at[0]->init = f.program.steps.list.at[1]->init = true;
    add_copy(&f, &f.program.steps, add_buffer(&f, TN_B_OUTPUT, TN_F32, 0, n), kept);
    add_copy(&f, &f.program.steps, add_buffer(&f, TN_B_OUTPUT, TN_F32, 1, n), d);
    add_copy(&f, &f.program.steps, add_buffer(&f, TN_B_OUTPUT, TN_F32, 2, n), e);
    set_outputs(&f, 3, (int[]){0, 0, 0});
    int copies = fake->copies;
    running r = start(&f);
    assert_int_equal(fake->copies, copies + 5); /* three constants, two steps */
    assert_int_equal(fake->memory, 1);          /* what only the steps at load read is gone */
    int64_t size = 4;
    for (int i = 0; i < 3; i++) {
        DLTensor in = vector(TN_F32, x, &size), out[3] = {{0}};
        assert_int_equal(tn_run(r.context, &in, 1, out, 3), TN_OK);
        assert_memory_equal(out[0].data, values, sizeof values);
        assert_true(((float *)out[1].data)[0] == 3 && ((float *)out[1].data)[3] == 3);
        assert_memory_equal(out[2].data, values, sizeof values);
        for (int o = 0; o < 3; o++)
            tn_tensor_free(&out[o]);
    }
    end(&f, &r);
}

/* ---- kernels ------------------------------------------------------------------------------------------------------------------- */

static void interpret(void *context, unsigned grid, unsigned threads, const uint64_t *params)
{
    const tn_lfunc *func = context;
    tn_loop_arg buffers[16];
    assert_true(func->nbuffers <= 16 && (int)threads == func->threads && grid > 0);
    for (int i = 0; i < func->nbuffers; i++)
        buffers[i] = (tn_loop_arg){(void *)(uintptr_t)params[i], -1};
    tn_status status = tn_loop_interpret(func, buffers, (const int64_t *)params + func->nbuffers);
    if (status != TN_OK)
        tn_print_diags(func->session, stderr);
    assert_int_equal(status, TN_OK);
}

/* Kernels of a network, by the text of their Loop IR, become the fake's. */
static void teach_fake(tn_session *session, const tn_network *network, const char *machine)
{
    tn_compile_options options = {.machine = machine, .threads = 1};
    tn_lfuncs funcs = {0};
    char *text;
    size_t size;
    if (tn_emit_stage(session, network, &options, TN_STAGE_LOOP, &text, &size) != TN_OK)
        fail_msg("%s", last_message(session));
    if (tn_loop_parse(session, "kernels", text, size, &funcs) != TN_OK)
        fail_msg("%s", last_message(session));
    tn_free(text);
    assert_true(funcs.len > 0 && funcs.len <= FAKE_KERNELS);
    fake->nkernels = (int)funcs.len;
    for (size_t i = 0; i < funcs.len; i++)
        fake->kernel[i] = (fake_kernel){.name = funcs.at[i]->name, .nparams = (int)funcs.at[i]->params.len, .nmaps = (int)funcs.at[i]->maps.len, .run = interpret,
                                         .context = funcs.at[i]};
}

/* A network on the fake, whose kernels are interpreted. */
typedef struct taught {
    tn_session *session;
    tn_network *network;
    tn_executable *executable;
    tn_context *context;
} taught;

/* kernels: of which machine; machine: that is compiled for; about: in front of what goes wrong. */
static taught start_taught(tn_session *session, tn_network *network, const char *kernels, const char *machine, int threads, const char *about)
{
    taught t = {.session = session, .network = network};
    tn_compile_options options = {.machine = machine, .threads = threads};
    fake->most_threads = 1024;
    teach_fake(session, network, kernels);
    if (tn_compile(session, network, &options, &t.executable) != TN_OK)
        fail_msg("%s%s", about, last_message(session));
    assert_int_equal(tn_context_new(t.executable, &t.context), TN_OK);
    return t;
}

static taught start_taught_file(const char *path, const char *machine, int threads)
{
    tn_session *session = tn_session_new();
    tn_network *network;
    assert_int_equal(tn_load_text(session, path, &network), TN_OK);
    return start_taught(session, network, "cuda", machine, threads, "");
}

static void end_taught(taught *t)
{
    tn_context_free(t->context);
    tn_executable_free(t->executable);
    tn_network_free(t->network);
    tn_session_free(t->session);
    fake->nkernels = 0;
    fake->most_threads = 0;
    check_clean();
}

static void networks_run(void **state)
{
    (void)state;
    enum { ROWS = 3, COLUMNS = 1000 };
    static float in[ROWS * COLUMNS];
    tn_executable_info info;
    taught t = start_taught_file(TENON_SOURCE_DIR "/examples/softmax.tn", "cuda", 2);
    assert_int_equal(tn_executable_describe(t.executable, &info), TN_OK);
    assert_int_equal(info.device, 0);
    assert_string_equal(info.machine, "sm_90a");
    assert_true(strstr(fake->image, ".target sm_90a") != NULL);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        in[i] = (float)((i * 7919) % 31) * 0.25f - 3.0f;
    for (int64_t rows = 1; rows <= ROWS; rows++) {
        int64_t shape[2] = {rows, COLUMNS};
        DLTensor input = {.data = in, .device = {1, 0}, .ndim = 2, .dtype = {2, 32, 1}, .shape = shape}, output = {.data = NULL}, expected = {.data = NULL};
        if (tn_run(t.context, &input, 1, &output, 1) != TN_OK)
            fail_msg("%s", tn_context_error(t.context));
        assert_int_equal(tn_run_reference(t.session, t.network, &input, 1, &expected, 1), TN_OK);
        for (int64_t i = 0; i < rows * COLUMNS; i++)
            assert_true(fabsf(((float *)output.data)[i] - ((float *)expected.data)[i]) <= 1e-6f);
        tn_tensor_free(&output);
        tn_tensor_free(&expected);
    }
    assert_int_equal(fake->pushed, 0);
    int64_t shape[2] = {2, COLUMNS};
    DLTensor input = {.data = in, .device = {1, 0}, .ndim = 2, .dtype = {2, 32, 1}, .shape = shape}, output = {.data = NULL};
    tn_profile_row row;
    tn_profile_start(t.context, 1);
    assert_int_equal(tn_run(t.context, &input, 1, &output, 1), TN_OK);
    tn_tensor_free(&output);
    assert_int_equal(tn_profile_at(t.context, 0, &row), TN_OK);
    assert_true(row.runs == 1 && row.seconds > 0.0014 && row.seconds < 0.0016 && row.threads >= 32); /* as the events say */
    end_taught(&t);
}

/* Rows that wait in shared memory, and those that two CTAs share: by all threads, without a race. */
static void rows_wait(void **state)
{
    (void)state;
    enum { ROWS = 2, LONG = 32768, SHORT = 16384 };
    static float x[ROWS * LONG];
    static uint16_t h[ROWS * SHORT], w[SHORT];
    taught t = start_taught_file(TENON_SOURCE_DIR "/tests/lit/gpu/waits.tn", "cuda", 1);
    for (int i = 0; i < ROWS * LONG; i++)
        x[i] = (float)(i * 7919 % 4099) * 0.004f - 8.0f;
    for (int i = 0; i < ROWS * SHORT; i++)
        h[i] = (uint16_t)(0x3f80 + i * 31 % 97 - (i % 5 == 0) * 0x180); /* bf16: 1 to 1.8, or a quarter to a half */
    for (int i = 0; i < SHORT; i++)
        w[i] = (uint16_t)((i % 3 == 0) << 15 | (0x4000 + i % 128));
    int64_t shapes[3][2] = {{ROWS, LONG}, {ROWS, SHORT}, {SHORT, 0}};
    DLTensor inputs[3] = {{.data = x, .device = {1, 0}, .ndim = 2, .dtype = {2, 32, 1}, .shape = shapes[0]},
                          {.data = h, .device = {1, 0}, .ndim = 2, .dtype = {4, 16, 1}, .shape = shapes[1]},
                          {.data = w, .device = {1, 0}, .ndim = 1, .dtype = {4, 16, 1}, .shape = shapes[2]}};
    DLTensor found[2] = {{0}, {0}}, expected[2] = {{0}, {0}};
    if (tn_run(t.context, inputs, 3, found, 2) != TN_OK)
        fail_msg("%s", tn_context_error(t.context));
    assert_int_equal(tn_run_reference(t.session, t.network, inputs, 3, expected, 2), TN_OK);
    for (int i = 0; i < ROWS * LONG; i++) {
        float want = ((float *)expected[0].data)[i];
        assert_true(fabsf(((float *)found[0].data)[i] - want) <= 1e-4f * want);
    }
    for (int i = 0; i < ROWS * SHORT; i++) /* the last digit may differ */
        assert_true(abs(((uint16_t *)found[1].data)[i] - ((uint16_t *)expected[1].data)[i]) <= 1);
    for (int o = 0; o < 2; o++) {
        tn_tensor_free(&found[o]);
        tn_tensor_free(&expected[o]);
    }
    end_taught(&t);
}

/* A loop whose condition, and a count, lie in the GPU's memory. A turn of it is a section that is replayed. */
static void loops_run(void **state)
{
    (void)state;
    enum { N = 7, K = 5 };
    float in[N * K], w[K * K];
    taught t = start_taught_file(TENON_SOURCE_DIR "/tests/lit/gpu/loop.tn", "cuda:0", 1);
    for (int i = 0; i < N * K; i++)
        in[i] = (float)(i * 13 % 29);
    for (int i = 0; i < K * K; i++)
        w[i] = (float)(i * 7 % 11) - 5;
    int64_t shapes[2][2] = {{N, K}, {K, K}};
    DLTensor inputs[2] = {{.data = in, .device = {1, 0}, .ndim = 2, .dtype = {2, 32, 1}, .shape = shapes[0]},
                          {.data = w, .device = {1, 0}, .ndim = 2, .dtype = {2, 32, 1}, .shape = shapes[1]}};
    for (int turn = 0; turn < 3; turn++) {
        DLTensor found[2] = {{0}, {0}}, expected[2] = {{0}, {0}};
        fake->replays = 0;
        if (tn_run(t.context, inputs, 2, found, 2) != TN_OK)
            fail_msg("%s", tn_context_error(t.context));
        assert_int_equal(tn_run_reference(t.session, t.network, inputs, 2, expected, 2), TN_OK);
        assert_int_equal(*(int32_t *)found[1].data, 5); /* 28 to below 1 */
        assert_int_equal(*(int32_t *)expected[1].data, 5);
        for (int i = 0; i < N * K; i++)
            assert_true(fabsf(((float *)found[0].data)[i] - ((float *)expected[0].data)[i]) <= 1e-5f);
        assert_true(fake->replays >= 3);
        for (int o = 0; o < 2; o++) {
            tn_tensor_free(&found[o]);
            tn_tensor_free(&expected[o]);
        }
    }
    end_taught(&t);
}

/* x [m, k] times w [k, n] (turned: [n, k]), plus b. */
typedef struct product_case {
    const char *m; /* a size, or a symbol */
    int64_t rows, n, k;
    const char *type;
    bool turned;
    int kernels;
} product_case;

static const char *product_text(tn_session *session, const product_case *c)
{
    const char *m = c->m, *result = tn_format(&session->arena, "%s[%s, %lld]", c->type, m, (long long)c->n);
    return tn_format(&session->arena,
                     "graph @f(%%x: %s[%s, %lld], %%w: %s[%lld, %lld], %%b: %s[%lld]) {\n"
                     "  %%0 = dot_general %%x, %%w, lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [%d] : %s\n"
                     "  %%1 = broadcast_in_dim %%b, shape = [%s, %lld], broadcast_dimensions = [1] : %s\n  %%2 = add %%0, %%1 : %s\n  %%3 = abs %%2 : %s\n  return %%3\n}\n",
                     c->type, m, (long long)c->k, c->type, (long long)(c->turned ? c->n : c->k), (long long)(c->turned ? c->k : c->n), c->type, (long long)c->n, c->turned,
                     result, m, (long long)c->n, result, result, result);
}

static void fill_integers(DLTensor *t, tn_dtype type, int factor)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    t->data = malloc((size_t)(n * tn_dtype_bits(type) / 8));
    t->dtype = tn_dtype_to_dlpack(type);
    t->device = (DLDevice){1, 0};
    for (int64_t i = 0; i < n; i++)
        tn_number_store(type, t->data, i, tn_number_from_int(type, i * factor % 13 - 5));
}

/* The network on the fake, whose kernels are interpreted, against the reference, bit for bit. */
static void check_network(const char *text, const char *machine, tn_dtype type, DLTensor *in, int n, int kernels)
{
    tn_session *session = tn_session_new();
    tn_network *network;
    char path[] = "/tmp/tenon-product-XXXXXX.tn";
    int file = mkstemps(path, 3);
    assert_true(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text) && close(file) == 0);
    tn_status status = tn_load_text(session, path, &network);
    assert_int_equal(unlink(path), 0);
    if (status != TN_OK)
        fail_msg("%s%s", text, last_message(session));
    taught t = start_taught(session, network, machine, machine, 1, text);
    if (fake->nkernels != kernels)
        fail_msg("%s%s: %d kernels, not %d", text, machine, fake->nkernels, kernels);
    DLTensor out = {0}, expected = {0};
    for (int i = 0; i < n; i++)
        fill_integers(&in[i], type, 3 + 2 * i);
    if (tn_run(t.context, in, n, &out, 1) != TN_OK)
        fail_msg("%s%s", text, tn_context_error(t.context));
    assert_int_equal(tn_run_reference(session, network, in, n, &expected, 1), TN_OK);
    int64_t elements = 1;
    for (int i = 0; i < out.ndim; i++)
        elements *= out.shape[i];
    for (int64_t i = 0; i < elements; i++) {
        double found = tn_number_to_double(type, tn_number_load(type, out.data, i)), right = tn_number_to_double(type, tn_number_load(type, expected.data, i));
        if (found != right)
            fail_msg("%s%s: element %lld is %g, not %g", text, machine, (long long)i, found, right);
    }
    for (int i = 0; i < n; i++)
        free(in[i].data);
    tn_tensor_free(&out);
    tn_tensor_free(&expected);
    end_taught(&t);
}

/* Sums in parts that a second kernel adds up, and rows and columns alone, by instructions and without: sums of small integers, exact in every order. */
static void products_with_few_tiles_run(void **state)
{
    (void)state;
    static const product_case cases[] = {
        {"17", 17, 72, 1000, "bf16", false, 2}, {"3", 3, 40, 2050, "bf16", true, 2},  {"65", 65, 100, 1304, "f16", true, 2},  {"1", 1, 72, 1000, "bf16", false, 2},
        {"1", 1, 77, 1000, "bf16", true, 1},    {"1", 1, 77, 1000, "bf16", false, 2}, {"40", 40, 1, 2000, "bf16", false, 1}, {"1", 1, 1, 5000, "bf16", false, 2},
        {"1", 1, 300, 700, "f32", false, 2},    {"1", 1, 33, 3001, "f32", true, 2},   {"20", 20, 40, 900, "f32", false, 2},  {"m", 5, 40, 300, "bf16", false, 1},
        {"m", 1, 40, 300, "bf16", true, 1},
    };
    static const char *const machines[] = {"sm_90a", "sm_80"};
    tn_session *session = tn_session_new();
    for (size_t i = 0; i < TN_COUNT(cases); i++)
        for (size_t m = 0; m < (i < 4 ? 2 : 1); m++) {
            const product_case *c = &cases[i];
            int64_t shapes[3][2] = {{c->rows, c->k}, {c->turned ? c->n : c->k, c->turned ? c->k : c->n}, {c->n}};
            DLTensor in[3] = {{.ndim = 2, .shape = shapes[0]}, {.ndim = 2, .shape = shapes[1]}, {.ndim = 1, .shape = shapes[2]}};
            tn_dtype type = c->type[0] == 'b' ? TN_BF16 : strcmp(c->type, "f16") ? TN_F32 : TN_F16;
            fake->early = 0;
            check_network(product_text(session, c), machines[m], type, in, 3, c->kernels);
            assert_int_equal(fake->early, m == 0 && c->kernels == 2); /* the second kernel need not wait for the end of the first */
        }
    tn_session_free(session);
}

/* Taps and channels in parts, of rows that are not evenly spaced. */
static void convolutions_with_few_tiles_run(void **state)
{
    static const char *const text =
        "graph @f(%x: bf16[1, 7, 6, 72], %w: bf16[3, 3, 72, 40]) {\n"
        "  %0 = convolution %x, %w, lhs_layout = b01f, rhs_layout = 01io, out_layout = b01f, window_strides = [1, 1], padding_low = [0, 0], padding_high = [0, 0],"
        " base_dilation = [1, 1], window_dilation = [1, 1], window_reversal = [0, 0], feature_group_count = 1, batch_group_count = 1 : bf16[1, 5, 4, 40]\n"
        "  %1 = abs %0 : bf16[1, 5, 4, 40]\n  return %1\n}\n";
    int64_t shapes[2][4] = {{1, 7, 6, 72}, {3, 3, 72, 40}};
    DLTensor in[2] = {{.ndim = 4, .shape = shapes[0]}, {.ndim = 4, .shape = shapes[1]}};
    (void)state;
    check_network(text, "sm_90a", TN_BF16, in, 2, 2);
}

/* Two products as one, with biases, by slices that are moved. */
static void merged_products_run(void **state)
{
    static const char *const text =
        "graph @f(%x: f32[3, 2]) {\n  %v = constant dense<[[1, 2], [3, 4]]> : f32[2, 2]\n  %w = constant dense<[[1, 4], [2, 5], [3, 6]]> : f32[3, 2]\n"
        "  %b = constant dense<[7, 8]> : f32[2]\n  %c = constant dense<[1, -1, 2]> : f32[3]\n  %t = transpose %w, permutation = [1, 0] : f32[2, 3]\n"
        "  %0 = dot_general %x, %v, lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0] : f32[3, 2]\n"
        "  %1 = broadcast_in_dim %b, shape = [3, 2], broadcast_dimensions = [1] : f32[3, 2]\n  %2 = add %0, %1 : f32[3, 2]\n  %3 = transpose %2, permutation = [1, 0] : f32[2, 3]\n"
        "  %4 = dot_general %x, %t, lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0] : f32[3, 3]\n"
        "  %5 = broadcast_in_dim %c, shape = [3, 3], broadcast_dimensions = [1] : f32[3, 3]\n  %6 = add %5, %4 : f32[3, 3]\n"
        "  %7 = slice %6, start = [0, 0], limit = [2, 3], strides = [1, 1] : f32[2, 3]\n  %8 = multiply %3, %7 : f32[2, 3]\n  return %8\n}\n";
    int64_t shape[2] = {3, 2};
    DLTensor in[1] = {{.ndim = 2, .shape = shape}};
    (void)state;
    check_network(text, "sm_90a", TN_F32, in, 1, 2);
}

/* Short lines in one kernel; of 64-bit elements more than shared memory holds in runs that are merged, with symbolic lengths too. */
static void sorts_run(void **state)
{
    static const char *const text = "graph @f(%%x: %s[%s]) {\n  %%0 = sort %%x, dimension = 1, stable = true : %s[%s] {\n  ^(%%a: %s[], %%b: %s[]):\n"
                                    "    %%c = compare %%a, %%b, direction = LT, total_order = false : bool[]\n    return %%c\n  }\n  return %%0\n}\n";
    int64_t shapes[2][2] = {{5, 37}, {1, 17000}};
    tn_session *session = tn_session_new();
    DLTensor in[1] = {{.ndim = 2, .shape = shapes[0]}};
    (void)state;
    check_network(tn_format(&session->arena, text, "f32", "5, 37", "f32", "5, 37", "f32", "f32"), "sm_90a", TN_F32, in, 1, 1);
    in[0].shape = shapes[1];
    check_network(tn_format(&session->arena, text, "i64", "1, 17000", "i64", "1, 17000", "i64", "i64"), "sm_90a", TN_I64, in, 1, 3);
    tn_session_free(session);
}

/* Updates that meet, in order, some of them outside: windows, batches, and indices that differ are dealt out. */
static void scatters_run(void **state)
{
    static const char *const form =
        "graph @f(%%x: i32[%s], %%i: i32[%s], %%u: i32[%s]) {\n  %%0 = scatter %%x, %%i, %%u, %s : i32[%s] {\n  ^(%%a: i32[], %%b: i32[]):\n"
        "    %%two = constant dense<2> : i32[]\n    %%c = multiply %%a, %%two : i32[]\n    %%d = add %%c, %%b : i32[]\n    return %%d\n  }\n  return %%0\n}\n";
    static const struct { const char *x, *i, *u, *attributes; int64_t shape[3][3]; int rank[3]; } cases[] = {
        {"7, 70", "9, 1", "9, 70", "update_window_dims = [1], inserted_window_dims = [0], input_batching_dims = [], scatter_indices_batching_dims = [], scatter_dims_to_operand_dims = [0], index_vector_dim = 1",
         {{7, 70}, {9, 1}, {9, 70}}, {2, 2, 2}},
        {"7, 70", "9, 2", "9, 5", "update_window_dims = [1], inserted_window_dims = [0], input_batching_dims = [], scatter_indices_batching_dims = [], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1",
         {{7, 70}, {9, 2}, {9, 5}}, {2, 2, 2}},
        {"7, 70", "9, 70, 1", "9, 70", "update_window_dims = [], inserted_window_dims = [0], input_batching_dims = [1], scatter_indices_batching_dims = [1], scatter_dims_to_operand_dims = [0], index_vector_dim = 2",
         {{7, 70}, {9, 70, 1}, {9, 70}}, {2, 3, 2}},
        {"7, 3, 40", "7, 6, 1", "7, 6, 40", "update_window_dims = [2], inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2",
         {{7, 3, 40}, {7, 6, 1}, {7, 6, 40}}, {3, 3, 3}},
        {"20", "6, 1", "6", "update_window_dims = [], inserted_window_dims = [0], input_batching_dims = [], scatter_indices_batching_dims = [], scatter_dims_to_operand_dims = [0], index_vector_dim = 1",
         {{20}, {6, 1}, {6}}, {1, 2, 1}},
        {"20", "4, 1", "4, 3", "update_window_dims = [1], inserted_window_dims = [], input_batching_dims = [], scatter_indices_batching_dims = [], scatter_dims_to_operand_dims = [0], index_vector_dim = 1, unique_indices = true",
         {{20}, {4, 1}, {4, 3}}, {1, 2, 2}}, /* -5, 2, -4, 3: apart, two outside */
    };
    tn_session *session = tn_session_new();
    (void)state;
    for (size_t c = 0; c < TN_COUNT(cases); c++) {
        DLTensor in[3];
        for (int i = 0; i < 3; i++)
            in[i] = (DLTensor){.ndim = cases[c].rank[i], .shape = (int64_t *)cases[c].shape[i]};
        check_network(tn_format(&session->arena, form, cases[c].x, cases[c].i, cases[c].u, cases[c].attributes, cases[c].x), c % 2 ? "sm_80" : "sm_90a", TN_I32, in, 3, 2);
    }
    tn_session_free(session);
}

/* A cache with what a step adds: one kernel for both parts. */
static void small_parts_are_joined(void **state)
{
    static const char *const text =
        "graph @f(%x: bf16[2, 5, 8], %y: bf16[1, 2, 8]) {\n  %0 = transpose %y, permutation = [1, 0, 2] : bf16[2, 1, 8]\n  %1 = negate %0 : bf16[2, 1, 8]\n"
        "  %2 = concatenate %x, %1, dimension = 1 : bf16[2, 6, 8]\n  return %2\n}\n";
    int64_t shapes[2][3] = {{2, 5, 8}, {1, 2, 8}};
    DLTensor in[2] = {{.ndim = 3, .shape = shapes[0]}, {.ndim = 3, .shape = shapes[1]}};
    (void)state;
    check_network(text, "sm_90a", TN_BF16, in, 2, 1);
}

/* Padding is where a row of the operand does not exist; weights and operands in another order are turned, few features are padded. */
typedef struct convolution_case {
    const char *x, *w, *y, *layouts, *strides, *low, *high, *dilation;
    int64_t x_shape[4], w_shape[4];
    int groups, kernels;
} convolution_case;

static void convolutions_run(void **state)
{
    static const convolution_case cases[] = {
        {"n, 8, 5, 7", "24, 8, 3, 3", "n, 24, 5, 7", "lhs_layout = bf01, rhs_layout = oi01, out_layout = bf01", "1, 1", "1, 1", "1, 1", "1, 1", {2, 8, 5, 7}, {24, 8, 3, 3}, 1, 3},
        {"2, 9, 11, 16", "3, 2, 16, 20", "2, 5, 5, 20", "lhs_layout = b01f, rhs_layout = 01io, out_layout = b01f", "2, 2", "1, 0", "2, 1", "1, 2", {2, 9, 11, 16}, {3, 2, 16, 20}, 1, 1},
        {"1, 3, 13, 11", "16, 3, 7, 7", "1, 16, 7, 6", "lhs_layout = bf01, rhs_layout = oi01, out_layout = bf01", "2, 2", "3, 3", "3, 3", "1, 1", {1, 3, 13, 11}, {16, 3, 7, 7}, 1, 3},
        {"2, 6, 6, 16", "16, 8, 3, 3", "2, 6, 6, 16", "lhs_layout = b01f, rhs_layout = oi01, out_layout = b01f", "1, 1", "1, 1", "1, 1", "1, 1", {2, 6, 6, 16}, {16, 8, 3, 3}, 2, 2},
    };
    tn_session *session = tn_session_new();
    (void)state;
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        const convolution_case *c = &cases[i];
        const char *text = tn_format(&session->arena,
            "graph @f(%%x: bf16[%s], %%w: bf16[%s]) {\n  %%0 = convolution %%x, %%w, %s, window_strides = [%s], padding_low = [%s], padding_high = [%s],"
            " base_dilation = [1, 1], window_dilation = [%s], window_reversal = [0, 0], feature_group_count = %d, batch_group_count = 1 : bf16[%s]\n"
            "  %%1 = abs %%0 : bf16[%s]\n  return %%1\n}\n", c->x, c->w, c->layouts, c->strides, c->low, c->high, c->dilation, c->groups, c->y, c->y);
        int64_t shapes[2][4];
        memcpy(shapes[0], c->x_shape, sizeof shapes[0]);
        memcpy(shapes[1], c->w_shape, sizeof shapes[1]);
        DLTensor in[2] = {{.ndim = 4, .shape = shapes[0]}, {.ndim = 4, .shape = shapes[1]}};
        check_network(text, "sm_90a", TN_BF16, in, 2, c->kernels);
        if (i == 0)
            check_network(text, "sm_80", TN_BF16, in, 2, c->kernels);
    }
    tn_session_free(session);
}

/* The same network a second time: its code is on the disk, once, and is the same. */
static void code_is_kept(void **state)
{
    (void)state;
    char folder[] = "/tmp/tenon-run-gpu-XXXXXX";
    char *images[2] = {NULL, NULL};
    assert_non_null(mkdtemp(folder));
    setenv("TENON_CACHE", folder, 1);
    for (int turn = 0; turn < 2; turn++) {
        tn_session *session = tn_session_new();
        tn_network *network;
        tn_executable *executable;
        assert_int_equal(tn_load_text(session, TENON_SOURCE_DIR "/examples/softmax.tn", &network), TN_OK);
        teach_fake(session, network, "cuda");
        tn_compile_options options = {.machine = "cuda", .threads = 1};
        assert_int_equal(tn_compile(session, network, &options, &executable), TN_OK);
        images[turn] = strdup(fake->image);
        tn_executable_free(executable);
        tn_network_free(network);
        tn_session_free(session);
    }
    assert_string_equal(images[0], images[1]);
    free(images[0]);
    free(images[1]);
    DIR *dir = opendir(folder);
    int files = 0;
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.') {
            files++;
            assert_int_equal(unlinkat(dirfd(dir), e->d_name, 0), 0);
        }
    closedir(dir);
    assert_int_equal(files, 1);
    assert_int_equal(rmdir(folder), 0);
    setenv("TENON_CACHE", "", 1);
    fake->nkernels = 0;
    check_clean();
}

static void machines_have_names(void **state)
{
    (void)state;
    static const struct { const char *name, *machine; int device; } good[] = {
        {"cuda", "sm_90a", 0}, {"cuda:0", "sm_90a", 0}, {"sm_80", "sm_80", 0}, {"sm_80:5", "sm_80", 5}, {"baseline", "baseline", 0}};
    static const char *const bad[] = {"cuda:", "cuda:x", "cuda:-1", "baseline:0", "sm_80:1x", "tpu"};
    tn_session *s = new_test_session();
    const tn_machine *machine;
    int device;
    for (size_t i = 0; i < TN_COUNT(good); i++) {
        assert_int_equal(tn_gpu_machine(s, good[i].name, &machine, &device), TN_OK);
        assert_string_equal(machine->name, good[i].machine);
        assert_int_equal(device, good[i].device);
    }
    for (size_t i = 0; i < TN_COUNT(bad); i++)
        assert_int_equal(tn_gpu_machine(s, bad[i], &machine, &device), TN_USAGE);
    assert_int_equal(tn_gpu_machine(s, "cuda:1", &machine, &device), TN_UNSUPPORTED);
    assert_int_equal(tn_gpu_machine(s, NULL, &machine, &device), TN_OK);
    assert_false(machine->gpu);
    assert_null(tn_gpu_refusal(s, tn_machine_find("sm_80"), 0));
    assert_null(tn_gpu_refusal(s, tn_machine_find("sm_90a"), 0));
    assert_non_null(tn_gpu_refusal(s, tn_machine_find("sm_80"), 1));
    assert_string_equal(tn_gpu_architecture(&s->arena, tn_machine_find("sm_80"), 0), "sm_90");
    assert_string_equal(tn_gpu_architecture(&s->arena, tn_machine_find("sm_90a"), 0), "sm_90a");
    free_test_session(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_used_again),           cmocka_unit_test(modules_are_asked),
        cmocka_unit_test(sizes_are_captured_when_they_come_again), cmocka_unit_test(tensors_are_used_where_they_lie),
        cmocka_unit_test(host_tensors_may_have_strides),   cmocka_unit_test(the_callers_stream_is_used),
        cmocka_unit_test(failures_leave_nothing),          cmocka_unit_test(loading_may_fail),
        cmocka_unit_test(sizes_may_be_born_during_a_run),  cmocka_unit_test(branches_are_chosen_by_values),
        cmocka_unit_test(constants_are_put_there_once),    cmocka_unit_test(networks_run),
        cmocka_unit_test(rows_wait),
        cmocka_unit_test(loops_run),                       cmocka_unit_test(products_with_few_tiles_run),
        cmocka_unit_test(convolutions_with_few_tiles_run),  cmocka_unit_test(convolutions_run),
        cmocka_unit_test(merged_products_run),             cmocka_unit_test(sorts_run), cmocka_unit_test(scatters_run), cmocka_unit_test(small_parts_are_joined),
        cmocka_unit_test(code_is_kept),                    cmocka_unit_test(machines_have_names),
    };
    return cmocka_run_group_tests(tests, start_tests, NULL);
}
