#include "runtime/plan.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "gguf/base/mem.h"

const char *cause_name(enum cause c, int n_src, char out[16])
{
    static const char *const names[] = {
        [CAUSE_NONE] = "-",        [CAUSE_1_DST] = "1.dst", [CAUSE_1_VSRC] = "1.vsrc",
        [CAUSE_1_INP] = "1.inp",   [CAUSE_1_WGT] = "1.wgt", [CAUSE_1_MEM] = "1.mem",
        [CAUSE_1_OFF] = "1.off",   [CAUSE_2_SUP] = "2.sup", [CAUSE_3_UPG] = "3.upg",
        [CAUSE_3_BEST] = "3.best", [CAUSE_3_ANY] = "3.any", [CAUSE_4_VSRC] = "4.vsrc",
        [CAUSE_4_CUR] = "4.cur",   [CAUSE_4_ANY] = "4.any",
    };

    if (c != CAUSE_1_WGT && c != CAUSE_1_MEM)
        return names[c];
    snprintf(out, 16, "%s%d", names[c], n_src);
    return out;
}

/* One buffer for each distinct buffer type: devices that share memory share a buffer. */
static void find_bufs(struct plan *p)
{
    for (int d = 0; d < p->devs->n; d++) {
        const struct buft *bt = p->devs->dev[d]->buft;
        int b = 0;

        while (b < p->n_bufs && p->bufs[b].buft != bt)
            b++;
        if (b == p->n_bufs)
            p->bufs[p->n_bufs++].buft = bt;
        p->dev[d].buf = b;
    }
}

enum status plan_new(struct plan **out, const struct devices *devs, struct err *e)
{
    struct plan *p = mem_zalloc(sizeof *p);

    *out = NULL;
    if (!p)
        return err_nomem(e, "a plan", sizeof *p);
    p->devs = devs;
    p->n_pipe = 1;
    p->orphan = -1;
    p->link.prev = p->link.next = &p->link;
    p->dev = mem_array((size_t)devs->n, sizeof *p->dev);
    p->bufs = mem_array((size_t)devs->n, sizeof *p->bufs);
    if (!p->dev || !p->bufs) {
        plan_free(p);
        return err_nomem(e, "a plan", (size_t)devs->n * (sizeof *p->dev + sizeof *p->bufs));
    }
    find_bufs(p);
    *out = p;
    return ST_OK;
}

void plan_free(struct plan *p)
{
    if (!p)
        return;
    p->link.prev->next = p->link.next;
    p->link.next->prev = p->link.prev;
    mem_free(p->dev);
    mem_free(p->bufs);
    mem_free(p->tensors);
    mem_free(p->splits);
    mem_free(p->inputs);
    mem_free(p->run_slot);
    mem_free(p->run);
    mem_free(p->run_uses);
    mem_free(p->own);
    mem_free(p->shadow_of);
    mem_free(p->chunks);
    mem_free(p);
}

int plan_slot(const struct plan *p, const struct graph *g, const struct tensor *t)
{
    int i = graph_slot(g, t);

    if (i < 0)
        return -1;
    return g->set[i].index >= 0 ? g->set[i].index : p->n_nodes + (-1 - g->set[i].index);
}

/* Bytes that exist already: in a buffer, and not in one where an earlier plan put them. */
static bool is_external(const struct plan *p, const struct tensor *t)
{
    const struct buffer *b = tensor_owner(t)->buffer;

    if (!b)
        return false;
    for (int i = 0; i < p->n_own_buffers; i++) {
        if (b == p->own_buffers[i])
            return false;
    }
    return true;
}

static enum status enter_tensor(struct plan *p, const struct graph *g, int slot, struct tensor *t,
                                struct err *e)
{
    struct plan_tensor *pt = &p->tensors[slot];

    *pt = (struct plan_tensor){
        .t = t,
        .dev = -1,
        .writer = -1,
        .copy_of = -1,
        .newest_copy = -1,
        .split = -1,
        .ids = -1,
        .twin = -1,
        .twin_of = -1,
        .buf = -1,
        .uses = g->set[graph_slot(g, t)].uses,
        .external = is_external(p, t),
        .op = t->op,
        .type = t->type,
        .flags = t->flags,
        .view_offs = t->view_offs,
    };
    memcpy(pt->ne, t->ne, sizeof pt->ne);
    memcpy(pt->nb, t->nb, sizeof pt->nb);
    pt->weight = pt->external && tensor_owner(t)->buffer->usage == USAGE_WEIGHTS;
    pt->owner = t->view_src ? plan_slot(p, g, t->view_src) : slot;
    if (pt->owner < 0 && !pt->external)
        return err_set(e, ST_UNSUPPORTED,
                       "'%s' is a view of '%s', which is neither in the graph nor in memory",
                       t->name, t->view_src->name);
    for (int j = 0; j < TENSOR_SRC; j++)
        pt->src[j] = t->src[j] ? plan_slot(p, g, t->src[j]) : -1;
    return ST_OK;
}

/* Chain the ops that write into a tensor to it: they must be where it is. */
static void find_writers(struct plan *p)
{
    for (int i = p->n_nodes - 1; i >= 0; i--) {
        struct plan_tensor *pt = &p->tensors[i];

        if (!(op_info(pt->op)->flags & OPF_WRITES) || pt->owner < 0 || pt->owner == i)
            continue;
        pt->writer = p->tensors[pt->owner].writer;
        p->tensors[pt->owner].writer = i;
    }
}

enum status plan_enter(struct plan *p, const struct graph *g, struct err *e)
{
    int n = g->n_nodes + g->n_leafs;
    enum status st;

    p->bound = false;
    p->pipe = 0;
    p->n_nodes = g->n_nodes;
    p->n_leafs = g->n_leafs;
    p->n_tensors = 0;
    p->n_splits = p->n_inputs = p->n_run = p->n_own = p->n_shadows = p->n_chunks = 0;
    p->orphan = -1;
    p->sum_nodes = p->peak = p->least = p->n_staging = p->n_ids = 0;
    for (int b = 0; b < p->n_bufs; b++)
        p->bufs[b] = (struct plan_buf){.buft = p->bufs[b].buft, .largest = -1};
    for (int d = 0; d < p->devs->n; d++)
        p->dev[d].scratch = 0;
    if (!mem_room(&p->tensors, &p->cap_tensors, n, sizeof *p->tensors))
        return err_nomem(e, "a plan", (size_t)n * sizeof *p->tensors);
    for (int i = 0; i < n; i++) {
        struct tensor *t = i < g->n_nodes ? g->nodes[i] : g->leafs[i - g->n_nodes];

        st = enter_tensor(p, g, i, t, e);
        if (st)
            return st;
    }
    p->n_tensors = n;
    find_writers(p);
    return ST_OK;
}

const struct buft *plan_buft(const struct plan *p, int slot)
{
    const struct plan_tensor *pt = &p->tensors[slot];

    if (pt->external)
        return tensor_owner(pt->t)->buffer->buft;
    pt = &p->tensors[pt->owner];
    return pt->dev < 0 ? NULL : p->devs->dev[pt->dev]->buft;
}

/* ---- print ---- */

static void print_shape(const struct plan_tensor *pt, struct text *out)
{
    int n = TENSOR_DIMS;

    while (n > 1 && pt->ne[n - 1] == 1)
        n--;
    for (int i = 0; i < n; i++)
        text_addf(out, "%s%lld", i ? "x" : "", (long long)pt->ne[i]);
}

static void print_node(const struct plan *p, int slot, struct text *out)
{
    const struct plan_tensor *pt = &p->tensors[slot];
    char cause[16], size[32];

    text_addf(out, "  %d %s %s ", slot, pt->t->name, op_name(pt->op));
    print_shape(pt, out);
    text_addf(out, " %s %s %s %s%s\n", dtype_name(pt->type),
              pt->dev < 0 ? "?" : p->devs->dev[pt->dev]->name,
              cause_name(pt->cause, pt->cause_src, cause),
              pt->buf < 0 ? "-" : text_size(size, sizeof size, pt->size),
              pt->op == OP_NONE || (pt->flags & TENSOR_COMPUTE) ? "" : " (not computed)");
}

static void print_split(const struct plan *p, int s, struct text *out)
{
    const struct plan_split *sp = &p->splits[s];
    char size[32];

    text_addf(out, "split %d: %s, nodes %d..%d, %d computed", s, p->devs->dev[sp->dev]->name,
              sp->i_start, sp->i_end - 1, sp->n_run);
    for (int i = 0; i < sp->n_inputs; i++) {
        const struct plan_tensor *c = &p->tensors[p->inputs[sp->first_input + i]];

        text_addf(out, "%s%s (%s%s)", i ? ", " : ", copies in ", p->tensors[c->copy_of].t->name,
                  text_size(size, sizeof size, tensor_bytes(c->t)),
                  c->ids >= 0 ? ", experts in use" : "");
    }
    text_byte(out, '\n');
}

static void print_bufs(const struct plan *p, struct text *out)
{
    char size[32], least[32], sum[32];

    for (int b = 0; b < p->n_bufs; b++) {
        const struct plan_buf *pb = &p->bufs[b];

        if (pb->n_chunks == 0)
            continue;
        text_addf(out, "buffer %s: %s in %d chunk%s, not less than %s\n", pb->buft->name,
                  text_size(size, sizeof size, pb->size), pb->n_chunks,
                  pb->n_chunks == 1 ? "" : "s", text_size(least, sizeof least, pb->least));
    }
    for (int d = 0; d < p->devs->n; d++) {
        if (p->dev[d].scratch)
            text_addf(out, "scratch %s: %s\n", p->devs->dev[d]->name,
                      text_size(size, sizeof size, p->dev[d].scratch));
    }
    text_addf(out, "intermediates %s, peak %s", text_size(sum, sizeof sum, p->sum_nodes),
              text_size(size, sizeof size, p->peak));
    if (p->n_pipe > 1)
        text_addf(out, ", %d slots", p->n_pipe);
    text_byte(out, '\n');
}

void plan_print_splits(const struct plan *p, int level, struct text *out)
{
    for (int s = 0; s < p->n_splits; s++) {
        print_split(p, s, out);
        for (int i = p->splits[s].i_start; level >= 2 && i < p->splits[s].i_end; i++)
            print_node(p, i, out);
    }
}

void plan_print(const struct plan *p, int level, struct text *out)
{
    plan_print_splits(p, level, out);
    print_bufs(p, out);
}

/* ---- compare ---- */

/* The slot in the graph, where a copy may stand for it. */
static int32_t original(const struct plan *p, int32_t slot)
{
    return slot >= 0 && p->tensors[slot].copy_of >= 0 ? p->tensors[slot].copy_of : slot;
}

static bool tensors_equal(const struct plan *a, const struct plan *b, int slot)
{
    const struct plan_tensor *x = &a->tensors[slot], *y = &b->tensors[slot];

    if (x->op != y->op || x->type != y->type || x->flags != y->flags || x->owner != y->owner ||
        x->view_offs != y->view_offs || x->dev != y->dev || x->external != y->external ||
        x->weight != y->weight || x->uses != y->uses || memcmp(x->ne, y->ne, sizeof x->ne) != 0 ||
        memcmp(x->nb, y->nb, sizeof x->nb) != 0)
        return false;
    for (int j = 0; j < TENSOR_SRC; j++) {
        if (original(a, x->src[j]) != original(b, y->src[j]))
            return false;
    }
    return true;
}

bool plan_equal(const struct plan *a, const struct plan *b)
{
    if (a->devs != b->devs || a->n_pipe != b->n_pipe || a->n_nodes != b->n_nodes ||
        a->n_leafs != b->n_leafs)
        return false;
    for (int i = 0; i < a->n_nodes + a->n_leafs; i++) {
        if (!tensors_equal(a, b, i))
            return false;
    }
    return true;
}
