/* f64 functions for a machine without a C library: a GPU. Straight lines as in vecmath.c, on any number of lanes, coefficients by Remez exchange; the errors
 * stand in docs/vector-math.md. What a f64 formula must do otherwise than one of f32 is said where it stands. Needs fused multiply-add. */
#include <math.h>

#include "loop/formula.h"

#define SIGN_AND_EXPONENT UINT64_C(0xfff0000000000000)
#define ROUND 0x1.8p52 /* adding it rounds to an integer, which stands in the low bits of the sum */

static const double ln2 = 0x1.62e42fefa39efp-1, ln2_rest = 0x1.abc9e3b39803fp-56, log2_e = 0x1.71547652b82fep0, log2_e_rest = 0x1.777d0ffda0d24p-56;
static const double half_pi = 0x1.921fb54442d18p0, half_pi_rest = 0x1.1a62633145c07p-54;

/* ---- exponentials ---- */

/* v 2^n, for t = n + ROUND + 2046: in two steps, of which only the last rounds. */
static V scaled(emitter *vm, V v, V t)
{
    V b = bits(vm, t), half = shift_right(vm, b, 1), rest = sub(vm, b, half);
    return mul(vm, mul(vm, v, real(vm, shift_left(vm, half, 52))), real(vm, shift_left(vm, rest, 52)));
}

/* r of x = n ln2 + r; n ln2's first part is exact, and so is the difference. */
static V less_ln2(emitter *vm, V x, V n) { return fused(vm, n, F(vm, -ln2_rest), fused(vm, n, F(vm, -ln2), x)); }

static V exp_f64(emitter *vm, V x)
{
    V x1 = at_least(vm, F(vm, -750), at_most(vm, F(vm, 711), x));
    V t = fused(vm, x1, F(vm, log2_e), F(vm, ROUND + 2046));
    V r = less_ln2(vm, x1, sub(vm, t, F(vm, ROUND + 2046)));
    V p = POLYNOMIAL(vm, r, 0x1.ad7b19bf1711cp-26, 0x1.28adc767b3124p-22, 0x1.71df28d4c83e1p-19, 0x1.a01999b840c9fp-16, 0x1.a01a01286f66ep-13,
                     0x1.6c16c18445ae8p-10, 0x1.111111112826bp-7, 0x1.5555555550813p-5, 0x1.55555555554f8p-3, 0x1.000000000000ap-1, 1, 1);
    return scaled(vm, p, t);
}

static V power_of_two(emitter *vm, V r)
{
    return POLYNOMIAL(vm, r, 0x1.e7a9100d6bb86p-32, 0x1.e62254f1771cap-28, 0x1.b5267af017a1dp-24, 0x1.62bfc30030e1ep-20, 0x1.ffcbfba5ac892p-17,
                      0x1.430913110a503p-13, 0x1.5d87fe78cfc8ap-10, 0x1.3b2ab6fb9f29fp-7, 0x1.c6b08d7049fccp-5, 0x1.ebfbdff82c5aep-3,
                      0x1.62e42fefa39efp-1, 1);
}

/* 2^(x + low) */
static V exp2_of_sum(emitter *vm, V x, V low)
{
    V x1 = at_least(vm, F(vm, -1080), at_most(vm, F(vm, 1026), x));
    V t = add(vm, x1, F(vm, ROUND + 2046));
    V r = sub(vm, x1, sub(vm, t, F(vm, ROUND + 2046)));
    return scaled(vm, power_of_two(vm, low ? add(vm, r, low) : r), t);
}

static V exp2_f64(emitter *vm, V x) { return exp2_of_sum(vm, x, NULL); }

static V expm1_f64(emitter *vm, V x)
{
    V x1 = at_least(vm, F(vm, -40), at_most(vm, F(vm, 710), x));
    V t = fused(vm, x1, F(vm, log2_e), F(vm, ROUND + 1022)); /* n + 1022 in its low bits */
    V r = less_ln2(vm, x1, sub(vm, t, F(vm, ROUND + 1022)));
    V q = POLYNOMIAL(vm, r, 0x1.1ee7bda5c094bp-29, 0x1.af5ed131d9150p-26, 0x1.27e536f3f11b2p-22, 0x1.71ddf85217f5cp-19, 0x1.a01a017b4ae9fp-16,
                     0x1.a01a01afe21a0p-13, 0x1.6c16c16c1f250p-10, 0x1.111111110f6bfp-7, 0x1.555555555553ep-5, 0x1.5555555555559p-3, 0.5);
    V p = fused(vm, mul(vm, r, r), q, r);               /* e^r - 1 */
    V s = real(vm, shift_left(vm, bits(vm, t), 52));    /* 2^(n - 1) */
    V h = fused(vm, s, p, sub(vm, s, F(vm, 0.5)));
    return choose(vm, TN_S_lt, absolute(vm, x), F(vm, 0x1p-54), x, add(vm, h, h));
}

static V logistic_f64(emitter *vm, V x)
{
    V e = exp_f64(vm, at_most(vm, F(vm, 40), x));
    return divide(vm, e, add(vm, e, F(vm, 1)));
}

/* ---- logarithms ---- */

/* x = 2^exponent * mantissa, the mantissa in [sqrt(1/2), sqrt(2)); x > 0. */
static V take_mantissa(emitter *vm, V x, V *exponent)
{
    V tiny = F(vm, 0x1p-1022);
    V x1 = choose(vm, TN_S_lt, x, tiny, mul(vm, x, F(vm, 0x1p54)), x);
    V lost = choose(vm, TN_S_lt, x, tiny, F(vm, -54), F(vm, 0));
    V b = bits(vm, x1), e52 = bit_and(vm, sub(vm, b, I(vm, UINT64_C(0x3fe6a09e667f3bcd))), I(vm, SIGN_AND_EXPONENT));
    *exponent = fused(vm, from_int(vm, e52), F(vm, 0x1p-52), lost);
    return real(vm, sub(vm, b, e52));
}

/* log(1 + f) = f - (f^2/2 - s (f^2/2 + R)) with s = f / (2 + f) and R = log((1 + s) / (1 - s)) / s - 2; what is taken from f is small. */
static V log_of_one_and(emitter *vm, V f)
{
    V s = divide(vm, f, add(vm, f, F(vm, 2))), z = mul(vm, s, s), half = mul(vm, mul(vm, f, f), F(vm, 0.5));
    V r = POLYNOMIAL(vm, z, 0x1.2f08446f4c6e3p-3, 0x1.39a17a5973095p-3, 0x1.7466410c15bfcp-3, 0x1.c71c5200b03b4p-3, 0x1.24924941f9c1bp-2,
                     0x1.999999997fd3dp-2, 0x1.5555555555592p-1);
    return sub(vm, f, sub(vm, half, mul(vm, s, fused(vm, z, r, half))));
}

/* y, a function of x with a pole at `pole`, below which it is NaN. */
static V with_pole(emitter *vm, V x, V pole, V y)
{
    V finite = choose(vm, TN_S_lt, x, F(vm, INFINITY), y, x); /* infinity and NaN */
    V special = choose(vm, TN_S_eq, x, pole, F(vm, -INFINITY), F(vm, NAN));
    return choose(vm, TN_S_le, x, pole, special, finite);
}

static V log_f64(emitter *vm, V x)
{
    V e, l = log_of_one_and(vm, sub(vm, take_mantissa(vm, x, &e), F(vm, 1)));
    return with_pole(vm, x, F(vm, 0), fused(vm, e, F(vm, ln2), fused(vm, e, F(vm, ln2_rest), l)));
}

static V log2_f64(emitter *vm, V x)
{
    V e, l = log_of_one_and(vm, sub(vm, take_mantissa(vm, x, &e), F(vm, 1)));
    return with_pole(vm, x, F(vm, 0), fused(vm, l, F(vm, log2_e), fused(vm, l, F(vm, log2_e_rest), e)));
}

/* 1 + x = 2^e (1 + f), f with one rounding. */
static V log1p_f64(emitter *vm, V x)
{
    V e52 = bit_and(vm, sub(vm, bits(vm, add(vm, x, F(vm, 1))), I(vm, UINT64_C(0x3fe6a09e667f3bcd))), I(vm, SIGN_AND_EXPONENT));
    V s = real(vm, sub(vm, I(vm, UINT64_C(0x4010000000000000)), e52)); /* 4 * 2^-e, never denormal */
    V f = fused(vm, s, mul(vm, x, F(vm, 0.25)), fused(vm, s, F(vm, 0.25), F(vm, -1)));
    V e = mul(vm, from_int(vm, e52), F(vm, 0x1p-52)), l = log_of_one_and(vm, f);
    V y = fused(vm, e, F(vm, ln2), fused(vm, e, F(vm, ln2_rest), l));
    y = choose(vm, TN_S_lt, absolute(vm, x), F(vm, 0x1p-54), x, y);
    return with_pole(vm, x, F(vm, -1), y);
}

/* ---- powers ---- */

/* log2 |x| = high + low, to 2^-64 of it: the terms of log((1 + s) / (1 - s)) up to s^3 in two doubles each, what follows in one. */
static V log2_in_two(emitter *vm, V ax, V *low)
{
    static const double third = 0x1.5555555555555p-2, third_rest = 0x1.5555555555555p-56, scale = 2 * 0x1.71547652b82fep0, scale_rest = 2 * 0x1.777d0ffda0d24p-56;
    V e, m = take_mantissa(vm, ax, &e);
    V f = sub(vm, m, F(vm, 1)), g = add(vm, m, F(vm, 1)), g_rest = sub(vm, m, sub(vm, g, F(vm, 1))), rg = divide(vm, F(vm, 1), g);
    V s = mul(vm, f, rg), minus_s = negated(vm, s);
    V s_rest = mul(vm, fused(vm, minus_s, g_rest, fused(vm, minus_s, g, f)), rg); /* s + s_rest = f / (m + 1) */
    V z = mul(vm, s, s), z_rest = fused(vm, add(vm, s, s), s_rest, fused(vm, s, s, negated(vm, z)));
    V tail = POLYNOMIAL(vm, z, 0x1.eb157219ac1b8p-5, 0x1.de32f7a119835p-5, 0x1.1120b8438c3b6p-4, 0x1.3b1362a75aff7p-4, 0x1.745d18327cf4dp-4,
                        0x1.c71c71c580307p-4, 0x1.2492492493035p-3, 0x1.9999999999996p-3);
    V after = mul(vm, mul(vm, z, z), tail);
    V c = mul(vm, z, F(vm, third)); /* z / 3 */
    V c_rest = fused(vm, z_rest, F(vm, third), fused(vm, z, F(vm, third_rest), fused(vm, z, F(vm, third), negated(vm, c))));
    V u = add(vm, c, after), u_rest = add(vm, add(vm, sub(vm, c, u), after), c_rest);
    V d = mul(vm, s, u);
    V d_rest = fused(vm, s_rest, u, fused(vm, s, u_rest, fused(vm, s, u, negated(vm, d))));
    V v = add(vm, s, d), v_rest = add(vm, add(vm, sub(vm, s, v), d), add(vm, d_rest, s_rest));
    V t = mul(vm, v, F(vm, scale));
    V t_rest = fused(vm, v_rest, F(vm, scale), fused(vm, v, F(vm, scale_rest), fused(vm, v, F(vm, scale), negated(vm, t))));
    V high = add(vm, e, t);
    *low = add(vm, add(vm, sub(vm, e, high), t), t_rest);
    return high;
}

static V pow_f64(emitter *vm, V x, V y)
{
    V ax = absolute(vm, x), low, high = log2_in_two(vm, ax, &low);
    V h = choose(vm, TN_S_eq, ax, F(vm, 0), F(vm, -INFINITY), choose(vm, TN_S_lt, ax, F(vm, INFINITY), high, ax));
    V yc = at_least(vm, F(vm, -0x1p200), at_most(vm, F(vm, 0x1p200), y)); /* finite, so that (+-1)^(+-inf) is 1 */
    V p = mul(vm, yc, h), p_rest = fused(vm, yc, low, fused(vm, yc, h, negated(vm, p)));
    return tn_l_power_cases(vm, x, y, exp2_of_sum(vm, p, choose(vm, TN_S_lt, absolute(vm, p), F(vm, 2000), p_rest, F(vm, 0))));
}

static V cbrt_f64(emitter *vm, V x)
{
    V a0 = absolute(vm, x), tiny = F(vm, 0x1p-1022);
    V a = choose(vm, TN_S_lt, a0, tiny, mul(vm, a0, F(vm, 0x1p54)), a0);
    V k = choose(vm, TN_S_lt, a0, tiny, F(vm, 0x1p-18), F(vm, 1));
    V y = real(vm, to_int(vm, fused(vm, from_int(vm, bits(vm, a)), F(vm, -1.0 / 3), F(vm, 0x1.54fb8p62)))); /* a^(-1/3) to 4 % */
    for (int step = 0; step < 2; step++) { /* of order 4 */
        V h = fused(vm, negated(vm, mul(vm, a, y)), mul(vm, y, y), F(vm, 1));
        V w = fused(vm, fused(vm, h, F(vm, 14.0 / 81), F(vm, 2.0 / 9)), h, F(vm, 1.0 / 3));
        y = fused(vm, mul(vm, w, h), y, y);
    }
    V d = mul(vm, mul(vm, a, y), y), rest = fused(vm, negated(vm, d), y, F(vm, 1));
    V c = mul(vm, fused(vm, mul(vm, d, rest), F(vm, 2.0 / 3), d), k);
    return with_sign(vm, choose(vm, TN_S_lt, a0, F(vm, INFINITY), c, a0), sign_bit(vm, x));
}

/* ---- circular functions ---- */

/* sin of r in [-pi/2, pi/2], negated where the lowest bit of `parity` is set. */
static V sine(emitter *vm, V r, V parity)
{
    V z = mul(vm, r, r);
    V p = POLYNOMIAL(vm, z, 0x1.8829a40feb605p-49, -0x1.ae431e00a5077p-41, 0x1.6123cb2c046dep-33, -0x1.ae6454cb68e40p-26, 0x1.71de3a5287f92p-19,
                     -0x1.a01a01a0148c5p-13, 0x1.11111111110c1p-7, -0x1.5555555555555p-3, 1);
    V y = at_least(vm, F(vm, -1), at_most(vm, F(vm, 1), mul(vm, p, r))); /* rounding could overshoot 1 by an ulp */
    return real(vm, bit_xor(vm, bits(vm, y), shift_left(vm, parity, 63)));
}

/* x - q pi. The first difference is exact; all parts have one sign, which keeps sin(-0). */
static V less_pi(emitter *vm, V x, V q)
{
    V r = fused(vm, q, F(vm, -0x1.921fb54442d18p1), x);
    return fused(vm, q, F(vm, -0x1.c1cd129024e09p-106), fused(vm, q, F(vm, -0x1.1a62633145c06p-53), r));
}

static V near_sin(emitter *vm, V x)
{
    V t = fused(vm, x, F(vm, 0x1.45f306dc9c883p-2), F(vm, ROUND));
    return sine(vm, less_pi(vm, x, sub(vm, t, F(vm, ROUND))), bits(vm, t));
}

static V near_cos(emitter *vm, V x) /* = sin of x - (q + 1/2) pi, with the other sign */
{
    V t = add(vm, fused(vm, x, F(vm, 0x1.45f306dc9c883p-2), F(vm, -0.5)), F(vm, ROUND));
    V k = add(vm, sub(vm, t, F(vm, ROUND)), F(vm, 0.5));
    return sine(vm, less_pi(vm, x, k), add(vm, bits(vm, t), I(vm, 1)));
}

/* Reduction of a large x (M. Payne, R. Hanek, SIGNUM Newsletter 18(1), 1983): x = m 2^e, and of 1 / (2 pi) only the bits count whose product with m 2^e is neither
 * a whole number of turns nor too small: 192 of them, from bit e + 1 on. The product's upper 128 bits are the fraction of a turn. */
typedef struct turns {
    V high, low; /* u64 */
} turns;

static V u64(tn_lbuilder *b, uint64_t value) { return tn_l_const(b, tn_lscalar(TN_U64), (tn_number){.u = value}); }

static V op2(tn_lbuilder *b, tn_scalar fn, V x, V y) { return tn_l_fn2(b, fn, x, y); }

/* x + y and the carry */
static V sum_with_carry(tn_lbuilder *b, V x, V y, V *carry)
{
    V sum = op2(b, TN_S_add, x, y);
    *carry = tn_l_cast(b, op2(b, TN_S_lt, sum, x), TN_U64);
    return sum;
}

static turns large_turns(tn_lbuilder *b, V x)
{
    static const uint64_t inverse[] = { /* 64 zeros, then the bits of 1 / (2 pi) */
        0x0000000000000000, 0x28be60db9391054a, 0x7f09d5f47d4d3770, 0x36d8a5664f10e410, 0x7f9458eaf7aef158, 0x6dc91b8e909374b8, 0x01924bba82746487,
        0x3f877ac72c4a69cf, 0xba208d7d4baed121, 0x3a671c09ad17df90, 0x4e64758e60d4ce7d, 0x272117e2ef7e4a0e, 0xc7fe25fff7816603, 0xfbcbc462d6829b47,
        0xdb4d9fb3c9f2c26d, 0xd3d18fd9a797fa8b, 0x5d49eeb1faf97c5e, 0xcf41ce7de294a4ba, 0x9afed7ec47e35742, 0x1580cc11bf1edaea, 0xfc33ef0826bd0d87,
    };
    V table = tn_l_alloc(b, NULL, TN_U64, TN_SPACE_LOCAL, TN_COUNT(inverse));
    for (size_t i = 0; i < TN_COUNT(inverse); i++)
        tn_l_store(b, table, tn_l_index(b, (int64_t)i), u64(b, inverse[i]), NULL);
    V code = tn_l_bitcast(b, x, tn_lscalar(TN_U64)), exponent = op2(b, TN_S_and, op2(b, TN_S_shr_logical, code, u64(b, 52)), u64(b, 0x7ff));
    V m = op2(b, TN_S_or, op2(b, TN_S_and, code, u64(b, (UINT64_C(1) << 52) - 1)), u64(b, UINT64_C(1) << 52));
    /* e = exponent - 1075; x is at least 2^30, so that e + 64 is not negative. Of infinities and NaN the result does not count. */
    exponent = op2(b, TN_S_min, op2(b, TN_S_max, exponent, u64(b, 1023 + 30)), u64(b, 2046));
    V at = op2(b, TN_S_sub, exponent, u64(b, 1075 - 64)), by = op2(b, TN_S_and, at, u64(b, 63)), back = op2(b, TN_S_sub, u64(b, 64), by);
    V word = tn_l_cast(b, op2(b, TN_S_shr_logical, at, u64(b, 6)), TN_I64), loaded[4], w[3];
    for (int i = 0; i < 4; i++)
        loaded[i] = tn_l_load(b, table, op2(b, TN_S_add, word, tn_l_index(b, i)), 1, NULL, NULL);
    for (int i = 0; i < 3; i++)
        w[i] = op2(b, TN_S_or, op2(b, TN_S_shl, loaded[i], by), op2(b, TN_S_shr_logical, loaded[i + 1], back));
    V carry, low = sum_with_carry(b, op2(b, TN_S_mul, m, w[1]), op2(b, TN_S_mulhi, m, w[2]), &carry);
    V high = op2(b, TN_S_add, op2(b, TN_S_add, op2(b, TN_S_mul, m, w[0]), op2(b, TN_S_mulhi, m, w[1])), carry);
    return (turns){high, low};
}

/* sin of 2 pi of a fraction of a turn. */
static V sine_of_turns(emitter *vm, turns t)
{
    tn_lbuilder *b = vm->b;
    V parity = op2(b, TN_S_shr_logical, op2(b, TN_S_add, t.high, u64(b, UINT64_C(1) << 62)), u64(b, 63)); /* of half turns, rounded */
    V high = tn_l_cast(b, op2(b, TN_S_sub, t.high, op2(b, TN_S_shl, parity, u64(b, 63))), TN_I64);
    V r = fused(vm, tn_l_cast(b, t.low, TN_F64), F(vm, 0x1p-64), tn_l_cast(b, high, TN_F64));
    return sine(vm, mul(vm, r, F(vm, 0x1.921fb54442d18p2 * 0x1p-64)), tn_l_cast(b, parity, TN_I64));
}

static V far_sin(emitter *vm, V x)
{
    V y = sine_of_turns(vm, large_turns(vm->b, absolute(vm, x)));
    return real(vm, bit_xor(vm, bits(vm, y), sign_bit(vm, x)));
}

static V far_cos(emitter *vm, V x)
{
    turns t = large_turns(vm->b, absolute(vm, x));
    t.high = op2(vm->b, TN_S_add, t.high, u64(vm->b, UINT64_C(1) << 62));
    return sine_of_turns(vm, t);
}

static V far_tan(emitter *vm, V x) { return divide(vm, far_sin(vm, x), far_cos(vm, x)); }

typedef struct far_form {
    const tn_vector_spec *spec;
    V (*form)(emitter *vm, V x);
} far_form;

static V far_lane(tn_lbuilder *b, V lane, const void *context)
{
    const far_form *far = context;
    emitter vm = {b, 1, far->spec, TN_F64};
    return choose(&vm, TN_S_lt, absolute(&vm, lane), F(&vm, INFINITY), far->form(&vm, lane), F(&vm, NAN));
}

static V circular(emitter *vm, V x, V near, V (*form)(emitter *vm, V x))
{
    V far = tn_l_fn1(vm->b, TN_S_not, tn_l_fn2(vm->b, TN_S_le, absolute(vm, x), F(vm, 0x1p30)));
    return tn_l_mend_lanes(vm->b, far, x, near, far_lane, &(far_form){vm->spec, form});
}

static V sin_f64(emitter *vm, V x) { return circular(vm, x, near_sin(vm, x), far_sin); }

static V cos_f64(emitter *vm, V x) { return circular(vm, x, near_cos(vm, x), far_cos); }

static V tan_f64(emitter *vm, V x) { return circular(vm, x, divide(vm, near_sin(vm, x), near_cos(vm, x)), far_tan); }

/* ---- their inverses ---- */

/* atan of a in [0, 1]: from tan(pi/8) on by way of (a - 1) / (a + 1). */
static V atan_to_one(emitter *vm, V a)
{
    V limit = F(vm, 0x1.a827999fcef32p-2);
    V r = choose(vm, TN_S_gt, a, limit, divide(vm, sub(vm, a, F(vm, 1)), add(vm, a, F(vm, 1))), a), z = mul(vm, r, r);
    V p = POLYNOMIAL(vm, z, -0x1.25a9e0abaae43p-6, 0x1.37f3c6d0f2947p-5, -0x1.9cdf0a8fdb500p-5, 0x1.df121e8217bb7p-5, -0x1.10ebeb80686b1p-4,
                     0x1.3b111db9e9dc3p-4, -0x1.745cf91fcae36p-4, 0x1.c71c70e865f10p-4, -0x1.24924922b32c4p-3, 0x1.9999999995941p-3,
                     -0x1.555555555553dp-2);
    V tail = fused(vm, mul(vm, r, z), p, choose(vm, TN_S_gt, a, limit, F(vm, half_pi_rest / 2), F(vm, 0)));
    return add(vm, choose(vm, TN_S_gt, a, limit, F(vm, half_pi / 2), F(vm, 0)), add(vm, r, tail));
}

static V atan_f64(emitter *vm, V x)
{
    V a = absolute(vm, x), one = F(vm, 1), steep = choose(vm, TN_S_gt, a, one, divide(vm, one, a), a), y = atan_to_one(vm, steep);
    y = choose(vm, TN_S_gt, a, one, add(vm, sub(vm, F(vm, half_pi), y), F(vm, half_pi_rest)), y);
    return with_sign(vm, y, sign_bit(vm, x));
}

static V atan2_f64(emitter *vm, V y, V x)
{
    V ay = absolute(vm, y), ax = absolute(vm, x), total = add(vm, ax, ay); /* NaN where x or y is; 0 where both are */
    V least = choose(vm, TN_S_gt, ay, ax, ax, ay), most = choose(vm, TN_S_gt, ay, ax, ay, ax);
    V r = choose(vm, TN_S_eq, total, F(vm, 0), F(vm, 0), divide(vm, least, most));
    V g = atan_to_one(vm, choose(vm, TN_S_eq, least, F(vm, INFINITY), F(vm, 1), r));
    g = choose(vm, TN_S_gt, ay, ax, add(vm, sub(vm, F(vm, half_pi), g), F(vm, half_pi_rest)), g);
    V behind = add(vm, sub(vm, F(vm, 2 * half_pi), g), F(vm, 2 * half_pi_rest));
    g = choose(vm, TN_S_lt, bits(vm, x), I(vm, 0), behind, g); /* -0 too */
    return with_sign(vm, choose(vm, TN_S_ne, total, total, total, g), sign_bit(vm, y));
}

/* asin of a in [0, 1/2], or for a above it of sqrt((1 - a) / 2) */
static V asin_part(emitter *vm, V a)
{
    V half = F(vm, 0.5), upper = fused(vm, a, F(vm, -0.5), half);
    V z = choose(vm, TN_S_gt, a, half, upper, mul(vm, a, a)), w = choose(vm, TN_S_gt, a, half, square_root(vm, upper), a);
    V p = POLYNOMIAL(vm, z, 0x1.0ca231b2132ccp-5, -0x1.5c42763359b4ep-6, 0x1.6693cf269ca54p-6, 0x1.dc5fb8399c082p-9, 0x1.61dc170f6b90ep-7,
                     0x1.756996efbae7cp-7, 0x1.ca22e78460b8ep-7, 0x1.1c49cd44796e4p-6, 0x1.6e8be0ca53fdcp-6, 0x1.f1c71a83eaea7p-6,
                     0x1.6db6db723ee2bp-5, 0x1.333333332dd89p-4, 0x1.5555555555579p-3);
    return fused(vm, mul(vm, w, z), p, w);
}

static V asin_f64(emitter *vm, V x)
{
    V a = absolute(vm, x), g = asin_part(vm, a);
    V big = add(vm, fused(vm, g, F(vm, -2), F(vm, half_pi)), F(vm, half_pi_rest));
    return with_sign(vm, choose(vm, TN_S_gt, a, F(vm, 0.5), big, g), sign_bit(vm, x));
}

static V acos_f64(emitter *vm, V x)
{
    V a = absolute(vm, x), g = asin_part(vm, a), zero = F(vm, 0);
    V small = add(vm, sub(vm, F(vm, half_pi), choose(vm, TN_S_lt, x, zero, negated(vm, g), g)), F(vm, half_pi_rest));
    V twice = add(vm, g, g), behind = add(vm, sub(vm, F(vm, 2 * half_pi), twice), F(vm, 2 * half_pi_rest));
    return choose(vm, TN_S_gt, a, F(vm, 0.5), choose(vm, TN_S_lt, x, zero, behind, twice), small);
}

/* ---- hyperbolic functions and their inverses ---- */

static V tanh_f64(emitter *vm, V x)
{
    V a = at_most(vm, F(vm, 20), absolute(vm, x)), e = expm1_f64(vm, add(vm, a, a));
    return with_sign(vm, divide(vm, e, add(vm, e, F(vm, 2))), sign_bit(vm, x));
}

/* e^a / 2, which does not overflow before its double does */
static V half_exp(emitter *vm, V a)
{
    V root = exp_f64(vm, mul(vm, a, F(vm, 0.5)));
    return mul(vm, mul(vm, root, F(vm, 0.5)), root);
}

static V sinh_f64(emitter *vm, V x)
{
    V a = absolute(vm, x), e = half_exp(vm, a), z = mul(vm, a, a);
    V p = POLYNOMIAL(vm, z, 0x1.b4d0d923c8460p-41, 0x1.611a35ea5c065p-33, 0x1.ae6467706e618p-26, 0x1.71de3a45ebf1fp-19, 0x1.a01a01a0292c4p-13,
                     0x1.11111111110a1p-7, 0x1.5555555555556p-3);
    V small = fused(vm, mul(vm, a, z), p, a), big = sub(vm, e, divide(vm, F(vm, 0.25), e));
    return with_sign(vm, choose(vm, TN_S_gt, a, F(vm, 1), big, small), sign_bit(vm, x));
}

static V cosh_f64(emitter *vm, V x)
{
    V e = half_exp(vm, absolute(vm, x));
    return add(vm, e, divide(vm, F(vm, 0.25), e));
}

static V asinh_f64(emitter *vm, V x)
{
    V a = absolute(vm, x), a2 = mul(vm, a, a), large = F(vm, 0x1p60);
    V q = divide(vm, a2, add(vm, square_root(vm, add(vm, a2, F(vm, 1))), F(vm, 1)));
    V v = choose(vm, TN_S_gt, a, large, a, add(vm, a, q)); /* asinh a = log a + ln2 */
    V y = add(vm, log1p_f64(vm, v), choose(vm, TN_S_gt, a, large, F(vm, ln2), F(vm, 0)));
    return with_sign(vm, y, sign_bit(vm, x));
}

static V acosh_f64(emitter *vm, V x)
{
    V t = sub(vm, x, F(vm, 1)), large = F(vm, 0x1p60);
    V root = square_root(vm, mul(vm, t, add(vm, t, F(vm, 2))));
    V v = choose(vm, TN_S_gt, x, large, x, add(vm, t, root));
    V y = add(vm, log1p_f64(vm, v), choose(vm, TN_S_gt, x, large, F(vm, ln2), F(vm, 0)));
    return choose(vm, TN_S_lt, x, F(vm, 1), F(vm, NAN), y);
}

static V atanh_f64(emitter *vm, V x)
{
    V a = absolute(vm, x), q = divide(vm, add(vm, a, a), sub(vm, F(vm, 1), a)); /* below -2 when a > 1, so log1p gives NaN */
    return with_sign(vm, mul(vm, log1p_f64(vm, q), F(vm, 0.5)), sign_bit(vm, x));
}

/* From 0.85 on 1 - e^(-a^2) g with g a polynomial of 1 / (a + 2). */
static V erf_f64(emitter *vm, V x)
{
    V a0 = absolute(vm, x), a = at_most(vm, F(vm, 6), at_least(vm, F(vm, 0.85), a0)), z = mul(vm, x, x);
    V p = POLYNOMIAL(vm, z, -0x1.e544e122bb2edp-31, 0x1.e769188d23ebcp-27, -0x1.5e0912642df60p-23, 0x1.b9c7d2b46cf70p-20, -0x1.f4d09ac8b321fp-17,
                     0x1.f9a315e7e5480p-14, -0x1.c02db392afb86p-11, 0x1.565bcd0cab70ap-8, -0x1.b82ce31280499p-6, 0x1.ce2f21a042a91p-4,
                     -0x1.812746b0379e5p-2, 0x1.06eba8214db69p-3);
    V small = fused(vm, x, p, x);
    V g = POLYNOMIAL(vm, divide(vm, F(vm, 1), add(vm, a, F(vm, 2))), -0x1.7808fdb81d0a4p7, 0x1.4deb2385beec0p9, -0x1.01cbcf950db05p10,
                     0x1.b9710fe8c25b4p9, -0x1.b9a645857cf51p8, 0x1.05d0bfe2116f2p7, -0x1.f752b5a2b5cd3p4, 0x1.e88a4fa21ed9cp2, 0x1.23d4135c298e4p1,
                     0x1.0199e25296cafp1, 0x1.208220550d83cp0, 0x1.20de3f0a1045fp-1, 0x1.f210169b416abp-21);
    V far = fused(vm, negated(vm, exp_f64(vm, negated(vm, mul(vm, a, a)))), g, F(vm, 1));
    V y = choose(vm, TN_S_gt, a0, F(vm, 0.85), with_sign(vm, far, sign_bit(vm, x)), small);
    return choose(vm, TN_S_ne, x, x, x, y);
}

/* ---- remainder ---- */

/* Of a positive number, as it stands in the format; denormal numbers go on below 1. */
static V exponent_field(emitter *vm, V x)
{
    V shifted = sub(vm, shift_right(vm, bits(vm, mul(vm, x, F(vm, 0x1p54))), 52), I(vm, 54));
    return choose(vm, TN_S_lt, x, F(vm, 0x1p-1022), shifted, shift_right(vm, bits(vm, x), 52));
}

static V power(emitter *vm, V n) { return real(vm, shift_left(vm, add(vm, n, I(vm, 1023)), 52)); }

/* Division by hand, 51 digits of the quotient a turn: s = d 2^k such that r / s stays below 2^52; the quotient's whole part is one too large at most, and
 * r - q s is exact. */
static V divided_remainder(emitter *vm, V a, V d)
{
    tn_lbuilder *b = vm->b;
    V zero = tn_l_index(b, 0), state = tn_l_alloc(b, NULL, TN_F64, TN_SPACE_REG, 1);
    tn_l_store(b, state, zero, a, NULL);
    tn_lop *loop = tn_l_while(b);
    tn_lbuilder test = tn_l_in(b, loop->region[0]), in = tn_l_in(b, loop->region[1]);
    tn_l_yield(&test, tn_l_fn2(&test, TN_S_ge, tn_l_load(&test, state, zero, 1, NULL, NULL), d));
    emitter turn = {&in, 1, vm->spec, TN_F64};
    V r = tn_l_load(&in, state, zero, 1, NULL, NULL);
    V k = sub(&turn, sub(&turn, exponent_field(&turn, r), exponent_field(&turn, d)), I(&turn, 51));
    k = tn_l_fn2(&in, TN_S_max, k, I(&turn, 0));
    V half = shift_right(&turn, k, 1), s = mul(&turn, mul(&turn, d, power(&turn, half)), power(&turn, sub(&turn, k, half)));
    V rest = fused(&turn, negated(&turn, truncated(&turn, divide(&turn, r, s))), s, r);
    tn_l_store(&in, state, zero, choose(&turn, TN_S_lt, rest, F(&turn, 0), add(&turn, rest, s), rest), NULL);
    return tn_l_load(b, state, zero, 1, NULL, NULL);
}

static V rem_lane(emitter *vm, V x, V y)
{
    tn_lbuilder *b = vm->b;
    V a = absolute(vm, x), d = absolute(vm, y), zero = F(vm, 0);
    V valid = tn_l_fn2(b, TN_S_and, tn_l_fn2(b, TN_S_lt, a, F(vm, INFINITY)), tn_l_fn2(b, TN_S_gt, d, zero));
    V r = divided_remainder(vm, tn_l_fn3(b, TN_S_select, valid, a, zero), tn_l_fn3(b, TN_S_select, valid, d, F(vm, 1)));
    return with_sign(vm, tn_l_fn3(b, TN_S_select, valid, r, F(vm, NAN)), sign_bit(vm, x));
}

static V rem_f64(emitter *vm, V x, V y)
{
    emitter one = {vm->b, 1, vm->spec, TN_F64};
    V result = x;
    for (int i = 0; i < vm->lanes; i++) {
        V lane = tn_l_index(vm->b, i);
        V r = vm->lanes == 1 ? rem_lane(&one, x, y) : rem_lane(&one, tn_l_extract(vm->b, x, lane), tn_l_extract(vm->b, y, lane));
        result = vm->lanes == 1 ? r : tn_l_insert(vm->b, result, r, lane);
    }
    return result;
}

/* ---- the table ---- */

typedef struct row {
    V (*unary)(emitter *vm, V x);
    V (*binary)(emitter *vm, V x, V y);
} row;

static const row rows[TN_SCALAR_COUNT] = {
#define UNARY(name) [TN_S_##name] = {.unary = name##_f64},
#define BINARY(name) [TN_S_##name] = {.binary = name##_f64},
    UNARY(exp) UNARY(exp2) UNARY(expm1) UNARY(log) UNARY(log2) UNARY(log1p) UNARY(logistic) UNARY(sin) UNARY(cos) UNARY(tan) UNARY(tanh) UNARY(erf)
    UNARY(asin) UNARY(acos) UNARY(atan) UNARY(sinh) UNARY(cosh) UNARY(asinh) UNARY(acosh) UNARY(atanh) UNARY(cbrt)
    BINARY(pow) BINARY(atan2) BINARY(rem)
#undef UNARY
#undef BINARY
};

tn_lvalue *tn_l_doublemath(tn_lbuilder *b, const tn_vector_spec *spec, tn_scalar fn, tn_lvalue *const *operands)
{
    emitter vm = {b, operands[0]->type.lanes, spec, TN_F64};
    if (rows[fn].binary)
        return rows[fn].binary(&vm, operands[0], operands[1]);
    return rows[fn].unary ? rows[fn].unary(&vm, operands[0]) : NULL;
}
