/*
 * olmoe: OLMoE. Experts in every layer; the whole rows of Q and K are normalised before RoPE.
 * Source: arXiv:2409.02060.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,   ROW_OUTPUT_NORM,        ROW_OUTPUT,    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,     ROWS_QK_NORM(D_Q, D_K), ROWS_ATTN_OUT, ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_EXPERTS,
};

const struct arch arch_olmoe = {
    .name = "olmoe",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .keys = decoder_keys_experts,
    .build = decoder_build_plain,
};
