/*
 * KV cache: the keys and values of past tokens, per layer.
 *
 *     k[il] [n_embd_k, n_cells * n_streams]    v[il] [n_embd_v, n_cells * n_streams]
 *     row = stream * n_cells + cell
 *
 * With latent attention v[il] is empty: values are the first elements of the keys.
 *
 * A cell holds one token: its position and the sequences that it belongs to. Cells are more than n_ctx:
 * attention sees a multiple of KV_PAD of them, so that a graph serves KV_PAD tokens before it changes.
 * A layer with a window needs the last n_window positions only, and those of a micro-batch at once. Where
 * that is less than n_cells its cells are a ring: position p is in cell p % n_ring. Attention takes them
 * in the order of their positions, from a multiple of n_chunk on, and as many cells lie between the newest
 * and the oldest that are seen: so what it sums together is the same as without a ring, and so are the bits.
 * A ring is for one sequence.
 *
 * Several sequences have a stream each: their own n_ctx positions, cells and rings, as if each had a cache
 * of its own; or all share one stream (`unified`), where the mask tells them apart and windowed layers keep
 * all positions.
 *
 * Cells that nobody wrote are zero: a masked cell is multiplied by a weight of 0 and must be finite.
 */
#ifndef GGRUN_RUNTIME_KVCACHE_H
#define GGRUN_RUNTIME_KVCACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "gguf/base/status.h"
#include "runtime/batch.h"
#include "runtime/hparams.h"
#include "runtime/store.h"

#define KV_PAD 256 /* cells */

struct kv_cell {
    int32_t pos;   /* -1: free */
    uint64_t seqs; /* bit s: belongs to sequence s; 0 when free */
};

/* The cells of one sequence or, in a unified cache, of all. */
struct kv_stream {
    struct kv_cell *cells; /* [n_cells]; NULL when dry */
    struct kv_cell *ring;  /* [n_ring]; NULL without a ring, and when dry */
    uint32_t n_occupied;   /* cells that are not free */
    uint32_t n_used;       /* one more than the last cell that is not free */
    uint32_t n_written;    /* largest n_used so far: cells from here on were never written */
    uint32_t next;         /* while a micro-batch is placed: no cell before it is free */
};

struct kvcache {
    uint32_t n_layer;
    uint32_t n_streams;     /* 1, or one per sequence: stream i is then sequence i's */
    uint32_t n_ctx;         /* tokens that a stream may hold */
    uint32_t n_cells;       /* of a stream: n_ctx rounded up to KV_PAD */
    uint32_t n_window;      /* positions that windowed layers see; 0: no such layers */
    uint32_t n_chunk;       /* places are counted from a multiple of it on in a ring */
    uint32_t n_ring;        /* cells of a windowed layer: n_cells, or fewer when there is a ring */
    struct tensor *k, *v;   /* [n_layer] owned; bound */
    struct kv_stream stream[SEQ_MAX]; /* [n_streams] */
    struct kv_cell *mem;    /* their cells and rings */
    int64_t *rows;          /* [n_rows_max] of the micro-batch placed last */
    int64_t *ring_rows;     /* [n_rows_max] the same in the ring; NULL without */
    uint32_t n_rows_max;    /* tokens of the largest micro-batch */
    struct store store;     /* their memory */
    size_t n_bytes;
};

struct kv_options {
    const struct device *dev; /* where it lives */
    const struct device *const *layer_dev; /* [n_layer] where each layer's part lives; NULL: all on dev */
    uint32_t n_ctx;           /* of a stream; 1 .. INT32_MAX - KV_PAD */
    uint32_t n_seqs;          /* 0: 1 */
    bool unified;             /* one stream for all sequences */
    uint32_t n_ubatch;
    enum dtype type_k, type_v;
    uint32_t n_chunk;  /* a multiple of the positions that attention sums together; of KV_PAD too */
    bool keep_all; /* windowed layers keep all positions too (--swa-full) */
    bool dry;      /* describe the memory only */
};

/* ST_NOMEM names device, bytes needed and free. */
enum status kvcache_init(struct kvcache *kv, const struct hparams *hp, const struct kv_options *o,
                         struct err *e);
void kvcache_release(struct kvcache *kv);

/*
 * Give each token of u a free cell of its sequence's stream: kv->rows[i]. ST_LIMIT with both numbers, and
 * nothing changed, when fewer are left than are needed.
 */
enum status kvcache_place(struct kvcache *kv, const struct ubatch *u, struct err *e);
/* Free what sequence `seq` (-1: all) holds at positions >= pos. */
void kvcache_truncate(struct kvcache *kv, int32_t seq, int32_t pos);
/*
 * Sequence `to` forgets what it holds and has what `from` has: the same cells in a unified cache, else copies
 * of the rows, through the host.
 */
enum status kvcache_copy(struct kvcache *kv, int32_t from, int32_t to, struct err *e);
/* Zero the free cells: after values that were not finite, which a mask cannot hide. */
enum status kvcache_scrub(struct kvcache *kv, struct err *e);
/* Does the cache still hold all that a token of seq at pos, the next one of it, may see? */
bool kvcache_reaches(const struct kvcache *kv, int32_t seq, int32_t pos);
/* Cells of a stream that attention has to see now: the largest n_used rounded up to KV_PAD, at least KV_PAD. */
uint32_t kvcache_n_kv(const struct kvcache *kv);
/* The stream of a sequence. */
static inline uint32_t kvcache_stream(const struct kvcache *kv, int32_t seq)
{
    return kv->n_streams > 1 ? (uint32_t)seq : 0;
}
/* Positions that are left for a sequence. */
static inline uint32_t kvcache_room(const struct kvcache *kv, int32_t seq)
{
    return kv->n_ctx - kv->stream[kvcache_stream(kv, seq)].n_occupied;
}
/* Of n_kv cells those of a windowed layer. */
static inline uint32_t kvcache_n_kv_window(const struct kvcache *kv, uint32_t n_kv)
{
    return n_kv < kv->n_ring ? n_kv : kv->n_ring;
}
/* May a token of `seq` at `pos` see the cell? */
static inline bool kv_cell_visible(const struct kv_cell *c, int32_t seq, int32_t pos)
{
    return c->pos >= 0 && c->pos <= pos && (c->seqs >> seq & 1);
}
/* The same in a layer with a window: the last n_window positions up to pos. */
static inline bool kv_cell_in_window(const struct kv_cell *c, int32_t seq, int32_t pos,
                                     uint32_t n_window)
{
    return kv_cell_visible(c, seq, pos) && (uint32_t)(pos - c->pos) < n_window;
}

#endif
