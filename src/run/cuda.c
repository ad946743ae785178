/* CUDA's driver, loaded at run time. Every call that needs a context makes the GPU's current for its own duration, so that the caller's thread may use
 * other contexts, or another library's, in between. */
#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "run/cuda_driver.h"

#define LIBRARY "libcuda.so.1"

enum { DEVICE_PROCESSORS = 16, DEVICE_L2 = 38, DEVICE_MAJOR = 75, DEVICE_MINOR = 76, DEVICE_SHARED_OPTIN = 97 };
enum { FUNCTION_MOST_THREADS = 0, FUNCTION_SHARED = 1, FUNCTION_LOCAL = 3, FUNCTION_REGISTERS = 4, FUNCTION_MOST_DYNAMIC = 8 };
enum { JIT_ERROR_LOG = 5, JIT_ERROR_LOG_SIZE = 6 };

tn_cuda_driver tn_cuda;

void tn_cuda_words(CUresult result, char *out, size_t size)
{
    const char *name = NULL, *text = NULL;
    tn_cuda.cuGetErrorName(result, &name);
    tn_cuda.cuGetErrorString(result, &text);
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
            snprintf(tn_cuda.why, sizeof tn_cuda.why, "%s is not installed", LIBRARY);
        else
            snprintf(tn_cuda.why, sizeof tn_cuda.why, "%s can't be loaded: %s", LIBRARY, error);
        return;
    }
    const struct { const char *name; void *at; bool newer; } calls[] = {
#define X(name, ...) {#name, &tn_cuda.name, false},
        CUDA_CALLS(X)
#undef X
#define X(name, ...) {#name, &tn_cuda.name, true},
        CUDA_NEWER_CALLS(X)
#undef X
    };
    for (size_t i = 0; i < TN_COUNT(calls); i++) {
        void *symbol = dlsym(library, calls[i].name);
        if (!symbol && !calls[i].newer) {
            snprintf(tn_cuda.why, sizeof tn_cuda.why, "%s lacks %s: the driver is too old", LIBRARY, calls[i].name);
            dlclose(library);
            return;
        }
        memcpy(calls[i].at, &symbol, sizeof symbol);
    }
    int count = 0;
    const char *call = "cuInit";
    CUresult result = tn_cuda.cuInit(0);
    if (result == CUDA_SUCCESS)
        call = "cuDeviceGetCount", result = tn_cuda.cuDeviceGetCount(&count);
    if (result == CUDA_ERROR_NO_DEVICE || (result == CUDA_SUCCESS && count <= 0)) {
        snprintf(tn_cuda.why, sizeof tn_cuda.why, "%s finds no device", LIBRARY);
    } else if (result != CUDA_SUCCESS) {
        tn_cuda_words(result, words, sizeof words);
        snprintf(tn_cuda.why, sizeof tn_cuda.why, "%s of %s failed: %s", call, LIBRARY, words);
    } else {
        tn_cuda.count = count;
    }
}

int tn_gpu_count(const char **why)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_driver);
    if (why)
        *why = tn_cuda.count ? NULL : tn_cuda.why;
    return tn_cuda.count;
}

/* ---- errors and the current context ------------------------------------------------------------------------------------- */

static tn_status fail(tn_session *session, CUresult result, const char *call, const char *detail)
{
    char words[256];
    tn_cuda_words(result, words, sizeof words);
    tn_status status = result == CUDA_ERROR_OUT_OF_MEMORY ? TN_NO_MEMORY
                       : result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION ? TN_UNSUPPORTED : TN_INVALID;
    return tn_error(session, status, TN_NO_LOC, "%s failed: %s%s%s", call, words, detail && *detail ? ": " : "", detail ? detail : "");
}

static tn_status check(tn_session *session, CUresult result, const char *call)
{
    return result == CUDA_SUCCESS ? TN_OK : fail(session, result, call, "");
}

/* Of those that need no context. */
#define CALL(session, name, ...) check((session), tn_cuda.name(__VA_ARGS__), #name)

bool tn_cuda_enter(tn_cuda_visit *v, const tn_gpu *gpu)
{
    assert(gpu->context);
    *v = (tn_cuda_visit){CUDA_SUCCESS, NULL, NULL, false};
    v->inside = TN_CUDA(v, cuCtxPushCurrent_v2, gpu->context);
    return v->inside;
}

void tn_cuda_leave_quietly(tn_cuda_visit *v)
{
    CUcontext ours;
    if (v->inside)
        TN_CUDA(v, cuCtxPopCurrent_v2, &ours);
    v->inside = false;
}

tn_status tn_cuda_leave(tn_session *session, tn_cuda_visit *v)
{
    tn_cuda_leave_quietly(v);
    return v->result == CUDA_SUCCESS ? TN_OK : fail(session, v->result, v->call, v->detail);
}

/* One call within the GPU's context, as the last thing of a function. */
#define RETURN_CALL(session, gpu, name, ...)                                                                           \
    do {                                                                                                               \
        tn_cuda_visit visit_;                                                                                          \
        if (tn_cuda_enter(&visit_, (gpu)))                                                                             \
            TN_CUDA(&visit_, name, __VA_ARGS__);                                                                       \
        return tn_cuda_leave((session), &visit_);                                                                      \
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
    tn_cuda_visit v;
    *out = NULL;
    if (tn_cuda_enter(&v, gpu) && !TN_CUDA(&v, cuModuleLoadDataEx, out, image, TN_COUNT(options), options, values))
        v.detail = log;
    for (size_t n = strlen(log); n && (log[n - 1] == '\n' || log[n - 1] == ' '); n--)
        log[n - 1] = 0;
    return tn_cuda_leave(session, &v);
}

tn_status tn_gpu_load_either(tn_session *session, const tn_gpu *gpu, const void *cubin, const char *ptx, CUmodule *out)
{
    if (cubin) {
        tn_session quiet = {.arena.on_oom = session->arena.on_oom};
        quiet.strings.arena = quiet.options.arena = &quiet.arena;
        tn_status status = tn_gpu_load(&quiet, gpu, cubin, out);
        tn_arena_free(&quiet.arena);
        if (status == TN_OK)
            return TN_OK;
    }
    return tn_gpu_load(session, gpu, ptx, out);
}

tn_status tn_gpu_unload(tn_session *session, const tn_gpu *gpu, CUmodule module)
{
    RETURN_CALL(session, gpu, cuModuleUnload, module);
}

/* The limit of dynamic shared memory belongs to the function, which others may have prepared too: it only grows. */
static bool prepare(tn_cuda_visit *v, const tn_gpu *gpu, CUmodule module, const char *name, unsigned dynamic, tn_gpu_kernel *out)
{
    int limit = 0;
    const struct { int attribute, *to; } wanted[] = {{FUNCTION_MOST_THREADS, &out->most_threads}, {FUNCTION_SHARED, &out->shared_bytes},
                                                     {FUNCTION_LOCAL, &out->local_bytes}, {FUNCTION_REGISTERS, &out->registers}, {FUNCTION_MOST_DYNAMIC, &limit}};
    if (!TN_CUDA(v, cuModuleGetFunction, &out->function, module, name)) {
        v->detail = name;
        return true;
    }
    for (size_t i = 0; i < TN_COUNT(wanted); i++)
        if (!TN_CUDA(v, cuFuncGetAttribute, wanted[i].to, wanted[i].attribute, out->function))
            return true;
    out->dynamic = dynamic;
    if (dynamic > gpu->info.shared_bytes - out->shared_bytes)
        return false;
    if ((int)dynamic > limit)
        TN_CUDA(v, cuFuncSetAttribute, out->function, FUNCTION_MOST_DYNAMIC, (int)dynamic);
    return true;
}

tn_status tn_gpu_function(tn_session *session, const tn_gpu *gpu, CUmodule module, const char *name, unsigned dynamic, tn_gpu_kernel *out)
{
    tn_cuda_visit v;
    *out = (tn_gpu_kernel){0};
    bool fits = !tn_cuda_enter(&v, gpu) || prepare(&v, gpu, module, name, dynamic, out);
    TN_TRY(tn_cuda_leave(session, &v));
    return fits ? TN_OK : tn_error(session, TN_UNSUPPORTED, TN_NO_LOC, "kernel '%s' wants %lld bytes of shared memory a block, %s has %lld", name,
                                   (long long)dynamic + out->shared_bytes, gpu->info.name, (long long)gpu->info.shared_bytes);
}

tn_status tn_gpu_global(tn_session *session, const tn_gpu *gpu, CUmodule module, const char *name, CUdeviceptr *at, int64_t *bytes)
{
    tn_cuda_visit v;
    size_t size = 0;
    *at = 0;
    if (tn_cuda_enter(&v, gpu) && !TN_CUDA(&v, cuModuleGetGlobal_v2, at, &size, module, name))
        v.detail = name;
    *bytes = (int64_t)size;
    return tn_cuda_leave(session, &v);
}

tn_status tn_gpu_occupancy(tn_session *session, const tn_gpu *gpu, const tn_gpu_kernel *kernel, int threads, int *blocks)
{
    *blocks = 0;
    RETURN_CALL(session, gpu, cuOccupancyMaxActiveBlocksPerMultiprocessor, blocks, kernel->function, threads, kernel->dynamic);
}

bool tn_cuda_launch(tn_cuda_visit *v, const tn_gpu_kernel *kernel, const unsigned grid[3], const unsigned block[3], CUstream stream, bool early, void **params)
{
    tn_cuda_attribute attribute[2];
    unsigned n = 0;
    if (kernel->cluster)
        attribute[n++] = (tn_cuda_attribute){.kind = LAUNCH_CLUSTER, .value = {(int)kernel->cluster, 1, 1}};
    if (early && kernel->waits && tn_cuda.cuLaunchKernelEx)
        attribute[n++] = (tn_cuda_attribute){.kind = LAUNCH_EARLY, .value = {1}};
    const tn_cuda_config config = {{grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, kernel->dynamic, stream, attribute, n};
    return n ? TN_CUDA(v, cuLaunchKernelEx, &config, kernel->function, params, NULL)
             : TN_CUDA(v, cuLaunchKernel, kernel->function, grid[0], grid[1], grid[2], block[0], block[1], block[2], kernel->dynamic, stream, params, NULL);
}

tn_status tn_gpu_launch(tn_session *session, const tn_gpu *gpu, const tn_gpu_kernel *kernel, const unsigned grid[3], const unsigned block[3], CUstream stream, bool early,
                        void **params)
{
    tn_cuda_visit v;
    if (tn_cuda_enter(&v, gpu))
        tn_cuda_launch(&v, kernel, grid, block, stream, early, params);
    return tn_cuda_leave(session, &v);
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
    if (bytes == 0)
        return TN_OK;
    RETURN_CALL(session, gpu, cuMemcpyHtoDAsync_v2, to, from, (size_t)bytes, stream);
}

tn_status tn_gpu_copy_out(tn_session *session, const tn_gpu *gpu, void *to, CUdeviceptr from, int64_t bytes, CUstream stream)
{
    assert(bytes >= 0);
    if (bytes == 0)
        return TN_OK;
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

tn_status tn_gpu_copy(tn_session *session, const tn_gpu *gpu, CUdeviceptr to, CUdeviceptr from, int64_t bytes, CUstream stream)
{
    assert(bytes >= 0);
    if (bytes == 0)
        return TN_OK;
    RETURN_CALL(session, gpu, cuMemcpyDtoDAsync_v2, to, from, (size_t)bytes, stream);
}

tn_status tn_gpu_fill(tn_session *session, const tn_gpu *gpu, CUdeviceptr to, unsigned char value, int64_t bytes, CUstream stream)
{
    assert(bytes >= 0);
    if (bytes == 0)
        return TN_OK;
    RETURN_CALL(session, gpu, cuMemsetD8Async, to, value, (size_t)bytes, stream);
}

/* ---- events --------------------------------------------------------------------------------------------------------------- */

tn_status tn_gpu_event_new(tn_session *session, const tn_gpu *gpu, bool timed, CUevent *out)
{
    *out = NULL;
    RETURN_CALL(session, gpu, cuEventCreate, out, timed ? 0 : EVENT_DISABLE_TIMING);
}

tn_status tn_gpu_event_free(tn_session *session, const tn_gpu *gpu, CUevent event)
{
    RETURN_CALL(session, gpu, cuEventDestroy_v2, event);
}

tn_status tn_gpu_event_record(tn_session *session, const tn_gpu *gpu, CUevent event, CUstream stream)
{
    RETURN_CALL(session, gpu, cuEventRecord, event, stream);
}

tn_status tn_gpu_event_wait(tn_session *session, const tn_gpu *gpu, CUevent event)
{
    RETURN_CALL(session, gpu, cuEventSynchronize, event);
}

tn_status tn_gpu_stream_wait(tn_session *session, const tn_gpu *gpu, CUstream stream, CUevent event)
{
    RETURN_CALL(session, gpu, cuStreamWaitEvent, stream, event, 0);
}

tn_status tn_gpu_event_seconds(tn_session *session, const tn_gpu *gpu, CUevent start, CUevent end, double *out)
{
    tn_cuda_visit v;
    float milliseconds = 0;
    if (tn_cuda_enter(&v, gpu))
        TN_CUDA(&v, cuEventElapsedTime, &milliseconds, start, end);
    *out = (double)milliseconds * 1e-3;
    return tn_cuda_leave(session, &v);
}

/* ---- graphs --------------------------------------------------------------------------------------------------------------- */

tn_status tn_gpu_capture(tn_session *session, const tn_gpu *gpu, CUstream stream)
{
    RETURN_CALL(session, gpu, cuStreamBeginCapture_v2, stream, CAPTURE_THREAD_LOCAL);
}

bool tn_gpu_is_captured(const tn_gpu *gpu, CUstream stream)
{
    tn_cuda_visit v;
    int status = 0;
    if (tn_cuda_enter(&v, gpu))
        TN_CUDA(&v, cuStreamIsCapturing, stream, &status);
    tn_cuda_leave_quietly(&v);
    return v.result == CUDA_SUCCESS && status != 0;
}

void tn_gpu_capture_drop(const tn_gpu *gpu, CUstream stream)
{
    tn_cuda_visit v;
    CUgraph graph = NULL;
    if (tn_cuda_enter(&v, gpu)) {
        tn_cuda.cuStreamEndCapture(stream, &graph);
        if (graph)
            tn_cuda.cuGraphDestroy(graph);
    }
    tn_cuda_leave_quietly(&v);
}

/* An update that the driver refuses (other kinds of nodes) is no error: a new one is made. */
static void make_exec(tn_cuda_visit *v, CUgraph graph, CUgraphExec *exec)
{
    tn_cuda_update update = {0, NULL, NULL};
    if (*exec && tn_cuda.cuGraphExecUpdate_v2(*exec, graph, &update) == CUDA_SUCCESS)
        return;
    if (*exec)
        TN_CUDA(v, cuGraphExecDestroy, *exec);
    *exec = NULL;
    TN_CUDA(v, cuGraphInstantiateWithFlags, exec, graph, 0);
}

tn_status tn_gpu_capture_end(tn_session *session, const tn_gpu *gpu, CUstream stream, CUgraphExec *exec)
{
    tn_cuda_visit v;
    CUgraph graph = NULL;
    if (tn_cuda_enter(&v, gpu) && TN_CUDA(&v, cuStreamEndCapture, stream, &graph))
        make_exec(&v, graph, exec);
    if (v.inside && graph)
        TN_CUDA(&v, cuGraphDestroy, graph);
    return tn_cuda_leave(session, &v);
}

tn_status tn_gpu_graph_launch(tn_session *session, const tn_gpu *gpu, CUgraphExec exec, CUstream stream)
{
    RETURN_CALL(session, gpu, cuGraphLaunch, exec, stream);
}

tn_status tn_gpu_graph_free(tn_session *session, const tn_gpu *gpu, CUgraphExec exec)
{
    if (!exec)
        return TN_OK;
    RETURN_CALL(session, gpu, cuGraphExecDestroy, exec);
}
