/*
 * The library is loaded when the device is opened, not linked: it starts its threads and takes their
 * memory as soon as it is loaded, asked or not, and waits without end for that memory under a limit. A
 * program that does not use it should pay for none of this.
 */
#include "backends/blas/blas.h"

#include <assert.h>
#include <cblas.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/pool.h"
#include "gguf/base/mem.h"

#define LARGE 32 /* smallest rows, columns and row length that are worth a call */

struct blas {
    struct device dev;
    struct pool *pool;
    __typeof__(&cblas_sgemm) sgemm;
    char desc[96];
};

struct job {
    const struct blas *b;
    const struct tensor *t;
};

static bool fits(int64_t n)
{
    return n >= LARGE && n <= INT_MAX;
}

static bool plain_f32(const struct tensor *t)
{
    return t->type == DT_F32 && t->nb[0] == 4 && t->nb[1] % 4 == 0 && t->nb[1] / 4 <= INT_MAX &&
           t->nb[1] >= 4 * (size_t)t->ne[0];
}

static bool blas_supports_op(const struct device *d, const struct tensor *t)
{
    const struct tensor *w = t->src[0], *x = t->src[1];

    (void)d;
    if (tensor_is_noop(t))
        return true;
    return t->op == OP_MUL_MAT && plain_f32(w) && plain_f32(x) && tensor_contiguous(t) &&
           fits(w->ne[0]) && fits(w->ne[1]) && fits(x->ne[1]);
}

static bool blas_supports_buft(const struct device *d, const struct buft *bt)
{
    (void)d;
    return bt->is_host;
}

static const char *blas_kernel_name(const struct device *d, const struct tensor *t)
{
    (void)d;
    return t->op == OP_MUL_MAT ? "mul_mat_f32_openblas" : "";
}

static const char *plane(const struct tensor *t, int64_t i2, int64_t i3)
{
    return (const char *)t->data + (size_t)i2 * t->nb[2] + (size_t)i3 * t->nb[3];
}

/* y[row_n, col_n] = w' x in the library's column-major view; each thread has some of the rows. */
static void product(void *ctx, int ith, int nth)
{
    const struct job *job = ctx;
    const struct tensor *t = job->t, *w = t->src[0], *x = t->src[1];
    int64_t n_row = w->ne[1], from = n_row * ith / nth, to = n_row * (ith + 1) / nth;
    int ldw = (int)(w->nb[1] / 4), ldx = (int)(x->nb[1] / 4);

    if (from == to)
        return;
    for (int64_t i3 = 0; i3 < x->ne[3]; i3++)
        for (int64_t i2 = 0; i2 < x->ne[2]; i2++) {
            const char *pw = plane(w, i2 / (x->ne[2] / w->ne[2]), i3 / (x->ne[3] / w->ne[3]));
            float *y = (float *)plane(t, i2, i3);
            job->b->sgemm(CblasColMajor, CblasTrans, CblasNoTrans, (int)(to - from), (int)x->ne[1],
                          (int)w->ne[0], 1, (const float *)(pw + (size_t)from * w->nb[1]), ldw,
                          (const float *)plane(x, i2, i3), ldx, 0, y + from, (int)n_row);
        }
}

static enum status blas_compute(struct device *d, const struct span *s, void *work, size_t n_work,
                                struct err *e)
{
    const struct blas *b = d->impl;
    int nth = pool_size(b->pool);

    (void)work;
    (void)n_work;
    if (s->n_threads > 0 && s->n_threads < nth)
        nth = s->n_threads;
    for (int i = 0; i < s->n; i++) {
        struct tensor *t = s->nodes[i];
        if (s->cancel && atomic_load(s->cancel))
            return err_set(e, ST_CANCELLED, "stopped");
        if (tensor_is_noop(t) || !(t->flags & TENSOR_COMPUTE) || tensor_n(t) == 0)
            continue;
        assert(t->op == OP_MUL_MAT);
        pool_run(b->pool, nth, product, &(struct job){b, t});
    }
    return ST_OK;
}

static void blas_free(struct device *d)
{
    mem_free(d->impl);
}

static const struct device_ops blas_ops = {
    .free = blas_free,
    .supports_op = blas_supports_op,
    .supports_buft = blas_supports_buft,
    .compute = blas_compute,
    .kernel_name = blas_kernel_name,
};

/* A function of the library as the type of *to; false if it has none of that name. */
static bool find(void *library, const char *name, void *to)
{
    void *f = dlsym(library, name);

    memcpy(to, &f, sizeof f);
    return f;
}

/* The library stays loaded until the process ends: its own way out waits for its threads. */
static enum status load(struct blas *b, struct err *e)
{
    __typeof__(&openblas_set_num_threads) set_num_threads;
    __typeof__(&openblas_get_corename) get_corename;
    void *library;

    setenv("OPENBLAS_NUM_THREADS", "1", 1); /* read while it is loaded: our pool has the threads */
    library = dlopen(OPENBLAS_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(e, ST_DEVICE, "OpenBLAS cannot be loaded: %s", dlerror());
    if (!find(library, "cblas_sgemm", &b->sgemm) ||
        !find(library, "openblas_set_num_threads", &set_num_threads) ||
        !find(library, "openblas_get_corename", &get_corename))
        return err_set(e, ST_DEVICE, "'%s' is not OpenBLAS: %s", OPENBLAS_LIBRARY, dlerror());
    set_num_threads(1);
    snprintf(b->desc, sizeof b->desc, "OpenBLAS, %s", get_corename());
    return ST_OK;
}

enum status blas_open(struct devices *list, const struct device_options *opt, struct device *cpu,
                      struct err *e)
{
    struct blas *b;
    enum status st;

    if (!opt->blas)
        return ST_OK;
    b = mem_zalloc(sizeof *b);
    if (!b)
        return err_nomem(e, "BLAS device", sizeof *b);
    st = load(b, e);
    if (st) {
        mem_free(b);
        return st;
    }
    b->pool = cpu_pool(cpu);
    b->dev = (struct device){.ops = &blas_ops,
                             .name = "BLAS",
                             .desc = b->desc,
                             .kind = DEVICE_ACCEL,
                             .buft = cpu->buft,
                             .impl = b};
    return devices_append(list, &b->dev, e);
}
