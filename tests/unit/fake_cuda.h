/* What a test sets and sees of the fake driver: its symbol fake_cuda. */
#ifndef TN_FAKE_CUDA_H
#define TN_FAKE_CUDA_H

#include <stdint.h>

/* What the fake makes of a tensor map. */
typedef struct fake_map {
    uint64_t address, stride[4]; /* bytes */
    uint32_t size[5], box[5];
    uint8_t type, rank, swizzle, promotion;
} fake_map;

/* A kernel that the fake runs: its parameters have 8 bytes, but for the maps behind them, which it does not get. */
typedef struct fake_kernel {
    const char *name;
    int nparams, nmaps;
    void (*run)(void *context, unsigned grid, unsigned threads, const uint64_t *params);
    void *context;
} fake_kernel;

enum { FAKE_KERNELS = 64, FAKE_MAPS = 16 };

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
    unsigned launch[7], cluster; /* its blocks, threads, shared memory; blocks of a cluster, 0: none */
    fake_kernel kernel[FAKE_KERNELS];
    int nkernels;
    int early;           /* launches that need not wait for the kernel before */
    int launches, copies, captures, instances, updates, replays, waits; /* how often */
    int encodes;         /* tensor maps that were made */
    fake_map map[FAKE_MAPS]; /* of the last launch */
    _Alignas(32) int64_t nowhere[4]; /* the variable tn_nowhere of every module */
    int told_inside;     /* errors whose words were asked for while a context was current */
    const void *image;   /* loaded last */
} fake_state;

#endif
