/*
 * The table of types against the numbers of the specification, written down here once more.
 */
#include "tests/unit.h"

#include <string.h>

#include "gguf/dtype.h"

static const struct {
    uint32_t number;
    const char *name;
    uint32_t block, bytes;
} spec[] = {
    {0, "f32", 1, 4},         {1, "f16", 1, 2},         {2, "q4_0", 32, 18},
    {3, "q4_1", 32, 20},      {6, "q5_0", 32, 22},      {7, "q5_1", 32, 24},
    {8, "q8_0", 32, 34},      {9, "q8_1", 32, 36},      {10, "q2_K", 256, 84},
    {11, "q3_K", 256, 110},   {12, "q4_K", 256, 144},   {13, "q5_K", 256, 176},
    {14, "q6_K", 256, 210},   {15, "q8_K", 256, 292},   {16, "iq2_xxs", 256, 66},
    {17, "iq2_xs", 256, 74},  {18, "iq3_xxs", 256, 98}, {19, "iq1_s", 256, 50},
    {20, "iq4_nl", 32, 18},   {21, "iq3_s", 256, 110},  {22, "iq2_s", 256, 82},
    {23, "iq4_xs", 256, 136}, {24, "i8", 1, 1},         {25, "i16", 1, 2},
    {26, "i32", 1, 4},        {27, "i64", 1, 8},        {28, "f64", 1, 8},
    {29, "iq1_m", 256, 56},   {30, "bf16", 1, 2},       {34, "tq1_0", 256, 54},
    {35, "tq2_0", 256, 66},   {39, "mxfp4", 32, 17},    {40, "nvfp4", 64, 36},
    {41, "q1_0", 128, 18},    {42, "q2_0", 64, 18},
};
#define N_SPEC (sizeof spec / sizeof spec[0])

static void test_table(void **state)
{
    size_t n_known = 0;

    (void)state;
    for (size_t i = 0; i < N_SPEC; i++) {
        enum dtype t = (enum dtype)spec[i].number;
        assert_true(dtype_known(spec[i].number));
        assert_string_equal(dtype_name(t), spec[i].name);
        assert_int_equal(dtype_info(t)->block, spec[i].block);
        assert_int_equal(dtype_info(t)->bytes, spec[i].bytes);
        assert_int_equal(dtype_quantised(t), spec[i].block > 1);
        assert_null(dtype_gone_name(spec[i].number));
    }
    for (uint32_t n = 0; n < 1000; n++)
        n_known += dtype_known(n);
    assert_int_equal(n_known, N_SPEC);
    assert_false(dtype_known(UINT32_MAX));
}

static void test_gone(void **state)
{
    static const uint32_t gone[] = {4, 5, 31, 32, 33, 36, 37, 38};

    (void)state;
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++) {
        assert_false(dtype_known(gone[i]));
        assert_non_null(dtype_gone_name(gone[i]));
    }
    assert_string_equal(dtype_gone_name(31), "q4_0_4_4");
    assert_null(dtype_gone_name(43));
    assert_null(dtype_gone_name(UINT32_MAX));
}

static void test_names(void **state)
{
    enum dtype t = DT_I8;

    (void)state;
    for (size_t i = 0; i < N_SPEC; i++) {
        assert_true(dtype_from_name(spec[i].name, &t));
        assert_int_equal(t, spec[i].number);
    }
    assert_true(dtype_from_name("Q4_k", &t));
    assert_int_equal(t, DT_Q4_K);
    assert_false(dtype_from_name("foo", &t));
    assert_false(dtype_from_name("", &t));
    assert_false(dtype_from_name("q4_0_4_4", &t));
    assert_false(dtype_from_name("q4_0 ", &t));
    assert_int_equal(t, DT_Q4_K);
}

static void test_row_size(void **state)
{
    size_t n = 77;

    (void)state;
    for (size_t i = 0; i < N_SPEC; i++) {
        enum dtype t = (enum dtype)spec[i].number;
        int64_t block = spec[i].block;
        assert_true(dtype_row_size(t, 0, &n) && n == 0);
        assert_true(dtype_row_size(t, 7 * block, &n) && n == 7 * spec[i].bytes);
        assert_int_equal(dtype_row_bytes(t, 3 * block), 3 * spec[i].bytes);
        n = 77;
        assert_false(dtype_row_size(t, -block, &n));
        assert_false(dtype_row_size(t, INT64_MIN, &n));
        if (block > 1) {
            assert_false(dtype_row_size(t, 1, &n));
            assert_false(dtype_row_size(t, 7 * block - 1, &n));
            assert_false(dtype_row_size(t, 7 * block + 1, &n));
        }
        assert_int_equal(n, 77);
    }
    /* 2^63 - 8 doubles do not fit; bytes do */
    assert_false(dtype_row_size(DT_F64, INT64_MAX, &n));
    assert_false(dtype_row_size(DT_F32, (int64_t)1 << 62, &n));
    assert_true(dtype_row_size(DT_F32, ((int64_t)1 << 62) - 1, &n));
    assert_true(dtype_row_size(DT_I8, INT64_MAX, &n) && n == INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_gone),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_row_size),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
