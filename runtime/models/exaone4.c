/*
 * exaone4: EXAONE 4.0 without windows (1.2B). Norms come after attention and feed-forward network, and
 * one of each head of Q and K before RoPE. Source: arXiv:2507.11407.
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

/* The 32B model has windows and no positions in its full layers, whether its keys say so or not. */
static enum status check(const struct hparams *hp, const struct gguf *g, struct err *e)
{
    if (hp->n_layer == 64)
        return err_set(e, ST_UNSUPPORTED,
                       "key 'exaone4.block_count' is 64: the sliding windows of EXAONE 4.0 32B "
                       "are not supported yet");
    return decoder_refuse(g, "attention.sliding_window", "sliding windows", e);
}

const struct arch arch_exaone4 = {
    .name = "exaone4",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .check = check,
    .build = decoder_build_plain,
};
