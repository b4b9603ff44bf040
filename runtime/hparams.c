#include "runtime/hparams.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "gguf/base/text.h"
#include "runtime/hparams_keys.h"

/* ---- groups of keys ---- */

static void read_vocab_size(struct keys *k, struct hparams *hp)
{
    const struct gguf_kv *tokens = gguf_find(k->g, "tokenizer.ggml.tokens");
    const struct gguf_tensor *embd = gguf_find_tensor(k->g, "token_embd.weight");
    bool given = keys_has(k, "vocab_size");

    keys_u32(k, "vocab_size", false, given ? 1 : 0, N_MAX, &hp->n_vocab);
    if (k->st)
        return;
    if (tokens && tokens->type == GGUF_ARR) {
        if (given && tokens->n != hp->n_vocab)
            k->st = err_set(k->e, ST_MODEL,
                            "key '%s' is %u, but 'tokenizer.ggml.tokens' has %llu entries", k->key,
                            hp->n_vocab, (unsigned long long)tokens->n);
        else if (tokens->n < 1 || tokens->n > N_MAX)
            k->st = err_set(k->e, ST_MODEL,
                            "key 'tokenizer.ggml.tokens' has %llu entries, expected 1 to %u",
                            (unsigned long long)tokens->n, N_MAX);
        else
            hp->n_vocab = (uint32_t)tokens->n;
    } else if (!given && embd && embd->ne[1] <= N_MAX) {
        hp->n_vocab = (uint32_t)embd->ne[1];
    }
    if (!k->st && !hp->n_vocab)
        k->st =
            err_set(k->e, ST_MODEL,
                    "the vocabulary size is not known: neither '%s', nor 'tokenizer.ggml.tokens', "
                    "nor the tensor 'token_embd.weight' says it",
                    k->key);
}

static void check_groups(struct keys *k, const struct hparams *hp)
{
    for (uint32_t il = 0; il < hp->n_layer && !k->st; il++) {
        const struct layer_hparams *l = &hp->layer[il];

        if (l->n_head_kv && (!l->n_head || l->n_head % l->n_head_kv))
            k->st = err_set(k->e, ST_MODEL, "key '%s' is %u, expected a divisor of head_count %u",
                            keys_name(k, "attention.head_count_kv"), l->n_head_kv, l->n_head);
    }
}

/* Sizes of a head follow from the width unless both are given. */
static void read_heads(struct keys *k, struct hparams *hp)
{
    bool derived = !keys_has(k, "attention.key_length") || !keys_has(k, "attention.value_length");

    keys_u32_per_layer(k, hp, "attention.head_count", true, offsetof(struct layer_hparams, n_head),
                       &hp->n_head);
    if (keys_has(k, "attention.head_count_kv")) {
        keys_u32_per_layer(k, hp, "attention.head_count_kv", true,
                           offsetof(struct layer_hparams, n_head_kv), &hp->n_head_kv);
    } else {
        hp->n_head_kv = hp->n_head;
        for (uint32_t il = 0; il < hp->n_layer; il++)
            hp->layer[il].n_head_kv = hp->layer[il].n_head;
    }
    check_groups(k, hp);
    if (k->st)
        return;
    if (derived && hp->n_head && hp->n_embd % hp->n_head) {
        k->st = err_set(k->e, ST_MODEL, "key '%s' is %u, expected a divisor of embedding_length %u",
                        keys_name(k, "attention.head_count"), hp->n_head, hp->n_embd);
        return;
    }
    hp->n_embd_head_k = hp->n_embd_head_v = hp->n_head ? hp->n_embd / hp->n_head : 0;
    keys_u32(k, "attention.key_length", false, hp->n_head ? 1 : 0, N_MAX, &hp->n_embd_head_k);
    keys_u32(k, "attention.value_length", false, hp->n_head ? 1 : 0, N_MAX, &hp->n_embd_head_v);
    if (k->st)
        return;
    if ((uint64_t)hp->n_head * hp->n_embd_head_k > N_MAX ||
        (uint64_t)hp->n_head * hp->n_embd_head_v > N_MAX)
        k->st = err_set(k->e, ST_MODEL, "%u heads of %u (keys) and %u (values) are wider than %u",
                        hp->n_head, hp->n_embd_head_k, hp->n_embd_head_v, N_MAX);
}

static void read_scaling_type(struct keys *k, struct hparams *hp)
{
    static const char *const names[] = {
        [ROPE_SCALING_NONE] = "none",
        [ROPE_SCALING_LINEAR] = "linear",
        [ROPE_SCALING_YARN] = "yarn",
        [ROPE_SCALING_LONGROPE] = "longrope",
    };
    struct gguf_str s = {"linear", 6}; /* what a factor without a type means */
    char quoted[64];

    if (k->st)
        return;
    k->st = gguf_get_str(k->g, keys_name(k, "rope.scaling.type"), false, &s, k->e);
    if (k->st)
        return;
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (s.n == strlen(names[i]) && memcmp(s.p, names[i], s.n) == 0) {
            hp->rope_scaling = (enum rope_scaling)i;
            return;
        }
    }
    k->st =
        err_set(k->e, ST_UNSUPPORTED, "key '%s' is '%s', expected none, linear, yarn or longrope",
                k->key, text_quote(quoted, sizeof quoted, s.p, s.n));
}

static void read_rope(struct keys *k, struct hparams *hp)
{
    float factor = 1;
    bool old = !keys_has(k, "rope.scaling.factor") && keys_has(k, "rope.scale_linear");

    hp->n_rot = hp->n_embd_head_k;
    if (!hp->n_head) /* nothing to rotate */
        hp->n_rot = 0;
    else
        keys_u32(k, "rope.dimension_count", false, 2, hp->n_embd_head_k, &hp->n_rot);
    if (!k->st && hp->n_rot % 2)
        k->st =
            err_set(k->e, ST_MODEL, "key '%s' is %u, expected an even number", k->key, hp->n_rot);
    hp->rope_base = 10000;
    keys_f32(k, "rope.freq_base", false, false, &hp->rope_base);
    read_scaling_type(k, hp);

    /* Some writers put 0 where there is no scaling. */
    keys_f32(k, old ? "rope.scale_linear" : "rope.scaling.factor", false, true, &factor);
    if (!k->st && factor == 0) {
        if (hp->rope_scaling == ROPE_SCALING_YARN)
            k->st = err_set(k->e, ST_MODEL, "key '%s' is 0, expected a number above 0", k->key);
        factor = 1;
    }
    if (!k->st && !isfinite(1 / factor))
        k->st = err_set(k->e, ST_MODEL, "key '%s' is %g, too close to 0", k->key, (double)factor);
    hp->rope_scale = hp->rope_scaling == ROPE_SCALING_NONE ? 1 : 1 / factor;
    hp->rope_n_ctx_orig = hp->n_ctx_train;
    keys_u32(k, "rope.scaling.original_context_length", false, 1, INT32_MAX, &hp->rope_n_ctx_orig);
    hp->rope_attn_factor = 1;
    keys_f32(k, "rope.scaling.attn_factor", false, false, &hp->rope_attn_factor);
}

static void read_yarn(struct keys *k, struct hparams *hp)
{
    bool yarn = hp->rope_scaling == ROPE_SCALING_YARN;

    hp->yarn_ext_factor = yarn ? 1 : 0;
    hp->yarn_beta_fast = 32;
    hp->yarn_beta_slow = 1;
    if (!yarn)
        return;
    keys_f32(k, "rope.scaling.yarn_ext_factor", false, true, &hp->yarn_ext_factor);
    keys_f32(k, "rope.scaling.yarn_beta_fast", false, false, &hp->yarn_beta_fast);
    keys_f32(k, "rope.scaling.yarn_beta_slow", false, false, &hp->yarn_beta_slow);
    keys_f32(k, "rope.scaling.yarn_log_multiplier", false, true, &hp->yarn_log_mul);
    /* The ramp divides by log(base). */
    if (!k->st && !(hp->rope_base > 1))
        k->st = err_set(k->e, ST_MODEL, "key '%s' is %g, expected more than 1 with YaRN scaling",
                        keys_name(k, "rope.freq_base"), (double)hp->rope_base);
}

/* How many pairs of a head turn by each axis of a position (text has one axis). */
static void read_sections(struct keys *k, struct hparams *hp)
{
    const struct gguf_kv *kv = gguf_find(k->g, keys_name(k, "rope.dimension_sections"));

    if (k->st || !kv)
        return;
    if (kv->type != GGUF_ARR || !gguf_type_is_int(kv->elem) || kv->n > 4) {
        k->st = err_set(k->e, ST_MODEL, "key '%s' is not an array of up to 4 integers", k->key);
        return;
    }
    for (uint64_t i = 0; i < kv->n && !k->st; i++) {
        int64_t v = gguf_kv_int(kv, i);

        if (v < 0 || v > hp->n_rot)
            k->st = err_set(k->e, ST_MODEL, "key '%s' has the element %lld, expected 0 to %u",
                            k->key, (long long)v, hp->n_rot);
        else
            hp->rope_sections[i] = (uint32_t)v;
    }
}

static void read_scales(struct keys *k, struct hparams *hp)
{
    keys_f32(k, "embedding_scale", false, true, &hp->embd_scale);
    keys_f32(k, "residual_scale", false, true, &hp->residual_scale);
    keys_f32(k, "logit_scale", false, true, &hp->logit_scale);
    keys_f32(k, "attention.scale", false, true, &hp->attn_scale);
    keys_f32(k, "attention.max_alibi_bias", false, true, &hp->max_alibi_bias);
    keys_f32(k, "attention.clamp_kqv", false, true, &hp->clamp_qkv);
    keys_f32(k, "attention.temperature_scale", false, true, &hp->attn_temp_scale);
}

enum status hparams_read(struct hparams *hp, const struct gguf *g, const char *arch, bool partial,
                         struct err *e)
{
    struct keys k = {.g = g, .arch = arch, .e = e, .partial = partial};

    *hp = (struct hparams){0};
    keys_u32(&k, "context_length", true, 1, INT32_MAX, &hp->n_ctx_train);
    keys_u32(&k, "embedding_length", true, 1, N_MAX, &hp->n_embd);
    keys_u32(&k, "block_count", true, 1, LAYERS_MAX, &hp->n_layer);
    keys_u32_per_layer(&k, hp, "feed_forward_length", true, offsetof(struct layer_hparams, n_ff),
                       &hp->n_ff);
    if (!k.st)
        read_heads(&k, hp);
    keys_f32(&k,
             keys_has(&k, "attention.layer_norm_epsilon") ? "attention.layer_norm_epsilon"
                                                          : "attention.layer_norm_rms_epsilon",
             true, false, &hp->norm_eps);
    if (!k.st)
        read_rope(&k, hp);
    if (!k.st)
        read_yarn(&k, hp);
    hp->rope_finetuned = true;
    if (!k.st)
        k.st = gguf_get_bool(g, keys_name(&k, "rope.scaling.finetuned"), false, &hp->rope_finetuned,
                             e);
    hp->parallel_residual = true;
    if (!k.st)
        k.st = gguf_get_bool(g, keys_name(&k, "use_parallel_residual"), false,
                             &hp->parallel_residual, e);
    read_sections(&k, hp);
    read_scales(&k, hp);
    if (!k.st)
        read_vocab_size(&k, hp);
    return k.st;
}

void hparams_same_layers(struct hparams *hp)
{
    for (uint32_t il = 0; il < hp->n_layer; il++) {
        hp->layer[il].n_ff = hp->n_ff;
        hp->layer[il].n_head = hp->n_head;
        hp->layer[il].n_head_kv = hp->n_head_kv;
    }
}
