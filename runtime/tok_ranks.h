/*
 * Ranks of merges: the list `tokenizer.ggml.merges`, indexed by pairs of pieces. Strings stay in the
 * file's mapping.
 */
#ifndef GGRUN_RUNTIME_TOK_RANKS_H
#define GGRUN_RUNTIME_TOK_RANKS_H

#include <stddef.h>
#include <stdint.h>

#include "gguf/base/status.h"
#include "gguf/reader.h"
#include "runtime/tok.h"

struct rule {      /* one merge: "left right" in the file */
    const char *p; /* the line */
    uint32_t n_left, n_right;
};

struct rule_slot { /* open addressing, power of two, never full */
    uint32_t tag;  /* high half of the pair's hash */
    uint32_t ref;  /* rank + 1; 0 = free */
};

struct ranks {
    struct rule *rule; /* [n_rules] by rank */
    size_t n_rules;
    struct rule_slot *slot;
    size_t slot_mask;
    size_t max_pair; /* bytes of the longest merge result */
};

/*
 * Read the merges of `g`; pieces of `v` are there. Errors: ST_MODEL for a missing list, a line that is not two
 * pieces, a piece that is no token. An empty list is none.
 */
enum status ranks_load(struct ranks *t, const struct vocab *v, const struct gguf *g, struct err *e);
void ranks_release(struct ranks *t); /* zero is fine */

/* A merge_key over a struct ranks: the rank of two neighbours, MERGE_NONE if they are not merged. */
uint32_t ranks_key(const void *ctx, const char *p, size_t n_left, size_t n_right);

#endif
