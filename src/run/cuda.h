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
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

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
/* The cubin if there is one (may be NULL) and the driver takes it, which one of a newer ptxas or for another GPU need not be the case; else the PTX. */
tn_status tn_gpu_load_either(tn_session *session, const tn_gpu *gpu, const void *cubin, const char *ptx, CUmodule *out);
tn_status tn_gpu_unload(tn_session *session, const tn_gpu *gpu, CUmodule module);

typedef struct tn_gpu_kernel {
    CUfunction function; /* lasts as long as its module */
    int most_threads;    /* a block */
    int registers;       /* a thread */
    int local_bytes;     /* a thread: what did not fit into registers */
    int shared_bytes;    /* a block, without `dynamic` */
    unsigned dynamic;    /* bytes of shared memory that a launch asks for */
    bool waits;          /* it begins with a wait for the kernel before it */
    unsigned cluster;    /* blocks of a cluster, which divides the grid's; 0: none. Set by whoever loads the kernel, which is not made without */
} tn_gpu_kernel;

/* The kernel of this name, prepared for launches with `dynamic` bytes of shared memory. TN_UNSUPPORTED: a block can't have as much. */
tn_status tn_gpu_function(tn_session *session, const tn_gpu *gpu, CUmodule module, const char *name, unsigned dynamic, tn_gpu_kernel *out);
/* Address and size of a variable of the module. */
tn_status tn_gpu_global(tn_session *session, const tn_gpu *gpu, CUmodule module, const char *name, CUdeviceptr *at, int64_t *bytes);
/* How many blocks of that many threads a multiprocessor runs at a time. */
tn_status tn_gpu_occupancy(tn_session *session, const tn_gpu *gpu, const tn_gpu_kernel *kernel, int threads, int *blocks);
/* params: a pointer to each parameter's value, read before the call returns. stream: NULL is the default stream. Does not wait for the kernel. early: what is before it
 * in the stream is a kernel too, whose end it need not wait for, if the driver can and it does so by itself. */
tn_status tn_gpu_launch(tn_session *session, const tn_gpu *gpu, const tn_gpu_kernel *kernel, const unsigned grid[3], const unsigned block[3], CUstream stream, bool early,
                        void **params);

/* 0 bytes are allocated as 1, so that the address is never 0. Giving back 0 does nothing. */
tn_status tn_gpu_alloc(tn_session *session, const tn_gpu *gpu, int64_t bytes, CUdeviceptr *out);
tn_status tn_gpu_free(tn_session *session, const tn_gpu *gpu, CUdeviceptr memory);
/* In the stream's order. Host memory must stay as it is until the stream has been waited for. */
tn_status tn_gpu_copy_in(tn_session *session, const tn_gpu *gpu, CUdeviceptr to, const void *from, int64_t bytes, CUstream stream);
tn_status tn_gpu_copy_out(tn_session *session, const tn_gpu *gpu, void *to, CUdeviceptr from, int64_t bytes, CUstream stream);
tn_status tn_gpu_copy(tn_session *session, const tn_gpu *gpu, CUdeviceptr to, CUdeviceptr from, int64_t bytes, CUstream stream);
tn_status tn_gpu_fill(tn_session *session, const tn_gpu *gpu, CUdeviceptr to, unsigned char value, int64_t bytes, CUstream stream);

/* A stream that does not wait for the default stream. */
tn_status tn_gpu_stream_new(tn_session *session, const tn_gpu *gpu, CUstream *out);
tn_status tn_gpu_stream_free(tn_session *session, const tn_gpu *gpu, CUstream stream);
/* Until all that was put into the stream is done. */
tn_status tn_gpu_wait(tn_session *session, const tn_gpu *gpu, CUstream stream);

/* ---- events ---- */

tn_status tn_gpu_event_new(tn_session *session, const tn_gpu *gpu, bool timed, CUevent *out);
tn_status tn_gpu_event_free(tn_session *session, const tn_gpu *gpu, CUevent event);
tn_status tn_gpu_event_record(tn_session *session, const tn_gpu *gpu, CUevent event, CUstream stream);
tn_status tn_gpu_event_wait(tn_session *session, const tn_gpu *gpu, CUevent event);
/* What is put into `stream` from now on waits for the event; the caller does not. */
tn_status tn_gpu_stream_wait(tn_session *session, const tn_gpu *gpu, CUstream stream, CUevent event);
/* Between two timed events that have happened. */
tn_status tn_gpu_event_seconds(tn_session *session, const tn_gpu *gpu, CUevent start, CUevent end, double *out);

/* ---- graphs ---- */

/* From here to the end of the capture, launches and copies of this thread into `stream` are recorded and do not run. */
tn_status tn_gpu_capture(tn_session *session, const tn_gpu *gpu, CUstream stream);
/* What was recorded, ready to be launched. *exec: NULL, or what an earlier capture gave: it is changed if its nodes are of the same kinds, else replaced; NULL
 * after a failure. */
tn_status tn_gpu_capture_end(tn_session *session, const tn_gpu *gpu, CUstream stream, CUgraphExec *exec);
/* Somebody captures what is put into the stream. False where the driver can't say. */
bool tn_gpu_is_captured(const tn_gpu *gpu, CUstream stream);
void tn_gpu_capture_drop(const tn_gpu *gpu, CUstream stream); /* after a failure in between */
tn_status tn_gpu_graph_launch(tn_session *session, const tn_gpu *gpu, CUgraphExec exec, CUstream stream);
tn_status tn_gpu_graph_free(tn_session *session, const tn_gpu *gpu, CUgraphExec exec); /* NULL is allowed */

/* ---- memory that is kept (cuda_pool.c) ----
 * Blocks of a GPU, in classes of size an eighth of a power of two apart. A block that is given back serves the next that asks for its class: on the same stream
 * at once, since what the stream does is in order; on another stream, which then waits for an event. If the driver has no memory left, all unused blocks go back
 * to it, and it is asked again. Any number of threads may use a pool. */
typedef struct tn_gpu_pool tn_gpu_pool;

/* Opens GPU `device`. Held once. */
tn_status tn_gpu_pool_new(tn_session *session, int device, tn_gpu_pool **out);
const tn_gpu *tn_gpu_pool_gpu(const tn_gpu_pool *pool);
void tn_gpu_pool_hold(tn_gpu_pool *pool);
/* The last drop gives all back, blocks in use too. NULL is allowed. */
void tn_gpu_pool_drop(tn_gpu_pool *pool);
/* At least `bytes`, aligned to 256, for use on `stream`. TN_NO_MEMORY. */
tn_status tn_gpu_pool_take(tn_session *session, tn_gpu_pool *pool, int64_t bytes, CUstream stream, CUdeviceptr *out);
/* `stream`: where the block was used last. 0 is allowed. */
void tn_gpu_pool_give(tn_gpu_pool *pool, CUdeviceptr memory, CUstream stream);
void tn_gpu_pool_give_idle(tn_gpu_pool *pool, CUdeviceptr memory); /* no work on it is under way */
/* Before a stream ends: what was given back on it may be used anywhere. The stream has been waited for. */
void tn_gpu_pool_forget(tn_gpu_pool *pool, CUstream stream);
/* Gives unused blocks back to the driver. */
void tn_gpu_pool_trim(tn_gpu_pool *pool);
typedef struct tn_gpu_pool_info {
    int64_t used, unused; /* bytes */
    int64_t allocations;  /* that the driver made so far */
} tn_gpu_pool_info;
tn_gpu_pool_info tn_gpu_pool_state(tn_gpu_pool *pool);

#endif
