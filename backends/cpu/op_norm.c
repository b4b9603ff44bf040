/*
 * RMS_NORM. The sum of squares is taken in double, in eight partial sums: squares of large floats
 * do not overflow, and the result is the same on every instruction set.
 */
#include <math.h>

#include "backends/cpu/ops.h"

static bool rms_norm_supports(const struct tensor *t)
{
    const struct tensor *w = t->src[1];

    return f32_rows(t) && f32_rows(t->src[0]) && (!w || (w->type == DT_F32 && w->nb[0] == 4));
}

static double sum_of_squares(const float *x, int64_t n)
{
    double part[8] = {0}, sum = 0;
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++)
            part[l] += (double)x[i + l] * (double)x[i + l];
    for (; i < n; i++)
        sum += (double)x[i] * (double)x[i];
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
        float s = (float)(1 / sqrt(sum_of_squares(x, n) / (double)n + (double)p.eps));

        if (w)
            for (int64_t i = 0; i < n; i++)
                y[i] = x[i] * s * w[i];
        else
            for (int64_t i = 0; i < n; i++)
                y[i] = x[i] * s;
    }
}

const struct cpu_op cpu_op_rms_norm = {.supports = rms_norm_supports, .run = rms_norm_run};
