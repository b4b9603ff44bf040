#include "runtime/hparams.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "gguf/base/text.h"

#define EXPERTS_MAX 4096       /* as many are refused as damage */
#define N_MAX       (1u << 28) /* no width, head count or vocabulary of a real model comes near */

/* A sticky reader: after the first failure later reads do nothing, so the keys read as a list. */
struct keys {
    const struct gguf *g;
    const char *arch;
    struct err *e;
    enum status st;
    bool partial; /* numbers per layer may be 0 */
    char key[128]; /* of the last read, with the architecture in front */
};

static const char *full_key(struct keys *k, const char *name)
{
    snprintf(k->key, sizeof k->key, "%s.%s", k->arch, name);
    return k->key;
}

static bool has(struct keys *k, const char *name)
{
    return gguf_find(k->g, full_key(k, name)) != NULL;
}

static void check_u32(struct keys *k, uint32_t v, uint32_t lo, uint32_t hi)
{
    if (!k->st && (v < lo || v > hi))
        k->st = err_set(k->e, ST_MODEL, "key '%s' is %u, expected %u to %u", k->key, v, lo, hi);
}

/* *out holds the default; an absent optional key leaves it. */
static void get_u32(struct keys *k, const char *name, bool required, uint32_t lo, uint32_t hi,
                    uint32_t *out)
{
    if (k->st)
        return;
    k->st = gguf_get_u32(k->g, full_key(k, name), required, out, k->e);
    check_u32(k, *out, lo, hi);
}

/* A number for all layers, or an array of one per layer; `field` is its place in struct layer_hparams. */
static void get_u32_per_layer(struct keys *k, struct hparams *hp, const char *name, bool required,
                              size_t field, uint32_t *max)
{
    const struct gguf_kv *kv = k->st ? NULL : gguf_find(k->g, full_key(k, name));
    bool array = kv && kv->type == GGUF_ARR;
    uint32_t least = k->partial ? 0 : 1;

    if (k->st)
        return;
    if (!array)
        get_u32(k, name, required, least, N_MAX, max);
    else if (!gguf_type_is_int(kv->elem) || kv->n != hp->n_layer)
        k->st =
            err_set(k->e, ST_MODEL,
                    "key '%s' is an array of %llu %s, expected one integer or one per layer (%u)",
                    k->key, (unsigned long long)kv->n, gguf_type_name(kv->elem), hp->n_layer);
    else
        *max = 0;
    for (uint32_t il = 0; il < hp->n_layer && !k->st; il++) {
        int64_t v = array ? gguf_kv_int(kv, il) : *max;

        if (v < least || v > N_MAX)
            k->st = err_set(k->e, ST_MODEL, "key '%s' is %lld for layer %u, expected %u to %u",
                            k->key, (long long)v, il, least, N_MAX);
        *(uint32_t *)((char *)&hp->layer[il] + field) = (uint32_t)v;
        *max = v > *max ? (uint32_t)v : *max;
    }
}

/* A finite number above (or, with zero_ok, not below) 0. */
static void get_f32(struct keys *k, const char *name, bool required, bool zero_ok, float *out)
{
    if (k->st)
        return;
    k->st = gguf_get_f32(k->g, full_key(k, name), required, out, k->e);
    if (!k->st && (!isfinite(*out) || *out < 0 || (*out == 0 && !zero_ok)))
        k->st = err_set(k->e, ST_MODEL, "key '%s' is %g, expected a finite number %s 0", k->key,
                        (double)*out, zero_ok ? "not below" : "above");
}

/* ---- groups of keys ---- */

static void read_vocab_size(struct keys *k, struct hparams *hp)
{
    const struct gguf_kv *tokens = gguf_find(k->g, "tokenizer.ggml.tokens");
    const struct gguf_tensor *embd = gguf_find_tensor(k->g, "token_embd.weight");
    bool given = has(k, "vocab_size");

    get_u32(k, "vocab_size", false, given ? 1 : 0, N_MAX, &hp->n_vocab);
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
                            full_key(k, "attention.head_count_kv"), l->n_head_kv, l->n_head);
    }
}

/* Sizes of a head follow from the width unless both are given. */
static void read_heads(struct keys *k, struct hparams *hp)
{
    bool derived = !has(k, "attention.key_length") || !has(k, "attention.value_length");

    get_u32_per_layer(k, hp, "attention.head_count", true, offsetof(struct layer_hparams, n_head),
                      &hp->n_head);
    if (has(k, "attention.head_count_kv")) {
        get_u32_per_layer(k, hp, "attention.head_count_kv", true,
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
                        full_key(k, "attention.head_count"), hp->n_head, hp->n_embd);
        return;
    }
    hp->n_embd_head_k = hp->n_embd_head_v = hp->n_head ? hp->n_embd / hp->n_head : 0;
    get_u32(k, "attention.key_length", false, hp->n_head ? 1 : 0, N_MAX, &hp->n_embd_head_k);
    get_u32(k, "attention.value_length", false, hp->n_head ? 1 : 0, N_MAX, &hp->n_embd_head_v);
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
    k->st = gguf_get_str(k->g, full_key(k, "rope.scaling.type"), false, &s, k->e);
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
    bool old = !has(k, "rope.scaling.factor") && has(k, "rope.scale_linear");

    hp->n_rot = hp->n_embd_head_k;
    if (!hp->n_head) /* nothing to rotate */
        hp->n_rot = 0;
    else
        get_u32(k, "rope.dimension_count", false, 2, hp->n_embd_head_k, &hp->n_rot);
    if (!k->st && hp->n_rot % 2)
        k->st =
            err_set(k->e, ST_MODEL, "key '%s' is %u, expected an even number", k->key, hp->n_rot);
    hp->rope_base = 10000;
    get_f32(k, "rope.freq_base", false, false, &hp->rope_base);
    read_scaling_type(k, hp);

    /* Some writers put 0 where there is no scaling. */
    get_f32(k, old ? "rope.scale_linear" : "rope.scaling.factor", false, true, &factor);
    if (!k->st && factor == 0) {
        if (hp->rope_scaling == ROPE_SCALING_YARN)
            k->st = err_set(k->e, ST_MODEL, "key '%s' is 0, expected a number above 0", k->key);
        factor = 1;
    }
    if (!k->st && !isfinite(1 / factor))
        k->st = err_set(k->e, ST_MODEL, "key '%s' is %g, too close to 0", k->key, (double)factor);
    hp->rope_scale = hp->rope_scaling == ROPE_SCALING_NONE ? 1 : 1 / factor;
    hp->rope_n_ctx_orig = hp->n_ctx_train;
    get_u32(k, "rope.scaling.original_context_length", false, 1, INT32_MAX, &hp->rope_n_ctx_orig);
    hp->rope_attn_factor = 1;
    get_f32(k, "rope.scaling.attn_factor", false, false, &hp->rope_attn_factor);
}

static void read_yarn(struct keys *k, struct hparams *hp)
{
    bool yarn = hp->rope_scaling == ROPE_SCALING_YARN;

    hp->yarn_ext_factor = yarn ? 1 : 0;
    hp->yarn_beta_fast = 32;
    hp->yarn_beta_slow = 1;
    if (!yarn)
        return;
    get_f32(k, "rope.scaling.yarn_ext_factor", false, true, &hp->yarn_ext_factor);
    get_f32(k, "rope.scaling.yarn_beta_fast", false, false, &hp->yarn_beta_fast);
    get_f32(k, "rope.scaling.yarn_beta_slow", false, false, &hp->yarn_beta_slow);
    get_f32(k, "rope.scaling.yarn_log_multiplier", false, true, &hp->yarn_log_mul);
    /* The ramp divides by log(base). */
    if (!k->st && !(hp->rope_base > 1))
        k->st = err_set(k->e, ST_MODEL, "key '%s' is %g, expected more than 1 with YaRN scaling",
                        full_key(k, "rope.freq_base"), (double)hp->rope_base);
}

/* How many pairs of a head turn by each axis of a position (text has one axis). */
static void read_sections(struct keys *k, struct hparams *hp)
{
    const struct gguf_kv *kv = gguf_find(k->g, full_key(k, "rope.dimension_sections"));

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
    get_f32(k, "embedding_scale", false, true, &hp->embd_scale);
    get_f32(k, "residual_scale", false, true, &hp->residual_scale);
    get_f32(k, "logit_scale", false, true, &hp->logit_scale);
    get_f32(k, "attention.scale", false, true, &hp->attn_scale);
    get_f32(k, "attention.max_alibi_bias", false, true, &hp->max_alibi_bias);
    get_f32(k, "attention.clamp_kqv", false, true, &hp->clamp_qkv);
    get_f32(k, "attention.temperature_scale", false, true, &hp->attn_temp_scale);
}

enum status hparams_read(struct hparams *hp, const struct gguf *g, const char *arch, bool partial,
                         struct err *e)
{
    struct keys k = {.g = g, .arch = arch, .e = e, .partial = partial};

    *hp = (struct hparams){0};
    get_u32(&k, "context_length", true, 1, INT32_MAX, &hp->n_ctx_train);
    get_u32(&k, "embedding_length", true, 1, N_MAX, &hp->n_embd);
    get_u32(&k, "block_count", true, 1, LAYERS_MAX, &hp->n_layer);
    get_u32_per_layer(&k, hp, "feed_forward_length", true, offsetof(struct layer_hparams, n_ff),
                      &hp->n_ff);
    if (!k.st)
        read_heads(&k, hp);
    get_f32(&k,
            has(&k, "attention.layer_norm_epsilon") ? "attention.layer_norm_epsilon"
                                                    : "attention.layer_norm_rms_epsilon",
            true, false, &hp->norm_eps);
    if (!k.st)
        read_rope(&k, hp);
    if (!k.st)
        read_yarn(&k, hp);
    hp->rope_finetuned = true;
    if (!k.st)
        k.st =
            gguf_get_bool(g, full_key(&k, "rope.scaling.finetuned"), false, &hp->rope_finetuned, e);
    hp->parallel_residual = true;
    if (!k.st)
        k.st = gguf_get_bool(g, full_key(&k, "use_parallel_residual"), false,
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

/* ---- keys that some architectures share ---- */

/* Layers 0 .. period - 2 of each period have a window, the last one none. */
static void set_pattern(struct hparams *hp, uint32_t period)
{
    for (uint32_t il = 0; il < hp->n_layer; il++)
        hp->layer[il].windowed = period == 0 || il % period < period - 1;
}

/* Is the array, of the key read last, one boolean per layer? */
static bool is_flags(struct keys *k, const struct gguf_kv *kv, uint32_t n_layer)
{
    if ((gguf_type_is_int(kv->elem) || kv->elem == GGUF_BOOL) && kv->n == n_layer)
        return true;
    k->st = err_set(k->e, ST_MODEL,
                    "key '%s' is an array of %llu %s, expected one boolean per layer (%u)", k->key,
                    (unsigned long long)kv->n, gguf_type_name(kv->elem), n_layer);
    return false;
}

static void read_pattern(struct keys *k, struct hparams *hp, uint32_t period)
{
    const struct gguf_kv *kv = gguf_find(k->g, full_key(k, "attention.sliding_window_pattern"));

    if (k->st)
        return;
    if (!kv || kv->type != GGUF_ARR) {
        get_u32(k, "attention.sliding_window_pattern", false, 0, LAYERS_MAX, &period);
        set_pattern(hp, period);
        return;
    }
    if (!is_flags(k, kv, hp->n_layer))
        return;
    for (uint32_t il = 0; il < hp->n_layer; il++)
        hp->layer[il].windowed = gguf_kv_int(kv, il) != 0;
}

enum status hparams_read_window(struct hparams *hp, const struct gguf *g, const char *arch,
                                uint32_t period, struct err *e)
{
    struct keys k = {.g = g, .arch = arch, .e = e};

    get_u32(&k, "attention.sliding_window", false, 0, UINT32_MAX, &hp->n_window);
    get_f32(&k, "rope.freq_base_swa", false, false, &hp->rope_base_window);
    if (hp->n_window > INT32_MAX)
        hp->n_window = 0;
    if (!k.st && hp->n_window)
        read_pattern(&k, hp, period);
    return k.st;
}

enum status hparams_read_softcaps(struct hparams *hp, const struct gguf *g, const char *arch,
                                  struct err *e)
{
    struct keys k = {.g = g, .arch = arch, .e = e};

    get_f32(&k, "attn_logit_softcapping", false, true, &hp->softcap_attn);
    get_f32(&k, "final_logit_softcapping", false, true, &hp->softcap_logits);
    return k.st;
}

/* Which layers have experts: from the first one that is not dense on, every `step`-th. */
static void mark_experts(struct hparams *hp)
{
    const struct hparams_experts *x = &hp->experts;

    for (uint32_t il = 0; il < hp->n_layer; il++)
        hp->layer[il].experts = x->n_expert && il >= x->n_dense && (il + 1) % x->step == 0;
}

enum status hparams_read_experts(struct hparams *hp, const struct gguf *g, const char *arch,
                                 struct err *e)
{
    struct keys keys = {.g = g, .arch = arch, .e = e}, *k = &keys;
    struct hparams_experts *x = &hp->experts;

    x->step = 1;
    get_u32(k, "expert_count", false, 0, EXPERTS_MAX, &x->n_expert);
    if (k->st || !x->n_expert)
        return k->st;
    x->n_ff = hp->n_ff;
    get_u32(k, "expert_used_count", true, 1, x->n_expert, &x->n_used);
    get_u32(k, "expert_feed_forward_length", false, 1, N_MAX, &x->n_ff);
    get_u32(k, "expert_shared_count", false, 0, EXPERTS_MAX, &x->n_shared);
    if ((uint64_t)x->n_shared * x->n_ff <= N_MAX)
        x->n_ff_shared = x->n_shared * x->n_ff;
    get_u32(k, "expert_shared_feed_forward_length", false, 0, N_MAX, &x->n_ff_shared);
    get_u32(k, "leading_dense_block_count", false, 0, hp->n_layer, &x->n_dense);
    get_u32(k, "interleave_moe_layer_step", false, 1, LAYERS_MAX, &x->step);
    get_u32(k, "expert_group_count", false, 0, x->n_expert, &x->n_group);
    if (x->n_group)
        get_u32(k, "expert_group_used_count", false, 0, x->n_group, &x->n_group_used);
    get_u32(k, "expert_gating_func", false, 0, 3, &x->gating);
    get_f32(k, "expert_weights_scale", false, true, &x->weights_scale);
    if (!k->st)
        k->st =
            gguf_get_bool(k->g, full_key(k, "expert_weights_norm"), false, &x->weights_norm, k->e);
    mark_experts(hp);
    return k->st;
}

enum status hparams_drop_nextn(struct hparams *hp, const struct gguf *g, const char *arch,
                               struct err *e)
{
    struct keys k = {.g = g, .arch = arch, .e = e};
    uint32_t n = 0;

    get_u32(&k, "nextn_predict_layers", false, 0, hp->n_layer - 1, &n);
    if (!k.st)
        hp->n_layer -= n;
    return k.st;
}

enum status hparams_read_latent(struct hparams *hp, const struct gguf *g, const char *arch,
                                struct err *e)
{
    struct keys k = {.g = g, .arch = arch, .e = e};
    struct hparams_latent *l = &hp->latent;

    get_u32(&k, "attention.kv_lora_rank", true, 1, N_MAX / 2, &l->n_kv_lora);
    get_u32(&k, "attention.q_lora_rank", false, 0, N_MAX, &l->n_q_lora);
    get_u32(&k, "attention.value_length_mla", true, 1, N_MAX / hp->n_head, &l->n_embd_head_v);
    get_u32(&k, "attention.key_length_mla", true, 1, N_MAX / hp->n_head, &l->n_embd_head_k);
    if (!k.st && l->n_embd_head_k <= hp->n_rot)
        k.st = err_set(e, ST_MODEL, "key '%s' is %u, expected more than rope.dimension_count %u",
                       k.key, l->n_embd_head_k, hp->n_rot);
    if (!k.st && hp->n_head_kv != 1)
        k.st = err_set(e, ST_MODEL, "key '%s' is %u, expected 1: all heads share one latent key",
                       full_key(&k, "attention.head_count_kv"), hp->n_head_kv);
    if (k.st)
        return k.st;
    hp->n_embd_head_k = l->n_kv_lora + hp->n_rot;
    hp->n_embd_head_v = l->n_kv_lora;
    return ST_OK;
}

/* ---- recurrences ---- */

static void read_delta(struct keys *k, struct hparams_ssm *s)
{
    if (k->st)
        return;
    if (s->n_rank % s->n_group || s->n_inner != (uint64_t)s->n_rank * s->n_state)
        k->st = err_set(k->e, ST_MODEL,
                        "%s: %u heads of values, %u of keys and an inner size of %u do not fit a "
                        "state size of %u",
                        k->arch, s->n_rank, s->n_group, s->n_inner, s->n_state);
}

static void read_mamba2(struct keys *k, struct hparams_ssm *s)
{
    if (!k->st && (s->n_inner % s->n_rank || s->n_rank % s->n_group))
        k->st = err_set(k->e, ST_MODEL,
                        "%s: an inner size of %u, %u heads and %u groups do not divide each other",
                        k->arch, s->n_inner, s->n_rank, s->n_group);
}

enum status hparams_read_ssm(struct hparams *hp, const struct gguf *g, const char *arch,
                             enum ssm_kind kind, struct err *e)
{
    struct keys keys = {.g = g, .arch = arch, .e = e}, *k = &keys;
    struct hparams_ssm *s = &hp->ssm;
    uint64_t n_conv;

    s->kind = kind;
    if (kind == SSM_SHORTCONV) {
        get_u32(k, "shortconv.l_cache", true, 2, 1024, &s->n_kernel);
        s->n_conv = hp->n_embd;
        return k->st;
    }
    get_u32(k, "ssm.conv_kernel", true, 1, 1024, &s->n_kernel);
    get_u32(k, "ssm.inner_size", true, 1, N_MAX / 4, &s->n_inner);
    get_u32(k, "ssm.state_size", true, 1, 1 << 16, &s->n_state);
    get_u32(k, "ssm.time_step_rank", true, 1, N_MAX / 4, &s->n_rank);
    s->n_group = 1;
    if (kind != SSM_MAMBA)
        get_u32(k, "ssm.group_count", true, 1, s->n_rank, &s->n_group);
    if (kind == SSM_MAMBA2)
        read_mamba2(k, s);
    if (kind == SSM_DELTA || kind == SSM_DELTA_TILED)
        read_delta(k, s);
    if (kind == SSM_MAMBA && !k->st)
        k->st = gguf_get_bool(g, full_key(k, "ssm.dt_b_c_rms"), false, &s->norm_dt_b_c, e);
    n_conv = s->n_inner + (kind == SSM_MAMBA ? 0 : 2 * (uint64_t)s->n_group * s->n_state);
    if (!k->st && n_conv > N_MAX)
        k->st = err_set(k->e, ST_MODEL, "%s: %llu channels to convolve are more than %u", arch,
                        (unsigned long long)n_conv, N_MAX);
    s->n_conv = (uint32_t)n_conv;
    return k->st;
}

void hparams_recurrent_without_kv(struct hparams *hp)
{
    for (uint32_t il = 0; il < hp->n_layer; il++)
        hp->layer[il].recurrent = !hp->layer[il].n_head_kv;
}

enum status hparams_read_recurrent_layers(struct hparams *hp, const struct gguf *g,
                                          const char *arch, uint32_t interval, struct err *e)
{
    struct keys keys = {.g = g, .arch = arch, .e = e}, *k = &keys;
    const struct gguf_kv *kv = gguf_find(g, full_key(k, "attention.recurrent_layers"));

    if (kv && (kv->type != GGUF_ARR || !is_flags(k, kv, hp->n_layer)))
        return k->st ? k->st : err_set(e, ST_MODEL, "key '%s' is not an array", k->key);
    if (!kv)
        get_u32(k, "full_attention_interval", false, 1, LAYERS_MAX, &interval);
    for (uint32_t il = 0; il < hp->n_layer && !k->st; il++) {
        struct layer_hparams *l = &hp->layer[il];

        l->recurrent = kv ? gguf_kv_int(kv, il) != 0 : (il + 1) % interval != 0;
        if (l->recurrent)
            l->n_head_kv = 0;
    }
    return k->st;
}

void hparams_recurrent_only(struct hparams *hp)
{
    hp->n_ff = hp->n_head = hp->n_head_kv = 0;
    hparams_same_layers(hp);
    hparams_recurrent_without_kv(hp);
}

bool hparams_recurrent(const struct hparams *hp)
{
    for (uint32_t il = 0; il < hp->n_layer; il++) {
        if (hp->layer[il].recurrent)
            return true;
    }
    return false;
}
