/* rng_bit_generator: Threefry-2x32 with 20 rounds and Philox-4x32 with 10 (Salmon, Moraes, Dror, Shaw: "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011), over counters laid out as XLA does, so that JAX's streams come out the same.
 * State: u64[2] = key, counter; Philox then counts in 128 bits from (counter, key). Philox also takes
 * u64[3] = key, counter low and high. */
#include "eval/internal.h"

#include <string.h>

typedef struct block {
    uint32_t w[4];
} block;

static uint32_t rotate_left(uint32_t x, int by)
{
    return x << by | x >> (32 - by);
}

static block threefry(uint64_t key, uint64_t counter)
{
    static const int rotation[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    const uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32), k[3] = {k0, k1, k0 ^ k1 ^ 0x1bd11bdau};
    uint32_t a = (uint32_t)counter + k0, b = (uint32_t)(counter >> 32) + k1;
    for (int group = 0; group < 5; group++) {
        for (int i = 0; i < 4; i++) {
            a += b;
            b = rotate_left(b, rotation[group % 2][i]) ^ a;
        }
        a += k[(group + 1) % 3];
        b += k[(group + 2) % 3] + (uint32_t)group + 1;
    }
    return (block){{a, b}};
}

static block philox(uint64_t key, uint64_t low, uint64_t high)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    block x = {{(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)}};
    for (int round = 0; round < 10; round++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u) {
        uint64_t p = (uint64_t)x.w[0] * 0xd2511f53u, q = (uint64_t)x.w[2] * 0xcd9e8d57u;
        x = (block){{(uint32_t)(q >> 32) ^ x.w[1] ^ k0, (uint32_t)q, (uint32_t)(p >> 32) ^ x.w[3] ^ k1, (uint32_t)p}};
    }
    return x;
}

/* Writes the low bits of `bits` as element i, whatever its type. */
static void put_bits(tn_eval_value *y, int64_t i, uint64_t bits)
{
    const int width = tn_dtype_bits(y->tensor.dtype);
    if (width < 8)
        tn_number_store(y->tensor.dtype, tn_eval_data(y), i, (tn_number){.u = bits});
    else
        memcpy((char *)tn_eval_data(y) + i * (width / 8), &bits, (size_t)width / 8);
}

/* The dimension whose even and odd positions take the first and second word of one counter: the first of even size,
 * else the first of the largest. */
static int halved_dim(const tn_tensor *y)
{
    int most = 0;
    for (int i = 0; i < y->rank; i++) {
        if (y->dim[i] % 2 == 0)
            return i;
        most = y->dim[i] > y->dim[most] ? i : most;
    }
    return most;
}

static uint64_t fill_threefry(tn_eval_value *y, const uint64_t *state)
{
    const tn_tensor *t = &y->tensor;
    const int64_t n = tn_count_of(t);
    if (tn_dtype_bits(t->dtype) == 64) {
        for (int64_t i = 0; i < n; i++) {
            block x = threefry(state[0], state[1] + (uint64_t)i);
            put_bits(y, i, x.w[0] | (uint64_t)x.w[1] << 32);
        }
        return (uint64_t)n;
    }
    const int half = t->rank ? halved_dim(t) : 0;
    int64_t at[TN_MAX_RANK] = {0}, halves[TN_MAX_RANK], counters = 1;
    for (int d = 0; d < t->rank; d++) {
        halves[d] = d == half ? tn_ceildiv(t->dim[d], 2) : t->dim[d];
        counters *= halves[d];
    }
    for (int64_t i = 0; i < n; i++, tn_next_index(t->rank, t->dim, at)) {
        int64_t counter = 0;
        for (int d = 0; d < t->rank; d++)
            counter = counter * halves[d] + (d == half ? at[d] / 2 : at[d]);
        put_bits(y, i, threefry(state[0], state[1] + (uint64_t)counter).w[t->rank ? at[half] % 2 : 0]);
    }
    return (uint64_t)counters;
}

static uint64_t fill_philox(tn_eval_value *y, const uint64_t *state)
{
    const int64_t n = tn_count_of(&y->tensor), each = tn_dtype_bits(y->tensor.dtype) == 64 ? 2 : 4;
    for (int64_t i = 0; i < n; i++) {
        uint64_t low = state[1] + (uint64_t)(i / each);
        block x = philox(state[0], low, state[2] + (low < state[1]));
        int64_t k = i % each;
        put_bits(y, i, each == 4 ? x.w[k] : x.w[2 * k] | (uint64_t)x.w[2 * k + 1] << 32);
    }
    return (uint64_t)tn_ceildiv(n, each);
}

EVAL(rng_bit_generator)
{
    const tn_attr *algorithm = tn_find_attr(op, TN_A_algorithm);
    const bool is_threefry = !strcmp(algorithm->s, "THREE_FRY");
    const tn_tensor *given = &in[0]->tensor;
    uint64_t state[3] = {0};
    const int64_t words = tn_count_of(given);
    if (!is_threefry && strcmp(algorithm->s, "PHILOX") && strcmp(algorithm->s, "DEFAULT"))
        return tn_error(e->session, TN_UNSUPPORTED, op->loc,
                        "rng_bit_generator: algorithm is THREE_FRY, PHILOX or DEFAULT, found %s", algorithm->s);
    if (given->dtype != TN_U64 || (words != 2 && (is_threefry || words != 3)))
        return tn_eval_expect(e, op, "words of the state, u64", 2, words);
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    TN_TRY(tn_eval_result(e, op, 1, &out[1]));
    int width = tn_dtype_bits(out[1]->tensor.dtype);
    if (width > 64 || out[1]->tensor.dtype == TN_BOOL || tn_is_complex(out[1]->tensor.dtype))
        return tn_error(e->session, TN_UNSUPPORTED, op->loc, "rng_bit_generator: %s has no random bits",
                        tn_dtype_text(out[1]->tensor.dtype));
    for (int64_t i = 0; i < words; i++)
        state[i] = tn_at(given, i).u;
    if (words == 2)
        state[2] = state[0];
    TN_TRY(tn_eval_work(e, op->loc, tn_count_of(&out[1]->tensor), 8));
    uint64_t used = is_threefry ? fill_threefry(out[1], state) : fill_philox(out[1], state);
    state[2] += state[1] + used < state[1];
    state[1] += used;
    memcpy(tn_eval_data(out[0]), state, (size_t)words * sizeof *state);
    return TN_OK;
}
