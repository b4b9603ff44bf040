#include "runtime/batch.h"

#include <assert.h>

#include "gguf/base/mem.h"

enum status ubatch_init(struct ubatch *u, int32_t cap, struct err *e)
{
    *u = (struct ubatch){.cap = cap};
    u->mem = mem_array((size_t)cap, 5 * sizeof *u->mem);
    if (!u->mem)
        return err_nomem(e, "a micro-batch", (size_t)cap * 5 * sizeof *u->mem);
    u->token = u->mem;
    u->pos = u->mem + cap;
    u->seq_id = u->mem + 2 * (size_t)cap;
    u->out = u->mem + 3 * (size_t)cap;
    u->index = u->mem + 4 * (size_t)cap;
    return ST_OK;
}

void ubatch_release(struct ubatch *u)
{
    mem_free(u->mem);
    *u = (struct ubatch){0};
}

static int32_t seq_of(const struct batch *b, uint32_t i)
{
    int32_t seq = b->seq_id ? b->seq_id[i] : 0;

    assert(seq >= 0 && seq < SEQ_MAX);
    return seq;
}

static bool is_output(const struct batch *b, uint32_t i)
{
    if (b->out)
        return b->out[i];
    return b->out_all || (b->out_last && i == b->n - 1);
}

/* Put token i behind those that are in the micro-batch. */
static void take(struct batch *b, struct ubatch *u, uint32_t i)
{
    int32_t n = u->n_tokens++, seq = seq_of(b, i);

    u->token[n] = b->token ? b->token[i] : 0;
    u->pos[n] = b->pos[seq]++;
    u->seq_id[n] = seq;
    u->index[n] = (int32_t)i;
    if (is_output(b, i))
        u->out[u->n_outputs++] = n;
    b->done++;
}

/* The sequences of the micro-batch, in order of appearance. */
static void list_sequences(struct ubatch *u)
{
    int32_t count[SEQ_MAX] = {0};

    u->n_seqs_unq = 0;
    for (int32_t i = 0; i < u->n_tokens; i++) {
        if (!count[u->seq_id[i]]++)
            u->seq_id_unq[u->n_seqs_unq++] = u->seq_id[i];
    }
    u->mixed = false;
    for (int32_t i = 1; i < u->n_seqs_unq; i++)
        u->mixed |= count[u->seq_id_unq[i]] != count[u->seq_id_unq[0]];
}

/* As many of the tokens of one sequence as follow each other. */
static void cut_sequence(struct batch *b, struct ubatch *u, uint32_t n_max)
{
    int32_t seq = seq_of(b, b->done);

    while ((uint32_t)u->n_tokens < n_max && b->done < b->n && seq_of(b, b->done) == seq)
        take(b, u, b->done);
    u->n_seq_tokens = u->n_tokens;
    u->n_seqs = 1;
    u->equal_seqs = true;
}

static void cut_simple(struct batch *b, struct ubatch *u, uint32_t n_max)
{
    while ((uint32_t)u->n_tokens < n_max && b->done < b->n)
        take(b, u, b->done);
    u->n_seq_tokens = 1;
    u->n_seqs = u->n_tokens;
    u->equal_seqs = false;
}

/* The next n tokens of a sequence, which has as many. */
static void take_of(struct batch *b, struct ubatch *u, int32_t seq, uint32_t n)
{
    uint32_t i = b->next[seq];

    for (; n; i++) {
        if (seq_of(b, i) != seq)
            continue;
        take(b, u, i);
        n--;
    }
    b->next[seq] = i;
}

/* All sequences that have tokens left, each with as many as the shortest has. */
static void cut_equal(struct batch *b, struct ubatch *u, uint32_t n_max)
{
    uint32_t left[SEQ_MAX] = {0}, n_seqs = 0, n_each = n_max;

    for (uint32_t i = 0; i < b->n; i++)
        left[seq_of(b, i)] += i >= b->next[seq_of(b, i)];
    for (int32_t seq = 0; seq < SEQ_MAX; seq++) {
        if (n_seqs == n_max)
            left[seq] = 0;
        if (!left[seq])
            continue;
        n_seqs++;
        n_each = left[seq] < n_each ? left[seq] : n_each;
    }
    if (n_each > n_max / n_seqs)
        n_each = n_max / n_seqs;
    for (int32_t seq = 0; seq < SEQ_MAX; seq++) {
        if (left[seq])
            take_of(b, u, seq, n_each);
    }
    u->n_seq_tokens = (int32_t)n_each;
    u->n_seqs = (int32_t)n_seqs;
    u->equal_seqs = true;
}

bool batch_next(struct batch *b, struct ubatch *u, uint32_t n_max)
{
    static void (*const cut[])(struct batch *, struct ubatch *, uint32_t) = {
        [SPLIT_SEQUENCE] = cut_sequence, [SPLIT_SIMPLE] = cut_simple, [SPLIT_EQUAL] = cut_equal};

    assert(n_max > 0 && n_max <= (uint32_t)u->cap);
    if (b->done == b->n)
        return false;
    u->n_tokens = u->n_outputs = 0;
    cut[b->split](b, u, n_max);
    list_sequences(u);
    u->carriers = b->embd ? CARRIER_EMBD : CARRIER_TOKEN;
    u->embd = b->embd;
    return true;
}
