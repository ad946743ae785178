/* The functions of Triton's language that are not written in it: what they compute, and what they refuse. */
#include "triton_test.h"

#define NEAR(x, y) assert_true(fabs((double)(x) - (double)(y)) <= 1e-6 * fmax(1, fabs((double)(y))))

static void expect_floats(const float *found, const float *expected, int n)
{
    for (int i = 0; i < n; i++)
        if (!(found[i] == expected[i] || (isnan(found[i]) && isnan(expected[i]))))
            fail_msg("element %d: %g, expected %g", i, (double)found[i], (double)expected[i]);
}

static void expect_ints(const int32_t *found, const int32_t *expected, int n)
{
    for (int i = 0; i < n; i++)
        if (found[i] != expected[i])
            fail_msg("element %d: %d, expected %d", i, found[i], expected[i]);
}

/* ---- memory ---------------------------------------------------------------------------------------------------------- */

static void masks(void **state)
{
    (void)state;
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[32] = {0};
    static const char text[] = KERNEL("px, pout, n")
        "    r = tl.arange(0, 8)\n"
        "    tl.store(pout + r, tl.load(px + r, mask=r < n, other=-1))\n"          /* int literal, float elements */
        "    tl.store(pout + 8 + r, tl.load(px + r, r < n, 0.5) * 2, mask=r != 1)\n"
        "    rows = tl.arange(0, 2)[:, None]\n"
        "    q = px + rows * 4 + tl.arange(0, 4)[None, :]\n"
        "    v = tl.load(q, mask=(tl.arange(0, 4) < 3), other=9.0)\n"             /* one axis less than the pointers */
        "    tl.store(pout + 16 + rows * 4 + tl.arange(0, 4)[None, :], v)\n"
        "    s = tl.load(px + n, mask=n < 3, other=42)\n"                          /* scalars */
        "    tl.store(pout + 24, s)\n"
        "    tl.store(pout + 25, 7, mask=n < 3)\n"
        "    tl.store(pout + 26, tl.load(px + 1000000, mask=False, other=3))\n"    /* never touched */
        "    tl.store(pout + 28 + tl.arange(0, 4), 5.0, mask=True)\n";
    RUN(text, 1, ARRAY("*f32", x), ARRAY("*f32", out), {"i32", NULL, 0, 5});
    expect_floats(out, (const float[]){1, 2, 3, 4, 5, -1, -1, -1, 2, 0, 6, 8, 10, 1, 1, 1, 1, 2, 3, 9, 5, 6, 7, 9, 42, 0, 3, 0, 5, 5, 5, 5}, 32);
}

static void bools_and_casts_of_stores(void **state)
{
    (void)state;
    uint8_t b[4] = {1, 0, 1, 1}, back[4] = {9, 9, 9, 9};
    int32_t i[4] = {256, 0, -1, 1}, out[4];
    uint8_t small[4];
    int8_t truncated[4];
    static const char text[] = KERNEL("pb, pback, pi, pout, psmall, pt")
        "    r = tl.arange(0, 4)\n"
        "    v = tl.load(pb + r)\n"
        "    tl.static_assert(v.dtype == tl.int1)\n"
        "    tl.store(pout + r, tl.where(v, 10, 20))\n"
        "    tl.store(pback + r, tl.load(pi + r))\n"                /* 256 is not 0 */
        "    tl.store(psmall + r, tl.load(pi + r))\n"               /* wraps */
        "    tl.store(pt + r, tl.load(pi + r).to(tl.float32) * 0.3)\n"; /* truncates */
    RUN(text, 1, ARRAY("*i1", b), ARRAY("*i1", back), ARRAY("*i32", i), ARRAY("*i32", out), ARRAY("*u8", small), ARRAY("*i8", truncated));
    expect_ints(out, (const int32_t[]){10, 20, 10, 10}, 4);
    assert_memory_equal(back, ((const uint8_t[]){1, 0, 1, 1}), 4);
    assert_memory_equal(small, ((const uint8_t[]){0, 0, 255, 1}), 4);
    assert_memory_equal(truncated + 1, ((const int8_t[]){0, 0, 0}), 3);
}

static void block_pointers(void **state)
{
    (void)state;
    float x[15], out[16] = {0}, sums[16] = {0}, copy[15] = {0};
    for (int i = 0; i < 15; i++)
        x[i] = (float)i + 1; /* 3 x 5 */
    static const char text[] = KERNEL("px, pout, psum, pcopy, h, w")
        "    p = tl.make_block_ptr(px, shape=(h, w), strides=(w, 1), offsets=(0, 2), block_shape=(4, 4), order=(1, 0))\n"
        "    o = tl.make_block_ptr(pout, (4, 4), (4, 1), (0, 0), (4, 4), (1, 0))\n"
        "    tl.store(o, tl.load(p, boundary_check=(0, 1), padding_option='zero'))\n"
        "    q = tl.make_block_ptr(px, (h, w), (w, 1), (-1, -1), (2, 2), (1, 0))\n"     /* starts outside */
        "    acc = tl.full((2, 2), 0, tl.float32)\n"
        "    for i in range(0, 2):\n"
        "        acc += tl.load(q, boundary_check=(0, 1), padding_option='zero')\n"
        "        q = tl.advance(q, (1, 2))\n"
        "    tl.store(psum + tl.arange(0, 2)[:, None] * 2 + tl.arange(0, 2)[None, :], acc)\n"
        "    n = tl.load(tl.make_block_ptr(px, (h, w), (w, 1), (2, 4), (1, 2), (1, 0)), boundary_check=(1,), padding_option='nan')\n"
        "    tl.store(psum + 4 + tl.arange(0, 2)[None, :], n)\n"
        "    c = tl.make_block_ptr(pcopy, (h, w), (w, 1), (2, 3), (2, 4), (1, 0))\n"
        "    tl.store(c, tl.full((2, 4), 7, tl.int32), boundary_check=(0, 1))\n"
        "    tl.static_assert(p.dtype.element_ty.shape[0] == 4)\n"
        "    tl.static_assert(p.type.element_ty.element_ty == tl.float32)\n";
    RUN(text, 1, ARRAY("*f32", x), ARRAY("*f32", out), ARRAY("*f32", sums), ARRAY("*f32", copy), {"i32", NULL, 0, 3}, {"i32", NULL, 0, 5});
    expect_floats(out, (const float[]){3, 4, 5, 0, 8, 9, 10, 0, 13, 14, 15, 0, 0, 0, 0, 0}, 16);
    expect_floats(sums, (const float[]){0 + 2, 0 + 3, 0 + 7, 1 + 8, 15, NAN}, 6);
    for (int i = 0; i < 15; i++)
        assert_true(copy[i] == (i == 13 || i == 14 ? 7 : 0));
}

static void descriptors(void **state)
{
    (void)state;
    float x[15], out[32] = {0}, y[15] = {0};
    int32_t rows[4] = {2, 7, 0, -1};
    for (int i = 0; i < 15; i++)
        x[i] = (float)i + 1; /* 3 x 5 */
    static const char text[] = KERNEL("px, pout, py, prows, h, w")
        "    d = tl.make_tensor_descriptor(px, [h, w], [w, 1], [2, 4])\n"
        "    o = tl.arange(0, 2)[:, None] * 4 + tl.arange(0, 4)[None, :]\n"
        "    tl.store(pout + o, d.load([2, 2]))\n"
        "    tl.store(pout + 8 + o, tl.load_tensor_descriptor(d, [-1, -1]))\n"
        "    tl.static_assert(d.block_shape[1] == 4)\n"
        "    tl.static_assert(d.dtype == tl.float32)\n"
        "    e = tl.make_tensor_descriptor(py, [h, w], [w, 1], [2, 4])\n"
        "    e.store([2, 3], tl.full([2, 4], 5, tl.int32))\n"
        "    e.atomic_add([1, 3], tl.full([2, 4], 1, tl.float32))\n"
        "    r = tl.load(prows + tl.arange(0, 4))\n"
        "    g = tl.make_tensor_descriptor(px, [h, w], [w, 1], [1, 4], padding_option='nan')\n"
        "    tl.store(pout + 16 + tl.arange(0, 4)[:, None] * 4 + tl.arange(0, 4)[None, :], g.gather(r, 2))\n"
        "    s = tl.make_tensor_descriptor(py, [h, w], [w, 1], [1, 4])\n"
        "    s.scatter(tl.full([4, 4], 9, tl.float32), r, 4)\n";
    RUN(text, 1, ARRAY("*f32", x), ARRAY("*f32", out), ARRAY("*f32", y), ARRAY("*i32", rows), {"i32", NULL, 0, 3}, {"i32", NULL, 0, 5});
    expect_floats(out, (const float[]){13, 14, 15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3}, 16);
    expect_floats(out + 16, (const float[]){13, 14, 15, NAN, NAN, NAN, NAN, NAN, 3, 4, 5, NAN, NAN, NAN, NAN, NAN}, 16);
    expect_floats(y, (const float[]){0, 0, 0, 0, 9, 0, 0, 0, 1, 1, 0, 0, 0, 6, 9}, 15);
}

static void atomics(void **state)
{
    (void)state;
    int32_t i[8] = {5, 5, 5, 5, 5, 5, 5, 5}, old[16] = {0};
    float f[6] = {1, -1, 2, -2, 3, 0};
    uint16_t h[2] = {0x3c00, 0x3c00}; /* 1 */
    uint32_t u[2] = {5, 5};
    static const char text[] = KERNEL("pi, pold, pf, ph, pu")
        "    r = tl.arange(0, 4)\n"
        "    tl.store(pold + r, tl.atomic_add(pi + r // 2, r, mask=r != 1, sem='relaxed', scope='cta'))\n" /* 0: +0; 1: +2 +3 */
        "    tl.store(pold + 4, tl.atomic_max(pi + 2, 9))\n"
        "    tl.store(pold + 5, tl.atomic_min(pi + 3, -9))\n"
        "    tl.store(pold + 6, tl.atomic_and(pi + 4, 4))\n"
        "    tl.store(pold + 7, tl.atomic_or(pi + 5, 2))\n"
        "    tl.store(pold + 8, tl.atomic_xor(pi + 6, 1))\n"
        "    tl.store(pold + 9, tl.atomic_xchg(pi + 7, 77))\n"
        "    tl.store(pold + 10, tl.atomic_cas(pi + 7, 77, 78))\n"
        "    tl.store(pold + 11, tl.atomic_cas(pi + 7, 77, 79))\n"
        "    tl.atomic_max(pf, -3.0)\n"
        "    tl.atomic_max(pf + 1, 4)\n"
        "    tl.atomic_min(pf + 2, -0.5)\n"
        "    tl.atomic_min(pf + 3, -3.0)\n"
        "    (pf + 4).atomic_add(0.5)\n"
        "    tl.atomic_xchg(pf + 5, 8)\n"
        "    tl.atomic_add(ph + tl.arange(0, 2), 0.5)\n"
        "    tl.atomic_max(pu + tl.arange(0, 2), tl.where(tl.arange(0, 2) == 0, -1, 1))\n"; /* -1 becomes the greatest uint32 */
    RUN(text, 1, ARRAY("*i32", i), ARRAY("*i32", old), ARRAY("*f32", f), ARRAY("*f16", h), ARRAY("*u32", u));
    expect_ints(i, (const int32_t[]){5, 10, 9, -9, 4, 7, 4, 78}, 8);
    expect_ints(old, (const int32_t[]){5, 0, 5, 7, 5, 5, 5, 5, 5, 5, 77, 78}, 12);
    expect_floats(f, (const float[]){1, 4, -0.5f, -3, 3.5f, 8}, 6);
    assert_int_equal(h[0], 0x3e00);
    assert_int_equal(u[0], UINT32_MAX);
    assert_int_equal(u[1], 5);
}

/* ---- creation and shape ---------------------------------------------------------------------------------------------- */

static void shapes(void **state)
{
    (void)state;
    static const struct {
        const char *expression; /* of x = 0 … 7 and m = x as 2 x 4 */
        const char *shape;      /* as a static_assert compares it */
        int n;
        int32_t expected[16];
    } cases[] = {
        {"tl.arange(4, 8)", "[4]", 4, {4, 5, 6, 7}},
        {"tl.full([4], 3.0, tl.int32)", "[4]", 4, {3, 3, 3, 3}},
        {"tl.full((2,), x.dtype.primitive_bitwidth, tl.int32)", "[2]", 2, {32, 32}},
        {"tl.reshape(x, (4, 2))[None, :, :]", "[1, 4, 2]", 8, {0, 1, 2, 3, 4, 5, 6, 7}},
        {"m.T", "[4, 2]", 8, {0, 4, 1, 5, 2, 6, 3, 7}},
        {"tl.trans(m)", "[4, 2]", 8, {0, 4, 1, 5, 2, 6, 3, 7}},
        {"tl.trans(m, 1, 0)", "[4, 2]", 8, {0, 4, 1, 5, 2, 6, 3, 7}},
        {"x.reshape(2, 2, 2).permute(2, 0, 1)", "[2, 2, 2]", 8, {0, 2, 4, 6, 1, 3, 5, 7}},
        {"tl.permute(x.view([2, 2, 2]), (0, 2, 1))", "[2, 2, 2]", 8, {0, 2, 1, 3, 4, 6, 5, 7}},
        {"tl.expand_dims(x, 0)", "[1, 8]", 8, {0, 1, 2, 3, 4, 5, 6, 7}},
        {"tl.expand_dims(x, (0, -1))", "[1, 8, 1]", 8, {0, 1, 2, 3, 4, 5, 6, 7}},
        {"x[:, None]", "[8, 1]", 8, {0, 1, 2, 3, 4, 5, 6, 7}},
        {"tl.squeeze(x[:, None], 1)", "[8]", 8, {0, 1, 2, 3, 4, 5, 6, 7}},
        {"tl.broadcast_to(tl.arange(0, 2)[:, None], (2, 4))", "[2, 4]", 8, {0, 0, 0, 0, 1, 1, 1, 1}},
        {"tl.arange(0, 2)[:, None].broadcast_to(2, 4)", "[2, 4]", 8, {0, 0, 0, 0, 1, 1, 1, 1}},
        {"tl.broadcast(tl.arange(0, 4), m)[0]", "[2, 4]", 8, {0, 1, 2, 3, 0, 1, 2, 3}},
        {"tl.arange(0, 2)[:, None] * 10 + tl.arange(0, 4)", "[2, 4]", 8, {0, 1, 2, 3, 10, 11, 12, 13}},
        {"tl.join(tl.arange(0, 2), tl.arange(2, 4))", "[2, 2]", 4, {0, 2, 1, 3}},
        {"tl.join(n, n + 1)", "[2]", 2, {4, 5}},
        {"tl.split(m.reshape(4, 2))[1]", "[4]", 4, {1, 3, 5, 7}},
        {"tl.cat(tl.arange(0, 2), tl.arange(6, 8), can_reorder=True)", "[4]", 4, {0, 1, 6, 7}},
        {"tl.gather(x, 7 - tl.arange(0, 4), 0)", "[4]", 4, {7, 6, 5, 4}},
        {"tl.gather(m, tl.full([2, 2], 1, tl.int32), axis=1)", "[2, 2]", 4, {1, 1, 5, 5}},
        {"m.gather(1 - tl.arange(0, 2)[:, None] + tl.full([2, 4], 0, tl.int32), 0)", "[2, 4]", 8, {4, 5, 6, 7, 0, 1, 2, 3}},
        {"tl.histogram(x // 3, 4)", "[4]", 4, {3, 3, 2, 0}},
        {"tl.histogram(x // 3, 4, mask=x != 4)", "[4]", 4, {3, 2, 2, 0}},
        {"tl.histogram((x // 3).to(tl.uint8), 4, x < 6)", "[4]", 4, {3, 3, 0, 0}},
    };
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        int32_t out[16] = {0};
        char text[2048];
        snprintf(text, sizeof text,
                 KERNEL("pout, n") "    x = tl.arange(0, 8)\n    m = x.reshape(2, 4)\n    v = %s\n    shape: tl.constexpr = %s\n"
                                   "    tl.static_assert(len(v.shape) == len(shape))\n    tl.static_assert(v.numel == %d)\n"
                                   "    for i in tl.static_range(len(shape)):\n        tl.static_assert(v.shape[i] == shape[i])\n"
                                   "    tl.store(pout + tl.arange(0, %d), tl.reshape(v, (%d,)))\n",
                 cases[i].expression, cases[i].shape, cases[i].n, cases[i].n, cases[i].n);
        RUN(text, 1, ARRAY("*i32", out), {"i32", NULL, 0, 4});
        for (int k = 0; k < cases[i].n; k++)
            if (out[k] != cases[i].expected[k])
                fail_msg("%s, element %d: %d, expected %d", cases[i].expression, k, out[k], cases[i].expected[k]);
    }
}

static void programs(void **state)
{
    (void)state;
    int32_t out[24 * 2] = {0};
    const given arguments[] = {ARRAY("*i32", out)};
    must_run(KERNEL("pout") "    x = tl.program_id(0)\n    y = tl.program_id(axis=1)\n    z = tl.program_id(2)\n"
                            "    at = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x\n"
                            "    tl.store(pout + at * 2, x * 100 + y * 10 + z)\n    tl.store(pout + at * 2 + 1, tl.num_programs(2))\n",
             (const int64_t[3]){4, 3, 2}, arguments, 1);
    for (int i = 0; i < 24; i++) {
        assert_int_equal(out[2 * i], i % 4 * 100 + i / 4 % 3 * 10 + i / 12);
        assert_int_equal(out[2 * i + 1], 2);
    }
}

/* ---- functions of numbers -------------------------------------------------------------------------------------------- */

static double rsqrt(double x) { return 1 / sqrt(x); }

static void functions(void **state)
{
    (void)state;
    static const struct {
        const char *expression;
        double (*fn)(double x);
    } cases[] = {
        {"tl.exp(x)", exp}, {"tl.math.exp2(x)", exp2}, {"tl.log(x)", log}, {"x.log2()", log2}, {"tl.cos(x)", cos}, {"tl.sin(x)", sin}, {"tl.sqrt(x)", sqrt},
        {"tl.sqrt_rn(x)", sqrt}, {"tl.rsqrt(x)", rsqrt}, {"tl.erf(x)", erf}, {"tl.floor(x)", floor}, {"tl.ceil(x)", ceil}, {"tl.math.abs(x)", fabs},
    };
    float x[8] = {0.25f, 0.5f, 1, 1.5f, 2, 3.75f, 10, 0.001f}, out[8];
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        char text[1024];
        snprintf(text, sizeof text, KERNEL("px, pout") "    r = tl.arange(0, 8)\n    x = tl.load(px + r)\n    tl.store(pout + r, %s)\n", cases[i].expression);
        RUN(text, 1, ARRAY("*f32", x), ARRAY("*f32", out));
        for (int k = 0; k < 8; k++)
            NEAR(out[k], cases[i].fn(x[k]));
    }
}

/* ---- combining ------------------------------------------------------------------------------------------------------- */

#define COMBINES                                                                                                                        \
    "import triton\nimport triton.language as tl\n"                                                                                     \
    "@triton.jit\ndef add(a, b):\n    return a + b\n"                                                                                   \
    "@triton.jit\ndef mul(a, b):\n    return a * b\n"                                                                                   \
    "@triton.jit\ndef largest(a, b):\n    return tl.maximum(a, b)\n"                                                                    \
    "@triton.jit\ndef both(a, b):\n    return a & b\n"                                                                                  \
    "@triton.jit\ndef either(a, b):\n    return a | b\n"                                                                                \
    "@triton.jit\ndef differ(a, b):\n    return a ^ b\n"                                                                                \
    "@triton.jit\ndef first(a, b):\n    return a\n"                                                                                     \
    "@triton.jit\ndef last(a, b):\n    return b\n"                                                                                      \
    "@triton.jit\ndef far(a, b):\n    return tl.where(a * a > b * b, a, b)\n"                                                           \
    "@triton.jit\ndef argmax(av, ai, bv, bi):\n    tie = av == bv and ai < bi\n    gt = av > bv or tie\n"                             \
    "    return tl.where(gt, av, bv), tl.where(gt, ai, bi)\n"                                                                           \
    "@triton.jit\ndef argmin(av, ai, bv, bi):\n    lt = (av < bv) | ((av == bv) & (ai < bi))\n"                                        \
    "    return tl.where(lt, av, bv), tl.where(lt, ai, bi)\n"                                                                           \
    "@triton.jit\ndef moments(n, m, q, n2, m2, q2):\n    return n + n2, m + m2, tl.maximum(q, q2)\n"                                    \
    "@triton.jit\ndef linear(a, b, c, d):\n    return a * c, b * c + d\n"                                                               \
    "@triton.jit\ndef k(px, pout, pi):\n    r = tl.arange(0, 8)\n    x = tl.load(px + r)\n    m = x.reshape(2, 4)\n    i = r.to(tl.int32)\n"

static void reductions(void **state)
{
    (void)state;
    static const struct {
        const char *text; /* stores to pout (f32) and pi (i32) */
        float expected[8];
        int32_t ints[8];
        const char *ir; /* what the Tile IR says */
    } cases[] = {
        /* x = 3, -1, 4, 1, -5, 9, 2, 6 */
        {"    tl.store(pout, tl.reduce(x, 0, add))\n", {19}, {0}, "identity [0]"},
        {"    tl.store(pout, tl.reduce(m, None, add))\n", {19}, {0}, "identity"},
        {"    tl.store(pout + tl.arange(0, 2), tl.reduce(m, 1, mul))\n", {-12, -540}, {0}, "identity [1]"},
        {"    tl.store(pout + tl.arange(0, 4), m.reduce(axis=0, combine_fn=largest))\n", {3, 9, 4, 6}, {0}, "identity [nan]"},
        {"    tl.store(pout + tl.arange(0, 2)[:, None], tl.reduce(m, -1, add, keep_dims=True))\n", {7, 12}, {0}, "identity"},
        {"    v = tl.reduce(m, None, add, keep_dims=True)\n    tl.static_assert(len(v.shape) == 2)\n    tl.store(pout + tl.arange(0, 1)[:, None], v)\n", {19}, {0}, NULL},
        {"    tl.store(pi, tl.reduce(i + 8, 0, both))\n    tl.store(pi + 1, tl.reduce(i, 0, either))\n    tl.store(pi + 2, tl.reduce(i, 0, differ))\n", {0}, {8, 7, 0},
         "identity [-1]"},
        {"    tl.store(pi, tl.reduce(x > 0, 0, both).to(tl.int32))\n    tl.store(pi + 1, tl.reduce(x > 0, 0, either).to(tl.int32))\n"
         "    tl.store(pi + 2, tl.reduce(x > 0, 0, add).to(tl.int32))\n", {0}, {0, 1, 0}, "identity [true]"},
        {"    tl.store(pout, tl.reduce(x, 0, far))\n", {9}, {0}, NULL},
        {"    tl.store(pout, tl.reduce(x, 0, far))\n    y = tl.load(px + r, mask=r < 5)\n    tl.store(pout + 1, tl.reduce(y, 0, far))\n"
         "    tl.store(pout + 2, tl.reduce(y, 0, add))\n", {9, -5, 2}, {0}, NULL}, /* masked lanes are not there */
        {"    v, at = tl.reduce((x, i), 0, argmax)\n    tl.store(pout, v)\n    tl.store(pi, at)\n", {9}, {5}, "identity [-inf, 2147483647]"},
        {"    v, at = tl.reduce((m, i.reshape(2, 4)), 1, argmin)\n    tl.store(pout + tl.arange(0, 2), v)\n    tl.store(pi + tl.arange(0, 2), at)\n", {-1, -5}, {1, 4},
         "identity [inf, 2147483647]"},
        {"    v, at = tl.reduce((x * 0, i), 0, argmax)\n    tl.store(pi, at)\n", {0}, {0}, NULL},
        {"    v, at = tl.reduce((i // 4, i), 0, argmax)\n    tl.store(pi, at)\n    tl.store(pi + 1, v)\n", {0}, {4, 1}, "identity [-2147483648, 2147483647]"},
        {"    v, at = tl.reduce((x * float('nan'), i), 0, argmax)\n    tl.store(pout, v)\n    tl.store(pi, at)\n", {NAN}, {7}, NULL},
        {"    a, b, c = tl.reduce((x, x * x, i), 0, moments)\n    tl.store(pout, a)\n    tl.store(pout + 1, b)\n    tl.store(pi, c)\n", {19, 173}, {7},
         "identity [0, 0, -2147483648]"},
        {"    tl.store(pout, tl.reduce(x * float('nan'), 0, largest))\n", {NAN}, {0}, NULL},
        {"    tl.store(pout, tl.reduce(x[0:1] if False else 2.5, None, add))\n", {2.5f}, {0}, NULL},
        /* scans */
        {"    tl.store(pout + r, tl.associative_scan(x, 0, add))\n", {3, 2, 6, 7, 2, 11, 13, 19}, {0}, "identity"},
        {"    tl.store(pout + r, tl.associative_scan(x, 0, add, reverse=True))\n", {19, 16, 17, 13, 12, 17, 8, 6}, {0}, "reverse"},
        {"    tl.store(pout + r, tl.associative_scan(m, 0, largest).reshape(8))\n", {3, -1, 4, 1, 3, 9, 4, 6}, {0}, NULL},
        {"    tl.store(pout + r, tl.associative_scan(x, 0, first))\n    tl.store(pi + r, tl.associative_scan(i, 0, last))\n", {3, 3, 3, 3, 3, 3, 3, 3}, {0, 1, 2, 3, 4, 5, 6, 7}, NULL},
        {"    a, b = tl.associative_scan((x * 0 + 2, x), 0, linear)\n    tl.store(pout + r, b)\n", {3, 5, 14, 29, 53, 115, 232, 470}, {0}, NULL}, /* h = 2 h + x */
    };
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        float x[8] = {3, -1, 4, 1, -5, 9, 2, 6}, out[8] = {0};
        int32_t ints[8] = {0};
        char text[8192];
        const given arguments[] = {ARRAY("*f32", x), ARRAY("*f32", out), ARRAY("*i32", ints)};
        snprintf(text, sizeof text, COMBINES "%s", cases[i].text);
        must_run(text, (const int64_t[3]){1, 1, 1}, arguments, 3);
        expect_floats(out, cases[i].expected, 8);
        expect_ints(ints, cases[i].ints, 8);
        tn_session *session = new_test_session();
        tn_triton_kernel kernel;
        tn_text ir = {.arena = &session->arena};
        assert_int_equal(compile_triton(session, text, arguments, 3, false, &kernel), TN_OK);
        tn_text_kernel(&ir, kernel.kernel);
        if (cases[i].ir && !strstr(ir.at, cases[i].ir))
            fail_msg("no `%s` in:\n%s", cases[i].ir, ir.at);
        free_test_session(session);
    }
}

/* Builtins that the prelude builds on. NaN sorts as the greatest number; a named maxnum skips it. */
static void named_functions(void **state)
{
    (void)state;
    float x[8] = {3, -1, NAN, 1, -5, 9, 2, 6}, out[48] = {0};
    int32_t ints[8], y[8] = {1, -2, 3, -4, 5, -6, 7, -8};
    static const char text[] = "import triton.language as tl\nimport triton\n@triton.jit\ndef f(a, b):\n    return a * b + 1\n"
        "@triton.jit\ndef k(px, pout, pi, py):\n    r = tl.arange(0, 8)\n    x = tl.load(px + r)\n"
        "    tl.store(pout + r, tl._sort(x, 0, False))\n    tl.store(pout + 8 + r, tl._sort(x, 0, True))\n    tl.store(pout + 16 + r, tl._flip(x, 0))\n"
        "    tl.store(pout + 24 + tl.arange(0, 4), tl._slice(x, 0, 4, 4))\n    tl.store(pout + 28, tl._reduce(x, 0, 'maxnum'))\n"
        "    tl.store(pout + 29, tl._reduce(x.reshape(2, 4), None, 'max'))\n    tl.store(pout + 32 + r, tl._scan(x, 0, 'minnum', reverse=True))\n"
        "    tl.store(pout + 40 + r, tl._map('select', r < 4, x, 0))\n    tl.store(pi + r, tl._map('popcnt', r))\n"
        "    tl.store(py + r, tl.map_elementwise(f, tl.load(py + r), r))\n";
    RUN(text, 1, ARRAY("*f32", x), ARRAY("*f32", out), ARRAY("*i32", ints), ARRAY("*i32", y));
    expect_floats(out, (const float[]){-5, -1, 1, 2, 3, 6, 9, NAN, NAN, 9, 6, 3, 2, 1, -1, -5, 6, 2, 9, -5, 1, NAN, -1, 3, -5, 9, 2, 6, 9, NAN}, 30);
    expect_floats(out + 32, (const float[]){-5, -5, -5, -5, -5, 2, 2, 6, 3, -1, NAN, 1, 0, 0, 0, 0}, 16);
    expect_ints(ints, (const int32_t[]){0, 1, 1, 2, 1, 2, 2, 3}, 8);
    expect_ints(y, (const int32_t[]){1, -1, 7, -11, 21, -29, 43, -55}, 8);
}

static void products(void **state)
{
    (void)state;
    int8_t a8[32], b8[32];
    float a[32], b[32], out[16], batch[8];
    uint16_t half[16];
    int32_t ints[16];
    for (int i = 0; i < 32; i++) {
        a8[i] = (int8_t)(i * 7 % 255 - 100), b8[i] = (int8_t)(i * 31 % 251 - 120);
        a[i] = (float)(i % 5) - 2, b[i] = (float)(i % 7) / 2;
    }
    static const char text[] = KERNEL("pa, pb, pout, phalf, pa8, pb8, pints, pbatch")
        "    r = tl.arange(0, 4)[:, None]\n    c = tl.arange(0, 4)[None, :]\n    k = tl.arange(0, 8)\n"
        "    x = tl.load(pa + r * 8 + k[None, :])\n    y = tl.load(pb + k[:, None] * 4 + c)\n"
        "    acc = tl.full((4, 4), 1.0, tl.float32)\n"
        "    tl.store(pout + r * 4 + c, tl.dot(x, y, acc, input_precision='ieee'))\n"
        "    h = tl.dot(x.to(tl.float16), y.to(tl.float16), out_dtype=tl.float16)\n    tl.static_assert(h.dtype == tl.float16)\n"
        "    tl.store(phalf + r * 4 + c, h)\n"
        "    i = tl.dot(tl.load(pa8 + r * 8 + k[None, :]), tl.load(pb8 + k[:, None] * 4 + c))\n    tl.static_assert(i.dtype == tl.int32)\n"
        "    tl.store(pints + r * 4 + c, i)\n"
        "    g = tl.dot(x.to(tl.bfloat16), y.to(tl.bfloat16))\n    tl.static_assert(g.dtype == tl.float32)\n"
        "    e = tl.dot(x.to(tl.float8e4nv), y.to(tl.float8e5))\n    tl.static_assert(e.dtype == tl.float32)\n"
        "    q = tl.dot(x.reshape(2, 2, 8)[:, :, :], tl.load(pb + tl.arange(0, 2)[:, None, None] * 16 + tl.arange(0, 8)[None, :, None] * 2 + tl.arange(0, 2)[None, None, :]))\n"
        "    tl.store(pbatch + tl.arange(0, 8), q.reshape(8))\n";
    RUN(text, 1, ARRAY("*f32", a), ARRAY("*f32", b), ARRAY("*f32", out), ARRAY("*f16", half), ARRAY("*i8", a8), ARRAY("*i8", b8), ARRAY("*i32", ints),
        ARRAY("*f32", batch));
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            double sum = 0;
            int total = 0;
            for (int k = 0; k < 8; k++) {
                sum += (double)a[i * 8 + k] * b[k * 4 + j];
                total += a8[i * 8 + k] * b8[k * 4 + j];
            }
            NEAR(out[i * 4 + j], sum + 1);
            NEAR(tn_number_load(TN_F16, half, i * 4 + j).f, tn_number_from_double(TN_F16, sum).f);
            assert_int_equal(ints[i * 4 + j], total);
        }
    for (int i = 0; i < 8; i++) {
        double sum = 0;
        for (int k = 0; k < 8; k++)
            sum += (double)a[i / 2 * 8 + k] * b[i / 4 * 16 + k * 2 + i % 2];
        NEAR(batch[i], sum);
    }
}

/* The precision that the Tile IR's dot gets: Triton's default is tf32, of factors of fp32 only. */
static void precisions(void **state)
{
    static const struct {
        const char *call, *environment, *found, *missing;
    } cases[] = {
        {"tl.dot(x, x)", NULL, "precision tf32 :", "tf32x3"},
        {"tl.dot(x, x, input_precision='tf32')", "ieee", "precision tf32 :", "tf32x3"},
        {"tl.dot(x, x, input_precision='TF32x3')", NULL, "precision tf32x3 :", "tf32 :"},
        {"tl.dot(x, x, input_precision='bf16x3')", NULL, "precision tf32x3 :", "tf32 :"},
        {"tl.dot(x, x, input_precision='ieee')", "tf32", "dot", "precision"},
        {"tl.dot(x, x, input_precision='bf16x6')", NULL, "dot", "precision"},
        {"tl.dot(x, x, allow_tf32=False)", NULL, "dot", "precision"},
        {"tl.dot(x, x, allow_tf32=True)", NULL, "precision tf32 :", "tf32x3"},
        {"tl.dot(x, x)", "ieee", "dot", "precision"},
        {"tl.dot(x, x)", "tf32x3", "precision tf32x3 :", "tf32 :"},
        {"tl.dot(x.to(tl.float16), x.to(tl.float16), input_precision='tf32')", NULL, "dot", "precision"},
        {"tl.dot_scaled(x.to(tl.bfloat16), None, 'bf16', x.to(tl.bfloat16), None, 'bf16')", "ieee", "precision tf32 :", "tf32x3"},
        {"tl.dot(x.to(tl.float8e4nv), x.to(tl.float8e5), max_num_imprecise_acc=16)", NULL, "f8e4m3fn", "f16"},
    };
    float x[16] = {0};
    const given arguments[] = {ARRAY("*f32", x)};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        tn_session *session = new_test_session();
        const char *text = tn_format(&session->arena, KERNEL("p") "    o = tl.arange(0, 4)[:, None] * 4 + tl.arange(0, 4)[None, :]\n    x = tl.load(p + o)\n    tl.store(p + o, %s)\n", cases[i].call);
        tn_triton_kernel kernel;
        tn_text ir = {.arena = &session->arena};
        if (cases[i].environment)
            setenv("TRITON_F32_DEFAULT", cases[i].environment, 1);
        assert_int_equal(compile_triton(session, text, arguments, 1, false, &kernel), TN_OK);
        unsetenv("TRITON_F32_DEFAULT");
        tn_text_kernel(&ir, kernel.kernel);
        if (!strstr(ir.at, cases[i].found) || strstr(ir.at, cases[i].missing))
            fail_msg("%s\n%s", cases[i].call, ir.at);
        free_test_session(session);
    }
    tn_session *session = new_test_session();
    tn_triton_kernel kernel;
    setenv("TRITON_F32_DEFAULT", "half", 1);
    assert_int_not_equal(compile_triton(session, KERNEL("p") "    x = tl.full((4, 4), 1.0, tl.float32)\n    tl.dot(x, x)\n", arguments, 1, false, &kernel), TN_OK);
    unsetenv("TRITON_F32_DEFAULT");
    assert_non_null(strstr(session->diags.at[0].message, "TRITON_F32_DEFAULT is one of"));
    free_test_session(session);
}

static const float e2m1[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

static void scaled_products(void **state)
{
    (void)state;
    enum { M = 2, N = 4, K = 64 };
    uint8_t a[M * K / 2], b[K * N], sa[M * 2] = {127, 130, 120, 128}, sb[N * 2] = {127, 126, 0, 129, 128, 127, 127, 255}, bt[K / 2 * N];
    float out[M * N], packed[M * N];
    for (int i = 0; i < M * K / 2; i++)
        a[i] = (uint8_t)(i * 37 + 11);
    for (int i = 0; i < K * N; i++)
        b[i] = (uint8_t)(0x30 + i * 5 % 24); /* e4m3 around 1 */
    for (int i = 0; i < K / 2 * N; i++)
        bt[i] = (uint8_t)(i * 53 + 7);
    static const char text[] = KERNEL("pa, pb, psa, psb, pbt, pout, ppacked")
        "    m = tl.arange(0, 2)\n    n = tl.arange(0, 4)\n    k = tl.arange(0, 64)\n    h = tl.arange(0, 32)\n    s = tl.arange(0, 2)[None, :]\n"
        "    x = tl.load(pa + m[:, None] * 32 + h[None, :])\n    y = tl.load(pb + k[:, None] * 4 + n[None, :])\n"
        "    sx = tl.load(psa + m[:, None] * 2 + s)\n    sy = tl.load(psb + n[:, None] * 2 + s)\n"
        "    o = m[:, None] * 4 + n[None, :]\n"
        "    tl.store(pout + o, tl.dot_scaled(x, sx, 'e2m1', y, sy, 'e4m3'))\n"
        "    z = tl.load(pbt + h[:, None] * 4 + n[None, :])\n"
        "    tl.store(ppacked + o, tl.dot_scaled(x, None, 'e2m1', z, None, 'e2m1', acc=tl.full((2, 4), 1.0, tl.float32)))\n";
    RUN(text, 1, ARRAY("*u8", a), ARRAY("*u8", b), ARRAY("*u8", sa), ARRAY("*u8", sb), ARRAY("*u8", bt), ARRAY("*f32", out), ARRAY("*f32", packed));
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0, plain = 1;
            for (int k = 0; k < K; k++) {
                double x = e2m1[a[i * 32 + k / 2] >> (k % 2 * 4) & 15];
                double scale_y = sb[j * 2 + k / 32] == 255 ? NAN : ldexp(1, sb[j * 2 + k / 32] - 127);
                sum += x * ldexp(1, sa[i * 2 + k / 32] - 127) * tn_number_load(TN_F8E4M3, b, k * 4 + j).f * scale_y;
                plain += x * e2m1[bt[k / 2 * 4 + j] >> (k % 2 * 4) & 15];
            }
            if (j == 3)
                assert_true(isnan(out[i * N + j]));
            else
                NEAR(out[i * N + j], sum);
            NEAR(packed[i * N + j], plain);
        }
}

/* ---- debugging, hints ------------------------------------------------------------------------------------------------ */

static void debugging(void **state)
{
    (void)state;
    int32_t x[4] = {1, 2, 3, 0};
    const given arguments[] = {ARRAY("*i32", x), {"i32", NULL, 0, 32}};
    const int64_t one[3] = {1, 1, 1};
    static const char failing[] = KERNEL("px, n") "    r = tl.arange(0, 4)\n    v = tl.load(px + r)\n    tl.device_assert(v > 0, 'not positive')\n";
    tn_session *session = new_test_session();
    assert_int_not_equal(run_triton(session, failing, one, arguments, 2), TN_OK);
    assert_non_null(strstr(session->diags.at[0].message, "not positive"));
    tn_triton_kernel kernel;
    assert_int_equal(compile_triton(session, failing, arguments, 2, false, &kernel), TN_OK); /* without debug it is not there */
    tn_text ir = {.arena = &session->arena};
    tn_text_kernel(&ir, kernel.kernel);
    assert_null(strstr(ir.at, "assert"));
    free_test_session(session);

    must_run(KERNEL("px, n") "    r = tl.arange(0, 4)\n    v = tl.load(px + r)\n    tl.device_assert(v > 0, 'not positive', mask=r < 3)\n"
                             "    tl.debug_barrier()\n    tl.assume(n > 0)\n    tl.assume(True)\n    n = tl.multiple_of(n, 16)\n"
                             "    r = tl.max_contiguous(tl.multiple_of(r, 4), 4)\n    r = tl.max_constancy(r, [1])\n    tl.store(px + r, r + n)\n",
             one, arguments, 2);
    expect_ints(x, (const int32_t[]){32, 33, 34, 35}, 4);

    session = new_test_session();
    assert_int_not_equal(run_triton(session, KERNEL("px, n") "    n = tl.multiple_of(n, 64)\n    tl.store(px, n)\n", one, arguments, 2), TN_OK); /* 32 is none */
    free_test_session(session);

    session = new_test_session();
    assert_int_equal(compile_triton(session, KERNEL("px, n") "    tl.static_print('blocks', 4, 0.5, None, tl.float32, sep='-')\n", arguments, 2, false, &kernel), TN_OK);
    bool said = false;
    for (size_t i = 0; i < session->diags.len; i++)
        said |= session->diags.at[i].severity == TN_PRINT && strstr(session->diags.at[i].message, "blocks-4-0.5-None-") != NULL;
    assert_true(said);
    free_test_session(session);
}

static const struct {
    const char *statement, *expected;
} refusals[] = {
    {"tl.arange(0, 6)", "power of two"},
    {"tl.arange(4, 4)", "greater than the start"},
    {"tl.arange(0, n)", "the end of arange"},
    {"tl.full([3], 0, tl.int32)", "powers of two"},
    {"tl.full([2048, 1024], 0, tl.int32)", "more than 1048576 elements"},
    {"tl.full([4], 0)", "misses its argument 'dtype'"},
    {"tl.full([4], 0, tl.int32, dtype=tl.int32)", "multiple values for argument 'dtype'"},
    {"tl.full([4], 0, type=tl.int32)", "unexpected keyword argument 'type'"},
    {"tl.program_id(3)", "must be 0, 1 or 2"},
    {"tl.program_id(0, 1)", "takes 1 positional argument, but 2 were given"},
    {"tl.load(px + r, mask=tl.arange(0, 8) < 4)", "mask has shape [8], pointer has shape [4]"},
    {"tl.load(px, mask=r < 2)", "mask has shape [4], pointer is a scalar"},
    {"tl.load(px + r, mask=r)", "mask must be of int1"},
    {"tl.load(px + r, other=0)", "other needs a mask"},
    {"tl.load(px + r, boundary_check=(0,))", "are for block pointers"},
    {"tl.load(px + r, cache_modifier='.xx')", "'.ca', '.cg', '.cv'"},
    {"tl.load(r)", "must be a pointer, found"},
    {"tl.load(block, mask=r < 2)", "boundary_check and padding_option, not mask"},
    {"tl.load(block, boundary_check=(2,))", "boundary_check names axes"},
    {"tl.load(iblock, boundary_check=(0,), padding_option='nan')", "is for floats"},
    {"tl.store(px + r, tl.arange(0, 8))", "value has shape [8], pointer has shape [4]"},
    {"tl.store(px, r)", "value has shape [4], pointer is a scalar"},
    {"tl.store(px + r, 1, mask=(r < 2)[:, None])", "mask has shape [4, 1], pointer has shape [4]"},
    {"tl.store(block, tl.arange(0, 8))", "value has shape [8], the block has shape [4]"},
    {"block + 4", "tl.advance"},
    {"tl.make_block_ptr(px, (n,), (1,), (0,), (4,), (1,))", "order must name"},
    {"tl.make_block_ptr(px, (n, n), (1,), (0,), (4,), (0,))", "for 1 axes"},
    {"tl.make_tensor_descriptor(px, [n, n], [n, n], [4, 4])", "last stride"},
    {"tl.atomic_add(ph8 + r, 1)", "32 and 64 bits and of half precision"},
    {"tl.atomic_max(ph + r, 1.0)", "32 and 64 bits"},
    {"tl.atomic_and(px + r, 1)", "of integers"},
    {"tl.atomic_add(px + r, 1.0, sem='now')", "'acquire', 'release', 'acq_rel', 'relaxed'"},
    {"tl.exp(h)", "exp takes fp32 and fp64, found fp16; cast it"},
    {"tl.exp(r)", "found int32"},
    {"tl.sqrt_rn(f.to(tl.float64))", "takes fp32"},
    {"tl.clamp(r, 0, 1)", "clamp takes floats"},
    {"tl.umulhi(r.to(tl.int16), r.to(tl.int16))", "32 and 64 bits"},
    {"tl.fdiv(r, r)", "fdiv takes floats"},
    {"r[0]", "None and `:` only"},
    {"r[:, :]", "2 subscripts"},
    {"r[0:2]", "None and `:` only"},
    {"r.T", "T is of two axes"},
    {"r.size", "no attribute 'size'"},
    {"tl.reshape(r, (8,))", "changes the number of elements"},
    {"tl.trans(r)", "needs two axes"},
    {"tl.permute(r[:, None], (0, 0))", "in some order"},
    {"tl.broadcast_to(r, (4, 4))", "numbers of axes differ"},
    {"tl.broadcast_to(r[:, None], (8, 4))", "only 1 stretches"},
    {"tl.split(r)", "two elements along the last axis"},
    {"tl.cat(r, tl.arange(0, 2))", "power of two"},
    {"tl.gather(r, f, 0)", "must be integers"},
    {"tl.gather(r, r, 1)", "there are 1 axes"},
    {"tl.histogram(f, 4)", "counts integers"},
    {"tl.reduce(r, 1, add)", "there are 1 axes"},
    {"tl.reduce(r, 0, add3)", "add3"},
    {"tl.reduce((r, f[:, None]), 0, add)", "of one shape"},
    {"tl.reduce(r, 0, loads)", "combine function"},
    {"tl.reduce(r, 0, 'add')", "must be a @triton.jit function"},
    {"tl.dot(f[:, None], f[:, None])", "must be equal"},
    {"tl.dot(f[:, None], f[None, :].to(tl.float16))", "of one type"},
    {"tl.dot(r[:, None], r[None, :])", "found int32"},
    {"tl.dot(f, f)", "two tensors of two axes"},
    {"tl.dot(h[:, None], h[None, :], out_dtype=tl.bfloat16)", "cannot be bf16"},
    {"tl.dot(f[:, None], f[None, :], tl.full((4, 4), 0, tl.float16))", "the accumulator must be fp32"},
    {"tl.dot(f[:, None], f[None, :], input_precision='half')", "input_precision is one of"},
    {"tl.static_assert(n > 0)", "tl.device_assert"},
    {"tl.static_assert(False, 'two and two')", "static assertion failed: two and two"},
    {"tl.assume(False)", "is false"},
    {"tl.constexpr(n)", "only known when the kernel runs"},
    {"tl.inline_asm_elementwise('x', '=r,r', [r], tl.int32, True, 1)", "compile for a GPU"},
    {"r.to(tl.float8e4b15)", "deprecated"},
    {"tl.multiple_of(r, (1, 1))", "one value an axis"},
};

static void refused(void **state)
{
    (void)state;
    static float x[4];
    static const given arguments[] = {ARRAY("*f32", x), {"*f16", NULL, 0, 0}, {"*i8", NULL, 0, 0}, {"i32", NULL, 0, 4}};
    for (size_t i = 0; i < TN_COUNT(refusals); i++) {
        char text[4096];
        snprintf(text, sizeof text,
                 "import triton\nimport triton.language as tl\n@triton.jit\ndef add(a, b):\n    return a + b\n"
                 "@triton.jit\ndef add3(a, b, c):\n    return a + b + c\n"
                 "@triton.jit\ndef loads(a, b):\n    return a + tl.program_id(0)\n"
                 "@triton.jit\ndef k(px, ph, ph8, n):\n    r = tl.arange(0, 4)\n    f = r.to(tl.float32)\n    h = r.to(tl.float16)\n"
                 "    block = tl.make_block_ptr(px, (n,), (1,), (0,), (4,), (0,))\n    iblock = tl.make_block_ptr(ph8, (n,), (1,), (0,), (4,), (0,))\n"
                 "    v = %s\n",
                 refusals[i].statement);
        must_fail(text, arguments, TN_COUNT(arguments), refusals[i].expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks),    cmocka_unit_test(bools_and_casts_of_stores), cmocka_unit_test(block_pointers), cmocka_unit_test(descriptors),
        cmocka_unit_test(atomics),  cmocka_unit_test(shapes),                    cmocka_unit_test(programs),       cmocka_unit_test(functions),
        cmocka_unit_test(reductions), cmocka_unit_test(products), cmocka_unit_test(precisions),                cmocka_unit_test(scaled_products), cmocka_unit_test(debugging),
        cmocka_unit_test(refused),    cmocka_unit_test(named_functions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
