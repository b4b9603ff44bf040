/*
 * Temperature: how much the probabilities are drawn together (above 1) or apart (below).
 */
#include <float.h>

#include "runtime/sample.h"

static enum status temperature_check(const struct sampler_options *o, struct err *e)
{
    return sample_expect(o->temp >= 0 && o->temp <= FLT_MAX, "--temp", (double)o->temp,
                         "a number of at least 0", e);
}

static bool temperature_active(const struct sampler_options *o)
{
    return o->temp != 1;
}

static void temperature_describe(const struct sampler_options *o, struct text *t)
{
    text_addf(t, "=%g", (double)o->temp);
}

/* At 0 the most likely is all that is left. */
static void set_temperature(struct sample *l, double temp)
{
    if (temp == 0) {
        l->picks[0] = l->picks[sample_largest(l)];
        l->n = 1;
        sample_changed(l, true);
        return;
    }
    for (int32_t i = 0; i < l->n; i++)
        l->picks[i].logit /= temp;
    sample_changed(l, l->sorted);
}

static void temperature_apply(void *state, struct sample *l)
{
    (void)state;
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
