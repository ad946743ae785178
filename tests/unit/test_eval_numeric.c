/* dot_general, convolution, batch_norm_inference, fft, cholesky, triangular_solve, rng_bit_generator. */
#include "eval_test.h"

static void dots(void **state)
{
    (void)state;
    check("  %a = constant dense<[[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]]> : f32[2, 2, 2]\n"
          "  %b = constant dense<[[[1.0, 0.0], [0.0, 1.0]], [[2.0, 1.0], [1.0, 2.0]]]> : f32[2, 2, 2]\n"
          "  %0 = dot_general %a, %b, lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], rhs_contract = [1] : "
          "f32[2, 2, 2]\n"
          "  %1 = dot_general %a, %b, lhs_batch = [], rhs_batch = [], lhs_contract = [0, 1, 2], rhs_contract = [0, 1, "
          "2] : f32[]\n"
          "  %e0 = constant dense<[[[1.0, 2.0], [3.0, 4.0]], [[16.0, 17.0], [22.0, 23.0]]]> : f32[2, 2, 2]\n"
          "  %e1 = constant dense<44.0> : f32[]\n"
          "  %n = constant dense<[[], []]> : f32[2, 0]\n"
          "  %2 = dot_general %n, %n, lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [1] : f32[2, "
          "2]\n"
          "  %e2 = constant dense<0.0> : f32[2, 2]\n"
          "  return %0, %e0, %1, %e1, %2, %e2");
    /* double inside: 1e8 + 1 - 1e8; integers wrap; a wider result type */
    check("  %a = constant dense<[1e8, 1.0, -1e8]> : f32[3]\n"
          "  %o = constant dense<1.0> : f32[3]\n"
          "  %0 = dot_general %a, %o, lhs_batch = [], rhs_batch = [], lhs_contract = [0], rhs_contract = [0] : f32[]\n"
          "  %e0 = constant dense<1.0> : f32[]\n"
          "  %b = constant dense<[100, 100]> : i8[2]\n"
          "  %1 = dot_general %b, %b, lhs_batch = [], rhs_batch = [], lhs_contract = [0], rhs_contract = [0] : i8[]\n"
          "  %2 = dot_general %b, %b, lhs_batch = [], rhs_batch = [], lhs_contract = [0], rhs_contract = [0], dtype = "
          "i32 : i32[]\n"
          "  %e1 = constant dense<32> : i8[]\n"
          "  %e2 = constant dense<20000> : i32[]\n"
          "  %c = constant dense<[(1.0, 2.0), (0.0, 1.0)]> : c64[2]\n"
          "  %3 = dot_general %c, %c, lhs_batch = [], rhs_batch = [], lhs_contract = [0], rhs_contract = [0] : c64[]\n"
          "  %e3 = constant dense<(-4.0, 4.0)> : c64[]\n"
          "  return %0, %e0, %1, %e1, %2, %e2, %3, %e3");
}

#define PLAIN                                                                                                          \
    ", window_strides = [1], padding_low = [0], padding_high = [0], base_dilation = [1], window_dilation = [1], "      \
    "window_reversal = [0]"
#define ONE_GROUP ", feature_group_count = 1, batch_group_count = 1"

static void convolutions(void **state)
{
    (void)state;
    check("  %a = constant dense<[[[1.0, 2.0, 3.0, 4.0]]]> : f32[1, 1, 4]\n"
          "  %k = constant dense<[[[1.0, 10.0]]]> : f32[1, 1, 2]\n"
          "  %0 = convolution %a, %k, lhs_layout = \"bf0\", rhs_layout = \"oi0\", out_layout = \"bf0\"" PLAIN ONE_GROUP
          " : f32[1, 1, 3]\n"
          "  %e0 = constant dense<[[[21.0, 32.0, 43.0]]]> : f32[1, 1, 3]\n"
          "  return %0, %e0");
    /* base 1 . 2 . 3 . 4 padded by 1 and 2; taps 3 apart, reversed: y[o] = 10 x[2o - 1] + x[2o + 2] */
    check("  %a = constant dense<[[[1.0, 2.0, 3.0, 4.0]]]> : f32[1, 1, 4]\n"
          "  %k = constant dense<[[[1.0, 10.0]]]> : f32[1, 1, 2]\n"
          "  %1 = convolution %a, %k, lhs_layout = \"bf0\", rhs_layout = \"oi0\", out_layout = \"b0f\", window_strides "
          "= [2], padding_low = [1], padding_high = [2], base_dilation = [2], window_dilation = [3], window_reversal = "
          "[1]" ONE_GROUP " : f32[1, 4, 1]\n"
          "  %e1 = constant dense<[[[2.0], [3.0], [4.0], [0.0]]]> : f32[1, 4, 1]\n"
          "  return %1, %e1");
}

static void grouped_convolutions(void **state)
{
    (void)state;
    /* two groups of one feature each, two outputs a group; then two groups of the batch */
    check("  %a = constant dense<[[[1], [10]]]> : i32[1, 2, 1]\n"
          "  %k = constant dense<[[[1, 2, 3, 4]]]> : i32[1, 1, 4]\n"
          "  %0 = convolution %a, %k, lhs_layout = \"bf0\", rhs_layout = \"0io\", out_layout = \"bf0\"" PLAIN
          ", feature_group_count = 2, batch_group_count = 1 : i32[1, 4, 1]\n"
          "  %e0 = constant dense<[[[1], [2], [30], [40]]]> : i32[1, 4, 1]\n"
          "  %b = constant dense<[[[1]], [[10]]]> : i32[2, 1, 1]\n"
          "  %1 = convolution %b, %k, lhs_layout = \"bf0\", rhs_layout = \"0io\", out_layout = \"bf0\"" PLAIN
          ", feature_group_count = 1, batch_group_count = 2 : i32[1, 4, 1]\n"
          "  %2 = convolution %b, %k, lhs_layout = \"bf0\", rhs_layout = \"0io\", out_layout = \"0bf\"" PLAIN ONE_GROUP
          " : i32[1, 2, 4]\n"
          "  %e2 = constant dense<[[[1, 2, 3, 4], [10, 20, 30, 40]]]> : i32[1, 2, 4]\n"
          "  return %0, %e0, %1, %e0, %2, %e2");
}

static void batch_norm(void **state)
{
    (void)state;
    check("  %x = constant dense<[[1.0, 2.0], [3.0, 4.0]]> : f32[2, 2]\n"
          "  %s = constant dense<[1.0, 2.0]> : f32[2]\n"
          "  %o = constant dense<[0.0, 1.0]> : f32[2]\n"
          "  %m = constant dense<[1.0, 2.0]> : f32[2]\n"
          "  %v = constant dense<[3.0, 0.0]> : f32[2]\n"
          "  %0 = batch_norm_inference %x, %s, %o, %m, %v, epsilon = 1.0, feature_index = 1 : f32[2, 2]\n"
          "  %e0 = constant dense<[[0.0, 1.0], [1.0, 5.0]]> : f32[2, 2]\n"
          "  return %0, %e0");
}

static void ffts(void **state)
{
    (void)state;
    check("  %x = constant dense<[1.0, 2.0, 3.0, 4.0]> : f32[4]\n"
          "  %0 = fft %x, fft_type = \"RFFT\", fft_length = [4] : c64[3]\n"
          "  %e0 = constant dense<[(10.0, 0.0), (-2.0, 2.0), (-2.0, 0.0)]> : c64[3]\n"
          "  %1 = fft %0, fft_type = \"IRFFT\", fft_length = [4] : f32[4]\n"
          "  %s = subtract %0, %e0 : c64[3]\n"
          "  %t = abs %s : f32[3]\n"
          "  %i = constant dense<1e-6> : f32[3]\n"
          "  %c = compare %t, %i, direction = \"LT\" : bool[3]\n"
          "  %y = constant dense<true> : bool[3]\n"
          "  return %c, %y, %1, %x");
    /* a length with factors 2 and 3, there and back, in two dimensions */
    check("  %x = iota shape = [2, 6], dtype = f64, iota_dimension = 1 : f64[2, 6]\n"
          "  %z = constant dense<0.0> : f64[2, 6]\n"
          "  %c = complex %x, %z : c128[2, 6]\n"
          "  %0 = fft %c, fft_type = \"FFT\", fft_length = [2, 6] : c128[2, 6]\n"
          "  %1 = fft %0, fft_type = \"IFFT\", fft_length = [2, 6] : c128[2, 6]\n"
          "  %2 = real %1 : f64[2, 6]\n"
          "  %4 = subtract %2, %x : f64[2, 6]\n"
          "  %5 = abs %4 : f64[2, 6]\n"
          "  %i = constant dense<1e-13> : f64[2, 6]\n"
          "  %6 = compare %5, %i, direction = \"LT\" : bool[2, 6]\n"
          "  %y = constant dense<true> : bool[2, 6]\n"
          "  return %6, %y");
}

static void choleskys(void **state)
{
    (void)state;
    check("  %a = constant dense<[[4.0, 99.0], [2.0, 10.0]]> : f32[2, 2]\n"
          "  %0 = cholesky %a, lower = true : f32[2, 2]\n"
          "  %e0 = constant dense<[[2.0, 0.0], [1.0, 3.0]]> : f32[2, 2]\n"
          "  %b = constant dense<[[(4.0, 0.0), (0.0, 2.0)], [(99.0, 0.0), (10.0, 0.0)]]> : c64[2, 2]\n"
          "  %1 = cholesky %b, lower = false : c64[2, 2]\n"
          "  %e1 = constant dense<[[(2.0, 0.0), (0.0, 1.0)], [(0.0, 0.0), (3.0, 0.0)]]> : c64[2, 2]\n"
          "  %c = constant dense<-1.0> : f32[1, 1]\n"
          "  %2 = cholesky %c, lower = true : f32[1, 1]\n"
          "  %e2 = constant dense<nan> : f32[1, 1]\n"
          "  %3 = real %1 : f32[2, 2]\n"
          "  %4 = real %e1 : f32[2, 2]\n"
          "  %5 = compare %1, %e1, direction = \"EQ\" : bool[2, 2]\n"
          "  %t = constant dense<true> : bool[2, 2]\n"
          "  return %0, %e0, %3, %4, %5, %t, %2, %e2");
}

static void solves(void **state)
{
    (void)state;
    /* a = [2 0; 1 4] (99 stands where it is not read): a x = b, a^T x = b, x a = b, unit diagonal */
    check("  %a = constant dense<[[2.0, 99.0], [1.0, 4.0]]> : f32[2, 2]\n"
          "  %b = constant dense<[[2.0], [9.0]]> : f32[2, 1]\n"
          "  %0 = triangular_solve %a, %b, left_side = true, lower = true, unit_diagonal = false, transpose_a = "
          "\"NO_TRANSPOSE\" : f32[2, 1]\n"
          "  %1 = triangular_solve %a, %b, left_side = true, lower = true, unit_diagonal = false, transpose_a = "
          "\"TRANSPOSE\" : f32[2, 1]\n"
          "  %r = constant dense<[[4.0, 8.0]]> : f32[1, 2]\n"
          "  %2 = triangular_solve %a, %r, left_side = false, lower = true, unit_diagonal = false, transpose_a = "
          "\"NO_TRANSPOSE\" : f32[1, 2]\n"
          "  %3 = triangular_solve %a, %b, left_side = true, lower = true, unit_diagonal = true, transpose_a = "
          "\"NO_TRANSPOSE\" : f32[2, 1]\n"
          "  %e0 = constant dense<[[1.0], [2.0]]> : f32[2, 1]\n"
          "  %e1 = constant dense<[[-0.125], [2.25]]> : f32[2, 1]\n"
          "  %e2 = constant dense<[[1.0, 2.0]]> : f32[1, 2]\n"
          "  %e3 = constant dense<[[2.0], [7.0]]> : f32[2, 1]\n"
          "  return %0, %e0, %1, %e1, %2, %e2, %3, %e3");
    check("  %a = constant dense<[[(0.0, 2.0)]]> : c64[1, 1]\n"
          "  %b = constant dense<[[(4.0, 0.0)]]> : c64[1, 1]\n"
          "  %0 = triangular_solve %a, %b, left_side = true, lower = false, unit_diagonal = false, transpose_a = "
          "\"ADJOINT\" : c64[1, 1]\n"
          "  %1 = imag %0 : f32[1, 1]\n"
          "  %e1 = constant dense<2.0> : f32[1, 1]\n"
          "  return %1, %e1");
}

/* The streams that XLA's CPU back end gives for the same state. */
static void random_bits(void **state)
{
    (void)state;
    check(
        "  %s = constant dense<[1311768467463790320, 18446744073709551614]> : u64[2]\n"
        "  %0, %1 = rng_bit_generator %s, shape = [4, 3], dtype = u32, algorithm = \"THREE_FRY\" : u64[2], u32[4, 3]\n"
        "  %2, %3 = rng_bit_generator %s, shape = [3], dtype = u64, algorithm = \"THREE_FRY\" : u64[2], u64[3]\n"
        "  %e0 = constant dense<[1311768467463790320, 4]> : u64[2]\n"
        "  %e1 = constant dense<[[1010520186, 2754706343, 1593802813], [1888741164, 569486026, 1289978105], "
        "[961273596, 1379882886, 1430061416], [1692389550, 1076419981, 3815015690]]> : u32[4, 3]\n"
        "  %e2 = constant dense<[1311768467463790320, 1]> : u64[2]\n"
        "  %e3 = constant dense<[8112081530999492730, 2445923859953712039, 5540413775124856893]> : u64[3]\n"
        "  return %0, %e0, %1, %e1, %2, %e2, %3, %e3");
    check("  %s = constant dense<[1311768467463790320, 18446744073709551614]> : u64[2]\n"
          "  %0, %1 = rng_bit_generator %s, shape = [3, 5], dtype = u32, algorithm = \"PHILOX\" : u64[2], u32[3, 5]\n"
          "  %2, %3 = rng_bit_generator %s, shape = [3], dtype = u64, algorithm = \"DEFAULT\" : u64[2], u64[3]\n"
          "  %e0 = constant dense<[1311768467463790320, 2]> : u64[2]\n"
          "  %e1 = constant dense<[[3151517439, 3080049825, 2645875639, 2972309415, 1480449822], [3015399692, "
          "3935955418, 1076038438, 271420659, 538106886], [3801100798, 3007079934, 2583171126, 2853909184, "
          "338341603]]> : u32[3, 5]\n"
          "  %e2 = constant dense<[1311768467463790320, 0]> : u64[2]\n"
          "  %e3 = constant dense<[13228713271577040639, 12765971733663767479, 12951043062988922654]> : u64[3]\n"
          "  return %0, %e0, %1, %e1, %2, %e2, %3, %e3");
    /* odd sizes halve the largest dimension; narrow types take the low bits */
    check(
        "  %t = constant dense<[1311768467463790320, 18446744073709551614]> : u64[2]\n"
        "  %4, %5 = rng_bit_generator %t, shape = [2, 2], dtype = u16, algorithm = \"THREE_FRY\" : u64[2], u16[2, 2]\n"
        "  %e5 = constant dense<[[20602, 31655], [59180, 43722]]> : u16[2, 2]\n"
        "  %6, %7 = rng_bit_generator %t, shape = [2, 2], dtype = u8, algorithm = \"PHILOX\" : u64[2], u8[2, 2]\n"
        "  %e7 = constant dense<[[255, 161], [183, 167]]> : u8[2, 2]\n"
        "  %8, %9 = rng_bit_generator %t, shape = [3, 5], dtype = u32, algorithm = \"THREE_FRY\" : u64[2], u32[3, 5]\n"
        "  %e9 = constant dense<[[1010520186, 1888741164, 2754706343, 569486026, 1593802813], [961273596, 1692389550, "
        "1379882886, 1076419981, 1430061416], [523829269, 4191198393, 2165775106, 1106935068, 2207507590]]> : u32[3, "
        "5]\n"
        "  return %9, %e9, %5, %e5, %7, %e7");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dots),       cmocka_unit_test(convolutions), cmocka_unit_test(grouped_convolutions),
        cmocka_unit_test(batch_norm), cmocka_unit_test(ffts),         cmocka_unit_test(choleskys),
        cmocka_unit_test(solves),     cmocka_unit_test(random_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
