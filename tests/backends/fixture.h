/*
 * Tensors for op tests: made by hand, filled with random values, results surrounded by guard bytes.
 * Everything lives until fx_end, which also checks the guards.
 */
#ifndef GGRUN_TESTS_BACKENDS_FIXTURE_H
#define GGRUN_TESTS_BACKENDS_FIXTURE_H

#include "backends/backend.h"

/* Random numbers with a seed of their own: the same in every run. */
uint32_t fx_u32(void);
float fx_uniform(float lo, float hi);

/* ne0 x ne1 x ne2 x ne3, rows row_pad bytes further apart than needed; zeroed. */
struct tensor *fx_tensor(enum dtype type, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3,
                         size_t row_pad);
/*
 * Floats: uniform in -scale .. scale. Integers: small. Quantised types: random bits with sane
 * scales, so that every code of a type appears.
 */
struct tensor *fx_random(struct tensor *t, float scale);
/* One f32 or i32/i64 element of row r. */
float *fx_f32(struct tensor *t, int64_t i, int64_t r);

/* A node with shape and memory; params may be NULL. */
struct tensor *fx_op(enum op op, const void *params, unsigned n_params, struct tensor *a,
                     struct tensor *b, struct tensor *c, struct tensor *d);
/* With any number of sources. */
struct tensor *fx_op_n(enum op op, const void *params, unsigned n_params,
                       struct tensor *const *src, int n_src);
/* Compute one node; n_threads 0 = all. The device must support it. */
void fx_run(struct device *d, struct tensor *t, int n_threads);
enum status fx_try(struct device *d, struct tensor *t, int n_threads, struct err *e);
/* Fill the result with garbage, so that an element that is not written is noticed. */
void fx_poison(struct tensor *t);

void fx_end(void);

#endif
