/*
 * jais: Jais 13B and 30B. ALiBi, layer norms, one matrix for Q, K and V, SwiGLU with biases; q.k is divided by
 * the size of a head, not by its root. Source: arXiv:2308.16149.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROWS_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROWS_NORM("attn_norm", attn_norm),
    ROWS_QKV_OR_FUSED,
    ROWS_ATTN_OUT,
    ROWS_NORM("ffn_norm", ffn_norm),
    ROWS_FFN,
};

static void build(struct build *b)
{
    const struct hparams *hp = &b->m->hp;

    decoder_build(b, &(struct decoder){.norm = NORM_LAYER,
                                       .attn_scale = 1 / (float)hp->n_embd_head_k,
                                       .no_rope_step = 1,
                                       .alibi = hp->max_alibi_bias});
}

const struct arch arch_jais = {
    .name = "jais",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = build,
};
