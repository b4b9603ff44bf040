#include "tests/runtime/fake_dev.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gguf/base/mem.h"

#define OPAQUE ((uintptr_t)1 << 60) /* between an opaque address and the real one */

/* ---- memory ---- */

static enum status opaque_alloc(const struct buft *bt, struct buffer *b, struct err *e)
{
    void *p = mem_pages(b->size);

    if (!p)
        return err_nomem(e, bt->name, b->size);
    b->base = (void *)((uintptr_t)p + OPAQUE);
    return ST_OK;
}

static void opaque_release(const struct buft *bt, struct buffer *b)
{
    (void)bt;
    mem_pages_free((void *)((uintptr_t)b->base - OPAQUE), b->size);
}

static char *real(const struct tensor *t)
{
    bool opaque = t->buffer && !t->buffer->buft->is_host;

    return (char *)((uintptr_t)t->data - (opaque ? OPAQUE : 0));
}

static enum status opaque_set(struct tensor *t, size_t offs, const void *src, size_t n,
                              struct err *e)
{
    (void)e;
    memcpy(real(t) + offs, src, n);
    return ST_OK;
}

static enum status opaque_get(const struct tensor *t, size_t offs, void *dst, size_t n,
                              struct err *e)
{
    (void)e;
    memcpy(dst, real(t) + offs, n);
    return ST_OK;
}

static size_t padded_size(const struct buft *bt, const struct tensor *t)
{
    const struct fake *f = bt->impl;

    return (tensor_bytes(t) + f->row.pad - 1) / f->row.pad * f->row.pad;
}

/* ---- device ---- */

static bool supports_op(const struct device *d, const struct tensor *t)
{
    const struct fake *f = d->impl;

    return (f->row.only == 0 || (f->row.only & OP_BIT(t->op))) && !(f->row.holes & OP_BIT(t->op));
}

static bool supports_buft(const struct device *d, const struct buft *bt)
{
    const struct fake *f = d->impl;

    if (bt == d->buft)
        return true;
    for (int i = 0; i < f->m->devs.n; i++) {
        if ((f->row.reads >> i & 1) && f->m->devs.dev[i]->buft == bt)
            return true;
    }
    return false;
}

static bool offload_op(const struct device *d, const struct tensor *t)
{
    const struct fake *f = d->impl;

    return f->row.offload & OP_BIT(t->op);
}

static size_t work_size(const struct device *d, const struct tensor *t)
{
    const struct fake *f = d->impl;

    return t->op == OP_MUL_MAT ? f->row.work : 0;
}

static void wrong(struct fake *f, const struct tensor *t, const char *what)
{
    if (!f->m->wrong[0])
        snprintf(f->m->wrong, sizeof f->m->wrong, "'%s' on '%s': %s", t->name, f->dev.name, what);
}

static void compute_one(struct fake *f, const struct tensor *t, size_t n_work)
{
    struct tensor x = *t, src[TENSOR_SRC], owner;

    if (!supports_op(&f->dev, t))
        wrong(f, t, "op is not supported");
    if (!t->buffer || !supports_buft(&f->dev, t->buffer->buft))
        wrong(f, t, "result is in foreign memory");
    if (n_work < work_size(&f->dev, t))
        wrong(f, t, "scratch is too small");
    for (int j = 0; j < TENSOR_SRC; j++) {
        if (!t->src[j])
            continue;
        if (!t->src[j]->buffer || !supports_buft(&f->dev, t->src[j]->buffer->buft))
            wrong(f, t, "a source is in foreign memory");
        src[j] = *t->src[j];
        src[j].data = real(t->src[j]);
        x.src[j] = &src[j];
    }
    x.data = real(t);
    if (t->view_src) {
        owner = *t->view_src;
        owner.data = real(t->view_src);
        x.view_src = &owner;
    }
    if (!f->m->wrong[0])
        naive_compute(&x);
    f->n_computed++;
}

static enum status compute(struct device *d, const struct span *s, void *work, size_t n_work,
                           struct err *e)
{
    struct fake *f = d->impl;

    (void)work;
    f->n_spans++;
    if (f->row.idle)
        return ST_OK;
    f->busy = true;
    for (int i = 0; i < s->n; i++) {
        if (s->cancel && atomic_load(s->cancel))
            return err_set(e, ST_CANCELLED, "stopped");
        for (int k = 0; k < f->m->devs.n; k++) {
            if (k < FAKES_MAX && &f->m->fakes[k] != f && f->m->fakes[k].busy)
                wrong(f, s->nodes[i], "another device was not waited for");
        }
        if (!tensor_is_noop(s->nodes[i]) && (s->nodes[i]->flags & TENSOR_COMPUTE))
            compute_one(f, s->nodes[i], n_work);
    }
    return ST_OK;
}

static enum status synchronize(struct device *d, struct err *e)
{
    struct fake *f = d->impl;

    (void)e;
    f->n_syncs++;
    f->busy = false;
    return ST_OK;
}

static const char *kernel_name(const struct device *d, const struct tensor *t)
{
    (void)d;
    return t->op == OP_MUL_MAT ? "mul_mat_naive" : "naive";
}

static const struct device_ops fake_ops = {
    .supports_op = supports_op,
    .supports_buft = supports_buft,
    .offload_op = offload_op,
    .work_size = work_size,
    .compute = compute,
    .synchronize = synchronize,
    .kernel_name = kernel_name,
};

void machine_init(struct machine *m, const struct fake_row *rows, int n)
{
    assert(n <= FAKES_MAX);
    memset(m, 0, sizeof *m);
    m->devs.dev = m->list;
    m->devs.n = n;
    for (int i = 0; i < n; i++) {
        struct fake *f = &m->fakes[i];

        f->row = rows[i];
        f->m = m;
        f->bt = (struct buft){
            .name = rows[i].name,
            .alignment = rows[i].alignment ? rows[i].alignment : 64,
            .max_size = rows[i].max_size ? rows[i].max_size : SIZE_MAX,
            .is_host = !rows[i].opaque,
            .impl = f,
        };
        if (rows[i].pad)
            f->bt.tensor_size = padded_size;
        if (rows[i].opaque) {
            f->bt.alloc = opaque_alloc;
            f->bt.release = opaque_release;
            f->bt.set = opaque_set;
            f->bt.get = opaque_get;
        }
        f->dev = (struct device){
            .ops = &fake_ops,
            .name = rows[i].name,
            .desc = "fake",
            .kind = rows[i].kind,
            .buft = rows[i].shares >= 0 ? m->fakes[rows[i].shares].dev.buft : &f->bt,
            .impl = f,
        };
        m->list[i] = &f->dev;
    }
}

/* ---- naive ops ---- */

static char *at(const struct tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    return (char *)t->data + (size_t)i0 * t->nb[0] + (size_t)i1 * t->nb[1] + (size_t)i2 * t->nb[2] +
           (size_t)i3 * t->nb[3];
}

static float f32(const struct tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    float v;

    memcpy(&v, at(t, i0 % t->ne[0], i1 % t->ne[1], i2 % t->ne[2], i3 % t->ne[3]), sizeof v);
    return v;
}

static void put(const struct tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3, float v)
{
    memcpy(at(t, i0, i1, i2, i3), &v, sizeof v);
}

static int64_t id(const struct tensor *t, int64_t i)
{
    int32_t v32;
    int64_t v64;

    if (t->type == DT_I32) {
        memcpy(&v32, at(t, i, 0, 0, 0), sizeof v32);
        return v32;
    }
    memcpy(&v64, at(t, i, 0, 0, 0), sizeof v64);
    return v64;
}

static float element(const struct tensor *t, const int64_t i[4])
{
    float x = f32(t->src[0], i[0], i[1], i[2], i[3]);
    struct param_scale sc;

    switch (t->op) {
    case OP_ADD:
        return x + f32(t->src[1], i[0], i[1], i[2], i[3]);
    case OP_MUL:
        return x * f32(t->src[1], i[0], i[1], i[2], i[3]);
    case OP_GLU:
        return x / (1.0f + fabsf(x)) * f32(t->src[1], i[0], i[1], i[2], i[3]);
    case OP_SCALE:
        op_param_get(t, &sc);
        return x * sc.s + sc.bias;
    case OP_GET_ROWS:
        return f32(t->src[0], i[0], id(t->src[1], i[1]), 0, 0);
    default:
        assert(t->op == OP_CONT);
        return x;
    }
}

static void elementwise(const struct tensor *t)
{
    int64_t i[4];

    for (i[3] = 0; i[3] < t->ne[3]; i[3]++) {
        for (i[2] = 0; i[2] < t->ne[2]; i[2]++) {
            for (i[1] = 0; i[1] < t->ne[1]; i[1]++) {
                for (i[0] = 0; i[0] < t->ne[0]; i[0]++)
                    put(t, i[0], i[1], i[2], i[3], element(t, i));
            }
        }
    }
}

static void rms_norm(const struct tensor *t)
{
    struct param_rms_norm p;

    op_param_get(t, &p);
    for (int64_t r = 0; r < tensor_rows(t); r++) {
        int64_t i1 = r % t->ne[1], i2 = r / t->ne[1] % t->ne[2], i3 = r / t->ne[1] / t->ne[2];
        float sum = 0, s;

        for (int64_t i = 0; i < t->ne[0]; i++) {
            float x = f32(t->src[0], i, i1, i2, i3);
            sum += x * x;
        }
        s = 1.0f / sqrtf(sum / (float)t->ne[0] + p.eps);
        for (int64_t i = 0; i < t->ne[0]; i++)
            put(t, i, i1, i2, i3,
                f32(t->src[0], i, i1, i2, i3) * s * (t->src[1] ? f32(t->src[1], i, 0, 0, 0) : 1));
    }
}

static float dot(const char *a, size_t nb_a, const char *b, size_t nb_b, int64_t n)
{
    float sum = 0, x, y;

    for (int64_t k = 0; k < n; k++) {
        memcpy(&x, a + (size_t)k * nb_a, sizeof x);
        memcpy(&y, b + (size_t)k * nb_b, sizeof y);
        sum += x * y;
    }
    return sum;
}

static void mul_mat(const struct tensor *t)
{
    const struct tensor *w = t->src[0], *x = t->src[1];

    for (int64_t r = 0; r < tensor_n(t); r++) {
        int64_t i0 = r % t->ne[0], i1 = r / t->ne[0] % t->ne[1];
        int64_t i2 = r / t->ne[0] / t->ne[1] % t->ne[2], i3 = r / t->ne[0] / t->ne[1] / t->ne[2];
        float sum = dot(at(w, 0, i0, i2 % w->ne[2], i3 % w->ne[3]), w->nb[0], at(x, 0, i1, i2, i3),
                        x->nb[0], w->ne[0]);

        put(t, i0, i1, i2, i3, sum * 0.125f); /* keeps long chains finite */
    }
}

static void set_rows(const struct tensor *t)
{
    const struct tensor *x = t->src[1];

    for (int64_t j = 0; j < x->ne[1]; j++) {
        for (int64_t i = 0; i < x->ne[0]; i++)
            put(t, i, id(t->src[2], j), 0, 0, f32(x, i, j, 0, 0));
    }
}

void naive_compute(struct tensor *t)
{
    switch (t->op) {
    case OP_RMS_NORM:
        rms_norm(t);
        break;
    case OP_MUL_MAT:
        mul_mat(t);
        break;
    case OP_SET_ROWS:
        set_rows(t);
        break;
    default:
        elementwise(t);
        break;
    }
}
