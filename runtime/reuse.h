/*
 * Reuse: may an earlier graph run again for the next micro-batch, and if not, why.
 *
 *   1. Facts are all that a build sees besides the model and the session's constants: equal facts give an
 *      equal graph. They are plain values that own what they hold (sequence ids are copied).
 *   2. reuse_compare looks at what decides the topology, in four groups: kind of graph and shape of the
 *      micro-batch; what carries the tokens; the sequences, when the split is by equal sequences (another
 *      set of sequences attends to other cells); outputs and samplers inside the graph.
 *   3. What only sizes an input is asked of the input itself (struct input_ops, fits). An input that does
 *      not say that it fits does not fit.
 */
#ifndef GGRUN_RUNTIME_REUSE_H
#define GGRUN_RUNTIME_REUSE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/batch.h"

enum graph_kind {
    GRAPH_LOGITS, /* tokens to logits, with a KV cache */
};

struct reuse_facts {
    enum graph_kind kind;
    /* the micro-batch: see struct ubatch */
    int32_t n_tokens, n_seq_tokens, n_seqs, n_seqs_unq;
    bool equal_seqs, mixed;
    unsigned carriers;
    int32_t seq_id_unq[SEQ_MAX]; /* [n_seqs_unq] */
    int32_t n_outputs;
    uint64_t samplers; /* graph_sampling_key: the samplers that are part of the graph; 0: none */
    uint32_t n_kv;     /* cells that attention sees */
    uint32_t n_kv_window; /* the same in a layer with a window */
};

enum reuse_reason { /* why a graph was built; REUSE_OK: it was not */
    REUSE_OK,
    REUSE_FIRST,     /* there is no graph yet, or the last one failed */
    REUSE_OFF,       /* reuse is switched off */
    REUSE_KIND,      /* another kind of graph */
    REUSE_SHAPE,     /* n_tokens */
    REUSE_SEQUENCES, /* equal_seqs, n_seq_tokens, n_seqs, n_seqs_unq */
    REUSE_MIXED,
    REUSE_CARRIER,   /* tokens, embeddings or both */
    REUSE_STATE,     /* with or without state */
    REUSE_SEQ_IDS,
    REUSE_OUTPUTS,
    REUSE_SAMPLERS,
    REUSE_KV_LENGTH, /* an input: the attention mask's padded length */
    REUSE_INPUT,     /* an input of another size, or one that does not say */
    REUSE_COUNT,
};

const char *reuse_name(enum reuse_reason r); /* "first", "shape", "kv_length", ... */

void reuse_facts(struct reuse_facts *f, const struct ubatch *u, uint32_t n_kv, uint32_t n_kv_window);
/* The first difference that asks for another graph, in the order of the enum; REUSE_OK if there is none. */
enum reuse_reason reuse_compare(const struct reuse_facts *last, const struct reuse_facts *now);

#endif
