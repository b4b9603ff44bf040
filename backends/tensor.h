/*
 * Tensor: one node of the lazy graph, and the vocabulary that backends and runtime share.
 *
 * A tensor describes a result: shape, strides, op, sources. Its bytes appear when a plan is bound
 * (`data`) and the graph is replayed. Building allocates metadata only.
 *
 * Dimensions are innermost first: ne[0] elements lie next to each other, ne[1] rows, and so on.
 *   nb[0] = bytes of one block of the type     (of one element for plain types)
 *   nb[1] = bytes from row to row              (may be larger than the row: padding)
 *   nb[i] = bytes from one slice of dimension i to the next
 */
#ifndef GGRUN_BACKENDS_TENSOR_H
#define GGRUN_BACKENDS_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/op.h"
#include "gguf/dtype.h"

#define TENSOR_DIMS      4
#define TENSOR_SRC       10
#define TENSOR_NAME      64 /* bytes, NUL included */
#define TENSOR_N_PARAMS  16 /* 32-bit words: 64 bytes of op parameters */

enum tensor_flag {
    TENSOR_INPUT = 1,    /* written from outside before a run; placed before everything else */
    TENSOR_OUTPUT = 2,   /* read after the run; its memory is never reused */
    TENSOR_PARAM = 4,    /* a weight that counts as a node although it has no op */
    TENSOR_COMPUTE = 8,  /* really computed (set by graph_expand, not by graph_order) */
    TENSOR_KEEP = 16,    /* an input that is not rewritten every step: its memory is never reused */
};

struct buffer; /* backends/backend.h */

struct tensor {
    enum dtype type;
    enum op op;
    int64_t ne[TENSOR_DIMS];
    size_t nb[TENSOR_DIMS];
    int32_t params[TENSOR_N_PARAMS]; /* see the op's param_* struct in op.h */
    uint32_t flags;                  /* enum tensor_flag */
    struct tensor *src[TENSOR_SRC];  /* NULL where absent; holes are allowed */
    struct tensor *view_src;         /* owner of the bytes if this is a view (never itself a view) */
    size_t view_offs;                /* bytes into view_src's data */
    void *data;                      /* NULL until bound; may not be a host address */
    struct buffer *buffer;           /* where the data lives; NULL until bound */
    char name[TENSOR_NAME];
};

/* Set type, ne and contiguous strides; ne beyond n_dims become 1. False if the size overflows, a
 * dimension is < 0 or a row is no whole number of blocks. */
bool tensor_set_shape(struct tensor *t, enum dtype type, int n_dims, const int64_t *ne);

/* name = printf-style text, cut to fit. */
void tensor_set_name(struct tensor *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static inline int64_t tensor_n(const struct tensor *t)
{
    return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
}
static inline int64_t tensor_rows(const struct tensor *t)
{
    return t->ne[1] * t->ne[2] * t->ne[3];
}
/* Bytes from the first to one past the last element, padding inside included; 0 for an empty tensor. */
size_t tensor_bytes(const struct tensor *t);
/* Bytes of a row without padding. */
static inline size_t tensor_row_bytes(const struct tensor *t)
{
    return dtype_row_bytes(t->type, t->ne[0]);
}

bool tensor_same_shape(const struct tensor *a, const struct tensor *b);
/* Same type, shape and strides: one may be written over the other in place. */
bool tensor_same_layout(const struct tensor *a, const struct tensor *b);
bool tensor_contiguous(const struct tensor *t);      /* no gaps, usual order */
bool tensor_rows_contiguous(const struct tensor *t); /* nb[0] is one block; outer strides are free */
/* b repeats to a: every dimension of a is a multiple of b's. */
bool tensor_can_repeat(const struct tensor *b, const struct tensor *a);
static inline bool tensor_is_view(const struct tensor *t)
{
    return t->view_src != NULL;
}
/* The tensor that owns the bytes: view_src, or t itself. */
static inline const struct tensor *tensor_owner(const struct tensor *t)
{
    return t->view_src ? t->view_src : t;
}
/* Ops that compute nothing: RESHAPE, VIEW, PERMUTE, TRANSPOSE (and NONE). */
static inline bool tensor_is_noop(const struct tensor *t)
{
    return op_info(t->op)->flags & OPF_VIEW;
}

#endif
