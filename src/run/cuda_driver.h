/* The driver's calls, for the files that are Tenon's side of it: cuda.c and cuda_pool.c. */
#ifndef TN_RUN_CUDA_DRIVER_H
#define TN_RUN_CUDA_DRIVER_H

#include "run/cuda.h"

typedef int CUresult;
/* Numbers of the driver's binary interface. */
enum { CUDA_SUCCESS = 0, CUDA_ERROR_OUT_OF_MEMORY = 2, CUDA_ERROR_NO_DEVICE = 100, CUDA_ERROR_NO_BINARY_FOR_GPU = 209, CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
       CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910 };
enum { STREAM_NON_BLOCKING = 1, EVENT_DISABLE_TIMING = 2, CAPTURE_THREAD_LOCAL = 1 };

typedef struct tn_cuda_update { /* what cuGraphExecUpdate_v2 says */
    int result;
    void *node, *from;
} tn_cuda_update;

/* How a kernel is launched, and what more is said about it: how many blocks a cluster has along each dimension; it may begin before the kernel before it ends, which it waits
 * for by itself. */
enum { LAUNCH_CLUSTER = 4, LAUNCH_EARLY = 6 };
typedef struct tn_cuda_attribute {
    int kind, reserved;
    _Alignas(8) int value[16];
} tn_cuda_attribute;
typedef struct tn_cuda_config {
    unsigned grid[3], block[3], shared;
    CUstream stream;
    const tn_cuda_attribute *attribute;
    unsigned nattributes;
} tn_cuda_config;

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
    X(cuModuleGetGlobal_v2, CUdeviceptr *at, size_t *bytes, CUmodule module, const char *name)                                                     \
    X(cuFuncSetAttribute, CUfunction function, int attribute, int value)                                                                           \
    X(cuFuncGetAttribute, int *value, int attribute, CUfunction function)                                                                          \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *blocks, CUfunction function, int threads, size_t dynamic)                                  \
    X(cuLaunchKernel, CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, \
      unsigned shared, CUstream stream, void **params, void **extra)                                                                               \
    X(cuMemAlloc_v2, CUdeviceptr *memory, size_t bytes)                                                                                            \
    X(cuMemFree_v2, CUdeviceptr memory)                                                                                                            \
    X(cuMemcpyHtoDAsync_v2, CUdeviceptr to, const void *from, size_t bytes, CUstream stream)                                                       \
    X(cuMemcpyDtoHAsync_v2, void *to, CUdeviceptr from, size_t bytes, CUstream stream)                                                             \
    X(cuMemcpyDtoDAsync_v2, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)                                                       \
    X(cuMemsetD8Async, CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)                                                         \
    X(cuStreamCreate, CUstream *stream, unsigned flags)                                                                                            \
    X(cuStreamDestroy_v2, CUstream stream)                                                                                                         \
    X(cuStreamSynchronize, CUstream stream)                                                                                                        \
    X(cuStreamWaitEvent, CUstream stream, CUevent event, unsigned flags)                                                                           \
    X(cuEventCreate, CUevent *event, unsigned flags)                                                                                               \
    X(cuEventDestroy_v2, CUevent event)                                                                                                            \
    X(cuEventRecord, CUevent event, CUstream stream)                                                                                               \
    X(cuEventSynchronize, CUevent event)                                                                                                           \
    X(cuEventElapsedTime, float *milliseconds, CUevent start, CUevent end)                                                                         \
    X(cuStreamBeginCapture_v2, CUstream stream, int mode)                                                                                          \
    X(cuStreamEndCapture, CUstream stream, CUgraph *graph)                                                                                         \
    X(cuStreamIsCapturing, CUstream stream, int *status)                                                                                           \
    X(cuGraphDestroy, CUgraph graph)                                                                                                               \
    X(cuGraphInstantiateWithFlags, CUgraphExec *out, CUgraph graph, unsigned long long flags)                                                      \
    X(cuGraphExecUpdate_v2, CUgraphExec exec, CUgraph graph, tn_cuda_update *info)                                                                 \
    X(cuGraphExecDestroy, CUgraphExec exec)                                                                                                        \
    X(cuGraphLaunch, CUgraphExec exec, CUstream stream)                                                                                            \
    X(cuPointerGetAttribute, void *value, int attribute, CUdeviceptr pointer)                                                                      \
    X(cuGetErrorName, CUresult result, const char **name)                                                                                          \
    X(cuGetErrorString, CUresult result, const char **text)

/* Younger drivers' alone: NULL where it is absent. */
#define CUDA_NEWER_CALLS(X)                                                                                                                        \
    X(cuLaunchKernelEx, const tn_cuda_config *config, CUfunction function, void **params, void **extra)                                             \
    X(cuTensorMapEncodeTiled, struct tn_tensor_map *map, int type, unsigned rank, void *address, const uint64_t *sizes, const uint64_t *strides,   \
      const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int outside)

/* What cuTensorMapEncodeTiled makes, and a kernel takes by value. */
typedef struct tn_tensor_map {
    _Alignas(64) unsigned char bytes[128];
} tn_tensor_map;

/* What the first call of the process finds; not written afterwards. */
typedef struct tn_cuda_driver {
#define X(name, ...) CUresult (*name)(__VA_ARGS__);
    CUDA_CALLS(X)
    CUDA_NEWER_CALLS(X)
#undef X
    int count;
    char why[512]; /* there is none */
} tn_cuda_driver;
extern tn_cuda_driver tn_cuda;
/* Name and text of a result that is no success. */
void tn_cuda_words(CUresult result, char *out, size_t size);

/* What went wrong while a GPU's context was the thread's. It is told when the context has been given back, because telling needs memory, and where there is
 * none leaves by a jump. */
typedef struct tn_cuda_visit {
    CUresult result;
    const char *call, *detail;
    bool inside;
} tn_cuda_visit;

/* Makes the GPU's context current. False: it can't. Ended by tn_cuda_leave or tn_cuda_leave_quietly, also then. */
bool tn_cuda_enter(tn_cuda_visit *v, const tn_gpu *gpu);
/* Blocks as tn_gpu_launch says, in clusters if the kernel has some, whose module only a driver with cuLaunchKernelEx loads. */
bool tn_cuda_launch(tn_cuda_visit *v, const tn_gpu_kernel *kernel, const unsigned grid[3], const unsigned block[3], CUstream stream, bool early, void **params);
/* Gives the thread the context back that it had; the first thing that went wrong becomes a diagnostic. */
tn_status tn_cuda_leave(tn_session *session, tn_cuda_visit *v);
void tn_cuda_leave_quietly(tn_cuda_visit *v);
static inline bool tn_cuda_note(tn_cuda_visit *v, CUresult result, const char *call)
{
    if (v->result == CUDA_SUCCESS)
        v->result = result, v->call = call;
    return result == CUDA_SUCCESS;
}
#define TN_CUDA(visit, name, ...) tn_cuda_note((visit), tn_cuda.name(__VA_ARGS__), #name)

#endif
