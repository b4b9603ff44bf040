/*
 * Vocabulary and tokenizers with what is in the repository: ids of llama.cpp for a
 * SentencePiece-style and a byte-level BPE vocabulary, exact round trips, hostile files, failing
 * allocations, long runs.
 */
#include "tests/unit.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "gguf/base/log.h"
#include "gguf/base/mem.h"
#include "runtime/pretok.h"
#include "tests/runtime/vocab_util.h"

static char tiny_path[1024], small_path[1024], raw_path[1024], tokens_folder[1024];
static const char *const all_lists[] = {"texts.json", "mixed.json", "cuts.json", NULL};

static int find_paths(void **state)
{
    const char *source = getenv("GGRUN_SOURCE_DIR"), *data = getenv("GGRUN_TEST_DATA");

    (void)state;
    if (!source || !data) {
        fprintf(stderr, "GGRUN_SOURCE_DIR and GGRUN_TEST_DATA must be set\n");
        return -1;
    }
    snprintf(tiny_path, sizeof tiny_path, "%s/cli/ggrun-tiny-q8_0.gguf", source);
    snprintf(small_path, sizeof small_path, "%s/tokens/small.gguf", data);
    snprintf(raw_path, sizeof raw_path, "%s/tokens/raw.gguf", data);
    snprintf(tokens_folder, sizeof tokens_folder, "%s/tokens", data);
    return 0;
}

/* ---- files in memory ---- */

/*
 * A byte-level vocabulary in which every byte has a token, with a few merges: 256 characters, then
 * the words, then one control and three user-defined tokens.
 */
static struct loaded byte_complete(const char *pre)
{
    static char chars[256][3];
    static const char *const more[] = {"th",      "the", "aa",     "aaaa", "\xc4\xa0\xc4\xa0",
                                       "<|end|>", "  ",  "<tool>", "zq",   "<|usr|>"};
    static const struct gguf_str merge[] = {
        {"t h", 3}, {"th e", 4}, {"a a", 3}, {"aa aa", 5}, {"\xc4\xa0 \xc4\xa0", 5}};
    struct gguf_writer *w = gguf_writer_new();
    struct gguf_str s[256 + 10];
    int32_t type[256 + 10];
    uint32_t other = 256;

    for (uint32_t b = 0; b < 256; b++) {
        bool plain = (b > 0x20 && b < 0x7f) || (b > 0xa0 && b != 0xad);
        uint32_t cp = plain ? b : other++;
        size_t n = 0;

        if (cp >= 0x80)
            chars[b][n++] = (char)(0xc0 | cp >> 6);
        chars[b][n++] = (char)(cp >= 0x80 ? 0x80 | (cp & 0x3f) : cp);
        s[b] = (struct gguf_str){chars[b], n};
        type[b] = TOK_NORMAL;
    }
    for (size_t i = 0; i < 10; i++) {
        s[256 + i] = str(more[i]);
        type[256 + i] = i < 5 || i == 8 ? TOK_NORMAL : i == 5 ? TOK_CONTROL : TOK_USER_DEFINED;
    }
    gguf_put_str(w, "general.architecture", "llama");
    gguf_put_str(w, KEY("model"), "gpt2");
    gguf_put_str(w, KEY("pre"), pre);
    gguf_put_strs(w, KEY("tokens"), s, 256 + 10);
    gguf_put_arr(w, KEY("token_type"), GGUF_I32, type, 256 + 10);
    gguf_put_strs(w, KEY("merges"), merge, 5);
    return must_load(w);
}

/* ---- log ---- */

struct log_lines {
    int n;
    char last[512];
};

static void keep_line(void *ctx, enum log_level level, const char *line)
{
    struct log_lines *l = ctx;

    (void)level;
    l->n++;
    snprintf(l->last, sizeof l->last, "%s", line);
}

/* ---- ids ---- */

static void tiny_ids(void **state)
{
    struct loaded l = load_file(tiny_path);
    const char *const texts[2] = {"texts.json", NULL}, *const mixed[2] = {"mixed.json", NULL};

    (void)state;
    check_ids(l.v, tokens_folder, texts, tokens_folder, "tiny.texts.json");
    check_ids(l.v, tokens_folder, mixed, tokens_folder, "tiny.mixed.json");
    unload(&l);
}

/* The prompts, ids and texts of the embedded model's samples. */
static void tiny_samples(void **state)
{
    struct loaded l = load_file(tiny_path);
    struct json j = json_open(tokens_folder, "samples.json");
    struct text prompt = {0}, output = {0}, got = {0};
    int n = 0;

    (void)state;
    json_begin(&j);
    while (json_item(&j)) {
        struct tokens prompt_ids = {0}, output_ids = {0}, ids = {0};
        struct detok d;

        json_begin(&j);
        json_item(&j), json_str(&j, &prompt);
        json_item(&j), json_ints(&j, &prompt_ids);
        json_item(&j), json_ints(&j, &output_ids);
        json_item(&j), json_str(&j, &output);
        assert_false(json_item(&j));

        encode(l.v, prompt.p, prompt.n, ENC_SPECIAL | ENC_BOS, &ids);
        assert_int_equal(ids.n, prompt_ids.n);
        assert_memory_equal(ids.id, prompt_ids.id, ids.n * sizeof *ids.id);

        detok_init(&d, l.v, false);
        if (prompt.p[prompt.n - 1] != '\n')
            detok_resume(
                &d); /* a story goes on; an answer starts a text of its own, after a newline */
        text_clear(&got);
        for (size_t i = 0; i < output_ids.n; i++) {
            assert_int_equal(vocab_is_eog(l.v, output_ids.id[i]), i + 1 == output_ids.n);
            assert_int_equal(detok_add(&d, output_ids.id[i], &got, NULL), ST_OK);
        }
        assert_string_equal(got.p, output.p);
        tokens_release(&prompt_ids);
        tokens_release(&output_ids);
        tokens_release(&ids);
        n++;
    }
    assert_int_equal(n, 10);
    json_close(&j);
    text_release(&prompt);
    text_release(&output);
    text_release(&got);
    unload(&l);
}

/* Every pre-tokenizer rule, and that each of its names loads. */
static void small_ids(void **state)
{
    (void)state;
    for (size_t i = 0; i < pretok_rule_count(); i++) {
        const struct pretok_rule *r = pretok_rule_at(i);
        char name[64];

        snprintf(name, sizeof name, "%s.%s.json", r->raw ? "raw" : "small", r->names[0]);
        for (size_t k = 0; r->names[k]; k++) {
            struct gguf_writer *w = copy_without(r->raw ? raw_path : small_path, NULL);
            struct loaded l;

            gguf_put_str(w, KEY("pre"), r->names[k]);
            l = must_load(w);
            assert_string_equal(vocab_pre(l.v), r->names[k]);
            assert_int_equal(vocab_add_bos(l.v), r->add_bos);
            if (k == 0)
                check_ids(l.v, tokens_folder, all_lists, tokens_folder, name);
            unload(&l);
        }
    }
}

static void expect_json_ids(const struct vocab *v, const struct text *t, struct json *j,
                            const char *name)
{
    struct tokens got = {0}, want = {0};

    json_ints(j, &want);
    encode(v, t->p, t->n, ENC_SPECIAL, &got);
    if (got.n != want.n || memcmp(got.id, want.id, got.n * sizeof *got.id))
        fail_msg("'%s': other ids than llama.cpp", name);
    tokens_release(&got);
    tokens_release(&want);
}

/* The texts of a list, joined by newlines. */
static struct text joined(const char *list)
{
    struct json j = json_open(tokens_folder, list);
    struct text all = {0}, t = {0};

    json_begin(&j);
    while (json_item(&j)) {
        json_str(&j, &t);
        if (all.n)
            text_byte(&all, '\n');
        text_bytes(&all, t.p, t.n);
    }
    json_close(&j);
    text_release(&t);
    return all;
}

/* Names in the table of rules. */
static int n_rule_names(void)
{
    int n = 0;

    for (size_t i = 0; i < pretok_rule_count(); i++)
        for (size_t k = 0; pretok_rule_at(i)->names[k]; k++)
            n++;
    return n;
}

/*
 * Every value of tokenizer.ggml.pre that llama.cpp knows loads here, adds BOS where it does, and cuts
 * texts likewise; there are no others.
 */
static void all_names(void **state)
{
    struct json j = json_open(tokens_folder, "pre.json");
    struct text cuts = joined("cuts.json"), name = {0};
    int n = 0;

    (void)state;
    json_begin(&j);
    for (; json_item(&j); n++) {
        struct gguf_writer *w;
        struct tokens flags = {0};
        struct loaded l;
        struct err e;

        json_begin(&j);
        json_item(&j), json_str(&j, &name);
        json_item(&j), json_ints(&j, &flags);
        json_item(&j);
        w = copy_without(flags.id[1] ? raw_path : small_path, NULL);
        gguf_put_str(w, KEY("pre"), name.p);
        if (load_written(w, &l, &e))
            fail_msg("'%s': %s", name.p, e.msg);
        assert_string_equal(vocab_pre(l.v), name.p);
        assert_int_equal(vocab_add_bos(l.v), flags.id[0]);
        if (!json_null(&j))
            expect_json_ids(l.v, &cuts, &j, name.p);
        assert_false(json_item(&j));
        unload(&l);
        tokens_release(&flags);
    }
    assert_int_equal(n, n_rule_names());
    json_close(&j);
    text_release(&cuts);
    text_release(&name);
}

/* docs/tokenizers.md has one line for each rule, and none of others. */
static void documented_names(void **state)
{
    char path[1200];
    struct text doc = {0}, row = {0};
    FILE *f;
    size_t n_rows = 0;

    (void)state;
    snprintf(path, sizeof path, "%s/docs/tokenizers.md", getenv("GGRUN_SOURCE_DIR"));
    f = fopen(path, "rb");
    assert_non_null(f);
    for (int c; (c = fgetc(f)) != EOF;)
        text_byte(&doc, (char)c);
    fclose(f);
    for (const char *p = strstr(doc.p, "## Pre-tokenizers"); (p = strstr(p, "\n| `")); p++)
        n_rows++;
    assert_int_equal(n_rows, pretok_rule_count());
    for (size_t i = 0; i < n_rows; i++) {
        const struct pretok_rule *r = pretok_rule_at(i);

        text_clear(&row);
        text_str(&row, "\n|");
        for (size_t k = 0; r->names[k]; k++)
            text_addf(&row, "%s `%s`", k ? "," : "", r->names[k]);
        text_addf(&row, " | %s%s%s |\n", r->add_bos ? "adds BOS" : "",
                  r->add_bos && (r->ignore_merges || r->raw) ? ", " : "",
                  r->ignore_merges ? "whole words"
                  : r->raw         ? "pieces"
                                   : "");
        if (!strstr(doc.p, row.p))
            fail_msg("docs/tokenizers.md lacks the line '%s'", row.p + 1);
    }
    text_release(&doc);
    text_release(&row);
}

/* Gemma 4: the model's name is enough, and BOS is added whatever the file says. */
static void gemma4(void **state)
{
    struct log_lines log = {0};
    struct gguf_writer *w = copy_without(raw_path, KEY("pre"));
    struct loaded l;

    (void)state;
    gguf_put_str(w, KEY("model"), "gemma4");
    gguf_put_bool(w, KEY("add_bos_token"), false);
    log_set_sink(keep_line, &log, LOG_WARN);
    l = must_load(w);
    log_set_sink(NULL, NULL, LOG_WARN);
    assert_int_equal(log.n, 1);
    assert_non_null(strstr(log.last, "'tokenizer.ggml.add_bos_token' is false"));
    assert_string_equal(vocab_pre(l.v), "gemma4");
    assert_string_equal(vocab_kind(l.v), "bpe");
    assert_true(vocab_add_bos(l.v));
    check_ids(l.v, tokens_folder, all_lists, tokens_folder, "raw.gemma4.json");
    unload(&l);
}

/* ---- flags and facts ---- */

static void flags(void **state)
{
    struct gguf_writer *w = copy_without(tiny_path, NULL);
    struct loaded l;

    (void)state;
    gguf_put_bool(w, KEY("add_eos_token"), true);
    l = must_load(w);
    assert_true(vocab_add_bos(l.v) && vocab_add_eos(l.v));
    expect_ids(l.v, "", 0, "");
    expect_ids(l.v, "", ENC_BOS, "1");
    expect_ids(l.v, "", ENC_BOS | ENC_EOS, "1 2");
    expect_ids(l.v, "<s>", ENC_BOS | ENC_SPECIAL, "1");
    expect_ids(l.v, "<s></s>", ENC_BOS | ENC_EOS | ENC_SPECIAL, "1 2");
    expect_ids(l.v, "</s><s>", ENC_BOS | ENC_EOS | ENC_SPECIAL, "1 2 1 2");
    expect_ids(l.v, "Once", 0, "696");
    expect_ids(l.v, "Once", ENC_BOS | ENC_EOS, "1 696 2");
    expect_ids(l.v, "<|im_end|>", ENC_SPECIAL, "4");
    assert_int_equal(vocab_find(l.v, "<|im_end|>", 10), 4);
    assert_int_equal(vocab_find(l.v, "<|im_end|", 9), VOCAB_NONE);
    assert_int_equal(vocab_n_tokens(l.v), 1024);
    assert_true(vocab_has_text(l.v));
    assert_string_equal(vocab_kind(l.v), "spm");
    assert_string_equal(vocab_pre(l.v), "default");
    assert_int_equal(vocab_bos(l.v), 1);
    assert_int_equal(vocab_eos(l.v), 2);
    assert_int_equal(vocab_eot(l.v), 4);
    assert_true(vocab_is_eog(l.v, 2) && vocab_is_eog(l.v, 4));
    assert_false(vocab_is_eog(l.v, 1) || vocab_is_eog(l.v, 3) || vocab_is_eog(l.v, -1) ||
                 vocab_is_eog(l.v, 1024));
    assert_int_equal(vocab_type(l.v, 3), TOK_CONTROL);
    assert_int_equal(vocab_type(l.v, 1024), TOK_UNDEFINED);
    unload(&l);
}

/* Some pre-tokenizers take a word that is a token as it is, the others only what merges make. */
static void whole_words(void **state)
{
    struct loaded l = byte_complete("gpt-2");

    (void)state;
    expect_ids(l.v, "zq the", 0, "122 113 32 257");
    unload(&l);
    l = byte_complete("llama-bpe");
    expect_ids(l.v, "zq the", 0, "264 32 257");
    unload(&l);
}

/* Control tokens in a text are letters unless asked for: no id of a control token comes out. */
static void plain_text_makes_no_control_tokens(void **state)
{
    static const char *const texts[] = {"<|im_end|>", "<s>", "</s>", "<unk>", "<|end|>", "<0x41>"};
    struct loaded l[2];

    (void)state;
    l[0] = load_file(tiny_path);
    l[1] = byte_complete("gpt-2");
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
            struct tokens ids = {0};

            encode(l[i].v, texts[k], strlen(texts[k]), 0, &ids);
            for (size_t j = 0; j < ids.n; j++) {
                assert_int_not_equal(vocab_type(l[i].v, ids.id[j]), TOK_CONTROL);
                assert_int_not_equal(vocab_type(l[i].v, ids.id[j]), TOK_UNKNOWN);
            }
            tokens_release(&ids);
            check_round_trip(l[i].v, texts[k], strlen(texts[k]), 0);
        }
    unload(&l[0]);
    unload(&l[1]);
}

/* The end of a turn is known by its piece, whatever the file says about EOS. */
static void end_of_generation(void **state)
{
    struct gguf_writer *w = copy_without(tiny_path, KEY("eot_token_id"));
    struct loaded l;

    (void)state;
    gguf_put_u32(w, KEY("eos_token_id"), 100);
    l = must_load(w);
    assert_int_equal(vocab_eot(l.v), 4);
    assert_true(vocab_is_eog(l.v, 4) && vocab_is_eog(l.v, 100) && vocab_is_eog(l.v, 2));
    unload(&l);

    l = must_load(copy_without(tiny_path, KEY("eos_token_id")));
    assert_int_equal(vocab_eos(l.v), 2); /* </s>, by its piece */
    unload(&l);

    l = byte_complete("gpt-2"); /* no keys at all */
    assert_int_equal(vocab_bos(l.v), VOCAB_NONE);
    assert_int_equal(vocab_eos(l.v), VOCAB_NONE);
    assert_int_equal(vocab_eot(l.v), vocab_find(l.v, "<|end|>", 7));
    assert_false(vocab_add_bos(l.v) || vocab_add_eos(l.v));
    unload(&l);
}

static void decoding(void **state)
{
    struct loaded l = load_file(tiny_path);
    struct text t = {0};
    struct detok d;
    struct err e = {0};
    int32_t hello = vocab_find(l.v, "\xe2\x96\x81the", 6);

    (void)state;
    assert_true(hello >= 0);
    detok_init(&d, l.v, false);
    assert_int_equal(detok_add(&d, 1, &t, &e), ST_OK); /* <s>: hidden, and no start of the text */
    assert_int_equal(detok_add(&d, hello, &t, &e), ST_OK);
    assert_int_equal(detok_add(&d, hello, &t, &e), ST_OK);
    assert_int_equal(detok_add(&d, 4, &t, &e), ST_OK);
    assert_string_equal(t.p, "the the");

    text_clear(&t);
    detok_init(&d, l.v, true);
    detok_resume(&d);
    assert_int_equal(detok_add(&d, hello, &t, &e), ST_OK);
    assert_int_equal(detok_add(&d, 4, &t, &e), ST_OK);
    assert_int_equal(detok_add(&d, hello, &t, &e), ST_OK);
    assert_string_equal(t.p, " the<|im_end|>the");

    assert_int_equal(detok_add(&d, 1024, &t, &e), ST_USAGE);
    assert_string_equal(e.msg, "token id 1024 is outside the vocabulary (0 to 1023)");
    assert_int_equal(detok_add(&d, -1, &t, &e), ST_USAGE);
    text_release(&t);
    unload(&l);
}

/* ---- round trips ---- */

static uint32_t next(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*s >> 33);
}

static void random_text(uint64_t *rnd, struct text *t)
{
    static const char *const bits[] = {"a",
                                       "aaaa",
                                       "the",
                                       " ",
                                       "  ",
                                       "\n",
                                       "\t",
                                       "\xe2\x96\x81",
                                       "\xe2\x96",
                                       "\x81",
                                       "\xf0\x9f\xa6\x99",
                                       "\xf0\x9f",
                                       "\xc3\xa9",
                                       "\xe6\xbc\xa2",
                                       "<|im_end|>",
                                       "<s>",
                                       "<tool>",
                                       "<|end|>",
                                       "<0x0A>",
                                       "\xed\xa0\x80",
                                       "\xc0\x80",
                                       "\xff",
                                       "7",
                                       "."};
    uint32_t n = next(rnd) % 40;

    text_clear(t);
    for (uint32_t i = 0; i < n; i++)
        switch (next(rnd) % 4) {
        case 0:
            text_byte(t, (char)next(rnd));
            break;
        case 1:
            text_bytes(t, "\0\0", 1 + next(rnd) % 2);
            break;
        default:
            text_str(t, bits[next(rnd) % (sizeof bits / sizeof bits[0])]);
        }
}

static void round_trips(void **state)
{
    struct loaded l[4];
    struct text t = {0};
    uint64_t rnd = 4;

    (void)state;
    l[0] = load_file(tiny_path);
    l[1] = byte_complete("gpt-2");
    l[2] = byte_complete("llama-bpe");
    l[3] = load_file(raw_path);
    for (int i = 0; i < 4; i++) {
        for (int b = 0; b < 256; b++) {
            char c = (char)b;

            check_round_trip(l[i].v, &c, 1, 0);
            check_round_trip(l[i].v, &c, 1, ENC_SPECIAL);
        }
        for (int round = 0; round < 3000; round++) {
            random_text(&rnd, &t);
            check_round_trip(l[i].v, t.p ? t.p : "", t.n, 0);
            check_round_trip(l[i].v, t.p ? t.p : "", t.n, ENC_SPECIAL);
        }
        text_clear(&t);
        for (int k = 0; k < 4096; k++)
            text_byte(&t, (char)next(&rnd));
        check_round_trip(l[i].v, t.p, t.n, ENC_SPECIAL);
        unload(&l[i]);
    }
    text_release(&t);
}

/* A byte without a token becomes U+FFFD where that can be written, else the unknown token. */
static void uncovered_bytes(void **state)
{
    struct loaded l = load_file(small_path);
    struct tokens ids = {0};
    struct gguf_str two[] = {{"a", 1}, {"<unk>", 5}};
    int32_t types[] = {TOK_NORMAL, TOK_UNKNOWN};
    struct gguf_writer *w;
    struct err e = {0};

    (void)state;
    encode(l.v, "\xf5", 1, 0, &ids); /* its character is a user-defined token there */
    encode(l.v, "\xef\xbf\xbd", 3, 0, &ids);
    assert_true(ids.n == 6 && memcmp(ids.id, ids.id + 3, 3 * sizeof *ids.id) == 0);
    tokens_release(&ids);
    unload(&l);

    for (int unknown = 0; unknown < 2; unknown++) {
        w = gguf_writer_new();
        gguf_put_str(w, KEY("model"), "gpt2");
        gguf_put_str(w, KEY("pre"), "gpt-2");
        gguf_put_strs(w, KEY("tokens"), two, 2);
        gguf_put_arr(w, KEY("token_type"), GGUF_I32, types, 2);
        gguf_put_strs(w, KEY("merges"), NULL, 0);
        if (unknown)
            gguf_put_u32(w, KEY("unknown_token_id"), 1);
        l = must_load(w);
        if (unknown) {
            expect_ids(l.v, "aba", 0, "0 1 0");
        } else {
            tokens_add(&ids, 77);
            assert_int_equal(vocab_encode(l.v, "aba", 3, 0, &ids, &e), ST_MODEL);
            assert_non_null(strstr(e.msg, "0x62"));
            assert_int_equal(ids.n, 1); /* what was there before is left alone */
            tokens_release(&ids);
        }
        unload(&l);
    }
}

/* ---- long runs ---- */

/* The whole way: 2,000,000 equal characters, 512 KiB of stack, under 5 seconds. */
static void long_runs(void **state)
{
    static const char *const unit[] = {"Q",  ".",  " ", "\xe6\xbc\xa2",
                                       "ab", "\t", "7", "<|im_end|> "};
    const size_t n_bytes = SLOW ? 100000 : 2000000;
    struct rlimit old, small;
    struct text t = {0};

    (void)state;
    getrlimit(RLIMIT_STACK, &old);
    small = old;
    small.rlim_cur = 512 << 10;
    if (!SLOW)
        setrlimit(RLIMIT_STACK, &small);
    for (int i = 0; i < 2; i++) {
        struct loaded l = load_file(i ? small_path : tiny_path);

        for (size_t u = 0; u < sizeof unit / sizeof unit[0]; u++) {
            clock_t start = clock();
            double s;

            text_clear(&t);
            while (t.n < n_bytes)
                text_str(&t, unit[u]);
            check_round_trip(l.v, t.p, t.n, ENC_SPECIAL);
            s = (double)(clock() - start) / CLOCKS_PER_SEC;
            if (s > 5)
                fail_msg("%s, '%s' repeated: %.1f s", vocab_kind(l.v), unit[u], s);
        }
        unload(&l);
    }
    setrlimit(RLIMIT_STACK, &old);
    text_release(&t);
}

/* ---- files that are wrong ---- */

/* A stop asked for before or while a long text is tokenized: soon, with the list as it was. */
static void stops_when_asked(void **state)
{
    static const char *const unit[] = {"a fox and a hen. ", "a"};
    atomic_bool stop = true;
    struct text t = {0};

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct loaded l = load_file(i / 2 ? small_path : tiny_path);
        struct tokens ids = {.cancel = &stop};
        clock_t start;

        text_clear(&t);
        while (t.n < 1000000)
            text_str(&t, unit[i % 2]);
        tokens_add(&ids, 7);
        start = clock();
        assert_int_equal(vocab_encode(l.v, t.p, t.n, ENC_BOS, &ids, NULL), ST_CANCELLED);
        if (!SLOW && clock() - start > CLOCKS_PER_SEC / 2)
            fail_msg("%s: %.2f s", vocab_kind(l.v), (double)(clock() - start) / CLOCKS_PER_SEC);
        assert_int_equal(ids.n, 1);
        atomic_store(&stop, false);
        assert_int_equal(vocab_encode(l.v, t.p, 1000, ENC_BOS, &ids, NULL), ST_OK);
        assert_true(ids.n > 10);
        atomic_store(&stop, true);
        tokens_release(&ids);
        unload(&l);
    }
    text_release(&t);
}

static void wrong_arrays(void **state)
{
    const int32_t i32[3] = {1, 1, 1};
    float *score = mem_array(1024, sizeof *score);
    int32_t *type = mem_array(1024, sizeof *type);
    struct gguf_writer *w;

    (void)state;
    refused(copy_without(tiny_path, KEY("tokens")), ST_MODEL, "'tokenizer.ggml.tokens'",
            "is missing");
    refused(copy_without(tiny_path, KEY("scores")), ST_MODEL, "'tokenizer.ggml.scores'",
            "is missing");
    refused(copy_without(small_path, KEY("merges")), ST_MODEL, "'tokenizer.ggml.merges'",
            "is missing");

    gguf_put_strs(w = copy_without(tiny_path, NULL), KEY("tokens"), NULL, 0);
    refused(w, ST_MODEL, "'tokenizer.ggml.tokens'", "has 0 elements, expected at least 1");
    gguf_put_arr(w = copy_without(tiny_path, NULL), KEY("tokens"), GGUF_I32, i32, 3);
    refused(w, ST_MODEL, "'tokenizer.ggml.tokens'", "not an array of strings");
    gguf_put_str(w = copy_without(tiny_path, NULL), KEY("tokens"), "a");
    refused(w, ST_MODEL, "'tokenizer.ggml.tokens'", "not an array of strings");
    gguf_put_arr(w = copy_without(tiny_path, NULL), KEY("scores"), GGUF_I32, i32, 3);
    refused(w, ST_MODEL, "'tokenizer.ggml.scores'", "has 3 elements, expected 1024");
    gguf_put_arr(w = copy_without(tiny_path, NULL), KEY("token_type"), GGUF_I32, i32, 3);
    refused(w, ST_MODEL, "'tokenizer.ggml.token_type'", "has 3 elements, expected 1024");
    gguf_put_u32(w = copy_without(tiny_path, NULL), KEY("token_type"), 3);
    refused(w, ST_MODEL, "'tokenizer.ggml.token_type'", "not an array of integers");

    score[5] = (float)NAN;
    gguf_put_arr(w = copy_without(tiny_path, NULL), KEY("scores"), GGUF_F32, score, 1024);
    refused(w, ST_MODEL, "'tokenizer.ggml.scores'", "element 5 is not a number");
    type[7] = 9;
    gguf_put_arr(w = copy_without(tiny_path, NULL), KEY("token_type"), GGUF_I32, type, 1024);
    refused(w, ST_MODEL, "'tokenizer.ggml.token_type'", "element 7 is 9");
    type[7] = TOK_NORMAL;
    type[1000] = TOK_BYTE;
    gguf_put_arr(w = copy_without(tiny_path, NULL), KEY("token_type"), GGUF_I32, type, 1024);
    refused(w, ST_MODEL, "'tokenizer.ggml.token_type'", "element 1000");
    mem_free(score);
    mem_free(type);
}

static void wrong_values(void **state)
{
    struct gguf_str merges[] = {{"t h", 3}, {NULL, 0}};
    static const struct {
        struct gguf_str line;
        const char *why;
    } bad[] = {
        {{"th", 2}, "is not two pieces"},
        {{"", 0}, "is not two pieces"},
        {{" ", 1}, "is not two pieces"},
        {{" t", 2}, "is not two pieces"},
        {{"t ", 2}, "is not two pieces"},
        {{"nosuchpiece h", 13}, "joins what is not a token: nosuchpiece"},
        {{"t nosuch\0piece", 14}, "joins what is not a token: nosuch"},
        {{"t h e", 5}, "joins what is not a token: h e"},
    };
    struct gguf_writer *w;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        merges[1] = bad[i].line;
        gguf_put_strs(w = copy_without(small_path, NULL), KEY("merges"), merges, 2);
        refused(w, ST_MODEL, "'tokenizer.ggml.merges': element 1", bad[i].why);
    }
    gguf_put_u32(w = copy_without(tiny_path, NULL), KEY("bos_token_id"), 1024);
    refused(w, ST_MODEL, "'tokenizer.ggml.bos_token_id'",
            "is 1024, but there are only 1024 tokens");
    gguf_put_i32(w = copy_without(tiny_path, NULL), KEY("eos_token_id"), -1);
    refused(w, ST_MODEL, "'tokenizer.ggml.eos_token_id'", "-1");
    gguf_put_str(w = copy_without(tiny_path, NULL), KEY("add_bos_token"), "yes");
    refused(w, ST_MODEL, "'tokenizer.ggml.add_bos_token'", "str");
    gguf_put_u32(w = copy_without(tiny_path, NULL), KEY("model"), 7);
    refused(w, ST_MODEL, "'tokenizer.ggml.model'", "u32");
    gguf_put_str(w = copy_without(small_path, NULL), KEY("pre"), "no such\n");
    refused(w, ST_UNSUPPORTED, "'no such\\n'", "is not known");
}

/* Odd, but usable: a warning at most. */
static void odd_files(void **state)
{
    struct gguf_str s[] = {{"a", 1}, {"", 0}, {"a", 1}, {"b", 1}, {"ab", 2}, {"<|im_end|>", 10}};
    struct gguf_str merge = {"a b", 3};
    int32_t types[] = {1, 1, 1, 1, 1, TOK_USER_DEFINED};
    struct log_lines log = {0};
    struct gguf_writer *w = gguf_writer_new();
    struct text t = {0};
    struct loaded l;
    struct detok d;

    (void)state;
    log_set_sink(keep_line, &log, LOG_WARN);
    gguf_put_str(w, KEY("model"), "gpt2");
    gguf_put_strs(w, KEY("tokens"), s, 6);
    gguf_put_arr(w, KEY("token_type"), GGUF_I32, types, 6);
    gguf_put_strs(w, KEY("merges"), &merge, 1);
    gguf_put_bool(w, KEY("add_space_prefix"),
                  true); /* SmolLM-like files carry it; means nothing here */
    l = must_load(w);
    assert_int_equal(log.n, 2); /* the repeated piece, the missing `pre` */
    assert_non_null(strstr(log.last, "'tokenizer.ggml.pre' is missing"));
    log_set_sink(NULL, NULL, LOG_WARN);

    assert_string_equal(vocab_pre(l.v), "default");
    assert_int_equal(vocab_find(l.v, "a", 1), 0);
    expect_ids(l.v, "aab", 0, "0 4");
    assert_true(vocab_is_eog(l.v, 5));
    detok_init(&d, l.v, false);
    for (int32_t id = 0; id < 6; id++)
        assert_int_equal(detok_add(&d, id, &t, NULL), ST_OK);
    assert_string_equal(t.p, "aabab<|im_end|>");
    text_release(&t);
    unload(&l);
}

static void no_tokenizer(void **state)
{
    struct gguf_writer *w = gguf_writer_new();
    struct tokens ids = {0};
    struct detok d;
    struct loaded l;
    struct err e = {0};

    (void)state;
    gguf_put_str(w, "general.architecture", "llama");
    gguf_put_str(w, KEY("model"), "none");
    gguf_put_u32(w, "llama.vocab_size", 128);
    l = must_load(w);
    assert_false(vocab_has_text(l.v));
    assert_string_equal(vocab_kind(l.v), "none");
    assert_int_equal(vocab_n_tokens(l.v), 128);
    assert_int_equal(vocab_encode(l.v, "a", 1, 0, &ids, &e), ST_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "no tokenizer"));
    detok_init(&d, l.v, false);
    assert_int_equal(detok_add(&d, 1, &(struct text){0}, &e), ST_UNSUPPORTED);
    assert_int_equal(vocab_find(l.v, "a", 1), VOCAB_NONE);
    assert_false(vocab_is_eog(l.v, 1));
    unload(&l);

    l = must_load(gguf_writer_new()); /* an empty file */
    assert_int_equal(vocab_n_tokens(l.v), 0);
    unload(&l);
}

/* ---- failing allocations ---- */

static enum status load_and_use(const struct gguf *g, struct err *e)
{
    struct vocab *v = NULL;
    struct tokens ids = {0};
    struct text t = {0};
    struct detok d;
    enum status st = vocab_load(&v, g, e);

    if (!st)
        st = vocab_encode(v, "the <|im_end|>  one\xff", 20, ENC_SPECIAL | ENC_BOS, &ids, e);
    if (!st)
        detok_init(&d, v, true);
    for (size_t i = 0; !st && i < ids.n; i++)
        st = detok_add(&d, ids.id[i], &t, e);
    tokens_release(&ids);
    text_release(&t);
    vocab_free(v);
    return st;
}

/* ---- texts that hold the words of others ---- */

/* Ids of a text in which [from, to) is plain, as text for comparison. */
static void mixed_ids(const struct vocab *v, const char *s, size_t from, size_t to,
                      struct text *out)
{
    struct text_spans plain = {0};
    struct tokens ids = {0};
    struct err e = {0};

    text_clear(out);
    text_spans_add(&plain, from, to);
    if (vocab_encode_mixed(v, s, strlen(s), &plain, ENC_SPECIAL, &ids, &e))
        fail_msg("%s", e.msg);
    for (size_t i = 0; i < ids.n; i++)
        text_addf(out, "%d ", (int)ids.id[i]);
    tokens_release(&ids);
    text_spans_release(&plain);
}

static bool holds(const struct text *ids, int id)
{
    char word[16];

    snprintf(word, sizeof word, "%d ", id);
    return strstr(ids->p, word) != NULL;
}

/* 261 is control, 262 to 263 user-defined, 265 user-defined and written like a control token. */
static void plain_ranges(void **state)
{
    static const char s[] = "<|end|>a  <tool><|usr|>b<|end|>";
    struct loaded l = byte_complete("gpt-2");
    struct text got = {0}, want = {0};
    size_t n = sizeof s - 1;

    (void)state;
    for (size_t from = 0; from <= n; from++) {
        for (size_t to = from; to <= n; to++) {
            mixed_ids(l.v, s, from, to, &got);
            /* a mark is one token when none of its bytes is plain, wherever the range lies */
            assert_int_equal(holds(&got, 261), from == to || from >= 7 || (to <= n - 7));
            assert_int_equal(holds(&got, 265), from == to || to <= 16 || from >= 23);
            assert_true(holds(&got, 262) && holds(&got, 263));
        }
    }
    /* without marks nothing changes */
    mixed_ids(l.v, "the  aaaa <tool> th", 3, 12, &got);
    mixed_ids(l.v, "the  aaaa <tool> th", 0, 0, &want);
    assert_string_equal(got.p, want.p);
    text_release(&got);
    text_release(&want);
    unload(&l);
}

/* With everything plain, a vocabulary whose special tokens are all control tokens reads a text as
 * without ENC_SPECIAL. */
static void all_plain(void **state)
{
    static const char s[] = "<s> Once <|im_start|>upon</s><|im_end|> a<unk> time<s>";
    struct loaded l = load_file(tiny_path);
    struct text got = {0}, want = {0};
    struct tokens ids = {0};

    (void)state;
    encode(l.v, s, sizeof s - 1, 0, &ids);
    for (size_t i = 0; i < ids.n; i++)
        text_addf(&want, "%d ", (int)ids.id[i]);
    mixed_ids(l.v, s, 0, sizeof s - 1, &got);
    assert_string_equal(got.p, want.p);
    mixed_ids(l.v, s, 0, 0, &got);
    assert_string_not_equal(got.p, want.p);
    tokens_release(&ids);
    text_release(&got);
    text_release(&want);
    unload(&l);
}

static void out_of_memory(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct loaded l = load_file(i ? small_path : tiny_path);
        enum status st = ST_NOMEM;
        uint64_t n = 0;

        while (st) {
            struct err e = {0};

            mem_fail_at(++n);
            st = load_and_use(l.g, &e);
            mem_fail_at(0);
            if (st && (st != ST_NOMEM || !strstr(e.msg, "not enough memory")))
                fail_msg("allocation %llu: %s", (unsigned long long)n, e.msg);
        }
        assert_true(n > 5);
        unload(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny_ids),
        cmocka_unit_test(tiny_samples),
        cmocka_unit_test(small_ids),
        cmocka_unit_test(flags),
        cmocka_unit_test(all_names),
        cmocka_unit_test(documented_names),
        cmocka_unit_test(gemma4),
        cmocka_unit_test(whole_words),
        cmocka_unit_test(plain_text_makes_no_control_tokens),
        cmocka_unit_test(end_of_generation),
        cmocka_unit_test(decoding),
        cmocka_unit_test(round_trips),
        cmocka_unit_test(uncovered_bytes),
        cmocka_unit_test(long_runs),
        cmocka_unit_test(stops_when_asked),
        cmocka_unit_test(wrong_arrays),
        cmocka_unit_test(wrong_values),
        cmocka_unit_test(odd_files),
        cmocka_unit_test(no_tokenizer),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(plain_ranges),
        cmocka_unit_test(all_plain),
    };

    return cmocka_run_group_tests(tests, find_paths, NULL);
}
