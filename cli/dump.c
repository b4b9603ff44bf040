#include "cli/dump.h"

#include <string.h>

#include "backends/backend.h"
#include "gguf/base/mem.h"
#include "gguf/quants.h"

struct dump {
    struct cli *c;
    const char *name;
    bool to_file;
    struct out_file file;
    uint64_t n_seen;
    enum status st; /* the first failure; the watch itself cannot return one */
    struct err err;
};

enum status dump_new(struct dump **out, struct cli *c, struct err *e)
{
    struct dump *d = mem_zalloc(sizeof *d);
    enum status st = ST_OK;

    *out = NULL;
    if (!d)
        return err_nomem(e, "--dump-node", sizeof *d);
    d->c = c;
    d->name = c->opt->dump_node;
    d->file.fd = -1;
    d->to_file = c->opt->dump_file != NULL;
    if (d->to_file)
        st = out_file_open(&d->file, c->opt->dump_file, e);
    if (st)
        dump_free(d);
    else
        *out = d;
    return st;
}

void dump_free(struct dump *d)
{
    if (!d)
        return;
    out_file_release(&d->file);
    mem_free(d);
}

static void put(struct dump *d, struct text *line)
{
    if (d->st)
        return;
    if (line->failed)
        d->st = err_nomem(&d->err, "--dump-node", line->n);
    else if (d->to_file)
        d->st = out_file_write(&d->file, d->c->out, line->p, line->n, &d->err);
    else
        out_line(d->c->out, "%.*s", (int)line->n - 1, line->p);
}

/* A line on stderr has a limit; a long row is handed on in parts. */
static void put_row(struct dump *d, struct text *line)
{
    size_t at = 0;

    if (d->to_file || line->failed) {
        put(d, line);
        return;
    }
    while (at < line->n) {
        size_t k = line->n - at;
        struct text part;
        if (k > 900)
            for (k = 900; line->p[at + k - 1] != ' ';)
                k--;
        part = (struct text){.p = line->p + at, .n = k};
        put(d, &part);
        at += k;
    }
}

/* Row i of t (over all outer dimensions), element by element: it may be a view with any strides. */
static void add_row(struct text *line, const struct tensor *t, const char *data, int64_t i)
{
    int64_t i1 = i % t->ne[1], i2 = i / t->ne[1] % t->ne[2], i3 = i / t->ne[1] / t->ne[2];
    const char *row = data + (size_t)i1 * t->nb[1] + (size_t)i2 * t->nb[2] + (size_t)i3 * t->nb[3];

    for (int64_t j = 0; j < t->ne[0]; j++) {
        float x;
        quant_decoder(t->type)(row + (size_t)j * t->nb[0], &x, 1);
        text_addf(line, "%.9g ", (double)x);
    }
    if (line->n)
        line->p[line->n - 1] = '\n';
}

static void dump_tensor(struct dump *d, const struct tensor *t)
{
    struct text line = {0};
    size_t n = tensor_bytes(t);
    char *data;

    if (dtype_quantised(t->type)) {
        d->st = err_set(&d->err, ST_UNSUPPORTED, "node '%s' is %s, expected a plain type", d->name,
                        dtype_name(t->type));
        return;
    }
    data = mem_alloc(n);
    if (!data) {
        d->st = err_nomem(&d->err, "--dump-node", n);
        return;
    }
    d->st = tensor_get(t, 0, data, n, &d->err);
    text_addf(&line, "node %s %s [%lld, %lld, %lld, %lld]\n", t->name, dtype_name(t->type),
              (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2], (long long)t->ne[3]);
    put(d, &line);
    for (int64_t i = 0; !d->st && i < tensor_rows(t); i++) {
        text_clear(&line);
        add_row(&line, t, data, i);
        put_row(d, &line);
    }
    text_release(&line);
    mem_free(data);
}

bool dump_watch(void *dump, const struct tensor *t, bool ask)
{
    struct dump *d = dump;

    if (ask)
        return strcmp(t->name, d->name) == 0;
    d->n_seen++;
    if (!d->st)
        dump_tensor(d, t);
    return d->st == ST_OK;
}

bool dump_failed(const struct dump *d)
{
    return d->st != ST_OK;
}

enum status dump_finish(struct dump *d, struct err *e)
{
    char quoted[96];

    if (d->st) {
        if (e)
            *e = d->err;
        return d->st;
    }
    if (!d->n_seen)
        return err_set(e, ST_USAGE,
                       "--dump-node is '%s', but no node of that name was computed; "
                       "--sched-debug=2 lists the nodes",
                       text_quote(quoted, sizeof quoted, d->name, strlen(d->name)));
    return d->to_file ? out_file_commit(&d->file, e) : ST_OK;
}
