/*
 * FLASH_ATTN: softmax(cap(scale q k) + slope mask) v without the matrix of scores.
 *
 * Positions are taken in chunks of CHUNK, counted from 0, with the running maximum m, sum l and
 * output o of each query; the result is o / l:
 *     m' = max(m, scores)
 *     o  = o exp(m - m') + sum exp(score - m') v
 *     l  = l exp(m - m') + sum exp(score - m')
 * A head with a sink starts with m = sink and l = 1, as after a position whose v is zero.
 * Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", arXiv:1805.02867;
 * Dao et al., "FlashAttention", arXiv:2205.14135.
 *
 * An item of work is a kv head (or one head of its group) with a tile of tokens of one sequence. What a query
 * computes depends on its own row only: neither the tile, the threads nor padding of n_kv change a
 * bit. A masked position (mask -inf) adds exactly nothing, whatever its K and V hold; a query with
 * every position masked gives zeros. NaN anywhere else gives NaN.
 */
#include <math.h>
#include <string.h>

#include "backends/cpu/dmath.h"
#include "backends/cpu/ops.h"

#define CHUNK     64 /* positions */
#define MAX_QUERY 48 /* queries of an item, unless a group has more heads */

static bool attn_supports(const struct tensor *t)
{
    const struct tensor *q = t->src[0], *mask = t->src[3];

    return f32_rows(t) && f32_rows(q) && tensor_rows_contiguous(t->src[1]) &&
           tensor_rows_contiguous(t->src[2]) && mask && tensor_rows_contiguous(mask) &&
           (!t->src[4] || f32_rows(t->src[4])) &&
           (!t->src[5] || tensor_rows_contiguous(t->src[5])) && q->ne[0] <= INT16_MAX &&
           t->ne[0] <= INT16_MAX && q->ne[1] <= INT16_MAX;
}

/* Shapes of an op and of its items. */
struct attn {
    const struct tensor *t, *q, *k, *v, *mask;
    const float *sinks;             /* [n_head], or NULL */
    const struct tensor *cells;     /* [n_kv, n_seqs] rows of k and v, or NULL: in order */
    int d, d_pad;                   /* head size of q and k; rounded up to 4 */
    int dv, dv_pad;                 /* of v; rounded up to 16 */
    int n_group;                    /* heads per kv head */
    int n_tile;                     /* tokens per item */
    int max_query;                  /* n_group * n_tile */
    int64_t n_kv, n_tok, n_seqs;    /* n_tok: of a sequence */
    float scale, softcap, max_bias; /* softcap, max_bias 0: none */
};

static struct attn attn_of(const struct tensor *t)
{
    struct attn a = {.t = t, .q = t->src[0], .k = t->src[1], .v = t->src[2], .mask = t->src[3]};
    struct param_attn p;

    op_param_get(t, &p);
    a.scale = p.scale;
    a.softcap = p.softcap;
    a.max_bias = p.max_bias;
    a.sinks = t->src[4] ? t->src[4]->data : NULL;
    a.cells = t->src[5];
    a.d = (int)a.q->ne[0];
    a.dv = (int)a.v->ne[0];
    a.d_pad = (a.d + 3) & ~3;
    a.dv_pad = (a.dv + 15) & ~15;
    a.n_group = (int)(a.q->ne[1] / a.k->ne[1]);
    a.n_seqs = a.cells ? a.cells->ne[1] : 1;
    a.n_tok = a.q->ne[2] / a.n_seqs;
    a.n_kv = a.mask->ne[0];
    a.n_tile = MAX_QUERY / a.n_group < 1 ? 1 : MAX_QUERY / a.n_group;
    if (a.n_tile > a.n_tok)
        a.n_tile = (int)a.n_tok;
    a.max_query = a.n_group * a.n_tile;
    return a;
}

/* One thread's scratch, cut from its bytes in this order. Floats; every row is 16-byte aligned. */
struct room {
    float *rows;  /* [d_pad or dv_pad, CHUNK]: K as it lies in the cache, then V */
    float *kt;    /* [CHUNK, d_pad]: K transposed */
    float *mask;  /* [CHUNK, n_tile] */
    float *q;     /* [d_pad, max_query] */
    float *s;     /* [CHUNK, max_query]: scores, then weights */
    float *o;     /* [dv_pad, max_query] */
    float *m, *l; /* [max_query] */
    float *corr;  /* [max_query]: exp(old m - new m) */
    float *sum;   /* [max_query]: of a chunk's weights */
    float *slope; /* [max_query]: of the mask */
    float *bias;  /* [CHUNK]: a query's mask times its slope */
};

static size_t lay_out(const struct attn *a, struct room *r, float *base)
{
    size_t n = 0, q = (size_t)a->max_query, q4 = (q + 3) & ~(size_t)3;
    size_t width = (size_t)(a->d_pad > a->dv_pad ? a->d_pad : a->dv_pad);
    struct {
        float **p;
        size_t n;
    } part[] = {
        {&r->rows, width * CHUNK},
        {&r->kt, (size_t)a->d_pad * CHUNK},
        {&r->mask, (size_t)a->n_tile * CHUNK},
        {&r->q, (size_t)a->d_pad * q},
        {&r->s, CHUNK * q},
        {&r->o, (size_t)a->dv_pad * q},
        {&r->m, q4},
        {&r->l, q4},
        {&r->corr, q4},
        {&r->sum, q4},
        {&r->slope, q4},
        {&r->bias, CHUNK},
    };

    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++) {
        *part[i].p = base ? base + n : NULL;
        n += part[i].n;
    }
    return n * sizeof(float);
}

static size_t attn_scratch(const struct cpu_isa *isa, const struct tensor *t)
{
    struct attn a = attn_of(t);
    struct room r;

    (void)isa;
    return lay_out(&a, &r, NULL);
}

/* What one thread works on: heads h .. h + n_h - 1 of kv head h_kv, tokens i .. i + n_i - 1. */
struct item {
    const int32_t *cells; /* of the tokens' sequence, or NULL */
    int64_t h_kv, h, i;
    int n_h, n_i;
};

float attn_slope(float max_bias, int64_t n_head, int64_t h)
{
    const double ln2 = 0x1.62e42fefa39efp-1;
    double exponent;
    int64_t p = 1;

    if (max_bias <= 0)
        return 1;
    while (2 * p <= n_head)
        p *= 2;
    exponent = (h < p ? (double)(h + 1) : (double)(h - p) + 0.5) / (double)p;
    return (float)cpu_exp(fmax(-ln2 * (double)max_bias * exponent, -600)); /* 0 from there on */
}

/* Rows of queries in scratch: token by token, within a token head by head. */
static void load_queries(const struct attn *a, const struct item *it, struct room *r)
{
    int n_q = it->n_h * it->n_i;

    for (int x = 0; x < n_q; x++) {
        int64_t h = it->h + x % it->n_h;

        memcpy(r->q + (size_t)x * (size_t)a->d_pad, row_of(a->q, h, it->i + x / it->n_h, 0),
               (size_t)a->d * sizeof(float));
        r->m[x] = a->sinks ? a->sinks[h] : -INFINITY;
        r->l[x] = r->m[x] != -INFINITY ? 1.0f : 0.0f;
        r->slope[x] = x < it->n_h ? attn_slope(a->max_bias, a->q->ne[1], h) : r->slope[x % it->n_h];
    }
    memset(r->o, 0, (size_t)n_q * (size_t)a->dv_pad * sizeof *r->o);
}

/* Mask of positions p .. p + n - 1 for each token, -inf behind; true if any of it is not -inf. */
static bool load_mask(const struct attn *a, const struct item *it, struct room *r,
                      quant_decode_fn *decode, int64_t p, int n)
{
    size_t bytes = dtype_info(a->mask->type)->bytes;
    bool any = false;

    for (int i = 0; i < it->n_i; i++) {
        float *m = r->mask + i * CHUNK;
        decode((const char *)row_of(a->mask, it->i + i, 0, 0) + (size_t)p * bytes, m, n);
        for (int j = n; j < CHUNK; j++)
            m[j] = -INFINITY;
        for (int j = 0; j < n; j++)
            any |= m[j] != -INFINITY;
    }
    return any;
}

/* Positions p .. p + n - 1 of the kv head in t, k or v, as [width, CHUNK] floats with zeros around;
 * width >= ne[0]. */
static void load_rows(const struct item *it, const struct tensor *t, quant_decode_fn *decode,
                      int64_t p, int n, float *rows, int width)
{
    int64_t d = t->ne[0];

    for (int j = 0; j < n; j++) {
        float *row = rows + (size_t)j * (size_t)width;
        decode(row_of(t, it->h_kv, it->cells ? it->cells[p + j] : p + j, 0), row, d);
        for (int64_t x = d; x < width; x++)
            row[x] = 0;
    }
    memset(rows + (size_t)n * (size_t)width, 0, (size_t)(CHUNK - n) * (size_t)width * sizeof *rows);
}

/* Is some element infinite or NaN? */
static bool has_nonfinite(const float *x, size_t n)
{
    uint32_t found = 0, u;

    for (size_t i = 0; i < n; i++) {
        memcpy(&u, x + i, sizeof u);
        found |= (u & 0x7f800000u) == 0x7f800000u;
    }
    return found;
}

/* What is added to the scores of query x. */
static const float *bias_of(const struct attn *a, const struct item *it, struct room *r, int x)
{
    const float *mask = r->mask + x / it->n_h * CHUNK;

    if (a->max_bias <= 0)
        return mask;
    for (int j = 0; j < CHUNK; j++) /* the slope may be 0, or small enough: 0 times -inf is NaN */
        r->bias[j] = mask[j] == -INFINITY ? -INFINITY : mask[j] * r->slope[x];
    return r->bias;
}

/* Scores, capped where asked, become weights; m, l and o follow the new maximum. */
static void weigh(const struct cpu_task *k, const struct attn *a, const struct item *it,
                  struct room *r)
{
    int n_q = it->n_h * it->n_i;
    float scale = a->softcap > 0 ? 1 : a->scale;

    if (a->softcap > 0)
        k->isa->kernels->softcap(r->s, r->s, a->scale, a->softcap, (int64_t)n_q * CHUNK);
    for (int x = 0; x < n_q; x++) {
        float before = r->m[x];
        r->sum[x] = k->isa->kernels->softmax(r->s + x * CHUNK, bias_of(a, it, r, x), scale, CHUNK,
                                             &r->m[x]);
        r->corr[x] = before == r->m[x] ? 0 : before - r->m[x]; /* no -inf minus -inf */
    }
    k->isa->kernels->exp(r->corr, r->corr, n_q);
    for (int x = 0; x < n_q; x++) {
        float *o = r->o + (size_t)x * (size_t)a->dv_pad;
        r->l[x] = r->l[x] * r->corr[x] + r->sum[x];
        for (int j = 0; r->corr[x] != 1 && j < a->dv_pad; j++)
            o[j] *= r->corr[x];
    }
}

/*
 * o += weights times V. With infinities or NaN in V, 0 times V is not 0: masked positions are left
 * out.
 */
static void add_values(const struct cpu_task *k, const struct attn *a, const struct item *it,
                       struct room *r)
{
    const struct cpu_kernels *f = k->isa->kernels;
    size_t dv = (size_t)a->dv_pad;
    int n_q = it->n_h * it->n_i;

    if (!has_nonfinite(r->rows, dv * CHUNK)) {
        f->outer(r->s, CHUNK, n_q, r->rows, dv, a->dv_pad, CHUNK, r->o, dv);
        return;
    }
    for (int x = 0; x < n_q; x++)
        for (int j = 0; j < CHUNK; j++)
            if (r->mask[x / it->n_h * CHUNK + j] != -INFINITY)
                f->outer(r->s + x * CHUNK + j, CHUNK, 1, r->rows + (size_t)j * dv, dv, a->dv_pad, 1,
                         r->o + (size_t)x * dv, dv);
}

static void store_results(const struct attn *a, const struct item *it, const struct room *r)
{
    int n_q = it->n_h * it->n_i;

    for (int x = 0; x < n_q; x++) {
        float *y = row_of(a->t, it->h + x % it->n_h, it->i + x / it->n_h, 0);
        const float *o = r->o + (size_t)x * (size_t)a->dv_pad;
        float inverse = r->l[x] == 0 ? 0 : 1 / r->l[x];
        for (int j = 0; j < a->dv; j++)
            y[j] = o[j] * inverse;
    }
}

static void run_item(const struct cpu_task *k, const struct attn *a, const struct item *it,
                     struct room *r)
{
    const struct cpu_kernels *f = k->isa->kernels;
    quant_decode_fn *decode_k = task_decoder(k->isa, a->k->type);
    quant_decode_fn *decode_v = task_decoder(k->isa, a->v->type);
    quant_decode_fn *decode_m = task_decoder(k->isa, a->mask->type);
    int n_q = it->n_h * it->n_i;

    load_queries(a, it, r);
    for (int64_t p = 0; p < a->n_kv; p += CHUNK) {
        int n = (int)(a->n_kv - p < CHUNK ? a->n_kv - p : CHUNK);

        if (!load_mask(a, it, r, decode_m, p, n))
            continue;
        load_rows(it, a->k, decode_k, p, n, r->rows, a->d_pad);
        f->transpose(r->rows, (size_t)a->d_pad, CHUNK, a->d_pad, r->kt, CHUNK);
        memset(r->s, 0, (size_t)n_q * CHUNK * sizeof *r->s);
        f->outer(r->q, (size_t)a->d_pad, n_q, r->kt, CHUNK, CHUNK, a->d, r->s, CHUNK);
        weigh(k, a, it, r);
        load_rows(it, a->v, decode_v, p, n, r->rows, a->dv_pad);
        add_values(k, a, it, r);
    }
    store_results(a, it, r);
}

static void attn_run(const struct cpu_task *k, const struct tensor *t)
{
    struct attn a = attn_of(t);
    int64_t n_head_kv = a.k->ne[1], n_each = (a.n_tok + a.n_tile - 1) / a.n_tile;
    int64_t n_tiles = n_each * a.n_seqs, item;
    /* Few items: the heads of a group go to different threads, although each then reads K and V. */
    int n_split = n_head_kv * n_tiles < 4 * k->nth && k->nth > 1 ? a.n_group : 1;
    int64_t n_item = n_head_kv * n_split * n_tiles;
    struct room r;

    lay_out(&a, &r, k->scratch);
    while ((item = task_next(k)) < n_item) {
        int64_t tile =
            n_tiles - 1 - item / (n_head_kv * n_split); /* the last tokens see most: first */
        int64_t part = item % (n_head_kv * n_split), seq = tile / n_each;
        int64_t i = tile % n_each * a.n_tile;
        struct item it = {
            .cells = a.cells ? row_of(a.cells, seq, 0, 0) : NULL,
            .h_kv = part / n_split,
            .h = part / n_split * a.n_group + part % n_split,
            .n_h = n_split > 1 ? 1 : a.n_group,
            .i = seq * a.n_tok + i,
            .n_i = (int)(a.n_tok - i < a.n_tile ? a.n_tok - i : a.n_tile),
        };
        run_item(k, &a, &it, &r);
    }
}

const struct cpu_op cpu_op_flash_attn = {.supports = attn_supports,
                                         .scratch = attn_scratch,
                                         .run = attn_run,
                                         .heavy = true,
                                         .isa_in_name = true};
