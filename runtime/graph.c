#include "runtime/graph.h"

#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "gguf/base/mem.h"

/* ---- pool ---- */

enum status tensor_pool_init(struct tensor_pool *p, int cap, struct err *e)
{
    *p = (struct tensor_pool){0};
    p->t = mem_array((size_t)cap, sizeof *p->t);
    if (!p->t)
        return err_nomem(e, "graph metadata", (size_t)cap * sizeof *p->t);
    p->cap = cap;
    return ST_OK;
}

void tensor_pool_release(struct tensor_pool *p)
{
    mem_free(p->t);
    *p = (struct tensor_pool){0};
}

void tensor_pool_reset(struct tensor_pool *p)
{
    p->used = 0;
    p->wanted = 0;
}

struct tensor *tensor_pool_new(struct tensor_pool *p)
{
    struct tensor *t;

    p->wanted++;
    if (p->used == p->cap)
        return NULL;
    t = &p->t[p->used++];
    *t = (struct tensor){0};
    return t;
}

size_t tensor_pool_bytes(const struct tensor_pool *p)
{
    return (size_t)p->cap * sizeof *p->t;
}

/* ---- graph ---- */

struct graph_step { /* one tensor on the way down */
    struct tensor *t;
    int next; /* sources looked at so far */
    bool is_new;
};

enum status graph_init(struct graph *g, int cap, struct err *e)
{
    enum status st;
    int n_slots = 16;

    *g = (struct graph){0};
    while (n_slots < 4 * cap)
        n_slots *= 2;
    st = tensor_pool_init(&g->pool, cap, e);
    if (st)
        return st;
    g->cap = 2 * cap;
    g->cap_stack = 2 * cap;
    g->n_slots = n_slots;
    g->nodes = mem_array((size_t)g->cap, sizeof(*g->nodes));
    g->leafs = mem_array((size_t)g->cap, sizeof(*g->leafs));
    g->set = mem_array((size_t)n_slots, sizeof *g->set);
    g->stack = mem_array((size_t)g->cap_stack, sizeof *g->stack);
    if (!g->nodes || !g->leafs || !g->set || !g->stack) {
        st = err_nomem(e, "graph metadata", graph_bytes(g));
        graph_release(g);
        return st;
    }
    graph_reset(g);
    return ST_OK;
}

void graph_release(struct graph *g)
{
    tensor_pool_release(&g->pool);
    mem_free(g->nodes);
    mem_free(g->leafs);
    mem_free(g->set);
    mem_free(g->stack);
    *g = (struct graph){0};
}

void graph_reset(struct graph *g)
{
    /* A number, not state: it only has to differ from every earlier one of the process. */
    static _Atomic uint64_t last_uid;

    tensor_pool_reset(&g->pool);
    memset(g->set, 0, (size_t)g->n_slots * sizeof *g->set);
    g->n_nodes = 0;
    g->n_leafs = 0;
    g->err = (struct err){0};
    g->uid = atomic_fetch_add_explicit(&last_uid, 1, memory_order_relaxed) + 1;
}

enum status graph_status(const struct graph *g, struct err *e)
{
    if (g->pool.wanted > g->pool.cap)
        return err_set(e, ST_NOMEM, "graph needs %d tensors, its pool holds %d", g->pool.wanted,
                       g->pool.cap);
    if (g->err.code && e)
        *e = g->err;
    return g->err.code;
}

size_t graph_bytes(const struct graph *g)
{
    return tensor_pool_bytes(&g->pool) + (size_t)g->cap * 2 * sizeof(*g->nodes) +
           (size_t)g->n_slots * sizeof *g->set + (size_t)g->cap_stack * sizeof *g->stack;
}

/* The slot where t is, or the free one where it belongs; -1 when neither exists. */
static int probe(const struct graph *g, const struct tensor *t)
{
    uint64_t h = ((uint64_t)(uintptr_t)t >> 4) * UINT64_C(0x9E3779B97F4A7C15);
    int mask = g->n_slots - 1;
    int i = (int)(h >> 32) & mask;

    for (int n = 0; n < g->n_slots; n++, i = (i + 1) & mask) {
        if (!g->set[i].t || g->set[i].t == t)
            return i;
    }
    return -1;
}

int graph_slot(const struct graph *g, const struct tensor *t)
{
    int i = probe(g, t);

    return i >= 0 && g->set[i].t ? i : -1;
}

int graph_uses(const struct graph *g, const struct tensor *t)
{
    int i = graph_slot(g, t);

    return i < 0 ? 0 : g->set[i].uses;
}

int graph_node_index(const struct graph *g, const struct tensor *t)
{
    int i = graph_slot(g, t);

    return i < 0 || g->set[i].index < 0 ? -1 : g->set[i].index;
}

struct tensor *graph_find(const struct graph *g, const char *name)
{
    for (int i = 0; i < g->n_nodes; i++) {
        if (strcmp(g->nodes[i]->name, name) == 0)
            return g->nodes[i];
    }
    for (int i = 0; i < g->n_leafs; i++) {
        if (strcmp(g->leafs[i]->name, name) == 0)
            return g->leafs[i];
    }
    return NULL;
}

static void too_small(struct graph *g)
{
    if (!g->err.code)
        err_set(&g->err, ST_NOMEM, "graph has room for %d nodes and as many leafs, more are needed",
                g->cap);
}

/* All sources are in place: file t as node or leaf. */
static void file_tensor(struct graph *g, struct tensor *t, int slot)
{
    bool leaf = t->op == OP_NONE && !(t->flags & TENSOR_PARAM);
    int i = leaf ? g->n_leafs : g->n_nodes;

    if (i == g->cap) {
        too_small(g);
        return;
    }
    g->set[slot].index = leaf ? -1 - i : i;
    if (leaf)
        g->leafs[g->n_leafs++] = t;
    else
        g->nodes[g->n_nodes++] = t;
    if (!t->name[0])
        tensor_set_name(t, leaf ? "leaf_%d" : "node_%d", i);
}

/* Enter t: true if its sources must be walked, either because it is new, or because it was only ordered
 * until now and has to be computed after all. */
static bool enter(struct graph *g, struct tensor *t, bool compute, bool *is_new)
{
    bool upgrade;
    int slot = probe(g, t);

    if (slot < 0) {
        too_small(g);
        return false;
    }
    *is_new = !g->set[slot].t;
    if (*is_new && !compute)
        t->flags &= ~(uint32_t)TENSOR_COMPUTE; /* a mark that an earlier graph may have left */
    upgrade = compute && t->op != OP_NONE && !(t->flags & TENSOR_COMPUTE);
    if (upgrade)
        t->flags |= TENSOR_COMPUTE;
    if (*is_new)
        g->set[slot] = (struct graph_entry){.t = t, .index = INT32_MIN};
    return *is_new || upgrade;
}

/* Depth-first, post-order, with an explicit stack: a chain of any length is fine. */
static void walk(struct graph *g, struct tensor *root, bool compute)
{
    int n = 0;
    bool is_new;

    if (!root || g->err.code || !enter(g, root, compute, &is_new))
        return;
    g->stack[n++] = (struct graph_step){.t = root, .is_new = is_new};
    while (n > 0 && !g->err.code) {
        struct graph_step *top = &g->stack[n - 1];
        struct tensor *src;
        int k;

        if (top->next == TENSOR_SRC) {
            if (top->is_new)
                file_tensor(g, top->t, probe(g, top->t));
            n--;
            continue;
        }
        k = top->next++;
        if (g->order == ORDER_RIGHT_TO_LEFT)
            k = TENSOR_SRC - 1 - k;
        src = top->t->src[k];
        if (!src)
            continue;
        if (enter(g, src, compute, &is_new)) {
            if (n == g->cap_stack) {
                too_small(g);
                return;
            }
            g->stack[n++] = (struct graph_step){.t = src, .is_new = is_new};
            top = &g->stack[n - 2];
        }
        if (top->is_new && !g->err.code)
            g->set[probe(g, src)].uses++;
    }
}

void graph_expand(struct graph *g, struct tensor *t)
{
    walk(g, t, true);
    assert(g->err.code || !t || g->n_nodes == 0 || t->op == OP_NONE || graph_slot(g, t) >= 0);
}

void graph_order(struct graph *g, struct tensor *t)
{
    walk(g, t, false);
}

void graph_select(struct graph *g, struct tensor *const *outs, int n, int which)
{
    for (int i = 0; i < n; i++)
        walk(g, outs[i], i == which);
}

/* ---- constructors ---- */

/*
 * A new tensor with its sources, the first n_needed of which must be there: one is NULL only after an
 * error, or when the pool ran over. The pool is asked in any case, so that it counts the whole graph.
 */
static struct tensor *make(struct graph *g, enum op op, int n_needed, struct tensor *a,
                           struct tensor *b, struct tensor *c, struct tensor *d)
{
    struct tensor *t = tensor_pool_new(&g->pool);
    struct tensor *src[4] = {a, b, c, d};

    if (!t || g->err.code)
        return NULL;
    for (int i = 0; i < n_needed; i++) {
        if (!src[i])
            return NULL;
    }
    t->op = op;
    memcpy(t->src, src, sizeof src);
    return t;
}

static struct tensor *finish(struct graph *g, struct tensor *t)
{
    return t && op_shape(t, &g->err) == ST_OK ? t : NULL;
}

struct tensor *graph_leaf(struct graph *g, enum dtype type, int n_dims, const int64_t *ne,
                          uint32_t flags)
{
    struct tensor *t = make(g, OP_NONE, 0, NULL, NULL, NULL, NULL);

    if (!t)
        return NULL;
    t->flags = flags;
    if (!tensor_set_shape(t, type, n_dims, ne)) {
        err_set(&g->err, ST_MODEL, "a graph input of [%lld, ...] %s is not a valid tensor",
                (long long)ne[0], dtype_name(type));
        return NULL;
    }
    return t;
}

struct tensor *named(struct tensor *t, const char *fmt, ...)
{
    va_list ap;

    if (t) {
        va_start(ap, fmt);
        vsnprintf(t->name, sizeof t->name, fmt, ap);
        va_end(ap);
    }
    return t;
}

struct tensor *output(struct tensor *t)
{
    if (t)
        t->flags |= TENSOR_OUTPUT;
    return t;
}

static void set_ne(struct tensor *t, int n_dims, const int64_t *ne)
{
    for (int i = 0; i < TENSOR_DIMS; i++)
        t->ne[i] = i < n_dims ? ne[i] : 1;
}

struct tensor *op_reshape(struct graph *g, struct tensor *x, int n_dims, const int64_t *ne)
{
    struct tensor *t = make(g, OP_RESHAPE, 1, x, NULL, NULL, NULL);

    if (t)
        set_ne(t, n_dims, ne);
    return finish(g, t);
}

struct tensor *op_view(struct graph *g, struct tensor *x, int n_dims, const int64_t *ne,
                       const size_t *nb, size_t offs)
{
    struct tensor *t = make(g, OP_VIEW, 1, x, NULL, NULL, NULL);

    if (!t)
        return NULL;
    set_ne(t, n_dims, ne);
    for (int i = 1; i < TENSOR_DIMS; i++)
        t->nb[i] = i < n_dims ? nb[i - 1] : i == 1 ? dtype_row_bytes(x->type, ne[0])
                                                   : t->nb[i - 1] * (size_t)t->ne[i - 1];
    t->view_offs = offs;
    return finish(g, t);
}

struct tensor *op_permute(struct graph *g, struct tensor *x, const int axis[4])
{
    struct tensor *t = make(g, OP_PERMUTE, 1, x, NULL, NULL, NULL);

    if (t) {
        for (int i = 0; i < 4; i++)
            t->params[i] = axis[i];
    }
    return finish(g, t);
}

struct tensor *op_transpose(struct graph *g, struct tensor *x)
{
    return finish(g, make(g, OP_TRANSPOSE, 1, x, NULL, NULL, NULL));
}

struct tensor *op_cont(struct graph *g, struct tensor *x)
{
    return finish(g, make(g, OP_CONT, 1, x, NULL, NULL, NULL));
}

struct tensor *op_concat(struct graph *g, struct tensor *a, struct tensor *b)
{
    return finish(g, make(g, OP_CONCAT, 2, a, b, NULL, NULL));
}

struct tensor *op_get_rows(struct graph *g, struct tensor *a, struct tensor *ids)
{
    return finish(g, make(g, OP_GET_ROWS, 2, a, ids, NULL, NULL));
}

struct tensor *op_set_rows(struct graph *g, struct tensor *a, struct tensor *x, struct tensor *ids)
{
    return finish(g, make(g, OP_SET_ROWS, 3, a, x, ids, NULL));
}

struct tensor *op_add(struct graph *g, struct tensor *a, struct tensor *b)
{
    return finish(g, make(g, OP_ADD, 2, a, b, NULL, NULL));
}

struct tensor *op_mul(struct graph *g, struct tensor *a, struct tensor *b)
{
    return finish(g, make(g, OP_MUL, 2, a, b, NULL, NULL));
}

struct tensor *op_div(struct graph *g, struct tensor *a, struct tensor *b)
{
    return finish(g, make(g, OP_DIV, 2, a, b, NULL, NULL));
}

struct tensor *op_scale(struct graph *g, struct tensor *x, float s, float bias)
{
    struct param_scale p = {.s = s, .bias = bias};
    struct tensor *t = make(g, OP_SCALE, 1, x, NULL, NULL, NULL);

    if (t)
        op_param_set(t, &p);
    return finish(g, t);
}

struct tensor *op_softcap(struct graph *g, struct tensor *x, float cap)
{
    struct param_softcap p = {.cap = cap};
    struct tensor *t = make(g, OP_SOFTCAP, 1, x, NULL, NULL, NULL);

    if (t)
        op_param_set(t, &p);
    return finish(g, t);
}

struct tensor *op_unary(struct graph *g, struct tensor *x, enum unary_kind kind)
{
    struct param_unary p = {.kind = (int32_t)kind};
    struct tensor *t = make(g, OP_UNARY, 1, x, NULL, NULL, NULL);

    if (t)
        op_param_set(t, &p);
    return finish(g, t);
}

struct tensor *op_norm(struct graph *g, struct tensor *x, struct tensor *w, struct tensor *b,
                       float eps)
{
    struct param_rms_norm p = {.eps = eps};
    struct tensor *t = make(g, OP_NORM, 1, x, w, b, NULL);

    if (t)
        op_param_set(t, &p);
    return finish(g, t);
}

struct tensor *op_rms_norm(struct graph *g, struct tensor *x, struct tensor *w, float eps)
{
    struct param_rms_norm p = {.eps = eps};
    struct tensor *t = make(g, OP_RMS_NORM, 1, x, w, NULL, NULL);

    if (t)
        op_param_set(t, &p);
    return finish(g, t);
}

struct tensor *op_rope(struct graph *g, struct tensor *x, struct tensor *pos, struct tensor *freqs,
                       const struct param_rope *r)
{
    struct tensor *t = make(g, OP_ROPE, 2, x, pos, freqs, NULL);

    if (t)
        op_param_set(t, r);
    return finish(g, t);
}

struct tensor *op_glu(struct graph *g, struct tensor *a, struct tensor *b, enum glu_kind kind)
{
    struct param_glu p = {.kind = (int32_t)kind};
    struct tensor *t = make(g, OP_GLU, 2, a, b, NULL, NULL);

    if (t)
        op_param_set(t, &p);
    return finish(g, t);
}

struct tensor *op_mul_mat(struct graph *g, struct tensor *w, struct tensor *x)
{
    return finish(g, make(g, OP_MUL_MAT, 2, w, x, NULL, NULL));
}

struct tensor *op_clamp(struct graph *g, struct tensor *x, float lo, float hi)
{
    struct param_clamp p = {.lo = lo, .hi = hi};
    struct tensor *t = make(g, OP_CLAMP, 1, x, NULL, NULL, NULL);

    if (t)
        op_param_set(t, &p);
    return finish(g, t);
}

struct tensor *op_soft_max(struct graph *g, struct tensor *x)
{
    return op_attn_soft_max(g, x, NULL, NULL, &(struct param_attn){.scale = 1});
}

struct tensor *op_attn_soft_max(struct graph *g, struct tensor *x, struct tensor *mask,
                                struct tensor *sinks, const struct param_attn *p)
{
    struct tensor *t = make(g, OP_SOFT_MAX, 1, x, mask, sinks, NULL);

    if (t)
        op_param_set(t, p);
    return finish(g, t);
}

struct tensor *op_top_k(struct graph *g, struct tensor *x, const struct param_top_k *p)
{
    struct tensor *t = make(g, OP_TOP_K, 1, x, NULL, NULL, NULL);

    if (t)
        op_param_set(t, p);
    return finish(g, t);
}

struct tensor *op_argmax(struct graph *g, struct tensor *x)
{
    return finish(g, make(g, OP_ARGMAX, 1, x, NULL, NULL, NULL));
}

struct tensor *op_mask_bits(struct graph *g, struct tensor *x, struct tensor *bits)
{
    return finish(g, make(g, OP_MASK_BITS, 2, x, bits, NULL, NULL));
}

struct tensor *op_pick(struct graph *g, struct tensor *x, struct tensor *ids)
{
    return finish(g, make(g, OP_PICK, 2, x, ids, NULL, NULL));
}

struct tensor *op_mul_mat_id(struct graph *g, struct tensor *w, struct tensor *x,
                             struct tensor *ids)
{
    return finish(g, make(g, OP_MUL_MAT_ID, 3, w, x, ids, NULL));
}

struct tensor *op_add_id(struct graph *g, struct tensor *x, struct tensor *b, struct tensor *ids)
{
    return finish(g, make(g, OP_ADD_ID, 3, x, b, ids, NULL));
}

struct tensor *op_shares(struct graph *g, struct tensor *x, float floor)
{
    struct param_shares p = {.floor = floor};
    struct tensor *t = make(g, OP_SHARES, 1, x, NULL, NULL, NULL);

    if (t)
        op_param_set(t, &p);
    return finish(g, t);
}

struct tensor *op_mix(struct graph *g, struct tensor *x, struct tensor *w)
{
    return finish(g, make(g, OP_MIX, 1, x, w, NULL, NULL));
}

struct tensor *op_ssm_conv(struct graph *g, struct tensor *x, struct tensor *w,
                           struct tensor *state, struct tensor *from)
{
    return finish(g, make(g, OP_SSM_CONV, 4, x, w, state, from));
}

/* The sources of t behind the first four: NULL when one is missing. */
static struct tensor *with_more(struct tensor *t, struct tensor *a, struct tensor *b,
                                struct tensor *c)
{
    if (!t || !a || !b || !c)
        return NULL;
    t->src[4] = a;
    t->src[5] = b;
    t->src[6] = c;
    return t;
}

struct tensor *op_ssm_scan(struct graph *g, const struct ssm_scan *s)
{
    struct tensor *t = make(g, OP_SSM_SCAN, 4, s->x, s->dt, s->a, s->b);

    return finish(g, with_more(t, s->c, s->state, s->from));
}

struct tensor *op_delta_net(struct graph *g, const struct delta_net *d)
{
    struct param_delta_net p = {.tiled = d->tiled};
    struct tensor *t = make(g, OP_DELTA_NET, 4, d->q, d->k, d->v, d->decay);

    t = with_more(t, d->beta, d->state, d->from);
    if (t)
        op_param_set(t, &p);
    return finish(g, t);
}

struct tensor *op_flash_attn(struct graph *g, struct tensor *q, struct tensor *k, struct tensor *v,
                             struct tensor *mask, struct tensor *sinks, struct tensor *cells,
                             const struct param_attn *p)
{
    struct tensor *t = make(g, OP_FLASH_ATTN, 4, q, k, v, mask);

    if (t) {
        t->src[4] = sinks;
        t->src[5] = cells;
        op_param_set(t, p);
    }
    return finish(g, t);
}
