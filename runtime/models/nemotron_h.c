/*
 * nemotron_h, nemotron_h_moe: Nemotron-H, Nemotron Nano 2 and 3. A layer is one block, Mamba-2, attention without
 * positions, or a network without a gate; in nemotron_h_moe that is a mixture of experts, one of them shared.
 * Source: arXiv:2504.03624.
 */
#include <stdio.h>

#include "runtime/models/decoder.h"

#define ROWS_NEMOTRON_H                                                                            \
    ROW_TOKENS, ROW_OUTPUT_NORM, ROW_OUTPUT_OR_TIED, ROW_NORM("attn_norm", attn_norm, D_EMBD),     \
        ROWS_QKV_OF(ATTENTION_LAYERS), ROWS_MAMBA2(RECURRENT_LAYERS, false),                       \
        ROW_DENSE("ffn_up", ffn.up, D_EMBD, D_FF),                                                 \
        ROW_BIAS_OF("ffn_up", ffn.up_b, D_FF, DENSE_LAYERS),                                       \
        ROW_DENSE("ffn_down", ffn.down, D_FF, D_EMBD),                                             \
        ROW_BIAS_OF("ffn_down", ffn.down_b, D_EMBD, DENSE_LAYERS)

static const struct arch_tensor dense[] = {ROWS_NEMOTRON_H};
static const struct arch_tensor experts[] = {
    ROWS_NEMOTRON_H,
    ROW_ROUTER,
    ROW_SELECTION_BIAS,
    ROW_EXPERTS("ffn_up", experts.up, D_EMBD, D_FF_EXP),
    ROW_EXPERTS("ffn_down", experts.down, D_FF_EXP, D_EMBD),
    ROW_SHARED("ffn_up", up, D_EMBD, D_FF_SHARED, false),
    ROW_SHARED("ffn_down", down, D_FF_SHARED, D_EMBD, false),
};

/* Layers with a network have nothing else. */
static void set_layers(struct hparams *hp)
{
    for (uint32_t il = 0; il < hp->n_layer; il++) {
        struct layer_hparams *l = &hp->layer[il];

        if (l->n_ff)
            l->n_head_kv = 0;
        l->recurrent = !l->n_ff && !l->n_head_kv;
        l->experts &= l->n_ff > 0;
    }
}

static enum status keys(struct hparams *hp, const struct gguf *g, struct err *e)
{
    set_layers(hp);
    return hparams_read_ssm(hp, g, "nemotron_h", SSM_MAMBA2, e);
}

static enum status keys_moe(struct hparams *hp, const struct gguf *g, struct err *e)
{
    enum status st = decoder_keys_experts(hp, g, e);

    if (!st)
        st = hparams_drop_nextn(hp, g, "nemotron_h_moe", e);
    set_layers(hp);
    return st ? st : hparams_read_ssm(hp, g, "nemotron_h_moe", SSM_MAMBA2, e);
}

static enum status check_moe(const struct hparams *hp, const struct gguf *g, struct err *e)
{
    (void)hp;
    return decoder_refuse(g, "moe_latent_size", "experts of a narrower input", e);
}

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.attn_scale = b->m->hp.attn_scale,
                                       .no_rope_step = 1,
                                       .act = FFN_RELU_SQR,
                                       .experts = {.router = ROUTER_SIGMOID,
                                                   .norm = b->m->hp.experts.weights_norm,
                                                   .act = FFN_RELU_SQR}});
}

const struct arch arch_nemotron_h = {
    .name = "nemotron_h",
    .rope = ROPE_NORM,
    .partial = true,
    DECODER_TABLE(dense),
    .keys = keys,
    .check = decoder_check_dense,
    .build = build,
};

const struct arch arch_nemotron_h_moe = {
    .name = "nemotron_h_moe",
    .rope = ROPE_NORM,
    .partial = true,
    DECODER_TABLE(experts),
    .keys = keys_moe,
    .check = check_moe,
    .build = build,
};
