/* Factors that a role of its own has the machine copy: products against the definitions, by the interpreter of the Loop IR, where boxes are used and where they must not be. */
#include "tile_test.h"

typedef struct shape {
    int64_t m, n, k, M, N;
    int warps;
    int instances, stages, group; /* of the schedule; 0: not set */
} shape;

static variant variant_of(const shape *s)
{
    variant v = {.size = {{"m", s->m}, {"n", s->n}, {"k", s->k}}, .bind = {{"$M", s->M}, {"$N", s->N}}};
    int n = 0;
    if (s->instances)
        v.set[n++] = (setting){"instances", s->instances};
    if (s->stages)
        v.set[n++] = (setting){"stages", s->stages};
    if (s->group)
        v.set[n++] = (setting){"group", s->group};
    return v;
}

/* Whether boxes are copied, and what is said of it: NULL is not looked for. */
static void check(const char *text, const shape *s, bool boxes, const char *remark, uint64_t seed)
{
    variant v = variant_of(s);
    tn_session *session = new_test_session();
    tn_kernel *kernel = tile_variant(session, text, &v);
    tn_lfunc *func = NULL;
    tn_schedule_set(kernel, "", "warps", s->warps);
    assert_int_equal(tn_gpu_lower(session, kernel, tn_machine_find("sm_90a"), &func), TN_OK);
    if (!strstr(loop_text(func), "@box_load_") != !boxes)
        fail_msg("boxes: %s", func->remarks);
    if (remark && !strstr(func->remarks, remark))
        fail_msg("remarks: %s", func->remarks);
    free_test_session(session);
    assert_int_equal(check_gpu_kernel(text, &v, s->warps, seed), TN_OK);
}

#define HEAD(A, B, GRID)                                                                                                                          \
    "kernel @product(%a: bf16[" A "] read align 16, %b: bf16[" B "] read align 16, %y: f32[m*n*64] write align 16) grid(" GRID ") {\n"             \
    "  view %Y = %y : [m*8, n*8] strides [n*8, 1]\n"
#define FOLD(BEFORE, LEFT, RIGHT)                                                                                                                  \
    "  %kk = size k*8 : i64\n" BEFORE "  %s = fold @dot (%l : %kk by 64) axes [] order any identity [0] : $M x $N x f32 {\n"                                                 \
    "    %0 = load " LEFT " : $M x 64 x bf16\n    %1 = load " RIGHT " : 64 x $N x bf16\n    %2 = dot %0, %1 : $M x $N x f32\n    yield %2\n"           \
    "  } combine (%x: f32, %z: f32) {\n    %1 = add %x, %z : f32\n    yield %1\n  }\n"
#define STORE "  store %Y[%pm + @0, %pn + @1], %s\n}\n"
#define PLAIN_GRID "%pm : m*8 by $M, %pn : n*8 by $N"
#define VIEWS(A, B) "  view %A = %a : [m*8, k*8] strides " A "\n  view %B = %b : [k*8, n*8] strides " B "\n"
#define PRODUCT(A, B) HEAD("m*k*64", "k*n*64", PLAIN_GRID) VIEWS(A, B) FOLD("", "%A[%pm + @0, %l + @1]", "%B[%l + @0, %pn + @1]") STORE

/* Tails along every axis, nothing to add up, more programs than a CTA walks at a time; factors that lie either way. */
static void test_orders(void **state)
{
    static const char *const text[] = {PRODUCT("[k*8, 1]", "[n*8, 1]"), PRODUCT("[k*8, 1]", "[1, k*8]"), PRODUCT("[1, m*8]", "[n*8, 1]"), PRODUCT("[1, m*8]", "[1, k*8]")};
    static const shape shapes[] = {{9, 17, 25, 64, 64, 4, 0, 0, 0}, {17, 9, 41, 128, 64, 8, 0, 0, 0}, {8, 8, 1, 64, 64, 4, 0, 0, 0}, {5, 3, 0, 64, 64, 4, 0, 0, 0}, {33, 3, 9, 64, 64, 4, 0, 0, 0},
                                   {33, 49, 17, 128, 192, 8, 0, 0, 0}, {9, 25, 9, 64, 192, 4, 0, 3, 0}, {17, 41, 17, 128, 160, 8, 0, 0, 0}, {17, 29, 9, 128, 224, 8, 0, 3, 2}};
    (void)state;
    for (size_t t = 0; t < TN_COUNT(text); t++)
        for (size_t i = 0; i < TN_COUNT(shapes); i++)
            if (t == 0 || i < 2 || i > 4)
                check(text[t], &shapes[i], true, NULL, t * 10 + i);
}

/* Columns between powers of two of a factor that is computed, so that there are no boxes: whole ones lie in shared memory all the same. */
static void test_uneven(void **state)
{
    static const char text[] = HEAD("m*k*64", "k*n*64", PLAIN_GRID) VIEWS("[k*8, 1]", "[n*8, 1]")
        "  %kk = size k*8 : i64\n  %s = fold @dot (%l : %kk by 64) axes [] order any identity [0] : $M x $N x f32 {\n    %0 = load %A[%pm + @0, %l + @1] : $M x 64 x bf16\n"
        "    %1 = load %B[%l + @0, %pn + @1] : 64 x $N x bf16\n    %twice = add %1, %1 : 64 x $N x bf16\n    %2 = dot %0, %twice : $M x $N x f32\n    yield %2\n"
        "  } combine (%x: f32, %z: f32) {\n    %1 = add %x, %z : f32\n    yield %1\n  }\n" STORE;
    (void)state;
    check(text, &(shape){17, 41, 17, 128, 160, 8, 0, 0, 0}, false, NULL, 1);
    check(text, &(shape){17, 29, 9, 128, 224, 8, 0, 0, 0}, false, NULL, 2);
}

/* Matrices of a batch, which the grid walks: maps of three dimensions. */
static void test_batch(void **state)
{
    static const char text[] = "kernel @product(%a: bf16[3*m*k*64] read align 16, %b: bf16[3*k*n*64] read align 16, %y: f32[3*m*n*64] write align 16)"
                               " grid(%pb : 3 by 1, %pm : m*8 by $M, %pn : n*8 by $N) {\n  view %Y = %y : [3, m*8, n*8] strides [m*n*64, n*8, 1]\n"
                               "  view %A = %a : [3, m*8, k*8] strides [m*k*64, k*8, 1]\n  view %B = %b : [3, k*8, n*8] strides [n*k*64, n*8, 1]\n" FOLD("", "%A[%pb, %pm + @0, %l + @1]", "%B[%pb, %l + @0, %pn + @1]")
                               "  store %Y[%pb, %pm + @0, %pn + @1], %s\n}\n";
    (void)state;
    check(text, &(shape){9, 10, 9, 64, 64, 4, 0, 0, 0}, true, NULL, 1);
    for (int group = 2; group < 5; group++) /* in bands: whole ones and less, higher than all */
        for (int64_t m = 9; m < 34; m += 8)
            check(text, &(shape){m, 17, 1, 64, 64, 4, 0, 0, group}, true, NULL, 2);
}

/* Rows before the view's start, which are memory and no zeros: tiles that begin there, and others. The dimension has no bounds, its start is computed. */
static void test_far_starts(void **state)
{
    static const char text[] = HEAD("(m*8+64)*k*8", "k*n*64", PLAIN_GRID) "  view %A = %a : [*, k*8] strides [k*8, 1] offset 64*k*8\n  view %B = %b : [k*8, n*8] strides [n*8, 1]\n"
        FOLD("  %c = const 64 : i64\n  %start = sub %pm, %c : i64\n", "%A[in(%start + @0), %l + @1]", "%B[%l + @0, %pn + @1]") STORE;
    static const char columns[] = HEAD("m*k*64", "k*(n*8+64)*8+64", PLAIN_GRID) "  view %A = %a : [m*8, k*8] strides [k*8, 1]\n  view %B = %b : [k*8, *] strides [n*8+64, 1] offset 64\n"
        FOLD("  %c = const 64 : i64\n  %start = sub %pn, %c : i64\n", "%A[%pm + @0, %l + @1]", "%B[%l + @0, in(%start + @1)]") STORE;
    (void)state;
    check(text, &(shape){24, 9, 17, 64, 64, 4, 0, 0, 0}, true, NULL, 1);
    check(text, &(shape){32, 8, 33, 128, 64, 8, 0, 0, 0}, true, NULL, 2);
    check(columns, &(shape){9, 24, 17, 64, 64, 4, 0, 0, 0}, true, NULL, 3);
}

/* Two products, one after the other; a strip of two ranges; a fold in the turns of a loop. */
#define SECOND                                                                                                                                    \
    "  %s2 = fold (%l2 : %kk by 64) axes [] order any identity [0] : $M x $N x f32 {\n    %0 = load %A[%pm + @0, %l2 + @1] : $M x 64 x bf16\n"       \
    "    %1 = load %B[%l2 + @0, %pn + @1] : 64 x $N x bf16\n    %2 = dot %0, %1 : $M x $N x f32\n    yield %2\n"                                \
    "  } combine (%x: f32, %z: f32) {\n    %1 = add %x, %z : f32\n    yield %1\n  }\n  %both = add %s, %s2 : $M x $N x f32\n"
static void test_several(void **state)
{
    static const char two[] = HEAD("m*k*64", "k*n*64", PLAIN_GRID) VIEWS("[k*8, 1]", "[n*8, 1]") FOLD("", "%A[%pm + @0, %l + @1]", "%B[%l + @0, %pn + @1]") SECOND
        "  store %Y[%pm + @0, %pn + @1], %both\n}\n";
    static const char ranges[] = HEAD("3*m*k*64", "3*k*n*64", PLAIN_GRID) "  view %A = %a : [3, m*8, k*8] strides [m*k*64, k*8, 1]\n  view %B = %b : [3, k*8, n*8] strides [n*k*64, n*8, 1]\n"
        "  %kk = size k*8 : i64\n  %three = const 3 : i64\n  %s = fold @dot (%t : %three by 1, %l : %kk by 64) axes [] order any identity [0] : $M x $N x f32 {\n"
        "    %0 = load %A[%t, %pm + @0, %l + @1] : $M x 64 x bf16\n    %1 = load %B[%t, %l + @0, %pn + @1] : 64 x $N x bf16\n    %2 = dot %0, %1 : $M x $N x f32\n    yield %2\n"
        "  } combine (%x: f32, %z: f32) {\n    %1 = add %x, %z : f32\n    yield %1\n  }\n" STORE;
    static const char nested[] = HEAD("m*k*64", "k*n*64", "%pm : m*8 by $M") VIEWS("[k*8, 1]", "[n*8, 1]")
        "  %zero = const 0 : i64\n  %step = const 64 : i64\n  %nn = size n*8 : i64\n  for (%pn = %zero to %nn by %step) {\n" FOLD("", "%A[%pm + @0, %l + @1]", "%B[%l + @0, %pn + @1]")
        "  store %Y[%pm + @0, %pn + @1], %s\n  yield\n  }\n}\n";
    (void)state;
    check(two, &(shape){9, 10, 17, 64, 64, 4, 0, 0, 0}, true, NULL, 1);
    check(ranges, &(shape){9, 10, 17, 64, 64, 4, 0, 0, 0}, true, NULL, 2);
    check(ranges, &(shape){9, 10, 0, 64, 64, 4, 0, 0, 0}, true, NULL, 3);
    check(nested, &(shape){9, 25, 17, 64, 64, 4, 0, 0, 0}, true, NULL, 4);
    check(nested, &(shape){17, 17, 9, 128, 64, 8, 0, 0, 0}, true, NULL, 5);
}

/* A factor that the program loads once, and one that every turn of a loop loads; the sums are carried. */
static void test_loop(void **state)
{
    static const char text[] = HEAD("m*512", "k*n*64", PLAIN_GRID) "  view %A = %a : [m*8, 64] strides [64, 1]\n  view %B = %b : [k*8, n*8] strides [n*8, 1]\n"
        "  %zero = const 0 : i64\n  %step = const 64 : i64\n  %kk = size k*8 : i64\n  %none = const 0 : $M x $N x f32\n  %0 = load %A[%pm + @0, %zero + @1] : $M x 64 x bf16\n"
        "  %s = for (%l = %zero to %kk by %step) carry (%s0 = %none: $M x $N x f32) : $M x $N x f32 {\n    %1 = load %B[%l + @0, %pn + @1] : 64 x $N x bf16\n"
        "    %2 = dot %0, %1 : $M x $N x f32\n    %3 = add %s0, %2 : $M x $N x f32\n    yield %3\n  }\n" STORE;
    (void)state;
    check(text, &(shape){9, 10, 25, 64, 64, 4, 0, 0, 0}, true, NULL, 1);
    check(text, &(shape){17, 9, 9, 128, 64, 8, 0, 0, 0}, true, NULL, 2);
}

/* What a map can't say, or what may not be copied ahead. */
static void test_declined(void **state)
{
    static const shape small = {9, 8, 9, 64, 64, 4, 0, 0, 0};
    static const struct {
        const char *text, *remark;
    } cases[] = {
        {HEAD("m*(k*8+2)*8", "k*n*64", PLAIN_GRID) VIEWS("[k*8+2, 1]", "[n*8, 1]") FOLD("", "%A[%pm + @0, %l + @1]", "%B[%l + @0, %pn + @1]") STORE, "left factor, no boxes: a stride is not a multiple of 16 bytes"},
        {HEAD("m*k*64", "k*n*64", PLAIN_GRID) "  view %A = %a : [m*8, k*8] strides [k*8, 1] pad 1\n  view %B = %b : [k*8, n*8] strides [n*8, 1]\n"
             FOLD("", "%A[%pm + @0, %l + @1]", "%B[%l + @0, %pn + @1]") STORE, "left factor, no boxes: it is padded with other than 0"},
        {HEAD("m*k*64+1", "k*n*64", PLAIN_GRID) "  view %A = %a : [m*8, k*8] strides [k*8, 1] offset 1\n  view %B = %b : [k*8, n*8] strides [n*8, 1]\n"
             FOLD("", "%A[%pm + @0, %l + @1]", "%B[%l + @0, %pn + @1]") STORE, "left factor, no boxes: its buffer is not aligned to 16 bytes"},
        {"kernel @product(%a: bf16[m*k*64] read_write align 16, %b: bf16[k*n*64] read align 16, %y: f32[m*n*64] write align 16) grid(%pm : m*8 by $M, %pn : n*8 by $N) {\n"
         "  view %Y = %y : [m*8, n*8] strides [n*8, 1]\n" VIEWS("[k*8, 1]", "[n*8, 1]")
             FOLD("  %zero = const 0 : i64\n  %one = const 1 : $M x 64 x bf16\n  store %A[%pm + @0, %zero + @1], %one\n", "%A[%pm + @0, %l + @1]", "%B[%l + @0, %pn + @1]") STORE,
         "left factor, no boxes: the kernel may change its buffer before"},
        {HEAD("m*k*64", "k*n*64", PLAIN_GRID) VIEWS("[k*8, 1]", "[n*8, 1]") FOLD("  %zero = const 0 : i64\n  %right = ge %pm, %zero : bool\n  assert \"rows\", %right\n", "%A[%pm + @0, %l + @1]", "%B[%l + @0, %pn + @1]") STORE, "no boxes: it asserts"},
    };
    (void)state;
    for (size_t i = 0; i < TN_COUNT(cases); i++)
        check(cases[i].text, &small, false, cases[i].remark, i);
}

/* ---- instances ---- */

/* Whether a program each is what instances work on, and why not. */
static void check_instances(const char *text, const shape *s, bool instances, const char *remark, uint64_t seed)
{
    variant v = variant_of(s);
    tn_session *session = new_test_session();
    tn_kernel *kernel = tile_variant(session, text, &v);
    tn_lfunc *func = NULL;
    tn_schedule_set(kernel, "", "warps", s->warps);
    assert_int_equal(tn_gpu_lower(session, kernel, tn_machine_find("sm_90a"), &func), TN_OK);
    const char *want = tn_format(&session->arena, "instances %d {", s->instances);
    if (!strstr(loop_text(func), want) != !instances)
        fail_msg("instances: %s", func->remarks);
    if (remark && !strstr(func->remarks, remark))
        fail_msg("remarks: %s", func->remarks);
    free_test_session(session);
    check(text, s, true, NULL, seed);
}

#define NARROW_HEAD(A, B, Y, GRID)                                                                                                                \
    "kernel @product(%a: bf16[" A "] read align 16, %b: bf16[" B "] read align 16, %y: bf16[m*n*64] " Y " align 16) grid(" GRID ") {\n"            \
    "  view %Y = %y : [m*8, n*8] strides [n*8, 1]\n"
#define NARROW_STORE "  %half = const 0.5 : $M x $N x f32\n  %t = mul %s, %half : $M x $N x f32\n  %h = cast %t : $M x $N x bf16\n  store %Y[%pm + @0, %pn + @1], %h\n}\n"
#define NARROW(A, B) NARROW_HEAD("m*k*64", "k*n*64", "write", PLAIN_GRID) VIEWS(A, B) FOLD("", "%A[%pm + @0, %l + @1]", "%B[%l + @0, %pn + @1]") NARROW_STORE

/* No program to five, and more, that two or three instances share out; no strip to more than the ring has, whose turns the others' programs take; sizes that are no
 * multiples; a program of eight warps. */
static void test_instances(void **state)
{
    static const char *const text[] = {NARROW("[k*8, 1]", "[n*8, 1]"), NARROW("[1, m*8]", "[1, k*8]")};
    static const int64_t depths[] = {0, 1, 25, 57};
    (void)state;
    for (int64_t programs = 0; programs <= 5; programs++)
        for (size_t i = 0; i < TN_COUNT(depths); i++)
            check_instances(text[0], &(shape){programs * 8 - (programs > 2), 7, depths[i], 64, 64, 4, 2, 2 + (int)(depths[i] % 3), 2}, true, NULL, (uint64_t)(programs * 10) + i);
    check_instances(text[0], &(shape){33, 9, 41, 64, 64, 4, 2, 4, 1}, true, NULL, 1);
    check_instances(text[1], &(shape){9, 33, 25, 64, 64, 4, 2, 3, 2}, true, NULL, 2);
    check_instances(text[0], &(shape){25, 17, 17, 64, 64, 4, 3, 2, 3}, true, NULL, 3);
    check_instances(text[1], &(shape){30, 9, 24, 64, 64, 4, 4, 3, 0}, true, NULL, 4);
    check_instances(text[0], &(shape){33, 16, 17, 128, 64, 8, 2, 3, 1}, true, NULL, 5);
    check_instances(text[0], &(shape){33, 17, 9, 128, 128, 4, 2, 5, 2}, true, NULL, 6);
}

/* Factors of 8 bits, which lie along k both; a bias, which is loaded before the products, and so where there are none to do. */
static void test_narrow_instances(void **state)
{
    static const char text[] =
        "kernel @product(%a: f8e4m3fn[m*k*128] read align 16, %b: f8e4m3fn[k*n*128] read align 16, %bias: bf16[n*8] read align 16, %y: bf16[m*n*64] write align 16) grid(" PLAIN_GRID ") {\n"
        "  view %A = %a : [m*8, k*16] strides [k*16, 1]\n  view %B = %b : [k*16, n*8] strides [1, k*16]\n  view %BIAS = %bias : [n*8] strides [1]\n  view %Y = %y : [m*8, n*8] strides [n*8, 1]\n"
        "  %kk = size k*16 : i64\n  %s = fold @dot (%l : %kk by 128) axes [] order any identity [0] : $M x $N x f32 {\n"
        "    %0 = load %A[%pm + @0, %l + @1] : $M x 128 x f8e4m3fn\n    %1 = load %B[%l + @0, %pn + @1] : 128 x $N x f8e4m3fn\n    %2 = dot %0, %1 : $M x $N x f32\n    yield %2\n"
        "  } combine (%x: f32, %z: f32) {\n    %1 = add %x, %z : f32\n    yield %1\n  }\n"
        "  %w = load %BIAS[%pn + @1] : $M x $N x bf16\n  %c = cast %s : $M x $N x bf16\n  %h = add %c, %w : $M x $N x bf16\n  store %Y[%pm + @0, %pn + @1], %h\n}\n";
    (void)state;
    check_instances(text, &(shape){9, 9, 17, 64, 64, 4, 2, 3, 2}, true, NULL, 1);
    check_instances(text, &(shape){33, 17, 25, 128, 128, 4, 2, 6, 8}, true, NULL, 2);
    check_instances(text, &(shape){33, 9, 0, 64, 64, 4, 2, 2, 0}, true, NULL, 3);
}

/* Where instances would share memory, differ in their turns, or wait for each other. */
static void test_alone(void **state)
{
    static const shape small = {17, 9, 17, 64, 64, 4, 2, 3, 0};
    static const struct {
        const char *text, *remark;
    } cases[] = {
        {NARROW_HEAD("m*k*64", "k*n*64", "write", PLAIN_GRID) VIEWS("[k*8, 1]", "[n*8, 1]")
             FOLD("", "%A[%pm + @0, %l + @1]", "%B[%l + @0, %pn + @1]")
             "  %sum = reduce %s axes [1] order any identity [0] : $M x f32 combine (%x: f32, %z: f32) {\n    %1 = add %x, %z : f32\n    yield %1\n  }\n"
             "  %all = reduce %sum axes [0] order any identity [0] : f32 combine (%x: f32, %z: f32) {\n    %1 = add %x, %z : f32\n    yield %1\n  }\n"
             "  %wide = broadcast %all axes [] : $M x $N x f32\n  %u = sub %s, %wide : $M x $N x f32\n  %h = cast %u : $M x $N x bf16\n  store %Y[%pm + @0, %pn + @1], %h\n}\n",
         "no instances: what comes behind the products takes shared memory"},
        {NARROW_HEAD("m*k*64", "k*n*64", "write", PLAIN_GRID) VIEWS("[k*8, 1]", "[n*8, 1]") "  %size = size k*8 : i64\n  %less = min %size, %pm : i64\n"
             "  %s = fold @dot (%l : %less by 64) axes [] order any identity [0] : $M x $N x f32 {\n    %0 = load %A[%pm + @0, %l + @1] : $M x 64 x bf16\n"
             "    %1 = load %B[%l + @0, %pn + @1] : 64 x $N x bf16\n    %2 = dot %0, %1 : $M x $N x f32\n    yield %2\n"
             "  } combine (%x: f32, %z: f32) {\n    %1 = add %x, %z : f32\n    yield %1\n  }\n" NARROW_STORE, "no instances: programs differ in their turns"},
        {NARROW_HEAD("m*k*64", "k*n*64", "write", PLAIN_GRID) VIEWS("[k*8, 1]", "[n*8, 1]") FOLD("", "%A[%pm + @0, %l + @1]", "%B[%l + @0, %pn + @1]") SECOND
             "  %h = cast %both : $M x $N x bf16\n  store %Y[%pm + @0, %pn + @1], %h\n}\n", "no instances: there is more than one fold's product"},
    };
    (void)state;
    for (size_t i = 0; i < TN_COUNT(cases); i++)
        check_instances(cases[i].text, &small, false, cases[i].remark, i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_orders), cmocka_unit_test(test_uneven), cmocka_unit_test(test_batch), cmocka_unit_test(test_far_starts), cmocka_unit_test(test_several), cmocka_unit_test(test_loop), cmocka_unit_test(test_declined),
                                       cmocka_unit_test(test_instances),
        cmocka_unit_test(test_narrow_instances), cmocka_unit_test(test_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
