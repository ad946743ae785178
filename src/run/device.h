/* An executable and its contexts on a GPU: device.c loads and runs, replay.c captures and replays. */
#ifndef TN_RUN_DEVICE_H
#define TN_RUN_DEVICE_H

#include "run/arguments.h"
#include "run/internal.h"

/* A loaded executable; not changed by runs. */
struct tn_exec_gpu {
    tn_gpu_pool *pool;
    const tn_gpu *gpu;
    CUmodule *module; /* by image */
    size_t nmodules;
    tn_gpu_kernel *kernel; /* by kernel */
    tn_gpu_entry *entry;   /* the same */
    CUdeviceptr kept;      /* memory of constants that runs read and of what is computed at load */
    CUdeviceptr temporary; /* of constants that only the steps at load read; gone after them */
    CUdeviceptr *fixed;    /* by buffer: its place in either; 0: none */
};

enum { REPLAYS = 4 }; /* that a section keeps */

/* What a section did with these sizes and addresses: seen once, or recorded. */
typedef struct replay {
    uint64_t *key;
    CUgraphExec graph; /* of the key if `ready`, else of an earlier one, to be changed */
    bool ready;
    int64_t used;
} replay;

/* Kernels and copies that follow each other in a block. */
typedef struct section {
    int n;      /* steps */
    size_t words; /* of a key */
    uint64_t *key;
    replay replay[REPLAYS];
} section;

/* A context's part. */
struct tn_gpu_run {
    const struct tn_exec_gpu *exec;
    CUstream stream;    /* that a run goes to: `own`, or the caller's */
    CUstream own, recorder;
    bool host_tensors;  /* the run in progress has some */
    bool recording;
    bool in_section, behind_kernel; /* steps follow each other in the stream; the last one was a kernel */
    bool timed;
    double seconds;     /* of the last run, if timed */
    CUevent start, end; /* timed */
    void **host;        /* by buffer: dense copies of host tensors that are not */
    int64_t *host_size;
    uint64_t *values;   /* of a kernel's parameters */
    void **params;
    tn_gpu_encoded **encoded; /* by step */
    section *section;   /* by its first step; n 0: none starts there */
    int64_t clock;
};

static inline CUdeviceptr tn_gpu_address(const void *pointer) { return (CUdeviceptr)(uintptr_t)pointer; }

/* device.c */
tn_status tn_device_load(tn_session *session, tn_exec *exec);
void tn_device_loaded(tn_exec *exec); /* the steps at load are done */
tn_status tn_device_run_new(struct tn_context *s);
void tn_device_run_free(struct tn_context *s); /* after memory was given back */
void tn_device_wait_quietly(const struct tn_context *s);
tn_status tn_device_step(struct tn_context *s, int step); /* a kernel or a copy, into the stream or the recording */
tn_status tn_device_read(struct tn_context *s, const void *from, void *to, int64_t bytes); /* waits */
tn_status tn_device_time(struct tn_context *s, tn_status (*run)(struct tn_context *s, int which), int which, double *seconds);
/* replay.c */
void tn_replay_prepare(struct tn_context *s);
tn_status tn_replay_section(struct tn_context *s, const int *steps, const section *at);
void tn_replay_free(struct tn_context *s);

#endif
