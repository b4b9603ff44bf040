#include "tests/runtime/llama_graph.h"

enum { EMBD = 576, HEAD = 64, HEADS = 9, KV = 3, FF = 1536, CTX = 1024 };

struct inputs_of { /* all layers read them */
    struct tensor *pos, *ids, *mask;
};

static struct tensor *weight(struct tensor *w, struct buffer *b, int64_t n0, int64_t n1)
{
    *w = (struct tensor){.buffer = b};
    tensor_set_shape(w, DT_F32, 2, (int64_t[]){n0, n1});
    return w;
}

/* The rows of the micro-batch go into a cache, all of which is then seen as [HEAD, KV, CTX]. */
static struct tensor *store(struct graph *g, struct tensor *cache, struct tensor *x,
                            struct tensor *ids)
{
    const size_t nb[] = {HEAD * 4, HEAD * KV * 4};

    return op_view(g, op_set_rows(g, cache, x, ids), 3, (int64_t[]){HEAD, KV, CTX}, nb, 0);
}

static struct tensor *attention(struct graph *g, struct tensor *x, struct tensor w[LLAMA_WEIGHTS],
                                struct llama_memory *m, const struct inputs_of *in, int64_t n_tok)
{
    struct param_rope r = {.n_rot = HEAD, .base = 10000, .freq_scale = 1, .attn_factor = 1};
    struct tensor *h, *q, *k, *v;

    h = op_rms_norm(g, x, weight(&w[0], &m->weights, EMBD, 1), 1e-5f);
    q = op_mul_mat(g, weight(&w[1], &m->weights, EMBD, EMBD), h);
    k = op_mul_mat(g, weight(&w[2], &m->weights, EMBD, HEAD * KV), h);
    v = op_mul_mat(g, weight(&w[3], &m->weights, EMBD, HEAD * KV), h);
    q = op_rope(g, op_reshape(g, q, 3, (int64_t[]){HEAD, HEADS, n_tok}), in->pos, NULL, &r);
    k = op_rope(g, op_reshape(g, k, 3, (int64_t[]){HEAD, KV, n_tok}), in->pos, NULL, &r);
    k = op_reshape(g, k, 2, (int64_t[]){HEAD * KV, n_tok});
    k = store(g, weight(&w[4], &m->cache, HEAD * KV, CTX), k, in->ids);
    v = store(g, weight(&w[5], &m->cache, HEAD * KV, CTX), v, in->ids);
    h = op_flash_attn(g, q, k, v, in->mask, NULL, NULL, &(struct param_attn){.scale = 0.125f});
    h = op_reshape(g, h, 2, (int64_t[]){EMBD, n_tok});
    return op_add(g, op_mul_mat(g, weight(&w[6], &m->weights, EMBD, EMBD), h), x);
}

static struct tensor *network(struct graph *g, struct tensor *x, struct tensor w[LLAMA_WEIGHTS],
                              struct llama_memory *m)
{
    struct tensor *h = op_rms_norm(g, x, w, 1e-5f), *gate, *up;

    gate = op_mul_mat(g, weight(&w[7], &m->weights, EMBD, FF), h);
    up = op_mul_mat(g, &w[7], h);
    h = op_mul_mat(g, weight(&w[8], &m->weights, FF, EMBD), op_glu(g, gate, up, GLU_SWIGLU));
    return op_add(g, h, x);
}

void llama_graph(struct graph *g, const struct llama_graph *o)
{
    struct inputs_of in;
    struct tensor *x;

    for (int i = 0; i < o->n_bt; i++) {
        buffer_describe(&o->mem[i].weights, o->bt[i], 0, USAGE_WEIGHTS);
        buffer_describe(&o->mem[i].cache, o->bt[i], 0, USAGE_ANY);
    }
    graph_reset(g);
    in.pos = graph_leaf(g, DT_I32, 1, &o->n_tok, TENSOR_INPUT);
    in.ids = graph_leaf(g, DT_I64, 1, &o->n_tok, TENSOR_INPUT);
    in.mask = graph_leaf(g, DT_F32, 2, (int64_t[]){CTX, o->n_tok}, TENSOR_INPUT);
    x = graph_leaf(g, DT_F32, 2, (int64_t[]){EMBD, o->n_tok}, TENSOR_INPUT);
    for (int i = 0; i < o->n_layer; i++) {
        struct llama_memory *m = &o->mem[i / o->n_turn % o->n_bt];

        x = attention(g, x, o->w[i], m, &in, o->n_tok);
        x = network(g, x, o->w[i], m);
    }
    graph_expand(g, output(x));
}
