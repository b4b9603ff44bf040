/*
 * Decoders of the types with codebooks. The bits are drawn in block.h, the grids are in codebook.c.
 * Scales, levels and signs multiply exactly in f32.
 */
#include "gguf/codebook.h"
#include "gguf/quants_impl.h"

/* y[0..8) from a point of an iq2 grid; bit i of `signs` makes element i negative. */
static void iq2_point(float *y, float d, uint16_t point, uint8_t signs)
{
    for (int i = 0; i < 8; i++)
        y[i] = d * (float)iq2_level(point, i) * (signs >> i & 1 ? -1.0f : 1.0f);
}

static void decode_iq2_xxs(const struct block_iq2_xxs *b, float *y)
{
    float d = f16_to_f32(b->d);

    for (int g = 0; g < 8; g++) {
        const uint16_t *q = b->qs + 4 * g;
        uint32_t ss = q[2] | (uint32_t)q[3] << 16;
        float ds = d * (0.5f + (float)(ss >> 28)) * 0.25f;
        for (int k = 0; k < 4; k++) {
            int index = q[k / 2] >> 8 * (k % 2) & 255;
            iq2_point(y + 32 * g + 8 * k, ds, iq2_xxs_grid[index], iq_signs(ss >> 7 * k & 127));
        }
    }
}
BLOCK_DECODER(IQ2_XXS, struct block_iq2_xxs, 256, decode_iq2_xxs)

/* Scale of point p where a nibble serves two points (iq2_xs, iq2_s). */
static float iq2_scale(float d, const uint8_t scales[8], int p)
{
    return d * (0.5f + (float)(scales[p / 4] >> 4 * (p / 2 % 2) & 15)) * 0.25f;
}

static void decode_iq2_xs(const struct block_iq2_xs *b, float *y)
{
    float d = f16_to_f32(b->d);

    for (int p = 0; p < 32; p++)
        iq2_point(y + 8 * p, iq2_scale(d, b->scales, p), iq2_xs_grid[b->qs[p] & 511],
                  iq_signs(b->qs[p] >> 9));
}
BLOCK_DECODER(IQ2_XS, struct block_iq2_xs, 256, decode_iq2_xs)

static void decode_iq2_s(const struct block_iq2_s *b, float *y)
{
    float d = f16_to_f32(b->d);

    for (int p = 0; p < 32; p++) {
        int index = b->qs[p] | (b->qh[p / 4] >> 2 * (p % 4) & 3) << 8;
        iq2_point(y + 8 * p, iq2_scale(d, b->scales, p), iq2_s_grid[index], b->signs[p]);
    }
}
BLOCK_DECODER(IQ2_S, struct block_iq2_s, 256, decode_iq2_s)

static void decode_iq3_xxs(const struct block_iq3_xxs *b, float *y)
{
    float d = f16_to_f32(b->d);

    for (int i = 0; i < 256; i++) {
        uint32_t ss = load_u32(b->ss[i / 32]);
        uint8_t signs = iq_signs(ss >> 7 * (i / 8 % 4) & 127);
        float ds = d * (0.5f + (float)(ss >> 28)) * 0.5f;
        int level = iq3_xxs_level(iq3_xxs_grid[b->qs[i / 4]], i % 4);
        y[i] = ds * (float)level * (signs >> i % 8 & 1 ? -1.0f : 1.0f);
    }
}
BLOCK_DECODER(IQ3_XXS, struct block_iq3_xxs, 256, decode_iq3_xxs)

static void decode_iq3_s(const struct block_iq3_s *b, float *y)
{
    float d = f16_to_f32(b->d);

    for (int i = 0; i < 256; i++) {
        int p = i / 4;
        int index = b->qs[p] | (b->qh[p / 8] >> p % 8 & 1) << 8;
        int scale = b->scales[i / 64] >> 4 * (i / 32 % 2) & 15;
        float ds = d * (float)(1 + 2 * scale);
        int level = iq3_s_level(iq3_s_grid[index], i % 4);
        y[i] = ds * (float)level * (b->signs[i / 8] >> i % 8 & 1 ? -1.0f : 1.0f);
    }
}
BLOCK_DECODER(IQ3_S, struct block_iq3_s, 256, decode_iq3_s)

/* y[0..8) from a point of the iq1 grid, shifted by 1/8 up or (minus) down. */
static void iq1_point(float *y, float d, int index, int minus)
{
    for (int i = 0; i < 8; i++)
        y[i] = d * ((float)iq1_level(iq1_s_grid[index], i) + (minus ? -0.125f : 0.125f));
}

static void decode_iq1_s(const struct block_iq1_s *b, float *y)
{
    float d = f16_to_f32(b->d);

    for (int p = 0; p < 32; p++) {
        int qh = b->qh[p / 4];
        int index = b->qs[p] | (qh >> 3 * (p % 4) & 7) << 8;
        iq1_point(y + 8 * p, d * (float)(2 * (qh >> 12 & 7) + 1), index, qh >> 15);
    }
}
BLOCK_DECODER(IQ1_S, struct block_iq1_s, 256, decode_iq1_s)

static void decode_iq1_m(const struct block_iq1_m *b, float *y)
{
    unsigned half = 0;
    float d;

    for (int j = 0; j < 4; j++)
        half |= (unsigned)b->scales[j][1] >> 4 << 4 * j;
    d = f16_to_f32((uint16_t)half);
    for (int p = 0; p < 32; p++) {
        int qh = b->qh[p / 2] >> 4 * (p % 2) & 15;
        int word = b->scales[p / 8][0] | b->scales[p / 8][1] << 8;
        int scale = word >> 3 * (p / 2 % 4) & 7;
        iq1_point(y + 8 * p, d * (float)(2 * scale + 1), b->qs[p] | (qh & 7) << 8, qh >> 3);
    }
}
BLOCK_DECODER(IQ1_M, struct block_iq1_m, 256, decode_iq1_m)

static void decode_iq4_nl(const struct block_iq4_nl *b, float *y)
{
    float d = f16_to_f32(b->d);

    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)iq4_levels[b->qs[j] & 15];
        y[j + 16] = d * (float)iq4_levels[b->qs[j] >> 4];
    }
}
BLOCK_DECODER(IQ4_NL, struct block_iq4_nl, 32, decode_iq4_nl)

static void decode_iq4_xs(const struct block_iq4_xs *b, float *y)
{
    float d = f16_to_f32(b->d);

    for (int g = 0; g < 8; g++) {
        int low = b->scales_l[g / 2] >> 4 * (g % 2) & 15;
        int sc = low | (b->scales_h >> 2 * g & 3) << 4;
        float ds = d * (float)(sc - 32);
        for (int j = 0; j < 16; j++) {
            y[32 * g + j] = ds * (float)iq4_levels[b->qs[16 * g + j] & 15];
            y[32 * g + j + 16] = ds * (float)iq4_levels[b->qs[16 * g + j] >> 4];
        }
    }
}
BLOCK_DECODER(IQ4_XS, struct block_iq4_xs, 256, decode_iq4_xs)
