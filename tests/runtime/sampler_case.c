#include "tests/unit.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "tests/runtime/sampler_ref.h"

/* ---- random input ---- */

uint32_t noise_state;

uint32_t noise_int(uint32_t below)
{
    noise_state = noise_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(noise_state >> 4) * below >> 28);
}

double noise(void)
{
    return (double)noise_int(1 << 24) / (1 << 24);
}

int pick_size(void)
{
    static const int sizes[] = {1, 2, 3, 7, 40, 100, N_MAX};

    return sizes[noise_int(7)];
}

void make_logits(float *logits, int n)
{
    uint32_t kind = noise_int(7);

    for (int i = 0; i < n; i++) {
        double x = (noise() + noise() + noise() - 1.5) * (kind == 5 ? 60 : 8);
        logits[i] = (float)(kind == 1 ? floor(x) : kind == 2 ? 1.5 : x);
        if (kind == 6) /* Zipf's law with exponent 1, where formulas of Mirostat have their limit */
            logits[i] = (float)-log(i + 1);
        if (kind == 4 && noise() < 0.3)
            logits[i] = -INFINITY;
    }
    if (kind == 3)
        logits[noise_int((uint32_t)n)] = 40;
    if (kind == 4)
        logits[noise_int((uint32_t)n)] = 2;
}

void make_history(struct refs *l, int n_vocab)
{
    uint32_t period = 1 + noise_int(9);

    l->n_history = (int)noise_int(N_CTX + 1);
    for (int i = 0; i < l->n_history; i++) {
        l->history[i] = (int)noise_int((uint32_t)n_vocab);
        if (i >= (int)period && noise() < 0.8)
            l->history[i] = l->history[i - (int)period];
    }
    l->n_breakers = (int)noise_int(5);
    for (int b = 0; b < l->n_breakers; b++) {
        l->n_tokens[b] = 1 + (int)noise_int(3);
        for (int i = 0; i < 3; i++)
            l->breakers[b][i] = (int)noise_int((uint32_t)n_vocab + 1);
        l->breakers[b][0] %= n_vocab;
        if (b && noise() < 0.5) /* two that begin alike */
            memcpy(l->breakers[b], l->breakers[b - 1], sizeof l->breakers[b]);
    }
}

struct sampler_options off(void)
{
    struct sampler_options o;

    sampler_defaults(&o);
    o.temp = o.top_p = 1;
    o.top_k = 0;
    o.min_p = 0;
    o.seed = noise_int(1000);
    return o;
}

void randomise(struct sampler_options *o, char letter)
{
    switch (letter) {
    case 'e':
        o->repeat_penalty = (float)(0.5 + 2 * noise());
        o->presence_penalty = (float)(4 * noise() - 2);
        o->frequency_penalty = (float)(4 * noise() - 2);
        if (noise() < 0.3) { /* whole numbers, so that logits become equal */
            o->repeat_penalty = 1;
            o->presence_penalty = rintf(o->presence_penalty);
            o->frequency_penalty = rintf(o->frequency_penalty);
        }
        o->repeat_last_n = (int32_t)noise_int(N_CTX + 20) - 1;
        break;
    case 'd':
        o->dry_multiplier = noise() < 0.1 ? 0 : (float)noise();
        o->dry_base = (float)(1 + noise());
        o->dry_allowed_length = (int32_t)noise_int(5);
        o->dry_penalty_last_n = (int32_t)noise_int(N_CTX + 20) - 1;
        break;
    case 's':
        o->top_n_sigma = (float)(3.5 * noise() - 0.5);
        break;
    case 'y':
        o->typ_p = noise() < 0.1 ? (float)noise_int(2) : (float)noise();
        break;
    case 'x':
        o->xtc_probability = noise() < 0.1 ? 0 : 1;
        o->xtc_threshold = (float)(noise() * noise() * 0.7);
        break;
    case 'k':
        o->top_k = (int32_t)noise_int(60) - 1;
        break;
    case 'p':
        o->top_p = (float)(1.1 * noise());
        o->top_p = o->top_p > 1 ? 1 : o->top_p;
        break;
    case 'm':
        o->min_p = (float)(noise() * noise());
        break;
    case 't':
        o->temp = noise() < 0.1 ? 0 : (float)(0.05 + 3 * noise());
        o->dynatemp_range = noise() < 0.5 ? 0 : (float)(2 * noise());
        o->dynatemp_exp = noise() < 0.1 ? 0 : (float)(3 * noise());
        break;
    }
}

/* ---- one case ---- */

struct sampler *make(const struct sampler_options *o, const struct refs *l, int n_vocab)
{
    struct sampler *s;
    struct err e = {0};

    assert_int_equal(sampler_new(&s, o, n_vocab, N_CTX, &e), ST_OK);
    for (int b = 0; b < l->n_breakers; b++) {
        int32_t ids[3];
        for (int i = 0; i < 3; i++)
            ids[i] = l->breakers[b][i];
        assert_int_equal(sampler_add_breaker(s, ids, l->n_tokens[b], &e), ST_OK);
    }
    for (int i = 0; i < l->n_history; i++)
        sampler_accept(s, l->history[i]);
    return s;
}

void load(struct refs *l, const float *logits, int n)
{
    l->n = 0;
    l->close = false;
    for (int i = 0; i < n; i++)
        if (logits[i] != -INFINITY)
            l->r[l->n++] = (struct ref){i, (double)logits[i], 0};
}

int compare(struct sampler *s, const float *logits, struct refs *l)
{
    const struct candidate *kept;
    struct err e = {0};
    int32_t id, n;
    bool found = false;

    assert_int_equal(sampler_sample(s, logits, &id, &e), ST_OK);
    kept = sampler_kept(s, &n);
    ref_softmax(l);
    if (l->close)
        return id;
    assert_int_equal(n, l->n);
    for (int i = 0; i < n; i++) {
        int j = 0;
        while (j < n && l->r[j].id != kept[i].id)
            j++;
        assert_true(j < n);
        if (j != i) /* in another order when rounding alone tells them apart, not on a tie */
            assert_true(l->r[j].x != l->r[i].x && fabs(l->r[j].x - l->r[i].x) < 1e-9);
        assert_true(fabs((double)kept[i].p - l->r[j].p) < 1e-6);
        found |= kept[i].id == id;
    }
    assert_true(found);
    return id;
}

void go_on(struct sampler *s, struct refs *l, int n_vocab)
{
    for (int i = 0; i < 3; i++) {
        int id = l->n_history && noise() < 0.7 ? l->history[noise_int((uint32_t)l->n_history)]
                                               : (int)noise_int((uint32_t)n_vocab);
        if (l->n_history == N_CTX)
            memmove(l->history, l->history + 1, (size_t)--l->n_history * sizeof *l->history);
        l->history[l->n_history++] = id;
        sampler_accept(s, id);
    }
}
