/*
 * Samplers in the graph: the ids of the host's sampler step by step, what a simple sort of the logits
 * says, and when a graph is built anew.
 */
#include "tests/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/sampler.h"
#include "tests/runtime/tiny_model.h"

#define N_TINY  131 /* ids of the tiny model: no whole number of words */
#define N_STEPS 200

static struct err err;

static void ok(enum status st)
{
    if (st)
        fail_msg("%s: %s", status_name(st), err.msg);
}

/* ---- two sessions of one model: one samples in the graph ---- */

struct pair {
    struct devices devs;
    struct model *m;
    struct session *host, *graph;
};

static void open_sessions(struct pair *p)
{
    struct session_options o = {.devs = &p->devs, .n_ctx = 512, .n_ubatch = 64, .exec.check = true};

    ok(session_new(&p->host, p->m, &o, &err));
    ok(session_new(&p->graph, p->m, &o, &err));
}

/* sim: NULL, or how many simulated accelerators take the layers. */
static void open_story(struct pair *p, const char *sim)
{
    struct device_options dopt = {.n_threads = 2, .sim = sim};
    struct placement_options place = {.n_gpu_layers = sim ? 99 : 0};
    struct model_options mo = {.devs = &p->devs, .place = &place};
    struct gguf *file;
    char path[4096];

    snprintf(path, sizeof path, "%s/cli/ggrun-tiny-q8_0.gguf", getenv("GGRUN_SOURCE_DIR"));
    ok(devices_open(&p->devs, &dopt, &err));
    ok(gguf_open(&file, path, GGUF_MMAP, &err));
    ok(model_load(&p->m, file, &mo, &err));
    open_sessions(p);
}

static void close_story(struct pair *p)
{
    session_free(p->host);
    session_free(p->graph);
    model_free(p->m);
    devices_close(&p->devs);
}

static uint64_t rebuilds(const struct session *s, const char *reason)
{
    struct session_stats st;
    const char *name;

    session_stats(s, &st);
    for (int i = 0; (name = session_rebuild_name(i)); i++)
        if (strcmp(name, reason) == 0)
            return st.rebuilds[i];
    fail_msg("no reason '%s'", reason);
    return 0;
}

static void eval(struct session *s, const int32_t *ids, uint32_t n)
{
    ok(session_eval(s, ids, n, WANT_LAST, NULL, NULL, &err));
}

static void no_regrow(const struct session *s)
{
    struct session_stats st;

    session_stats(s, &st);
    assert_int_equal(st.exec.regrows, 0);
}

/* ---- the same ids as the sampler of the host ---- */

/* A chain and what is never picked; `n` ids come out of the graph. */
struct chain {
    const char *names; /* NULL: the usual order */
    float temp;
    int32_t top_k, n;
    bool bans;
};

static struct sampler *make_sampler(const struct chain *c, const struct model *m)
{
    struct sampler_options so;
    struct sampler *s;

    sampler_defaults(&so);
    so.temp = c->temp;
    so.top_k = c->top_k;
    so.seed = 7;
    if (c->names)
        ok(sampler_set_names(&so, "--samplers", c->names, &err));
    ok(sampler_new(&s, &so, (int32_t)m->hp.n_vocab, 512, &err));
    for (int32_t id = 0; c->bans && id < (int32_t)m->hp.n_vocab; id++)
        if (id % 3 == 1)
            ok(sampler_ban(s, id, &err));
    return s;
}

static int32_t next_of_graph(struct sampler *s, const struct session *from, int32_t n)
{
    const int32_t *ids;
    const float *logits;
    int32_t id = -1;

    assert_int_equal(session_sampled(from, &ids, &logits), n);
    ok(sampler_sample_of(s, ids, logits, n, &id, &err));
    return id;
}

static void same_candidates(const struct sampler *a, const struct sampler *b)
{
    int32_t n_a, n_b;
    const struct candidate *ca = sampler_kept(a, &n_a), *cb = sampler_kept(b, &n_b);

    assert_int_equal(n_a, n_b);
    assert_memory_equal(ca, cb, (size_t)n_a * sizeof *ca);
}

static void run_chain(struct pair *p, const struct chain *c)
{
    struct sampler *host = make_sampler(c, p->m), *graph = make_sampler(c, p->m);
    int32_t prompt[] = {1, 96, 89, 62, 53};
    struct graph_sampling gs;
    struct session_stats st;
    const char *why;
    uint64_t before;

    assert_true(sampler_in_graph(graph, &gs, &why));
    assert_true(gs.argmax == (c->n == 1) && !gs.allowed == !c->bans);
    session_truncate(p->host, 0);
    session_truncate(p->graph, 0);
    ok(session_set_sampling(p->graph, &gs, &err));
    session_stats(p->graph, &st);
    before = st.graph_sampled;
    eval(p->host, prompt, 5);
    eval(p->graph, prompt, 5);
    for (int i = 0; i < N_STEPS; i++) {
        int32_t want = -1, got = next_of_graph(graph, p->graph, c->n);

        ok(sampler_sample(host, session_logits(p->host), &want, &err));
        if (got != want)
            fail_msg("%s, step %d: %d, expected %d", c->names ? c->names : "usual", i, (int)got,
                     (int)want);
        same_candidates(host, graph);
        sampler_accept(host, want);
        sampler_accept(graph, want);
        eval(p->host, &want, 1);
        eval(p->graph, &want, 1);
    }
    session_stats(p->graph, &st);
    assert_int_equal(st.graph_sampled - before, N_STEPS + 1);
    no_regrow(p->graph);
    sampler_free(host);
    sampler_free(graph);
}

static const struct chain chains[] = {
    {NULL, 0, 40, 1, false},
    {NULL, 0, 0, 1, true},
    {NULL, 0.8f, 40, 40, false},
    {NULL, 1.5f, 7, 7, true},
    {NULL, 2, 1, 1, true},
    {"top_k;temperature", 1.2f, 20, 20, false},
    {"top_k;typ_p;xtc;penalties;temperature", 0.9f, 130, 130, false},
    {"min_p;temperature;top_k", 0, 5, 1, false},
};

static void test_story(void **state)
{
    static const char *const sims[] = {NULL, "2"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct pair p;

        open_story(&p, sims[i]);
        for (size_t k = 0; k < (sims[i] ? 4 : sizeof chains / sizeof chains[0]); k++)
            run_chain(&p, &chains[k]);
        close_story(&p);
    }
}

static struct tiny tiny;
static struct pair tiny_pair; /* of this */

static int setup(void **state)
{
    struct tiny_options o = {.seed = 5, .n_vocab = N_TINY};

    (void)state;
    if (tiny_load(&tiny, &o, &err))
        return -1;
    tiny_pair = (struct pair){.devs = tiny.devs, .m = tiny.m};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tiny_release(&tiny);
    return 0;
}

static void open_tiny(void)
{
    open_sessions(&tiny_pair);
}

static void close_tiny(void)
{
    session_free(tiny_pair.host);
    session_free(tiny_pair.graph);
}

static void test_tiny(void **state)
{
    (void)state;
    open_tiny();
    for (size_t k = 0; k < sizeof chains / sizeof chains[0]; k++)
        run_chain(&tiny_pair, &chains[k]);
    close_tiny();
}

/* What the graph cannot do is named; what stands behind the top k, or only forbids ids, is in nobody's way. */
static void test_in_the_way(void **state)
{
    static const struct {
        const char *names;
        float temp, penalty, dry, bias;
        int32_t top_k, mirostat;
        const char *why; /* NULL: it can */
    } rows[] = {
        {NULL, 0.8f, 1, 0, 0, 40, 0, NULL},
        {NULL, 0.8f, 1.1f, 0, 0, 40, 0, "penalties"},
        {NULL, 0, 1.1f, 0, 0, 40, 0, "penalties"},
        {"top_k;penalties", 0.8f, 1.1f, 0, 0, 40, 0, NULL},
        {NULL, 0, 1, 1, 0, 40, 0, "dry"},
        {NULL, 0, 1, 0, 0.5f, 40, 0, "logit_bias"},
        {NULL, 0, 1, 0, -INFINITY, 40, 0, NULL},
        {NULL, 0.8f, 1, 0, 0, 0, 0, "top_p"},
        {NULL, 0.8f, 1, 0, 0, 130, 0, NULL},
        {NULL, 0.8f, 1, 0, 0, 131, 0, "top_k"},
        {"temperature;top_k", 0.8f, 1, 0, 0, 40, 0, "temperature"},
        {"temperature;top_k", 1, 1, 0, 0, 40, 0, NULL},
        {NULL, 0.8f, 1, 0, 0, 40, 2, "temperature"},
        {NULL, 1, 1, 0, 0, 40, 2, "mirostat"},
        {NULL, 0, 1, 0, 0, 40, 2, NULL},
        {"penalties", 0.8f, 1, 0, 0, 40, 0, "dist"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sampler_options so;
        struct graph_sampling gs;
        struct sampler *s;
        const char *why;
        bool can;

        sampler_defaults(&so);
        so.temp = rows[i].temp;
        so.repeat_penalty = rows[i].penalty;
        so.dry_multiplier = rows[i].dry;
        so.top_k = rows[i].top_k;
        so.mirostat = rows[i].mirostat;
        if (rows[i].names)
            ok(sampler_set_names(&so, "--samplers", rows[i].names, &err));
        ok(sampler_new(&s, &so, N_TINY, 512, &err));
        ok(sampler_bias(s, 130, rows[i].bias, &err));
        can = sampler_in_graph(s, &gs, &why);
        if (can != !rows[i].why || (!can && strcmp(why, rows[i].why) != 0))
            fail_msg("row %zu: %s", i, can ? "can" : why);
        sampler_free(s);
    }
}

/* ---- the values themselves, by sorting ---- */

struct scored {
    int32_t id;
    float logit;
};

static int by_logit(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;

    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id - y->id;
}

static bool is_allowed(const uint32_t *bits, int32_t id)
{
    return !bits || (bits[id / 32] & UINT32_C(1) << id % 32) != 0;
}

/* What the last step sampled, against its row of logits. */
static void check_sampled(const struct session *s, const float *row, const uint32_t *bits,
                          int32_t n, float factor)
{
    struct scored all[N_TINY];
    const int32_t *ids;
    const float *logits;

    for (int32_t i = 0; i < N_TINY; i++)
        all[i] = (struct scored){i, is_allowed(bits, i) ? row[i] : -INFINITY};
    qsort(all, N_TINY, sizeof all[0], by_logit);
    assert_int_equal(session_sampled(s, &ids, &logits), n);
    for (int32_t i = 0; i < n; i++)
        if (ids[i] != all[i].id || logits[i] != all[i].logit * factor)
            fail_msg("%d: id %d of %.9g, expected %d of %.9g", (int)i, (int)ids[i],
                     (double)logits[i], (int)all[i].id, (double)(all[i].logit * factor));
}

/* Sampling differs from the last step's in what the graph is made of: one rebuild; else none. */
static void step(const struct graph_sampling *gs, int32_t id, bool differs)
{
    struct session *s = tiny_pair.graph;
    uint64_t before = rebuilds(s, "samplers");
    struct session_stats st;
    uint64_t n_built;
    float factor = gs->argmax || gs->temp == 0 ? 1 : 1 / gs->temp;

    ok(session_set_sampling(s, gs, &err));
    session_stats(s, &st);
    n_built = st.graphs_built;
    for (int i = 0; i < 3; i++) {
        id = (id * 37 + 11) % N_TINY;
        eval(tiny_pair.host, &id, 1);
        eval(s, &id, 1);
        check_sampled(s, session_logits(tiny_pair.host), gs->allowed,
                      gs->argmax           ? 1
                      : gs->top_k < N_TINY ? gs->top_k
                                           : N_TINY,
                      factor);
        session_stats(s, &st);
        assert_int_equal(rebuilds(s, "samplers") - before, differs);
        assert_int_equal(st.graphs_built - n_built, differs);
    }
    no_regrow(s);
}

static void test_changes(void **state)
{
    uint32_t bits[5], other[5] = {0, 1u << 31, 0, 7, 0};
    struct graph_sampling gs = {.argmax = true};
    int32_t prompt[] = {1, 2, 3};

    (void)state;
    for (int i = 0; i < 5; i++)
        bits[i] = 0x9e3779b9u * (unsigned)(i + 1);
    open_tiny();
    eval(tiny_pair.host, prompt, 3);
    eval(tiny_pair.graph, prompt, 3);
    for (int i = 0; i < 2; i++) { /* one token at a time, before samplers are set */
        eval(tiny_pair.host, prompt, 1);
        eval(tiny_pair.graph, prompt, 1);
    }
    step(&gs, 1, true);
    step(&gs, 2, false);
    gs.top_k = 9; /* in vain, as is the temperature */
    gs.temp = 3;
    step(&gs, 3, false);
    gs.argmax = false;
    step(&gs, 4, true);
    gs.temp = 0.7f;
    step(&gs, 5, true);
    gs.top_k = 10;
    step(&gs, 6, true);
    gs.allowed = bits;
    step(&gs, 7, true);
    gs.allowed = other; /* another mask, then other bits in it */
    step(&gs, 8, false);
    memcpy(other, bits, sizeof other);
    step(&gs, 9, false);
    gs.argmax = true;
    step(&gs, 10, true);
    gs = (struct graph_sampling){.top_k = 5, .temp = 1};
    step(&gs, 11, true);
    gs.temp = 0;
    step(&gs, 12, false);
    gs.top_k = 100000; /* all of them */
    step(&gs, 13, true);
    gs.top_k = N_TINY;
    step(&gs, 14, false);
    close_tiny();
}

/* All that can be in a graph has its room there. */
static void test_nodes(void **state)
{
    static const uint32_t bits[5];
    const struct graph_sampling all[] = {{.argmax = true, .allowed = bits},
                                         {.top_k = 3, .temp = 2, .allowed = bits}};
    struct session_stats st;
    int32_t id = 1;
    int n_without;

    (void)state;
    open_tiny();
    eval(tiny_pair.graph, &id, 1);
    session_stats(tiny_pair.graph, &st);
    n_without = st.graph_nodes;
    for (int i = 0; i < 2; i++) {
        ok(session_set_sampling(tiny_pair.graph, &all[i], &err));
        eval(tiny_pair.graph, &id, 1);
        session_stats(tiny_pair.graph, &st);
        /* and the input */
        assert_in_range(st.graph_nodes + 1 - n_without, 5, GRAPH_SAMPLING_NODES);
    }
    close_tiny();
}

/* There and back without a step between them builds nothing; off is a change like any other. */
static void test_there_and_back(void **state)
{
    struct graph_sampling gs = {.argmax = true}, none = {.logits = false};
    struct session *s;
    const int32_t *ids;
    const float *logits;
    int32_t id = 1;

    (void)state;
    open_tiny();
    s = tiny_pair.graph;
    eval(s, &id, 1);
    ok(session_set_sampling(s, &gs, &err));
    ok(session_set_sampling(s, &none, &err));
    eval(s, &id, 1);
    assert_int_equal(rebuilds(s, "samplers"), 0);
    ok(session_set_sampling(s, &gs, &err));
    eval(s, &id, 1);
    assert_int_equal(session_sampled(s, &ids, &logits), 1);
    ok(session_set_sampling(s, &none, &err));
    assert_int_equal(session_sampled(s, &ids, &logits), 0);
    eval(s, &id, 1);
    assert_int_equal(session_sampled(s, &ids, &logits), 0);
    assert_int_equal(rebuilds(s, "samplers"), 2);
    close_tiny();
}

/* Set with the session's options, they are in its first graph. */
static void test_from_the_start(void **state)
{
    struct session_options o = tiny_session(&tiny, 512, 16);
    int32_t ids[40] = {3, 1, 4};
    struct session *s;

    (void)state;
    open_tiny();
    o.check_reuse = true;
    o.sampling = (struct graph_sampling){.top_k = 6};
    ok(session_new(&s, tiny.m, &o, &err));
    eval(tiny_pair.host, ids, 40);
    eval(s, ids, 40); /* micro-batches without outputs before the last */
    check_sampled(s, session_logits(tiny_pair.host), NULL, 6, 1);
    for (int i = 0; i < 5; i++) {
        eval(tiny_pair.host, ids + i, 1);
        eval(s, ids + i, 1);
        check_sampled(s, session_logits(tiny_pair.host), NULL, 6, 1);
    }
    assert_int_equal(rebuilds(s, "samplers"), 0);
    no_regrow(s);
    session_free(s);
    close_tiny();
}

/* ---- the row of logits ---- */

static void test_row_on_demand(void **state)
{
    struct graph_sampling gs = {.argmax = true};
    size_t size = N_TINY * sizeof(float);
    float before[N_TINY];
    int32_t id = 1;

    (void)state;
    open_tiny();
    for (int i = 0; i < 2; i++) {
        eval(tiny_pair.host, &id, 1);
        eval(tiny_pair.graph, &id, 1);
    }
    memcpy(before, session_logits(tiny_pair.graph), size);
    ok(session_set_sampling(tiny_pair.graph, &gs, &err));
    id = 5;
    eval(tiny_pair.host, &id, 1);
    eval(tiny_pair.graph, &id, 1);
    assert_true(memcmp(session_logits(tiny_pair.host), before, size) != 0);
    assert_memory_equal(session_logits(tiny_pair.graph), before, size); /* nobody asked for it */
    gs.logits = true;
    ok(session_set_sampling(tiny_pair.graph, &gs, &err));
    eval(tiny_pair.host, &id, 1);
    eval(tiny_pair.graph, &id, 1);
    assert_memory_equal(session_logits(tiny_pair.graph), session_logits(tiny_pair.host), size);
    assert_int_equal(rebuilds(tiny_pair.graph, "samplers"), 1);
    close_tiny();
}

static enum status count_rows(void *ctx, uint32_t pos, const float *logits, struct err *e)
{
    float(*rows)[N_TINY] = ctx;

    (void)e;
    memcpy(rows[pos], logits, sizeof rows[0]);
    return ST_OK;
}

/* A sink gets its rows all the same; the last token is the one that was sampled. */
static void test_all_rows(void **state)
{
    static float want[20][N_TINY], got[20][N_TINY];
    struct session_options o = tiny_session(&tiny, 512, 8);
    int32_t ids[20] = {7, 9, 2, 77};
    struct session *s;

    (void)state;
    ok(session_new(&s, tiny.m, &o, &err));
    ok(session_eval(s, ids, 20, WANT_ALL, count_rows, want, &err));
    session_truncate(s, 0);
    ok(session_set_sampling(s, &(struct graph_sampling){.top_k = 3}, &err));
    ok(session_eval(s, ids, 20, WANT_ALL, count_rows, got, &err));
    assert_memory_equal(got, want, sizeof got);
    check_sampled(s, want[19], NULL, 3, 1);
    no_regrow(s);
    session_free(s);
}

/* ---- what goes wrong ---- */

static void test_nothing_allowed(void **state)
{
    uint32_t bits[5] = {0, 0, 0, 0, ~7u}; /* what is behind the vocabulary does not count */
    struct chain c = {NULL, 0, 40, 1, false};
    struct sampler *sampler = make_sampler(&c, tiny.m);
    struct graph_sampling gs = {.argmax = true, .allowed = bits};
    const int32_t *ids;
    const float *logits;
    int32_t id = 1;

    (void)state;
    open_tiny();
    for (int top = 0; top < 2; top++) {
        int32_t n, got;

        ok(session_set_sampling(tiny_pair.graph, &gs, &err));
        eval(tiny_pair.graph, &id, 1);
        n = session_sampled(tiny_pair.graph, &ids, &logits);
        assert_int_equal(n, top ? 4 : 1);
        assert_true(logits[0] == -INFINITY);
        assert_int_equal(sampler_sample_of(sampler, ids, logits, n, &got, &err), ST_MODEL);
        assert_non_null(strstr(err.msg, "no token is left to pick: all 131"));
        gs = (struct graph_sampling){.top_k = 4, .allowed = bits};
    }
    bits[2] = 1u << 7; /* one is, in the same graph */
    eval(tiny_pair.graph, &id, 1);
    ok(sampler_sample_of(sampler, ids, logits, 4, &id, &err));
    assert_int_equal(id, 71);
    assert_int_equal(rebuilds(tiny_pair.graph, "samplers"), 1);
    sampler_free(sampler);
    close_tiny();
}

struct change {
    float value;
    int64_t at; /* -1: a factor of all */
};

static void change_output(void *ctx, struct tiny_tensor *t)
{
    const struct change *c = ctx;

    if (strcmp(t->name, "output.weight") != 0)
        return;
    for (int64_t i = 0; c->at < 0 && i < t->ne[0] * t->ne[1]; i++)
        t->x[i] *= c->value;
    if (c->at >= 0)
        t->x[c->at] = c->value;
}

/* The status of an evaluation, its message in err. */
static enum status eval_changed(struct change c, const struct graph_sampling *gs)
{
    struct tiny_options to = {.seed = 6, .tensor = change_output, .ctx = &c};
    int32_t ids[20] = {1, 2, 3};
    struct session_options o;
    struct session *s;
    enum status st;
    struct tiny t;

    ok(tiny_load(&t, &to, &err));
    o = tiny_session(&t, 512, 16);
    o.sampling = *gs;
    ok(session_new(&s, t.m, &o, &err));
    st = session_eval(s, ids, 20, WANT_LAST, NULL, NULL, &err);
    assert_int_equal(session_n_past(s), st ? 0 : 20);
    session_free(s);
    tiny_release(&t);
    return st;
}

/* A bad number anywhere in the row is found, with the words that go with the row itself. */
static void test_not_finite(void **state)
{
    static const struct graph_sampling gs[] = {{.argmax = true}, {.top_k = 5, .temp = 0.5f}};
    static const float values[] = {NAN, INFINITY, -INFINITY};

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct change c = {values[i / 2], 64 * 5 + 3};
        char want[sizeof err.msg];

        assert_int_equal(eval_changed(c, &(struct graph_sampling){.argmax = false}), ST_MODEL);
        memcpy(want, err.msg, sizeof want);
        assert_non_null(strstr(want, "'result_output' is the first node"));
        assert_int_equal(eval_changed(c, &gs[i % 2]), ST_MODEL);
        assert_string_equal(err.msg, want);
    }
}

/* Logits of which the squares are too large are not bad. */
static void test_large_logits(void **state)
{
    (void)state;
    ok(eval_changed((struct change){1e25f, -1}, &(struct graph_sampling){.argmax = true}));
}

static void test_bad_temperature(void **state)
{
    static const float bad[] = {-1, NAN, INFINITY, 1e-39f};

    (void)state;
    open_tiny();
    for (int i = 0; i < 4; i++) {
        struct graph_sampling gs = {.top_k = 3, .temp = bad[i]};

        assert_int_equal(session_set_sampling(tiny_pair.graph, &gs, &err), ST_USAGE);
        assert_non_null(strstr(err.msg, "temperature"));
    }
    close_tiny();
}

/* Whichever allocation fails, the samplers are what they were, and the session goes on. */
static void test_no_memory(void **state)
{
    uint32_t bits[5] = {~0u, ~0u};
    struct graph_sampling old = {.argmax = true}, new = {.top_k = 20, .allowed = bits};
    int32_t id = 1;
    enum status st = ST_NOMEM;
    int n;

    (void)state;
    open_tiny();
    ok(session_set_sampling(tiny_pair.graph, &old, &err));
    for (n = 0; st == ST_NOMEM; n++) {
        eval(tiny_pair.host, &id, 1);
        eval(tiny_pair.graph, &id, 1);
        check_sampled(tiny_pair.graph, session_logits(tiny_pair.host), NULL, 1, 1);
        id = (id * 37 + 11) % N_TINY;
        mem_fail_at((uint64_t)n + 1);
        st = session_set_sampling(tiny_pair.graph, &new, &err);
        mem_fail_at(0);
    }
    ok(st);
    assert_true(n > 8);
    eval(tiny_pair.host, &id, 1);
    eval(tiny_pair.graph, &id, 1);
    check_sampled(tiny_pair.graph, session_logits(tiny_pair.host), bits, 20, 1);
    close_tiny();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_story),           cmocka_unit_test(test_tiny),
        cmocka_unit_test(test_in_the_way),      cmocka_unit_test(test_changes),
        cmocka_unit_test(test_nodes),           cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_from_the_start),  cmocka_unit_test(test_row_on_demand),
        cmocka_unit_test(test_all_rows),        cmocka_unit_test(test_nothing_allowed),
        cmocka_unit_test(test_not_finite),      cmocka_unit_test(test_large_logits),
        cmocka_unit_test(test_bad_temperature), cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
