#include "tests/runtime/oracle.h"

#include <stdlib.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "tests/runtime/fake_dev.h"
#include "tests/runtime/rand_graph.h"
#include "tests/unit.h"

void *oracle_data(const struct oracle *o, const struct tensor *t)
{
    const struct tensor *owner = tensor_owner(t);
    char *p = owner->buffer ? owner->data : o->data[graph_slot(o->g, owner)];

    return p + (t->view_src ? t->view_offs : 0);
}

void oracle_init(struct oracle *o, struct graph *g)
{
    o->g = g;
    o->dev = NULL;
    o->data = calloc((size_t)g->n_slots, sizeof(*o->data));
    for (int i = 0; i < g->n_slots; i++) {
        if (g->set[i].t && !g->set[i].t->view_src && !g->set[i].t->buffer)
            o->data[i] = calloc(1, tensor_bytes(g->set[i].t) + 1);
    }
    for (int i = 0; i < g->n_leafs; i++) {
        if (!g->leafs[i]->buffer)
            rand_fill(g->leafs[i], 0, oracle_data(o, g->leafs[i]));
    }
}

static void compute_alone(struct device *dev, struct tensor *t)
{
    static const int32_t uses = 2; /* nothing to fuse with */
    struct span s = {.nodes = &t, .uses = &uses, .n = 1};
    size_t n = device_work_size(dev, t);
    void *work = mem_aligned(n);
    struct err e;

    if (device_compute(dev, &s, work, n, &e))
        fail_msg("%s", e.msg);
    mem_free(work);
}

void oracle_run(const struct oracle *o, int run)
{
    for (int i = 0; i < o->g->n_leafs; i++) {
        const struct tensor *t = o->g->leafs[i];

        if ((t->flags & TENSOR_INPUT) && !(t->flags & TENSOR_KEEP))
            rand_fill(t, run, oracle_data(o, t));
    }
    for (int i = 0; i < o->g->n_nodes; i++) {
        struct tensor x = *o->g->nodes[i], src[TENSOR_SRC];

        if (tensor_is_noop(&x) || !(x.flags & TENSOR_COMPUTE))
            continue;
        for (int j = 0; j < TENSOR_SRC; j++) {
            if (!x.src[j])
                continue;
            src[j] = *x.src[j];
            src[j].data = oracle_data(o, x.src[j]);
            x.src[j] = &src[j];
        }
        x.data = oracle_data(o, o->g->nodes[i]);
        if (o->dev)
            compute_alone(o->dev, &x);
        else
            naive_compute(&x);
    }
}

void oracle_release(struct oracle *o)
{
    for (int i = 0; i < o->g->n_slots; i++)
        free(o->data[i]);
    free(o->data);
}

/* ---- a graph under test ---- */

void write_inputs(struct graph *g, int run)
{
    for (int i = 0; i < g->n_leafs; i++) {
        struct tensor *t = g->leafs[i];
        bool each = (t->flags & TENSOR_INPUT) && !(t->flags & TENSOR_KEEP);
        void *p;

        if (t->buffer->usage != USAGE_COMPUTE || (run > 0 && !each))
            continue;
        p = malloc(tensor_bytes(t) + 1);
        rand_fill(t, run, p);
        assert_int_equal(tensor_set(t, 0, p, tensor_bytes(t), NULL), ST_OK);
        free(p);
    }
}

void results_are(const struct graph *g, const struct oracle *o, uint64_t seed, int run)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tensor *t = g->nodes[i];
        size_t n = tensor_bytes(t);
        char *p;

        if (!(t->flags & TENSOR_COMPUTE) || (graph_uses(g, t) > 0 && !(t->flags & TENSOR_OUTPUT)))
            continue;
        p = malloc(n + 1);
        assert_int_equal(tensor_get(t, 0, p, n, NULL), ST_OK);
        if (memcmp(p, oracle_data(o, o->g->nodes[i]), n) != 0)
            fail_msg("seed %d, run %d: '%s' (%s) differs", (int)seed, run, t->name, op_name(t->op));
        free(p);
    }
}
