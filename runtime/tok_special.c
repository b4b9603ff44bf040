#include "runtime/tok_special.h"

#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/tok.h"

enum { PIECE_MAX = 4096 };

struct node {
    int32_t id;           /* token that ends here, or VOCAB_NONE */
    uint32_t child, next; /* first child, next sibling; 0 = none */
    uint8_t byte;
};

struct special {
    const struct vocab *v;
    struct node *node; /* [0] is unused, so that 0 can mean none */
    size_t n, cap;
    uint32_t root[256]; /* node of each first byte */
};

void special_free(struct special *s)
{
    if (!s)
        return;
    mem_free(s->node);
    mem_free(s);
}

static uint32_t add_node(struct special *s, uint8_t byte, uint32_t next)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 64;
        void *p = cap <= UINT32_MAX ? mem_grow(s->node, cap, sizeof *s->node) : NULL;

        if (!p)
            return 0;
        s->node = p;
        s->cap = cap;
    }
    s->node[s->n] = (struct node){.id = VOCAB_NONE, .next = next, .byte = byte};
    return (uint32_t)s->n++;
}

static uint32_t child_of(const struct special *s, uint32_t at, uint8_t byte)
{
    uint32_t c = s->node[at].child;

    while (c && s->node[c].byte != byte)
        c = s->node[c].next;
    return c;
}

static bool insert(struct special *s, struct gguf_str piece, int32_t id)
{
    const unsigned char *p = (const unsigned char *)piece.p;
    uint32_t at = s->root[p[0]];

    if (!at) {
        at = add_node(s, p[0], 0);
        if (!at)
            return false;
        s->root[p[0]] = at;
    }
    for (size_t i = 1; i < piece.n; i++) {
        uint32_t c = child_of(s, at, p[i]);

        if (!c) {
            c = add_node(s, p[i], s->node[at].child);
            if (!c)
                return false;
            s->node[at].child = c;
        }
        at = c;
    }
    if (s->node[at].id == VOCAB_NONE)
        s->node[at].id = id;
    return true;
}

enum status special_new(struct special **out, const struct vocab *v, struct err *e)
{
    struct special *s = mem_zalloc(sizeof *s);
    enum status st = ST_OK;

    *out = NULL;
    if (!s)
        return err_nomem(e, "special tokens", sizeof *s);
    s->v = v;
    s->n = 1;
    for (int32_t i = 0; i < v->n_tokens; i++) {
        if (!tok_stands_alone(v, i) || v->piece[i].n == 0)
            continue;
        if (v->piece[i].n > PIECE_MAX) {
            st = err_set(e, ST_UNSUPPORTED,
                         "special token %d has %zu bytes; at most %d are supported", i,
                         v->piece[i].n, PIECE_MAX);
            goto fail;
        }
        if (!s->node && !(s->node = mem_array(s->cap = 64, sizeof *s->node)))
            goto nomem;
        if (!insert(s, v->piece[i], i))
            goto nomem;
    }
    *out = s;
    return ST_OK;
nomem:
    st = err_nomem(e, "special tokens", 2 * s->cap * sizeof *s->node);
fail:
    special_free(s);
    return st;
}

/* The text that tokens are looked for in, and which may be taken where. */
struct search {
    const struct special *s;
    const char *text;
    size_t n;
    bool control;
    const struct text_spans *plain; /* or NULL */
};

/* How many bytes from `pos` on are outside of all plain ranges. */
static size_t marks_allowed(const struct search *q, size_t pos)
{
    size_t lo = 0, hi = q->plain ? q->plain->n : 0;

    while (lo < hi) { /* the first range that ends behind pos */
        size_t mid = lo + (hi - lo) / 2;
        if (q->plain->span[mid].to > pos)
            hi = mid;
        else
            lo = mid + 1;
    }
    if (!q->plain || lo == q->plain->n)
        return q->n - pos;
    return q->plain->span[lo].from > pos ? q->plain->span[lo].from - pos : 0;
}

/* May token t be taken, of whose bytes all are in the template's own text (`own`) or not? */
static bool may_take(const struct search *q, int32_t t, bool own)
{
    bool text_token = tok_type(q->s->v, t) == TOK_USER_DEFINED;

    if (q->control && own)
        return true;
    return text_token && (own || !(q->s->v->info[t] & TOKF_LIKE_CONTROL));
}

/* The longest token at `pos` of at most `max` bytes; 0 if there is none. */
static uint32_t longest(const struct search *q, size_t pos, size_t max, int32_t *id)
{
    const struct special *s = q->s;
    const unsigned char *u = (const unsigned char *)q->text + pos;
    uint32_t at = max ? s->root[u[0]] : 0, len = 0;
    size_t own = 0;

    if (at)
        own = marks_allowed(q, pos);
    for (size_t i = 1; at; i++) {
        int32_t t = s->node[at].id;

        if (t != VOCAB_NONE && may_take(q, t, i <= own)) {
            len = (uint32_t)i;
            *id = t;
        }
        at = i < max ? child_of(s, at, u[i]) : 0;
    }
    return len;
}

/* One candidate per position, the longest; `end` stays 0 until it is taken. */
static bool candidates(const struct search *q, struct special_hits *out)
{
    size_t cap = 0;

    for (size_t i = 0; i < q->n; i++) {
        struct special_hit h = {.pos = (uint32_t)i};

        if (!q->s->root[(unsigned char)q->text[i]])
            continue;
        h.len = longest(q, i, q->n - i, &h.id);
        if (!h.len)
            continue;
        if (out->n == cap) {
            void *p = mem_grow(out->hit, cap = cap ? 2 * cap : 16, sizeof *out->hit);

            if (!p)
                return false;
            out->hit = p;
        }
        out->hit[out->n++] = h;
    }
    return true;
}

/* Heap of indexes into hit[], the next one to settle on top. */
static bool goes_before(const struct special_hit *h, uint32_t a, uint32_t b)
{
    if (h[a].len != h[b].len)
        return h[a].len > h[b].len;
    if (h[a].id != h[b].id)
        return h[a].id < h[b].id;
    return h[a].pos < h[b].pos;
}

static void sift(const struct special_hit *h, uint32_t *heap, size_t n, size_t i)
{
    uint32_t x = heap[i];

    for (size_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && goes_before(h, heap[c + 1], heap[c]))
            c++;
        if (!goes_before(h, heap[c], x))
            break;
        heap[i] = heap[c];
    }
    heap[i] = x;
}

/*
 * Settle the top candidate: take it, shorten it to what is still free at its place, or drop it (len
 * 0). True when it is done with. Only bytes not yet taken are looked at, each at most once per
 * candidate.
 */
static bool settle(const struct search *q, struct special_hit *h, uint8_t *taken)
{
    const uint8_t *wall = memchr(taken + h->pos, 1, h->len);

    if (wall) {
        h->len = longest(q, h->pos, (size_t)(wall - (taken + h->pos)), &h->id);
        return h->len == 0;
    }
    h->end = h->pos + h->len;
    if (q->s->v->info[h->id] & TOKF_RSTRIP)
        while (h->end < q->n && !taken[h->end] && tok_is_space(q->text[h->end]))
            h->end++;
    memset(taken + h->pos, 1, h->end - h->pos);
    return true;
}

enum status special_find(const struct special *s, const char *text, size_t n, bool control,
                         const struct text_spans *plain, struct special_hits *out, struct err *e)
{
    const struct search q = {s, text, n, control, plain};
    struct special_hits c = {0};
    uint32_t *heap = NULL;
    uint8_t *taken = NULL;
    size_t n_heap, kept = 0;

    *out = c;
    if (!candidates(&q, &c))
        goto nomem;
    if (c.n == 0)
        return ST_OK;
    heap = mem_array(c.n, sizeof *heap);
    taken = mem_zalloc(n);
    if (!heap || !taken)
        goto nomem;

    n_heap = c.n;
    for (size_t i = 0; i < c.n; i++)
        heap[i] = (uint32_t)i;
    for (size_t i = n_heap / 2; i-- > 0;)
        sift(c.hit, heap, n_heap, i);
    while (n_heap) {
        if (settle(&q, &c.hit[heap[0]], taken))
            heap[0] = heap[--n_heap];
        if (n_heap)
            sift(c.hit, heap, n_heap, 0);
    }

    for (size_t i = 0; i < c.n; i++)
        if (c.hit[i].end)
            c.hit[kept++] = c.hit[i];
    c.n = kept;
    mem_free(heap);
    mem_free(taken);
    *out = c;
    return ST_OK;
nomem:
    mem_free(heap);
    mem_free(taken);
    special_hits_release(&c);
    return err_nomem(e, "special tokens of a text", n);
}

void special_hits_release(struct special_hits *h)
{
    mem_free(h->hit);
    *h = (struct special_hits){0};
}
