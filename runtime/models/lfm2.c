/*
 * lfm2, lfm2moe: LFM2. Most layers are short gated convolutions, the others attention with norms of the heads of Q
 * and K; with a window, where the file says so. In lfm2moe
 * all but the first layers have experts.
 * Source: arXiv:2511.23404.
 */
#include "runtime/models/decoder.h"

/* The norm before the output has the name of one of the embeddings. */
#define ROWS_LFM2                                                                                  \
    ROW_TOKENS, {"token_embd_norm.weight", DG(output_norm), {D_EMBD}, USE_VECTOR, PLACE_OUTPUT},   \
        ROW_OUTPUT_OR_TIED, ROW_NORM("attn_norm", attn_norm, D_EMBD),                              \
        ROWS_QKV_OF(ATTENTION_LAYERS),                                                             \
        ROW_NORM_OF("attn_q_norm", attn.q_norm, D_HEAD_K, ATTENTION_LAYERS),                       \
        ROW_NORM_OF("attn_k_norm", attn.k_norm, D_HEAD_K, ATTENTION_LAYERS),                       \
        ROWS_SHORTCONV(RECURRENT_LAYERS), ROW_NORM("ffn_norm", ffn_norm, D_EMBD), ROWS_FFN

static const struct arch_tensor dense[] = {ROWS_LFM2};
static const struct arch_tensor experts[] = {ROWS_LFM2, ROWS_EXPERTS, ROW_SELECTION_BIAS};

static enum status keys(struct hparams *hp, const struct gguf *g, struct err *e)
{
    enum status st = hparams_read_ssm(hp, g, "lfm2", SSM_SHORTCONV, e);

    hparams_recurrent_without_kv(hp);
    hp->rope_base_window = hp->rope_base;
    return st ? st : hparams_read_window(hp, g, "lfm2", 0, e);
}

static enum status keys_moe(struct hparams *hp, const struct gguf *g, struct err *e)
{
    enum status st = decoder_keys_experts(hp, g, e);

    hparams_recurrent_without_kv(hp);
    return st ? st : hparams_read_ssm(hp, g, "lfm2moe", SSM_SHORTCONV, e);
}

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.experts = {.router = (enum router)b->m->hp.experts.gating,
                                                   .norm = true}});
}

const struct arch arch_lfm2 = {
    .name = "lfm2",
    .rope = ROPE_NEOX,
    .partial = true,
    DECODER_TABLE(dense),
    .keys = keys,
    .check = decoder_check_dense,
    .build = build,
};

const struct arch arch_lfm2moe = {
    .name = "lfm2moe",
    .rope = ROPE_NEOX,
    .partial = true,
    DECODER_TABLE(experts),
    .keys = keys_moe,
    .build = build,
};
