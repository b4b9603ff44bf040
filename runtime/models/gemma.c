/*
 * gemma: Gemma 1. Pre-norm transformer with RMS norms, whose weights in files hold the + 1 of the
 * published definition, embeddings scaled by the root of their width, and GEGLU. Sources: Gemma Team,
 * "Gemma: Open Models Based on Gemini Research and Technology", arXiv:2403.08295; tensor names: GGUF
 * specification, "Standardized tensor names".
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
    ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROW_MATRIX("ffn_gate", ffn.gate, D_EMBD, D_FF),
    ROW_MATRIX("ffn_up", ffn.up, D_EMBD, D_FF),
    ROW_MATRIX("ffn_down", ffn.down, D_FF, D_EMBD),
};

static void build(struct build *b)
{
    const struct hparams *hp = &b->m->hp;

    decoder_build(b, &(struct decoder){.embd_scale = sqrtf((float)hp->n_embd),
                                       .embd_scale_ids = true,
                                       .act = FFN_GEGLU});
}

const struct arch arch_gemma = {
    .name = "gemma",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .build = build,
};
