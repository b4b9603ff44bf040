#include "runtime/batch.h"

#include <assert.h>

#include "gguf/base/mem.h"

enum status ubatch_init(struct ubatch *u, int32_t cap, struct err *e)
{
    *u = (struct ubatch){.cap = cap};
    u->mem = mem_array((size_t)cap, 4 * sizeof *u->mem);
    if (!u->mem)
        return err_nomem(e, "a micro-batch", (size_t)cap * 4 * sizeof *u->mem);
    u->token = u->mem;
    u->pos = u->mem + cap;
    u->seq_id = u->mem + 2 * (size_t)cap;
    u->out = u->mem + 3 * (size_t)cap;
    return ST_OK;
}

void ubatch_release(struct ubatch *u)
{
    mem_free(u->mem);
    *u = (struct ubatch){0};
}

static int32_t seq_of(const struct batch *b, uint32_t i)
{
    return b->seq_id ? b->seq_id[i] : 0;
}

bool batch_next(struct batch *b, struct ubatch *u, uint32_t n_max)
{
    uint32_t first = b->done, n = 0;
    int32_t seq;

    assert(n_max > 0 && n_max <= (uint32_t)u->cap);
    if (first == b->n)
        return false;
    seq = seq_of(b, first);
    assert(seq >= 0 && seq < SEQ_MAX);
    u->n_outputs = 0;
    while (n < n_max && first + n < b->n && seq_of(b, first + n) == seq) {
        uint32_t i = first + n;

        u->token[n] = b->token[i];
        u->pos[n] = b->pos0 + (int32_t)i;
        u->seq_id[n] = seq;
        if (b->out_all || (b->out_last && i == b->n - 1))
            u->out[u->n_outputs++] = (int32_t)n;
        n++;
    }
    u->n_tokens = u->n_seq_tokens = (int32_t)n;
    u->n_seqs = u->n_seqs_unq = 1;
    u->seq_id_unq[0] = seq;
    u->equal_seqs = true;
    u->mixed = false;
    u->carriers = CARRIER_TOKEN;
    b->done += n;
    return true;
}
