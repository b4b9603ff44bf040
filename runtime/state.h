/*
 * Recurrent state: what layers with a recurrence know of the tokens before, whatever their number.
 *
 *     conv[il] [n_conv, STATE_SLOTS]    ssm[il] [n_ssm, STATE_SLOTS]    f32; a row is one state; empty elsewhere
 *
 * A micro-batch reads the state `from` and writes the state `to`, never the same one, and an evaluation
 * leaves the one it started from (`kept`) alone:
 *
 *     state_begin      from = kept
 *     state_step       to = a slot that is neither kept nor from       before each micro-batch
 *     state_advance    from = to                                       after it
 *     state_keep       kept = from                                     when all of the evaluation went well
 *
 * So a micro-batch may be computed twice, and an evaluation that failed changes nothing. No state (-1) is
 * all zero: nothing has to be cleared.
 */
#ifndef GGRUN_RUNTIME_STATE_H
#define GGRUN_RUNTIME_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "gguf/base/status.h"
#include "runtime/hparams.h"
#include "runtime/store.h"

#define STATE_SLOTS 3

struct state {
    uint32_t n_layer;
    struct tensor *conv, *ssm; /* [n_layer] owned; bound */
    int32_t kept, from, to;    /* rows; -1: none */
    struct store store;        /* their memory */
    size_t n_bytes;            /* 0: no layer has a recurrence */
};

/*
 * layer_dev [n_layer]: where each layer's part lives; `dry`: describe the memory only. ST_NOMEM names device,
 * bytes needed and free.
 */
enum status state_init(struct state *s, const struct hparams *hp, const struct device *const *layer_dev,
                       bool dry, struct err *e);
void state_release(struct state *s);

void state_begin(struct state *s);
void state_step(struct state *s);
void state_advance(struct state *s);
void state_keep(struct state *s);
/* Back to before the first token. */
void state_reset(struct state *s);

#endif
