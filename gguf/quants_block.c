/*
 * Decoders of the types with one scale per small block, of the k-quants and of the ternary types.
 * The bits are drawn in block.h; the products of a scale and small integers are exact in f32, so
 * that only the types with a minimum round at all, once.
 */
#include "gguf/codebook.h"
#include "gguf/quants_impl.h"

/* ---- 32 elements ---- */

static void decode_q4_0(const struct block_q4_0 *b, float *y)
{
    float d = f16_to_f32(b->d);

    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)((b->qs[j] & 15) - 8);
        y[j + 16] = d * (float)((b->qs[j] >> 4) - 8);
    }
}
BLOCK_DECODER(Q4_0, struct block_q4_0, 32, decode_q4_0)

static void decode_q4_1(const struct block_q4_1 *b, float *y)
{
    float d = f16_to_f32(b->d), m = f16_to_f32(b->m);

    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)(b->qs[j] & 15) + m;
        y[j + 16] = d * (float)(b->qs[j] >> 4) + m;
    }
}
BLOCK_DECODER(Q4_1, struct block_q4_1, 32, decode_q4_1)

/* Five bits of element i of a q5_0 or q5_1 block. */
static int five_bits(const uint8_t qs[16], uint32_t qh, int i)
{
    int low = i < 16 ? qs[i] & 15 : qs[i - 16] >> 4;

    return low | (int)(qh >> i & 1) << 4;
}

static void decode_q5_0(const struct block_q5_0 *b, float *y)
{
    float d = f16_to_f32(b->d);
    uint32_t qh = load_u32(b->qh);

    for (int i = 0; i < 32; i++)
        y[i] = d * (float)(five_bits(b->qs, qh, i) - 16);
}
BLOCK_DECODER(Q5_0, struct block_q5_0, 32, decode_q5_0)

static void decode_q5_1(const struct block_q5_1 *b, float *y)
{
    float d = f16_to_f32(b->d), m = f16_to_f32(b->m);
    uint32_t qh = load_u32(b->qh);

    for (int i = 0; i < 32; i++)
        y[i] = d * (float)five_bits(b->qs, qh, i) + m;
}
BLOCK_DECODER(Q5_1, struct block_q5_1, 32, decode_q5_1)

static void decode_q8_0(const struct block_q8_0 *b, float *y)
{
    float d = f16_to_f32(b->d);

    for (int i = 0; i < 32; i++)
        y[i] = d * (float)b->qs[i];
}
BLOCK_DECODER(Q8_0, struct block_q8_0, 32, decode_q8_0)

static void decode_q8_1(const struct block_q8_1 *b, float *y)
{
    float d = f16_to_f32(b->d);

    for (int i = 0; i < 32; i++)
        y[i] = d * (float)b->qs[i];
}
BLOCK_DECODER(Q8_1, struct block_q8_1, 32, decode_q8_1)

static void decode_mxfp4(const struct block_mxfp4 *b, float *y)
{
    float d = e8m0_half(b->e);

    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)e2m1_twice(b->qs[j] & 15);
        y[j + 16] = d * (float)e2m1_twice(b->qs[j] >> 4);
    }
}
BLOCK_DECODER(MXFP4, struct block_mxfp4, 32, decode_mxfp4)

/* ---- 64 and 128 elements ---- */

/* Half of an unsigned E4M3 number (bias 7), since e2m1_twice is twice its element. */
static float ue4m3_half(uint8_t x)
{
    int exp = x >> 3 & 15, man = x & 7;

    if (x == 0x7f)
        return 0;
    if (exp == 0)
        return (float)man * 0x1p-10f;
    return (float)(8 + man) * (float)(1 << exp) * 0x1p-11f;
}

static void decode_nvfp4(const struct block_nvfp4 *b, float *y)
{
    for (int g = 0; g < 4; g++) {
        float d = ue4m3_half(b->d[g]);
        for (int j = 0; j < 8; j++) {
            y[16 * g + j] = d * (float)e2m1_twice(b->qs[8 * g + j] & 15);
            y[16 * g + j + 8] = d * (float)e2m1_twice(b->qs[8 * g + j] >> 4);
        }
    }
}
BLOCK_DECODER(NVFP4, struct block_nvfp4, 64, decode_nvfp4)

static void decode_q1_0(const struct block_q1_0 *b, float *y)
{
    float d = f16_to_f32(b->d);

    for (int i = 0; i < 128; i++)
        y[i] = b->qs[i / 8] >> i % 8 & 1 ? d : -d;
}
BLOCK_DECODER(Q1_0, struct block_q1_0, 128, decode_q1_0)

static void decode_q2_0(const struct block_q2_0 *b, float *y)
{
    float d = f16_to_f32(b->d);

    for (int i = 0; i < 64; i++)
        y[i] = d * (float)((b->qs[i / 4] >> 2 * (i % 4) & 3) - 1);
}
BLOCK_DECODER(Q2_0, struct block_q2_0, 64, decode_q2_0)

/* ---- 256 elements: k-quants ---- */

/* Two bits of element i where a half of 128 elements lies in 32 bytes (q2_K, q3_K, tq2_0, high bits
 * of q6_K). */
static int two_bits(const uint8_t *qs, int i)
{
    return qs[32 * (i / 128) + i % 32] >> 2 * (i / 32 % 4) & 3;
}

static void decode_q2_K(const struct block_q2_K *b, float *y)
{
    float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);

    for (int i = 0; i < 256; i++) {
        uint8_t s = b->scales[i / 16];
        y[i] = d * (float)(s & 15) * (float)two_bits(b->qs, i) - dmin * (float)(s >> 4);
    }
}
BLOCK_DECODER(Q2_K, struct block_q2_K, 256, decode_q2_K)

static void decode_q3_K(const struct block_q3_K *b, float *y)
{
    float d = f16_to_f32(b->d);

    for (int i = 0; i < 256; i++) {
        int g = i / 16;
        int low = g < 8 ? b->scales[g] & 15 : b->scales[g - 8] >> 4;
        int sc = low | (b->scales[8 + g % 4] >> 2 * (g / 4) & 3) << 4;
        int q = two_bits(b->qs, i) | (b->hmask[i % 32] >> i / 32 & 1) << 2;
        y[i] = d * (float)(sc - 32) * (float)(q - 4);
    }
}
BLOCK_DECODER(Q3_K, struct block_q3_K, 256, decode_q3_K)

static void decode_q4_K(const struct block_q4_K *b, float *y)
{
    float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);

    for (int g = 0; g < 8; g++) {
        int sc, mn;
        k_scale_min(b->scales, g, &sc, &mn);
        for (int j = 0; j < 32; j++) {
            int q = b->qs[32 * (g / 2) + j] >> 4 * (g % 2) & 15;
            y[32 * g + j] = d * (float)sc * (float)q - dmin * (float)mn;
        }
    }
}
BLOCK_DECODER(Q4_K, struct block_q4_K, 256, decode_q4_K)

static void decode_q5_K(const struct block_q5_K *b, float *y)
{
    float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);

    for (int g = 0; g < 8; g++) {
        int sc, mn;
        k_scale_min(b->scales, g, &sc, &mn);
        for (int j = 0; j < 32; j++) {
            int q = (b->qs[32 * (g / 2) + j] >> 4 * (g % 2) & 15) | (b->qh[j] >> g & 1) << 4;
            y[32 * g + j] = d * (float)sc * (float)q - dmin * (float)mn;
        }
    }
}
BLOCK_DECODER(Q5_K, struct block_q5_K, 256, decode_q5_K)

static void decode_q6_K(const struct block_q6_K *b, float *y)
{
    float d = f16_to_f32(b->d);

    for (int i = 0; i < 256; i++) {
        int low = b->ql[64 * (i / 128) + i % 64] >> 4 * (i / 64 % 2) & 15;
        int q = low | two_bits(b->qh, i) << 4;
        y[i] = d * (float)b->scales[i / 16] * (float)(q - 32);
    }
}
BLOCK_DECODER(Q6_K, struct block_q6_K, 256, decode_q6_K)

static void decode_q8_K(const struct block_q8_K *b, float *y)
{
    for (int i = 0; i < 256; i++)
        y[i] = b->d * (float)b->qs[i];
}
BLOCK_DECODER(Q8_K, struct block_q8_K, 256, decode_q8_K)

/* ---- 256 elements: ternary ---- */

/* Digit n of a byte that holds base-3 digits as a fraction. */
static int ternary_digit(uint8_t byte, int n)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};

    return (uint8_t)(byte * power[n]) * 3 >> 8;
}

static void decode_tq1_0(const struct block_tq1_0 *b, float *y)
{
    float d = f16_to_f32(b->d);

    for (int i = 0; i < 160; i++)
        y[i] = d * (float)(ternary_digit(b->qs[i % 32], i / 32) - 1);
    for (int i = 0; i < 80; i++)
        y[160 + i] = d * (float)(ternary_digit(b->qs[32 + i % 16], i / 16) - 1);
    for (int i = 0; i < 16; i++)
        y[240 + i] = d * (float)(ternary_digit(b->qh[i % 4], i / 4) - 1);
}
BLOCK_DECODER(TQ1_0, struct block_tq1_0, 256, decode_tq1_0)

static void decode_tq2_0(const struct block_tq2_0 *b, float *y)
{
    float d = f16_to_f32(b->d);

    for (int i = 0; i < 256; i++)
        y[i] = d * (float)(two_bits(b->qs, i) - 1);
}
BLOCK_DECODER(TQ2_0, struct block_tq2_0, 256, decode_tq2_0)
