/*
 * The reader against files made byte by byte here and by the `gguf` Python package
 * (scripts/make-golden-gguf), then against damage of every kind.
 */
#include "tests/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf/base/mem.h"
#include "gguf/base/text.h"
#include "gguf/reader.h"
#include "gguf/writer.h"

static const enum gguf_mode modes[] = {GGUF_MMAP, GGUF_READ, GGUF_NO_DATA};

/* ---- files made by hand ---- */

struct buf {
    unsigned char p[1 << 17];
    size_t n;
};

static void add(struct buf *b, const void *p, size_t n)
{
    assert_true(b->n + n <= sizeof b->p);
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
}
static void add32(struct buf *b, uint32_t v)
{
    add(b, &v, 4);
}
static void add64(struct buf *b, uint64_t v)
{
    add(b, &v, 8);
}
static void addstr(struct buf *b, const char *s)
{
    add64(b, strlen(s));
    add(b, s, strlen(s));
}
static void header(struct buf *b, uint32_t version, uint64_t n_tensors, uint64_t n_kv)
{
    b->n = 0;
    add(b, "GGUF", 4);
    add32(b, version);
    add64(b, n_tensors);
    add64(b, n_kv);
}
static void key32(struct buf *b, const char *key, uint32_t type, uint32_t v)
{
    addstr(b, key);
    add32(b, type);
    add32(b, v);
}
static void keystr(struct buf *b, const char *key, const char *v)
{
    addstr(b, key);
    add32(b, GGUF_STR);
    addstr(b, v);
}
static void tensor(struct buf *b, const char *name, uint32_t type, uint64_t ne0, uint64_t ne1,
                   uint64_t offset)
{
    addstr(b, name);
    add32(b, 2);
    add64(b, ne0);
    add64(b, ne1);
    add32(b, type);
    add64(b, offset);
}
static void pad(struct buf *b, size_t align)
{
    while (b->n % align)
        add(b, "", 1);
}

/* A small file with most things in it; where some fields are, for damage. */
struct places {
    size_t kv_len, kv_type, str_len, arr_elem, arr_len, strs_len, name_len, n_dims, ne0, ne1, type,
        offset, data;
};

static struct places small_file(struct buf *b)
{
    struct places at;
    static const uint8_t zeros[64];

    header(b, 3, 2, 6);
    at.kv_len = b->n;
    addstr(b, "general.architecture");
    at.kv_type = b->n;
    add32(b, GGUF_STR);
    at.str_len = b->n;
    addstr(b, "test");
    key32(b, "test.block_count", GGUF_U32, 7);
    addstr(b, "test.flag");
    add32(b, GGUF_BOOL);
    add(b, "\1", 1);
    addstr(b, "test.ints");
    add32(b, GGUF_ARR);
    at.arr_elem = b->n;
    add32(b, GGUF_I16);
    at.arr_len = b->n;
    add64(b, 3);
    add(b, "\1\0\2\0\xff\xff", 6);
    addstr(b, "test.words");
    add32(b, GGUF_ARR);
    add32(b, GGUF_STR);
    add64(b, 3);
    at.strs_len = b->n;
    addstr(b, "a");
    addstr(b, "");
    addstr(b, "word");
    key32(b, "test.eps", GGUF_F32, 0x3f000000);
    at.name_len = b->n;
    addstr(b, "token_embd.weight");
    at.n_dims = b->n;
    add32(b, 2);
    at.ne0 = b->n;
    add64(b, 4);
    at.ne1 = b->n;
    add64(b, 2);
    at.type = b->n;
    add32(b, 0);
    at.offset = b->n;
    add64(b, 0);
    tensor(b, "output.weight", 8, 32, 1, 32);
    pad(b, 32);
    at.data = b->n;
    add(b, zeros, 32);
    for (int i = 0; i < 34; i++)
        add(b, &(char){(char)i}, 1);
    return at;
}

/* ---- helpers ---- */

static char tmp_path[1200];

static const char *tmp_name(const char *name)
{
    const char *dir = getenv("GGRUN_TEST_TMP");

    snprintf(tmp_path, sizeof tmp_path, "%s/reader-%s", dir ? dir : "/tmp", name);
    return tmp_path;
}

static const char *write_tmp(const char *name, const void *p, size_t n)
{
    FILE *f = fopen(tmp_name(name), "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
    return tmp_path;
}

static const char *data_path(const char *name)
{
    static char path[1200];
    const char *dir = getenv("GGRUN_TEST_DATA");

    snprintf(path, sizeof path, "%s/gguf/%s", dir ? dir : "tests/data", name);
    return path;
}

static void has(const char *msg, const char *part)
{
    if (!strstr(msg, part))
        fail_msg("message \"%s\" lacks \"%s\"", msg, part);
}

/* A message is one line without control bytes and without a full stop. */
static void clean(const char *msg)
{
    size_t n = strlen(msg);

    assert_true(n > 10 && msg[n - 1] != '.');
    for (size_t i = 0; i < n; i++)
        assert_true((unsigned char)msg[i] >= 32 && msg[i] != 127);
}

/* Opening these bytes fails with `st` and a message that has all parts, in memory and in each mode. */
static void refused(const struct buf *b, enum status st, const char *part1, const char *part2)
{
    struct gguf *g = (void *)1;
    struct err e = {0};
    /* exactly the bytes, so that a read behind them is seen */
    void *exact = malloc(b->n ? b->n : 1);

    memcpy(exact, b->p, b->n);
    if (gguf_open_memory(&g, exact, b->n, "label", &e) != st)
        fail_msg("got %s: %s, expected %s: %s", status_name(e.code), e.msg, status_name(st), part1);
    assert_null(g);
    clean(e.msg);
    has(e.msg, "label");
    has(e.msg, part1);
    has(e.msg, part2);
    assert_int_equal(gguf_open_memory(&g, exact, b->n, "label", NULL), st);
    free(exact);
    write_tmp("refused.gguf", b->p, b->n);
    for (size_t m = 0; m < 3; m++) {
        char first[512];
        assert_int_equal(gguf_open(&g, tmp_path, modes[m], &e), st);
        has(e.msg, "reader-refused.gguf");
        has(e.msg, part1);
        has(e.msg, part2);
        if (m == 0)
            strcpy(first, e.msg);
        assert_string_equal(e.msg, first); /* the same text in all modes */
    }
}

static struct gguf *opened(const struct buf *b)
{
    struct gguf *g;
    struct err e;

    if (gguf_open_memory(&g, b->p, b->n, "label", &e))
        fail_msg("%s", e.msg);
    return g;
}

/* ---- reading ---- */

static void test_golden_values(void **state)
{
    (void)state;
    for (size_t m = 0; m < 3; m++) {
        struct gguf *g;
        struct err e;
        uint32_t u = 0;
        float f = 0;
        bool b = false;
        struct gguf_str s, want[] = {{"", 0}, {"a", 1}, {"some longer piece of text", 25}};
        struct gguf_str_iter it;
        const struct gguf_tensor *t;

        if (gguf_open(&g, data_path("values.gguf"), modes[m], &e))
            fail_msg("%s", e.msg);
        assert_int_equal(g->version, 3);
        assert_int_equal(g->alignment, 64);
        assert_int_equal(g->n_kv, 19);
        assert_int_equal(g->n_files, 1);
        assert_int_equal(gguf_kv_int(gguf_find(g, "v.u8"), 0), 200);
        assert_int_equal(gguf_kv_int(gguf_find(g, "v.i8"), 0), -100);
        assert_int_equal(gguf_kv_int(gguf_find(g, "v.u16"), 0), 60000);
        assert_int_equal(gguf_kv_int(gguf_find(g, "v.i16"), 0), -30000);
        assert_true(gguf_kv_int(gguf_find(g, "v.u32"), 0) == 4000000000);
        assert_int_equal(gguf_kv_int(gguf_find(g, "v.i32"), 0), -2000000000);
        assert_true(gguf_kv_float(gguf_find(g, "v.f32"), 0) == (double)0.1f);
        assert_true(gguf_kv_float(gguf_find(g, "v.u64"), 0) == 18e18);
        assert_true(gguf_kv_int(gguf_find(g, "v.u64"), 0) == INT64_MAX);
        assert_true(gguf_kv_int(gguf_find(g, "v.i64"), 0) == -9000000000000000000);
        assert_true(gguf_kv_float(gguf_find(g, "v.f64"), 0) == 0.1);
        assert_int_equal(gguf_find(g, "a.u8")->n, 3);
        assert_int_equal(gguf_kv_int(gguf_find(g, "a.u8"), 2), 255);
        assert_int_equal(gguf_kv_int(gguf_find(g, "a.i32"), 1), -2);
        assert_true(gguf_kv_float(gguf_find(g, "a.f32"), 1) == -1.25);
        assert_int_equal(gguf_find(g, "a.bool")->elem, GGUF_BOOL);
        assert_int_equal(gguf_kv_int(gguf_find(g, "a.bool"), 1), 0);
        assert_null(gguf_find(g, "a"));
        assert_null(gguf_find(g, ""));

        it = gguf_strs(gguf_find(g, "a.str"));
        for (size_t i = 0; i < 3; i++) {
            assert_true(gguf_str_next(&it, &s));
            assert_int_equal(s.n, want[i].n);
            assert_memory_equal(s.p, want[i].p, s.n);
        }
        assert_false(gguf_str_next(&it, &s));
        it = gguf_strs(gguf_find(g, "v.u8"));
        assert_false(gguf_str_next(&it, &s));

        assert_int_equal(gguf_get_u32(g, "v.u32", true, &u, &e), ST_OK);
        assert_true(u == 4000000000);
        assert_int_equal(gguf_get_f32(g, "v.f64", true, &f, &e), ST_OK);
        assert_true(f == 0.1f);
        assert_int_equal(gguf_get_bool(g, "v.bool", true, &b, &e), ST_OK);
        assert_true(b);
        assert_int_equal(gguf_get_str(g, "v.str", true, &s, &e), ST_OK);
        assert_int_equal(s.n, 7);
        assert_memory_equal(s.p, "h\xc3\xa9llo\n", 7);

        assert_int_equal(g->n_tensors, 3);
        t = gguf_find_tensor(g, "deep");
        assert_ptr_equal(t, &g->tensors[2]);
        assert_int_equal(t->type, DT_I8);
        assert_int_equal(t->n_dims, 4);
        assert_true(t->ne[0] == 4 && t->ne[1] == 1 && t->ne[2] == 3 && t->ne[3] == 2);
        assert_int_equal(t->n_bytes, 24);
        assert_int_equal(t->offset % 64, 0);
        assert_null(gguf_find_tensor(g, "dee"));
        t = gguf_find_tensor(g, "one");
        assert_true(t->ne[0] == 3 && t->ne[1] == 2 && t->ne[2] == 1);
        if (modes[m] == GGUF_NO_DATA) {
            assert_null(t->data);
            assert_null(g->files[0].map);
        } else {
            float v[6];
            memcpy(v, t->data, sizeof v);
            for (int i = 0; i < 6; i++)
                assert_true(v[i] == (float)i);
            assert_memory_equal(gguf_find_tensor(g, "deep")->data, "\0\1\2\3\4\5\6\7\x8\x9\xa\xb",
                                12);
            assert_ptr_equal((const char *)t->data - t->offset, g->files[0].map);
            assert_int_equal((uintptr_t)t->data % 64, 0);
        }
        gguf_close(g);
    }
    gguf_close(NULL);
}

static void test_typed_errors(void **state)
{
    static const struct {
        const char *key, *part;
        char get;
    } cases[] = {
        {"nokey", "key 'nokey' is missing", 'u'},
        {"nokey", "key 'nokey' is missing", 'f'},
        {"nokey", "key 'nokey' is missing", 's'},
        {"v.i8", "key 'v.i8' is -100, expected 0 to 4294967295", 'u'},
        {"v.u64", "key 'v.u64' is 18000000000000000000", 'u'},
        {"v.f32", "has type f32, expected an integer", 'u'},
        {"v.bool", "has type bool, expected an integer", 'u'},
        {"v.str", "has type str, expected an integer", 'u'},
        {"a.i32", "is an array of i32, expected an integer", 'u'},
        {"v.u8", "has type u8, expected f32", 'f'},
        {"v.u8", "key 'v.u8' is 200, expected 0 or 1", 'b'},
        {"v.f32", "has type f32, expected bool", 'b'},
        {"a.str", "is an array of str, expected str", 's'},
        {"v.u8", "has type u8, expected str", 's'},
    };
    struct gguf *g;
    struct err e;

    (void)state;
    assert_int_equal(gguf_open(&g, data_path("values.gguf"), GGUF_MMAP, &e), ST_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t u = 1;
        float f = 2;
        bool b = true;
        struct gguf_str s = {"x", 1};
        enum status st = ST_OK;
        for (int required = 1; required >= 0; required--) {
            switch (cases[i].get) {
            case 'u':
                st = gguf_get_u32(g, cases[i].key, required, &u, &e);
                break;
            case 'f':
                st = gguf_get_f32(g, cases[i].key, required, &f, &e);
                break;
            case 'b':
                st = gguf_get_bool(g, cases[i].key, required, &b, &e);
                break;
            default:
                st = gguf_get_str(g, cases[i].key, required, &s, &e);
            }
            if (!required && strcmp(cases[i].key, "nokey") == 0) {
                assert_int_equal(st, ST_OK);
            } else {
                assert_int_equal(st, ST_MODEL);
                has(e.msg, cases[i].part);
            }
            assert_true(u == 1 && f == 2 && b && s.n == 1); /* untouched */
        }
    }
    gguf_close(g);
}

static void test_print(void **state)
{
    static const struct {
        const char *key, *want;
        uint64_t max;
    } cases[] = {
        {"v.u64", "18000000000000000000", 3},
        {"v.i64", "-9000000000000000000", 3},
        {"v.f32", "0.1", 3},
        {"v.bool", "true", 3},
        {"v.str", "'h\xc3\xa9llo\\n'", 0},
        {"a.i32", "[1, -2, 3] (3 x i32)", 3},
        {"a.i32", "[1, -2, ...] (3 x i32)", 2},
        {"a.i32", "[...] (3 x i32)", 0},
        {"a.bool", "[true, false, true] (3 x bool)", 9},
        {"a.f32", "[0.5, -1.25] (2 x f32)", 9},
        {"a.str", "['', 'a', ...] (3 x str)", 2},
    };
    struct gguf *g;
    struct err e;

    (void)state;
    assert_int_equal(gguf_open(&g, data_path("values.gguf"), GGUF_NO_DATA, &e), ST_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct text t = {0};
        gguf_kv_print(&t, gguf_find(g, cases[i].key), cases[i].max);
        assert_string_equal(t.p, cases[i].want);
        text_release(&t);
    }
    gguf_close(g);
}

static struct buf b; /* too large for the stack of a test */

static void test_small_file(void **state)
{
    struct gguf *g;

    (void)state;
    small_file(&b);
    g = opened(&b);
    assert_int_equal(g->n_kv, 6);
    assert_int_equal(g->alignment, 32);
    assert_int_equal(gguf_kv_int(gguf_find(g, "test.ints"), 2), -1);
    assert_int_equal(((const unsigned char *)gguf_find_tensor(g, "output.weight")->data)[33], 33);
    gguf_close(g);

    memcpy(b.p + 4, "\2\0\0\0", 4); /* version 2 is laid out the same way */
    g = opened(&b);
    assert_int_equal(g->version, 2);
    gguf_close(g);

    header(&b, 3, 0, 0); /* nothing in it is fine */
    g = opened(&b);
    assert_null(gguf_find(g, "x"));
    assert_null(gguf_find_tensor(g, "x"));
    gguf_close(g);

    header(&b, 3, 0, 1); /* a vocabulary alone: no padding after the keys */
    keystr(&b, "k", "v");
    g = opened(&b);
    gguf_close(g);
}

/* Tensors out of order in the file are fine; so is a name of 63 bytes and a key of 65535. */
static void test_limits_met(void **state)
{
    static char name[64], key[65536];
    struct gguf *g;

    (void)state;
    memset(name, 'n', 63);
    memset(key, 'k', 65535);
    header(&b, 3, 2, 1);
    key32(&b, key, GGUF_U32, 5);
    tensor(&b, name, 0, 8, 1, 32);
    tensor(&b, "b", 0, 8, 1, 0);
    pad(&b, 32);
    b.n += 64;
    g = opened(&b);
    assert_int_equal(gguf_kv_int(gguf_find(g, key), 0), 5);
    assert_true(gguf_find_tensor(g, name)->offset > gguf_find_tensor(g, "b")->offset);
    gguf_close(g);
}

/* ---- damage ---- */

static void test_cut_everywhere(void **state)
{
    struct places at = small_file(&b);
    static struct buf c;

    (void)state;
    for (size_t n = 0; n < b.n; n++) {
        memcpy(c.p, b.p, n);
        c.n = n;
        if (n == 0)
            refused(&c, ST_MODEL, "file is empty", "");
        else if (n < 4)
            refused(&c, ST_MODEL, "file is cut off: it has", "24");
        else if (n < at.data)
            refused(&c, ST_MODEL, "file is cut off", "");
        else if (n < at.data + 32)
            refused(&c, ST_MODEL, "file is cut off: tensor 'token_embd.weight' needs bytes up to",
                    "missing");
        else
            refused(&c, ST_MODEL, "file is cut off: tensor 'output.weight' needs bytes up to",
                    "missing");
    }
    c.n = b.n - 10;
    {
        char part[64];
        snprintf(part, sizeof part, "needs bytes up to %zu, the file has %zu; 10 B are missing",
                 b.n, c.n);
        refused(&c, ST_MODEL, part, "output.weight");
    }
}

static void damage(size_t at, uint64_t v, int size)
{
    small_file(&b);
    memcpy(b.p + at, &v, (size_t)size);
}

static void test_damaged_numbers(void **state)
{
    static const uint64_t big[] = {(uint64_t)1 << 31, UINT32_MAX,        (uint64_t)1 << 61,
                                   INT64_MAX,         (uint64_t)1 << 63, UINT64_MAX,
                                   UINT64_MAX - 7,    UINT64_MAX / 2 - 3};
    struct places at = small_file(&b);

    (void)state;
    for (size_t i = 0; i < sizeof big / sizeof big[0]; i++) {
        damage(8, big[i], 8);
        refused(&b, ST_MODEL, "the header says", "tensors");
        damage(16, big[i], 8);
        refused(&b, ST_MODEL, "the header says", "keys");
        damage(at.kv_len, big[i], 8);
        refused(&b, ST_MODEL, "the name of key 1 of 6 has", "expected 1 to 65535");
        damage(at.str_len, big[i], 8);
        refused(&b, ST_MODEL, "key 'general.architecture'", "cut off or damaged");
        damage(at.arr_len, big[i], 8);
        refused(&b, ST_MODEL, "key 'test.ints'", "cut off or damaged");
        damage(at.strs_len, big[i], 8);
        refused(&b, ST_MODEL, "key 'test.words'", "cut off or damaged");
        damage(at.strs_len - 8, big[i], 8);
        refused(&b, ST_MODEL, "key 'test.words'", "cut off or damaged");
        damage(at.name_len, big[i], 8);
        refused(&b, ST_MODEL, "the name of tensor 1 of 2 has", "expected 1 to 63");
        damage(at.ne0, big[i], 8);
        refused(&b, ST_MODEL, "token_embd.weight", "");
        damage(at.ne1, big[i], 8);
        refused(&b, ST_MODEL, "token_embd.weight", "");
        damage(at.offset, big[i], 8);
        refused(&b, ST_MODEL, "token_embd.weight", "");
        damage(at.offset, big[i] & ~(uint64_t)31, 8);
        refused(&b, ST_MODEL, "token_embd.weight", "");
    }
    damage(at.kv_len, 0, 8);
    refused(&b, ST_MODEL, "the name of key 1 of 6 has 0 bytes", "");
    damage(at.kv_len + 9, 0, 1);
    refused(&b, ST_MODEL, "the name of key 1 of 6 has a NUL byte", "");
    damage(at.kv_type, 13, 4);
    refused(&b, ST_MODEL, "key 'general.architecture' has value type 13", "0 to 12");
    damage(at.arr_elem, 77, 4);
    refused(&b, ST_MODEL, "key 'test.ints' has value type 77", "");
    damage(at.arr_elem, GGUF_ARR, 4);
    refused(&b, ST_UNSUPPORTED, "key 'test.ints' is an array of arrays", "");
    damage(at.arr_elem - 4 - 9 - 8 - 1, 2, 1);
    refused(&b, ST_MODEL, "key 'test.flag' has a bool of value 2", "expected 0 or 1");
    damage(at.name_len, 0, 8);
    refused(&b, ST_MODEL, "the name of tensor 1 of 2 has 0 bytes", "");
    damage(at.n_dims, 0, 4);
    refused(&b, ST_MODEL, "tensor 'token_embd.weight' has 0 dimensions", "1 to 4");
    damage(at.n_dims, 5, 4);
    refused(&b, ST_MODEL, "tensor 'token_embd.weight' has 5 dimensions", "1 to 4");
    damage(at.ne0, 0, 8);
    refused(&b, ST_MODEL, "dimension 0 of tensor 'token_embd.weight' is 0", "expected 1");
    damage(at.ne1, 0, 8);
    refused(&b, ST_MODEL, "dimension 1 of tensor 'token_embd.weight' is 0", "expected 1");
    damage(at.ne1, 4, 8);
    refused(&b, ST_MODEL, "tensors 'token_embd.weight' and 'output.weight' overlap", "");
    damage(at.type, 200, 4);
    refused(&b, ST_UNSUPPORTED, "tensor 'token_embd.weight' has type 200", "quantize");
    damage(at.type, UINT32_MAX, 4);
    refused(&b, ST_UNSUPPORTED, "tensor 'token_embd.weight' has type 4294967295", "");
    damage(at.type, 43, 4);
    refused(&b, ST_UNSUPPORTED, "tensor 'token_embd.weight' has type 43", "");
    damage(at.type, 31, 4);
    refused(&b, ST_UNSUPPORTED, "tensor 'token_embd.weight' has type 31 (q4_0_4_4)",
            "convert or quantize the model again");
    damage(at.type, 4, 4);
    refused(&b, ST_UNSUPPORTED, "has type 4 (q4_2)", "no longer use");
    damage(at.type, 8, 4);
    refused(&b, ST_MODEL, "tensor 'token_embd.weight' has rows of 4 elements", "multiple of 32");
    damage(at.offset, 16, 8);
    refused(&b, ST_MODEL, "offset 16", "alignment 32");
    damage(at.offset, 64, 8);
    refused(&b, ST_MODEL, "cut off: tensor 'token_embd.weight'", "30 B are missing");
    damage(at.offset, 32, 8);
    refused(&b, ST_MODEL, "tensors 'token_embd.weight' and 'output.weight' overlap", "");
}

/* Products that overflow only when taken together. */
static void test_products(void **state)
{
    static const uint64_t shapes[][4] = {
        {(uint64_t)1 << 32, (uint64_t)1 << 32, 1, 1},
        {(uint64_t)1 << 31, (uint64_t)1 << 31, 2, 1},
        {(uint64_t)1 << 16, (uint64_t)1 << 16, (uint64_t)1 << 16, (uint64_t)1 << 16},
        {4, INT64_MAX / 8, 1, 1},
        {(uint64_t)1 << 61, 1, 1, 1},
        {32, (uint64_t)1 << 58, 1, 1},
        {1, 1, 1, INT64_MAX},
    };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (uint32_t type = 0; type < 30; type += 28) { /* f32 and f64 */
            header(&b, 3, 1, 0);
            addstr(&b, "t");
            add32(&b, 4);
            for (int k = 0; k < 4; k++)
                add64(&b, shapes[i][k]);
            add32(&b, type);
            add64(&b, 0);
            pad(&b, 32);
            b.n += 64;
            refused(&b, ST_MODEL, "tensor 't'", "");
        }
    }
    /* two tensors whose ends wrap round */
    header(&b, 3, 2, 0);
    tensor(&b, "a", 0, 8, 1, 0);
    tensor(&b, "b", 24, INT64_MAX - 31, 1, ((uint64_t)1 << 63) - 32);
    pad(&b, 32);
    b.n += 64;
    refused(&b, ST_MODEL, "tensor 'b'", "");
    header(&b, 3, 2, 0);
    tensor(&b, "a", 0, 8, 1, 0);
    tensor(&b, "b", 0, 8, 1, UINT64_MAX - 31);
    pad(&b, 32);
    b.n += 64;
    refused(&b, ST_MODEL, "tensor 'b'", "no file can hold");
}

static void test_alignment(void **state)
{
    static const uint32_t bad[] = {0, 1, 2, 4, 7, 24, 33, 1 << 21, 1u << 31, UINT32_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char part[64];
        header(&b, 3, 0, 1);
        key32(&b, "general.alignment", GGUF_U32, bad[i]);
        snprintf(part, sizeof part, "key 'general.alignment' is %u, expected a power of two",
                 bad[i]);
        refused(&b, ST_MODEL, part, "from 8 to 1048576");
    }
    header(&b, 3, 0, 1);
    keystr(&b, "general.alignment", "32");
    refused(&b, ST_MODEL, "key 'general.alignment' has type str, expected an integer", "");
    header(&b, 3, 0, 1);
    key32(&b, "general.alignment", GGUF_F32, 0x42000000);
    refused(&b, ST_MODEL, "key 'general.alignment' has type f32", "");
    for (uint32_t a = 8; a <= 4096; a *= 2) {
        struct gguf *g;
        header(&b, 3, 1, 1);
        key32(&b, "general.alignment", GGUF_U32, a);
        tensor(&b, "t", 0, 2, 1, a);
        pad(&b, a);
        b.n += a + 8;
        g = opened(&b);
        assert_int_equal(g->tensors[0].offset % a, 0);
        assert_int_equal(g->tensors[0].offset + 8, b.n);
        gguf_close(g);
    }
}

static void test_twice(void **state)
{
    (void)state;
    header(&b, 3, 0, 3);
    keystr(&b, "k", "1");
    keystr(&b, "other", "1");
    keystr(&b, "k", "2");
    refused(&b, ST_MODEL, "key 'k' appears twice", "");
    header(&b, 3, 3, 0);
    tensor(&b, "t", 0, 8, 1, 0);
    tensor(&b, "u", 0, 8, 1, 32);
    tensor(&b, "t", 0, 8, 1, 64);
    pad(&b, 32);
    b.n += 96;
    refused(&b, ST_MODEL, "tensor 't' appears twice", "");
    header(&b, 3, 1, 0); /* names are shown without their control bytes */
    tensor(&b, "a\nb'\x1b[31m\xff", 99, 8, 1, 0);
    refused(&b, ST_UNSUPPORTED, "tensor 'a\\nb\\'\\x1b[31m\\xff'", "");
}

static void test_many_tensors(void **state)
{
    static struct buf many;
    struct gguf *g;
    char name[32];

    (void)state;
    header(&many, 3, 1000, 0);
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "blk.%d.weight", i);
        tensor(&many, name, 0, 8, 1, (uint64_t)(999 - i) * 32);
    }
    pad(&many, 32);
    many.n += 32000;
    g = opened(&many);
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "blk.%d.weight", i);
        assert_ptr_equal(gguf_find_tensor(g, name), &g->tensors[i]);
    }
    gguf_close(g);
}

/* ---- what is not a GGUF file ---- */

#define BYTES(s) s, sizeof s - 1

static void test_look_alikes(void **state)
{
    static const struct {
        const char *p;
        size_t n;
        enum status st;
        const char *part;
    } cases[] = {
        {BYTES("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 98362432\n"),
         ST_MODEL, "git-lfs pointer"},
        {BYTES("<!DOCTYPE html><html><head>"), ST_MODEL, "web page"},
        {BYTES("\xef\xbb\xbf \n<HTML lang=en>"), ST_MODEL, "web page"},
        {BYTES("<?xml version=\"1.0\"?><Error><Code>AccessDenied"), ST_MODEL, "XML"},
        {BYTES("{\"error\":\"Invalid credentials\"}"), ST_MODEL, "JSON"},
        {BYTES("Entry not found"), ST_MODEL, "a text"},
        {BYTES("PK\3\4\24\0\0\0\0\0\0\0\0\0archive/data.pkl"), ST_MODEL, "PyTorch"},
        {BYTES("PK\3\4\24\0\0\0\0\0\0\0\0\0model.gguf"), ST_MODEL, "zip archive"},
        {BYTES("\x80\2}q\1(X\3\0\0\0"), ST_MODEL, "pickle"},
        {BYTES("\x1f\x8b\x8\0\0\0\0\0"), ST_MODEL, "gzip"},
        {BYTES("\x28\xb5\x2f\xfd\0\0\0\0"), ST_MODEL, "zstd"},
        {BYTES("\x10\0\0\0\0\0\0\0{\"__metadata__\":1}"), ST_MODEL, "safetensors"},
        {BYTES("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), ST_MODEL, "unfinished download"},
        {BYTES("lmgg\0\0\0\0"), ST_MODEL, "old ggml format"},
        {BYTES("fmgg\1\0\0\0"), ST_MODEL, "old ggmf format"},
        {BYTES("tjgg\3\0\0\0"), ST_MODEL, "old ggjt format"},
        {BYTES("algg\1\0\0\0"), ST_MODEL, "old ggla format"},
        {BYTES("\x12\x34\x56\x78\x9a"), ST_MODEL, "12 34 56 78"},
        {BYTES("\x12\x34"), ST_MODEL, "2 bytes"},
        {BYTES("GGUF\1\0\0\0\0\0\0\0\0\0\0\0"), ST_UNSUPPORTED, "GGUF version 1"},
        {BYTES("GGUF\0\0\0\3\0\0\0\0\0\0\0\0"), ST_UNSUPPORTED, "big-endian GGUF file (version 3)"},
        {BYTES("GGUF\4\0\0\0\0\0\0\0\0\0\0\0"), ST_UNSUPPORTED, "GGUF version 4, expected 2 or 3"},
        {BYTES("GGUF\0\0\0\0\0\0\0\0\0\0\0\0"), ST_UNSUPPORTED, "GGUF version 0"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(b.p, cases[i].p, cases[i].n);
        b.n = cases[i].n;
        refused(&b, cases[i].st, cases[i].part, "");
        memset(b.p + b.n, 'x', 600); /* longer ones */
        b.n += 600;
        if (cases[i].p[0] && cases[i].n > 2)
            refused(&b, cases[i].st, cases[i].part, "");
    }
    memset(b.p, 0, 512);
    memcpy(b.p, "config.json", 11);
    memcpy(b.p + 257, "ustar", 5);
    b.n = 1024;
    refused(&b, ST_MODEL, "tar archive", "");
}

static void not_a_file(const char *path, const char *part)
{
    for (size_t m = 0; m < 3; m++) {
        struct gguf *g = (void *)1;
        struct err e;
        assert_int_equal(gguf_open(&g, path, modes[m], &e), ST_IO);
        assert_null(g);
        clean(e.msg);
        has(e.msg, part);
    }
}

static void test_not_files(void **state)
{
    char dir[1200];

    (void)state;
    not_a_file("/dev/null", "'/dev/null' is a device, expected a GGUF file");
    strcpy(dir, tmp_name(""));
    *strrchr(dir, '/') = 0;
    not_a_file(dir, "is a directory, expected a GGUF file");
    not_a_file(tmp_name("nosuch.gguf"), "cannot open");
    not_a_file(tmp_name("nosuch.gguf"), "No such file or directory");
    not_a_file(tmp_name("no\nsuch\xff'.gguf"), "no\\nsuch\\xff\\'.gguf'");
    unlink(tmp_name("fifo"));
    assert_int_equal(mkfifo(tmp_path, 0600), 0);
    not_a_file(tmp_path, "is a pipe, expected a GGUF file");
    unlink(tmp_path);
    if (geteuid() != 0) { /* root may read all */
        write_tmp("secret.gguf", "GGUF", 4);
        assert_int_equal(chmod(tmp_path, 0), 0);
        not_a_file(tmp_path, "Permission denied");
        unlink(tmp_path);
    }
    { /* a long path is shown by its end */
        char path[800];
        size_t n = 0;
        while (n < 700)
            n += (size_t)sprintf(path + n, "/very_long_folder_name");
        strcpy(path + n, "/model.gguf");
        not_a_file(path, "cannot open '...");
        not_a_file(path, "/model.gguf': No such file");
    }
}

/* Any POSIX path opens. */
static void test_odd_path(void **state)
{
    static const char *const names[] = {"\xd0\xbc\xd0\xbe\xd0\xb4 \xff\n.gguf", "a 'b'.gguf"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct gguf *g;
        struct err e;
        small_file(&b);
        write_tmp(names[i], b.p, b.n);
        assert_int_equal(gguf_open(&g, tmp_path, GGUF_MMAP, &e), ST_OK);
        assert_string_equal(g->files[0].path, tmp_path);
        gguf_close(g);
        unlink(tmp_path);
    }
}

/* ---- split sets ---- */

static void split_part(int no, int count, int n_tensors, int key_no, int key_count,
                       const char *arch, const char *tensor_name)
{
    char name[64];

    header(&b, 3, 1, arch ? 4 : 3);
    if (arch)
        keystr(&b, "general.architecture", arch);
    addstr(&b, "split.no");
    add32(&b, GGUF_U16);
    add(&b, &(uint16_t){(uint16_t)key_no}, 2);
    addstr(&b, "split.count");
    add32(&b, GGUF_U16);
    add(&b, &(uint16_t){(uint16_t)key_count}, 2);
    key32(&b, "split.tensors.count", GGUF_I32, (uint32_t)n_tensors);
    tensor(&b, tensor_name, 0, 8, 1, 0);
    pad(&b, 32);
    memset(b.p + b.n, no, 32);
    b.n += 32;
    snprintf(name, sizeof name, "set-%05d-of-%05d.gguf", no, count);
    write_tmp(name, b.p, b.n);
}

/* Parts 1 and 2 in one file. */
static void write_joined(const char *name)
{
    FILE *f = fopen(tmp_name(name), "wb");

    assert_non_null(f);
    for (int no = 1; no <= 2; no++) {
        split_part(no, 3, 3, no - 1, 3, no == 1 ? "test" : NULL, no == 1 ? "t1" : "t2");
        assert_int_equal(fwrite(b.p, 1, b.n, f), b.n);
    }
    assert_int_equal(fclose(f), 0);
}

static void good_set(void)
{
    split_part(3, 3, 3, 2, 3, NULL, "t3");
    split_part(2, 3, 3, 1, 3, NULL, "t2");
    split_part(1, 3, 3, 0, 3, "test", "t1");
}

static void set_refused(enum status st, const char *part1, const char *part2)
{
    for (size_t m = 0; m < 3; m++) {
        struct gguf *g = (void *)1;
        struct err e;
        assert_int_equal(gguf_open(&g, tmp_name("set-00001-of-00003.gguf"), modes[m], &e), st);
        assert_null(g);
        clean(e.msg);
        has(e.msg, part1);
        has(e.msg, part2);
    }
}

static void test_split(void **state)
{
    struct gguf *g;
    struct err e;

    (void)state;
    good_set();
    for (size_t m = 0; m < 3; m++) {
        if (gguf_open(&g, tmp_name("set-00001-of-00003.gguf"), modes[m], &e))
            fail_msg("%s", e.msg);
        assert_int_equal(g->n_files, 3);
        assert_int_equal(g->n_tensors, 3);
        assert_int_equal(g->n_kv, 4);
        has(g->files[2].path, "set-00003-of-00003.gguf");
        for (int i = 0; i < 3; i++) {
            char name[8] = {'t', (char)('1' + i), 0};
            const struct gguf_tensor *t = gguf_find_tensor(g, name);
            assert_int_equal(t->shard, i);
            if (modes[m] != GGUF_NO_DATA)
                assert_int_equal(((const char *)t->data)[0], i + 1);
        }
        gguf_close(g);
    }
    for (size_t m = 0; m < 3; m++) { /* any part stands for the set */
        if (gguf_open(&g, tmp_name("set-00002-of-00003.gguf"), modes[m], &e))
            fail_msg("%s", e.msg);
        assert_int_equal(g->n_tensors, 3);
        has(g->files[0].path, "set-00001-of-00003.gguf");
        gguf_close(g);
    }
    unlink(tmp_name("set-00001-of-00003.gguf"));
    assert_int_equal(gguf_open(&g, tmp_name("set-00002-of-00003.gguf"), GGUF_MMAP, &e), ST_IO);
    has(e.msg, "part 2 of 3 of a split model: cannot open");
    has(e.msg, "set-00001-of-00003.gguf': No such file");
    split_part(1, 3, 3, 1, 3, "test", "t1");
    assert_int_equal(gguf_open(&g, tmp_name("set-00002-of-00003.gguf"), GGUF_MMAP, &e), ST_MODEL);
    has(e.msg, "set-00001-of-00003.gguf' is not the first part");
    good_set();

    unlink(tmp_name("set-00002-of-00003.gguf"));
    set_refused(ST_IO, "part 2 of 3: cannot open", "set-00002-of-00003.gguf': No such file");
    split_part(2, 3, 3, 2, 3, NULL, "t2");
    set_refused(ST_MODEL, "set-00002-of-00003.gguf': keys say part 3 of 3", "expected part 2 of 3");
    split_part(2, 3, 3, 1, 2, NULL, "t2");
    set_refused(ST_MODEL, "set-00002-of-00003.gguf': keys say part 2 of 2", "expected part 2 of 3");
    split_part(2, 3, 9, 1, 3, NULL, "t2");
    set_refused(ST_MODEL, "set-00002-of-00003.gguf': part of another model", "9 tensors");
    split_part(2, 3, 3, 1, 3, "other", "t2");
    set_refused(ST_MODEL, "set-00002-of-00003.gguf': part of another model",
                "general.architecture");
    split_part(2, 3, 3, 1, 3, "test", "t1");
    set_refused(ST_MODEL, "tensor 't1' appears in parts 1 and 2", "");
    split_part(2, 3, 0, 0, 0, NULL, "t2");
    set_refused(ST_MODEL, "set-00002-of-00003.gguf': a file of its own", "expected part 2 of 3");
    write_tmp("set-00002-of-00003.gguf", "<html>", 6);
    set_refused(ST_MODEL, "set-00002-of-00003.gguf': not a GGUF file but a web page",
                "part 2 of 3");
    good_set();
    split_part(1, 3, 4, 0, 3, "test", "t1");
    split_part(2, 3, 4, 1, 3, "test", "t2");
    split_part(3, 3, 4, 2, 3, "test", "t3");
    set_refused(ST_MODEL, "the 3 parts hold 3 tensors", "says 4");
    split_part(1, 3, 3, 3, 3, "test", "t1");
    set_refused(ST_MODEL, "keys say part 3 of 3", "below the count");

    /* a name that does not fit its keys */
    split_part(1, 3, 3, 0, 3, "test", "t1");
    write_tmp("renamed.gguf", b.p, b.n);
    assert_int_equal(gguf_open(&g, tmp_path, GGUF_MMAP, &e), ST_MODEL);
    has(e.msg, "keys say part 1 of 3, but the name does not end in '-00001-of-00003.gguf'");
    split_part(2, 3, 3, 1, 3, "test", "t1");
    write_tmp("renamed.gguf", b.p, b.n);
    assert_int_equal(gguf_open(&g, tmp_path, GGUF_MMAP, &e), ST_USAGE);
    has(e.msg, "whose name ends in '-00001-of-00003.gguf'");

    /* parts one behind the other in one file */
    write_joined("joined.gguf");
    for (size_t m = 0; m < 3; m++) {
        assert_int_equal(gguf_open(&g, tmp_name("joined.gguf"), modes[m], &e), ST_MODEL);
        has(e.msg, "joined into one file: part 1 of 3 ends at byte");
    }

    /* a whole file may be called like a part */
    small_file(&b);
    write_tmp("set-00002-of-00003.gguf", b.p, b.n);
    assert_int_equal(gguf_open(&g, tmp_path, GGUF_MMAP, &e), ST_OK);
    gguf_close(g);

    /* in memory there are no other parts */
    split_part(1, 3, 3, 0, 3, "test", "t1");
    assert_int_equal(gguf_open_memory(&g, b.p, b.n, "label", &e), ST_UNSUPPORTED);
    has(e.msg, "part 1 of 3 of a split model");
}

static void test_split_golden(void **state)
{
    struct gguf *g;
    struct err e;

    (void)state;
    if (gguf_open(&g, data_path("split-00001-of-00003.gguf"), GGUF_MMAP, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(g->n_tensors, 5);
    for (int i = 0; i < 5; i++) {
        char name[8];
        float v;
        snprintf(name, sizeof name, "t%d", i);
        memcpy(&v, gguf_find_tensor(g, name)->data, 4);
        assert_true(v == (float)i);
    }
    gguf_close(g);
}

/* ---- overrides ---- */

static void override_numbers(struct gguf *g)
{
    static const struct {
        enum gguf_type type;
        const char *fits[2], *too_far[2];
    } ints[] = {
        {GGUF_U8, {"0", "255"}, {"-1", "256"}},
        {GGUF_I8, {"-128", "127"}, {"-129", "128"}},
        {GGUF_U16, {"0", "65535"}, {"-1", "65536"}},
        {GGUF_I16, {"-32768", "32767"}, {"-32769", "32768"}},
        {GGUF_U32, {"0", "4294967295"}, {"-1", "4294967296"}},
        {GGUF_I32, {"-2147483648", "2147483647"}, {"-2147483649", "2147483648"}},
        {GGUF_U64, {"0", "9223372036854775807"}, {"-1", "9223372036854775808"}},
        {GGUF_I64,
         {"-9223372036854775808", "9223372036854775807"},
         {"-9223372036854775809", "9223372036854775808"}},
    };
    struct err e = {0};
    char text[80];

    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
        for (int k = 0; k < 2; k++) {
            struct text t = {0};
            snprintf(text, sizeof text, "n.%s=int:%s", gguf_type_name(ints[i].type),
                     ints[i].fits[k]);
            if (gguf_override(g, text, &e))
                fail_msg("%s: %s", text, e.msg);
            snprintf(text, sizeof text, "n.%s", gguf_type_name(ints[i].type));
            assert_int_equal(gguf_find(g, text)->type, ints[i].type);
            assert_true(gguf_find(g, text)->overridden);
            gguf_kv_print(&t, gguf_find(g, text), 1);
            assert_string_equal(t.p, ints[i].fits[k]);
            text_release(&t);
            snprintf(text, sizeof text, "n.%s=int:%s", gguf_type_name(ints[i].type),
                     ints[i].too_far[k]);
            assert_int_equal(gguf_override(g, text, &e), ST_USAGE);
        }
    }
}

static void test_override(void **state)
{
    struct gguf_writer *w = gguf_writer_new();
    struct gguf_str s = {0};
    struct gguf *g;
    struct err e = {0};
    const uint64_t zero = 0;
    void *data;
    size_t n;

    (void)state;
    gguf_put_str(w, "general.architecture", "test");
    for (int t = 0; t < GGUF_TYPE_COUNT; t++) {
        char key[16];
        struct gguf_kv kv = {.key = key,
                             .type = (enum gguf_type)t,
                             .elem = (enum gguf_type)t,
                             .n = 1,
                             .raw = &zero,
                             .n_raw = gguf_type_size((enum gguf_type)t)};
        snprintf(key, sizeof key, "n.%s", gguf_type_name((enum gguf_type)t));
        if (kv.n_raw)
            gguf_put_kv(w, &kv);
    }
    assert_int_equal(gguf_write_memory(w, &data, &n, &e), ST_OK);
    assert_int_equal(gguf_open_memory(&g, data, n, "test", &e), ST_OK);
    override_numbers(g);

    /* many new keys; each is found, and so are those of the file */
    for (int i = 0; i < 300; i++) {
        char text[64];
        snprintf(text, sizeof text, "new.key%d=str:value %d", i, i);
        assert_int_equal(gguf_override(g, text, &e), ST_OK);
    }
    for (int i = 0; i < 300; i++) {
        char key[64], value[64];
        snprintf(key, sizeof key, "new.key%d", i);
        snprintf(value, sizeof value, "value %d", i);
        assert_int_equal(gguf_get_str(g, key, true, &s, &e), ST_OK);
        assert_int_equal(s.n, strlen(value));
        assert_memory_equal(s.p, value, s.n);
    }
    assert_int_equal(gguf_get_str(g, "general.architecture", true, &s, &e), ST_OK);
    assert_memory_equal(s.p, "test", 4);

    /* memory that is short leaves a file that can be closed and read */
    for (uint64_t k = 1; k < 4; k++) {
        mem_fail_at(k);
        gguf_override(g, "general.architecture=str:other", &e);
        mem_fail_at(k);
        gguf_override(g, "one.more=int:1", &e);
        mem_fail_at(0);
        assert_non_null(gguf_find(g, "general.architecture"));
    }
    gguf_close(g);
    gguf_writer_free(w);
    mem_free(data);
}

/* ---- failures of the machine, random damage ---- */

/* Let each allocation fail in turn; the number of tries is the number of allocations. */
static void test_no_memory(void **state)
{
    (void)state;
    small_file(&b);
    write_tmp("nomem.gguf", b.p, b.n);
    for (int what = 0; what < 5; what++) {
        uint64_t n;
        for (n = 1; n < 1000; n++) {
            struct gguf *g = (void *)1;
            struct err e = {0};
            enum status st;
            mem_fail_at(n);
            if (what < 3)
                st = gguf_open(&g, tmp_path, modes[what], &e);
            else if (what == 3)
                st = gguf_open_memory(&g, b.p, b.n, "label", &e);
            else
                st = gguf_open(&g, data_path("split-00001-of-00003.gguf"), GGUF_READ, &e);
            mem_fail_at(0);
            if (!st) {
                gguf_close(g);
                break;
            }
            assert_int_equal(st, ST_NOMEM);
            assert_null(g);
            has(e.msg, "not enough memory for");
        }
        assert_true(n > 5 && n < 100);
    }
}

/* Change bytes at random: opening succeeds or fails with a message; what is returned can be walked. */
static void test_random_damage(void **state)
{
    static struct buf good;
    uint64_t seed = 99;
    int n_ok = 0, n_bad = 0;
    unsigned char *exact;

    (void)state;
    small_file(&good);
    exact = malloc(good.n);
    for (int round = 0; round < 40000; round++) {
        struct gguf *g;
        struct err e = {0};
        struct text t = {0};
        size_t n = good.n;
        unsigned n_hits;

        memcpy(exact, good.p, n);
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        n_hits = 1 + (unsigned)(seed >> 60) % 4;
        for (unsigned k = 0; k < n_hits; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            exact[(seed >> 33) % n] = seed >> 20 & 1 ? (unsigned char)(seed >> 56)
                                                     : (unsigned char)(seed >> 56 & 1 ? 255 : 0);
        }
        if (gguf_open_memory(&g, exact, n, "label", &e)) {
            clean(e.msg);
            n_bad++;
            continue;
        }
        n_ok++;
        for (size_t i = 0; i < g->n_kv; i++)
            gguf_kv_print(&t, &g->kv[i], 10);
        for (size_t i = 0; i < g->n_tensors; i++) {
            const unsigned char *p = g->tensors[i].data;
            unsigned sum = 0;
            for (size_t k = 0; k < g->tensors[i].n_bytes; k++)
                sum += p[k];
            assert_true(sum <= 255 * g->tensors[i].n_bytes);
        }
        text_release(&t);
        gguf_close(g);
    }
    free(exact);
    assert_true(n_ok > 1000 && n_bad > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_values),   cmocka_unit_test(test_typed_errors),
        cmocka_unit_test(test_print),           cmocka_unit_test(test_small_file),
        cmocka_unit_test(test_limits_met),      cmocka_unit_test(test_cut_everywhere),
        cmocka_unit_test(test_damaged_numbers), cmocka_unit_test(test_products),
        cmocka_unit_test(test_alignment),       cmocka_unit_test(test_twice),
        cmocka_unit_test(test_many_tensors),    cmocka_unit_test(test_look_alikes),
        cmocka_unit_test(test_not_files),       cmocka_unit_test(test_odd_path),
        cmocka_unit_test(test_split),           cmocka_unit_test(test_split_golden),
        cmocka_unit_test(test_override),        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_random_damage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
