#include "cli/out.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "gguf/base/mem.h"

uint64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

void out_init(struct out *o, const atomic_bool *cancel)
{
    const char *term = getenv("TERM");

    *o = (struct out){.cancel = cancel};
    o->bar = isatty(2) && term && *term && strcmp(term, "dumb") != 0;
}

/* ---- stdout ---- */

/* All of it, or errno. A signal that asks to stop ends a write that blocks. */
static int write_all(int fd, const void *p, size_t n, const atomic_bool *cancel)
{
    const char *s = p;

    while (n) {
        ssize_t k = write(fd, s, n);
        if (k < 0 && errno == EINTR && !(cancel && atomic_load(cancel)))
            continue;
        if (k < 0)
            return errno;
        s += k;
        n -= (size_t)k;
    }
    return 0;
}

enum status out_write(struct out *o, const void *p, size_t n, struct err *e)
{
    int error;

    if (!n)
        return ST_OK;
    out_progress_end(o);
    error = write_all(1, p, n, o->cancel);
    if (error == EINTR)
        return err_set(e, ST_CANCELLED, "interrupted");
    if (error) {
        o->reader_gone = error == EPIPE;
        o->answer_open = false;
        return err_set(e, ST_IO, "cannot write to stdout: %s", strerror(error));
    }
    o->answer_open = ((const char *)p)[n - 1] != '\n';
    return ST_OK;
}

enum status out_text(struct out *o, struct text *t, struct err *e)
{
    enum status st = t->failed ? err_nomem(e, "output", t->n) : out_write(o, t->p, t->n, e);

    text_release(t);
    return st;
}

enum status out_json(struct out *o, cJSON *j, bool compact, struct err *e)
{
    char *s = j ? compact ? cJSON_PrintUnformatted(j) : cJSON_Print(j) : NULL;
    struct text t = {0};

    cJSON_Delete(j);
    if (!s)
        return err_nomem(e, "JSON output", 0);
    text_str(&t, s);
    text_byte(&t, '\n');
    cJSON_free(s);
    return out_text(o, &t, e);
}

cJSON *json_string(const void *p, size_t n)
{
    const char *s = p;
    struct text t = {0};
    cJSON *j;

    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        size_t k = utf8_decode(s + i, n - i, &cp);
        if (k && cp)
            text_bytes(&t, s + i, k);
        else
            text_str(&t, "\xef\xbf\xbd");
        i += k ? k : 1;
    }
    j = t.failed ? NULL : cJSON_CreateString(t.p ? t.p : "");
    text_release(&t);
    return j;
}

/* ---- stderr ---- */

/* Failures to write are not reported: there is nowhere left to do so. */
static void err_write(const struct text *t)
{
    if (!t->failed)
        (void)!write_all(2, t->p, t->n, NULL);
}

/* One line, whatever is in it. */
static void put_line(struct out *o, const char *front, const char *line)
{
    struct text t = {0};

    out_progress_end(o);
    text_str(&t, front);
    for (const char *p = line; *p; p++)
        text_byte(&t, ((unsigned char)*p < 0x20 && *p != '\t') || *p == 0x7f ? '?' : *p);
    text_byte(&t, '\n');
    err_write(&t);
    text_release(&t);
}

void out_note(struct out *o, const char *fmt, ...)
{
    char line[1024];
    va_list ap;

    if (o->quiet)
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    put_line(o, "ggrun: ", line);
}

void out_line(struct out *o, const char *fmt, ...)
{
    char line[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    put_line(o, "", line);
}

void out_error(struct out *o, const struct err *e)
{
    put_line(o, "ggrun: ", e->msg);
}

void out_log(void *ctx, enum log_level level, const char *line)
{
    struct out *o = ctx;

    if (level == LOG_DEBUG)
        put_line(o, "", line);
    else if (level == LOG_WARN && !o->quiet)
        put_line(o, "ggrun: warning: ", line);
    else if (level == LOG_NOTE ? !o->quiet : level == LOG_INFO && o->verbose)
        put_line(o, "ggrun: ", line);
}

enum { BAR_CELLS = 24, BAR_DELAY_US = 150000 };

void out_progress(struct out *o, const char *what, double share)
{
    struct text t = {0};
    int full;

    if (!o->bar || o->quiet)
        return;
    if (share <= 0)
        o->bar_since_us = now_us();
    if (!o->bar_width && now_us() - o->bar_since_us < BAR_DELAY_US)
        return;
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    full = (int)(share * BAR_CELLS);
    text_addf(&t, "\r%-10s [", what);
    for (int i = 0; i < BAR_CELLS; i++)
        text_byte(&t, i < full ? '#' : '.');
    text_addf(&t, "] %3d%%", (int)(share * 100));
    if (!t.failed)
        o->bar_width = (int)t.n - 1;
    err_write(&t);
    text_release(&t);
}

void out_progress_end(struct out *o)
{
    char line[128];

    if (!o->bar_width)
        return;
    (void)!write_all(2, line, (size_t)snprintf(line, sizeof line, "\r%*s\r", o->bar_width, ""),
                     NULL);
    o->bar_width = 0;
    o->bar_since_us = now_us();
}

/* ---- files ---- */

static enum status file_error(const char *what, const char *path, struct err *e)
{
    char quoted[192];
    int error = errno;

    return err_set(e, ST_IO, "cannot %s '%s': %s", what,
                   text_quote(quoted, sizeof quoted, path, strlen(path)), strerror(error));
}

enum status out_file_open(struct out_file *f, const char *path, struct err *e)
{
    struct stat sb;
    mode_t mask;
    bool there;

    *f = (struct out_file){.fd = -1};
    if (strcmp(path, "-") == 0) {
        f->fd = 1;
        f->is_stdout = true;
        return ST_OK;
    }
    there = stat(path, &sb) == 0;
    if (there && !S_ISREG(sb.st_mode)) {
        f->fd = open(path, O_WRONLY | O_CLOEXEC);
        if (f->fd < 0)
            return file_error("write to", path, e);
        f->path = mem_strdup(path);
        return f->path ? ST_OK : err_nomem(e, "file name", strlen(path));
    }
    if (there) { /* through symbolic links, so that the link stays one */
        char *real = realpath(path, NULL);
        f->path = real ? mem_strdup(real) : NULL;
        free(real);
    } else {
        f->path = mem_strdup(path);
    }
    f->tmp = f->path ? mem_alloc(strlen(f->path) + sizeof ".XXXXXX") : NULL;
    if (!f->tmp)
        return err_nomem(e, "file name", strlen(path));
    sprintf(f->tmp, "%s.XXXXXX", f->path);
    f->fd = mkstemp(f->tmp);
    if (f->fd < 0) {
        mem_free(f->tmp);
        f->tmp = NULL;
        return file_error("create", path, e);
    }
    mask = umask(0);
    umask(mask);
    fchmod(f->fd, there ? sb.st_mode & 07777 : 0666 & ~mask);
    return ST_OK;
}

enum status out_file_write(struct out_file *f, struct out *o, const void *p, size_t n,
                           struct err *e)
{
    int error;

    if (f->is_stdout)
        return out_write(o, p, n, e);
    error = write_all(f->fd, p, n, o->cancel);
    if (error == EINTR)
        return err_set(e, ST_CANCELLED, "interrupted");
    if (error == EPIPE)
        o->reader_gone = true;
    errno = error;
    return error ? file_error("write to", f->path, e) : ST_OK;
}

enum status out_file_commit(struct out_file *f, struct err *e)
{
    int fd = f->fd;

    if (f->is_stdout)
        return ST_OK;
    f->fd = -1;
    if (close(fd) != 0)
        return file_error("write to", f->path, e);
    if (f->tmp && rename(f->tmp, f->path) != 0)
        return file_error("rename to", f->path, e);
    mem_free(f->tmp);
    f->tmp = NULL;
    return ST_OK;
}

void out_file_release(struct out_file *f)
{
    if (f->fd > 2)
        close(f->fd);
    if (f->tmp)
        unlink(f->tmp);
    mem_free(f->tmp);
    mem_free(f->path);
    *f = (struct out_file){.fd = -1};
}
