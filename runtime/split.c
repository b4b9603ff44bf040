/*
 * Pass 5: cut the graph, whose nodes have their devices, into splits.
 *
 *     cut       a new device starts a split, or a weight whose copy can use the memory of another's
 *     copy      what the split's device cannot read where it is; host weights last
 *     twins     what is written from outside a device's own order exists once per pipeline slot
 *     shadows   a node that reads a copy or a twin is run through a second struct tensor, so that the
 *               caller's tensors are not touched
 *
 * Invariants 4 to 6 of sched.c are made here.
 */
#include "runtime/split.h"

#include <assert.h>
#include <string.h>

#include "gguf/base/mem.h"

#define STAGING_MAX ((size_t)1 << 20) /* bytes; larger copies go through in pieces */

static struct device *device(const struct plan *p, int d)
{
    return p->devs->dev[d];
}

/* ---- copies ---- */

/* The copy of `src` on device d that may be read in split s, or -1. */
static int find_copy(const struct plan *p, int src, int d, int s)
{
    const struct plan_tensor *pt = &p->tensors[src];
    bool changes = pt->owner < 0 || p->tensors[pt->owner].writer >= 0;

    for (int c = pt->newest_copy; c >= 0; c = p->tensors[c].newest_copy) {
        if (p->tensors[c].dev != d)
            continue;
        /* A weight's copy is large: it lives in one split only. What ops write into may have
         * changed. */
        if (p->tensors[c].split == s || !(pt->weight || changes))
            return c;
    }
    return -1;
}

static bool must_copy(const struct plan *p, int src, int d)
{
    return !device_supports_buft(device(p, d), plan_buft(p, src));
}

/* Its bytes are, or may be, computed by nodes [i_start, i). */
static bool changes_in(const struct plan *p, int slot, int i_start, int i)
{
    int o = p->tensors[slot].owner;

    if (o < 0 || (o >= i_start && o < i && plan_computes(&p->tensors[o])))
        return true;
    for (int w = p->tensors[o].writer; w >= 0 && w < i; w = p->tensors[w].writer) {
        if (w >= i_start)
            return true;
    }
    return false;
}

/* Experts of source 0 that lie one behind the other in host memory and must be copied to device d. */
static bool copies_experts(const struct plan *p, int slot, int d)
{
    const struct plan_tensor *pt = &p->tensors[slot], *w;

    if (pt->op != OP_MUL_MAT_ID || pt->src[0] < 0 || pt->src[2] < 0)
        return false;
    w = &p->tensors[pt->src[0]];
    return w->weight && plan_buft(p, pt->src[0])->is_host && must_copy(p, pt->src[0], d) &&
           w->ne[3] == 1 && tensor_bytes(w->t) <= w->nb[2] * (size_t)w->ne[2];
}

/*
 * A weight to copy into a split that has inputs already: a new split can use their memory again. Or
 * experts of which only some are copied, when the split itself computes which.
 */
static bool weight_cuts(const struct plan *p, int slot, const struct plan_split *sp, int s)
{
    const struct plan_tensor *pt = &p->tensors[slot];

    if (copies_experts(p, slot, sp->dev) && find_copy(p, pt->src[0], sp->dev, s) < 0 &&
        changes_in(p, pt->src[2], sp->i_start, slot))
        return true;
    if (sp->n_inputs == 0)
        return false;
    for (int j = 0; j < TENSOR_SRC; j++) {
        int src = pt->src[j];

        if (src >= 0 && p->tensors[src].weight && must_copy(p, src, sp->dev) &&
            find_copy(p, src, sp->dev, s) < 0)
            return true;
    }
    return false;
}

static enum status new_split(struct plan *p, int dev, int i_start, struct err *e)
{
    if (!mem_room(&p->splits, &p->cap_splits, p->n_splits + 1, sizeof *p->splits))
        return err_nomem(e, "the splits of a plan", (size_t)p->n_splits * sizeof *p->splits);
    if (p->n_splits > 0)
        p->splits[p->n_splits - 1].i_end = i_start;
    else
        i_start = 0;
    p->splits[p->n_splits++] = (struct plan_split){.dev = dev,
                                                   .i_start = i_start,
                                                   .i_end = p->n_nodes,
                                                   .first_input = p->n_inputs,
                                                   .first_run = p->n_run};
    return ST_OK;
}

/* Enter a copy of `src` for the last split; its tensor is made when all copies are known. */
static enum status add_copy(struct plan *p, int src, struct err *e)
{
    int c = p->n_tensors, s = p->n_splits - 1;
    struct plan_split *sp = &p->splits[s];
    struct plan_tensor *pt, *orig;

    if (!mem_room(&p->tensors, &p->cap_tensors, c + 1, sizeof *p->tensors) ||
        !mem_room(&p->inputs, &p->cap_inputs, p->n_inputs + 1, sizeof *p->inputs))
        return err_nomem(e, "the copies of a plan", (size_t)(c + 1) * sizeof *p->tensors);
    pt = &p->tensors[c];
    orig = &p->tensors[src];
    *pt = (struct plan_tensor){
        .owner = c,
        .dev = sp->dev,
        .cause = CAUSE_4_CUR,
        .writer = -1,
        .copy_of = src,
        .newest_copy = orig->newest_copy,
        .split = s,
        .ids = -1,
        .twin = -1,
        .twin_of = -1,
        .buf = -1,
        .op = OP_NONE,
        .type = orig->type,
    };
    for (int j = 0; j < TENSOR_SRC; j++)
        pt->src[j] = -1;
    memcpy(pt->ne, orig->ne, sizeof pt->ne);
    memcpy(pt->nb, orig->nb, sizeof pt->nb);
    orig->newest_copy = c;
    p->n_tensors++;
    p->inputs[p->n_inputs++] = c;
    sp->n_inputs++;
    return ST_OK;
}

/*
 * Where to read the ids that node `slot` of split s reads, before it starts: the tensor itself or, in
 * place of a copy that the split makes, its original on the host. -1: nowhere.
 */
static int ids_before(const struct plan *p, int slot, int s)
{
    int ids = p->tensors[slot].src[2];
    const struct plan_tensor *pt = &p->tensors[ids];

    if (pt->copy_of >= 0)
        return pt->split == s && plan_buft(p, pt->copy_of)->is_host ? pt->copy_of : ids;
    return changes_in(p, ids, p->splits[s].i_start, slot) ? -1 : ids;
}

/* Copy only the experts that are needed, if all readers of the copy need the same. */
static void note_ids(struct plan *p, int copy, int ids, bool first)
{
    if (first)
        p->tensors[copy].ids = ids;
    else if (p->tensors[copy].ids != ids)
        p->tensors[copy].ids = -1;
}

/* Let the node read copies of what its device cannot read where it is. */
static enum status add_run(struct plan *p, int slot, struct err *e)
{
    int s = p->n_splits - 1, d = p->splits[s].dev, n = p->n_tensors;
    bool experts = copies_experts(p, slot, d);
    size_t work;

    for (int j = 0; j < TENSOR_SRC; j++) {
        int src = p->tensors[slot].src[j], c;
        enum status st;

        if (src < 0 || !must_copy(p, src, d))
            continue;
        c = find_copy(p, src, d, s);
        if (c < 0) {
            c = p->n_tensors;
            st = add_copy(p, src, e);
            if (st)
                return st;
        }
        p->tensors[slot].src[j] = c;
    }
    for (int j = 0; j < TENSOR_SRC; j++) {
        int c = p->tensors[slot].src[j];

        if (c >= 0 && p->tensors[c].copy_of >= 0)
            note_ids(p, c, experts && j == 0 ? ids_before(p, slot, s) : -1, c >= n);
    }
    if (!mem_room(&p->run_slot, &p->cap_run_slot, p->n_run + 1, sizeof *p->run_slot))
        return err_nomem(e, "the nodes of a plan", (size_t)p->n_run * sizeof *p->run_slot);
    p->run_slot[p->n_run++] = slot;
    p->splits[s].n_run++;
    work = device_work_size(device(p, d), p->tensors[slot].t);
    if (work > p->dev[d].scratch)
        p->dev[d].scratch = work;
    return ST_OK;
}

/* Host weights last: by then whoever watches the copies has seen the split's other inputs. */
static void sort_inputs(struct plan *p, const struct plan_split *sp)
{
    int32_t *in = &p->inputs[sp->first_input];

    /* a stable insertion: each input that is no host weight moves in front of those that are */
    for (int i = 0, front = 0; i < sp->n_inputs; i++) {
        int32_t c = in[i], src = p->tensors[c].copy_of;

        if (p->tensors[src].weight && plan_buft(p, src)->is_host)
            continue;
        memmove(&in[front + 1], &in[front], (size_t)(i - front) * sizeof *in);
        in[front++] = c;
    }
}

/* ---- twins and shadows ---- */

/*
 * Written by somebody else than the device that reads it, in its own order: what the host writes for a
 * replay, and copies that the source's device makes. A host weight is fetched by the reader itself.
 */
static bool per_pipe(const struct plan *p, int slot)
{
    const struct plan_tensor *pt = &p->tensors[slot], *po;

    if (pt->copy_of >= 0)
        return !(p->tensors[pt->copy_of].weight && plan_buft(p, pt->copy_of)->is_host);
    if (pt->owner < 0)
        return false;
    po = &p->tensors[pt->owner];
    return !po->external && po->op == OP_NONE && (po->flags & TENSOR_INPUT) &&
           !(po->flags & TENSOR_KEEP);
}

static void enter_twin(struct plan *p, int slot, int pipe)
{
    struct plan_tensor *orig = &p->tensors[slot];
    struct plan_tensor *pt = &p->tensors[plan_in_pipe(p, slot, pipe)];

    *pt = *orig;
    pt->owner = plan_in_pipe(p, orig->owner, pipe);
    pt->op = OP_NONE;
    pt->flags = 0;
    pt->writer = pt->copy_of = pt->newest_copy = pt->split = pt->ids = pt->twin = -1;
    pt->twin_of = slot;
    for (int j = 0; j < TENSOR_SRC; j++)
        pt->src[j] = -1;
}

static enum status add_twins(struct plan *p, struct err *e)
{
    int n = p->n_tensors, n_twins = 0;

    for (int i = 0; i < n && p->n_pipe > 1; i++) {
        if (!per_pipe(p, i))
            continue;
        p->tensors[i].twin = n + n_twins;
        n_twins += p->n_pipe - 1;
    }
    if (!mem_room(&p->tensors, &p->cap_tensors, n + n_twins, sizeof *p->tensors))
        return err_nomem(e, "the slots of a plan", (size_t)(n + n_twins) * sizeof *p->tensors);
    for (int i = 0; i < n; i++) {
        for (int k = 1; k < p->n_pipe && p->tensors[i].twin >= 0; k++)
            enter_twin(p, i, k);
    }
    p->n_tensors += n_twins;
    return ST_OK;
}

/* The node is not what it is in the graph, or, in a later pipeline slot, not what it is in the first. */
static bool needs_shadow(const struct plan *p, int slot, int pipe)
{
    const struct plan_tensor *pt = &p->tensors[slot];
    bool differs = plan_in_pipe(p, slot, pipe) != slot;

    for (int j = 0; j < TENSOR_SRC && !differs; j++) {
        int src = pt->src[j];

        differs = src >= 0 &&
                  (pipe == 0 ? p->tensors[src].copy_of >= 0 : plan_in_pipe(p, src, pipe) != src);
    }
    return differs;
}

static enum status find_shadows(struct plan *p, struct err *e)
{
    for (int r = 0; r < p->n_run * p->n_pipe; r++) {
        if (!needs_shadow(p, p->run_slot[r % p->n_run], r / p->n_run))
            continue;
        if (!mem_room(&p->shadow_of, &p->cap_shadow_of, p->n_shadows + 1, sizeof *p->shadow_of))
            return err_nomem(e, "the nodes of a plan", (size_t)p->n_run * sizeof *p->shadow_of);
        p->shadow_of[p->n_shadows++] = r;
    }
    return ST_OK;
}

/* The tensor of a copy or twin; `own` has them in the order of the table. */
static void make_copy(struct plan *p, int slot)
{
    struct plan_tensor *pt = &p->tensors[slot];
    const struct plan_tensor *base = pt->twin_of >= 0 ? &p->tensors[pt->twin_of] : pt;
    struct tensor *t = &p->own[slot - p->n_nodes - p->n_leafs];

    *t = (struct tensor){.type = pt->type};
    memcpy(t->ne, pt->ne, sizeof t->ne);
    memcpy(t->nb, pt->nb, sizeof t->nb);
    pt->t = t;
    if (base == pt)
        tensor_set_name(t, "%.40s@%.20s", p->tensors[pt->copy_of].t->name,
                        device(p, pt->dev)->name);
    else
        tensor_set_name(t, "%.58s#%d", base->t->name, slot - base->twin + 1);
}

/* Views of twins name their owners, which all have tensors now. */
static void make_view(struct plan *p, int slot)
{
    struct plan_tensor *pt = &p->tensors[slot];

    if (pt->owner == slot)
        return;
    pt->t->view_src = p->tensors[pt->owner].t;
    pt->t->view_offs = pt->view_offs;
}

static struct tensor *make_shadow(struct plan *p, struct tensor *t, int r)
{
    int slot = p->run_slot[r % p->n_run], pipe = r / p->n_run;
    const struct plan_tensor *pt = &p->tensors[slot];

    *t = *pt->t;
    for (int j = 0; j < TENSOR_SRC; j++) {
        if (pt->src[j] >= 0)
            t->src[j] = p->tensors[plan_in_pipe(p, pt->src[j], pipe)].t;
    }
    if (plan_in_pipe(p, slot, pipe) != slot)
        t->view_src = p->tensors[plan_in_pipe(p, pt->owner, pipe)].t;
    return t;
}

/* Make the tensors of copies, twins and shadows, now that their number is known. */
static enum status make_own(struct plan *p, struct err *e)
{
    int first = p->n_nodes + p->n_leafs, n_run = p->n_run * p->n_pipe;
    int n = p->n_tensors - first + p->n_shadows;

    if (!mem_room(&p->own, &p->cap_own, n, sizeof *p->own) ||
        !mem_room(&p->run, &p->cap_run, n_run, sizeof(*p->run)) ||
        !mem_room(&p->run_uses, &p->cap_run_uses, p->n_run, sizeof *p->run_uses))
        return err_nomem(e, "the copies of a plan", (size_t)n * sizeof *p->own);
    p->n_own = n;
    for (int i = first; i < p->n_tensors; i++)
        make_copy(p, i);
    for (int i = first; i < p->n_tensors; i++)
        make_view(p, i);
    for (int r = 0; r < p->n_run; r++) {
        p->run[r] = p->tensors[p->run_slot[r]].t;
        p->run_uses[r] = p->tensors[p->run_slot[r]].uses;
    }
    for (int r = 0, i = 0; r < n_run; r++) {
        if (r >= p->n_run)
            p->run[r] = p->run[r % p->n_run];
        if (i < p->n_shadows && p->shadow_of[i] == r)
            p->run[r] = make_shadow(p, &p->own[p->n_tensors - first + i++], r);
    }
    return ST_OK;
}

static void measure_staging(struct plan *p)
{
    for (int i = 0; i < p->n_inputs; i++) {
        const struct plan_tensor *c = &p->tensors[p->inputs[i]];
        size_t n = tensor_bytes(c->t);

        if (plan_buft(p, c->copy_of)->is_host || device(p, c->dev)->buft->is_host)
            continue;
        if (n > STAGING_MAX)
            n = STAGING_MAX;
        if (n > p->n_staging)
            p->n_staging = n;
    }
}

static void measure_ids(struct plan *p)
{
    for (int i = 0; i < p->n_inputs; i++) {
        const struct plan_tensor *c = &p->tensors[p->inputs[i]];
        size_t at, n;

        if (c->ids < 0)
            continue;
        n = plan_ids_room(c->ne[2], p->tensors[c->ids].t, &at);
        if (n > p->n_ids)
            p->n_ids = n;
    }
}

/* ---- the pass ---- */

enum status split_graph(struct plan *p, struct err *e)
{
    enum status st;

    for (int i = 0; i < p->n_nodes; i++) {
        const struct plan_tensor *pt = &p->tensors[i];
        int s = p->n_splits - 1;

        if (!plan_computes(pt))
            continue;
        if (s < 0 || pt->dev != p->splits[s].dev || weight_cuts(p, i, &p->splits[s], s)) {
            st = new_split(p, pt->dev, i, e);
            if (st)
                return st;
        }
        st = add_run(p, i, e);
        if (st)
            return st;
    }
    for (int s = 0; s < p->n_splits; s++)
        sort_inputs(p, &p->splits[s]);
    st = add_twins(p, e);
    if (!st)
        st = find_shadows(p, e);
    if (!st)
        st = make_own(p, e);
    if (st)
        return st;
    measure_staging(p);
    measure_ids(p);
    return ST_OK;
}
