/* The llama architecture against logits of an independent implementation. */
#include "tests/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/models/blocks.h"
#include "tests/runtime/logits.h"

#define IDS_MAX 64

static int32_t ids[IDS_MAX];
static int n_ids;

static const char *data(char out[512], const char *name)
{
    snprintf(out, 512, "%s/%s", getenv("GGRUN_TEST_DATA"), name);
    return out;
}

static int setup(void **state)
{
    char path[512];

    (void)state;
    n_ids = read_ids(data(path, "archs/ids.txt"), ids, IDS_MAX);
    return n_ids == 48 ? 0 : -1;
}

static double nmse_in_data(const char *folder, const char *name)
{
    char rel[256], model[512], oracle[512];
    struct err e;
    double nmse;

    snprintf(rel, sizeof rel, "%s/%s.gguf", folder, name);
    data(model, rel);
    snprintf(rel, sizeof rel, "%s/%s.logits.f32", folder, name);
    data(oracle, rel);
    if (nmse_of(model, oracle, ids, n_ids, 0, &nmse, &e))
        fail_msg("%s: %s", name, e.msg);
    print_message("%-24s NMSE %.3g\n", name, nmse);
    return nmse;
}

/* F32 weights and cache: what remains is rounding. */
static void test_variants(void **state)
{
    static const char *const names[] = {
        "llama-dense",
        "llama-dense+biases",
        "llama-dense+rope-base",
        "llama-dense+rope-freqs",
        "llama-dense+rope-linear",
        "llama-dense+rope-yarn",
        "llama-dense+tied",
    };

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_true(nmse_in_data("archs", names[i]) < 1e-8);
}

/* Quantised weights against the exact result of the decoded ones: as close as the oracle's own
 * kernels. */
static void test_quantised(void **state)
{
    static const char *const names[] = {"q4_0", "q8_0", "q4_k", "q6_k"};
    char path[512], key[32];
    size_t n;
    char *json = read_file(data(path, "types/llama.cpp-nmse.json"), &n);

    (void)state;
    assert_non_null(json);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *at;
        double bound;

        snprintf(key, sizeof key, "\"%s\":", names[i]);
        at = strstr(json, key);
        assert_non_null(at);
        bound = fmax(1.1 * strtod(at + strlen(key), NULL), 1e-5);
        assert_true(nmse_in_data("types", names[i]) <= bound);
    }
    mem_free(json);
}

/* Parameters of YaRN against the paper's formulas, in double precision. */
static void test_yarn_params(void **state)
{
    const struct hparams hp = {.n_rot = 128,
                               .rope_base = 10000,
                               .rope_scale = 1 / 16.0f,
                               .rope_n_ctx_orig = 4096,
                               .rope_attn_factor = 1,
                               .yarn_ext_factor = 1,
                               .yarn_beta_fast = 32,
                               .yarn_beta_slow = 1};
    struct param_rope r;

    (void)state;
    block_rope_params(&r, &hp, ROPE_NORM);
    assert_int_equal(r.n_rot, 128);
    assert_true(r.freq_scale == 1 / 16.0f);
    assert_true(fabs((double)r.attn_factor - (1 + 0.1 * log(16))) < 1e-6);
    /* pairs whose wavelength 2 pi base^(2i/d) fits 32 times, and once, into 4096 positions */
    assert_true(r.corr_lo == floor(128 * log(4096 / (32 * 2 * acos(-1))) / (2 * log(10000))));
    assert_true(r.corr_hi == ceil(128 * log(4096 / (1 * 2 * acos(-1))) / (2 * log(10000))));
    assert_true(r.corr_lo == 20 && r.corr_hi == 46);
}

static void test_linear_params(void **state)
{
    const struct hparams hp = {.n_rot = 64,
                               .rope_base = 5e5f,
                               .rope_scale = 0.25f,
                               .rope_n_ctx_orig = 64,
                               .rope_attn_factor = 1.5f};
    struct param_rope r;

    (void)state;
    block_rope_params(&r, &hp, ROPE_NEOX);
    assert_int_equal(r.mode, ROPE_NEOX);
    assert_true(r.base == 5e5f && r.freq_scale == 0.25f && r.ext_factor == 0 &&
                r.attn_factor == 1.5f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variants),
        cmocka_unit_test(test_quantised),
        cmocka_unit_test(test_yarn_params),
        cmocka_unit_test(test_linear_params),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
