/*
 * The writer against a file of the `gguf` Python package (the same bytes), and through the reader.
 */
#include "tests/unit.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf/base/mem.h"
#include "gguf/reader.h"
#include "gguf/writer.h"

static char folder[1100]; /* of this test's own, so that what is left behind can be seen */

static int make_folder(void **state)
{
    const char *dir = getenv("GGRUN_TEST_TMP");

    (void)state;
    snprintf(folder, sizeof folder, "%s/writer-XXXXXX", dir ? dir : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static const char *in_folder(const char *name)
{
    static char path[1200];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int n_entries(void)
{
    DIR *d = opendir(folder);
    int n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2; /* . and .. */
}

static unsigned char *read_all(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    unsigned char *p = malloc(1 << 16);

    if (!f)
        fail_msg("cannot open %s", path);
    *n = fread(p, 1, 1 << 16, f);
    fclose(f);
    return p;
}

static const char *golden_path(void)
{
    static char path[1200];
    const char *dir = getenv("GGRUN_TEST_DATA");

    snprintf(path, sizeof path, "%s/gguf/values.gguf", dir ? dir : "tests/data");
    return path;
}

static void put_raw(struct gguf_writer *w, const char *key, enum gguf_type type, const void *p,
                    size_t n)
{
    char name[32];
    struct gguf_kv kv = {.key = name, .type = type, .elem = type, .n = 1, .raw = p, .n_raw = n};

    strcpy(name, key);
    gguf_put_kv(w, &kv);
}

static const float one[6] = {0, 1, 2, 3, 4, 5};
static const uint16_t half[5] = {0, 0x3c00, 0x4000, 0x4200, 0x4400}; /* 0 1 2 3 4 */
static int8_t deep[24];

/* The content of scripts/make-golden-gguf, values.gguf. */
static struct gguf_writer *golden_content(void)
{
    static const int32_t a_i32[] = {1, -2, 3};
    static const float a_f32[] = {0.5f, -1.25f};
    static const uint8_t a_bool[] = {1, 0, 1}, a_u8[] = {1, 2, 255};
    static const struct gguf_str a_str[] = {{"", 0}, {"a", 1}, {"some longer piece of text", 25}};
    struct gguf_writer *w = gguf_writer_new();

    assert_non_null(w);
    gguf_put_str(w, "general.architecture", "test");
    gguf_put_u32(w, "general.alignment", 64);
    put_raw(w, "v.u8", GGUF_U8, &(uint8_t){200}, 1);
    put_raw(w, "v.i8", GGUF_I8, &(int8_t){-100}, 1);
    put_raw(w, "v.u16", GGUF_U16, &(uint16_t){60000}, 2);
    put_raw(w, "v.i16", GGUF_I16, &(int16_t){-30000}, 2);
    gguf_put_u32(w, "v.u32", 4000000000);
    gguf_put_i32(w, "v.i32", -2000000000);
    gguf_put_f32(w, "v.f32", 0.1f);
    gguf_put_bool(w, "v.bool", false); /* replaced below, in its place */
    gguf_put_str_n(w, "v.str", "h\xc3\xa9llo\nand more", 7);
    gguf_put_u64(w, "v.u64", 18000000000000000000u);
    put_raw(w, "v.i64", GGUF_I64, &(int64_t){-9000000000000000000}, 8);
    put_raw(w, "v.f64", GGUF_F64, &(double){0.1}, 8);
    gguf_put_arr(w, "a.i32", GGUF_I32, a_i32, 3);
    gguf_put_arr(w, "a.f32", GGUF_F32, a_f32, 2);
    gguf_put_arr(w, "a.bool", GGUF_BOOL, a_bool, 3);
    gguf_put_strs(w, "a.str", a_str, 3);
    gguf_put_arr(w, "a.u8", GGUF_U8, a_u8, 3);
    gguf_put_bool(w, "v.bool", true);
    for (int i = 0; i < 24; i++)
        deep[i] = (int8_t)i;
    gguf_put_tensor(w, "one", DT_F32, 2, (int64_t[]){3, 2}, one);
    gguf_put_tensor(w, "half", DT_F16, 1, (int64_t[]){5}, half);
    gguf_put_tensor(w, "deep", DT_I8, 4, (int64_t[]){4, 1, 3, 2}, deep);
    return w;
}

static void test_same_bytes(void **state)
{
    struct gguf_writer *w = golden_content();
    struct err e;
    size_t n_want, n_got;
    unsigned char *want = read_all(golden_path(), &n_want), *got;
    void *p;

    (void)state;
    if (gguf_write(w, in_folder("out.gguf"), &e))
        fail_msg("%s", e.msg);
    assert_int_equal(n_entries(), 1);
    got = read_all(in_folder("out.gguf"), &n_got);
    assert_int_equal(n_got, n_want);
    assert_memory_equal(got, want, n_want);
    assert_int_equal(gguf_write_memory(w, &p, &n_got, &e), ST_OK);
    assert_int_equal(n_got, n_want);
    assert_memory_equal(p, want, n_want);
    mem_free(p);
    assert_int_equal(gguf_write(w, in_folder("out.gguf"), &e), ST_OK); /* over itself */
    unlink(in_folder("out.gguf"));
    free(got);
    free(want);
    gguf_writer_free(w);
    gguf_writer_free(NULL);
}

/* Copying every key and tensor of a file gives the file. */
static void test_copy(void **state)
{
    struct gguf_writer *w = gguf_writer_new();
    struct gguf *g;
    struct err e;
    size_t n_want, n_got;
    unsigned char *want = read_all(golden_path(), &n_want);
    void *got;

    (void)state;
    assert_int_equal(gguf_open(&g, golden_path(), GGUF_READ, &e), ST_OK);
    for (size_t i = 0; i < g->n_kv; i++)
        gguf_put_kv(w, &g->kv[i]);
    for (size_t i = 0; i < g->n_tensors; i++)
        gguf_put_tensor(w, g->tensors[i].name, g->tensors[i].type, g->tensors[i].n_dims,
                        g->tensors[i].ne, g->tensors[i].data);
    assert_int_equal(gguf_write_memory(w, &got, &n_got, &e), ST_OK);
    assert_int_equal(n_got, n_want);
    assert_memory_equal(got, want, n_want);
    mem_free(got);
    free(want);
    gguf_writer_free(w);
    gguf_close(g);
}

/* Every tensor type and every value type goes out and comes back. */
static void test_all_types(void **state)
{
    static const enum dtype types[] = {
#define DTYPE(NAME, number, name, block, layout, bytes) DT_##NAME,
#include "gguf/dtype.def"
    };
    enum { N = sizeof types / sizeof types[0] };
    static unsigned char data[N][3 * 8 * 256];
    struct gguf_writer *w = gguf_writer_new();
    struct gguf *g = NULL;
    struct err e;
    size_t n;
    void *p;

    (void)state;
    for (enum gguf_type t = GGUF_U8; t < GGUF_TYPE_COUNT; t++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", t);
        if (gguf_type_size(t))
            gguf_put_arr(w, key, t, "\1\0\1\1\0\1\0\0\1\1\0\0\1\0\0\1", 2);
    }
    gguf_put_strs(w, "empty", NULL, 0);
    gguf_put_arr(w, "none", GGUF_F32, NULL, 0);
    gguf_put_str_n(w, "nul", "a\0b", 3);
    for (int i = 0; i < N; i++) {
        for (size_t k = 0; k < sizeof data[i]; k++)
            data[i][k] = (unsigned char)(k * 7 + (size_t)i);
        gguf_put_tensor(w, dtype_name(types[i]), types[i], 2, (int64_t[]){256, 3}, data[i]);
    }
    if (gguf_write_memory(w, &p, &n, &e) || gguf_open_memory(&g, p, n, "memory", &e))
        fail_msg("%s", e.msg);
    assert_int_equal(g->n_tensors, N);
    for (int i = 0; i < N; i++) {
        const struct gguf_tensor *t = gguf_find_tensor(g, dtype_name(types[i]));
        assert_int_equal(t->type, types[i]);
        assert_int_equal(t->n_bytes, 3 * dtype_row_bytes(types[i], 256));
        assert_memory_equal(t->data, data[i], t->n_bytes);
        assert_int_equal(t->offset % 32, 0);
    }
    for (enum gguf_type t = GGUF_U8; t < GGUF_TYPE_COUNT; t++) {
        const struct gguf_kv *kv;
        char key[16];
        snprintf(key, sizeof key, "k%d", t);
        kv = gguf_find(g, key);
        assert_true((kv != NULL) == (gguf_type_size(t) > 0));
        if (kv) {
            assert_int_equal(kv->type, GGUF_ARR);
            assert_int_equal(kv->elem, t);
            assert_int_equal(kv->n_raw, 2 * gguf_type_size(t));
        }
    }
    assert_int_equal(gguf_find(g, "empty")->n, 0);
    assert_int_equal(gguf_find(g, "empty")->elem, GGUF_STR);
    assert_int_equal(gguf_find(g, "none")->n, 0);
    {
        struct gguf_str s;
        assert_int_equal(gguf_get_str(g, "nul", true, &s, &e), ST_OK);
        assert_int_equal(s.n, 3);
        assert_memory_equal(s.p, "a\0b", 3);
    }
    gguf_close(g);
    mem_free(p);
    gguf_writer_free(w);
}

/* The first failure is kept, and nothing is written. */
static void sticky(void (*step)(struct gguf_writer *w), const char *part)
{
    struct gguf_writer *w = gguf_writer_new();
    struct err e = {0};
    void *p = (void *)1;
    size_t n;

    gguf_put_u32(w, "ok", 1);
    step(w);
    gguf_put_u32(w, "later", 1);
    gguf_put_tensor(w, "later", DT_F32, 1, (int64_t[]){6}, one);
    assert_int_equal(gguf_write(w, in_folder("bad.gguf"), &e), ST_USAGE);
    if (!strstr(e.msg, part) || !strstr(e.msg, "bad.gguf"))
        fail_msg("message \"%s\" lacks \"%s\"", e.msg, part);
    assert_int_equal(n_entries(), 0);
    assert_int_equal(gguf_write_memory(w, &p, &n, NULL), ST_USAGE);
    assert_null(p);
    gguf_writer_free(w);
}

static void no_key(struct gguf_writer *w)
{
    gguf_put_u32(w, "", 1);
}
static void arr_of_str(struct gguf_writer *w)
{
    gguf_put_arr(w, "words", GGUF_STR, "x", 1);
}
static void half_block(struct gguf_writer *w)
{
    gguf_put_tensor(w, "t", DT_Q4_0, 1, (int64_t[]){48}, one);
}
static void no_elements(struct gguf_writer *w)
{
    gguf_put_tensor(w, "t", DT_F32, 2, (int64_t[]){4, 0}, one);
}
static void five_dims(struct gguf_writer *w)
{
    gguf_put_tensor(w, "t", DT_F32, 5, (int64_t[]){1, 1, 1, 1, 1}, one);
}
static void long_name(struct gguf_writer *w)
{
    gguf_put_tensor(w, "0123456789012345678901234567890123456789012345678901234567890123", DT_F32,
                    1, (int64_t[]){1}, one);
}
static void huge(struct gguf_writer *w)
{
    gguf_put_tensor(w, "t", DT_F32, 3, (int64_t[]){1 << 30, 1 << 30, 1 << 30}, one);
}
static void twice(struct gguf_writer *w)
{
    gguf_put_tensor(w, "t", DT_F32, 1, (int64_t[]){1}, one);
    gguf_put_tensor(w, "t", DT_F32, 1, (int64_t[]){1}, one);
}
static void align_7(struct gguf_writer *w)
{
    gguf_put_u32(w, "general.alignment", 7);
}
static void align_str(struct gguf_writer *w)
{
    gguf_put_str(w, "general.alignment", "32");
}

static void test_sticky(void **state)
{
    (void)state;
    sticky(no_key, "a key of 0 bytes");
    sticky(arr_of_str, "key 'words'");
    sticky(half_block, "tensor 't' has rows of 48 elements, but type q4_0 needs a multiple of 32");
    sticky(no_elements, "dimension 1 of tensor 't' is 0");
    sticky(five_dims, "tensor 't' has 5 dimensions");
    sticky(long_name, "has a name of 64 bytes");
    sticky(huge, "tensor 't' is too large");
    sticky(twice, "tensor 't' is put twice");
    sticky(align_7, "key 'general.alignment' is 7");
    sticky(align_str, "key 'general.alignment' has type str");
}

/* What cannot be written leaves what was there, and no temporary file. */
static void test_cannot_write(void **state)
{
    struct gguf_writer *w = golden_content();
    struct err e;
    struct stat sb;

    (void)state;
    assert_int_equal(gguf_write(w, in_folder("nosuch/out.gguf"), &e), ST_IO);
    assert_non_null(strstr(e.msg, "cannot create: No such file or directory"));
    assert_int_equal(gguf_write(w, "/dev/full", &e), ST_IO);
    assert_non_null(strstr(e.msg, "'/dev/full': there is something other than a file"));
    assert_int_equal(mkdir(in_folder("dir"), 0700), 0);
    assert_int_equal(gguf_write(w, in_folder("dir"), &e), ST_IO);
    assert_int_equal(rmdir(in_folder("dir")), 0);
    assert_int_equal(n_entries(), 0);

    umask(027); /* the file gets the rights that any new file gets */
    assert_int_equal(gguf_write(w, in_folder("out.gguf"), &e), ST_OK);
    assert_int_equal(stat(in_folder("out.gguf"), &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0640);
    unlink(in_folder("out.gguf"));
    gguf_writer_free(w);
}

/* A disk that fills up while the file is written: what had the name keeps it. */
static void test_disk_full(void **state)
{
    struct gguf_writer *w = golden_content();
    struct rlimit old, small;
    struct err e;
    size_t n;
    unsigned char *p;
    FILE *f = fopen(in_folder("out.gguf"), "wb");

    (void)state;
    fputs("before", f);
    fclose(f);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    for (rlim_t limit = 0; limit < 1000; limit += 333) {
        small.rlim_cur = limit;
        setrlimit(RLIMIT_FSIZE, &small);
        assert_int_equal(gguf_write(w, in_folder("out.gguf"), &e), limit < 960 ? ST_IO : ST_OK);
        setrlimit(RLIMIT_FSIZE, &old);
        assert_int_equal(n_entries(), 1);
        p = read_all(in_folder("out.gguf"), &n);
        if (limit < 960) {
            assert_non_null(strstr(e.msg, "out.gguf': cannot write: File too large"));
            assert_int_equal(n, 6);
            assert_memory_equal(p, "before", 6);
        } else {
            assert_int_equal(n, 960);
        }
        free(p);
    }
    unlink(in_folder("out.gguf"));
    gguf_writer_free(w);
}

/* Each allocation fails in turn: a status, and no file. */
static void test_no_memory(void **state)
{
    uint64_t n;

    (void)state;
    for (n = 1; n < 1000; n++) {
        struct gguf_writer *w;
        struct err e;
        enum status st;
        uint64_t before;

        mem_fail_at(n);
        before = mem_calls();
        w = gguf_writer_new();
        if (!w)
            continue;
        gguf_put_u32(w, "a", 1);
        gguf_put_str(w, "b", "text");
        gguf_put_arr(w, "c", GGUF_F32, one, 6);
        gguf_put_tensor(w, "one", DT_F32, 1, (int64_t[]){6}, one);
        gguf_put_tensor(w, "two", DT_F32, 1, (int64_t[]){6}, one);
        st = gguf_write(w, in_folder("nomem.gguf"), &e);
        before = mem_calls() - before;
        mem_fail_at(0);
        gguf_writer_free(w);
        if (!st) {
            assert_true(before < n); /* no failure was swallowed */
            unlink(in_folder("nomem.gguf"));
            break;
        }
        assert_int_equal(st, ST_NOMEM);
        assert_int_equal(n_entries(), 0);
    }
    assert_true(n > 10 && n < 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bytes),   cmocka_unit_test(test_copy),
        cmocka_unit_test(test_all_types),    cmocka_unit_test(test_sticky),
        cmocka_unit_test(test_cannot_write), cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
