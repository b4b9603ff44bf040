/*
 * Texts and token ids from the command line, files and stdin.
 */
#ifndef GGRUN_CLI_PROMPT_H
#define GGRUN_CLI_PROMPT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "cli/cli.h"
#include "gguf/base/status.h"
#include "gguf/base/text.h"
#include "runtime/vocab.h"

struct prompt {
    struct text text; /* exact bytes, NUL included */
    bool plain;       /* a PROMPT word, or stdin taken because nothing was given */
    bool from_word;   /* stands on the command line (PROMPT, -p) rather than in a file */
};

/* The bytes of one source. Files, pipes and stdin are read to their end. */
enum status source_read(const struct source *s, const atomic_bool *cancel, struct text *out,
                        struct err *e);

/*
 * The one text that a command works on: ST_USAGE when there are several. Without any, stdin is
 * read; if that is a terminal, ST_USAGE with a hint. Released with text_release(&p->text), after a
 * failure too.
 */
enum status prompt_read(struct prompt *p, struct cli *c, struct err *e);

/* Append the ids of a text; a signal ends it with ST_CANCELLED. */
enum status text_encode(const struct cli *c, const struct vocab *v, const struct text *text,
                        unsigned flags, struct tokens *out, struct err *e);

/*
 * Ids out of "1, 2, 3", "1 2 3", "[1,2,3]" or several such lists one after the other. ST_USAGE
 * naming the place of what is no id.
 */
enum status ids_parse(struct tokens *out, const char *p, size_t n, struct err *e);

#endif
