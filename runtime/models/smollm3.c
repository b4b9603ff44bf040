/*
 * smollm3: SmolLM 3. As llama; every fourth layer does without positions (NoPE).
 * Source: arXiv:2501.18795 for the mix of layers with and without RoPE.
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
    decoder_build(b, &(struct decoder){.no_rope_step = 4});
}

const struct arch arch_smollm3 = {
    .name = "smollm3",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = build,
};
