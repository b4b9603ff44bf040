/*
 * Chat templates: from messages to the text that a model was trained on.
 *
 * A template in a file is a program; we do not run it but recognise it. It is brought into a normal
 * form (spacing, quotes, escapes, `a.b` or `a['b']`) and must then be one of the forms that we
 * know, so that a changed, damaged or merely similar template is refused and never guessed at.
 *
 * One family so far: ChatML, `<|im_start|>ROLE\nTEXT<|im_end|>\n`, also with a default system
 * message.
 */
#ifndef GGRUN_RUNTIME_CHAT_H
#define GGRUN_RUNTIME_CHAT_H

#include <stdbool.h>
#include <stddef.h>

#include "gguf/base/status.h"
#include "gguf/base/text.h"
#include "gguf/reader.h"

struct chat_family; /* a row of the table in chat.c */

struct chat {
    const struct chat_family *family;
    struct text system; /* written when the first message is not a system message; empty = none */
};

struct chat_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
    size_t n_content;
};

/*
 * By name ("chatml": without a default system message) or, with name NULL, by the template in the
 * file. Unknown name: ST_USAGE listing the names. No template in the file, or one not recognised:
 * ST_UNSUPPORTED saying to give --chat-template NAME. *out is released with chat_release, after a
 * failure too.
 */
enum status chat_find(struct chat *out, const char *name, const struct gguf *g, struct err *e);
/* The same for a template's text (any bytes). */
enum status chat_recognise(struct chat *out, const char *template, size_t n, struct err *e);
void chat_release(struct chat *c); /* a zeroed one is fine */

const char *chat_family_name(const struct chat_family *f);
/* Append the rendered messages, and the start of the assistant's answer when `generate`. */
enum status chat_render(const struct chat *c, const struct chat_message *m, size_t n, bool generate,
                        struct text *out, struct err *e);

#endif
