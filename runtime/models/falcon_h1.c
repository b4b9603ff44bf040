/*
 * falcon-h1: Falcon-H1. Every layer has attention and Mamba-2 side by side, from one norm, and adds up what they
 * give. Factors of activations are in the weights. Source: arXiv:2507.22448.
 */
#include "runtime/models/decoder.h"

/* clang-format off */
static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROW_ROPE_FACTORS("rope_freqs", rope_freqs),
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,
    ROWS_ATTN_OUT,
    ROWS_MAMBA2(RECURRENT_LAYERS, true),
    {"blk.%d.ffn_norm", DL(ffn_norm), {D_EMBD}, USE_VECTOR, PLACE_LAYER}, /* so in files, without .weight */
    ROWS_FFN,
};
/* clang-format on */

static enum status keys(struct hparams *hp, const struct gguf *g, struct err *e)
{
    for (uint32_t il = 0; il < hp->n_layer; il++)
        hp->layer[il].recurrent = true;
    return hparams_read_ssm(hp, g, "falcon-h1", SSM_MAMBA2, e);
}

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.attn_scale = b->m->hp.attn_scale});
}

const struct arch arch_falcon_h1 = {
    .name = "falcon-h1",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .keys = keys,
    .check = decoder_check_dense,
    .build = build,
};
