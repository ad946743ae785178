/* CUDA's driver, loaded at run time. Every call that needs a context makes the GPU's current for its own duration, so that the caller's thread may use
 * other contexts, or another library's, in between. */
#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "run/cuda.h"

#define LIBRARY "libcuda.so.1"

typedef int CUresult;
/* Numbers of the driver's binary interface. */
enum { CUDA_SUCCESS = 0, CUDA_ERROR_OUT_OF_MEMORY = 2, CUDA_ERROR_NO_DEVICE = 100, CUDA_ERROR_NO_BINARY_FOR_GPU = 209, CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222 };
enum { DEVICE_PROCESSORS = 16, DEVICE_L2 = 38, DEVICE_MAJOR = 75, DEVICE_MINOR = 76, DEVICE_SHARED_OPTIN = 97 };
enum { FUNCTION_MOST_THREADS = 0, FUNCTION_SHARED = 1, FUNCTION_LOCAL = 3, FUNCTION_REGISTERS = 4, FUNCTION_MOST_DYNAMIC = 8 };
enum { JIT_ERROR_LOG = 5, JIT_ERROR_LOG_SIZE = 6 };
enum { STREAM_NON_BLOCKING = 1 };

#define CUDA_CALLS(X)                                                                                                                              \
    X(cuInit, unsigned flags)                                                                                                                      \
    X(cuDriverGetVersion, int *version)                                                                                                            \
    X(cuDeviceGetCount, int *count)                                                                                                                \
    X(cuDeviceGet, CUdevice *device, int ordinal)                                                                                                  \
    X(cuDeviceGetName, char *name, int size, CUdevice device)                                                                                      \
    X(cuDeviceGetAttribute, int *value, int attribute, CUdevice device)                                                                            \
    X(cuDeviceTotalMem_v2, size_t *bytes, CUdevice device)                                                                                         \
    X(cuDevicePrimaryCtxRetain, CUcontext *context, CUdevice device)                                                                               \
    X(cuDevicePrimaryCtxRelease_v2, CUdevice device)                                                                                               \
    X(cuCtxPushCurrent_v2, CUcontext context)                                                                                                      \
    X(cuCtxPopCurrent_v2, CUcontext *context)                                                                                                      \
    X(cuModuleLoadDataEx, CUmodule *module, const void *image, unsigned n, int *options, void **values)                                            \
    X(cuModuleUnload, CUmodule module)                                                                                                             \
    X(cuModuleGetFunction, CUfunction *function, CUmodule module, const char *name)                                                                \
    X(cuFuncSetAttribute, CUfunction function, int attribute, int value)                                                                           \
    X(cuFuncGetAttribute, int *value, int attribute, CUfunction function)                                                                          \
    X(cuLaunchKernel, CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, \
      unsigned shared, CUstream stream, void **params, void **extra)                                                                               \
    X(cuMemAlloc_v2, CUdeviceptr *memory, size_t bytes)                                                                                            \
    X(cuMemFree_v2, CUdeviceptr memory)                                                                                                            \
    X(cuMemcpyHtoDAsync_v2, CUdeviceptr to, const void *from, size_t bytes, CUstream stream)                                                       \
    X(cuMemcpyDtoHAsync_v2, void *to, CUdeviceptr from, size_t bytes, CUstream stream)                                                             \
    X(cuStreamCreate, CUstream *stream, unsigned flags)                                                                                            \
    X(cuStreamDestroy_v2, CUstream stream)                                                                                                         \
    X(cuStreamSynchronize, CUstream stream)                                                                                                        \
    X(cuGetErrorName, CUresult result, const char **name)                                                                                          \
    X(cuGetErrorString, CUresult result, const char **text)

/* What the first call of the process finds; not written afterwards. */
static struct {
#define X(name, ...) CUresult (*name)(__VA_ARGS__);
    CUDA_CALLS(X)
#undef X
    int count;
    char why[512]; /* there is none */
} driver;

static void error_words(CUresult result, char *out, size_t size)
{
    const char *name = NULL, *text = NULL;
    driver.cuGetErrorName(result, &name);
    driver.cuGetErrorString(result, &text);
    if (name)
        snprintf(out, size, "%s (%s)", name, text ? text : "no text");
    else
        snprintf(out, size, "CUDA error %d, which the driver has no name for", result);
}

static void load_driver(void)
{
    char words[256];
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *error = dlerror(), *absent = LIBRARY ": cannot open shared object file: No such file";
        if (!error || !strncmp(error, absent, strlen(absent)))
            snprintf(driver.why, sizeof driver.why, "%s is not installed", LIBRARY);
        else
            snprintf(driver.why, sizeof driver.why, "%s can't be loaded: %s", LIBRARY, error);
        return;
    }
    const struct { const char *name; void *at; } calls[] = {
#define X(name, ...) {#name, &driver.name},
        CUDA_CALLS(X)
#undef X
    };
    for (size_t i = 0; i < TN_COUNT(calls); i++) {
        void *symbol = dlsym(library, calls[i].name);
        if (!symbol) {
            snprintf(driver.why, sizeof driver.why, "%s lacks %s: the driver is too old", LIBRARY, calls[i].name);
            dlclose(library);
            return;
        }
        memcpy(calls[i].at, &symbol, sizeof symbol);
    }
    int count = 0;
    const char *call = "cuInit";
    CUresult result = driver.cuInit(0);
    if (result == CUDA_SUCCESS)
        call = "cuDeviceGetCount", result = driver.cuDeviceGetCount(&count);
    if (result == CUDA_ERROR_NO_DEVICE || (result == CUDA_SUCCESS && count <= 0)) {
        snprintf(driver.why, sizeof driver.why, "%s finds no device", LIBRARY);
    } else if (result != CUDA_SUCCESS) {
        error_words(result, words, sizeof words);
        snprintf(driver.why, sizeof driver.why, "%s of %s failed: %s", call, LIBRARY, words);
    } else {
        driver.count = count;
    }
}

int tn_gpu_count(const char **why)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_driver);
    if (why)
        *why = driver.count ? NULL : driver.why;
    return driver.count;
}

/* ---- errors and the current context ------------------------------------------------------------------------------------- */

static tn_status fail(tn_session *session, CUresult result, const char *call, const char *detail)
{
    char words[256];
    error_words(result, words, sizeof words);
    tn_status status = result == CUDA_ERROR_OUT_OF_MEMORY ? TN_NO_MEMORY
                       : result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION ? TN_UNSUPPORTED : TN_INVALID;
    return tn_error(session, status, TN_NO_LOC, "%s failed: %s%s%s", call, words, *detail ? ": " : "", detail);
}

static tn_status check(tn_session *session, CUresult result, const char *call)
{
    return result == CUDA_SUCCESS ? TN_OK : fail(session, result, call, "");
}

#define CALL(session, name, ...) check((session), driver.name(__VA_ARGS__), #name)

static tn_status enter(tn_session *session, const tn_gpu *gpu)
{
    assert(gpu->context);
    return CALL(session, cuCtxPushCurrent_v2, gpu->context);
}

/* Gives the thread its context back also after a failure, which is then what is reported. */
static tn_status leave(tn_session *session, tn_status status)
{
    CUcontext ours;
    CUresult result = driver.cuCtxPopCurrent_v2(&ours);
    return status != TN_OK ? status : check(session, result, "cuCtxPopCurrent_v2");
}

/* One call within the GPU's context, as the last thing of a function. */
#define RETURN_CALL(session, gpu, name, ...)                                                                           \
    do {                                                                                                               \
        TN_TRY(enter((session), (gpu)));                                                                               \
        return leave((session), CALL((session), name, __VA_ARGS__));                                                   \
    } while (0)

/* ---- devices -------------------------------------------------------------------------------------------------------------- */

static tn_status find_device(tn_session *session, int i, CUdevice *out)
{
    const char *why;
    int n = tn_gpu_count(&why);
    if (!n)
        return tn_error(session, TN_UNSUPPORTED, TN_NO_LOC, "there is no GPU: %s", why);
    if (i < 0 || i >= n)
        return tn_error(session, TN_UNSUPPORTED, TN_NO_LOC, "there is no GPU %d: CUDA's driver shows %d, counted from 0", i, n);
    return CALL(session, cuDeviceGet, out, i);
}

static tn_status describe(tn_session *session, CUdevice device, tn_gpu_info *out)
{
    *out = (tn_gpu_info){0};
    int l2 = 0, shared = 0;
    const struct { int attribute, *to; } wanted[] = {
        {DEVICE_MAJOR, &out->major}, {DEVICE_MINOR, &out->minor}, {DEVICE_PROCESSORS, &out->processors}, {DEVICE_L2, &l2}, {DEVICE_SHARED_OPTIN, &shared}};
    for (size_t k = 0; k < TN_COUNT(wanted); k++)
        TN_TRY(CALL(session, cuDeviceGetAttribute, wanted[k].to, wanted[k].attribute, device));
    size_t bytes = 0;
    TN_TRY(CALL(session, cuDeviceTotalMem_v2, &bytes, device));
    TN_TRY(CALL(session, cuDeviceGetName, out->name, (int)sizeof out->name, device));
    out->name[sizeof out->name - 1] = 0;
    out->bytes = (int64_t)bytes, out->l2_bytes = l2, out->shared_bytes = shared;
    return CALL(session, cuDriverGetVersion, &out->driver);
}

tn_status tn_gpu_describe(tn_session *session, int i, tn_gpu_info *out)
{
    CUdevice device;
    TN_TRY(find_device(session, i, &device));
    return describe(session, device, out);
}

tn_status tn_gpu_open(tn_session *session, int i, tn_gpu *out)
{
    *out = (tn_gpu){0};
    TN_TRY(find_device(session, i, &out->device));
    TN_TRY(describe(session, out->device, &out->info));
    return CALL(session, cuDevicePrimaryCtxRetain, &out->context, out->device);
}

tn_status tn_gpu_close(tn_session *session, tn_gpu *gpu)
{
    if (!gpu->context)
        return TN_OK;
    gpu->context = NULL;
    return CALL(session, cuDevicePrimaryCtxRelease_v2, gpu->device);
}

/* ---- code ------------------------------------------------------------------------------------------------------------------ */

tn_status tn_gpu_load(tn_session *session, const tn_gpu *gpu, const void *image, CUmodule *out)
{
    char log[4096] = "";
    int options[] = {JIT_ERROR_LOG, JIT_ERROR_LOG_SIZE};
    void *values[] = {log, (void *)(uintptr_t)(sizeof log - 1)}; /* the size itself stands in the pointer */
    *out = NULL;
    TN_TRY(enter(session, gpu));
    CUresult result = driver.cuModuleLoadDataEx(out, image, TN_COUNT(options), options, values);
    for (size_t n = strlen(log); n && (log[n - 1] == '\n' || log[n - 1] == ' '); n--)
        log[n - 1] = 0;
    return leave(session, result == CUDA_SUCCESS ? TN_OK : fail(session, result, "cuModuleLoadDataEx", log));
}

tn_status tn_gpu_unload(tn_session *session, const tn_gpu *gpu, CUmodule module)
{
    RETURN_CALL(session, gpu, cuModuleUnload, module);
}

static tn_status prepare(tn_session *session, const tn_gpu *gpu, CUmodule module, const char *name, unsigned dynamic, tn_gpu_kernel *out)
{
    CUresult result = driver.cuModuleGetFunction(&out->function, module, name);
    if (result != CUDA_SUCCESS)
        return fail(session, result, "cuModuleGetFunction", name);
    const struct { int attribute, *to; } wanted[] = {{FUNCTION_MOST_THREADS, &out->most_threads}, {FUNCTION_SHARED, &out->shared_bytes},
                                                     {FUNCTION_LOCAL, &out->local_bytes}, {FUNCTION_REGISTERS, &out->registers}};
    for (size_t i = 0; i < TN_COUNT(wanted); i++)
        TN_TRY(CALL(session, cuFuncGetAttribute, wanted[i].to, wanted[i].attribute, out->function));
    if (dynamic > gpu->info.shared_bytes - out->shared_bytes)
        return tn_error(session, TN_UNSUPPORTED, TN_NO_LOC, "kernel '%s' wants %lld bytes of shared memory a block, %s has %lld", name,
                        (long long)dynamic + out->shared_bytes, gpu->info.name, (long long)gpu->info.shared_bytes);
    out->dynamic = dynamic;
    /* The limit belongs to the function, which others may have prepared too: it only grows. */
    int limit = 0;
    TN_TRY(CALL(session, cuFuncGetAttribute, &limit, FUNCTION_MOST_DYNAMIC, out->function));
    return (int)dynamic > limit ? CALL(session, cuFuncSetAttribute, out->function, FUNCTION_MOST_DYNAMIC, (int)dynamic) : TN_OK;
}

tn_status tn_gpu_function(tn_session *session, const tn_gpu *gpu, CUmodule module, const char *name, unsigned dynamic, tn_gpu_kernel *out)
{
    *out = (tn_gpu_kernel){0};
    TN_TRY(enter(session, gpu));
    return leave(session, prepare(session, gpu, module, name, dynamic, out));
}

tn_status tn_gpu_launch(tn_session *session, const tn_gpu *gpu, const tn_gpu_kernel *kernel, const unsigned grid[3], const unsigned block[3], CUstream stream,
                        void **params)
{
    RETURN_CALL(session, gpu, cuLaunchKernel, kernel->function, grid[0], grid[1], grid[2], block[0], block[1], block[2], kernel->dynamic, stream, params, NULL);
}

/* ---- memory and streams ------------------------------------------------------------------------------------------------- */

tn_status tn_gpu_alloc(tn_session *session, const tn_gpu *gpu, int64_t bytes, CUdeviceptr *out)
{
    assert(bytes >= 0);
    *out = 0;
    RETURN_CALL(session, gpu, cuMemAlloc_v2, out, bytes ? (size_t)bytes : 1);
}

tn_status tn_gpu_free(tn_session *session, const tn_gpu *gpu, CUdeviceptr memory)
{
    if (!memory)
        return TN_OK;
    RETURN_CALL(session, gpu, cuMemFree_v2, memory);
}

tn_status tn_gpu_copy_in(tn_session *session, const tn_gpu *gpu, CUdeviceptr to, const void *from, int64_t bytes, CUstream stream)
{
    assert(bytes >= 0);
    RETURN_CALL(session, gpu, cuMemcpyHtoDAsync_v2, to, from, (size_t)bytes, stream);
}

tn_status tn_gpu_copy_out(tn_session *session, const tn_gpu *gpu, void *to, CUdeviceptr from, int64_t bytes, CUstream stream)
{
    assert(bytes >= 0);
    RETURN_CALL(session, gpu, cuMemcpyDtoHAsync_v2, to, from, (size_t)bytes, stream);
}

tn_status tn_gpu_stream_new(tn_session *session, const tn_gpu *gpu, CUstream *out)
{
    *out = NULL;
    RETURN_CALL(session, gpu, cuStreamCreate, out, STREAM_NON_BLOCKING);
}

tn_status tn_gpu_stream_free(tn_session *session, const tn_gpu *gpu, CUstream stream)
{
    RETURN_CALL(session, gpu, cuStreamDestroy_v2, stream);
}

tn_status tn_gpu_wait(tn_session *session, const tn_gpu *gpu, CUstream stream)
{
    RETURN_CALL(session, gpu, cuStreamSynchronize, stream);
}
