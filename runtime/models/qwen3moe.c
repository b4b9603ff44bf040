/*
 * qwen3moe: Qwen 3 with experts. As qwen3, with experts in every layer. Source: arXiv:2505.09388.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,         ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED, ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,           ROWS_QK_NORM(D_HEAD_K, D_HEAD_K),
    ROWS_ATTN_OUT,      ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_EXPERTS,
};

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.experts.norm = true});
}

const struct arch arch_qwen3moe = {
    .name = "qwen3moe",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .keys = decoder_keys_experts,
    .build = build,
};
