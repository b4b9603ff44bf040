/*
 * bloom: BLOOM and BLOOMZ. ALiBi, a norm of the embeddings, layer norms, one matrix for Q, K and V, GELU.
 * Source: arXiv:2211.05100.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    {"token_embd_norm.weight", DG(tok_norm), {D_EMBD}, USE_VECTOR, PLACE_INPUT},
    {"token_embd_norm.bias", DG(tok_norm_b), {D_EMBD}, USE_VECTOR, PLACE_INPUT},
    ROWS_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROWS_NORM("attn_norm", attn_norm),
    ROWS_QKV_OR_FUSED,
    ROWS_ATTN_OUT,
    ROWS_NORM("ffn_norm", ffn_norm),
    ROWS_FFN_PLAIN,
};

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){
                         .norm = NORM_LAYER, .act = FFN_GELU, .no_rope_step = 1, .alibi = 8});
}

const struct arch arch_bloom = {
    .name = "bloom",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = build,
};
