/*
 * Slots: micro-batches that are in work at one time on different devices. Always the logits of the CPU,
 * and several devices at work at once where there should be, never where not.
 */
#include "tests/unit.h"

#include <string.h>

#include "tests/runtime/sims.h"
#include "tests/runtime/tiny_model.h"

#define N_VOCAB 128
#define N_IDS   128

static struct err err;

static void ok(enum status st)
{
    if (st)
        fail_msg("%s: %s", status_name(st), err.msg);
}

static struct session_options session_of(const struct rig *r, uint32_t n_ubatch, int n_slots)
{
    return (struct session_options){.devs = &r->devs,
                                    .n_ctx = 512,
                                    .n_ubatch = n_ubatch,
                                    .type_k = DT_F32,
                                    .type_v = DT_F32,
                                    .exec = {.check = true, .n_slots = n_slots}};
}

static void fill_ids(int32_t ids[N_IDS])
{
    struct tiny_rng r = {77};

    for (int i = 0; i < N_IDS; i++)
        ids[i] = (int32_t)(tiny_next(&r) % N_VOCAB);
}

/* Logits after the prompt and after one more token, in one session. */
static void logits_of(struct session *s, float out[2][N_VOCAB])
{
    int32_t ids[N_IDS];

    fill_ids(ids);
    ok(session_eval(s, ids, N_IDS, WANT_LAST, NULL, NULL, &err));
    memcpy(out[0], session_logits(s), sizeof out[0]);
    ok(session_eval(s, ids, 1, WANT_LAST, NULL, NULL, &err));
    memcpy(out[1], session_logits(s), sizeof out[1]);
}

/* ---- the same bytes ---- */

static const struct placement_options all = {.n_gpu_layers = PLACE_ALL};
static const struct placement_options places[] = {
    {.n_gpu_layers = PLACE_ALL},
    {.n_gpu_layers = 3},
    {.n_gpu_layers = PLACE_ALL, .no_kv_offload = true},
};

static void same_bytes(const char *arch)
{
    static const int slots[] = {2, 3, 8, 1};
    static const uint32_t ubatch[] = {7, 16, 7, 16};
    float want[2][N_VOCAB], got[2][N_VOCAB];
    struct session_options so;
    struct session *s;
    struct rig r;

    ok(rig_open(&r, arch, 4, &(struct sim_options){0}, NULL, &err));
    so = session_of(&r, 64, 1);
    ok(session_new(&s, r.m, &so, &err));
    logits_of(s, want);
    session_free(s);
    rig_close(&r);
    for (size_t p = 0; p < sizeof places / sizeof places[0]; p++) {
        ok(rig_open(&r, arch, 4, &(struct sim_options){.n = 2}, &places[p], &err));
        for (size_t k = p; k < p + 2; k++) {
            so = session_of(&r, ubatch[k], slots[k]);
            ok(session_new(&s, r.m, &so, &err));
            logits_of(s, got);
            session_free(s);
            if (memcmp(got, want, sizeof got) != 0)
                fail_msg("%s, placement %d, %d slots, micro-batches of %u: other logits", arch,
                         (int)p, slots[k], ubatch[k]);
        }
        rig_close(&r);
    }
}

static void test_same_bytes(void **state)
{
    static const char *const archs[] = {"llama", "gemma3", "qwen3moe", "jamba", "qwen3next"};

    (void)state;
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++)
        same_bytes(archs[i]);
}

/* ---- overlap ---- */

/*
 * A prompt of 8 micro-batches over n devices: how many were at work at one time. All have about the same
 * to do; the last layer does little and the output nothing where no logits are wanted.
 */
static int at_work(int n, int n_slots, struct session_stats *stats)
{
    static const float shares[][3] = {{1}, {3, 4}, {2, 2, 3}};
    struct placement_options place = {
        .n_gpu_layers = PLACE_ALL, .tensor_split = shares[n - 1], .n_tensor_split = n};
    struct sim_options sim = {.n = n, .op_ns = 200000};
    float logits[2][N_VOCAB];
    struct session_options so;
    struct session *s;
    struct rig r;
    int most;

    ok(rig_open(&r, "llama", 6, &sim, &place, &err));
    so = session_of(&r, N_IDS / 8, n_slots);
    ok(session_new(&s, r.m, &so, &err));
    logits_of(s, logits);
    session_stats(s, stats);
    session_free(s);
    most = sim_most_at_work(r.devs.dev[0]);
    rig_close(&r);
    return most;
}

static void test_overlap(void **state)
{
    struct session_stats one, stats;

    (void)state;
    assert_int_equal(at_work(1, 4, &stats), 1);
    assert_int_equal(at_work(2, 1, &one), 1);
    assert_int_equal(at_work(3, 1, &one), 1);
    assert_int_equal(at_work(2, 2, &stats), 2);
    assert_int_equal(at_work(3, 2, &stats), 2);
    assert_int_equal(at_work(3, 4, &stats), 3);
    /* no more graphs, no more copies than without slots, and no memory that had not been reserved */
    assert_int_equal(stats.graphs_built, one.graphs_built);
    assert_int_equal(stats.exec.copies, one.exec.copies);
    assert_int_equal(stats.exec.replays, one.exec.replays);
    assert_int_equal(stats.exec.regrows, 0);
    assert_true(stats.exec.peak > one.exec.peak);
}

/* A prompt longer than what the cache's length is rounded up to: still one shape for all but the end. */
static void test_one_shape(void **state)
{
    struct session_stats stats;
    struct session_options so;
    int32_t ids[400] = {1, 2, 3};
    struct session *s;
    struct rig r;

    (void)state;
    ok(rig_open(&r, "llama", 2, &(struct sim_options){.n = 2}, &all, &err));
    so = session_of(&r, 100, 2);
    ok(session_new(&s, r.m, &so, &err));
    ok(session_eval(s, ids, 400, WANT_LAST, NULL, NULL, &err));
    session_stats(s, &stats);
    assert_int_equal(stats.graphs_built, 2);
    assert_int_equal(stats.graphs_reused, 2);
    session_free(s);
    rig_close(&r);
}

/* ---- what goes wrong in the middle ---- */

struct stop {
    atomic_bool cancel;
    uint32_t at; /* tokens handed over */
};

static void stop_at(void *ctx, uint32_t n_done, uint32_t n_total)
{
    struct stop *s = ctx;

    (void)n_total;
    if (n_done >= s->at)
        atomic_store(&s->cancel, true);
}

/* Stopped while micro-batches are in work: the session is what it was, and goes on from there. */
static void test_stopped(void **state)
{
    struct sim_options sim = {.n = 2, .op_ns = 50000};
    float want[2][N_VOCAB], got[2][N_VOCAB];
    struct stop stop = {.at = UINT32_MAX};
    struct session_options so;
    int32_t ids[N_IDS];
    struct session *s;
    struct rig r;

    (void)state;
    fill_ids(ids);
    ok(rig_open(&r, "llama", 4, &sim, &all, &err));
    so = session_of(&r, 16, 3);
    so.cancel = &stop.cancel;
    so.progress = stop_at;
    so.progress_ctx = &stop;
    ok(session_new(&s, r.m, &so, &err));
    logits_of(s, want);
    session_truncate(s, 0);
    for (stop.at = 16; stop.at < N_IDS; stop.at += 16) {
        assert_int_equal(session_eval(s, ids, N_IDS, WANT_LAST, NULL, NULL, &err), ST_CANCELLED);
        assert_int_equal(session_n_past(s), 0);
        for (int d = 0; d < r.devs.n; d++) /* nothing was left in work: it would be stopped, too */
            assert_int_equal(device_synchronize(r.devs.dev[d], &err), ST_OK);
        atomic_store(&stop.cancel, false);
    }
    stop.at = UINT32_MAX;
    logits_of(s, got);
    assert_memory_equal(got, want, sizeof got);
    session_free(s);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_one_shape),
        cmocka_unit_test(test_stopped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
