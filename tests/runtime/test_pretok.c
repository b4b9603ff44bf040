/*
 * Cutting text into words: cuts known from the patterns' meaning, nothing lost, linear time and
 * constant stack on long runs, limits reached.
 */
#include "tests/unit.h"

#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "gguf/base/mem.h"
#include "gguf/base/text.h"
#include "runtime/pretok.h"

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

static enum status join(void *ctx, const char *p, size_t n, struct err *e)
{
    struct text *t = ctx;

    (void)e;
    if (t->n)
        text_byte(t, '|');
    text_bytes(t, p, n);
    return ST_OK;
}

static void expect(const char *rule, const char *text, const char *want)
{
    struct pretok *p = NULL;
    struct pretok_run *r = NULL;
    struct text got = {0};
    struct err e = {0};
    const char *as;

    assert_int_equal(pretok_new(&p, pretok_rule_find(rule, strlen(rule), &as), &e), ST_OK);
    assert_string_equal(as, rule);
    assert_int_equal(pretok_run_new(&r, p, NULL, &e), ST_OK);
    assert_int_equal(pretok_split(r, text, strlen(text), 0, join, &got, &e), ST_OK);
    assert_string_equal(got.p, want);
    text_release(&got);
    pretok_run_free(r);
    pretok_free(p);
}

static void known_cuts(void **state)
{
    (void)state;
    expect("gpt-2", "Hello  world's 123abc!?\n\n x ", "Hello| | world|'s| 123|abc|!?|\n\n| x| ");
    expect("gpt-2", "a\n\nb", "a|\n|\n|b");
    expect("gpt-2", "IT'S it's", "IT|'|S| it|'s");
    expect("default", "IT'S it's", "IT|'|S| it|'|s");
    expect("default", "x1234 ==>y", "x|123|4| |==>|y");
    expect("llama-bpe", "IT'S 12345\n\n  x.\n\ny", "IT|'S| |123|45|\n\n| | x|.\n\n|y");
    expect("llama3", "\tx  \n \n z", "\tx|  \n \n| z");
    expect("qwen2",
           "12 a\xc2\xa0"
           "b",
           "1|2| a|\xc2\xa0"
           "b");
    expect("smollm", "a 12", "a| |1|2");
    expect("falcon", "x1234 ==>y", "x|123|4| |==>|y");
    expect("deepseek-coder", "ab 12\n\xe6\xbc\xa2x", "ab| |1|2|\n|\xe6\xbc\xa2|x");
    expect("deepseek-llm", "ab  \n  c\xe6\xbc\xa2\xe6\xbc\xa2 12",
           "ab|  |\n| | c|\xe6\xbc\xa2\xe6\xbc\xa2| |12");
    expect("deepseek-v3", "1234x(y) \xe6\xbc\xa2", "123|4|x|(y|)| |\xe6\xbc\xa2");
    expect("deepseek-v3", "na\xc3\xafve x#tag", "na\xc3\xafve| x|#tag");
    expect("gpt-4o", "camelCase's HTTPServer//\n", "camel|Case's| HTTPServer|//\n");
    expect("tekken", "camelCase 12", "camel|Case| |1|2");
    expect("tiny_aya", "1234567 1234abc  1234_ x12", "1|234|567| |123|4|abc| | |123|4|_| x|12");
    expect("afmoe", "1234567x1234 12", "1|234|567|x|1|234| |12");
    expect("superbpe", "so many words 1234567 ok", "so many words |1|234|567| ok");
    expect("superbpe",
           "\xc2\xbd"
           "1234\xc2\xbd"
           "567\xc2\xbd"
           "89 12\xc2\xbd 123",
           "\xc2\xbd"
           "1|234\xc2\xbd|567\xc2\xbd"
           "89| |12\xc2\xbd| |123");
    expect("kimi-k2", "aB \xe6\xbc\xa2\xe6\xbc\xa2xyz \xe3\x81\x8b's 1234",
           "a|B| |\xe6\xbc\xa2\xe6\xbc\xa2|xyz| \xe3\x81\x8b's| |123|4");
    expect("jais-2", "x       y", "x|    |  | y");  /* 7: one stays with the word */
    expect("jais-2", "x   \n    ", "x|   \n|    "); /* up to the line break, then the end */
    expect("jais-2", "x\t\t\t\t\t\t\t7", "x|\t\t\t\t|\t\t|\t|7");
    expect("spark2_5", "1234.\n\nx", "1|2|3|4|.|\n|\n|x");
    expect("ufakzeka", "it's'S", "it|'s|'S");
    expect("exaone-moe", "two words, and more.\n\nx", "two words|,| and more|.\n|\n|x");
    expect("chameleon", "a<sentinel:12>IMGIMGABZ      x9!",
           "a|<|sentinel|:|1|2|>|IMGIMGABZ|    |  |x|9|!");
    expect("youtu", "12\xea\xb0\x80x\xe3\x80\x81y", "1|2|\xea\xb0\x80|x|\xe3\x80\x81|y");
    expect("bloom", "ab,cd (x)", "ab|,|cd| (|x|)");
    assert_null(pretok_rule_find("gpt-2x", 6, &(const char *){0}));
    assert_null(pretok_rule_find("", 0, &(const char *){0}));
}

struct count {
    const char *next; /* where the next word must start */
    size_t n;
};

static enum status count(void *ctx, const char *p, size_t n, struct err *e)
{
    struct count *c = ctx;

    (void)e;
    if (p != c->next || n == 0)
        fail_msg("word %zu does not follow the one before", c->n);
    c->next = p + n;
    c->n++;
    return ST_OK;
}

static struct pretok *compiled(size_t rule)
{
    struct pretok *p = NULL;
    struct err e = {0};

    if (pretok_new(&p, pretok_rule_at(rule), &e))
        fail_msg("%s", e.msg);
    return p;
}

/* The words of one long text by one rule, in order and in time. */
static void walk(const struct text *t, size_t rule, const struct pretok_limits *limits)
{
    struct pretok *p = compiled(rule);
    struct pretok_run *r = NULL;
    struct count c = {.next = t->p};
    struct err e = {0};
    clock_t start = clock();
    double s;

    assert_int_equal(pretok_run_new(&r, p, limits, &e), ST_OK);
    if (pretok_split(r, t->p, t->n, 0, count, &c, &e))
        fail_msg("%s", e.msg);
    assert_ptr_equal(c.next, t->p + t->n);
    s = (double)(clock() - start) / CLOCKS_PER_SEC;
    if (s > 4)
        fail_msg("%s, '%.4s' repeated: %.1f s", pretok_rule_at(rule)->names[0], t->p, s);
    pretok_run_free(r);
    pretok_free(p);
}

static void repeat(struct text *t, const char *unit, size_t n_bytes, const char *end)
{
    text_clear(t);
    while (t->n < n_bytes)
        text_str(t, unit);
    text_str(t, end);
}

/* Runs of one character and of two: constant stack, linear time. */
static void long_runs(void **state)
{
    static const char *const unit[] = {"Q",
                                       ".",
                                       " ",
                                       "\xe6\xbc\xa2",
                                       "ab",
                                       "\t",
                                       "7",
                                       "\n", /* 2 MB of these */
                                       " \n",
                                       "\r\n",
                                       "a ",
                                       "'",
                                       "\xcc\x81",
                                       " x",
                                       "\xe3\x80\x80",
                                       "'s",
                                       "\x01",
                                       "aB",
                                       "\xe3\x81\x8b",
                                       "<sentinel:1"};
    static const struct pretok_limits interpreted = {100000, 32, 64 << 10, 0};
    const size_t n_bytes = SLOW ? 20000 : 200000;
    struct rlimit old, small;
    struct text t = {0};

    (void)state;
    getrlimit(RLIMIT_STACK, &old);
    small = old;
    small.rlim_cur = 512 << 10;
    if (!SLOW)
        setrlimit(RLIMIT_STACK, &small);
    for (size_t u = 0; u < sizeof unit / sizeof unit[0]; u++) {
        repeat(&t, unit[u], u < 8 ? 10 * n_bytes : n_bytes, "");
        for (size_t i = 0; i < pretok_rule_count(); i++)
            walk(&t, i, NULL);
        repeat(&t, unit[u], n_bytes, "x");
        for (size_t i = 0; i < pretok_rule_count(); i++)
            walk(&t, i, &interpreted);
    }
    setrlimit(RLIMIT_STACK, &old);
    text_release(&t);
}

/* With and without JIT the words are the same, and cover the text. */
static void same_without_jit(void **state)
{
    static const char *const bits[] = {"a",
                                       "B",
                                       " ",
                                       "  ",
                                       "\n",
                                       "\r",
                                       "\t",
                                       "'",
                                       "s",
                                       "7",
                                       "12",
                                       ".",
                                       "-",
                                       "\xc3\xa9",
                                       "\xe6\xbc\xa2",
                                       "\xe3\x81\x82",
                                       "\xcc\x81",
                                       "\xf0\x9f\xa6\x99",
                                       "_",
                                       "\xc2\xa0",
                                       "\xe2\x80\xa8",
                                       "\xc2\x85"};
    static const struct pretok_limits interpreted = {1000, 32, 1024, 0};
    uint64_t rnd = 9;
    struct text t = {0}, a = {0}, b = {0};
    struct err e = {0};

    (void)state;
    for (size_t i = 0; i < pretok_rule_count(); i++) {
        struct pretok *p = compiled(i);
        struct pretok_run *r = NULL, *q = NULL;

        assert_int_equal(pretok_run_new(&r, p, NULL, &e), ST_OK);
        assert_int_equal(pretok_run_new(&q, p, &interpreted, &e), ST_OK);
        for (int round = 0; round < 200; round++) {
            struct count c;

            text_clear(&t);
            text_clear(&a);
            text_clear(&b);
            for (int k = 0; k < 30; k++) {
                rnd = rnd * 6364136223846793005u + 1442695040888963407u;
                text_str(&t, bits[(rnd >> 33) % (sizeof bits / sizeof bits[0])]);
            }
            c = (struct count){.next = t.p};
            assert_int_equal(pretok_split(r, t.p, t.n, 0, count, &c, &e), ST_OK);
            assert_ptr_equal(c.next, t.p + t.n);
            assert_int_equal(pretok_split(r, t.p, t.n, 0, join, &a, &e), ST_OK);
            assert_int_equal(pretok_split(q, t.p, t.n, 0, join, &b, &e), ST_OK);
            assert_string_equal(a.p, b.p);
        }
        pretok_run_free(r);
        pretok_run_free(q);
        pretok_free(p);
    }
    text_release(&t);
    text_release(&a);
    text_release(&b);
}

/* A limit is an error with the byte position, in JIT code and without. */
static void limits(void **state)
{
    static const char *const name[] = {"greedy", NULL}, *const pattern[] = {"(?:a|(b))+c|x", NULL};
    static const struct pretok_rule rule = {name, pattern, false, false};
    static const struct pretok_limits limit[] = {
        {10, 0, 64 << 10, 1 << 10}, /* steps, JIT */
        {10, 0, 64 << 10, 0},       /* steps, interpreter */
        {1 << 30, 32, 64, 0},       /* heap */
        {1 << 30, 32, 64, 32},      /* JIT stack, then heap */
    };
    struct pretok *p = NULL;
    struct text t = {0};
    struct err e = {0};

    (void)state;
    assert_int_equal(pretok_new(&p, &rule, &e), ST_OK);
    text_str(&t, "x");
    for (int i = 0; i < 20000; i++)
        text_str(&t, "ab");
    for (size_t i = 0; i < sizeof limit / sizeof limit[0]; i++) {
        struct pretok_run *r = NULL;
        struct count c = {.next = t.p};

        e = (struct err){0};
        assert_int_equal(pretok_run_new(&r, p, &limit[i], &e), ST_OK);
        assert_int_equal(pretok_split(r, t.p, t.n, 100, count, &c, &e), ST_UNSUPPORTED);
        assert_non_null(strstr(e.msg, "at byte 101"));
        assert_non_null(strstr(e.msg, "'greedy'"));
        assert_non_null(strstr(e.msg, "limit"));
        pretok_run_free(r);
    }
    pretok_free(p);
    text_release(&t);
}

static enum status try_all(struct err *e)
{
    struct pretok *p = NULL;
    struct pretok_run *r = NULL;
    struct count c = {.next = "a 1"};
    const char *as;
    enum status st = pretok_new(&p, pretok_rule_find("falcon", 6, &as), e);

    if (!st)
        st = pretok_run_new(&r, p, NULL, e);
    if (!st)
        st = pretok_split(r, c.next, 3, 0, count, &c, e);
    pretok_run_free(r);
    pretok_free(p);
    return st;
}

static void out_of_memory(void **state)
{
    struct err e = {0};
    enum status st = ST_NOMEM;
    uint64_t n = 0;

    (void)state;
    while (st) {
        mem_fail_at(++n);
        st = try_all(&e);
        mem_fail_at(0);
        if (st)
            assert_int_equal(st, ST_NOMEM);
    }
    assert_true(n > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_cuts),       cmocka_unit_test(long_runs),
        cmocka_unit_test(same_without_jit), cmocka_unit_test(limits),
        cmocka_unit_test(out_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
