/* What this CPU can do at most: multiply-adds on registers and copies, by bursts of code that does nothing else. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "run/run.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define TARGET(features) __attribute__((target(features), noinline))
#endif

/* ---- multiply-adds ------------------------------------------------------------------------------------------------------- */

enum { STEPS = 50000, CHAINS = 12 };

/* Each runs STEPS steps of CHAINS independent vector multiply-adds: more than latency times units on any core. The chains start
 * with different values, lest the compiler merge them. Returns something that depends on all of them. */
#define FMA_KERNEL(name, features, vector, set, fma, lane0)                                    \
    TARGET(features) static float name(float x)                                                \
    {                                                                                          \
        vector a = set(x), b = set(0.999f);                                                    \
        vector c0 = set(x), c1 = set(x + 1), c2 = set(x + 2), c3 = set(x + 3);                 \
        vector c4 = set(x + 4), c5 = set(x + 5), c6 = set(x + 6), c7 = set(x + 7);             \
        vector c8 = set(x + 8), c9 = set(x + 9), c10 = set(x + 10), c11 = set(x + 11);         \
        for (int i = 0; i < STEPS; i++) {                                                      \
            c0 = fma(c0, b, a), c1 = fma(c1, b, a), c2 = fma(c2, b, a), c3 = fma(c3, b, a);    \
            c4 = fma(c4, b, a), c5 = fma(c5, b, a), c6 = fma(c6, b, a), c7 = fma(c7, b, a);    \
            c8 = fma(c8, b, a), c9 = fma(c9, b, a), c10 = fma(c10, b, a), c11 = fma(c11, b, a); \
        }                                                                                      \
        c0 = fma(c0, c1, c2), c3 = fma(c3, c4, c5), c6 = fma(c6, c7, c8), c9 = fma(c9, c10, c11); \
        return lane0(fma(fma(c0, c3, c6), c9, a));                                             \
    }

#if defined(__x86_64__)
FMA_KERNEL(fma_512, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_cvtss_f32)
FMA_KERNEL(fma_256, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_cvtss_f32)

static __m128 mul_add_128(__m128 x, __m128 y, __m128 z)
{
    return _mm_add_ps(_mm_mul_ps(x, y), z);
}
FMA_KERNEL(fma_128, "sse2", __m128, _mm_set1_ps, mul_add_128, _mm_cvtss_f32)
#else
static float fma_plain(float x)
{
    float c[CHAINS];
    for (int j = 0; j < CHAINS; j++)
        c[j] = x + (float)j;
    for (int i = 0; i < STEPS; i++)
        for (int j = 0; j < CHAINS; j++)
            c[j] = __builtin_fmaf(c[j], 0.999f, x);
    for (int j = 1; j < CHAINS; j++)
        c[0] += c[j];
    return c[0];
}
#endif

typedef struct fma_kernel {
    float (*run)(float);
    int lanes;
} fma_kernel;

static fma_kernel best_fma_kernel(int bits)
{
#if defined(__x86_64__)
    if (bits >= 512 && __builtin_cpu_supports("avx512f"))
        return (fma_kernel){fma_512, 16};
    if (bits >= 256 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return (fma_kernel){fma_256, 8};
    return (fma_kernel){fma_128, 4};
#else
    (void)bits;
    return (fma_kernel){fma_plain, 1};
#endif
}

double tn_multiply_add_burst(int bits)
{
    fma_kernel kernel = best_fma_kernel(bits);
    volatile float sink = kernel.run(1.0f);
    (void)sink;
    return 2.0 * STEPS * CHAINS * kernel.lanes;
}

/* ---- copies -------------------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
TARGET("avx") static void copy_256(void *to, const void *from, size_t bytes)
{
    for (size_t i = 0; i + 128 <= bytes; i += 128)
        for (size_t j = 0; j < 128; j += 32)
            _mm256_store_si256((__m256i *)((char *)to + i + j), _mm256_load_si256((const __m256i *)((const char *)from + i + j)));
}
#endif

void tn_copy_loop(void *to, const void *from, size_t bytes)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx")) {
        copy_256(to, from, bytes);
        return;
    }
#endif
    memcpy(to, from, bytes);
}

/* ---- rates --------------------------------------------------------------------------------------------------------------- */

/* Each thread has one part, and its own time: of a machine that others use too, only the time that the thread had counts. */
typedef struct burst {
    int bits;
    char *to, *from;
    size_t bytes;  /* of a part */
    double *least; /* seconds, by part */
    double work;   /* of a part */
} burst;

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void keep_least(const burst *b, int64_t part, double seconds)
{
    if (seconds > 0 && !(seconds >= b->least[part]))
        b->least[part] = seconds;
}

enum { LEAST_COPY = 1 << 18 }; /* bytes between two looks at the clock */

static void multiply_add(void *context, int64_t begin, int64_t end, int worker)
{
    const burst *b = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        double start = thread_seconds();
        tn_multiply_add_burst(b->bits);
        keep_least(b, i, thread_seconds() - start);
    }
}

static void copy(void *context, int64_t begin, int64_t end, int worker)
{
    const burst *b = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        double start = thread_seconds();
        for (size_t done = 0; done < LEAST_COPY; done += b->bytes)
            tn_copy_loop(b->to + (size_t)i * b->bytes, b->from + (size_t)i * b->bytes, b->bytes);
        keep_least(b, i, (thread_seconds() - start) / (double)((LEAST_COPY + b->bytes - 1) / b->bytes));
    }
}

/* Work a second of all threads at their fastest: the limit is what the machine can do at most. */
static double rate_of(tn_pool *pool, tn_pool_fn fn, burst *b, double seconds)
{
    enum { LEAST_BURSTS = 3 };
    int threads = tn_pool_threads(pool);
    double rate = 0, end = tn_seconds() + seconds;
    for (int i = 0; i < threads; i++)
        b->least[i] = INFINITY;
    for (int i = 0; i < LEAST_BURSTS || tn_seconds() < end; i++)
        tn_pool_run(pool, threads, threads, fn, b);
    for (int i = 0; i < threads; i++)
        rate += b->work / b->least[i];
    return rate;
}

static const double arithmetic_seconds = 0.02, copy_seconds = 0.004;

/* Copies of several sizes, from what the first cache holds to what only memory does. More bytes are never faster. */
static bool measure_memory(tn_pool *pool, double *least, tn_rates *out)
{
    static const int64_t sizes[TN_RATE_SIZES] = {16 << 10, 128 << 10, 1 << 20, 8 << 20, 64 << 20};
    int64_t threads = tn_pool_threads(pool), most = sizes[TN_RATE_SIZES - 1];
    size_t half = (size_t)tn_max(most, sizes[TN_RATE_SIZES - 2] * threads) / 2;
    burst b = {.to = tn_alloc_tensor(half), .from = tn_alloc_tensor(half), .least = least};
    bool there = b.to && b.from;
    if (there) {
        memset(b.to, 1, half);
        memset(b.from, 2, half);
    }
    for (int i = 0; there && i < TN_RATE_SIZES; i++) {
        int64_t total = i == TN_RATE_SIZES - 1 ? tn_max(most, sizes[i - 1] * threads) : sizes[i] * threads; /* each thread has caches of its own, memory is one */
        b.bytes = (size_t)(total / 2 / threads) & ~(size_t)127;
        out->bytes[i] = total;
        b.work = 2.0 * (double)b.bytes;
        out->bandwidth[i] = rate_of(pool, copy, &b, copy_seconds);
    }
    for (int i = TN_RATE_SIZES - 2; there && i >= 0; i--)
        out->bandwidth[i] = out->bandwidth[i] > out->bandwidth[i + 1] ? out->bandwidth[i] : out->bandwidth[i + 1];
    free(b.to), free(b.from);
    return there;
}

static bool measure(const tn_machine *machine, tn_pool *pool, double *least, tn_rates *out)
{
    burst b = {.bits = machine->vector.bits, .least = least, .work = tn_multiply_add_burst(machine->vector.bits)};
    double f32 = rate_of(pool, multiply_add, &b, arithmetic_seconds);
    out->measured = true;
    out->limit = (tn_machine_limits){.f32 = f32, .f64 = f32 / 2, .product64 = f32 / 2, .product32 = f32, .product_tf32 = f32,
                                     .product16 = tn_machine_has(machine, "avx512bf16") ? 2 * f32 : f32, .product8 = tn_machine_has(machine, "avx512vnni") ? 4 * f32 : f32};
    return measure_memory(pool, least, out);
}

bool tn_rates_find(tn_session *session, const tn_machine *machine, tn_pool *pool, tn_rates *out)
{
    *out = (tn_rates){.measured = false};
    if (!machine->gpu)
        return !tn_machine_refusal(&session->arena, machine) && measure(machine, pool, TN_NEW_ARRAY(&session->arena, double, (size_t)tn_pool_threads(pool)), out);
    out->limit = *machine->limits;
    out->bytes[0] = INT64_MAX;
    out->bandwidth[0] = out->limit.memory;
    return true;
}

double tn_rates_bandwidth(const tn_rates *rates, double bytes)
{
    int i = 0;
    while (i + 1 < TN_RATE_SIZES && rates->bandwidth[i + 1] > 0 && (double)rates->bytes[i] < bytes)
        i++;
    return rates->bandwidth[i];
}
