/*
 * Build: the lazy graph. Op constructors append tensors (metadata only) to the graph's pool; expand walks
 * from a result to its sources and puts them into an order that can be executed.
 *
 *   1. nodes[] is a valid execution order: depth-first, post-order, sources from left to right (or right
 *      to left). Every tensor stands in nodes or leafs once.
 *   2. A leaf has no op and no PARAM flag: constants, weights, inputs. All else is a node.
 *   3. set[slot].uses counts how often nodes of this graph name the tensor as a source. It belongs to the
 *      graph: one tensor may be in several.
 *   4. Building never fails half-way: the first error is kept in g->err, later constructors return NULL
 *      and take NULL, and graph_status() is asked once at the end.
 *   5. Nothing here allocates after graph_init: a rebuild reuses the memory of the last build.
 */
#ifndef GGRUN_RUNTIME_GRAPH_H
#define GGRUN_RUNTIME_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/tensor.h"
#include "gguf/base/status.h"

/* ---- pool: tensors that live and die together ---- */

struct tensor_pool {
    struct tensor *t; /* [cap], owned */
    int cap, used;
    int wanted; /* tensors asked for since the last reset; > cap after an overflow */
};

enum status tensor_pool_init(struct tensor_pool *p, int cap, struct err *e);
void tensor_pool_release(struct tensor_pool *p);
void tensor_pool_reset(struct tensor_pool *p);
/* A zeroed tensor, or NULL when the pool is full (`wanted` still counts it). */
struct tensor *tensor_pool_new(struct tensor_pool *p);
size_t tensor_pool_bytes(const struct tensor_pool *p);

/* ---- graph ---- */

enum graph_order { ORDER_LEFT_TO_RIGHT, ORDER_RIGHT_TO_LEFT };

/* What a graph knows of a tensor, in one place: a look-up costs one line of the cache. */
struct graph_entry {
    struct tensor *t; /* NULL = free */
    int32_t uses;
    int32_t index; /* i of nodes[i], or -1 - i of leafs[i] */
};

struct graph {
    struct tensor_pool pool;
    struct tensor **nodes; /* [n_nodes] */
    struct tensor **leafs; /* [n_leafs] */
    int n_nodes, n_leafs;
    int cap; /* of nodes and of leafs */
    struct graph_entry *set; /* [n_slots] open-addressing set of visited tensors */
    int n_slots;             /* power of two */
    struct graph_step *stack; /* [cap_stack] of the walk: no recursion */
    int cap_stack;
    enum graph_order order;
    uint64_t uid; /* a new one per build; never 0, never used twice in a process */
    struct err err; /* the first failure of a constructor or walk */
};

/* Room for `cap` tensors made by constructors and as many foreign ones (weights, cache). */
enum status graph_init(struct graph *g, int cap, struct err *e);
void graph_release(struct graph *g);
void graph_reset(struct graph *g); /* start a new build: empty pool, empty graph, new uid, no error */
/* ST_OK or the first error (copied to *e). An overflowing pool names the count needed. */
enum status graph_status(const struct graph *g, struct err *e);
size_t graph_bytes(const struct graph *g); /* metadata memory, pool included */

/* Add t and everything it needs; t becomes the last node. expand marks ops TENSOR_COMPUTE, order does not:
 * what only order saw is placed but not computed. */
void graph_expand(struct graph *g, struct tensor *t);
void graph_order(struct graph *g, struct tensor *t);
/* Order all of outs[0..n), compute only outs[which]. */
void graph_select(struct graph *g, struct tensor *const *outs, int n, int which);

/* Slot of a tensor in this graph, or -1. O(1). */
int graph_slot(const struct graph *g, const struct tensor *t);
int graph_uses(const struct graph *g, const struct tensor *t); /* 0 when not in the graph */
/* Index in nodes[], or -1 for leafs and strangers. */
int graph_node_index(const struct graph *g, const struct tensor *t);
/* Node or leaf by name, or NULL. O(n). */
struct tensor *graph_find(const struct graph *g, const char *name);

/* ---- constructors: see backends/op.h for what each op computes ---- */

/* A leaf without data: an input (flags TENSOR_INPUT) or other tensor of the graph's own. */
struct tensor *graph_leaf(struct graph *g, enum dtype type, int n_dims, const int64_t *ne,
                          uint32_t flags);
/* Name a tensor (NULL is fine) and return it. */
struct tensor *named(struct tensor *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Mark t as output: its memory is never reused. */
struct tensor *output(struct tensor *t);

/* Sources of SSM_SCAN and of DELTA_NET. */
struct ssm_scan {
    struct tensor *x, *dt, *a, *b, *c;
    struct tensor *state, *from;
};
struct delta_net {
    struct tensor *q, *k, *v, *decay, *beta;
    struct tensor *state, *from;
    bool tiled;
};

/* Views. ne lists n_dims sizes. */
struct tensor *op_reshape(struct graph *g, struct tensor *x, int n_dims, const int64_t *ne);
/* nb: strides of dimensions 1..n_dims-1 in bytes; offs: bytes from x's start. */
struct tensor *op_view(struct graph *g, struct tensor *x, int n_dims, const int64_t *ne,
                       const size_t *nb, size_t offs);
/* axis[i]: where dimension i of x goes. */
struct tensor *op_permute(struct graph *g, struct tensor *x, const int axis[4]);
struct tensor *op_transpose(struct graph *g, struct tensor *x);

struct tensor *op_cont(struct graph *g, struct tensor *x);
struct tensor *op_concat(struct graph *g, struct tensor *a, struct tensor *b);
struct tensor *op_get_rows(struct graph *g, struct tensor *a, struct tensor *ids);
struct tensor *op_set_rows(struct graph *g, struct tensor *a, struct tensor *x, struct tensor *ids);
struct tensor *op_add(struct graph *g, struct tensor *a, struct tensor *b);
struct tensor *op_mul(struct graph *g, struct tensor *a, struct tensor *b);
struct tensor *op_div(struct graph *g, struct tensor *a, struct tensor *b);
struct tensor *op_scale(struct graph *g, struct tensor *x, float s, float bias);
struct tensor *op_softcap(struct graph *g, struct tensor *x, float cap);
struct tensor *op_unary(struct graph *g, struct tensor *x, enum unary_kind kind);
struct tensor *op_norm(struct graph *g, struct tensor *x, struct tensor *w, struct tensor *b, float eps);
struct tensor *op_rms_norm(struct graph *g, struct tensor *x, struct tensor *w, float eps);
struct tensor *op_rope(struct graph *g, struct tensor *x, struct tensor *pos, struct tensor *freqs,
                       const struct param_rope *r);
struct tensor *op_glu(struct graph *g, struct tensor *a, struct tensor *b, enum glu_kind kind);
struct tensor *op_mul_mat(struct graph *g, struct tensor *w, struct tensor *x);
struct tensor *op_clamp(struct graph *g, struct tensor *x, float lo, float hi);
struct tensor *op_soft_max(struct graph *g, struct tensor *x);
/* x: scores [n_kv, n_tok, n_head]. */
struct tensor *op_attn_soft_max(struct graph *g, struct tensor *x, struct tensor *mask,
                                struct tensor *sinks, const struct param_attn *p);
struct tensor *op_top_k(struct graph *g, struct tensor *x, const struct param_top_k *p);
struct tensor *op_argmax(struct graph *g, struct tensor *x);
struct tensor *op_mask_bits(struct graph *g, struct tensor *x, struct tensor *bits);
struct tensor *op_pick(struct graph *g, struct tensor *x, struct tensor *ids);
struct tensor *op_mul_mat_id(struct graph *g, struct tensor *w, struct tensor *x, struct tensor *ids);
struct tensor *op_add_id(struct graph *g, struct tensor *x, struct tensor *b, struct tensor *ids);
struct tensor *op_shares(struct graph *g, struct tensor *x, float floor);
struct tensor *op_mix(struct graph *g, struct tensor *x, struct tensor *w);
struct tensor *op_ssm_conv(struct graph *g, struct tensor *x, struct tensor *w, struct tensor *state,
                           struct tensor *from);
struct tensor *op_ssm_scan(struct graph *g, const struct ssm_scan *s);
struct tensor *op_delta_net(struct graph *g, const struct delta_net *d);
struct tensor *op_flash_attn(struct graph *g, struct tensor *q, struct tensor *k, struct tensor *v,
                             struct tensor *mask, struct tensor *sinks, struct tensor *cells,
                             const struct param_attn *p);

#endif
