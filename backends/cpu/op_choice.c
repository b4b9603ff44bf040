/*
 * Choosing among the elements of a row: TOP_K, ARGMAX, MASK_BITS.
 */
#include <math.h>
#include <string.h>

#include "backends/cpu/ops.h"

/* ---- TOP_K ---- */

static bool top_k_supports(const struct tensor *t)
{
    return f32_rows(t->src[0]) && t->type == DT_I32 && t->nb[0] == 4;
}

/* As a number that compares: NaN is smallest. */
static float rank(float x)
{
    return isnan(x) ? -INFINITY : x;
}

/* One byte per group. */
static size_t top_k_scratch(const struct cpu_isa *isa, const struct tensor *t)
{
    struct param_top_k p;

    (void)isa;
    op_param_get(t, &p);
    return (size_t)p.n_group;
}

/* Sum of the two largest of n. */
static float best_two(const float *x, int64_t n)
{
    float a = -INFINITY, b = -INFINITY;

    for (int64_t i = 0; i < n; i++) {
        float v = rank(x[i]);

        if (v > a) {
            b = a;
            a = v;
        } else if (v > b) {
            b = v;
        }
    }
    return n > 1 ? a + b : a;
}

/* open[g] = 1 for the groups, of `each` elements, that take part. */
static void open_groups(const float *x, int64_t each, const struct param_top_k *p, char *open)
{
    memset(open, 0, (size_t)p->n_group);
    for (int u = 0; u < p->n_group_used; u++) {
        int best = -1;
        float most = 0;

        for (int g = 0; g < p->n_group; g++) {
            float v = open[g] ? 0 : best_two(x + g * each, each);

            if (!open[g] && (best < 0 || v > most)) {
                best = g;
                most = v;
            }
        }
        open[best] = 1;
    }
}

/* The places of the k largest so far: a heap whose root is the last of them in the order. */
struct top {
    const float *x;
    int32_t *ids; /* [k] */
    int32_t n, k;
};

/* Does place a come before b in the order? */
static bool before(const float *x, int32_t a, int32_t b)
{
    float va = rank(x[a]), vb = rank(x[b]);

    return va > vb || (va == vb && a < b);
}

/* Restore the heap below i. */
static void top_sink(const struct top *h, int32_t i)
{
    int32_t id = h->ids[i];

    for (int32_t c; (c = 2 * i + 1) < h->n; i = c) {
        if (c + 1 < h->n && before(h->x, h->ids[c], h->ids[c + 1]))
            c++;
        if (!before(h->x, id, h->ids[c]))
            break;
        h->ids[i] = h->ids[c];
    }
    h->ids[i] = id;
}

/* Offer the places [from, to), which are behind all that came before. */
static void top_add(struct top *h, int64_t from, int64_t to)
{
    int64_t i = from;
    float least;

    for (; i < to && h->n < h->k; i++)
        h->ids[h->n++] = (int32_t)i;
    if (h->n < h->k)
        return;
    for (int32_t j = h->k / 2 - 1; j >= 0; j--)
        top_sink(h, j);
    least = rank(h->x[h->ids[0]]);
    for (; i < to; i++) {
        if (h->x[i] > least) { /* not if it is NaN; what is equal comes later */
            h->ids[0] = (int32_t)i;
            top_sink(h, 0);
            least = rank(h->x[h->ids[0]]);
        }
    }
}

/* From a heap to the order. */
static void top_sort(struct top *h)
{
    while (h->n > 1) {
        int32_t last = h->ids[0];

        h->ids[0] = h->ids[--h->n];
        h->ids[h->n] = last;
        top_sink(h, 0);
    }
}

static void top_k_row(const float *x, int64_t n, int32_t *ids, const struct param_top_k *p,
                      char *open)
{
    struct top h = {.x = x, .ids = ids, .k = p->k};
    int n_group = p->n_group > 0 ? p->n_group : 1;
    int64_t each = n / n_group;

    if (p->n_group > 0)
        open_groups(x, each, p, open);
    for (int g = 0; g < n_group; g++)
        if (p->n_group <= 0 || open[g])
            top_add(&h, g * each, (g + 1) * each);
    top_sort(&h);
}

static void top_k_run(const struct cpu_task *k, const struct tensor *t)
{
    struct param_top_k p;
    int64_t from, to;

    op_param_get(t, &p);
    task_range(k, t->ne[1], &from, &to);
    for (int64_t r = from; r < to; r++)
        top_k_row(row_at(t->src[0], r), t->src[0]->ne[0], row_at(t, r), &p, k->scratch);
}

const struct cpu_op cpu_op_top_k = {
    .supports = top_k_supports, .scratch = top_k_scratch, .run = top_k_run};

/* ---- ARGMAX ---- */

static int32_t argmax_row(const float *x, int64_t n)
{
    float most = -INFINITY;
    int64_t at = 0;

    for (int64_t i = 0; i < n; i++) {
        if (x[i] > most) { /* not if it is NaN */
            most = x[i];
            at = i;
        }
    }
    return (int32_t)at;
}

static void argmax_run(const struct cpu_task *k, const struct tensor *t)
{
    int32_t *ids = t->data;
    int64_t from, to;

    task_range(k, t->ne[0], &from, &to);
    for (int64_t r = from; r < to; r++)
        ids[r] = argmax_row(row_at(t->src[0], r), t->src[0]->ne[0]);
}

const struct cpu_op cpu_op_argmax = {.supports = top_k_supports, .run = argmax_run};

/* ---- MASK_BITS ---- */

static bool mask_bits_supports(const struct tensor *t)
{
    const struct tensor *bits = t->src[1];

    return f32_rows(t) && f32_rows(t->src[0]) && bits->type == DT_I32 && bits->nb[0] == 4;
}

/* Words of bits are divided among the threads: there may be one row only. */
static void mask_bits_run(const struct cpu_task *k, const struct tensor *t)
{
    const uint32_t *bits = t->src[1]->data;
    int64_t from, to;

    task_range(k, t->src[1]->ne[0], &from, &to);
    from *= 32;
    to = to * 32 < t->ne[0] ? to * 32 : t->ne[0];
    for (int64_t r = 0; r < tensor_rows(t); r++) {
        const float *x = row_at(t->src[0], r);
        float *y = row_at(t, r);

        for (int64_t i = from; i < to; i++)
            y[i] = bits[i / 32] >> i % 32 & 1 ? x[i] : -INFINITY;
    }
}

const struct cpu_op cpu_op_mask_bits = {.supports = mask_bits_supports, .run = mask_bits_run};
