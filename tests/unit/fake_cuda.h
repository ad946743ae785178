/* What a test sets and sees of the fake driver: its symbol fake_cuda. */
#ifndef TN_FAKE_CUDA_H
#define TN_FAKE_CUDA_H

typedef struct fake_state {
    const char *failing; /* call; NULL: none */
    int result;          /* of the failing one */
    int devices;
    int retained, pushed, memory, modules, streams;
    int limit;           /* of dynamic shared memory */
    unsigned launch[7];
} fake_state;

#endif
