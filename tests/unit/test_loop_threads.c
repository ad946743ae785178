/* Kernels with `threads`: what the lockstep interpreter computes, each mistake that it reports, and passes on random kernels whose threads share. */
#include "loop_test.h"

static const tn_pass_options gpu = {.vector = {.bits = 128, .registers = 255, .fma = true, .most_lanes = 16}};

static int64_t data[128];

static tn_status run(tn_session *session, const char *text, int64_t n)
{
    for (int i = 0; i < 128; i++)
        data[i] = 1000 + i;
    return tn_loop_interpret(parse_kernel(session, text), (tn_loop_arg[]){{data, 128}}, (int64_t[]){n});
}

static const char *kernel(tn_session *session, const char *body)
{
    return tn_format(&session->arena, "kernel @k(%%x: global i64, %%n: index) threads 64 {\n  %%t = thread : index\n%s}\n", body);
}

static void expect(const char *body, int64_t n, int64_t (*want)(int64_t t))
{
    tn_session session = {0};
    if (run(&session, kernel(&session, body), n) != TN_OK) {
        tn_print_diags(&session, stderr);
        fail_msg("%s", body);
    }
    for (int64_t t = 0; t < 64; t++)
        assert_int_equal(data[t], want(t));
    tn_arena_free(&session.arena);
}

static int64_t warp_sum(int64_t t)
{
    int64_t sum = 0;
    for (int64_t i = t & ~31; i < (t & ~31) + 32; i++)
        sum += 1000 + i;
    return sum;
}

static int64_t turned(int64_t t)
{
    return 1000 + 63 - t;
}

static int64_t next_lane(int64_t t)
{
    return 1000 + (t & ~31) + ((t + 1) & 31);
}

static int64_t counted(int64_t t)
{
    return t % 2 ? 2 * t : -t;
}

static int64_t halved(int64_t t)
{
    int64_t n = 0;
    for (; t; t /= 2)
        n++;
    return n;
}

static void test_meaning(void **state)
{
    (void)state;
    expect("%sum = alloc 1 : reg i64\n%0 = load %x[%t] : i64\n%1 = lane_xor %0, 16 : i64\n%2 = add %0, %1 : i64\n%3 = lane_xor %2, 8 : i64\n%4 = add %2, %3 : i64\n"
           "%5 = lane_xor %4, 4 : i64\n%6 = add %4, %5 : i64\n%7 = lane_xor %6, 2 : i64\n%8 = add %6, %7 : i64\n%9 = lane_xor %8, 1 : i64\n%10 = add %8, %9 : i64\n"
           "store %x[%t], %10\n", 64, warp_sum);
    expect("%s = alloc 64 at 1024 : shared i64\n%last = const 63 : index\n%u = sub %last, %t : index\n%0 = load %x[%t] : i64\nstore %s[%t], %0\nbarrier\n"
           "%1 = load %s[%u] : i64\nstore %x[%t], %1\n", 64, turned);
    expect("%one = const 1 : index\n%u = add %t, %one : index\n%0 = load %x[%t] : i64\n%1 = lane_at %0, %u : i64\nstore %x[%t], %1\n", 64, next_lane);
    /* Loops as long as each thread wants, and both sides of a branch. */
    expect("%two = const 2 : index\n%r = rem %t, %two : index\n%zero = const 0 : index\n%even = eq %r, %zero : bool\n%c = alloc 1 : reg i64\nstore %c[0], %zero\n"
           "for %i = 0 to %t step 1 {\n%0 = load %c[0] : i64\nif %even {\n%1 = sub %0, %r : index\n%2 = const 1 : index\n%3 = sub %1, %2 : index\nstore %c[0], %3\n} else {\n"
           "%4 = add %0, %two : index\nstore %c[0], %4\n}\n}\n%5 = load %c[0] : i64\nstore %x[%t], %5\n", 64, counted);
    expect("%zero = const 0 : index\n%one = const 1 : index\n%two = const 2 : index\n%c = alloc 2 : reg i64\nstore %c[0], %t\nstore %c[1], %zero\n"
           "while {\n%0 = load %c[0] : i64\n%1 = gt %0, %zero : bool\nyield %1\n} do {\n%2 = load %c[0] : i64\n%3 = div %2, %two : i64\nstore %c[0], %3\n"
           "%4 = load %c[1] : i64\n%5 = add %4, %one : i64\nstore %c[1], %5\n}\n%6 = load %c[1] : i64\nstore %x[%t], %6\n", 64, halved);
    /* A barrier in a loop that all threads run alike; one buffer's bytes are another's later. */
    expect("%s = alloc 64 : shared i64\n%q = alloc 64 : shared i64\n%last = const 63 : index\n%u = sub %last, %t : index\nfor %i = 0 to 3 step 1 {\n%0 = load %x[%t] : i64\n"
           "store %s[%t], %0\nbarrier\n%1 = load %s[%u] : i64\nbarrier\nstore %q[%t], %1\n%2 = load %q[%t] : i64\nstore %x[%t], %2\nbarrier\n}\n", 64, turned);
    /* Many threads may read alike, and count together. */
    expect("%s = alloc 1 at 8 : shared i64\n%zero = const 0 : index\n%first = eq %t, %zero : bool\nstore %s[0], %zero, mask %first\nbarrier\n%one = const 1 : index\n"
           "%old = atomic add %s[0], %t : i64\nbarrier\n%sum = load %s[0] : i64\n%all = const 2016 : index\n%0 = sub %sum, %all : index\n%1 = const 1063 : index\n"
           "%2 = sub %1, %t : index\n%3 = add %0, %2 : index\nstore %x[%t], %3\n", 64, turned);
    /* Each turn of the grid is another CTA: no barrier is between two. */
    expect("%s = alloc 64 : shared i64\n%last = const 63 : index\n%u = sub %last, %t : index\nfor %p = 0 to %n step 1 grid {\n%0 = load %x[%t] : i64\nstore %s[%t], %0\nbarrier\n"
           "%1 = load %s[%u] : i64\nstore %x[%t], %1\n}\n", 3, turned);
}

static const struct {
    const char *body, *message;
} mistakes[] = {
    {"%half = lt %t, %n : bool\nif %half {\nbarrier\n}\n", "barrier: 5 of 64 threads reach it"},
    {"for %i = 0 to %t step 1 {\nbarrier\n}\n", "barrier: 63 of 64 threads reach it"},
    {"%half = lt %t, %n : bool\nif %half {\n%a = lane_xor %t, 1 : index\n}\n", "lane_xor: thread 0 runs it, thread 5 of its warp does not"},
    {"%half = lt %t, %n : bool\nif %half {\n} else {\n%a = lane_at %t, 2 : index\n}\n", "lane_at: thread 5 runs it, thread 0 of its warp does not"},
    {"%s = alloc 64 : shared i64\n%a = load %s[%t] : i64\n", "load: thread 0 reads element 0 of %s in shared memory, which nothing has written"},
    {"%s = alloc 64 : shared i64\nstore %s[%t], %t\nbarrier\n%q = alloc 4 at 510 : shared i16\n%a = load %q[1] : i16\n",
     "load: thread 0 reads element 1 of %q in shared memory, which nothing has written"},
    {"%s = alloc 64 : shared i64\nstore %s[%t], %t\n%a = load %s[7] : i64\n", "load: threads 0 and 7 touch element 7 of %s in shared memory without a barrier between them"},
    {"%s = alloc 64 : shared i64\nstore %s[%t], %t\nbarrier\n%a = load %s[9] : i64\nstore %s[%t], %t\n",
     "store: threads 9 and 63 touch element 9 of %s in shared memory without a barrier between them"},
    {"%s = alloc 1 : shared i64\nstore %s[0], %t\n", "store: threads 0 and 1 touch element 0 of %s in shared memory without a barrier between them"},
    {"%s = alloc 64 : shared i64\n%q = alloc 128 at 512 : shared i8\n%0 = alloc 64 at 64 : shared i64\nstore %s[%t], %t\nstore %0[%t], %t\n",
     "store: threads 0 and 8 touch element 0 of"},
    {"store %x[3], %t\n", "store: threads 0 and 1 touch element 3 of %x in global memory without a barrier between them"},
    {"store %x[%t], %t\n%a = load %x[%n] : i64\n", "load: threads 0 and 5 touch element 5 of %x in global memory"},
    {"%a = load %x[%n] : i64\nstore %x[%t], %t\n", "store: threads 5 and 63 touch element 5 of %x in global memory"},
    {"%a = atomic add %x[%n], %t : i64\n%b = load %x[%n] : i64\n", "load: threads 0 and 63 touch element 5 of %x in global memory"},
    {"%s = alloc 64 : shared i64\nfor %p = 0 to 2 step 1 grid {\n%z = const 0 : index\n%first = eq %p, %z : bool\nif %first {\nstore %s[%t], %t\n}\n%a = load %s[%t] : i64\n}\n",
     "load: thread 0 reads element 0 of %s in shared memory, which nothing has written"},
    {"%s = alloc 64 : shared i64\n%a = load %s[%n] : i64\n%u = add %t, %t : index\nstore %s[%u], %t\n", "reads element 5"},
    {"%s = alloc 64 : shared i64\n%u = add %t, %t : index\nstore %s[%u], %t\n", "offset 64 (lane 0) of a buffer of 64 elements"},
};

static void test_mistakes(void **state)
{
    (void)state;
    for (size_t i = 0; i < TN_COUNT(mistakes); i++) {
        tn_session session = {0};
        assert_int_equal(run(&session, kernel(&session, mistakes[i].body), 5), TN_INVALID);
        if (!strstr(session.diags.at[0].message, mistakes[i].message))
            fail_msg("%s\nexpected: %s\nfound: %s", mistakes[i].body, mistakes[i].message, session.diags.at[0].message);
        tn_arena_free(&session.arena);
    }
}

/* ---- passes ---- */

/* Equal lanes merge, those that nobody reads die; loads of shared memory stay where they are, and no lane leaves its branch or loop. */
static void test_passes(void **state)
{
    (void)state;
    tn_session session = {0};
    tn_lfunc *func = parse_kernel(&session, kernel(&session, "%s = alloc 64 : shared i64\n%z = const 0 : index\n%dead = lane_xor %t, 3 : index\n"
                                                             "for %i = 0 to %n step 1 {\n%a = load %x[%t] : i64\n%b = lane_xor %a, 1 : i64\n%c = lane_xor %a, 1 : i64\n"
                                                             "%d = lane_xor %a, 2 : i64\n%e = add %b, %c : i64\n%f = add %e, %d : i64\nstore %s[%t], %f\nbarrier\n"
                                                             "%g = load %s[5] : i64\nbarrier\n%h = load %s[5] : i64\nbarrier\n%j = lane_at %z, %t : index\n%k = lane_at %n, 3 : index\n"
                                                             "%l = add %g, %h : i64\n%m = add %l, %j : i64\n%o = add %m, %k : i64\nstore %x[%t], %o\n}\n"));
    run_passes(func, tn_loop_pipeline, &gpu);
    const char *text = kernel_text(func);
    static const struct {
        const char *what;
        int times;
    } counts[] = {{"lane_xor", 2}, {"lane_at", 1}, {"barrier", 3}, {"load %s", 2}, {"load %x", 1}};
    for (size_t i = 0; i < TN_COUNT(counts); i++) {
        int n = 0;
        for (const char *at = text; (at = strstr(at, counts[i].what)); at++)
            n++;
        if (n != counts[i].times)
            fail_msg("%s: %d times\n%s", counts[i].what, n, text);
    }
    assert_true(strstr(text, "lane_at") > strstr(text, "for %i"));
    tn_arena_free(&session.arena);
}

/* A mask of `base + lane` against a limit is one bool where the vector's width divides both, and right in any case. */
static void test_vectors(void **state)
{
    (void)state;
    static const struct {
        const char *compare;
        int multiple, trips, scale;
        bool whole;
    } cases[] = {
        {"lt %e, %n", 16, 8, 8, true},   {"ge %e, %n", 16, 16, 16, true}, {"gt %n, %e", 8, 8, 8, true},     {"le %n, %e", 8, 4, 4, true},    {"lt %e, %n", 4, 8, 8, false},
        {"lt %e, %n", 16, 16, 8, false}, {"le %e, %n", 16, 8, 8, false},  {"gt %e, %n", 16, 8, 8, false},   {"eq %e, %n", 16, 8, 8, false},  {"lt %n, %e", 16, 8, 8, false},
        {"lt %e, %n", 16, 2, 2, true},   {"lt %e, %n", 1, 2, 2, false},   {"lt %e, %n", 48, 16, 16, true},  {"lt %e, %n", 24, 16, 16, false},
    };
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        tn_session session = {0};
        const char *text = tn_format(&session.arena,
                                     "kernel @k(%%x: global f32 readonly align 16, %%y: global f32 align 16, %%n: index multiple %d) threads 32 {\n%%t = thread : index\n"
                                     "%%w = const %d : index\n%%own = mul %%t, %%w : index\n%%r = alloc %d : reg f32\nfor %%i = 0 to %d step 1 vector {\n"
                                     "%%e = add %%own, %%i : index\n%%m = %s : bool\n%%a = load %%x[%%e], mask %%m : f32\n%%b = add %%a, %%a : f32\nstore %%r[%%i], %%b\n}\n"
                                     "for %%i = 0 to %d step 1 vector {\n%%e = add %%own, %%i : index\n%%m = %s : bool\n%%a = load %%r[%%i] : f32\n"
                                     "store %%y[%%e], %%a, mask %%m\n}\n}\n",
                                     cases[i].multiple, cases[i].scale, cases[i].trips, cases[i].trips, cases[i].compare, cases[i].trips, cases[i].compare);
        tn_lfunc *func = parse_kernel(&session, text), *after = copy_kernel(func);
        run_passes(after, tn_loop_pipeline, &gpu);
        const char *got = kernel_text(after), *load = tn_format(&session.arena, ": f32x%d", cases[i].trips);
        assert_non_null(strstr(got, load));
        if ((strstr(got, "iota") == NULL) != cases[i].whole)
            fail_msg("%s", got);
        if (cases[i].scale == cases[i].trips) /* else threads write one another's elements */
            for (int64_t n = 0; n <= 96; n += cases[i].multiple)
                assert_same_effect(func, after, &n, i);
        tn_arena_free(&session.arena);
    }
}

/* What divides an offset: the last operation of each text is asked. */
static void test_multiples(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        int64_t want;
    } cases[] = {
        {"%a = const 24 : index\n", 8},
        {"%a = const 0 : index\n", 64},
        {"%a = const -64 : index\n", 64},
        {"%c = const 8 : index\n%a = mul %t, %c : index\n", 8},
        {"%c = const 8 : index\n%a = mul %n, %c : index\n", 64},
        {"%c = const 3 : index\n%a = shl %t, %c : index\n", 8},
        {"%c = const 70 : index\n%a = shl %t, %c : index\n", 1},
        {"%c = const 8 : index\n%b = mul %t, %c : index\n%a = add %b, %n : index\n", 8},
        {"%c = const 8 : index\n%b = mul %t, %c : index\n%a = add %b, %t : index\n", 1},
        {"%c = const -32 : index\n%a = and %t, %c : index\n", 32},
        {"%c = const 4 : index\n%a = div %n, %c : index\n", 4},
        {"%c = const 12 : index\n%a = div %n, %c : index\n", 1},
        {"%c = const 2 : index\n%a = shr_logical %n, %c : index\n", 4},
        {"%c = const 12 : index\n%a = rem %n, %c : index\n", 4},
        {"%b = cast %n : i32\n%a = cast %b : index\n", 16},
        {"%c = const 8 : index\n%k = lt %t, %n : bool\n%a = select %k, %c, %n : index\n", 8},
        {"%a = max %n, %t : index\n", 1},
    };
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        tn_session session = {0};
        tn_lfunc *func = parse_kernel(&session, tn_format(&session.arena, "kernel @k(%%n: index multiple 48) threads 32 {\n%%t = thread : index\n%s}\n", cases[i].body));
        if (tn_l_multiple(func->body->last->result, NULL) != cases[i].want)
            fail_msg("%s: %lld", cases[i].body, (long long)tn_l_multiple(func->body->last->result, NULL));
        tn_arena_free(&session.arena);
    }
    /* An index of a loop is what its first value and its step are, or its first value alone. */
    tn_session session = {0};
    tn_lfunc *func = parse_kernel(&session, "kernel @k(%n: index) threads 32 {\nfor %i = 32 to %n step 4 {\n%a = add %i, %i : index\n}\n}\n");
    const tn_lblock *block = func->body->last->region[0];
    assert_int_equal(tn_l_multiple(block->first->result, NULL), 4);
    assert_int_equal(tn_l_multiple(block->first->result, block->arg), 32);
    tn_arena_free(&session.arena);
}

/* What can't be a vector is unrolled, so that registers keep constant offsets. */
static void test_scalars(void **state)
{
    (void)state;
    tn_session session = {0};
    tn_lfunc *func = parse_kernel(&session, kernel(&session, "%r = alloc 6 : reg i64\nfor %i = 0 to 6 step 1 vector {\n%a = lane_xor %t, 1 : index\n%b = mul %a, %i : index\nstore %r[%i], %b\n}\n"
                                                             "%c = load %r[5] : i64\nstore %x[%t], %c\n"));
    tn_lfunc *after = copy_kernel(func);
    run_passes(after, tn_loop_pipeline, &gpu);
    assert_null(strstr(kernel_text(after), "for"));
    assert_same_effect(func, after, (int64_t[]){64}, 1);
    tn_arena_free(&session.arena);
}

typedef struct maker {
    uint64_t random;
    tn_lvalue *shared, *x, *y, *reg, *thread, *pool[24];
    int n;
} maker;

static tn_lvalue *some(maker *k)
{
    return k->pool[next_random(&k->random) % (uint64_t)k->n];
}

static void keep(maker *k, tn_lvalue *v)
{
    k->pool[k->n < 24 ? k->n++ : (int)(next_random(&k->random) % 24)] = v;
}

/* Each thread writes its own element and all read after a barrier; what blocks make stays in them. */
static void make_block(maker *k, tn_lbuilder *b, int depth)
{
    for (int i = 0; i < 6; i++) {
        uint64_t r = next_random(&k->random);
        int64_t bits = (int64_t)(r >> 8 & 31);
        maker outer = *k;
        tn_lvalue *other = tn_l_fn2(b, TN_S_xor, k->thread, tn_l_index(b, bits + (int64_t)(r >> 16 & 32)));
        switch (r % (depth ? 9 : 6)) {
        case 0:
            keep(k, tn_l_lane_xor(b, some(k), bits));
            break;
        case 1:
            keep(k, tn_l_lane_at(b, some(k), some(k)));
            break;
        case 2:
            tn_l_store(b, k->shared, k->thread, some(k), NULL);
            tn_l_barrier(b);
            keep(k, tn_l_load(b, k->shared, r >> 32 & 1 ? other : tn_l_index(b, bits), 1, NULL, NULL));
            tn_l_barrier(b);
            break;
        case 3:
            keep(k, tn_l_fn2(b, r >> 32 & 1 ? TN_S_add : TN_S_sub, some(k), some(k)));
            break;
        case 4:
            tn_l_store(b, k->reg, tn_l_index(b, bits & 3), some(k), NULL);
            keep(k, tn_l_load(b, k->reg, tn_l_index(b, bits >> 2 & 3), 1, NULL, NULL));
            break;
        case 5:
            keep(k, tn_l_load(b, k->x, r >> 32 & 1 ? k->thread : other, 1, NULL, NULL));
            break;
        case 6: { /* all threads take it or none */
            tn_lop *branch = tn_l_if(b, tn_l_fn2(b, TN_S_lt, tn_l_load(b, k->x, tn_l_index(b, bits), 1, NULL, NULL), tn_l_index(b, 1 << 20)));
            for (int side = 0; side < 2; side++) {
                tn_lbuilder in = tn_l_in(b, branch->region[side]);
                make_block(k, &in, depth - 1);
                uint64_t random = k->random;
                *k = outer;
                k->random = random;
            }
            break;
        }
        case 7: { /* each thread as it likes, and alone */
            tn_lop *branch = tn_l_if(b, tn_l_fn2(b, TN_S_lt, some(k), some(k)));
            tn_lbuilder in = tn_l_in(b, branch->region[0]);
            tn_l_store(&in, k->reg, tn_l_index(&in, bits & 3), tn_l_fn2(&in, TN_S_add, some(k), some(k)), NULL);
            break;
        }
        default: {
            tn_lop *loop = tn_l_for(b, "i", tn_l_index(b, 0), tn_l_index(b, (int64_t)(r >> 20 & 3)), tn_l_index(b, 1), r >> 32 & 1 ? TN_FOR_UNROLL : TN_FOR_SERIAL);
            keep(k, loop->region[0]->arg);
            tn_lbuilder in = tn_l_in(b, loop->region[0]);
            make_block(k, &in, depth - 1);
            tn_l_store(&in, k->reg, tn_l_index(&in, bits & 3), some(k), NULL);
            uint64_t random = k->random;
            *k = outer;
            k->random = random;
        }
        }
    }
}

static tn_lfunc *make_kernel(tn_session *session, uint64_t seed)
{
    tn_lfunc *func = tn_lfunc_new(session, "random");
    func->threads = 64;
    maker k = {.random = seed, .x = tn_lfunc_buffer(func, "x", TN_I64, true, 16), .y = tn_lfunc_buffer(func, "y", TN_I64, false, 16)};
    keep(&k, tn_lfunc_index(func, "n"));
    tn_lbuilder b = tn_lbuilder_at_end(func, func->body);
    k.thread = tn_l_thread(&b);
    keep(&k, k.thread);
    k.shared = tn_l_alloc_shared(&b, "s", TN_I64, 64, 128);
    k.reg = tn_l_alloc(&b, "r", TN_I64, TN_SPACE_REG, 4);
    for (int i = 0; i < 4; i++)
        tn_l_store(&b, k.reg, tn_l_index(&b, i), k.thread, NULL);
    make_block(&k, &b, 3);
    for (int i = 0; i < k.n; i++)
        tn_l_store(&b, k.y, tn_l_fn2(&b, TN_S_add, k.thread, tn_l_index(&b, 64 * i)), k.pool[i], NULL);
    for (int i = 0; i < 4; i++)
        tn_l_store(&b, k.y, tn_l_fn2(&b, TN_S_add, k.thread, tn_l_index(&b, 1600 + 64 * i)), tn_l_load(&b, k.reg, tn_l_index(&b, i), 1, NULL, NULL), NULL);
    return func;
}

static void test_random(void **state)
{
    (void)state;
    static const char *const lists[] = {"simplify,simplify", "hoist", "unroll", "vectorize,unroll,simplify,hoist,simplify"};
    for (uint64_t seed = 0; seed < 60; seed++)
        for (size_t i = 0; i < TN_COUNT(lists); i++) {
            tn_session session = {0};
            tn_lfunc *func = make_kernel(&session, seed);
            assert_int_equal(tn_loop_verify(func, 0), TN_OK);
            tn_lfunc *after = copy_kernel(func);
            run_passes(after, lists[i], &gpu);
            assert_same_effect(func, after, (int64_t[]){(int64_t)(seed % 50)}, seed);
            tn_arena_free(&session.arena);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meaning),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_multiples),
        cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
