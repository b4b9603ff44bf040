/*
 * glm4: GLM-4-0414 and GLM-Z1. Norms before and after attention and feed-forward network, one matrix for
 * gate and up. Files with sections of RoPE (made for images too) pair elements as ROPE_NEOX; text has one
 * axis, by which all sections but the fourth turn.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV_OR_FUSED,
    ROWS_ATTN_OUT,
    ROW_NORM("post_attention_norm", attn_post_norm, D_EMBD),
    ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_FFN_FUSED,
    ROW_NORM("post_ffw_norm", ffn_post_norm, D_EMBD),
};

static bool has_sections(const struct hparams *hp)
{
    return hp->rope_sections[0] && hp->rope_sections[1];
}

static enum status check(const struct hparams *hp, const struct gguf *g, struct err *e)
{
    const uint32_t *s = hp->rope_sections;

    if (has_sections(hp) && s[0] + s[1] + s[2] < hp->n_rot / 2)
        return err_set(e, ST_UNSUPPORTED,
                       "key 'glm4.rope.dimension_sections' gives %u pairs to the first three axes, "
                       "expected all %u",
                       s[0] + s[1] + s[2], hp->n_rot / 2);
    return decoder_refuse(g, "nextn_predict_layers", "layers that predict further tokens", e);
}

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.rope_neox = has_sections(&b->m->hp)});
}

const struct arch arch_glm4 = {
    .name = "glm4",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .check = check,
    .build = build,
};
