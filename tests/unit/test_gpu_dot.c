/* Products on a GPU against the definitions: every instruction, operands that lie either way, are copied without registers or computed, sizes that leave
 * parts of tiles. Threads run in lockstep by the interpreter of the Loop IR, which tells a barrier that is missing, and fills what copies have not brought. */
#include "tile_test.h"

typedef struct shape {
    int64_t m, n, k, M, N, K; /* sizes in units of `unit`; tiles */
    int warps, stages;        /* 0: default */
} shape;

/* #A, #B: the views' order; #T, #R, #S, #O: types of operands, sum, result; #U: what sizes are multiples of; #P: precision. */
static const char *const fold =
    "kernel @product(%a: #T[m*k*#U*#U] read align 16, %b: #R[k*n*#U*#U] read align 16, %c: #O[n*#U] read, %y: #O[m*n*#U*#U] write align 16)"
    " grid(%pm : m*#U by $M, %pn : n*#U by $N) {\n"
    "  view %A = %a : [m*#U, k*#U] strides #A\n  view %B = %b : [k*#U, n*#U] strides #B\n  view %C = %c : [n*#U] strides [1]\n"
    "  view %Y = %y : [m*#U, n*#U] strides [n*#U, 1]\n  %kk = size k*#U : i64\n"
    "  %s = fold @dot (%l : %kk by $K) axes [] order any identity [0] : $M x $N x #S {\n"
    "    %0 = load %A[%pm + @0, %l + @1] : $M x $K x #T\n    %1 = load %B[%l + @0, %pn + @1] : $K x $N x #R\n    #X\n"
    "    %2 = dot #L, %1 #P : $M x $N x #S\n    yield %2\n  } combine (%x: #S, %z: #S) {\n    %1 = add %x, %z : #S\n    yield %1\n  }\n"
    "  %c1 = load %C[%pn + @0] : $N x #O\n  %cb = broadcast %c1 axes [1] : $M x $N x #O\n  %t = cast %s : $M x $N x #O\n"
    "  %u = add %t, %cb : $M x $N x #O\n  store %Y[%pm + @0, %pn + @1], %u\n}\n";

static void check_on(const char *text, const shape *s, const char *gpu, double slack, uint64_t seed)
{
    variant v = {.gpu = gpu, .slack = slack, .size = {{"m", s->m}, {"n", s->n}, {"k", s->k}}, .bind = {{"$M", s->M}, {"$N", s->N}, {"$K", s->K}}};
    if (s->stages)
        v.set[0] = (setting){"stages", s->stages};
    assert_int_equal(check_gpu_kernel(text, &v, s->warps, seed), TN_OK);
}

static void check(const char *text, const shape *s, uint64_t seed) { check_on(text, s, NULL, 1, seed); }

typedef struct kind {
    const char *factor, *sum, *out, *unit;
    const char *right;     /* type of the right factor; NULL: of the left one */
    const char *precision; /* NULL: none is said */
    const char *gpu;       /* NULL: sm_90a */
    double slack;          /* of the tolerance; 0: 1 */
} kind;
#define KIND(...) {__VA_ARGS__, NULL, NULL, NULL, 0}

/* expression: what the left operand is computed by, as %left; NULL: as it is loaded. */
static void run_text(const char *text, const kind *k, const char *expression, const shape *shapes, size_t n)
{
    static const char *const a[] = {"[k*#U, 1]", "[1, m*#U]"}, *const b[] = {"[n*#U, 1]", "[1, k*#U]"};
    tn_arena arena = {0};
    for (int order = 0; order < 4; order++)
        for (size_t i = 0; i < n; i++) {
            const char *const by[][2] = {{"#A", a[order & 1]}, {"#B", b[order >> 1]}, {"#T", k->factor}, {"#S", k->sum}, {"#O", k->out}, {"#U", k->unit}, {"#R", k->right ? k->right : k->factor},
                                       {"#P", k->precision ? k->precision : ""}, {"#X", expression ? expression : ""}, {"#L", expression ? "%left" : "%0"}};
            check_on(replaced(&arena, text, by, TN_COUNT(by)), &shapes[i], k->gpu, k->slack, (uint64_t)order * 100 + i);
        }
    tn_arena_free(&arena);
}

static void run_orders(const kind *k, const char *expression, const shape *shapes, size_t n) { run_text(fold, k, expression, shapes, n); }

static const shape tiles[] = {
    {4, 4, 4, 32, 32, 32, 1, 0},  {5, 7, 5, 32, 32, 16, 4, 2},  {3, 9, 5, 16, 64, 32, 4, 3}, {9, 3, 7, 64, 16, 16, 4, 4},
    {9, 9, 17, 64, 64, 64, 8, 3}, {1, 1, 1, 32, 32, 32, 2, 3}, {8, 4, 10, 64, 32, 64, 4, 1},
};

/* Sizes of 8 elements: copies of 16 bytes. */
static void test_copied(void **state)
{
    static const kind kinds[] = {KIND("bf16", "f32", "bf16", "8"), KIND("f16", "f32", "f32", "8"), KIND("f16", "f16", "f16", "8")};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(kinds); i++)
        run_orders(&kinds[i], NULL, tiles + i, i ? 1 : TN_COUNT(tiles));
}

/* By warpgroups: copied, mixed, all through registers. */
static void test_groups(void **state)
{
    static const kind kinds[] = {KIND("bf16", "f32", "bf16", "8"), KIND("f16", "f32", "f16", "8")};
    static const shape shapes[] = {{7, 7, 25, 64, 64, 64, 4, 3}, {15, 9, 17, 128, 64, 64, 8, 4}, {7, 15, 17, 64, 128, 128, 4, 2}, {8, 7, 9, 64, 64, 64, 4, 1}};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(kinds); i++)
        run_orders(&kinds[i], NULL, shapes, i ? 1 : TN_COUNT(shapes));
    run_orders(&kinds[0], "%left = add %0, %0 : $M x $K x #T", shapes, 1);
}

/* Sizes that allow copies of 4 bytes, or none. */
static void test_odd(void **state)
{
    static const kind kinds[] = {KIND("bf16", "f32", "bf16", "2"), KIND("f16", "f32", "f16", "1")};
    static const shape shapes[] = {{17, 31, 21, 32, 32, 16, 2, 3}, {50, 20, 70, 32, 64, 32, 4, 0}};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(kinds); i++)
        run_orders(&kinds[i], NULL, shapes, TN_COUNT(shapes));
}

static void test_bytes(void **state)
{
    static const kind kinds[] = {KIND("i8", "i32", "i32", "16"), KIND("u8", "i32", "i32", "1")};
    static const shape shapes[] = {{3, 2, 5, 32, 32, 32, 2, 3}, {4, 3, 4, 16, 32, 64, 1, 0}};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(kinds); i++)
        run_orders(&kinds[i], NULL, shapes, TN_COUNT(shapes));
}

/* f32 by tf32: what is rounded or cut off is within 2^-10 of each factor; in three parts it is not seen. */
static void test_tf32(void **state)
{
    static const kind kinds[] = {{"f32", "f32", "f32", "4", NULL, "precision tf32", NULL, 20}, {"f32", "f32", "f32", "4", NULL, "precision tf32x3", NULL, 0.02},
                                 {"f32", "f32", "bf16", "1", NULL, "precision tf32", "sm_80", 20}, {"f32", "f32", "f32", "4", NULL, "precision tf32x3", "sm_80", 0.02}};
    static const shape warps[] = {{7, 5, 9, 32, 32, 16, 2, 3}, {4, 9, 3, 16, 32, 8, 1, 0}, {3, 2, 3, 8, 16, 8, 1, 0}}, groups[] = {{17, 18, 19, 64, 64, 32, 4, 3}, {33, 17, 5, 128, 64, 32, 8, 0}};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(kinds); i++)
        run_orders(&kinds[i], NULL, warps, i ? 1 : TN_COUNT(warps));
    run_orders(&kinds[0], NULL, groups, TN_COUNT(groups));
    run_orders(&kinds[0], "%left = add %0, %0 : $M x $K x #T", groups, 1);
}

/* f8 of either kind and of two: by instructions, or as halves where there are none. */
static void test_f8(void **state)
{
    static const kind kinds[] = {{"f8e4m3fn", "f32", "f32", "16", "f8e5m2", NULL, NULL, 0}, {"f8e5m2", "f32", "bf16", "16", NULL, NULL, NULL, 0},
                                 {"f8e5m2", "f32", "f32", "1", "f8e4m3fn", NULL, "sm_80", 0}, {"f8e4m3fn", "f32", "f32", "16", NULL, NULL, "sm_80", 0}};
    static const shape warps[] = {{3, 2, 5, 32, 32, 32, 2, 3}}, groups[] = {{5, 4, 9, 64, 64, 128, 4, 3}};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(kinds); i++)
        run_orders(&kinds[i], NULL, warps, TN_COUNT(warps));
    run_orders(&kinds[0], NULL, groups, TN_COUNT(groups));
    run_orders(&kinds[1], "%left = add %0, %0 : $M x $K x #T", groups, 1);
}

/* Sums of few products of f8, which are added up in registers of their own: all at once, by columns, by rows, several a strip. */
static void test_imprecise(void **state)
{
    static const kind kinds[] = {{"f8e4m3fn", "f32", "f32", "16", NULL, "imprecise 128", NULL, 0}, {"f8e5m2", "f32", "bf16", "16", "f8e4m3fn", "imprecise 64", NULL, 0},
                                 {"f8e4m3fn", "f32", "f32", "16", NULL, "imprecise 128", "sm_80", 0}};
    static const shape shapes[] = {{5, 4, 9, 64, 64, 128, 4, 3}, {5, 17, 17, 64, 256, 128, 4, 2}, {9, 9, 17, 128, 128, 128, 4, 2}, {5, 4, 17, 64, 64, 256, 4, 1}, {9, 17, 9, 128, 256, 128, 8, 2}};
    (void)state;
    run_orders(&kinds[0], NULL, shapes, TN_COUNT(shapes));
    run_orders(&kinds[1], NULL, shapes, 3);
    run_orders(&kinds[2], NULL, shapes, 1);
    run_orders(&kinds[0], "%left = add %0, %0 : $M x $K x #T", shapes, 2);
}

/* Integers by warpgroups, whose factors lie along k, or are turned on their way. */
static void test_byte_groups(void **state)
{
    static const kind kinds[] = {{"i8", "i32", "i32", "16", "u8", NULL, NULL, 0}, KIND("u8", "i32", "i32", "16")};
    static const kind mixed = {"u8", "i32", "i32", "1", "i8", NULL, "sm_80", 0};
    static const shape groups[] = {{5, 5, 9, 64, 64, 128, 4, 3}, {7, 6, 9, 128, 64, 128, 8, 2}};
    (void)state;
    run_orders(&kinds[0], NULL, groups, TN_COUNT(groups));
    run_orders(&kinds[1], "%left = add %0, %0 : $M x $K x #T", groups, 1);
    run_orders(&mixed, NULL, &(shape){35, 40, 70, 32, 32, 32, 2, 0}, 1);
}

/* By multiply-adds in blocks: operands that lie either way, copied or computed. */
static void test_blocks(void **state)
{
    static const kind kinds[] = {KIND("f32", "f32", "f32", "4"), KIND("f64", "f64", "f64", "2"), KIND("i32", "i32", "i32", "1")};
    static const shape shapes[] = {{7, 15, 11, 32, 64, 16, 2, 3}, {9, 9, 9, 16, 64, 8, 1, 0}, {7, 17, 5, 64, 128, 16, 4, 2}};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(kinds); i++)
        run_orders(&kinds[i], NULL, shapes, i ? 1 : TN_COUNT(shapes));
    run_orders(&kinds[0], "%left = add %0, %0 : $M x $K x #T", shapes, 1);
}

/* A convolution: a fold over taps and channels as one loop of copies, under guards that say where the window leaves the image; rows by number. */
static void test_convolution(void **state)
{
    static const char *const text =
        "kernel @convolution(%x: #T[h*w*c*8] read align 16, %f: #T[9*c*64*o] read align 16, %y: f32[h*w*o*8] write) grid(%pp : h*w by $M, %po : o*8 by $N) {\n"
        "  view %X = %x : [h, w, 3, 3, c*8] strides [w*c*8, c*8, w*c*8, c*8, 1] offset -w*c*8 - c*8"
        " guard([1, 0, 1, 0, 0] base -1 limit h) guard([0, 1, 0, 1, 0] base -1 limit w) pad 0\n"
        "  view %F = %f : [3, 3, c*8, o*8] strides [3*c*o*64, c*o*64, o*8, 1]\n  view %Y = %y : [h*w, o*8] strides [o*8, 1]\n"
        "  %three = size 3 : i64\n  %cc = size c*8 : i64\n  %ww = size w : i64\n  %wb = broadcast %ww axes [] : $M x i64\n  %p = range %pp : $M x i64\n"
        "  %ph = div %p, %wb : $M x i64\n  %pw = rem %p, %wb : $M x i64\n"
        "  %s = fold @dot (%th : %three by 1, %tw : %three by 1, %l : %cc by $K) axes [] order any identity [0] : $M x $N x f32 {\n"
        "    %0 = load %X[%ph(@0), %pw(@0), %th, %tw, %l + @1] : $M x $K x #T\n    %1 = load %F[%th, %tw, %l + @0, %po + @1] : $K x $N x #T\n"
        "    %2 = dot %0, %1 : $M x $N x f32\n    yield %2\n  } combine (%a: f32, %b: f32) {\n    %1 = add %a, %b : f32\n    yield %1\n  }\n"
        "  store %Y[%pp + @0, %po + @1], %s\n}\n";
    static const char *const types[] = {"bf16", "f32"};
    tn_arena arena = {0};
    (void)state;
    for (size_t t = 0; t < TN_COUNT(types); t++)
        for (int warps = 1; warps <= 4; warps += 3) {
            const char *const by[][2] = {{"#T", types[t]}};
            variant v = {.size = {{"h", 3}, {"w", 5}, {"c", 3}, {"o", 5}}, .bind = {{"$M", 32}, {"$N", warps > 1 ? 64 : 32}, {"$K", 16}}};
            assert_int_equal(check_gpu_kernel(replaced(&arena, text, by, 1), &v, warps, t), TN_OK);
        }
    tn_arena_free(&arena);
}

/* Parts of k, that programs add up: what is loaded starts at sums of their numbers and the fold's range. The last part ends before its chunk. */
static void test_parts(void **state)
{
    static const char *const text =
        "kernel @parts(%a: bf16[m*k*64] read align 16, %b: bf16[k*n*64] read align 16, %y: f32[256*m*n] write align 16)"
        " grid(%part : 4 by 1, %pm : m*8 by $M, %pn : n*8 by $N) {\n"
        "  view %A = %a : [m*8, k*8] strides [k*8, 1]\n  view %B = %b : [k*8, n*8] strides [n*8, 1]\n  view %Y = %y : [4, m*8, n*8] strides [64*m*n, n*8, 1]\n"
        "  %chunk = const 192 : i64\n"
        "  %s = fold @dot (%l : %chunk by $K) axes [] order any identity [0] : $M x $N x f32 {\n"
        "    %first = mul %part, %chunk : i64\n    %k = add %first, %l : i64\n"
        "    %0 = load %A[%pm + @0, %k + @1] : $M x $K x bf16\n    %1 = load %B[%k + @0, %pn + @1] : $K x $N x bf16\n"
        "    %2 = dot %0, %1 : $M x $N x f32\n    yield %2\n  } combine (%x: f32, %z: f32) {\n    %1 = add %x, %z : f32\n    yield %1\n  }\n"
        "  store %Y[%part, %pm + @0, %pn + @1], %s\n}\n";
    static const shape shapes[] = {{7, 9, 90, 64, 64, 64, 4, 2}, {8, 8, 96, 64, 64, 64, 4, 3}, {7, 5, 90, 32, 32, 32, 2, 3}, {1, 9, 77, 16, 64, 64, 4, 4}};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(shapes); i++)
        check(text, &shapes[i], i);
}

/* A strip's products are scaled by rows, columns and as a whole before they are added up: by warpgroups at once and in parts, by warps, by multiply-adds. */
static void test_scaled(void **state)
{
    static const char *const text =
        "kernel @scaled(%a: #T[m*k*#U*#U] read align 16, %b: #R[k*n*#U*#U] read align 16, %r: f32[m*#U*64] read, %c: f32[n*#U*64] read, %w: f32[64] read, %y: f32[m*n*#U*#U] write align 16)"
        " grid(%pm : m*#U by $M, %pn : n*#U by $N) {\n"
        "  view %A = %a : [m*#U, k*#U] strides #A\n  view %B = %b : [k*#U, n*#U] strides #B\n  view %R = %r : [m*#U, 64] strides [64, 1] pad 0\n"
        "  view %C = %c : [64, n*#U] strides [n*#U, 1] pad 0\n  view %W = %w : [64] strides [1]\n  view %Y = %y : [m*#U, n*#U] strides [n*#U, 1]\n"
        "  %kk = size k*#U : i64\n  %strip = const 32 : i64\n"
        "  %s = fold @dot (%l : %kk by $K) axes [] order any identity [0] : $M x $N x f32 {\n"
        "    %0 = load %A[%pm + @0, %l + @1] : $M x $K x #T\n    %1 = load %B[%l + @0, %pn + @1] : $K x $N x #R\n    %q = div %l, %strip : i64\n"
        "    %2 = dot %0, %1 #P : $M x $N x #S\n    %3 = cast %2 : $M x $N x f32\n"
        "    %4 = load %R[%pm + @0, %q] : $M x f32\n    %5 = broadcast %4 axes [0] : $M x $N x f32\n    %6 = mul %3, %5 : $M x $N x f32\n"
        "    %7 = load %C[%q, %pn + @0] : $N x f32\n    %8 = broadcast %7 axes [1] : $M x $N x f32\n    %9 = mul %6, %8 : $M x $N x f32\n"
        "    %10 = load %W[%q] : f32\n    %11 = broadcast %10 axes [] : $M x $N x f32\n    %12 = mul %9, %11 : $M x $N x f32\n"
        "    yield %12\n  } combine (%x: f32, %z: f32) {\n    %1 = add %x, %z : f32\n    yield %1\n  }\n  store %Y[%pm + @0, %pn + @1], %s\n}\n";
    static const kind kinds[] = {{"f8e4m3fn", "f32", "f32", "16", NULL, "imprecise 128", NULL, 0}, KIND("i8", "i32", "i32", "16"), KIND("bf16", "f32", "f32", "8"),
                                 {"f8e4m3fn", "f32", "f32", "16", NULL, NULL, "sm_80", 0}, KIND("f32", "f32", "f32", "4")};
    static const shape shapes[][2] = {{{9, 9, 17, 128, 128, 128, 4, 2}, {5, 4, 9, 64, 64, 128, 4, 3}}, {{5, 17, 9, 64, 256, 128, 4, 2}, {5, 4, 9, 32, 32, 32, 2, 3}},
                                      {{9, 7, 25, 64, 64, 64, 4, 3}, {5, 7, 5, 32, 32, 32, 4, 2}}, {{3, 2, 5, 32, 32, 32, 2, 3}, {3, 2, 9, 32, 16, 64, 1, 0}},
                                      {{9, 9, 17, 32, 32, 32, 2, 2}, {3, 2, 9, 8, 8, 32, 1, 0}}};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(kinds); i++)
        run_text(text, &kinds[i], NULL, shapes[i], 2);
}

/* What the fold gives is stored as it is. */
static void test_bare(void **state)
{
    static const char *const text =
        "kernel @bare(%a: i8[m*k*256] read align 16, %b: i8[k*n*256] read align 16, %y: i32[m*n*256] write align 16) grid(%pm : m*16 by $M, %pn : n*16 by $N) {\n"
        "  view %A = %a : [m*16, k*16] strides [k*16, 1]\n  view %B = %b : [k*16, n*16] strides [1, k*16]\n  view %Y = %y : [m*16, n*16] strides [n*16, 1]\n"
        "  %kk = size k*16 : i64\n  %s = fold @dot (%l : %kk by $K) axes [] order any identity [3] : $M x $N x i32 {\n"
        "    %0 = load %A[%pm + @0, %l + @1] : $M x $K x i8\n    %1 = load %B[%l + @0, %pn + @1] : $K x $N x i8\n    %2 = dot %0, %1 : $M x $N x i32\n    yield %2\n"
        "  } combine (%x: i32, %z: i32) {\n    %1 = add %x, %z : i32\n    yield %1\n  }\n  store %Y[%pm + @0, %pn + @1], %s\n}\n";
    (void)state;
    check(text, &(shape){5, 6, 7, 64, 64, 64, 4, 3}, 1);
}

/* By multiply-adds: types and extents that no instruction takes. */
static void test_scalar(void **state)
{
    static const kind kinds[] = {KIND("f32", "f32", "f32", "1"), KIND("f64", "f64", "f64", "1"), KIND("i16", "i32", "i32", "1"), KIND("bf16", "f32", "bf16", "1")};
    static const shape shapes[] = {{17, 9, 11, 8, 8, 8, 1, 0}, {5, 20, 7, 4, 32, 4, 2, 0}, {1, 33, 19, 1, 32, 16, 4, 0}};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(kinds); i++)
        run_orders(&kinds[i], NULL, shapes, TN_COUNT(shapes));
}

/* The left operand is computed; the right one is copied meanwhile. */
static void test_computed(void **state)
{
    static const kind kinds[] = {KIND("bf16", "f32", "f32", "8")};
    (void)state;
    run_orders(&kinds[0], "%left = add %0, %0 : $M x $K x #T", tiles + 1, 3);
}

/* Two products in a loop with a softmax between: operands are copied ahead of the loop's turns, probabilities stay in registers as the second one's left operand,
 * and its accumulators start at what the loop carries. */
static const char *const attention =
    "kernel @attention(%q: bf16[q*#D] read align 16, %k: bf16[s*#D] read align 16, %v: bf16[s*#D] read align 16, %y: bf16[q*#D] write) grid(%p : q by $M) {\n"
    "  view %Q = %q : [q, #D] strides [#D, 1]\n  view %K = %k : [#D, s] strides [1, #D]\n  view %V = %v : [s, #D] strides [#D, 1]\n"
    "  view %Y = %y : [q, #D] strides [#D, 1]\n  %zero = const 0 : i64\n  %ss = size s : i64\n  %lowest = const -inf : $M x f32\n  %none = const 0 : $M x f32\n"
    "  %empty = const 0 : $M x #D x f32\n  %step = const #N : i64\n  %qt = load %Q[%p + @0, %zero + @1] : $M x #D x bf16\n"
    "  %m, %l, %acc = for (%j = %zero to %ss by %step) carry (%m0 = %lowest: $M x f32, %l0 = %none: $M x f32, %a0 = %empty: $M x #D x f32)"
    " : $M x f32, $M x f32, $M x #D x f32 {\n"
    "    %kt = load %K[%zero + @0, %j + @1] : #D x $N x bf16\n    %dots = dot %qt, %kt : $M x $N x f32\n    %js = range %j : $N x i64\n"
    "    %jb = broadcast %js axes [1] : $M x $N x i64\n    %sb = broadcast %ss axes [] : $M x $N x i64\n    %ok = lt %jb, %sb : $M x $N x bool\n"
    "    %far = const -inf : $M x $N x f32\n    %scores = select %ok, %dots, %far : $M x $N x f32\n"
    "    %m1 = reduce %scores axes [1] order any identity [-inf] : $M x f32 combine (%x: f32, %z: f32) {\n      %w = max %x, %z : f32\n      yield %w\n    }\n"
    "    %m2 = max %m0, %m1 : $M x f32\n    %mb = broadcast %m2 axes [0] : $M x $N x f32\n    %d = sub %scores, %mb : $M x $N x f32\n    %e = exp %d : $M x $N x f32\n"
    "    %dm = sub %m0, %m2 : $M x f32\n    %scale = exp %dm : $M x f32\n"
    "    %sum = reduce %e axes [1] order any identity [0] : $M x f32 combine (%x: f32, %z: f32) {\n      %w = add %x, %z : f32\n      yield %w\n    }\n"
    "    %l1 = fma %l0, %scale, %sum : $M x f32\n    %vt = load %V[%j + @0, %zero + @1] : $N x #D x bf16\n    %eb = cast %e : $M x $N x bf16\n"
    "    %pv = dot %eb, %vt : $M x #D x f32\n    %sc = broadcast %scale axes [0] : $M x #D x f32\n    #X\n    yield %m2, %l1, %a1\n  }\n"
    "  %lb = broadcast %l axes [0] : $M x #D x f32\n  %o = div %acc, %lb : $M x #D x f32\n  %ob = cast %o : $M x #D x bf16\n  store %Y[%p + @0, %zero + @1], %ob\n}\n";

static void test_attention(void **state)
{
    static const char *const sums[] = {"%as = mul %a0, %sc : $M x #D x f32\n    %a1 = add %as, %pv : $M x #D x f32", "%a1 = fma %a0, %sc, %pv : $M x #D x f32",
                                       "%as = mul %a0, %sc : $M x #D x f32\n    %b1 = add %pv, %pv : $M x #D x f32\n    %a1 = fma %b1, %sc, %as : $M x #D x f32"};
    static const int64_t shapes[][6] = {{40, 70, 32, 32, 2, 32}, {64, 96, 64, 32, 4, 32}, {20, 50, 16, 64, 4, 32}, {33, 8, 64, 16, 2, 32}, {70, 150, 64, 64, 4, 64}, {100, 90, 128, 64, 8, 64}};
    tn_arena arena = {0};
    (void)state;
    for (size_t s = 0; s < TN_COUNT(sums); s++)
        for (size_t i = 0; i < TN_COUNT(shapes) - 2 * (s > 0); i++) {
            const int64_t *shape = shapes[i];
            const char *n = tn_format(&arena, "%lld", (long long)shape[3]), *d = tn_format(&arena, "%lld", (long long)shape[5]);
            const char *const by[][2] = {{"#X", sums[s]}, {"#N", n}, {"#D", d}};
            variant v = {.size = {{"q", shape[0]}, {"s", shape[1]}}, .bind = {{"$M", shape[2]}, {"$N", shape[3]}}};
            if (i == 1)
                v.set[0] = (setting){"stages", 2};
            assert_int_equal(check_gpu_kernel(replaced(&arena, attention, by, TN_COUNT(by)), &v, (int)shape[4], i), TN_OK);
        }
    tn_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copied), cmocka_unit_test(test_odd), cmocka_unit_test(test_groups), cmocka_unit_test(test_bytes), cmocka_unit_test(test_byte_groups), cmocka_unit_test(test_tf32), cmocka_unit_test(test_f8), cmocka_unit_test(test_imprecise), cmocka_unit_test(test_scalar), cmocka_unit_test(test_parts), cmocka_unit_test(test_scaled), cmocka_unit_test(test_bare), cmocka_unit_test(test_convolution), cmocka_unit_test(test_blocks),
                                       cmocka_unit_test(test_computed), cmocka_unit_test(test_attention)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
