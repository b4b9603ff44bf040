/*
 * qwen3next: Qwen 3 Next. Three of four layers are gated delta nets, the fourth is attention with a gate of what it
 * gives and norms of the heads of Q and K; experts, and one of every token, weighted by a sigmoid.
 * Sources: arXiv:2412.06464; Hugging Face transformers, Qwen3NextForCausalLM.
 */
#include "runtime/models/qwen_delta.h"

static const struct arch_tensor tensors[] = {
    ROWS_QWEN_DELTA,
    ROW_REC_MATRIX("ssm_ba", ba, D_EMBD, D_RANK_2, RECURRENT_LAYERS),
    ROWS_QWEN_DELTA_EXPERTS,
};

static enum status keys(struct hparams *hp, const struct gguf *g, struct err *e)
{
    return qwen_delta_keys(hp, g, "qwen3next", SSM_DELTA, e);
}

const struct arch arch_qwen3next = {
    .name = "qwen3next",
    .rope = ROPE_NEOX,
    .partial = true,
    DECODER_TABLE(tensors),
    .keys = keys,
    .build = qwen_delta_build,
};
