/*
 * Inputs: what a graph reads that is written before each replay. An input is a tensor of the graph with
 * two functions: does it still fit the next micro-batch, and how is it filled.
 */
#ifndef GGRUN_RUNTIME_INPUTS_H
#define GGRUN_RUNTIME_INPUTS_H

#include <stdint.h>

#include "backends/backend.h"
#include "gguf/base/status.h"
#include "runtime/batch.h"
#include "runtime/kvcache.h"
#include "runtime/reuse.h"

struct graph;
struct state;

/* What filling an input may look at. */
struct input_data {
    const struct ubatch *u;
    const struct kvcache *kv;
    const struct hparams *hp;
    const struct state *state;
    const uint32_t *allowed; /* of graph_sampling.h; NULL when the graph has no such input */
    float *row; /* [kv->n_cells] room for a row of a mask */
};

struct input_ops {
    const char *name; /* of the tensor */
    /* REUSE_OK if t can be fed with the micro-batch that f describes, else why not. NULL: never. */
    enum reuse_reason (*fits)(const struct tensor *t, const struct reuse_facts *f);
    enum status (*set)(struct tensor *t, const struct input_data *d, struct err *e);
};

#define INPUTS_MAX 16 /* of one graph: each is asked for by name in model code */

struct inputs {
    struct {
        const struct input_ops *ops;
        struct tensor *t;
    } in[INPUTS_MAX];
    int n;
};

/* Make an input tensor of the graph and list it, once per build: a second call gives the first one's. */
struct tensor *input_tokens(struct inputs *l, struct graph *g, const struct reuse_facts *f);  /* [n_tokens] i32 */
struct tensor *input_embd(struct inputs *l, struct graph *g, const struct reuse_facts *f,
                          int64_t n_embd); /* [n_embd, n_tokens] f32 in place of tokens */
struct tensor *input_pos(struct inputs *l, struct graph *g, const struct reuse_facts *f);     /* [n_tokens] i32 */
struct tensor *input_kv_rows(struct inputs *l, struct graph *g, const struct reuse_facts *f); /* [n_tokens] i64 cell of each token */
struct tensor *input_mask(struct inputs *l, struct graph *g, const struct reuse_facts *f);    /* [n_kv, n_tokens] f16, 0 or -inf */
/*
 * For layers with a window of kv->n_window positions: the mask [n_kv_window, n_tokens] f16, as KQ_mask less
 * what lies before the window, and, when they have a ring (kvcache.h), the cell of each token [n_tokens] i64
 * and the cells in the order that the mask has them in [n_kv_window, n_seqs] i32.
 */
struct tensor *input_window_mask(struct inputs *l, struct graph *g, const struct reuse_facts *f);
struct tensor *input_ring_rows(struct inputs *l, struct graph *g, const struct reuse_facts *f);
struct tensor *input_ring_cells(struct inputs *l, struct graph *g, const struct reuse_facts *f);
/* Where sequences have streams of their own: the rows of each one's cells, [n_kv, n_seqs] i32. */
struct tensor *input_kv_cells(struct inputs *l, struct graph *g, const struct reuse_facts *f);
/*
 * The mask of ALiBi: as KQ_mask, with minus the distance in place of 0. In f32: beyond 2048 f16 has no odd
 * numbers.
 */
struct tensor *input_alibi_mask(struct inputs *l, struct graph *g, const struct reuse_facts *f);
struct tensor *input_out_ids(struct inputs *l, struct graph *g, const struct reuse_facts *f); /* [n_outputs] i32 */
/* The recurrent states that are read, -1 for none, and those that are written, by sequence: see state.h. */
struct tensor *input_state_from(struct inputs *l, struct graph *g, const struct reuse_facts *f); /* [n_seqs] i32 */
struct tensor *input_state_to(struct inputs *l, struct graph *g, const struct reuse_facts *f);   /* [n_seqs] i64 */
/* The same for any ops: t is [ne...] of the type. */
struct tensor *input_add(struct inputs *l, struct graph *g, const struct input_ops *ops,
                         enum dtype type, int n_dims, const int64_t *ne);

/* REUSE_OK if all fit, else the first one's reason. */
enum reuse_reason inputs_fit(const struct inputs *l, const struct reuse_facts *f);
/* Fill all that the bound graph reads. Allocates nothing. */
enum status inputs_set(const struct inputs *l, const struct input_data *d, struct err *e);

#endif
