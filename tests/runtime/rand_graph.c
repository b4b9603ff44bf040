#include "tests/runtime/rand_graph.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

uint32_t rng_next(struct rng *r)
{
    r->s ^= r->s << 13;
    r->s ^= r->s >> 7;
    r->s ^= r->s << 17;
    return (uint32_t)(r->s * UINT64_C(0x2545F4914F6CDD1D) >> 32);
}

int rng_below(struct rng *r, int n)
{
    return (int)(rng_next(r) % (uint32_t)n);
}

bool rng_percent(struct rng *r, int chance)
{
    return rng_below(r, 100) < chance;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

void rand_fill(const struct tensor *t, int run, void *out)
{
    uint64_t h = (uint64_t)run + 1;
    size_t n = tensor_bytes(t);
    char *p = out;

    if (!(t->flags & TENSOR_INPUT) || (t->flags & TENSOR_KEEP))
        h = 1; /* written once */
    for (const char *c = t->name; *c; c++)
        h = mix(h ^ (uint64_t)*c);
    memset(p, 0, n);
    for (int64_t i = 0; i < tensor_n(t) && n > 0; i++) {
        /* row numbers: distinct and within the rows, which the name says: "ids7.5" has rows up to 5 */
        int rows = t->type == DT_F32 ? 1 : atoi(strchr(t->name, '.') + 1);
        int64_t i64 = (i + (int64_t)(h % (uint64_t)rows)) % rows;
        int32_t i32 = (int32_t)i64;
        float f;

        h = t->type == DT_F32 ? mix(h + (uint64_t)i) : h;
        f = (float)(int)(h % 2001) / 1000.0f - 1.0f;
        if (t->type == DT_F32)
            memcpy(p + (size_t)i * 4, &f, 4);
        else if (t->type == DT_I32)
            memcpy(p + (size_t)i * 4, &i32, 4);
        else
            memcpy(p + (size_t)i * 8, &i64, 8);
    }
}

/* ---- sources ---- */

static struct tensor *keep(struct rand_graph *rg, struct tensor *t)
{
    if (t && rg->n_pool < RAND_POOL)
        rg->pool[rg->n_pool++] = t;
    return t;
}

/* Mostly something recent, sometimes anything. */
static struct tensor *pick(struct rand_graph *rg)
{
    int recent = rg->n_pool < 8 ? rg->n_pool : 8;

    if (rng_percent(&rg->r, 70))
        return rg->pool[rg->n_pool - 1 - rng_below(&rg->r, recent)];
    return rg->pool[rng_below(&rg->r, rg->n_pool)];
}

static int64_t size0(struct rand_graph *rg)
{
    static const int64_t sizes[] = {16, 24, 32, 64, 96, 128};

    return sizes[rng_below(&rg->r, 6)];
}

static int64_t size1(struct rand_graph *rg)
{
    return (1 + rng_below(&rg->r, 12)) * rg->scale;
}

static struct tensor *new_leaf(struct rand_graph *rg, int64_t n0, int64_t n1)
{
    static const uint32_t flags[] = {TENSOR_INPUT, TENSOR_INPUT, TENSOR_INPUT,
                                     TENSOR_INPUT | TENSOR_KEEP, 0};
    struct tensor *t =
        graph_leaf(&rg->g, DT_F32, 2, (int64_t[]){n0, n1}, flags[rng_below(&rg->r, 5)]);

    return keep(rg, named(t, "in%d", rg->g.pool.used));
}

/* k row numbers of n rows. */
static struct tensor *new_ids(struct rand_graph *rg, enum dtype type, int64_t k, int64_t n)
{
    struct tensor *t = graph_leaf(&rg->g, type, 1, &k, TENSOR_INPUT);

    return named(t, "ids%d.%d", rg->g.pool.used, (int)n);
}

/* Anything of the same shape as x, or x itself. */
static struct tensor *same_shape(struct rand_graph *rg, struct tensor *x)
{
    for (int tries = 0; tries < 12; tries++) {
        struct tensor *y = pick(rg);

        if (tensor_same_shape(x, y))
            return y;
    }
    return rng_percent(&rg->r, 30) ? x : op_scale(&rg->g, x, -0.5f, 0.25f);
}

static struct tensor *weight(struct rand_graph *rg, int64_t n0, bool vector)
{
    for (int tries = 0; tries < 20; tries++) {
        struct tensor *w = &rg->foreign[rng_below(&rg->r, rg->n_weights)];

        if (w->ne[0] == n0 && (w->ne[1] == 1) == vector)
            return w;
    }
    return NULL;
}

/* ---- ops ---- */

static struct tensor *random_view(struct rand_graph *rg, struct tensor *x)
{
    struct graph *g = &rg->g;
    int64_t rows = 1 + rng_below(&rg->r, (int)x->ne[1]), first;

    switch (rng_below(&rg->r, 4)) {
    case 0:
        if (tensor_contiguous(x) && tensor_n(x) % 16 == 0)
            return op_reshape(g, x, 2, (int64_t[]){16, tensor_n(x) / 16});
        return op_transpose(g, x);
    case 1:
        return op_transpose(g, x);
    case 2:
        if (x->ne[2] == 1 && x->ne[3] == 1)
            return op_permute(g, x, (const int[]){0, 2, 1, 3});
        return op_transpose(g, x);
    default:
        first = rng_below(&rg->r, (int)(x->ne[1] - rows + 1));
        return op_view(g, x, 2, (int64_t[]){x->ne[0], rows}, &x->nb[1], (size_t)first * x->nb[1]);
    }
}

static struct tensor *random_binary(struct rand_graph *rg, struct tensor *x)
{
    struct tensor *y = NULL;

    if (rng_percent(&rg->r, 25))
        y = weight(rg, x->ne[0], true);
    if (!y)
        y = same_shape(rg, x);
    return rng_percent(&rg->r, 50) ? op_add(&rg->g, x, y) : op_mul(&rg->g, x, y);
}

static struct tensor *random_mul_mat(struct rand_graph *rg, struct tensor *x)
{
    struct tensor *w = rng_percent(&rg->r, 80) ? weight(rg, x->ne[0], false) : NULL;

    for (int tries = 0; tries < 6 && !w; tries++) {
        struct tensor *y = pick(rg);

        if (y->ne[0] == x->ne[0] && y->ne[1] <= 64 && y->ne[2] == 1 && y->ne[3] == 1)
            w = y;
    }
    return w ? op_mul_mat(&rg->g, w, x) : op_scale(&rg->g, x, 0.5f, 0);
}

static struct tensor *random_set_rows(struct rand_graph *rg, struct tensor *x)
{
    for (int tries = 0; tries < 8; tries++) {
        struct tensor *a =
            rng_percent(&rg->r, 50) && rg->n_foreign > rg->n_weights
                ? &rg->foreign[rg->n_weights + rng_below(&rg->r, rg->n_foreign - rg->n_weights)]
                : pick(rg);

        if (a->ne[0] != x->ne[0] || a->ne[1] < x->ne[1] || a->ne[2] != 1 || a->ne[3] != 1 ||
            tensor_owner(a) == tensor_owner(x) || tensor_owner(a)->op == OP_SET_ROWS ||
            (a->buffer && a->buffer->usage == USAGE_WEIGHTS))
            continue;
        return op_set_rows(&rg->g, a, x, new_ids(rg, DT_I64, x->ne[1], a->ne[1]));
    }
    return op_cont(&rg->g, x);
}

static bool is_matrix(const struct tensor *x)
{
    return x->ne[2] == 1 && x->ne[3] == 1;
}

static struct tensor *random_op(struct rand_graph *rg, const struct rand_options *o)
{
    struct graph *g = &rg->g;
    struct tensor *x = pick(rg);
    int64_t k;

    switch (rng_below(&rg->r, 14)) {
    case 0:
    case 1:
    case 2:
        return random_view(rg, x);
    case 3:
    case 4:
        return random_binary(rg, x);
    case 5:
        return op_scale(g, x, 0.75f, -0.125f);
    case 6:
        return op_rms_norm(g, x, rng_percent(&rg->r, 50) ? weight(rg, x->ne[0], true) : NULL,
                           1e-5f);
    case 7:
        return op_glu(g, x, same_shape(rg, x), GLU_SWIGLU);
    case 8:
    case 9:
    case 10:
        return random_mul_mat(rg, x);
    case 11:
        return op_cont(g, x);
    case 12:
        if (!is_matrix(x))
            return op_cont(g, x);
        k = size1(rg);
        return op_get_rows(g, x, new_ids(rg, DT_I32, k, x->ne[1]));
    default:
        return is_matrix(x) && !o->plain_inputs ? random_set_rows(rg, x) : op_cont(g, x);
    }
}

/* ---- foreign tensors ---- */

static bool can_write_rows(const struct device *dev)
{
    struct tensor a = {0}, x = {0}, ids = {0};
    struct tensor t = {.op = OP_SET_ROWS, .src = {&a, &x, &ids}};

    tensor_set_shape(&a, DT_F32, 2, (int64_t[]){4, 2});
    tensor_set_shape(&x, DT_F32, 2, (int64_t[]){4, 1});
    tensor_set_shape(&ids, DT_I64, 1, (int64_t[]){1});
    return op_shape(&t, NULL) == ST_OK && device_supports_op(dev, &t);
}

static bool add_foreign(struct rand_graph *rg, const struct rand_options *o, int64_t n0, int64_t n1,
                        enum usage usage)
{
    int i = rg->n_foreign++;
    struct tensor *t = &rg->foreign[i];
    struct buffer *b = &rg->buffers[i];
    const struct device *dev;
    char *data;

    do { /* a cache is where something can write into it */
        dev = rg->devs->dev[rng_below(&rg->r_dev, rg->devs->n)];
    } while (usage == USAGE_ANY && !can_write_rows(dev));

    *t = (struct tensor){0};
    tensor_set_shape(t, DT_F32, 2, (int64_t[]){n0, n1});
    tensor_set_name(t, "%s%d", usage == USAGE_WEIGHTS ? "w" : "cache", i);
    if (usage == USAGE_WEIGHTS && rng_percent(&rg->r, 10))
        t->flags = TENSOR_PARAM;
    t->buffer = b;
    if (!o->memory) {
        buffer_describe(b, dev->buft, tensor_bytes(t), usage);
        return true;
    }
    if (buffer_init(b, dev->buft, tensor_bytes(t), usage, NULL))
        return false;
    t->data = b->base;
    data = malloc(tensor_bytes(t));
    if (!data)
        return false;
    rand_fill(t, 0, data);
    tensor_set(t, 0, data, tensor_bytes(t), NULL);
    free(data);
    return true;
}

static bool add_foreigners(struct rand_graph *rg, const struct rand_options *o)
{
    bool ok = true;

    for (int i = 0; i < 16; i++)
        ok = ok && add_foreign(rg, o, size0(rg), i % 3 ? size0(rg) : 1, USAGE_WEIGHTS);
    rg->n_weights = rg->n_foreign;
    for (int i = 0; i < 4 && !o->plain_inputs; i++)
        ok = ok && add_foreign(rg, o, size0(rg), 12 * rg->scale, USAGE_ANY);
    return ok;
}

/* Expand what nobody reads; some of it is only ordered. */
static void expand_all(struct rand_graph *rg, int chance_ordered)
{
    struct graph *g = &rg->g;

    for (int i = 0; i < rg->n_pool; i++) {
        struct tensor *t = rg->pool[i];

        if (t->flags & TENSOR_OUTPUT) {
            graph_expand(g, t);
        } else if (graph_slot(g, t) < 0 && rng_percent(&rg->r, 30)) {
            if (rng_percent(&rg->r, chance_ordered))
                graph_order(g, t);
            else
                graph_expand(g, t);
        }
    }
    graph_expand(g, rg->pool[rg->n_pool - 1]);
}

bool rand_graph_init(struct rand_graph *rg, const struct devices *devs,
                     const struct rand_options *o)
{
    memset(rg, 0, sizeof *rg);
    rg->devs = devs;
    rg->r.s = mix(o->seed + 1) | 1;
    rg->r_dev.s = mix(o->seed + 2) | 1;
    rg->scale = o->scale ? o->scale : 1;
    if (!add_foreigners(rg, o) || graph_init(&rg->g, 6 * o->n_ops + 64, NULL)) {
        rand_graph_release(rg);
        return false;
    }
    rg->g.order = rng_percent(&rg->r, 20) ? ORDER_RIGHT_TO_LEFT : ORDER_LEFT_TO_RIGHT;
    for (int i = 0; i < 4; i++)
        new_leaf(rg, size0(rg), size1(rg));
    for (int i = 0; i < o->n_ops; i++) {
        struct tensor *t;

        if (rng_percent(&rg->r, 6))
            new_leaf(rg, size0(rg), size1(rg));
        t = keep(rg, random_op(rg, o));
        if (t && rng_percent(&rg->r, 4))
            output(t);
    }
    expand_all(rg, 25);
    assert(graph_status(&rg->g, NULL) == ST_OK);
    return true;
}

void rand_graph_release(struct rand_graph *rg)
{
    for (int i = 0; i < rg->n_foreign; i++)
        buffer_release(&rg->buffers[i]);
    graph_release(&rg->g);
}
