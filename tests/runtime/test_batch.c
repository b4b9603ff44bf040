#include "tests/unit.h"

#include "gguf/base/mem.h"
#include "runtime/batch.h"

#define N 100

/* By sequence: whatever the sizes, the micro-batches put together are the batch. */
static void cut_and_join(uint32_t n, uint32_t n_max, const int32_t *seq, bool all, bool last)
{
    struct batch b = {.pos = {7, 7, 7}, .n = n, .out_all = all, .out_last = last, .seq_id = seq};
    int32_t ids[N], n_of[3] = {0};
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
            assert_int_equal(u.pos[i], 7 + n_of[u.seq_id[i]]++);
            assert_int_equal(u.index[i], at);
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

/* ---- all splits ---- */

/* Sequences of random lengths in random order, and what came out of them. */
struct mix {
    int32_t ids[N], seq[N];
    bool out[N];
    uint32_t n;
    bool seen[N];         /* of the batch's tokens */
    int32_t pos[SEQ_MAX]; /* next of each sequence */
};

static uint32_t rng = 1;

static uint32_t below(uint32_t n)
{
    rng = rng * 1664525u + 1013904223u;
    return (rng >> 8) % n;
}

static void make_mix(struct mix *m)
{
    uint32_t n_seqs = 1 + below(5);

    *m = (struct mix){.n = 1 + below(N)};
    for (uint32_t i = 0; i < m->n; i++) {
        m->ids[i] = (int32_t)(1000 + i);
        m->seq[i] = (int32_t)(below(3) || !i ? below(n_seqs) * 15 : (uint32_t)m->seq[i - 1]);
        m->out[i] = below(4) == 0;
    }
    for (int s = 0; s < SEQ_MAX; s++)
        m->pos[s] = 100 * s;
}

/* Each token once, those of a sequence in order, with what belongs to it. */
static void check_tokens(struct mix *m, const struct ubatch *u)
{
    int32_t n_out = 0;

    for (int32_t i = 0; i < u->n_tokens; i++) {
        int32_t at = u->index[i], seq = u->seq_id[i];

        assert_in_range(at, 0, m->n - 1);
        assert_false(m->seen[at]);
        m->seen[at] = true;
        for (int32_t j = 0; j < at; j++)
            assert_true(m->seen[j] || m->seq[j] != seq);
        assert_int_equal(u->token[i], 1000 + at);
        assert_int_equal(seq, m->seq[at]);
        assert_int_equal(u->pos[i], m->pos[seq]++);
        if (m->out[at])
            assert_int_equal(u->out[n_out++], i);
    }
    assert_int_equal(u->n_outputs, n_out);
}

static int32_t tokens_of(const struct ubatch *u, int32_t seq)
{
    int32_t n = 0;

    for (int32_t i = 0; i < u->n_tokens; i++)
        n += u->seq_id[i] == seq;
    return n;
}

/* What is said of the sequences holds of the tokens. */
static void check_sequences(const struct ubatch *u)
{
    bool mixed = false;
    int32_t n = 0;

    assert_int_equal(u->n_seqs * u->n_seq_tokens, u->n_tokens);
    for (int32_t i = 0; i < u->n_seqs_unq; i++) {
        int32_t of = tokens_of(u, u->seq_id_unq[i]);

        assert_true(of > 0);
        n += of; /* thus no id is listed twice */
        mixed |= of != tokens_of(u, u->seq_id_unq[0]);
    }
    assert_int_equal(n, u->n_tokens);
    assert_int_equal(u->mixed, mixed);
    for (int32_t i = 0; u->equal_seqs && i < u->n_tokens; i++)
        assert_int_equal(u->seq_id[i], u->seq_id_unq[i / u->n_seq_tokens]);
    if (u->equal_seqs)
        assert_int_equal(u->n_seqs, u->n_seqs_unq);
}

/* Could an equal split have taken more? */
static bool could_grow(const struct mix *m, const struct ubatch *u, uint32_t n_max)
{
    uint32_t n_open[SEQ_MAX] = {0};

    for (uint32_t i = 0; i < m->n; i++)
        n_open[m->seq[i]] += !m->seen[i];
    if ((uint32_t)((u->n_seq_tokens + 1) * u->n_seqs) > n_max)
        return false;
    for (int32_t i = 0; i < u->n_seqs; i++) {
        if (!n_open[u->seq_id_unq[i]])
            return false; /* it is the shortest */
    }
    return true;
}

static void check_split(enum split split, uint32_t n_max)
{
    struct mix m;
    struct batch b = {.split = split};
    struct ubatch u;
    uint32_t n = 0;

    make_mix(&m);
    b.token = m.ids;
    b.seq_id = m.seq;
    b.out = m.out;
    b.n = m.n;
    for (int s = 0; s < SEQ_MAX; s++)
        b.pos[s] = m.pos[s];
    assert_int_equal(ubatch_init(&u, (int32_t)n_max, NULL), ST_OK);
    while (batch_next(&b, &u, n_max)) {
        assert_in_range(u.n_tokens, 1, n_max);
        check_tokens(&m, &u);
        check_sequences(&u);
        n += (uint32_t)u.n_tokens;
        assert_int_equal(b.done, n);
        assert_int_equal(u.equal_seqs, split != SPLIT_SIMPLE);
        if (split == SPLIT_SIMPLE)
            assert_true((uint32_t)u.n_tokens == n_max || n == m.n);
        if (split == SPLIT_EQUAL)
            assert_false(could_grow(&m, &u, n_max));
        if (split == SPLIT_SEQUENCE)
            assert_int_equal(u.n_seqs, 1);
    }
    assert_int_equal(n, m.n);
    ubatch_release(&u);
}

static void test_splits(void **state)
{
    (void)state;
    for (int i = 0; i < 3000; i++)
        check_split((enum split)(i % 3), 1 + below(i % 2 ? 8 : 120));
}

/* By hand: 5, 2 and 3 tokens; all three, then the two that are left, then the longest. */
static void test_equal_by_hand(void **state)
{
    static const int32_t seq[10] = {4, 4, 7, 4, 1, 1, 4, 7, 4, 1};
    static const struct {
        int32_t n_seqs, n_each, index[6];
    } want[] = {{3, 2, {4, 5, 0, 1, 2, 7}}, {2, 1, {9, 3}}, {1, 2, {6, 8}}};
    int32_t ids[10] = {0};
    struct batch b = {.split = SPLIT_EQUAL, .token = ids, .seq_id = seq, .n = 10};
    struct ubatch u;

    (void)state;
    assert_int_equal(ubatch_init(&u, 8, NULL), ST_OK);
    for (int i = 0; i < 3; i++) {
        assert_true(batch_next(&b, &u, 8));
        assert_int_equal(u.n_seqs, want[i].n_seqs);
        assert_int_equal(u.n_seq_tokens, want[i].n_each);
        for (int32_t k = 0; k < u.n_tokens; k++)
            assert_int_equal(u.index[k], want[i].index[k]);
    }
    assert_false(batch_next(&b, &u, 8));
    ubatch_release(&u);
}

static void test_embd(void **state)
{
    float x[6] = {0};
    struct batch b = {.embd = x, .n = 3};
    struct ubatch u;

    (void)state;
    assert_int_equal(ubatch_init(&u, 2, NULL), ST_OK);
    assert_true(batch_next(&b, &u, 2));
    assert_true(batch_next(&b, &u, 2));
    assert_int_equal(u.carriers, CARRIER_EMBD);
    assert_ptr_equal(u.embd, x);
    assert_int_equal(u.index[0], 2);
    ubatch_release(&u);
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
        cmocka_unit_test(test_cut),           cmocka_unit_test(test_splits),
        cmocka_unit_test(test_equal_by_hand), cmocka_unit_test(test_embd),
        cmocka_unit_test(test_owns_its_data), cmocka_unit_test(test_nomem),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
