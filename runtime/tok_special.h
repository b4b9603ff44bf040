/*
 * Finding special tokens in a text: user-defined tokens always, control and unknown tokens on
 * demand.
 *
 * The order decides where tokens overlap: longer tokens are taken first wherever they stand,
 * equally long ones by their id, the same token from left to right. (Not leftmost first: with
 * tokens "xab" and "abcd", the text "xabcd" is x + abcd.) This is the order of llama.cpp, whose ids
 * we must meet; it goes over the text once per token, we walk a trie from every position and settle
 * overlaps with a heap, so a vocabulary with thousands of user-defined tokens costs no more than
 * one with three.
 */
#ifndef GGRUN_RUNTIME_TOK_SPECIAL_H
#define GGRUN_RUNTIME_TOK_SPECIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gguf/base/status.h"
#include "gguf/base/text.h"

struct vocab;
struct special; /* the trie; immutable after special_new */

struct special_hit {
    uint32_t pos, len; /* bytes of the text that the token covers */
    uint32_t end; /* where text goes on: pos + len and the white space that the token swallows */
    int32_t id;
};

struct special_hits { /* in text order */
    struct special_hit *hit;
    size_t n;
};

/* Pieces, types and flags of `v` must be final. A piece longer than 4096 bytes: ST_UNSUPPORTED. */
enum status special_new(struct special **out, const struct vocab *v, struct err *e);
void special_free(struct special *s);

/*
 * `control`: take control and unknown tokens too, but none with a byte in a range of `plain` (may be
 * NULL), nor user-defined ones there that look like them (TOKF_LIKE_CONTROL). n is at most
 * TOK_TEXT_MAX.
 */
enum status special_find(const struct special *s, const char *text, size_t n, bool control,
                         const struct text_spans *plain, struct special_hits *out, struct err *e);
void special_hits_release(struct special_hits *h);

#endif
