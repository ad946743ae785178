/* What the lowerings from Tile IR to Loop IR share: how one element of a tile is computed.
 *
 * A tile is never held as a value. It is an expression, of which lower_element computes one element wherever a nest needs it, at indices that are Loop IR
 * values, or a place, memory or registers that a nest has filled. What nests look like, and what a place is, is the target's: cpu/lower.h, gpu/lower.h. */
#ifndef TN_TARGET_LOWER_LOWER_H
#define TN_TARGET_LOWER_LOWER_H

#include "target/target.h"

/* One element of a tile: its value, and whether it exists (NULL: surely). */
typedef struct element {
    tn_lvalue *value, *present;
} element;

/* A tile held in a buffer; element (i_0, …) at sum i_a * stride[a]. On a GPU: in registers, and in a buffer of the CTA once other threads want it. */
typedef struct place {
    tn_lvalue *buffer;
    int64_t stride[TN_TILE_RANK];
    int root; /* of pointers: what they count from, as lower_root */
    struct place *present; /* which elements exist; NULL: all, but for loads that were taken early, atomics and kept values */
    bool kept;             /* a value that was kept (cpu/lower_keep.c): its expression says which elements exist; the others hold anything */
    struct gpu_held *held; /* on a GPU: the registers */
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
    bool loose;  /* made for a sink: any number where that stores nothing */
    size_t prev; /* the entry of the same value before it, + 1 */
} memo_entry;

typedef struct scope {
    size_t memo, facts, granted;
} scope;

/* Elements along an axis exist where start + i < limit; start NULL: everywhere in the extent. */
typedef struct axis_bound {
    tn_tvalue *start;
    tn_dim limit;
} axis_bound;

typedef struct lower lower;

/* Programs of a coordinate's largest values (`last`) or smallest ones have most to do, and come first. */
typedef struct lower_longest {
    const tn_tvalue *coordinate; /* of the grid; NULL: programs go in order */
    bool last;
} lower_longest;

/* What a target does its own way while an element is computed. */
typedef struct lower_target {
    const char *name; /* in diagnostics */
    element (*place_element)(lower *L, tn_lbuilder *b, const place *p, const tn_tvalue *v, tn_lvalue *const *idx);
    /* Before an element is loaded; NULL: nothing. */
    void (*before_load)(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *memory, tn_lvalue *offset);
    void (*open_locals)(lower *L, tn_lbuilder *b); /* the kernel's local buffers, before the programs */
    void (*programs)(lower *L, tn_lbuilder *b);    /* all programs: calls lower_programs */
} lower_target;

/* The first member of a target's own state. */
struct lower {
    const lower_target *target;
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
    tn_map memory;      /* element type, or buffer -> all memory as elements of that type, the number of the buffer's first one there */
    tn_map places;      /* tn_tvalue -> place */
    tn_map gathered;    /* gather -> place of its source, frozen */
    tn_map memo_head;   /* tn_tvalue -> size_t */
    TN_VEC(memo_entry) memo;
    TN_VEC(fact) facts;
    const tn_top *sink;          /* a store by view whose nest is open, of an element that may be any number where its view ends: selects by that bound go. NULL: none */
    tn_lvalue *const *sink_index; /* where in its tile */
    TN_VEC(const tn_guard *) granted; /* those that hold where code is made now: an `if` asked before */
    lower_longest longest;
    tn_status status; /* the first failure; lowering stops soon after */
};

/* Lowers the bound kernel into L->func: parameters, sizes, the programs. L has its target, session, kernel, machine, and arena
 * (with the session's on_oom); it is given up at the end, and *out set if all went well. */
tn_status lower_run(lower *L, tn_lfunc **out);
/* The loop over programs, at b; `body` is one. */
void lower_programs(lower *L, tn_lbuilder *b, void (*body)(lower *L, tn_lbuilder *b));

/* ---- dims.c ---------------------------------------------------------------------------------------------------------------- */
tn_lvalue *lower_dim(lower *L, tn_dim d);
void lower_collect_symbols(lower *L); /* makes a parameter of each symbol */
void lower_collect_scalars(lower *L);
tn_dim lower_value_dim(const lower *L, const tn_tvalue *v); /* of a size or index constant; NULL: anything else */
tn_dim lower_range_of(const lower *L, const tn_tvalue *v, int64_t *step); /* the limit of a range variable (grid, fold, for), and its step; NULL: v is none */
bool lower_not_negative(const lower *L, const tn_tvalue *v); /* by what it is made of */
void lower_fact(lower *L, const axis_bound *bound, tn_lvalue *index); /* start + index < limit, until the scope closes, if the bound says anything */
/* start + i < limit for all i in [0, extent), by what is known before anything runs. */
bool lower_block_fits(const lower *L, const tn_tvalue *start, tn_dim limit, int64_t extent);
bool lower_known_below(const lower *L, const tn_tvalue *start, const tn_lvalue *index, tn_dim limit); /* recorded so */

/* ---- element.c ------------------------------------------------------------------------------------------------------------- */
element lower_element(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx);
element lower_compute_element(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx); /* though it lies in a place */
/* Whether an element exists, by its expression; NULL: surely. */
tn_lvalue *lower_present(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx);
tn_lvalue *lower_scalar(lower *L, tn_lbuilder *b, const tn_tvalue *v);
/* The value, or 0 where it is absent. */
tn_lvalue *lower_frozen(tn_lbuilder *b, element e);
tn_lvalue *lower_and(tn_lbuilder *b, tn_lvalue *x, tn_lvalue *y); /* NULL: true */
access lower_resolve(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx); /* of load, store, atomic */
/* The operand whose element at `at` (filled) is v's at idx, for operations that only move elements of one operand; NULL: another operation. */
const tn_tvalue *lower_moved(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx, tn_lvalue **at);
/* An element that was computed, or declared known, at these indices in a scope that is open. */
bool lower_recall(const lower *L, const tn_tvalue *v, tn_lvalue *const *idx, element *out);
/* Declares an element known at these indices, until the scope closes. */
void lower_memo(lower *L, const tn_tvalue *v, tn_lvalue *const *idx, element value);
scope lower_open(const lower *L);
void lower_close(lower *L, scope s);
/* What must hold for v's elements to exist, where it says the same of all of the tile: guards of the loads that it is made of by operations that need all their operands.
 * From then on, until the scope closes, they count as asked. NULL: nothing. */
tn_lvalue *lower_grant_guards(lower *L, tn_lbuilder *b, const tn_tvalue *v);
/* Opens the serial loops over a fold's ranges (none for other operations) and makes the starts known. */
void lower_open_ranges(lower *L, tn_lbuilder *b, const tn_top *op);
void lower_open_ranges_between(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *from, tn_lvalue *to); /* of the first range these values alone; NULL: all */
tn_lvalue *lower_place_offset(tn_lbuilder *b, const place *p, int rank, tn_lvalue *const *idx);
void lower_set_place(lower *L, const tn_tvalue *v, place *p);
/* out := region(a, x), n scalars each; may be in a loop that becomes vectors. */
void lower_combine(lower *L, tn_lbuilder *b, const tn_tblock *region, int n, tn_lvalue *const *a, tn_lvalue *const *x, tn_lvalue **out);
tn_lvalue *lower_all_present(tn_lbuilder *b, const element *x, int n); /* of a tuple: it exists if all of it does */
tn_lvalue *lower_yes_or(tn_lbuilder *b, tn_lvalue *present);
/* acc[offset] := combine(acc[offset], x), where x is present; n values. */
void lower_accumulate(lower *L, tn_lbuilder *b, const tn_tblock *combine, int n, tn_lvalue *const *acc, tn_lvalue *offset, const element *x);

/* Sums the terms, outermost first, so that hoisting leaves one addition in the innermost loop. */
typedef struct sum {
    tn_lvalue *term[2 * TN_MAX_RANK + 2];
    int n;
} sum;
void lower_sum_add(sum *s, tn_lvalue *term);
tn_lvalue *lower_sum_value(tn_lbuilder *b, const sum *s);

/* ---- pointer.c ------------------------------------------------------------------------------------------------------------- */
/* Finds for every pointer what it counts from, before anything else. */
void lower_find_roots(lower *L);
/* The buffer from whose start a pointer's value counts elements; LOWER_MEMORY: it counts from address 0. */
int lower_root(const lower *L, const tn_tvalue *v);
/* The same pointer, counted from `to`. */
tn_lvalue *lower_rebase(lower *L, tn_lbuilder *b, tn_lvalue *at, int from, int to, tn_dtype dtype);
void lower_scalar_parameters(lower *L);
int lower_log2_bytes(tn_dtype dtype);
tn_lvalue *lower_address_of(lower *L, int buffer);
element lower_wide_element(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx); /* of an integer, in 64 bits, by the rule of the file's head */
bool lower_is_small(const lower *L, const tn_tvalue *v);          /* of 64 bits, but fits 32 as far as index arithmetic may assume */
bool lower_keeps_wide_value(const lower *L, const tn_top *op);    /* a cast whose value in 64 bits is its operand's */
bool lower_is_sum_or_product(const tn_top *op);                   /* of integers that may be taken in 64 bits */
/* addptr, bitcast from and to pointers. */
element lower_pointer_element(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx);
element lower_pointer_from(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx, int root); /* counted from `root` */
element lower_load_ptr_element(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx);
access lower_pointed(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx); /* of an access by pointer; exists: its mask too */
tn_lvalue *lower_pointed_memory(lower *L, const tn_top *op);
int lower_mask_operand(const tn_top *op); /* -1: none */
/* Of an atomic or a compare and swap: where it is done, and its values x. */
access lower_atomic_access(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx, element *x);
/* Does it to one element (x: what lower_atomic_access gave), under a mask or not; gives the old value. */
tn_lvalue *lower_do_atomic(tn_lbuilder *b, const tn_top *op, tn_lvalue *memory, tn_lvalue *offset, const element *x, tn_lvalue *mask);
tn_lscope lower_scope_of(const tn_top *op); /* of an atomic */
/* Does an element of a load or atomic that lies in a place exist? NULL: surely. */
tn_lvalue *lower_place_present(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx);
void lower_program_numbers(lower *L, tn_lbuilder *b, tn_lvalue **out); /* three, x first */
void lower_print_element(lower *L, tn_lbuilder *b, const tn_top *op, int operand, tn_lvalue *const *idx);
void lower_print_text(lower *L, tn_lbuilder *b, const tn_top *op); /* of a print without values */
tn_lvalue *lower_assertion(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx); /* what must hold of an element; absent ones claim nothing */

/* ---- strides.c ------------------------------------------------------------------------------------------------------------- */
enum { LOWER_BUDGET = 512 };                /* values that a search looks at */
#define LOWER_UNKNOWN INT64_MIN       /* not the same for each step */
#define LOWER_UNIFORM (INT64_MIN + 1) /* the same for each step, but no constant */

/* How the elements of a value lie along the axes of a nest: axis[k] is the nest's axis that its axis k is, -1: none. */
typedef struct axes {
    int axis[TN_TILE_RANK];
} axes;

typedef struct strides {
    int64_t along[TN_TILE_RANK]; /* by the nest's axis: what one step adds; LOWER_UNKNOWN, LOWER_UNIFORM */
} strides;

axes lower_own_axes(void);
/* The operand that is moved, and its axes; NULL: another operation. */
const tn_tvalue *lower_moved_axes(const tn_top *op, const axes *of, axes *out);
bool lower_constant_of(const tn_tvalue *v, int64_t *value); /* every element is this integer */
strides lower_strides_of(const lower *L, const tn_tvalue *v, const axes *of, int *budget);
strides lower_own_strides(const lower *L, const tn_tvalue *v); /* along its own axes */
bool lower_is_injective(const lower *L, const tn_tvalue *p);   /* no two elements of the pointer tile are the same */

/* ---- access.c -------------------------------------------------------------------------------------------------------------- */
bool lower_depends_on(const tn_top *op, const tn_map *marked);           /* op, or something inside it, reads a value of the set */
bool lower_is_used(lower *L, const tn_top *op); /* its first result, by what follows */
bool lower_same_access(const tn_top *a, const tn_top *b);                /* the same elements of views that lie alike */
bool lower_writes_memory(const tn_top *op);
bool lower_is_load(const tn_top *op);       /* by view or pointer */
bool lower_is_expression(const tn_top *op); /* its elements can be computed one by one, wherever they are wanted */
bool lower_walks(const tn_subscript *s, int axis);  /* the index follows that axis of the tile */
const tn_tvalue *lower_accessed_tile(const tn_top *op); /* what a load, store or atomic gives, or stores */
/* The buffer that an operation itself reads or writes, LOWER_MEMORY or LOWER_NOTHING. */
int lower_accessed(const lower *L, const tn_top *op);
bool lower_may_alias(const lower *L, int a, int b);
/* op or an operation in it may write `buffer`. */
bool lower_writes(const lower *L, const tn_top *op, int buffer);
/* What an atomic orders: others see by it what was stored before, what follows sees what others stored. used: its result is. */
typedef struct lower_order {
    bool release, acquire;
} lower_order;
lower_order lower_order_of(const tn_top *op, bool used);
/* Other programs may see what was stored before it, or change what is loaded after it: fences, atomics that order something. */
bool lower_synchronises(const tn_top *op);
/* It, or an operation in it, has what follows see what other programs stored. */
bool lower_acquires(lower *L, const tn_top *op);
bool lower_writes_unknown(const lower *L, const tn_tblock *block); /* by an address, somewhere in the block */
/* Both touch the same element of memory at the same index, and no other two indices share one. */
bool lower_same_element(const lower *L, const tn_top *load, const tn_top *store);

#endif
