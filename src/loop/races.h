/* Who has touched what memory since the threads of a CTA met at a barrier: what the interpreter needs to find a barrier that is missing. */
#ifndef TN_LOOP_RACES_H
#define TN_LOOP_RACES_H

#include "loop/loop.h"

typedef enum tn_touch { TN_TOUCH_READ, TN_TOUCH_WRITE, TN_TOUCH_ATOMIC } tn_touch;

/* The last two different threads that touched a byte or element in one way, in an epoch: two are enough to find one that is not me. */
typedef struct tn_toucher {
    uint32_t epoch;
    int16_t thread, other; /* other -1: none */
} tn_toucher;

typedef struct tn_touched {
    tn_toucher by[3]; /* tn_touch */
    uint8_t ctas[3];  /* of a cluster, that touched it in `program`: bits */
    uint32_t program;
    uint32_t written; /* the CTA that wrote it, counted from 1 */
} tn_touched;

typedef struct tn_races {
    tn_arena *arena;
    uint32_t epoch, cta; /* from 1 on */
    size_t bytes;        /* of shared memory */
    int cluster_threads; /* of each CTA of a cluster, whom no barrier orders; 0: there is one CTA */
    tn_touched *shared;  /* one a byte */
    tn_map global;       /* tn_touched by address */
} tn_races;

void tn_races_begin(tn_races *races, tn_arena *arena, size_t shared_bytes, int cluster_threads);
void tn_races_barrier(tn_races *races);
void tn_races_new_cta(tn_races *races); /* shared memory is unwritten again */
void tn_races_forget(tn_races *races, size_t byte, size_t n); /* these bytes of it are */
bool tn_races_written(const tn_races *races, size_t byte, size_t n);
/* Notes that the thread touches n bytes of shared memory, or the element at an address. Gives another thread that this races with, or -1. */
int tn_races_shared(tn_races *races, size_t byte, size_t n, int thread, tn_touch how);
int tn_races_global(tn_races *races, uintptr_t address, int thread, tn_touch how);

#endif
