/* Kernels as users write them, lowered: what the Loop IR of pointers, numbers and checks looks like, and what compiled code prints and reports. The
 * values they compute are test_tile_lower.c's. */
#include "tile_test.h"

#include "loop/internal.h"

#include <unistd.h>

static tn_lfunc *lower_text(tn_session *session, const char *text, const char *machine, bool pipeline)
{
    tn_kernel *kernel = parse_tile(session, text);
    const tn_machine *m = tn_machine_find(machine);
    const tn_pass_options options = {.vector = m->vector};
    tn_lfunc *func = NULL;
    bool ok = tn_tile_verify(kernel) == TN_OK && tn_cpu_lower(session, kernel, m, &func) == TN_OK && tn_loop_verify(func, 0) == TN_OK &&
              (!pipeline || tn_loop_run_passes(func, tn_loop_pipeline, &options, true, NULL) == TN_OK);
    if (!ok) {
        tn_print_diags(session, stderr);
        fail_msg("a test's kernel does not lower");
    }
    return func;
}

/* ---- what it looks like ---- */

#define ADD(element, flags)                                                                                                                         \
    "kernel @k(%x: " element "[n] read, %z: " element "[n] write, %x: ptr<" element ">, %z: ptr<" element ">, %n: i32) " flags " grid(%pid : g by 1) {\n" \
    "  %p = cast %pid : i32\n  %size = const 1024 : i32\n  %start = mul %p, %size : i32\n  %zero = const 0 : i64\n"                                  \
    "  %lanes = range %zero : 1024 x i64\n  %i = cast %lanes : 1024 x i32\n  %s = broadcast %start axes [] : 1024 x i32\n"                           \
    "  %offs = add %s, %i : 1024 x i32\n  %limit = broadcast %n axes [] : 1024 x i32\n  %mask = lt %offs, %limit : 1024 x bool\n"                    \
    "  %xb = broadcast %x axes [] : 1024 x ptr<" element ">\n  %xp = addptr %xb, %offs : 1024 x ptr<" element ">\n"                                  \
    "  %a = load_ptr %xp, %mask : 1024 x " element "\n  %b = add %a, %a : 1024 x " element "\n"                                                      \
    "  %zb = broadcast %z axes [] : 1024 x ptr<" element ">\n  %zp = addptr %zb, %offs : 1024 x ptr<" element ">\n"                                  \
    "  store_ptr %zp, %b, %mask\n}\n"

/* 32-bit offsets are seen to be contiguous, the mask is the loop's bound: vectors, no gather, no mask but of the last one. */
static void test_contiguous(void **state)
{
    (void)state;
    static const char *const machines[] = {"avx512", "avx2", "baseline"};
    for (size_t i = 0; i < TN_COUNT(machines); i++)
        for (int overlap = 0; overlap < 2; overlap++) {
            tn_session *session = new_test_session();
            const char *text = loop_text(lower_text(session, overlap ? ADD("f32", "overlap") : ADD("f32", ""), machines[i], true));
            const char *load = strstr(text, "= load %x["), *end = load ? strchr(load, '\n') : NULL;
            assert_non_null(load);
            assert_null(strstr(text, "gather"));
            assert_null(strstr(text, "scatter"));
            assert_non_null(memmem(load, (size_t)(end - load), ": f32x", 6));
            assert_null(memmem(load, (size_t)(end - load), "mask", 4));
            assert_int_equal(strstr(text, ": global f32 readonly") != NULL, !overlap);
            assert_int_equal(strstr(text, ") overlap {") != NULL, overlap);
            free_test_session(session);
        }
}

/* What is stored through an address may be any parameter: none is readonly then. */
static void test_unknown_stores(void **state)
{
    (void)state;
    tn_session *session = new_test_session();
    const char *text = loop_text(lower_text(session,
                                            "kernel @k(%x: f32[8] read, %t: i64[1] read, %x: ptr<f32>, %t: ptr<i64>) grid() {\n  %a = load_ptr %t : i64\n"
                                            "  %p = bitcast %a : ptr<f32>\n  %v = load_ptr %x : f32\n  store_ptr %p, %v\n}\n",
                                            "avx2", false));
    assert_null(strstr(text, "readonly"));
    assert_non_null(strstr(text, "memory : global f32"));
    assert_non_null(strstr(text, ") overlap {"));
    free_test_session(session);
}

/* A number is a parameter that says what it holds; of a size's name it is that size. What is no size may be negative. */
static void test_numbers(void **state)
{
    (void)state;
    tn_session *session = new_test_session();
    tn_lfunc *func = lower_text(session,
                                "kernel @k(%y: i32[n] write, %y: ptr<i32>, %n: i32, %a: f64, %m: i64) grid() {\n  view %Y = %y : [n] strides [1]\n"
                                "  %z = const 0 : i64\n  %neg = lt %m, %z : bool\n  %i = cast %neg : i32\n  %b = cast %a : i32\n  %c = add %i, %b : i32\n"
                                "  %d = add %c, %n : i32\n  store %Y[%z], %d\n}\n",
                                "avx2", true);
    assert_non_null(strstr(loop_text(func), "%n: index of i32, %a: index of f64, %m: index of i64, %begin: index"));
    int32_t y[4] = {0};
    tn_number a = {.f = -2.5};
    assert_int_equal(tn_loop_interpret(func, (tn_loop_arg[]){{y, 4}}, (int64_t[]){4, a.i, -1, 0, 1}), TN_OK);
    assert_int_equal(y[0], 1 - 2 + 4);
    assert_int_equal(tn_loop_interpret(func, (tn_loop_arg[]){{y, 4}}, (int64_t[]){4, a.i, INT64_MAX, 0, 1}), TN_OK);
    assert_int_equal(y[0], 0 - 2 + 4);
    free_test_session(session);
}

static void test_refused(void **state)
{
    (void)state;
    tn_session *session = new_test_session();
    tn_kernel *kernel = parse_tile(session, "kernel @k(%x: f32 read, %q: ptr<f32>) grid() {\n}\n");
    tn_lfunc *func = NULL;
    assert_int_equal(tn_cpu_lower(session, kernel, tn_machine_find("avx2"), &func), TN_INVALID);
    assert_non_null(strstr(session->diags.at[0].message, "no buffer has the name of the pointer %q"));
    free_test_session(session);
}

/* ---- what it does ---- */

static void call(tn_session *session, tn_lfunc *func, void *const *buffers, const int64_t *sizes, int64_t programs, int64_t *failed)
{
    tn_blob object;
    tn_jit *jit;
    int64_t bytes;
    assert_int_equal(tn_llvm_emit(session, &func, 1, tn_machine_find(NULL), TN_EMIT_OBJECT, 2, &object), TN_OK);
    assert_int_equal(tn_jit_new(session, &jit), TN_OK);
    assert_int_equal(tn_jit_add_object(session, jit, object.data, object.size), TN_OK);
    free(object.data);
    assert_true(tn_kernel_scratch(func, sizes, &bytes));
    int64_t *scratch = aligned_alloc(64, (size_t)bytes + 64);
    *scratch = 0;
    ((tn_kernel_fn)(uintptr_t)tn_jit_symbol(jit, func->name))(buffers, sizes, 0, programs, scratch);
    *failed = *scratch;
    free(scratch);
    tn_jit_free(jit);
}

static void collect_line(void *context, const char *line) { tn_text_add(context, "%s\n", line); }

/* Compiled code prints what the checked mode prints. */
static void test_print(void **state)
{
    (void)state;
    static const char *const text =
        "kernel @k(%x: f32[8] read, %x: ptr<f32>, %n: i8) grid(%z : 1 by 1, %y : 2 by 1, %p : 2 by 1) {\n"
        "  %zero = const 0 : i64\n  %i = range %zero : 4 x i64\n  %xb = broadcast %x axes [] : 4 x ptr<f32>\n  %xp = addptr %xb, %i : 4 x ptr<f32>\n"
        "  %two = const 2 : 4 x i64\n  %m = lt %i, %two : 4 x bool\n  %v = load_ptr %xp, %m : 4 x f32\n  %v2 = reshape %v : 2 x 2 x f32\n"
        "  print \" v: \", %v2\n  print \"{n} 5%\", %n, %m\n  print hex \"h\", %n, %v\n  print \"\", %p\n  print \" plain: \"\n}\n";
    static const variant sizes = {.size = {{"n", 253}}};
    float x[8] = {1.5f, -2, 3, 4, 5, 6, 7, 8};
    tn_session *session = new_test_session();
    tn_text want = {.arena = &session->arena};
    tn_tile_check_options options = {.print = collect_line, .context = &want};
    assert_int_equal(tn_tile_check(parse_tile(session, text), (tn_tile_arg[]){{x, 8}}, test_lookup, (void *)&sizes, &options), TN_OK);
    assert_non_null(strstr(want.at, "pid (1, 0, 0) idx (0, 1) v: -2.000000\npid (1, 0, 0) idx (1, 0) v: masked\n"));
    tn_lfunc *func = lower_text(session, text, NULL, true);
    char got[8192] = "";
    int64_t failed;
    fflush(stdout);
    FILE *file = tmpfile();
    int saved = dup(STDOUT_FILENO);
    dup2(fileno(file), STDOUT_FILENO);
    call(session, func, (void *const[]){x}, (int64_t[]){-3}, 4, &failed);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    rewind(file);
    assert_true(fread(got, 1, sizeof got - 1, file) > 0);
    fclose(file);
    assert_string_equal(got, want.at);
    free_test_session(session);
}

/* A failed assertion ends the kernel and leaves its line. */
static void test_assert(void **state)
{
    (void)state;
    tn_session *session = new_test_session();
    tn_lfunc *func = lower_text(session,
                                "kernel @k(%y: i32[8] write, %y: ptr<i32>, %n: i64) grid(%p : 4 by 1) {\n"
                                "  %yp = addptr %y, %p : ptr<i32>\n  %one = const 1 : i32\n"
                                "  %zero = const 0 : i64\n  %i = range %zero : 4 x i64\n"
                                "  %nb = broadcast %n axes [] : 4 x i64\n  %pb = broadcast %p axes [] : 4 x i64\n  %s = add %i, %pb : 4 x i64\n"
                                "  %c = lt %s, %nb : 4 x bool\n"
                                "  assert \"below n\", %c\n"
                                "  store_ptr %yp, %one\n}\n",
                                NULL, true);
    assert_true(tn_kernel_traps(func));
    int32_t y[8] = {0};
    int64_t failed;
    call(session, func, (void *const[]){y}, (int64_t[]){7}, 4, &failed);
    assert_int_equal(failed, 0);
    assert_int_equal(y[3], 1);
    memset(y, 0, sizeof y);
    call(session, func, (void *const[]){y}, (int64_t[]){5}, 4, &failed);
    assert_int_equal(failed, 10);
    assert_int_equal(y[0] + y[1] + y[2] + y[3], 2);
    free_test_session(session);
}

/* Compiled for this machine: addresses from a table, gathers from them, atomics. */
static void test_compiled(void **state)
{
    (void)state;
    static const char *const text =
        "kernel @k(%x: f32[64] read, %t: i64[4] read_write, %z: f32[64] read_write, %c: i32[4] read_write, %x: ptr<f32>, %t: ptr<i64>, %z: ptr<f32>, %c: ptr<i32>) "
        "overlap grid(%p : 2 by 1) {\n"
        "  %zero = const 0 : i64\n  %i = range %zero : 16 x i64\n  %xa = bitcast %x : i64\n  %tp = addptr %t, %p : ptr<i64>\n  store_ptr %tp, %xa\n"
        "  %a = load_ptr %tp : i64\n  %f = bitcast %a : ptr<f32>\n  %fb = broadcast %f axes [] : 16 x ptr<f32>\n  %three = const 3 : 16 x i64\n"
        "  %i3 = mul %i, %three : 16 x i64\n  %fp = addptr %fb, %i3 : 16 x ptr<f32>\n  %ten = const 10 : 16 x i64\n  %m = lt %i, %ten : 16 x bool\n"
        "  %v = load_ptr %fp, %m : 16 x f32\n  %sixteen = const 16 : i64\n  %o = mul %p, %sixteen : i64\n  %z0 = addptr %z, %o : ptr<f32>\n"
        "  %zb = broadcast %z0 axes [] : 16 x ptr<f32>\n  %zp = addptr %zb, %i : 16 x ptr<f32>\n  store_ptr %zp, %v, %m\n"
        "  %one = const 1 : 16 x i32\n  %cb = broadcast %c axes [] : 16 x ptr<i32>\n  %old = atomic_ptr add %cb, %one, %m : 16 x i32\n"
        "  %s = reduce %old axes [0] order any identity [0] : i32 combine (%u: i32, %w: i32) {\n    %q = add %u, %w : i32\n    yield %q\n  }\n"
        "  %four = const 1 : i64\n  %c1 = addptr %c, %four : ptr<i32>\n  %was = atomic_ptr add %c1, %s : i32\n  %none = const 0 : i64\n  store_ptr %tp, %none\n}\n";
    tn_session *session = new_test_session();
    float x[64], z[2][64] = {{0}};
    int64_t t[2][4] = {{0}}, failed;
    int32_t c[2][4] = {{0}};
    for (int i = 0; i < 64; i++)
        x[i] = (float)i - 7;
    tn_tile_arg args[] = {{x, 64}, {t[0], 4}, {z[0], 64}, {c[0], 4}};
    assert_int_equal(tn_tile_interpret(parse_tile(session, text), args, test_lookup, (void *)&(variant){.size = {{NULL, 0}}}), TN_OK);
    call(session, lower_text(session, text, NULL, true), (void *const[]){x, t[1], z[1], c[1]}, (int64_t[]){0}, 2, &failed);
    assert_memory_equal(z[0], z[1], sizeof z[0]);
    assert_memory_equal(c[0], c[1], sizeof c[0]);
    assert_int_equal(c[1][0], 20);
    free_test_session(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contiguous), cmocka_unit_test(test_unknown_stores), cmocka_unit_test(test_numbers), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_print),      cmocka_unit_test(test_assert),         cmocka_unit_test(test_compiled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
