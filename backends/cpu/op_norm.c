/*
 * NORM, RMS_NORM. Sums are taken in double, in eight partial sums: squares of large floats do not
 * overflow, and the result is the same on every instruction set.
 */
#include <math.h>

#include "backends/cpu/ops.h"

static bool is_vector(const struct tensor *w)
{
    return !w || (w->type == DT_F32 && w->nb[0] == 4);
}

static bool norm_supports(const struct tensor *t)
{
    return f32_rows(t) && f32_rows(t->src[0]) && is_vector(t->src[1]) && is_vector(t->src[2]);
}

static double sum(const float *x, int64_t n)
{
    double part[8] = {0}, sum = 0;
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++)
            part[l] += (double)x[i + l];
    for (; i < n; i++)
        sum += (double)x[i];
    for (int l = 0; l < 8; l++)
        sum += part[l];
    return sum;
}

/* Of x - mean. */
static double sum_of_squares(const float *x, double mean, int64_t n)
{
    double part[8] = {0}, sum = 0;
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++)
            part[l] += ((double)x[i + l] - mean) * ((double)x[i + l] - mean);
    for (; i < n; i++)
        sum += ((double)x[i] - mean) * ((double)x[i] - mean);
    for (int l = 0; l < 8; l++)
        sum += part[l];
    return sum;
}

static void rms_norm_run(const struct cpu_task *k, const struct tensor *t)
{
    const float *w = t->src[1] ? t->src[1]->data : NULL;
    int64_t from, to, n = t->ne[0];
    struct param_rms_norm p;

    op_param_get(t, &p);
    task_range(k, tensor_rows(t), &from, &to);
    for (int64_t r = from; r < to; r++) {
        const float *x = row_at(t->src[0], r);
        float *y = row_at(t, r);
        float s = (float)(1 / sqrt(sum_of_squares(x, 0, n) / (double)n + (double)p.eps));

        if (w)
            for (int64_t i = 0; i < n; i++)
                y[i] = x[i] * s * w[i];
        else
            for (int64_t i = 0; i < n; i++)
                y[i] = x[i] * s;
    }
}

static void norm_run(const struct cpu_task *k, const struct tensor *t)
{
    const float *w = t->src[1] ? t->src[1]->data : NULL, *b = t->src[2] ? t->src[2]->data : NULL;
    int64_t from, to, n = t->ne[0];
    struct param_rms_norm p;

    op_param_get(t, &p);
    task_range(k, tensor_rows(t), &from, &to);
    for (int64_t r = from; r < to; r++) {
        const float *x = row_at(t->src[0], r);
        float *y = row_at(t, r);
        double mean = sum(x, n) / (double)n;
        double s = 1 / sqrt(sum_of_squares(x, mean, n) / (double)n + (double)p.eps);

        for (int64_t i = 0; i < n; i++)
            y[i] = (float)(((double)x[i] - mean) * s) * (w ? w[i] : 1) + (b ? b[i] : 0);
    }
}

const struct cpu_op cpu_op_norm = {.supports = norm_supports, .run = norm_run};
const struct cpu_op cpu_op_rms_norm = {.supports = norm_supports, .run = rms_norm_run};
