/*
 * qwen2vl: the text part of Qwen 2 and 2.5 VL. As qwen2; positions have several axes, on which text moves
 * alike, so that sections of RoPE change nothing. Source: arXiv:2409.12191.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROW_OUTPUT_BIAS,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,
    ROWS_ATTN_OUT,
    ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_FFN,
};

const struct arch arch_qwen2vl = {
    .name = "qwen2vl",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = decoder_build_plain,
};
