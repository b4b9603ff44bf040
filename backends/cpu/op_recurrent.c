/*
 * SSM_CONV, SSM_SCAN, DELTA_NET: one token after the other, so that a cut into micro-batches changes no
 * bit. Channels or heads are divided among the threads; the new state is written behind the outputs.
 *
 * Sums over a state's elements are taken in eight partial sums, added in order: the same on every
 * instruction set.
 */
#include <string.h>

#include "backends/cpu/ops.h"

#define LANES 8

/* The tokens of one sequence, tok .. tok + n_tok - 1. */
struct part {
    int64_t seq, tok, n_tok;
    const float *slot; /* their state; NULL: zeros */
};

/* That of sequence seq; fails the job when there is no such state. */
static bool get_part(const struct cpu_task *k, const struct tensor *t, int64_t n_tok, int64_t seq,
                     const struct tensor *state, const struct tensor *from, struct part *out)
{
    int32_t id = ((const int32_t *)from->data)[seq];

    out->seq = seq;
    out->n_tok = n_tok / from->ne[0];
    out->tok = seq * out->n_tok;
    out->slot = id < 0 ? NULL : row_of(state, id, 0, 0);
    if (id >= -1 && id < state->ne[1])
        return true;
    task_fail(k, t, "state %d of '%s' does not exist, there are %lld", (int)id, state->name,
              (long long)state->ne[1]);
    return false;
}

/* n elements of a slot from `at` on; zeros without a slot. */
static void load_state(float *dst, const float *slot, int64_t at, int64_t n)
{
    if (slot)
        memcpy(dst, slot + at, (size_t)n * sizeof *dst);
    else
        memset(dst, 0, (size_t)n * sizeof *dst);
}

static float add_lanes(const float part[LANES], float tail)
{
    for (int l = 0; l < LANES; l++)
        tail += part[l];
    return tail;
}

/* ---- SSM_CONV ---- */

#define COLS 16 /* channels that are computed together */

static bool conv_supports(const struct tensor *t)
{
    return tensor_contiguous(t) && f32_rows(t->src[0]) && f32_rows(t->src[1]) &&
           f32_rows(t->src[2]);
}

/* Weights of COLS channels, turned. */
static size_t conv_scratch(const struct cpu_isa *isa, const struct tensor *t)
{
    (void)isa;
    return (size_t)t->src[1]->ne[0] * COLS * sizeof(float);
}

/* Channels c.. of row i of what is convolved: the state's n_prev rows, then those of x. */
static const float *conv_in(const struct tensor *x, const struct part *p, int64_t n_prev, int64_t i,
                            int64_t c)
{
    static const float zeros[COLS];

    if (i >= n_prev)
        return (const float *)row_of(x, p->tok + i - n_prev, 0, 0) + c;
    return p->slot ? p->slot + i * x->ne[0] + c : zeros;
}

static void conv_cols(const struct tensor *t, const struct part *p, float *wt, int64_t c, int64_t m)
{
    const struct tensor *x = t->src[0], *w = t->src[1];
    int64_t n = w->ne[0], at = x->ne[1] + p->seq * (n - 1);

    memset(wt, 0, (size_t)(n * COLS) * sizeof *wt);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            wt[j * COLS + i] = ((const float *)row_of(w, c + i, 0, 0))[j];
    for (int64_t tok = 0; tok < p->n_tok; tok++) {
        float sum[COLS] = {0};

        for (int64_t j = 0; j < n; j++) {
            const float *in = conv_in(x, p, n - 1, tok + j, c);

            for (int64_t i = 0; i < m; i++)
                sum[i] += wt[j * COLS + i] * in[i];
        }
        memcpy((float *)row_of(t, p->tok + tok, 0, 0) + c, sum, (size_t)m * sizeof *sum);
    }
    for (int64_t j = 0; j < n - 1; j++)
        memcpy((float *)row_of(t, at + j, 0, 0) + c, conv_in(x, p, n - 1, p->n_tok + j, c),
               (size_t)m * sizeof(float));
}

static void conv_run(const struct cpu_task *k, const struct tensor *t)
{
    int64_t from, to, d = t->ne[0];
    struct part p;

    task_range(k, (d + COLS - 1) / COLS, &from, &to);
    for (int64_t seq = 0; seq < t->src[3]->ne[0]; seq++) {
        if (!get_part(k, t, t->src[0]->ne[1], seq, t->src[2], t->src[3], &p))
            return;
        for (int64_t i = from; i < to; i++)
            conv_cols(t, &p, k->scratch, i * COLS, d - i * COLS < COLS ? d - i * COLS : COLS);
    }
}

const struct cpu_op cpu_op_ssm_conv = {
    .supports = conv_supports, .scratch = conv_scratch, .run = conv_run};

/* ---- SSM_SCAN ---- */

static bool scan_supports(const struct tensor *t)
{
    for (int i = 0; i < 6; i++) {
        if (!f32_rows(t->src[i]))
            return false;
    }
    return tensor_contiguous(t);
}

/* The decays of one head at one token. */
static size_t scan_scratch(const struct cpu_isa *isa, const struct tensor *t)
{
    (void)isa;
    return (size_t)t->src[3]->ne[0] * sizeof(float);
}

/* s = decay s + in b; returns c.s. */
static float scan_step(float *s, const float *decay, const float *b, const float *c, float in,
                       int64_t n)
{
    float part[LANES] = {0}, tail = 0;
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            s[i + l] = s[i + l] * decay[i + l] + b[i + l] * in;
            part[l] += s[i + l] * c[i + l];
        }
    for (; i < n; i++) {
        s[i] = s[i] * decay[i] + b[i] * in;
        tail += s[i] * c[i];
    }
    return add_lanes(part, tail);
}

/* decay[0..n) = exp(dt a); a has n elements or one for all. */
static void decays(const struct cpu_kernels *f, const struct tensor *a, int64_t h, float dt,
                   float *decay, int64_t n)
{
    const float *rate = row_of(a, h, 0, 0);

    for (int64_t i = 0; i < a->ne[0]; i++)
        decay[i] = dt * rate[i];
    f->exp(decay, decay, a->ne[0]);
    for (int64_t i = a->ne[0]; i < n; i++)
        decay[i] = decay[0];
}

static void scan_head(const struct cpu_task *k, const struct tensor *t, const struct part *p,
                      int64_t h)
{
    const struct tensor *x = t->src[0], *b = t->src[3], *c = t->src[4];
    int64_t d = x->ne[0], n = b->ne[0], group = h / (x->ne[1] / b->ne[1]);
    float *s = (float *)row_of(t, x->ne[2] + p->seq * n, 0, 0) + h * d * n;

    load_state(s, p->slot, h * d * n, d * n);
    for (int64_t tok = p->tok; tok < p->tok + p->n_tok; tok++) {
        float dt = ((const float *)row_of(t->src[1], tok, 0, 0))[h];
        const float *in = row_of(x, h, tok, 0);
        float *y = (float *)row_of(t, tok, 0, 0) + h * d;

        decays(k->isa->kernels, t->src[2], h, dt, k->scratch, n);
        for (int64_t i = 0; i < d; i++)
            y[i] = scan_step(s + i * n, k->scratch, row_of(b, group, tok, 0),
                             row_of(c, group, tok, 0), in[i] * dt, n);
    }
}

static void scan_run(const struct cpu_task *k, const struct tensor *t)
{
    int64_t from, to;
    struct part p;

    task_range(k, t->src[0]->ne[1], &from, &to);
    for (int64_t seq = 0; seq < t->src[6]->ne[0]; seq++) {
        if (!get_part(k, t, t->src[0]->ne[2], seq, t->src[5], t->src[6], &p))
            return;
        for (int64_t h = from; h < to; h++)
            scan_head(k, t, &p, h);
    }
}

const struct cpu_op cpu_op_ssm_scan = {.supports = scan_supports,
                                       .scratch = scan_scratch,
                                       .run = scan_run,
                                       .heavy = true,
                                       .isa_in_name = true};

/* ---- DELTA_NET ---- */

/* The decays of one head at all tokens. */
static size_t delta_scratch(const struct cpu_isa *isa, const struct tensor *t)
{
    (void)isa;
    return (size_t)t->src[0]->ne[2] * sizeof(float);
}

/* s = decay s; returns s.k. */
static float fade(float *s, float decay, const float *k, int64_t n)
{
    float part[LANES] = {0}, tail = 0;
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            s[i + l] *= decay;
            part[l] += s[i + l] * k[i + l];
        }
    for (; i < n; i++) {
        s[i] *= decay;
        tail += s[i] * k[i];
    }
    return add_lanes(part, tail);
}

/* s += in k; returns s.q. */
static float learn(float *s, float in, const float *k, const float *q, int64_t n)
{
    float part[LANES] = {0}, tail = 0;
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            s[i + l] += in * k[i + l];
            part[l] += s[i + l] * q[i + l];
        }
    for (; i < n; i++) {
        s[i] += in * k[i];
        tail += s[i] * q[i];
    }
    return add_lanes(part, tail);
}

static void delta_head(const struct cpu_task *task, const struct tensor *t, const struct part *p,
                       int64_t h)
{
    const struct tensor *q = t->src[0], *k = t->src[1], *v = t->src[2], *beta = t->src[4];
    int64_t d = q->ne[0], d_v = v->ne[0], hk;
    float *s = (float *)row_of(t, q->ne[2] + p->seq * d, 0, 0) + h * d_v * d;
    float *decay = task->scratch;
    struct param_delta_net how;

    op_param_get(t, &how);
    hk = how.tiled ? h % q->ne[1] : h / (v->ne[1] / q->ne[1]);
    load_state(s, p->slot, h * d_v * d, d_v * d);
    for (int64_t i = 0; i < p->n_tok; i++)
        decay[i] = ((const float *)row_of(t->src[3], p->tok + i, 0, 0))[h];
    task->isa->kernels->exp(decay, decay, p->n_tok);
    for (int64_t i = 0; i < d_v; i++, s += d)
        for (int64_t tok = p->tok; tok < p->tok + p->n_tok; tok++) {
            const float *key = row_of(k, hk, tok, 0);
            float known = fade(s, decay[tok - p->tok], key, d);
            float in = (((const float *)row_of(v, h, tok, 0))[i] - known) *
                       ((const float *)row_of(beta, tok, 0, 0))[h];

            ((float *)row_of(t, tok, 0, 0))[h * d_v + i] =
                learn(s, in, key, row_of(q, hk, tok, 0), d);
        }
}

static void delta_run(const struct cpu_task *k, const struct tensor *t)
{
    int64_t from, to;
    struct part p;

    task_range(k, t->src[2]->ne[1], &from, &to);
    for (int64_t seq = 0; seq < t->src[6]->ne[0]; seq++) {
        if (!get_part(k, t, t->src[0]->ne[2], seq, t->src[5], t->src[6], &p))
            return;
        for (int64_t h = from; h < to; h++)
            delta_head(k, t, &p, h);
    }
}

const struct cpu_op cpu_op_delta_net = {.supports = scan_supports,
                                        .scratch = delta_scratch,
                                        .run = delta_run,
                                        .heavy = true,
                                        .isa_in_name = true};
