#include "cli/chat.h"

#include <string.h>

#include "cli/prompt.h"
#include "gguf/base/log.h"

const char *chat_option(const struct options *o)
{
    if (o->chat)
        return "--chat";
    if (o->system)
        return "--system";
    return o->chat_template ? "--chat-template" : NULL;
}

void chat_set_pieces(struct chat *c, const struct vocab *v)
{
    if (!v)
        return;
    c->bos = vocab_piece(v, vocab_bos(v));
    c->eos = vocab_piece(v, vocab_eos(v));
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);

    return n >= k && strcmp(s + n - k, end) == 0;
}

/* The template of --chat-template that is not a name, or of the file. */
static enum status find_template(struct setup *s, struct chat *out, struct err *e)
{
    const char *arg = s->c->opt->chat_template;
    const struct source path = {SOURCE_FILE, arg};
    struct text t = {0};
    enum status st;

    if (!arg || !*arg)
        return chat_find(out, arg, s->file, e);
    if (strstr(arg, "{{") || strstr(arg, "{%"))
        return chat_recognise(out, arg, strlen(arg), e);
    if (!strchr(arg, '/') && !ends_with(arg, ".jinja"))
        return chat_find(out, arg, s->file, e);
    st = source_read(&path, s->c->cancel, &t, e);
    if (!st)
        st = chat_recognise(out, t.p ? t.p : "", t.n, e);
    text_release(&t);
    return st;
}

static enum status find(struct setup *s, struct chat *out, struct err *e)
{
    enum status st;

    *out = (struct chat){0};
    st = find_template(s, out, e);
    if (st)
        return st;
    chat_set_pieces(out, s->vocab);
    log_info("chat template %s%s", chat_family_name(out->family),
             out->exact ? "" : ", told by its marks");
    return ST_OK;
}

enum status chat_encode(struct setup *s, const struct text *request, struct tokens *out,
                        struct err *e)
{
    const struct options *o = s->c->opt;
    const struct vocab *v = s->vocab;
    struct chat_message m[2];
    struct text text = {0};
    struct text_spans content = {0};
    struct chat chat;
    size_t n = 0;
    enum status st = find(s, &chat, e);

    if (o->system)
        m[n++] = (struct chat_message){"system", o->system, strlen(o->system)};
    m[n++] = (struct chat_message){"user", request->p ? request->p : "", request->n};
    if (!st)
        st = chat_render(&chat, m, n, true, &text, &content, e);
    if (!st) {
        out->cancel = s->c->cancel;
        if (chat.wants_bos && !vocab_add_bos(v) && vocab_bos(v) != VOCAB_NONE && !o->no_bos)
            tokens_add(out, vocab_bos(v));
        st = vocab_encode_mixed(v, text.p, text.n, &content,
                                ENC_SPECIAL | (o->no_bos ? 0 : ENC_BOS), out, e);
    }
    chat_release(&chat);
    text_release(&text);
    text_spans_release(&content);
    return st;
}
