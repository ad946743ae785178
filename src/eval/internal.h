/* What the files of eval/ share: the running evaluator, its values, scalar kernels and regions. */
#ifndef TN_EVAL_INTERNAL_H
#define TN_EVAL_INTERNAL_H

#include "eval/eval.h"

/* An f32 at any address: constants may be borrowed from a file, which aligns nothing. */
typedef float tn_loose_f32 __attribute__((aligned(1)));

/* A tensor while a graph runs. Shared by reference count; data is malloc'ed with it, or borrowed (constants, inputs).
 */
typedef struct tn_eval_value {
    tn_tensor tensor;
    int refs;
    size_t bytes; /* counted against max_bytes; 0 if borrowed */
    void *memory; /* NULL if borrowed */
} tn_eval_value;

/* Scratch memory of one operation, given back by the driver when the operation has ended (well or not). */
typedef struct tn_eval_scratch {
    struct tn_eval_scratch *next;
    size_t bytes;
} tn_eval_scratch;

typedef struct tn_evaluator {
    tn_session *session;
    tn_dim_env *env;      /* NULL: no symbol may occur */
    tn_eval_value **slot; /* by tn_value.id: values alive; NULL when one op without regions is evaluated */
    int *uses;            /* by tn_value.id: uses still to come */
    uint32_t slots;
    tn_eval_scratch *scratch;
    int64_t bytes, max_bytes, work, max_work;
    int depth; /* regions entered; more than MAX_DEPTH is refused */
    const tn_eval_options *options;
} tn_evaluator;

/* One function an operation: reads in[0..noperands), fills out[0..nresults) with new references. On failure the driver
 * releases what out holds. Operand types and sizes were compared with op's own before. */
typedef tn_status (*tn_eval_fn)(tn_evaluator *e, const tn_op *op, tn_eval_value *const *in, tn_eval_value **out);
#define OP(name, ...)                                                                                                  \
    tn_status tn_eval_##name(tn_evaluator *e, const tn_op *op, tn_eval_value *const *in, tn_eval_value **out);
#include "graph/ops.def"
#undef OP
#define EVAL(name)                                                                                                     \
    tn_status tn_eval_##name(tn_evaluator *e, const tn_op *op, tn_eval_value *const *in, tn_eval_value **out)

/* ---- memory and work (eval.c) ------------------------------------------------------------------------------------ */

tn_status tn_eval_new(tn_evaluator *e, tn_loc loc, tn_dtype dtype, int rank, const int64_t *dims,
                      tn_eval_value **out);                                             /* zeroed */
tn_status tn_eval_result(tn_evaluator *e, const tn_op *op, int i, tn_eval_value **out); /* of the type of result i */
tn_status tn_eval_borrow(tn_evaluator *e, tn_loc loc, const tn_tensor *tensor, tn_eval_value **out);
static inline tn_eval_value *tn_eval_retain(tn_eval_value *v)
{
    return v->refs++, v;
}
void tn_eval_release(tn_evaluator *e, tn_eval_value *v); /* NULL is ignored */
tn_status tn_eval_alloc(tn_evaluator *e, tn_loc loc, int64_t n, size_t size,
                        void *out);                                               /* *(void **)out; zeroed scratch */
void tn_eval_release_scratch(tn_evaluator *e, const tn_eval_scratch *mark);       /* what was taken since */
tn_status tn_eval_work(tn_evaluator *e, tn_loc loc, int64_t steps, int64_t each); /* counts steps * each */
tn_status tn_eval_dim(tn_evaluator *e, tn_loc loc, tn_dim dim, int64_t *out);
tn_status tn_eval_dims(tn_evaluator *e, const tn_op *op, tn_attr_name name, int expected,
                       int64_t *out); /* a DIMS attribute */
/* Reports op: "what: expected …, found …" as TN_INVALID. */
tn_status tn_eval_expect(tn_evaluator *e, const tn_op *op, const char *what, int64_t expected, int64_t found);
static inline void *tn_eval_data(tn_eval_value *v)
{
    return (void *)(uintptr_t)v->tensor.data;
} /* of a result being made */

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

static inline int64_t tn_count_of(const tn_tensor *t) /* sizes were checked when the tensor was made */
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->dim[i];
    return n;
}
static inline void tn_strides_of(int rank, const int64_t *dims, int64_t *strides) /* row-major, in elements */
{
    for (int64_t i = rank - 1, step = 1; i >= 0; i--)
        strides[i] = step, step *= dims[i] > 0 ? dims[i] : 1;
}
/* Next index in row-major order; false after the last. An empty shape must not be entered. */
static inline bool tn_next_index(int rank, const int64_t *dims, int64_t *index)
{
    for (int i = rank - 1; i >= 0; i--) {
        if (++index[i] < dims[i])
            return true;
        index[i] = 0;
    }
    return false;
}
static inline bool tn_among(int64_t x, const int64_t *list, int n)
{
    for (int i = 0; i < n; i++)
        if (list[i] == x)
            return true;
    return false;
}
static inline tn_number tn_at(const tn_tensor *t, int64_t i)
{
    return tn_number_load(t->dtype, t->data, t->splat ? 0 : i);
}
/* Copies a box of `sizes` elements between strided positions (in elements) of two tensors of one type (movement.c). */
void tn_copy_box(tn_eval_value *to, int64_t to_at, const int64_t *to_strides, const tn_tensor *from, int64_t from_at,
                 const int64_t *from_strides, int rank, const int64_t *sizes);

/* ---- scalar kernels (elementwise.c) and regions (region.c) ------------------------------------------------------- */

typedef enum tn_kernel_kind {
    TN_KERNEL_SCALAR,
    TN_KERNEL_TOTAL_ORDER,
    TN_KERNEL_COMPLEX,
    TN_KERNEL_CONVERT,
    TN_KERNEL_SATURATE,
    TN_KERNEL_PRECISION
} tn_kernel_kind;
/* An elementwise operation with its attributes looked up. */
typedef struct tn_kernel {
    tn_kernel_kind kind;
    tn_scalar fn;
    tn_dtype from, to; /* of the last operand, of the result */
    int exponent_bits, mantissa_bits;
} tn_kernel;
tn_kernel tn_kernel_of(const tn_op *op); /* op has the ELEMENTWISE trait */
tn_number tn_kernel_eval(const tn_kernel *kernel, const tn_number *operands);

typedef struct tn_step { /* register[result] = kernel(register[operand[0..n)]) */
    tn_kernel kernel;
    int result, operand[3];
} tn_step;
/* A region of rank-0 values, ready to be called often. If it holds elementwise operations only, it is a straight
 * program over registers; else each call runs the block. Lives in the scratch memory of the operation. */
typedef struct tn_region {
    tn_evaluator *e;
    const tn_block *block;
    const tn_op *op;
    int nargs, nresults, nsteps;
    tn_dtype *arg_type, *result_type;
    bool straight;
    tn_step *step;
    tn_number *reg;   /* arguments first */
    int *result;      /* registers returned */
    tn_scalar single; /* the region is `return fn(arg0, arg1)` with fn commuting: fn; else TN_SCALAR_NONE */
} tn_region;
tn_status tn_region_prepare(tn_evaluator *e, const tn_op *op, int index, int nargs, int nresults, tn_region *out);
tn_status tn_region_call(tn_region *region, const tn_number *args, tn_number *results);
/* For an accumulation: adds and products of narrow floats run in double and are rounded once by the caller; returns the
 * type in which the accumulator is held. */
tn_dtype tn_region_widen(tn_region *region);

/* Runs a block on args (borrowed); results: new references, as many as `return` has operands. */
tn_status tn_eval_block(tn_evaluator *e, const tn_block *block, tn_eval_value *const *args, tn_eval_value **results);

#endif
