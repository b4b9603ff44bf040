/*
 * Exec: bind a plan to memory and replay it.
 *
 *     graph --plan--> plan --bind--> addresses in tensors --replay--> results, again and again
 *
 * One struct exec owns the compute buffers and scratch of all devices. At start the worst graphs
 * are reserved: planned, and the largest size of each chunk allocated once. Later plans bind into
 * these buffers; only when one needs more, the buffer grows (counted as a regrow), and every bound
 * plan is bound again at once (counted as rebinds), before anybody can write inputs to where they
 * were.
 *
 * exec_replay allocates nothing, hashes nothing and decides nothing.
 */
#ifndef GGRUN_RUNTIME_EXEC_H
#define GGRUN_RUNTIME_EXEC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "gguf/base/status.h"
#include "gguf/base/text.h"
#include "runtime/graph.h"

struct exec;
struct plan; /* runtime/plan.h: the plan as data, can be printed and checked */

/*
 * Called for the nodes of a replay. With ask = true: return true to be called again after this
 * node, with ask = false and its data readable through tensor_get. With ask = false: return false
 * to stop the replay after it (exec_replay then returns ST_OK).
 */
typedef bool exec_watch(void *ctx, const struct tensor *t, bool ask);

struct exec_options {
    int sched_debug;  /* 0; 1: log splits of each new plan; 2: and every node with its cause */
    bool alloc_debug; /* log every allocation, reuse and release of each new plan */
    bool exec_debug;  /* log device, kernel and microseconds of each node (runs them one by one) */
    bool check; /* run the independent checkers on every plan (debug builds and tests: always) */
    bool no_op_offload; /* ops with weights on the CPU stay there, however large the batch */
    bool dry;   /* buffers are descriptions without memory: plans only, replay is refused */
    int n_slots; /* replays that may be in work at one time, 1..EXEC_SLOTS_MAX; 0 = 1 */
};

#define EXEC_SLOTS_MAX 8

enum status exec_new(struct exec **out, const struct devices *devs, const struct exec_options *opt,
                     struct err *e);
void exec_free(struct exec *x); /* plans of it must be freed before */

/*
 * Plan g and remember the largest size of every buffer; exec_reserve_done then allocates them.
 * Failure to fit: ST_NOMEM naming device, bytes wanted and what takes most.
 */
enum status exec_reserve(struct exec *x, const struct graph *g, struct err *e);
enum status exec_reserve_done(struct exec *x, struct err *e);

/*
 * Plan g and bind it. *out is NULL (a new plan is made) or an earlier plan of x, whose memory is
 * reused. Sets data and buffer of g's tensors. The graph and its tensors must live, unchanged,
 * until the plan is planned again or freed: when a buffer grows for another plan, they are bound
 * again at once. On failure *out stays valid for a later call or plan_free, but not for replay.
 * Plans of one exec share its memory: inputs, kept ones and constants too, must be written again
 * after another plan was made or replayed. Waits for all work.
 */
enum status exec_plan(struct exec *x, struct plan **out, struct graph *g, struct err *e);

/*
 * Called before input number `input` of a split is copied to the split's device: copy c =
 * p->inputs[p->splits[split].first_input + input], with the tensor p->tensors[plan_in_pipe(p, c, p->pipe)].t. The
 * inputs before it are there already, and tensor_get reads them; host weights come last, so that what says
 * which part of them is needed comes before. Return true if the callback has filled the copy itself
 * (tensor_set), false to have it copied.
 */
typedef bool exec_copy(void *ctx, const struct plan *p, int split, int input);

struct replay {
    int n_threads;             /* CPU threads; 0 = all */
    /* May be NULL; true = stop soon with ST_CANCELLED. Must live until the work is waited for. */
    const atomic_bool *cancel;
    exec_watch *watch;         /* may be NULL: then nothing is asked and nothing is slower */
    void *watch_ctx;
    exec_copy *copy; /* likewise */
    void *copy_ctx;
};

/* Run the plan and wait for the results. Inputs must have been written with tensor_set before. */
enum status exec_replay(struct exec *x, struct plan *p, const struct replay *r, struct err *e);

/*
 * The same without waiting, so that with several slots the next replay's first devices work while this
 * one's last ones do:
 *
 *     exec_begin     the next slot; waits until its last replay is done, and with one slot, or after
 *                    another plan, for everything. The graph's inputs are then in this slot's memory
 *     tensor_set     of all inputs
 *     exec_submit    hands the work over; results are not there yet
 *     ...            again, any number of times
 *     exec_wait      for everything, before results are read and before constants, kept inputs or
 *                    memory that a graph uses from outside are written or freed
 *
 * Results, like all that is not an input, exist once: they are those of the last replay. What fails in
 * work that was handed over comes back from exec_wait, or from whatever waits for it; after a failure
 * of exec_submit nothing is in work. Planning and exec_free wait for everything.
 */
enum status exec_begin(struct exec *x, struct plan *p, struct err *e);
enum status exec_submit(struct exec *x, struct plan *p, const struct replay *r, struct err *e);
enum status exec_wait(struct exec *x, struct err *e);

/* Bytes of the buffers in a device's memory now (dry: that they would have). A device that works in another's
 * memory, as BLAS does, has scratch alone. */
struct exec_memory {
    uint64_t n_compute, n_scratch;
    uint64_t n_staging; /* host memory, so of the CPU */
};
struct exec_memory exec_memory(const struct exec *x, const struct device *dev);

struct exec_buffer_stat {
    const char *name;     /* "CPU compute", "CPU scratch" */
    uint64_t n_planned;   /* bytes that the reserved plans asked for */
    uint64_t n_allocated; /* bytes of the buffers now (0 when dry) */
};

struct exec_stats {
    uint64_t plans;   /* plans made, reserve included */
    uint64_t regrows; /* buffers grown after reserve */
    uint64_t rebinds; /* plans bound again because a buffer grew */
    uint64_t replays;
    uint64_t copies;    /* tensors copied between devices in all replays */
    uint64_t bytes_copied;    /* of these */
    uint64_t experts_skipped; /* experts of these that the ids did not name: not copied */
    uint64_t sum_nodes; /* of the last plan: bytes of all intermediate tensors, each alone */
    uint64_t peak;      /* of the last plan: bytes its compute buffers need */
    int splits;         /* of the last plan */
    int n_buffers;
    struct exec_buffer_stat buffers[2 * DEVICES_MAX];
};
void exec_stats(const struct exec *x, struct exec_stats *out);

#endif
