/* What a test sets and sees of the fake driver: its symbol fake_cuda. */
#ifndef TN_FAKE_CUDA_H
#define TN_FAKE_CUDA_H

#include <stdint.h>

/* A kernel that the fake runs: all of its parameters have 8 bytes. */
typedef struct fake_kernel {
    const char *name;
    int nparams;
    void (*run)(void *context, unsigned grid, unsigned threads, const uint64_t *params);
    void *context;
} fake_kernel;

enum { FAKE_KERNELS = 64 };

typedef struct fake_state {
    const char *failing; /* call; NULL: none */
    int result;          /* of the failing one */
    int after;           /* calls of it that work before */
    int devices;
    int retained, pushed, memory, modules, streams, events, graphs, execs;
    int64_t bytes, most_bytes; /* of memory now; that there are, 0: no limit */
    int limit;           /* of dynamic shared memory */
    int most_threads;    /* of a block; 0: 100 */
    unsigned long long foreign; /* an address that the GPU can't use; 0: it can use all */
    int64_t trapped;     /* the variable tn_trapped of every module */
    void *stream;        /* of the last launch */
    unsigned launch[7];
    fake_kernel kernel[FAKE_KERNELS];
    int nkernels;
    int launches, copies, captures, instances, updates, replays, waits; /* how often */
    int told_inside;     /* errors whose words were asked for while a context was current */
    const void *image;   /* loaded last */
} fake_state;

#endif
