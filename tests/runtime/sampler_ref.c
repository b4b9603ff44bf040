#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/runtime/sampler_ref.h"

static int ref_order(const void *a, const void *b)
{
    const struct ref *x = a, *y = b;

    if (x->x != y->x)
        return x->x > y->x ? -1 : 1;
    return x->id - y->id;
}

/* Sort and give the probabilities. */
void ref_softmax(struct refs *l)
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

/* Tokens behind the last breaker in t[0..n); the longest that begins at its place counts. */
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

void ref_min_p(struct refs *l, const struct sampler_options *o)
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

void ref_temperature(struct refs *l, const struct sampler_options *o)
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

const struct ref_row ref_rows[N_REF_ROWS] = {
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

/* ---- the samplers that draw ---- */

void ref_mirostat(struct refs *l, const struct sampler_options *o, struct ref_state *st,
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

void ref_adaptive_p(struct refs *l, const struct sampler_options *o, struct ref_state *st)
{
    double t = fmin(1, fmax(0, 2 * (double)o->adaptive_target - st->sum / st->weight));

    ref_softmax(l);
    for (int i = 0; i < l->n; i++) {
        double d = fabs(l->r[i].p - t) / 0.3;
        st->before[l->r[i].id] = l->r[i].p;
        l->r[i].x = 5 - 10 * d * d / (1 + d);
    }
}

void ref_learn(const struct refs *l, const struct sampler_options *o, struct ref_state *st, int id)
{
    for (int i = 0; i < l->n; i++)
        if (l->r[i].id == id)
            st->mu -= (double)o->mirostat_lr * (-log2(l->r[i].p) - (double)o->mirostat_ent);
    st->sum = st->before[id] + (double)o->adaptive_decay * st->sum;
    st->weight = 1 + (double)o->adaptive_decay * st->weight;
}
