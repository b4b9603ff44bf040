/*
 * Codebooks of the IQ types: what an index in a block stands for. The numbers are part of the GGUF
 * format; packing and names are ours (scripts/make-codebook).
 *
 * Grids of 8 elements hold 2 bits per element, element 0 in the low bits; the levels are
 * 8, 25, 43 (iq2_*) and -1, 0, 1 (iq1_s). Grids of 4 elements hold 3 bits per element; the levels
 * are 4, 12, 20, 28, 36, 44, 52, 62 (iq3_xxs) and 1, 3, 5, ... 15 (iq3_s).
 */
#ifndef GGRUN_GGUF_CODEBOOK_H
#define GGRUN_GGUF_CODEBOOK_H

#include <stdint.h>

extern const uint16_t iq2_xxs_grid[256];
extern const uint16_t iq2_xs_grid[512];
extern const uint16_t iq2_s_grid[1024];
extern const uint16_t iq3_xxs_grid[256];
extern const uint16_t iq3_s_grid[512];
extern const uint16_t iq1_s_grid[2048]; /* iq1_m uses it as well */
extern const int8_t iq4_levels[16];     /* iq4_nl, iq4_xs */

/* Level of element i of a point: 0..7 in iq2 and iq1, 0..3 in iq3. */
static inline int iq2_level(uint16_t point, int i)
{
    static const uint8_t level[4] = {8, 25, 43, 0};
    return level[point >> 2 * i & 3];
}
static inline int iq1_level(uint16_t point, int i)
{
    return (point >> 2 * i & 3) - 1;
}
static inline int iq3_xxs_level(uint16_t point, int i)
{
    int k = point >> 3 * i & 7;
    return k < 7 ? 8 * k + 4 : 62;
}
static inline int iq3_s_level(uint16_t point, int i)
{
    return 2 * (point >> 3 * i & 7) + 1;
}

/* Eight sign bits from seven: the eighth makes the number of set bits even. */
static inline uint8_t iq_signs(uint32_t seven)
{
    return (uint8_t)(seven | (uint32_t)__builtin_parity(seven) << 7);
}

/* Twice the e2m1 (fp4) value of a nibble: 0 1 2 3 4 6 8 12 and the negatives. */
static inline int e2m1_twice(unsigned nibble)
{
    static const int8_t level[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    return level[nibble];
}

#endif
