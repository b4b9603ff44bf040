/*
 * ggrun tokenize: text to token ids, and with --decode ids to exact bytes. Needs a vocabulary only.
 */
#include <string.h>

#include "cli/chat.h"
#include "cli/cli.h"
#include "cli/prompt.h"
#include "cli/setup.h"

static enum status print_json(struct cli *c, const struct tokens *ids, struct err *e)
{
    struct text t = {0};

    text_byte(&t, '[');
    for (size_t i = 0; i < ids->n; i++)
        text_addf(&t, "%s%d", i ? "," : "", (int)ids->id[i]);
    text_str(&t, "]\n");
    return out_text(c->out, &t, e);
}

/* A line per token: id, and the piece as it is written in the file. */
static enum status print_table(struct cli *c, const struct vocab *v, const struct tokens *ids,
                               struct err *e)
{
    struct text t = {0};

    for (size_t i = 0; i < ids->n; i++) {
        struct gguf_str piece = vocab_piece(v, ids->id[i]);
        text_addf(&t, "%d\t", (int)ids->id[i]);
        text_escape(&t, piece.p, piece.n);
        text_byte(&t, '\n');
    }
    return out_text(c->out, &t, e);
}

static enum status encode(struct setup *s, const struct text *in, struct err *e)
{
    struct cli *c = s->c;
    const struct vocab *v = s->vocab;
    unsigned flags =
        (c->opt->no_bos ? 0 : ENC_BOS | ENC_EOS) | (c->opt->no_special ? 0 : ENC_SPECIAL);
    struct tokens ids = {0};
    enum status st =
        chat_option(c->opt) ? chat_encode(s, in, &ids, e) : text_encode(c, v, in, flags, &ids, e);

    if (!st)
        st = c->opt->json ? print_json(c, &ids, e) : print_table(c, v, &ids, e);
    tokens_release(&ids);
    return st;
}

static enum status decode(struct cli *c, const struct vocab *v, const char *p, size_t n,
                          struct err *e)
{
    struct tokens ids = {0};
    struct text t = {0};
    struct detok d;
    size_t first = 0;
    enum status st = ids_parse(&ids, p, n, e);

    if (!c->opt->no_bos) { /* what encoding has put there is not part of the text */
        if (ids.n > first && vocab_add_bos(v) && ids.id[first] == vocab_bos(v))
            first++;
        if (ids.n > first && vocab_add_eos(v) && ids.id[ids.n - 1] == vocab_eos(v))
            ids.n--;
    }
    detok_init(&d, v, !c->opt->no_special);
    for (size_t i = first; !st && i < ids.n; i++)
        st = detok_add(&d, ids.id[i], &t, e);
    tokens_release(&ids);
    if (st) {
        text_release(&t);
        return st;
    }
    return out_text(c->out, &t, e);
}

static enum status one_source(struct setup *s, const struct text *in, struct err *e)
{
    return s->c->opt->decode ? decode(s->c, s->vocab, in->p ? in->p : "", in->n, e)
                             : encode(s, in, e);
}

static enum status all_sources(struct setup *s, struct err *e)
{
    struct cli *c = s->c;
    const struct options *o = c->opt;
    enum status st = ST_OK;

    if (!o->n_sources) { /* stdin, or a hint when it is a terminal */
        struct prompt p;
        st = prompt_read(&p, c, e);
        if (!st)
            st = one_source(s, &p.text, e);
        text_release(&p.text);
    }
    for (int i = 0; !st && i < o->n_sources; i++) {
        struct text in = {0};
        st = source_read(&o->sources[i], c->cancel, &in, e);
        if (!st)
            st = one_source(s, &in, e);
        text_release(&in);
    }
    return st;
}

enum status cmd_tokenize(struct cli *c, struct err *e)
{
    const struct options *o = c->opt;
    struct setup s;
    enum status st;

    if (o->ids && !o->decode)
        return err_set(e, ST_USAGE, "--ids is given without --decode");
    if (o->ids && o->n_sources)
        return err_set(e, ST_USAGE, "ids come from --ids and from a text, expected one of them");
    if (o->decode && chat_option(o))
        return err_set(e, ST_USAGE, "--decode and %s exclude each other", chat_option(o));
    setup_init(&s, c);
    st = setup_file(&s, o->n_models ? o->models[0] : NULL, true, e);
    if (!st)
        st = setup_vocab(&s, e);
    if (!st && !vocab_has_text(s.vocab))
        st = err_set(e, ST_UNSUPPORTED, "the file has no vocabulary to tokenize with");
    if (!st)
        st = o->ids ? decode(c, s.vocab, o->ids, strlen(o->ids), e) : all_sources(&s, e);
    setup_release(&s);
    return st;
}
