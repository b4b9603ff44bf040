#include "runtime/kvcache.h"

#include <assert.h>
#include <stdio.h>

#include "gguf/base/mem.h"

static bool set_shapes(struct kvcache *kv, const struct hparams *hp, const struct kv_options *o)
{
    for (uint32_t il = 0; il < kv->n_layer; il++) {
        int64_t n_head = hp->layer[il].n_head_kv;
        int64_t n_cells = hp->layer[il].windowed ? kv->n_ring : kv->n_cells;
        int64_t ne_k[2] = {n_head * hp->n_embd_head_k, n_cells};
        int64_t n_v = hp->latent.n_kv_lora ? 0 : n_head * hp->n_embd_head_v; /* else within k */
        int64_t ne_v[2] = {n_v, n_cells};

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
    snprintf(out, 64, "a KV cache of %u positions", kv->n_ctx);
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

static enum status alloc_cells(struct kv_cell **cells, int64_t **rows, uint32_t n_cells,
                               uint32_t n_rows, struct err *e)
{
    *cells = mem_array(n_cells, sizeof **cells);
    *rows = mem_array(n_rows, sizeof **rows);
    if (!*cells || !*rows)
        return err_nomem(e, "the KV cache's cells", (size_t)n_cells * sizeof **cells);
    for (uint32_t i = 0; i < n_cells; i++)
        (*cells)[i].pos = -1;
    return ST_OK;
}

/* What the host keeps about the cells. */
static enum status alloc_host(struct kvcache *kv, struct err *e)
{
    enum status st = alloc_cells(&kv->cells, &kv->rows, kv->n_cells, kv->n_rows_max, e);

    if (st || kv->n_ring == kv->n_cells)
        return st;
    return alloc_cells(&kv->ring, &kv->ring_rows, kv->n_ring, kv->n_rows_max, e);
}

/* Cells of a layer with a window: what a micro-batch sees, and a chunk for where it begins. */
static uint32_t ring_size(const struct kvcache *kv, const struct kv_options *o)
{
    uint64_t n = ((uint64_t)kv->n_window + o->n_ubatch + KV_PAD - 1) / KV_PAD * KV_PAD + o->n_chunk;

    return o->keep_all || !kv->n_window || n > kv->n_cells ? kv->n_cells : (uint32_t)n;
}

enum status kvcache_init(struct kvcache *kv, const struct hparams *hp, const struct kv_options *o,
                         struct err *e)
{
    enum status st;

    *kv = (struct kvcache){.n_layer = hp->n_layer,
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
    mem_free(kv->cells);
    mem_free(kv->rows);
    mem_free(kv->ring);
    mem_free(kv->ring_rows);
    *kv = (struct kvcache){0};
}

static void place_in_ring(struct kvcache *kv, const struct ubatch *u)
{
    for (int32_t i = 0; i < u->n_tokens; i++) {
        uint32_t c = (uint32_t)u->pos[i] % kv->n_ring;

        assert(u->seq_id[i] == 0);
        kv->ring[c] = (struct kv_cell){.pos = u->pos[i], .seqs = 1};
        kv->ring_rows[i] = c;
    }
}

enum status kvcache_place(struct kvcache *kv, const struct ubatch *u, struct err *e)
{
    uint32_t c = 0, n = (uint32_t)u->n_tokens;

    assert(n <= kv->n_rows_max);
    if (n > kv->n_ctx - kv->n_occupied)
        return err_set(e, ST_LIMIT,
                       "the context holds %u positions, %u are taken and %u more are needed",
                       kv->n_ctx, kv->n_occupied, n);
    /* Without holes the free cells start at n_used. */
    if (kv->n_occupied == kv->n_used)
        c = kv->n_used;
    for (uint32_t i = 0; i < n; i++, c++) {
        while (kv->cells[c].pos >= 0)
            c++;
        kv->cells[c] = (struct kv_cell){.pos = u->pos[i], .seqs = UINT64_C(1) << u->seq_id[i]};
        kv->rows[i] = c;
    }
    kv->n_occupied += n;
    if (c > kv->n_used)
        kv->n_used = c;
    if (c > kv->n_written)
        kv->n_written = c;
    if (kv->ring)
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

void kvcache_truncate(struct kvcache *kv, int32_t seq, int32_t pos)
{
    uint64_t mask = seq < 0 ? UINT64_MAX : UINT64_C(1) << seq;
    uint32_t n_used = 0;

    for (uint32_t i = 0; i < kv->n_used; i++) {
        if (free_cell(&kv->cells[i], mask, pos))
            kv->n_occupied--;
        if (kv->cells[i].pos >= 0)
            n_used = i + 1;
    }
    kv->n_used = n_used;
    for (uint32_t i = 0; kv->ring && i < kv->n_ring; i++)
        free_cell(&kv->ring[i], mask, pos);
}

bool kvcache_reaches(const struct kvcache *kv, int32_t pos)
{
    for (int32_t back = 1; kv->ring && back < (int32_t)kv->n_window && back <= pos; back++) {
        if (kv->ring[(uint32_t)(pos - back) % kv->n_ring].pos != pos - back)
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

enum status kvcache_scrub(struct kvcache *kv, struct err *e)
{
    enum status st = ST_OK;

    for (uint32_t il = 0; il < kv->n_layer; il++) {
        bool in_ring = kv->ring && kv->k[il].ne[1] == kv->n_ring;
        const struct kv_cell *cells = in_ring ? kv->ring : kv->cells;
        uint32_t n = in_ring ? kv->n_ring : kv->n_written;

        for (uint32_t c = 0; c < n && !st; c++) {
            if (cells[c].pos >= 0)
                continue;
            st = zero_row(&kv->k[il], c, e);
            if (!st)
                st = zero_row(&kv->v[il], c, e);
        }
    }
    return st;
}

uint32_t kvcache_n_kv(const struct kvcache *kv)
{
    uint32_t n = (kv->n_used + KV_PAD - 1) / KV_PAD * KV_PAD;

    return n ? n : KV_PAD;
}
