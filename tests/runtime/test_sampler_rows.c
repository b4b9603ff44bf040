/*
 * Each sampler against a reference that follows its description word by word, on plain arrays, with
 * qsort and the C library's functions; then chains of several, and what every chain promises.
 */
#include "tests/unit.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/sampler.h"

#define N_MAX 400
#define N_CTX 64

/* ---- reference ---- */

struct ref {
    int id;
    double x, p; /* logit, probability */
};

struct refs {
    struct ref r[N_MAX];
    int n;
    bool close; /* rounding alone could have changed what was kept */
    int history[N_CTX], n_history;
    int breakers[4][3], n_tokens[4], n_breakers; /* DRY's */
};

static int ref_order(const void *a, const void *b)
{
    const struct ref *x = a, *y = b;

    if (x->x != y->x)
        return x->x > y->x ? -1 : 1;
    return x->id - y->id;
}

/* Sort and give the probabilities. */
static void ref_softmax(struct refs *l)
{
    double sum = 0;

    qsort(l->r, (size_t)l->n, sizeof *l->r, ref_order);
    for (int i = 0; i < l->n; i++)
        sum += exp(l->r[i].x - l->r[0].x);
    for (int i = 0; i < l->n; i++)
        l->r[i].p = exp(l->r[i].x - l->r[0].x) / sum;
}

static void ref_is_close(struct refs *l, double a, double b)
{
    if (fabs(a - b) <= 1e-9 * fmax(1e-3, fmax(fabs(a), fabs(b))))
        l->close = true;
}

static void ref_penalties(struct refs *l, const struct sampler_options *o)
{
    int last_n = o->repeat_last_n < 0 ? N_CTX : o->repeat_last_n;

    for (int i = 0; i < l->n; i++) {
        struct ref *r = &l->r[i];
        int count = 0;
        for (int j = 0; j < last_n && j < l->n_history; j++)
            count += l->history[l->n_history - 1 - j] == r->id;
        if (!count)
            continue;
        if (r->x <= 0)
            r->x *= (double)o->repeat_penalty;
        else
            r->x /= (double)o->repeat_penalty;
        r->x -= count * (double)o->frequency_penalty;
        r->x -= (double)o->presence_penalty;
    }
}

/* Tokens behind the last place where a breaker stands in t[0..n); the longest that begins there counts. */
static int ref_unbroken(const struct refs *l, const int *t, int n)
{
    for (int from = n - 1; from >= 0; from--) {
        int longest = 0;
        for (int b = 0; b < l->n_breakers; b++) {
            int k = 0;
            while (k < l->n_tokens[b] && from + k < n && t[from + k] == l->breakers[b][k])
                k++;
            if (k == l->n_tokens[b] && k > longest)
                longest = k;
        }
        if (longest)
            return n - from - longest;
    }
    return n;
}

/* Does a breaker consist of this token alone? */
static bool ref_is_breaker(const struct refs *l, int id)
{
    for (int b = 0; b < l->n_breakers; b++)
        if (l->n_tokens[b] == 1 && l->breakers[b][0] == id)
            return true;
    return false;
}

/* For each candidate, look at every place where it stands in the text. */
static void ref_dry(struct refs *l, const struct sampler_options *o)
{
    int last_n = o->dry_penalty_last_n < 0 ? N_CTX : o->dry_penalty_last_n;
    int n = last_n < l->n_history ? last_n : l->n_history, allowed = o->dry_allowed_length;
    const int *t = l->history + l->n_history - n;
    int limit = ref_unbroken(l, t, n);

    for (int i = 0; i < l->n && o->dry_multiplier > 0; i++) {
        int longest = -1;
        for (int p = 1; p < n; p++) {
            int k = 0;
            if (t[p] != l->r[i].id)
                continue;
            while (k < p && k < limit && t[p - 1 - k] == t[n - 1 - k])
                k++;
            if (k > longest)
                longest = k;
        }
        if (longest >= allowed && n > allowed && !ref_is_breaker(l, l->r[i].id))
            l->r[i].x -= (double)o->dry_multiplier * pow((double)o->dry_base, longest - allowed);
    }
}

static void ref_top_k(struct refs *l, const struct sampler_options *o)
{
    ref_softmax(l);
    if (o->top_k > 0 && o->top_k < l->n)
        l->n = o->top_k;
}

static void ref_top_p(struct refs *l, const struct sampler_options *o)
{
    double sum = 0;

    ref_softmax(l);
    for (int i = 0; o->top_p < 1 && i < l->n; i++) {
        sum += l->r[i].p;
        ref_is_close(l, sum, (double)o->top_p);
        if (sum >= (double)o->top_p) {
            l->n = i + 1;
            return;
        }
    }
}

static void ref_min_p(struct refs *l, const struct sampler_options *o)
{
    int n = 0;

    ref_softmax(l);
    for (int i = 0; i < l->n; i++) {
        double least = (double)o->min_p * l->r[0].p;
        if (i > 0 && least > 0)
            ref_is_close(l, l->r[i].p, least);
        if (l->r[i].p >= least)
            l->r[n++] = l->r[i];
    }
    l->n = n;
}

static void ref_top_n_sigma(struct refs *l, const struct sampler_options *o)
{
    double mean = 0, variance = 0, max = -INFINITY;
    int n = 0;

    for (int i = 0; i < l->n; i++) {
        mean += l->r[i].x / l->n;
        max = fmax(max, l->r[i].x);
    }
    for (int i = 0; i < l->n; i++)
        variance += pow(l->r[i].x - mean, 2) / l->n;
    for (int i = 0; i < l->n; i++) {
        double least = max - (double)o->top_n_sigma * sqrt(variance);
        if (variance > 0)
            ref_is_close(l, l->r[i].x, least);
        if (o->top_n_sigma <= 0 || l->r[i].x >= least || l->r[i].x == max)
            l->r[n++] = l->r[i];
    }
    l->n = n;
}

/* Again and again the most typical of those that are left, until the sum is more than p. */
static void ref_typ_p(struct refs *l, const struct sampler_options *o)
{
    static bool taken[N_MAX];
    double entropy = 0, sum = 0;
    int n = 0;

    ref_softmax(l);
    if (o->typ_p == 1)
        return;
    for (int i = 0; i < l->n; i++)
        entropy -= l->r[i].p > 0 ? l->r[i].p * log(l->r[i].p) : 0;
    memset(taken, 0, sizeof taken);
    for (int k = 0; k < l->n && sum <= (double)o->typ_p; k++) {
        int best = -1;
        double best_score = 0;
        for (int i = 0; i < l->n; i++) {
            double score = fabs(-log(l->r[i].p) - entropy);
            if (taken[i])
                continue;
            /* equal logits have equal scores and keep their order; others may be close */
            if (best >= 0 && l->r[i].x != l->r[best].x)
                ref_is_close(l, score, best_score);
            if (best < 0 || score < best_score) {
                best = i;
                best_score = score;
            }
        }
        taken[best] = true;
        sum += l->r[best].p;
        ref_is_close(l, sum, (double)o->typ_p);
    }
    for (int i = 0; i < l->n; i++)
        if (taken[i])
            l->r[n++] = l->r[i];
    l->n = n;
}

/* With a probability of 0 or 1. */
static void ref_xtc(struct refs *l, const struct sampler_options *o)
{
    int n_likely = 0;

    ref_softmax(l);
    for (int i = 0; i < l->n; i++) {
        n_likely += l->r[i].p >= (double)o->xtc_threshold;
        ref_is_close(l, l->r[i].p, (double)o->xtc_threshold);
    }
    if (o->xtc_probability == 0 || n_likely < 2)
        return;
    memmove(l->r, l->r + n_likely - 1, (size_t)(l->n - n_likely + 1) * sizeof *l->r);
    l->n -= n_likely - 1;
}

static void ref_temperature(struct refs *l, const struct sampler_options *o)
{
    double temp = (double)o->temp, range = (double)o->dynatemp_range;

    ref_softmax(l);
    if (range > 0 && l->n > 1) {
        double h = 0, low = fmax(0, temp - range), high = temp + range;
        for (int i = 0; i < l->n; i++)
            h -= l->r[i].p > 0 ? l->r[i].p * log(l->r[i].p) : 0;
        h = fmin(1, fmax(0, h / log(l->n)));
        temp = low + (high - low) * pow(h, (double)o->dynatemp_exp);
    }
    if (temp < (double)FLT_MIN)
        l->n = 1;
    for (int i = 0; temp >= (double)FLT_MIN && i < l->n; i++)
        l->r[i].x /= temp;
}

typedef void ref_fn(struct refs *l, const struct sampler_options *o);

struct ref_row {
    const char *name;
    char letter;
    ref_fn *fn;
};
static const struct ref_row ref_rows[] = {
    /* in the default order */
    {"penalties", 'e', ref_penalties},
    {"dry", 'd', ref_dry},
    {"top_n_sigma", 's', ref_top_n_sigma},
    {"top_k", 'k', ref_top_k},
    {"typ_p", 'y', ref_typ_p},
    {"top_p", 'p', ref_top_p},
    {"min_p", 'm', ref_min_p},
    {"xtc", 'x', ref_xtc},
    {"temperature", 't', ref_temperature},
};
enum { N_REF_ROWS = sizeof ref_rows / sizeof ref_rows[0] };

/* ---- reference of the samplers that draw: what they keep, and what they learn from the drawn id ---- */

struct ref_state {
    double mu;            /* mirostat */
    double sum, weight;   /* adaptive-p */
    double before[N_MAX]; /* by id: probabilities before the transformation */
};

static void ref_mirostat(struct refs *l, const struct sampler_options *o, struct ref_state *st,
                         int n_vocab)
{
    ref_softmax(l);
    if (o->mirostat == 1) {
        double tb = 0, tt = 0, s, eps, k;
        for (int i = 0; i < 99 && i + 1 < l->n; i++) {
            double t = log((i + 2.0) / (i + 1.0));
            tb += t * (l->r[i].x - l->r[i + 1].x);
            tt += t * t;
        }
        s = tb / tt;
        eps = s - 1;
        k = pow(eps * pow(2, st->mu) / (1 - pow(n_vocab, -eps)), 1 / s);
        if (l->n == 1 || tb == 0 || k > l->n + 1)
            return;
        ref_is_close(l, k, round(k));
        l->n = k < 1 ? 1 : k < l->n ? (int)k : l->n;
    } else {
        int n = 0;
        while (n < l->n && -log2(l->r[n].p) <= st->mu) {
            ref_is_close(l, -log2(l->r[n].p), st->mu);
            n++;
        }
        if (n < l->n)
            ref_is_close(l, -log2(l->r[n].p), st->mu);
        l->n = n ? n : 1;
    }
}

static void ref_adaptive_p(struct refs *l, const struct sampler_options *o, struct ref_state *st)
{
    double t = fmin(1, fmax(0, 2 * (double)o->adaptive_target - st->sum / st->weight));

    ref_softmax(l);
    for (int i = 0; i < l->n; i++) {
        double d = fabs(l->r[i].p - t) / 0.3;
        st->before[l->r[i].id] = l->r[i].p;
        l->r[i].x = 5 - 10 * d * d / (1 + d);
    }
}

static void ref_learn(const struct refs *l, const struct sampler_options *o, struct ref_state *st,
                      int id)
{
    for (int i = 0; i < l->n; i++)
        if (l->r[i].id == id)
            st->mu -= (double)o->mirostat_lr * (-log2(l->r[i].p) - (double)o->mirostat_ent);
    st->sum = st->before[id] + (double)o->adaptive_decay * st->sum;
    st->weight = 1 + (double)o->adaptive_decay * st->weight;
}

/* ---- random input ---- */

static uint32_t noise_state;

static uint32_t noise_int(uint32_t below)
{
    noise_state = noise_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(noise_state >> 4) * below >> 28);
}

static double noise(void)
{
    return (double)noise_int(1 << 24) / (1 << 24);
}

static int pick_size(void)
{
    static const int sizes[] = {1, 2, 3, 7, 40, 100, N_MAX};

    return sizes[noise_int(7)];
}

/* Logits of one of several kinds: spread, many ties, all equal, one far ahead, some -inf. */
static void make_logits(float *logits, int n)
{
    uint32_t kind = noise_int(6);

    for (int i = 0; i < n; i++) {
        double x = (noise() + noise() + noise() - 1.5) * (kind == 5 ? 60 : 8);
        logits[i] = (float)(kind == 1 ? floor(x) : kind == 2 ? 1.5 : x);
        if (kind == 4 && noise() < 0.3)
            logits[i] = -INFINITY;
    }
    if (kind == 3)
        logits[noise_int((uint32_t)n)] = 40;
    if (kind == 4)
        logits[noise_int((uint32_t)n)] = 2;
}

/* Tokens of a text that repeats itself, and sequences that may stand in it. */
static void make_history(struct refs *l, int n_vocab)
{
    uint32_t period = 1 + noise_int(9);

    l->n_history = (int)noise_int(N_CTX + 1);
    for (int i = 0; i < l->n_history; i++) {
        l->history[i] = (int)noise_int((uint32_t)n_vocab);
        if (i >= (int)period && noise() < 0.8)
            l->history[i] = l->history[i - (int)period];
    }
    l->n_breakers = (int)noise_int(5);
    for (int b = 0; b < l->n_breakers; b++) {
        l->n_tokens[b] = 1 + (int)noise_int(3);
        for (int i = 0; i < 3; i++)
            l->breakers[b][i] = (int)noise_int((uint32_t)n_vocab + 1);
        l->breakers[b][0] %= n_vocab;
    }
}

/* Everything off, temperature 1. */
static struct sampler_options off(void)
{
    struct sampler_options o;

    sampler_defaults(&o);
    o.temp = o.top_p = 1;
    o.top_k = 0;
    o.min_p = 0;
    o.seed = noise_int(1000);
    return o;
}

/* Switch one sampler on, with values over its whole range. */
static void randomise(struct sampler_options *o, char letter)
{
    switch (letter) {
    case 'e':
        o->repeat_penalty = (float)(0.5 + 2 * noise());
        o->presence_penalty = (float)(4 * noise() - 2);
        o->frequency_penalty = (float)(4 * noise() - 2);
        o->repeat_last_n = (int32_t)noise_int(N_CTX + 20) - 1;
        break;
    case 'd':
        o->dry_multiplier = noise() < 0.1 ? 0 : (float)noise();
        o->dry_base = (float)(1 + noise());
        o->dry_allowed_length = (int32_t)noise_int(5);
        o->dry_penalty_last_n = (int32_t)noise_int(N_CTX + 20) - 1;
        break;
    case 's':
        o->top_n_sigma = (float)(3.5 * noise() - 0.5);
        break;
    case 'y':
        o->typ_p = noise() < 0.1 ? (float)noise_int(2) : (float)noise();
        break;
    case 'x':
        o->xtc_probability = noise() < 0.1 ? 0 : 1;
        o->xtc_threshold = (float)(noise() * noise() * 0.7);
        break;
    case 'k':
        o->top_k = (int32_t)noise_int(60) - 1;
        break;
    case 'p':
        o->top_p = (float)(1.1 * noise());
        o->top_p = o->top_p > 1 ? 1 : o->top_p;
        break;
    case 'm':
        o->min_p = (float)(noise() * noise());
        break;
    case 't':
        o->temp = noise() < 0.1 ? 0 : (float)(0.05 + 3 * noise());
        o->dynatemp_range = noise() < 0.5 ? 0 : (float)(2 * noise());
        o->dynatemp_exp = noise() < 0.1 ? 0 : (float)(3 * noise());
        break;
    }
}

/* ---- one case ---- */

static struct sampler *make(const struct sampler_options *o, const struct refs *l, int n_vocab)
{
    struct sampler *s;
    struct err e = {0};

    assert_int_equal(sampler_new(&s, o, n_vocab, N_CTX, &e), ST_OK);
    for (int b = 0; b < l->n_breakers; b++) {
        int32_t ids[3];
        for (int i = 0; i < 3; i++)
            ids[i] = l->breakers[b][i];
        assert_int_equal(sampler_add_breaker(s, ids, l->n_tokens[b], &e), ST_OK);
    }
    for (int i = 0; i < l->n_history; i++)
        sampler_accept(s, l->history[i]);
    return s;
}

static void load(struct refs *l, const float *logits, int n)
{
    l->n = 0;
    l->close = false;
    for (int i = 0; i < n; i++)
        if (logits[i] != -INFINITY)
            l->r[l->n++] = (struct ref){i, (double)logits[i], 0};
}

/* The sample's candidates are those of the reference, with its probabilities. Returns the drawn id. */
static int compare(struct sampler *s, const float *logits, struct refs *l)
{
    const struct candidate *kept;
    struct err e = {0};
    int32_t id, n;
    bool found = false;

    assert_int_equal(sampler_sample(s, logits, &id, &e), ST_OK);
    kept = sampler_kept(s, &n);
    ref_softmax(l);
    if (l->close)
        return id;
    assert_int_equal(n, l->n);
    for (int i = 0; i < n; i++) {
        if (kept[i].id != l->r[i].id) /* two that differ by rounding alone */
            assert_true(fabs((double)kept[i].p - l->r[i].p) < 1e-6);
        assert_true(fabs((double)kept[i].p - l->r[i].p) < 1e-6);
        found |= kept[i].id == id;
    }
    assert_true(found);
    return id;
}

/* ---- tests ---- */

static void test_each_alone(void **state)
{
    static float logits[N_MAX];
    static struct refs l;

    (void)state;
    noise_state = 1;
    for (int row = 0; row < N_REF_ROWS; row++) {
        int compared = 0;
        for (int c = 0; c < 1500; c++) {
            int n = pick_size();
            struct sampler_options o = off();
            struct sampler *s;
            randomise(&o, ref_rows[row].letter);
            make_logits(logits, n);
            make_history(&l, n);
            load(&l, logits, n);
            ref_rows[row].fn(&l, &o);
            s = make(&o, &l, n);
            compare(s, logits, &l);
            compared += !l.close;
            sampler_free(s);
        }
        assert_true(compared > 1000);
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
        load(&l, logits, n);
        for (int i = 0; i < n_order; i++)
            ref_rows[order[i]].fn(&l, &o);
        s = make(&o, &l, n);
        compare(s, logits, &l);
        compared += !l.close;
        sampler_free(s);
    }
    assert_true(compared > 3000);
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
        cmocka_unit_test(test_default_order),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_refused_values),
        cmocka_unit_test(test_dry_example),
        cmocka_unit_test(test_dry_is_finite),
        cmocka_unit_test(test_those_that_draw),
        cmocka_unit_test(test_adaptive_p_learns_from_its_own),
        cmocka_unit_test(test_mirostat_reaches_its_level),
        cmocka_unit_test(test_describe),
        cmocka_unit_test(test_xtc_probability),
    };

    return cmocka_run_group_tests_name("sampler rows", tests, NULL, NULL);
}
