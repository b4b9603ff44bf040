/*
 * BLAS device: large float products through OpenBLAS, in the CPU's memory and on the CPU's threads
 * (each thread calls the library for its own rows; the library's own threads are switched off).
 * Results depend on the library and on the batch: outside the promise of equal bits.
 */
#ifndef GGRUN_BACKENDS_BLAS_BLAS_H
#define GGRUN_BACKENDS_BLAS_BLAS_H

#include "backends/backend.h"

/* Uses `cpu`'s pool, so it must be freed before. */
enum status blas_open(struct device **out, const struct device_options *opt, struct device *cpu,
                      struct err *e);

#endif
