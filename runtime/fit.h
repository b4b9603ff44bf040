/*
 * Fit: how many layers, and whose experts, go to accelerators so that all of it fits into their memory. The
 * answer is found by planning (dry models and sessions), so it rests on the very sums that a run asks for.
 */
#ifndef GGRUN_RUNTIME_FIT_H
#define GGRUN_RUNTIME_FIT_H

#include "gguf/base/status.h"
#include "gguf/reader.h"
#include "runtime/placement.h"
#include "runtime/session.h"

/*
 * Set po->n_gpu_layers, and po->n_cpu_moe of a model with experts where the user left it at 0, for `file` (stays
 * the caller's; it needs no data), these devices and such a session. First all layers are tried; then with the
 * experts of as few leading layers as possible on the CPU; then fewer layers: unless the user gave shares (-ts),
 * the last accelerator gets as many of the last layers as it can hold, then the one before it, and so on; these
 * shares are written to shares[DEVICES_MAX], which must live as long as *po. Each accelerator keeps a margin of
 * 5 % of its memory, at most 1 GiB. Where not even the copies of host weights for large batches fit, they are
 * switched off in *so. A log_note says what was chosen. Fails as model_load and session_new do, except that
 * what does not fit is no failure.
 */
enum status fit_placement(struct placement_options *po, float *shares, struct gguf *file,
                          const struct devices *devs, struct session_options *so, struct err *e);

#endif
