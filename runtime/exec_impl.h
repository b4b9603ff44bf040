/*
 * Private to exec.c and replay.c: what an exec owns.
 *
 *     bufs[b]     one per distinct buffer type; chunks as in the plans, each a struct buffer that
 *                 stays where it is for the life of the exec, since tensors point to it; only its
 *                 memory is replaced
 *     scratch[d]  work memory of a device
 *     staging     host memory that copies go through when neither side is host memory
 *     queues[d]   events of a device whose work is handed over and not waited for
 *
 * All memory only grows. When it does, every plan that is bound is bound again at once, so that the
 * inputs of its next replay are not written to where they were before.
 */
#ifndef GGRUN_RUNTIME_EXEC_IMPL_H
#define GGRUN_RUNTIME_EXEC_IMPL_H

#include "runtime/exec.h"
#include "runtime/plan.h"

struct exec_chunk {
    struct buffer *b; /* owned */
    size_t reserved;  /* bytes that the reserved plans ask for */
};

struct exec_buf {
    const struct buft *buft;
    char *name;
    struct exec_chunk *chunks; /* [n_chunks] */
    int n_chunks, cap_chunks;
    char largest[TENSOR_NAME]; /* tensor that takes most in any plan so far */
    size_t n_largest;
};

struct exec_scratch {
    struct buffer b;
    char *name;
    size_t reserved;
};

/* A device that is given work through its queue; all others are waited for whenever work moves on. */
struct exec_queue {
    bool on;
    struct event *given; /* other queues wait for it: all that this one was given so far */
    struct event *read;  /* the host waits for it: its memory has been read */
    struct event *end[EXEC_SLOTS_MAX]; /* [n_slots] the host waits for it: a slot's last replay */
};

struct exec {
    const struct devices *devs; /* not owned */
    struct exec_options opt;
    struct exec_buf *bufs; /* [n_bufs] */
    int n_bufs;
    struct exec_scratch *scratch; /* [devs->n] */
    struct exec_scratch staging;  /* on the host */
    struct exec_scratch ids;      /* on the host: which experts a copy takes: plan_ids_room */
    int marked; /* tensor of ids whose experts are marked there, in this replay; -1: none */
    int64_t n_marked; /* experts */
    struct exec_queue *queues; /* [devs->n] */
    uint64_t busy;    /* bit d: device d was given work since it was waited for */
    uint64_t reading; /* bit d: its queue may still read host memory that will be written again */
    uint64_t used[EXEC_SLOTS_MAX]; /* [n_slots] bit d: queue d was given work of this slot */
    const struct plan *current; /* the plan that is in work, if any */
    const struct buffer **own; /* [n_own] all chunks: tensors in these are not external */
    int n_own, cap_own;
    struct plan *trial;     /* of exec_reserve */
    struct plan_link plans; /* all plans but trial */
    uint64_t generation;    /* changes with any address */
    bool is_reserved;
    struct exec_stats stats;
};

/* The events of all devices that have a queue; of a dry exec none. */
enum status queues_init(struct exec *x, struct err *e);
void queues_release(struct exec *x); /* of a half-made exec too */

#endif
