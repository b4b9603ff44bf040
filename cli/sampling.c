#include "cli/sampling.h"

#include <time.h>
#include <unistd.h>

#include "gguf/base/log.h"
#include "runtime/dry_breakers.h"

static uint64_t random_seed(void)
{
    uint64_t seed;
    struct timespec t;

    if (getentropy(&seed, sizeof seed) == 0)
        return seed;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000007u ^ (uint64_t)t.tv_nsec ^ (uint64_t)getpid() << 40;
}

/* --logit-bias, --ignore-eos, and what no text has: padding of the output layer. */
static enum status add_biases(struct sampler *sampler, const struct setup *s, struct err *e)
{
    const struct options *o = s->c->opt;
    int32_t n = (int32_t)s->model->hp.n_vocab;
    enum status st = ST_OK;

    for (int32_t id = 0; !st && id < n; id++)
        if (id >= vocab_n_tokens(s->vocab) || (o->ignore_eos && vocab_is_eog(s->vocab, id)))
            st = sampler_ban(sampler, id, e);
    for (int i = 0; !st && i < o->n_biases; i++) {
        st = sampler_bias(sampler, o->biases[i].id, o->biases[i].value, e);
        if (st)
            err_context(e, "--logit-bias");
    }
    return st;
}

/* --dry-sequence-breaker, or llama.cpp's own. */
static enum status add_breakers(struct sampler *sampler, const struct setup *s, struct err *e)
{
    const struct options *o = s->c->opt;
    char bytes[] = "\n:\"*";
    struct text usual[4];

    for (int i = 0; i < 4; i++)
        usual[i] = (struct text){.p = bytes + i, .n = 1};
    if (o->breakers_given)
        return dry_breakers_add(sampler, s->vocab, o->breakers, o->n_breakers, e);
    return dry_breakers_add(sampler, s->vocab, usual, 4, e);
}

static void log_chain(const struct sampler *sampler)
{
    struct text t = {0};

    sampler_describe(sampler, &t);
    log_info("samplers: %s", t.p ? t.p : "");
    text_release(&t);
}

uint64_t sampling_seed(const struct options *o)
{
    return o->seed_given ? o->sampling.seed : random_seed();
}

enum status sampling_open(struct sampler **out, const struct setup *s, const struct tokens *prompt,
                          uint64_t seed, struct err *e)
{
    struct sampler_options so = s->c->opt->sampling;
    struct sampler *sampler;
    enum status st;

    *out = NULL;
    so.seed = seed;
    log_info("seed %llu", (unsigned long long)so.seed);
    st = sampler_new(&sampler, &so, (int32_t)s->model->hp.n_vocab, session_n_ctx(s->session), e);
    if (st)
        return st;
    st = add_biases(sampler, s, e);
    if (!st)
        st = add_breakers(sampler, s, e);
    if (st) {
        sampler_free(sampler);
        return st;
    }
    for (size_t i = 0; i < prompt->n; i++)
        sampler_accept(sampler, prompt->id[i]);
    log_chain(sampler);
    *out = sampler;
    return ST_OK;
}

enum status sampling_to_graph(bool *in_graph, const struct sampler *sampler, const struct setup *s,
                              struct err *e)
{
    struct graph_sampling gs;
    const char *why;

    *in_graph = s->c->opt->backend_sampling && sampler_in_graph(sampler, &gs, &why);
    if (*in_graph)
        return session_set_sampling(s->session, &gs, e);
    if (s->c->opt->backend_sampling)
        log_note("-bs has no effect: %s comes first in the chain, and the graph cannot do that",
                 why);
    return ST_OK;
}
