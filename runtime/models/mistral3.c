/*
 * mistral3: Ministral 3 and Mistral Small 3. As llama; where the file has a temperature scale t, Q is
 * multiplied by 1 + t ln(1 + floor(position / original context)), 1 within the original context.
 */
#include <math.h>

#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROWS_ROPE_FACTORS,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,
    ROWS_ATTN_OUT,
    ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_FFN,
    ROWS_EXPERTS,
};

static enum reuse_reason fits(const struct tensor *t, const struct reuse_facts *f)
{
    return t->ne[2] == f->n_tokens ? REUSE_OK : REUSE_INPUT;
}

static enum status set(struct tensor *t, const struct input_data *d, struct err *e)
{
    enum status st = ST_OK;

    for (int32_t i = 0; i < d->u->n_tokens && !st; i++) {
        float turns = floorf((float)d->u->pos[i] / (float)d->hp->rope_n_ctx_orig);
        float s = 1 + d->hp->attn_temp_scale * logf(1 + turns);

        st = tensor_set(t, (size_t)i * t->nb[2], &s, sizeof s, e);
    }
    return st;
}

static void build(struct build *b)
{
    static const struct input_ops ops = {"inp_attn_scale", fits, set};
    int64_t ne[3] = {1, 1, b->f->n_tokens};
    struct decoder d = {.attn_scale = b->m->hp.attn_scale, .experts.norm = true};

    if (b->m->hp.attn_temp_scale != 0)
        d.q_scale = input_add(b->in, b->g, &ops, DT_F32, 3, ne);
    decoder_build(b, &d);
}

const struct arch arch_mistral3 = {
    .name = "mistral3",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .keys = decoder_keys_experts,
    .check = decoder_check_factors,
    .build = build,
};
