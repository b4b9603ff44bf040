/*
 * Primitives of every instruction set: functions against libm in double, decoders bit for bit
 * against the reference, equal bits where kernels.h promises them; and the double functions of
 * dmath.h.
 */
#include "tests/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/dmath.h"
#include "backends/cpu/features.h"
#include "tests/backends/fixture.h"

static float from_bits(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

/* Distance of two floats near y, in units of y's last place (of the smallest normal's below it). */
static double ulps(float got, double want)
{
    int e;

    frexp(fabs(want) < 0x1p-126 ? 0x1p-126 : want, &e);
    return fabs((double)got - want) / ldexp(1, e - 24);
}

/* Every 997th float, both signs. */
static void test_exp(void **state)
{
    (void)state;
    for (int s = 0; s < cpu_isa_count(); s++) {
        const struct cpu_kernels *f = cpu_isa_at(s)->kernels;
        double worst = 0;

        if (!cpu_isa_at(s)->available())
            continue;
        for (uint64_t u = 0; u < 0x100000000; u += 997 * 8) {
            float x[8], y[8];
            for (int i = 0; i < 8; i++)
                x[i] = from_bits((uint32_t)(u + 997 * (uint64_t)i));
            f->exp(x, y, 8);
            for (int i = 0; i < 8; i++) {
                double want = exp((double)x[i]);
                if (isnan(x[i])) {
                    assert_true(isnan(y[i]));
                } else if (want > 0x1.fffffep127) {
                    assert_true(isinf(y[i]) || want < 0x1.000002p128);
                } else if (isfinite(y[i])) {
                    worst = fmax(worst, ulps(y[i], want));
                } else {
                    fail();
                }
            }
        }
        print_message("exp (%s): %.2f units in the last place\n", cpu_isa_at(s)->name, worst);
        assert_true(worst <= 1.5);
    }
}

static void assert_same(const float *got, const float *want, int n)
{
    for (int i = 0; i < n; i++)
        assert_true(got[i] == want[i] || (isnan(got[i]) && isnan(want[i])));
}

/* The same bits on every instruction set, at every length and when in place. */
static void test_same_bits(void **state)
{
    const struct cpu_kernels *first = cpu_isa_at(0)->kernels;
    float a[101], b[101], exps[101], unary[UNARY_COUNT][101], glu[GLU_COUNT][101], got[101];

    (void)state;
    for (int i = 0; i < 101; i++) {
        a[i] = fx_uniform(-20, 20) * (i % 7 == 0 ? 1e10f : 1);
        b[i] = fx_uniform(-10, 10);
    }
    a[3] = INFINITY;
    a[5] = -INFINITY;
    first->exp(a, exps, 101);
    for (int k = 0; k < UNARY_COUNT; k++)
        first->unary[k](a, unary[k], 101);
    for (int k = 0; k < GLU_COUNT; k++)
        first->glu[k](a, b, glu[k], 101);
    for (int s = 0; s < cpu_isa_count(); s++) {
        const struct cpu_kernels *f = cpu_isa_at(s)->kernels;
        if (!cpu_isa_at(s)->available())
            continue;
        for (int n = 1; n <= 101; n++) {
            f->exp(a, got, n);
            assert_same(got, exps, n);
            for (int k = 0; k < UNARY_COUNT; k++) {
                memcpy(got, a, sizeof a);
                f->unary[k](got, got, n);
                assert_same(got, unary[k], n);
            }
            for (int k = 0; k < GLU_COUNT; k++) {
                memcpy(got, b, sizeof b);
                f->glu[k](a, got, got, n);
                assert_same(got, glu[k], n);
            }
        }
    }
}

/* All bytes of random blocks at odd addresses; all halves and bfloats. */
static void test_decoders(void **state)
{
    int n_tested = 0;

    (void)state;
    for (int s = 0; s < cpu_isa_count(); s++)
        for (uint32_t t = 0; t < DT_COUNT && cpu_isa_at(s)->available(); t++) {
            quant_decode_fn *decode = cpu_isa_at(s)->quants->decode[t];
            int64_t n = 8192;
            size_t n_bytes;
            unsigned char *src;
            float *got, *want;

            if (!decode)
                continue;
            n_tested++;
            n_bytes = dtype_row_bytes((enum dtype)t, n);
            src = malloc(n_bytes + 1);
            got = malloc((size_t)n * sizeof *got);
            want = malloc((size_t)n * sizeof *want);
            for (int round = 0; round < 20; round++) {
                for (size_t i = 0; i <= n_bytes; i++)
                    src[i] = (unsigned char)fx_u32();
                if (t == DT_F16 || t == DT_BF16) /* each of the 65536 patterns */
                    for (uint32_t i = 0; i < 8192; i++)
                        memcpy(src + 1 + 2 * i,
                               &(uint16_t){(uint16_t)(i + 8192 * (uint32_t)(round % 8))}, 2);
                quant_decoder((enum dtype)t)(src + 1, want, n);
                decode(src + 1, got, n);
                for (int64_t i = 0; i < n; i++)
                    if (memcmp(got + i, want + i, 4) != 0 && !(isnan(got[i]) && isnan(want[i])))
                        fail_msg("%s %s element %lld: %.9g, expected %.9g", cpu_isa_at(s)->name,
                                 dtype_name((enum dtype)t), (long long)i, (double)got[i],
                                 (double)want[i]);
            }
            free(src);
            free(got);
            free(want);
        }
    print_message("%d decoders\n", n_tested);
}

/* Plain types of any length touch nothing behind. */
static void test_decode_tails(void **state)
{
    static const enum dtype types[] = {DT_F32, DT_F16, DT_BF16};
    float src[80], got[80];

    (void)state;
    for (int i = 0; i < 80; i++)
        src[i] = (float)i;
    for (int s = 0; s < cpu_isa_count(); s++)
        for (int t = 0; t < 3; t++)
            for (int64_t n = 0; n < 70; n++) {
                quant_decode_fn *decode = cpu_isa_at(s)->quants->decode[types[t]];
                uint16_t bits[160];
                if (!decode || !cpu_isa_at(s)->available())
                    continue;
                quant_encoder(types[t])(src, bits, 80);
                memset(got, 0x5a, sizeof got);
                decode(bits, got, n);
                for (int64_t i = 0; i < n; i++)
                    assert_true(got[i] == (float)i);
                for (int64_t i = n; i < 80; i++)
                    assert_memory_equal(got + i, "ZZZZ", 4);
            }
}

static void test_encode_f16(void **state)
{
    (void)state;
    for (int s = 0; s < cpu_isa_count(); s++) {
        quant_encode_fn *encode = cpu_isa_at(s)->quants->encode_f16;
        if (!encode || !cpu_isa_at(s)->available())
            continue;
        for (uint64_t u = 0; u < 0x100000000; u += 2999 * 11) {
            float x[11];
            uint16_t h[12] = {0};
            for (int i = 0; i < 11; i++)
                x[i] = from_bits((uint32_t)(u + 2999 * (uint64_t)i));
            encode(x, h, 11);
            assert_int_equal(h[11], 0);
            for (int i = 0; i < 11; i++)
                assert_true(h[i] == f32_to_f16(x[i]) || (isnan(x[i]) && isnan(f16_to_f32(h[i]))));
        }
    }
}

/* Error of a result against the function in long double. */
static void test_dmath(void **state)
{
    double worst_sin = 0, worst_exp = 0, worst_log = 0, s, c;

    (void)state;
    for (int i = 0; i < 2000000; i++) {
        double range = ldexp(1, i % 32 - 1),
               x = (double)fx_uniform(-1, 1) * range + (double)fx_u32() * 0x1p-52;
        cpu_sincos(x, &s, &c);
        worst_sin = fmax(worst_sin, fabs((double)(sinl((long double)x) - (long double)s)));
        worst_sin = fmax(worst_sin, fabs((double)(cosl((long double)x) - (long double)c)));
    }
    for (int i = 0; i < 200000; i++) {
        double x = (double)fx_uniform(-699, 699), y = exp((double)fx_uniform(-30, 30));
        worst_exp = fmax(worst_exp, fabs((double)(cpu_exp(x) / expl((long double)x) - 1)));
        worst_log = fmax(worst_log, fabs((double)((cpu_log(y) - logl((long double)y)) /
                                                  fmaxl(fabsl(logl((long double)y)), 1e-3L))));
    }
    print_message("sin, cos %.1e  exp %.1e  log %.1e\n", worst_sin, worst_exp, worst_log);
    assert_true(worst_sin < 1e-15 && worst_exp < 1e-15 && worst_log < 1e-15);
    for (int i = 0; i < 4; i++) {
        cpu_sincos((double[]){NAN, INFINITY, -INFINITY, 1e300}[i], &s, &c);
        assert_true(isnan(s) && isnan(c));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_decoders),   cmocka_unit_test(test_decode_tails),
        cmocka_unit_test(test_encode_f16), cmocka_unit_test(test_dmath),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
