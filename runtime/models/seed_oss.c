/*
 * seed_oss: Seed-OSS. As llama, with biases of Q, K and V; the norm before the feed-forward network
 * goes by the name of a norm after attention.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,
    ROWS_ATTN_OUT,
    ROW_NORM("post_attention_norm", ffn_norm, D_EMBD),
    ROWS_FFN,
};

const struct arch arch_seed_oss = {
    .name = "seed_oss",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = decoder_build_plain,
};
