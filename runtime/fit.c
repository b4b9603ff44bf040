#include "runtime/fit.h"

#include <stdio.h>

#include "gguf/base/log.h"
#include "gguf/base/text.h"
#include "runtime/model.h"

#define MARGIN_MAX ((size_t)1 << 30) /* bytes */

struct fit {
    struct placement_options po;
    float *shares; /* [n_gpu] */
    int n_gpu;
    struct gguf *file;
    const struct devices *devs;
    struct session_options so;
    uint32_t n_layer; /* of the model, known after the first trial */
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

/* Plan with the last n_gpu_layers layers on accelerators, without the experts of the first n_cpu_moe. */
static enum status try(struct fit *f, int32_t n_gpu_layers, int32_t n_cpu_moe, bool *fits,
                       struct err *e)
{
    struct model_options mo = {.devs = f->devs, .place = &f->po, .dry = true, .borrow_file = true};
    struct session *s = NULL;
    struct model *m = NULL;
    enum status st;

    *fits = false;
    f->po.n_gpu_layers = n_gpu_layers;
    f->po.n_cpu_moe = n_cpu_moe;
    log_mute(true); /* the run will say it all */
    st = model_load(&m, f->file, &mo, e);
    if (!st) {
        f->n_layer = m->hp.n_layer;
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

/* The fewest leading layers in 1..n_layer without their experts such that it fits; n_layer + 1: none. */
static enum status fit_experts(struct fit *f, int32_t *n_cpu_moe, struct err *e)
{
    int32_t lo = 1, hi = (int32_t)f->n_layer + 1;

    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        bool fits;
        enum status st = try(f, PLACE_ALL, mid, &fits, e);

        if (st)
            return st;
        if (fits)
            hi = mid;
        else
            lo = mid + 1;
    }
    *n_cpu_moe = lo;
    return ST_OK;
}

/* The most layers, less than all, that fit; 0 do when nothing is copied there either. */
static enum status fit_layers(struct fit *f, int32_t n_cpu_moe, int32_t *n_gpu_layers,
                              struct err *e)
{
    int32_t lo = 0, hi = (int32_t)f->n_layer;

    while (lo < hi) {
        int32_t mid = hi - (hi - lo) / 2;
        bool fits;
        enum status st = try(f, mid, n_cpu_moe, &fits, e);

        if (st)
            return st;
        if (fits)
            lo = mid;
        else
            hi = mid - 1;
    }
    *n_gpu_layers = lo;
    return ST_OK;
}

/* Fill one accelerator after the other, from the last. */
static enum status fill_devices(struct fit *f, int32_t n_cpu_moe, int32_t *n_gpu_layers,
                                struct err *e)
{
    int32_t n_all = (int32_t)f->n_layer + 1, total = 0;

    f->po.tensor_split = f->shares;
    f->po.n_tensor_split = f->n_gpu;
    for (int g = f->n_gpu - 1; g >= 0; g--) {
        int32_t lo = 0, hi = n_all - total;

        while (lo < hi) {
            int32_t mid = hi - (hi - lo) / 2;
            enum status st;
            bool fits;

            f->shares[g] = (float)mid;
            st = try(f, total + mid, n_cpu_moe, &fits, e);
            if (st)
                return st;
            if (fits)
                lo = mid;
            else
                hi = mid - 1;
        }
        f->shares[g] = (float)lo;
        total += lo;
    }
    *n_gpu_layers = total;
    if (!total)
        f->po.tensor_split = NULL;
    f->po.n_tensor_split = total ? f->n_gpu : 0;
    return ST_OK;
}

static void tell(const struct fit *f, int32_t n_gpu_layers, int32_t n_cpu_moe)
{
    struct text on = {0};
    char experts[64] = "";

    for (int i = 0; i < f->devs->n; i++) {
        if (f->devs->dev[i]->kind == DEVICE_GPU)
            text_addf(&on, "%s%s", on.n ? ", " : "", f->devs->dev[i]->name);
    }
    if (n_cpu_moe && n_gpu_layers)
        snprintf(experts, sizeof experts, ", without the experts of the first %d", (int)n_cpu_moe);
    if (n_gpu_layers > (int32_t)f->n_layer)
        log_note("-ngl auto: all %u layers go to %s%s", f->n_layer + 1, on.p ? on.p : "", experts);
    else
        log_note("-ngl auto: %d of %u layers fit into %s%s", (int)n_gpu_layers, f->n_layer + 1,
                 on.p ? on.p : "", experts);
    text_release(&on);
}

enum status fit_placement(struct placement_options *po, float *shares, struct gguf *file,
                          const struct devices *devs, struct session_options *so, struct err *e)
{
    struct fit f = {.po = *po, .shares = shares, .file = file, .devs = devs, .so = *so};
    int32_t n_gpu_layers = PLACE_ALL, n_cpu_moe = po->n_cpu_moe;
    bool fits;
    enum status st;

    for (int i = 0; i < devs->n; i++)
        f.n_gpu += devs->dev[i]->kind == DEVICE_GPU;
    f.so.exec = (struct exec_options){.dry = true, .no_op_offload = so->exec.no_op_offload};
    st = try(&f, n_gpu_layers, n_cpu_moe, &fits, e);
    if (!st && !fits && f.experts && !po->cpu_moe && !n_cpu_moe) {
        st = fit_experts(&f, &n_cpu_moe, e);
        fits = n_cpu_moe <= (int32_t)f.n_layer;
        n_cpu_moe = fits ? n_cpu_moe : (int32_t)f.n_layer;
    }
    if (!st && !fits) {
        bool spread = po->split == SPLIT_LAYER && !po->n_tensor_split;

        st = (spread ? fill_devices : fit_layers)(&f, n_cpu_moe, &n_gpu_layers, e);
        if (!st && !n_gpu_layers) {
            st = try(&f, 0, n_cpu_moe, &fits, e);
            f.so.exec.no_op_offload |= !fits;
        }
    }
    if (st)
        return st;
    po->tensor_split = f.po.tensor_split;
    po->n_tensor_split = f.po.n_tensor_split;
    so->exec.no_op_offload = f.so.exec.no_op_offload;
    po->n_gpu_layers = n_gpu_layers;
    po->n_cpu_moe = n_cpu_moe;
    tell(&f, n_gpu_layers, n_cpu_moe);
    return ST_OK;
}
