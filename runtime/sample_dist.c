/*
 * The end of the chain: a draw from what is left.
 */
#include "runtime/sample.h"

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
