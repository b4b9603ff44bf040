/*
 * CPU device: the one that is always there. Host memory, one thread pool, kernels of the best
 * instruction set (or of the one asked for).
 */
#ifndef GGRUN_BACKENDS_CPU_CPU_H
#define GGRUN_BACKENDS_CPU_CPU_H

#include "backends/backend.h"

struct pool;

/* Owned by the caller; freed through its ops. opt: n_threads, isa. */
enum status cpu_open(struct device **out, const struct device_options *opt, struct err *e);
/* The pool of a CPU device, for devices that work on the same cores. */
struct pool *cpu_pool(const struct device *cpu);
/* Host memory. */
const struct buft *cpu_buft(void);

#endif
