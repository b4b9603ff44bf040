#include "runtime/inputs.h"

#include <assert.h>
#include <math.h>

#include "runtime/graph.h"
#include "runtime/state.h"

struct tensor *input_add(struct inputs *l, struct graph *g, const struct input_ops *ops,
                         enum dtype type, int n_dims, const int64_t *ne)
{
    struct tensor *t;

    for (int i = 0; i < l->n; i++) {
        if (l->in[i].ops == ops)
            return l->in[i].t;
    }
    t = graph_leaf(g, type, n_dims, ne, TENSOR_INPUT);

    assert(l->n < INPUTS_MAX);
    l->in[l->n].ops = ops;
    l->in[l->n++].t = t;
    return named(t, "%s", ops->name);
}

enum reuse_reason inputs_fit(const struct inputs *l, const struct reuse_facts *f)
{
    for (int i = 0; i < l->n; i++) {
        enum reuse_reason r = REUSE_INPUT;

        if (l->in[i].ops->fits)
            r = l->in[i].ops->fits(l->in[i].t, f);
        if (r)
            return r;
    }
    return REUSE_OK;
}

enum status inputs_set(const struct inputs *l, const struct input_data *d, struct err *e)
{
    for (int i = 0; i < l->n; i++) {
        enum status st = ST_OK;

        /* What no computed node reads was not bound. */
        if (l->in[i].t->data)
            st = l->in[i].ops->set(l->in[i].t, d, e);
        if (st)
            return st;
    }
    return ST_OK;
}

/* ---- one value per token ---- */

static enum reuse_reason fits_tokens(const struct tensor *t, const struct reuse_facts *f)
{
    return t->ne[0] == f->n_tokens ? REUSE_OK : REUSE_INPUT;
}

static enum status set_tokens(struct tensor *t, const struct input_data *d, struct err *e)
{
    return tensor_set(t, 0, d->u->token, tensor_bytes(t), e);
}

struct tensor *input_tokens(struct inputs *l, struct graph *g, const struct reuse_facts *f)
{
    static const struct input_ops ops = {"inp_tokens", fits_tokens, set_tokens};
    int64_t n = f->n_tokens;

    return input_add(l, g, &ops, DT_I32, 1, &n);
}

/* Row by row: an equal split takes them out of order. */
static enum status set_embd(struct tensor *t, const struct input_data *d, struct err *e)
{
    size_t n = (size_t)t->ne[0];
    enum status st = ST_OK;

    for (int32_t i = 0; i < d->u->n_tokens && !st; i++)
        st = tensor_set(t, (size_t)i * t->nb[1], d->u->embd + (size_t)d->u->index[i] * n,
                        n * sizeof *d->u->embd, e);
    return st;
}

static enum reuse_reason fits_embd(const struct tensor *t, const struct reuse_facts *f)
{
    return t->ne[1] == f->n_tokens ? REUSE_OK : REUSE_INPUT;
}

struct tensor *input_embd(struct inputs *l, struct graph *g, const struct reuse_facts *f,
                          int64_t n_embd)
{
    static const struct input_ops ops = {"inp_embd", fits_embd, set_embd};
    int64_t ne[2] = {n_embd, f->n_tokens};

    return input_add(l, g, &ops, DT_F32, 2, ne);
}

static enum status set_pos(struct tensor *t, const struct input_data *d, struct err *e)
{
    return tensor_set(t, 0, d->u->pos, tensor_bytes(t), e);
}

struct tensor *input_pos(struct inputs *l, struct graph *g, const struct reuse_facts *f)
{
    static const struct input_ops ops = {"inp_pos", fits_tokens, set_pos};
    int64_t n = f->n_tokens;

    return input_add(l, g, &ops, DT_I32, 1, &n);
}

static enum status set_kv_rows(struct tensor *t, const struct input_data *d, struct err *e)
{
    return tensor_set(t, 0, d->kv->rows, tensor_bytes(t), e);
}

struct tensor *input_kv_rows(struct inputs *l, struct graph *g, const struct reuse_facts *f)
{
    static const struct input_ops ops = {"inp_kv_rows", fits_tokens, set_kv_rows};
    int64_t n = f->n_tokens;

    return input_add(l, g, &ops, DT_I64, 1, &n);
}

/* ---- attention mask ---- */

static const uint16_t f16_minus_inf = 0xfc00;

static enum reuse_reason fits_mask(const struct tensor *t, const struct reuse_facts *f)
{
    if (t->ne[1] != f->n_tokens)
        return REUSE_INPUT;
    return t->ne[0] == f->n_kv ? REUSE_OK : REUSE_KV_LENGTH;
}

static enum reuse_reason fits_window_mask(const struct tensor *t, const struct reuse_facts *f)
{
    if (t->ne[1] != f->n_tokens)
        return REUSE_INPUT;
    return t->ne[0] == f->n_kv_window ? REUSE_OK : REUSE_KV_LENGTH;
}

static enum reuse_reason fits_kv_cells(const struct tensor *t, const struct reuse_facts *f)
{
    if (t->ne[1] != f->n_seqs)
        return REUSE_INPUT;
    return t->ne[0] == f->n_kv ? REUSE_OK : REUSE_KV_LENGTH;
}

static enum reuse_reason fits_ring_cells(const struct tensor *t, const struct reuse_facts *f)
{
    if (t->ne[1] != f->n_seqs)
        return REUSE_INPUT;
    return t->ne[0] == f->n_kv_window ? REUSE_OK : REUSE_KV_LENGTH;
}

/* Cells of a token's sequence. */
static const struct kv_stream *stream_of(const struct input_data *d, int32_t seq)
{
    return &d->kv->stream[kvcache_stream(d->kv, seq)];
}

static enum status set_mask(struct tensor *t, const struct input_data *d, struct err *e)
{
    uint16_t *row = (uint16_t *)d->row;
    uint32_t n_kv = (uint32_t)t->ne[0];

    for (int32_t i = 0; i < d->u->n_tokens; i++) {
        int32_t pos = d->u->pos[i], seq = d->u->seq_id[i];
        const struct kv_cell *cells = stream_of(d, seq)->cells;
        enum status st;

        for (uint32_t c = 0; c < n_kv; c++)
            row[c] = kv_cell_visible(&cells[c], seq, pos) ? 0 : f16_minus_inf;
        st = tensor_set(t, (size_t)i * t->nb[1], row, n_kv * sizeof *row, e);
        if (st)
            return st;
    }
    return ST_OK;
}

/* Positions up to pos that a token there sees in a layer with a window. */
static uint32_t window_at(const struct input_data *d, int32_t pos)
{
    return d->hp->window_chunked ? (uint32_t)pos % d->kv->n_window + 1 : d->kv->n_window;
}

/* Of n cells in a ring the one that comes first: of the oldest position that tokens of seq may see. */
static uint32_t first_cell(const struct input_data *d, int32_t seq, uint32_t n)
{
    uint32_t oldest = UINT32_MAX;

    for (int32_t i = 0; i < d->u->n_tokens; i++) {
        if (d->u->seq_id[i] == seq && (uint32_t)d->u->pos[i] < oldest)
            oldest = (uint32_t)d->u->pos[i];
    }
    oldest = oldest < d->kv->n_window ? 0 : oldest - d->kv->n_window + 1;
    return oldest / d->kv->n_chunk * d->kv->n_chunk % n;
}

static enum status set_window_mask(struct tensor *t, const struct input_data *d, struct err *e)
{
    uint16_t *row = (uint16_t *)d->row;
    uint32_t n_kv = (uint32_t)t->ne[0], first = 0;

    for (int32_t i = 0; i < d->u->n_tokens; i++) {
        int32_t pos = d->u->pos[i], seq = d->u->seq_id[i];
        const struct kv_stream *s = stream_of(d, seq);
        const struct kv_cell *cells = s->ring ? s->ring : s->cells;
        uint32_t n_window = window_at(d, pos);
        enum status st;

        if (s->ring && (i == 0 || seq != d->u->seq_id[i - 1]))
            first = first_cell(d, seq, n_kv);
        for (uint32_t j = 0; j < n_kv; j++) {
            const struct kv_cell *c = &cells[(first + j) % n_kv];
            row[j] = kv_cell_in_window(c, seq, pos, n_window) ? 0 : f16_minus_inf;
        }
        st = tensor_set(t, (size_t)i * t->nb[1], row, n_kv * sizeof *row, e);
        if (st)
            return st;
    }
    return ST_OK;
}

static enum status set_ring_rows(struct tensor *t, const struct input_data *d, struct err *e)
{
    return tensor_set(t, 0, d->kv->ring_rows, tensor_bytes(t), e);
}

/* Of each sequence its n cells of n_stream, from `first` on and around. */
static enum status set_cells(struct tensor *t, const struct input_data *d, bool in_ring,
                             struct err *e)
{
    int32_t *cells = (int32_t *)d->row;
    uint32_t n = (uint32_t)t->ne[0], n_stream = in_ring ? d->kv->n_ring : d->kv->n_cells;
    enum status st = ST_OK;

    for (int32_t i = 0; i < (int32_t)t->ne[1] && !st; i++) {
        int32_t seq = d->u->seq_id[i * d->u->n_seq_tokens];
        uint32_t base = kvcache_stream(d->kv, seq) * n_stream;
        uint32_t first = in_ring ? first_cell(d, seq, n) : 0;

        for (uint32_t j = 0; j < n; j++)
            cells[j] = (int32_t)(base + (first + j) % n);
        st = tensor_set(t, (size_t)i * t->nb[1], cells, n * sizeof *cells, e);
    }
    return st;
}

static enum status set_ring_cells(struct tensor *t, const struct input_data *d, struct err *e)
{
    return set_cells(t, d, true, e);
}

static enum status set_kv_cells(struct tensor *t, const struct input_data *d, struct err *e)
{
    return set_cells(t, d, false, e);
}

static enum status set_alibi_mask(struct tensor *t, const struct input_data *d, struct err *e)
{
    uint32_t n_kv = (uint32_t)t->ne[0];

    for (int32_t i = 0; i < d->u->n_tokens; i++) {
        int32_t pos = d->u->pos[i], seq = d->u->seq_id[i];
        const struct kv_stream *s = stream_of(d, seq);
        enum status st;

        for (uint32_t c = 0; c < n_kv; c++) {
            const struct kv_cell *cell = &s->cells[c];

            d->row[c] = kv_cell_visible(cell, seq, pos) ? (float)(cell->pos - pos) : -INFINITY;
        }
        st = tensor_set(t, (size_t)i * t->nb[1], d->row, n_kv * sizeof *d->row, e);
        if (st)
            return st;
    }
    return ST_OK;
}

struct tensor *input_mask(struct inputs *l, struct graph *g, const struct reuse_facts *f)
{
    static const struct input_ops ops = {"KQ_mask", fits_mask, set_mask};
    int64_t ne[2] = {f->n_kv, f->n_tokens};

    return input_add(l, g, &ops, DT_F16, 2, ne);
}

struct tensor *input_window_mask(struct inputs *l, struct graph *g, const struct reuse_facts *f)
{
    static const struct input_ops ops = {"KQ_mask_window", fits_window_mask, set_window_mask};
    int64_t ne[2] = {f->n_kv_window, f->n_tokens};

    return input_add(l, g, &ops, DT_F16, 2, ne);
}

struct tensor *input_ring_rows(struct inputs *l, struct graph *g, const struct reuse_facts *f)
{
    static const struct input_ops ops = {"inp_ring_rows", fits_tokens, set_ring_rows};
    int64_t n = f->n_tokens;

    return input_add(l, g, &ops, DT_I64, 1, &n);
}

struct tensor *input_ring_cells(struct inputs *l, struct graph *g, const struct reuse_facts *f)
{
    static const struct input_ops ops = {"inp_ring_cells", fits_ring_cells, set_ring_cells};
    int64_t ne[2] = {f->n_kv_window, f->n_seqs};

    return input_add(l, g, &ops, DT_I32, 2, ne);
}

struct tensor *input_kv_cells(struct inputs *l, struct graph *g, const struct reuse_facts *f)
{
    static const struct input_ops ops = {"inp_kv_cells", fits_kv_cells, set_kv_cells};
    int64_t ne[2] = {f->n_kv, f->n_seqs};

    return input_add(l, g, &ops, DT_I32, 2, ne);
}

struct tensor *input_alibi_mask(struct inputs *l, struct graph *g, const struct reuse_facts *f)
{
    static const struct input_ops ops = {"KQ_mask_alibi", fits_mask, set_alibi_mask};
    int64_t ne[2] = {f->n_kv, f->n_tokens};

    return input_add(l, g, &ops, DT_F32, 2, ne);
}

/* ---- outputs ---- */

static enum reuse_reason fits_out_ids(const struct tensor *t, const struct reuse_facts *f)
{
    return t->ne[0] == f->n_outputs ? REUSE_OK : REUSE_OUTPUTS;
}

static enum status set_out_ids(struct tensor *t, const struct input_data *d, struct err *e)
{
    return tensor_set(t, 0, d->u->out, tensor_bytes(t), e);
}

struct tensor *input_out_ids(struct inputs *l, struct graph *g, const struct reuse_facts *f)
{
    static const struct input_ops ops = {"inp_out_ids", fits_out_ids, set_out_ids};
    int64_t n = f->n_outputs;

    return input_add(l, g, &ops, DT_I32, 1, &n);
}

/* ---- recurrent state ---- */

static enum reuse_reason fits_seqs(const struct tensor *t, const struct reuse_facts *f)
{
    return t->ne[0] == f->n_seqs ? REUSE_OK : REUSE_INPUT;
}

/* Of the i-th sequence of an equal split. */
static const struct seq_state *state_of(const struct input_data *d, int64_t i)
{
    return &d->state->seq[d->u->seq_id[i * d->u->n_seq_tokens]];
}

static enum status set_state_from(struct tensor *t, const struct input_data *d, struct err *e)
{
    int32_t from[SEQ_MAX];

    for (int64_t i = 0; i < t->ne[0]; i++)
        from[i] = state_of(d, i)->from;
    return tensor_set(t, 0, from, tensor_bytes(t), e);
}

static enum status set_state_to(struct tensor *t, const struct input_data *d, struct err *e)
{
    int64_t to[SEQ_MAX];

    for (int64_t i = 0; i < t->ne[0]; i++)
        to[i] = state_of(d, i)->to;
    return tensor_set(t, 0, to, tensor_bytes(t), e);
}

struct tensor *input_state_from(struct inputs *l, struct graph *g, const struct reuse_facts *f)
{
    static const struct input_ops ops = {"inp_state_from", fits_seqs, set_state_from};
    int64_t n = f->n_seqs;

    return input_add(l, g, &ops, DT_I32, 1, &n);
}

struct tensor *input_state_to(struct inputs *l, struct graph *g, const struct reuse_facts *f)
{
    static const struct input_ops ops = {"inp_state_to", fits_seqs, set_state_to};
    int64_t n = f->n_seqs;

    return input_add(l, g, &ops, DT_I64, 1, &n);
}
