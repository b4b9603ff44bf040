/*
 * Penalties for tokens among the last ones of the text: repeat (once per token), frequency (times
 * the number of occurrences), presence (once).
 * Sources: Keskar et al., "CTRL", arXiv:1909.05858 (repeat, which divides; negative logits are
 * multiplied, or they would gain); OpenAI's API reference (frequency and presence, subtracted).
 */
#include <float.h>
#include <math.h>

#include "gguf/base/mem.h"
#include "runtime/sample.h"

struct penalties {
    struct recent recent;
    uint32_t *count; /* [n_vocab] how often an id is among the recent ones */
};

static enum status penalties_check(const struct sampler_options *o, struct err *e)
{
    enum status st;

    st = sample_expect(o->repeat_penalty > 0 && o->repeat_penalty <= FLT_MAX, "--repeat-penalty",
                       (double)o->repeat_penalty, "a number above 0", e);
    if (!st)
        st = sample_expect(isfinite(o->presence_penalty), "--presence-penalty",
                           (double)o->presence_penalty, "a number", e);
    if (!st)
        st = sample_expect(isfinite(o->frequency_penalty), "--frequency-penalty",
                           (double)o->frequency_penalty, "a number", e);
    if (!st)
        st = sample_expect(o->repeat_last_n >= -1, "--repeat-last-n", (double)o->repeat_last_n,
                           "a whole number of at least -1", e);
    return st;
}

static bool penalties_active(const struct sampler_options *o)
{
    return o->repeat_last_n != 0 &&
           (o->repeat_penalty != 1 || o->presence_penalty != 0 || o->frequency_penalty != 0);
}

static void penalties_describe(const struct sampler_options *o, struct text *t)
{
    text_addf(t, "(last_n=%d, repeat=%g, frequency=%g, presence=%g)", (int)o->repeat_last_n,
              (double)o->repeat_penalty, (double)o->frequency_penalty, (double)o->presence_penalty);
}

static void penalties_close(void *state)
{
    struct penalties *p = state;

    if (!p)
        return;
    recent_release(&p->recent);
    mem_free(p->count);
    mem_free(p);
}

static enum status penalties_open(void **state, const struct sampler_setup *u, struct err *e)
{
    struct penalties *p = mem_zalloc(sizeof *p);

    *state = NULL;
    if (!p)
        return err_nomem(e, "penalties", sizeof *p);
    p->count = mem_array((size_t)u->n_vocab, sizeof *p->count);
    if (!p->count || !recent_init(&p->recent, u->opt->repeat_last_n, u->n_ctx)) {
        penalties_close(p);
        return err_nomem(e, "penalties", (size_t)u->n_vocab * sizeof *p->count);
    }
    *state = p;
    return ST_OK;
}

static void penalties_accept(void *state, int32_t id)
{
    struct penalties *p = state;
    int32_t gone;

    if (!p->recent.max)
        return;
    gone = recent_add(&p->recent, id);
    p->count[id]++;
    if (gone >= 0)
        p->count[gone]--;
}

static void penalties_apply(void *state, struct sample *l)
{
    const struct penalties *p = state;
    double repeat = (double)l->opt->repeat_penalty, presence = (double)l->opt->presence_penalty,
           frequency = (double)l->opt->frequency_penalty;

    for (int32_t i = 0; i < l->n; i++) {
        struct pick *x = &l->picks[i];
        uint32_t count = p->count[x->id];
        if (!count)
            continue;
        x->logit = x->logit > 0 ? x->logit / repeat : x->logit * repeat;
        x->logit -= count * frequency + presence;
    }
    sample_changed(l, false);
}

const struct sampler_row sample_penalties = {
    .name = "penalties",
    .letter = 'e',
    .check = penalties_check,
    .active = penalties_active,
    .describe = penalties_describe,
    .open = penalties_open,
    .close = penalties_close,
    .accept = penalties_accept,
    .apply = penalties_apply,
};
