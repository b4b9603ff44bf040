#include <assert.h>
#include <math.h>

#include "runtime/sample.h"

/* ---- generator ---- */

/* Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014 (SplitMix64). */
static uint64_t splitmix_next(uint64_t *x)
{
    uint64_t z = *x += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t rotate_left(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

/* Source: Blackman, Vigna, "Scrambled Linear Pseudorandom Number Generators", arXiv:1805.01407
 * (xoshiro256**). */
static uint64_t rng_next(uint64_t s[4])
{
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

void rng_seed(uint64_t s[4], uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        s[i] = splitmix_next(&seed);
}

double rng_uniform(uint64_t s[4])
{
    return (double)(rng_next(s) >> 11) * 0x1p-53;
}

/* ---- functions ---- */

static const double ln2_high = 0x1.62e42fefa38p-1, ln2_low = 0x1.ef35793c7673p-45;

/* x = k ln 2 + r with |r| <= ln 2 / 2; the Taylor polynomial of degree 13 is off by less than 2^-57
 * there. */
double sample_exp(double x)
{
    static const double inverse_factorial[] = {
        1.0,
        1.0,
        1.0 / 2,
        1.0 / 6,
        1.0 / 24,
        1.0 / 120,
        1.0 / 720,
        1.0 / 5040,
        1.0 / 40320,
        1.0 / 362880,
        1.0 / 3628800,
        1.0 / 39916800,
        1.0 / 479001600,
        1.0 / 6227020800.0,
    };
    double k, r, p = 0;

    assert(x <= 0);
    if (x < -740)
        return 0;
    k = floor(x * 0x1.71547652b82fep0 + 0.5);
    r = x - k * ln2_high - k * ln2_low;
    for (int i = 13; i >= 0; i--)
        p = p * r + inverse_factorial[i];
    return ldexp(p, (int)k);
}

/* x = m 2^k with m from sqrt(1/2) to sqrt(2); log m = 2 artanh(s), s = (m - 1) / (m + 1), whose
 * series is off by less than 2^-57 after s^21, since s^2 < 0.0295. */
double sample_log(double x)
{
    int k;
    double m, s, s2, p = 0;

    assert(x > 0 && x < INFINITY);
    m = frexp(x, &k);
    if (m < 0x1.6a09e667f3bcdp-1) {
        m *= 2;
        k--;
    }
    s = (m - 1) / (m + 1);
    s2 = s * s;
    for (int i = 21; i >= 3; i -= 2)
        p = (p + 1.0 / i) * s2;
    return k * ln2_high + (2 * s + (2 * s * p + k * ln2_low));
}

double sample_pow(double x, double y)
{
    assert(x >= 0 && x <= 1 && y >= 0);
    if (y == 0 || x == 1)
        return 1;
    return x == 0 ? 0 : sample_exp(y * sample_log(x));
}
