#include "runtime/tok_charsmap.h"

#include <string.h>

enum { KEY_MAX = 1024 }; /* bytes of a string in the map; real ones have a dozen */

static uint32_t read_u32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

enum status charsmap_init(struct charsmap *m, const struct gguf *g, const char *key, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    const unsigned char *p;
    uint32_t n;

    *m = (struct charsmap){0};
    if (!kv || (kv->type == GGUF_ARR && kv->n == 0))
        return ST_OK;
    if (kv->type != GGUF_ARR || (kv->elem != GGUF_U8 && kv->elem != GGUF_I8))
        return err_set(e, ST_MODEL, "key '%s' is %s %s, not an array of bytes", key,
                       kv->type == GGUF_ARR ? "an array of" : "a single", gguf_type_name(kv->elem));
    p = kv->raw;
    if (kv->n_raw < 4)
        return err_set(e, ST_MODEL, "key '%s' has %zu bytes, too few for a character map", key,
                       kv->n_raw);
    n = read_u32(p);
    if (n == 0 || n % 4 || n >= kv->n_raw - 4)
        return err_set(e, ST_MODEL,
                       "key '%s': an array of %u bytes and replacements do not fit into %zu bytes",
                       key, n, kv->n_raw);
    if (p[kv->n_raw - 1])
        return err_set(e, ST_MODEL, "key '%s': the last replacement does not end", key);
    *m = (struct charsmap){p + 4, n / 4, (const char *)p + 4 + n, kv->n_raw - 4 - n};
    return ST_OK;
}

static uint32_t offset_of(uint32_t unit)
{
    return (unit >> 10 & 0x1fffff) << (unit & 0x200 ? 8 : 0);
}

static enum status broken(const char *what, struct err *e)
{
    return err_set(e, ST_MODEL, "key 'tokenizer.ggml.precompiled_charsmap': %s", what);
}

enum status charsmap_find(const struct charsmap *m, const char *p, size_t n, size_t *len,
                          struct gguf_str *replacement, struct err *e)
{
    uint32_t unit, at, value = 0;

    *len = 0;
    if (m->n_unit == 0)
        return ST_OK;
    at = offset_of(read_u32(m->unit));
    for (size_t i = 0; i < n && p[i]; i++) {
        unsigned char c = (unsigned char)p[i];

        if (i == KEY_MAX)
            return broken("a string of the map does not end", e);
        at ^= c;
        if (at >= m->n_unit)
            return broken("the array points out of itself", e);
        unit = read_u32(m->unit + 4 * (size_t)at);
        if ((unit & 0x800000ff) != c)
            break;
        at ^= offset_of(unit);
        if (!(unit & 0x100))
            continue;
        if (at >= m->n_unit)
            return broken("the array points out of itself", e);
        value = read_u32(m->unit + 4 * (size_t)at) & 0x7fffffff;
        *len = i + 1;
    }
    if (*len == 0)
        return ST_OK;
    if (value >= m->n_text)
        return broken("the array points out of the replacements", e);
    *replacement = (struct gguf_str){m->text + value, strlen(m->text + value)};
    return ST_OK;
}
