/* What attention's backward has beside its forward: operands that several products of a loop read, along rows and turned, from one copy; scores that lie turned, so
 * that weights are a left factor in registers; left factors that are computed and stored. By the interpreter of the Loop IR, where boxes are copied and where not. */
#include "tile_test.h"

typedef struct shape {
    int64_t q, s, M, N, D;
    int warps;
} shape;

#define BUFFERS                                                                                                                                                           \
    "%q: bf16[2*q*#D] read align 16, %k: bf16[2*s*#D] read align 16, %v: bf16[2*s*#D] read align 16, %d: bf16[2*q*#D] read align 16, %l: f32[2*q] read align 16, "          \
    "%e: f32[2*q] read align 16"
#define VIEWS                                                                                                                                                             \
    "  view %Q = %q : [2, q, #D] strides [q*#D, #D, 1] pad 0\n  view %K = %k : [2, s, #D] strides [s*#D, #D, 1] pad 0\n"                                                    \
    "  view %V = %v : [2, s, #D] strides [s*#D, #D, 1] pad 0\n  view %O = %d : [2, q, #D] strides [q*#D, #D, 1] pad 0\n"                                                    \
    "  view %L = %l : [2, q] strides [q, 1] pad inf\n  view %E = %e : [2, q] strides [q, 1] pad 0\n"
#define NUMBERS "  %zero = const 0 : i64\n  %scale = const 0.1 : f32\n  %qq = size q : i64\n  %ss = size s : i64\n"
/* exp2 of the scores less what is `AXIS`-wise theirs, where keys are no later than rows; what its derivative is. */
#define WEIGHTS(T, KEYS, ROWS)                                                                                                                                            \
    "    %sb = broadcast %scale axes [] : " T " x f32\n    %x1 = fma %x, %sb, %lm : " T " x f32\n"                   \
    "    %p1 = exp2 %x1 : " T " x f32\n    %ks = range %kf : $N x i64\n    %rs = range %rf : $M x i64\n    %kb = broadcast %ks axes [" KEYS "] : " T " x i64\n"              \
    "    %rb = broadcast %rs axes [" ROWS "] : " T " x i64\n    %ok = le %kb, %rb : " T " x bool\n    %none = const 0 : " T " x f32\n"                                      \
    "    %p = select %ok, %p1, %none : " T " x f32\n    %pb = cast %p : " T " x bf16\n"
#define DERIVATIVE(T, ROWS, D)                                                                                                                                             \
    "    %eb = broadcast %et axes [" ROWS "] : " T " x f32\n    %d1 = " D " : " T " x f32\n    %ds = mul %p, %d1 : " T " x f32\n    %db = cast %ds : " T " x bf16\n"
#define SUB "sub %dp, %eb"
#define NEGATED(T, ROWS) "    %ln = broadcast %lt axes [" ROWS "] : " T " x f32\n    %lm = neg %ln : " T " x f32\n"

/* Scores of keys by rows: both results' left factors lie in registers as the scores do. */
#define BY_KEYS(EARLY, D, LATE)                                                                                                                                           \
    "kernel @keys(" BUFFERS ", %y: bf16[2*s*#D] write align 16, %z: bf16[2*s*#D] write align 16) grid(%h : 2 by 1, %kf : s by $N) {\n" VIEWS                              \
    "  view %Y = %y : [2, s, #D] strides [s*#D, #D, 1]\n  view %Z = %z : [2, s, #D] strides [s*#D, #D, 1]\n" NUMBERS "  %step = const #M : i64\n"                         \
    "  %n0 = const 0 : $N x #D x f32\n  %kt = load %K[%h, %kf + @0, %zero + @1] : $N x #D x bf16\n  %vt = load %V[%h, %kf + @0, %zero + @1] : $N x #D x bf16\n"           \
    "  %dk, %dv = for (%rf = %zero to %qq by %step) carry (%a = %n0: $N x #D x f32, %c = %n0: $N x #D x f32) : $N x #D x f32, $N x #D x f32 {\n"                          \
    "    %qt = load %Q[%h, %rf + @0, %zero + @1] : $M x #D x bf16\n    %ot = load %O[%h, %rf + @0, %zero + @1] : $M x #D x bf16\n"                                        \
    "    %lt = load %L[%h, %rf + @0] : $M x f32\n" EARLY "    %qm = permute %qt axes [1, 0] : #D x $M x bf16\n"                                                           \
    "    %x = dot %kt, %qm : $N x $M x f32\n" NEGATED("$N x $M", "1") WEIGHTS("$N x $M", "0", "1")                                                                        \
    "    %v1 = dot %pb, %ot : $N x #D x f32\n    %c1 = add %c, %v1 : $N x #D x f32\n" LATE "    %om = permute %ot axes [1, 0] : #D x $M x bf16\n"                         \
    "    %dp = dot %vt, %om : $N x $M x f32\n" DERIVATIVE("$N x $M", "1", D)                                                                                              \
    "    %k1 = dot %db, %qt : $N x #D x f32\n    %a1 = add %a, %k1 : $N x #D x f32\n    yield %a1, %c1\n  }\n"                                                            \
    "  %dkb = cast %dk : $N x #D x bf16\n  store %Y[%h, %kf + @0, %zero + @1], %dkb\n  %dvb = cast %dv : $N x #D x bf16\n"                                                \
    "  store %Z[%h, %kf + @0, %zero + @1], %dvb\n}\n"
#define FROM(AT) "    %et = load %E[" AT "] : $M x f32\n"
static const char *const by_keys = BY_KEYS(FROM("%h, %rf + @0"), SUB, "");
/* The same where what is added or taken away is loaded late, and nothing looks whether it exists. */
static const char *const by_keys_late[] = {BY_KEYS("", SUB, FROM("%h, %rf + @0")), BY_KEYS("", "add %eb, %dp", FROM("in(%h), in(%rf + @0)"))};

/* The same of scores of rows by keys: the left factors are turned, and stored. */
static const char *const turned =
    "kernel @turned(" BUFFERS ", %y: bf16[2*s*#D] write align 16, %z: bf16[2*s*#D] write align 16) grid(%h : 2 by 1, %kf : s by $N) {\n" VIEWS
    "  view %Y = %y : [2, s, #D] strides [s*#D, #D, 1]\n  view %Z = %z : [2, s, #D] strides [s*#D, #D, 1]\n" NUMBERS "  %step = const #M : i64\n"
    "  %n0 = const 0 : $N x #D x f32\n  %kt = load %K[%h, %kf + @0, %zero + @1] : $N x #D x bf16\n  %vt = load %V[%h, %kf + @0, %zero + @1] : $N x #D x bf16\n"
    "  %km = permute %kt axes [1, 0] : #D x $N x bf16\n"
    "  %dk, %dv = for (%rf = %zero to %qq by %step) carry (%a = %n0: $N x #D x f32, %c = %n0: $N x #D x f32) : $N x #D x f32, $N x #D x f32 {\n"
    "    %qt = load %Q[%h, %rf + @0, %zero + @1] : $M x #D x bf16\n    %ot = load %O[%h, %rf + @0, %zero + @1] : $M x #D x bf16\n"
    "    %lt = load %L[%h, %rf + @0] : $M x f32\n    %et = load %E[%h, %rf + @0] : $M x f32\n"
    "    %x = dot %qt, %km : $M x $N x f32\n" NEGATED("$M x $N", "0") WEIGHTS("$M x $N", "1", "0")
    "    %pm = permute %pb axes [1, 0] : $N x $M x bf16\n    %v1 = dot %pm, %ot : $N x #D x f32\n    %c1 = add %c, %v1 : $N x #D x f32\n"
    "    %vm = permute %vt axes [1, 0] : #D x $N x bf16\n    %dp = dot %ot, %vm : $M x $N x f32\n" DERIVATIVE("$M x $N", "0", SUB)
    "    %dm = permute %db axes [1, 0] : $N x $M x bf16\n    %k1 = dot %dm, %qt : $N x #D x f32\n    %a1 = add %a, %k1 : $N x #D x f32\n    yield %a1, %c1\n  }\n"
    "  %dkb = cast %dk : $N x #D x bf16\n  store %Y[%h, %kf + @0, %zero + @1], %dkb\n  %dvb = cast %dv : $N x #D x bf16\n"
    "  store %Z[%h, %kf + @0, %zero + @1], %dvb\n}\n";

/* By rows: keys are read along rows and turned. */
static const char *const by_rows =
    "kernel @rows(" BUFFERS ", %y: bf16[2*q*#D] write align 16) grid(%h : 2 by 1, %rf : q by $M) {\n" VIEWS
    "  view %Y = %y : [2, q, #D] strides [q*#D, #D, 1]\n" NUMBERS "  %step = const #N : i64\n  %n0 = const 0 : $M x #D x f32\n"
    "  %qt = load %Q[%h, %rf + @0, %zero + @1] : $M x #D x bf16\n  %ot = load %O[%h, %rf + @0, %zero + @1] : $M x #D x bf16\n"
    "  %lt = load %L[%h, %rf + @0] : $M x f32\n  %et = load %E[%h, %rf + @0] : $M x f32\n"
    "  %dq = for (%kf = %zero to %ss by %step) carry (%a = %n0: $M x #D x f32) : $M x #D x f32 {\n"
    "    %kt = load %K[%h, %kf + @0, %zero + @1] : $N x #D x bf16\n    %vt = load %V[%h, %kf + @0, %zero + @1] : $N x #D x bf16\n"
    "    %km = permute %kt axes [1, 0] : #D x $N x bf16\n    %x = dot %qt, %km : $M x $N x f32\n" NEGATED("$M x $N", "0") WEIGHTS("$M x $N", "1", "0")
    "    %vm = permute %vt axes [1, 0] : #D x $N x bf16\n    %dp = dot %ot, %vm : $M x $N x f32\n" DERIVATIVE("$M x $N", "0", SUB)
    "    %q1 = dot %db, %kt : $M x #D x f32\n    %a1 = add %a, %q1 : $M x #D x f32\n    yield %a1\n  }\n"
    "  %dqb = cast %dq : $M x #D x bf16\n  store %Y[%h, %rf + @0, %zero + @1], %dqb\n}\n";

/* At once: what a program adds to the rows' results it adds to memory; the left factor is the keys turned, the right one is computed and stored, and read turned. */
static const char *const at_once =
    "kernel @once(" BUFFERS ", %y: bf16[2*s*#D] write align 16, %w: f32[2*q*#D] read_write align 16) grid(%h : 2 by 1, %kf : s by $N) {\n" VIEWS
    "  view %Y = %y : [2, s, #D] strides [s*#D, #D, 1]\n  view %W = %w : [2, #D, q] strides [q*#D, 1, #D]\n" NUMBERS "  %step = const #M : i64\n"
    "  %n0 = const 0 : $N x #D x f32\n  %kt = load %K[%h, %kf + @0, %zero + @1] : $N x #D x bf16\n  %vt = load %V[%h, %kf + @0, %zero + @1] : $N x #D x bf16\n"
    "  %dk = for (%rf = %zero to %qq by %step) carry (%a = %n0: $N x #D x f32) : $N x #D x f32 {\n"
    "    %qt = load %Q[%h, %rf + @0, %zero + @1] : $M x #D x bf16\n    %ot = load %O[%h, %rf + @0, %zero + @1] : $M x #D x bf16\n"
    "    %lt = load %L[%h, %rf + @0] : $M x f32\n    %et = load %E[%h, %rf + @0] : $M x f32\n    %qm = permute %qt axes [1, 0] : #D x $M x bf16\n"
    "    %x = dot %kt, %qm : $N x $M x f32\n    %om = permute %ot axes [1, 0] : #D x $M x bf16\n    %dp = dot %vt, %om : $N x $M x f32\n"
    NEGATED("$N x $M", "1") WEIGHTS("$N x $M", "0", "1") DERIVATIVE("$N x $M", "1", SUB)
    "    %km = permute %kt axes [1, 0] : #D x $N x bf16\n    %q1 = dot %km, %db : #D x $M x f32\n    %k1 = dot %db, %qt : $N x #D x f32\n"
    "    %a1 = add %a, %k1 : $N x #D x f32\n    %old = atomic add %W[%h, %zero + @0, %rf + @1], %q1 : #D x $M x f32\n    yield %a1\n  }\n"
    "  %dkb = cast %dk : $N x #D x bf16\n  store %Y[%h, %kf + @0, %zero + @1], %dkb\n}\n";

/* Where boxes are copied: scores and their derivatives are issued before either is awaited. */
static void check_order(const char *loop, bool boxes)
{
    int issued = 0;
    const char *until = strstr(loop, "@wgmma_until_");
    if (!boxes) {
        assert_null(until);
        return;
    }
    while (until && strncmp(until + strcspn(until, "%"), "%acc", 4) != 0)
        until = strstr(until + 1, "@wgmma_until_");
    assert_non_null(until);
    for (const char *commit = strstr(loop, "@wgmma_commit"); commit && commit < until; commit = strstr(commit + 1, "@wgmma_commit"))
        issued++;
    assert_int_equal(issued, 2);
}

/* Some line says `= fn` of f32. */
static bool computes(const char *loop, const char *fn)
{
    for (const char *line = strstr(loop, fn); line; line = strstr(line + 1, fn))
        if (strncmp(line + strcspn(line, ":\n"), ": f32", 5) == 0)
            return true;
    return false;
}

static void check(const char *text, const shape *s, const char *gpu, bool boxes, uint64_t seed)
{
    tn_arena arena = {0};
    const char *m = tn_format(&arena, "%lld", (long long)s->M), *n = tn_format(&arena, "%lld", (long long)s->N), *d = tn_format(&arena, "%lld", (long long)s->D);
    const char *const by[][2] = {{"#M", m}, {"#N", n}, {"#D", d}};
    variant v = {.gpu = gpu, .slack = 4, .size = {{"q", s->q}, {"s", s->s}}, .bind = {{"$M", s->M}, {"$N", s->N}}};
    text = replaced(&arena, text, by, TN_COUNT(by));
    tn_session *session = new_test_session();
    tn_kernel *kernel = tile_variant(session, text, &v);
    tn_lfunc *func = NULL;
    tn_schedule_set(kernel, "", "warps", s->warps);
    assert_int_equal(tn_gpu_lower(session, kernel, tn_machine_find(gpu), &func), TN_OK);
    if (!strstr(loop_text(func), "@box_load_") != !boxes)
        fail_msg("boxes: %s", func->remarks);
    if (strstr(text, "@keys") || strstr(text, "@rows")) {
        check_order(loop_text(func), boxes);
        assert_int_equal(strstr(loop_text(func), "@turn_take") != NULL, boxes && s->warps == 8); /* two warpgroups, which do not meet */
    }
    if (strstr(text, "@once"))
        assert_null(strstr(loop_text(func), "@turn_take"));
    if (boxes && strstr(text, "@keys")) /* sums of dP start at what is added, or less what is taken away */
        assert_false(computes(loop_text(func), " = sub ") || computes(loop_text(func), " = add "));
    if (boxes && strstr(text, "@rows")) /* not at what is there since before the loop */
        assert_true(computes(loop_text(func), " = sub "));
    free_test_session(session);
    assert_int_equal(check_gpu_kernel(text, &v, s->warps, seed), TN_OK);
    tn_arena_free(&arena);
}

static void test_groups(void **state)
{
    static const shape shapes[] = {{70, 90, 64, 64, 64, 4}, {8, 200, 64, 128, 64, 8}, {150, 40, 128, 64, 64, 4}, {70, 130, 64, 128, 128, 8}};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(shapes); i++) {
        check(by_keys, &shapes[i], "sm_90a", true, i);
        if (i != 1 && i != 3)
            check(by_rows, &shapes[i], "sm_90a", true, i);
        check(turned, &shapes[i], "sm_90a", true, i);
        check(at_once, &shapes[i], "sm_90a", true, i);
    }
}

/* Whatever sums start at goes before the products that are issued first. */
static void test_start(void **state)
{
    static const shape shapes[] = {{128, 128, 64, 128, 64, 8}, {192, 130, 64, 128, 128, 8}};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(shapes) * TN_COUNT(by_keys_late); i++)
        check(by_keys_late[i % 2], &shapes[i / 2], "sm_90a", true, i);
}

/* Keys and values that all turns have are no fragments in registers where sums and scores leave none for them. */
static void test_crowded(void **state)
{
    static const shape s = {40, 70, 32, 128, 64, 4};
    static const char *const by[][2] = {{"#M", "32"}, {"#N", "128"}, {"#D", "64"}};
    (void)state;
    for (int warps = 4; warps <= 8; warps *= 2) {
        tn_arena arena = {0};
        variant v = {.gpu = "sm_80", .slack = 4, .size = {{"q", s.q}, {"s", s.s}}, .bind = {{"$M", s.M}, {"$N", s.N}}};
        tn_session *session = new_test_session();
        tn_kernel *kernel = tile_variant(session, replaced(&arena, by_keys, by, TN_COUNT(by)), &v);
        tn_lfunc *func = NULL;
        tn_schedule_set(kernel, "", "warps", warps);
        assert_int_equal(tn_gpu_lower(session, kernel, tn_machine_find("sm_80"), &func), TN_OK);
        assert_int_equal(tn_loop_shared_bytes(func) >= 2 * 2 * s.N * s.D, warps == 4);
        free_test_session(session);
        tn_arena_free(&arena);
    }
    check(by_keys, &s, "sm_80", false, 1);
}

static void test_warps(void **state)
{
    static const shape shapes[] = {{70, 50, 32, 32, 32, 2}, {20, 70, 16, 64, 64, 4}, {40, 24, 32, 16, 32, 2}};
    (void)state;
    for (size_t i = 0; i < TN_COUNT(shapes); i++) {
        check(by_keys, &shapes[i], "sm_80", false, i);
        check(by_rows, &shapes[i], "sm_80", false, i);
        check(turned, &shapes[i], "sm_80", false, i);
        check(at_once, &shapes[i], "sm_80", false, i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_groups), cmocka_unit_test(test_start), cmocka_unit_test(test_crowded), cmocka_unit_test(test_warps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
