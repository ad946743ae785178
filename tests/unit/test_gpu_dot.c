/* Products on a GPU against the definitions: every instruction, operands that lie either way, are copied without registers or computed, sizes that leave
 * parts of tiles. Threads run in lockstep by the interpreter of the Loop IR, which tells a barrier that is missing, and fills what copies have not brought. */
#include "tile_test.h"

typedef struct shape {
    int64_t m, n, k, M, N, K; /* sizes in units of `unit`; tiles */
    int warps, stages;        /* 0: default */
} shape;

/* #A, #B: the views' order; #T, #S, #O: types of operands, sum, result; #U: what sizes are multiples of. */
static const char *const fold =
    "kernel @product(%a: #T[m*k*#U*#U] read align 16, %b: #T[k*n*#U*#U] read align 16, %c: #O[n*#U] read, %y: #O[m*n*#U*#U] write align 16)"
    " grid(%pm : m*#U by $M, %pn : n*#U by $N) {\n"
    "  view %A = %a : [m*#U, k*#U] strides #A\n  view %B = %b : [k*#U, n*#U] strides #B\n  view %C = %c : [n*#U] strides [1]\n"
    "  view %Y = %y : [m*#U, n*#U] strides [n*#U, 1]\n  %kk = size k*#U : i64\n"
    "  %s = fold @dot (%l : %kk by $K) axes [] order any identity [0] : $M x $N x #S {\n"
    "    %0 = load %A[%pm + @0, %l + @1] : $M x $K x #T\n    %1 = load %B[%l + @0, %pn + @1] : $K x $N x #T\n    #X\n"
    "    %2 = dot #L, %1 : $M x $N x #S\n    yield %2\n  } combine (%x: #S, %z: #S) {\n    %1 = add %x, %z : #S\n    yield %1\n  }\n"
    "  %c1 = load %C[%pn + @0] : $N x #O\n  %cb = broadcast %c1 axes [1] : $M x $N x #O\n  %t = cast %s : $M x $N x #O\n"
    "  %u = add %t, %cb : $M x $N x #O\n  store %Y[%pm + @0, %pn + @1], %u\n}\n";

static const char *replaced(tn_arena *arena, const char *text, const char *const (*by)[2], size_t n)
{
    tn_text out = {.arena = arena};
    while (*text) {
        size_t plain = strcspn(text, "#");
        tn_text_put(&out, text, plain);
        text += plain;
        for (size_t i = 0; *text && i < n; i++)
            if (by[i][0][1] == text[1]) {
                const char *inner = replaced(arena, by[i][1], by, n);
                tn_text_add(&out, "%s", inner ? inner : "");
                text += 2;
                break;
            }
    }
    return out.at ? out.at : "";
}

static void check(const char *text, const shape *s, uint64_t seed)
{
    variant v = {.size = {{"m", s->m}, {"n", s->n}, {"k", s->k}}, .bind = {{"$M", s->M}, {"$N", s->N}, {"$K", s->K}}};
    if (s->stages)
        v.set[0] = (setting){"stages", s->stages};
    assert_int_equal(check_gpu_kernel(text, &v, s->warps, seed), TN_OK);
}

typedef struct kind {
    const char *factor, *sum, *out, *unit;
} kind;

/* expression: what the left operand is computed by, as %left; NULL: as it is loaded. */
static void run_orders(const kind *k, const char *expression, const shape *shapes, size_t n)
{
    static const char *const a[] = {"[k*#U, 1]", "[1, m*#U]"}, *const b[] = {"[n*#U, 1]", "[1, k*#U]"};
    tn_arena arena = {0};
    for (int order = 0; order < 4; order++)
        for (size_t i = 0; i < n; i++) {
            const char *const by[][2] = {{"#A", a[order & 1]}, {"#B", b[order >> 1]}, {"#T", k->factor}, {"#S", k->sum}, {"#O", k->out}, {"#U", k->unit}, {"#X", expression ? expression : ""}, {"#L", expression ? "%left" : "%0"}};
            check(replaced(&arena, fold, by, TN_COUNT(by)), &shapes[i], (uint64_t)order * 100 + i);
        }
    tn_arena_free(&arena);
}

static const shape tiles[] = {
    {4, 4, 4, 32, 32, 32, 1, 0},  {5, 7, 9, 32, 32, 16, 4, 2},  {3, 9, 5, 16, 64, 32, 4, 3}, {9, 3, 7, 64, 16, 16, 4, 4},
    {9, 17, 17, 64, 64, 64, 8, 3}, {1, 1, 1, 32, 32, 32, 2, 3}, {8, 4, 16, 64, 32, 64, 4, 1},
};

/* Sizes of 8 elements: copies of 16 bytes. */
static void test_copied(void **state)
{
    static const kind kinds[] = {{"bf16", "f32", "bf16", "8"}, {"f16", "f32", "f32", "8"}, {"f16", "f16", "f16", "8"}};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(kinds); i++)
        run_orders(&kinds[i], NULL, tiles, TN_COUNT(tiles));
}

/* By warpgroups: copied, mixed, all through registers. */
static void test_groups(void **state)
{
    static const kind kinds[] = {{"bf16", "f32", "bf16", "8"}, {"f16", "f32", "f16", "8"}};
    static const shape shapes[] = {{9, 17, 33, 64, 64, 64, 4, 3}, {17, 9, 29, 128, 128, 64, 8, 4}, {7, 19, 17, 64, 128, 128, 4, 2}, {9, 9, 9, 64, 64, 64, 4, 1}};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(kinds); i++)
        run_orders(&kinds[i], NULL, shapes, i ? 1 : TN_COUNT(shapes));
    run_orders(&kinds[0], "%left = add %0, %0 : $M x $K x #T", shapes, 1);
}

/* Sizes that allow copies of 4 bytes, or none. */
static void test_odd(void **state)
{
    static const kind kinds[] = {{"bf16", "f32", "bf16", "2"}, {"f16", "f32", "f16", "1"}};
    static const shape shapes[] = {{17, 31, 21, 32, 32, 16, 2, 3}, {50, 20, 70, 32, 64, 32, 4, 0}};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(kinds); i++)
        run_orders(&kinds[i], NULL, shapes, TN_COUNT(shapes));
}

static void test_bytes(void **state)
{
    static const kind kinds[] = {{"i8", "i32", "i32", "16"}, {"u8", "i32", "i32", "1"}};
    static const shape shapes[] = {{3, 2, 5, 32, 32, 32, 2, 3}, {4, 3, 4, 16, 32, 64, 1, 0}};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(kinds); i++)
        run_orders(&kinds[i], NULL, shapes, TN_COUNT(shapes));
}

/* By multiply-adds: types and extents that no instruction takes. */
static void test_scalar(void **state)
{
    static const kind kinds[] = {{"f32", "f32", "f32", "1"}, {"f64", "f64", "f64", "1"}, {"i16", "i32", "i32", "1"}, {"bf16", "f32", "bf16", "1"}};
    static const shape shapes[] = {{17, 9, 11, 8, 8, 8, 1, 0}, {5, 20, 7, 4, 32, 4, 2, 0}, {1, 33, 19, 1, 32, 16, 4, 0}};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(kinds); i++)
        run_orders(&kinds[i], NULL, shapes, TN_COUNT(shapes));
}

/* The left operand is computed; the right one is copied meanwhile. */
static void test_computed(void **state)
{
    static const kind kinds[] = {{"bf16", "f32", "f32", "8"}};
    (void)state;
    run_orders(&kinds[0], "%left = add %0, %0 : $M x $K x #T", tiles, TN_COUNT(tiles));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copied), cmocka_unit_test(test_odd), cmocka_unit_test(test_groups), cmocka_unit_test(test_bytes), cmocka_unit_test(test_scalar),
                                       cmocka_unit_test(test_computed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
