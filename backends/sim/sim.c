#include "backends/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/cpu/cpu.h"
#include "backends/sim/sim_queue.h"
#include "gguf/base/mem.h"
#include "gguf/base/text.h"

#define SIM_SIZE  ((size_t)16 << 30)
#define ALIGNMENT 128
#define ROW_ALIGN 128 /* of the buffer type with padded rows */
#define OFFLOAD   32  /* columns from which a product is worth a copy of its weights */

struct block {
    size_t offs, size; /* bytes of the reservation, whole pages */
};

struct sim {
    struct device dev;
    struct buft bt, rows;
    const struct buft *more[1];
    char name[16], rows_name[24];
    char *shown;       /* reservation that tensors' addresses point into; no access */
    char *real;        /* the same memory as the worker sees it */
    size_t n_reserved; /* bytes of each */
    size_t limit, n_used;
    struct block *blocks; /* [n_blocks] taken, in order */
    int n_blocks;
    uint64_t refuse;
    int64_t offload;
    struct queue queue;
};

static struct sim *sim_of(const struct device *d)
{
    return d->impl;
}

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* The worker's address of a tensor's. */
static void *real_of(const struct sim *s, const void *shown)
{
    return s->real + ((const char *)shown - s->shown);
}

/* ---- memory ---- */

/* First gap of `size` bytes in the list of blocks: where it begins and which block it goes before. */
static bool find_gap(const struct sim *s, size_t size, size_t *offs, int *before)
{
    size_t at = 0;

    for (int i = 0; i <= s->n_blocks; i++) {
        size_t end = i < s->n_blocks ? s->blocks[i].offs : s->n_reserved;

        if (end - at >= size) {
            *offs = at;
            *before = i;
            return true;
        }
        at = s->blocks[i].offs + s->blocks[i].size;
    }
    return false;
}

static bool is_described(const struct sim *s)
{
    return !s->shown;
}

static enum status no_room(const struct sim *s, size_t size, struct err *e)
{
    char need[32], has[32], all[32];

    return err_set(e, ST_NOMEM, "not enough memory on '%s': a buffer needs %s, %s of %s are free",
                   s->name, text_size(need, sizeof need, size),
                   text_size(has, sizeof has, s->limit - s->n_used),
                   text_size(all, sizeof all, s->limit));
}

static enum status sim_alloc(const struct buft *bt, struct buffer *b, struct err *e)
{
    struct sim *s = bt->impl;
    size_t size, offs;
    struct block *grown;
    int before;

    if (is_described(s))
        return err_set(e, ST_DEVICE, "'%s' is a description without memory", s->name);
    if (b->size > s->limit - s->n_used ||
        !mem_round_up(b->size ? b->size : 1, page_size(), &size) ||
        !find_gap(s, size, &offs, &before))
        return no_room(s, b->size, e);
    grown = mem_grow(s->blocks, (size_t)s->n_blocks + 1, sizeof *grown);
    if (!grown)
        return err_nomem(e, "a simulated device's list of buffers", sizeof *grown);
    s->blocks = grown;
    if (mmap(s->real + offs, size, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS,
             -1, 0) == MAP_FAILED)
        return no_room(s, b->size, e);
    memmove(&s->blocks[before + 1], &s->blocks[before],
            (size_t)(s->n_blocks - before) * sizeof *s->blocks);
    s->blocks[before] = (struct block){offs, size};
    s->n_blocks++;
    s->n_used += b->size;
    b->base = s->shown + offs;
    return ST_OK;
}

static void sim_release(const struct buft *bt, struct buffer *b)
{
    struct sim *s = bt->impl;
    size_t offs = (size_t)((char *)b->base - s->shown);
    int i = 0;

    queue_wait(&s->queue, NULL); /* nothing may be in work there */
    while (s->blocks[i].offs != offs)
        i++;
    mmap(s->real + offs, s->blocks[i].size, PROT_NONE,
         MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    s->n_blocks--;
    memmove(&s->blocks[i], &s->blocks[i + 1], (size_t)(s->n_blocks - i) * sizeof *s->blocks);
    s->n_used -= b->size;
}

static void sim_memory(const struct device *d, struct device_memory *out)
{
    const struct sim *s = sim_of(d);

    *out = (struct device_memory){
        .n_total = s->limit, .n_free = s->limit - s->n_used, .n_used = s->n_used};
}

/* ---- transfers ---- */

static void submit_copy(struct sim *s, void *dst, const void *src, size_t n)
{
    struct job *j = queue_slot(&s->queue);

    j->kind = JOB_COPY;
    j->dst = dst;
    j->src = src;
    j->n = n;
    queue_submit(&s->queue);
}

static enum status sim_set_async(struct device *d, struct tensor *t, size_t offs, const void *src,
                                 size_t n, struct err *e)
{
    struct sim *s = sim_of(d);

    (void)e;
    submit_copy(s, (char *)real_of(s, t->data) + offs, src, n);
    return ST_OK;
}

static enum status sim_get_async(struct device *d, const struct tensor *t, size_t offs, void *dst,
                                 size_t n, struct err *e)
{
    struct sim *s = sim_of(d);

    (void)e;
    submit_copy(s, dst, (char *)real_of(s, t->data) + offs, n);
    return ST_OK;
}

static enum status sim_copy_async(struct device *d, const struct tensor *src, struct tensor *dst,
                                  struct err *e)
{
    struct sim *s = sim_of(d), *to = dst->buffer->buft->impl;

    (void)e;
    submit_copy(s, real_of(to, dst->data), real_of(s, src->data), tensor_bytes(dst));
    return ST_OK;
}

static enum status sim_set(struct tensor *t, size_t offs, const void *src, size_t n, struct err *e)
{
    struct sim *s = t->buffer->buft->impl;

    sim_set_async(&s->dev, t, offs, src, n, e);
    return queue_wait(&s->queue, e);
}

static enum status sim_get(const struct tensor *t, size_t offs, void *dst, size_t n, struct err *e)
{
    struct sim *s = t->buffer->buft->impl;

    sim_get_async(&s->dev, t, offs, dst, n, e);
    return queue_wait(&s->queue, e);
}

/* ---- events ---- */

static enum status sim_event_new(struct device *d, struct event **out, struct err *e)
{
    struct event *ev = mem_zalloc(sizeof *ev);

    (void)d;
    *out = NULL;
    if (!ev)
        return err_nomem(e, "an event", sizeof *ev);
    if (pthread_mutex_init(&ev->lock, NULL))
        goto fail;
    if (pthread_cond_init(&ev->changed, NULL)) {
        pthread_mutex_destroy(&ev->lock);
        goto fail;
    }
    *out = ev;
    return ST_OK;
fail:
    mem_free(ev);
    return err_set(e, ST_DEVICE, "a simulated device cannot make an event");
}

static void sim_event_free(struct event *ev)
{
    if (!ev)
        return;
    pthread_cond_destroy(&ev->changed);
    pthread_mutex_destroy(&ev->lock);
    mem_free(ev);
}

static enum status submit_event(struct sim *s, enum job_kind kind, struct event *ev)
{
    struct job *j = queue_slot(&s->queue);

    pthread_mutex_lock(&ev->lock);
    if (kind == JOB_RECORD)
        ev->recorded++;
    j->n_event = ev->recorded;
    pthread_mutex_unlock(&ev->lock);
    j->kind = kind;
    j->event = ev;
    queue_submit(&s->queue);
    return ST_OK;
}

static enum status sim_event_record(struct device *d, struct event *ev, struct err *e)
{
    (void)e;
    return submit_event(sim_of(d), JOB_RECORD, ev);
}

static enum status sim_event_wait(struct device *d, struct event *ev, struct err *e)
{
    (void)e;
    return submit_event(sim_of(d), JOB_WAIT, ev);
}

static enum status sim_event_synchronize(struct event *ev, struct err *e)
{
    uint64_t n;

    (void)e;
    pthread_mutex_lock(&ev->lock);
    n = ev->recorded;
    pthread_mutex_unlock(&ev->lock);
    event_await(ev, n);
    return ST_OK;
}

/* ---- work ---- */

static bool computes(const struct tensor *t)
{
    return (t->flags & TENSOR_COMPUTE) && !tensor_is_noop(t);
}

/* A copy of t at the address that the worker sees; false when t is not in this device's memory. */
static bool make_twin(const struct sim *s, const struct tensor *t, struct tensor *twin)
{
    const char *p = t->data;

    if (tensor_bytes(t) && (p < s->shown || p >= s->shown + s->n_reserved ||
                            tensor_bytes(t) > (size_t)(s->shown + s->n_reserved - p)))
        return false;
    *twin = *t;
    twin->data = p ? real_of(s, p) : NULL;
    return true;
}

/* How many nodes are computed, and how many tensors they and their sources are. */
static int count(const struct span *sp, int *n_twins)
{
    int n = 0;

    *n_twins = 0;
    for (int i = 0; i < sp->n; i++) {
        if (!computes(sp->nodes[i]))
            continue;
        n++;
        *n_twins += 1;
        for (int k = 0; k < TENSOR_SRC; k++)
            *n_twins += sp->nodes[i]->src[k] != NULL;
    }
    return n;
}

/* The span as the worker sees it: the caller's tensors may have other addresses when it is computed. */
static enum status translate(const struct sim *s, const struct span *sp, struct job *j,
                             struct err *e)
{
    int n_twins, n = count(sp, &n_twins), used = 0, out = 0;

    if (!mem_room(&j->twins, &j->cap_twins, n_twins, sizeof *j->twins) ||
        !mem_room(&j->nodes, &j->cap_nodes, n, sizeof(*j->nodes)) ||
        !mem_room(&j->uses, &j->cap_uses, n, sizeof *j->uses))
        return err_nomem(e, "a simulated device's queue", (size_t)n_twins * sizeof *j->twins);
    for (int i = 0; i < sp->n; i++) {
        const struct tensor *t = sp->nodes[i];
        struct tensor *twin = &j->twins[used];
        bool ok;

        if (!computes(t))
            continue;
        ok = make_twin(s, t, &j->twins[used++]);
        for (int k = 0; k < TENSOR_SRC && ok; k++) {
            if (!t->src[k])
                continue;
            twin->src[k] = &j->twins[used];
            ok = make_twin(s, t->src[k], &j->twins[used++]);
        }
        if (!ok)
            return err_set(e, ST_DEVICE, "node '%s' was given to '%s', but is not in its memory",
                           t->name, s->name);
        j->nodes[out] = twin;
        j->uses[out++] = sp->uses ? sp->uses[i] : 1;
    }
    j->span = *sp;
    j->span.nodes = j->nodes;
    j->span.uses = j->uses;
    j->span.n = n;
    j->span.n_threads = 0;
    return ST_OK;
}

static enum status sim_compute(struct device *d, const struct span *sp, void *work, size_t n_work,
                               struct err *e)
{
    struct sim *s = sim_of(d);
    struct job *j = queue_slot(&s->queue);
    enum status st = translate(s, sp, j, e);

    if (st)
        return st;
    j->kind = JOB_SPAN;
    j->work = n_work ? real_of(s, work) : NULL;
    j->n_work = n_work;
    queue_submit(&s->queue);
    return ST_OK;
}

static enum status sim_synchronize(struct device *d, struct err *e)
{
    return queue_wait(&sim_of(d)->queue, e);
}

/* ---- what it can do ---- */

static bool sim_supports_op(const struct device *d, const struct tensor *t)
{
    const struct sim *s = sim_of(d);

    return !(s->refuse >> t->op & 1) && device_supports_op(s->queue.cpu, t);
}

static bool sim_supports_buft(const struct device *d, const struct buft *bt)
{
    const struct sim *s = sim_of(d);

    return bt == &s->bt || bt == &s->rows;
}

static bool sim_offload_op(const struct device *d, const struct tensor *t)
{
    int64_t n = sim_of(d)->offload;

    return (t->op == OP_MUL_MAT && t->ne[1] >= n) || (t->op == OP_MUL_MAT_ID && t->ne[2] >= n);
}

static size_t sim_work_size(const struct device *d, const struct tensor *t)
{
    return device_work_size(sim_of(d)->queue.cpu, t);
}

static const char *sim_kernel_name(const struct device *d, const struct tensor *t)
{
    return device_kernel_name(sim_of(d)->queue.cpu, t);
}

/* ---- life ---- */

static void sim_free(struct device *d)
{
    struct sim *s = sim_of(d);

    queue_stop(&s->queue);
    if (s->shown)
        munmap(s->shown, s->n_reserved);
    if (s->real)
        munmap(s->real, s->n_reserved);
    mem_free(s->blocks);
    mem_free(s);
}

static const struct device_ops sim_ops = {
    .free = sim_free,
    .memory = sim_memory,
    .supports_op = sim_supports_op,
    .supports_buft = sim_supports_buft,
    .offload_op = sim_offload_op,
    .work_size = sim_work_size,
    .compute = sim_compute,
    .synchronize = sim_synchronize,
    .set_async = sim_set_async,
    .get_async = sim_get_async,
    .copy_async = sim_copy_async,
    .event_new = sim_event_new,
    .event_free = sim_event_free,
    .event_record = sim_event_record,
    .event_wait = sim_event_wait,
    .event_synchronize = sim_event_synchronize,
    .kernel_name = sim_kernel_name,
};

static char *reserve(size_t n)
{
    void *p = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

/* Twice the limit, so that gaps between buffers do not matter. */
static enum status reserve_both(struct sim *s, struct err *e)
{
    char size[32];

    if (mem_mul(s->limit, 2, &s->n_reserved) &&
        mem_round_up(s->n_reserved, page_size(), &s->n_reserved)) {
        s->shown = reserve(s->n_reserved);
        s->real = reserve(s->n_reserved);
    }
    if (s->shown && s->real)
        return ST_OK;
    return err_set(e, ST_NOMEM, "not enough addresses for '%s' with %s; try a smaller --sim",
                   s->name, text_size(size, sizeof size, s->limit));
}

static void describe(struct sim *s, const struct sim_options *o, int i)
{
    s->limit = o->limit[i];
    s->refuse = o->refuse;
    s->offload = o->offload ? o->offload : OFFLOAD;
    snprintf(s->name, sizeof s->name, "SIM%d", i);
    snprintf(s->rows_name, sizeof s->rows_name, "SIM%d_ROWS", i);
    s->bt = (struct buft){.name = s->name,
                          .alignment = ALIGNMENT,
                          .max_size = o->max_size ? o->max_size : SIZE_MAX,
                          .alloc = sim_alloc,
                          .release = sim_release,
                          .set = sim_set,
                          .get = sim_get,
                          .impl = s};
    s->rows = s->bt;
    s->rows.name = s->rows_name;
    s->rows.row_align = ROW_ALIGN;
    s->more[0] = &s->rows;
    s->dev = (struct device){.ops = &sim_ops,
                             .name = s->name,
                             .desc = "simulated accelerator",
                             .kind = DEVICE_GPU,
                             .buft = &s->bt,
                             .more = s->more,
                             .n_more = 1,
                             .impl = s};
}

static enum status open_one(struct devices *list, const struct sim_options *o, int i,
                            const struct device_options *opt, struct meter *m, struct err *e)
{
    struct device_options co = {.n_threads = 1, .isa = opt->isa};
    struct sim *s = mem_zalloc(sizeof *s);
    enum status st;

    if (!s)
        return err_nomem(e, "a simulated device", sizeof *s);
    describe(s, o, i);
    s->queue.op_ns = o->op_ns;
    s->queue.byte_ns = o->byte_ns;
    s->queue.meter = m;
    atomic_fetch_add(&m->users, 1);
    st = cpu_open(&s->queue.cpu, &co, e);
    if (!st && !o->described)
        st = reserve_both(s, e);
    if (!st && !o->described)
        st = queue_start(&s->queue, e);
    if (st) {
        sim_free(&s->dev);
        return st;
    }
    return devices_append(list, &s->dev, e);
}

enum status sim_open_with(struct devices *list, const struct sim_options *o,
                          const struct device_options *opt, struct err *e)
{
    struct meter *m = mem_zalloc(sizeof *m);
    enum status st = ST_OK;

    if (!m)
        return err_nomem(e, "simulated devices", sizeof *m);
    m->users = 1; /* until all are open */
    for (int i = 0; i < o->n && !st; i++)
        st = open_one(list, o, i, opt, m, e);
    if (atomic_fetch_sub(&m->users, 1) == 1)
        mem_free(m);
    return st;
}

/* Those named SIM0, SIM1, ... among the described devices. */
static enum status find_described(struct sim_options *o, const struct device_options *opt,
                                  struct err *e)
{
    char name[16];

    *o = (struct sim_options){.described = true};
    for (int i = 0; i < opt->n_described; i++) {
        const struct device_spec *ds = &opt->described[i];

        if (strncasecmp(ds->name, "SIM", 3) != 0)
            continue;
        if (o->n == SIM_MAX)
            return err_set(e, ST_USAGE, "more than %d simulated devices are described", SIM_MAX);
        snprintf(name, sizeof name, "SIM%d", o->n);
        if (strcasecmp(ds->name, name) != 0)
            return err_set(e, ST_USAGE, "device '%s' is described, expected '%s' at its place",
                           ds->name, name);
        o->limit[o->n++] = ds->n_bytes;
    }
    return ST_OK;
}

enum status sim_open(struct devices *list, const struct device_options *opt, struct device *cpu,
                     struct err *e)
{
    struct sim_options o = {0};
    enum status st = ST_OK;

    (void)cpu; /* each has a CPU device of its own */
    if (opt->n_described)
        st = find_described(&o, opt, e);
    else if (opt->sim)
        st = sim_parse(&o, opt->sim, e);
    return st ? st : sim_open_with(list, &o, opt, e);
}

int sim_most_at_work(const struct device *d)
{
    return atomic_load(&sim_of(d)->queue.meter->most);
}

/* ---- --sim ---- */

/* A size of n characters, at least a page. */
static bool parse_size(const char *s, size_t n, size_t *out)
{
    char text[32];
    uint64_t v;

    if (n >= sizeof text)
        return false;
    memcpy(text, s, n);
    text[n] = 0;
    if (!text_parse_size(text, &v) || v < page_size() || v > SIZE_MAX / 4)
        return false;
    *out = (size_t)v;
    return true;
}

enum status sim_parse(struct sim_options *o, const char *spec, struct err *e)
{
    char *end;
    long n = strtol(spec, &end, 10);

    *o = (struct sim_options){0};
    if (*spec >= '0' && *spec <= '9' && !*end) {
        if (n < 1 || n > SIM_MAX)
            goto bad;
        for (o->n = 0; o->n < n; o->n++)
            o->limit[o->n] = SIM_SIZE;
        return ST_OK;
    }
    for (const char *p = spec;; p++) {
        size_t k = strcspn(p, ",");

        if (o->n == SIM_MAX || !parse_size(p, k, &o->limit[o->n]))
            goto bad;
        o->n++;
        p += k;
        if (!*p)
            return ST_OK;
    }
bad:
    return err_set(e, ST_USAGE,
                   "--sim is '%s', expected 1 to %d devices, or their sizes, such as 24GiB,8GiB",
                   spec, SIM_MAX);
}
