/*
 * Keys given by the user in place of the file's: "KEY=TYPE:VALUE".
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/base/text.h"
#include "gguf/reader_impl.h"

/* What TYPE says. */
enum kind { KIND_INT, KIND_FLOAT, KIND_BOOL, KIND_STR, N_KINDS };

static const struct {
    const char *name, *expected;
    enum gguf_type type; /* of a key that the file has not */
} kinds[N_KINDS] = {
    [KIND_INT] = {"int", "a whole number of 64 bits", GGUF_I64},
    [KIND_FLOAT] = {"float", "a number", GGUF_F64},
    [KIND_BOOL] = {"bool", "true or false", GGUF_BOOL},
    [KIND_STR] = {"str", "text", GGUF_STR},
};

struct override {
    const char *key, *value; /* into the user's text */
    size_t n_key;
    enum kind kind;
    int64_t i; /* of int and bool */
    double f;
};

/* The text for a message. */
static struct quoted short_text(const char *p, size_t n)
{
    struct quoted q;

    text_quote(q.s, sizeof q.s, p, n);
    return q;
}

static enum kind kind_named(const char *p, size_t n)
{
    int k = 0;

    while (k < N_KINDS && !(strlen(kinds[k].name) == n && memcmp(kinds[k].name, p, n) == 0))
        k++;
    return (enum kind)k;
}

static bool parse_value(struct override *o)
{
    static const char decimal[] = "+-0123456789", number[] = "+-.0123456789eE";
    const char *v = o->value;
    char *end = NULL;

    errno = 0;
    switch (o->kind) {
    case KIND_INT:
        if (!*v || strspn(v, decimal) != strlen(v))
            return false;
        o->i = strtoll(v, &end, 10);
        return !*end && !errno;
    case KIND_FLOAT:
        if (!*v || strspn(v, number) != strlen(v))
            return false;
        o->f = strtod(v, &end);
        return !*end && isfinite(o->f);
    case KIND_BOOL:
        o->i = strcmp(v, "true") == 0;
        return o->i || strcmp(v, "false") == 0;
    default:
        return true;
    }
}

static enum status parse(struct override *o, const char *text, struct err *e)
{
    const char *eq = strchr(text, '='), *colon = eq ? strchr(eq, ':') : NULL;

    if (!colon || eq == text)
        return err_set(e, ST_USAGE,
                       "'%s' is not KEY=TYPE:VALUE with TYPE one of int, float, bool, str",
                       short_text(text, strlen(text)).s);
    *o = (struct override){.key = text, .n_key = (size_t)(eq - text), .value = colon + 1};
    if (o->n_key > GGUF_MAX_KEY)
        return err_set(e, ST_USAGE, "it has a key of %zu bytes, expected at most %d", o->n_key,
                       GGUF_MAX_KEY);
    o->kind = kind_named(eq + 1, (size_t)(colon - eq - 1));
    if (o->kind == N_KINDS)
        return err_set(e, ST_USAGE, "type of '%s' is '%s', expected one of int, float, bool, str",
                       short_text(o->key, o->n_key).s,
                       short_text(eq + 1, (size_t)(colon - eq - 1)).s);
    if (!parse_value(o))
        return err_set(e, ST_USAGE, "value of '%s' is '%s', expected %s",
                       short_text(o->key, o->n_key).s, short_text(o->value, strlen(o->value)).s,
                       kinds[o->kind].expected);
    return ST_OK;
}

/* ---- values as in a file ---- */

static enum kind kind_of(enum gguf_type t)
{
    if (t == GGUF_STR)
        return KIND_STR;
    if (t == GGUF_BOOL)
        return KIND_BOOL;
    return t == GGUF_F32 || t == GGUF_F64 ? KIND_FLOAT : KIND_INT;
}

/* Does i fit an integer type of so many bytes? */
static bool int_fits(enum gguf_type t, int64_t i)
{
    int bits = (int)(8 * gguf_type_size(t));
    bool sign = t == GGUF_I8 || t == GGUF_I16 || t == GGUF_I32 || t == GGUF_I64;

    if (!sign)
        return i >= 0 && (bits == 64 || i < (int64_t)1 << bits);
    return bits == 64 || (i >= -((int64_t)1 << (bits - 1)) && i < (int64_t)1 << (bits - 1));
}

/* Put the value's bytes into kv, whose type is set; little-endian, as all of the reader. */
static enum status set_value(struct gguf *g, struct gguf_kv *kv, const struct override *o,
                             struct err *e)
{
    size_t n_text = strlen(o->value);
    size_t n = o->kind == KIND_STR ? 8 + n_text : gguf_type_size(kv->type);
    float f32 = (float)o->f;
    uint64_t n64 = n_text;
    char *raw;

    if (o->kind == KIND_INT && !int_fits(kv->type, o->i))
        return err_set(e, ST_USAGE, "value of '%s' is %lld, which does not fit its type %s",
                       quoted(kv->key).s, (long long)o->i, gguf_type_name(kv->type));
    if (kv->type == GGUF_F32 && !isfinite(f32))
        return err_set(e, ST_USAGE, "value of '%s' is %g, which does not fit its type f32",
                       quoted(kv->key).s, o->f);
    raw = arena_alloc(&g->impl->names, n);
    if (!raw)
        return err_nomem(e, "an override", n);
    if (o->kind == KIND_STR) {
        memcpy(raw, &n64, 8);
        memcpy(raw + 8, o->value, n_text);
    } else if (o->kind == KIND_FLOAT) {
        memcpy(raw, kv->type == GGUF_F32 ? (void *)&f32 : (void *)&o->f, n);
    } else {
        memcpy(raw, &o->i, n);
    }
    kv->raw = raw;
    kv->n_raw = n;
    kv->overridden = true;
    return ST_OK;
}

/* ---- keys ---- */

static enum status add_key(struct gguf *g, const struct override *o, struct err *e)
{
    struct index *ix = &g->impl->keys, grown = {0};
    struct gguf_kv *kv = mem_grow(g->kv, g->n_kv + 1, sizeof *kv);
    struct gguf_kv *added;
    enum status st;

    if (!kv)
        return err_nomem(e, "table of keys", (g->n_kv + 1) * sizeof *kv);
    g->kv = kv;
    ix->items = kv;
    added = &kv[g->n_kv];
    *added = (struct gguf_kv){.key = arena_strndup(&g->impl->names, o->key, o->n_key),
                              .type = kinds[o->kind].type,
                              .elem = kinds[o->kind].type,
                              .n = 1};
    if (!added->key)
        return err_nomem(e, "a key", o->n_key);
    st = set_value(g, added, o, e);
    if (!st)
        st = index_init(&grown, kv, sizeof *kv, g->n_kv + 1, e);
    if (st)
        return st;
    g->n_kv++;
    mem_free(ix->slots);
    *ix = grown;
    for (size_t i = 0; i < g->n_kv; i++)
        index_add(ix, i);
    return ST_OK;
}

/* Keys that opening the file has used already. */
static bool is_used(const struct override *o)
{
    static const char align[] = "general.alignment", split[] = "split.";

    return (o->n_key == sizeof align - 1 && memcmp(o->key, align, o->n_key) == 0) ||
           (o->n_key >= sizeof split - 1 && memcmp(o->key, split, sizeof split - 1) == 0);
}

static enum status replace(struct gguf *g, struct gguf_kv *kv, const struct override *o,
                           struct err *e)
{
    if (kv->type == GGUF_ARR)
        return err_set(e, ST_USAGE, "key '%s' is an array of %s, which cannot be overridden",
                       quoted(kv->key).s, gguf_type_name(kv->elem));
    if (kind_of(kv->type) != o->kind)
        return err_set(e, ST_USAGE, "type of '%s' is %s, but the key has type %s, expected %s",
                       quoted(kv->key).s, kinds[o->kind].name, gguf_type_name(kv->type),
                       kinds[kind_of(kv->type)].name);
    return set_value(g, kv, o, e);
}

enum status gguf_override(struct gguf *g, const char *text, struct err *e)
{
    struct override o;
    enum status st = parse(&o, text, e);
    size_t i = 0;

    if (st)
        return st;
    if (is_used(&o))
        return err_set(e, ST_USAGE, "key '%s' says how to read the file and cannot be overridden",
                       short_text(o.key, o.n_key).s);
    while (i < g->n_kv &&
           !(strlen(g->kv[i].key) == o.n_key && memcmp(g->kv[i].key, o.key, o.n_key) == 0))
        i++;
    return i < g->n_kv ? replace(g, &g->kv[i], &o, e) : add_key(g, &o, e);
}
