/*
 * An evaluator that shares nothing with the planner: every tensor has memory of its own, nodes are
 * computed one by one.
 */
#ifndef GGRUN_TESTS_ORACLE_H
#define GGRUN_TESTS_ORACLE_H

#include "backends/backend.h"
#include "runtime/graph.h"

struct oracle {
    struct graph *g;
    void **data;        /* [n_slots of the graph's hash] of tensors that own bytes */
    struct device *dev; /* computes one node at a time; NULL: the naive loops */
};

void oracle_init(struct oracle *o, struct graph *g);
void oracle_run(const struct oracle *o, int run);
void oracle_release(struct oracle *o);
/* Where the evaluator has the bytes of a tensor of its graph. */
void *oracle_data(const struct oracle *o, const struct tensor *t);

/* Write what run `run` begins with into a bound graph; in run 0 what is written once, too. */
void write_inputs(struct graph *g, int run);
/* Results of g are those of the evaluator's graph, which has the same nodes. */
void results_are(const struct graph *g, const struct oracle *o, uint64_t seed, int run);

#endif
