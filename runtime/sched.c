/*
 * The five passes; the fifth is in split.c.
 *
 * A tensor's device goes through these states; a decision is only ever replaced by pass 3 (a faster
 * device that works in the same memory, so that nobody else is affected):
 *
 *     undecided --1: a fact--> decided --3: upgrade--> decided
 *         |----2: neighbours--->|
 *         |----3: best or any-->|
 *         |----4: follow------->|
 *         `--- no device can ---> orphan: planning fails and names it
 *
 * Invariants:
 *   1. A decided tensor has a cause, and its device can compute it (`can_take`): the op is supported,
 *      bytes that exist already are in memory that the device can use, and whatever writes into the
 *      tensor later is supported as well.
 *   2. A view is where its owner is; so is an op that writes into a tensor of the graph.
 *   3. The last device is the CPU. It is not spread over nodes that an accelerator can take.
 *   4. Splits cover the nodes in order, without gaps. Only nodes that compute something start a split.
 *   5. A node reads each source in memory that its device can use, or a copy that was made in this
 *      split or an earlier one, and not before the original's last change.
 *   6. The caller's tensors are not touched; a node that reads a copy, or in a pipeline slot a twin, is
 *      run through its shadow.
 *
 * The rules follow from where data is: weights do not move, so ops go to them; the rest is spread
 * so that neighbours share a device, since each change of device costs copies and a wait.
 */
#include "runtime/sched.h"


#include "runtime/check.h"
#include "runtime/split.h"

static struct device *device(const struct plan *p, int d)
{
    return p->devs->dev[d];
}

static bool is_noop(const struct plan_tensor *pt)
{
    return op_info(pt->op)->flags & OPF_VIEW;
}

/* Its place is its owner's (invariant 2), or it has no op: neighbours have no say in it. */
static bool follows(const struct plan *p, int slot)
{
    const struct plan_tensor *pt = &p->tensors[slot];

    return is_noop(pt) || (pt->owner != slot && !pt->external);
}

static bool can_take(const struct plan *p, int slot, int d)
{
    const struct plan_tensor *pt = &p->tensors[slot];

    if (pt->external && !device_supports_buft(device(p, d), plan_buft(p, slot)))
        return false;
    if (!device_supports_op(device(p, d), pt->t))
        return false;
    if (pt->owner != slot)
        return true;
    for (int w = pt->writer; w >= 0; w = p->tensors[w].writer) {
        if (!device_supports_op(device(p, d), p->tensors[w].t))
            return false;
    }
    return true;
}

static void decide(struct plan *p, int slot, int d, enum cause cause)
{
    p->tensors[slot].dev = d;
    p->tensors[slot].cause = cause;
}

/* The first device that can take it, or -1. */
static int first_able(const struct plan *p, int slot)
{
    for (int d = 0; d < p->devs->n; d++) {
        if (can_take(p, slot, d))
            return d;
    }
    return -1;
}

/* ---- pass 1: facts ---- */

/* The first device that reads `src` in place and can take the node, or -1. */
static int reader(const struct plan *p, int slot, int src)
{
    const struct buft *bt = plan_buft(p, src);

    for (int d = 0; d < p->devs->n; d++) {
        if (device_supports_buft(device(p, d), bt) && can_take(p, slot, d))
            return d;
    }
    return -1;
}

static bool follow(struct plan *p, int slot, int d, enum cause cause, int n_src)
{
    if (d < 0)
        return false;
    decide(p, slot, d, cause);
    p->tensors[slot].cause_src = n_src;
    return true;
}

/* The device that reads weight `src` in place, or one that wants the node more. */
static bool follow_weight(struct plan *p, int slot, int n_src, int src)
{
    const struct buft *bt = plan_buft(p, src);
    int d = reader(p, slot, src);

    if (d == p->devs->n - 1 && bt->is_host && !p->no_op_offload) {
        for (int b = 0; b < d; b++) {
            if (can_take(p, slot, b) && device_offload_op(device(p, b), p->tensors[slot].t)) {
                decide(p, slot, b, CAUSE_1_OFF);
                return true;
            }
        }
    }
    return follow(p, slot, d, CAUSE_1_WGT, n_src);
}

/* ROPE's frequencies and the sinks of attention are too small to decide where an op goes. */
static bool small_weights(enum op op)
{
    return op == OP_ROPE || op == OP_FLASH_ATTN || op == OP_SOFT_MAX;
}

/*
 * What stays in memory between runs does not move, so ops go to it. That holds for a KV cache that is
 * on the CPU as well: its share of a step grows with the context, what attention takes and gives does not.
 */
static void fact(struct plan *p, int slot)
{
    struct plan_tensor *pt = &p->tensors[slot];
    int last = p->devs->n - 1;

    if (pt->external) {
        int d = first_able(p, slot);

        if (d >= 0)
            decide(p, slot, d, pt->t->view_src ? CAUSE_1_VSRC : CAUSE_1_DST);
        return;
    }
    if (pt->owner != slot)
        return;
    if (pt->flags & TENSOR_INPUT) {
        if (can_take(p, slot, last))
            decide(p, slot, last, CAUSE_1_INP);
        return;
    }
    for (int j = 0; j < TENSOR_SRC; j++) {
        int src = pt->src[j];

        if (src < 0 || !p->tensors[src].external)
            continue;
        if (!p->tensors[src].weight ? follow(p, slot, reader(p, slot, src), CAUSE_1_MEM, j)
                                    : !small_weights(pt->op) && follow_weight(p, slot, j, src))
            return;
    }
}

static void pass1_facts(struct plan *p)
{
    for (int i = p->n_nodes; i < p->n_tensors; i++)
        fact(p, i);
    for (int i = 0; i < p->n_nodes; i++)
        fact(p, i);
}

/* ---- pass 2: spread ---- */

/* Carry the device of one node on to the undecided ones behind it, in one direction. */
static void sweep(struct plan *p, bool down, bool with_last)
{
    int last = p->devs->n - 1, cur = -1;

    for (int k = 0; k < p->n_nodes; k++) {
        int i = down ? k : p->n_nodes - 1 - k;
        struct plan_tensor *pt = &p->tensors[i];

        if (follows(p, i))
            continue;
        if (pt->dev >= 0)
            cur = with_last || pt->dev != last ? pt->dev : -1;
        else if (cur >= 0 && can_take(p, i, cur))
            decide(p, i, cur, CAUSE_2_SUP);
    }
}

static void pass2_spread(struct plan *p)
{
    sweep(p, true, false);
    sweep(p, false, false);
    sweep(p, true, true);
    sweep(p, false, true);
}

/* ---- pass 3: upgrade and fall back ---- */

/* Source j of the node is where device d can read it; `undecided` is the answer while nobody knows. */
static bool reads(const struct plan *p, int src, int d, bool undecided)
{
    const struct buft *bt = plan_buft(p, src);

    return bt ? device_supports_buft(device(p, d), bt) : undecided;
}

static void upgrade(struct plan *p, int slot)
{
    const struct plan_tensor *pt = &p->tensors[slot];

    for (int d = 0; d < pt->dev; d++) {
        bool all = device(p, d)->buft == device(p, pt->dev)->buft && can_take(p, slot, d);

        for (int j = 0; j < TENSOR_SRC && all; j++)
            all = pt->src[j] < 0 || reads(p, pt->src[j], d, true);
        if (all) {
            decide(p, slot, d, CAUSE_3_UPG);
            return;
        }
    }
}

static void fall_back(struct plan *p, int slot)
{
    const struct plan_tensor *pt = &p->tensors[slot];
    int best = -1, n_best = -1;

    for (int d = 0; d < p->devs->n; d++) {
        int n = 0;

        if (!can_take(p, slot, d))
            continue;
        for (int j = 0; j < TENSOR_SRC; j++)
            n += pt->src[j] >= 0 && reads(p, pt->src[j], d, false);
        if (n > n_best) {
            best = d;
            n_best = n;
        }
    }
    if (best >= 0)
        decide(p, slot, best, n_best > 0 ? CAUSE_3_BEST : CAUSE_3_ANY);
}

static void pass3_upgrade(struct plan *p)
{
    for (int i = 0; i < p->n_nodes; i++) {
        if (follows(p, i))
            continue;
        if (p->tensors[i].dev >= 0)
            upgrade(p, i);
        else
            fall_back(p, i);
    }
}

/* ---- pass 4: follow ---- */

static void pass4_follow(struct plan *p)
{
    for (int i = 0; i < p->n_nodes; i++) {
        int d = p->tensors[i].dev;

        for (int j = 0; j < TENSOR_SRC && d >= 0 && !follows(p, i); j++) {
            int src = p->tensors[i].src[j];
            int o = src < 0 ? -1 : p->tensors[src].owner;

            if (o >= 0 && p->tensors[o].dev < 0 && can_take(p, o, d))
                decide(p, o, d, CAUSE_4_CUR);
        }
    }
    for (int i = 0; i < p->n_tensors; i++) {
        const struct plan_tensor *pt = &p->tensors[i];
        int d;

        /* an op that nobody supports stays undecided; so does what is in memory that nobody can use */
        if (pt->dev >= 0 || pt->owner != i || !is_noop(pt))
            continue;
        d = first_able(p, i);
        if (d >= 0)
            decide(p, i, d, CAUSE_4_ANY);
    }
    for (int i = 0; i < p->n_tensors; i++) {
        const struct plan_tensor *pt = &p->tensors[i];

        if (pt->dev < 0 && pt->owner >= 0 && pt->owner != i && p->tensors[pt->owner].dev >= 0 &&
            can_take(p, i, p->tensors[pt->owner].dev))
            decide(p, i, p->tensors[pt->owner].dev, CAUSE_4_VSRC);
    }
    for (int i = 0; i < p->n_tensors && p->orphan < 0; i++) {
        if (p->tensors[i].dev < 0)
            p->orphan = i;
    }
}

static enum status promise(const struct plan *p, const struct graph *g, int pass, struct err *e)
{
    return p->check ? check_pass(p, g, pass, e) : ST_OK;
}

static enum status no_device(const struct plan *p, struct err *e)
{
    const struct plan_tensor *pt = &p->tensors[p->orphan];

    if (is_noop(pt))
        return err_set(e, ST_UNSUPPORTED, "no device can use '%s' in memory of type '%s'",
                       pt->t->name, pt->external ? plan_buft(p, p->orphan)->name : "none");
    return err_set(e, ST_UNSUPPORTED, "no device can compute '%s' (%s, %s)", pt->t->name,
                   op_name(pt->op),
                   dtype_name(pt->src[0] >= 0 ? p->tensors[pt->src[0]].type : pt->type));
}

enum status sched_plan(struct plan *p, const struct graph *g, struct err *e)
{
    enum status st = plan_enter(p, g, e);

    if (st)
        return st;
    pass1_facts(p); /* then: whatever has a home has a device and a cause */
    st = promise(p, g, 1, e);
    if (st)
        return st;
    pass2_spread(p); /* then: no undecided node could share the device of a neighbour */
    st = promise(p, g, 2, e);
    if (st)
        return st;
    pass3_upgrade(p); /* then: nothing could run on a faster device in the same memory */
    st = promise(p, g, 3, e);
    if (st)
        return st;
    pass4_follow(p); /* then: every tensor has a device, or p->orphan names the first without */
    st = promise(p, g, 4, e);
    if (st)
        return st;
    if (p->orphan >= 0)
        return no_device(p, e);
    st = split_graph(p, e); /* then: splits cover the graph in order and list their copies */
    return st ? st : promise(p, g, 5, e);
}
