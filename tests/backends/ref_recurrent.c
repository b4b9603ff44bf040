/*
 * References of the recurrences: the state of everything as one array in double, and beside it what
 * the magnitudes add up to.
 */
#include <math.h>
#include <stdlib.h>

#include "tests/backends/ref.h"

static double start_of(const struct tensor *state, const struct tensor *from, int64_t i)
{
    int64_t row = (int64_t)ref_at(from, 0, 0, 0, 0);

    return row < 0 ? 0 : ref_at(state, i, row, 0, 0);
}

/* Channel c of the token at `tok`, the state's rows being those before 0. */
static double conv_at(const struct tensor *t, int64_t c, int64_t tok)
{
    int64_t d = t->ne[0], n_prev = t->src[1]->ne[0] - 1;

    return tok < 0 ? start_of(t->src[2], t->src[3], (tok + n_prev) * d + c)
                   : ref_at(t->src[0], c, tok, 0, 0);
}

static void ref_conv(const struct tensor *t, double *out, double *size)
{
    int64_t d = t->ne[0], n_tok = t->src[0]->ne[1], n = t->src[1]->ne[0];

    for (int64_t row = 0; row < t->ne[1]; row++)
        for (int64_t c = 0; c < d; c++) {
            double sum = 0, mag = 0;

            for (int64_t back = 0; back < n && row < n_tok; back++) {
                double p = ref_at(t->src[1], n - 1 - back, c, 0, 0) * conv_at(t, c, row - back);
                sum += p;
                mag += fabs(p);
            }
            if (row >= n_tok)
                sum = conv_at(t, c, row - (n - 1));
            *out++ = sum;
            *size++ = mag;
        }
}

/* State and its magnitudes: [n, width] */
struct memory {
    double *s, *mag;
    int64_t n;
};

static struct memory memory_new(const struct tensor *t, int64_t n)
{
    struct memory m = {.n = n};
    int64_t n_all = n * t->ne[0];

    m.s = malloc((size_t)n_all * sizeof *m.s);
    m.mag = malloc((size_t)n_all * sizeof *m.mag);
    for (int64_t i = 0; i < n_all; i++) {
        m.s[i] = start_of(t->src[5], t->src[6], i);
        m.mag[i] = fabs(m.s[i]);
    }
    return m;
}

static void memory_out(struct memory *m, const struct tensor *t, double *out, double *size)
{
    int64_t n_all = m->n * t->ne[0], at = (t->ne[1] - m->n) * t->ne[0];

    for (int64_t i = 0; i < n_all; i++) {
        out[at + i] = m->s[i];
        size[at + i] = m->mag[i];
    }
    free(m->s);
    free(m->mag);
}

static void ref_scan(const struct tensor *t, double *out, double *size)
{
    const struct tensor *x = t->src[0], *dt = t->src[1], *a = t->src[2], *b = t->src[3];
    int64_t d = x->ne[0], n = b->ne[0], each = x->ne[1] / b->ne[1];
    struct memory m = memory_new(t, n);

    for (int64_t tok = 0; tok < x->ne[2]; tok++)
        for (int64_t i = 0; i < t->ne[0]; i++) {
            int64_t h = i / d;
            double step = ref_at(dt, h, tok, 0, 0), in = step * ref_at(x, i % d, h, tok, 0);
            double y = 0, mag = 0;

            for (int64_t j = 0; j < n; j++) {
                double fade = exp(step * ref_at(a, a->ne[0] == 1 ? 0 : j, h, 0, 0));
                double c = ref_at(t->src[4], j, h / each, tok, 0);
                double *s = &m.s[i * n + j], *sm = &m.mag[i * n + j];

                *s = *s * fade + in * ref_at(b, j, h / each, tok, 0);
                *sm = *sm * fade + fabs(in * ref_at(b, j, h / each, tok, 0));
                y += *s * c;
                mag += *sm * fabs(c);
            }
            out[tok * t->ne[0] + i] = y;
            size[tok * t->ne[0] + i] = mag;
        }
    memory_out(&m, t, out, size);
}

static void ref_delta(const struct tensor *t, double *out, double *size)
{
    const struct tensor *q = t->src[0], *k = t->src[1], *v = t->src[2];
    int64_t d = q->ne[0], n_head = v->ne[1];
    struct memory m = memory_new(t, d);
    struct param_delta_net p;

    op_param_get(t, &p);
    for (int64_t tok = 0; tok < q->ne[2]; tok++)
        for (int64_t i = 0; i < t->ne[0]; i++) {
            int64_t h = i / v->ne[0], hk = p.tiled ? h % k->ne[1] : h * k->ne[1] / n_head;
            double fade = exp(ref_at(t->src[3], h, tok, 0, 0));
            double beta = ref_at(t->src[4], h, tok, 0, 0), want = ref_at(v, i % v->ne[0], h, tok, 0);
            double known = 0, known_mag = 0, y = 0, mag = 0;

            for (int64_t j = 0; j < d; j++) {
                known += fade * m.s[i * d + j] * ref_at(k, j, hk, tok, 0);
                known_mag += fade * m.mag[i * d + j] * fabs(ref_at(k, j, hk, tok, 0));
            }
            for (int64_t j = 0; j < d; j++) {
                double *s = &m.s[i * d + j], *sm = &m.mag[i * d + j];
                double key = ref_at(k, j, hk, tok, 0);

                *s = fade * *s + beta * (want - known) * key;
                *sm = fade * *sm + fabs(beta * key) * (fabs(want) + known_mag);
                y += *s * ref_at(q, j, hk, tok, 0);
                mag += *sm * fabs(ref_at(q, j, hk, tok, 0));
            }
            out[tok * t->ne[0] + i] = y;
            size[tok * t->ne[0] + i] = mag;
        }
    memory_out(&m, t, out, size);
}

void ref_recurrent(const struct tensor *t, double *out, double *size)
{
    double *unused = size ? NULL : malloc((size_t)tensor_n(t) * sizeof *unused);

    (t->op == OP_SSM_CONV   ? ref_conv
     : t->op == OP_SSM_SCAN ? ref_scan
                            : ref_delta)(t, out, size ? size : unused);
    free(unused);
}
