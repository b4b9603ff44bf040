#include "runtime/fit.h"

#include <stdio.h>

#include "gguf/base/log.h"
#include "gguf/base/text.h"
#include "runtime/model.h"

#define MARGIN_MAX ((size_t)1 << 30) /* bytes */

struct fit {
    struct placement_options po; /* what is tried */
    float *shares;               /* [n_gpu] */
    int n_gpu;
    int gpu, n_behind; /* the accelerator that is being filled, and the layers of those behind it */
    struct gguf *file;
    const struct devices *devs;
    struct session_options so;
    int32_t n_layer; /* of the model, known after the first trial */
    bool experts;
};

static bool fits_device(const struct model *m, const struct session *s, const struct device *dev)
{
    struct device_memory dm = device_memory(dev);
    struct session_memory sm = session_memory(s, dev);
    size_t margin = dm.n_total / 20 < MARGIN_MAX ? dm.n_total / 20 : MARGIN_MAX;
    uint64_t n = model_memory(m, dev).n_copied + sm.n_kv + sm.n_compute + sm.n_scratch;

    return !dm.n_total || n + margin <= dm.n_free;
}

/* Plan with the options as they are now. */
static enum status try(struct fit *f, bool *fits, struct err *e)
{
    struct model_options mo = {.devs = f->devs, .place = &f->po, .dry = true, .borrow_file = true};
    struct session *s = NULL;
    struct model *m = NULL;
    enum status st;

    *fits = false;
    log_mute(true); /* the run will say it all */
    st = model_load(&m, f->file, &mo, e);
    if (!st) {
        f->n_layer = (int32_t)m->hp.n_layer;
        f->experts = m->hp.experts.n_expert != 0;
        st = session_new(&s, m, &f->so, e);
    }
    log_mute(false);
    if (!st) {
        *fits = true;
        for (int i = 0; i < f->devs->n; i++)
            *fits &= f->devs->dev[i]->kind != DEVICE_GPU || fits_device(m, s, f->devs->dev[i]);
    }
    session_free(s);
    model_free(m);
    return st == ST_NOMEM && f->n_layer ? ST_OK : st; /* a tensor larger than a device's largest */
}

typedef void set_fn(struct fit *f, int32_t x);

static void set_layers(struct fit *f, int32_t n)
{
    f->po.n_gpu_layers = n;
}

static void set_layers_with_experts(struct fit *f, int32_t n)
{
    f->po.n_cpu_moe = f->n_layer - n;
}

static void set_layers_of_gpu(struct fit *f, int32_t n)
{
    f->shares[f->gpu] = (float)n;
    f->po.n_gpu_layers = f->n_behind + n;
}

/* Set the largest x of 1..max that fits; x = 0, and *found = 0, if none does. */
static enum status set_largest(struct fit *f, set_fn *set, int32_t max, int32_t *found,
                               struct err *e)
{
    int32_t lo = 0, hi = max;

    while (lo < hi) {
        int32_t mid = hi - (hi - lo) / 2;
        enum status st;
        bool fits;

        set(f, mid);
        st = try(f, &fits, e);
        if (st)
            return st;
        if (fits)
            lo = mid;
        else
            hi = mid - 1;
    }
    set(f, lo);
    *found = lo;
    return ST_OK;
}

/* Fill one accelerator after the other, from the last. */
static enum status fill_devices(struct fit *f, struct err *e)
{
    enum status st = ST_OK;

    f->po.tensor_split = f->shares;
    f->po.n_tensor_split = f->n_gpu;
    for (f->gpu = f->n_gpu - 1; f->gpu >= 0 && !st; f->gpu--) {
        int32_t n;

        st = set_largest(f, set_layers_of_gpu, f->n_layer + 1 - f->n_behind, &n, e);
        f->n_behind += n;
    }
    if (!f->n_behind) /* shares of nothing are none */
        f->po.n_tensor_split = 0;
    return st;
}

/* All layers do not fit: which do. */
static enum status fit_part(struct fit *f, struct err *e)
{
    bool may_move_experts = f->experts && !f->po.cpu_moe && !f->po.n_cpu_moe;
    enum status st = ST_OK;
    bool fits = false;
    int32_t n;

    if (may_move_experts) {
        set_layers_with_experts(f, 0);
        st = try(f, &fits, e);
    }
    if (st)
        return st;
    if (fits)
        return set_largest(f, set_layers_with_experts, f->n_layer - 1, &n, e);
    if (f->po.split == SPLIT_LAYER && !f->po.n_tensor_split)
        st = fill_devices(f, e);
    else
        st = set_largest(f, set_layers, f->n_layer, &n, e);
    if (st || f->po.n_gpu_layers)
        return st;
    if (may_move_experts)
        f->po.n_cpu_moe = 0;
    st = try(f, &fits, e);
    f->so.exec.no_op_offload |= !fits;
    return st;
}

static void tell(const struct fit *f)
{
    struct text on = {0};
    char experts[64] = "";

    for (int i = 0; i < f->devs->n; i++) {
        if (f->devs->dev[i]->kind == DEVICE_GPU)
            text_addf(&on, "%s%s", on.n ? ", " : "", f->devs->dev[i]->name);
    }
    if (f->po.n_cpu_moe)
        snprintf(experts, sizeof experts, ", without the experts of the first %d",
                 (int)f->po.n_cpu_moe);
    if (f->po.n_gpu_layers > f->n_layer)
        log_note("-ngl auto: all %d layers go to %s%s", (int)f->n_layer + 1, on.p ? on.p : "",
                 experts);
    else
        log_note("-ngl auto: %d of %d layers fit into %s%s", (int)f->po.n_gpu_layers,
                 (int)f->n_layer + 1, on.p ? on.p : "", experts);
    text_release(&on);
}

enum status fit_placement(struct placement_options *po, float *shares, struct gguf *file,
                          const struct devices *devs, struct session_options *so, struct err *e)
{
    struct fit f = {.po = *po, .shares = shares, .file = file, .devs = devs, .so = *so};
    enum status st;
    bool fits;

    for (int i = 0; i < devs->n; i++)
        f.n_gpu += devs->dev[i]->kind == DEVICE_GPU;
    f.so.exec.dry = true;
    set_layers(&f, PLACE_ALL);
    st = try(&f, &fits, e);
    if (!st && !fits)
        st = fit_part(&f, e);
    if (st)
        return st;
    *po = f.po;
    so->exec.no_op_offload = f.so.exec.no_op_offload;
    tell(&f);
    return ST_OK;
}
