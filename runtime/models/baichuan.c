/*
 * baichuan: Baichuan 7B and 13B. As llama. No key tells the models apart, the number of layers does: with 32
 * there is RoPE, with 40 (13B) there is ALiBi instead, with any other there are no positions.
 * Source: arXiv:2309.10305.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,
    ROWS_ATTN_OUT,
    ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_FFN,
};

#define LAYERS_7B  32
#define LAYERS_13B 40

static void build(struct build *b)
{
    uint32_t n_layer = b->m->hp.n_layer;

    decoder_build(b, &(struct decoder){.no_rope_step = n_layer == LAYERS_7B ? 0 : 1,
                                       .alibi = n_layer == LAYERS_13B ? 8.0f : 0.0f});
}

const struct arch arch_baichuan = {
    .name = "baichuan",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = build,
};
