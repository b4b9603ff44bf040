/*
 * Checkers of plans. They share no code with sched.c and alloc.c: everything is derived again from
 * the graph, the devices and the finished plan, by brute force where that is possible.
 *
 * A failed check is a bug of the planner; it comes back as a status so that a test can print the
 * plan.
 */
#ifndef GGRUN_RUNTIME_CHECK_H
#define GGRUN_RUNTIME_CHECK_H

#include "runtime/plan.h"

/* What pass 1..5 of the scheduler promises, to be asked right after that pass. */
enum status check_pass(const struct plan *p, const struct graph *g, int pass, struct err *e);

/*
 * The whole schedule: every tensor has a device and a cause, every device can compute its nodes and
 * read their sources, splits cover the graph in order, each copy is made in time and is not out of
 * date.
 */
enum status check_sched(const struct plan *p, const struct graph *g, struct err *e);

/*
 * The address table: aligned, inside its chunk, large enough; views inside their owners; and the
 * run is acted out on a map of who wrote each byte last, so that every read finds the bytes it
 * expects, a result overlaps a source only where it may be computed in place, and outputs and what
 * is kept are intact at the end.
 */
enum status check_alloc(const struct plan *p, const struct graph *g, struct err *e);

/*
 * What buffer `buf` needs at least: the largest sum of aligned sizes of tensors that live at one
 * time, a result that may take over its source counted once with it, views not at all. SIZE_MAX
 * when there is no memory to compute it.
 */
size_t check_least(const struct plan *p, const struct graph *g, int buf);

/* Data and buffer of every tensor of a bound plan are where the address table says. */
enum status check_bind(const struct plan *p, const struct graph *g, struct err *e);

#endif
