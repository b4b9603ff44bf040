/* Graph: order, use counts, flags, pools that run over, and depth that never touches the stack. */
#include "tests/unit.h"

#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/graph.h"
#include "tests/runtime/rand_graph.h"

static const int64_t ne[2] = {8, 4};

static struct tensor *leaf(struct graph *g, const char *name, uint32_t flags)
{
    return named(graph_leaf(g, DT_F32, 2, ne, flags), "%s", name);
}

static void make(struct graph *g, int cap)
{
    assert_int_equal(graph_init(g, cap, NULL), ST_OK);
}

static void names_are(const struct graph *g, const char *want)
{
    char got[512] = "";

    for (int i = 0; i < g->n_nodes; i++) {
        strcat(got, i ? " " : "");
        strcat(got, g->nodes[i]->name);
    }
    assert_string_equal(got, want);
}

/* Sources come before their readers, once. */
static void test_order(void **state)
{
    struct graph g;
    struct tensor *a, *b, *c, *d, *sum;

    (void)state;
    make(&g, 16);
    a = leaf(&g, "a", TENSOR_INPUT);
    b = named(op_scale(&g, a, 2, 0), "b");
    c = named(op_scale(&g, a, 3, 0), "c");
    d = named(op_mul(&g, b, c), "d");
    sum = named(op_add(&g, d, b), "sum");
    graph_expand(&g, sum);
    assert_int_equal(graph_status(&g, NULL), ST_OK);
    names_are(&g, "b c d sum");
    assert_int_equal(g.n_leafs, 1);
    assert_int_equal(graph_uses(&g, a), 2);
    assert_int_equal(graph_uses(&g, b), 2);
    assert_int_equal(graph_uses(&g, c), 1);
    assert_int_equal(graph_uses(&g, sum), 0);
    assert_int_equal(graph_node_index(&g, a), -1);
    assert_int_equal(graph_node_index(&g, sum), 3);
    assert_true(graph_slot(&g, a) >= 0);
    graph_release(&g);
}

static void test_right_to_left(void **state)
{
    struct graph g;
    struct tensor *a;

    (void)state;
    make(&g, 16);
    a = leaf(&g, "a", TENSOR_INPUT);
    g.order = ORDER_RIGHT_TO_LEFT;
    graph_expand(
        &g, named(op_add(&g, named(op_scale(&g, a, 2, 0), "l"), named(op_scale(&g, a, 3, 0), "r")),
                  "sum"));
    names_are(&g, "r l sum");
    graph_release(&g);
}

/* The sum of all use counts is the number of sources; nothing is listed twice; order is valid. */
static void test_random(void **state)
{
    struct device dev = {0};
    struct buft bt = {.name = "x", .alignment = 64, .max_size = SIZE_MAX, .is_host = true};
    struct device *list[] = {&dev};
    struct device_ops ops = {0};
    struct devices devs = {list, 1};

    (void)state;
    dev.ops = &ops;
    dev.buft = &bt;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct rand_options o = {.seed = seed, .n_ops = 60, .plain_inputs = true};
        struct rand_graph rg;
        int64_t n_src = 0, n_uses = 0;

        assert_true(rand_graph_init(&rg, &devs, &o));
        for (int i = 0; i < rg.g.n_nodes; i++) {
            const struct tensor *t = rg.g.nodes[i];

            assert_int_equal(graph_node_index(&rg.g, t), i);
            n_uses += graph_uses(&rg.g, t);
            for (int j = 0; j < TENSOR_SRC; j++) {
                if (!t->src[j])
                    continue;
                n_src++;
                assert_true(graph_slot(&rg.g, t->src[j]) >= 0);
                assert_true(graph_node_index(&rg.g, t->src[j]) < i);
                /* what is computed reads only what is computed */
                if ((t->flags & TENSOR_COMPUTE) && t->src[j]->op != OP_NONE)
                    assert_true(t->src[j]->flags & TENSOR_COMPUTE);
            }
        }
        for (int i = 0; i < rg.g.n_leafs; i++)
            n_uses += graph_uses(&rg.g, rg.g.leafs[i]);
        assert_int_equal(n_uses, n_src);
        rand_graph_release(&rg);
    }
}

static void test_param_is_a_node(void **state)
{
    struct graph g;
    struct tensor *w, *x;

    (void)state;
    make(&g, 16);
    w = leaf(&g, "w", TENSOR_PARAM);
    x = leaf(&g, "x", TENSOR_INPUT);
    graph_expand(&g, named(op_mul_mat(&g, w, x), "y"));
    names_are(&g, "w y");
    assert_int_equal(g.n_leafs, 1);
    assert_false(w->flags & TENSOR_COMPUTE); /* it has no op */
    graph_release(&g);
}

static void test_names(void **state)
{
    struct graph g;
    struct tensor *a;

    (void)state;
    make(&g, 16);
    a = graph_leaf(&g, DT_F32, 2, ne, TENSOR_INPUT);
    graph_expand(&g, named(op_add(&g, op_scale(&g, a, 1, 0), op_scale(&g, a, 2, 0)), "sum"));
    names_are(&g, "node_0 node_1 sum");
    assert_string_equal(a->name, "leaf_0");
    assert_ptr_equal(graph_find(&g, "node_1"), g.nodes[1]);
    assert_ptr_equal(graph_find(&g, "leaf_0"), a);
    assert_null(graph_find(&g, "node_2"));
    graph_release(&g);
}

/* What is only ordered is placed, not computed, until somebody asks for it after all. */
static void test_order_only(void **state)
{
    struct graph g;
    struct tensor *a, *b, *c, *d;

    (void)state;
    make(&g, 16);
    a = leaf(&g, "a", TENSOR_INPUT);
    b = named(op_scale(&g, a, 1, 0), "b");
    c = named(op_scale(&g, b, 1, 0), "c");
    d = named(op_scale(&g, b, 1, 0), "d");
    graph_order(&g, c);
    names_are(&g, "b c");
    assert_false((b->flags | c->flags) & TENSOR_COMPUTE);
    graph_expand(&g, d);
    names_are(&g, "b c d");
    assert_true(b->flags & d->flags & TENSOR_COMPUTE);
    assert_false(c->flags & TENSOR_COMPUTE);
    assert_int_equal(graph_uses(&g, a), 1); /* walked twice, counted once */
    assert_int_equal(graph_uses(&g, b), 2);
    graph_release(&g);
}

static void test_select(void **state)
{
    struct graph g;
    struct tensor *a, *outs[2];

    (void)state;
    make(&g, 16);
    a = op_scale(&g, leaf(&g, "a", TENSOR_INPUT), 1, 0);
    outs[0] = named(op_scale(&g, a, 1, 0), "logits");
    outs[1] = named(op_scale(&g, a, 1, 0), "hidden");
    graph_select(&g, outs, 2, 1);
    names_are(&g, "node_0 logits hidden");
    assert_true(a->flags & outs[1]->flags & TENSOR_COMPUTE);
    assert_false(outs[0]->flags & TENSOR_COMPUTE);
    graph_release(&g);
}

/* A tensor that outlives graphs: being computed in one says nothing about the next. */
static void test_two_graphs(void **state)
{
    struct graph g, own;
    struct tensor *a, *b;

    (void)state;
    make(&own, 8);
    make(&g, 8);
    a = leaf(&own, "a", TENSOR_INPUT);
    b = op_scale(&own, op_scale(&own, a, 1, 0), 2, 0);
    graph_expand(&own, b);
    graph_order(&g, b);
    assert_int_equal(g.n_nodes, 2);
    assert_false((g.nodes[0]->flags | b->flags) & TENSOR_COMPUTE);
    graph_expand(&g, b);
    assert_true(g.nodes[0]->flags & b->flags & TENSOR_COMPUTE);
    graph_release(&g);
    graph_release(&own);
}

/* Too small a pool: no crash, and one message with the number that would do. */
static void test_pool_overflow(void **state)
{
    struct graph g;
    struct err e;
    struct tensor *x;

    (void)state;
    make(&g, 5);
    x = leaf(&g, "x", TENSOR_INPUT);
    for (int i = 0; i < 9; i++)
        x = op_scale(&g, x, 1, 0);
    graph_expand(&g, x);
    assert_int_equal(graph_status(&g, &e), ST_NOMEM);
    assert_string_equal(e.msg, "graph needs 10 tensors, its pool holds 5");
    graph_reset(&g);
    assert_int_equal(graph_status(&g, NULL), ST_OK);
    graph_release(&g);
}

/* More foreign tensors than there is room for. */
static void test_graph_overflow(void **state)
{
    struct graph g, own;
    struct err e;

    (void)state;
    make(&own, 64);
    make(&g, 4);
    for (int i = 0; i < 32; i++)
        graph_expand(&g, graph_leaf(&own, DT_F32, 2, ne, TENSOR_INPUT));
    assert_int_equal(graph_status(&g, &e), ST_NOMEM);
    assert_non_null(strstr(e.msg, "graph has room for 8 nodes"));
    graph_release(&g);
    graph_release(&own);
}

/* The first error stays, and everything after it is harmless. */
static void test_first_error_stays(void **state)
{
    static const int64_t other[2] = {7, 3};
    struct graph g;
    struct err e;
    struct tensor *a, *bad;

    (void)state;
    make(&g, 16);
    a = leaf(&g, "a", TENSOR_INPUT);
    bad = op_add(&g, a, graph_leaf(&g, DT_F32, 2, other, TENSOR_INPUT));
    assert_null(bad);
    assert_null(op_mul(&g, bad, a));
    assert_null(named(bad, "x"));
    assert_null(output(bad));
    graph_expand(&g, bad);
    assert_int_equal(graph_status(&g, &e), ST_MODEL);
    assert_non_null(strstr(e.msg, "ADD"));
    assert_int_equal(g.n_nodes, 0);
    graph_release(&g);
}

/* A new build has a new uid and allocates nothing. */
static void test_rebuild(void **state)
{
    struct graph g;
    uint64_t uid;

    (void)state;
    make(&g, 16);
    uid = g.uid;
    assert_int_not_equal(uid, 0);
    mem_guard_begin();
    for (int i = 0; i < 3; i++) {
        graph_reset(&g);
        assert_int_not_equal(g.uid, uid);
        uid = g.uid;
        graph_expand(&g, op_scale(&g, leaf(&g, "a", TENSOR_INPUT), 1, 0));
        assert_int_equal(g.n_nodes, 1);
    }
    assert_int_equal(mem_guard_end(), 0);
    graph_release(&g);
}

static void test_out_of_memory(void **state)
{
    struct graph g;
    struct err e;
    int n = 0;

    (void)state;
    for (;; n++) {
        enum status st;

        mem_fail_at((uint64_t)n + 1);
        st = graph_init(&g, 16, &e);
        mem_fail_at(0);
        if (!st)
            break;
        assert_int_equal(st, ST_NOMEM);
    }
    assert_int_equal(n, 5); /* pool, nodes, leafs, set, stack */
    graph_release(&g);
}

/* 100,000 nodes deep, and as wide. */
static void test_deep(void **state)
{
    enum { N = 100000 };
    struct graph g;
    struct tensor *x;

    (void)state;
    make(&g, 2 * N + 1);
    x = leaf(&g, "x", TENSOR_INPUT);
    for (int i = 0; i < N; i++)
        x = op_scale(&g, x, 1, 0);
    for (int i = 0; i < N; i++)
        x = i % 2 ? op_add(&g, x, x) : op_reshape(&g, x, 2, ne);
    graph_expand(&g, x);
    assert_int_equal(graph_status(&g, NULL), ST_OK);
    assert_int_equal(g.n_nodes, 2 * N);
    for (int i = 1; i < g.n_nodes; i++)
        assert_ptr_equal(g.nodes[i]->src[0], g.nodes[i - 1]);
    graph_release(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_right_to_left),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_param_is_a_node),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_order_only),
        cmocka_unit_test(test_select),
        cmocka_unit_test(test_two_graphs),
        cmocka_unit_test(test_pool_overflow),
        cmocka_unit_test(test_graph_overflow),
        cmocka_unit_test(test_first_error_stays),
        cmocka_unit_test(test_rebuild),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_deep),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
