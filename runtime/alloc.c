/*
 * The allocator: a walk over the plan in execution order that counts down who still needs each
 * tensor.
 *
 *     waiting --placed--> live --last reader done--> free
 *                          |
 *                          `--taken over by its last reader (in place): the reader is live in its
 * stead
 *
 * Invariants:
 *   1. children[t] is the number of sources that still name t, views[t] that of views on t that are
 * still needed. A view is needed while it has children, or for ever if it never had any.
 *   2. A live tensor whose children and views are both 0 is freed at once, after the node that read
 * it. What never had children is a result and stays; so do outputs, what is kept, and constants.
 *   3. Inputs, constants and whatever else must be there before the run are placed before
 * everything else. An input that is rewritten before every run is freed after its last reader; what
 * exists once per pipeline slot is placed as early and never freed.
 *   4. In place: a node takes over the bytes of a source if its op allows it, the layouts agree,
 * this is the only thing left that needs them, and they are ours, not an output and in the same
 * buffer. If the source is a view, it must be the only one of its owner and start where the owner
 * starts. What the owner had beyond the node's size is free at once.
 *   5. A chunk's free blocks are sorted, disjoint and never touch each other. The block that ends
 * at the chunk's limit is its last block; `high` is the end of the highest byte ever given away.
 *
 * The walk gives addresses by best fit among the inner free blocks, then from the last block of the
 * chunk with the best reuse factor, then from a new chunk. Best fit does not see the future: a
 * long-lived tensor in the wrong place splits the memory for all that follows. But the walk has
 * found out when each run of bytes is born and dies, so when its result is not close to the least
 * possible (the largest sum of what lives at one time), pack.c packs the same runs again with their
 * lifetimes known, and the better of the two is the plan.
 */
#include "runtime/alloc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/base/log.h"
#include "gguf/base/mem.h"
#include "runtime/pack.h"

#define NEAR                                                                                       \
    64 /* the walk's result stands when it is within least / NEAR of the least possible   \
                 */

struct block {
    size_t begin, end; /* bytes from the chunk's start */
};

struct chunk {
    struct block *free; /* [n] */
    int n, cap;
    size_t high;
};

struct space {           /* a buffer while it is planned */
    size_t align, limit; /* of a chunk */
    struct chunk *chunks;
    int n, n_made, cap; /* n: in use at the end */
};

struct life {
    int32_t children, views;
    int32_t run; /* that holds its bytes */
    bool placed, live;
    bool stays; /* never freed */
    bool early; /* placed before everything else */
};

struct alloc {
    struct plan *p;
    const struct alloc_options *opt;
    struct arena arena;
    struct life *life;     /* [n_tensors] */
    struct space *space;   /* [n_bufs] */
    struct pack_run *runs; /* a tensor, or a chain of tensors that take over each other in place */
    struct pack_item *items;
    int n_runs, n_items;
    int step; /* now */
    struct err *e;
    enum status st; /* sticky */
};

#define DEBUG(a, ...)                                                                              \
    do {                                                                                           \
        if ((a)->opt->debug)                                                                       \
            log_debug(__VA_ARGS__);                                                                \
    } while (0)

/* ---- chunks and free blocks ---- */

static bool chunk_insert(struct chunk *c, int at, struct block b)
{
    if (!mem_room(&c->free, &c->cap, c->n + 1, sizeof *c->free))
        return false;
    memmove(&c->free[at + 1], &c->free[at], (size_t)(c->n - at) * sizeof *c->free);
    c->free[at] = b;
    c->n++;
    return true;
}

static void chunk_remove(struct chunk *c, int at)
{
    c->n--;
    memmove(&c->free[at], &c->free[at + 1], (size_t)(c->n - at) * sizeof *c->free);
}

/* Give [begin, end) back and join it with its neighbours. */
static bool chunk_free(struct chunk *c, size_t begin, size_t end)
{
    int lo = 0, hi = c->n;
    bool joins_left, joins_right;

    while (lo < hi) { /* first block behind */
        int mid = (lo + hi) / 2;

        if (c->free[mid].begin < begin)
            lo = mid + 1;
        else
            hi = mid;
    }
    joins_left = lo > 0 && c->free[lo - 1].end == begin;
    joins_right = lo < c->n && c->free[lo].begin == end;
    assert(lo == 0 || c->free[lo - 1].end <= begin);
    assert(lo == c->n || c->free[lo].begin >= end);
    if (joins_left && joins_right) {
        c->free[lo - 1].end = c->free[lo].end;
        chunk_remove(c, lo);
    } else if (joins_left) {
        c->free[lo - 1].end = end;
    } else if (joins_right) {
        c->free[lo].begin = begin;
    } else {
        return chunk_insert(c, lo, (struct block){begin, end});
    }
    return true;
}

static size_t chunk_take(struct chunk *c, int at, size_t size)
{
    size_t offs = c->free[at].begin;

    c->free[at].begin += size;
    if (c->free[at].begin == c->free[at].end)
        chunk_remove(c, at);
    if (offs + size > c->high)
        c->high = offs + size;
    return offs;
}

static bool is_last(const struct space *sp, const struct chunk *c, int at)
{
    return c->free[at].end == sp->limit;
}

/* Best fit among the inner blocks. */
static bool take_inner(struct space *sp, size_t size, int *chunk, size_t *offs)
{
    size_t best = SIZE_MAX;
    int best_at = -1;

    for (int k = 0; k < sp->n; k++) {
        const struct chunk *c = &sp->chunks[k];

        for (int i = 0; i < c->n; i++) {
            size_t has = c->free[i].end - c->free[i].begin;

            if (has >= size && has < best && !is_last(sp, c, i)) {
                best = has;
                best_at = i;
                *chunk = k;
            }
        }
    }
    if (best_at < 0)
        return false;
    *offs = chunk_take(&sp->chunks[*chunk], best_at, size);
    return true;
}

/*
 * From a last block. Its reuse factor is what remains below the high-water mark, or, negative, by
 * how much the mark rises: the smallest remainder is best, else the smallest rise.
 */
static bool take_last(struct space *sp, size_t size, int *chunk, size_t *offs)
{
    int64_t best = INT64_MIN;
    int best_chunk = -1;

    for (int k = 0; k < sp->n; k++) {
        const struct chunk *c = &sp->chunks[k];
        int64_t factor;

        if (c->n == 0 || !is_last(sp, c, c->n - 1) ||
            c->free[c->n - 1].end - c->free[c->n - 1].begin < size)
            continue;
        factor = (int64_t)(c->high - c->free[c->n - 1].begin) - (int64_t)size;
        if (best_chunk < 0 || (best < 0 && factor > best) || (factor >= 0 && factor < best)) {
            best = factor;
            best_chunk = k;
        }
    }
    if (best_chunk < 0)
        return false;
    *chunk = best_chunk;
    *offs = chunk_take(&sp->chunks[best_chunk], sp->chunks[best_chunk].n - 1, size);
    return true;
}

static bool take_new(struct space *sp, size_t size, int *chunk, size_t *offs)
{
    struct chunk *c;

    if (!mem_room(&sp->chunks, &sp->cap, sp->n + 1, sizeof *sp->chunks))
        return false;
    c = &sp->chunks[sp->n];
    *c = (struct chunk){0};
    if (!chunk_insert(c, 0, (struct block){0, sp->limit}))
        return false; /* and nothing to free */
    *chunk = sp->n++;
    sp->n_made = sp->n;
    *offs = chunk_take(c, 0, size);
    return true;
}

/* ---- life cycle ---- */

static const char *name_of(const struct alloc *a, int slot)
{
    return a->p->tensors[slot].t->name;
}

static void out_of_memory(struct alloc *a)
{
    if (!a->st)
        a->st = err_nomem(a->e, "planning memory", (size_t)a->p->n_tensors * sizeof *a->life);
}

static int new_item(struct alloc *a, int run, int from, size_t size)
{
    a->items[a->n_items] =
        (struct pack_item){.run = run, .next = -1, .from = from, .to = -1, .size = size};
    return a->n_items++;
}

static bool has_layout(const struct plan_tensor *x, const struct plan_tensor *y)
{
    return x->type == y->type && memcmp(x->ne, y->ne, sizeof x->ne) == 0 &&
           memcmp(x->nb, y->nb, sizeof x->nb) == 0;
}

/* The owner whose bytes the node may take over through source `src`, or -1 (invariant 4). */
static int in_place_owner(const struct alloc *a, int slot, int src)
{
    const struct plan *p = a->p;
    const struct plan_tensor *pt = &p->tensors[slot], *ps = &p->tensors[src];
    const struct life *ls = &a->life[src], *lo;

    if (ps->external || ls->children != 1 || ls->views != 0 || !has_layout(pt, ps))
        return -1;
    lo = &a->life[ps->owner];
    if (!lo->live || lo->stays || p->tensors[ps->owner].buf != pt->buf ||
        p->tensors[ps->owner].size < pt->size)
        return -1;
    if (ps->owner != src && (lo->views != 1 || lo->children != 0 || ps->view_offs != 0))
        return -1;
    return ps->owner;
}

/* Put the node where its source's owner is, and return what it does not need. */
static void take_over(struct alloc *a, int slot, int owner)
{
    struct plan_tensor *pt = &a->p->tensors[slot], *po = &a->p->tensors[owner];
    int r = a->life[owner].run;
    struct pack_item *last = &a->items[a->runs[r].last];

    pt->chunk = po->chunk;
    pt->offs = po->offs;
    a->life[slot].run = r;
    a->life[owner].live = false; /* nobody frees it: the bytes are the node's now */
    DEBUG(a, "alloc: '%s' in place of '%s'", name_of(a, slot), name_of(a, owner));
    if (pt->size == last->size)
        return;
    last->to = a->step;
    last->next = new_item(a, r, a->step + 1, pt->size);
    a->runs[r].last = last->next;
    if (!chunk_free(&a->space[pt->buf].chunks[pt->chunk], pt->offs + pt->size, po->offs + po->size))
        out_of_memory(a);
    DEBUG(a, "alloc: %zu bytes behind '%s' are free", po->size - pt->size, name_of(a, slot));
}

static bool reuse_source(struct alloc *a, int slot)
{
    const struct plan_tensor *pt = &a->p->tensors[slot];

    if (!(op_info(pt->op)->flags & OPF_INPLACE))
        return false;
    for (int j = 0; j < TENSOR_SRC; j++) {
        int owner = pt->src[j] < 0 ? -1 : in_place_owner(a, slot, pt->src[j]);

        if (owner >= 0) {
            take_over(a, slot, owner);
            return true;
        }
    }
    return false;
}

static void find_room(struct alloc *a, int slot)
{
    struct plan_tensor *pt = &a->p->tensors[slot];
    struct space *sp = &a->space[pt->buf];
    struct pack_run *r;
    int chunk;

    if (!take_inner(sp, pt->size, &chunk, &pt->offs) &&
        !take_last(sp, pt->size, &chunk, &pt->offs) && !take_new(sp, pt->size, &chunk, &pt->offs)) {
        out_of_memory(a);
        return;
    }
    pt->chunk = chunk;
    r = &a->runs[a->n_runs];
    r->group = pt->buf;
    r->first = r->last = new_item(a, a->n_runs, a->step, pt->size);
    a->life[slot].run = a->n_runs++;
    DEBUG(a, "alloc: '%s' %zu bytes at %s %d+%zu", name_of(a, slot), pt->size,
          a->p->bufs[pt->buf].buft->name, chunk, pt->offs);
}

static void place(struct alloc *a, int slot)
{
    struct life *l = &a->life[slot];

    if (a->st || l->placed || !plan_places(a->p, slot))
        return;
    l->placed = l->live = true;
    if (l->early || !reuse_source(a, slot))
        find_room(a, slot);
}

static void release(struct alloc *a, int slot)
{
    const struct plan_tensor *pt = &a->p->tensors[slot];
    struct life *l = &a->life[slot];

    if (a->st || !l->live || l->stays)
        return;
    l->live = false;
    a->items[a->runs[l->run].last].to = a->step;
    DEBUG(a, "alloc: '%s' is free", name_of(a, slot));
    if (!chunk_free(&a->space[pt->buf].chunks[pt->chunk], pt->offs, pt->offs + pt->size))
        out_of_memory(a);
}

/* One reader of the tensor is done. */
static void consume(struct alloc *a, int slot)
{
    struct life *l;
    int owner;

    if (slot < 0)
        return;
    l = &a->life[slot];
    owner = a->p->tensors[slot].owner;
    if (--l->children > 0 || l->views > 0)
        return;
    if (owner < 0)
        return;
    if (owner != slot) {
        l = &a->life[owner];
        if (--l->views > 0 || l->children > 0)
            return;
    }
    release(a, owner);
}

/* ---- the walk ---- */

/* Count readers and views, and note what has to be there early or for ever. */
static void count(struct alloc *a)
{
    const struct plan *p = a->p;

    for (int i = 0; i < p->n_tensors; i++) {
        const struct plan_tensor *pt = &p->tensors[i];
        struct life *l = pt->owner < 0 ? NULL : &a->life[pt->owner];

        if (l && pt->owner != i)
            l->views++;
        for (int j = 0; j < TENSOR_SRC; j++) {
            if (pt->src[j] >= 0)
                a->life[pt->src[j]].children++;
        }
        if (pt->copy_of >= 0)
            a->life[pt->copy_of].children++;
        if (l && (pt->twin >= 0 || pt->twin_of >= 0)) /* a later replay may write it at any time */
            l->early = l->stays = true;
        if (!l || pt->copy_of >= 0 || pt->twin_of >= 0)
            continue;
        if (pt->flags & (TENSOR_INPUT | TENSOR_KEEP))
            l->early = true;
        if (pt->flags & (TENSOR_OUTPUT | TENSOR_KEEP))
            l->stays = true;
        if (pt->owner == i && pt->op == OP_NONE) {
            l->early = true;
            l->stays |= !(pt->flags & TENSOR_INPUT); /* a constant: written once */
        }
    }
}

static enum status measure(struct alloc *a)
{
    struct plan *p = a->p;

    for (int i = 0; i < p->n_tensors; i++) {
        struct plan_tensor *pt = &p->tensors[i];
        struct plan_buf *pb;
        size_t size;

        if (!plan_places(p, i))
            continue;
        pt->buf = p->dev[pt->dev].buf;
        pb = &p->bufs[pt->buf];
        size = buft_tensor_size(pb->buft, pt->t);
        /* even an empty tensor has an address of its own */
        if (!mem_round_up(size ? size : 1, a->space[pt->buf].align, &pt->size) ||
            pt->size > a->space[pt->buf].limit)
            return err_set(a->e, ST_NOMEM,
                           "'%s' needs %zu bytes, '%s' allocates at most %zu bytes at once",
                           pt->t->name, size, pb->buft->name, pb->buft->max_size);
        if (pb->largest < 0 || pt->size > p->tensors[pb->largest].size)
            pb->largest = i;
        if (pt->op != OP_NONE)
            p->sum_nodes += pt->size;
    }
    return ST_OK;
}

static void walk(struct alloc *a)
{
    const struct plan *p = a->p;
    int s = 0;

    for (int i = 0; i < p->n_tensors; i++) {
        if (a->life[i].early)
            place(a, i);
    }
    for (int i = 0; i < p->n_nodes && !a->st; i++) {
        if (s < p->n_splits && p->splits[s].i_start == i) {
            for (int k = 0; k < p->splits[s].n_inputs; k++) {
                int c = p->inputs[p->splits[s].first_input + k];

                a->step++;
                place(a, c);
                consume(a, p->tensors[c].copy_of);
            }
            s++;
        }
        a->step++;
        place(a, i);
        for (int j = 0; j < TENSOR_SRC; j++)
            consume(a, p->tensors[i].src[j]);
    }
    for (int k = 0; k < a->n_items; k++) {
        if (a->items[k].to < 0)
            a->items[k].to = a->step + 1; /* until after the run */
    }
}

/* What lives at one time, at most: no placement of these runs needs less. */
static void find_least(struct alloc *a)
{
    int n_steps = a->step + 2;
    size_t *delta = arena_array(&a->arena, (size_t)n_steps + 1, sizeof *delta);

    if (!delta) {
        out_of_memory(a);
        return;
    }
    for (int b = 0; b < a->p->n_bufs; b++) {
        size_t now = 0, most = 0;

        memset(delta, 0, ((size_t)n_steps + 1) * sizeof *delta);
        for (int k = 0; k < a->n_items; k++) {
            if (a->runs[a->items[k].run].group != b)
                continue;
            delta[a->items[k].from] += a->items[k].size; /* differences: they wrap and come back */
            delta[a->items[k].to + 1] -= a->items[k].size;
        }
        for (int t = 0; t < n_steps; t++) {
            now += delta[t];
            most = now > most ? now : most;
        }
        a->p->bufs[b].least = most;
        a->p->least += most;
    }
}

/* ---- packing again, with lifetimes known ---- */

/* The walk's own peak in a buffer: all chunks. */
static size_t walk_peak(const struct alloc *a, int buf)
{
    size_t n = 0;

    for (int c = 0; c < a->space[buf].n; c++)
        n += a->space[buf].chunks[c].high;
    return n;
}

static void pack_again(struct alloc *a, int buf)
{
    struct space *sp = &a->space[buf];
    size_t least = a->p->bufs[buf].least, have = walk_peak(a, buf);
    struct pack k = {.runs = a->runs,
                     .items = a->items,
                     .n_runs = a->n_runs,
                     .n_items = a->n_items,
                     .group = buf,
                     .least = least,
                     .peak = have};
    bool better;

    if (a->opt->walk_only || have <= least + least / NEAR)
        return;
    k.offs = arena_array(&a->arena, (size_t)a->n_runs, sizeof *k.offs);
    if (!k.offs) {
        out_of_memory(a);
        return;
    }
    a->st = pack(&k, &better, a->e);
    if (a->st || !better || k.peak > sp->limit)
        return;
    sp->chunks[0].high = k.peak;
    sp->n = 1;
    for (int i = 0; i < a->p->n_tensors; i++) {
        struct plan_tensor *pt = &a->p->tensors[i];

        if (pt->buf != buf)
            continue;
        pt->chunk = 0;
        pt->offs = k.offs[a->life[i].run];
        DEBUG(a, "alloc: packed '%s' %zu bytes at %s 0+%zu", name_of(a, i), pt->size,
              a->p->bufs[buf].buft->name, pt->offs);
    }
}

/* ---- results ---- */

static void write_chunks(struct alloc *a)
{
    struct plan *p = a->p;

    for (int b = 0; b < p->n_bufs; b++) {
        struct plan_buf *pb = &p->bufs[b];

        pb->first_chunk = p->n_chunks;
        pb->n_chunks = a->space[b].n;
        if (!mem_room(&p->chunks, &p->cap_chunks, p->n_chunks + pb->n_chunks, sizeof *p->chunks)) {
            out_of_memory(a);
            return;
        }
        for (int c = 0; c < pb->n_chunks; c++) {
            p->chunks[p->n_chunks++] = (struct plan_chunk){.size = a->space[b].chunks[c].high};
            pb->size += a->space[b].chunks[c].high;
        }
        p->peak += pb->size;
    }
}

static bool alloc_init(struct alloc *a)
{
    const struct plan *p = a->p;
    size_t n = (size_t)p->n_tensors;

    arena_init(&a->arena, 64 << 10);
    a->life = arena_array(&a->arena, n, sizeof *a->life);
    a->runs = arena_array(&a->arena, n, sizeof *a->runs);
    a->items = arena_array(&a->arena, n, sizeof *a->items);
    a->space = arena_array(&a->arena, (size_t)p->n_bufs, sizeof *a->space);
    if (a->arena.failed)
        return false;
    for (int b = 0; b < p->n_bufs; b++) {
        const struct buft *bt = p->bufs[b].buft;
        size_t max = bt->max_size < SIZE_MAX / 2 ? bt->max_size : SIZE_MAX / 2;

        a->space[b].align = bt->alignment;
        a->space[b].limit = max & ~(bt->alignment - 1);
    }
    return true;
}

static void alloc_release(struct alloc *a)
{
    for (int b = 0; a->space && b < a->p->n_bufs; b++) {
        for (int c = 0; c < a->space[b].n_made; c++)
            mem_free(a->space[b].chunks[c].free);
        mem_free(a->space[b].chunks);
    }
    arena_release(&a->arena);
}

enum status alloc_plan(struct plan *p, const struct alloc_options *opt, struct err *e)
{
    static const struct alloc_options none;
    struct alloc a = {.p = p, .opt = opt ? opt : &none, .e = e};

    if (!alloc_init(&a)) {
        out_of_memory(&a);
        goto done;
    }
    count(&a);
    a.st = measure(&a);
    if (a.st)
        goto done;
    walk(&a);
    if (!a.st)
        find_least(&a);
    for (int b = 0; b < p->n_bufs && !a.st; b++)
        pack_again(&a, b);
    if (!a.st)
        write_chunks(&a);
done:
    alloc_release(&a);
    return a.st;
}
