/*
 * granitehybrid: Granite 4 with Mamba-2 in most layers and attention in the others. Experts, factors and positions as
 * in granitemoe, but for a logit scale that may be missing. Source: IBM's Granite 4.0 model cards.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROWS_ROPE_FACTORS,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV_OF(ATTENTION_LAYERS),
    ROWS_MAMBA2(RECURRENT_LAYERS, false),
    ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_FFN,
    ROWS_EXPERTS,
    ROWS_SHARED_OPTIONAL,
};

static enum status keys(struct hparams *hp, const struct gguf *g, struct err *e)
{
    enum status st = decoder_keys_experts(hp, g, e);

    hparams_recurrent_without_kv(hp);
    return st ? st : hparams_read_ssm(hp, g, "granitehybrid", SSM_MAMBA2, e);
}

static void build(struct build *b)
{
    const struct hparams *hp = &b->m->hp;

    decoder_build(b,
                  &(struct decoder){.embd_scale = hp->embd_scale,
                                    .residual_scale = hp->residual_scale,
                                    .logit_scale = hp->logit_scale != 0 ? 1 / hp->logit_scale : 0,
                                    .attn_scale = hp->attn_scale,
                                    .experts.norm = true,
                                    .no_rope_step = hp->rope_finetuned ? 0 : 1});
}

const struct arch arch_granitehybrid = {
    .name = "granitehybrid",
    .rope = ROPE_NORM,
    .partial = true,
    DECODER_TABLE(tensors),
    .keys = keys,
    .check = decoder_check_factors,
    .build = build,
};
