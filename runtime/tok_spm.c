/*
 * SentencePiece-style BPE (`tokenizer.ggml.model` = "llama"): spaces become U+2581, neighbours are
 * merged while the result is a piece, highest score first, and characters without a piece become
 * byte tokens.
 */
#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/tok.h"
#include "runtime/tok_pieces.h"

struct spm {
    struct pieces pieces;
    uint32_t *key; /* [n_tokens]: order of scores, the highest first; see score_key */
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

static enum status spm_load(struct vocab *v, const struct gguf *g, struct err *e)
{
    struct spm *s = mem_zalloc(sizeof *s);

    if (!s)
        return err_nomem(e, "vocabulary", sizeof *s);
    v->data = s;
    pieces_find(&s->pieces, v);
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

static uint32_t spm_key(const void *ctx, const char *p, size_t n_left, size_t n_right)
{
    const struct vocab *v = ctx;
    const struct spm *s = v->data;
    int32_t id = tok_find_text(v, p, n_left + n_right);

    return id == VOCAB_NONE ? MERGE_NONE : s->key[id];
}

static enum status spm_encode(const struct vocab *v, struct tok_work *w, const char *text, size_t n,
                              bool prefix, struct tokens *out, struct err *e)
{
    const struct spm *s = v->data;

    if (!pieces_cut(&s->pieces, w, text, n, prefix) || !merge_run(&w->merge, w->buf.p, spm_key, v))
        return err_nomem(e, "tokenizing a text", n * sizeof *w->merge.sym);
    return pieces_emit(&s->pieces, v, w, out, e);
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
    .decode = pieces_decode,
};
