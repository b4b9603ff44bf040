/*
 * Samplers in the graph: they follow the logits there, so that one id, or a few with their logits, leave
 * the device in place of a row as long as the vocabulary.
 *
 *     logits --> MASK_BITS --> ARGMAX or TOP_K ---------> ids     [n, n_outputs] i32
 *        |           |               |
 *        |           +-------------> PICK --> SCALE --> CONCAT --> values  [n + 1, n_outputs] f32
 *        +--> MUL_MAT with itself ------------------------+
 *
 * The last of the values is the sum of the squares of all logits: unless that is finite, the row may hold
 * NaN or infinity, and has to be looked at.
 */
#ifndef GGRUN_RUNTIME_GRAPH_SAMPLING_H
#define GGRUN_RUNTIME_GRAPH_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/tensor.h"
#include "gguf/base/status.h"

struct build;

/* Zeroed: nothing is done in the graph. */
struct graph_sampling {
    bool argmax;   /* choose the most likely id, the lowest one on a tie; top_k and temp do not count */
    int32_t top_k; /* above 0: choose so many of the most likely, in this order; cut to n_vocab */
    float temp;    /* their logits are multiplied by 1 / temp; 0 and 1: they are left as they are */
    /*
     * Ids that may be chosen, bit id % 32 of word id / 32; NULL: all. The others are taken for -inf.
     * [(n_vocab + 31) / 32], the caller's: read in each evaluation, so that its bits may change between
     * two of them.
     */
    const uint32_t *allowed;
    bool logits; /* copy the row of logits to the host as well */
};

static inline bool graph_sampling_on(const struct graph_sampling *gs)
{
    return gs->argmax || gs->top_k > 0;
}
/* ST_USAGE for a temperature that is negative or not finite, or of which the inverse is not. */
enum status graph_sampling_check(const struct graph_sampling *gs, struct err *e);
/* How many ids are chosen per token; 0: none. */
int32_t graph_sampling_n(const struct graph_sampling *gs, uint32_t n_vocab);
/* For struct reuse_facts: differs when the graph does. What the bits of `allowed` are does not count. */
uint64_t graph_sampling_key(const struct graph_sampling *gs, uint32_t n_vocab);

/* Outputs of the graph; NULL when there are none. */
struct sampled_nodes {
    struct tensor *ids, *values;
};

#define GRAPH_SAMPLING_NODES 12 /* tensors that it adds to a graph, at most */

/* Before the build of the model. */
void graph_sampling_begin(struct build *b, const struct graph_sampling *gs);
/* Behind it: let the samplers follow b->logits, if there are logits. */
void graph_sampling_build(struct build *b, const struct graph_sampling *gs,
                          struct sampled_nodes *out);

/* The results of one token on the host. */
struct sampled {
    int32_t *ids;  /* [n] */
    float *values; /* [n + 1] */
    int32_t n, cap;
};

/* Room for n ids; what was there is gone, unless it fails. */
enum status sampled_reserve(struct sampled *r, int32_t n, struct err *e);
void sampled_release(struct sampled *r);
/* Those of output i of a replayed graph. Allocates nothing. */
enum status sampled_read(struct sampled *r, const struct sampled_nodes *from, int32_t i,
                         struct err *e);
/* Was the whole row of logits finite? False also where the sum of squares alone was not. */
bool sampled_finite(const struct sampled *r);

#endif
