/* What expand makes of scalar functions for a GPU, by interpreting it here. The GPU's own instructions are approximate: the test moves each of their results by the
 * error that PTX documents, up and down, and the whole must still be within the bounds of docs/vector-math.md. f64 against long double. */
#include "loop_test.h"

#include <math.h>

static const tn_pass_options gpu = {.vector = {.bits = 128, .registers = 255, .fma = true, .approx = true, .f8 = true}};
enum { N = 64 };

/* ---- moving the results of instructions ---- */

typedef struct instruction {
    const char *name;
    int ulps; /* of f32 */
} instruction;

static const instruction instructions[] = {{"ex2", 2}, {"ex2_denormal", 2}, {"lg2", 4}, {"rcp", 1}, {"rsqrt", 2}, {"sqrt_near", 2}, {"tanh_near", 1 << 12}, {"quotient", 2}};

static void replace_uses(tn_lblock *block, const tn_lvalue *from, tn_lvalue *to, uint32_t first_new)
{
    for (tn_lop *op = block->first; op; op = op->next) {
        bool ours = op->result && op->result->id >= first_new;
        for (int i = 0; i < op->noperands; i++)
            if (op->operand[i] == from && !ours)
                op->operand[i] = to;
        for (int i = 0; i < op->nregions; i++)
            if (op->region[i])
                replace_uses(op->region[i], from, to, first_new);
    }
}

/* v with `ulps` added to its bits, where it is a normal number, and not a power of two: those are exact reciprocals and exponentials on any GPU there is. */
static tn_lvalue *moved(tn_lbuilder *b, tn_lvalue *v, int ulps)
{
    tn_ltype i32 = tn_lvector(TN_I32, v->type.lanes);
    tn_lvalue *a = tn_l_fn1(b, TN_S_abs, v);
    tn_lvalue *least = tn_l_const(b, v->type, (tn_number){.f = 0x1p-120}), *most = tn_l_const(b, v->type, (tn_number){.f = 0x1p127});
    tn_lvalue *normal = tn_l_fn2(b, TN_S_and, tn_l_fn2(b, TN_S_ge, a, least), tn_l_fn2(b, TN_S_le, a, most));
    tn_lvalue *fraction = tn_l_fn2(b, TN_S_and, tn_l_bitcast(b, v, i32), tn_l_const(b, i32, (tn_number){.i = 0x7fffff}));
    normal = tn_l_fn2(b, TN_S_and, normal, tn_l_fn2(b, TN_S_ne, fraction, tn_l_const(b, i32, (tn_number){.i = 0})));
    tn_lvalue *bits = tn_l_fn2(b, TN_S_add, tn_l_bitcast(b, v, i32), tn_l_const(b, i32, (tn_number){.i = ulps}));
    return tn_l_fn3(b, TN_S_select, normal, tn_l_bitcast(b, bits, v->type), v);
}

/* mode 0: as they are; 1: all up; 2: all down; 3, 4: by turns. */
static void move_instructions(tn_lfunc *func, tn_lblock *block, int mode, int *count)
{
    for (tn_lop *op = block->first, *next; op && mode; op = next) {
        next = op->next;
        for (int i = 0; i < op->nregions; i++)
            if (op->region[i])
                move_instructions(func, op->region[i], mode, count);
        if (op->code != TN_L_intrinsic)
            continue;
        for (size_t k = 0; k < TN_COUNT(instructions); k++) {
            if (strcmp(op->name, instructions[k].name) != 0)
                continue;
            bool up = mode == 1 || (mode > 2 && ++*count % 2 == mode % 2);
            uint32_t first_new = func->next_id;
            tn_lbuilder b = {func, block, next, 0};
            tn_lvalue *to = moved(&b, op->result, up ? instructions[k].ulps : -instructions[k].ulps);
            replace_uses(func->body, op->result, to, first_new);
        }
    }
}

/* y[i] = fn(x[i], z[i]) for the dtype, expanded for a GPU. */
static void evaluate(const char *name, bool binary, const char *dtype, int lanes, int mode, void *x, void *z, void *y)
{
    tn_session session = {0};
    tn_lfunc *func = parse_kernel(&session, tn_format(&session.arena,
        "kernel @f(%%x: global %s readonly, %%z: global %s readonly, %%y: global %s) {\n  for %%i = 0 to %d step %d {\n"
        "    %%a = load %%x[%%i] : %s%s\n    %%b = load %%z[%%i] : %s%s\n    %%r = %s %%a%s : %s%s\n    store %%y[%%i], %%r\n  }\n}\n",
        dtype, dtype, dtype, N, lanes, dtype, lanes == 4 ? "x4" : "", dtype, lanes == 4 ? "x4" : "", name, binary ? ", %b" : "", dtype, lanes == 4 ? "x4" : ""));
    run_passes(func, "simplify,expand,simplify", &gpu);
    int count = 0;
    move_instructions(func, func->body, mode, &count);
    tn_loop_arg args[] = {{x, N}, {z, N}, {y, N}};
    if (tn_loop_interpret(func, args, NULL) != TN_OK) {
        tn_print_diags(&session, stderr);
        fail_msg("%s of %s does not run", name, dtype);
    }
    tn_arena_free(&session.arena);
}

static double drawn(double lo, double hi, uint64_t *random) { return lo + (hi - lo) * ((double)(next_random(random) >> 11) * 0x1p-53); }

/* ---- f32 and narrower ---- */

typedef struct row {
    const char *name;
    double lo, hi, ulps;
} row;

static const row rows[] = {
    {"exp", -104, 89, 4},      {"exp", -1e-3, 1e-3, 3.5},  {"exp2", -150, 128, 3},   {"logistic", -104, 90, 6.5}, {"logistic", -2, 2, 6.5}, {"tanh", -10, 10, 4},
    {"tanh", -0.7, 0.7, 4},    {"tanh", -1e-4, 1e-4, 2},   {"rsqrt", 0, 1e6, 3},     {"erf", -5, 5, 4},         {"erf", -1e-4, 1e-4, 4}, {"sinh", -90, 90, 4},
    {"cosh", -90, 90, 4},      {"atan", -50, 50, 4},       {"log", 0, 1e6, 1.5},     {"log", 0.9, 1.1, 1.5},    {"expm1", -20, 89, 2},  {"sin", -200, 200, 3},
    {"sin", -1e30, 1e30, 3},   {"cos", -1e8, 1e8, 3},      {"tan", -1e20, 1e20, 4},  {"div_full", 0, 0, 0},     {"log1p", -1, 100, 2},  {"asin", -1, 1, 3},
};

static const double specials[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1.0, -1.0, 0x1p-149, -0x1p-149, 0x1p-126, 0x1p127, -0x1p127, 2.0, -2.0, 0.5, -0.5,
                                  88.73, -103.98, 3.0e38, -3.0e38, 1e-30, -1e-30, 3.0, -3.0, 127.5, -149.5};

static double exact(tn_scalar fn, double x, double z)
{
    return tn_scalar_eval(fn, TN_F64, (tn_number[]){{.f = x}, {.f = z}}).f;
}

/* In units of the last place of a format with `digits` binary digits and least normal exponent `least`. */
static double error_in_ulps(double got, double want, int digits, int least, double largest)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (isinf(got) || isinf(want))
        return got == want || (fabs(want) > largest && signbit(got) == signbit(want)) ? 0 : INFINITY;
    if (want == 0 && got == 0)
        return signbit(want) == signbit(got) ? 0 : INFINITY;
    int exponent = want == 0 ? least : tn_max(ilogb(want), least);
    return fabs(got - want) / ldexp(1, exponent - digits + 1);
}

static void check_f32(const row *r, int mode, bool special, uint64_t *random)
{
    float x[N], z[N] = {0}, y[N];
    for (int i = 0; i < N; i++)
        x[i] = (float)(special ? specials[i % TN_COUNT(specials)] : drawn(r->lo, r->hi, random));
    evaluate(r->name, false, "f32", 4, mode, x, z, y);
    for (int i = 0; i < N; i++) {
        double error = error_in_ulps((double)y[i], exact(tn_scalar_from_name(r->name), (double)x[i], 0), 24, -126, 0x1.fffffcp127);
        if (!(error <= r->ulps))
            fail_msg("%s(%a) = %a: %g ulp (mode %d)", r->name, (double)x[i], (double)y[i], error, mode);
    }
}

static void test_f32(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (size_t i = 0; i < TN_COUNT(rows); i++)
        for (int mode = 0; rows[i].ulps > 0 && mode < 5; mode++) {
            check_f32(&rows[i], mode, true, &random);
            for (int k = 0; k < 6; k++)
                check_f32(&rows[i], mode, false, &random);
        }
}

/* Half a unit for the rounding; what the GPU's form adds. A result that is denormal in f32 may be 0. */
static const row narrow_rows[] = {
    {"exp", -20, 11, 0.51},  {"exp2", -20, 15, 0.51}, {"logistic", -16, 16, 0.51}, {"tanh", -4, 4, 0.64}, {"log", 0, 100, 0.53},     {"sqrt", 0, 100, 0.51},
    {"rsqrt", 0.01, 100, 0.51}, {"erf", -3, 3, 0.51}, {"sin", -9, 9, 0.51},        {"log2", 0, 100, 0.53}, {"expm1", -4, 4, 0.51},
};

static void test_narrow(void **state)
{
    (void)state;
    static const struct { const char *name; tn_dtype dtype; int digits, least; double largest; } formats[] = {
        {"bf16", TN_BF16, 8, -126, 0x1.fep127}, {"f16", TN_F16, 11, -14, 65504}, {"f8e4m3fn", TN_F8E4M3, 4, -6, 448}, {"f8e5m2", TN_F8E5M2, 3, -14, 57344}};
    uint64_t random = 3;
    for (size_t f = 0; f < TN_COUNT(formats); f++)
        for (size_t i = 0; i < TN_COUNT(narrow_rows); i++)
            for (int mode = 0; mode < 5; mode++) {
                uint16_t x[N], z[N] = {0}, y[N];
                const row *r = &narrow_rows[i];
                for (int k = 0; k < N; k++)
                    tn_number_store(formats[f].dtype, x, k, tn_number_from_double(formats[f].dtype, k < 5 ? specials[k] : drawn(r->lo, r->hi, &random)));
                evaluate(r->name, false, formats[f].name, 4, mode, x, z, y);
                for (int k = 0; k < N; k++) {
                    double a = tn_number_load(formats[f].dtype, x, k).f, got = tn_number_load(formats[f].dtype, y, k).f, want = exact(tn_scalar_from_name(r->name), a, 0);
                    if (isinf(want) && formats[f].dtype == TN_F8E4M3) /* it has none */
                        want = NAN;
                    if (isnan(got) && fabs(want) > formats[f].largest)
                        continue;
                    double error = error_in_ulps(got, want, formats[f].digits, formats[f].least, formats[f].largest);
                    if (!(error <= r->ulps))
                        fail_msg("%s(%a) of %s = %a: %g ulp (mode %d)", r->name, a, formats[f].name, got, error, mode);
                }
            }
}

/* Quotients of narrow floats, of f32 (IEEE's bits) and div_full; remainders (exact). */
static void test_quotients(void **state)
{
    (void)state;
    uint64_t random = 4;
    static const struct { const char *fn, *type; tn_dtype dtype; int digits, least; double largest, ulps; } cases[] = {
        {"div", "f32", TN_F32, 24, -126, 0x1.fffffep127, 0.5}, {"div_full", "f32", TN_F32, 24, -126, 0x1.fffffcp127, 2.5}, {"div", "bf16", TN_BF16, 8, -126, 0x1.fep127, 0.51},
        {"div", "f16", TN_F16, 11, -14, 65504, 0.51}, {"rem", "f32", TN_F32, 24, -126, INFINITY, 0}, {"rem", "bf16", TN_BF16, 8, -126, INFINITY, 0}, {"rem", "f64", TN_F64, 53, -1022, INFINITY, 0}};
    for (size_t c = 0; c < TN_COUNT(cases); c++)
        for (int turn = 0; turn < 25; turn++) {
            double x[N], z[N], y[N];
            tn_dtype d = cases[c].dtype;
            for (int k = 0; k < N; k++) {
                double a = turn < 11 ? specials[(turn * N + k) / TN_COUNT(specials) % TN_COUNT(specials)] : ldexp(drawn(-2, 2, &random), (int)(next_random(&random) % 40) - 20);
                double b = turn < 11 ? specials[(turn * N + k) % TN_COUNT(specials)] : ldexp(drawn(-2, 2, &random), (int)(next_random(&random) % 40) - 20);
                if (d == TN_F64 && turn > 18)
                    a = ldexp(a, (int)(next_random(&random) % 1990) - 990), b = ldexp(b, (int)(next_random(&random) % 1990) - 1000);
                tn_number_store(d, x, k, tn_number_from_double(d, a));
                tn_number_store(d, z, k, tn_number_from_double(d, b));
            }
            evaluate(cases[c].fn, true, cases[c].type, d == TN_F64 ? 1 : 4, turn % 5, x, z, y);
            for (int k = 0; k < N; k++) {
                double a = tn_number_load(d, x, k).f, b = tn_number_load(d, z, k).f, got = tn_number_load(d, y, k).f, want = exact(tn_scalar_from_name(cases[c].fn), a, b);
                double error = error_in_ulps(got, want, cases[c].digits, cases[c].least, cases[c].largest);
                if (!(error <= cases[c].ulps))
                    fail_msg("%s(%a, %a) of %s = %a, not %a: %g ulp", cases[c].fn, a, b, cases[c].type, got, want, error);
            }
        }
}

/* Results of f32 that are only rounded to bf16 use the short forms; a quotient by one number for all lanes is a product. */
static void test_rounded(void **state)
{
    (void)state;
    uint64_t random = 6;
    static const struct { const char *text; tn_scalar fn; const char *must; } cases[] = {
        {"exp %a", TN_S_exp, "@ex2 "}, {"tanh %a", TN_S_tanh, "@tanh_near"}, {"div %a, %b", TN_S_div, "@quotient"}, {"div %a, %s", TN_S_div, "@rcp"}};
    for (size_t c = 0; c < TN_COUNT(cases); c++)
        for (int mode = 0; mode < 5; mode++) {
            tn_session session = {0};
            tn_lfunc *func = parse_kernel(&session, tn_format(&session.arena,
                "kernel @f(%%x: global f32 readonly, %%z: global f32 readonly, %%y: global bf16) {\n  for %%i = 0 to %d step 4 {\n"
                "    %%a = load %%x[%%i] : f32x4\n    %%b = load %%z[%%i] : f32x4\n    %%k = load %%z[%%i] : f32\n    %%s = splat %%k : f32x4\n"
                "    %%r = %s : f32x4\n    %%c = cast %%r : bf16x4\n    store %%y[%%i], %%c\n  }\n}\n", N, cases[c].text));
            run_passes(func, "simplify,expand,simplify", &gpu);
            assert_non_null(strstr(kernel_text(func), cases[c].must));
            int count = 0;
            move_instructions(func, func->body, mode, &count);
            float x[N], z[N];
            uint16_t y[N];
            for (int k = 0; k < N; k++) {
                x[k] = (float)(k < 12 ? specials[k] : drawn(-80, 80, &random));
                z[k] = (float)(k / 4 % 4 == 1 ? specials[k % TN_COUNT(specials)] : drawn(-3, 3, &random));
            }
            tn_loop_arg args[] = {{x, N}, {z, N}, {y, N}};
            assert_int_equal(tn_loop_interpret(func, args, NULL), TN_OK);
            for (int k = 0; k < N; k++) {
                double b = (double)(strchr(cases[c].text, 's') ? z[k / 4 * 4] : z[k]), want = exact(cases[c].fn, (double)x[k], b), got = tn_number_load(TN_BF16, y, k).f;
                if (!(error_in_ulps(got, want, 8, -126, 0x1.fep127) <= 0.64))
                    fail_msg("%s of %a, %a = %a, not %a (mode %d)", cases[c].text, (double)x[k], b, got, want, mode);
            }
            tn_arena_free(&session.arena);
        }
}

/* ---- f64 ---- */

typedef struct double_row {
    const char *name;
    long double (*exact)(long double);
    double lo, hi, ulps;
} double_row;

static long double logistic_of(long double x) { return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x)); }

static const double_row double_rows[] = {
    {"exp", expl, -745, 710, 1.5},       {"exp", expl, -1, 1, 1.5},         {"exp2", exp2l, -1074, 1024, 1.5}, {"expm1", expm1l, -50, 710, 2}, {"expm1", expm1l, -0.4, 0.4, 2},
    {"log", logl, 0, 1e300, 1.5},        {"log", logl, 0.5, 2, 1.5},        {"log", logl, 0, 1e-310, 1.5},     {"log2", log2l, 0.5, 2, 2.5},   {"log2", log2l, 0, 1e9, 2.5},
    {"log1p", log1pl, -1, 3, 2},         {"log1p", log1pl, -1e-9, 1e-9, 2}, {"log1p", log1pl, 0, 1e300, 2},    {"sin", sinl, -10, 10, 2},      {"sin", sinl, -1e9, 1e9, 2},
    {"sin", sinl, -1e18, 1e18, 2.5},       {"cos", cosl, -10, 10, 2},         {"cos", cosl, -1e18, 1e18, 2.5},     {"tan", tanl, -10, 10, 4},      {"tan", tanl, -1e18, 1e18, 4},
    {"tanh", tanhl, -22, 22, 3.5},       {"tanh", tanhl, -1e-3, 1e-3, 3.5}, {"erf", erfl, -6, 6, 2},           {"erf", erfl, -0.9, 0.9, 2},    {"cbrt", cbrtl, -1e300, 1e300, 1.5},
    {"cbrt", cbrtl, -1e-310, 1e-310, 1.5}, {"atan", atanl, -5, 5, 2},       {"atan", atanl, -1e5, 1e5, 2},     {"asin", asinl, -1, 1, 2.5},    {"acos", acosl, -1, 1, 2},
    {"acos", acosl, 0.99, 1, 2.5},       {"sinh", sinhl, -712, 712, 4},     {"sinh", sinhl, -1.2, 1.2, 3},     {"cosh", coshl, -712, 712, 3.5}, {"asinh", asinhl, -1e3, 1e3, 3},
    {"asinh", asinhl, -1, 1, 3},         {"acosh", acoshl, 1, 1e3, 3},      {"acosh", acoshl, 1, 1.1, 3.5},    {"atanh", atanhl, -1, 1, 3},    {"logistic", logistic_of, -745, 40, 4},
};

static double error_of_f64(double got, long double want)
{
    double near = (double)want;
    if (isnan(near) || isnan(got))
        return isnan(near) && isnan(got) ? 0 : INFINITY;
    if (isinf(near) || isinf(got))
        return near == got || fabsl(want) > 0x1.fffffffffffffp1023L - 0x1p973L ? 0 : INFINITY;
    if (near == 0 && got == 0)
        return signbit(near) == signbit(got) ? 0 : INFINITY;
    int exponent = near == 0 ? -1022 : tn_max(ilogb(near), -1022);
    return (double)(fabsl((long double)got - want) / ldexpl(1, exponent - 52));
}

static void test_f64(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (size_t i = 0; i < TN_COUNT(double_rows); i++)
        for (int turn = 0; turn < 12; turn++) {
            const double_row *r = &double_rows[i];
            double x[N], z[N] = {0}, y[N];
            for (int k = 0; k < N; k++)
                x[k] = turn == 0 ? specials[k % TN_COUNT(specials)] : drawn(r->lo, r->hi, &random);
            evaluate(r->name, false, "f64", turn % 2 ? 1 : 4, 0, x, z, y);
            for (int k = 0; k < N; k++)
                if (!(fabs(x[k]) > 0x1p62 && isfinite(x[k]) && (r->exact == sinl || r->exact == cosl || r->exact == tanl))) { /* x87's reduction ends there */
                    double error = error_of_f64(y[k], r->exact((long double)x[k]));
                    if (!(error <= r->ulps))
                        fail_msg("%s(%a) = %a, not %La: %g ulp", r->name, x[k], y[k], r->exact((long double)x[k]), error);
                }
        }
}

/* Arguments of every size: the library's own double functions, off by an ulp themselves. */
static void test_far_angles(void **state)
{
    (void)state;
    uint64_t random = 8;
    static const char *const names[] = {"sin", "cos", "tan"};
    for (size_t f = 0; f < 3; f++)
        for (int turn = 0; turn < 12; turn++) {
            double x[N], z[N] = {0}, y[N];
            for (int k = 0; k < N; k++)
                x[k] = ldexp(drawn(-2, 2, &random), (int)(next_random(&random) % 1024));
            evaluate(names[f], false, "f64", 4, 0, x, z, y);
            for (int k = 0; k < N; k++) {
                double want = exact(tn_scalar_from_name(names[f]), x[k], 0), error = error_of_f64(y[k], (long double)want);
                if (!(error <= 4.5))
                    fail_msg("%s(%a) = %a, not %a: %g ulp", names[f], x[k], y[k], want, error);
            }
        }
}

static void test_f64_pairs(void **state)
{
    (void)state;
    uint64_t random = 9;
    for (int f = 0; f < 2; f++)
        for (int turn = 0; turn < 30; turn++) {
            double x[N], z[N], y[N];
            for (int k = 0; k < N; k++) {
                int pair = turn * N + k;
                x[k] = turn < 11 ? specials[pair / (int)TN_COUNT(specials) % (int)TN_COUNT(specials)] : f ? drawn(-2, 2, &random) : turn < 20 ? drawn(0.5, 2, &random) : drawn(0, 100, &random);
                z[k] = turn < 11 ? specials[pair % (int)TN_COUNT(specials)] : f ? drawn(-2, 2, &random) : turn < 20 ? drawn(-1000, 1000, &random) : drawn(-150, 150, &random);
            }
            evaluate(f ? "atan2" : "pow", true, "f64", turn % 2 ? 1 : 4, 0, x, z, y);
            for (int k = 0; k < N; k++) {
                long double want = f ? atan2l((long double)x[k], (long double)z[k]) : powl((long double)x[k], (long double)z[k]);
                double error = error_of_f64(y[k], want);
                if (!(error <= 3))
                    fail_msg("%s(%a, %a) = %a, not %La: %g ulp", f ? "atan2" : "pow", x[k], z[k], y[k], want, error);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32), cmocka_unit_test(test_narrow), cmocka_unit_test(test_quotients), cmocka_unit_test(test_rounded),
        cmocka_unit_test(test_f64), cmocka_unit_test(test_far_angles), cmocka_unit_test(test_f64_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
