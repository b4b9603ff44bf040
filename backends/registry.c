#include <string.h>
#include <strings.h>

#include "backends/backend.h"
#include "backends/cpu/cpu.h"
#include "backends/sim/sim.h"
#include "gguf/base/mem.h"

#ifdef GGRUN_HAVE_OPENBLAS
#include "backends/blas/blas.h"
#define BLAS_OPEN blas_open
#else
#define BLAS_OPEN NULL
#endif

typedef enum status open_fn(struct device **out, const struct device_options *opt,
                            struct device *cpu, struct err *e);

static enum status add_sim(struct devices *d, const struct device_options *opt, struct err *e)
{
    struct sim_options o;
    enum status st = opt->sim ? sim_parse(&o, opt->sim, e) : ST_OK;

    return st || !opt->sim ? st : sim_open(d, &o, opt, e);
}

/* Open one backend and append its device. */
static enum status add(struct devices *d, open_fn *open, bool wanted, const char *missing,
                       const struct device_options *opt, struct device *cpu, struct err *e)
{
    struct device *dev;
    enum status st;

    if (!wanted)
        return ST_OK;
    if (!open)
        return err_set(e, ST_USAGE, "%s", missing);
    if (d->n == DEVICES_MAX - 1)
        return err_set(e, ST_DEVICE, "more than %d devices", DEVICES_MAX);
    st = open(&dev, opt, cpu, e);
    if (st)
        return st;
    d->dev[d->n++] = dev;
    return ST_OK;
}

enum status devices_open(struct devices *out, const struct device_options *opt, struct err *e)
{
    struct devices d = {.dev = mem_array(DEVICES_MAX, sizeof *d.dev)};
    struct device *cpu = NULL;
    enum status st;

    *out = (struct devices){0};
    if (!d.dev)
        return err_nomem(e, "list of devices", DEVICES_MAX * sizeof *d.dev);
    st = cpu_open(&cpu, opt, e);
    if (st)
        goto fail;
    st = add_sim(&d, opt, e);
    if (st)
        goto fail;
#define BACKEND(name, open, wanted, missing)                                                       \
    st = add(&d, open, wanted, missing, opt, cpu, e);                                              \
    if (st)                                                                                        \
        goto fail;
#include "backends/backends.def"
    d.dev[d.n++] = cpu;
    *out = d;
    return ST_OK;
fail:
    devices_close(&d);
    if (cpu)
        cpu->ops->free(cpu);
    return st;
}

/* From the first to the last: accelerators may use the CPU device, which goes last. */
void devices_close(struct devices *d)
{
    for (int i = 0; i < d->n; i++)
        d->dev[i]->ops->free(d->dev[i]);
    mem_free(d->dev);
    *d = (struct devices){0};
}

struct device *devices_cpu(const struct devices *d)
{
    return d->n ? d->dev[d->n - 1] : NULL;
}

const struct buft *devices_buft(const struct devices *d, const char *name)
{
    for (int i = 0; i < d->n; i++) {
        const struct device *dev = d->dev[i];

        if (strcasecmp(dev->buft->name, name) == 0)
            return dev->buft;
        for (int k = 0; k < dev->n_more; k++)
            if (strcasecmp(dev->more[k]->name, name) == 0)
                return dev->more[k];
    }
    return NULL;
}

struct device *devices_find(const struct devices *d, const char *name)
{
    for (int i = 0; i < d->n; i++)
        if (strcasecmp(d->dev[i]->name, name) == 0)
            return d->dev[i];
    return NULL;
}
