/*
 * Sampling: from the logits of one position to one token id.
 *
 * A chain of samplers (llama.cpp's names and defaults), each a row of the table in sampler.c:
 * biases first, then the samplers in the order of --samplers, then a draw. --temp 0 is greedy:
 * after biases and penalties the most likely id, the lowest id on a tie. All state and memory is
 * set up by sampler_new; sampler_sample allocates nothing. The same seed, logits and history give
 * the same id on any machine.
 */
#ifndef GGRUN_RUNTIME_SAMPLER_H
#define GGRUN_RUNTIME_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "gguf/base/status.h"
#include "gguf/base/text.h"
#include "runtime/graph_sampling.h"

enum { SAMPLER_MAX = 16 }; /* rows of the table, at most */

struct sampler_options {
    float temp;                 /* >= 0; 0 = greedy. default 0.8 */
    float dynatemp_range;       /* >= 0; 0 = off: the temperature is temp. default 0 */
    float dynatemp_exp;         /* >= 0. default 1 */
    int32_t top_k;              /* <= 0 (0) = off. default 40 */
    float top_n_sigma;          /* finite; <= 0 = off. default -1 */
    float typ_p;                /* 0..1; 1 = off. default 1 */
    float top_p;                /* 0..1; 1 = off. default 0.95 */
    float min_p;                /* 0..1; 0 = off. default 0.05 */
    float xtc_probability;      /* 0..1; 0 = off. default 0 */
    float xtc_threshold;        /* 0..1; above 0.5 = off. default 0.1 */
    float repeat_penalty;       /* > 0; 1 = off. default 1 */
    float presence_penalty;     /* finite; 0 = off. default 0 */
    float frequency_penalty;    /* finite; 0 = off. default 0 */
    int32_t repeat_last_n;      /* tokens looked back at; 0 = off, -1 = the context. default 64 */
    float dry_multiplier;       /* >= 0; 0 = off. default 0 */
    float dry_base;             /* >= 1. default 1.75 */
    int32_t dry_allowed_length; /* >= 0, repeated tokens that cost nothing yet. default 2 */
    int32_t dry_penalty_last_n; /* as repeat_last_n. default 64 */
    int32_t mirostat;   /* 0 = off, version 1 or 2: replaces all but the temperature. default 0 */
    float mirostat_lr;  /* >= 0, learning rate. default 0.1 */
    float mirostat_ent; /* >= 0, target surprise in bits. default 5 */
    float
        adaptive_target;  /* 0..1, probability to draw near to; -1..0 exclusive = off. default -1 */
    float adaptive_decay; /* 0..0.99, weight of the past against one token. default 0.9 */
    uint64_t seed;        /* of the generator */
    int8_t order[SAMPLER_MAX]; /* [n_order] rows of the table, as they are applied */
    int32_t n_order;
};

void sampler_defaults(struct sampler_options *o);
/* ST_USAGE naming the flag, the value and the range: NaN, infinity, out of range. */
enum status sampler_check(const struct sampler_options *o, struct err *e);

/*
 * Set the order from names with ';' between them (--samplers), or from one letter each
 * (--sampler-seq). flag: what messages call the option. ST_USAGE for a name that is unknown, empty
 * or given twice, with the list of those there are.
 */
enum status sampler_set_names(struct sampler_options *o, const char *flag, const char *names,
                              struct err *e);
enum status sampler_set_letters(struct sampler_options *o, const char *flag, const char *letters,
                                struct err *e);

struct sampler;

/*
 * n_ctx: what -1 stands for in repeat_last_n and dry_penalty_last_n. Warns of values that were set
 * for samplers that are not in the chain.
 */
enum status sampler_new(struct sampler **out, const struct sampler_options *o, int32_t n_vocab,
                        uint32_t n_ctx, struct err *e);
void sampler_free(struct sampler *s);

/*
 * Add a bias to the logit of id; biases of one id add up. sampler_ban: -INFINITY, so that it is
 * never picked (--ignore-eos: every end-of-generation id). ST_USAGE when id is outside the
 * vocabulary or the bias is NaN or +INFINITY.
 */
enum status sampler_bias(struct sampler *s, int32_t id, float bias, struct err *e);
enum status sampler_ban(struct sampler *s, int32_t id, struct err *e);
/*
 * Add a sequence breaker for DRY: n >= 1 tokens; one that is there already is fine. Does nothing
 * when DRY is off, or the first is outside the vocabulary: no text has it. ST_NOMEM.
 */
enum status sampler_add_breaker(struct sampler *s, const int32_t *ids, int32_t n, struct err *e);
bool sampler_wants_breakers(const struct sampler *s); /* is DRY on? */
/* Tell the sampler a token of the text (prompt tokens too), for the penalties. */
void sampler_accept(struct sampler *s, int32_t id);
/*
 * Pick an id; does not accept it. logits [n_vocab] f32 is not changed. ST_MODEL when a logit is NaN
 * or +inf or when no id is left.
 */
enum status sampler_sample(struct sampler *s, const float *logits, int32_t *id, struct err *e);

/*
 * What a graph can do of the chain so that sampler_sample_of gives the ids of sampler_sample: choose the most likely
 * id, or the top k, where nothing before it changes the logits, and leave out ids that are never picked. False when
 * it can do nothing: *why then is the sampler that stands in the way. After the last sampler_bias; gs->allowed is the
 * sampler's.
 */
bool sampler_in_graph(const struct sampler *s, struct graph_sampling *gs, const char **why);
/*
 * As sampler_sample, given what the graph has chosen: n ids, the most likely first, and their logits. -inf is an id
 * that is never picked.
 */
enum status sampler_sample_of(struct sampler *s, const int32_t *ids, const float *logits, int32_t n,
                              int32_t *id, struct err *e);

/* One candidate of the last sample after the chain: for tests and --verbose. */
struct candidate {
    int32_t id;
    float p; /* probability after the chain; the list sums to 1 */
};
/* Candidates kept by the last sample, most likely first; *n set. Owned by the sampler. */
const struct candidate *sampler_kept(const struct sampler *s, int32_t *n);

/* Append the chain as it is run, with its values, for --verbose: "top_k=40 -> ... -> dist". */
void sampler_describe(const struct sampler *s, struct text *t);

#endif
