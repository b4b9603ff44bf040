/*
 * Merging neighbours, best pair first: the inner loop of both BPE tokenizers. O(n log n).
 *
 * A text is cut into symbols, a doubly linked list over one array. Every adjacent pair that the
 * caller gives a key waits in a heap; the pair with the smallest key (the leftmost of equals) is
 * merged, and the two pairs that arise are looked up.
 *
 * Invariants:
 *  1. A symbol never changes its start, it only grows to the right by absorbing its successor,
 * whose length becomes 0. So a waiting pair is out of date iff one of the two is empty or their
 * lengths do not add up to what they were; such a pair is dropped when it comes up.
 *  2. Live symbols lie in the array in text order and cover the text without gaps.
 */
#ifndef GGRUN_RUNTIME_TOK_MERGE_H
#define GGRUN_RUNTIME_TOK_MERGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MERGE_NONE UINT32_MAX /* this pair is not merged; also "no symbol" */

struct sym {
    uint32_t offs, len; /* bytes in the text; len 0 = absorbed */
    uint32_t prev, next;
};

struct pair { /* a candidate in the heap */
    uint32_t key, left;
    uint32_t right, len;
};

/* Memory is kept from text to text; zero is a valid start. */
struct merge {
    struct sym *sym;
    size_t n, cap;
    struct pair *heap;
    size_t n_heap, cap_heap;
    const atomic_bool *cancel; /* merge_run stops soon when this is set; may be NULL */
};

void merge_release(struct merge *m);
void merge_clear(struct merge *m);             /* no symbols; memory kept */
bool merge_reserve(struct merge *m, size_t n); /* room for n symbols in all; false: out of memory */
/* Append a symbol of len bytes (1 or more) behind the last one; room was reserved. */
void merge_add(struct merge *m, size_t len);

/* Rank of the pair text p[0..n_left) and p[n_left..n_left+n_right): small merges first. */
typedef uint32_t merge_key(const void *ctx, const char *p, size_t n_left, size_t n_right);

/*
 * Merge the symbols of `text` as far as keys go. Afterwards walk the rest from symbol 0 by `next`
 * until MERGE_NONE. False: out of memory, or cancelled.
 */
bool merge_run(struct merge *m, const char *text, merge_key *key, const void *ctx);

#endif
