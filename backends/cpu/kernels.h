/*
 * Hot primitives of the CPU backend: one table per instruction set, made from kernels.c (bodies
 * written once over simd_<isa>.h) and from decode_<isa>.c (decoders by hand). A per-ISA object
 * exports its table and nothing else, so that no wide instruction leaks into common code.
 *
 * Numerics
 * 1. A product of MUL_MAT is summed in one order per instruction set, at any number of columns,
 *    rows, threads and at any place in a batch: k is cut into chunks of MAT_CHUNK; within a chunk
 *    lane l of one vector accumulator takes elements l, l + VF, l + 2 VF, ... by vf_fma; the lanes
 *    are added as vf_sum4 says; the chunks' sums are added in order.
 * 2. Element-wise functions (exp, GLU) use separate multiplications and additions only: they give
 *    the same bits on every instruction set.
 */
#ifndef GGRUN_BACKENDS_CPU_KERNELS_H
#define GGRUN_BACKENDS_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/op.h"
#include "gguf/dtype.h"
#include "gguf/quants.h"

/* Elements of k per vector accumulator: whole blocks of every type; a register block fits L1. */
#define MAT_CHUNK 768

struct cpu_kernels {
    const char *isa;

    /*
     * y[j * ldy + i] (= or, if add, +=) sum over k of w[i * ldw + k] x[j * ldx + k], 0 < n_k <=
     * MAT_CHUNK (one chunk). Leading dimensions are in floats.
     */
    void (*mat_chunk)(const float *w, size_t ldw, int n_rows, const float *x, size_t ldx,
                      int n_cols, int n_k, float *y, size_t ldy, bool add);
    /*
     * c[i * ldc + j] += sum over t of a[i * lda + t] b[t * ldb + j], one t after the other.
     * n_b is a multiple of 16.
     */
    void (*outer)(const float *a, size_t lda, int n_a, const float *b, size_t ldb, int n_b, int n_t,
                  float *c, size_t ldc);
    /* dst[j * ldd + i] = src[i * lds + j] for i < n_i, j < n_j; both multiples of 4. */
    void (*transpose)(const float *src, size_t lds, int n_i, int n_j, float *dst, size_t ldd);
    /*
     * One chunk of a softmax: s = s * scale + mask (-inf where mask is -inf, whatever s),
     * max = larger of *max and the chunk's, s = exp(s - max). Returns the sum of s. n is a multiple
     * of 16. While everything is masked max stays -inf and s becomes 0. NaN in s gives NaN.
     */
    float (*softmax)(float *s, const float *mask, float scale, int n, float *max);
    /* y = exp(x); at most 1.5 units in the last place off; may be done in place. */
    void (*exp)(const float *x, float *y, int64_t n);
    /* y = cap * tanh(scale * x / cap), cap > 0; relative error a few units; may be done in place. */
    void (*softcap)(const float *x, float *y, float scale, float cap, int64_t n);
    /* y = f(x), f by enum unary_kind; may be done in place. NaN stays. */
    void (*unary[UNARY_COUNT])(const float *x, float *y, int64_t n);
    /* By enum glu_kind; y may be a or b. */
    void (*glu[GLU_COUNT])(const float *a, const float *b, float *y, int64_t n);
};

/*
 * Product of n_rows encoded rows with one column: y[i] = sum over k of w[i, k] x[k], same bits as
 * decoding followed by mat_chunk. Rows are `stride` bytes apart.
 */
typedef void cpu_vec_fn(const void *w, size_t stride, int n_rows, const float *x, int64_t n_k,
                        float *y);

/* What an instruction set does better than decoding by reference; NULL where it does not. */
struct cpu_quants {
    quant_decode_fn *decode[DT_COUNT]; /* same bits as quant_decoder() */
    cpu_vec_fn *vec[DT_COUNT];
    quant_encode_fn *encode_f16; /* same bits as f32_to_f16(), save for the payload of a NaN */
};

extern const struct cpu_kernels cpu_kernels_scalar;
#ifdef GGRUN_HAVE_AVX2
extern const struct cpu_kernels cpu_kernels_avx2;
extern const struct cpu_quants cpu_quants_avx2;
#endif

#endif
