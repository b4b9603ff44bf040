/*
 * arcee: AFM 4.5B. As llama, with a squared ReLU without a gate. Source: Hugging Face transformers,
 * ArceeForCausalLM.
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
    ROWS_FFN_PLAIN,
};

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.act = FFN_RELU_SQR});
}

const struct arch arch_arcee = {
    .name = "arcee",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense_factors,
    .build = build,
};
