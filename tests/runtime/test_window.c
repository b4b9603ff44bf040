/*
 * Layers with a sliding window keep their window in a ring of cells: the bits are those of a cache that
 * keeps all positions, whatever the micro-batch, and nothing that was overwritten is ever read.
 */
#include "tests/unit.h"

#include <stdatomic.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/kvcache.h"
#include "tests/runtime/tiny_model.h"

#define N_VOCAB  128
#define N_IDS    1700
#define N_CTX    2048
#define N_WINDOW 300
#define N_UBATCH 200
#define N_RING   (512 + KV_PAD) /* N_WINDOW + N_UBATCH rounded up, and KV_PAD more */

static struct err err;
static int32_t ids[N_IDS];

/* Soft-caps, QK norms, sinks, chunks instead of a sliding window, and plain. */
static const char *const archs[] = {"gemma2", "gemma3", "gpt-oss", "llama4", "phi3"};

static void ok(enum status st)
{
    if (st)
        fail_msg("%s: %s", status_name(st), err.msg);
}

/* Layers 0 and 2 have a window. */
static void load(struct tiny *t, const char *arch)
{
    struct tiny_options o = {
        .arch = arch, .n_layer = 3, .n_embd = 64, .n_ctx = N_CTX, .seed = 9, .experts = true};

    ok(tiny_load(t, &o, &err));
    t->m->hp.n_window = N_WINDOW;
    t->m->hp.rope_base_window = t->m->hp.rope_base;
    for (uint32_t il = 0; il < 3; il++)
        t->m->hp.layer[il].windowed = il != 1;
}

static struct session *open(const struct tiny *t, struct session_options *o)
{
    struct session *s;

    ok(session_new(&s, t->m, o, &err));
    return s;
}

struct sum {
    uint64_t hash; /* of all rows: FNV-1a over their words */
    int n;
};

static enum status add(void *ctx, uint32_t pos, const float *logits, struct err *e)
{
    struct sum *sum = ctx;

    (void)e;
    assert_int_equal(pos, sum->n++);
    for (int i = 0; i < N_VOCAB; i++) {
        uint32_t u;
        memcpy(&u, &logits[i], sizeof u);
        sum->hash = (sum->hash ^ u) * UINT64_C(1099511628211);
    }
    return ST_OK;
}

/* All logits, n_step tokens per call. */
static uint64_t run(const struct tiny *t, struct session_options *o, uint32_t n_step,
                    struct session_stats *st)
{
    struct session *s = open(t, o);
    struct sum sum = {.hash = 1};

    for (uint32_t i = 0; i < N_IDS; i += n_step)
        ok(session_eval(s, ids + i, N_IDS - i < n_step ? N_IDS - i : n_step, WANT_ALL, add, &sum,
                        &err));
    assert_int_equal(sum.n, N_IDS);
    session_stats(s, st);
    assert_int_equal(st->exec.regrows, 0);
    assert_int_equal(st->check_failures, 0);
    session_free(s);
    return sum.hash;
}

static void test_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * sizeof archs / sizeof archs[0]; i++) {
        struct session_stats st, all;
        struct session_options o;
        struct tiny t;
        uint64_t want;

        load(&t, archs[i / 2]);
        o = tiny_session(&t, N_CTX, N_UBATCH);
        o.type_k = o.type_v = i % 2 ? DT_F32 : DT_F16;
        o.no_flash_attn = i % 2;
        o.swa_full = true;
        want = run(&t, &o, N_IDS, &all);
        o.swa_full = false;
        if (run(&t, &o, N_IDS, &st) != want)
            fail_msg("%s %d: other logits than with all positions", archs[i / 2], (int)i);
        assert_int_equal(all.n_kv_bytes / 3 * (N_CTX + 2 * N_RING + (i % 2 ? 4 * KV_PAD : 0)),
                         st.n_kv_bytes * N_CTX);
        if (run(&t, &o, 123, &st) != want)
            fail_msg("%s: other logits in batches of 123", archs[i / 2]);
        o.n_ubatch = 13; /* and thus a smaller ring */
        o.check_reuse = true;
        if (run(&t, &o, 700, &st) != want)
            fail_msg("%s: other logits in micro-batches of 13", archs[i / 2]);
        if (i / 2 == 0) {
            if (run(&t, &o, 1, &st) != want)
                fail_msg("%s: other logits token by token", archs[i / 2]);
            assert_true(st.graphs_reused > N_IDS * 95 / 100);
        }
        tiny_release(&t);
    }
}

/* Forgetting what lies behind is possible as long as the window before it is there. */
static void test_truncate(void **state)
{
    struct session_options o;
    struct session *s, *fresh;
    struct tiny t;

    (void)state;
    load(&t, "gemma2");
    o = tiny_session(&t, N_CTX, N_UBATCH);
    s = open(&t, &o);
    ok(session_eval(s, ids, N_IDS, WANT_NONE, NULL, NULL, &err));
    for (uint32_t n = 1; n < N_IDS; n++)
        assert_int_equal(session_can_truncate(s, n),
                         n - (N_WINDOW - 1) >= N_IDS - N_RING && n >= N_WINDOW);
    session_truncate(s, N_IDS - N_RING + N_WINDOW - 1);
    ok(session_eval(s, ids, 50, WANT_LAST, NULL, NULL, &err));
    fresh = open(&t, &o);
    ok(session_eval(fresh, ids, N_IDS - N_RING + N_WINDOW - 1, WANT_NONE, NULL, NULL, &err));
    ok(session_eval(fresh, ids, 50, WANT_LAST, NULL, NULL, &err));
    assert_memory_equal(session_logits(s), session_logits(fresh), N_VOCAB * sizeof(float));
    session_free(s);
    session_free(fresh);
    tiny_release(&t);
}

static atomic_bool cancel;

static void stop_late(void *ctx, uint32_t n_done, uint32_t n_total)
{
    (void)n_total;
    if (n_done >= *(uint32_t *)ctx)
        atomic_store(&cancel, true);
}

/* A stopped evaluation leaves the session as it was, or empty where its window is gone. */
static void test_stopped(void **state)
{
    static const struct {
        uint32_t stop_at, n_past;
    } rows[] = {{200, 400}, {400, 400}, {600, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t at = rows[i].stop_at, n = rows[i].n_past;
        struct session_options o;
        struct session *s, *fresh;
        struct tiny t;

        load(&t, "gemma3");
        o = tiny_session(&t, N_CTX, N_UBATCH);
        o.cancel = &cancel;
        o.progress = stop_late;
        o.progress_ctx = &at;
        s = open(&t, &o);
        at = N_CTX;
        ok(session_eval(s, ids, 400, WANT_NONE, NULL, NULL, &err));
        at = rows[i].stop_at;
        assert_int_equal(session_eval(s, ids, 1000, WANT_NONE, NULL, NULL, &err), ST_CANCELLED);
        atomic_store(&cancel, false);
        assert_int_equal(session_n_past(s), n);
        at = N_CTX;
        ok(session_eval(s, ids, 77, WANT_LAST, NULL, NULL, &err));
        fresh = open(&t, &o);
        if (n)
            ok(session_eval(fresh, ids, n, WANT_NONE, NULL, NULL, &err));
        ok(session_eval(fresh, ids, 77, WANT_LAST, NULL, NULL, &err));
        assert_memory_equal(session_logits(s), session_logits(fresh), N_VOCAB * sizeof(float));
        session_free(s);
        session_free(fresh);
        tiny_release(&t);
    }
}

/* A ring only where it is smaller than the context. */
static void test_sizes(void **state)
{
    static const struct {
        uint32_t n_ctx, n_ubatch, n_ring;
        bool keep_all;
    } rows[] = {
        {4096, 200, N_RING, false}, {4096, 200, 4096, true},   {4096, 213, 1024, false},
        {1024, 213, 1024, false},   {1000, 213, 1024, false},  {768, 212, 768, false},
        {256, 1, 256, false},       {4096, 4096, 4096, false},
    };
    struct tiny t;

    (void)state;
    load(&t, "gemma2");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct kv_options o = {.dev = devices_cpu(&t.devs),
                               .n_ctx = rows[i].n_ctx,
                               .n_ubatch = rows[i].n_ubatch,
                               .n_chunk = KV_PAD,
                               .type_k = DT_F16,
                               .type_v = DT_F16,
                               .keep_all = rows[i].keep_all,
                               .dry = i % 2};
        struct kvcache kv;

        ok(kvcache_init(&kv, &t.m->hp, &o, &err));
        assert_int_equal(kv.n_ring, rows[i].n_ring);
        for (uint32_t il = 0; il < 3; il++)
            assert_int_equal(kv.k[il].ne[1], il == 1 ? kv.n_cells : kv.n_ring);
        assert_int_equal(!!kv.stream[0].ring, !o.dry && kv.n_ring < kv.n_cells);
        kvcache_release(&kv);
    }
    tiny_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_truncate),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_sizes),
    };
    struct tiny_rng r = {5};

    for (int i = 0; i < N_IDS; i++)
        ids[i] = (int32_t)(tiny_next(&r) % N_VOCAB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
