/*
 * Pack runs of bytes whose lifetimes are known into as few bytes as possible.
 *
 * The problem is NP-hard; this is a search that is deterministic and bounded by counted work. It
 * places the most demanding runs first (as offline planners such as XNNPACK's do), each at the
 * tightest gap that is free for all its life; then it moves the run that did not fit towards the
 * front of the order and tries again from there: who causes the trouble may choose earlier
 * ("squeaky wheel optimization", Joslin and Clements, JAIR 10, 1999). An attempt is given up as
 * soon as it is worse than half way to its goal.
 */
#ifndef GGRUN_RUNTIME_PACK_H
#define GGRUN_RUNTIME_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gguf/base/status.h"

/* The bytes that a run holds from one step to another. A run only shrinks: items are its stages. */
struct pack_item {
    int32_t run, next; /* of the same run, -1 */
    int32_t from, to;  /* steps, both inclusive */
    size_t size;       /* bytes */
};

struct pack_run {
    int32_t first, last; /* items */
    int32_t group;       /* runs of different groups have nothing to do with each other */
};

struct pack {
    const struct pack_run *runs;   /* [n_runs] */
    const struct pack_item *items; /* [n_items] in the order of `from` */
    int n_runs, n_items;
    int group;    /* the one to pack */
    size_t least; /* the most that lives at one time: no packing is smaller */
    size_t peak;  /* in: bytes to beat; out: bytes needed */
    size_t *offs; /* [n_runs] out, for the runs of the group */
};

/* *better: peak and offs are set; else nothing below `peak` was found, or there are too many pairs. */
enum status pack(struct pack *k, bool *better, struct err *e);

#endif
