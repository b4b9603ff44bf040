/*
 * qwen2: Qwen 1.5, 2 and 2.5. As llama, with biases of Q, K and V. Source: arXiv:2407.10671.
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

const struct arch arch_qwen2 = {
    .name = "qwen2",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = decoder_build_plain,
};
