/*
 * Reference of every op: straightforward loops in double over strides. Shares nothing with the
 * kernels; quantised rows come from the reference decoders of gguf/quants.h.
 */
#ifndef GGRUN_TESTS_BACKENDS_REF_H
#define GGRUN_TESTS_BACKENDS_REF_H

#include "backends/tensor.h"

/* Element (i0, i1, i2, i3) as a double, whatever the type. */
double ref_at(const struct tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3);
/* Row (i1, i2, i3) decoded: [ne0]. */
void ref_row(const struct tensor *t, int64_t i1, int64_t i2, int64_t i3, double *out);
/*
 * Result of node t from its sources, [tensor_n(t)] in order. `size`, if not NULL, gets for each
 * element the sum of the magnitudes of what was added up: what rounding errors are measured by.
 * SET_ROWS must be asked before it is computed, since it writes into its source.
 */
void ref_compute(const struct tensor *t, double *out, double *size);
/* The same of SSM_CONV, SSM_SCAN and DELTA_NET. */
void ref_recurrent(const struct tensor *t, double *out, double *size);

#endif
