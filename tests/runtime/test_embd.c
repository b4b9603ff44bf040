/*
 * Embeddings in place of ids: the rows that the table has for the ids, decoded here, give the bits that the ids
 * give. What an architecture does behind the look-up is done to both, but for Gemma's scale, which is for ids.
 */
#include "tests/unit.h"

#include <math.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "gguf/quants.h"
#include "gguf/reader.h"
#include "tests/runtime/tiny_model.h"

#define N_VOCAB 128
#define N_IDS   70

static struct err err;
static int32_t ids[N_IDS];

static void ok(enum status st)
{
    if (st)
        fail_msg("%s: %s", status_name(st), err.msg);
}

struct rows {
    float x[N_IDS][N_VOCAB];
    uint32_t n;
};

static enum status keep(void *ctx, uint32_t pos, const float *logits, struct err *e)
{
    struct rows *r = ctx;

    (void)e;
    assert_int_equal(pos, r->n++);
    memcpy(r->x[pos], logits, sizeof r->x[pos]);
    return ST_OK;
}

static enum status keep_of(void *ctx, int32_t seq, uint32_t pos, const float *logits, struct err *e)
{
    assert_int_equal(seq, 0);
    return keep(ctx, pos, logits, e);
}

/* The table's rows, times `scale`. */
static float *look_up(const struct tiny *t, float scale)
{
    struct gguf *g;
    const struct gguf_tensor *w;
    float *x;

    ok(gguf_open_memory(&g, t->bytes, t->n_bytes, "tiny", &err));
    w = gguf_find_tensor(g, "token_embd.weight");
    assert_non_null(w);
    x = mem_array(N_IDS, (size_t)w->ne[0] * sizeof *x);
    for (int i = 0; i < N_IDS; i++) {
        float *row = x + (size_t)i * (size_t)w->ne[0];

        quant_decoder(w->type)((const char *)w->data +
                                   (size_t)ids[i] * dtype_row_bytes(w->type, w->ne[0]),
                               row, w->ne[0]);
        for (int64_t j = 0; j < w->ne[0]; j++)
            row[j] *= scale;
    }
    gguf_close(g);
    return x;
}

static void run_ids(const struct tiny *t, struct rows *out)
{
    struct session_options o = tiny_session(t, 256, 64);
    struct session *s;

    out->n = 0;
    ok(session_new(&s, t->m, &o, &err));
    ok(session_eval(s, ids, N_IDS, WANT_ALL, keep, out, &err));
    session_free(s);
}

/* n_step embeddings per call. */
static void run_embd(const struct tiny *t, const float *x, uint32_t n_ubatch, uint32_t n_step,
                     struct rows *out)
{
    struct session_options o = tiny_session(t, 256, n_ubatch);
    struct session_stats st;
    struct session *s;
    bool all[N_IDS];

    o.embd = true;
    o.check_reuse = true;
    memset(all, true, sizeof all);
    out->n = 0;
    ok(session_new(&s, t->m, &o, &err));
    for (uint32_t i = 0; i < N_IDS; i += n_step) {
        struct seq_tokens in = {.embd = x + (size_t)i * t->m->hp.n_embd,
                                .out = all,
                                .n = N_IDS - i < n_step ? N_IDS - i : n_step};

        ok(session_eval_batch(s, &in, keep_of, out, &err));
    }
    session_stats(s, &st);
    assert_int_equal(st.check_failures, 0);
    assert_int_equal(st.exec.regrows, 0);
    session_free(s);
}

/* A norm of the embeddings, positions that are added, scales of the file and of the architecture, state. */
static const char *const archs[] = {"llama", "bloom",  "gpt2",   "granite", "minicpm",
                                    "gemma", "gemma2", "gemma3", "mamba",   "deepseek2"};

static void test_rows(void **state)
{
    static struct rows want, got;

    (void)state;
    for (size_t i = 0; i < 2 * sizeof archs / sizeof archs[0]; i++) {
        const char *arch = archs[i / 2];
        struct tiny_options o = tiny_arch(arch, i % 2 ? DT_Q8_0 : DT_F32);
        struct tiny t;
        float *x;

        o.n_layer = 2;
        o.n_vocab = N_VOCAB;
        o.keys = tiny_scales;
        o.ctx = (void *)(uintptr_t)arch;
        ok(tiny_load(&t, &o, &err));
        x = look_up(&t, strncmp(arch, "gemma", 5) == 0 ? sqrtf((float)o.n_embd) : 1);
        run_ids(&t, &want);
        run_embd(&t, x, 64, N_IDS, &got);
        if (got.n != N_IDS || memcmp(want.x, got.x, sizeof want.x) != 0)
            fail_msg("%s: other logits than of the ids", arch);
        run_embd(&t, x, 7, 25, &got);
        if (memcmp(want.x, got.x, sizeof want.x) != 0)
            fail_msg("%s: other logits than of the ids in several calls", arch);
        x[3] += 1; /* they are looked at */
        run_embd(&t, x, 64, N_IDS, &got);
        assert_memory_not_equal(want.x, got.x, sizeof want.x);
        mem_free(x);
        tiny_release(&t);
    }
}

/* Of several sequences each finds its own, in whatever order an equal split takes them. */
static enum status keep_one(void *ctx, int32_t seq, uint32_t pos, const float *logits,
                            struct err *e)
{
    struct rows *r = ctx;

    (void)e;
    memcpy(r[seq].x[pos], logits, sizeof r[seq].x[pos]);
    r[seq].n++;
    return ST_OK;
}

static void test_sequences(void **state)
{
    static struct rows want, got[2];
    struct tiny_options to = {.n_vocab = N_VOCAB, .seed = 4};
    struct session_options o;
    struct session *s;
    struct tiny t;
    int32_t seq[2 * N_IDS];
    bool all[2 * N_IDS];
    size_t n;
    float *x, *both;

    (void)state;
    ok(tiny_load(&t, &to, &err));
    n = t.m->hp.n_embd;
    x = look_up(&t, 1);
    both = mem_array(2 * N_IDS, n * sizeof *both);
    memset(all, true, sizeof all);
    for (int i = 0; i < 2 * N_IDS; i++) { /* the second lags behind the first */
        int32_t k = i < 20 ? i : i >= 2 * N_IDS - 20 ? i - N_IDS : i / 2 + (i % 2 ? -10 : 10);

        seq[i] = i < 20 ? 0 : i >= 2 * N_IDS - 20 ? 1 : i % 2;
        memcpy(both + (size_t)i * n, x + (size_t)k * n, n * sizeof *x);
    }
    run_ids(&t, &want);
    o = tiny_session(&t, 512, 24);
    o.n_seqs = 2;
    o.embd = true;
    ok(session_new(&s, t.m, &o, &err));
    ok(session_eval_batch(
        s, &(struct seq_tokens){.embd = both, .seq = seq, .out = all, .n = 2 * N_IDS}, keep_one,
        got, &err));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(got[i].n, N_IDS);
        assert_memory_equal(got[i].x, want.x, sizeof want.x);
    }
    session_free(s);
    mem_free(both);
    mem_free(x);
    tiny_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_sequences),
    };
    struct tiny_rng r = {8};

    for (int i = 0; i < N_IDS; i++)
        ids[i] = (int32_t)(tiny_next(&r) % N_VOCAB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
