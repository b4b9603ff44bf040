#include <assert.h>
#include <string.h>
#include <strings.h>

#include "backends/backend.h"
#include "backends/blas/blas.h"
#include "backends/cpu/cpu.h"
#include "backends/sim/sim.h"
#include "gguf/base/mem.h"
#include "gguf/base/text.h"

#ifndef GGRUN_HAVE_OPENBLAS
enum status blas_open(struct devices *list, const struct device_options *opt, struct device *cpu,
                      struct err *e)
{
    (void)list;
    (void)cpu;
    if (!opt->blas)
        return ST_OK;
    return err_set(e, ST_USAGE,
                   "this ggrun was built without OpenBLAS; install it and rebuild, or leave out "
                   "--blas");
}
#endif

enum status devices_append(struct devices *d, struct device *dev, struct err *e)
{
    if (d->n < DEVICES_MAX - 1) { /* one place is the CPU's */
        d->dev[d->n++] = dev;
        return ST_OK;
    }
    dev->ops->free(dev);
    return err_set(e, ST_DEVICE, "more than %d devices", DEVICES_MAX);
}

static enum status check_described(const struct devices *d, const struct device_options *opt,
                                   struct err *e)
{
    for (int i = 0; i < opt->n_described; i++) {
        if (!devices_find(d, opt->described[i].name))
            return err_set(e, ST_USAGE,
                           "'%s' is no device that can be described; there are SIM0, SIM1, ...",
                           opt->described[i].name);
    }
    return ST_OK;
}

enum status devices_open(struct devices *out, const struct device_options *opt, struct err *e)
{
    typedef enum status open_fn(struct devices * list, const struct device_options *opt,
                                struct device *cpu, struct err *e);
    static open_fn *const backends[] = {
#define BACKEND(open) open,
#include "backends/backends.def"
    };
    struct devices d = {.dev = mem_array(DEVICES_MAX, sizeof *d.dev)};
    struct device *cpu = NULL;
    enum status st;

    *out = (struct devices){0};
    if (!d.dev)
        return err_nomem(e, "list of devices", DEVICES_MAX * sizeof *d.dev);
    st = cpu_open(&cpu, opt, e);
    for (size_t i = 0; i < sizeof backends / sizeof(*backends) && !st; i++)
        st = backends[i](&d, opt, cpu, e);
    if (!st)
        st = check_described(&d, opt, e);
    if (st) {
        devices_close(&d);
        if (cpu)
            cpu->ops->free(cpu);
        return st;
    }
    d.dev[d.n++] = cpu;
    *out = d;
    return ST_OK;
}

/* From the first to the last: accelerators may use the CPU device, which goes last. */
void devices_close(struct devices *d)
{
    for (int i = 0; i < d->n; i++)
        d->dev[i]->ops->free(d->dev[i]);
    mem_free(d->dev);
    *d = (struct devices){0};
}

static enum status unknown_device(const struct devices *d, const char *name, size_t n,
                                  struct err *e)
{
    struct text known = {0};
    char quoted[32];
    enum status st;

    for (int i = 0; i < d->n; i++) {
        if (d->dev[i]->kind == DEVICE_GPU)
            text_addf(&known, "%s, ", d->dev[i]->name);
    }
    st = err_set(e, ST_USAGE, "'%s' is no accelerator that is left to choose; there are: %snone",
                 text_quote(quoted, sizeof quoted, name, n), known.p ? known.p : "");
    text_release(&known);
    return st;
}

/* Index from `first` on of the accelerator with this name, or -1. */
static int find_accelerator(const struct devices *d, int first, const char *name, size_t n)
{
    for (int i = first; i < d->n; i++) {
        if (d->dev[i]->kind == DEVICE_GPU && strlen(d->dev[i]->name) == n &&
            strncasecmp(d->dev[i]->name, name, n) == 0)
            return i;
    }
    return -1;
}

enum status devices_select(struct devices *d, const char *names, struct err *e)
{
    int n_chosen = 0, n = 0;

    for (const char *p = names; strcasecmp(names, "none") != 0; p++) {
        size_t k = strcspn(p, ",");
        int i = find_accelerator(d, n_chosen, p, k);
        struct device *dev;

        if (i < 0)
            return unknown_device(d, p, k, e);
        dev = d->dev[i]; /* to the front, behind those chosen before */
        memmove(&d->dev[n_chosen + 1], &d->dev[n_chosen], (size_t)(i - n_chosen) * sizeof(*d->dev));
        d->dev[n_chosen++] = dev;
        p += k;
        if (!*p)
            break;
    }
    for (int i = 0; i < d->n; i++) {
        if (i >= n_chosen && d->dev[i]->kind == DEVICE_GPU)
            d->dev[i]->ops->free(d->dev[i]);
        else
            d->dev[n++] = d->dev[i];
    }
    d->n = n;
    return ST_OK;
}

struct device *devices_cpu(const struct devices *d)
{
    return d->n ? d->dev[d->n - 1] : NULL;
}

const struct buft *devices_buft(const struct devices *d, const char *name,
                                const struct device **dev)
{
    for (int i = 0; i < d->n; i++) {
        *dev = d->dev[i];
        if ((*dev)->kind == DEVICE_ACCEL) /* works in the CPU's memory */
            continue;
        if (strcasecmp((*dev)->buft->name, name) == 0)
            return (*dev)->buft;
        for (int k = 0; k < (*dev)->n_more; k++) {
            if (strcasecmp((*dev)->more[k]->name, name) == 0)
                return (*dev)->more[k];
        }
    }
    *dev = NULL;
    return NULL;
}

struct device *devices_find(const struct devices *d, const char *name)
{
    for (int i = 0; i < d->n; i++)
        if (strcasecmp(d->dev[i]->name, name) == 0)
            return d->dev[i];
    return NULL;
}
