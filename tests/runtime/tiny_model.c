#include "tests/runtime/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "gguf/quants.h"
#include "runtime/arch.h"

uint32_t tiny_next(struct tiny_rng *r)
{
    r->s ^= r->s >> 12;
    r->s ^= r->s << 25;
    r->s ^= r->s >> 27;
    return (uint32_t)((r->s * UINT64_C(2685821657736338717)) >> 32);
}

float tiny_uniform(struct tiny_rng *r, float lo, float hi)
{
    return lo + (hi - lo) * ((float)(tiny_next(r) >> 8) / 16777216.0f);
}

static uint32_t or_else(uint32_t v, uint32_t dflt)
{
    return v ? v : dflt;
}

static bool has_layers(const struct arch *a, enum weight_layers layers)
{
    for (int i = 0; i < a->n_tensors; i++) {
        if (a->tensors[i].layers == layers)
            return true;
    }
    return false;
}

static bool has_dim(const struct arch *a, enum dim d)
{
    for (int i = 0; i < a->n_tensors; i++) {
        if (a->tensors[i].ne[0] == d || a->tensors[i].ne[1] == d)
            return true;
    }
    return false;
}

/* Which recurrence the table is of; sizes that rows of every quantised type can have. */
static void set_ssm(struct hparams *hp, const struct arch *a)
{
    struct hparams_ssm *s = &hp->ssm;

    *s = (struct hparams_ssm){.n_kernel = 4, .n_inner = 256, .n_state = 16, .n_rank = 8, .n_group = 2};
    if (has_dim(a, D_SSM_X)) {
        s->n_rank = 256;
        s->n_conv = s->n_inner;
    } else if (has_dim(a, D_EMBD_3)) {
        *s = (struct hparams_ssm){.n_kernel = 3, .n_conv = hp->n_embd};
    } else {
        s->n_state = has_dim(a, D_SSM_IN) ? 16 : s->n_inner / s->n_rank;
        s->n_conv = s->n_inner + 2 * s->n_group * s->n_state;
    }
}

/*
 * Layers in turn: recurrent and attention where the table has both, and a third with a network only where a
 * layer is one block.
 */
static void set_layers(struct hparams *hp, const struct arch *a)
{
    bool one_block = !strncmp(a->name, "nemotron_h", 10);
    bool hybrid = has_layers(a, ATTENTION_LAYERS);

    for (uint32_t il = 0; il < hp->n_layer; il++) {
        struct layer_hparams *l = &hp->layer[il];
        uint32_t turn = il % (one_block ? 3 : 2);

        l->recurrent = !hybrid || turn == 0;
        if (hybrid && turn != 1)
            l->n_head_kv = 0;
        if (one_block && turn != 2) {
            l->n_ff = 0;
            l->experts = false;
        }
    }
}

static struct hparams sizes(const struct tiny_options *o, const struct arch *arch)
{
    struct hparams hp = {
        .n_vocab = or_else(o->n_vocab, 128),
        .n_ctx_train = or_else(o->n_ctx, 512),
        .n_embd = or_else(o->n_embd, 64),
        .n_layer = or_else(o->n_layer, 2),
        .n_ff = or_else(o->n_ff, 96),
        .n_head = or_else(o->n_head, 4),
        .n_head_kv = or_else(o->n_head_kv, 2),
    };

    hp.n_embd_head_k = hp.n_embd_head_v = hp.n_rot = hp.n_embd / hp.n_head;
    hp.experts = (struct hparams_experts){.n_expert = 4,
                                          .n_used = 2,
                                          .n_ff = hp.n_ff,
                                          .n_shared = 1,
                                          .n_ff_shared = hp.n_ff,
                                          .n_dense = has_layers(arch, DENSE_LAYERS)};
    for (uint32_t il = hp.experts.n_dense;
         il < hp.n_layer && (o->experts || !has_layers(arch, DENSE_LAYERS)) &&
         has_layers(arch, EXPERT_LAYERS);
         il++)
        hp.layer[il].experts = true;
    if (has_dim(arch, D_KV_LORA)) {
        hp.latent = (struct hparams_latent){256, 256, 256 + 32, 64};
        hp.n_rot = 32;
        hp.n_head_kv = 1;
    }
    hparams_same_layers(&hp);
    if (has_layers(arch, RECURRENT_LAYERS)) {
        set_ssm(&hp, arch);
        set_layers(&hp, arch);
    }
    return hp;
}

static void put_u32(struct gguf_writer *w, const char *arch, const char *name, uint32_t v)
{
    char key[128];

    snprintf(key, sizeof key, "%s.%s", arch, name);
    gguf_put_u32(w, key, v);
}

static void put_f32(struct gguf_writer *w, const char *arch, const char *name, float v)
{
    char key[128];

    snprintf(key, sizeof key, "%s.%s", arch, name);
    gguf_put_f32(w, key, v);
}

void tiny_scales(void *ctx, struct gguf_writer *w)
{
    put_f32(w, ctx, "logit_scale", 4);
    put_f32(w, ctx, "embedding_scale", 3);
    put_f32(w, ctx, "residual_scale", 0.5f);
    put_f32(w, ctx, "attention.max_alibi_bias", 8);
}

struct tiny_options tiny_arch(const char *arch, enum dtype type)
{
    return (struct tiny_options){.arch = arch,
                                 .n_layer = 4,
                                 .n_embd = 256,
                                 .n_head_kv = strcmp(arch, "mpt") == 0 ? 4 : 2,
                                 .n_ff = 256,
                                 .seed = 3,
                                 .type = type,
                                 .keys = tiny_scales,
                                 .ctx = (void *)arch};
}

static void put_latent(struct gguf_writer *w, const char *arch, const struct hparams_latent *l)
{
    put_u32(w, arch, "attention.q_lora_rank", l->n_q_lora);
    put_u32(w, arch, "attention.kv_lora_rank", l->n_kv_lora);
    put_u32(w, arch, "attention.key_length_mla", l->n_embd_head_k);
    put_u32(w, arch, "attention.value_length_mla", l->n_embd_head_v);
}

static void put_experts(struct gguf_writer *w, const char *arch, const struct hparams_experts *x)
{
    put_u32(w, arch, "expert_count", x->n_expert);
    put_u32(w, arch, "expert_used_count", x->n_used);
    put_u32(w, arch, "expert_feed_forward_length", x->n_ff);
    put_u32(w, arch, "expert_shared_count", x->n_shared);
    put_u32(w, arch, "expert_shared_feed_forward_length", x->n_ff_shared);
    put_u32(w, arch, "leading_dense_block_count", x->n_dense);
}

static void put_ssm(struct gguf_writer *w, const char *arch, const struct hparams *hp)
{
    const struct hparams_ssm *s = &hp->ssm;
    uint32_t n_ff[LAYERS_MAX], n_head_kv[LAYERS_MAX];
    char key[128];

    put_u32(w, arch, "shortconv.l_cache", s->n_kernel);
    put_u32(w, arch, "ssm.conv_kernel", s->n_kernel);
    put_u32(w, arch, "ssm.inner_size", s->n_inner);
    put_u32(w, arch, "ssm.state_size", s->n_state);
    put_u32(w, arch, "ssm.time_step_rank", s->n_rank);
    put_u32(w, arch, "ssm.group_count", s->n_group);
    put_u32(w, arch, "full_attention_interval", 2);
    for (uint32_t il = 0; il < hp->n_layer; il++) {
        n_ff[il] = hp->layer[il].n_ff;
        n_head_kv[il] = hp->layer[il].n_head_kv;
    }
    snprintf(key, sizeof key, "%s.feed_forward_length", arch);
    gguf_put_arr(w, key, GGUF_U32, n_ff, hp->n_layer);
    snprintf(key, sizeof key, "%s.attention.head_count_kv", arch);
    gguf_put_arr(w, key, GGUF_U32, n_head_kv, hp->n_layer);
}

static bool any_experts(const struct hparams *hp)
{
    for (uint32_t il = 0; il < hp->n_layer; il++) {
        if (hp->layer[il].experts)
            return true;
    }
    return false;
}

static void put_keys(struct gguf_writer *w, const char *arch, const struct hparams *hp)
{
    gguf_put_str(w, "general.architecture", arch);
    gguf_put_str(w, "tokenizer.ggml.model", "none");
    put_u32(w, arch, "vocab_size", hp->n_vocab);
    put_u32(w, arch, "context_length", hp->n_ctx_train);
    put_u32(w, arch, "embedding_length", hp->n_embd);
    put_u32(w, arch, "block_count", hp->n_layer);
    put_u32(w, arch, "attention.head_count", hp->n_head);
    put_u32(w, arch, "rope.dimension_count", hp->n_rot);
    if (hp->latent.n_kv_lora)
        put_latent(w, arch, &hp->latent);
    if (hp->ssm.n_kernel) {
        put_ssm(w, arch, hp);
    } else {
        put_u32(w, arch, "feed_forward_length", hp->n_ff);
        put_u32(w, arch, "attention.head_count_kv", hp->n_head_kv);
    }
    if (any_experts(hp))
        put_experts(w, arch, &hp->experts);
    put_f32(w, arch, "attention.layer_norm_rms_epsilon", 1e-5f);
}

/* Norms near 1, RoPE factors above 1, biases small, matrices so that a product keeps its size. */
static void fill(struct tiny_rng *r, const struct arch_tensor *at, struct tiny_tensor *t, size_t n)
{
    float a = 0.1f, mid = 0;

    if (strstr(t->name, "norm"))
        mid = 1;
    else if (strstr(t->name, "rope"))
        mid = 1.5f;
    else if (strcmp(t->name + strlen(t->name) - 5, "ssm_a") == 0) /* what is kept fades */
        mid = -0.5f;
    else if (at->use == USE_MATRIX || at->use == USE_EXPERTS)
        a = sqrtf(3.0f / (float)t->ne[0]);
    else if (at->use == USE_ROWS)
        a = 1;
    for (size_t i = 0; i < n; i++)
        t->x[i] = tiny_uniform(r, mid - a, mid + a);
}

static bool wanted(const struct tiny_options *o, const struct arch_tensor *at)
{
    if (at->instead)
        return !o->tied;
    /* RoPE factors change what is computed and exclude each other: tests add them by hand. */
    return !at->optional || (o->optionals && !strstr(at->name, "rope"));
}

static enum status put_tensor(struct gguf_writer *w, struct arena *a, struct tiny_rng *r,
                              const struct tiny_options *o, const struct arch_tensor *at,
                              uint32_t il, const struct hparams *hp)
{
    struct tiny_tensor t = {.type = at->use == USE_VECTOR ? DT_F32 : o->type};
    size_t n = 1, n_written = 1, n_bytes;
    float *grown;
    char *raw;

    arch_tensor_name(at->name, il, t.name);
    t.n_dims = arch_shape(at, hp, il, t.ne);
    for (int i = 0; i < t.n_dims; i++)
        n *= (size_t)t.ne[i];
    t.x = arena_array(a, n, sizeof *t.x);
    if (!t.x)
        return ST_NOMEM;
    fill(r, at, &t, n);
    if (o->tensor)
        o->tensor(o->ctx, &t);
    if (t.skip)
        return ST_OK;
    for (int i = 0; i < t.n_dims; i++)
        n_written *= (size_t)t.ne[i];
    n_bytes = n_written / dtype_info(t.type)->block * dtype_info(t.type)->bytes;
    grown = arena_array(a, n_written, sizeof *grown);
    raw = arena_alloc(a, n_bytes);
    if (!raw || !grown)
        return ST_NOMEM;
    memcpy(grown, t.x, (n < n_written ? n : n_written) * sizeof *grown);
    quant_encoder(t.type)(grown, raw, (int64_t)n_written);
    gguf_put_tensor(w, t.name, t.type, t.n_dims, t.ne, raw);
    return ST_OK;
}

enum status tiny_write(const struct tiny_options *o, void **bytes, size_t *n, struct err *e)
{
    const char *name = o->arch ? o->arch : "llama";
    const struct arch *arch = arch_find(name, strlen(name));
    struct tiny_rng r = {.s = o->seed * 2 + 88172645463325253u};
    struct hparams hp = sizes(o, arch);
    struct gguf_writer *w = gguf_writer_new();
    enum status st = ST_OK;
    struct arena a;

    arena_init(&a, 1 << 16);
    if (!w)
        return err_nomem(e, "a writer", 1);
    put_keys(w, name, &hp);
    if (o->keys)
        o->keys(o->ctx, w);
    for (int i = 0; i < arch->n_tensors && !st; i++) {
        const struct arch_tensor *at = &arch->tensors[i];
        uint32_t n_layer = arch_per_layer(at) ? hp.n_layer : 1;

        for (uint32_t il = 0; il < n_layer && !st && wanted(o, at); il++)
            st = arch_has(at, &hp, il) ? put_tensor(w, &a, &r, o, at, il, &hp) : ST_OK;
    }
    if (!st)
        st = gguf_write_memory(w, bytes, n, e);
    gguf_writer_free(w);
    arena_release(&a);
    return st;
}

static enum status load(struct tiny *t, void *bytes, size_t n, const char *sim, struct err *e)
{
    static const struct placement_options on_sim = {.n_gpu_layers = PLACE_ALL};
    struct device_options dopt = {.n_threads = 3, .sim = sim};
    struct model_options opt = {.devs = &t->devs, .place = sim ? &on_sim : NULL};
    struct gguf *g;
    enum status st;

    *t = (struct tiny){.bytes = bytes, .n_bytes = n};
    st = devices_open(&t->devs, &dopt, e);
    if (!st)
        st = gguf_open_memory(&g, bytes, n, "tiny", e);
    if (!st)
        st = model_load(&t->m, g, &opt, e);
    if (st)
        tiny_release(t);
    return st;
}

enum status tiny_load_bytes(struct tiny *t, void *bytes, size_t n, struct err *e)
{
    return load(t, bytes, n, NULL, e);
}

enum status tiny_load(struct tiny *t, const struct tiny_options *o, struct err *e)
{
    void *bytes;
    size_t n;
    enum status st = tiny_write(o, &bytes, &n, e);

    *t = (struct tiny){0};
    return st ? st : load(t, bytes, n, o->sim, e);
}

void tiny_release(struct tiny *t)
{
    model_free(t->m);
    devices_close(&t->devs);
    mem_free(t->bytes);
    *t = (struct tiny){0};
}

struct session_options tiny_session(const struct tiny *t, uint32_t n_ctx, uint32_t n_ubatch)
{
    return (struct session_options){
        .devs = &t->devs,
        .n_ctx = n_ctx,
        .n_ubatch = n_ubatch,
        .type_k = DT_F32,
        .type_v = DT_F32,
        .all_outputs = true,
        .exec.check = true,
    };
}
