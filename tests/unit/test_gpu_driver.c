/* CUDA's driver as it is on this machine: absent, or with a GPU that adds two vectors. */
#include "unit.h"

#include <dlfcn.h>
#include <string.h>

#include "run/cuda.h"

/* c[i] = a[i] + b[i] for i < n */
static const char add_ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                              ".visible .entry add(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)\n{\n"
                              ".reg .pred %p;\n.reg .b32 %i, %n, %t, %b;\n.reg .b64 %a, %c, %d, %o;\n.reg .f32 %x, %y;\n"
                              "ld.param.u64 %a, [pa];\nld.param.u64 %c, [pb];\nld.param.u64 %d, [pc];\nld.param.u32 %n, [pn];\n"
                              "mov.u32 %t, %tid.x;\nmov.u32 %b, %ctaid.x;\nmov.u32 %i, %ntid.x;\nmad.lo.u32 %i, %b, %i, %t;\n"
                              "setp.ge.u32 %p, %i, %n;\n@%p bra done;\n"
                              "cvta.to.global.u64 %a, %a;\ncvta.to.global.u64 %c, %c;\ncvta.to.global.u64 %d, %d;\nmul.wide.u32 %o, %i, 4;\n"
                              "add.u64 %a, %a, %o;\nadd.u64 %c, %c, %o;\nadd.u64 %d, %d, %o;\n"
                              "ld.global.f32 %x, [%a];\nld.global.f32 %y, [%c];\nadd.rn.f32 %x, %x, %y;\nst.global.f32 [%d], %x;\ndone:\nret;\n}\n";

static void absent(void **state)
{
    (void)state;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library) {
        dlclose(library);
        skip();
    }
    tn_session *session = new_test_session();
    const char *why = NULL;
    tn_gpu_info info;
    tn_gpu gpu;
    assert_int_equal(tn_gpu_count(&why), 0);
    assert_string_equal(why, "libcuda.so.1 is not installed");
    assert_int_equal(tn_gpu_count(NULL), 0);
    assert_int_equal(tn_gpu_describe(session, 0, &info), TN_UNSUPPORTED);
    assert_string_equal(last_message(session), "there is no GPU: libcuda.so.1 is not installed");
    assert_int_equal(tn_gpu_open(session, 0, &gpu), TN_UNSUPPORTED);
    assert_int_equal(tn_gpu_close(session, &gpu), TN_OK);
    free_test_session(session);
}

static void add(void **state)
{
    (void)state;
    enum { N = 1000, BLOCK = 128 };
    if (!tn_gpu_count(NULL))
        skip();
    tn_session *s = new_test_session();
    tn_gpu gpu;
    CUmodule module;
    CUstream stream;
    tn_gpu_kernel kernel;
    assert_int_equal(tn_gpu_open(s, 0, &gpu), TN_OK);
    assert_true(gpu.info.name[0] && gpu.info.major >= 7 && gpu.info.processors > 0 && gpu.info.bytes > 1 << 30 && gpu.info.l2_bytes > 0);
    assert_true(gpu.info.shared_bytes >= 48 << 10 && gpu.info.driver >= 11000);
    assert_int_equal(tn_gpu_load(s, &gpu, add_ptx, &module), TN_OK);
    assert_int_equal(tn_gpu_function(s, &gpu, module, "add", (unsigned)gpu.info.shared_bytes, &kernel), TN_OK); /* needs none, may have all */
    assert_true(kernel.most_threads >= BLOCK && kernel.registers > 0 && kernel.local_bytes == 0);
    assert_int_equal(tn_gpu_stream_new(s, &gpu, &stream), TN_OK);

    float host[3][N];
    CUdeviceptr memory[3];
    for (int i = 0; i < N; i++)
        host[0][i] = 0.5f * i, host[1][i] = 1000.0f - i, host[2][i] = -1;
    for (int k = 0; k < 3; k++) {
        assert_int_equal(tn_gpu_alloc(s, &gpu, sizeof host[k], &memory[k]), TN_OK);
        assert_int_equal(tn_gpu_copy_in(s, &gpu, memory[k], host[k], sizeof host[k], stream), TN_OK);
    }
    unsigned n = N - 1; /* the last element stays */
    void *params[] = {&memory[0], &memory[1], &memory[2], &n};
    assert_int_equal(tn_gpu_launch(s, &gpu, &kernel, (unsigned[]){(N + BLOCK - 1) / BLOCK, 1, 1}, (unsigned[]){BLOCK, 1, 1}, stream, false, params), TN_OK);
    assert_int_equal(tn_gpu_copy_out(s, &gpu, host[2], memory[2], sizeof host[2], stream), TN_OK);
    assert_int_equal(tn_gpu_wait(s, &gpu, stream), TN_OK);
    for (int i = 0; i < N - 1; i++)
        assert_true(host[2][i] == host[0][i] + host[1][i]);
    assert_true(host[2][N - 1] == -1);

    /* What is wrong is said in CUDA's words, and the GPU is usable afterwards. */
    CUmodule bad;
    tn_gpu_kernel missing;
    CUdeviceptr huge;
    assert_int_equal(tn_gpu_load(s, &gpu, ".version 7.0\n.target sm_70\n.address_size 64\nnonsense\n", &bad), TN_INVALID);
    assert_non_null(strstr(last_message(s), "CUDA_ERROR_INVALID_PTX"));
    assert_non_null(strstr(last_message(s), "line 4"));
    assert_int_equal(tn_gpu_function(s, &gpu, module, "subtract", 0, &missing), TN_INVALID);
    assert_non_null(strstr(last_message(s), "CUDA_ERROR_NOT_FOUND"));
    assert_int_equal(tn_gpu_alloc(s, &gpu, (int64_t)1 << 46, &huge), TN_NO_MEMORY);
    assert_int_equal(tn_gpu_launch(s, &gpu, &kernel, (unsigned[]){1, 1, 1}, (unsigned[]){4096, 1, 1}, stream, false, params), TN_INVALID);

    for (int k = 0; k < 3; k++)
        assert_int_equal(tn_gpu_free(s, &gpu, memory[k]), TN_OK);
    assert_int_equal(tn_gpu_stream_free(s, &gpu, stream), TN_OK);
    assert_int_equal(tn_gpu_unload(s, &gpu, module), TN_OK);
    assert_int_equal(tn_gpu_close(s, &gpu), TN_OK);
    free_test_session(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(absent), cmocka_unit_test(add)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
