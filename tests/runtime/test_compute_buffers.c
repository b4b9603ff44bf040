/*
 * Real models with one row of outputs and micro-batches of 512 tokens: what their compute buffers take
 * beside llama.cpp's, which hold the logits of every token. Needs the models (scripts/get-models).
 */
#include "tests/unit.h"

#include <stdio.h>
#include <string.h>

#include "backends/backend.h"
#include "gguf/reader.h"
#include "runtime/model.h"
#include "runtime/session.h"
#include "tests/runtime/real_model.h"

#define N_UBATCH 512
#define MIB      (UINT64_C(1) << 20)

static struct real {
    const char *name;
    struct {
        uint32_t n_ctx;
        uint64_t n_llama; /* bytes of llama.cpp's compute buffer, -ub 512 */
    } at[2];
    char path[REAL_MODEL_PATH];
} reals[] = {
    {"SmolLM2-135M-Instruct.Q4_1.gguf", {{256, 491 * MIB / 10}, {4096, 983 * MIB / 10}}, ""},
    {"gemma-3-270m-q4_k_m.gguf", {{256, 257 * MIB}, {4096, 515 * MIB}}, ""},
};

/* Bytes of results that a session plans; scratch of kernels is no part of llama.cpp's figures either. */
static uint64_t planned(struct model *m, const struct devices *devs, uint32_t n_ctx, bool flash)
{
    struct session_options so = {.devs = devs,
                                 .n_ctx = n_ctx,
                                 .n_ubatch = N_UBATCH,
                                 .type_k = DT_F16,
                                 .type_v = DT_F16,
                                 .no_flash_attn = !flash,
                                 .exec.dry = true};
    struct session_stats st;
    struct session *s;
    uint64_t n = 0;
    struct err e;

    if (session_new(&s, m, &so, &e))
        fail_msg("%s", e.msg);
    session_stats(s, &st);
    for (int i = 0; i < st.exec.n_buffers; i++) {
        if (strstr(st.exec.buffers[i].name, " compute"))
            n += st.exec.buffers[i].n_planned;
    }
    session_free(s);
    return n;
}

/*
 * A quarter. Without flash attention the scores of all heads are there at one time, in f32: where they
 * alone are more than that, they, the mask and a few rows of activations.
 */
static uint64_t allowed(const struct hparams *hp, uint32_t n_ctx, bool flash, uint64_t n_llama)
{
    uint64_t n_ub = n_ctx < N_UBATCH ? n_ctx : N_UBATCH;
    uint64_t n_scores = 4 * n_ub * n_ctx * hp->n_head, n_mask = 2 * n_ub * n_ctx;

    if (flash || n_scores <= n_llama / 4)
        return n_llama / 4;
    return n_scores + n_mask + 4 * (4 * n_ub * hp->n_embd);
}

static void check_sizes(const struct real *r, struct model *m, const struct devices *devs)
{
    for (int i = 0; i < 4; i++) {
        uint32_t n_ctx = r->at[i / 2].n_ctx;
        bool flash = i % 2;
        uint64_t n_llama = r->at[i / 2].n_llama, n = planned(m, devs, n_ctx, flash);
        uint64_t n_allowed = allowed(&m->hp, n_ctx, flash, n_llama);

        print_message("%s, -c %u, -fa %s: %.2f MiB, llama.cpp %.1f\n", r->name, n_ctx,
                      flash ? "on" : "off", (double)n / MIB, (double)n_llama / MIB);
        assert_true(n > 0);
        if (n > n_allowed)
            fail_msg("%.2f MiB are allowed", (double)n_allowed / MIB);
    }
}

static void test_sizes(void **state)
{
    struct device_options dopt = {.n_threads = 4};
    struct devices devs;
    struct model_options mo = {.devs = &devs, .dry = true};
    struct err e;

    (void)state;
    assert_int_equal(devices_open(&devs, &dopt, &e), ST_OK);
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        struct model *m = NULL;
        struct gguf *g;

        if (gguf_open(&g, reals[i].path, GGUF_MMAP, &e) || model_load(&m, g, &mo, &e))
            fail_msg("%s", e.msg);
        check_sizes(&reals[i], m, &devs);
        model_free(m);
    }
    devices_close(&devs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes)};

    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        if (!real_model(reals[i].name, reals[i].path))
            return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
