/*
 * Reading test data: JSON of arrays, strings, integers and null, walked by a cursor.
 *
 *     struct json j = json_open(folder, "texts.json");      exits the test when it is missing
 *     json_begin(&j);                                       [
 *     while (json_item(&j))
 *         json_str(&j, &text);
 *     json_close(&j);
 */
#ifndef GGRUN_TESTS_UTIL_JSON_H
#define GGRUN_TESTS_UTIL_JSON_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/base/text.h"
#include "runtime/vocab.h"

struct json {
    char *all;     /* owned */
    const char *p; /* next byte */
};

static inline struct json json_open(const char *folder, const char *name)
{
    struct json j = {0};
    struct text path = {0};
    FILE *f;
    long n;

    text_addf(&path, "%s/%s", folder, name);
    f = fopen(path.p, "rb");
    if (!f || fseek(f, 0, SEEK_END) || (n = ftell(f)) < 0 || fseek(f, 0, SEEK_SET)) {
        fprintf(stderr, "cannot read '%s'\n", path.p);
        exit(1);
    }
    text_release(&path);
    j.p = j.all = calloc(1, (size_t)n + 1);
    if (!j.all || fread(j.all, 1, (size_t)n, f) != (size_t)n)
        exit(1);
    fclose(f);
    return j;
}

static inline void json_close(struct json *j)
{
    free(j->all);
    *j = (struct json){0};
}

static inline char json_peek(struct json *j)
{
    j->p += strspn(j->p, " \t\r\n");
    return *j->p;
}

static inline void json_expect(struct json *j, char c)
{
    if (json_peek(j) != c) {
        fprintf(stderr, "JSON: expected '%c' at byte %zu\n", c, (size_t)(j->p - j->all));
        exit(1);
    }
    j->p++;
}

static inline void json_begin(struct json *j)
{
    json_expect(j, '[');
}

/* True at another item of the array, false behind its end. */
static inline bool json_item(struct json *j)
{
    if (json_peek(j) == ',')
        j->p++;
    if (json_peek(j) != ']')
        return true;
    j->p++;
    return false;
}

static inline bool json_null(struct json *j) /* skips a null */
{
    if (json_peek(j) != 'n')
        return false;
    j->p += 4;
    return true;
}

static inline int32_t json_int(struct json *j)
{
    char *end;
    long v;

    json_peek(j);
    v = strtol(j->p, &end, 10);
    if (end == j->p)
        json_expect(j, '0');
    j->p = end;
    return (int32_t)v;
}

static inline void json_ints(struct json *j, struct tokens *out)
{
    json_begin(j);
    while (json_item(j))
        tokens_add(out, json_int(j));
}

static inline uint32_t json_hex4(struct json *j)
{
    char digits[5] = {0};

    memcpy(digits, j->p, 4);
    j->p += 4;
    return (uint32_t)strtoul(digits, NULL, 16);
}

static inline void json_escape(struct json *j, struct text *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = *j->p++, utf8[4];
    const char *at = strchr(from, c);
    uint32_t cp;

    if (c != 'u') {
        text_byte(out, at ? to[at - from] : c);
        return;
    }
    cp = json_hex4(j);
    if (cp >= 0xd800 && cp < 0xdc00 && j->p[0] == '\\' && j->p[1] == 'u') {
        j->p += 2;
        cp = 0x10000 + ((cp - 0xd800) << 10) + (json_hex4(j) - 0xdc00);
    }
    text_bytes(out, utf8, utf8_encode(cp, utf8));
}

/* Replaces the text in *out. */
static inline void json_str(struct json *j, struct text *out)
{
    text_clear(out);
    json_expect(j, '"');
    while (*j->p && *j->p != '"') {
        if (*j->p != '\\')
            text_byte(out, *j->p++);
        else if (j->p++)
            json_escape(j, out);
    }
    json_expect(j, '"');
}

#endif
