/*
 * AVX2: decoders of the common types, and products that decode on the fly.
 *
 * A type is one function that turns group g (32 elements) of a block into four vectors. From it
 * come the row decoder and the product with one column, which keeps a decoded group in registers.
 * Values have the bits of the reference decoders (gguf/quants.h): a scale (half) times small
 * integers is exact in f32, so that d * q + m may be one fused operation and is still rounded once.
 * The products sum in the order of kernels.h.
 */
#include <immintrin.h>
#include <string.h>

#include "backends/cpu/kernels.h"
#include "gguf/block.h"
#include "gguf/codebook.h"

#define MELT static inline __attribute__((always_inline))
/* Groups of a block are unrolled: their shifts become constants and its scales are read once. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* Blocks at any address: files may place them at odd ones. */
typedef struct block_q4_0 u_q4_0 __attribute__((aligned(1)));
typedef struct block_q4_1 u_q4_1 __attribute__((aligned(1)));
typedef struct block_q5_0 u_q5_0 __attribute__((aligned(1)));
typedef struct block_q5_1 u_q5_1 __attribute__((aligned(1)));
typedef struct block_q8_0 u_q8_0 __attribute__((aligned(1)));
typedef struct block_iq4_nl u_iq4_nl __attribute__((aligned(1)));
typedef struct block_mxfp4 u_mxfp4 __attribute__((aligned(1)));
typedef struct block_q2_K u_q2_K __attribute__((aligned(1)));
typedef struct block_q3_K u_q3_K __attribute__((aligned(1)));
typedef struct block_q4_K u_q4_K __attribute__((aligned(1)));
typedef struct block_q5_K u_q5_K __attribute__((aligned(1)));
typedef struct block_q6_K u_q6_K __attribute__((aligned(1)));
typedef struct block_iq4_xs u_iq4_xs __attribute__((aligned(1)));
typedef uint16_t u_half __attribute__((aligned(1)));

typedef void group_fn(const void *block, int g, __m256 w[4]);

MELT float half(uint16_t h)
{
    return _cvtsh_ss(h);
}
MELT __m256 vhalf(uint16_t h)
{
    return _mm256_set1_ps(half(h));
}
MELT __m128i load16(const void *p)
{
    return _mm_loadu_si128(p);
}
/* The low 8 bytes to float, unsigned and signed. */
MELT __m256 u8_to_f32(__m128i b)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(b));
}
MELT __m256 i8_to_f32(__m128i b)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b));
}
MELT __m128i upper8(__m128i b)
{
    return _mm_unpackhi_epi64(b, b);
}
MELT __m128i low_nibbles(__m128i b)
{
    return _mm_and_si128(b, _mm_set1_epi8(15));
}
MELT __m128i high_nibbles(__m128i b)
{
    return _mm_and_si128(_mm_srli_epi16(b, 4), _mm_set1_epi8(15));
}
/* q * d + m of 32 unsigned bytes, low half first. */
MELT void scale_add(__m128i lo, __m128i hi, __m256 d, __m256 m, __m256 w[4])
{
    w[0] = _mm256_fmadd_ps(u8_to_f32(lo), d, m);
    w[1] = _mm256_fmadd_ps(u8_to_f32(upper8(lo)), d, m);
    w[2] = _mm256_fmadd_ps(u8_to_f32(hi), d, m);
    w[3] = _mm256_fmadd_ps(u8_to_f32(upper8(hi)), d, m);
}
/* q * d of 32 signed bytes; d0 scales the first 16, d1 the others. */
MELT void scale2(__m128i lo, __m128i hi, __m256 d0, __m256 d1, __m256 w[4])
{
    w[0] = _mm256_mul_ps(i8_to_f32(lo), d0);
    w[1] = _mm256_mul_ps(i8_to_f32(upper8(lo)), d0);
    w[2] = _mm256_mul_ps(i8_to_f32(hi), d1);
    w[3] = _mm256_mul_ps(i8_to_f32(upper8(hi)), d1);
}
/* 16 where the bit of 32 is set, bytes 0-15 from the low half. */
MELT __m256i bits_to_16(uint32_t bits)
{
    const __m256i byte =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), byte);

    v = _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
    return _mm256_and_si256(v, _mm256_set1_epi8(16));
}
MELT uint32_t load_u32(const void *p)
{
    uint32_t u;

    memcpy(&u, p, sizeof u);
    return u;
}

/* ---- plain types: groups of 32 elements, the tail is the caller's ---- */

MELT void group_f16(const void *block, int g, __m256 w[4])
{
    const uint16_t *p = block;

    (void)g;
    for (int i = 0; i < 4; i++)
        w[i] = _mm256_cvtph_ps(load16(p + 8 * i));
}
MELT void group_bf16(const void *block, int g, __m256 w[4])
{
    const uint16_t *p = block;

    (void)g;
    for (int i = 0; i < 4; i++)
        w[i] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(p + 8 * i)), 16));
}
MELT void group_f32(const void *block, int g, __m256 w[4])
{
    const float *p = block;

    (void)g;
    for (int i = 0; i < 4; i++)
        w[i] = _mm256_loadu_ps(p + 8 * i);
}

/* ---- blocks of 32 ---- */

MELT void group_q4_0(const void *block, int g, __m256 w[4])
{
    const u_q4_0 *b = block;
    __m128i q = load16(b->qs), eight = _mm_set1_epi8(8);
    __m256 d = vhalf(b->d);

    (void)g;
    scale2(_mm_sub_epi8(low_nibbles(q), eight), _mm_sub_epi8(high_nibbles(q), eight), d, d, w);
}
MELT void group_q4_1(const void *block, int g, __m256 w[4])
{
    const u_q4_1 *b = block;
    __m128i q = load16(b->qs);

    (void)g;
    scale_add(low_nibbles(q), high_nibbles(q), vhalf(b->d), vhalf(b->m), w);
}
MELT void group_q5_0(const void *block, int g, __m256 w[4])
{
    const u_q5_0 *b = block;
    __m128i q = load16(b->qs), sixteen = _mm_set1_epi8(16);
    __m256i h = bits_to_16(load_u32(b->qh));
    __m128i lo = _mm_or_si128(low_nibbles(q), _mm256_castsi256_si128(h));
    __m128i hi = _mm_or_si128(high_nibbles(q), _mm256_extracti128_si256(h, 1));
    __m256 d = vhalf(b->d);

    (void)g;
    scale2(_mm_sub_epi8(lo, sixteen), _mm_sub_epi8(hi, sixteen), d, d, w);
}
MELT void group_q5_1(const void *block, int g, __m256 w[4])
{
    const u_q5_1 *b = block;
    __m128i q = load16(b->qs);
    __m256i h = bits_to_16(load_u32(b->qh));

    (void)g;
    scale_add(_mm_or_si128(low_nibbles(q), _mm256_castsi256_si128(h)),
              _mm_or_si128(high_nibbles(q), _mm256_extracti128_si256(h, 1)), vhalf(b->d),
              vhalf(b->m), w);
}
MELT void group_q8_0(const void *block, int g, __m256 w[4])
{
    const u_q8_0 *b = block;
    __m256 d = vhalf(b->d);

    (void)g;
    scale2(load16(b->qs), load16(b->qs + 16), d, d, w);
}
MELT __m128i iq4_lookup(__m128i nibbles)
{
    return _mm_shuffle_epi8(load16(iq4_levels), nibbles);
}
MELT void group_iq4_nl(const void *block, int g, __m256 w[4])
{
    const u_iq4_nl *b = block;
    __m128i q = load16(b->qs);
    __m256 d = vhalf(b->d);

    (void)g;
    scale2(iq4_lookup(low_nibbles(q)), iq4_lookup(high_nibbles(q)), d, d, w);
}
/* Half of the E8M0 scale times twice the e2m1 element, as the reference has it. */
MELT void group_mxfp4(const void *block, int g, __m256 w[4])
{
    const u_mxfp4 *b = block;
    const __m128i twice = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    uint32_t bits = b->e < 2 ? 0x00200000u << b->e : (uint32_t)(b->e - 1) << 23;
    __m256 d = _mm256_castsi256_ps(_mm256_set1_epi32((int)bits));
    __m128i q = load16(b->qs);

    (void)g;
    scale2(_mm_shuffle_epi8(twice, low_nibbles(q)), _mm_shuffle_epi8(twice, high_nibbles(q)), d, d,
           w);
}

/* ---- blocks of 256 ---- */

/* Two bits of elements 32 g .. 32 g + 31, bytes 0-15 in lo. */
MELT void two_bits(const uint8_t *qs, int g, __m128i *lo, __m128i *hi)
{
    const uint8_t *p = qs + 32 * (g / 4);
    __m128i three = _mm_set1_epi8(3), count = _mm_cvtsi32_si128(2 * (g % 4));

    *lo = _mm_and_si128(_mm_srl_epi16(load16(p), count), three);
    *hi = _mm_and_si128(_mm_srl_epi16(load16(p + 16), count), three);
}
/* Nibbles of elements 32 g .. 32 g + 31 where 64 elements lie in 32 bytes. */
MELT void nibbles_64(const uint8_t *qs, int g, __m128i *lo, __m128i *hi)
{
    const uint8_t *p = qs + 32 * (g / 2);
    __m128i count = _mm_cvtsi32_si128(4 * (g % 2));

    *lo = low_nibbles(_mm_srl_epi16(load16(p), count));
    *hi = low_nibbles(_mm_srl_epi16(load16(p + 16), count));
}
/* Bit g of 32 bytes, as `value` (a power of two) in each byte. */
MELT void one_bit(const uint8_t *p, int g, int value, __m128i *lo, __m128i *hi)
{
    __m128i bit = _mm_set1_epi8((char)(1 << g)), v = _mm_set1_epi8((char)value);

    *lo = _mm_and_si128(_mm_cmpeq_epi8(_mm_and_si128(load16(p), bit), bit), v);
    *hi = _mm_and_si128(_mm_cmpeq_epi8(_mm_and_si128(load16(p + 16), bit), bit), v);
}
MELT void group_q2_K(const void *block, int g, __m256 w[4])
{
    const u_q2_K *b = block;
    float d = half(b->d), dmin = half(b->dmin);
    uint8_t s0 = b->scales[2 * g], s1 = b->scales[2 * g + 1];
    __m256 d0 = _mm256_set1_ps(d * (float)(s0 & 15)), m0 = _mm256_set1_ps(dmin * (float)(s0 >> 4));
    __m256 d1 = _mm256_set1_ps(d * (float)(s1 & 15)), m1 = _mm256_set1_ps(dmin * (float)(s1 >> 4));
    __m128i lo, hi;

    two_bits(b->qs, g, &lo, &hi);
    w[0] = _mm256_fmsub_ps(u8_to_f32(lo), d0, m0);
    w[1] = _mm256_fmsub_ps(u8_to_f32(upper8(lo)), d0, m0);
    w[2] = _mm256_fmsub_ps(u8_to_f32(hi), d1, m1);
    w[3] = _mm256_fmsub_ps(u8_to_f32(upper8(hi)), d1, m1);
}
MELT int q3_scale(const uint8_t *scales, int g)
{
    int low = g < 8 ? scales[g] & 15 : scales[g - 8] >> 4;

    return (low | (scales[8 + g % 4] >> 2 * (g / 4) & 3) << 4) - 32;
}
MELT void group_q3_K(const void *block, int g, __m256 w[4])
{
    const u_q3_K *b = block;
    float d = half(b->d);
    __m256 d0 = _mm256_set1_ps(d * (float)q3_scale(b->scales, 2 * g));
    __m256 d1 = _mm256_set1_ps(d * (float)q3_scale(b->scales, 2 * g + 1));
    __m128i lo, hi, hlo, hhi, four = _mm_set1_epi8(4);

    two_bits(b->qs, g, &lo, &hi);
    one_bit(b->hmask, g, 4, &hlo, &hhi);
    scale2(_mm_sub_epi8(_mm_or_si128(lo, hlo), four), _mm_sub_epi8(_mm_or_si128(hi, hhi), four), d0,
           d1, w);
}
/* Scale and minimum of group g; bits in block.h. */
MELT void k_scale_min(const uint8_t s[12], int g, float *sc, float *mn)
{
    if (g < 4) {
        *sc = (float)(s[g] & 63);
        *mn = (float)(s[g + 4] & 63);
    } else {
        *sc = (float)((s[g + 4] & 15) | s[g - 4] >> 6 << 4);
        *mn = (float)(s[g + 4] >> 4 | s[g] >> 6 << 4);
    }
}
MELT void scale_sub(__m128i lo, __m128i hi, float d, float m, __m256 w[4])
{
    __m256 vd = _mm256_set1_ps(d), vm = _mm256_set1_ps(m);

    w[0] = _mm256_fmsub_ps(u8_to_f32(lo), vd, vm);
    w[1] = _mm256_fmsub_ps(u8_to_f32(upper8(lo)), vd, vm);
    w[2] = _mm256_fmsub_ps(u8_to_f32(hi), vd, vm);
    w[3] = _mm256_fmsub_ps(u8_to_f32(upper8(hi)), vd, vm);
}
MELT void group_q4_K(const void *block, int g, __m256 w[4])
{
    const u_q4_K *b = block;
    __m128i lo, hi;
    float sc, mn;

    k_scale_min(b->scales, g, &sc, &mn);
    nibbles_64(b->qs, g, &lo, &hi);
    scale_sub(lo, hi, half(b->d) * sc, half(b->dmin) * mn, w);
}
MELT void group_q5_K(const void *block, int g, __m256 w[4])
{
    const u_q5_K *b = block;
    __m128i lo, hi, hlo, hhi;
    float sc, mn;

    k_scale_min(b->scales, g, &sc, &mn);
    nibbles_64(b->qs, g, &lo, &hi);
    one_bit(b->qh, g, 16, &hlo, &hhi);
    scale_sub(_mm_or_si128(lo, hlo), _mm_or_si128(hi, hhi), half(b->d) * sc, half(b->dmin) * mn, w);
}
MELT void group_q6_K(const void *block, int g, __m256 w[4])
{
    const u_q6_K *b = block;
    const uint8_t *p = b->ql + 64 * (g / 4) + 32 * (g % 2);
    __m128i count = _mm_cvtsi32_si128(4 * (g / 2 % 2)), offset = _mm_set1_epi8(32);
    __m128i lo = low_nibbles(_mm_srl_epi16(load16(p), count));
    __m128i hi = low_nibbles(_mm_srl_epi16(load16(p + 16), count));
    float d = half(b->d);
    __m128i hlo, hhi;

    two_bits(b->qh, g, &hlo, &hhi);
    lo = _mm_sub_epi8(_mm_or_si128(lo, _mm_slli_epi16(hlo, 4)), offset);
    hi = _mm_sub_epi8(_mm_or_si128(hi, _mm_slli_epi16(hhi, 4)), offset);
    scale2(lo, hi, _mm256_set1_ps(d * (float)b->scales[2 * g]),
           _mm256_set1_ps(d * (float)b->scales[2 * g + 1]), w);
}
MELT void group_iq4_xs(const void *block, int g, __m256 w[4])
{
    const u_iq4_xs *b = block;
    __m128i q = load16(b->qs + 16 * g);
    int sc = (b->scales_l[g / 2] >> 4 * (g % 2) & 15) | (b->scales_h >> 2 * g & 3) << 4;
    __m256 d = _mm256_set1_ps(half(b->d) * (float)(sc - 32));

    scale2(iq4_lookup(low_nibbles(q)), iq4_lookup(high_nibbles(q)), d, d, w);
}

/* ---- from groups to rows ---- */

/* n_g groups per block of `bytes`; both constant. */
MELT void decode_row(group_fn *group, int n_g, size_t bytes, const char *src, float *dst, int64_t n)
{
    __m256 w[4];

    for (int64_t i = 0; i + 32 * n_g <= n; i += 32 * n_g, src += bytes) {
        UNROLL
        for (int g = 0; g < n_g; g++) {
            group(src, g, w);
            for (int v = 0; v < 4; v++)
                _mm256_storeu_ps(dst + i + 32 * g + 8 * v, w[v]);
        }
    }
}

/*
 * Ask for the bytes that the next r_n rows have at p's place. Rows of a few hundred bytes are too
 * short for the processor's own prefetching of four streams: without this, weights from memory come
 * at half the speed. The address may lie behind the matrix: a prefetch never faults.
 */
MELT void ahead(const char *p, size_t stride, int r_n, size_t bytes)
{
    for (int r = 0; r < r_n; r++)
        for (size_t b = 0; b < bytes; b += 64)
            _mm_prefetch((const void *)((uintptr_t)p + (size_t)(r + r_n) * stride + b),
                         _MM_HINT_T0);
}

/* acc[r] += group g of r_n rows times x. */
MELT void fma_group(group_fn *group, int r_n, const char *w, size_t stride, int g, const float *x,
                    __m256 *acc)
{
    __m256 xs[4], ws[4];

    for (int v = 0; v < 4; v++)
        xs[v] = _mm256_loadu_ps(x + 8 * v);
    for (int r = 0; r < r_n; r++) {
        group(w + (size_t)r * stride, g, ws);
        for (int v = 0; v < 4; v++)
            acc[r] = _mm256_fmadd_ps(ws[v], xs[v], acc[r]);
    }
}

MELT void sum_rows(int r_n, const __m256 acc[4], float *y, bool add)
{
    __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(acc[0], acc[1]), _mm256_hadd_ps(acc[2], acc[3]));
    float out[4];

    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
    for (int r = 0; r < r_n; r++)
        y[r] = add ? y[r] + out[r] : out[r];
}

/* r_n rows (1 or 4, constant) times one column, chunk by chunk. n is a multiple of 32 n_g. */
MELT void vec_rows(group_fn *group, int n_g, size_t bytes, int r_n, const char *w, size_t stride,
                   const float *x, int64_t n, float *y)
{
    const char *p = w;

    for (int64_t k = 0; k < n;) {
        int64_t end = k + MAT_CHUNK < n ? k + MAT_CHUNK : n, start = k;
        __m256 acc[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                         _mm256_setzero_ps()};
        for (; k < end; k += 32 * n_g, p += bytes) {
            ahead(p, stride, r_n, bytes);
            UNROLL
            for (int g = 0; g < n_g; g++)
                fma_group(group, r_n, p, stride, g, x + k + 32 * g, acc);
        }
        sum_rows(r_n, acc, y, start > 0);
    }
}

MELT void vec_all(group_fn *group, int n_g, size_t bytes, const void *w, size_t stride, int n_rows,
                  const float *x, int64_t n, float *y)
{
    const char *p = w;
    int i = 0;

    for (; i + 4 <= n_rows; i += 4)
        vec_rows(group, n_g, bytes, 4, p + (size_t)i * stride, stride, x, n, y + i);
    for (; i < n_rows; i++)
        vec_rows(group, n_g, bytes, 1, p + (size_t)i * stride, stride, x, n, y + i);
}

#define QUANT(name, layout, n_g)                                                                   \
    static void decode_##name(const void *src, float *dst, int64_t n)                              \
    {                                                                                              \
        decode_row(group_##name, n_g, sizeof(layout), src, dst, n);                                \
    }                                                                                              \
    static void vec_##name(const void *w, size_t stride, int n_rows, const float *x, int64_t n,    \
                           float *y)                                                               \
    {                                                                                              \
        vec_all(group_##name, n_g, sizeof(layout), w, stride, n_rows, x, n, y);                    \
    }

QUANT(q4_0, struct block_q4_0, 1)
QUANT(q4_1, struct block_q4_1, 1)
QUANT(q5_0, struct block_q5_0, 1)
QUANT(q5_1, struct block_q5_1, 1)
QUANT(q8_0, struct block_q8_0, 1)
QUANT(iq4_nl, struct block_iq4_nl, 1)
QUANT(mxfp4, struct block_mxfp4, 1)
QUANT(q2_K, struct block_q2_K, 8)
QUANT(q3_K, struct block_q3_K, 8)
QUANT(q4_K, struct block_q4_K, 8)
QUANT(q5_K, struct block_q5_K, 8)
QUANT(q6_K, struct block_q6_K, 8)
QUANT(iq4_xs, struct block_iq4_xs, 8)

/* ---- plain types: any length ---- */

/* The last n < 32 elements, made a whole group with zeros. */
MELT void pad_group(float pad[32], const void *src, size_t n_bytes)
{
    memset(pad, 0, 32 * sizeof *pad);
    memcpy(pad, src, n_bytes);
}

MELT void decode_plain(group_fn *group, size_t bytes, const void *src, float *dst, int64_t n)
{
    int64_t whole = n - n % 32;
    float pad[32];
    __m256 w[4];

    decode_row(group, 1, 32 * bytes, src, dst, whole);
    if (whole < n) {
        float out[32];
        pad_group(pad, (const char *)src + (size_t)whole * bytes, (size_t)(n - whole) * bytes);
        group(pad, 0, w);
        for (int v = 0; v < 4; v++)
            _mm256_storeu_ps(out + 8 * v, w[v]);
        memcpy(dst + whole, out, (size_t)(n - whole) * sizeof *out);
    }
}

MELT void plain_rows(group_fn *group, size_t bytes, int r_n, const char *w, size_t stride,
                     const float *x, int64_t n, float *y)
{
    for (int64_t k = 0; k < n;) {
        int64_t end = k + MAT_CHUNK < n ? k + MAT_CHUNK : n, start = k;
        __m256 acc[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                         _mm256_setzero_ps()};
        for (; k + 32 <= end; k += 32) {
            ahead(w + (size_t)k * bytes, stride, r_n, 32 * bytes);
            fma_group(group, r_n, w + (size_t)k * bytes, stride, 0, x + k, acc);
        }
        if (k < end) {
            float pad[32], pad_x[32];
            size_t left = (size_t)(end - k);
            pad_group(pad_x, x + k, left * sizeof *x);
            for (int r = 0; r < r_n; r++) {
                pad_group(pad, w + (size_t)r * stride + (size_t)k * bytes, left * bytes);
                fma_group(group, 1, (const char *)pad, 0, 0, pad_x, acc + r);
            }
            k = end;
        }
        sum_rows(r_n, acc, y, start > 0);
    }
}

MELT void plain_all(group_fn *group, size_t bytes, const void *w, size_t stride, int n_rows,
                    const float *x, int64_t n, float *y)
{
    const char *p = w;
    int i = 0;

    for (; i + 4 <= n_rows; i += 4)
        plain_rows(group, bytes, 4, p + (size_t)i * stride, stride, x, n, y + i);
    for (; i < n_rows; i++)
        plain_rows(group, bytes, 1, p + (size_t)i * stride, stride, x, n, y + i);
}

#define PLAIN(name, type)                                                                          \
    static void decode_##name(const void *src, float *dst, int64_t n)                              \
    {                                                                                              \
        decode_plain(group_##name, sizeof(type), src, dst, n);                                     \
    }                                                                                              \
    static void vec_##name(const void *w, size_t stride, int n_rows, const float *x, int64_t n,    \
                           float *y)                                                               \
    {                                                                                              \
        plain_all(group_##name, sizeof(type), w, stride, n_rows, x, n, y);                         \
    }

PLAIN(f32, float)
PLAIN(f16, uint16_t)
PLAIN(bf16, uint16_t)

static void encode_f16(const float *src, void *dst, int64_t n)
{
    char *p = dst;
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(p + 2 * i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++) {
        uint16_t h = _cvtss_sh(src[i], _MM_FROUND_TO_NEAREST_INT);
        memcpy(p + 2 * i, &h, sizeof h);
    }
}

#define ROW(NAME, name) .decode[DT_##NAME] = decode_##name, .vec[DT_##NAME] = vec_##name

const struct cpu_quants cpu_quants_avx2 = {
    ROW(F32, f32),
    ROW(F16, f16),
    ROW(BF16, bf16),
    ROW(Q4_0, q4_0),
    ROW(Q4_1, q4_1),
    ROW(Q5_0, q5_0),
    ROW(Q5_1, q5_1),
    ROW(Q8_0, q8_0),
    ROW(IQ4_NL, iq4_nl),
    ROW(MXFP4, mxfp4),
    ROW(Q2_K, q2_K),
    ROW(Q3_K, q3_K),
    ROW(Q4_K, q4_K),
    ROW(Q5_K, q5_K),
    ROW(Q6_K, q6_K),
    ROW(IQ4_XS, iq4_xs),
    .encode_f16 = encode_f16,
};
