/*
 * Devices as the runtime sees them: opening and closing, wrong requests, spans of several nodes,
 * cancellation, threads, the BLAS device against the CPU's.
 */
#include "tests/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/backends/fixture.h"
#include "gguf/base/mem.h"

static void open_default(struct devices *d, int n_threads)
{
    struct err e = {0};

    if (devices_open(d, &(struct device_options){.n_threads = n_threads}, &e))
        fail_msg("%s", e.msg);
}

static void test_open(void **state)
{
    struct devices d;

    (void)state;
    open_default(&d, 0);
    assert_int_equal(d.n, 1);
    assert_ptr_equal(devices_cpu(&d), devices_find(&d, "cpu"));
    assert_null(devices_find(&d, "GPU0"));
    assert_int_equal(devices_cpu(&d)->kind, DEVICE_CPU);
    assert_true(device_supports_buft(devices_cpu(&d), devices_cpu(&d)->buft));
    assert_non_null(strstr(devices_cpu(&d)->desc, ", "));
    devices_close(&d);
    devices_close(&d);
    assert_null(devices_cpu(&d));
}

static void test_open_wrong(void **state)
{
    static const struct device_options wrong[] = {{.n_threads = -1},
                                                  {.n_threads = 513},
                                                  {.n_threads = INT32_MAX},
                                                  {.isa = "sse9"},
                                                  {.isa = ""}};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct devices d;
        struct err e = {0};
        assert_int_equal(devices_open(&d, &wrong[i], &e), ST_USAGE);
        assert_int_equal(d.n, 0);
        assert_null(d.dev);
        assert_true(strlen(e.msg) > 0);
    }
}

static void test_open_no_memory(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        struct devices d;
        enum status st;
        mem_fail_at(n);
        st = devices_open(&d, &(struct device_options){.n_threads = 2}, NULL);
        mem_fail_at(0);
        devices_close(&d);
        if (st == ST_OK) {
            assert_true(n > 3);
            return;
        }
        assert_int_equal(st, ST_NOMEM);
    }
}

/* ---- spans ---- */

#define N_NODE 40

/* A chain of small and large nodes, with views and nodes that are not computed in between. */
static struct tensor *chain(struct tensor *nodes[N_NODE])
{
    struct tensor *w = fx_random(fx_tensor(DT_Q8_0, 64, 64, 1, 1, 0), 0.5f);
    struct tensor *x = fx_random(fx_tensor(DT_F32, 64, 200, 1, 1, 0), 1), *y = x;
    struct param_rms_norm norm = {1e-5f};

    for (int i = 0; i < N_NODE; i++) {
        switch (i % 5) {
        case 0:
            y = fx_op(OP_RMS_NORM, &norm, sizeof norm, y, NULL, NULL, NULL);
            break;
        case 1:
            y = fx_op(OP_MUL_MAT, NULL, 0, w, y, NULL, NULL);
            break;
        case 2:
            y = fx_op(OP_TRANSPOSE, NULL, 0, fx_op(OP_TRANSPOSE, NULL, 0, y, NULL, NULL, NULL),
                      NULL, NULL, NULL);
            break;
        case 3:
            y = fx_op(OP_ADD, NULL, 0, y, x, NULL, NULL);
            break;
        default: /* not computed, and harmful if it were */
            nodes[i] = fx_op(OP_SCALE, &(struct param_scale){0, NAN}, 8, y, NULL, NULL, NULL);
            nodes[i]->flags = 0;
            nodes[i]->data = y->data;
            continue;
        }
        nodes[i] = y;
    }
    return nodes[N_NODE - 2];
}

static enum status run_span(struct device *d, struct tensor *const *nodes, int n, int n_threads,
                            const atomic_bool *cancel, struct err *e)
{
    int32_t uses[N_NODE] = {0};
    struct span s = {
        .nodes = nodes, .uses = uses, .n = n, .n_threads = n_threads, .cancel = cancel};
    size_t n_work = 0;
    enum status st;
    void *work;

    for (int i = 0; i < n; i++) {
        size_t need = device_work_size(d, nodes[i]);
        n_work = need > n_work ? need : n_work;
    }
    work = mem_aligned(n_work);
    mem_guard_begin();
    st = device_compute(d, &s, work, n_work, e);
    assert_int_equal(mem_guard_end(), 0);
    mem_free(work);
    return st;
}

static void test_span(void **state)
{
    struct tensor *nodes[N_NODE], *last;
    struct devices d;
    void *want;

    (void)state;
    open_default(&d, 3);
    last = chain(nodes);
    want = malloc(tensor_bytes(last));
    for (int n_threads = 1; n_threads <= 3; n_threads++)
        for (int round = 0; round < 20; round++) {
            fx_poison(last);
            assert_int_equal(run_span(devices_cpu(&d), nodes, N_NODE, n_threads, NULL, NULL),
                             ST_OK);
            if (n_threads == 1 && round == 0)
                memcpy(want, last->data, tensor_bytes(last));
            assert_memory_equal(last->data, want, tensor_bytes(last));
        }
    for (int i = 0; i < 64; i++)
        assert_true(isfinite(*fx_f32(last, i, 100)));
    assert_int_equal(run_span(devices_cpu(&d), nodes, 0, 0, NULL, NULL), ST_OK);
    free(want);
    devices_close(&d);
    fx_end();
}

/*
 * Products that share a source may run side by side; one that writes over that source (as the
 * allocator places it when its last reader is done) must wait.
 */
static void test_memory_reuse(void **state)
{
    struct tensor *nodes[5], *w, *x, *h;
    struct param_rms_norm norm = {1e-5f};
    struct devices d;
    float *want;
    size_t n;

    (void)state;
    open_default(&d, 3);
    w = fx_random(fx_tensor(DT_Q8_0, 256, 256, 1, 1, 0), 0.5f);
    x = fx_random(fx_tensor(DT_F32, 256, 40, 1, 1, 0), 1);
    nodes[0] = h = fx_op(OP_RMS_NORM, &norm, sizeof norm, x, NULL, NULL, NULL);
    for (int i = 1; i < 4; i++)
        nodes[i] = fx_op(OP_MUL_MAT, NULL, 0, w, h, NULL, NULL);
    nodes[4] = fx_op(OP_MUL_MAT, NULL, 0, w, x, NULL, NULL);
    n = tensor_bytes(h);
    want = malloc(n);
    assert_int_equal(run_span(devices_cpu(&d), nodes, 4, 1, NULL, NULL), ST_OK);
    memcpy(want, nodes[3]->data, n);
    nodes[4]->data = h->data;
    for (int round = 0; round < 300; round++) {
        assert_int_equal(run_span(devices_cpu(&d), nodes, 5, 3, NULL, NULL), ST_OK);
        for (int i = 1; i < 4; i++)
            assert_memory_equal(nodes[i]->data, want, n);
    }
    free(want);
    devices_close(&d);
    fx_end();
}

static void test_cancel(void **state)
{
    struct tensor *nodes[N_NODE], *last;
    atomic_bool cancel = true;
    struct devices d;
    struct err e;

    (void)state;
    open_default(&d, 2);
    last = chain(nodes);
    for (int n_threads = 1; n_threads <= 2; n_threads++) {
        fx_poison(last);
        assert_int_equal(run_span(devices_cpu(&d), nodes, N_NODE, n_threads, &cancel, &e),
                         ST_CANCELLED);
        assert_memory_equal(last->data, "\xd7\xd7\xd7\xd7", 4);
    }
    atomic_store(&cancel, false);
    assert_int_equal(run_span(devices_cpu(&d), nodes, N_NODE, 0, &cancel, &e), ST_OK);
    devices_close(&d);
    fx_end();
}

/* A failing node stops the span; the device works again afterwards. */
static void test_failure(void **state)
{
    struct tensor *nodes[N_NODE], *last, *ids, *bad;
    struct devices d;
    struct err e;

    (void)state;
    open_default(&d, 2);
    last = chain(nodes);
    ids = fx_tensor(DT_I32, 1, 1, 1, 1, 0);
    *(int32_t *)ids->data = -5;
    bad = fx_op(OP_GET_ROWS, NULL, 0, nodes[0], ids, NULL, NULL);
    nodes[4] = bad;
    for (int n_threads = 1; n_threads <= 2; n_threads++) {
        fx_poison(last);
        assert_int_equal(run_span(devices_cpu(&d), nodes, N_NODE, n_threads, NULL, &e), ST_MODEL);
        assert_non_null(strstr(e.msg, bad->name));
        assert_memory_equal(last->data, "\xd7\xd7\xd7\xd7", 4);
    }
    *(int32_t *)ids->data = 5;
    assert_int_equal(run_span(devices_cpu(&d), nodes, N_NODE, 2, NULL, &e), ST_OK);
    devices_close(&d);
    fx_end();
}

/* ---- BLAS ---- */

static void test_blas(void **state)
{
    struct devices d;
    struct device *blas, *cpu;
    struct err e = {0};
    enum status st = devices_open(&d, &(struct device_options){.n_threads = 2, .blas = true}, &e);

    (void)state;
    if (st == ST_USAGE && strstr(e.msg, "built without OpenBLAS")) {
        print_message("OpenBLAS is not compiled in\n");
        skip();
    }
    assert_int_equal(st, ST_OK);
    assert_int_equal(d.n, 2);
    blas = devices_find(&d, "blas");
    cpu = devices_cpu(&d);
    assert_ptr_equal(d.dev[0], blas);
    assert_int_equal(blas->kind, DEVICE_ACCEL);
    assert_ptr_equal(blas->buft, cpu->buft);
    for (int pad = 0; pad <= 16; pad += 16)
        for (int planes = 1; planes <= 2; planes++) {
            struct tensor *w = fx_random(fx_tensor(DT_F32, 100, 77, planes, 1, (size_t)pad), 1);
            struct tensor *x = fx_random(fx_tensor(DT_F32, 100, 40, 2, 3, (size_t)pad), 1);
            struct tensor *y = fx_op(OP_MUL_MAT, NULL, 0, w, x, NULL, NULL);
            struct tensor *z = fx_op(OP_MUL_MAT, NULL, 0, w, x, NULL, NULL);
            assert_string_equal(device_kernel_name(blas, y), "mul_mat_f32_openblas");
            fx_run(blas, y, 0);
            fx_run(cpu, z, 0);
            for (int64_t i = 0; i < tensor_n(y); i++)
                assert_true(fabsf(((float *)y->data)[i] - ((float *)z->data)[i]) < 1e-4f);
            fx_end();
        }
    struct tensor *few = fx_op(OP_MUL_MAT, NULL, 0, fx_tensor(DT_F32, 100, 77, 1, 1, 0),
                               fx_tensor(DT_F32, 100, 31, 1, 1, 0), NULL, NULL);
    struct tensor *typed = fx_op(OP_MUL_MAT, NULL, 0, fx_tensor(DT_Q8_0, 64, 77, 1, 1, 0),
                                 fx_tensor(DT_F32, 64, 40, 1, 1, 0), NULL, NULL);
    assert_false(device_supports_op(blas, few));
    assert_false(device_supports_op(blas, typed));
    assert_false(device_supports_op(blas, fx_op(OP_ADD, NULL, 0, few, few, NULL, NULL)));
    devices_close(&d);
    fx_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),           cmocka_unit_test(test_open_wrong),
        cmocka_unit_test(test_open_no_memory), cmocka_unit_test(test_span),
        cmocka_unit_test(test_cancel),         cmocka_unit_test(test_memory_reuse),
        cmocka_unit_test(test_failure),        cmocka_unit_test(test_blas),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
