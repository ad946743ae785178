/* What the files of tile-simplify and inline share. */
#ifndef TN_TILE_SIMPLIFY_H
#define TN_TILE_SIMPLIFY_H

#include "tile/internal.h"

enum { TN_ROOT_UNKNOWN = -1 };

/* What is known of a value that was visited, in its `scratch`: is every element there, and which buffer do its pointers point into? */
static inline void tn_fact_set(tn_tvalue *v, bool present, int root) { v->scratch = (void *)(uintptr_t)(1u | (unsigned)present << 1 | (unsigned)(root + 1) << 2); }
static inline bool tn_fact_present(const tn_tvalue *v) { return (uintptr_t)v->scratch >> 1 & 1; }
static inline int tn_fact_root(const tn_tvalue *v) { return (int)((uintptr_t)v->scratch >> 2) - 1; }

static inline const tn_number *tn_tile_constant(const tn_tvalue *v) { return v->def && v->def->code == TN_T_const ? &v->def->number : NULL; }
void tn_learn(tn_top *op); /* sets what is known of op's results; operands were visited */
void tn_learn_parameters(const tn_kernel *kernel);
void tn_prune_schedule(tn_kernel *kernel); /* a labelled operation that goes takes its entries in the schedule along */
bool tn_same_constant(const tn_tvalue *a, const tn_tvalue *b);

/* simplify_rules.c. Rewrites op in place where it is a constant or has a simpler form; gives the value that its result equals, NULL: none. New operations go
 * before op, and through `visit`. Operands were visited. */
typedef struct tn_rules {
    tn_kernel *kernel;
    tn_tvalue *(*visit)(void *context, tn_top *op); /* gives the value that op's result is from now on */
    void *context;
} tn_rules;
tn_tvalue *tn_simplify_op(const tn_rules *rules, tn_top *op);

/* dead.c. Removes operations that nobody needs, and values that loops and branches give and nobody reads. */
void tn_remove_dead(tn_kernel *kernel);

#endif
