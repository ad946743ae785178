/* The part of Triton's language that is written in it, prelude.tl: random numbers to the bit, reductions and scans with their types, shapes,
 * and the functions of libdevice against C's in long double. */
#include "triton_test.h"

#include <fenv.h>
#include <limits.h>

#define LIBDEVICE "from triton.language.extra import libdevice\n"
enum { N = 256 };

/* ---- random numbers ---------------------------------------------------------------------------------------------------- */

static void philox4x32(const uint32_t counter[4], uint64_t seed, int rounds, uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int i = 0; i < rounds; i++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* The vectors of Random123's kat_vectors. */
static const struct {
    uint32_t counter[4];
    uint64_t seed;
    uint32_t expected[4];
} vectors[] = {
    {{0, 0, 0, 0}, 0, {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}},
    {{~0u, ~0u, ~0u, ~0u}, ~(uint64_t)0, {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}},
    {{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, 0x299f31d0a4093822u, {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}},
};

static void test_philox(void **state)
{
    (void)state;
    for (size_t v = 0; v < TN_COUNT(vectors); v++) {
        uint32_t counter[4], out[4], check[4];
        memcpy(counter, vectors[v].counter, sizeof counter);
        philox4x32(counter, vectors[v].seed, 10, check);
        assert_memory_equal(check, vectors[v].expected, sizeof check);
        RUN(KERNEL("c, seed, o") "    a, b, x, y = tl.philox(seed, tl.load(c), tl.load(c + 1), tl.load(c + 2), tl.load(c + 3), 10)\n"
                                 "    tl.static_assert(a.dtype == tl.uint32)\n"
                                 "    tl.store(o, a)\n    tl.store(o + 1, b)\n    tl.store(o + 2, x)\n    tl.store(o + 3, y)\n",
            1, ARRAY("*u32", counter), {"i64", NULL, 0, (int64_t)vectors[v].seed}, ARRAY("*u32", out));
        assert_memory_equal(out, vectors[v].expected, sizeof out);
    }
}

/* Counters of 64 bits: Philox-4x64. Random123's vector for zeros, and the counters' own arithmetic. */
static void test_philox_wide(void **state)
{
    (void)state;
    static const uint64_t expected[4] = {0x16554d9eca36314cu, 0xdb20fe9d672d0fdcu, 0xd7e772cee186176bu, 0x7e68b68aec7ba23bu};
    uint64_t out[4];
    RUN(KERNEL("o") "    zero = tl.full((1,), 0, tl.uint64)\n"
                    "    a, b, c, d = tl.philox(0, zero, zero, zero, zero)\n"
                    "    i = tl.arange(0, 1)\n"
                    "    tl.store(o + i, a)\n    tl.store(o + 1 + i, b)\n    tl.store(o + 2 + i, c)\n    tl.store(o + 3 + i, d)\n",
        1, ARRAY("*u64", out));
    assert_memory_equal(out, expected, sizeof out);
}

static float uniform(uint32_t bits)
{
    int32_t x = (int32_t)bits;
    return (float)(x < 0 ? -x - 1 : x) * 4.6566127342e-10f;
}

static void test_random_integers(void **state)
{
    (void)state;
    static const int64_t seeds[] = {0, 1, -1, 0x123456789abcdef, INT64_MIN};
    static uint32_t out[5 * N];
    for (size_t s = 0; s < TN_COUNT(seeds); s++) {
        RUN(KERNEL("seed, o") "    i = tl.arange(0, 256)\n"
                              "    tl.store(o + i, tl.randint(seed, i))\n"
                              "    a, b, c, d = tl.randint4x(seed, i, 7)\n"
                              "    tl.store(o + 256 + i, a)\n    tl.store(o + 512 + i, b)\n    tl.store(o + 768 + i, c)\n    tl.store(o + 1024 + i, d)\n",
            1, {"i64", NULL, 0, seeds[s]}, ARRAY("*u32", out));
        for (uint32_t i = 0; i < N; i++) {
            uint32_t r[4];
            philox4x32((uint32_t[4]){i}, (uint64_t)seeds[s], 10, r);
            assert_int_equal(out[i], r[0]);
            philox4x32((uint32_t[4]){i}, (uint64_t)seeds[s], 7, r);
            for (int j = 0; j < 4; j++)
                assert_int_equal(out[(j + 1) * N + (int)i], r[j]);
        }
    }
}

/* Offsets of 64 bits give the counter's second word; a seed of 32 bits is one of 64 with its sign. */
static void test_random_offsets(void **state)
{
    (void)state;
    uint32_t out[4], r[4];
    int64_t offset[4] = {0, 1, 0x500000007, -3};
    RUN(KERNEL("p, seed, o") "    i = tl.arange(0, 4)\n    tl.store(o + i, tl.randint(seed, tl.load(p + i)))\n", 1, ARRAY("*i64", offset),
        {"i32", NULL, 0, (uint32_t)-5}, ARRAY("*u32", out));
    for (int i = 0; i < 4; i++) {
        philox4x32((uint32_t[4]){(uint32_t)offset[i], (uint32_t)(offset[i] >> 32)}, (uint64_t)-5, 10, r);
        assert_int_equal(out[i], r[0]);
    }
    RUN(KERNEL("o") "    tl.store(o, tl.randint(5, 3))\n", 1, ARRAY("*u32", out)); /* constants */
    philox4x32((uint32_t[4]){3}, 5, 10, r);
    assert_int_equal(out[0], r[0]);
}

static void test_random_floats(void **state)
{
    (void)state;
    static float out[6 * N];
    RUN(KERNEL("o") "    i = tl.arange(0, 256)\n"
                    "    tl.store(o + i, tl.rand(42, i))\n"
                    "    tl.store(o + 256 + i, tl.randn(42, i))\n"
                    "    a, b, c, d = tl.randn4x(42, i)\n"
                    "    tl.store(o + 512 + i, a)\n    tl.store(o + 768 + i, b)\n    tl.store(o + 1024 + i, c)\n"
                    "    a, b, c, d = tl.rand4x(42, i)\n"
                    "    tl.store(o + 1280 + i, d)\n",
        1, ARRAY("*f32", out));
    for (uint32_t i = 0; i < N; i++) {
        uint32_t r[4];
        philox4x32((uint32_t[4]){i}, 42, 10, r);
        float u = uniform(r[0]), v = uniform(r[1]);
        assert_true(out[i] == u && u >= 0 && u < 1);
        assert_true(out[5 * N + i] == uniform(r[3]));
        double radius = sqrt(-2 * log((double)fmaxf(1e-7f, u))), angle = 6.283185307179586 * (double)v;
        assert_float_equal(out[N + i], radius * cos(angle), 2e-6);
        assert_true(out[2 * N + i] == out[N + i]);
        assert_float_equal(out[3 * N + i], radius * sin(angle), 2e-6);
        radius = sqrt(-2 * log((double)fmaxf(1e-7f, uniform(r[2]))));
        assert_float_equal(out[4 * N + i], radius * cos(6.283185307179586 * (double)uniform(r[3])), 2e-6);
    }
}

/* The ends of the range: all bits give 0, the greatest gives less than 1. */
static void test_uniform(void **state)
{
    (void)state;
    uint32_t in[4] = {0, ~0u, 0x7fffffffu, 0x80000000u};
    float out[4];
    RUN(KERNEL("p, o") "    i = tl.arange(0, 4)\n    tl.store(o + i, tl.uint_to_uniform_float(tl.load(p + i)))\n", 1, ARRAY("*u32", in), ARRAY("*f32", out));
    for (int i = 0; i < 4; i++)
        assert_true(out[i] == uniform(in[i]));
    assert_true(out[0] == 0 && out[1] == 0 && out[2] < 1 && out[3] < 1 && out[2] > 0.9999998f);
    uint64_t wide[4] = {0, ~(uint64_t)0, INT64_MAX, (uint64_t)INT64_MIN};
    RUN(KERNEL("p, o") "    i = tl.arange(0, 4)\n    tl.store(o + i, tl.uint_to_uniform_float(tl.load(p + i)))\n", 1, ARRAY("*u64", wide), ARRAY("*f32", out));
    assert_true(out[0] == 0 && out[1] == 0 && out[2] > 0.999999f && out[3] == out[2]);
}

/* ---- shapes ------------------------------------------------------------------------------------------------------------- */

static void test_shapes(void **state)
{
    (void)state;
    int32_t out[128];
    RUN(KERNEL("o") "    i = tl.arange(0, 8)\n"
                    "    tl.store(o + i, tl.flip(i))\n"
                    "    x = tl.reshape(i, 2, 4)\n"
                    "    tl.store(o + 8 + i, tl.ravel(tl.flip(x, 0)))\n"
                    "    tl.store(o + 16 + i, x.flip().ravel())\n"
                    "    tl.store(o + 24 + tl.arange(0, 16), tl.interleave(i, i + 100))\n"
                    "    tl.store(o + 40 + i, tl.ravel(tl.interleave(tl.reshape(tl.arange(0, 4), 2, 2), tl.zeros((2, 2), tl.int32))))\n"
                    "    tl.store(o + 48 + i, tl.zeros_like(i))\n"
                    "    tl.store(o + 56 + i, tl.cdiv(i, 3))\n"
                    "    z = tl.zeros([4, 2], dtype=tl.float16)\n"
                    "    tl.static_assert(z.dtype == tl.float16 and z.shape[0] == 4)\n"
                    "    tl.store(o + 64, tl.cdiv(7, 2))\n"
                    "    n: tl.constexpr = tl.cdiv(7, 4)\n"
                    "    tl.store(o + 65, tl.arange(0, n).shape[0])\n",
        1, ARRAY("*i32", out));
    for (int i = 0; i < 8; i++) {
        assert_int_equal(out[i], 7 - i);
        assert_int_equal(out[8 + i], (i + 4) % 8);
        assert_int_equal(out[16 + i], i / 4 * 4 + 3 - i % 4);
        assert_int_equal(out[24 + 2 * i], i);
        assert_int_equal(out[25 + 2 * i], i + 100);
        assert_int_equal(out[40 + i], i % 2 ? 0 : i / 2);
        assert_int_equal(out[48 + i], 0);
        assert_int_equal(out[56 + i], (i + 2) / 3);
    }
    assert_int_equal(out[64], 4);
    assert_int_equal(out[65], 2);
}

/* A grid of 5 x 3 in groups of 2 rows: every place once, the groups column by column. */
static void test_swizzle(void **state)
{
    (void)state;
    int32_t out[30];
    static const int expected[15][2] = {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {0, 2}, {1, 2}, {2, 0}, {3, 0}, {2, 1}, {3, 1}, {2, 2}, {3, 2}, {4, 0}, {4, 1}, {4, 2}};
    RUN(KERNEL("o") "    p = tl.program_id(0)\n    i, j = tl.swizzle2d(p // 3, p % 3, 5, 3, 2)\n    tl.store(o + 2 * p, i)\n    tl.store(o + 2 * p + 1, j)\n", 15,
        ARRAY("*i32", out));
    for (int p = 0; p < 15; p++) {
        assert_int_equal(out[2 * p], expected[p][0]);
        assert_int_equal(out[2 * p + 1], expected[p][1]);
    }
}

/* ---- reductions, scans, order ----------------------------------------------------------------------------------------------- */

static void test_sums(void **state)
{
    (void)state;
    int8_t bytes[N];
    uint8_t unsigned_bytes[N], bools[N];
    int32_t out[8];
    int32_t total = 0, unsigned_total = 0, set = 0, parity = 0, any = 0;
    for (int i = 0; i < N; i++) {
        bytes[i] = (int8_t)(i * 7 + 3), unsigned_bytes[i] = (uint8_t)(i * 5), bools[i] = i % 3 == 0;
        total += bytes[i], unsigned_total += unsigned_bytes[i], set += bools[i], parity ^= bytes[i], any |= bytes[i] & 12;
    }
    RUN(KERNEL("a, b, c, o") "    i = tl.arange(0, 256)\n"
                             "    x = tl.load(a + i)\n    y = tl.load(b + i)\n    z = tl.load(c + i)\n"
                             "    s = tl.sum(x)\n    u = tl.sum(y)\n    t = z.sum()\n"
                             "    tl.static_assert(s.dtype == tl.int32)\n    tl.static_assert(u.dtype == tl.uint32)\n    tl.static_assert(t.dtype == tl.uint32)\n"
                             "    tl.store(o, s)\n    tl.store(o + 1, u)\n    tl.store(o + 2, t)\n"
                             "    tl.store(o + 3, tl.xor_sum(x))\n    tl.store(o + 4, tl.reduce_or(x & 12, 0))\n"
                             "    w = tl.sum(x, dtype=tl.int64)\n    tl.static_assert(w.dtype == tl.int64)\n"
                             "    tl.store(o + 5, w)\n"
                             "    tl.static_assert(tl.sum(i.to(tl.int64)).dtype == tl.int64)\n"
                             "    tl.store(o + 6, tl.sum(tl.full((1,), 5, tl.int32)))\n"
                             "    k = tl.sum(tl.reshape(x, 4, 64), 1, keep_dims=True)\n"
                             "    tl.static_assert(k.shape[0] == 4 and k.shape[1] == 1)\n"
                             "    tl.store(o + 7, tl.sum(k))\n",
        1, ARRAY("*i8", bytes), ARRAY("*u8", unsigned_bytes), ARRAY("*i1", bools), ARRAY("*i32", out));
    assert_int_equal(out[0], total);
    assert_int_equal(out[1], unsigned_total);
    assert_int_equal(out[2], set);
    assert_int_equal(out[3], parity);
    assert_int_equal(out[4], any);
    assert_int_equal(out[5], total);
    assert_int_equal(out[6], 5);
    assert_int_equal(out[7], total);
}

/* Halves are added in fp32: 2048 + 1 is 2048 in fp16, 256 times. */
static void test_half_sum(void **state)
{
    (void)state;
    float out[4];
    RUN(KERNEL("o") "    i = tl.arange(0, 256)\n"
                    "    x = tl.where(i == 0, 2048.0, 1.0).to(tl.float16)\n"
                    "    s = tl.sum(x)\n    tl.static_assert(s.dtype == tl.float16)\n    tl.store(o, s)\n"
                    "    b = tl.where(i == 0, 256.0, 1.0).to(tl.bfloat16)\n"
                    "    s = tl.sum(b)\n    tl.store(o + 1, s)\n"
                    "    s = tl.sum(x, dtype=tl.float32)\n    tl.static_assert(s.dtype == tl.float32)\n    tl.store(o + 2, s)\n"
                    "    c = tl.cumsum(b)\n    tl.static_assert(c.dtype == tl.float32)\n    tl.store(o + 3, tl.max(c))\n",
        1, ARRAY("*f32", out));
    assert_true(out[0] == 2304); /* 2303, to a multiple of 2 */
    assert_true(out[1] == 512);  /* 511, to a multiple of 2 */
    assert_true(out[2] == 2303);
    assert_true(out[3] == 511);
}

static void test_extrema(void **state)
{
    (void)state;
    float x[8] = {3, NAN, 7, -1, 7, NAN, -1, 2}, out[4];
    int32_t index[8];
    RUN(KERNEL("p, o, q") "    i = tl.arange(0, 8)\n    x = tl.load(p + i)\n"
                          "    tl.store(o, tl.max(x))\n    tl.store(o + 1, tl.min(x, 0))\n"
                          "    y = tl.where(x == x, x, 0.0)\n"
                          "    tl.store(q, tl.argmax(y, 0))\n    tl.store(q + 1, y.argmin(axis=0, tie_break_left=False))\n"
                          "    v, j = tl.max(y, 0, return_indices=True)\n    tl.store(o + 2, v)\n    tl.store(q + 2, j)\n"
                          "    v, j = tl.min(y, return_indices=True)\n    tl.store(o + 3, v)\n    tl.store(q + 3, j)\n"
                          "    tl.static_assert(j.dtype == tl.int32)\n"
                          "    m = tl.reshape(y, 2, 4)\n"
                          "    tl.store(q + 4 + tl.arange(0, 4), tl.argmax(m, 0))\n"
                          "    a = tl.argmax(m, -1, keep_dims=True)\n    tl.static_assert(a.shape[0] == 2 and a.shape[1] == 1)\n",
        1, ARRAY("*f32", x), ARRAY("*f32", out), ARRAY("*i32", index));
    assert_true(out[0] == 7 && out[1] == -1 && out[2] == 7 && out[3] == -1);
    static const int expected[8] = {2, 3, 2, 3, 1, 0, 0, 1};
    for (int i = 0; i < 8; i++)
        assert_int_equal(index[i], expected[i]);
}

static void test_extrema_types(void **state)
{
    (void)state;
    int32_t out[4];
    RUN(KERNEL("o") "    i = tl.arange(0, 8)\n"
                    "    a = tl.max(i.to(tl.int8))\n    tl.static_assert(a.dtype == tl.int32)\n"
                    "    b = tl.max(i.to(tl.uint8) - 1)\n    tl.static_assert(b.dtype == tl.int32)\n"
                    "    tl.static_assert(tl.max(i.to(tl.float16)).dtype == tl.float32)\n"
                    "    tl.static_assert(tl.min(i.to(tl.bfloat16)).dtype == tl.float32)\n"
                    "    tl.static_assert(tl.min(i.to(tl.float64)).dtype == tl.float64)\n"
                    "    tl.static_assert(tl.max(i.to(tl.int64)).dtype == tl.int64)\n"
                    "    v, j = tl.max(i.to(tl.float16), 0, return_indices=True)\n    tl.static_assert(v.dtype == tl.float16)\n"
                    "    v, j = tl.max(i.to(tl.bfloat16), 0, return_indices=True)\n    tl.static_assert(v.dtype == tl.float32)\n"
                    "    tl.store(o, a)\n    tl.store(o + 1, b)\n    tl.store(o + 2, tl.max(i == 3))\n    tl.store(o + 3, tl.max(i.to(tl.uint32) - 1 == 0))\n",
        1, ARRAY("*i32", out));
    assert_int_equal(out[0], 7);
    assert_int_equal(out[1], 255);
    assert_int_equal(out[2], 1);
    assert_int_equal(out[3], 1);
}

static void test_scans(void **state)
{
    (void)state;
    int32_t out[40];
    RUN(KERNEL("o") "    i = tl.arange(0, 8)\n"
                    "    c = tl.cumsum(i.to(tl.int8))\n    tl.static_assert(c.dtype == tl.int32)\n    tl.store(o + i, c)\n"
                    "    tl.store(o + 8 + i, tl.cumsum(i, 0, reverse=True))\n"
                    "    tl.store(o + 16 + i, tl.cumprod(i % 3 + 1, axis=0))\n"
                    "    m = tl.reshape(i, 2, 4)\n    tl.store(o + 24 + i, m.cumsum(1).ravel())\n"
                    "    d = tl.cumsum(i, dtype=tl.int64)\n    tl.static_assert(d.dtype == tl.int64)\n"
                    "    tl.store(o + 32 + i, tl.cumsum(i % 2 == 1))\n",
        1, ARRAY("*i32", out));
    int sum = 0, product = 1, back = 28, row = 0, odd = 0;
    for (int i = 0; i < 8; i++) {
        sum += i, product *= i % 3 + 1, row = i % 4 ? row + i : i, odd += i % 2;
        assert_int_equal(out[i], sum);
        assert_int_equal(out[8 + i], back);
        assert_int_equal(out[16 + i], product);
        assert_int_equal(out[24 + i], row);
        assert_int_equal(out[32 + i], odd);
        back -= i;
    }
}

static void test_order(void **state)
{
    (void)state;
    float x[8] = {3, -1, 7, 0, 5, -2, 7, 1}, out[24];
    RUN(KERNEL("p, o") "    i = tl.arange(0, 8)\n    x = tl.load(p + i)\n"
                       "    tl.store(o + i, tl.sort(x))\n    tl.store(o + 8 + i, x.sort(descending=True))\n"
                       "    tl.store(o + 16 + tl.arange(0, 4), tl.topk(x, 4))\n"
                       "    tl.store(o + 20 + tl.arange(0, 4), tl.sort(tl.reshape(x, 4, 2), 0).sum(1))\n",
        1, ARRAY("*f32", x), ARRAY("*f32", out));
    static const float expected[24] = {-2, -1, 0, 1, 3, 5, 7, 7, 7, 7, 5, 3, 1, 0, -1, -2, 7, 7, 5, 3, 3 - 2, 5 - 1, 7 + 0, 7 + 1};
    for (int i = 0; i < 24; i++)
        if (i < 20)
            assert_true(out[i] == expected[i]);
    assert_true(out[20] == 3 - 2 && out[21] == 5 - 1 && out[22] == 7 + 0 && out[23] == 7 + 1);
}

static void test_softmax(void **state)
{
    (void)state;
    float x[16], out[48];
    for (int i = 0; i < 16; i++)
        x[i] = (float)(i * i % 11) - 80.0f;
    RUN(KERNEL("p, o") "    i = tl.arange(0, 16)\n    x = tl.load(p + i)\n"
                       "    tl.store(o + i, tl.softmax(x))\n    tl.store(o + 16 + i, tl.softmax(tl.reshape(x, 4, 4), 1).ravel())\n"
                       "    tl.store(o + 32 + i, tl.sigmoid(x + 80))\n",
        1, ARRAY("*f32", x), ARRAY("*f32", out));
    double all = 0, row[4] = {0};
    for (int i = 0; i < 16; i++)
        all += exp(x[i]), row[i / 4] += exp(x[i]);
    for (int i = 0; i < 16; i++) {
        assert_float_equal(out[i], exp(x[i]) / all, 1e-6);
        assert_float_equal(out[16 + i], exp(x[i]) / row[i / 4], 1e-6);
        assert_float_equal(out[32 + i], 1 / (1 + exp(-(x[i] + 80))), 1e-6);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *body, *expected;
    } cases[] = {
        {"    tl.xor_sum(tl.zeros((8,), tl.float32))\n", "xor_sum takes integers"},
        {"    tl.argmax(tl.arange(0, 8), 1)\n", "no such axis"},
        {"    tl.sum(tl.arange(0, 8), 1)\n", "axis"},
        {"    tl.rand(1.5, tl.arange(0, 8))\n", "the seed of random numbers is an integer"},
        {"    tl.extra.libdevice.tanh(tl.arange(0, 8))\n", "takes fp32 and fp64"},
        {"    tl.extra.libdevice.lgamma(tl.zeros((8,), tl.float64))\n", "takes fp32"},
        {"    tl.extra.libdevice.clz(1.5)\n", "takes integers"},
        {"    tl.extra.libdevice.j0(1)\n", "takes fp32 and fp64"},
        {"    tl.extra.libdevice.add_rz(1, 1.5)\n", "takes fp32 and fp64"},
        {"    tl.extra.libdevice._fmin(1.5, 1.5)\n", "_fmin"},
        {"    tl.extra.libdevice.add_up(1.5, 1.5)\n", "add_up"},
        {"    tl._sum_dtype(tl.int8, None)\n", "_sum_dtype"},
    };
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        tn_session *session = new_test_session();
        char *text = tn_format(&session->arena, "import triton\nimport triton.language as tl\n@triton.jit\ndef k():\n%s", cases[i].body);
        must_fail(text, NULL, 0, cases[i].expected);
        free_test_session(session);
    }
}

/* ---- libdevice --------------------------------------------------------------------------------------------------------- */

/* Values of every size, and the special ones. */
static double sample(int i, double low, double high, bool special)
{
    static const double values[] = {0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, -1.5, 2.5, 2, -2, INFINITY, -INFINITY, NAN, 1e-30, -1e-30, 1e-7, 3e7, -3e7, 1e30, 0.99999994, 1e-40};
    if (special && i < (int)TN_COUNT(values))
        return values[i];
    uint64_t bits = tn_hash_u64(((uint64_t)i + 1) * 0x9e3779b97f4a7c15u);
    double part = (double)(bits >> 11) * 0x1p-53;
    if (i % 3 == 0) /* a small one */
        return (bits & 1 ? low : high) * exp2(-40 * part);
    return low + (high - low) * part;
}

static double ulps(double found, long double expected, bool wide)
{
    if (isnan(found) || isnan(expected))
        return isnan(found) && isnan(expected) ? 0 : INFINITY;
    double rounded = wide ? (double)expected : (double)(float)expected;
    if (found == rounded)
        return signbit(found) == signbit(rounded) || found != 0 ? 0 : INFINITY;
    if (isinf(found) || isinf(rounded))
        return INFINITY;
    int e;
    frexp(rounded, &e);
    double unit = wide ? ldexp(1, e - 53 < -1074 ? -1074 : e - 53) : ldexp(1, e - 24 < -149 ? -149 : e - 24);
    return (double)fabsl(found - expected) / unit;
}

static long double sinpi_of(long double x)
{
    if (isinf(x))
        return NAN;
    long double r = remainderl(x, 2);
    r = r > 0.5L ? 1 - r : r < -0.5L ? -1 - r : r;
    return r == 0 ? copysignl(0, x) : sinl(3.14159265358979323846L * r);
}
static long double cospi_of(long double x) { return isinf(x) ? NAN : sinl(3.14159265358979323846L * (0.5L - fabsl(remainderl(x, 2)))); }
static long double rsqrt_of(long double x) { return 1 / sqrtl(x); }
static long double rcbrt_of(long double x) { return 1 / cbrtl(x); }
static long double saturate_of(long double x) { return isnan(x) ? 0 : x > 1 ? 1 : x > 0 ? x : 0; }
static long double normcdf_of(long double x) { return erfcl(-x * 0.70710678118654752440L) / 2; }
static long double tgamma_of(long double x) { return isinf(x) && x < 0 ? NAN : tgammal(x); }
static long double erfcx_of(long double x)
{
    if (x < 106)
        return expl(x * x) * erfcl(x);
    long double s = 1 / (x * x);
    return isinf(x) ? 0 : (1 - s / 2 + 3 * s * s / 4 - 15 * s * s * s / 8) / (x * 1.77245385090551602730L);
}
/* By halving: the function rises. */
static long double inverse(long double (*f)(long double), long double y, long double low, long double high)
{
    for (int i = 0; i < 200; i++) {
        long double middle = (low + high) / 2;
        *(f(middle) < y ? &low : &high) = middle;
    }
    return low;
}
static long double minus_erfc(long double x) { return -erfcl(x); }
static long double erfinv_small(long double x)
{
    if (fabsl(x) < 1e-5L)
        return x * (1 + 0.26179938779914943654L * x * x) * 0.88622692545275801365L;
    return inverse(erfl, x, -1, 1);
}
static long double erfcinv_of(long double q)
{
    if (!(q >= 0 && q <= 2))
        return NAN;
    if (fabsl(1 - q) < 0.4L)
        return erfinv_small(1 - q);
    if (q > 1)
        return -erfcinv_of(2 - q);
    return q == 0 ? INFINITY : inverse(minus_erfc, -q, 0, 30);
}
static long double erfinv_of(long double x)
{
    if (!(fabsl(x) <= 1))
        return NAN;
    return fabsl(x) < 0.4L ? erfinv_small(x) : x < 0 ? -erfcinv_of(1 + x) : erfcinv_of(1 - x);
}
static long double normcdfinv_of(long double p) { return p >= 0 && p <= 1 ? 0 - 1.41421356237309504880L * erfcinv_of(2 * p) : NAN; }
static long double logb_of(long double x) { return logbl(x); }

static const struct {
    const char *name;
    long double (*reference)(long double);
    double low, high;      /* where it is tried */
    double single, wide;   /* units in the last place; 0 and 0: exact; below 0: not for this type */
} unary[] = {
    {"floor", floorl, -1000, 1000, 0, 0},   {"ceil", ceill, -1000, 1000, 0, 0},     {"trunc", truncl, -1000, 1000, 0, 0},
    {"rint", rintl, -1000, 1000, 0, 0},     {"nearbyint", rintl, -1000, 1000, 0, 0}, {"round", roundl, -1000, 1000, 0, 0},
    {"sqrt", sqrtl, 0, 1e4, 0.5, 0.5},      {"sqrt_rn", sqrtl, 0, 1e4, 0.5, 0.5},   {"rsqrt", rsqrt_of, 0, 1e4, 1, 2},
    {"rsqrt_rn", rsqrt_of, 0, 1e4, 0.51, -1}, {"cbrt", cbrtl, -1e4, 1e4, 1, 2},     {"rcbrt", rcbrt_of, -1e4, 1e4, 1, 3},
    {"exp", expl, -90, 90, 1, 2},           {"exp2", exp2l, -130, 130, 1, 2},       {"expm1", expm1l, -20, 90, 1, 3},
    {"exp10", exp10l, -38, 38, 1, 2},       {"fast_exp10f", exp10l, -38, 38, 1, -1}, {"log", logl, 0, 1e6, 1, 2},
    {"log2", log2l, 0, 1e6, 1, 2},          {"log10", log10l, 0, 1e6, 1, 3},        {"log1p", log1pl, -1, 1e6, 1, 2},
    {"sin", sinl, -100, 100, 1, 2},         {"cos", cosl, -100, 100, 1, 2},         {"tan", tanl, -100, 100, 1, 2},
    {"sinpi", sinpi_of, -100, 100, 1, 2},   {"cospi", cospi_of, -100, 100, 1, 2},   {"asin", asinl, -1, 1, 1, 2},
    {"acos", acosl, -1, 1, 1, 2},           {"atan", atanl, -100, 100, 1, 2},       {"sinh", sinhl, -80, 80, 1, 3},
    {"cosh", coshl, -80, 80, 1, 3},         {"tanh", tanhl, -10, 10, 1, 3},         {"asinh", asinhl, -1e4, 1e4, 1, 3},
    {"acosh", acoshl, 1, 1e4, 1, 3},        {"atanh", atanhl, -1, 1, 1, 3},         {"erf", erfl, -5, 5, 1, 2},
    {"erfc", erfcl, -6, 26, 1, 6},          {"erfcx", erfcx_of, -9, 100, 1, 6},     {"erfinv", erfinv_of, -1, 1, 1, 8},
    {"erfcinv", erfcinv_of, 0, 2, 1, 8},    {"normcdf", normcdf_of, -30, 8, 1, 6}, {"normcdfinv", normcdfinv_of, 0, 1, 1, 8},
    {"lgamma", lgammal, -30, 100, 4, -1},   {"tgamma", tgamma_of, -30, 36, 2, -1},  {"saturatef", saturate_of, -2, 2, 0, -1},
    {"logb", logb_of, -1000, 1000, 0, 0},   {"abs", fabsl, -1000, 1000, 0, 0},      {"fast_sinf", sinl, -100, 100, 1, -1},
    {"fast_cosf", cosl, -100, 100, 1, -1},  {"fast_tanf", tanl, -100, 100, 1, -1},  {"fast_expf", expl, -90, 90, 1, -1},
    {"fast_logf", logl, 0, 1e6, 1, -1},     {"fast_log2f", log2l, 0, 1e6, 1, -1},   {"fast_log10f", log10l, 0, 1e6, 1, -1},
    {"fast_tanhf", tanhl, -10, 10, 1, -1},
};

/* Runs libdevice.NAME on N values of each of `count` arguments. */
static void run_libdevice(const char *name, bool wide, const double (*in)[N], int count, double *out)
{
    tn_session *session = new_test_session();
    static const char *const parameters[] = {"o, a", "o, a, b", "o, a, b, c", "o, a, b, c, d"};
    static const char *const loads[] = {"tl.load(a + i)", "tl.load(a + i), tl.load(b + i)", "tl.load(a + i), tl.load(b + i), tl.load(c + i)",
                                        "tl.load(a + i), tl.load(b + i), tl.load(c + i), tl.load(d + i)"};
    char *text = tn_format(&session->arena,
                           "import triton\nimport triton.language as tl\n" LIBDEVICE "@triton.jit\ndef k(%s):\n    i = tl.arange(0, %d)\n"
                           "    r = libdevice.%s(%s)\n    tl.static_assert(r.dtype == tl.float%d)\n    tl.store(o + i, r)\n",
                           parameters[count - 1], N, name, loads[count - 1], wide ? 64 : 32);
    float single[5][N];
    double both[5][N];
    given arguments[5];
    for (int k = 0; k < count + 1; k++) {
        for (int i = 0; k && i < N; i++)
            both[k][i] = in[k - 1][i], single[k][i] = (float)in[k - 1][i];
        arguments[k] = wide ? (given)ARRAY("*f64", both[k]) : (given)ARRAY("*f32", single[k]);
    }
    must_run(text, (const int64_t[3]){1, 1, 1}, arguments, (size_t)count + 1);
    for (int i = 0; i < N; i++)
        out[i] = wide ? both[0][i] : (double)single[0][i];
    free_test_session(session);
}

static void check_unary(size_t f, bool wide)
{
    double in[1][N], out[N], tolerance = wide ? unary[f].wide : unary[f].single;
    if (tolerance < 0)
        return;
    for (int i = 0; i < N; i++) {
        double x = sample(i, unary[f].low, unary[f].high, true);
        in[0][i] = wide ? x : (double)(float)x;
    }
    run_libdevice(unary[f].name, wide, in, 1, out);
    for (int i = 0; i < N; i++) {
        long double expected = unary[f].reference(in[0][i]);
        double off = ulps(out[i], expected, wide);
        if (!(off <= tolerance))
            fail_msg("%s(%.17g) of fp%d: expected %.17Lg, found %.17g: %g units", unary[f].name, in[0][i], wide ? 64 : 32, expected, out[i], off);
    }
}

static void test_libdevice_unary(void **state)
{
    (void)state;
    for (size_t f = 0; f < TN_COUNT(unary); f++)
        for (int wide = 0; wide < 2; wide++)
            check_unary(f, wide);
}

static long double div_of(long double x, long double y) { return x / y; }
static long double add_of(long double x, long double y) { return x + y; }
static long double sub_of(long double x, long double y) { return x - y; }
static long double mul_of(long double x, long double y) { return x * y; }
static long double hypot_of(long double x, long double y) { return isinf(x) || isinf(y) ? INFINITY : hypotl(x, y); }
static long double rhypot_of(long double x, long double y) { return 1 / hypot_of(x, y); }
static long double fdim_of(long double x, long double y) { return x <= y ? 0 : x - y; }

static const struct {
    const char *name;
    long double (*reference)(long double, long double);
    double single, wide;
} binary[] = {
    {"atan2", atan2l, 1, 2},     {"fmod", fmodl, 0, 0},         {"pow", powl, 1, 2},          {"div_rn", div_of, 0.5, 0.51}, {"add_rn", add_of, 0.5, 0.51},
    {"sub_rn", sub_of, 0.5, 0.51}, {"mul_rn", mul_of, 0.5, 0.51}, {"copysign", copysignl, 0, 0}, {"fdim", fdim_of, 0.5, 0.51}, {"hypot", hypot_of, 1, 3},
    {"rhypot", rhypot_of, 1, 3}, {"remainder", remainderl, 0, 0}, {"fast_powf", powl, 1, -1},   {"fast_dividef", div_of, 0.5, -1},
};

static void test_libdevice_binary(void **state)
{
    (void)state;
    static const double special[] = {0.0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 2, -3, 0.5, 1e-30, 1e30, 3e38, -7.5};
    enum { S = TN_COUNT(special) };
    for (size_t f = 0; f < TN_COUNT(binary); f++)
        for (int wide = 0; wide < 2; wide++) {
            double in[2][N], out[N], tolerance = wide ? binary[f].wide : binary[f].single;
            if (tolerance < 0)
                continue;
            for (int i = 0; i < N; i++) {
                double x = i < S * S ? special[i / S] : sample(i, -50, 50, false), y = i < S * S ? special[i % S] : sample(7 * i + 1, -20, 20, false);
                in[0][i] = wide ? x : (double)(float)x;
                in[1][i] = wide ? y : (double)(float)y;
            }
            run_libdevice(binary[f].name, wide, in, 2, out);
            for (int i = 0; i < N; i++) {
                long double expected = binary[f].reference(in[0][i], in[1][i]);
                double off = ulps(out[i], expected, wide);
                if (!(off <= tolerance))
                    fail_msg("%s(%.17g, %.17g) of fp%d: expected %.17Lg, found %.17g: %g units", binary[f].name, in[0][i], in[1][i], wide ? 64 : 32, expected,
                             out[i], off);
            }
        }
}

static void test_libdevice_more(void **state)
{
    (void)state;
    double in[4][N], out[N];
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < N; i++)
            in[k][i] = (double)(float)sample(4 * i + k, -100, 100, false);
    for (int wide = 0; wide < 2; wide++) {
        run_libdevice("fma", wide, in, 3, out);
        for (int i = 0; i < N; i++)
            assert_true(out[i] == (wide ? fma(in[0][i], in[1][i], in[2][i]) : (double)fmaf((float)in[0][i], (float)in[1][i], (float)in[2][i])));
        run_libdevice("norm3d", wide, in, 3, out);
        for (int i = 0; i < N; i++)
            assert_true(ulps(out[i], hypotl(hypotl(in[0][i], in[1][i]), in[2][i]), wide) <= 3);
        run_libdevice("norm4d", wide, in, 4, out);
        for (int i = 0; i < N; i++)
            assert_true(ulps(out[i], hypotl(hypotl(in[0][i], in[1][i]), hypotl(in[2][i], in[3][i])), wide) <= 3);
        run_libdevice("rnorm4d", wide, in, 4, out);
        for (int i = 0; i < N; i++)
            assert_true(ulps(out[i], 1 / hypotl(hypotl(in[0][i], in[1][i]), hypotl(in[2][i], in[3][i])), wide) <= 4);
    }
}

/* ---- rounding otherwise than to nearest: against the processor's own -------------------------------------------------- */

typedef enum operation { ADD, SUB, MUL, DIV, FMA, SQRT, RCP } operation;

/* What the processor rounds so. Everything is volatile, so that nothing is computed before the mode is set. */
static double rounded(operation op, int mode, bool wide, const double x[3])
{
    volatile double a = x[0], b = x[1], c = x[2], r = 0;
    volatile float fa = (float)a, fb = (float)b, fc = (float)c, one = 1, fr = 0;
    fesetround(mode);
    switch (op) {
    case ADD: wide ? (r = a + b) : (fr = fa + fb); break;
    case SUB: wide ? (r = a - b) : (fr = fa - fb); break;
    case MUL: wide ? (r = a * b) : (fr = fa * fb); break;
    case DIV: wide ? (r = a / b) : (fr = fa / fb); break;
    case FMA: wide ? (r = fma(a, b, c)) : (fr = fmaf(fa, fb, fc)); break;
    case SQRT: wide ? (r = sqrt(a)) : (fr = sqrtf(fa)); break;
    case RCP: wide ? (r = one / a) : (fr = one / fa); break;
    }
    fesetround(FE_TONEAREST);
    return wide ? r : fr;
}

/* Operands of every size: whole numbers and neighbours of others, whose results are exact or nearly so, the greatest, the least and the special ones. */
static double operand(uint64_t i, int k, bool wide)
{
    static const double special[] = {0.0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 0x1p-1074, -0x1p-1074, 0x1.fffffffffffffp1023, -0x1.fffffffffffffp1023, 0x1p-1022, 3,
                                     -0x1.8p-1073, 0x1p-149, -0x1p-149, 0x1.fffffep127, -0x1.fffffep127, 0x1p-126, 0x1.000002p0, 0x1.0000000000001p0, 0x1p-500, 0x1p600};
    enum { S = TN_COUNT(special) };
    uint64_t bits = tn_hash_u64(3 * i + (uint64_t)k + 1), sort = tn_hash_u64(bits + (uint64_t)k) % 8;
    double part = 1 + (double)(bits >> 12) * 0x1p-52, sign = bits & 1 ? -1 : 1;
    int e = (int)(bits >> 1 & 0x7ff) - 1074;
    e = wide ? e : e % 150;
    double x = sort == 0 ? special[bits % S] : sort == 1 ? sign * (double)(bits >> 60) : sort == 2 ? sign * ldexp(1, e) : sort < 5 ? sign * part : sign * ldexp(part, e);
    return wide ? x : (double)(float)x;
}

static void check_rounding(const char *name, operation op, int mode, const char *suffix, int count, bool wide)
{
    double in[4][N], out[N];
    for (uint64_t round = 0; round < 16; round++) {
        for (uint64_t i = 0; i < N; i++) {
            double low = operand(round * N + i, 0, wide);
            for (int k = 0; k < 3; k++)
                in[k][i] = k == 0 ? low : operand(round * N + i, k, wide);
            if (round % 4 == 1) /* sums that cancel, or nearly so */
                in[2][i] = -(wide ? in[0][i] * in[1][i] : (double)((float)in[0][i] * (float)in[1][i]));
            if (round % 4 == 2) /* quotients and roots that are exact, or nearly so */
                in[0][i] = op == DIV ? (double)(float)(in[1][i] * (double)((float)in[2][i])) : in[1][i] * in[1][i];
            for (int k = 0; !wide && k < 3; k++)
                in[k][i] = (double)(float)in[k][i];
        }
        char text[32];
        snprintf(text, sizeof text, "%s_%s", name, suffix);
        run_libdevice(text, wide, in, count, out);
        for (int i = 0; i < N; i++) {
            double x[3] = {in[0][i], in[1][i], in[2][i]}, expected = rounded(op, mode, wide, x);
            if (isnan(expected) ? !isnan(out[i]) : out[i] != expected || signbit(out[i]) != signbit(expected))
                fail_msg("%s(%a, %a, %a) of fp%d: expected %a, found %a", text, x[0], x[1], x[2], wide ? 64 : 32, expected, out[i]);
        }
    }
}

static const struct {
    const char *suffix;
    int mode;
} directions[] = {{"rz", FE_TOWARDZERO}, {"rd", FE_DOWNWARD}, {"ru", FE_UPWARD}};

static void test_libdevice_rounding(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        operation op;
        int count;
    } operations[] = {{"add", ADD, 2}, {"sub", SUB, 2}, {"mul", MUL, 2}, {"div", DIV, 2}, {"fma", FMA, 3}, {"sqrt", SQRT, 1}, {"rcp", RCP, 1}};
    for (size_t i = 0; i < TN_COUNT(operations); i++)
        for (size_t d = 0; d < TN_COUNT(directions); d++)
            for (int wide = 0; wide < 2; wide++)
                check_rounding(operations[i].name, operations[i].op, directions[d].mode, directions[d].suffix, operations[i].count, wide);
}

/* Integers and doubles as narrower numbers. */
static void test_libdevice_rounded_conversions(void **state)
{
    (void)state;
    int64_t x[N];
    double d[N];
    for (int i = 0; i < N; i++) {
        static const int64_t special[] = {0, 1, -1, INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX, 1 << 24, (1 << 24) + 1, -(1 << 24) - 1, ((int64_t)1 << 53) + 1, UINT32_MAX};
        uint64_t bits = tn_hash_u64((uint64_t)i + 99);
        x[i] = i < (int)TN_COUNT(special) ? special[i] : (int64_t)bits >> (bits & 63);
        d[i] = operand((uint64_t)i, 0, true);
    }
    for (size_t m = 0; m < TN_COUNT(directions); m++) {
        tn_session *session = new_test_session();
        const char *s = directions[m].suffix;
        float f[5 * N];
        double w[2 * N];
        char *text = tn_format(&session->arena,
            "import triton\nimport triton.language as tl\n" LIBDEVICE "@triton.jit\ndef k(x, d, f, w):\n    i = tl.arange(0, %d)\n    v = tl.load(x + i)\n"
            "    tl.store(f + i, libdevice.int2float_%s(v.to(tl.int32)))\n    tl.store(f + %d + i, libdevice.uint2float_%s(v.to(tl.uint32)))\n"
            "    tl.store(f + %d + i, libdevice.ll2float_%s(v))\n    tl.store(f + %d + i, libdevice.ull2float_%s(v.to(tl.uint64)))\n"
            "    tl.store(f + %d + i, libdevice.double2float_%s(tl.load(d + i)))\n"
            "    tl.store(w + i, libdevice.ll2double_%s(v))\n    tl.store(w + %d + i, libdevice.ull2double_%s(v.to(tl.uint64)))\n",
            N, s, N, s, 2 * N, s, 3 * N, s, 4 * N, s, s, N, s);
        given arguments[] = {ARRAY("*i64", x), ARRAY("*f64", d), ARRAY("*f32", f), ARRAY("*f64", w)};
        must_run(text, (const int64_t[3]){1, 1, 1}, arguments, 4);
        for (int i = 0; i < N; i++) {
            volatile int32_t i32 = (int32_t)x[i];
            volatile uint32_t u32 = (uint32_t)x[i];
            volatile int64_t i64 = x[i];
            volatile uint64_t u64 = (uint64_t)x[i];
            volatile double f64 = d[i];
            volatile float single[5];
            volatile double wide[2];
            fesetround(directions[m].mode);
            single[0] = (float)i32, single[1] = (float)u32, single[2] = (float)i64, single[3] = (float)u64, single[4] = (float)f64;
            wide[0] = (double)i64, wide[1] = (double)u64;
            fesetround(FE_TONEAREST);
            for (int k = 0; k < 5; k++)
                if (isnan(single[k]) ? !isnan(f[k * N + i]) : f[k * N + i] != single[k] || signbit(f[k * N + i]) != signbit(single[k]))
                    fail_msg("conversion %d_%s of %lld, %a: expected %a, found %a", k, s, (long long)x[i], d[i], (double)single[k], (double)f[k * N + i]);
            for (int k = 0; k < 2; k++)
                if (w[k * N + i] != wide[k])
                    fail_msg("conversion to fp64 %d_%s of %lld: expected %a, found %a", k, s, (long long)x[i], wide[k], w[k * N + i]);
        }
        free_test_session(session);
    }
}

/* ---- Bessel functions -------------------------------------------------------------------------------------------------- */

/* Of imaginary argument: the series, whose terms are all positive. */
static long double bessel_i(int n, long double x)
{
    long double term = n ? x / 2 : 1, sum = 0; /* orders 0 and 1 */
    for (int k = 1; k < 2000; k++) {
        sum += term;
        term *= x * x / 4 / ((long double)k * (k + n));
    }
    return sum;
}
static long double i0_of(long double x) { return bessel_i(0, x); }
static long double i1_of(long double x) { return bessel_i(1, x); }

/* The error in parts of the value or, where the function swings, of its swing; the tolerances stand in docs/triton.md. */
static void check_bessel(const char *name, const char *order, long double (*f)(long double), long double (*of_order)(int, long double), int n, bool wide)
{
    tn_session *session = new_test_session();
    double in[N], out[N];
    float single[2][N];
    for (int i = 0; i < N; i++) {
        in[i] = i < 8 ? (double)i * 0.5 + 6.5 : i % 4 ? sample(i, 0, 40, false) : sample(i, 40, 600, false) + 1;
        in[i] = fabs(wide ? in[i] : (double)(float)(in[i] > 80 ? in[i] / 8 : in[i]));
        single[0][i] = (float)in[i];
    }
    char *text = tn_format(&session->arena,
                           "import triton\nimport triton.language as tl\n" LIBDEVICE "@triton.jit\ndef k(o, a):\n    i = tl.arange(0, %d)\n"
                           "    r = libdevice.%s(%stl.load(a + i))\n    tl.static_assert(r.dtype == tl.float%d)\n    tl.store(o + i, r)\n",
                           N, name, order, wide ? 64 : 32);
    given of_wide[] = {ARRAY("*f64", out), ARRAY("*f64", in)}, of_single[] = {ARRAY("*f32", single[1]), ARRAY("*f32", single[0])};
    must_run(text, (const int64_t[3]){1, 1, 1}, wide ? of_wide : of_single, 2);
    for (int i = 0; i < N; i++) {
        long double expected = f ? f(in[i]) : of_order(n, in[i]), found = wide ? out[i] : single[1][i];
        if (!wide && fabsl(expected) > 3e38L)
            continue;
        long double swing = strstr(name, "cyl") || in[i] <= n ? 0 : sqrtl(0.6366L / (long double)in[i]);
        long double most = (wide ? 4e-15L * (n + 1) : 7e-8L) * fmaxl(fabsl(expected), swing) + (wide ? 1e-320L : 2e-45L);
        if (found != expected && !(fabsl(found - expected) <= most))
            fail_msg("%s(%s%.17g) of fp%d: expected %.17Lg, found %.17Lg", name, order, in[i], wide ? 64 : 32, expected, found);
    }
    free_test_session(session);
}

static void test_libdevice_bessel(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        check_bessel("j0", "", j0l, NULL, 0, wide);
        check_bessel("j1", "", j1l, NULL, 0, wide);
        check_bessel("y0", "", y0l, NULL, 0, wide);
        check_bessel("y1", "", y1l, NULL, 0, wide);
        check_bessel("cyl_bessel_i0", "", i0_of, NULL, 0, wide);
        check_bessel("cyl_bessel_i1", "", i1_of, NULL, 0, wide);
        check_bessel("jn", "0, ", NULL, jnl, 0, wide);
        check_bessel("jn", "3, ", NULL, jnl, 3, wide);
        check_bessel("jn", "30, ", NULL, jnl, 30, wide);
        check_bessel("yn", "1, ", NULL, ynl, 1, wide);
        check_bessel("yn", "4, ", NULL, ynl, 4, wide);
    }
}

/* Where the functions end, and orders of each element's own. */
static void test_libdevice_bessel_edges(void **state)
{
    (void)state;
    static const double x[8] = {0.0, INFINITY, NAN, -2.5, 1e300, -INFINITY, 1e-300, 4};
    static const char *const names[] = {"j0(x)", "j1(x)", "y0(x)", "y1(x)", "cyl_bessel_i0(x)", "cyl_bessel_i1(x)", "jn(-1, x)", "jn(i, 0 * x + 2.5)", "yn(i, 0 * x + 2.5)"};
    const double expected[TN_COUNT(names)][8] = {
        {1, 0, NAN, j0(2.5), j0(1e300), 0, 1, j0(4)},
        {0, 0, NAN, -j1(2.5), j1(1e300), 0, 5e-301, j1(4)},
        {-INFINITY, 0, NAN, NAN, y0(1e300), NAN, y0(1e-300), y0(4)},
        {-INFINITY, 0, NAN, NAN, y1(1e300), NAN, y1(1e-300), y1(4)},
        {1, INFINITY, NAN, (double)i0_of(2.5), INFINITY, INFINITY, 1, (double)i0_of(4)},
        {0, INFINITY, NAN, -(double)i1_of(2.5), INFINITY, -INFINITY, 5e-301, (double)i1_of(4)},
        {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN},
        {j0(2.5), NAN, NAN, jn(3, 2.5), jn(4, 2.5), NAN, jn(6, 2.5), jn(7, 2.5)},
        {y0(2.5), NAN, NAN, yn(3, 2.5), yn(4, 2.5), NAN, yn(6, 2.5), yn(7, 2.5)},
    };
    for (size_t f = 0; f < TN_COUNT(names); f++) {
        tn_session *session = new_test_session();
        double in[8], out[8];
        memcpy(in, x, sizeof in);
        char *text = tn_format(&session->arena, "import triton\nimport triton.language as tl\n" LIBDEVICE
                               "@triton.jit\ndef k(o, a):\n    i = tl.arange(0, 8)\n    x = tl.load(a + i)\n    tl.store(o + i, libdevice.%s)\n", names[f]);
        given arguments[] = {ARRAY("*f64", out), ARRAY("*f64", in)};
        must_run(text, (const int64_t[3]){1, 1, 1}, arguments, 2);
        for (int i = 0; i < 8; i++) {
            double wanted = expected[f][i];
            if (isnan(wanted) ? !isnan(out[i]) : out[i] != wanted && !(fabs(out[i] - wanted) <= 1e-14 * fabs(wanted)))
                fail_msg("%s at %g: expected %.17g, found %.17g", names[f], x[i], wanted, out[i]);
        }
        free_test_session(session);
    }
}

static void test_libdevice_nextafter(void **state)
{
    (void)state;
    static const double values[] = {0.0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 0.5, 1e-45, -1e-45, 1.1754943508222875e-38, 3.4028234663852886e38, 2, 1e-40};
    enum { V = TN_COUNT(values) };
    for (int wide = 0; wide < 2; wide++) {
        double in[2][N], out[N];
        for (int i = 0; i < N; i++)
            for (int k = 0; k < 2; k++)
                in[k][i] = wide ? values[i % (V * V) / (k ? 1 : V) % V] : (double)(float)values[i % (V * V) / (k ? 1 : V) % V];
        run_libdevice("nextafter", wide, in, 2, out);
        for (int i = 0; i < N; i++) {
            double expected = wide ? nextafter(in[0][i], in[1][i]) : (double)nextafterf((float)in[0][i], (float)in[1][i]);
            if (ulps(out[i], expected, wide) != 0)
                fail_msg("nextafter(%.17g, %.17g) of fp%d: expected %.17g, found %.17g", in[0][i], in[1][i], wide ? 64 : 32, expected, out[i]);
        }
    }
}

static void test_libdevice_classes(void **state)
{
    (void)state;
    float x[16] = {0, -0.0f, 1, -1, INFINITY, -INFINITY, NAN, -NAN, 1e-45f, -1e-45f, 3e38f, 8, -0.25f, 1e-39f, 7, 1.5f}, scaled[32];
    int32_t out[5][16];
    for (int i = 0; i < 16; i++)
        out[4][i] = i * 40 - 300;
    RUN("import triton\nimport triton.language as tl\n" LIBDEVICE "@triton.jit\ndef k(p, o, n, q):\n    i = tl.arange(0, 16)\n    x = tl.load(p + i)\n"
        "    a = libdevice.isnan(x)\n    tl.static_assert(a.dtype == tl.int1)\n    b = libdevice.isinf(x)\n    tl.static_assert(b.dtype == tl.int1)\n"
        "    c = libdevice.signbit(x)\n    tl.static_assert(c.dtype == tl.int32)\n"
        "    d = libdevice.ilogb(x)\n    tl.static_assert(d.dtype == tl.int32)\n"
        "    tl.store(o + i, a)\n    tl.store(o + 16 + i, b)\n    tl.store(o + 32 + i, c)\n    tl.store(o + 48 + i, d)\n"
        "    tl.static_assert(libdevice.finitef(x).dtype == tl.int1)\n"
        "    tl.store(q + i, libdevice.ldexp(x, tl.load(n + i)))\n    tl.store(q + 16 + i, libdevice.scalbn(x, 3))\n",
        1, ARRAY("*f32", x), {"*i32", out, 64, 0}, ARRAY("*i32", out[4]), ARRAY("*f32", scaled));
    for (int i = 0; i < 16; i++) {
        assert_int_equal(out[0][i], isnan(x[i]) != 0);
        assert_int_equal(out[1][i], isinf(x[i]) != 0);
        assert_int_equal(out[2][i], signbit(x[i]) != 0);
        assert_int_equal(out[3][i], x[i] == 0 || isnan(x[i]) ? INT_MIN : isinf(x[i]) ? INT_MAX : ilogbf(x[i]));
        assert_true(ulps(scaled[i], ldexpf(x[i], i * 40 - 300), false) == 0);
        assert_true(ulps(scaled[16 + i], ldexpf(x[i], 3), false) == 0);
    }
    double wide[4] = {1.5, 3e-300, -1e300, 1e-320}, doubles[4];
    int32_t by[4] = {-1074, -40, 500, 2000};
    RUN("import triton\nimport triton.language as tl\n" LIBDEVICE "@triton.jit\ndef k(p, n, q):\n    i = tl.arange(0, 4)\n"
        "    tl.store(q + i, libdevice.ldexp(tl.load(p + i), tl.load(n + i)))\n",
        1, ARRAY("*f64", wide), ARRAY("*i32", by), ARRAY("*f64", doubles));
    for (int i = 0; i < 4; i++)
        assert_true(doubles[i] == ldexp(wide[i], by[i]));
}

static uint64_t reversed(uint64_t x, int bits)
{
    uint64_t r = 0;
    for (int i = 0; i < bits; i++)
        r |= (x >> i & 1) << (bits - 1 - i);
    return r;
}

static void test_libdevice_integers(void **state)
{
    (void)state;
    int32_t x[8] = {0, 1, -1, INT32_MIN, INT32_MAX, 0x12345678, -559038737, 0x00800001}, y[8] = {5, -7, -1, INT32_MIN, 2, 0x7fff1234, 99, 0x00ffffff};
    int32_t s[8] = {0x3210, 0x7654, 0x0123, 0x4567, 0x0000, 0x7777, 0x1357, 0xfedc}, out[11][8];
    RUN("import triton\nimport triton.language as tl\n" LIBDEVICE "@triton.jit\ndef k(p, q, w, o):\n    i = tl.arange(0, 8)\n"
        "    x = tl.load(p + i)\n    y = tl.load(q + i)\n    s = tl.load(w + i)\n"
        "    tl.store(o + i, libdevice.clz(x))\n    tl.store(o + 8 + i, libdevice.popc(x))\n    tl.store(o + 16 + i, libdevice.ffs(x))\n"
        "    tl.store(o + 24 + i, libdevice.brev(x))\n    tl.store(o + 32 + i, libdevice.byte_perm(x, y, s))\n    tl.store(o + 40 + i, libdevice.mulhi(x, y))\n"
        "    tl.store(o + 48 + i, libdevice.mul24(x, y))\n    tl.store(o + 56 + i, libdevice.sad(x, y, s.to(tl.uint32)))\n"
        "    tl.store(o + 64 + i, libdevice.hadd(x, y))\n    tl.store(o + 72 + i, libdevice.rhadd(x, y))\n"
        "    tl.store(o + 80 + i, libdevice.mulhi(x.to(tl.uint32, bitcast=True), y.to(tl.uint32, bitcast=True)))\n",
        1, ARRAY("*i32", x), ARRAY("*i32", y), ARRAY("*i32", s), {"*i32", out, 88, 0});
    for (int i = 0; i < 8; i++) {
        uint64_t bytes = (uint32_t)x[i] | (uint64_t)(uint32_t)y[i] << 32;
        uint32_t picked = 0;
        for (int k = 0; k < 4; k++)
            picked |= (uint32_t)(bytes >> 8 * (s[i] >> 4 * k & 7) & 0xff) << 8 * k;
        int64_t difference = (int64_t)x[i] - y[i];
        assert_int_equal(out[0][i], x[i] ? __builtin_clz((uint32_t)x[i]) : 32);
        assert_int_equal(out[1][i], __builtin_popcount((uint32_t)x[i]));
        assert_int_equal(out[2][i], __builtin_ffs(x[i]));
        assert_int_equal((uint32_t)out[3][i], reversed((uint32_t)x[i], 32));
        assert_int_equal((uint32_t)out[4][i], picked);
        assert_int_equal(out[5][i], (int32_t)((int64_t)x[i] * y[i] >> 32));
        assert_int_equal(out[6][i], (int32_t)((int64_t)((int32_t)((uint32_t)x[i] << 8) >> 8) * ((int32_t)((uint32_t)y[i] << 8) >> 8)));
        assert_int_equal((uint32_t)out[7][i], (uint32_t)((difference < 0 ? -difference : difference) + s[i]));
        assert_int_equal(out[8][i], ((int64_t)x[i] + y[i]) >> 1);
        assert_int_equal(out[9][i], ((int64_t)x[i] + y[i] + 1) >> 1);
        assert_int_equal((uint32_t)out[10][i], (uint64_t)(uint32_t)x[i] * (uint32_t)y[i] >> 32);
    }
    int64_t wide[4] = {0, -2, 0x123456789abcdef0, INT64_MIN}, found[4][4];
    RUN("import triton\nimport triton.language as tl\n" LIBDEVICE "@triton.jit\ndef k(p, o):\n    i = tl.arange(0, 4)\n    x = tl.load(p + i)\n"
        "    tl.store(o + i, libdevice.brev(x))\n    tl.store(o + 4 + i, libdevice.ffs(x))\n    tl.store(o + 8 + i, libdevice.clz(x))\n"
        "    tl.store(o + 12 + i, libdevice.popc(x))\n",
        1, ARRAY("*i64", wide), {"*i64", found, 16, 0});
    for (int i = 0; i < 4; i++) {
        assert_true((uint64_t)found[0][i] == reversed((uint64_t)wide[i], 64));
        assert_int_equal(found[1][i], __builtin_ffsll(wide[i]));
        assert_int_equal(found[2][i], wide[i] ? __builtin_clzll((uint64_t)wide[i]) : 64);
        assert_int_equal(found[3][i], __builtin_popcountll((uint64_t)wide[i]));
    }
}

static void test_libdevice_conversions(void **state)
{
    (void)state;
    float x[8] = {1.5f, -1.5f, 2.5f, -0.5f, 0.5f, 1e10f, -1e10f, 3.999f}, back[8];
    int32_t out[6][8];
    RUN("import triton\nimport triton.language as tl\n" LIBDEVICE "@triton.jit\ndef k(p, o, q):\n    i = tl.arange(0, 8)\n    x = tl.load(p + i)\n"
        "    tl.store(o + i, libdevice.float2int_rn(x))\n    tl.store(o + 8 + i, libdevice.float2int_rz(x))\n    tl.store(o + 16 + i, libdevice.float2int_rd(x))\n"
        "    tl.store(o + 24 + i, libdevice.float2int_ru(x))\n    tl.store(o + 32 + i, libdevice.float_as_int(x))\n"
        "    b = libdevice.double_as_longlong(libdevice.hiloint2double(libdevice.double2hiint(x.to(tl.float64)), libdevice.double2loint(x.to(tl.float64))))\n"
        "    tl.store(o + 40 + i, b == libdevice.double_as_longlong(x.to(tl.float64)))\n"
        "    tl.store(q + i, libdevice.int_as_float(libdevice.float_as_int(x)))\n"
        "    tl.static_assert(libdevice.llrint(x).dtype == tl.int64)\n    tl.static_assert(libdevice.ll2float_rn(1 << 40).dtype == tl.float32)\n",
        1, ARRAY("*f32", x), {"*i32", out, 48, 0}, ARRAY("*f32", back));
    for (int i = 0; i < 8; i++) {
        bool fits = fabsf(x[i]) < 1e9f;
        int32_t most = x[i] < 0 ? INT32_MIN : INT32_MAX, bits;
        memcpy(&bits, &x[i], sizeof bits);
        assert_int_equal(out[0][i], fits ? (int32_t)rintf(x[i]) : most);
        assert_int_equal(out[1][i], fits ? (int32_t)truncf(x[i]) : most);
        assert_int_equal(out[2][i], fits ? (int32_t)floorf(x[i]) : most);
        assert_int_equal(out[3][i], fits ? (int32_t)ceilf(x[i]) : most);
        assert_int_equal(out[4][i], bits);
        assert_int_equal(out[5][i], 1);
        assert_true(back[i] == x[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox),          cmocka_unit_test(test_philox_wide),
        cmocka_unit_test(test_random_integers), cmocka_unit_test(test_random_offsets),
        cmocka_unit_test(test_random_floats),   cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_shapes),          cmocka_unit_test(test_swizzle),
        cmocka_unit_test(test_sums),            cmocka_unit_test(test_half_sum),
        cmocka_unit_test(test_extrema),         cmocka_unit_test(test_extrema_types),
        cmocka_unit_test(test_scans),           cmocka_unit_test(test_order),
        cmocka_unit_test(test_softmax),         cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_libdevice_unary), cmocka_unit_test(test_libdevice_binary),
        cmocka_unit_test(test_libdevice_more),  cmocka_unit_test(test_libdevice_nextafter),
        cmocka_unit_test(test_libdevice_classes), cmocka_unit_test(test_libdevice_integers),
        cmocka_unit_test(test_libdevice_conversions), cmocka_unit_test(test_libdevice_rounding),
        cmocka_unit_test(test_libdevice_rounded_conversions), cmocka_unit_test(test_libdevice_bessel),
        cmocka_unit_test(test_libdevice_bessel_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
