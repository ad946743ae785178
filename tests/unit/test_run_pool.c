/* The worker pool: every part exactly once, whoever asks, asleep or awake. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "run/run.h"
#include "unit.h"

enum { MOST = 1000 };
typedef struct counts {
    atomic_int of[MOST];
    atomic_int calls;
} counts;

static void count(void *context, int64_t begin, int64_t end, int worker)
{
    counts *c = context;
    (void)worker;
    atomic_fetch_add(&c->calls, 1);
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add(&c->of[i], 1);
}

static void check_job(tn_pool *pool, int64_t n, int threads)
{
    counts c = {0};
    int used = tn_pool_run(pool, n, threads, count, &c);
    assert_true(used >= 1 && used <= threads);
    assert_true(atomic_load(&c.calls) <= used);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(atomic_load(&c.of[i]), 1);
}

static void every_index_once(void **state)
{
    (void)state;
    tn_pool *pool = tn_pool_new(4);
    assert_int_equal(tn_pool_threads(pool), 4);
    for (int64_t n = 0; n <= MOST; n += n < 20 ? 1 : 77)
        for (int threads = 1; threads <= 5; threads++)
            check_job(pool, n, threads);
    tn_pool_free(pool);
}

/* Longer than the workers spin: they sleep and must be woken. */
static void sleepers_wake(void **state)
{
    (void)state;
    tn_pool *pool = tn_pool_new(3);
    for (int i = 0; i < 20; i++) {
        usleep(1000 * (unsigned)(i % 3));
        check_job(pool, 100, 3);
    }
    tn_pool_free(pool);
}

static void *hammer(void *argument)
{
    for (int i = 0; i < 300; i++)
        check_job(argument, 50 + i % 7, 4);
    return NULL;
}

/* Who finds the pool busy does its work alone. */
static void several_callers_share_it(void **state)
{
    (void)state;
    tn_pool *pool = tn_pool_new(3);
    pthread_t callers[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&callers[i], NULL, hammer, pool), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(callers[i], NULL);
    tn_pool_free(pool);
}

static void a_pool_may_be_unused(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        tn_pool_free(tn_pool_new(4));
    tn_pool_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_index_once), cmocka_unit_test(sleepers_wake), cmocka_unit_test(several_callers_share_it),
                                       cmocka_unit_test(a_pool_may_be_unused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
