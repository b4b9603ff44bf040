/*
 * chatglm: ChatGLM 2, 3 and GLM-4-9B. As llama, with one matrix for Q, K and V and one for gate and up.
 * Source: arXiv:2406.12793.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV_OR_FUSED,
    ROWS_ATTN_OUT,
    ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_FFN_FUSED,
};

const struct arch arch_chatglm = {
    .name = "chatglm",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = decoder_build_plain,
};
