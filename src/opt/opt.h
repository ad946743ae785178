/* Graph passes: each maps a graph to an equal one. One file a pass; a table of them; a default list.
 *
 *   shapes        arithmetic on sizes becomes dimension expressions; symbols known to be equal become one
 *   canonicalize  the forms that src/fuse takes: batch norms and composites written out, convolutions
 *                 channels-last where that costs the least over the whole graph, without padding, dilation of the operand, reversal or batch groups (depthwise ones
 *                 keep their padding)
 *   fold          operations on constants become constants, within a budget; splats stay splats
 *   simplify      the table of algebraic rules, of data movement, of control flow on constants
 *   layout        transposes sink through operations that don't mind, until they meet their inverse
 *   cse           equal operations become one
 *   dce           what nobody uses goes
 *
 * Every pass takes symbolic sizes, keeps tn_op.loc (a new operation has that of the one it stands for), is
 * deterministic, and finds nothing to do when run again at once. Rewrites are rules: a root operation, a function,
 * and how exact it is. */
#ifndef TN_OPT_H
#define TN_OPT_H

#include "eval/eval.h"

/* How far numbers may move. Integers and bool are always exact. */
typedef enum tn_numerics {
    TN_NUMERICS_PARITY, /* default. The bits of the operations replaced, but for batch_norm_inference: it becomes
                           x * s + t with s = scale / sqrt(variance + epsilon), t = offset - mean * s, as other runtimes
                           compute it, and convolutions channels-last, which sum in another order */
    TN_NUMERICS_STRICT, /* batch_norm_inference step by step as well */
    TN_NUMERICS_FAST    /* rules that reassociate too: scales go into weights, x + 0 is x even for -0 */
} tn_numerics;

/* A rule that looked at an operation and did not apply. */
typedef struct tn_declined {
    const char *pass, *rule;
    tn_opcode code;
    tn_loc loc;
    const char *reason;
} tn_declined;
typedef struct tn_declined_list {
    TN_VEC(tn_declined) list;
} tn_declined_list;

typedef struct tn_opt_options {
    tn_numerics numerics;
    bool verify; /* the verifier after every pass; a failure is a fault of the pass, named in the diagnostic */
    const char *print_after; /* a pass, or "all": the graph is printed where the pass changed it; NULL: never */
    void (*print)(void *context, const char *pass, const tn_graph *graph); /* NULL: to stderr, large constants elided */
    void (*timing)(void *context, const char *pass, double seconds, bool changed); /* after each pass; NULL: none */
    void *context;                                                                 /* of print and timing */
    size_t fold_bytes;          /* of all constants that one run of `fold` makes; 0: 16 MiB */
    int64_t fold_work;          /* elementary steps of one run of `fold`; 0: 20 million */
    bool gpu; /* convolutions in the form that kernels of a GPU want: they keep their padding, their weights lie along the features that are summed up */
    tn_declined_list *declined; /* rules record here why they did not apply; NULL: not recorded */
} tn_opt_options;

/* Changes graph; *changed says whether. Only a graph that is itself at fault, or no memory, gives another status than
 * TN_OK. */
typedef struct tn_opt_pass {
    const char *name;
    tn_status (*run)(tn_graph *graph, const tn_opt_options *options, bool *changed);
} tn_opt_pass;
extern const tn_opt_pass tn_opt_passes[]; /* ends with name NULL */
extern const char tn_opt_pipeline[];      /* the default list */

/* Runs a list of passes, comma separated.
 *   list     NULL: tn_opt_pipeline. Names run in the order given, once each time they are named; "default" stands for
 *            the default list, "cleanup" for fold, simplify, cse, dce again and again until nothing changes. "-name"
 *            takes a pass out of the list; a list of such alone takes them out of the default one. "fuse" and "-fuse"
 *            are not ours and skipped (tn_opt_list_has tells them). "" and "none": nothing runs.
 *   options  NULL: parity, no checks, no printing
 * TN_USAGE: no such pass (the diagnostic lists those there are); TN_INVALID: the verifier found a fault. */
tn_status tn_opt_run(tn_session *session, tn_graph *graph, const char *list, const tn_opt_options *options);
/* The same attributes with the same values; tensors that are large only if they are one. */
bool tn_opt_same_attrs(const tn_op *a, const tn_op *b);
/* The list (NULL: none) has this very item, "-fuse" say. */
bool tn_opt_list_has(const char *list, const char *item);

#endif
