#include "tests/unit.h"

#include "gguf/base/mem.h"
#include "runtime/batch.h"

#define N 100

/* Whatever the sizes, the micro-batches put together are the batch. */
static void cut_and_join(uint32_t n, uint32_t n_max, const int32_t *seq, bool all, bool last)
{
    struct batch b = {.pos0 = 7, .n = n, .out_all = all, .out_last = last, .seq_id = seq};
    int32_t ids[N];
    struct ubatch u;
    uint32_t at = 0;

    for (int i = 0; i < N; i++)
        ids[i] = 1000 + i;
    b.token = ids;
    assert_int_equal(ubatch_init(&u, (int32_t)n_max, NULL), ST_OK);
    while (batch_next(&b, &u, n_max)) {
        int32_t n_out = 0;

        assert_in_range(u.n_tokens, 1, n_max);
        assert_true(u.equal_seqs && !u.mixed);
        assert_int_equal(u.n_seqs, 1);
        assert_int_equal(u.n_seqs_unq, 1);
        assert_int_equal(u.n_seq_tokens, u.n_tokens);
        assert_int_equal(u.carriers, CARRIER_TOKEN);
        assert_int_equal(u.seq_id_unq[0], seq ? seq[at] : 0);
        for (int32_t i = 0; i < u.n_tokens; i++, at++) {
            assert_int_equal(u.token[i], 1000 + (int)at);
            assert_int_equal(u.pos[i], 7 + (int)at);
            assert_int_equal(u.seq_id[i], u.seq_id_unq[0]);
            if (all || (last && at == n - 1))
                assert_int_equal(u.out[n_out++], i);
        }
        assert_int_equal(u.n_outputs, n_out);
        assert_int_equal(b.done, at);
        /* it ends where it must: full, at the end, or at another sequence */
        assert_true((uint32_t)u.n_tokens == n_max || at == n || (seq && seq[at] != seq[at - 1]));
    }
    assert_int_equal(at, n);
    ubatch_release(&u);
}

static void test_cut(void **state)
{
    int32_t seq[N];

    (void)state;
    for (int i = 0; i < N; i++)
        seq[i] = i / 9 % 3;
    for (uint32_t n = 0; n <= N; n += 11) {
        for (uint32_t n_max = 1; n_max <= 65; n_max += 4) {
            cut_and_join(n, n_max, NULL, false, true);
            cut_and_join(n, n_max, NULL, true, false);
            cut_and_join(n, n_max, seq, false, false);
        }
    }
}

static void test_owns_its_data(void **state)
{
    int32_t ids[3] = {1, 2, 3};
    struct batch b = {.token = ids, .n = 3};
    struct ubatch u;

    (void)state;
    assert_int_equal(ubatch_init(&u, 4, NULL), ST_OK);
    assert_true(batch_next(&b, &u, 4));
    ids[0] = ids[1] = ids[2] = 99;
    assert_int_equal(u.token[0], 1);
    assert_int_equal(u.token[2], 3);
    ubatch_release(&u);
}

static void test_nomem(void **state)
{
    struct ubatch u;
    struct err e;

    (void)state;
    mem_fail_at(1);
    assert_int_equal(ubatch_init(&u, 4, &e), ST_NOMEM);
    mem_fail_at(0);
    ubatch_release(&u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_owns_its_data),
        cmocka_unit_test(test_nomem),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
