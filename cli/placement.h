/* From the options -ngl, -ot, -ts, ... to where layers and weights go. */
#ifndef GGRUN_CLI_PLACEMENT_H
#define GGRUN_CLI_PLACEMENT_H

#include "backends/backend.h"
#include "cli/options.h"
#include "gguf/base/status.h"
#include "runtime/placement.h"

struct place_rules {
    struct place_rule *rules; /* [n] */
    int n;
    float shares[DEVICES_MAX];
};

/*
 * Fill *po from the options, for these devices. *r holds what *po points to, and is released with
 * place_rules_release, after a failure too. ST_USAGE for values that cannot be: the message names option and
 * value, and what is known.
 */
enum status placement_from_options(struct placement_options *po, struct place_rules *r,
                                   const struct options *o, const struct devices *devs,
                                   struct err *e);
void place_rules_release(struct place_rules *r);

/* --device-memory: "sim0=24GiB,sim1=8GiB" into specs[DEVICES_MAX]. */
enum status parse_device_memory(const char *s, struct device_spec *specs, int *n, struct err *e);

#endif
