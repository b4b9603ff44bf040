/*
 * Several sequences in one session. With streams of their own each gets the bits of a session that has it
 * alone, whatever runs beside it; in a unified cache the same up to the order in which numbers are added.
 */
#include "tests/unit.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/arch.h"
#include "tests/runtime/tiny_model.h"

#define N_VOCAB 128
#define N_SEQS  3
#define N_MAX   1300 /* tokens of a sequence */

static struct err err;
static int32_t ids[N_SEQS][N_MAX];
static struct tiny_rng rng = {3};

static void ok(enum status st)
{
    if (st)
        fail_msg("%s: %s", status_name(st), err.msg);
}

static uint32_t below(uint32_t n)
{
    return tiny_next(&rng) % n;
}

/* Logits of every position of the sequences. */
struct rows {
    float *x[N_SEQS]; /* [N_VOCAB, N_MAX] */
    uint32_t n[N_SEQS];
};

static void rows_init(struct rows *r)
{
    for (int i = 0; i < N_SEQS; i++) {
        r->x[i] = mem_array(N_MAX, N_VOCAB * sizeof(float));
        r->n[i] = 0;
        assert_non_null(r->x[i]);
    }
}

static void rows_release(struct rows *r)
{
    for (int i = 0; i < N_SEQS; i++)
        mem_free(r->x[i]);
}

static enum status keep(void *ctx, int32_t seq, uint32_t pos, const float *logits, struct err *e)
{
    struct rows *r = ctx;

    (void)e;
    assert_int_equal(pos, r->n[seq]++); /* those of a sequence in order */
    memcpy(r->x[seq] + (size_t)pos * N_VOCAB, logits, N_VOCAB * sizeof *logits);
    return ST_OK;
}

static enum status keep_alone(void *ctx, uint32_t pos, const float *logits, struct err *e)
{
    return keep(ctx, 0, pos, logits, e);
}

static struct session *open(const struct tiny *t, const struct session_options *o)
{
    struct session *s;

    ok(session_new(&s, t->m, o, &err));
    return s;
}

/* Each sequence in a session of its own, in micro-batches of another size. */
static void run_alone(const struct tiny *t, struct session_options o, const uint32_t n[N_SEQS],
                      struct rows *out)
{
    o.n_ctx = o.n_ctx / o.n_seqs;
    o.n_seqs = 1;
    o.kv_unified = o.check_reuse = false;
    for (int i = 0; i < N_SEQS; i++) {
        struct rows r = {.x = {out->x[i]}};
        struct session *s = open(t, &o);

        ok(session_eval(s, ids[i], n[i], WANT_ALL, keep_alone, &r, &err));
        out->n[i] = r.n[0];
        session_free(s);
    }
}

/* The next tokens of some of the sequences: a piece of a prompt, one token, or none, in any order. */
struct mix {
    int32_t ids[N_SEQS * N_MAX], seq[N_SEQS * N_MAX];
    bool out[N_SEQS * N_MAX];
    uint32_t n;
};

static void add_mix(struct mix *m, const uint32_t done[N_SEQS], const uint32_t n[N_SEQS])
{
    uint32_t want[N_SEQS], at[N_SEQS] = {0}, left = 0, most = below(3) ? 90 : 1;

    m->n = 0;
    for (int i = 0; i < N_SEQS; i++) {
        want[i] = below(most + 1) + (most == 1);
        want[i] = want[i] < n[i] - done[i] ? want[i] : n[i] - done[i];
        left += want[i];
    }
    while (left) {
        uint32_t i = below(N_SEQS);

        if (at[i] == want[i])
            continue;
        m->ids[m->n] = ids[i][done[i] + at[i]++];
        m->seq[m->n] = (int32_t)i;
        m->out[m->n++] = true;
        left--;
    }
}

static void run_together(const char *what, const struct tiny *t, const struct session_options *o,
                         const uint32_t n[N_SEQS], struct rows *out)
{
    struct session *s = open(t, o);
    struct mix *m = mem_array(1, sizeof *m);
    struct session_stats st;

    assert_non_null(m);
    while (out->n[0] < n[0] || out->n[1] < n[1] || out->n[2] < n[2]) {
        add_mix(m, out->n, n);
        ok(session_eval_batch(
            s, &(struct seq_tokens){.ids = m->ids, .seq = m->seq, .out = m->out, .n = m->n}, keep,
            out, &err));
        for (int i = 0; i < N_SEQS; i++)
            assert_int_equal(session_n_past_of(s, i), out->n[i]);
    }
    session_stats(s, &st);
    if (st.exec.regrows || st.check_failures)
        fail_msg("%s: %d regrows, %d check failures", what, (int)st.exec.regrows,
                 (int)st.check_failures);
    mem_free(m);
    session_free(s);
}

static double nmse(const float *a, const float *b, size_t n)
{
    double d = 0, x = 0;

    for (size_t i = 0; i < n; i++) {
        d += pow((double)a[i] - (double)b[i], 2);
        x += pow((double)b[i], 2);
    }
    return d / x;
}

/* most: of the normalised squared error; 0: bit for bit. */
static void compare(const char *what, const struct rows *a, const struct rows *b, double most)
{
    for (int i = 0; i < N_SEQS; i++) {
        size_t n = (size_t)b->n[i] * N_VOCAB;

        assert_int_equal(a->n[i], b->n[i]);
        for (size_t j = 0; j < n && most == 0; j++) {
            if (memcmp(&a->x[i][j], &b->x[i][j], sizeof(float)) != 0)
                fail_msg("%s: sequence %d, position %zu: %.9g and alone %.9g", what, i, j / N_VOCAB,
                         (double)a->x[i][j], (double)b->x[i][j]);
        }
        if (most > 0 && !(nmse(a->x[i], b->x[i], n) <= most))
            fail_msg("%s: sequence %d: NMSE %g", what, i, nmse(a->x[i], b->x[i], n));
    }
}

static void check(const char *what, const struct tiny *t, struct session_options o,
                  const uint32_t n[N_SEQS], double most)
{
    struct rows alone, together;

    rows_init(&alone);
    rows_init(&together);
    run_alone(t, o, n, &alone);
    o.n_ubatch = 24;
    run_together(what, t, &o, n, &together);
    compare(what, &together, &alone, most);
    rows_release(&alone);
    rows_release(&together);
}

static void load(struct tiny *t, const char *arch, bool windows)
{
    struct tiny_options o = tiny_arch(arch, DT_F32);

    o.n_layer = 2;
    o.n_vocab = N_VOCAB;
    o.n_ctx = 4096;
    o.seed = 11;
    ok(tiny_load(t, &o, &err));
    if (!windows || t->m->hp.layer[0].recurrent || t->m->hp.layer[1].recurrent)
        return;
    t->m->hp.n_window = 40;
    t->m->hp.rope_base_window = t->m->hp.rope_base;
    t->m->hp.layer[0].windowed = true;
    t->m->hp.layer[1].windowed = false;
}

static struct session_options options(const struct tiny *t, uint32_t n_each)
{
    struct session_options o = tiny_session(t, n_each * N_SEQS, 64);

    o.n_seqs = N_SEQS;
    o.check_reuse = true;
    return o;
}

/* Recurrences, alone, beside attention and in other layers. */
static const char *const recurrent[] = {"mamba", "falcon-h1", "nemotron_h", "lfm2", "qwen3next"};

/* Kinds of attention: grouped, ALiBi, a table of positions, latent, sinks, scaled queries, normed heads. */
static const char *const archs[] = {"llama",     "mpt",      "bloom",   "gpt2",
                                    "deepseek2", "phi3",     "gpt-oss", "llama4",
                                    "qwen3",     "mistral3", "gemma",   "chatglm"};

static void test_streams(void **state)
{
    static const uint32_t n[N_SEQS] = {150, 70, 9};

    (void)state;
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        struct tiny t;

        load(&t, archs[i], false);
        for (int how = 0; how < 4; how++) {
            struct session_options o = options(&t, 256);
            char what[64];

            o.type_k = o.type_v = how & 1 ? DT_F16 : DT_F32;
            o.no_flash_attn = how & 2;
            snprintf(what, sizeof what, "%s, way %d", archs[i], how);
            check(what, &t, o, n, 0);
        }
        tiny_release(&t);
    }
}

/* States of their own; with attention in one cache they have them too. */
static void test_states(void **state)
{
    static const uint32_t n[N_SEQS] = {150, 70, 9};

    (void)state;
    for (size_t i = 0; i < sizeof recurrent / sizeof recurrent[0]; i++) {
        struct tiny t;

        load(&t, recurrent[i], false);
        for (int unified = 0; unified < 2; unified++) {
            struct session_options o = options(&t, 256);

            o.kv_unified = unified;
            check(recurrent[i], &t, o, n, unified ? 1e-10 : 0);
        }
        tiny_release(&t);
    }
}

/* Every architecture, with what its file needs. */
static void test_all_archs(void **state)
{
    static const uint32_t n[N_SEQS] = {30, 17, 5};

    (void)state;
    for (int i = 0; arch_name(i); i++) {
        struct tiny_options o = tiny_arch(arch_name(i), DT_F32);
        struct tiny t;

        o.n_layer = 2;
        o.n_vocab = N_VOCAB;
        o.experts = i % 2;
        o.keys = tiny_scales;
        o.ctx = (void *)(uintptr_t)arch_name(i);
        ok(tiny_load(&t, &o, &err));
        check(arch_name(i), &t, options(&t, 256), n, 0);
        tiny_release(&t);
    }
}

/* Blocks of quantised keys too; without flash attention values are not quantised. */
static void test_quantised(void **state)
{
    static const enum dtype types[] = {DT_Q8_0, DT_Q4_0, DT_BF16};
    static const uint32_t n[N_SEQS] = {90, 70, 9};
    struct tiny t;

    (void)state;
    load(&t, "llama", false);
    for (int i = 0; i < 6; i++) {
        struct session_options o = options(&t, 256);
        char what[64];

        o.no_flash_attn = i % 2;
        o.type_k = types[i / 2];
        o.type_v = i % 2 ? DT_F16 : types[i / 2];
        snprintf(what, sizeof what, "%s, steps %d", dtype_name(types[i / 2]), i % 2);
        check(what, &t, o, n, 0);
    }
    tiny_release(&t);
}

/* Each sequence has rings of its own, at places of its own. */
static void test_rings(void **state)
{
    static const char *const windowed[] = {"gemma2", "llama4", "gpt-oss"};
    static const uint32_t n[N_SEQS] = {1250, 600, 90};

    (void)state;
    for (size_t i = 0; i < sizeof windowed / sizeof windowed[0]; i++) {
        struct session_options o;
        struct tiny t;

        load(&t, windowed[i], true);
        o = options(&t, 1280);
        o.check_reuse = i == 0;
        o.no_flash_attn = i == 1;
        check(windowed[i], &t, o, n, 0);
        tiny_release(&t);
    }
}

static void test_unified(void **state)
{
    static const uint32_t n[N_SEQS] = {150, 70, 9};

    (void)state;
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        struct tiny t;

        load(&t, archs[i], false);
        for (int how = 0; how < 2; how++) {
            struct session_options o = options(&t, 256);

            o.kv_unified = true;
            o.no_flash_attn = how;
            check(archs[i], &t, o, n, 1e-10);
        }
        tiny_release(&t);
    }
    for (int how = 0; how < 2; how++) {
        struct session_options o;
        struct tiny t;

        load(&t, how ? "llama4" : "gemma2", true);
        o = options(&t, 256);
        o.kv_unified = true;
        check("windows", &t, o, n, 1e-10);
        tiny_release(&t);
    }
}

/* ---- one prompt for all ---- */

/* 20 tokens that differ, one by one, after a prompt that was evaluated once. */
static void decode(struct session *s, struct rows *out, uint32_t n_prompt)
{
    static const int32_t seq[N_SEQS] = {0, 1, 2};
    static const bool all[N_SEQS] = {true, true, true};

    for (uint32_t i = 0; i < 20; i++) {
        int32_t id[N_SEQS];

        for (int k = 0; k < N_SEQS; k++)
            id[k] = ids[k][n_prompt + i];
        ok(session_eval_batch(s,
                              &(struct seq_tokens){.ids = id, .seq = seq, .out = all, .n = N_SEQS},
                              keep, out, &err));
    }
}

static void check_copy(const char *arch, bool unified, uint32_t n_prompt, double most)
{
    struct session_options o;
    struct rows alone, copied;
    struct session *s;
    struct tiny t;

    load(&t, arch, true);
    o = options(&t, 768);
    o.kv_unified = unified;
    rows_init(&alone);
    rows_init(&copied);
    for (int i = 1; i < N_SEQS; i++)
        memcpy(ids[i], ids[0], n_prompt * sizeof **ids);
    run_alone(&t, o, (const uint32_t[N_SEQS]){n_prompt + 20, n_prompt + 20, n_prompt + 20}, &alone);
    s = open(&t, &o);
    /* what was there is forgotten */
    ok(session_eval_batch(
        s, &(struct seq_tokens){.ids = ids[1], .seq = (const int32_t[3]){1, 2, 2}, .n = 3}, NULL,
        NULL, &err));
    ok(session_eval(s, ids[0], n_prompt, WANT_ALL, keep_alone, &copied, &err));
    for (int i = 1; i < N_SEQS; i++) {
        ok(session_copy(s, 0, i, &err));
        assert_int_equal(session_n_past_of(s, i), n_prompt);
        memcpy(copied.x[i], copied.x[0], (size_t)n_prompt * N_VOCAB * sizeof(float));
        copied.n[i] = n_prompt;
    }
    assert_int_equal(session_room(s, 1), session_n_ctx(s) - n_prompt); /* shared, or its own */
    decode(s, &copied, n_prompt);
    compare(arch, &copied, &alone, most);
    session_free(s);
    rows_release(&alone);
    rows_release(&copied);
    tiny_release(&t);
}

static void test_copy(void **state)
{
    (void)state;
    check_copy("gemma2", false, 30, 0);
    check_copy("gemma2", false, 600, 0); /* the ring has gone round */
    check_copy("llama4", false, 600, 0);
    check_copy("gemma2", true, 300, 1e-10);
    check_copy("mamba", false, 30, 0);
    check_copy("falcon-h1", false, 30, 0);
    check_copy("falcon-h1", true, 30, 1e-10);
}

/* ---- reuse ---- */

static void step(struct session *s, uint32_t n)
{
    static const int32_t seq[N_SEQS] = {0, 1, 2}, id[N_SEQS] = {5, 6, 7};
    static const bool all[N_SEQS] = {true, true, true};
    struct rows r;

    rows_init(&r);
    for (uint32_t i = 0; i < n; i++)
        r.n[i] = session_n_past_of(s, (int32_t)i);
    ok(session_eval_batch(s, &(struct seq_tokens){.ids = id, .seq = seq, .out = all, .n = n}, keep,
                          &r, &err));
    rows_release(&r);
}

/* A steady decode replays its graph; a sequence that ends costs one other. */
static void test_reuse(void **state)
{
    (void)state;
    for (int unified = 0; unified < 2; unified++) {
        struct session_options o;
        struct session_stats st;
        struct session *s;
        struct tiny t;

        load(&t, "llama", false);
        o = options(&t, 256);
        o.kv_unified = unified;
        o.all_outputs = o.check_reuse = false;
        s = open(&t, &o);
        for (int i = 0; i < 40; i++)
            step(s, 3);
        session_stats(s, &st);
        assert_int_equal(st.graphs_built, 1);
        assert_int_equal(st.graphs_reused, 39);
        for (int i = 0; i < 10; i++)
            step(s, 2);
        session_stats(s, &st);
        assert_int_equal(st.graphs_built, 2);
        assert_int_equal(st.exec.regrows, 0);
        session_free(s);
        tiny_release(&t);
    }
}

/* ---- what may not be ---- */

static void refuse(const struct tiny *t, struct session_options o, enum status want,
                   const char *word)
{
    struct session *s;

    assert_int_equal(session_new(&s, t->m, &o, &err), want);
    assert_null(s);
    if (!strstr(err.msg, word))
        fail_msg("'%s' does not say '%s'", err.msg, word);
}

static void test_options(void **state)
{
    static const struct {
        uint32_t n_ctx, n_seqs, n_each;
        bool unified;
    } rows[] = {{768, 3, 256, false}, {700, 3, 256, false},  {770, 3, 256, false},
                {771, 3, 512, false}, {700, 3, 700, true},   {100, 64, 256, false},
                {700, 1, 700, false}, {4096, 4, 1024, false}};
    struct session_options o;
    struct tiny t;

    (void)state;
    load(&t, "llama", false);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct session *s;

        o = tiny_session(&t, rows[i].n_ctx, 8);
        o.n_seqs = rows[i].n_seqs;
        o.kv_unified = rows[i].unified;
        s = open(&t, &o);
        assert_int_equal(session_n_ctx(s), rows[i].n_each);
        session_free(s);
    }
    o.n_seqs = 65;
    refuse(&t, o, ST_USAGE, "-np 65");
    tiny_release(&t);
    load(&t, "gpt2", false); /* has 4096 positions */
    o.n_seqs = 2;
    o.n_ctx = 8192 + 2;
    refuse(&t, o, ST_USAGE, "4352");
    tiny_release(&t);
}

static atomic_bool cancel;
static bool stop; /* half-way */

static void stop_late(void *ctx, uint32_t n_done, uint32_t n_total)
{
    (void)ctx;
    if (stop && n_done > n_total / 2)
        atomic_store(&cancel, true);
}

/* The first n tokens of m, and their logits unless out is NULL. */
static enum status eval_all(struct session *s, const struct mix *m, uint32_t n, struct rows *out)
{
    const struct seq_tokens t = {.ids = m->ids, .seq = m->seq, .out = out ? m->out : NULL, .n = n};

    return session_eval_batch(s, &t, out ? keep : NULL, out, &err);
}

/* Whatever fails leaves all sequences as they were: what follows has the bits that it would have had. */
static void test_failures(void **state)
{
    static const int32_t seq[4] = {0, 1, 3, 1}, id[4] = {1, 2, 3, N_VOCAB};
    struct rows a, b;

    (void)state;
    rows_init(&a);
    rows_init(&b);
    for (int unified = 0; unified < 2; unified++) {
        struct session_options o;
        struct session *s, *fresh;
        struct tiny t;
        struct mix *m = mem_array(1, sizeof *m);

        load(&t, "llama", false);
        o = options(&t, 256);
        o.kv_unified = unified;
        o.cancel = &cancel;
        fresh = open(&t, &o);
        o.progress = stop_late;
        s = open(&t, &o);
        step(s, 3);
        step(fresh, 3);
        assert_int_equal(session_eval_batch(s, &(struct seq_tokens){.ids = id, .seq = seq, .n = 3},
                                            NULL, NULL, &err),
                         ST_USAGE);
        assert_non_null(strstr(err.msg, "sequence 3"));
        assert_int_equal(
            session_eval_batch(s, &(struct seq_tokens){.ids = id + 3, .seq = seq + 3, .n = 1}, NULL,
                               NULL, &err),
            ST_USAGE);
        for (int i = 0; i < 800; i++)
            m->seq[i] = unified ? i % 3 : 1;
        assert_int_equal(eval_all(s, m, unified ? 766 : 256, NULL), ST_USAGE);
        assert_non_null(strstr(err.msg, "do not fit"));
        for (int i = 0; i < 200; i++)
            m->seq[i] = (i * i + 1) % 3;
        stop = true;
        assert_int_equal(eval_all(s, m, 200, NULL), ST_CANCELLED);
        atomic_store(&cancel, false);
        stop = false;
        for (int i = 0; i < N_SEQS; i++) {
            assert_int_equal(session_n_past_of(s, i), 1);
            a.n[i] = b.n[i] = 1;
        }
        /* another's tokens are forgotten alone */
        session_truncate_of(s, 1, 0);
        session_truncate_of(fresh, 1, 0);
        a.n[1] = b.n[1] = 0;
        memcpy(m->ids, ids[0], 12 * sizeof *ids[0]);
        for (int i = 0; i < 12; i++) {
            m->seq[i] = i % 3;
            m->out[i] = true;
        }
        ok(eval_all(fresh, m, 12, &b));
        ok(eval_all(s, m, 12, &a));
        for (int i = 0; i < N_SEQS; i++) {
            uint32_t from = i == 1 ? 0 : 1;

            assert_int_equal(a.n[i], b.n[i]);
            assert_memory_equal(a.x[i] + from * N_VOCAB, b.x[i] + from * N_VOCAB,
                                (a.n[i] - from) * N_VOCAB * sizeof(float));
        }
        session_free(s);
        session_free(fresh);
        mem_free(m);
        tiny_release(&t);
    }
    rows_release(&a);
    rows_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams), cmocka_unit_test(test_quantised),
        cmocka_unit_test(test_states),  cmocka_unit_test(test_all_archs),
        cmocka_unit_test(test_rings),   cmocka_unit_test(test_unified),
        cmocka_unit_test(test_copy),    cmocka_unit_test(test_reuse),
        cmocka_unit_test(test_options), cmocka_unit_test(test_failures),
    };

    for (int i = 0; i < N_SEQS; i++)
        for (int j = 0; j < N_MAX; j++)
            ids[i][j] = (int32_t)below(N_VOCAB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
