/*
 * TOP_K, ARGMAX, MASK_BITS on rows of all kinds against ref.c, and against each other: ties, NaN, both
 * infinities, rows of which nothing is left.
 */
#include "tests/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "tests/backends/fixture.h"
#include "tests/backends/ref.h"

#define N_ROW 5

static struct device *dev;

static int setup(void **state)
{
    (void)state;
    return (int)cpu_open(&dev, &(struct device_options){.n_threads = 3}, NULL);
}

static int teardown(void **state)
{
    (void)state;
    dev->ops->free(dev);
    return 0;
}

enum kind { RANDOM, TIES, ZEROS, SPECIAL, MASKED, ALL_NAN, RISING, FALLING, N_KIND };

static float element(enum kind kind, int64_t i)
{
    static const float special[] = {NAN, -INFINITY, INFINITY, 1, -1, 0};
    float x = fx_uniform(-4, 4);

    switch (kind) {
    case TIES:
        return roundf(x);
    case ZEROS:
        return x < 0 ? -0.0f : 0.0f;
    case SPECIAL:
        return special[fx_u32() % 6];
    case MASKED:
        return -INFINITY;
    case ALL_NAN:
        return NAN;
    case RISING:
        return (float)i;
    case FALLING:
        return (float)-i;
    default:
        return x;
    }
}

static struct tensor *rows(int64_t n, enum kind kind)
{
    struct tensor *x = fx_tensor(DT_F32, n, N_ROW, 1, 1, 4);

    for (int64_t r = 0; r < N_ROW; r++)
        for (int64_t i = 0; i < n; i++)
            *fx_f32(x, i, r) = element(kind, i);
    return x;
}

/* The reference's numbers, with any number of threads. */
static void check_ids(struct tensor *t)
{
    int64_t n = tensor_n(t);
    double *want = malloc((size_t)n * sizeof *want);

    ref_compute(t, want, NULL);
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        fx_run(dev, t, n_threads);
        for (int64_t i = 0; i < n; i++)
            if (want[i] != (double)((int32_t *)t->data)[i])
                fail_msg("%s %lld: %d, expected %g", t->name, (long long)i,
                         (int)((int32_t *)t->data)[i], want[i]);
    }
    free(want);
}

static const int64_t sizes[] = {1, 2, 3, 31, 32, 33, 100, 257, 400};
#define N_SIZE (sizeof sizes / sizeof sizes[0])

static void test_top_k(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SIZE * N_KIND; i++) {
        int64_t n = sizes[i / N_KIND];
        int32_t ks[] = {1, 2, 7, 40, (int32_t)n - 1, (int32_t)n};

        for (size_t j = 0; j < sizeof ks / sizeof ks[0]; j++) {
            struct param_top_k p = {.k = ks[j]};

            if (p.k < 1 || p.k > n)
                continue;
            check_ids(fx_op(OP_TOP_K, &p, sizeof p, rows(n, i % N_KIND), NULL, NULL, NULL));
            fx_end();
        }
    }
}

static void test_argmax(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SIZE * N_KIND; i++) {
        struct tensor *x = rows(sizes[i / N_KIND], i % N_KIND), *top, *y;

        y = fx_op(OP_ARGMAX, NULL, 0, x, NULL, NULL, NULL);
        assert_int_equal(y->ne[0], N_ROW);
        check_ids(y);
        top = fx_op(OP_TOP_K, &(struct param_top_k){.k = 1}, sizeof(struct param_top_k), x, NULL,
                    NULL, NULL);
        fx_run(dev, top, 0);
        assert_memory_equal(y->data, top->data, N_ROW * 4);
        fx_end();
    }
}

/* Words of which none, all, or some bits are set. */
static struct tensor *bits_for(int64_t n, int how)
{
    struct tensor *bits = fx_tensor(DT_I32, (n + 31) / 32, 1, 1, 1, 0);

    for (int64_t i = 0; i < bits->ne[0]; i++)
        ((uint32_t *)bits->data)[i] = how == 0 ? 0 : how == 1 ? UINT32_MAX : fx_u32() & fx_u32();
    return bits;
}

static void check_mask(struct tensor *y, const double *want)
{
    for (int64_t i = 0; i < tensor_n(y); i++) {
        float got = ((float *)y->data)[i], w = (float)want[i];

        if (isnan(w) ? !isnan(got) : memcmp(&got, &w, sizeof w) != 0)
            fail_msg("element %lld: %g, expected %g", (long long)i, (double)got, want[i]);
    }
}

static void test_mask_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SIZE * N_KIND * 3; i++) {
        int64_t n = sizes[i / 3 / N_KIND];
        struct tensor *x = rows(n, i / 3 % N_KIND), *bits = bits_for(n, (int)(i % 3));
        struct tensor *y = fx_op(OP_MASK_BITS, NULL, 0, x, bits, NULL, NULL);
        double *want = malloc((size_t)tensor_n(y) * sizeof *want);

        ref_compute(y, want, NULL);
        for (int n_threads = 1; n_threads <= 3; n_threads++) {
            fx_run(dev, y, n_threads);
            check_mask(y, want);
        }
        fx_end();
        free(want);
    }
}

/* Over its source, and divided among threads: a row of 20,000. */
static void test_mask_bits_in_place(void **state)
{
    struct tensor *x = fx_random(fx_tensor(DT_F32, 20000, 1, 1, 1, 0), 4);
    struct tensor *bits = bits_for(20000, 2);
    struct tensor *y = fx_op(OP_MASK_BITS, NULL, 0, x, bits, NULL, NULL);
    double *want = malloc(20000 * sizeof *want);

    (void)state;
    ref_compute(y, want, NULL);
    fx_run(dev, y, 0);
    check_mask(y, want);
    y->data = x->data;
    y->view_src = x; /* keeps the fixture from poisoning the source */
    fx_run(dev, y, 0);
    check_mask(y, want);
    fx_end();
    free(want);
}

/* What is left of a masked row goes before what is not, which is in the order of places. */
static void test_masked_choice(void **state)
{
    struct tensor *x = rows(70, RANDOM), *bits = fx_tensor(DT_I32, 3, 1, 1, 1, 0), *y, *top, *max;
    struct param_top_k p = {.k = 4};

    (void)state;
    ((uint32_t *)bits->data)[1] = 1u << 31 | 1u << 1; /* 63 and 33 */
    ((uint32_t *)bits->data)[2] = ~63u;               /* behind the row */
    y = fx_op(OP_MASK_BITS, NULL, 0, x, bits, NULL, NULL);
    top = fx_op(OP_TOP_K, &p, sizeof p, y, NULL, NULL, NULL);
    max = fx_op(OP_ARGMAX, NULL, 0, y, NULL, NULL, NULL);
    fx_run(dev, y, 0);
    fx_run(dev, top, 0);
    fx_run(dev, max, 0);
    for (int r = 0; r < N_ROW; r++) {
        int32_t *id = (int32_t *)top->data + 4 * r;
        bool first = *fx_f32(x, 33, r) >= *fx_f32(x, 63, r);

        assert_int_equal(id[0], first ? 33 : 63);
        assert_int_equal(id[1], first ? 63 : 33);
        assert_true(id[2] == 0 && id[3] == 1);
        assert_int_equal(((int32_t *)max->data)[r], id[0]);
    }
    fx_end();
}

static void refused(enum op op, struct tensor *a, struct tensor *b)
{
    struct tensor t = {.op = op, .src = {a, b}};
    struct err e;

    assert_int_equal(op_shape(&t, &e), ST_MODEL);
}

static void test_bad_shapes(void **state)
{
    struct tensor *x = fx_tensor(DT_F32, 33, 2, 1, 1, 0);

    (void)state;
    refused(OP_ARGMAX, fx_tensor(DT_F32, 0, 2, 1, 1, 0), NULL);
    refused(OP_ARGMAX, fx_tensor(DT_I32, 4, 2, 1, 1, 0), NULL);
    refused(OP_ARGMAX, fx_tensor(DT_F32, 4, 2, 2, 1, 0), NULL);
    refused(OP_MASK_BITS, x, fx_tensor(DT_I32, 1, 1, 1, 1, 0));
    refused(OP_MASK_BITS, x, fx_tensor(DT_I32, 3, 1, 1, 1, 0));
    refused(OP_MASK_BITS, x, fx_tensor(DT_I32, 2, 2, 1, 1, 0));
    refused(OP_MASK_BITS, x, fx_tensor(DT_F32, 2, 1, 1, 1, 0));
    fx_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_top_k),         cmocka_unit_test(test_argmax),
        cmocka_unit_test(test_mask_bits),     cmocka_unit_test(test_mask_bits_in_place),
        cmocka_unit_test(test_masked_choice), cmocka_unit_test(test_bad_shapes),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
