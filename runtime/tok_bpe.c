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

#define MERGES_KEY "tokenizer.ggml.merges"

enum { N_CHARS = 256 + 68 }; /* byte characters are U+0021 .. U+0143 */

struct rule {      /* one merge: "left right" in the file */
    const char *p; /* the line */
    uint32_t n_left, n_right;
};

struct rule_slot { /* open addressing, power of two, never full */
    uint32_t tag;  /* high half of the pair's hash */
    uint32_t ref;  /* rank + 1; 0 = free */
};

struct bpe {
    const struct pretok_rule *pre;
    struct pretok *pretok;
    struct rule *rule; /* [n_rules] by rank */
    size_t n_rules;
    struct rule_slot *slot;
    size_t slot_mask;
    size_t max_pair; /* bytes of the longest merge result */
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

/* ---- merges ---- */

static uint32_t find_rank(const struct bpe *t, const char *p, size_t n_left, size_t n_right)
{
    uint64_t hash = tok_hash_pair(tok_hash(p, n_left), tok_hash(p + n_left, n_right));

    for (size_t i = hash & t->slot_mask; t->slot[i].ref; i = (i + 1) & t->slot_mask) {
        const struct rule *r;

        if (t->slot[i].tag != (uint32_t)(hash >> 32))
            continue;
        r = &t->rule[t->slot[i].ref - 1];
        if (r->n_left == n_left && r->n_right == n_right && memcmp(r->p, p, n_left) == 0 &&
            memcmp(r->p + n_left + 1, p + n_left, n_right) == 0)
            return t->slot[i].ref - 1;
    }
    return MERGE_NONE;
}

/* A pair that is listed twice keeps its first rank. */
static void index_rule(struct bpe *t, uint32_t rank, uint64_t hash)
{
    const struct rule *r = &t->rule[rank];
    size_t i = hash & t->slot_mask;

    for (; t->slot[i].ref; i = (i + 1) & t->slot_mask) {
        const struct rule *o = &t->rule[t->slot[i].ref - 1];

        if (t->slot[i].tag == (uint32_t)(hash >> 32) && o->n_left == r->n_left &&
            o->n_right == r->n_right && memcmp(o->p, r->p, r->n_left + 1 + r->n_right) == 0)
            return;
    }
    t->slot[i] = (struct rule_slot){.tag = (uint32_t)(hash >> 32), .ref = rank + 1};
}

static enum status bad_rule(uint64_t i, struct gguf_str line, const char *why, struct gguf_str part,
                            struct err *e)
{
    char q[64], q2[64] = "";

    return err_set(e, ST_MODEL, "key '" MERGES_KEY "': element %llu, '%s', %s%s",
                   (unsigned long long)i, text_quote(q, sizeof q, line.p, line.n), why,
                   part.n ? text_quote(q2, sizeof q2, part.p, part.n) : "");
}

/* The first space that has something in front of it parts the two. */
static enum status parse_rule(struct bpe *t, uint64_t i, struct gguf_str s, struct err *e)
{
    const char *space = s.n > 1 ? memchr(s.p + 1, ' ', s.n - 1) : NULL;
    struct gguf_str none = {"", 0};
    size_t n_left;

    if (!space || space == s.p + s.n - 1 || s.n > UINT32_MAX / 4)
        return bad_rule(i, s, "is not two pieces with a space between them", none, e);
    n_left = (size_t)(space - s.p);
    t->rule[i] = (struct rule){s.p, (uint32_t)n_left, (uint32_t)(s.n - n_left - 1)};
    if (s.n - 1 > t->max_pair)
        t->max_pair = s.n - 1;
    return ST_OK;
}

struct rule_hash {
    uint64_t left, right, pair;
};

static struct rule_hash hash_rule(const struct vocab *v, const struct bpe *t, size_t i)
{
    const struct rule *r = &t->rule[i];
    struct rule_hash h = {tok_hash(r->p, r->n_left), tok_hash(r->p + r->n_left + 1, r->n_right), 0};

    h.pair = tok_hash_pair(h.left, h.right);
    tok_prefetch(v, h.left);
    tok_prefetch(v, h.right);
    __builtin_prefetch(&t->slot[h.pair & t->slot_mask], 1);
    return h;
}

/* Both parts of a rule must be tokens. What they make need not be: it is then written as bytes. */
static enum status check_rule(const struct vocab *v, const struct bpe *t, size_t i,
                              const struct rule_hash *h, struct err *e)
{
    const struct rule *r = &t->rule[i];
    struct gguf_str line = {r->p, r->n_left + 1 + r->n_right};

    if (!tok_may_find(v, h->left))
        return bad_rule(i, line, "joins what is not a token: ", (struct gguf_str){r->p, r->n_left},
                        e);
    if (!tok_may_find(v, h->right))
        return bad_rule(i, line, "joins what is not a token: ",
                        (struct gguf_str){r->p + r->n_left + 1, r->n_right}, e);
    return ST_OK;
}

static enum status index_rules(const struct vocab *v, struct bpe *t, struct err *e)
{
    struct rule_hash hash[TOK_AHEAD] = {0};

    for (size_t i = 0; i < t->n_rules + TOK_AHEAD; i++) {
        struct rule_hash *h = &hash[i % TOK_AHEAD];

        if (i >= TOK_AHEAD) {
            enum status st = check_rule(v, t, i - TOK_AHEAD, h, e);

            if (st)
                return st;
            index_rule(t, (uint32_t)(i - TOK_AHEAD), h->pair);
        }
        if (i < t->n_rules)
            *h = hash_rule(v, t, i);
    }
    return ST_OK;
}

static enum status load_merges(const struct vocab *v, struct bpe *t, const struct gguf *g,
                               struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, MERGES_KEY);
    struct gguf_str_iter it;
    struct gguf_str s;
    size_t n_slots = 16;
    enum status st;

    if (kv && kv->type == GGUF_ARR && kv->n == 0) { /* bytes only: no merges is not an error */
        t->slot = mem_array(1, sizeof *t->slot);
        return t->slot ? ST_OK : err_nomem(e, "vocabulary merges", sizeof *t->slot);
    }
    st = tok_get_array(g, MERGES_KEY, GGUF_STR, 0, true, &kv, e);
    if (st)
        return st;
    if (kv->n > INT32_MAX / 4)
        return err_set(e, ST_MODEL, "key '%s' has %llu elements, at most %d are possible", kv->key,
                       (unsigned long long)kv->n, INT32_MAX / 4);
    while (n_slots * 3 < 4 * (size_t)kv->n + 4)
        n_slots *= 2;
    t->n_rules = (size_t)kv->n;
    t->slot_mask = n_slots - 1;
    t->rule = mem_array(t->n_rules, sizeof *t->rule);
    t->slot = mem_array(n_slots, sizeof *t->slot);
    if (!t->rule || !t->slot)
        return err_nomem(e, "vocabulary merges",
                         n_slots * sizeof *t->slot + t->n_rules * sizeof *t->rule);
    it = gguf_strs(kv);
    for (uint64_t i = 0; gguf_str_next(&it, &s); i++) {
        st = parse_rule(t, i, s, e);
        if (st)
            return st;
    }
    return index_rules(v, t, e);
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

static enum status load_pre(struct vocab *v, struct bpe *t, const struct gguf *g, struct err *e)
{
    struct gguf_str pre = {"default", 7};
    enum status st = gguf_get_str(g, "tokenizer.ggml.pre", false, &pre, e);

    if (st)
        return st;
    if (!gguf_find(g, "tokenizer.ggml.pre"))
        log_warn(
            "key 'tokenizer.ggml.pre' is missing: text is cut into words by the 'default' rule, "
            "which may not be what the model was trained with");
    t->pre = pretok_rule_find(pre.p, pre.n, &v->pre);
    if (!t->pre)
        return unknown_pre(pre, e);
    v->add_bos = t->pre->add_bos;
    return pretok_new(&t->pretok, t->pre, e);
}

static enum status bpe_load(struct vocab *v, const struct gguf *g, struct err *e)
{
    struct bpe *t = mem_zalloc(sizeof *t);
    enum status st;

    if (!t)
        return err_nomem(e, "vocabulary", sizeof *t);
    v->data = t;
    map_bytes(t);
    find_bytes(v, t);
    st = load_pre(v, t, g, e);
    return st ? st : load_merges(v, t, g, e);
}

static void bpe_unload(struct vocab *v)
{
    struct bpe *t = v->data;

    if (!t)
        return;
    pretok_free(t->pretok);
    mem_free(t->rule);
    mem_free(t->slot);
    mem_free(t);
    v->data = NULL;
}

/* ---- encoding ---- */

struct words { /* context of one stretch of text */
    const struct vocab *v;
    struct tok_work *w;
    struct tokens *out;
};

static uint32_t bpe_key(const void *ctx, const char *p, size_t n_left, size_t n_right)
{
    const struct bpe *t = ctx;

    return n_left + n_right > t->max_pair ? MERGE_NONE : find_rank(t, p, n_left, n_right);
}

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
    if (!merge_run(&w->merge, w->buf.p, bpe_key, t))
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
