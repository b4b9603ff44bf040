/*
 * DRY's sequence breakers: from texts to tokens.
 */
#ifndef GGRUN_RUNTIME_DRY_BREAKERS_H
#define GGRUN_RUNTIME_DRY_BREAKERS_H

#include "runtime/sampler.h"
#include "runtime/vocab.h"

enum { DRY_BREAKER_MAX = 40 }; /* bytes */

/*
 * Tell the sampler what breaks a repetition, for the texts breakers[0..n), each of 1 to
 * DRY_BREAKER_MAX bytes: every token that has one of them in it, and every token that ends like one
 * begins, followed by the tokens of the rest. Does nothing when DRY is off. ST_NOMEM; what
 * vocab_encode fails with.
 */
enum status dry_breakers_add(struct sampler *s, const struct vocab *v, const struct text *breakers,
                             int n, struct err *e);

#endif
