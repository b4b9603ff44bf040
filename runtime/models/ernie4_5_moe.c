/*
 * ernie4_5-moe: ERNIE 4.5 with experts, after dense layers and in every n-th; a bias of selection, and in
 * some a network for every token. Source: ERNIE 4.5 Technical Report, 2025.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,
    ROWS_ATTN_OUT,
    ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_FFN,
    ROWS_EXPERTS,
    ROW_SELECTION_BIAS,
    ROWS_SHARED_OPTIONAL,
};

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.experts.norm = true});
}

const struct arch arch_ernie4_5_moe = {
    .name = "ernie4_5-moe",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .keys = decoder_keys_experts,
    .build = build,
};
