/*
 * ggrun run: continue a text, or answer a request.
 */
#include <string.h>

#include "cli/answers.h"
#include "cli/chat.h"
#include "cli/cli.h"
#include "cli/prompt.h"
#include "cli/sampling.h"
#include "cli/setup.h"
#include "gguf/base/log.h"
#include "runtime/sampler.h"

struct run {
    struct cli *c;
    struct setup s;
    struct prompt prompt;
    struct tokens ids; /* of the prompt; with --context-shift all that the context holds */
    size_t n_keep;     /* of these never dropped */
    struct sampler *sampler;
    bool in_graph; /* the graph does the first steps of the chain */
    struct detok detok;
    struct text pending; /* bytes of the answer that may end inside a character */
    bool nothing_to_answer;
};

static void run_release(struct run *r)
{
    sampler_free(r->sampler);
    tokens_release(&r->ids);
    text_release(&r->prompt.text);
    text_release(&r->pending);
    setup_release(&r->s);
}

/* ---- from the text to ids ---- */

static enum status check_flags(const struct options *o, struct err *e)
{
    const char *chat_flag = chat_option(o);

    if (o->raw && chat_flag)
        return err_set(e, ST_USAGE, "--raw and %s exclude each other", chat_flag);
    if (o->n_keep && !o->context_shift)
        return err_set(e, ST_USAGE, "--keep is given without --context-shift");
    return ST_OK;
}

/* A request (put into the chat template) or a text to continue? */
static bool is_chat(const struct run *r)
{
    const struct options *o = r->c->opt;

    if (chat_option(o))
        return true;
    return !o->raw && !o->n_models && r->prompt.plain;
}

static enum status encode_request(struct run *r, struct err *e)
{
    struct text *request = &r->prompt.text;

    if (!r->prompt.from_word && request->n && request->p[request->n - 1] == '\n')
        request->n--; /* the newline that ends a line of input is not part of the request */
    if (request->n)
        return chat_encode(&r->s, request, &r->ids, e);
    if (r->prompt.from_word)
        return err_set(e, ST_USAGE, "the request is empty");
    r->nothing_to_answer = true; /* the input has ended before a request */
    return ST_OK;
}

static enum status encode_prompt(struct run *r, struct err *e)
{
    const struct options *o = r->c->opt;
    const struct vocab *v = r->s.vocab;
    unsigned flags = (o->no_bos ? 0 : ENC_BOS) | (o->no_special ? 0 : ENC_SPECIAL);
    enum status st;

    if (!vocab_has_text(v))
        return err_set(e, ST_UNSUPPORTED,
                       "the file has no vocabulary to read a text with; 'ggrun logits --ids' works "
                       "without");
    if (is_chat(r))
        return encode_request(r, e);
    st = text_encode(r->c, v, &r->prompt.text, flags, &r->ids, e);
    if (st || r->ids.n)
        return st;
    if (vocab_bos(v) == VOCAB_NONE)
        return err_set(e, ST_USAGE,
                       "the text is empty, and the model has no token to begin a text with");
    tokens_add(&r->ids, vocab_bos(v));
    return r->ids.failed ? err_nomem(e, "the prompt", sizeof *r->ids.id) : ST_OK;
}

/* What a shift keeps: as asked for, of the prompt, and the token that begins a text. */
static size_t kept(const struct run *r)
{
    int32_t asked = r->c->opt->n_keep;
    size_t n = asked < 0 || (size_t)asked > r->ids.n ? r->ids.n : (size_t)asked;

    return n || r->ids.id[0] != vocab_bos(r->s.vocab) ? n : 1;
}

/*
 * --truncate: what is left of a prompt, and room for an answer: -n tokens but at most half of the context, a
 * quarter without -n. The token that begins a text stays.
 */
static void cut_prompt(struct run *r, size_t n_ctx)
{
    static const char *const where[] = {"", "head", "middle"};
    const struct options *o = r->c->opt;
    size_t asked = o->n_predict < 0 ? n_ctx / 4 : (size_t)o->n_predict, at;
    size_t n = n_ctx - (asked < n_ctx / 2 ? asked : n_ctx / 2), n_drop = r->ids.n - n;

    at = r->ids.id[0] == vocab_bos(r->s.vocab) && n > 1 ? 1 : 0;
    if (o->truncate == TRUNCATE_MIDDLE)
        at = n / 2;
    log_note("the prompt of %zu tokens does not fit: %zu are dropped from its %s, %zu stay",
             r->ids.n, n_drop, where[o->truncate], n);
    memmove(r->ids.id + at, r->ids.id + at + n_drop, (n - at) * sizeof *r->ids.id);
    r->ids.n = n;
    r->s.n_truncated = n_drop;
}

static enum status check_length(struct run *r, struct err *e)
{
    uint32_t n_ctx = session_n_ctx(r->s.session);

    if (r->ids.n > n_ctx && r->c->opt->truncate)
        cut_prompt(r, n_ctx);

    if (r->ids.n > n_ctx)
        return err_set(e, ST_USAGE,
                       "the prompt has %zu tokens, the context holds %u; give a shorter text, -c "
                       "or --truncate",
                       r->ids.n, n_ctx);
    if (!r->c->opt->context_shift)
        return ST_OK;
    r->n_keep = kept(r);
    if (r->n_keep >= n_ctx)
        return err_set(e, ST_USAGE,
                       "--keep keeps %zu tokens, all that the context holds; give less, or more -c",
                       r->n_keep);
    return tokens_reserve(&r->ids, n_ctx) ? ST_OK : err_nomem(e, "the context's tokens", n_ctx);
}

/* ---- generation ---- */

/* Print what of the answer is complete, in whole characters. */
static enum status emit(struct run *r, int32_t id, struct err *e)
{
    struct text *t = &r->pending;
    enum status st = detok_add(&r->detok, id, t, e);
    size_t n;

    if (st || !t->n)
        return st;
    n = utf8_complete(t->p, t->n);
    st = out_write(r->c->out, t->p, n, e);
    memmove(t->p, t->p + n, t->n - n + 1);
    t->n -= n;
    return st;
}

/*
 * Drop the older half of what is not kept and evaluate the rest anew: slower than moving the cache's
 * positions would be, but what follows is what the shorter text would give, to the bit, and any model can.
 */
static enum status shift(struct run *r, struct err *e)
{
    struct session *s = r->s.session;
    size_t keep = r->n_keep, n_drop = (r->ids.n - keep + 1) / 2;
    uint32_t n_past;

    memmove(r->ids.id + keep, r->ids.id + keep + n_drop,
            (r->ids.n - keep - n_drop) * sizeof *r->ids.id);
    r->ids.n -= n_drop;
    r->s.n_shifts++;
    log_info("the context is full: %zu tokens after the first %zu are dropped", n_drop, keep);
    session_truncate(s, session_can_truncate(s, (uint32_t)keep) ? (uint32_t)keep : 0);
    n_past = session_n_past(s);
    if (r->ids.n == n_past)
        return ST_OK;
    return session_eval(s, r->ids.id + n_past, (uint32_t)r->ids.n - n_past, WANT_NONE, NULL, NULL,
                        e);
}

/* Take the token that was chosen into the context. */
static enum status proceed(struct run *r, int32_t id, struct err *e)
{
    struct session *s = r->s.session;
    bool shifts = r->c->opt->context_shift;
    enum status st = ST_OK;

    if (session_n_past(s) == session_n_ctx(s))
        st = shifts ? shift(r, e) : setup_at_limit(&r->s, e);
    if (st)
        return st;
    if (shifts)
        tokens_add(&r->ids, id); /* has its room */
    return session_eval(s, &id, 1, WANT_LAST, NULL, NULL, e);
}

/* The next token, from its logits or from what the graph has chosen. */
static enum status sample(struct run *r, int32_t *id, struct err *e)
{
    const int32_t *ids;
    const float *logits;
    int32_t n;

    if (!r->in_graph)
        return sampler_sample(r->sampler, session_logits(r->s.session), id, e);
    n = session_sampled(r->s.session, &ids, &logits);
    return sampler_sample_of(r->sampler, ids, logits, n, id, e);
}

/* Sample, print and evaluate until the text, -n or the context ends. */
static enum status generate(struct run *r, struct err *e)
{
    int32_t max = r->c->opt->n_predict;
    uint64_t start = now_us();
    enum status st = ST_OK;

    while (!st && (max < 0 || r->s.n_generated < (uint64_t)max)) {
        int32_t id;
        st = sample(r, &id, e);
        if (st || vocab_is_eog(r->s.vocab, id))
            break;
        sampler_accept(r->sampler, id);
        st = emit(r, id, e);
        if (!r->s.n_generated++)
            r->s.first_token_us = r->s.prompt_us + now_us() - start;
        if (st || r->s.n_generated == (uint64_t)max)
            break;
        st = proceed(r, id, e);
    }
    r->s.decode_us = now_us() - start;
    return st;
}

/* Half a character at the end is dropped: UTF-8 is never printed in halves. */
static void finish_answer(struct run *r)
{
    if (r->pending.n)
        log_info("the answer ends inside a character: %zu bytes are not shown", r->pending.n);
    if (r->c->out->answer_open)
        out_write(r->c->out, "\n", 1, NULL);
}

static enum status open_sampler(struct run *r, struct err *e)
{
    enum status st = sampling_open(&r->sampler, &r->s, &r->ids, sampling_seed(r->c->opt), e);

    return st ? st : sampling_to_graph(&r->in_graph, r->sampler, &r->s, e);
}

static enum status load(struct run *r, struct err *e)
{
    struct session_options so;
    uint64_t start = now_us();
    enum status st;

    setup_session_options(&r->s, &so);
    st = setup_all(&r->s, &so, e);
    if (!st)
        st = encode_prompt(r, e);
    if (st || r->nothing_to_answer)
        return st;
    st = setup_session(&r->s, &so, e);
    if (!st)
        st = check_length(r, e);
    if (!st && r->c->opt->n_seqs <= 1)
        st = open_sampler(r, e);
    r->s.load_us = now_us() - start;
    return st;
}

static enum status answer(struct run *r, struct err *e)
{
    uint64_t start = now_us();
    enum status st;

    out_progress(r->c->out, "prompt", 0);
    st = session_eval(r->s.session, r->ids.id, (uint32_t)r->ids.n, WANT_LAST, NULL, NULL, e);
    out_progress_end(r->c->out);
    if (st)
        return st;
    r->s.prompt_us = now_us() - start;
    r->s.n_prompt = r->ids.n;
    detok_init(&r->detok, r->s.vocab, false);
    detok_resume(&r->detok);
    text_reserve(&r->pending, 4096); /* a token's bytes, so that no step allocates */
    st = generate(r, e);
    finish_answer(r);
    return st;
}

enum status cmd_run(struct cli *c, struct err *e)
{
    struct run r = {.c = c};
    enum status st;

    setup_init(&r.s, c);
    st = check_flags(c->opt, e);
    if (!st)
        st = answers_check(c->opt, e);
    if (!st)
        st = sampler_check(&c->opt->sampling, e);
    if (!st)
        st = prompt_read(&r.prompt, c, e);
    if (!st)
        st = load(&r, e);
    if (!st && !r.nothing_to_answer) {
        st = c->opt->n_seqs > 1 ? answers_run(&r.s, &r.ids, e) : answer(&r, e);
        st = setup_finish(&r.s, st, e);
        setup_print_stats(&r.s);
    }
    run_release(&r);
    return st;
}
