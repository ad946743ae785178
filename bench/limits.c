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

#include "run/run.h"

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

static double fma_rate(double seconds)
{
    enum { WIDEST = 512 };
    samples times = {.n = 0};
    double end = tn_seconds() + seconds, work;
    do {
        double start = thread_seconds();
        work = tn_multiply_add_burst(WIDEST);
        add_sample(&times, thread_seconds() - start);
    } while (tn_seconds() < end);
    return work / median(&times) * 1e-9;
}

/* ---- copies -------------------------------------------------------------------------------------------------------------- */

typedef void copy_fn(void *to, const void *from, size_t bytes);

static void copy_memcpy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
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
        add_sample(&loop, copy_time(tn_copy_loop, b->to, b->from, bytes));
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
