/*
 * nemotron: Nemotron 4, Minitron. Layer norms (the files hold the weight + 1 of the published form), biases
 * and a squared ReLU without a gate. Source: arXiv:2402.16819.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROWS_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROWS_NORM("attn_norm", attn_norm),
    ROWS_QKV,
    ROWS_ATTN_OUT,
    ROWS_NORM("ffn_norm", ffn_norm),
    ROWS_FFN_PLAIN,
};

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.norm = NORM_LAYER, .act = FFN_RELU_SQR});
}

const struct arch arch_nemotron = {
    .name = "nemotron",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = build,
};
