/*
 * ggrun bench: tokens per second, for every combination of the lists that it is given. A
 * combination that fails becomes a row with an error, and the others are measured all the same.
 *
 * Field names and table are those of llama-bench, so that scripts for it go on working; more fields
 * follow.
 */
#include <cjson/cJSON.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/setup.h"
#include "cli/version.h"
#include "gguf/base/mem.h"
#include "runtime/batch.h"

/* One combination. */
struct test {
    int32_t n_prompt, n_gen, n_depth, n_threads, n_batch, n_ubatch;
    int32_t n_seqs; /* that generate at once */
};

struct result {
    char time[32];    /* when it began: ISO 8601, UTC */
    double *ns;       /* [repetitions] of each run, owned */
    double *token_ns; /* [repetitions * n_gen] of each generated token, owned */
    int n, n_token;
};

struct bench {
    struct cli *c;
    struct setup s; /* of the current model */
    const char *path;
    char model_type[96], cpu[128];
    int32_t *ids; /* [n_ids] tokens to feed */
    int n_ids;
    bool no_op_offload; /* as -ngl auto found it */
    int n_rows, n_failed;
    enum status first_failure;
};

/* ---- measuring ---- */

/* The same tokens in every run and on every machine; any will do, speed does not depend on them. */
static void fill_ids(struct bench *b)
{
    uint32_t x = 1, n_vocab = b->s.model->hp.n_vocab;

    for (int i = 0; i < b->n_ids; i++) {
        x = x * 1664525u + 1013904223u;
        b->ids[i] = (int32_t)((x >> 8) % n_vocab);
    }
}

static enum status drop(void *ctx, int32_t seq, uint32_t pos, const float *logits, struct err *e)
{
    (void)ctx;
    (void)seq;
    (void)pos;
    (void)logits;
    (void)e;
    return ST_OK;
}

/* The i-th token of each sequence. */
static enum status step(struct bench *b, const struct test *t, int i, struct err *e)
{
    int32_t ids[SEQ_MAX], seq[SEQ_MAX];
    bool out[SEQ_MAX];
    struct seq_tokens tokens = {.ids = ids, .seq = seq, .out = out, .n = (uint32_t)t->n_seqs};

    if (t->n_seqs == 1)
        return session_eval(b->s.session, &b->ids[i], 1, WANT_LAST, NULL, NULL, e);
    for (int32_t s = 0; s < t->n_seqs; s++) {
        ids[s] = b->ids[(i + s) % b->n_ids];
        seq[s] = s;
        out[s] = true;
    }
    return session_eval_batch(b->s.session, &tokens, drop, NULL, e);
}

/* Empty sequences, or all with n_depth tokens. */
static enum status prepare(struct bench *b, const struct test *t, struct err *e)
{
    struct session *ss = b->s.session;
    enum status st = ST_OK;

    for (int32_t s = 0; s < t->n_seqs; s++)
        session_truncate_of(ss, s, 0);
    if (t->n_depth)
        st = session_eval(ss, b->ids, (uint32_t)t->n_depth, WANT_NONE, NULL, NULL, e);
    for (int32_t s = 1; s < t->n_seqs && !st; s++)
        st = session_copy(ss, 0, s, e);
    return st;
}

static enum status one_run(struct bench *b, const struct test *t, double *token_ns, double *ns,
                           struct err *e)
{
    struct session *ss = b->s.session;
    uint64_t start, last;
    enum status st = prepare(b, t, e);

    start = last = now_us();
    if (!st && t->n_prompt)
        st = session_eval(ss, b->ids, (uint32_t)t->n_prompt, WANT_LAST, NULL, NULL, e);
    for (int i = 0; !st && i < t->n_gen; i++) {
        uint64_t now;
        st = step(b, t, i, e);
        now = now_us();
        token_ns[i] = (double)(now - last) * 1000;
        last = now;
    }
    *ns = (double)(now_us() - start) * 1000;
    return st;
}

static enum status open_session(struct bench *b, const struct test *t, struct err *e)
{
    struct session_options so;

    session_free(b->s.session);
    b->s.session = NULL;
    setup_session_options(&b->s, &so);
    so.progress = NULL;
    so.n_seqs = (uint32_t)t->n_seqs;
    so.n_ctx = so.n_seqs * (uint32_t)(t->n_depth + t->n_prompt + t->n_gen);
    so.n_threads = t->n_threads;
    so.n_batch = (uint32_t)t->n_batch;
    so.n_ubatch = (uint32_t)t->n_ubatch;
    so.exec.no_op_offload = b->no_op_offload;
    return setup_session(&b->s, &so, e);
}

/* A run to warm up, then the repetitions. */
static enum status measure(struct bench *b, const struct test *t, struct result *r, struct err *e)
{
    int n_rep = b->c->opt->repetitions;
    struct test warm = *t;
    time_t now = time(NULL);
    struct tm tm;
    enum status st = open_session(b, t, e);

    if (st)
        return st;
    strftime(r->time, sizeof r->time, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    r->ns = mem_array((size_t)n_rep, sizeof *r->ns);
    r->token_ns = mem_array((size_t)n_rep * (size_t)t->n_gen + 1, sizeof *r->token_ns);
    if (!r->ns || !r->token_ns)
        return err_nomem(e, "samples", (size_t)n_rep * (size_t)(t->n_gen + 1) * sizeof *r->ns);
    warm.n_gen = t->n_gen > 1 ? 1 : t->n_gen;
    st = one_run(b, &warm, r->token_ns, r->ns, e);
    while (!st && r->n < n_rep) {
        st = one_run(b, t, r->token_ns + r->n_token, &r->ns[r->n], e);
        r->n++;
        r->n_token += t->n_gen;
        out_progress(b->c->out, "measuring", (double)r->n / n_rep);
    }
    out_progress_end(b->c->out);
    return st;
}

/* ---- numbers ---- */

static double mean(const double *x, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += x[i];
    return n ? sum / n : 0;
}

/* Of a sample: divided by n - 1. */
static double deviation(const double *x, int n)
{
    double m = mean(x, n), sum = 0;

    for (int i = 0; i < n; i++)
        sum += (x[i] - m) * (x[i] - m);
    return n > 1 ? sqrt(sum / (n - 1)) : 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Nearest rank; sorts x. */
static double percentile(double *x, int n, double share)
{
    int i = (int)ceil(share * n) - 1;

    qsort(x, (size_t)n, sizeof *x, by_value);
    return n ? x[i < 0 ? 0 : i] : 0;
}

static double tokens_per_second(const struct test *t, double ns)
{
    return ((double)t->n_prompt + (double)t->n_gen * t->n_seqs) * 1e9 / (ns > 0 ? ns : 1);
}

/* ---- rows ---- */

/* "SIM0,CPU", and what the accelerators are. */
static void add_devices(cJSON *j, const struct devices *devs)
{
    struct text names = {0}, info = {0};

    for (int i = 0; i < devs->n; i++) {
        const struct device *d = devs->dev[i];

        text_addf(&names, "%s%s", i ? "," : "", d->name);
        if (d->kind != DEVICE_CPU)
            text_addf(&info, "%s%s", info.n ? ", " : "", d->desc);
    }
    cJSON_AddStringToObject(j, "gpu_info", info.p ? info.p : "");
    cJSON_AddStringToObject(j, "backends", names.p ? names.p : "CPU");
    text_release(&names);
    text_release(&info);
}

/* What was asked for, and the layers that really are on accelerators. */
static void add_placement(cJSON *j, const struct bench *b)
{
    static const char *const modes[] = {"layer", "none", "row"};
    const struct options *o = b->c->opt;
    const struct model *m = b->s.model;
    struct text rules = {0};
    int n = 0;

    for (uint32_t il = 0; m && il <= m->hp.n_layer; il++)
        n += placement_layer(m->placement, il) != devices_cpu(&b->s.devs);
    for (int i = 0; i < o->n_tensor_rules; i++)
        text_addf(&rules, "%s%s", i ? "," : "", o->tensor_rules[i]);
    cJSON_AddNumberToObject(j, "n_gpu_layers", n);
    cJSON_AddStringToObject(j, "split_mode", modes[o->split_mode]);
    cJSON_AddNumberToObject(j, "main_gpu", o->main_gpu);
    cJSON_AddBoolToObject(j, "no_kv_offload", o->no_kv_offload);
    cJSON_AddStringToObject(j, "devices", o->device ? o->device : "auto");
    cJSON_AddStringToObject(j, "tensor_split", o->tensor_split ? o->tensor_split : "");
    cJSON_AddItemToObject(j, "tensor_buft_overrides",
                          json_string(rules.p ? rules.p : "none", rules.p ? rules.n : 4));
    cJSON_AddBoolToObject(j, "no_op_offload", b->no_op_offload);
    text_release(&rules);
}

/*
 * A row is a JSON object whatever the format: md and csv print from its fields, in its order, so
 * that no format has a field of its own.
 */
static cJSON *row_new(const struct bench *b, const struct test *t)
{
    const struct options *o = b->c->opt;
    const struct model *m = b->s.model;
    cJSON *j = cJSON_CreateObject();

    cJSON_AddStringToObject(j, "build_version", GGRUN_VERSION);
    cJSON_AddItemToObject(j, "cpu_info", json_string(b->cpu, strlen(b->cpu)));
    add_devices(j, &b->s.devs);
    cJSON_AddItemToObject(j, "model_filename", json_string(b->path, strlen(b->path)));
    cJSON_AddItemToObject(j, "model_type", json_string(b->model_type, strlen(b->model_type)));
    cJSON_AddNumberToObject(j, "model_size", m ? (double)m->n_weight_bytes : 0);
    cJSON_AddNumberToObject(j, "model_n_params", m ? (double)m->n_params : 0);
    cJSON_AddNumberToObject(j, "n_batch", t->n_batch);
    cJSON_AddNumberToObject(j, "n_ubatch", t->n_ubatch);
    cJSON_AddNumberToObject(j, "n_threads", t->n_threads);
    cJSON_AddStringToObject(j, "type_k", dtype_name(kv_type(o->type_k)));
    cJSON_AddStringToObject(j, "type_v", dtype_name(kv_type(o->type_v)));
    cJSON_AddBoolToObject(j, "flash_attn", o->flash_attn != FA_OFF);
    add_placement(j, b);
    cJSON_AddBoolToObject(j, "use_mmap", !o->no_mmap);
    cJSON_AddNumberToObject(j, "n_prompt", t->n_prompt);
    cJSON_AddNumberToObject(j, "n_gen", t->n_gen);
    cJSON_AddNumberToObject(j, "n_depth", t->n_depth);
    cJSON_AddNumberToObject(j, "n_seqs", t->n_seqs);
    return j;
}

static void add_samples(cJSON *j, const struct test *t, const struct result *r)
{
    cJSON *ns = cJSON_AddArrayToObject(j, "samples_ns");
    cJSON *ts = cJSON_AddArrayToObject(j, "samples_ts");

    for (int i = 0; i < r->n; i++) {
        cJSON_AddItemToArray(ns, cJSON_CreateNumber(r->ns[i]));
        cJSON_AddItemToArray(ts, cJSON_CreateNumber(tokens_per_second(t, r->ns[i])));
    }
}

static enum status row_finish(cJSON *j, const struct test *t, struct result *r, struct err *e)
{
    double *ts = mem_array((size_t)r->n + 1, sizeof *ts);

    if (!ts)
        return err_nomem(e, "samples", (size_t)r->n * sizeof *ts);
    for (int i = 0; i < r->n; i++)
        ts[i] = tokens_per_second(t, r->ns[i]);
    cJSON_AddStringToObject(j, "test_time", r->time);
    cJSON_AddNumberToObject(j, "avg_ns", round(mean(r->ns, r->n)));
    cJSON_AddNumberToObject(j, "stddev_ns", round(deviation(r->ns, r->n)));
    cJSON_AddNumberToObject(j, "avg_ts", mean(ts, r->n));
    cJSON_AddNumberToObject(j, "stddev_ts", deviation(ts, r->n));
    add_samples(j, t, r);
    if (t->n_gen) {
        cJSON_AddNumberToObject(j, "token_p50_ns", percentile(r->token_ns, r->n_token, 0.5));
        cJSON_AddNumberToObject(j, "token_p95_ns", percentile(r->token_ns, r->n_token, 0.95));
    } else {
        cJSON_AddNumberToObject(j, "ttft_ns", percentile(r->ns, r->n, 0.5));
    }
    mem_free(ts);
    return ST_OK;
}

static const char *str_of(const cJSON *j, const char *field)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(j, field);

    return cJSON_IsString(x) ? x->valuestring : "";
}

static double num_of(const cJSON *j, const char *field)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(j, field);

    return cJSON_IsNumber(x) ? x->valuedouble : 0;
}

static void md_row(struct text *t, const cJSON *j, bool first)
{
    char size[32], test[64], speed[64];
    int depth = (int)num_of(j, "n_depth");

    if (first)
        text_str(
            t, "| model                          |       size |     params | backend    | threads |"
               "            test |                  t/s |\n"
               "| ------------------------------ | ---------: | ---------: | ---------- | ------: |"
               " --------------: | -------------------: |\n");
    snprintf(test, sizeof test, num_of(j, "n_prompt") > 0 ? "pp%d" : "tg%d",
             (int)(num_of(j, "n_prompt") + num_of(j, "n_gen")));
    if (num_of(j, "n_prompt") + num_of(j, "n_gen") <= 0)
        strcpy(test, "-"); /* the model did not load */
    if (num_of(j, "n_seqs") > 1)
        snprintf(test + strlen(test), sizeof test - strlen(test), " x%d", (int)num_of(j, "n_seqs"));
    if (depth)
        snprintf(test + strlen(test), sizeof test - strlen(test), " @ d%d", depth);
    if (*str_of(j, "error"))
        snprintf(speed, sizeof speed, "error");
    else
        snprintf(speed, sizeof speed, "%.2f ± %.2f", num_of(j, "avg_ts"), num_of(j, "stddev_ts"));
    text_addf(t, "| %-30s | %10s | %8.2f M | %-10s | %7d | %15s | %20s%s |\n",
              *str_of(j, "model_type") ? str_of(j, "model_type") : str_of(j, "model_filename"),
              text_size(size, sizeof size, (uint64_t)num_of(j, "model_size")),
              num_of(j, "model_n_params") / 1e6, str_of(j, "backends"), (int)num_of(j, "n_threads"),
              test, speed, *str_of(j, "error") ? "" : " "); /* "±" is two bytes and one column */
}

static void csv_value(struct text *t, const cJSON *x)
{
    text_byte(t, '"');
    if (cJSON_IsString(x)) {
        for (const char *p = x->valuestring; *p; p++)
            text_str(t, *p == '"' ? "\"\"" : (char[]){*p, 0});
    } else if (cJSON_IsNumber(x)) {
        text_addf(t, "%.15g", x->valuedouble);
    } else if (cJSON_IsBool(x)) {
        text_str(t, cJSON_IsTrue(x) ? "1" : "0");
    }
    text_byte(t, '"');
}

/* The columns of a row that was measured; a failed one has some of them empty. */
static const char *const csv_columns[] = {
    "build_version", "cpu_info",       "gpu_info",     "backends", "model_filename", "model_type",
    "model_size",    "model_n_params", "n_batch",      "n_ubatch", "n_threads",      "type_k",
    "type_v",        "flash_attn",     "n_gpu_layers", "use_mmap", "n_prompt",       "n_gen",
    "n_depth",       "n_seqs",         "test_time",    "avg_ns",   "stddev_ns",      "avg_ts",
    "stddev_ts",     "error",
};
enum { N_COLUMNS = sizeof csv_columns / sizeof csv_columns[0] };

static void csv_row(struct text *t, const cJSON *j, bool first)
{
    for (int i = 0; first && i < N_COLUMNS; i++)
        text_addf(t, "%s%c", csv_columns[i], i + 1 < N_COLUMNS ? ',' : '\n');
    for (int i = 0; i < N_COLUMNS; i++) {
        csv_value(t, cJSON_GetObjectItemCaseSensitive(j, csv_columns[i]));
        text_byte(t, i + 1 < N_COLUMNS ? ',' : '\n');
    }
}

/* Print the row as soon as it is known, and delete it. */
static enum status print_row(struct bench *b, cJSON *j, struct err *e)
{
    bool first = b->n_rows++ == 0;
    int format = b->c->opt->format;
    struct text t = {0};
    char *s;

    if (format == FORMAT_MD) {
        md_row(&t, j, first);
    } else if (format == FORMAT_CSV) {
        csv_row(&t, j, first);
    } else {
        s = format == FORMAT_JSON ? cJSON_Print(j) : cJSON_PrintUnformatted(j);
        if (format == FORMAT_JSON)
            text_str(&t, first ? "[\n" : ",\n");
        if (s)
            text_str(&t, s);
        else
            t.failed = true;
        if (format == FORMAT_JSONL)
            text_byte(&t, '\n');
        cJSON_free(s);
    }
    cJSON_Delete(j);
    return out_text(b->c->out, &t, e);
}

static enum status print_end(struct bench *b, struct err *e)
{
    if (b->c->opt->format != FORMAT_JSON)
        return ST_OK;
    return b->n_rows ? out_write(b->c->out, "\n]\n", 3, e) : out_write(b->c->out, "[]\n", 3, e);
}

/* ---- the sweep ---- */

static enum status failed_row(struct bench *b, const struct test *t, enum status st, struct err *e)
{
    cJSON *j = row_new(b, t);

    cJSON_AddItemToObject(j, "error", json_string(e->msg, strlen(e->msg)));
    if (b->c->opt->format == FORMAT_MD)
        out_error(b->c->out, e);
    if (!b->n_failed++)
        b->first_failure = st;
    return print_row(b, j, e);
}

static enum status run_test(struct bench *b, const struct test *t, struct err *e)
{
    struct result r = {0};
    cJSON *j = NULL;
    enum status st = measure(b, t, &r, e);

    if (!st) {
        j = row_new(b, t);
        st = row_finish(j, t, &r, e);
    }
    if (st == ST_CANCELLED)
        cJSON_Delete(j);
    else if (st) {
        cJSON_Delete(j);
        st = failed_row(b, t, st, e);
    } else {
        st = print_row(b, j, e);
    }
    mem_free(r.ns);
    mem_free(r.token_ns);
    return st;
}

/* "llama 134.5M q4_1": architecture, parameters, the type with most bytes. */
static void describe_model(struct bench *b)
{
    const struct gguf *g = b->s.model->file;
    uint64_t bytes[DT_COUNT] = {0};
    struct gguf_str arch = {"?", 1};
    int best = 0;
    char quoted[48];

    gguf_get_str(g, "general.architecture", false, &arch, NULL);
    for (size_t i = 0; i < g->n_tensors; i++)
        bytes[g->tensors[i].type] += g->tensors[i].n_bytes;
    for (int i = 1; i < DT_COUNT; i++)
        if (bytes[i] > bytes[best])
            best = i;
    snprintf(b->model_type, sizeof b->model_type, "%s %.1fM %s",
             text_quote(quoted, sizeof quoted, arch.p, arch.n), (double)b->s.model->n_params / 1e6,
             dtype_name((enum dtype)best));
}

static int largest(const struct int_list *l)
{
    int m = 0;

    for (int i = 0; i < l->n; i++)
        m = l->v[i] > m ? l->v[i] : m;
    return m;
}

/* Of generation tests. */
static int32_t sequences(const struct options *o)
{
    return o->n_seqs ? o->n_seqs : 1;
}

/* More than any of the sessions to come. */
static void largest_session(struct bench *b, struct session_options *so)
{
    const struct options *o = b->c->opt;

    setup_session_options(&b->s, so);
    so->n_ctx = (uint32_t)(largest(&o->bench_depth) + largest(&o->bench_prompt)) +
                (uint32_t)largest(&o->bench_gen);
    so->n_ctx *= (uint32_t)sequences(o);
    so->n_batch = (uint32_t)largest(&o->bench_batch);
    so->n_ubatch = (uint32_t)largest(&o->bench_ubatch);
}

static enum status open_model(struct bench *b, const char *path, int n_threads, struct err *e)
{
    struct session_options so;
    const struct device *cpu;
    enum status st;

    setup_init(&b->s, b->c);
    b->path = path ? path : "embedded model";
    b->model_type[0] = 0;
    st = setup_file(&b->s, path, false, e);
    if (!st)
        st = setup_devices(&b->s, n_threads, e);
    if (!st) {
        cpu = devices_cpu(&b->s.devs);
        snprintf(b->cpu, sizeof b->cpu, "%s", cpu->desc);
        largest_session(b, &so);
        st = setup_model(&b->s, &so, e);
        b->no_op_offload = so.exec.no_op_offload;
    }
    if (!st) {
        describe_model(b);
        fill_ids(b);
    }
    return st;
}

/* Prompt tests, then generation tests, of one setting of everything else. */
static enum status run_lengths(struct bench *b, struct test t, struct err *e)
{
    const struct options *o = b->c->opt;
    enum status st = ST_OK;

    for (int kind = 0; kind < 2; kind++) {
        const struct int_list *l = kind ? &o->bench_gen : &o->bench_prompt;
        for (int i = 0; !st && i < l->n; i++) {
            t.n_prompt = kind ? 0 : l->v[i];
            t.n_gen = kind ? l->v[i] : 0;
            t.n_seqs = kind ? sequences(o) : 1;
            if (l->v[i])
                st = run_test(b, &t, e);
        }
    }
    return st;
}

static enum status run_model(struct bench *b, const char *path, struct err *e)
{
    const struct options *o = b->c->opt;
    int n_threads = largest(&o->bench_threads);
    struct test t = {.n_threads = o->bench_threads.v[0],
                     .n_batch = o->bench_batch.v[0],
                     .n_ubatch = o->bench_ubatch.v[0],
                     .n_seqs = 1};
    enum status st;

    if (o->n_threads_batch > n_threads)
        n_threads = o->n_threads_batch;
    st = open_model(b, path, n_threads, e);
    if (st) {
        if (st != ST_CANCELLED)
            st = failed_row(b, &t, st, e);
        setup_release(&b->s);
        return st;
    }
    for (int d = 0; d < o->bench_depth.n; d++)
        for (int th = 0; th < o->bench_threads.n; th++)
            for (int ba = 0; ba < o->bench_batch.n; ba++)
                for (int ub = 0; !st && ub < o->bench_ubatch.n; ub++) {
                    t.n_depth = o->bench_depth.v[d];
                    t.n_threads = o->bench_threads.v[th];
                    t.n_batch = o->bench_batch.v[ba];
                    t.n_ubatch = o->bench_ubatch.v[ub];
                    st = run_lengths(b, t, e);
                }
    setup_print_stats(&b->s);
    setup_release(&b->s);
    return st;
}

static enum status default_to(struct int_list *l, int32_t v, struct err *e)
{
    if (l->n)
        return ST_OK;
    l->v = mem_array(1, sizeof *l->v);
    if (!l->v)
        return err_nomem(e, "options", sizeof *l->v);
    l->v[0] = v;
    l->n = 1;
    return ST_OK;
}

static enum status set_defaults(struct options *o, struct err *e)
{
    enum status st;

    if ((st = default_to(&o->bench_prompt, 512, e)) || (st = default_to(&o->bench_gen, 128, e)) ||
        (st = default_to(&o->bench_depth, 0, e)) ||
        (st = default_to(&o->bench_threads, usable_cores(), e)) ||
        (st = default_to(&o->bench_batch, 2048, e)) || (st = default_to(&o->bench_ubatch, 512, e)))
        return st;
    return ST_OK;
}

static enum status check_lengths(struct bench *b, struct err *e)
{
    const struct options *o = b->c->opt;
    int64_t p = largest(&o->bench_prompt), g = largest(&o->bench_gen), d = largest(&o->bench_depth);
    int64_t longest = p > g ? p : g;

    if (!longest)
        return err_set(e, ST_USAGE, "-p and -n are both 0: nothing to measure");
    if ((d + longest) * sequences(o) > INT32_MAX / 2)
        return err_set(e, ST_USAGE, "%lld tokens in one test are too many",
                       (long long)(d + longest) * sequences(o));
    b->n_ids = (int)(longest > d ? longest : d);
    b->ids = mem_array((size_t)b->n_ids, sizeof *b->ids);
    return b->ids ? ST_OK : err_nomem(e, "tokens", (size_t)b->n_ids * sizeof *b->ids);
}

enum status cmd_bench(struct cli *c, struct err *e)
{
    const struct options *o = c->opt;
    struct bench b = {.c = c};
    struct err ignored;
    enum status st = set_defaults(c->opt, e);

    if (!st)
        st = check_lengths(&b, e);
    if (st) {
        mem_free(b.ids);
        return st;
    }
    for (int i = 0; !st && i < (o->n_models ? o->n_models : 1); i++)
        st = run_model(&b, o->n_models ? o->models[i] : NULL, e);
    if (!c->out->reader_gone)
        print_end(&b, st ? &ignored : e);
    if (!st && b.n_failed)
        st = err_set(e, b.first_failure, "%d of %d rows failed", b.n_failed, b.n_rows);
    mem_free(b.ids);
    return st;
}
