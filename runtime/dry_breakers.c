#include "runtime/dry_breakers.h"

#include <assert.h>
#include <string.h>

/* Add the token followed by the tokens of rest[0..n_rest). */
static enum status add_sequence(struct sampler *s, const struct vocab *v, int32_t id,
                                const char *rest, size_t n_rest, struct err *e)
{
    struct tokens t = {0};
    enum status st = ST_OK;

    tokens_add(&t, id);
    if (n_rest)
        st = vocab_encode(v, rest, n_rest, 0, &t, e);
    if (!st && t.failed)
        st = err_nomem(e, "sequence breakers", n_rest);
    if (!st)
        st = sampler_add_breaker(s, t.id, (int32_t)t.n, e);
    tokens_release(&t);
    return st;
}

static bool contains(const struct text *t, const struct text *part)
{
    for (size_t i = 0; i + part->n <= t->n; i++)
        if (memcmp(t->p + i, part->p, part->n) == 0)
            return true;
    return false;
}

/* What the token's text has to do with the breaker b. */
static enum status add_token(struct sampler *s, const struct vocab *v, int32_t id,
                             const struct text *token, const struct text *b, struct err *e)
{
    enum status st = ST_OK;

    if (contains(token, b))
        return add_sequence(s, v, id, NULL, 0, e);
    for (size_t n = 1; !st && n < b->n && n <= token->n; n++) /* the token ends in b[0..n) */
        if (memcmp(token->p + token->n - n, b->p, n) == 0)
            st = add_sequence(s, v, id, b->p + n, b->n - n, e);
    return st;
}

/* The token's exact bytes, as they are in the middle of a text. */
static enum status token_text(const struct vocab *v, int32_t id, struct text *out, struct err *e)
{
    struct detok d;

    detok_init(&d, v, true);
    detok_resume(&d);
    text_clear(out);
    return detok_add(&d, id, out, e);
}

enum status dry_breakers_add(struct sampler *s, const struct vocab *v, const struct text *breakers,
                             int n, struct err *e)
{
    struct text token = {0};
    enum status st = ST_OK;

    if (!sampler_wants_breakers(s))
        return ST_OK;
    for (int32_t id = 0; !st && id < vocab_n_tokens(v); id++) {
        st = token_text(v, id, &token, e);
        for (int i = 0; !st && token.n && i < n; i++) {
            assert(breakers[i].n >= 1 && breakers[i].n <= DRY_BREAKER_MAX);
            st = add_token(s, v, id, &token, &breakers[i], e);
        }
    }
    if (!st && token.failed)
        st = err_nomem(e, "sequence breakers", 1);
    text_release(&token);
    return st;
}
