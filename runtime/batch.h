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

/* How a batch is cut into micro-batches; the order within a sequence is kept. */
enum split {
    SPLIT_SEQUENCE, /* one sequence in each, as many of its tokens as follow each other */
    SPLIT_SIMPLE,   /* tokens as they come, sequences may be mixed */
    SPLIT_EQUAL,    /* equally many tokens of each sequence that takes part, those of one next to each other */
};

/*
 * A micro-batch owns its data: what describes the last graph stays readable after the caller's tokens are
 * gone. Only embeddings are read where the batch has them. Tokens of one sequence are in order of position.
 */
struct ubatch {
    int32_t n_tokens;
    int32_t n_seq_tokens; /* tokens per sequence when equal_seqs, else 1 */
    int32_t n_seqs;       /* runs of n_seq_tokens tokens */
    int32_t n_seqs_unq;   /* different sequence ids in it */
    int32_t n_outputs;    /* tokens whose logits are wanted */
    bool equal_seqs;      /* every sequence has n_seq_tokens tokens, which lie together */
    bool mixed;           /* sequences differ in their number of tokens */
    unsigned carriers;    /* enum carrier, or-ed */

    int32_t *token;       /* [n_tokens]; 0 where embeddings stand for them */
    int32_t *pos;         /* [n_tokens] */
    int32_t *seq_id;      /* [n_tokens] */
    int32_t *out;         /* [n_outputs] indexes of the tokens whose logits are wanted, rising */
    int32_t *index;       /* [n_tokens] of the token in the batch */
    const float *embd;    /* [n_embd, batch->n] the batch's; NULL without CARRIER_EMBD */
    int32_t seq_id_unq[SEQ_MAX]; /* [n_seqs_unq] in order of appearance */

    int32_t cap; /* tokens that fit */
    int32_t *mem;
};

enum status ubatch_init(struct ubatch *u, int32_t cap, struct err *e);
void ubatch_release(struct ubatch *u);

/* Tokens to be cut; the arrays are the caller's and must live until the last micro-batch is computed. */
struct batch {
    enum split split;
    const int32_t *token;  /* [n] ids, or NULL: */
    const float *embd;     /* [n_embd, n] embeddings */
    const int32_t *seq_id; /* [n], or NULL: all of sequence 0 */
    const bool *out;       /* [n] whose logits are wanted; NULL: the next two say it */
    bool out_all, out_last;
    uint32_t n;
    uint32_t done;          /* tokens cut off so far; start with 0 */
    int32_t pos[SEQ_MAX];   /* position of the next token of each sequence; later ones follow */
    uint32_t next[SEQ_MAX]; /* equal splits: no token of the sequence before it is left; start with 0 */
};

/* Cut the next micro-batch of at most n_max (<= u->cap) tokens into *u. False when all tokens are done. */
bool batch_next(struct batch *b, struct ubatch *u, uint32_t n_max);

#endif
