/*
 * Each sampler against its reference (sampler_ref.h), alone and in chains of any order; names, and
 * what is said about the chain.
 */
#include "tests/unit.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "tests/runtime/sampler_ref.h"

static void test_each_alone(void **state)
{
    static float logits[N_MAX];
    static struct refs l;

    (void)state;
    noise_state = 1;
    for (int row = 0; row < N_REF_ROWS; row++) {
        int compared = 0;
        for (int c = 0; c < 1000; c++) {
            int n = pick_size();
            struct sampler_options o = off();
            struct sampler *s;
            randomise(&o, ref_rows[row].letter);
            make_logits(logits, n);
            make_history(&l, n);
            s = make(&o, &l, n);
            for (int i = 0; i < 2; i++) {
                load(&l, logits, n);
                ref_rows[row].fn(&l, &o);
                compare(s, logits, &l);
                compared += !l.close;
                go_on(s, &l, n);
            }
            sampler_free(s);
        }
        assert_true(compared > 1500);
    }
}

/* Any subset in any order gives what the references give one after the other. */
static void test_any_order(void **state)
{
    static float logits[N_MAX];
    static struct refs l;
    int compared = 0;

    (void)state;
    noise_state = 2;
    for (int c = 0; c < 4000; c++) {
        int n = pick_size(), order[N_REF_ROWS], n_order = 1 + (int)noise_int(N_REF_ROWS);
        char names[256] = "", letters[N_REF_ROWS + 1] = "";
        struct sampler_options o = off();
        struct sampler *s;
        struct err e;
        for (int i = 0; i < N_REF_ROWS; i++)
            order[i] = i;
        for (int i = 0; i < n_order; i++) {
            int j = i + (int)noise_int((uint32_t)(N_REF_ROWS - i)), k = order[i];
            order[i] = order[j];
            order[j] = k;
            letters[i] = ref_rows[order[i]].letter;
            strcat(strcat(names, i ? ";" : ""), ref_rows[order[i]].name);
            randomise(&o, letters[i]);
        }
        if (c % 2)
            assert_int_equal(sampler_set_names(&o, "--samplers", names, &e), ST_OK);
        else
            assert_int_equal(sampler_set_letters(&o, "--sampler-seq", letters, &e), ST_OK);
        make_logits(logits, n);
        make_history(&l, n);
        s = make(&o, &l, n);
        for (int k = 0; k < 2; k++) {
            load(&l, logits, n);
            for (int i = 0; i < n_order; i++)
                ref_rows[order[i]].fn(&l, &o);
            compare(s, logits, &l);
            compared += !l.close;
            go_on(s, &l, n);
        }
        sampler_free(s);
    }
    assert_true(compared > 6500);
}

/* Texts of 12 tokens: the reference learns from the id that was drawn. */
static void test_those_that_draw(void **state)
{
    static float logits[N_MAX];
    static struct refs l;
    static struct ref_state st;
    int compared = 0, close = 0;

    (void)state;
    noise_state = 4;
    for (int c = 0; c < 600; c++) {
        int n = pick_size();
        struct sampler_options o = off();
        struct sampler *s;
        o.mirostat = c % 3;
        o.mirostat_ent = (float)(6 * noise());
        o.mirostat_lr = (float)noise();
        o.adaptive_target = (float)noise();
        o.adaptive_decay = (float)(0.99 * noise());
        o.temp = (float)(0.3 + noise());
        if (!o.mirostat)
            randomise(&o, 'm');
        st = (struct ref_state){.mu = 2 * (double)o.mirostat_ent};
        st.weight = 1 / (1 - (double)o.adaptive_decay);
        st.sum = (double)o.adaptive_target * st.weight;
        l.n_history = 0;
        s = make(&o, &l, n);
        for (int i = 0; i < 12; i++) {
            int id;
            make_logits(logits, n);
            load(&l, logits, n);
            ref_min_p(&l, &o);
            ref_temperature(&l, &o);
            if (o.mirostat)
                ref_mirostat(&l, &o, &st, n);
            else
                ref_adaptive_p(&l, &o, &st);
            id = compare(s, logits, &l);
            if (l.close) {
                close++;
                break;
            }
            ref_learn(&l, &o, &st, id);
            sampler_accept(s, id);
            compared++;
        }
        sampler_free(s);
    }
    assert_true(compared > 5000 && close < 100);
}

/* A token that was not the one drawn teaches adaptive-p nothing. */
static void test_adaptive_p_learns_from_its_own(void **state)
{
    const float logits[] = {3, 2, 1, 0};
    struct refs none = {0};
    struct sampler_options o = off();
    struct sampler *s;
    const struct candidate *kept;
    struct candidate first[4];
    int32_t id, n;
    struct err e;

    (void)state;
    o.adaptive_target = 0.3f;
    s = make(&o, &none, 4);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sampler_sample(s, logits, &id, &e), ST_OK);
        kept = sampler_kept(s, &n);
        assert_int_equal(n, 4);
        if (i == 0)
            memcpy(first, kept, sizeof first);
        else
            assert_true((memcmp(first, kept, sizeof first) == 0) == (i == 1));
        sampler_accept(s, i == 0 ? (id + 1) % 4 : id);
    }
    sampler_free(s);
}

/* Over a long text mirostat's surprise comes near what was asked for. */
static void test_mirostat_reaches_its_level(void **state)
{
    static float logits[N_MAX];
    struct refs none = {0};
    struct err e;

    (void)state;
    noise_state = 5;
    for (int c = 0; c < 6; c++) {
        struct sampler_options o = off();
        struct sampler *s;
        double surprise = 0;
        int n = 3000;
        o.mirostat = 1 + c % 2;
        o.mirostat_ent = (float)(2 + c / 2);
        s = make(&o, &none, N_MAX);
        for (int i = 0; i < n; i++) {
            const struct candidate *kept;
            int32_t id, n_kept;
            for (int j = 0; j < N_MAX; j++)
                logits[j] = (float)(3 * noise());
            assert_int_equal(sampler_sample(s, logits, &id, &e), ST_OK);
            kept = sampler_kept(s, &n_kept);
            for (int j = 0; j < n_kept; j++)
                if (kept[j].id == id)
                    surprise -= log2((double)kept[j].p) / n;
        }
        assert_true(fabs(surprise - (double)o.mirostat_ent) < 0.1);
        sampler_free(s);
    }
}

/* Without an order of one's own it is that of the rows above. */
static void test_default_order(void **state)
{
    struct sampler_options usual, named;
    char names[256] = "";
    struct err e;

    (void)state;
    sampler_defaults(&usual);
    sampler_defaults(&named);
    for (int i = 0; i < N_REF_ROWS; i++)
        strcat(strcat(names, ref_rows[i].name), ";");
    strcat(names, "adaptive_p");
    assert_int_equal(sampler_set_names(&named, "--samplers", names, &e), ST_OK);
    assert_int_equal(named.n_order, usual.n_order);
    assert_memory_equal(named.order, usual.order, sizeof named.order);
}

static void test_names(void **state)
{
    static const char *const same[][2] = {
        {"top_k", "Top-K"},
        {"top_k", "topk"},
        {"top_p", "nucleus"},
        {"temperature", "temp"},
        {"min_p;top_k", "MINP;top-k"},
    };
    static const struct {
        bool letters;
        const char *value, *word;
    } bad[] = {
        {false, "", "''"},
        {false, ";", "''"},
        {false, "top_k;", "''"},
        {false, "top_kk", "top_kk"},
        {false, "top", "'top'"},
        {false, "dist", "'dist'"},
        {false, "top_k top_p", "'"},
        {false, "topk;top_k", "twice"},
        {true, "", "''"},
        {true, "kz", "'z'"},
        {true, "kk", "twice"},
        {true, "K", "'K'"},
        {true, "k;p", "';'"},
        {true, "\xff", "xff"},
    };
    struct sampler_options a, b;
    struct err e;

    (void)state;
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        sampler_defaults(&a);
        sampler_defaults(&b);
        assert_int_equal(sampler_set_names(&a, "--samplers", same[i][0], &e), ST_OK);
        assert_int_equal(sampler_set_names(&b, "--samplers", same[i][1], &e), ST_OK);
        assert_int_equal(a.n_order, b.n_order);
        assert_memory_equal(a.order, b.order, (size_t)a.n_order);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *flag = bad[i].letters ? "--sampler-seq" : "--samplers";
        sampler_defaults(&a);
        assert_int_equal(
            (bad[i].letters ? sampler_set_letters : sampler_set_names)(&a, flag, bad[i].value, &e),
            ST_USAGE);
        assert_non_null(strstr(e.msg, flag));
        assert_non_null(strstr(e.msg, bad[i].word));
        assert_non_null(strstr(e.msg, "expected"));
    }
}

static void test_bias(void **state)
{
    static float logits[N_MAX];
    static struct refs l;
    struct err e;

    (void)state;
    noise_state = 3;
    for (int c = 0; c < 500; c++) {
        int n = pick_size();
        struct sampler_options o = off();
        struct sampler *s = make(&o, &l, n);
        make_logits(logits, n);
        load(&l, logits, n);
        for (int i = 0; i < 5; i++) {
            int32_t id = (int32_t)noise_int((uint32_t)n);
            float bias = (float)(20 * noise() - 10);
            int m = 0;
            if (i == 4 && l.n > 1)
                bias = -INFINITY;
            assert_int_equal(sampler_bias(s, id, bias, &e), ST_OK);
            for (int j = 0; j < l.n; j++) {
                if (l.r[j].id == id)
                    l.r[j].x += (double)bias;
                if (l.r[j].x > -INFINITY)
                    l.r[m++] = l.r[j];
            }
            l.n = m;
        }
        compare(s, logits, &l);
        assert_int_equal(sampler_bias(s, n, 1, &e), ST_USAGE);
        assert_non_null(strstr(e.msg, "vocabulary"));
        assert_int_equal(sampler_bias(s, -1, 1, &e), ST_USAGE);
        assert_int_equal(sampler_bias(s, 0, NAN, &e), ST_USAGE);
        assert_int_equal(sampler_bias(s, 0, INFINITY, &e), ST_USAGE);
        compare(s, logits, &l); /* what was refused changed nothing */
        sampler_free(s);
    }
}

/* XTC cuts as often as it is told to; the chain as a whole is drawn from. */
static void test_xtc_probability(void **state)
{
    const float logits[] = {1, 1, 1, 1};
    struct refs none = {0};
    struct sampler_options o = off();
    struct sampler *s;
    int cut = 0, n = 20000;

    (void)state;
    o.xtc_probability = 0.3f;
    o.seed = 11;
    s = make(&o, &none, 4);
    for (int i = 0; i < n; i++) {
        int32_t id, n_kept;
        struct err e;
        assert_int_equal(sampler_sample(s, logits, &id, &e), ST_OK);
        sampler_kept(s, &n_kept);
        assert_true(n_kept == 4 || (n_kept == 1 && id == 3));
        cut += n_kept == 1;
    }
    assert_true(fabs(cut - 0.3 * n) < 5 * sqrt(n * 0.3 * 0.7)); /* five standard deviations */
    sampler_free(s);
}

/* The example of the description: the text ends like it began, so its next token is expected. */
static void test_dry_example(void **state)
{
    static const int32_t text[] = {1, 2, 3, 3, 2, 3, 4, 1, 2, 3}; /* a b c c b c y a b c */
    const float logits[] = {0, 0, 0, 0, 0};
    /* c would make 4 tokens of repetition, b 2, y 3; the first 2 are free */
    static const double loss[] = {0, 0, 0, 1.5, 1};
    struct sampler_options o = off();
    struct refs none = {0};
    const struct candidate *kept;
    struct sampler *s;
    int32_t id, n;
    struct err e;
    double sum = 0;

    (void)state;
    o.dry_multiplier = 1;
    o.dry_base = 1.5f;
    s = make(&o, &none, 5);
    for (size_t i = 0; i < sizeof text / sizeof text[0]; i++)
        sampler_accept(s, text[i]);
    assert_int_equal(sampler_sample(s, logits, &id, &e), ST_OK);
    kept = sampler_kept(s, &n);
    for (int i = 0; i < 5; i++)
        sum += exp(-loss[i]);
    for (int i = 0; i < n; i++)
        assert_true(fabs((double)kept[i].p - exp(-loss[kept[i].id]) / sum) < 1e-6);
    sampler_free(s);
}

static void test_describe(void **state)
{
    struct sampler_options o;
    struct refs none = {0};
    struct sampler *s;
    struct text t = {0};
    struct err e;

    (void)state;
    sampler_defaults(&o);
    o.seed = 5;
    assert_int_equal(sampler_set_names(&o, "--samplers", "temp;penalties;top_k", &e), ST_OK);
    s = make(&o, &none, 10);
    assert_int_equal(sampler_bias(s, 3, 1, &e), ST_OK);
    assert_int_equal(sampler_bias(s, 4, -INFINITY, &e), ST_OK);
    sampler_describe(s, &t);
    assert_string_equal(t.p,
                        "logit_bias(2 tokens) -> temperature=0.8 -> penalties off -> top_k=40 -> "
                        "dist(seed=5)");
    text_release(&t);
    sampler_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_alone),
        cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_those_that_draw),
        cmocka_unit_test(test_adaptive_p_learns_from_its_own),
        cmocka_unit_test(test_mirostat_reaches_its_level),
        cmocka_unit_test(test_default_order),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_xtc_probability),
        cmocka_unit_test(test_dry_example),
        cmocka_unit_test(test_describe),
    };

    return cmocka_run_group_tests_name("sampler rows", tests, NULL, NULL);
}
