/* Results that leave by boxes of shared memory, against the definitions, by the interpreter of the Loop IR: which stores do, which must not. */
#include "tile_test.h"

typedef struct shape {
    int64_t m, n, k, M, N; /* m, n, k in eights */
    int warps, instances, buffers;
} shape;

static void check(const char *text, const shape *s, bool boxes, const char *remark, uint64_t seed)
{
    variant v = {.size = {{"m", s->m}, {"n", s->n}, {"k", s->k}},
                 .bind = {{"$M", s->M}, {"$N", s->N}},
                 .set = {{"instances", s->instances}, {"result-boxes", s->buffers}, {"stages", 2}}};
    tn_session *session = new_test_session();
    tn_kernel *kernel = tile_variant(session, text, &v);
    tn_lfunc *func = NULL;
    tn_schedule_set(kernel, "", "warps", s->warps);
    assert_int_equal(tn_gpu_lower(session, kernel, tn_machine_find("sm_90a"), &func), TN_OK);
    if (!strstr(loop_text(func), "box_store_wait") != !boxes || (remark && !strstr(func->remarks, remark)))
        fail_msg("boxes: %s", func->remarks);
    free_test_session(session);
    assert_int_equal(check_gpu_kernel(text, &v, s->warps, seed), TN_OK);
}

#define HEAD(Y, MORE) \
    "kernel @product(%a: bf16[m*k*64] read align 16, %b: bf16[k*n*64] read align 16, %y: bf16[" Y "] write align 16" MORE ") grid(%pm : m*8 by $M, %pn : n*8 by $N) {\n"
#define SUMS                                                                                                                                          \
    "  view %A = %a : [m*8, k*8] strides [k*8, 1]\n  view %B = %b : [k*8, n*8] strides [n*8, 1]\n  %kk = size k*8 : i64\n"                              \
    "  %s = fold @dot (%l : %kk by 64) axes [] order any identity [0] : $M x $N x f32 {\n    %0 = load %A[%pm + @0, %l + @1] : $M x 64 x bf16\n"          \
    "    %1 = load %B[%l + @0, %pn + @1] : 64 x $N x bf16\n    %2 = dot %0, %1 : $M x $N x f32\n    yield %2\n  } combine (%x: f32, %z: f32) {\n"        \
    "    %1 = add %x, %z : f32\n    yield %1\n  }\n"
#define NARROW "  %h = cast %s : $M x $N x bf16\n"
#define STORE(WHAT) "  store %Y[%pm + @0, %pn + @1], " WHAT "\n}\n"
#define ROWS "  view %Y = %y : [m*8, n*8] strides [n*8, 1]\n"

static const char plain[] = HEAD("m*n*64", "") ROWS SUMS NARROW STORE("%h");

/* Several boxes a program, in turns of one, two and four buffers; tails along both axes; more programs than a CTA walks at once; two instances. */
static void test_boxes(void **state)
{
    static const shape shapes[] = {{17, 9, 9, 64, 64, 4, 1, 2},  {9, 17, 9, 64, 128, 4, 1, 1},  {33, 17, 9, 128, 128, 4, 1, 2}, {33, 17, 9, 128, 128, 4, 1, 4},
                                   {17, 41, 9, 128, 128, 8, 1, 2}, {33, 17, 9, 128, 64, 4, 2, 1}, {33, 33, 9, 64, 128, 4, 2, 2},  {1, 1, 1, 64, 64, 4, 1, 2},
                                   {33, 49, 9, 128, 192, 8, 1, 4}, {17, 49, 9, 64, 192, 4, 1, 2}, {17, 49, 9, 64, 192, 4, 2, 4}};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(shapes); i++)
        check(plain, &shapes[i], true, NULL, i);
    check(plain, &(shape){17, 9, 9, 64, 64, 4, 1, 0}, false, NULL, 9);
}

/* What is computed of the sums and of vectors with the same bounds; a result that lies turned. */
static void test_computed(void **state)
{
    static const char bias[] = HEAD("m*n*64", ", %v: bf16[n*8] read") ROWS "  view %V = %v : [n*8] strides [1]\n" SUMS NARROW "  %0 = load %V[%pn + @0] : $N x bf16\n"
        "  %1 = broadcast %0 axes [1] : $M x $N x bf16\n  %2 = add %h, %1 : $M x $N x bf16\n" STORE("%2");
    static const char batch[] = HEAD("m*n*64*3+16", "") "  view %Y = %y : [3, m*8, n*8] strides [m*n*64, n*8, 1] offset 16\n" SUMS NARROW "  %two = const 2 : i64\n"
        "  store %Y[%two, %pm + @0, %pn + @1], %h\n}\n";
    (void)state;
    check(bias, &(shape){17, 9, 9, 64, 64, 4, 1, 2}, true, NULL, 1);
    check(bias, &(shape){17, 17, 9, 64, 128, 4, 2, 2}, true, NULL, 2);
    check(batch, &(shape){17, 9, 9, 64, 64, 4, 1, 2}, true, NULL, 3);
}

/* Where the machine can't store them, or somebody would see it. */
static void test_refused(void **state)
{
    static const char ragged[] = HEAD("m*8*(n*8+1)", "") "  view %Y = %y : [m*8, n*8] strides [n*8+1, 1]\n" SUMS NARROW STORE("%h");
    static const char masked[] = HEAD("m*n*64", ", %v: bf16[n*8] read") ROWS "  view %V = %v : [n*4] strides [1]\n" SUMS NARROW "  %0 = load %V[%pn + @0] : $N x bf16\n"
        "  %1 = broadcast %0 axes [1] : $M x $N x bf16\n  %2 = add %h, %1 : $M x $N x bf16\n" STORE("%2");
    static const char twice[] = HEAD("m*n*64", "") ROWS SUMS NARROW "  store %Y[%pm + @0, %pn + @1], %h\n  %two = add %h, %h : $M x $N x bf16\n" STORE("%two");
    static const shape s = {17, 9, 9, 64, 64, 4, 1, 2};
    (void)state;
    check(ragged, &s, false, "result, no boxes: a stride is not a multiple of 16 bytes", 1);
    check(masked, &s, false, "result, no boxes: elements of it may not exist", 2);
    check(twice, &s, false, "result, no boxes: the kernel may touch its memory elsewhere", 3);
}

/* ---- tiles that are turned -------------------------------------------------------------------------------------------------- */

static void check_turned(const char *text, int64_t m, int64_t n, int64_t M, int64_t N, int warps, bool boxes, uint64_t seed)
{
    variant v = {.size = {{"m", m}, {"n", n}}, .bind = {{"$M", M}, {"$N", N}}};
    tn_session *session = new_test_session();
    tn_kernel *kernel = tile_variant(session, text, &v);
    tn_lfunc *func = NULL;
    tn_schedule_set(kernel, "", "warps", warps);
    assert_int_equal(tn_gpu_lower(session, kernel, tn_machine_find("sm_90a"), &func), TN_OK);
    if (!strstr(loop_text(func), "@ldmatrix_x4_turned") != !boxes || !strstr(loop_text(func), "@box_store_2") != !boxes)
        fail_msg("boxes: %s", loop_text(func));
    free_test_session(session);
    assert_int_equal(check_gpu_kernel(text, &v, warps, seed), TN_OK);
    v.gpu = "sm_80";
    assert_int_equal(check_gpu_kernel(text, &v, warps, seed), TN_OK);
}

#define TURN(MORE) "kernel @turn(%x: bf16[m*n*64] read align 16, %y: bf16[m*n*64] write align 16" MORE ") grid(%p : m*8 by $M, %q : n*8 by $N) {\n"
#define VIEWS "  view %X = %x : [m*8, n*8] strides [1, m*8]\n  view %Y = %y : [m*8, n*8] strides [n*8, 1]\n"
#define ACROSS "  %0 = load %X[%p + @0, %q + @1] : $M x $N x bf16\n"
#define KEEP(WHAT) "  store %Y[%p + @0, %q + @1], " WHAT "\n}\n"

static const char across[] = TURN("") VIEWS ACROSS KEEP("%0");

static void test_turned(void **state)
{
    static const char along_rows[] = TURN("") "  view %X = %x : [m*8, n*8] strides [n*8, 1]\n  view %Y = %y : [m*8, n*8] strides [1, m*8]\n  %0 = load %X[%p + @0, %q + @1] : $M x $N x bf16\n" KEEP("%0");
    static const char permuted[] = TURN("") "  view %X = %x : [m*8, n*8] strides [n*8, 1]\n  view %Y = %y : [n*8, m*8] strides [m*8, 1]\n  %0 = load %X[%p + @0, %q + @1] : $M x $N x bf16\n"
        "  %1 = permute %0 axes [1, 0] : $N x $M x bf16\n  store %Y[%q + @0, %p + @1], %1\n}\n";
    static const char mixed[] = TURN(", %z: bf16[m*n*64] read align 16, %v: bf16[n*8] read") VIEWS
        "  view %Z = %z : [m*8, n*8] strides [n*8, 1]\n  view %V = %v : [n*8] strides [1]\n" ACROSS "  %1 = load %Z[%p + @0, %q + @1] : $M x $N x bf16\n"
        "  %2 = load %V[%q + @0] : $N x bf16\n  %3 = broadcast %2 axes [1] : $M x $N x bf16\n  %4 = add %0, %1 : $M x $N x bf16\n  %5 = mul %4, %3 : $M x $N x bf16\n" KEEP("%5");
    static const int64_t tiles[][3] = {{64, 64, 4}, {128, 64, 8}, {128, 128, 8}, {64, 128, 4}, {64, 64, 2}, {128, 128, 4}};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(tiles); i++) {
        check_turned(across, 17, 33, tiles[i][0], tiles[i][1], (int)tiles[i][2], true, i);
        check_turned(along_rows, 33, 9, tiles[i][0], tiles[i][1], tiles[i][1] / 16 >= tiles[i][2] ? (int)tiles[i][2] : 4, true, 10 + i);
        check_turned(permuted, 9, 17, tiles[i][0], tiles[i][1], tiles[i][1] / 16 >= tiles[i][2] ? (int)tiles[i][2] : 4, true, 20 + i);
    }
    check_turned(mixed, 17, 9, 64, 64, 4, true, 31);
    check_turned(mixed, 17, 33, 128, 64, 8, true, 32);
}

/* Short rows, rows of any length, memory that may be the same, another element type, nothing that lies across. */
static void test_not_turned(void **state)
{
    static const char any[] = "kernel @turn(%x: bf16[m*n] read align 16, %y: bf16[m*n] write align 16) grid(%p : m by $M, %q : n by $N) {\n"
                              "  view %X = %x : [m, n] strides [1, m]\n  view %Y = %y : [m, n] strides [n, 1]\n  %0 = load %X[%p + @0, %q + @1] : $M x $N x bf16\n" KEEP("%0");
    static const char along[] = TURN("") "  view %X = %x : [m*8, n*8] strides [n*8, 1]\n  view %Y = %y : [m*8, n*8] strides [n*8, 1]\n  %0 = load %X[%p + @0, %q + @1] : $M x $N x bf16\n" KEEP("%0");
    static const char masked[] = TURN(", %v: bf16[n*8] read") VIEWS "  view %V = %v : [n*4] strides [1]\n" ACROSS "  %2 = load %V[%q + @0] : $N x bf16\n"
        "  %3 = broadcast %2 axes [1] : $M x $N x bf16\n  %4 = add %0, %3 : $M x $N x bf16\n" KEEP("%4");
    (void)state;
    check_turned(across, 17, 33, 32, 128, 4, false, 1);
    check_turned(any, 131, 65, 64, 64, 4, false, 2);
    check_turned(along, 17, 9, 64, 64, 4, false, 3);
    check_turned(masked, 17, 9, 64, 64, 4, false, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_boxes), cmocka_unit_test(test_computed), cmocka_unit_test(test_refused), cmocka_unit_test(test_turned),
                                       cmocka_unit_test(test_not_turned)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
