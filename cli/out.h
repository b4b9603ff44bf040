/*
 * What the program writes. stdout carries what was asked for, byte for byte and unbuffered; stderr
 * carries messages, progress and diagnostics. Escape codes and carriage returns go to a terminal
 * only.
 */
#ifndef GGRUN_CLI_OUT_H
#define GGRUN_CLI_OUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gguf/base/log.h"
#include "gguf/base/status.h"
#include "gguf/base/text.h"

struct cJSON;

struct out {
    const atomic_bool *cancel;
    bool quiet; /* nothing on stderr but errors and what was asked for */
    bool verbose;
    bool bar;              /* stderr is a terminal that understands a carriage return */
    bool reader_gone;      /* writing to stdout gave EPIPE: end quietly */
    bool answer_open;      /* something was written to stdout and its last byte is no newline */
    int bar_width;         /* columns that the bar takes now; 0: it is not shown */
    uint64_t bar_since_us; /* when its phase began */
};

void out_init(struct out *o, const atomic_bool *cancel);

/* ---- stdout ---- */

/* ST_IO on failure, with reader_gone set for EPIPE; ST_CANCELLED when interrupted while it blocks. */
enum status out_write(struct out *o, const void *p, size_t n, struct err *e);
/* Write and release; ST_NOMEM when the text failed to grow. */
enum status out_text(struct out *o, struct text *t, struct err *e);
/* Print and delete; NULL is ST_NOMEM. compact: on one line. */
enum status out_json(struct out *o, struct cJSON *j, bool compact, struct err *e);

/* A string for JSON: invalid UTF-8 becomes U+FFFD, bytes 0 too (the format's writer cannot hold
 * them). */
struct cJSON *json_string(const void *p, size_t n);

/* ---- stderr ---- */

/* "ggrun: ..." unless --quiet. */
void out_note(struct out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Lines as they are, newline added: --stats, --dump-node. Not silenced. */
void out_line(struct out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void out_error(struct out *o, const struct err *e);
/* A log_sink whose ctx is a struct out. */
void out_log(void *ctx, enum log_level level, const char *line);

/* Show how much of a phase is done; appears only when the phase takes a while. share 0 starts it. */
void out_progress(struct out *o, const char *what, double share);
void out_progress_end(struct out *o);

/* ---- files ---- */

/*
 * A file that appears under its name only when it is complete: written under a temporary name
 * beside it, then renamed. "-" and what is no regular file (a pipe, /dev/stdout, /dev/null) is
 * written directly.
 */
struct out_file {
    char *path, *tmp; /* owned; tmp NULL: written directly */
    int fd;           /* -1 when closed */
    bool is_stdout;
};

enum status out_file_open(struct out_file *f, const char *path, struct err *e);
enum status out_file_write(struct out_file *f, struct out *o, const void *p, size_t n,
                           struct err *e);
enum status out_file_commit(struct out_file *f, struct err *e);
/* Removes what was not committed. A zeroed one (fd 0, path NULL) is fine. */
void out_file_release(struct out_file *f);

/* ---- time ---- */

uint64_t now_us(void); /* monotonic */

#endif
