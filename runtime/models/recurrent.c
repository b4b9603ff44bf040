#include "runtime/models/recurrent.h"

#include <math.h>

#include "runtime/state.h"

/* Columns [at, at + n) of every row: [n, n_tok]. */
static struct tensor *columns(struct build *b, struct tensor *x, int64_t at, int64_t n)
{
    int64_t ne[2] = {n, b->f->n_tokens};
    size_t nb = x ? x->nb[1] : 0;

    return op_view(b->g, x, 2, ne, &nb, (size_t)at * sizeof(float));
}

/* n vectors of d elements from column `at` of every row on, `step` elements apart: [d, n, n_tok]. */
static struct tensor *spaced(struct build *b, struct tensor *x, int64_t at, int64_t d, int64_t n,
                             int64_t step)
{
    int64_t ne[3] = {d, n, b->f->n_tokens};
    size_t nb[2] = {(size_t)step * sizeof(float), x ? x->nb[1] : 0};

    return op_view(b->g, x, 3, ne, nb, (size_t)at * sizeof(float));
}

static struct tensor *heads(struct build *b, struct tensor *x, int64_t at, int64_t d, int64_t n)
{
    return spaced(b, x, at, d, n, d);
}

/* x, without gaps, as rows of n: [n, n_tok]. */
static struct tensor *rows(struct build *b, struct tensor *x, int64_t n)
{
    int64_t ne[2] = {n, b->f->n_tokens};

    return op_reshape(b->g, x, 2, ne);
}

/* The outputs in what a recurrent op gives, [width, n_tok]; the states behind them go into `cache`. */
static struct tensor *stored(struct build *b, struct tensor *all, struct tensor *cache,
                             int64_t width)
{
    int64_t ne[2] = {cache->ne[0], b->f->n_seqs};
    size_t nb = (size_t)ne[0] * sizeof(float), at = (size_t)(width * b->f->n_tokens) * sizeof(float);
    struct tensor *state = op_view(b->g, all, 2, ne, &nb, at);

    state = op_set_rows(b->g, cache, state, input_state_to(b->in, b->g, b->f));
    graph_expand(b->g, named(state, "%s_new", cache->name));
    return columns(b, all, 0, width);
}

/* x [n_conv, n_tok], each channel convolved with what came before. */
static struct tensor *convolved(struct build *b, const struct block_recurrent *w, struct tensor *x,
                                uint32_t il)
{
    struct tensor *cache = &b->state->conv[il];

    x = op_ssm_conv(b->g, x, w->conv, cache, input_state_from(b->in, b->g, b->f));
    x = stored(b, named(x, "conv_all-%u", il), cache, b->m->hp.ssm.n_conv);
    if (w->conv_b)
        x = op_add(b->g, x, w->conv_b);
    return named(x, "conv-%u", il);
}

static struct tensor *silu(struct build *b, struct tensor *x)
{
    return op_unary(b->g, x, UNARY_SILU);
}

/* s without its state: [n_inner, n_tok]. */
static struct tensor *scanned(struct build *b, struct ssm_scan *s, uint32_t il)
{
    s->state = &b->state->ssm[il];
    s->from = input_state_from(b->in, b->g, b->f);
    return stored(b, named(op_ssm_scan(b->g, s), "scan_all-%u", il), s->state,
                  b->m->hp.ssm.n_inner);
}

/* Time steps, B or C; all of them are normalised or none is. */
static struct tensor *maybe_norm(struct build *b, struct tensor *x, struct tensor *w)
{
    return w || b->m->hp.ssm.norm_dt_b_c ? block_norm(b, NORM_RMS, x, w, NULL) : x;
}

static struct tensor *mamba(struct build *b, const struct block_recurrent *w, struct tensor *x,
                            uint32_t il)
{
    const struct hparams_ssm *s = &b->m->hp.ssm;
    int64_t n = s->n_inner, n_state = s->n_state;
    struct tensor *xz = named(block_product(b, w->in, x), "ssm_in-%u", il), *dbc, *dt, *y;
    struct ssm_scan scan = {.a = w->a};

    x = silu(b, convolved(b, w, columns(b, xz, 0, n), il));
    dbc = named(block_product(b, w->x, x), "ssm_x-%u", il);
    dt = maybe_norm(b, columns(b, dbc, 0, s->n_rank), w->dt_norm);
    dt = op_unary(b->g, block_linear(b, w->dt, w->dt_b, dt), UNARY_SOFTPLUS);
    scan.x = heads(b, x, 0, 1, n);
    scan.dt = named(dt, "ssm_dt-%u", il);
    scan.b = maybe_norm(b, heads(b, dbc, s->n_rank, n_state, 1), w->b_norm);
    scan.c = maybe_norm(b, heads(b, dbc, s->n_rank + n_state, n_state, 1), w->c_norm);
    y = op_add(b->g, op_mul(b->g, x, w->d), scanned(b, &scan, il));
    y = op_glu(b->g, columns(b, xz, n, n), y, GLU_SWIGLU);
    return block_product(b, w->out, named(y, "ssm_y-%u", il));
}

static struct tensor *mamba2(struct build *b, const struct block_recurrent *w, struct tensor *x,
                             uint32_t il)
{
    const struct hparams_ssm *s = &b->m->hp.ssm;
    int64_t n = s->n_inner, n_state = s->n_state, n_group = s->n_group, n_bc = n_group * n_state;
    struct tensor *all = named(block_product(b, w->in, x), "ssm_in-%u", il), *dt, *y;
    struct ssm_scan scan = {.a = w->a};

    x = silu(b, convolved(b, w, columns(b, all, n, s->n_conv), il));
    dt = op_add(b->g, columns(b, all, n + s->n_conv, s->n_rank), w->dt_b);
    scan.dt = named(op_unary(b->g, dt, UNARY_SOFTPLUS), "ssm_dt-%u", il);
    scan.x = heads(b, x, 0, n / s->n_rank, s->n_rank);
    scan.b = heads(b, x, n, n_state, n_group);
    scan.c = heads(b, x, n + n_bc, n_state, n_group);
    y = rows(b, op_mul(b->g, scan.x, w->d), n);
    y = op_add(b->g, y, scanned(b, &scan, il));
    y = op_glu(b->g, columns(b, all, 0, n), y, GLU_SWIGLU);
    if (w->norm) { /* of each group its own */
        y = block_norm(b, NORM_RMS, heads(b, y, 0, n / n_group, n_group), NULL, NULL);
        y = rows(b, op_mul(b->g, y, w->norm), n);
    }
    return block_product(b, w->out, named(y, "ssm_y-%u", il));
}

static struct tensor *shortconv(struct build *b, const struct block_recurrent *w, struct tensor *x,
                                uint32_t il)
{
    int64_t n = b->m->hp.n_embd;
    struct tensor *bcx = named(block_product(b, w->in, x), "shortconv_in-%u", il), *y;

    y = op_mul(b->g, columns(b, bcx, 0, n), columns(b, bcx, 2 * n, n));
    y = op_mul(b->g, convolved(b, w, y, il), columns(b, bcx, n, n));
    return block_product(b, w->out, y);
}

/* Rows of length 1, times s. */
static struct tensor *unit(struct build *b, struct tensor *x, int64_t d, float s)
{
    x = op_rms_norm(b->g, x, NULL, b->m->hp.norm_eps / (float)d);
    return op_scale(b->g, x, s / sqrtf((float)d), 0);
}

/* For each head of values [n_rank, n_tok]: how fast it learns, and forgets. */
static void rates(struct build *b, const struct block_recurrent *w, struct tensor *x,
                  struct delta_net *d)
{
    const struct hparams_ssm *s = &b->m->hp.ssm;
    int64_t each = s->n_rank / s->n_group; /* heads of values to one of keys */

    if (w->ba) {
        x = block_product(b, w->ba, x);
        d->beta = op_cont(b->g, spaced(b, x, 0, each, s->n_group, 2 * each));
        d->decay = op_cont(b->g, spaced(b, x, each, each, s->n_group, 2 * each));
        d->beta = rows(b, d->beta, s->n_rank);
        d->decay = rows(b, d->decay, s->n_rank);
    } else {
        d->beta = block_product(b, w->beta, x);
        d->decay = block_product(b, w->alpha, x);
    }
    d->beta = op_unary(b->g, d->beta, UNARY_SIGMOID);
    d->decay = op_unary(b->g, op_add(b->g, d->decay, w->dt_b), UNARY_SOFTPLUS);
    d->decay = op_mul(b->g, d->decay, w->a);
}

static struct tensor *delta(struct build *b, const struct block_recurrent *w, struct tensor *x,
                            uint32_t il)
{
    const struct hparams_ssm *s = &b->m->hp.ssm;
    int64_t n = s->n_state, n_keys = n * s->n_group;
    struct tensor *qkv = named(block_product(b, w->in, x), "delta_qkv-%u", il);
    struct tensor *gate = named(block_product(b, w->gate, x), "delta_gate-%u", il), *y;
    struct delta_net d = {.tiled = s->kind == SSM_DELTA_TILED,
                          .state = &b->state->ssm[il],
                          .from = input_state_from(b->in, b->g, b->f)};

    rates(b, w, x, &d);
    named(d.beta, "delta_beta-%u", il);
    named(d.decay, "delta_decay-%u", il);
    qkv = silu(b, convolved(b, w, qkv, il));
    d.q = unit(b, heads(b, qkv, 0, n, s->n_group), n, 1 / sqrtf((float)n));
    d.k = unit(b, heads(b, qkv, n_keys, n, s->n_group), n, 1);
    d.v = heads(b, qkv, 2 * n_keys, n, s->n_rank);
    y = stored(b, named(op_delta_net(b->g, &d), "delta_all-%u", il), &b->state->ssm[il],
               s->n_inner);
    y = block_norm(b, NORM_RMS, heads(b, y, 0, n, s->n_rank), w->norm, NULL);
    y = op_glu(b->g, gate, rows(b, y, s->n_inner), GLU_SWIGLU);
    return block_product(b, w->out, named(y, "delta_y-%u", il));
}

struct tensor *block_recurrent(struct build *b, const struct block_recurrent *w, struct tensor *x,
                               uint32_t il)
{
    static struct tensor *(*const blocks[])(struct build *, const struct block_recurrent *,
                                            struct tensor *, uint32_t) = {
        [SSM_MAMBA] = mamba, [SSM_MAMBA2] = mamba2,     [SSM_SHORTCONV] = shortconv,
        [SSM_DELTA] = delta, [SSM_DELTA_TILED] = delta,
    };

    return named(blocks[b->m->hp.ssm.kind](b, w, x, il), "recurrent_out-%u", il);
}
