/*
 * Temperature: how much the probabilities are drawn together (above 1) or apart (below). With
 * --dynatemp-range it depends on the entropy of the candidates: from temp - range, when one of them
 * is certain, to temp + range, when all are equally likely.
 * Source of the dynamic one: the description by its author, kalomaze, in
 * https://github.com/ggml-org/llama.cpp/pull/4972.
 */
#include <float.h>

#include "runtime/sample.h"

static enum status temperature_check(const struct sampler_options *o, struct err *e)
{
    const char *expected = "a number of at least 0";
    enum status st;

    st = sample_expect(o->temp >= 0 && o->temp <= FLT_MAX, "--temp", (double)o->temp, expected, e);
    if (!st)
        st = sample_expect(o->dynatemp_range >= 0 && o->dynatemp_range <= FLT_MAX,
                           "--dynatemp-range", (double)o->dynatemp_range, expected, e);
    if (!st)
        st = sample_expect(o->dynatemp_exp >= 0 && o->dynatemp_exp <= FLT_MAX, "--dynatemp-exp",
                           (double)o->dynatemp_exp, expected, e);
    return st;
}

static bool temperature_active(const struct sampler_options *o)
{
    return o->temp != 1 || o->dynatemp_range > 0;
}

static void temperature_describe(const struct sampler_options *o, struct text *t)
{
    if (o->dynatemp_range > 0)
        text_addf(t, "(temp=%g, range=%g, exp=%g)", (double)o->temp, (double)o->dynatemp_range,
                  (double)o->dynatemp_exp);
    else
        text_addf(t, "=%g", (double)o->temp);
}

/* At 0 the most likely is all that is left, and at values so near to it that logits would overflow. */
static void set_temperature(struct sample *l, double temp)
{
    if (temp < (double)FLT_MIN) {
        l->picks[0] = l->picks[sample_largest(l)];
        l->n = 1;
        sample_changed(l, true);
        return;
    }
    for (int32_t i = 0; i < l->n; i++)
        l->picks[i].logit /= temp;
    sample_changed(l, l->sorted);
}

/* The temperature for the entropy of the candidates, of which there are at least 2. */
static double dynamic_temperature(struct sample *l)
{
    double temp = (double)l->opt->temp, range = (double)l->opt->dynatemp_range;
    double low = temp > range ? temp - range : 0, high = temp + range;
    double share = sample_entropy(l) / sample_log(l->n);

    share = share < 1 ? share : 1; /* rounding */
    return low + (high - low) * sample_pow(share, (double)l->opt->dynatemp_exp);
}

static void temperature_apply(void *state, struct sample *l)
{
    (void)state;
    if (l->opt->dynatemp_range > 0 && l->n > 1)
        set_temperature(l, dynamic_temperature(l));
    else if (l->opt->dynatemp_range == 0)
        set_temperature(l, (double)l->opt->temp);
}

const struct sampler_row sample_temperature = {
    .name = "temperature",
    .alias = "temp",
    .letter = 't',
    .keeps_first = true,
    .check = temperature_check,
    .active = temperature_active,
    .describe = temperature_describe,
    .apply = temperature_apply,
};
