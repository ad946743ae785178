/* What one core of this machine can do: multiply-adds a second, and the time to copy memory. The limits that bench/run.py measures against.
 *
 *     limits fma SECONDS           rate of independent f32 fused multiply-adds on registers, GFLOP/s
 *     limits copy BYTES SECONDS    time to copy BYTES from one buffer to another, ms: the faster of memcpy and a loop of vector loads and stores
 *
 * Without arguments it reads such requests from standard input, a line each, and answers each with a number: so limits can be measured in turns
 * with something else. Many short bursts, timed by the processor time of this thread, because the machine may be shared; their median counts. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define TARGET(features) __attribute__((target(features), noinline))
#endif

/* ---- times ---------------------------------------------------------------------------------------------------------------- */

enum { MOST_SAMPLES = 1000 };

typedef struct samples {
    double at[MOST_SAMPLES];
    int n;
} samples;

/* Seconds that this thread has had. */
static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void add_sample(samples *s, double seconds)
{
    if (s->n < MOST_SAMPLES)
        s->at[s->n++] = seconds;
}

static double median(samples *s)
{
    qsort(s->at, (size_t)s->n, sizeof s->at[0], tn_by_value);
    return s->at[s->n / 2];
}

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

static fma_kernel best_fma_kernel(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return (fma_kernel){fma_512, 16};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return (fma_kernel){fma_256, 8};
    return (fma_kernel){fma_128, 4};
#else
    return (fma_kernel){fma_plain, 1};
#endif
}

static double fma_rate(double seconds)
{
    static volatile float sink;
    fma_kernel kernel = best_fma_kernel();
    samples times = {.n = 0};
    double end = tn_seconds() + seconds;
    do {
        double start = thread_seconds();
        sink = kernel.run(1.0f);
        add_sample(&times, thread_seconds() - start);
    } while (tn_seconds() < end);
    (void)sink;
    return 2.0 * STEPS * CHAINS * kernel.lanes / median(&times) * 1e-9;
}

/* ---- copies -------------------------------------------------------------------------------------------------------------- */

static void copy_memcpy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

#if defined(__x86_64__)
TARGET("avx") static void copy_256(void *to, const void *from, size_t bytes)
{
    for (size_t i = 0; i + 128 <= bytes; i += 128)
        for (size_t j = 0; j < 128; j += 32)
            _mm256_store_si256((__m256i *)((char *)to + i + j), _mm256_load_si256((const __m256i *)((const char *)from + i + j)));
}
#endif

typedef void copy_fn(void *to, const void *from, size_t bytes);

static copy_fn *best_loop(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx"))
        return copy_256;
#endif
    return copy_memcpy;
}

static double copy_time(copy_fn *copy, void *to, const void *from, size_t bytes)
{
    double start = thread_seconds();
    copy(to, from, bytes);
    __asm__ volatile("" ::"r"(to) : "memory");
    return thread_seconds() - start;
}

/* Buffers stay for the next request of the same size: fresh pages would count as part of the copy. */
typedef struct buffers {
    size_t bytes;
    char *from, *to;
} buffers;

static bool take_buffers(buffers *b, size_t bytes)
{
    size_t rounded = (bytes + 4095) / 4096 * 4096;
    if (b->bytes == rounded)
        return true;
    free(b->from), free(b->to);
    *b = (buffers){rounded, aligned_alloc(4096, rounded), aligned_alloc(4096, rounded)};
    if (!b->from || !b->to)
        return false;
    memset(b->from, 1, rounded), memset(b->to, 2, rounded);
    return true;
}

static double copy_ms(buffers *b, size_t bytes, double seconds)
{
    if (!take_buffers(b, bytes))
        return -1;
    samples library = {.n = 0}, loop = {.n = 0};
    double end = tn_seconds() + seconds;
    do {
        add_sample(&library, copy_time(copy_memcpy, b->to, b->from, bytes));
        add_sample(&loop, copy_time(best_loop(), b->to, b->from, bytes));
    } while (tn_seconds() < end);
    double a = median(&library), c = median(&loop);
    return (a < c ? a : c) * 1e3;
}

/* ---- requests ------------------------------------------------------------------------------------------------------------- */

static int answer(buffers *b, const char *request)
{
    double seconds;
    size_t bytes;
    if (sscanf(request, "fma %lf", &seconds) == 1)
        printf("%.6f\n", fma_rate(seconds));
    else if (sscanf(request, "copy %zu %lf", &bytes, &seconds) == 2 && bytes > 0 && bytes < (size_t)1 << 34)
        printf("%.6f\n", copy_ms(b, bytes, seconds));
    else
        return fprintf(stderr, "limits: expected `fma SECONDS` or `copy BYTES SECONDS`, found `%s`\n", request), 2;
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv)
{
    buffers b = {0};
    char line[128] = "";
    int status = 0;
    for (int i = 1; i < argc; i++)
        snprintf(line + strlen(line), sizeof line - strlen(line), "%s ", argv[i]);
    if (argc > 1)
        return answer(&b, line);
    while (status == 0 && fgets(line, sizeof line, stdin))
        status = answer(&b, line);
    free(b.from), free(b.to);
    return status;
}
