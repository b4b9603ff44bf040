/*
 * Decoders and encoders against the goldens of the `gguf` Python package
 * (scripts/make-golden-quants), and against formulas written here where it has none.
 */
#include "tests/unit.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/codebook.h"
#include "gguf/quants.h"

#define N_MAX 4096

static const enum dtype all_types[] = {
#define DTYPE(NAME, number, name, block, layout, bytes) DT_##NAME,
#include "gguf/dtype.def"
};
#define N_TYPES (sizeof all_types / sizeof all_types[0])

/* A generator of our own, so that a failure can be repeated anywhere. */
static uint64_t seed = 12345;
static uint32_t rnd(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}
static float rnd_float(void)
{
    return (float)(rnd() % 200001) / 100000 - 1;
}

/* File `name` of tests/data/quants in lower case, or NULL. */
static unsigned char *golden(const char *name, const char *ending, size_t *n)
{
    const char *folder = getenv("GGRUN_TEST_DATA");
    unsigned char *p = malloc(1 << 20);
    char path[1024], low[32];
    size_t i = 0;
    FILE *f;

    for (; name[i]; i++)
        low[i] = (char)tolower((unsigned char)name[i]);
    low[i] = 0;
    snprintf(path, sizeof path, "%s/quants/%s%s", folder ? folder : "tests/data", low, ending);
    f = fopen(path, "rb");
    if (!f) {
        free(p);
        return NULL;
    }
    *n = fread(p, 1, 1 << 20, f);
    fclose(f);
    return p;
}

static void assert_same_floats(const char *what, const float *got, const unsigned char *want,
                               int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float w;
        memcpy(&w, want + 4 * i, 4);
        if (isnan(w) ? !isnan(got[i]) : memcmp(&w, &got[i], 4) != 0)
            fail_msg("%s: element %d is %.9g, expected %.9g", what, (int)i, (double)got[i],
                     (double)w);
    }
}

static void test_decode_golden(void **state)
{
    int n_found = 0;

    (void)state;
    for (size_t k = 0; k < N_TYPES; k++) {
        const struct dtype_info *info = dtype_info(all_types[k]);
        size_t size, n_blocks;
        unsigned char *p = golden(info->name, ".dec", &size), *odd;
        float got[N_MAX];

        if (!p)
            continue;
        n_found++;
        n_blocks = size / (info->bytes + 4 * info->block);
        assert_int_equal(n_blocks * (info->bytes + 4 * info->block), size);
        assert_true(n_blocks >= 8 && n_blocks * info->block <= N_MAX);
        quant_decoder(all_types[k])(p, got, (int64_t)(n_blocks * info->block));
        assert_same_floats(info->name, got, p + n_blocks * info->bytes,
                           (int64_t)(n_blocks * info->block));
        /* the same at an odd address */
        odd = malloc(n_blocks * info->bytes + 1);
        memcpy(odd + 1, p, n_blocks * info->bytes);
        memset(got, 0, sizeof got);
        quant_decoder(all_types[k])(odd + 1, got, (int64_t)(n_blocks * info->block));
        assert_same_floats(info->name, got, p + n_blocks * info->bytes,
                           (int64_t)(n_blocks * info->block));
        free(odd);
        free(p);
    }
    assert_int_equal(n_found, 23); /* every type that the package decodes, but F32, F16, BF16 */
}

static void test_encode_golden(void **state)
{
    static const enum dtype types[] = {DT_BF16, DT_Q4_0, DT_Q4_1, DT_Q5_0,
                                       DT_Q5_1, DT_Q8_0, DT_MXFP4};

    (void)state;
    for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) {
        const struct dtype_info *info = dtype_info(types[k]);
        size_t size, n_blocks;
        unsigned char *p = golden(info->name, ".enc", &size), got[2 * N_MAX];
        float x[N_MAX];

        assert_non_null(p);
        n_blocks = size / (info->bytes + 4 * info->block);
        memcpy(x, p, n_blocks * info->block * 4);
        quant_encoder(types[k])(x, got, (int64_t)(n_blocks * info->block));
        for (size_t i = 0; i < n_blocks * info->bytes; i++) {
            if (got[i] != p[n_blocks * info->block * 4 + i])
                fail_msg("%s: block %d, byte %d is 0x%02x, expected 0x%02x", info->name,
                         (int)(i / info->bytes), (int)(i % info->bytes), got[i],
                         p[n_blocks * info->block * 4 + i]);
        }
        free(p);
    }
}

/* ---- halves: all values against their definition ---- */

static double half_value(unsigned h)
{
    double sign = h & 0x8000 ? -1 : 1;
    int exp = h >> 10 & 31, man = h & 1023;

    if (exp == 31)
        return man ? NAN : sign * INFINITY;
    return sign * (exp ? ldexp(1024 + man, exp - 25) : ldexp(man, -24));
}

static void test_f16_all(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        double v = half_value(h);
        float f = f16_to_f32((uint16_t)h);

        if (isnan(v)) {
            assert_true(isnan(f));
            assert_true(isnan(f16_to_f32(f32_to_f16(f))));
            continue;
        }
        assert_true((double)f == v && !!signbit(f) == !!signbit(v));
        assert_int_equal(f32_to_f16(f), h);
    }
}

/* Between two neighbouring halves: below the middle, the middle (to the even one), above it. */
static void test_f16_rounding(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7c00; h++) {
        double lo = half_value(h), hi = h == 0x7bff ? 65536 : half_value(h + 1);
        float mid = (float)((lo + hi) / 2);
        unsigned even = h & 1 ? h + 1 : h;

        assert_true((double)mid == (lo + hi) / 2);
        assert_int_equal(f32_to_f16(mid), even);
        assert_int_equal(f32_to_f16(-mid), even | 0x8000);
        assert_int_equal(f32_to_f16(nextafterf(mid, 0)), h);
        assert_int_equal(f32_to_f16(nextafterf(mid, INFINITY)), h + 1);
    }
    assert_int_equal(f32_to_f16(1e30f), 0x7c00);
    assert_int_equal(f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(f32_to_f16(0x1p-149f), 0);
    assert_int_equal(f32_to_f16(-0x1p-149f), 0x8000);
    /* a NaN whose payload lies in the low bits only must not become infinity */
    uint32_t u = 0x7f800001;
    float f;
    memcpy(&f, &u, 4);
    assert_true(isnan(f16_to_f32(f32_to_f16(f))));
    assert_true(isnan(bf16_to_f32(f32_to_bf16(f))));
}

static void test_bf16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        uint32_t want = h << 16, u;
        float f = bf16_to_f32((uint16_t)h);

        memcpy(&u, &f, 4);
        if (isnan(f)) {
            assert_true((want & 0x7fffffff) > 0x7f800000);
            assert_true(isnan(bf16_to_f32(f32_to_bf16(f))));
            continue;
        }
        assert_int_equal(u, want);
        assert_int_equal(f32_to_bf16(f), h);
        if ((h & 0x7fff) >= 0x7f80)
            continue;
        u = want | 0x8000; /* half-way to the next: to the even one */
        memcpy(&f, &u, 4);
        assert_int_equal(f32_to_bf16(f), h + (h & 1));
        u = want | 0x7fff;
        memcpy(&f, &u, 4);
        assert_int_equal(f32_to_bf16(f), h);
        u = want | 0x8001;
        memcpy(&f, &u, 4);
        assert_int_equal(f32_to_bf16(f), h + 1);
    }
}

/* ---- types without a golden: their formula ---- */

static void put_half(unsigned char *p, float f)
{
    uint16_t h = f32_to_f16(f);

    memcpy(p, &h, 2);
}

static void test_formulas(void **state)
{
    unsigned char b[512];
    float y[256];

    (void)state;
    for (int round = 0; round < 50; round++) {
        float d = (float)((int)(rnd() % 2048) - 1024) / 4096; /* exact in half precision */
        float d32 = rnd_float();

        for (size_t i = 0; i < sizeof b; i++)
            b[i] = (unsigned char)rnd();
        put_half(b, d);
        quant_decoder(DT_Q8_1)(b, y, 32); /* d, s, 32 signed bytes */
        for (int i = 0; i < 32; i++)
            assert_true(y[i] == d * (float)(signed char)b[4 + i]);
        quant_decoder(DT_Q1_0)(b, y, 128); /* d, 128 signs, lowest bit first */
        for (int i = 0; i < 128; i++)
            assert_true(y[i] == ((b[2 + i / 8] & 1 << i % 8) ? d : -d));
        quant_decoder(DT_Q2_0)(b, y, 64); /* d, 64 of two bits, lowest first: -1 0 1 2 */
        for (int i = 0; i < 64; i++)
            assert_true(y[i] == d * (float)(b[2 + i / 4] / (1 << 2 * (i % 4)) % 4 - 1));
        memcpy(b, &d32, 4);
        quant_decoder(DT_Q8_K)(b, y, 256); /* f32 d, 256 signed bytes, sums */
        for (int i = 0; i < 256; i++)
            assert_true(y[i] == d32 * (float)(signed char)b[4 + i]);
    }
}

static void test_integers(void **state)
{
    static const float in[] = {0,
                               0.5f,
                               1.5f,
                               -2.5f,
                               126.6f,
                               127.5f,
                               -128.6f,
                               1e20f,
                               -1e20f,
                               NAN,
                               32767.4f,
                               2147483648.0f,
                               9223372036854775808.0f,
                               -INFINITY};
    static const int8_t i8[] = {0, 0, 2, -2, 127, 127, -128, 127, -128, 0, 127, 127, 127, -128};
    static const int16_t i16[] = {0,     0,      2, -2,    127,   128,   -129,
                                  32767, -32768, 0, 32767, 32767, 32767, -32768};
    static const int32_t i32[] = {0,         0,         2, -2,    127,       128,       -129,
                                  INT32_MAX, INT32_MIN, 0, 32767, INT32_MAX, INT32_MAX, INT32_MIN};
    static const int64_t i64[] = {0,         0,         2, -2,    127,        128,       -129,
                                  INT64_MAX, INT64_MIN, 0, 32767, 2147483648, INT64_MAX, INT64_MIN};
    static const struct {
        enum dtype t;
        const void *want;
        size_t size;
    } cases[] = {{DT_I8, i8, 1}, {DT_I16, i16, 2}, {DT_I32, i32, 4}, {DT_I64, i64, 8}};
    enum { N = sizeof in / sizeof in[0] };
    unsigned char got[8 * N + 1];
    float back[N];

    (void)state;
    for (size_t k = 0; k < 4; k++) {
        quant_encoder(cases[k].t)(in, got + 1, N);
        assert_memory_equal(got + 1, cases[k].want, N * cases[k].size);
        quant_decoder(cases[k].t)(got + 1, back, N);
        for (size_t i = 0; i < N; i++) {
            double want = k == 0 ? i8[i] : k == 1 ? i16[i] : k == 2 ? i32[i] : (double)i64[i];
            assert_true(back[i] == (float)want);
        }
    }
    quant_encoder(DT_F64)(in, got + 1, N);
    quant_decoder(DT_F64)(got + 1, back, N);
    for (size_t i = 0; i < N; i++)
        assert_true(isnan(in[i]) ? isnan(back[i]) : back[i] == in[i]);
}

/* ---- encoders: round trip within half a step of the type's scale ---- */

/* Largest error allowed for a block whose elements lie within [-max, max]. Steps: 4 bits of a
 * signed scale 1/8, of a range 2/15; 5 bits 1/16, 2/31; 8 bits 1/127; half of it for rounding, a
 * bit more for the rounding of the scale; the signed ones lose a whole step at the far end; the K
 * types round their scales as well; e2m1 has steps of 2 of 8 and clips 8 to 6. */
static const struct {
    enum dtype t;
    double bound;
} bounds[] = {
    {DT_F32, 0},
    {DT_F64, 0},
    {DT_F16, 1.0 / 2048},
    {DT_BF16, 1.0 / 256},
    {DT_Q4_0, 1.0 / 8 * 1.01},
    {DT_Q4_1, 1.0 / 15 * 1.02},
    {DT_Q5_0, 1.0 / 16 * 1.01},
    {DT_Q5_1, 1.0 / 31 * 1.03},
    {DT_Q8_0, 0.5 / 127 * 1.2},
    {DT_Q8_1, 0.5 / 127 * 1.2},
    {DT_Q4_K, 1.0 / 15 * 1.6},
    {DT_Q6_K, 1.0 / 32 * 1.1},
    {DT_MXFP4, 1.0 / 4},
};

static void test_round_trip(void **state)
{
    float x[256], y[256];
    unsigned char b[2048];

    (void)state;
    for (size_t k = 0; k < sizeof bounds / sizeof bounds[0]; k++) {
        int n_big = 0;
        for (int round = 0; round < 200; round++) {
            float scale = ldexpf(1, (int)(rnd() % 12) - 1), max = 0; /* scales are normal halves */
            double err = 0;

            for (int i = 0; i < 256; i++)
                x[i] = scale * rnd_float() * (round % 3 ? 1.0f : fabsf(rnd_float()));
            if (round % 4 == 1)
                memset(x, 0, 128);
            for (int i = 0; i < 256 && round % 5 == 2; i++) /* all on one side of zero */
                x[i] = (round % 10 == 2 ? 1 : -1) * (fabsf(x[i]) + scale);
            for (int i = 0; i < 256; i++)
                max = fmaxf(max, fabsf(x[i]));
            quant_encoder(bounds[k].t)(x, b, 256);
            quant_decoder(bounds[k].t)(b, y, 256);
            for (int i = 0; i < 256; i++)
                err = fmax(err, fabs((double)y[i] - (double)x[i]));
            if (err > bounds[k].bound * (double)max)
                fail_msg("%s: error %g of %g, round %d", dtype_name(bounds[k].t), err, (double)max,
                         round);
            n_big += err > bounds[k].bound * (double)max / 4;
        }
        /* a bound that is never come near proves nothing */
        assert_true(n_big > 0 || bounds[k].bound == 0);
    }
}

/* q8_1: s is d times the sum of the bytes. */
static void test_q8_1_sum(void **state)
{
    float x[32];
    unsigned char b[36];

    (void)state;
    for (int round = 0; round < 100; round++) {
        uint16_t s;
        float max = 0;
        int sum = 0;
        for (int i = 0; i < 32; i++) {
            x[i] = rnd_float();
            max = fmaxf(max, fabsf(x[i]));
        }
        quant_encoder(DT_Q8_1)(x, b, 32);
        for (int i = 0; i < 32; i++)
            sum += (signed char)b[4 + i];
        memcpy(&s, b + 2, 2);
        assert_true(fabs((double)f16_to_f32(s) - sum * (double)max / 127) <=
                    fabs(sum * (double)max / 127) / 1024 + 1e-6);
    }
}

/* Zeros stay zeros; NaN and infinity neither crash nor vanish (integers and mxfp4 have none). */
static void test_special_elements(void **state)
{
    static const float special[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-42f};
    float x[256], y[256];
    unsigned char b[2048];

    (void)state;
    for (size_t k = 0; k < N_TYPES; k++) {
        enum dtype t = all_types[k];
        quant_encode_fn *encode = quant_encoder(t);

        if (!encode)
            continue;
        memset(x, 0, sizeof x);
        encode(x, b, 256);
        quant_decoder(t)(b, y, 256);
        for (int i = 0; i < 256; i++)
            assert_true(y[i] == 0);
        for (size_t s = 0; s < sizeof special / sizeof special[0]; s++) {
            for (int i = 0; i < 256; i++)
                x[i] = rnd_float();
            x[37] = special[s];
            encode(x, b, 256);
            quant_decoder(t)(b, y, 256);
            if (!isfinite(special[s]) && t != DT_MXFP4 && !(t >= DT_I8 && t <= DT_I64))
                assert_false(isfinite(y[37]));
        }
    }
}

/* Every decoder takes any bytes, and writes n floats, no more. */
static void test_any_bytes(void **state)
{
    unsigned char b[4096];
    float y[513];

    (void)state;
    for (size_t k = 0; k < N_TYPES; k++) {
        for (int round = 0; round < 100; round++) {
            for (size_t i = 0; i < sizeof b; i++)
                b[i] = round == 0 ? 0xff : (unsigned char)rnd();
            y[512] = 42;
            quant_decoder(all_types[k])(b, y, 512);
            assert_true(y[512] == 42);
            quant_decoder(all_types[k])(b, y, 0);
        }
    }
}

/* Every point of every grid: levels as bytes, grid after grid. */
static void test_codebook(void **state)
{
    static const struct {
        const uint16_t *grid;
        int n_points, n_elem;
    } grids[] = {{iq2_xxs_grid, 256, 8}, {iq2_xs_grid, 512, 8}, {iq2_s_grid, 1024, 8},
                 {iq3_xxs_grid, 256, 4}, {iq3_s_grid, 512, 4},  {iq1_s_grid, 2048, 8}};
    size_t n, at = 0;
    unsigned char *p = golden("grids", ".bin", &n);

    (void)state;
    assert_non_null(p);
    for (int g = 0; g < 6; g++) {
        for (int i = 0; i < grids[g].n_points * grids[g].n_elem; i++) {
            uint16_t point = grids[g].grid[i / grids[g].n_elem];
            int k = i % grids[g].n_elem;
            int level = g < 3    ? iq2_level(point, k)
                        : g == 3 ? iq3_xxs_level(point, k)
                        : g == 4 ? iq3_s_level(point, k)
                                 : iq1_level(point, k);
            assert_int_equal(level, (signed char)p[at++]);
        }
    }
    assert_int_equal(at, n);
    free(p);
    for (unsigned s = 0; s < 128; s++) {
        int ones = 0;
        for (int i = 0; i < 8; i++)
            ones += iq_signs(s) >> i & 1;
        assert_int_equal(ones % 2, 0);
        assert_int_equal(iq_signs(s) & 127, s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_golden), cmocka_unit_test(test_encode_golden),
        cmocka_unit_test(test_f16_all),       cmocka_unit_test(test_f16_rounding),
        cmocka_unit_test(test_bf16),          cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_integers),      cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_q8_1_sum),      cmocka_unit_test(test_special_elements),
        cmocka_unit_test(test_any_bytes),     cmocka_unit_test(test_codebook),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
