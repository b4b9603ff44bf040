/* Pass 5 of the scheduler (runtime/sched.h): splits, copies and what is really run. */
#ifndef GGRUN_RUNTIME_SPLIT_H
#define GGRUN_RUNTIME_SPLIT_H

#include "runtime/plan.h"

/*
 * After passes 1 to 4: fill splits, inputs and run of the plan, add the tensors of copies and twins, and make the
 * structs of copies and shadows. ST_NOMEM.
 */
enum status split_graph(struct plan *p, struct err *e);

#endif
