/*
 * qwen2moe: Qwen 1.5 and 2 with experts. As qwen2; besides the experts one network for every token,
 * weighted by a sigmoid. Source: arXiv:2407.10671.
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
    ROWS_EXPERTS,
    ROW_SHARED_GATE,
    ROWS_SHARED,
};

/* Older files do not say how wide the shared network is: as wide as all experts of a token. */
static enum status keys(struct hparams *hp, const struct gguf *g, struct err *e)
{
    enum status st = decoder_keys_experts(hp, g, e);

    if (!st && !hp->experts.n_ff_shared)
        hp->experts.n_ff_shared = hp->n_ff;
    return st;
}

const struct arch arch_qwen2moe = {
    .name = "qwen2moe",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .keys = keys,
    .build = decoder_build_plain,
};
