#include "gguf/base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "gguf/base/mem.h"

void text_release(struct text *t)
{
    mem_free(t->p);
    *t = (struct text){0};
}

void text_clear(struct text *t)
{
    t->n = 0;
    if (t->p)
        t->p[0] = 0;
}

bool text_reserve(struct text *t, size_t n)
{
    size_t need, cap = t->cap ? t->cap : 64;
    char *p;

    if (t->failed)
        return false;
    if (!mem_add(t->n, n, &need) || !mem_add(need, 1, &need))
        goto fail;
    if (need <= t->cap)
        return true;
    while (cap < need && cap <= SIZE_MAX / 2)
        cap *= 2;
    if (cap < need)
        cap = need;
    p = mem_grow(t->p, cap, 1);
    if (!p)
        goto fail;
    t->p = p;
    t->cap = cap;
    return true;
fail:
    t->failed = true;
    return false;
}

void text_bytes(struct text *t, const void *p, size_t n)
{
    if (!text_reserve(t, n))
        return;
    if (n)
        memcpy(t->p + t->n, p, n);
    t->n += n;
    t->p[t->n] = 0;
}

void text_str(struct text *t, const char *s)
{
    text_bytes(t, s, strlen(s));
}

void text_byte(struct text *t, char c)
{
    text_bytes(t, &c, 1);
}

void text_addf(struct text *t, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !text_reserve(t, (size_t)n))
        return;
    va_start(ap, fmt);
    vsnprintf(t->p + t->n, (size_t)n + 1, fmt, ap);
    va_end(ap);
    t->n += (size_t)n;
}

/* One escaped item from p[0..n) into out[8]; returns input bytes used, sets *n_out. */
static size_t escape_step(const unsigned char *p, size_t n, char out[8], size_t *n_out)
{
    static const char short_for[256] = {
        ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't', ['\\'] = '\\', ['\''] = '\''};
    uint32_t cp;
    size_t k = utf8_decode(p, n, &cp);

    if (k == 1 && short_for[p[0]]) {
        out[0] = '\\';
        out[1] = short_for[p[0]];
        *n_out = 2;
        return 1;
    }
    if (k == 0 || cp < 0x20 || cp == 0x7f || (cp >= 0x80 && cp < 0xa0)) {
        k = k ? k : 1;
        *n_out = (size_t)snprintf(out, 8, "\\x%02x", p[k - 1]);
        return k;
    }
    memcpy(out, p, k);
    *n_out = k;
    return k;
}

void text_escape(struct text *t, const void *p, size_t n)
{
    const unsigned char *s = p;
    char item[8];
    size_t k;

    for (size_t i = 0; i < n;) {
        i += escape_step(s + i, n - i, item, &k);
        text_bytes(t, item, k);
    }
}

const char *text_quote(char *out, size_t n_out, const void *p, size_t n)
{
    const unsigned char *s = p;
    size_t used = 0, cut = 0; /* cut: where "..." can begin */
    char item[8];
    size_t k;

    for (size_t i = 0; i < n;) {
        i += escape_step(s + i, n - i, item, &k);
        if (used + k + 1 > n_out) {
            used = cut;
            if (cut + 4 <= n_out) {
                memcpy(out + cut, "...", 3);
                used += 3;
            }
            break;
        }
        memcpy(out + used, item, k);
        used += k;
        if (used + 4 <= n_out)
            cut = used;
    }
    out[used] = 0;
    return out;
}

/* Bytes that a sequence starting with c should have; 0 for a byte that starts none. */
static size_t utf8_need(unsigned char c)
{
    if (c < 0x80)
        return 1;
    if (c >= 0xc2 && c <= 0xdf)
        return 2;
    if (c >= 0xe0 && c <= 0xef)
        return 3;
    if (c >= 0xf0 && c <= 0xf4)
        return 4;
    return 0;
}

/* May c be the second byte after lead? RFC 3629, section 4: no overlong, surrogate or > 10ffff. */
static bool utf8_second_ok(unsigned char lead, unsigned char c)
{
    unsigned char lo = 0x80, hi = 0xbf;

    if (lead == 0xe0)
        lo = 0xa0;
    else if (lead == 0xed)
        hi = 0x9f;
    else if (lead == 0xf0)
        lo = 0x90;
    else if (lead == 0xf4)
        hi = 0x8f;
    return c >= lo && c <= hi;
}

size_t utf8_decode(const void *p, size_t n, uint32_t *cp)
{
    static const unsigned char mask[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    const unsigned char *s = p;
    size_t k = utf8_need(s[0]);
    uint32_t c;

    if (!k || k > n || (k > 1 && !utf8_second_ok(s[0], s[1])))
        return 0;
    c = s[0] & mask[k];
    for (size_t i = 1; i < k; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3f);
    }
    *cp = c;
    return k;
}

size_t utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

size_t utf8_complete(const void *p, size_t n)
{
    const unsigned char *s = p;

    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = s[n - back];
        size_t need = utf8_need(c);
        if (need) { /* a lead byte: is what follows a proper but unfinished start? */
            if (need <= back)
                return n;
            if (back >= 2 && !utf8_second_ok(c, s[n - back + 1]))
                return n;
            return n - back;
        }
        if ((c & 0xc0) != 0x80)
            return n;
    }
    return n;
}

const char *text_size(char *out, size_t n_out, uint64_t n_bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)n_bytes / 1024; /* from 1023.95 on it would be printed as 1024.0 */
    size_t u = 0;

    if (n_bytes < 1024) {
        snprintf(out, n_out, "%u B", (unsigned)n_bytes);
        return out;
    }
    while (v >= 1023.95 && u + 1 < sizeof units / sizeof units[0]) {
        v /= 1024;
        u++;
    }
    snprintf(out, n_out, "%.1f %s", v, units[u]);
    return out;
}

/* 1 to n digits; *base, if given, is 10 to their number. */
static bool parse_digits(const char **s, int n, uint64_t *v, uint64_t *base)
{
    int k = 0;

    for (; **s >= '0' && **s <= '9'; (*s)++, k++) {
        if (k == n || __builtin_mul_overflow(*v, (uint64_t)10, v) ||
            __builtin_add_overflow(*v, (uint64_t)(**s - '0'), v))
            return false;
        if (base)
            *base *= 10;
    }
    return k > 0;
}

bool text_parse_size(const char *s, uint64_t *n_bytes)
{
    static const struct {
        const char *name;
        unsigned shift;
    } units[] = {{"", 0},     {"B", 0},   {"K", 10},   {"KB", 10}, {"KiB", 10},
                 {"M", 20},   {"MB", 20}, {"MiB", 20}, {"G", 30},  {"GB", 30},
                 {"GiB", 30}, {"T", 40},  {"TB", 40},  {"TiB", 40}};
    uint64_t whole = 0, part = 0, parts = 1;

    if (!parse_digits(&s, 20, &whole, NULL) ||
        (*s == '.' && (s++, !parse_digits(&s, 6, &part, &parts))))
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        unsigned shift = units[i].shift;

        if (strcasecmp(s, units[i].name) != 0)
            continue;
        if (whole > UINT64_MAX >> shift || (parts > 1 && shift == 0) ||
            __builtin_add_overflow(whole << shift, (part << shift) / parts, &whole))
            return false;
        *n_bytes = whole;
        return true;
    }
    return false;
}

/* ---- ranges ---- */

void text_spans_add(struct text_spans *s, size_t from, size_t to)
{
    if (s->failed || from >= to)
        return;
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 8;
        void *p = mem_grow(s->span, cap, sizeof *s->span);

        if (!p) {
            s->failed = true;
            return;
        }
        s->span = p;
        s->cap = cap;
    }
    s->span[s->n++] = (struct text_span){from, to};
}

void text_spans_release(struct text_spans *s)
{
    mem_free(s->span);
    *s = (struct text_spans){0};
}

/* ---- white space ---- */

static bool is_blank(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x20) || cp == 0x85 || cp == 0xa0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

size_t text_blank_front(const void *p, size_t n)
{
    size_t i = 0, k;
    uint32_t cp;

    while (i < n && (k = utf8_decode((const char *)p + i, n - i, &cp)) && is_blank(cp))
        i += k;
    return i;
}

size_t text_blank_end(const void *p, size_t n)
{
    size_t end = n;

    while (end) {
        size_t start = end - 1;
        uint32_t cp;
        while (start && end - start < 3 && (((const unsigned char *)p)[start] & 0xc0) == 0x80)
            start--;
        if (utf8_decode((const char *)p + start, end - start, &cp) != end - start || !is_blank(cp))
            break;
        end = start;
    }
    return n - end;
}
