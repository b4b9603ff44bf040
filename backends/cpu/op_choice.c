/*
 * Choosing among the elements of a row: TOP_K.
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

/* One byte per element and one per group. */
static size_t top_k_scratch(const struct cpu_isa *isa, const struct tensor *t)
{
    (void)isa;
    return 2 * (size_t)t->src[0]->ne[0];
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

/* closed[i] = 1 for the elements of groups that do not take part. */
static void close_groups(const float *x, int64_t n, const struct param_top_k *p, char *closed,
                         char *taken)
{
    int64_t each = n / p->n_group;

    memset(closed, 1, (size_t)n);
    memset(taken, 0, (size_t)p->n_group);
    for (int u = 0; u < p->n_group_used; u++) {
        int best = -1;
        float most = 0;

        for (int g = 0; g < p->n_group; g++) {
            float v = taken[g] ? 0 : best_two(x + g * each, each);

            if (!taken[g] && (best < 0 || v > most)) {
                best = g;
                most = v;
            }
        }
        taken[best] = 1;
        memset(closed + best * each, 0, (size_t)each);
    }
}

static void top_k_row(const float *x, int64_t n, int32_t *ids, const struct param_top_k *p,
                      char *closed)
{
    if (p->n_group > 0)
        close_groups(x, n, p, closed, closed + n);
    else
        memset(closed, 0, (size_t)n);
    for (int i = 0; i < p->k; i++) {
        int64_t best = -1;

        for (int64_t j = 0; j < n; j++) {
            if (!closed[j] && (best < 0 || rank(x[j]) > rank(x[best])))
                best = j;
        }
        closed[best] = 1;
        ids[i] = (int32_t)best;
    }
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
