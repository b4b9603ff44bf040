/*
 * Every architecture of arch.def on random tiny models: the result does not depend on how tokens are
 * cut or on reuse. And what the oracle files do not hold: fused weights, temperature.
 */
#include "tests/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/arch.h"
#include "tests/runtime/tiny_model.h"

#define N_VOCAB 128
#define N_IDS   48

static struct err err;

static void ok(enum status st)
{
    if (st)
        fail_msg("%s: %s", status_name(st), err.msg);
}

static void put_f32(struct gguf_writer *w, const char *arch, const char *name, float v)
{
    char key[128];

    snprintf(key, sizeof key, "%s.%s", arch, name);
    gguf_put_f32(w, key, v);
}

static enum status keep(void *ctx, uint32_t pos, const float *logits, struct err *e)
{
    (void)e;
    memcpy((float *)ctx + (size_t)pos * N_VOCAB, logits, N_VOCAB * sizeof *logits);
    return ST_OK;
}

/* Few threads: the models are too small for more. */
static struct session_options session_options(const struct tiny *t, uint32_t n_ubatch)
{
    struct session_options o = tiny_session(t, 256, n_ubatch);

    o.n_threads = 1;
    o.n_threads_batch = 2;
    return o;
}

/* Logits of every position; released with mem_free. */
static float *all_logits(const struct tiny *t, uint32_t n_ubatch)
{
    struct session_options o = session_options(t, n_ubatch);
    float *x = mem_array(N_IDS, N_VOCAB * sizeof(float));
    struct tiny_rng r = {.s = 11};
    int32_t ids[N_IDS];
    struct session *s;

    assert_non_null(x);
    for (int i = 0; i < N_IDS; i++)
        ids[i] = (int32_t)(tiny_next(&r) % N_VOCAB);
    ok(session_new(&s, t->m, &o, &err));
    ok(session_eval(s, ids, N_IDS, WANT_ALL, keep, x, &err));
    session_free(s);
    return x;
}

static void check_cuts(const struct tiny *t, const char *what)
{
    static const uint32_t ubatches[] = {1, 13};
    float *at_once = all_logits(t, 256);

    for (int i = 0; i < 2; i++) {
        float *cut = all_logits(t, ubatches[i]);

        if (memcmp(at_once, cut, sizeof(float) * N_IDS * N_VOCAB) != 0)
            fail_msg("%s: micro-batches of %u give other bits", what, ubatches[i]);
        mem_free(cut);
    }
    for (int i = 0; i < N_IDS * N_VOCAB; i++)
        assert_true(isfinite(at_once[i]));
    mem_free(at_once);
}

/* 32 tokens after a prompt of two, the likeliest each time. */
static void generate(const struct tiny *t, bool no_reuse, int32_t out[32],
                     struct session_stats *stats)
{
    struct session_options o = session_options(t, 64);
    int32_t ids[2] = {1, 2};
    struct session *s;

    o.no_reuse = no_reuse;
    o.all_outputs = false;
    ok(session_new(&s, t->m, &o, &err));
    ok(session_eval(s, ids, 2, WANT_LAST, NULL, NULL, &err));
    for (int i = 0; i < 32; i++) {
        const float *x = session_logits(s);

        out[i] = 0;
        for (int32_t id = 1; id < N_VOCAB; id++)
            out[i] = x[id] > x[out[i]] ? id : out[i];
        ok(session_eval(s, &out[i], 1, WANT_LAST, NULL, NULL, &err));
    }
    session_stats(s, stats);
    session_free(s);
}

static void check_reuse(const struct tiny *t, const char *what)
{
    struct session_stats with, without;
    int32_t a[32], b[32];

    generate(t, false, a, &with);
    generate(t, true, b, &without);
    if (memcmp(a, b, sizeof a) != 0)
        fail_msg("%s: reuse gives other tokens", what);
    assert_true(with.graphs_reused >= 31);
    assert_int_equal(without.graphs_reused, 0);
}

static void test_every_arch(void **state)
{
    static const enum dtype types[] = {DT_F32, DT_Q4_0, DT_Q4_K, DT_Q6_K, DT_MXFP4};

    (void)state;
    for (int i = 0; arch_name(i); i++) {
        for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) {
            struct tiny_options o = tiny_arch(arch_name(i), types[k]);
            char what[64];
            struct tiny t;

            o.experts = true;
            o.optionals = k % 2;
            snprintf(what, sizeof what, "%s, %s", o.arch, dtype_name(o.type));
            ok(tiny_load(&t, &o, &err));
            check_cuts(&t, what);
            check_reuse(&t, what);
            tiny_release(&t);
        }
    }
}

/* ---- fused weights ---- */

/* Rows of Q, K and V of a layer, joined in the order in which they are written. */
struct fused {
    const char *arch;
    bool fuse;
    float x[2 * 256 * 256];
    size_t n;
};

static void fused_keys(void *ctx, struct gguf_writer *w)
{
    tiny_scales((void *)((struct fused *)ctx)->arch, w);
}

static void fuse(void *ctx, struct tiny_tensor *t)
{
    struct fused *f = ctx;
    size_t n = (size_t)t->ne[0] * (size_t)t->ne[1];

    if (strstr(t->name, "attn_qkv.weight")) {
        t->skip = !f->fuse;
        memcpy(t->x, f->x, n * sizeof *t->x);
        assert_int_equal(f->n, n);
    } else if (strstr(t->name, "attn_q.weight") || strstr(t->name, "attn_k.weight") ||
               strstr(t->name, "attn_v.weight")) {
        t->skip = f->fuse;
        memcpy(f->x + f->n, t->x, n * sizeof *t->x);
        f->n += n;
    } else if (strstr(t->name, ".bias")) {
        t->skip = true;
    }
}

/* One layer: the table is written tensor by tensor, not layer by layer. */
static void test_fused_qkv(void **state)
{
    static const char *const archs[] = {"phi3", "chatglm", "glm4"};
    static struct fused f;

    (void)state;
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        float *x[2];

        for (int k = 0; k < 2; k++) {
            struct tiny_options o = tiny_arch(archs[i], DT_F32);
            struct tiny t;

            f = (struct fused){.arch = archs[i], .fuse = k};
            o.n_layer = 1;
            o.optionals = true;
            o.keys = fused_keys;
            o.tensor = fuse;
            o.ctx = &f;
            ok(tiny_load(&t, &o, &err));
            x[k] = all_logits(&t, k ? 13 : 256);
            tiny_release(&t);
        }
        assert_memory_equal(x[0], x[1], sizeof(float) * N_IDS * N_VOCAB);
        mem_free(x[0]);
        mem_free(x[1]);
    }
}

/* Neither three matrices nor one. */
static void drop_v(void *ctx, struct tiny_tensor *t)
{
    (void)ctx;
    t->skip = strstr(t->name, "attn_v.weight") != NULL;
}

static void test_missing_part(void **state)
{
    struct tiny_options o = tiny_arch("phi3", DT_F32);
    struct tiny t;

    (void)state;
    o.tensor = drop_v;
    assert_int_equal(tiny_load(&t, &o, &err), ST_MODEL);
    assert_non_null(strstr(err.msg, "'blk.0.attn_v.weight' is missing"));
}

/* ---- Baichuan 13B ---- */

static float *deep_logits(const char *arch, uint32_t n_layer)
{
    struct tiny_options o = tiny_arch(arch, DT_F32);
    struct tiny t;
    float *x;

    o.n_layer = n_layer;
    o.n_embd = o.n_ff = 64;
    ok(tiny_load(&t, &o, &err));
    x = all_logits(&t, 256);
    tiny_release(&t);
    return x;
}

/* With 40 layers baichuan is what refact is; with 32 and 39 it is not. */
static void test_baichuan(void **state)
{
    static const uint32_t n_layer[] = {40, 39, 32};

    (void)state;
    for (int i = 0; i < 3; i++) {
        float *a = deep_logits("baichuan", n_layer[i]), *b = deep_logits("refact", n_layer[i]);

        assert_int_equal(memcmp(a, b, sizeof(float) * N_IDS * N_VOCAB) == 0, i == 0);
        mem_free(a);
        mem_free(b);
    }
}

/* ---- temperature of attention ---- */

struct temperature {
    float temp, scale; /* 0: no such key */
    uint32_t n_ctx_orig;
};

static void temperature_keys(void *ctx, struct gguf_writer *w)
{
    const struct temperature *t = ctx;

    if (t->temp != 0)
        put_f32(w, "mistral3", "attention.temperature_scale", t->temp);
    if (t->scale != 0)
        put_f32(w, "mistral3", "attention.scale", t->scale);
    gguf_put_u32(w, "mistral3.rope.scaling.original_context_length", t->n_ctx_orig);
}

static float *mistral3_logits(struct temperature k, uint32_t n_ubatch)
{
    struct tiny_options o = tiny_arch("mistral3", DT_F32);
    struct tiny t;
    float *x;

    o.n_layer = 1;
    o.keys = temperature_keys;
    o.ctx = &k;
    ok(tiny_load(&t, &o, &err));
    x = all_logits(&t, n_ubatch);
    tiny_release(&t);
    return x;
}

/* With one layer the query's factor changes nothing but its own row, as another scale of q.k would. */
static void test_temperature(void **state)
{
    const float temp = 0.4f;
    float *got = mistral3_logits((struct temperature){.temp = temp, .n_ctx_orig = 10}, 256);
    float *cut = mistral3_logits((struct temperature){.temp = temp, .n_ctx_orig = 10}, 7);

    (void)state;
    assert_memory_equal(got, cut, sizeof(float) * N_IDS * N_VOCAB);
    for (int turns = 0; turns < 5; turns++) {
        float s = (1 + temp * logf(1 + (float)turns)) / sqrtf(64); /* heads of 64 */
        float *want = mistral3_logits((struct temperature){.scale = s, .n_ctx_orig = 10}, 256);

        for (int i = turns * 10 * N_VOCAB; i < N_IDS * N_VOCAB && i < (turns + 1) * 10 * N_VOCAB;
             i++)
            assert_true(fabsf(got[i] - want[i]) < 1e-4f);
        if (turns) /* and it does matter */
            assert_true(fabsf(want[5 * N_VOCAB] - got[5 * N_VOCAB]) > 1e-4f);
        mem_free(want);
    }
    mem_free(got);
    mem_free(cut);
}

/* ---- latent attention ---- */

/* One head of a model of four, as the only one or beside others that give nothing. */
struct one_head {
    int head;
    bool alone;
    float x[4 * 256 * 320]; /* what all four heads have, of one tensor */
};

static void keep_head(void *ctx, struct tiny_tensor *t)
{
    struct one_head *h = ctx;
    bool rows = strstr(t->name, "attn_q_b") != NULL, out = strstr(t->name, "attn_output.") != NULL;
    bool planes = strstr(t->name, "attn_k_b") || strstr(t->name, "attn_v_b");
    size_t n = (size_t)(t->ne[0] * t->ne[1] * (t->n_dims > 2 ? t->ne[2] : 1));
    struct tiny_rng r = {.s = 99};

    if (!rows && !planes && !out) { /* the same in both models */
        for (size_t i = 0; i < n; i++)
            t->x[i] = tiny_uniform(&r, -0.1f, 0.1f) + (strstr(t->name, "norm") ? 1 : 0);
        return;
    }
    for (size_t i = 0; i < (h->alone ? 4 : 1) * n; i++)
        h->x[i] = tiny_uniform(&r, -0.1f, 0.1f);
    if (h->alone && !out)
        memcpy(t->x, h->x + (size_t)h->head * n, n * sizeof *t->x);
    else if (h->alone) /* columns of the head: rows of 4 * 64 */
        for (size_t i = 0; i < n; i++)
            t->x[i] = h->x[i / 64 * 256 + (size_t)h->head * 64 + i % 64];
    else
        memcpy(t->x, h->x, n * sizeof *t->x);
    for (size_t i = 0; i < n && out && !h->alone; i++)
        t->x[i] = (int)(i % 256 / 64) == h->head ? t->x[i] : 0;
}

static float *latent_logits(struct one_head *h)
{
    struct tiny_options o = {.arch = "deepseek2",
                             .n_layer = 1,
                             .n_embd = 256,
                             .n_ff = 256,
                             .n_head = h->alone ? 1 : 4,
                             .seed = 3,
                             .optionals = true,
                             .tensor = keep_head,
                             .ctx = h};
    struct tiny t;
    float *x;

    ok(tiny_load(&t, &o, &err));
    x = all_logits(&t, 256);
    tiny_release(&t);
    return x;
}

/* The oracle has one head: each head of a model of four does what it does alone. */
static void test_latent_heads(void **state)
{
    static struct one_head h;
    float *before = NULL;

    (void)state;
    for (h.head = 0; h.head < 4; h.head++) {
        float *all, *one;

        h.alone = false;
        all = latent_logits(&h);
        h.alone = true;
        one = latent_logits(&h);
        for (int i = 0; i < N_IDS * N_VOCAB; i++)
            assert_true(fabsf(all[i] - one[i]) < 1e-4f);
        if (before) /* and heads differ */
            assert_true(fabsf(before[5 * N_VOCAB] - one[5 * N_VOCAB]) > 1e-3f);
        mem_free(before);
        mem_free(all);
        before = one;
    }
    mem_free(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_arch),
        cmocka_unit_test(test_fused_qkv),
        cmocka_unit_test(test_missing_part),
        cmocka_unit_test(test_baichuan),
        cmocka_unit_test(test_temperature),
        cmocka_unit_test(test_latent_heads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
