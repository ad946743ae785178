/* Elementwise operations of the reference interpreter: special values, wrapping, the kernels with attributes. */
#include "eval_test.h"

static void arithmetic(void **state)
{
    (void)state;
    check("  %a = constant dense<[100, -128, 7]> : i8[3]\n"
          "  %b = constant dense<[100, -1, 0]> : i8[3]\n"
          "  %0 = add %a, %b : i8[3]\n"
          "  %1 = divide %a, %b : i8[3]\n"
          "  %2 = remainder %a, %b : i8[3]\n"
          "  %e0 = constant dense<[-56, 127, 7]> : i8[3]\n"
          "  %e1 = constant dense<[1, -128, -1]> : i8[3]\n"
          "  %e2 = constant dense<[0, 0, 7]> : i8[3]\n"
          "  return %0, %e0, %1, %e1, %2, %e2");
    check("  %a = constant dense<[nan, -0.0, 1.0, inf]> : f32[4]\n"
          "  %b = constant dense<[1.0, 0.0, 3.0, -inf]> : f32[4]\n"
          "  %0 = maximum %a, %b : f32[4]\n"
          "  %1 = minimum %a, %b : f32[4]\n"
          "  %2 = add %a, %b : f32[4]\n"
          "  %3 = divide %a, %b : f32[4]\n"
          "  %e0 = constant dense<[nan, 0.0, 3.0, inf]> : f32[4]\n"
          "  %e1 = constant dense<[nan, -0.0, 1.0, -inf]> : f32[4]\n"
          "  %e2 = constant dense<[nan, 0.0, 4.0, nan]> : f32[4]\n"
          "  %e3 = constant dense<[nan, nan, 0.33333334, nan]> : f32[4]\n"
          "  return %0, %e0, %1, %e1, %2, %e2, %3, %e3");
}

static void shapes(void **state)
{
    (void)state;
    /* no elements; rank 0; a splat beside a full tensor */
    check("  %a = constant dense<[[], []]> : f32[2, 0]\n"
          "  %0 = add %a, %a : f32[2, 0]\n"
          "  %b = constant dense<2.0> : f32[]\n"
          "  %1 = multiply %b, %b : f32[]\n"
          "  %e1 = constant dense<4.0> : f32[]\n"
          "  %c = constant dense<1.0> : f32[3]\n"
          "  %d = constant dense<[1.0, 2.0, 3.0]> : f32[3]\n"
          "  %2 = subtract %d, %c : f32[3]\n"
          "  %3 = power %d, %d : f32[3]\n"
          "  %e2 = constant dense<[0.0, 1.0, 2.0]> : f32[3]\n"
          "  %e3 = constant dense<[1.0, 4.0, 27.0]> : f32[3]\n"
          "  return %0, %a, %1, %e1, %2, %e2, %3, %e3");
    check("  %a = constant dense<[7, -8, 3]> : i4[3]\n"
          "  %0 = add %a, %a : i4[3]\n"
          "  %e = constant dense<[-2, 0, 6]> : i4[3]\n"
          "  return %0, %e");
}

static void comparing(void **state)
{
    (void)state;
    check("  %a = constant dense<[nan, -0.0, 1.0]> : f32[3]\n"
          "  %b = constant dense<[nan, 0.0, nan]> : f32[3]\n"
          "  %0 = compare %a, %b, direction = \"EQ\" : bool[3]\n"
          "  %1 = compare %a, %b, direction = \"NE\" : bool[3]\n"
          "  %2 = compare %a, %b, direction = \"EQ\", total_order = true : bool[3]\n"
          "  %3 = compare %a, %b, direction = \"LT\", total_order = true : bool[3]\n"
          "  %e0 = constant dense<[false, true, false]> : bool[3]\n"
          "  %e1 = constant dense<[true, false, true]> : bool[3]\n"
          "  %e2 = constant dense<[true, false, false]> : bool[3]\n"
          "  %e3 = constant dense<[false, true, true]> : bool[3]\n"
          "  return %0, %e0, %1, %e1, %2, %e2, %3, %e3");
    check("  %a = constant dense<[200, 3]> : u8[2]\n"
          "  %b = constant dense<[100, 4]> : u8[2]\n"
          "  %0 = compare %a, %b, direction = \"GT\" : bool[2]\n"
          "  %1 = select %0, %a, %b : u8[2]\n"
          "  %e = constant dense<[200, 4]> : u8[2]\n"
          "  %p = constant dense<false> : bool[]\n"
          "  %2 = select %p, %a, %b : u8[2]\n"
          "  return %1, %e, %2, %b");
}

static void clamping(void **state)
{
    (void)state;
    check("  %lo = constant dense<0.0> : f32[]\n"
          "  %hi = constant dense<[6.0, 6.0, 6.0, -1.0]> : f32[4]\n"
          "  %x = constant dense<[-1.0, nan, 9.0, 3.0]> : f32[4]\n"
          "  %h = constant dense<6.0> : f32[]\n"
          "  %0 = clamp %lo, %x, %h : f32[4]\n"
          "  %l = constant dense<[0.0, 0.0, 0.0, 0.0]> : f32[4]\n"
          "  %1 = clamp %l, %x, %hi : f32[4]\n"
          "  %e0 = constant dense<[0.0, nan, 6.0, 3.0]> : f32[4]\n"
          "  %e1 = constant dense<[0.0, nan, 6.0, -1.0]> : f32[4]\n"
          "  return %0, %e0, %1, %e1");
}

static void converting(void **state)
{
    (void)state;
    check("  %a = constant dense<[nan, 1e10, -1e10, -1.7]> : f32[4]\n"
          "  %0 = convert %a, dtype = i32 : i32[4]\n"
          "  %1 = convert %a, dtype = bool : bool[4]\n"
          "  %e0 = constant dense<[0, 2147483647, -2147483648, -1]> : i32[4]\n"
          "  %e1 = constant dense<true> : bool[4]\n"
          "  return %0, %e0, %1, %e1");
    /* 448 and 57344 are the largest; saturating turns what is beyond, infinity too, into them */
    check("  %a = constant dense<[1e6, -inf, nan, 3.0]> : f32[4]\n"
          "  %0 = convert %a, dtype = f8e4m3fn, saturate = true : f8e4m3fn[4]\n"
          "  %1 = convert %a, dtype = f8e5m2, saturate = true : f8e5m2[4]\n"
          "  %2 = convert %a, dtype = f8e5m2 : f8e5m2[4]\n"
          "  %e0 = constant dense<[448.0, -448.0, nan, 3.0]> : f8e4m3fn[4]\n"
          "  %e1 = constant dense<[57344.0, -57344.0, nan, 3.0]> : f8e5m2[4]\n"
          "  %e2 = constant dense<[inf, -inf, nan, 3.0]> : f8e5m2[4]\n"
          "  return %0, %e0, %1, %e1, %2, %e2");
}

static void complex_numbers(void **state)
{
    (void)state;
    check("  %a = constant dense<[1.0, nan]> : f32[2]\n"
          "  %b = constant dense<[2.0, -0.0]> : f32[2]\n"
          "  %0 = complex %a, %b : c64[2]\n"
          "  %1 = real %0 : f32[2]\n"
          "  %2 = imag %0 : f32[2]\n"
          "  %c = constant dense<[(1.0, 2.0), (0.0, -1.0)]> : c64[2]\n"
          "  %3 = multiply %c, %c : c64[2]\n"
          "  %e3 = constant dense<[(-3.0, 4.0), (-1.0, -0.0)]> : c64[2]\n"
          "  %d = constant dense<[(3.0, 4.0)]> : c64[1]\n"
          "  %4 = abs %d : f32[1]\n"
          "  %e4 = constant dense<[5.0]> : f32[1]\n"
          "  return %1, %a, %2, %b, %3, %e3, %4, %e4");
}

static void precision(void **state)
{
    (void)state;
    /* to f16's format and back: 65520 is half way to 65536 and becomes infinity, subnormals become zero */
    check(
        "  %a = constant dense<[65519.0, 65520.0, -65520.0, 1e-7, -1e-7, nan, 1.0009765625, 1.00048828125]> : f32[8]\n"
        "  %0 = reduce_precision %a, exponent_bits = 5, mantissa_bits = 10 : f32[8]\n"
        "  %e0 = constant dense<[65504.0, inf, -inf, 0.0, -0.0, nan, 1.0009765625, 1.0]> : f32[8]\n"
        "  %b = constant dense<[3.0, 1.5, 1.25]> : f32[3]\n"
        "  %1 = reduce_precision %b, exponent_bits = 8, mantissa_bits = 0 : f32[3]\n"
        "  %e1 = constant dense<[2.0, 2.0, 1.0]> : f32[3]\n"
        "  %c = constant dense<nan> : f32[1]\n"
        "  %2 = reduce_precision %c, exponent_bits = 5, mantissa_bits = 0 : f32[1]\n"
        "  %e2 = constant dense<inf> : f32[1]\n"
        "  return %0, %e0, %1, %e1, %2, %e2");
}

static void bits(void **state)
{
    (void)state;
    check("  %a = constant dense<[1, 0, -1]> : i32[3]\n"
          "  %0 = count_leading_zeros %a : i32[3]\n"
          "  %1 = popcnt %a : i32[3]\n"
          "  %2 = not %a : i32[3]\n"
          "  %s = constant dense<[31, 32, 4]> : i32[3]\n"
          "  %3 = shift_left %a, %s : i32[3]\n"
          "  %4 = shift_right_logical %a, %s : i32[3]\n"
          "  %5 = shift_right_arithmetic %a, %s : i32[3]\n"
          "  %e0 = constant dense<[31, 32, 0]> : i32[3]\n"
          "  %e1 = constant dense<[1, 0, 32]> : i32[3]\n"
          "  %e2 = constant dense<[-2, -1, 0]> : i32[3]\n"
          "  %e3 = constant dense<[-2147483648, 0, -16]> : i32[3]\n"
          "  %e4 = constant dense<[0, 0, 268435455]> : i32[3]\n"
          "  %e5 = constant dense<[0, 0, -1]> : i32[3]\n"
          "  return %0, %e0, %1, %e1, %2, %e2, %3, %e3, %4, %e4, %5, %e5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arithmetic), cmocka_unit_test(shapes),     cmocka_unit_test(comparing),
        cmocka_unit_test(clamping),   cmocka_unit_test(converting), cmocka_unit_test(complex_numbers),
        cmocka_unit_test(precision),  cmocka_unit_test(bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
