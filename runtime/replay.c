/*
 * Replay: hand the splits of a bound plan to their devices.
 *
 * A device with a queue is given its work and left alone; events keep it apart from the others. The
 * host waits only where it needs bytes itself. What may be in use when something is written:
 *
 *     what                  who uses it                    who waits before it is written
 *     memory of a device    its own queue                  nobody: the queue is in order
 *                           another queue that copies      both ways: the copying queue for the
 *                           into it                        reader (with several slots the host, when
 *                                                          one is begun), the reader for the copy
 *     memory of the host    a queue that copies from it    the host, before a split without a queue
 *                           a queue that copies into it    the host, before it goes on
 *     memory of a device    that device                    the host, before another device runs
 *     without a queue
 *
 * A device has a queue here if it has the functions for it and shares its memory with nobody: else
 * one would have to know who reads what in place.
 */
#include <assert.h>
#include <string.h>
#include <time.h>

#include "gguf/base/log.h"
#include "gguf/base/mem.h"
#include "runtime/exec_impl.h"

#define BIT(d) (UINT64_C(1) << (d))

/* ---- queues ---- */

static bool reads_any(const struct device *d, const struct device *of)
{
    bool any = device_supports_buft(d, of->buft);

    for (int k = 0; k < of->n_more; k++)
        any |= device_supports_buft(d, of->more[k]);
    return any;
}

static bool has_queue(const struct devices *devs, int d)
{
    bool alone = devs->dev[d]->ops->event_new != NULL;

    for (int k = 0; k < devs->n && alone; k++)
        alone = k == d ||
                !(reads_any(devs->dev[k], devs->dev[d]) || reads_any(devs->dev[d], devs->dev[k]));
    return alone;
}

enum status queues_init(struct exec *x, struct err *e)
{
    x->queues = mem_array((size_t)x->devs->n, sizeof *x->queues);
    if (!x->queues)
        return err_nomem(e, "the executor", (size_t)x->devs->n * sizeof *x->queues);
    for (int d = 0; d < x->devs->n && !x->opt.dry; d++) {
        struct device *dev = x->devs->dev[d];
        struct exec_queue *q = &x->queues[d];
        enum status st;

        q->on = has_queue(x->devs, d);
        if (!q->on)
            continue;
        st = dev->ops->event_new(dev, &q->given, e);
        if (!st)
            st = dev->ops->event_new(dev, &q->read, e);
        for (int k = 0; k < x->opt.n_slots && !st; k++)
            st = dev->ops->event_new(dev, &q->end[k], e);
        if (st)
            return st;
    }
    return ST_OK;
}

void queues_release(struct exec *x)
{
    for (int d = 0; x->queues && d < x->devs->n; d++) {
        const struct device_ops *ops = x->devs->dev[d]->ops;
        struct exec_queue *q = &x->queues[d];

        if (q->given)
            ops->event_free(q->given);
        if (q->read)
            ops->event_free(q->read);
        for (int k = 0; k < EXEC_SLOTS_MAX; k++) {
            if (q->end[k])
                ops->event_free(q->end[k]);
        }
    }
    mem_free(x->queues);
}

/* Device d is about to be given work. */
static void give(struct exec *x, const struct plan *p, int d)
{
    x->busy |= BIT(d);
    if (x->queues[d].on)
        x->used[p->pipe] |= BIT(d);
}

/* Wait for all that device d was given. */
static enum status finish(struct exec *x, int d, struct err *e)
{
    if (!(x->busy & BIT(d)))
        return ST_OK;
    x->busy &= ~BIT(d);
    x->reading &= ~BIT(d);
    return device_synchronize(x->devs->dev[d], e);
}

/* Later work of device d waits for all that device `other` was given so far. */
static enum status follow(struct exec *x, int d, int other, struct err *e)
{
    struct device *dev = x->devs->dev[d], *from = x->devs->dev[other];
    enum status st = from->ops->event_record(from, x->queues[other].given, e);

    return st ? st : dev->ops->event_wait(dev, x->queues[other].given, e);
}

/* ---- copies ---- */

/* How a copy's bytes get to where they are needed. */
enum way {
    WAY_HOST, /* by the host, when all else is waited for */
    WAY_SET,  /* the reader's queue fetches them from the host */
    WAY_GET,  /* the owner's queue brings them to the host */
    WAY_COPY, /* the owner's queue brings them to the reader */
};

static enum way way_of(const struct exec *x, const struct plan *p, const struct plan_tensor *c)
{
    const struct plan_tensor *orig = &p->tensors[c->copy_of];
    bool to_queue = x->queues[c->dev].on, from_queue = x->queues[orig->dev].on;

    if (orig->t->buffer->buft->is_host)
        return to_queue ? WAY_SET : WAY_HOST;
    if (!from_queue)
        return WAY_HOST;
    if (c->t->buffer->buft->is_host)
        return WAY_GET;
    return to_queue && x->devs->dev[c->dev]->ops == x->devs->dev[orig->dev]->ops ? WAY_COPY
                                                                                 : WAY_HOST;
}

/* Both have the same layout, so the bytes are copied as they lie. */
static enum status copy_by_host(struct exec *x, const struct tensor *src, struct tensor *dst,
                                struct err *e)
{
    size_t n = tensor_bytes(dst);
    enum status st = ST_OK;

    if (src->buffer->buft->is_host)
        return tensor_set(dst, 0, src->data, n, e);
    if (dst->buffer->buft->is_host)
        return tensor_get(src, 0, dst->data, n, e);
    for (size_t offs = 0; offs < n && !st; offs += x->staging.b.size) {
        size_t part = n - offs < x->staging.b.size ? n - offs : x->staging.b.size;

        st = tensor_get(src, offs, x->staging.b.base, part, e);
        if (!st)
            st = tensor_set(dst, offs, x->staging.b.base, part, e);
    }
    return st;
}

/* ---- experts ---- */

/* Mark the experts that tensor `ids` of the plan names, in the host's memory for it. */
static enum status mark_experts(struct exec *x, struct plan *p, int ids, int64_t n_expert,
                                struct err *e)
{
    const struct plan_tensor *pt = &p->tensors[ids];
    const struct tensor *t = p->tensors[plan_in_pipe(p, ids, p->pipe)].t;
    bool changes = pt->owner < 0 || p->tensors[pt->owner].writer >= 0;
    char *used = x->ids.b.base, *at;
    size_t offs, n = tensor_bytes(t);
    enum status st = ST_OK;

    /* gate, up and down go to the same experts */
    if (x->marked == ids && x->n_marked == n_expert && !changes)
        return ST_OK;
    plan_ids_room(n_expert, t, &offs);
    at = used + offs;
    if (t->buffer->buft->is_host) {
        at = t->data;
    } else {
        st = finish(x, pt->dev, e);
        if (!st)
            st = tensor_get(t, 0, at, n, e);
    }
    if (st)
        return st;
    memset(used, 0, (size_t)n_expert);
    for (int64_t i = 0; i < tensor_n(t); i++) {
        int32_t id;

        memcpy(&id, at + (size_t)(i % t->ne[0]) * t->nb[0] + (size_t)(i / t->ne[0]) * t->nb[1],
               sizeof id);
        if (id >= 0 && id < n_expert)
            used[id] = 1;
    }
    x->marked = ids;
    x->n_marked = n_expert;
    return ST_OK;
}

/* Copy experts [first, last) of a weight on the host. */
static enum status copy_run(struct exec *x, int d, const struct tensor *src, struct tensor *dst,
                            int64_t first, int64_t last, struct err *e)
{
    struct device *dev = x->devs->dev[d];
    size_t offs = (size_t)first * src->nb[2], end = (size_t)last * src->nb[2];
    size_t n = (last < src->ne[2] ? end : tensor_bytes(src)) - offs;
    const char *from = (const char *)src->data + offs;

    x->stats.bytes_copied += n;
    return x->queues[d].on ? dev->ops->set_async(dev, dst, offs, from, n, e)
                           : tensor_set(dst, offs, from, n, e);
}

/* Copy what the ids name: neighbours in one go. */
static enum status copy_experts(struct exec *x, struct plan *p, const struct plan_tensor *c,
                                struct err *e)
{
    const struct tensor *src = p->tensors[c->copy_of].t;
    int64_t n = src->ne[2], first = 0, last;
    enum status st = mark_experts(x, p, c->ids, n, e);
    const char *used = x->ids.b.base;

    x->stats.copies++;
    if (!x->queues[c->dev].on && !st)
        st = finish(x, c->dev, e);
    for (; first < n && !st; first = last) {
        last = first + 1;
        if (!used[first]) {
            x->stats.experts_skipped++;
            continue;
        }
        while (last < n && used[last])
            last++;
        st = copy_run(x, c->dev, src, c->t, first, last, e);
    }
    return st;
}

/* ---- all that a split reads ---- */

/*
 * May its bytes be written before the end of the pipeline slot's replay is waited for? Not those of a
 * weight, nor those that exist once per pipeline slot, but for what ops write into.
 */
static bool will_change(const struct plan *p, int slot)
{
    const struct plan_tensor *pt = &p->tensors[slot];

    return !pt->weight && (pt->twin < 0 || p->tensors[pt->owner].writer >= 0);
}

static enum status copy_tensor(struct exec *x, struct plan *p, int copy, struct err *e)
{
    const struct plan_tensor *c = &p->tensors[copy], *orig = &p->tensors[c->copy_of];
    struct device *from = x->devs->dev[orig->dev], *to = x->devs->dev[c->dev];
    const struct tensor *src = p->tensors[plan_in_pipe(p, c->copy_of, p->pipe)].t;
    struct tensor *dst = p->tensors[plan_in_pipe(p, copy, p->pipe)].t;
    size_t n = tensor_bytes(dst);
    enum status st;

    x->stats.copies++;
    x->stats.bytes_copied += n;
    if (n == 0)
        return ST_OK;
    switch (way_of(x, p, c)) {
    case WAY_SET:
        if (will_change(p, c->copy_of))
            x->reading |= BIT(c->dev);
        return to->ops->set_async(to, dst, 0, src->data, n, e);
    case WAY_GET:
        give(x, p, orig->dev);
        return from->ops->get_async(from, src, 0, dst->data, n, e);
    case WAY_COPY:
        give(x, p, orig->dev);
        return from->ops->copy_async(from, src, dst, e);
    case WAY_HOST:
        break;
    }
    st = finish(x, orig->dev, e);
    if (!st)
        st = finish(x, c->dev, e);
    return st ? st : copy_by_host(x, src, dst, e);
}

/* Devices whose queues bring copies to the split in this way. */
static uint64_t bringers(const struct exec *x, const struct plan *p, const struct plan_split *sp,
                         enum way way)
{
    uint64_t set = 0;

    for (int k = 0; k < sp->n_inputs; k++) {
        const struct plan_tensor *c = &p->tensors[p->inputs[sp->first_input + k]];

        if (way_of(x, p, c) == way)
            set |= BIT(p->tensors[c->copy_of].dev);
    }
    return set;
}

static enum status copy_inputs(struct exec *x, struct plan *p, const struct plan_split *sp,
                               struct err *e)
{
    struct device *dev = x->devs->dev[sp->dev];
    const int32_t *inputs = &p->inputs[sp->first_input];
    uint64_t copy = bringers(x, p, sp, WAY_COPY), get = bringers(x, p, sp, WAY_GET);
    uint64_t reading = x->reading;
    enum status st = ST_OK;

    x->reading &= ~BIT(sp->dev); /* to see whether this split reads */
    /* the device may still use the memory that is written; with twins, exec_begin has waited for it */
    for (int d = 0; d < x->devs->n && !st && p->n_pipe == 1; d++) {
        if (copy & BIT(d))
            st = follow(x, d, sp->dev, e);
    }
    for (int k = 0; k < sp->n_inputs && !st; k++) {
        if (p->tensors[inputs[k]].ids < 0)
            st = copy_tensor(x, p, inputs[k], e);
    }
    if (!st && (x->reading & BIT(sp->dev)))
        st = dev->ops->event_record(dev, x->queues[sp->dev].read, e);
    x->reading |= reading;
    for (int d = 0; d < x->devs->n && !st; d++) {
        if (copy & BIT(d))
            st = follow(x, sp->dev, d, e);
        else if (get & BIT(d))
            st = finish(x, d, e);
    }
    /* now the ids are there that say which experts are needed */
    for (int k = 0; k < sp->n_inputs && !st; k++) {
        if (p->tensors[inputs[k]].ids >= 0)
            st = copy_experts(x, p, &p->tensors[inputs[k]], e);
    }
    return st;
}

/* The same with somebody watching: one by one, each done when the next is asked for. */
static enum status copy_watched(struct exec *x, struct plan *p, int s, const struct replay *r,
                                struct err *e)
{
    const struct plan_split *sp = &p->splits[s];
    enum status st = ST_OK;

    for (int k = 0; k < sp->n_inputs && !st; k++) {
        struct plan_split one = *sp;
        bool filled;

        st = finish(x, sp->dev, e); /* no queue uses the memory that the callback may write */
        filled = !st && r->copy(r->copy_ctx, p, s, k);
        if (st || filled)
            continue;
        one.first_input += k;
        one.n_inputs = 1;
        st = copy_inputs(x, p, &one, e);
        give(x, p, sp->dev);
    }
    return st;
}

/* Until the split may write: see the table above. */
static enum status make_room(struct exec *x, const struct plan_split *sp, struct err *e)
{
    bool queue = x->queues[sp->dev].on;
    enum status st = ST_OK;

    for (int d = 0; d < x->devs->n && !st; d++) {
        if (!x->queues[d].on && (d != sp->dev || sp->n_inputs > 0))
            st = finish(x, d, e);
        else if (!queue && (x->reading & BIT(d)))
            st = x->devs->dev[d]->ops->event_synchronize(x->queues[d].read, e);
    }
    if (!queue)
        x->reading = 0;
    return st;
}

/* ---- work ---- */

static struct span span_at(const struct plan *p, int first, int n, const struct replay *r)
{
    return (struct span){.nodes = &p->run[p->pipe * p->n_run + first],
                         .uses = &p->run_uses[first],
                         .n = n,
                         .n_threads = r->n_threads,
                         .cancel = r->cancel};
}

static int64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* run[first .. first + n) one by one, each with its time. */
static enum status run_logged(struct exec *x, struct plan *p, int d, int first, int n,
                              const struct replay *r, struct err *e)
{
    struct device *dev = x->devs->dev[d];
    enum status st = ST_OK;

    for (int i = first; i < first + n && !st; i++) {
        struct span s = span_at(p, i, 1, r);
        int64_t t = now_ns();

        st = device_compute(dev, &s, x->scratch[d].b.base, x->scratch[d].b.size, e);
        if (!st)
            st = device_synchronize(dev, e);
        log_debug("exec: %s %s %s %s %.1f us", s.nodes[0]->name, op_name(s.nodes[0]->op), dev->name,
                  device_kernel_name(dev, s.nodes[0]), (double)(now_ns() - t) * 1e-3);
    }
    return st;
}

/* Part of a split; uid 0 when it is not all of it. */
static enum status run_part(struct exec *x, struct plan *p, int d, int first, int n, uint64_t uid,
                            const struct replay *r, struct err *e)
{
    struct span s = span_at(p, first, n, r);

    if (n == 0)
        return ST_OK;
    if (x->opt.exec_debug)
        return run_logged(x, p, d, first, n, r, e);
    s.uid = uid;
    return device_compute(x->devs->dev[d], &s, x->scratch[d].b.base, x->scratch[d].b.size, e);
}

/* A split with somebody watching: run up to each node that is asked for, and show it. */
static enum status run_watched(struct exec *x, struct plan *p, const struct plan_split *sp,
                               const struct replay *r, bool *stop, struct err *e)
{
    int done = sp->first_run, next = sp->first_run;
    enum status st;

    for (int i = sp->i_start; i < sp->i_end; i++) {
        struct tensor *t = p->tensors[i].t;

        if (next < sp->first_run + sp->n_run && p->run_slot[next] == i)
            next++;
        else if (t->op == OP_NONE || !(t->flags & TENSOR_COMPUTE))
            continue;
        if (!r->watch(r->watch_ctx, t, true))
            continue;
        st = run_part(x, p, sp->dev, done, next - done, 0, r, e);
        if (!st)
            st = device_synchronize(x->devs->dev[sp->dev], e);
        if (st)
            return st;
        done = next;
        *stop = !r->watch(r->watch_ctx, t, false);
        if (*stop)
            return ST_OK;
    }
    return run_part(x, p, sp->dev, done, next - done, 0, r, e);
}

static enum status run_splits(struct exec *x, struct plan *p, const struct replay *r, struct err *e)
{
    uint64_t uid = p->uid + (uint64_t)p->pipe * (uint64_t)p->n_splits;
    enum status st = ST_OK;
    bool stop = false;

    x->marked = -1;
    for (int s = 0; s < p->n_splits && !st && !stop; s++) {
        const struct plan_split *sp = &p->splits[s];

        if (r->cancel && atomic_load_explicit(r->cancel, memory_order_relaxed))
            return err_set(e, ST_CANCELLED, "stopped");
        st = make_room(x, sp, e);
        give(x, p, sp->dev);
        if (!st)
            st = r->copy ? copy_watched(x, p, s, r, e) : copy_inputs(x, p, sp, e);
        if (st)
            return st;
        give(x, p, sp->dev); /* copies by the host have waited for it */
        if (r->watch)
            st = run_watched(x, p, sp, r, &stop, e);
        else
            st = run_part(x, p, sp->dev, sp->first_run, sp->n_run, uid + (uint64_t)s, r, e);
    }
    return st;
}

/* ---- slots ---- */

enum status exec_wait(struct exec *x, struct err *e)
{
    enum status first = ST_OK;

    for (int d = 0; d < x->devs->n; d++) {
        enum status st = finish(x, d, first ? NULL : e);

        first = first ? first : st;
    }
    memset(x->used, 0, sizeof x->used);
    x->current = NULL;
    return first;
}

static enum status may_run(const struct exec *x, const struct plan *p, struct err *e)
{
    if (x->opt.dry)
        return err_set(e, ST_UNSUPPORTED, "a dry run has no memory to compute in");
    if (!p->bound)
        return err_set(e, ST_NOMEM, "the plan has no memory: planning it, or a larger one, failed");
    assert(p->generation == x->generation);
    return ST_OK;
}

/* Wait for a slot's last replay. */
static enum status wait_slot(struct exec *x, int slot, struct err *e)
{
    enum status st = ST_OK;

    for (int d = 0; d < x->devs->n && !st; d++) {
        if (x->used[slot] & BIT(d))
            st = x->devs->dev[d]->ops->event_synchronize(x->queues[d].end[slot], e);
    }
    x->used[slot] = 0;
    return st;
}

/* Let the graph's inputs, and what shares their bytes, be those of the slot. */
static void point_to_slot(struct plan *p, int slot)
{
    p->pipe = slot;
    for (int i = 0; i < p->n_nodes + p->n_leafs; i++) {
        const struct plan_tensor *pt = &p->tensors[i], *po;

        if (pt->twin < 0)
            continue;
        po = &p->tensors[plan_in_pipe(p, pt->owner, slot)];
        pt->t->buffer = p->chunks[p->bufs[po->buf].first_chunk + po->chunk].buffer;
        pt->t->data = (char *)pt->t->buffer->base + po->offs + pt->view_offs;
    }
}

enum status exec_begin(struct exec *x, struct plan *p, struct err *e)
{
    enum status st = may_run(x, p, e);

    if (!st && (x->opt.n_slots == 1 || x->current != p))
        st = exec_wait(x, e);
    if (!st && x->opt.n_slots > 1) {
        point_to_slot(p, (p->pipe + 1) % x->opt.n_slots);
        st = wait_slot(x, p->pipe, e);
    }
    return st;
}

/* Mark where the slot's replay ends; devices without a queue end here. */
static enum status end_slot(struct exec *x, const struct plan *p, struct err *e)
{
    uint64_t used = x->used[p->pipe];
    enum status st = ST_OK;

    for (int d = 0; d < x->devs->n && !st; d++) {
        struct device *dev = x->devs->dev[d];

        if (!x->queues[d].on)
            st = finish(x, d, e);
        else if (used & BIT(d))
            st = dev->ops->event_record(dev, x->queues[d].end[p->pipe], e);
    }
    return st;
}

enum status exec_submit(struct exec *x, struct plan *p, const struct replay *r, struct err *e)
{
    static const struct replay plain;
    enum status st = may_run(x, p, e);

    if (st)
        return st;
    assert(!x->used[p->pipe]); /* exec_begin, or exec_wait, came before */
    x->current = p;
    st = run_splits(x, p, r ? r : &plain, e);
    if (!st)
        st = end_slot(x, p, e);
    if (st)
        exec_wait(x, NULL);
    x->stats.replays += !st;
    return st;
}

enum status exec_replay(struct exec *x, struct plan *p, const struct replay *r, struct err *e)
{
    enum status st = exec_submit(x, p, r, e);

    return st ? st : exec_wait(x, e);
}
