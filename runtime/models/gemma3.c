/*
 * gemma3: Gemma 3, text only. RMS norms before and after attention and feed-forward network, norms of
 * each head's query and key, GEGLU; of every six layers five see a sliding window only and rotate with
 * a base of their own. In files the norms' weights hold the + 1 of the published definition.
 * Sources: Gemma Team, "Gemma 3 Technical Report", arXiv:2503.19786; tensor names: GGUF specification,
 * "Standardized tensor names".
 */
#include <math.h>

#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROW_MATRIX("attn_q", attn.q, D_EMBD, D_Q),
    ROW_MATRIX("attn_k", attn.k, D_EMBD, D_K),
    ROW_MATRIX("attn_v", attn.v, D_EMBD, D_V),
    ROW_MATRIX("attn_output", attn.o, D_O, D_EMBD),
    ROWS_QK_NORM(D_HEAD_K, D_HEAD_K),
    ROW_NORM("post_attention_norm", attn_post_norm, D_EMBD),
    ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROW_MATRIX("ffn_gate", ffn.gate, D_EMBD, D_FF),
    ROW_MATRIX("ffn_up", ffn.up, D_EMBD, D_FF),
    ROW_MATRIX("ffn_down", ffn.down, D_FF, D_EMBD),
    ROW_NORM("post_ffw_norm", ffn_post_norm, D_EMBD),
};

static enum status keys(struct hparams *hp, const struct gguf *g, struct err *e)
{
    enum status st;

    hp->rope_base_window = 10000;
    st = hparams_read_window(hp, g, "gemma3", 6, e);
    return st ? st : hparams_read_softcaps(hp, g, "gemma3", e);
}

/* The 27B model, told by its depth, divides by its width per head: files have no key for it. */
static float attn_scale(const struct hparams *hp)
{
    float width =
        hp->n_layer == 62 ? (float)hp->n_embd / (float)hp->n_head : (float)hp->n_embd_head_k;

    return 1 / sqrtf(width);
}

static void build(struct build *b)
{
    const struct hparams *hp = &b->m->hp;

    /* a window is never longer than what training saw: its layers need no scaling */
    decoder_build(b, &(struct decoder){.embd_scale = sqrtf((float)hp->n_embd),
                                       .embd_scale_ids = true,
                                       .act = FFN_GEGLU,
                                       .attn_scale = attn_scale(hp),
                                       .window_unscaled = true});
}

const struct arch arch_gemma3 = {
    .name = "gemma3",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .keys = keys,
    .build = build,
};
