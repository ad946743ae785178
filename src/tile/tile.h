/* The Tile IR: one program instance a grid point, working on tiles (small dense blocks of elements).
 *
 * LayerNorm over the last of two dimensions:
 *
 *     kernel @ln(%x: f32 read, %g: f32 read, %b: f32 read, %y: f32 write) grid(%p : r by $R) {
 *       view %X = %x : [r, 768] strides [768, 1]
 *       view %G = %g : [768] strides [1]
 *       view %B = %b : [768] strides [1]
 *       view %Y = %y : [r, 768] strides [768, 1]
 *       %n = size 768 : i64
 *       %s = fold (%j : %n by $C) axes [1] order any identity [0] : $R x f32 {
 *         %0 = load %X[%p + @0, %j + @1] : $R x $C x f32
 *         yield %0
 *       } combine (%a: f32, %c: f32) {
 *         %1 = add %a, %c : f32
 *         yield %1
 *       }
 *       …
 *       for (%j = %zero to %n by %step) { … store %Y[%p + @0, %j + @1], %9 }
 *     } schedule { bind $R = 1; bind $C = 4096 }
 *
 * Where this differs from the proposal in the reference (docs/tile-ir.md gives the reasons):
 * - A range variable (grid, fold) is the element where the tile starts, not the tile's number, and always a multiple of its step. One form,
 *   `name : limit by extent`, serves grid and fold, and user kernels' block pointers need no division.
 * - window, gather_view and ragged are not operations. A view is one affine description with guards, and a subscript may be an index tile:
 *   together they say all of it. A view's element (i_0 … i_r-1) lies at offset + sum i_d * stride_d; it exists if every i_d is in
 *   [0, shape_d) and, for each guard g, 0 <= g.base + sum g.coef_d * i_d < g.limit. Where it does not exist a load gives the view's
 *   padding, or is absent; a store is dropped.
 * - `local` buffers: memory private to a program instance, so that a row can be kept between two folds where the row's length is a symbol.
 *
 * Absent elements (section 8 of the reference): value 0; elementwise results of absent are absent; select takes the chosen side's state;
 * reduce, fold, scan skip them; dot and stores see 0 / nothing. A fold also leaves out what lies past a range's limit, padding or not
 * (tn_fold_range_of says which axes a range walks).
 *
 * Types carry no layout. Extents are r * 2^k: constants, or parameters `$X` that the schedule binds. */
#ifndef TN_TILE_H
#define TN_TILE_H

#include "graph/graph.h"

enum {
    TN_TILE_RANK = 6,
    TN_TILE_CARRIED = 64,  /* values that `for`, `while` or `if` give, at most */
    TN_TILE_COMBINED = 16, /* tiles that fold, reduce, scan or sort take, at most */
};

typedef enum tn_topcode {
#define TOP(name, ...) TN_T_##name,
#include "tile/ops.def"
#undef TOP
    TN_TOP_COUNT
} tn_topcode;
const char *tn_top_name(tn_topcode code);
tn_topcode tn_top_from_name(const char *name);
enum { TN_T_PURE = 1, TN_T_READS = 2, TN_T_WRITES = 4, TN_T_REGION = 8 };
unsigned tn_top_traits(tn_topcode code);
static inline bool tn_top_is_atomic(tn_topcode code) /* what reads and writes at once */
{
    const unsigned both = TN_T_READS | TN_T_WRITES;
    return (tn_top_traits(code) & both) == both;
}

/* How exactly a dot multiplies factors of f32. The sums are f32 in each; whoever can do better may (a CPU computes ieee always). */
typedef enum tn_precision {
    TN_IEEE,   /* products of the factors as they are */
    TN_TF32,   /* factors may lose their fraction's bits from the 11th on, rounded or cut off */
    TN_TF32X3, /* factors in two parts of tf32, three products: about 2^-21 of what is added up */
} tn_precision;
const char *tn_precision_text(tn_precision precision);
bool tn_precision_from_text(const char *text, tn_precision *out);

typedef struct tn_extent {
    int64_t size;      /* 0 while only the parameter is known */
    const char *param; /* interned "$X"; NULL: a constant */
} tn_extent;

typedef struct tn_ttype {
    tn_dtype dtype;
    int rank; /* 0: a scalar; index is an i64 scalar */
    tn_extent extent[TN_TILE_RANK];
    bool pointer; /* elements are pointers to dtype */
} tn_ttype;

typedef struct tn_tvalue tn_tvalue;
typedef struct tn_top tn_top;
typedef struct tn_tblock tn_tblock;

/* How one dimension of a view is indexed. axes: axes of the loaded or stored tile. */
typedef struct tn_subscript {
    tn_tvalue *value; /* BLOCK: scalar start.  INDEX: an integer tile (or scalar, naxes 0) */
    bool block;       /* index = value + i_axis[0]; else value[i_axis[0], …, i_axis[naxes - 1]] */
    bool inside;      /* the producer guarantees that what is needed of it lies in [0, shape): no check is made; printed `in(…)` */
    int naxes;
    int axis[TN_TILE_RANK];
} tn_subscript; /* an axis that no subscript names repeats */

/* Shape of a dimension without bounds, `*` in text: every index exists, negative ones too. Its subscript is `in`. For what pointers count from. */
#define TN_TILE_ANY INT64_MAX

typedef struct tn_guard {
    tn_dim coef[TN_MAX_RANK]; /* one a view dimension */
    tn_dim base, limit;
} tn_guard;

typedef struct tn_view {
    const char *name;
    int buffer; /* index into kernel->buffers */
    int rank;
    tn_dim shape[TN_MAX_RANK], stride[TN_MAX_RANK]; /* elements */
    tn_dim offset;
    int nguards;
    tn_guard *guard;
    bool padded; /* else absent */
    tn_number padding;
    /* Memory map. 0: plain strides. Else packed panels of the last two dimensions (k, n): offset + ((n / panel) * shape_k + k) * panel + n % panel,
     * columns filled with zeros up to a multiple of `panel`; leading dimensions by their strides. For the right operand of products. */
    int64_t panel;
} tn_view;

typedef enum tn_buffer_mode { TN_READ, TN_WRITE, TN_READ_WRITE, TN_LOCAL } tn_buffer_mode;
typedef struct tn_tbuffer {
    const char *name;
    tn_dtype dtype;
    tn_buffer_mode mode;
    tn_dim elements; /* LOCAL: size; parameters: number of elements, for checks (may be NULL: unknown) */
    int64_t align;   /* bytes that divide the address of its start, as whoever calls the kernel promises: a power of two; 0: those of an element */
} tn_tbuffer;

/* `name : limit by step`: a grid coordinate */
typedef struct tn_trange {
    tn_tvalue *value;
    tn_dim limit;
    tn_extent step;
} tn_trange;

struct tn_tvalue {
    tn_ttype type;
    tn_top *def;   /* NULL: a grid coordinate, scalar parameter or block argument */
    tn_tblock *block;
    const char *name;
    uint32_t id;
    int64_t divisor; /* of a number parameter: the number is a multiple of it, as whoever calls the kernel promises; 0: nothing is promised */
    void *scratch; /* for the pass that runs */
};
struct tn_top {
    tn_topcode code;
    tn_scalar fn;             /* map, atomic */
    int noperands, nresults, nregions;
    tn_tvalue **operand;      /* load/store: the subscripts are apart, below */
    tn_tvalue *result;        /* array */
    tn_tblock *region[2];
    const tn_view *view;      /* load, store, atomic */
    tn_subscript *subscript;  /* view->rank of them */
    tn_dim dim;               /* size */
    tn_number number;         /* const; slice: start */
    tn_number *identity;      /* reduce, fold, scan: one a result; reduce, scan: NULL: the first element that is there starts, of none comes 0 */
    int naxes;
    int axis[TN_TILE_RANK];   /* broadcast, permute, reduce, fold, scan, sort, gather, cat, slice */
    int nranges;              /* fold: body arguments 0 … nranges - 1 */
    tn_extent step[TN_TILE_RANK]; /* fold: a range's step; for: step[0] if constant operand is not used */
    bool ordered;             /* fold, reduce: `order tree` (adjacent elements); else any */
    bool reverse;             /* scan */
    bool hex;                 /* print: integers in hexadecimal */
    tn_precision precision;   /* dot */
    int64_t imprecise;        /* dot of f8: of so many products the machine may make a sum with fewer bits than the result's type has; 0: of any number */
    const char *text;         /* print, assert, asm; atomic_ptr, cas_ptr, atomic_load: memory order and scope, "acq_rel.gpu" */
    const char *label;        /* name by which the schedule speaks of it; NULL: none */
    tn_tblock *block;
    tn_top *prev, *next;
    tn_loc loc;
};
struct tn_tblock {
    tn_tvalue *arg;
    int nargs;
    tn_top *first, *last;
    tn_top *parent;
};

/* A schedule is data. `bind` gives extents; entries say how: (op label or "" for the kernel, key, value). Keys that the CPU lowering reads:
 *   threads-grain   programs a task at least
 *   vector-axis     of a fold or store: which tile axis the vectors walk (default: the last)
 *   lanes           of a fold: partial results kept (default 4 vectors)
 *   rows, columns   of a dot: register tile (default: the machine's)
 *   unroll          of a dot: values of k an iteration (default: the machine's)
 *   ahead           of a dot: rows of the packed panel that are asked for early (default 0: none)
 *   strip           of a dot: values of k summed for all rows before the next (0: the whole sum at once; default by the machine's L2)
 *   direct          of a dot: where there are at most so many rows, no more than the register tile's, a right operand that is not packed is computed as it is
 *                   multiplied, else a panel of it is packed first (default 2)
 *   window          of a fold that adds up a dot: turns of its first range for which such a panel is packed at once; the sums of all rows wait for the next
 *                   ones (0: all, the default)
 *   prefetch        of a load: programs ahead whose elements are asked for now (rows that stream from memory while this row is in use; default: 1 in the
 *                   second nest that reads a row)
 *   prefetch-buffer of such a load: the parameter to ask for instead, which lies as the loaded view does (a result's row, before it is written)
 *   keep            of an operation with one result: 1: the tile is written to memory by the first nest that computes it, and read by later ones; 0: it is
 *                   computed again each time (default by what it costs)
 * Keys that the GPU lowering reads:
 *   warps           of the kernel: warps of 32 threads that work on a program together (default 4)
 *   group           of the kernel: the last coordinate goes in bands of so many programs: a band runs through all of the coordinate before it, before the next
 *                   one starts (products: operands that neighbours share stay in the L2)
 *   stages          of a fold that adds up a dot, or of the kernel for all: strips of the operands in shared memory at once, as far as there is room (default 3)
 * An unknown label or key is an error of the verifier. */
typedef struct tn_schedule_entry {
    const char *label, *key;
    int64_t value;
} tn_schedule_entry;
typedef struct tn_binding {
    const char *param; /* "$R" */
    int64_t value;
} tn_binding;
typedef struct tn_schedule {
    TN_VEC(tn_binding) bind;
    TN_VEC(tn_schedule_entry) entry;
} tn_schedule;
int64_t tn_schedule_get(const tn_schedule *schedule, const char *label, const char *key, int64_t otherwise);

/* The register tile of a product on a CPU whose tile is rows x vectors (machines.def) at its best: vectors of `width` elements that cover `columns` columns (0: not
 * known) at the least cost; how many rows such a tile has, which needs as many accumulators. */
int tn_dot_vectors(int rows, int vectors, int64_t width, int64_t columns);
int tn_dot_rows(int rows, int vectors, int used);

/* A result of this many bytes, which its kernel does not read, is stored past the caches (it would push out what is still needed, and be gone when it is wanted). */
enum { TN_STREAM_BYTES = 32 << 20 };

/* Rows of more bytes than that are shared by the CTAs of a cluster. Each CTA has so many of them, in so many warps at most: two are on a processor, whose loads, reductions
 * and stores overlap (RMSNorm of 65536 columns of bf16: 0.966 of a copy by two CTAs of 16 warps, 0.90 by four of 8, 0.93 by four of 16; by one 0.95). */
enum { TN_CLUSTER_ROW = 64 << 10, TN_CLUSTER_PART = 64 << 10, TN_CLUSTER_WARPS = 16 };

/* What a schedule may know of the machine it is made for. */
typedef struct tn_tile_target {
    int vector_bits;            /* vector register width */
    int dot_rows, dot_vectors;  /* register tile of a product: rows x vectors */
    int64_t l1_bytes, l2_bytes; /* a core */
    int threads;
    bool gpu;                   /* a program is a CTA: its tiles are held by the registers of `warps` (of its schedule) warps */
    int processors;             /* of a GPU: how many programs run side by side at least */
    int wave;                   /* of a GPU: how many processors the one has that times are estimated for */
    int64_t shared;             /* of a GPU: bytes of memory that programs on one of them share; one can have it all */
    bool groups;                /* of a GPU: products of four warps (wgmma) */
    int cluster;                /* of a GPU: CTAs that work on one program together, at most */
    int registers;              /* of a GPU: of 32 bits, of a processor */
} tn_tile_target;

typedef struct tn_kernel {
    tn_session *session;
    const char *name;
    TN_VEC(tn_tbuffer) buffers; /* parameters in order, then locals */
    TN_VEC(tn_view *) views;
    TN_VEC(tn_tvalue *) scalars; /* scalar parameters (user kernels) */
    TN_VEC(tn_trange) grid;      /* first is outermost */
    tn_tblock *body;
    tn_schedule schedule;
    bool contract;               /* a product and a sum of f32 or f64 may be rounded once, denormal results of exp2 be 0, where the machine does that (user kernels on a GPU) */
    bool overlap;                /* parameters may overlap in memory (user kernels); else they are the same buffer or apart */
    uint32_t next_id;
} tn_kernel;

/* ---- building (asserts on misuse) -------------------------------------------------------------------------------------- */
typedef struct tn_tbuilder {
    tn_kernel *kernel;
    tn_tblock *block;
    tn_loc loc;
} tn_tbuilder;
tn_kernel *tn_kernel_new(tn_session *session, const char *name);
int tn_kernel_buffer(tn_kernel *kernel, const char *name, tn_dtype dtype, tn_buffer_mode mode, tn_dim elements);
tn_view *tn_kernel_view(tn_kernel *kernel, const char *name, int buffer, int rank, const tn_dim *shape, const tn_dim *stride, tn_dim offset);
void tn_view_guard(tn_kernel *kernel, tn_view *view, const tn_dim *coef, tn_dim base, tn_dim limit);
tn_tvalue *tn_kernel_scalar(tn_kernel *kernel, const char *name, tn_ttype type); /* a pointer starts at the buffer of the same name */
tn_tvalue *tn_kernel_grid(tn_kernel *kernel, const char *name, tn_dim limit, tn_extent step);
tn_kernel *tn_kernel_clone(const tn_kernel *kernel); /* nothing is shared but names and dimensions; in the kernel's session */
void tn_schedule_bind(tn_kernel *kernel, const char *param, int64_t value);
void tn_schedule_set(tn_kernel *kernel, const char *label, const char *key, int64_t value);
enum { TN_TILE_ODD = 15 }; /* an extent is r * 2^k with odd r up to this */
bool tn_extent_is_good(int64_t size);
tn_extent tn_extent_const(int64_t size);
tn_extent tn_extent_param(tn_kernel *kernel, const char *param); /* "$R" */
tn_ttype tn_tile_type(tn_dtype dtype, int rank, const tn_extent *extents);
static inline tn_ttype tn_tscalar(tn_dtype dtype) { return (tn_ttype){.dtype = dtype}; }
tn_tbuilder tn_tbuilder_at(tn_kernel *kernel, tn_tblock *block, tn_loc loc);
tn_tvalue *tn_t_const(tn_tbuilder *b, tn_ttype type, tn_number number);
tn_tvalue *tn_t_index(tn_tbuilder *b, int64_t value);
tn_tvalue *tn_t_size(tn_tbuilder *b, tn_dim dim);
tn_tvalue *tn_t_range(tn_tbuilder *b, tn_tvalue *start, tn_extent extent);
tn_subscript tn_sub_block(tn_tvalue *start, int axis);
tn_subscript tn_sub_point(tn_tvalue *index);
tn_subscript tn_sub_index(tn_tvalue *index, int naxes, const int *axes);
tn_tvalue *tn_t_load(tn_tbuilder *b, const tn_view *view, const tn_subscript *subscripts, tn_ttype type);
void tn_t_store(tn_tbuilder *b, const tn_view *view, const tn_subscript *subscripts, tn_tvalue *value);
/* Operands of equal shape, or scalars (rank 0), which are broadcast on the spot. Folds scalar constants (index arithmetic). */
tn_tvalue *tn_t_map(tn_tbuilder *b, tn_scalar fn, tn_tvalue *const *operands, int n);
tn_tvalue *tn_t_map1(tn_tbuilder *b, tn_scalar fn, tn_tvalue *x);
tn_tvalue *tn_t_map2(tn_tbuilder *b, tn_scalar fn, tn_tvalue *x, tn_tvalue *y);
tn_tvalue *tn_t_map3(tn_tbuilder *b, tn_scalar fn, tn_tvalue *x, tn_tvalue *y, tn_tvalue *z);
tn_tvalue *tn_t_cast(tn_tbuilder *b, tn_tvalue *x, tn_dtype dtype);
tn_tvalue *tn_t_bitcast(tn_tbuilder *b, tn_tvalue *x, tn_dtype dtype);
tn_tvalue *tn_t_broadcast(tn_tbuilder *b, tn_tvalue *x, tn_ttype type, const int *axes);
tn_tvalue *tn_t_permute(tn_tbuilder *b, tn_tvalue *x, const int *axes);
tn_tvalue *tn_t_reshape(tn_tbuilder *b, tn_tvalue *x, tn_ttype type);
tn_tvalue *tn_t_dot(tn_tbuilder *b, tn_tvalue *x, tn_tvalue *y, tn_dtype dtype, tn_precision precision);
bool tn_t_dot_takes(tn_dtype x, tn_dtype y); /* factors: of one type, or of two of 8 bits */
tn_tvalue *tn_t_join(tn_tbuilder *b, tn_tvalue *x, tn_tvalue *y);
void tn_t_split(tn_tbuilder *b, tn_tvalue *x, tn_tvalue **first, tn_tvalue **second);
tn_tvalue *tn_t_cat(tn_tbuilder *b, tn_tvalue *x, tn_tvalue *y, int axis);
tn_tvalue *tn_t_slice(tn_tbuilder *b, tn_tvalue *x, int axis, int64_t start, int64_t extent); /* start: a multiple of extent */
tn_tvalue *tn_t_gather(tn_tbuilder *b, tn_tvalue *x, tn_tvalue *index, int axis);
tn_tvalue *tn_t_histogram(tn_tbuilder *b, tn_tvalue *x, int64_t bins, tn_dtype dtype); /* bins: of the result's one axis */
tn_tvalue *tn_t_assume(tn_tbuilder *b, tn_tvalue *x, tn_tvalue *fact);
void tn_t_assert(tn_tbuilder *b, tn_tvalue *condition, const char *text);
void tn_t_print(tn_tbuilder *b, const char *text, bool hex, tn_tvalue *const *values, int n);
void tn_t_fence(tn_tbuilder *b);
/* Inline assembly, element by element: operands of one shape, the result has it too. text: the constraints, a newline, the instructions. */
tn_tvalue *tn_t_asm(tn_tbuilder *b, const char *text, tn_tvalue *const *operands, int n, tn_ttype result);
/* Pointers. mask, other: NULL: none; scalars go with scalar pointers only: broadcast before. */
tn_tvalue *tn_t_addptr(tn_tbuilder *b, tn_tvalue *pointer, tn_tvalue *offset);
tn_tvalue *tn_t_load_ptr(tn_tbuilder *b, tn_tvalue *pointer, tn_tvalue *mask, tn_tvalue *other);
void tn_t_store_ptr(tn_tbuilder *b, tn_tvalue *pointer, tn_tvalue *value, tn_tvalue *mask);
tn_tvalue *tn_t_atomic_ptr(tn_tbuilder *b, tn_scalar fn, tn_tvalue *pointer, tn_tvalue *value, tn_tvalue *mask, const char *order);
/* Loads now, each time that control comes by: other programs may have changed it meanwhile. */
tn_tvalue *tn_t_atomic_load(tn_tbuilder *b, tn_tvalue *pointer, tn_tvalue *mask, const char *order);
tn_tvalue *tn_t_cas_ptr(tn_tbuilder *b, tn_tvalue *pointer, tn_tvalue *expected, tn_tvalue *value, const char *order);
/* A pointer's bits as i64 and back, or as a pointer to another type: bitcast to a type with `pointer` set or i64. Shape of x. */
tn_tvalue *tn_t_bitcast_type(tn_tbuilder *b, tn_tvalue *x, tn_ttype element);
/* fold: limits are index values. Fill op->region[0] (body; arguments: the starts) ending in yield, and op->region[1] (combine: 2n scalars -> n), then
 * call tn_t_fold_finish, which makes the results from what the body yields with `axes` removed. */
tn_top *tn_t_fold(tn_tbuilder *b, int nranges, tn_tvalue *const *limits, const tn_extent *steps, int naxes, const int *axes);
void tn_t_fold_finish(tn_tbuilder *b, tn_top *fold, const tn_number *identities, int n);
/* Inclusive scan along an axis; fill region[0] as for reduce. identities: NULL: none is known. */
tn_top *tn_t_scan(tn_tbuilder *b, tn_tvalue *const *tiles, int n, int axis, bool reverse, const tn_number *identities);
/* Stable sort along an axis of n tiles by `before` (region[0]: 2n scalars -> bool), to be filled. */
tn_top *tn_t_sort(tn_tbuilder *b, tn_tvalue *const *tiles, int n, int axis);
tn_top *tn_t_reduce(tn_tbuilder *b, tn_tvalue *const *tiles, int n, int naxes, const int *axes, const tn_number *identities); /* fill region[0]; identities: NULL: none is known */
/* Fills a combine region with one function: (a, b) -> fn(a, b). */
void tn_t_combine_fn(tn_tbuilder *b, tn_tblock *combine, tn_scalar fn, tn_dtype dtype);
/* The single function of a combine region of one value, else TN_SCALAR_NONE. */
tn_scalar tn_combine_fn(const tn_tblock *combine);
bool tn_top_loads_all(const tn_top *load); /* every element of what a load gives is something: what does not exist is padding, or it is known to lie inside */
/* The range of `fold` that walks `axis` of v, a value of its body: v is made element by element (map, cast, bitcast, broadcast, permute) of
 * `range` of the range's start, of a load at start + @axis, or at an index tile so made. -1: none. The fold leaves out elements at start + i >= limit. */
int tn_fold_range_of(const tn_top *fold, const tn_tvalue *v, int axis);
/* For searches through operands: each value and axis once, 256 at most. enter: false if it was there, or there is no room. */
typedef struct tn_axis_search {
    int n, axis[256];
    const tn_tvalue *value[256];
} tn_axis_search;
bool tn_axis_search_enter(tn_axis_search *search, const tn_tvalue *v, int axis);
/* The axis of operand i that becomes the result's `axis`, for the elementwise operations above; -1: none. */
int tn_axis_of_operand(const tn_top *op, int i, int axis);
tn_top *tn_t_for(tn_tbuilder *b, tn_tvalue *lo, tn_tvalue *hi, tn_tvalue *step, tn_tvalue *const *carried, int n);
tn_top *tn_t_while(tn_tbuilder *b, tn_tvalue *const *carried, int n);
tn_top *tn_t_if(tn_tbuilder *b, tn_tvalue *cond, int nresults, const tn_ttype *results);
void tn_t_yield(tn_tbuilder *b, tn_tvalue *const *values, int n);
tn_tvalue *tn_tblock_arg(tn_kernel *kernel, tn_tblock *block, tn_ttype type, const char *name);

/* ---- text, checking, running ------------------------------------------------------------------------------------------- */
void tn_text_kernel(tn_text *text, const tn_kernel *kernel);
typedef TN_VEC(tn_kernel *) tn_kernels;
tn_status tn_tile_parse(tn_session *session, const char *file, const char *source, size_t len, tn_kernels *out);
tn_status tn_tile_verify(const tn_kernel *kernel);
/* Calls visit on every operation, an operation before its regions. */
void tn_tile_walk(const tn_tblock *block, void (*visit)(void *context, tn_top *op), void *context);
size_t tn_tile_size(const tn_kernel *kernel); /* operations, regions included */
void tn_top_move_before(tn_top *op, tn_top *at); /* op may be in another block; what it reads must be there */
/* Replaces every parameter by what the schedule binds; an unbound one is an error. Gives reductions and scans without identity one (a flag that says
 * whether there is something yet goes along). Runs before a lowering. */
tn_status tn_tile_bind(tn_kernel *kernel);
/* Runs every program instance in grid order on host memory, by the definitions above; checks accesses against buffer sizes. */
typedef struct tn_tile_arg { void *data; int64_t elements; } tn_tile_arg; /* elements < 0: unknown, not checked */
tn_status tn_tile_interpret(const tn_kernel *kernel, const tn_tile_arg *buffers,
                            bool (*lookup)(void *context, const char *symbol, int64_t *value), void *context);
/* The checked mode of user kernels: runs it, and reports with the source line and the program's coordinates
 *   an access outside its buffer, a failed assertion, a `while` that can't end because a turn changed nothing (errors: the run ends), an element that two programs touch, one of them writing without an atomic
 *   (an error once a line, the run goes on), a load of an element of `fresh` buffers that no store has written (an error once a line),
 *   a sum or product of an address or mask that wraps (an error once a line);
 *   warnings, once a line: an absent element (a masked lane without `other`) whose 0 is seen, by a loop that carries it, a branch, a gather or a product. */
typedef struct tn_tile_check_options {
    const bool *fresh; /* one a buffer: its contents are undefined at the start; NULL: none */
    void (*print)(void *context, const char *line); /* what `print` prints; NULL: to stdout */
    void *context;
} tn_tile_check_options;
tn_status tn_tile_check(const tn_kernel *kernel, const tn_tile_arg *buffers, bool (*lookup)(void *context, const char *symbol, int64_t *value), void *context,
                        const tn_tile_check_options *options);
/* Passes on the Tile IR, by name for `tenon opt` (tile-simplify: constants, equal loads, dead operations; recover: pointer arithmetic into views, loops of
 * products into folds; inline: loops and folds that surely run once become their bodies; fold-scaled: loops that add up what is computed from a product, into folds). recover leaves a note on the session for each access that stays a pointer access: which fact is missing. */
typedef struct tn_tile_pass { const char *name; tn_status (*run)(tn_kernel *kernel); } tn_tile_pass;
extern const tn_tile_pass tn_tile_passes[];
/* What user kernels go through before they are lowered: tile-simplify, recover, tile-simplify. */
tn_status tn_tile_optimize(tn_kernel *kernel);
/* Before a lowering whose tiles are held by threads: inline, fold-scaled, tile-simplify. A row that one tile holds is then loaded once, whatever is reduced along it. Reads
 * what the schedule binds. */
tn_status tn_tile_straighten(tn_kernel *kernel);
size_t tn_tile_pointer_accesses(const tn_kernel *kernel); /* load_ptr and store_ptr that are left */

#endif
