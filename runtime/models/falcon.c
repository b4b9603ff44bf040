/*
 * falcon: Falcon 7B, 40B and 180B. Attention and network work side by side, from one layer norm or (40B) one
 * each. Source: arXiv:2311.16867.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROWS_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROWS_NORM("attn_norm", attn_norm),
    ROW_OPTIONAL_NORM("attn_norm_2", attn_norm_2),
    ROW_BIAS("attn_norm_2", attn_norm_2_b, D_EMBD),
    ROWS_QKV_OR_FUSED,
    ROWS_ATTN_OUT,
    ROWS_FFN_PLAIN,
};

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.norm = NORM_LAYER, .act = FFN_GELU, .parallel = true});
}

const struct arch arch_falcon = {
    .name = "falcon",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = build,
};
