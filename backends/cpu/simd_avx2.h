/*
 * SIMD wrappers for AVX2 + FMA: 8 lanes. The same names as in the other simd_<isa>.h; simd_scalar.h
 * says what they mean. Included by files that are compiled with -mavx2 -mfma -mf16c only.
 */
#ifndef GGRUN_BACKENDS_CPU_SIMD_AVX2_H
#define GGRUN_BACKENDS_CPU_SIMD_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#define VF 8
typedef __m256 vf;
typedef __m256i vi;

static inline vf vf_zero(void)
{
    return _mm256_setzero_ps();
}
static inline vf vf_set1(float a)
{
    return _mm256_set1_ps(a);
}
static inline vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline void vf_store(float *p, vf a)
{
    _mm256_storeu_ps(p, a);
}
/* All ones in lanes 0..n-1. */
static inline vi vi_first(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vf vf_load_n(const float *p, int n)
{
    return _mm256_maskload_ps(p, vi_first(n));
}
static inline void vf_store_n(float *p, vf a, int n)
{
    _mm256_maskstore_ps(p, vi_first(n), a);
}
static inline vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
static inline vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static inline vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
static inline vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
static inline vf vf_if_eq(vf a, vf b, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_EQ_OQ));
}
static inline vi vf_bits(vf a)
{
    return _mm256_castps_si256(a);
}
static inline vi vi_sub(vi a, vi b)
{
    return _mm256_sub_epi32(a, b);
}
static inline vi vi_half(vi a)
{
    return _mm256_srai_epi32(a, 1);
}
static inline vf vi_pow2(vi n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
static inline void vf_sum4(vf a, vf b, vf c, vf d, float out[4])
{
    vf s = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));

    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
}

#endif
