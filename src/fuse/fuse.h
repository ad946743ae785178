/* Grouping of a graph into kernels, and lowering of each group to the Tile IR.
 *
 * The result is a program over buffers: what runs in which order, before any memory is planned. A buffer is one tensor in
 * row-major order (or the packed form of a constant). */
#ifndef TN_FUSE_H
#define TN_FUSE_H

#include "opt/opt.h"
#include "tile/tile.h"

typedef enum tn_pbuffer_kind { TN_B_INPUT, TN_B_OUTPUT, TN_B_CONSTANT, TN_B_TEMP } tn_pbuffer_kind;
typedef struct tn_pbuffer {
    tn_pbuffer_kind kind;
    tn_type type;              /* shape and element type; elements of a packed buffer are counted in `elements` */
    tn_dim elements;
    int index;                 /* INPUT, OUTPUT: number */
    const tn_tensor *constant; /* CONSTANT */
    const char *name;
    /* Written once at load by an `init` step from constants only, then kept for all runs: */
    bool persistent;
    bool shared; /* written by several steps (loop state, results of branches, scatter): never persistent */
} tn_pbuffer;

typedef enum tn_step_kind {
    TN_STEP_KERNEL,  /* kernel over its grid, args[i] = buffer of kernel parameter i */
    TN_STEP_COPY,    /* args[0] (destination) := args[1], equal element counts */
    TN_STEP_DEFINE,  /* symbol := the i64 or i32 scalar in args[0]; checked against [0, upper] */
    TN_STEP_IF,      /* args[0]: bool/i32 scalar; blocks[i] runs (IF: 0 then, 1 else; CASE: by index, last is default) */
    TN_STEP_CASE,
    TN_STEP_WHILE    /* blocks[0] computes args[0] (bool scalar); while true blocks[1] */
} tn_step_kind;

typedef struct tn_inplace { int out, in; } tn_inplace;
/* Why an operation is not in the kernel of what uses it: words that go on from "it is stored: ". consumer: the first of its users, NULL: none. */
typedef struct tn_refusal { const tn_op *producer, *consumer; const char *reason; } tn_refusal;

typedef struct tn_steps { TN_VEC(struct tn_step *) list; } tn_steps;
typedef struct tn_step {
    tn_step_kind kind;
    tn_kernel *kernel;
    int nargs;
    int *args;
    tn_dim *offset;          /* KERNEL: at which element of each arg the kernel's buffer begins; NULL, of one or of all: the first */
    tn_dim dim, upper;       /* DEFINE */
    int nblocks;
    tn_steps *blocks;
    bool init;               /* runs once at load */
    double ns, apart_ns;     /* KERNEL of a group: what it takes, and what a kernel for each of its operations would, as fuse/cost.c estimates them; 0: no group's, or nobody asked (tn_fuse_options.estimate) */
    bool again;              /* computes what an earlier step did, so that it need not be kept so long (src/plan/order.c) */
    int choice;              /* KERNEL: number of the choice that it was made by (tn_choice); 0: there was none */
    /* KERNEL: args whose memory may be that of args[0]'s output (elementwise, same index): in-place candidates as pairs out, in */
    TN_VEC(tn_inplace) inplace;
    TN_VEC(const tn_op *) ops; /* graph operations it computes, or helps to: reports and profiles name their nodes */
    const tn_value *copied;    /* KERNEL: it does nothing but copy this for ops.at[0]; NULL: it does more */
} tn_step;

typedef struct tn_nodes { TN_VEC(const char *) list; } tn_nodes;
typedef struct tn_program {
    tn_session *session;
    const tn_graph *graph;
    TN_VEC(tn_pbuffer) buffers;
    tn_steps steps;
    tn_map stands_for; /* operation made of several nodes' -> tn_nodes: those nodes */
    TN_VEC(tn_refusal) refusals; /* one for each operation that begins a kernel, in the order in which they were found */
} tn_program;

/* ---- choices ---------------------------------------------------------------------------------------------------------
 * A group whose kernel can be made by several schedules offers them, once, before the kernel is made. What computes the same is the same kernel whatever is taken, but for
 * rounding where sums are cut differently. */
enum { TN_SCHEDULE_VOCABULARY = 2, /* to be raised when fields, or what they mean, change: records of others are not used */
       TN_CHOICE_FIELDS = 9 };
typedef struct tn_candidate {
    int64_t value[TN_CHOICE_FIELDS]; /* by field */
    double ns;                       /* estimated */
} tn_candidate;
typedef struct tn_choice {
    int number;              /* counted from 1, in the program's order */
    const char *kernel;      /* name that the kernel will have: k3_dot */
    const char *stem;        /* dot */
    const char *key;         /* the group, its sizes and options as text: equal keys, equal kernels */
    const tn_op *root;       /* whose elements are stored */
    int nfields;
    const char *const *field;
    const tn_candidate *candidate; /* [0]: what the selector takes. Then the best of each other tile, by estimate, then the rest */
    size_t n;
} tn_choice;
typedef struct tn_chooser {
    size_t (*choose)(void *context, const tn_choice *choice); /* number of a candidate. NULL: the selector's everywhere. `choice` lasts as long as the call */
    void *context;
} tn_chooser;

typedef struct tn_fuse_options {
    tn_tile_target target;
    bool no_fusion;    /* one kernel an operation (--passes=-fuse) */
    bool estimate;     /* steps say what they take (ns, apart_ns) */
    tn_numerics numerics;
    tn_precision precision; /* of products of f32 */
    tn_chooser chooser;
} tn_fuse_options;

/* Every operation that has no lowering is reported (TN_UNSUPPORTED, all in one list) before anything is built. */
tn_status tn_fuse_check(const tn_graph *graph);
/* May change the graph: products of one operand with several constants become one; for a GPU, large reductions to few values become two. */
tn_status tn_fuse(tn_session *session, tn_graph *graph, const tn_fuse_options *options, tn_program *out);
void tn_text_program(tn_text *text, const tn_program *program); /* buffers, steps, kernels as text */

#endif
