/* Loops of two products whose turns run into each other: against the definitions, by the interpreter of the Loop IR, and where they must not. */
#include "tile_test.h"

typedef struct shape {
    int64_t q, s; /* rows, keys */
    int64_t M;
    int warps;
    const char *n, *d; /* keys of a block, columns */
} shape;

/* A softmax between two products. #S: scores of %dots; #A: %a1, the sums of weights times values. */
static const char *const attention =
    "kernel @attention(%q: bf16[q*#D] read align 16, %k: bf16[s*#D] read align 16, %v: bf16[s*#D] read align 16, %y: bf16[q*#D] write) grid(%p : q by $M) {\n"
    "  view %Q = %q : [q, #D] strides [#D, 1]\n  view %K = %k : [#D, s] strides [1, #D]\n  view %V = %v : [s, #D] strides [#D, 1]\n"
    "  view %Y = %y : [q, #D] strides [#D, 1]\n  %zero = const 0 : i64\n  %ss = size s : i64\n  %lowest = const -inf : $M x f32\n  %none = const 0 : $M x f32\n"
    "  %empty = const 0 : $M x #D x f32\n  %step = const #N : i64\n  %qt = load %Q[%p + @0, %zero + @1] : $M x #D x bf16\n  %ps = range %p : $M x i64\n"
    "  %m, %l, %acc = for (%j = %zero to %ss by %step) carry (%m0 = %lowest: $M x f32, %l0 = %none: $M x f32, %a0 = %empty: $M x #D x f32)"
    " : $M x f32, $M x f32, $M x #D x f32 {\n"
    "    %kt = load %K[%zero + @0, %j + @1] : #D x #N x bf16\n    %dots = dot %qt, %kt : $M x #N x f32\n    %js = range %j : #N x i64\n"
    "    %jb = broadcast %js axes [1] : $M x #N x i64\n    %sb = broadcast %ss axes [] : $M x #N x i64\n    %ok = lt %jb, %sb : $M x #N x bool\n"
    "    %far = const -inf : $M x #N x f32\n    #S\n"
    "    %m1 = reduce %scores axes [1] order any identity [-inf] : $M x f32 combine (%x: f32, %z: f32) {\n      %w = max %x, %z : f32\n      yield %w\n    }\n"
    "    %m2 = max %m0, %m1 : $M x f32\n    %mb = broadcast %m2 axes [0] : $M x #N x f32\n    %dd = sub %scores, %mb : $M x #N x f32\n    %e = exp %dd : $M x #N x f32\n"
    "    %dm = sub %m0, %m2 : $M x f32\n    %scale = exp %dm : $M x f32\n"
    "    %sum = reduce %e axes [1] order any identity [0] : $M x f32 combine (%x: f32, %z: f32) {\n      %w = add %x, %z : f32\n      yield %w\n    }\n"
    "    %l1 = fma %l0, %scale, %sum : $M x f32\n    %vt = load %V[%j + @0, %zero + @1] : #N x #D x bf16\n    %eb = cast %e : $M x #N x bf16\n    %sc = broadcast %scale axes [0] : $M x #D x f32\n"
    "    #A\n    yield %m2, %l1, %a1\n  }\n"
    "  %lb = broadcast %l axes [0] : $M x #D x f32\n  %o = div %acc, %lb : $M x #D x f32\n  %ob = cast %o : $M x #D x bf16\n  store %Y[%p + @0, %zero + @1], %ob\n}\n";

#define VISIBLE "%scores = select %ok, %dots, %far : $M x #N x f32"
#define CAUSAL "%pb = broadcast %ps axes [0] : $M x #N x i64\n    %seen = le %jb, %pb : $M x #N x bool\n    %both = and %ok, %seen : $M x #N x bool\n    %scores = select %both, %dots, %far : $M x #N x f32"
#define DOT "%pv = dot %eb, %vt : $M x #D x f32\n    "
#define FUSED DOT "%a1 = fma %a0, %sc, %pv : $M x #D x f32"
#define SCALED "%as = mul %a0, %sc : $M x #D x f32\n    " DOT "%a1 = add %as, %pv : $M x #D x f32"
#define TWICE "%as = mul %a0, %sc : $M x #D x f32\n    " DOT "%b1 = add %pv, %pv : $M x #D x f32\n    %a1 = fma %b1, %sc, %as : $M x #D x f32"

static const char *filled(tn_arena *arena, const shape *s, const char *scores, const char *sums)
{
    const char *const by[][2] = {{"S", scores}, {"A", sums}, {"N", s->n}, {"D", s->d}};
    const char *text = attention;
    for (size_t i = 0; i < TN_COUNT(by); i++) {
        tn_text out = {.arena = arena};
        for (const char *c = text; *c; c++)
            if (*c == '#' && c[1] == by[i][0][0])
                tn_text_add(&out, "%s", by[i][1]), c++;
            else
                tn_text_put(&out, c, 1);
        text = out.at;
    }
    return text;
}

static variant variant_of(const shape *s) { return (variant){.size = {{"q", s->q}, {"s", s->s}}, .bind = {{"$M", s->M}}}; }

static tn_lfunc *lowered(tn_session *session, const char *text, const variant *v, int warps)
{
    tn_kernel *kernel = tile_variant(session, text, v);
    tn_lfunc *func = NULL;
    tn_schedule_set(kernel, "", "warps", warps);
    assert_int_equal(tn_gpu_lower(session, kernel, tn_machine_find("sm_90a"), &func), TN_OK);
    return func;
}

/* overlaps: whether turns run into each other. */
static void check(const shape *s, const char *scores, const char *sums, bool overlaps, uint64_t seed)
{
    tn_arena arena = {0};
    const char *text = filled(&arena, s, scores, sums);
    variant v = variant_of(s);
    tn_session *session = new_test_session();
    tn_lfunc *func = lowered(session, text, &v, s->warps);
    if (!strstr(func->remarks, "a turn's first product runs") != !overlaps)
        fail_msg("remarks: %s", func->remarks);
    free_test_session(session);
    assert_int_equal(check_gpu_kernel(text, &v, s->warps, seed), TN_OK);
    tn_arena_free(&arena);
}

/* No key, one block, two, more than a ring holds, parts of blocks; several programs a CTA. */
static void test_lengths(void **state)
{
    static const shape shapes[] = {{70, 0, 64, 4, "64", "64"}, {70, 50, 64, 4, "64", "64"}, {64, 128, 64, 4, "64", "64"}, {150, 450, 64, 4, "64", "64"},
                                   {100, 300, 128, 8, "64", "128"}, {200, 260, 128, 8, "128", "64"}, {300, 200, 256, 16, "64", "64"}};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(shapes); i++)
        check(&shapes[i], VISIBLE, FUSED, true, i);
}

/* What comes of the second product, in several spellings; masks that hide rows' first or last blocks. */
static void test_spellings(void **state)
{
    static const shape s = {130, 200, 64, 4, "64", "64"};
    (void)state;
    check(&s, VISIBLE, SCALED, true, 1);
    check(&s, CAUSAL, SCALED, true, 2);
    check(&s, CAUSAL, FUSED, true, 3);
    check(&s, VISIBLE, TWICE, true, 4);
}

/* Weights that read what the second product gave a turn before. */
static void test_declined(void **state)
{
    static const shape small = {64, 128, 64, 4, "64", "64"};
    (void)state;
    check(&small, "%h = mul %dots, %dots : $M x #N x f32\n    %hh = add %h, %a0 : $M x #N x f32\n    %scores = select %ok, %hh, %far : $M x #N x f32", FUSED, false, 1);
}

/* The same in two loops, over whole blocks of keys and over what is left, which go on with one ring for keys and one for values. */
static const char *in_two_loops(tn_arena *arena, const char *text)
{
    const char *loop = strstr(text, "  %m, %l, %acc = for"), *end = strstr(loop, "    yield %m2, %l1, %a1\n  }\n");
    assert_non_null(end);
    int before = (int)(loop - text), length = (int)(end - loop) + (int)strlen("    yield %m2, %l1, %a1\n  }\n");
    const char *const to[][2] = {{"%zero to %ss", "%zero to %whole"}, {"%m, %l, %acc = for", "%mw, %lw, %accw = for"}};
    const char *const from[][2] = {{"%zero to %ss", "%whole to %ss"}, {"%m0 = %lowest:", "%m0 = %mw:"}, {"%l0 = %none:", "%l0 = %lw:"}, {"%a0 = %empty:", "%a0 = %accw:"}};
    const char *part[2] = {tn_format(arena, "%.*s", length, loop), tn_format(arena, "%.*s", length, loop)};
    for (size_t i = 0; i < TN_COUNT(to) + TN_COUNT(from); i++) {
        const char *const *by = i < TN_COUNT(to) ? to[i] : from[i - TN_COUNT(to)], **at = &part[i >= TN_COUNT(to)], *found = strstr(*at, by[0]);
        *at = tn_format(arena, "%.*s%s%s", (int)(found - *at), *at, by[1], found + strlen(by[0]));
    }
    return tn_format(arena, "%.*s  %%blocks = div %%ss, %%step : i64\n  %%whole = mul %%blocks, %%step : i64\n%s%s%s", before, text, part[0], part[1], loop + length);
}

static void check_two(const shape *s, const char *scores, uint64_t seed)
{
    tn_arena arena = {0};
    const char *text = in_two_loops(&arena, filled(&arena, s, scores, SCALED)), *first;
    variant v = variant_of(s);
    tn_session *session = new_test_session();
    tn_lfunc *func = lowered(session, text, &v, s->warps);
    first = strstr(func->remarks, "a turn's first product runs");
    assert_true(first && strstr(first + 1, "a turn's first product runs"));
    int buffers = 0;
    for (const tn_lop *op = func->body->first; op; op = op->next)
        buffers += op->code == TN_L_alloc && op->result->type.space == TN_SPACE_SHARED && op->result->type.dtype == TN_BF16;
    assert_int_equal(buffers, 3); /* of rows, keys and values */
    free_test_session(session);
    assert_int_equal(check_gpu_kernel(text, &v, s->warps, seed), TN_OK);
    tn_arena_free(&arena);
}

/* No whole block, no rest, more whole ones than a ring has stages, several programs a CTA. */
static void test_two_loops(void **state)
{
    static const shape shapes[] = {{70, 50, 64, 4, "64", "64"}, {64, 128, 64, 4, "64", "64"}, {200, 450, 64, 4, "64", "64"}, {100, 300, 128, 8, "64", "128"}};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(shapes); i++) {
        check_two(&shapes[i], VISIBLE, i);
        check_two(&shapes[i], CAUSAL, i);
    }
}

/* Products of as many turns as a program has blocks before it, of several heads. */
static const char *const triangle =
    "kernel @triangle(%q: bf16[h*q*64] read align 16, %k: bf16[h*64*q] read align 16, %y: f32[h*q*64] write) grid(%a : h by 1, %p : q by 64) {\n"
    "  view %Q = %q : [h, q, 64] strides [64*q, 64, 1]\n  view %K = %k : [h, 64, q] strides [64*q, 1, 64]\n  view %Y = %y : [h, q, 64] strides [64*q, 64, 1]\n"
    "  %zero = const 0 : i64\n  %step = const 64 : i64\n  %s = size q : i64\n  %left = sub %s, %p : i64\n  %next = add %p, %step : i64\n  %none = const 0 : 64 x 64 x f32\n"
    "  %qt = load %Q[%a, %p + @0, %zero + @1] : 64 x 64 x bf16\n"
    "  %sum = for (%j = #L by %step) carry (%s0 = %none: 64 x 64 x f32) : 64 x 64 x f32 {\n"
    "    %kt = load %K[%a, %zero + @0, %j + @1] : 64 x 64 x bf16\n    %d = dot %qt, %kt : 64 x 64 x f32\n    %s1 = add %s0, %d : 64 x 64 x f32\n    yield %s1\n  }\n"
    "  store %Y[%a, %p + @0, %zero + @1], %sum\n}#E\n";

/* order: what the remarks say of it. Few heads, one more than are one band, and bands of which the last is not full; rows that end in a block. */
static void check_order(const char *turns, const char *end, const char *order, int64_t heads, int64_t rows)
{
    tn_arena arena = {0};
    const char *text = triangle;
    const char *const by[][2] = {{"#L", turns}, {"#E", end}};
    for (size_t i = 0; i < TN_COUNT(by); i++) {
        const char *at = strstr(text, by[i][0]);
        text = tn_format(&arena, "%.*s%s%s", (int)(at - text), text, by[i][1], at + 2);
    }
    variant v = {.size = {{"h", heads}, {"q", rows}}};
    tn_session *session = new_test_session();
    tn_lfunc *func = lowered(session, text, &v, 4);
    assert_true(order ? strstr(func->remarks, order) != NULL : strstr(func->remarks, "coordinates first") == NULL);
    free_test_session(session);
    assert_int_equal(check_gpu_kernel(text, &v, 4, (uint64_t)(heads + rows)), TN_OK);
    tn_arena_free(&arena);
}

static void test_order(void **state)
{
    (void)state;
    check_order("%zero to %next", "", "programs of the largest coordinates first", 1, 320);
    check_order("%zero to %next", "", "programs of the largest coordinates first", 3, 200);
    check_order("%zero to %next", "", "programs of the largest coordinates first", 65, 128);
    check_order("%p to %s", "", "programs of the smallest coordinates first", 70, 100);
    check_order("%zero to %left", "", "programs of the smallest coordinates first", 2, 192);
    check_order("%zero to %s", "", NULL, 2, 192);
    check_order("%p to %next", "", NULL, 2, 192);
    check_order("%zero to %next", " schedule { set longest = 0 }", NULL, 2, 192);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lengths), cmocka_unit_test(test_spellings), cmocka_unit_test(test_declined), cmocka_unit_test(test_two_loops), cmocka_unit_test(test_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
