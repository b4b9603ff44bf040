/*
 * dbrx: DBRX. Layer norms without bias, one matrix for Q, K and V whose results are clamped, experts in
 * every layer. Source: Hugging Face transformers, DbrxForCausalLM.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV_OR_FUSED,
    ROWS_ATTN_OUT,
    ROW_NORM("attn_output_norm", ffn_norm, D_EMBD),
    ROWS_EXPERTS,
};

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.norm = NORM_LAYER,
                                       .experts.norm = true,
                                       .clamp_qkv = b->m->hp.clamp_qkv});
}

const struct arch arch_dbrx = {
    .name = "dbrx",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .keys = decoder_keys_experts,
    .build = build,
};
