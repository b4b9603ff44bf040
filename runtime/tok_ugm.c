/*
 * Unigram (`tokenizer.ggml.model` = "t5"): the text is normalised, and among all ways to write it as
 * pieces the one with the highest sum of scores is taken (Viterbi).
 *
 * Normalising replaces strings by a character map, turns spaces into U+2581, puts one in front, and
 * where the file says so makes one of several and drops those at the ends. A character without a piece
 * counts as the unknown token, ten worse than the worst piece; neighbouring unknown tokens become one.
 * Sources: Kudo, arXiv:1804.10959; Kudo and Richardson, arXiv:1808.06226.
 */
#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/tok.h"
#include "runtime/tok_charsmap.h"
#include "runtime/tok_pieces.h"
#include "runtime/tok_trie.h"

enum { STEPS = 4096 }; /* characters between two looks at whether to stop */

struct ugm {
    struct trie trie;
    struct charsmap map;
    float *score; /* [n_tokens], 0 for user-defined tokens */
    float unknown_score;
    bool one_space; /* several spaces become one */
};

static enum status load_scores(const struct vocab *v, struct ugm *t, const struct gguf *g,
                               struct err *e)
{
    const struct gguf_kv *kv;
    float worst = 0;
    bool any = false;
    enum status st =
        tok_get_array(g, "tokenizer.ggml.scores", GGUF_F32, (uint64_t)v->n_tokens, true, &kv, e);

    if (st)
        return st;
    t->score = mem_array((size_t)v->n_tokens, sizeof *t->score);
    if (!t->score)
        return err_nomem(e, "vocabulary scores", (size_t)v->n_tokens * sizeof *t->score);
    for (int32_t i = 0; i < v->n_tokens; i++) {
        double score = gguf_kv_float(kv, (uint64_t)i);

        if (!(score >= -1e30 && score <= 1e30))
            return err_set(e, ST_MODEL, "key '%s': element %d is not a finite number", kv->key, i);
        t->score[i] = tok_type(v, i) == TOK_USER_DEFINED ? 0 : (float)score;
        if (tok_type(v, i) == TOK_NORMAL && (!any || t->score[i] < worst)) {
            worst = t->score[i];
            any = true;
        }
    }
    t->unknown_score = worst - 10.0f;
    return ST_OK;
}

static enum status ugm_load(struct vocab *v, const struct gguf *g, struct err *e)
{
    struct ugm *t = mem_zalloc(sizeof *t);
    enum status st;

    if (!t)
        return err_nomem(e, "vocabulary", sizeof *t);
    v->data = t;
    v->add_space_prefix = false; /* unless the file asks for it */
    st = gguf_get_bool(g, "tokenizer.ggml.remove_extra_whitespaces", false, &t->one_space, e);
    if (!st)
        st = charsmap_init(&t->map, g, "tokenizer.ggml.precompiled_charsmap", e);
    if (!st)
        st = load_scores(v, t, g, e);
    return st ? st : trie_init(&t->trie, v, e);
}

static void ugm_unload(struct vocab *v)
{
    struct ugm *t = v->data;

    if (!t)
        return;
    trie_release(&t->trie);
    mem_free(t->score);
    mem_free(t);
    v->data = NULL;
}

/* ---- normalising ---- */

struct normal {
    struct text *out;
    bool prefix; /* a space is still to be put in front */
    bool one_space;
    bool in_word;
};

static void add_normal(struct normal *s, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] == ' ') {
            s->in_word = false;
            if (!s->one_space)
                text_bytes(s->out, PIECE_SPACE, PIECE_SPACE_LEN);
            continue;
        }
        if (!s->in_word && (s->prefix || s->one_space))
            text_bytes(s->out, PIECE_SPACE, PIECE_SPACE_LEN);
        s->in_word = true;
        s->prefix = false;
        text_byte(s->out, p[i]);
    }
}

static enum status normalise(const struct ugm *t, const char *text, size_t n, bool prefix,
                             struct text *out, struct err *e)
{
    struct normal s = {.out = out, .prefix = prefix, .one_space = t->one_space};
    struct gguf_str r;
    uint32_t cp;

    text_clear(out);
    for (size_t i = 0, len; i < n; i += len) {
        enum status st = charsmap_find(&t->map, text + i, n - i, &len, &r, e);

        if (st)
            return st;
        if (len) {
            add_normal(&s, r.p, r.n);
        } else if ((len = utf8_decode(text + i, n - i, &cp))) {
            add_normal(&s, text + i, len);
        } else {
            add_normal(&s, "\xef\xbf\xbd", 3); /* a byte that is no character */
            len = 1;
        }
        if (out->failed || out->n > TOK_TEXT_MAX)
            break;
    }
    if (out->failed)
        return err_nomem(e, "tokenizing a text", out->n);
    if (out->n > TOK_TEXT_MAX)
        return err_set(e, ST_UNSUPPORTED, "text is longer than %zu bytes after normalising",
                       TOK_TEXT_MAX);
    return ST_OK;
}

/* ---- the best way through ---- */

struct step { /* the best way to a byte of the text */
    double score;
    uint32_t from; /* where its last token starts */
    int32_t id;    /* VOCAB_NONE: the unknown token */
};

static void offer(struct step *s, double score, uint32_t from, int32_t id)
{
    if (score > s->score)
        *s = (struct step){score, from, id};
}

/* All tokens at byte `i`; `len`: bytes of the character there. */
static void tokens_at(const struct ugm *t, const struct text *b, struct step *s, size_t i,
                      size_t len)
{
    bool whole = false; /* a token covers the character */
    uint32_t at = TRIE_ROOT;

    for (size_t k = i; k < b->n && (at = trie_step(&t->trie, at, (uint8_t)b->p[k])); k++) {
        int32_t id = t->trie.node[at].id;

        if (id == VOCAB_NONE)
            continue;
        whole |= k + 1 - i == len;
        offer(&s[k + 1], s[i].score + (double)t->score[id], (uint32_t)i, id);
    }
    if (!whole)
        offer(&s[i + len], s[i].score + (double)t->unknown_score, (uint32_t)i, VOCAB_NONE);
}

static enum status best_way(const struct ugm *t, const struct tok_work *w, struct step *s,
                            struct err *e)
{
    const struct text *b = &w->buf;
    const atomic_bool *cancel = w->merge.cancel;

    for (size_t i = 1; i <= b->n; i++)
        s[i] = (struct step){.score = -1e300, .id = VOCAB_NONE};
    s[0] = (struct step){.id = VOCAB_NONE};
    for (size_t i = 0, n = 0, len; i < b->n; i += len, n++) {
        uint32_t cp;

        len = utf8_decode(b->p + i, b->n - i, &cp);
        len = len ? len : 1;
        tokens_at(t, b, s, i, len);
        if (n % STEPS == 0 && cancel && atomic_load_explicit(cancel, memory_order_relaxed))
            return err_set(e, ST_CANCELLED, "stopped while tokenizing");
    }
    return ST_OK;
}

/* Walk back from the end; the ids come out in reverse. */
static enum status add_way(const struct vocab *v, const struct step *s, size_t n,
                           struct tokens *out, struct err *e)
{
    size_t first = out->n;
    bool unknown = false;

    for (size_t i = n; i > 0; i = s[i].from) {
        bool was = unknown;

        unknown = s[i].id == VOCAB_NONE;
        if (unknown && v->unk == VOCAB_NONE)
            return err_set(e, ST_MODEL,
                           "no token covers a character, and there is no unknown token");
        if (!unknown || !was)
            tokens_add(out, unknown ? v->unk : s[i].id);
    }
    for (size_t i = first, k = out->n; i < k && i < --k; i++) {
        int32_t id = out->id[i];

        out->id[i] = out->id[k];
        out->id[k] = id;
    }
    return ST_OK;
}

static enum status ugm_encode(const struct vocab *v, struct tok_work *w, const char *text, size_t n,
                              bool prefix, struct tokens *out, struct err *e)
{
    const struct ugm *t = v->data;
    struct step *s;
    enum status st = normalise(t, text, n, prefix, &w->buf, e);

    if (st || w->buf.n == 0)
        return st;
    s = mem_array(w->buf.n + 1, sizeof *s);
    if (!s)
        return err_nomem(e, "tokenizing a text", (w->buf.n + 1) * sizeof *s);
    st = best_way(t, w, s, e);
    if (!st)
        st = add_way(v, s, w->buf.n, out, e);
    mem_free(s);
    return st;
}

const struct tok_kind tok_ugm = {
    .model = "t5",
    .name = "ugm",
    .add_eos = true,
    .add_space_prefix = true,
    .eos_piece = "</s>",
    .unk_piece = "<unk>",
    .load = ugm_load,
    .unload = ugm_unload,
    .encode = ugm_encode,
    .decode = pieces_decode,
};
