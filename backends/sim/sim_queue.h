/* The queue of a simulated accelerator: jobs that a worker thread does in order. */
#ifndef GGRUN_BACKENDS_SIM_SIM_QUEUE_H
#define GGRUN_BACKENDS_SIM_SIM_QUEUE_H

#include <pthread.h>

#include "backends/backend.h"

/*
 * A mark: `recorded` counts records that were submitted, `happened` those that the queue has reached.
 * Whoever waits, waits for the record that was the last one when it asked.
 */
struct event {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t recorded, happened;
};

/* Wait until record n, or a later one, has happened. */
void event_await(struct event *ev, uint64_t n);

enum job_kind { JOB_SPAN, JOB_COPY, JOB_RECORD, JOB_WAIT };

struct job {
    enum job_kind kind;
    /* JOB_SPAN: nodes and sources with addresses that the worker can use; owned, reused */
    struct span span;
    struct tensor *twins;
    struct tensor **nodes;
    int32_t *uses;
    int cap_twins, cap_nodes, cap_uses;
    void *work;
    size_t n_work;
    /* JOB_COPY */
    void *dst;
    const void *src;
    size_t n;
    /* JOB_RECORD, JOB_WAIT */
    struct event *event;
    uint64_t n_event;
};

/* How many devices compute at one time; shared by those that were opened together. */
struct meter {
    atomic_int users, now, most;
};

#define QUEUE_MAX 64 /* jobs that wait; whoever submits more waits as well */

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t worker;
    struct job jobs[QUEUE_MAX]; /* a ring; slots keep their memory */
    uint64_t n_in, n_done;      /* jobs submitted and done so far */
    bool quit, started;
    struct err err; /* the first error since the last synchronize; code ST_OK: none */
    struct device *cpu; /* computes; owned */
    struct meter *meter; /* freed with its last user */
    uint64_t op_ns;
    double byte_ns;
};

enum status queue_start(struct queue *q, struct err *e);
void queue_stop(struct queue *q); /* does what is left first; of a zeroed one too */
/* The next free slot, to be filled by the only submitter; waits for one. */
struct job *queue_slot(struct queue *q);
void queue_submit(struct queue *q); /* what queue_slot gave last */
enum status queue_wait(struct queue *q, struct err *e);

#endif
