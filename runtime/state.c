#include "runtime/state.h"

#include "gguf/base/mem.h"

static bool set_shapes(struct state *s, const struct hparams *hp)
{
    for (uint32_t il = 0; il < s->n_layer; il++) {
        bool has = hp->layer[il].recurrent;
        int64_t conv[2] = {has ? hparams_n_conv_state(hp) : 0, STATE_SLOTS};
        int64_t ssm[2] = {has ? hparams_n_ssm_state(hp) : 0, STATE_SLOTS};

        if (!tensor_set_shape(&s->conv[il], DT_F32, 2, conv) ||
            !tensor_set_shape(&s->ssm[il], DT_F32, 2, ssm))
            return false;
        tensor_set_name(&s->conv[il], "state_conv_l%u", il);
        tensor_set_name(&s->ssm[il], "state_ssm_l%u", il);
    }
    return true;
}

static enum status bind(struct state *s, const struct device *const *layer_dev, bool dry,
                        struct err *e)
{
    enum status st = ST_OK;

    for (uint32_t i = 0; i < 2 * s->n_layer && !st; i++) {
        const struct device *dev = layer_dev[i / 2];

        st = store_add(&s->store, dev, dev->buft, i % 2 ? &s->ssm[i / 2] : &s->conv[i / 2], e);
    }
    s->n_bytes = store_bytes(&s->store);
    if (!st && s->n_bytes)
        st = store_bind(&s->store, dry, "the recurrent state", "try fewer layers on it (-ngl)", e);
    return st;
}

enum status state_init(struct state *s, const struct hparams *hp,
                       const struct device *const *layer_dev, bool dry, struct err *e)
{
    enum status st = ST_OK;

    *s = (struct state){.n_layer = hp->n_layer, .kept = -1, .from = -1, .to = 0};
    store_init(&s->store, USAGE_ANY);
    s->conv = mem_array(s->n_layer, sizeof *s->conv);
    s->ssm = mem_array(s->n_layer, sizeof *s->ssm);
    if (!s->conv || !s->ssm)
        st = err_nomem(e, "the state's tensors", 2 * (size_t)s->n_layer * sizeof *s->conv);
    else if (!set_shapes(s, hp))
        st = err_set(e, ST_NOMEM, "the recurrent state is larger than any memory");
    else
        st = bind(s, layer_dev, dry, e);
    if (st)
        state_release(s);
    return st;
}

void state_release(struct state *s)
{
    store_release(&s->store);
    mem_free(s->conv);
    mem_free(s->ssm);
    *s = (struct state){0};
}

void state_begin(struct state *s)
{
    s->from = s->kept;
}

void state_step(struct state *s)
{
    s->to = 0;
    while (s->to == s->kept || s->to == s->from)
        s->to++;
}

void state_advance(struct state *s)
{
    s->from = s->to;
}

void state_keep(struct state *s)
{
    s->kept = s->from;
}

void state_reset(struct state *s)
{
    s->kept = s->from = -1;
}
