/* The f32 functions of src/loop/vecmath.c against the meaning of the scalar table (double, rounded once), by
 * interpreting the expanded code. docs/vector-math.md states the errors over all floats; the bounds here are those, a
 * little rounded up. */
#include "loop_test.h"

#include <math.h>

typedef struct row {
    const char *name;
    double lo, hi; /* where the random arguments lie */
    double ulps;
} row;

static const row rows[] = {
    {"exp", -104, 89, 1.5},    {"exp2", -150, 128, 1.5},  {"expm1", -20, 89, 2},      {"log", 0, 1e6, 1.5},
    {"log2", 0, 1e6, 2.5},     {"log1p", -1, 1e6, 2},     {"logistic", -90, 90, 2.5}, {"tanh", -10, 10, 2.5},
    {"erf", -5, 5, 3},         {"sin", -200, 200, 2},     {"cos", -200, 200, 2},      {"tan", -200, 200, 4},
    {"asin", -1, 1, 3},        {"acos", -1, 1, 3},        {"atan", -50, 50, 3},       {"sinh", -90, 90, 3},
    {"cosh", -90, 90, 3},      {"asinh", -1e6, 1e6, 4},   {"acosh", 1, 1e6, 4},       {"atanh", -1, 1, 4},
    {"cbrt", -1e6, 1e6, 1.5},  {"sin", -1e8, 1e8, 2},     {"cos", -1e30, 1e30, 2},    {"exp", -1e-3, 1e-3, 1.5},
    {"expm1", -1e-6, 1e-6, 2}, {"log1p", -1e-6, 1e-6, 2}, {"tanh", -1e-4, 1e-4, 2.5}, {"erf", -1e-4, 1e-4, 3},
    {"log", 0, 1e-40, 1.5},    {"cbrt", 0, 1e-40, 1.5},
};

static const float specials[] = {0.0f,      -0.0f,    INFINITY,  -INFINITY, NAN,   1.0f,  -1.0f,  0x1p-149f, -0x1p-149f,
                                 0x1p-126f, 0x1p127f, -0x1p127f, 2.0f,      -2.0f, 0.5f,  -0.5f,  88.73f,    -103.98f,
                                 3.0e38f,   -3.0e38f, 1e-30f,    -1e-30f,   3.0f,  -3.0f, 127.5f, -149.5f};

static double ulp(float y)
{
    float a = fabsf(y);
    return a < 0x1p-126f ? 0x1p-149 : (double)(nextafterf(a, INFINITY) - a);
}

/* Infinities, NaN and the sign of zero must agree, except where the exact value is within the error of the border. */
static double error_in_ulps(float got, double exact)
{
    float want = (float)exact;
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (isinf(want) || isinf(got))
        return want == got || fabs(exact) > 3.4028e38 ? 0 : INFINITY;
    if (want == 0 && got == 0)
        return signbit(want) == signbit(got) ? 0 : INFINITY;
    return fabs((double)got - exact) / ulp(want);
}

static double exact_value(tn_scalar fn, const float *x)
{
    tn_number operands[2] = {{.f = x[0]}, {.f = x[1]}};
    return tn_scalar_eval(fn, TN_F64, operands).f;
}

/* y[i] = fn(x[i], z[i]) for i < 64, expanded for the machine and interpreted. */
static void evaluate(const char *name, bool binary, const tn_pass_options *machine, float *x, float *z, float *y)
{
    tn_session session = {0};
    const char *text = tn_format(&session.arena,
                                 "kernel @f(%%x: global f32 readonly, %%z: global f32 readonly, %%y: global f32) {\n"
                                 "  for %%i = 0 to 64 step 1 vector {\n"
                                 "    %%a = load %%x[%%i] : f32\n    %%b = load %%z[%%i] : f32\n"
                                 "    %%r = %s %%a%s : f32\n    store %%y[%%i], %%r\n  }\n}\n",
                                 name, binary ? ", %b" : "");
    tn_lfunc *func = parse_kernel(&session, text);
    run_passes(func, tn_loop_pipeline, machine);
    tn_loop_arg args[] = {{x, 64}, {z, 64}, {y, 64}};
    assert_int_equal(tn_loop_interpret(func, args, NULL), TN_OK);
    tn_arena_free(&session.arena);
}

static void check_unary(const row *r, const tn_pass_options *machine, uint64_t *random, bool special)
{
    tn_scalar fn = tn_scalar_from_name(r->name);
    float x[64] = {0}, z[64] = {0}, y[64];
    for (int i = 0; i < 64; i++)
        x[i] = special ? specials[i % TN_COUNT(specials)]
                       : (float)(r->lo + (r->hi - r->lo) * ((double)(next_random(random) >> 11) * 0x1p-53));
    evaluate(r->name, false, machine, x, z, y);
    for (int i = 0; i < 64; i++) {
        double error = error_in_ulps(y[i], exact_value(fn, (float[]){x[i], 0}));
        if (!(error <= r->ulps + (machine->vector.fma ? 0 : 1)))
            fail_msg("%s(%a) = %a: %g ulp", r->name, (double)x[i], (double)y[i], error);
    }
}

static void test_unary(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (size_t i = 0; i < TN_COUNT(rows); i++)
        for (size_t m = 0; m < TN_COUNT(machines); m++) {
            check_unary(&rows[i], &machines[m], &random, true);
            for (int k = 0; k < 8; k++)
                check_unary(&rows[i], &machines[m], &random, false);
        }
}

static void check_binary(const char *name, const tn_pass_options *machine, const float *x, const float *z)
{
    float a[64], b[64], y[64];
    memcpy(a, x, sizeof a);
    memcpy(b, z, sizeof b);
    evaluate(name, true, machine, a, b, y);
    for (int i = 0; i < 64; i++) {
        double error = error_in_ulps(y[i], exact_value(tn_scalar_from_name(name), (float[]){a[i], b[i]}));
        if (!(error <= 4))
            fail_msg("%s(%a, %a) = %a: %g ulp", name, (double)a[i], (double)b[i], (double)y[i], error);
    }
}

/* All pairs of special values, then random ones. */
static void test_binary(void **state)
{
    (void)state;
    uint64_t random = 2;
    static const char *const names[] = {"pow", "atan2"};
    enum { N = TN_COUNT(specials) };
    for (size_t f = 0; f < TN_COUNT(names); f++)
        for (size_t m = 0; m < 2; m++) {
            float x[64], z[64];
            for (int pair = 0; pair < N * N; pair += 64) {
                for (int i = 0; i < 64; i++) {
                    x[i] = specials[(pair + i) % (N * N) / N];
                    z[i] = specials[(pair + i) % N];
                }
                check_binary(names[f], &machines[m], x, z);
            }
            for (int k = 0; k < 20; k++) {
                for (int i = 0; i < 64; i++) {
                    x[i] = (float)(next_random(&random) >> 40) * 0x1p-20f;
                    z[i] = ((float)(next_random(&random) >> 40) - 0x1p23f) * 0x1p-19f;
                }
                check_binary(names[f], &machines[m], x, z);
            }
        }
}

/* Divisors that are special, near the ends of what corrections can do, and any. */
static float divisor(size_t k, uint64_t *random)
{
    static const float ends[] = {0x1p24f, 0x1.000002p24f, 0x1p-24f, 0x1.fffffep-25f, -3.0f, 0x1.fffffep23f};
    if (k < TN_COUNT(specials))
        return specials[k];
    k -= TN_COUNT(specials);
    return k < TN_COUNT(ends) ? ends[k] : (float)((double)(int64_t)next_random(random) * 0x1p-60);
}

/* By one number for all lanes: div has the division's bits, div_full is within 2 ulp, both have its infinities, NaN and zeros. Every other time numbers are such
 * that products and corrections do: zeros, and what is within 2^+-100. */
static void check_division(const char *name, double most, const tn_pass_options *m, size_t k, uint64_t *random)
{
    float x[64], z[64], y[64];
    for (int i = 0; i < 64; i++) {
        double any = (double)(int64_t)next_random(random) * 0x1p-63;
        x[i] = k % 2 && i < (int)TN_COUNT(specials) ? specials[i] : i % 7 == 3 ? 0 : (float)ldexp(any < 0 ? any - 1 : any + 1, (int)(next_random(random) % 199) - 100);
    }
    z[0] = divisor(k / 2, random);
    tn_session session = {0};
    tn_lfunc *func = parse_kernel(&session, tn_format(&session.arena, "kernel @f(%%x: global f32 readonly, %%z: global f32 readonly, %%y: global f32) {\n"
                                                                      "  %%b = load %%z[0] : f32\n"
                                                                      "  for %%i = 0 to 64 step 1 vector {\n"
                                                                      "    %%a = load %%x[%%i] : f32\n    %%r = %s %%a, %%b : f32\n    store %%y[%%i], %%r\n  }\n}\n", name));
    run_passes(func, tn_loop_pipeline, m);
    tn_loop_arg args[] = {{x, 64}, {z, 64}, {y, 64}};
    assert_int_equal(tn_loop_interpret(func, args, NULL), TN_OK);
    tn_arena_free(&session.arena);
    for (int i = 0; i < 64; i++) {
        double error = error_in_ulps(y[i], (double)x[i] / (double)z[0]);
        if (!(error <= most) || (most < 1 && y[i] != x[i] / z[0] && !isnan(y[i])))
            fail_msg("%s: %a / %a = %a: %g ulp", name, (double)x[i], (double)z[0], (double)y[i], error);
    }
}

static void test_division(void **state)
{
    (void)state;
    uint64_t random = 5;
    for (size_t m = 0; m < TN_COUNT(machines); m++)
        for (size_t k = 0; k < 2 * TN_COUNT(specials) + 40; k++) {
            check_division("div", 0.5, &machines[m], k, &random);
            check_division("div_full", 2, &machines[m], k, &random);
        }
}

/* Running it twice changes nothing: what remains is what the emitter takes. */
static void test_twice(void **state)
{
    (void)state;
    for (size_t i = 0; i < TN_COUNT(rows); i++) {
        tn_session session = {0};
        const char *text =
            tn_format(&session.arena,
                      "kernel @f(%%x: global bf16 readonly, %%y: global bf16) {\n  %%a = load %%x[0] : bf16x8\n"
                      "  %%r = %s %%a : bf16x8\n  store %%y[0], %%r\n}\n",
                      rows[i].name);
        tn_lfunc *func = parse_kernel(&session, text);
        run_passes(func, "expand", &machines[0]);
        const char *once = kernel_text(func);
        run_passes(func, "expand", &machines[0]);
        assert_string_equal(once, kernel_text(func));
        tn_arena_free(&session.arena);
    }
}

/* A narrow float computes as f32 between casts: the interpreter's own rounding of the narrow operation, but for the
 * transcendental ones. */
static void test_narrow(void **state)
{
    (void)state;
    static const char *const names[] = {"add %a, %b", "mul %a, %b", "div %a, %b", "sub %a, %b",
                                        "max %a, %b", "sqrt %a",    "neg %a"};
    static const char *const dtypes[] = {"f16", "bf16", "f8e4m3fn", "f8e5m2"};
    for (size_t i = 0; i < TN_COUNT(names) * TN_COUNT(dtypes); i++) {
        tn_session session = {0};
        const char *d = dtypes[i % TN_COUNT(dtypes)];
        tn_lfunc *func = parse_kernel(
            &session,
            tn_format(&session.arena,
                      "kernel @f(%%x: global %s readonly, %%y: global %s) {\n  for %%i = 0 to 1000 step 1 vector {\n"
                      "    %%a = load %%x[%%i] : %s\n    %%b = load %%y[%%i] : %s\n    %%r = %s : %s\n    store "
                      "%%y[%%i], %%r\n  }\n}\n",
                      d, d, d, d, names[i / TN_COUNT(dtypes)], d));
        tn_lfunc *after = copy_kernel(func);
        run_passes(after, tn_loop_pipeline, &machines[i % 3]);
        assert_same_effect(func, after, NULL, i);
        tn_arena_free(&session.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary),
        cmocka_unit_test(test_binary),
        cmocka_unit_test(test_division),
        cmocka_unit_test(test_twice),
        cmocka_unit_test(test_narrow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
