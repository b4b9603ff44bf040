/*
 * internlm2: InternLM 2 and 2.5. As llama. Source: arXiv:2403.17297.
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
};

const struct arch arch_internlm2 = {
    .name = "internlm2",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = decoder_build_plain,
};
