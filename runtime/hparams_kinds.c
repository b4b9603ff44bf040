/* Keys that some architectures share: windows, soft caps, experts, latent attention, recurrences. */
#include <stdio.h>
#include <string.h>

#include "runtime/hparams.h"
#include "runtime/hparams_keys.h"

/* ---- windows, soft caps ---- */

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
    const struct gguf_kv *kv = gguf_find(k->g, keys_name(k, "attention.sliding_window_pattern"));

    if (k->st)
        return;
    if (!kv || kv->type != GGUF_ARR) {
        keys_u32(k, "attention.sliding_window_pattern", false, 0, LAYERS_MAX, &period);
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

    keys_u32(&k, "attention.sliding_window", false, 0, UINT32_MAX, &hp->n_window);
    keys_f32(&k, "rope.freq_base_swa", false, false, &hp->rope_base_window);
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

    keys_f32(&k, "attn_logit_softcapping", false, true, &hp->softcap_attn);
    keys_f32(&k, "final_logit_softcapping", false, true, &hp->softcap_logits);
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
    keys_u32(k, "expert_count", false, 0, EXPERTS_MAX, &x->n_expert);
    if (k->st || !x->n_expert)
        return k->st;
    x->n_ff = hp->n_ff;
    keys_u32(k, "expert_used_count", true, 1, x->n_expert, &x->n_used);
    keys_u32(k, "expert_feed_forward_length", false, 1, N_MAX, &x->n_ff);
    keys_u32(k, "expert_shared_count", false, 0, EXPERTS_MAX, &x->n_shared);
    if ((uint64_t)x->n_shared * x->n_ff <= N_MAX)
        x->n_ff_shared = x->n_shared * x->n_ff;
    keys_u32(k, "expert_shared_feed_forward_length", false, 0, N_MAX, &x->n_ff_shared);
    keys_u32(k, "leading_dense_block_count", false, 0, hp->n_layer, &x->n_dense);
    keys_u32(k, "interleave_moe_layer_step", false, 1, LAYERS_MAX, &x->step);
    keys_u32(k, "expert_group_count", false, 0, x->n_expert, &x->n_group);
    if (x->n_group)
        keys_u32(k, "expert_group_used_count", false, 0, x->n_group, &x->n_group_used);
    keys_u32(k, "expert_gating_func", false, 0, 3, &x->gating);
    keys_f32(k, "expert_weights_scale", false, true, &x->weights_scale);
    if (!k->st)
        k->st =
            gguf_get_bool(k->g, keys_name(k, "expert_weights_norm"), false, &x->weights_norm, k->e);
    mark_experts(hp);
    return k->st;
}

enum status hparams_drop_nextn(struct hparams *hp, const struct gguf *g, const char *arch,
                               struct err *e)
{
    struct keys k = {.g = g, .arch = arch, .e = e};
    uint32_t n = 0;

    keys_u32(&k, "nextn_predict_layers", false, 0, hp->n_layer - 1, &n);
    if (!k.st)
        hp->n_layer -= n;
    return k.st;
}

enum status hparams_read_latent(struct hparams *hp, const struct gguf *g, const char *arch,
                                struct err *e)
{
    struct keys k = {.g = g, .arch = arch, .e = e};
    struct hparams_latent *l = &hp->latent;

    keys_u32(&k, "attention.kv_lora_rank", true, 1, N_MAX / 2, &l->n_kv_lora);
    keys_u32(&k, "attention.q_lora_rank", false, 0, N_MAX, &l->n_q_lora);
    keys_u32(&k, "attention.value_length_mla", true, 1, N_MAX / hp->n_head, &l->n_embd_head_v);
    keys_u32(&k, "attention.key_length_mla", true, 1, N_MAX / hp->n_head, &l->n_embd_head_k);
    if (!k.st && l->n_embd_head_k <= hp->n_rot)
        k.st = err_set(e, ST_MODEL, "key '%s' is %u, expected more than rope.dimension_count %u",
                       k.key, l->n_embd_head_k, hp->n_rot);
    if (!k.st && hp->n_head_kv != 1)
        k.st = err_set(e, ST_MODEL, "key '%s' is %u, expected 1: all heads share one latent key",
                       keys_name(&k, "attention.head_count_kv"), hp->n_head_kv);
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
        keys_u32(k, "shortconv.l_cache", true, 2, 1024, &s->n_kernel);
        s->n_conv = hp->n_embd;
        return k->st;
    }
    keys_u32(k, "ssm.conv_kernel", true, 1, 1024, &s->n_kernel);
    keys_u32(k, "ssm.inner_size", true, 1, N_MAX / 4, &s->n_inner);
    keys_u32(k, "ssm.state_size", true, 1, 1 << 16, &s->n_state);
    keys_u32(k, "ssm.time_step_rank", true, 1, N_MAX / 4, &s->n_rank);
    s->n_group = 1;
    if (kind != SSM_MAMBA)
        keys_u32(k, "ssm.group_count", true, 1, s->n_rank, &s->n_group);
    if (kind == SSM_MAMBA2)
        read_mamba2(k, s);
    if (kind == SSM_DELTA || kind == SSM_DELTA_TILED)
        read_delta(k, s);
    if (kind == SSM_MAMBA && !k->st)
        k->st = gguf_get_bool(g, keys_name(k, "ssm.dt_b_c_rms"), false, &s->norm_dt_b_c, e);
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
    const struct gguf_kv *kv = gguf_find(g, keys_name(k, "attention.recurrent_layers"));

    if (kv && (kv->type != GGUF_ARR || !is_flags(k, kv, hp->n_layer)))
        return k->st ? k->st : err_set(e, ST_MODEL, "key '%s' is not an array", k->key);
    if (!kv)
        keys_u32(k, "full_attention_interval", false, 1, LAYERS_MAX, &interval);
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
