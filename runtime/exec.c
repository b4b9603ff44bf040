#include "runtime/exec.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "gguf/base/log.h"
#include "gguf/base/mem.h"
#include "runtime/alloc.h"
#include "runtime/check.h"
#include "runtime/exec_impl.h"
#include "runtime/sched.h"

static struct plan *plan_of(struct plan_link *l)
{
    return (struct plan *)((char *)l - offsetof(struct plan, link));
}

/* ---- life ---- */

static char *join(const char *a, const char *b)
{
    size_t n_a = strlen(a), n_b = strlen(b);
    char *s = mem_alloc(n_a + n_b + 1);

    if (s) {
        memcpy(s, a, n_a);
        memcpy(s + n_a, b, n_b + 1);
    }
    return s;
}

static bool name_buffers(struct exec *x)
{
    for (int b = 0; b < x->n_bufs; b++) {
        x->bufs[b].buft = x->trial->bufs[b].buft;
        x->bufs[b].name = join(x->bufs[b].buft->name, " compute");
        if (!x->bufs[b].name)
            return false;
    }
    for (int d = 0; d < x->devs->n; d++) {
        x->scratch[d].name = join(x->devs->dev[d]->name, " scratch");
        if (!x->scratch[d].name)
            return false;
    }
    return true;
}

enum status exec_new(struct exec **out, const struct devices *devs, const struct exec_options *opt,
                     struct err *e)
{
    struct exec *x = mem_zalloc(sizeof *x);
    enum status st;

    *out = NULL;
    if (!x)
        return err_nomem(e, "the executor", sizeof *x);
    x->devs = devs;
    if (opt)
        x->opt = *opt;
    if (!x->opt.n_slots)
        x->opt.n_slots = 1;
#if !defined(NDEBUG) && !defined(__OPTIMIZE__)
    x->opt.check = true;
#endif
    x->plans.prev = x->plans.next = &x->plans;
    if (x->opt.n_slots < 1 || x->opt.n_slots > EXEC_SLOTS_MAX) {
        st = err_set(e, ST_USAGE, "%d slots are wanted, expected 1 to %d", x->opt.n_slots,
                     EXEC_SLOTS_MAX);
        goto fail;
    }
    st = plan_new(&x->trial, devs, e);
    if (st)
        goto fail;
    x->n_bufs = x->trial->n_bufs;
    x->bufs = mem_array((size_t)x->n_bufs, sizeof *x->bufs);
    x->scratch = mem_array((size_t)devs->n, sizeof *x->scratch);
    if (!x->bufs || !x->scratch || !name_buffers(x)) {
        st = err_nomem(e, "the executor", (size_t)devs->n * sizeof *x->bufs);
        goto fail;
    }
    st = queues_init(x, e);
    if (st)
        goto fail;
    *out = x;
    return ST_OK;
fail:
    exec_free(x);
    return st;
}

void exec_free(struct exec *x)
{
    if (!x)
        return;
    assert(x->plans.next == &x->plans);
    exec_wait(x, NULL);
    for (int b = 0; x->bufs && b < x->n_bufs; b++) {
        for (int c = 0; c < x->bufs[b].n_chunks; c++) {
            buffer_release(x->bufs[b].chunks[c].b);
            mem_free(x->bufs[b].chunks[c].b);
        }
        mem_free(x->bufs[b].chunks);
        mem_free(x->bufs[b].name);
    }
    for (int d = 0; x->scratch && d < x->devs->n; d++) {
        buffer_release(&x->scratch[d].b);
        mem_free(x->scratch[d].name);
    }
    mem_free(x->bufs);
    mem_free(x->scratch);
    queues_release(x);
    buffer_release(&x->staging.b);
    buffer_release(&x->ids.b);
    mem_free(x->own);
    plan_free(x->trial);
    mem_free(x);
}

/* ---- bind ---- */

static void bind_tensor(const struct plan *p, const struct plan_tensor *pt)
{
    struct tensor *t = pt->t;

    if (pt->external) {
        if (t->view_src) {
            t->buffer = t->view_src->buffer;
            t->data = t->view_src->data ? (char *)t->view_src->data + t->view_offs : NULL;
        }
        return;
    }
    pt = &p->tensors[pt->owner];
    t->buffer = p->chunks[p->bufs[pt->buf].first_chunk + pt->chunk].buffer;
    t->data = t->buffer->base ? (char *)t->buffer->base + pt->offs + t->view_offs : NULL;
}

static void bind_plan(struct exec *x, struct plan *p)
{
    /* Names of spans: like uids of graphs, they only have to differ from all others of the process. */
    static _Atomic uint64_t last_uid;
    uint64_t n_uids = (uint64_t)p->n_splits * (uint64_t)p->n_pipe + 1;
    struct tensor *shadows = p->own + p->n_own - p->n_shadows;

    p->bound = true;
    p->pipe = 0;
    for (int b = 0; b < p->n_bufs; b++) {
        for (int c = 0; c < p->bufs[b].n_chunks; c++) {
            struct plan_chunk *pc = &p->chunks[p->bufs[b].first_chunk + c];

            pc->buffer = x->bufs[b].chunks[c].b;
            if (pc->buffer->size < pc->size)
                p->bound = false; /* lost when it could not grow for another plan */
        }
    }
    for (int i = 0; i < p->n_tensors; i++)
        bind_tensor(p, &p->tensors[i]);
    for (int i = 0; i < p->n_shadows; i++) {
        int r = p->shadow_of[i];
        int slot = plan_in_pipe(p, p->run_slot[r % p->n_run], r / p->n_run);

        shadows[i].data = p->tensors[slot].t->data;
        shadows[i].buffer = p->tensors[slot].t->buffer;
    }
    p->uid = atomic_fetch_add_explicit(&last_uid, n_uids, memory_order_relaxed) + 1;
    p->generation = x->generation;
    p->own_buffers = x->own;
    p->n_own_buffers = x->n_own;
}

/* Addresses have changed: nobody may keep the old ones. */
static void bind_all_again(struct exec *x)
{
    for (struct plan_link *l = x->plans.next; l != &x->plans; l = l->next) {
        struct plan *p = plan_of(l);

        p->own_buffers = x->own;
        p->n_own_buffers = x->n_own;
        if (!p->bound || p->generation == x->generation)
            continue;
        bind_plan(x, p);
        x->stats.rebinds++;
    }
}

/* ---- memory ---- */

/* Whose memory a buffer type is: not a device that works in another's. */
static const struct device *owner_of(const struct exec *x, const struct buft *bt)
{
    int d = x->devs->n - 1;

    while (d > 0 && (x->devs->dev[d]->buft != bt || x->devs->dev[d]->kind == DEVICE_ACCEL))
        d--;
    return x->devs->dev[d];
}

/* Give b, in memory of dev, `size` bytes. On failure it is what it was before, or empty. */
static enum status grow(struct exec *x, struct buffer *b, const struct device *dev, size_t size,
                        const char *what, struct err *e)
{
    static const char *const hint = "try a smaller micro-batch (-ub) or context (-c)";
    struct device_memory m = device_memory(dev);
    size_t old = b->size;

    x->stats.regrows += x->is_reserved;
    if (x->opt.dry) {
        buffer_describe(b, dev->buft, size, USAGE_COMPUTE);
        return ST_OK;
    }
    if (m.n_total && size > m.n_free && size - m.n_free > old)
        return device_nomem(dev, what, size, hint, e);
    buffer_release(b); /* first: there may not be room for both */
    if (!buffer_init(b, dev->buft, size, USAGE_COMPUTE, NULL))
        return ST_OK;
    if (old == 0 || buffer_init(b, dev->buft, old, USAGE_COMPUTE, NULL))
        buffer_describe(b, dev->buft, 0, USAGE_COMPUTE);
    return device_nomem(dev, what, size, hint, e);
}

static enum status add_chunk(struct exec *x, struct exec_buf *xb, struct err *e)
{
    struct buffer *b;

    if (!mem_room(&xb->chunks, &xb->cap_chunks, xb->n_chunks + 1, sizeof *xb->chunks) ||
        !mem_room(&x->own, &x->cap_own, x->n_own + 1, sizeof(*x->own)))
        return err_nomem(e, "a list of buffers", sizeof *xb->chunks);
    bind_all_again(x); /* x->own may have moved */
    b = mem_zalloc(sizeof *b);
    if (!b)
        return err_nomem(e, "a buffer's description", sizeof *b);
    buffer_describe(b, xb->buft, 0, USAGE_COMPUTE);
    xb->chunks[xb->n_chunks++] = (struct exec_chunk){.b = b};
    x->own[x->n_own++] = b;
    return ST_OK;
}

/* Room for n chunks, not yet for bytes. */
static enum status room_for_chunks(struct exec *x, int b, int n, struct err *e)
{
    enum status st = ST_OK;

    while (!st && x->bufs[b].n_chunks < n)
        st = add_chunk(x, &x->bufs[b], e);
    return st;
}

static enum status grow_chunk(struct exec *x, int b, int c, size_t size, struct err *e)
{
    struct exec_buf *xb = &x->bufs[b];
    char what[2 * TENSOR_NAME + 64], largest[32];

    if (size <= xb->chunks[c].b->size)
        return ST_OK;
    snprintf(what, sizeof what, "the compute buffer (most of it for '%s', %s)", xb->largest,
             text_size(largest, sizeof largest, xb->n_largest));
    x->generation++;
    return grow(x, xb->chunks[c].b, owner_of(x, xb->buft), size, what, e);
}

static enum status grow_scratch(struct exec *x, int d, size_t size, struct err *e)
{
    struct buffer *b = &x->scratch[d].b;

    if (size <= b->size)
        return ST_OK;
    return grow(x, b, x->devs->dev[d], size, "the work memory of its kernels", e);
}

/* Host memory that copies between devices need. */
static enum status grow_host(struct exec *x, struct exec_scratch *xs, size_t size, struct err *e)
{
    if (size <= xs->b.size)
        return ST_OK;
    return grow(x, &xs->b, devices_cpu(x->devs), size, "what copies go through", e);
}

/* All that the plan asks for. */
static enum status grow_for(struct exec *x, const struct plan *p, struct err *e)
{
    enum status st = ST_OK;

    for (int b = 0; b < p->n_bufs && !st; b++) {
        st = room_for_chunks(x, b, p->bufs[b].n_chunks, e);
        for (int c = 0; c < p->bufs[b].n_chunks && !st; c++)
            st = grow_chunk(x, b, c, p->chunks[p->bufs[b].first_chunk + c].size, e);
    }
    for (int d = 0; d < x->devs->n && !st; d++)
        st = grow_scratch(x, d, p->dev[d].scratch, e);
    if (!st)
        st = grow_host(x, &x->staging, p->n_staging, e);
    if (!st)
        st = grow_host(x, &x->ids, p->n_ids, e);
    bind_all_again(x); /* also after a failure: what was replaced stays replaced */
    return st;
}

/* ---- plan ---- */

static void log_plan(const struct exec *x, const struct plan *p)
{
    struct text t = {0};

    plan_print(p, x->opt.sched_debug, &t);
    for (char *line = t.p, *end; line && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        log_debug("%s", line);
    }
    text_release(&t);
}

static void note_largest(struct exec *x, const struct plan *p)
{
    for (int b = 0; b < x->n_bufs; b++) {
        int slot = p->bufs[b].largest;

        if (slot < 0 || p->tensors[slot].size <= x->bufs[b].n_largest)
            continue;
        x->bufs[b].n_largest = p->tensors[slot].size;
        memcpy(x->bufs[b].largest, p->tensors[slot].t->name, TENSOR_NAME);
    }
}

static enum status make_plan(struct exec *x, struct plan *p, const struct graph *g, struct err *e)
{
    bool shown = p != x->trial; /* what is reserved is never run: its sum is shown instead */
    struct alloc_options ao = {.debug = x->opt.alloc_debug && shown};
    enum status st;

    p->own_buffers = x->own;
    p->n_own_buffers = x->n_own;
    p->n_pipe = x->opt.n_slots;
    p->check = x->opt.check;
    p->no_op_offload = x->opt.no_op_offload;
    st = sched_plan(p, g, e);
    if (!st)
        st = alloc_plan(p, &ao, e);
    if (!st && x->opt.check)
        st = check_alloc(p, g, e);
    if (st)
        return st;
    x->stats.plans++;
    x->stats.sum_nodes = p->sum_nodes;
    x->stats.peak = p->peak;
    x->stats.splits = p->n_splits;
    note_largest(x, p);
    if (x->opt.sched_debug && shown)
        log_plan(x, p);
    return ST_OK;
}

static void log_reserved(const struct exec *x)
{
    char size[32];

    for (int b = 0; b < x->n_bufs; b++) {
        size_t n = 0;

        for (int c = 0; c < x->bufs[b].n_chunks; c++)
            n += x->bufs[b].chunks[c].reserved;
        log_debug("reserved for the largest graphs: %s, %s", x->bufs[b].name,
                  text_size(size, sizeof size, n));
    }
    for (int d = 0; d < x->devs->n; d++)
        log_debug("reserved for the largest graphs: %s, %s", x->scratch[d].name,
                  text_size(size, sizeof size, x->scratch[d].reserved));
}

enum status exec_reserve(struct exec *x, const struct graph *g, struct err *e)
{
    struct plan *p = x->trial;
    enum status st = make_plan(x, p, g, e);

    if (st)
        return st;
    for (int b = 0; b < x->n_bufs && !st; b++) {
        st = room_for_chunks(x, b, p->bufs[b].n_chunks, e);
        for (int c = 0; c < p->bufs[b].n_chunks && !st; c++) {
            size_t size = p->chunks[p->bufs[b].first_chunk + c].size;

            if (size > x->bufs[b].chunks[c].reserved)
                x->bufs[b].chunks[c].reserved = size;
        }
    }
    for (int d = 0; d < x->devs->n && !st; d++) {
        if (p->dev[d].scratch > x->scratch[d].reserved)
            x->scratch[d].reserved = p->dev[d].scratch;
    }
    if (p->n_staging > x->staging.reserved)
        x->staging.reserved = p->n_staging;
    if (p->n_ids > x->ids.reserved)
        x->ids.reserved = p->n_ids;
    return st;
}

enum status exec_reserve_done(struct exec *x, struct err *e)
{
    enum status st = exec_wait(x, e);

    if (st)
        return st;
    x->is_reserved = false; /* growth by a reservation is none that it failed to foresee */
    for (int b = 0; b < x->n_bufs; b++) {
        for (int c = 0; c < x->bufs[b].n_chunks && !st; c++)
            st = grow_chunk(x, b, c, x->bufs[b].chunks[c].reserved, e);
    }
    for (int d = 0; d < x->devs->n && !st; d++)
        st = grow_scratch(x, d, x->scratch[d].reserved, e);
    if (!st)
        st = grow_host(x, &x->staging, x->staging.reserved, e);
    if (!st)
        st = grow_host(x, &x->ids, x->ids.reserved, e);
    bind_all_again(x);
    x->is_reserved = true;
    if (!st && (x->opt.sched_debug || x->opt.alloc_debug))
        log_reserved(x);
    return st;
}

enum status exec_plan(struct exec *x, struct plan **out, struct graph *g, struct err *e)
{
    struct plan *p = *out;
    enum status st = exec_wait(x, e);

    if (st)
        return st;
    if (!p) {
        st = plan_new(&p, x->devs, e);
        if (st)
            return st;
        p->link.prev = x->plans.prev;
        p->link.next = &x->plans;
        p->link.prev->next = p->link.next->prev = &p->link;
    }
    p->bound = false; /* its old graph may be gone: nobody binds it again */
    p->graph = g;
    st = make_plan(x, p, g, e);
    if (!st)
        st = grow_for(x, p, e);
    if (!st) {
        bind_plan(x, p);
        st = x->opt.check ? check_bind(p, g, e) : ST_OK;
    }
    if (st) {
        p->bound = false;
        if (!*out)
            plan_free(p);
        return st;
    }
    *out = p;
    return ST_OK;
}

/* ---- stats ---- */

static void stat_buffer(struct exec_stats *s, const char *name, size_t planned, size_t allocated)
{
    if (s->n_buffers < (int)(sizeof s->buffers / sizeof s->buffers[0]) && (planned || allocated))
        s->buffers[s->n_buffers++] =
            (struct exec_buffer_stat){.name = name, .n_planned = planned, .n_allocated = allocated};
}

struct exec_memory exec_memory(const struct exec *x, const struct device *dev)
{
    struct exec_memory m = {0};

    for (int b = 0; b < x->n_bufs && dev->kind != DEVICE_ACCEL; b++) {
        for (int c = 0; c < x->bufs[b].n_chunks && x->bufs[b].buft == dev->buft; c++)
            m.n_compute += x->bufs[b].chunks[c].b->size;
    }
    for (int d = 0; d < x->devs->n; d++) {
        if (x->devs->dev[d] == dev)
            m.n_scratch = x->scratch[d].b.size;
    }
    if (dev == devices_cpu(x->devs))
        m.n_staging = x->staging.b.size + x->ids.b.size;
    return m;
}

void exec_stats(const struct exec *x, struct exec_stats *out)
{
    *out = x->stats;
    out->n_buffers = 0;
    for (int b = 0; b < x->n_bufs; b++) {
        size_t planned = 0, allocated = 0;

        for (int c = 0; c < x->bufs[b].n_chunks; c++) {
            planned += x->bufs[b].chunks[c].reserved;
            allocated += x->opt.dry ? 0 : x->bufs[b].chunks[c].b->size;
        }
        stat_buffer(out, x->bufs[b].name, planned, allocated);
    }
    for (int d = 0; d < x->devs->n; d++)
        stat_buffer(out, x->scratch[d].name, x->scratch[d].reserved,
                    x->opt.dry ? 0 : x->scratch[d].b.size);
    stat_buffer(out, "copies between devices", x->staging.reserved + x->ids.reserved,
                x->opt.dry ? 0 : x->staging.b.size + x->ids.b.size);
}
