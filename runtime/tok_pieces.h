/*
 * Pieces as SentencePiece writes them: spaces are U+2581, a byte that no piece covers is a token like
 * "<0x0A>". Shared by the kinds that merge such pieces by score (tok_spm.c) and by rank (tok_raw.c).
 *
 * U+2581 in the user's text would become a space on the way back. Where the vocabulary has byte
 * tokens it is written as its three bytes, so that decoding gives exactly what was encoded;
 * SentencePiece and llama.cpp lose the difference. Source: Kudo and Richardson, "SentencePiece",
 * arXiv:1808.06226.
 */
#ifndef GGRUN_RUNTIME_TOK_PIECES_H
#define GGRUN_RUNTIME_TOK_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/tok.h"

#define PIECE_SPACE "\xe2\x96\x81" /* U+2581 */
enum { PIECE_SPACE_LEN = 3 };

struct pieces {
    int32_t byte_id[256]; /* VOCAB_NONE where there is none */
    bool keeps_space;     /* U+2581 itself can be written as bytes */
};

/* Find the byte tokens of `v`, by their text: some files forgot to say that they are bytes. */
void pieces_find(struct pieces *s, struct vocab *v);

/*
 * The text with its spaces replaced in w->buf, its symbols in w->merge: characters, and single bytes
 * where there is none. `prefix`: with a space in front. False: out of memory.
 */
bool pieces_cut(const struct pieces *s, struct tok_work *w, const char *text, size_t n,
                bool prefix);

/* Ids of the merged symbols: pieces, else bytes, else the unknown token, else ST_MODEL. */
enum status pieces_emit(const struct pieces *s, const struct vocab *v, const struct tok_work *w,
                        struct tokens *out, struct err *e);

/* Bytes of an ordinary piece: a tok_kind's `decode`. */
void pieces_decode(const struct vocab *v, struct gguf_str piece, struct text *out);

#endif
