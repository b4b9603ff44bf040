/*
 * minicpm: MiniCPM 1 and 2. As llama, with factors of embeddings, residuals and (a divisor) logits;
 * files from before these keys mean the values of the 2B model. Source: arXiv:2404.06395, table 7.
 */
#include <math.h>

#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROWS_ROPE_FACTORS,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,
    ROWS_ATTN_OUT,
    ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_FFN,
};

static float given_or(float v, float otherwise)
{
    return v != 0 ? v : otherwise;
}

static void build(struct build *b)
{
    const struct hparams *hp = &b->m->hp;
    float residual = 1.4f / sqrtf((float)hp->n_layer), logit = 256 / (float)hp->n_embd;

    decoder_build(b, &(struct decoder){.embd_scale = given_or(hp->embd_scale, 12),
                                       .residual_scale = given_or(hp->residual_scale, residual),
                                       .logit_scale = 1 / given_or(hp->logit_scale, logit),
                                       .attn_scale = hp->attn_scale});
}

const struct arch arch_minicpm = {
    .name = "minicpm",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense_factors,
    .build = build,
};
