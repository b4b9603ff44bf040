/*
 * Recurrent state: what layers with a recurrence know of the tokens before, whatever their number.
 *
 *     conv[il] [n_conv, n_rows]    ssm[il] [n_ssm, n_rows]    f32; a row is one state; empty elsewhere
 *
 * Each sequence has STATE_SLOTS rows. A micro-batch reads its row `from` and writes its row `to`, never the same
 * one, and an evaluation leaves the one it started from (`kept`) alone:
 *
 *     state_begin      from = kept
 *     state_step       to = a slot that is neither kept nor from       before each micro-batch
 *     state_advance    from = to                                       after it
 *     state_keep       kept = from                                     when all of the evaluation went well
 *
 * So a micro-batch may be computed twice, and an evaluation that failed changes nothing. No state (-1) is
 * all zero: nothing has to be cleared. Sequences that have no part in a micro-batch are not touched by it.
 */
#ifndef GGRUN_RUNTIME_STATE_H
#define GGRUN_RUNTIME_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "gguf/base/status.h"
#include "runtime/batch.h"
#include "runtime/hparams.h"
#include "runtime/store.h"

#define STATE_SLOTS 3

/* Rows of one sequence; -1: none. */
struct seq_state {
    int32_t kept, from, to;
};

struct state {
    uint32_t n_layer, n_seqs;
    struct tensor *conv, *ssm; /* [n_layer] owned; bound */
    struct seq_state seq[SEQ_MAX]; /* [n_seqs] */
    struct store store;        /* their memory */
    size_t n_bytes;            /* 0: no layer has a recurrence */
};

/*
 * layer_dev [n_layer]: where each layer's part lives; `dry`: describe the memory only. ST_NOMEM names device,
 * bytes needed and free.
 */
enum status state_init(struct state *s, const struct hparams *hp, const struct device *const *layer_dev,
                       uint32_t n_seqs, bool dry, struct err *e);
void state_release(struct state *s);

void state_begin(struct state *s);
void state_step(struct state *s, const struct ubatch *u);
void state_advance(struct state *s, const struct ubatch *u);
void state_keep(struct state *s);
/* Back to before the first token of a sequence. */
void state_reset(struct state *s, int32_t seq);
/* Sequence `to` has what was kept of `from`: through the host. */
enum status state_copy(struct state *s, int32_t from, int32_t to, struct err *e);

#endif
