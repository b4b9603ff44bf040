/*
 * ggrun plan: what a run with these options would do, without memory or weights: the file's metadata
 * is read, then the functions of a run are called on descriptions.
 */
#include <string.h>

#include "cli/cli.h"
#include "cli/plan_out.h"
#include "cli/setup.h"
#include "gguf/base/mem.h"
#include "runtime/kvcache.h"

/* Weights of the CPU are used where the file is mapped; read into memory, the whole file is there. */
static void add_weights(const struct setup *s, struct device_plan *d)
{
    struct model_memory m = model_memory(s->model, d->dev);

    d->n_weights = m.n_copied;
    d->n_mapped = m.n_mapped;
    if (d->dev->kind != DEVICE_CPU || !s->c->opt->no_mmap)
        return;
    d->n_mapped = 0;
    for (size_t i = 0; i < s->file->n_tensors; i++)
        d->n_weights += s->file->tensors[i].n_bytes;
}

static struct device_plan plan_device(const struct setup *s, const struct device *dev)
{
    struct session_memory m = session_memory(s->session, dev);
    struct device_plan d = {.dev = dev,
                            .n_kv = m.n_kv,
                            .n_compute = m.n_compute,
                            .n_staging = m.n_staging,
                            .n_output = m.n_output,
                            .n_scratch = m.n_scratch,
                            .n_limit = device_memory(dev).n_total};

    add_weights(s, &d);
    return d;
}

/* The first device that cannot hold what is planned for it. */
static enum status check_limits(const struct plan_view *v, struct err *e)
{
    static const char *const advice =
        "try fewer layers on it (-ngl), a smaller context (-c) or -ub";
    char want[32], has[32];

    for (int i = 0; i < v->n_devs; i++) {
        const struct device_plan *d = &v->devs[i];
        uint64_t n = device_plan_sum(d) - d->n_mapped;

        if (d->n_limit && n > d->n_limit)
            return err_set(e, ST_NOMEM, "not enough memory on '%s': %s are needed, it has %s; %s",
                           d->dev->name, text_size(want, sizeof want, n),
                           text_size(has, sizeof has, d->n_limit), advice);
    }
    return ST_OK;
}

static enum status print(struct cli *c, const struct plan_view *v, struct err *e)
{
    struct text t = {0};

    if (c->opt->json)
        return out_json(c->out, plan_json(v), false, e);
    if (c->opt->dot)
        plan_dot(v, &t);
    else
        plan_text(v, &t);
    return out_text(c->out, &t, e);
}

static enum status show(struct setup *s, struct err *e)
{
    const struct options *o = s->c->opt;
    uint32_t n_tokens = o->plan_tokens ? (uint32_t)o->plan_tokens : 1;
    uint32_t n_ctx = session_n_ctx(s->session), n_kv;
    struct device_plan d[DEVICES_MAX];
    struct plan_view v;
    enum status st;

    if (n_tokens > session_n_ubatch(s->session))
        return err_set(e, ST_USAGE, "--tokens %u is more than the micro-batch of %u", n_tokens,
                       session_n_ubatch(s->session));
    if ((uint64_t)o->plan_depth + n_tokens > n_ctx)
        return err_set(e, ST_USAGE, "-d %d and --tokens %u do not fit into the context of %u",
                       (int)o->plan_depth, n_tokens, n_ctx);
    n_kv = ((uint32_t)o->plan_depth + n_tokens + KV_PAD - 1) / KV_PAD * KV_PAD;
    st = session_plan(s->session, n_tokens, 1, n_kv, e);
    if (st)
        return st;
    for (int i = 0; i < s->devs.n; i++)
        d[i] = plan_device(s, s->devs.dev[i]);
    v = (struct plan_view){.model = s->model,
                           .plan = session_last_plan(s->session),
                           .devs = d,
                           .n_devs = s->devs.n,
                           .n_seqs = o->n_seqs ? (uint32_t)o->n_seqs : 1,
                           .unified = o->kv_unified,
                           .n_ctx = n_ctx,
                           .n_ubatch = session_n_ubatch(s->session),
                           .n_tokens = n_tokens,
                           .n_kv = n_kv,
                           .nodes = o->nodes};
    st = print(s->c, &v, e);
    return st ? st : check_limits(&v, e);
}

enum status cmd_plan(struct cli *c, struct err *e)
{
    const struct options *o = c->opt;
    struct session_options so;
    struct setup s;
    enum status st;

    setup_init(&s, c);
    s.dry = true;
    st = setup_file(&s, o->n_models ? o->models[0] : NULL, true, e);
    if (!st)
        st = setup_devices(&s, setup_threads(o), e);
    setup_session_options(&s, &so);
    if (!st)
        st = setup_model(&s, &so, e);
    if (!st)
        st = setup_session(&s, &so, e);
    if (!st)
        st = show(&s, e);
    setup_release(&s);
    return st;
}
