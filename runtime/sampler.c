#include "runtime/sampler.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "gguf/base/mem.h"

/*
 * How a sample is made
 *
 * Top-k, top-p and min-p each keep a prefix of the ids in descending order (lowest id first on a
 * tie), so after one ordering they only shorten the list. With top-k the order comes from a heap of
 * k entries, else from a radix sort. Weights are doubles from exp_portable(), summed in list order:
 * the result is a function of the logits alone, whatever the C library.
 */

struct pick {
    float logit;
    int32_t id;
};

struct sampler {
    struct sampler_options opt;
    int32_t n_vocab;
    bool *banned;    /* [n_vocab] */
    float *logits;   /* [n_vocab] of this sample, after bans and penalty */
    int32_t *recent; /* [n_recent_max] ring of accepted ids */
    uint32_t n_recent_max, n_recent, recent_next;
    struct pick *picks, *spare; /* [n_vocab] each: the ordered list, and room for the radix sort */
    double *weights;            /* [n_vocab] of picks */
    struct candidate *kept;     /* [n_vocab] result for sampler_kept */
    int32_t n_kept;
    uint64_t rng[4];
};

/* ---- generator ---- */

/* Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014 (SplitMix64). */
static uint64_t splitmix_next(uint64_t *x)
{
    uint64_t z = *x += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t rotate_left(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

/* Source: Blackman, Vigna, "Scrambled Linear Pseudorandom Number Generators", arXiv:1805.01407
 * (xoshiro256**). */
static uint64_t rng_next(uint64_t s[4])
{
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

/* Uniform in [0, 1), 53 bits. */
static double rng_uniform(uint64_t s[4])
{
    return (double)(rng_next(s) >> 11) * 0x1p-53;
}

/*
 * e^x for x <= 0, the same bits everywhere: only IEEE additions and multiplications. x = k ln 2 + r
 * with |r| <= ln 2 / 2; the Taylor polynomial of degree 13 is off by less than 2^-57 there.
 */
static double exp_portable(double x)
{
    static const double inverse_factorial[] = {
        1.0,
        1.0,
        1.0 / 2,
        1.0 / 6,
        1.0 / 24,
        1.0 / 120,
        1.0 / 720,
        1.0 / 5040,
        1.0 / 40320,
        1.0 / 362880,
        1.0 / 3628800,
        1.0 / 39916800,
        1.0 / 479001600,
        1.0 / 6227020800.0,
    };
    const double ln2_high = 0x1.62e42fefa38p-1, ln2_low = 0x1.ef35793c7673p-45;
    double k, r, p = 0;

    assert(x <= 0);
    if (x < -740)
        return 0;
    k = floor(x * 0x1.71547652b82fep0 + 0.5);
    r = x - k * ln2_high - k * ln2_low;
    for (int i = 13; i >= 0; i--)
        p = p * r + inverse_factorial[i];
    return ldexp(p, (int)k);
}

/* ---- options ---- */

void sampler_defaults(struct sampler_options *o)
{
    *o = (struct sampler_options){
        .temp = 0.8f,
        .top_k = 40,
        .top_p = 0.95f,
        .min_p = 0.05f,
        .repeat_penalty = 1,
        .repeat_last_n = 64,
    };
}

/* Negated so that NaN fails. */
static enum status check_share(const char *flag, float v, struct err *e)
{
    if (!(v >= 0 && v <= 1))
        return err_set(e, ST_USAGE, "%s is '%g', expected a number from 0 to 1", flag, (double)v);
    return ST_OK;
}

enum status sampler_check(const struct sampler_options *o, struct err *e)
{
    enum status st;

    if (!(o->temp >= 0 && o->temp <= FLT_MAX))
        return err_set(e, ST_USAGE, "--temp is '%g', expected a number of at least 0",
                       (double)o->temp);
    if ((st = check_share("--top-p", o->top_p, e)) || (st = check_share("--min-p", o->min_p, e)))
        return st;
    if (!(o->repeat_penalty > 0 && o->repeat_penalty <= FLT_MAX))
        return err_set(e, ST_USAGE, "--repeat-penalty is '%g', expected a number above 0",
                       (double)o->repeat_penalty);
    if (o->repeat_last_n < -1)
        return err_set(e, ST_USAGE,
                       "--repeat-last-n is '%d', expected a whole number of at least -1",
                       (int)o->repeat_last_n);
    return ST_OK;
}

/* ---- life ---- */

enum status sampler_new(struct sampler **out, const struct sampler_options *o, int32_t n_vocab,
                        uint32_t n_ctx, struct err *e)
{
    struct sampler *s;
    uint64_t seed = o->seed;
    size_t n = (size_t)n_vocab;
    enum status st;

    *out = NULL;
    assert(n_vocab > 0);
    st = sampler_check(o, e);
    if (st)
        return st;
    s = mem_zalloc(sizeof *s);
    if (!s)
        return err_nomem(e, "sampler", sizeof *s);
    s->opt = *o;
    s->n_vocab = n_vocab;
    s->n_recent_max = o->repeat_last_n < 0 ? n_ctx : (uint32_t)o->repeat_last_n;
    if (s->n_recent_max > n_ctx)
        s->n_recent_max = n_ctx; /* no text is longer */
    s->banned = mem_array(n, sizeof *s->banned);
    s->logits = mem_array(n, sizeof *s->logits);
    s->recent = mem_array(s->n_recent_max, sizeof *s->recent);
    s->picks = mem_array(n, sizeof *s->picks);
    s->spare = mem_array(n, sizeof *s->spare);
    s->weights = mem_array(n, sizeof *s->weights);
    s->kept = mem_array(n, sizeof *s->kept);
    if (!s->banned || !s->logits || !s->recent || !s->picks || !s->spare || !s->weights ||
        !s->kept) {
        sampler_free(s);
        return err_nomem(
            e, "sampler",
            n * (sizeof *s->picks * 2 + sizeof *s->weights + sizeof *s->kept + sizeof *s->logits));
    }
    for (int i = 0; i < 4; i++)
        s->rng[i] = splitmix_next(&seed);
    *out = s;
    return ST_OK;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    mem_free(s->banned);
    mem_free(s->logits);
    mem_free(s->recent);
    mem_free(s->picks);
    mem_free(s->spare);
    mem_free(s->weights);
    mem_free(s->kept);
    mem_free(s);
}

enum status sampler_ban(struct sampler *s, int32_t id, struct err *e)
{
    if (id < 0 || id >= s->n_vocab)
        return err_set(e, ST_USAGE, "token id %d is not in the vocabulary of %d", (int)id,
                       (int)s->n_vocab);
    s->banned[id] = true;
    return ST_OK;
}

void sampler_accept(struct sampler *s, int32_t id)
{
    if (!s->n_recent_max)
        return;
    s->recent[s->recent_next] = id;
    s->recent_next = (s->recent_next + 1) % s->n_recent_max;
    if (s->n_recent < s->n_recent_max)
        s->n_recent++;
}

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

/* The k first of the order, sorted, into s->picks. Returns how many there are. */
static int32_t order_top_k(struct sampler *s, int32_t k)
{
    struct pick *h = s->picks;
    int32_t n = 0;

    for (int32_t id = 0; id < s->n_vocab; id++) {
        struct pick x = {s->logits[id], id};
        if (x.logit == -INFINITY)
            continue;
        if (n < k) {
            h[n++] = x;
            if (n == k)
                for (int32_t i = k / 2 - 1; i >= 0; i--)
                    heap_sink(h, k, i);
        } else if (pick_before(x, h[0])) {
            h[0] = x;
            heap_sink(h, k, 0);
        }
    }
    if (n < k)
        for (int32_t i = n / 2 - 1; i >= 0; i--)
            heap_sink(h, n, i);
    for (int32_t end = n - 1; end > 0; end--) { /* take the last, again and again */
        struct pick last = h[0];
        h[0] = h[end];
        h[end] = last;
        heap_sink(h, end, 0);
    }
    return n;
}

/* A key whose unsigned order is the descending order of floats; -0 counts as 0. */
static uint32_t descending_key(float x)
{
    uint32_t u;

    x += 0.0f;
    memcpy(&u, &x, sizeof u);
    return u & 0x80000000u ? u : ~u & 0x7fffffffu;
}

/* One stable pass of a radix sort on 11 bits. */
static void radix_pass(const struct pick *src, struct pick *dst, int32_t n, int shift)
{
    uint32_t start[2048] = {0};
    uint32_t sum = 0;

    for (int32_t i = 0; i < n; i++)
        start[descending_key(src[i].logit) >> shift & 2047]++;
    for (int b = 0; b < 2048; b++) {
        uint32_t count = start[b];
        start[b] = sum;
        sum += count;
    }
    for (int32_t i = 0; i < n; i++)
        dst[start[descending_key(src[i].logit) >> shift & 2047]++] = src[i];
}

/* All ids, sorted, into s->picks. Ids enter in ascending order and the passes are stable: ties stay
 * so. */
static int32_t order_all(struct sampler *s)
{
    int32_t n = 0;

    for (int32_t id = 0; id < s->n_vocab; id++)
        if (s->logits[id] != -INFINITY)
            s->spare[n++] = (struct pick){s->logits[id], id};
    radix_pass(s->spare, s->picks, n, 0);
    radix_pass(s->picks, s->spare, n, 11);
    radix_pass(s->spare, s->picks, n, 22);
    return n;
}

/* ---- chain ---- */

/* Copy the logits, check them, apply bans and the penalty. */
static enum status prepare(struct sampler *s, const float *logits, struct err *e)
{
    float penalty = s->opt.repeat_penalty;

    for (int32_t id = 0; id < s->n_vocab; id++) {
        float x = logits[id];
        if (!(x < INFINITY))
            return err_set(e, ST_MODEL, "the logit of token %d is %s", (int)id,
                           isnan(x) ? "not a number" : "infinite");
        s->logits[id] = s->banned[id] ? -INFINITY : x;
    }
    if (penalty == 1)
        return ST_OK;
    for (uint32_t i = 0; i < s->n_recent;
         i++) { /* from the original: an id seen twice is penalised once */
        int32_t id = s->recent[i];
        float x;
        if (id < 0 || id >= s->n_vocab || s->logits[id] == -INFINITY)
            continue;
        x = logits[id] > 0 ? logits[id] / penalty : logits[id] * penalty;
        s->logits[id] = fmaxf(fminf(x, FLT_MAX), -FLT_MAX);
    }
    return ST_OK;
}

/* Weights e^((logit - max) / temp) of the first n picks; returns their sum. */
static double weigh(struct sampler *s, int32_t n, double temp)
{
    double max = (double)s->picks[0].logit, sum = 0;

    for (int32_t i = 0; i < n; i++) {
        s->weights[i] = exp_portable(((double)s->picks[i].logit - max) / temp);
        sum += s->weights[i];
    }
    return sum;
}

/* How many of the first n picks top-p and min-p keep, at least 1. */
static int32_t cut(struct sampler *s, int32_t n)
{
    double top_p = (double)s->opt.top_p, min_p = (double)s->opt.min_p;
    double sum, seen = 0;
    int32_t kept = 0;

    if (top_p >= 1 && min_p <= 0)
        return n;
    sum = weigh(s, n, 1);
    while (kept < n) {
        if (kept > 0 && s->weights[kept] < min_p) /* the first has weight 1 */
            break;
        seen += s->weights[kept++];
        if (top_p < 1 && seen >= top_p * sum)
            break;
    }
    return kept;
}

static int32_t draw(struct sampler *s, int32_t n, double sum)
{
    double mark = rng_uniform(s->rng) * sum, seen = 0;

    for (int32_t i = 0; i < n; i++) {
        seen += s->weights[i];
        if (mark < seen)
            return i;
    }
    return 0; /* mark rounded up to the sum */
}

static enum status sample_greedy(struct sampler *s, int32_t *id)
{
    int32_t best = 0;

    for (int32_t i = 1; i < s->n_vocab; i++)
        if (s->logits[i] > s->logits[best])
            best = i;
    if (s->logits[best] == -INFINITY)
        return ST_MODEL;
    s->kept[0] = (struct candidate){best, 1};
    s->n_kept = 1;
    *id = best;
    return ST_OK;
}

static enum status sample_draw(struct sampler *s, int32_t *id)
{
    int32_t k = s->opt.top_k, n;
    double sum;

    n = k > 0 && k < s->n_vocab ? order_top_k(s, k) : order_all(s);
    if (!n)
        return ST_MODEL;
    n = cut(s, n);
    sum = weigh(s, n, (double)s->opt.temp);
    for (int32_t i = 0; i < n; i++)
        s->kept[i] = (struct candidate){s->picks[i].id, (float)(s->weights[i] / sum)};
    s->n_kept = n;
    *id = s->picks[draw(s, n, sum)].id;
    return ST_OK;
}

enum status sampler_sample(struct sampler *s, const float *logits, int32_t *id, struct err *e)
{
    enum status st = prepare(s, logits, e);

    s->n_kept = 0;
    if (st)
        return st;
    st = s->opt.temp == 0 ? sample_greedy(s, id) : sample_draw(s, id);
    if (st)
        return err_set(e, st, "no token is left to pick: all %d have probability 0",
                       (int)s->n_vocab);
    return ST_OK;
}

const struct candidate *sampler_kept(const struct sampler *s, int32_t *n)
{
    *n = s->n_kept;
    return s->kept;
}
