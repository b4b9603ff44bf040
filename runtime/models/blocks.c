#include "runtime/models/blocks.h"

#include <math.h>

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
    if (hp->rope_scale < 1)
        r->attn_factor *= 1 + 0.1f * logf(1 / hp->rope_scale);
    r->corr_lo = fmaxf(0, floorf(yarn_pair(hp, hp->yarn_beta_fast)));
    r->corr_hi = fminf((float)hp->n_rot - 1, ceilf(yarn_pair(hp, hp->yarn_beta_slow)));
}

struct tensor *block_linear(struct build *b, struct tensor *w, struct tensor *bias,
                            struct tensor *x)
{
    struct tensor *y = op_mul_mat(b->g, w, x);

    return bias ? op_add(b->g, y, bias) : y;
}

/* [n_head * d, n_tok] -> [d, n_head, n_tok] */
static struct tensor *heads(struct build *b, struct tensor *x, uint32_t d, uint32_t n_head)
{
    int64_t ne[3] = {d, n_head, b->f->n_tokens};

    return op_reshape(b->g, x, 3, ne);
}

/* heads() of a projection, normalised and rotated. */
static struct tensor *rotated(struct build *b, const struct block_attn_in *in, struct tensor *x,
                              struct tensor *norm, uint32_t n_head)
{
    x = heads(b, x, b->m->hp.n_embd_head_k, n_head);
    if (norm)
        x = op_rms_norm(b->g, x, norm, b->m->hp.norm_eps);
    return op_rope(b->g, x, in->pos, in->freqs, &in->rope);
}

/* The cache after this micro-batch's rows were written into it. */
static struct tensor *store(struct build *b, const struct block_attn_in *in, struct tensor *cache,
                            struct tensor *x)
{
    int64_t ne[2] = {cache->ne[0], b->f->n_tokens};

    return op_set_rows(b->g, cache, op_reshape(b->g, x, 2, ne), in->kv_rows);
}

/* The first n_kv cells of a cache: [d, n_head_kv, n_kv]. A view of the write, so that it comes
 * later. */
static struct tensor *load(struct build *b, struct tensor *cache, uint32_t d)
{
    uint32_t n_head_kv = b->m->hp.n_head_kv;
    int64_t ne[3] = {d, n_head_kv, b->f->n_kv};
    size_t nb[2];

    if (!cache)
        return op_view(b->g, NULL, 3, ne, NULL, 0);
    nb[0] = dtype_row_bytes(cache->type, d);
    nb[1] = cache->nb[1];
    return op_view(b->g, cache, 3, ne, nb, 0);
}

struct stored {
    struct tensor *k, *v; /* results of SET_ROWS: the caches */
};

static struct stored store_kv(struct build *b, const struct block_attn *w,
                              const struct block_attn_in *in, struct tensor *x, uint32_t il)
{
    const struct hparams *hp = &b->m->hp;
    struct tensor *k, *v;

    k = named(block_linear(b, w->k, w->k_b, x), "Kproj-%u", il);
    v = named(block_linear(b, w->v, w->v_b, x), "Vcur-%u", il);
    k = named(rotated(b, in, k, w->k_norm, hp->n_head_kv), "Kcur-%u", il);
    return (struct stored){
        .k = named(store(b, in, &b->kv->k[il], k), "k_store-%u", il),
        .v = named(store(b, in, &b->kv->v[il], v), "v_store-%u", il),
    };
}

struct tensor *block_attn(struct build *b, const struct block_attn *w,
                          const struct block_attn_in *in, struct tensor *x, uint32_t il)
{
    const struct hparams *hp = &b->m->hp;
    int64_t ne[2] = {(int64_t)hp->n_head * hp->n_embd_head_v, b->f->n_tokens};
    struct tensor *q, *y;
    struct stored kv;

    q = named(block_linear(b, w->q, w->q_b, x), "Qproj-%u", il);
    q = named(rotated(b, in, q, w->q_norm, hp->n_head), "Qcur-%u", il);
    kv = store_kv(b, w, in, x, il);
    y = op_flash_attn(b->g, q, load(b, kv.k, hp->n_embd_head_k), load(b, kv.v, hp->n_embd_head_v),
                      in->mask, in->scale, in->softcap);
    y = named(op_reshape(b->g, named(y, "kqv-%u", il), 2, ne), "kqv_out-%u", il);
    return named(block_linear(b, w->o, w->o_b, y), "attn_out-%u", il);
}

void block_attn_store(struct build *b, const struct block_attn *w, const struct block_attn_in *in,
                      struct tensor *x, uint32_t il)
{
    struct stored kv = store_kv(b, w, in, x, il);

    graph_expand(b->g, kv.k);
    graph_expand(b->g, kv.v);
}

struct tensor *block_ffn(struct build *b, const struct block_ffn *w, enum glu_kind kind,
                         struct tensor *x, uint32_t il)
{
    struct tensor *gate = named(block_linear(b, w->gate, w->gate_b, x), "ffn_gate-%u", il);
    struct tensor *up = named(block_linear(b, w->up, w->up_b, x), "ffn_up-%u", il);
    struct tensor *y = named(op_glu(b->g, gate, up, kind), "ffn_act-%u", il);

    return named(block_linear(b, w->down, w->down_b, y), "ffn_out-%u", il);
}

void block_logits(struct build *b, struct tensor *w, struct tensor *x)
{
    const struct hparams *hp = &b->m->hp;

    x = op_mul_mat(b->g, w, x);
    if (hp->softcap_logits > 0)
        x = op_softcap(b->g, named(x, "logits"), hp->softcap_logits);
    b->logits = output(named(x, "result_output"));
    graph_expand(b->g, b->logits);
}
