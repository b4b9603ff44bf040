/*
 * Chat templates: from messages to the text that a model was trained on.
 *
 * The family is recognised by the template's text in the file (tokenizer.chat_template). One family so far:
 * ChatML. A template that is not recognised is an error that says how to choose, never a guess.
 */
#ifndef GGRUN_RUNTIME_CHAT_H
#define GGRUN_RUNTIME_CHAT_H

#include <stdbool.h>
#include <stddef.h>

#include "gguf/base/status.h"
#include "gguf/base/text.h"
#include "gguf/reader.h"

struct chat_family; /* a row of the table in chat.c */

struct chat_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
    size_t n_content;
};

/*
 * By name ("chatml") or, with name NULL, by the template in the file. Unknown name: ST_USAGE listing the
 * names; no template in the file, or one not recognised: ST_UNSUPPORTED saying to give --chat-template NAME.
 */
enum status chat_find(const struct chat_family **out, const char *name, const struct gguf *g,
                      struct err *e);
const char *chat_family_name(const struct chat_family *f);
/* Append the rendered messages, and the start of the assistant's answer when `generate`. */
enum status chat_render(const struct chat_family *f, const struct chat_message *m, size_t n,
                        bool generate, struct text *out, struct err *e);

#endif
