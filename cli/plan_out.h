/* The forms of what 'ggrun plan' prints, for one planned graph and the memory that goes with it. */
#ifndef GGRUN_CLI_PLAN_OUT_H
#define GGRUN_CLI_PLAN_OUT_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "gguf/base/text.h"
#include "runtime/model.h"
#include "runtime/plan.h"

struct cJSON;

/* Bytes in one device's memory. */
struct device_plan {
    const struct device *dev;
    uint64_t n_mapped, n_weights, n_kv, n_compute, n_staging, n_output, n_scratch;
    uint64_t n_limit; /* 0: unknown, or it works in the CPU's */
};

struct plan_view {
    const struct model *model;
    const struct plan *plan;
    const struct device_plan *devs; /* [n_devs] in the order of priority, the CPU last */
    int n_devs;
    uint32_t n_seqs; /* sequences, each of which has n_ctx tokens or, in a unified cache, what others leave */
    uint32_t n_ctx, n_ubatch, n_tokens, n_kv; /* n_tokens and n_kv of the graph that is shown */
    bool nodes, unified;
};

uint64_t device_plan_sum(const struct device_plan *d);

void plan_text(const struct plan_view *v, struct text *t);
void plan_dot(const struct plan_view *v, struct text *t);
struct cJSON *plan_json(const struct plan_view *v); /* NULL when memory is short */

#endif
