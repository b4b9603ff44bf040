/*
 * ADD, MUL, DIV, SCALE, SOFTCAP, CLAMP, UNARY, GLU: rows are divided among the threads. A result may lie exactly
 * over a source.
 */
#include <math.h>

#include "backends/cpu/ops.h"

/*
 * Iterations are independent although y may be one of the sources: same element, read before
 * written.
 */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* ---- ADD, MUL, DIV ---- */

static bool binary_supports(const struct tensor *t)
{
    return f32_rows(t) && f32_rows(t->src[0]) && f32_rows(t->src[1]);
}

static void add_row(const float *a, const float *b, float *y, int64_t n)
{
    INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

static void mul_row(const float *a, const float *b, float *y, int64_t n)
{
    INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] * b[i];
}

static void add_number(const float *a, float b, float *y, int64_t n)
{
    INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b;
}

static void mul_number(const float *a, float b, float *y, int64_t n)
{
    INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] * b;
}

static void div_row(const float *a, const float *b, float *y, int64_t n)
{
    INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] / b[i];
}

static void div_number(const float *a, float b, float *y, int64_t n)
{
    INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] / b;
}

/* By op: b as long as a row of a, or a part of it; b a single number. */
static void (*const by_row[])(const float *, const float *, float *, int64_t) = {
    [OP_ADD] = add_row, [OP_MUL] = mul_row, [OP_DIV] = div_row};
static void (*const by_number[])(const float *, float, float *, int64_t) = {
    [OP_ADD] = add_number, [OP_MUL] = mul_number, [OP_DIV] = div_number};

static void binary_run(const struct cpu_task *k, const struct tensor *t)
{
    const struct tensor *a = t->src[0], *b = t->src[1];
    int64_t from, to, n = b->ne[0];

    task_range(k, tensor_rows(t), &from, &to);
    for (int64_t r = from; r < to; r++) {
        int64_t i1 = r % t->ne[1], i2 = r / t->ne[1] % t->ne[2], i3 = r / t->ne[1] / t->ne[2];
        const float *pa = row_of(a, i1, i2, i3);
        const float *pb = row_of(b, i1 % b->ne[1], i2 % b->ne[2], i3 % b->ne[3]);
        float *y = row_of(t, i1, i2, i3);

        if (n == 1) {
            by_number[t->op](pa, *pb, y, t->ne[0]);
            continue;
        }
        for (int64_t i = 0; i < t->ne[0]; i += n)
            by_row[t->op](pa + i, pb, y + i, n);
    }
}

const struct cpu_op cpu_op_add = {.supports = binary_supports, .run = binary_run};
const struct cpu_op cpu_op_mul = {.supports = binary_supports, .run = binary_run};
const struct cpu_op cpu_op_div = {.supports = binary_supports, .run = binary_run};

/* ---- SCALE ---- */

static bool scale_supports(const struct tensor *t)
{
    return f32_rows(t) && f32_rows(t->src[0]);
}

static void scale_run(const struct cpu_task *k, const struct tensor *t)
{
    struct param_scale p;
    int64_t from, to;

    op_param_get(t, &p);
    task_range(k, tensor_rows(t), &from, &to);
    for (int64_t r = from; r < to; r++) {
        const float *x = row_at(t->src[0], r);
        float *y = row_at(t, r);
        INDEPENDENT
        for (int64_t i = 0; i < t->ne[0]; i++)
            y[i] = x[i] * p.s + p.bias;
    }
}

const struct cpu_op cpu_op_scale = {.supports = scale_supports, .run = scale_run};

/* ---- SOFTCAP ---- */

static void softcap_run(const struct cpu_task *k, const struct tensor *t)
{
    struct param_softcap p;
    int64_t from, to;

    op_param_get(t, &p);
    task_range(k, tensor_rows(t), &from, &to);
    for (int64_t r = from; r < to; r++)
        k->isa->kernels->softcap(row_at(t->src[0], r), row_at(t, r), 1, p.cap, t->ne[0]);
}

const struct cpu_op cpu_op_softcap = {
    .supports = scale_supports, .run = softcap_run, .isa_in_name = true};

/* ---- CLAMP ---- */

static void clamp_run(const struct cpu_task *k, const struct tensor *t)
{
    struct param_clamp p;
    int64_t from, to;

    op_param_get(t, &p);
    task_range(k, tensor_rows(t), &from, &to);
    for (int64_t r = from; r < to; r++) {
        const float *x = row_at(t->src[0], r);
        float *y = row_at(t, r);
        INDEPENDENT
        for (int64_t i = 0; i < t->ne[0]; i++)
            y[i] = x[i] < p.lo ? p.lo : x[i] > p.hi ? p.hi : x[i]; /* NaN stays */
    }
}

const struct cpu_op cpu_op_clamp = {.supports = scale_supports, .run = clamp_run};

/* ---- UNARY ---- */

static bool unary_supports(const struct tensor *t)
{
    struct param_unary p;

    op_param_get(t, &p);
    return p.kind >= 0 && p.kind < UNARY_COUNT && scale_supports(t);
}

static void unary_run(const struct cpu_task *k, const struct tensor *t)
{
    struct param_unary p;
    int64_t from, to;

    op_param_get(t, &p);
    task_range(k, tensor_rows(t), &from, &to);
    for (int64_t r = from; r < to; r++)
        k->isa->kernels->unary[p.kind](row_at(t->src[0], r), row_at(t, r), t->ne[0]);
}

const struct cpu_op cpu_op_unary = {
    .supports = unary_supports, .run = unary_run, .isa_in_name = true};

/* ---- GLU ---- */

static bool glu_supports(const struct tensor *t)
{
    struct param_glu p;

    op_param_get(t, &p);
    return p.kind >= 0 && p.kind < GLU_COUNT && f32_rows(t) && f32_rows(t->src[0]) &&
           f32_rows(t->src[1]);
}

static void glu_run(const struct cpu_task *k, const struct tensor *t)
{
    struct param_glu p;
    int64_t from, to;

    op_param_get(t, &p);
    task_range(k, tensor_rows(t), &from, &to);
    for (int64_t r = from; r < to; r++)
        k->isa->kernels->glu[p.kind](row_at(t->src[0], r), row_at(t->src[1], r), row_at(t, r),
                                     t->ne[0]);
}

const struct cpu_op cpu_op_glu = {.supports = glu_supports, .run = glu_run, .isa_in_name = true};
