/*
 * ROPE: see op.h for the formula. Angles, cosines and sines are computed in double, once per token
 * and pair, for all heads: a float angle at position 100,000 would be off by a hundredth of a
 * radian.
 */
#include <math.h>

#include "backends/cpu/dmath.h"
#include "backends/cpu/ops.h"

static bool rope_supports(const struct tensor *t)
{
    const struct tensor *pos = t->src[1], *freqs = t->src[2];
    struct param_rope p;

    op_param_get(t, &p);
    return (p.mode == ROPE_NORM || p.mode == ROPE_NEOX) && f32_rows(t) && f32_rows(t->src[0]) &&
           pos->type == DT_I32 && pos->nb[0] == 4 && p.n_rot > 0 && p.n_rot % 2 == 0 &&
           p.n_rot <= t->ne[0] && (!freqs || (freqs->type == DT_F32 && freqs->nb[0] == 4));
}

/* cos and sin of every pair */
static size_t rope_scratch(const struct cpu_isa *isa, const struct tensor *t)
{
    struct param_rope p;

    (void)isa;
    op_param_get(t, &p);
    return (size_t)p.n_rot * sizeof(float);
}

/*
 * 1 below corr_lo (frequencies that stay), falling to 0 at corr_hi (those that are interpolated).
 */
static double yarn_ramp(const struct param_rope *p, int i)
{
    double width = (double)p->corr_hi - (double)p->corr_lo;
    double y = (i - (double)p->corr_lo) / (width > 0.001 ? width : 0.001);

    return 1 - (y < 0 ? 0 : y > 1 ? 1 : y);
}

static void rope_angles(const struct param_rope *p, double pos, const float *freqs, float *c,
                        float *s)
{
    double step =
        p->base > 0 && isfinite(p->base) ? cpu_exp(cpu_log((double)p->base) * -2 / p->n_rot) : NAN;
    double freq = 1, scale = (double)p->freq_scale, mag = (double)p->attn_factor;

    for (int i = 0; i < p->n_rot / 2; i++, freq *= step) {
        double full = pos * freq / (freqs ? (double)freqs[i] : 1), angle = full * scale, si, co;
        if (p->ext_factor != 0) {
            double mix = yarn_ramp(p, i) * (double)p->ext_factor;
            angle = angle * (1 - mix) + full * mix;
        }
        cpu_sincos(angle, &si, &co);
        c[i] = (float)(co * mag);
        s[i] = (float)(si * mag);
    }
}

/* One head: n_rot / 2 pairs, `apart` elements between the two of a pair, `step` between pairs. */
static inline void rotate(const float *x, float *y, const float *c, const float *s, int n,
                          int apart, int step)
{
    for (int i = 0; i < n; i++) {
        float a = x[i * step], b = x[i * step + apart];
        y[i * step] = a * c[i] - b * s[i];
        y[i * step + apart] = a * s[i] + b * c[i];
    }
}

static void rope_run(const struct cpu_task *k, const struct tensor *t)
{
    const int32_t *pos = t->src[1]->data;
    const float *freqs = t->src[2] ? t->src[2]->data : NULL;
    float *c = k->scratch, *s;
    int64_t from, to;
    struct param_rope p;

    op_param_get(t, &p);
    s = c + p.n_rot / 2;
    task_range(k, t->ne[2], &from, &to);
    for (int64_t i2 = from; i2 < to; i2++) {
        rope_angles(&p, (double)pos[i2], freqs, c, s);
        for (int64_t i1 = 0; i1 < t->ne[1]; i1++) {
            const float *x = row_of(t->src[0], i1, i2, 0);
            float *y = row_of(t, i1, i2, 0);

            if (p.mode == ROPE_NORM)
                rotate(x, y, c, s, p.n_rot / 2, 1, 2);
            else
                rotate(x, y, c, s, p.n_rot / 2, p.n_rot / 2, 1);
            for (int64_t i = p.n_rot; i < t->ne[0]; i++)
                y[i] = x[i];
        }
    }
}

const struct cpu_op cpu_op_rope = {
    .supports = rope_supports, .scratch = rope_scratch, .run = rope_run};
