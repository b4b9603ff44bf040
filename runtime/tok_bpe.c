/*
 * Byte-level BPE (`tokenizer.ggml.model` = "gpt2"): text is cut into words by a pre-tokenizer, each
 * byte of a word becomes a printable character, and neighbours are merged in the order of the merge
 * list.
 *
 * Bytes that are not UTF-8 are kept: the pre-tokenizer sees the valid stretches, a run of other
 * bytes is a word of its own. Source: Sennrich et al., arXiv:1508.07909; the byte characters are
 * those of GPT-2's encoder.
 */
#include <assert.h>
#include <string.h>

#include "gguf/base/log.h"
#include "gguf/base/mem.h"
#include "runtime/pretok.h"
#include "runtime/tok.h"
#include "runtime/tok_ranks.h"

enum { N_CHARS = 256 + 68 }; /* byte characters are U+0021 .. U+0143 */

struct bpe {
    const struct pretok_rule *pre;
    struct pretok *pretok;
    struct ranks ranks;
    int32_t byte_id[256];
    uint8_t byte_char[256][2]; /* UTF-8 of each byte's character */
    uint8_t byte_len[256];
    int16_t char_byte[N_CHARS]; /* and back; -1 where a character stands for itself */
};

/* ---- bytes as characters ---- */

/* Printable Latin-1 stands for itself, the other 68 bytes are U+0100 onwards in order. */
static void map_bytes(struct bpe *t)
{
    uint32_t other = 256;

    for (int i = 0; i < N_CHARS; i++)
        t->char_byte[i] = -1;
    for (int b = 0; b < 256; b++) {
        bool plain = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        uint32_t cp = plain ? (uint32_t)b : other++;
        char c[4];

        t->byte_len[b] = (uint8_t)utf8_encode(cp, c);
        memcpy(t->byte_char[b], c, 2);
        t->char_byte[cp] = (int16_t)b;
    }
}

/*
 * DeepSeek's vocabularies hold some of these characters as user-defined tokens, which mean the
 * character: such a token does not stand for the byte.
 */
static void find_bytes(const struct vocab *v, struct bpe *t)
{
    for (int b = 0; b < 256; b++) {
        int32_t id = tok_find_text(v, (const char *)t->byte_char[b], t->byte_len[b]);

        t->byte_id[b] = id != VOCAB_NONE && tok_is_special(tok_type(v, id)) ? VOCAB_NONE : id;
    }
}

/* ---- loading ---- */

static enum status unknown_pre(struct gguf_str pre, struct err *e)
{
    char q[64];

    return err_set(
        e, ST_UNSUPPORTED,
        "pre-tokenizer '%s' (key 'tokenizer.ggml.pre') is not known, so the text cannot be "
        "cut into words as the model expects; docs/tokenizers.md lists the known ones",
        text_quote(q, sizeof q, pre.p, pre.n));
}

static enum status find_rule(struct vocab *v, const struct gguf *g, const struct pretok_rule **out,
                             struct err *e)
{
    struct gguf_str pre = {"default", 7};
    enum status st = gguf_get_str(g, "tokenizer.ggml.pre", false, &pre, e);

    if (st)
        return st;
    if (!gguf_find(g, "tokenizer.ggml.pre"))
        log_warn(
            "key 'tokenizer.ggml.pre' is missing: text is cut into words by the 'default' rule, "
            "which may not be what the model was trained with");
    *out = pretok_rule_find(pre.p, pre.n, &v->pre);
    return *out ? ST_OK : unknown_pre(pre, e);
}

static enum status bpe_load(struct vocab *v, const struct gguf *g, struct err *e)
{
    const struct pretok_rule *pre;
    struct bpe *t;
    enum status st = find_rule(v, g, &pre, e);

    if (st)
        return st;
    if (pre->raw) {
        v->kind = &tok_raw;
        return tok_raw.load(v, g, e);
    }
    v->data = t = mem_zalloc(sizeof *t);
    if (!t)
        return err_nomem(e, "vocabulary", sizeof *t);
    t->pre = pre;
    v->add_bos = pre->add_bos;
    map_bytes(t);
    find_bytes(v, t);
    st = pretok_new(&t->pretok, pre, e);
    return st ? st : ranks_load(&t->ranks, v, g, e);
}

static void bpe_unload(struct vocab *v)
{
    struct bpe *t = v->data;

    if (!t)
        return;
    pretok_free(t->pretok);
    ranks_release(&t->ranks);
    mem_free(t);
    v->data = NULL;
}

/* ---- encoding ---- */

struct words { /* context of one stretch of text */
    const struct vocab *v;
    struct tok_work *w;
    struct tokens *out;
};

/* The next byte of a word in byte characters; *p moves on. */
static int next_byte(const struct bpe *t, const char **p)
{
    unsigned char c = (unsigned char)**p;
    uint32_t cp = c;

    if (c >= 0x80)
        cp = (uint32_t)(c & 0x1f) << 6 | ((unsigned char)(*p)[1] & 0x3f);
    *p += c < 0x80 ? 1 : 2;
    return t->char_byte[cp];
}

/*
 * One byte that no token covers (some vocabularies lack control bytes): U+FFFD, else the unknown
 * token. Not the other way round, since files name <|endoftext|> and the like as unknown.
 */
static enum status add_unknown(const struct vocab *v, int byte, struct tokens *out, struct err *e)
{
    static const unsigned char replacement[] = {0xef, 0xbf, 0xbd};
    const struct bpe *t = v->data;
    bool writable = true;

    for (int i = 0; i < 3; i++)
        writable &= t->byte_id[replacement[i]] != VOCAB_NONE;
    if (!writable && v->unk == VOCAB_NONE)
        return err_set(e, ST_MODEL, "no token covers byte 0x%02x, and there is no unknown token",
                       (unsigned)byte);
    if (!writable)
        tokens_add(out, v->unk);
    for (int i = 0; i < 3 && writable; i++)
        tokens_add(out, t->byte_id[replacement[i]]);
    return ST_OK;
}

/* Ids of a merged symbol: its token, or its bytes one by one. */
static enum status emit(const struct vocab *v, const char *p, size_t n, struct tokens *out,
                        struct err *e)
{
    const struct bpe *t = v->data;
    const char *end = p + n;
    int32_t id =
        n > 2 || (n == 2 && (unsigned char)*p < 0x80) ? tok_find_text(v, p, n) : VOCAB_NONE;

    if (id != VOCAB_NONE) {
        tokens_add(out, id);
        return ST_OK;
    }
    while (p < end) {
        int b = next_byte(t, &p);
        enum status st = ST_OK;

        if (t->byte_id[b] != VOCAB_NONE)
            tokens_add(out, t->byte_id[b]);
        else
            st = add_unknown(v, b, out, e);
        if (st)
            return st;
    }
    return ST_OK;
}

/* The word's byte characters in w->buf, one symbol each. */
static bool spell(const struct bpe *t, struct tok_work *w, const char *p, size_t n)
{
    char *q;

    text_clear(&w->buf);
    merge_clear(&w->merge);
    if (!text_reserve(&w->buf, 2 * n) || !merge_reserve(&w->merge, n))
        return false;
    q = w->buf.p;
    for (size_t i = 0; i < n; i++) {
        unsigned char b = (unsigned char)p[i];

        memcpy(q, t->byte_char[b], t->byte_len[b]);
        q += t->byte_len[b];
        merge_add(&w->merge, t->byte_len[b]);
    }
    w->buf.n = (size_t)(q - w->buf.p);
    return true;
}

static enum status add_word(void *ctx, const char *p, size_t n, struct err *e)
{
    struct words *c = ctx;
    struct tok_work *w = c->w;
    const struct bpe *t = c->v->data;
    const struct sym *sym;

    if (w->merge.cancel && atomic_load_explicit(w->merge.cancel, memory_order_relaxed))
        return err_set(e, ST_CANCELLED, "stopped while tokenizing");
    if (!spell(t, w, p, n))
        return err_nomem(e, "tokenizing a text", n * sizeof *sym);
    if (t->pre->ignore_merges) {
        int32_t id = tok_find_text(c->v, w->buf.p, w->buf.n);

        if (id != VOCAB_NONE && !tok_is_special(tok_type(c->v, id))) {
            tokens_add(c->out, id);
            return ST_OK;
        }
    }
    if (!merge_run(&w->merge, w->buf.p, ranks_key, &t->ranks))
        return err_nomem(e, "tokenizing a text", n * sizeof *sym);
    sym = w->merge.sym;
    for (uint32_t i = 0; i != MERGE_NONE; i = sym[i].next) {
        enum status st = emit(c->v, w->buf.p + sym[i].offs, sym[i].len, c->out, e);

        if (st)
            return st;
    }
    return ST_OK;
}

/* Bytes at the start of p that are valid UTF-8 (`valid`), or that begin no valid character. */
static size_t stretch(const char *p, size_t n, bool valid)
{
    size_t i = 0, len;
    uint32_t cp;

    for (; i < n; i += valid ? len : 1) {
        len = utf8_decode(p + i, n - i, &cp);
        if ((len > 0) != valid)
            break;
    }
    return i;
}

static enum status bpe_encode(const struct vocab *v, struct tok_work *w, const char *text, size_t n,
                              bool prefix, struct tokens *out, struct err *e)
{
    const struct bpe *t = v->data;
    struct words ctx = {.v = v, .w = w, .out = out};
    enum status st;

    if (!w->run) {
        st = pretok_run_new(&w->run, t->pretok, NULL, e);
        if (st)
            return st;
    }
    assert(!prefix);
    (void)prefix;
    for (size_t i = 0, len; i < n; i += len) {
        len = stretch(text + i, n - i, true);
        st = len ? pretok_split(w->run, text + i, len, (size_t)(text + i - w->base), add_word, &ctx,
                                e)
                 : add_word(&ctx, text + i, len = stretch(text + i, n - i, false), e);
        if (st)
            return st;
    }
    return ST_OK;
}

static void bpe_decode(const struct vocab *v, struct gguf_str piece, struct text *out)
{
    const struct bpe *t = v->data;

    for (size_t i = 0, len; i < piece.n; i += len) {
        uint32_t cp = N_CHARS;

        len = utf8_decode(piece.p + i, piece.n - i, &cp);
        if (len && cp < N_CHARS && t->char_byte[cp] >= 0)
            text_byte(out, (char)t->char_byte[cp]);
        else
            text_bytes(out, piece.p + i, len ? len : 1);
        len = len ? len : 1;
    }
}

const struct tok_kind tok_bpe = {
    .model = "gpt2",
    .name = "bpe",
    .load = bpe_load,
    .unload = bpe_unload,
    .encode = bpe_encode,
    .decode = bpe_decode,
};
