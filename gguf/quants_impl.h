/*
 * Private to quants*.c: one decoder per row of dtype.def, and the loop that all decoders share.
 */
#ifndef GGRUN_GGUF_QUANTS_IMPL_H
#define GGRUN_GGUF_QUANTS_IMPL_H

#include <stdint.h>
#include <string.h>

#include "gguf/block.h"
#include "gguf/quants.h"

#define DTYPE(NAME, number, name, block, layout, bytes) quant_decode_fn quant_decode_##NAME;
#include "gguf/dtype.def"

quant_encode_fn quant_encode_Q4_0, quant_encode_Q4_1, quant_encode_Q5_0, quant_encode_Q5_1,
    quant_encode_Q8_0, quant_encode_Q8_1, quant_encode_Q4_K, quant_encode_Q6_K, quant_encode_MXFP4;

/*
 * quant_decode_NAME from `decode_block(const layout *b, float *y)`, which writes n_block floats.
 * The block is copied first, since its address in a file may be odd.
 */
#define BLOCK_DECODER(NAME, layout, n_block, decode_block)                                         \
    void quant_decode_##NAME(const void *src, float *dst, int64_t n)                               \
    {                                                                                              \
        const unsigned char *p = src;                                                              \
        layout b;                                                                                  \
                                                                                                   \
        for (int64_t i = 0; i < n; i += (n_block), p += sizeof b) {                                \
            memcpy(&b, p, sizeof b);                                                               \
            decode_block(&b, dst + i);                                                             \
        }                                                                                          \
    }

/* Little-endian u32 at any address. */
static inline uint32_t load_u32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* 2^(e - 128): half of the E8M0 value, since e2m1_twice is twice its element. */
static inline float e8m0_half(uint8_t e)
{
    uint32_t bits = e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23;
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Scale and minimum of group g of the q4_K and q5_K blocks; see block.h for the bits. */
static inline void k_scale_min(const uint8_t scales[12], int g, int *sc, int *mn)
{
    if (g < 4) {
        *sc = scales[g] & 63;
        *mn = scales[g + 4] & 63;
    } else {
        *sc = (scales[g + 4] & 15) | scales[g - 4] >> 6 << 4;
        *mn = scales[g + 4] >> 4 | scales[g] >> 6 << 4;
    }
}

#endif
