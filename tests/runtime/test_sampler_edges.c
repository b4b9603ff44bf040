/*
 * What every sampler promises at the edges: limits met exactly, ties, values that are no numbers,
 * the largest and smallest ones, memory.
 */
#include "tests/unit.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/sample.h"
#include "tests/runtime/sampler_ref.h"

/* The functions behind all this, against those of the C library: to 4 units in the last place. */
static void test_functions(void **state)
{
    (void)state;
    noise_state = 8;
    for (int i = 0; i < 200000; i++) {
        double x = -exp(30 * noise() - 22), y = exp((i % 2 ? 1 : 600) * (noise() - 0.5));
        double share = noise(), exponent = 5 * noise();
        assert_true(fabs(sample_exp(x) - exp(x)) <= 4 * DBL_EPSILON * exp(x) || x < -700);
        assert_true(fabs(sample_log(y) - log(y)) <= 4 * DBL_EPSILON * fabs(log(y)));
        assert_true(fabs(sample_pow(share, exponent) - pow(share, exponent)) <= 1e-13);
    }
    assert_true(sample_exp(0) == 1 && sample_exp(-1e300) == 0 && sample_log(1) == 0);
    assert_true(sample_pow(0, 0) == 1 && sample_pow(0, 2) == 0 && sample_pow(1, 1e300) == 1);
    assert_true(sample_pow(0.999, 1e300) == 0 && fabs(sample_log(4e-320) - log(4e-320)) < 1e-12);
}

/* How many of 4 equally likely tokens are kept when the limit is met exactly; and of one alone. */
static void test_limits_met_exactly(void **state)
{
    static const struct {
        const char *name;
        float value;
        int kept;
    } cases[] = {
        {"top_p", 0, 1},   {"top_p", 0.25f, 1},    {"top_p", 0.5f, 2},  {"top_p", 0.51f, 3},
        {"typ_p", 0, 1},   {"typ_p", 0.5f, 3},     {"typ_p", 0.75f, 4}, {"min_p", 1, 4},
        {"xtc", 0.25f, 1}, {"xtc", 0.2500001f, 4}, {"xtc", 0, 1},       {"top_n_sigma", 0.1f, 4},
    };
    const float logits[] = {2, 2, 2, 2};
    struct refs none = {0};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int n = 1; n <= 4; n += 3) {
            struct sampler_options o = off();
            const char *name = cases[i].name;
            const struct candidate *kept;
            struct sampler *s;
            struct err e;
            int32_t id, n_kept;
            float *field = strcmp(name, "top_p") == 0   ? &o.top_p
                           : strcmp(name, "typ_p") == 0 ? &o.typ_p
                           : strcmp(name, "min_p") == 0 ? &o.min_p
                           : strcmp(name, "xtc") == 0   ? &o.xtc_threshold
                                                        : &o.top_n_sigma;
            *field = cases[i].value;
            o.xtc_probability = field == &o.xtc_threshold;
            s = make(&o, &none, n);
            assert_int_equal(sampler_sample(s, logits, &id, &e), ST_OK);
            kept = sampler_kept(s, &n_kept);
            assert_int_equal(n_kept, n == 1 ? 1 : cases[i].kept);
            /* the lowest ids, but xtc leaves the last */
            assert_int_equal(kept[0].id, n == 4 && n_kept == 1 && o.xtc_probability > 0 ? 3 : 0);
            sampler_free(s);
        }
    }
}

/* Behind another sampler a penalty makes two tokens equal: the lowest id is first nevertheless. */
static void test_tie_behind_a_sampler(void **state)
{
    const float logits[] = {0, 1, 2};

    (void)state;
    for (int c = 0; c < 4; c++) {
        static const char *const orders[] = {"top_k;penalties", "top_k;penalties;top_p",
                                             "top_k;penalties;min_p", "top_k;penalties;temp"};
        struct sampler_options o = off();
        struct refs none = {0};
        const struct candidate *kept;
        struct sampler *s;
        struct err e;
        int32_t id, n;
        assert_int_equal(sampler_set_names(&o, "--samplers", orders[c], &e), ST_OK);
        o.top_k = 2;
        o.presence_penalty = 1;
        o.top_p = 0.4f;
        o.min_p = 0.1f;
        o.temp = 0;
        s = make(&o, &none, 3);
        sampler_accept(s, 2);
        assert_int_equal(sampler_sample(s, logits, &id, &e), ST_OK);
        kept = sampler_kept(s, &n);
        assert_int_equal(n, c == 0 || c == 2 ? 2 : 1);
        assert_int_equal(kept[0].id, 1);
        sampler_free(s);
    }
}

/* Logits that are not numbers, or none at all, are refused by every sampler. */
static void test_bad_logits(void **state)
{
    static const float bad[][3] = {
        {1, NAN, 2}, {INFINITY, 0, 1}, {-INFINITY, -INFINITY, -INFINITY}};
    struct refs none = {0};
    struct err e;

    (void)state;
    for (int row = 0; row < N_REF_ROWS + 3; row++) {
        for (int b = 0; b < 3; b++) {
            struct sampler_options o = off();
            struct sampler *s;
            int32_t id = 7, n;
            if (row < N_REF_ROWS)
                randomise(&o, ref_rows[row].letter);
            else if (row == N_REF_ROWS)
                o.adaptive_target = 0.5f;
            else
                o.mirostat = row - N_REF_ROWS;
            s = make(&o, &none, 3);
            assert_int_equal(sampler_sample(s, bad[b], &id, &e), ST_MODEL);
            assert_non_null(strstr(e.msg, b == 0   ? "token 1 is not a number"
                                          : b == 1 ? "token 0 is infinite"
                                                   : "no token is left"));
            assert_int_equal(id, 7);
            sampler_kept(s, &n);
            assert_int_equal(n, 0);
            sampler_free(s);
        }
    }
}

/* Probabilities stay finite for the largest logits and values, whatever the chain. */
static void test_extremes(void **state)
{
    static float logits[40];
    struct refs l;
    struct err e;

    (void)state;
    noise_state = 6;
    for (int c = 0; c < 3000; c++) {
        struct sampler_options o = off();
        const struct candidate *kept;
        struct sampler *s;
        int32_t id, n;
        double sum = 0;
        static const float limits[] = {FLT_MAX, FLT_MIN, 1e-45f, 1};
        for (int i = 0; i < 40; i++)
            logits[i] = (float)((noise_int(3) - 1.0) * 3.4e38 * (noise_int(2) ? 1 : noise()));
        for (int row = 0; row < N_REF_ROWS; row++)
            if (noise() < 0.5)
                randomise(&o, ref_rows[row].letter);
        o.temp = limits[noise_int(4)];
        o.repeat_penalty = limits[noise_int(4)];
        o.presence_penalty = noise() < 0.5 ? -FLT_MAX : FLT_MAX;
        o.dry_multiplier = limits[noise_int(4)];
        o.dynatemp_exp = limits[noise_int(4)];
        o.mirostat = (int32_t)noise_int(3);
        o.mirostat_ent = limits[noise_int(4)];
        o.mirostat_lr = limits[noise_int(4)];
        o.adaptive_target = (float)(noise() * 2 - 1);
        make_history(&l, 40);
        s = make(&o, &l, 40);
        assert_int_equal(sampler_bias(s, 3, FLT_MAX, &e), ST_OK);
        for (int i = 0; i < 4; i++) {
            bool found = false;
            sum = 0;
            assert_int_equal(sampler_sample(s, logits, &id, &e), ST_OK);
            kept = sampler_kept(s, &n);
            for (int j = 0; j < n; j++) {
                assert_true(kept[j].p >= 0 && kept[j].p <= 1);
                sum += (double)kept[j].p;
                found |= kept[j].id == id && kept[j].p > 0;
            }
            assert_true(fabs(sum - 1) < 1e-5 && found);
            sampler_accept(s, id);
        }
        sampler_free(s);
    }
}

/* Thousands of equal tokens: the penalty stays finite, whatever the base. */
static void test_dry_is_finite(void **state)
{
    const float logits[] = {0, 1};
    struct sampler_options o = off();
    struct err e;

    (void)state;
    o.dry_penalty_last_n = -1;
    for (int c = 0; c < 4; c++) {
        struct sampler *s;
        int32_t id;
        o.dry_multiplier = c % 2 ? FLT_MAX : 1e-30f;
        o.dry_base = c / 2 ? FLT_MAX : 2;
        assert_int_equal(sampler_new(&s, &o, 2, 5000, &e), ST_OK);
        for (int i = 0; i < 6000; i++)
            sampler_accept(s, 1);
        assert_int_equal(sampler_sample(s, logits, &id, &e), ST_OK);
        assert_int_equal(id, 0);
        sampler_free(s);
    }
}

static void test_nothing_is_allocated(void **state)
{
    static float logits[N_MAX];
    static struct refs l;
    struct err e;

    (void)state;
    noise_state = 7;
    for (int c = 0; c < 60; c++) {
        struct sampler_options o = off();
        struct sampler *s;
        for (int row = 0; row < N_REF_ROWS; row++)
            randomise(&o, ref_rows[row].letter);
        o.mirostat = c % 3;
        o.adaptive_target = (float)(c % 2);
        make_logits(logits, N_MAX);
        make_history(&l, N_MAX);
        s = make(&o, &l, N_MAX);
        mem_guard_begin();
        for (int i = 0; i < 100; i++) {
            int32_t id;
            assert_int_equal(sampler_sample(s, logits, &id, &e), ST_OK);
            sampler_accept(s, id);
        }
        assert_int_equal(mem_guard_end(), 0);
        sampler_free(s);
    }
}

/* Each allocation fails once; breakers included. */
static void test_out_of_memory(void **state)
{
    (void)state;
    for (int c = 0; c < 3; c++) {
        struct sampler_options o = off();
        bool done = false;
        o.mirostat = c == 1;
        o.adaptive_target = c == 2 ? 0.5f : -1;
        o.dry_multiplier = 1;
        o.repeat_penalty = 2;
        for (uint64_t n = 1; !done; n++) {
            const int32_t ids[] = {1, 2, 3};
            struct sampler *s;
            struct err e = {0};
            enum status st;
            mem_fail_at(n);
            st = sampler_new(&s, &o, 100, 10, &e);
            if (!st)
                st = sampler_add_breaker(s, ids, 3, &e);
            mem_fail_at(0);
            done = st == ST_OK;
            assert_true(done || (st == ST_NOMEM && strstr(e.msg, "memory")));
            assert_true(!done || n > 6);
            sampler_free(s);
        }
    }
}

static void test_refused_values(void **state)
{
    static const float no_number[] = {NAN, INFINITY, -INFINITY};
    struct err e;

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct sampler_options o;
        struct {
            const char *flag;
            float *field;
        } rows[] = {
            {"--presence-penalty", &o.presence_penalty},
            {"--frequency-penalty", &o.frequency_penalty},
            {"--top-nsigma", &o.top_n_sigma},
            {"--dry-multiplier", &o.dry_multiplier},
            {"--dry-base", &o.dry_base},
            {"--mirostat-ent", &o.mirostat_ent},
            {"--mirostat-lr", &o.mirostat_lr},
            {"--adaptive-target", &o.adaptive_target},
            {"--adaptive-decay", &o.adaptive_decay},
            {"--dynatemp-range", &o.dynatemp_range},
            {"--dynatemp-exp", &o.dynatemp_exp},
            {"--typical", &o.typ_p},
            {"--xtc-probability", &o.xtc_probability},
            {"--xtc-threshold", &o.xtc_threshold},
        };
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            sampler_defaults(&o);
            *rows[r].field = no_number[i];
            assert_int_equal(sampler_check(&o, &e), ST_USAGE);
            assert_non_null(strstr(e.msg, rows[r].flag));
            assert_non_null(strstr(e.msg, "expected"));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_limits_met_exactly),
        cmocka_unit_test(test_tie_behind_a_sampler),
        cmocka_unit_test(test_bad_logits),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_dry_is_finite),
        cmocka_unit_test(test_nothing_is_allocated),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_refused_values),
    };

    return cmocka_run_group_tests_name("sampler edges", tests, NULL, NULL);
}
