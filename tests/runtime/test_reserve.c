/*
 * What a session reserves is enough for every micro-batch at every length of the cache: plans of
 * models of real widths, without memory.
 */
#include "tests/unit.h"

#include "runtime/session.h"
#include "tests/runtime/described.h"

static struct devices devs;
static struct err err;

static int setup(void **state)
{
    struct device_options o = {.n_threads = 2};

    (void)state;
    return (int)devices_open(&devs, &o, &err);
}

static int teardown(void **state)
{
    (void)state;
    devices_close(&devs);
    return 0;
}

/* late: samplers in the graph that are set after the start, or NULL. */
static void plan_all_pairs(struct model *m, uint32_t n_ubatch, bool all,
                           const struct graph_sampling *late)
{
    struct session_options o = {.devs = &devs,
                                .n_ctx = 4096,
                                .n_batch = 4096,
                                .n_ubatch = n_ubatch,
                                .type_k = DT_F16,
                                .type_v = DT_F16,
                                .all_outputs = all,
                                .exec.dry = true};
    struct session_stats st;
    struct session *s;

    if (session_new(&s, m, &o, &err))
        fail_msg("%s", err.msg);
    if (late)
        assert_int_equal(session_set_sampling(s, late, &err), ST_OK);
    for (uint32_t n = 1; n <= n_ubatch; n = n < 20 || n >= n_ubatch - 2 ? n + 1 : n + n / 5) {
        for (uint32_t n_kv = 256; n_kv <= 4096; n_kv += 256) {
            const uint32_t outs[4] = {0, 1, all ? n : 1, all ? (n + 1) / 2 : 0};
            for (int i = 0; i < 4; i++)
                assert_int_equal(session_plan(s, n, outs[i], n_kv, &err), ST_OK);
        }
    }
    session_stats(s, &st);
    if (st.exec.regrows)
        fail_msg("n_embd %u, -ub %u, all outputs %d: %d regrows, last peak %d of %d planned",
                 m->hp.n_embd, n_ubatch, all, (int)st.exec.regrows, (int)st.exec.peak,
                 (int)st.exec.buffers[0].n_planned);
    session_free(s);
}

static void test_no_regrow(void **state)
{
    static const struct hparams models[] = {
        /* n_vocab, n_ctx_train, n_embd, n_layer, n_ff, n_head, n_head_kv, n_embd_head_k, _v, n_rot */
        {128, 4096, 64, 2, 96, 4, 2, 16, 16, 16},
        {32000, 4096, 288, 2, 768, 6, 6, 48, 48, 48},
        {49152, 8192, 576, 2, 1536, 9, 3, 64, 64, 64},        /* SmolLM2 135M */
        {128256, 8192, 2048, 2, 8192, 32, 8, 64, 64, 64},     /* Llama 3.2 1B */
        {32000, 4096, 4096, 2, 11008, 32, 32, 128, 128, 128}, /* Llama 2 7B */
        {128256, 8192, 8192, 2, 28672, 64, 8, 128, 128, 128}, /* Llama 3 70B */
    };
    static const uint32_t bits[1]; /* not read: nothing is computed */
    static const struct graph_sampling late[2] = {{.top_k = 40, .temp = 0.8f, .allowed = bits},
                                                  {.argmax = true}};
    static const uint32_t ubs[] = {1, 2, 3, 5, 7, 8, 13, 16, 33, 64, 200, 512, 2048};
    static const uint32_t few[] = {1, 7, 64};

    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct described d;

        if (described_init(&d, &models[i], &devs, &err))
            fail_msg("%s", err.msg);
        for (size_t k = 0; k < 2 * sizeof ubs / sizeof ubs[0]; k++)
            plan_all_pairs(&d.m, ubs[k / 2], k % 2, NULL);
        for (size_t k = 0; k < 2 * sizeof few / sizeof few[0]; k++)
            plan_all_pairs(&d.m, few[k / 2], true, &late[k % 2]);
        described_release(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_regrow)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
