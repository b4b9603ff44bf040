#include "runtime/kvcache.h"

#include <assert.h>
#include <stdio.h>

#include "gguf/base/mem.h"

static bool set_shapes(struct kvcache *kv, const struct hparams *hp, const struct kv_options *o)
{
    for (uint32_t il = 0; il < kv->n_layer; il++) {
        int64_t n_head = hp->layer[il].n_head_kv;
        int64_t n_cells = hp->layer[il].windowed ? kv->n_ring : kv->n_cells;
        int64_t n_rows = n_cells * kv->n_streams;
        int64_t ne_k[2] = {n_head * hp->n_embd_head_k, n_rows};
        int64_t n_v = hp->latent.n_kv_lora ? 0 : n_head * hp->n_embd_head_v; /* else within k */
        int64_t ne_v[2] = {n_v, n_rows};

        if (!tensor_set_shape(&kv->k[il], o->type_k, 2, ne_k) ||
            !tensor_set_shape(&kv->v[il], o->type_v, 2, ne_v))
            return false;
        tensor_set_name(&kv->k[il], "cache_k_l%u", il);
        tensor_set_name(&kv->v[il], "cache_v_l%u", il);
    }
    return true;
}

static const char *describe(const struct kvcache *kv, char out[64])
{
    snprintf(out, 64, "a KV cache of %llu positions",
             (unsigned long long)kv->n_ctx * kv->n_streams);
    return out;
}

static enum status bind(struct kvcache *kv, const struct kv_options *o, struct err *e)
{
    enum status st = ST_OK;
    char what[64];

    store_init(&kv->store, USAGE_ANY);
    for (uint32_t i = 0; i < 2 * kv->n_layer && !st; i++) {
        const struct device *dev = o->layer_dev ? o->layer_dev[i / 2] : o->dev;

        st = store_add(&kv->store, dev, dev->buft, i % 2 ? &kv->v[i / 2] : &kv->k[i / 2], e);
    }
    kv->n_bytes = store_bytes(&kv->store);
    return st ? st
              : store_bind(&kv->store, o->dry, describe(kv, what), "try a smaller context (-c)", e);
}

/* What the host keeps about the cells. */
static enum status alloc_host(struct kvcache *kv, struct err *e)
{
    bool has_ring = kv->n_ring < kv->n_cells;
    size_t n_each = (size_t)kv->n_cells + (has_ring ? kv->n_ring : 0);
    size_t n = n_each * kv->n_streams, n_rows = kv->n_rows_max;

    kv->mem = mem_array(n, sizeof *kv->mem);
    kv->rows = mem_array(n_rows, sizeof *kv->rows);
    if (has_ring)
        kv->ring_rows = mem_array(n_rows, sizeof *kv->ring_rows);
    if (!kv->mem || !kv->rows || (has_ring && !kv->ring_rows))
        return err_nomem(e, "the KV cache's cells", n * sizeof *kv->mem);
    for (size_t i = 0; i < n; i++)
        kv->mem[i].pos = -1;
    for (uint32_t i = 0; i < kv->n_streams; i++) {
        struct kv_stream *s = &kv->stream[i];

        s->cells = kv->mem + i * n_each;
        s->ring = has_ring ? s->cells + kv->n_cells : NULL;
    }
    return ST_OK;
}

/* Cells of a layer with a window: what a micro-batch sees, and a chunk for where it begins. */
static uint32_t ring_size(const struct kvcache *kv, const struct kv_options *o)
{
    uint64_t n = ((uint64_t)kv->n_window + o->n_ubatch + KV_PAD - 1) / KV_PAD * KV_PAD + o->n_chunk;

    bool shared = kv->n_streams < o->n_seqs; /* a ring has one place for a position */

    return o->keep_all || shared || !kv->n_window || n > kv->n_cells ? kv->n_cells : (uint32_t)n;
}

enum status kvcache_init(struct kvcache *kv, const struct hparams *hp, const struct kv_options *o,
                         struct err *e)
{
    enum status st;

    *kv = (struct kvcache){.n_layer = hp->n_layer,
                           .n_streams = o->unified || !o->n_seqs ? 1 : o->n_seqs,
                           .n_ctx = o->n_ctx,
                           .n_window = hp->n_window,
                           .n_chunk = o->n_chunk,
                           .n_rows_max = o->n_ubatch};
    kv->n_cells = (o->n_ctx + KV_PAD - 1) / KV_PAD * KV_PAD;
    kv->n_ring = ring_size(kv, o);
    kv->k = mem_array(kv->n_layer, sizeof *kv->k);
    kv->v = mem_array(kv->n_layer, sizeof *kv->v);
    if (!kv->k || !kv->v) {
        st = err_nomem(e, "the KV cache's tensors", 2 * (size_t)kv->n_layer * sizeof *kv->k);
        goto fail;
    }
    if (!set_shapes(kv, hp, o)) {
        char what[64];

        st = err_set(e, ST_NOMEM, "%s is larger than any memory; try a smaller context (-c)",
                     describe(kv, what));
        goto fail;
    }
    st = bind(kv, o,
              e); /* first what is largest: a size that cannot be is refused before it costs */
    if (!st && !o->dry)
        st = alloc_host(kv, e);
    if (st)
        goto fail;
    return ST_OK;
fail:
    kvcache_release(kv);
    return st;
}

void kvcache_release(struct kvcache *kv)
{
    store_release(&kv->store);
    mem_free(kv->k);
    mem_free(kv->v);
    mem_free(kv->mem);
    mem_free(kv->rows);
    mem_free(kv->ring_rows);
    *kv = (struct kvcache){0};
}

static void place_in_ring(struct kvcache *kv, const struct ubatch *u)
{
    for (int32_t i = 0; i < u->n_tokens; i++) {
        uint32_t stream = kvcache_stream(kv, u->seq_id[i]);
        uint32_t c = (uint32_t)u->pos[i] % kv->n_ring;

        assert(kv->n_streams > 1 || u->seq_id[i] == 0);
        kv->stream[stream].ring[c] =
            (struct kv_cell){.pos = u->pos[i], .seqs = UINT64_C(1) << u->seq_id[i]};
        kv->ring_rows[i] = (int64_t)stream * kv->n_ring + c;
    }
}

/* Does every stream have room for its tokens? */
static enum status check_room(const struct kvcache *kv, const struct ubatch *u, struct err *e)
{
    uint32_t n[SEQ_MAX] = {0};

    for (int32_t i = 0; i < u->n_tokens; i++)
        n[kvcache_stream(kv, u->seq_id[i])]++;
    for (uint32_t i = 0; i < kv->n_streams; i++) {
        if (n[i] > kv->n_ctx - kv->stream[i].n_occupied)
            return err_set(e, ST_LIMIT,
                           "the context holds %u positions, %u are taken and %u more are needed",
                           kv->n_ctx, kv->stream[i].n_occupied, n[i]);
    }
    return ST_OK;
}

/* The first free cell of a stream that has one. */
static uint32_t place(struct kv_stream *s, int32_t seq, int32_t pos)
{
    uint32_t c = s->next;

    while (s->cells[c].pos >= 0)
        c++;
    s->cells[c] = (struct kv_cell){.pos = pos, .seqs = UINT64_C(1) << seq};
    s->next = c + 1;
    s->n_occupied++;
    if (s->n_used < s->next)
        s->n_used = s->next;
    if (s->n_written < s->next)
        s->n_written = s->next;
    return c;
}

enum status kvcache_place(struct kvcache *kv, const struct ubatch *u, struct err *e)
{
    enum status st = check_room(kv, u, e);

    assert((uint32_t)u->n_tokens <= kv->n_rows_max);
    if (st)
        return st;
    /* Without holes the free cells start at n_used. */
    for (uint32_t i = 0; i < kv->n_streams; i++) {
        struct kv_stream *s = &kv->stream[i];

        s->next = s->n_occupied == s->n_used ? s->n_used : 0;
    }
    for (int32_t i = 0; i < u->n_tokens; i++) {
        uint32_t stream = kvcache_stream(kv, u->seq_id[i]);

        kv->rows[i] =
            (int64_t)stream * kv->n_cells + place(&kv->stream[stream], u->seq_id[i], u->pos[i]);
    }
    if (kv->ring_rows)
        place_in_ring(kv, u);
    return ST_OK;
}

/* Free the cell if only `seqs` hold it, from pos on. */
static bool free_cell(struct kv_cell *c, uint64_t seqs, int32_t pos)
{
    if (c->pos < 0 || c->pos < pos || !(c->seqs & seqs))
        return false;
    c->seqs &= ~seqs;
    if (c->seqs)
        return false;
    c->pos = -1;
    return true;
}

static void truncate_stream(struct kv_stream *s, uint32_t n_ring, uint64_t seqs, int32_t pos)
{
    uint32_t n_used = 0;

    for (uint32_t i = 0; i < s->n_used; i++) {
        if (free_cell(&s->cells[i], seqs, pos))
            s->n_occupied--;
        if (s->cells[i].pos >= 0)
            n_used = i + 1;
    }
    s->n_used = n_used;
    for (uint32_t i = 0; s->ring && i < n_ring; i++)
        free_cell(&s->ring[i], seqs, pos);
}

void kvcache_truncate(struct kvcache *kv, int32_t seq, int32_t pos)
{
    uint64_t seqs = seq < 0 ? UINT64_MAX : UINT64_C(1) << seq;

    for (uint32_t i = 0; i < kv->n_streams; i++) {
        if (seq < 0 || i == kvcache_stream(kv, seq))
            truncate_stream(&kv->stream[i], kv->n_ring, seqs, pos);
    }
}

/* What the cells say, with the sequence changed. */
static void copy_cells(struct kv_cell *to, const struct kv_cell *from, uint32_t n, int32_t seq)
{
    for (uint32_t i = 0; i < n; i++)
        to[i] =
            (struct kv_cell){.pos = from[i].pos, .seqs = from[i].pos < 0 ? 0 : UINT64_C(1) << seq};
}

static enum status copy_stream(struct kvcache *kv, int32_t from, int32_t to, struct err *e)
{
    struct kv_stream *a = &kv->stream[from], *b = &kv->stream[to];
    enum status st = ST_OK;

    for (uint32_t i = 0; i < 2 * kv->n_layer && !st; i++) {
        struct tensor *t = i % 2 ? &kv->v[i / 2] : &kv->k[i / 2];
        uint32_t n_cells = (uint32_t)t->ne[1] / kv->n_streams;
        uint32_t n = a->n_used < n_cells ? a->n_used : n_cells;

        st = store_copy_rows(t, (uint32_t)from * n_cells, (uint32_t)to * n_cells, n, e);
    }
    if (st)
        return st;
    copy_cells(b->cells, a->cells, a->n_used, to);
    if (a->ring)
        copy_cells(b->ring, a->ring, kv->n_ring, to);
    b->n_used = a->n_used;
    b->n_occupied = a->n_occupied;
    if (b->n_written < b->n_used)
        b->n_written = b->n_used;
    return ST_OK;
}

enum status kvcache_copy(struct kvcache *kv, int32_t from, int32_t to, struct err *e)
{
    struct kv_stream *s = &kv->stream[0];

    if (from == to)
        return ST_OK;
    kvcache_truncate(kv, to, 0);
    if (kv->n_streams > 1)
        return copy_stream(kv, from, to, e);
    for (uint32_t i = 0; i < s->n_used; i++) {
        if (s->cells[i].seqs >> from & 1)
            s->cells[i].seqs |= UINT64_C(1) << to;
    }
    return ST_OK;
}

bool kvcache_reaches(const struct kvcache *kv, int32_t seq, int32_t pos)
{
    const struct kv_cell *ring = kv->stream[kvcache_stream(kv, seq)].ring;

    for (int32_t back = 1; ring && back < (int32_t)kv->n_window && back <= pos; back++) {
        if (ring[(uint32_t)(pos - back) % kv->n_ring].pos != pos - back)
            return false;
    }
    return true;
}

static enum status zero_row(struct tensor *t, uint32_t row, struct err *e)
{
    static const char zeros[4096];
    size_t n = tensor_row_bytes(t), at = (size_t)row * t->nb[1];

    for (size_t i = 0; i < n; i += sizeof zeros) {
        enum status st =
            tensor_set(t, at + i, zeros, n - i < sizeof zeros ? n - i : sizeof zeros, e);
        if (st)
            return st;
    }
    return ST_OK;
}

/* The free cells of a stream in a layer's tensor. */
static enum status scrub(const struct kvcache *kv, uint32_t stream, struct tensor *t, struct err *e)
{
    const struct kv_stream *s = &kv->stream[stream];
    uint32_t n_cells = (uint32_t)t->ne[1] / kv->n_streams;
    bool in_ring = s->ring && n_cells == kv->n_ring;
    const struct kv_cell *cells = in_ring ? s->ring : s->cells;
    uint32_t n = in_ring ? n_cells : s->n_written;
    enum status st = ST_OK;

    for (uint32_t c = 0; c < n && !st; c++) {
        if (cells[c].pos < 0)
            st = zero_row(t, stream * n_cells + c, e);
    }
    return st;
}

enum status kvcache_scrub(struct kvcache *kv, struct err *e)
{
    enum status st = ST_OK;

    for (uint32_t i = 0; i < kv->n_streams * kv->n_layer && !st; i++) {
        uint32_t stream = i / kv->n_layer, il = i % kv->n_layer;

        st = scrub(kv, stream, &kv->k[il], e);
        if (!st)
            st = scrub(kv, stream, &kv->v[il], e);
    }
    return st;
}

uint32_t kvcache_n_kv(const struct kvcache *kv)
{
    uint32_t n = 1;

    for (uint32_t i = 0; i < kv->n_streams; i++)
        n = kv->stream[i].n_used > n ? kv->stream[i].n_used : n;
    return (n + KV_PAD - 1) / KV_PAD * KV_PAD;
}
