/*
 * phi2: Phi 1.5 and 2. One layer norm for attention and network, which work side by side; a part of each
 * head rotates. Source: Hugging Face transformers, PhiForCausalLM.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROWS_OUTPUT_NORM,
    ROW_OUTPUT,
    ROW_OUTPUT_BIAS,
    ROWS_NORM("attn_norm", attn_norm),
    ROWS_QKV_OR_FUSED,
    ROWS_ATTN_OUT,
    ROWS_FFN_PLAIN,
};

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.norm = NORM_LAYER, .act = FFN_GELU, .parallel = true});
}

const struct arch arch_phi2 = {
    .name = "phi2",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = build,
};
