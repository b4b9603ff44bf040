#include "runtime/tok_trie.h"

#include <stdlib.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/tok.h"

struct entry {     /* a piece to be sorted */
    uint64_t head; /* its first eight bytes, for most comparisons */
    const char *p;
    uint32_t n;
    int32_t id;
};

struct range { /* of sorted pieces below a node, equal in their first `depth` bytes */
    uint32_t lo, hi, depth;
};

struct build {
    struct entry *entry;
    size_t n;
    struct range *range; /* of each node */
    size_t cap_range;
};

void trie_release(struct trie *t)
{
    mem_free(t->node);
    *t = (struct trie){0};
}

static uint64_t head_of(struct gguf_str s)
{
    unsigned char b[8] = {0};
    uint64_t h = 0;

    memcpy(b, s.p, s.n < 8 ? s.n : 8);
    for (int i = 0; i < 8; i++)
        h = h << 8 | b[i];
    return h;
}

static int by_piece(const void *pa, const void *pb)
{
    const struct entry *a = pa, *b = pb;
    int c;

    if (a->head != b->head)
        return a->head < b->head ? -1 : 1;
    c = memcmp(a->p, b->p, a->n < b->n ? a->n : b->n);
    if (c || a->n != b->n)
        return c ? c : a->n < b->n ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

static enum status collect(struct build *b, const struct vocab *v, struct err *e)
{
    b->entry = mem_array((size_t)v->n_tokens, sizeof *b->entry);
    if (!b->entry)
        return err_nomem(e, "vocabulary", (size_t)v->n_tokens * sizeof *b->entry);
    for (int32_t i = 0; i < v->n_tokens; i++) {
        enum token_type t = tok_type(v, i);
        struct gguf_str s = v->piece[i];

        if (t == TOK_CONTROL || t == TOK_UNKNOWN || t == TOK_BYTE || s.n == 0)
            continue;
        if (s.n > TRIE_PIECE_MAX)
            return err_set(e, ST_UNSUPPORTED, "token %d has %zu bytes; at most %d are supported", i,
                           s.n, TRIE_PIECE_MAX);
        b->entry[b->n++] = (struct entry){head_of(s), s.p, (uint32_t)s.n, i};
    }
    qsort(b->entry, b->n, sizeof *b->entry, by_piece);
    return ST_OK;
}

static bool add_node(struct trie *t, struct build *b, uint8_t byte, struct range r)
{
    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 1024;
        void *p = mem_grow(t->node, cap, sizeof *t->node);

        if (p)
            t->node = p;
        else
            return false;
        p = mem_grow(b->range, cap, sizeof *b->range);
        if (!p)
            return false;
        b->range = p;
        t->cap = cap;
    }
    t->node[t->n] = (struct trie_node){.id = VOCAB_NONE, .byte = byte};
    b->range[t->n++] = r;
    return true;
}

/* The node's token and its children. */
static bool expand(struct trie *t, struct build *b, size_t at)
{
    struct range r = b->range[at];
    const struct entry *x = b->entry;

    if (r.lo < r.hi && x[r.lo].n == r.depth)
        t->node[at].id = x[r.lo].id;
    while (r.lo < r.hi && x[r.lo].n == r.depth)
        r.lo++;
    t->node[at].child = (uint32_t)t->n;
    while (r.lo < r.hi) {
        uint8_t byte = (uint8_t)x[r.lo].p[r.depth];
        uint32_t end = r.lo + 1;

        while (end < r.hi && (uint8_t)x[end].p[r.depth] == byte)
            end++;
        if (!add_node(t, b, byte, (struct range){r.lo, end, r.depth + 1}))
            return false;
        t->node[at].n_child++;
        r.lo = end;
    }
    return true;
}

enum status trie_init(struct trie *t, const struct vocab *v, struct err *e)
{
    struct build b = {0};
    enum status st;

    *t = (struct trie){0};
    st = collect(&b, v, e);
    if (!st && !add_node(t, &b, 0, (struct range){0, (uint32_t)b.n, 0}))
        st = err_nomem(e, "vocabulary", sizeof *t->node);
    for (size_t i = 0; !st && i < t->n; i++) {
        if (!expand(t, &b, i))
            st = err_nomem(e, "vocabulary", 2 * t->cap * sizeof *t->node);
        else if (t->n > UINT32_MAX)
            st = err_set(e, ST_UNSUPPORTED, "the vocabulary's pieces are too long to be indexed");
    }
    mem_free(b.entry);
    mem_free(b.range);
    return st;
}

uint32_t trie_step(const struct trie *t, uint32_t at, uint8_t byte)
{
    uint32_t lo = t->node[at].child, hi = lo + t->node[at].n_child;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (t->node[mid].byte < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < t->node[at].child + t->node[at].n_child && t->node[lo].byte == byte ? lo
                                                                                    : TRIE_ROOT;
}
