#include "runtime/models/decoder.h"

#include <math.h>
#include <stdio.h>

#include "gguf/base/text.h"

/* ---- checks ---- */

static enum status arch_key(const struct gguf *g, const char *name, char key[128], struct err *e)
{
    struct gguf_str arch = {0};
    enum status st = gguf_get_str(g, "general.architecture", true, &arch, e);

    if (!st)
        snprintf(key, 128, "%.*s.%s", (int)arch.n, arch.p, name);
    return st;
}

enum status decoder_refuse(const struct gguf *g, const char *name, const char *what, struct err *e)
{
    uint32_t v = 0;
    char key[128];
    enum status st = arch_key(g, name, key, e);

    if (!st)
        st = gguf_get_u32(g, key, false, &v, e);
    if (!st && v)
        st = err_set(e, ST_UNSUPPORTED, "key '%s' is %u: %s are not supported yet", key, v, what);
    return st;
}

enum status decoder_check_dense(const struct hparams *hp, const struct gguf *g, struct err *e)
{
    (void)hp;
    return decoder_refuse(g, "expert_count", "mixtures of experts", e);
}

enum status decoder_keys_experts(struct hparams *hp, const struct gguf *g, struct err *e)
{
    struct gguf_str name = {0};
    char arch[64];
    enum status st = gguf_get_str(g, "general.architecture", true, &name, e);

    snprintf(arch, sizeof arch, "%.*s", (int)name.n, name.p ? name.p : "");
    return st ? st : hparams_read_experts(hp, g, arch, e);
}

enum status decoder_check_factors(const struct hparams *hp, const struct gguf *g, struct err *e)
{
    char key[128];
    enum status st = arch_key(g, "rope.scaling.type", key, e);

    if (!st && hp->rope_scaling == ROPE_SCALING_LONGROPE &&
        !gguf_find_tensor(g, "rope_freqs.weight") &&
        (!gguf_find_tensor(g, "rope_factors_long.weight") ||
         !gguf_find_tensor(g, "rope_factors_short.weight")))
        st = err_set(e, ST_MODEL,
                     "key '%s' is longrope, but tensor 'rope_factors_long.weight' or "
                     "'rope_factors_short.weight' is missing",
                     key);
    return st;
}

enum status decoder_check_dense_factors(const struct hparams *hp, const struct gguf *g,
                                        struct err *e)
{
    enum status st = decoder_check_dense(hp, g, e);

    return st ? st : decoder_check_factors(hp, g, e);
}

/* ---- graph ---- */

static struct tensor *scaled(struct build *b, struct tensor *x, float s)
{
    return s != 0 && s != 1 ? op_scale(b->g, x, s, 0) : x;
}

/* A norm of x before attention, network or output. */
static struct tensor *pre_norm(struct build *b, const struct decoder *d, struct tensor *x,
                               struct tensor *w, struct tensor *bias, const char *name, uint32_t il)
{
    return w || d->bare_norms ? named(block_norm(b, d->norm, x, w, bias), "%s-%u", name, il) : x;
}

/* An optional norm of what they give. */
static struct tensor *post_norm(struct build *b, const struct decoder *d, struct tensor *x,
                                struct tensor *w, const char *name, uint32_t il)
{
    return w ? named(block_norm(b, d->norm, x, w, NULL), "%s-%u", name, il) : x;
}

static struct tensor *rope_factors(const struct build *b, const struct decoder_globals *w)
{
    if (w->rope_freqs)
        return w->rope_freqs;
    return b->kv->n_ctx > b->m->hp.rope_n_ctx_orig ? w->rope_long : w->rope_short;
}

static struct block_attn_in shared_inputs(struct build *b, const struct decoder *d)
{
    const struct hparams *hp = &b->m->hp;
    struct block_attn_in in = {
        .pos = input_pos(b->in, b->g, b->f),
        .kv_rows = input_kv_rows(b->in, b->g, b->f),
        .n_rows = b->f->n_kv,
        .mask = d->alibi > 0 ? input_alibi_mask(b->in, b->g, b->f) : input_mask(b->in, b->g, b->f),
        .freqs = rope_factors(b, arch_globals(b->m)),
        .softcap = d->attn_softcap,
        .max_bias = d->alibi,
        .scale = d->attn_scale != 0 ? d->attn_scale : 1 / sqrtf((float)hp->n_embd_head_k),
        .clamp_qkv = d->clamp_qkv,
        .q_scale = d->q_scale,
        .norm = d->norm,
        .norm_after_rope = d->norm_after_rope,
        .unit_norm = d->unit_norm,
        .gated = d->gated,
    };

    if (b->kv->n_streams > 1) {
        in.cells = input_kv_cells(b->in, b->g, b->f);
        in.n_seqs = b->f->n_seqs;
        in.n_rows = b->kv->n_cells * b->kv->n_streams;
    }
    block_rope_params(&in.rope, hp, d->rope_neox ? ROPE_NEOX : b->m->arch->rope);
    return in;
}

static bool has_windows(const struct hparams *hp)
{
    for (uint32_t il = 0; il < hp->n_layer; il++) {
        if (hp->layer[il].windowed)
            return true;
    }
    return false;
}

/* The same for layers that see a window only. */
static struct block_attn_in window_inputs(struct build *b, const struct decoder *d,
                                          const struct block_attn_in *shared)
{
    struct block_attn_in in = *shared;

    if (!has_windows(&b->m->hp))
        return in;
    in.mask = input_window_mask(b->in, b->g, b->f);
    if (b->kv->n_ring < b->kv->n_cells) {
        in.kv_rows = input_ring_rows(b->in, b->g, b->f);
        in.cells = input_ring_cells(b->in, b->g, b->f);
        in.n_seqs = b->f->n_seqs;
        in.n_rows = b->kv->n_ring * b->kv->n_streams;
    }
    in.rope.base = b->m->hp.rope_base_window;
    if (d->window_unscaled) {
        in.rope.freq_scale = in.rope.attn_factor = 1;
        in.rope.ext_factor = 0;
    }
    return in;
}

/* Rows of the table, or what is given in their place. */
static struct tensor *embeddings(struct build *b, const struct decoder *d,
                                 const struct decoder_globals *w)
{
    struct tensor *x;

    if (!(b->f->carriers & CARRIER_EMBD))
        return scaled(b, op_get_rows(b->g, w->tok_embd, input_tokens(b->in, b->g, b->f)),
                      d->embd_scale);
    x = input_embd(b->in, b->g, b->f, b->m->hp.n_embd);
    return d->embd_scale_ids ? x : scaled(b, x, d->embd_scale);
}

static struct tensor *embed(struct build *b, const struct decoder *d,
                            const struct decoder_globals *w)
{
    struct tensor *x = embeddings(b, d, w);

    if (w->tok_norm)
        x = block_norm(b, d->norm, x, w->tok_norm, w->tok_norm_b);
    if (w->pos_embd)
        x = op_add(b->g, x, op_get_rows(b->g, w->pos_embd, input_pos(b->in, b->g, b->f)));
    return named(x, "embd");
}

static struct tensor *attention(struct build *b, const struct block_attn_in *in, struct tensor *x,
                                uint32_t il)
{
    const struct decoder_layer *l = arch_layer(b->m, il);
    const struct layer_hparams *hp = &b->m->hp.layer[il];
    struct tensor *y = hp->recurrent ? block_recurrent(b, &l->recurrent, x, il) : NULL, *z;

    if (!hp->n_head_kv)
        return y;
    z = l->latent.kv_a ? block_latent(b, &l->latent, in, x, il)
                       : block_attn(b, &l->attn, in, x, il);
    return hp->recurrent ? op_add(b->g, z, y) : z;
}

static bool has_attention(const struct layer_hparams *l)
{
    return l->n_head_kv || l->recurrent;
}

static bool has_network(const struct layer_hparams *l)
{
    return l->n_ff || l->experts;
}

static struct tensor *network(struct build *b, const struct decoder *d, struct tensor *x,
                              uint32_t il)
{
    const struct decoder_layer *l = arch_layer(b->m, il);

    if (b->m->hp.layer[il].experts)
        return block_experts(b, &l->experts, &d->experts, x, il);
    return block_ffn(b, &l->ffn, d->act, x, il);
}

static bool is_last(const struct build *b, uint32_t il)
{
    return il == b->m->hp.n_layer - 1;
}

/*
 * What attention and network add to x, each from a norm of x. The last layer cuts x to the rows that are
 * read: `ids`.
 */
static struct tensor *parallel_layer(struct build *b, const struct decoder *d,
                                     const struct block_attn_in *in, struct tensor *x,
                                     struct tensor *ids, uint32_t il)
{
    const struct decoder_layer *l = arch_layer(b->m, il);
    struct tensor *z = pre_norm(b, d, x, l->attn_norm, l->attn_norm_b, "attn_norm", il), *y = z;

    if (l->attn_norm_2)
        y = pre_norm(b, d, x, l->attn_norm_2, l->attn_norm_2_b, "attn_norm_2", il);
    y = attention(b, in, y, il);
    if (l->ffn_norm)
        z = pre_norm(b, d, x, l->ffn_norm, l->ffn_norm_b, "ffn_norm", il);
    if (is_last(b, il)) {
        x = op_get_rows(b->g, x, ids);
        y = op_get_rows(b->g, y, ids);
        z = op_get_rows(b->g, z, ids);
    }
    z = network(b, d, z, il);
    return op_add(b->g, op_add(b->g, z, y), x);
}

static struct tensor *serial_layer(struct build *b, const struct decoder *d,
                                   const struct block_attn_in *in, struct tensor *x,
                                   struct tensor *ids, uint32_t il)
{
    const struct decoder_layer *l = arch_layer(b->m, il);
    const struct layer_hparams *hp = &b->m->hp.layer[il];
    struct tensor *y = pre_norm(b, d, x, l->attn_norm, l->attn_norm_b, "attn_norm", il);

    y = has_attention(hp) ? attention(b, in, y, il) : network(b, d, y, il);
    if (is_last(b, il)) { /* what follows works row by row: leave out rows nobody reads */
        y = op_get_rows(b->g, y, ids);
        x = op_get_rows(b->g, x, ids);
    }
    y = post_norm(b, d, y, l->attn_post_norm, "attn_post_norm", il);
    x = named(op_add(b->g, scaled(b, y, d->residual_scale), x), "ffn_inp-%u", il);
    if (!has_attention(hp) || !has_network(hp))
        return x;
    y = pre_norm(b, d, x, l->ffn_norm, l->ffn_norm_b, "ffn_norm", il);
    y = network(b, d, y, il);
    y = post_norm(b, d, y, l->ffn_post_norm, "ffn_post_norm", il);
    return op_add(b->g, scaled(b, y, d->residual_scale), x);
}

/* The last layer of a micro-batch without outputs: only what later ones read. */
static void store_only(struct build *b, const struct decoder *d, const struct block_attn_in *in,
                       struct tensor *x, uint32_t il)
{
    const struct decoder_layer *l = arch_layer(b->m, il);
    const struct layer_hparams *hp = &b->m->hp.layer[il];
    struct tensor *y = l->attn_norm_2
                           ? pre_norm(b, d, x, l->attn_norm_2, l->attn_norm_2_b, "attn_norm_2", il)
                           : pre_norm(b, d, x, l->attn_norm, l->attn_norm_b, "attn_norm", il);

    if (hp->recurrent)
        block_recurrent(b, &l->recurrent, y, il);
    if (!hp->n_head_kv)
        return;
    if (l->latent.kv_a)
        block_latent_store(b, &l->latent, in, y, il);
    else
        block_attn_store(b, &l->attn, in, y, il);
}

static void logits(struct build *b, const struct decoder *d, struct tensor *x)
{
    const struct decoder_globals *w = arch_globals(b->m);

    x = named(block_norm(b, d->norm, x, w->output_norm, w->output_norm_b), "result_norm");
    x = scaled(b, block_linear(b, w->output, w->output_b, x), d->logit_scale);
    if (b->m->hp.softcap_logits > 0)
        x = op_softcap(b->g, named(x, "logits"), b->m->hp.softcap_logits);
    b->logits = output(named(x, "result_output"));
    graph_expand(b->g, b->logits);
}

void decoder_build(struct build *b, const struct decoder *d)
{
    const struct hparams *hp = &b->m->hp;
    struct tensor *x = embed(b, d, arch_globals(b->m)), *ids = NULL;
    struct block_attn_in global = shared_inputs(b, d), local = window_inputs(b, d, &global);

    if (b->f->n_outputs)
        ids = input_out_ids(b->in, b->g, b->f);
    for (uint32_t il = 0; il < hp->n_layer; il++) {
        struct block_attn_in in = hp->layer[il].windowed ? local : global;

        in.no_rope = (d->no_rope_step && (il + 1) % d->no_rope_step == 0) ||
                     (d->rope_windows_only && !hp->layer[il].windowed);
        if (d->scale_unrotated && !in.no_rope)
            in.q_scale = NULL;
        if (is_last(b, il) && !b->f->n_outputs) {
            store_only(b, d, &in, x, il);
            return;
        }
        x = (d->parallel ? parallel_layer : serial_layer)(b, d, &in, x, ids, il);
        named(x, "l_out-%u", il);
    }
    logits(b, d, x);
}

void decoder_build_plain(struct build *b)
{
    decoder_build(b, &(struct decoder){0});
}
