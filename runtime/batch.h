/*
 * Batches: the tokens of one evaluation, cut into micro-batches that a graph computes at once.
 */
#ifndef GGRUN_RUNTIME_BATCH_H
#define GGRUN_RUNTIME_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "gguf/base/status.h"

#define SEQ_MAX 64 /* sequence ids are 0..63: a KV cell keeps its sequences as 64 bits */

enum carrier { /* what stands for the tokens; several may be there */
    CARRIER_TOKEN = 1,      /* ids */
    CARRIER_EMBD = 2,       /* embeddings computed elsewhere */
    CARRIER_EMBD_STATE = 4, /* state that goes with them */
};

/*
 * A micro-batch owns its data: what describes the last graph stays readable after the caller's tokens are
 * gone. Tokens of one sequence lie together, in order of position.
 */
struct ubatch {
    int32_t n_tokens;
    int32_t n_seq_tokens; /* tokens per sequence when equal_seqs, else 1 */
    int32_t n_seqs;       /* runs of n_seq_tokens tokens */
    int32_t n_seqs_unq;   /* different sequence ids in it */
    int32_t n_outputs;    /* tokens whose logits are wanted */
    bool equal_seqs;      /* every sequence has n_seq_tokens tokens */
    bool mixed;           /* sequences differ in their number of tokens */
    unsigned carriers;    /* enum carrier, or-ed */

    int32_t *token;       /* [n_tokens] */
    int32_t *pos;         /* [n_tokens] */
    int32_t *seq_id;      /* [n_tokens] */
    int32_t *out;         /* [n_outputs] indexes of the tokens whose logits are wanted, rising */
    int32_t seq_id_unq[SEQ_MAX]; /* [n_seqs_unq] in order of appearance */

    int32_t cap; /* tokens that fit */
    int32_t *mem;
};

enum status ubatch_init(struct ubatch *u, int32_t cap, struct err *e);
void ubatch_release(struct ubatch *u);

/* Tokens to be cut; the arrays are the caller's and must live until the last batch_next. */
struct batch {
    const int32_t *token;  /* [n] */
    const int32_t *seq_id; /* [n], or NULL: all of sequence 0 */
    int32_t pos0;          /* position of the first token; they follow each other */
    uint32_t n;
    bool out_all, out_last; /* whose logits are wanted */
    uint32_t done;          /* tokens cut off so far; start with 0 */
};

/*
 * Cut the next micro-batch of at most n_max (<= u->cap) tokens into *u: one sequence per micro-batch, a new
 * sequence starts a new one. False when all tokens are done.
 */
bool batch_next(struct batch *b, struct ubatch *u, uint32_t n_max);

#endif
