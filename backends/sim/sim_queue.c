#include "backends/sim/sim_queue.h"

#include <string.h>
#include <time.h>

#include "gguf/base/mem.h"

static void delay(double ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1e9)};

    t.tv_nsec = (long)(ns - (double)t.tv_sec * 1e9);
    if (ns >= 1)
        nanosleep(&t, NULL);
}

static void event_reach(struct event *ev, uint64_t n)
{
    pthread_mutex_lock(&ev->lock);
    if (n > ev->happened)
        ev->happened = n;
    pthread_cond_broadcast(&ev->changed);
    pthread_mutex_unlock(&ev->lock);
}

void event_await(struct event *ev, uint64_t n)
{
    pthread_mutex_lock(&ev->lock);
    while (ev->happened < n)
        pthread_cond_wait(&ev->changed, &ev->lock);
    pthread_mutex_unlock(&ev->lock);
}

static enum status compute(struct queue *q, const struct job *j, struct err *e)
{
    int now = atomic_fetch_add(&q->meter->now, 1) + 1, most = atomic_load(&q->meter->most);
    enum status st;

    while (now > most && !atomic_compare_exchange_weak(&q->meter->most, &most, now))
        ;
    delay((double)q->op_ns * j->span.n);
    st = device_compute(q->cpu, &j->span, j->work, j->n_work, e);
    atomic_fetch_sub(&q->meter->now, 1);
    return st;
}

/* After an error work is skipped, but not events: others may wait for them. */
static enum status do_job(struct queue *q, struct job *j, bool skip, struct err *e)
{
    switch (j->kind) {
    case JOB_SPAN:
        return skip ? ST_OK : compute(q, j, e);
    case JOB_COPY:
        if (skip)
            return ST_OK;
        delay(q->byte_ns * (double)j->n);
        memcpy(j->dst, j->src, j->n);
        return ST_OK;
    case JOB_RECORD:
        event_reach(j->event, j->n_event);
        return ST_OK;
    case JOB_WAIT:
        event_await(j->event, j->n_event);
        return ST_OK;
    }
    return ST_OK;
}

static void *work(void *arg)
{
    struct queue *q = arg;

    pthread_mutex_lock(&q->lock);
    for (;;) {
        struct err err = {0};
        enum status st;
        bool skip;

        while (q->n_done == q->n_in && !q->quit)
            pthread_cond_wait(&q->changed, &q->lock);
        if (q->n_done == q->n_in)
            break;
        skip = q->err.code != ST_OK;
        pthread_mutex_unlock(&q->lock);
        st = do_job(q, &q->jobs[q->n_done % QUEUE_MAX], skip, &err);
        pthread_mutex_lock(&q->lock);
        if (st && !q->err.code)
            q->err = err;
        q->n_done++;
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

enum status queue_start(struct queue *q, struct err *e)
{
    if (pthread_mutex_init(&q->lock, NULL))
        return err_set(e, ST_DEVICE, "a simulated device cannot make a lock");
    if (pthread_cond_init(&q->changed, NULL)) {
        pthread_mutex_destroy(&q->lock);
        return err_set(e, ST_DEVICE, "a simulated device cannot make a condition");
    }
    if (pthread_create(&q->worker, NULL, work, q)) {
        pthread_cond_destroy(&q->changed);
        pthread_mutex_destroy(&q->lock);
        return err_set(e, ST_DEVICE, "a simulated device cannot start its thread");
    }
    q->started = true;
    return ST_OK;
}

void queue_stop(struct queue *q)
{
    if (q->started) {
        pthread_mutex_lock(&q->lock);
        q->quit = true;
        pthread_cond_broadcast(&q->changed);
        pthread_mutex_unlock(&q->lock);
        pthread_join(q->worker, NULL);
        pthread_cond_destroy(&q->changed);
        pthread_mutex_destroy(&q->lock);
    }
    for (int i = 0; i < QUEUE_MAX; i++) {
        mem_free(q->jobs[i].twins);
        mem_free(q->jobs[i].nodes);
        mem_free(q->jobs[i].uses);
    }
    if (q->cpu)
        q->cpu->ops->free(q->cpu);
    if (q->meter && atomic_fetch_sub(&q->meter->users, 1) == 1)
        mem_free(q->meter);
}

struct job *queue_slot(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    while (q->n_in - q->n_done == QUEUE_MAX)
        pthread_cond_wait(&q->changed, &q->lock);
    pthread_mutex_unlock(&q->lock);
    return &q->jobs[q->n_in % QUEUE_MAX];
}

void queue_submit(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->n_in++;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

enum status queue_wait(struct queue *q, struct err *e)
{
    struct err err;

    pthread_mutex_lock(&q->lock);
    while (q->n_done < q->n_in)
        pthread_cond_wait(&q->changed, &q->lock);
    err = q->err;
    q->err.code = ST_OK;
    pthread_mutex_unlock(&q->lock);
    if (err.code && e)
        *e = err;
    return err.code;
}
