/*
 * Recurrent state: its slots, what layers have of it and of the KV cache, and that an evaluation which
 * failed, was replayed or was forgotten leaves no trace.
 */
#include "tests/unit.h"

#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/kvcache.h"
#include "runtime/state.h"
#include "tests/runtime/tiny_model.h"

#define N_VOCAB 128
#define N_IDS   40

static struct err err;
/* One of each recurrence; with attention in other layers, in the same, or without. */
static const char *const archs[] = {"mamba", "falcon-h1", "nemotron_h", "lfm2", "qwen3next"};

static void ok(enum status st)
{
    if (st)
        fail_msg("%s: %s", status_name(st), err.msg);
}

static void load(struct tiny *t, const char *arch)
{
    struct tiny_options o = {
        .arch = arch, .n_layer = 4, .n_embd = 256, .n_ff = 256, .seed = 5, .experts = true};

    ok(tiny_load(t, &o, &err));
}

/* Two sequences: what happens to one does not happen to the other. */
static void test_slots(void **state)
{
    struct state s = {.n_seqs = 3};
    struct ubatch u = {.n_seqs_unq = 1, .seq_id_unq = {1}};
    struct seq_state *q = &s.seq[1];

    (void)state;
    for (int32_t i = 0; i < 3; i++)
        state_reset(&s, i);
    for (int eval = 0; eval < 20; eval++) {
        int32_t kept = q->kept;

        state_begin(&s);
        assert_int_equal(q->from, kept);
        for (int i = 0; i < eval % 5; i++) {
            int32_t from = q->from;

            state_step(&s, &u);
            assert_in_range(q->to, STATE_SLOTS, 2 * STATE_SLOTS - 1);
            assert_true(q->to != kept && q->to != from);
            assert_true(q->from == from && q->kept == kept);
            state_advance(&s, &u);
        }
        if (eval % 3)
            state_keep(&s);
        assert_int_equal(q->kept, eval % 3 ? q->from : kept);
        assert_true(s.seq[0].kept == -1 && s.seq[2].kept == -1);
    }
    state_reset(&s, 1);
    state_begin(&s);
    assert_true(q->from == -1 && q->kept == -1);
}

static enum status init(struct state *s, const struct tiny *t, struct err *e)
{
    const struct device *dev[LAYERS_MAX];

    for (uint32_t il = 0; il < t->m->hp.n_layer; il++)
        dev[il] = devices_cpu(&t->devs);
    return state_init(s, &t->m->hp, dev, 1, false, e);
}

/* Recurrent layers have a state, the others none; a cache only those with attention. */
static void test_layers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        struct state s;
        struct kvcache kv;
        struct tiny t;
        struct kv_options o = {.n_ctx = 256, .n_ubatch = 8, .type_k = DT_F32, .type_v = DT_F32};
        bool any = false;

        load(&t, archs[i]);
        o.dev = devices_cpu(&t.devs);
        ok(init(&s, &t, &err));
        ok(kvcache_init(&kv, &t.m->hp, &o, &err));
        for (uint32_t il = 0; il < t.m->hp.n_layer; il++) {
            const struct layer_hparams *l = &t.m->hp.layer[il];

            any |= l->recurrent;
            assert_int_equal(tensor_n(&s.conv[il]) > 0, l->recurrent);
            assert_int_equal(tensor_n(&kv.k[il]) > 0, l->n_head_kv > 0);
            assert_int_equal(tensor_n(&kv.v[il]) > 0, l->n_head_kv > 0);
        }
        assert_true(any && s.n_bytes > 0);
        kvcache_release(&kv);
        state_release(&s);
        tiny_release(&t);
    }
}

/* Memory that cannot be allocated is an error, and nothing is left. */
static void test_no_memory(void **state)
{
    struct tiny t;
    struct state s;

    (void)state;
    load(&t, "mamba");
    for (int i = 1; i <= 2; i++) {
        mem_fail_at((uint64_t)i);
        assert_int_equal(init(&s, &t, &err), ST_NOMEM);
        mem_fail_at(0);
        assert_null(s.conv);
    }
    t.m->hp.ssm.n_state = t.m->hp.ssm.n_inner = 1u << 30;
    assert_int_equal(init(&s, &t, &err), ST_NOMEM);
    assert_non_null(strstr(err.msg, "recurrent state"));
    tiny_release(&t);
}

/* ---- sessions ---- */

struct sink {
    float *x;         /* [N_VOCAB, N_IDS] */
    uint32_t fail_at; /* position whose logits are not wanted; N_IDS: none */
};

static enum status keep(void *ctx, uint32_t pos, const float *logits, struct err *e)
{
    struct sink *s = ctx;

    memcpy(s->x + (size_t)pos * N_VOCAB, logits, N_VOCAB * sizeof *logits);
    return pos == s->fail_at ? err_set(e, ST_IO, "not wanted") : ST_OK;
}

static void random_ids(int32_t *ids, uint64_t seed)
{
    struct tiny_rng r = {.s = seed};

    for (int i = 0; i < N_IDS; i++)
        ids[i] = (int32_t)(tiny_next(&r) % N_VOCAB);
}

/*
 * Ids from `past` on fail at position `at`, then are evaluated without trouble: the logits are those of an
 * evaluation that saw nothing of it.
 */
static void fail_and_go_on(struct session *s, const int32_t *ids, const int32_t *other,
                           uint32_t past, uint32_t at, const float *want)
{
    static float got[N_IDS * N_VOCAB];
    struct sink sink = {.x = got, .fail_at = N_IDS};

    session_truncate(s, 0);
    if (past)
        ok(session_eval(s, ids, past, WANT_ALL, keep, &sink, &err));
    sink.fail_at = at;
    assert_int_equal(session_eval(s, other, N_IDS - past, WANT_ALL, keep, &sink, &err), ST_IO);
    assert_int_equal(session_n_past(s), past);
    sink.fail_at = N_IDS;
    ok(session_eval(s, ids + past, N_IDS - past, WANT_ALL, keep, &sink, &err));
    assert_memory_equal(got, want, sizeof got);
}

static void test_failed_eval(void **state)
{
    static float want[N_IDS * N_VOCAB];
    int32_t ids[N_IDS], other[N_IDS];

    (void)state;
    random_ids(ids, 7);
    random_ids(other, 8);
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        struct session_options o;
        struct sink sink = {.x = want, .fail_at = N_IDS};
        struct session *s;
        struct tiny t;

        load(&t, archs[i]);
        o = tiny_session(&t, 256, 7);
        ok(session_new(&s, t.m, &o, &err));
        ok(session_eval(s, ids, N_IDS, WANT_ALL, keep, &sink, &err));
        fail_and_go_on(s, ids, other, 0, 20, want); /* in the third micro-batch */
        fail_and_go_on(s, ids, other, 9, 10, want); /* in the first */
        fail_and_go_on(s, ids, other, 21, 35, want);
        session_free(s);
        tiny_release(&t);
    }
}

/* Every step is computed twice: the second time must start where the first did. */
static void test_check_reuse(void **state)
{
    int32_t ids[N_IDS];

    (void)state;
    random_ids(ids, 9);
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        static float x[2][N_IDS * N_VOCAB];
        struct tiny t;

        load(&t, archs[i]);
        for (int check = 0; check < 2; check++) {
            struct session_options o = tiny_session(&t, 256, 3);
            struct sink sink = {.x = x[check], .fail_at = N_IDS};
            struct session_stats st;
            struct session *s;

            o.check_reuse = check;
            ok(session_new(&s, t.m, &o, &err));
            ok(session_eval(s, ids, 20, WANT_ALL, keep, &sink, &err));
            for (int k = 20; k < N_IDS; k++)
                ok(session_eval(s, ids + k, 1, WANT_ALL, keep, &sink, &err));
            session_stats(s, &st);
            assert_true(st.graphs_reused > 20);
            assert_int_equal(st.check_failures, 0);
            assert_true(st.n_state_bytes > 0);
            session_free(s);
        }
        assert_memory_equal(x[0], x[1], sizeof x[0]);
        tiny_release(&t);
    }
}

static void test_truncate(void **state)
{
    struct tiny t;
    struct session *s;
    struct session_options o;
    int32_t ids[N_IDS];

    (void)state;
    random_ids(ids, 10);
    load(&t, "lfm2");
    o = tiny_session(&t, 256, 16);
    ok(session_new(&s, t.m, &o, &err));
    ok(session_eval(s, ids, N_IDS, WANT_NONE, NULL, NULL, &err));
    assert_true(session_can_truncate(s, 0));
    assert_true(session_can_truncate(s, N_IDS));
    assert_false(session_can_truncate(s, N_IDS + 1));
    assert_false(session_can_truncate(s, N_IDS - 1));
    assert_false(session_can_truncate(s, 1));
    session_free(s);
    tiny_release(&t);
    load(&t, "llama");
    o = tiny_session(&t, 256, 16);
    ok(session_new(&s, t.m, &o, &err));
    ok(session_eval(s, ids, N_IDS, WANT_NONE, NULL, NULL, &err));
    assert_true(session_can_truncate(s, 1));
    session_free(s);
    tiny_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots),       cmocka_unit_test(test_layers),
        cmocka_unit_test(test_no_memory),   cmocka_unit_test(test_failed_eval),
        cmocka_unit_test(test_check_reuse), cmocka_unit_test(test_truncate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
