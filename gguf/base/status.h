/*
 * Status codes and error texts.
 *
 * Every function that can fail for a reason outside the program (file, flag, machine, memory) returns
 * `enum status` and takes `struct err *e` last. The text is made where the facts are; callers put
 * context in front. `e` may be NULL: then only the code is returned. A violated contract between
 * parts of the program is an assert, never a status.
 */
#ifndef GGRUN_GGUF_BASE_STATUS_H
#define GGRUN_GGUF_BASE_STATUS_H

#include <stddef.h>

enum status {
    ST_OK,          /* done */
    ST_USAGE,       /* a flag, prompt or setting is wrong */
    ST_IO,          /* reading or writing failed */
    ST_MODEL,       /* the file is malformed or contradicts itself */
    ST_UNSUPPORTED, /* the file or request is well-formed but not something we can do */
    ST_NOMEM,       /* host or device memory */
    ST_DEVICE,      /* a device failed or is missing */
    ST_LIMIT,       /* stopped at the context limit */
    ST_CANCELLED,   /* the caller asked to stop (interrupt) */
};

struct err {
    enum status code;
    char msg[1024]; /* one sentence, no newline, no full stop; control bytes of names are escaped */
};

/* Set code and text; returns `code`, so that `return err_set(e, ST_MODEL, ...)` reads well. */
enum status err_set(struct err *e, enum status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Put "<text>: " in front of the message and keep the code. When both do not fit, the front is
 * shortened, never the reason. Returns e->code (ST_MODEL if e is NULL is never assumed: pass the
 * status along yourself in that case).
 */
enum status err_context(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ST_NOMEM with "not enough memory for <what>: <bytes>". */
enum status err_nomem(struct err *e, const char *what, size_t n_bytes);

/* Short name of a status ("usage", "model", ...), for logs and JSON. */
const char *status_name(enum status s);

#endif
