/*
 * The graphs of a model as its sessions build them, without a session: a cache and a state that are
 * descriptions, and a graph.
 */
#ifndef GGRUN_TESTS_MODEL_GRAPH_H
#define GGRUN_TESTS_MODEL_GRAPH_H

#include "gguf/base/status.h"
#include "runtime/graph.h"
#include "runtime/inputs.h"
#include "runtime/kvcache.h"
#include "runtime/model.h"
#include "runtime/state.h"

struct model_graph {
    const struct model *m; /* not owned */
    struct kvcache kv;
    struct state state;
    struct inputs in;
    struct graph g;
};

/* For micro-batches of up to n_ubatch tokens in a context of n_ctx, a multiple of KV_PAD. */
enum status model_graph_init(struct model_graph *mg, const struct model *m, uint32_t n_ctx,
                             uint32_t n_ubatch, struct err *e);
void model_graph_release(struct model_graph *mg);

/* One micro-batch. */
struct model_shape {
    uint32_t n_tokens, n_outputs;
    uint32_t n_kv; /* cells that attention sees */
    bool no_flash_attn;
};
/* Replace mg->g by the graph of this shape. */
enum status model_graph_build(struct model_graph *mg, const struct model_shape *s, struct err *e);

#endif
