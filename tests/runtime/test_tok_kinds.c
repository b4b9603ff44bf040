/*
 * WordPiece and Unigram vocabularies: ids of llama.cpp, Viterbi against trying everything, hostile
 * files, failing allocations, long runs; and the kinds that are refused.
 */
#include "tests/unit.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "gguf/base/mem.h"
#include "runtime/tok.h"
#include "runtime/tok_trie.h"
#include "tests/runtime/vocab_util.h"

#define SPACE "\xe2\x96\x81"

static char wpm_path[1024], ugm_path[1024], tokens_folder[1024];
static const char *const all_lists[] = {"texts.json", "mixed.json", "cuts.json", NULL};

static int find_paths(void **state)
{
    const char *data = getenv("GGRUN_TEST_DATA");

    (void)state;
    if (!data) {
        fprintf(stderr, "GGRUN_TEST_DATA must be set\n");
        return -1;
    }
    snprintf(tokens_folder, sizeof tokens_folder, "%s/tokens", data);
    snprintf(wpm_path, sizeof wpm_path, "%s/tokens/wpm.gguf", data);
    snprintf(ugm_path, sizeof ugm_path, "%s/tokens/ugm.gguf", data);
    return 0;
}

/* A small vocabulary; `types` may be NULL (all normal). */
static struct gguf_writer *small(const char *model, const char *const *pieces, const float *scores,
                                 const int32_t *types)
{
    struct gguf_writer *w = gguf_writer_new();
    struct gguf_str s[64];
    size_t n = 0;

    for (; pieces[n]; n++)
        s[n] = str(pieces[n]);
    gguf_put_str(w, KEY("model"), model);
    gguf_put_strs(w, KEY("tokens"), s, n);
    if (scores)
        gguf_put_arr(w, KEY("scores"), GGUF_F32, scores, n);
    if (types)
        gguf_put_arr(w, KEY("token_type"), GGUF_I32, types, n);
    return w;
}

static struct text decoded(const struct vocab *v, const int32_t *id, size_t n, bool special)
{
    struct text t = {0};
    struct detok d;
    struct err e = {0};

    detok_init(&d, v, special);
    for (size_t i = 0; i < n; i++)
        if (detok_add(&d, id[i], &t, &e))
            fail_msg("%s", e.msg);
    return t;
}

/* ---- the trie ---- */

static uint32_t next(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*s >> 33);
}

/* The token that the trie has for p[0..n). */
static int32_t walk(const struct trie *t, const char *p, size_t n)
{
    uint32_t at = TRIE_ROOT;

    for (size_t i = 0; i < n; i++)
        if (!(at = trie_step(t, at, (uint8_t)p[i])))
            return VOCAB_NONE;
    return n ? t->node[at].id : VOCAB_NONE;
}

/* Random pieces, many with long common starts, NULs and twins, against looking at each of them. */
static void trie(void **state)
{
    enum { N = 300 };
    static const char alphabet[] = "ab\0\xff";
    static char bytes[N][24];
    struct gguf_str piece[N];
    uint8_t info[N];
    struct vocab v = {.n_tokens = N, .piece = piece, .info = info};
    struct trie t = {0};
    struct err e = {0};
    uint64_t rnd = 3;

    (void)state;
    for (int i = 0; i < N; i++) {
        size_t n = 1 + next(&rnd) % (i % 3 ? 20 : 3);

        memset(bytes[i], 'a', sizeof bytes[i]);
        for (size_t k = i % 3 ? 6 : 0; k < n; k++)
            bytes[i][k] = alphabet[next(&rnd) % 4];
        piece[i] = (struct gguf_str){bytes[i], n};
        info[i] = i % 17 ? TOK_NORMAL : TOK_CONTROL;
    }
    assert_int_equal(trie_init(&t, &v, &e), ST_OK);
    for (int i = 0; i < N; i++)
        for (size_t n = 0; n <= piece[i].n; n++) {
            int32_t want = VOCAB_NONE;

            for (int k = N - 1; k >= 0; k--)
                if (info[k] == TOK_NORMAL && piece[k].n == n &&
                    memcmp(piece[k].p, piece[i].p, n) == 0)
                    want = k;
            assert_int_equal(walk(&t, piece[i].p, n), want);
        }
    trie_release(&t);
}

/* ---- WordPiece ---- */

static void wpm_ids(void **state)
{
    struct loaded l = load_file(wpm_path);

    (void)state;
    assert_string_equal(vocab_kind(l.v), "wpm");
    check_ids(l.v, tokens_folder, all_lists, tokens_folder, "wpm.json");
    assert_int_equal(vocab_bos(l.v), 2); /* cls_token_id */
    assert_int_equal(vocab_eos(l.v), 3); /* seperator_token_id */
    unload(&l);
}

static const char *const wpm_pieces[] = {"[UNK]",
                                         "[CLS]",
                                         "[SEP]",
                                         SPACE "a",
                                         "b",
                                         "bc",
                                         SPACE "Ab",
                                         SPACE "\xc3\xa9",
                                         SPACE "e",
                                         SPACE ".",
                                         SPACE "\xe6\xbc\xa2",
                                         SPACE "x",
                                         "\xc3\xa9",
                                         SPACE "ab",
                                         NULL};
static const int32_t wpm_types[] = {TOK_UNKNOWN, TOK_CONTROL, TOK_CONTROL, 1, 1, 1, 1,
                                    1,           1,           1,           1, 1, 1, 1};

static void wpm_rules(void **state)
{
    struct gguf_writer *w = small("bert", wpm_pieces, NULL, wpm_types);
    struct loaded l = must_load(w);
    struct text t;

    (void)state;
    expect_ids(l.v, "abbc abc", 0, "13 5 0"); /* the longest piece first, without going back */
    expect_ids(l.v, "AbB\t A.a", 0, "13 4 3 9 3");
    expect_ids(l.v,
               "\xc3\xa9 e\xcc\x81 a\xe6\xbc\xa2"
               "a",
               0, "8 8 3 10 3");
    expect_ids(l.v,
               "a\x01\xe2\x80\x8b"
               "b\xff\xef\xbf\xbd.",
               0, "13 9"); /* dropped */
    expect_ids(l.v, "zzz a", 0, "0 3");
    expect_ids(l.v, "  ", 0, "");
    expect_ids(l.v, "a", ENC_BOS | ENC_EOS, "1 3 2");
    expect_ids(l.v, "[CLS]a[SEP]", ENC_SPECIAL | ENC_BOS | ENC_EOS, "1 3 2"); /* never twice */
    t = decoded(l.v, (const int32_t[]){1, 13, 5, 9, 2}, 5, false);
    assert_string_equal(t.p, "abbc .");
    text_release(&t);
    unload(&l);

    gguf_put_bool(w = small("bert", wpm_pieces, NULL, wpm_types), KEY("normalizer.lowercase"),
                  false);
    l = must_load(w); /* accents stay too, unless told otherwise */
    expect_ids(l.v, "Ab ab \xc3\xa9 x\xc3\xa9", 0, "6 13 7 11 12");
    unload(&l);
    gguf_put_bool(w = small("bert", wpm_pieces, NULL, wpm_types), KEY("normalizer.lowercase"),
                  false);
    gguf_put_bool(w, KEY("normalizer.strip_accents"), true);
    l = must_load(w);
    expect_ids(l.v, "Ab \xc3\xa9", 0, "6 8");
    unload(&l);

    l = must_load(small("bert", wpm_pieces + 3, NULL, NULL)); /* no unknown token */
    {
        struct tokens ids = {0};
        struct err e = {0};

        assert_int_equal(vocab_encode(l.v, "a zz", 4, 0, &ids, &e), ST_MODEL);
        assert_non_null(strstr(e.msg, "no unknown token"));
        assert_int_equal(ids.n, 0);
        tokens_release(&ids);
    }
    unload(&l);
}

/* ---- Unigram ---- */

static void ugm_ids(void **state)
{
    struct loaded l = load_file(ugm_path);
    struct gguf_writer *w;

    (void)state;
    assert_string_equal(vocab_kind(l.v), "ugm");
    assert_false(vocab_add_bos(l.v));
    assert_true(vocab_add_eos(l.v));
    check_ids(l.v, tokens_folder, all_lists, tokens_folder, "ugm.json");
    unload(&l);
    w = copy_without(ugm_path, KEY("add_space_prefix")); /* no key: no space */
    gguf_put_bool(w, KEY("remove_extra_whitespaces"), false);
    l = must_load(w);
    check_ids(l.v, tokens_folder, all_lists, tokens_folder, "ugm.plain.json");
    unload(&l);
}

static const char *const ugm_pieces[] = {"a", "b", "ab", "ba", "aab", "bbb", "abba", "<unk>", NULL};
enum { UGM_N = 8, UGM_UNK = 7 };

/* The best sum over all ways to write p[0..n), each way tried; -10 below the worst for a 'c'. */
static double best_sum(const float *score, double unknown, const char *p, size_t n)
{
    double best = n ? -INFINITY : 0;

    for (int i = 0; i < UGM_UNK; i++) {
        size_t len = strlen(ugm_pieces[i]);
        double s;

        if (len > n || memcmp(p, ugm_pieces[i], len) != 0)
            continue;
        s = score[i] + best_sum(score, unknown, p + len, n - len);
        best = s > best ? s : best;
    }
    if (n && *p == 'c') {
        double s = unknown + best_sum(score, unknown, p + 1, n - 1);

        best = s > best ? s : best;
    }
    return best;
}

/* The sum of the ids that were chosen; each unknown token stands for a run of 'c'. */
static double sum_of(const float *score, double unknown, const struct tokens *ids, const char *p)
{
    double s = 0;

    for (size_t i = 0; i < ids->n; i++) {
        if (ids->id[i] != UGM_UNK) {
            const char *piece = ugm_pieces[ids->id[i]];

            assert_memory_equal(p, piece, strlen(piece));
            p += strlen(piece);
            s += score[ids->id[i]];
            continue;
        }
        assert_int_equal(*p, 'c');
        for (; *p == 'c'; p++)
            s += unknown;
    }
    assert_int_equal(*p, 0);
    return s;
}

static void best_of_all_ways(void **state)
{
    const int32_t types[] = {1, 1, 1, 1, 1, 1, 1, TOK_UNKNOWN};
    uint64_t rnd = 11;

    (void)state;
    for (int round = 0; round < 40; round++) {
        float score[UGM_N] = {0}, worst = 0;
        struct loaded l;

        for (int i = 0; i < UGM_UNK; i++) {
            score[i] = -(float)(1 + next(&rnd) % 64) / 8;
            worst = score[i] < worst ? score[i] : worst;
        }
        l = must_load(small("t5", ugm_pieces, score, types));
        for (int k = 0; k < 40; k++) {
            char t[16] = {0};
            struct tokens ids = {0};
            size_t n = 1 + next(&rnd) % 12;

            for (size_t i = 0; i < n; i++)
                t[i] = "aabbc"[next(&rnd) % 5];
            encode(l.v, t, n, 0, &ids);
            if (sum_of(score, worst - 10, &ids, t) != best_sum(score, worst - 10, t, n))
                fail_msg("'%s': not the best way", t);
            tokens_release(&ids);
        }
        unload(&l);
    }
}

/* User-defined tokens are whole, and free within a normalised text. */
static void user_defined(void **state)
{
    static const char *const pieces[] = {"<unk>",       "a",   "b",   "ab",
                                         "x" SPACE "y", "<t>", SPACE, NULL};
    const float score[] = {0, -1, -1, -1.5f, -50, -90, -3};
    const int32_t types[] = {TOK_UNKNOWN, 1, 1, 1, TOK_USER_DEFINED, TOK_USER_DEFINED, 1};
    struct gguf_writer *w = small("t5", pieces, score, types);
    struct loaded l;
    struct text t;

    (void)state;
    gguf_put_bool(w, KEY("add_space_prefix"), true);
    l = must_load(w);
    expect_ids(l.v, "ab<t>ab", 0, "6 3 5 6 3");
    expect_ids(l.v, "x y", 0, "6 4");
    expect_ids(l.v, "azzqb", 0, "6 1 0 2"); /* neighbouring unknown ones are one */
    t = decoded(l.v, (const int32_t[]){6, 3, 6, 1}, 4, false);
    assert_string_equal(t.p, "ab a");
    text_release(&t);
    unload(&l);
}

/* The mask token of these encoders swallows the white space in front of it. */
static void mask_tokens(void **state)
{
    static const char *const pieces[] = {"<unk>", "a", SPACE, "<mask>", "[MASK]", NULL};
    static const struct {
        const char *arch, *name, *want;
    } models[] = {{"t5", "t5", "1 2 2 3 2 1 2 4"},
                  {"nomic-bert-moe", "x", "1 3 2 1 2 4"},
                  {"jina-bert-v3", "modern-bert", "1 3 2 1 2 4"},
                  {"bert", "My-Modern-BERT", "1 2 2 3 2 1 4"}};
    const float score[5] = {0, -1, -1};
    const int32_t types[] = {TOK_UNKNOWN, 1, 1, TOK_CONTROL, TOK_CONTROL};

    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct gguf_writer *w = small("t5", pieces, score, types);
        struct loaded l;

        gguf_put_str(w, "general.architecture", models[i].arch);
        gguf_put_str(w, "general.name", models[i].name);
        l = must_load(w);
        expect_ids(l.v, "a  <mask> a [MASK]", ENC_SPECIAL, models[i].want);
        unload(&l);
    }
}

/* ---- files that are wrong ---- */

static void put_map(struct gguf_writer *w, const uint32_t *unit, size_t n, const char *text,
                    size_t n_text)
{
    unsigned char b[2048];
    uint32_t n_bytes = (uint32_t)(4 * n);

    for (size_t i = 0; i <= n; i++)
        for (int k = 0; k < 4; k++)
            b[4 * i + k] = (unsigned char)((i ? unit[i - 1] : n_bytes) >> 8 * k);
    memcpy(b + 4 + 4 * n, text, n_text);
    gguf_put_arr(w, KEY("precompiled_charsmap"), GGUF_U8, b, 4 + 4 * n + n_text);
}

static void encode_fails(struct gguf_writer *w, const char *text, size_t n, const char *part)
{
    struct loaded l = must_load(w);
    struct tokens ids = {0};
    struct err e = {0};

    assert_int_equal(vocab_encode(l.v, text, n, 0, &ids, &e), ST_MODEL);
    if (!strstr(e.msg, "'tokenizer.ggml.precompiled_charsmap'") || !strstr(e.msg, part))
        fail_msg("message '%s', expected '%s'", e.msg, part);
    assert_int_equal(ids.n, 0);
    tokens_release(&ids);
    unload(&l);
}

static void broken_maps(void **state)
{
    const char *key = "'tokenizer.ggml.precompiled_charsmap'";
    unsigned char few[3] = {0}, bytes[16] = {0};
    uint32_t unit[256] = {0};
    char as[2000];
    struct gguf_writer *w;

    (void)state;
    memset(as, 'a', sizeof as);
    gguf_put_arr(w = copy_without(ugm_path, NULL), KEY("precompiled_charsmap"), GGUF_U8, few, 3);
    refused(w, ST_MODEL, key, "has 3 bytes, too few");
    gguf_put_arr(w = copy_without(ugm_path, NULL), KEY("precompiled_charsmap"), GGUF_U8, bytes, 16);
    refused(w, ST_MODEL, key, "an array of 0 bytes");
    bytes[0] = 12; /* no byte is left */
    gguf_put_arr(w = copy_without(ugm_path, NULL), KEY("precompiled_charsmap"), GGUF_U8, bytes, 16);
    refused(w, ST_MODEL, key, "do not fit into 16 bytes");
    memset(bytes, 0xff, 4);
    gguf_put_arr(w = copy_without(ugm_path, NULL), KEY("precompiled_charsmap"), GGUF_U8, bytes, 16);
    refused(w, ST_MODEL, key, "do not fit into 16 bytes");
    put_map(w = copy_without(ugm_path, NULL), unit, 4, "x", 1);
    refused(w, ST_MODEL, key, "does not end");
    gguf_put_str(w = copy_without(ugm_path, NULL), KEY("precompiled_charsmap"), "no");
    refused(w, ST_MODEL, key, "a single str");
    gguf_put_arr(w = copy_without(ugm_path, NULL), KEY("precompiled_charsmap"), GGUF_I32, unit, 4);
    refused(w, ST_MODEL, key, "an array of i32");

    put_map(w = copy_without(ugm_path, NULL), unit, 16, "", 1); /* 'a' is outside */
    encode_fails(w, "a", 1, "out of itself");
    unit[0 ^ 'a'] = 'a' | 0x100 | 0x1ffffeu << 10;
    put_map(w = copy_without(ugm_path, NULL), unit, 256, "", 1); /* its value is */
    encode_fails(w, "a", 1, "out of itself");
    unit['a'] = 'a' | 0x100 | ('a' ^ 0x10) << 10;
    unit[0x10] = 0x80000000u | 7;
    put_map(w = copy_without(ugm_path, NULL), unit, 256, "abc", 4); /* the value is */
    encode_fails(w, "a", 1, "out of the replacements");
    unit['a'] = 'a' | 'a' << 10; /* 'a' is its own child */
    put_map(w = copy_without(ugm_path, NULL), unit, 256, "abc", 4);
    encode_fails(w, as, sizeof as, "does not end");
}

static void hostile_vocabularies(void **state)
{
    const float nan_score[UGM_N] = {0, NAN}, inf_score[UGM_N] = {0, 0, -INFINITY}, ok[UGM_N] = {0};
    const char *long_pieces[] = {"a", NULL, NULL};
    char *piece = mem_zalloc(5001);
    struct gguf_writer *w;

    (void)state;
    memset(piece, 'x', 5000);
    long_pieces[1] = piece;
    refused(small("t5", long_pieces, ok, NULL), ST_UNSUPPORTED, "token 1 has 5000 bytes",
            "at most 4096");
    refused(small("bert", long_pieces, NULL, NULL), ST_UNSUPPORTED, "token 1 has 5000 bytes",
            "at most 4096");
    refused(small("t5", ugm_pieces, nan_score, NULL), ST_MODEL, "'tokenizer.ggml.scores'",
            "element 1 is not a finite number");
    refused(small("t5", ugm_pieces, inf_score, NULL), ST_MODEL, "'tokenizer.ggml.scores'",
            "element 2 is not a finite number");
    refused(small("t5", ugm_pieces, NULL, NULL), ST_MODEL, "'tokenizer.ggml.scores'", "is missing");
    gguf_put_arr(w = small("t5", ugm_pieces, NULL, NULL), KEY("scores"), GGUF_F32, ok, 3);
    refused(w, ST_MODEL, "'tokenizer.ggml.scores'", "has 3 elements, expected 8");
    gguf_put_str(w = small("bert", wpm_pieces, NULL, NULL), KEY("normalizer.lowercase"), "yes");
    refused(w, ST_MODEL, "'tokenizer.ggml.normalizer.lowercase'", "str");
    gguf_put_u32(w = small("bert", wpm_pieces, NULL, NULL), KEY("cls_token_id"), 99);
    refused(w, ST_MODEL, "'tokenizer.ggml.cls_token_id'", "is 99, but there are only 14 tokens");
    mem_free(piece);
}

/* Kinds that llama.cpp has and we do not. */
static void refused_kinds(void **state)
{
    static const char *const models[] = {"rwkv", "plamo2", "hybriddna", "whitespace",
                                         "test", "",       "BERT"};

    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char quoted[32];

        snprintf(quoted, sizeof quoted, "tokenizer '%s'", models[i]);
        refused(small(models[i], wpm_pieces, NULL, NULL), ST_UNSUPPORTED, quoted,
                "known are 'llama', 'gpt2', 'gemma4', 'bert', 't5', 'none'");
    }
}

/* ---- any text ---- */

/* Any bytes become ids, and what these say becomes the same ids again. */
static void random_texts(void **state)
{
    static const char *const bits[] = {"a",
                                       "The ",
                                       " ",
                                       "  ",
                                       "\n",
                                       SPACE,
                                       "\xe2\x96",
                                       "\xf0\x9f\xa6\x99",
                                       "\xc3\xa9",
                                       "\xe6\xbc\xa2",
                                       "[CLS]",
                                       "<tool>",
                                       "</s>",
                                       "\xed\xa0\x80",
                                       "\xff",
                                       "7",
                                       ".",
                                       "\xed\x95\x9c",
                                       "\xef\xac\x81",
                                       "\xc2\xbd"};
    uint64_t rnd = 5;
    struct text t = {0};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct loaded l = load_file(i ? ugm_path : wpm_path);

        for (int round = 0; round < 2000; round++) {
            struct tokens a = {0}, b = {0};
            struct text back;

            text_clear(&t);
            for (uint32_t k = next(&rnd) % 30; k > 0; k--)
                if (next(&rnd) % 4)
                    text_str(&t, bits[next(&rnd) % (sizeof bits / sizeof bits[0])]);
                else
                    text_byte(&t, (char)next(&rnd));
            encode(l.v, t.p ? t.p : "", t.n, 0, &a);
            back = decoded(l.v, a.id, a.n, false);
            encode(l.v, back.p ? back.p : "", back.n, 0, &b);
            if (i == 0) { /* unknown words are not written, so they are not there again */
                size_t n = 0;

                for (size_t k = 0; k < a.n; k++)
                    if (a.id[k] != 1)
                        a.id[n++] = a.id[k];
                assert_int_equal(n, b.n);
                assert_memory_equal(a.id, b.id, n * sizeof *a.id);
            }
            tokens_release(&a);
            tokens_release(&b);
            text_release(&back);
        }
        unload(&l);
    }
    text_release(&t);
}

/* 2,000,000 equal characters on a stack of 512 KiB, in time. */
static void long_runs(void **state)
{
    static const char *const unit[] = {
        "Q", ".", " ", "\xe6\xbc\xa2", "ab", "\t", "7", "\xed\x95\x9c", "a ", "<tool>"};
    const size_t n_bytes = SLOW ? 100000 : 2000000;
    struct rlimit old, low;
    struct text t = {0};

    (void)state;
    getrlimit(RLIMIT_STACK, &old);
    low = old;
    low.rlim_cur = 512 << 10;
    if (!SLOW)
        setrlimit(RLIMIT_STACK, &low);
    for (int i = 0; i < 2; i++) {
        struct loaded l = load_file(i ? ugm_path : wpm_path);

        for (size_t u = 0; u < sizeof unit / sizeof unit[0]; u++) {
            struct tokens ids = {0};
            clock_t start = clock();
            double s;

            text_clear(&t);
            while (t.n < n_bytes)
                text_str(&t, unit[u]);
            encode(l.v, t.p, t.n, ENC_SPECIAL, &ids);
            s = (double)(clock() - start) / CLOCKS_PER_SEC;
            if (s > 5)
                fail_msg("%s, '%s' repeated: %.1f s", vocab_kind(l.v), unit[u], s);
            tokens_release(&ids);
        }
        unload(&l);
    }
    setrlimit(RLIMIT_STACK, &old);
    text_release(&t);
}

static void stops_when_asked(void **state)
{
    atomic_bool stop = true;
    struct text t = {0};

    (void)state;
    while (t.n < 1000000)
        text_str(&t, "a fox and a hen. ");
    for (int i = 0; i < 2; i++) {
        struct loaded l = load_file(i ? ugm_path : wpm_path);
        struct tokens ids = {.cancel = &stop};

        assert_int_equal(vocab_encode(l.v, t.p, t.n, 0, &ids, NULL), ST_CANCELLED);
        assert_int_equal(ids.n, 0);
        tokens_release(&ids);
        unload(&l);
    }
    text_release(&t);
}

static enum status load_and_use(const struct gguf *g, struct err *e)
{
    struct vocab *v = NULL;
    struct tokens ids = {0};
    enum status st = vocab_load(&v, g, e);

    if (!st)
        st = vocab_encode(v, "the [CLS]  one\xff", 15, ENC_SPECIAL | ENC_BOS, &ids, e);
    tokens_release(&ids);
    vocab_free(v);
    return st;
}

static void out_of_memory(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct loaded l = load_file(i ? ugm_path : wpm_path);
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
        cmocka_unit_test(trie),
        cmocka_unit_test(wpm_ids),
        cmocka_unit_test(wpm_rules),
        cmocka_unit_test(ugm_ids),
        cmocka_unit_test(best_of_all_ways),
        cmocka_unit_test(user_defined),
        cmocka_unit_test(mask_tokens),
        cmocka_unit_test(broken_maps),
        cmocka_unit_test(hostile_vocabularies),
        cmocka_unit_test(refused_kinds),
        cmocka_unit_test(random_texts),
        cmocka_unit_test(long_runs),
        cmocka_unit_test(stops_when_asked),
        cmocka_unit_test(out_of_memory),
    };

    return cmocka_run_group_tests(tests, find_paths, NULL);
}
