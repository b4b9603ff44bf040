#include "cli/setup.h"

#include <ctype.h>
#include <string.h>

#include "cli/dump.h"
#include "cli/embedded.h"
#include "cli/placement.h"
#include "runtime/fit.h"

enum dtype kv_type(int32_t option)
{
    static const enum dtype types[] = {[KV_F16] = DT_F16,
                                       [KV_F32] = DT_F32,
                                       [KV_BF16] = DT_BF16,
                                       [KV_Q8_0] = DT_Q8_0,
                                       [KV_Q4_0] = DT_Q4_0};

    return types[option];
}

void setup_init(struct setup *s, struct cli *c)
{
    *s = (struct setup){.c = c};
}

void setup_release(struct setup *s)
{
    session_free(s->session);
    model_free(s->model);
    devices_close(&s->devs);
    vocab_free(s->vocab);
    if (!s->model_has_file)
        gguf_close(s->file);
    dump_free(s->dump);
    *s = (struct setup){0};
}

static enum status open_file(struct setup *s, const char *path, bool metadata_only, struct err *e)
{
    enum gguf_mode mode = s->c->opt->no_mmap ? GGUF_READ : GGUF_MMAP;
    const void *data;
    size_t n;

    if (path)
        return gguf_open(&s->file, path, metadata_only ? GGUF_NO_DATA : mode, e);
    out_note(s->c->out, "no -m given: using the embedded story model " EMBEDDED_NAME);
    data = embedded_model(&n);
    return gguf_open_memory(&s->file, data, n, "embedded model", e);
}

enum status setup_file(struct setup *s, const char *path, bool metadata_only, struct err *e)
{
    const struct options *o = s->c->opt;
    enum status st;

    s->path = path;
    st = open_file(s, path, metadata_only, e);
    for (int i = 0; !st && i < o->n_overrides; i++) {
        st = gguf_override(s->file, o->overrides[i], e);
        if (st)
            err_context(e, "--override-kv");
    }
    return st;
}

enum status setup_vocab(struct setup *s, struct err *e)
{
    return vocab_load(&s->vocab, s->file, e);
}

enum status setup_devices(struct setup *s, int n_threads, struct err *e)
{
    const struct options *opt = s->c->opt;
    struct device_spec specs[DEVICES_MAX];
    struct device_options o = {.n_threads = n_threads,
                               .isa = opt->isa,
                               .blas = opt->blas != 0,
                               .sim = opt->sim,
                               .described = specs};
    enum status st = ST_OK;

    if (opt->device_memory && opt->sim)
        return err_set(e, ST_USAGE, "--sim and --device-memory are given; use one of them");
    if (opt->device_memory)
        st = parse_device_memory(opt->device_memory, specs, &o.n_described, e);
    if (!st)
        st = devices_open(&s->devs, &o, e);
    if (!st && opt->device) {
        st = devices_select(&s->devs, opt->device, e);
        if (st)
            err_context(e, "-dev");
    }
    return st;
}

enum status list_devices(struct cli *c, struct err *e)
{
    struct text t = {0};
    struct setup s;
    enum status st;

    setup_init(&s, c);
    st = setup_devices(&s, 0, e);
    for (int i = 0; i < s.devs.n && !st; i++) {
        const struct device *d = s.devs.dev[i];
        struct device_memory m = device_memory(d);
        char total[32], n_free[32];

        text_addf(&t, "%-8s %s", d->name, d->desc);
        if (m.n_total)
            text_addf(&t, ", %s, %s free", text_size(total, sizeof total, m.n_total),
                      text_size(n_free, sizeof n_free, m.n_free));
        text_byte(&t, '\n');
    }
    setup_release(&s);
    if (!st)
        return out_text(c->out, &t, e);
    text_release(&t);
    return st;
}

static void on_load(void *ctx, double share)
{
    struct setup *s = ctx;

    out_progress(s->c->out, "loading", share);
}

enum status setup_model(struct setup *s, struct session_options *so, struct err *e)
{
    struct placement_options po;
    struct model_options o = {
        .devs = &s->devs,
        .progress = on_load,
        .progress_ctx = s,
        .cancel = s->c->cancel,
        .place = &po,
        .dry = s->dry,
        .lock = s->c->opt->mlock,
        .check_tensors = s->c->opt->check_tensors,
    };
    struct place_rules rules;
    enum status st = placement_from_options(&po, &rules, s->c->opt, &s->devs, e);

    if (!st && po.n_gpu_layers == PLACE_AUTO)
        st = fit_placement(&po, rules.shares, s->file, &s->devs, so, e);
    if (st) {
        place_rules_release(&rules);
        return st;
    }
    out_progress(s->c->out, "loading", 0);
    s->model_has_file = true; /* also when it fails */
    st = model_load(&s->model, s->file, &o, e);
    place_rules_release(&rules);
    out_progress_end(s->c->out);
    return st;
}

static void on_eval(void *ctx, uint32_t n_done, uint32_t n_total)
{
    struct setup *s = ctx;

    if (n_total > 1 && !s->n_generated) /* no bar into the answer */
        out_progress(s->c->out, "prompt", (double)n_done / n_total);
}

static int decode_threads(const struct options *o)
{
    return o->n_threads ? o->n_threads : usable_cores();
}

int setup_threads(const struct options *o)
{
    int n = decode_threads(o);

    return o->n_threads_batch > n ? o->n_threads_batch : n;
}

void setup_session_options(struct setup *s, struct session_options *so)
{
    const struct options *o = s->c->opt;

    *so = (struct session_options){
        .devs = &s->devs,
        .n_ctx = o->n_ctx < 0    ? 0
                 : o->n_ctx == 0 ? SESSION_CTX_ALL
                                 : (uint32_t)o->n_ctx,
        .n_seqs = (uint32_t)o->n_seqs,
        .kv_unified = o->kv_unified,
        .n_batch = (uint32_t)o->n_batch,
        .n_ubatch = (uint32_t)o->n_ubatch,
        .n_threads = decode_threads(o),
        .n_threads_batch = o->n_threads_batch,
        .type_k = kv_type(o->type_k),
        .type_v = kv_type(o->type_v),
        .swa_full = o->swa_full,
        .no_flash_attn = o->flash_attn == FA_OFF,
        .no_reuse = o->no_reuse,
        .check_reuse = o->check_reuse,
        .exec = {.sched_debug = o->sched_debug,
                 .alloc_debug = o->alloc_debug,
                 .exec_debug = o->exec_debug,
                 .no_op_offload = o->no_op_offload,
                 .dry = s->dry,
                 .n_slots = o->n_slots},
        .cancel = s->c->cancel,
        .progress = on_eval,
        .progress_ctx = s,
    };
}

enum status setup_session(struct setup *s, const struct session_options *so, struct err *e)
{
    struct session_options o = *so;
    enum status st;

    if (s->c->opt->dump_node) {
        st = dump_new(&s->dump, s->c, e);
        if (st)
            return st;
        o.watch = dump_watch;
        o.watch_ctx = s->dump;
    } else if (s->c->opt->dump_file) {
        return err_set(e, ST_USAGE, "--dump-file is given without --dump-node");
    }
    return session_new(&s->session, s->model, &o, e);
}

enum status setup_all(struct setup *s, struct session_options *so, struct err *e)
{
    const struct options *o = s->c->opt;
    enum status st = setup_file(s, o->n_models ? o->models[0] : NULL, false, e);

    if (!st)
        st = setup_vocab(s, e);
    if (!st)
        st = setup_devices(s, setup_threads(o), e);
    if (!st)
        st = setup_model(s, so, e);
    return st;
}

enum status setup_finish(struct setup *s, enum status st, struct err *e)
{
    struct session_stats stats;
    bool done = st == ST_OK || st == ST_LIMIT;

    if (s->dump && (done || dump_failed(s->dump))) {
        enum status st_dump = dump_finish(s->dump, e);
        if (st_dump)
            return st_dump;
    }
    if (!done || !s->c->opt->check_reuse)
        return st;
    session_stats(s->session, &stats);
    if (stats.check_failures)
        return err_set(e, ST_DEVICE, "%llu reused steps differ from a fresh graph's",
                       (unsigned long long)stats.check_failures);
    return st;
}

enum status setup_at_limit(const struct setup *s, struct err *e)
{
    uint32_t n_ctx = session_n_ctx(s->session), n_train = s->model->hp.n_ctx_train;

    err_set(e, ST_LIMIT, "stopped at the context limit of %u tokens (%llu of the prompt)", n_ctx,
            (unsigned long long)s->n_prompt);
    if (n_train > n_ctx)
        err_set(e, ST_LIMIT,
                "stopped at the context limit of %u tokens (%llu of the prompt); the model allows "
                "-c %u",
                n_ctx, (unsigned long long)s->n_prompt, n_train);
    return ST_LIMIT;
}

/* ---- --stats ---- */

static void stat_count(struct out *o, const char *name, uint64_t v)
{
    out_line(o, "%s %llu", name, (unsigned long long)v);
}

static void stat_ms(struct out *o, const char *name, uint64_t us)
{
    out_line(o, "%s %.3f", name, (double)us / 1000);
}

static void stat_rate(struct out *o, const char *name, uint64_t n, uint64_t us)
{
    if (n && us)
        out_line(o, "%s %.3f", name, (double)n * 1e6 / (double)us);
}

/* "CPU compute" -> "cpu_compute" */
static const char *stat_name(char *out, size_t n_out, const char *name)
{
    size_t i;

    for (i = 0; name[i] && i + 1 < n_out; i++)
        out[i] = (char)(isalnum((unsigned char)name[i]) ? tolower((unsigned char)name[i]) : '_');
    out[i] = 0;
    return out;
}

static void print_session_stats(struct out *o, const struct session_stats *st)
{
    uint64_t steps = st->graphs_built + st->graphs_reused;
    char name[64];
    const char *reason;

    stat_count(o, "evals", st->evals);
    stat_count(o, "graphs_built", st->graphs_built);
    stat_count(o, "graphs_reused", st->graphs_reused);
    if (steps)
        out_line(o, "reuse_percent %.2f", 100.0 * (double)st->graphs_reused / (double)steps);
    for (int i = 0; i < 16 && (reason = session_rebuild_name(i)); i++)
        if (st->rebuilds[i])
            out_line(o, "rebuild_%s %llu", reason, (unsigned long long)st->rebuilds[i]);
    stat_count(o, "reuse_check_failures", st->check_failures);
    stat_count(o, "graph_sampled_tokens", st->graph_sampled);
    stat_count(o, "plans", st->exec.plans);
    stat_count(o, "replays", st->exec.replays);
    stat_count(o, "regrows", st->exec.regrows);
    stat_count(o, "rebinds", st->exec.rebinds);
    stat_count(o, "copies", st->exec.copies);
    stat_count(o, "copied_bytes", st->exec.bytes_copied);
    stat_count(o, "experts_skipped", st->exec.experts_skipped);
    stat_count(o, "splits", (uint64_t)st->exec.splits);
    stat_count(o, "nodes", (uint64_t)st->graph_nodes);
    stat_count(o, "kv_bytes", st->n_kv_bytes);
    stat_count(o, "state_bytes", st->n_state_bytes);
    stat_count(o, "graph_bytes", st->n_graph_bytes);
    stat_count(o, "sum_of_intermediates_bytes", st->exec.sum_nodes);
    stat_count(o, "peak_compute_bytes", st->exec.peak);
    for (int i = 0; i < st->exec.n_buffers; i++) {
        const struct exec_buffer_stat *b = &st->exec.buffers[i];
        stat_name(name, sizeof name, b->name);
        out_line(o, "%s_planned_bytes %llu", name, (unsigned long long)b->n_planned);
        out_line(o, "%s_allocated_bytes %llu", name, (unsigned long long)b->n_allocated);
    }
}

/* Bytes of all buffers in each device's memory now. */
static void print_device_stats(struct out *o, const struct devices *devs)
{
    char name[64];

    for (int i = 0; i < devs->n; i++) {
        if (devs->dev[i]->kind == DEVICE_ACCEL) /* works in the CPU's */
            continue;
        stat_name(name, sizeof name, devs->dev[i]->name);
        out_line(o, "%s_used_bytes %zu", name, device_memory(devs->dev[i]).n_used);
    }
}

void setup_print_stats(struct setup *s)
{
    struct out *o = s->c->out;
    struct session_stats st;

    if (!s->c->opt->stats)
        return;
    if (s->model) {
        stat_ms(o, "load_ms", s->load_us);
        stat_count(o, "weights_bytes", s->model->n_weight_bytes);
        stat_count(o, "parameters", s->model->n_params);
    }
    if (!s->session)
        return;
    stat_count(o, "context_tokens", session_n_ctx(s->session));
    stat_count(o, "tokens_prompt", s->n_prompt);
    stat_count(o, "tokens_truncated", s->n_truncated);
    stat_count(o, "tokens_generated", s->n_generated);
    stat_count(o, "context_shifts", s->n_shifts);
    if (s->prompt_us)
        stat_ms(o, "prompt_ms", s->prompt_us);
    if (s->first_token_us)
        stat_ms(o, "first_token_ms", s->first_token_us);
    stat_rate(o, "prompt_tokens_per_second", s->n_prompt, s->prompt_us);
    /* the first token comes from the prompt's evaluation, each further one from its own */
    if (s->n_generated > 1)
        stat_rate(o, "tokens_per_second", s->n_generated - 1, s->decode_us);
    session_stats(s->session, &st);
    print_session_stats(o, &st);
    print_device_stats(o, &s->devs);
}
