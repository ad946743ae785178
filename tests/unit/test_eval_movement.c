/* Operations that make or move data: empty and rank-0 tensors, negative padding, clamped and out-of-bounds starts. */
#include "eval_test.h"

static void sources(void **state)
{
    (void)state;
    check("  %0 = iota shape = [2, 3], dtype = i32, iota_dimension = 1 : i32[2, 3]\n"
          "  %1 = iota shape = [2, 3], dtype = f32, iota_dimension = 0 : f32[2, 3]\n"
          "  %2 = iota shape = [0], dtype = i32, iota_dimension = 0 : i32[0]\n"
          "  %3 = dimension dim = 7 : i64[]\n"
          "  %4 = iota shape = [3], dtype = u4, iota_dimension = 0 : u4[3]\n"
          "  %e0 = constant dense<[[0, 1, 2], [0, 1, 2]]> : i32[2, 3]\n"
          "  %e1 = constant dense<[[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]> : f32[2, 3]\n"
          "  %e2 = constant dense<[]> : i32[0]\n"
          "  %e3 = constant dense<7> : i64[]\n"
          "  %e4 = constant dense<[0, 1, 2]> : u4[3]\n"
          "  return %0, %e0, %1, %e1, %2, %e2, %3, %e3, %4, %e4");
}

static void broadcasting(void **state)
{
    (void)state;
    check("  %a = constant dense<[[1], [2]]> : i32[2, 1]\n"
          "  %0 = broadcast_in_dim %a, shape = [3, 2, 2], broadcast_dimensions = [2, 0] : i32[3, 2, 2]\n"
          "  %s = constant dense<5> : i32[]\n"
          "  %1 = broadcast_in_dim %s, shape = [2], broadcast_dimensions = [] : i32[2]\n"
          "  %2 = broadcast_in_dim %a, shape = [2, 0], broadcast_dimensions = [0, 1] : i32[2, 0]\n"
          "  %e0 = constant dense<[[[1, 2], [1, 2]], [[1, 2], [1, 2]], [[1, 2], [1, 2]]]> : i32[3, 2, 2]\n"
          "  %e1 = constant dense<[5, 5]> : i32[2]\n"
          "  %e2 = constant dense<[[], []]> : i32[2, 0]\n"
          "  return %0, %e0, %1, %e1, %2, %e2");
}

static void reordering(void **state)
{
    (void)state;
    check("  %a = constant dense<[[1, 2, 3], [4, 5, 6]]> : i4[2, 3]\n"
          "  %0 = transpose %a, permutation = [1, 0] : i4[3, 2]\n"
          "  %1 = reshape %a, shape = [3, 2] : i4[3, 2]\n"
          "  %2 = reverse %a, dimensions = [1] : i4[2, 3]\n"
          "  %3 = reverse %a, dimensions = [0, 1] : i4[2, 3]\n"
          "  %e0 = constant dense<[[1, 4], [2, 5], [3, 6]]> : i4[3, 2]\n"
          "  %e1 = constant dense<[[1, 2], [3, 4], [5, 6]]> : i4[3, 2]\n"
          "  %e2 = constant dense<[[3, 2, 1], [6, 5, 4]]> : i4[2, 3]\n"
          "  %e3 = constant dense<[[6, 5, 4], [3, 2, 1]]> : i4[2, 3]\n"
          "  return %0, %e0, %1, %e1, %2, %e2, %3, %e3");
    check("  %a = constant dense<[[(1.0, 2.0), (3.0, 4.0)]]> : c128[1, 2]\n"
          "  %0 = transpose %a, permutation = [1, 0] : c128[2, 1]\n"
          "  %e0 = constant dense<[[(1.0, 2.0)], [(3.0, 4.0)]]> : c128[2, 1]\n"
          "  %b = constant dense<[]> : f32[0, 3]\n"
          "  %1 = reverse %b, dimensions = [0] : f32[0, 3]\n"
          "  %2 = reshape %b, shape = [3, 0] : f32[3, 0]\n"
          "  %e2 = constant dense<[[], [], []]> : f32[3, 0]\n"
          "  return %0, %e0, %1, %b, %2, %e2");
}

static void slicing(void **state)
{
    (void)state;
    check("  %a = constant dense<[0, 1, 2, 3, 4, 5, 6]> : i32[7]\n"
          "  %0 = slice %a, start = [1], limit = [6], strides = [2] : i32[3]\n"
          "  %1 = slice %a, start = [7], limit = [7], strides = [1] : i32[0]\n"
          "  %2 = slice %a, start = [6], limit = [7], strides = [9] : i32[1]\n"
          "  %e0 = constant dense<[1, 3, 5]> : i32[3]\n"
          "  %e1 = constant dense<[]> : i32[0]\n"
          "  %e2 = constant dense<[6]> : i32[1]\n"
          "  return %0, %e0, %1, %e1, %2, %e2");
}

static void padding(void **state)
{
    (void)state;
    check("  %a = constant dense<[1, 2, 3]> : i32[3]\n"
          "  %v = constant dense<9> : i32[]\n"
          "  %0 = pad %a, %v, low = [1], high = [2], interior = [1] : i32[8]\n"
          "  %1 = pad %a, %v, low = [-1], high = [0], interior = [0] : i32[2]\n"
          "  %2 = pad %a, %v, low = [-1], high = [-1], interior = [1] : i32[3]\n"
          "  %3 = pad %a, %v, low = [-5], high = [4], interior = [0] : i32[2]\n"
          "  %4 = pad %a, %v, low = [4], high = [-5], interior = [0] : i32[2]\n"
          "  %n = constant dense<[]> : i32[0]\n"
          "  %5 = pad %n, %v, low = [1], high = [1], interior = [3] : i32[2]\n"
          "  %e0 = constant dense<[9, 1, 9, 2, 9, 3, 9, 9]> : i32[8]\n"
          "  %e1 = constant dense<[2, 3]> : i32[2]\n"
          "  %e2 = constant dense<[9, 2, 9]> : i32[3]\n"
          "  %e3 = constant dense<[9, 9]> : i32[2]\n"
          "  return %0, %e0, %1, %e1, %2, %e2, %3, %e3, %4, %e3, %5, %e3");
}

static void joining(void **state)
{
    (void)state;
    check("  %a = constant dense<[[1], [2]]> : i32[2, 1]\n"
          "  %b = constant dense<[[3, 4], [5, 6]]> : i32[2, 2]\n"
          "  %n = constant dense<[[], []]> : i32[2, 0]\n"
          "  %0 = concatenate %a, %n, %b, dimension = 1 : i32[2, 3]\n"
          "  %1 = concatenate %b, %b, dimension = 0 : i32[4, 2]\n"
          "  %e0 = constant dense<[[1, 3, 4], [2, 5, 6]]> : i32[2, 3]\n"
          "  %e1 = constant dense<[[3, 4], [5, 6], [3, 4], [5, 6]]> : i32[4, 2]\n"
          "  return %0, %e0, %1, %e1");
}

static void dynamic_slices(void **state)
{
    (void)state;
    check("  %a = constant dense<[[1, 2, 3], [4, 5, 6]]> : i32[2, 3]\n"
          "  %i = constant dense<-5> : i64[]\n"
          "  %j = constant dense<2> : i64[]\n"
          "  %0 = dynamic_slice %a, %i, %j, sizes = [1, 2] : i32[1, 2]\n"
          "  %u = constant dense<[[9], [8]]> : i32[2, 1]\n"
          "  %1 = dynamic_update_slice %a, %u, %j, %j : i32[2, 3]\n"
          "  %b = constant dense<18446744073709551615> : u64[]\n"
          "  %2 = dynamic_slice %a, %b, %b, sizes = [1, 1] : i32[1, 1]\n"
          "  %e0 = constant dense<[[2, 3]]> : i32[1, 2]\n"
          "  %e1 = constant dense<[[1, 2, 9], [4, 5, 8]]> : i32[2, 3]\n"
          "  %e2 = constant dense<[[6]]> : i32[1, 1]\n"
          "  return %0, %e0, %1, %e1, %2, %e2");
}

static void gathering(void **state)
{
    (void)state;
    /* rows 2 and 9 (clamped to 2) and -1 (clamped to 0) */
    check("  %a = constant dense<[[1, 2], [3, 4], [5, 6]]> : i32[3, 2]\n"
          "  %i = constant dense<[2, 9, -1]> : i64[3]\n"
          "  %0 = gather %a, %i, offset_dims = [1], collapsed_slice_dims = [0], operand_batching_dims = [], "
          "indices_batching_dims = [], start_index_map = [0], index_vector_dim = 1, sizes = [1, 2] : i32[3, 2]\n"
          "  %e0 = constant dense<[[5, 6], [5, 6], [1, 2]]> : i32[3, 2]\n"
          "  %b = constant dense<[[[1], [0]], [[0], [0]], [[1], [1]]]> : i32[3, 2, 1]\n"
          "  %1 = gather %a, %b, offset_dims = [], collapsed_slice_dims = [1], operand_batching_dims = [0], "
          "indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2, sizes = [1, 1] : i32[3, 2]\n"
          "  %e1 = constant dense<[[2, 1], [3, 3], [6, 6]]> : i32[3, 2]\n"
          "  %n = constant dense<[]> : i64[0]\n"
          "  %2 = gather %a, %n, offset_dims = [1], collapsed_slice_dims = [0], operand_batching_dims = [], "
          "indices_batching_dims = [], start_index_map = [0], index_vector_dim = 1, sizes = [1, 2] : i32[0, 2]\n"
          "  %e2 = constant dense<[]> : i32[0, 2]\n"
          "  return %0, %e0, %1, %e1, %2, %e2");
}

static void scattering(void **state)
{
    (void)state;
    /* index 1 twice: both are added; 3 and -1 lie outside: skipped */
    check("  %a = constant dense<[10, 20, 30]> : i32[3]\n"
          "  %i = constant dense<[[1], [3], [1], [-1]]> : i32[4, 1]\n"
          "  %u = constant dense<[1, 2, 3, 4]> : i32[4]\n"
          "  %0 = scatter %a, %i, %u, update_window_dims = [], inserted_window_dims = [0], input_batching_dims = [], "
          "scatter_indices_batching_dims = [], scatter_dims_to_operand_dims = [0], index_vector_dim = 1 : i32[3] {\n"
          "  ^(%x: i32[], %y: i32[]):\n"
          "    %s = add %x, %y : i32[]\n"
          "    return %s\n"
          "  }\n"
          "  %e0 = constant dense<[10, 24, 30]> : i32[3]\n"
          "  return %0, %e0");
    /* two operands; a window of two that hangs over the edge loses the part outside only */
    check("  %a = constant dense<[1, 2, 3]> : i32[3]\n"
          "  %b = constant dense<[1.0, 2.0, 3.0]> : f32[3]\n"
          "  %i = constant dense<[2]> : i32[1]\n"
          "  %u = constant dense<[7, 8]> : i32[2]\n"
          "  %v = constant dense<[7.5, 8.5]> : f32[2]\n"
          "  %0, %1 = scatter %a, %b, %i, %u, %v, update_window_dims = [0], inserted_window_dims = [], "
          "input_batching_dims = [], scatter_indices_batching_dims = [], scatter_dims_to_operand_dims = [0], "
          "index_vector_dim = 0 : i32[3], f32[3] {\n"
          "  ^(%p: i32[], %q: f32[], %r: i32[], %t: f32[]):\n"
          "    return %r, %t\n"
          "  }\n"
          "  %e0 = constant dense<[1, 2, 7]> : i32[3]\n"
          "  %e1 = constant dense<[1.0, 2.0, 7.5]> : f32[3]\n"
          "  return %0, %e0, %1, %e1");
}

static void bitcasting(void **state)
{
    (void)state;
    check("  %a = constant dense<[1.0, -0.0]> : f32[2]\n"
          "  %0 = bitcast_convert %a, dtype = u32 : u32[2]\n"
          "  %1 = bitcast_convert %a, dtype = u16 : u16[2, 2]\n"
          "  %2 = bitcast_convert %1, dtype = f32 : f32[2]\n"
          "  %s = constant dense<258> : u16[3]\n"
          "  %3 = bitcast_convert %s, dtype = u8 : u8[3, 2]\n"
          "  %e0 = constant dense<[1065353216, 2147483648]> : u32[2]\n"
          "  %e1 = constant dense<[[0, 16256], [0, 32768]]> : u16[2, 2]\n"
          "  %e3 = constant dense<[[2, 1], [2, 1], [2, 1]]> : u8[3, 2]\n"
          "  return %0, %e0, %1, %e1, %2, %a, %3, %e3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sources),        cmocka_unit_test(broadcasting), cmocka_unit_test(reordering),
        cmocka_unit_test(slicing),        cmocka_unit_test(padding),      cmocka_unit_test(joining),
        cmocka_unit_test(dynamic_slices), cmocka_unit_test(gathering),    cmocka_unit_test(scattering),
        cmocka_unit_test(bitcasting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
