/*
 * phimoe: Phi 3.5 MoE. As phi3, with biases (of norms too) and experts. Source: arXiv:2404.14219.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROWS_OUTPUT_NORM,
    ROW_OUTPUT,
    ROW_OUTPUT_BIAS,
    ROW_ROPE_FACTORS("rope_factors_long", rope_long),
    ROW_ROPE_FACTORS("rope_factors_short", rope_short),
    ROWS_NORM("attn_norm", attn_norm),
    ROWS_QKV_OR_FUSED,
    ROWS_ATTN_OUT,
    ROWS_NORM("ffn_norm", ffn_norm),
    ROWS_EXPERTS,
};

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.experts.norm = true});
}

const struct arch arch_phimoe = {
    .name = "phimoe",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .keys = decoder_keys_experts,
    .check = decoder_check_factors,
    .build = build,
};
