/*
 * hunyuan-dense: dense Hunyuan. As llama, with a norm of each head of Q and K after RoPE.
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

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.norm_after_rope = true});
}

const struct arch arch_hunyuan_dense = {
    .name = "hunyuan-dense",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = build,
};
