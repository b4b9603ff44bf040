/*
 * ggrun logits: what the model computes for each token of a text, as raw float32, as JSON or as a
 * table of the most likely continuations.
 */
#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/prompt.h"
#include "cli/setup.h"
#include "gguf/base/mem.h"

struct logits {
    struct cli *c;
    struct setup s;
    struct tokens ids;
    float *embd; /* [n_embd, n_tok] in place of ids, or NULL */
    uint32_t n_tok;
    struct out_file file;
    int32_t *top; /* [n_top] ids, most likely first */
    int32_t n_top, n_vocab;
    struct text
        text; /* for stdout; written when all is computed, so that nothing is half-written */
};

static enum status encode_text(struct logits *l, struct err *e)
{
    const struct options *o = l->c->opt;
    unsigned flags = (o->no_bos ? 0 : ENC_BOS) | (o->no_special ? 0 : ENC_SPECIAL);
    struct prompt p;
    enum status st = prompt_read(&p, l->c, e);

    if (!st)
        st = text_encode(l->c, l->s.vocab, &p.text, flags, &l->ids, e);
    text_release(&p.text);
    return st;
}

static float from_le32(const unsigned char *p)
{
    uint32_t u = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

/* Rows of n_embd float32. */
static enum status take_embd(struct logits *l, const struct text *t, struct err *e)
{
    size_t n_embd = l->s.model->hp.n_embd, n = t->n / sizeof *l->embd, n_row;

    if (!mem_mul(n_embd, sizeof *l->embd, &n_row) || t->n % n_row || !t->n ||
        t->n / n_row > UINT32_MAX)
        return err_set(e, ST_USAGE, "%zu bytes are not one or more embeddings of %zu float32", t->n,
                       n_embd);
    l->n_tok = (uint32_t)(t->n / n_row);
    l->embd = mem_array(n, sizeof *l->embd);
    if (!l->embd)
        return err_nomem(e, "the embeddings", t->n);
    for (size_t i = 0; i < n; i++) {
        l->embd[i] = from_le32((const unsigned char *)t->p + i * sizeof *l->embd);
        if (!isfinite(l->embd[i]))
            return err_set(e, ST_USAGE, "element %zu of token %zu is %g", i % n_embd, i / n_embd,
                           (double)l->embd[i]);
    }
    return ST_OK;
}

static enum status get_embd(struct logits *l, struct err *e)
{
    const struct source file = {.kind = SOURCE_FILE, .arg = l->c->opt->embd};
    struct text t = {0};
    enum status st = source_read(&file, l->c->cancel, &t, e);

    if (!st) {
        st = take_embd(l, &t, e);
        if (st)
            err_context(e, "--embd");
    }
    text_release(&t);
    return st;
}

static enum status get_ids(struct logits *l, struct err *e)
{
    const struct options *o = l->c->opt;
    enum status st;

    if (o->embd && (o->ids || o->n_sources))
        return err_set(e, ST_USAGE, "--embd stands for %s, expected one of them",
                       o->ids ? "--ids" : "a text");
    if (o->embd)
        return get_embd(l, e);
    if (o->ids && o->n_sources)
        return err_set(e, ST_USAGE, "ids come from --ids and from a text, expected one of them");
    st = o->ids ? ids_parse(&l->ids, o->ids, strlen(o->ids), e) : encode_text(l, e);
    if (!st && !l->ids.n)
        st = err_set(e, ST_USAGE, "there are no tokens to evaluate");
    l->n_tok = (uint32_t)l->ids.n;
    return st;
}

/* ---- rows ---- */

/* The n_top most likely ids, lowest id first on a tie, by insertion: n_top is small. */
static void find_top(struct logits *l, const float *x)
{
    int32_t n = 0;

    for (int32_t id = 0; id < l->n_vocab; id++) {
        int32_t i;
        if (n == l->n_top && !(x[id] > x[l->top[n - 1]]))
            continue;
        i = n < l->n_top ? n++ : n - 1;
        for (; i > 0 && x[id] > x[l->top[i - 1]]; i--)
            l->top[i] = l->top[i - 1];
        l->top[i] = id;
    }
}

/* log of the sum of e^x, computed around the largest. */
static double log_sum(const float *x, int32_t n, float max)
{
    double sum = 0;

    for (int32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - (double)max);
    return (double)max + log(sum);
}

static void add_json(struct logits *l, uint32_t pos, const float *x)
{
    double norm = log_sum(x, l->n_vocab, x[l->top[0]]);
    struct text *t = &l->text;

    text_addf(t, "%s{\"pos\":%u,", t->n ? ",\n" : "[\n", pos);
    if (!l->embd)
        text_addf(t, "\"id\":%d,", (int)l->ids.id[pos]);
    text_str(t, "\"top_ids\":[");
    for (int32_t i = 0; i < l->n_top; i++)
        text_addf(t, "%s%d", i ? "," : "", (int)l->top[i]);
    text_str(t, "],\"top_logprobs\":[");
    for (int32_t i = 0; i < l->n_top; i++)
        text_addf(t, "%s%.9g", i ? "," : "", (double)x[l->top[i]] - norm);
    text_str(t, "]}");
}

/* Position, id, probability in percent, and piece of the most likely next tokens. */
static void add_table(struct logits *l, uint32_t pos, const float *x)
{
    double norm = log_sum(x, l->n_vocab, x[l->top[0]]);
    int32_t n_text = vocab_has_text(l->s.vocab) ? vocab_n_tokens(l->s.vocab) : 0;
    struct text *t = &l->text;

    for (int32_t i = 0; i < l->n_top; i++) {
        text_addf(t, "%u\t%d\t%.3f%%\t", pos, (int)l->top[i],
                  100 * exp((double)x[l->top[i]] - norm));
        if (l->top[i] < n_text) {
            struct gguf_str piece = vocab_piece(l->s.vocab, l->top[i]);
            text_escape(t, piece.p, piece.n);
        }
        text_byte(t, '\n');
    }
}

static enum status on_logits(void *ctx, uint32_t pos, const float *x, struct err *e)
{
    struct logits *l = ctx;
    enum status st = ST_OK;

    if (l->c->opt->output)
        st = out_file_write(&l->file, l->c->out, x, (size_t)l->n_vocab * sizeof *x, e);
    if (st || (l->c->opt->output && !l->c->opt->json))
        return st;
    find_top(l, x);
    if (l->c->opt->json)
        add_json(l, pos, x);
    else
        add_table(l, pos, x);
    return l->text.failed ? err_nomem(e, "the results", l->text.n) : ST_OK;
}

static enum status on_logits_of(void *ctx, int32_t seq, uint32_t pos, const float *x, struct err *e)
{
    (void)seq;
    return on_logits(ctx, pos, x, e);
}

/* ---- */

static enum status eval_embd(struct logits *l, struct err *e)
{
    bool *out = mem_array(l->n_tok, sizeof *out);
    struct seq_tokens t = {.embd = l->embd, .out = out, .n = l->n_tok};
    enum status st;

    if (!out)
        return err_nomem(e, "the embeddings", l->n_tok);
    memset(out, true, l->n_tok);
    st = session_eval_batch(l->s.session, &t, on_logits_of, l, e);
    mem_free(out);
    return st;
}

static enum status eval_all(struct logits *l, struct err *e)
{
    if (l->embd)
        return eval_embd(l, e);
    return session_eval(l->s.session, l->ids.id, (uint32_t)l->ids.n, WANT_ALL, on_logits, l, e);
}

static enum status load(struct logits *l, struct err *e)
{
    struct session_options so;
    uint64_t start = now_us();
    enum status st;

    setup_session_options(&l->s, &so);
    so.all_outputs = true;
    so.embd = l->c->opt->embd != NULL;
    st = setup_all(&l->s, &so, e);
    if (!st)
        st = get_ids(l, e);
    if (st)
        return st;
    st = setup_session(&l->s, &so, e);
    l->s.load_us = now_us() - start;
    l->n_vocab = (int32_t)l->s.model->hp.n_vocab;
    l->n_top = l->c->opt->top ? l->c->opt->top : 10;
    if (l->n_top > l->n_vocab)
        l->n_top = l->n_vocab;
    return st;
}

static enum status evaluate(struct logits *l, struct err *e)
{
    uint64_t start = now_us();
    enum status st;

    l->top = mem_array((size_t)l->n_top, sizeof *l->top);
    if (!l->top)
        return err_nomem(e, "--top", (size_t)l->n_top * sizeof *l->top);
    if (l->c->opt->output) {
        st = out_file_open(&l->file, l->c->opt->output, e);
        if (st)
            return st;
    }
    st = eval_all(l, e);
    out_progress_end(l->c->out);
    l->s.prompt_us = now_us() - start;
    l->s.n_prompt = l->n_tok;
    st = setup_finish(&l->s, st, e);
    if (l->c->opt->json)
        text_str(&l->text, "\n]\n");
    if (!st)
        st = out_text(l->c->out, &l->text, e);
    if (!st && l->c->opt->output)
        st = out_file_commit(&l->file, e);
    setup_print_stats(&l->s);
    return st;
}

enum status cmd_logits(struct cli *c, struct err *e)
{
    struct logits l = {.c = c, .file = {.fd = -1}};
    enum status st;

    setup_init(&l.s, c);
    if (c->opt->json && c->opt->output && strcmp(c->opt->output, "-") == 0)
        st = err_set(e, ST_USAGE, "--json and -o - both write to stdout, expected one of them");
    else
        st = load(&l, e);
    if (!st)
        st = evaluate(&l, e);
    out_file_release(&l.file);
    tokens_release(&l.ids);
    text_release(&l.text);
    mem_free(l.top);
    mem_free(l.embd);
    setup_release(&l.s);
    return st;
}
