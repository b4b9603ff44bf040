/*
 * What the vocabulary's tests share: a vocabulary with its file, ids compared with lists in JSON
 * files.
 */
#ifndef GGRUN_TESTS_RUNTIME_VOCAB_UTIL_H
#define GGRUN_TESTS_RUNTIME_VOCAB_UTIL_H

#include "gguf/reader.h"
#include "gguf/writer.h"
#include "runtime/vocab.h"
#include "tests/util_json.h"

/* Sanitizers cost a factor of ten: long texts are shorter then. */
#if defined(__SANITIZE_ADDRESS__)
#define SLOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLOW 1
#endif
#endif
#ifndef SLOW
#define SLOW 0
#endif

#define KEY(name) "tokenizer.ggml." name

struct loaded {
    struct gguf *g;
    struct vocab *v;
    void *bytes; /* of a file in memory */
};

/* Fails the test when the file cannot be loaded. */
static inline struct loaded load_file(const char *path)
{
    struct loaded l = {0};
    struct err e = {0};

    if (gguf_open(&l.g, path, GGUF_NO_DATA, &e) || vocab_load(&l.v, l.g, &e))
        fail_msg("%s", e.msg);
    return l;
}

static inline void unload(struct loaded *l)
{
    vocab_free(l->v);
    gguf_close(l->g);
    mem_free(l->bytes);
    *l = (struct loaded){0};
}

/* Ids of a text, appended to *out; the test fails when it has none. */
static inline void encode(const struct vocab *v, const char *p, size_t n, unsigned flags,
                          struct tokens *out)
{
    struct err e = {0};

    if (vocab_encode(v, p, n, flags, out, &e))
        fail_msg("%s", e.msg);
}

/* The ids of a text are these, written with spaces between them. */
static inline void expect_ids(const struct vocab *v, const char *text, unsigned flags,
                              const char *want)
{
    struct tokens ids = {0};
    struct text got = {0};

    encode(v, text, strlen(text), flags, &ids);
    for (size_t i = 0; i < ids.n; i++)
        text_addf(&got, "%s%d", i ? " " : "", ids.id[i]);
    assert_string_equal(got.p ? got.p : "", want);
    tokens_release(&ids);
    text_release(&got);
}

/* The texts of lists (NULL at the end), with the ids that `ids` has for them; null = not compared. */
static inline void check_ids(const struct vocab *v, const char *folder, const char *const *lists,
                             const char *ids_folder, const char *ids)
{
    struct json want = json_open(ids_folder, ids);
    struct text t = {0};
    size_t n = 0;

    json_begin(&want);
    for (int i = 0; lists[i]; i++) {
        struct json texts = json_open(folder, lists[i]);

        json_begin(&texts);
        while (json_item(&texts)) {
            struct tokens a = {0}, b = {0};

            json_str(&texts, &t);
            if (!json_item(&want))
                fail_msg("%s: fewer lists than texts", ids);
            if (!json_null(&want)) {
                json_ints(&want, &b);
                encode(v, t.p ? t.p : "", t.n, ENC_SPECIAL, &a);
                if (a.n != b.n || (a.n && memcmp(a.id, b.id, a.n * sizeof *a.id)))
                    fail_msg("%s: text %zu, '%s': other ids", ids, n, t.p ? t.p : "");
            }
            tokens_release(&a);
            tokens_release(&b);
            n++;
        }
        json_close(&texts);
    }
    if (json_item(&want) || n == 0)
        fail_msg("%s: more lists than texts", ids);
    json_close(&want);
    text_release(&t);
}

/* The text of ids is what they were made from. */
static inline void check_round_trip(const struct vocab *v, const char *p, size_t n, unsigned flags)
{
    struct tokens ids = {0};
    struct text back = {0};
    struct detok d;
    struct err e = {0};

    encode(v, p, n, flags, &ids);
    detok_init(&d, v, true);
    for (size_t i = 0; i < ids.n; i++)
        if (detok_add(&d, ids.id[i], &back, &e))
            fail_msg("%s", e.msg);
    if (back.n != n || (n && memcmp(back.p, p, n) != 0)) {
        char a[256], b[256];

        fail_msg("%s: '%s' came back as '%s'", vocab_kind(v), text_quote(a, sizeof a, p, n),
                 text_quote(b, sizeof b, back.p ? back.p : "", back.n));
    }
    tokens_release(&ids);
    text_release(&back);
}

/* All keys of a file but one. */
static inline struct gguf_writer *copy_without(const char *path, const char *drop)
{
    struct gguf_writer *w = gguf_writer_new();
    struct gguf *g = NULL;
    struct err e = {0};

    assert_non_null(w);
    if (gguf_open(&g, path, GGUF_NO_DATA, &e))
        fail_msg("%s", e.msg);
    for (size_t i = 0; i < g->n_kv; i++)
        if (!drop || strcmp(g->kv[i].key, drop) != 0)
            gguf_put_kv(w, &g->kv[i]);
    gguf_close(g);
    return w;
}

/* Takes the writer. */
static inline enum status load_written(struct gguf_writer *w, struct loaded *l, struct err *e)
{
    size_t n;

    *l = (struct loaded){0};
    *e = (struct err){0};
    if (gguf_write_memory(w, &l->bytes, &n, e) ||
        gguf_open_memory(&l->g, l->bytes, n, "test.gguf", e))
        fail_msg("%s", e->msg);
    gguf_writer_free(w);
    return vocab_load(&l->v, l->g, e);
}

static inline struct loaded must_load(struct gguf_writer *w)
{
    struct loaded l;
    struct err e;

    if (load_written(w, &l, &e))
        fail_msg("%s", e.msg);
    return l;
}

static inline struct gguf_str str(const char *s)
{
    return (struct gguf_str){s, strlen(s)};
}

/* What the ids of a text say, special tokens included, has the same ids. */
static inline void check_same_again(const struct vocab *v, const char *p, size_t n)
{
    struct tokens a = {0}, b = {0};
    struct text t = {0};
    struct detok d;
    struct err e = {0};

    encode(v, p, n, ENC_SPECIAL, &a);
    detok_init(&d, v, true);
    for (size_t i = 0; i < a.n; i++)
        if (detok_add(&d, a.id[i], &t, &e))
            fail_msg("%s", e.msg);
    encode(v, t.p ? t.p : "", t.n, ENC_SPECIAL, &b);
    if (a.n != b.n || (a.n && memcmp(a.id, b.id, a.n * sizeof *a.id) != 0)) {
        char q[256], r[256];

        fail_msg("%s: the ids of '%s' say '%s', which has others", vocab_kind(v),
                 text_quote(q, sizeof q, p, n), text_quote(r, sizeof r, t.p ? t.p : "", t.n));
    }
    tokens_release(&a);
    tokens_release(&b);
    text_release(&t);
}

/* Loading fails with this status, and a message that has both parts. Takes the writer. */
static inline void refused(struct gguf_writer *w, enum status code, const char *part1,
                           const char *part2)
{
    struct loaded l;
    struct err e;
    enum status st = load_written(w, &l, &e);

    if (st != code || !strstr(e.msg, part1) || !strstr(e.msg, part2))
        fail_msg("status %s, message '%s'; expected '%s' and '%s'", status_name(st), e.msg, part1,
                 part2);
    assert_null(l.v);
    unload(&l);
}

#endif
