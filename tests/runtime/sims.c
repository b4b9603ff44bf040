#include "tests/runtime/sims.h"

#include "backends/cpu/cpu.h"
#include "gguf/base/mem.h"
#include "tests/runtime/tiny_model.h"

enum status sims_open(struct devices *d, const struct sim_options *o, struct err *e)
{
    struct device_options opt = {.n_threads = 2};
    struct sim_options so = *o;
    enum status st;

    *d = (struct devices){.dev = mem_array(DEVICES_MAX, sizeof(*d->dev))};
    if (!d->dev)
        return err_nomem(e, "list of devices", DEVICES_MAX * sizeof(*d->dev));
    for (int i = 0; i < so.n; i++)
        so.limit[i] = 64u << 20;
    st = sim_open_with(d, &so, &opt, e);
    if (!st)
        st = cpu_open(&d->dev[d->n], &opt, e);
    d->n += st == ST_OK;
    return st;
}

void sims_turn(struct devices *d, enum sims_kind kind)
{
    static struct device_ops ops[SIM_MAX];

    for (int i = 0; i < d->n - 1 && kind != SIMS_ALIKE; i++) {
        struct device_ops *o = &ops[kind == SIMS_STRANGERS ? i : 0];

        *o = *d->dev[i]->ops;
        if (kind == SIMS_NO_QUEUE) {
            o->set_async = NULL;
            o->get_async = NULL;
            o->copy_async = NULL;
            o->event_new = NULL;
        }
        d->dev[i]->ops = o;
    }
}

enum status rig_open(struct rig *r, const char *arch, uint32_t n_layer,
                     const struct sim_options *sim, const struct placement_options *place,
                     struct err *e)
{
    struct tiny_options to = {
        .arch = arch, .n_layer = n_layer, .n_embd = 256, .n_ff = 256, .seed = 5, .experts = true};
    struct model_options mo = {.devs = &r->devs, .place = place};
    struct gguf *g;
    size_t n;
    enum status st;

    *r = (struct rig){0};
    st = sims_open(&r->devs, sim, e);
    if (!st)
        st = tiny_write(&to, &r->bytes, &n, e);
    if (!st)
        st = gguf_open_memory(&g, r->bytes, n, "tiny", e);
    return st ? st : model_load(&r->m, g, &mo, e);
}

void rig_close(struct rig *r)
{
    model_free(r->m);
    devices_close(&r->devs);
    mem_free(r->bytes);
}
