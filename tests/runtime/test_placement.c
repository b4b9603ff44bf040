/* Shares of layers and rows: everything is somewhere, in order, and nobody has much more than its share. */
#include "tests/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/placement.h"
#include "runtime/hparams.h"
#include "tests/runtime/fake_dev.h"

static const struct fake_row rows[] = {
    {.name = "GPU0", .kind = DEVICE_GPU, .shares = -1},
    {.name = "GPU1", .kind = DEVICE_GPU, .shares = -1},
    {.name = "GPU2", .kind = DEVICE_GPU, .shares = -1},
    {.name = "CPU", .kind = DEVICE_CPU, .shares = -1},
};

static struct machine m;
static struct err err;

static int gpu_of(const struct device *d)
{
    return d->name[0] == 'G' ? d->name[3] - '0' : -1;
}

/* Random shares, zeros among them; returns their sum. */
static float draw(float share[3])
{
    float sum = 0;

    while (sum == 0) {
        sum = 0;
        for (int i = 0; i < 3; i++) {
            share[i] = rand() % 3 ? (float)(rand() % 1000) / 100 : 0;
            sum += share[i];
        }
    }
    return sum;
}

static void test_rows(void **state)
{
    struct hparams hp = {.n_layer = 2};

    (void)state;
    machine_init(&m, rows, 4);
    srand(1);
    for (int k = 0; k < 5000; k++) {
        float share[3], sum = draw(share);
        struct placement_options o = {.n_gpu_layers = PLACE_ALL,
                                      .split = SPLIT_ROW,
                                      .main_gpu = rand() % 3,
                                      .tensor_split = share,
                                      .n_tensor_split = 3};
        int64_t n_rows = 1 + rand() % 20000, at = 0, got[3] = {0};
        struct row_share out[DEVICES_MAX];
        struct placement *p;
        int n;

        assert_int_equal(placement_new(&p, &m.devs, &hp, &o, &err), ST_OK);
        n = placement_rows(p, n_rows, out);
        assert_true(n >= 1 && n <= 3);
        for (int i = 0; i < n; i++) {
            assert_true(out[i].first == at && out[i].n > 0);
            assert_true(out[i].first % ROW_GRANULE == 0);
            at += out[i].n;
            got[gpu_of(out[i].dev)] += out[i].n;
            if (gpu_of(out[i].dev) == o.main_gpu)
                assert_int_equal(i, n - 1);
        }
        assert_int_equal(at, n_rows);
        for (int i = 0; i < 3; i++) {
            double want = (double)n_rows * (double)share[i] / (double)sum;

            assert_true(fabs((double)got[i] - want) <= ROW_GRANULE);
        }
        for (uint32_t il = 0; il <= hp.n_layer; il++)
            assert_int_equal(gpu_of(placement_layer(p, il)), o.main_gpu);
        placement_free(p);
    }
}

static void test_layers(void **state)
{
    struct hparams hp = {0};

    (void)state;
    machine_init(&m, rows, 4);
    srand(2);
    for (int k = 0; k < 5000; k++) {
        float share[3], sum = draw(share);
        int n_off;
        struct placement_options o = {.tensor_split = share, .n_tensor_split = 3};
        int last = -1, got[4] = {0};
        struct placement *p;

        hp.n_layer = 1 + (uint32_t)rand() % 90;
        o.n_gpu_layers = rand() % ((int)hp.n_layer + 3);
        n_off = o.n_gpu_layers > (int)hp.n_layer + 1 ? (int)hp.n_layer + 1 : o.n_gpu_layers;
        assert_int_equal(placement_new(&p, &m.devs, &hp, &o, &err), ST_OK);
        for (uint32_t il = 0; il <= hp.n_layer; il++) {
            int g = gpu_of(placement_layer(p, il));

            assert_true(g >= last); /* the CPU, then the accelerators in order */
            last = g;
            got[g + 1]++;
        }
        assert_int_equal(got[0], (int)hp.n_layer + 1 - n_off);
        for (int i = 0; i < 3; i++)
            assert_true(fabs(got[i + 1] - (double)n_off * (double)(share[i] / sum)) < 1.001);
        placement_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_layers)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
