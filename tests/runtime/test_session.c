/*
 * Evaluation on random tiny models: results do not depend on how tokens are cut, on threads or on
 * reuse; nothing grows after the start; whatever fails leaves the session as it was.
 */
#include "tests/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/base/log.h"
#include "gguf/base/mem.h"
#include "gguf/quants.h"
#include "tests/runtime/tiny_model.h"

#define N_VOCAB 128

static struct tiny tiny; /* llama, two layers, F32, context 512 */
static struct err err;

static int setup(void **state)
{
    struct tiny_options o = {.seed = 5, .optionals = true};

    (void)state;
    return tiny_load(&tiny, &o, &err);
}

static int teardown(void **state)
{
    (void)state;
    tiny_release(&tiny);
    return 0;
}

static void ok(enum status st)
{
    if (st)
        fail_msg("%s: %s", status_name(st), err.msg);
}

/* Logits of every position, one row each. */
struct rows {
    float *x; /* [N_VOCAB, cap] */
    uint32_t n;
};

static enum status keep(void *ctx, uint32_t pos, const float *logits, struct err *e)
{
    struct rows *r = ctx;

    (void)e;
    memcpy(r->x + (size_t)pos * N_VOCAB, logits, N_VOCAB * sizeof *logits);
    r->n++;
    return ST_OK;
}

static void random_ids(int32_t *ids, int n, uint64_t seed)
{
    struct tiny_rng r = {.s = seed};

    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(tiny_next(&r) % N_VOCAB);
}

/* All logits of n ids under these options, in one call or in calls of `step` tokens. */
static float *all_logits(const struct tiny *t, const struct session_options *o, const int32_t *ids,
                         uint32_t n, uint32_t step, struct session_stats *stats)
{
    struct rows r = {.x = mem_array(n, N_VOCAB * sizeof(float))};
    struct session *s;

    ok(session_new(&s, t->m, o, &err));
    for (uint32_t i = 0; i < n; i += step) {
        uint32_t k = n - i < step ? n - i : step;

        ok(session_eval(s, ids + i, k, WANT_ALL, keep, &r, &err));
    }
    assert_int_equal(r.n, n);
    assert_int_equal(session_n_past(s), n);
    if (stats)
        session_stats(s, stats);
    session_free(s);
    return r.x;
}

static void same_bits(float *a, const float *b, uint32_t n, const char *what)
{
    for (size_t i = 0; i < (size_t)n * N_VOCAB; i++) {
        if (memcmp(&a[i], &b[i], sizeof *a) != 0)
            fail_msg("%s: position %zu, id %zu: %.9g and %.9g", what, i / N_VOCAB, i % N_VOCAB,
                     (double)a[i], (double)b[i]);
    }
    mem_free(a);
}

/* ---- results do not depend on how they are computed ---- */

/* Micro-batches of other sizes, calls of other sizes, other numbers of threads. */
static void check_cuts(const struct tiny *t, struct session_options o, const int32_t *ids,
                       uint32_t n, const float *ref)
{
    static const uint32_t ubs[] = {1, 2, 7, 64, 300};
    char what[64];

    for (size_t i = 0; i < sizeof ubs / sizeof ubs[0]; i++) {
        o.n_ubatch = ubs[i];
        snprintf(what, sizeof what, "-ub %u", ubs[i]);
        same_bits(all_logits(t, &o, ids, n, n, NULL), ref, n, what);
    }
    o.n_batch = 100;
    o.n_ubatch = 64;
    same_bits(all_logits(t, &o, ids, n, n, NULL), ref, n, "-b 100");
    same_bits(all_logits(t, &o, ids, n, 33, NULL), ref, n, "several calls");
    for (o.n_threads = 1; o.n_threads <= 3; o.n_threads++) {
        o.n_threads_batch = 4 - o.n_threads;
        same_bits(all_logits(t, &o, ids, n, 37, NULL), ref, n, "threads");
    }
}

static void test_same_bits(void **state)
{
    static const enum dtype kv_types[] = {DT_F32, DT_F16};
    int32_t ids[300];

    (void)state;
    random_ids(ids, 300, 9);
    for (int i = 0; i < 2; i++) {
        struct session_options o = tiny_session(&tiny, 512, 512);
        float *ref;

        o.type_k = o.type_v = kv_types[i];
        ref = all_logits(&tiny, &o, ids, 300, 300, NULL);
        check_cuts(&tiny, o, ids, 300, ref);
        o.no_reuse = true;
        same_bits(all_logits(&tiny, &o, ids, 300, 1, NULL), ref, 300, "no reuse");
        o.no_reuse = false;
        o.n_ctx = 300; /* other cells than 512 */
        same_bits(all_logits(&tiny, &o, ids, 300, 1, NULL), ref, 300, "-c 300");
        mem_free(ref);
    }
}

/*
 * Every type of the cache: the same bits however tokens are cut, and a distance from F32 that is not 0 and that
 * its precision allows.
 */
static void test_kv_types(void **state)
{
    static const struct {
        enum dtype type;
        double lo, hi;  /* of the normalised squared error */
        size_t n_bytes; /* of 32 elements */
    } kinds[] = {{DT_F16, 1e-12, 1e-6, 64},
                 {DT_BF16, 1e-9, 1e-4, 64},
                 {DT_Q8_0, 1e-9, 1e-3, 34},
                 {DT_Q4_0, 1e-6, 0.1, 18}};
    const struct tiny_options to = {.n_embd = 128, .seed = 6}; /* heads of 32 */
    struct session_options o;
    struct session_stats stats;
    struct tiny t;
    int32_t ids[70];
    float *exact;

    (void)state;
    random_ids(ids, 70, 4);
    ok(tiny_load(&t, &to, &err));
    o = tiny_session(&t, 256, 64);
    exact = all_logits(&t, &o, ids, 70, 70, NULL);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        double err2 = 0, ref2 = 0;
        float *x;

        o.type_k = o.type_v = kinds[i].type;
        x = all_logits(&t, &o, ids, 70, 70, &stats);
        check_cuts(&t, o, ids, 70, x);
        for (int j = 0; j < 70 * N_VOCAB; j++) {
            err2 += pow((double)x[j] - (double)exact[j], 2);
            ref2 += pow((double)exact[j], 2);
        }
        print_message("%s: NMSE %.2g\n", dtype_name(kinds[i].type), err2 / ref2);
        assert_true(err2 / ref2 > kinds[i].lo && err2 / ref2 < kinds[i].hi);
        /* 2 layers, K and V, 2 heads of 32 */
        assert_int_equal(stats.n_kv_bytes, 8 * 256 * kinds[i].n_bytes);
        mem_free(x);
    }
    mem_free(exact);
    tiny_release(&t);
}

/* Attention in steps: the same bits however tokens are cut, hardly other ones than in one step. */
static void test_no_flash_attn(void **state)
{
    static const enum dtype kinds[] = {DT_F32, DT_F16, DT_BF16};
    const struct tiny_options to = {.n_embd = 128, .seed = 6}; /* heads of 32 */
    struct session_options o;
    struct tiny t;
    int32_t ids[300];

    (void)state;
    random_ids(ids, 300, 4);
    ok(tiny_load(&t, &to, &err));
    o = tiny_session(&t, 512, 512);
    for (int i = 0; i < 4; i++) { /* last: keys may be quantised */
        double err2 = 0, ref2 = 0;
        float *x, *y;

        o.type_k = i == 3 ? DT_Q8_0 : kinds[i];
        o.type_v = kinds[i % 3];
        o.no_flash_attn = false;
        y = all_logits(&t, &o, ids, 300, 300, NULL);
        o.no_flash_attn = true;
        x = all_logits(&t, &o, ids, 300, 300, NULL);
        check_cuts(&t, o, ids, 300, x);
        for (int j = 0; j < 300 * N_VOCAB; j++) {
            err2 += pow((double)x[j] - (double)y[j], 2);
            ref2 += pow((double)y[j], 2);
        }
        assert_true(err2 > 0 && err2 / ref2 < 1e-10);
        mem_free(x);
        mem_free(y);
    }
    o.type_v = DT_Q8_0;
    {
        struct session *s;

        assert_int_equal(session_new(&s, t.m, &o, &err), ST_USAGE);
        assert_non_null(
            strstr(err.msg, "-ctv 'q8_0' needs flash attention; try -fa on, or -ctv f16"));
    }
    tiny_release(&t);
}

/* The same for other weights, where a kernel for many columns may be another. */
static void test_same_bits_quantised(void **state)
{
    static const enum dtype types[] = {DT_Q4_0, DT_Q4_1, DT_Q8_0, DT_Q4_K,
                                       DT_Q6_K, DT_F16,  DT_BF16};
    int32_t ids[70];

    (void)state;
    random_ids(ids, 70, 9);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct tiny_options to = {.seed = i, .type = types[i], .n_embd = 256, .n_ff = 256};
        struct session_options o;
        struct tiny t;
        float *ref;

        ok(tiny_load(&t, &to, &err));
        o = tiny_session(&t, 256, 256);
        ref = all_logits(&t, &o, ids, 70, 70, NULL);
        check_cuts(&t, o, ids, 70, ref);
        mem_free(ref);
        tiny_release(&t);
    }
}

static void test_last_is_last_of_all(void **state)
{
    struct session_options o = tiny_session(&tiny, 512, 64);
    int32_t ids[150];
    struct session *s;
    float *ref;

    (void)state;
    random_ids(ids, 150, 4);
    ref = all_logits(&tiny, &o, ids, 150, 150, NULL);
    o.all_outputs = false;
    ok(session_new(&s, tiny.m, &o, &err));
    ok(session_eval(s, ids, 100, WANT_NONE, NULL, NULL, &err));
    ok(session_eval(s, ids + 100, 50, WANT_LAST, NULL, NULL, &err));
    assert_memory_equal(session_logits(s), ref + 149 * N_VOCAB, N_VOCAB * sizeof *ref);
    session_free(s);
    mem_free(ref);
}

static void test_truncate(void **state)
{
    struct session_options o = tiny_session(&tiny, 512, 64);
    int32_t ids[150], other[60];
    struct session *s;
    float *ref;

    (void)state;
    random_ids(ids, 150, 4);
    random_ids(other, 60, 5);
    ref = all_logits(&tiny, &o, ids, 150, 150, NULL);
    ok(session_new(&s, tiny.m, &o, &err));
    ok(session_eval(s, ids, 100, WANT_NONE, NULL, NULL, &err));
    ok(session_eval(s, other, 60, WANT_NONE, NULL, NULL, &err));
    session_truncate(s, 100);
    ok(session_eval(s, ids + 100, 50, WANT_LAST, NULL, NULL, &err));
    assert_memory_equal(session_logits(s), ref + 149 * N_VOCAB, N_VOCAB * sizeof *ref);
    session_truncate(s, 0);
    ok(session_eval(s, ids, 1, WANT_LAST, NULL, NULL, &err));
    assert_memory_equal(session_logits(s), ref, N_VOCAB * sizeof *ref);
    session_free(s);
    mem_free(ref);
}

/* ---- reuse and memory ---- */

static int32_t greedy(const float *logits)
{
    int32_t best = 0;

    for (int32_t i = 1; i < N_VOCAB; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static void test_decode_1000(void **state)
{
    struct session_options o = tiny_session(&tiny, 1100, 512);
    struct session_stats before, after;
    int32_t ids[20], id;
    struct session *s;

    (void)state;
    random_ids(ids, 20, 1);
    o.all_outputs = false;
    log_set_sink(NULL, NULL, LOG_WARN); /* -c above the model's */
    ok(session_new(&s, tiny.m, &o, &err));
    ok(session_eval(s, ids, 20, WANT_LAST, NULL, NULL, &err));
    session_stats(s, &before);
    for (int i = 0; i < 1000; i++) {
        uint64_t built;

        session_stats(s, &after);
        built = after.graphs_built;
        id = greedy(session_logits(s));
        mem_guard_begin();
        ok(session_eval(s, &id, 1, WANT_LAST, NULL, NULL, &err));
        if (mem_guard_end()) { /* only a step that builds may allocate */
            session_stats(s, &after);
            assert_true(after.graphs_built > built);
        }
    }
    session_stats(s, &after);
    print_message("1000 steps: %d graphs built, %d for the KV length, %d regrows\n",
                  (int)(after.graphs_built - before.graphs_built), (int)after.rebuilds[11],
                  (int)after.exec.regrows);
    assert_string_equal(session_rebuild_name(11), "kv_length");
    assert_true(after.graphs_reused - before.graphs_reused >= 980);
    assert_int_equal(after.graphs_built - before.graphs_built,
                     4); /* 1 to n_tokens = 1; at 256, 512, 768 */
    assert_int_equal(after.exec.regrows, 0);
    session_free(s);
}

/* Every size of micro-batch at every padded length finds its memory reserved. */
static void test_no_regrow(void **state)
{
    static const int32_t ids[512];

    (void)state;
    log_set_sink(NULL, NULL, LOG_WARN);
    for (int all = 0; all < 2; all++) {
        struct session_options o = tiny_session(&tiny, 1024, 512);
        struct session_stats st;
        struct session *s;

        o.all_outputs = all;
        ok(session_new(&s, tiny.m, &o, &err));
        for (uint32_t past = 0; past < 1024; past += 256) {
            for (uint32_t n = 1; n <= 512 && past + n <= 1024; n = n < 8 ? n + 1 : n + 31) {
                static float x[1024 * N_VOCAB];
                struct rows r = {.x = x};

                while (session_n_past(s) < past) {
                    uint32_t k = past - session_n_past(s) < 512 ? past - session_n_past(s) : 512;
                    ok(session_eval(s, ids, k, WANT_NONE, NULL, NULL, &err));
                }
                ok(session_eval(s, ids, n, all ? WANT_ALL : WANT_LAST, keep, &r, &err));
                session_truncate(s, past);
                ok(session_eval(s, ids, n, WANT_NONE, NULL, NULL, &err));
                session_truncate(s, past);
            }
        }
        session_stats(s, &st);
        assert_int_equal(st.exec.regrows, 0);
        session_free(s);
    }
}

static void test_check_reuse(void **state)
{
    struct session_options o = tiny_session(&tiny, 512, 64);
    struct session_stats st;
    int32_t ids[200];
    float *ref, *x;

    (void)state;
    random_ids(ids, 200, 8);
    ref = all_logits(&tiny, &o, ids, 200, 1, NULL);
    o.check_reuse = true;
    x = all_logits(&tiny, &o, ids, 200, 1, &st);
    assert_int_equal(st.check_failures, 0);
    assert_int_equal(st.graphs_reused, 199);
    same_bits(x, ref, 200, "check");
    mem_free(all_logits(&tiny, &o, ids, 200, 50, &st));
    assert_int_equal(st.check_failures, 0);
    mem_free(ref);
}

/* A weight that changes between a replay and its check: the check sees it. */
struct spoil {
    float *w;
    int n;
};

static bool spoil_later(void *ctx, const struct tensor *t, bool ask)
{
    struct spoil *s = ctx;

    if (ask)
        return strcmp(t->name, "result_output") == 0;
    if (++s->n == 2) /* after the replay, before the check */
        s->w[0] += 1;
    return true;
}

static void test_check_reuse_sees(void **state)
{
    struct tiny_options to = {.seed = 6};
    struct session_options o;
    struct session_stats st;
    struct spoil spoil = {0};
    struct session *s;
    struct tiny t;
    int32_t id = 3;

    (void)state;
    log_set_sink(NULL, NULL, LOG_WARN);
    ok(tiny_load(&t, &to, &err));
    o = tiny_session(&t, 512, 64);
    o.check_reuse = true;
    o.watch = spoil_later;
    o.watch_ctx = &spoil;
    for (int i = 0; i < t.m->n_weights; i++) {
        if (t.m->weights[i] && strcmp(t.m->weights[i]->name, "output_norm.weight") == 0)
            spoil.w = t.m->weights[i]->data;
    }
    ok(session_new(&s, t.m, &o, &err));
    ok(session_eval(s, &id, 1, WANT_LAST, NULL, NULL, &err));
    ok(session_eval(s, &id, 1, WANT_LAST, NULL, NULL, &err));
    session_stats(s, &st);
    assert_int_equal(st.check_failures, 1);
    session_free(s);
    tiny_release(&t);
}

/* Evaluate 20 times, in turn, each of the numbers of tokens; what it built, and the last logits. */
static uint64_t in_turn(bool no_reuse, const uint32_t *n, int n_shapes, float *last)
{
    struct session_options o = tiny_session(&tiny, 1024, 64);
    struct session_stats before, after;
    int32_t ids[16];
    struct session *s;

    random_ids(ids, 16, 3);
    o.all_outputs = false;
    o.no_reuse = no_reuse;
    ok(session_new(&s, tiny.m, &o, &err));
    session_stats(s, &before);
    for (int i = 0; i < 20; i++) {
        uint32_t k = n[i % n_shapes];

        ok(session_eval(s, ids, k, WANT_LAST, NULL, NULL, &err));
    }
    session_stats(s, &after);
    assert_int_equal(after.exec.regrows, 0);
    assert_int_equal(after.graphs_built + after.graphs_reused, 20);
    memcpy(last, session_logits(s), N_VOCAB * sizeof *last);
    session_free(s);
    return after.graphs_built - before.graphs_built;
}

/* Shapes that alternate are each built once, while there are not more than are kept. */
static void test_shapes_in_turn(void **state)
{
    static const uint32_t two[] = {7, 1}, four[] = {7, 1, 3, 2}, five[] = {7, 1, 3, 2, 5};
    static const struct {
        const uint32_t *n;
        int n_shapes;
        uint64_t want;
    } cases[] = {{two, 2, 2}, {four, 4, 4}, {five, 5, 20}};
    float last[N_VOCAB], want[N_VOCAB];

    (void)state;
    log_set_sink(NULL, NULL, LOG_WARN);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(in_turn(false, cases[i].n, cases[i].n_shapes, last), cases[i].want);
        assert_int_equal(in_turn(true, cases[i].n, cases[i].n_shapes, want), 20);
        assert_memory_equal(last, want, sizeof last);
    }
}

static void test_no_reuse(void **state)
{
    struct session_options o = tiny_session(&tiny, 512, 64);
    struct session_stats st;
    int32_t ids[20] = {0};

    (void)state;
    o.no_reuse = true;
    mem_free(all_logits(&tiny, &o, ids, 20, 1, &st));
    assert_int_equal(st.graphs_built, 20);
    assert_int_equal(st.graphs_reused, 0);
    assert_string_equal(session_rebuild_name(0), "first");
    assert_string_equal(session_rebuild_name(1), "off");
    assert_int_equal(st.rebuilds[0], 1);
    assert_int_equal(st.rebuilds[1], 19);
    for (int i = 0; i < 13; i++)
        assert_non_null(session_rebuild_name(i));
    assert_null(session_rebuild_name(13));
}

/* ---- what the user may not ask ---- */

static void test_options(void **state)
{
    struct session_options o = tiny_session(&tiny, 0, 0);
    struct session *s;

    (void)state;
    log_set_sink(NULL, NULL, LOG_WARN);
    ok(session_new(&s, tiny.m, &o, &err));
    assert_int_equal(session_n_ctx(s), 512); /* the model's */
    session_free(s);
    o.n_ctx = 20;
    o.n_batch = 4096;
    o.n_ubatch = 8192; /* cut, not refused */
    ok(session_new(&s, tiny.m, &o, &err));
    assert_int_equal(session_n_ctx(s), 20);
    session_free(s);
    o.type_k = DT_Q8_0;
    assert_int_equal(session_new(&s, tiny.m, &o, &err), ST_USAGE);
    assert_non_null(strstr(err.msg, "-ctk 'q8_0'"));
    assert_non_null(strstr(err.msg, "have 16; try -ctk f16"));
    o.type_k = DT_F16;
    o.type_v = DT_Q4_0;
    assert_int_equal(session_new(&s, tiny.m, &o, &err), ST_USAGE);
    assert_non_null(strstr(err.msg, "-ctv 'q4_0' stores blocks of 32 elements"));
    o.type_v = DT_Q6_K;
    assert_int_equal(session_new(&s, tiny.m, &o, &err), ST_USAGE);
    assert_non_null(strstr(err.msg, "-ctv 'q6_K' is not a type"));
    o.type_v = (enum dtype)4; /* a hole in the numbering */
    assert_int_equal(session_new(&s, tiny.m, &o, &err), ST_USAGE);
    o.type_v = DT_F16;
    o.n_ctx = 0xfffffff0u;
    assert_int_equal(session_new(&s, tiny.m, &o, &err), ST_USAGE);
    assert_non_null(strstr(err.msg, "4294967280"));
    o.n_ctx = INT32_MAX - 256; /* 512 GiB of cache */
    assert_int_equal(session_new(&s, tiny.m, &o, &err), ST_NOMEM);
    assert_non_null(strstr(err.msg, "2147483391 positions"));
    o.n_ctx = 100;
    o.n_threads = -1;
    assert_int_equal(session_new(&s, tiny.m, &o, &err), ST_USAGE);
    assert_null(s);
}

static struct {
    char line[256];
    enum log_level level;
} told;

static void hear(void *ctx, enum log_level level, const char *line)
{
    (void)ctx;
    if (level > LOG_NOTE)
        return;
    told.level = level;
    snprintf(told.line, sizeof told.line, "%s", line);
}

/* How long the context becomes, and who is told why. */
static void test_contexts(void **state)
{
    static const struct {
        const char *arch;
        uint32_t n_train, n_ctx, n_got; /* 0: refused */
        const char *line;               /* what is said; NULL: nothing */
    } rows[] = {
        {"llama", 512, 0, 512, NULL},
        {"llama", 512, SESSION_CTX_ALL, 512, NULL},
        {"llama", 512, 513, 513, "-c 513 is more than the 512 positions"},
        {"llama", 4096, 0, 4096, NULL},
        {"llama", 5000, 0, 4096, "4096 of the model's 5000 tokens"},
        {"llama", 5000, SESSION_CTX_ALL, 5000, NULL},
        {"llama", 5000, 4999, 4999, NULL},
        {"gpt2", 512, 0, 512, NULL},
        {"gpt2", 512, 512, 512, NULL},
        {"gpt2", 512, 513, 0, NULL},
        {"starcoder", 100, 101, 0, NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tiny_options to = {.arch = rows[i].arch, .n_ctx = rows[i].n_train, .seed = 1};
        struct session_options o;
        struct session *s;
        struct tiny t;
        enum status st;

        ok(tiny_load(&t, &to, &err));
        o = tiny_session(&t, rows[i].n_ctx, 16);
        told.line[0] = 0;
        log_set_sink(hear, NULL, LOG_NOTE);
        st = session_new(&s, t.m, &o, &err);
        log_set_sink(NULL, NULL, LOG_WARN);
        assert_int_equal(st, rows[i].n_got ? ST_OK : ST_USAGE);
        if (st) {
            assert_null(s);
            assert_non_null(strstr(err.msg, "positions that the model has embeddings for"));
        } else {
            assert_int_equal(session_n_ctx(s), rows[i].n_got);
        }
        if (rows[i].line)
            assert_non_null(strstr(told.line, rows[i].line));
        else
            assert_string_equal(told.line, "");
        session_free(s);
        tiny_release(&t);
    }
}

static void test_limits(void **state)
{
    struct session_options o = tiny_session(&tiny, 100, 16);
    int32_t ids[101] = {0};
    struct session_stats st;
    struct session *s;

    (void)state;
    ok(session_new(&s, tiny.m, &o, &err));
    assert_int_equal(session_eval(s, ids, 101, WANT_LAST, NULL, NULL, &err), ST_USAGE);
    assert_non_null(strstr(err.msg, "101 tokens"));
    assert_non_null(strstr(err.msg, "holds 100"));
    ids[50] = N_VOCAB;
    assert_int_equal(session_eval(s, ids, 100, WANT_LAST, NULL, NULL, &err), ST_USAGE);
    assert_non_null(strstr(err.msg, "token id 128"));
    ids[50] = -1;
    assert_int_equal(session_eval(s, ids, 100, WANT_LAST, NULL, NULL, &err), ST_USAGE);
    session_stats(s, &st);
    assert_int_equal(st.evals, 0); /* refused before anything was evaluated */
    ids[50] = 0;
    ok(session_eval(s, ids, 100, WANT_LAST, NULL, NULL, &err));
    assert_int_equal(session_eval(s, ids, 1, WANT_LAST, NULL, NULL, &err), ST_USAGE);
    assert_int_equal(session_n_past(s), 100);
    ok(session_eval(s, ids, 0, WANT_LAST, NULL, NULL, &err));
    session_free(s);
}

/* ---- stopping half-way ---- */

static enum status stop_at_40(void *ctx, uint32_t pos, const float *logits, struct err *e)
{
    (void)ctx;
    (void)logits;
    return pos < 40 ? ST_OK : err_set(e, ST_IO, "enough");
}

static void set_cancel(void *ctx, uint32_t n_done, uint32_t n_total)
{
    assert_int_equal(n_total, 100);
    if (n_done >= 32)
        *(atomic_bool *)ctx = true;
}

static void test_stops(void **state)
{
    struct session_options o = tiny_session(&tiny, 512, 16);
    atomic_bool cancel = false;
    int32_t ids[120];
    struct session *s;
    float *ref;

    (void)state;
    random_ids(ids, 120, 2);
    ref = all_logits(&tiny, &o, ids, 120, 120, NULL);
    o.cancel = &cancel;
    o.progress = set_cancel;
    o.progress_ctx = &cancel;
    ok(session_new(&s, tiny.m, &o, &err));
    assert_int_equal(session_eval(s, ids, 100, WANT_ALL, stop_at_40, NULL, &err), ST_CANCELLED);
    assert_int_equal(session_n_past(s), 0);
    session_free(s);

    o.progress = NULL;
    cancel = false;
    ok(session_new(&s, tiny.m, &o, &err));
    ok(session_eval(s, ids, 20, WANT_NONE, NULL, NULL, &err));
    assert_int_equal(session_eval(s, ids + 20, 100, WANT_ALL, stop_at_40, NULL, &err), ST_IO);
    assert_string_equal(err.msg, "enough");
    assert_int_equal(session_n_past(s), 20);
    cancel = true;
    assert_int_equal(session_eval(s, ids + 20, 100, WANT_LAST, NULL, NULL, &err), ST_CANCELLED);
    assert_int_equal(session_n_past(s), 20);
    cancel = false;
    ok(session_eval(s, ids + 20, 100, WANT_LAST, NULL, NULL,
                    &err)); /* as if nothing had happened */
    assert_memory_equal(session_logits(s), ref + 119 * N_VOCAB, N_VOCAB * sizeof *ref);
    session_free(s);
    mem_free(ref);
}

struct look {
    const char *name;
    int n;
    bool stop;
    float first;
};

static bool look_at(void *ctx, const struct tensor *t, bool ask)
{
    struct look *l = ctx;

    if (strcmp(t->name, l->name) != 0)
        return !ask; /* "false" to the question, never asked otherwise */
    if (ask)
        return true;
    l->n++;
    assert_int_equal(tensor_get(t, 0, &l->first, sizeof l->first, NULL), ST_OK);
    return !l->stop;
}

static void test_watch(void **state)
{
    struct look look = {.name = "l_out-1"};
    struct session_options o = tiny_session(&tiny, 512, 16);
    int32_t ids[20];
    struct session *s;
    float *ref;

    (void)state;
    random_ids(ids, 20, 2);
    ref = all_logits(&tiny, &o, ids, 20, 20, NULL);
    o.watch = look_at;
    o.watch_ctx = &look;
    same_bits(all_logits(&tiny, &o, ids, 20, 20, NULL), ref, 20, "watched");
    assert_int_equal(look.n, 2);
    assert_true(look.first != 0 && isfinite(look.first));
    look = (struct look){.name = "kqv_out-0"}; /* a view: never computed, never asked for */
    same_bits(all_logits(&tiny, &o, ids, 20, 20, NULL), ref, 20, "watched");
    look = (struct look){.name = "ffn_out-0", .stop = true};
    ok(session_new(&s, tiny.m, &o, &err));
    assert_int_equal(session_eval(s, ids, 20, WANT_LAST, NULL, NULL, &err), ST_CANCELLED);
    assert_string_equal(err.msg, "stopped after node 'ffn_out-0'");
    assert_int_equal(look.n, 1);
    assert_int_equal(session_n_past(s), 0);
    session_free(s);
    mem_free(ref);
}

/* ---- values that are not finite ---- */

struct poison {
    const char *name;
    float value;
    int at;
};

static void poison(void *ctx, struct tiny_tensor *t)
{
    const struct poison *p = ctx;

    if (strcmp(t->name, p->name) == 0)
        t->x[p->at] = p->value;
}

static void test_not_finite(void **state)
{
    static const struct {
        struct poison p;
        enum dtype type;
        const char *text;
    } rows[] = {
        {{"blk.1.ffn_down.weight", NAN, 7}, DT_F32, "'ffn_out-1' is the first node with nan"},
        {{"blk.0.attn_v.weight", INFINITY, 3}, DT_F32, "'Vcur-0' is the first node with"},
        {{"blk.1.attn_norm.weight", NAN, 0}, DT_F32, "'attn_norm-1' is the first node with nan"},
        {{"output.weight", NAN, 64 * 5}, DT_F32, "'result_output' is the first node with nan"},
        {{"blk.0.ffn_up.weight", NAN, 40}, DT_Q4_1, "'ffn_up-0' is the first node with"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tiny_options to = {
            .seed = 6, .type = rows[i].type, .tensor = poison, .ctx = (void *)&rows[i].p};
        int32_t ids[20] = {1, 2, 3};
        struct session_options o;
        struct session *s;
        struct tiny t;

        ok(tiny_load(&t, &to, &err));
        o = tiny_session(&t, 512, 16);
        ok(session_new(&s, t.m, &o, &err));
        assert_int_equal(session_eval(s, ids, 20, WANT_LAST, NULL, NULL, &err), ST_MODEL);
        if (!strstr(err.msg, rows[i].text) || !strstr(err.msg, "logits at position 19"))
            fail_msg("%s: '%s'", rows[i].p.name, err.msg);
        assert_int_equal(session_n_past(s), 0);
        session_free(s);
        tiny_release(&t);
    }
}

/* ---- extreme weights ---- */

enum extreme { LARGE, ZERO_ROWS, F16_MAX, TINY };

/* What a file may hold without being damaged: large, tiny and absent weights. */
static void make_extreme(void *ctx, struct tiny_tensor *t)
{
    enum extreme what = *(const enum extreme *)ctx;
    int64_t n = t->ne[0] * t->ne[1];

    if (t->n_dims < 2)
        return;
    for (int64_t i = 0; i < n; i++) {
        bool odd_row = i / t->ne[0] % 2;

        if (what == LARGE)
            t->x[i] *= 1e4f;
        else if (what == TINY)
            t->x[i] *= 1e-38f; /* subnormal, in F16 and in a block's scale zero */
        else if (odd_row)
            t->x[i] = what == F16_MAX ? 65504.0f : 0;
    }
}

static enum status expect_finite(void *ctx, uint32_t pos, const float *logits, struct err *e)
{
    (void)ctx;
    (void)e;
    for (int i = 0; i < N_VOCAB; i++)
        if (!isfinite(logits[i]))
            fail_msg("position %u, id %d: %g", pos, i, (double)logits[i]);
    return ST_OK;
}

/* Logits are finite, or the first bad node and its position are named: never a number to sample
 * from that is none. */
static void test_extreme_weights(void **state)
{
    static const enum dtype types[] = {DT_F32,  DT_F16,  DT_BF16, DT_Q4_0, DT_Q4_1,
                                       DT_Q5_0, DT_Q5_1, DT_Q8_0, DT_Q4_K, DT_Q6_K};
    static const enum dtype kv_types[] = {DT_F32, DT_F16};
    int32_t ids[70];

    (void)state;
    random_ids(ids, 70, 4);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (!quant_encoder(types[i]))
            continue;
        for (enum extreme what = LARGE; what <= TINY; what++) {
            struct tiny_options to = {.seed = 8,
                                      .type = types[i],
                                      .n_embd = 256,
                                      .n_ff = 256,
                                      .tensor = make_extreme,
                                      .ctx = &what};
            struct tiny t;

            ok(tiny_load(&t, &to, &err));
            for (int kv = 0; kv < 2; kv++) {
                struct session_options o = tiny_session(&t, 512, 64);
                struct session *s;
                enum status st;

                o.type_k = o.type_v = kv_types[kv];
                ok(session_new(&s, t.m, &o, &err));
                st = session_eval(s, ids, 70, WANT_ALL, expect_finite, NULL, &err);
                /* 65504 and more do not fit into an F16 cache */
                if (st &&
                    (st != ST_MODEL || what != F16_MAX || kv_types[kv] == DT_F32 ||
                     !strstr(err.msg, "'kqv-0' is the first node with") ||
                     !strstr(err.msg, "in it, at position 0") || !strstr(err.msg, "-ctv f32")))
                    fail_msg("%s, %d: %s", dtype_name(types[i]), (int)what, err.msg);
                session_free(s);
            }
            tiny_release(&t);
        }
    }
}

/* One bad row of the embedding: its position is named, and what it left behind does no harm. */
static void test_bad_token(void **state)
{
    struct tiny_options good = {.seed = 6}, bad = {.seed = 6, .tensor = poison};
    struct poison p = {"token_embd.weight", INFINITY, 64 * 99 + 1}; /* id 99 */
    int32_t ids[12] = {1, 2, 3, 4, 5, 6, 7, 99, 8, 9, 10, 11};
    struct session_options o;
    struct session *s;
    struct tiny t;
    float *ref;

    (void)state;
    ok(tiny_load(&t, &good, &err));
    o = tiny_session(&t, 512, 16);
    ref = all_logits(&t, &o, ids, 7, 7, NULL);
    tiny_release(&t);
    bad.ctx = &p;
    ok(tiny_load(&t, &bad, &err));
    ok(session_new(&s, t.m, &o, &err));
    assert_int_equal(session_eval(s, ids, 12, WANT_LAST, NULL, NULL, &err), ST_MODEL);
    assert_non_null(strstr(err.msg, "'embd' is the first node with inf in it, at position 7"));
    ok(session_eval(s, ids, 7, WANT_LAST, NULL, NULL, &err));
    assert_memory_equal(session_logits(s), ref + 6 * N_VOCAB, N_VOCAB * sizeof *ref);
    session_free(s);
    tiny_release(&t);
    mem_free(ref);
}

/* ---- memory ---- */

static enum status load_and_eval(const void *bytes, size_t n)
{
    struct device_options dopt = {.n_threads = 2};
    struct devices devs = {0};
    struct model_options mo = {.devs = &devs, .check_tensors = true};
    struct session_options o = {.devs = &devs, .n_ctx = 64, .n_ubatch = 4};
    static const int32_t ids[6] = {1, 2, 3, 4, 5, 6};
    struct session *s = NULL;
    struct model *m = NULL;
    struct gguf *g;
    enum status st = devices_open(&devs, &dopt, &err);

    if (!st)
        st = gguf_open_memory(&g, bytes, n, "tiny", &err);
    if (!st)
        st = model_load(&m, g, &mo, &err);
    if (!st)
        st = session_new(&s, m, &o, &err);
    if (!st)
        st = session_eval(s, ids, 6, WANT_LAST, NULL, NULL, &err);
    session_free(s);
    model_free(m);
    devices_close(&devs);
    return st;
}

/* Whichever allocation fails, the answer is a status, and nothing leaks (the sanitizer looks). */
static void test_every_allocation_fails(void **state)
{
    uint64_t n_calls, n;

    (void)state;
    n_calls = mem_calls();
    ok(load_and_eval(tiny.bytes, tiny.n_bytes));
    n_calls = mem_calls() - n_calls;
    for (n = 1; n <= n_calls; n++) {
        enum status st;

        mem_fail_at(n);
        err.msg[0] = 0;
        st = load_and_eval(tiny.bytes, tiny.n_bytes);
        mem_fail_at(0);
        if (st != ST_NOMEM || !err.msg[0])
            fail_msg("allocation %d of %d: %s '%s'", (int)n, (int)n_calls, status_name(st),
                     err.msg);
    }
    print_message("%d allocations\n", (int)n_calls);
    assert_true(n_calls > 30);
}

/* Plans without memory: a context that nobody could allocate. */
static void test_dry(void **state)
{
    struct session_options o = tiny_session(&tiny, 1u << 30, 512);
    struct session_stats st;
    struct session *s;
    int32_t id = 0;

    (void)state;
    log_set_sink(NULL, NULL, LOG_WARN);
    o.exec.dry = true;
    ok(session_new(&s, tiny.m, &o, &err));
    session_stats(s, &st);
    assert_true(st.n_kv_bytes ==
                (uint64_t)(1u << 30) * 2 * 2 * 32 * 4); /* k and v, layers, width, f32 */
    assert_int_equal(session_eval(s, &id, 1, WANT_LAST, NULL, NULL, &err), ST_USAGE);
    session_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_same_bits_quantised),
        cmocka_unit_test(test_kv_types),
        cmocka_unit_test(test_no_flash_attn),
        cmocka_unit_test(test_last_is_last_of_all),
        cmocka_unit_test(test_truncate),
        cmocka_unit_test(test_decode_1000),
        cmocka_unit_test(test_no_regrow),
        cmocka_unit_test(test_check_reuse),
        cmocka_unit_test(test_check_reuse_sees),
        cmocka_unit_test(test_no_reuse),
        cmocka_unit_test(test_shapes_in_turn),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_contexts),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_watch),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_extreme_weights),
        cmocka_unit_test(test_bad_token),
        cmocka_unit_test(test_every_allocation_fails),
        cmocka_unit_test(test_dry),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
