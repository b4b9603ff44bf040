/*
 * Simulated accelerators: made of host memory and a thread each, they behave like devices with memory of
 * their own, so that splits, copies, events and running out of memory can be seen and tested anywhere.
 *
 *   - Addresses of tensors point into a reservation without access rights: a host read faults. The worker
 *     sees the same memory elsewhere, a constant distance away.
 *   - Work is queued; compute returns at once. The worker computes with a CPU device of its own, with one
 *     thread, so that results are those of the CPU, bit for bit.
 *   - A memory limit, delays, ops that are refused.
 */
#ifndef GGRUN_BACKENDS_SIM_SIM_H
#define GGRUN_BACKENDS_SIM_SIM_H

#include "backends/backend.h"

#define SIM_MAX 32 /* devices */

struct sim_options {
    int n;
    size_t limit[SIM_MAX];  /* [n] bytes of memory */
    bool described;         /* no memory and no thread: for plans */
    size_t max_size;        /* of one allocation; 0 = no limit but the memory */
    uint64_t op_ns;         /* delay of each node */
    double byte_ns;         /* delay of each byte that is copied */
    uint64_t refuse;        /* bit 1 << op: not supported */
    int64_t offload;        /* columns from which a product is worth a copy of its weights; 0 = 32 */
};

/* "2": as many of 16 GiB; "24GiB,8GiB": their sizes. ST_USAGE with what is expected. */
enum status sim_parse(struct sim_options *o, const char *spec, struct err *e);
/* Append SIM0 .. SIM<n-1> to the list. opt: isa. On failure those opened so far are in the list. */
enum status sim_open_with(struct devices *list, const struct sim_options *o,
                          const struct device_options *opt, struct err *e);
/* The same for what opt->sim, or opt->described, asks for. */
enum status sim_open(struct devices *list, const struct device_options *opt, struct device *cpu,
                     struct err *e);

/* Largest number of devices, of those opened together with d, that computed at the same time so far. */
int sim_most_at_work(const struct device *d);

#endif
