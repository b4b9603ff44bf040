#include "cli/sampling_values.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/dry_breakers.h"

_Static_assert(DRY_BREAKER_MAX == 40, "BREAKER_EXPECTED says so");

/* Digits alone, and then `end`. */
static bool parse_id(const char *s, const char *end, int32_t *out)
{
    size_t n = strspn(s, "0123456789");
    unsigned long v;

    if (!n || n > 10 || s + n != end)
        return false;
    v = strtoul(s, NULL, 10);
    *out = (int32_t)v;
    return v <= INT32_MAX;
}

/* Decimal notation without a sign, or "inf". */
static bool parse_size(const char *s, double *out)
{
    char *end;

    if (strcmp(s, "inf") == 0) {
        *out = INFINITY;
        return true;
    }
    if (!isdigit((unsigned char)*s) && *s != '.')
        return false;
    if (strspn(s, "+-.0123456789eE") != strlen(s))
        return false;
    *out = strtod(s, &end);
    return !*end && *out <= (double)FLT_MAX;
}

bool bias_parse(const char *s, struct bias *out)
{
    const char *sign = s + strcspn(s, "+-");
    double x;

    if (!*sign || !parse_id(s, sign, &out->id) || !parse_size(sign + 1, &x))
        return false;
    if (*sign == '+' && x > (double)FLT_MAX)
        return false;
    out->value = (float)(*sign == '-' ? -x : x);
    return true;
}

static bool unescape(const char *s, struct text *out)
{
    static const char letters[] = "ntr\\\"'", bytes[] = "\n\t\r\\\"'";

    for (; *s; s++) {
        const char *letter;
        unsigned byte;
        if (*s != '\\') {
            text_byte(out, *s);
        } else if (*++s == 'x' && isxdigit((unsigned char)s[1]) && isxdigit((unsigned char)s[2])) {
            sscanf(s + 1, "%2x", &byte);
            text_byte(out, (char)byte);
            s += 2;
        } else if (*s && (letter = strchr(letters, *s))) {
            text_byte(out, bytes[letter - letters]);
        } else {
            return false;
        }
    }
    return true;
}

bool breaker_parse(const char *s, struct text *out)
{
    *out = (struct text){0};
    if (unescape(s, out) && (out->failed || (out->n && out->n <= DRY_BREAKER_MAX)))
        return true;
    text_release(out);
    return false;
}
