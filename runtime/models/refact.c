/*
 * refact: Refact 1.6B. As llama, with ALiBi in place of RoPE. Source: Hugging Face transformers,
 * smallcloudai/Refact-1_6B-fim.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,
    ROWS_ATTN_OUT,
    ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_FFN,
};

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.no_rope_step = 1, .alibi = 8});
}

const struct arch arch_refact = {
    .name = "refact",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = build,
};
