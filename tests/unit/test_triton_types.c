/* Triton's arithmetic: which type operands meet in, literals, operators, conversions, what is refused and why. */
#include "triton_test.h"

/* ---- promotion ------------------------------------------------------------------------------------------------------- */

/* Tensors of every type with a literal's or another tensor's: the type of the expression, decided when the kernel is compiled. */
#define TENSORS                                                                                                                                 \
    KERNEL("out, n, t, s64, d")                                                                                                                 \
    "    r = tl.arange(0, 4)\n"                                                                                                                 \
    "    i8 = r.to(tl.int8)\n    i16 = r.to(tl.int16)\n    i32 = r\n    i64 = r.to(tl.int64)\n"                                                \
    "    u8 = r.to(tl.uint8)\n    u16 = r.to(tl.uint16)\n    u32 = r.to(tl.uint32)\n    u64 = r.to(tl.uint64)\n    b = r > 1\n"              \
    "    h = r.to(tl.float16)\n    g = r.to(tl.bfloat16)\n    f = r.to(tl.float32)\n    d64 = r.to(tl.float64)\n"                             \
    "    e4 = f.to(tl.float8e4nv)\n    e5 = f.to(tl.float8e5)\n    p = out + r\n"

static const given tensor_arguments[] = {{"*f32", NULL, 0, 0}, {"i32", NULL, 0, 0}, {"f32", NULL, 0, 0}, {"i64", NULL, 0, 0}, {"f64", NULL, 0, 0}};

static const struct {
    const char *expression, *type;
} promotions[] = {
    /* integers: the wider, of one width the unsigned */
    {"i8 + i32", "int32"}, {"i32 + i64", "int64"}, {"u8 + i8", "uint8"}, {"i16 + u8", "int16"}, {"u32 + i32", "uint32"}, {"u32 + i64", "int64"},
    {"i32 * u64", "uint64"}, {"b + i8", "int8"}, {"b + b", "int1"}, {"b & b", "int1"}, {"b | i32", "int32"}, {"i8 & u16", "uint16"}, {"u8 << i32", "int32"},
    /* floats: fp64, fp32, fp16, bf16; integers take them */
    {"i64 + h", "fp16"}, {"h + f", "fp32"}, {"h + g", "fp16"}, {"g + g", "bf16"}, {"h + h", "fp16"}, {"f + d64", "fp64"}, {"g + f", "fp32"}, {"g + i32", "fp32"},
    {"b * f", "fp32"}, {"u64 - f", "fp32"}, {"e4 + e5", "fp16"}, {"e4 + e4", "fp8e4nv"}, {"e4 + h", "fp16"}, {"e5 * g", "fp32"}, {"e5 + f", "fp32"},
    /* halfs divide in fp32 */
    {"h / h", "fp32"}, {"g / g", "fp32"}, {"h % h", "fp32"}, {"h / 2", "fp32"}, {"g / 2.0", "fp32"}, {"i32 / i32", "fp32"}, {"i64 / i64", "fp32"}, {"i32 / h", "fp32"},
    {"i32 / 2", "fp32"}, {"d64 / i32", "fp64"}, {"i64 // i32", "int64"}, {"u8 // u32", "uint32"}, {"u8 % 3", "uint8"}, {"f % f", "fp32"}, {"1 / f", "fp32"},
    /* a literal of the tensor's kind or a lower one takes its type */
    {"i8 + 1", "int8"}, {"u8 + 255", "uint8"}, {"i64 * 3", "int64"}, {"h + 1", "fp16"}, {"h * 2.5", "fp16"}, {"g + 0.1", "bf16"}, {"d64 + 0.1", "fp64"}, {"e4 * 2.0", "fp8e4nv"},
    {"1 - i16", "int16"}, {"True + i8", "int8"}, {"b & True", "int1"}, {"2 * h", "fp16"}, {"f + 1e300", "fp32"},
    /* one of a higher kind takes part by its own */
    {"i32 + 1.0", "fp32"}, {"i64 * 0.5", "fp32"}, {"b + 1", "int32"}, {"b * 1.0", "fp32"}, {"i8 + 1e300", "fp64"}, {"b + 3000000000", "uint32"},
    /* arguments are tensors of no axes: their types count */
    {"h * t", "fp32"}, {"i8 + n", "int32"}, {"i32 * s64", "int64"}, {"f * d", "fp64"}, {"n * s64", "int64"}, {"n + 1", "int32"}, {"n + 1.5", "fp32"}, {"n / 2", "fp32"},
    {"g + t", "fp32"},
    /* comparisons */
    {"i32 < u8", "int1"}, {"h == 1", "int1"}, {"p == p", "int1"}, {"b != b", "int1"}, {"f > n", "int1"}, {"not n", "int1"}, {"~b", "int1"}, {"~i8", "int8"}, {"-b", "int1"},
    {"-h", "fp16"}, {"+u8", "uint8"},
    /* functions: where has weak literals, minimum, maximum and clamp have not, and make bf16 fp32 */
    {"tl.where(b, h, 0)", "fp16"}, {"tl.where(b, h, 0.0)", "fp16"}, {"tl.where(b, i8, i32)", "int32"}, {"tl.where(b, 1, 2)", "int32"}, {"tl.where(b, 1, 2.0)", "fp32"},
    {"tl.maximum(h, h)", "fp16"}, {"tl.maximum(h, 0.0)", "fp32"}, {"tl.maximum(g, g)", "fp32"}, {"tl.minimum(i8, i32)", "int32"}, {"tl.clamp(g, g, g)", "fp32"},
    {"tl.fma(h, h, h)", "fp16"}, {"tl.fdiv(h, h)", "fp16"}, {"tl.fma(f, 2.0, f)", "fp32"}, {"tl.abs(u8)", "uint8"}, {"tl.abs(h)", "fp16"}, {"tl.add(h, 1)", "fp16"},
    {"tl.umulhi(u32, 3)", "uint32"}, {"tl.umulhi(i32, i32)", "int32"}, {"(b * 2).to(tl.float8e5)", "fp8e5"},
};

static const char *dtype_of(const char *name)
{
    static const char *const names[][2] = {{"fp8e4nv", "float8e4nv"}, {"fp8e5", "float8e5"}, {"fp16", "float16"}, {"bf16", "bfloat16"}, {"fp32", "float32"}, {"fp64", "float64"}};
    for (size_t i = 0; i < TN_COUNT(names); i++)
        if (strcmp(names[i][0], name) == 0)
            return names[i][1];
    return name;
}

static void promotion(void **state)
{
    (void)state;
    for (size_t i = 0; i < TN_COUNT(promotions); i++) {
        char text[4096];
        tn_session *session = new_test_session();
        tn_triton_kernel kernel;
        snprintf(text, sizeof text, TENSORS "    v = %s\n    tl.static_assert(v.dtype == tl.%s, v.dtype.name)\n", promotions[i].expression,
                 dtype_of(promotions[i].type));
        if (compile_triton(session, text, tensor_arguments, TN_COUNT(tensor_arguments), false, &kernel) != TN_OK) {
            tn_print_diags(session, stderr);
            fail_msg("%s: expected %s", promotions[i].expression, promotions[i].type);
        }
        free_test_session(session);
    }
}

static const struct {
    const char *statement, *expected;
} refusals[] = {
    {"i32 // u32", "one is signed, the other is not"},
    {"i32 % u32", "one is signed, the other is not"},
    {"i32 / u8", "one is signed, the other is not"},
    {"f // f", "tl.floor(x / y)"},
    {"f // 2", "tl.floor(x / y)"},
    {"f & f", "it takes integers"},
    {"i32 | 1.0", "it takes integers"},
    {"f << 1", "it takes integers"},
    {"b << b", "no bits to shift"},
    {"i8 + 200", "out of range for int8"},
    {"u8 - 256", "out of range for uint8"},
    {"u8 + (-1)", "negative number"},
    {"u32 > -1", "negative number"},
    {"i32 + 18446744073709551616", "outside of all integer types"},
    {"e4 + i32", "fp8 meets no integers"},
    {"p + p", "pointers do not add up"},
    {"p - p", "pointers do not add up"},
    {"p * 2", "pointer + integer"},
    {"1 - p", "pointer + integer"},
    {"p + 1.0", "is an integer"},
    {"p == 0", "compares with pointers"},
    {"-p", "no negative"},
    {"~f", "~ takes integers"},
    {"i32 ** 2", "tl.exp2"},
    {"f @ f", "tl.dot"},
    {"f + 'a'", "found"},
    {"f + tl.arange(0, 8)", "shapes [4] and [8] do not fit"},
    {"tl.where(b, p, i32)", "no type in common"},
    {"f.to(tl.int8, bitcast=True)", "cannot bitcast fp32 of 32 bits to int8 of 8"},
    {"b.to(tl.int8, bitcast=True)", "cannot bitcast int1 of 1 bits"},
    {"f.to(tl.float64, fp_downcast_rounding='rtz')", "narrower float type"},
    {"i32.to(tl.float16, fp_downcast_rounding='rtz')", "narrower float type"},
    {"f.to(tl.float16, fp_downcast_rounding='up')", "'rtne' or 'rtz'"},
    {"p.to(tl.int32)", "int64, uint64 or int1 only"},
    {"f.to(out.dtype)", "does not convert to a pointer"},
    {"tl.full([4], 1.5, tl.int32)", "is no int32"},
    {"f.to('float16')", "must be a type"},
};

static void refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < TN_COUNT(refusals); i++) {
        char text[4096];
        snprintf(text, sizeof text, TENSORS "    v = %s\n", refusals[i].statement);
        must_fail(text, tensor_arguments, TN_COUNT(tensor_arguments), refusals[i].expected);
    }
}

/* ---- values of operators --------------------------------------------------------------------------------------------- */

static void integer_operators(void **state)
{
    (void)state;
    static const struct {
        const char *expression;
        int32_t expected[4];
    } cases[] = {
        /* x = -7, 7, INT_MIN, 1;  y = 2, -2, 3, 5 */
        {"x // y", {-3, -3, -715827882, 0}},
        {"x % y", {-1, 1, -2, 1}},
        {"x // 2", {-3, 3, -1073741824, 0}},
        {"x % 4", {-3, 3, 0, 1}},
        {"7 // y", {3, -3, 2, 1}},
        {"x + y", {-5, 5, -2147483645, 6}},
        {"x * 3", {-21, 21, INT32_MIN, 3}},
        {"-x", {7, -7, INT32_MIN, -1}},
        {"~x", {6, -8, INT32_MAX, -2}},
        {"x >> 1", {-4, 3, -1073741824, 0}},
        {"x << 1", {-14, 14, 0, 2}},
        {"(x.to(tl.uint32, bitcast=True) >> 1).to(tl.int32)", {2147483644, 3, 1073741824, 0}},
        {"x.to(tl.uint32) >> 1 == 3", {0, 1, 0, 0}},
        {"x < y", {1, 0, 1, 1}},
        {"x.to(tl.uint32) < y.to(tl.uint32)", {0, 1, 0, 1}},
        {"(x > 0) + (y > 0)", {1, 1, 1, 0}}, /* of one bit: 1 + 1 is 0 */
        {"(x > 0) & (y > 0)", {0, 0, 0, 1}},
        {"(x > 0) * (y > 0)", {0, 0, 0, 1}},
        {"-(x > 0)", {0, 1, 0, 1}},
        {"~(x > 0)", {1, 0, 1, 0}},
        {"(x > 0).to(tl.int8)", {0, 1, 0, 1}}, /* not -1 */
        {"(x > 0) + 1", {1, 2, 1, 2}},
        {"x.to(tl.int8)", {-7, 7, 0, 1}},
        {"(x * 100).to(tl.int8)", {68, -68, 0, 100}},
        {"(x * 100).to(tl.uint8)", {68, 188, 0, 100}},
        {"x.to(tl.int1)", {1, 1, 1, 1}},
        {"(x - 1).to(tl.int1)", {1, 1, 1, 0}},
        {"(x.to(tl.float32) * 0.75).to(tl.int32)", {-5, 5, -1610612736, 0}},
        {"(x * 0.0).to(tl.int1)", {0, 0, 0, 0}},
        {"tl.where(x > y, x, y)", {2, 7, 3, 5}},
        {"tl.where(x > y, 1, y)", {2, 1, 3, 5}},
        {"tl.maximum(x, y)", {2, 7, 3, 5}},
        {"tl.minimum(x, 0)", {-7, 0, INT32_MIN, 0}},
        {"tl.abs(x)", {7, 7, INT32_MIN, 1}},
        {"tl.umulhi(x, y)", {1, 6, 1, 0}},
        {"x if n > 3 else y", {-7, 7, INT32_MIN, 1}},
        {"x ^ y", {-5, -7, -2147483645, 4}},
        {"x == x", {1, 1, 1, 1}},
        {"x + (not n)", {-7, 7, INT32_MIN, 1}},
    };
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        int32_t x[4] = {-7, 7, INT32_MIN, 1}, y[4] = {2, -2, 3, 5}, out[4] = {0};
        char text[2048];
        snprintf(text, sizeof text,
                 KERNEL("px, py, pout, n") "    r = tl.arange(0, 4)\n    x = tl.load(px + r)\n    y = tl.load(py + r)\n    tl.store(pout + r, %s)\n", cases[i].expression);
        RUN(text, 1, ARRAY("*i32", x), ARRAY("*i32", y), ARRAY("*i32", out), {"i32", NULL, 0, 4});
        for (int k = 0; k < 4; k++)
            if (out[k] != cases[i].expected[k])
                fail_msg("%s, element %d: %d, expected %d", cases[i].expression, k, out[k], cases[i].expected[k]);
    }
}

static bool same_float(float x, float y) { return (isnan(x) && isnan(y)) || float_bits(x) == float_bits(y); }

static void float_operators(void **state)
{
    (void)state;
    static const struct {
        const char *expression;
        float expected[4];
    } cases[] = {
        /* x = -5.5, 0, NaN, 1e10;  y = 2, -0.0, 1, INFINITY */
        {"x % y", {-1.5f, NAN, NAN, 1e10f}},
        {"x / y", {-2.75f, NAN, NAN, 0}},
        {"x == x", {1, 1, 0, 1}},
        {"x != x", {0, 0, 1, 0}},
        {"x < y", {1, 0, 0, 1}},
        {"(x > y) | (x <= y)", {1, 1, 0, 1}},
        {"tl.maximum(x, y)", {2, 0, 1, INFINITY}},
        {"tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)", {2, 0, NAN, INFINITY}},
        {"tl.minimum(x, y)", {-5.5f, -0.0f, 1, 1e10f}},
        {"tl.minimum(y, x, tl.PropagateNan.ALL)", {-5.5f, -0.0f, NAN, 1e10f}},
        {"tl.clamp(x, -1.0, 3.0)", {-1, 0, -1, 3}},
        {"tl.clamp(x, -1.0, 3.0, tl.PropagateNan.ALL)", {-1, 0, NAN, 3}},
        {"tl.where(x > 0, x, 7)", {7, 7, 7, 1e10f}},
        {"tl.fma(x, y, 1.0)", {-10, 1, NAN, INFINITY}},
        {"tl.abs(x)", {5.5f, 0, NAN, 1e10f}},
        {"tl.abs(y)", {2, 0, 1, INFINITY}},
        {"tl.floor(x)", {-6, 0, NAN, 1e10f}},
        {"tl.math.ceil(x)", {-5, 0, NAN, 1e10f}},
        {"x.to(tl.float16).to(tl.float32)", {-5.5f, 0, NAN, INFINITY}},
        {"x.to(tl.float16, fp_downcast_rounding='rtz').to(tl.float32)", {-5.5f, 0, NAN, 65504}},
        {"x.to(tl.float8e4nv).to(tl.float32)", {-5.5f, 0, NAN, 448}},
        {"y.to(tl.float8e4nv).to(tl.float32)", {2, -0.0f, 1, 448}},
        {"y.to(tl.float8e5).to(tl.float32)", {2, -0.0f, 1, 57344}},
        {"(x * 1.05).to(tl.float8e5).to(tl.float32)", {-6, 0, NAN, 57344}},
        {"(x * 1.05).to(tl.float8e5, 'rtz').to(tl.float32)", {-5, 0, NAN, 57344}},
        {"x.to(tl.int1).to(tl.float32)", {1, 0, 1, 1}},
        {"x.to(tl.int32, bitcast=True).to(tl.float32, bitcast=True)", {-5.5f, 0, NAN, 1e10f}},
        {"(y.to(tl.uint32, bitcast=True) >> 31).to(tl.float32)", {0, 1, 0, 0}},
        {"x * n", {-22, 0, NAN, 4e10f}},
        {"x + t", {-5, 0.5f, NAN, 1e10f}},
        {"1 - y", {-1, 1, 0, -INFINITY}},
        {"tl.sqrt(y)", {1.41421356f, -0.0f, 1, INFINITY}},
        {"y.exp2()", {4, 1, 2, INFINITY}},
        {"tl.div_rn(x, y)", {-2.75f, NAN, NAN, 0}},
    };
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        float x[4] = {-5.5f, 0, NAN, 1e10f}, y[4] = {2, -0.0f, 1, INFINITY}, out[4] = {0};
        char text[2048];
        snprintf(text, sizeof text,
                 KERNEL("px, py, pout, n, t") "    r = tl.arange(0, 4)\n    x = tl.load(px + r)\n    y = tl.load(py + r)\n    tl.store(pout + r, %s)\n",
                 cases[i].expression);
        RUN(text, 1, ARRAY("*f32", x), ARRAY("*f32", y), ARRAY("*f32", out), {"i32", NULL, 0, 4}, {"f32", NULL, 0, float_bits(0.5f)});
        for (int k = 0; k < 4; k++)
            if (!same_float(out[k], cases[i].expected[k]))
                fail_msg("%s, element %d: %g, expected %g", cases[i].expression, k, (double)out[k], (double)cases[i].expected[k]);
    }
}

/* Rounding to nearest even and toward zero, of every kind of fp32 number, against a loop over all results. */
static void narrowing(void **state)
{
    (void)state;
    enum { N = 256 };
    static const struct {
        const char *name, *type;
        tn_dtype dtype;
        double most;
    } types[] = {{"float16", "*f16", TN_F16, INFINITY}, {"bfloat16", "*bf16", TN_BF16, INFINITY}, {"float8e4nv", "*f8e4m3", TN_F8E4M3, 448}, {"float8e5", "*f8e5m2", TN_F8E5M2, 57344}};
    uint64_t seed = 1;
    for (size_t t = 0; t < TN_COUNT(types); t++) {
        float x[N];
        uint16_t nearest[N], zero[N];
        char text[1024];
        for (int i = 0; i < N; i++) {
            seed = tn_hash_u64(seed + 0x9e3779b97f4a7c15u);
            uint32_t bits = (uint32_t)seed, exponent = 127 + (uint32_t)(seed >> 40) % 48 - 28;
            if (i % 4)
                bits = (bits & 0x807fffff) | exponent << 23; /* around what the type has */
            memcpy(&x[i], &bits, sizeof bits);
        }
        snprintf(text, sizeof text,
                 KERNEL("px, pn, pz") "    r = tl.arange(0, 256)\n    x = tl.load(px + r)\n    tl.store(pn + r, x.to(tl.%s))\n"
                                      "    tl.store(pz + r, x.to(tl.%s, fp_downcast_rounding='rtz'))\n",
                 types[t].name, types[t].name);
        RUN(text, 1, ARRAY("*f32", x), {types[t].type, nearest, N, 0}, {types[t].type, zero, N, 0});
        for (int i = 0; i < N; i++) {
            double n = tn_number_load(types[t].dtype, nearest, i).f, z = tn_number_load(types[t].dtype, zero, i).f, v = x[i];
            if (isnan(v)) {
                assert_true(isnan(n) && isnan(z));
                continue;
            }
            double clamped = fmax(-types[t].most, fmin(types[t].most, v));
            assert_true(n == tn_number_from_double(types[t].dtype, clamped).f);
            assert_true(fabs(z) <= fabs(v) && (z == 0 || signbit(z) == signbit(v)));
            /* the next number away from zero is beyond v, or there is none but infinity */
            uint16_t up[1] = {0};
            int bytes = tn_dtype_bits(types[t].dtype) / 8;
            memcpy(up, (char *)zero + i * bytes, (size_t)bytes);
            up[0]++;
            double next = tn_number_load(types[t].dtype, up, 0).f;
            if (isfinite(v) && fabs(v) < types[t].most && !isnan(next))
                assert_true(fabs(next) > fabs(v));
        }
    }
}

/* ---- pointers -------------------------------------------------------------------------------------------------------- */

static void pointers(void **state)
{
    (void)state;
    float x[8] = {0, 1, 2, 3, 4, 5, 6, 7}, out[8] = {0};
    static const char text[] = KERNEL("px, pout")
        "    r = tl.arange(0, 4)\n"
        "    q = px + 8 - 4\n"                       /* back and forth */
        "    tl.store(pout + r, tl.load(q + r))\n"
        "    w = px + r.to(tl.uint8)\n"
        "    v = tl.load(3 + w)\n"                   /* integer + pointer */
        "    same = (px + r) == (px + 2 - r)\n"
        "    less = (px + r) < (px + 2)\n"
        "    tl.store(pout + 4 + r, v + tl.where(same, 100, 0) + tl.where(less, 1000.0, 0.0))\n"
        "    bits = px.to(tl.int64)\n"
        "    back = bits.to(tl.pointer_type(tl.float32))\n"
        "    tl.store(pout, tl.load(back + 5))\n"
        "    tl.store(pout + 1, (bits != 0).to(tl.float32) + px.to(tl.int1))\n"
        "    i = tl.load((px + 7).to(tl.pointer_type(tl.int32), bitcast=True))\n"
        "    tl.store(pout + 2, i.to(tl.float32, bitcast=True))\n";
    RUN(text, 1, ARRAY("*f32", x), ARRAY("*f32", out));
    const float expected[8] = {5, 2, 7, 7, 1003, 1104, 5, 6};
    assert_memory_equal(out, expected, sizeof out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(promotion),       cmocka_unit_test(refused),   cmocka_unit_test(integer_operators),
        cmocka_unit_test(float_operators), cmocka_unit_test(narrowing), cmocka_unit_test(pointers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
