/*
 * dots1: dots.llm1. Norms of each head of Q and K, a dense layer first, then experts with a bias of selection
 * and a network for every token. Source: arXiv:2506.05767.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,         ROW_OUTPUT_NORM,
    ROW_OUTPUT,         ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,           ROWS_QK_NORM(D_HEAD_K, D_HEAD_K),
    ROWS_ATTN_OUT,      ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_FFN,           ROWS_EXPERTS,
    ROW_SELECTION_BIAS, ROWS_SHARED,
};

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.experts = {.router = (enum router)b->m->hp.experts.gating,
                                                   .norm = b->m->hp.experts.weights_norm}});
}

const struct arch arch_dots1 = {
    .name = "dots1",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .keys = decoder_keys_experts,
    .build = build,
};
