/*
 * Graphs of any length that look like a llama model's, with the sizes of SmolLM2 135M: for tests and
 * measurements of planning. Weights and caches are descriptions.
 */
#ifndef GGRUN_TESTS_LLAMA_GRAPH_H
#define GGRUN_TESTS_LLAMA_GRAPH_H

#include "backends/backend.h"
#include "runtime/graph.h"

#define LLAMA_WEIGHTS 9 /* of a layer, its caches among them */

/* Memory of one device, described. */
struct llama_memory {
    struct buffer weights, cache;
};

struct llama_graph {
    int n_layer;
    int64_t n_tok;
    const struct buft *const *bt; /* [n_bt] memories that layers are in, by turns */
    int n_bt;
    int n_turn;              /* layers in a row that are in the same one */
    struct llama_memory *mem; /* [n_bt] room */
    struct tensor (*w)[LLAMA_WEIGHTS]; /* [n_layer] room */
};

/* Replace g by the layers, from embeddings to the last residual. Errors stay in g. */
void llama_graph(struct graph *g, const struct llama_graph *o);

#endif
