/*
 * Memory of an exec:
 *
 *     bufs[b]     one per distinct buffer type; chunks as in the plans, each a struct buffer that
 * stays where it is for the life of the exec, since tensors point to it; only its memory is
 * replaced scratch[d]  work memory of a device staging     host memory that copies go through when
 * neither side is host memory
 *
 * All of it only grows. When it does, every plan that is bound is bound again at once, so that the
 * inputs of its next replay are not written to where they were before.
 */
#include "runtime/exec.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "gguf/base/log.h"
#include "gguf/base/mem.h"
#include "runtime/alloc.h"
#include "runtime/check.h"
#include "runtime/plan.h"
#include "runtime/sched.h"

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

struct exec {
    const struct devices *devs; /* not owned */
    struct exec_options opt;
    struct exec_buf *bufs; /* [n_bufs] */
    int n_bufs;
    struct exec_scratch *scratch; /* [devs->n] */
    void *staging;
    size_t n_staging, reserved_staging;
    const struct buffer **own; /* [n_own] all chunks: tensors in these are not external */
    int n_own, cap_own;
    struct plan *trial;     /* of exec_reserve */
    struct plan_link plans; /* all plans but trial */
    uint64_t generation;    /* changes with any address */
    bool is_reserved;
    struct exec_stats stats;
};

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
#if !defined(NDEBUG) && !defined(__OPTIMIZE__)
    x->opt.check = true;
#endif
    x->plans.prev = x->plans.next = &x->plans;
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
    mem_free(x->staging);
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
    int n_copies = p->n_own - p->n_shadows;

    p->bound = true;
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
        const struct tensor *t = p->tensors[p->run_slot[p->shadow_of[i]]].t;

        p->own[n_copies + i].data = t->data;
        p->own[n_copies + i].buffer = t->buffer;
    }
    p->uid =
        atomic_fetch_add_explicit(&last_uid, (uint64_t)p->n_splits + 1, memory_order_relaxed) + 1;
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

/* More than all of a device's memory: no need to try. */
static enum status fits_device(const struct exec *x, const struct buft *bt, size_t size,
                               struct err *e)
{
    char want[32], has[32];

    for (int d = 0; d < x->devs->n; d++) {
        const struct device *dev = x->devs->dev[d];
        size_t n_total = device_memory(dev).n_total;

        if (dev->buft == bt && n_total > 0 && size > n_total)
            return err_set(e, ST_NOMEM, "not enough memory on '%s': %s are needed, it has %s",
                           dev->name, text_size(want, sizeof want, size),
                           text_size(has, sizeof has, n_total));
    }
    return ST_OK;
}

/* Replace the memory of b. On failure it is what it was before, or empty. */
static enum status replace(struct exec *x, struct buffer *b, const struct buft *bt, size_t size,
                           struct err *e)
{
    size_t old = b->size;
    enum status st;

    x->generation++;
    if (x->opt.dry) {
        buffer_describe(b, bt, size, USAGE_COMPUTE);
        return ST_OK;
    }
    st = fits_device(x, bt, size, e);
    if (st)
        return st;
    buffer_release(b); /* first: there may not be room for both */
    st = buffer_init(b, bt, size, USAGE_COMPUTE, e);
    if (st && (old == 0 || buffer_init(b, bt, old, USAGE_COMPUTE, NULL)))
        buffer_describe(b, bt, 0, USAGE_COMPUTE);
    return st;
}

static enum status add_chunk(struct exec *x, struct exec_buf *xb, struct err *e)
{
    struct buffer *b;

    if (!plan_room(&xb->chunks, &xb->cap_chunks, xb->n_chunks + 1, sizeof *xb->chunks) ||
        !plan_room(&x->own, &x->cap_own, x->n_own + 1, sizeof(*x->own)))
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
    char largest[32];
    enum status st;

    if (size <= xb->chunks[c].b->size)
        return ST_OK;
    x->stats.regrows += x->is_reserved;
    st = replace(x, xb->chunks[c].b, xb->buft, size, e);
    if (st && e)
        err_context(e, "compute buffer (most of it for '%s': %s; try a smaller batch or context)",
                    xb->largest, text_size(largest, sizeof largest, xb->n_largest));
    return st;
}

static enum status grow_scratch(struct exec *x, int d, size_t size, struct err *e)
{
    enum status st;

    if (size <= x->scratch[d].b.size)
        return ST_OK;
    x->stats.regrows += x->is_reserved;
    st = replace(x, &x->scratch[d].b, x->devs->dev[d]->buft, size, e);
    if (st && e)
        err_context(e, "scratch of '%s'", x->devs->dev[d]->name);
    return st;
}

static enum status grow_staging(struct exec *x, size_t size, struct err *e)
{
    void *p;

    if (size <= x->n_staging || x->opt.dry)
        return ST_OK;
    p = mem_aligned(size);
    if (!p)
        return err_nomem(e, "copies between devices", size);
    mem_free(x->staging);
    x->staging = p;
    x->n_staging = size;
    return ST_OK;
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
        st = grow_staging(x, p->n_staging, e);
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
    if (p->n_staging > x->reserved_staging)
        x->reserved_staging = p->n_staging;
    return st;
}

enum status exec_reserve_done(struct exec *x, struct err *e)
{
    enum status st = ST_OK;

    x->is_reserved = false; /* growth by a reservation is none that it failed to foresee */
    for (int b = 0; b < x->n_bufs; b++) {
        for (int c = 0; c < x->bufs[b].n_chunks && !st; c++)
            st = grow_chunk(x, b, c, x->bufs[b].chunks[c].reserved, e);
    }
    for (int d = 0; d < x->devs->n && !st; d++)
        st = grow_scratch(x, d, x->scratch[d].reserved, e);
    if (!st)
        st = grow_staging(x, x->reserved_staging, e);
    bind_all_again(x);
    x->is_reserved = true;
    if (!st && (x->opt.sched_debug || x->opt.alloc_debug))
        log_reserved(x);
    return st;
}

enum status exec_plan(struct exec *x, struct plan **out, struct graph *g, struct err *e)
{
    struct plan *p = *out;
    enum status st;

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

/* ---- replay ---- */

/* One tensor to another device; both have the same layout, so the bytes are copied as they lie. */
static enum status copy_tensor(struct exec *x, const struct tensor *src, struct tensor *dst,
                               struct err *e)
{
    size_t n = tensor_bytes(dst);
    enum status st = ST_OK;

    x->stats.copies++;
    if (n == 0)
        return ST_OK;
    if (src->buffer->buft->is_host)
        return tensor_set(dst, 0, src->data, n, e);
    if (dst->buffer->buft->is_host)
        return tensor_get(src, 0, dst->data, n, e);
    for (size_t offs = 0; offs < n && !st; offs += x->n_staging) {
        size_t part = n - offs < x->n_staging ? n - offs : x->n_staging;

        st = tensor_get(src, offs, x->staging, part, e);
        if (!st)
            st = tensor_set(dst, offs, x->staging, part, e);
    }
    return st;
}

static enum status copy_inputs(struct exec *x, struct plan *p, const struct plan_split *sp,
                               struct err *e)
{
    enum status st = ST_OK;

    for (int k = 0; k < sp->n_inputs && !st; k++) {
        const struct plan_tensor *c = &p->tensors[p->inputs[sp->first_input + k]];

        st = copy_tensor(x, p->tensors[c->copy_of].t, c->t, e);
    }
    return st;
}

static struct span span_at(const struct plan *p, int first, int n, const struct replay *r)
{
    return (struct span){.nodes = &p->run[first],
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
        log_debug("exec: %s %s %s %s %.1f us", p->run[i]->name, op_name(p->run[i]->op), dev->name,
                  device_kernel_name(dev, p->run[i]), (double)(now_ns() - t) * 1e-3);
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

static enum status run_splits(struct exec *x, struct plan *p, const struct replay *r, int *last,
                              struct err *e)
{
    enum status st = ST_OK;
    bool stop = false;

    for (int s = 0; s < p->n_splits && !st && !stop; s++) {
        const struct plan_split *sp = &p->splits[s];

        if (r->cancel && atomic_load_explicit(r->cancel, memory_order_relaxed))
            return err_set(e, ST_CANCELLED, "stopped");
        /* What is copied, and memory that is used again, must not be in work any more. */
        if (*last >= 0 && (*last != sp->dev || sp->n_inputs > 0))
            st = device_synchronize(x->devs->dev[*last], e);
        if (!st)
            st = copy_inputs(x, p, sp, e);
        if (st)
            return st;
        *last = sp->dev;
        if (r->watch)
            st = run_watched(x, p, sp, r, &stop, e);
        else
            st = run_part(x, p, sp->dev, sp->first_run, sp->n_run, p->uid + (uint64_t)s, r, e);
    }
    return st;
}

enum status exec_replay(struct exec *x, struct plan *p, const struct replay *r, struct err *e)
{
    static const struct replay plain;
    int last = -1;
    enum status st;

    if (x->opt.dry)
        return err_set(e, ST_UNSUPPORTED, "a dry run has no memory to compute in");
    if (!p->bound)
        return err_set(e, ST_NOMEM, "the plan has no memory: planning it, or a larger one, failed");
    assert(p->generation == x->generation);
    st = run_splits(x, p, r ? r : &plain, &last, e);
    if (last >= 0) { /* after a failure too: nothing may be in work when we return */
        enum status st_sync = device_synchronize(x->devs->dev[last], st ? NULL : e);

        st = st ? st : st_sync;
    }
    x->stats.replays += !st;
    return st;
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
        m.n_staging = x->opt.dry ? x->reserved_staging : x->n_staging;
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
    stat_buffer(out, "copies between devices", x->reserved_staging, x->n_staging);
}
