#include "runtime/vocab.h"

#include <assert.h>
#include <string.h>

#include "gguf/base/log.h"
#include "gguf/base/mem.h"
#include "runtime/pretok.h"
#include "runtime/tok.h"
#include "runtime/tok_special.h"

#define KEY(name) "tokenizer.ggml." name

static const struct tok_kind *const kinds[] = {
#define TOK_ROW(name) &tok_##name,
    TOK_KINDS(TOK_ROW)
#undef TOK_ROW
};

enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

/*
 * Markers that models are known to end a turn with. A file names one or two of them by id;
 * instruction-tuned models often end with another one, and would run on. `chat`: may stand in for a
 * missing eot_token_id, in this order. `control_only`: ends the answer only as a control token,
 * being an ordinary word elsewhere (HTML's
 * </s>). Files exist that call a marker an ordinary token; written in a prompt it is still
 * recognised where control tokens are.
 */
struct marker {
    const char *piece;
    bool chat, control_only;
};

static const struct marker markers[] = {
    {"<|eot_id|>", true, false},
    {"<|im_end|>", true, false},
    {"<end_of_turn>", true, false},
    {"<|end|>", true, false},
    {"<|endoftext|>", true, false},
    {"<|end_of_text|>", true, false},
    {"<EOT>", true, false},
    {"_<EOT>", true, false},
    {"[EOT]", true, false},
    {"<|EOT|>", true, false},
    {"<\xef\xbd\x9c"
     "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
     true, false},
    {"<end_of_utterance>", true, false},
    {"<|eom_id|>", false, false},
    {"<|return|>", false, false},
    {"<|call|>", false, false},
    {"<|calls|>", false, false},
    {"<|flush|>", false, false},
    {"<turn|>", false, false},
    {"<|tool_response>", false, false},
    {"[e~[", false, false},
    {"<|eot|>", false, true},
    {"<|end_of_turn|>", false, true},
    {"<|END_OF_TURN_TOKEN|>", false, true},
    {"[|endofturn|]", false, true},
    {"[EOS]", false, true},
    {"<eos>", false, true},
    {"</s>", false, true},
    {"<|fim_pad|>", false, true},
    {"<|repo_name|>", false, true},
    {"<|file_sep|>", false, true},
};

enum { N_MARKERS = sizeof markers / sizeof markers[0] };

/* ---- pieces and their index ---- */

static int32_t find_hashed(const struct vocab *v, const char *p, size_t n, uint64_t hash)
{
    uint32_t tag = (uint32_t)(hash >> 32);

    for (size_t i = hash & v->slot_mask; v->slot[i].ref; i = (i + 1) & v->slot_mask) {
        int32_t id = (int32_t)(v->slot[i].ref - 1);

        if (v->slot[i].tag == tag && v->piece[id].n == n && memcmp(v->piece[id].p, p, n) == 0)
            return id;
    }
    return VOCAB_NONE;
}

int32_t vocab_find(const struct vocab *v, const char *piece, size_t n)
{
    if (!v->slot || n > v->max_piece)
        return VOCAB_NONE;
    return find_hashed(v, piece, n, tok_hash(piece, n));
}

int32_t tok_find_text(const struct vocab *v, const char *p, size_t n)
{
    int32_t id = vocab_find(v, p, n);
    enum token_type t;

    if (id == VOCAB_NONE)
        return id;
    t = tok_type(v, id);
    if (v->info[id] & TOKF_LIKE_CONTROL)
        return VOCAB_NONE;
    return t == TOK_CONTROL || t == TOK_UNKNOWN || t == TOK_BYTE ? VOCAB_NONE : id;
}

/* The first of equal pieces keeps its place; the others can be decoded, but no text becomes them. */
static bool index_piece(struct vocab *v, int32_t id, uint64_t hash)
{
    struct gguf_str s = v->piece[id];
    size_t i = hash & v->slot_mask;

    for (; v->slot[i].ref; i = (i + 1) & v->slot_mask) {
        struct gguf_str o = v->piece[v->slot[i].ref - 1];

        if (v->slot[i].tag == (uint32_t)(hash >> 32) && o.n == s.n && memcmp(o.p, s.p, s.n) == 0)
            return false;
    }
    v->slot[i] = (struct vocab_slot){.tag = (uint32_t)(hash >> 32), .ref = (uint32_t)id + 1};
    return true;
}

enum status tok_get_array(const struct gguf *g, const char *key, enum gguf_type elem, uint64_t n,
                          bool required, const struct gguf_kv **out, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    const char *want = elem == GGUF_STR ? "strings" : elem == GGUF_F32 ? "numbers" : "integers";
    bool fits;

    *out = NULL;
    if (!kv && required)
        return err_set(e, ST_MODEL, "key '%s' is missing", key);
    if (!kv)
        return ST_OK;
    fits = elem == GGUF_STR ? kv->elem == GGUF_STR
           : elem == GGUF_F32
               ? gguf_type_is_int(kv->elem) || kv->elem == GGUF_F32 || kv->elem == GGUF_F64
               : gguf_type_is_int(kv->elem);
    if (kv->type != GGUF_ARR || !fits)
        return err_set(e, ST_MODEL, "key '%s' is %s %s, not an array of %s", key,
                       kv->type == GGUF_ARR ? "an array of" : "a single", gguf_type_name(kv->elem),
                       want);
    if (n ? kv->n != n : kv->n == 0)
        return err_set(e, ST_MODEL, "key '%s' has %llu elements, expected %s%llu", key,
                       (unsigned long long)kv->n, n ? "" : "at least ",
                       n ? (unsigned long long)n : 1ULL);
    *out = kv;
    return ST_OK;
}

static void index_pieces(struct vocab *v)
{
    uint64_t hash[TOK_AHEAD] = {0};
    int32_t n_repeated = 0, first = 0;
    char q[64];

    for (int32_t i = 0; i < v->n_tokens + TOK_AHEAD; i++) {
        uint64_t *h = &hash[i % TOK_AHEAD];

        if (i >= TOK_AHEAD && !index_piece(v, i - TOK_AHEAD, *h) && n_repeated++ == 0)
            first = i - TOK_AHEAD;
        if (i < v->n_tokens) {
            *h = tok_hash(v->piece[i].p, v->piece[i].n);
            tok_prefetch(v, *h);
        }
    }
    if (n_repeated)
        log_warn("key '" KEY(
                     "tokens") "' repeats %d pieces, the first being '%s' at %d; text becomes the "
                               "first of equals",
                 n_repeated, text_quote(q, sizeof q, v->piece[first].p, v->piece[first].n), first);
}

static enum status load_pieces(struct vocab *v, const struct gguf *g, struct err *e)
{
    const struct gguf_kv *kv;
    struct gguf_str_iter it;
    size_t n_slots = 16;
    enum status st = tok_get_array(g, KEY("tokens"), GGUF_STR, 0, true, &kv, e);

    if (st)
        return st;
    if (kv->n > INT32_MAX / 4)
        return err_set(e, ST_MODEL, "key '%s' has %llu elements, at most %d are possible", kv->key,
                       (unsigned long long)kv->n, INT32_MAX / 4);
    v->n_tokens = (int32_t)kv->n;
    while (n_slots * 3 < 4 * (size_t)kv->n + 4)
        n_slots *= 2;
    v->slot_mask = n_slots - 1;
    v->piece = mem_array(kv->n, sizeof *v->piece);
    v->info = mem_array(kv->n, sizeof *v->info);
    v->slot = mem_array(n_slots, sizeof *v->slot);
    if (!v->piece || !v->info || !v->slot)
        return err_nomem(e, "vocabulary", n_slots * sizeof *v->slot + kv->n * sizeof *v->piece);

    it = gguf_strs(kv);
    for (int32_t i = 0; i < v->n_tokens && gguf_str_next(&it, &v->piece[i]); i++)
        if (v->piece[i].n > v->max_piece)
            v->max_piece = v->piece[i].n;
    index_pieces(v);
    return ST_OK;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

int tok_byte_piece(struct gguf_str s)
{
    int hi, lo;

    if (s.n != 6 || memcmp(s.p, "<0x", 3) != 0 || s.p[5] != '>')
        return -1;
    hi = hex_digit(s.p[3]);
    lo = hex_digit(s.p[4]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

static enum status load_types(struct vocab *v, const struct gguf *g, struct err *e)
{
    const struct gguf_kv *kv;
    char q[64];
    enum status st =
        tok_get_array(g, KEY("token_type"), GGUF_I32, (uint64_t)v->n_tokens, false, &kv, e);

    if (st)
        return st;
    v->has_types = kv != NULL;
    for (int32_t i = 0; i < v->n_tokens; i++) {
        int64_t t = kv ? gguf_kv_int(kv, (uint64_t)i) : TOK_NORMAL;

        if (t < TOK_UNDEFINED || t > TOK_BYTE)
            return err_set(e, ST_MODEL, "key '%s': element %d is %lld, not a token type (0 to 6)",
                           kv->key, i, (long long)t);
        if (t == TOK_BYTE && tok_byte_piece(v->piece[i]) < 0)
            return err_set(e, ST_MODEL,
                           "key '%s': element %d says that '%s' is a byte, expected a piece like "
                           "'<0x0A>'",
                           kv->key, i, text_quote(q, sizeof q, v->piece[i].p, v->piece[i].n));
        v->info[i] = (uint8_t)t;
    }
    return ST_OK;
}

/* ---- special ids ---- */

/* The id under `key`; or, without the key, that of the kind's usual piece if it is a special token. */
static enum status load_id(struct vocab *v, const struct gguf *g, const char *key,
                           const char *piece, int32_t *out, struct err *e)
{
    uint32_t id = UINT32_MAX;
    enum status st = gguf_get_u32(g, key, false, &id, e);

    if (st)
        return st;
    if (gguf_find(g, key)) {
        if (id >= (uint32_t)v->n_tokens)
            return err_set(e, ST_MODEL, "key '%s' is %u, but there are only %d tokens", key, id,
                           v->n_tokens);
        *out = (int32_t)id;
        return ST_OK;
    }
    *out = piece ? vocab_find(v, piece, strlen(piece)) : VOCAB_NONE;
    if (*out != VOCAB_NONE && !tok_is_special(tok_type(v, *out)))
        *out = VOCAB_NONE;
    return ST_OK;
}

static enum status load_ids(struct vocab *v, const struct gguf *g, struct err *e)
{
    const struct tok_kind *k = v->kind;
    const char *bos_key =
        k->bos_key2 && !gguf_find(g, KEY("bos_token_id")) ? k->bos_key2 : KEY("bos_token_id");
    const struct {
        const char *key, *piece;
        int32_t *out;
    } ids[] = {
        {bos_key, k->bos_piece, &v->bos},
        {k->eos_key ? k->eos_key : KEY("eos_token_id"), k->eos_piece, &v->eos},
        {KEY("eot_token_id"), NULL, &v->eot},
        {KEY("eom_token_id"), NULL, &v->eom},
        {KEY("unknown_token_id"), k->unk_piece, &v->unk},
    };
    enum status st;

    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        st = load_id(v, g, ids[i].key, ids[i].piece, ids[i].out, e);
        if (st)
            return st;
    }
    st = gguf_get_bool(g, KEY("add_bos_token"), false, &v->add_bos, e);
    if (!st)
        st = gguf_get_bool(g, KEY("add_eos_token"), false, &v->add_eos, e);
    if (!st)
        st = gguf_get_bool(g, KEY("add_space_prefix"), false, &v->add_space_prefix, e);
    if (st)
        return st;
    if (v->always_bos && !v->add_bos) {
        log_warn(
            "key '" KEY("add_bos_token") "' is false, but models with pre-tokenizer '%s' need a "
                                         "BOS token in front; it is added",
            v->pre);
        v->add_bos = true;
    }
    v->add_space_prefix &=
        k->add_space_prefix; /* byte-level BPE has no such rule, some files say so */
    if (v->add_bos && v->bos == VOCAB_NONE)
        log_warn("the vocabulary wants a BOS token in front, but has none; none is added");
    if (v->add_eos && v->eos == VOCAB_NONE)
        log_warn("the vocabulary wants an EOS token at the end, but has none; none is added");
    v->add_bos = v->add_bos && v->bos != VOCAB_NONE;
    v->add_eos = v->add_eos && v->eos != VOCAB_NONE;
    return ST_OK;
}

static bool has_piece(const struct vocab *v, const char *piece)
{
    return vocab_find(v, piece, strlen(piece)) != VOCAB_NONE;
}

static void mark_markers(struct vocab *v)
{
    /* In the vocabularies of gpt-oss and Solar, <|end|> ends a section, and others end the answer. */
    bool sections = has_piece(v, "<|call|>")
                        ? has_piece(v, "<|return|>")
                        : has_piece(v, "<|calls|>") && has_piece(v, "<|flush|>");
    /* Those of Gemma 4 and PLaMo hold </s> as a piece of HTML. */
    bool plain_end = has_piece(v, "<|tool_response>") || has_piece(v, "<|plamo:eos|>");

    for (size_t i = 0; i < N_MARKERS; i++) {
        const struct marker *m = &markers[i];
        int32_t id = vocab_find(v, m->piece, strlen(m->piece));

        if (id == VOCAB_NONE || tok_type(v, id) == TOK_UNKNOWN)
            continue;
        if (m->control_only && plain_end && !tok_is_special(tok_type(v, id)))
            continue;
        if (!tok_is_special(tok_type(v, id)))
            v->info[id] |= TOKF_MARKER;
        if (m->control_only && tok_type(v, id) != TOK_CONTROL)
            continue;
        if (sections && strcmp(m->piece, "<|end|>") == 0)
            continue;
        v->info[id] |= TOKF_EOG;
        if (v->eot == VOCAB_NONE && m->chat)
            v->eot = id;
    }
    if (v->eos != VOCAB_NONE)
        v->info[v->eos] |= TOKF_EOG;
    if (v->eot != VOCAB_NONE)
        v->info[v->eot] |= TOKF_EOG;
    if (v->eom != VOCAB_NONE)
        v->info[v->eom] |= TOKF_EOG;
}

/* Many files call the marks of a chat template user-defined, as they do HTML tags and runs of
 * spaces, which a text may hold. */
static void mark_like_control(struct vocab *v)
{
    static const char *const marks[] = {"<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]"};

    for (int32_t i = 0; i < v->n_tokens; i++) {
        struct gguf_str p = v->piece[i];
        bool like = v->info[i] & TOKF_EOG ||
                    (p.n >= 4 && memcmp(p.p, "<|", 2) == 0 && memcmp(p.p + p.n - 2, "|>", 2) == 0);

        if (tok_type(v, i) != TOK_USER_DEFINED)
            continue;
        for (size_t k = 0; k < sizeof marks / sizeof marks[0]; k++)
            like |= p.n == strlen(marks[k]) && memcmp(p.p, marks[k], p.n) == 0;
        if (like)
            v->info[i] |= TOKF_LIKE_CONTROL;
    }
}

static bool contains_folded(struct gguf_str s, const char *word)
{
    size_t n = strlen(word);

    for (size_t i = 0; i + n <= s.n; i++) {
        size_t j = 0;

        while (j < n && (s.p[i + j] == word[j] ||
                         (word[j] >= 'a' && word[j] <= 'z' && s.p[i + j] == word[j] - 'a' + 'A')))
            j++;
        if (j == n)
            return true;
    }
    return false;
}

/* Phi-3's special tokens swallow the white space that follows them. */
static void strip_behind_all(struct vocab *v)
{
    static const char *const plain[] = {"<unk>", "<s>", "<|endoftext|>"};

    for (int32_t i = 0; i < v->n_tokens; i++)
        if (tok_stands_alone(v, i))
            v->info[i] |= TOKF_RSTRIP;
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        int32_t id = vocab_find(v, plain[i], strlen(plain[i]));

        if (id != VOCAB_NONE)
            v->info[id] &= (uint8_t)~TOKF_RSTRIP;
    }
}

/* The mask token of some encoders swallows the white space in front of it. */
static void strip_in_front(struct vocab *v, const char *piece)
{
    int32_t id = vocab_find(v, piece, strlen(piece));

    if (id != VOCAB_NONE)
        v->info[id] |= TOKF_LSTRIP;
}

/* Files do not carry these properties, so the model is told by its names, as llama.cpp does. */
static enum status mark_strip(struct vocab *v, const struct gguf *g, struct err *e)
{
    struct gguf_str name = {"", 0}, arch = {"", 0}, pre = {v->pre, strlen(v->pre)};
    enum status st = gguf_get_str(g, "general.name", false, &name, e);

    if (!st)
        st = gguf_get_str(g, "general.architecture", false, &arch, e);
    if (st)
        return st;
    if (contains_folded(pre, "jina-v2-") || contains_folded(arch, "nomic-bert-moe") ||
        contains_folded(arch, "jina-bert-v3"))
        strip_in_front(v, "<mask>");
    else if (contains_folded(name, "phi-3") || contains_folded(name, "phi3"))
        strip_behind_all(v);
    else if (contains_folded(name, "modern-bert"))
        strip_in_front(v, "[MASK]");
    return ST_OK;
}

/* ---- loading ---- */

/* A model without tokenizer still has token ids. */
static enum status load_none(struct vocab *v, const struct gguf *g, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, KEY("tokens"));
    const struct gguf_tensor *t = gguf_find_tensor(g, "token_embd.weight");
    struct gguf_str arch = {"", 0};
    char key[128] = "";
    uint32_t n = 0;
    enum status st = gguf_get_str(g, "general.architecture", false, &arch, e);

    if (st)
        return st;
    if (arch.n < 100) {
        memcpy(key, arch.p, arch.n);
        memcpy(key + arch.n, ".vocab_size", sizeof ".vocab_size");
        st = gguf_get_u32(g, key, false, &n, e);
        if (st)
            return st;
    }
    if (!n && t && t->n_dims == 2 && t->ne[1] <= INT32_MAX)
        n = (uint32_t)t->ne[1];
    if (!n && kv && kv->type == GGUF_ARR && kv->n <= INT32_MAX)
        n = (uint32_t)kv->n;
    if (n > INT32_MAX)
        return err_set(e, ST_MODEL, "key '%s' is %u, at most %d is possible", key, n, INT32_MAX);
    v->n_tokens = (int32_t)n;
    return ST_OK;
}

static enum status unknown_kind(struct gguf_str model, struct err *e)
{
    struct text known = {0};
    char q[64];
    enum status st;

    for (size_t i = 0; i < N_KINDS; i++)
        text_addf(&known, "'%s', ", kinds[i]->model);
    st = known.failed
             ? err_nomem(e, "message", known.n)
             : err_set(e, ST_UNSUPPORTED,
                       "tokenizer '%s' (key '" KEY("model") "') is not supported; known are "
                                                            "%s'none'",
                       text_quote(q, sizeof q, model.p, model.n), known.p);
    text_release(&known);
    return st;
}

static bool is(struct gguf_str s, const char *word)
{
    return s.n == strlen(word) && memcmp(s.p, word, s.n) == 0;
}

static enum status choose_kind(struct vocab *v, const struct gguf *g, struct err *e)
{
    struct gguf_str model = {"none", 4};
    enum status st = gguf_get_str(g, KEY("model"), false, &model, e);

    if (st || is(model, "none") || is(model, "no_vocab"))
        return st;
    for (size_t i = 0; i < N_KINDS; i++)
        if (is(model, kinds[i]->model)) {
            v->kind = kinds[i];
            return ST_OK;
        }
    return unknown_kind(model, e);
}

enum status vocab_load(struct vocab **out, const struct gguf *g, struct err *e)
{
    struct vocab *v = mem_zalloc(sizeof *v);
    enum status st;

    *out = NULL;
    if (!v)
        return err_nomem(e, "vocabulary", sizeof *v);
    v->bos = v->eos = v->eot = v->eom = v->unk = VOCAB_NONE;
    v->pre = "default";
    st = choose_kind(v, g, e);
    if (!st && !v->kind) {
        st = load_none(v, g, e);
        if (st)
            goto fail;
        *out = v;
        return ST_OK;
    }
    if (st)
        goto fail;
    v->add_bos = v->kind->add_bos;
    v->add_eos = v->kind->add_eos;
    v->add_space_prefix = v->kind->add_space_prefix;

    st = load_pieces(v, g, e);
    if (!st)
        st = load_types(v, g, e);
    if (!st)
        st = v->kind->load(v, g, e);
    if (!st)
        st = load_ids(v, g, e);
    if (st)
        goto fail;
    mark_markers(v);
    mark_like_control(v);
    st = mark_strip(v, g, e);
    if (!st)
        st = special_new(&v->special, v, e);
    if (st)
        goto fail;
    *out = v;
    return ST_OK;
fail:
    vocab_free(v);
    return st;
}

void vocab_free(struct vocab *v)
{
    if (!v)
        return;
    special_free(v->special);
    if (v->kind)
        v->kind->unload(v);
    mem_free(v->slot);
    mem_free(v->info);
    mem_free(v->piece);
    mem_free(v);
}

/* ---- facts ---- */

int32_t vocab_n_tokens(const struct vocab *v)
{
    return v->n_tokens;
}

bool vocab_has_text(const struct vocab *v)
{
    return v->kind != NULL;
}

const char *vocab_kind(const struct vocab *v)
{
    return v->kind ? v->kind->name : "none";
}

const char *vocab_pre(const struct vocab *v)
{
    return v->pre;
}

int32_t vocab_bos(const struct vocab *v)
{
    return v->bos;
}

int32_t vocab_eos(const struct vocab *v)
{
    return v->eos;
}

int32_t vocab_eot(const struct vocab *v)
{
    return v->eot;
}

bool vocab_add_bos(const struct vocab *v)
{
    return v->add_bos;
}

bool vocab_add_eos(const struct vocab *v)
{
    return v->add_eos;
}

static bool has_id(const struct vocab *v, int32_t id)
{
    return v->kind && id >= 0 && id < v->n_tokens;
}

bool vocab_is_eog(const struct vocab *v, int32_t id)
{
    return has_id(v, id) && v->info[id] & TOKF_EOG;
}

enum token_type vocab_type(const struct vocab *v, int32_t id)
{
    return has_id(v, id) ? tok_type(v, id) : TOK_UNDEFINED;
}

struct gguf_str vocab_piece(const struct vocab *v, int32_t id)
{
    return has_id(v, id) ? v->piece[id] : (struct gguf_str){"", 0};
}

/* ---- encoding ---- */

bool tokens_reserve(struct tokens *t, size_t n)
{
    void *p;

    if (n <= t->cap)
        return true;
    p = mem_grow(t->id, n, sizeof *t->id);
    if (!p)
        return false;
    t->id = p;
    t->cap = n;
    return true;
}

void tokens_add(struct tokens *t, int32_t id)
{
    if (t->failed)
        return;
    if (t->n == t->cap && !tokens_reserve(t, t->cap ? 2 * t->cap : 64)) {
        t->failed = true;
        return;
    }
    t->id[t->n++] = id;
}

void tokens_release(struct tokens *t)
{
    mem_free(t->id);
    *t = (struct tokens){0};
}

static enum status no_text(struct err *e)
{
    return err_set(
        e, ST_UNSUPPORTED,
        "this model has no tokenizer (key '" KEY("model") "' is 'none' or missing); only "
                                                          "token ids can be used");
}

static void work_release(struct tok_work *w)
{
    merge_release(&w->merge);
    text_release(&w->buf);
    pretok_run_free(w->run);
}

/* Text between special tokens through the kind, special tokens as they are. */
static enum status encode_parts(const struct vocab *v, struct tok_work *w, const char *text,
                                size_t n, const struct special_hits *hits, struct tokens *out,
                                struct err *e)
{
    bool after_special = true; /* the start of a text counts as such */
    size_t pos = 0;

    for (size_t i = 0; i <= hits->n; i++) {
        size_t end = i < hits->n ? hits->hit[i].pos : n;

        if (i < hits->n && v->info[hits->hit[i].id] & TOKF_LSTRIP)
            while (end > pos && tok_is_space(text[end - 1]))
                end--;
        if (end > pos) {
            enum status st = v->kind->encode(v, w, text + pos, end - pos,
                                             after_special && v->add_space_prefix, out, e);

            if (st)
                return st;
        }
        if (i < hits->n) {
            tokens_add(out, hits->hit[i].id);
            after_special = true;
            pos = hits->hit[i].end;
        }
    }
    return ST_OK;
}

enum status vocab_encode(const struct vocab *v, const char *text, size_t n, unsigned flags,
                         struct tokens *out, struct err *e)
{
    return vocab_encode_mixed(v, text, n, NULL, flags, out, e);
}

enum status vocab_encode_mixed(const struct vocab *v, const char *text, size_t n,
                               const struct text_spans *plain, unsigned flags, struct tokens *out,
                               struct err *e)
{
    struct tok_work w = {.base = text, .merge.cancel = out->cancel};
    struct special_hits hits = {0};
    size_t n_before = out->n;
    bool starts, ends;
    enum status st;

    if (!v->kind)
        return no_text(e);
    if (n > TOK_TEXT_MAX)
        return err_set(e, ST_UNSUPPORTED,
                       "text has %zu bytes; at most %zu can be tokenized at once", n, TOK_TEXT_MAX);
    st = special_find(v->special, text, n, flags & ENC_SPECIAL, plain, &hits, e);
    if (st)
        return st;

    starts = hits.n && hits.hit[0].pos == 0 && hits.hit[0].id == v->bos;
    if (flags & ENC_BOS && v->add_bos && !starts)
        tokens_add(out, v->bos);
    st = encode_parts(v, &w, text, n, &hits, out, e);
    ends = hits.n && hits.hit[hits.n - 1].end == n && hits.hit[hits.n - 1].id == v->eos;
    if (flags & ENC_EOS && v->add_eos && !ends)
        tokens_add(out, v->eos);

    if (!st && out->failed)
        st = err_nomem(e, "tokens", out->n * 2 * sizeof *out->id);
    if (out->cancel && atomic_load(out->cancel)) /* whatever a kind has made of it */
        st = err_set(e, ST_CANCELLED, "stopped while tokenizing");
    if (st)
        out->n = n_before;
    work_release(&w);
    special_hits_release(&hits);
    return st;
}

/* ---- decoding ---- */

void detok_init(struct detok *d, const struct vocab *v, bool special)
{
    *d = (struct detok){.v = v, .special = special};
}

void detok_resume(struct detok *d)
{
    d->started = true;
}

/* Ordinary text and bytes; the space that encoding put in front of a text is taken off again. */
static void add_text(struct detok *d, int32_t id, struct text *out)
{
    const struct vocab *v = d->v;
    size_t n_before = out->n;

    if (tok_type(v, id) == TOK_BYTE)
        text_byte(out, (char)tok_byte_piece(v->piece[id]));
    else
        v->kind->decode(v, v->piece[id], out);
    if (out->n == n_before)
        return;
    if (!d->started && v->add_space_prefix && out->p[n_before] == ' ') {
        memmove(out->p + n_before, out->p + n_before + 1, out->n - n_before);
        out->n--;
    }
    d->started = true;
}

enum status detok_add(struct detok *d, int32_t id, struct text *out, struct err *e)
{
    const struct vocab *v = d->v;

    if (!v->kind)
        return no_text(e);
    if (id < 0 || id >= v->n_tokens)
        return err_set(e, ST_USAGE, "token id %d is outside the vocabulary (0 to %d)", id,
                       v->n_tokens - 1);
    switch (tok_type(v, id)) {
    case TOK_CONTROL:
    case TOK_UNKNOWN:
        if (!d->special)
            break;
        /* fall through */
    case TOK_USER_DEFINED:
        text_bytes(out, v->piece[id].p, v->piece[id].n);
        d->started = false; /* encoding puts a space in front of what follows a special token */
        break;
    default:
        add_text(d, id, out);
    }
    return out->failed ? err_nomem(e, "text of tokens", out->n) : ST_OK;
}
