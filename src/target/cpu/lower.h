/* Shared by the files of the CPU lowering. lower.c's head says how it works. */
#ifndef TN_TARGET_CPU_LOWER_H
#define TN_TARGET_CPU_LOWER_H

#include "target/target.h"

/* One element of a tile: its value, and whether it exists (NULL: surely). */
typedef struct element {
    tn_lvalue *value, *present;
} element;

/* A tile held in a buffer of the program; element (i_0, …) at sum i_a * stride[a]. */
typedef struct place {
    tn_lvalue *buffer;
    int64_t stride[TN_TILE_RANK];
    int root; /* of pointers: what they count from, as lower_root */
    struct place *present; /* which elements exist; NULL: all, but for loads that were taken early, atomics and kept values */
    bool kept;             /* a value that was kept (lower_keep.c): its expression says which elements exist; the others hold anything */
} place;

/* One access, resolved: the element's offset and whether it is made (NULL: surely). */
typedef struct access {
    tn_lvalue *offset, *exists;
} access;

/* What an operation reads or writes, where it is no buffer of the kernel: an address that is known only when it runs, or nothing. */
enum { LOWER_MEMORY = -1, LOWER_NOTHING = -2 };

/* Holds inside the open loops: start + index < limit. */
typedef struct fact {
    const tn_tvalue *start;
    const tn_lvalue *index;
    tn_dim limit;
} fact;

typedef struct memo_entry {
    const tn_tvalue *value;
    tn_lvalue *index[TN_TILE_RANK];
    element element;
    size_t prev; /* the entry of the same value before it, + 1 */
} memo_entry;

typedef struct scope {
    size_t memo, facts;
} scope;

/* Elements along an axis exist where start + i < limit; start NULL: everywhere in the extent. */
typedef struct axis_bound {
    tn_tvalue *start;
    tn_dim limit;
} axis_bound;

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

typedef struct lower {
    tn_session *session;
    tn_arena arena; /* of this lowering alone */
    tn_kernel *kernel;
    const tn_machine *machine;
    tn_lfunc *func;
    tn_lbuilder entry;  /* before the grid loop */
    tn_lvalue **buffer; /* by kernel buffer */
    tn_map dims;        /* tn_dim -> tn_lvalue */
    tn_map scalars;     /* grid coordinates, scalar parameters -> tn_lvalue */
    tn_map roots;       /* pointers -> what they count from, + 2 */
    tn_map wide;        /* integers -> a key for the memo of their 64-bit value */
    tn_map guarded;     /* store -> guarded_loads */
    tn_map memory;      /* element type, or buffer -> all memory as elements of that type, the number of the buffer's first one there */
    tn_map places;      /* tn_tvalue -> place */
    tn_map gathered;    /* gather -> place of its source, frozen */
    tn_map memo_head;   /* tn_tvalue -> size_t */
    tn_map pending;     /* results of products that wait for what ends them, a store or a value of a place: tn_tvalue -> tn_top */
    tn_map operands;    /* left operand of a product -> place of its copy, frozen */
    TN_VEC(const tn_tvalue *) copied; /* the keys of those that loops use */
    tn_map readers;     /* load -> readers */
    int64_t nest;       /* number of the operation that is being lowered */
    TN_VEC(kept) kept;
    TN_VEC(kept *) filling; /* by the nest that is being made */
    TN_VEC(memo_entry) memo;
    TN_VEC(fact) facts;
    aside aside;
    tn_status status; /* the first failure; lowering stops soon after */
} lower;

tn_lvalue *lower_dim(lower *L, tn_dim d);
element lower_element(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx);
tn_dim lower_value_dim(const lower *L, const tn_tvalue *v); /* of a size or index constant; NULL: anything else */
tn_lvalue *lower_scalar(lower *L, tn_lbuilder *b, const tn_tvalue *v);
void lower_store_element(lower *L, tn_lbuilder *b, const tn_top *store, tn_lvalue *const *idx);
/* Writes an element of what `store` stores to memory[to.offset], past the caches where `stream` (NULL: never). */
void lower_write(lower *L, tn_lbuilder *b, const tn_top *store, tn_lvalue *const *idx, tn_lvalue *memory, const access *to, element e, tn_lvalue *stream);
bool lower_copies(const lower *L, const tn_top *store); /* the nest that is being made takes the values of `store` from aside */
/* An element that was computed, or declared known, at these indices in a scope that is open. */
bool lower_recall(const lower *L, const tn_tvalue *v, tn_lvalue *const *idx, element *out);
/* Declares an element known at these indices, until the scope closes. */
void lower_memo(lower *L, const tn_tvalue *v, tn_lvalue *const *idx, element value);
scope lower_open(const lower *L);
void lower_close(lower *L, scope s);
/* Evaluates v over its extents into a place. Bounds do not cut it: a later reader may want any element. */
void lower_materialise(lower *L, tn_lbuilder *b, const tn_tvalue *v, const place *p);
place *lower_new_place(lower *L, tn_lbuilder *b, const tn_ttype *type, const char *name);
void lower_set_place(lower *L, const tn_tvalue *v, place *p);
/* Evaluates v over its extents into a place. Bounds do not cut it: a later reader may want any element. */
void lower_materialise(lower *L, tn_lbuilder *b, const tn_tvalue *v, const place *p);
/* The value, or 0 where it is absent. */
tn_lvalue *lower_frozen(tn_lbuilder *b, element e);
/* acc[offset] := combine(acc[offset], x), where x is present; n values. */
void lower_accumulate(lower *L, tn_lbuilder *b, const tn_tblock *combine, int n, tn_lvalue *const *acc, tn_lvalue *offset, const element *x);
tn_lvalue *lower_place_offset(tn_lbuilder *b, const place *p, int rank, tn_lvalue *const *idx);
axis_bound lower_store_bound(const tn_top *store, int axis);
axis_bound lower_value_bound(const lower *L, const tn_tvalue *v, int axis);
/* The same bound where it is known before the fold's ranges are open, else none. */
axis_bound lower_bound_outside(const tn_top *fold, axis_bound bound);
tn_lvalue *lower_axis_count(lower *L, tn_lbuilder *b, int64_t extent, const axis_bound *bound);
tn_lvalue *lower_open_axis(lower *L, tn_lbuilder *b, int axis, int64_t extent, const axis_bound *bound, tn_loop_kind kind);
void lower_fact(lower *L, const axis_bound *bound, tn_lvalue *index);
void lower_open_ranges(lower *L, tn_lbuilder *b, const tn_top *op);
tn_lvalue *lower_vector_loop(tn_lbuilder *b, int64_t n, tn_lbuilder *in);
tn_lvalue *lower_block_count(tn_lbuilder *b, tn_lvalue *total, tn_lvalue *at, int64_t most);
tn_lvalue *lower_block_loop(tn_lbuilder *b, const char *name, tn_lvalue *count, int64_t step);

bool lower_depends_on(const tn_top *op, const tn_map *marked);
bool lower_same_access(const tn_top *a, const tn_top *b); /* the same elements of views that lie alike */
access lower_resolve(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx); /* of load, store, atomic */
tn_lvalue *lower_and(tn_lbuilder *b, tn_lvalue *x, tn_lvalue *y); /* NULL: true */
/* The operand whose element at `at` (filled) is v's at idx, for operations that only move elements of one operand; NULL: another operation. */
const tn_tvalue *lower_moved(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx, tn_lvalue **at);

/* lower_pointer.c: pointers, atomics, scalar parameters, print, assert. */
/* Finds for every pointer what it counts from, before anything else. */
void lower_find_roots(lower *L);
/* The buffer from whose start a pointer's value counts elements; LOWER_MEMORY: it counts from address 0. */
int lower_root(const lower *L, const tn_tvalue *v);
/* The same pointer, counted from `to`. */
tn_lvalue *lower_rebase(lower *L, tn_lbuilder *b, tn_lvalue *at, int from, int to, tn_dtype dtype);
void lower_scalar_parameters(lower *L);
/* addptr, bitcast from and to pointers. */
element lower_pointer_element(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx);
element lower_load_ptr_element(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx);
/* Does an element of a load or atomic that lies in a place exist? NULL: surely. */
tn_lvalue *lower_place_present(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx);
void lower_store_ptr(lower *L, tn_lbuilder *b, const tn_top *op);
void lower_atomic(lower *L, tn_lbuilder *b, const tn_top *op); /* atomic, atomic_ptr, cas_ptr */
void lower_print(lower *L, tn_lbuilder *b, const tn_top *op);
void lower_assert(lower *L, tn_lbuilder *b, const tn_top *op);
/* The buffer that an operation itself reads or writes, LOWER_MEMORY or LOWER_NOTHING. */
int lower_accessed(const lower *L, const tn_top *op);
bool lower_may_alias(const lower *L, int a, int b);
/* op or an operation in it may write `buffer`. */
bool lower_writes(const lower *L, const tn_top *op, int buffer);
/* Other programs may see what was stored before it, or change what is loaded after it: atomics, fences. */
bool lower_synchronises(const tn_top *op);
bool lower_writes_unknown(const lower *L, const tn_tblock *block); /* by an address, somewhere in the block */
/* Both touch the same element of memory at the same index, and no other two indices share one. */
bool lower_same_element(const lower *L, const tn_top *load, const tn_top *store);
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
/* Whether an element exists, by its expression; NULL: surely. */
tn_lvalue *lower_present(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx);
element lower_compute_element(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx); /* though it lies in a place */

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
