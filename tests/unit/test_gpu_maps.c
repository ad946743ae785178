/* Tensor maps from the kernel that declares them to the driver, which is a fake: what travels with code and through the cache, what a launch makes of sizes and
 * addresses, what it refuses, and persistent kernels. */
#include "plan_test.h"

#include <dirent.h>
#include <dlfcn.h>
#include <unistd.h>

#include "fake_cuda.h"
#include "plan/internal.h"
#include "run/cuda_driver.h"

static fake_state *fake;

/* ---- a kernel ------------------------------------------------------------------------------------------------------------------ */

static const char maps_text[] =
    "kernel @k(%x: global bf16 readonly align 16, %y: global f64, %m: index, %k: index of i32, %begin: index, %end: index) threads 128 persistent 2 {\n"
    "  map %a: bf16 of %x at 8*m sizes (k, m) strides (k) box (64, 128) swizzle 128\n"
    "  map %b: f64 of %y at 0 sizes (ceildiv(k, 4), min(m, 100), 3) strides (2*m, 4096) box (8, 1, 2)\n"
    "}\n";

typedef struct kernel {
    tn_session *session;
    tn_lfunc *loop;
    tn_code *code;
    tn_gpu_launcher *launcher;
    char error[512];
} kernel;

static kernel make(const char *text)
{
    kernel k = {.session = new_test_session()};
    tn_lfuncs funcs = {0};
    tn_arena *arena = &k.session->arena;
    if (tn_loop_parse(k.session, "k", text, strlen(text), &funcs) != TN_OK)
        fail_msg("%s", last_message(k.session));
    k.loop = funcs.at[0];
    int nbuffers = k.loop->nbuffers, nsizes = (int)k.loop->params.len - nbuffers - 2;
    const char **names = TN_NEW_ARRAY(arena, const char *, k.loop->params.len);
    for (size_t i = 0; i < k.loop->params.len; i++)
        names[i] = k.loop->params.at[i]->name;
    k.code = TN_NEW(arena, tn_code);
    *k.code = (tn_code){.symbol = k.loop->name, .buffer = names, .size = names + nbuffers, .nbuffers = nbuffers, .nsizes = nsizes, .threads = k.loop->threads,
                       .persistent = k.loop->persistent, .nmaps = (int)k.loop->maps.len, .map = tn_plan_maps(k.loop),
                       .object = {(char *)(uintptr_t)"good", 5}, .machine = tn_machine_find("sm_90a")};
    return k;
}

static const tn_launch_value described[] = {{.name = "x", .dtype = TN_BF16, .pointer = true}, {.name = "y", .dtype = TN_F64, .pointer = true}, {.name = "m", .dtype = TN_I64},
                                            {.name = "k", .dtype = TN_I32}};

static kernel loaded(const char *text)
{
    kernel k = make(text);
    if (tn_gpu_launcher_new(k.session, k.code, NULL, 0, NULL, described, 4, &k.launcher) != TN_OK)
        fail_msg("%s", last_message(k.session));
    return k;
}

static void drop(kernel *k)
{
    tn_gpu_launcher_free(k->launcher);
    free_test_session(k->session);
    assert_true(!fake->pushed && !fake->modules && !fake->retained && !fake->told_inside);
}

static tn_status launch(kernel *k, uintptr_t x, uintptr_t y, int64_t m, int64_t size, int64_t programs)
{
    tn_kernel_value values[] = {{.pointer = (void *)x}, {.pointer = (void *)y}, {.integer = m}, {.integer = size}};
    memset(fake->map, 0xee, sizeof fake->map);
    k->error[0] = 0;
    return tn_gpu_launcher_run(k->launcher, (int64_t[3]){programs, 1, 1}, values, 4, NULL, k->error, sizeof k->error);
}

static uint64_t seen[16];
static unsigned seen_grid;

static void see(void *context, unsigned grid, unsigned threads, const uint64_t *params)
{
    const fake_kernel *what = context;
    assert_int_equal(threads, 128);
    seen_grid = grid;
    memcpy(seen, params, sizeof *params * (size_t)what->nparams);
}

static void nothing(void *context, unsigned grid, unsigned threads, const uint64_t *params)
{
    (void)context;
    (void)params;
    assert_true(grid > 0 && threads > 0);
}

static void expect(int nparams, int nmaps)
{
    fake->kernel[0] = (fake_kernel){.name = "k", .nparams = nparams, .nmaps = nmaps, .run = see, .context = &fake->kernel[0]};
    fake->nkernels = 1;
}

/* ---- launches ------------------------------------------------------------------------------------------------------------------ */

static void maps_are_made_of_sizes(void **state)
{
    (void)state;
    expect(6, 2);
    kernel k = loaded(maps_text);
    assert_int_equal(launch(&k, 0x1000, 0x2000, 10, 200, 1000), TN_OK);
    const uint64_t params[] = {0x1000, 0x2000, 10, 200, 0, 1000};
    assert_memory_equal(seen, params, sizeof params);
    const fake_map a = {.address = 0x1000 + 160, .stride = {400}, .size = {200, 10}, .box = {64, 128}, .type = 9, .rank = 2, .swizzle = 3, .promotion = 3};
    const fake_map b = {.address = 0x2000, .stride = {160, 32768}, .size = {50, 10, 3}, .box = {8, 1, 2}, .type = 4, .rank = 3, .promotion = 3};
    assert_memory_equal(&fake->map[0], &a, sizeof a);
    assert_memory_equal(&fake->map[1], &b, sizeof b);

    /* The same again costs nothing; another address or size is seen. */
    int encodes = fake->encodes;
    assert_int_equal(launch(&k, 0x1000, 0x2000, 10, 200, 7), TN_OK);
    assert_int_equal(fake->encodes, encodes);
    assert_memory_equal(&fake->map[0], &a, sizeof a);
    assert_memory_equal(&fake->map[1], &b, sizeof b);
    assert_int_equal(launch(&k, 0x1000, 0x3000, 10, 200, 7), TN_OK);
    assert_int_equal(fake->map[1].address, 0x3000);
    assert_int_equal(launch(&k, 0x1000, 0x3000, 12, 200, 7), TN_OK);
    assert_int_equal(fake->map[0].size[1], 12);
    assert_int_equal(fake->encodes, encodes + 4);

    /* One row: how far the next one is does not matter. */
    assert_int_equal(launch(&k, 0x1000, 0x2000, 1, 7, 1), TN_OK);
    assert_true(fake->map[0].size[0] == 7 && fake->map[0].size[1] == 1 && fake->map[0].stride[0] == 16);
    drop(&k);
}

static void types_have_numbers(void **state)
{
    (void)state;
    static const struct { const char *name; int number; } types[] = {{"bf16", 9}, {"f16", 6}, {"f32", 7}, {"f64", 4}, {"i8", 0}, {"u8", 0}, {"bool", 0}, {"f8e4m3fn", 0},
                                                                     {"i16", 1},  {"u16", 1}, {"i32", 2}, {"u32", 2}, {"i64", 4}, {"u64", 4}, {"c64", 4}};
    expect(6, 1);
    for (size_t i = 0; i < TN_COUNT(types); i++) {
        tn_arena arena = {0};
        kernel k = loaded(tn_format(&arena, "kernel @k(%%x: global %s, %%y: global f64, %%m: index, %%k: index, %%begin: index, %%end: index) threads 128 {\n"
                                            "  map %%a: %s of %%x at 0 sizes (k) box (16)\n}\n", types[i].name, types[i].name));
        assert_int_equal(launch(&k, 0x1000, 0, 1, 100, 1), TN_OK);
        assert_int_equal(fake->map[0].type, types[i].number);
        drop(&k);
        tn_arena_free(&arena);
    }
}

/* What has no elements reads as 0. */
static void empty_views_are_nowhere(void **state)
{
    (void)state;
    expect(6, 2);
    kernel k = loaded(maps_text);
    assert_int_equal(launch(&k, 0, 0, 5, 0, 1), TN_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fake->map[i].address, (uintptr_t)fake->nowhere);
        for (int d = 0; d < fake->map[i].rank; d++)
            assert_int_equal(fake->map[i].size[d], 1);
    }
    assert_int_equal(fake->map[0].box[1], 128);
    assert_int_equal(launch(&k, 0x1008, 0x2008, -3, 7, 1), TN_OK); /* neither its place nor its strides count */
    assert_int_equal(fake->map[0].address, (uintptr_t)fake->nowhere);
    drop(&k);

    k = make(maps_text); /* as if instructions wrote through the maps */
    tn_code_map maps[2] = {k.code->map[0], k.code->map[1]};
    maps[0].how = TN_PART_W;
    maps[1].how = TN_PART_R;
    k.code->map = maps;
    assert_int_equal(tn_gpu_launcher_new(k.session, k.code, NULL, 0, NULL, described, 4, &k.launcher), TN_OK);
    assert_int_equal(launch(&k, 0, 0, 5, 0, 1), TN_OK);
    assert_int_equal(fake->map[0].address, (uintptr_t)fake->nowhere + 16);
    assert_int_equal(fake->map[1].address, (uintptr_t)fake->nowhere);
    maps[1].how = TN_PART_R | TN_PART_W;
    assert_int_equal(launch(&k, 0, 0, 4, 0, 1), TN_UNSUPPORTED);
    assert_string_equal(k.error, "kernel k: y: a view without elements is read and written by one tensor map");
    drop(&k);
}

static void bad_views_are_refused(void **state)
{
    (void)state;
    static const struct { uintptr_t x, y; int64_t m, k; const char *error; } cases[] = {
        {0x1008, 0x2000, 8, 64, "kernel k: x: a tensor map starts at an address that 16 divides, found 0x1088"},
        {0x1000, 0x2004, 8, 64, "kernel k: y: a tensor map starts at an address that 16 divides, found 0x2004"},
        {0x1000, 0x2000, 8, 63, "kernel k: x: a tensor map takes strides that are multiples of 16 bytes below 2^40, found 63 elements of 2 bytes"},
        {0x1000, 0x2000, INT64_C(1) << 32, 64, "kernel k: x: a tensor map has fewer than 2^32 elements along a dimension, found 4294967296"},
        {0x1000, 0x2000, INT64_C(1) << 61, 64, "kernel k: x: the sizes of a tensor map overflow"},
        {0x1000, 0x2000, 9, INT32_MIN + 8, NULL}, /* nothing there */
    };
    expect(6, 2);
    kernel k = loaded(maps_text);
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        assert_int_equal(launch(&k, cases[i].x, cases[i].y, cases[i].m, cases[i].k, 1), cases[i].error ? TN_USAGE : TN_OK);
        if (cases[i].error)
            assert_string_equal(k.error, cases[i].error);
    }
    assert_int_equal(launch(&k, 0x1000, 0x2000, 8, 64, (int64_t)UINT32_MAX + 1), TN_USAGE);
    assert_string_equal(k.error, "kernel k: a launch on a GPU has fewer than 2^32 programs, found 4294967296");
    int launches = fake->launches;
    fake->failing = "cuTensorMapEncodeTiled", fake->result = 1, fake->after = 1;
    assert_int_equal(launch(&k, 0x1000, 0x2000, 8, 64, 1), TN_INVALID);
    fake->failing = NULL;
    assert_string_equal(k.error, "kernel k: y: cuTensorMapEncodeTiled failed: FAKE_ERROR (went wrong)");
    assert_int_equal(fake->launches, launches);
    assert_int_equal(launch(&k, 0x1000, 0x2000, 8, 64, 1), TN_OK); /* nothing of that was kept */
    assert_int_equal(fake->map[1].address, 0x2000);
    drop(&k);
}

static void old_drivers_have_none(void **state)
{
    (void)state;
    kernel k = make(maps_text);
    __typeof__(tn_cuda.cuTensorMapEncodeTiled) call = tn_cuda.cuTensorMapEncodeTiled;
    tn_cuda.cuTensorMapEncodeTiled = NULL;
    assert_int_equal(tn_gpu_launcher_new(k.session, k.code, NULL, 0, NULL, described, 4, &k.launcher), TN_UNSUPPORTED);
    assert_string_equal(last_message(k.session), "kernel k takes tensor maps, and the driver lacks cuTensorMapEncodeTiled: it is too old");
    tn_cuda.cuTensorMapEncodeTiled = call;
    drop(&k);
}

static void blocks_are_as_many_as_wanted(void **state)
{
    (void)state;
    expect(6, 2);
    kernel k = loaded(maps_text); /* 2 on each of 80 processors */
    assert_int_equal(launch(&k, 0x1000, 0x2000, 8, 64, 1000), TN_OK);
    assert_int_equal(seen_grid, 160);
    assert_int_equal(seen[5], 1000);
    assert_int_equal(launch(&k, 0x1000, 0x2000, 8, 64, 159), TN_OK);
    assert_int_equal(seen_grid, 159);
    assert_int_equal(launch(&k, 0x1000, 0x2000, 8, 64, UINT32_MAX), TN_OK);
    assert_int_equal(seen_grid, 160);
    drop(&k);
    expect(6, 0);
    k = loaded("kernel @k(%x: global bf16, %y: global f64, %m: index, %k: index, %begin: index, %end: index) threads 128 {\n}\n");
    assert_int_equal(launch(&k, 0x1000, 0x2000, 8, 64, 1000), TN_OK);
    assert_int_equal(seen_grid, 1000);
    assert_int_equal(launch(&k, 0x1000, 0x2000, 8, 64, UINT32_MAX), TN_OK);
    assert_int_equal(seen_grid, INT32_MAX);
    drop(&k);
}

/* ---- executables ---------------------------------------------------------------------------------------------------------------- */

/* A network's kernel gets a map and becomes persistent: the driver sees both, also when the launch is recorded and replayed. */
static void executables_have_maps(void **state)
{
    (void)state;
    static const char text[] = "symbols n in [1, 100000] multiple 8\ngraph @g(%x: f32[n]) -> (y) {\n  %y = negate %x : f32[n]\n  return %y\n}\n";
    tn_session *s = tn_session_new();
    tn_graph_module *module;
    tn_program program = {0};
    tn_exec_options options = {.machine = tn_machine_find("sm_90a"), .threads = 1};
    tn_fuse_options fuse = {.target = tn_machine_tile_target(options.machine, 1)};
    tn_exec *exec;
    tn_context *context;
    tn_pool *pool = tn_pool_new(1);
    if (tn_graph_parse(s, "g.tn", text, strlen(text), &module) != TN_OK || tn_fuse(s, module->graphs.at[0], &fuse, &program) != TN_OK ||
        tn_exec_new(s, &program, &options, &exec) != TN_OK)
        fail_msg("%s", last_message(s));
    assert_int_equal(exec->kernels.len, 1);
    tn_exec_kernel *k = &exec->kernels.at[0];
    assert_true(k->nmaps == 0 && k->persistent == 0);
    tn_dim n = tn_dim_known(s, "n");
    tn_code_map map = {.dtype = TN_F32, .how = TN_PART_R, .view = {.rank = 1, .offset = tn_dim_const(s, 4), .size = {n}, .stride = {tn_dim_const(s, 1)}, .box = {8}}};
    k->persistent = 1, k->nmaps = 1, k->map = &map;
    fake->kernel[0] = (fake_kernel){.name = k->symbol, .nparams = (int)k->loop->params.len, .nmaps = 1, .run = nothing};
    fake->nkernels = 1;
    fake->most_threads = 1024;
    assert_int_equal(tn_exec_load(s, exec, pool), TN_OK);
    assert_int_equal(tn_state_new(exec, pool, &context), TN_OK);

    static _Alignas(64) float data[100000];
    int64_t sizes[] = {800, 800, 800, 100000, 800};
    DLTensor x[2] = {{.ndim = 1}, {.ndim = 1}}, y = {.device = {2, 0}};
    for (size_t i = 0; i < TN_COUNT(sizes); i++) {
        DLTensor host = {.data = data, .device = {1, 0}, .ndim = 1, .dtype = {2, 32, 1}, .shape = &sizes[i]};
        assert_int_equal(tn_tensor_upload(context, &host, &x[0]), TN_OK);
        int encodes = fake->encodes;
        if (tn_run(context, x, 1, &y, 1) != TN_OK)
            fail_msg("%s", tn_context_error(context));
        assert_true(fake->encodes <= encodes + 1);
        assert_int_equal(fake->map[0].address, (uintptr_t)x[0].data + 16);
        assert_int_equal(fake->map[0].size[0], sizes[i]);
        assert_true(fake->launch[0] >= 1 && fake->launch[0] <= 80);
        tn_tensor_free(&x[0]);
        tn_tensor_free(&y);
    }
    map.view.offset = tn_dim_const(s, 1);
    int64_t other = 1600;
    DLTensor host = {.data = data, .device = {1, 0}, .ndim = 1, .dtype = {2, 32, 1}, .shape = &other};
    y.device.device_id = 0;
    assert_int_equal(tn_run(context, &host, 1, &y, 1), TN_USAGE);
    assert_non_null(strstr(tn_context_error(context), ": a tensor map starts at an address that 16 divides, found 0x"));
    tn_context_free(context);
    tn_exec_unload(exec);

    __typeof__(tn_cuda.cuTensorMapEncodeTiled) call = tn_cuda.cuTensorMapEncodeTiled;
    tn_cuda.cuTensorMapEncodeTiled = NULL;
    assert_int_equal(tn_exec_load(s, exec, pool), TN_UNSUPPORTED);
    tn_cuda.cuTensorMapEncodeTiled = call;
    tn_exec_unload(exec);
    tn_exec_free(exec);
    tn_pool_free(pool);
    tn_session_free(s);
    fake->most_threads = 512;
    assert_true(!fake->pushed && !fake->modules && !fake->retained && !fake->told_inside && !fake->memory);
}

/* What instructions do through a map, wherever they stand. */
static void uses_are_found(void **state)
{
    (void)state;
    kernel k = make("kernel @k(%x: global f32, %y: global f32, %n: index, %begin: index, %end: index) threads 128 {\n"
                    "  map %a: f32 of %x at 0 sizes (n) box (64)\n  map %b: f32 of %x at 4 sizes (n) box (64)\n"
                    "  map %c: f32 of %y at 0 sizes (n) box (64)\n  map %d: f32 of %y at 4 sizes (n) box (64)\n"
                    "  %s = alloc 64 at 0 : shared f32\n  %r = alloc 1 at 256 : shared u64\n"
                    "  machine @box_prefetch %c\n  machine @box_prefetch %d\n  machine @box_store_1 %a, %begin, %s[0]\n"
                    "  for %i = %begin to %end step 1 grid {\n    for %j = 0 to %n step 1 {\n      machine @box_load_1 %s[0], %b, %i, %r[0]\n"
                    "      machine @box_load_1 %s[0], %c, %i, %r[0]\n      machine @box_store_1 %c, %j, %s[0]\n    }\n  }\n}\n");
    const struct { int buffer, how; } wanted[] = {{0, TN_PART_W}, {0, TN_PART_R}, {1, TN_PART_R | TN_PART_W}, {1, 0}};
    assert_int_equal(k.code->nmaps, 4);
    for (int i = 0; i < 4; i++)
        assert_true(k.code->map[i].buffer == wanted[i].buffer && k.code->map[i].how == wanted[i].how);
    free_test_session(k.session);
}

/* ---- the cache ------------------------------------------------------------------------------------------------------------------ */

static bool kept(kernel *k, const char *folder, const char *key, tn_code *out)
{
    tn_kernel *tile = tn_kernel_new(k->session, "k");
    tn_cache_put(folder, key, tile, k->code);
    return tn_cache_get(folder, key, tile, out);
}

static void code_keeps_its_maps(void **state)
{
    (void)state;
    char folder[] = "/tmp/tenon-maps-XXXXXX";
    assert_non_null(mkdtemp(folder));
    kernel k = make(maps_text);
    tn_code found;
    assert_true(kept(&k, folder, "good", &found));
    assert_true(found.persistent == 2 && found.nmaps == 2);
    for (int i = 0; i < 2; i++) {
        const tn_code_map *a = &k.code->map[i], *b = &found.map[i];
        assert_true(a->buffer == b->buffer && a->dtype == b->dtype && a->how == b->how && a->view.rank == b->view.rank && a->view.swizzle == b->view.swizzle);
        assert_ptr_equal(a->view.offset, b->view.offset); /* equal dims are one */
        for (int d = 0; d < a->view.rank; d++)
            assert_true(a->view.size[d] == b->view.size[d] && a->view.stride[d] == b->view.stride[d] && a->view.box[d] == b->view.box[d]);
    }
    tn_code_free(&found);

    /* Who writes nonsense gets nothing back. */
    tn_code_map *maps = tn_memdup(&k.session->arena, k.code->map, 2 * sizeof *maps);
    const tn_code_map good = maps[1];
    tn_dim foreign = tn_dim_symbol(k.session, "foreign");
    tn_code_map bad[10];
    for (size_t i = 0; i < TN_COUNT(bad); i++)
        bad[i] = good;
    bad[0].buffer = 2, bad[1].buffer = -1, bad[2].dtype = TN_I4, bad[3].dtype = TN_DTYPE_COUNT, bad[4].view.rank = 0, bad[5].view.box[2] = 257, bad[6].view.swizzle = 128;
    bad[7].view.offset = foreign, bad[8].view.stride[1] = foreign, bad[9].how = 4;
    k.code->map = maps;
    for (size_t i = 0; i < TN_COUNT(bad); i++) {
        maps[1] = bad[i];
        assert_false(kept(&k, folder, "bad", &found));
    }
    maps[1] = good;
    assert_true(kept(&k, folder, "bad", &found));
    tn_code_free(&found);
    k.code->cluster = TN_MOST_CLUSTER;
    assert_true(kept(&k, folder, "cluster", &found));
    assert_int_equal(found.cluster, TN_MOST_CLUSTER);
    tn_code_free(&found);
    k.code->cluster = TN_MOST_CLUSTER + 1;
    assert_false(kept(&k, folder, "bad", &found));
    k.code->cluster = 0;
    k.code->persistent = TN_MOST_PERSISTENT + 1;
    assert_false(kept(&k, folder, "bad", &found));
    k.code->persistent = 0;
    tn_code_map many[TN_MOST_MAPS + 1];
    for (size_t i = 0; i < TN_COUNT(many); i++)
        many[i] = good;
    k.code->map = many, k.code->nmaps = TN_MOST_MAPS + 1;
    assert_false(kept(&k, folder, "bad", &found));
    k.code->nmaps--;
    assert_true(kept(&k, folder, "bad", &found));
    tn_code_free(&found);
    DIR *dir = opendir(folder);
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.')
            assert_int_equal(unlinkat(dirfd(dir), e->d_name, 0), 0);
    closedir(dir);
    assert_int_equal(rmdir(folder), 0);
    free_test_session(k.session);
}

int main(void)
{
    setenv("TENON_PTXAS", "", 1);
    void *library = dlopen(FAKE_CUDA, RTLD_NOW);
    fake = library ? dlsym(library, "fake_cuda") : NULL;
    if (!fake || tn_gpu_count(NULL) != 1)
        return 1;
    fake->most_threads = 512;
    const struct CMUnitTest tests[] = {cmocka_unit_test(maps_are_made_of_sizes), cmocka_unit_test(types_have_numbers),           cmocka_unit_test(empty_views_are_nowhere),
                                       cmocka_unit_test(bad_views_are_refused),  cmocka_unit_test(old_drivers_have_none),        cmocka_unit_test(blocks_are_as_many_as_wanted),
                                       cmocka_unit_test(executables_have_maps),  cmocka_unit_test(uses_are_found), cmocka_unit_test(code_keeps_its_maps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
