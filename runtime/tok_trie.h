/*
 * A trie of the pieces that text may become, for kinds that look for all pieces at a place. Built
 * once from the sorted pieces; children of a node lie side by side.
 */
#ifndef GGRUN_RUNTIME_TOK_TRIE_H
#define GGRUN_RUNTIME_TOK_TRIE_H

#include <stddef.h>
#include <stdint.h>

#include "gguf/base/status.h"
#include "runtime/vocab.h"

enum {
    TRIE_ROOT = 0,
    TRIE_PIECE_MAX = 4096
}; /* no child is the root: as a result it means "none" */

struct trie_node {
    uint32_t child, n_child; /* the first, and how many, in the order of their bytes */
    int32_t id;              /* token that ends here, or VOCAB_NONE */
    uint8_t byte;
};

struct trie {
    struct trie_node *node;
    size_t n;
};

/*
 * All pieces of `v` but control, unknown and byte tokens; of equal ones the first. ST_UNSUPPORTED: a
 * piece of more than TRIE_PIECE_MAX bytes, or 2^32 nodes.
 */
enum status trie_init(struct trie *t, const struct vocab *v, struct err *e);
void trie_release(struct trie *t); /* zero is fine */

/* The child of a node by a byte, or TRIE_ROOT. */
uint32_t trie_step(const struct trie *t, uint32_t at, uint8_t byte);

#endif
