/*
 * For the tests of samplers: a reference that follows the description of each sampler word by word,
 * on plain arrays, with qsort and the C library's functions; random input; and the comparison of a
 * sample with the reference.
 */
#ifndef GGRUN_TESTS_SAMPLER_REF_H
#define GGRUN_TESTS_SAMPLER_REF_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/sampler.h"

#define N_MAX 400 /* tokens of a vocabulary, at most */
#define N_CTX 64

/* ---- reference ---- */

struct ref {
    int id;
    double x, p; /* logit, probability */
};

struct refs {
    struct ref r[N_MAX];
    int n;
    bool close; /* rounding alone could have changed what was kept */
    int history[N_CTX], n_history;
    int breakers[4][3], n_tokens[4], n_breakers; /* DRY's */
};

/* Sort and give the probabilities. */
void ref_softmax(struct refs *l);

typedef void ref_fn(struct refs *l, const struct sampler_options *o);

struct ref_row {
    const char *name;
    char letter;
    ref_fn *fn;
};
enum { N_REF_ROWS = 9 };
extern const struct ref_row ref_rows[N_REF_ROWS]; /* in the default order */
ref_fn ref_min_p, ref_temperature;

/* The samplers that draw: what they keep, and what they learn from the drawn id. */
struct ref_state {
    double mu;            /* mirostat */
    double sum, weight;   /* adaptive-p */
    double before[N_MAX]; /* by id: probabilities before the transformation */
};
void ref_mirostat(struct refs *l, const struct sampler_options *o, struct ref_state *st,
                  int n_vocab);
void ref_adaptive_p(struct refs *l, const struct sampler_options *o, struct ref_state *st);
void ref_learn(const struct refs *l, const struct sampler_options *o, struct ref_state *st, int id);

/* ---- random input ---- */

extern uint32_t noise_state; /* each test sets it */
uint32_t noise_int(uint32_t below);
double noise(void);  /* in [0, 1) */
int pick_size(void); /* of a vocabulary */
/* Logits of several kinds: spread, many ties, all equal, one far ahead, some -inf, Zipf's law. */
void make_logits(float *logits, int n);
/* Tokens of a text that repeats itself, and breakers that may stand in it. */
void make_history(struct refs *l, int n_vocab);
/* Everything off, temperature 1. */
struct sampler_options off(void);
/* Switch one sampler on, with values over its whole range. */
void randomise(struct sampler_options *o, char letter);

/* ---- one case ---- */

/* A sampler that knows the breakers and the text of l. */
struct sampler *make(const struct sampler_options *o, const struct refs *l, int n_vocab);
void load(struct refs *l, const float *logits, int n);
/* The sample's candidates are those of the reference, with its probabilities. Returns the id. */
int compare(struct sampler *s, const float *logits, struct refs *l);
/* Some more tokens of text. */
void go_on(struct sampler *s, struct refs *l, int n_vocab);

#endif
