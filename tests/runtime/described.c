#include "tests/runtime/described.h"

#include "gguf/base/mem.h"
#include "runtime/arch.h"

static enum status describe(struct described *d, const struct arch_tensor *at, uint32_t il,
                            struct err *e)
{
    int k = arch_index(d->m.arch, at, il);
    struct tensor *t = &d->tensors[k];
    int64_t ne[TENSOR_DIMS];
    int n_dims = arch_shape(at, &d->m.hp, il, ne);

    if ((at->optional && !at->instead) || !arch_has(at, &d->m.hp, il))
        return ST_OK;
    arch_tensor_name(at->name, il, t->name);
    if (!tensor_set_shape(t, n_dims > 1 ? DT_Q8_0 : DT_F32, n_dims, ne))
        return err_set(e, ST_MODEL, "'%s' is not a valid tensor", t->name);
    t->buffer = &d->buffer;
    d->m.weights[k] = t;
    return ST_OK;
}

enum status described_init(struct described *d, const struct hparams *hp,
                           const struct devices *devs, struct err *e)
{
    static const struct placement_options on_cpu;
    const struct arch *a = arch_find("llama", 5);
    enum status st;

    *d = (struct described){.m = {.arch = a, .hp = *hp}};
    d->m.hp.norm_eps = 1e-5f;
    d->m.hp.rope_base = 10000;
    d->m.hp.rope_scale = d->m.hp.rope_attn_factor = 1;
    hparams_same_layers(&d->m.hp);
    st = placement_new(&d->m.placement, devs, &d->m.hp, &on_cpu, e);
    if (st)
        return st;
    d->m.n_weights = a->n_globals + (int)hp->n_layer * a->n_layer;
    d->m.weights = mem_array((size_t)d->m.n_weights, sizeof *d->m.weights);
    d->tensors = mem_array((size_t)d->m.n_weights, sizeof *d->tensors);
    if (!d->m.weights || !d->tensors)
        return err_nomem(e, "weights", (size_t)d->m.n_weights * sizeof *d->tensors);
    buffer_describe(&d->buffer, devices_cpu(devs)->buft, 1, USAGE_WEIGHTS);
    for (int i = 0; i < a->n_tensors && !st; i++) {
        uint32_t n_layer = arch_per_layer(&a->tensors[i]) ? hp->n_layer : 1;

        for (uint32_t il = 0; il < n_layer && !st; il++)
            st = describe(d, &a->tensors[i], il, e);
    }
    return st;
}

void described_release(struct described *d)
{
    placement_free(d->m.placement);
    mem_free(d->m.weights);
    mem_free(d->tensors);
    *d = (struct described){0};
}
