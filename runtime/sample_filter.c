/*
 * Samplers that shorten the list of candidates.
 */
#include <math.h>

#include "runtime/sample.h"

/* ---- top-k: the k most likely ---- */

static bool top_k_active(const struct sampler_options *o)
{
    return o->top_k > 0;
}

static void top_k_describe(const struct sampler_options *o, struct text *t)
{
    text_addf(t, "=%d", (int)o->top_k);
}

static void top_k_apply(void *state, struct sample *l)
{
    (void)state;
    sample_sort_top(l, l->opt->top_k);
}

const struct sampler_row sample_top_k = {
    .name = "top_k",
    .letter = 'k',
    .keeps_first = true,
    .active = top_k_active,
    .describe = top_k_describe,
    .apply = top_k_apply,
};

/*
 * ---- top-n-sigma: logits at most n standard deviations below the largest ----
 * Source: Tang et al., "Top-n-sigma: Not All Logits Are You Need", arXiv:2411.07641.
 */

static enum status top_n_sigma_check(const struct sampler_options *o, struct err *e)
{
    return sample_expect(isfinite(o->top_n_sigma), "--top-nsigma", (double)o->top_n_sigma,
                         "a number", e);
}

static bool top_n_sigma_active(const struct sampler_options *o)
{
    return o->top_n_sigma > 0;
}

static void top_n_sigma_describe(const struct sampler_options *o, struct text *t)
{
    text_addf(t, "=%g", (double)o->top_n_sigma);
}

static double standard_deviation(const struct sample *l)
{
    double mean = 0, sum = 0;

    for (int32_t i = 0; i < l->n; i++)
        mean += l->picks[i].logit;
    mean /= l->n;
    for (int32_t i = 0; i < l->n; i++)
        sum += (l->picks[i].logit - mean) * (l->picks[i].logit - mean);
    return sqrt(sum / l->n);
}

static void top_n_sigma_apply(void *state, struct sample *l)
{
    double least =
        l->picks[sample_largest(l)].logit - (double)l->opt->top_n_sigma * standard_deviation(l);
    int32_t n = 0;

    (void)state;
    for (int32_t i = 0; i < l->n; i++)
        if (l->picks[i].logit >= least)
            l->picks[n++] = l->picks[i];
    l->n = n;
    sample_changed(l, l->sorted);
}

const struct sampler_row sample_top_n_sigma = {
    .name = "top_n_sigma",
    .letter = 's',
    .keeps_first = true,
    .check = top_n_sigma_check,
    .active = top_n_sigma_active,
    .describe = top_n_sigma_describe,
    .apply = top_n_sigma_apply,
};

/*
 * ---- typical: those whose surprise is nearest to the entropy, up to a sum above p ----
 * Source: Meister et al., "Locally Typical Sampling", arXiv:2202.00666.
 */

static enum status typ_p_check(const struct sampler_options *o, struct err *e)
{
    return sample_expect(o->typ_p >= 0 && o->typ_p <= 1, "--typical", (double)o->typ_p,
                         "a number from 0 to 1", e);
}

static bool typ_p_active(const struct sampler_options *o)
{
    return o->typ_p < 1;
}

static void typ_p_describe(const struct sampler_options *o, struct text *t)
{
    text_addf(t, "=%g", (double)o->typ_p);
}

/* Put (|surprise - entropy|, -index) of each candidate into spare. */
static void atypicalities(struct sample *l, double sum)
{
    double entropy = sample_entropy(l), max = l->picks[0].logit, log_sum = sample_log(sum);

    for (int32_t i = 0; i < l->n; i++) {
        double surprise = log_sum - (l->picks[i].logit - max);
        l->spare[i] = (struct pick){fabs(surprise - entropy), -i};
    }
}

static void typ_p_apply(void *state, struct sample *l)
{
    double sum, seen = 0;
    int32_t n_heap = l->n, n = 0;

    (void)state;
    sample_sort(l);
    sum = sample_weigh(l);
    atypicalities(l, sum);
    sample_heap(l->spare, n_heap);
    while (n_heap && seen <= (double)l->opt->typ_p * sum) {
        int32_t i = -sample_heap_pop(l->spare, &n_heap).id;
        seen += l->weights[i];
        l->weights[i] = -1; /* marked */
    }
    for (int32_t i = 0; i < l->n; i++)
        if (l->weights[i] < 0)
            l->picks[n++] = l->picks[i];
    l->n = n;
    sample_changed(l, true);
}

const struct sampler_row sample_typ_p = {
    .name = "typ_p",
    .alias = "typ",
    .letter = 'y',
    .check = typ_p_check,
    .active = typ_p_active,
    .describe = typ_p_describe,
    .apply = typ_p_apply,
};

/*
 * ---- top-p: the most likely, up to a sum of p ----
 * Source: Holtzman et al., "The Curious Case of Neural Text Degeneration", arXiv:1904.09751.
 */

static enum status top_p_check(const struct sampler_options *o, struct err *e)
{
    return sample_expect(o->top_p >= 0 && o->top_p <= 1, "--top-p", (double)o->top_p,
                         "a number from 0 to 1", e);
}

static bool top_p_active(const struct sampler_options *o)
{
    return o->top_p < 1;
}

static void top_p_describe(const struct sampler_options *o, struct text *t)
{
    text_addf(t, "=%g", (double)o->top_p);
}

static void top_p_apply(void *state, struct sample *l)
{
    double sum, seen = 0;
    int32_t n = 0;

    (void)state;
    sample_sort(l);
    sum = sample_weigh(l);
    while (n < l->n) {
        seen += l->weights[n++];
        if (seen >= (double)l->opt->top_p * sum)
            break;
    }
    sample_keep(l, n);
}

const struct sampler_row sample_top_p = {
    .name = "top_p",
    .alias = "nucleus",
    .letter = 'p',
    .keeps_first = true,
    .check = top_p_check,
    .active = top_p_active,
    .describe = top_p_describe,
    .apply = top_p_apply,
};

/*
 * ---- min-p: what is at least p times as likely as the first ----
 * Source: Nguyen et al., "Turning Up the Heat: Min-p Sampling", arXiv:2407.01082.
 */

static enum status min_p_check(const struct sampler_options *o, struct err *e)
{
    return sample_expect(o->min_p >= 0 && o->min_p <= 1, "--min-p", (double)o->min_p,
                         "a number from 0 to 1", e);
}

static bool min_p_active(const struct sampler_options *o)
{
    return o->min_p > 0;
}

static void min_p_describe(const struct sampler_options *o, struct text *t)
{
    text_addf(t, "=%g", (double)o->min_p);
}

static void min_p_apply(void *state, struct sample *l)
{
    int32_t n = 0;

    (void)state;
    sample_weigh(l);
    for (int32_t i = 0; i < l->n; i++) { /* the first has weight 1 */
        if (l->weights[i] < (double)l->opt->min_p)
            continue;
        l->weights[n] = l->weights[i];
        l->picks[n++] = l->picks[i];
    }
    l->n = n;
}

const struct sampler_row sample_min_p = {
    .name = "min_p",
    .letter = 'm',
    .keeps_first = true,
    .check = min_p_check,
    .active = min_p_active,
    .describe = min_p_describe,
    .apply = min_p_apply,
};

/*
 * ---- xtc: with some probability, all of the likely tokens but the least likely one are removed ----
 * Source: the description of "Exclude Top Choices" by its author, p-e-w, in
 * https://github.com/oobabooga/text-generation-webui/pull/6335.
 */

static enum status xtc_check(const struct sampler_options *o, struct err *e)
{
    enum status st =
        sample_expect(o->xtc_probability >= 0 && o->xtc_probability <= 1, "--xtc-probability",
                      (double)o->xtc_probability, "a number from 0 to 1", e);

    if (st)
        return st;
    return sample_expect(o->xtc_threshold >= 0 && o->xtc_threshold <= 1, "--xtc-threshold",
                         (double)o->xtc_threshold, "a number from 0 to 1", e);
}

/* Two tokens can not both have more than half. */
static bool xtc_active(const struct sampler_options *o)
{
    return o->xtc_probability > 0 && o->xtc_threshold <= 0.5f;
}

static void xtc_describe(const struct sampler_options *o, struct text *t)
{
    text_addf(t, "(probability=%g, threshold=%g)", (double)o->xtc_probability,
              (double)o->xtc_threshold);
}

static void xtc_apply(void *state, struct sample *l)
{
    double sum;
    int32_t n_likely = 0, first;

    (void)state;
    if (l->n < 2 || rng_uniform(l->rng) >= (double)l->opt->xtc_probability)
        return;
    sample_sort(l);
    sum = sample_weigh(l);
    while (n_likely < l->n && l->weights[n_likely] >= (double)l->opt->xtc_threshold * sum)
        n_likely++;
    if (n_likely < 2)
        return;
    first = n_likely - 1;
    l->n -= first;
    for (int32_t i = 0; i < l->n; i++)
        l->picks[i] = l->picks[i + first];
    sample_changed(l, true);
}

const struct sampler_row sample_xtc = {
    .name = "xtc",
    .letter = 'x',
    .check = xtc_check,
    .active = xtc_active,
    .describe = xtc_describe,
    .apply = xtc_apply,
};
