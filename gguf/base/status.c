#include "gguf/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gguf/base/text.h"

/* vsnprintf that does not leave half a UTF-8 sequence where it had to stop; returns the length. */
__attribute__((format(printf, 3, 0), nonnull)) static size_t
print(char *out, size_t n_out, const char *fmt, va_list ap)
{
    int n = vsnprintf(out, n_out, fmt, ap);
    size_t used = strlen(out);

    if (n >= 0 && (size_t)n >= n_out) {
        used = utf8_complete(out, used);
        out[used] = 0;
    }
    return used;
}

enum status err_set(struct err *e, enum status code, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return code;
    e->code = code;
    va_start(ap, fmt);
    print(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    return code;
}

enum status err_context(struct err *e, const char *fmt, ...)
{
    char front[sizeof e->msg];
    size_t n_front, n_msg;
    va_list ap;

    if (!e)
        return ST_MODEL;
    va_start(ap, fmt);
    n_front = print(front, sizeof front, fmt, ap);
    va_end(ap);
    n_msg = strlen(e->msg);
    if (n_front + 2 + n_msg + 1 > sizeof e->msg) {
        size_t room = sizeof e->msg - 1 - n_msg;
        if (room < 8)
            return e->code;
        n_front = utf8_complete(front, room - 5);
        memcpy(front + n_front, "...", 3);
        n_front += 3;
    }
    memmove(e->msg + n_front + 2, e->msg, n_msg + 1);
    memcpy(e->msg, front, n_front);
    memcpy(e->msg + n_front, ": ", 2);
    return e->code;
}

enum status err_nomem(struct err *e, const char *what, size_t n_bytes)
{
    char size[32];

    return err_set(e, ST_NOMEM, "not enough memory for %s: %s", what,
                   text_size(size, sizeof size, n_bytes));
}

const char *status_name(enum status s)
{
    static const char *const names[] = {
        [ST_OK] = "ok",       [ST_USAGE] = "usage",
        [ST_IO] = "io",       [ST_MODEL] = "model",
        [ST_NOMEM] = "nomem", [ST_UNSUPPORTED] = "unsupported",
        [ST_LIMIT] = "limit", [ST_DEVICE] = "device",
        [ST_CANCELLED] = "cancelled",
    };

    return (unsigned)s < sizeof names / sizeof names[0] ? names[s] : "?";
}
