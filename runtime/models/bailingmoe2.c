/*
 * bailingmoe2: Ling 2.0 and Ring. Norms of each head of Q and K, dense layers first, then experts in groups with
 * a bias of selection, and a network for every token. Layers that predict further tokens are left out.
 * Source: arXiv:2510.22115.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,         ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED, ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV_OR_FUSED,  ROWS_QK_NORM(D_HEAD_K, D_HEAD_K),
    ROWS_ATTN_OUT,      ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_FFN,           ROWS_EXPERTS,
    ROW_SELECTION_BIAS, ROWS_SHARED,
};

static enum status keys(struct hparams *hp, const struct gguf *g, struct err *e)
{
    enum status st = decoder_keys_experts(hp, g, e);

    return st ? st : hparams_drop_nextn(hp, g, "bailingmoe2", e);
}

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.experts = {.router = (enum router)b->m->hp.experts.gating,
                                                   .norm = b->m->hp.experts.weights_norm}});
}

const struct arch arch_bailingmoe2 = {
    .name = "bailingmoe2",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .keys = keys,
    .build = build,
};
