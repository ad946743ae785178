/* How the formulas of vecmath.c, gpumath.c and doublemath.c are written: one operation a line, on values of one float type and the integers of its
 * width, on any number of lanes. */
#ifndef TN_LOOP_FORMULA_H
#define TN_LOOP_FORMULA_H

#include "loop/expand.h"

typedef tn_lvalue *V;

typedef struct emitter {
    tn_lbuilder *b;
    int lanes;
    const tn_vector_spec *spec;
    tn_dtype dtype; /* TN_F32 or TN_F64 */
} emitter;

static inline tn_dtype integer_type(const emitter *vm) { return vm->dtype == TN_F64 ? TN_I64 : TN_I32; }

static inline V F(emitter *vm, double value) { return tn_l_const(vm->b, tn_lvector(vm->dtype, vm->lanes), tn_number_from_double(vm->dtype, value)); }

static inline V I(emitter *vm, uint64_t value)
{
    return tn_l_const(vm->b, tn_lvector(integer_type(vm), vm->lanes), (tn_number){.i = vm->dtype == TN_F64 ? (int64_t)value : (int32_t)value});
}

static inline V add(emitter *vm, V x, V y) { return tn_l_fn2(vm->b, TN_S_add, x, y); }
static inline V sub(emitter *vm, V x, V y) { return tn_l_fn2(vm->b, TN_S_sub, x, y); }
static inline V mul(emitter *vm, V x, V y) { return tn_l_fn2(vm->b, TN_S_mul, x, y); }
static inline V divide(emitter *vm, V x, V y) { return tn_l_fn2(vm->b, TN_S_div, x, y); }
static inline V bit_and(emitter *vm, V x, V y) { return tn_l_fn2(vm->b, TN_S_and, x, y); }
static inline V bit_or(emitter *vm, V x, V y) { return tn_l_fn2(vm->b, TN_S_or, x, y); }
static inline V bit_xor(emitter *vm, V x, V y) { return tn_l_fn2(vm->b, TN_S_xor, x, y); }
static inline V absolute(emitter *vm, V x) { return tn_l_fn1(vm->b, TN_S_abs, x); }
static inline V negated(emitter *vm, V x) { return tn_l_fn1(vm->b, TN_S_neg, x); }
static inline V square_root(emitter *vm, V x) { return tn_l_fn1(vm->b, TN_S_sqrt, x); }
static inline V truncated(emitter *vm, V x) { return tn_l_fn1(vm->b, TN_S_trunc, x); }
static inline V shift_left(emitter *vm, V x, uint32_t n) { return tn_l_fn2(vm->b, TN_S_shl, x, I(vm, n)); }
static inline V shift_right(emitter *vm, V x, uint32_t n) { return tn_l_fn2(vm->b, TN_S_shr_logical, x, I(vm, n)); }
static inline V bits(emitter *vm, V x) { return tn_l_bitcast(vm->b, x, tn_lvector(integer_type(vm), vm->lanes)); }
static inline V real(emitter *vm, V x) { return tn_l_bitcast(vm->b, x, tn_lvector(vm->dtype, vm->lanes)); }
static inline V from_int(emitter *vm, V x) { return tn_l_cast(vm->b, x, vm->dtype); }
static inline V to_int(emitter *vm, V x) { return tn_l_cast(vm->b, x, integer_type(vm)); }
static inline V fused(emitter *vm, V x, V y, V z) { return tn_l_fused(vm->b, vm->spec, x, y, z); }

static inline V choose(emitter *vm, tn_scalar compare, V x, V y, V then, V otherwise)
{
    return tn_l_fn3(vm->b, TN_S_select, tn_l_fn2(vm->b, compare, x, y), then, otherwise);
}

/* These give x where it is NaN. */
static inline V at_most(emitter *vm, V limit, V x) { return choose(vm, TN_S_lt, limit, x, limit, x); }
static inline V at_least(emitter *vm, V limit, V x) { return choose(vm, TN_S_gt, limit, x, limit, x); }

/* Horner's rule, highest coefficient first. Without a fused instruction, rounding the products too costs little here. */
static inline V polynomial(emitter *vm, V x, const double *coefficient, size_t n)
{
    V p = F(vm, coefficient[0]);
    for (size_t i = 1; i < n; i++) {
        V c = F(vm, coefficient[i]);
        p = vm->spec->fma ? tn_l_fn3(vm->b, TN_S_fma, p, x, c) : add(vm, mul(vm, p, x), c);
    }
    return p;
}
#define POLYNOMIAL(vm, x, ...) polynomial(vm, x, (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double))

/* 1 / x and x / y of f32, off by an ulp or two where that is faster: on a GPU, for divisors whose reciprocals are normal. */
static inline V reciprocal(emitter *vm, V x) { return vm->spec->approx ? tn_l_gpu_fn(vm->b, "rcp", &x, 1) : divide(vm, F(vm, 1), x); }
static inline V near_quotient(emitter *vm, V x, V y) { return vm->spec->approx ? mul(vm, x, reciprocal(vm, y)) : divide(vm, x, y); }

/* The sign of x as a bit; a value that is not negative with such a bit. */
static inline V sign_bit(emitter *vm, V x) { return bit_and(vm, bits(vm, x), I(vm, vm->dtype == TN_F64 ? UINT64_C(1) << 63 : UINT64_C(1) << 31)); }
static inline V with_sign(emitter *vm, V magnitude, V sign) { return real(vm, bit_or(vm, bits(vm, magnitude), sign)); }

/* vecmath.c */
V tn_l_power_cases(emitter *vm, V x, V y, V v);

#endif
