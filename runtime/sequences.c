#include "runtime/sequences.h"

#include "runtime/kvcache.h"

uint32_t sequences_n_ctx(uint32_t n_ctx, uint32_t n_seqs, bool unified)
{
    if (unified || n_seqs <= 1)
        return n_ctx;
    return (n_ctx / n_seqs + KV_PAD - 1) / KV_PAD * KV_PAD;
}

enum status sequences_check(uint32_t n_seqs, struct err *e)
{
    if (n_seqs > SEQ_MAX)
        return err_set(e, ST_USAGE, "-np %u is more than the most sequences, %d", n_seqs, SEQ_MAX);
    return ST_OK;
}

static enum status check_token(const struct seq_tokens *t, uint32_t i, const struct seq_limits *l,
                               struct err *e)
{
    if (t->seq && (t->seq[i] < 0 || (uint32_t)t->seq[i] >= l->n_seqs))
        return err_set(e, ST_USAGE, "sequence %d is none of %u", (int)t->seq[i], l->n_seqs);
    if (t->ids && (t->ids[i] < 0 || (uint32_t)t->ids[i] >= l->n_vocab))
        return err_set(e, ST_USAGE, "token id %d is outside the vocabulary of %u", (int)t->ids[i],
                       l->n_vocab);
    return ST_OK;
}

enum status seq_tokens_check(const struct seq_tokens *t, const struct seq_limits *l,
                             const struct kvcache *kv, struct err *e)
{
    uint32_t n[SEQ_MAX] = {0}, n_outputs = 0;
    enum status st = ST_OK;

    for (uint32_t i = 0; i < t->n && !st; i++) {
        st = check_token(t, i, l, e);
        if (st)
            return st;
        n[kvcache_stream(kv, t->seq ? t->seq[i] : 0)]++;
        n_outputs += t->out && t->out[i];
    }
    if (n_outputs > l->n_outputs)
        return err_set(e, ST_USAGE, "logits of %u tokens are wanted, there is room for %u",
                       n_outputs, l->n_outputs);
    for (uint32_t i = 0; i < kv->n_streams; i++) {
        uint32_t n_taken = kv->stream[i].n_occupied;

        if (n[i] > kv->n_ctx - n_taken)
            return err_set(
                e, ST_USAGE,
                "%u tokens do not fit into the context: it holds %u, %u are taken; try a larger -c",
                n[i], kv->n_ctx, n_taken);
    }
    return ST_OK;
}
