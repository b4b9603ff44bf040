/*
 * The base: status, memory, text, log. UTF-8 is checked against its rules (RFC 3629) written a
 * second time here, over all sequences of up to three bytes and all that matter of four.
 */
#include "tests/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/base/log.h"
#include "gguf/base/mem.h"
#include "gguf/base/status.h"
#include "gguf/base/text.h"

/* ---- status ---- */

static void test_err(void **state)
{
    struct err e = {0};
    char long_text[sizeof e.msg + 88];

    (void)state;
    assert_int_equal(err_set(&e, ST_IO, "cannot open '%s'", "x"), ST_IO);
    assert_string_equal(e.msg, "cannot open 'x'");
    assert_int_equal(err_context(&e, "model %d", 3), ST_IO);
    assert_string_equal(e.msg, "model 3: cannot open 'x'");
    assert_int_equal(err_set(NULL, ST_USAGE, "nobody hears"), ST_USAGE);
    err_context(NULL, "nobody hears");
    assert_int_equal(err_nomem(&e, "KV cache", 6442450944), ST_NOMEM);
    assert_string_equal(e.msg, "not enough memory for KV cache: 6.0 GiB");
    assert_string_equal(status_name(ST_CANCELLED), "cancelled");
    assert_string_equal(status_name((enum status)77), "?");

    memset(long_text, 'a', sizeof long_text);
    long_text[sizeof long_text - 1] = 0;
    err_set(&e, ST_MODEL, "%s", long_text); /* cut, and whole UTF-8 at the cut */
    assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
    memcpy(long_text + sizeof e.msg - 2, "\xe2\x82\xac", 3);
    err_set(&e, ST_MODEL, "%s", long_text);
    assert_int_equal(strlen(e.msg), sizeof e.msg - 2);
}

/* For every length of the reason, the reason stays whole and the front is what gives way. */
static void test_err_context_shortens(void **state)
{
    struct err e;
    char reason[sizeof e.msg], front[sizeof e.msg];

    (void)state;
    for (size_t i = 0; i < sizeof front - 2; i++)
        front[i] = i % 2 ? '\xa9' : '\xc3'; /* two-byte characters */
    front[sizeof front - 2] = 0;
    for (size_t n = 0; n < sizeof e.msg; n++) {
        size_t n_all;
        memset(reason, 'r', n);
        reason[n] = 0;
        err_set(&e, ST_MODEL, "%s", reason);
        assert_int_equal(err_context(&e, "%s", front), ST_MODEL);
        n_all = strlen(e.msg);
        assert_true(n_all < sizeof e.msg && n_all >= n);
        assert_string_equal(e.msg + n_all - n, reason);
        if (n_all > n) {
            assert_memory_equal(e.msg + n_all - n - 2, ": ", 2);
            if (n > 0)
                assert_memory_equal(e.msg + n_all - n - 5, "...", 3);
        }
        for (size_t i = 0; i < n_all;) {
            uint32_t cp;
            size_t k = utf8_decode(e.msg + i, n_all - i, &cp);
            assert_true(k > 0);
            i += k;
        }
        if (n < sizeof e.msg - 12)
            assert_true(n_all > n && n_all >= sizeof e.msg - 3);
    }
}

/* ---- memory ---- */

static void test_checked(void **state)
{
    size_t r = 5;

    (void)state;
    assert_true(mem_mul(3, 4, &r) && r == 12);
    assert_true(mem_mul(SIZE_MAX, 0, &r) && r == 0);
    r = 5;
    assert_false(mem_mul(SIZE_MAX / 2 + 1, 2, &r));
    assert_false(mem_add(SIZE_MAX, 1, &r));
    assert_false(mem_round_up(SIZE_MAX - 5, 64, &r));
    assert_int_equal(r, 5);
    assert_true(mem_add(SIZE_MAX - 1, 1, &r) && r == SIZE_MAX);
    assert_true(mem_round_up(0, 64, &r) && r == 0);
    assert_true(mem_round_up(1, 64, &r) && r == 64);
    assert_true(mem_round_up(64, 64, &r) && r == 64);
    assert_true(mem_round_up(SIZE_MAX - 63, 64, &r) && r == SIZE_MAX - 63);
}

static void test_alloc(void **state)
{
    unsigned char *p = mem_array(10, 8);
    char *s;

    (void)state;
    for (int i = 0; i < 80; i++)
        assert_int_equal(p[i], 0);
    p[79] = 7;
    p = mem_grow(p, 100, 8);
    assert_int_equal(p[79], 7);
    assert_null(mem_grow(p, SIZE_MAX / 2, 3));
    mem_free(p);
    assert_null(mem_array(SIZE_MAX / 2, 3));
    assert_null(mem_aligned(SIZE_MAX));
    assert_null(mem_strndup("x", SIZE_MAX));
    assert_null(mem_pages(SIZE_MAX));
    p = mem_alloc(0);
    assert_non_null(p);
    mem_free(p);
    p = mem_zalloc(0);
    assert_non_null(p);
    mem_free(p);
    mem_free(NULL);
    for (size_t n = 0; n < 300; n += 7) {
        p = mem_aligned(n);
        assert_int_equal((uintptr_t)p % MEM_ALIGN, 0);
        mem_free(p);
    }
    s = mem_strndup("ab\0cd", 5);
    assert_memory_equal(s, "ab\0cd\0", 6);
    mem_free(s);
    s = mem_strdup("word");
    assert_string_equal(s, "word");
    mem_free(s);
    p = mem_pages(5000);
    assert_int_equal((uintptr_t)p % 4096, 0);
    for (int i = 0; i < 5000; i++)
        assert_int_equal(p[i], 0);
    mem_pages_free(p, 5000);
    mem_pages_free(NULL, 1);
    p = mem_pages(0);
    p[0] = 1;
    mem_pages_free(p, 0);
}

static void test_hooks(void **state)
{
    void *p, *q;
    uint64_t n = mem_calls();

    (void)state;
    mem_fail_at(2);
    p = mem_alloc(1);
    assert_non_null(p);
    assert_null(mem_alloc(1));
    q = mem_aligned(1);
    assert_non_null(q);
    mem_free(q);
    assert_int_equal(mem_calls() - n, 3);
    mem_fail_at(1);
    assert_null(mem_grow(p, 2, 1)); /* p is still ours */
    mem_fail_at(1);
    mem_fail_at(0);
    q = mem_zalloc(1);
    assert_non_null(q);
    mem_free(q);
    mem_guard_begin();
    assert_int_equal(mem_guard_end(), 0);
    mem_guard_begin();
    q = mem_pages(1);
    mem_pages_free(q, 1);
    p = mem_grow(p, 3, 1);
    assert_int_equal(mem_guard_end(), 2);
    mem_guard_begin();
    assert_int_equal(mem_guard_end(), 0);
    mem_free(p);
}

static void test_arena(void **state)
{
    struct arena a;
    unsigned char *p[200];

    (void)state;
    arena_init(&a, 256);
    for (size_t i = 0; i < 200; i++) { /* some larger than a block */
        p[i] = arena_alloc(&a, i * 3);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 16, 0);
        for (size_t k = 0; k < i * 3; k++) {
            assert_int_equal(p[i][k], 0);
            p[i][k] = (unsigned char)i;
        }
    }
    for (size_t i = 0; i < 200; i++) {
        for (size_t k = 0; k < i * 3; k++)
            assert_int_equal(p[i][k], (unsigned char)i);
    }
    assert_true(a.n_bytes >= 199 * 200 / 2 * 3);
    assert_string_equal(arena_strndup(&a, "word and more", 4), "word");
    assert_non_null(arena_array(&a, 10, 10));
    assert_false(a.failed);
    assert_null(arena_array(&a, SIZE_MAX / 2, 3));
    assert_true(a.failed);
    assert_null(arena_alloc(&a, 1)); /* sticky */
    arena_release(&a);
    assert_false(a.failed);
    assert_non_null(arena_alloc(&a, 1)); /* may be used again */
    arena_release(&a);
    arena_release(&a);
    assert_null(arena_alloc(&a, SIZE_MAX));
    arena_release(&a);
    assert_null(arena_strndup(&a, "x", SIZE_MAX));
    assert_true(a.failed);
    arena_release(&a);
    mem_fail_at(1);
    assert_null(arena_alloc(&a, 1));
    assert_true(a.failed);
    arena_release(&a);
}

/* ---- text ---- */

static void test_text(void **state)
{
    struct text t = {0};
    char want[4000];
    size_t n = 0;

    (void)state;
    text_clear(&t);
    assert_null(t.p);
    for (int i = 0; i < 300; i++) {
        text_addf(&t, "%d,", i);
        n += (size_t)sprintf(want + n, "%d,", i);
        assert_int_equal(t.n, n);
        assert_string_equal(t.p, want);
    }
    text_clear(&t);
    assert_string_equal(t.p, "");
    text_bytes(&t, "a\0b", 3);
    text_byte(&t, 'c');
    text_str(&t, "de");
    text_bytes(&t, NULL, 0);
    assert_int_equal(t.n, 6);
    assert_memory_equal(t.p, "a\0bcde\0", 7);
    assert_false(text_reserve(&t, SIZE_MAX));
    assert_true(t.failed);
    text_str(&t, "more");
    assert_int_equal(t.n, 6); /* sticky, and what was there stays */
    text_release(&t);
    assert_null(t.p);
    mem_fail_at(1);
    text_str(&t, "x");
    assert_true(t.failed);
    assert_int_equal(t.n, 0);
    text_release(&t);
}

static void test_escape(void **state)
{
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"plain", "plain"},
        {"a\nb\r\t\\'", "a\\nb\\r\\t\\\\\\'"},
        {"\x1b[31m\x7f\x01", "\\x1b[31m\\x7f\\x01"},
        {"h\xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x98\x80", "h\xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x98\x80"},
        {"\xff\xc3", "\\xff\\xc3"},
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
        {"\xc2\x9b", "\\x9b"}, /* a control character of ISO 6429 */
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct text t = {0};
        char out[64];
        text_escape(&t, cases[i].in, strlen(cases[i].in));
        assert_string_equal(t.p, cases[i].want);
        text_release(&t);
        assert_string_equal(text_quote(out, sizeof out, cases[i].in, strlen(cases[i].in)),
                            cases[i].want);
    }
}

/* Every size of the array: what does not fit ends in "...", nothing is written behind it. */
static void test_quote_shortens(void **state)
{
    static const char in[] = "a\n\xe6\xbc\xa2 word\xff end";
    struct text whole = {0};

    (void)state;
    text_escape(&whole, in, sizeof in - 1);
    for (size_t n = 1; n < 40; n++) {
        char *out = malloc(n);
        size_t k;
        text_quote(out, n, in, sizeof in - 1);
        k = strlen(out);
        assert_true(k < n);
        if (n > whole.n) {
            assert_string_equal(out, whole.p);
        } else if (n >= 4) {
            assert_true(k >= 3);
            assert_string_equal(out + k - 3, "...");
            assert_memory_equal(out, whole.p, k - 3);
        }
        free(out);
    }
    text_release(&whole);
}

static void test_sizes(void **state)
{
    static const struct {
        uint64_t n;
        const char *want;
    } cases[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1.0 KiB"},
        {5222, "5.1 KiB"},
        {1048524, "1023.9 KiB"},
        {1048575, "1.0 MiB"},
        {1048576, "1.0 MiB"},
        {5368709120, "5.0 GiB"},
        {(uint64_t)3 << 40, "3.0 TiB"},
        {UINT64_MAX, "16.0 EiB"},
    };
    static const struct {
        const char *s;
        uint64_t n;
    } good[] = {
        {"0", 0},
        {"1000", 1000},
        {"17B", 17},
        {"64KiB", 65536},
        {"64k", 65536},
        {"64kb", 65536},
        {"512MiB", (uint64_t)512 << 20},
        {"24gib", (uint64_t)24 << 30},
        {"8G", (uint64_t)8 << 30},
        {"1.5g", (uint64_t)3 << 29},
        {"0.001k", 1},
        {"2.000000T", (uint64_t)2 << 40},
        {"2T", (uint64_t)2 << 40},
        {"18446744073709551615", UINT64_MAX},
        {"16777215TiB", (uint64_t)16777215 << 40},
    };
    static const char *const bad[] = {
        "",
        "-1",
        "+1",
        " 1",
        "1 ",
        "1.G",
        ".5G",
        "1.5",
        "1.5B",
        "1.1234567G",
        "1.5.5G",
        "16777215.9999999TiB",
        "G",
        "1X",
        "1GiBs",
        "0x10",
        "1 G",
        "nan",
        "1e3",
        "18446744073709551616",
        "16777216TiB",
        "99999999999999999999999999999G",
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[32];
        assert_string_equal(text_size(out, sizeof out, cases[i].n), cases[i].want);
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t n = 1;
        assert_true(text_parse_size(good[i].s, &n));
        assert_true(n == good[i].n);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t n = 42;
        if (text_parse_size(bad[i], &n))
            fail_msg("'%s' was taken as a size", bad[i]);
        assert_int_equal(n, 42);
    }
}

/* ---- arrays that grow ---- */

static void test_room(void **state)
{
    int *a = NULL, cap = 0;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        assert_true(mem_room(&a, &cap, i + 1, sizeof *a));
        assert_true(cap > i);
        a[i] = i;
    }
    for (int i = 0; i < 1000; i++)
        assert_int_equal(a[i], i);
    mem_fail_at(1);
    assert_false(mem_room(&a, &cap, cap + 1, sizeof *a));
    assert_int_equal(a[999], 999); /* as it was */
    assert_true(mem_room(&a, &cap, cap, sizeof *a));
    mem_free(a);
}

/* ---- UTF-8 ---- */

/* Length of the sequence at s by the bit pattern of its first byte, if all is right with it; else
 * 0. */
static size_t rule_decode(const unsigned char *s, size_t n, uint32_t *cp)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t len = s[0] < 0x80       ? 1
                 : s[0] >> 5 == 6  ? 2
                 : s[0] >> 4 == 14 ? 3
                 : s[0] >> 3 == 30 ? 4
                                   : 0;
    uint32_t c;

    if (!len || len > n)
        return 0;
    c = len == 1 ? s[0] : s[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if (s[i] >> 6 != 2)
            return 0;
        c = c * 64 + s[i] % 64;
    }
    if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return 0;
    *cp = c;
    return len;
}

static void check_decode(const unsigned char *s, size_t n)
{
    uint32_t got = 1, want = 1;
    size_t k = utf8_decode(s, n, &got);

    if (k != rule_decode(s, n, &want) || (k && got != want))
        fail_msg("%02x %02x %02x %02x: %d bytes, U+%04X", s[0], s[1], s[2], s[3], (int)k, got);
}

static void test_utf8_decode(void **state)
{
    static const unsigned char edges[] = {0x00, 0x7f, 0x80, 0x8f, 0x90,
                                          0x9f, 0xa0, 0xbf, 0xc0, 0xff};
    unsigned char s[4] = {0};

    (void)state;
    for (uint32_t v = 0; v < 1u << 24; v++) {
        s[0] = (unsigned char)(v >> 16);
        s[1] = (unsigned char)(v >> 8);
        s[2] = (unsigned char)v;
        check_decode(s, 3);
        if (s[2] == 0)
            check_decode(s, 2);
        if (s[2] == 0 && s[1] == 0)
            check_decode(s, 1);
    }
    for (int a = 0xe0; a < 256; a++) {
        for (int c = 0; c < 256; c++) {
            for (size_t i = 0; i < sizeof edges; i++) {
                for (size_t k = 0; k < sizeof edges; k++) {
                    s[0] = (unsigned char)a;
                    s[1] = (unsigned char)c;
                    s[2] = edges[i];
                    s[3] = edges[k];
                    check_decode(s, 4);
                }
            }
        }
    }
}

static void test_utf8_encode(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        unsigned char s[4];
        uint32_t back;
        size_t n;
        if (c == 0xd800)
            c = 0xe000;
        n = utf8_encode(c, (char *)s);
        assert_int_equal(n, c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4);
        assert_int_equal(rule_decode(s, n, &back), n);
        assert_int_equal(back, c);
    }
}

/* Can the n bytes at s be the start of a longer sequence? Tried with every kind of continuation. */
static int unfinished(const unsigned char *s, size_t n)
{
    static const unsigned char more[] = {0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf};
    unsigned char t[7];
    uint32_t cp;

    memcpy(t, s, n);
    for (int i = 0; i < 216; i++) {
        t[n] = more[i % 6];
        t[n + 1] = more[i / 6 % 6];
        t[n + 2] = more[i / 36];
        if (rule_decode(t, n + 3, &cp) > n)
            return 1;
    }
    return 0;
}

static void test_utf8_complete(void **state)
{
    static const unsigned char kinds[] = {'a',  0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf,
                                          0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xed, 0xef,
                                          0xf0, 0xf1, 0xf4, 0xf5, 0xff};
    enum { N = sizeof kinds };

    (void)state;
    for (int v = 0; v < N * N * N * N; v++) {
        unsigned char s[4] = {kinds[v % N], kinds[v / N % N], kinds[v / N / N % N],
                              kinds[v / N / N / N]};
        for (size_t n = 0; n <= 4; n++) {
            size_t want = n;
            for (size_t k = 1; k <= 3 && k <= n; k++) {
                if (unfinished(s + n - k, k))
                    want = n - k;
            }
            if (utf8_complete(s, n) != want)
                fail_msg("%02x %02x %02x %02x, %d bytes: %d", s[0], s[1], s[2], s[3], (int)n,
                         (int)utf8_complete(s, n));
        }
    }
}

static void test_blanks(void **state)
{
    static const struct {
        const char *s;
        size_t front, end;
    } cases[] = {
        {"", 0, 0},
        {"a", 0, 0},
        {" \t\n\v\f\ra\x1c\x1f ", 6, 3},
        {"   ", 3, 3},
        {"\xe3\x80\x80\xc2\xa0"
         "a b\xe2\x80\xa8\xc2\x85",
         5, 5}, /* U+3000 U+A0, U+2028 U+85 */
        {"\xe2\x80\x8b"
         "a\xe2\x80\x8b",
         0, 0}, /* U+200B is none */
        {"\x80 a \x80", 0, 0},
        {" \x80", 1, 0},
        {"\xa0", 0, 0},              /* half of U+A0 */
        {"a\xe3\x80\x80\x80", 0, 0}, /* one byte too many */
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t n = strlen(cases[i].s);
        assert_int_equal(text_blank_front(cases[i].s, n), cases[i].front);
        assert_int_equal(text_blank_end(cases[i].s, n), cases[i].end);
    }
}

static void test_spans(void **state)
{
    struct text_spans s = {0};

    (void)state;
    text_spans_add(&s, 3, 3);
    assert_int_equal(s.n, 0);
    for (size_t i = 0; i < 100; i++)
        text_spans_add(&s, 2 * i, 2 * i + 1);
    assert_int_equal(s.n, 100);
    assert_true(s.span[99].from == 198 && s.span[99].to == 199 && !s.failed);
    text_spans_release(&s);
    mem_fail_at(1);
    text_spans_add(&s, 0, 1);
    mem_fail_at(0);
    assert_true(s.failed && s.n == 0);
    text_spans_add(&s, 0, 1); /* sticky */
    assert_int_equal(s.n, 0);
    text_spans_release(&s);
}

/* ---- log ---- */

static struct {
    int n;
    enum log_level level;
    char line[2000];
} heard;

static void hear(void *ctx, enum log_level level, const char *line)
{
    assert_ptr_equal(ctx, &heard);
    heard.n++;
    heard.level = level;
    snprintf(heard.line, sizeof heard.line, "%s", line);
}

static void test_log(void **state)
{
    (void)state;
    log_warn("to nobody");
    log_set_sink(hear, &heard, LOG_INFO);
    log_info("number %d", 5);
    assert_int_equal(heard.n, 1);
    assert_int_equal(heard.level, LOG_INFO);
    assert_string_equal(heard.line, "number 5");
    log_debug("too much");
    assert_int_equal(heard.n, 1);
    log_warn("%1500d", 7); /* cut, not overrun */
    assert_int_equal(heard.n, 2);
    assert_true(strlen(heard.line) >= 1000);
    log_set_sink(NULL, NULL, LOG_DEBUG);
    log_warn("silence");
    assert_int_equal(heard.n, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_err),
        cmocka_unit_test(test_err_context_shortens),
        cmocka_unit_test(test_checked),
        cmocka_unit_test(test_alloc),
        cmocka_unit_test(test_hooks),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_escape),
        cmocka_unit_test(test_quote_shortens),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_utf8_decode),
        cmocka_unit_test(test_utf8_encode),
        cmocka_unit_test(test_utf8_complete),
        cmocka_unit_test(test_blanks),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_log),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
