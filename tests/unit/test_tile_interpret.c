/* The interpreter of the Tile IR where no lowering follows it: pointers, atomics, sorts, trees; what it reports; and tile-simplify. */
#include "tile_test.h"

typedef struct run {
    tn_session *session;
    tn_kernel *kernel;
    tn_status status;
    const char *message;
} run;

static run run_text(const char *text, const tn_tile_arg *buffers, const variant *v)
{
    static const variant none = {.size = {{NULL, 0}}};
    run r = {.session = new_test_session()};
    r.kernel = parse_tile(r.session, text);
    r.status = tn_tile_interpret(r.kernel, buffers, test_lookup, (void *)(v ? v : &none));
    r.message = r.session->diags.len ? r.session->diags.at[0].message : "";
    if (r.status != TN_OK && !r.session->errors)
        fail_msg("a failure without a diagnostic");
    return r;
}

static void expect_run(const char *text, const tn_tile_arg *buffers, const variant *v)
{
    run r = run_text(text, buffers, v);
    if (r.status != TN_OK)
        fail_msg("%s", r.message);
    free_test_session(r.session);
}

static void expect_refusal(const char *text, const tn_tile_arg *buffers, const char *message)
{
    run r = run_text(text, buffers, NULL);
    if (r.status == TN_OK || !strstr(r.message, message))
        fail_msg("expected '%s', found '%s'", message, r.message);
    free_test_session(r.session);
}

/* A masked vector addition as a user kernel writes it. */
static void test_pointers(void **state)
{
    (void)state;
    float x[5] = {1, 2, 3, 4, 5}, y[5] = {0};
    variant v = {.size = {{"n", 5}}};
    expect_run("kernel @k(%x: f32 read, %y: f32 write, %n: i32, %x: ptr<f32>, %y: ptr<f32>) grid(%p : 5 by 4) {\n"
               "  %i = range %p : 4 x i64\n"
               "  %n64 = cast %n : i64\n"
               "  %nb = broadcast %n64 axes [] : 4 x i64\n"
               "  %m = lt %i, %nb : 4 x bool\n"
               "  %xb = broadcast %x axes [] : 4 x ptr<f32>\n"
               "  %xp = addptr %xb, %i : 4 x ptr<f32>\n"
               "  %a = load_ptr %xp, %m : 4 x f32\n"
               "  %s = reduce %a axes [0] order any identity [1] : f32 combine (%u: f32, %w: f32) {\n"
               "    %z = mul %u, %w : f32\n"
               "    yield %z\n"
               "  }\n"
               "  %sb = broadcast %s axes [] : 4 x f32\n"
               "  %yb = broadcast %y axes [] : 4 x ptr<f32>\n"
               "  %yp = addptr %yb, %i : 4 x ptr<f32>\n"
               "  store_ptr %yp, %sb, %m\n"
               "}\n",
               (tn_tile_arg[]){{x, 5}, {y, 5}}, &v);
    const float want[] = {24, 24, 24, 24, 5}; /* masked lanes are absent: they do not make the product 0 */
    assert_memory_equal(y, want, sizeof want);
}

static void test_other(void **state)
{
    (void)state;
    float x[2] = {1, 2}, y[4] = {0};
    expect_run("kernel @k(%x: f32 read, %y: f32 write, %x: ptr<f32>) grid() {\n"
               "  view %Y = %y : [4] strides [1]\n"
               "  %0 = const 0 : i64\n"
               "  %2 = const 2 : 4 x i64\n"
               "  %9 = const 9 : 4 x f32\n"
               "  %i = range %0 : 4 x i64\n"
               "  %m = lt %i, %2 : 4 x bool\n"
               "  %xb = broadcast %x axes [] : 4 x ptr<f32>\n"
               "  %xp = addptr %xb, %i : 4 x ptr<f32>\n"
               "  %a = load_ptr %xp, %m, %9 : 4 x f32\n"
               "  store %Y[%0 + @0], %a\n"
               "}\n",
               (tn_tile_arg[]){{x, 2}, {y, 4}}, NULL);
    const float want[] = {1, 2, 9, 9};
    assert_memory_equal(y, want, sizeof want);
}

/* Descending, with the keys' places; the two that do not exist come last and are not stored. */
static void test_sort(void **state)
{
    (void)state;
    float x[6] = {3, 1, 3, 2, 5, 1}, y[8] = {0, 0, 0, 0, 0, 0, -1, -1};
    int64_t at[8] = {0, 0, 0, 0, 0, 0, -1, -1};
    expect_run("kernel @k(%x: f32 read, %y: f32 write, %at: i64 write) grid() {\n"
               "  view %X = %x : [6] strides [1]\n"
               "  view %Y = %y : [8] strides [1]\n"
               "  view %A = %at : [8] strides [1]\n"
               "  %0 = const 0 : i64\n"
               "  %a = load %X[%0 + @0] : 8 x f32\n"
               "  %i = range %0 : 8 x i64\n"
               "  %s, %p = sort %a, %i axes [0] : 8 x f32, 8 x i64 before (%u: f32, %ui: i64, %w: f32, %wi: i64) {\n"
               "    %z = gt %u, %w : bool\n"
               "    yield %z\n"
               "  }\n"
               "  store %Y[%0 + @0], %s\n"
               "  store %A[%0 + @0], %p\n"
               "}\n",
               (tn_tile_arg[]){{x, 6}, {y, 8}, {at, 8}}, NULL);
    const float want[] = {5, 3, 3, 2, 1, 1, -1, -1};
    const int64_t places[] = {4, 0, 2, 3, 1, 5};
    assert_memory_equal(y, want, sizeof want);
    assert_memory_equal(at, places, sizeof places);
}

static void test_histogram_and_atomics(void **state)
{
    (void)state;
    int32_t x[7] = {0, 1, 1, 3, 9, -1, 1}, bins[4] = {0}, sum[2] = {0}, old[8] = {0};
    expect_run("kernel @k(%x: i32 read, %b: i32 write, %s: i32 read_write, %o: i32 write) grid() {\n"
               "  view %X = %x : [7] strides [1]\n"
               "  view %B = %b : [4] strides [1]\n"
               "  view %S = %s : [1] strides [1]\n"
               "  view %O = %o : [8] strides [1]\n"
               "  %0 = const 0 : i64\n"
               "  %a = load %X[%0 + @0] : 8 x i32\n"
               "  %h = histogram %a : 4 x i32\n"
               "  store %B[%0 + @0], %h\n"
               "  %z = const 0 : 8 x i64\n"
               "  %w = atomic add %S[%z(@0)], %a : 8 x i32\n"
               "  store %O[%0 + @0], %w\n"
               "}\n",
               (tn_tile_arg[]){{x, 7}, {bins, 4}, {sum, 2}, {old, 8}}, NULL);
    const int32_t want[] = {1, 3, 0, 1}, before[] = {0, 0, 1, 2, 5, 14, 13, 0};
    assert_memory_equal(bins, want, sizeof want);
    assert_memory_equal(old, before, sizeof before);
    assert_int_equal(sum[0], 14);
}

/* (((a b) (c d)) e), not from the left: subtraction tells. */
static void test_tree(void **state)
{
    (void)state;
    int32_t x[5] = {1, 2, 4, 8, 16}, y[2] = {0};
    const char *text = "kernel @k(%x: i32 read, %y: i32 write) grid() {\n"
                       "  view %X = %x : [5] strides [1]\n"
                       "  view %Y = %y : [2] strides [1]\n"
                       "  %0 = const 0 : i64\n"
                       "  %1 = const 1 : i64\n"
                       "  %n = size 5 : i64\n"
                       "  %t = fold (%j : %n by 2) axes [0] order tree identity [0] : i32 {\n"
                       "    %a = load %X[%j + @0] : 2 x i32\n"
                       "    yield %a\n"
                       "  } combine (%u: i32, %w: i32) {\n"
                       "    %z = sub %w, %u : i32\n"
                       "    yield %z\n"
                       "  }\n"
                       "  store %Y[%0], %t\n"
                       "}\n";
    expect_run(text, (tn_tile_arg[]){{x, 5}, {y, 2}}, NULL);
    assert_int_equal(y[0], 16 - ((8 - 4) - (2 - 1)));
}

/* Addresses in memory: a table of rows, as integers; a pointer's bits there and back, and to another type. */
static void test_addresses(void **state)
{
    (void)state;
    float rows[2][3] = {{1, 2, 3}, {4, 5, 6}}, y[2] = {0};
    int64_t table[2] = {(int64_t)(intptr_t)rows[1], (int64_t)(intptr_t)rows[0]};
    int32_t bits[3] = {0}, one;
    float first = 1;
    memcpy(&one, &first, sizeof one);
    expect_run("kernel @k(%t: i64 read, %y: f32 write, %x: f32 read, %b: i32 write, %t: ptr<i64>, %y: ptr<f32>, %x: ptr<f32>, %b: ptr<i32>) grid(%p : 2 by 1) {\n"
               "  %two = const 2 : i64\n"
               "  %tp = addptr %t, %p : ptr<i64>\n"
               "  %a = load_ptr %tp : i64\n"
               "  %row = bitcast %a : ptr<f32>\n"
               "  %rp = addptr %row, %two : ptr<f32>\n"
               "  %v = load_ptr %rp : f32\n"
               "  %yp = addptr %y, %p : ptr<f32>\n"
               "  %yi = bitcast %yp : u64\n"
               "  %yq = bitcast %yi : ptr<f32>\n"
               "  store_ptr %yq, %v\n"
               "  %xi = bitcast %x : ptr<i32>\n"
               "  %c = load_ptr %xi : i32\n"
               "  store_ptr %b, %c\n"
               "}\n",
               (tn_tile_arg[]){{table, 2}, {y, 2}, {&first, 1}, {bits, 3}}, NULL);
    assert_true(y[0] == 6 && y[1] == 3);
    assert_int_equal(bits[0], one);
}

/* Lanes in order, on one place; what is masked off, or absent, changes nothing and is absent. */
static void test_pointer_atomics(void **state)
{
    (void)state;
    int32_t x[3] = {10, 20, 7}, old[4] = {-1, -1, -1, -1}, was[3] = {0};
    float f[2] = {-0.0f, 1};
    expect_run("kernel @k(%x: i32 read_write, %o: i32 write, %w: i32 write, %f: f32 read_write, %x: ptr<i32>, %o: ptr<i32>, %w: ptr<i32>, %f: ptr<f32>) grid() {\n"
               "  %z = const 0 : i64\n  %i = range %z : 4 x i64\n  %i32 = cast %i : 4 x i32\n  %2 = const 2 : 4 x i64\n"
               "  %m = ne %i, %2 : 4 x bool\n"
               "  %xb = broadcast %x axes [] : 4 x ptr<i32>\n"
               "  %a = atomic_ptr add %xb, %i32, %m order acq_rel.gpu : 4 x i32\n"
               "  %ob = broadcast %o axes [] : 4 x ptr<i32>\n  %op = addptr %ob, %i : 4 x ptr<i32>\n"
               "  store_ptr %op, %a\n"
               "  %one = const 1 : i64\n  %x1 = addptr %x, %one : ptr<i32>\n  %5 = const 5 : i32\n  %20 = const 20 : i32\n"
               "  %e = atomic_ptr exchange %x1, %5 : i32\n  store_ptr %w, %e\n"
               "  %no = cas_ptr %x1, %20, %20 : i32\n  %w1 = addptr %w, %one : ptr<i32>\n  store_ptr %w1, %no\n"
               "  %yes = cas_ptr %x1, %5, %20 order relaxed.cta : i32\n"
               "  %pz = const 0 : f32\n  %pw = const 3 : f32\n  %fs = cas_ptr %f, %pz, %pw : f32\n" /* -0 is another pattern of bits */
               "}\n",
               (tn_tile_arg[]){{x, 3}, {old, 4}, {was, 3}, {f, 2}}, NULL);
    const int32_t want_x[] = {14, 20, 7}, want_old[] = {10, 10, -1, 11}, want_was[] = {20, 5, 0};
    assert_memory_equal(x, want_x, sizeof want_x);
    assert_memory_equal(old, want_old, sizeof want_old);
    assert_memory_equal(was, want_was, sizeof want_was);
    assert_true(f[0] == 0 && signbit(f[0]));
}

/* The first element that is there starts; of none comes 0. The same after binding, which gives identities. */
static void test_no_identity(void **state)
{
    (void)state;
    const char *text = "kernel @k(%x: i32[5] read, %y: i32[8] write, %z: i32[4] write) grid() {\n"
                       "  view %X = %x : [5] strides [1]\n  view %Y = %y : [8] strides [1]\n  view %Z = %z : [4] strides [1]\n"
                       "  %0 = const 0 : i64\n  %1 = const -2 : i64\n  %2 = const 100 : i64\n  %3 = const 1 : i64\n"
                       "  %a = load %X[%1 + @0] : 8 x i32\n  %none = load %X[%2 + @0] : 8 x i32\n"
                       "  %s = scan %a axes [0] : 8 x i32 combine (%u: i32, %v: i32) {\n    %w = sub %u, %v : i32\n    yield %w\n  }\n"
                       "  %i = range %0 : 8 x i64\n"
                       "  %r, %at = reduce %a, %i axes [0] order any : i32, i64 combine (%u: i32, %ui: i64, %v: i32, %vi: i64) {\n"
                       "    %w = min %u, %v : i32\n    %first = le %u, %v : bool\n    %wi = select %first, %ui, %vi : i64\n    yield %w, %wi\n  }\n"
                       "  %n = reduce %none axes [0] order tree : i32 combine (%u: i32, %v: i32) {\n    %w = min %u, %v : i32\n    yield %w\n  }\n"
                       "  store %Y[%0 + @0], %s\n  store %Z[%0], %r\n  %at32 = cast %at : i32\n  store %Z[%3], %at32\n  %4 = const 2 : i64\n  store %Z[%4], %n\n"
                       "}\n";
    int32_t x[5] = {9, 7, 8, 5, 6};
    const int32_t want_y[] = {0, 0, 9, 2, -6, -11, -17, -17}, want_z[] = {5, 5, 0, -1};
    tn_session *session = new_test_session();
    for (int bound = 0; bound < 2; bound++) {
        int32_t y[8] = {0}, z[4] = {-1, -1, -1, -1};
        tn_kernel *kernel = parse_tile(session, text);
        assert_string_equal(tile_text(kernel), tile_text(parse_tile(session, tile_text(kernel))));
        if (bound)
            assert_int_equal(tn_tile_bind(kernel), TN_OK);
        assert_true(bound == (strstr(tile_text(kernel), "identity") != NULL));
        assert_int_equal(tn_tile_interpret(kernel, (tn_tile_arg[]){{x, 5}, {y, 8}, {z, 4}}, NULL, NULL), TN_OK);
        assert_memory_equal(y, want_y, sizeof want_y);
        assert_memory_equal(z, want_z, sizeof want_z);
    }
    free_test_session(session);
}

/* A symbol of a size is the parameter of its name. */
static void test_symbols(void **state)
{
    (void)state;
    int32_t y[4] = {0};
    variant v = {.size = {{"n", ((int64_t)1 << 32) + 3}}}; /* only 32 bits of it are the parameter's */
    expect_run("kernel @k(%y: i32 write, %n: i32) grid(%p : n by 1) {\n  view %Y = %y : [n] strides [1]\n  store %Y[%p], %n\n}\n", (tn_tile_arg[]){{y, 4}}, &v);
    const int32_t want[] = {3, 3, 3, 0};
    assert_memory_equal(y, want, sizeof want);
}

/* What the builder makes of user kernels' operations passes the verifier and reads back. */
static void test_builder(void **state)
{
    (void)state;
    tn_session *session = new_test_session();
    tn_kernel *kernel = tn_kernel_new(session, "built");
    kernel->overlap = true;
    tn_kernel_buffer(kernel, "x", TN_I32, TN_READ_WRITE, NULL);
    tn_tvalue *x = tn_kernel_scalar(kernel, "x", (tn_ttype){.dtype = TN_I32, .pointer = true}), *n = tn_kernel_scalar(kernel, "n", tn_tscalar(TN_I32));
    tn_tbuilder b = tn_tbuilder_at(kernel, kernel->body, TN_NO_LOC);
    tn_extent eight = tn_extent_const(8);
    tn_tvalue *i = tn_t_range(&b, tn_t_index(&b, 0), eight), *first, *second;
    tn_tvalue *mask = tn_t_map2(&b, TN_S_lt, i, tn_t_cast(&b, n, TN_I64)), *i32 = tn_t_cast(&b, i, TN_I32);
    tn_tvalue *p = tn_t_addptr(&b, tn_t_broadcast(&b, x, (tn_ttype){.dtype = TN_I32, .pointer = true, .rank = 1, .extent = {eight}}, NULL), i);
    tn_tvalue *q = tn_t_map3(&b, TN_S_select, mask, p, x); /* of pointers; the scalar stretches */
    assert_true(q->type.pointer);
    tn_tvalue *v = tn_t_load_ptr(&b, q, mask, i32);
    tn_t_split(&b, tn_t_join(&b, v, i32), &first, &second);
    tn_tvalue *both = tn_t_cat(&b, first, second, 0), *g = tn_t_gather(&b, both, i, 0);
    assert_int_equal(both->type.extent[0].size, 16);
    tn_tvalue *h = tn_t_histogram(&b, g, 8, TN_I32);
    tn_top *scan = tn_t_scan(&b, &h, 1, 0, true, NULL);
    tn_t_combine_fn(&b, scan->region[0], TN_S_add, TN_I32);
    tn_top *sort = tn_t_sort(&b, (tn_tvalue *[]){scan->result, i}, 2, 0);
    tn_tbuilder in = tn_tbuilder_at(kernel, sort->region[0], TN_NO_LOC);
    tn_tvalue *before = tn_t_map2(&in, TN_S_lt, &sort->region[0]->arg[0], &sort->region[0]->arg[2]);
    tn_t_yield(&in, &before, 1);
    tn_t_store_ptr(&b, p, &sort->result[0], mask);
    tn_tvalue *old = tn_t_atomic_ptr(&b, TN_S_add, p, i32, mask, "release.gpu");
    tn_t_cas_ptr(&b, p, old, i32, NULL);
    tn_tvalue *address = tn_t_bitcast_type(&b, p, tn_tscalar(TN_I64));
    tn_t_bitcast_type(&b, address, (tn_ttype){.dtype = TN_F32, .pointer = true});
    tn_t_print(&b, "v", true, &v, 1);
    tn_t_assert(&b, tn_t_assume(&b, mask, mask), "held");
    if (tn_tile_verify(kernel) != TN_OK)
        fail_msg("%s", session->diags.at[0].message);
    const char *text = tile_text(kernel);
    assert_non_null(strstr(text, "%n: i32) overlap grid()"));
    assert_non_null(strstr(text, "print hex \"v\", %"));
    assert_string_equal(text, tile_text(parse_tile(session, text)));
    free_test_session(session);
}

static void test_reports(void **state)
{
    (void)state;
    float x[4] = {0};
    tn_tile_arg args[] = {{x, 4}};
    expect_refusal("kernel @k(%x: f32 read_write) grid(%p : 8 by 4) {\nview %X = %x : [8] strides [1]\n%a = load %X[%p + @0] : 4 x f32\n}", args,
                   "kernel @k, program %p = 4: load: element [4] of view %X lies outside buffer %x of 4 elements");
    expect_refusal("kernel @k(%x: f32 read_write) grid(%p : 8 by 4) {\nview %X = %x : [8] strides [-1]\n%a = load %X[%p + @0] : 4 x f32\n}", args,
                   "program %p = 0: load: element [1]");
    expect_refusal("kernel @k(%x: f32 read_write) grid() {\nview %X = %x : [8] strides [9223372036854775807]\n%z = const 7 : i64\n%a = load %X[%z] : f32\n}",
                   args, "lies outside");
    expect_refusal("kernel @k(%x: f32 read, %x: ptr<f32>) grid() {\n%z = const -1 : i64\n%p = addptr %x, %z : ptr<f32>\n%a = load_ptr %p : f32\n}", args,
                   "element -1 lies outside buffer %x");
    expect_refusal("kernel @k(%x: f32 read, %x: ptr<f32>) grid() {\n%a = load_ptr %x : f32\nstore_ptr %x, %a\n}", args, "declared `read`");
    expect_refusal("kernel @k(%x: f32 read, %q: ptr<f32>) grid() {\n}", args, "no buffer has the name of the pointer %q");
    expect_refusal("kernel @k(%x: f32 read, %q: i32) grid() {\n}", args, "parameter %q has no value");
    expect_refusal("kernel @k() grid(%p : n by 4) {\n}", args, "the size n has no value");
    expect_refusal("kernel @k() grid(%p : 3 by $R) {\n}", args, "$R is not bound");
    expect_refusal("kernel @k() grid() {\n%a = const 0 : 1073741824 x f32\n}", args, "larger than this interpreter holds");
    expect_refusal("kernel @k() grid() {\n%f = const false : bool\nassert \"never\", %f\n}", args, "assert: does not hold: never");
    expect_refusal("kernel @k() grid() {\n%f = const false : bool\n%z = const 1 : i64\n%a = assume %z, %f : i64\n}", args, "assume: does not hold");
    expect_refusal("kernel @k() grid() {\n%z = const 0 : i64\n%o = const 1 : i64\nfor (%j = %z to %o by %z) {\nyield\n}\n}", args, "the step must be positive");
    expect_refusal("kernel @k() grid() {\n%z = const 5 : 2 x i64\n%a = const 1 : 4 x f32\n%g = gather %a, %z axes [0] : 2 x f32\n}", args, "index 5 of 4");
    expect_refusal("kernel @k() grid() {\n%a = asm \"nop\" : f32\n}", args, "does not run this operation");
    run r = run_text("kernel @k() grid() {\n%z = const 5 : 2 x i64\nprint \"z is\", %z\n}", args, NULL);
    assert_int_equal(r.status, TN_OK);
    assert_string_equal(r.message, "z is 5, 5");
    free_test_session(r.session);
}

static const char *simplified(tn_session *session, const char *text)
{
    tn_kernel *kernel = parse_tile(session, text);
    assert_int_equal(tn_tile_verify(kernel), TN_OK);
    assert_int_equal(tn_tile_passes[0].run(kernel), TN_OK);
    assert_int_equal(tn_tile_verify(kernel), TN_OK);
    return tile_text(kernel);
}

static void test_simplify(void **state)
{
    (void)state;
    tn_session *session = new_test_session();
    const char *text = "kernel @k(%x: f32 read_write) grid() {\n"
                       "  view %X = %x : [8] strides [1]\n"
                       "  view %V = %x : [8] strides [1]\n"
                       "  %z = const 0 : i64\n"
                       "  %o = const 1 : i64\n"
                       "  %s = add %z, %o : i64\n"
                       "  %a = load %X[%z + @0] : 8 x f32\n"
                       "  %b = load %V[%z + @0] : 8 x f32\n"
                       "  %dead = reduce @gone %b axes [0] order any identity [0] : f32 combine (%u: f32, %w: f32) {\n"
                       "    %y = add %u, %w : f32\n"
                       "    yield %y\n"
                       "  }\n"
                       "  %c = add %a, %b : 8 x f32\n"
                       "  store %X[%s + @0], %c\n"
                       "  %d = load %X[%z + @0] : 8 x f32\n"
                       "  store %X[%z + @0], %d\n"
                       "} schedule { set gone lanes = 4 }\n";
    assert_string_equal(simplified(session, text), "kernel @k(%x: f32 read_write) grid() {\n"
                                                   "  view %X = %x : [8] strides [1]\n"
                                                   "  view %V = %x : [8] strides [1]\n"
                                                   "  %z = const 0 : i64\n"
                                                   "  %o = const 1 : i64\n"
                                                   "  %a = load %X[%z + @0] : 8 x f32\n"
                                                   "  %c = add %a, %a : 8 x f32\n"
                                                   "  store %X[%o + @0], %c\n"
                                                   "  %d = load %X[%z + @0] : 8 x f32\n"
                                                   "  store %X[%z + @0], %d\n"
                                                   "}\n");
    free_test_session(session);
}

/* A chain that uses each value twice: nothing may take time by the number of paths. */
static void test_paths(void **state)
{
    (void)state;
    tn_session *session = new_test_session();
    tn_text text = {.arena = &session->arena};
    tn_text_add(&text, "kernel @k(%%x: f32[64] read, %%y: f32[1] write) grid() {\n  view %%X = %%x : [64] strides [1] pad 0\n  view %%Y = %%y : [1] strides [1]\n"
                       "  %%z = const 0 : i64\n  %%n = size 64 : i64\n  %%s = fold (%%j : %%n by 8) axes [0] order any identity [0] : f32 {\n"
                       "    %%i = const -1 : i64\n    %%v0 = load %%X[%%j + @0] : 8 x f32\n");
    for (int i = 0; i < 100; i++)
        tn_text_add(&text, "    %%v%d = max %%v%d, %%v%d : 8 x f32\n", i + 1, i, i);
    tn_text_add(&text, "    yield %%v100\n  } combine (%%a: f32, %%b: f32) {\n    %%c = add %%a, %%b : f32\n    yield %%c\n  }\n  store %%Y[%%z], %%s\n}\n");
    check_kernel(text.at, &(variant){.size = {{NULL, 0}}}, 1);
    free_test_session(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pointers), cmocka_unit_test(test_other),   cmocka_unit_test(test_sort),     cmocka_unit_test(test_histogram_and_atomics),
        cmocka_unit_test(test_tree),     cmocka_unit_test(test_reports), cmocka_unit_test(test_simplify), cmocka_unit_test(test_paths),
        cmocka_unit_test(test_addresses), cmocka_unit_test(test_pointer_atomics), cmocka_unit_test(test_no_identity), cmocka_unit_test(test_symbols),
        cmocka_unit_test(test_builder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
