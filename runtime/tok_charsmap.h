/*
 * A precompiled character map (`tokenizer.ggml.precompiled_charsmap`), as SentencePiece writes it: a
 * double-array trie of byte strings, and what each is replaced by.
 *
 *     u32 n         bytes of the array, little-endian
 *     u32 unit[]    n / 4 units; see below
 *     char text[]   replacements, each ended by a NUL
 *
 * Unit, as Darts-clone packs it:
 *     31       30..10          9        8     7..0
 *     value    offset          shift    leaf  label
 * The child of node i by byte c is i ^ offset(i) ^ c, where its label must be c; offset is bits 30..10,
 * shifted left by 8 if bit 9 is set. With `leaf`, the unit at i ^ offset(i) holds bits 30..0 of a
 * value: where in `text` the replacement of the string up to here starts.
 * Source: Kudo and Richardson, arXiv:1808.06226; Yata, "Darts-clone", its description of units.
 */
#ifndef GGRUN_RUNTIME_TOK_CHARSMAP_H
#define GGRUN_RUNTIME_TOK_CHARSMAP_H

#include <stddef.h>
#include <stdint.h>

#include "gguf/base/status.h"
#include "gguf/reader.h"

struct charsmap {              /* zero maps nothing */
    const unsigned char *unit; /* possibly unaligned, in the file */
    size_t n_unit;
    const char *text;
    size_t n_text;
};

/* From the key's value; ST_MODEL: its type, or sizes that contradict each other. */
enum status charsmap_init(struct charsmap *m, const struct gguf *g, const char *key, struct err *e);

/*
 * The longest string at p[0..n) that the map has: its bytes in *len (0: none) and its replacement. ST_MODEL: the
 * array points out of itself or of the texts, or never ends.
 */
enum status charsmap_find(const struct charsmap *m, const char *p, size_t n, size_t *len,
                          struct gguf_str *replacement, struct err *e);

#endif
