/* What expand.c and vecmath.c share. */
#ifndef TN_LOOP_EXPAND_H
#define TN_LOOP_EXPAND_H

#include "loop/internal.h"

/* ---- vecmath.c ---- */
bool tn_l_has_vecmath(tn_scalar fn);
/* fn of f32 operands; tn_l_has_vecmath(fn) holds. */
tn_lvalue *tn_l_vecmath(tn_lbuilder *b, const tn_vector_spec *spec, tn_scalar fn, tn_lvalue *const *operands);

/* near, but lane_value of x's lane where `where` holds: few lanes or none. */
tn_lvalue *tn_l_mend_lanes(tn_lbuilder *b, tn_lvalue *where, tn_lvalue *x, tn_lvalue *near,
                           tn_lvalue *(*lane_value)(tn_lbuilder *b, tn_lvalue *lane, const void *context), const void *context);

/* q[i] = x[i] / y, where every lane of y is one number: its reciprocal once, then products and corrections, with the bits of the division where `exact`; one
 * look at all of x says whether that will do. False where it would not pay. */
enum { TN_L_QUOTIENTS = 8 }; /* n is this at most */
bool tn_l_divide_by_uniform(tn_lbuilder *b, const tn_vector_spec *spec, tn_lvalue *const *x, int n, tn_lvalue *y, bool exact, tn_lvalue **q);

/* ---- gpumath.c: with tn_vector_spec.approx ---- */
/* A row of gpu_functions.def, f32. */
tn_lvalue *tn_l_gpu_fn(tn_lbuilder *b, const char *name, tn_lvalue *const *operands, int n);
/* fn of f32 operands by the GPU's instructions, within docs/vector-math.md's errors. `narrow`: the result is rounded to that narrower float at once, which allows
 * larger errors (TN_F32: it is not). NULL: vecmath.c's or the emitter's code is as good. */
tn_lvalue *tn_l_gpumath(tn_lbuilder *b, const tn_vector_spec *spec, tn_scalar fn, tn_lvalue *const *operands, tn_dtype narrow);

/* ---- doublemath.c: with tn_vector_spec.approx ---- */
/* fn of f64 operands; NULL: no formula, or the machine has it. */
tn_lvalue *tn_l_doublemath(tn_lbuilder *b, const tn_vector_spec *spec, tn_scalar fn, tn_lvalue *const *operands);

/* ---- float8.c ---- */
/* A cast; to and from f8 through f32, by integer operations on its bits where the machine has no instruction. */
tn_lvalue *tn_l_float_cast(tn_lbuilder *b, const tn_vector_spec *spec, tn_lvalue *x, tn_dtype dtype);

/* ---- expand.c ---- */
/* x * y + z of f32 with one rounding: fma, or by way of f64 on a machine without it (the product is exact there; the
 * sum is rounded twice, which differs from one rounding in about one case of 2^29). */
tn_lvalue *tn_l_fused(tn_lbuilder *b, const tn_vector_spec *spec, tn_lvalue *x, tn_lvalue *y, tn_lvalue *z);

#endif
