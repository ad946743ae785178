/* Users' kernels on a GPU, which is a fake: what the driver is given at a launch, what is refused, what comes back of assertions. */
#include "unit.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "fake_cuda.h"
#include "tenon/tenon.h"

#define HEAD "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"

static const char add_text[] = HEAD
    "def add(x, y, out, n, BLOCK: tl.constexpr):\n"
    "    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
    "    inside = offsets < n\n"
    "    tl.store(out + offsets, tl.load(x + offsets, mask=inside) + tl.load(y + offsets, mask=inside), mask=inside)\n";

static const char grid_text[] = HEAD
    "def grid(x, scale, n):\n"
    "    i = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)\n"
    "    tl.store(x + i + n, i * scale)\n";

static fake_state *fake;

/* ---- helpers ------------------------------------------------------------------------------------------------------------------ */

typedef struct opened {
    tn_session *session;
    tn_module *module;
    int unit;
    tn_compiled_kernel *kernel;
} opened;

static opened open_text(const char *text)
{
    opened o = {.session = tn_session_new()};
    assert_non_null(o.session);
    assert_int_equal(tn_module_new(o.session, &o.module), TN_OK);
    assert_int_equal(tn_module_add(o.module, "kernel.py", 1, text, strlen(text), &o.unit), TN_OK);
    return o;
}

static void drop(opened *o)
{
    tn_compiled_kernel_free(o->kernel);
    tn_module_free(o->module);
    tn_session_free(o->session);
}

static const char *first_error(tn_session *session)
{
    tn_diagnostic d;
    for (size_t i = 0; tn_diagnostic_at(session, i, &d) == TN_OK; i++)
        if (d.severity == 2)
            return d.message;
    return "";
}

static tn_status compile(opened *o, const char *name, const char *const *arguments, size_t n, tn_kernel_options options)
{
    if (!options.machine)
        options.machine = "cuda";
    if (!options.cache)
        options.cache = "";
    return tn_kernel_compile(o->session, o->module, o->unit, name, arguments, n, &options, &o->kernel);
}

static opened compiled(const char *text, const char *name, const char *const *arguments, size_t n, tn_kernel_options options)
{
    opened o = open_text(text);
    if (compile(&o, name, arguments, n, options) != TN_OK)
        fail_msg("%s", first_error(o.session));
    return o;
}

/* What the fake saw of a launch. */
static struct seen {
    unsigned grid, threads;
    uint64_t params[16];
} seen;

static void see(void *context, unsigned grid, unsigned threads, const uint64_t *params)
{
    const fake_kernel *kernel = context;
    seen.grid = grid;
    seen.threads = threads;
    memcpy(seen.params, params, sizeof *params * (size_t)kernel->nparams);
}

static void expect(const char *name, int nparams)
{
    fake->kernel[0] = (fake_kernel){.name = name, .nparams = nparams, .run = see, .context = &fake->kernel[0]};
    fake->nkernels = 1;
    seen = (struct seen){0};
}

static const char *const add_arguments[] = {"*f32:16", "*f32:16", "*f32:16", "i32", "=64"};

/* ---- launches ----------------------------------------------------------------------------------------------------------------- */

static void test_launch(void **state)
{
    (void)state;
    expect("add", 9);
    opened o = compiled(add_text, "add", add_arguments, 5, (tn_kernel_options){.num_warps = 8});
    tn_kernel_info info;
    assert_int_equal(tn_kernel_describe(o.kernel, &info), TN_OK);
    assert_string_equal(info.machine, "sm_90a");
    assert_true(info.device == 0 && info.threads == 256 && info.num_warps == 8 && info.registers == 104 && info.spill_bytes == 103);
    tn_kernel_value values[] = {{.pointer = (void *)0x1000}, {.pointer = (void *)0x2000}, {.pointer = (void *)0x3000}, {.integer = -7}};
    int64_t grid[3] = {5, 3, 2};
    int stream = 0;
    assert_int_equal(tn_kernel_launch_on(o.kernel, grid, values, 4, &stream), TN_OK);
    assert_ptr_equal(fake->stream, &stream);
    assert_true(seen.grid == 30 && seen.threads == 256);
    const uint64_t expected[] = {0x1000, 0x2000, 0x3000, 2, 3, 5, (uint64_t)-7, 0, 30}; /* the grid's sizes come from the outermost */
    assert_memory_equal(seen.params, expected, sizeof expected);
    assert_int_equal(tn_kernel_launch(o.kernel, grid, values, 4), TN_OK);
    assert_null(fake->stream);

    int launches = fake->launches; /* nothing to do */
    assert_int_equal(tn_kernel_launch(o.kernel, (int64_t[3]){5, 0, 2}, values, 4), TN_OK);
    assert_int_equal(fake->launches, launches);
    assert_int_equal(tn_kernel_wait(o.kernel, &stream), TN_OK);
    drop(&o);
    assert_true(!fake->modules && !fake->retained && !fake->pushed);
}

/* More programs than blocks can be. */
static void test_big_grid(void **state)
{
    (void)state;
    static const char *const arguments[] = {"*i64", "i32", "i32=1"};
    expect("grid", 7);
    opened o = compiled(grid_text, "grid", arguments, 3, (tn_kernel_options){0});
    tn_kernel_value values[] = {{.pointer = (void *)8}, {.integer = 3}, {.integer = 1}};
    assert_int_equal(tn_kernel_launch(o.kernel, (int64_t[3]){1 << 15, 1 << 14, 7}, values, 3), TN_OK);
    assert_int_equal(seen.grid, INT32_MAX);
    const uint64_t expected[] = {8, 7, 1 << 14, 1 << 15, 3, 0, (uint64_t)7 << 29};
    assert_memory_equal(seen.params, expected, sizeof expected);
    assert_int_equal(tn_kernel_launch(o.kernel, (int64_t[3]){1 << 16, 1 << 8, 1 << 8}, values, 3), TN_USAGE); /* code counts them in 32 bits */
    assert_string_equal(tn_kernel_error(), "kernel grid: a launch on a GPU has fewer than 2^32 programs, found 4294967296");
    assert_int_equal(tn_kernel_launch(o.kernel, (int64_t[3]){INT64_MAX / 2, 3, 1}, values, 3), TN_USAGE);
    assert_non_null(strstr(tn_kernel_error(), "has too many programs"));
    assert_int_equal(tn_kernel_launch(o.kernel, (int64_t[3]){1, -1, 1}, values, 3), TN_USAGE);
    drop(&o);
}

static void test_refused_values(void **state)
{
    (void)state;
    expect("add", 9);
    opened o = compiled(add_text, "add", add_arguments, 5, (tn_kernel_options){0});
    tn_kernel_value values[] = {{.pointer = (void *)0x1000}, {.pointer = (void *)0x2000}, {.pointer = (void *)0x3000}, {.integer = 7}};
    int64_t grid[3] = {1, 1, 1};
    int launches = fake->launches;
    assert_int_equal(tn_kernel_launch(o.kernel, grid, values, 3), TN_USAGE);
    assert_string_equal(tn_kernel_error(), "kernel add takes 4 values, found 3");
    values[1].pointer = (void *)0x2008;
    assert_int_equal(tn_kernel_launch(o.kernel, grid, values, 4), TN_USAGE);
    assert_string_equal(tn_kernel_error(), "y: the kernel was compiled for an address that 16 divides, found 0x2008");
    values[1].pointer = (void *)0x2000;
    fake->foreign = 0x2000;
    assert_int_equal(tn_kernel_launch(o.kernel, grid, values, 4), TN_USAGE);
    assert_string_equal(tn_kernel_error(), "y: expected an address in memory of GPU 0, found 0x2000, which it can't use");
    fake->foreign = 0;
    values[1].pointer = NULL; /* of an empty tensor */
    assert_int_equal(fake->launches, launches);
    assert_int_equal(tn_kernel_launch(o.kernel, grid, values, 4), TN_OK);

    fake->failing = "cuLaunchKernel", fake->result = 719, fake->after = 0;
    assert_int_equal(tn_kernel_launch(o.kernel, grid, values, 4), TN_INVALID);
    assert_string_equal(tn_kernel_error(), "cuLaunchKernel failed: FAKE_ERROR (went wrong)");
    fake->failing = "cuStreamSynchronize", fake->after = 0;
    assert_int_equal(tn_kernel_wait(o.kernel, NULL), TN_INVALID);
    assert_string_equal(tn_kernel_error(), "cuStreamSynchronize failed: FAKE_ERROR (went wrong)");
    fake->failing = NULL;
    assert_int_equal(fake->pushed, 0);
    drop(&o);

    static const char *const arguments[] = {"*f32", "*f32", "*f32", "i32", "=64"};
    int stream;
    opened cpu = compiled(add_text, "add", arguments, 5, (tn_kernel_options){.machine = "host"});
    assert_int_equal(tn_kernel_launch_on(cpu.kernel, grid, values, 4, &stream), TN_USAGE);
    assert_string_equal(tn_kernel_error(), "a stream was given, and the kernel was compiled for a CPU");
    assert_int_equal(tn_kernel_wait(cpu.kernel, NULL), TN_OK);
    drop(&cpu);
}

/* What a check left in the module is told when the stream is waited for, once. */
static void test_assertions(void **state)
{
    (void)state;
    static const char text[] = HEAD
        "def checked(x):\n"
        "    value = tl.load(x)\n"
        "    tl.device_assert(value != 3, 'not 3')\n"
        "    tl.device_assert(value >= 0, 'x is not negative')\n"
        "    tl.store(x, value + 1)\n";
    static const char *const arguments[] = {"*i32"};
    int64_t grid[3] = {1, 1, 1};
    tn_kernel_value values[] = {{.pointer = (void *)64}};
    expect("checked", 6);
    fake->trapped = 2;
    opened o = compiled(text, "checked", arguments, 1, (tn_kernel_options){.debug = 1});
    assert_int_equal(tn_kernel_launch(o.kernel, grid, values, 1), TN_OK);
    assert_int_equal(tn_kernel_wait(o.kernel, NULL), TN_INVALID);
    assert_string_equal(tn_kernel_error(), "kernel.py:9: device_assert failed: x is not negative");
    assert_int_equal(fake->trapped, 0);
    assert_int_equal(tn_kernel_wait(o.kernel, NULL), TN_OK);
    drop(&o);
    fake->trapped = 2; /* of another module: a kernel without checks does not look */
    o = compiled(text, "checked", arguments, 1, (tn_kernel_options){0});
    assert_int_equal(tn_kernel_wait(o.kernel, NULL), TN_OK);
    fake->trapped = 0;
    drop(&o);
}

/* ---- compiling ------------------------------------------------------------------------------------------------------------------ */

static void check_refused(const char *text, const char *name, tn_kernel_options options, tn_status status, const char *part)
{
    opened o = open_text(text);
    assert_int_equal(compile(&o, name, add_arguments, 5, options), status);
    if (!strstr(first_error(o.session), part))
        fail_msg("expected '%s', found '%s'", part, first_error(o.session));
    drop(&o);
    assert_true(!fake->modules && !fake->retained && !fake->pushed);
}

static void test_refused(void **state)
{
    (void)state;
    expect("add", 9);
    check_refused(add_text, "add", (tn_kernel_options){.machine = "cuda:1"}, TN_UNSUPPORTED, "there is no GPU 1");
    check_refused(add_text, "add", (tn_kernel_options){.machine = "cuda:x"}, TN_USAGE, "unknown machine 'cuda:x'");
    check_refused(add_text, "add", (tn_kernel_options){.num_warps = 32, .cache = ""}, TN_UNSUPPORTED, "1024 threads of 104 registers are more than a block of Fake 40 can have (512)");
    fake->failing = "cuModuleLoadDataEx", fake->result = 200, fake->after = 0;
    check_refused(add_text, "add", (tn_kernel_options){0}, TN_INVALID, "cuModuleLoadDataEx failed");
    fake->failing = NULL;
    expect("other", 9);
    check_refused(add_text, "add", (tn_kernel_options){0}, TN_INVALID, "cuModuleGetFunction failed");
}

/* A row that the GPU can't run compiles all the same: a launch says what is missing. */
static void test_other_machine(void **state)
{
    (void)state;
    int64_t grid[3] = {1, 1, 1};
    tn_kernel_value values[4] = {{0}};
    opened o = compiled(add_text, "add", add_arguments, 5, (tn_kernel_options){.machine = "sm_80:3"});
    assert_int_equal(tn_kernel_launch(o.kernel, grid, values, 4), TN_UNSUPPORTED);
    assert_string_equal(tn_kernel_error(), "kernel add: machine 'sm_80' can't run here: there is no GPU 3: CUDA's driver shows 1, counted from 0");
    assert_int_equal(tn_kernel_wait(o.kernel, NULL), TN_UNSUPPORTED);
    drop(&o);
}

/* Code of the disk is what was compiled, for as many warps. */
static void test_cache(void **state)
{
    (void)state;
    char folder[] = "/tmp/tenon-test-XXXXXX", command[64];
    assert_non_null(mkdtemp(folder));
    expect("add", 9);
    static const int warps[] = {4, 4, 8}, cached[] = {0, 1, 0};
    char *first = NULL;
    for (int i = 0; i < 3; i++) {
        tn_kernel_info info;
        opened o = compiled(add_text, "add", add_arguments, 5, (tn_kernel_options){.cache = folder, .num_warps = warps[i]});
        assert_int_equal(tn_kernel_describe(o.kernel, &info), TN_OK);
        assert_true(info.cached == cached[i] && info.threads == 32 * warps[i] && info.code_bytes == strlen(fake->image) + 1);
        if (i == 0)
            first = strdup(fake->image);
        assert_true(i == 2 || !strcmp(first, fake->image));
        tn_kernel_value values[] = {{.pointer = (void *)0x1000}, {.pointer = (void *)0x2000}, {.pointer = (void *)0x3000}, {.integer = 1}};
        assert_int_equal(tn_kernel_launch(o.kernel, (int64_t[3]){9, 1, 1}, values, 4), TN_OK);
        assert_true(seen.grid == 9 && seen.threads == 32 * (unsigned)warps[i]);
        drop(&o);
    }
    free(first);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void test_ptx(void **state)
{
    (void)state;
    opened o = open_text(add_text);
    tn_kernel_options options = {.machine = "sm_80", .cache = "", .num_warps = 2};
    char *text;
    size_t size;
    assert_int_equal(tn_kernel_emit(o.session, o.module, o.unit, "add", add_arguments, 5, &options, TN_STAGE_ASM, &text, &size), TN_OK);
    assert_non_null(strstr(text, ".target sm_80"));
    assert_non_null(strstr(text, ".entry add("));
    assert_non_null(strstr(text, ".reqntid 64"));
    tn_free(text);
    drop(&o);
}

static bool overlaps(const char *text, const char *name, const char *machine, int apart)
{
    opened o = open_text(text);
    tn_kernel_options options = {.machine = machine, .cache = "", .apart = apart};
    char *loop;
    size_t size;
    assert_int_equal(tn_kernel_emit(o.session, o.module, o.unit, name, add_arguments, 5, &options, TN_STAGE_LOOP, &loop, &size), TN_OK);
    bool found = strstr(loop, ") overlap") != NULL;
    tn_free(loop);
    drop(&o);
    return found;
}

/* Pointers that are promised to lie apart let a GPU's kernel take what it only loads for constant; not where atomics order what others store, which they do for those who look at
 * the old value. */
static void test_apart(void **state)
{
    (void)state;
    static const char counted[] = HEAD "def count(x, y, out, n, B: tl.constexpr):\n    i = tl.arange(0, B)\n    tl.atomic_add(out, 1.0)\n"
                                       "    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)\n";
    static const char waited[] = HEAD "def wait(x, y, out, n, B: tl.constexpr):\n    i = tl.arange(0, B)\n    before = tl.atomic_add(out, 1.0)\n"
                                      "    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n) + before, mask=i < n)\n";
    assert_true(overlaps(add_text, "add", "sm_90a", 0) && !overlaps(add_text, "add", "sm_90a", 1));
    assert_true(overlaps(add_text, "add", "host", 1));
    assert_true(!overlaps(counted, "count", "sm_90a", 1));
    assert_true(overlaps(waited, "wait", "sm_90a", 1));
}

/* As Triton's: a product and a sum are one operation, unless each is to be rounded. Not on a CPU. */
static void test_contraction(void **state)
{
    (void)state;
    static const char text[] = HEAD "def axpy(x, y, out, n, B: tl.constexpr):\n    i = tl.arange(0, B)\n"
                                    "    tl.store(out + i, tl.load(x + i) * tl.load(y + i) + 1.0)\n";
    const struct { const char *machine, *numerics; int strict; bool contracts; } cases[] = {
        {"sm_90a", NULL, 0, true}, {"sm_80", "fast", 0, true}, {"sm_90a", NULL, 1, false}, {"sm_90a", "strict", 0, false}, {"host", NULL, 0, false}};
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        opened o = open_text(text);
        if (cases[i].numerics)
            assert_int_equal(tn_session_option(o.session, "numerics", cases[i].numerics), TN_OK);
        tn_kernel_options options = {.machine = cases[i].machine, .cache = "", .strict = cases[i].strict};
        char *code;
        size_t size;
        assert_int_equal(tn_kernel_emit(o.session, o.module, o.unit, "axpy", add_arguments, 5, &options, TN_STAGE_LOOP, &code, &size), TN_OK);
        assert_true((strstr(code, " contract :") != NULL) == cases[i].contracts);
        tn_free(code);
        if (strcmp(cases[i].machine, "host")) {
            assert_int_equal(tn_kernel_emit(o.session, o.module, o.unit, "axpy", add_arguments, 5, &options, TN_STAGE_ASM, &code, &size), TN_OK);
            assert_true((strstr(code, "fma.rn.f32") != NULL) == cases[i].contracts && (strstr(code, "mul.rn.f32") == NULL) == cases[i].contracts);
            tn_free(code);
        }
        drop(&o);
    }
    opened o = open_text(text);
    assert_int_equal(tn_session_option(o.session, "numerics", "loose"), TN_OK);
    tn_kernel_options options = {.machine = "sm_90a", .cache = ""};
    char *code;
    size_t size;
    assert_int_equal(tn_kernel_emit(o.session, o.module, o.unit, "axpy", add_arguments, 5, &options, TN_STAGE_LOOP, &code, &size), TN_USAGE);
    assert_non_null(strstr(first_error(o.session), "expected parity, strict or fast"));
    drop(&o);
}

/* Rows whose length 8 divides are whole vectors of bf16, also where 16 does not; what a launch brings is held against the promise. Of one stored element the bound is tested once. */
static void test_divisors(void **state)
{
    (void)state;
    static const char text[] = HEAD "def scale(x, out, n, B: tl.constexpr):\n    c = tl.arange(0, B)\n    at = tl.program_id(0) * n + c\n"
                                    "    v = tl.load(x + at, mask=c < n, other=0.0).to(tl.float32)\n"
                                    "    tl.store(out + at, tl.where(c < n, v * 2.0, 0.0), mask=c < n)\n";
    const struct { const char *n; const char *access; bool selects; } cases[] = {
        {"i32:16", "global.v4.b32", false}, {"i32:8", "global.v4.b32", false}, {"i32:4", "global.v2.b32", true}, {"i32:2", "global.b32", true}, {"i32", "global.b16", true}};
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        opened o = open_text(text);
        const char *const arguments[] = {"*bf16:16", "*bf16:16", cases[i].n, "=1024"};
        tn_kernel_options options = {.machine = "sm_90a", .cache = "", .apart = 1};
        char *code, *store;
        size_t size;
        assert_int_equal(tn_kernel_emit(o.session, o.module, o.unit, "scale", arguments, 4, &options, TN_STAGE_ASM, &code, &size), TN_OK);
        assert_non_null(store = strstr(code, "st.global"));
        if (strncmp(store + 3, cases[i].access, strlen(cases[i].access)))
            fail_msg("%s: %.60s", cases[i].n, store);
        tn_free(code);
        assert_int_equal(tn_kernel_emit(o.session, o.module, o.unit, "scale", arguments, 4, &options, TN_STAGE_LOOP, &code, &size), TN_OK);
        assert_int_equal(strstr(code, "= select ") != NULL, cases[i].selects);
        tn_free(code);
        drop(&o);
    }

    static const char *const eight[] = {"*bf16:16", "*bf16:16", "i32:8", "=1024"}, *const address[] = {"*bf16:8", "*bf16:16", "i32", "=1024"};
    expect("scale", 8);
    opened o = compiled(text, "scale", eight, 4, (tn_kernel_options){0});
    tn_kernel_value values[] = {{.pointer = (void *)0x1000}, {.pointer = (void *)0x2000}, {.integer = 1000}};
    int64_t grid[3] = {1, 1, 1};
    if (tn_kernel_launch(o.kernel, grid, values, 3) != TN_OK)
        fail_msg("%s", tn_kernel_error());
    values[2].integer = 1004;
    assert_int_equal(tn_kernel_launch(o.kernel, grid, values, 3), TN_USAGE);
    assert_string_equal(tn_kernel_error(), "n: the kernel was compiled for a number that 8 divides, found 1004");
    drop(&o);
    o = open_text(text);
    assert_int_equal(compile(&o, "scale", address, 4, (tn_kernel_options){0}), TN_USAGE); /* of addresses 16 is looked for */
    drop(&o);
}

int main(void)
{
    setenv("TENON_PTXAS", "", 1);
    void *library = dlopen(FAKE_CUDA, RTLD_NOW);
    fake = library ? dlsym(library, "fake_cuda") : NULL;
    if (!fake)
        return fprintf(stderr, "%s\n", dlerror()), 1;
    fake->most_threads = 512;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_launch),        cmocka_unit_test(test_big_grid), cmocka_unit_test(test_refused_values), cmocka_unit_test(test_assertions),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_other_machine), cmocka_unit_test(test_cache), cmocka_unit_test(test_ptx),
                                       cmocka_unit_test(test_apart), cmocka_unit_test(test_contraction), cmocka_unit_test(test_divisors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
