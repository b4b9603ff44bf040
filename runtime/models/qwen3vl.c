/*
 * qwen3vl: the text part of dense Qwen 3 VL. As qwen3; positions have several axes, on which text moves alike.
 * Source: arXiv:2511.21631.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,         ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED, ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,           ROWS_QK_NORM(D_HEAD_K, D_HEAD_K),
    ROWS_ATTN_OUT,      ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_FFN,
};

const struct arch arch_qwen3vl = {
    .name = "qwen3vl",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = decoder_build_plain,
};
