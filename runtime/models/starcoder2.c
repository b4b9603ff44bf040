/*
 * starcoder2: StarCoder 2. As llama, with layer norms, biases everywhere and a GELU without a gate.
 * Source: arXiv:2402.19173.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROWS_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROWS_NORM("attn_norm", attn_norm),
    ROWS_QKV,
    ROWS_ATTN_OUT,
    ROWS_NORM("ffn_norm", ffn_norm),
    ROWS_FFN_PLAIN,
};

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.norm = NORM_LAYER, .act = FFN_GELU});
}

const struct arch arch_starcoder2 = {
    .name = "starcoder2",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = build,
};
