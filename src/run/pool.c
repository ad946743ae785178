#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "run/run.h"

enum { PART_BITS = 9, MOST_THREADS = 256, SPINS_A_CHECK = 64 };
static const double spin_seconds = 50e-6;

/* `job` holds how many parts the job has (PART_BITS) and above that a count, so that each job is a new word. Worker k takes part k; who has
 * no part touches nothing of the job, so nobody waits for it. `pending` counts the workers still at it. Both are futex words; a sleeper announces
 * itself first, so that nobody makes a system call for threads that are awake. */
struct tn_pool {
    int threads;
    pthread_mutex_t busy;
    _Alignas(64) _Atomic uint32_t job;
    _Atomic uint32_t sleepers;
    _Alignas(64) _Atomic uint32_t pending;
    _Atomic uint32_t waiting; /* the caller sleeps on `pending` */
    _Alignas(64) tn_pool_fn fn; /* written before `job` changes */
    void *context;
    int64_t n;
    int parts;
    bool stop;
    pthread_t worker[MOST_THREADS];
};

typedef struct start {
    tn_pool *pool;
    int index;
} start;

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t while_it_is)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, while_it_is, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Spins while *word == value, for spin_seconds at most; returns what it saw last. */
static uint32_t spin_while(_Atomic uint32_t *word, uint32_t value)
{
    double end = tn_seconds() + spin_seconds;
    do {
        for (int i = 0; i < SPINS_A_CHECK; i++) {
            uint32_t now = atomic_load_explicit(word, memory_order_acquire);
            if (now != value)
                return now;
            pause_cpu();
        }
    } while (tn_seconds() < end);
    return value;
}

static uint32_t wait_for_job(tn_pool *pool, uint32_t seen)
{
    uint32_t job = spin_while(&pool->job, seen);
    if (job != seen)
        return job;
    atomic_fetch_add(&pool->sleepers, 1);
    while ((job = atomic_load(&pool->job)) == seen)
        futex_wait(&pool->job, seen);
    atomic_fetch_sub(&pool->sleepers, 1);
    return job;
}

static void run_part(const tn_pool *pool, int part)
{
    int64_t share = pool->n / pool->parts, rest = pool->n % pool->parts;
    int64_t begin = share * part + tn_min(part, rest);
    pool->fn(pool->context, begin, begin + share + (part < rest), part);
}

static void *work(void *argument)
{
    start s = *(start *)argument;
    free(argument);
    for (uint32_t job = 0;;) {
        job = wait_for_job(s.pool, job);
        if (s.index >= (int)(job & ((1u << PART_BITS) - 1)))
            continue;
        if (s.pool->stop)
            return NULL;
        run_part(s.pool, s.index);
        if (atomic_fetch_sub(&s.pool->pending, 1) == 1 && atomic_load(&s.pool->waiting))
            futex_wake(&s.pool->pending);
    }
}

static void begin_job(tn_pool *pool, int parts)
{
    uint32_t count = (atomic_load_explicit(&pool->job, memory_order_relaxed) >> PART_BITS) + 1;
    atomic_store(&pool->pending, (uint32_t)parts - 1);
    atomic_store(&pool->job, count << PART_BITS | (uint32_t)parts);
    if (atomic_load(&pool->sleepers))
        futex_wake(&pool->job);
}

static void end_job(tn_pool *pool)
{
    uint32_t left;
    while ((left = atomic_load_explicit(&pool->pending, memory_order_acquire)) != 0) {
        if (spin_while(&pool->pending, left) != left)
            continue;
        atomic_store(&pool->waiting, 1);
        if (atomic_load(&pool->pending) == left)
            futex_wait(&pool->pending, left);
        atomic_store(&pool->waiting, 0);
    }
}

/* A thread that can't be had leaves its share to the others. */
static void start_workers(tn_pool *pool, int wanted)
{
    for (pool->threads = 1; pool->threads < wanted; pool->threads++) {
        start *s = malloc(sizeof *s);
        if (!s)
            return;
        *s = (start){pool, pool->threads};
        if (pthread_create(&pool->worker[pool->threads], NULL, work, s) != 0) {
            free(s);
            return;
        }
    }
}

tn_pool *tn_pool_new(int threads)
{
    tn_pool *pool = aligned_alloc(64, (sizeof *pool + 63) & ~(size_t)63);
    if (!pool)
        return NULL;
    *pool = (tn_pool){.threads = 1};
    pthread_mutex_init(&pool->busy, NULL);
    start_workers(pool, (int)tn_min(threads > 0 ? threads : tn_cpu_count(), MOST_THREADS));
    return pool;
}

void tn_pool_free(tn_pool *pool)
{
    if (!pool)
        return;
    pool->stop = true;
    begin_job(pool, pool->threads);
    for (int i = 1; i < pool->threads; i++)
        pthread_join(pool->worker[i], NULL);
    pthread_mutex_destroy(&pool->busy);
    free(pool);
}

int tn_pool_threads(const tn_pool *pool)
{
    return pool->threads;
}

int tn_pool_run(tn_pool *pool, int64_t n, int threads, tn_pool_fn fn, void *context)
{
    int parts = (int)tn_min(n, tn_min(threads, pool->threads));
    if (parts <= 1 || pthread_mutex_trylock(&pool->busy) != 0) {
        fn(context, 0, n, 0);
        return 1;
    }
    pool->fn = fn, pool->context = context, pool->n = n, pool->parts = parts;
    begin_job(pool, parts);
    run_part(pool, 0);
    end_job(pool);
    pthread_mutex_unlock(&pool->busy);
    return parts;
}
