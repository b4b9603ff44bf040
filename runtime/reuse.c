#include "runtime/reuse.h"

#include <string.h>

const char *reuse_name(enum reuse_reason r)
{
    static const char *const names[REUSE_COUNT] = {
        [REUSE_OK] = "ok",
        [REUSE_FIRST] = "first",
        [REUSE_OFF] = "off",
        [REUSE_KIND] = "kind",
        [REUSE_SHAPE] = "shape",
        [REUSE_SEQUENCES] = "sequences",
        [REUSE_MIXED] = "mixed",
        [REUSE_CARRIER] = "carrier",
        [REUSE_STATE] = "state",
        [REUSE_SEQ_IDS] = "seq_ids",
        [REUSE_OUTPUTS] = "outputs",
        [REUSE_SAMPLERS] = "samplers",
        [REUSE_KV_LENGTH] = "kv_length",
        [REUSE_INPUT] = "input",
    };

    return (unsigned)r < REUSE_COUNT ? names[r] : NULL;
}

void reuse_facts(struct reuse_facts *f, const struct ubatch *u, uint32_t n_kv,
                 uint32_t n_kv_window)
{
    *f = (struct reuse_facts){
        .kind = GRAPH_LOGITS,
        .n_tokens = u->n_tokens,
        .n_seq_tokens = u->n_seq_tokens,
        .n_seqs = u->n_seqs,
        .n_seqs_unq = u->n_seqs_unq,
        .equal_seqs = u->equal_seqs,
        .mixed = u->mixed,
        .carriers = u->carriers,
        .n_outputs = u->n_outputs,
        .n_kv = n_kv,
        .n_kv_window = n_kv_window,
    };
    memcpy(f->seq_id_unq, u->seq_id_unq, (size_t)u->n_seqs_unq * sizeof *f->seq_id_unq);
}

enum reuse_reason reuse_compare(const struct reuse_facts *last, const struct reuse_facts *now)
{
    const struct reuse_facts *a = last, *b = now;
    unsigned differ = a->carriers ^ b->carriers;

    if (a->kind != b->kind)
        return REUSE_KIND;
    if (a->n_tokens != b->n_tokens)
        return REUSE_SHAPE;
    if (a->equal_seqs != b->equal_seqs || a->n_seq_tokens != b->n_seq_tokens ||
        a->n_seqs != b->n_seqs || a->n_seqs_unq != b->n_seqs_unq)
        return REUSE_SEQUENCES;
    if (a->mixed != b->mixed)
        return REUSE_MIXED;
    if (differ & (CARRIER_TOKEN | CARRIER_EMBD))
        return REUSE_CARRIER;
    if (differ & CARRIER_EMBD_STATE)
        return REUSE_STATE;
    if (a->equal_seqs &&
        memcmp(a->seq_id_unq, b->seq_id_unq, (size_t)a->n_seqs_unq * sizeof *a->seq_id_unq) != 0)
        return REUSE_SEQ_IDS;
    if (a->n_outputs != b->n_outputs)
        return REUSE_OUTPUTS;
    if (a->samplers != b->samplers)
        return REUSE_SAMPLERS;
    return REUSE_OK;
}
