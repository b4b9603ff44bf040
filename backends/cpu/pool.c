/*
 * Two words are waited on: `job` (a new job, or the end) and `phase` (everybody is at the barrier).
 *
 *   caller:  fn, ctx -> next job -> fn(0) -> barrier
 *   worker:  wait for job -> its index < threads of the job? fn(i) -> barrier -> wait for job
 *
 * `job` holds number << 16 | threads that take part: one word, so that a late sleeper never mixes
 * two jobs.
 *
 * A waiter spins, then sleeps on `cond`. A waker changes the word first and looks for sleepers
 * afterwards; a sleeper counts itself first and looks at the word afterwards (both sequentially
 * consistent): one of them sees the other.
 */
#include "backends/cpu/pool.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "backends/backend.h"
#include "gguf/base/mem.h"

/*
 * Rounds of some 40 cycles to spin before sleeping. A sleep and a wake-up cost more than most waits
 * at a barrier; but where other processes run, the thread waited for may not be running, and each
 * spin takes its time away. So the budget adapts: a wait that spinning ended raises it, one that
 * slept halves it.
 */
#define SPINS_MIN 64
#define SPINS_MAX 2000

struct worker {
    struct pool *pool;
    pthread_t thread;
    int index;
};

struct pool {
    int n;                  /* threads, caller included */
    int n_started;          /* workers that exist, at most n - 1 */
    bool may_spin;          /* no more threads than cores */
    atomic_int n_spins;     /* budget; races between its writers do not matter */
    struct worker *workers; /* [n - 1] */
    pthread_mutex_t lock;
    pthread_cond_t cond;
    atomic_int n_sleepers;
    bool quit; /* read by workers after a change of job */

    _Alignas(64) atomic_uint_least64_t job;
    pool_fn *fn;
    void *ctx;
    int n_job;

    _Alignas(64) atomic_uint_least64_t phase;
    _Alignas(64) atomic_int n_arrived;
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Spin until *word is not `old`, for the budget at most; false when it is used up. */
static bool spin(struct pool *p, atomic_uint_least64_t *word, uint64_t old, uint64_t *now)
{
    int budget = atomic_load_explicit(&p->n_spins, memory_order_relaxed);
    int more = budget + budget / 8 + 1;

    if (!p->may_spin)
        return false;
    for (int i = 0; i < budget; i++) {
        *now = atomic_load_explicit(word, memory_order_acquire);
        if (*now != old) {
            if (more <= SPINS_MAX)
                atomic_store_explicit(&p->n_spins, more, memory_order_relaxed);
            return true;
        }
        relax();
    }
    if (budget / 2 >= SPINS_MIN)
        atomic_store_explicit(&p->n_spins, budget / 2, memory_order_relaxed);
    return false;
}

/* Wait until *word is not `old`; returns what it is. */
static uint64_t wait_change(struct pool *p, atomic_uint_least64_t *word, uint64_t old)
{
    uint64_t now;

    if (spin(p, word, old, &now))
        return now;
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->n_sleepers, 1);
    while ((now = atomic_load(word)) == old)
        pthread_cond_wait(&p->cond, &p->lock);
    atomic_fetch_sub(&p->n_sleepers, 1);
    pthread_mutex_unlock(&p->lock);
    return now;
}

static void change(struct pool *p, atomic_uint_least64_t *word, uint64_t value)
{
    atomic_store(word, value);
    if (atomic_load(&p->n_sleepers) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->cond);
        pthread_mutex_unlock(&p->lock);
    }
}

void pool_barrier(struct pool *p, void (*last)(void *ctx), void *ctx)
{
    /* Both before arriving: afterwards the others may be in the next job. */
    uint64_t phase = atomic_load_explicit(&p->phase, memory_order_relaxed);
    int n_job = p->n_job;

    if (atomic_fetch_add(&p->n_arrived, 1) + 1 < n_job) {
        wait_change(p, &p->phase, phase);
        return;
    }
    atomic_store_explicit(&p->n_arrived, 0, memory_order_relaxed);
    if (last)
        last(ctx);
    change(p, &p->phase, phase + 1);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    uint64_t job = 0;

    for (;;) {
        job = wait_change(p, &p->job, job);
        if (p->quit)
            return NULL;
        if (w->index >= (int)(job & 0xffff))
            continue;
        p->fn(p->ctx, w->index, p->n_job);
        pool_barrier(p, NULL, NULL);
    }
}

void pool_run(struct pool *p, int n, pool_fn *fn, void *ctx)
{
    uint64_t number = (atomic_load_explicit(&p->job, memory_order_relaxed) >> 16) + 1;

    assert(n >= 1 && n <= p->n);
    p->fn = fn;
    p->ctx = ctx;
    p->n_job = n;
    if (n > 1)
        change(p, &p->job, number << 16 | (uint64_t)n);
    fn(ctx, 0, n);
    pool_barrier(p, NULL, NULL);
}

int pool_size(const struct pool *p)
{
    return p->n;
}

/* Workers take no signals: an interrupt belongs to the thread that knows what to do with it. */
static enum status start_workers(struct pool *p, struct err *e)
{
    sigset_t all, old;
    int rc = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (int i = 0; i < p->n - 1 && !rc; i++) {
        p->workers[i] = (struct worker){.pool = p, .index = i + 1};
        rc = pthread_create(&p->workers[i].thread, NULL, work, &p->workers[i]);
        p->n_started += !rc;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc)
        return err_set(e, ST_DEVICE, "cannot start thread %d of %d: %s; try fewer with --threads",
                       p->n_started + 2, p->n, strerror(rc));
    return ST_OK;
}

enum status pool_new(struct pool **out, int n_threads, struct err *e)
{
    struct pool *p = mem_aligned(sizeof *p);
    enum status st;

    *out = NULL;
    assert(n_threads >= 1 && n_threads <= POOL_MAX);
    if (!p)
        return err_nomem(e, "thread pool", sizeof *p);
    memset(p, 0, sizeof *p);
    p->n = n_threads;
    p->n_job = 1;
    p->may_spin = n_threads <= usable_cores();
    p->n_spins = SPINS_MAX;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->cond, NULL);
    p->workers = mem_array((size_t)n_threads, sizeof *p->workers);
    if (!p->workers)
        st = err_nomem(e, "thread pool", (size_t)n_threads * sizeof *p->workers);
    else
        st = start_workers(p, e);
    if (st) {
        pool_free(p);
        return st;
    }
    *out = p;
    return ST_OK;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    p->quit = true;
    change(p, &p->job, ((atomic_load(&p->job) >> 16) + 1) << 16);
    for (int i = 0; i < p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    mem_free(p->workers);
    pthread_cond_destroy(&p->cond);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}
