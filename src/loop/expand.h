/* What expand.c and vecmath.c share. */
#ifndef TN_LOOP_EXPAND_H
#define TN_LOOP_EXPAND_H

#include "loop/internal.h"

/* ---- vecmath.c ---- */
bool tn_l_has_vecmath(tn_scalar fn);
/* fn of f32 operands; tn_l_has_vecmath(fn) holds. */
tn_lvalue *tn_l_vecmath(tn_lbuilder *b, const tn_vector_spec *spec, tn_scalar fn, tn_lvalue *const *operands);

/* x / y where every lane of y is one number: its reciprocal once, then a product and a correction, with the bits of the division.
 * NULL where that would not pay. */
tn_lvalue *tn_l_divide_by_uniform(tn_lbuilder *b, const tn_vector_spec *spec, tn_lvalue *x, tn_lvalue *y, bool exact);

/* ---- float8.c ---- */
/* A cast; to and from f8 by integer operations on f32's bits (from other types through f32). */
tn_lvalue *tn_l_float_cast(tn_lbuilder *b, tn_lvalue *x, tn_dtype dtype);

/* ---- expand.c ---- */
/* x * y + z of f32 with one rounding: fma, or by way of f64 on a machine without it (the product is exact there; the
 * sum is rounded twice, which differs from one rounding in about one case of 2^29). */
tn_lvalue *tn_l_fused(tn_lbuilder *b, const tn_vector_spec *spec, tn_lvalue *x, tn_lvalue *y, tn_lvalue *z);

#endif
