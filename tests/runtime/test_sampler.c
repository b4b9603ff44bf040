/*
 * The sampler against a reference that follows its description word by word: qsort, exp of the C
 * library, no shared code.
 */
#include "tests/unit.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/sampler.h"

#define N_MAX 3000

/* ---- reference ---- */

struct ref {
    int id;
    double logit, p;
};

static int ref_order(const void *a, const void *b)
{
    const struct ref *x = a, *y = b;

    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id - y->id;
}

static void ref_softmax(struct ref *r, int n, double temp)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += exp((r[i].logit - r[0].logit) / temp);
    for (int i = 0; i < n; i++)
        r[i].p = exp((r[i].logit - r[0].logit) / temp) / sum;
}

/* Set *close when rounding alone could change where a list is cut. */
static int ref_chain(struct ref *r, int n, const struct sampler_options *o, bool *close)
{
    double sum = 0;
    int m;

    *close = false;
    qsort(r, (size_t)n, sizeof *r, ref_order);
    if (o->top_k > 0 && o->top_k < n)
        n = o->top_k;
    if (o->top_p < 1) {
        ref_softmax(r, n, 1);
        for (m = 0; m < n;) {
            sum += r[m++].p;
            if (fabs(sum - (double)o->top_p) < 1e-9)
                *close = true;
            if (sum >= (double)o->top_p)
                break;
        }
        n = m;
    }
    ref_softmax(r, n, 1);
    for (m = 1; m < n && r[m].p >= (double)o->min_p * r[0].p; m++)
        if (fabs(r[m].p - (double)o->min_p * r[0].p) < 1e-12)
            *close = true;
    n = m;
    ref_softmax(r, n, (double)o->temp);
    return n;
}

/* ---- helpers ---- */

static uint32_t noise_state = 12345;

static double noise(void)
{
    noise_state = noise_state * 1664525u + 1013904223u;
    return (double)(noise_state >> 8) / (1 << 24);
}

/* Rounded to quarters when `ties`, so that many are equal. */
static void fill(float *logits, int n, bool ties)
{
    for (int i = 0; i < n; i++) {
        double x = (noise() + noise() + noise() - 1.5) * 12;
        logits[i] = (float)(ties ? floor(x * 4) / 4 : x);
    }
}

static struct sampler *make(const struct sampler_options *o, int n_vocab)
{
    struct sampler *s;
    struct err e = {0};

    assert_int_equal(sampler_new(&s, o, n_vocab, 512, &e), ST_OK);
    return s;
}

static struct sampler_options plain(void) /* everything off */
{
    struct sampler_options o;

    sampler_defaults(&o);
    o.temp = o.top_p = 1;
    o.top_k = 0;
    o.min_p = 0;
    return o;
}

static int32_t sample(struct sampler *s, const float *logits)
{
    struct err e = {0};
    int32_t id = -1;

    assert_int_equal(sampler_sample(s, logits, &id, &e), ST_OK);
    return id;
}

/* ---- tests ---- */

static void test_kept_set_and_probabilities(void **state)
{
    static const int ks[] = {0, -1, 1, 2, 40, 500, 1000000000};
    static const float ps[] = {0, 0.1f, 0.5f, 0.95f, 1}, mins[] = {0, 0.01f, 0.3f, 1},
                       temps[] = {0.05f, 0.8f, 1, 5};
    static const int sizes[] = {1, 2, 7, 300, N_MAX};
    static float logits[N_MAX];
    static struct ref ref[N_MAX];
    int compared = 0, skipped = 0;

    (void)state;
    for (int c = 0; c < 7 * 5 * 4 * 4 * 5; c++) {
        int x = c, n = sizes[x % 5];
        struct sampler_options o = plain();
        const struct candidate *kept;
        struct sampler *s;
        int32_t n_kept, want, id;
        double sum = 0;
        bool close, found = false;
        x /= 5, o.top_k = ks[x % 7];
        x /= 7, o.top_p = ps[x % 5];
        x /= 5, o.min_p = mins[x % 4];
        x /= 4, o.temp = temps[x % 4];
        o.seed = (uint64_t)c;
        fill(logits, n, c % 3 == 0);
        for (int i = 0; i < n; i++)
            ref[i] = (struct ref){i, (double)logits[i], 0};
        want = ref_chain(ref, n, &o, &close);
        s = make(&o, n);
        id = sample(s, logits);
        kept = sampler_kept(s, &n_kept);
        if (close) {
            skipped++;
            sampler_free(s);
            continue;
        }
        assert_int_equal(n_kept, want);
        for (int i = 0; i < n_kept; i++) {
            assert_int_equal(kept[i].id, ref[i].id);
            assert_true(fabs((double)kept[i].p - ref[i].p) < 1e-6);
            sum += (double)kept[i].p;
            found |= kept[i].id == id;
        }
        assert_true(fabs(sum - 1) < 1e-4);
        assert_true(found);
        compared++;
        sampler_free(s);
    }
    assert_true(compared > 20 * skipped);
}

static void test_greedy_takes_lowest_id_on_tie(void **state)
{
    float logits[] = {-1, 3, 2, 3, -INFINITY};
    struct sampler_options o = plain();
    struct sampler *s;
    int32_t n;

    (void)state;
    o.temp = 0;
    s = make(&o, 5);
    assert_int_equal(sample(s, logits), 1);
    assert_float_equal(sampler_kept(s, &n)[0].p, 1, 0);
    assert_int_equal(n, 1);
    sampler_free(s);
}

static void test_ban(void **state)
{
    float logits[] = {1, 9, 2};
    struct sampler_options o = plain();
    struct err e = {0};
    struct sampler *s;
    int32_t id;

    (void)state;
    o.temp = 0;
    s = make(&o, 3);
    assert_int_equal(sampler_ban(s, 1, &e), ST_OK);
    assert_int_equal(sample(s, logits), 2);
    assert_int_equal(sampler_ban(s, 3, &e), ST_USAGE);
    assert_int_equal(sampler_ban(s, -1, &e), ST_USAGE);
    assert_int_equal(sampler_ban(s, 0, &e), ST_OK);
    assert_int_equal(sampler_ban(s, 2, &e), ST_OK);
    assert_int_equal(sampler_sample(s, logits, &id, &e), ST_MODEL);
    sampler_free(s);
    o.temp = 1;
    s = make(&o, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(sampler_ban(s, i, &e), ST_OK);
    assert_int_equal(sampler_sample(s, logits, &id, &e), ST_MODEL);
    sampler_free(s);
}

static void test_seed_decides(void **state)
{
    static float logits[200];
    struct sampler_options o;
    int32_t first[50];
    int different = 0;

    (void)state;
    fill(logits, 200, false);
    sampler_defaults(&o);
    o.temp = 1.5f;
    o.top_k = 0;
    for (int round = 0; round < 3; round++) { /* seed 7 twice, then 8 */
        struct sampler *s;
        o.seed = round < 2 ? 7 : 8;
        s = make(&o, 200);
        for (int i = 0; i < 50; i++) {
            int32_t id = sample(s, logits);
            if (round == 0)
                first[i] = id;
            else if (round == 1)
                assert_int_equal(id, first[i]);
            else
                different += id != first[i];
        }
        sampler_free(s);
    }
    assert_true(different > 10);
}

/* The generator and the draw are part of the promise "same seed, same text": their results are
 * fixed. */
static void test_draws_are_the_same_everywhere(void **state)
{
    static const int32_t want[] = {4,  14, 2, 0, 15, 7, 2, 1, 7, 8, 2, 14,
                                   12, 14, 2, 6, 13, 1, 2, 2, 4, 9, 3, 13};
    float logits[16];
    struct sampler_options o = plain();
    struct sampler *s;

    (void)state;
    for (int i = 0; i < 16; i++)
        logits[i] = (float)(i % 5) * 0.5f;
    o.seed = 42;
    s = make(&o, 16);
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        assert_int_equal(sample(s, logits), want[i]);
    sampler_free(s);
}

/* Pearson's chi-squared over 8 ids: 7 degrees of freedom, 35 is beyond p = 0.00001. */
static void test_draw_follows_probabilities(void **state)
{
    float logits[] = {0, 1, -1, 0.5f, 2, -0.5f, 1.5f, 0.25f};
    struct sampler_options o = plain();
    double p[8], sum = 0, chi2 = 0;
    int count[8] = {0}, n = 40000;

    (void)state;
    o.temp = 0.7f;
    o.seed = 3;
    for (int i = 0; i < 8; i++)
        sum += p[i] = exp((double)logits[i] / 0.7);
    for (int seeds = 0; seeds < 2;
         seeds++) { /* one long stream; then many seeds with one draw each */
        struct sampler *s = make(&o, 8);
        memset(count, 0, sizeof count);
        for (int i = 0; i < n; i++) {
            if (seeds) {
                sampler_free(s);
                o.seed = (uint64_t)i;
                s = make(&o, 8);
            }
            count[sample(s, logits)]++;
        }
        chi2 = 0;
        for (int i = 0; i < 8; i++) {
            double want = p[i] / sum * n;
            chi2 += (count[i] - want) * (count[i] - want) / want;
        }
        assert_true(chi2 < 35);
        sampler_free(s);
    }
}

static void test_penalty(void **state)
{
    float logits[] = {4, 3, -1, -2}, max[] = {FLT_MAX, -FLT_MAX};
    struct sampler_options o = plain();
    const struct candidate *kept;
    struct sampler *s;
    double e[4] = {exp(2.0), exp(3.0), exp(-2.0), exp(-2.0)}, sum = e[0] + e[1] + e[2] + e[3];
    int32_t n;

    (void)state;
    o.repeat_penalty = 2;
    o.repeat_last_n = 3;
    s = make(&o, 4);
    sampler_accept(s, 1); /* falls out of the window of 3 */
    sampler_accept(s, 0);
    sampler_accept(s, 2);
    sampler_accept(s, 0); /* twice counts once */
    sample(s, logits);
    kept = sampler_kept(s, &n);
    assert_int_equal(n, 4);
    for (int i = 0; i < n; i++)
        assert_true(fabs((double)kept[i].p - e[kept[i].id] / sum) < 1e-6);
    assert_float_equal(logits[0], 4, 0); /* the caller's logits are not changed */
    sampler_free(s);

    o.repeat_penalty = 0.0001f; /* would overflow */
    s = make(&o, 2);
    sampler_accept(s, 0);
    sampler_accept(s, 1);
    assert_int_equal(sample(s, max), 0);
    sampler_free(s);

    o.repeat_penalty = 2;
    o.repeat_last_n = 0;
    o.temp = 0;
    s = make(&o, 4);
    sampler_accept(s, 0);
    assert_int_equal(sample(s, logits), 0);
    sampler_free(s);

    o.repeat_last_n = -1; /* the context */
    s = make(&o, 4);
    sampler_accept(s, 0);
    for (int i = 0; i < 511; i++)
        sampler_accept(s, 3);
    assert_int_equal(sample(s, logits), 1);
    sampler_accept(s, 3);
    assert_int_equal(sample(s, logits), 0);
    sampler_free(s);
}

static void test_bad_logits(void **state)
{
    static const float bad[] = {NAN, INFINITY};

    (void)state;
    for (int temp = 0; temp < 2; temp++) {
        for (int b = 0; b < 2; b++) {
            float logits[] = {1, 2, bad[b], 0};
            struct sampler_options o = plain();
            struct err e = {0};
            struct sampler *s;
            int32_t id, n;
            o.temp = (float)temp;
            s = make(&o, 4);
            assert_int_equal(sampler_sample(s, logits, &id, &e), ST_MODEL);
            assert_non_null(strstr(e.msg, "token 2"));
            assert_non_null(strstr(e.msg, b ? "infinite" : "not a number"));
            sampler_kept(s, &n);
            assert_int_equal(n, 0);
            sampler_free(s);
        }
    }
}

static void test_extremes_stay_finite(void **state)
{
    float logits[] = {3e38f, -3e38f, 0, 3e38f};
    static const float temps[] = {FLT_MIN, 1e-30f, FLT_MAX};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct sampler_options o = plain();
        struct sampler *s;
        int32_t n;
        o.temp = temps[i];
        s = make(&o, 4);
        sample(s, logits);
        for (int j = 0; j < 4; j++)
            assert_true(sampler_kept(s, &n)[j].p >= 0 && sampler_kept(s, &n)[j].p <= 1);
        sampler_free(s);
    }
}

static void test_refused_options(void **state)
{
    struct {
        const char *flag;
        struct sampler_options o;
    } bad[12];
    struct err e;
    int n = 0;

    (void)state;
    for (; n < 12; n++)
        bad[n].o = plain();
    bad[0].flag = "--temp", bad[0].o.temp = -1;
    bad[1].flag = "--temp", bad[1].o.temp = NAN;
    bad[2].flag = "--temp", bad[2].o.temp = INFINITY;
    bad[3].flag = "--top-p", bad[3].o.top_p = NAN;
    bad[4].flag = "--top-p", bad[4].o.top_p = 2;
    bad[5].flag = "--top-p", bad[5].o.top_p = -1;
    bad[6].flag = "--min-p", bad[6].o.min_p = 1.01f;
    bad[7].flag = "--min-p", bad[7].o.min_p = NAN;
    bad[8].flag = "--repeat-penalty", bad[8].o.repeat_penalty = 0;
    bad[9].flag = "--repeat-penalty", bad[9].o.repeat_penalty = NAN;
    bad[10].flag = "--repeat-penalty", bad[10].o.repeat_penalty = -1;
    bad[11].flag = "--repeat-last-n", bad[11].o.repeat_last_n = -2;
    for (int i = 0; i < n; i++) {
        struct sampler *s = (struct sampler *)&e;
        assert_int_equal(sampler_check(&bad[i].o, &e), ST_USAGE);
        assert_non_null(strstr(e.msg, bad[i].flag));
        assert_int_equal(sampler_new(&s, &bad[i].o, 10, 512, &e), ST_USAGE);
        assert_null(s);
    }
}

static void test_sampling_allocates_nothing(void **state)
{
    static float logits[N_MAX];
    struct sampler_options o;
    struct sampler *s;

    (void)state;
    fill(logits, N_MAX, false);
    sampler_defaults(&o);
    o.repeat_penalty = 1.1f;
    for (o.top_k = 0; o.top_k < 80; o.top_k += 40) {
        s = make(&o, N_MAX);
        mem_guard_begin();
        for (int i = 0; i < 20; i++)
            sampler_accept(s, sample(s, logits));
        assert_int_equal(mem_guard_end(), 0);
        sampler_free(s);
    }
}

static void test_out_of_memory(void **state)
{
    struct sampler_options o = plain();
    struct err e;

    (void)state;
    o.repeat_penalty = 2;
    for (uint64_t n = 1;; n++) {
        struct sampler *s;
        enum status st;
        mem_fail_at(n);
        st = sampler_new(&s, &o, 100, 10, &e);
        mem_fail_at(0);
        if (st == ST_OK) {
            assert_true(n > 7);
            sampler_free(s);
            break;
        }
        assert_int_equal(st, ST_NOMEM);
        assert_null(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept_set_and_probabilities),
        cmocka_unit_test(test_greedy_takes_lowest_id_on_tie),
        cmocka_unit_test(test_ban),
        cmocka_unit_test(test_seed_decides),
        cmocka_unit_test(test_draws_are_the_same_everywhere),
        cmocka_unit_test(test_draw_follows_probabilities),
        cmocka_unit_test(test_penalty),
        cmocka_unit_test(test_bad_logits),
        cmocka_unit_test(test_extremes_stay_finite),
        cmocka_unit_test(test_refused_options),
        cmocka_unit_test(test_sampling_allocates_nothing),
        cmocka_unit_test(test_out_of_memory),
    };

    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
