/*
 * WordPiece (`tokenizer.ggml.model` = "bert"): the text is cleaned and cut into words, and each word
 * into the longest pieces from left to right. A word that cannot be cut so is the unknown token.
 *
 * Files write the start of a word as U+2581, and what goes on in a word without a mark. Cleaning:
 * control characters go; where accents are stripped, a character is replaced by the first one of its
 * decomposition (for Hangul that is the leading letter alone, as in llama.cpp) and marks go; letters
 * become small. White space parts words; a punctuation mark, an ASCII symbol or a CJK ideograph is a
 * word. Source: Wu et al., arXiv:1609.08144; Devlin et al., arXiv:1810.04805.
 */
#include <string.h>
#include <utf8proc.h>

#include "gguf/base/mem.h"
#include "runtime/tok.h"
#include "runtime/tok_pieces.h"
#include "runtime/tok_trie.h"

struct wpm {
    struct trie trie;
    bool lowercase, strip_accents;
};

static enum status wpm_load(struct vocab *v, const struct gguf *g, struct err *e)
{
    struct wpm *t = mem_zalloc(sizeof *t);
    enum status st;

    if (!t)
        return err_nomem(e, "vocabulary", sizeof *t);
    v->data = t;
    t->lowercase = true;
    st = gguf_get_bool(g, "tokenizer.ggml.normalizer.lowercase", false, &t->lowercase, e);
    t->strip_accents = t->lowercase;
    if (!st)
        st = gguf_get_bool(g, "tokenizer.ggml.normalizer.strip_accents", false, &t->strip_accents,
                           e);
    return st ? st : trie_init(&t->trie, v, e);
}

static void wpm_unload(struct vocab *v)
{
    struct wpm *t = v->data;

    if (!t)
        return;
    trie_release(&t->trie);
    mem_free(t);
    v->data = NULL;
}

/* ---- characters ---- */

static bool is_space(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || cp == 0x85 ||
           (cp >= 0x20 && utf8proc_category((utf8proc_int32_t)cp) >= UTF8PROC_CATEGORY_ZS &&
            utf8proc_category((utf8proc_int32_t)cp) <= UTF8PROC_CATEGORY_ZP);
}

static bool is_dropped(const struct wpm *t, uint32_t cp)
{
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS:
        return true;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return t->strip_accents;
    default:
        return cp == 0xfffd;
    }
}

static bool is_ideograph(uint32_t cp)
{
    /* 2B820..2B91F are missing in the reference implementation too */
    return (cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0x3400 && cp <= 0x4dbf) ||
           (cp >= 0x20000 && cp <= 0x2a6df) || (cp >= 0x2a700 && cp <= 0x2b73f) ||
           (cp >= 0x2b740 && cp <= 0x2b81f) || (cp >= 0x2b920 && cp <= 0x2ceaf) ||
           (cp >= 0xf900 && cp <= 0xfaff) || (cp >= 0x2f800 && cp <= 0x2fa1f);
}

static bool is_word_alone(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);

    return (c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO) ||
           (cp < 0x7f && c >= UTF8PROC_CATEGORY_SM && c <= UTF8PROC_CATEGORY_SO) ||
           is_ideograph(cp);
}

/* The first character of the canonical decomposition. */
static uint32_t base_of(uint32_t cp)
{
    utf8proc_int32_t parts[32];
    int bound = 0;
    utf8proc_ssize_t n =
        cp < 0x80 ? 0
                  : utf8proc_decompose_char((utf8proc_int32_t)cp, parts, 32,
                                            UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &bound);

    return n > 0 && n <= 32 ? (uint32_t)parts[0] : cp;
}

/* ---- encoding ---- */

/* The word in w->buf, cut into pieces; it starts with U+2581. */
static enum status add_word(const struct vocab *v, const struct text *b, struct tokens *out,
                            struct err *e)
{
    const struct trie *t = &((const struct wpm *)v->data)->trie;
    size_t before = out->n;

    for (size_t i = 0; i < b->n;) {
        int32_t id = VOCAB_NONE;
        uint32_t at = TRIE_ROOT;
        size_t end = i;

        for (size_t k = i; k < b->n && (at = trie_step(t, at, (uint8_t)b->p[k])); k++)
            if (t->node[at].id != VOCAB_NONE) {
                id = t->node[at].id;
                end = k + 1;
            }
        if (id == VOCAB_NONE) {
            if (v->unk == VOCAB_NONE)
                return err_set(e, ST_MODEL,
                               "a word is not made of pieces, and there is no unknown token");
            out->n = before;
            tokens_add(out, v->unk);
            break;
        }
        tokens_add(out, id);
        i = end;
    }
    return ST_OK;
}

static enum status end_word(const struct vocab *v, struct tok_work *w, struct tokens *out,
                            struct err *e)
{
    enum status st = ST_OK;

    if (w->buf.failed)
        return err_nomem(e, "tokenizing a text", w->buf.n);
    if (w->merge.cancel && atomic_load_explicit(w->merge.cancel, memory_order_relaxed))
        return err_set(e, ST_CANCELLED, "stopped while tokenizing");
    if (w->buf.n > PIECE_SPACE_LEN)
        st = add_word(v, &w->buf, out, e);
    text_clear(&w->buf);
    text_bytes(&w->buf, PIECE_SPACE, PIECE_SPACE_LEN);
    return st;
}

/* One character of the text. */
static enum status add_char(const struct vocab *v, struct tok_work *w, uint32_t cp,
                            struct tokens *out, struct err *e)
{
    const struct wpm *t = v->data;
    enum status st = ST_OK;
    bool alone;
    char c[4];

    if (t->strip_accents)
        cp = base_of(cp);
    if (is_space(cp))
        return end_word(v, w, out, e);
    if (is_dropped(t, cp))
        return ST_OK;
    if (t->lowercase)
        cp = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
    alone = is_word_alone(cp);
    if (alone)
        st = end_word(v, w, out, e);
    text_bytes(&w->buf, c, utf8_encode(cp, c));
    if (alone && !st)
        st = end_word(v, w, out, e);
    return st;
}

static enum status wpm_encode(const struct vocab *v, struct tok_work *w, const char *text, size_t n,
                              bool prefix, struct tokens *out, struct err *e)
{
    enum status st = ST_OK;

    (void)prefix; /* every word starts with U+2581 */
    text_clear(&w->buf);
    text_bytes(&w->buf, PIECE_SPACE, PIECE_SPACE_LEN);
    for (size_t i = 0, len; i < n && !st; i += len ? len : 1) {
        uint32_t cp;

        len = utf8_decode(text + i, n - i, &cp);
        if (len) /* bytes that are no character are dropped */
            st = add_char(v, w, cp, out, e);
    }
    return st ? st : end_word(v, w, out, e);
}

const struct tok_kind tok_wpm = {
    .model = "bert",
    .name = "wpm",
    .add_bos = true,
    .add_eos = true,
    .add_space_prefix = true,
    .bos_piece = "[CLS]",
    .eos_piece = "[SEP]",
    .unk_piece = "[UNK]",
    .bos_key2 = "tokenizer.ggml.cls_token_id",
    .eos_key = "tokenizer.ggml.seperator_token_id",
    .load = wpm_load,
    .unload = wpm_unload,
    .encode = wpm_encode,
    .decode = pieces_decode,
};
