/* Clusters in the interpreter: what CTAs send each other, and each mistake that it reports. */
#include "loop_test.h"

enum { THREADS = 32, CTAS = 4, PROGRAMS = 3 };

static int32_t data[PROGRAMS * CTAS * THREADS];

/* What a test leaves out or changes; NULL: as it should be. */
typedef struct sums {
    const char *init, *arrive, *meet, *to, *wait, *end;
} sums;

/* Each CTA's first thread sends a number to all, whose threads add up what has come. */
static const char *sums_text(tn_session *session, const sums *s)
{
#define PART(name, usual) (s->name ? s->name : (usual))
    return tn_format(&session->arena,
                     "kernel @sums(%%x: global i32, %%n: index, %%begin: index, %%end: index) threads 32 cluster 4 {\n"
                     "%%t = thread : index\n%%c = cta : index\n%%s = alloc 4 at 8 : shared i32\n%%bar = alloc 1 : shared i64\n%%c0 = const 0 : index\n%%one = const 1 : index\n"
                     "%%first = eq %%t, %%c0 : bool\n%%leads = cast %%first : index\n%%bytes = const 16 : index\n%%c4 = const 4 : index\n%%c32 = const 32 : index\n"
                     "for %%p = %%begin to %%end step 1 grid {\nif %%first {\n%smachine @mbarrier_fence\n}\n%s\n"
                     "%%ten = mul %%p, %%n : index\n%%number = add %%ten, %%c : index\n%%v = cast %%number : i32\n%%r = alloc 1 : reg i32\nstore %%r[0], %%v\n%s\n"
                     "for %%i = 0 to 4 step 1 {\nmachine @send_4 %%r[0], %%s[%%c], %s, %%bar[0], %%leads\n}\n%s\n"
                     "%%a = alloc 1 : reg i32\n%%zero = const 0 : i32\nstore %%a[0], %%zero\nfor %%i = 0 to 4 step 1 {\n%%e = load %%s[%%i] : i32\n%%b = load %%a[0] : i32\n"
                     "%%f = add %%b, %%e : i32\nstore %%a[0], %%f\n}\n%%g = load %%a[0] : i32\n"
                     "%%k0 = mul %%p, %%c4 : index\n%%k1 = add %%k0, %%c : index\n%%k2 = mul %%k1, %%c32 : index\n%%k = add %%k2, %%t : index\nstore %%x[%%k], %%g\n%s}\n}\n",
                     PART(init, "machine @mbarrier_init %bar[0], 1\nmachine @mbarrier_expect %bar[0], %bytes\n"), PART(arrive, "machine @cluster_arrive"),
                     PART(meet, "machine @cluster_wait"), PART(to, "%i"), PART(wait, "machine @mbarrier_wait %bar[0], %c0"), PART(end, ""));
#undef PART
}

static tn_status run_sums(tn_session *session, const sums *s)
{
    memset(data, 0xff, sizeof data);
    return tn_loop_interpret(parse_kernel(session, sums_text(session, s)), (tn_loop_arg[]){{data, (int64_t)TN_COUNT(data)}}, (int64_t[]){10, 0, PROGRAMS});
}

static void test_sums(void **state)
{
    (void)state;
    tn_session session = {0};
    if (run_sums(&session, &(sums){0}) != TN_OK) {
        tn_print_diags(&session, stderr);
        fail();
    }
    for (int i = 0; i < (int)TN_COUNT(data); i++)
        assert_int_equal(data[i], 40 * (i / (CTAS * THREADS)) + 0 + 1 + 2 + 3);
    tn_arena_free(&session.arena);
}

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        sums sums;
        const char *message;
    } cases[] = {
        {{.meet = ""}, "thread 0 sends to CTA 0 of the cluster, which may not have begun"},
        {{.arrive = ""}, "thread 0 waits for all 128 threads of the cluster, of which 0 have come to cluster_arrive"},
        {{.arrive = "if %first {\nmachine @cluster_arrive\n}"}, "of which 4 have come to cluster_arrive"},
        {{.arrive = "machine @cluster_arrive\nmachine @cluster_arrive"}, "thread 0 comes there twice"},
        {{.arrive = "if %first {\nmachine @cluster_arrive\n}", .meet = "", .to = "%i", .wait = "barrier", .end = ""}, "sends to CTA 0 of the cluster"},
        {{.wait = ""}, "load: thread 0 reads element 0 of %s in shared memory, which nothing has written"},
        {{.wait = "barrier"}, "load: thread 0 reads element 0 of %s in shared memory, which nothing has written"},
        {{.init = "machine @mbarrier_init %bar[0], 1\nmachine @mbarrier_expect %bar[0], %c32\n"}, "0 of 1 arrivals and 16 bytes are missing"},
        {{.init = "machine @mbarrier_init %bar[0], 1\nmachine @mbarrier_expect %bar[0], %c4\n"}, "0 of 1 arrivals and -12 bytes are missing"},
        {{.init = "machine @mbarrier_init %bar[0], 1\n"}, "1 of 1 arrivals and 0 bytes are missing"},
        {{.init = ""}, "no mbarrier is at byte 0 of shared memory"},
        {{.to = "%c0"}, "0 of 1 arrivals and -48 bytes are missing"},
        {{.to = "%c4"}, "element 0 of a buffer of 4 in the CTA of number 4, of 4"},
        {{.end = "store %s[%c], %g\n"}, "touch element 0 of %s in shared memory without a barrier between them"},
        {{.end = "store %x[0], %g\n"}, "touch element 0 of %x in global memory without a barrier between them"},
        {{.end = "barrier\nif %first {\n%y = load %x[0] : i32\n}\n"}, "threads 0 and 32 touch element 0 of %x in global memory without a barrier between them"},
        {{.end = "%few = lt %k, %c4 : bool\nif %few {\nbarrier\n}\n"}, "barrier: 4 of 32 threads reach it"},
    };
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        tn_session session = {0};
        assert_refused(&session, run_sums(&session, &cases[i].sums), cases[i].message, i);
        tn_arena_free(&session.arena);
    }
}

/* Nobody waits for what has been sent when the program ends. */
static void test_left_behind(void **state)
{
    (void)state;
    tn_session session = {0};
    const char *text = "kernel @k(%x: global i32, %begin: index, %end: index) threads 32 cluster 2 {\n%t = thread : index\n%c0 = const 0 : index\n%first = eq %t, %c0 : bool\n"
                       "%leads = cast %first : index\n%s = alloc 4 at 8 : shared f64\n%bar = alloc 1 : shared i64\n%bytes = const 16 : index\n%c = cta : index\n"
                       "for %p = %begin to %end step 1 grid {\nif %first {\nmachine @mbarrier_init %bar[0], 1\nmachine @mbarrier_expect %bar[0], %bytes\n}\n"
                       "machine @cluster_arrive\nmachine @cluster_wait\n%r = alloc 1 : reg f64\n%v = const 1.0 : f64\nstore %r[0], %v\n"
                       "machine @send_8 %r[0], %s[%c], %c0, %bar[0], %leads\n}\n}\n";
    assert_int_equal(tn_loop_interpret(parse_kernel(&session, text), (tn_loop_arg[]){{data, 1}}, (int64_t[]){0, 1}), TN_INVALID);
    assert_non_null(strstr(session.diags.at[0].message, "what thread 0 sends to byte 8 of shared memory is still under way: nobody has waited for it"));
    tn_arena_free(&session.arena);
}

static void test_text(void **state)
{
    (void)state;
    static const char text[] = "kernel @k(%x: global i64) threads 64 cluster 8 persistent 2 resident 3 {\n  %0 = cta : index\n  store %x[%0], %0\n}\n";
    tn_session session = {0};
    tn_lfunc *func = tn_lfunc_new(&session, "k");
    func->threads = 64, func->cluster = 8, func->persistent = 2, func->resident = 3;
    tn_lvalue *x = tn_lfunc_buffer(func, "x", TN_I64, false, 0);
    tn_lbuilder b = tn_lbuilder_at_end(func, func->body);
    tn_lvalue *cta = tn_l_cta(&b);
    tn_l_store(&b, x, cta, cta, NULL);
    tn_text out = {.arena = &session.arena};
    tn_text_lfunc(&out, func);
    assert_string_equal(out.at, text);
    assert_int_equal(tn_loop_verify(func, 0), TN_OK);
    tn_lfunc *again = parse_kernel(&session, text);
    assert_true(again->cluster == 8 && again->persistent == 2 && again->resident == 3);
    func->cluster = 0;
    assert_int_equal(tn_loop_verify(func, 0), TN_INVALID);
    assert_non_null(strstr(session.diags.at[0].message, "L3: is for a kernel with `cluster`"));
    static const char *const wrong[] = {"cluster 0", "cluster 1", "cluster 3", "cluster 16"};
    for (size_t i = 0; i < TN_COUNT(wrong); i++) {
        tn_lfuncs none = {0};
        const char *bad = tn_format(&session.arena, "kernel @k(%%x: global i64) threads 64 %s {\n}\n", wrong[i]);
        assert_int_equal(tn_loop_parse(&session, "k", bad, strlen(bad), &none), TN_INVALID);
        assert_non_null(strstr(session.diags.at[session.diags.len - 1].message, "a cluster has 2, 4 or 8 blocks"));
    }
    tn_arena_free(&session.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums), cmocka_unit_test(test_mistakes), cmocka_unit_test(test_left_behind), cmocka_unit_test(test_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
