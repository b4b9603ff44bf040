#include "cli/prompt.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { READ_CHUNK = 65536 };

static enum status read_fd(int fd, const char *path, const atomic_bool *cancel, struct text *out,
                           struct err *e)
{
    char quoted[192];

    for (;;) {
        ssize_t k;
        if (atomic_load(cancel))
            return err_set(e, ST_CANCELLED, "interrupted");
        if (!text_reserve(out, READ_CHUNK))
            return err_nomem(e, "the text", out->n + READ_CHUNK);
        k = read(fd, out->p + out->n, READ_CHUNK);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_set(e, ST_IO, "cannot read '%s': %s",
                           text_quote(quoted, sizeof quoted, path, strlen(path)), strerror(errno));
        out->n += (size_t)k;
        out->p[out->n] = 0;
        if (k == 0)
            return ST_OK;
    }
}

static enum status read_file(const char *path, const atomic_bool *cancel, struct text *out,
                             struct err *e)
{
    char quoted[192];
    enum status st;
    int fd;

    if (strcmp(path, "-") == 0)
        return read_fd(0, "stdin", cancel, out, e);
    do { /* a FIFO without a writer waits here */
        fd = open(path, O_RDONLY | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR && !atomic_load(cancel));
    if (fd < 0 && errno == EINTR)
        return err_set(e, ST_CANCELLED, "interrupted");
    if (fd < 0)
        return err_set(e, ST_IO, "cannot open '%s': %s",
                       text_quote(quoted, sizeof quoted, path, strlen(path)), strerror(errno));
    st = read_fd(fd, path, cancel, out, e);
    close(fd);
    return st;
}

static bool is_dash(const struct source *s)
{
    return s->kind == SOURCE_WORD && strcmp(s->arg, "-") == 0;
}

enum status source_read(const struct source *s, const atomic_bool *cancel, struct text *out,
                        struct err *e)
{
    if (s->kind == SOURCE_FILE || is_dash(s))
        return read_file(s->arg, cancel, out, e);
    text_str(out, s->arg);
    return out->failed ? err_nomem(e, "the text", strlen(s->arg)) : ST_OK;
}

enum status prompt_read(struct prompt *p, struct cli *c, struct err *e)
{
    const struct options *o = c->opt;

    *p = (struct prompt){0};
    if (o->n_sources > 1)
        return err_set(e, ST_USAGE,
                       "the text comes from %d places, expected one of PROMPT, -p, -f, -",
                       o->n_sources);
    if (o->n_sources == 1) {
        const struct source *s = &o->sources[0];
        p->plain = s->kind == SOURCE_WORD;
        p->from_word = s->kind == SOURCE_TEXT || (s->kind == SOURCE_WORD && !is_dash(s));
        return source_read(s, c->cancel, &p->text, e);
    }
    if (isatty(0))
        return err_set(e, ST_USAGE,
                       "no text is given; try 'ggrun \"Tell me a story\"' or "
                       "'ggrun --help'");
    p->plain = true;
    return read_fd(0, "stdin", c->cancel, &p->text, e);
}

/* ---- ids ---- */

enum status text_encode(const struct cli *c, const struct vocab *v, const struct text *text,
                        unsigned flags, struct tokens *out, struct err *e)
{
    out->cancel = c->cancel;
    return vocab_encode(v, text->p ? text->p : "", text->n, flags, out, e);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Digits at p[*i..n) as an id; false when they are none or too many. */
static bool read_id(const char *p, size_t n, size_t *i, int32_t *id)
{
    size_t start = *i;
    int64_t v = 0;

    for (; *i < n && p[*i] >= '0' && p[*i] <= '9'; ++*i) {
        v = v * 10 + (p[*i] - '0');
        if (v > INT32_MAX)
            return false;
    }
    *id = (int32_t)v;
    return *i > start;
}

enum status ids_parse(struct tokens *out, const char *p, size_t n, struct err *e)
{
    bool in_list = false, after_id = false, after_comma = false;
    char quoted[64];
    size_t i = 0;

    while (i < n) {
        size_t at = i;
        int32_t id;
        if (is_blank(p[i])) {
            i++;
        } else if (p[i] == '[' && !in_list && !after_comma) {
            in_list = true;
            after_id = false;
            i++;
        } else if (p[i] == ']' && in_list && !after_comma) {
            in_list = after_id = false;
            i++;
        } else if (p[i] == ',' && after_id) {
            after_id = false;
            after_comma = true;
            i++;
        } else if (read_id(p, n, &i, &id)) {
            tokens_add(out, id);
            after_id = true;
            after_comma = false;
        } else {
            return err_set(e, ST_USAGE, "byte %zu of the ids is '%s', expected a token id", at,
                           text_quote(quoted, sizeof quoted, p + at, n - at));
        }
    }
    if (in_list || after_comma)
        return err_set(e, ST_USAGE, "the ids end in the middle of a list");
    return out->failed ? err_nomem(e, "ids", out->n * sizeof *out->id) : ST_OK;
}
