/*
 * gpt-oss: gpt-oss 20B and 120B. Every other layer, the first one among them, sees a window; each head has an
 * attention sink; biases throughout; experts in every layer, chosen and weighted by a softmax over the picked
 * ones. Source: arXiv:2508.10925.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,
    ROW_SINKS,
    ROWS_ATTN_OUT,
    ROW_NORM("post_attention_norm", ffn_norm, D_EMBD),
    ROWS_EXPERTS,
    ROWS_EXPERTS_BIASES,
};

static enum status keys(struct hparams *hp, const struct gguf *g, struct err *e)
{
    enum status st = decoder_keys_experts(hp, g, e);

    hp->rope_base_window = hp->rope_base;
    return st ? st : hparams_read_window(hp, g, "gpt-oss", 2, e);
}

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){
                         .experts = {.router = ROUTER_SOFTMAX_PICKED, .act = FFN_SWIGLU_OAI}});
}

const struct arch arch_gpt_oss = {
    .name = "gpt-oss",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .keys = keys,
    .build = build,
};
