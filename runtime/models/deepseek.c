/*
 * deepseek: DeepSeek MoE and LLM. The first layers are dense; later ones have experts and a network for every
 * token. Source: arXiv:2401.06066.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,
    ROWS_ATTN_OUT,
    ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_FFN,
    ROWS_EXPERTS,
    ROWS_SHARED,
};

const struct arch arch_deepseek = {
    .name = "deepseek",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .keys = decoder_keys_experts,
    .build = decoder_build_plain,
};
