/*
 * Private to chat*.c: families of chat templates, and the normal form in which a template of a
 * file is compared with them.
 */
#ifndef GGRUN_RUNTIME_CHAT_IMPL_H
#define GGRUN_RUNTIME_CHAT_IMPL_H

#include <stdbool.h>
#include <stddef.h>

#include "gguf/base/status.h"
#include "gguf/base/text.h"

/*
 * Normal form of a template: literal text as it is; "\1" statement "\2"; "\3" expression "\2",
 * where string literals that are added to something have become literal text. Runs of space in
 * code are one, strings there are in single quotes, .role and .content are ['role'] and
 * ['content']. In a known form, "\4" stands for any literal text: the default system message.
 */
#define FORM_STMT(s) "\1" s "\2"
#define FORM_EXPR(s) "\3" s "\2"
#define FORM_TEXT    "\4"

/* Is this byte one of the marks above, or the end of the text? */
static inline bool form_is_mark(char c)
{
    return (unsigned char)c <= 4;
}

/*
 * Append the normal form of template p[0..n). ST_UNSUPPORTED when it is not a well-formed template,
 * saying where: a tag or string that does not end, a statement that is not known, blocks that are
 * not closed.
 */
enum status chat_form(const char *p, size_t n, struct text *out, struct err *e);

/*
 * One family. In the patterns:
 *   %r  role                    %c  content        %t  content without white space at its ends
 *   %T  as %t, but where a system message stands in front only the end is stripped
 *   %s  (in `user`) the system message, as `system` says; it then has no place of its own
 *   %b  BOS, but not in front of everything: the tokenizer puts that one       %e  EOS
 */
struct chat_family {
    const char *name;
    const char
        *has[4]; /* recognised by: all of these stand in the normal form; none: by name only */
    const char *lacks;                     /* and this does not; NULL: nothing */
    const char *start;                     /* in front of the conversation; NULL: nothing */
    const char *system, *user, *assistant; /* one message */
    const char *answer;                    /* starts the assistant's message */
    bool system_last; /* %s is for the last request, not for the first behind the system message */
};

/* In the order in which a template is compared with them; families with the same name stand
 * together. */
extern const struct chat_family chat_families[];
extern const size_t n_chat_families;

#endif
