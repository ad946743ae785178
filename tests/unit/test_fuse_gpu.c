/* Graph groups with a GPU's tiles on a CPU: shapes that need more than one tile, where random graphs are small. Sums of small integers are exact. Sorts by runs and merges. */
#include <stdio.h>

#include "plan_test.h"

#include "opt/opt.h"

typedef struct shape {
    const char *text;  /* of the operand: its sizes */
    int64_t size[3];
    int rank;
    int axis;          /* that is summed; -1: all of them */
    size_t kernels;
} shape;

static const char *graph_text(tn_session *session, const shape *s)
{
    char result[64] = "";
    for (int i = 0; i < s->rank && s->axis >= 0; i++)
        if (i != s->axis)
            snprintf(result + strlen(result), sizeof result - strlen(result), "%s%lld", *result ? ", " : "", (long long)s->size[i]);
    const char *axes = s->axis >= 0 ? tn_format(&session->arena, "%d", s->axis) : s->rank == 1 ? "0" : "0, 1, 2";
    return tn_format(&session->arena,
                     "graph @f(%%x: i32[%s]) {\n  %%z = constant dense<0> : i32[]\n  %%s = reduce %%x, %%z, dimensions = [%s] : i32[%s] {\n"
                     "  ^(%%a: i32[], %%b: i32[]):\n    %%c = add %%a, %%b : i32[]\n    return %%c\n  }\n  return %%s\n}\n",
                     s->text, axes, result);
}

/* A graph whose tiles are those of a GPU with so much shared memory (0: as it has), in `kernels` kernels (0: any number). */
typedef struct running {
    tn_session *session;
    tn_program program;
    tn_exec *exec;
    tn_context *context;
    tn_pool *pool;
} running;

static void start(running *r, tn_session *session, const char *text, int64_t shared, size_t kernels)
{
    tn_graph_module *module;
    tn_opt_options opt = {.verify = true, .numerics = TN_NUMERICS_FAST};
    tn_fuse_options fuse = {.numerics = TN_NUMERICS_FAST, .target = tn_machine_tile_target(tn_machine_find("sm_90a"), 1)};
    tn_exec_options options = {.machine = tn_machine_find("baseline"), .threads = 1, .level = 1, .verify = true};
    fuse.target.shared = shared ? shared : fuse.target.shared;
    *r = (running){.session = session, .pool = tn_pool_new(1)};
    if (tn_graph_parse(session, "test", text, strlen(text), &module) != TN_OK || tn_opt_run(session, module->graphs.at[0], NULL, &opt) != TN_OK ||
        tn_fuse(session, module->graphs.at[0], &fuse, &r->program) != TN_OK || tn_exec_new(session, &r->program, &options, &r->exec) != TN_OK) {
        tn_print_diags(session, stderr);
        fail_msg("%s", text);
    }
    if (kernels)
        assert_int_equal(r->program.steps.list.len, kernels);
    assert_int_equal(tn_exec_load(session, r->exec, r->pool), TN_OK);
    assert_int_equal(tn_state_new(r->exec, r->pool, &r->context), TN_OK);
}

static void end(running *r)
{
    tn_context_free(r->context);
    tn_exec_free(r->exec);
    tn_pool_free(r->pool);
    tn_session_free(r->session);
}

static DLTensor tensor(tn_dtype dtype, void *data, int rank, int64_t *sizes)
{
    return (DLTensor){.data = data, .device = {1, 0}, .ndim = rank, .dtype = tn_dtype_to_dlpack(dtype), .shape = sizes};
}

static void check_sum(const shape *s)
{
    tn_session *session = tn_session_new();
    running r;
    start(&r, session, graph_text(session, s), 0, s->kernels);
    int64_t n = 1, kept = 1, inner = 1, out_size[3];
    int rank = 0;
    for (int i = 0; i < s->rank; i++) {
        n *= s->size[i];
        inner *= s->axis >= 0 && i > s->axis ? s->size[i] : 1;
        if (s->axis >= 0 && i != s->axis)
            kept *= out_size[rank++] = s->size[i];
    }
    int32_t *x = malloc(sizeof *x * (size_t)n), *got = calloc((size_t)kept, sizeof *got), *want = calloc((size_t)kept, sizeof *want);
    for (int64_t i = 0; i < n; i++) {
        x[i] = (int32_t)(i * 7 % 13) - 5;
        want[s->axis < 0 ? 0 : i / (inner * s->size[s->axis]) * inner + i % inner] += x[i];
    }
    DLTensor in = tensor(TN_I32, x, s->rank, (int64_t *)s->size), out = tensor(TN_I32, got, rank, out_size);
    if (tn_run(r.context, &in, 1, &out, 1) != TN_OK)
        fail_msg("%s", tn_context_error(r.context));
    assert_memory_equal(got, want, sizeof *got * (size_t)kept);
    free(x), free(got), free(want);
    end(&r);
}

/* Keys with many equals, and where they stood: [lines, n] sorted along n, or the same turned. Runs of at most `shared` / 10 elements. */
static void check_sort(int64_t lines, int64_t n, int64_t shared, bool turned)
{
    tn_session *session = tn_session_new();
    running r;
    int64_t size[2] = {turned ? n : lines, turned ? lines : n};
    const char *type = tn_format(&session->arena, "[%lld, %lld]", (long long)size[0], (long long)size[1]);
    start(&r, session,
          tn_format(&session->arena,
                    "graph @f(%%k: f32%s, %%v: i32%s) -> (a, b) {\n  %%a, %%b = sort %%k, %%v, dimension = %d, stable = true : f32%s, i32%s {\n"
                    "  ^(%%x: f32[], %%y: f32[], %%i: i32[], %%j: i32[]):\n    %%c = compare %%x, %%y, direction = GT, total_order = false : bool[]\n    return %%c\n  }\n"
                    "  return %%a, %%b\n}\n", type, type, !turned, type, type),
          shared, 0);
    size_t all = (size_t)(lines * n);
    float *keys = malloc(sizeof *keys * all), *sorted = calloc(all, sizeof *sorted);
    int32_t *places = malloc(sizeof *places * all), *moved = calloc(all, sizeof *moved);
    for (int64_t line = 0; line < lines; line++)
        for (int64_t i = 0; i < n; i++) {
            int64_t at = turned ? i * lines + line : line * n + i;
            keys[at] = (float)((line * 5 + i * 7919) % 61);
            places[at] = (int32_t)i;
        }
    DLTensor in[2] = {tensor(TN_F32, keys, 2, size), tensor(TN_I32, places, 2, size)}, out[2] = {tensor(TN_F32, sorted, 2, size), tensor(TN_I32, moved, 2, size)};
    if (tn_run(r.context, in, 2, out, 2) != TN_OK)
        fail_msg("%s", tn_context_error(r.context));
    for (int64_t line = 0; line < lines; line++)
        for (int64_t i = 0; i < n; i++) {
            int64_t step = turned ? lines : 1, first = turned ? line : line * n, at = first + i * step;
            assert_true(moved[at] >= 0 && moved[at] < n && keys[first + moved[at] * step] == sorted[at]);
            assert_true(i == 0 || sorted[at - step] > sorted[at] || (sorted[at - step] == sorted[at] && moved[at - step] < moved[at]));
        }
    free(keys), free(sorted), free(places), free(moved);
    end(&r);
}

static void sorts_by_runs(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 7, 64, 100, 257, 1000};
    for (size_t i = 0; i < TN_COUNT(lengths); i++)
        for (int turned = 0; turned < 2; turned++) {
            check_sort(3, lengths[i], 0, turned);
            check_sort(3, lengths[i], (8 << 10) + 800, turned); /* runs of 32 */
        }
    check_sort(1, 5000, (8 << 10) + 800, false);
    check_sort(200, 3, 0, false);
}

static void sums_of_large_tensors(void **state)
{
    (void)state;
    static const shape shapes[] = {
        {"1048576", {1048576}, 1, -1, 2},             /* parts of everything */
        {"1048575", {1048575}, 1, -1, 1},             /* no part of a power of two: one program's strips */
        {"4, 262144", {4, 262144}, 2, 1, 2},          /* few long rows */
        {"3, 100001", {3, 100001}, 2, 1, 1},          /* that have no parts, and end inside a strip */
        {"200, 5003", {200, 5003}, 2, 1, 1},          /* rows as a whole, padded to 5120 */
        {"1003, 700", {1003, 700}, 2, 1, 1},          /* several rows a program; the last ones are not there */
        {"16384, 40", {16384, 40}, 2, 0, 2},          /* few columns */
        {"333, 5000", {333, 5000}, 2, 0, 1},          /* columns by strips of rows */
        {"64, 32, 1024", {64, 32, 1024}, 3, -1, 2},
        {"100, 300, 77", {100, 300, 77}, 3, 1, 1},
    };
    for (size_t i = 0; i < TN_COUNT(shapes); i++)
        check_sum(&shapes[i]);
}

/* [m, k] by [n, k] transposed, of f8, with scales of blocks of k: of each row of the left factor, of `block` x `block` of the right one. Small integers and powers of two, whose sums are
 * exact. One kernel, which multiplies sums of blocks by the scales, or of a block that no dim is made of (odd) whatever it is. */
static void check_scales(int m, int n, int k, int block, size_t kernels)
{
    tn_session *session = tn_session_new();
    running r;
    char left[512], right[512];
    snprintf(left, sizeof left, "  %%ab = broadcast_in_dim %%as, shape = [%d, %d, %d], broadcast_dimensions = [0, 1] : f32[%d, %d, %d]\n  %%ar = reshape %%ab, shape = [%d, %d] : f32[%d, %d]\n",
             m, k / block, block, m, k / block, block, m, k, m, k);
    snprintf(right, sizeof right, "  %%bb = broadcast_in_dim %%bs, shape = [%d, %d, %d, %d], broadcast_dimensions = [0, 2] : f32[%d, %d, %d, %d]\n  %%br = reshape %%bb, shape = [%d, %d] : f32[%d, %d]\n",
             n / block, block, k / block, block, n / block, block, k / block, block, n, k, n, k);
    start(&r, session,
          tn_format(&session->arena,
                    "graph @f(%%a: f8e4m3fn[%d, %d], %%as: f32[%d, %d], %%b: f8e4m3fn[%d, %d], %%bs: f32[%d, %d]) -> (c) {\n%s%s  %%aw = convert %%a, dtype = f32 : f32[%d, %d]\n"
                    "  %%ax = multiply %%ar, %%aw : f32[%d, %d]\n  %%bw = convert %%b, dtype = f32 : f32[%d, %d]\n  %%bx = multiply %%bw, %%br : f32[%d, %d]\n"
                    "  %%s = dot_general %%ax, %%bx, lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [1] : f32[%d, %d]\n  %%c = convert %%s, dtype = f16 : f16[%d, %d]\n"
                    "  return %%c\n}\n", m, k, m, k / block, n, k, n / block, k / block, left, right, m, k, m, k, n, k, n, k, m, n, m, n),
          0, kernels);
    static const uint8_t codes[] = {0x00, 0x38, 0xb8, 0x40}; /* 0, 1, -1, 2 */
    static const float values[] = {0, 1, -1, 2};
    uint8_t *a = malloc((size_t)m * k), *b = malloc((size_t)n * k);
    float *as = malloc(sizeof *as * (size_t)(m * (k / block))), *bs = malloc(sizeof *bs * (size_t)(n / block * (k / block)));
    uint16_t *got = calloc((size_t)m * n, sizeof *got);
    for (int i = 0; i < m * k; i++)
        a[i] = codes[i * 7 % 11 & 3];
    for (int i = 0; i < n * k; i++)
        b[i] = codes[i * 5 % 13 & 3];
    for (int i = 0; i < m * (k / block); i++)
        as[i] = i % 3 ? 1 : 0.5F;
    for (int i = 0; i < n / block * (k / block); i++)
        bs[i] = i % 2 ? 2 : 1;
    DLTensor in[] = {tensor(TN_F8E4M3, a, 2, (int64_t[]){m, k}), tensor(TN_F32, as, 2, (int64_t[]){m, k / block}), tensor(TN_F8E4M3, b, 2, (int64_t[]){n, k}),
                     tensor(TN_F32, bs, 2, (int64_t[]){n / block, k / block})}, out = tensor(TN_F16, got, 2, (int64_t[]){m, n});
    if (tn_run(r.context, in, 4, &out, 1) != TN_OK)
        fail_msg("%s", tn_context_error(r.context));
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int l = 0; l < k; l++)
                sum += values[(i * k + l) * 7 % 11 & 3] * as[i * (k / block) + l / block] * values[(j * k + l) * 5 % 13 & 3] * bs[j / block * (k / block) + l / block];
            assert_true(tn_number_load(TN_F16, got, (int64_t)i * n + j).f == sum);
        }
    free(a), free(b), free(as), free(bs), free(got);
    end(&r);
}

static void scales_by_blocks(void **state)
{
    (void)state;
    check_scales(128, 256, 256, 128, 1);
    check_scales(200, 384, 640, 128, 1);
    check_scales(17, 96, 96, 32, 1);
    check_scales(65, 48, 80, 16, 1);
    check_scales(1, 256, 384, 128, 1);
    check_scales(1, 96, 64, 32, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(scales_by_blocks), cmocka_unit_test(sums_of_large_tensors), cmocka_unit_test(sorts_by_runs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
