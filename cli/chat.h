/*
 * A request put into a chat template: what --chat, --system and --chat-template ask for.
 */
#ifndef GGRUN_CLI_CHAT_H
#define GGRUN_CLI_CHAT_H

#include "cli/setup.h"
#include "runtime/chat.h"

/* The option that asks for a chat, as it was typed ("--system"); NULL: none does. */
const char *chat_option(const struct options *o);

/* Pieces that a template writes, from the vocabulary (may be NULL: none). */
void chat_set_pieces(struct chat *c, const struct vocab *v);

/*
 * Append the ids of a conversation: --system, then the request. The template comes from
 * --chat-template (a name, a template's text, or a file's path) or from the file. Marks are taken
 * from the template alone: what stands in the messages is text. Needs file and vocabulary.
 */
enum status chat_encode(struct setup *s, const struct text *request, struct tokens *out,
                        struct err *e);

#endif
