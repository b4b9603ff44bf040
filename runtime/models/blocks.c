#include "runtime/models/blocks.h"

#include <math.h>
#include <string.h>

/* The pair whose wavelength fits n_rotations times into the original context. */
static float yarn_pair(const struct hparams *hp, float n_rotations)
{
    const float two_pi = 6.2831853071795864769f;

    return (float)hp->n_rot * logf((float)hp->rope_n_ctx_orig / (n_rotations * two_pi)) /
           (2 * logf(hp->rope_base));
}

void block_rope_params(struct param_rope *r, const struct hparams *hp, enum rope_mode mode)
{
    *r = (struct param_rope){
        .mode = (int32_t)mode,
        .n_rot = (int32_t)hp->n_rot,
        .base = hp->rope_base,
        .freq_scale = hp->rope_scale,
        .ext_factor = hp->yarn_ext_factor,
        .attn_factor = hp->rope_attn_factor,
    };
    if (hp->yarn_ext_factor == 0)
        return;
    if (hp->rope_scale < 1) {
        float l = 0.1f * logf(1 / hp->rope_scale);

        r->attn_factor *= (1 + l) / (1 + hp->yarn_log_mul * l);
    }
    r->corr_lo = fmaxf(0, floorf(yarn_pair(hp, hp->yarn_beta_fast)));
    r->corr_hi = fminf((float)hp->n_rot - 1, ceilf(yarn_pair(hp, hp->yarn_beta_slow)));
}

struct tensor *block_norm(struct build *b, enum norm_kind kind, struct tensor *x, struct tensor *w,
                          struct tensor *bias)
{
    float eps = b->m->hp.norm_eps;

    if (kind == NORM_LAYER)
        return op_norm(b->g, x, w, bias, eps);
    x = op_rms_norm(b->g, x, w, eps);
    return bias ? op_add(b->g, x, bias) : x;
}

struct tensor *block_product(struct build *b, struct tensor *w, struct tensor *x)
{
    struct tensor *y = NULL, *part;

    if (!model_row_part(b->m, w, 0))
        return op_mul_mat(b->g, w, x);
    for (int i = 0; (part = model_row_part(b->m, w, i)); i++) {
        struct tensor *rows = op_mul_mat(b->g, part, x);

        y = y ? op_concat(b->g, y, rows) : rows;
    }
    return y;
}

struct tensor *block_linear(struct build *b, struct tensor *w, struct tensor *bias,
                            struct tensor *x)
{
    struct tensor *y = block_product(b, w, x);

    return bias ? op_add(b->g, y, bias) : y;
}

/* [n_head * d, n_tok] -> [d, n_head, n_tok] */
static struct tensor *heads(struct build *b, struct tensor *x, uint32_t d, uint32_t n_head)
{
    int64_t ne[3] = {d, n_head, b->f->n_tokens};
    size_t nb[2];

    if (!x || tensor_contiguous(x))
        return op_reshape(b->g, x, 3, ne);
    nb[0] = d * sizeof(float);
    nb[1] = x->nb[1];
    return op_view(b->g, x, 3, ne, nb, 0);
}

/* Columns [at, at + n) of every row: [n, rows]. */
static struct tensor *columns(struct build *b, struct tensor *x, int64_t at, int64_t n)
{
    int64_t ne[2] = {n, x ? x->ne[1] : 0};
    size_t nb = x ? x->nb[1] : 0;

    return op_view(b->g, x, 2, ne, &nb, (size_t)at * sizeof(float));
}

/* The cache after this micro-batch's rows were written into it. */
static struct tensor *store(struct build *b, const struct block_attn_in *in, struct tensor *cache,
                            struct tensor *x)
{
    int64_t ne[2] = {cache->ne[0], b->f->n_tokens};

    if (!x || tensor_contiguous(x)) /* else columns of a fused product: rows as they are stored */
        x = op_reshape(b->g, x, 2, ne);
    return op_set_rows(b->g, cache, x, in->kv_rows);
}

/* The first n_rows rows of a cache: [d, n_head_kv, n_rows]. A view of the write, so that it comes
 * later. */
static struct tensor *load(struct build *b, const struct block_attn_in *in, struct tensor *cache,
                           uint32_t d, uint32_t il)
{
    uint32_t n_head_kv = b->m->hp.layer[il].n_head_kv;
    int64_t ne[3] = {d, n_head_kv, in->n_rows};
    size_t nb[2];

    if (!cache)
        return op_view(b->g, NULL, 3, ne, NULL, 0);
    nb[0] = dtype_row_bytes(cache->type, d);
    nb[1] = cache->nb[1];
    return op_view(b->g, cache, 3, ne, nb, 0);
}

static struct tensor *clamped(struct build *b, struct tensor *x, float limit)
{
    return limit > 0 ? op_clamp(b->g, x, -limit, limit) : x;
}

/* What the weights make of x: [n_head * d, n_tok] each. */
struct projected {
    struct tensor *q, *k, *v;
};

static struct projected project(struct build *b, const struct block_attn *w,
                                const struct block_attn_in *in, struct tensor *x, uint32_t il)
{
    int64_t n_q = arch_dim(&b->m->hp, D_Q, il), n_k = arch_dim(&b->m->hp, D_K, il);
    struct projected p;
    struct tensor *all;

    if (w->qkv) {
        all = clamped(b, block_linear(b, w->qkv, w->qkv_b, x), in->clamp_qkv);
        named(all, "qkv-%u", il);
        p.q = columns(b, all, 0, n_q);
        p.k = columns(b, all, n_q, n_k);
        if (in->no_rope) /* no later op gives it rows without gaps */
            p.k = op_cont(b->g, p.k);
        p.v = columns(b, all, n_q + n_k, arch_dim(&b->m->hp, D_V, il));
    } else {
        p.q = clamped(b, block_linear(b, w->q, w->q_b, x), in->clamp_qkv);
        p.k = clamped(b, block_linear(b, w->k, w->k_b, x), in->clamp_qkv);
        p.v = clamped(b, block_linear(b, w->v, w->v_b, x), in->clamp_qkv);
    }
    named(p.q, "Qproj-%u", il);
    named(p.k, "Kproj-%u", il);
    named(p.v, "Vcur-%u", il);
    return p;
}

/* Norm of each head of x [d, n_head, n_tok]; w [d] or [d, n_head]. */
static struct tensor *norm_heads(struct build *b, enum norm_kind kind, struct tensor *x,
                                 struct tensor *w)
{
    if (w->ne[1] == 1)
        return block_norm(b, kind, x, w, NULL);
    return op_mul(b->g, block_norm(b, kind, x, NULL, NULL), w);
}

/* Q or K with norm and positions: [n_head * d, n_tok] -> [d, n_head, n_tok]. */
static struct tensor *positioned(struct build *b, const struct block_attn_in *in, struct tensor *x,
                                 struct tensor *norm, struct tensor *norm_b, uint32_t n_head)
{
    uint32_t d = b->m->hp.n_embd_head_k;
    bool whole = norm && norm->ne[0] != d;

    if (whole)
        x = block_norm(b, in->norm, x, norm, norm_b);
    x = heads(b, x, d, n_head);
    if (norm && !whole && !in->norm_after_rope)
        x = norm_heads(b, in->norm, x, norm);
    if (!in->no_rope)
        x = op_rope(b->g, x, in->pos, in->freqs, &in->rope);
    if (in->unit_norm && !in->no_rope)
        x = op_rms_norm(b->g, x, NULL, b->m->hp.norm_eps);
    if (norm && !whole && in->norm_after_rope)
        x = norm_heads(b, in->norm, x, norm);
    return x;
}

struct stored {
    struct tensor *k, *v; /* results of SET_ROWS: the caches */
};

static struct stored store_kv(struct build *b, const struct block_attn *w,
                              const struct block_attn_in *in, const struct projected *p,
                              uint32_t il)
{
    struct tensor *norm = w->q_norm ? w->k_norm : NULL;
    struct tensor *k = positioned(b, in, p->k, norm, w->k_norm_b, b->m->hp.layer[il].n_head_kv);

    /* Both before either is stored: where the cache is on another device, one change of device is enough. */
    graph_expand(b->g, named(k, "Kcur-%u", il));
    graph_expand(b->g, p->v);
    return (struct stored){
        .k = named(store(b, in, &b->kv->k[il], k), "k_store-%u", il),
        .v = named(store(b, in, &b->kv->v[il], p->v), "v_store-%u", il),
    };
}

/*
 * x [d, n_head_kv, n_rows], a view of a cache, with its rows in the order of the mask's places:
 * [d, n_head_kv, n_kv, n_seqs].
 */
static struct tensor *ordered(struct build *b, const struct block_attn_in *in, struct tensor *x)
{
    int64_t n = in->mask ? in->mask->ne[0] : 0, n_all = n * in->n_seqs;
    int64_t flat[2] = {0}, ne[4] = {0, 0, n, in->n_seqs};
    size_t nb = 0;

    if (!in->n_seqs)
        return x;
    if (x) {
        ne[0] = x->ne[0];
        ne[1] = x->ne[1];
        flat[0] = ne[0] * ne[1];
        flat[1] = x->ne[2];
        nb = x->nb[2];
    }
    x = op_view(b->g, x, 2, flat, &nb, 0);
    x = op_get_rows(b->g, x, op_reshape(b->g, in->cells, 1, &n_all));
    return op_reshape(b->g, x, 4, ne);
}

/* x [..., n_tok] of rank 3 as [..., n_tok / n_seqs, n_seqs], of whatever strides. */
static struct tensor *by_sequence(struct build *b, const struct block_attn_in *in, struct tensor *x)
{
    int64_t ne[4] = {0, 0, b->f->n_tokens / in->n_seqs, in->n_seqs};
    size_t nb[3] = {0};

    if (x) {
        ne[0] = x->ne[0];
        ne[1] = x->ne[1];
        nb[0] = x->nb[1];
        nb[1] = x->nb[2];
        nb[2] = x->nb[2] * (size_t)ne[2];
    }
    return op_view(b->g, x, 4, ne, nb, 0);
}

/* The same by way of the matrix of scores. V stays as it is cached: MUL_MAT reads it the other way round. */
static struct tensor *attend_in_steps(struct build *b, const struct block_attn_in *in,
                                      struct tensor *q, struct tensor *k, struct tensor *v,
                                      struct tensor *sinks, const struct param_attn *p)
{
    static const int swap[4] = {0, 2, 1, 3}, turn[4] = {1, 2, 0, 3};
    bool several = in->n_seqs > 1;
    int64_t n_seq_tok = several ? b->f->n_tokens / in->n_seqs : 0;
    int64_t ne_mask[4] = {in->mask ? in->mask->ne[0] : 0, n_seq_tok, 1, in->n_seqs};
    int64_t ne[3] = {v ? v->ne[0] : 0, q ? q->ne[1] : 0, b->f->n_tokens};
    struct tensor *mask = several ? op_reshape(b->g, in->mask, 4, ne_mask) : in->mask, *s;

    if (several)
        q = by_sequence(b, in, q);
    k = ordered(b, in, k);
    v = ordered(b, in, v);
    s = op_mul_mat(b->g, op_permute(b->g, k, swap), op_permute(b->g, q, swap));
    s = op_attn_soft_max(b->g, s, mask, sinks, p);      /* [n_kv, n_tok, n_head] of each */
    s = op_mul_mat(b->g, op_permute(b->g, v, turn), s); /* [d_v, n_tok, n_head] */
    s = op_cont(b->g, op_permute(b->g, s, swap));
    return several ? op_reshape(b->g, s, 3, ne) : s;
}

struct tensor *block_attend(struct build *b, const struct block_attn_in *in, struct tensor *q,
                            struct tensor *k, struct tensor *v, struct tensor *sinks)
{
    struct param_attn p = {.scale = in->scale, .softcap = in->softcap, .max_bias = in->max_bias};

    if (b->no_flash_attn)
        return attend_in_steps(b, in, q, k, v, sinks, &p);
    return op_flash_attn(b->g, q, k, v, in->mask, sinks, in->cells, &p);
}

/* Of [query, gate] of each head the one or the other: [n_head * d, n_tok]. */
static struct tensor *half_heads(struct build *b, struct tensor *x, int half, uint32_t il)
{
    int64_t d = b->m->hp.n_embd_head_k, n_head = b->m->hp.layer[il].n_head;
    int64_t ne[3] = {d, n_head, b->f->n_tokens}, flat[2] = {d * n_head, b->f->n_tokens};
    size_t nb[2] = {2 * (size_t)d * sizeof(float), x ? x->nb[1] : 0};

    x = op_view(b->g, x, 3, ne, nb, (size_t)(half * d) * sizeof(float));
    return op_reshape(b->g, op_cont(b->g, x), 2, flat);
}

struct tensor *block_attn(struct build *b, const struct block_attn *w,
                          const struct block_attn_in *in, struct tensor *x, uint32_t il)
{
    const struct hparams *hp = &b->m->hp;
    int64_t ne[2] = {arch_dim(hp, D_O, il), b->f->n_tokens};
    struct projected p = project(b, w, in, x, il);
    struct tensor *gate = in->gated ? half_heads(b, p.q, 1, il) : NULL, *y;
    struct tensor *q = in->gated ? half_heads(b, p.q, 0, il) : p.q;
    struct stored kv;

    q = positioned(b, in, q, w->q_norm, w->q_norm_b, hp->layer[il].n_head);
    if (in->q_scale)
        q = op_mul(b->g, q, in->q_scale);
    graph_expand(b->g, named(q, "Qcur-%u", il));
    kv = store_kv(b, w, in, &p, il);
    y = block_attend(b, in, q, load(b, in, kv.k, hp->n_embd_head_k, il),
                     load(b, in, kv.v, hp->n_embd_head_v, il), w->sinks);
    y = named(op_reshape(b->g, named(y, "kqv-%u", il), 2, ne), "kqv_out-%u", il);
    if (in->gated)
        y = named(op_mul(b->g, y, op_unary(b->g, gate, UNARY_SIGMOID)), "kqv_gated-%u", il);
    return named(block_linear(b, w->o, w->o_b, y), "attn_out-%u", il);
}

void block_attn_store(struct build *b, const struct block_attn *w, const struct block_attn_in *in,
                      struct tensor *x, uint32_t il)
{
    struct projected p = project(b, w, in, x, il);
    struct stored kv = store_kv(b, w, in, &p, il);

    graph_expand(b->g, kv.k);
    graph_expand(b->g, kv.v);
}

enum unary_kind block_ffn_unary(enum ffn_act act)
{
    return act == FFN_RELU_SQR ? UNARY_RELU_SQR : UNARY_GELU;
}

struct tensor *block_ffn(struct build *b, const struct block_ffn *w, enum ffn_act act,
                         struct tensor *x, uint32_t il)
{
    static const enum glu_kind glus[] = {
        [FFN_SWIGLU] = GLU_SWIGLU, [FFN_SWIGLU_OAI] = GLU_SWIGLU_OAI, [FFN_GEGLU] = GLU_GEGLU};
    int64_t n_ff = b->m->hp.layer[il].n_ff;
    struct tensor *gate, *up = block_linear(b, w->up, w->up_b, x), *y;

    if (act <= FFN_GEGLU) {
        if (w->gate) {
            gate = block_linear(b, w->gate, w->gate_b, x);
        } else {
            gate = columns(b, up, 0, n_ff);
            up = columns(b, up, n_ff, n_ff);
        }
        y = op_glu(b->g, named(gate, "ffn_gate-%u", il), named(up, "ffn_up-%u", il), glus[act]);
    } else {
        y = op_unary(b->g, named(up, "ffn_up-%u", il), block_ffn_unary(act));
    }
    if (w->act_scale)
        y = op_div(b->g, y, w->act_scale);
    named(y, "ffn_act-%u", il);
    return named(block_linear(b, w->down, w->down_b, y), "ffn_out-%u", il);
}
