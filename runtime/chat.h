/*
 * Chat templates: from messages to the text that a model was trained on.
 *
 * A template in a file is a program; we do not run it but recognise it. It is brought into a normal
 * form (spacing, quotes, escapes, `a.b` or `a['b']`), which fails for what is no template or a
 * damaged one. It is then one of a few forms known to the byte (ChatML's, `exact`), or has the
 * marks of a family in chat_families.c and is rendered as that family's published template does. Two
 * things are taken from the template itself, so that variants of a family come out right: a default
 * system message, and what starts an answer (`<think>` and the like).
 */
#ifndef GGRUN_RUNTIME_CHAT_H
#define GGRUN_RUNTIME_CHAT_H

#include <stdbool.h>
#include <stddef.h>

#include "gguf/base/status.h"
#include "gguf/base/text.h"
#include "gguf/reader.h"

struct chat_family; /* a row of the table in chat_families.c */

struct chat {
    const struct chat_family *family;
    struct text system; /* written when the first message is not a system message; empty = none */
    struct text answer; /* starts an answer; empty = as the family does */
    bool exact;         /* chosen by name, or the template is known to the byte */
    bool wants_bos;     /* the template writes BOS, whatever the vocabulary's rule */
    struct gguf_str bos, eos; /* pieces of the vocabulary, for the caller to set; empty: none */
};

struct chat_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
    size_t n_content;
};

/*
 * By name (then without a default system message) or, with name NULL, by the template in the file.
 * Unknown name: ST_USAGE listing the names. No template in the file, or one not recognised:
 * ST_UNSUPPORTED saying to give --chat-template NAME. *out is released with chat_release, after a
 * failure too.
 */
enum status chat_find(struct chat *out, const char *name, const struct gguf *g, struct err *e);
/* The same for a template's text (any bytes). */
enum status chat_recognise(struct chat *out, const char *template, size_t n, struct err *e);
void chat_release(struct chat *c); /* a zeroed one is fine */

const char *chat_family_name(const struct chat_family *f);

/*
 * Append the rendered messages, and the start of the assistant's answer when `generate`. BOS at the
 * start of the conversation is left to the tokenizer. `content` (may be NULL) gets the ranges of
 * *out that are content of messages and must not be read as marks of the template. ST_UNSUPPORTED:
 * a role other than the three, or system messages that the family has no place for.
 */
enum status chat_render(const struct chat *c, const struct chat_message *m, size_t n, bool generate,
                        struct text *out, struct text_spans *content, struct err *e);

#endif
