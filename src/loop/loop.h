/* The Loop IR: what one worker does. Structured loops over typed buffers in a named memory space; SSA scalars and vectors.
 *
 *     kernel @scale(%x: global f32 readonly, %y: global f32, %n: index) {
 *       for %i = %0 to %n step %1 vector {
 *         %2 = load %x[%i] : f32
 *         %3 = const 2.0 : f32
 *         %4 = mul %2, %3 : f32
 *         store %y[%i], %4
 *       }
 *     }
 *
 * There are no phis and no loop-carried values: what survives an iteration lives in a buffer. A small buffer of space `reg`
 * that is indexed by constants after unrolling becomes registers in the emitter. So a loop can be split, unrolled, widened or
 * moved by rewriting its block alone. A kernel gets its buffers, its sizes (index values) and, as the last two index parameters
 * named %begin and %end, the range of its flattened grid that this worker runs; its outermost loop, kind `grid`, walks it. A number that the kernel
 * is called with is an index parameter too, `%alpha: index of f32`. `multiple 16` behind one is a promise of who calls the kernel.
 *
 * A kernel with `threads N` is for a GPU: N threads run it together for the same part of the grid, and `thread` tells them apart. `local` and `reg` buffers are
 * a thread's own; `shared` ones are the CTA's, at a place in its shared memory that whoever makes the kernel gives (buffers that don't live at once may overlap):
 *
 *     %s = alloc 128 at 512 : shared f32      128 elements from byte 512 on; contents undefined until written
 *     store %s[%t], %x
 *     barrier                                 all threads meet; what each wrote before, in shared or global memory, all read after
 *     %y = load %s[%u] : f32
 *     %z = lane_xor %y, 16 : f32              what the lane whose number differs in bit 4 has; all 32 lanes of the warp must run it
 *
 * With `threads N cluster M` M CTAs, which the machine runs side by side, share each part of the grid, and `cta` tells them apart. Each has shared memory of its
 * own; into that of the others it gets by `machine` instructions alone, which fill it as copies do: @send_4 and @send_8.
 *
 *     machine @mma_m16n8k16_bf16 %acc[%0], %a[%1], %b[%2]     an instruction of GPUs, on parts of `reg` and shared buffers; loop/machine.def says which
 *
 *     map %t: bf16 of %x at 0 sizes (k, m) strides (k) box (64, 128) swizzle 128     first of all in a kernel: a view of %x that the machine copies boxes of (tn_lmap)
 *     roles 256 { … } else { … }              the CTA's first 256 threads run the first block, the others the second, both at once; a barrier in one is for its
 *                                             threads alone, and behind it all have met. What passes between them goes by mbarriers, which are `machine` instructions
 *     roles 256 instances 2 { … } else { … }  the same, but the first 256 threads are two times 128 that run the first block each by themselves: a barrier is for the
 *                                             threads of one instance, and a loop of kind `grid` gives them the CTA's programs in turns
 *
 * Between two barriers no two threads touch one element if one of them writes it, atomics apart. The interpreter reports what breaks these rules.
 *
 * Offsets are in elements of the buffer's type, one flat index; the vectoriser finds strides by walking the SSA arithmetic.
 * `vector` on a loop is a promise by who made it: iterations are independent (or touch only their own elements), any order and any number
 * at once is right. Nothing but vectorize.c turns it into vectors; the lowering writes scalar bodies. */
#ifndef TN_LOOP_H
#define TN_LOOP_H

#include "graph/graph.h"

typedef enum tn_lopcode {
#define LOP(name, ...) TN_L_##name,
#include "loop/ops.def"
#undef LOP
    TN_LOP_COUNT
} tn_lopcode;

typedef enum tn_space {
    TN_SPACE_GLOBAL, /* kernel parameter */
    TN_SPACE_LOCAL,  /* thread-local memory (scratch; stack when small and constant) */
    TN_SPACE_REG,    /* small, constant size; registers once all its offsets are constants */
    TN_SPACE_SHARED, /* of all threads of a CTA: constant size, at a byte offset in its shared memory */
    TN_SPACE_MAP     /* no memory of its own: a tn_lmap, operand of `machine` */
} tn_space;
typedef enum tn_loop_kind { TN_FOR_SERIAL, TN_FOR_GRID, TN_FOR_VECTOR, TN_FOR_UNROLL } tn_loop_kind;

/* Who sees an atomic, or a fence, as one: the CTA, the GPU, all that share memory with it. A CPU's are for all. Printed `cta`, `sys` behind it. */
typedef enum tn_lscope { TN_SCOPE_GPU, TN_SCOPE_CTA, TN_SCOPE_SYS } tn_lscope;

typedef struct tn_lvalue tn_lvalue;
typedef struct tn_lop tn_lop;
typedef struct tn_lblock tn_lblock;

typedef struct tn_ltype {
    tn_dtype dtype;
    int lanes;        /* 1: scalar; bool lanes are masks */
    bool buffer;      /* a buffer of dtype in `space`; lanes 1 (a `reg` buffer of a widened loop body may hold vectors: lanes > 1) */
    tn_space space;
} tn_ltype; /* index: TN_I64, lanes 1 */

struct tn_lvalue {
    tn_ltype type;
    tn_lop *def;       /* NULL: parameter or block argument */
    tn_lblock *block;  /* where it is defined */
    const char *name;
    uint32_t id;
    bool readonly;     /* buffer parameter never written while the kernel runs */
    int64_t align;     /* of a buffer's start, bytes */
    int64_t multiple;  /* of an index parameter: what its value is a multiple of, as whoever calls the kernel promises; 0: nothing is promised */
    tn_dtype holds;    /* of an index parameter: the number that it holds, extended to 64 bits (floats: its bits); TN_NO_DTYPE: a size */
    void *scratch;     /* for the pass that runs; not kept */
};
struct tn_lop {
    tn_lopcode code;
    tn_scalar fn;          /* fn, hreduce, atomic (TN_SCALAR_NONE: exchange) */
    tn_loop_kind kind;     /* for */
    int noperands, nregions;
    tn_lvalue **operand;
    tn_lvalue *result;     /* NULL: none */
    tn_lblock *region[2];
    tn_number number;      /* const, trap, lane_xor (the mask) */
    int64_t size;          /* alloc: elements if constant (-1: operand 0) */
    int64_t at;            /* alloc of shared memory: its first byte there */
    int instances;         /* roles: of the first block; number: all their threads */
    const int *lanes;      /* shuffle: result->type.lanes entries */
    const char *name;      /* intrinsic, machine; print: its text, with a place for each value (tn_l_print_piece) */
    bool turned;           /* for of kind grid: every second round of CTAs takes its programs the other way round; printed `turned` */
    bool stream;           /* store: past the caches, since nothing reads it soon; whole vectors are aligned to their size. A hint, printed `stream` */
    bool contract;         /* fn: of a product and a sum that both say so a machine may make one operation that rounds once; of exp2 of f32, denormal results may be 0. A permission, printed `contract` */
    tn_lscope scope;        /* atomic, atomic_load, cas, fence */
    tn_lblock *block;
    tn_lop *prev, *next;
    int line;              /* of the user's source, 0: none */
};
struct tn_lblock {
    tn_lvalue *arg;        /* for: the index */
    tn_lop *first, *last;
    tn_lop *parent;
};
/* A view that a GPU copies boxes of by itself, what CUDA calls a tensor map: whoever launches the kernel makes it from these numbers (cuTensorMapEncodeTiled, whose
 * limits hold: sizes below 2^32, strides and the start multiples of 16 bytes, box at most 256 along a dimension) and passes it as a parameter behind all others.
 * Elements of a box that lie outside of the sizes are 0 where it is loaded, and not stored. */
enum { TN_MAP_RANK = 5, TN_MOST_MAPS = 16 /* of a kernel */, TN_MAP_BOX = 256 /* elements of a box along a dimension, at most */ };
typedef struct tn_lmap {
    tn_lvalue *value;           /* what instructions name; a buffer of TN_SPACE_MAP and the buffer's type */
    tn_lvalue *buffer;          /* a global buffer of the kernel */
    int rank;                   /* dimensions, the one of neighbours first */
    tn_dim offset;              /* elements from the buffer's start to the view's; symbols are the kernel's index parameters by name */
    tn_dim size[TN_MAP_RANK];
    tn_dim stride[TN_MAP_RANK]; /* elements; of the first one 1 */
    int box[TN_MAP_RANK];
    int swizzle;                /* 0; or 32, 64, 128 bytes, which box[0] elements are: 16-byte pieces of a row lie permuted by the row's number */
} tn_lmap;
typedef struct tn_lfunc {
    tn_session *session;
    const char *name;
    TN_VEC(tn_lvalue *) params; /* buffers first, then sizes (index), then %begin, %end */
    int nbuffers;
    bool overlap; /* the buffers may overlap in memory in any way: what is written may be any of them, so that none is readonly */
    int threads;  /* of a CTA, on a GPU; 0: one worker runs it alone */
    int cluster;    /* on a GPU: CTAs that work on each program together; printed `cluster N` behind `threads`. 0: one */
    int persistent; /* on a GPU: a launch has at most so many CTAs for each processor, which walk the programs; printed `persistent N` behind `threads`. 0: one for each program */
    int resident; /* on a GPU: CTAs that a processor is to hold at once, which bounds the registers of a thread; printed `resident N` behind `persistent`. 0: the assembler chooses */
    TN_VEC(tn_lmap) maps;
    const char *remarks; /* of who made it: lines of text, printed as comments before it; NULL: none. Not read back */
    tn_lblock *body;
    uint32_t next_id;
} tn_lfunc;

enum { TN_MOST_THREADS = 1024 /* of a CTA */, TN_WARP = 32 /* lanes of a warp */, TN_MOST_PERSISTENT = 64 /* CTAs for each processor */, TN_MOST_RESIDENT = 32,
       TN_MOST_CLUSTER = 8 /* CTAs of one, that all machines with clusters have */,
       TN_MOST_INSTANCES = 8 /* of a block of roles: PTX has 16 barriers */ };

const char *tn_lop_name(tn_lopcode code);
tn_lopcode tn_lop_from_name(const char *name); /* TN_LOP_COUNT: unknown */
enum { TN_L_PURE = 1, TN_L_READS = 2, TN_L_WRITES = 4, TN_L_REGION = 8, TN_L_LANES = 16 };
unsigned tn_lop_traits(tn_lopcode code);

/* ---- building (asserts on misuse: only our code builds) --------------------------------------------------------------- */
typedef struct tn_lbuilder {
    tn_lfunc *func;
    tn_lblock *block;
    tn_lop *before; /* NULL: end of block */
    int line;
} tn_lbuilder;
tn_lfunc *tn_lfunc_new(tn_session *session, const char *name);
tn_lvalue *tn_lfunc_buffer(tn_lfunc *func, const char *name, tn_dtype dtype, bool readonly, int64_t align);
tn_lvalue *tn_lfunc_index(tn_lfunc *func, const char *name);
tn_lbuilder tn_lbuilder_at_end(tn_lfunc *func, tn_lblock *block);
static inline tn_ltype tn_lscalar(tn_dtype dtype) { return (tn_ltype){dtype, 1, false, TN_SPACE_GLOBAL}; }
static inline tn_ltype tn_lvector(tn_dtype dtype, int lanes) { return (tn_ltype){dtype, lanes, false, TN_SPACE_GLOBAL}; }
tn_lvalue *tn_l_const(tn_lbuilder *b, tn_ltype type, tn_number number);
tn_lvalue *tn_l_index(tn_lbuilder *b, int64_t value);
tn_lvalue *tn_l_fn(tn_lbuilder *b, tn_scalar fn, tn_lvalue *const *operands, int n);
tn_lvalue *tn_l_fn_like(tn_lbuilder *b, const tn_lop *op, tn_lvalue *const *operands); /* the same function, with the same permission, of other operands */
bool tn_l_contracts(tn_scalar fn, tn_dtype dtype); /* it may have that permission */
/* These fold constants and identities on the spot (x + 0, x * 1, …): the lowerings call them for index arithmetic freely. */
tn_lvalue *tn_l_fn1(tn_lbuilder *b, tn_scalar fn, tn_lvalue *x);
tn_lvalue *tn_l_fn2(tn_lbuilder *b, tn_scalar fn, tn_lvalue *x, tn_lvalue *y);
tn_lvalue *tn_l_fn3(tn_lbuilder *b, tn_scalar fn, tn_lvalue *x, tn_lvalue *y, tn_lvalue *z);
tn_lvalue *tn_l_cast(tn_lbuilder *b, tn_lvalue *x, tn_dtype dtype);
tn_lvalue *tn_l_bitcast(tn_lbuilder *b, tn_lvalue *x, tn_ltype type);
tn_lvalue *tn_l_splat(tn_lbuilder *b, tn_lvalue *x, int lanes);
tn_lvalue *tn_l_iota(tn_lbuilder *b, tn_dtype dtype, int lanes);
tn_lvalue *tn_l_extract(tn_lbuilder *b, tn_lvalue *vector, tn_lvalue *lane);
tn_lvalue *tn_l_insert(tn_lbuilder *b, tn_lvalue *vector, tn_lvalue *scalar, tn_lvalue *lane);
tn_lvalue *tn_l_shuffle(tn_lbuilder *b, tn_lvalue *x, tn_lvalue *y, const int *lanes, int n);
tn_lvalue *tn_l_hreduce(tn_lbuilder *b, tn_scalar fn, tn_lvalue *x);
tn_lvalue *tn_l_alloc(tn_lbuilder *b, const char *name, tn_dtype dtype, tn_space space, int64_t size);
tn_lvalue *tn_l_alloc_sized(tn_lbuilder *b, const char *name, tn_dtype dtype, tn_lvalue *size);
/* `elements` from byte `at` of the CTA's shared memory on; `at` is a multiple of an element's size. */
tn_lvalue *tn_l_alloc_shared(tn_lbuilder *b, const char *name, tn_dtype dtype, int64_t elements, int64_t at);
tn_lvalue *tn_l_load(tn_lbuilder *b, tn_lvalue *buffer, tn_lvalue *offset, int lanes, tn_lvalue *mask, tn_lvalue *other);
tn_lvalue *tn_l_gather(tn_lbuilder *b, tn_lvalue *buffer, tn_lvalue *offsets, tn_lvalue *mask, tn_lvalue *other);
tn_lop *tn_l_store(tn_lbuilder *b, tn_lvalue *buffer, tn_lvalue *offset, tn_lvalue *value, tn_lvalue *mask);
void tn_l_scatter(tn_lbuilder *b, tn_lvalue *buffer, tn_lvalue *offsets, tn_lvalue *value, tn_lvalue *mask);
tn_lvalue *tn_l_memory(tn_lbuilder *b, tn_dtype dtype);        /* one a function and type is enough: simplify merges them */
tn_lvalue *tn_l_address(tn_lbuilder *b, tn_lvalue *buffer);
/* The old value. fn TN_SCALAR_NONE: exchange. With a mask that is off memory is not touched and the value is 0. Sequentially consistent. */
tn_lvalue *tn_l_atomic(tn_lbuilder *b, tn_scalar fn, tn_lvalue *buffer, tn_lvalue *offset, tn_lvalue *value, tn_lvalue *mask);
/* Loads each time it is run, never before or behind its place. What others stored before what it finds there is seen after it, on a GPU by a fence. */
tn_lvalue *tn_l_atomic_load(tn_lbuilder *b, tn_lvalue *buffer, tn_lvalue *offset, tn_lvalue *mask);
/* Stores `value` where memory holds the bits of `expected`. */
tn_lvalue *tn_l_cas(tn_lbuilder *b, tn_lvalue *buffer, tn_lvalue *offset, tn_lvalue *expected, tn_lvalue *value, tn_lvalue *mask);
tn_lvalue *tn_l_thread(tn_lbuilder *b);
tn_lvalue *tn_l_cta(tn_lbuilder *b);
void tn_l_barrier(tn_lbuilder *b);
/* Instructions of the machine on scalars, "=f,f,f\nadd.f32 $0, $1, $2;": constraints of the result and the operands, then text. */
tn_lvalue *tn_l_asm(tn_lbuilder *b, const char *text, tn_lvalue *const *operands, int n, tn_dtype result);
/* The instruction of that name (loop/machine.def), on parts of buffers (a buffer and an offset each) and numbers, in the row's order. */
void tn_l_machine(tn_lbuilder *b, const char *name, tn_lvalue *const *operands, int n);
void tn_l_fence(tn_lbuilder *b, tn_lscope scope); /* between CTAs, around an atomic that passes something on; a barrier is one for the threads of this CTA */
/* Declares a map and gives its value; an equal one is the same value. `value` and `stride[0]` need not be set. */
tn_lvalue *tn_lfunc_map(tn_lfunc *func, const tn_lmap *map);
/* Threads below `first` (a multiple of a warp for each instance, less than the CTA's) run region[0] of the op, in so many instances, the others region[1]. Only at
 * the top of a kernel. */
tn_lop *tn_l_roles(tn_lbuilder *b, int64_t first, int instances);
/* x, a real scalar, as the lane has it whose number is this lane's number ^ mask, mask <= 31; or the lane of number `lane` mod 32. */
tn_lvalue *tn_l_lane_xor(tn_lbuilder *b, tn_lvalue *x, int64_t mask);
tn_lvalue *tn_l_lane_at(tn_lbuilder *b, tn_lvalue *x, tn_lvalue *lane);
/* Appends a loop; the returned op's region[0] is its block, ->arg its index. */
tn_lop *tn_l_for(tn_lbuilder *b, const char *name, tn_lvalue *lo, tn_lvalue *hi, tn_lvalue *step, tn_loop_kind kind);
tn_lop *tn_l_if(tn_lbuilder *b, tn_lvalue *cond);
tn_lop *tn_l_while(tn_lbuilder *b);
void tn_l_yield(tn_lbuilder *b, tn_lvalue *cond);
void tn_l_trap(tn_lbuilder *b, tn_lvalue *must_hold, int64_t line);
void tn_l_prefetch(tn_lbuilder *b, tn_lvalue *buffer, tn_lvalue *offset, int level); /* into cache `level`, 1 or 2; never faults */
/* Prints one line. In the text `{}` is the place of the next value, `{x}` of the next one as its bits in hexadecimal, `{{` a brace. */
void tn_l_print(tn_lbuilder *b, const char *text, tn_lvalue *const *values, int n);
/* Takes the next piece off a print's text: plain text [*text, *text + *len), or the place of a value. Wrong text ends as TN_L_PIECE_BAD. */
typedef enum tn_lpiece { TN_L_PIECE_END, TN_L_PIECE_TEXT, TN_L_PIECE_VALUE, TN_L_PIECE_HEX, TN_L_PIECE_BAD } tn_lpiece;
tn_lpiece tn_l_print_piece(const char **at, const char **text, size_t *len);
/* Enters a block: a builder at the end of `block`. */
static inline tn_lbuilder tn_l_in(const tn_lbuilder *b, tn_lblock *block) { return (tn_lbuilder){b->func, block, NULL, b->line}; }
bool tn_l_is_const(const tn_lvalue *v, int64_t *value); /* an integer constant (any integer type or bool) */
tn_lop *tn_lop_clone(tn_lbuilder *b, const tn_lop *op, tn_map *values); /* regions too; values: old -> new */
void tn_lop_erase(tn_lop *op);

/* ---- what `machine` does: rows of machine.def --------------------------------------------------------------------------- */
enum { TN_L_PARTS = 8 };
enum { TN_PART_R = 1, TN_PART_W = 2 };

/* A part of an instruction: a buffer and an offset, or one number. */
typedef struct tn_lpart {
    enum { TN_PART_NONE, TN_PART_REG, TN_PART_SHARED, TN_PART_TILE, TN_PART_GLOBAL, TN_PART_MAP, TN_PART_NUMBER, TN_PART_CONSTANT } kind;
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

/* ---- text, checking, running ------------------------------------------------------------------------------------------- */
void tn_text_lfunc(tn_text *text, const tn_lfunc *func);
typedef TN_VEC(tn_lfunc *) tn_lfuncs;
tn_status tn_loop_parse(tn_session *session, const char *file, const char *source, size_t len, tn_lfuncs *out);
/* Types, scoping, lane counts, operand counts. Stage rules: after vectorize no `vector` loop is left and no vector is wider than `max_bits` (0: no check). */
tn_status tn_loop_verify(const tn_lfunc *func, int max_bits);
size_t tn_loop_size(const tn_lfunc *func); /* operations */
/* A power of two up to 64 that surely divides an integer scalar; the index `first` of a loop counts as its first value (NULL: each counts as all its values). */
int64_t tn_l_multiple(const tn_lvalue *value, const tn_lvalue *first);
int64_t tn_loop_shared_bytes(const tn_lfunc *func); /* of a CTA's shared memory: up to the end of the buffer that ends last */
/* Runs it on host memory, lane by lane through tn_scalar_eval; checks every offset against `elements` (-1: unknown). For tests. */
typedef struct tn_loop_arg { void *data; int64_t elements; } tn_loop_arg;
tn_status tn_loop_interpret(const tn_lfunc *func, const tn_loop_arg *buffers, const int64_t *indices);

/* ---- passes: each one file, one function ------------------------------------------------------------------------------- */
/* What a pass may know of the machine (a row of src/target's table). */
typedef struct tn_vector_spec {
    int bits;            /* vector register width: 128, 256, 512 */
    int registers;       /* vector registers: 16, 32 */
    bool fma;            /* fused multiply-add */
    int mask_min_bits;   /* masked loads/stores exist for elements of at least this many bits (8 AVX-512BW, 32 AVX2); 0: none */
    bool gather;         /* hardware gather for 32/64-bit elements */
    bool approx;         /* a GPU: the instructions of gpu_functions.def, and no C library */
    bool f8;             /* casts between f32 and f8 are instructions */
    int most_lanes;      /* a GPU: a vector is no register but elements that one thread has side by side, so that a loop of a constant number of iterations, a power
                            of two up to this, becomes vectors of exactly that many, under any mask; the emitter cuts accesses into what an instruction takes. 0: a CPU */
    bool scale;          /* x 2^floor(y), rounded once, is an instruction (vscalefps) */
} tn_vector_spec;
typedef struct tn_pass_options {
    tn_vector_spec vector;
    bool fast_math;      /* reassociation etc.; kept for later */
} tn_pass_options;
/* x + 0, x * 1, constants, equal pure operations in one scope, dead pure operations. Index div/rem by constants of known multiples. */
tn_status tn_loop_simplify(tn_lfunc *func, const tn_pass_options *options);
/* Moves pure operations (and loads of readonly buffers that surely run) out of loops. */
tn_status tn_loop_hoist(tn_lfunc *func, const tn_pass_options *options);
/* Widens every `vector` loop to the machine's width: full vectors unmasked, the remainder apart (mask, else scalar). See vectorize.c's essay. */
tn_status tn_loop_vectorize(tn_lfunc *func, const tn_pass_options *options);
/* Unrolls loops of kind `unroll` (constant trip) fully. */
tn_status tn_loop_unroll(tn_lfunc *func, const tn_pass_options *options);
/* Turns scalar functions that no machine has (exp, tanh, erf …) into polynomials, f16/bf16/f8 arithmetic into f32 with casts, integer
 * division and shifts into their defined forms at 0 and overflow. docs/vector-math.md states the accuracy. */
tn_status tn_loop_expand(tn_lfunc *func, const tn_pass_options *options);
/* Splits the loop over `index` by `factor`; interchanges two perfectly nested loops (both independent). For schedules and tests. */
tn_status tn_loop_tile(tn_lfunc *func, const char *index, int64_t factor);
tn_status tn_loop_interchange(tn_lfunc *func, const char *outer, const char *inner);

/* A row of target/cpu/intrinsics.def whose lanes are each by themselves, on one lane of f32; false: it is none. */
bool tn_l_cpu_eval(const char *name, const tn_number *operands, int n, tn_number *result);
/* A row of gpu_functions.def on one lane of f32; false: there is none with that name and number of operands. */
bool tn_l_gpu_eval(const char *name, const tn_number *operands, int n, tn_number *result);

typedef struct tn_loop_pass {
    const char *name;
    tn_status (*run)(tn_lfunc *func, const tn_pass_options *options);
} tn_loop_pass;
extern const tn_loop_pass tn_loop_passes[]; /* by name for `tenon opt`; ends with a NULL name */
extern const char *const tn_loop_pipeline;  /* the default order, comma separated: "simplify,hoist,vectorize,unroll,expand,simplify,hoist,simplify" or better */
/* Runs a comma-separated list; verifies after each pass when `verify`; prints after `print_after` (name or "all", NULL: none) to stderr. */
tn_status tn_loop_run_passes(tn_lfunc *func, const char *list, const tn_pass_options *options, bool verify, const char *print_after);

#endif
