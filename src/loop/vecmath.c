/* f32 functions that no machine has, as branch-free Loop IR on any number of lanes: range reduction, a polynomial,
 * scaling by exponent bits. Ours, with their accuracy measured over all floats: docs/vector-math.md. Common forms:
 *   - a float plus 1.5 * 2^23 is rounded to an integer, which then stands in the low bits of the sum;
 *   - constants split in two or three (high part with trailing zeros, rest) keep x - n * c exact under fused
 * multiply-add;
 *   - at_most(c, x) and at_least(c, x) give x when x is NaN, which is the operand order of x86's min and max.
 * Bits are i32; integer sums wrap. */
#include <math.h>
#include <string.h>

#include "loop/formula.h"

/* ---- scaling by an instruction ---- */

bool tn_l_cpu_eval(const char *name, const tn_number *operands, int n, tn_number *result)
{
    if (strncmp(name, "vscalefps_", 10) != 0 || n != 2)
        return false;
    *result = tn_number_from_double(TN_F32, operands[0].f * exp2(floor(operands[1].f)));
    return true;
}

static bool can_scale(const emitter *vm) { return vm->spec->scale && vm->lanes <= 16; }

/* As many lanes as the instruction has: few are lanes of four, so that a remainder has the bits of a whole vector. */
static V with_four_lanes(emitter *vm, V x)
{
    if (vm->lanes == 1)
        return tn_l_splat(vm->b, x, 4);
    return tn_l_shuffle(vm->b, x, x, (const int[]){0, 1 % vm->lanes, 2 % vm->lanes, 0}, 4);
}

/* x 2^n for an integer n. */
static V scaled(emitter *vm, V x, V n)
{
    tn_lbuilder *b = vm->b;
    if (vm->lanes >= 4)
        return tn_l_intrinsic(b, vm->lanes == 16 ? "vscalefps_512" : vm->lanes == 8 ? "vscalefps_256" : "vscalefps_128", (V[]){x, n}, 2, x->type);
    V wide = tn_l_intrinsic(b, "vscalefps_128", (V[]){with_four_lanes(vm, x), with_four_lanes(vm, n)}, 2, tn_lvector(TN_F32, 4));
    return vm->lanes == 1 ? tn_l_extract(b, wide, tn_l_index(b, 0)) : tn_l_shuffle(b, wide, wide, (const int[]){0, 1, 2}, vm->lanes);
}

/* e^x for x within [-104, 89] or NaN. */
static V exp_by_scaling(emitter *vm, V x)
{
    V n = tn_l_fn1(vm->b, TN_S_round_even, mul(vm, x, F(vm, 0x1.715476p0f)));
    V r1 = fused(vm, n, F(vm, -0x1.62e43p-1f), x); /* ln2, high part */
    V r = fused(vm, n, F(vm, 0x1.05c61p-29f), r1); /* ln2, low part (negative) */
    V p = POLYNOMIAL(vm, r, 0x1.6a4d6p-10f, 0x1.12398ep-7f, 0x1.5558bp-5f, 0x1.555492p-3f, 0x1.fffffcp-2f, 1.0f, 1.0f);
    return scaled(vm, p, n);
}

/* ---- the functions ---- */

static V exp_f32(emitter *vm, V x)
{
    V x1 = at_most(vm, F(vm, 89.0f), x);
    V x2 = at_least(vm, F(vm, -104.0f), x1);
    if (can_scale(vm))
        return exp_by_scaling(vm, x2);
    V t = fused(vm, x2, F(vm, 0x1.715476p-1f), F(vm, 0x1.8000fep23f)); /* x / (2 ln2), + 127 */
    V m = sub(vm, t, F(vm, 0x1.8000fep23f));
    V r1 = fused(vm, m, F(vm, -0x1.62e43p0f), x2); /* 2 ln2, high part */
    V r = fused(vm, m, F(vm, 0x1.05c61p-28f), r1); /* 2 ln2, low part (negative) */
    V p = POLYNOMIAL(vm, r, 0x1.9ba6a2p-13f, 0x1.71beeap-10f, 0x1.1126eap-7f, 0x1.5549f0p-5f, 0x1.555514p-3f,
                     0x1.00000cp-1f, 1.0f, 1.0f);
    V b = bits(vm, t);
    V sb = shift_left(vm, b, 23);
    V s = real(vm, sb); /* 2^m */
    V y1 = mul(vm, p, s);
    V y = mul(vm, y1, s); /* the only inexact scaling, so denormal results round once */
    return y;
}

static V logistic_f32(emitter *vm, V x)
{
    V x1 = at_most(vm, F(vm, 30.0f), x);
    V x2 = at_least(vm, F(vm, -104.0f), x1);
    if (can_scale(vm)) {
        V e = exp_by_scaling(vm, x2);
        return divide(vm, e, add(vm, e, F(vm, 1.0f)));
    }
    V t = fused(vm, x2, F(vm, 0x1.715476p0f), F(vm, 0x1.80012ep23f)); /* x / ln2 + (1.5 * 2^23 + 127 + 24) */
    V n = sub(vm, t, F(vm, 0x1.80012ep23f));
    V r1 = fused(vm, n, F(vm, -0x1.62e43p-1f), x2);
    V r = fused(vm, n, F(vm, 0x1.05c61p-29f), r1);
    V p =
        POLYNOMIAL(vm, r, 0x1.6a4f1ep-10f, 0x1.123984p-7f, 0x1.5558aep-5f, 0x1.555492p-3f, 0x1.fffffcp-2f, 1.0f, 1.0f);
    V b = bits(vm, t);
    V sb = shift_left(vm, b, 23);
    V s = real(vm, sb); /* 2^(n + 24) */
    V e1 = mul(vm, p, s);
    V e = mul(vm, e1, F(vm, 0x1p-24f)); /* e^x, rounds once even when denormal */
    V d = add(vm, e, F(vm, 1.0f));
    V y = divide(vm, e, d);
    return y;
}

static V tanh_f32(emitter *vm, V x)
{
    V xb = bits(vm, x);
    V sign = bit_and(vm, xb, I(vm, 0x80000000));
    V ab = bit_and(vm, xb, I(vm, 0x7fffffff));
    V a0 = real(vm, ab);
    V a = at_most(vm, F(vm, 9.1f), a0);
    V t = fused(vm, a, F(vm, 0x1.715476p1f), F(vm, 0x1.8000fep23f)); /* 2 a / ln2 + (1.5 * 2^23 + 127) */
    V n = sub(vm, t, F(vm, 0x1.8000fep23f));
    V r = fused(vm, n, F(vm, -0x1.62e43p-2f), a); /* 2a = n ln2 + 2r; the low part of ln2 is damped away */
    V q = POLYNOMIAL(vm, r, 0x1.6b9c4ep-4f, 0x1.12253ep-2f, 0x1.5556f2p-1f, 0x1.5554b4p0f, 0x1.fffffep0f, 2.0f);
    V p = mul(vm, q, r); /* e^2r - 1 */
    V b = bits(vm, t);
    V sb = shift_left(vm, b, 23);
    V s = real(vm, sb); /* 2^n */
    V s1 = sub(vm, s, F(vm, 1.0f));
    V e = fused(vm, s, p, s1); /* e^2a - 1 */
    V d = add(vm, e, F(vm, 2.0f));
    V y = divide(vm, e, d);
    V yb = bits(vm, y);
    V zb = bit_or(vm, yb, sign);
    return real(vm, zb);
}

static V erf_f32(emitter *vm, V x)
{
    V xb = bits(vm, x);
    V sign = bit_and(vm, xb, I(vm, 0x80000000));
    V ab = bit_and(vm, xb, I(vm, 0x7fffffff));
    V a0 = real(vm, ab);
    V a = at_most(vm, F(vm, 4.0f), a0);
    V p = POLYNOMIAL(vm, a, 0x1.792898p-14f, -0x1.9a0a8ap-11f, 0x1.abfb88p-9f, -0x1.e15026p-8f, 0x1.74a844p-7f,
                     -0x1.03b0d0p-7f, 0x1.951914p-7f, 0x1.366e40p-6f, 0x1.b63aacp-5f, 0x1.2a01b6p-3f, 0x1.5700cap-2f,
                     0x1.c7f762p-2f);
    V u = mul(vm, p, a);
    V h1 = fused(vm, u, F(vm, 0x1.cee01ep-1f), F(vm, 0x1.9afbcap1f)); /* 1.5 k^3, 4.5 k^2 */
    V h = fused(vm, h1, u, F(vm, 0x1.e68ba6p1f));                     /* 4.5 k */
    V z = mul(vm, h, u);
    V d = add(vm, z, F(vm, 1.5f));
    V y = near_quotient(vm, z, d);
    if (vm->spec->approx)
        y = fused(vm, fused(vm, negated(vm, y), d, z), reciprocal(vm, d), y); /* as good as divided */
    V yb = bits(vm, y);
    V zb = bit_or(vm, yb, sign);
    return real(vm, zb);
}

static V log_f32(emitter *vm, V x)
{
    V xs = mul(vm, x, F(vm, 0x1p23f));
    V x1 = choose(vm, TN_S_lt, x, F(vm, 0x1p-126f), xs, x);
    V eadj = choose(vm, TN_S_lt, x, F(vm, 0x1p-126f), F(vm, -0x1.7p27f), F(vm, 0.0f)); /* -23 * 2^23 */
    V b = bits(vm, x1);
    V i = sub(vm, b, I(vm, 0x3f3504f3));       /* sqrt(1/2) */
    V e23 = bit_and(vm, i, I(vm, 0xff800000)); /* exponent * 2^23 */
    V mb = sub(vm, b, e23);
    V mant = real(vm, mb); /* [sqrt(1/2), sqrt(2)) */
    V f = sub(vm, mant, F(vm, 1.0f));
    V ef0 = from_int(vm, e23);
    V ef = add(vm, ef0, eadj);
    V f2 = mul(vm, f, f);
    V p = POLYNOMIAL(vm, f, 0x1.660374p-4f, -0x1.251136p-3f, 0x1.317ee6p-3f, -0x1.535aaap-3f, 0x1.98d330p-3f,
                     -0x1.0004aep-2f, 0x1.5556f2p-2f, -0x1.fffffap-2f);
    V l = fused(vm, f2, p, f);                            /* log(mant) */
    V y = fused(vm, ef, F(vm, 0x1.62e43p-24f), l);        /* + e ln2 */
    V y1 = choose(vm, TN_S_lt, x, F(vm, INFINITY), y, x); /* +inf and NaN */
    V sp = choose(vm, TN_S_eq, x, F(vm, 0.0f), F(vm, -INFINITY), F(vm, NAN));
    V y2 = choose(vm, TN_S_le, x, F(vm, 0.0f), sp, y1);
    return y2;
}

static V sin_f32(emitter *vm, V x)
{
    V t = fused(vm, x, F(vm, 0x1.45f306p-2f), F(vm, 0x1.8p23f)); /* x / pi */
    V q = sub(vm, t, F(vm, 0x1.8p23f));
    V r1 = fused(vm, q, F(vm, -0x1.921fb4p1f), x);
    V r2 = fused(vm, q, F(vm, -0x1.4442d0p-23f), r1);
    V r = fused(vm, q, F(vm, -0x1.846988p-47f), r2);
    V z = mul(vm, r, r);
    V p = POLYNOMIAL(vm, z, 0x1.5dbc24p-19f, -0x1.9f7046p-13f, 0x1.110ed8p-7f, -0x1.55554cp-3f, 1.0f);
    V y0 = mul(vm, p, r);
    V y1 = at_most(vm, F(vm, 1.0f), y0); /* rounding could overshoot 1 by an ulp */
    V y = at_least(vm, F(vm, -1.0f), y1);
    V tb = bits(vm, t);
    V sb = shift_left(vm, tb, 31);
    V yb = bits(vm, y);
    V o = bit_xor(vm, yb, sb);
    return real(vm, o);
}

static V cos_f32(emitter *vm, V x)
{
    V t = fused(vm, x, F(vm, 0x1.45f306p-2f), F(vm, -0.5f)); /* cos x = -+ sin(x - (q + 1/2) pi) */
    V t1 = add(vm, t, F(vm, 0x1.8p23f));
    V q = sub(vm, t1, F(vm, 0x1.8p23f));
    V k = add(vm, q, F(vm, 0.5f));
    V r1 = fused(vm, k, F(vm, -0x1.921fb4p1f), x);
    V r2 = fused(vm, k, F(vm, -0x1.4442d0p-23f), r1);
    V r = fused(vm, k, F(vm, -0x1.846988p-47f), r2);
    V z = mul(vm, r, r);
    V p = POLYNOMIAL(vm, z, 0x1.5dbc24p-19f, -0x1.9f7046p-13f, 0x1.110ed8p-7f, -0x1.55554cp-3f, 1.0f);
    V y0 = mul(vm, p, r);
    V y1 = at_most(vm, F(vm, 1.0f), y0); /* rounding could overshoot 1 by an ulp */
    V y = at_least(vm, F(vm, -1.0f), y1);
    V tb = bits(vm, t1);
    V tc = add(vm, tb, I(vm, 1));
    V sb = shift_left(vm, tc, 31);
    V yb = bits(vm, y);
    V o = bit_xor(vm, yb, sb);
    return real(vm, o);
}

/* exact at integers */
static V exp2_f32(emitter *vm, V x)
{
    V x1 = at_most(vm, F(vm, 129.0f), x);
    V x2 = at_least(vm, F(vm, -152.0f), x1);
    V t = add(vm, x2, F(vm, 0x1.8001fcp23f)); /* rounds to n; low bits n + 254 */
    V n = sub(vm, t, F(vm, 0x1.8001fcp23f));
    V r = sub(vm, x2, n);
    V p = POLYNOMIAL(vm, r, 0x1.4172aap-13f, 0x1.5f0978p-10f, 0x1.3b2ddap-7f, 0x1.c6af7ap-5f, 0x1.ebfbdcp-3f,
                     0x1.62e43p-1f, 1.0f);
    V b = bits(vm, t);
    V ha = shift_right(vm, b, 1);
    V hb = sub(vm, b, ha);
    V sa = shift_left(vm, ha, 23);
    V sb = shift_left(vm, hb, 23);
    V fa = real(vm, sa); /* fa * fb = 2^n */
    V fb = real(vm, sb);
    V y1 = mul(vm, p, fa);
    V y = mul(vm, y1, fb);
    return y;
}

static V expm1_f32(emitter *vm, V x)
{
    V x1 = at_most(vm, F(vm, 89.0f), x);
    V x2 = at_least(vm, F(vm, -18.0f), x1);
    V t = fused(vm, x2, F(vm, 0x1.715476p0f), F(vm, 0x1.8000fcp23f)); /* low bits n + 126 */
    V n = sub(vm, t, F(vm, 0x1.8000fcp23f));
    V r1 = fused(vm, n, F(vm, -0x1.62e43p-1f), x2);
    V r = fused(vm, n, F(vm, 0x1.05c61p-29f), r1);
    V q = POLYNOMIAL(vm, r, 0x1.6b9c4ep-10f, 0x1.12253ep-7f, 0x1.5556f2p-5f, 0x1.5554b4p-3f, 0x1.fffffep-2f);
    V r2 = mul(vm, r, r);
    V p = fused(vm, r2, q, r); /* e^r - 1 */
    V b = bits(vm, t);
    V sb = shift_left(vm, b, 23);
    V s = real(vm, sb); /* 2^(n - 1) */
    V s1 = sub(vm, s, F(vm, 0.5f));
    V h = fused(vm, s, p, s1);
    V y = add(vm, h, h);
    V a = absolute(vm, x);
    V o = choose(vm, TN_S_lt, a, F(vm, 0x1p-25f), x, y); /* keeps -0 and denormals */
    return o;
}

static V log2_f32(emitter *vm, V x)
{
    V xs = mul(vm, x, F(vm, 0x1p23f));
    V x1 = choose(vm, TN_S_lt, x, F(vm, 0x1p-126f), xs, x);
    V eadj = choose(vm, TN_S_lt, x, F(vm, 0x1p-126f), F(vm, -0x1.7p27f), F(vm, 0.0f)); /* -23 * 2^23 */
    V b = bits(vm, x1);
    V i = sub(vm, b, I(vm, 0x3f3504f3));       /* sqrt(1/2) */
    V e23 = bit_and(vm, i, I(vm, 0xff800000)); /* exponent * 2^23 */
    V mb = sub(vm, b, e23);
    V mant = real(vm, mb);
    V f = sub(vm, mant, F(vm, 1.0f));
    V ef0 = from_int(vm, e23);
    V ef = add(vm, ef0, eadj);
    V p = POLYNOMIAL(vm, f, 0x1.01731cp-3f, -0x1.a76ffcp-3f, 0x1.b960aep-3f, -0x1.e9838ap-3f, 0x1.26dc76p-2f,
                     -0x1.715b6ep-2f, 0x1.ec736cp-2f, -0x1.715472p-1f, 0x1.715476p0f);
    V l = mul(vm, p, f);
    V y = fused(vm, ef, F(vm, 0x1p-23f), l);
    V y1 = choose(vm, TN_S_lt, x, F(vm, INFINITY), y, x);
    V sp = choose(vm, TN_S_eq, x, F(vm, 0.0f), F(vm, -INFINITY), F(vm, NAN));
    V y2 = choose(vm, TN_S_le, x, F(vm, 0.0f), sp, y1);
    return y2;
}

static V log1p_f32(emitter *vm, V x)
{
    V u = add(vm, x, F(vm, 1.0f));
    V b = bits(vm, u);
    V i = sub(vm, b, I(vm, 0x3f3504f3));
    V e23 = bit_and(vm, i, I(vm, 0xff800000)); /* e * 2^23 with 2^e near 1 + x */
    V sb = sub(vm, I(vm, 0x40800000), e23);
    V s = real(vm, sb);                              /* 4 * 2^-e, never denormal */
    V s1 = fused(vm, s, F(vm, 0.25f), F(vm, -1.0f)); /* 2^-e - 1 */
    V xq = mul(vm, x, F(vm, 0.25f));
    V f = fused(vm, s, xq, s1); /* (1 + x) 2^-e - 1, one rounding */
    V ef = from_int(vm, e23);
    V f2 = mul(vm, f, f);
    V p = POLYNOMIAL(vm, f, 0x1.660374p-4f, -0x1.251136p-3f, 0x1.317ee6p-3f, -0x1.535aaap-3f, 0x1.98d33p-3f,
                     -0x1.0004aep-2f, 0x1.5556f2p-2f, -0x1.fffffap-2f);
    V l = fused(vm, f2, p, f);
    V y = fused(vm, ef, F(vm, 0x1.62e43p-24f), l);
    V a = absolute(vm, x);
    V y0 = choose(vm, TN_S_lt, a, F(vm, 0x1p-25f), x, y); /* keeps -0 and denormals */
    V y1 = choose(vm, TN_S_lt, x, F(vm, INFINITY), y0, x);
    V sp = choose(vm, TN_S_eq, x, F(vm, -1.0f), F(vm, -INFINITY), F(vm, NAN));
    V y2 = choose(vm, TN_S_le, x, F(vm, -1.0f), sp, y1);
    return y2;
}

/* |x| <= VM_TRIG_LIMIT */
static V tan_f32(emitter *vm, V x)
{
    V t = fused(vm, x, F(vm, 0x1.45f306p-1f), F(vm, 0x1.8p23f)); /* x / (pi/2) */
    V q = sub(vm, t, F(vm, 0x1.8p23f));
    V r1 = fused(vm, q, F(vm, -0x1.921fb4p0f), x);
    V r2 = fused(vm, q, F(vm, -0x1.4442dp-24f), r1);
    V r = fused(vm, q, F(vm, -0x1.846988p-48f), r2);
    V z = mul(vm, r, r);
    V p = POLYNOMIAL(vm, z, 0x1.34d09ap-7f, 0x1.9086e8p-9f, 0x1.90e67ep-6f, 0x1.b57584p-5f, 0x1.112e5cp-3f,
                     0x1.5554dcp-2f, 1.0f);
    V g = mul(vm, p, r); /* tan r */
    V tb = bits(vm, t);
    V odd = bit_and(vm, tb, I(vm, 1));
    V num = choose(vm, TN_S_ne, odd, I(vm, 0), F(vm, -1.0f), g);
    V den = choose(vm, TN_S_ne, odd, I(vm, 0), g, F(vm, 1.0f));
    V y = divide(vm, num, den);
    return y;
}

static V asin_f32(emitter *vm, V x)
{
    V xb = bits(vm, x);
    V sign = bit_and(vm, xb, I(vm, 0x80000000));
    V a = absolute(vm, x);
    V zb = fused(vm, a, F(vm, -0.5f), F(vm, 0.5f)); /* (1 - a) / 2 */
    V zs = mul(vm, a, a);
    V z = choose(vm, TN_S_gt, a, F(vm, 0.5f), zb, zs);
    V sq = square_root(vm, zb); /* NaN when a > 1 */
    V w = choose(vm, TN_S_gt, a, F(vm, 0.5f), sq, a);
    V p = POLYNOMIAL(vm, z, 0x1.595c92p-5f, 0x1.8c3e28p-6f, 0x1.747bbap-5f, 0x1.330204p-4f, 0x1.5555c8p-3f);
    V wz = mul(vm, w, z);
    V g = fused(vm, wz, p, w); /* asin w */
    V big = fused(vm, g, F(vm, -2.0f), F(vm, 0x1.921fb6p0f));
    V y = choose(vm, TN_S_gt, a, F(vm, 0.5f), big, g);
    V yb = bits(vm, y);
    V ob = bit_or(vm, yb, sign);
    return real(vm, ob);
}

static V acos_f32(emitter *vm, V x)
{
    V a = absolute(vm, x);
    V zb = fused(vm, a, F(vm, -0.5f), F(vm, 0.5f));
    V zs = mul(vm, a, a);
    V z = choose(vm, TN_S_gt, a, F(vm, 0.5f), zb, zs);
    V sq = square_root(vm, zb);
    V w = choose(vm, TN_S_gt, a, F(vm, 0.5f), sq, a);
    V p = POLYNOMIAL(vm, z, 0x1.595c92p-5f, 0x1.8c3e28p-6f, 0x1.747bbap-5f, 0x1.330204p-4f, 0x1.5555c8p-3f);
    V wz = mul(vm, w, z);
    V g = fused(vm, wz, p, w);
    V base1 = choose(vm, TN_S_lt, x, F(vm, 0.0f), F(vm, 0x1.921fb6p1f), F(vm, 0.0f));
    V base = choose(vm, TN_S_gt, a, F(vm, 0.5f), base1, F(vm, 0x1.921fb6p0f));
    V k1 = choose(vm, TN_S_lt, x, F(vm, 0.0f), F(vm, -2.0f), F(vm, 2.0f));
    V k2 = choose(vm, TN_S_lt, x, F(vm, 0.0f), F(vm, 1.0f), F(vm, -1.0f));
    V k = choose(vm, TN_S_gt, a, F(vm, 0.5f), k1, k2);
    V y = fused(vm, g, k, base);
    return y;
}

static V atan_f32(emitter *vm, V x)
{
    V xb = bits(vm, x);
    V sign = bit_and(vm, xb, I(vm, 0x80000000));
    V a = absolute(vm, x);
    V num = choose(vm, TN_S_gt, a, F(vm, 1.0f), F(vm, -1.0f), a);
    V den = choose(vm, TN_S_gt, a, F(vm, 1.0f), a, F(vm, 1.0f));
    V r = near_quotient(vm, num, den);
    V z = mul(vm, r, r);
    V p = POLYNOMIAL(vm, z, 0x1.7eb7b4p-9f, -0x1.0c1eb8p-6f, 0x1.61f2ecp-5f, -0x1.355214p-4f, 0x1.b4df04p-4f,
                     -0x1.230a98p-3f, 0x1.9978ecp-3f, -0x1.5554dcp-2f);
    V rz = mul(vm, r, z);
    V g = fused(vm, rz, p, r);
    V base = choose(vm, TN_S_gt, a, F(vm, 1.0f), F(vm, 0x1.921fb6p0f), F(vm, 0.0f));
    V y = add(vm, base, g);
    V yb = bits(vm, y);
    V ob = bit_or(vm, yb, sign);
    return real(vm, ob);
}

static V atan2_f32(emitter *vm, V y, V x)
{
    V yb = bits(vm, y);
    V sign = bit_and(vm, yb, I(vm, 0x80000000));
    V xi = bits(vm, x); /* sign bit tells -0 too */
    V ay = absolute(vm, y);
    V ax = absolute(vm, x);
    V tot = add(vm, ax, ay); /* NaN iff x or y is; 0 iff both are */
    V num = choose(vm, TN_S_gt, ay, ax, ax, ay);
    V den = choose(vm, TN_S_gt, ay, ax, ay, ax);
    V r0 = divide(vm, num, den);
    V r1 = choose(vm, TN_S_eq, tot, F(vm, 0.0f), F(vm, 0.0f), r0);
    V r = choose(vm, TN_S_eq, num, F(vm, INFINITY), F(vm, 1.0f), r1); /* both infinite */
    V z = mul(vm, r, r);
    V p = POLYNOMIAL(vm, z, 0x1.7eb7b4p-9f, -0x1.0c1eb8p-6f, 0x1.61f2ecp-5f, -0x1.355214p-4f, 0x1.b4df04p-4f,
                     -0x1.230a98p-3f, 0x1.9978ecp-3f, -0x1.5554dcp-2f);
    V rz = mul(vm, r, z);
    V g = fused(vm, rz, p, r);
    V gn = negated(vm, g); /* xor of the sign bit */
    V base1 = choose(vm, TN_S_lt, xi, I(vm, 0), F(vm, 0x1.921fb6p1f), F(vm, 0.0f));
    V base = choose(vm, TN_S_gt, ay, ax, F(vm, 0x1.921fb6p0f), base1);
    V gs1 = choose(vm, TN_S_lt, xi, I(vm, 0), g, gn); /* steep: pi/2 -+ g */
    V gs2 = choose(vm, TN_S_lt, xi, I(vm, 0), gn, g);
    V gs = choose(vm, TN_S_gt, ay, ax, gs1, gs2);
    V o = add(vm, base, gs);
    V o1 = choose(vm, TN_S_ne, tot, tot, tot, o);
    V ob = bits(vm, o1);
    V oc = bit_or(vm, ob, sign);
    return real(vm, oc);
}

static V half_exp_f32(emitter *vm, V a)
{
    V a1 = at_most(vm, F(vm, 90.0f), a);
    V t = fused(vm, a1, F(vm, 0x1.715476p-1f), F(vm, 0x1.8000fep23f));
    V m = sub(vm, t, F(vm, 0x1.8000fep23f));
    V r1 = fused(vm, m, F(vm, -0x1.62e43p0f), a1);
    V r = fused(vm, m, F(vm, 0x1.05c61p-28f), r1);
    V p = POLYNOMIAL(vm, r, 0x1.9ba6a2p-13f, 0x1.71beeap-10f, 0x1.1126eap-7f, 0x1.5549fp-5f, 0x1.555514p-3f,
                     0x1.00000cp-1f, 1.0f, 1.0f);
    V b = bits(vm, t);
    V sb = shift_left(vm, b, 23);
    V s = real(vm, sb);
    V sh = mul(vm, s, F(vm, 0.5f));
    V y1 = mul(vm, p, s);
    V y = mul(vm, y1, sh);
    return y;
}

static V sinh_f32(emitter *vm, V x)
{
    V xb = bits(vm, x);
    V sign = bit_and(vm, xb, I(vm, 0x80000000));
    V a = absolute(vm, x);
    V e = half_exp_f32(vm, a);
    V q = near_quotient(vm, F(vm, 0.25f), e);
    V big = sub(vm, e, q);
    V z = mul(vm, a, a);
    V p = POLYNOMIAL(vm, z, 0x1.ab428ap-13f, 0x1.10f76p-7f, 0x1.555598p-3f);
    V az = mul(vm, a, z);
    V small = fused(vm, az, p, a);
    V y = choose(vm, TN_S_gt, a, F(vm, 1.0f), big, small);
    V yb = bits(vm, y);
    V ob = bit_or(vm, yb, sign);
    return real(vm, ob);
}

static V cosh_f32(emitter *vm, V x)
{
    V a = absolute(vm, x);
    V e = half_exp_f32(vm, a);
    V q = near_quotient(vm, F(vm, 0.25f), e);
    V y = add(vm, e, q);
    return y;
}

static V asinh_f32(emitter *vm, V x)
{
    V xb = bits(vm, x);
    V sign = bit_and(vm, xb, I(vm, 0x80000000));
    V a = absolute(vm, x);
    V a2 = mul(vm, a, a);
    V c = add(vm, a2, F(vm, 1.0f));
    V s = square_root(vm, c);
    V s1 = add(vm, s, F(vm, 1.0f));
    V q = divide(vm, a2, s1);
    V v1 = add(vm, a, q);
    V v = choose(vm, TN_S_gt, a, F(vm, 0x1p30f), a, v1); /* asinh a = log a + ln2 */
    V plus = choose(vm, TN_S_gt, a, F(vm, 0x1p30f), F(vm, 0x1.62e43p-1f), F(vm, 0.0f));
    V l = log1p_f32(vm, v);
    V y = add(vm, l, plus);
    V yb = bits(vm, y);
    V ob = bit_or(vm, yb, sign);
    return real(vm, ob);
}

static V acosh_f32(emitter *vm, V x)
{
    V t = sub(vm, x, F(vm, 1.0f));
    V t2 = add(vm, t, F(vm, 2.0f));
    V c = mul(vm, t, t2);
    V s = square_root(vm, c);
    V v1 = add(vm, t, s);
    V v = choose(vm, TN_S_gt, x, F(vm, 0x1p30f), x, v1);
    V plus = choose(vm, TN_S_gt, x, F(vm, 0x1p30f), F(vm, 0x1.62e43p-1f), F(vm, 0.0f));
    V l = log1p_f32(vm, v);
    V y = add(vm, l, plus);
    V o = choose(vm, TN_S_lt, x, F(vm, 1.0f), F(vm, NAN), y);
    return o;
}

static V atanh_f32(emitter *vm, V x)
{
    V xb = bits(vm, x);
    V sign = bit_and(vm, xb, I(vm, 0x80000000));
    V a = absolute(vm, x);
    V n = add(vm, a, a);
    V d = sub(vm, F(vm, 1.0f), a);
    V q = divide(vm, n, d); /* < -2 when a > 1, so log1p gives NaN */
    V l = log1p_f32(vm, q);
    V y = mul(vm, l, F(vm, 0.5f));
    V yb = bits(vm, y);
    V ob = bit_or(vm, yb, sign);
    return real(vm, ob);
}

static V cbrt_f32(emitter *vm, V x)
{
    V xb = bits(vm, x);
    V sign = bit_and(vm, xb, I(vm, 0x80000000));
    V a0 = absolute(vm, x);
    V as = mul(vm, a0, F(vm, 0x1p24f));
    V a = choose(vm, TN_S_lt, a0, F(vm, 0x1p-126f), as, a0);
    V k = choose(vm, TN_S_lt, a0, F(vm, 0x1p-126f), F(vm, 0x1p-8f), F(vm, 1.0f));
    V ab = bits(vm, a);
    V af = from_int(vm, ab);
    V gf = fused(vm, af, F(vm, -0x1.555556p-2f), F(vm, 0x1.5287cp30f));
    V gb = to_int(vm, gf); /* in range for every input */
    V y0 = real(vm, gb);   /* a^(-1/3) to 4 % */
    V ay = mul(vm, a, y0);
    V yy = mul(vm, y0, y0);
    V nay = negated(vm, ay); /* xor of the sign bit */
    V h = fused(vm, nay, yy, F(vm, 1.0f));
    V w1 = fused(vm, h, F(vm, 0x1.61f9aep-3f), F(vm, 0x1.c71c72p-3f)); /* 14/81, 2/9 */
    V w2 = fused(vm, w1, h, F(vm, 0x1.555556p-2f));
    V w3 = mul(vm, w2, h);
    V y1 = fused(vm, w3, y0, y0); /* to 2^-15 */
    V d1 = mul(vm, a, y1);
    V d = mul(vm, d1, y1);
    V nd = negated(vm, d);
    V h2 = fused(vm, nd, y1, F(vm, 1.0f));
    V dh = mul(vm, d, h2);
    V c = fused(vm, dh, F(vm, 0x1.555556p-1f), d);
    V ck = mul(vm, c, k);
    V o = choose(vm, TN_S_lt, a0, F(vm, INFINITY), ck, a0);
    V ob = bits(vm, o);
    V oc = bit_or(vm, ob, sign);
    return real(vm, oc);
}

/* Sign and special cases of x^y, whose magnitude is v. */
V tn_l_power_cases(emitter *vm, V x, V y, V v)
{
    V ax = absolute(vm, x);
    V yt = truncated(vm, y);
    V yh = mul(vm, y, F(vm, 0.5f));
    V yht = truncated(vm, yh);
    V xsign = sign_bit(vm, x);
    V sg1 = choose(vm, TN_S_ne, yht, yh, xsign, I(vm, 0));
    V sg = choose(vm, TN_S_eq, yt, y, sg1, I(vm, 0)); /* y odd */
    V vb = bits(vm, v);
    V ob = bit_or(vm, vb, sg);
    V o = real(vm, ob);
    V bad1 = choose(vm, TN_S_lt, ax, F(vm, INFINITY), F(vm, NAN), o);
    V bad = choose(vm, TN_S_lt, x, F(vm, 0.0f), bad1, o);
    V o1 = choose(vm, TN_S_eq, yt, y, o, bad);
    V o2 = choose(vm, TN_S_eq, x, F(vm, 1.0f), F(vm, 1.0f), o1);
    V o3 = choose(vm, TN_S_eq, y, F(vm, 0.0f), F(vm, 1.0f), o2);
    return o3;
}

static V pow_f32(emitter *vm, V x, V y)
{
    /* log2 |x| = h + l */
    V ax = absolute(vm, x);
    V xs = mul(vm, ax, F(vm, 0x1p23f));
    V x1 = choose(vm, TN_S_lt, ax, F(vm, 0x1p-126f), xs, ax);
    V eadj = choose(vm, TN_S_lt, ax, F(vm, 0x1p-126f), F(vm, -23.0f), F(vm, 0.0f));
    V b = bits(vm, x1);
    V i = sub(vm, b, I(vm, 0x3f3504f3));
    V e23 = bit_and(vm, i, I(vm, 0xff800000));
    V mb = sub(vm, b, e23);
    V m = real(vm, mb);
    V ef0 = from_int(vm, e23);
    V ef = fused(vm, ef0, F(vm, 0x1p-23f), eadj);
    V f = sub(vm, m, F(vm, 1.0f));
    V g = add(vm, m, F(vm, 1.0f));
    V g1 = sub(vm, g, F(vm, 1.0f));
    V gl = sub(vm, m, g1); /* g + gl = m + 1 exactly */
    V rg = reciprocal(vm, g); /* its error is in e1 and e2 */
    V s = mul(vm, f, rg);
    V ns = negated(vm, s);
    V e1 = fused(vm, ns, g, f);
    V e2 = fused(vm, ns, gl, e1);
    V sl = mul(vm, e2, rg); /* s + sl = f / (m + 1) */
    V z = mul(vm, s, s);
    V p = POLYNOMIAL(vm, z, 0x1.58b52cp-2f, 0x1.a5ceb8p-2f, 0x1.2776e2p-1f, 0x1.ec709ep-1f);
    V s3 = mul(vm, s, z);
    V w = mul(vm, s3, p);
    V th = mul(vm, s, F(vm, 0x1.715476p1f)); /* 2 / ln2, high part */
    V nth = negated(vm, th);
    V t1 = fused(vm, s, F(vm, 0x1.715476p1f), nth);
    V t2 = fused(vm, s, F(vm, 0x1.4ae0cp-25f), t1);
    V ds = fused(vm, z, F(vm, 0x1.715476p1f), F(vm, 0x1.715476p1f)); /* d log2 m / ds to first order in z */
    V t3 = fused(vm, sl, ds, t2);
    V tw = add(vm, th, w); /* |th| > |w| */
    V c0 = sub(vm, th, tw);
    V c1 = add(vm, c0, w);
    V tl = add(vm, c1, t3); /* tw + tl = log2 m */
    V h1 = add(vm, ef, tw); /* |ef| is 0 or > |tw| */
    V d0 = sub(vm, ef, h1);
    V d1 = add(vm, d0, tw);
    V l = add(vm, d1, tl);
    V h2 = choose(vm, TN_S_lt, ax, F(vm, INFINITY), h1, ax);
    V h = choose(vm, TN_S_eq, ax, F(vm, 0.0f), F(vm, -INFINITY), h2);
    /* 2^(y (h + l)) */
    V ya = at_most(vm, F(vm, 0x1p100f), y);
    V yc = at_least(vm, F(vm, -0x1p100f), ya); /* finite, so that (+-1)^(+-inf) is 1 */
    V ph = mul(vm, yc, h);
    V nph = negated(vm, ph);
    V pl0 = fused(vm, yc, h, nph);
    V pl1 = fused(vm, yc, l, pl0);
    V aph = absolute(vm, ph);
    V pl = choose(vm, TN_S_lt, aph, F(vm, 200.0f), pl1, F(vm, 0.0f));
    V q1 = at_most(vm, F(vm, 129.0f), ph);
    V q2 = at_least(vm, F(vm, -152.0f), q1);
    V t = add(vm, q2, F(vm, 0x1.8001fcp23f));
    V n = sub(vm, t, F(vm, 0x1.8001fcp23f));
    V r0 = sub(vm, q2, n);
    V r = add(vm, r0, pl);
    V k = POLYNOMIAL(vm, r, 0x1.4172aap-13f, 0x1.5f0978p-10f, 0x1.3b2ddap-7f, 0x1.c6af7ap-5f, 0x1.ebfbdcp-3f,
                     0x1.62e43p-1f, 1.0f);
    V tb = bits(vm, t);
    V ha = shift_right(vm, tb, 1);
    V hb = sub(vm, tb, ha);
    V sa = shift_left(vm, ha, 23);
    V sb = shift_left(vm, hb, 23);
    V fa = real(vm, sa);
    V fb = real(vm, sb);
    V v1 = mul(vm, k, fa);
    V v = mul(vm, v1, fb);
    return tn_l_power_cases(vm, x, y, v);
}

/* ---- arguments beyond the reduction's reach ---- */

/* sin, cos, tan reduce up to 2^17. Lanes beyond, infinities and NaN (few or none) go one by one through f64's function
 * of the C library, or doublemath.c's. The result crosses the branch in a reg buffer that is used whole, so it becomes a register; the
 * lanes are indexed in buffers of the rare side's own. */
V tn_l_mend_lanes(tn_lbuilder *b, V where, V x, V near, V (*lane_value)(tn_lbuilder *b, V lane, const void *context), const void *context)
{
    tn_dtype dtype = x->type.dtype;
    int n = x->type.lanes;
    V zero = tn_l_index(b, 0), one = tn_l_index(b, 1);
    V result = tn_l_alloc(b, NULL, dtype, TN_SPACE_REG, 1);
    result->type.lanes = n;
    tn_l_store(b, result, zero, near, NULL);
    tn_lop *rare = tn_l_if(b, tn_l_hreduce(b, TN_S_or, where));
    tn_lbuilder in = tn_l_in(b, rare->region[0]);
    V from = tn_l_alloc(&in, NULL, dtype, TN_SPACE_LOCAL, n),
      to = tn_l_alloc(&in, NULL, dtype, TN_SPACE_LOCAL, n);
    tn_l_store(&in, from, zero, x, NULL);
    tn_lop *lanes = tn_l_for(&in, NULL, zero, tn_l_index(&in, n), one, TN_FOR_SERIAL);
    tn_lbuilder each = tn_l_in(&in, lanes->region[0]);
    V lane = tn_l_load(&each, from, lanes->region[0]->arg, 1, NULL, NULL);
    tn_l_store(&each, to, lanes->region[0]->arg, lane_value(&each, lane, context), NULL);
    V all = tn_l_load(&in, to, zero, n, NULL, NULL);
    tn_l_store(&in, result, zero, tn_l_fn3(&in, TN_S_select, where, all, near), NULL);
    return tn_l_load(b, result, zero, n, NULL, NULL);
}

typedef struct far_lane {
    const tn_vector_spec *spec;
    tn_scalar fn;
} far_lane;

static V library_lane(tn_lbuilder *b, V lane, const void *context)
{
    const far_lane *far = context;
    V wide = tn_l_cast(b, lane, TN_F64), y = far->spec->approx ? tn_l_doublemath(b, far->spec, far->fn, &wide) : tn_l_fn1(b, far->fn, wide);
    return tn_l_cast(b, y, TN_F32);
}

static V with_far_lanes(emitter *vm, tn_scalar fn, V x, V near)
{
    V far = tn_l_fn1(vm->b, TN_S_not, tn_l_fn2(vm->b, TN_S_le, absolute(vm, x), F(vm, 0x1p17f)));
    return tn_l_mend_lanes(vm->b, far, x, near, library_lane, &(far_lane){vm->spec, fn});
}

/* ---- the table ---- */

typedef struct row {
    V (*unary)(emitter *vm, V x);
    V (*binary)(emitter *vm, V x, V y);
    bool far;
} row;

static const row rows[TN_SCALAR_COUNT] = {
#define UNARY(name) [TN_S_##name] = {.unary = name##_f32},
    UNARY(exp) UNARY(exp2) UNARY(expm1) UNARY(log) UNARY(log2) UNARY(log1p) UNARY(logistic) UNARY(tanh) UNARY(erf)
        UNARY(asin) UNARY(acos) UNARY(atan) UNARY(sinh) UNARY(cosh) UNARY(asinh) UNARY(acosh) UNARY(atanh) UNARY(cbrt)
#undef UNARY
            [TN_S_sin] = {.unary = sin_f32, .far = true},
    [TN_S_cos] = {.unary = cos_f32, .far = true},
    [TN_S_tan] = {.unary = tan_f32, .far = true},
    [TN_S_atan2] = {.binary = atan2_f32},
    [TN_S_pow] = {.binary = pow_f32},
};

bool tn_l_has_vecmath(tn_scalar fn)
{
    return rows[fn].unary || rows[fn].binary;
}

tn_lvalue *tn_l_vecmath(tn_lbuilder *b, const tn_vector_spec *spec, tn_scalar fn, tn_lvalue *const *operands)
{
    emitter vm = {b, operands[0]->type.lanes, spec, TN_F32};
    if (rows[fn].binary)
        return rows[fn].binary(&vm, operands[0], operands[1]);
    V y = rows[fn].unary(&vm, operands[0]);
    return rows[fn].far ? with_far_lanes(&vm, fn, operands[0], y) : y;
}

/* ---- division by one number ---- */

static V uniform_scalar(const V y)
{
    if (y->def && y->def->code == TN_L_splat)
        return y->def->operand[0];
    return NULL;
}

/* q[i], or where `rare` holds x[i] / y, all of them: by a divisor that is no splat, so that expanding it again changes nothing. */
static void divide_where(emitter *vm, V rare, V const *x, int n, V y, V *q)
{
    tn_lbuilder *b = vm->b;
    V zero = tn_l_index(b, 0), result[TN_L_QUOTIENTS];
    for (int i = 0; i < n; i++) {
        result[i] = tn_l_alloc(b, NULL, TN_F32, TN_SPACE_REG, 1);
        result[i]->type.lanes = vm->lanes;
        tn_l_store(b, result[i], zero, q[i], NULL);
    }
    tn_lbuilder in = tn_l_in(b, tn_l_if(b, rare)->region[0]);
    V divisor = vm->spec->approx ? y : tn_l_insert(&in, y, uniform_scalar(y), zero);
    for (int i = 0; i < n; i++) {
        V divided = vm->spec->approx ? tn_l_gpu_fn(&in, "quotient", (V[]){x[i], divisor}, 2) : tn_l_fn2(&in, TN_S_div, x[i], divisor);
        tn_l_store(&in, result[i], zero, divided, NULL);
    }
    for (int i = 0; i < n; i++)
        q[i] = tn_l_load(b, result[i], zero, vm->lanes, NULL, NULL);
}

/* Some lane of x[0] … x[n - 1] is not zero and leaves 2^+-100, or `plain` does not hold. As unsigned integers the bits of |x| less 1 make 0 the largest number, so
 * that two running extremes tell for all; NaN needs no care and may count. */
static V some_leave(emitter *vm, V const *x, int n, V plain)
{
    enum { LEAST = 27 << 23, MOST = 227 << 23 }; /* 2^-100 and 2^100 */
    tn_lbuilder *b = vm->b;
    tn_ltype type = tn_lvector(TN_U32, vm->lanes);
    V most = NULL, least = NULL;
    for (int i = 0; i < n; i++) {
        V size = tn_l_fn2(b, TN_S_and, tn_l_bitcast(b, x[i], type), tn_l_const(b, type, (tn_number){.i = 0x7fffffff}));
        V below = tn_l_fn2(b, TN_S_sub, size, tn_l_const(b, type, (tn_number){.i = 1}));
        most = most ? tn_l_fn2(b, TN_S_max, most, size) : size;
        least = least ? tn_l_fn2(b, TN_S_min, least, below) : below;
    }
    V bound = tn_l_fn3(b, TN_S_select, plain, tn_l_const(b, tn_lscalar(TN_U32), (tn_number){.i = LEAST - 2}),
                       tn_l_const(b, tn_lscalar(TN_U32), (tn_number){.i = UINT32_MAX})); /* all are below that one */
    V low = tn_l_fn2(b, TN_S_le, least, tn_l_splat(b, bound, vm->lanes));
    return tn_l_hreduce(b, TN_S_or, tn_l_fn2(b, TN_S_or, low, tn_l_fn2(b, TN_S_gt, most, tn_l_const(b, type, (tn_number){.i = MOST}))));
}

/* With r = 1 / y rounded, q = x r rounded, the remainder x - q y is exact in one fma, and q + remainder * r, rounded once, is the rounded quotient
 * (Markstein, IBM Journal of Research and Development 34(1), 1990), as long as nothing on the way leaves the normal numbers: y within
 * 2^+-24, x zero or within 2^+-100. Else all are divided. Not exact: q is within 2 ulp as long as y and r are normal. */
bool tn_l_divide_by_uniform(tn_lbuilder *b, const tn_vector_spec *spec, tn_lvalue *const *x, int n, tn_lvalue *y, bool exact, tn_lvalue **q)
{
    V s = uniform_scalar(y);
    if (!s || (exact && !spec->fma) || y->type.dtype != TN_F32 || y->type.lanes < 4)
        return false;
    emitter vm = {b, y->type.lanes, spec, TN_F32}, one = {b, 1, spec, TN_F32};
    V r = tn_l_splat(b, exact ? divide(&one, F(&one, 1), s) : reciprocal(&one, s), vm.lanes);
    V size = absolute(&one, s);
    float limit = exact ? 0x1p24f : 0x1p126f;
    V plain = tn_l_fn2(b, TN_S_and, tn_l_fn2(b, TN_S_ge, size, F(&one, 1 / limit)), tn_l_fn2(b, TN_S_le, size, F(&one, limit)));
    for (int i = 0; i < n; i++) {
        q[i] = mul(&vm, x[i], r);
        if (exact)
            q[i] = fused(&vm, fused(&vm, negated(&vm, q[i]), y, x[i]), r, q[i]);
    }
    divide_where(&vm, exact ? some_leave(&vm, x, n, plain) : tn_l_fn1(b, TN_S_not, plain), x, n, y, q);
    return true;
}
