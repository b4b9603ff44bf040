/*
 * The end of the chain, where a token is drawn: from what is left (dist), from what keeps the
 * surprise at a level (mirostat), or near a target probability (adaptive_p).
 */
#include <float.h>
#include <math.h>

#include "gguf/base/mem.h"
#include "runtime/sample.h"

#define LN2 0.69314718055994530942

static const char at_least_0[] = "a number of at least 0";

/* ---- dist ---- */

static void dist_describe(const struct sampler_options *o, struct text *t)
{
    text_addf(t, "(seed=%llu)", (unsigned long long)o->seed);
}

static void dist_apply(void *state, struct sample *l)
{
    (void)state;
    sample_sort(l);
    l->drawn = sample_draw(l, sample_weigh(l));
}

const struct sampler_row sample_dist = {
    .name = "dist",
    .draws = true,
    .describe = dist_describe,
    .apply = dist_apply,
};

/*
 * ---- mirostat ----
 * Keeps the surprise -log2 p of the drawn tokens near tau (--mirostat-ent): mu, the most surprise
 * that is let through, moves against the error with rate eta (--mirostat-lr).
 * Source: Basu et al., "Mirostat: A Neural Text Decoding Algorithm that Directly Controls
 * Perplexity", arXiv:2007.14966 (algorithms 1 and 2).
 */

struct mirostat {
    double mu; /* bits */
};

static enum status mirostat_check(const struct sampler_options *o, struct err *e)
{
    enum status st;

    st = sample_expect(o->mirostat >= 0 && o->mirostat <= 2, "--mirostat", (double)o->mirostat,
                       "a whole number from 0 to 2", e);
    if (!st)
        st = sample_expect(o->mirostat_ent >= 0 && o->mirostat_ent <= FLT_MAX, "--mirostat-ent",
                           (double)o->mirostat_ent, at_least_0, e);
    if (!st)
        st = sample_expect(o->mirostat_lr >= 0 && o->mirostat_lr <= FLT_MAX, "--mirostat-lr",
                           (double)o->mirostat_lr, at_least_0, e);
    return st;
}

static bool mirostat_active(const struct sampler_options *o)
{
    return o->mirostat != 0;
}

static void mirostat_describe(const struct sampler_options *o, struct text *t)
{
    text_addf(t, "(version=%d, ent=%g, lr=%g, seed=%llu)", (int)o->mirostat,
              (double)o->mirostat_ent, (double)o->mirostat_lr, (unsigned long long)o->seed);
}

static enum status mirostat_open(void **state, const struct sampler_setup *u, struct err *e)
{
    struct mirostat *m = mem_zalloc(sizeof *m);

    *state = m;
    if (!m)
        return err_nomem(e, "mirostat", sizeof *m);
    m->mu = 2 * (double)u->opt->mirostat_ent;
    return ST_OK;
}

/* The exponent s of Zipf's law p_i ~ i^-s that fits the first 100 candidates best (equation 8). */
static double zipf_exponent(const struct sample *l)
{
    double tb = 0, tt = 0;

    for (int32_t i = 0; i < 99 && i < l->n - 1; i++) {
        double t = sample_log((double)(i + 2) / (i + 1));
        tb += t * (l->picks[i].logit - l->picks[i + 1].logit);
        tt += t * t;
    }
    return tb / tt;
}

/*
 * How many candidates to keep so that their surprise is mu: k = (eps 2^mu / (1 - N^-eps))^(1 / s)
 * with eps = s - 1 (equation 7). Logarithms, since the powers may not fit into a double.
 */
static double mirostat_log_k(double s, double mu, int32_t n_vocab)
{
    double eps = s - 1, log_n = sample_log(n_vocab), log_ratio, x = eps * log_n;

    if (fabs(x) < 1e-5) /* eps / (1 - e^-x) = (1 + x / 2 + ...) / log N */
        log_ratio = x / 2 - sample_log(log_n);
    else if (x > 0)
        log_ratio = sample_log(eps) - sample_log(1 - sample_exp(-x));
    else /* both negative; |1 - N^-eps| = N^-eps (1 - N^eps) */
        log_ratio = sample_log(-eps) + x - sample_log(1 - sample_exp(x));
    return (log_ratio + mu * LN2) / s;
}

/* Version 1 keeps k of the order. */
static void mirostat_cut(struct sample *l, double mu)
{
    double s, log_k;

    if (l->n < 2)
        return;
    s = zipf_exponent(l);
    log_k = s > 0 ? mirostat_log_k(s, mu, l->n_vocab) : INFINITY; /* all equal: keep all */
    if (log_k >= sample_log(l->n))
        return;
    sample_keep(l, log_k > 0 ? (int32_t)(1 / sample_exp(-log_k)) : 1);
}

/* Version 2 keeps those whose surprise is at most mu, and the first. */
static void mirostat_2_cut(struct sample *l, double mu)
{
    double max = l->picks[0].logit, log_sum = sample_log(sample_weigh(l));
    int32_t n = 1;

    while (n < l->n && (log_sum - (l->picks[n].logit - max)) / LN2 <= mu)
        n++;
    sample_keep(l, n);
}

static void mirostat_apply(void *state, struct sample *l)
{
    struct mirostat *m = state;
    double sum, surprise;

    sample_sort(l);
    if (l->opt->mirostat == 1)
        mirostat_cut(l, m->mu);
    else
        mirostat_2_cut(l, m->mu);
    sum = sample_weigh(l);
    l->drawn = sample_draw(l, sum);
    surprise = (sample_log(sum) - (l->picks[l->drawn].logit - l->picks[0].logit)) / LN2;
    m->mu -= (double)l->opt->mirostat_lr * (surprise - (double)l->opt->mirostat_ent);
}

const struct sampler_row sample_mirostat = {
    .name = "mirostat",
    .draws = true,
    .check = mirostat_check,
    .active = mirostat_active,
    .describe = mirostat_describe,
    .open = mirostat_open,
    .close = mem_free,
    .apply = mirostat_apply,
};

/*
 * ---- adaptive-p ----
 * Draws tokens whose probability is near a target, which moves against the average probability of
 * the last ones: target + (target - average).
 * Source: the description by its authors in https://github.com/ggml-org/llama.cpp/pull/17927.
 */

struct adaptive {
    double sum, weight; /* decaying sums of the accepted tokens' probabilities, and of ones */
    double decay;
    double pending_p;   /* of the token drawn last, before it was transformed */
    int32_t pending_id; /* -1: none */
};

static enum status adaptive_p_check(const struct sampler_options *o, struct err *e)
{
    enum status st =
        sample_expect(o->adaptive_target >= -1 && o->adaptive_target <= 1, "--adaptive-target",
                      (double)o->adaptive_target, "a number from -1 to 1", e);

    if (st)
        return st;
    return sample_expect(o->adaptive_decay >= 0 && o->adaptive_decay <= 0.99f, "--adaptive-decay",
                         (double)o->adaptive_decay, "a number from 0 to 0.99", e);
}

static bool adaptive_p_active(const struct sampler_options *o)
{
    return o->adaptive_target >= 0;
}

static void adaptive_p_describe(const struct sampler_options *o, struct text *t)
{
    text_addf(t, "(target=%g, decay=%g, seed=%llu)", (double)o->adaptive_target,
              (double)o->adaptive_decay, (unsigned long long)o->seed);
}

/* As if the text so far had been at the target. */
static enum status adaptive_p_open(void **state, const struct sampler_setup *u, struct err *e)
{
    struct adaptive *a = mem_zalloc(sizeof *a);

    *state = a;
    if (!a)
        return err_nomem(e, "adaptive-p", sizeof *a);
    a->decay = (double)u->opt->adaptive_decay;
    a->weight = 1 / (1 - a->decay);
    a->sum = (double)u->opt->adaptive_target * a->weight;
    a->pending_id = -1;
    return ST_OK;
}

static void adaptive_p_accept(void *state, int32_t id)
{
    struct adaptive *a = state;

    if (id == a->pending_id) {
        a->sum = a->sum * a->decay + a->pending_p;
        a->weight = a->weight * a->decay + 1;
    }
    a->pending_id = -1;
}

static double clamp_share(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

/* Highest at the target; falls with the square of small distances and in proportion to large ones. */
static double adaptive_logit(double p, double target)
{
    const double width = 0.3, peak = 5, sharpness = 10;
    double distance = fabs(p - target) / width;

    return peak - sharpness * distance * distance / (1 + distance);
}

static void adaptive_p_apply(void *state, struct sample *l)
{
    struct adaptive *a = state;
    double target = (double)l->opt->adaptive_target, sum = sample_weigh(l);

    target = clamp_share(2 * target - a->sum / a->weight);
    for (int32_t i = 0; i < l->n; i++) {
        l->spare[i].logit = l->weights[i] / sum;
        l->picks[i].logit = adaptive_logit(l->spare[i].logit, target);
    }
    sample_changed(l, false);
    l->drawn = sample_draw(l, sample_weigh(l));
    a->pending_id = l->picks[l->drawn].id;
    a->pending_p = l->spare[l->drawn].logit;
    sample_sort(l);
    for (int32_t i = 0; i < l->n; i++)
        if (l->picks[i].id == a->pending_id)
            l->drawn = i;
}

const struct sampler_row sample_adaptive_p = {
    .name = "adaptive_p",
    .letter = 'a',
    .draws = true,
    .check = adaptive_p_check,
    .active = adaptive_p_active,
    .describe = adaptive_p_describe,
    .open = adaptive_p_open,
    .close = mem_free,
    .accept = adaptive_p_accept,
    .apply = adaptive_p_apply,
};
