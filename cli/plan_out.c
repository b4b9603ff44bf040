#include "cli/plan_out.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "cli/out.h"
#include "runtime/arch.h"

static const struct {
    const char *title, *key;
    size_t at;
} fields[] = {
    {"mapped", "mapped_bytes", offsetof(struct device_plan, n_mapped)},
    {"weights", "weights_bytes", offsetof(struct device_plan, n_weights)},
    {"KV", "kv_bytes", offsetof(struct device_plan, n_kv)},
    {"compute", "compute_bytes", offsetof(struct device_plan, n_compute)},
    {"staging", "staging_bytes", offsetof(struct device_plan, n_staging)},
    {"output", "output_bytes", offsetof(struct device_plan, n_output)},
    {"scratch", "scratch_bytes", offsetof(struct device_plan, n_scratch)},
};
#define N_FIELDS (sizeof fields / sizeof fields[0])

static uint64_t field(const struct device_plan *d, size_t i)
{
    uint64_t v;

    memcpy(&v, (const char *)d + fields[i].at, sizeof v);
    return v;
}

uint64_t device_plan_sum(const struct device_plan *d)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < N_FIELDS; i++)
        sum += field(d, i);
    return sum;
}

static const char *dev_name(const struct plan *p, int dev)
{
    return p->devs->dev[dev]->name;
}

/* ---- causes ---- */

struct cause_count {
    char name[16];
    int n;
};
#define CAUSES_MAX (CAUSE_4_ANY + 2 * TENSOR_SRC + 1)

/* How many nodes are where they are for each reason, in the order of the passes. */
static int count_causes(const struct plan *p, struct cause_count *out)
{
    int n = 0;

    for (int c = CAUSE_1_DST; c <= CAUSE_4_ANY; c++) {
        bool numbered = c == CAUSE_1_WGT || c == CAUSE_1_MEM;

        for (int src = 0; src < (numbered ? TENSOR_SRC : 1); src++) {
            struct cause_count *cc = &out[n];
            char text[16];

            cc->n = 0;
            for (int i = 0; i < p->n_nodes; i++)
                cc->n += p->tensors[i].cause == (enum cause)c &&
                         (!numbered || p->tensors[i].cause_src == src);
            snprintf(cc->name, sizeof cc->name, "%s", cause_name((enum cause)c, src, text));
            n += cc->n > 0;
        }
    }
    return n;
}

/* ---- text ---- */

static void put_memory(const struct plan_view *v, struct text *t)
{
    char size[32];

    text_addf(t, "%-10s", "memory");
    for (size_t i = 0; i < N_FIELDS; i++)
        text_addf(t, "%11s", fields[i].title);
    text_addf(t, "%11s%11s\n", "sum", "limit");
    for (int k = 0; k < v->n_devs; k++) {
        const struct device_plan *d = &v->devs[k];

        text_addf(t, "  %-8s", d->dev->name);
        for (size_t i = 0; i < N_FIELDS; i++)
            text_addf(t, "%11s", field(d, i) ? text_size(size, sizeof size, field(d, i)) : "-");
        text_addf(t, "%11s", text_size(size, sizeof size, device_plan_sum(d)));
        text_addf(t, "%11s\n", d->n_limit ? text_size(size, sizeof size, d->n_limit) : "-");
    }
}

static void put_layers(const struct plan_view *v, struct text *t)
{
    uint32_t n = v->model->hp.n_layer;

    text_addf(t, "%-10s", "layers");
    for (uint32_t il = 0, to; il <= n; il = to + 1) {
        const struct device *d = placement_layer(v->model->placement, il);

        for (to = il; to < n && placement_layer(v->model->placement, to + 1) == d;)
            to++;
        text_addf(t, "%s%s %u", il ? ", " : "", d->name, il);
        if (to > il)
            text_addf(t, "-%u", to);
    }
    text_addf(t, " (%u is the output)\n", n);
}

static void put_causes(const struct plan_view *v, struct text *t)
{
    struct cause_count c[CAUSES_MAX];
    int n = count_causes(v->plan, c);

    text_addf(t, "%-10s", "causes");
    for (int i = 0; i < n; i++)
        text_addf(t, "%s%s %d", i ? ", " : "", c[i].name, c[i].n);
    text_byte(t, '\n');
}

void plan_text(const struct plan_view *v, struct text *t)
{
    const struct plan *p = v->plan;
    char seqs[48] = "";

    if (v->n_seqs > 1)
        snprintf(seqs, sizeof seqs, " %s %u sequences", v->unified ? "for" : "for each of",
                 v->n_seqs);
    text_addf(t, "%-10s%s, %u layers, a context of %u tokens%s, micro-batches of %u\n", "model",
              v->model->arch->name, v->model->hp.n_layer, v->n_ctx, seqs, v->n_ubatch);
    put_memory(v, t);
    put_layers(v, t);
    put_causes(v, t);
    text_addf(t, "%-10s%d nodes, %d split%s, for %u token%s over %u cells\n", "graph", p->n_nodes,
              p->n_splits, p->n_splits == 1 ? "" : "s", v->n_tokens, v->n_tokens == 1 ? "" : "s",
              v->n_kv);
    plan_print_splits(p, v->nodes ? 2 : 1, t);
}

/* ---- JSON ---- */

static cJSON *devices_json(const struct plan_view *v)
{
    cJSON *list = cJSON_CreateArray();

    for (int k = 0; k < v->n_devs; k++) {
        cJSON *o = cJSON_CreateObject();

        cJSON_AddStringToObject(o, "name", v->devs[k].dev->name);
        for (size_t i = 0; i < N_FIELDS; i++)
            cJSON_AddNumberToObject(o, fields[i].key, (double)field(&v->devs[k], i));
        cJSON_AddNumberToObject(o, "limit_bytes", (double)v->devs[k].n_limit);
        cJSON_AddItemToArray(list, o);
    }
    return list;
}

static cJSON *layers_json(const struct plan_view *v)
{
    cJSON *o = cJSON_CreateObject();

    for (int k = 0; k < v->n_devs; k++) {
        cJSON *list = NULL; /* a device without layers has none */

        for (uint32_t il = 0; il <= v->model->hp.n_layer; il++) {
            if (placement_layer(v->model->placement, il) != v->devs[k].dev)
                continue;
            if (!list)
                list = cJSON_AddArrayToObject(o, v->devs[k].dev->name);
            cJSON_AddItemToArray(list, cJSON_CreateNumber(il));
        }
    }
    return o;
}

static cJSON *splits_json(const struct plan *p)
{
    cJSON *list = cJSON_CreateArray();

    for (int s = 0; s < p->n_splits; s++) {
        const struct plan_split *sp = &p->splits[s];
        cJSON *o = cJSON_CreateObject(), *inputs;

        cJSON_AddStringToObject(o, "device", dev_name(p, sp->dev));
        cJSON_AddNumberToObject(o, "n_nodes", sp->i_end - sp->i_start);
        inputs = cJSON_AddArrayToObject(o, "inputs");
        for (int i = 0; i < sp->n_inputs; i++) {
            const struct plan_tensor *c = &p->tensors[p->inputs[sp->first_input + i]];
            cJSON *in = cJSON_CreateObject();

            cJSON_AddStringToObject(in, "name", p->tensors[c->copy_of].t->name);
            cJSON_AddNumberToObject(in, "bytes", (double)tensor_bytes(c->t));
            cJSON_AddItemToArray(inputs, in);
        }
        cJSON_AddItemToArray(list, o);
    }
    return list;
}

static cJSON *nodes_json(const struct plan *p)
{
    cJSON *list = cJSON_CreateArray();

    for (int i = 0; i < p->n_nodes; i++) {
        const struct plan_tensor *pt = &p->tensors[i];
        cJSON *o = cJSON_CreateObject(), *ne;
        char cause[16];

        cJSON_AddStringToObject(o, "name", pt->t->name);
        cJSON_AddStringToObject(o, "op", op_name(pt->op));
        ne = cJSON_AddArrayToObject(o, "shape");
        for (int d = 0; d < TENSOR_DIMS; d++)
            cJSON_AddItemToArray(ne, cJSON_CreateNumber((double)pt->ne[d]));
        cJSON_AddStringToObject(o, "device", dev_name(p, pt->dev));
        cJSON_AddStringToObject(o, "cause", cause_name(pt->cause, pt->cause_src, cause));
        cJSON_AddItemToArray(list, o);
    }
    return list;
}

struct cJSON *plan_json(const struct plan_view *v)
{
    cJSON *j = cJSON_CreateObject(), *o;
    struct cause_count c[CAUSES_MAX];
    int n = count_causes(v->plan, c);

    cJSON_AddStringToObject(j, "architecture", v->model->arch->name);
    cJSON_AddNumberToObject(j, "n_layer", v->model->hp.n_layer);
    cJSON_AddNumberToObject(j, "n_ctx", v->n_ctx);
    cJSON_AddNumberToObject(j, "n_seqs", v->n_seqs);
    cJSON_AddNumberToObject(j, "n_ubatch", v->n_ubatch);
    cJSON_AddItemToObject(j, "devices", devices_json(v));
    cJSON_AddItemToObject(j, "layers", layers_json(v));
    o = cJSON_AddObjectToObject(j, "graph");
    cJSON_AddNumberToObject(o, "n_tokens", v->n_tokens);
    cJSON_AddNumberToObject(o, "n_kv", v->n_kv);
    cJSON_AddNumberToObject(o, "n_nodes", v->plan->n_nodes);
    cJSON_AddItemToObject(j, "splits", splits_json(v->plan));
    o = cJSON_AddObjectToObject(j, "causes");
    for (int i = 0; i < n; i++)
        cJSON_AddNumberToObject(o, c[i].name, c[i].n);
    if (v->nodes)
        cJSON_AddItemToObject(j, "nodes", nodes_json(v->plan));
    return j;
}

/* ---- Graphviz ---- */

/* The split that computes a tensor; -1 for leafs and what is in memory. */
static int split_of(const struct plan *p, int slot)
{
    int owner = p->tensors[slot].owner;

    if (slot >= p->n_nodes || owner < 0 || owner >= p->n_nodes)
        return -1;
    for (int s = 0; s < p->n_splits; s++) {
        if (slot < p->splits[s].i_end)
            return s;
    }
    return -1;
}

/* Names come from the model file: nothing in them may end the string. */
static void put_quoted(struct text *t, const char *s)
{
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            text_byte(t, '\\');
        text_byte(t, (unsigned char)*s < ' ' ? ' ' : *s);
    }
}

static void put_edge(const struct plan *p, int s, const struct plan_tensor *c, struct text *t)
{
    const struct plan_tensor *from = &p->tensors[c->copy_of];
    int s_from = split_of(p, c->copy_of);
    char size[32];

    if (s_from < 0)
        text_addf(t, "  \"%s memory\" -> s%d [label=\"", plan_buft(p, c->copy_of)->name, s);
    else
        text_addf(t, "  s%d -> s%d [label=\"", s_from, s);
    put_quoted(t, from->t->name);
    text_addf(t, "\\n%s\"];\n", text_size(size, sizeof size, tensor_bytes(c->t)));
}

void plan_dot(const struct plan_view *v, struct text *t)
{
    const struct plan *p = v->plan;

    text_str(t, "digraph plan {\n  node [shape=box];\n  edge [fontsize=10];\n");
    for (int s = 0; s < p->n_splits; s++) {
        const struct plan_split *sp = &p->splits[s];

        text_addf(t, "  s%d [label=\"split %d: %s\\n%d nodes\\n", s, s, dev_name(p, sp->dev),
                  sp->i_end - sp->i_start);
        put_quoted(t, p->tensors[sp->i_start].t->name);
        text_str(t, " ... ");
        put_quoted(t, p->tensors[sp->i_end - 1].t->name);
        text_str(t, "\"];\n");
        if (s)
            text_addf(t, "  s%d -> s%d [style=dotted];\n", s - 1, s);
    }
    for (int s = 0; s < p->n_splits; s++) {
        const struct plan_split *sp = &p->splits[s];

        for (int i = 0; i < sp->n_inputs; i++)
            put_edge(p, s, &p->tensors[p->inputs[sp->first_input + i]], t);
    }
    text_str(t, "}\n");
}
