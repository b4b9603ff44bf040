/*
 * qwen3: dense Qwen 3. As llama, with a norm of each head of Q and K before RoPE.
 * Source: arXiv:2505.09388.
 */
#include "runtime/models/decoder.h"

/* clang-format off */
static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,
    ROWS_QK_NORM(D_HEAD_K, D_HEAD_K),
    ROWS_ATTN_OUT,
    ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_FFN,
};
/* clang-format on */

const struct arch arch_qwen3 = {
    .name = "qwen3",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = decoder_build_plain,
};
