#include "cli/answers.h"

#include "cli/sampling.h"
#include "gguf/base/log.h"
#include "gguf/base/mem.h"
#include "runtime/batch.h"

struct answer {
    struct sampler *sampler;
    struct detok detok;
    struct text text;
    int32_t next; /* the token that was chosen last */
    uint64_t n;
    bool ended, at_limit;
};

struct answers {
    struct setup *s;
    struct answer a[SEQ_MAX];
    int32_t n;
    /* of the tokens that are evaluated together */
    int32_t ids[SEQ_MAX], seq[SEQ_MAX];
    bool out[SEQ_MAX];
};

enum status answers_check(const struct options *o, struct err *e)
{
    if (o->n_seqs <= 1)
        return ST_OK;
    if (o->context_shift)
        return err_set(e, ST_USAGE, "-np %d and --context-shift exclude each other",
                       (int)o->n_seqs);
    if (o->backend_sampling)
        return err_set(e, ST_USAGE, "-np %d and -bs exclude each other", (int)o->n_seqs);
    return ST_OK;
}

static enum status open(struct answers *all, const struct tokens *prompt, struct err *e)
{
    uint64_t seed = sampling_seed(all->s->c->opt);
    enum status st = ST_OK;

    for (int32_t i = 0; i < all->n && !st; i++) {
        struct answer *a = &all->a[i];

        st = sampling_open(&a->sampler, all->s, prompt, seed + (uint64_t)i, e);
        detok_init(&a->detok, all->s->vocab, false);
        detok_resume(&a->detok);
    }
    return st;
}

static void release(struct answers *all)
{
    for (int32_t i = 0; i < all->n; i++) {
        sampler_free(all->a[i].sampler);
        text_release(&all->a[i].text);
    }
}

static enum status choose(void *ctx, int32_t seq, uint32_t pos, const float *logits, struct err *e)
{
    struct answer *a = &((struct answers *)ctx)->a[seq];

    (void)pos;
    return sampler_sample(a->sampler, logits, &a->next, e);
}

/* Evaluate the prompt for the first, let the others have it too, and choose the first token of each. */
static enum status begin(struct answers *all, const struct tokens *prompt, struct err *e)
{
    struct session *s = all->s->session;
    uint64_t start = now_us();
    enum status st;

    out_progress(all->s->c->out, "prompt", 0);
    st = session_eval(s, prompt->id, (uint32_t)prompt->n, WANT_LAST, NULL, NULL, e);
    out_progress_end(all->s->c->out);
    for (int32_t i = 0; i < all->n && !st; i++) {
        st = session_copy(s, 0, i, e);
        if (!st)
            st = choose(all, i, 0, session_logits(s), e);
    }
    all->s->prompt_us = all->s->first_token_us = now_us() - start;
    all->s->n_prompt = prompt->n;
    return st;
}

/* What an answer had in the cache is room for the others, where they share it. */
static void end(struct answers *all, int32_t i)
{
    all->a[i].ended = true;
    session_truncate_of(all->s->session, i, 0);
}

/*
 * Take the token that answer i has chosen. n: so many others go on beside it, each with a place in the cache.
 * Sets *goes_on if it is to be evaluated.
 */
static enum status take(struct answers *all, int32_t i, uint32_t n, bool *goes_on, struct err *e)
{
    const struct options *o = all->s->c->opt;
    struct answer *a = &all->a[i];
    enum status st;

    *goes_on = false;
    if (o->n_predict == 0 || vocab_is_eog(all->s->vocab, a->next)) {
        end(all, i);
        return ST_OK;
    }
    sampler_accept(a->sampler, a->next);
    st = detok_add(&a->detok, a->next, &a->text, e);
    all->s->n_generated++;
    a->n++;
    if (st)
        return st;
    a->at_limit = session_room(all->s->session, i) <= (o->kv_unified ? n : 0);
    *goes_on = a->n != (uint64_t)o->n_predict && !a->at_limit;
    if (a->n == (uint64_t)o->n_predict)
        a->at_limit = false;
    if (!*goes_on)
        end(all, i);
    return ST_OK;
}

/* Token by token until all have ended. */
static enum status generate(struct answers *all, struct err *e)
{
    struct session *s = all->s->session;
    enum status st = ST_OK;

    for (;;) {
        struct seq_tokens t = {.ids = all->ids, .seq = all->seq, .out = all->out};

        for (int32_t i = 0; i < all->n && !st; i++) {
            bool goes_on = false;

            if (!all->a[i].ended)
                st = take(all, i, t.n, &goes_on, e);
            if (!goes_on)
                continue;
            all->ids[t.n] = all->a[i].next;
            all->seq[t.n] = i;
            all->out[t.n++] = true;
        }
        if (st || !t.n)
            return st;
        st = session_eval_batch(s, &t, choose, all, e);
        if (st)
            return st;
    }
}

/* As head and tail show several files. Half a character at the end is dropped. */
static enum status print(const struct answers *all, struct err *e)
{
    struct text t = {0};

    for (int32_t i = 0; i < all->n; i++) {
        const struct text *a = &all->a[i].text;
        size_t n = a->n ? utf8_complete(a->p, a->n) : 0;

        text_addf(&t, "%s==> %d <==\n", i ? "\n" : "", (int)i + 1);
        text_bytes(&t, a->p, n);
        if (n && a->p[n - 1] != '\n')
            text_byte(&t, '\n');
    }
    return out_text(all->s->c->out, &t, e);
}

/* One that stopped at the limit is how all end. */
static enum status outcome(const struct answers *all, struct err *e)
{
    for (int32_t i = 0; i < all->n; i++) {
        if (all->a[i].at_limit)
            return setup_at_limit(all->s, e);
    }
    return ST_OK;
}

enum status answers_run(struct setup *s, const struct tokens *prompt, struct err *e)
{
    struct answers *all = mem_zalloc(sizeof *all);
    uint64_t start;
    enum status st;

    if (!all)
        return err_nomem(e, "the answers", sizeof *all);
    all->s = s;
    all->n = s->c->opt->n_seqs;
    st = open(all, prompt, e);
    if (!st)
        st = begin(all, prompt, e);
    start = now_us();
    if (!st)
        st = generate(all, e);
    s->decode_us = now_us() - start;
    if (!st || st == ST_CANCELLED) {
        enum status st_print = print(all, st ? NULL : e);

        st = st ? st : st_print;
    }
    if (!st)
        st = outcome(all, e);
    release(all);
    mem_free(all);
    return st;
}
