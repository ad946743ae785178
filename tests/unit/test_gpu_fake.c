/* CUDA's driver as a fake: what is asked of it, how its failures read, and that contexts are given back after them. What stops the
 * driver from starting is tried in processes of their own, because a process loads it once. */
#include "unit.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_cuda.h"
#include "run/cuda.h"

/* A library of this name that is already there is the one that dlopen finds. */
static fake_state *load_fake(void)
{
    void *library = dlopen(FAKE_CUDA, RTLD_NOW);
    if (!library)
        fail_msg("%s", dlerror());
    fake_state *fake = dlsym(library, "fake_cuda");
    assert_non_null(fake);
    return fake;
}

/* The sentence of a process whose driver fails so. */
static void check_none(const char *failing, int result, int devices, const char *expected)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        const char *why = "";
        fake_state *fake = load_fake();
        fake->failing = failing, fake->result = result, fake->devices = devices;
        int count = tn_gpu_count(&why);
        if (count || strcmp(why, expected))
            fprintf(stderr, "count %d, '%s' instead of '%s'\n", count, why ? why : "", expected);
        _exit(count || strcmp(why, expected));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void none(void **state)
{
    (void)state;
    check_none(NULL, 0, 0, "libcuda.so.1 finds no device");
    check_none("cuInit", 100, 1, "libcuda.so.1 finds no device");
    check_none("cuInit", 999, 1, "cuInit of libcuda.so.1 failed: FAKE_ERROR (went wrong)");
    check_none("cuInit", 12345, 1, "cuInit of libcuda.so.1 failed: CUDA error 12345, which the driver has no name for");
    check_none("cuDeviceGetCount", 999, 1, "cuDeviceGetCount of libcuda.so.1 failed: FAKE_ERROR (went wrong)");
}

static void use(void **state)
{
    (void)state;
    fake_state *fake = load_fake();
    tn_session *s = new_test_session();
    const char *why = "";
    tn_gpu gpu;
    assert_int_equal(tn_gpu_count(&why), 1);
    assert_null(why);
    assert_int_equal(tn_gpu_open(s, 1, &gpu), TN_UNSUPPORTED);
    assert_string_equal(last_message(s), "there is no GPU 1: CUDA's driver shows 1, counted from 0");
    assert_int_equal(tn_gpu_open(s, -1, &gpu), TN_UNSUPPORTED);
    assert_int_equal(tn_gpu_close(s, &gpu), TN_OK); /* never opened */
    assert_int_equal(tn_gpu_open(s, 0, &gpu), TN_OK);
    assert_int_equal(fake->retained, 1);
    assert_string_equal(gpu.info.name, "Fake 40");
    assert_true(gpu.info.major == 9 && gpu.info.minor == 0 && gpu.info.processors == 80 && gpu.info.driver == 12040);
    assert_true(gpu.info.bytes == (int64_t)6 << 30 && gpu.info.l2_bytes == 6 << 20 && gpu.info.shared_bytes == 232448);

    CUmodule module;
    tn_gpu_kernel f, big;
    assert_int_equal(tn_gpu_load(s, &gpu, "bad", &module), TN_INVALID);
    assert_string_equal(last_message(s), "cuModuleLoadDataEx failed: FAKE_ERROR (went wrong): line 1: no such thing as bad");
    assert_int_equal(tn_gpu_load(s, &gpu, "good", &module), TN_OK);
    assert_int_equal(tn_gpu_function(s, &gpu, module, "g", 0, &f), TN_INVALID);
    assert_string_equal(last_message(s), "cuModuleGetFunction failed: FAKE_ERROR (went wrong): g");
    assert_int_equal(tn_gpu_function(s, &gpu, module, "f", 232448 - 101 + 1, &f), TN_UNSUPPORTED); /* 101: its static shared memory */
    assert_string_equal(last_message(s), "kernel 'f' wants 232449 bytes of shared memory a block, Fake 40 has 232448");
    assert_int_equal(tn_gpu_function(s, &gpu, module, "f", 0xffffffffu, &f), TN_UNSUPPORTED);
    assert_int_equal(fake->limit, 0);
    assert_int_equal(tn_gpu_function(s, &gpu, module, "f", 232448 - 101, &big), TN_OK);
    assert_int_equal(tn_gpu_function(s, &gpu, module, "f", 7, &f), TN_OK);
    assert_int_equal(fake->limit, 232448 - 101); /* as `big` needs it */
    assert_true(f.most_threads == 100 && f.shared_bytes == 101 && f.local_bytes == 103 && f.registers == 104);
    assert_int_equal(tn_gpu_launch(s, &gpu, &f, (unsigned[]){1, 2, 3}, (unsigned[]){4, 5, 6}, NULL, false, NULL), TN_OK);
    assert_memory_equal(fake->launch, ((unsigned[]){1, 2, 3, 4, 5, 6, 7}), sizeof fake->launch);
    assert_int_equal(fake->cluster, 0);
    f.cluster = 4;
    assert_int_equal(tn_gpu_launch(s, &gpu, &f, (unsigned[]){8, 2, 3}, (unsigned[]){4, 5, 6}, NULL, false, NULL), TN_OK);
    assert_memory_equal(fake->launch, ((unsigned[]){8, 2, 3, 4, 5, 6, 7}), sizeof fake->launch);
    assert_int_equal(fake->cluster, 4);
    assert_int_equal(tn_gpu_launch(s, &gpu, &f, (unsigned[]){6, 2, 3}, (unsigned[]){4, 5, 6}, NULL, false, NULL), TN_INVALID);
    assert_string_equal(last_message(s), "cuLaunchKernelEx failed: FAKE_ERROR (went wrong)");

    CUstream stream;
    CUdeviceptr memory, empty;
    char back[6] = "";
    assert_int_equal(tn_gpu_stream_new(s, &gpu, &stream), TN_OK);
    assert_int_equal(tn_gpu_alloc(s, &gpu, 6, &memory), TN_OK);
    assert_int_equal(tn_gpu_alloc(s, &gpu, 0, &empty), TN_OK);
    assert_true(empty != 0);
    assert_int_equal(tn_gpu_copy_in(s, &gpu, memory, "tenon", 6, stream), TN_OK);
    assert_int_equal(tn_gpu_copy_out(s, &gpu, back, memory, 6, stream), TN_OK);
    assert_int_equal(tn_gpu_wait(s, &gpu, stream), TN_OK);
    assert_string_equal(back, "tenon");
    assert_int_equal(fake->pushed, 0);

    /* Failures, one a call: none leaves the context current. */
    CUdeviceptr refused;
    fake->failing = "cuMemAlloc_v2", fake->result = 2;
    assert_int_equal(tn_gpu_alloc(s, &gpu, 6, &refused), TN_NO_MEMORY);
    assert_true(refused == 0);
    assert_string_equal(last_message(s), "cuMemAlloc_v2 failed: FAKE_OUT_OF_MEMORY (all is taken)");
    fake->failing = "cuStreamSynchronize", fake->result = 12345;
    assert_int_equal(tn_gpu_wait(s, &gpu, stream), TN_INVALID);
    assert_string_equal(last_message(s), "cuStreamSynchronize failed: CUDA error 12345, which the driver has no name for");
    fake->failing = "cuModuleLoadDataEx", fake->result = 209;
    CUmodule other;
    assert_int_equal(tn_gpu_load(s, &gpu, "good", &other), TN_UNSUPPORTED);
    fake->failing = "cuFuncGetAttribute", fake->result = 1;
    assert_int_equal(tn_gpu_function(s, &gpu, module, "f", 0, &f), TN_INVALID);
    fake->failing = "cuCtxPushCurrent_v2", fake->result = 201;
    assert_int_equal(tn_gpu_free(s, &gpu, memory), TN_INVALID);
    fake->failing = NULL;
    assert_int_equal(fake->pushed, 0);

    assert_int_equal(tn_gpu_free(s, &gpu, 0), TN_OK);
    assert_int_equal(tn_gpu_free(s, &gpu, memory), TN_OK);
    assert_int_equal(tn_gpu_free(s, &gpu, empty), TN_OK);
    assert_int_equal(tn_gpu_stream_free(s, &gpu, stream), TN_OK);
    assert_int_equal(tn_gpu_unload(s, &gpu, module), TN_OK);
    assert_int_equal(tn_gpu_close(s, &gpu), TN_OK);
    assert_int_equal(tn_gpu_close(s, &gpu), TN_OK);
    assert_true(!fake->retained && !fake->pushed && !fake->memory && !fake->modules && !fake->streams);
    free_test_session(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(none), cmocka_unit_test(use)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
