#include "tests/unit.h"

#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/kvcache.h"

/* A device of 64 MiB: the cache must not depend on a real one. */
static void memory(const struct device *d, struct device_memory *out)
{
    (void)d;
    *out = (struct device_memory){.n_free = 48u << 20, .n_total = 64u << 20};
}

static const struct device_ops ops = {.memory = memory};
static const struct buft buft = {
    .name = "FAKE", .alignment = 64, .max_size = SIZE_MAX, .is_host = true};
static const struct device dev = {.ops = &ops, .name = "FAKE", .buft = &buft};

static const struct hparams hp = {
    .n_layer = 3,
    .n_embd_head_k = 20,
    .n_embd_head_v = 12,
    .layer = {{.n_head_kv = 2}, {.n_head_kv = 2}, {.n_head_kv = 2}},
};

static struct kv_options options(uint32_t n_ctx)
{
    return (struct kv_options){
        .dev = &dev, .n_ctx = n_ctx, .n_ubatch = 300, .type_k = DT_F16, .type_v = DT_F32};
}

static void make(struct kvcache *kv, uint32_t n_ctx)
{
    struct kv_options o = options(n_ctx);
    struct err e;

    assert_int_equal(kvcache_init(kv, &hp, &o, &e), ST_OK);
}

/* n tokens of sequence seq from position pos0 on. */
static enum status put(struct kvcache *kv, int32_t seq, int32_t pos0, int32_t n, struct err *e)
{
    int32_t ids[300] = {0}, seqs[300];
    struct batch b = {.token = ids, .seq_id = seqs, .n = (uint32_t)n};
    struct ubatch u;
    enum status st;

    b.pos[seq] = pos0;
    for (int i = 0; i < n; i++)
        seqs[i] = seq;
    assert_int_equal(ubatch_init(&u, 300, NULL), ST_OK);
    assert_true(batch_next(&b, &u, 300));
    st = kvcache_place(kv, &u, e);
    ubatch_release(&u);
    return st;
}

static void test_layout(void **state)
{
    struct kvcache kv;
    const struct buffer *buffer;
    const char *end;

    (void)state;
    make(&kv, 300);
    assert_int_equal(kv.n_cells, 512);
    buffer = kv.store.parts[0].buffer;
    assert_int_equal(kv.store.n_parts, 1);
    end = (char *)buffer->base + buffer->size;
    for (uint32_t il = 0; il < 3; il++) {
        struct tensor *two[2] = {&kv.k[il], &kv.v[il]};

        assert_int_equal(kv.k[il].ne[0], 40);
        assert_int_equal(kv.v[il].ne[0], 24);
        for (int i = 0; i < 2; i++) {
            char *p = two[i]->data;

            assert_int_equal(two[i]->ne[1], 512);
            assert_int_equal((uintptr_t)p % 64, 0);
            assert_true(p >= (char *)buffer->base && p + tensor_bytes(two[i]) <= end);
            memset(p, (int)(1 + 2 * il) + i, tensor_bytes(two[i])); /* overlap would show below */
        }
    }
    for (uint32_t il = 0; il < 3; il++) {
        for (size_t i = 0; i < tensor_bytes(&kv.k[il]); i++)
            assert_int_equal(((char *)kv.k[il].data)[i], 1 + 2 * il);
        for (size_t i = 0; i < tensor_bytes(&kv.v[il]); i++)
            assert_int_equal(((char *)kv.v[il].data)[i], 2 + 2 * il);
    }
    kvcache_release(&kv);
}

static void test_starts_zero(void **state)
{
    const struct buffer *buffer;
    struct kvcache kv;

    (void)state;
    make(&kv, 256);
    buffer = kv.store.parts[0].buffer;
    for (size_t i = 0; i < buffer->size; i++)
        assert_int_equal(((char *)buffer->base)[i], 0);
    kvcache_release(&kv);
}

/* One sequence: cells are positions, and attention sees multiples of 256. */
static void test_fill(void **state)
{
    struct kvcache kv;
    struct err e;

    (void)state;
    make(&kv, 600);
    assert_int_equal(kvcache_n_kv(&kv), 256);
    for (int32_t pos = 0; pos < 600; pos += 100) {
        assert_int_equal(put(&kv, 0, pos, 100, &e), ST_OK);
        for (int i = 0; i < 100; i++)
            assert_int_equal(kv.rows[i], pos + i);
        assert_int_equal(kvcache_n_kv(&kv), (pos + 100 + 255) / 256 * 256);
    }
    assert_int_equal(put(&kv, 0, 600, 1, &e), ST_LIMIT); /* 768 cells, but a context of 600 */
    assert_non_null(strstr(e.msg, "600"));
    assert_int_equal(kv.stream[0].n_occupied, 600);
    kvcache_truncate(&kv, -1, 250);
    assert_int_equal(kv.stream[0].n_occupied, 250);
    assert_int_equal(kvcache_n_kv(&kv), 256);
    assert_int_equal(put(&kv, 0, 250, 300, &e), ST_OK);
    assert_int_equal(kv.rows[0], 250);
    assert_int_equal(put(&kv, 0, 550, 51, &e), ST_LIMIT);
    assert_int_equal(kv.stream[0].n_occupied, 550);
    kvcache_release(&kv);
}

static void test_sequences(void **state)
{
    struct kvcache kv;
    struct err e;

    (void)state;
    make(&kv, 256);
    assert_int_equal(put(&kv, 0, 0, 10, &e), ST_OK);
    assert_int_equal(put(&kv, 63, 0, 10, &e), ST_OK);
    assert_true(kv_cell_visible(&kv.stream[0].cells[3], 0, 3));
    assert_false(kv_cell_visible(&kv.stream[0].cells[3], 0, 2));  /* the future */
    assert_false(kv_cell_visible(&kv.stream[0].cells[3], 63, 9)); /* another's */
    assert_true(kv_cell_visible(&kv.stream[0].cells[13], 63, 9));
    assert_false(kv_cell_visible(&kv.stream[0].cells[20], 0, 999)); /* free */
    /* a window of n: the token's own position and n - 1 before */
    for (uint32_t n = 1; n <= 10; n++) {
        assert_int_equal(kv_cell_in_window(&kv.stream[0].cells[3], 0, 7, n), n >= 5);
        assert_false(kv_cell_in_window(&kv.stream[0].cells[3], 0, 2, n));
        assert_false(kv_cell_in_window(&kv.stream[0].cells[3], 63, 7, n));
    }
    kvcache_truncate(&kv, 0, 5);
    assert_int_equal(kv.stream[0].n_occupied, 15);
    assert_int_equal(kv.stream[0].n_used, 20);
    /* holes are filled first, and no cell is given twice */
    assert_int_equal(put(&kv, 0, 5, 8, &e), ST_OK);
    for (int i = 0; i < 5; i++)
        assert_int_equal(kv.rows[i], 5 + i);
    for (int i = 5; i < 8; i++)
        assert_int_equal(kv.rows[i], 15 + i);
    kvcache_truncate(&kv, 63, 0);
    kvcache_truncate(&kv, 0, 0);
    assert_int_equal(kv.stream[0].n_occupied, 0);
    assert_int_equal(kv.stream[0].n_used, 0);
    kvcache_release(&kv);
}

static void test_scrub(void **state)
{
    struct kvcache kv;
    struct err e;

    (void)state;
    make(&kv, 256);
    assert_int_equal(put(&kv, 0, 0, 20, &e), ST_OK);
    memset(kv.store.parts[0].buffer->base, 0xff, kv.store.parts[0].buffer->size);
    kvcache_truncate(&kv, -1, 10);
    assert_int_equal(kvcache_scrub(&kv, &e), ST_OK);
    for (uint32_t il = 0; il < 3; il++) {
        const unsigned char *k = kv.k[il].data;

        assert_int_equal(k[9 * kv.k[il].nb[1]], 0xff);
        for (size_t i = 10 * kv.k[il].nb[1]; i < 20 * kv.k[il].nb[1]; i++)
            assert_int_equal(k[i], 0);
    }
    kvcache_release(&kv);
}

static void test_too_big(void **state)
{
    struct kv_options o = options(1000000);
    struct kvcache kv;
    struct err e;

    (void)state;
    assert_int_equal(kvcache_init(&kv, &hp, &o, &e), ST_NOMEM);
    assert_non_null(strstr(e.msg, "'FAKE'"));
    assert_non_null(strstr(e.msg, "1000000"));
    assert_non_null(strstr(e.msg, "503.6 MiB")); /* 3 layers of 1000192 cells of 80 + 96 bytes */
    assert_non_null(strstr(e.msg, "48.0 MiB of 64.0 MiB are free"));
    o.dry = true; /* a description costs nothing */
    assert_int_equal(kvcache_init(&kv, &hp, &o, &e), ST_OK);
    assert_int_equal(kv.n_bytes, 528101376);
    assert_null(kv.store.parts[0].buffer->base);
    assert_ptr_equal(kv.k[2].buffer, kv.store.parts[0].buffer);
    kvcache_release(&kv);
}

static void test_nomem(void **state)
{
    struct kv_options o = options(256);
    struct kvcache kv;
    struct err e;
    int n;

    (void)state;
    for (n = 1; n < 20; n++) {
        enum status st;

        mem_fail_at((uint64_t)n);
        st = kvcache_init(&kv, &hp, &o, &e);
        mem_fail_at(0);
        if (!st)
            break;
        assert_int_equal(st, ST_NOMEM);
        assert_null(kv.k);
    }
    assert_in_range(n, 4, 14);
    kvcache_release(&kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout), cmocka_unit_test(test_starts_zero),
        cmocka_unit_test(test_fill),   cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_scrub),  cmocka_unit_test(test_too_big),
        cmocka_unit_test(test_nomem),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
