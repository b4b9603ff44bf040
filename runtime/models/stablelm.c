/*
 * stablelm: StableLM 2, StableLM 3B, 12B. As llama, with layer norms and a part of each head rotating; where
 * there is no second norm (12B), attention and network work side by side, and norms of each head's own.
 * Source: Hugging Face transformers, StableLmForCausalLM.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROWS_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROWS_NORM("attn_norm", attn_norm),
    ROWS_QKV,
    ROWS_ATTN_OUT,
    ROW_HEAD_NORMS("attn_q_norm", attn.q_norm, D_N_HEAD),
    ROW_HEAD_NORMS("attn_k_norm", attn.k_norm, D_N_HEAD_KV),
    ROW_OPTIONAL_NORM("ffn_norm", ffn_norm),
    ROW_BIAS("ffn_norm", ffn_norm_b, D_EMBD),
    ROWS_FFN,
};

static void build(struct build *b)
{
    const struct decoder_layer *first = arch_layer(b->m, 0);

    decoder_build(b, &(struct decoder){.norm = NORM_LAYER, .parallel = !first->ffn_norm});
}

const struct arch arch_stablelm = {
    .name = "stablelm",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = build,
};
