/*
 * What the samplers of the chain share: the list of candidates, its order and weights, arithmetic
 * that gives the same bits on every machine, and the row that each sampler is.
 *
 * A sampler is one row (struct sampler_row) with static functions behind it, in a file
 * sample_<family>.c, and one line in the table of sampler.c. Inside runtime/ only; the face to the
 * rest is sampler.h.
 */
#ifndef GGRUN_RUNTIME_SAMPLE_H
#define GGRUN_RUNTIME_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "gguf/base/text.h"
#include "runtime/sampler.h"

/* ---- arithmetic: IEEE operations alone, so the result does not depend on the C library ---- */

double sample_exp(double x);           /* e^x, x <= 0; 0 below -740 */
double sample_log(double x);           /* natural logarithm of a finite x > 0 */
double sample_pow(double x, double y); /* x^y for x from 0 to 1 and y >= 0; 0^0 is 1 */
void rng_seed(uint64_t s[4], uint64_t seed);
double rng_uniform(uint64_t s[4]); /* in [0, 1), 53 bits */

/* ---- the candidates ---- */

struct pick {
    double logit; /* finite */
    int32_t id;
};

/*
 * The candidates of one sample. Invariants between two samplers:
 *   1. n >= 1, every logit is finite, no id appears twice;
 *   2. sorted: descending logits, the lowest id first on a tie; by_id: ascending ids; or neither;
 *   3. weighed: weights[0..n) are e^(logit - largest logit).
 */
struct sample {
    const struct sampler_options *opt;
    int32_t n_vocab;
    struct pick *picks, *spare; /* [n_vocab] each; spare is room to work in */
    double *weights;            /* [n_vocab] of picks */
    int32_t n;
    bool sorted, by_id, weighed;
    uint64_t rng[4];
    int32_t drawn; /* index of the pick that the last sampler chose */
};

/* Put all candidates into order. */
void sample_sort(struct sample *l);
/* Keep the k (> 0) first of the order, sorted. */
void sample_sort_top(struct sample *l, int32_t k);
/* Keep the first n (1..l->n). */
void sample_keep(struct sample *l, int32_t n);
/* The logits were changed; sorted says whether their order is what it was. */
void sample_changed(struct sample *l, bool sorted);
/* Make the weights valid; returns their sum. */
double sample_weigh(struct sample *l);
/* Shannon entropy of the candidates' probabilities, natural logarithm. */
double sample_entropy(struct sample *l);
/* Index of a pick drawn with weights that sum up to sum. */
int32_t sample_draw(struct sample *l, double sum);
/* Index of the largest logit, the lowest id on a tie. */
int32_t sample_largest(const struct sample *l);

/* A heap of picks that hands them out from the end of the order: the lowest logit first, on a tie
 * the highest id. pop shortens it by one; *n > 0. */
void sample_heap(struct pick *h, int32_t n);
struct pick sample_heap_pop(struct pick *h, int32_t *n);

/* ---- the last tokens of the text ---- */

struct recent {
    int32_t *id; /* [max] ring */
    uint32_t max, n, next;
};

/* last_n as on the command line: -1 is the context; more than the context is the context. */
bool recent_init(struct recent *r, int32_t last_n, uint32_t n_ctx);
void recent_release(struct recent *r);
/* Returns the id that fell out, or -1. */
int32_t recent_add(struct recent *r, int32_t id);
/* back = 0 is the newest; back < n. */
int32_t recent_at(const struct recent *r, uint32_t back);

/* ---- a sampler ---- */

struct sampler_setup {
    const struct sampler_options *opt;
    int32_t n_vocab;
    uint32_t n_ctx;
};

struct sampler_row {
    const char *name;  /* as in --samplers; case, '-' and '_' do not count there */
    const char *alias; /* another name, or NULL */
    char letter;       /* as in --sampler-seq; 0: cannot be named, the chain adds it itself */
    bool keeps_first;  /* never removes the most likely candidate */
    bool draws;        /* sets drawn: goes last, wherever it was named */

    enum status (*check)(const struct sampler_options *o, struct err *e); /* NULL: all is fine */
    bool (*active)(const struct sampler_options *o);                      /* NULL: always */
    void (*describe)(const struct sampler_options *o, struct text *t);    /* "=40", "(a=1, b=2)" */
    /* Memory between samples. NULL: needs none. *state NULL on failure, which is ST_NOMEM. */
    enum status (*open)(void **state, const struct sampler_setup *u, struct err *e);
    void (*close)(void *state);              /* with open; NULL is fine */
    void (*accept)(void *state, int32_t id); /* a token of the text, 0 <= id < n_vocab; or NULL */
    void (*apply)(void *state, struct sample *l);
};

extern const struct sampler_row sample_penalties, sample_dry, sample_top_n_sigma, sample_top_k,
    sample_typ_p, sample_top_p, sample_min_p, sample_xtc, sample_temperature, sample_adaptive_p,
    sample_mirostat, sample_dist;

/* sampler_add_breaker for the state of sample_dry. */
enum status sample_dry_breaker(void *state, const int32_t *ids, int32_t n, struct err *e);

/* For the checks: ST_USAGE with "FLAG is 'V', expected EXPECTED" unless ok. */
enum status sample_expect(bool ok, const char *flag, double v, const char *expected, struct err *e);

#endif
