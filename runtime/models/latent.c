#include "runtime/models/latent.h"

/* Elements [at, at + n) of the n_head vectors of each row of x: [n, n_head, n_tok]. */
static struct tensor *part(struct build *b, struct tensor *x, int64_t n_head, int64_t at, int64_t n)
{
    int64_t ne[3] = {n, n_head, b->f->n_tokens};
    size_t nb[2] = {0, x ? x->nb[1] : 0};

    nb[0] = x ? (size_t)(x->ne[0] / n_head) * sizeof(float) : 0;
    return op_view(b->g, x, 3, ne, nb, (size_t)at * sizeof(float));
}

/* Swap heads and tokens. */
static struct tensor *swapped(struct build *b, struct tensor *x)
{
    return op_permute(b->g, x, (const int[4]){0, 2, 1, 3});
}

static struct tensor *rotated(struct build *b, const struct block_attn_in *in, struct tensor *x)
{
    return op_rope(b->g, x, in->pos, in->freqs, &in->rope);
}

/* The queries of all heads in terms of what is cached: [n_kv_lora + n_rot, n_head, n_tok]. */
static struct tensor *queries(struct build *b, const struct block_latent *w,
                              const struct block_attn_in *in, struct tensor *x, uint32_t il)
{
    const struct hparams *hp = &b->m->hp;
    int64_t n_head = hp->layer[il].n_head, n_nope = hp->latent.n_embd_head_k - hp->n_rot;
    struct tensor *q, *plain, *turned;

    if (w->q_a) {
        q = block_norm(b, NORM_RMS, block_product(b, w->q_a, x), w->q_a_norm, NULL);
        q = block_product(b, w->q_b, named(q, "q_latent-%u", il));
    } else {
        q = block_product(b, w->q, x);
    }
    named(q, "Qproj-%u", il);
    plain = swapped(b, part(b, q, n_head, 0, n_nope));
    plain = named(block_product(b, w->k_b, plain), "q_absorbed-%u", il);
    turned = rotated(b, in, part(b, q, n_head, n_nope, hp->n_rot));
    return named(op_concat(b->g, swapped(b, plain), turned), "Qcur-%u", il);
}

/* The cache after this micro-batch's latents and rotated keys were written into it. */
static struct tensor *stored(struct build *b, const struct block_latent *w,
                             const struct block_attn_in *in, struct tensor *x, uint32_t il)
{
    const struct hparams *hp = &b->m->hp;
    int64_t n_lora = hp->latent.n_kv_lora, ne[2] = {n_lora + hp->n_rot, b->f->n_tokens};
    struct tensor *kv = named(block_product(b, w->kv_a, x), "kv_latent-%u", il), *c, *k;

    c = block_norm(b, NORM_RMS, part(b, kv, 1, 0, n_lora), w->kv_a_norm, NULL);
    k = rotated(b, in, part(b, kv, 1, n_lora, hp->n_rot));
    k = named(op_concat(b->g, c, k), "Kcur-%u", il);
    k = op_set_rows(b->g, &b->kv->k[il], op_reshape(b->g, k, 2, ne), in->kv_rows);
    return named(k, "k_store-%u", il);
}

/* The first n elements of the first n_rows rows: [n, 1, n_rows]. */
static struct tensor *cached(struct build *b, const struct block_attn_in *in, struct tensor *cache,
                             int64_t n)
{
    int64_t ne[3] = {n, 1, in->n_rows};
    size_t nb[2] = {cache ? cache->nb[1] : 0, cache ? cache->nb[1] : 0};

    return op_view(b->g, cache, 3, ne, nb, 0);
}

struct tensor *block_latent(struct build *b, const struct block_latent *w,
                            const struct block_attn_in *in, struct tensor *x, uint32_t il)
{
    const struct hparams *hp = &b->m->hp;
    int64_t ne[2] = {arch_dim(hp, D_O_MLA, il), b->f->n_tokens};
    struct tensor *q = queries(b, w, in, x, il), *cache = stored(b, w, in, x, il), *y;

    y = block_attend(b, in, q, cached(b, in, cache, hp->n_embd_head_k),
                     cached(b, in, cache, hp->n_embd_head_v), NULL);
    y = block_product(b, w->v_b, swapped(b, named(y, "kqv_latent-%u", il)));
    y = op_cont(b->g, swapped(b, named(y, "kqv-%u", il)));
    y = named(op_reshape(b->g, y, 2, ne), "kqv_out-%u", il);
    return named(block_product(b, w->o, y), "attn_out-%u", il);
}

void block_latent_store(struct build *b, const struct block_latent *w,
                        const struct block_attn_in *in, struct tensor *x, uint32_t il)
{
    graph_expand(b->g, stored(b, w, in, x, il));
}
