/*
 * llama4: Llama 4 Scout and Maverick, text only. Three of four layers rotate and see a chunk of positions; the
 * fourth sees all, unrotated, with queries that grow with the position. Experts, chosen by a sigmoid that
 * weighs their input, and one for every token. Source: Hugging Face transformers, Llama4ForCausalLM.
 */
#include <math.h>

#include "runtime/models/decoder.h"

#define N_CHUNK      8192   /* positions; not in files */
#define SCALE_FLOOR  8192.0f
#define SCALE_FACTOR 0.1f

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROW_ROPE_FACTORS("rope_freqs", rope_freqs),
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,
    ROWS_ATTN_OUT,
    ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_FFN,
    ROWS_EXPERTS,
    ROWS_SHARED,
};

static enum status keys(struct hparams *hp, const struct gguf *g, struct err *e)
{
    enum status st = decoder_keys_experts(hp, g, e);

    hp->n_window = N_CHUNK;
    hp->window_chunked = true;
    hp->rope_base_window = hp->rope_base;
    hp->experts.n_ff_shared = hp->experts.n_ff;
    return st ? st : hparams_read_window(hp, g, "llama4", 4, e);
}

static enum reuse_reason fits(const struct tensor *t, const struct reuse_facts *f)
{
    return t->ne[2] == f->n_tokens ? REUSE_OK : REUSE_INPUT;
}

static enum status set(struct tensor *t, const struct input_data *d, struct err *e)
{
    enum status st = ST_OK;

    for (int32_t i = 0; i < d->u->n_tokens && !st; i++) {
        float turns = floorf(((float)d->u->pos[i] + 1) / SCALE_FLOOR);
        float s = 1 + SCALE_FACTOR * logf(1 + turns);

        st = tensor_set(t, (size_t)i * t->nb[2], &s, sizeof s, e);
    }
    return st;
}

/* Maverick, told by its 128 experts, does not normalise queries and keys. */
static void build(struct build *b)
{
    static const struct input_ops ops = {"inp_attn_scale", fits, set};
    int64_t ne[3] = {1, 1, b->f->n_tokens};

    decoder_build(b, &(struct decoder){.no_rope_step = 4,
                                       .q_scale = input_add(b->in, b->g, &ops, DT_F32, 3, ne),
                                       .scale_unrotated = true,
                                       .unit_norm = b->m->hp.experts.n_expert != 128,
                                       .experts = {.router = ROUTER_SIGMOID, .weigh_input = true}});
}

const struct arch arch_llama4 = {
    .name = "llama4",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .keys = keys,
    .build = build,
};
