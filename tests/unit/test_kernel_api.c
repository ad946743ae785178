/* Kernels in Triton's language through the public API: compile, launch, check, emit, errors, threads, the cache. Includes nothing but tenon.h and the test
 * library. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tenon/tenon.h"

#define HEAD "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"

static const char add_text[] = HEAD
    "def add(x, y, out, n, BLOCK: tl.constexpr):\n"
    "    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
    "    inside = offsets < n\n"
    "    tl.store(out + offsets, tl.load(x + offsets, mask=inside) + tl.load(y + offsets, mask=inside), mask=inside)\n";

/* Its rows are wanted twice, so that it needs memory of its own; and it is work enough for several threads. */
static const char softmax_text[] = HEAD
    "def softmax(x, out, stride, n, BLOCK: tl.constexpr):\n"
    "    row = tl.program_id(0)\n"
    "    columns = tl.arange(0, BLOCK)\n"
    "    value = tl.load(x + row * stride + columns, mask=columns < n, other=-float('inf'))\n"
    "    value = tl.exp(value - tl.max(value, 0))\n"
    "    tl.store(out + row * stride + columns, value / tl.sum(value, 0), mask=columns < n)\n";

static const char assert_text[] = HEAD
    "def checked(x, n, BLOCK: tl.constexpr):\n"
    "    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
    "    value = tl.load(x + offsets, mask=offsets < n, other=0)\n"
    "    tl.device_assert(value >= 0, 'x is not negative')\n"
    "    tl.store(x + offsets, value + 1, mask=offsets < n)\n";

static const char indirect_text[] = HEAD
    "def indirect(table, out, n, BLOCK: tl.constexpr):\n"
    "    offsets = tl.arange(0, BLOCK)\n"
    "    place = tl.load(table + offsets, mask=offsets < n, other=0)\n"
    "    pointer = place.to(tl.pointer_type(tl.float32))\n"
    "    tl.store(out + offsets, tl.load(pointer, mask=offsets < n), mask=offsets < n)\n";

/* ---- helpers ---------------------------------------------------------------------------------------------------------------- */

enum { MOST = 8 };

typedef struct compiled {
    tn_session *session;
    tn_module *module;
    int unit;
    tn_compiled_kernel *kernel;
} compiled;

static void print_diagnostics(tn_session *session)
{
    tn_diagnostic d;
    for (size_t i = 0; tn_diagnostic_at(session, i, &d) == TN_OK; i++)
        fprintf(stderr, "%s:%d:%d: %s\n", d.file ? d.file : "", d.line, d.column, d.message);
}

static bool said(tn_session *session, int severity, const char *part)
{
    tn_diagnostic d;
    for (size_t i = 0; tn_diagnostic_at(session, i, &d) == TN_OK; i++)
        if (d.severity == severity && strstr(d.message, part))
            return true;
    print_diagnostics(session);
    return false;
}

static compiled open_text(const char *text)
{
    compiled c = {.session = tn_session_new()};
    assert_non_null(c.session);
    assert_int_equal(tn_module_new(c.session, &c.module), TN_OK);
    if (tn_module_add(c.module, "kernel.py", 1, text, strlen(text), &c.unit) != TN_OK) {
        print_diagnostics(c.session);
        fail();
    }
    return c;
}

/* arguments end with NULL behind the last */
static tn_status try_compile(compiled *c, const char *name, const char *const *arguments, size_t n, const tn_kernel_options *options)
{
    static const tn_kernel_options none = {.cache = "", .threads = 2};
    return tn_kernel_compile(c->session, c->module, c->unit, name, arguments, n, options ? options : &none, &c->kernel);
}

static compiled compile(const char *text, const char *name, const char *const *arguments, size_t n, const tn_kernel_options *options)
{
    compiled c = open_text(text);
    if (try_compile(&c, name, arguments, n, options) != TN_OK) {
        print_diagnostics(c.session);
        fail();
    }
    return c;
}

static void drop(compiled *c)
{
    tn_compiled_kernel_free(c->kernel);
    tn_module_free(c->module);
    tn_session_free(c->session);
}

static const char *const add_arguments[] = {"*f32:16", "*f32:16", "*f32:16", "i32", "=64"};

static tn_kernel_info info_of(const compiled *c)
{
    tn_kernel_info info;
    assert_int_equal(tn_kernel_describe(c->kernel, &info), TN_OK);
    return info;
}

static void grid1(int64_t *grid, int64_t x) { grid[0] = x, grid[1] = grid[2] = 1; }

/* ---- compile, launch ---------------------------------------------------------------------------------------------------------- */

static void test_launch(void **state)
{
    enum { N = 1000 };
    static _Alignas(64) float x[N], y[N], out[N + 1];
    compiled c = compile(add_text, "add", add_arguments, 5, NULL);
    (void)state;
    for (int i = 0; i < N; i++)
        x[i] = (float)i, y[i] = (float)(2 * i);
    for (int n = 0; n <= N; n += 111) {
        tn_kernel_value values[] = {{.pointer = x}, {.pointer = y}, {.pointer = out}, {.integer = n}};
        int64_t grid[3];
        grid1(grid, (n + 63) / 64);
        for (int i = 0; i <= N; i++)
            out[i] = -1;
        assert_int_equal(tn_kernel_launch(c.kernel, grid, values, 4), TN_OK);
        assert_string_equal(tn_kernel_error(), "");
        for (int i = 0; i <= N; i++)
            assert_float_equal(out[i], i < n ? (float)(3 * i) : -1, 0);
    }
    tn_kernel_info info = info_of(&c);
    assert_int_equal(info.nvalues, 4);
    assert_int_equal(info.written, 1 << 2);
    assert_int_equal(info.pointer_accesses, 0);
    assert_int_equal(info.cached, 0);
    assert_int_equal(info.threads, 2);
    assert_true(info.code_bytes > 0 && info.front_seconds > 0 && info.lower_seconds > 0 && info.emit_seconds > 0 && info.link_seconds > 0);
    drop(&c);
}

/* Modules may go before their kernels; each lives as long as it must. */
static void test_lifetimes(void **state)
{
    static _Alignas(64) float x[64], out[64];
    compiled c = compile(add_text, "add", add_arguments, 5, NULL), other = {.session = c.session, .module = c.module, .unit = c.unit};
    tn_kernel_value values[] = {{.pointer = x}, {.pointer = x}, {.pointer = out}, {.integer = 64}};
    (void)state;
    assert_int_equal(try_compile(&other, "add", add_arguments, 5, NULL), TN_OK);
    tn_module_free(c.module);
    tn_compiled_kernel_free(other.kernel);
    x[5] = 4;
    assert_int_equal(tn_kernel_launch(c.kernel, (int64_t[3]){1, 1, 1}, values, 4), TN_OK);
    assert_float_equal(out[5], 8, 0);
    tn_compiled_kernel_free(c.kernel);
    tn_session_free(c.session);
    tn_module_free(NULL);
    tn_compiled_kernel_free(NULL);
}

static void test_grid(void **state)
{
    static const char text[] = HEAD "def programs(out, grid_y, begin, end, sizes):\n"
                                    "    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)\n"
                                    "    place = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x\n"
                                    "    tl.store(out + place, x + 10 * y + 100 * z + 1000 * grid_y + 10000 * begin + 100000 * end + sizes)\n";
    static const char *const arguments[] = {"*i32", "i32", "i32", "i32", "i32:16"};
    int out[24], k = 0;
    compiled c = compile(text, "programs", arguments, 5, NULL);
    tn_kernel_value values[] = {{.pointer = out}, {.integer = 7}, {.integer = 8}, {.integer = 9}, {.integer = 0}};
    (void)state;
    assert_int_equal(tn_kernel_launch(c.kernel, (int64_t[3]){2, 3, 4}, values, 5), TN_OK);
    for (int z = 0; z < 4; z++)
        for (int y = 0; y < 3; y++)
            for (int x = 0; x < 2; x++)
                assert_int_equal(out[k++], x + 10 * y + 100 * z + 987000);
    out[0] = -5;
    assert_int_equal(tn_kernel_launch(c.kernel, (int64_t[3]){2, 0, 4}, values, 5), TN_OK);
    assert_int_equal(out[0], -5);
    drop(&c);
    static const char *const ones[] = {"*i32", "i32=1", "i32", "i32=1", "i32"}; /* grid_y is 1, the grid's size is not */
    c = compile(text, "programs", ones, 5, NULL);
    values[1].integer = values[3].integer = 1;
    assert_int_equal(tn_kernel_launch(c.kernel, (int64_t[3]){2, 3, 1}, values, 5), TN_OK);
    for (k = 0; k < 6; k++)
        assert_int_equal(out[k], k % 2 + 10 * (k / 2) + 1000 + 80000 + 100000);
    assert_int_equal(tn_kernel_check(c.session, c.kernel, (int64_t[3]){2, 3, 1}, values, 5, NULL, NULL), TN_OK);
    drop(&c);
}

/* Numbers arrive as their types. */
static void test_numbers(void **state)
{
    static const char text[] = HEAD "def numbers(out, a, b, c, d, e, f, g, h, i, j):\n"
                                    "    tl.store(out, a.to(tl.float64))\n    tl.store(out + 1, b.to(tl.float64))\n    tl.store(out + 2, c.to(tl.float64))\n"
                                    "    tl.store(out + 3, d.to(tl.float64))\n    tl.store(out + 4, e.to(tl.float64))\n    tl.store(out + 5, f.to(tl.float64))\n"
                                    "    tl.store(out + 6, g.to(tl.float64))\n    tl.store(out + 7, h.to(tl.float64))\n    tl.store(out + 8, i.to(tl.float64))\n"
                                    "    tl.store(out + 9, tl.full([], j, tl.int32).to(tl.float64))\n";
    static const char *const arguments[] = {"*f64", "i8", "u8", "i32", "u32", "i64", "f32", "f64", "bf16", "i1", "i32=1"};
    double out[10];
    compiled c = compile(text, "numbers", arguments, 11, NULL);
    tn_kernel_value values[] = {{.pointer = out},    {.integer = -100}, {.integer = 200}, {.integer = -70000}, {.integer = 4000000000}, {.integer = -(1ll << 40)},
                                {.real = 0.1},       {.real = 0.1},     {.real = 1.0078125}, {.integer = 5},   {.integer = 1}};
    const double expected[] = {-100, 200, -70000, 4000000000.0, -(double)(1ll << 40), (double)0.1f, 0.1, 1.0078125, 1, 1};
    (void)state;
    assert_int_equal(info_of(&c).nvalues, 11);
    assert_int_equal(tn_kernel_launch(c.kernel, (int64_t[3]){1, 1, 1}, values, 11), TN_OK);
    for (int i = 0; i < 10; i++)
        assert_true(out[i] == expected[i]);
    values[10].integer = 2;
    assert_int_equal(tn_kernel_launch(c.kernel, (int64_t[3]){1, 1, 1}, values, 11), TN_USAGE);
    assert_string_equal(tn_kernel_error(), "j: the kernel was compiled for 1, found 2");
    values[10].integer = 1, values[1].integer = 128;
    assert_int_equal(tn_kernel_launch(c.kernel, (int64_t[3]){1, 1, 1}, values, 11), TN_USAGE);
    assert_string_equal(tn_kernel_error(), "a: 128 does not fit i8");
    drop(&c);
}

/* More of everything than a launch keeps on the stack. */
static void test_many_arguments(void **state)
{
    enum { N = 40 };
    char text[8192] = HEAD "def many(out", names[N][16];
    const char *arguments[2 * N + 1] = {"*i32"};
    int out[N], in[N];
    tn_kernel_value values[2 * N + 1] = {{.pointer = out}};
    (void)state;
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "p%d", i);
        snprintf(text + strlen(text), sizeof text - strlen(text), ", %s, n%d", names[i], i);
        arguments[1 + 2 * i] = "*i32", arguments[2 + 2 * i] = "i32";
        in[i] = i * i;
        values[1 + 2 * i].pointer = &in[i];
        values[2 + 2 * i].integer = 3 * i;
    }
    strcat(text, "):\n");
    for (int i = 0; i < N; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "    tl.store(out + %d, tl.load(p%d) + n%d)\n", i, i, i);
    compiled c = compile(text, "many", arguments, 2 * N + 1, NULL);
    assert_int_equal(tn_kernel_launch(c.kernel, (int64_t[3]){1, 1, 1}, values, 2 * N + 1), TN_OK);
    for (int i = 0; i < N; i++)
        assert_int_equal(out[i], i * i + 3 * i);
    drop(&c);
}

static void test_descriptor(void **state)
{
    static const char text[] = HEAD "def twice(d, out):\n"
                                    "    tile = d.load([0, 0])\n"
                                    "    places = tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :]\n"
                                    "    tl.store(out + places, tile * 2)\n";
    static const char *const arguments[] = {"desc<f32[4x8]>", "*f32"};
    _Alignas(64) float x[3 * 16], out[32];
    compiled c = compile(text, "twice", arguments, 2, NULL);
    tn_kernel_value values[] = {{.pointer = x}, {.integer = 3}, {.integer = 5}, {.integer = 16}, {.integer = 1}, {.pointer = out}};
    (void)state;
    for (int i = 0; i < 48; i++)
        x[i] = (float)(i + 1);
    assert_int_equal(info_of(&c).nvalues, 6);
    assert_int_equal(tn_kernel_launch(c.kernel, (int64_t[3]){1, 1, 1}, values, 6), TN_OK);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 8; j++)
            assert_float_equal(out[i * 8 + j], i < 3 && j < 5 ? 2 * (i * 16 + j + 1) : 0, 0);
    drop(&c);
}

/* ---- what is wrong -------------------------------------------------------------------------------------------------------------- */

static void test_promises(void **state)
{
    static _Alignas(64) float x[80];
    static const char *const arguments[] = {"*f32:16", "*f32", "*f32", "i32:16", "=64"};
    compiled c = compile(add_text, "add", arguments, 5, NULL);
    tn_kernel_value good[] = {{.pointer = x}, {.pointer = x + 1}, {.pointer = x + 2}, {.integer = 32}}, values[4];
    int64_t one[3] = {1, 1, 1};
    (void)state;
    assert_int_equal(tn_kernel_launch(c.kernel, one, good, 4), TN_OK);
    memcpy(values, good, sizeof good);
    values[0].pointer = x + 1;
    assert_int_equal(tn_kernel_launch(c.kernel, one, values, 4), TN_USAGE);
    assert_non_null(strstr(tn_kernel_error(), "x: the kernel was compiled for an address that 16 divides"));
    memcpy(values, good, sizeof good);
    values[3].integer = 33;
    assert_int_equal(tn_kernel_launch(c.kernel, one, values, 4), TN_USAGE);
    assert_string_equal(tn_kernel_error(), "n: the kernel was compiled for a number that 16 divides, found 33");
    values[3].integer = 1ll << 31;
    assert_int_equal(tn_kernel_launch(c.kernel, one, values, 4), TN_USAGE);
    assert_string_equal(tn_kernel_error(), "n: 2147483648 does not fit i32");
    assert_int_equal(tn_kernel_launch(c.kernel, one, good, 3), TN_USAGE);
    assert_string_equal(tn_kernel_error(), "kernel add takes 4 values, found 3");
    assert_int_equal(tn_kernel_launch(c.kernel, (int64_t[3]){1, -1, 1}, good, 4), TN_USAGE);
    assert_string_equal(tn_kernel_error(), "the grid's size 1 is -1; sizes are not negative");
    assert_int_equal(tn_kernel_launch(c.kernel, (int64_t[3]){1ll << 40, 1ll << 40, 1}, good, 4), TN_USAGE);
    assert_non_null(strstr(tn_kernel_error(), "too many programs"));
    assert_int_equal(tn_kernel_launch(NULL, one, good, 4), TN_USAGE);
    assert_int_equal(tn_kernel_launch(c.kernel, one, NULL, 4), TN_USAGE);
    assert_int_equal(tn_kernel_launch(c.kernel, one, good, 4), TN_OK);
    assert_string_equal(tn_kernel_error(), "");
    drop(&c);
}

static void test_assertions(void **state)
{
    enum { N = 4096 };
    static int x[N];
    static const char *const arguments[] = {"*i32", "i32", "=64"};
    tn_kernel_options debug = {.debug = 1, .cache = "", .threads = 2};
    compiled c = compile(assert_text, "checked", arguments, 3, &debug);
    tn_kernel_value values[] = {{.pointer = x}, {.integer = N}};
    int64_t grid[3];
    (void)state;
    grid1(grid, N / 64);
    assert_int_equal(tn_kernel_launch(c.kernel, grid, values, 2), TN_OK);
    x[N - 3] = -1;
    assert_int_equal(tn_kernel_launch(c.kernel, grid, values, 2), TN_INVALID);
    assert_string_equal(tn_kernel_error(), "kernel.py:9: device_assert failed: x is not negative");
    assert_int_equal(x[N - 3], -1);
    x[N - 3] = 1;
    assert_int_equal(tn_kernel_launch(c.kernel, grid, values, 2), TN_OK);
    drop(&c);
    c = compile(assert_text, "checked", arguments, 3, NULL);
    x[N - 3] = -1;
    assert_int_equal(tn_kernel_launch(c.kernel, grid, values, 2), TN_OK);
    assert_int_equal(x[N - 3], 0);
    drop(&c);
}

static void test_refused(void **state)
{
    static const char text[] = HEAD "def f(x, n):\n    for i in range(n):\n        x.nothing(i)\n";
    static const char *const arguments[] = {"*f32", "i32"}, *const wrong_type[] = {"*f33", "i32"};
    compiled c = open_text(text);
    tn_diagnostic d;
    (void)state;
    assert_int_equal(try_compile(&c, "f", arguments, 2, NULL), TN_INVALID);
    assert_int_equal(tn_diagnostic_at(c.session, 0, &d), TN_OK);
    assert_string_equal(d.file, "kernel.py");
    assert_int_equal(d.line, 8);
    assert_true(d.column > 0);
    tn_diagnostics_clear(c.session);
    assert_int_equal(try_compile(&c, "g", arguments, 2, NULL), TN_USAGE);
    assert_true(said(c.session, 2, "'g'"));
    tn_diagnostics_clear(c.session);
    assert_int_equal(try_compile(&c, "f", arguments, 1, NULL), TN_USAGE);
    assert_int_equal(try_compile(&c, "f", wrong_type, 2, NULL), TN_USAGE);
    tn_kernel_options unknown = {.machine = "abacus"}, foreign = {.machine = "neon", .cache = ""};
    assert_int_equal(try_compile(&c, "f", arguments, 2, &unknown), TN_USAGE);
    tn_module_free(c.module);
    tn_diagnostics_clear(c.session);
    assert_int_equal(tn_module_new(c.session, &c.module), TN_OK);
    assert_int_equal(tn_module_add(c.module, "bad.py", 1, "def f(:\n", 8, &c.unit), TN_INVALID);
    assert_int_equal(tn_module_add(c.module, "add.py", 1, add_text, strlen(add_text), &c.unit), TN_OK);
#ifdef __x86_64__
    assert_int_equal(try_compile(&c, "add", add_arguments, 5, &foreign), TN_UNSUPPORTED);
    assert_true(said(c.session, 2, "can't run here"));
#else
    (void)foreign;
#endif
    assert_int_equal(tn_kernel_compile(NULL, c.module, c.unit, "add", add_arguments, 5, NULL, &c.kernel), TN_USAGE);
    assert_int_equal(tn_kernel_compile(c.session, c.module, c.unit, NULL, add_arguments, 5, NULL, &c.kernel), TN_USAGE);
    assert_int_equal(tn_kernel_compile(c.session, c.module, c.unit, "add", NULL, 5, NULL, &c.kernel), TN_USAGE);
    tn_module_free(c.module);
    tn_session_free(c.session);
}

/* ---- modules ---------------------------------------------------------------------------------------------------------------------- */

static void test_parameters(void **state)
{
    static const char text[] = "import triton\nimport triton.language as tl\n"
                               "@triton.autotune(configs=[triton.Config({'BLOCK': 32}, num_warps=2), triton.Config({'BLOCK': 64}, num_warps=8, num_stages=5)], key=['n'])\n"
                               "@triton.jit(do_not_specialize=['n'])\n"
                               "def f(x, n, alpha: tl.float32, BLOCK: tl.constexpr, EVEN: tl.constexpr, SCALE=2):\n"
                               "    tl.store(x, BLOCK * SCALE)\n";
    static const char *const arguments[] = {"*i32", "i32", "f32", NULL, "=True", NULL};
    compiled c = open_text(text);
    tn_kernel_parameter p[6];
    int out = 0;
    (void)state;
    assert_int_equal(tn_module_parameter_count(c.module, c.unit, "f"), 6);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(tn_module_parameter(c.module, c.unit, "f", i, &p[i]), TN_OK);
    assert_int_equal(tn_module_parameter(c.module, c.unit, "f", 6, &p[0]), TN_USAGE);
    assert_int_equal(tn_module_parameter_count(c.module, c.unit, "g"), 0);
    assert_string_equal(p[1].name, "n");
    assert_true(!p[0].constexpr_ && !p[0].optional && !p[0].do_not_specialize && p[1].do_not_specialize && p[3].constexpr_ && p[3].optional);
    assert_true(p[4].constexpr_ && !p[4].optional && !p[5].constexpr_ && p[5].optional);
    assert_string_equal(p[2].type, "f32");
    assert_int_equal(tn_module_config_count(c.module, c.unit, "f"), 2);
    assert_non_null(strstr(tn_module_config(c.module, c.unit, "f", 1), "BLOCK=64"));
    assert_non_null(strstr(tn_module_config(c.module, c.unit, "f", 1), "num_warps=8"));
    assert_null(tn_module_config(c.module, c.unit, "f", 2));
    static const struct { tn_kernel_options options; const char *says; } wrong[] = {
        {{.num_warps = 3}, "num_warps: expected a power of two up to 32, or 0 for the kernel's own, found 3"},
        {{.num_warps = 64}, "num_warps"}, {{.num_warps = -1}, "num_warps"}, {{.num_stages = -1}, "num_stages: expected a number that is not negative, found -1"},
        {{.threads = -1}, "threads"}, {{.config = -1}, "config"}, {{.print_after = "zz"}, "print-after: no pass is called 'zz'; there are all, tile, loop-simplify"},
        {{.print_after = "loop-zz"}, "print-after"}, {{.print_after = ""}, "print-after"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(try_compile(&c, "f", arguments, 6, &wrong[i].options), TN_USAGE);
        assert_true(said(c.session, 2, wrong[i].says));
        tn_diagnostics_clear(c.session);
    }
    tn_kernel_options second = {.config = 1, .cache = ""};
    assert_int_equal(try_compile(&c, "f", arguments, 6, &second), TN_OK);
    assert_int_equal(info_of(&c).num_warps, 8);
    assert_int_equal(info_of(&c).num_stages, 5);
    assert_int_equal(info_of(&c).nvalues, 3);
    tn_kernel_value values[] = {{.pointer = &out}, {.integer = 3}, {.real = 1}};
    assert_int_equal(tn_kernel_launch(c.kernel, (int64_t[3]){1, 1, 1}, values, 3), TN_OK);
    assert_int_equal(out, 128);
    drop(&c);
}

static void test_bindings(void **state)
{
    static const char text[] = HEAD "def f(x):\n    tl.store(x, helper(FACTOR))\n", helper[] = HEAD "def twice(v):\n    return 2 * v\n";
    static const char *const arguments[] = {"*i32"};
    compiled c = open_text(text);
    int other, out = 0;
    (void)state;
    assert_int_equal(tn_module_add(c.module, "helper.py", 1, helper, strlen(helper), &other), TN_OK);
    assert_int_equal(tn_module_bind(c.module, c.unit, "FACTOR", "21"), TN_OK);
    static const char *const bad[] = {"", "2x", "a b", "a.", ".a", "a..b", "a-b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(tn_module_bind(c.module, c.unit, bad[i], "21"), TN_USAGE);
    assert_int_equal(tn_module_bind_function(c.module, c.unit, "helper", other, "twice"), TN_OK);
    assert_int_equal(try_compile(&c, "f", arguments, 1, NULL), TN_OK);
    assert_int_equal(tn_kernel_launch(c.kernel, (int64_t[3]){1, 1, 1}, &(tn_kernel_value){.pointer = &out}, 1), TN_OK);
    assert_int_equal(out, 42);
    drop(&c);
}

/* Names that machine code has another use for, and names of other alphabets. */
static void test_names(void **state)
{
    static const char text[] = HEAD "def exp(x):\n    tl.store(x, tl.exp(tl.load(x)))\n\n@triton.jit\ndef gr\xc3\xb6\xc3\x9f" "e(x):\n    tl.store(x, 5)\n";
    static const char *const arguments[] = {"*f32"}, *const names[] = {"exp", "gr\xc3\xb6\xc3\x9f" "e"};
    static const float expected[] = {1, 5};
    (void)state;
    for (int i = 0; i < 2; i++) {
        float x = 0;
        compiled c = compile(text, names[i], arguments, 1, NULL);
        assert_int_equal(tn_kernel_launch(c.kernel, (int64_t[3]){1, 1, 1}, &(tn_kernel_value){.pointer = &x}, 1), TN_OK);
        assert_float_equal(x, expected[i], 0);
        drop(&c);
    }
}

/* One number is i32 in one kernel, i64 in the next, and a size of a network's: none changes what is known of the others. */
static void test_symbols_are_apart(void **state)
{
    static const char *const wide[] = {"*f32:16", "*f32:16", "*f32:16", "i64", "=64"};
    compiled c = compile(add_text, "add", add_arguments, 5, NULL), other = {.session = c.session, .module = c.module, .unit = c.unit};
    (void)state;
    assert_int_equal(try_compile(&other, "add", wide, 5, NULL), TN_OK);
    assert_int_equal(info_of(&c).pointer_accesses, 0);
    assert_int_equal(info_of(&other).pointer_accesses, 0);
    tn_compiled_kernel_free(other.kernel);
    drop(&c);
}

/* ---- stages ------------------------------------------------------------------------------------------------------------------------ */

static void test_stages(void **state)
{
    static const struct {
        tn_stage stage;
        const char *part;
    } wanted[] = {{TN_STAGE_TILE, "store %OUT"}, {TN_STAGE_LOOP, "vector"}, {TN_STAGE_LLVM, "define void @add"}, {TN_STAGE_ASM, "add:"}};
    compiled c = open_text(add_text);
    char *text;
    size_t size;
    (void)state;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        assert_int_equal(tn_kernel_emit(c.session, c.module, c.unit, "add", add_arguments, 5, NULL, wanted[i].stage, &text, &size), TN_OK);
        assert_int_equal(strlen(text), size);
        if (wanted[i].stage != TN_STAGE_LOOP)
            assert_non_null(strstr(text, wanted[i].part));
        tn_free(text);
    }
    tn_kernel_options neon = {.machine = "neon"};
    assert_int_equal(tn_kernel_emit(c.session, c.module, c.unit, "add", add_arguments, 5, &neon, TN_STAGE_OBJECT, &text, &size), TN_OK);
    assert_memory_equal(text, "\x7f" "ELF", 4);
    tn_free(text);
    assert_int_equal(tn_kernel_emit(c.session, c.module, c.unit, "add", add_arguments, 5, NULL, TN_STAGE_GRAPH, &text, &size), TN_USAGE);
    assert_int_equal(tn_diagnostic_count(c.session), 0);
    drop(&c);
    /* What stays an access by pointers is a note, and a comment. */
    static const char *const arguments[] = {"*i64", "*f32", "i32", "=64"};
    c = open_text(indirect_text);
    assert_int_equal(tn_kernel_emit(c.session, c.module, c.unit, "indirect", arguments, 4, NULL, TN_STAGE_TILE, &text, &size), TN_OK);
    assert_true(said(c.session, 0, "stays an access by pointers"));
    assert_non_null(strstr(text, "// kernel.py:10:"));
    tn_free(text);
    drop(&c);
}

/* ---- the checked run --------------------------------------------------------------------------------------------------------------- */

static void test_check(void **state)
{
    _Alignas(64) float x[64] = {0}, out[64];
    compiled c = compile(add_text, "add", add_arguments, 5, NULL);
    tn_kernel_value values[] = {{.pointer = x}, {.pointer = x}, {.pointer = out}, {.integer = 64}};
    int64_t elements[] = {64, -1, 64, -1}, one[3] = {1, 1, 1};
    int fresh[] = {0, 0, 1, 0};
    tn_diagnostic d;
    (void)state;
    x[3] = 2;
    assert_int_equal(tn_kernel_check(c.session, c.kernel, one, values, 4, elements, fresh), TN_OK);
    assert_int_equal(tn_kernel_check(c.session, c.kernel, one, values, 4, NULL, NULL), TN_OK);
    assert_int_equal(tn_diagnostic_count(c.session), 0);
    assert_float_equal(out[3], 4, 0);
    elements[0] = 50;
    assert_int_equal(tn_kernel_check(c.session, c.kernel, one, values, 4, elements, fresh), TN_INVALID);
    assert_int_equal(tn_diagnostic_at(c.session, 0, &d), TN_OK);
    assert_string_equal(d.file, "kernel.py");
    assert_int_equal(d.line, 9);
    assert_true(said(c.session, 2, "element 50 lies outside buffer %x"));
    tn_diagnostics_clear(c.session);
    elements[0] = 64, fresh[0] = 1;
    assert_int_equal(tn_kernel_check(c.session, c.kernel, one, values, 4, elements, fresh), TN_INVALID);
    assert_true(said(c.session, 2, "nothing has stored it"));
    tn_diagnostics_clear(c.session);
    assert_int_equal(tn_kernel_check(c.session, c.kernel, one, values, 3, elements, fresh), TN_USAGE);
    values[0].pointer = x + 1;
    assert_int_equal(tn_kernel_check(c.session, c.kernel, one, values, 4, elements, fresh), TN_USAGE);
    assert_true(said(c.session, 2, "an address that 16 divides"));
    drop(&c);
}

/* ---- threads ------------------------------------------------------------------------------------------------------------------------ */

enum { ROWS = 64, COLUMNS = 1000, THREADS = 4, ROUNDS = 20 };

typedef struct thread_job {
    const tn_compiled_kernel *softmax, *checked;
    int number;
    bool right;
} thread_job;

static bool run_softmax(const tn_compiled_kernel *kernel, float *x, float *out, float shift)
{
    for (int i = 0; i < ROWS * COLUMNS; i++)
        x[i] = (float)(i % 17) * 0.25f + shift, out[i] = -1;
    tn_kernel_value values[] = {{.pointer = x}, {.pointer = out}, {.integer = COLUMNS}, {.integer = COLUMNS}};
    if (tn_kernel_launch(kernel, (int64_t[3]){ROWS, 1, 1}, values, 4) != TN_OK)
        return false;
    for (int r = 0; r < ROWS; r++) {
        double sum = 0, most = -1e30;
        for (int k = 0; k < COLUMNS; k++)
            most = fmax(most, (double)x[r * COLUMNS + k]);
        for (int k = 0; k < COLUMNS; k++)
            sum += exp((double)x[r * COLUMNS + k] - most);
        for (int k = 0; k < COLUMNS; k += 37)
            if (fabs(exp((double)x[r * COLUMNS + k] - most) / sum - (double)out[r * COLUMNS + k]) > 1e-7)
                return false;
    }
    return true;
}

static void *launch_often(void *argument)
{
    thread_job *job = argument;
    size_t bytes = sizeof(float) * ROWS * COLUMNS;
    float *x = aligned_alloc(64, bytes), *out = aligned_alloc(64, bytes);
    int one[64] = {job->number == 2 ? -1 : 0};
    job->right = true;
    for (int i = 0; i < ROUNDS; i++) {
        tn_kernel_value values[] = {{.pointer = one}, {.integer = 64}};
        tn_status expected = job->number == 2 ? TN_INVALID : TN_OK;
        job->right &= tn_kernel_launch(job->checked, (int64_t[3]){1, 1, 1}, values, 2) == expected;
        job->right &= (tn_kernel_error()[0] != 0) == (expected != TN_OK); /* a thread sees its own error alone */
        job->right &= run_softmax(job->softmax, x, out, (float)job->number);
    }
    free(x);
    free(out);
    return NULL;
}

static void test_threads(void **state)
{
    static const char *const arguments[] = {"*f32:16", "*f32:16", "i32", "i32", "=1024"}, *const checked[] = {"*i32", "i32", "=64"};
    tn_kernel_options two = {.cache = "", .threads = 2}, three = {.cache = "", .threads = 3, .debug = 1};
    compiled c = compile(softmax_text, "softmax", arguments, 5, &two), d = {.session = c.session, .module = c.module};
    pthread_t thread[THREADS];
    thread_job job[THREADS];
    (void)state;
    assert_int_equal(tn_module_add(d.module, "assert.py", 1, assert_text, strlen(assert_text), &d.unit), TN_OK);
    assert_int_equal(try_compile(&d, "checked", checked, 3, &three), TN_OK);
    assert_true(info_of(&d).scratch_bytes > 0);
    for (int i = 0; i < THREADS; i++) {
        job[i] = (thread_job){c.kernel, d.kernel, i, false};
        assert_int_equal(pthread_create(&thread[i], NULL, launch_often, &job[i]), 0);
    }
    compiled e = {.session = c.session, .module = c.module, .unit = d.unit}; /* the session compiles meanwhile */
    assert_int_equal(try_compile(&e, "checked", checked, 3, &two), TN_OK);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_true(job[i].right);
    }
    tn_compiled_kernel_free(d.kernel);
    tn_compiled_kernel_free(e.kernel);
    drop(&c);
}

/* Each program counts itself once, however the grid is cut. */
static void test_every_program_runs_once(void **state)
{
    static const char text[] = HEAD "def count(seen, total, work):\n"
                                    "    i = tl.program_id(0)\n    value = 0\n"
                                    "    for k in range(work):\n        value += tl.load(seen + i) * 0\n"
                                    "    tl.atomic_add(seen + i, 1 + value)\n    tl.atomic_add(total, 1)\n";
    static const char *const arguments[] = {"*i32", "*i32", "i32"};
    enum { N = 3000 };
    static int seen[N];
    int total = 0;
    tn_kernel_options three = {.cache = "", .threads = 3};
    compiled c = compile(text, "count", arguments, 3, &three);
    tn_kernel_value values[] = {{.pointer = seen}, {.pointer = &total}, {.integer = 50}};
    (void)state;
    for (int round = 1; round <= 5; round++) {
        values[2].integer = round * 20;
        assert_int_equal(tn_kernel_launch(c.kernel, (int64_t[3]){N, 1, 1}, values, 3), TN_OK);
        assert_int_equal(total, round * N);
        for (int i = 0; i < N; i++)
            assert_int_equal(seen[i], round);
    }
    drop(&c);
}

/* ---- the cache ---------------------------------------------------------------------------------------------------------------------- */

typedef struct folder {
    char path[256];
    char file[MOST][512];
    int nfiles;
} folder;

static void list(folder *f)
{
    const folder from = *f;
    DIR *dir = opendir(f->path);
    f->nfiles = 0;
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (e->d_name[0] != '.' && f->nfiles < MOST)
            sprintf(f->file[f->nfiles++], "%.200s/%.200s", from.path, e->d_name);
    if (dir)
        closedir(dir);
}

static folder new_folder(void)
{
    folder f = {.path = "tenon-cache-XXXXXX"};
    assert_non_null(mkdtemp(f.path));
    return f;
}

static void remove_folder(folder *f)
{
    list(f);
    for (int i = 0; i < f->nfiles; i++)
        if (unlink(f->file[i]) != 0)
            rmdir(f->file[i]);
    assert_int_equal(rmdir(f->path), 0);
}

/* Compiles add and runs it; was it read from the disk? */
static int was_cached(const char *path, const char *text, const char *const *arguments)
{
    static _Alignas(64) float x[64], out[64];
    tn_kernel_options options = {.cache = path, .threads = 1};
    compiled c = compile(text, "add", arguments, 5, &options);
    tn_kernel_value values[] = {{.pointer = x}, {.pointer = x}, {.pointer = out}, {.integer = 48}};
    for (int i = 0; i < 64; i++)
        x[i] = (float)i, out[i] = -1;
    assert_int_equal(tn_kernel_launch(c.kernel, (int64_t[3]){1, 1, 1}, values, 4), TN_OK);
    for (int i = 0; i < 64; i++)
        assert_float_equal(out[i], i < 48 ? 2 * i : -1, 0);
    int cached = info_of(&c).cached;
    assert_int_equal(tn_diagnostic_count(c.session), 0);
    drop(&c);
    return cached;
}

static char *read_bytes(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *data = malloc(1 << 20);
    assert_non_null(file);
    *size = fread(data, 1, 1 << 20, file);
    fclose(file);
    return data;
}

static void write_bytes(const char *path, const char *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    fclose(file);
    assert_int_equal(chmod(path, 0600), 0);
}

static void test_cache(void **state)
{
    static const char *const wide[] = {"*f32:16", "*f32:16", "*f32:16", "i64", "=64"};
    folder f = new_folder();
    char below[300], moved[sizeof add_text + 40];
    struct stat info;
    (void)state;
    sprintf(below, "%.200s/a/b", f.path);
    assert_int_equal(was_cached(below, add_text, add_arguments), 0);
    assert_int_equal(stat(below, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_equal(was_cached(below, add_text, add_arguments), 1);
    assert_int_equal(was_cached(below, add_text, wide), 0); /* another specialisation */
    assert_int_equal(was_cached(below, add_text, wide), 1);
    snprintf(moved, sizeof moved, "# only the place differs\n\n%s", add_text);
    assert_int_equal(was_cached(below, moved, add_arguments), 1);
    folder inner = {.nfiles = 0};
    snprintf(inner.path, sizeof inner.path, "%.200s", below);
    list(&inner);
    assert_int_equal(inner.nfiles, 2);
    assert_int_equal(stat(inner.file[0], &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    remove_folder(&inner);
    sprintf(below, "%.200s/a", f.path);
    assert_int_equal(rmdir(below), 0);
    remove_folder(&f);
}

/* Notes and the places of assertions are right in code from the disk, though the kernel has moved. */
static void test_cache_keeps_places(void **state)
{
    static const char *const arguments[] = {"*i32", "i32", "=64"}, *const indirect[] = {"*i64", "*f32", "i32", "=64"};
    folder f = new_folder();
    tn_kernel_options options = {.cache = f.path, .debug = 1};
    char text[2048];
    (void)state;
    for (int moved = 0; moved < 2; moved++) {
        int x = -1;
        snprintf(text, sizeof text, "%s%s", moved ? "\n\n\n" : "", assert_text);
        compiled c = compile(text, "checked", arguments, 3, &options);
        assert_int_equal(info_of(&c).cached, moved);
        tn_kernel_value values[] = {{.pointer = &x}, {.integer = 1}};
        assert_int_equal(tn_kernel_launch(c.kernel, (int64_t[3]){1, 1, 1}, values, 2), TN_INVALID);
        assert_string_equal(tn_kernel_error(), moved ? "kernel.py:12: device_assert failed: x is not negative" : "kernel.py:9: device_assert failed: x is not negative");
        drop(&c);
        tn_diagnostic d;
        snprintf(text, sizeof text, "%s%s", moved ? "\n\n\n" : "", indirect_text);
        c = compile(text, "indirect", indirect, 4, &options);
        assert_int_equal(info_of(&c).cached, moved);
        assert_int_equal(info_of(&c).pointer_accesses, 1);
        assert_true(said(c.session, 0, "stays an access by pointers"));
        assert_int_equal(tn_diagnostic_at(c.session, 0, &d), TN_OK);
        assert_string_equal(d.file, "kernel.py");
        assert_int_equal(d.line, moved ? 13 : 10);
        drop(&c);
    }
    remove_folder(&f);
}

/* A damaged file is as good as none, and is replaced. */
static void test_damaged_cache(void **state)
{
    folder f = new_folder();
    size_t size;
    (void)state;
    assert_int_equal(was_cached(f.path, add_text, add_arguments), 0);
    list(&f);
    assert_int_equal(f.nfiles, 1);
    char *good = read_bytes(f.file[0], &size), *bad = malloc(size + 8);
    for (size_t cut = 0; cut < size; cut += 1 + size / 7) { /* cut short */
        write_bytes(f.file[0], good, cut);
        assert_int_equal(was_cached(f.path, add_text, add_arguments), 0);
        assert_int_equal(was_cached(f.path, add_text, add_arguments), 1);
    }
    for (size_t at = 0; at < size; at += at < 48 ? 5 : size / 9) { /* a byte changed: mark, sums, lengths, key, record, object */
        memcpy(bad, good, size);
        bad[at] ^= (char)0x81;
        write_bytes(f.file[0], bad, size);
        assert_int_equal(was_cached(f.path, add_text, add_arguments), 0);
    }
    for (int field = 3; field < 6; field++) { /* lengths beyond everything */
        memcpy(bad, good, size);
        memset(bad + field * 8, 0xff, 8);
        write_bytes(f.file[0], bad, size);
        assert_int_equal(was_cached(f.path, add_text, add_arguments), 0);
    }
    memcpy(bad, good, size); /* longer than it says */
    memset(bad + size, 0, 8);
    write_bytes(f.file[0], bad, size + 8);
    assert_int_equal(was_cached(f.path, add_text, add_arguments), 0);
    assert_int_equal(was_cached(f.path, add_text, add_arguments), 1);
    free(good);
    free(bad);
    remove_folder(&f);
}

static void test_foreign_cache(void **state)
{
    static const char *const wide[] = {"*f32:16", "*f32:16", "*f32:16", "i64", "=64"};
    folder f = new_folder();
    size_t size;
    char mine[512], other[512];
    (void)state;
    assert_int_equal(was_cached(f.path, add_text, add_arguments), 0);
    list(&f);
    strcpy(mine, f.file[0]);
    assert_int_equal(was_cached(f.path, add_text, wide), 0);
    list(&f);
    strcpy(other, strcmp(f.file[0], mine) ? f.file[0] : f.file[1]);
    char *data = read_bytes(other, &size); /* another kernel under this one's name: hashes that collide */
    write_bytes(mine, data, size);
    assert_int_equal(was_cached(f.path, add_text, add_arguments), 0);
    assert_int_equal(was_cached(f.path, add_text, add_arguments), 1);
    assert_int_equal(chmod(mine, 0666), 0); /* anybody may have written it */
    assert_int_equal(was_cached(f.path, add_text, add_arguments), 0);
    assert_int_equal(was_cached(f.path, add_text, add_arguments), 1);
    free(data);
    assert_int_equal(rename(mine, other), 0); /* a link is not followed */
    assert_int_equal(symlink(strrchr(other, '/') + 1, mine), 0);
    assert_int_equal(was_cached(f.path, add_text, add_arguments), 0);
    unlink(mine);
    assert_int_equal(mkdir(mine, 0700), 0); /* not even a file */
    assert_int_equal(was_cached(f.path, add_text, add_arguments), 0);
    assert_int_equal(was_cached(f.path, add_text, add_arguments), 0);
    remove_folder(&f);
}

static void test_cache_folders(void **state)
{
    folder f = new_folder();
    char path[300], home[300];
    (void)state;
    char *here = getcwd(NULL, 0), *absolute = NULL;
    assert_true(here && asprintf(&absolute, "%s/%s", here, f.path) > 0);
    unsetenv("TENON_CACHE");
    setenv("HOME", absolute, 1);
    setenv("XDG_CACHE_HOME", absolute, 1);
    assert_int_equal(was_cached(NULL, add_text, add_arguments), 0);
    sprintf(path, "%.200s/tenon", f.path);
    folder inner = {.nfiles = 0};
    snprintf(inner.path, sizeof inner.path, "%.200s", path);
    list(&inner);
    assert_int_equal(inner.nfiles, 1);
    remove_folder(&inner);
    unsetenv("XDG_CACHE_HOME");
    assert_int_equal(was_cached(NULL, add_text, add_arguments), 0);
    sprintf(inner.path, "%.200s/.cache/tenon", f.path);
    list(&inner);
    assert_int_equal(inner.nfiles, 1);
    remove_folder(&inner);
    sprintf(home, "%.200s/.cache", f.path);
    assert_int_equal(rmdir(home), 0);
    setenv("TENON_CACHE", "", 1); /* none */
    assert_int_equal(was_cached(NULL, add_text, add_arguments), 0);
    assert_int_equal(was_cached(NULL, add_text, add_arguments), 0);
    setenv("TENON_CACHE", "/proc/tenon", 1); /* nobody can write there */
    assert_int_equal(was_cached(NULL, add_text, add_arguments), 0);
    assert_int_equal(was_cached("/dev/null", add_text, add_arguments), 0);
    setenv("TENON_CACHE", f.path, 1);
    assert_int_equal(was_cached(NULL, add_text, add_arguments), 0);
    assert_int_equal(was_cached(NULL, add_text, add_arguments), 1);
    assert_int_equal(was_cached("", add_text, add_arguments), 0); /* the caller says none */
    unsetenv("TENON_CACHE");
    free(here);
    free(absolute);
    remove_folder(&f);
}

static void test_cache_limit(void **state)
{
    static const char *const blocks[] = {"=64", "=128", "=256", "=512", "=1024"};
    folder f = new_folder();
    struct stat info;
    (void)state;
    char limit[32];
    assert_int_equal(was_cached(f.path, add_text, add_arguments), 0);
    list(&f);
    assert_int_equal(stat(f.file[0], &info), 0);
    int64_t room = info.st_size * 5 / 2; /* for two, perhaps three */
    snprintf(limit, sizeof limit, "%lld", (long long)room);
    setenv("TENON_CACHE_BYTES", limit, 1);
    for (int i = 1; i < 5; i++) {
        const char *arguments[] = {"*f32:16", "*f32:16", "*f32:16", "i32", blocks[i]};
        assert_int_equal(was_cached(f.path, add_text, arguments), 0);
        usleep(2000); /* so that their order shows */
    }
    list(&f);
    int64_t total = 0;
    for (int i = 0; i < f.nfiles; i++) {
        assert_int_equal(stat(f.file[i], &info), 0);
        total += info.st_size;
    }
    assert_true(f.nfiles >= 1 && f.nfiles < 5 && total <= room);
    const char *newest[] = {"*f32:16", "*f32:16", "*f32:16", "i32", blocks[4]}, *oldest[] = {"*f32:16", "*f32:16", "*f32:16", "i32", blocks[0]};
    assert_int_equal(was_cached(f.path, add_text, newest), 1);
    assert_int_equal(was_cached(f.path, add_text, oldest), 0);
    setenv("TENON_CACHE_BYTES", "10", 1); /* too little for any */
    list(&f);
    int before = f.nfiles;
    assert_int_equal(was_cached(f.path, add_text, add_arguments) + 1 > 0, 1);
    list(&f);
    assert_true(f.nfiles <= before);
    unsetenv("TENON_CACHE_BYTES");
    remove_folder(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launch),
        cmocka_unit_test(test_lifetimes),
        cmocka_unit_test(test_grid),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_many_arguments),
        cmocka_unit_test(test_descriptor),
        cmocka_unit_test(test_promises),
        cmocka_unit_test(test_assertions),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_bindings),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_symbols_are_apart),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_every_program_runs_once),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_cache_keeps_places),
        cmocka_unit_test(test_damaged_cache),
        cmocka_unit_test(test_foreign_cache),
        cmocka_unit_test(test_cache_folders),
        cmocka_unit_test(test_cache_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
