/*
 * SSM_CONV, SSM_SCAN, DELTA_NET on every instruction set: values against ref_recurrent.c, the same bits
 * for any number of threads and for any cut of the tokens, and slots that do not exist.
 */
#include "tests/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/features.h"
#include "tests/backends/fixture.h"
#include "tests/backends/ref.h"

#define EPS    0x1p-24
#define N_SLOT 3

static struct device *dev;

static int open_isa(void **state)
{
    const struct cpu_isa *isa = cpu_isa_at((int)(intptr_t)*state);

    return isa->available()
               ? (int)cpu_open(&dev, &(struct device_options){.n_threads = 3, .isa = isa->name},
                               NULL)
               : 0;
}

static int close_isa(void **state)
{
    (void)state;
    if (dev)
        dev->ops->free(dev);
    dev = NULL;
    return 0;
}

/* An op with its sources; of source i dimension tok_dim[i] counts tokens (0: none). */
struct recurrence {
    enum op op;
    int32_t tiled;
    struct tensor *src[7];
    int n_src, tok_dim[7];
    int64_t n_tok, n_state;
};

static struct tensor *node(const struct recurrence *r)
{
    return fx_op_n(r->op, &r->tiled, sizeof r->tiled, r->src, r->n_src);
}

static void check(struct tensor *t, double bound)
{
    int64_t n = tensor_n(t);
    double *want = malloc((size_t)n * sizeof *want), *size = malloc((size_t)n * sizeof *size);
    void *first = malloc(tensor_bytes(t));

    ref_compute(t, want, size);
    fx_run(dev, t, 1);
    for (int64_t i = 0; i < n; i++) {
        double got = (double)((float *)t->data)[i];
        if (!(fabs(got - want[i]) <= bound * EPS * size[i] + 1e-36) && got != want[i])
            fail_msg("%s element %lld of [%lld, %lld]: %.9g, expected %.9g",
                     device_kernel_name(dev, t), (long long)i, (long long)t->ne[0],
                     (long long)t->ne[1], got, want[i]);
    }
    memcpy(first, t->data, tensor_bytes(t));
    for (int n_threads = 2; n_threads <= 3; n_threads++) {
        fx_run(dev, t, n_threads);
        assert_memory_equal(t->data, first, tensor_bytes(t));
    }
    free(want);
    free(size);
    free(first);
}

/* Tokens [at, at + n) of the sources that have any. */
static struct recurrence cut(const struct recurrence *r, int64_t at, int64_t n)
{
    struct recurrence c = *r;

    for (int i = 0; i < r->n_src; i++) {
        int dim = r->tok_dim[i];

        if (!dim)
            continue;
        c.src[i] = fx_tensor(DT_I8, 1, 1, 1, 1, 0);
        *c.src[i] = *r->src[i];
        c.src[i]->ne[dim] = n;
        c.src[i]->data = (char *)r->src[i]->data + (size_t)at * r->src[i]->nb[dim];
    }
    return c;
}

/* Pieces of 1, 2, 3, ... tokens that hand on their state give the bits of the whole. */
static void check_cuts(struct recurrence r, const struct tensor *whole)
{
    int64_t width = whole->ne[0], n;
    const float *want = whole->data;
    struct tensor *state = r.src[r.n_src - 2], *t = NULL;

    for (int64_t at = 0, piece = 1; at < r.n_tok; at += n, piece++) {
        struct recurrence c;

        n = piece < r.n_tok - at ? piece : r.n_tok - at;
        c = cut(&r, at, n);
        t = node(&c);
        fx_run(dev, t, 2);
        assert_memory_equal(t->data, want + at * width, (size_t)(n * width) * sizeof *want);
        memcpy((char *)state->data + state->nb[1], (float *)t->data + n * width,
               (size_t)r.n_state * sizeof *want);
        *(int32_t *)r.src[r.n_src - 1]->data = 1;
    }
    assert_memory_equal((char *)state->data + state->nb[1], want + r.n_tok * width,
                        (size_t)r.n_state * sizeof *want);
}

static void add_state(struct recurrence *r, int64_t n_state, int32_t from)
{
    struct tensor *id = fx_tensor(DT_I32, 1, 1, 1, 1, 0);

    *(int32_t *)id->data = from;
    r->n_state = n_state;
    r->src[r->n_src++] = fx_random(fx_tensor(DT_F32, n_state, N_SLOT, 1, 1, 8), 1);
    r->src[r->n_src++] = id;
}

/* Halves of the tokens as two sequences, each with a state of its own: the bits of two ops. */
static void check_sequences(struct recurrence r)
{
    struct tensor *ids = fx_tensor(DT_I32, 2, 1, 1, 1, 0), *both;
    int64_t n = r.n_tok / 2, width;

    if (!n)
        return;
    r = cut(&r, 0, 2 * n);
    ((int32_t *)ids->data)[0] = 2;
    ((int32_t *)ids->data)[1] = -1;
    r.src[r.n_src - 1] = ids;
    both = node(&r);
    fx_poison(both);
    fx_run(dev, both, 3);
    width = both->ne[0];
    for (int seq = 0; seq < 2; seq++) {
        struct recurrence half = cut(&r, seq * n, n);
        struct tensor *id = fx_tensor(DT_I32, 1, 1, 1, 1, 0), *one;

        *(int32_t *)id->data = ((int32_t *)ids->data)[seq];
        half.src[half.n_src - 1] = id;
        one = node(&half);
        fx_run(dev, one, 1);
        assert_memory_equal(one->data, (float *)both->data + seq * n * width,
                            (size_t)(n * width) * sizeof(float));
        assert_memory_equal((float *)one->data + n * width,
                            (float *)both->data + 2 * n * width + seq * r.n_state,
                            (size_t)r.n_state * sizeof(float));
    }
    ((int32_t *)ids->data)[1] = N_SLOT;
    assert_int_not_equal(fx_try(dev, both, 2, NULL), ST_OK);
}

static void run(struct recurrence *r, double bound)
{
    struct tensor *t = node(r);

    check(t, bound);
    check_cuts(*r, t);
    check_sequences(*r);
    fx_end();
}

/* Every element |x|, times s. */
static struct tensor *positive(struct tensor *t, float s)
{
    for (int64_t i = 0; i < tensor_n(t); i++)
        *fx_f32(t, i % t->ne[0], i / t->ne[0]) = s * fabsf(*fx_f32(t, i % t->ne[0], i / t->ne[0]));
    return t;
}

static void test_conv(void **state)
{
    static const int64_t widths[] = {1, 15, 16, 50}, kernels[] = {1, 3, 4};

    (void)state;
    if (!dev)
        skip();
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 3; k++)
            for (int32_t from = -1; from < N_SLOT; from++) {
                int64_t d = widths[i], n = kernels[k], n_tok = 1 + (from + 1) * 3;
                struct recurrence r = {.op = OP_SSM_CONV,
                                       .src = {fx_random(fx_tensor(DT_F32, d, n_tok, 1, 1, 12), 2),
                                               fx_random(fx_tensor(DT_F32, n, d, 1, 1, 4), 1)},
                                       .n_src = 2,
                                       .tok_dim = {1},
                                       .n_tok = n_tok};

                add_state(&r, (n - 1) * d, from);
                run(&r, 8);
            }
}

/* d elements in each of n_head heads, n_group groups, n_a decays per head. */
static void scan_case(int64_t d, int64_t n_head, int64_t n, int64_t n_group, int64_t n_a,
                      int32_t from)
{
    int64_t n_tok = from < 0 ? 1 : 9;
    struct tensor *x = fx_random(fx_tensor(DT_F32, d, n_head, n_tok, 1, 4), 2);
    struct tensor *dt = positive(fx_random(fx_tensor(DT_F32, n_head, n_tok, 1, 1, 8), 1), 1);
    struct tensor *a = positive(fx_random(fx_tensor(DT_F32, n_a, n_head, 1, 1, 0), 3), -1);
    struct tensor *b = fx_random(fx_tensor(DT_F32, n, n_group, n_tok, 1, 12), 1);
    struct tensor *c = fx_random(fx_tensor(DT_F32, n, n_group, n_tok, 1, 4), 1);
    struct recurrence r = {.op = OP_SSM_SCAN,
                           .src = {x, dt, a, b, c},
                           .n_src = 5,
                           .tok_dim = {2, 1, 0, 2, 2},
                           .n_tok = n_tok};

    add_state(&r, d * n_head * n, from);
    run(&r, 60);
}

static void test_scan(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (int32_t from = -1; from < N_SLOT; from++) {
        scan_case(1, 37, 16, 1, 16, from);
        scan_case(1, 5, 3, 1, 3, from);
        scan_case(8, 6, 24, 2, 1, from);
        scan_case(3, 4, 13, 4, 1, from);
        scan_case(64, 1, 128, 1, 1, from);
    }
}

/* Rows of length 1: what the models have, and the state stays bounded. */
static void normalise(struct tensor *t)
{
    for (int64_t r = 0; r < tensor_rows(t); r++) {
        double sum = 0;

        for (int64_t i = 0; i < t->ne[0]; i++)
            sum += (double)*fx_f32(t, i, r) * (double)*fx_f32(t, i, r);
        for (int64_t i = 0; i < t->ne[0]; i++)
            *fx_f32(t, i, r) = (float)((double)*fx_f32(t, i, r) / sqrt(sum + 1e-9));
    }
}

static void delta_case(int64_t d, int64_t n_head_k, int64_t d_v, int64_t n_head, bool tiled,
                       int32_t from)
{
    int64_t n_tok = from < 0 ? 1 : 8;
    struct tensor *q = fx_random(fx_tensor(DT_F32, d, n_head_k, n_tok, 1, 4), 1);
    struct tensor *k = fx_random(fx_tensor(DT_F32, d, n_head_k, n_tok, 1, 8), 1);
    struct tensor *v = fx_random(fx_tensor(DT_F32, d_v, n_head, n_tok, 1, 4), 1);
    struct tensor *g = positive(fx_random(fx_tensor(DT_F32, n_head, n_tok, 1, 1, 4), 1), -1);
    struct tensor *beta = positive(fx_random(fx_tensor(DT_F32, n_head, n_tok, 1, 1, 0), 1), 1);
    struct recurrence r = {.op = OP_DELTA_NET,
                           .tiled = tiled,
                           .src = {q, k, v, g, beta},
                           .n_src = 5,
                           .tok_dim = {2, 2, 2, 1, 1},
                           .n_tok = n_tok};

    normalise(q);
    normalise(k);
    add_state(&r, d * d_v * n_head, from);
    run(&r, 60);
}

static void test_delta(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (int32_t from = -1; from < N_SLOT; from++)
        for (int tiled = 0; tiled < 2; tiled++) {
            delta_case(16, 2, 16, 4, tiled, from);
            delta_case(13, 2, 5, 6, tiled, from);
            delta_case(32, 3, 8, 3, tiled, from);
        }
}

static void test_bad_slot(void **state)
{
    static const int32_t bad[] = {-2, N_SLOT, INT32_MAX, INT32_MIN};

    (void)state;
    if (!dev)
        skip();
    for (int i = 0; i < 4; i++) {
        struct recurrence r = {
            .op = OP_SSM_CONV,
            .src = {fx_tensor(DT_F32, 8, 2, 1, 1, 0), fx_tensor(DT_F32, 4, 8, 1, 1, 0)},
            .n_src = 2};
        struct err e = {0};

        add_state(&r, 24, bad[i]);
        assert_int_equal(fx_try(dev, node(&r), 0, &e), ST_MODEL);
        assert_non_null(strstr(e.msg, "does not exist"));
        fx_end();
    }
}

/* Sources that do not fit each other are refused by the shape rules. */
static void test_bad_shapes(void **state)
{
    struct tensor *w = fx_tensor(DT_F32, 4, 8, 1, 1, 0), *x = fx_tensor(DT_F32, 8, 2, 1, 1, 0);
    struct tensor *id = fx_tensor(DT_I32, 1, 1, 1, 1, 0), t = {.op = OP_SSM_CONV};
    struct err e;

    (void)state;
    t.src[0] = x;
    t.src[1] = w;
    t.src[2] = fx_tensor(DT_F32, 23, 3, 1, 1, 0); /* not 24 */
    t.src[3] = id;
    assert_int_equal(op_shape(&t, &e), ST_MODEL);
    t.src[2] = fx_tensor(DT_F32, 24, 3, 1, 1, 0);
    assert_int_equal(op_shape(&t, &e), ST_OK);
    t.src[1] = fx_tensor(DT_F32, 4, 7, 1, 1, 0);
    assert_int_equal(op_shape(&t, &e), ST_MODEL);
    fx_end();
}

int main(void)
{
    static void (*const tests[])(void **) = {test_conv, test_scan, test_delta, test_bad_slot,
                                             test_bad_shapes};
    static const char *const names[] = {"conv", "scan", "delta", "bad_slot", "bad_shapes"};
    enum { N = sizeof tests / sizeof tests[0] };
    int n_failed = 0;

    for (int i = 0; i < cpu_isa_count(); i++) {
        struct CMUnitTest list[N];
        char name[N][64];

        for (int j = 0; j < N; j++) {
            snprintf(name[j], sizeof name[j], "%s (%s)", names[j], cpu_isa_at(i)->name);
            list[j] =
                (struct CMUnitTest){name[j], tests[j], open_isa, close_isa, (void *)(intptr_t)i};
        }
        n_failed += cmocka_run_group_tests_name(cpu_isa_at(i)->name, list, NULL, NULL);
    }
    return n_failed;
}
