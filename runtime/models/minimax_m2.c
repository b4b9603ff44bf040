/*
 * minimax-m2: MiniMax M2. The whole rows of Q and K are normalised, a part of each head rotates; experts in
 * every layer, chosen by a sigmoid with a bias of selection. Source: Hugging Face, MiniMaxAI/MiniMax-M2.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,         ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED, ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,           ROWS_QK_NORM(D_Q, D_K),
    ROWS_ATTN_OUT,      ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_EXPERTS,       ROW_SELECTION_BIAS,
};

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.experts = {.router = ROUTER_SIGMOID, .norm = true}});
}

const struct arch arch_minimax_m2 = {
    .name = "minimax-m2",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .keys = decoder_keys_experts,
    .build = build,
};
