/*
 * Text: a growing byte string, UTF-8 steps, and sizes for people.
 */
#ifndef GGRUN_GGUF_BASE_TEXT_H
#define GGRUN_GGUF_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A byte string that grows. `p` is NUL-terminated once anything was added; bytes may include NUL.
 * Sticky: after a failed allocation `failed` is set and later calls do nothing.
 */
struct text {
    char *p; /* owned; NULL while empty */
    size_t n, cap;
    bool failed;
};

void text_release(struct text *t);          /* frees and zeroes */
void text_clear(struct text *t);            /* n = 0, memory kept */
bool text_reserve(struct text *t, size_t n); /* room for n more bytes; false on failure */
void text_bytes(struct text *t, const void *p, size_t n);
void text_str(struct text *t, const char *s);
void text_byte(struct text *t, char c);
void text_addf(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Add n bytes with control bytes, quotes and invalid UTF-8 as \n, \x1b, ...: safe in a message. */
void text_escape(struct text *t, const void *p, size_t n);

/* The same into a caller's array, shortened with "..." when it does not fit; returns `out`. */
const char *text_quote(char *out, size_t n_out, const void *p, size_t n);

/* Ranges of bytes [from, to) of a text, in order. Sticky as struct text. Zero is a valid start. */
struct text_spans {
    struct text_span {
        size_t from, to;
    } *span; /* owned; [n] */
    size_t n, cap;
    bool failed;
};
void text_spans_add(struct text_spans *s, size_t from, size_t to); /* nothing when it is empty */
void text_spans_release(struct text_spans *s);

/* Bytes of white space (as Python's str.isspace has it) at the start of p[0..n), and at its end. */
size_t text_blank_front(const void *p, size_t n);
size_t text_blank_end(const void *p, size_t n);

/*
 * Decode one code point from p[0..n). Returns the bytes used (1..4) and sets *cp; for an invalid,
 * overlong, surrogate or cut sequence returns 0. n must be > 0.
 * Source: RFC 3629.
 */
size_t utf8_decode(const void *p, size_t n, uint32_t *cp);
/* Encode cp (must be a valid scalar value) into out[4]; returns the bytes written. */
size_t utf8_encode(uint32_t cp, char out[4]);
/*
 * Length of the longest prefix of p[0..n) that does not end inside a UTF-8 sequence which could still
 * be completed. Invalid bytes count as complete. Used to print streams without halves.
 */
size_t utf8_complete(const void *p, size_t n);

/* "512 B", "5.1 KiB", "5.1 MiB", "5.1 GiB"; returns `out` (32 bytes are enough). */
const char *text_size(char *out, size_t n_out, uint64_t n_bytes);

/*
 * Parse "24GiB", "1.5GiB", "64KiB", "1000", "8G", "8GB" (powers of 1024, case-insensitive) into bytes, rounded
 * down. False on anything else: a sign, a fraction of a byte or of more than 6 digits, overflow.
 */
bool text_parse_size(const char *s, uint64_t *n_bytes);

#endif
