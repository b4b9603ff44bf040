/*
 * llama: Llama 1 to 3, SmolLM, Mistral, Mixtral, TinyLlama and whoever converts to it. Pre-norm transformer
 * with RMS norms, grouped-query attention, RoPE on pairs (2i, 2i+1) and a SwiGLU feed-forward
 * network, or (Mixtral) experts. Sources: Touvron et al., arXiv:2302.13971; arXiv:2401.04088; tensor names: GGUF specification,
 * "Standardized tensor names".
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROWS_ROPE_FACTORS,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,
    ROWS_ATTN_OUT,
    ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_FFN,
    ROWS_EXPERTS,
};

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.experts.norm = true});
}

const struct arch arch_llama = {
    .name = "llama",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .keys = decoder_keys_experts,
    .check = decoder_check_factors,
    .build = build,
};
