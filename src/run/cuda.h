/* CUDA's driver: GPUs, their memory, and code that runs on them. It is loaded at run time, so that Tenon needs neither CUDA nor a GPU to be built or to
 * start. What fails becomes a diagnostic with CUDA's name and text of the error: TN_NO_MEMORY, TN_UNSUPPORTED (no GPU, or not for this one), else TN_INVALID.
 * An error of a kernel in flight is told by a later call, most likely by tn_gpu_wait. */
#ifndef TN_RUN_CUDA_H
#define TN_RUN_CUDA_H

#include "run/run.h"

/* The driver's types, as its binary interface has them on 64-bit machines. */
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;

/* A GPU in use: its primary context is held, which other libraries of the process share. Any number of threads may use it. */
typedef struct tn_gpu {
    CUdevice device;
    CUcontext context;
    tn_gpu_info info;
} tn_gpu;

tn_status tn_gpu_open(tn_session *session, int i, tn_gpu *out);
/* Modules, memory and streams must be given back before. Allowed on a zeroed tn_gpu, and twice. */
tn_status tn_gpu_close(tn_session *session, tn_gpu *gpu);

/* image: PTX as NUL-terminated text, or a cubin. What the driver's compiler has to say about PTX that it refuses stands in the diagnostic. */
tn_status tn_gpu_load(tn_session *session, const tn_gpu *gpu, const void *image, CUmodule *out);
tn_status tn_gpu_unload(tn_session *session, const tn_gpu *gpu, CUmodule module);

typedef struct tn_gpu_kernel {
    CUfunction function; /* lasts as long as its module */
    int most_threads;    /* a block */
    int registers;       /* a thread */
    int local_bytes;     /* a thread: what did not fit into registers */
    int shared_bytes;    /* a block, without `dynamic` */
    unsigned dynamic;    /* bytes of shared memory that a launch asks for */
} tn_gpu_kernel;

/* The kernel of this name, prepared for launches with `dynamic` bytes of shared memory. TN_UNSUPPORTED: a block can't have as much. */
tn_status tn_gpu_function(tn_session *session, const tn_gpu *gpu, CUmodule module, const char *name, unsigned dynamic, tn_gpu_kernel *out);
/* params: a pointer to each parameter's value, read before the call returns. stream: NULL is the default stream. Does not wait for the kernel. */
tn_status tn_gpu_launch(tn_session *session, const tn_gpu *gpu, const tn_gpu_kernel *kernel, const unsigned grid[3], const unsigned block[3], CUstream stream,
                        void **params);

/* 0 bytes are allocated as 1, so that the address is never 0. Giving back 0 does nothing. */
tn_status tn_gpu_alloc(tn_session *session, const tn_gpu *gpu, int64_t bytes, CUdeviceptr *out);
tn_status tn_gpu_free(tn_session *session, const tn_gpu *gpu, CUdeviceptr memory);
/* In the stream's order. Host memory must stay as it is until the stream has been waited for. */
tn_status tn_gpu_copy_in(tn_session *session, const tn_gpu *gpu, CUdeviceptr to, const void *from, int64_t bytes, CUstream stream);
tn_status tn_gpu_copy_out(tn_session *session, const tn_gpu *gpu, void *to, CUdeviceptr from, int64_t bytes, CUstream stream);

/* A stream that does not wait for the default stream. */
tn_status tn_gpu_stream_new(tn_session *session, const tn_gpu *gpu, CUstream *out);
tn_status tn_gpu_stream_free(tn_session *session, const tn_gpu *gpu, CUstream stream);
/* Until all that was put into the stream is done. */
tn_status tn_gpu_wait(tn_session *session, const tn_gpu *gpu, CUstream stream);

#endif
