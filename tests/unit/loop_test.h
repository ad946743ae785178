/* What the tests of src/loop share: machines, parsing, running a function on copies of data, comparing. */
#ifndef TN_LOOP_TEST_H
#define TN_LOOP_TEST_H

#include "unit.h"

#include "loop/loop.h"

#include <stdlib.h>
#include <string.h>

static const tn_pass_options machines[] = {
    {.vector = {.bits = 512, .registers = 32, .fma = true, .mask_min_bits = 8, .gather = true, .scale = true}},
    {.vector = {.bits = 256, .registers = 16, .fma = true, .mask_min_bits = 32, .gather = true}},
    {.vector = {.bits = 128, .registers = 16, .fma = false, .mask_min_bits = 0, .gather = false}},
    {.vector = {.bits = 128, .registers = 255, .fma = true, .most_lanes = 16}},
};

enum { ELEMENTS = 2048, MAX_BUFFERS = 8 };

static inline tn_lfunc *parse_kernel(tn_session *session, const char *text)
{
    tn_lfuncs funcs = {0};
    tn_status status = tn_loop_parse(session, "test", text, strlen(text), &funcs);
    if (status != TN_OK) {
        tn_print_diags(session, stderr);
        fail_msg("a test's kernel does not parse");
    }
    return funcs.at[0];
}

/* Case number i is refused, with one diagnostic that says this. */
static inline void assert_refused(const tn_session *session, tn_status status, const char *message, size_t i)
{
    if (status != TN_INVALID || session->diags.len != 1 || !strstr(session->diags.at[0].message, message))
        fail_msg("case %zu\nexpected: %s\nfound: %s", i, message, session->diags.len ? session->diags.at[0].message : "nothing");
}

static inline char *kernel_text(tn_lfunc *func)
{
    tn_text text = {.arena = &func->session->arena};
    tn_text_lfunc(&text, func);
    return text.at;
}

static inline tn_lfunc *copy_kernel(tn_lfunc *func)
{
    return parse_kernel(func->session, kernel_text(func));
}

static inline uint64_t next_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    return tn_hash_u64(*state);
}

/* Buffers of ELEMENTS random elements: floats of moderate size and the special values, any integers. */
typedef struct test_data {
    void *at[MAX_BUFFERS];
    size_t bytes[MAX_BUFFERS];
    int n;
} test_data;

static inline tn_number random_number(tn_dtype dtype, uint64_t *state)
{
    static const double special[] = {0.0, -0.0, __builtin_inf(), -__builtin_inf(), __builtin_nan(""), 1.0, -1.0};
    uint64_t r = next_random(state);
    if (tn_is_float(dtype))
        return tn_number_from_double(dtype, r % 16 == 0 ? special[(r >> 8) % 7] : (double)(int64_t)r / 0x1p60);
    return tn_number_from_int(dtype, dtype == TN_BOOL ? (int64_t)(r & 1) : (int64_t)r >> (r % 60));
}

static inline test_data make_data(const tn_lfunc *func, uint64_t seed)
{
    test_data data = {.n = func->nbuffers};
    assert_true(data.n <= MAX_BUFFERS);
    for (int i = 0; i < data.n; i++) {
        tn_dtype dtype = func->params.at[i]->type.dtype;
        assert_true(tn_dtype_bytes(dtype, ELEMENTS, &data.bytes[i]));
        data.at[i] = calloc(1, data.bytes[i]);
        for (int64_t k = 0; k < ELEMENTS; k++)
            tn_number_store(dtype, data.at[i], k, random_number(dtype, &seed));
    }
    return data;
}

static inline void free_data(test_data *data)
{
    for (int i = 0; i < data->n; i++)
        free(data->at[i]);
}

static inline tn_status run_kernel(const tn_lfunc *func, test_data *data, const int64_t *indices)
{
    tn_loop_arg args[MAX_BUFFERS];
    for (int i = 0; i < data->n; i++)
        args[i] = (tn_loop_arg){data->at[i], ELEMENTS};
    return tn_loop_interpret(func, args, indices);
}

/* Both functions leave the same bits in all buffers (any NaN for any NaN). */
static inline void assert_same_effect(tn_lfunc *want, tn_lfunc *got, const int64_t *indices, uint64_t seed)
{
    test_data x = make_data(want, seed), y = make_data(want, seed);
    tn_status first = run_kernel(want, &x, indices), second = run_kernel(got, &y, indices);
    bool same = first == TN_OK && second == TN_OK;
    for (int i = 0; same && i < x.n; i++)
        for (int64_t k = 0; same && k < ELEMENTS; k++) {
            tn_dtype dtype = want->params.at[i]->type.dtype;
            same = tn_number_same(dtype, tn_number_load(dtype, x.at[i], k), tn_number_load(dtype, y.at[i], k));
            if (!same)
                fprintf(stderr, "buffer %d differs at %lld\n", i, (long long)k);
        }
    if (!same) {
        tn_print_diags(want->session, stderr);
        fprintf(stderr, "---- before\n%s---- after\n%s", kernel_text(want), kernel_text(got));
        fail_msg("the pass changed what the kernel does");
    }
    free_data(&x);
    free_data(&y);
}

static inline void run_passes(tn_lfunc *func, const char *list, const tn_pass_options *machine)
{
    if (tn_loop_run_passes(func, list, machine, true, NULL) != TN_OK) {
        tn_print_diags(func->session, stderr);
        fprintf(stderr, "%s", kernel_text(func));
        fail_msg("a pass failed");
    }
}

#endif
