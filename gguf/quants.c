#include "gguf/quants.h"

#include <assert.h>
#include <math.h>

#include "gguf/quants_impl.h"

static uint32_t bits_of(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exp = h >> 10 & 31, man = h & 0x3ff;

    if (exp == 31)
        return float_of(sign | 0x7f800000 | man << 13);
    if (exp == 0) /* man * 2^-24, a normal number in f32 */
        return float_of(sign | bits_of((float)man * 0x1p-24f));
    return float_of(sign | (exp + 127 - 15) << 23 | man << 13);
}

uint16_t f32_to_f16(float f)
{
    uint32_t u = bits_of(f), a = u & 0x7fffffff;
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);

    if (a > 0x7f800000) /* NaN: keep the top of its payload, make it quiet */
        return sign | 0x7e00 | (uint16_t)(a >> 13 & 0x3ff);
    if (a >= bits_of(65520.0f)) /* half-way between the largest half and the next: infinity */
        return sign | 0x7c00;
    if (a < bits_of(0x1p-14f)) /* subnormal: in the sum with 1/2 the last bit is 2^-24 */
        return sign | (uint16_t)(bits_of(float_of(a) + 0.5f) - bits_of(0.5f));
    a += 0xfff + (a >> 13 & 1);
    return sign | (uint16_t)((a - ((127u - 15) << 23)) >> 13);
}

float bf16_to_f32(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

uint16_t f32_to_bf16(float f)
{
    uint32_t u = bits_of(f);

    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* ---- types of one element per block ---- */

void quant_decode_F32(const void *src, float *dst, int64_t n)
{
    if (n > 0)
        memcpy(dst, src, (size_t)n * sizeof *dst);
}

static void encode_F32(const float *src, void *dst, int64_t n)
{
    if (n > 0)
        memcpy(dst, src, (size_t)n * sizeof *src);
}

/* Elements are copied to and from aligned variables: the bytes of a file may lie anywhere. */
#define PLAIN_TYPE(NAME, type, to_f32, from_f32)                                                   \
    void quant_decode_##NAME(const void *src, float *dst, int64_t n)                               \
    {                                                                                              \
        const unsigned char *p = src;                                                              \
        type v;                                                                                    \
                                                                                                   \
        for (int64_t i = 0; i < n; i++, p += sizeof v) {                                           \
            memcpy(&v, p, sizeof v);                                                               \
            dst[i] = to_f32(v);                                                                    \
        }                                                                                          \
    }                                                                                              \
    static void encode_##NAME(const float *src, void *dst, int64_t n)                              \
    {                                                                                              \
        unsigned char *p = dst;                                                                    \
                                                                                                   \
        for (int64_t i = 0; i < n; i++, p += sizeof(type)) {                                       \
            type v = from_f32(src[i]);                                                             \
            memcpy(p, &v, sizeof v);                                                               \
        }                                                                                          \
    }

/* To the nearest integer, ties to even, saturated to 8, 16, 32 or 64 bits; NaN gives 0. */
static int64_t to_int(float f, int n_bits)
{
    float limit = ldexpf(1, n_bits - 1); /* a power of two: exact */
    int64_t max = (int64_t)(UINT64_MAX >> (65 - n_bits));

    if (isnan(f))
        return 0;
    f = rintf(f);
    if (f >= limit)
        return max;
    return f < -limit ? -max - 1 : (int64_t)f;
}

#define AS_FLOAT(v) ((float)(v))
#define AS_I8(f)    ((int8_t)to_int(f, 8))
#define AS_I16(f)   ((int16_t)to_int(f, 16))
#define AS_I32(f)   ((int32_t)to_int(f, 32))
#define AS_I64(f)   to_int(f, 64)
#define AS_F64(f)   ((double)(f))

PLAIN_TYPE(F16, uint16_t, f16_to_f32, f32_to_f16)
PLAIN_TYPE(BF16, uint16_t, bf16_to_f32, f32_to_bf16)
PLAIN_TYPE(F64, double, AS_FLOAT, AS_F64)
PLAIN_TYPE(I8, int8_t, AS_FLOAT, AS_I8)
PLAIN_TYPE(I16, int16_t, AS_FLOAT, AS_I16)
PLAIN_TYPE(I32, int32_t, AS_FLOAT, AS_I32)
PLAIN_TYPE(I64, int64_t, AS_FLOAT, AS_I64)

/* ---- by type ---- */

quant_decode_fn *quant_decoder(enum dtype t)
{
    static quant_decode_fn *const decoders[DT_COUNT] = {
#define DTYPE(NAME, number, name, block, layout, bytes) [number] = quant_decode_##NAME,
#include "gguf/dtype.def"
    };

    assert(dtype_known((uint32_t)t));
    return decoders[t];
}

quant_encode_fn *quant_encoder(enum dtype t)
{
    static quant_encode_fn *const encoders[DT_COUNT] = {
        [DT_F32] = encode_F32,
        [DT_F16] = encode_F16,
        [DT_BF16] = encode_BF16,
        [DT_F64] = encode_F64,
        [DT_I8] = encode_I8,
        [DT_I16] = encode_I16,
        [DT_I32] = encode_I32,
        [DT_I64] = encode_I64,
        [DT_Q4_0] = quant_encode_Q4_0,
        [DT_Q4_1] = quant_encode_Q4_1,
        [DT_Q5_0] = quant_encode_Q5_0,
        [DT_Q5_1] = quant_encode_Q5_1,
        [DT_Q8_0] = quant_encode_Q8_0,
        [DT_Q8_1] = quant_encode_Q8_1,
        [DT_Q4_K] = quant_encode_Q4_K,
        [DT_Q6_K] = quant_encode_Q6_K,
        [DT_MXFP4] = quant_encode_MXFP4,
    };

    assert(dtype_known((uint32_t)t));
    return encoders[t];
}
