#include "tests/runtime/logits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/backend.h"
#include "gguf/base/mem.h"
#include "gguf/reader.h"
#include "runtime/model.h"
#include "runtime/session.h"

char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *p = NULL;
    long size;

    if (!f)
        return NULL;
    if (fseek(f, 0, SEEK_END) == 0 && (size = ftell(f)) >= 0 && fseek(f, 0, SEEK_SET) == 0) {
        p = mem_zalloc((size_t)size + 1);
        *n = p ? fread(p, 1, (size_t)size, f) : 0;
    }
    fclose(f);
    return p;
}

int read_ids(const char *path, int32_t *ids, int max)
{
    size_t n_text;
    char *text = read_file(path, &n_text), *p = text;
    int n = 0;

    if (!text)
        return -1;
    while (n < max && *p) {
        ids[n++] = (int32_t)strtol(p, &p, 10);
        p += strspn(p, ", \n");
    }
    mem_free(text);
    return n;
}

struct compare {
    const char *rows; /* f32, unaligned */
    size_t n_vocab;
    double err2, ref2;
    uint32_t n;
};

static enum status compare_row(void *ctx, uint32_t pos, const float *logits, struct err *e)
{
    struct compare *c = ctx;

    (void)e;
    for (size_t i = 0; i < c->n_vocab; i++) {
        double d;
        float ref;

        memcpy(&ref, c->rows + (pos * c->n_vocab + i) * sizeof ref, sizeof ref);
        d = (double)logits[i] - (double)ref;
        c->err2 += d * d;
        c->ref2 += (double)ref * (double)ref;
    }
    c->n++;
    return ST_OK;
}

static enum status evaluate(struct model *m, const struct devices *devs, const int32_t *ids, int n,
                            const struct session_options *base, struct compare *c, struct err *e)
{
    struct session_options so = *base;
    struct session *s;
    enum status st;

    so.devs = devs;
    so.type_k = so.type_v = DT_F32;
    so.all_outputs = true;
    st = session_new(&s, m, &so, e);
    if (!st)
        st = session_eval(s, ids, (uint32_t)n, WANT_ALL, compare_row, c, e);
    session_free(s);
    return st;
}

enum status nmse_of(const char *model, const char *oracle, const int32_t *ids, int n,
                    uint32_t n_ubatch, double *nmse, struct err *e)
{
    return nmse_with(model, oracle, ids, n, &(struct session_options){.n_ubatch = n_ubatch}, nmse,
                     e);
}

enum status nmse_with(const char *model, const char *oracle, const int32_t *ids, int n,
                      const struct session_options *so, double *nmse, struct err *e)
{
    struct device_options dopt = {.n_threads = 2};
    struct devices devs = {0};
    struct model_options mo = {.devs = &devs};
    struct compare c = {0};
    struct model *m = NULL;
    struct gguf *g;
    size_t n_bytes = 0;
    char *rows = read_file(oracle, &n_bytes);
    enum status st;

    if (!rows)
        return err_set(e, ST_IO, "cannot read '%s'", oracle);
    st = devices_open(&devs, &dopt, e);
    if (!st)
        st = gguf_open(&g, model, GGUF_MMAP, e);
    if (!st)
        st = model_load(&m, g, &mo, e);
    if (!st) {
        c.rows = rows;
        c.n_vocab = m->hp.n_vocab;
        if (n_bytes != (size_t)n * c.n_vocab * sizeof(float))
            st = err_set(e, ST_IO, "'%s' has %zu bytes", oracle, n_bytes);
    }
    if (!st)
        st = evaluate(m, &devs, ids, n, so, &c, e);
    if (!st && c.n != (uint32_t)n)
        st = err_set(e, ST_IO, "%u rows of logits, expected %d", c.n, n);
    if (!st)
        *nmse = c.err2 / c.ref2;
    model_free(m);
    devices_close(&devs);
    mem_free(rows);
    return st;
}
