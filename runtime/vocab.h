/*
 * Vocabulary and tokenizer of a model: text -> token ids -> exact bytes.
 *
 * Loaded from the `tokenizer.ggml.*` keys. Everything needed later is checked and indexed here;
 * strings stay in the file's mapping where they can (an entry costs a pointer, not a copy). The
 * vocabulary must not outlive the struct gguf.
 *
 * Kinds, by `tokenizer.ggml.model`: SentencePiece-style BPE ("llama", tok_spm.c), byte-level BPE
 * ("gpt2", tok_bpe.c, pre-tokenized by PCRE2 patterns chosen by `tokenizer.ggml.pre`), pieces merged
 * by rank ("gemma4", tok_raw.c), WordPiece ("bert", tok_wpm.c) and Unigram ("t5", tok_ugm.c). A kind
 * is one file and one row in tok.h's table. "none" and a missing key give a vocabulary without text
 * (n_tokens known, encode and decode refused with ST_UNSUPPORTED).
 */
#ifndef GGRUN_RUNTIME_VOCAB_H
#define GGRUN_RUNTIME_VOCAB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gguf/base/status.h"
#include "gguf/base/text.h"
#include "gguf/reader.h"

#define VOCAB_NONE (-1) /* "no such token" */

enum token_type { /* numbered as in tokenizer.ggml.token_type */
                  TOK_UNDEFINED = 0,
                  TOK_NORMAL = 1,
                  TOK_UNKNOWN = 2,
                  TOK_CONTROL = 3,
                  TOK_USER_DEFINED = 4,
                  TOK_UNUSED = 5,
                  TOK_BYTE = 6,
};

struct vocab; /* opaque */

/*
 * Load from an open file. Errors: ST_MODEL (a key malformed or contradicting another),
 * ST_UNSUPPORTED (tokenizer model or `pre` value that we do not know, by name, with the list of
 * those we do).
 */
enum status vocab_load(struct vocab **out, const struct gguf *g, struct err *e);
void vocab_free(struct vocab *v); /* NULL is fine */

int32_t vocab_n_tokens(const struct vocab *v);
bool vocab_has_text(const struct vocab *v);    /* false for "none" */
const char *vocab_kind(const struct vocab *v); /* "spm", "bpe", "wpm", "ugm", "none" */
const char *vocab_pre(const struct vocab *v); /* pre-tokenizer's name, "default" if none is given */

int32_t vocab_bos(const struct vocab *v); /* VOCAB_NONE where absent, as all below */
int32_t vocab_eos(const struct vocab *v);
int32_t vocab_eot(const struct vocab *v);
bool vocab_add_bos(const struct vocab *v); /* the file's rule, or the kind's default */
bool vocab_add_eos(const struct vocab *v);
/* End of generation: EOS, EOT, EOM and the known end-of-turn markers (`<|im_end|>`, `<|eot_id|>`,
 * `<end_of_turn>`, ...), by id. */
bool vocab_is_eog(const struct vocab *v, int32_t id);

enum token_type vocab_type(const struct vocab *v, int32_t id);
/* The piece as written in the file (not decoded), for `info` and debugging. */
struct gguf_str vocab_piece(const struct vocab *v, int32_t id);
/* Id of the piece written exactly so in the file, or VOCAB_NONE. */
int32_t vocab_find(const struct vocab *v, const char *piece, size_t n);

struct tokens { /* a growing list of ids; sticky like struct text */
    int32_t *id;
    size_t n, cap;
    bool failed;
    const atomic_bool *cancel; /* encoding into it stops soon when this is set; NULL: never */
};
void tokens_add(struct tokens *t, int32_t id);
/* Room for n ids in all; false, and *t as it was, when there is none. */
bool tokens_reserve(struct tokens *t, size_t n);
void tokens_release(struct tokens *t);

enum {
    ENC_SPECIAL =
        1,       /* recognise control tokens written in the text (user-defined ones always are) */
    ENC_BOS = 2, /* put BOS in front when the file says so (vocab_add_bos) and the text does not
                    start with it already */
    ENC_EOS = 4, /* likewise EOS at the end (vocab_add_eos) */
};

/*
 * Append the ids of text[0..n) (any bytes, NUL included) to *out.
 * Never recurses, O(n log n). Bytes that no piece covers become byte tokens, else U+FFFD
 * (byte-level BPE, where it can be written), else the unknown token; with none of these, ST_MODEL.
 * WordPiece and Unigram normalise the text first, and know no byte tokens.
 * PCRE2's limits reached: ST_UNSUPPORTED naming the byte position, never a cut. A text of more than
 * 1 GiB: ST_UNSUPPORTED. Megabytes take a while: ST_CANCELLED when out->cancel was set meanwhile.
 */
enum status vocab_encode(const struct vocab *v, const char *text, size_t n, unsigned flags,
                         struct tokens *out, struct err *e);
/*
 * The same for a text of which some ranges (in order, apart) come from others than who wrote the
 * rest: no control token, end-of-turn marker or user-defined token that looks like one
 * (`<|...|>`, `<start_of_turn>`, `[INST]`) is recognised that has a byte in them. `plain` may be
 * NULL.
 */
enum status vocab_encode_mixed(const struct vocab *v, const char *text, size_t n,
                               const struct text_spans *plain, unsigned flags, struct tokens *out,
                               struct err *e);

/*
 * Exact bytes of tokens. A token's bytes can depend on whether it is the first of the text (the
 * space that SentencePiece-style vocabularies put in front, and behind a special token that is
 * written out, is taken off again), so decoding is a stream. struct detok d; detok_init(&d, v,
 * special);          special: also write control tokens as their text detok_add(&d, id, &text);
 * appends the token's bytes; may end inside a UTF-8 sequence detok_add of an id outside the
 * vocabulary: ST_USAGE. The caller prints text up to utf8_complete() and keeps the rest.
 */
struct detok {
    const struct vocab *v;
    bool special;
    bool started; /* a text token was written already */
};
void detok_init(struct detok *d, const struct vocab *v, bool special);
/* Continue a text whose first `n` ids were written elsewhere (the prompt): no leading space is
 * taken. */
void detok_resume(struct detok *d);
enum status detok_add(struct detok *d, int32_t id, struct text *out, struct err *e);

#endif
