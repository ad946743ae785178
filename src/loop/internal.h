/* What the files of src/loop share: the fold rules behind the builders, walks, replacement of values. */
#ifndef TN_LOOP_INTERNAL_H
#define TN_LOOP_INTERNAL_H

#include "loop/loop.h"

static inline tn_arena *tn_l_arena(const tn_lfunc *func)
{
    return &func->session->arena;
}

enum { TN_L_MAX_LANES = 256 }; /* of any vector in a text */

/* ---- fold.c ---- */
/* An existing or newly built value equal to fn(operands), or NULL when no rule applies. Exact for every input, NaN
 * payloads apart: floats lose only x * 1, x / 1, x - 0, x + -0; integers wrap, so sums and products with constants
 * regroup. */
tn_lvalue *tn_l_fold(tn_lbuilder *b, tn_scalar fn, tn_lvalue *const *operands, int n);
/* Same for the other pure operations, given their operands. NULL: no rule. */
tn_lvalue *tn_l_fold_cast(tn_lbuilder *b, tn_lvalue *x, tn_dtype dtype);
const tn_number *tn_l_number(const tn_lvalue *v); /* of a constant (splat constants too), else NULL */
bool tn_l_same_type(tn_ltype a, tn_ltype b);

/* ---- build.c ---- */
tn_lop *tn_lop_new(tn_lfunc *func, tn_lopcode code, tn_lvalue *const *operands, int n);
void tn_lop_result(tn_lfunc *func, tn_lop *op, tn_ltype type);
tn_lblock *tn_lblock_new(tn_lfunc *func, tn_lop *parent);
void tn_lop_insert(tn_lbuilder *b, tn_lop *op); /* at the builder's place; the op must be in no block */
void tn_lop_unlink(tn_lop *op);                 /* takes it out of its block, keeps it */
tn_lbuilder tn_lbuilder_before(tn_lfunc *func, tn_lop *op);
tn_lvalue *tn_l_intrinsic(tn_lbuilder *b, const char *name, tn_lvalue *const *operands, int n, tn_ltype type);

int64_t tn_l_shared_align(int64_t at);                      /* what the address of byte `at` of a CTA's shared memory is a multiple of */
bool tn_l_shared_end(const tn_lop *alloc, int64_t *end);    /* the first byte behind a shared alloc; false: absurd */

/* Depth-first walk in program order, an op before its regions; the callback may erase or move the op it is given, and
 * insert before it. */
void tn_l_walk(tn_lblock *block, void (*visit)(void *context, tn_lop *op), void *context);
/* Clears `scratch` of every value, parameters and block arguments too. */
void tn_l_clear_scratch(tn_lfunc *func);
/* Replacement by scratch: v->scratch is what v became; follows chains and shortens them. */
tn_lvalue *tn_l_resolve(tn_lvalue *v);
void tn_l_resolve_operands(tn_lop *op);

/* The mask of a load/gather/store/scatter/atomic/atomic_load/cas, NULL without. The `other` of a load/gather likewise. */
int tn_lop_mask_index(const tn_lop *op); /* operand number a mask would have; -1: this op takes none */
static inline tn_lvalue *tn_lop_mask(const tn_lop *op)
{
    int i = tn_lop_mask_index(op);
    return i >= 0 && i < op->noperands ? op->operand[i] : NULL;
}
static inline tn_lvalue *tn_lop_other(const tn_lop *op)
{
    return (op->code == TN_L_load || op->code == TN_L_gather) && op->noperands > 3 ? op->operand[3] : NULL;
}
static inline bool tn_lop_accesses(const tn_lop *op) /* operand 0 is a buffer, operand 1 an offset */
{
    return op->code == TN_L_load || op->code == TN_L_gather || op->code == TN_L_store || op->code == TN_L_scatter ||
           op->code == TN_L_atomic || op->code == TN_L_atomic_load || op->code == TN_L_cas || op->code == TN_L_prefetch;
}

/* ---- maps.c ---- */
tn_lvalue *tn_l_map_symbol(const tn_lfunc *func, const char *name); /* the index parameter of a map's symbol; NULL: there is none */
/* What is wrong with a map of a kernel, NULL: nothing. */
const char *tn_l_map_fault(const tn_lfunc *func, const tn_lmap *map);

/* ---- tile.c ---- */
tn_lop *tn_l_find_loop(const tn_lfunc *func, const char *index); /* the first with that index; NULL: none */

/* ---- range.c ---- */
/* Proven bounds of an integer scalar, inclusive. A size parameter is taken to lie in [0, 2^47]: no buffer is larger; one that
 * holds a number, in that number's type. */
typedef struct tn_lrange {
    int64_t lo, hi;
} tn_lrange;
/* `memo` keeps results by value (zero-initialised, arena set); it is valid while the values' definitions stay. */
tn_lrange tn_l_range(tn_map *memo, const tn_lvalue *v);

/* ---- print.c ---- */
void tn_text_ltype(tn_text *text, tn_ltype type);
const char *tn_ltype_text(tn_arena *arena, tn_ltype type);
const char *tn_loop_kind_text(tn_loop_kind kind);
const char *tn_space_text(tn_space space);

#endif
