#include "runtime/chat.h"

#include <stdio.h>
#include <string.h>

#include "runtime/chat_impl.h"

/* ---- templates that are known to the byte ---- */

#define CHATML_MESSAGE                                                                             \
    "<|im_start|>" FORM_EXPR("message['role']") "\n" FORM_EXPR("message['content']") "<|im_end|>"  \
                                                                                     "\n"
#define CHATML_END                                                                                 \
    FORM_STMT("endfor")                                                                            \
    FORM_STMT("if add_generation_prompt") "<|im_start|>assistant\n" FORM_STMT("endif")

static const struct {
    const char *family, *form;
} known[] = {
    {"chatml", FORM_STMT("for message in messages") CHATML_MESSAGE CHATML_END},
    {"chatml", FORM_STMT("for message in messages")
                   FORM_STMT("if loop.first and messages[0]['role'] != 'system'") //
     "<|im_start|>system\n" FORM_TEXT "<|im_end|>\n" FORM_STMT("endif") CHATML_MESSAGE CHATML_END},
};

/* What many templates start with and what changes nothing for us, who always say whether to
 * generate. */
static const char preamble[] = FORM_STMT("if not add_generation_prompt is defined")
    FORM_STMT("set add_generation_prompt = false") FORM_STMT("endif");

static const struct chat_family *family_named(const char *name)
{
    for (size_t i = 0; i < n_chat_families; i++)
        if (strcmp(chat_families[i].name, name) == 0)
            return &chat_families[i];
    return NULL;
}

/* Length of the literal text at the start of p. */
static size_t literal_length(const char *p)
{
    size_t n = 0;

    while (!form_is_mark(p[n]))
        n++;
    return n;
}

/* Does `p` have this form? The text in the place of FORM_TEXT is put into *system. */
static bool matches(const char *form, const char *p, struct text *system)
{
    const char *hole = strchr(form, FORM_TEXT[0]);
    size_t n = strlen(p), n_front, n_end;

    if (!hole)
        return strcmp(form, p) == 0;
    n_front = (size_t)(hole - form);
    n_end = strlen(hole + 1);
    if (n < n_front + n_end || memcmp(p, form, n_front) != 0 ||
        strcmp(p + n - n_end, hole + 1) != 0)
        return false;
    n -= n_front + n_end;
    if (literal_length(p + n_front) < n)
        return false;
    text_bytes(system, p + n_front, n);
    return true;
}

static bool find_known(struct chat *out, const char *form)
{
    if (strncmp(form, preamble, sizeof preamble - 1) == 0)
        form += sizeof preamble - 1;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (matches(known[i].form, form, &out->system)) {
            out->family = family_named(known[i].family);
            out->exact = true;
            return true;
        }
    }
    return false;
}

/* ---- templates with the marks of a family ---- */

static bool has_marks(const struct chat_family *f, const char *form)
{
    for (size_t i = 0; i < sizeof f->has / sizeof f->has[0] && f->has[i]; i++)
        if (!strstr(form, f->has[i]))
            return false;
    return f->has[0] && !(f->lacks && strstr(form, f->lacks));
}

/*
 * A default system message stands in the template as the family writes one, all literal: the text
 * between what `pattern` has in front of the content and behind it.
 */
static void learn_system(struct chat *out, const char *pattern, const char *form)
{
    const char *hole = strstr(pattern, "%c"), *p = form;
    struct text front = {0};
    size_t n;

    if (!hole)
        hole = strstr(pattern, "%t");
    if (!hole || hole == pattern || !hole[2] || strchr(hole + 2, '%'))
        return;
    for (const char *q = pattern; q < hole; q++) {
        if (q[0] == '%' && q[1] == 'r')
            text_str(&front, "system");
        else if (q[0] != '%' && !(q > pattern && q[-1] == '%'))
            text_byte(&front, *q);
    }
    while (!front.failed && (p = strstr(p, front.p))) {
        const char *end;
        p += front.n;
        n = literal_length(p);
        end = strstr(p, hole + 2);
        if (end && end > p && (size_t)(end - p) < n) {
            text_bytes(&out->system, p, (size_t)(end - p));
            break;
        }
    }
    out->system.failed |= front.failed;
    text_release(&front);
}

/* What the template writes for add_generation_prompt, if that is the family's start of an answer,
 * perhaps with more behind it. */
static void learn_answer(struct chat *out, const char *form)
{
    static const char word[] = "add_generation_prompt";
    const char *answer = out->family->answer, *found = NULL;
    size_t n = strlen(answer), n_stem = n - text_blank_end(answer, n), n_found = 0;

    for (const char *p = form; n_stem && (p = strstr(p, word)); p++) {
        const char *text = strchr(p, FORM_STMT("")[1]); /* the tag's end */
        if (!text)
            break;
        n = literal_length(++text);
        if (n >= n_stem && memcmp(text, answer, n_stem) == 0) {
            found = text;
            n_found = n;
        }
    }
    if (found)
        text_bytes(&out->answer, found, n_found);
}

static bool find_marks(struct chat *out, const char *form)
{
    for (size_t i = 0; i < n_chat_families; i++) {
        const struct chat_family *f = &chat_families[i];
        if (!has_marks(f, form))
            continue;
        out->family = f;
        if (!strstr(f->user, "%s"))
            learn_system(out, f->system, form);
        learn_answer(out, form);
        return true;
    }
    return false;
}

/* ---- which family ---- */

static void list_names(struct text *t)
{
    for (size_t i = 0; i < n_chat_families; i++)
        if (!i || strcmp(chat_families[i].name, chat_families[i - 1].name) != 0)
            text_addf(t, "%s%s", i ? ", " : "", chat_families[i].name);
}

/* `why` it cannot be used, and what to do. */
static enum status no_template(enum status st, const char *why, const char *what, struct err *e)
{
    struct text names = {0};

    list_names(&names);
    if (!names.failed)
        err_set(e, st, "%s; %s %s", why, what, names.p);
    else
        st = err_nomem(e, "names of chat templates", names.n);
    text_release(&names);
    return st;
}

enum status chat_recognise(struct chat *out, const char *template, size_t n, struct err *e)
{
    static const char hint[] = "use --raw, or --chat-template with one of:";
    struct text form = {0};
    struct err why = {0};
    enum status st;

    *out = (struct chat){0};
    st = chat_form(template, n, &form, &why);
    if (st == ST_UNSUPPORTED) {
        err_context(&why, "the chat template is damaged");
        st = no_template(st, why.msg, hint, e);
    } else if (st) {
        st = err_nomem(e, "chat template", n);
    } else if (form.n && (find_known(out, form.p) || find_marks(out, form.p))) {
        out->wants_bos = strstr(form.p, "bos_token") != NULL;
        if (out->system.failed || out->answer.failed)
            st = err_nomem(e, "chat template", n);
    } else {
        st = no_template(ST_UNSUPPORTED, "the chat template is not one that is known", hint,
                         e);
    }
    text_release(&form);
    return st;
}

enum status chat_find(struct chat *out, const char *name, const struct gguf *g, struct err *e)
{
    struct gguf_str s = {0};
    enum status st;
    char why[192], quoted[128];

    *out = (struct chat){0};
    if (!name) {
        st = gguf_get_str(g, "tokenizer.chat_template", false, &s, e);
        if (st)
            return st;
        if (!s.p)
            return no_template(ST_UNSUPPORTED, "the file has no chat template",
                               "use --raw, or --chat-template with one of:", e);
        return chat_recognise(out, s.p, s.n, e);
    }
    out->family = family_named(name);
    out->exact = true;
    if (out->family)
        return ST_OK;
    snprintf(why, sizeof why, "--chat-template is '%s'",
             text_quote(quoted, sizeof quoted, name, strlen(name)));
    return no_template(ST_USAGE, why, "expected one of:", e);
}

void chat_release(struct chat *c)
{
    text_release(&c->system);
    text_release(&c->answer);
    c->family = NULL;
}

const char *chat_family_name(const struct chat_family *f)
{
    return f->name;
}

/* ---- rendering ---- */

struct render {
    const struct chat_family *f;
    const struct chat *c;
    const struct chat_message *system; /* waits for the request that it goes into; or NULL */
    struct text *out;
    struct text_spans *content; /* may be NULL */
    size_t start;               /* of the conversation in *out */
};

static void put_content(struct render *r, const char *p, size_t n, bool strip_front, bool strip_end)
{
    size_t from = r->out->n, skip = strip_front ? text_blank_front(p, n) : 0;

    p += skip;
    n -= skip;
    text_bytes(r->out, p, strip_end ? n - text_blank_end(p, n) : n);
    if (r->content)
        text_spans_add(r->content, from, r->out->n);
}

/* One message as its pattern says; `behind`: a system message was put in front of its content. */
static void put_pattern(struct render *r, const char *pattern, const struct chat_message *m)
{
    bool behind = false;

    for (const char *p = pattern; *p; p++) {
        if (*p != '%') {
            text_byte(r->out, *p);
            continue;
        }
        switch (*++p) {
        case 'r':
            text_str(r->out, m->role);
            break;
        case 'c':
        case 't':
        case 'T':
            put_content(r, m->content, m->n_content, *p == 't' || (*p == 'T' && !behind),
                        *p != 'c');
            break;
        case 's': {
            const struct chat_message *system = r->system;
            r->system = NULL;
            behind = system;
            if (system)
                put_pattern(r, r->f->system, system); /* which has no %s: depth is two */
            break;
        }
        case 'b':
            if (r->out->n > r->start)
                text_bytes(r->out, r->c->bos.p, r->c->bos.n);
            break;
        case 'e':
            text_bytes(r->out, r->c->eos.p, r->c->eos.n);
            break;
        }
    }
}

static bool is_role(const struct chat_message *m, const char *role)
{
    return strcmp(m->role, role) == 0;
}

static enum status put_message(struct render *r, const struct chat_message *m, bool is_last_user,
                               struct err *e)
{
    const struct chat_message *waiting = r->system;
    char quoted[64];

    if (is_role(m, "user")) {
        if (r->f->system_last && !is_last_user)
            r->system = NULL;
        put_pattern(r, r->f->user, m);
        if (r->f->system_last && !is_last_user)
            r->system = waiting;
    } else if (is_role(m, "assistant")) {
        put_pattern(r, r->f->assistant, m);
    } else if (!is_role(m, "system")) {
        return err_set(e, ST_UNSUPPORTED, "chat template '%s' has no role '%s'", r->f->name,
                       text_quote(quoted, sizeof quoted, m->role, strlen(m->role)));
    } else if (!strstr(r->f->user, "%s")) {
        put_pattern(r, r->f->system, m);
    } else if (waiting) {
        return err_set(e, ST_UNSUPPORTED, "chat template '%s' has no place for two system messages",
                       r->f->name);
    } else {
        r->system = m;
    }
    return ST_OK;
}

enum status chat_render(const struct chat *c, const struct chat_message *m, size_t n, bool generate,
                        struct text *out, struct text_spans *content, struct err *e)
{
    const struct chat_message standard = {"system", c->system.p, c->system.n};
    struct render r = {.f = c->family, .c = c, .out = out, .content = content, .start = out->n};
    size_t last_user = n;
    enum status st = ST_OK;

    for (size_t i = 0; i < n; i++)
        if (is_role(&m[i], "user"))
            last_user = i;
    text_str(out, r.f->start ? r.f->start : "");
    if (c->system.n && (n == 0 || !is_role(&m[0], "system")))
        st = put_message(&r, &standard, false, e);
    for (size_t i = 0; i < n && !st; i++)
        st = put_message(&r, &m[i], i == last_user, e);
    if (!st && r.system)
        st = err_set(e, ST_UNSUPPORTED,
                     "chat template '%s' puts the system message into a request, and none follows",
                     r.f->name);
    if (st)
        return st;
    if (generate && c->answer.n)
        text_bytes(out, c->answer.p, c->answer.n);
    else if (generate)
        text_str(out, r.f->answer);
    return out->failed || (content && content->failed) ? err_nomem(e, "chat prompt", out->n)
                                                       : ST_OK;
}
