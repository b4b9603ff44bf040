/*
 * gpt2: GPT-2 and models of its form. Learned positions, layer norms, one matrix for Q, K and V, GELU.
 * Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_POSITIONS,
    ROWS_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROWS_NORM("attn_norm", attn_norm),
    ROWS_QKV_OR_FUSED,
    ROWS_ATTN_OUT,
    ROWS_NORM("ffn_norm", ffn_norm),
    ROWS_FFN_PLAIN,
};

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.norm = NORM_LAYER, .act = FFN_GELU, .no_rope_step = 1});
}

const struct arch arch_gpt2 = {
    .name = "gpt2",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = build,
};
