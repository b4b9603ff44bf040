#include "runtime/tok_pieces.h"

#include <string.h>

void pieces_find(struct pieces *s, struct vocab *v)
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
    for (int i = 0; i < PIECE_SPACE_LEN; i++)
        s->keeps_space &= s->byte_id[(unsigned char)PIECE_SPACE[i]] != VOCAB_NONE;
}

bool pieces_cut(const struct pieces *s, struct tok_work *w, const char *text, size_t n, bool prefix)
{
    struct merge *m = &w->merge;
    struct text *b = &w->buf;

    text_clear(b);
    merge_clear(m);
    if (!text_reserve(b, (n + 1) * PIECE_SPACE_LEN) || !merge_reserve(m, n + 1))
        return false;
    if (prefix) {
        text_bytes(b, PIECE_SPACE, PIECE_SPACE_LEN);
        merge_add(m, PIECE_SPACE_LEN);
    }
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t cp;

        len = utf8_decode(text + i, n - i, &cp);
        if (text[i] == ' ') {
            text_bytes(b, PIECE_SPACE, PIECE_SPACE_LEN);
            merge_add(m, PIECE_SPACE_LEN);
            continue;
        }
        if (len == 0 || (cp == 0x2581 && s->keeps_space))
            len = 1;
        text_bytes(b, text + i, len);
        merge_add(m, len);
    }
    return !b->failed;
}

/* A symbol that is no piece is one character or byte: bytes, else the unknown token. */
static enum status emit(const struct pieces *s, const struct vocab *v, const char *p, size_t n,
                        struct tokens *out, struct err *e)
{
    int32_t id = tok_find_text(v, p, n);
    char q[32];

    if (id != VOCAB_NONE) {
        tokens_add(out, id);
        return ST_OK;
    }
    if (n == PIECE_SPACE_LEN && memcmp(p, PIECE_SPACE, PIECE_SPACE_LEN) == 0) {
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

enum status pieces_emit(const struct pieces *s, const struct vocab *v, const struct tok_work *w,
                        struct tokens *out, struct err *e)
{
    const struct sym *sym = w->merge.sym;

    for (uint32_t i = 0; i != MERGE_NONE; i = sym[i].next) {
        enum status st = emit(s, v, w->buf.p + sym[i].offs, sym[i].len, out, e);

        if (st)
            return st;
    }
    return ST_OK;
}

void pieces_decode(const struct vocab *v, struct gguf_str piece, struct text *out)
{
    (void)v;
    for (size_t i = 0; i < piece.n;) {
        if (piece.n - i >= PIECE_SPACE_LEN &&
            memcmp(piece.p + i, PIECE_SPACE, PIECE_SPACE_LEN) == 0) {
            text_byte(out, ' ');
            i += PIECE_SPACE_LEN;
        } else {
            text_byte(out, piece.p[i++]);
        }
    }
}
