/*
 * deepseek2: DeepSeek V2, V2.5, V3, R1 and models of their form. Latent attention; dense layers first, then
 * experts, in groups in some, and a network for every token. Sources: arXiv:2405.04434, arXiv:2412.19437.
 */
#include <math.h>
#include <stdio.h>

#include "runtime/models/decoder.h"

#define ROW_LATENT(name, field, k, n, may_miss)                                                    \
    {"blk.%d." name ".weight", DL(latent.field), {k, n}, USE_MATRIX, PLACE_LAYER, .optional = may_miss}
#define ROW_LATENT_NORM(name, field, n, may_miss)                                                  \
    {"blk.%d." name ".weight", DL(latent.field), {n}, USE_VECTOR, PLACE_LAYER, .optional = may_miss}

/* clang-format off */
static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    {"blk.%d.attn_q.weight", DL(latent.q), {D_EMBD, D_Q_MLA}, USE_MATRIX, PLACE_LAYER,
     .unless = "blk.%d.attn_q_a.weight"},
    ROW_LATENT("attn_q_a", q_a, D_EMBD, D_Q_LORA, true),
    ROW_LATENT_NORM("attn_q_a_norm", q_a_norm, D_Q_LORA, true),
    ROW_LATENT("attn_q_b", q_b, D_Q_LORA, D_Q_MLA, true),
    ROW_LATENT("attn_kv_a_mqa", kv_a, D_EMBD, D_KV_LATENT, false),
    ROW_LATENT_NORM("attn_kv_a_norm", kv_a_norm, D_KV_LORA, false),
    {"blk.%d.attn_k_b.weight", DL(latent.k_b), {D_NOPE_MLA, D_KV_LORA, D_N_HEAD}, USE_MATRIX, PLACE_LAYER},
    {"blk.%d.attn_v_b.weight", DL(latent.v_b), {D_KV_LORA, D_V_MLA, D_N_HEAD}, USE_MATRIX, PLACE_LAYER},
    ROW_LATENT("attn_output", o, D_O_MLA, D_EMBD, false),
    ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_FFN,
    ROWS_EXPERTS_OR_FUSED,
    ROW_SELECTION_BIAS,
    ROWS_SHARED,
};
/* clang-format on */

/*
 * Files hold a tenth of the log multiplier m. Cos and sin keep magnitude 1; q.k is multiplied by
 * (1 + 0.1 m ln(factor))^2 instead.
 */
static void read_scale(struct hparams *hp)
{
    float m = 1 - hp->yarn_log_mul * logf(hp->rope_scale);

    hp->attn_scale = m * m / sqrtf((float)hp->latent.n_embd_head_k);
    hp->yarn_log_mul = 1;
}

static enum status keys(struct hparams *hp, const struct gguf *g, struct err *e)
{
    enum status st = decoder_keys_experts(hp, g, e);

    if (!st && !gguf_find(g, "deepseek2.attention.key_length_mla"))
        return err_set(e, ST_UNSUPPORTED,
                       "key 'deepseek2.attention.key_length_mla' is missing: files without absorbed "
                       "matrices (attn_k_b, attn_v_b) have to be converted anew");
    if (!st)
        st = hparams_read_latent(hp, g, "deepseek2", e);
    if (!st)
        read_scale(hp);
    return st;
}

/* Half a latent of queries cannot be used. */
static enum status check(const struct hparams *hp, const struct gguf *g, struct err *e)
{
    for (uint32_t il = 0; il < hp->n_layer; il++) {
        static const char *const names[] = {"attn_q_a_norm", "attn_q_b"};
        char name[64];

        snprintf(name, sizeof name, "blk.%u.attn_q_a.weight", il);
        for (int i = 0; i < 2 && gguf_find_tensor(g, name); i++) {
            char other[64];

            snprintf(other, sizeof other, "blk.%u.%s.weight", il, names[i]);
            if (!gguf_find_tensor(g, other))
                return err_set(e, ST_MODEL, "tensor '%s' is missing beside '%s'", other, name);
        }
    }
    return ST_OK;
}

static void build(struct build *b)
{
    const struct hparams_experts *x = &b->m->hp.experts;

    decoder_build(b, &(struct decoder){.attn_scale = b->m->hp.attn_scale,
                                       .experts = {.router = (enum router)x->gating,
                                                   .norm = x->weights_norm}});
}

const struct arch arch_deepseek2 = {
    .name = "deepseek2",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .keys = keys,
    .check = check,
    .build = build,
};
