/* Plan as data: names of causes, the printed form, and which plans are equal. */
#include "tests/unit.h"

#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/alloc.h"
#include "runtime/check.h"
#include "runtime/sched.h"
#include "tests/runtime/fake_dev.h"
#include "tests/runtime/rand_graph.h"

static const struct fake_row gpu_cpu[] = {
    {.name = "GPU0", .kind = DEVICE_GPU, .shares = -1, .work = 4096},
    {.name = "CPU", .kind = DEVICE_CPU, .shares = -1},
};

static void test_causes(void **state)
{
    static const char *const names[] = {"-",      "1.dst",  "1.vsrc", "1.inp", "1.wgt7",
                                        "1.mem7", "1.off",  "2.sup",  "3.upg", "3.best",
                                        "3.any",  "4.vsrc", "4.cur",  "4.any"};
    char out[16];

    (void)state;
    for (int c = CAUSE_NONE; c <= CAUSE_4_ANY; c++)
        assert_string_equal(cause_name((enum cause)c, 7, out), names[c]);
}

/* What a small graph may differ in. */
enum difference {
    SAME,
    OTHER_OP,
    OTHER_SOURCE,
    OTHER_SHAPE,
    OTHER_VIEW_OFFS,
    OTHER_FLAG,
    OTHER_WEIGHT_HOME,
    NOT_COMPUTED,
    N_DIFFERENCES
};

struct small {
    struct machine m;
    struct graph g;
    struct tensor w;
    struct buffer b;
};

static void build(struct small *s, enum difference d)
{
    struct graph *g = &s->g;
    int64_t rows = d == OTHER_SHAPE ? 9 : 8;
    struct tensor *x, *y, *v;

    graph_reset(g);
    s->w = (struct tensor){.buffer = &s->b};
    tensor_set_shape(&s->w, DT_F32, 2, (int64_t[]){16, 16});
    tensor_set_name(&s->w, "w");
    buffer_describe(&s->b, s->m.devs.dev[d == OTHER_WEIGHT_HOME]->buft, 1024, USAGE_WEIGHTS);
    x = named(graph_leaf(g, DT_F32, 2, (int64_t[]){16, rows}, TENSOR_INPUT), "x");
    y = named(op_mul_mat(g, &s->w, x), "y");
    v = named(op_view(g, y, 2, (int64_t[]){16, 4}, &y->nb[1], d == OTHER_VIEW_OFFS ? 128 : 64),
              "v");
    y = named(d == OTHER_OP ? op_mul(g, v, v)
                            : op_add(g, v, d == OTHER_SOURCE ? op_scale(g, v, 1, 0) : v),
              "z");
    if (d == OTHER_FLAG)
        output(y);
    y = named(op_rms_norm(g, y, NULL, 0), "norm");
    if (d == NOT_COMPUTED)
        graph_order(g, y);
    else
        graph_expand(g, y);
    assert_int_equal(graph_status(g, NULL), ST_OK);
}

static void plan_it(struct plan *p, const struct graph *g)
{
    struct err e;

    p->check = true;
    if (sched_plan(p, g, &e) || alloc_plan(p, NULL, &e) || check_alloc(p, g, &e))
        fail_msg("%s", e.msg);
}

static void test_equal(void **state)
{
    struct small s;
    struct plan *p[N_DIFFERENCES];

    (void)state;
    machine_init(&s.m, gpu_cpu, 2);
    assert_int_equal(graph_init(&s.g, 32, NULL), ST_OK);
    for (int d = 0; d < N_DIFFERENCES; d++) {
        assert_int_equal(plan_new(&p[d], &s.m.devs, NULL), ST_OK);
        build(&s, (enum difference)d);
        plan_it(p[d], &s.g);
    }
    for (int d = 0; d < N_DIFFERENCES; d++) {
        for (int k = 0; k < N_DIFFERENCES; k++)
            assert_int_equal(plan_equal(p[d], p[k]), d == k);
    }
    build(&s, SAME); /* built again: other tensors, the same structure */
    plan_it(p[1], &s.g);
    assert_true(plan_equal(p[0], p[1]));
    for (int d = 0; d < N_DIFFERENCES; d++)
        plan_free(p[d]);
    graph_release(&s.g);
}

static void test_print(void **state)
{
    static const char *const want = "split 0: GPU0, nodes 0..3, 3 computed, copies in x (512 B)\n"
                                    "  0 y MUL_MAT 16x8 f32 GPU0 1.wgt0 512 B\n"
                                    "  1 v VIEW 16x4 f32 GPU0 4.vsrc -\n"
                                    "  2 z ADD 16x4 f32 GPU0 2.sup 256 B\n"
                                    "  3 norm RMS_NORM 16x4 f32 GPU0 2.sup 256 B\n"
                                    "buffer GPU0: 1.0 KiB in 1 chunk, not less than 1.0 KiB\n"
                                    "buffer CPU: 512 B in 1 chunk, not less than 512 B\n"
                                    "scratch GPU0: 4.0 KiB\n"
                                    "intermediates 1.0 KiB, peak 1.5 KiB\n";
    struct small s;
    struct plan *p;
    struct text t = {0};

    (void)state;
    machine_init(&s.m, gpu_cpu, 2);
    assert_int_equal(graph_init(&s.g, 32, NULL), ST_OK);
    assert_int_equal(plan_new(&p, &s.m.devs, NULL), ST_OK);
    build(&s, SAME);
    plan_it(p, &s.g);
    plan_print(p, 2, &t);
    assert_string_equal(t.p, want);
    text_clear(&t);
    plan_print(p, 1, &t);
    assert_null(strstr(t.p, "RMS_NORM"));
    assert_non_null(strstr(t.p, "split 0: GPU0"));
    text_release(&t);
    plan_free(p);
    graph_release(&s.g);
}

/* A plan's memory is used again: planning the same graph a second time grows none of its arrays. */
static void test_memory_is_reused(void **state)
{
    struct machine m;
    struct rand_options o = {.seed = 7, .n_ops = 200};
    struct rand_graph rg;
    struct plan *p, before;
    struct err e;

    (void)state;
    machine_init(&m, gpu_cpu, 2);
    assert_true(rand_graph_init(&rg, &m.devs, &o));
    assert_int_equal(plan_new(&p, &m.devs, NULL), ST_OK);
    plan_it(p, &rg.g);
    before = *p;
    mem_guard_begin();
    assert_int_equal(plan_enter(p, &rg.g, &e), ST_OK);
    assert_int_equal(mem_guard_end(), 0);
    plan_it(p, &rg.g);
    assert_ptr_equal(p->tensors, before.tensors);
    assert_ptr_equal(p->own, before.own);
    assert_ptr_equal(p->run, before.run);
    assert_ptr_equal(p->chunks, before.chunks);
    assert_int_equal(p->peak, before.peak);
    plan_free(p);
    plan_free(NULL);
    rand_graph_release(&rg);
}

/* A view of something that is nowhere. */
static void test_lost_view(void **state)
{
    struct small s;
    struct tensor view, lost = {0};
    struct plan *p;
    struct err e;

    (void)state;
    machine_init(&s.m, gpu_cpu, 2);
    assert_int_equal(graph_init(&s.g, 32, NULL), ST_OK);
    assert_int_equal(plan_new(&p, &s.m.devs, NULL), ST_OK);
    tensor_set_shape(&lost, DT_F32, 2, (int64_t[]){16, 16});
    tensor_set_name(&lost, "lost");
    view = lost;
    view.view_src = &lost;
    tensor_set_name(&view, "view");
    graph_expand(&s.g, op_scale(&s.g, &view, 1, 0));
    assert_int_equal(sched_plan(p, &s.g, &e), ST_UNSUPPORTED);
    assert_string_equal(e.msg,
                        "'view' is a view of 'lost', which is neither in the graph nor in memory");
    plan_free(p);
    graph_release(&s.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_causes),    cmocka_unit_test(test_equal),
        cmocka_unit_test(test_print),     cmocka_unit_test(test_memory_is_reused),
        cmocka_unit_test(test_lost_view),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
