/*
 * Thread pool: n threads that exist from pool_new to pool_free; the caller of pool_run is thread 0. A
 * job runs one function on the first n of them and ends when all are through. Running it allocates
 * nothing. Waiting spins for some microseconds, less where that does not help, and then sleeps; with
 * more threads than usable cores it sleeps at once, so that asking for too many costs little.
 */
#ifndef GGRUN_BACKENDS_CPU_POOL_H
#define GGRUN_BACKENDS_CPU_POOL_H

#include "gguf/base/status.h"

#define POOL_MAX 512 /* threads */

struct pool;

/* 1 <= n_threads <= POOL_MAX, the caller included. A thread that cannot be made is ST_DEVICE. */
enum status pool_new(struct pool **out, int n_threads, struct err *e);
void pool_free(struct pool *p); /* NULL is fine; no job may be running */
int pool_size(const struct pool *p);

/*
 * fn(ctx, i, n) on threads i = 0..n-1, 1 <= n <= pool_size. One job at a time; not from within a
 * job.
 */
typedef void pool_fn(void *ctx, int ith, int nth);
void pool_run(struct pool *p, int n, pool_fn *fn, void *ctx);

/*
 * Within a job: wait until all its threads are here. The last one to come calls last(ctx) (NULL:
 * nothing) before anyone goes on: what it writes there all others see.
 */
void pool_barrier(struct pool *p, void (*last)(void *ctx), void *ctx);

#endif
