/* What the rows of machine.def do, for the interpreter. */
#ifndef TN_LOOP_MACHINE_H
#define TN_LOOP_MACHINE_H

#include "loop/loop.h"
#include "loop/races.h"

/* A copy that a thread has asked for. */
typedef struct tn_lcopy {
    uint8_t *to;
    uint8_t data[16];
    int bytes;
    int64_t group;
} tn_lcopy;
typedef struct tn_lcopies {
    TN_VEC(tn_lcopy) copy;
    int64_t group; /* number of the one that is open */
} tn_lcopies;

typedef struct tn_lboxes tn_lboxes; /* boxes.h */

/* What came of letting the other threads go on: some may have; none can; one of them has failed. */
typedef enum tn_lturn { TN_TURN_BACK, TN_TURN_NOBODY, TN_TURN_FAILED } tn_lturn;

/* One run of an instruction by the threads from `first` on. */
typedef struct tn_lrun {
    const tn_lop *op;
    const tn_linstruction *instruction;
    int first;
    tn_arena *arena;
    tn_lcopies *copies; /* by thread */
    tn_lboxes *boxes;
    int role; /* number of the role that runs it: instances of the first block, then the second block; 0 outside of them */
    void *context;
    /* `bytes` of a part as the thread sees it, `skip` bytes behind its offset, checked and noted as touched; NULL after a diagnostic. */
    uint8_t *(*part)(void *context, int thread, int operand, int64_t skip, int64_t bytes, tn_touch how);
    /* The same part in the shared memory of CTA `cta` of the cluster, neither noted as touched nor moved. */
    uint8_t *(*remote)(void *context, int thread, int operand, int64_t cta, int64_t bytes);
    int64_t (*number)(void *context, int thread, int operand);
    bool (*settle)(void *context, int thread, const uint8_t *to, int64_t bytes); /* the thread writes there now; false after a diagnostic */
    /* n elements of a kernel's buffer, checked and noted as touched; NULL after a diagnostic. */
    uint8_t *(*global)(void *context, int thread, tn_lvalue *buffer, int64_t element, int64_t n, tn_touch how);
    void (*forget)(void *context, int64_t at, int64_t bytes); /* nothing is in these bytes of shared memory */
    void (*met)(void *context);                               /* a thread goes on because of what others did, as behind a barrier */
    tn_lturn (*yield)(void *context);
    bool (*stop)(void *context, const char *message); /* a diagnostic; false */
} tn_lrun;
bool tn_l_run_instruction(const tn_lrun *run);

#endif
