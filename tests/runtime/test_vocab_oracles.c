/*
 * Vocabularies of real models against the ids that llama.cpp gives (../shared/oracles beside the
 * checkout, real models from the cache folder). Skips what is not there; all of it missing is a
 * skipped test.
 */
#include "tests/unit.h"

#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "gguf/base/mem.h"
#include "tests/runtime/vocab_util.h"

static const struct {
    const char *ids;   /* name in oracles/tokens */
    const char *vocab; /* file in oracles/vocab, or NULL */
    const char *model; /* file in the cache of real models */
    bool exact;    /* every byte has a token and no special token swallows spaces: round trips are
                   exact */
    bool faithful; /* those of the oracle's texts are */
} oracles[] = {
    {"llama-spm", "ggml-vocab-llama-spm.gguf", NULL, true, true},
    {"phi-3", "ggml-vocab-phi-3.gguf", NULL, false, false},
    {"llama-bpe", "ggml-vocab-llama-bpe.gguf", NULL, true, true},
    {"gpt-2", "ggml-vocab-gpt-2.gguf", NULL, true, true},
    {"qwen2", "ggml-vocab-qwen2.gguf", NULL, true, true},
    {"deepseek-llm", "ggml-vocab-deepseek-llm.gguf", NULL, false, true},
    {"deepseek-coder", "ggml-vocab-deepseek-coder.gguf", NULL, false, true},
    {"falcon", "ggml-vocab-falcon.gguf", NULL, false, true},
    {"mpt", "ggml-vocab-mpt.gguf", NULL, false, true},
    {"refact", "ggml-vocab-refact.gguf", NULL, false, true},
    {"starcoder", "ggml-vocab-starcoder.gguf", NULL, false, true},
    {"bert-bge", "ggml-vocab-bert-bge.gguf", NULL, false, false},
    {"smollm2-135m-q4_1", NULL, "SmolLM2-135M-Instruct.Q4_1.gguf", false, true},
    {"gemma3-270m", NULL, "gemma-3-270m-q4_k_m.gguf", true, true},
};

enum { N_ORACLES = sizeof oracles / sizeof oracles[0] };

static struct text shared, models;

static void find_folders(void)
{
    const char *source = getenv("GGRUN_SOURCE_DIR"), *cache = getenv("GGRUN_MODELS"),
               *home = getenv("HOME");

    text_addf(&shared, "%s/../shared/oracles", source ? source : ".");
    if (cache)
        text_str(&models, cache);
    else
        text_addf(&models, "%s/.cache/ggrun", home ? home : "");
}

/* The vocabulary's file; false when it is not on this machine. */
static bool oracle_path(int i, struct text *path)
{
    text_clear(path);
    if (oracles[i].vocab)
        text_addf(path, "%s/vocab/%s", shared.p, oracles[i].vocab);
    else
        text_addf(path, "%s/%s", models.p, oracles[i].model);
    return access(path->p, R_OK) == 0;
}

static void same_ids(void **state)
{
    static const char *const lists[] = {"texts.json", NULL};
    struct text path = {0}, tokens = {0}, name = {0};

    (void)state;
    text_addf(&tokens, "%s/tokens", shared.p);
    for (int i = 0; i < N_ORACLES; i++) {
        struct loaded l;

        if (!oracle_path(i, &path)) {
            print_message("no '%s'\n", path.p);
            continue;
        }
        l = load_file(path.p);
        text_clear(&name);
        text_addf(&name, "%s.json", oracles[i].ids);
        check_ids(l.v, tokens.p, lists, tokens.p, name.p);
        unload(&l);
    }
    text_release(&path);
    text_release(&tokens);
    text_release(&name);
}

/* The text of the ids has the same ids; where every byte has a token it is the text they came from. */
static void decoded_texts(void **state)
{
    struct text path = {0}, tokens = {0}, t = {0};

    (void)state;
    text_addf(&tokens, "%s/tokens", shared.p);
    for (int i = 0; i < N_ORACLES; i++) {
        struct json texts = json_open(tokens.p, "texts.json");
        struct loaded l;

        if (!oracle_path(i, &path)) {
            json_close(&texts);
            continue;
        }
        l = load_file(path.p);
        json_begin(&texts);
        while (json_item(&texts)) {
            json_str(&texts, &t);
            check_same_again(l.v, t.p ? t.p : "", t.n);
            if (oracles[i].faithful)
                check_round_trip(l.v, t.p ? t.p : "", t.n, ENC_SPECIAL);
        }
        json_close(&texts);
        unload(&l);
    }
    text_release(&path);
    text_release(&tokens);
    text_release(&t);
}

/* Tabs and spaces before a word, single bytes and texts come back as they were. */
static void exact_round_trips(void **state)
{
    struct text path = {0}, t = {0};

    (void)state;
    for (int i = 0; i < N_ORACLES; i++) {
        struct loaded l;

        if (!oracles[i].exact || !oracle_path(i, &path))
            continue;
        l = load_file(path.p);
        for (int b = 0; b < 256; b++) {
            char c = (char)b;

            check_round_trip(l.v, &c, 1, 0);
        }
        for (int n = 1; n <= 40; n++) {
            text_clear(&t);
            for (int k = 0; k < n; k++)
                text_byte(&t, n % 2 ? ' ' : '\t');
            text_str(&t, "word");
            check_round_trip(l.v, t.p, t.n, ENC_SPECIAL);
        }
        unload(&l);
    }
    text_release(&path);
    text_release(&t);
}

/* 2,000,000 equal characters, 512 KiB of stack, under 5 seconds, thousands of special tokens or
 * not. */
static void long_runs(void **state)
{
    static const char *const unit[] = {"Q", ".", " ", "\xe6\xbc\xa2", "ab", "\t", "7"};
    const struct rlimit small = {512 << 10, RLIM_INFINITY};
    struct rlimit old;
    struct text path = {0}, t = {0};

    (void)state;
    getrlimit(RLIMIT_STACK, &old);
    setrlimit(RLIMIT_STACK, &(struct rlimit){small.rlim_cur, old.rlim_max});
    for (int i = N_ORACLES - 2; i < N_ORACLES; i++) {
        struct loaded l;

        if (!oracle_path(i, &path))
            continue;
        l = load_file(path.p);
        for (size_t u = 0; u < sizeof unit / sizeof unit[0]; u++) {
            struct tokens ids = {0};
            clock_t start = clock();
            double s;

            text_clear(&t);
            while (t.n < (SLOW ? 200000 : 2000000))
                text_str(&t, unit[u]);
            encode(l.v, t.p, t.n, ENC_SPECIAL, &ids);
            s = (double)(clock() - start) / CLOCKS_PER_SEC;
            if (s > 5)
                fail_msg("%s, '%s' repeated: %.1f s", oracles[i].ids, unit[u], s);
            assert_true(ids.n > 1000);
            tokens_release(&ids);
        }
        unload(&l);
    }
    setrlimit(RLIMIT_STACK, &old);
    text_release(&path);
    text_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_ids),
        cmocka_unit_test(decoded_texts),
        cmocka_unit_test(exact_round_trips),
        cmocka_unit_test(long_runs),
    };
    int rc;

    find_folders();
    if (access(shared.p, R_OK)) {
        printf("skipped: no '%s'\n", shared.p);
        rc = 77;
    } else {
        rc = cmocka_run_group_tests(tests, NULL, NULL);
    }
    text_release(&shared);
    text_release(&models);
    return rc;
}
