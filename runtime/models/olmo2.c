/*
 * olmo2: OLMo 2 and 3. Norms come after attention and feed-forward network; the whole rows of Q and K are
 * normalised before RoPE. In OLMo 3 three of four layers see a window, and rotate without YaRN.
 * Source: arXiv:2501.00656.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT,
    ROWS_QKV,
    ROWS_QK_NORM(D_Q, D_K),
    ROWS_ATTN_OUT,
    ROW_NORM("post_attention_norm", attn_post_norm, D_EMBD),
    ROWS_FFN,
    ROW_NORM("post_ffw_norm", ffn_post_norm, D_EMBD),
};

/* Without the key no layer has a window. */
static enum status keys(struct hparams *hp, const struct gguf *g, struct err *e)
{
    hp->rope_base_window = hp->rope_base;
    return hparams_read_window(hp, g, "olmo2", 4, e);
}

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.window_unscaled = true});
}

const struct arch arch_olmo2 = {
    .name = "olmo2",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .keys = keys,
    .check = decoder_check_dense,
    .build = build,
};
