/*
 * glm4moe: GLM 4.5 to 4.7. Dense layers first, then experts chosen by a sigmoid with a bias of selection, and
 * a network for every token. Layers that predict further tokens are left out. Source: arXiv:2508.06471.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,
    ROW_HEAD_NORM("attn_q_norm", attn.q_norm),
    ROW_HEAD_NORM("attn_k_norm", attn.k_norm),
    ROWS_ATTN_OUT,
    ROW_NORM("post_attention_norm", ffn_norm, D_EMBD),
    ROWS_FFN,
    ROWS_EXPERTS,
    ROW_SELECTION_BIAS,
    ROWS_SHARED_OPTIONAL,
};

static enum status keys(struct hparams *hp, const struct gguf *g, struct err *e)
{
    enum status st = decoder_keys_experts(hp, g, e);

    return st ? st : hparams_drop_nextn(hp, g, "glm4moe", e);
}

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.experts = {.router = ROUTER_SIGMOID,
                                                   .norm = b->m->hp.experts.weights_norm}});
}

const struct arch arch_glm4moe = {
    .name = "glm4moe",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .keys = keys,
    .build = build,
};
