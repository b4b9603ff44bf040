#include "runtime/state.h"

#include "gguf/base/mem.h"
#include "gguf/base/text.h"

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

/* Lay the tensors out one after the other; n_bytes is then what they need. False on overflow. */
static bool lay_out(struct state *s, const struct buft *bt)
{
    s->n_bytes = 0;
    for (uint32_t i = 0; i < 2 * s->n_layer; i++) {
        struct tensor *t = i % 2 ? &s->ssm[i / 2] : &s->conv[i / 2];
        size_t at;

        if (!mem_round_up(s->n_bytes, bt->alignment, &at))
            return false;
        t->buffer = &s->buffer;
        t->data = s->buffer.base ? (char *)s->buffer.base + at : NULL;
        if (!mem_add(at, buft_tensor_size(bt, t), &s->n_bytes))
            return false;
    }
    return true;
}

static enum status too_big(const struct state *s, const struct device *dev, size_t n_free,
                           struct err *e)
{
    char need[32], have[32];

    return err_set(
        e, ST_NOMEM, "not enough memory on '%s': the recurrent state needs %s, %s are free",
        dev->name, text_size(need, sizeof need, s->n_bytes), text_size(have, sizeof have, n_free));
}

static enum status bind(struct state *s, const struct device *dev, bool dry, struct err *e)
{
    size_t n_free = 0, n_total = 0;
    enum status st;

    if (dry) {
        buffer_describe(&s->buffer, dev->buft, s->n_bytes, USAGE_ANY);
        return ST_OK;
    }
    if (dev->ops->memory)
        dev->ops->memory(dev, &n_free, &n_total);
    if (s->n_bytes > dev->buft->max_size || (n_total && s->n_bytes > n_free))
        return too_big(s, dev, n_free, e);
    st = buffer_init(&s->buffer, dev->buft, s->n_bytes, USAGE_ANY, e);
    if (st) {
        err_context(e, "recurrent state");
        return st;
    }
    lay_out(s, dev->buft);
    return ST_OK;
}

enum status state_init(struct state *s, const struct hparams *hp, const struct device *dev,
                       bool dry, struct err *e)
{
    enum status st = ST_OK;

    *s = (struct state){.n_layer = hp->n_layer, .kept = -1, .from = -1, .to = 0};
    s->conv = mem_array(s->n_layer, sizeof *s->conv);
    s->ssm = mem_array(s->n_layer, sizeof *s->ssm);
    if (!s->conv || !s->ssm) {
        st = err_nomem(e, "the state's tensors", 2 * (size_t)s->n_layer * sizeof *s->conv);
    } else if (!set_shapes(s, hp) || !lay_out(s, dev->buft)) {
        s->n_bytes = SIZE_MAX;
        st = too_big(s, dev, 0, e);
    } else if (s->n_bytes) {
        st = bind(s, dev, dry, e);
    }
    if (st)
        state_release(s);
    return st;
}

void state_release(struct state *s)
{
    buffer_release(&s->buffer);
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
