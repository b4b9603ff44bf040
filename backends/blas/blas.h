/*
 * BLAS device: large float products through OpenBLAS, in the CPU's memory and on the CPU's threads
 * (each thread calls the library for its own rows; the library's own threads are switched off).
 * Results depend on the library and on the batch: outside the promise of equal bits.
 */
#ifndef GGRUN_BACKENDS_BLAS_BLAS_H
#define GGRUN_BACKENDS_BLAS_BLAS_H

#include "backends/backend.h"

/*
 * Append BLAS if opt->blas. It uses `cpu`'s pool, so it must be freed before. ST_USAGE where it is not
 * compiled in, ST_DEVICE where the library is not there.
 */
enum status blas_open(struct devices *list, const struct device_options *opt, struct device *cpu,
                      struct err *e);

#endif
