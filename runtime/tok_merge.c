#include "runtime/tok_merge.h"

#include <assert.h>

#include "gguf/base/mem.h"

#define STEPS 4096 /* between two looks at m->cancel */

void merge_release(struct merge *m)
{
    mem_free(m->sym);
    mem_free(m->heap);
    *m = (struct merge){0};
}

void merge_clear(struct merge *m)
{
    m->n = m->n_heap = 0;
}

bool merge_reserve(struct merge *m, size_t n)
{
    size_t cap = m->cap;
    void *p;

    if (n <= cap)
        return true;
    cap = n < 2 * cap ? 2 * cap : n + 16;
    p = mem_grow(m->sym, cap, sizeof *m->sym);
    if (!p)
        return false;
    m->sym = p;
    m->cap = cap;
    return true;
}

void merge_add(struct merge *m, size_t len)
{
    struct sym *s = &m->sym[m->n];
    bool first = m->n == 0;

    assert(len > 0 && m->n < m->cap);
    *s = (struct sym){
        .offs = first ? 0 : s[-1].offs + s[-1].len,
        .len = (uint32_t)len,
        .prev = first ? MERGE_NONE : (uint32_t)(m->n - 1),
        .next = MERGE_NONE,
    };
    if (!first)
        s[-1].next = (uint32_t)m->n;
    m->n++;
}

static bool before(const struct pair *a, const struct pair *b)
{
    return ((uint64_t)a->key << 32 | a->left) < ((uint64_t)b->key << 32 | b->left);
}

/* Four children a node: half the levels of a binary heap, and siblings share a cache line. */
enum { WIDTH = 4 };

static void sift_down(struct pair *h, size_t n, size_t i)
{
    struct pair x = h[i];

    for (size_t c; (c = WIDTH * i + 1) < n; i = c) {
        size_t end = c + WIDTH < n ? c + WIDTH : n;

        for (size_t k = c + 1; k < end; k++)
            if (before(&h[k], &h[c]))
                c = k;
        if (!before(&h[c], &x))
            break;
        h[i] = h[c];
    }
    h[i] = x;
}

static void sift_up(struct pair *h, size_t i)
{
    struct pair x = h[i];

    while (i > 0 && before(&x, &h[(i - 1) / WIDTH])) {
        h[i] = h[(i - 1) / WIDTH];
        i = (i - 1) / WIDTH;
    }
    h[i] = x;
}

/* Append the pair (left, its successor) if it has a key, without restoring heap order. */
static bool append_pair(struct merge *m, const char *text, uint32_t left, merge_key *key,
                        const void *ctx, bool *added)
{
    const struct sym *l = &m->sym[left], *r;
    uint32_t k;

    *added = false;
    if (l->next == MERGE_NONE)
        return true;
    r = &m->sym[l->next];
    k = key(ctx, text + l->offs, l->len, r->len);
    if (k == MERGE_NONE)
        return true;
    if (m->n_heap == m->cap_heap) {
        size_t cap = m->cap_heap ? 2 * m->cap_heap : 64;
        void *p = mem_grow(m->heap, cap, sizeof *m->heap);

        if (!p)
            return false;
        m->heap = p;
        m->cap_heap = cap;
    }
    m->heap[m->n_heap++] =
        (struct pair){.key = k, .left = left, .right = l->next, .len = l->len + r->len};
    *added = true;
    return true;
}

static bool push_pair(struct merge *m, const char *text, uint32_t left, merge_key *key,
                      const void *ctx)
{
    bool added;

    if (!append_pair(m, text, left, key, ctx, &added))
        return false;
    if (added)
        sift_up(m->heap, m->n_heap - 1);
    return true;
}

static struct pair pop_pair(struct merge *m)
{
    struct pair top = m->heap[0];

    m->heap[0] = m->heap[--m->n_heap];
    if (m->n_heap)
        sift_down(m->heap, m->n_heap, 0);
    return top;
}

static bool cancelled(const struct merge *m, size_t step)
{
    return step % STEPS == 0 && m->cancel && atomic_load_explicit(m->cancel, memory_order_relaxed);
}

bool merge_run(struct merge *m, const char *text, merge_key *key, const void *ctx)
{
    bool added;

    m->n_heap = 0;
    for (size_t i = 0; i < m->n; i++)
        if (cancelled(m, i) || !append_pair(m, text, (uint32_t)i, key, ctx, &added))
            return false;
    for (size_t i = (m->n_heap + WIDTH - 2) / WIDTH; i-- > 0;)
        sift_down(m->heap, m->n_heap, i);

    for (size_t step = 0; m->n_heap; step++) {
        struct pair p = pop_pair(m);
        struct sym *l = &m->sym[p.left], *r = &m->sym[p.right];

        if (cancelled(m, step))
            return false;
        if (l->len == 0 || r->len == 0 || l->len + r->len != p.len)
            continue;
        l->len = p.len;
        l->next = r->next;
        r->len = 0;
        if (r->next != MERGE_NONE)
            m->sym[r->next].prev = p.left;
        if (l->prev != MERGE_NONE && !push_pair(m, text, l->prev, key, ctx))
            return false;
        if (!push_pair(m, text, p.left, key, ctx))
            return false;
    }
    return true;
}
