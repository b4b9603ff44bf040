#include "backends/op.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "backends/tensor.h"
#include "gguf/quants.h"

/* "[64, 2, 1, 1] f32" of a source, for messages. */
static const char *shape_text(char out[96], const struct tensor *t)
{
    snprintf(out, 96, "[%lld, %lld, %lld, %lld] %s", (long long)t->ne[0], (long long)t->ne[1],
             (long long)t->ne[2], (long long)t->ne[3], dtype_name(t->type));
    return out;
}

static enum status bad(const struct tensor *t, struct err *e, const char *want)
{
    char s0[96] = "none", s1[96] = "none";

    if (t->src[0])
        shape_text(s0, t->src[0]);
    if (t->src[1])
        shape_text(s1, t->src[1]);
    return err_set(e, ST_MODEL, "%s '%s': sources '%s' %s and '%s' %s, expected %s", op_name(t->op),
                   t->name, t->src[0] ? t->src[0]->name : "", s0, t->src[1] ? t->src[1]->name : "",
                   s1, want);
}

static enum status result(struct tensor *t, enum dtype type, int n_dims, const int64_t *ne,
                          struct err *e)
{
    if (!tensor_set_shape(t, type, n_dims, ne))
        return bad(t, e, "a result of fewer bytes");
    return ST_OK;
}

static bool is_f32(const struct tensor *t)
{
    return t->type == DT_F32;
}

/* Make t a window on src[0] at `offs` bytes from src[0]'s own start. */
static void window(struct tensor *t, size_t offs)
{
    const struct tensor *s = t->src[0];

    t->view_src = s->view_src ? s->view_src : t->src[0];
    t->view_offs = (s->view_src ? s->view_offs : 0) + offs;
    t->type = s->type;
}

static enum status shape_given(struct tensor *t, struct err *e)
{
    (void)t;
    (void)e;
    return ST_OK;
}

/* ne is given. */
static enum status shape_reshape(struct tensor *t, struct err *e)
{
    const struct tensor *s = t->src[0];

    if (tensor_n(t) != tensor_n(s) || !tensor_contiguous(s))
        return bad(t, e, "a contiguous source with as many elements as the result");
    if (!tensor_set_shape(t, s->type, TENSOR_DIMS, t->ne))
        return bad(t, e, "rows of whole blocks");
    window(t, 0);
    return ST_OK;
}

/* ne, nb[1..3] and view_offs (bytes into src[0]) are given; nb[0] is the source's. */
static enum status shape_view(struct tensor *t, struct err *e)
{
    const struct tensor *s = t->src[0];
    size_t offs = t->view_offs;

    t->type = s->type;
    t->nb[0] = s->nb[0];
    if (t->ne[0] % dtype_info(s->type)->block)
        return bad(t, e, "rows of whole blocks");
    if (offs > tensor_bytes(s) || tensor_bytes(t) > tensor_bytes(s) - offs)
        return bad(t, e, "a window inside the source");
    window(t, offs);
    return ST_OK;
}

/* params[i] says where dimension i of the source goes. */
static enum status shape_permute(struct tensor *t, struct err *e)
{
    const struct tensor *s = t->src[0];
    unsigned seen = 0;

    for (int i = 0; i < TENSOR_DIMS; i++) {
        int32_t to = t->params[i];
        if (to < 0 || to >= TENSOR_DIMS || (seen >> to & 1))
            return bad(t, e, "axes that are a permutation of 0..3");
        seen |= 1u << to;
        t->ne[to] = s->ne[i];
        t->nb[to] = s->nb[i];
    }
    if (dtype_quantised(s->type) && t->params[0] != 0)
        return bad(t, e, "rows of blocks to stay innermost");
    window(t, 0);
    return ST_OK;
}

static enum status shape_transpose(struct tensor *t, struct err *e)
{
    t->params[0] = 1;
    t->params[1] = 0;
    t->params[2] = 2;
    t->params[3] = 3;
    return shape_permute(t, e);
}

static enum status shape_cont(struct tensor *t, struct err *e)
{
    return result(t, t->src[0]->type, TENSOR_DIMS, t->src[0]->ne, e);
}

static enum status shape_concat(struct tensor *t, struct err *e)
{
    const struct tensor *a = t->src[0], *b = t->src[1];
    int64_t ne[TENSOR_DIMS] = {a->ne[0] + b->ne[0], a->ne[1], a->ne[2], a->ne[3]};

    if (!is_f32(a) || !is_f32(b) || memcmp(a->ne + 1, b->ne + 1, 3 * sizeof a->ne[0]) != 0)
        return bad(t, e, "as many f32 rows in both");
    return result(t, DT_F32, TENSOR_DIMS, ne, e);
}

static enum status shape_get_rows(struct tensor *t, struct err *e)
{
    const struct tensor *a = t->src[0], *ids = t->src[1];
    int64_t ne[2] = {a->ne[0], ids->ne[0]};

    if (ids->type != DT_I32 || tensor_rows(ids) != 1 || a->ne[2] != 1 || a->ne[3] != 1)
        return bad(t, e, "a matrix and a vector of i32 row numbers");
    return result(t, DT_F32, 2, ne, e);
}

static enum status shape_set_rows(struct tensor *t, struct err *e)
{
    const struct tensor *a = t->src[0], *x = t->src[1], *ids = t->src[2];

    if (!ids || ids->type != DT_I64 || tensor_rows(ids) != 1 || !is_f32(x) ||
        a->ne[0] != x->ne[0] || x->ne[1] != ids->ne[0] || a->ne[2] != 1 || a->ne[3] != 1 ||
        x->ne[2] != 1 || x->ne[3] != 1)
        return bad(t, e, "a matrix, f32 rows of its width and an i64 row number for each");
    if (!quant_encoder(a->type))
        return bad(t, e, "a matrix of a type that can be written");
    memcpy(t->ne, a->ne, sizeof t->ne);
    memcpy(t->nb, a->nb, sizeof t->nb);
    window(t, 0);
    return ST_OK;
}

static enum status shape_like_src0(struct tensor *t, struct err *e)
{
    if (!is_f32(t->src[0]))
        return bad(t, e, "an f32 source");
    return result(t, DT_F32, TENSOR_DIMS, t->src[0]->ne, e);
}

static enum status shape_broadcast(struct tensor *t, struct err *e)
{
    if (!is_f32(t->src[1]) || !tensor_can_repeat(t->src[1], t->src[0]))
        return bad(t, e, "f32 sources, the second repeating to the first");
    return shape_like_src0(t, e);
}

static enum status shape_norm(struct tensor *t, struct err *e)
{
    for (int i = 1; i < op_info(t->op)->n_src; i++) {
        const struct tensor *w = t->src[i];

        if (w && (!is_f32(w) || w->ne[0] != t->src[0]->ne[0] || tensor_rows(w) != 1))
            return bad(t, e, "f32 weights as long as a row");
    }
    return shape_like_src0(t, e);
}

static enum status shape_rope(struct tensor *t, struct err *e)
{
    const struct tensor *x = t->src[0], *pos = t->src[1], *freqs = t->src[2];
    struct param_rope r;

    op_param_get(t, &r);
    if (pos->type != DT_I32 || pos->ne[0] != x->ne[2] || tensor_rows(pos) != 1 || x->ne[3] != 1)
        return bad(t, e, "heads [n_embd_head, n_head, n_tok] and i32 positions [n_tok]");
    if (r.n_rot <= 0 || r.n_rot % 2 || r.n_rot > x->ne[0])
        return err_set(
            e, ST_MODEL,
            "rope dimension count is %d, expected an even number from 2 to the head size %lld",
            (int)r.n_rot, (long long)x->ne[0]);
    if (freqs && (!is_f32(freqs) || freqs->ne[0] < r.n_rot / 2 || tensor_rows(freqs) != 1))
        return err_set(
            e, ST_MODEL, "tensor '%s' has %lld frequency factors of type %s, expected %d f32",
            freqs->name, (long long)freqs->ne[0], dtype_name(freqs->type), (int)r.n_rot / 2);
    return shape_like_src0(t, e);
}

static enum status shape_glu(struct tensor *t, struct err *e)
{
    if (!is_f32(t->src[1]) || !tensor_same_shape(t->src[0], t->src[1]))
        return bad(t, e, "two f32 sources of one shape");
    return shape_like_src0(t, e);
}

static enum status shape_mul_mat(struct tensor *t, struct err *e)
{
    const struct tensor *w = t->src[0], *x = t->src[1];
    int64_t ne[4] = {w->ne[1], x->ne[1], x->ne[2], x->ne[3]};

    if (!is_f32(x) || w->ne[0] != x->ne[0] || w->ne[2] <= 0 || w->ne[3] <= 0 ||
        x->ne[2] % w->ne[2] || x->ne[3] % w->ne[3])
        return bad(t, e, "rows of equal length, the second f32");
    return result(t, DT_F32, 4, ne, e);
}

static bool are_ids(const struct tensor *ids, int64_t n_tok)
{
    return ids && ids->type == DT_I32 && ids->ne[1] == n_tok && ids->ne[2] == 1 && ids->ne[3] == 1;
}

static enum status shape_mul_mat_id(struct tensor *t, struct err *e)
{
    const struct tensor *w = t->src[0], *x = t->src[1], *ids = t->src[2];
    int64_t ne[3] = {w->ne[1], ids ? ids->ne[0] : 0, x->ne[2]};

    if (!is_f32(x) || w->ne[0] != x->ne[0] || w->ne[3] != 1 || x->ne[3] != 1 ||
        !are_ids(ids, x->ne[2]) || (x->ne[1] != 1 && x->ne[1] != ids->ne[0]))
        return bad(t, e,
                   "matrices [n_in, n_out, n_expert], rows [n_in, n_used or 1, n_tok] and ids");
    return result(t, DT_F32, 3, ne, e);
}

static enum status shape_add_id(struct tensor *t, struct err *e)
{
    const struct tensor *x = t->src[0], *b = t->src[1], *ids = t->src[2];

    if (!is_f32(b) || b->ne[0] != x->ne[0] || b->ne[2] != 1 || b->ne[3] != 1 || x->ne[3] != 1 ||
        !are_ids(ids, x->ne[2]) || ids->ne[0] != x->ne[1])
        return bad(t, e, "rows [n, n_used, n_tok], f32 rows [n, n_expert] and ids");
    return shape_like_src0(t, e);
}

static enum status shape_top_k(struct tensor *t, struct err *e)
{
    const struct tensor *x = t->src[0];
    struct param_top_k p;
    int64_t ne[2], n_open = x->ne[0];

    op_param_get(t, &p);
    if (p.n_group > 0 && p.n_group_used > 0 && p.n_group_used <= p.n_group &&
        x->ne[0] % p.n_group == 0)
        n_open = x->ne[0] / p.n_group * p.n_group_used;
    else if (p.n_group != 0)
        return err_set(e, ST_MODEL, "%lld experts do not fall into %d groups, of which %d are used",
                       (long long)x->ne[0], (int)p.n_group, (int)p.n_group_used);
    if (!is_f32(x) || x->ne[2] != 1 || x->ne[3] != 1 || p.k < 1 || p.k > n_open)
        return bad(t, e, "f32 rows of at least as many elements as are taken");
    ne[0] = p.k;
    ne[1] = x->ne[1];
    return result(t, DT_I32, 2, ne, e);
}

static enum status shape_argmax(struct tensor *t, struct err *e)
{
    const struct tensor *x = t->src[0];

    if (!is_f32(x) || x->ne[0] < 1 || x->ne[2] != 1 || x->ne[3] != 1)
        return bad(t, e, "f32 rows of at least one element");
    return result(t, DT_I32, 1, &x->ne[1], e);
}

static enum status shape_mask_bits(struct tensor *t, struct err *e)
{
    const struct tensor *bits = t->src[1];

    if (bits->type != DT_I32 || bits->ne[0] != (t->src[0]->ne[0] + 31) / 32 ||
        tensor_rows(bits) != 1)
        return bad(t, e, "f32 rows and a bit for each of their elements");
    return shape_like_src0(t, e);
}

static enum status shape_pick(struct tensor *t, struct err *e)
{
    const struct tensor *x = t->src[0], *ids = t->src[1];

    if (!is_f32(x) || x->ne[2] != 1 || x->ne[3] != 1 || !are_ids(ids, x->ne[1]))
        return bad(t, e, "f32 rows and i32 places in them");
    return result(t, DT_F32, 2, ids->ne, e);
}

static enum status shape_mix(struct tensor *t, struct err *e)
{
    const struct tensor *x = t->src[0], *w = t->src[1];
    int64_t ne[2] = {x->ne[0], x->ne[2]};

    if (!is_f32(x) || x->ne[3] != 1 ||
        (w && (!is_f32(w) || w->ne[0] != x->ne[1] || w->ne[1] != x->ne[2] || w->ne[2] != 1)))
        return bad(t, e, "rows [n, n_used, n_tok] and weights [n_used, n_tok]");
    return result(t, DT_F32, 2, ne, e);
}

static bool is_mask(const struct tensor *mask, int64_t n_kv, int64_t n_tok, int64_t n)
{
    return mask->ne[0] == n_kv && mask->ne[1] == n_tok && mask->ne[2] == 1 && mask->ne[3] == n &&
           (mask->type == DT_F16 || mask->type == DT_F32);
}

static bool are_sinks(const struct tensor *sinks, int64_t n_head)
{
    return is_f32(sinks) && sinks->ne[0] == n_head && tensor_rows(sinks) == 1;
}

static enum status bad_sinks(const struct tensor *sinks, int64_t n_head, struct err *e)
{
    return err_set(e, ST_MODEL, "tensor '%s' has %lld sinks of type %s, expected %lld f32",
                   sinks->name, (long long)sinks->ne[0], dtype_name(sinks->type),
                   (long long)n_head);
}

static enum status shape_soft_max(struct tensor *t, struct err *e)
{
    const struct tensor *x = t->src[0], *mask = t->src[1], *sinks = t->src[2];

    if (mask && !is_mask(mask, x->ne[0], x->ne[1], x->ne[3]))
        return bad(t, e,
                   "scores [n_kv, n_tok, n_head, n] and a mask [n_kv, n_tok, 1, n] of type f16 or "
                   "f32");
    if (sinks && !are_sinks(sinks, x->ne[2]))
        return bad_sinks(sinks, x->ne[2], e);
    return shape_like_src0(t, e);
}

/* state [n_state, n_slot] and the numbers of slots, one per sequence of the tokens. */
static bool are_state(const struct tensor *state, const struct tensor *from, int64_t n_state,
                      int64_t n_tok)
{
    return state && from && is_f32(state) && state->ne[0] == n_state && state->ne[2] == 1 &&
           state->ne[3] == 1 && from->type == DT_I32 && tensor_n(from) == from->ne[0] &&
           from->ne[0] >= 1 && n_tok % from->ne[0] == 0;
}

/* Sequences that a recurrent op has states of. */
static int64_t n_states(const struct tensor *from)
{
    return from ? from->ne[0] : 0;
}

/* f32 [a, b, c]. */
static bool is_cube(const struct tensor *t, int64_t a, int64_t b, int64_t c)
{
    return t && is_f32(t) && t->ne[0] == a && t->ne[1] == b && t->ne[2] == c && t->ne[3] == 1;
}

static enum status shape_ssm_conv(struct tensor *t, struct err *e)
{
    const struct tensor *x = t->src[0], *w = t->src[1];
    int64_t ne[2] = {x->ne[0], x->ne[1] + n_states(t->src[3]) * (w->ne[0] - 1)};

    if (!is_cube(x, x->ne[0], x->ne[1], 1) || w->ne[0] < 1 || !is_cube(w, w->ne[0], x->ne[0], 1))
        return bad(t, e, "rows [d, n_tok] and f32 weights [n, d]");
    if (!are_state(t->src[2], t->src[3], (w->ne[0] - 1) * x->ne[0], x->ne[1]))
        return bad(t, e, "a state of n - 1 rows in each slot");
    return result(t, DT_F32, 2, ne, e);
}

static enum status shape_ssm_scan(struct tensor *t, struct err *e)
{
    const struct tensor *x = t->src[0], *dt = t->src[1], *a = t->src[2], *b = t->src[3];
    int64_t n_head = x->ne[1], n_tok = x->ne[2], n = b ? b->ne[0] : 0, n_group = b ? b->ne[1] : 0;
    int64_t ne[2] = {x->ne[0] * n_head, n_tok + n_states(t->src[6]) * n};

    if (!is_cube(x, x->ne[0], n_head, n_tok) || !is_cube(dt, n_head, n_tok, 1) || !a ||
        !is_cube(a, a->ne[0], n_head, 1) || (a->ne[0] != 1 && a->ne[0] != n) || n_group < 1 ||
        n_head % n_group || !is_cube(b, n, n_group, n_tok) ||
        !is_cube(t->src[4], n, n_group, n_tok))
        return bad(t, e, "x [d, n_head, n_tok], dt [n_head, n_tok], a, b and c to match");
    if (!are_state(t->src[5], t->src[6], n * ne[0], n_tok))
        return bad(t, e, "a state of as many elements as x has, times n, in each slot");
    return result(t, DT_F32, 2, ne, e);
}

static enum status shape_delta_net(struct tensor *t, struct err *e)
{
    const struct tensor *q = t->src[0], *v = t->src[2];
    int64_t d = q->ne[0], n_k = q->ne[1], n_tok = q->ne[2], n_head = v ? v->ne[1] : 0;
    int64_t ne[2] = {v ? v->ne[0] * n_head : 0, n_tok + n_states(t->src[6]) * d};

    if (!v || n_k < 1 || n_head % n_k || !is_cube(q, d, n_k, n_tok) ||
        !is_cube(t->src[1], d, n_k, n_tok) || !is_cube(v, v->ne[0], n_head, n_tok) ||
        !is_cube(t->src[3], n_head, n_tok, 1) || !is_cube(t->src[4], n_head, n_tok, 1))
        return bad(t, e, "q and k [d, n_head_k, n_tok], v, decay and beta to match");
    if (!are_state(t->src[5], t->src[6], d * ne[0], n_tok))
        return bad(t, e, "a state of as many elements as v has, times d, in each slot");
    return result(t, DT_F32, 2, ne, e);
}

static enum status shape_flash_attn(struct tensor *t, struct err *e)
{
    const struct tensor *q = t->src[0], *k = t->src[1], *v = t->src[2], *mask = t->src[3];
    const struct tensor *cells = t->src[5];
    int64_t ne[3], n_kv;

    if (!v || !mask || !is_f32(q) || q->ne[0] != k->ne[0] || k->ne[1] <= 0 || q->ne[1] % k->ne[1] ||
        v->ne[1] != k->ne[1] || v->ne[2] != k->ne[2] || q->ne[3] != 1 || k->ne[3] != 1)
        return bad(
            t, e,
            "q [d, n_head, n_tok], k and v [d, n_head_kv, n_kv], n_head a multiple of n_head_kv");
    n_kv = cells ? cells->ne[0] : k->ne[2];
    if (!is_mask(mask, n_kv, q->ne[2], 1))
        return bad(t, e, "a mask [n_kv, n_tok] of type f16 or f32");
    if (t->src[4] && !are_sinks(t->src[4], q->ne[1]))
        return bad_sinks(t->src[4], q->ne[1], e);
    if (cells && (cells->type != DT_I32 || cells->ne[1] < 1 || q->ne[2] % cells->ne[1] ||
                  cells->ne[2] != 1 || cells->ne[3] != 1))
        return bad(t, e, "cells [n_kv, n_seqs] of type i32, n_tok a multiple of n_seqs");
    ne[0] = v->ne[0];
    ne[1] = q->ne[1];
    ne[2] = q->ne[2];
    return result(t, DT_F32, 3, ne, e);
}

#define OP(NAME, sources, op_flags, rule)                                                          \
    [OP_##NAME] = {.name = #NAME, .n_src = (sources), .flags = (op_flags), .shape = rule},
static const struct op_info infos[OP_COUNT] = {
#include "backends/op.def"
};

const struct op_info *op_info(enum op op)
{
    assert((unsigned)op < OP_COUNT);
    return &infos[op];
}

enum status op_shape(struct tensor *t, struct err *e)
{
    return op_info(t->op)->shape(t, e);
}

void op_param_copy_out(const struct tensor *t, void *p, unsigned n)
{
    assert(n <= sizeof t->params);
    memcpy(p, t->params, n);
}

void op_param_copy_in(struct tensor *t, const void *p, unsigned n)
{
    assert(n <= sizeof t->params);
    memcpy(t->params, p, n);
}
