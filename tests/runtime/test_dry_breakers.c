/*
 * Sequence breakers from texts, seen through what DRY then does. Behind the tokens x y a b z x y a
 * b it avoids z, unless one of a b is or ends a breaker, which their bytes alone tell.
 */
#include "tests/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/dry_breakers.h"

static struct gguf *file;
static struct vocab *vocab;

static int open_vocab(void **state)
{
    char path[4096];
    struct err e;

    (void)state;
    snprintf(path, sizeof path, "%s/cli/ggrun-tiny-q8_0.gguf", getenv("GGRUN_SOURCE_DIR"));
    if (gguf_open(&file, path, GGUF_MMAP, &e))
        return 1;
    return vocab_load(&vocab, file, &e) != ST_OK;
}

static int close_vocab(void **state)
{
    (void)state;
    vocab_free(vocab);
    gguf_close(file);
    return 0;
}

static struct sampler *make(float multiplier)
{
    struct sampler_options o;
    struct sampler *s;
    struct err e;

    sampler_defaults(&o);
    o.dry_multiplier = multiplier;
    o.dry_penalty_last_n = 9;
    o.temp = 0;
    assert_int_equal(sampler_new(&s, &o, vocab_n_tokens(vocab), 512, &e), ST_OK);
    return s;
}

static int32_t one_token(const char *text)
{
    struct tokens t = {0};
    struct err e;
    int32_t id;

    assert_int_equal(vocab_encode(vocab, text, strlen(text), 0, &t, &e), ST_OK);
    assert_true(t.n >= 1);
    id = t.id[t.n - 1]; /* the first may be the space in front */
    tokens_release(&t);
    return id;
}

/* The token's bytes in the middle of a text; empty for control tokens without text. */
static void bytes_of(int32_t id, struct text *out)
{
    struct detok d;
    struct err e;

    text_clear(out);
    detok_init(&d, vocab, true);
    detok_resume(&d);
    assert_int_equal(detok_add(&d, id, out, &e), ST_OK);
    text_byte(out, 0); /* they are compared as strings */
}

/* Is z, which is a little likelier than w, avoided behind x y a b z x y a b? */
static bool avoids_repetition(struct sampler *s, int32_t a, int32_t b)
{
    static float logits[4096];
    int32_t x = one_token("x"), y = one_token("y"), z = one_token("z"), w = one_token("w"), id;
    int32_t text[] = {x, y, a, b, z, x, y, a, b};
    struct err e;

    for (int32_t i = 0; i < vocab_n_tokens(vocab); i++)
        logits[i] = -100;
    logits[z] = 1;
    logits[w] = 0.5f;
    for (int i = 0; i < 9; i++)
        sampler_accept(s, text[i]);
    assert_int_equal(sampler_sample(s, logits, &id, &e), ST_OK);
    assert_true(id == z || id == w);
    return id == w;
}

/* A token breaks exactly when one of the breakers is in its bytes. */
static void test_breakers_of_one_token(void **state)
{
    struct text breakers[] = {
        {.p = (char *)"e", .n = 1}, {.p = (char *)"\n", .n = 1}, {.p = (char *)" th", .n = 3}};
    struct sampler *s = make(1);
    struct text t = {0};
    struct err e;
    int32_t b = one_token("b");
    int breaking = 0;

    (void)state;
    assert_int_equal(dry_breakers_add(s, vocab, breakers, 3, &e), ST_OK);
    for (int32_t id = 0; id < vocab_n_tokens(vocab); id++) {
        bool breaks;
        bytes_of(id, &t);
        breaks = strchr(t.p, 'e') || strchr(t.p, '\n') || strstr(t.p, " th");
        assert_int_equal(avoids_repetition(s, b, id), !breaks);
        breaking += breaks;
    }
    assert_true(breaking > 100 && breaking < vocab_n_tokens(vocab) - 100);
    sampler_free(s);
    text_release(&t);
}

/* "q;" breaks where one token ends in q and the next is ";". */
static void test_breaker_across_tokens(void **state)
{
    struct text breaker = {.p = (char *)"q;", .n = 2};
    struct sampler *s = make(1);
    int32_t rest = one_token(";");
    struct text t = {0};
    struct err e;
    int breaking = 0;

    (void)state;
    bytes_of(rest, &t);
    assert_string_equal(t.p, ";");
    assert_int_equal(dry_breakers_add(s, vocab, &breaker, 1, &e), ST_OK);
    for (int32_t id = 0; id < vocab_n_tokens(vocab); id++) {
        bool ends_in_q;
        bytes_of(id, &t);
        ends_in_q = t.n >= 2 && t.p[t.n - 2] == 'q';
        if (strstr(t.p, "q;"))
            continue;
        breaking += ends_in_q;
        assert_int_equal(avoids_repetition(s, id, rest), !ends_in_q);
        assert_true(avoids_repetition(s, id, one_token("b")));
    }
    assert_true(breaking >= 1);
    sampler_free(s);
    text_release(&t);
}

static void test_without_dry_nothing_is_done(void **state)
{
    struct text breaker = {.p = (char *)"e", .n = 1};
    struct sampler *s = make(0);
    struct err e;
    uint64_t calls = mem_calls();

    (void)state;
    assert_false(sampler_wants_breakers(s));
    assert_int_equal(dry_breakers_add(s, vocab, &breaker, 1, &e), ST_OK);
    assert_int_equal(mem_calls(), calls);
    sampler_free(s);
}

static void test_out_of_memory(void **state)
{
    struct text breaker = {.p = (char *)"q;", .n = 2};
    bool done = false;

    (void)state;
    for (uint64_t n = 1; !done; n++) {
        struct sampler *s = make(1);
        struct err e = {0};
        enum status st;
        mem_fail_at(n);
        st = dry_breakers_add(s, vocab, &breaker, 1, &e);
        mem_fail_at(0);
        done = st == ST_OK;
        assert_true(done || st == ST_NOMEM);
        sampler_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_breakers_of_one_token),
        cmocka_unit_test(test_breaker_across_tokens),
        cmocka_unit_test(test_without_dry_nothing_is_done),
        cmocka_unit_test(test_out_of_memory),
    };

    return cmocka_run_group_tests_name("DRY breakers", tests, open_vocab, close_vocab);
}
