/* Shared by the files of the CPU lowering. lower.c's head says how it works; ../lower/lower.h has what it shares with other targets. */
#ifndef TN_TARGET_CPU_LOWER_H
#define TN_TARGET_CPU_LOWER_H

#include "target/lower/lower.h"

/* Loads that are left to the store that uses them, in program order: lower_guarded_store. */
typedef struct guarded_loads {
    size_t len, cap;
    const tn_top **at;
} guarded_loads;

/* A store whose loads may lie where it writes. If they do not (`apart`), its nest stores; else the nest puts values (and which of them are stored) aside,
 * from where a second nest, `copying`, stores them. */
typedef struct aside {
    const tn_top *store; /* NULL: none now */
    tn_lvalue *apart;
    place *value, *stored; /* stored: 0 or 1 */
    bool some, copying;    /* some: not all are stored */
} aside;

/* A value that is kept in memory for later nests; `first`: the operation that computes it. */
typedef struct kept {
    const tn_tvalue *value;
    const tn_top *first;
    place *place;
} kept;

/* The nests that read a load's tile. */
typedef struct readers {
    int64_t last; /* as lower's `nest` */
    int n;
} readers;

typedef struct cpu_lower {
    lower base;
    tn_map guarded;     /* store -> guarded_loads */
    tn_map pending;     /* results of products that wait for what ends them, a store or a value of a place: tn_tvalue -> tn_top */
    tn_map operands;    /* left operand of a product -> place of its copy, frozen */
    TN_VEC(const tn_tvalue *) copied; /* the keys of those that loops use */
    tn_map readers;     /* load -> readers */
    int64_t nest;       /* number of the operation that is being lowered */
    TN_VEC(kept) kept;
    TN_VEC(kept *) filling; /* by the nest that is being made */
    aside aside;
} cpu_lower;

#define CPU(L) ((cpu_lower *)(uintptr_t)(L))

void lower_store_element(lower *L, tn_lbuilder *b, const tn_top *store, tn_lvalue *const *idx);
/* Writes an element of what `store` stores to memory[to.offset], past the caches where `stream` (NULL: never). */
void lower_write(lower *L, tn_lbuilder *b, const tn_top *store, tn_lvalue *const *idx, tn_lvalue *memory, const access *to, element e, tn_lvalue *stream);
bool lower_copies(const lower *L, const tn_top *store); /* the nest that is being made takes the values of `store` from aside */
/* Evaluates v over its extents into a place. Bounds do not cut it: a later reader may want any element. */
void lower_materialise(lower *L, tn_lbuilder *b, const tn_tvalue *v, const place *p);
place *lower_new_place(lower *L, tn_lbuilder *b, const tn_ttype *type, const char *name);
axis_bound lower_store_bound(const tn_top *store, int axis);
int lower_store_vector_axis(const lower *L, const tn_top *store); /* the axis whose neighbours it stores side by side */
axis_bound lower_value_bound(const lower *L, const tn_tvalue *v, int axis);
/* The same bound where it is known before the fold's ranges are open, else none. */
axis_bound lower_bound_outside(const tn_top *fold, axis_bound bound);
tn_lvalue *lower_axis_count(lower *L, tn_lbuilder *b, int64_t extent, const axis_bound *bound);
tn_lvalue *lower_open_axis(lower *L, tn_lbuilder *b, int axis, int64_t extent, const axis_bound *bound, tn_loop_kind kind);
tn_lvalue *lower_vector_loop(tn_lbuilder *b, int64_t n, tn_lbuilder *in);
tn_lvalue *lower_block_count(tn_lbuilder *b, tn_lvalue *total, tn_lvalue *at, int64_t most);
tn_lvalue *lower_block_loop(tn_lbuilder *b, const char *name, tn_lvalue *count, int64_t step);


/* lower_pointer.c: stores by pointers, atomics, print, assert. */
void lower_store_ptr(lower *L, tn_lbuilder *b, const tn_top *op);
void lower_atomic(lower *L, tn_lbuilder *b, const tn_top *op); /* atomic, atomic_ptr, cas_ptr */
void lower_print(lower *L, tn_lbuilder *b, const tn_top *op);
void lower_assert(lower *L, tn_lbuilder *b, const tn_top *op);
/* Leaves a load to the store, if whether they overlap can be asked there. */
bool lower_leave_to_store(lower *L, const tn_top *load, const tn_top *store);
/* A store that loads were left to: lowered by `now`, lane by lane or behind its loads; false: there are none. */
bool lower_guarded_store(lower *L, tn_lbuilder *b, const tn_top *store, void (*now)(lower *L, tn_lbuilder *b, const tn_top *store));

/* lower_ahead.c: asks for what the next program's load will read, where that pays. */
void lower_prefetch_ahead(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *buffer, tn_lvalue *offset);

/* lower_keep.c */
/* Decides which values of a block are kept, before it is lowered. */
void lower_survey(lower *L, const tn_tblock *block);
/* Around the lowering of an operation: fills what is to be kept, or lets the operation's nest fill it. */
void lower_keep_before(lower *L, tn_lbuilder *b, const tn_top *op);
void lower_keep_after(lower *L);
/* Is `op` where a kept value is computed whose operands are in the set? */
bool lower_keeps_marked(const lower *L, const tn_top *op, const tn_map *marked);
/* The result is kept, and nothing that it was computed from is asked for again later, not even to tell which elements exist. */
bool lower_keeps_all_of(const lower *L, const tn_top *op);
bool lower_is_dear(const lower *L, const tn_tvalue *v); /* an element takes many instructions */
/* Stores what the nest fills, at its index. */
void lower_fill(lower *L, tn_lbuilder *b, tn_lvalue *const *idx);
/* Does a nest over `from`, with these bounds, compute all elements of v at its own index? */
bool lower_fills(lower *L, const tn_tvalue *from, const tn_tvalue *v, const axis_bound *nest);
/* The same of the nest that the operation will be (lower.c knows). */
bool lower_nest_fills(lower *L, const tn_top *op, const tn_tvalue *v);

/* lower_lines.c */
void lower_scan(lower *L, tn_lbuilder *b, const tn_top *op);
void lower_sort(lower *L, tn_lbuilder *b, const tn_top *op);
void lower_histogram(lower *L, tn_lbuilder *b, const tn_top *op);
void lower_reduce_tree(lower *L, tn_lbuilder *b, const tn_top *op); /* `order tree` */

/* lower_carry.c */
/* state[i] := values[i], what the loop's body yields; args: the values that the loop carries now, which lie there. */
void lower_carry(lower *L, tn_lbuilder *b, const tn_tvalue *args, tn_tvalue *const *values, place *const *state, int n);
/* Before a loop: copies what products in it read of outside. */
void lower_copy_operands(lower *L, tn_lbuilder *b, const tn_tblock *body);

/* lower_dot.c */
bool lower_is_dot_fold(const tn_top *op);
const tn_top *lower_dot_of(const tn_top *op); /* the `dot` of a fold over one, or itself */
bool lower_is_elementwise(const tn_top *op);
void lower_dot(lower *L, tn_lbuilder *b, const tn_top *op);
/* Copies the left operand of a `dot`, if it is dearer to read than memory; the copy is used until it is forgotten. */
void lower_copy_operand(lower *L, tn_lbuilder *b, const tn_top *dot);
void lower_forget_operands(lower *L, size_t from); /* all copies but the first `from` */
/* If products wait for v, computes them and v into the place, and returns true. The place may hold what v reads at its own index. */
bool lower_pending_value(lower *L, tn_lbuilder *b, const tn_tvalue *v, place *p);
bool lower_waits_for_product(lower *L, const tn_tvalue *v); /* v is what products wait for */
/* If `store` ends products that wait for it, computes them with the store as their epilogue and returns true. */
bool lower_pending_dots(lower *L, tn_lbuilder *b, const tn_top *store);

#endif
