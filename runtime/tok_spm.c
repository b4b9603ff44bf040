/*
 * SentencePiece-style BPE (`tokenizer.ggml.model` = "llama"): spaces become U+2581, neighbours are
 * merged while the result is a piece, highest score first, and characters without a piece become
 * byte tokens.
 *
 * U+2581 in the user's text would become a space on the way back. Where the vocabulary has byte
 * tokens it is written as its three bytes, so that decoding gives exactly what was encoded;
 * SentencePiece and llama.cpp lose the difference. Source: Kudo and Richardson, "SentencePiece",
 * arXiv:1808.06226.
 */
#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/tok.h"

#define SPACE "\xe2\x96\x81" /* U+2581 */

enum { SPACE_LEN = 3 };

struct spm {
    uint32_t *key; /* [n_tokens]: order of scores, the highest first; see score_key */
    int32_t byte_id[256];
    bool keeps_space; /* U+2581 itself can be written as bytes */
};

/* Maps floats (no NaN) to integers in opposite order. Never MERGE_NONE. */
static uint32_t score_key(float score)
{
    uint32_t u;

    score += 0.0f; /* -0 becomes 0 */
    memcpy(&u, &score, sizeof u);
    return ~(u & 0x80000000u ? ~u : u | 0x80000000u);
}

static enum status load_scores(struct vocab *v, struct spm *s, const struct gguf *g, struct err *e)
{
    const struct gguf_kv *kv;
    enum status st =
        tok_get_array(g, "tokenizer.ggml.scores", GGUF_F32, (uint64_t)v->n_tokens, true, &kv, e);

    if (st)
        return st;
    s->key = mem_array((size_t)v->n_tokens, sizeof *s->key);
    if (!s->key)
        return err_nomem(e, "vocabulary scores", (size_t)v->n_tokens * sizeof *s->key);
    for (int32_t i = 0; i < v->n_tokens; i++) {
        double score = gguf_kv_float(kv, (uint64_t)i);

        if (score != score)
            return err_set(e, ST_MODEL, "key '%s': element %d is not a number", kv->key, i);
        s->key[i] = score_key((float)score);
    }
    return ST_OK;
}

/* Pieces like <0x0A> are bytes by their text, even in files that forgot to say so. */
static void find_bytes(struct vocab *v, struct spm *s)
{
    static const char hex[] = "0123456789ABCDEF";

    for (int b = 0; b < 256; b++) {
        char piece[6] = {'<', '0', 'x', hex[b >> 4], hex[b & 15], '>'};
        int32_t id = vocab_find(v, piece, sizeof piece);

        s->byte_id[b] = VOCAB_NONE;
        if (id == VOCAB_NONE || tok_is_special(tok_type(v, id)))
            continue;
        s->byte_id[b] = id;
        v->info[id] = (uint8_t)((v->info[id] & ~TOKF_TYPE) | TOK_BYTE);
    }
    s->keeps_space = true;
    for (int i = 0; i < SPACE_LEN; i++)
        s->keeps_space &= s->byte_id[(unsigned char)SPACE[i]] != VOCAB_NONE;
}

static enum status spm_load(struct vocab *v, const struct gguf *g, struct err *e)
{
    struct spm *s = mem_zalloc(sizeof *s);

    if (!s)
        return err_nomem(e, "vocabulary", sizeof *s);
    v->data = s;
    find_bytes(v, s);
    return load_scores(v, s, g, e);
}

static void spm_unload(struct vocab *v)
{
    struct spm *s = v->data;

    if (!s)
        return;
    mem_free(s->key);
    mem_free(s);
    v->data = NULL;
}

/* Symbols of the text with its spaces replaced: characters, and single bytes where there is none. */
static bool cut(const struct spm *s, struct tok_work *w, const char *text, size_t n, bool prefix)
{
    struct merge *m = &w->merge;
    struct text *b = &w->buf;

    text_clear(b);
    merge_clear(m);
    if (!text_reserve(b, (n + 1) * SPACE_LEN) || !merge_reserve(m, n + 1))
        return false;
    if (prefix) {
        text_bytes(b, SPACE, SPACE_LEN);
        merge_add(m, SPACE_LEN);
    }
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t cp;

        len = utf8_decode(text + i, n - i, &cp);
        if (text[i] == ' ') {
            text_bytes(b, SPACE, SPACE_LEN);
            merge_add(m, SPACE_LEN);
            continue;
        }
        if (len == 0 || (cp == 0x2581 && s->keeps_space))
            len = 1;
        text_bytes(b, text + i, len);
        merge_add(m, len);
    }
    return !b->failed;
}

static uint32_t spm_key(const void *ctx, const char *p, size_t n_left, size_t n_right)
{
    const struct vocab *v = ctx;
    const struct spm *s = v->data;
    int32_t id = tok_find_text(v, p, n_left + n_right);

    return id == VOCAB_NONE ? MERGE_NONE : s->key[id];
}

/* A symbol that is no piece is one character or byte: bytes, else the unknown token. */
static enum status emit(const struct vocab *v, const char *p, size_t n, struct tokens *out,
                        struct err *e)
{
    const struct spm *s = v->data;
    int32_t id = tok_find_text(v, p, n);
    char q[32];

    if (id != VOCAB_NONE) {
        tokens_add(out, id);
        return ST_OK;
    }
    if (n == SPACE_LEN && memcmp(p, SPACE, SPACE_LEN) == 0) {
        p = " ";
        n = 1;
    }
    for (size_t i = 0; i < n; i++) {
        if (s->byte_id[(unsigned char)p[i]] != VOCAB_NONE)
            continue;
        if (v->unk == VOCAB_NONE)
            return err_set(e, ST_MODEL, "no token covers '%s', and there is no unknown token",
                           text_quote(q, sizeof q, p, n));
        tokens_add(out, v->unk);
        return ST_OK;
    }
    for (size_t i = 0; i < n; i++)
        tokens_add(out, s->byte_id[(unsigned char)p[i]]);
    return ST_OK;
}

static enum status spm_encode(const struct vocab *v, struct tok_work *w, const char *text, size_t n,
                              bool prefix, struct tokens *out, struct err *e)
{
    const struct sym *sym;

    if (!cut(v->data, w, text, n, prefix) || !merge_run(&w->merge, w->buf.p, spm_key, v))
        return err_nomem(e, "tokenizing a text", n * sizeof *sym);
    sym = w->merge.sym;
    for (uint32_t i = 0; i != MERGE_NONE; i = sym[i].next) {
        enum status st = emit(v, w->buf.p + sym[i].offs, sym[i].len, out, e);

        if (st)
            return st;
    }
    return ST_OK;
}

static void spm_decode(const struct vocab *v, struct gguf_str piece, struct text *out)
{
    (void)v;
    for (size_t i = 0; i < piece.n;) {
        if (piece.n - i >= SPACE_LEN && memcmp(piece.p + i, SPACE, SPACE_LEN) == 0) {
            text_byte(out, ' ');
            i += SPACE_LEN;
        } else {
            text_byte(out, piece.p[i++]);
        }
    }
}

const struct tok_kind tok_spm = {
    .model = "llama",
    .name = "spm",
    .add_bos = true,
    .add_space_prefix = true,
    .bos_piece = "<s>",
    .eos_piece = "</s>",
    .unk_piece = "<unk>",
    .load = spm_load,
    .unload = spm_unload,
    .encode = spm_encode,
    .decode = spm_decode,
};
