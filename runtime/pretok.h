/*
 * Pre-tokenizers: cutting text into words by regular expressions, before byte-level BPE merges
 * inside each word. A rule is one row of a table in pretok.c, chosen by `tokenizer.ggml.pre`.
 *
 * A rule has one or more patterns. Each is applied to every piece that the one before it left, as
 * if the piece were the whole text: a match becomes a piece, and so does what lies between two
 * matches. Every byte ends up in exactly one word.
 *
 * Patterns run in PCRE2 with limits, on memory that does not come from the C stack. Reaching a
 * limit is an error that names the byte position; a text is never cut or split otherwise because of
 * one.
 */
#ifndef GGRUN_RUNTIME_PRETOK_H
#define GGRUN_RUNTIME_PRETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gguf/base/status.h"
#include "gguf/base/text.h"

struct pretok_rule {
    const char *const
        *names; /* as in tokenizer.ggml.pre, NULL at the end; the first names the rule */
    const char *const *patterns; /* PCRE2 syntax, NULL at the end */
    bool ignore_merges;          /* a word that is a token is not merged from its bytes */
    bool add_bos;                /* default of tokenizer.ggml.add_bos_token */
    bool always_bos;             /* ... and what it says is ignored */
    bool raw;          /* pieces as SentencePiece writes them; no patterns, see tok_raw.c */
    bool whole_breaks; /* raw: a run of line breaks that is a token is not merged */
};

/* The rule that has this name, and the name as a C string in *as. NULL: not known. */
const struct pretok_rule *pretok_rule_find(const char *name, size_t n, const char **as);
size_t pretok_rule_count(void);
const struct pretok_rule *pretok_rule_at(size_t i);

/* Compiled patterns; immutable, may be shared by threads. */
struct pretok;
enum status pretok_new(struct pretok **out, const struct pretok_rule *r, struct err *e);
void pretok_free(struct pretok *p); /* NULL is fine */

struct pretok_limits {
    uint32_t match_base,
        match_per_byte;     /* PCRE2 match limit = base + per_byte * bytes of the text */
    uint32_t heap_kib;      /* KiB for backtracking without JIT */
    uint32_t jit_stack_kib; /* KiB at most for backtracking in JIT code; 0 = do not use JIT */
};

/* What one thread needs to match. `p` must outlive it; limits NULL: the usual ones. */
struct pretok_run;
enum status pretok_run_new(struct pretok_run **out, const struct pretok *p,
                           const struct pretok_limits *limits, struct err *e);
void pretok_run_free(struct pretok_run *r); /* NULL is fine */

typedef enum status pretok_word(void *ctx, const char *p, size_t n, struct err *e);

/*
 * Call `word` for each word of text[0..n) in order; a status other than ST_OK from it ends the
 * split and is returned. text must be valid UTF-8, NUL included. `at` is where it starts in the
 * user's text, for messages. ST_UNSUPPORTED: a limit was reached.
 */
enum status pretok_split(struct pretok_run *r, const char *text, size_t n, size_t at,
                         pretok_word *word, void *ctx, struct err *e);

#endif
