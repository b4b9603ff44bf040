#include "tests/backends/ref.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/quants.h"

#define EACH(t)                                                                                    \
    for (int64_t i3 = 0; i3 < (t)->ne[3]; i3++)                                                    \
        for (int64_t i2 = 0; i2 < (t)->ne[2]; i2++)                                                \
            for (int64_t i1 = 0; i1 < (t)->ne[1]; i1++)                                            \
                for (int64_t i0 = 0; i0 < (t)->ne[0]; i0++)

static const char *row_ptr(const struct tensor *t, int64_t i1, int64_t i2, int64_t i3)
{
    return (const char *)t->data + (size_t)i1 * t->nb[1] + (size_t)i2 * t->nb[2] +
           (size_t)i3 * t->nb[3];
}

double ref_at(const struct tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    const char *p = row_ptr(t, i1, i2, i3);
    uint32_t block = dtype_info(t->type)->block;
    float f[256];

    if (t->type == DT_F64 || t->type == DT_I64 || t->type == DT_I32) { /* not exact in float */
        p += (size_t)i0 * t->nb[0];
        if (t->type == DT_F64)
            return *(const double *)p;
        return t->type == DT_I64 ? (double)*(const int64_t *)p : (double)*(const int32_t *)p;
    }
    quant_decoder(t->type)(p + (size_t)(i0 / block) * t->nb[0], f, block);
    return (double)f[i0 % block];
}

void ref_row(const struct tensor *t, int64_t i1, int64_t i2, int64_t i3, double *out)
{
    float *f;

    if (t->nb[0] != dtype_info(t->type)->bytes) { /* elements apart */
        for (int64_t i = 0; i < t->ne[0]; i++)
            out[i] = ref_at(t, i, i1, i2, i3);
        return;
    }
    f = malloc((size_t)t->ne[0] * sizeof *f);
    quant_decoder(t->type)(row_ptr(t, i1, i2, i3), f, t->ne[0]);
    for (int64_t i = 0; i < t->ne[0]; i++)
        out[i] = (double)f[i];
    free(f);
}

static void ref_mul_mat(const struct tensor *t, double *out, double *size)
{
    const struct tensor *w = t->src[0], *x = t->src[1];
    int64_t n = w->ne[0];
    double *rw = malloc((size_t)(n * w->ne[1] + 1) * sizeof *rw),
           *rx = malloc((size_t)(n + 1) * sizeof *rx);

    for (int64_t i3 = 0; i3 < x->ne[3]; i3++)
        for (int64_t i2 = 0; i2 < x->ne[2]; i2++) {
            for (int64_t i = 0; i < w->ne[1]; i++)
                ref_row(w, i, i2 * w->ne[2] / x->ne[2], i3 * w->ne[3] / x->ne[3], rw + i * n);
            for (int64_t j = 0; j < x->ne[1]; j++) {
                ref_row(x, j, i2, i3, rx);
                for (int64_t i = 0; i < w->ne[1]; i++, out++) {
                    double sum = 0, mag = 0;
                    for (int64_t k = 0; k < n; k++) {
                        sum += rw[i * n + k] * rx[k];
                        mag += fabs(rw[i * n + k] * rx[k]);
                    }
                    *out = sum;
                    if (size)
                        *size++ = mag;
                }
            }
        }
    free(rw);
    free(rx);
}

static void ref_binary(const struct tensor *t, double *out, double *size)
{
    const struct tensor *b = t->src[1];

    EACH(t)
    {
        double x = ref_at(t->src[0], i0, i1, i2, i3);
        double y = ref_at(b, i0 % b->ne[0], i1 % b->ne[1], i2 % b->ne[2], i3 % b->ne[3]);
        *out = t->op == OP_ADD ? x + y : t->op == OP_MUL ? x * y : x / y;
        if (size)
            *size++ = t->op == OP_ADD ? fabs(x) + fabs(y) : fabs(*out);
        out++;
    }
}

static void ref_scale(const struct tensor *t, double *out, double *size)
{
    struct param_scale p;

    op_param_get(t, &p);
    EACH(t)
    {
        double x = ref_at(t->src[0], i0, i1, i2, i3) * (double)p.s;
        *out++ = x + (double)p.bias;
        if (size)
            *size++ = fabs(x) + fabs((double)p.bias);
    }
}

static void ref_softcap(const struct tensor *t, double *out, double *size)
{
    struct param_softcap p;

    op_param_get(t, &p);
    EACH(t)
    {
        *out = (double)p.cap * tanh(ref_at(t->src[0], i0, i1, i2, i3) / (double)p.cap);
        if (size)
            *size++ = fabs(*out);
        out++;
    }
}

static void ref_glu(const struct tensor *t, double *out, double *size)
{
    struct param_glu p;

    op_param_get(t, &p);
    EACH(t)
    {
        double a = ref_at(t->src[0], i0, i1, i2, i3), b = ref_at(t->src[1], i0, i1, i2, i3);
        double u = 2 * sqrt(2 / acos(-1)) * (a + 0.044715 * a * a * a);
        if (p.kind == GLU_SWIGLU_OAI) {
            a = fmin(a, 7);
            b = fmax(-7, fmin(b, 7)) + 1;
        }
        if (p.kind != GLU_GEGLU)
            u = p.kind == GLU_SWIGLU ? a : a * 1.702;
        *out = a / (1 + exp(-u)) * b; /* 1/2 (1 + tanh(u / 2)) = 1 / (1 + exp(-u)) */
        if (size) /* an error of u is one of exp(u), magnified by u, where u is computed */
            *size++ =
                fabs(*out) * (p.kind == GLU_SWIGLU ? 1 : 1 + fabs(u)) +
                (p.kind == GLU_SWIGLU_OAI ? fabs(a / (1 + exp(-u))) : 0); /* b + 1 may cancel */
        out++;
    }
}

static double ref_unary_at(int kind, double x)
{
    switch (kind) {
    case UNARY_SILU:
        return x / (1 + exp(-x));
    case UNARY_GELU: /* 1/2 (1 + tanh(u / 2)) = 1 / (1 + exp(-u)) */
        return x / (1 + exp(-2 * sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    case UNARY_RELU:
        return fmax(x, 0);
    case UNARY_RELU_SQR:
        return pow(fmax(x, 0), 2);
    case UNARY_SOFTPLUS: /* without overflow */
        return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
    case UNARY_SIGMOID:
        return 1 / (1 + exp(-x));
    }
    assert(false);
    return 0;
}

static void ref_unary(const struct tensor *t, double *out, double *size)
{
    struct param_unary p;

    op_param_get(t, &p);
    EACH(t)
    {
        double x = ref_at(t->src[0], i0, i1, i2, i3);

        *out = ref_unary_at(p.kind, x);
        if (size) /* as in ref_glu */
            *size++ =
                fabs(*out) * (p.kind == UNARY_GELU ? 1 + 2 * fabs(x + 0.044715 * x * x * x) : 1);
        out++;
    }
}

static void ref_norm(const struct tensor *t, double *out, double *size)
{
    struct param_rms_norm p;

    op_param_get(t, &p);
    EACH(t)
    {
        double mean = 0, var = 0, n = (double)t->ne[0], x, b;

        for (int64_t k = 0; k < t->ne[0]; k++)
            mean += ref_at(t->src[0], k, i1, i2, i3) / n;
        for (int64_t k = 0; k < t->ne[0]; k++)
            var += pow(ref_at(t->src[0], k, i1, i2, i3) - mean, 2) / n;
        x = (ref_at(t->src[0], i0, i1, i2, i3) - mean) / sqrt(var + (double)p.eps) *
            (t->src[1] ? ref_at(t->src[1], i0, 0, 0, 0) : 1);
        b = t->src[2] ? ref_at(t->src[2], i0, 0, 0, 0) : 0;
        *out++ = x + b;
        if (size)
            *size++ = fabs(x) + fabs(b);
    }
}

static void ref_rms_norm(const struct tensor *t, double *out, double *size)
{
    struct param_rms_norm p;

    op_param_get(t, &p);
    EACH(t)
    {
        double sum = 0, w = t->src[1] ? ref_at(t->src[1], i0, 0, 0, 0) : 1;
        for (int64_t k = 0; k < t->ne[0]; k++)
            sum += pow(ref_at(t->src[0], k, i1, i2, i3), 2);
        *out = ref_at(t->src[0], i0, i1, i2, i3) / sqrt(sum / (double)t->ne[0] + (double)p.eps) * w;
        if (size)
            *size++ = fabs(*out);
        out++;
    }
}

static double rope_angle(const struct tensor *t, const struct param_rope *p, int64_t pair,
                         double pos)
{
    double full = pos * pow((double)p->base, -2.0 * (double)pair / p->n_rot), angle, ramp;

    if (t->src[2])
        full /= ref_at(t->src[2], pair, 0, 0, 0);
    angle = full * (double)p->freq_scale;
    if (p->ext_factor == 0)
        return angle;
    ramp =
        ((double)pair - (double)p->corr_lo) / fmax(0.001, (double)p->corr_hi - (double)p->corr_lo);
    ramp = (1 - fmin(1, fmax(0, ramp))) * (double)p->ext_factor;
    return angle * (1 - ramp) + full * ramp;
}

static void ref_rope(const struct tensor *t, double *out, double *size)
{
    const struct tensor *x = t->src[0];
    struct param_rope p;

    op_param_get(t, &p);
    EACH(t)
    {
        int64_t half = p.n_rot / 2, pair, first, second;
        double a, b, angle, c, s;

        if (i0 >= p.n_rot) {
            *out++ = ref_at(x, i0, i1, i2, 0);
            if (size)
                *size++ = 0;
            continue;
        }
        pair = p.mode == ROPE_NORM ? i0 / 2 : i0 % half;
        first = p.mode == ROPE_NORM ? 2 * pair : pair;
        second = p.mode == ROPE_NORM ? first + 1 : pair + half;
        a = ref_at(x, first, i1, i2, 0);
        b = ref_at(x, second, i1, i2, 0);
        angle = rope_angle(t, &p, pair, ref_at(t->src[1], i2, 0, 0, 0));
        c = cos(angle) * (double)p.attn_factor;
        s = sin(angle) * (double)p.attn_factor;
        *out++ = i0 == first ? a * c - b * s : a * s + b * c;
        if (size)
            *size++ = (fabs(a) + fabs(b)) * fabs((double)p.attn_factor);
    }
}

static void ref_concat(const struct tensor *t, double *out)
{
    int64_t n = t->src[0]->ne[0];

    EACH(t)
    *out++ = i0 < n ? ref_at(t->src[0], i0, i1, i2, i3) : ref_at(t->src[1], i0 - n, i1, i2, i3);
}

/* Row j of x as it comes back from a tensor of the type. */
static void ref_encoded(enum dtype type, const struct tensor *x, int64_t j, double *out)
{
    float *f = malloc((size_t)(x->ne[0] + 1) * sizeof *f);
    void *raw = malloc(dtype_row_bytes(type, x->ne[0]) + 1);

    for (int64_t i = 0; i < x->ne[0]; i++)
        f[i] = (float)ref_at(x, i, j, 0, 0);
    quant_encoder(type)(f, raw, x->ne[0]);
    quant_decoder(type)(raw, f, x->ne[0]);
    for (int64_t i = 0; i < x->ne[0]; i++)
        out[i] = (double)f[i];
    free(f);
    free(raw);
}

static void ref_rows(const struct tensor *t, double *out)
{
    const struct tensor *a = t->src[0];

    if (t->op == OP_GET_ROWS) {
        for (int64_t j = 0; j < t->ne[1]; j++)
            ref_row(a, (int64_t)ref_at(t->src[1], j, 0, 0, 0), 0, 0, out + j * t->ne[0]);
        return;
    }
    for (int64_t r = 0; r < a->ne[1]; r++)
        ref_row(a, r, 0, 0, out + r * a->ne[0]);
    for (int64_t j = 0; j < t->src[1]->ne[1]; j++)
        ref_encoded(t->type, t->src[1], j, out + (int64_t)ref_at(t->src[2], j, 0, 0, 0) * t->ne[0]);
}

static void ref_clamp(const struct tensor *t, double *out, double *size)
{
    struct param_clamp p;

    op_param_get(t, &p);
    EACH(t)
    {
        *out++ = fmin((double)p.hi, fmax((double)p.lo, ref_at(t->src[0], i0, i1, i2, i3)));
        if (size)
            *size++ = 0;
    }
}

static void ref_shares(const struct tensor *t, double *out, double *size)
{
    struct param_shares p;

    op_param_get(t, &p);
    EACH(t)
    {
        double sum = 0;

        for (int64_t k = 0; k < t->ne[0]; k++)
            sum += ref_at(t->src[0], k, i1, i2, i3);
        *out = ref_at(t->src[0], i0, i1, i2, i3) / fmax(sum, (double)p.floor);
        if (size)
            *size++ = fabs(*out);
        out++;
    }
}

/* ---- choosing among the elements of a row, mixtures of experts ---- */

static int64_t ref_id(const struct tensor *ids, int64_t j, int64_t tok)
{
    return (int64_t)ref_at(ids, j, tok, 0, 0);
}

/* What the largest two of [from, from + n) of row r add up to, by sorting. */
static double ref_best_two(const struct tensor *x, int64_t from, int64_t n, int64_t r)
{
    double v[512];

    for (int64_t i = 0; i < n; i++) {
        int64_t at = i;
        double a = ref_at(x, from + i, r, 0, 0);
        for (; at > 0 && v[at - 1] < a; at--)
            v[at] = v[at - 1];
        v[at] = a;
    }
    return n > 1 ? v[0] + v[1] : v[0];
}

/* Does group g of row r take part? Fewer than n_group_used are better. */
static bool ref_open(const struct tensor *x, const struct param_top_k *p, int64_t g, int64_t r)
{
    int64_t each = x->ne[0] / p->n_group, better = 0;
    double own = ref_best_two(x, g * each, each, r);

    for (int64_t o = 0; o < p->n_group; o++) {
        double other = ref_best_two(x, o * each, each, r);
        better += other > own || (other == own && o < g);
    }
    return better < p->n_group_used;
}

/* Does a come before b in a descending order, where NaN and -inf are the same? */
static bool ref_above(double a, double b)
{
    return !isnan(a) && (isnan(b) ? a != -INFINITY : a > b);
}

/* An element's place is the number of those that come before it. */
static void ref_top_k(const struct tensor *t, double *out)
{
    const struct tensor *x = t->src[0];
    int64_t n = x->ne[0];
    bool *open = malloc((size_t)n * sizeof *open);
    struct param_top_k p;

    op_param_get(t, &p);
    for (int64_t r = 0; r < t->ne[1]; r++) {
        for (int64_t i = 0; i < n; i++)
            open[i] =
                !p.n_group ||
                (i % (n / p.n_group) == 0 ? ref_open(x, &p, i / (n / p.n_group), r) : open[i - 1]);
        for (int64_t i = 0; i < n; i++) {
            int64_t before = 0;

            for (int64_t j = 0; j < n; j++) {
                double a = ref_at(x, j, r, 0, 0), b = ref_at(x, i, r, 0, 0);
                before += open[j] && (ref_above(a, b) || (!ref_above(b, a) && j < i));
            }
            if (open[i] && before < p.k)
                out[r * p.k + before] = (double)i;
        }
    }
    free(open);
}

/* From the end: whoever is not below the best so far takes its place. */
static void ref_argmax(const struct tensor *t, double *out)
{
    const struct tensor *x = t->src[0];

    for (int64_t r = 0; r < t->ne[0]; r++) {
        int64_t best = x->ne[0] - 1;

        for (int64_t i = best - 1; i >= 0; i--)
            if (!ref_above(ref_at(x, best, r, 0, 0), ref_at(x, i, r, 0, 0)))
                best = i;
        out[r] = (double)best;
    }
}

static void ref_mask_bits(const struct tensor *t, double *out)
{
    EACH(t)
    {
        int64_t word = (int64_t)ref_at(t->src[1], i0 / 32, 0, 0, 0);

        for (int64_t bit = 0; bit < i0 % 32; bit++) /* rounding down, of negative words too */
            word = (word - (word & 1)) / 2;
        *out++ = word & 1 ? ref_at(t->src[0], i0, i1, i2, i3) : -INFINITY;
    }
}

static void ref_pick(const struct tensor *t, double *out)
{
    EACH(t)
    *out++ = ref_at(t->src[0], ref_id(t->src[1], i0, i1), i1, 0, 0);
}

static void ref_add_id(const struct tensor *t, double *out, double *size)
{
    EACH(t)
    {
        double a = ref_at(t->src[0], i0, i1, i2, 0);
        double b = ref_at(t->src[1], i0, ref_id(t->src[2], i1, i2), 0, 0);
        *out++ = a + b;
        if (size)
            *size++ = fabs(a) + fabs(b);
    }
}

static void ref_mix(const struct tensor *t, double *out, double *size)
{
    EACH(t)
    {
        double sum = 0, mag = 0;

        for (int64_t j = 0; j < t->src[0]->ne[1]; j++) {
            double a = ref_at(t->src[0], i0, j, i1, 0);
            a *= t->src[1] ? ref_at(t->src[1], j, i1, 0, 0) : 1;
            sum += a;
            mag += fabs(a);
        }
        *out++ = sum;
        if (size)
            *size++ = mag;
    }
}

static void ref_mul_mat_id(const struct tensor *t, double *out, double *size)
{
    const struct tensor *w = t->src[0], *x = t->src[1];
    double *rw = malloc((size_t)(w->ne[0] + 1) * sizeof *rw);
    double *rx = malloc((size_t)(w->ne[0] + 1) * sizeof *rx);

    EACH(t)
    {
        double sum = 0, mag = 0;

        ref_row(w, i0, ref_id(t->src[2], i1, i2), 0, rw);
        if (i0 == 0)
            ref_row(x, x->ne[1] == 1 ? 0 : i1, i2, 0, rx);
        for (int64_t k = 0; k < w->ne[0]; k++) {
            sum += rw[k] * rx[k];
            mag += fabs(rw[k] * rx[k]);
        }
        *out++ = sum;
        if (size)
            *size++ = mag;
    }
    free(rw);
    free(rx);
}

/*
 * ALiBi: the slopes of n heads, n a power of two, are a geometric sequence with ratio and first element
 * 2^(-max_bias / n). Of other n the first p (the power of two below) are as of p heads, the others every
 * second one, from the first on, as of 2 p heads.
 */
static double ref_slope(double max_bias, int64_t n, int64_t h)
{
    int64_t p = 1;

    for (int64_t i = 2; i <= n; i *= 2)
        p = i;
    if (max_bias == 0)
        return 1;
    return h < p ? pow(pow(2, -max_bias / (double)p), (double)(h + 1))
                 : pow(pow(2, -max_bias / (double)(2 * p)), (double)(2 * (h - p) + 1));
}

/* What is added to the score of position j. */
static double ref_bias(const struct tensor *mask, double slope, int64_t j, int64_t tok, int64_t i3)
{
    double m = mask ? ref_at(mask, j, tok, 0, i3) : 0;

    return m == -INFINITY ? m : slope * m;
}

static double ref_score(const struct param_attn *p, double s)
{
    s *= (double)p->scale;
    return p->softcap > 0 ? (double)p->softcap * tanh(s / (double)p->softcap) : s;
}

static void ref_soft_max(const struct tensor *t, double *out, double *size)
{
    const struct tensor *x = t->src[0], *mask = t->src[1], *sinks = t->src[2];
    double *s = malloc((size_t)(t->ne[0] + 1) * sizeof *s);
    struct param_attn p;

    op_param_get(t, &p);
    for (int64_t r = 0; r < tensor_rows(t); r++) {
        int64_t i1 = r % t->ne[1], i2 = r / t->ne[1] % t->ne[2], i3 = r / t->ne[1] / t->ne[2];
        double sink = sinks ? ref_at(sinks, i2, 0, 0, 0) : -INFINITY, max = sink, sum = 0;
        double slope = ref_slope((double)p.max_bias, t->ne[2], i2);

        for (int64_t i = 0; i < t->ne[0]; i++) {
            double bias = ref_bias(mask, slope, i, i1, i3);
            s[i] = bias == -INFINITY ? bias : ref_score(&p, ref_at(x, i, i1, i2, i3)) + bias;
            max = fmax(max, s[i]);
        }
        if (sink != -INFINITY)
            sum = exp(sink - max);
        for (int64_t i = 0; i < t->ne[0]; i++)
            sum += s[i] == -INFINITY ? 0 : exp(s[i] - max);
        for (int64_t i = 0; i < t->ne[0]; i++) {
            double own = ref_score(&p, ref_at(x, i, i1, i2, i3));

            *out = s[i] == -INFINITY ? 0 : exp(s[i] - max) / sum;
            if (size) /* differences and what they are made of are rounded */
                *size++ = s[i] == -INFINITY ? 0 : *out * (1 + fabs(s[i] - max) + fabs(own));
            out++;
        }
    }
    free(s);
}

/* Row of place j for a token: of n_tok tokens each sequence has the same number, one after the other. */
static int64_t ref_cell(const struct tensor *cells, int64_t j, int64_t tok, int64_t n_tok)
{
    int64_t seq = cells ? tok * cells->ne[1] / n_tok : 0;

    return cells ? ((const int32_t *)cells->data)[seq * cells->ne[0] + j] : j;
}

static void ref_flash_attn(const struct tensor *t, double *out, double *size)
{
    const struct tensor *q = t->src[0], *k = t->src[1], *v = t->src[2], *mask = t->src[3];
    const struct tensor *sinks = t->src[4], *cells = t->src[5];
    int64_t n_kv = mask->ne[0], group = q->ne[1] / k->ne[1];
    double *w = malloc((size_t)(n_kv + 1) * sizeof *w);
    struct param_attn p;

    op_param_get(t, &p);
    for (int64_t tok = 0; tok < q->ne[2]; tok++)
        for (int64_t h = 0; h < q->ne[1]; h++) {
            double sink = sinks ? ref_at(sinks, h, 0, 0, 0) : -INFINITY, max = sink, sum;
            double slope = ref_slope((double)p.max_bias, q->ne[1], h);
            for (int64_t j = 0; j < n_kv; j++) {
                double bias = ref_bias(mask, slope, j, tok, 0), s = 0;
                int64_t c = ref_cell(cells, j, tok, q->ne[2]);
                for (int64_t i = 0; i < q->ne[0] && bias != -INFINITY; i++)
                    s += ref_at(q, i, h, tok, 0) * ref_at(k, i, h / group, c, 0);
                w[j] = bias == -INFINITY ? bias : ref_score(&p, s) + bias;
                max = fmax(max, w[j]);
            }
            sum = sink == -INFINITY ? 0 : exp(sink - max);
            for (int64_t j = 0; j < n_kv; j++) {
                w[j] = w[j] == -INFINITY ? 0 : exp(w[j] - max);
                sum += w[j];
            }
            for (int64_t i = 0; i < v->ne[0]; i++) {
                double y = 0, mag = 0;
                for (int64_t j = 0; j < n_kv; j++) {
                    int64_t c = ref_cell(cells, j, tok, q->ne[2]);
                    double x = w[j] == 0 ? 0 : w[j] * ref_at(v, i, h / group, c, 0);
                    y += x;
                    mag += fabs(x);
                }
                *out++ = sum == 0 ? 0 : y / sum;
                if (size)
                    *size++ = sum == 0 ? 0 : mag / sum;
            }
        }
    free(w);
}

void ref_compute(const struct tensor *t, double *out, double *size)
{
    switch ((int)t->op) {
    case OP_MUL_MAT:
        ref_mul_mat(t, out, size);
        break;
    case OP_ADD:
    case OP_MUL:
    case OP_DIV:
        ref_binary(t, out, size);
        break;
    case OP_SCALE:
        ref_scale(t, out, size);
        break;
    case OP_SOFTCAP:
        ref_softcap(t, out, size);
        break;
    case OP_GLU:
        ref_glu(t, out, size);
        break;
    case OP_CLAMP:
        ref_clamp(t, out, size);
        break;
    case OP_SOFT_MAX:
        ref_soft_max(t, out, size);
        break;
    case OP_SHARES:
        ref_shares(t, out, size);
        break;
    case OP_MIX:
        ref_mix(t, out, size);
        break;
    case OP_ADD_ID:
        ref_add_id(t, out, size);
        break;
    case OP_MUL_MAT_ID:
        ref_mul_mat_id(t, out, size);
        break;
    case OP_TOP_K:
    case OP_ARGMAX:
    case OP_MASK_BITS:
    case OP_PICK:
    case OP_CONCAT:
        if (size)
            memset(size, 0, (size_t)tensor_n(t) * sizeof *size);
        (t->op == OP_CONCAT      ? ref_concat
         : t->op == OP_ARGMAX    ? ref_argmax
         : t->op == OP_MASK_BITS ? ref_mask_bits
         : t->op == OP_TOP_K     ? ref_top_k
                                 : ref_pick)(t, out);
        break;
    case OP_UNARY:
        ref_unary(t, out, size);
        break;
    case OP_NORM:
        ref_norm(t, out, size);
        break;
    case OP_RMS_NORM:
        ref_rms_norm(t, out, size);
        break;
    case OP_ROPE:
        ref_rope(t, out, size);
        break;
    case OP_FLASH_ATTN:
        ref_flash_attn(t, out, size);
        break;
    case OP_GET_ROWS:
    case OP_SET_ROWS:
    case OP_CONT:
        if (size)
            memset(size, 0, (size_t)tensor_n(t) * sizeof *size);
        if (t->op != OP_CONT)
            ref_rows(t, out);
        else
            EACH(t)
        *out++ = ref_at(t->src[0], i0, i1, i2, i3);
        break;
    case OP_SSM_CONV:
    case OP_SSM_SCAN:
    case OP_DELTA_NET:
        ref_recurrent(t, out, size);
        break;
    default:
        assert(false); /* an op without reference */
    }
}
