/*
 * Allocate: where every byte of a scheduled plan lives.
 *
 * Needs descriptions only. Fills the address table of the plan (buf, chunk, offs, size of each
 * tensor that is neither a view nor in memory already), the chunks of each buffer, and the figures.
 */
#ifndef GGRUN_RUNTIME_ALLOC_H
#define GGRUN_RUNTIME_ALLOC_H

#include "runtime/plan.h"

struct alloc_options {
    bool debug;     /* log each allocation, reuse and release */
    bool walk_only; /* stay with the addresses of the walk in execution order (tests) */
};

/* After sched_plan. opt may be NULL. Fails with ST_NOMEM when a tensor exceeds the largest chunk. */
enum status alloc_plan(struct plan *p, const struct alloc_options *opt, struct err *e);

#endif
