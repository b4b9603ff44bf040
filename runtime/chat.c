#include "runtime/chat.h"

#include <string.h>

/* ---- families and the templates that mean them ---- */

struct chat_family {
    const char *name;
    const char *before_role, *after_role, *after_content; /* around one message */
    const char *answer;                                   /* starts the assistant's message */
};

static const struct chat_family families[] = {
    {"chatml", "<|im_start|>", "\n", "<|im_end|>\n", "<|im_start|>assistant\n"},
};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

/*
 * Normal form of a template: literal text as it is; "\1" statement "\2"; "\3" expression "\2",
 * where string literals that are added to something have become literal text. In a known form, "\4"
 * stands for any literal text: the default system message.
 */
#define STMT(s) "\1" s "\2"
#define EXPR(s) "\3" s "\2"
#define SYSTEM  "\4"
#define CHATML_MESSAGE                                                                             \
    "<|im_start|>" EXPR("message['role']") "\n" EXPR("message['content']") "<|im_end|>\n"
#define CHATML_END                                                                                 \
    STMT("endfor") STMT("if add_generation_prompt") "<|im_start|>assistant\n" STMT("endif")

static const struct {
    int family; /* index into families */
    const char *form;
} known[] = {
    {0, STMT("for message in messages") CHATML_MESSAGE CHATML_END},
    {0, STMT("for message in messages") STMT(
            "if loop.first and messages[0]['role'] != 'system'") "<|im_start|>system\n" SYSTEM
                                                                 "<|im_end|>\n" STMT("endif")
                                                                     CHATML_MESSAGE CHATML_END},
};

/* What many templates start with and what changes nothing for us, who always say whether to
 * generate. */
static const char preamble[] = STMT("if not add_generation_prompt is defined")
    STMT("set add_generation_prompt = false") STMT("endif");

/* ---- normal form ---- */

/* A position in a template; all reading is bounded by n. */
struct scan {
    const char *p;
    size_t n, i;
};

static bool at(const struct scan *s, const char *word)
{
    size_t n = strlen(word);

    return s->n - s->i >= n && memcmp(s->p + s->i, word, n) == 0;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_space(struct scan *s)
{
    while (s->i < s->n && is_space(s->p[s->i]))
        s->i++;
}

/* Literal text may not look like a mark of the normal form. */
static bool put_literal(struct text *out, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] >= 1 && p[i] <= 4)
            return false;
    text_bytes(out, p, n);
    return true;
}

/* A quoted string at s, unescaped, onto out. False when it does not end. */
static bool read_string(struct scan *s, struct text *out)
{
    char quote = s->p[s->i++];

    while (s->i < s->n && s->p[s->i] != quote) {
        char c = s->p[s->i++];
        if (c == '\\') {
            if (s->i == s->n)
                return false;
            c = s->p[s->i++];
            if (c == 'n')
                c = '\n';
            else if (c == 't')
                c = '\t';
            else if (c != '\\' && c != '\'' && c != '"')
                return false;
        }
        if (!put_literal(out, &c, 1))
            return false;
    }
    return s->i++ < s->n;
}

/* Is the tag's end ("}}" or "%}", with or without "-") at s? */
static bool at_close(const struct scan *s, const char *close)
{
    struct scan t = *s;

    if (at(&t, "-"))
        t.i++;
    return at(&t, close);
}

/*
 * Copy code at s up to `close` or, with stop_at_plus, up to a '+': runs of space become one, none
 * at the ends; strings are written in single quotes; .role and .content become ['role'] and
 * ['content'].
 */
static bool read_code(struct scan *s, const char *close, bool stop_at_plus, struct text *out)
{
    bool space = false, first = true;

    for (;; first = false) {
        size_t i = s->i;
        skip_space(s);
        space = !first && s->i > i;
        if (s->i == s->n)
            return false;
        if (at_close(s, close) || (stop_at_plus && s->p[s->i] == '+'))
            return !first;
        if (space)
            text_byte(out, ' ');
        if (s->p[s->i] == '\'' || s->p[s->i] == '"') {
            text_byte(out, '\'');
            if (!read_string(s, out))
                return false;
            text_byte(out, '\'');
        } else if (at(s, ".role")) {
            text_str(out, "['role']");
            s->i += 5;
        } else if (at(s, ".content")) {
            text_str(out, "['content']");
            s->i += 8;
        } else if (!put_literal(out, s->p + s->i++, 1)) {
            return false;
        }
    }
}

/* "{{ a + 'b' + c }}" behind its "{{" */
static bool read_expression(struct scan *s, struct text *out)
{
    for (;;) {
        skip_space(s);
        if (s->i == s->n)
            return false;
        if (s->p[s->i] == '\'' || s->p[s->i] == '"') {
            if (!read_string(s, out))
                return false;
        } else {
            text_byte(out, '\3');
            if (!read_code(s, "}}", true, out))
                return false;
            text_byte(out, '\2');
        }
        skip_space(s);
        if (at_close(s, "}}"))
            return true;
        if (!at(s, "+"))
            return false;
        s->i++;
    }
}

/* Drop spaces (and newlines, unless only_line) from the end of the literal text that began at
 * `from`. */
static void trim_end(struct text *out, size_t from, bool only_line)
{
    size_t n = out->n;

    while (n > from && is_space(out->p[n - 1]) && (!only_line || out->p[n - 1] != '\n'))
        n--;
    if (only_line && n > from && out->p[n - 1] != '\n')
        return; /* the tag does not stand alone before its line's text */
    out->n = n;
}

/*
 * The whole template. Blank handling as the usual renderers set it (trim_blocks, lstrip_blocks):
 * the newline behind a statement and the blanks in front of one that starts its line vanish; "-" in
 * a tag takes all blanks on its side; one newline at the end of the file vanishes.
 */
static bool normalise(struct scan *s, struct text *out)
{
    size_t literal = 0; /* where the literal text before the current tag began in out */

    if (s->n && s->p[s->n - 1] == '\n')
        s->n--;
    while (s->i < s->n) {
        bool stmt = at(s, "{%"), expr = at(s, "{{");
        if (at(s, "{#"))
            return false; /* a comment: no form that we know has one */
        if (!stmt && !expr) {
            if (!put_literal(out, s->p + s->i++, 1))
                return false;
            continue;
        }
        s->i += 2;
        if (at(s, "-")) {
            s->i++;
            trim_end(out, literal, false);
        } else if (stmt) {
            trim_end(out, literal, true);
        }
        if (stmt) {
            text_byte(out, '\1');
            if (!read_code(s, "%}", false, out))
                return false;
            text_byte(out, '\2');
        } else if (!read_expression(s, out)) {
            return false;
        }
        if (at(s, "-")) {
            s->i += 3;
            skip_space(s);
        } else {
            s->i += 2;
            if (stmt && at(s, "\n"))
                s->i++;
        }
        literal = out->n;
    }
    return true;
}

/* Does s have this form? The text in the place of SYSTEM is put into *system. */
static bool matches(const char *form, const char *p, size_t n, struct text *system)
{
    size_t n_form = strlen(form), n_front;
    const char *hole = strchr(form, SYSTEM[0]);

    if (!hole)
        return n == n_form && memcmp(p, form, n) == 0;
    n_front = (size_t)(hole - form);
    if (n < n_form - 1 || memcmp(p, form, n_front) != 0 ||
        memcmp(p + n - (n_form - n_front - 1), hole + 1, n_form - n_front - 1) != 0)
        return false;
    p += n_front;
    n -= n_form - 1;
    for (size_t i = 0; i < n; i++)
        if (p[i] >= 1 && p[i] <= 4)
            return false;
    text_bytes(system, p, n);
    return true;
}

static void list_names(char *out, size_t n_out)
{
    struct text t = {0};

    for (int i = 0; i < N_FAMILIES; i++)
        text_addf(&t, "%s%s", i ? ", " : "", families[i].name);
    text_quote(out, n_out, t.p ? t.p : "", t.n);
    text_release(&t);
}

enum status chat_recognise(struct chat *out, const char *template, size_t n, struct err *e)
{
    struct scan s = {template, n, 0};
    struct text form = {0};
    size_t skip = 0;
    char names[128];
    bool ok;

    *out = (struct chat){0};
    ok = normalise(&s, &form) && form.n;
    if (form.failed)
        goto nomem;
    if (ok && form.n >= sizeof preamble - 1 && memcmp(form.p, preamble, sizeof preamble - 1) == 0)
        skip = sizeof preamble - 1;
    for (size_t i = 0; ok && i < sizeof known / sizeof known[0]; i++) {
        if (matches(known[i].form, form.p + skip, form.n - skip, &out->system)) {
            if (out->system.failed)
                goto nomem;
            out->family = &families[known[i].family];
            text_release(&form);
            return ST_OK;
        }
    }
    text_release(&form);
    list_names(names, sizeof names);
    return err_set(e, ST_UNSUPPORTED,
                   "the file's chat template is not one that is known; choose one with "
                   "--chat-template (%s), or use --raw",
                   names);
nomem:
    text_release(&form);
    return err_nomem(e, "chat template", n);
}

enum status chat_find(struct chat *out, const char *name, const struct gguf *g, struct err *e)
{
    struct gguf_str s = {0};
    enum status st;
    char names[128], quoted[128];

    *out = (struct chat){0};
    list_names(names, sizeof names);
    if (!name) {
        st = gguf_get_str(g, "tokenizer.chat_template", false, &s, e);
        if (st)
            return st;
        if (!s.p)
            return err_set(e, ST_UNSUPPORTED,
                           "the file has no chat template; choose one with --chat-template (%s), "
                           "or use --raw",
                           names);
        return chat_recognise(out, s.p, s.n, e);
    }
    for (int i = 0; i < N_FAMILIES; i++) {
        if (strcmp(families[i].name, name) == 0) {
            out->family = &families[i];
            return ST_OK;
        }
    }
    return err_set(e, ST_USAGE, "--chat-template is '%s', expected one of: %s",
                   text_quote(quoted, sizeof quoted, name, strlen(name)), names);
}

void chat_release(struct chat *c)
{
    text_release(&c->system);
    c->family = NULL;
}

const char *chat_family_name(const struct chat_family *f)
{
    return f->name;
}

static void put_message(const struct chat_family *f, const char *role, const char *content,
                        size_t n, struct text *out)
{
    text_str(out, f->before_role);
    text_str(out, role);
    text_str(out, f->after_role);
    text_bytes(out, content, n);
    text_str(out, f->after_content);
}

enum status chat_render(const struct chat *c, const struct chat_message *m, size_t n, bool generate,
                        struct text *out, struct err *e)
{
    const struct chat_family *f = c->family;

    if (c->system.n && (n == 0 || strcmp(m[0].role, "system") != 0))
        put_message(f, "system", c->system.p, c->system.n, out);
    for (size_t i = 0; i < n; i++)
        put_message(f, m[i].role, m[i].content, m[i].n_content, out);
    if (generate)
        text_str(out, f->answer);
    return out->failed ? err_nomem(e, "chat prompt", out->n) : ST_OK;
}
