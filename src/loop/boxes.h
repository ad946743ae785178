/* mbarriers, what CTAs of a cluster send each other, and the boxes of maps that the machine copies by itself: what the rows of machine.def for them do. */
#ifndef TN_LOOP_BOXES_H
#define TN_LOOP_BOXES_H

#include "loop/machine.h"

/* A map with the numbers that the kernel is called with. */
typedef struct tn_lview {
    const tn_lmap *map;
    int64_t offset, size[TN_MAP_RANK], stride[TN_MAP_RANK]; /* elements */
} tn_lview;

typedef struct tn_lmbarrier {
    int64_t at;             /* its first byte in shared memory */
    int64_t count, missing; /* who arrives in a phase; of those, who has not */
    int64_t bytes;          /* expected in this phase and not there yet */
    int64_t phase;
} tn_lmbarrier;

/* A copy under way. A load's data is what comes, a send's what was sent; a store's is what its source held when it was asked for. */
typedef struct tn_lbox {
    enum { TN_BOX_NONE, TN_BOX_LOAD, TN_BOX_SEND, TN_BOX_STORE } kind;
    const tn_lview *view;            /* NULL: a send's */
    int64_t bytes;
    int64_t at, origin[TN_MAP_RANK]; /* byte of shared memory; index of the first element */
    size_t barrier;                  /* of a load or send: number of it */
    int thread;
    int64_t group; /* of a store, counted by thread */
    uint8_t *data;
    size_t capacity;
} tn_lbox;

/* Whom a role that can't go on waits for. */
typedef struct tn_lwaiting {
    bool waits;
    int thread;
    size_t barrier;
    int64_t parity;
} tn_lwaiting;

struct tn_lboxes {
    tn_arena *arena;
    const tn_lfunc *func;
    uint8_t *shared;
    tn_lview *view; /* by number of the map */
    TN_VEC(tn_lmbarrier) barrier;
    TN_VEC(tn_lbox) box; /* those of no kind are free */
    int64_t *group;      /* by thread: the one that is open */
    int threads, arrived; /* of all CTAs of a cluster; of those, who has come to cluster_arrive */
    uint8_t *meeting;    /* by thread: MEETING_… */
    tn_lwaiting waiting[TN_MOST_INSTANCES + 1]; /* by role */
};

/* Evaluates the maps: indices are the kernel's. Gives what is wrong with them, or NULL. */
const char *tn_lboxes_begin(tn_lboxes *boxes, tn_arena *arena, const tn_lfunc *func, uint8_t *shared, const int64_t *indices);
void tn_lboxes_begin_cta(tn_lboxes *boxes);
/* At the end of a CTA, whose mbarriers go: what is still under way, which nobody may leave behind, or NULL. */
const char *tn_lboxes_end(tn_lboxes *boxes);

bool tn_l_mbarrier_init(const tn_lrun *run);
bool tn_l_mbarrier_arrive(const tn_lrun *run);
bool tn_l_mbarrier_expect(const tn_lrun *run);
bool tn_l_mbarrier_wait(const tn_lrun *run);
bool tn_l_cluster_arrive(const tn_lrun *run);
bool tn_l_cluster_wait(const tn_lrun *run);
bool tn_l_send(const tn_lrun *run);
bool tn_l_box_load(const tn_lrun *run);
bool tn_l_box_store(const tn_lrun *run);
bool tn_l_box_store_commit(const tn_lrun *run);
bool tn_l_box_store_wait(const tn_lrun *run);

#endif
