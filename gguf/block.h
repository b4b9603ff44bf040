/*
 * Block layouts of the quantised tensor types, byte for byte as in GGUF files (little-endian). The
 * sizes are proven in dtype.c against the numbers of dtype.def.
 *
 * Notation: x[i] is element i of the block (0 first); d, dmin are IEEE half scales; a diagram shows
 * one byte or word from its high bit to its low bit. `[j]` in a diagram is the index of the byte or
 * word. Blocks lie in files at any multiple of the file's alignment plus any multiple of their
 * size: types with an odd size are unaligned. Read fields through memcpy (quants.c) or byte loads.
 *
 * Source: GGUF specification (ggml docs/gguf.md) and the public descriptions of the formats it
 * names; MX formats: OCP Microscaling Formats v1.0.
 */
#ifndef GGRUN_GGUF_BLOCK_H
#define GGRUN_GGUF_BLOCK_H

#include <stdint.h>

/* ---- blocks of 32: one scale ---- */

/*
 * x[i] = d * (q[i] - 8)
 *   qs[j]  hhhhllll   l = q[j], h = q[j + 16],  j = 0..15
 */
struct block_q4_0 {
    uint16_t d;
    uint8_t qs[16];
};

/* x[i] = d * q[i] + m; nibbles as in q4_0 */
struct block_q4_1 {
    uint16_t d, m;
    uint8_t qs[16];
};

/*
 * x[i] = d * (q[i] - 16), q of 5 bits
 *   qs[j]  hhhhllll   l = q[j] bits 0-3, h = q[j + 16] bits 0-3
 *   qh     one little-endian u32: bit i = bit 4 of q[i]
 */
struct block_q5_0 {
    uint16_t d;
    uint8_t qh[4];
    uint8_t qs[16];
};

/* x[i] = d * q[i] + m; bits as in q5_0 */
struct block_q5_1 {
    uint16_t d, m;
    uint8_t qh[4];
    uint8_t qs[16];
};

/* x[i] = d * qs[i] */
struct block_q8_0 {
    uint16_t d;
    int8_t qs[32];
};

/* x[i] = d * qs[i]; s = d * sum of qs, kept for dot products with types that have a minimum */
struct block_q8_1 {
    uint16_t d, s;
    int8_t qs[32];
};

/*
 * x[i] = d * level[q[i]], level = the 16 values of iq4_levels (codebook.h)
 * nibbles as in q4_0
 */
struct block_iq4_nl {
    uint16_t d;
    uint8_t qs[16];
};

/*
 * x[i] = 2^(e - 127) * e2m1[q[i]]; e = 0 means 2^-127
 *   qs[j]  smmm smmm   nibbles as in q4_0; each is sign, 2 exponent bits, 1 mantissa bit:
 *                      0 0.5 1 1.5 2 3 4 6 and their negatives
 */
struct block_mxfp4 {
    uint8_t e;
    uint8_t qs[16];
};

/* ---- blocks of 64 and 128 ---- */

/*
 * Four groups of 16 with a scale each: x[i] = ue4m3(d[i / 16]) * e2m1[q[i]]
 *   d[g]  .eeeemmm    unsigned, bias 7; 0 and 0x7f mean 0; the high bit is ignored
 *   qs[8 g + j]  hhhhllll   l = q[16 g + j], h = q[16 g + j + 8],  j = 0..7
 */
struct block_nvfp4 {
    uint8_t d[4];
    uint8_t qs[32];
};

/* x[i] = bit ? d : -d, bit i % 8 of qs[i / 8] */
struct block_q1_0 {
    uint16_t d;
    uint8_t qs[16];
};

/*
 * x[i] = d * (q[i] - 1)
 *   qs[j]  ddccbbaa   a = q[4 j], b = q[4 j + 1], c, d follow
 */
struct block_q2_0 {
    uint16_t d;
    uint8_t qs[16];
};

/* ---- blocks of 256: k-quants ---- */

/*
 * 16 groups of 16: x = d * sc * q - dmin * mn
 *   scales[g]          mmmmssss   s = sc, m = mn of group g
 *   qs[32 h + j]       ddccbbaa   half h = 0, 1 of 128 elements, j = 0..31:
 *                                 a = q[128 h + j], b = q[128 h + 32 + j], c: + 64, d: + 96
 */
struct block_q2_K {
    uint8_t scales[16];
    uint8_t qs[64];
    uint16_t d, dmin;
};

/*
 * 16 groups of 16: x = d * (sc - 32) * (q - 4), q of 3 bits, sc of 6
 *   qs          bits 0-1 of q, as in q2_K
 *   hmask[j]    bit k = bit 2 of q[32 k + j],  j = 0..31
 *   scales[j]      hhhhllll   j = 0..7: l = sc[j] bits 0-3, h = sc[j + 8] bits 0-3
 *   scales[8 + j]  ddccbbaa   j = 0..3: bits 4-5 of a = sc[j], b = sc[j + 4], c: + 8, d: + 12
 */
struct block_q3_K {
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    uint16_t d;
};

/*
 * 8 groups of 32: x = d * sc * q - dmin * mn, sc and mn of 6 bits
 *   scales[j]      hhssssss   j = 0..3: s = sc[j],       h = sc[j + 4] bits 4-5
 *   scales[4 + j]  hhmmmmmm             m = mn[j],       h = mn[j + 4] bits 4-5
 *   scales[8 + j]  mmmmssss             s = sc[j + 4] bits 0-3, m = mn[j + 4] bits 0-3
 *   qs[32 p + j]   hhhhllll   p = 0..3, j = 0..31: l = q[64 p + j], h = q[64 p + 32 + j]
 */
struct block_q4_K {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qs[128];
};

/*
 * As q4_K with q of 5 bits:
 *   qh[j]   bit k = bit 4 of q[32 k + j],  j = 0..31
 */
struct block_q5_K {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
};

/*
 * 16 groups of 16: x = d * scales[g] * (q - 32), q of 6 bits; halves h = 0, 1 of 128 elements
 *   ql[64 h + j]   hhhhllll   j = 0..63: l = q[128 h + j] bits 0-3, h = q[128 h + 64 + j] bits 0-3
 *   qh[32 h + j]   ddccbbaa   j = 0..31: bits 4-5 of a = q[128 h + j], b: + 32, c: + 64, d: + 96
 */
struct block_q6_K {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    uint16_t d;
};

/* x[i] = d * qs[i]; bsums[g] = sum of qs of group g of 16. For activations, not for weights. */
struct block_q8_K {
    float d;
    int8_t qs[256];
    int16_t bsums[16];
};

/* ---- blocks of 256: ternary ---- */

/*
 * x[i] = d * (q[i] - 1), q = 0, 1, 2. A byte b holds five digits of base 3 as the fraction b / 256:
 * digit n is the integer part of 3 * frac(b * 3^n / 256).
 *   qs[j]       j = 0..31: digit n = q[32 n + j]
 *   qs[32 + j]  j = 0..15: digit n = q[160 + 16 n + j]
 *   qh[j]       j = 0..3:  digit n = q[240 + 4 n + j], four digits
 */
struct block_tq1_0 {
    uint8_t qs[48];
    uint8_t qh[4];
    uint16_t d;
};

/* x[i] = d * (q[i] - 1); bits as in q2_K */
struct block_tq2_0 {
    uint8_t qs[64];
    uint16_t d;
};

/* ---- blocks of 256: codebooks (grids in codebook.h) ---- */

/*
 * 8 groups of 32, each four points of 8 elements: x = d * (0.5 + s) / 4 * grid * sign
 *   qs[4 g .. 4 g + 3]   two little-endian u32:
 *     first    ddddddddccccccccbbbbbbbbaaaaaaaa   indices into iq2_xxs_grid of points a, b, c, d
 *     second   ssssdddddddcccccccbbbbbbbaaaaaaa   s = scale; a.. = 7 sign bits of each point
 * The eighth sign makes the number of minus signs even (iq_signs).
 */
struct block_iq2_xxs {
    uint16_t d;
    uint16_t qs[32];
};

/*
 * 32 points of 8 elements: x = d * (0.5 + s) / 4 * grid * sign
 *   qs[p]       sssssssiiiiiiiii   i = index into iq2_xs_grid, s = 7 sign bits
 *   scales[j]   hhhhllll           l: points 4 j, 4 j + 1; h: points 4 j + 2, 4 j + 3
 */
struct block_iq2_xs {
    uint16_t d;
    uint16_t qs[32];
    uint8_t scales[8];
};

/*
 * 32 points of 8 elements: x = d * (0.5 + s) / 4 * grid * sign
 *   qs[p]      bits 0-7 of the index of point p into iq2_s_grid
 *   signs[p]   bit k = 1: element k of point p is negative
 *   qh[j]      ddccbbaa   bits 8-9 of the indices of points 4 j .. 4 j + 3
 *   scales     as in iq2_xs
 */
struct block_iq2_s {
    uint16_t d;
    uint8_t qs[32];
    uint8_t signs[32];
    uint8_t qh[8];
    uint8_t scales[8];
};

/*
 * 8 groups of 32, each eight points of 4 elements: x = d * (0.5 + s) / 2 * grid * sign
 *   qs[p]     index of point p into iq3_xxs_grid
 *   ss[g]     little-endian u32  ssssdddddddcccccccbbbbbbbaaaaaaa   as in iq2_xxs: s = scale;
 *             a.. = 7 sign bits of each pair of points
 */
struct block_iq3_xxs {
    uint16_t d;
    uint8_t qs[64];
    uint8_t ss[8][4];
};

/*
 * 64 points of 4 elements: x = d * (1 + 2 s) * grid * sign
 *   qs[p]      bits 0-7 of the index of point p into iq3_s_grid
 *   qh[j]      bit k = bit 8 of the index of point 8 j + k
 *   signs[j]   bit k = 1: element 8 j + k is negative
 *   scales[j]  hhhhllll   l: elements 64 j .. 64 j + 31; h: the next 32
 */
struct block_iq3_s {
    uint16_t d;
    uint8_t qs[64];
    uint8_t qh[8];
    uint8_t signs[32];
    uint8_t scales[4];
};

/*
 * 8 groups of 32, each four points of 8 elements: x = d * (1 + 2 s) * (grid +- 1/8)
 *   qs[4 g + k]   bits 0-7 of the index of point k of group g into iq1_s_grid
 *   qh[g]         nsssdddcccbbbaaa   a.. = bits 8-10 of the indices; s = scale; n = 1: minus 1/8
 */
struct block_iq1_s {
    uint16_t d;
    uint8_t qs[32];
    uint16_t qh[8];
};

/*
 * 32 points of 8 elements: x = d * (1 + 2 s) * (grid +- 1/8)
 *   qs[p]       bits 0-7 of the index of point p into iq1_s_grid
 *   qh[j]       nhhhmlll   point 2 j: bits 8-10 l, m = 1: minus 1/8; point 2 j + 1: h, n
 *   scales[j]   little-endian u16  ddddDDDCCCBBBAAA   A = s of points 8 j and 8 j + 1, B, C, D of
 *               the next pairs; d of j = 0..3 are bits 0-3, 4-7, 8-11, 12-15 of the half scale
 */
struct block_iq1_m {
    uint8_t qs[32];
    uint8_t qh[16];
    uint8_t scales[4][2];
};

/*
 * 8 groups of 32: x = d * (sc - 32) * level[q]
 *   scales_h          one u16: bits 2 g, 2 g + 1 = bits 4-5 of sc[g]
 *   scales_l[j]       hhhhllll   bits 0-3 of l = sc[2 j], h = sc[2 j + 1]
 *   qs[16 g + j]      hhhhllll   l = q[32 g + j], h = q[32 g + 16 + j]
 */
struct block_iq4_xs {
    uint16_t d;
    uint16_t scales_h;
    uint8_t scales_l[4];
    uint8_t qs[128];
};

#endif
