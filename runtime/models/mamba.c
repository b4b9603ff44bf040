/*
 * mamba: Mamba and Falcon Mamba (which normalises time steps, B and C). No attention and no network: a layer
 * is one recurrence. Source: arXiv:2312.00752.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_MAMBA(RECURRENT_LAYERS),
};

static enum status keys(struct hparams *hp, const struct gguf *g, struct err *e)
{
    hparams_recurrent_only(hp);
    return hparams_read_ssm(hp, g, "mamba", SSM_MAMBA, e);
}

const struct arch arch_mamba = {
    .name = "mamba",
    .rope = ROPE_NORM,
    .partial = true,
    DECODER_TABLE(tensors),
    .keys = keys,
    .build = decoder_build_plain,
};
