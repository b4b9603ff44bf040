#include "runtime/state.h"

#include "gguf/base/mem.h"

static bool set_shapes(struct state *s, const struct hparams *hp)
{
    for (uint32_t il = 0; il < s->n_layer; il++) {
        bool has = hp->layer[il].recurrent;
        int64_t n_rows = (int64_t)STATE_SLOTS * s->n_seqs;
        int64_t conv[2] = {has ? hparams_n_conv_state(hp) : 0, n_rows};
        int64_t ssm[2] = {has ? hparams_n_ssm_state(hp) : 0, n_rows};

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
                       const struct device *const *layer_dev, uint32_t n_seqs, bool dry,
                       struct err *e)
{
    enum status st = ST_OK;

    *s = (struct state){.n_layer = hp->n_layer, .n_seqs = n_seqs};
    for (uint32_t i = 0; i < n_seqs; i++)
        state_reset(s, (int32_t)i);
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
    for (uint32_t i = 0; i < s->n_seqs; i++)
        s->seq[i].from = s->seq[i].kept;
}

void state_step(struct state *s, const struct ubatch *u)
{
    for (int32_t i = 0; i < u->n_seqs_unq; i++) {
        struct seq_state *q = &s->seq[u->seq_id_unq[i]];

        q->to = u->seq_id_unq[i] * STATE_SLOTS;
        while (q->to == q->kept || q->to == q->from)
            q->to++;
    }
}

void state_advance(struct state *s, const struct ubatch *u)
{
    for (int32_t i = 0; i < u->n_seqs_unq; i++)
        s->seq[u->seq_id_unq[i]].from = s->seq[u->seq_id_unq[i]].to;
}

void state_keep(struct state *s)
{
    for (uint32_t i = 0; i < s->n_seqs; i++)
        s->seq[i].kept = s->seq[i].from;
}

void state_reset(struct state *s, int32_t seq)
{
    s->seq[seq].kept = s->seq[seq].from = -1;
    s->seq[seq].to = seq * STATE_SLOTS;
}

enum status state_copy(struct state *s, int32_t from, int32_t to, struct err *e)
{
    int32_t kept = s->seq[from].kept;
    enum status st = ST_OK;

    state_reset(s, to);
    for (uint32_t i = 0; i < 2 * s->n_layer && kept >= 0 && !st; i++)
        st = store_copy_rows(i % 2 ? &s->ssm[i / 2] : &s->conv[i / 2], (uint32_t)kept,
                             (uint32_t)s->seq[to].to, 1, e);
    if (!st && kept >= 0)
        s->seq[to].kept = s->seq[to].to;
    return st;
}
