/* Thread pool: every index once, barriers hold, jobs of changing width, more threads than cores. */
#include "tests/unit.h"

#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/pool.h"
#include "gguf/base/mem.h"

#define N_STEP 200

struct job {
    struct pool *pool;
    atomic_int seen[POOL_MAX];
    atomic_int wrong;
    atomic_int count; /* arrivals in this step */
    int n_last;       /* steps ended by `last`; plain on purpose: the barrier orders it */
    int nth;
};

static void last(void *ctx)
{
    struct job *j = ctx;

    if (atomic_load(&j->count) != j->nth)
        atomic_fetch_add(&j->wrong, 1);
    atomic_store(&j->count, 0);
    j->n_last++;
}

static void steps(void *ctx, int ith, int nth)
{
    struct job *j = ctx;

    if (nth != j->nth)
        atomic_fetch_add(&j->wrong, 1);
    atomic_fetch_add(&j->seen[ith], 1);
    for (int i = 0; i < N_STEP; i++) {
        atomic_fetch_add(&j->count, 1);
        pool_barrier(j->pool, last, j);
        if (j->n_last != i + 1) /* nobody is ahead, and everybody sees what `last` wrote */
            atomic_fetch_add(&j->wrong, 1);
        pool_barrier(j->pool, NULL, NULL);
    }
}

static void run_sizes(int n_threads)
{
    struct job j;
    struct pool *p;

    assert_int_equal(pool_new(&p, n_threads, NULL), ST_OK);
    assert_int_equal(pool_size(p), n_threads);
    for (int round = 0; round < 3; round++)
        for (int n = n_threads; n >= 1; n--) {
            memset(&j, 0, sizeof j);
            j.pool = p;
            j.nth = n;
            pool_run(p, n, steps, &j);
            assert_int_equal(atomic_load(&j.wrong), 0);
            assert_int_equal(j.n_last, N_STEP);
            for (int i = 0; i < n_threads; i++)
                assert_int_equal(atomic_load(&j.seen[i]), i < n);
        }
    pool_free(p);
}

static void test_sizes(void **state)
{
    (void)state;
    run_sizes(1);
    run_sizes(2);
    run_sizes(3);
    run_sizes(9); /* surely more than a test machine likes */
}

static void count(void *ctx, int ith, int nth)
{
    (void)ith;
    (void)nth;
    atomic_fetch_add((atomic_int *)ctx, 1);
}

/* Many short jobs with pauses: workers fall asleep and wake up again. No job allocates. */
static void test_many_jobs(void **state)
{
    atomic_int n = 0;
    struct pool *p;

    (void)state;
    assert_int_equal(pool_new(&p, 3, NULL), ST_OK);
    mem_guard_begin();
    for (int i = 0; i < 2000; i++) {
        pool_run(p, i % 3 + 1, count, &n);
        for (volatile int wait = 0; i % 100 == 0 && wait < 1000000;)
            wait = wait + 1;
    }
    assert_int_equal(mem_guard_end(), 0);
    assert_int_equal(atomic_load(&n), 667 * 1 + 667 * 2 + 666 * 3);
    pool_free(p);
}

static void test_no_memory(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 2; n++) {
        struct pool *p = NULL;
        struct err e = {0};
        mem_fail_at(n);
        assert_int_equal(pool_new(&p, 4, &e), ST_NOMEM);
        mem_fail_at(0);
        assert_null(p);
        assert_int_equal(e.code, ST_NOMEM);
    }
    pool_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_many_jobs),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
