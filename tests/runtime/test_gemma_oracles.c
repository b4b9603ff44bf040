/*
 * The Gemma architectures: tiny models against logits of an independent implementation, which lie
 * beside the checkout.
 */
#include "tests/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/backend.h"
#include "gguf/base/mem.h"
#include "gguf/reader.h"
#include "runtime/model.h"
#include "runtime/session.h"
#include "tests/runtime/logits.h"

static char folder[512]; /* of the oracles */
static int32_t ids[64];
static int n_ids;

static void test_logits(void **state)
{
    static const char *const names[] = {
        "gemma-dense",
        "gemma2-dense",
        "gemma2-dense+softcaps",
        "gemma3-dense",
        "gemma3-dense+rope-linear",
        "gemma3-dense+window-8",
    };
    static const uint32_t ubs[] = {512, 13};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof names / sizeof names[0]; i++) {
        char model[640], oracle[640];
        struct err e;
        double nmse;

        snprintf(model, sizeof model, "%s/%s.gguf", folder, names[i / 2]);
        snprintf(oracle, sizeof oracle, "%s/%s.logits.f32", folder, names[i / 2]);
        if (nmse_of(model, oracle, ids, n_ids, ubs[i % 2], &nmse, &e))
            fail_msg("%s: %s", names[i / 2], e.msg);
        print_message("%-26s -ub %-3u NMSE %.3g\n", names[i / 2], ubs[i % 2], nmse);
        assert_true(nmse < 1e-8);
    }
}

/* ---- a window: the same bits however the tokens are cut ---- */

struct rows {
    float *x; /* [n_vocab, n_ids] */
    size_t n_vocab;
    uint32_t n;
};

static enum status keep(void *ctx, uint32_t pos, const float *logits, struct err *e)
{
    struct rows *r = ctx;

    (void)e;
    memcpy(r->x + pos * r->n_vocab, logits, r->n_vocab * sizeof *logits);
    r->n++;
    return ST_OK;
}

/* All ids in calls of `step` tokens and micro-batches of n_ubatch. */
static void eval(struct model *m, const struct devices *devs, uint32_t n_ubatch, int step,
                 struct rows *r)
{
    struct session_options so = {.devs = devs,
                                 .type_k = DT_F16,
                                 .type_v = DT_F16,
                                 .n_ubatch = n_ubatch,
                                 .all_outputs = true};
    struct session *s;
    struct err e;

    r->n = 0;
    if (session_new(&s, m, &so, &e))
        fail_msg("%s", e.msg);
    for (int i = 0; i < n_ids; i += step) {
        int n = n_ids - i < step ? n_ids - i : step;

        if (session_eval(s, ids + i, (uint32_t)n, WANT_ALL, keep, r, &e))
            fail_msg("%s", e.msg);
    }
    assert_int_equal(r->n, n_ids);
    session_free(s);
}

static void test_window_same_bits(void **state)
{
    static const struct {
        uint32_t n_ubatch;
        int step;
    } cuts[] = {{512, 1}, {13, 64}, {1, 64}, {7, 20}};
    struct device_options dopt = {.n_threads = 2};
    struct model_options mo = {0};
    struct rows whole, cut;
    struct devices devs;
    struct model *m = NULL;
    struct gguf *g;
    char path[640];
    struct err e;
    size_t n;

    (void)state;
    snprintf(path, sizeof path, "%s/gemma3-dense+window-8.gguf", folder);
    assert_int_equal(devices_open(&devs, &dopt, &e), ST_OK);
    mo.devs = &devs;
    if (gguf_open(&g, path, GGUF_MMAP, &e) || model_load(&m, g, &mo, &e))
        fail_msg("%s", e.msg);
    n = (size_t)n_ids * m->hp.n_vocab;
    whole = (struct rows){.x = mem_array(n, sizeof(float)), .n_vocab = m->hp.n_vocab};
    cut = (struct rows){.x = mem_array(n, sizeof(float)), .n_vocab = m->hp.n_vocab};
    eval(m, &devs, 512, 64, &whole);
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        eval(m, &devs, cuts[i].n_ubatch, cuts[i].step, &cut);
        assert_memory_equal(cut.x, whole.x, n * sizeof(float));
    }
    mem_free(whole.x);
    mem_free(cut.x);
    model_free(m);
    devices_close(&devs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_window_same_bits),
    };
    const char *source = getenv("GGRUN_SOURCE_DIR");
    char path[640];

    snprintf(folder, sizeof folder, "%s/../shared/oracles/archs", source ? source : ".");
    snprintf(path, sizeof path, "%s/ids.txt", folder);
    n_ids = read_ids(path, ids, 64);
    if (n_ids < 0) {
        printf("%s is not there\n", path);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
