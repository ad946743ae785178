/* base: element types, their numbers in memory, conversions, text. */
#include "unit.h"

#include <math.h>
#include <string.h>

static const struct {
    double value;
    uint32_t codes[4];
} small_floats[] = {
#include "small_floats.inc"
};
static const tn_dtype small_types[] = {TN_F16, TN_BF16, TN_F8E4M3, TN_F8E5M2};

static uint32_t code_of(tn_dtype dtype, double value)
{
    uint32_t code = 0;
    tn_number_store(dtype, &code, 0, (tn_number){.f = value});
    return code;
}

/* Against NumPy's and ml_dtypes' rounding: denormals, ties, overflow, both signs. */
static void small_floats_round_as_their_formats_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < TN_COUNT(small_floats); i++)
        for (size_t t = 0; t < TN_COUNT(small_types); t++) {
            uint32_t sign = 1u << (tn_dtype_bits(small_types[t]) - 1);
            assert_int_equal(code_of(small_types[t], small_floats[i].value), small_floats[i].codes[t]);
            assert_int_equal(code_of(small_types[t], -small_floats[i].value), small_floats[i].codes[t] | sign);
        }
}

/* Every code reads and writes back to itself; codes of one sign are ordered as their values; the middle of two
 * neighbours goes to the even one. */
static void every_small_code_round_trips(void **state)
{
    (void)state;
    for (size_t t = 0; t < TN_COUNT(small_types); t++) {
        tn_dtype dtype = small_types[t];
        uint32_t codes = 1u << tn_dtype_bits(dtype);
        double before = -1;
        for (uint32_t code = 0; code < codes; code++) {
            double value = tn_number_load(dtype, &code, 0).f;
            if (isnan(value)) {
                assert_true(isnan(tn_number_from_double(dtype, value).f));
                continue;
            }
            assert_int_equal(code_of(dtype, value), code);
            if (code > 0 && code < codes / 2) {
                assert_true(value > before);
                if (!isinf(value)) {
                    uint32_t even = code & 1 ? code - 1 : code;
                    assert_int_equal(code_of(dtype, (value + before) / 2), even);
                    assert_int_equal(code_of(dtype, nextafter((value + before) / 2, INFINITY)), code);
                }
            }
            before = value;
        }
    }
}

static void special_codes(void **state)
{
    (void)state;
    assert_int_equal(code_of(TN_F8E4M3, INFINITY), 0x7f); /* no infinity: NaN */
    assert_int_equal(code_of(TN_F8E4M3, -INFINITY), 0xff);
    assert_int_equal(code_of(TN_F8E5M2, INFINITY), 0x7c);
    assert_int_equal(code_of(TN_F16, INFINITY), 0x7c00);
    assert_int_equal(code_of(TN_BF16, -INFINITY), 0xff80);
    assert_int_equal(code_of(TN_F16, 1e300), 0x7c00);
    assert_int_equal(code_of(TN_F16, 5e-324), 0);
    assert_int_equal(code_of(TN_BF16, -5e-324), 0x8000);
    assert_int_equal(code_of(TN_F16, NAN) & 0x7fff, 0x7e00);
    assert_true(tn_number_same(TN_F32, (tn_number){.f = NAN}, (tn_number){.f = -NAN}));
    assert_false(tn_number_same(TN_F32, (tn_number){.f = 0.0}, (tn_number){.f = -0.0}));
}

static void table_lookups_agree(void **state)
{
    (void)state;
    for (int d = TN_NO_DTYPE + 1; d < TN_DTYPE_COUNT; d++) {
        const char *text = tn_dtype_text((tn_dtype)d);
        assert_int_equal(tn_dtype_from_text(text, strlen(text)), d);
        assert_int_equal(tn_dtype_from_dlpack(tn_dtype_to_dlpack((tn_dtype)d)), d);
    }
    assert_int_equal(tn_dtype_from_text("f3", 2), TN_NO_DTYPE);
    assert_int_equal(tn_dtype_from_text("f32x", 3), TN_F32);
    assert_int_equal(tn_dtype_from_dlpack((DLDataType){2, 32, 4}), TN_NO_DTYPE);
    assert_int_equal(tn_dtype_real(TN_C64), TN_F32);
    assert_int_equal(tn_dtype_real(TN_I8), TN_I8);
}

static void integers_store_and_load_wrapped(void **state)
{
    (void)state;
    unsigned char nibbles[2] = {0, 0};
    for (int i = 0; i < 4; i++)
        tn_number_store(TN_I4, nibbles, i, (tn_number){.i = i - 2});
    assert_int_equal(nibbles[0], 0xfe);
    assert_int_equal(nibbles[1], 0x10);
    for (int i = 0; i < 4; i++)
        assert_int_equal(tn_number_load(TN_I4, nibbles, i).i, i - 2);
    assert_int_equal(tn_number_load(TN_U4, nibbles, 0).u, 14);
    int16_t shorts[2] = {0};
    tn_number_store(TN_I16, shorts, 1, (tn_number){.i = 0x18000});
    assert_int_equal(shorts[1], INT16_MIN);
    assert_int_equal(tn_number_load(TN_I16, shorts, 1).i, INT16_MIN);
    uint8_t flag = 7;
    assert_int_equal(tn_number_load(TN_BOOL, &flag, 0).u, 1);
    tn_number_store(TN_BOOL, &flag, 0, (tn_number){.u = 256});
    assert_int_equal(flag, 1);
    float pair[4] = {0};
    tn_number_store(TN_C64, pair, 1, (tn_number){.f = 0.1, .im = -2});
    assert_true(pair[2] == 0.1f && pair[3] == -2);
    tn_number c = tn_number_load(TN_C64, pair, 1);
    assert_true(c.f == 0.1f && c.im == -2);
}

static int64_t to_int(double value, tn_dtype to)
{
    return tn_number_convert((tn_number){.f = value}, TN_F64, to).i;
}

static void floats_convert_to_integers_saturating(void **state)
{
    (void)state;
    assert_int_equal(to_int(-1.9, TN_I32), -1);
    assert_int_equal(to_int(NAN, TN_I32), 0);
    assert_int_equal(to_int(1e10, TN_I32), INT32_MAX);
    assert_int_equal(to_int(-1e10, TN_I32), INT32_MIN);
    assert_int_equal(to_int(-128.9, TN_I8), -128);
    assert_int_equal(to_int(127.9, TN_I8), 127);
    assert_int_equal(to_int(-0.5, TN_U8), 0);
    assert_int_equal(to_int(255.5, TN_U8), 255);
    assert_int_equal(to_int(-INFINITY, TN_U64), 0);
    assert_true((uint64_t)to_int(INFINITY, TN_U64) == UINT64_MAX);
    assert_true((uint64_t)to_int(0x1p63, TN_U64) == UINT64_C(1) << 63);
    assert_true(to_int(0x1p63, TN_I64) == INT64_MAX);
    assert_true(to_int(-0x1p63, TN_I64) == INT64_MIN);
    assert_int_equal(to_int(9, TN_I4), 7);
    assert_int_equal(to_int(0.25, TN_BOOL), 1);
    assert_int_equal(to_int(-0.0, TN_BOOL), 0);
    assert_int_equal(to_int(NAN, TN_BOOL), 1);
}

/* Integers of more than 53 bits reach narrow floats in one rounding, not by way of a double. */
static void integers_convert_to_floats_in_one_rounding(void **state)
{
    (void)state;
    int64_t above_tie = (INT64_C(1) << 62) + (INT64_C(1) << 38) + 1;
    assert_true(tn_number_from_int(TN_F32, above_tie).f == (double)(float)above_tie);
    assert_true(tn_number_from_int(TN_F32, above_tie).f == 0x1.000002p62);
    assert_true(tn_number_from_int(TN_F32, above_tie - 1).f == 0x1p62);
    assert_true(tn_number_from_int(TN_BF16, (INT64_C(1) << 62) + (INT64_C(1) << 54) + 1).f == 0x1.02p62);
    assert_true(tn_number_from_int(TN_F64, INT64_MIN).f == -0x1p63);
    assert_true(tn_number_from_int(TN_F32, INT64_MIN).f == -0x1p63);
    assert_true(tn_number_convert((tn_number){.u = UINT64_MAX}, TN_U64, TN_F64).f == 0x1p64);
    assert_true(tn_number_convert((tn_number){.u = UINT64_MAX}, TN_U64, TN_F32).f == 0x1p64);
    assert_true(isinf(tn_number_from_int(TN_F16, 65520).f));
    assert_true(tn_number_from_int(TN_F16, 65519).f == 65504);
    assert_int_equal(tn_number_from_int(TN_I8, 200).i, -56);
    assert_int_equal(tn_number_from_int(TN_BOOL, 256).u, 1);
    assert_int_equal(tn_number_to_int(TN_F32, (tn_number){.f = 3.7}), 3);
    assert_true(tn_number_to_double(TN_U64, (tn_number){.u = 3}) == 3);
    assert_true(tn_number_convert((tn_number){.f = 2, .im = 5}, TN_C128, TN_F32).f == 2);
    assert_true(tn_number_convert((tn_number){.f = 0.1, .im = 0.1}, TN_C128, TN_C64).im == 0.1f);
    assert_true(tn_number_convert((tn_number){.i = -2}, TN_I32, TN_C64).im == 0);
}

static void limits_are_the_identities_of_max_and_min(void **state)
{
    (void)state;
    assert_int_equal(tn_number_lowest(TN_I4).i, -8);
    assert_int_equal(tn_number_highest(TN_I4).i, 7);
    assert_int_equal(tn_number_highest(TN_U4).i, 15);
    assert_true(tn_number_lowest(TN_I64).i == INT64_MIN && tn_number_highest(TN_I64).i == INT64_MAX);
    assert_true(tn_number_lowest(TN_U64).u == 0 && tn_number_highest(TN_U64).u == UINT64_MAX);
    assert_int_equal(tn_number_highest(TN_BOOL).u, 1);
    assert_true(tn_number_lowest(TN_F16).f == -INFINITY && tn_number_highest(TN_F64).f == INFINITY);
    assert_true(tn_number_lowest(TN_F8E4M3).f == -448);
}

static void numbers_round_trip_as_text(void **state)
{
    (void)state;
    static const struct {
        tn_dtype dtype;
        const char *text;
    } cases[] = {{TN_BOOL, "true"},  {TN_BOOL, "false"}, {TN_I8, "-128"}, {TN_U8, "255"},
                 {TN_I64, "-9223372036854775808"},       {TN_U64, "18446744073709551615"},
                 {TN_F32, "0.10000000149011612"},        {TN_F64, "-0"},  {TN_F64, "-1.5e-310"},
                 {TN_F16, "nan"},    {TN_F32, "-inf"},   {TN_C64, "(1.5, -inf)"}, {TN_C128, "(0, nan)"}};
    tn_arena arena = {0};
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        tn_number number;
        tn_text text = {.arena = &arena};
        assert_int_equal(tn_number_parse(cases[i].dtype, cases[i].text, &number), strlen(cases[i].text));
        tn_text_number(&text, cases[i].dtype, number);
        assert_string_equal(text.at, cases[i].text);
    }
    tn_arena_free(&arena);
}

static void malformed_numbers_are_refused(void **state)
{
    (void)state;
    static const struct {
        tn_dtype dtype;
        const char *text;
    } cases[] = {{TN_BOOL, "1"},   {TN_I8, "128"},   {TN_I8, "-129"}, {TN_U8, "-1"},  {TN_U8, "256"}, {TN_I4, "8"},
                 {TN_I64, "9223372036854775808"},    {TN_U64, "18446744073709551616"}, {TN_I32, ""},   {TN_I32, " 1"},
                 {TN_I32, "-"},    {TN_I32, "+1"},   {TN_F32, " 1"},  {TN_F32, "x"},  {TN_F32, "0x1p3"}, {TN_F32, "-"},
                 {TN_F32, "."},    {TN_C64, "1"},    {TN_C64, "(1)"}, {TN_C64, "(1, 2"}, {TN_C64, "(, 2)"}};
    tn_number number;
    for (size_t i = 0; i < TN_COUNT(cases); i++)
        assert_int_equal(tn_number_parse(cases[i].dtype, cases[i].text, &number), 0);
    assert_int_equal(tn_number_parse(TN_F32, "1.5e3, 7", &number), 5);
    assert_true(number.f == 1500);
    assert_int_equal(tn_number_parse(TN_F32, "0.1", &number), 3);
    assert_true(number.f == 0.1f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_floats_round_as_their_formats_say),
        cmocka_unit_test(every_small_code_round_trips),
        cmocka_unit_test(special_codes),
        cmocka_unit_test(table_lookups_agree),
        cmocka_unit_test(integers_store_and_load_wrapped),
        cmocka_unit_test(floats_convert_to_integers_saturating),
        cmocka_unit_test(integers_convert_to_floats_in_one_rounding),
        cmocka_unit_test(limits_are_the_identities_of_max_and_min),
        cmocka_unit_test(numbers_round_trip_as_text),
        cmocka_unit_test(malformed_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
