/*
 * qwen35, qwen35moe: Qwen 3.5, text only. As qwen3next, with decay and strength of learning from matrices of their
 * own, and heads of values in another order; a plain network or, in qwen35moe, experts. Positions of text are the same on all axes
 * of its RoPE, which is then the usual one. Source: Hugging Face transformers, Qwen3_5ForCausalLM.
 */
#include "runtime/models/qwen_delta.h"

#define ROWS_QWEN35                                                                                \
    ROWS_QWEN_DELTA, ROW_REC_MATRIX("ssm_alpha", alpha, D_EMBD, D_RANK, RECURRENT_LAYERS),         \
        ROW_REC_MATRIX("ssm_beta", beta, D_EMBD, D_RANK, RECURRENT_LAYERS)

static const struct arch_tensor dense[] = {ROWS_QWEN35, ROWS_FFN};
static const struct arch_tensor experts[] = {ROWS_QWEN35, ROWS_QWEN_DELTA_EXPERTS};

static enum status keys(struct hparams *hp, const struct gguf *g, struct err *e)
{
    return qwen_delta_keys(hp, g, "qwen35", SSM_DELTA_TILED, e);
}

static enum status keys_moe(struct hparams *hp, const struct gguf *g, struct err *e)
{
    return qwen_delta_keys(hp, g, "qwen35moe", SSM_DELTA_TILED, e);
}

const struct arch arch_qwen35 = {
    .name = "qwen35",
    .rope = ROPE_NEOX,
    .partial = true,
    DECODER_TABLE(dense),
    .keys = keys,
    .check = decoder_check_dense,
    .build = qwen_delta_build,
};

const struct arch arch_qwen35moe = {
    .name = "qwen35moe",
    .rope = ROPE_NEOX,
    .partial = true,
    DECODER_TABLE(experts),
    .keys = keys_moe,
    .build = qwen_delta_build,
};
