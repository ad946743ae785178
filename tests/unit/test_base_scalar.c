/* base: the scalar functions on the values where they differ between machines, languages and habits. */
#include "unit.h"

#include <math.h>
#include <string.h>

static tn_number eval(tn_scalar fn, tn_dtype dtype, tn_number a, tn_number b, tn_number c)
{
    const tn_number operands[] = {a, b, c};
    return tn_scalar_eval(fn, dtype, operands);
}

static int64_t on_ints(tn_scalar fn, tn_dtype dtype, int64_t a, int64_t b, int64_t c)
{
    return eval(fn, dtype, (tn_number){.i = a}, (tn_number){.i = b}, (tn_number){.i = c}).i;
}

static double on_floats(tn_scalar fn, tn_dtype dtype, double a, double b, double c)
{
    return eval(fn, dtype, (tn_number){.f = a}, (tn_number){.f = b}, (tn_number){.f = c}).f;
}

static bool predicate(tn_scalar fn, double a, double b)
{
    return eval(fn, TN_F32, (tn_number){.f = a}, (tn_number){.f = b}, (tn_number){0}).u;
}

static void integer_edges(void **state)
{
    (void)state;
    static const struct {
        tn_scalar fn;
        tn_dtype dtype;
        int64_t a, b, expected;
    } cases[] = {
        {TN_S_add, TN_I8, 127, 1, -128},
        {TN_S_add, TN_U8, 255, 1, 0},
        {TN_S_add, TN_I64, INT64_MAX, 1, INT64_MIN},
        {TN_S_sub, TN_U4, 0, 1, 15},
        {TN_S_mul, TN_I32, 65536, 65536, 0},
        {TN_S_mul, TN_I64, INT64_MIN, -1, INT64_MIN},
        {TN_S_mulhi, TN_U8, 200, 200, 156},
        {TN_S_mulhi, TN_I8, -128, 127, -64},
        {TN_S_mulhi, TN_I4, -8, -8, 4},
        {TN_S_mulhi, TN_U32, (int64_t)0xd2511f53, (int64_t)0xdeadbeef, (int64_t)0xb6f116d8},
        {TN_S_mulhi, TN_I32, -1, 1, -1},
        {TN_S_mulhi, TN_U64, -1, -1, -2},
        {TN_S_mulhi, TN_I64, INT64_MIN, INT64_MIN, INT64_C(1) << 62},
        {TN_S_mulhi, TN_I64, -1, 1, -1},
        {TN_S_div, TN_I32, 7, 0, -1},
        {TN_S_div, TN_U8, 7, 0, 255},
        {TN_S_div, TN_U64, 7, 0, -1},
        {TN_S_div, TN_I8, -128, -1, -128},
        {TN_S_div, TN_I64, INT64_MIN, -1, INT64_MIN},
        {TN_S_div, TN_I32, -7, 2, -3},
        {TN_S_div, TN_U64, -2, 2, INT64_MAX},
        {TN_S_rem, TN_I32, -7, 2, -1},
        {TN_S_rem, TN_I32, 7, -2, 1},
        {TN_S_rem, TN_I32, 7, 0, 7},
        {TN_S_rem, TN_I64, INT64_MIN, -1, 0},
        {TN_S_pow, TN_I32, 3, 4, 81},
        {TN_S_pow, TN_I32, 0, 0, 1},
        {TN_S_pow, TN_I32, 2, -1, 0},
        {TN_S_pow, TN_I32, 1, -5, 1},
        {TN_S_pow, TN_I32, -1, -5, -1},
        {TN_S_pow, TN_I32, -1, -4, 1},
        {TN_S_pow, TN_U8, 3, 255, 171},
        {TN_S_neg, TN_I8, -128, 0, -128},
        {TN_S_neg, TN_U8, 1, 0, 255},
        {TN_S_abs, TN_I64, INT64_MIN, 0, INT64_MIN},
        {TN_S_abs, TN_I8, -5, 0, 5},
        {TN_S_sign, TN_I8, -5, 0, -1},
        {TN_S_sign, TN_U64, -5, 0, 1},
        {TN_S_not, TN_U8, 5, 0, 250},
        {TN_S_not, TN_I8, 5, 0, -6},
        {TN_S_popcnt, TN_I8, -1, 0, 8},
        {TN_S_popcnt, TN_I64, -1, 0, 64},
        {TN_S_clz, TN_I16, 1, 0, 15},
        {TN_S_clz, TN_I16, -1, 0, 0},
        {TN_S_clz, TN_U4, 0, 0, 4},
        {TN_S_clz, TN_U64, 0, 0, 64},
        {TN_S_shl, TN_I8, 1, 7, -128},
        {TN_S_shl, TN_I8, 1, 8, 0},
        {TN_S_shl, TN_I8, 1, -1, 0},
        {TN_S_shl, TN_I64, 1, 64, 0},
        {TN_S_shr_logical, TN_I8, -128, 7, 1},
        {TN_S_shr_logical, TN_I8, -1, 8, 0},
        {TN_S_shr_logical, TN_I64, -1, 63, 1},
        {TN_S_shr_arith, TN_I8, -128, 3, -16},
        {TN_S_shr_arith, TN_I8, -128, 100, -1},
        {TN_S_shr_arith, TN_I8, 64, -1, 0},
        {TN_S_shr_arith, TN_U8, 128, 3, 240},
        {TN_S_shr_arith, TN_I64, INT64_MIN, 64, -1},
        {TN_S_max, TN_U64, -1, 1, -1},
        {TN_S_max, TN_I64, -1, 1, 1},
        {TN_S_min, TN_U64, -1, 1, 1},
        {TN_S_lt, TN_U64, -1, 1, 0},
        {TN_S_lt, TN_I64, -1, 1, 1},
        {TN_S_ge, TN_U8, 200, 200, 1},
        {TN_S_le, TN_I8, 3, 2, 0},
        {TN_S_gt, TN_I8, 3, 2, 1},
        {TN_S_eq, TN_I8, 3, 3, 1},
        {TN_S_ne, TN_I8, 3, 3, 0},
        {TN_S_xor, TN_I8, -1, 1, -2},
        {TN_S_add, TN_BOOL, 1, 1, 1},
        {TN_S_mul, TN_BOOL, 1, 0, 0},
        {TN_S_max, TN_BOOL, 1, 0, 1},
        {TN_S_min, TN_BOOL, 1, 0, 0},
        {TN_S_not, TN_BOOL, 1, 0, 0},
        {TN_S_lt, TN_BOOL, 0, 1, 1},
    };
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        int64_t result = on_ints(cases[i].fn, cases[i].dtype, cases[i].a, cases[i].b, 0);
        if (result != cases[i].expected)
            fail_msg("%s %s(%lld, %lld): %lld, expected %lld", tn_scalar_name(cases[i].fn), tn_dtype_text(cases[i].dtype),
                     (long long)cases[i].a, (long long)cases[i].b, (long long)result, (long long)cases[i].expected);
    }
    assert_int_equal(on_ints(TN_S_clamp, TN_I8, -3, -100, 5), -3);
    assert_int_equal(on_ints(TN_S_clamp, TN_I8, 7, 0, 5), 5); /* bounds crossed: the upper one is last */
    assert_int_equal(on_ints(TN_S_select, TN_I8, 1, 10, 20), 10);
    assert_int_equal(on_ints(TN_S_select, TN_I8, 0, 10, 20), 20);
}

static void float_edges(void **state)
{
    (void)state;
    static const struct {
        tn_scalar fn;
        double a, b, expected;
    } cases[] = {
        {TN_S_max, 0.0, -0.0, 0.0},
        {TN_S_max, -0.0, 0.0, 0.0},
        {TN_S_min, 0.0, -0.0, -0.0},
        {TN_S_min, -0.0, 0.0, -0.0},
        {TN_S_max, NAN, 1, NAN},
        {TN_S_min, 1, NAN, NAN},
        {TN_S_maxnum, NAN, 1, 1},
        {TN_S_minnum, 1, NAN, 1},
        {TN_S_maxnum, NAN, NAN, NAN},
        {TN_S_sign, NAN, 0, NAN},
        {TN_S_sign, -0.0, 0, -0.0},
        {TN_S_sign, -INFINITY, 0, -1},
        {TN_S_abs, -0.0, 0, 0.0},
        {TN_S_neg, 0.0, 0, -0.0},
        {TN_S_round_even, 2.5, 0, 2},
        {TN_S_round_even, -0.5, 0, -0.0},
        {TN_S_round_away, 2.5, 0, 3},
        {TN_S_round_away, -0.5, 0, -1},
        {TN_S_ceil, -0.5, 0, -0.0},
        {TN_S_floor, -0.5, 0, -1},
        {TN_S_trunc, -1.5, 0, -1},
        {TN_S_sqrt, -1, 0, NAN},
        {TN_S_sqrt, -0.0, 0, -0.0},
        {TN_S_rsqrt, 0.0, 0, INFINITY},
        {TN_S_rsqrt, INFINITY, 0, 0},
        {TN_S_div, 1, -0.0, -INFINITY},
        {TN_S_div, 0, 0, NAN},
        {TN_S_rem, -7, 2, -1},
        {TN_S_rem, 7, INFINITY, 7},
        {TN_S_rem, 7, 0, NAN},
        {TN_S_rem, -0.0, 2, -0.0},
        {TN_S_pow, NAN, 0, 1},
        {TN_S_pow, 1, NAN, 1},
        {TN_S_pow, -2, 3, -8},
        {TN_S_pow, -2, 0.5, NAN},
        {TN_S_exp, -INFINITY, 0, 0},
        {TN_S_exp, 100, 0, INFINITY},
        {TN_S_log, 0, 0, -INFINITY},
        {TN_S_log, -1, 0, NAN},
        {TN_S_log1p, -0.0, 0, -0.0},
        {TN_S_expm1, -0.0, 0, -0.0},
        {TN_S_logistic, -INFINITY, 0, 0},
        {TN_S_logistic, INFINITY, 0, 1},
        {TN_S_logistic, 0, 0, 0.5},
        {TN_S_tanh, INFINITY, 0, 1},
        {TN_S_erf, -INFINITY, 0, -1},
        {TN_S_sin, INFINITY, 0, NAN},
        {TN_S_atan2, -0.0, -1, -0x1.921fb6p1},
        {TN_S_mul, 1e30, 1e30, INFINITY},
        {TN_S_mul, 1e-30, 1e-30, 0},
        {TN_S_add, 0x1p-149, 0x1p-149, 0x1p-148},
    };
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        double result = on_floats(cases[i].fn, TN_F32, cases[i].a, cases[i].b, 0);
        if (!tn_number_same(TN_F32, (tn_number){.f = result}, (tn_number){.f = cases[i].expected}))
            fail_msg("%s(%a, %a): %a, expected %a", tn_scalar_name(cases[i].fn), cases[i].a, cases[i].b, result,
                     cases[i].expected);
    }
    assert_true(isnan(on_floats(TN_S_clamp, TN_F32, 0, NAN, 1)));
    assert_true(on_floats(TN_S_clamp, TN_F32, 0, -3, 1) == 0);
    assert_true(on_floats(TN_S_logistic, TN_F64, -740, 0, 0) > 0); /* a denormal, not 0 */
}

static void comparisons_with_nan(void **state)
{
    (void)state;
    const tn_scalar all[] = {TN_S_eq, TN_S_ne, TN_S_lt, TN_S_le, TN_S_gt, TN_S_ge};
    for (size_t i = 0; i < TN_COUNT(all); i++)
        assert_int_equal(predicate(all[i], NAN, 1), all[i] == TN_S_ne);
    assert_true(predicate(TN_S_eq, 0.0, -0.0));
    assert_false(predicate(TN_S_lt, -0.0, 0.0));
    assert_false(predicate(TN_S_is_finite, INFINITY, 0));
    assert_false(predicate(TN_S_is_finite, NAN, 0));
    assert_true(predicate(TN_S_is_finite, 3e38, 0));
}

/* Hardware float arithmetic is the witness: one rounding, though the computation is in double. */
static void floats_round_once(void **state)
{
    (void)state;
    uint64_t bits = 1;
    for (int i = 0; i < 300000; i++) {
        float x[3];
        for (int k = 0; k < 3; k++) {
            bits = tn_hash_u64(bits + 0x9e3779b97f4a7c15u);
            /* Close exponents and few set bits make ties, which is where two roundings show. */
            uint32_t code = (uint32_t)(bits >> 32) & (i & 1 ? 0x83ff00ff : 0x8ffff001);
            code += 0x38000000;
            memcpy(&x[k], &code, sizeof code);
        }
        assert_true(on_floats(TN_S_add, TN_F32, x[0], x[1], 0) == (double)(x[0] + x[1]));
        assert_true(on_floats(TN_S_mul, TN_F32, x[0], x[1], 0) == (double)(x[0] * x[1]));
        assert_true(on_floats(TN_S_div, TN_F32, x[0], x[1], 0) == (double)(x[0] / x[1]));
        assert_true(on_floats(TN_S_fma, TN_F32, x[0], x[1], x[2]) == (double)fmaf(x[0], x[1], x[2]));
    }
    /* The product lies on a tie of f32; the addend, far below double's last bit, breaks it. */
    assert_true(on_floats(TN_S_fma, TN_F32, 0x1.001p0, 0x1.001p0, 0x1p-140) == 0x1.002002p0);
    assert_true(on_floats(TN_S_fma, TN_F32, 0x1.001p0, 0x1.001p0, -0x1p-140) == 0x1.002p0);
    assert_true(on_floats(TN_S_fma, TN_F32, INFINITY, 0, 1) != on_floats(TN_S_fma, TN_F32, INFINITY, 0, 1));
    assert_true(on_floats(TN_S_add, TN_F16, 2048, 1, 0) == 2048);
    assert_true(on_floats(TN_S_add, TN_BF16, 256, 3, 0) == 260);
    assert_true(isnan(on_floats(TN_S_add, TN_F8E4M3, 448, 448, 0)));
    assert_true(isinf(on_floats(TN_S_mul, TN_F16, 65504, 2, 0)));
}

static void assert_complex(tn_scalar fn, tn_number a, tn_number b, double re, double im)
{
    tn_number z = eval(fn, TN_C128, a, b, (tn_number){0});
    if (!(fabs(z.f - re) < 1e-14 && fabs(z.im - im) < 1e-14))
        fail_msg("%s: (%g, %g), expected (%g, %g)", tn_scalar_name(fn), z.f, z.im, re, im);
}

static void complex_values(void **state)
{
    (void)state;
    const tn_number zero = {0}, i = {.im = 1}, z = {.f = 3, .im = -4}, tiny = {.f = 1e-20, .im = 2e-20};
    assert_complex(TN_S_mul, i, i, -1, 0);
    assert_complex(TN_S_div, z, i, -4, -3);
    assert_complex(TN_S_abs, z, zero, 5, 0);
    assert_complex(TN_S_sign, z, zero, 0.6, -0.8);
    assert_complex(TN_S_sign, zero, zero, 0, 0);
    assert_complex(TN_S_sqrt, z, zero, 2, -1);
    assert_complex(TN_S_pow, zero, zero, 1, 0);
    assert_complex(TN_S_pow, zero, z, 0, 0);
    assert_complex(TN_S_pow, i, (tn_number){.f = 2}, -1, 0);
    assert_complex(TN_S_imag, z, zero, -4, 0);
    assert_complex(TN_S_log, (tn_number){.f = -1}, zero, 0, acos(-1));
    assert_int_equal(tn_scalar_result(TN_S_abs, TN_C64), TN_F32);
    tn_number expm1_tiny = eval(TN_S_expm1, TN_C128, tiny, zero, zero);
    assert_true(fabs(expm1_tiny.f / 1e-20 - 1) < 1e-15 && fabs(expm1_tiny.im / 2e-20 - 1) < 1e-15);
    tn_number log1p_tiny = eval(TN_S_log1p, TN_C128, tiny, zero, zero);
    assert_true(fabs(log1p_tiny.f / 1e-20 - 1) < 1e-15 && fabs(log1p_tiny.im / 2e-20 - 1) < 1e-15);
    assert_true(isnan(eval(TN_S_sign, TN_C128, (tn_number){.f = NAN}, zero, zero).im));
    assert_true(eval(TN_S_eq, TN_C64, z, z, zero).u);
    assert_true(eval(TN_S_ne, TN_C64, z, i, zero).u);
}

/* Each function evaluates on each class that its row accepts: no row without a meaning. */
static void every_row_has_a_meaning(void **state)
{
    (void)state;
    for (int fn = TN_SCALAR_NONE + 1; fn < TN_SCALAR_COUNT; fn++) {
        assert_int_equal(tn_scalar_from_name(tn_scalar_name((tn_scalar)fn)), fn);
        for (int d = TN_NO_DTYPE + 1; d < TN_DTYPE_COUNT; d++) {
            if (!tn_scalar_accepts((tn_scalar)fn, (tn_dtype)d))
                continue;
            tn_dtype result = tn_scalar_result((tn_scalar)fn, (tn_dtype)d);
            tn_number one = tn_number_from_int((tn_dtype)d, 1);
            tn_number flag = fn == TN_S_select ? (tn_number){.u = 1} : one;
            tn_number value = eval((tn_scalar)fn, (tn_dtype)d, flag, one, one);
            char memory[16];
            tn_number_store(result, memory, 0, value);
            assert_true(tn_number_same(result, tn_number_load(result, memory, 0), value));
        }
    }
    assert_int_equal(tn_scalar_from_name("nothing"), TN_SCALAR_NONE);
    assert_int_equal(tn_scalar_arity(TN_S_fma), 3);
    assert_true(tn_scalar_traits(TN_S_add) & TN_SCALAR_COMMUTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integer_edges),   cmocka_unit_test(float_edges),    cmocka_unit_test(comparisons_with_nan),
        cmocka_unit_test(floats_round_once), cmocka_unit_test(complex_values), cmocka_unit_test(every_row_has_a_meaning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
