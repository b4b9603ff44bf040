/*
 * Tokenizer kinds: what vocab.c and the files tok_<kind>.c know of each other. Not for others: they
 * use runtime/vocab.h.
 *
 * vocab.c owns what all kinds share: the pieces and their index, types, special ids, the cutting of
 * a text at special tokens, byte and special tokens when decoding. A kind turns one stretch of
 * ordinary text into ids, and the piece of an ordinary token into bytes.
 *
 * To add a kind: a file tok_<name>.c that defines `const struct tok_kind tok_<name>`, and a row
 * here.
 */
#ifndef GGRUN_RUNTIME_TOK_H
#define GGRUN_RUNTIME_TOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "gguf/base/status.h"
#include "gguf/base/text.h"
#include "gguf/reader.h"
#include "runtime/tok_merge.h"
#include "runtime/vocab.h"

#define TOK_KINDS(X)                                                                               \
    X(spm)                                                                                         \
    X(bpe)                                                                                         \
    X(raw)                                                                                         \
    X(wpm)                                                                                         \
    X(ugm)

#define TOK_TEXT_MAX ((size_t)1 << 30) /* bytes of one text; offsets of its symbols are 32 bits */

/* What one call of vocab_encode needs and its text fragments share. Zero is a valid start. */
struct tok_work {
    const char *base; /* start of the caller's text: byte positions in messages count from here */
    struct merge merge;
    struct text buf;
    struct pretok_run *run;
};

struct tok_kind {
    const char *model; /* value of tokenizer.ggml.model */
    const char *name;
    bool add_bos, add_eos, add_space_prefix; /* rules when the file gives none */
    const char *bos_key2;                    /* where BOS is if bos_token_id is missing; or NULL */
    const char *eos_key;                     /* where EOS is; NULL: eos_token_id */
    const char *bos_piece, *eos_piece,
        *unk_piece; /* found by text when their key is missing; or NULL */

    /* Build v->data and, when the kind knows better, v->pre, v->add_bos and v->kind itself. Pieces and
     * types are there. */
    enum status (*load)(struct vocab *v, const struct gguf *g, struct err *e);
    void (*unload)(struct vocab *v); /* v->data may be NULL or half built */
    /* Ids of text[0..n), n > 0, without special tokens; `prefix`: put a space in front (never asked
     * of a kind whose add_space_prefix is false). */
    enum status (*encode)(const struct vocab *v, struct tok_work *w, const char *text, size_t n,
                          bool prefix, struct tokens *out, struct err *e);
    /* Bytes of an ordinary token's piece. */
    void (*decode)(const struct vocab *v, struct gguf_str piece, struct text *out);
};

#define TOK_DECLARE(name) extern const struct tok_kind tok_##name;
TOK_KINDS(TOK_DECLARE)
#undef TOK_DECLARE

struct vocab_slot { /* open addressing, power of two, never full */
    uint32_t tag;   /* high half of the piece's hash */
    uint32_t ref;   /* id + 1; 0 = free */
};

enum {                /* v->info: a token type and flags */
       TOKF_TYPE = 7, /* mask */
       TOKF_EOG = 8,
       TOKF_RSTRIP = 16, /* in a text it swallows the white space behind it */
       TOKF_LSTRIP = 64, /* ... in front of it */
       TOKF_MARKER = 32, /* a known end-of-turn marker that the file calls ordinary */
       TOKF_LIKE_CONTROL = 64, /* user-defined, but written like a mark of a chat template */
};

struct vocab {
    const struct tok_kind *kind; /* NULL: no text */
    const char *pre;
    int32_t n_tokens;
    struct gguf_str *piece; /* [n_tokens], pointing into the file */
    uint8_t *info;          /* [n_tokens] TOKF_ */
    bool has_types;         /* the file says types */
    size_t max_piece;       /* bytes of the longest piece */
    struct vocab_slot *slot;
    size_t slot_mask;
    int32_t bos, eos, eot, eom, unk;
    bool add_bos, add_eos, add_space_prefix;
    bool always_bos; /* whatever the file says */
    struct special *special;
    void *data; /* the kind's */
};

static inline enum token_type tok_type(const struct vocab *v, int32_t id)
{
    return (enum token_type)(v->info[id] & TOKF_TYPE);
}

/* Tokens that stand for themselves in a text and are never pieced together from its letters. */
static inline bool tok_is_special(enum token_type t)
{
    return t == TOK_CONTROL || t == TOK_USER_DEFINED || t == TOK_UNKNOWN;
}

/* Tokens that a text is cut at; only user-defined ones also where control tokens are not wanted. */
static inline bool tok_stands_alone(const struct vocab *v, int32_t id)
{
    return tok_is_special(tok_type(v, id)) || v->info[id] & TOKF_MARKER;
}

/* ASCII white space, which some special tokens swallow. */
static inline bool tok_is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/*
 * Id of the token that ordinary text p[0..n) may become, or VOCAB_NONE: like vocab_find, but never
 * a control, unknown or byte token, which text must not be able to forge.
 */
int32_t tok_find_text(const struct vocab *v, const char *p, size_t n);

/*
 * For loading many strings at once: bring in the memory that tok_may_find(v, hash) will look at.
 * Tables are larger than the caches near the core; asked for ahead, their lines arrive in parallel.
 */
enum { TOK_AHEAD = 16 }; /* strings hashed ahead of their look-up */
static inline void tok_prefetch(const struct vocab *v, uint64_t hash)
{
    __builtin_prefetch(&v->slot[hash & v->slot_mask]);
}

/* Whether a piece has this hash: false is certain, true fails once in 2^32 and more. */
static inline bool tok_may_find(const struct vocab *v, uint64_t hash)
{
    for (size_t i = hash & v->slot_mask; v->slot[i].ref; i = (i + 1) & v->slot_mask)
        if (v->slot[i].tag == (uint32_t)(hash >> 32))
            return true;
    return false;
}

/* The byte that a piece like "<0x0A>" names, or -1. */
int tok_byte_piece(struct gguf_str piece);

/*
 * Array `key` whose elements are strings (ints, numbers with GGUF_I32, GGUF_F32). `n`: wanted
 * number of elements, 0 = any but none. Absent: ST_MODEL if required, else ST_OK and *out NULL.
 */
enum status tok_get_array(const struct gguf *g, const char *key, enum gguf_type elem, uint64_t n,
                          bool required, const struct gguf_kv **out, struct err *e);

/*
 * Hash of a byte string, 64 bits, same on every little-endian machine. Eight bytes a step, each
 * folded by a widening multiplication; the last step reads the last eight bytes, overlapping the
 * one before. Pieces are short, and a vocabulary of 262,144 with 500,000 merges is hashed at every
 * start.
 */
static inline uint64_t tok_mix(uint64_t x)
{
    unsigned __int128 m = (unsigned __int128)(x ^ 0x6a09e667f3bcc909u) * 0x9e3779b97f4a7c15u;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static inline uint64_t tok_read(const char *p,
                                size_t n) /* all of n <= 8 bytes, each at least once */
{
    const unsigned char *u = (const unsigned char *)p;
    uint64_t w = 0;
    uint32_t lo, hi;

    if (n == 8) {
        memcpy(&w, p, 8);
    } else if (n >= 4) {
        memcpy(&lo, p, 4);
        memcpy(&hi, p + n - 4, 4);
        w = lo | (uint64_t)hi << 32;
    } else if (n) {
        w = u[0] | (uint64_t)u[n / 2] << 8 | (uint64_t)u[n - 1] << 16;
    }
    return w;
}

static inline uint64_t tok_hash(const char *p, size_t n)
{
    uint64_t h = n * 0xd6e8feb86659fd93u;

    if (n <= 8)
        return tok_mix(h ^ tok_read(p, n));
    for (size_t i = 0; i + 8 < n; i += 8)
        h = tok_mix(h ^ tok_read(p + i, 8));
    return tok_mix(h ^ tok_read(p + n - 8, 8));
}

/* Hash of the pair (left, right). */
static inline uint64_t tok_hash_pair(uint64_t left, uint64_t right)
{
    return tok_mix(left * 3 + tok_mix(right));
}

#endif
