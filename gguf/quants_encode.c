/*
 * Reference encoders: nearest level for a scale that follows from the largest element. They make
 * test data and small models; they do not search for the scale with the least error.
 *
 * Elements that are not finite do not disappear: a NaN or an infinity in a block makes its scale
 * one, and so the whole block not finite. (MXFP4 has no such scale: it takes its largest.)
 */
#include <math.h>

#include "gguf/codebook.h"
#include "gguf/quants_impl.h"

/* Integer part of v, limited to lo..hi before it is converted; NaN gives lo. */
static int limited(float v, int lo, int hi)
{
    if (!(v > (float)lo))
        return lo;
    return v >= (float)hi ? hi : (int)v;
}

/* Nearest integer, halves away from zero, limited to lo..hi. */
static int nearest(float v, int lo, int hi)
{
    return limited(roundf(v), lo, hi);
}

static float inverse(float d)
{
    return d != 0 ? 1 / d : 0;
}

/* The element of largest magnitude, the first of equals; NaN if there is one. */
static float extreme(const float *x, int n)
{
    float best = 0;

    for (int i = 0; i < n; i++) {
        if (isnan(x[i]))
            return x[i];
        if (fabsf(x[i]) > fabsf(best))
            best = x[i];
    }
    return best;
}

/* Smallest and largest element; both NaN if there is one. */
static void range_of(const float *x, int n, float *lo, float *hi)
{
    *lo = *hi = x[0];
    for (int i = 0; i < n; i++) {
        if (isnan(x[i])) {
            *lo = *hi = x[i];
            return;
        }
        *lo = x[i] < *lo ? x[i] : *lo;
        *hi = x[i] > *hi ? x[i] : *hi;
    }
}

#define BLOCK_ENCODER(NAME, layout, n_block, encode_block)                                         \
    void quant_encode_##NAME(const float *src, void *dst, int64_t n)                               \
    {                                                                                              \
        unsigned char *p = dst;                                                                    \
                                                                                                   \
        for (int64_t i = 0; i < n; i += (n_block), p += sizeof(layout)) {                          \
            layout b;                                                                              \
            memset(&b, 0, sizeof b);                                                               \
            encode_block(&b, src + i);                                                             \
            memcpy(p, &b, sizeof b);                                                               \
        }                                                                                          \
    }

/* ---- 32 elements ---- */

static void encode_q4_0(struct block_q4_0 *b, const float *x)
{
    float d = extreme(x, 32) / -8, id = inverse(d);

    b->d = f32_to_f16(d);
    for (int j = 0; j < 16; j++) {
        int lo = limited(x[j] * id + 8.5f, 0, 15);
        int hi = limited(x[j + 16] * id + 8.5f, 0, 15);
        b->qs[j] = (uint8_t)(lo | hi << 4);
    }
}
BLOCK_ENCODER(Q4_0, struct block_q4_0, 32, encode_q4_0)

static void encode_q4_1(struct block_q4_1 *b, const float *x)
{
    float min, max, d, id;

    range_of(x, 32, &min, &max);
    d = (max - min) / 15;
    id = inverse(d);
    b->d = f32_to_f16(d);
    b->m = f32_to_f16(min);
    for (int j = 0; j < 16; j++) {
        int lo = limited((x[j] - min) * id + 0.5f, 0, 15);
        int hi = limited((x[j + 16] - min) * id + 0.5f, 0, 15);
        b->qs[j] = (uint8_t)(lo | hi << 4);
    }
}
BLOCK_ENCODER(Q4_1, struct block_q4_1, 32, encode_q4_1)

/* Put five bits of element i into qs and qh, which start as zeros. */
static void put_five(uint8_t qs[16], uint8_t qh[4], int i, int q)
{
    qs[i % 16] |= (uint8_t)((q & 15) << 4 * (i / 16));
    qh[i / 8] |= (uint8_t)((q >> 4) << i % 8);
}

static void encode_q5_0(struct block_q5_0 *b, const float *x)
{
    float d = extreme(x, 32) / -16, id = inverse(d);

    b->d = f32_to_f16(d);
    for (int i = 0; i < 32; i++)
        put_five(b->qs, b->qh, i, limited(x[i] * id + 16.5f, 0, 31));
}
BLOCK_ENCODER(Q5_0, struct block_q5_0, 32, encode_q5_0)

static void encode_q5_1(struct block_q5_1 *b, const float *x)
{
    float min, max, d, id;

    range_of(x, 32, &min, &max);
    d = (max - min) / 31;
    id = inverse(d);
    b->d = f32_to_f16(d);
    b->m = f32_to_f16(min);
    for (int i = 0; i < 32; i++)
        put_five(b->qs, b->qh, i, limited((x[i] - min) * id + 0.5f, 0, 31));
}
BLOCK_ENCODER(Q5_1, struct block_q5_1, 32, encode_q5_1)

static void encode_q8_0(struct block_q8_0 *b, const float *x)
{
    float d = fabsf(extreme(x, 32)) / 127, id = inverse(d);

    b->d = f32_to_f16(d);
    for (int i = 0; i < 32; i++)
        b->qs[i] = (int8_t)nearest(x[i] * id, -127, 127);
}
BLOCK_ENCODER(Q8_0, struct block_q8_0, 32, encode_q8_0)

static void encode_q8_1(struct block_q8_1 *b, const float *x)
{
    float d = fabsf(extreme(x, 32)) / 127, id = inverse(d);
    int sum = 0;

    b->d = f32_to_f16(d);
    for (int i = 0; i < 32; i++) {
        b->qs[i] = (int8_t)nearest(x[i] * id, -127, 127);
        sum += b->qs[i];
    }
    b->s = f32_to_f16((float)sum * d);
}
BLOCK_ENCODER(Q8_1, struct block_q8_1, 32, encode_q8_1)

/* Nibble whose value is nearest to v in units of d, the first of equals. */
static int nearest_e2m1(float v, float d)
{
    int best = 0;

    for (int i = 1; i < 16; i++) {
        if (fabsf(d * (float)e2m1_twice((unsigned)i) - v) <
            fabsf(d * (float)e2m1_twice((unsigned)best) - v))
            best = i;
    }
    return best;
}

/* The shared exponent puts the largest element's power of two on that of the largest level (4).
 * Source: OCP Microscaling Formats v1.0, section 6.3. */
static void encode_mxfp4(struct block_mxfp4 *b, const float *x)
{
    float max = fabsf(extreme(x, 32)), d;
    int e;

    if (isfinite(max))
        e = max > 0 ? ilogbf(max) - 2 + 127 : 0;
    else
        e = 254;
    b->e = (uint8_t)(e < 0 ? 0 : e);
    d = e8m0_half(b->e);
    for (int j = 0; j < 16; j++)
        b->qs[j] = (uint8_t)(nearest_e2m1(x[j], d) | nearest_e2m1(x[j + 16], d) << 4);
}
BLOCK_ENCODER(MXFP4, struct block_mxfp4, 32, encode_mxfp4)

/* ---- 256 elements ---- */

/* Write the 6-bit scale and minimum of group g; the inverse of k_scale_min. */
static void put_scale_min(uint8_t scales[12], int g, int sc, int mn)
{
    if (g < 4) {
        scales[g] |= (uint8_t)sc;
        scales[g + 4] |= (uint8_t)mn;
    } else {
        scales[g + 4] |= (uint8_t)((sc & 15) | (mn & 15) << 4);
        scales[g - 4] |= (uint8_t)(sc >> 4 << 6);
        scales[g] |= (uint8_t)(mn >> 4 << 6);
    }
}

static void encode_q4_K(struct block_q4_K *b, const float *x)
{
    float scale[8], min[8], d, dmin;

    for (int g = 0; g < 8; g++) {
        float lo, hi;
        range_of(x + 32 * g, 32, &lo, &hi);
        lo = lo > 0 ? 0 : lo; /* the minimum is subtracted: it cannot be above zero */
        scale[g] = (hi - lo) / 15;
        min[g] = -lo;
    }
    b->d = f32_to_f16(fabsf(extreme(scale, 8)) / 63);
    b->dmin = f32_to_f16(fabsf(extreme(min, 8)) / 63);
    d = f16_to_f32(b->d);
    dmin = f16_to_f32(b->dmin);
    for (int g = 0; g < 8; g++) {
        int sc = nearest(scale[g] * inverse(d), 0, 63);
        int mn = nearest(min[g] * inverse(dmin), 0, 63);
        float m = dmin * (float)mn, is = inverse(d * (float)sc);
        put_scale_min(b->scales, g, sc, mn);
        for (int j = 0; j < 32; j++) {
            int q = nearest((x[32 * g + j] + m) * is, 0, 15);
            b->qs[32 * (g / 2) + j] |= (uint8_t)(q << 4 * (g % 2));
        }
    }
}
BLOCK_ENCODER(Q4_K, struct block_q4_K, 256, encode_q4_K)

static void encode_q6_K(struct block_q6_K *b, const float *x)
{
    float scale[16], d;

    for (int g = 0; g < 16; g++)
        scale[g] = extreme(x + 16 * g, 16) / -32;
    b->d = f32_to_f16(extreme(scale, 16) / -128);
    d = f16_to_f32(b->d);
    for (int g = 0; g < 16; g++)
        b->scales[g] = (int8_t)nearest(scale[g] * inverse(d), -128, 127);
    for (int i = 0; i < 256; i++) {
        float is = inverse(d * (float)b->scales[i / 16]);
        int q = nearest(x[i] * is, -32, 31) + 32;
        b->ql[64 * (i / 128) + i % 64] |= (uint8_t)((q & 15) << 4 * (i / 64 % 2));
        b->qh[32 * (i / 128) + i % 32] |= (uint8_t)((q >> 4) << 2 * (i / 32 % 4));
    }
}
BLOCK_ENCODER(Q6_K, struct block_q6_K, 256, encode_q6_K)
