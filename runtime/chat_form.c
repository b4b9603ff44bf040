/*
 * From a template's text to its normal form.
 */
#include <string.h>

#include "runtime/chat_impl.h"

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

static bool is_quote(char c)
{
    return c == '\'' || c == '"';
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
        if (form_is_mark(p[i]))
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
            else if (c == 'r')
                c = '\r';
            else if (c != '\\' && !is_quote(c))
                text_byte(out, '\\'); /* not an escape: both stay */
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

static bool at_plus(const struct scan *s)
{
    return at(s, "+") || at(s, "~");
}

/* How many brackets a byte of code opens. */
static int opens(char c)
{
    if (c == '(' || c == '[' || c == '{')
        return 1;
    return c == ')' || c == ']' || c == '}' ? -1 : 0;
}

/*
 * Copy code at s up to `close` or, with stop_at_plus, up to a '+' or '~', neither inside brackets:
 * runs of space become one, none at the ends; strings are written in single quotes; .role and
 * .content become ['role'] and ['content'].
 */
static bool read_code(struct scan *s, const char *close, bool stop_at_plus, struct text *out)
{
    bool space = false, first = true;
    int depth = 0;

    for (;; first = false) {
        size_t i = s->i;
        skip_space(s);
        space = !first && s->i > i;
        if (s->i == s->n || depth < 0)
            return false;
        if (depth == 0 && (at_close(s, close) || (stop_at_plus && at_plus(s))))
            return !first;
        if (space)
            text_byte(out, ' ');
        depth += opens(s->p[s->i]);
        if (is_quote(s->p[s->i])) {
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

/* A string at s that is all of a term, onto out; else nothing has happened. */
static bool read_literal_term(struct scan *s, struct text *out)
{
    struct scan t = *s;
    size_t n = out->n;

    if (is_quote(s->p[s->i]) && read_string(&t, out)) {
        skip_space(&t);
        if (at_close(&t, "}}") || at_plus(&t)) {
            *s = t;
            return true;
        }
    }
    out->n = n;
    return false;
}

/* "{{ a + 'b' + c }}" behind its "{{" */
static bool read_expression(struct scan *s, struct text *out)
{
    for (;;) {
        skip_space(s);
        if (s->i == s->n)
            return false;
        if (!read_literal_term(s, out)) {
            text_byte(out, FORM_EXPR("")[0]);
            if (!read_code(s, "}}", true, out))
                return false;
            text_byte(out, FORM_EXPR("")[1]);
        }
        skip_space(s);
        if (at_close(s, "}}"))
            return true;
        if (!at_plus(s))
            return false;
        s->i++;
    }
}

/* ---- statements and their blocks ---- */

static const struct {
    const char *open, *close;
} blocks[] = {
    {"for", "endfor"},
    {"if", "endif"},
    {"macro", "endmacro"},
    {"call", "endcall"},
    {"filter", "endfilter"},
    {"set", "endset"},
    {"generation", "endgeneration"},
    {"with", "endwith"},
};
enum { BLOCK_FOR, BLOCK_IF, BLOCK_SET = 5, N_BLOCKS = sizeof blocks / sizeof blocks[0] };

static const char *const plain_statements[] = {"break", "continue", "do"};

enum { MAX_DEPTH = 64 };
struct nesting {
    unsigned char block[MAX_DEPTH];
    int n;
};

static bool is_word(const char *p, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(p, word, n) == 0;
}

static enum status open_block(struct nesting *ns, int block, struct err *e)
{
    if (ns->n == MAX_DEPTH)
        return err_set(e, ST_UNSUPPORTED, "more than %d blocks inside one another", MAX_DEPTH);
    ns->block[ns->n++] = (unsigned char)block;
    return ST_OK;
}

/* Account for the statement code[0..n): does it open or close a block, and may it stand here? */
static enum status check_statement(struct nesting *ns, const char *code, size_t n, struct err *e)
{
    size_t k = 0;
    char quoted[48];
    int top = ns->n ? ns->block[ns->n - 1] : N_BLOCKS;

    while (k < n && ((code[k] >= 'a' && code[k] <= 'z') || code[k] == '_'))
        k++;
    for (int i = 0; i < N_BLOCKS; i++) {
        if (is_word(code, k, blocks[i].open)) {
            if (i == BLOCK_SET && memchr(code, '=', n))
                return ST_OK; /* an assignment, no block */
            return open_block(ns, i, e);
        }
        if (is_word(code, k, blocks[i].close)) {
            if (top != i)
                return err_set(e, ST_UNSUPPORTED, "'%s' closes no '%s'", blocks[i].close,
                               blocks[i].open);
            ns->n--;
            return ST_OK;
        }
    }
    if ((is_word(code, k, "else") && (top == BLOCK_IF || top == BLOCK_FOR)) ||
        (is_word(code, k, "elif") && top == BLOCK_IF))
        return ST_OK;
    for (size_t i = 0; i < sizeof plain_statements / sizeof plain_statements[0]; i++)
        if (is_word(code, k, plain_statements[i]))
            return ST_OK;
    return err_set(e, ST_UNSUPPORTED, "statement '%s' is not known here",
                   text_quote(quoted, sizeof quoted, code, k ? k : n));
}

/* ---- tags ---- */

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

/* Behind a tag: "-" takes all blanks, and a statement or comment takes the newline. */
static void end_tag(struct scan *s, bool takes_newline)
{
    if (at(s, "-")) {
        s->i += 3;
        skip_space(s);
        return;
    }
    s->i += 2;
    if (takes_newline && at(s, "\n"))
        s->i++;
}

static bool skip_comment(struct scan *s)
{
    while (s->i < s->n && !at(s, "-#}") && !at(s, "#}"))
        s->i++;
    return s->i < s->n;
}

static enum status unfinished(const char *what, struct err *e)
{
    return err_set(e, ST_UNSUPPORTED, "a%s does not end", what);
}

/* The tag at s, whose kind ('%', '{' or '#') stands behind its "{". `literal`: where the literal
 * text before it began. */
static enum status read_tag(struct scan *s, size_t literal, struct nesting *ns, struct text *out,
                            struct err *e)
{
    char kind = s->p[s->i + 1];
    size_t from;

    s->i += 2;
    if (at(s, "-"))
        trim_end(out, literal, false);
    else if (kind != '{' && !at(s, "+"))
        trim_end(out, literal, true);
    if (at(s, "-") || at(s, "+"))
        s->i++;
    if (kind == '#') {
        if (!skip_comment(s))
            return unfinished(" comment", e);
    } else if (kind == '{') {
        if (!read_expression(s, out))
            return unfinished("n expression", e);
    } else {
        enum status st;
        text_byte(out, FORM_STMT("")[0]);
        from = out->n;
        if (!read_code(s, "%}", false, out))
            return unfinished(" statement", e);
        if (out->failed)
            return ST_OK;
        st = check_statement(ns, out->p + from, out->n - from, e);
        if (st)
            return st;
        text_byte(out, FORM_STMT("")[1]);
    }
    end_tag(s, kind != '{');
    return ST_OK;
}

/*
 * Blank handling as the usual renderers set it (trim_blocks, lstrip_blocks): the newline behind a
 * statement and the blanks in front of one that starts its line vanish; "-" in a tag takes all
 * blanks on its side; one newline at the end of the file vanishes.
 */
enum status chat_form(const char *p, size_t n, struct text *out, struct err *e)
{
    struct scan s = {p, n, 0};
    struct nesting ns = {0};
    size_t literal = out->n; /* where the literal text before the current tag began in out */

    if (s.n && s.p[s.n - 1] == '\n')
        s.n--;
    while (s.i < s.n && !out->failed) {
        if (at(&s, "{%") || at(&s, "{{") || at(&s, "{#")) {
            enum status st = read_tag(&s, literal, &ns, out, e);
            if (st)
                return st;
            literal = out->n;
        } else if (!put_literal(out, s.p + s.i++, 1)) {
            return err_set(e, ST_UNSUPPORTED, "byte %zu is a control byte", s.i - 1);
        }
    }
    if (out->failed)
        return err_nomem(e, "chat template", n);
    if (ns.n)
        return err_set(e, ST_UNSUPPORTED, "'%s' is not closed", blocks[ns.block[ns.n - 1]].open);
    return ST_OK;
}
