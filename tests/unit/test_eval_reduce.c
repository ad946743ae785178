/* reduce, reduce_window, select_and_scatter, sort: regions, wide accumulation, padding, ties. */
#include "eval_test.h"

#define ADD(type) " {\n  ^(%x: " type "[], %y: " type "[]):\n    %s = add %x, %y : " type "[]\n    return %s\n  }\n"

static void reducing(void **state)
{
    (void)state;
    check(
        "  %a = constant dense<[[1, 2, 3], [4, 5, 6]]> : i32[2, 3]\n"
        "  %z = constant dense<100> : i32[]\n"
        "  %0 = reduce %a, %z, dimensions = [0] : i32[3]" ADD("i32") "  %1 = reduce %a, %z, dimensions = [1, 0] : "
                                                                     "i32[]" ADD("i32") "  %2 = reduce %a, %z, "
                                                                                        "dimensions = [] : i32[2, "
                                                                                        "3]" ADD(
                                                                                            "i32") "  %n = constant "
                                                                                                   "dense<[[], []]> : "
                                                                                                   "i32[2, 0]\n"
                                                                                                   "  %3 = reduce %n, "
                                                                                                   "%z, dimensions = "
                                                                                                   "[1] : i32[2]" ADD(
                                                                                                       "i32") "  %e0 = "
                                                                                                              "constant"
                                                                                                              " dense<["
                                                                                                              "105, "
                                                                                                              "107, "
                                                                                                              "109]> : "
                                                                                                              "i32[3]\n"
                                                                                                              "  %e1 = "
                                                                                                              "constant"
                                                                                                              " dense<"
                                                                                                              "121> : "
                                                                                                              "i32[]\n"
                                                                                                              "  %e2 = "
                                                                                                              "constant"
                                                                                                              " dense<["
                                                                                                              "[101, "
                                                                                                              "102, "
                                                                                                              "103], "
                                                                                                              "[104, "
                                                                                                              "105, "
                                                                                                              "106]]> "
                                                                                                              ": "
                                                                                                              "i32[2, "
                                                                                                              "3]\n"
                                                                                                              "  %e3 = "
                                                                                                              "constant"
                                                                                                              " dense<["
                                                                                                              "100, "
                                                                                                              "100]> : "
                                                                                                              "i32[2]\n"
                                                                                                              "  "
                                                                                                              "return "
                                                                                                              "%0, "
                                                                                                              "%e0, "
                                                                                                              "%1, "
                                                                                                              "%e1, "
                                                                                                              "%2, "
                                                                                                              "%e2, "
                                                                                                              "%3, "
                                                                                                              "%e3");
}

static void wide_sums(void **state)
{
    (void)state;
    /* In f16 a running sum of ones stops at 2048; in f32 1e8 swallows the ones. */
    check("  %a = constant dense<1.0> : f16[3000]\n"
          "  %z = constant dense<0.0> : f16[]\n"
          "  %0 = reduce %a, %z, dimensions = [0] : f16[]" ADD(
              "f16") "  %e0 = constant dense<3000.0> : f16[]\n"
                     "  %b = constant dense<[1e8, 1.0, 1.0, 1.0, 1.0, -1e8]> : f32[6]\n"
                     "  %w = constant dense<0.0> : f32[]\n"
                     "  %1 = reduce %b, %w, dimensions = [0] : f32[]" ADD(
                         "f32") "  %e1 = constant dense<4.0> : f32[]\n"
                                "  %c = constant dense<[(1e8, 1.0), (1.0, 1e8), (-1e8, -1e8)]> : c64[3]\n"
                                "  %v = constant dense<(0.0, 0.0)> : c64[]\n"
                                "  %2 = reduce %c, %v, dimensions = [0] : c64[]" ADD(
                                    "c64") "  %e2 = constant dense<(1.0, 1.0)> : c64[]\n"
                                           "  return %0, %e0, %1, %e1, %2, %e2");
}

static void several_results(void **state)
{
    (void)state;
    /* arg max: the larger value, of equal ones the lower index */
    check("  %a = constant dense<[3.0, 7.0, 7.0, 1.0]> : f32[4]\n"
          "  %i = iota shape = [4], dtype = i64, iota_dimension = 0 : i64[4]\n"
          "  %z = constant dense<-inf> : f32[]\n"
          "  %y = constant dense<-1> : i64[]\n"
          "  %0, %1 = reduce %a, %i, %z, %y, dimensions = [0] : f32[], i64[] {\n"
          "  ^(%p: f32[], %q: i64[], %r: f32[], %s: i64[]):\n"
          "    %g = compare %r, %p, direction = \"GT\" : bool[]\n"
          "    %v = select %g, %r, %p : f32[]\n"
          "    %j = select %g, %s, %q : i64[]\n"
          "    return %v, %j\n"
          "  }\n"
          "  %e0 = constant dense<7.0> : f32[]\n"
          "  %e1 = constant dense<1> : i64[]\n"
          "  return %0, %e0, %1, %e1");
}

static void other_regions(void **state)
{
    (void)state;
    /* a region with a value from outside, and one that is not elementwise */
    check("  %a = constant dense<[1, 2, 3]> : i32[3]\n"
          "  %z = constant dense<0> : i32[]\n"
          "  %k = constant dense<10> : i32[]\n"
          "  %0 = reduce %a, %z, dimensions = [0] : i32[] {\n"
          "  ^(%x: i32[], %y: i32[]):\n"
          "    %m = multiply %x, %k : i32[]\n"
          "    %s = add %m, %y : i32[]\n"
          "    return %s\n"
          "  }\n"
          "  %1 = reduce %a, %z, dimensions = [0] : i32[] {\n"
          "  ^(%x: i32[], %y: i32[]):\n"
          "    %r = reshape %x, shape = [1] : i32[1]\n"
          "    %t = reshape %r, shape = [] : i32[]\n"
          "    %s = add %t, %y : i32[]\n"
          "    %m = multiply %s, %k : i32[]\n"
          "    return %m\n"
          "  }\n"
          "  %e0 = constant dense<123> : i32[]\n"
          "  %e1 = constant dense<1230> : i32[]\n"
          "  return %0, %e0, %1, %e1, %k, %k");
}

static void windows(void **state)
{
    (void)state;
    check("  %a = constant dense<[[1, 2], [3, 4], [5, 6]]> : i32[3, 2]\n"
          "  %z = constant dense<0> : i32[]\n"
          "  %0 = reduce_window %a, %z, window = [2, 1], window_strides = [4, 1], base_dilation = [2, 1], "
          "window_dilation = [3, 1], padding_low = [2, 0], padding_high = [1, 0] : i32[2, 2]" ADD(
              "i32") "  %e0 = constant dense<[[0, 0], [3, 4]]> : i32[2, 2]\n"
                     "  %1 = reduce_window %a, %z, window = [2, 2], window_strides = [1, 1], base_dilation = [1, 1], "
                     "window_dilation = [1, 1], padding_low = [-1, 0], padding_high = [0, 1] : i32[1, 2]" ADD(
                         "i32") "  %e1 = constant dense<[[18, 10]]> : i32[1, 2]\n"
                                "  return %0, %e0, %1, %e1");
    check("  %a = constant dense<[1.0, -2.0, nan, 4.0]> : f32[4]\n"
          "  %z = constant dense<-inf> : f32[]\n"
          "  %0 = reduce_window %a, %z, window = [2], window_strides = [1], base_dilation = [1], window_dilation = "
          "[1], padding_low = [1], padding_high = [0] : f32[4] {\n"
          "  ^(%x: f32[], %y: f32[]):\n"
          "    %m = maximum %x, %y : f32[]\n"
          "    return %m\n"
          "  }\n"
          "  %e0 = constant dense<[1.0, 1.0, nan, nan]> : f32[4]\n"
          "  return %0, %e0");
}

static void select_scatter(void **state)
{
    (void)state;
    /* windows of 2 with stride 1: 5 is chosen twice; of equal ones the first; padding is never chosen */
    check("  %a = constant dense<[1, 5, 2, 2]> : i32[4]\n"
          "  %s = constant dense<[10, 20, 30, 40, 50]> : i32[5]\n"
          "  %z = constant dense<0> : i32[]\n"
          "  %0 = select_and_scatter %a, %s, %z, window = [2], window_strides = [1], padding_low = [1], padding_high = "
          "[1] : i32[4] {\n"
          "  ^(%x: i32[], %y: i32[]):\n"
          "    %g = compare %x, %y, direction = \"GE\" : bool[]\n"
          "    return %g\n"
          "  } {\n"
          "  ^(%x: i32[], %y: i32[]):\n"
          "    %t = add %x, %y : i32[]\n"
          "    return %t\n"
          "  }\n"
          "  %e0 = constant dense<[10, 50, 40, 50]> : i32[4]\n"
          "  return %0, %e0");
}

static void sorting(void **state)
{
    (void)state;
    /* by the key alone, descending: equal keys keep their order */
    check("  %k = constant dense<[[2, 1, 2, 3, 1], [0, 0, 0, 0, 0]]> : i32[2, 5]\n"
          "  %v = iota shape = [2, 5], dtype = i64, iota_dimension = 1 : i64[2, 5]\n"
          "  %0, %1 = sort %k, %v, dimension = 1, stable = true : i32[2, 5], i64[2, 5] {\n"
          "  ^(%a: i32[], %b: i32[], %c: i64[], %d: i64[]):\n"
          "    %g = compare %a, %b, direction = \"GT\" : bool[]\n"
          "    return %g\n"
          "  }\n"
          "  %e0 = constant dense<[[3, 2, 2, 1, 1], [0, 0, 0, 0, 0]]> : i32[2, 5]\n"
          "  %e1 = constant dense<[[3, 0, 2, 1, 4], [0, 1, 2, 3, 4]]> : i64[2, 5]\n"
          "  return %0, %e0, %1, %e1");
    check("  %k = constant dense<[[2.0, nan], [-0.0, 1.0], [0.0, -inf]]> : f32[3, 2]\n"
          "  %0 = sort %k, dimension = 0 : f32[3, 2] {\n"
          "  ^(%a: f32[], %b: f32[]):\n"
          "    %g = compare %a, %b, direction = \"LT\", total_order = true : bool[]\n"
          "    return %g\n"
          "  }\n"
          "  %e0 = constant dense<[[-0.0, -inf], [0.0, 1.0], [2.0, nan]]> : f32[3, 2]\n"
          "  %n = constant dense<[]> : f32[0]\n"
          "  %1 = sort %n, dimension = 0 : f32[0] {\n"
          "  ^(%a: f32[], %b: f32[]):\n"
          "    %g = compare %a, %b, direction = \"LT\" : bool[]\n"
          "    return %g\n"
          "  }\n"
          "  return %0, %e0, %1, %n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reducing),      cmocka_unit_test(wide_sums), cmocka_unit_test(several_results),
        cmocka_unit_test(other_regions), cmocka_unit_test(windows),   cmocka_unit_test(select_scatter),
        cmocka_unit_test(sorting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
