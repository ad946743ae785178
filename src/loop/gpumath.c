/* f32 functions by the instructions that a GPU has for them (gpu_functions.def), where that is shorter than vecmath.c and as accurate: docs/vector-math.md.
 *
 * Two sets: results that stay f32, and results that are rounded to a narrower float at once. Those may be off by what that rounding hides: 2^-8 of a unit in the
 * last place of bf16 is 2^8 units of f32. There exp and logistic flush results that are denormal in f32. */
#include <math.h>
#include <string.h>

#include "loop/formula.h"

/* ---- the rows ---- */

static double flushed(double v)
{
    float f = (float)v;
    return fabsf(f) < 0x1p-126f ? copysign(0, v) : v;
}

bool tn_l_gpu_eval(const char *name, const tn_number *operands, int n, tn_number *result)
{
    double x = operands[0].f, y = n > 1 ? operands[1].f : 0, z = n > 2 ? operands[2].f : 0;
#define FLUSH(v) flushed(v)
#define GPU_FN(row, arity, ptx, value)                                                                                 \
    if (n == arity && !strcmp(name, #row))                                                                             \
        return *result = tn_number_from_double(TN_F32, value), true;
#include "loop/gpu_functions.def"
#undef GPU_FN
#undef FLUSH
    (void)y, (void)z;
    return false;
}

V tn_l_gpu_fn(tn_lbuilder *b, const char *name, V const *operands, int n) { return tn_l_intrinsic(b, name, operands, n, operands[0]->type); }

static V row1(emitter *vm, const char *name, V x) { return tn_l_gpu_fn(vm->b, name, &x, 1); }

static V row2(emitter *vm, const char *name, V x, V y) { return tn_l_gpu_fn(vm->b, name, (V[]){x, y}, 2); }

static V row3(emitter *vm, const char *name, V x, V y, V z) { return tn_l_gpu_fn(vm->b, name, (V[]){x, y, z}, 3); }

static const double log2_e = 0x1.715476p0, log2_e_rest = 0x1.4ae0cp-26;

/* ---- results of f32 ---- */

/* x log2 e = n + r with |n| <= 125 and r exact to its last place; 2^n is a shift. Where x is so large that n stops there, r takes what is left: 2^r overflows or
 * vanishes by itself, and the last product rounds denormal results. NaN and infinities are in r. */
static V exp_full(emitter *vm, V x)
{
    V place = row3(vm, "fma_unit", x, F(vm, log2_e / 250), F(vm, 0.5)); /* of x in the range of n */
    V t = fused(vm, place, F(vm, 250), F(vm, 0x1.8p23 - 125 + 127));    /* n + 127 in its low bits */
    V minus_n = sub(vm, F(vm, 0x1.8p23 + 127), t);
    V r = fused(vm, x, F(vm, log2_e_rest), fused(vm, x, F(vm, log2_e), minus_n));
    return mul(vm, row1(vm, "ex2", r), real(vm, shift_left(vm, bits(vm, t), 23)));
}

static V exp2_full(emitter *vm, V x) { return row1(vm, "ex2_denormal", x); }

/* From 30 on it is 1. */
static V logistic_full(emitter *vm, V x)
{
    V e = exp_full(vm, tn_l_fn2(vm->b, TN_S_min, x, F(vm, 30)));
    return mul(vm, e, row1(vm, "rcp", add(vm, e, F(vm, 1))));
}

/* 1 - 2 / (e^2a + 1), whose error is absolute; below 0.625 an odd polynomial. */
static V tanh_full(emitter *vm, V x)
{
    V a = absolute(vm, x), square = mul(vm, x, x);
    V e = row1(vm, "ex2", mul(vm, a, F(vm, 2 * log2_e)));
    V far = fused(vm, row1(vm, "rcp", add(vm, e, F(vm, 1))), F(vm, -2), F(vm, 1));
    V p = POLYNOMIAL(vm, square, -0x1.75dae0p-8, 0x1.52255ap-6, -0x1.b83c38p-5, 0x1.110726p-3, -0x1.555532p-2);
    V near = fused(vm, mul(vm, p, square), a, a);
    return with_sign(vm, choose(vm, TN_S_lt, a, F(vm, 0.625), near, far), sign_bit(vm, x));
}

static V rsqrt_full(emitter *vm, V x) { return row1(vm, "rsqrt", x); }

/* ---- results of 16 bits or fewer ---- */

/* x by a number, with no more operations than x takes: numbers that it is made of are. NULL: none are. */
static V scaled_within(emitter *vm, V x, double by, int depth)
{
    const tn_lop *op = x->def;
    if (tn_l_number(x))
        return F(vm, tn_l_number(x)->f * by);
    if (!op || op->code != TN_L_fn || depth == 0)
        return NULL;
    V in[2] = {op->operand[0], op->noperands > 1 ? op->operand[1] : NULL};
    for (int i = 0; op->fn == TN_S_mul && i < 2; i++) {
        V factor = tn_l_number(in[i]) || !tn_l_number(in[1 - i]) ? scaled_within(vm, in[i], by, depth - 1) : NULL;
        if (factor)
            return tn_l_fn_like(vm->b, op, (V[]){i ? in[0] : factor, i ? factor : in[1]});
    }
    if (op->fn != TN_S_add)
        return NULL;
    V x0 = scaled_within(vm, in[0], by, depth - 1), x1 = x0 ? scaled_within(vm, in[1], by, depth - 1) : NULL;
    return x1 ? tn_l_fn_like(vm->b, op, (V[]){x0, x1}) : NULL;
}

static V scaled(emitter *vm, V x, double by)
{
    enum { DEPTH = 3 }; /* x (a + b y) */
    V within = scaled_within(vm, x, by, DEPTH);
    return within ? within : mul(vm, x, F(vm, by));
}

static V exp_narrow(emitter *vm, V x) { return row1(vm, "ex2", scaled(vm, x, log2_e)); }

static V exp2_narrow(emitter *vm, V x) { return row1(vm, "ex2", x); }

static V logistic_narrow(emitter *vm, V x)
{
    V e = row1(vm, "ex2", scaled(vm, x, -log2_e));
    return row1(vm, "rcp", add(vm, e, F(vm, 1)));
}

static V log_narrow(emitter *vm, V x) { return mul(vm, row1(vm, "lg2", x), F(vm, 0x1.62e43p-1)); }

static V log2_narrow(emitter *vm, V x) { return row1(vm, "lg2", x); }

static V tanh_narrow(emitter *vm, V x) { return row1(vm, "tanh_near", x); }

static V sqrt_narrow(emitter *vm, V x) { return row1(vm, "sqrt_near", x); }

/* ---- the tables ---- */

typedef V (*unary)(emitter *vm, V x);

static const unary full[TN_SCALAR_COUNT] = {
    [TN_S_exp] = exp_full, [TN_S_exp2] = exp2_full, [TN_S_logistic] = logistic_full, [TN_S_tanh] = tanh_full, [TN_S_rsqrt] = rsqrt_full,
};
static const unary narrow_any[TN_SCALAR_COUNT] = {
    [TN_S_exp] = exp_narrow, [TN_S_exp2] = exp2_narrow, [TN_S_logistic] = logistic_narrow, [TN_S_sqrt] = sqrt_narrow,
};
/* Good for 8 binary digits and fewer, not for f16's 11: tanh_near is off by 2^-11, and lg2 near 1 by as much of the result. */
static const unary narrow_short[TN_SCALAR_COUNT] = {
    [TN_S_tanh] = tanh_narrow, [TN_S_log] = log_narrow, [TN_S_log2] = log2_narrow,
};

/* Of f16 and f8 no divisor's reciprocal is denormal. */
static V quotient(emitter *vm, V x, V y, tn_dtype narrow)
{
    bool short_range = narrow == TN_F16 || narrow == TN_F8E4M3 || narrow == TN_F8E5M2;
    return short_range ? mul(vm, x, row1(vm, "rcp", y)) : row2(vm, "quotient", x, y);
}

/* Exact in f64, and so is the cast back. */
static V remainder_by_f64(emitter *vm, V x, V y)
{
    V wide[2] = {tn_l_cast(vm->b, x, TN_F64), tn_l_cast(vm->b, y, TN_F64)};
    return tn_l_cast(vm->b, tn_l_doublemath(vm->b, vm->spec, TN_S_rem, wide), TN_F32);
}

tn_lvalue *tn_l_gpumath(tn_lbuilder *b, const tn_vector_spec *spec, tn_scalar fn, tn_lvalue *const *operands, tn_dtype narrow)
{
    emitter vm = {b, operands[0]->type.lanes, spec, TN_F32};
    if (fn == TN_S_div_full || (fn == TN_S_div && narrow != TN_F32)) {
        V shared;
        return tn_l_divide_by_uniform(b, spec, &operands[0], 1, operands[1], false, &shared) ? shared : quotient(&vm, operands[0], operands[1], narrow);
    }
    if (fn == TN_S_rem)
        return remainder_by_f64(&vm, operands[0], operands[1]);
    unary form = narrow != TN_F32 && narrow != TN_F16 ? narrow_short[fn] : NULL;
    if (!form && narrow != TN_F32)
        form = narrow_any[fn];
    if (!form)
        form = full[fn];
    return form ? form(&vm, operands[0]) : NULL;
}
