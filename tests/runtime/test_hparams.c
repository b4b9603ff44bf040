/* Keys of a file, one of them changed at a time, against the message that must come. */
#include "tests/unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "gguf/writer.h"
#include "runtime/hparams.h"

#define MISSING 0xffffffffu /* leave the key out */

static void put_base(struct gguf_writer *w, const char *without)
{
    static const struct {
        const char *key;
        uint32_t v;
    } keys[] = {
        {"llama.vocab_size", 128},
        {"llama.context_length", 256},
        {"llama.embedding_length", 64},
        {"llama.block_count", 2},
        {"llama.feed_forward_length", 96},
        {"llama.attention.head_count", 4},
        {"llama.attention.head_count_kv", 2},
    };

    gguf_put_str(w, "general.architecture", "llama");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (!without || strcmp(without, keys[i].key) != 0)
            gguf_put_u32(w, keys[i].key, keys[i].v);
    }
    if (!without || strcmp(without, "llama.attention.layer_norm_rms_epsilon") != 0)
        gguf_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

/* Finish w, read the keys; *e is cleared on success. */
static enum status read_keys(struct gguf_writer *w, struct hparams *hp, struct err *e)
{
    struct gguf *g;
    enum status st;
    void *bytes;
    size_t n;

    assert_int_equal(gguf_write_memory(w, &bytes, &n, e), ST_OK);
    assert_int_equal(gguf_open_memory(&g, bytes, n, "test", e), ST_OK);
    e->msg[0] = 0;
    st = hparams_read(hp, g, "llama", false, e);
    gguf_close(g);
    gguf_writer_free(w);
    mem_free(bytes);
    return st;
}

static struct gguf_writer *writer(const char *without)
{
    struct gguf_writer *w = gguf_writer_new();

    assert_non_null(w);
    put_base(w, without);
    return w;
}

static void test_defaults(void **state)
{
    struct hparams hp;
    struct err e;

    (void)state;
    assert_int_equal(read_keys(writer("llama.attention.head_count_kv"), &hp, &e), ST_OK);
    assert_int_equal(hp.n_vocab, 128);
    assert_int_equal(hp.n_ctx_train, 256);
    assert_int_equal(hp.n_embd, 64);
    assert_int_equal(hp.n_layer, 2);
    assert_int_equal(hp.n_ff, 96);
    assert_int_equal(hp.n_head, 4);
    assert_int_equal(hp.n_head_kv, 4);
    assert_int_equal(hp.n_embd_head_k, 16);
    assert_int_equal(hp.n_embd_head_v, 16);
    assert_int_equal(hp.n_rot, 16);
    assert_true(hp.rope_base == 10000);
    assert_true(hp.rope_scale == 1);
    assert_true(hp.rope_attn_factor == 1);
    assert_true(hp.yarn_ext_factor == 0);
    assert_int_equal(hp.rope_n_ctx_orig, 256);
    assert_int_equal(hp.rope_scaling, ROPE_SCALING_LINEAR);
}

struct u32_row {
    const char *key;
    uint32_t v; /* MISSING: the key is left out */
    enum status st;
    const char *text; /* in the message */
};

static void test_integers(void **state)
{
    static const struct u32_row rows[] = {
        {"llama.context_length", 0, ST_MODEL, "'llama.context_length' is 0, expected 1 to"},
        {"llama.context_length", 0x80000000u, ST_MODEL, "2147483648"},
        {"llama.context_length", MISSING, ST_MODEL, "'llama.context_length' is missing"},
        {"llama.embedding_length", 0, ST_MODEL, "'llama.embedding_length' is 0"},
        {"llama.embedding_length", MISSING, ST_MODEL, "missing"},
        {"llama.embedding_length", 66, ST_MODEL, "divisor of embedding_length 66"},
        {"llama.embedding_length", 0xfffffffeu, ST_MODEL, "4294967294"},
        {"llama.block_count", 0, ST_MODEL, "'llama.block_count' is 0, expected 1 to 1024"},
        {"llama.block_count", 1025, ST_MODEL, "1025"},
        {"llama.block_count", MISSING, ST_MODEL, "missing"},
        {"llama.feed_forward_length", 0, ST_MODEL, "'llama.feed_forward_length' is 0"},
        {"llama.feed_forward_length", MISSING, ST_MODEL, "missing"},
        {"llama.attention.head_count", 0, ST_MODEL,
         "'llama.attention.head_count' is 0, expected 1 to"},
        {"llama.attention.head_count", 3, ST_MODEL,
         "head_count_kv' is 2, expected a divisor of head_count 3"},
        {"llama.attention.head_count", 128, ST_MODEL,
         "'llama.attention.head_count' is 128, expected a divisor"},
        {"llama.attention.head_count", MISSING, ST_MODEL, "missing"},
        {"llama.attention.head_count_kv", 0, ST_MODEL, "'llama.attention.head_count_kv' is 0"},
        {"llama.attention.head_count_kv", 3, ST_MODEL, "'llama.attention.head_count_kv' is 3"},
        {"llama.attention.head_count_kv", 8, ST_MODEL, "'llama.attention.head_count_kv' is 8"},
        {"llama.attention.key_length", 0, ST_MODEL, "'llama.attention.key_length' is 0"},
        {"llama.attention.key_length", 1u << 28, ST_MODEL, "wider than"},
        {"llama.attention.value_length", 0, ST_MODEL, "'llama.attention.value_length' is 0"},
        {"llama.attention.value_length", 24, ST_OK, ""},
        {"llama.rope.dimension_count", 0, ST_MODEL,
         "'llama.rope.dimension_count' is 0, expected 2 to 16"},
        {"llama.rope.dimension_count", 7, ST_MODEL, "is 7, expected an even number"},
        {"llama.rope.dimension_count", 18, ST_MODEL, "is 18, expected 2 to 16"},
        {"llama.rope.dimension_count", 8, ST_OK, ""},
        {"llama.rope.scaling.original_context_length", 0, ST_MODEL, "is 0, expected"},
        {"llama.vocab_size", 0, ST_MODEL, "'llama.vocab_size' is 0"},
        {"llama.vocab_size", MISSING, ST_MODEL, "vocabulary size is not known"},
        {"llama.attention.layer_norm_rms_epsilon", MISSING, ST_MODEL, "missing"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct gguf_writer *w = writer(rows[i].v == MISSING ? rows[i].key : NULL);
        struct hparams hp;
        struct err e;

        if (rows[i].v != MISSING)
            gguf_put_u32(w, rows[i].key, rows[i].v);
        if (read_keys(w, &hp, &e) != rows[i].st || !strstr(e.msg, rows[i].text))
            fail_msg("%s = %u: '%s', expected '%s'", rows[i].key, rows[i].v, e.msg, rows[i].text);
    }
}

static void test_floats(void **state)
{
    static const char *const above_0[] = {
        "llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base",
        "llama.rope.scaling.attn_factor",         "llama.rope.scaling.yarn_beta_fast",
        "llama.rope.scaling.yarn_beta_slow",      "llama.rope.scaling.factor",
    };
    const float bad[] = {0, -1, NAN, INFINITY, -INFINITY};

    (void)state;
    for (size_t i = 0; i < sizeof above_0 / sizeof above_0[0]; i++) {
        for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
            struct gguf_writer *w = writer(NULL);
            struct hparams hp;
            struct err e;

            gguf_put_str(w, "llama.rope.scaling.type", "yarn");
            gguf_put_f32(w, above_0[i], bad[k]);
            if (read_keys(w, &hp, &e) != ST_MODEL || !strstr(e.msg, above_0[i]) ||
                !strstr(e.msg, "expected a"))
                fail_msg("%s = %g: '%s'", above_0[i], (double)bad[k], e.msg);
        }
    }
}

/* A wrong type is said with the key. */
static void test_types(void **state)
{
    static const char *const keys[] = {"llama.context_length", "llama.attention.head_count",
                                       "llama.rope.freq_base", "llama.vocab_size"};

    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct gguf_writer *w = writer(NULL);
        struct hparams hp;
        struct err e;

        gguf_put_str(w, keys[i], "many");
        assert_int_equal(read_keys(w, &hp, &e), ST_MODEL);
        assert_non_null(strstr(e.msg, keys[i]));
    }
}

static enum status with_array(const char *key, uint32_t a, uint32_t b, size_t n, struct hparams *hp,
                              struct err *e)
{
    struct gguf_writer *w = writer(NULL);
    uint32_t v[3] = {a, b, b};

    gguf_put_arr(w, key, GGUF_U32, v, n);
    return read_keys(w, hp, e);
}

static void test_per_layer(void **state)
{
    const char *key = "llama.attention.head_count_kv";
    struct hparams hp;
    struct err e;

    (void)state;
    assert_int_equal(with_array(key, 1, 1, 2, &hp, &e), ST_OK);
    assert_int_equal(hp.n_head_kv, 1);
    assert_int_equal(with_array(key, 1, 2, 2, &hp, &e), ST_OK);
    assert_int_equal(hp.n_head_kv, 2);
    assert_int_equal(hp.layer[0].n_head_kv, 1);
    assert_int_equal(hp.layer[1].n_head_kv, 2);
    assert_int_equal(hp.layer[1].n_head, 4);
    assert_int_equal(with_array(key, 1, 3, 2, &hp, &e), ST_MODEL);
    assert_non_null(strstr(e.msg, "divisor"));
    assert_int_equal(with_array(key, 1, 0, 2, &hp, &e), ST_MODEL);
    assert_int_equal(with_array(key, 1, 1, 3, &hp, &e), ST_MODEL);
    assert_non_null(strstr(e.msg, "one per layer (2)"));
    assert_int_equal(with_array("llama.feed_forward_length", 80, 80, 2, &hp, &e), ST_OK);
    assert_int_equal(hp.n_ff, 80);
}

/* The keys of windows; the period is 6 where the file says nothing. */
static enum status read_window(struct gguf_writer *w, struct hparams *hp, struct err *e)
{
    struct gguf *g;
    enum status st;
    void *bytes;
    size_t n;

    gguf_put_u32(w, "llama.block_count", 12);
    assert_int_equal(gguf_write_memory(w, &bytes, &n, e), ST_OK);
    assert_int_equal(gguf_open_memory(&g, bytes, n, "test", e), ST_OK);
    e->msg[0] = 0;
    st = hparams_read(hp, g, "llama", false, e);
    hp->rope_base_window = 10000;
    hp->softcap_attn = 50;
    if (!st)
        st = hparams_read_window(hp, g, "llama", 6, e);
    if (!st)
        st = hparams_read_softcaps(hp, g, "llama", e);
    gguf_close(g);
    gguf_writer_free(w);
    mem_free(bytes);
    return st;
}

static struct gguf_writer *window_writer(uint32_t n_window)
{
    struct gguf_writer *w = writer("llama.block_count");

    gguf_put_u32(w, "llama.attention.sliding_window", n_window);
    return w;
}

static void test_window_period(void **state)
{
    struct gguf_writer *w;
    struct hparams hp;
    struct err e;

    (void)state;
    assert_int_equal(read_window(window_writer(0), &hp, &e), ST_OK);
    assert_int_equal(hp.n_window, 0);
    for (int il = 0; il < 12; il++)
        assert_false(hp.layer[il].windowed);
    assert_true(hp.rope_base_window == 10000);

    for (uint32_t period = 0; period <= 6; period++) {
        w = window_writer(512);
        if (period < 6)
            gguf_put_u32(w, "llama.attention.sliding_window_pattern", period);
        gguf_put_f32(w, "llama.rope.freq_base_swa", 5000);
        assert_int_equal(read_window(w, &hp, &e), ST_OK);
        assert_int_equal(hp.n_window, 512);
        assert_true(hp.rope_base_window == 5000);
        for (uint32_t il = 0; il < 12; il++)
            assert_int_equal(hp.layer[il].windowed, period == 0 || (il + 1) % period != 0);
    }
}

static void test_window_per_layer(void **state)
{
    const uint8_t rows[13] = {1, 0, 0, 1};
    struct hparams hp;
    struct err e;

    (void)state;
    for (size_t n = 11; n <= 13; n++) {
        struct gguf_writer *w = window_writer(512);

        gguf_put_arr(w, "llama.attention.sliding_window_pattern", GGUF_BOOL, rows, n);
        assert_int_equal(read_window(w, &hp, &e), n == 12 ? ST_OK : ST_MODEL);
        for (size_t il = 0; il < 12 && n == 12; il++)
            assert_int_equal(hp.layer[il].windowed, rows[il]);
        if (n != 12)
            assert_non_null(strstr(e.msg, "expected one boolean per layer (12)"));
    }
}

static void test_softcaps(void **state)
{
    struct gguf_writer *w = window_writer(0);
    struct hparams hp;
    struct err e;

    (void)state;
    gguf_put_f32(w, "llama.final_logit_softcapping", 30);
    assert_int_equal(read_window(w, &hp, &e), ST_OK);
    assert_true(hp.softcap_attn == 50 && hp.softcap_logits == 30);
    w = window_writer(0);
    gguf_put_f32(w, "llama.attn_logit_softcapping", -1);
    assert_int_equal(read_window(w, &hp, &e), ST_MODEL);
    assert_non_null(strstr(e.msg, "'llama.attn_logit_softcapping' is -1, expected"));
}

static void test_scaling(void **state)
{
    struct gguf_writer *w;
    struct hparams hp;
    struct err e;

    (void)state;
    w = writer(NULL);
    gguf_put_f32(w, "llama.rope.scale_linear", 4); /* the name in old files */
    assert_int_equal(read_keys(w, &hp, &e), ST_OK);
    assert_true(hp.rope_scale == 0.25f);

    w = writer(NULL);
    gguf_put_f32(w, "llama.rope.scale_linear", 4);
    gguf_put_f32(w, "llama.rope.scaling.factor", 2); /* the new name wins */
    assert_int_equal(read_keys(w, &hp, &e), ST_OK);
    assert_true(hp.rope_scale == 0.5f);

    w = writer(NULL);
    gguf_put_f32(w, "llama.rope.scaling.factor", 0); /* written where there is no scaling */
    assert_int_equal(read_keys(w, &hp, &e), ST_OK);
    assert_true(hp.rope_scale == 1);

    w = writer(NULL);
    gguf_put_str(w, "llama.rope.scaling.type", "none");
    gguf_put_f32(w, "llama.rope.scaling.factor", 8);
    assert_int_equal(read_keys(w, &hp, &e), ST_OK);
    assert_true(hp.rope_scale == 1);

    w = writer(NULL);
    gguf_put_str(w, "llama.rope.scaling.type", "yarn");
    gguf_put_f32(w, "llama.rope.scaling.factor", 8);
    gguf_put_u32(w, "llama.rope.scaling.original_context_length", 64);
    assert_int_equal(read_keys(w, &hp, &e), ST_OK);
    assert_int_equal(hp.rope_scaling, ROPE_SCALING_YARN);
    assert_true(hp.rope_scale == 0.125f && hp.yarn_ext_factor == 1 && hp.yarn_beta_fast == 32 &&
                hp.yarn_beta_slow == 1);
    assert_int_equal(hp.rope_n_ctx_orig, 64);

    w = writer(NULL);
    gguf_put_str(w, "llama.rope.scaling.type", "yarn");
    gguf_put_f32(w, "llama.rope.freq_base", 1);
    assert_int_equal(read_keys(w, &hp, &e), ST_MODEL);
    assert_non_null(strstr(e.msg, "'llama.rope.freq_base' is 1"));

    w = writer(NULL);
    gguf_put_str(w, "llama.rope.scaling.type", "yar\n");
    assert_int_equal(read_keys(w, &hp, &e), ST_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "'yar\\n', expected none, linear, yarn or longrope"));
}

static enum status with_sections(const int32_t *v, size_t n, struct hparams *hp, struct err *e)
{
    struct gguf_writer *w = writer(NULL);

    gguf_put_arr(w, "llama.rope.dimension_sections", GGUF_I32, v, n);
    return read_keys(w, hp, e);
}

static void test_sections(void **state)
{
    static const int32_t v[] = {4, 3, 1, 0, 0}, low[] = {4, -1}, high[] = {17};
    struct hparams hp;
    struct err e;

    (void)state;
    assert_int_equal(with_sections(v, 4, &hp, &e), ST_OK);
    assert_true(hp.rope_sections[0] == 4 && hp.rope_sections[1] == 3 && hp.rope_sections[2] == 1);
    assert_int_equal(with_sections(v, 0, &hp, &e), ST_OK);
    assert_int_equal(hp.rope_sections[0], 0);
    assert_int_equal(with_sections(v, 5, &hp, &e), ST_MODEL);
    assert_int_equal(with_sections(low, 2, &hp, &e), ST_MODEL);
    assert_non_null(strstr(e.msg, "'llama.rope.dimension_sections' has the element -1"));
    assert_int_equal(with_sections(high, 1, &hp, &e), ST_MODEL);
}

static void test_scales(void **state)
{
    static const char *const names[] = {"embedding_scale", "residual_scale", "logit_scale",
                                        "attention.scale", "attention.temperature_scale"};
    struct hparams hp;
    struct err e;

    (void)state;
    assert_int_equal(read_keys(writer(NULL), &hp, &e), ST_OK);
    assert_true(hp.rope_finetuned && hp.embd_scale == 0 && hp.attn_temp_scale == 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct gguf_writer *w = writer(NULL);
        char key[64];

        snprintf(key, sizeof key, "llama.%s", names[i]);
        gguf_put_f32(w, key, 0.5f);
        assert_int_equal(read_keys(w, &hp, &e), ST_OK);
        assert_true(hp.embd_scale + hp.residual_scale + hp.logit_scale + hp.attn_scale +
                        hp.attn_temp_scale ==
                    0.5f);
        w = writer(NULL);
        gguf_put_f32(w, key, -1);
        assert_int_equal(read_keys(w, &hp, &e), ST_MODEL);
        assert_non_null(strstr(e.msg, names[i]));
    }
}

static void test_vocab_size(void **state)
{
    const struct gguf_str three[3] = {{"a", 1}, {"b", 1}, {"c", 1}};
    const int64_t ne[2] = {4, 77};
    static float embd[4 * 77];
    struct gguf_writer *w;
    struct hparams hp;
    struct err e;

    (void)state;
    w = writer(NULL);
    gguf_put_strs(w, "tokenizer.ggml.tokens", three, 3);
    assert_int_equal(read_keys(w, &hp, &e), ST_MODEL);
    assert_non_null(strstr(e.msg, "'llama.vocab_size' is 128, but 'tokenizer.ggml.tokens' has 3"));

    w = writer("llama.vocab_size");
    gguf_put_strs(w, "tokenizer.ggml.tokens", three, 3);
    assert_int_equal(read_keys(w, &hp, &e), ST_OK);
    assert_int_equal(hp.n_vocab, 3);

    w = writer("llama.vocab_size");
    gguf_put_strs(w, "tokenizer.ggml.tokens", three, 0);
    assert_int_equal(read_keys(w, &hp, &e), ST_MODEL);

    w = writer("llama.vocab_size");
    gguf_put_tensor(w, "token_embd.weight", DT_F32, 2, ne, embd);
    assert_int_equal(read_keys(w, &hp, &e), ST_OK);
    assert_int_equal(hp.n_vocab, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),         cmocka_unit_test(test_integers),
        cmocka_unit_test(test_floats),           cmocka_unit_test(test_types),
        cmocka_unit_test(test_per_layer),        cmocka_unit_test(test_scaling),
        cmocka_unit_test(test_vocab_size),       cmocka_unit_test(test_window_period),
        cmocka_unit_test(test_window_per_layer), cmocka_unit_test(test_softcaps),
        cmocka_unit_test(test_sections),         cmocka_unit_test(test_scales),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
