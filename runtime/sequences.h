/*
 * Several sequences in one session: what each gets of the context, and tokens of several of them.
 */
#ifndef GGRUN_RUNTIME_SEQUENCES_H
#define GGRUN_RUNTIME_SEQUENCES_H

#include <stdbool.h>
#include <stdint.h>

#include "gguf/base/status.h"

struct kvcache;

/*
 * Tokens to be evaluated. Each comes behind those that its sequence has; the tokens of one sequence are in
 * order, sequences may be mixed.
 */
struct seq_tokens {
    const int32_t *ids;  /* [n], or NULL where embeddings stand for them: */
    const float *embd;   /* [n_embd, n] */
    const int32_t *seq;  /* [n], or NULL: all of sequence 0 */
    const bool *out;     /* [n] whose logits are wanted; NULL: nobody's */
    uint32_t n;
};

/*
 * What each of n_seqs sequences may hold of n_ctx positions: all of them with `unified`, else its part rounded
 * up to KV_PAD, as llama.cpp does.
 */
uint32_t sequences_n_ctx(uint32_t n_ctx, uint32_t n_seqs, bool unified);

/* ST_USAGE: more than there may be. */
enum status sequences_check(uint32_t n_seqs, struct err *e);

struct seq_limits {
    uint32_t n_seqs, n_vocab;
    uint32_t n_outputs; /* of one evaluation; UINT32_MAX: any */
};

/* ST_USAGE: an id or a sequence that is not there, more outputs than have room, or tokens that do not fit into kv. */
enum status seq_tokens_check(const struct seq_tokens *t, const struct seq_limits *l,
                             const struct kvcache *kv, struct err *e);

#endif
