/* The reference interpreter: it is the meaning of the Graph IR. Slow and plain, one function an operation
 * (tn_eval_NAME in its file by family), products and sums accumulated in double where the type allows, rounded once.
 * Constant folding calls it, differential tests compare with it, `tenon check` bisects with it. */
#ifndef TN_EVAL_H
#define TN_EVAL_H

#include "graph/graph.h"

/* Values of symbols while a graph runs; define_dimension adds to it. */
typedef struct tn_dim_env {
    tn_map values;  /* symbol name -> pointer to int64_t */
    tn_arena *arena;
} tn_dim_env;
bool tn_env_set(tn_dim_env *env, const char *symbol, int64_t value); /* false if already set to another value */
bool tn_env_eval(const tn_dim_env *env, tn_dim dim, int64_t *out);
/* Solves the symbols of `type` from the actual sizes (dims that are one symbol, or linear in one unknown), checks the rest;
 * a diagnostic names input, dimension, expected and found. */
tn_status tn_env_bind(tn_session *session, tn_dim_env *env, tn_loc loc, const char *what, const tn_type *type, int rank, const int64_t *dims);

typedef struct tn_eval_options {
    int64_t max_bytes; /* of all results alive; beyond: TN_NO_MEMORY with a diagnostic. 0: 8 GiB */
    int64_t max_work;  /* elementary steps; beyond: TN_UNSUPPORTED. 0: no limit */
    /* Called after each op of the top block with its results (check, --print): NULL: none. Non-OK stops. */
    tn_status (*watch)(void *context, const tn_op *op, tn_tensor *const *results);
    void *watch_context;
} tn_eval_options;

/* Runs the graph. inputs: one a graph argument, not changed; outputs: array of as many as `return` has operands, filled
 * with tensors that live in `arena`. Working memory is malloc'ed, freed when its last user has run. */
tn_status tn_eval_graph(tn_session *session, tn_arena *arena, const tn_graph *graph, const tn_tensor *const *inputs,
                        tn_tensor **outputs, const tn_eval_options *options);
/* One operation on constant operands (constant folding); env may be NULL when no symbol occurs. */
tn_status tn_eval_op(tn_session *session, tn_arena *arena, const tn_op *op, const tn_tensor *const *operands,
                     tn_tensor **results, tn_dim_env *env, const tn_eval_options *options);

/* How many of n dense elements differ by more than tn_check's tolerance (see tenon.h) times `slack`; *first: the first of them, -1: none. */
int64_t tn_differences(tn_dtype dtype, const void *expected, const void *found, int64_t n, double slack, int64_t *first);
enum { TN_WHOLE = 30 }; /* slack for many operations in a row: rounding errors add up */

#endif
