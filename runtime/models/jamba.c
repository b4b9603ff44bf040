/*
 * jamba: Jamba 1.5, 1.6 and Jamba 2. Of eight layers one has attention, without positions, the others are Mamba with
 * norms of time steps, B and C. Some layers have experts: those with a router in the file.
 * Source: arXiv:2403.19887.
 */
#include <stdio.h>

#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV_OF(ATTENTION_LAYERS),
    ROWS_MAMBA(RECURRENT_LAYERS),
    ROW_REC_F32("ssm_dt_norm.weight", dt_norm, D_RANK, D_NONE, RECURRENT_LAYERS, false),
    ROW_REC_F32("ssm_b_norm.weight", b_norm, D_STATE, D_NONE, RECURRENT_LAYERS, false),
    ROW_REC_F32("ssm_c_norm.weight", c_norm, D_STATE, D_NONE, RECURRENT_LAYERS, false),
    ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_FFN,
    ROWS_EXPERTS,
};

static enum status keys(struct hparams *hp, const struct gguf *g, struct err *e)
{
    enum status st = decoder_keys_experts(hp, g, e);

    for (uint32_t il = 0; il < hp->n_layer; il++) {
        char name[64];

        snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.weight", il);
        hp->layer[il].experts &= gguf_find_tensor(g, name) != NULL;
    }
    hparams_recurrent_without_kv(hp);
    return st ? st : hparams_read_ssm(hp, g, "jamba", SSM_MAMBA, e);
}

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.no_rope_step = 1});
}

const struct arch arch_jamba = {
    .name = "jamba",
    .rope = ROPE_NORM,
    .partial = true,
    DECODER_TABLE(tensors),
    .keys = keys,
    .build = build,
};
