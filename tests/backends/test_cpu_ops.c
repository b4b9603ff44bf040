/*
 * Every op of the CPU device, on every tensor type and instruction set: values against ref.c within
 * a bound per op, and the same bits for any number of columns, tokens and threads. With --bench
 * [TYPE]: speed of products.
 */
#include "tests/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <time.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/features.h"
#include "tests/backends/fixture.h"
#include "gguf/base/mem.h"
#include "gguf/quants.h"
#include "tests/backends/ref.h"

#define EPS 0x1p-24

/* The CPU device of the instruction set under test, with three threads. */
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

/* Compute t and compare each element: error at most bound * EPS * size + tiny. */
static void check(struct tensor *t, double bound)
{
    int64_t n = tensor_n(t);
    double *want = malloc((size_t)n * sizeof *want + 1),
           *size = malloc((size_t)n * sizeof *size + 1);

    ref_compute(t, want, size);
    fx_run(dev, t, 0);
    for (int64_t i = 0; i < n; i++) {
        int64_t r = i / t->ne[0];
        double got =
            ref_at(t, i % t->ne[0], r % t->ne[1], r / t->ne[1] % t->ne[2], r / t->ne[1] / t->ne[2]);
        if (!(fabs(got - want[i]) <= bound * EPS * size[i] + 1e-36) && got != want[i])
            fail_msg("%s %s element %lld of [%lld, %lld]: %.9g, expected %.9g",
                     device_kernel_name(dev, t), t->name, (long long)i, (long long)t->ne[0],
                     (long long)t->ne[1], got, want[i]);
    }
    free(want);
    free(size);
}

/* Computing t with 1, 2 and 3 threads gives the same bits. */
static void check_threads(struct tensor *t)
{
    size_t n = tensor_bytes(t);
    void *first = malloc(n + 1);

    fx_run(dev, t, 1);
    memcpy(first, t->data, n);
    for (int n_threads = 2; n_threads <= 3; n_threads++) {
        fx_run(dev, t, n_threads);
        assert_memory_equal(t->data, first, n);
    }
    free(first);
}

/* ---- MUL_MAT ---- */

static struct tensor *mul_mat(struct tensor *w, struct tensor *x)
{
    return fx_op(OP_MUL_MAT, NULL, 0, w, x, NULL, NULL);
}

/* A view of the first ne0 x ne1 of t, from row `row` on. */
static struct tensor *part(const struct tensor *t, int64_t row, int64_t n_row)
{
    struct tensor *v = fx_tensor(DT_I8, 1, 1, 1, 1, 0);

    *v = *t;
    v->ne[1] = n_row;
    v->data = (char *)t->data + (size_t)row * t->nb[1];
    return v;
}

/*
 * Whatever rows and columns are computed together, their results have the bits of the whole
 * product.
 */
static void check_parts(struct tensor *w, struct tensor *x, const struct tensor *whole)
{
    static const int rows[] = {1, 2, 3, 5, 17}, cols[] = {1, 2, 3, 4, 5, 8};

    for (size_t a = 0; a < sizeof rows / sizeof rows[0]; a++)
        for (size_t b = 0; b < sizeof cols / sizeof cols[0]; b++) {
            int64_t i = fx_u32() % (unsigned)(w->ne[1] - rows[a] + 1);
            int64_t j = fx_u32() % (unsigned)(x->ne[1] - cols[b] + 1);
            struct tensor *y = mul_mat(part(w, i, rows[a]), part(x, j, cols[b]));
            fx_run(dev, y, (int)(fx_u32() % 3) + 1);
            for (int c = 0; c < cols[b]; c++)
                assert_memory_equal((float *)y->data + c * rows[a],
                                    (float *)whole->data + (j + c) * whole->ne[0] + i,
                                    (size_t)rows[a] * sizeof(float));
        }
}

static void mul_mat_case(enum dtype type, int64_t n_k, size_t pad)
{
    struct tensor *w = fx_random(fx_tensor(type, n_k, 33, 1, 1, pad), 1);
    struct tensor *x = fx_random(fx_tensor(DT_F32, n_k, 33, 1, 1, pad & ~(size_t)3), 1);
    struct tensor *y = mul_mat(w, x);

    /* Longest chain of roundings: two per step of 4 lanes within a chunk, then the chunks. */
    check(y, (double)((n_k < 768 ? n_k : 768) / 2 + n_k / 768) + 16);
    check_threads(y);
    check_parts(w, x, y);
    fx_end();
}

static void test_mul_mat_types(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (uint32_t t = 0; t < DT_COUNT; t++) {
        int64_t block = dtype_known(t) ? dtype_info((enum dtype)t)->block : 0;
        if (!block)
            continue;
        if (block == 1) {
            mul_mat_case((enum dtype)t, 1, 8);
            mul_mat_case((enum dtype)t, 7, 0);
            mul_mat_case((enum dtype)t, 769, 24);
        }
        mul_mat_case((enum dtype)t, block < 32 ? 32 : block, 0);
        mul_mat_case((enum dtype)t, 3 * (block < 32 ? 32 : block), 6);
        mul_mat_case((enum dtype)t, 1024 + block, 2);
    }
}

/* More than one tile of rows and of columns. */
static void test_mul_mat_tiles(void **state)
{
    struct tensor *w, *x, *y;

    (void)state;
    if (!dev)
        skip();
    w = fx_random(fx_tensor(DT_Q4_1, 96, 70, 1, 1, 0), 1);
    x = fx_random(fx_tensor(DT_F32, 96, 200, 1, 1, 4), 1);
    y = mul_mat(w, x);
    check(y, 64);
    check_threads(y);
    check_parts(w, x, y);
    fx_end();
}

/* Planes: two of w serve four of x; x contiguous and not. */
static void test_mul_mat_planes(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (int m = 1; m <= 5; m += 4)
        for (int pad = 0; pad <= 4; pad += 4) {
            struct tensor *w = fx_random(fx_tensor(DT_Q8_0, 64, 9, 2, 1, 0), 1);
            struct tensor *w1 = fx_random(fx_tensor(DT_F16, 64, 9, 1, 1, 0), 1);
            struct tensor *x = fx_random(fx_tensor(DT_F32, 64, m, 4, 3, (size_t)pad), 1);
            check(mul_mat(w, x), 48);
            check(mul_mat(w1, x), 48);
            x->nb[2] -= 4 * (size_t)pad / 4; /* overlapping planes: no single stride */
            check(mul_mat(w1, x), 48);
            fx_end();
        }
}

/* Weights with their rows innermost, a few of many bytes apart, as values lie in a cache. */
static void test_mul_mat_turned(void **state)
{
    static const enum dtype types[] = {DT_F32, DT_F16, DT_BF16};
    static const int depths[] = {1, 5, 64, 770, 1600};

    (void)state;
    if (!dev)
        skip();
    for (int i = 0; i < 15; i++) {
        struct tensor *w = fx_random(fx_tensor(types[i % 3], 80, depths[i / 3], 1, 1, 8), 1);
        struct tensor *x = fx_random(fx_tensor(DT_F32, depths[i / 3], 33, 1, 1, 4), 1), *y, *z;

        w = fx_op(OP_TRANSPOSE, NULL, 0, part(w, 0, depths[i / 3]), NULL, NULL, NULL);
        y = mul_mat(w, x);
        check(y, 400);
        check_threads(y);
        check_parts(w, x, y);
        z = mul_mat(fx_op(OP_CONT, NULL, 0, w, NULL, NULL, NULL), x); /* the usual way round */
        fx_run(dev, z->src[0], 0);
        fx_run(dev, z, 0);
        assert_memory_equal(z->data, y->data, tensor_bytes(y));
        fx_end();
    }
}

/* Heads of a group share a plane: the same bits for tokens together and alone. */
static void test_mul_mat_groups(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (int i = 0; i < 4; i++) {
        struct tensor *w = fx_random(fx_tensor(DT_F16, 96, 40, 2, 1, 0), 1), *y, *one;
        struct tensor *x;

        x = fx_random(fx_tensor(DT_F32, 96, i / 2 ? 6 : 7, i / 2 ? 7 : 6, 2, 4 * (size_t)(i % 2)),
                      1);
        if (i / 2) /* heads of a token together, as queries come */
            x = fx_op(OP_PERMUTE, (int32_t[]){0, 2, 1, 3}, 16, x, NULL, NULL, NULL);
        y = mul_mat(w, x);
        check(y, 64);
        check_threads(y);
        for (int64_t t = 0; t < x->ne[1]; t++) {
            one = mul_mat(w, part(x, t, 1));
            fx_run(dev, one, 0);
            for (int64_t h = 0; h < x->ne[2] * x->ne[3]; h++)
                assert_memory_equal((float *)one->data + h * 40,
                                    (float *)y->data + (h * x->ne[1] + t) * 40, 160);
        }
        fx_end();
    }
}

/* NaN and infinities stay in their row and column; large values do not overflow on the way. */
static void test_mul_mat_extremes(void **state)
{
    struct tensor *w, *x, *y;

    (void)state;
    if (!dev)
        skip();
    w = fx_random(fx_tensor(DT_F16, 40, 9, 1, 1, 0), 60000);
    x = fx_random(fx_tensor(DT_F32, 40, 7, 1, 1, 0), 1e32f);
    y = mul_mat(w, x);
    check(y, 64);
    *fx_f32(x, 39, 2) = NAN;
    ((uint16_t *)w->data)[3 * 40 + 1] = 0x7c00;
    fx_run(dev, y, 0);
    for (int j = 0; j < 7; j++)
        for (int i = 0; i < 9; i++)
            assert_int_equal(isfinite(*fx_f32(y, i, j)) != 0, i != 3 && j != 2);
    fx_end();
}

/* Strides beyond 2^31 and 2^32 bytes. */
static void test_far_rows(void **state)
{
    size_t far = (size_t)1 << 30, n_bytes = 6 * far;
    struct tensor *w, *x, *ids, *y;
    char *p;

    (void)state;
    if (!dev)
        skip();
    p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
             0);
    if (p == MAP_FAILED)
        skip();
    w = fx_tensor(DT_F32, 8, 6, 1, 1, 0);
    w->data = p;
    w->nb[1] = far;
    w->nb[2] = w->nb[3] = n_bytes;
    fx_random(w, 1);
    x = fx_random(fx_tensor(DT_F32, 8, 2, 1, 1, 0), 1);
    check(mul_mat(w, x), 32);
    ids = fx_tensor(DT_I32, 2, 1, 1, 1, 0);
    memcpy(ids->data, (int32_t[]){5, 3}, 8);
    check(fx_op(OP_GET_ROWS, NULL, 0, w, ids, NULL, NULL), 0);
    y = fx_op(OP_RMS_NORM, &(struct param_rms_norm){1e-5f}, 4, w, NULL, NULL, NULL);
    check(y, 4);
    munmap(p, n_bytes);
    fx_end();
}

/* ---- element by element, norm ---- */

static const int64_t widths[] = {1, 3, 8, 33, 64, 577};
#define N_WIDTH (sizeof widths / sizeof widths[0])

static void test_add_mul_div(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (enum op op = OP_ADD; op <= OP_DIV; op++)
        for (size_t i = 0; i < N_WIDTH; i++) {
            int64_t n = widths[i];
            struct tensor *a = fx_random(fx_tensor(DT_F32, n, 6, 2, 2, 12), 3);
            check(fx_op(op, NULL, 0, a, fx_random(fx_tensor(DT_F32, n, 6, 2, 2, 4), 2), NULL, NULL),
                  1);
            check(fx_op(op, NULL, 0, a, fx_random(fx_tensor(DT_F32, n, 1, 1, 1, 0), 2), NULL, NULL),
                  1);
            check(fx_op(op, NULL, 0, a, fx_random(fx_tensor(DT_F32, 1, 3, 1, 2, 0), 2), NULL, NULL),
                  1);
            if (n % 3 == 0)
                check(fx_op(op, NULL, 0, a, fx_random(fx_tensor(DT_F32, n / 3, 2, 2, 1, 0), 2),
                            NULL, NULL),
                      1);
            fx_end();
        }
}

static void test_scale(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (size_t i = 0; i < N_WIDTH; i++) {
        struct tensor *x = fx_random(fx_tensor(DT_F32, widths[i], 5, 2, 1, 8), 3);
        check(fx_op(OP_SCALE, &(struct param_scale){0.3f, -0.7f}, 8, x, NULL, NULL, NULL), 2);
        fx_end();
    }
}

static void test_softcap(void **state)
{
    static const float scales[] = {1e-6f, 1, 10, 1000, 3e38f};
    struct tensor *x, *y;

    (void)state;
    if (!dev)
        skip();
    for (size_t i = 0; i < 5 * N_WIDTH; i++) {
        x = fx_random(fx_tensor(DT_F32, widths[i / 5], 5, 2, 1, 8), scales[i % 5]);
        y = fx_op(OP_SOFTCAP, &(struct param_softcap){i % 2 ? 30 : 0.7f}, 4, x, NULL, NULL, NULL);
        check(y, 6);
        check_threads(y);
        fx_end();
    }
    x = fx_tensor(DT_F32, 4, 1, 1, 1, 0);
    memcpy(x->data, (float[]){INFINITY, -INFINITY, NAN, -0.0f}, 16);
    y = fx_op(OP_SOFTCAP, &(struct param_softcap){30}, 4, x, NULL, NULL, NULL);
    fx_run(dev, y, 0);
    assert_true(*fx_f32(y, 0, 0) == 30 && *fx_f32(y, 1, 0) == -30 && isnan(*fx_f32(y, 2, 0)));
    assert_true(*fx_f32(y, 3, 0) == 0);
    fx_end();
}

static void test_glu(void **state)
{
    static const float scales[] = {1, 10, 100, 3e38f};

    (void)state;
    if (!dev)
        skip();
    for (int kind = 0; kind < GLU_COUNT; kind++)
        for (size_t i = 0; i < 4 * N_WIDTH; i++) {
            int64_t n = widths[i / 4];
            struct tensor *a = fx_random(fx_tensor(DT_F32, n, 5, 1, 1, 8), scales[i % 4]);
            struct tensor *b = fx_random(fx_tensor(DT_F32, n, 5, 1, 1, 4), 1);
            struct tensor *y = fx_op(OP_GLU, &(struct param_glu){kind}, 4, a, b, NULL, NULL);
            check(y, 8);
            check_threads(y);
            fx_end();
        }
}

static void test_unary(void **state)
{
    static const float scales[] = {1, 10, 100, 3e18f};
    struct tensor *x, *y;

    (void)state;
    if (!dev)
        skip();
    for (int kind = 0; kind < UNARY_COUNT; kind++) {
        for (size_t i = 0; i < 4 * N_WIDTH; i++) {
            x = fx_random(fx_tensor(DT_F32, widths[i / 4], 5, 2, 1, 8), scales[i % 4]);
            y = fx_op(OP_UNARY, &(struct param_unary){kind}, 4, x, NULL, NULL, NULL);
            check(y, 8);
            check_threads(y);
            fx_end();
        }
        x = fx_tensor(DT_F32, 2, 1, 1, 1, 0);
        memcpy(x->data, (float[]){NAN, 0}, 8);
        y = fx_op(OP_UNARY, &(struct param_unary){kind}, 4, x, NULL, NULL, NULL);
        fx_run(dev, y, 0);
        assert_true(isnan(*fx_f32(y, 0, 0)));
        assert_true(*fx_f32(y, 1, 0) == (kind == UNARY_SIGMOID    ? 0.5f
                                         : kind == UNARY_SOFTPLUS ? 0.69314718f
                                                                  : 0));
        fx_end();
    }
}

static void test_norm(void **state)
{
    static const float scales[] = {1, 1e-20f, 1e30f};
    struct param_rms_norm p = {1e-5f};

    (void)state;
    if (!dev)
        skip();
    for (size_t i = 0; i < 3 * N_WIDTH; i++) {
        int64_t n = widths[i / 3];
        struct tensor *x = fx_random(fx_tensor(DT_F32, n, 5, 2, 1, 8), scales[i % 3]), *y;
        struct tensor *w = fx_random(fx_tensor(DT_F32, n, 1, 1, 1, 0), 2);
        struct tensor *b = fx_random(fx_tensor(DT_F32, n, 1, 1, 1, 0), 2);

        y = fx_op(OP_NORM, &p, 4, x, w, b, NULL);
        check(y, 4);
        check_threads(y);
        check(fx_op(OP_NORM, &p, 4, x, w, NULL, NULL), 4);
        check(fx_op(OP_NORM, &p, 4, x, NULL, NULL, NULL), 4);
        fx_end();
    }
}

static void test_clamp_soft_max(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (size_t i = 0; i < 3 * N_WIDTH; i++) {
        struct tensor *x = fx_tensor(DT_F32, widths[i / 3], 5, 2, 1, 8), *y;

        fx_random(x, i % 3 == 0 ? 1 : i % 3 == 1 ? 30 : 3e38f);
        y = fx_op(OP_CLAMP, &(struct param_clamp){-0.5f, 8}, 8, x, NULL, NULL, NULL);
        check(y, 0);
        y = fx_op(OP_SOFT_MAX, &(struct param_attn){.scale = 1}, sizeof(struct param_attn), x, NULL,
                  NULL, NULL);
        check(y, 4);
        check_threads(y);
        fx_end();
    }
}

/* ---- mixtures of experts ---- */

static void test_top_k(void **state)
{
    static const struct {
        int n;
        struct param_top_k p;
    } cases[] = {{1, {1, 0, 0}},  {6, {2, 0, 0}},   {6, {6, 0, 0}},
                 {60, {4, 0, 0}}, {256, {8, 8, 4}}, {6, {2, 3, 1}}};

    (void)state;
    if (!dev)
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int ties = 0; ties < 2; ties++) {
            struct tensor *x = fx_random(fx_tensor(DT_F32, cases[i].n, 7, 1, 1, 4), 4), *y;

            for (int j = 0; j < 7 * cases[i].n && ties; j++)
                *fx_f32(x, j / 7, j % 7) = roundf(*fx_f32(x, j / 7, j % 7));
            y = fx_op(OP_TOP_K, &cases[i].p, sizeof cases[i].p, x, NULL, NULL, NULL);
            check(y, 0);
            check_threads(y);
            fx_end();
        }
}

/* NaN never keeps a number out, and all places differ whatever the row holds. */
static void test_top_k_nan(void **state)
{
    struct tensor *x, *y;
    int32_t *id;

    (void)state;
    if (!dev)
        skip();
    x = fx_tensor(DT_F32, 4, 2, 1, 1, 0);
    memcpy(x->data, (float[]){NAN, 1, NAN, -2, NAN, NAN, NAN, NAN}, 32);
    y = fx_op(OP_TOP_K, &(struct param_top_k){3, 0, 0}, 12, x, NULL, NULL, NULL);
    fx_run(dev, y, 0);
    id = y->data;
    assert_true(id[0] == 1 && id[1] == 3 && id[2] == 0);
    assert_true(id[3] == 0 && id[4] == 1 && id[5] == 2);
    fx_end();
}

/* Experts of n_tok tokens, no token the same twice. */
static struct tensor *expert_ids(int n_used, int n_tok, int n_expert)
{
    struct tensor *ids = fx_tensor(DT_I32, n_used, n_tok, 1, 1, 8);

    for (int t = 0; t < n_tok; t++) {
        int first = (int)(fx_u32() % (unsigned)n_expert);
        for (int j = 0; j < n_used; j++)
            *(int32_t *)fx_f32(ids, j, t) = (first + 2 * j) % n_expert;
    }
    return ids;
}

static void mul_mat_id_case(enum dtype type, int64_t n_k, int n_tok, bool each)
{
    struct tensor *w = fx_random(fx_tensor(type, n_k, 37, 5, 1, 0), 1);
    struct tensor *x = fx_random(fx_tensor(DT_F32, n_k, each ? 2 : 1, n_tok, 1, 4), 1), *y;
    struct tensor *ids = expert_ids(2, n_tok, 5);

    y = fx_op(OP_MUL_MAT_ID, NULL, 0, w, x, ids, NULL);
    check(y, (double)((n_k < 768 ? n_k : 768) / 2 + n_k / 768) + 16);
    check_threads(y);
    for (int t = 0; t < n_tok; t++) /* the bits of the plain product with that expert */
        for (int j = 0; j < 2; j++) {
            struct tensor *one = part(w, 0, 37), *col = part(x, each ? j : 0, 1), *want;
            int32_t id = *(int32_t *)fx_f32(ids, j, t);

            one->data = (char *)w->data + (size_t)id * w->nb[2];
            one->ne[2] = col->ne[2] = 1;
            col->data = (char *)col->data + (size_t)t * x->nb[2];
            want = fx_op(OP_MUL_MAT, NULL, 0, one, col, NULL, NULL);
            fx_run(dev, want, 0);
            assert_memory_equal((char *)y->data + (size_t)t * y->nb[2] + (size_t)j * y->nb[1],
                                want->data, 37 * sizeof(float));
        }
    fx_end();
}

static void test_mul_mat_id(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (uint32_t t = 0; t < DT_COUNT; t++) {
        int64_t block = dtype_known(t) ? dtype_info((enum dtype)t)->block : 0;
        if (!block)
            continue;
        mul_mat_id_case((enum dtype)t, block < 32 ? 32 : block, 1, true);
        mul_mat_id_case((enum dtype)t, 1024, 9, false);
    }
    mul_mat_id_case(DT_F32, 7, 150, true); /* more than one tile of columns */
    mul_mat_id_case(DT_Q4_K, 256, 150, false);
}

static void test_experts(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (size_t i = 0; i < N_WIDTH; i++) {
        struct tensor *x = fx_random(fx_tensor(DT_F32, widths[i], 3, 6, 1, 8), 2);
        struct tensor *b = fx_random(fx_tensor(DT_F32, widths[i], 8, 1, 1, 4), 2);
        struct tensor *w = fx_random(fx_tensor(DT_F32, 3, 6, 1, 1, 8), 1), *y;
        struct tensor *probs = fx_random(fx_tensor(DT_F32, 8, 6, 1, 1, 0), 1);
        struct tensor *ids = expert_ids(3, 6, 8);

        y = fx_op(OP_ADD_ID, NULL, 0, x, b, ids, NULL);
        check(y, 1);
        check_threads(y);
        y = fx_op(OP_MIX, NULL, 0, x, w, NULL, NULL);
        check(y, 6);
        check_threads(y);
        check(fx_op(OP_MIX, NULL, 0, x, NULL, NULL, NULL), 4);
        check(fx_op(OP_PICK, NULL, 0, probs, ids, NULL, NULL), 0);
        for (int64_t j = 0; j < 48; j++) /* shares are of what is not below 0 */
            *fx_f32(probs, j % 8, j / 8) = fabsf(*fx_f32(probs, j % 8, j / 8));
        y = fx_op(OP_SHARES, &(struct param_shares){i % 2 ? 1e-4f : 10}, 4, probs, NULL, NULL,
                  NULL);
        check(y, 10);
        check_threads(y);
        fx_end();
    }
}

/* An expert that is not there fails the job by name. */
static void test_bad_experts(void **state)
{
    static const int32_t bad[] = {-1, 5, INT32_MAX, INT32_MIN};
    struct err e;

    (void)state;
    if (!dev)
        skip();
    for (size_t i = 0; i < 4; i++) {
        struct tensor *w = fx_tensor(DT_F32, 8, 4, 5, 1, 0), *b = fx_tensor(DT_F32, 8, 5, 1, 1, 0);
        struct tensor *x = fx_tensor(DT_F32, 8, 2, 3, 1, 0), *p = fx_tensor(DT_F32, 5, 3, 1, 1, 0);
        struct tensor *ids = expert_ids(2, 3, 5);
        struct tensor *y[] = {fx_op(OP_MUL_MAT_ID, NULL, 0, w, x, ids, NULL),
                              fx_op(OP_ADD_ID, NULL, 0, x, b, ids, NULL),
                              fx_op(OP_PICK, NULL, 0, p, ids, NULL, NULL)};

        *(int32_t *)fx_f32(ids, 1, 2) = bad[i];
        for (int k = 0; k < 3; k++) {
            assert_int_equal(fx_try(dev, y[k], 0, &e), ST_MODEL);
            assert_non_null(strstr(e.msg, "is not in 0..4"));
        }
        fx_end();
    }
}

static void test_rms_norm(void **state)
{
    static const float scales[] = {1, 1e-20f, 1e30f};

    (void)state;
    if (!dev)
        skip();
    for (size_t i = 0; i < 3 * N_WIDTH; i++) {
        int64_t n = widths[i / 3];
        struct tensor *x = fx_random(fx_tensor(DT_F32, n, 5, 2, 1, 8), scales[i % 3]);
        struct tensor *w = fx_random(fx_tensor(DT_F32, n, 1, 1, 1, 0), 2);
        check(fx_op(OP_RMS_NORM, &(struct param_rms_norm){1e-5f}, 4, x, w, NULL, NULL), 4);
        check(fx_op(OP_RMS_NORM, &(struct param_rms_norm){1e-6f}, 4, x, NULL, NULL, NULL), 4);
        fx_end();
    }
}

/* A result written exactly over its source. */
static void test_in_place(void **state)
{
    float a[40], b[40], want[40];
    struct tensor *ta, *tb, *y;

    (void)state;
    if (!dev)
        skip();
    for (int op = 0; op < 9; op++) {
        ta = fx_random(fx_tensor(DT_F32, 20, 1, 2, 1, 0), 2);
        tb = fx_random(fx_tensor(DT_F32, 20, 1, 2, 1, 0), 2);
        struct tensor *pos = fx_tensor(DT_I32, 2, 1, 1, 1, 0), *w = part(tb, 0, 1);
        struct param_rope rope = {ROPE_NEOX, 16, 1e4f, 1, 0, 1, 0, 0};
        ((int32_t *)pos->data)[1] = 7;
        w->ne[2] = 1;
        y = op == 0   ? fx_op(OP_ADD, NULL, 0, ta, tb, NULL, NULL)
            : op == 1 ? fx_op(OP_MUL, NULL, 0, ta, tb, NULL, NULL)
            : op == 2 ? fx_op(OP_SCALE, &(struct param_scale){2, 1}, 8, ta, NULL, NULL, NULL)
            : op == 3 ? fx_op(OP_GLU, &(struct param_glu){GLU_GEGLU}, 4, ta, tb, NULL, NULL)
            : op == 4 ? fx_op(OP_SOFTCAP, &(struct param_softcap){2}, 4, ta, NULL, NULL, NULL)
            : op == 5 ? fx_op(OP_RMS_NORM, &(struct param_rms_norm){1e-5f}, 4, ta, w, NULL, NULL)
            : op == 6 ? fx_op(OP_NORM, &(struct param_rms_norm){1e-5f}, 4, ta, w, w, NULL)
            : op == 7 ? fx_op(OP_UNARY, &(struct param_unary){UNARY_GELU}, 4, ta, NULL, NULL, NULL)
                      : fx_op(OP_ROPE, &rope, sizeof rope, ta, pos, NULL, NULL);
        fx_run(dev, y, 0);
        memcpy(want, y->data, sizeof want);
        memcpy(a, ta->data, sizeof a);
        memcpy(b, tb->data, sizeof b);
        for (int over = 0; over < (op == 0 || op == 1 || op == 3 ? 2 : 1); over++) {
            struct tensor *same = part(y, 0, 1); /* a node whose memory is a source's */
            memcpy(ta->data, a, sizeof a);
            memcpy(tb->data, b, sizeof b);
            same->view_src = same; /* keeps the fixture from poisoning the source */
            same->data = over ? tb->data : ta->data;
            fx_run(dev, same, 0);
            assert_memory_equal(same->data, want, sizeof want);
        }
        fx_end();
    }
}

/* ---- ROPE ---- */

static void test_rope(void **state)
{
    static const struct param_rope params[] = {
        {ROPE_NORM, 64, 1e4f, 1, 0, 1, 0, 0},
        {ROPE_NEOX, 64, 1e4f, 1, 0, 1, 0, 0},
        {ROPE_NORM, 48, 5e5f, 0.25f, 0, 1, 0, 0},
        {ROPE_NEOX, 2, 1e6f, 1, 0, 1.2f, 0, 0},
        {ROPE_NEOX, 64, 1e4f, 0.25f, 1, 1.139f, 8.4f, 20.1f},
        {ROPE_NORM, 64, 1e4f, 0.1f, 0.5f, 1, 9, 9},
    };
    static const int32_t positions[] = {0, 1, 2, 511, 100000, 1000000, 2147483647 / 2};

    (void)state;
    if (!dev)
        skip();
    for (size_t i = 0; i < 2 * sizeof params / sizeof params[0]; i++) {
        struct tensor *x = fx_random(fx_tensor(DT_F32, 64, 3, 7, 1, 8), 2), *f = NULL, *y;
        struct tensor *pos = fx_tensor(DT_I32, 7, 1, 1, 1, 0);
        memcpy(pos->data, positions, sizeof positions);
        if (i % 2) {
            f = fx_tensor(DT_F32, 32, 1, 1, 1, 0);
            for (int j = 0; j < 32; j++)
                *fx_f32(f, j, 0) = fx_uniform(1, 8);
        }
        y = fx_op(OP_ROPE, &params[i / 2], sizeof params[0], x, pos, f, NULL);
        check(y, 6);
        check_threads(y);
        fx_end();
    }
}

/* ---- rows ---- */

static void test_get_rows(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (uint32_t t = 0; t < DT_COUNT; t++) {
        int64_t block = dtype_known(t) ? dtype_info((enum dtype)t)->block : 0;
        for (int i = 0; block && i < 3; i++) {
            int64_t n = block == 1 ? widths[i + 2] : block * (i + 1);
            struct tensor *a = fx_random(fx_tensor((enum dtype)t, n, 9, 1, 1, i == 1 ? 6 : 0), 1);
            struct tensor *ids = fx_tensor(DT_I32, 5, 1, 1, 1, 0), *y;
            if (t == DT_F64 && i == 1)
                a->nb[1] -= 6; /* doubles stay aligned for the reference */
            memcpy(ids->data, (int32_t[]){8, 0, 3, 3, 1}, 20);
            y = fx_op(OP_GET_ROWS, NULL, 0, a, ids, NULL, NULL);
            check(y, 0); /* exact */
            check_threads(y);
            fx_end();
        }
    }
}

static void test_set_rows(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (uint32_t t = 0; t < DT_COUNT; t++)
        for (size_t i = 0; dtype_known(t) && quant_encoder((enum dtype)t) && i < N_WIDTH; i++) {
            int64_t block = dtype_info((enum dtype)t)->block;
            int64_t n = block > 1 ? block * (int64_t)(i + 1) : widths[i];
            size_t pad =
                dtype_info((enum dtype)t)->bytes == 8 ? 8 : 4; /* aligned for the reference */
            struct tensor *a = fx_random(fx_tensor((enum dtype)t, n, 9, 1, 1, pad), 1), *y;
            struct tensor *x = fx_random(fx_tensor(DT_F32, n, 5, 1, 1, 8), 70000);
            struct tensor *ids = fx_tensor(DT_I64, 5, 1, 1, 1, 0);
            memcpy(ids->data, (int64_t[]){8, 0, 3, 4, 3}, 40); /* 3 twice: the later wins */
            y = fx_op(OP_SET_ROWS, NULL, 0, a, x, ids, NULL);
            check(y, 0);
            check_threads(y);
            fx_end();
        }
}

/* A row that does not exist is refused by name, and nothing is written. */
static void test_bad_rows(void **state)
{
    static const int64_t bad[] = {-1, 9, INT64_MAX, INT64_MIN};
    struct err e;

    (void)state;
    if (!dev)
        skip();
    for (int i = 0; i < 4; i++)
        for (int n_threads = 1; n_threads <= 3; n_threads++) {
            struct tensor *a = fx_random(fx_tensor(DT_F32, 9000, 9, 1, 1, 0), 1), *y;
            struct tensor *x = fx_random(fx_tensor(DT_F32, 9000, 2, 1, 1, 0), 1);
            struct tensor *ids = fx_tensor(DT_I32, 2, 1, 1, 1, 0),
                          *ids64 = fx_tensor(DT_I64, 2, 1, 1, 1, 0);
            float first = *fx_f32(a, 0, 0);

            ((int32_t *)ids->data)[1] = (int32_t[]){-1, 9, INT32_MAX, INT32_MIN}[i];
            ((int64_t *)ids64->data)[1] = bad[i];
            y = fx_op(OP_GET_ROWS, NULL, 0, a, ids, NULL, NULL);
            assert_int_equal(fx_try(dev, y, n_threads, &e), ST_MODEL);
            assert_non_null(strstr(e.msg, y->name));
            y = fx_op(OP_SET_ROWS, NULL, 0, a, x, ids64, NULL);
            assert_int_equal(fx_try(dev, y, n_threads, &e), ST_MODEL);
            assert_non_null(strstr(e.msg, a->name));
            assert_true(*fx_f32(a, 0, 0) == first);
            fx_end();
        }
}

static void test_concat(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (size_t i = 0; i < N_WIDTH; i++) {
        struct tensor *a = fx_random(fx_tensor(DT_F32, widths[i], 5, 2, 3, 8), 1);
        struct tensor *b = fx_random(fx_tensor(DT_F32, 7, 5, 2, 3, 4), 1), *y;

        y = fx_op(OP_CONCAT, NULL, 0, a, b, NULL, NULL);
        check(y, 0);
        check_threads(y);
        check(fx_op(OP_CONCAT, NULL, 0, b, a, NULL, NULL), 0);
        fx_end();
    }
}

static void test_cont(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (uint32_t t = 0; t < DT_COUNT; t++) {
        int64_t block = dtype_known(t) ? dtype_info((enum dtype)t)->block : 0;
        struct tensor *a, *p;
        size_t pad;
        if (!block)
            continue;
        pad = block > 1 ? 6 : dtype_info((enum dtype)t)->bytes;
        a = fx_random(fx_tensor((enum dtype)t, 2 * block, 5, 3, 2, pad), 1);
        check(fx_op(OP_CONT, NULL, 0, a, NULL, NULL, NULL), 0);
        p = fx_op(OP_PERMUTE, (int32_t[]){0, 2, 3, 1}, 16, a, NULL, NULL, NULL);
        check(fx_op(OP_CONT, NULL, 0, p, NULL, NULL, NULL), 0);
        if (block == 1) {
            p = fx_op(OP_PERMUTE, (int32_t[]){1, 0, 3, 2}, 16, a, NULL, NULL, NULL);
            check(fx_op(OP_CONT, NULL, 0, p, NULL, NULL, NULL), 0);
        }
        fx_end();
    }
}

/* ---- FLASH_ATTN ---- */

struct attn_shape {
    int d, dv, n_head, n_head_kv, n_kv, n_tok;
    enum dtype k, v, mask;
};

/* Causal mask: token i sees the first n_kv - n_tok + 1 + i positions, less some holes. */
static struct tensor *causal_mask(const struct attn_shape *s)
{
    struct tensor *m = fx_tensor(s->mask, s->n_kv, s->n_tok, 1, 1, 8);

    for (int i = 0; i < s->n_tok; i++)
        for (int j = 0; j < s->n_kv; j++) {
            bool seen = j <= s->n_kv - s->n_tok + i && !(j % 7 == 3 && s->n_kv > 20);
            float f = seen ? (j % 5 == 0 ? -0.5f : 0) : -INFINITY;
            char *p = (char *)m->data + (size_t)i * m->nb[1] + (size_t)j * m->nb[0];
            if (s->mask == DT_F32)
                memcpy(p, &f, 4);
            else
                memcpy(p, &(uint16_t){f32_to_f16(f)}, 2);
        }
    return m;
}

/* K or V as in a cache: heads of a position side by side, positions a padded row apart. */
static struct tensor *kv_of(enum dtype type, int d, int n_head, int n_kv)
{
    struct tensor *x = fx_random(fx_tensor(DT_F32, (int64_t)d * n_head, n_kv, 1, 1, 0), 1);
    struct tensor *t = fx_tensor(type, (int64_t)d * n_head, n_kv, 1, 1, 8), *v;

    for (int i = 0; i < n_kv; i++)
        quant_encoder(type)(fx_f32(x, 0, i), (char *)t->data + (size_t)i * t->nb[1], t->ne[0]);
    v = part(t, 0, n_kv);
    v->ne[0] = d;
    v->ne[1] = n_head;
    v->ne[2] = n_kv;
    v->nb[2] = t->nb[1];
    v->nb[1] = dtype_row_bytes(type, d);
    v->nb[3] = v->nb[2] * (size_t)n_kv;
    return v;
}

/* Bits of `how`: a softcap, ALiBi, sinks. */
enum { CAP = 1, ALIBI = 2, SINKS = 4, N_HOW = 8 };

static struct param_attn attn_params(int how, float scale)
{
    return (struct param_attn){
        .scale = scale, .softcap = how & CAP ? 0.75f : 0.0f, .max_bias = how & ALIBI ? 8.0f : 0.0f};
}

/* Below, among and above the scores, none at all; NULL where not asked for. */
static struct tensor *attn_sinks(int how, int64_t n_head)
{
    struct tensor *t = how & SINKS ? fx_tensor(DT_F32, n_head, 1, 1, 1, 0) : NULL;

    for (int64_t h = 0; t && h < n_head; h++)
        *fx_f32(t, h, 0) = h % 4 == 3 ? -INFINITY : (float)(h % 4 * 4) - 4;
    return t;
}

static struct tensor *attn(struct tensor *q, struct tensor *k, struct tensor *v,
                           struct tensor *mask, int how)
{
    struct param_attn p = attn_params(how, 1 / sqrtf((float)q->ne[0]));
    struct tensor *t = fx_op(OP_FLASH_ATTN, &p, sizeof p, q, k, v, mask);
    struct err e;

    t->src[4] = attn_sinks(how, q->ne[1]);
    assert_int_equal(op_shape(t, &e), ST_OK);
    return t;
}

static struct tensor *soft_max(struct tensor *x, struct tensor *mask, int how)
{
    struct param_attn p = attn_params(how, 0.5f);

    return fx_op(OP_SOFT_MAX, &p, sizeof p, x, mask, attn_sinks(how, x->ne[2]), NULL);
}

static const struct attn_shape attn_shapes[] = {
    {64, 64, 9, 3, 200, 5, DT_F16, DT_F16, DT_F16},
    {64, 64, 4, 4, 64, 1, DT_F32, DT_F32, DT_F32},
    {16, 16, 4, 1, 65, 33, DT_F16, DT_F16, DT_F32},
    {80, 48, 6, 2, 130, 17, DT_F32, DT_F32, DT_F16},
    {33, 21, 2, 2, 63, 2, DT_F32, DT_F32, DT_F32},
    {256, 256, 4, 1, 256, 3, DT_F16, DT_F16, DT_F16},
    {64, 64, 50, 1, 3, 2, DT_F16, DT_F16, DT_F16},
    {1, 1, 1, 1, 1, 1, DT_F32, DT_F32, DT_F32},
    {64, 32, 6, 3, 130, 7, DT_Q8_0, DT_Q8_0, DT_F16},
    {96, 64, 4, 2, 70, 19, DT_Q4_0, DT_F16, DT_F32},
    {32, 32, 4, 1, 200, 3, DT_BF16, DT_Q4_0, DT_F16},
    {48, 64, 3, 3, 65, 2, DT_BF16, DT_BF16, DT_F16},
};
#define N_ATTN (sizeof attn_shapes / sizeof attn_shapes[0])

static void test_attn(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (size_t i = 0; i < N_HOW * N_ATTN; i++) {
        const struct attn_shape *s = &attn_shapes[i / N_HOW];
        struct tensor *q = fx_random(fx_tensor(DT_F32, s->d, s->n_head, s->n_tok, 1, 8), 3);
        struct tensor *y =
            attn(q, kv_of(s->k, s->d, s->n_head_kv, s->n_kv),
                 kv_of(s->v, s->dv, s->n_head_kv, s->n_kv), causal_mask(s), (int)(i % N_HOW));
        check(y, 60);
        check_threads(y);
        fx_end();
    }
}

/* Token by token, and behind padding full of NaN: the same bits. */
static void test_attn_invariance(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (size_t i = 0; i < 2 * N_ATTN; i++) {
        struct attn_shape s = attn_shapes[i / 2], padded = s;
        int how = i % 2 ? CAP | ALIBI | SINKS : 0;
        struct tensor *q = fx_random(fx_tensor(DT_F32, s.d, s.n_head, s.n_tok, 1, 8), 3);
        struct tensor *k, *v, *mask, *wide, *y, *one;

        padded.n_kv = s.n_kv + 100;
        k = kv_of(s.k, s.d, s.n_head_kv, padded.n_kv);
        v = kv_of(s.v, s.dv, s.n_head_kv, padded.n_kv);
        memset((char *)k->data + (size_t)s.n_kv * k->nb[2], 0xff, 100 * k->nb[2] - 8); /* NaN */
        memset((char *)v->data + (size_t)s.n_kv * v->nb[2], 0xff, 100 * v->nb[2] - 8);
        mask = causal_mask(&s);
        wide = fx_tensor(s.mask, padded.n_kv, s.n_tok, 1, 1, 0);
        for (int t = 0; t < s.n_tok; t++)
            for (int j = 0; j < padded.n_kv; j++) {
                char *p = (char *)wide->data + (size_t)t * wide->nb[1] + (size_t)j * wide->nb[0];
                if (j < s.n_kv)
                    memcpy(p,
                           (char *)mask->data + (size_t)t * mask->nb[1] + (size_t)j * mask->nb[0],
                           mask->nb[0]);
                else if (s.mask == DT_F32)
                    memcpy(p, &(float){-INFINITY}, 4);
                else
                    memcpy(p, &(uint16_t){0xfc00}, 2);
            }
        one = attn(q, k, v, wide, how);
        fx_run(dev, one, 0);
        k->ne[2] = v->ne[2] = s.n_kv;
        y = attn(q, k, v, mask, how);
        fx_run(dev, y, 0);
        assert_memory_equal(one->data, y->data, tensor_bytes(y));
        for (int t = 0; t < s.n_tok; t++) {
            struct tensor *q1 = part(q, 0, s.n_head), *m1 = part(mask, t, 1);
            q1->data = (char *)q->data + (size_t)t * q->nb[2];
            q1->ne[2] = 1;
            one = attn(q1, k, v, m1, how);
            fx_run(dev, one, 0);
            assert_memory_equal(one->data, (char *)y->data + (size_t)t * y->nb[2],
                                tensor_bytes(one));
        }
        fx_end();
    }
}

/* Rows of K and V in any order, with the cells that say which: the same bits as in order. */
static void test_attn_cells(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (size_t i = 0; i < N_ATTN; i++) {
        const struct attn_shape *s = &attn_shapes[i];
        struct tensor *q = fx_random(fx_tensor(DT_F32, s->d, s->n_head, s->n_tok, 1, 8), 3);
        struct tensor *k = kv_of(s->k, s->d, s->n_head_kv, s->n_kv);
        struct tensor *v = kv_of(s->v, s->dv, s->n_head_kv, s->n_kv), *mask = causal_mask(s);
        struct tensor *k2 = kv_of(s->k, s->d, s->n_head_kv, s->n_kv);
        struct tensor *v2 = kv_of(s->v, s->dv, s->n_head_kv, s->n_kv);
        struct tensor *cells = fx_tensor(DT_I32, s->n_kv, 1, 1, 1, 0);
        struct tensor *y = attn(q, k, v, mask, (int)(i % N_HOW)), *y2;
        struct err e;

        for (int j = 0; j < s->n_kv; j++) {
            int c = (int)(((int64_t)j * 64 + 17) % s->n_kv); /* not onto for an even n_kv */

            c = s->n_kv % 2 ? c : (j + s->n_kv / 3) % s->n_kv;
            ((int32_t *)cells->data)[j] = c;
            memcpy((char *)k2->data + (size_t)c * k2->nb[2], (char *)k->data + (size_t)j * k->nb[2],
                   dtype_row_bytes(s->k, (int64_t)s->d * s->n_head_kv));
            memcpy((char *)v2->data + (size_t)c * v2->nb[2], (char *)v->data + (size_t)j * v->nb[2],
                   dtype_row_bytes(s->v, (int64_t)s->dv * s->n_head_kv));
        }
        fx_run(dev, y, 0);
        y2 = attn(q, k2, v2, mask, (int)(i % N_HOW));
        y2->src[5] = cells;
        assert_int_equal(op_shape(y2, &e), ST_OK);
        check(y2, 60);
        assert_memory_equal(y->data, y2->data, tensor_bytes(y));
        check_threads(y2);
        cells->ne[0]++;
        assert_int_not_equal(op_shape(y2, &e), ST_OK);
        cells->ne[0]--;
        cells->type = DT_F32;
        assert_int_not_equal(op_shape(y2, &e), ST_OK);
        fx_end();
    }
}

static struct tensor *attn_of_cells(struct tensor *q, struct tensor *k, struct tensor *v,
                                    struct tensor *mask, struct tensor *cells, int how)
{
    struct param_attn p = attn_params(how, 1 / sqrtf((float)q->ne[0]));
    struct tensor *src[6] = {q, k, v, mask, attn_sinks(how, q->ne[1]), cells};

    return fx_op_n(OP_FLASH_ATTN, &p, sizeof p, src, 6);
}

/* Two sequences of n_tok tokens with rows of their own in one K and V: the same bits as each alone. */
static void test_attn_sequences(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (size_t i = 0; i < N_ATTN; i++) {
        const struct attn_shape *s = &attn_shapes[i];
        struct attn_shape both = *s;
        struct tensor *k = kv_of(s->k, s->d, s->n_head_kv, 3 * s->n_kv);
        struct tensor *v = kv_of(s->v, s->dv, s->n_head_kv, 3 * s->n_kv);
        struct tensor *cells = fx_tensor(DT_I32, s->n_kv, 2, 1, 1, 0), *q, *mask, *y;
        int how = (int)(i % N_HOW);
        struct err e;

        both.n_tok = 2 * s->n_tok;
        q = fx_random(fx_tensor(DT_F32, s->d, s->n_head, both.n_tok, 1, 8), 3);
        mask = causal_mask(&both);
        for (int j = 0; j < 2 * s->n_kv; j++) /* from the end, and from the middle on */
            ((int32_t *)cells->data)[j] = j < s->n_kv ? 3 * s->n_kv - 1 - j : j;
        y = attn_of_cells(q, k, v, mask, cells, how);
        check(y, 60);
        check_threads(y);
        for (int seq = 0; seq < 2; seq++) {
            struct tensor *q1 = part(q, 0, s->n_head), *one;

            q1->data = (char *)q->data + (size_t)(seq * s->n_tok) * q->nb[2];
            q1->ne[2] = s->n_tok;
            one = attn_of_cells(q1, k, v, part(mask, seq * s->n_tok, s->n_tok), part(cells, seq, 1),
                                how);
            fx_run(dev, one, 0);
            assert_memory_equal(one->data, (char *)y->data + (size_t)(seq * s->n_tok) * y->nb[2],
                                tensor_bytes(one));
        }
        cells->ne[1] = 3; /* does not divide n_tok, unless it is a multiple of 3 */
        if (both.n_tok % 3)
            assert_int_not_equal(op_shape(y, &e), ST_OK);
        cells->ne[1] = 2;
        fx_end();
    }
}

/* Scores of several sequences, each with a mask of its own. */
static void test_soft_max_sequences(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (int how = 0; how < N_HOW; how++) {
        const struct attn_shape s = {0, 0, 0, 0, 70, 15, DT_F32, DT_F32, DT_F16};
        struct tensor *x = fx_random(fx_tensor(DT_F32, 70, 5, 4, 3, 8), 3);
        struct tensor *mask = causal_mask(&s), *y;
        struct err e;

        mask->ne[1] = 5;
        mask->ne[3] = 3;
        mask->nb[3] = 5 * mask->nb[1];
        y = soft_max(x, mask, how);
        check(y, 60);
        check_threads(y);
        mask->ne[3] = 1;
        assert_int_not_equal(op_shape(y, &e), ST_OK);
        mask->ne[3] = 3;
        fx_end();
    }
}

/*
 * A query without any position gives zeros; NaN in a seen position gives NaN, in an unseen one nothing; a
 * sink that is NaN spoils its head alone.
 */
static void test_attn_masked(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (int how = 0; how < N_HOW; how++) {
        struct tensor *q = fx_random(fx_tensor(DT_F32, 16, 2, 3, 1, 0), 1), *y;
        struct tensor *k = kv_of(DT_F32, 16, 1, 100), *v = kv_of(DT_F32, 16, 1, 100);
        struct tensor *mask = fx_tensor(DT_F32, 100, 3, 1, 1, 0);

        for (int j = 0; j < 100; j++) {
            *fx_f32(mask, j, 0) = j < 50 ? 0 : -INFINITY;
            *fx_f32(mask, j, 1) = -INFINITY;
            *fx_f32(mask, j, 2) = 0;
        }
        y = attn(q, k, v, mask, how);
        check(y, 60);
        *(float *)((char *)v->data + 70 * v->nb[2]) = INFINITY;
        *(float *)((char *)k->data + 80 * k->nb[2]) = NAN;
        if (how & SINKS)
            *fx_f32(y->src[4], 1, 0) = NAN;
        fx_run(dev, y, 0);
        for (int i = 0; i < 16; i++) {
            assert_true(isfinite(((float *)y->data)[i]));
            assert_true(isnan(((float *)y->data)[16 + i]) == ((how & SINKS) != 0));
            assert_true(((float *)y->data)[32 + i] == 0);
            assert_true(isnan(((float *)y->data)[64 + i]));
        }
        fx_end();
    }
}

/* Compute t with its memory over a source's. */
static void run_over(struct tensor *t, struct tensor *src)
{
    t->view_src = t; /* keeps the fixture from poisoning the source */
    t->data = src->data;
    fx_run(dev, t, 0);
}

/* Over the mask, where that has the same layout. */
static void test_soft_max_over_mask(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (int how = 0; how < N_HOW; how++) {
        struct attn_shape s = {.n_kv = 200, .n_tok = 5, .mask = DT_F32};
        struct tensor *x = fx_random(fx_tensor(DT_F32, 200, 5, 1, 1, 0), 6), *y, *over;
        struct tensor *mask = causal_mask(&s), *tight = fx_tensor(DT_F32, 200, 5, 1, 1, 0);

        for (int t = 0; t < 5; t++)
            memcpy(fx_f32(tight, 0, t), fx_f32(mask, 0, t), 200 * sizeof(float));
        y = soft_max(x, tight, how);
        fx_run(dev, y, 0);
        over = soft_max(x, tight, how);
        run_over(over, tight);
        assert_memory_equal(over->data, y->data, tensor_bytes(y));
        fx_end();
    }
}

/* As one step of attention; masked positions behind change nothing, and it may be done in place. */
static void test_attn_soft_max(void **state)
{
    static const int n_kv[] = {1, 7, 64, 200};

    (void)state;
    if (!dev)
        skip();
    for (int i = 0; i < 4 * N_HOW; i++) {
        struct attn_shape s = {.n_kv = n_kv[i / N_HOW], .n_tok = n_kv[i / N_HOW] < 5 ? 1 : 5};
        struct tensor *x, *y, *wide, *z, *mask;

        s.mask = i % 2 ? DT_F32 : DT_F16;
        x = fx_random(fx_tensor(DT_F32, s.n_kv, s.n_tok, 6, 1, 4), 6);
        y = soft_max(x, causal_mask(&s), i % N_HOW);
        check(y, 8);
        check_threads(y);
        wide = fx_random(fx_tensor(DT_F32, s.n_kv + 256, s.n_tok, 6, 1, 0), 6);
        mask = fx_tensor(DT_F32, s.n_kv + 256, s.n_tok, 1, 1, 0);
        for (int64_t r = 0; r < 6 * s.n_tok; r++)
            memcpy((char *)wide->data + (size_t)r * wide->nb[1],
                   (char *)x->data + (size_t)r * x->nb[1], (size_t)s.n_kv * 4);
        for (int64_t t = 0; t < s.n_tok; t++)
            for (int64_t j = 0; j < s.n_kv + 256; j++)
                *fx_f32(mask, j, t) = j < s.n_kv ? (float)ref_at(y->src[1], j, t, 0, 0) : -INFINITY;
        z = soft_max(wide, mask, i % N_HOW);
        run_over(z, wide);
        for (int64_t r = 0; r < 6 * s.n_tok; r++)
            assert_memory_equal((char *)z->data + (size_t)r * z->nb[1],
                                (char *)y->data + (size_t)r * y->nb[1], (size_t)s.n_kv * 4);
        fx_end();
    }
}

/* As test_attn_masked. */
static void test_attn_soft_max_masked(void **state)
{
    (void)state;
    if (!dev)
        skip();
    for (int how = 0; how < N_HOW; how++) {
        struct tensor *x = fx_random(fx_tensor(DT_F32, 70, 3, 2, 1, 0), 3), *y;
        struct tensor *mask = fx_tensor(DT_F32, 70, 3, 1, 1, 0);

        for (int j = 0; j < 70; j++) {
            *fx_f32(mask, j, 0) = j < 50 ? 0 : -INFINITY;
            *fx_f32(mask, j, 1) = -INFINITY;
        }
        y = soft_max(x, mask, how);
        check(y, 8);
        for (int t = 0; t < 3; t++)
            *fx_f32(x, 60, t) = NAN;
        if (how & SINKS)
            *fx_f32(y->src[2], 1, 0) = NAN;
        fx_run(dev, y, 0);
        for (int j = 0; j < 70; j++) {
            assert_true(isfinite(*fx_f32(y, j, 0)) && *fx_f32(y, j, 1) == 0);
            assert_true(isnan(*fx_f32(y, j, 2)));
            assert_true(j < 50 || *fx_f32(y, j, 0) == 0);
            assert_int_equal(isnan(*fx_f32(y, j, 3)) != 0, (how & SINKS) != 0);
        }
        fx_end();
    }
}

/* ---- the table itself ---- */

/* Every op that computes something is supported and tested above; its kernels have names. */
static void test_table(void **state)
{
    static const enum op tested[] = {OP_CONT,     OP_GET_ROWS, OP_SET_ROWS,   OP_ADD,
                                     OP_MUL,      OP_SCALE,    OP_GLU,        OP_RMS_NORM,
                                     OP_ROPE,     OP_MUL_MAT,  OP_FLASH_ATTN, OP_SOFTCAP,
                                     OP_NORM,     OP_UNARY,    OP_CLAMP,      OP_SOFT_MAX,
                                     OP_MIX,      OP_SHARES,   OP_MUL_MAT_ID, OP_ADD_ID,
                                     OP_PICK,     OP_TOP_K,    OP_CONCAT,     OP_DIV,
                                     OP_SSM_CONV, OP_SSM_SCAN, OP_DELTA_NET, /* test_recurrent.c */
                                     OP_ARGMAX,   OP_MASK_BITS /* test_choice.c */};

    (void)state;
    if (!dev)
        skip();
    for (int op = 0; op < OP_COUNT; op++) {
        struct tensor src = {.type = DT_F16}, t = {.op = (enum op)op, .src = {&src, &src}};
        bool found = op_info((enum op)op)->flags & OPF_VIEW;
        for (size_t i = 0; i < sizeof tested / sizeof tested[0]; i++)
            found |= (int)tested[i] == op;
        if (!found)
            fail_msg("no test for %s", op_name((enum op)op));
        if (!(op_info((enum op)op)->flags & OPF_VIEW))
            assert_true(strlen(device_kernel_name(dev, &t)) > 0);
    }
}

/* ---- speed ---- */

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void bench_product(enum dtype type, int64_t n_k, int64_t n_row, int64_t n_col)
{
    struct tensor *w = fx_random(fx_tensor(type, n_k, n_row, 1, 1, 0), 1);
    struct tensor *y = mul_mat(w, fx_random(fx_tensor(DT_F32, n_k, n_col, 1, 1, 0), 1));
    size_t n_work = device_work_size(dev, y);
    void *work = mem_aligned(n_work);
    int32_t uses = 1;
    struct span s = {.nodes = &y, .uses = &uses, .n = 1};
    double best = 1e9;

    for (int i = 0; i < 10; i++) {
        double t = seconds();
        device_compute(dev, &s, work, n_work, NULL);
        t = seconds() - t;
        best = t < best ? t : best;
    }
    printf("%-26s %6lld x %-4lld x %-4lld %8.1f GFLOP/s %7.2f GB/s of weights\n",
           device_kernel_name(dev, y), (long long)n_row, (long long)n_k, (long long)n_col,
           2e-9 * (double)n_k * (double)n_row * (double)n_col / best,
           1e-9 * (double)tensor_bytes(w) / best);
    mem_free(work);
    fx_end();
}

/* `only`: name of one type, or NULL. */
static int bench(const char *only)
{
    static const int64_t shape[][3] = {{576, 576, 512}, {576, 1536, 1}, {576, 49152, 1}};

    for (int i = 0; i < cpu_isa_count(); i++) {
        if (!cpu_isa_at(i)->available() ||
            cpu_open(&dev, &(struct device_options){.isa = cpu_isa_at(i)->name}, NULL))
            continue;
        for (uint32_t t = 0; t < DT_COUNT; t++)
            for (int j = 0; dtype_known(t) && dtype_info((enum dtype)t)->block && j < 3; j++) {
                int64_t block = dtype_info((enum dtype)t)->block, n_k = shape[j][0];
                if (only && strcasecmp(only, dtype_name((enum dtype)t)) != 0)
                    continue;
                bench_product((enum dtype)t, n_k % block ? 512 : n_k, shape[j][1], shape[j][2]);
            }
        close_isa(NULL);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static void (*const tests[])(void **) = {
        test_table,
        test_mul_mat_types,
        test_mul_mat_tiles,
        test_mul_mat_planes,
        test_mul_mat_turned,
        test_mul_mat_groups,
        test_mul_mat_extremes,
        test_far_rows,
        test_add_mul_div,
        test_scale,
        test_softcap,
        test_glu,
        test_unary,
        test_norm,
        test_clamp_soft_max,
        test_top_k,
        test_top_k_nan,
        test_mul_mat_id,
        test_experts,
        test_bad_experts,
        test_rms_norm,
        test_in_place,
        test_rope,
        test_get_rows,
        test_set_rows,
        test_bad_rows,
        test_concat,
        test_cont,
        test_attn,
        test_attn_invariance,
        test_attn_cells,
        test_attn_sequences,
        test_soft_max_sequences,
        test_attn_masked,
        test_soft_max_over_mask,
        test_attn_soft_max,
        test_attn_soft_max_masked,
    };
    static const char *const names[] = {
        "table",
        "mul_mat_types",
        "mul_mat_tiles",
        "mul_mat_planes",
        "mul_mat_turned",
        "mul_mat_groups",
        "mul_mat_extremes",
        "far_rows",
        "add_mul_div",
        "scale",
        "softcap",
        "glu",
        "unary",
        "norm",
        "clamp_soft_max",
        "top_k",
        "top_k_nan",
        "mul_mat_id",
        "experts",
        "bad_experts",
        "rms_norm",
        "in_place",
        "rope",
        "get_rows",
        "set_rows",
        "bad_rows",
        "concat",
        "cont",
        "attn",
        "attn_invariance",
        "attn_cells",
        "attn_sequences",
        "soft_max_sequences",
        "attn_masked",
        "soft_max_over_mask",
        "attn_soft_max",
        "attn_soft_max_masked",
    };
    enum { N = sizeof tests / sizeof tests[0] };
    int n_failed = 0;

    if (argc > 1 && strcmp(argv[1], "--bench") == 0)
        return bench(argc > 2 ? argv[2] : NULL);
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
