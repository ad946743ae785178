/* What the rows of machine.def say, and what they do: for the verifier, the interpreter and the emitter. */
#ifndef TN_LOOP_MACHINE_H
#define TN_LOOP_MACHINE_H

#include "loop/loop.h"
#include "loop/races.h"

enum { TN_L_PARTS = 8 };
enum { TN_PART_R = 1, TN_PART_W = 2 };

/* A part of an instruction: a buffer and an offset, or one number. */
typedef struct tn_lpart {
    enum { TN_PART_NONE, TN_PART_REG, TN_PART_SHARED, TN_PART_TILE, TN_PART_GLOBAL, TN_PART_NUMBER, TN_PART_CONSTANT } kind;
    int how;        /* TN_PART_R, TN_PART_W */
    tn_dtype dtype; /* of a reg buffer's elements; TN_NO_DTYPE: any */
    int size;       /* reg: elements, or bytes of any type; memory: bytes */
} tn_lpart;

typedef struct tn_linstruction {
    const char *name;
    int threads;
    tn_lpart part[TN_L_PARTS]; /* up to the first of no kind */
} tn_linstruction;

const tn_linstruction *tn_l_instruction(const char *name); /* NULL: there is none */
int tn_l_instruction_parts(const tn_linstruction *instruction);
int tn_l_part_operand(const tn_linstruction *instruction, int part); /* number of its first operand */
int tn_l_part_bytes(const tn_lpart *part);

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
bool tn_l_run_instruction(const tn_lrun *run);

#endif
