/*
 * DRY: a token that would continue a repetition loses multiplier * base^(length - allowed), where
 * length is how many of the last tokens of the text stood before it already.
 *
 * A sequence breaker ends what can be repeated: only tokens behind the last one count. It is a
 * token whose text has the breaker in it, or a head whose text ends like it begins, followed by the
 * tail, the tokens of the rest (runtime/dry_breakers.c finds them).
 * Source: the description by its author, p-e-w, in
 * https://github.com/oobabooga/text-generation-webui/pull/5677; breakers of several tokens:
 * https://github.com/LostRuins/koboldcpp/pull/982.
 */
#include <float.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/sample.h"

struct breaker {
    int32_t *tail; /* owned */
    int32_t n_tail;
    int32_t next; /* of the same head; -1: none */
};

struct dry {
    struct recent recent;
    int32_t *common; /* [recent.max] at back: tokens before this one that are those of the end */
    int32_t
        *length; /* [n_vocab] longest repetition that the token would continue; 0 between samples */
    int32_t *heads; /* [n_vocab] index of a breaker that begins with the token; -1: none */
    struct breaker *breakers; /* owned */
    int32_t n_breakers;
};

/* ---- options ---- */

static enum status dry_check(const struct sampler_options *o, struct err *e)
{
    enum status st;

    st = sample_expect(o->dry_multiplier >= 0 && o->dry_multiplier <= FLT_MAX, "--dry-multiplier",
                       (double)o->dry_multiplier, "a number of at least 0", e);
    if (!st)
        st = sample_expect(o->dry_base >= 1 && o->dry_base <= FLT_MAX, "--dry-base",
                           (double)o->dry_base, "a number of at least 1", e);
    if (!st)
        st = sample_expect(o->dry_allowed_length >= 0, "--dry-allowed-length",
                           (double)o->dry_allowed_length, "a whole number of at least 0", e);
    if (!st)
        st = sample_expect(o->dry_penalty_last_n >= -1, "--dry-penalty-last-n",
                           (double)o->dry_penalty_last_n, "a whole number of at least -1", e);
    return st;
}

static bool dry_active(const struct sampler_options *o)
{
    return o->dry_multiplier > 0 && o->dry_penalty_last_n != 0;
}

static void dry_describe(const struct sampler_options *o, struct text *t)
{
    text_addf(t, "(multiplier=%g, base=%g, allowed_length=%d, penalty_last_n=%d)",
              (double)o->dry_multiplier, (double)o->dry_base, (int)o->dry_allowed_length,
              (int)o->dry_penalty_last_n);
}

/* ---- life ---- */

static void dry_close(void *state)
{
    struct dry *d = state;

    if (!d)
        return;
    for (int32_t i = 0; i < d->n_breakers; i++)
        mem_free(d->breakers[i].tail);
    recent_release(&d->recent);
    mem_free(d->common);
    mem_free(d->length);
    mem_free(d->heads);
    mem_free(d->breakers);
    mem_free(d);
}

static enum status dry_open(void **state, const struct sampler_setup *u, struct err *e)
{
    struct dry *d = mem_zalloc(sizeof *d);
    size_t n = (size_t)u->n_vocab;

    *state = NULL;
    if (!d)
        return err_nomem(e, "dry", sizeof *d);
    d->length = mem_array(n, sizeof *d->length);
    d->heads = mem_array(n, sizeof *d->heads);
    if (d->length && d->heads && recent_init(&d->recent, u->opt->dry_penalty_last_n, u->n_ctx))
        d->common = mem_array(d->recent.max, sizeof *d->common);
    if (!d->common) {
        dry_close(d);
        return err_nomem(e, "dry", n * (sizeof *d->length + sizeof *d->heads));
    }
    for (size_t i = 0; i < n; i++)
        d->heads[i] = -1;
    *state = d;
    return ST_OK;
}

static bool has_breaker(const struct dry *d, int32_t head, const int32_t *tail, int32_t n_tail)
{
    for (int32_t b = d->heads[head]; b >= 0; b = d->breakers[b].next)
        if (d->breakers[b].n_tail == n_tail &&
            (!n_tail || memcmp(d->breakers[b].tail, tail, (size_t)n_tail * sizeof *tail) == 0))
            return true;
    return false;
}

enum status sample_dry_breaker(void *state, const int32_t *ids, int32_t n, struct err *e)
{
    struct dry *d = state;
    int32_t head = ids[0], n_tail = n - 1;
    struct breaker *grown, *b;

    if (has_breaker(d, head, ids + 1, n_tail))
        return ST_OK;
    grown = mem_grow(d->breakers, (size_t)d->n_breakers + 1, sizeof *grown);
    if (!grown)
        return err_nomem(e, "sequence breakers", sizeof *grown);
    d->breakers = grown;
    b = &grown[d->n_breakers];
    *b = (struct breaker){.n_tail = n_tail, .next = d->heads[head]};
    b->tail = mem_array((size_t)n_tail, sizeof *b->tail);
    if (!b->tail)
        return err_nomem(e, "sequence breakers", (size_t)n_tail * sizeof *b->tail);
    memcpy(b->tail, ids + 1, (size_t)n_tail * sizeof *b->tail);
    d->heads[head] = d->n_breakers++;
    return ST_OK;
}

static void dry_accept(void *state, int32_t id)
{
    struct dry *d = state;

    recent_add(&d->recent, id);
}

/* ---- a sample ---- */

/* Length of the longest tail that stands behind the token at `back`; -1: no breaker begins here. */
static int32_t breaker_at(const struct dry *d, int32_t back)
{
    int32_t longest = -1;

    for (int32_t i = d->heads[recent_at(&d->recent, (uint32_t)back)]; i >= 0;
         i = d->breakers[i].next) {
        const struct breaker *b = &d->breakers[i];
        int32_t k = 0;
        if (b->n_tail > back || b->n_tail <= longest)
            continue;
        while (k < b->n_tail && recent_at(&d->recent, (uint32_t)(back - 1 - k)) == b->tail[k])
            k++;
        if (k == b->n_tail)
            longest = k;
    }
    return longest;
}

/* How many tokens stand behind the last breaker. */
static int32_t unbroken(const struct dry *d)
{
    int32_t n = (int32_t)d->recent.n;

    for (int32_t back = 0; back < n; back++) {
        int32_t n_tail = breaker_at(d, back);
        if (n_tail >= 0)
            return back - n_tail;
    }
    return n;
}

/*
 * common[back] = how many tokens, from the one at `back` towards the beginning, are the same as
 * from the end. The Z algorithm: [left, right) is the match that reaches farthest; inside it the
 * result is that of its counterpart, unless this ends at the border: then it goes on comparing.
 * Source: Gusfield, "Algorithms on Strings, Trees and Sequences", 1997, section 1.4. O(n).
 */
static void common_lengths(struct dry *d)
{
    uint32_t n = d->recent.n, left = 0, right = 0;

    for (uint32_t back = 1; back < n; back++) {
        uint32_t k = 0;
        if (back < right) {
            k = (uint32_t)d->common[back - left];
            if (k > right - back)
                k = right - back;
        }
        while (back + k < n && recent_at(&d->recent, k) == recent_at(&d->recent, back + k))
            k++;
        d->common[back] = (int32_t)k;
        if (back + k > right) {
            left = back;
            right = back + k;
        }
    }
}

/* multiplier * base^exponent, at most FLT_MAX; by squaring, the same everywhere. */
static double penalty(const struct sampler_options *o, int32_t exponent)
{
    double p = (double)o->dry_multiplier, square = (double)o->dry_base;

    for (; exponent; exponent >>= 1) {
        if (exponent & 1)
            p *= square;
        square *= square; /* infinity is fine: p becomes it, and is cut below */
    }
    return p < (double)FLT_MAX ? p : (double)FLT_MAX;
}

static bool is_breaker(const struct dry *d, int32_t id)
{
    return has_breaker(d, id, NULL, 0);
}

/* length[id] + 1 for each token that follows a repetition of at least the allowed length. */
static void note_lengths(struct dry *d, int32_t allowed, int32_t limit)
{
    for (uint32_t back = 1; back < d->recent.n; back++) {
        int32_t k = d->common[back] < limit ? d->common[back] : limit;
        int32_t *length = &d->length[recent_at(&d->recent, back - 1)];
        if (k >= allowed && k + 1 > *length)
            *length = k + 1;
    }
}

static void dry_apply(void *state, struct sample *l)
{
    struct dry *d = state;
    int32_t allowed = l->opt->dry_allowed_length, limit;

    if (d->recent.n <= (uint32_t)allowed)
        return;
    limit = unbroken(d);
    if (limit < allowed)
        return;
    common_lengths(d);
    note_lengths(d, allowed, limit);
    for (int32_t i = 0; i < l->n; i++) {
        struct pick *x = &l->picks[i];
        int32_t length = d->length[x->id] - 1;
        if (length >= 0 && !is_breaker(d, x->id))
            x->logit -= penalty(l->opt, length - allowed);
    }
    for (uint32_t back = 0; back < d->recent.n; back++)
        d->length[recent_at(&d->recent, back)] = 0;
    sample_changed(l, false);
}

const struct sampler_row sample_dry = {
    .name = "dry",
    .letter = 'd',
    .check = dry_check,
    .active = dry_active,
    .describe = dry_describe,
    .open = dry_open,
    .close = dry_close,
    .accept = dry_accept,
    .apply = dry_apply,
};
