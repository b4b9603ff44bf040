/* Simulated accelerators with 64 MiB each and the CPU, for tests of the runtime. */
#ifndef GGRUN_TESTS_SIMS_H
#define GGRUN_TESTS_SIMS_H

#include "backends/sim/sim.h"
#include "runtime/model.h"

/* Closed with devices_close. The CPU has two threads. */
enum status sims_open(struct devices *d, const struct sim_options *o, struct err *e);

/*
 * Let them be something else: devices without the functions of a queue, or each of another backend, so
 * that nothing can be copied from one to the other without the host.
 */
enum sims_kind { SIMS_ALIKE, SIMS_NO_QUEUE, SIMS_STRANGERS };
void sims_turn(struct devices *d, enum sims_kind kind);

/* A random tiny model on them. */
struct rig {
    struct devices devs;
    struct model *m;
    void *bytes;
};
enum status rig_open(struct rig *r, const char *arch, uint32_t n_layer,
                     const struct sim_options *sim, const struct placement_options *place,
                     struct err *e);
void rig_close(struct rig *r);

#endif
