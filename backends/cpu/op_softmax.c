/*
 * SOFT_MAX: rows are divided among the threads. A result may lie exactly over a source: an element of the
 * scores and of the mask is read before that element is written.
 *
 * A masked position (mask -inf) gives exactly 0, whatever its score, and a row with every position masked
 * gives zeros; positions masked at the end of a row change no bit of the others. Without a mask a row of
 * nothing but -inf gives NaN, as 0 / 0.
 */
#include <math.h>

#include "backends/cpu/ops.h"

#define PART 64 /* scores whose mask is decoded at a time */

struct soft_max {
    const struct cpu_kernels *f;
    quant_decode_fn *decode; /* of the mask */
    size_t mask_bytes;       /* of an element */
    struct param_attn p;
};

static bool soft_max_supports(const struct tensor *t)
{
    const struct tensor *mask = t->src[1], *sinks = t->src[2];

    return f32_rows(t) && f32_rows(t->src[0]) && (!mask || tensor_rows_contiguous(mask)) &&
           (!sinks || f32_rows(sinks));
}

/* y = cap(scale x) + slope mask; mask may be NULL. Returns the largest that is no NaN. */
static float scores(const struct soft_max *s, const float *x, const char *mask, float slope,
                    int64_t n, float *y)
{
    float bias[PART] = {0}, max = -INFINITY;

    for (int64_t at = 0; at < n; at += PART) {
        int m = (int)(n - at < PART ? n - at : PART);
        float *part = y + at;

        if (mask)
            s->decode(mask + (size_t)at * s->mask_bytes, bias, m);
        if (s->p.softcap > 0)
            s->f->softcap(x + at, part, s->p.scale, s->p.softcap, m);
        for (int i = 0; i < m; i++) {
            float v = s->p.softcap > 0 ? part[i] : x[at + i] * s->p.scale;
            v = bias[i] == -INFINITY ? -INFINITY : v + slope * bias[i];
            part[i] = v;
            max = v > max ? v : max;
        }
    }
    return max;
}

/* In one order: eight sums, then those. */
static double sum_of(const float *y, int64_t n)
{
    double lane[8] = {0};
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++)
            lane[l] += (double)y[i + l];
    for (int l = 0; i < n; i++, l++)
        lane[l] += (double)y[i];
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) +
           ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

/* y becomes its exponentials by their sum and the sink's; max is the largest of y. */
static void shares(const struct soft_max *s, float *y, int64_t n, float max, float sink,
                   bool masked)
{
    double sum = 0;

    if (!(max > sink)) /* or the sink is NaN */
        max = sink;
    if (max == -INFINITY && masked)
        max = 0; /* no -inf minus -inf */
    for (int64_t i = 0; i < n; i++)
        y[i] -= max;
    s->f->exp(y, y, n);
    if (sink != -INFINITY) {
        float own = sink - max;

        s->f->exp(&own, &own, 1);
        sum = (double)own;
    }
    sum += sum_of(y, n);
    if (sum == 0 && masked)
        sum = 1;
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)((double)y[i] / sum);
}

static void soft_max_run(const struct cpu_task *k, const struct tensor *t)
{
    const struct tensor *x = t->src[0], *mask = t->src[1], *sinks = t->src[2];
    struct soft_max s = {.f = k->isa->kernels};
    int64_t from, to;

    op_param_get(t, &s.p);
    if (mask) {
        s.decode = task_decoder(k->isa, mask->type);
        s.mask_bytes = dtype_info(mask->type)->bytes;
    }
    task_range(k, tensor_rows(t), &from, &to);
    for (int64_t r = from; r < to; r++) {
        int64_t tok = r % t->ne[1], h = r / t->ne[1] % t->ne[2], m = r / t->ne[1] / t->ne[2];
        float slope = mask ? attn_slope(s.p.max_bias, t->ne[2], h) : 1, *y = row_at(t, r);
        float sink = sinks ? ((const float *)sinks->data)[h] : -INFINITY;
        float max =
            scores(&s, row_at(x, r), mask ? row_of(mask, tok, 0, m) : NULL, slope, t->ne[0], y);

        shares(&s, y, t->ne[0], max, sink, mask != NULL);
    }
}

const struct cpu_op cpu_op_soft_max = {
    .supports = soft_max_supports, .run = soft_max_run, .isa_in_name = true};
