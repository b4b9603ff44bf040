#include "runtime/placement.h"

#include <math.h>
#include <string.h>

#include "gguf/base/log.h"
#include "gguf/base/mem.h"
#include "gguf/base/text.h"
#include "runtime/arch.h"

struct placement {
    const struct devices *devs;
    const struct hparams *hp;
    struct placement_options opt;
    struct device **gpu; /* [n_gpu] accelerators with memory of their own */
    int n_gpu;
    const struct device **layer; /* [n_layer + 1] */
    uint64_t *n_taken;           /* [n_rules] weights that each took */
};

/* ---- checks ---- */

static enum status check_devices(const struct placement *p, struct err *e)
{
    const struct placement_options *o = &p->opt;

    if (o->n_gpu_layers > 0 && !p->n_gpu)
        return err_set(e, ST_USAGE, "-ngl asks for layers on an accelerator, but there is none");
    if (o->main_gpu < 0 || (o->main_gpu > 0 && o->main_gpu >= p->n_gpu))
        return err_set(e, ST_USAGE, "-mg is %d, but there are %d accelerators (counted from 0)",
                       (int)o->main_gpu, p->n_gpu);
    if (o->n_tensor_split > p->n_gpu)
        return err_set(e, ST_USAGE, "-ts has %d shares, but there are %d accelerators",
                       o->n_tensor_split, p->n_gpu);
    if ((o->cpu_moe || o->n_cpu_moe) && !p->hp->experts.n_expert)
        return err_set(e, ST_USAGE, "%s: the model has no experts",
                       o->cpu_moe ? "-cmoe" : "-ncmoe");
    return ST_OK;
}

static enum status check_shares(const struct placement_options *o, struct err *e)
{
    float sum = 0;

    for (int i = 0; i < o->n_tensor_split; i++) {
        float x = o->tensor_split[i];

        if (!isfinite(x) || x < 0)
            return err_set(e, ST_USAGE, "-ts has the share %g, expected numbers of at least 0",
                           (double)x);
        sum += x;
    }
    if (o->n_tensor_split && !(sum > 0 && isfinite(sum)))
        return err_set(e, ST_USAGE, "-ts has the sum %g, expected a number above 0", (double)sum);
    return ST_OK;
}

/* ---- layers ---- */

/* How much of what is spread accelerator g gets, in any unit. */
static double spread_share(const struct placement *p, int g)
{
    const struct device *d = p->gpu[g];
    struct device_memory m = device_memory(d);

    if (p->opt.n_tensor_split)
        return g < p->opt.n_tensor_split ? (double)p->opt.tensor_split[g] : 0;
    return m.n_total ? (double)m.n_free : 1;
}

/* How much of the layers. */
static double share(const struct placement *p, int g)
{
    return p->opt.split == SPLIT_LAYER ? spread_share(p, g) : g == p->opt.main_gpu;
}

/*
 * The accelerators take the offloaded layers in order: layer i of n goes to the first whose sum of
 * shares, its own included, is above i / n of all.
 */
static void assign_layers(struct placement *p)
{
    int64_t n = (int64_t)p->hp->n_layer + 1, n_off = p->opt.n_gpu_layers, first;
    double sum = 0, reached;
    int g = 0;

    n_off = n_off > n ? n : n_off;
    first = n - n_off;
    for (int i = 0; i < p->n_gpu; i++)
        sum += share(p, i);
    reached = p->n_gpu ? share(p, 0) : 0;
    for (int64_t il = 0; il < n; il++) {
        if (il < first) {
            p->layer[il] = devices_cpu(p->devs);
            continue;
        }
        while (g < p->n_gpu - 1 && reached * (double)n_off <= (double)(il - first) * sum)
            reached += share(p, ++g);
        p->layer[il] = p->gpu[g];
    }
}

static void find_accelerators(struct placement *p)
{
    for (int i = 0; i < p->devs->n; i++) {
        if (p->devs->dev[i]->kind == DEVICE_GPU)
            p->gpu[p->n_gpu++] = p->devs->dev[i];
    }
}

/* ---- life ---- */

enum status placement_new(struct placement **out, const struct devices *devs,
                          const struct hparams *hp, const struct placement_options *opt,
                          struct err *e)
{
    struct placement *p = mem_zalloc(sizeof *p);
    enum status st;

    *out = NULL;
    if (!p)
        return err_nomem(e, "the placement of layers", sizeof *p);
    p->devs = devs;
    p->hp = hp;
    p->opt = *opt;
    p->gpu = mem_array((size_t)devs->n, sizeof(*p->gpu));
    p->layer = mem_array((size_t)hp->n_layer + 1, sizeof(*p->layer));
    p->n_taken = mem_array((size_t)opt->n_rules, sizeof *p->n_taken);
    if (!p->gpu || !p->layer || !p->n_taken) {
        st = err_nomem(e, "the placement of layers", (size_t)hp->n_layer * sizeof(*p->layer));
        goto fail;
    }
    find_accelerators(p);
    st = check_devices(p, e);
    if (!st)
        st = check_shares(&p->opt, e);
    if (st)
        goto fail;
    assign_layers(p);
    *out = p;
    return ST_OK;
fail:
    placement_free(p);
    return st;
}

void placement_free(struct placement *p)
{
    if (!p)
        return;
    mem_free(p->gpu);
    mem_free(p->layer);
    mem_free(p->n_taken);
    mem_free(p);
}

/* ---- answers ---- */

const struct device *placement_layer(const struct placement *p, uint32_t il)
{
    return p->layer[il];
}

const struct device *placement_kv(const struct placement *p, uint32_t il)
{
    return p->opt.no_kv_offload ? devices_cpu(p->devs) : p->layer[il];
}

enum status placement_weight(struct placement *p, const struct arch_tensor *at, uint32_t il,
                             const char *name, struct place *out, struct err *e)
{
    const struct device *d = devices_cpu(p->devs);

    for (int i = 0; i < p->opt.n_rules; i++) {
        const struct place_rule *r = &p->opt.rules[i];
        bool yes = false;
        enum status st = r->match(r, name, &yes, e);

        if (st)
            return st;
        if (!yes)
            continue;
        p->n_taken[i]++;
        *out = (struct place){.dev = r->dev, .bt = r->bt, .by_rule = true};
        return ST_OK;
    }
    if (at->place == PLACE_OUTPUT)
        d = p->layer[p->hp->n_layer];
    else if (at->place == PLACE_LAYER &&
             !(at->use == USE_EXPERTS && (p->opt.cpu_moe || (int64_t)il < p->opt.n_cpu_moe)))
        d = p->layer[il];
    *out = (struct place){.dev = d, .bt = d->buft};
    out->by_rows =
        p->opt.split == SPLIT_ROW && p->n_gpu > 1 && d->kind == DEVICE_GPU && at->use == USE_MATRIX;
    return ST_OK;
}

int placement_rows(const struct placement *p, int64_t n_rows, struct row_share out[DEVICES_MAX])
{
    double sum = 0, reached = 0;
    int64_t first = 0;
    int n = 0;

    for (int g = 0; g < p->n_gpu; g++)
        sum += spread_share(p, g);
    for (int k = 1; k <= p->n_gpu; k++) {
        int g = (p->opt.main_gpu + k) % p->n_gpu; /* ends with main_gpu */
        int64_t end;

        reached += spread_share(p, g);
        end = (int64_t)((double)n_rows * (reached / sum) / ROW_GRANULE + 0.5) * ROW_GRANULE;
        if (end > n_rows || k == p->n_gpu)
            end = n_rows;
        if (end > first)
            out[n++] = (struct row_share){.dev = p->gpu[g], .first = first, .n = end - first};
        first = end > first ? end : first;
    }
    return n;
}

enum status placement_done(struct placement *p, struct err *e)
{
    for (int i = 0; i < p->opt.n_rules; i++) {
        if (!p->n_taken[i])
            return err_set(e, ST_USAGE, "-ot '%s' matches no tensor that is left to it",
                           p->opt.rules[i].text);
        log_note("-ot '%s' puts %llu tensors into '%s'", p->opt.rules[i].text,
                 (unsigned long long)p->n_taken[i], p->opt.rules[i].bt->name);
    }
    p->opt.n_rules = 0;
    p->opt.rules = NULL;
    return ST_OK;
}
