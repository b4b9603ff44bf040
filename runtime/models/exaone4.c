/*
 * exaone4: EXAONE 4.0. Norms come after attention and feed-forward network, and one of each head of Q and
 * K before RoPE. In the 32B model three of four layers see a window; the others do not rotate.
 * Source: arXiv:2507.11407.
 */
#include "runtime/models/decoder.h"

/* clang-format off */
static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROW_ROPE_FACTORS("rope_freqs", rope_freqs),
    ROWS_QKV,
    ROWS_QK_NORM(D_HEAD_K, D_HEAD_K),
    ROWS_ATTN_OUT,
    ROW_NORM("post_attention_norm", attn_post_norm, D_EMBD),
    ROWS_FFN,
    ROW_NORM("post_ffw_norm", ffn_post_norm, D_EMBD),
};
/* clang-format on */

/* The 32B model has windows whether its keys say so or not. */
static enum status keys(struct hparams *hp, const struct gguf *g, struct err *e)
{
    hp->rope_base_window = hp->rope_base;
    hp->n_window = hp->n_layer == 64 ? 4096 : 0;
    return hparams_read_window(hp, g, "exaone4", 4, e);
}

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.rope_windows_only = b->m->hp.n_window > 0});
}

const struct arch arch_exaone4 = {
    .name = "exaone4",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .keys = keys,
    .check = decoder_check_dense,
    .build = build,
};
