/*
 * Schedule: which device computes each node, and what has to be copied between devices.
 *
 * Five passes over descriptions only; no data and no memory of a device is needed. What each pass
 * promises is in sched.c and is verified by check.c when p->check is set.
 */
#ifndef GGRUN_RUNTIME_SCHED_H
#define GGRUN_RUNTIME_SCHED_H

#include "runtime/plan.h"

/*
 * Fill device and cause of every tensor of g, the splits and their copies. Starts the plan anew
 * (plan_enter). Fails with ST_UNSUPPORTED when no device can compute a node, naming it.
 */
enum status sched_plan(struct plan *p, const struct graph *g, struct err *e);

#endif
