/*
 * SIMD wrappers for any processor: 4 lanes, written with the compiler's vector type. x86-64
 * compilers turn them into SSE2, which every such processor has; others into what they have. All
 * simd_<isa>.h give the same names:
 *
 *   vf, vi                   VF lanes of float and of int32
 *   vf_load_n, vf_store_n    lanes 0..n-1 only; the others load as zero
 *   vf_fma                   a * b + c; rounded once or twice, as the instruction set has it
 *   vf_min, vf_max           b where a or b is NaN
 *   vf_if_eq                 yes where a == b, else no
 *   vf_bits, vi_sub          bit patterns; difference of integers
 *   vi_half, vi_pow2         n >> 1 (towards minus infinity); 2^n for -126 <= n <= 127
 *   vf_sum4                  out[0..3] = sums over the lanes of a, b, c, d, each in the order
 *                            ((0 + 1) + (2 + 3)), for 8 lanes + ((4 + 5) + (6 + 7)); part of the
 *                            promise that results do not depend on batch size
 */
#ifndef GGRUN_BACKENDS_CPU_SIMD_SCALAR_H
#define GGRUN_BACKENDS_CPU_SIMD_SCALAR_H

#include <stdint.h>
#include <string.h>

#define VF 4
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));

static inline vf vf_zero(void)
{
    return (vf){0};
}
static inline vf vf_set1(float a)
{
    return (vf){a, a, a, a};
}
static inline vf vf_load(const float *p)
{
    vf a;

    memcpy(&a, p, sizeof a);
    return a;
}
static inline void vf_store(float *p, vf a)
{
    memcpy(p, &a, sizeof a);
}
static inline vf vf_load_n(const float *p, int n)
{
    vf a = {0};

    for (int i = 0; i < n; i++)
        a[i] = p[i];
    return a;
}
static inline void vf_store_n(float *p, vf a, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = a[i];
}
static inline vf vf_add(vf a, vf b)
{
    return a + b;
}
static inline vf vf_sub(vf a, vf b)
{
    return a - b;
}
static inline vf vf_mul(vf a, vf b)
{
    return a * b;
}
static inline vf vf_div(vf a, vf b)
{
    return a / b;
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return a * b + c;
}
static inline vf vf_pick(vi mask, vf yes, vf no)
{
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}
static inline vf vf_min(vf a, vf b)
{
    return vf_pick((vi)(a < b), a, b);
}
static inline vf vf_max(vf a, vf b)
{
    return vf_pick((vi)(a > b), a, b);
}
static inline vf vf_if_eq(vf a, vf b, vf yes, vf no)
{
    return vf_pick((vi)(a == b), yes, no);
}
static inline vi vf_bits(vf a)
{
    return (vi)a;
}
static inline vi vi_sub(vi a, vi b)
{
    return a - b;
}
static inline vi vi_half(vi a)
{
    return a >> 1;
}
static inline vf vi_pow2(vi n)
{
    return (vf)((vu)(n + 127) << 23);
}
static inline void vf_sum4(vf a, vf b, vf c, vf d, float out[4])
{
    out[0] = (a[0] + a[1]) + (a[2] + a[3]);
    out[1] = (b[0] + b[1]) + (b[2] + b[3]);
    out[2] = (c[0] + c[1]) + (c[2] + c[3]);
    out[3] = (d[0] + d[1]) + (d[2] + d[3]);
}

#endif
