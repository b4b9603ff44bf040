#include "runtime/graph_sampling.h"

#include <math.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/arch.h"
#include "runtime/graph.h"
#include "runtime/inputs.h"
#include "runtime/reuse.h"

enum status graph_sampling_check(const struct graph_sampling *gs, struct err *e)
{
    if (gs->temp == 0 || (gs->temp > 0 && isfinite(gs->temp) && isfinite(1 / gs->temp)))
        return ST_OK;
    return err_set(e, ST_USAGE, "a temperature of %g cannot be part of a graph", (double)gs->temp);
}

int32_t graph_sampling_n(const struct graph_sampling *gs, uint32_t n_vocab)
{
    if (gs->argmax || gs->top_k <= 0)
        return gs->argmax;
    return (uint32_t)gs->top_k < n_vocab ? gs->top_k : (int32_t)n_vocab;
}

/* What the logits are divided by; 1: nothing is done. */
static float temperature(const struct graph_sampling *gs)
{
    return gs->argmax || gs->temp == 0 ? 1 : gs->temp;
}

/* From the top: the bits of the temperature, 31 bits of k, 0 for the largest alone, and one for the mask. */
uint64_t graph_sampling_key(const struct graph_sampling *gs, uint32_t n_vocab)
{
    uint64_t k = gs->argmax ? 0 : (uint64_t)graph_sampling_n(gs, n_vocab);
    float temp = temperature(gs);
    uint32_t bits;

    if (!graph_sampling_on(gs))
        return 0;
    memcpy(&bits, &temp, sizeof bits);
    return (uint64_t)bits << 32 | k << 1 | (gs->allowed != NULL);
}

/* ---- in the graph ---- */

/* The number of bits is the model's. */
static enum reuse_reason fits_allowed(const struct tensor *t, const struct reuse_facts *f)
{
    (void)t;
    (void)f;
    return REUSE_OK;
}

static enum status set_allowed(struct tensor *t, const struct input_data *d, struct err *e)
{
    return tensor_set(t, 0, d->allowed, tensor_bytes(t), e);
}

static struct tensor *input_allowed(struct build *b)
{
    static const struct input_ops ops = {"inp_allowed", fits_allowed, set_allowed};
    int64_t n = (b->m->hp.n_vocab + 31) / 32;

    return input_add(b->in, b->g, &ops, DT_I32, 1, &n);
}

/* [1, n_outputs] */
static struct tensor *sum_of_squares(struct build *b)
{
    struct tensor *rows =
        op_reshape(b->g, b->logits, 3, (int64_t[]){b->m->hp.n_vocab, 1, b->f->n_outputs});

    rows = named(op_mul_mat(b->g, rows, rows), "logits_squares");
    return op_reshape(b->g, rows, 2, (int64_t[]){1, b->f->n_outputs});
}

/* [n, n_outputs] */
static struct tensor *choose(struct build *b, const struct graph_sampling *gs, struct tensor *x)
{
    struct param_top_k p = {.k = graph_sampling_n(gs, b->m->hp.n_vocab)};

    if (!gs->argmax)
        return op_top_k(b->g, x, &p);
    return op_reshape(b->g, op_argmax(b->g, x), 2, (int64_t[]){1, b->f->n_outputs});
}

/*
 * The bits live to the end: they go before all other inputs. Between them, they would split the room that
 * these leave, and the memory of a graph would go up and down with the length of the cache.
 */
void graph_sampling_begin(struct build *b, const struct graph_sampling *gs)
{
    if (graph_sampling_on(gs) && gs->allowed && b->f->n_outputs)
        graph_order(b->g, input_allowed(b));
}

void graph_sampling_build(struct build *b, const struct graph_sampling *gs,
                          struct sampled_nodes *out)
{
    float temp = temperature(gs);
    struct tensor *x = b->logits, *chosen;

    *out = (struct sampled_nodes){NULL, NULL};
    if (!x || !graph_sampling_on(gs))
        return;
    if (gs->allowed)
        x = named(op_mask_bits(b->g, x, input_allowed(b)), "logits_allowed");
    out->ids = output(named(choose(b, gs, x), "sampled_ids"));
    chosen = op_pick(b->g, x, out->ids);
    if (temp != 1)
        chosen = op_scale(b->g, chosen, 1 / temp, 0);
    out->values = output(named(op_concat(b->g, chosen, sum_of_squares(b)), "sampled_values"));
    graph_expand(b->g, out->values);
}

/* ---- on the host ---- */

enum status sampled_reserve(struct sampled *r, int32_t n, struct err *e)
{
    struct sampled more = {.cap = n};

    if (n <= r->cap)
        return ST_OK;
    more.ids = mem_array((size_t)n, sizeof *r->ids);
    more.values = mem_array((size_t)n + 1, sizeof *r->values);
    if (!more.ids || !more.values) {
        sampled_release(&more);
        return err_nomem(e, "what the graph samples", (size_t)n * 2 * sizeof *r->values);
    }
    sampled_release(r);
    *r = more;
    return ST_OK;
}

void sampled_release(struct sampled *r)
{
    mem_free(r->ids);
    mem_free(r->values);
    *r = (struct sampled){0};
}

enum status sampled_read(struct sampled *r, const struct sampled_nodes *from, int32_t i,
                         struct err *e)
{
    size_t n = (size_t)from->ids->ne[0];
    enum status st =
        tensor_get(from->ids, (size_t)i * from->ids->nb[1], r->ids, n * sizeof *r->ids, e);

    if (!st)
        st = tensor_get(from->values, (size_t)i * from->values->nb[1], r->values,
                        (n + 1) * sizeof *r->values, e);
    r->n = st ? 0 : (int32_t)n;
    return st;
}

bool sampled_finite(const struct sampled *r)
{
    return isfinite(r->values[r->n]);
}
