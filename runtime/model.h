/*
 * A model: an open GGUF file, its hyperparameters, its weights as tensors on devices, its vocabulary.
 * Read-only after loading; several sessions may share it.
 */
#ifndef GGRUN_RUNTIME_MODEL_H
#define GGRUN_RUNTIME_MODEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "gguf/base/status.h"
#include "gguf/reader.h"
#include "runtime/hparams.h"
#include "runtime/placement.h"

struct arch;

struct model {
    struct gguf *file;        /* owned, unless borrows_file */
    bool borrows_file;
    const struct arch *arch;  /* row of arch.def */
    struct hparams hp;
    struct tensor **weights;  /* the structs of pointers of arch.h; NULL = optional and absent */
    int n_weights;            /* entries of weights */
    int n_row_parts;          /* tensors that hold rows of a split matrix */
    struct placement *placement; /* owned; where layers and weights are */
    uint64_t n_weight_bytes;  /* bytes of the weights that are used */
    uint64_t n_params;        /* elements of the weights that are used */
    struct model_impl *impl;  /* loader's own: tensors, buffers, names */
};

/* Bytes of weights in a device's memory: used where the file has them, and copied there. */
struct model_memory {
    uint64_t n_mapped, n_copied;
};
struct model_memory model_memory(const struct model *m, const struct device *dev);

/*
 * A matrix whose rows are split over devices (-sm row) is several tensors: part i holds the rows behind those of
 * part i - 1. NULL beyond the last, and for weights that are whole. The matrix itself, which has shape and name
 * alone, may not be computed with.
 */
struct tensor *model_row_part(const struct model *m, const struct tensor *w, int i);

struct model_options {
    const struct devices *devs;   /* must outlive the model */
    /* Called now and then with the share done, 0..1; may be NULL. */
    void (*progress)(void *ctx, double share);
    void *progress_ctx;
    const atomic_bool *cancel; /* may be NULL; true = stop soon with ST_CANCELLED */
    const struct placement_options *place; /* NULL: all on the CPU */
    bool borrow_file;          /* `file` stays the caller's, who closes it after the model is freed */
    bool dry;                  /* copies are descriptions without memory: for planning */
    bool lock;                 /* weights used where the file has them are locked in memory, or ST_NOMEM */
    bool check_tensors;        /* look for NaN and Inf in the weights: ST_MODEL naming tensor and block */
};

/*
 * Take over `file` (closed by model_free; also closed when this fails; not with borrow_file) and load it: architecture by name,
 * hyperparameters, tensors (each checked against the shape that the architecture expects; a missing one is
 * ST_MODEL with its name; an extra one a log_warn with its name). Weights of the CPU are used where they are
 * mapped, all others copied to their device; its memory being too small is ST_NOMEM.
 * A file with a vocabulary only is ST_UNSUPPORTED "holds a vocabulary only".
 * An architecture that we do not know is ST_UNSUPPORTED, naming it and listing those we do.
 */
enum status model_load(struct model **out, struct gguf *file, const struct model_options *opt,
                       struct err *e);
void model_free(struct model *m); /* NULL is fine */

#endif
