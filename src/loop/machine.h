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

/* One run of an instruction by the threads from `first` on. */
typedef struct tn_lrun {
    const tn_lop *op;
    const tn_linstruction *instruction;
    int first;
    tn_arena *arena;
    tn_lcopies *copies; /* by thread */
    void *context;
    /* `bytes` of a part as the thread sees it, `skip` bytes behind its offset, checked and noted as touched; NULL after a diagnostic. */
    uint8_t *(*part)(void *context, int thread, int operand, int64_t skip, int64_t bytes, tn_touch how);
    int64_t (*number)(void *context, int thread, int operand);
    bool (*settle)(void *context, int thread, const uint8_t *to, int64_t bytes); /* the thread writes there now; false after a diagnostic */
} tn_lrun;
bool tn_l_has_meaning(const tn_linstruction *instruction);
bool tn_l_run_instruction(const tn_lrun *run);

#endif
