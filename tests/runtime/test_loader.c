/* Loading: a random tiny model, and everything that can be wrong with its tensors. */
#include "tests/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/base/log.h"
#include "gguf/base/mem.h"
#include "runtime/arch.h"
#include "tests/runtime/tiny_model.h"

/* ---- log lines are kept ---- */

static char logged[8192];

static void keep(void *ctx, enum log_level level, const char *line)
{
    size_t n = strlen(logged);

    (void)ctx;
    (void)level;
    snprintf(logged + n, sizeof logged - n, "%s\n", line);
}

static int setup(void **state)
{
    (void)state;
    logged[0] = 0;
    log_set_sink(keep, NULL, LOG_WARN);
    return 0;
}

/* ---- one change to one tensor ---- */

struct change {
    const char *name;
    bool skip;
    enum dtype type; /* when not 0 */
    int n_dims;      /* when not 0, with ne */
    int64_t ne[4];
    float value; /* when not 0: into element `at` */
    int at;
};

static void change_tensor(void *ctx, struct tiny_tensor *t)
{
    const struct change *c = ctx;

    if (strcmp(t->name, c->name) != 0)
        return;
    t->skip = c->skip;
    if (c->type)
        t->type = c->type;
    if (c->n_dims) {
        t->n_dims = c->n_dims;
        memcpy(t->ne, c->ne, sizeof t->ne);
    }
    if (c->value != 0)
        t->x[c->at] = c->value;
}

static enum status load(const struct change *c, bool check_tensors, enum dtype type, struct err *e)
{
    struct tiny_options o = {.seed = 1,
                             .type = type,
                             .n_embd = 256,
                             .n_ff = 256,
                             .tensor = change_tensor,
                             .ctx = (void *)c};
    struct device_options dopt = {.n_threads = 1};
    struct devices devs;
    struct model_options mo = {.devs = &devs, .check_tensors = check_tensors};
    struct model *m = NULL;
    struct gguf *g;
    enum status st;
    void *bytes;
    size_t n;

    assert_int_equal(tiny_write(&o, &bytes, &n, e), ST_OK);
    assert_int_equal(devices_open(&devs, &dopt, e), ST_OK);
    assert_int_equal(gguf_open_memory(&g, bytes, n, "tiny", e), ST_OK);
    e->msg[0] = 0;
    st = model_load(&m, g, &mo, e);
    assert_true((st == ST_OK) == (m != NULL));
    model_free(m);
    devices_close(&devs);
    mem_free(bytes);
    return st;
}

static void test_loads(void **state)
{
    struct tiny_options o = {.seed = 3, .optionals = true};
    uint64_t n_bytes = 0, n_params = 0;
    struct tiny t;
    struct err e;

    (void)state;
    assert_int_equal(tiny_load(&t, &o, &e), ST_OK);
    for (size_t i = 0; i < t.m->file->n_tensors; i++) {
        const struct gguf_tensor *gt = &t.m->file->tensors[i];
        bool found = false;

        n_bytes += gt->n_bytes;
        n_params += gt->n_bytes / 4;
        for (int k = 0; k < t.m->n_weights; k++) {
            const struct tensor *w = t.m->weights[k];

            if (!w || strcmp(w->name, gt->name) != 0)
                continue;
            assert_false(found);
            found = true;
            assert_ptr_equal(w->data, gt->data); /* used where it is */
            assert_memory_equal(w->ne, gt->ne, sizeof w->ne);
            assert_int_equal(w->type, gt->type);
            assert_int_equal(w->buffer->usage, USAGE_WEIGHTS);
            assert_true(w->buffer->borrowed);
            assert_true((char *)w->data >= (char *)w->buffer->base &&
                        (char *)w->data + gt->n_bytes <= (char *)w->buffer->base + w->buffer->size);
        }
        assert_true(found);
    }
    assert_int_equal(t.m->n_weight_bytes, n_bytes);
    assert_int_equal(t.m->n_params, n_params);
    assert_string_equal(logged, "");
    tiny_release(&t);
}

/*
 * The tables themselves: a pointer of the two structs has at most one row (none: a part of a block that
 * the architecture lacks), and "%d" means one per layer.
 */
static void test_tables(void **state)
{
    (void)state;
    for (int i = 0; arch_name(i); i++) {
        const struct arch *a = arch_find(arch_name(i), strlen(arch_name(i)));
        int seen[2][256] = {0};

        for (int k = 0; k < a->n_tensors; k++) {
            const struct arch_tensor *t = &a->tensors[k];
            bool per_layer = strstr(t->name, "%d") != NULL;

            assert_int_equal(arch_per_layer(t), per_layer);
            assert_in_range(t->slot, 0, (per_layer ? a->n_layer : a->n_globals) - 1);
            assert_int_equal(seen[per_layer][t->slot]++, 0);
        }
        assert_in_range(a->n_tensors, 1, a->n_globals + a->n_layer);
    }
}

static void test_tied(void **state)
{
    struct tiny_options o = {.seed = 3, .tied = true};
    struct tiny t;
    struct err e;
    int n = 0;

    (void)state;
    assert_int_equal(tiny_load(&t, &o, &e), ST_OK);
    for (int k = 0; k < t.m->n_weights; k++)
        n += t.m->weights[k] && strcmp(t.m->weights[k]->name, "token_embd.weight") == 0;
    assert_int_equal(n, 2);
    for (int k = 1; k < t.m->arch->n_globals; k++) { /* both slots hold one tensor */
        if (t.m->weights[k] && strcmp(t.m->weights[k]->name, "token_embd.weight") == 0)
            assert_ptr_equal(t.m->weights[k], t.m->weights[0]);
    }
    assert_int_equal(t.m->n_weight_bytes, 4 * t.m->n_params); /* counted once */
    tiny_release(&t);
}

/* Each required tensor left out: named, with its layer. */
static void test_missing(void **state)
{
    const struct arch *a = arch_find("llama", 5);
    int n = 0;

    (void)state;
    for (int i = 0; i < a->n_tensors; i++) {
        char name[TENSOR_NAME];
        struct change c = {.name = name, .skip = true};
        struct err e;

        if (a->tensors[i].optional || a->tensors[i].layers == EXPERT_LAYERS)
            continue;
        arch_tensor_name(a->tensors[i].name, 1, name);
        assert_int_equal(load(&c, false, DT_F32, &e), ST_MODEL);
        assert_non_null(strstr(e.msg, name));
        assert_non_null(strstr(e.msg, "missing"));
        if (strstr(name, "blk."))
            assert_non_null(strstr(e.msg, "layer 1 of 2"));
        n++;
    }
    assert_int_equal(n, 11);
}

static void add_extra(void *ctx, struct tiny_tensor *t)
{
    (void)ctx;
    if (strcmp(t->name, "blk.1.attn_q.bias") == 0)
        strcpy(t->name, "foo.bar.weight");
}

static void test_extra(void **state)
{
    struct tiny_options o = {.seed = 1, .optionals = true, .tensor = add_extra};
    struct tiny t;
    struct err e;

    (void)state;
    assert_int_equal(tiny_load(&t, &o, &e), ST_OK);
    assert_string_equal(logged, "tensor 'foo.bar.weight' is not used by architecture 'llama'\n");
    tiny_release(&t);
}

static void test_shapes(void **state)
{
    static const struct {
        struct change c;
        const char *text;
    } rows[] = {
        {{"blk.0.attn_q.weight", .n_dims = 2, .ne = {256, 255, 1, 1}},
         "tensor 'blk.0.attn_q.weight' has shape [256, 255], expected [256, 256]"},
        {{"blk.1.attn_k.weight", .n_dims = 2, .ne = {128, 256, 1, 1}},
         "has shape [128, 256], expected [256, 128]"},
        {{"blk.1.ffn_norm.weight", .n_dims = 1, .ne = {257, 1, 1, 1}},
         "has shape [257], expected [256]"},
        {{"output_norm.weight", .n_dims = 2, .ne = {256, 2, 1, 1}},
         "has shape [256, 2], expected [256]"},
        {{"token_embd.weight", .n_dims = 2, .ne = {256, 127, 1, 1}},
         "has shape [256, 127], expected [256, 128]"},
        {{"output.weight", .n_dims = 3, .ne = {256, 128, 2, 1}},
         "has shape [256, 128, 2], expected [256, 128]"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err e;

        assert_int_equal(load(&rows[i].c, false, DT_F32, &e), ST_MODEL);
        if (!strstr(e.msg, rows[i].text))
            fail_msg("'%s', expected '%s'", e.msg, rows[i].text);
    }
}

static void test_types(void **state)
{
    static const struct change rows[] = {
        {"blk.0.attn_q.weight", .type = DT_I32},     {"blk.1.ffn_down.weight", .type = DT_I8},
        {"token_embd.weight", .type = DT_I64},       {"output_norm.weight", .type = DT_F16},
        {"blk.1.attn_norm.weight", .type = DT_BF16}, {"blk.0.ffn_norm.weight", .type = DT_Q8_0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err e;

        assert_int_equal(load(&rows[i], false, DT_F32, &e), ST_UNSUPPORTED);
        assert_non_null(strstr(e.msg, rows[i].name));
        assert_non_null(strstr(e.msg, dtype_name(rows[i].type)));
    }
}

static void test_check_tensors(void **state)
{
    static const struct change rows[] = {
        {"blk.1.ffn_down.weight", .value = NAN, .at = 256 * 3 + 17},
        {"blk.0.ffn_norm.weight", .value = -INFINITY, .at = 5},
        {"output.weight", .value = INFINITY, .at = 256 * 128 - 1},
        {"blk.1.attn_v.weight", .type = DT_Q4_1, .value = NAN, .at = 256 + 33},
        {"blk.1.attn_v.weight", .type = DT_F16, .value = 1e9f, .at = 256 + 33}, /* inf in f16 */
    };
    static const char *const texts[] = {"in block 785 (element 17 of row 3)",
                                        "value -inf in block 5", "row 127", "in block 9 (",
                                        "value inf"};
    struct err e;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(load(&rows[i], false, DT_F32, &e), ST_OK);
        assert_int_equal(load(&rows[i], true, DT_F32, &e), ST_MODEL);
        assert_non_null(strstr(e.msg, rows[i].name));
        if (!strstr(e.msg, texts[i]))
            fail_msg("'%s', expected '%s'", e.msg, texts[i]);
    }
    assert_int_equal(load(&(struct change){"none"}, true, DT_Q4_K, &e), ST_OK);
}

/* ---- whole files ---- */

static void other_arch(void *ctx, struct gguf_writer *w)
{
    gguf_put_str(w, "general.architecture", ctx);
}

static void experts(void *ctx, struct gguf_writer *w)
{
    gguf_put_u32(w, "qwen2.expert_count", *(uint32_t *)ctx);
}

static void longrope(void *ctx, struct gguf_writer *w)
{
    (void)ctx;
    gguf_put_str(w, "llama.rope.scaling.type", "longrope");
}

static void test_files(void **state)
{
    struct tiny_options qwen2 = {.arch = "qwen2", .keys = experts};
    uint32_t n_expert = 8, none = 0;
    struct tiny t;
    struct err e;

    (void)state;
    assert_int_equal(
        tiny_load(&t, &(struct tiny_options){.keys = other_arch, .ctx = (void *)"llama7"}, &e),
        ST_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "architecture 'llama7' is not supported; known are: "));
    for (int i = 0; arch_name(i); i++)
        assert_non_null(strstr(strstr(e.msg, "known are"), arch_name(i)));
    qwen2.ctx = &n_expert;
    assert_int_equal(tiny_load(&t, &qwen2, &e), ST_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "'qwen2.expert_count' is 8"));
    assert_int_equal(tiny_load(&t, &(struct tiny_options){.keys = longrope}, &e), ST_MODEL);
    assert_non_null(strstr(e.msg, "rope_factors_long.weight"));
    qwen2.ctx = &none;
    assert_int_equal(tiny_load(&t, &qwen2, &e), ST_OK);
    tiny_release(&t);
}

static void skip_all(void *ctx, struct tiny_tensor *t)
{
    (void)ctx;
    t->skip = true;
}

static void test_vocabulary_only(void **state)
{
    struct tiny t;
    struct err e;

    (void)state;
    assert_int_equal(tiny_load(&t, &(struct tiny_options){.tensor = skip_all}, &e), ST_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "holds a vocabulary only"));
}

static void count_progress(void *ctx, double share)
{
    double *last = ctx;

    assert_true(share >= *last && share <= 1);
    *last = share;
}

static void test_progress_and_cancel(void **state)
{
    struct tiny_options o = {.seed = 1};
    struct device_options dopt = {.n_threads = 1};
    atomic_bool cancel = false;
    struct devices devs;
    double last = 0;
    struct model_options mo = {.devs = &devs,
                               .progress = count_progress,
                               .progress_ctx = &last,
                               .cancel = &cancel,
                               .check_tensors = true};
    struct model *m;
    struct gguf *g;
    struct err e;
    void *bytes;
    size_t n;

    (void)state;
    assert_int_equal(tiny_write(&o, &bytes, &n, &e), ST_OK);
    assert_int_equal(devices_open(&devs, &dopt, &e), ST_OK);
    assert_int_equal(gguf_open_memory(&g, bytes, n, "tiny", &e), ST_OK);
    assert_int_equal(model_load(&m, g, &mo, &e), ST_OK);
    assert_true(last == 1);
    model_free(m);
    cancel = true;
    assert_int_equal(gguf_open_memory(&g, bytes, n, "tiny", &e), ST_OK);
    assert_int_equal(model_load(&m, g, &mo, &e), ST_CANCELLED);
    assert_null(m);
    devices_close(&devs);
    mem_free(bytes);
}

/* A file opened for its metadata gives descriptions without bytes. */
static void test_no_data(void **state)
{
    struct tiny_options o = {.seed = 1};
    struct device_options dopt = {.n_threads = 1};
    struct devices devs;
    struct model_options mo = {.devs = &devs};
    struct model *m;
    struct gguf *g;
    struct err e;
    char path[512];
    void *bytes;
    size_t n;
    FILE *f;

    (void)state;
    snprintf(path, sizeof path, "%s/loader-no-data.gguf", getenv("GGRUN_TEST_TMP"));
    assert_int_equal(tiny_write(&o, &bytes, &n, &e), ST_OK);
    f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    mem_free(bytes);
    assert_int_equal(devices_open(&devs, &dopt, &e), ST_OK);
    assert_int_equal(gguf_open(&g, path, GGUF_NO_DATA, &e), ST_OK);
    assert_int_equal(model_load(&m, g, &mo, &e), ST_OK);
    assert_null(m->weights[0]->data);
    assert_int_equal(m->weights[0]->buffer->usage, USAGE_WEIGHTS);
    assert_int_equal(m->weights[0]->buffer->size, m->n_weight_bytes);
    model_free(m);
    devices_close(&devs);
    remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_loads, setup),
        cmocka_unit_test_setup(test_tables, setup),
        cmocka_unit_test_setup(test_tied, setup),
        cmocka_unit_test_setup(test_missing, setup),
        cmocka_unit_test_setup(test_extra, setup),
        cmocka_unit_test_setup(test_shapes, setup),
        cmocka_unit_test_setup(test_types, setup),
        cmocka_unit_test_setup(test_check_tensors, setup),
        cmocka_unit_test_setup(test_files, setup),
        cmocka_unit_test_setup(test_vocabulary_only, setup),
        cmocka_unit_test_setup(test_progress_and_cancel, setup),
        cmocka_unit_test_setup(test_no_data, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
