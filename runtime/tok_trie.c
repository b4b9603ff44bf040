#include "runtime/tok_trie.h"

#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/tok.h"

/*
 * The pieces are sorted, so that those below a node are neighbours; then the trie is made level by
 * level. A quarter of a million pieces are sorted and made into a trie at every start: they are
 * compared by their first eight bytes where these say enough, the strings themselves being spread over
 * memory.
 */
enum { HEAD = 8, DIGIT_BITS = 16, N_DIGITS = 1 << DIGIT_BITS };

struct entry {
    uint64_t head; /* the piece's first eight bytes, the first on top; zeros behind its end */
    int32_t id;
    uint32_t n; /* bytes of the piece */
};

struct build {
    const struct vocab *v;
    struct entry *entry, *other;
    uint32_t *count; /* [N_DIGITS] */
    size_t n;
};

void trie_release(struct trie *t)
{
    mem_free(t->node);
    *t = (struct trie){0};
}

static void build_release(struct build *b)
{
    mem_free(b->entry);
    mem_free(b->other);
    mem_free(b->count);
}

static uint64_t head_of(struct gguf_str s)
{
    unsigned char b[HEAD] = {0};
    uint64_t h = 0;

    memcpy(b, s.p, s.n < HEAD ? s.n : HEAD);
    for (int i = 0; i < HEAD; i++)
        h = h << 8 | b[i];
    return h;
}

static enum status collect(struct build *b, struct err *e)
{
    const struct vocab *v = b->v;
    size_t cap = (size_t)v->n_tokens;

    b->entry = mem_array(cap, sizeof *b->entry);
    b->other = mem_array(cap, sizeof *b->other);
    b->count = mem_array(N_DIGITS, sizeof *b->count);
    if (!b->entry || !b->other || !b->count)
        return err_nomem(e, "vocabulary", 2 * cap * sizeof *b->entry);
    for (int32_t i = 0; i < v->n_tokens; i++) {
        enum token_type t = tok_type(v, i);
        struct gguf_str s = v->piece[i];

        if (t == TOK_CONTROL || t == TOK_UNKNOWN || t == TOK_BYTE || s.n == 0)
            continue;
        if (s.n > TRIE_PIECE_MAX)
            return err_set(e, ST_UNSUPPORTED, "token %d has %zu bytes; at most %d are supported", i,
                           s.n, TRIE_PIECE_MAX);
        b->entry[b->n++] = (struct entry){head_of(s), i, (uint32_t)s.n};
    }
    return ST_OK;
}

/* One pass of a radix sort: stable, by 16 bits of the heads. */
static void sort_digit(struct build *b, int shift)
{
    struct entry *to = b->other;
    uint32_t sum = 0;

    memset(b->count, 0, N_DIGITS * sizeof *b->count);
    for (size_t i = 0; i < b->n; i++)
        b->count[b->entry[i].head >> shift & (N_DIGITS - 1)]++;
    for (size_t i = 0; i < N_DIGITS; i++) {
        uint32_t c = b->count[i];

        b->count[i] = sum;
        sum += c;
    }
    for (size_t i = 0; i < b->n; i++)
        to[b->count[b->entry[i].head >> shift & (N_DIGITS - 1)]++] = b->entry[i];
    b->other = b->entry;
    b->entry = to;
}

/* Bytes, then lengths, then ids. */
static int compare(const struct vocab *v, const struct entry *a, const struct entry *b)
{
    int c = memcmp(v->piece[a->id].p, v->piece[b->id].p, a->n < b->n ? a->n : b->n);

    if (c || a->n != b->n)
        return c ? c : a->n < b->n ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

static void sift(const struct vocab *v, struct entry *x, size_t n, size_t i)
{
    struct entry top = x[i];

    for (size_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && compare(v, &x[c], &x[c + 1]) < 0)
            c++;
        if (compare(v, &top, &x[c]) >= 0)
            break;
        x[i] = x[c];
    }
    x[i] = top;
}

/* Heap sort of pieces with equal heads; files may hold many. */
static void sort_equal_heads(const struct vocab *v, struct entry *x, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sift(v, x, n, i);
    while (n > 1) {
        struct entry last = x[--n];

        x[n] = x[0];
        x[0] = last;
        sift(v, x, n, 0);
    }
}

static void sort(struct build *b)
{
    for (int shift = 0; shift < 64; shift += DIGIT_BITS)
        sort_digit(b, shift);
    for (size_t i = 0, end; i < b->n; i = end) {
        for (end = i + 1; end < b->n && b->entry[end].head == b->entry[i].head; end++)
            ;
        if (end - i > 1)
            sort_equal_heads(b->v, b->entry + i, end - i);
    }
}

static uint8_t byte_at(const struct build *b, size_t i, uint32_t depth)
{
    const struct entry *x = &b->entry[i];

    return (uint8_t)(depth < HEAD ? x->head >> (56 - 8 * depth)
                                  : (uint8_t)b->v->piece[x->id].p[depth]);
}

/* Nodes of the trie: each piece adds what it does not share with the one before it. */
static size_t count_nodes(const struct build *b)
{
    size_t n = 1;

    for (size_t i = 0; i < b->n; i++) {
        uint32_t same = 0, most = i ? b->entry[i - 1].n : 0;

        most = most < b->entry[i].n ? most : b->entry[i].n;
        while (same < most && byte_at(b, i, same) == byte_at(b, i - 1, same))
            same++;
        n += b->entry[i].n - same;
    }
    return n;
}

/*
 * Node `at`, whose `child` and `n_child` say so far which entries are below it: its token, and its
 * children likewise.
 */
static void expand(struct trie *t, const struct build *b, size_t at, uint32_t depth)
{
    struct trie_node *x = &t->node[at];
    uint32_t lo = x->child, hi = x->n_child;

    x->id = lo < hi && b->entry[lo].n == depth ? b->entry[lo].id : VOCAB_NONE;
    while (lo < hi && b->entry[lo].n == depth)
        lo++;
    x->child = (uint32_t)t->n;
    x->n_child = 0;
    while (lo < hi) {
        uint8_t byte = byte_at(b, lo, depth);
        uint32_t end = lo + 1;

        while (end < hi && byte_at(b, end, depth) == byte)
            end++;
        t->node[t->n++] = (struct trie_node){.child = lo, .n_child = end, .byte = byte};
        x->n_child++;
        lo = end;
    }
}

enum status trie_init(struct trie *t, const struct vocab *v, struct err *e)
{
    struct build b = {.v = v};
    enum status st = collect(&b, e);
    size_t n;

    *t = (struct trie){0};
    if (st)
        goto done;
    sort(&b);
    n = count_nodes(&b);
    if (n > UINT32_MAX) {
        st = err_set(e, ST_UNSUPPORTED, "the vocabulary's pieces are too long to be indexed");
        goto done;
    }
    t->node = mem_array(n, sizeof *t->node);
    if (!t->node) {
        st = err_nomem(e, "vocabulary", n * sizeof *t->node);
        goto done;
    }
    t->node[t->n++] = (struct trie_node){.n_child = (uint32_t)b.n};
    for (size_t i = 0, end = 1, depth = 0; i < t->n; i++) {
        if (i == end) { /* a level is done */
            end = t->n;
            depth++;
        }
        expand(t, &b, i, (uint32_t)depth);
    }
done:
    build_release(&b);
    return st;
}

uint32_t trie_step(const struct trie *t, uint32_t at, uint8_t byte)
{
    uint32_t lo = t->node[at].child, end = lo + t->node[at].n_child, hi = end;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (t->node[mid].byte < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < end && t->node[lo].byte == byte ? lo : TRIE_ROOT;
}
