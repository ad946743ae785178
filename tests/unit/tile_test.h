/* What the tests of the Tile IR and its CPU lowering share: kernels in text, run by the definitions and as Loop IR, scalar and after the
 * pipeline of each machine, on the same random data. */
#ifndef TN_TILE_TEST_H
#define TN_TILE_TEST_H

#include "unit.h"

#include "target/target.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEST_BUFFERS = 12, TEST_SYMBOLS = 24, TEST_KNOBS = 8 };

/* Sizes of symbols, extents of parameters, entries of the schedule ("label key" or "key"). */
typedef struct setting {
    const char *name;
    int64_t value;
} setting;
typedef struct variant {
    setting size[TEST_SYMBOLS]; /* name NULL ends */
    setting bind[TEST_KNOBS];
    setting set[TEST_KNOBS];
    setting alias[TEST_KNOBS]; /* "y x" 3: y starts at element 3 of x, in the same memory (one element type) */
    const char *gpu;           /* machine; NULL: sm_90a */
    int cluster;               /* CTAs of a cluster there; 0: one */
    double slack;              /* factor of the tolerance of floats; 0: 1 */
} variant;

static inline uint64_t test_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    return tn_hash_u64(*state);
}

static inline bool test_lookup(void *context, const char *symbol, int64_t *value)
{
    for (const setting *s = ((const variant *)context)->size; s->name; s++)
        if (strcmp(s->name, symbol) == 0) {
            *value = s->value;
            return true;
        }
    return false;
}

/* The text with each #X replaced by what stands beside it, in which others are replaced too; nothing for NULL. */
static inline const char *replaced(tn_arena *arena, const char *text, const char *const (*by)[2], size_t n)
{
    tn_text out = {.arena = arena};
    while (*text) {
        size_t plain = strcspn(text, "#");
        tn_text_put(&out, text, plain);
        text += plain;
        for (size_t i = 0; *text && i < n; i++)
            if (by[i][0][1] == text[1]) {
                const char *inner = replaced(arena, by[i][1], by, n);
                tn_text_add(&out, "%s", inner ? inner : "");
                text += 2;
                break;
            }
    }
    return out.at ? out.at : "";
}

static inline tn_kernel *parse_tile(tn_session *session, const char *text)
{
    tn_kernels kernels = {0};
    if (tn_tile_parse(session, "test", text, strlen(text), &kernels) != TN_OK || kernels.len != 1) {
        tn_print_diags(session, stderr);
        fprintf(stderr, "%s", text);
        fail_msg("a test's kernel does not parse");
    }
    return kernels.at[0];
}

static inline const char *tile_text(const tn_kernel *kernel)
{
    tn_text text = {.arena = &kernel->session->arena};
    tn_text_kernel(&text, kernel);
    return text.at;
}

static inline const char *loop_text(const tn_lfunc *func)
{
    tn_text text = {.arena = &func->session->arena};
    tn_text_lfunc(&text, func);
    return text.at;
}

/* ---- data ---- */

typedef struct test_data {
    tn_dtype dtype[TEST_BUFFERS];
    void *at[TEST_BUFFERS];
    int64_t elements[TEST_BUFFERS];
    size_t bytes[TEST_BUFFERS];
    int owner[TEST_BUFFERS]; /* the buffer whose memory it is: itself, or what it is an alias of */
    size_t start[TEST_BUFFERS]; /* bytes into it */
    int n;
} test_data;

static inline int data_named(const tn_kernel *kernel, const char *name, size_t len)
{
    int n = 0;
    for (size_t i = 0; i < kernel->buffers.len; i++) {
        const tn_tbuffer *t = &kernel->buffers.at[i];
        if (t->mode != TN_LOCAL && strlen(t->name) == len && memcmp(t->name, name, len) == 0)
            return n;
        n += t->mode != TN_LOCAL;
    }
    fail_msg("no buffer is called %s", name);
    return -1;
}

/* The alias ends where its owner's memory does. */
static inline void set_alias(const tn_kernel *kernel, const setting *s, test_data *data)
{
    const char *space = strchr(s->name, ' ');
    int alias = data_named(kernel, s->name, (size_t)(space - s->name)), owner = data_named(kernel, space + 1, strlen(space + 1));
    assert_true(data->dtype[alias] == data->dtype[owner] && s->value <= data->elements[owner]);
    free(data->at[alias]);
    data->owner[alias] = owner;
    data->start[alias] = (size_t)s->value * (size_t)tn_dtype_bits(data->dtype[owner]) / 8;
    data->elements[alias] = tn_min(data->elements[alias], data->elements[owner] - s->value);
    data->bytes[alias] = (size_t)data->elements[alias] * (size_t)tn_dtype_bits(data->dtype[owner]) / 8;
    data->at[alias] = (char *)data->at[owner] + data->start[alias];
}

static inline test_data random_data(const tn_kernel *kernel, const variant *v, uint64_t seed)
{
    test_data data = {.n = 0};
    for (size_t i = 0; i < kernel->buffers.len; i++) {
        const tn_tbuffer *t = &kernel->buffers.at[i];
        if (t->mode == TN_LOCAL)
            continue;
        int b = data.n++;
        assert_true(b < TEST_BUFFERS && t->elements);
        data.dtype[b] = t->dtype;
        assert_true(tn_dim_eval(t->elements, test_lookup, (void *)v, &data.elements[b]));
        assert_true(tn_dtype_bytes(t->dtype, data.elements[b], &data.bytes[b]));
        data.at[b] = calloc(1, data.bytes[b] + 1);
        data.owner[b] = b;
        for (int64_t k = 0; k < data.elements[b]; k++) {
            uint64_t r = test_random(&seed);
            tn_number x = tn_is_float(t->dtype) || tn_is_complex(t->dtype) ? tn_number_from_double(t->dtype, (double)(int64_t)r / 0x1p62)
                                                                            : tn_number_from_int(t->dtype, t->dtype == TN_BOOL ? r & 1 : r % 16 - 2 * (r % 16 > 13) * 9);
            tn_number_store(t->dtype, data.at[b], k, x);
        }
    }
    for (const setting *s = v->alias; s->name; s++)
        set_alias(kernel, s, &data);
    return data;
}

static inline void place_aliases(test_data *data)
{
    for (int i = 0; i < data->n; i++)
        if (data->owner[i] != i)
            data->at[i] = (char *)data->at[data->owner[i]] + data->start[i];
}

static inline test_data copy_data(const test_data *from)
{
    test_data data = *from;
    for (int i = 0; i < data.n; i++)
        if (data.owner[i] == i) {
            data.at[i] = malloc(data.bytes[i] + 1);
            memcpy(data.at[i], from->at[i], data.bytes[i]);
        }
    place_aliases(&data);
    return data;
}

static inline void free_data(test_data *data)
{
    for (int i = 0; i < data->n; i++)
        if (data->owner[i] == i)
            free(data->at[i]);
}

static inline bool close_enough(tn_dtype dtype, tn_number a, tn_number b, double slack)
{
    if (!tn_is_float(dtype) && !tn_is_complex(dtype))
        return tn_number_same(dtype, a, b);
    double tolerance = tn_dtype_bits(tn_dtype_real(dtype)) >= 64 ? 1e-9 : tn_dtype_bits(tn_dtype_real(dtype)) >= 32 ? 1e-3 : 4e-2;
    tolerance *= slack ? slack : 1;
    if (tn_number_same(dtype, a, b))
        return true;
    return fabs(a.f - b.f) <= tolerance * fmax(1, fabs(a.f)) && (!tn_is_complex(dtype) || fabs(a.im - b.im) <= tolerance * fmax(1, fabs(a.im)));
}

/* ---- running ---- */

static inline void report(const tn_kernel *kernel, const tn_lfunc *func, const variant *v, const char *machine)
{
    tn_print_diags(kernel->session, stderr);
    fprintf(stderr, "---- kernel\n%s", tile_text(kernel));
    if (func)
        fprintf(stderr, "---- loops\n%s", loop_text(func));
    for (const setting *s = v->size; s->name; s++)
        fprintf(stderr, "%s = %lld ", s->name, (long long)s->value);
    fprintf(stderr, "(%s)\n", machine);
}

static inline int64_t programs_of(const tn_kernel *kernel, const variant *v)
{
    int64_t programs = 1, limit;
    for (size_t i = 0; i < kernel->grid.len; i++) {
        assert_true(tn_dim_eval(kernel->grid.at[i].limit, test_lookup, (void *)v, &limit));
        programs *= tn_ceildiv(limit, kernel->grid.at[i].step.size);
    }
    return programs;
}

static inline tn_status run_loops(const tn_lfunc *func, const test_data *data, const variant *v, int64_t begin, int64_t end)
{
    tn_loop_arg args[TEST_BUFFERS];
    int64_t index[TEST_SYMBOLS + 2];
    int n = 0;
    for (int i = 0; i < data->n; i++)
        args[i] = (tn_loop_arg){data->at[i], data->elements[i]};
    for (size_t i = (size_t)func->nbuffers; i + 2 < func->params.len; i++)
        assert_true(test_lookup((void *)v, func->params.at[i]->name, &index[n++]));
    index[n++] = begin;
    index[n++] = end;
    return tn_loop_interpret(func, args, index);
}

static inline void compare(const tn_kernel *kernel, const tn_lfunc *func, const variant *v, const char *machine, const test_data *start,
                           const test_data *want)
{
    test_data got = copy_data(start);
    int64_t programs = programs_of(kernel, v), middle = programs / 2;
    bool ok = run_loops(func, &got, v, middle, programs) == TN_OK && run_loops(func, &got, v, 0, middle) == TN_OK;
    for (int b = 0; ok && b < got.n; b++)
        for (int64_t k = 0; ok && k < got.elements[b]; k++) {
            tn_number x = tn_number_load(got.dtype[b], want->at[b], k), y = tn_number_load(got.dtype[b], got.at[b], k);
            ok = close_enough(got.dtype[b], x, y, v->slack);
            if (!ok)
                fprintf(stderr, "buffer %d at %lld: expected %g, found %g\n", b, (long long)k, tn_number_to_double(got.dtype[b], x),
                        tn_number_to_double(got.dtype[b], y));
        }
    free_data(&got);
    if (!ok) {
        report(kernel, func, v, machine);
        fail_msg("the lowered kernel does something else");
    }
}

static inline void apply_schedule(tn_kernel *kernel, const variant *v)
{
    for (const setting *s = v->bind; s->name; s++)
        tn_schedule_bind(kernel, s->name, s->value);
    for (const setting *s = v->set; s->name; s++) {
        const char *space = strchr(s->name, ' ');
        char label[64] = "";
        if (space)
            snprintf(label, sizeof label, "%.*s", (int)(space - s->name), s->name);
        tn_schedule_set(kernel, label, space ? space + 1 : s->name, s->value);
    }
}

static inline size_t count_dots(const tn_tblock *block)
{
    size_t n = 0;
    for (const tn_top *op = block->first; op; op = op->next) {
        n += op->code == TN_T_dot;
        for (int r = 0; r < op->nregions; r++)
            n += count_dots(op->region[r]);
    }
    return n;
}

/* The Loop IR's size is linear in the kernel's. A dot is a kernel of registers for every number of rows that may be left over. */
static inline void check_size(const tn_kernel *kernel, const tn_lfunc *func, const variant *v, const char *machine)
{
    size_t size = tn_loop_size(func), ops = tn_tile_size(kernel);
    if (size <= 200 * ops + 16000 * count_dots(kernel->body))
        return;
    report(kernel, func, v, machine);
    fail_msg("%zu operations of Loop IR for %zu of Tile IR", size, ops);
}

static const char *const test_machines[] = {"baseline", "avx2", "avx512"};

/* Parses, binds and checks the text under the variant. */
static inline tn_kernel *tile_variant(tn_session *session, const char *text, const variant *v)
{
    tn_kernel *kernel = parse_tile(session, text);
    apply_schedule(kernel, v);
    if (tn_tile_verify(kernel) != TN_OK || tn_tile_bind(kernel) != TN_OK || tn_tile_verify(kernel) != TN_OK) {
        report(kernel, NULL, v, "verify");
        fail_msg("a test's kernel is wrong");
    }
    return kernel;
}

/* What the definitions make of the data. */
static inline test_data tile_result(const tn_kernel *kernel, const variant *v, const test_data *start)
{
    test_data want = copy_data(start);
    tn_tile_arg args[TEST_BUFFERS];
    for (int i = 0; i < want.n; i++)
        args[i] = (tn_tile_arg){want.at[i], want.elements[i]};
    if (tn_tile_interpret(kernel, args, test_lookup, (void *)v) != TN_OK) {
        report(kernel, NULL, v, "interpret");
        fail_msg("a test's kernel does not run");
    }
    return want;
}

/* The same on a GPU, whose threads run in lockstep by the interpreter of the Loop IR. Returns what the lowering says; the caller knows what it refuses. */
static inline tn_status check_gpu_kernel(const char *text, const variant *v, int warps, uint64_t seed)
{
    tn_session *session = new_test_session();
    tn_kernel *kernel = tile_variant(session, text, v);
    const tn_machine *gpu = tn_machine_find(v->gpu ? v->gpu : "sm_90a");
    const tn_pass_options options = {.vector = gpu->vector};
    tn_lfunc *func = NULL;
    tn_schedule_set(kernel, "", "warps", warps);
    if (v->cluster)
        tn_schedule_set(kernel, "", "cluster", v->cluster);
    tn_status status = tn_gpu_lower(session, kernel, gpu, &func);
    if (status == TN_UNSUPPORTED) {
        if (getenv("TILE_TRACE"))
            tn_print_diags(session, stderr);
        free_test_session(session);
        return status;
    }
    char name[64];
    snprintf(name, sizeof name, "%s, %d warps, clusters of %d", gpu->name, warps, v->cluster);
    if (status != TN_OK || tn_loop_verify(func, 0) != TN_OK) {
        report(kernel, func, v, name);
        fail_msg("a test's kernel does not lower");
    }
    test_data start = random_data(kernel, v, seed), want = tile_result(kernel, v, &start);
    compare(kernel, func, v, name, &start, &want);
    if (tn_loop_run_passes(func, tn_loop_pipeline, &options, true, NULL) != TN_OK) {
        report(kernel, func, v, name);
        fail_msg("a pass of the pipeline failed");
    }
    compare(kernel, func, v, name, &start, &want);
    free_data(&start);
    free_data(&want);
    free_test_session(session);
    return TN_OK;
}

/* The kernel does by the definitions what its lowering does, scalar and vectorised, on every machine. Also: what is printed reads back, and
 * simplify changes nothing. */
static inline void check_kernel(const char *text, const variant *v, uint64_t seed)
{
    tn_session *session = new_test_session();
    tn_kernel *kernel = tile_variant(session, text, v);
    tn_kernel *again = parse_tile(session, tile_text(kernel));
    assert_string_equal(tile_text(kernel), tile_text(again));

    test_data start = random_data(kernel, v, seed), want = tile_result(kernel, v, &start);
    for (size_t m = 0; m < TN_COUNT(test_machines); m++) {
        const tn_machine *machine = tn_machine_find(test_machines[m]);
        const tn_pass_options options = {.vector = machine->vector};
        tn_lfunc *func = NULL;
        if (tn_cpu_lower(session, kernel, machine, &func) != TN_OK || tn_loop_verify(func, 0) != TN_OK) {
            report(kernel, func, v, test_machines[m]);
            fail_msg("a test's kernel does not lower");
        }
        compare(kernel, func, v, test_machines[m], &start, &want);
        check_size(kernel, func, v, test_machines[m]);
        if (tn_loop_run_passes(func, tn_loop_pipeline, &options, true, NULL) != TN_OK) {
            report(kernel, func, v, test_machines[m]);
            fail_msg("a pass of the pipeline failed");
        }
        compare(kernel, func, v, test_machines[m], &start, &want);
    }
    for (const tn_tile_pass *pass = tn_tile_passes; pass->name; pass++)
        assert_int_equal(pass->run(again), TN_OK);
    test_data simplified = copy_data(&start);
    tn_tile_arg args[TEST_BUFFERS];
    for (int i = 0; i < want.n; i++)
        args[i] = (tn_tile_arg){simplified.at[i], simplified.elements[i]};
    assert_int_equal(tn_tile_interpret(again, args, test_lookup, (void *)v), TN_OK);
    for (int i = 0; i < want.n; i++)
        assert_memory_equal(simplified.at[i], want.at[i], want.bytes[i]);
    free_data(&simplified);
    free_data(&start);
    free_data(&want);
    free_test_session(session);
}

#endif
