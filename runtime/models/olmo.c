/*
 * olmo: OLMo 1. As llama, with layer norms without weights and (by a key) clamped Q, K and V.
 * Source: arXiv:2402.00838.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS, ROW_OUTPUT_OR_TIED, ROWS_QKV, ROWS_ATTN_OUT, ROWS_FFN,
};

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){
                         .norm = NORM_LAYER, .bare_norms = true, .clamp_qkv = b->m->hp.clamp_qkv});
}

const struct arch arch_olmo = {
    .name = "olmo",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = build,
};
