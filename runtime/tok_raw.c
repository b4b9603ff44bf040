/*
 * SentencePiece-style pieces merged in the order of a merge list (`tokenizer.ggml.model` = "gemma4",
 * or "gpt2" with a `tokenizer.ggml.pre` whose rule says `raw`): spaces become U+2581, the text is cut
 * at line breaks only, neighbours are merged, and characters without a piece become byte tokens.
 */
#include <assert.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/pretok.h"
#include "runtime/tok.h"
#include "runtime/tok_pieces.h"
#include "runtime/tok_ranks.h"

struct raw {
    const struct pretok_rule *pre;
    struct pieces pieces;
    struct ranks ranks;
};

/* The rule that the file names, or Gemma 4's where its model is that, whatever it says. */
static enum status find_rule(struct vocab *v, struct raw *t, const struct gguf *g, struct err *e)
{
    struct gguf_str model = {"", 0}, pre = {"gemma4", 6};
    enum status st = gguf_get_str(g, "tokenizer.ggml.model", true, &model, e);

    if (!st && !(model.n == pre.n && memcmp(model.p, pre.p, pre.n) == 0))
        st = gguf_get_str(g, "tokenizer.ggml.pre", true, &pre, e);
    if (st)
        return st;
    t->pre = pretok_rule_find(pre.p, pre.n, &v->pre);
    assert(t->pre && t->pre->raw);
    v->add_bos = t->pre->add_bos;
    v->always_bos = t->pre->always_bos;
    return ST_OK;
}

static enum status raw_load(struct vocab *v, const struct gguf *g, struct err *e)
{
    struct raw *t = mem_zalloc(sizeof *t);
    enum status st;

    if (!t)
        return err_nomem(e, "vocabulary", sizeof *t);
    v->data = t;
    st = find_rule(v, t, g, e);
    if (st)
        return st;
    pieces_find(&t->pieces, v);
    return ranks_load(&t->ranks, v, g, e);
}

static void raw_unload(struct vocab *v)
{
    struct raw *t = v->data;

    if (!t)
        return;
    ranks_release(&t->ranks);
    mem_free(t);
    v->data = NULL;
}

/* A line without its break, or a run of line breaks. */
static enum status add_line(const struct vocab *v, struct tok_work *w, const char *p, size_t n,
                            struct tokens *out, struct err *e)
{
    const struct raw *t = v->data;
    int32_t id = *p == '\n' && t->pre->whole_breaks ? tok_find_text(v, p, n) : VOCAB_NONE;

    if (id != VOCAB_NONE) {
        tokens_add(out, id);
        return ST_OK;
    }
    if (!pieces_cut(&t->pieces, w, p, n, false) ||
        !merge_run(&w->merge, w->buf.p, ranks_key, &t->ranks))
        return err_nomem(e, "tokenizing a text", n * sizeof *w->merge.sym);
    return pieces_emit(&t->pieces, v, w, out, e);
}

static enum status raw_encode(const struct vocab *v, struct tok_work *w, const char *text, size_t n,
                              bool prefix, struct tokens *out, struct err *e)
{
    (void)prefix;
    for (size_t i = 0, len; i < n; i += len) {
        enum status st;

        for (len = 1; i + len < n && (text[i + len] == '\n') == (text[i] == '\n'); len++)
            ;
        st = add_line(v, w, text + i, len, out, e);
        if (st)
            return st;
    }
    return ST_OK;
}

const struct tok_kind tok_raw = {
    .model = "gemma4",
    .name = "bpe",
    .load = raw_load,
    .unload = raw_unload,
    .encode = raw_encode,
    .decode = pieces_decode,
};
