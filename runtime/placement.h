/*
 * Placement: which device each layer is assigned to, and in which memory each weight is put. Ops follow their
 * weights (runtime/sched.h), so this steers where the work runs.
 *
 * Layers are numbered 0 .. n_layer, where n_layer stands for the output (its norm and its matrix). The last N
 * of these n_layer + 1 go to accelerators, all others and the input table stay on the CPU. A layer's KV cache
 * and recurrent state are on its device, whatever happens to single weights.
 */
#ifndef GGRUN_RUNTIME_PLACEMENT_H
#define GGRUN_RUNTIME_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "gguf/base/status.h"

struct arch_tensor;
struct hparams;

#define PLACE_ALL  INT32_MAX /* n_gpu_layers: as many as there are */
#define PLACE_AUTO (-1)      /* to be set by fit_placement (runtime/fit.h) */

enum split_mode {
    SPLIT_LAYER, /* layers are spread over the accelerators */
    SPLIT_NONE,  /* all on one of them, main_gpu */
    SPLIT_ROW,   /* likewise, but the rows of matrices are spread over all */
};

/* Weights whose name matches go to memory bt, whatever their layer's device (-ot). */
struct place_rule {
    const char *text; /* as the user wrote it, for messages */
    /* Does the name of a weight match? ST_USAGE when that takes too long to find out. */
    enum status (*match)(const struct place_rule *r, const char *name, bool *yes, struct err *e);
    void *pattern; /* of match */
    const struct buft *bt;
    const struct device *dev; /* whose memory it is */
};

struct placement_options {
    int32_t n_gpu_layers; /* last N of n_layer + 1 */
    enum split_mode split;
    int32_t main_gpu;          /* index among the accelerators */
    const float *tensor_split; /* [n_tensor_split] shares of the layers; NULL: by free memory */
    int n_tensor_split;
    const struct place_rule *rules; /* [n_rules] the first that matches decides */
    int n_rules;
    bool cpu_moe;      /* expert weights stay on the CPU */
    int32_t n_cpu_moe; /* those of the first N layers */
    bool no_kv_offload; /* KV cache and recurrent state stay on the CPU */
};

struct placement;

/*
 * Decide for a model of hp over devs (kept; both must outlive it). ST_USAGE: more than 0 layers are asked for and
 * there is no accelerator; main_gpu or tensor_split do not fit the number of accelerators; shares that are
 * negative, not finite or all 0; cpu_moe of a model without experts.
 */
enum status placement_new(struct placement **out, const struct devices *devs, const struct hparams *hp,
                          const struct placement_options *opt, struct err *e);
void placement_free(struct placement *p);

/* Layer il in 0..n_layer. */
const struct device *placement_layer(const struct placement *p, uint32_t il);
/* Where the KV cache and the recurrent state of layer il < n_layer live. */
const struct device *placement_kv(const struct placement *p, uint32_t il);

struct place {
    const struct device *dev; /* whose memory it is */
    const struct buft *bt;
    bool by_rule; /* the user named this memory */
    bool by_rows; /* a matrix of a layer whose rows are spread: placement_rows */
};

#define ROW_GRANULE 64 /* rows; shares of a matrix are multiples of it, but for its end */

/*
 * Spread n_rows rows of a matrix over the accelerators by their shares: out[k] for each that gets some, in the
 * order of the rows, main_gpu's last (its part is computed last, so that the whole is put together there).
 * Returns how many.
 */
struct row_share {
    const struct device *dev;
    int64_t first, n;
};
int placement_rows(const struct placement *p, int64_t n_rows, struct row_share out[DEVICES_MAX]);
/* The memory for a weight; counts for the coverage of the rules. Fails only where a rule's match does. */
enum status placement_weight(struct placement *p, const struct arch_tensor *at, uint32_t il, const char *name,
                             struct place *out, struct err *e);

/*
 * When all weights were asked for: a log_note per rule says how many it took; one that took none is ST_USAGE. The
 * rules are not looked at any more.
 */
enum status placement_done(struct placement *p, struct err *e);

#endif
