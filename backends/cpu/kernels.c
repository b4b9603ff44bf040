/*
 * Bodies of the hot primitives, compiled once per instruction set: -DISA=<isa> picks simd_<isa>.h
 * and names the table. See kernels.h for what each computes.
 */
#include "backends/cpu/kernels.h"

#include <math.h>

#define CAT_(a, b) a##b
#define CAT(a, b)  CAT_(a, b)
#define STR_(a)    #a
#define STR(a)     STR_(a)

/* clang-format off */
#include STR(CAT(backends/cpu/simd_, ISA).h)
/* clang-format on */

/* Bodies with constant sizes must melt into their callers: accumulators live in registers. */
#define MELT static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* ---- products ---- */

#define MAT_R 4 /* rows and columns of a register block: 12 accumulators, 4 + 3 operands, */
#define MAT_C 3 /* and 12 fused multiply-adds in flight hide their latency */

/*
 * A block of r x c results, r <= MAT_R, c <= MAT_C constants; acc[i][j] belongs to one result
 * alone.
 */
MELT void mat_block(int r, int c, const float *w, size_t ldw, const float *x, size_t ldx, int n_k,
                    float *y, size_t ldy, bool add)
{
    vf acc[MAT_R][MAT_C], xs[MAT_C];
    int k = 0;

    UNROLL
    for (int i = 0; i < MAT_R * MAT_C; i++)
        acc[i / MAT_C][i % MAT_C] = vf_zero();
    for (; k + VF <= n_k; k += VF) {
        UNROLL
        for (int j = 0; j < c; j++)
            xs[j] = vf_load(x + (size_t)j * ldx + k);
        UNROLL
        for (int i = 0; i < r; i++) {
            vf ws = vf_load(w + (size_t)i * ldw + k);
            UNROLL
            for (int j = 0; j < c; j++)
                acc[i][j] = vf_fma(ws, xs[j], acc[i][j]);
        }
    }
    if (k < n_k) {
        for (int j = 0; j < c; j++)
            xs[j] = vf_load_n(x + (size_t)j * ldx + k, n_k - k);
        UNROLL
        for (int i = 0; i < r; i++) {
            vf ws = vf_load_n(w + (size_t)i * ldw + k, n_k - k);
            UNROLL
            for (int j = 0; j < c; j++)
                acc[i][j] = vf_fma(ws, xs[j], acc[i][j]);
        }
    }
    UNROLL
    for (int j = 0; j < c; j++) {
        float sum[MAT_R], *out = y + (size_t)j * ldy;
        vf_sum4(acc[0][j], acc[1][j], acc[2][j], acc[3][j], sum);
        UNROLL
        for (int i = 0; i < r; i++)
            out[i] = add ? out[i] + sum[i] : sum[i];
    }
}

/* All rows against c columns. */
MELT void mat_cols(int c, const float *w, size_t ldw, int n_rows, const float *x, size_t ldx,
                   int n_k, float *y, size_t ldy, bool add)
{
    int i = 0;

    for (; i + MAT_R <= n_rows; i += MAT_R)
        mat_block(MAT_R, c, w + (size_t)i * ldw, ldw, x, ldx, n_k, y + i, ldy, add);
    for (; i < n_rows; i++)
        mat_block(1, c, w + (size_t)i * ldw, ldw, x, ldx, n_k, y + i, ldy, add);
}

static void mat_chunk(const float *w, size_t ldw, int n_rows, const float *x, size_t ldx,
                      int n_cols, int n_k, float *y, size_t ldy, bool add)
{
    int j = 0;

    for (; j + MAT_C <= n_cols; j += MAT_C)
        mat_cols(MAT_C, w, ldw, n_rows, x + (size_t)j * ldx, ldx, n_k, y + (size_t)j * ldy, ldy,
                 add);
    for (; j < n_cols; j++)
        mat_cols(1, w, ldw, n_rows, x + (size_t)j * ldx, ldx, n_k, y + (size_t)j * ldy, ldy, add);
}

/* r rows of c (r <= 6 constant), two vectors wide. */
MELT void outer_block(int r, const float *a, size_t lda, const float *b, size_t ldb, int n_t,
                      float *c, size_t ldc)
{
    vf acc[6][2];

    UNROLL
    for (int i = 0; i < r; i++) {
        acc[i][0] = vf_load(c + (size_t)i * ldc);
        acc[i][1] = vf_load(c + (size_t)i * ldc + VF);
    }
    for (int t = 0; t < n_t; t++) {
        vf b0 = vf_load(b + (size_t)t * ldb), b1 = vf_load(b + (size_t)t * ldb + VF);
        UNROLL
        for (int i = 0; i < r; i++) {
            vf s = vf_set1(a[(size_t)i * lda + (size_t)t]);
            acc[i][0] = vf_fma(s, b0, acc[i][0]);
            acc[i][1] = vf_fma(s, b1, acc[i][1]);
        }
    }
    UNROLL
    for (int i = 0; i < r; i++) {
        vf_store(c + (size_t)i * ldc, acc[i][0]);
        vf_store(c + (size_t)i * ldc + VF, acc[i][1]);
    }
}

static void outer(const float *a, size_t lda, int n_a, const float *b, size_t ldb, int n_b, int n_t,
                  float *c, size_t ldc)
{
    for (int j = 0; j < n_b; j += 2 * VF) {
        int i = 0;
        for (; i + 6 <= n_a; i += 6)
            outer_block(6, a + (size_t)i * lda, lda, b + j, ldb, n_t, c + (size_t)i * ldc + j, ldc);
        for (; i + 3 <= n_a; i += 3)
            outer_block(3, a + (size_t)i * lda, lda, b + j, ldb, n_t, c + (size_t)i * ldc + j, ldc);
        for (; i < n_a; i++)
            outer_block(1, a + (size_t)i * lda, lda, b + j, ldb, n_t, c + (size_t)i * ldc + j, ldc);
    }
}

/*
 * Squares of 4 x 4, so that both sides are read and written in runs; compilers make shuffles of it.
 */
static void transpose(const float *src, size_t lds, int n_i, int n_j, float *dst, size_t ldd)
{
    typedef float v4 __attribute__((vector_size(16), aligned(4)));
    typedef int32_t v4i __attribute__((vector_size(16)));

    for (int i = 0; i < n_i; i += 4)
        for (int j = 0; j < n_j; j += 4) {
            const float *s = src + (size_t)i * lds + j;
            float *d = dst + (size_t)j * ldd + i;
            v4 a = *(const v4 *)s, b = *(const v4 *)(s + lds);
            v4 c = *(const v4 *)(s + 2 * lds), e = *(const v4 *)(s + 3 * lds);
#if defined(__clang__)
            v4 ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5),
               ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
            v4 ce0 = __builtin_shufflevector(c, e, 0, 4, 1, 5),
               ce1 = __builtin_shufflevector(c, e, 2, 6, 3, 7);
            *(v4 *)d = __builtin_shufflevector(ab0, ce0, 0, 1, 4, 5);
            *(v4 *)(d + ldd) = __builtin_shufflevector(ab0, ce0, 2, 3, 6, 7);
            *(v4 *)(d + 2 * ldd) = __builtin_shufflevector(ab1, ce1, 0, 1, 4, 5);
            *(v4 *)(d + 3 * ldd) = __builtin_shufflevector(ab1, ce1, 2, 3, 6, 7);
            (void)sizeof(v4i);
#else
            v4 ab0 = __builtin_shuffle(a, b, (v4i){0, 4, 1, 5}),
               ab1 = __builtin_shuffle(a, b, (v4i){2, 6, 3, 7});
            v4 ce0 = __builtin_shuffle(c, e, (v4i){0, 4, 1, 5}),
               ce1 = __builtin_shuffle(c, e, (v4i){2, 6, 3, 7});
            *(v4 *)d = __builtin_shuffle(ab0, ce0, (v4i){0, 1, 4, 5});
            *(v4 *)(d + ldd) = __builtin_shuffle(ab0, ce0, (v4i){2, 3, 6, 7});
            *(v4 *)(d + 2 * ldd) = __builtin_shuffle(ab1, ce1, (v4i){0, 1, 4, 5});
            *(v4 *)(d + 3 * ldd) = __builtin_shuffle(ab1, ce1, (v4i){2, 3, 6, 7});
#endif
        }
}

/* ---- functions ---- */

/*
 * exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln(2) / 2 with ln 2 in two parts (n times the
 * first is exact), exp(r) by its Taylor series to r^7 (next term below 2^-27). 2^n is applied in
 * two halves, so that results are right down to the subnormals; from 89 up they are infinite, below
 * -105 zero. NaN stays.
 */
struct exp_parts {
    vf p; /* exp(r) - 1, small where r is */
    vi n;
};

static inline struct exp_parts vf_exp_parts(vf x)
{
    const vf shift = vf_set1(0x1.8p23f); /* adding it leaves the nearest integer in the low bits */
    vf t, n, r, p;

    x = vf_max(vf_set1(-105.0f), vf_min(vf_set1(89.0f), x));
    t = vf_add(vf_mul(x, vf_set1(0x1.715476p+0f)), shift); /* 1 / ln 2 */
    n = vf_sub(t, shift);
    r = vf_sub(x, vf_mul(n, vf_set1(0x1.63p-1f)));       /* ln 2, upper 9 bits */
    r = vf_sub(r, vf_mul(n, vf_set1(-0x1.bd0106p-13f))); /* ln 2, the rest */
    p = vf_set1(1.0f / 5040);
    p = vf_add(vf_mul(p, r), vf_set1(1.0f / 720));
    p = vf_add(vf_mul(p, r), vf_set1(1.0f / 120));
    p = vf_add(vf_mul(p, r), vf_set1(1.0f / 24));
    p = vf_add(vf_mul(p, r), vf_set1(1.0f / 6));
    p = vf_add(vf_mul(p, r), vf_set1(0.5f));
    p = vf_add(vf_mul(vf_mul(r, r), p), r);
    return (struct exp_parts){p, vi_sub(vf_bits(t), vf_bits(shift))};
}

static inline vf vf_exp(vf x)
{
    struct exp_parts e = vf_exp_parts(x);
    vf p = vf_add(e.p, vf_set1(1.0f));
    vi half = vi_half(e.n);

    return vf_mul(vf_mul(p, vi_pow2(half)), vi_pow2(vi_sub(e.n, half)));
}

/*
 * tanh(x) = t / (t + 2), t = exp(2 x) - 1 = 2^n (exp(r) - 1) + (2^n - 1): nothing cancels near 0, where
 * n is 0. From |x| = 20 up the result is 1 in float, and limits keep 2^n in range. NaN stays.
 */
static inline vf vf_tanh(vf x)
{
    vf x2 = vf_max(vf_set1(-40.0f), vf_min(vf_set1(40.0f), vf_add(x, x)));
    struct exp_parts e = vf_exp_parts(x2);
    vf scale = vi_pow2(e.n);
    vf t = vf_add(vf_mul(scale, e.p), vf_sub(scale, vf_set1(1.0f)));

    return vf_div(t, vf_add(t, vf_set1(2.0f)));
}

static void exp_f32(const float *x, float *y, int64_t n)
{
    int64_t i = 0;

    for (; i + VF <= n; i += VF)
        vf_store(y + i, vf_exp(vf_load(x + i)));
    if (i < n)
        vf_store_n(y + i, vf_exp(vf_load_n(x + i, (int)(n - i))), (int)(n - i));
}

static void softcap(const float *x, float *y, float scale, float cap, int64_t n)
{
    const vf s = vf_set1(scale / cap), c = vf_set1(cap);
    int64_t i = 0;

    for (; i + VF <= n; i += VF)
        vf_store(y + i, vf_mul(vf_tanh(vf_mul(vf_load(x + i), s)), c));
    if (i < n) {
        int m = (int)(n - i);
        vf_store_n(y + i, vf_mul(vf_tanh(vf_mul(vf_load_n(x + i, m), s)), c), m);
    }
}

static inline vf vf_silu(vf a)
{
    return vf_div(a, vf_add(vf_set1(1.0f), vf_exp(vf_sub(vf_zero(), a))));
}

/*
 * GELU, tanh form. a/2 (1 + tanh u) = a / (1 + exp(-2 u)): the same function, without the
 * cancellation in 1 + tanh u where u is negative. u = sqrt(2/pi) (a + 0.044715 a^3).
 */
static inline vf vf_gelu(vf a)
{
    vf cube = vf_mul(vf_mul(vf_mul(a, a), a), vf_set1(0.044715f));
    vf u2 = vf_mul(vf_add(a, cube), vf_set1(-1.5957691216057308f)); /* -2 sqrt(2/pi) */

    return vf_div(a, vf_add(vf_set1(1.0f), vf_exp(u2)));
}

static inline vf vf_sigmoid(vf a)
{
    return vf_div(vf_set1(1.0f), vf_add(vf_set1(1.0f), vf_exp(vf_sub(vf_zero(), a))));
}

/* vf_max gives its second operand where either is NaN. */
static inline vf vf_relu(vf a)
{
    return vf_max(vf_zero(), a);
}

static inline vf vf_relu_sqr(vf a)
{
    a = vf_relu(a);
    return vf_mul(a, a);
}

/*
 * max(x, 0) + log(1 + u), u = exp(-|x|). The logarithm is 2 artanh(z), z = u / (2 + u) <= 1/3, by its
 * series to z^15 (the next term is below 2^-29 of the sum). NaN stays.
 */
static inline vf vf_softplus(vf x)
{
    vf u = vf_exp(vf_min(vf_sub(vf_zero(), x), x));
    vf z = vf_div(u, vf_add(u, vf_set1(2.0f))), z2 = vf_mul(z, z), p = vf_set1(1.0f / 15);

    p = vf_add(vf_mul(p, z2), vf_set1(1.0f / 13));
    p = vf_add(vf_mul(p, z2), vf_set1(1.0f / 11));
    p = vf_add(vf_mul(p, z2), vf_set1(1.0f / 9));
    p = vf_add(vf_mul(p, z2), vf_set1(1.0f / 7));
    p = vf_add(vf_mul(p, z2), vf_set1(1.0f / 5));
    p = vf_add(vf_mul(p, z2), vf_set1(1.0f / 3));
    p = vf_add(vf_mul(vf_mul(p, z2), z), z);
    return vf_add(vf_max(vf_zero(), x), vf_add(p, p));
}

#define UNARY(f)                                                                                   \
    static void f(const float *x, float *y, int64_t n)                                             \
    {                                                                                              \
        int64_t i = 0;                                                                             \
                                                                                                   \
        for (; i + VF <= n; i += VF)                                                               \
            vf_store(y + i, vf_##f(vf_load(x + i)));                                               \
        if (i < n)                                                                                 \
            vf_store_n(y + i, vf_##f(vf_load_n(x + i, (int)(n - i))), (int)(n - i));               \
    }

UNARY(silu)
UNARY(gelu)
UNARY(relu)
UNARY(relu_sqr)
UNARY(sigmoid)
UNARY(softplus)

static inline vf vf_swiglu(vf a, vf b)
{
    return vf_mul(vf_silu(a), b);
}

static inline vf vf_geglu(vf a, vf b)
{
    return vf_mul(vf_gelu(a), b);
}

/* NaN stays: vf_min and vf_max give their second operand where either is NaN. */
static inline vf vf_swiglu_oai(vf a, vf b)
{
    const vf one = vf_set1(1.0f), limit = vf_set1(7.0f);

    a = vf_min(limit, a);
    b = vf_max(vf_set1(-7.0f), vf_min(limit, b));
    a = vf_div(a, vf_add(one, vf_exp(vf_mul(a, vf_set1(-1.702f)))));
    return vf_mul(a, vf_add(b, one));
}

#define GLU(f)                                                                                     \
    static void f(const float *a, const float *b, float *y, int64_t n)                             \
    {                                                                                              \
        int64_t i = 0;                                                                             \
                                                                                                   \
        for (; i + VF <= n; i += VF)                                                               \
            vf_store(y + i, vf_##f(vf_load(a + i), vf_load(b + i)));                               \
        if (i < n) {                                                                               \
            int m = (int)(n - i);                                                                  \
            vf_store_n(y + i, vf_##f(vf_load_n(a + i, m), vf_load_n(b + i, m)), m);                \
        }                                                                                          \
    }

GLU(swiglu)
GLU(swiglu_oai)
GLU(geglu)

static float softmax(float *s, const float *mask, float scale, int n, float *max)
{
    const vf minus_inf = vf_set1(-INFINITY), vscale = vf_set1(scale);
    vf vmax = minus_inf, vm, sum = vf_zero();
    float lane[VF], m = *max, out[4];

    for (int i = 0; i < n; i += VF) {
        vf v = vf_mul(vf_load(s + i), vscale), b = vf_load(mask + i);
        v = vf_if_eq(b, minus_inf, b, vf_add(v, b));
        vf_store(s + i, v);
        vmax = vf_max(v, vmax); /* a NaN is passed over here, and found again below */
    }
    vf_store(lane, vmax);
    for (int l = 0; l < VF; l++)
        m = lane[l] > m ? lane[l] : m;
    *max = m;
    vm = vf_set1(m == -INFINITY ? 0 : m);
    for (int i = 0; i < n; i += VF) {
        vf p = vf_exp(vf_sub(vf_load(s + i), vm));
        vf_store(s + i, p);
        sum = vf_add(sum, p);
    }
    vf_sum4(sum, vf_zero(), vf_zero(), vf_zero(), out);
    return out[0];
}

const struct cpu_kernels CAT(cpu_kernels_, ISA) = {
    .isa = STR(ISA),
    .mat_chunk = mat_chunk,
    .outer = outer,
    .transpose = transpose,
    .softmax = softmax,
    .exp = exp_f32,
    .softcap = softcap,
    .unary = {[UNARY_SILU] = silu,
              [UNARY_GELU] = gelu,
              [UNARY_RELU] = relu,
              [UNARY_RELU_SQR] = relu_sqr,
              [UNARY_SIGMOID] = sigmoid,
              [UNARY_SOFTPLUS] = softplus},
    .glu = {[GLU_SWIGLU] = swiglu, [GLU_SWIGLU_OAI] = swiglu_oai, [GLU_GEGLU] = geglu},
};
