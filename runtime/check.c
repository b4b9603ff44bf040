#include "runtime/check.h"

#include <stdlib.h>
#include <string.h>

#include "gguf/base/mem.h"

#define PAIRS_MAX 3000 /* tensors; for more the quadratic check is left to the map of writers */

/* ---- what everybody asks ---- */

struct name { /* address of a tensor -> its slot */
    const struct tensor *t;
    int slot;
};

struct world {
    const struct plan *p;
    const struct graph *g;
    struct name *names; /* [n] sorted by address */
    int n;
    int *writers; /* [n_writers] nodes that write into another tensor */
    int n_writers;
};

static bool writes_into(const struct tensor *t)
{
    return t->op == OP_SET_ROWS;
}

static void world_release(struct world *w)
{
    mem_free(w->names);
    mem_free(w->writers);
}

static int by_address(const void *x, const void *y)
{
    const struct name *a = x, *b = y;

    return ((uintptr_t)a->t > (uintptr_t)b->t) - ((uintptr_t)a->t < (uintptr_t)b->t);
}

/* The slots of the graph, and of the plan's copies once they have tensors. */
static enum status world_init(struct world *w, const struct plan *p, const struct graph *g,
                              struct err *e)
{
    int n_graph = g->n_nodes + g->n_leafs;

    *w = (struct world){.p = p, .g = g};
    w->names = mem_array((size_t)p->n_tensors, sizeof *w->names);
    w->writers = mem_array((size_t)g->n_nodes, sizeof *w->writers);
    if (!w->names || !w->writers) {
        world_release(w);
        return err_nomem(e, "checking a plan", (size_t)p->n_tensors * sizeof *w->names);
    }
    for (int i = 0; i < g->n_nodes; i++) {
        if (writes_into(g->nodes[i]))
            w->writers[w->n_writers++] = i;
    }
    for (int i = 0; i < p->n_tensors; i++) {
        const struct tensor *t = i < g->n_nodes ? g->nodes[i]
                                 : i < n_graph  ? g->leafs[i - g->n_nodes]
                                                : p->tensors[i].t;

        if (t)
            w->names[w->n++] = (struct name){t, i};
    }
    qsort(w->names, (size_t)w->n, sizeof *w->names, by_address);
    return ST_OK;
}

static int slot_of(const struct world *w, const struct tensor *t)
{
    struct name key = {t, 0};
    const struct name *found = bsearch(&key, w->names, (size_t)w->n, sizeof key, by_address);

    return found ? found->slot : -1;
}

static const struct tensor *tensor_at(const struct world *w, int slot)
{
    return w->p->tensors[slot].t;
}

static const struct tensor *owner_of(const struct tensor *t)
{
    return t->view_src ? t->view_src : t;
}

/* In a buffer, and not in one of the planner's. */
static bool exists(const struct world *w, const struct tensor *t)
{
    const struct buffer *b = owner_of(t)->buffer;

    for (int i = 0; i < w->p->n_own_buffers; i++) {
        if (b == w->p->own_buffers[i])
            return false;
    }
    return b != NULL;
}

static bool computes_nothing(const struct tensor *t)
{
    switch (t->op) {
    case OP_NONE:
    case OP_RESHAPE:
    case OP_VIEW:
    case OP_PERMUTE:
    case OP_TRANSPOSE:
        return true;
    default:
        return false;
    }
}

static bool runs(const struct tensor *t)
{
    return !computes_nothing(t) && (t->flags & TENSOR_COMPUTE);
}

static struct device *dev_at(const struct plan *p, int d)
{
    return p->devs->dev[d];
}

static bool dev_reads(const struct plan *p, int d, const struct buft *bt)
{
    struct device *dev = dev_at(p, d);

    return dev->buft == bt || dev->ops->supports_buft(dev, bt);
}

static bool dev_computes(const struct plan *p, int d, const struct tensor *t)
{
    return computes_nothing(t) || dev_at(p, d)->ops->supports_op(dev_at(p, d), t);
}

/* Memory type of a graph tensor or copy, NULL while undecided. */
static const struct buft *memory_of(const struct world *w, const struct tensor *t)
{
    const struct tensor *o = owner_of(t);
    int slot;

    if (exists(w, t))
        return o->buffer->buft;
    slot = slot_of(w, o);
    return slot < 0 || w->p->tensors[slot].dev < 0 ? NULL
                                                   : dev_at(w->p, w->p->tensors[slot].dev)->buft;
}

/* Could node t be on device d, by what its bytes, its op and the ops that write into it ask for? */
static bool fits(const struct world *w, const struct tensor *t, int d)
{
    if (exists(w, t) && !dev_reads(w->p, d, owner_of(t)->buffer->buft))
        return false;
    if (!dev_computes(w->p, d, t))
        return false;
    for (int k = 0; k < w->n_writers && !t->view_src; k++) {
        const struct tensor *x = w->g->nodes[w->writers[k]];

        if (x->view_src == t && !dev_computes(w->p, d, x))
            return false;
    }
    return true;
}

/* A node whose place is not its own choice. */
static bool is_led(const struct world *w, const struct tensor *t)
{
    return computes_nothing(t) || (t->view_src && !exists(w, t));
}

#define FAIL(e, ...) err_set(e, ST_UNSUPPORTED, "plan check: " __VA_ARGS__)

/* ---- promises of the passes ---- */

static enum status check_pass1(const struct world *w, struct err *e)
{
    const struct plan *p = w->p;

    for (int i = 0; i < p->n_tensors; i++) {
        const struct plan_tensor *pt = &p->tensors[i];
        const struct tensor *t = tensor_at(w, i);
        bool able = false;

        if ((pt->dev < 0) != (pt->cause == CAUSE_NONE))
            return FAIL(e, "pass 1: '%s' has a device or a cause, not both", t->name);
        if (pt->dev >= 0 && !fits(w, t, pt->dev))
            return FAIL(e, "pass 1: '%s' cannot be on '%s'", t->name, dev_at(p, pt->dev)->name);
        for (int d = 0; d < p->devs->n; d++)
            able |= fits(w, t, d);
        if (exists(w, t) && able && pt->dev < 0)
            return FAIL(e, "pass 1: '%s' has bytes, but no device", t->name);
        if (!exists(w, t) && !t->view_src && (t->flags & TENSOR_INPUT) &&
            fits(w, t, p->devs->n - 1) && pt->dev != p->devs->n - 1)
            return FAIL(e, "pass 1: input '%s' is not on the last device", t->name);
    }
    return ST_OK;
}

/* The device of the next decided node from i in direction `by`, or -1. */
static int neighbour(const struct world *w, int i, int by)
{
    for (i += by; i >= 0 && i < w->g->n_nodes; i += by) {
        if (!is_led(w, w->g->nodes[i]) && w->p->tensors[i].dev >= 0)
            return w->p->tensors[i].dev;
    }
    return -1;
}

static enum status check_pass2(const struct world *w, struct err *e)
{
    for (int i = 0; i < w->g->n_nodes; i++) {
        const struct tensor *t = w->g->nodes[i];

        if (is_led(w, t) || w->p->tensors[i].dev >= 0)
            continue;
        for (int by = -1; by <= 1; by += 2) {
            int d = neighbour(w, i, by);

            if (d >= 0 && fits(w, t, d))
                return FAIL(e, "pass 2: '%s' could share '%s' with a neighbour", t->name,
                            dev_at(w->p, d)->name);
        }
    }
    return ST_OK;
}

static bool reads_all(const struct world *w, const struct tensor *t, int d)
{
    for (int j = 0; j < TENSOR_SRC; j++) {
        const struct buft *bt = t->src[j] ? memory_of(w, t->src[j]) : NULL;

        if (bt && !dev_reads(w->p, d, bt))
            return false;
    }
    return true;
}

static enum status check_pass3(const struct world *w, struct err *e)
{
    for (int i = 0; i < w->g->n_nodes; i++) {
        const struct tensor *t = w->g->nodes[i];
        int dev = w->p->tensors[i].dev;

        if (is_led(w, t))
            continue;
        for (int d = 0; d < (dev < 0 ? w->p->devs->n : dev); d++) {
            if (dev < 0 && fits(w, t, d))
                return FAIL(e, "pass 3: '%s' could be on '%s'", t->name, dev_at(w->p, d)->name);
            if (dev >= 0 && w->p->tensors[i].cause != CAUSE_3_BEST &&
                w->p->tensors[i].cause != CAUSE_3_ANY &&
                dev_at(w->p, d)->buft == dev_at(w->p, dev)->buft && fits(w, t, d) &&
                reads_all(w, t, d))
                return FAIL(e, "pass 3: '%s' could run faster on '%s'", t->name,
                            dev_at(w->p, d)->name);
        }
    }
    return ST_OK;
}

static enum status check_homes(const struct world *w, struct err *e)
{
    const struct plan *p = w->p;

    for (int i = 0; i < p->n_tensors; i++) {
        const struct plan_tensor *pt = &p->tensors[i];
        const struct tensor *t = tensor_at(w, i);
        int o = slot_of(w, owner_of(t));

        if (pt->dev < 0 || pt->dev >= p->devs->n || pt->cause == CAUSE_NONE)
            return FAIL(e, "'%s' has no device or no cause", t->name);
        if (runs(t) && !dev_computes(p, pt->dev, t))
            return FAIL(e, "'%s' cannot be computed on '%s'", t->name, dev_at(p, pt->dev)->name);
        if (exists(w, t) && runs(t) && !dev_reads(p, pt->dev, owner_of(t)->buffer->buft))
            return FAIL(e, "'%s' cannot be written by '%s'", t->name, dev_at(p, pt->dev)->name);
        if (t->view_src && !exists(w, t) && (o < 0 || p->tensors[o].dev != pt->dev))
            return FAIL(e, "'%s' is not where '%s' is", t->name, t->view_src->name);
    }
    return ST_OK;
}

/* ---- splits ---- */

/* Copy c of src, read by node i, is not older than the last change of src. */
static bool is_current(const struct world *w, const struct plan_tensor *c, const struct tensor *src,
                       int i)
{
    int start = w->p->splits[c->split].i_start;

    for (int k = start; k < i; k++) {
        const struct tensor *t = w->g->nodes[k];

        if (!runs(t))
            continue;
        if (t == owner_of(src) || (writes_into(t) && owner_of(t) == owner_of(src)))
            return false;
    }
    return true;
}

static bool is_listed(const struct plan *p, int copy)
{
    const struct plan_split *sp = &p->splits[p->tensors[copy].split];

    for (int k = 0; k < sp->n_inputs; k++) {
        if (p->inputs[sp->first_input + k] == copy)
            return true;
    }
    return false;
}

/* What pipeline slot k has in place of a tensor, seen from its place in pipeline slot 0. */
static int in_pipe(const struct world *w, int slot, int k)
{
    return k > 0 && w->p->tensors[slot].twin >= 0 ? w->p->tensors[slot].twin + k - 1 : slot;
}

/* `used` belongs to pipeline slot k, or to all: the tensor that stands for it in pipeline slot 0. */
static const struct tensor *first_of(const struct world *w, int k, const struct tensor *used)
{
    int slot = used ? slot_of(w, used) : -1, base;

    if (slot < 0)
        return used;
    base = w->p->tensors[slot].twin_of < 0 ? slot : w->p->tensors[slot].twin_of;
    return in_pipe(w, base, k) == slot ? tensor_at(w, base) : NULL;
}

static enum status check_source(const struct world *w, int s, int i, const struct tensor *src,
                                const struct tensor *used, struct err *e)
{
    const struct plan *p = w->p;
    int d = p->splits[s].dev, c;

    if (!src != !used)
        return FAIL(e, "a source of '%s' was lost", w->g->nodes[i]->name);
    if (!src)
        return ST_OK;
    if (src == used) {
        if (!dev_reads(p, d, memory_of(w, src)))
            return FAIL(e, "'%s' on '%s' cannot read '%s'", w->g->nodes[i]->name,
                        dev_at(p, d)->name, src->name);
        return ST_OK;
    }
    c = slot_of(w, used);
    if (c < 0 || p->tensors[c].copy_of != slot_of(w, src) || !tensor_same_layout(src, used) ||
        !dev_reads(p, d, dev_at(p, p->tensors[c].dev)->buft))
        return FAIL(e, "'%s' reads something else than '%s'", w->g->nodes[i]->name, src->name);
    if (p->tensors[c].split < 0 || p->tensors[c].split > s || !is_listed(p, c))
        return FAIL(e, "the copy of '%s' for '%s' is not made in time", src->name,
                    w->g->nodes[i]->name);
    if (!is_current(w, &p->tensors[c], src, i))
        return FAIL(e, "the copy of '%s' for '%s' is out of date", src->name, w->g->nodes[i]->name);
    return ST_OK;
}

/* run[r] of pipeline slot k does what node i does, reading what it reads. */
static enum status check_run(const struct world *w, int k, int s, int r, int i, struct err *e)
{
    const struct tensor *t = w->g->nodes[i], *x = w->p->run[k * w->p->n_run + r];
    enum status st = ST_OK;

    if (w->p->run_slot[r] != i || w->p->tensors[i].dev != w->p->splits[s].dev)
        return FAIL(e, "'%s' is not computed in its turn on its device", t->name);
    if (x->op != t->op || !tensor_same_layout(x, t) || x->flags != t->flags ||
        memcmp(x->params, t->params, sizeof x->params) != 0 ||
        first_of(w, k, x->view_src) != t->view_src)
        return FAIL(e, "'%s' is computed as something else", t->name);
    for (int j = 0; j < TENSOR_SRC && !st; j++) {
        const struct tensor *used = first_of(w, k, x->src[j]);

        if (x->src[j] && !used)
            return FAIL(e, "'%s' reads '%s' in slot %d", t->name, x->src[j]->name, k);
        st = check_source(w, s, i, t->src[j], used, e);
    }
    return st;
}

/* Node i computes ids, or may change them. */
static bool touches(const struct world *w, int i, const struct tensor *ids)
{
    const struct tensor *t = w->g->nodes[i];

    return runs(t) && owner_of(t) == owner_of(ids);
}

/* A copy of some experts: all that read it ask for those, and their ids are known when it is made. */
static enum status check_experts(const struct world *w, int s, int copy, struct err *e)
{
    const struct plan *p = w->p;
    const struct plan_split *sp = &p->splits[s];
    const struct plan_tensor *ids = &p->tensors[p->tensors[copy].ids];
    const struct tensor *asked = ids->copy_of >= 0 ? tensor_at(w, ids->copy_of) : ids->t;

    if (ids->copy_of >= 0 && (ids->split > s || ids->dev != sp->dev))
        return FAIL(e, "'%s' says too late which experts to copy", ids->t->name);
    if (ids->copy_of < 0 && ids->dev != sp->dev && !memory_of(w, ids->t)->is_host)
        return FAIL(e, "'%s' is not where it can be asked for experts", ids->t->name);
    for (int i = sp->i_start; i < sp->i_end; i++) {
        const struct tensor *t = w->g->nodes[i];

        for (int j = 0; j < TENSOR_SRC && runs(t); j++) {
            if (p->tensors[i].src[j] != copy)
                continue;
            if (t->op != OP_MUL_MAT_ID || j != 0 || t->src[2] != asked)
                return FAIL(e, "'%s' reads experts that are not copied", t->name);
            for (int k = sp->i_start; k < i; k++) {
                if (touches(w, k, asked))
                    return FAIL(e, "'%s' is not known when experts are copied", asked->name);
            }
        }
    }
    return ST_OK;
}

static enum status check_inputs(const struct world *w, int s, struct err *e)
{
    const struct plan_split *sp = &w->p->splits[s];
    bool weights = false;

    for (int k = 0; k < sp->n_inputs; k++) {
        const struct plan_tensor *c = &w->p->tensors[w->p->inputs[sp->first_input + k]];
        const struct tensor *src = tensor_at(w, c->copy_of);
        bool weight = exists(w, src) && owner_of(src)->buffer->usage == USAGE_WEIGHTS &&
                      owner_of(src)->buffer->buft->is_host;

        if (c->split != s || c->dev != sp->dev)
            return FAIL(e, "split %d lists a copy of another split or device", s);
        if (c->ids >= 0 && !weight)
            return FAIL(e, "split %d copies only part of '%s'", s, src->name);
        if (c->ids >= 0) {
            enum status st = check_experts(w, s, w->p->inputs[sp->first_input + k], e);

            if (st)
                return st;
        }
        if (weights && !weight)
            return FAIL(e, "split %d copies '%s' after host weights", s, src->name);
        weights |= weight;
    }
    return ST_OK;
}

static enum status check_splits(const struct world *w, struct err *e)
{
    const struct plan *p = w->p;
    int i = 0, r = 0;

    for (int s = 0; s < p->n_splits; s++) {
        const struct plan_split *sp = &p->splits[s];
        enum status st = check_inputs(w, s, e);

        if (st)
            return st;
        if (sp->i_start != i || sp->i_end <= sp->i_start || sp->first_run != r)
            return FAIL(e, "split %d does not continue the one before", s);
        for (; i < sp->i_end; i++) {
            if (!runs(w->g->nodes[i]))
                continue;
            if (r >= p->n_run)
                return FAIL(e, "'%s' is never computed", w->g->nodes[i]->name);
            for (int k = 0; k < p->n_pipe && !st; k++)
                st = check_run(w, k, s, r, i, e);
            if (st)
                return st;
            r++;
        }
        if (sp->n_run != r - sp->first_run || sp->n_run == 0)
            return FAIL(e, "split %d computes %d nodes, says %d", s, r - sp->first_run, sp->n_run);
    }
    for (; i < w->g->n_nodes; i++) {
        if (p->n_splits > 0 || runs(w->g->nodes[i]))
            return FAIL(e, "'%s' is in no split", w->g->nodes[i]->name);
    }
    return r == p->n_run ? ST_OK : FAIL(e, "%d nodes too many are computed", p->n_run - r);
}

/* ---- pipeline slots ---- */

/* What the host, or another device, writes while an earlier replay may be in work. */
static bool needs_twins(const struct world *w, int slot)
{
    const struct tensor *t = tensor_at(w, slot), *o;
    int from = w->p->tensors[slot].copy_of;

    if (from >= 0) {
        t = tensor_at(w, from);
        return !exists(w, t) || owner_of(t)->buffer->usage != USAGE_WEIGHTS ||
               !owner_of(t)->buffer->buft->is_host;
    }
    o = owner_of(t);
    return !exists(w, t) && o->op == OP_NONE && (o->flags & TENSOR_INPUT) &&
           !(o->flags & TENSOR_KEEP);
}

/* Each has its twins, which are like it, belong to nobody else, and are views of each other's owners. */
static enum status check_twins(const struct world *w, struct err *e)
{
    const struct plan *p = w->p;

    for (int i = 0; i < p->n_tensors; i++) {
        const struct tensor *t = tensor_at(w, i);

        if (p->tensors[i].twin_of >= 0)
            continue;
        if ((p->tensors[i].twin >= 0) != (p->n_pipe > 1 && needs_twins(w, i)))
            return FAIL(e, "'%s' is not what it should be in %d slots", t->name, p->n_pipe);
        for (int k = 1; k < p->n_pipe && p->tensors[i].twin >= 0; k++) {
            int twin = in_pipe(w, i, k), owner = slot_of(w, owner_of(t));
            const struct tensor *x = tensor_at(w, twin);

            if (p->tensors[twin].twin_of != i || p->tensors[twin].dev != p->tensors[i].dev ||
                !tensor_same_layout(x, t) || x->view_offs != t->view_offs ||
                slot_of(w, owner_of(x)) != in_pipe(w, owner, k))
                return FAIL(e, "'%s' is something else in slot %d", t->name, k);
        }
    }
    return ST_OK;
}

static enum status check_all_sched(const struct world *w, struct err *e)
{
    enum status st = check_homes(w, e);

    if (!st)
        st = check_twins(w, e);
    return st ? st : check_splits(w, e);
}

enum status check_pass(const struct plan *p, const struct graph *g, int pass, struct err *e)
{
    struct world w;
    enum status st = world_init(&w, p, g, e);

    if (st)
        return st;
    if (pass == 1)
        st = check_pass1(&w, e);
    else if (pass == 2)
        st = check_pass2(&w, e);
    else if (pass == 3)
        st = check_pass3(&w, e);
    else if (pass == 4)
        st = p->orphan < 0 ? check_homes(&w, e) : ST_OK;
    else
        st = check_all_sched(&w, e);
    world_release(&w);
    return st;
}

enum status check_sched(const struct plan *p, const struct graph *g, struct err *e)
{
    struct world w;
    enum status st = world_init(&w, p, g, e);

    if (st)
        return st;
    st = check_all_sched(&w, e);
    world_release(&w);
    return st;
}

/* ---- time: who lives when ---- */

struct span_of {
    int from, to;  /* steps, inclusive; 0 is before the run, n_steps - 1 after it */
    int last_refs; /* how many sources name it (or a view of it) at step `to` */
    bool kept;     /* its bytes matter after the run */
    bool early;    /* its bytes are there before the run */
};

struct times {
    struct span_of *span; /* [n_tensors]; of owners */
    int *step;            /* [n_tensors] when a node or copy is made; 0 for leafs */
    int n_steps;
};

static bool placed(const struct world *w, int slot)
{
    const struct tensor *t = tensor_at(w, slot);

    return !t->view_src && !exists(w, t);
}

/* What node t reads as source j after substitution. */
static const struct tensor *really_read(const struct world *w, int slot, int j)
{
    int src = w->p->tensors[slot].src[j];

    return src < 0 ? NULL : tensor_at(w, src);
}

static void touch(const struct world *w, struct times *tm, const struct tensor *t, int step)
{
    int o = slot_of(w, owner_of(t));
    struct span_of *sp;

    if (o < 0)
        return;
    sp = &tm->span[o];
    if (sp->to < step) {
        sp->to = step;
        sp->last_refs = 0;
    }
    sp->last_refs += sp->to == step;
}

/* Steps: one per copy, in the order of the splits' lists, and one per node. */
static void number_steps(const struct world *w, struct times *tm)
{
    const struct plan *p = w->p;
    int step = 0, s = 0;

    for (int i = 0; i < w->g->n_nodes; i++) {
        if (s < p->n_splits && p->splits[s].i_start == i) {
            for (int k = 0; k < p->splits[s].n_inputs; k++)
                tm->step[p->inputs[p->splits[s].first_input + k]] = ++step;
            s++;
        }
        tm->step[i] = ++step;
    }
    tm->n_steps = step + 2;
}

static void keep_what_matters(const struct world *w, struct times *tm)
{
    bool *read = mem_array((size_t)w->p->n_tensors, sizeof *read);

    if (!read) {
        tm->n_steps = 0;
        return;
    }
    for (int i = 0; i < w->p->n_tensors; i++) {
        for (int j = 0; j < TENSOR_SRC; j++) {
            if (w->p->tensors[i].src[j] >= 0)
                read[w->p->tensors[i].src[j]] = true;
        }
        if (w->p->tensors[i].copy_of >= 0)
            read[w->p->tensors[i].copy_of] = true;
    }
    for (int i = 0; i < w->p->n_tensors; i++) {
        const struct tensor *t = tensor_at(w, i);
        int o = slot_of(w, owner_of(t));
        bool copy = w->p->tensors[i].copy_of >= 0;
        bool constant = !copy && t->op == OP_NONE && !t->view_src && !(t->flags & TENSOR_INPUT);
        bool ahead = w->p->n_pipe > 1 && (w->p->tensors[i].twin_of >= 0 || needs_twins(w, i));

        if (o < 0)
            continue;
        if (!read[i] || constant || ahead || (t->flags & (TENSOR_OUTPUT | TENSOR_KEEP)))
            tm->span[o].kept = true;
        if (ahead || (!copy && t->op == OP_NONE && !t->view_src) ||
            (t->flags & (TENSOR_INPUT | TENSOR_KEEP)))
            tm->span[o].early = true;
    }
    mem_free(read);
}

static void times_release(struct times *tm)
{
    mem_free(tm->span);
    mem_free(tm->step);
}

static bool times_init(struct times *tm, const struct world *w)
{
    size_t n = (size_t)w->p->n_tensors;

    *tm = (struct times){0};
    tm->span = mem_array(n, sizeof *tm->span);
    tm->step = mem_array(n, sizeof *tm->step);
    if (!tm->span || !tm->step)
        return false;
    number_steps(w, tm);
    keep_what_matters(w, tm);
    if (tm->n_steps == 0)
        return false;
    for (int i = 0; i < w->p->n_tensors; i++) {
        for (int j = 0; j < TENSOR_SRC; j++) {
            if (really_read(w, i, j))
                touch(w, tm, really_read(w, i, j), tm->step[i]);
        }
        if (w->p->tensors[i].copy_of >= 0)
            touch(w, tm, tensor_at(w, w->p->tensors[i].copy_of), tm->step[i]);
    }
    for (int i = 0; i < w->p->n_tensors; i++) {
        struct span_of *sp = &tm->span[i];

        sp->from = sp->early ? 0 : tm->step[i];
        if (sp->kept)
            sp->to = tm->n_steps - 1;
        if (sp->to < sp->from)
            sp->to = sp->from;
    }
    return true;
}

/* The rules allow node i to be computed over the bytes that src shares with its owner. */
static bool may_take_over(const struct world *w, const struct times *tm, int i,
                          const struct tensor *src)
{
    const struct tensor *t = tensor_at(w, i);
    int o = slot_of(w, owner_of(src));

    return o >= 0 && placed(w, i) && placed(w, o) && (op_info(t->op)->flags & OPF_INPLACE) &&
           !tm->span[i].early && !tm->span[o].kept && tensor_same_layout(t, src) &&
           (!src->view_src || src->view_offs == 0) && tm->span[o].to == tm->step[i] &&
           tm->span[o].last_refs == 1 && w->p->tensors[i].buf == w->p->tensors[o].buf &&
           w->p->tensors[o].size >= w->p->tensors[i].size;
}

static bool has_source_to_take(const struct world *w, const struct times *tm, int i)
{
    for (int j = 0; j < TENSOR_SRC; j++) {
        const struct tensor *src = really_read(w, i, j);

        if (src && may_take_over(w, tm, i, src))
            return true;
    }
    return false;
}

size_t check_least(const struct plan *p, const struct graph *g, int buf)
{
    struct world w;
    struct times tm = {0};
    size_t *sum = NULL, most = SIZE_MAX, now = 0;

    if (world_init(&w, p, g, NULL))
        return most;
    if (!times_init(&tm, &w))
        goto done;
    sum = mem_array((size_t)tm.n_steps + 1, sizeof *sum);
    if (!sum)
        goto done;
    for (int i = 0; i < p->n_tensors; i++) {
        int from;

        if (!placed(&w, i) || p->tensors[i].buf != buf)
            continue;
        from = tm.span[i].from + has_source_to_take(&w, &tm, i);
        sum[from] += p->tensors[i].size;
        sum[tm.span[i].to + 1] -= p->tensors[i].size;
    }
    most = 0;
    for (int t = 0; t < tm.n_steps; t++) {
        now += sum[t];
        if (now > most)
            most = now;
    }
done:
    mem_free(sum);
    times_release(&tm);
    world_release(&w);
    return most;
}

/* ---- space: the address table ---- */

static enum status check_address(const struct world *w, int slot, struct err *e)
{
    const struct plan *p = w->p;
    const struct plan_tensor *pt = &p->tensors[slot];
    const struct tensor *t = tensor_at(w, slot), *o = owner_of(t);
    const struct buft *bt;
    const struct plan_buf *pb;
    size_t chunk, need;

    if (t->view_src && t->view_offs + tensor_bytes(t) > tensor_bytes(o))
        return FAIL(e, "'%s' reaches beyond '%s'", t->name, o->name);
    if (!placed(w, slot))
        return pt->buf < 0 ? ST_OK : FAIL(e, "'%s' has an address of its own", t->name);
    bt = memory_of(w, t);
    if (pt->buf < 0 || pt->buf >= p->n_bufs || p->bufs[pt->buf].buft != bt)
        return FAIL(e, "'%s' is not in memory of its device", t->name);
    pb = &p->bufs[pt->buf];
    if (pt->chunk < 0 || pt->chunk >= pb->n_chunks)
        return FAIL(e, "'%s' is in no chunk", t->name);
    chunk = p->chunks[pb->first_chunk + pt->chunk].size;
    need = bt->tensor_size ? bt->tensor_size(bt, t) : tensor_bytes(t);
    if (pt->size < need || pt->offs % bt->alignment != 0 || pt->size % bt->alignment != 0)
        return FAIL(e, "'%s' is too small or not aligned", t->name);
    if (pt->offs > chunk || pt->size > chunk - pt->offs || chunk > bt->max_size)
        return FAIL(e, "'%s' is not inside its chunk", t->name);
    return ST_OK;
}

static bool bytes_meet(const struct plan_tensor *a, const struct plan_tensor *b)
{
    return a->buf == b->buf && a->chunk == b->chunk && a->offs < b->offs + b->size &&
           b->offs < a->offs + a->size;
}

/* b is computed over bytes of a, as the rules allow. */
static bool hands_over(const struct world *w, const struct times *tm, int a, int b)
{
    for (int j = 0; j < TENSOR_SRC; j++) {
        const struct tensor *src = really_read(w, b, j);

        if (src && slot_of(w, owner_of(src)) == a && may_take_over(w, tm, b, src))
            return w->p->tensors[a].offs == w->p->tensors[b].offs;
    }
    return false;
}

/* Every pair of tensors: not at one time in one place. */
static enum status check_pairs(const struct world *w, const struct times *tm, struct err *e)
{
    const struct plan *p = w->p;

    for (int a = 0; a < p->n_tensors; a++) {
        for (int b = a + 1; placed(w, a) && b < p->n_tensors; b++) {
            const struct span_of *x = &tm->span[a], *y = &tm->span[b];

            if (!placed(w, b) || x->from > y->to || y->from > x->to ||
                !bytes_meet(&p->tensors[a], &p->tensors[b]))
                continue;
            if ((x->to == y->from && hands_over(w, tm, a, b)) ||
                (y->to == x->from && hands_over(w, tm, b, a)))
                continue;
            return FAIL(e, "'%s' and '%s' live at one time in one place", tensor_at(w, a)->name,
                        tensor_at(w, b)->name);
        }
    }
    return ST_OK;
}

/* ---- acting it out: who wrote each byte last ---- */

struct stretch {
    size_t begin, end;
    int who; /* slot */
};

struct map { /* of one chunk: sorted, disjoint */
    struct stretch *s;
    int n, cap;
};

struct stage {
    const struct world *w;
    struct map *maps; /* [n_chunks] */
    int k;            /* pipeline slot */
    struct err *e;
    enum status st;
};

static struct map *map_of(const struct stage *g, int slot)
{
    const struct plan_tensor *pt = &g->w->p->tensors[slot];

    return &g->maps[g->w->p->bufs[pt->buf].first_chunk + pt->chunk];
}

/* First stretch that ends behind x. */
static int map_find(const struct map *m, size_t x)
{
    int lo = 0, hi = m->n;

    while (lo < hi) {
        int mid = (lo + hi) / 2;

        if (m->s[mid].end <= x)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Room for two more: a write cuts one stretch into at most three. */
static bool map_room(struct map *m)
{
    struct stretch *s;

    if (m->n + 2 <= m->cap)
        return true;
    s = mem_grow(m->s, (size_t)(2 * m->cap + 8), sizeof *s);
    if (!s)
        return false;
    m->s = s;
    m->cap = 2 * m->cap + 8;
    return true;
}

static bool map_write(struct map *m, size_t begin, size_t end, int who)
{
    struct stretch left = {0}, right = {0}, put[3];
    int first, last, n = 0;

    if (!map_room(m))
        return false;
    first = map_find(m, begin);
    for (last = first; last < m->n && m->s[last].begin < end; last++) {
        if (m->s[last].begin < begin)
            left = (struct stretch){m->s[last].begin, begin, m->s[last].who};
        if (m->s[last].end > end)
            right = (struct stretch){end, m->s[last].end, m->s[last].who};
    }
    if (left.end > 0)
        put[n++] = left;
    put[n++] = (struct stretch){begin, end, who};
    if (right.end > 0)
        put[n++] = right;
    memmove(&m->s[first + n], &m->s[last], (size_t)(m->n - last) * sizeof *m->s);
    memcpy(&m->s[first], put, (size_t)n * sizeof *put);
    m->n += n - (last - first);
    return true;
}

static bool map_is(const struct map *m, size_t begin, size_t end, int who)
{
    for (int i = map_find(m, begin); begin < end; i++) {
        if (i >= m->n || m->s[i].begin > begin || m->s[i].who != who)
            return false;
        begin = m->s[i].end;
    }
    return true;
}

static void act_write(struct stage *g, int slot)
{
    const struct plan_tensor *pt = &g->w->p->tensors[in_pipe(g->w, slot, g->k)];

    slot = in_pipe(g->w, slot, g->k);
    if (!g->st && !map_write(map_of(g, slot), pt->offs, pt->offs + pt->size, slot))
        g->st = err_nomem(g->e, "checking a plan", sizeof(struct stretch));
}

/* The bytes of t are what its owner wrote. */
static void act_read(struct stage *g, const struct tensor *t, const char *when)
{
    int o = slot_of(g->w, owner_of(t));
    size_t at;

    if (g->st || o < 0 || !placed(g->w, o))
        return;
    o = in_pipe(g->w, o, g->k);
    at = g->w->p->tensors[o].offs + (t->view_src ? t->view_offs : 0);
    if (!map_is(map_of(g, o), at, at + tensor_bytes(t), o))
        g->st = FAIL(g->e, "'%s' was overwritten before it was %s", t->name, when);
}

/* The result of node i meets bytes of source src only where it may be computed in place. */
static void act_meet(struct stage *g, int i, const struct tensor *src)
{
    const struct plan *p = g->w->p;
    const struct tensor *t = tensor_at(g->w, i);
    int to = slot_of(g->w, owner_of(t)), from = slot_of(g->w, owner_of(src));
    size_t begin, end, at;

    if (g->st || to < 0 || from < 0 || !placed(g->w, to) || !placed(g->w, from) ||
        map_of(g, in_pipe(g->w, to, g->k)) != map_of(g, in_pipe(g->w, from, g->k)))
        return;
    to = in_pipe(g->w, to, g->k);
    from = in_pipe(g->w, from, g->k);
    begin = p->tensors[to].offs + (t->view_src ? t->view_offs : 0);
    end = t->view_src ? begin + tensor_bytes(t) : begin + p->tensors[to].size;
    at = p->tensors[from].offs + (src->view_src ? src->view_offs : 0);
    if (at >= end || at + tensor_bytes(src) <= begin)
        return;
    if (writes_into(t) && src == t->src[0])
        return;
    if (!(op_info(t->op)->flags & OPF_INPLACE) || !tensor_same_layout(t, src) || at != begin)
        g->st = FAIL(g->e, "'%s' is written over its source '%s'", t->name, src->name);
}

static void act_node(struct stage *g, int i)
{
    for (int j = 0; j < TENSOR_SRC; j++) {
        const struct tensor *src = really_read(g->w, i, j);

        if (!src)
            continue;
        act_read(g, src, "read");
        act_meet(g, i, src);
    }
    if (placed(g->w, i))
        act_write(g, i);
}

static void act_copies(struct stage *g, int s)
{
    const struct plan_split *sp = &g->w->p->splits[s];

    for (int k = 0; k < sp->n_inputs; k++) {
        int c = g->w->p->inputs[sp->first_input + k];

        act_read(g, tensor_at(g->w, g->w->p->tensors[c].copy_of), "copied");
        if (g->w->p->tensors[c].ids >= 0)
            act_read(g, tensor_at(g->w, g->w->p->tensors[c].ids), "asked for experts");
        act_write(g, c);
    }
}

/* Is it made by a split, or there for another pipeline slot? */
static bool is_made(const struct world *w, int slot)
{
    return w->p->tensors[slot].copy_of >= 0 || w->p->tensors[slot].twin_of >= 0;
}

/* Write the inputs; on the first run also what is written only once. */
static void act_start(struct stage *g, const struct times *tm, int k, bool first)
{
    g->k = k;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < g->w->p->n_tensors; i++) {
            const struct tensor *t = tensor_at(g->w, i);
            bool fresh = first || (!(t->flags & TENSOR_KEEP) && (t->flags & TENSOR_INPUT));

            if (!tm->span[i].early || !placed(g->w, i) || is_made(g->w, i))
                continue;
            if (round == 1)
                act_read(g, t, "used for the first time");
            else if (fresh)
                act_write(g, i);
        }
    }
}

static void act_end(struct stage *g, const struct times *tm)
{
    for (int i = 0; i < g->w->p->n_tensors; i++) {
        const struct tensor *t = tensor_at(g->w, i);

        if (tm->span[i].kept && placed(g->w, i) && g->w->p->tensors[i].twin_of < 0 &&
            (t->op == OP_NONE || runs(t)))
            act_read(g, t, "looked at after the run");
    }
}

static void act_run(struct stage *g)
{
    const struct plan *p = g->w->p;

    for (int s = 0; s < p->n_splits && !g->st; s++) {
        act_copies(g, s);
        for (int i = p->splits[s].i_start; i < p->splits[s].i_end && !g->st; i++) {
            if (runs(g->w->g->nodes[i]))
                act_node(g, i);
        }
    }
}

/*
 * Twice, since what one run leaves behind is what the next one finds. With pipeline slots, the inputs
 * of the next one are written before this one has read its own.
 */
static enum status act_out(const struct world *w, const struct times *tm, struct err *e)
{
    struct stage g = {.w = w, .e = e};
    const struct plan *p = w->p;

    g.maps = mem_array((size_t)p->n_chunks, sizeof *g.maps);
    if (!g.maps)
        return err_nomem(e, "checking a plan", sizeof *g.maps);
    for (int round = 0; round < 2 * p->n_pipe && !g.st; round++) {
        int k = round % p->n_pipe;

        if (round == 0 || p->n_pipe == 1)
            act_start(&g, tm, k, round == 0);
        if (p->n_pipe > 1)
            act_start(&g, tm, (k + 1) % p->n_pipe, round + 1 < p->n_pipe);
        g.k = k;
        act_run(&g);
        act_end(&g, tm);
    }
    for (int c = 0; c < p->n_chunks; c++)
        mem_free(g.maps[c].s);
    mem_free(g.maps);
    return g.st;
}

enum status check_alloc(const struct plan *p, const struct graph *g, struct err *e)
{
    struct world w;
    struct times tm = {0};
    enum status st = world_init(&w, p, g, e);

    if (st)
        return st;
    for (int i = 0; i < p->n_tensors && !st; i++)
        st = check_address(&w, i, e);
    if (!st && !times_init(&tm, &w))
        st = err_nomem(e, "checking a plan", (size_t)p->n_tensors * sizeof *tm.span);
    if (!st && p->n_tensors <= PAIRS_MAX)
        st = check_pairs(&w, &tm, e);
    if (!st)
        st = act_out(&w, &tm, e);
    times_release(&tm);
    world_release(&w);
    return st;
}

/* ---- binding ---- */

/* Where the address table has tensor `slot`. */
static const char *address_of(const struct world *w, int slot, const struct buffer **b)
{
    const struct plan *p = w->p;
    const struct tensor *t = tensor_at(w, slot), *o = owner_of(t);
    const struct plan_tensor *po;
    const char *at;

    if (exists(w, o)) {
        *b = o->buffer;
        at = o->data;
    } else {
        po = &p->tensors[slot_of(w, o)];
        *b = p->chunks[p->bufs[po->buf].first_chunk + po->chunk].buffer;
        at = *b && (*b)->base ? (const char *)(*b)->base + po->offs : NULL;
    }
    return at && t->view_src ? at + t->view_offs : at;
}

/* Tensor t is tensor `slot` of pipeline slot k. */
static enum status check_data(const struct world *w, int slot, int k, const struct tensor *t,
                              struct err *e)
{
    const struct buffer *b;
    const char *want = address_of(w, in_pipe(w, slot, k), &b);

    if (!b || t->buffer != b || t->data != want)
        return FAIL(e, "'%s' is not bound to its address", t->name);
    return ST_OK;
}

enum status check_bind(const struct plan *p, const struct graph *g, struct err *e)
{
    struct world w;
    enum status st = world_init(&w, p, g, e);

    if (st)
        return st;
    for (int i = 0; i < p->n_tensors && !st; i++)
        st = check_data(&w, i, i < g->n_nodes + g->n_leafs ? p->pipe : 0, tensor_at(&w, i), e);
    for (int r = 0; r < p->n_run * p->n_pipe && !st; r++) {
        int k = r / p->n_run, slot = p->run_slot[r % p->n_run];

        if (k == 0 && p->run[r] == tensor_at(&w, slot))
            continue; /* the graph's own, seen above */
        st = check_data(&w, slot, k, p->run[r], e);
    }
    world_release(&w);
    return st;
}
