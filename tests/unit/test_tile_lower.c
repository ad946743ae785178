/* The CPU lowering against the definitions. Each file of tests/unit/tile is a kernel with the sizes, extents and knobs that it is tried with:
 *
 *     // size NAME values …        a symbol
 *     // bind $NAME values …       a parameter; #NAME in the text stands for its value
 *     // set [LABEL] KEY values …  an entry of the schedule; 0: none
 *     // meets NAME value         with this size elements of one store meet, which only a CPU stores in order
 *     // alias Y X values …        buffer Y starts at that element of X; -1: it has its own memory
 *
 * TILE_RUNS in the environment: how many combinations of a kernel (default 24), TILE_SEED: where they start. */
#include "tile_files.h"

static void run_file(void **state) { run_tile_file(*state, 24, check_kernel); }

/* What has no CPU lowering is refused by name. */
static void refuse(const char *text, const char *message)
{
    tn_session *session = new_test_session();
    tn_kernel *kernel = parse_tile(session, text);
    tn_lfunc *func = NULL;
    assert_int_equal(tn_tile_verify(kernel), TN_OK);
    assert_int_equal(tn_cpu_lower(session, kernel, tn_machine_find("avx2"), &func), TN_UNSUPPORTED);
    assert_non_null(strstr(session->diags.at[0].message, message));
    free_test_session(session);
}

#define Z "kernel @k(%x: i32[8] read_write) grid() {\nview %X = %x : [8] strides [1]\n%z = const 0 : i64\n%a = load %X[%z + @0] : 8 x i32\n"

static void test_refusals(void **state)
{
    (void)state;
    refuse(Z "%n = const 8 : i64\n%b = fold (%j : %n by 4) axes [0] order tree identity [0] : i32 {\n%c = load %X[%j + @0] : 4 x i32\nyield %c\n} "
             "combine (%u: i32, %v: i32) {\n%w = add %u, %v : i32\nyield %w\n}\nstore %X[%z], %b\n}", "order tree");
    refuse(Z "%b = asm \"\", %a : 8 x i32\nstore %X[%z + @0], %b\n}", "'asm'");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest more[] = {cmocka_unit_test(test_refusals)};
    return run_tile_tests("tile kernels", "tile", argc > 1 ? argv[1] : NULL, run_file, more, TN_COUNT(more));
}
