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

enum status decoder_check_factors(const struct hparams *hp, const struct gguf *g, struct err *e)
{
    enum status st = decoder_check_dense(hp, g, e);
    char key[128];

    if (!st)
        st = arch_key(g, "rope.scaling.type", key, e);
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

/* ---- graph ---- */

static struct tensor *scaled(struct build *b, struct tensor *x, float s)
{
    return s != 0 && s != 1 ? op_scale(b->g, x, s, 0) : x;
}

/* An optional norm. */
static struct tensor *norm(struct build *b, struct tensor *x, struct tensor *w, const char *fmt,
                           uint32_t il)
{
    char name[TENSOR_NAME];

    if (!w)
        return x;
    snprintf(name, sizeof name, "%s-%u", fmt, il);
    return named(op_rms_norm(b->g, x, w, b->m->hp.norm_eps), "%s", name);
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
        .mask = input_mask(b->in, b->g, b->f),
        .freqs = rope_factors(b, arch_globals(b->m)),
        .softcap = d->attn_softcap,
        .scale = d->attn_scale != 0 ? d->attn_scale : 1 / sqrtf((float)hp->n_embd_head_k),
        .q_scale = d->q_scale,
        .norm_after_rope = d->norm_after_rope,
    };

    block_rope_params(&in.rope, hp, d->rope_neox ? ROPE_NEOX : b->m->arch->rope);
    return in;
}

static bool has_windows(const struct hparams *hp)
{
    for (uint32_t il = 0; il < hp->n_layer; il++) {
        if (hp->windowed[il])
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
    in.rope.base = b->m->hp.rope_base_window;
    if (d->window_unscaled)
        in.rope.freq_scale = 1;
    return in;
}

void decoder_build(struct build *b, const struct decoder *d)
{
    const struct decoder_globals *w = arch_globals(b->m);
    const struct hparams *hp = &b->m->hp;
    uint32_t n_layer = hp->n_layer;
    struct block_attn_in global, local;
    struct tensor *x, *out_ids = NULL;

    x = scaled(b, op_get_rows(b->g, w->tok_embd, input_tokens(b->in, b->g, b->f)), d->embd_scale);
    named(x, "embd");
    global = shared_inputs(b, d);
    local = window_inputs(b, d, &global);
    if (b->f->n_outputs)
        out_ids = input_out_ids(b->in, b->g, b->f);

    for (uint32_t il = 0; il < n_layer; il++) {
        const struct decoder_layer *l = arch_layer(b->m, il);
        struct block_attn_in in = hp->windowed[il] ? local : global;
        struct tensor *y = norm(b, x, l->attn_norm, "attn_norm", il);

        in.no_rope = d->no_rope_step && (il + 1) % d->no_rope_step == 0;
        if (il == n_layer - 1 && !b->f->n_outputs) {
            block_attn_store(b, &l->attn, &in, y, il);
            return;
        }
        y = block_attn(b, &l->attn, &in, y, il);
        if (il == n_layer - 1) { /* what follows works row by row: leave out rows nobody reads */
            y = op_get_rows(b->g, y, out_ids);
            x = op_get_rows(b->g, x, out_ids);
        }
        y = norm(b, y, l->attn_post_norm, "attn_post_norm", il);
        x = named(op_add(b->g, scaled(b, y, d->residual_scale), x), "ffn_inp-%u", il);
        y = norm(b, x, l->ffn_norm, "ffn_norm", il);
        y = block_ffn(b, &l->ffn, d->glu, y, il);
        y = norm(b, y, l->ffn_post_norm, "ffn_post_norm", il);
        x = named(op_add(b->g, scaled(b, y, d->residual_scale), x), "l_out-%u", il);
    }
    x = named(op_rms_norm(b->g, x, w->output_norm, hp->norm_eps), "result_norm");
    x = scaled(b, block_linear(b, w->output, w->output_b, x), d->logit_scale);
    if (hp->softcap_logits > 0)
        x = op_softcap(b->g, named(x, "logits"), hp->softcap_logits);
    b->logits = output(named(x, "result_output"));
    graph_expand(b->g, b->logits);
}

void decoder_build_plain(struct build *b)
{
    decoder_build(b, &(struct decoder){0});
}
