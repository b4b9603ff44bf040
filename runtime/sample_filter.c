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
