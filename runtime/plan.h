/*
 * The plan as data: who computes each node and why, what is copied where, and where every byte
 * lives.
 *
 *     plan_enter     table of tensors          (plan.c)
 *     sched_plan     devices, splits, copies   (sched.c)
 *     alloc_plan     addresses                 (alloc.c)
 *     exec           binds and replays it      (exec.c)
 *
 * Tensors are known by slot: nodes 0..n_nodes, then leafs, then the plan's own copies and twins.
 * After plan_enter nothing looks a tensor up in a hash again. The graph is never changed by
 * planning: a node that reads a copy has a shadow, a second struct tensor in the plan whose src[]
 * names the copy; shadows and copies get their data when the plan is bound.
 *
 * With n_pipe > 1 pipeline slots, a replay may begin while earlier ones are in work in other
 * pipeline slots. So that it disturbs none of them, what is written from outside of a device's own
 * order of work exists once per pipeline slot: inputs, with their views and what writes into them,
 * and copies, less those of host weights. In pipeline slot 0 they are the tensor itself, in the
 * others its twins. A node that reads or writes a twin has a shadow for that pipeline slot. All
 * other memory is used by one device after the other, replay after replay.
 *
 * A plan's arrays only grow and are used again by the next planning.
 */
#ifndef GGRUN_RUNTIME_PLAN_H
#define GGRUN_RUNTIME_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/backend.h"
#include "gguf/base/status.h"
#include "gguf/base/text.h"
#include "runtime/graph.h"

/* Why a tensor is on its device. The number is the pass of the scheduler that decided. */
enum cause {
    CAUSE_NONE,
    CAUSE_1_DST,  /* its own bytes exist already */
    CAUSE_1_VSRC, /* the bytes that it is a view of exist already */
    CAUSE_1_INP,  /* an input: written by the host, so on the last device */
    CAUSE_1_WGT,  /* source N is a weight on this device */
    CAUSE_1_MEM,  /* source N is memory that stays between runs here: KV cache, recurrent state */
    CAUSE_1_OFF,  /* the weight is in host memory, but this device wants the op */
    CAUSE_2_SUP,  /* a neighbour is here, and the op is supported */
    CAUSE_3_UPG,  /* a faster device with the same memory */
    CAUSE_3_BEST, /* can read most of the sources */
    CAUSE_3_ANY,  /* the first that can compute it */
    CAUSE_4_VSRC, /* where its view source is */
    CAUSE_4_CUR,  /* where its consumer is */
    CAUSE_4_ANY,  /* nobody minds */
};
/* "1.dst", "1.wgt0", ...; writes to out when a number has to be added. */
const char *cause_name(enum cause c, int n_src, char out[16]);

struct plan_tensor {
    struct tensor *t;        /* the graph's, or for copies the plan's own */
    int32_t src[TENSOR_SRC]; /* slots of what is really read (copies included), -1 = none */
    int32_t owner; /* slot that owns the bytes (maybe itself); -1: an owner outside the graph */
    int32_t dev;   /* index into devices; -1 = undecided */
    enum cause cause;
    int32_t cause_src; /* N of CAUSE_1_WGT and CAUSE_1_MEM */
    int32_t uses;      /* as counted by the graph */
    int32_t writer;    /* of an owner: first op that writes into it; of such an op: the next; -1 */
    int32_t copy_of;   /* of a copy: the original; else -1 */
    int32_t newest_copy; /* of an original: its newest copy; of a copy: the older one; -1 */
    int32_t split;       /* of a copy: the split that makes it */
    int32_t ids;         /* of a copy of experts: what says which are needed; -1: copy everything */
    int32_t twin;        /* the first of its n_pipe - 1 twins, one after the other; -1: has none */
    int32_t twin_of;     /* of a twin: the tensor in pipeline slot 0; else -1 */
    bool external;       /* the bytes exist already and are none of the allocator's business */
    bool weight;         /* external, in a USAGE_WEIGHTS buffer */

    /* Address table. buf is -1 for views and external tensors. */
    int32_t buf;   /* index into bufs */
    int32_t chunk; /* of that buffer */
    size_t offs;   /* bytes from the chunk's start */
    size_t size;   /* bytes reserved, a multiple of the alignment */

    /* The structure, as it was when planned: plan_equal must not look at a graph that is gone. */
    enum op op;
    enum dtype type;
    uint32_t flags;
    int64_t ne[TENSOR_DIMS];
    size_t nb[TENSOR_DIMS];
    size_t view_offs;
};

struct plan_split {
    int dev;
    int i_start, i_end;        /* nodes [i_start, i_end) of the graph */
    int first_input, n_inputs; /* in inputs[]: copies to make before it starts, host weights last */
    int first_run, n_run;      /* in run[]: what is really computed */
};

struct plan_chunk {
    size_t size;           /* bytes */
    struct buffer *buffer; /* NULL until bound; owned by exec */
};

/* One per distinct buffer type among the devices. */
struct plan_buf {
    const struct buft *buft;
    int first_chunk, n_chunks; /* in chunks[] */
    size_t size;               /* sum of its chunks */
    size_t least;              /* no plan can need less: largest sum of what lives at one time */
    int largest;               /* slot of its largest tensor, -1 if it has none */
};

struct plan_dev {
    int buf;        /* where its results live */
    size_t scratch; /* bytes of work memory: the largest of its nodes */
};

struct plan_link {
    struct plan_link *prev, *next;
};

struct plan {
    const struct devices *devs; /* not owned */
    struct plan_dev *dev;       /* [devs->n] */
    struct plan_buf *bufs;      /* [n_bufs] */
    int n_bufs;

    struct plan_tensor *tensors; /* [n_tensors]: nodes, leafs, copies, twins */
    int n_nodes, n_leafs, n_tensors;
    struct plan_split *splits; /* [n_splits] */
    int n_splits;
    int32_t *inputs; /* [n_inputs] slots of copies */
    int n_inputs;
    int32_t *run_slot;   /* [n_run] slots of the nodes that are computed, in order */
    struct tensor **run; /* [n_pipe][n_run] these nodes or their shadows: what a backend is given */
    int32_t *run_uses;   /* [n_run] consumers of each in the whole graph */
    int n_run;
    struct tensor *own; /* [n_own] copies and twins, then shadows */
    int32_t *shadow_of; /* [n_shadows] index into run */
    int n_own, n_shadows;
    struct plan_chunk *chunks; /* [n_chunks] */
    int n_chunks;

    int32_t orphan;   /* slot of the first tensor that no device can take, or -1 */
    size_t sum_nodes; /* bytes of all intermediate results, each alone */
    size_t peak;      /* bytes of all chunks */
    size_t least;     /* sum of the buffers' least sizes */
    size_t n_staging; /* bytes to copy through where neither side is host memory */
    size_t n_ids;     /* bytes of plan_ids_room for the copies of experts, at most */

    /* Settings of the one who plans. */
    const struct buffer *const
        *own_buffers; /* [n_own_buffers] of exec: tensors in these are not external */
    int n_own_buffers;
    int n_pipe; /* pipeline slots, at least 1 */
    bool check; /* verify what each pass promises */
    bool no_op_offload; /* host weights are never copied for the sake of an op */

    /* Binding; kept by exec. */
    struct plan_link link;     /* among the plans of an exec */
    const struct graph *graph; /* not owned */
    int pipe;                  /* pipeline slot that the graph's inputs point to */
    uint64_t uid;              /* of the first split's span; a new range at each bind */
    uint64_t generation;       /* of exec's memory, when this was bound */
    bool bound;                /* may be replayed */

    /* Capacities of the arrays above. */
    int cap_tensors, cap_splits, cap_inputs, cap_run_slot, cap_run, cap_run_uses, cap_own,
        cap_shadow_of, cap_chunks;
};

enum status plan_new(struct plan **out, const struct devices *devs, struct err *e);
void plan_free(struct plan *p);

/* Start a plan of g: fill the table of nodes and leafs. What was planned before is gone. */
enum status plan_enter(struct plan *p, const struct graph *g, struct err *e);

/* Slot of a node or leaf; -1 for strangers. */
int plan_slot(const struct plan *p, const struct graph *g, const struct tensor *t);

/* The allocator places it: not a view, and its bytes do not exist yet. */
static inline bool plan_places(const struct plan *p, int slot)
{
    return p->tensors[slot].owner == slot && !p->tensors[slot].external;
}
/* A node that splits and devices are about: not a view, and really computed. */
static inline bool plan_computes(const struct plan_tensor *pt)
{
    return !(op_info(pt->op)->flags & OPF_VIEW) && (pt->flags & TENSOR_COMPUTE);
}
/* What tensor `slot` is in a pipeline slot: itself or a twin. */
static inline int plan_in_pipe(const struct plan *p, int slot, int pipe)
{
    int twin = p->tensors[slot].twin;

    return pipe == 0 || twin < 0 ? slot : twin + pipe - 1;
}
/* Host memory to copy `n_expert` experts by the ids of tensor `ids`: a mark per expert, then the ids. */
static inline size_t plan_ids_room(int64_t n_expert, const struct tensor *ids, size_t *at)
{
    *at = ((size_t)n_expert + 63) / 64 * 64;
    return *at + tensor_bytes(ids);
}
/* Where the bytes of a tensor are (or will be), NULL while its device is undecided. */
const struct buft *plan_buft(const struct plan *p, int slot);

/*
 * level 1: a line per split and per buffer. level 2: also a line per node:
 *     index name OP [ne] type device cause bytes
 */
void plan_print(const struct plan *p, int level, struct text *out);
void plan_print_splits(const struct plan *p, int level, struct text *out); /* these lines alone */

/*
 * Same structure: ops, shapes, sources, views, flags, devices and what is external agree node by
 * node, leafs included, so that one plan's splits and addresses are right for the other's graph.
 */
bool plan_equal(const struct plan *a, const struct plan *b);

#endif
