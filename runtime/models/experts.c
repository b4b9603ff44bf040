#include "runtime/models/experts.h"

/* Which experts each token goes to, and how much each counts: both [n_used, n]. */
struct route {
    struct tensor *ids, *weights;
};

static struct tensor *probabilities(struct build *b, enum router router, struct tensor *logits)
{
    if (router == ROUTER_SIGMOID)
        return op_unary(b->g, logits, UNARY_SIGMOID);
    return router == ROUTER_SOFTMAX_PICKED ? logits : op_soft_max(b->g, logits);
}

static struct route route(struct build *b, const struct block_experts *w,
                          const struct experts_kind *kind, struct tensor *x, uint32_t il)
{
    const struct hparams_experts *hp = &b->m->hp.experts;
    struct param_top_k top = {.k = (int32_t)hp->n_used};
    struct tensor *logits = block_linear(b, w->gate_inp, w->gate_inp_b, x), *probs;
    struct route r;

    if (hp->n_group > 1 && hp->n_group_used) {
        top.n_group = (int32_t)hp->n_group;
        top.n_group_used = (int32_t)hp->n_group_used;
    }
    probs = probabilities(b, kind->router, named(logits, "ffn_moe_logits-%u", il));
    named(probs, "ffn_moe_probs-%u", il);
    r.ids = op_top_k(b->g, w->probs_b ? op_add(b->g, probs, w->probs_b) : probs, &top);
    named(r.ids, "ffn_moe_topk-%u", il);
    r.weights = op_pick(b->g, probs, r.ids);
    if (kind->router == ROUTER_SOFTMAX_PICKED)
        r.weights = op_soft_max(b->g, r.weights);
    if (kind->norm)
        r.weights =
            op_shares(b->g, r.weights, 0x1p-14f); /* the smallest normal half: no division by 0 */
    if (hp->weights_scale != 0 && hp->weights_scale != 1)
        r.weights = op_scale(b->g, r.weights, hp->weights_scale, 0);
    named(r.weights, "ffn_moe_weights-%u", il);
    return r;
}

/* [n, n_used or 1, n_tok] -> [m, n_used, n_tok] */
static struct tensor *expert_linear(struct build *b, struct tensor *w, struct tensor *bias,
                                    struct tensor *x, struct tensor *ids)
{
    struct tensor *y = op_mul_mat_id(b->g, w, x, ids);

    return bias ? op_add_id(b->g, y, bias, ids) : y;
}

/* [a, b] as [1, a, b] or [a, 1, b]. */
static struct tensor *with_one(struct build *b, struct tensor *x, int at)
{
    int64_t ne[3] = {at ? x ? x->ne[0] : 1 : 1, at ? 1 : x ? x->ne[0] : 1, x ? x->ne[1] : 1};

    return op_reshape(b->g, x, 3, ne);
}

/* Elements [at, at + n) of each row: [n, n_used, n_tok]. */
static struct tensor *half(struct build *b, struct tensor *x, int64_t at, int64_t n)
{
    int64_t ne[3] = {n, x ? x->ne[1] : 0, x ? x->ne[2] : 0};

    return op_view(b->g, x, 3, ne, x ? &x->nb[1] : NULL, (size_t)at * sizeof(float));
}

static enum glu_kind glu_of(enum ffn_act act)
{
    return act == FFN_GEGLU ? GLU_GEGLU : act == FFN_SWIGLU_OAI ? GLU_SWIGLU_OAI : GLU_SWIGLU;
}

/* What experts make of x before their last matrix: [n_ff, n_used, n_tok]. */
static struct tensor *hidden(struct build *b, const struct block_experts *w,
                             const struct experts_kind *kind, struct tensor *x,
                             const struct route *r, uint32_t il)
{
    int64_t n_ff = b->m->hp.experts.n_ff;
    struct tensor *each = with_one(b, x, 1), *gate, *up, *y;

    if (kind->act > FFN_GEGLU) {
        up = expert_linear(b, w->up, w->up_b, each, r->ids);
        return op_unary(b->g, named(up, "ffn_moe_up-%u", il), block_ffn_unary(kind->act));
    }

    if (w->gate_up) {
        y = expert_linear(b, w->gate_up, NULL, each, r->ids);
        gate = half(b, y, 0, n_ff);
        up = half(b, y, n_ff, n_ff);
    } else {
        gate = expert_linear(b, w->gate, w->gate_b, each, r->ids);
        up = expert_linear(b, w->up, w->up_b, each, r->ids);
    }
    if (kind->weigh_input) { /* of what is linear in the input */
        gate = op_mul(b->g, gate, with_one(b, r->weights, 0));
        up = op_mul(b->g, up, with_one(b, r->weights, 0));
    }
    return op_glu(b->g, named(gate, "ffn_moe_gate-%u", il), named(up, "ffn_moe_up-%u", il),
                  glu_of(kind->act));
}

struct tensor *block_experts(struct build *b, const struct block_experts *w,
                             const struct experts_kind *kind, struct tensor *x, uint32_t il)
{
    struct route r = route(b, w, kind, x, il);
    struct tensor *y = hidden(b, w, kind, x, &r, il), *shared;

    y = expert_linear(b, w->down, w->down_b, y, r.ids);
    y = op_mix(b->g, named(y, "ffn_moe_down-%u", il), kind->weigh_input ? NULL : r.weights);
    named(y, "ffn_moe_out-%u", il);
    if (!w->shared.up)
        return y;
    shared = block_ffn(b, &w->shared, kind->act, x, il);
    if (w->shared_gate)
        shared = op_mul(b->g, shared,
                        op_unary(b->g, block_product(b, w->shared_gate, x), UNARY_SIGMOID));
    return named(op_add(b->g, y, named(shared, "ffn_shexp-%u", il)), "ffn_out-%u", il);
}
