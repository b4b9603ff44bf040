/*
 * Random graphs for tests of the planner: views of views, chains that can be computed in place,
 * outputs and inputs anywhere, weights in the memory of any device, ops that write into tensors,
 * nodes that are only ordered. The same seed gives the same graph, whatever the devices.
 */
#ifndef GGRUN_TESTS_RAND_GRAPH_H
#define GGRUN_TESTS_RAND_GRAPH_H

#include "backends/backend.h"
#include "runtime/graph.h"

struct rng {
    uint64_t s;
};
uint32_t rng_next(struct rng *r);
int rng_below(struct rng *r, int n);         /* 0..n-1 */
bool rng_percent(struct rng *r, int chance); /* true in `chance` of 100 */

#define RAND_FOREIGN 24
#define RAND_POOL    4096

struct rand_graph {
    struct graph g;
    struct rng r;                        /* the graph */
    struct rng r_dev;                    /* where weights are */
    const struct devices *devs;          /* whose memory holds the weights */
    struct tensor foreign[RAND_FOREIGN]; /* weights, then caches */
    struct buffer buffers[RAND_FOREIGN];
    int n_foreign, n_weights;
    struct tensor *pool[RAND_POOL]; /* what later ops can read */
    int n_pool;
    int scale; /* multiplies sizes */
};

struct rand_options {
    uint64_t seed;
    int n_ops;
    int scale;         /* 1: tensors of a few KiB; larger: more */
    bool memory;       /* weights and caches get memory and data; else descriptions only */
    bool plain_inputs; /* no caches, no ops that write (what a test cannot evaluate without exec) */
};

/* False only when memory is short. */
bool rand_graph_init(struct rand_graph *rg, const struct devices *devs,
                     const struct rand_options *o);
void rand_graph_release(struct rand_graph *rg);

/* The bytes that tensor t of the graph starts with in run `run`; inputs, constants, weights. */
void rand_fill(const struct tensor *t, int run, void *out);

#endif
