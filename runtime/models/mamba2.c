/*
 * mamba2: Mamba-2 and Codestral Mamba. As mamba, with heads that decay as one, in groups that share B and C.
 * Source: arXiv:2405.21060.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_MAMBA2(RECURRENT_LAYERS, false),
};

static enum status keys(struct hparams *hp, const struct gguf *g, struct err *e)
{
    hparams_recurrent_only(hp);
    return hparams_read_ssm(hp, g, "mamba2", SSM_MAMBA2, e);
}

const struct arch arch_mamba2 = {
    .name = "mamba2",
    .rope = ROPE_NORM,
    .partial = true,
    DECODER_TABLE(tensors),
    .keys = keys,
    .build = decoder_build_plain,
};
