/*
 * Values of keys: typed access, iteration, text.
 */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/base/text.h"
#include "gguf/reader_impl.h"

static const struct {
    const char *name;
    size_t size;
} types[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = {"u8", 1},   [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2}, [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4}, [GGUF_BOOL] = {"bool", 1}, [GGUF_STR] = {"str", 0},
    [GGUF_ARR] = {"arr", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

const char *gguf_type_name(enum gguf_type t)
{
    return t < GGUF_TYPE_COUNT ? types[t].name : "?";
}

size_t gguf_type_size(enum gguf_type t)
{
    return t < GGUF_TYPE_COUNT ? types[t].size : 0;
}

bool gguf_type_is_int(enum gguf_type t)
{
    return t != GGUF_F32 && t != GGUF_F64 && gguf_type_size(t) > 0;
}

static bool is_float(enum gguf_type t)
{
    return t == GGUF_F32 || t == GGUF_F64;
}

/* ---- elements ---- */

int64_t gguf_kv_int(const struct gguf_kv *kv, uint64_t i)
{
    const uint8_t *p = (const uint8_t *)kv->raw + i * gguf_type_size(kv->elem);
    union {
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        int64_t i64;
    } v;

    assert(i < kv->n);
    memcpy(&v, p, gguf_type_size(kv->elem));
    switch (kv->elem) {
    case GGUF_U8:
    case GGUF_BOOL:
        return *p;
    case GGUF_I8:
        return v.i8;
    case GGUF_U16:
        return v.u16;
    case GGUF_I16:
        return v.i16;
    case GGUF_U32:
        return v.u32;
    case GGUF_I32:
        return v.i32;
    case GGUF_U64: /* above 2^63 - 1: the nearest that fits */
        return v.i64 < 0 ? INT64_MAX : v.i64;
    case GGUF_I64:
        return v.i64;
    default: {
        double d = gguf_kv_float(kv, i);
        if (isnan(d))
            return 0;
        if (d >= 0x1p63)
            return INT64_MAX;
        return d < -0x1p63 ? INT64_MIN : (int64_t)d;
    }
    }
}

static uint64_t u64_at(const struct gguf_kv *kv, uint64_t i)
{
    uint64_t v;

    memcpy(&v, (const uint8_t *)kv->raw + 8 * i, 8);
    return v;
}

double gguf_kv_float(const struct gguf_kv *kv, uint64_t i)
{
    const uint8_t *p = (const uint8_t *)kv->raw + i * gguf_type_size(kv->elem);
    double d = 0;
    float f;

    assert(i < kv->n);
    switch (kv->elem) {
    case GGUF_F32:
        memcpy(&f, p, sizeof f);
        return (double)f;
    case GGUF_F64:
        memcpy(&d, p, sizeof d);
        return d;
    case GGUF_U64:
        return (double)u64_at(kv, i);
    case GGUF_STR:
    case GGUF_ARR:
        return 0;
    default:
        return (double)gguf_kv_int(kv, i);
    }
}

struct gguf_str_iter gguf_strs(const struct gguf_kv *kv)
{
    return (struct gguf_str_iter){kv->raw, kv->elem == GGUF_STR ? kv->n : 0};
}

bool gguf_str_next(struct gguf_str_iter *it, struct gguf_str *out)
{
    uint64_t n;

    if (!it->left)
        return false;
    memcpy(&n, it->p, 8);
    out->p = (const char *)it->p + 8;
    out->n = (size_t)n;
    it->p += 8 + n;
    it->left--;
    return true;
}

/* ---- typed access ---- */

/* The key if it is there; NULL with *st set when it is missing, which may be right. */
static const struct gguf_kv *find(const struct gguf *g, const char *key, bool required,
                                  enum status *st, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);

    *st = ST_OK;
    if (!kv && required)
        *st = err_set(e, ST_MODEL, "key '%s' is missing", key);
    return kv;
}

static enum status wrong_type(const struct gguf_kv *kv, const char *expected, struct err *e)
{
    if (kv->type == GGUF_ARR)
        return err_set(e, ST_MODEL, "key '%s' is an array of %s, expected %s", quoted(kv->key).s,
                       gguf_type_name(kv->elem), expected);
    return err_set(e, ST_MODEL, "key '%s' has type %s, expected %s", quoted(kv->key).s,
                   gguf_type_name(kv->type), expected);
}

enum status gguf_get_u32(const struct gguf *g, const char *key, bool required, uint32_t *out,
                         struct err *e)
{
    enum status st;
    const struct gguf_kv *kv = find(g, key, required, &st, e);
    int64_t v;

    if (!kv)
        return st;
    if (!gguf_type_is_int(kv->type) || kv->type == GGUF_BOOL)
        return wrong_type(kv, "an integer", e);
    if (kv->type == GGUF_U64 && u64_at(kv, 0) > UINT32_MAX)
        return err_set(e, ST_MODEL, "key '%s' is %llu, expected 0 to %u", key,
                       (unsigned long long)u64_at(kv, 0), UINT32_MAX);
    v = gguf_kv_int(kv, 0);
    if (v < 0 || v > UINT32_MAX)
        return err_set(e, ST_MODEL, "key '%s' is %lld, expected 0 to %u", key, (long long)v,
                       UINT32_MAX);
    *out = (uint32_t)v;
    return ST_OK;
}

enum status gguf_get_f32(const struct gguf *g, const char *key, bool required, float *out,
                         struct err *e)
{
    enum status st;
    const struct gguf_kv *kv = find(g, key, required, &st, e);
    double v;

    if (!kv)
        return st;
    if (!is_float(kv->type))
        return wrong_type(kv, "f32", e);
    v = gguf_kv_float(kv, 0);
    if (isfinite(v) && fabs(v) > (double)FLT_MAX)
        return err_set(e, ST_MODEL, "key '%s' is %g, which does not fit f32", key, v);
    *out = (float)v;
    return ST_OK;
}

enum status gguf_get_bool(const struct gguf *g, const char *key, bool required, bool *out,
                          struct err *e)
{
    enum status st;
    const struct gguf_kv *kv = find(g, key, required, &st, e);
    int64_t v;

    if (!kv)
        return st;
    if (!gguf_type_is_int(kv->type))
        return wrong_type(kv, "bool", e);
    v = gguf_kv_int(kv, 0);
    if (v != 0 && v != 1)
        return err_set(e, ST_MODEL, "key '%s' is %lld, expected 0 or 1", key, (long long)v);
    *out = v == 1;
    return ST_OK;
}

enum status gguf_get_str(const struct gguf *g, const char *key, bool required, struct gguf_str *out,
                         struct err *e)
{
    enum status st;
    const struct gguf_kv *kv = find(g, key, required, &st, e);
    struct gguf_str_iter it;

    if (!kv)
        return st;
    if (kv->type != GGUF_STR)
        return wrong_type(kv, "str", e);
    it = gguf_strs(kv);
    gguf_str_next(&it, out);
    return ST_OK;
}

/* ---- text ---- */

/* The shortest digits that give the same number back. */
static void print_float(struct text *t, double v, bool is_f32)
{
    char s[40];

    for (int digits = 1; digits <= 17; digits++) {
        double back;
        snprintf(s, sizeof s, "%.*g", digits, v);
        back = strtod(s, NULL);
        if (is_f32 ? (float)back == (float)v : back == v)
            break;
    }
    text_str(t, isnan(v) ? "nan" : s);
}

static void print_number(struct text *t, const struct gguf_kv *kv, uint64_t i)
{
    if (kv->elem == GGUF_BOOL)
        text_str(t, gguf_kv_int(kv, i) ? "true" : "false");
    else if (is_float(kv->elem))
        print_float(t, gguf_kv_float(kv, i), kv->elem == GGUF_F32);
    else if (kv->elem == GGUF_U64)
        text_addf(t, "%llu", (unsigned long long)u64_at(kv, i));
    else
        text_addf(t, "%lld", (long long)gguf_kv_int(kv, i));
}

static void print_str(struct text *t, const struct gguf_str *s)
{
    text_byte(t, '\'');
    text_escape(t, s->p, s->n);
    text_byte(t, '\'');
}

void gguf_kv_print(struct text *t, const struct gguf_kv *kv, uint64_t max)
{
    struct gguf_str_iter it = gguf_strs(kv);
    bool array = kv->type == GGUF_ARR;
    uint64_t n = array && kv->n > max ? max : kv->n;
    struct gguf_str s;

    if (array)
        text_byte(t, '[');
    for (uint64_t i = 0; i < n; i++) {
        if (i)
            text_str(t, ", ");
        if (gguf_str_next(&it, &s))
            print_str(t, &s);
        else
            print_number(t, kv, i);
    }
    if (!array)
        return;
    if (n < kv->n)
        text_str(t, n ? ", ..." : "...");
    text_addf(t, "] (%llu x %s)", (unsigned long long)kv->n, gguf_type_name(kv->elem));
}
