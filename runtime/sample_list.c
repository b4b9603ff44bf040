/*
 * The list of candidates: order, weights, draw.
 *
 * The order comes from a heap of k entries when only k are wanted, else from a radix sort. Weights
 * are summed in list order: the result is a function of the logits alone, whatever the C library.
 */
#include <assert.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/sample.h"

/* ---- order ---- */

/* Does a come before b in the descending order? */
static bool pick_before(struct pick a, struct pick b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* Restore the heap h[0..n) below i: the root is the last in the order. */
static void heap_sink(struct pick *h, int32_t n, int32_t i)
{
    struct pick x = h[i];

    for (;;) {
        int32_t c = 2 * i + 1;
        if (c >= n)
            break;
        if (c + 1 < n && pick_before(h[c], h[c + 1]))
            c++;
        if (!pick_before(x, h[c]))
            break;
        h[i] = h[c];
        i = c;
    }
    h[i] = x;
}

void sample_heap(struct pick *h, int32_t n)
{
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        heap_sink(h, n, i);
}

struct pick sample_heap_pop(struct pick *h, int32_t *n)
{
    struct pick last = h[0];

    h[0] = h[--*n];
    heap_sink(h, *n, 0);
    return last;
}

/* Put the k first of the order into h[0..k), in order. */
static void heap_order(struct pick *h, int32_t n, int32_t k)
{
    sample_heap(h, k);
    for (int32_t i = k; i < n; i++) {
        if (pick_before(h[i], h[0])) {
            h[0] = h[i];
            heap_sink(h, k, 0);
        }
    }
    while (k > 1) {
        struct pick last = sample_heap_pop(h, &k);
        h[k] = last;
    }
}

/* A key whose unsigned order is the descending order of numbers; -0 counts as 0. */
static uint64_t descending_key(double x)
{
    uint64_t u;

    x += 0.0;
    memcpy(&u, &x, sizeof u);
    return u >> 63 ? u : ~u & UINT64_MAX >> 1;
}

enum { RADIX_BITS = 11, RADIX = 1 << RADIX_BITS };

/* One stable pass on 11 bits. False when they are the same everywhere: nothing was moved. */
static bool radix_pass(const struct pick *src, struct pick *dst, int32_t n, int shift)
{
    uint32_t start[RADIX] = {0};
    uint32_t sum = 0;

    for (int32_t i = 0; i < n; i++)
        start[descending_key(src[i].logit) >> shift & (RADIX - 1)]++;
    if (start[descending_key(src[0].logit) >> shift & (RADIX - 1)] == (uint32_t)n)
        return false;
    for (int b = 0; b < RADIX; b++) {
        uint32_t count = start[b];
        start[b] = sum;
        sum += count;
    }
    for (int32_t i = 0; i < n; i++)
        dst[start[descending_key(src[i].logit) >> shift & (RADIX - 1)]++] = src[i];
    return true;
}

/* Of a list in ascending ids: the passes are stable, so ties stay in this order. */
static void radix_order(struct sample *l)
{
    for (int shift = 0; shift < 64; shift += RADIX_BITS) {
        if (radix_pass(l->picks, l->spare, l->n, shift)) {
            struct pick *p = l->picks;
            l->picks = l->spare;
            l->spare = p;
        }
    }
}

void sample_sort(struct sample *l)
{
    if (l->sorted)
        return;
    if (l->by_id)
        radix_order(l);
    else
        heap_order(l->picks, l->n, l->n);
    sample_changed(l, true);
    l->by_id = false;
}

void sample_sort_top(struct sample *l, int32_t k)
{
    assert(k > 0);
    if (k >= l->n) {
        sample_sort(l);
        return;
    }
    if (!l->sorted) {
        heap_order(l->picks, l->n, k);
        sample_changed(l, true);
        l->by_id = false;
    }
    sample_keep(l, k);
}

void sample_keep(struct sample *l, int32_t n)
{
    assert(n >= 1 && n <= l->n);
    if (!l->sorted && n < l->n) /* the largest may be gone, and with it what the weights refer to */
        l->weighed = false;
    l->n = n;
}

void sample_changed(struct sample *l, bool sorted)
{
    l->sorted = sorted;
    l->weighed = false;
}

int32_t sample_largest(const struct sample *l)
{
    int32_t best = 0;

    for (int32_t i = 1; !l->sorted && i < l->n; i++)
        if (pick_before(l->picks[i], l->picks[best]))
            best = i;
    return best;
}

/* ---- weights ---- */

double sample_weigh(struct sample *l)
{
    double sum = 0;

    if (!l->weighed) {
        double max = l->picks[sample_largest(l)].logit;
        for (int32_t i = 0; i < l->n; i++)
            l->weights[i] = sample_exp(l->picks[i].logit - max);
        l->weighed = true;
    }
    for (int32_t i = 0; i < l->n; i++)
        sum += l->weights[i];
    return sum;
}

double sample_entropy(struct sample *l)
{
    double sum = sample_weigh(l), log_sum = sample_log(sum), h = 0;
    double max = l->picks[sample_largest(l)].logit;

    for (int32_t i = 0; i < l->n; i++)
        if (l->weights[i] > 0)
            h += l->weights[i] / sum * (log_sum - (l->picks[i].logit - max));
    return h > 0 ? h : 0;
}

int32_t sample_draw(struct sample *l, double sum)
{
    double mark = rng_uniform(l->rng) * sum, seen = 0;

    for (int32_t i = 0; i < l->n; i++) {
        seen += l->weights[i];
        if (mark < seen)
            return i;
    }
    return sample_largest(l); /* mark rounded up to the sum */
}

/* ---- recent tokens ---- */

bool recent_init(struct recent *r, int32_t last_n, uint32_t n_ctx)
{
    *r = (struct recent){.max = last_n < 0 ? n_ctx : (uint32_t)last_n};
    if (r->max > n_ctx)
        r->max = n_ctx; /* no text is longer */
    r->id = mem_array(r->max, sizeof *r->id);
    return r->id != NULL;
}

void recent_release(struct recent *r)
{
    mem_free(r->id);
}

int32_t recent_add(struct recent *r, int32_t id)
{
    int32_t gone = -1;

    if (!r->max)
        return -1;
    if (r->n == r->max)
        gone = r->id[r->next];
    else
        r->n++;
    r->id[r->next] = id;
    r->next = (r->next + 1) % r->max;
    return gone;
}

int32_t recent_at(const struct recent *r, uint32_t back)
{
    assert(back < r->n);
    return r->id[(r->next + r->max - 1 - back) % r->max];
}
