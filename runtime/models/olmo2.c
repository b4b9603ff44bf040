/*
 * olmo2: OLMo 2, and OLMo 3 but for its windows. Norms come after attention and feed-forward network;
 * the whole rows of Q and K are normalised before RoPE. Source: arXiv:2501.00656.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT,
    ROWS_QKV,
    ROWS_QK_NORM(D_Q, D_K),
    ROWS_ATTN_OUT,
    ROW_NORM("post_attention_norm", attn_post_norm, D_EMBD),
    ROWS_FFN,
    ROW_NORM("post_ffw_norm", ffn_post_norm, D_EMBD),
};

static enum status check(const struct hparams *hp, const struct gguf *g, struct err *e)
{
    (void)hp;
    return decoder_refuse(g, "attention.sliding_window", "sliding windows", e);
}

const struct arch arch_olmo2 = {
    .name = "olmo2",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .check = check,
    .build = decoder_build_plain,
};
