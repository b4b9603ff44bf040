#include "tests/unit.h"

#include <string.h>

#include "runtime/graph.h"
#include "runtime/inputs.h"
#include "runtime/reuse.h"

static const struct reuse_facts base = {
    .kind = GRAPH_LOGITS,
    .n_tokens = 8,
    .n_seq_tokens = 4,
    .n_seqs = 2,
    .n_seqs_unq = 2,
    .equal_seqs = true,
    .carriers = CARRIER_TOKEN,
    .seq_id_unq = {3, 5},
    .n_outputs = 2,
    .n_kv = 256,
};

/* Each fact changed alone, as (field, other value, reason); the fields must be all that there are. */
#define FACTS(X)                                                                                   \
    X(kind, (enum graph_kind)7, REUSE_KIND)                                                        \
    X(n_tokens, 9, REUSE_SHAPE)                                                                    \
    X(n_seq_tokens, 8, REUSE_SEQUENCES)                                                            \
    X(n_seqs, 1, REUSE_SEQUENCES)                                                                  \
    X(n_seqs_unq, 1, REUSE_SEQUENCES)                                                              \
    X(equal_seqs, false, REUSE_SEQUENCES)                                                          \
    X(mixed, true, REUSE_MIXED)                                                                    \
    X(carriers, CARRIER_EMBD, REUSE_CARRIER)                                                       \
    X(carriers, CARRIER_TOKEN | CARRIER_EMBD, REUSE_CARRIER)                                       \
    X(carriers, CARRIER_TOKEN | CARRIER_EMBD_STATE, REUSE_STATE)                                   \
    X(seq_id_unq[0], 4, REUSE_SEQ_IDS)                                                             \
    X(seq_id_unq[1], 4, REUSE_SEQ_IDS)                                                             \
    X(n_outputs, 1, REUSE_OUTPUTS)                                                                 \
    X(samplers, 77, REUSE_SAMPLERS)                                                                \
    X(seq_id_unq[2], 9, REUSE_OK) /* beyond n_seqs_unq: says nothing */                            \
    X(n_kv, 512, REUSE_OK)        /* only sizes an input, which is asked itself */

static void test_each_fact(void **state)
{
    (void)state;
    assert_int_equal(reuse_compare(&base, &base), REUSE_OK);
#define X(field, other, reason)                                                                    \
    {                                                                                              \
        struct reuse_facts f = base;                                                               \
        f.field = other;                                                                           \
        assert_int_equal(reuse_compare(&base, &f), reason);                                        \
        assert_int_equal(reuse_compare(&f, &base), reason);                                        \
    }
    FACTS(X)
#undef X
}

/* Without equal sequences the ids do not decide the graph. */
static void test_ids_without_equal_split(void **state)
{
    struct reuse_facts a = base, b = base;

    (void)state;
    a.equal_seqs = b.equal_seqs = false;
    b.seq_id_unq[0] = 60;
    assert_int_equal(reuse_compare(&a, &b), REUSE_OK);
}

/* A micro-batch's facts are copies: they outlive it. */
static void test_from_ubatch(void **state)
{
    int32_t ids[5] = {0};
    struct batch b = {.token = ids, .n = 5, .out_last = true};
    struct reuse_facts f, want = {.n_tokens = 5,
                                  .n_seq_tokens = 5,
                                  .n_seqs = 1,
                                  .n_seqs_unq = 1,
                                  .equal_seqs = true,
                                  .carriers = CARRIER_TOKEN,
                                  .n_outputs = 1,
                                  .n_kv = 768};
    struct ubatch u;

    (void)state;
    assert_int_equal(ubatch_init(&u, 8, NULL), ST_OK);
    assert_true(batch_next(&b, &u, 8));
    reuse_facts(&f, &u, 768, 512);
    ubatch_release(&u);
    assert_int_equal(f.n_kv, 768);
    assert_int_equal(f.n_kv_window, 512);
    assert_int_equal(reuse_compare(&f, &want), REUSE_OK);
}

static struct tensor *make(struct inputs *l, struct graph *g, const struct reuse_facts *f)
{
    input_tokens(l, g, f);
    input_pos(l, g, f);
    input_kv_rows(l, g, f);
    input_out_ids(l, g, f);
    return input_mask(l, g, f);
}

static void test_inputs(void **state)
{
    struct inputs l = {0};
    struct reuse_facts f = base;
    struct tensor *mask;
    struct graph g;

    (void)state;
    assert_int_equal(graph_init(&g, 16, NULL), ST_OK);
    mask = make(&l, &g, &base);
    assert_int_equal(mask->ne[0], 256);
    assert_int_equal(mask->ne[1], 8);
    assert_int_equal(l.n, 5);
    assert_int_equal(inputs_fit(&l, &base), REUSE_OK);
    f.n_kv = 512;
    assert_int_equal(inputs_fit(&l, &f), REUSE_KV_LENGTH);
    f = base;
    f.n_outputs = 3;
    assert_int_equal(inputs_fit(&l, &f), REUSE_OUTPUTS);
    f = base;
    f.n_tokens = 7;
    assert_int_equal(inputs_fit(&l, &f), REUSE_INPUT);
    graph_release(&g);
}

/* What does not say that it fits does not fit. */
static void test_silent_input(void **state)
{
    static const struct input_ops silent = {.name = "silent"};
    struct inputs l = {0};
    struct graph g;
    int64_t n = 4;

    (void)state;
    assert_int_equal(graph_init(&g, 16, NULL), ST_OK);
    make(&l, &g, &base);
    input_add(&l, &g, &silent, DT_F32, 1, &n);
    assert_int_equal(inputs_fit(&l, &base), REUSE_INPUT);
    graph_release(&g);
}

static void test_names(void **state)
{
    (void)state;
    for (int i = 0; i < REUSE_COUNT; i++) {
        assert_non_null(reuse_name((enum reuse_reason)i));
        for (int k = 0; k < i; k++)
            assert_string_not_equal(reuse_name((enum reuse_reason)i),
                                    reuse_name((enum reuse_reason)k));
    }
    assert_null(reuse_name(REUSE_COUNT));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_fact),    cmocka_unit_test(test_ids_without_equal_split),
        cmocka_unit_test(test_from_ubatch),  cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_silent_input), cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
