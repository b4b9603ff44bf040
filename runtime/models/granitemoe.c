/*
 * granitemoe: Granite 3 and 4 with experts, one of them shared in some. As llama, with factors of embeddings, residuals,
 * q.k and (a divisor) logits from keys; rope.scaling.finetuned false means no positions at all.
 */
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
    ROWS_EXPERTS,
    ROWS_SHARED_OPTIONAL,
};

static enum status check(const struct hparams *hp, const struct gguf *g, struct err *e)
{
    if (hp->logit_scale == 0)
        return err_set(e, ST_MODEL,
                       "key 'granitemoe.logit_scale' is missing or 0, expected a number above 0");
    return decoder_check_factors(hp, g, e);
}

static void build(struct build *b)
{
    const struct hparams *hp = &b->m->hp;

    decoder_build(b, &(struct decoder){.embd_scale = hp->embd_scale,
                                       .residual_scale = hp->residual_scale,
                                       .logit_scale = 1 / hp->logit_scale,
                                       .attn_scale = hp->attn_scale,
                                       .experts.norm = true,
                                       .no_rope_step = hp->rope_finetuned ? 0 : 1});
}

const struct arch arch_granitemoe = {
    .name = "granitemoe",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .keys = decoder_keys_experts,
    .check = check,
    .build = build,
};
