/*
 * mpt: MPT 7B and 30B, and models of its form. ALiBi (by a key; some have learned positions), layer norms, one
 * matrix for Q, K and V whose results are clamped (by a key), GELU; some have layer norms of all heads of Q
 * and of K together. With AWQ what GELU gives is divided by a scale per channel.
 * Source: MosaicML NLP Team, "Introducing MPT-7B", 2023.
 */
#include "runtime/models/decoder.h"

/* clang-format off */
static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    {"position_embd.weight", DG(pos_embd), {D_EMBD, D_CTX}, USE_ROWS, PLACE_INPUT, .optional = true},
    ROWS_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROWS_NORM("attn_norm", attn_norm),
    ROWS_QKV_OR_FUSED,
    ROW_OPTIONAL_NORM("attn_q_norm", attn.q_norm), ROW_BIAS("attn_q_norm", attn.q_norm_b, D_EMBD),
    ROW_OPTIONAL_NORM("attn_k_norm", attn.k_norm), ROW_BIAS("attn_k_norm", attn.k_norm_b, D_EMBD),
    ROWS_ATTN_OUT,
    ROWS_NORM("ffn_norm", ffn_norm),
    ROWS_FFN_PLAIN,
    {"blk.%d.ffn.act.scales", DL(ffn.act_scale), {D_FF}, USE_VECTOR, PLACE_LAYER, .optional = true},
};
/* clang-format on */

/* The norm of K has the width of Q in files. */
static enum status check(const struct hparams *hp, const struct gguf *g, struct err *e)
{
    if (gguf_find_tensor(g, "blk.0.attn_q_norm.weight") && hp->n_head_kv != hp->n_head)
        return err_set(e, ST_UNSUPPORTED,
                       "key 'mpt.attention.head_count_kv' is %u and there are norms of Q and K: "
                       "expected head_count %u",
                       hp->n_head_kv, hp->n_head);
    return decoder_check_dense(hp, g, e);
}

static void build(struct build *b)
{
    const struct hparams *hp = &b->m->hp;

    decoder_build(b, &(struct decoder){.norm = NORM_LAYER,
                                       .act = FFN_GELU,
                                       .clamp_qkv = hp->clamp_qkv,
                                       .no_rope_step = 1,
                                       .alibi = hp->max_alibi_bias});
}

const struct arch arch_mpt = {
    .name = "mpt",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .check = check,
    .build = build,
};
