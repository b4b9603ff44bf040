/* Scheduler: each pass and each cause by hand, then random graphs against check.c. */
#include "tests/unit.h"

#include <stdio.h>
#include <string.h>

#include "gguf/base/text.h"
#include "runtime/check.h"
#include "runtime/sched.h"
#include "tests/runtime/fake_dev.h"
#include "tests/runtime/rand_graph.h"

#define N 16 /* all tensors are [N, N] f32 */

/* A small world: devices, a graph, and tensors in the memory of a device. */
struct small {
    struct machine m;
    struct graph g;
    struct tensor foreign[8];
    struct buffer buffers[8];
    int n_foreign;
    struct plan *p;
};

static void small_init(struct small *s, const struct fake_row *rows, int n)
{
    memset(s, 0, sizeof *s);
    machine_init(&s->m, rows, n);
    assert_int_equal(graph_init(&s->g, 256, NULL), ST_OK);
    assert_int_equal(plan_new(&s->p, &s->m.devs, NULL), ST_OK);
    s->p->check = true;
}

static void small_release(struct small *s)
{
    plan_free(s->p);
    graph_release(&s->g);
}

static struct tensor *in_memory(struct small *s, const char *name, int dev, enum usage usage)
{
    struct tensor *t = &s->foreign[s->n_foreign];

    tensor_set_shape(t, DT_F32, 2, (int64_t[]){N, N});
    tensor_set_name(t, "%s", name);
    t->buffer = &s->buffers[s->n_foreign++];
    buffer_describe(t->buffer, s->m.devs.dev[dev]->buft, tensor_bytes(t), usage);
    return t;
}

static struct tensor *weight(struct small *s, const char *name, int dev)
{
    return in_memory(s, name, dev, USAGE_WEIGHTS);
}

static struct tensor *input(struct small *s, const char *name)
{
    return named(graph_leaf(&s->g, DT_F32, 2, (int64_t[]){N, N}, TENSOR_INPUT), "%s", name);
}

static struct tensor *scale(struct small *s, struct tensor *x, const char *name)
{
    return named(op_scale(&s->g, x, 2, 0), "%s", name);
}

/* "name DEV cause; " of nodes, then of leafs that no buffer holds, then "DEV[from..to] < copies". */
static void describe(const struct plan *p, struct text *out)
{
    char cause[16];

    for (int i = 0; i < p->n_nodes + p->n_leafs; i++) {
        const struct plan_tensor *pt = &p->tensors[i];

        if (i >= p->n_nodes && pt->external)
            continue;
        text_addf(out, "%s %s %s; ", pt->t->name, p->devs->dev[pt->dev]->name,
                  cause_name(pt->cause, pt->cause_src, cause));
    }
    for (int s = 0; s < p->n_splits; s++) {
        const struct plan_split *sp = &p->splits[s];

        text_addf(out, "| %s[%d..%d]", p->devs->dev[sp->dev]->name, sp->i_start, sp->i_end - 1);
        for (int k = 0; k < sp->n_inputs; k++)
            text_addf(out, "%s%s", k ? "," : "<",
                      p->tensors[p->tensors[p->inputs[sp->first_input + k]].copy_of].t->name);
        text_byte(out, ' ');
    }
}

static void plan_is(struct small *s, struct tensor *result, const char *want)
{
    struct text got = {0};
    struct err e = {0};

    graph_expand(&s->g, result);
    assert_int_equal(graph_status(&s->g, NULL), ST_OK);
    if (sched_plan(s->p, &s->g, &e))
        fail_msg("%s", e.msg);
    if (check_sched(s->p, &s->g, &e))
        fail_msg("%s", e.msg);
    describe(s->p, &got);
    assert_string_equal(got.p, want);
    text_release(&got);
}

static const struct fake_row gpu_cpu[] = {
    {.name = "GPU", .kind = DEVICE_GPU, .shares = -1},
    {.name = "CPU", .kind = DEVICE_CPU, .shares = -1},
};
static const struct fake_row blas_cpu[] = {
    {.name = "BLAS", .kind = DEVICE_ACCEL, .shares = -1, .only = OP_BIT(OP_MUL_MAT)},
    {.name = "CPU", .kind = DEVICE_CPU, .shares = 0},
};

/* ---- pass 1 ---- */

/* 1.wgtN: ops go where their weights are; 1.inp: inputs are on the last device. */
static void test_weights(void **state)
{
    struct small s;

    (void)state;
    small_init(&s, gpu_cpu, 2);
    struct tensor *x = input(&s, "x");
    struct tensor *a = named(op_mul_mat(&s.g, weight(&s, "wg", 0), x), "a");
    struct tensor *b = named(op_add(&s.g, a, weight(&s, "wc", 1)), "b");
    plan_is(&s, b, "a GPU 1.wgt0; b CPU 1.wgt1; x CPU 1.inp; | GPU[0..0]<x | CPU[1..1]<a ");
    small_release(&s);
}

/* A view of a weight is as good as the weight. */
static void test_weight_view(void **state)
{
    struct small s;

    (void)state;
    small_init(&s, gpu_cpu, 2);
    struct tensor *v = named(op_reshape(&s.g, weight(&s, "w", 0), 2, (int64_t[]){N, N}), "v");
    plan_is(&s, named(op_mul_mat(&s.g, v, input(&s, "x")), "y"),
            "v GPU 1.vsrc; y GPU 1.wgt0; x CPU 1.inp; | GPU[0..1]<x ");
    small_release(&s);
}

/* 1.dst: bytes that exist already; 1.vsrc: an op that writes into them goes to them. */
static void test_existing_bytes(void **state)
{
    struct small s;
    struct tensor *ids, *y;

    (void)state;
    small_init(&s, gpu_cpu, 2);
    struct tensor *cache = in_memory(&s, "cache", 0, USAGE_ANY);
    ids = named(graph_leaf(&s.g, DT_I64, 1, (int64_t[]){N}, TENSOR_INPUT), "ids");
    y = named(op_set_rows(&s.g, cache, input(&s, "x"), ids), "store");
    y = scale(&s, y, "y");
    y->buffer = &s.buffers[7];
    buffer_describe(y->buffer, s.m.devs.dev[1]->buft, tensor_bytes(y), USAGE_ANY);
    plan_is(&s, y,
            "store GPU 1.vsrc; y CPU 1.dst; x CPU 1.inp; ids CPU 1.inp; "
            "| GPU[0..0]<x,ids | CPU[1..1]<store ");
    small_release(&s);
}

/* 1.memN: a cache on the CPU stays there, though all around it is on the accelerator. */
static void test_memory_stays(void **state)
{
    struct small s;
    struct tensor *x, *cache, *ids, *store;

    (void)state;
    small_init(&s, gpu_cpu, 2);
    cache = in_memory(&s, "cache", 1, USAGE_ANY);
    ids = named(graph_leaf(&s.g, DT_I64, 1, (int64_t[]){N}, TENSOR_INPUT), "ids");
    x = named(op_mul_mat(&s.g, weight(&s, "w0", 0), input(&s, "x")), "a");
    store = named(op_set_rows(&s.g, cache, x, ids), "store");
    graph_expand(&s.g, store);
    x = named(op_mul_mat(&s.g, cache, x), "k");
    x = named(op_soft_max(&s.g, x), "p");
    x = named(op_mul_mat(&s.g, cache, x), "v");
    x = named(op_mul_mat(&s.g, weight(&s, "w1", 0), x), "o");
    plan_is(&s, x,
            "a GPU 1.wgt0; store CPU 1.vsrc; k CPU 1.mem0; p CPU 2.sup; v CPU 1.mem0; "
            "o GPU 1.wgt0; x CPU 1.inp; ids CPU 1.inp; "
            "| GPU[0..0]<x | CPU[1..4]<a | GPU[5..5]<v ");
    small_release(&s);
}

/* 1.off: the weight is in host memory, but the accelerator wants the op. */
static void test_offload(void **state)
{
    static const struct fake_row rows[] = {
        {.name = "GPU", .kind = DEVICE_GPU, .shares = -1, .offload = OP_BIT(OP_MUL_MAT)},
        {.name = "CPU", .kind = DEVICE_CPU, .shares = -1},
    };
    struct small s;

    (void)state;
    small_init(&s, rows, 2);
    struct tensor *w = weight(&s, "w", 1);
    struct tensor *a = named(op_mul_mat(&s.g, w, input(&s, "x")), "a");
    plan_is(&s, named(op_add(&s.g, a, w), "b"),
            "a GPU 1.off; b CPU 1.wgt1; x CPU 1.inp; | GPU[0..0]<x,w | CPU[1..1]<a ");
    small_release(&s);
}

/* Frequencies of ROPE and a mask of attention that are weights do not drag the op to them. */
static void test_small_weights(void **state)
{
    struct param_rope r = {.n_rot = N, .base = 10000, .freq_scale = 1, .attn_factor = 1};
    struct small s;
    struct tensor *q, *pos, *freqs, *mask;
    int64_t n = N;

    (void)state;
    small_init(&s, gpu_cpu, 2);
    pos = named(graph_leaf(&s.g, DT_I32, 1, &n, TENSOR_INPUT), "pos");
    freqs = weight(&s, "freqs", 1);
    freqs->ne[1] = 1;
    mask = weight(&s, "mask", 1);
    q = named(op_mul_mat(&s.g, weight(&s, "w", 0), input(&s, "x")), "q");
    q = named(op_reshape(&s.g, q, 3, (int64_t[]){N, 1, N}), "q3");
    q = named(op_rope(&s.g, q, pos, freqs, &r), "rope");
    q = named(op_flash_attn(&s.g, q, q, q, mask, NULL, NULL, &(struct param_attn){.scale = 1}),
              "attn");
    plan_is(&s, q,
            "q GPU 1.wgt0; q3 GPU 4.vsrc; rope GPU 2.sup; attn GPU 2.sup; x CPU 1.inp; "
            "pos CPU 1.inp; | GPU[0..1]<x | GPU[2..2]<pos,freqs | GPU[3..3]<mask ");
    small_release(&s);
}

/* A weight where nobody can compute the op does not decide. */
static void test_weight_without_op(void **state)
{
    static const struct fake_row rows[] = {
        {.name = "GPU", .kind = DEVICE_GPU, .shares = -1, .holes = OP_BIT(OP_MUL_MAT)},
        {.name = "CPU", .kind = DEVICE_CPU, .shares = -1},
    };
    struct small s;

    (void)state;
    small_init(&s, rows, 2);
    plan_is(&s, named(op_mul_mat(&s.g, weight(&s, "w", 0), input(&s, "x")), "y"),
            "y CPU 3.best; x CPU 1.inp; | CPU[0..0]<w ");
    small_release(&s);
}

/* ---- pass 2 ---- */

/* Accelerators spread down, then up; the CPU does not spread over what they can take. */
static void test_spread_accelerators_first(void **state)
{
    struct small s;

    (void)state;
    small_init(&s, gpu_cpu, 2);
    struct tensor *x = scale(&s, input(&s, "x"), "up"); /* before the GPU's op: the sweep up */
    x = named(op_mul_mat(&s.g, weight(&s, "wg", 0), x), "gpu");
    x = scale(&s, x, "down");
    x = named(op_mul_mat(&s.g, weight(&s, "wc", 1), x), "cpu");
    x = scale(&s, x, "end");
    plan_is(&s, x,
            "up GPU 2.sup; gpu GPU 1.wgt0; down GPU 2.sup; cpu CPU 1.wgt0; end CPU 2.sup; "
            "x CPU 1.inp; | GPU[0..2]<x | CPU[3..4]<down ");
    small_release(&s);
}

/* Only where the op is supported; a device is carried on past what it cannot do. */
static void test_spread_past_a_hole(void **state)
{
    static const struct fake_row rows[] = {
        {.name = "GPU", .kind = DEVICE_GPU, .shares = -1, .holes = OP_BIT(OP_RMS_NORM)},
        {.name = "CPU", .kind = DEVICE_CPU, .shares = -1},
    };
    struct small s;

    (void)state;
    small_init(&s, rows, 2);
    struct tensor *x = named(op_mul_mat(&s.g, weight(&s, "w", 0), input(&s, "x")), "a");
    x = named(op_rms_norm(&s.g, x, NULL, 0), "hole");
    x = scale(&s, x, "b");
    plan_is(&s, x,
            "a GPU 1.wgt0; hole CPU 3.any; b GPU 2.sup; x CPU 1.inp; "
            "| GPU[0..0]<x | CPU[1..1]<a | GPU[2..2]<hole ");
    small_release(&s);
}

/* With nothing but the CPU's facts, the CPU spreads both ways. */
static void test_spread_cpu(void **state)
{
    struct small s;

    (void)state;
    small_init(&s, gpu_cpu, 2);
    struct tensor *x = scale(&s, input(&s, "x"), "a");
    x = named(op_mul_mat(&s.g, weight(&s, "w", 1), x), "b");
    x = scale(&s, x, "c");
    plan_is(&s, x, "a CPU 2.sup; b CPU 1.wgt0; c CPU 2.sup; x CPU 1.inp; | CPU[0..2] ");
    small_release(&s);
}

/* Each sweep has its turn: what only the other devices can do falls to the sweeps of everybody. */
static void test_four_sweeps(void **state)
{
    static const struct fake_row rows[] = {
        {.name = "GPU", .kind = DEVICE_GPU, .shares = -1, .holes = OP_BIT(OP_RMS_NORM)},
        {.name = "CPU", .kind = DEVICE_CPU, .shares = -1},
    };
    struct small s;

    (void)state;
    small_init(&s, rows, 2);
    struct tensor *x = named(op_rms_norm(&s.g, input(&s, "x"), NULL, 0), "n0");
    x = scale(&s, x, "s0");
    x = named(op_mul_mat(&s.g, weight(&s, "wc", 1), x), "cpu");
    x = named(op_rms_norm(&s.g, x, NULL, 0), "n1");
    x = scale(&s, x, "s1");
    x = named(op_mul_mat(&s.g, weight(&s, "wg", 0), x), "gpu");
    x = scale(&s, x, "s2");
    plan_is(&s, x,
            "n0 CPU 2.sup; s0 CPU 2.sup; cpu CPU 1.wgt0; n1 CPU 2.sup; s1 GPU 2.sup; "
            "gpu GPU 1.wgt0; s2 GPU 2.sup; x CPU 1.inp; | CPU[0..3] | GPU[4..6]<n1 ");
    small_release(&s);
}

/* ---- pass 3 ---- */

/* 3.upg: the same memory, a faster device. */
static void test_upgrade(void **state)
{
    struct small s;

    (void)state;
    small_init(&s, blas_cpu, 2);
    struct tensor *w = weight(&s, "w", 1);
    struct tensor *a = named(op_add(&s.g, input(&s, "x"), w), "a"); /* CPU by its weight */
    struct tensor *b = named(op_mul_mat(&s.g, a, a), "b"); /* spread from a, then upgraded */
    plan_is(&s, scale(&s, b, "c"),
            "a CPU 1.wgt1; b BLAS 3.upg; c CPU 2.sup; x CPU 1.inp; "
            "| CPU[0..0] | BLAS[1..1] | CPU[2..2] ");
    small_release(&s);
}

/* Not into other memory, however fast. */
static void test_no_upgrade_elsewhere(void **state)
{
    struct small s;

    (void)state;
    small_init(&s, gpu_cpu, 2);
    plan_is(&s, named(op_mul_mat(&s.g, weight(&s, "w", 1), input(&s, "x")), "a"),
            "a CPU 1.wgt0; x CPU 1.inp; | CPU[0..0] ");
    small_release(&s);
}

/* 3.best: nobody near is able, and most sources are on the second device. */
static void test_best(void **state)
{
    static const struct fake_row rows[] = {
        {.name = "GPU0", .kind = DEVICE_GPU, .shares = -1, .holes = OP_BIT(OP_MUL)},
        {.name = "GPU1", .kind = DEVICE_GPU, .shares = -1, .holes = OP_BIT(OP_ADD)},
        {.name = "GPU2", .kind = DEVICE_GPU, .shares = -1, .reads = 1, .holes = OP_BIT(OP_SCALE)},
        {.name = "CPU", .kind = DEVICE_CPU, .shares = -1},
    };
    struct small s;

    (void)state;
    small_init(&s, rows, 4);
    struct tensor *a = named(op_mul_mat(&s.g, weight(&s, "w0", 0), input(&s, "x")), "a");
    struct tensor *b = named(op_mul_mat(&s.g, weight(&s, "w1", 0), a), "b");
    /* GPU0 cannot; GPU1 reads neither; GPU2 reads both where they are */
    plan_is(&s, named(op_mul(&s.g, a, b), "y"),
            "a GPU0 1.wgt0; b GPU0 1.wgt0; y GPU2 3.best; x CPU 1.inp; "
            "| GPU0[0..1]<x | GPU2[2..2] ");
    small_release(&s);
}

/* 3.any: no source says anything. */
static void test_any(void **state)
{
    struct small s;

    (void)state;
    small_init(&s, gpu_cpu, 2);
    struct tensor *c = named(graph_leaf(&s.g, DT_F32, 2, (int64_t[]){N, N}, 0), "const");
    plan_is(&s, scale(&s, c, "y"), "y GPU 3.any; const GPU 4.cur; | GPU[0..0] ");
    small_release(&s);
}

/* ---- pass 4 ---- */

/* 4.vsrc for views of views, 4.cur for what a consumer needs, 4.any for what only views touch. */
static void test_follow(void **state)
{
    struct small s;

    (void)state;
    small_init(&s, gpu_cpu, 2);
    struct tensor *c = named(graph_leaf(&s.g, DT_F32, 2, (int64_t[]){N, N}, 0), "const");
    struct tensor *lone = named(graph_leaf(&s.g, DT_F32, 2, (int64_t[]){N, N}, 0), "lone");
    struct tensor *v = named(op_transpose(&s.g, c), "v");
    struct tensor *vv = named(op_transpose(&s.g, v), "vv");
    graph_expand(&s.g, named(op_transpose(&s.g, lone), "lv"));
    plan_is(&s, named(op_mul_mat(&s.g, weight(&s, "w", 1), vv), "y"),
            "lv GPU 4.vsrc; v CPU 4.vsrc; vv CPU 4.vsrc; y CPU 1.wgt0; lone GPU 4.any; "
            "const CPU 4.cur; | CPU[0..3] ");
    small_release(&s);
}

/* What writes into a tensor of the graph is where the tensor is, and must be able to be there. */
static void test_writers(void **state)
{
    static const struct fake_row rows[] = {
        {.name = "GPU", .kind = DEVICE_GPU, .shares = -1, .holes = OP_BIT(OP_SET_ROWS)},
        {.name = "CPU", .kind = DEVICE_CPU, .shares = -1},
    };
    struct small s;
    struct tensor *x, *a, *ids;

    (void)state;
    small_init(&s, rows, 2);
    x = named(op_mul_mat(&s.g, weight(&s, "w", 0), input(&s, "x")), "x1");
    a = scale(&s, x, "a"); /* between two GPU ops, but the GPU could not store into it */
    ids = named(graph_leaf(&s.g, DT_I64, 1, (int64_t[]){N}, TENSOR_INPUT), "ids");
    a = named(op_set_rows(&s.g, a, x, ids), "store");
    plan_is(&s, named(op_mul_mat(&s.g, weight(&s, "w2", 0), a), "y"),
            "x1 GPU 1.wgt0; a CPU 3.any; store CPU 4.vsrc; y GPU 1.wgt0; x CPU 1.inp; "
            "ids CPU 1.inp; | GPU[0..0]<x | CPU[1..2]<x1 | GPU[3..3]<store ");
    small_release(&s);
}

static void test_orphan(void **state)
{
    static const struct fake_row rows[] = {
        {.name = "CPU", .kind = DEVICE_CPU, .shares = -1, .holes = OP_BIT(OP_RMS_NORM)},
    };
    struct small s;
    struct err e;

    (void)state;
    small_init(&s, rows, 1);
    graph_expand(&s.g, named(op_rms_norm(&s.g, scale(&s, input(&s, "x"), "a"), NULL, 0), "norm"));
    assert_int_equal(sched_plan(s.p, &s.g, &e), ST_UNSUPPORTED);
    assert_string_equal(e.msg, "no device can compute 'norm' (RMS_NORM, f32)");
    small_release(&s);
}

/* ---- pass 5 ---- */

/* Views do not cut, wherever they are. */
static void test_views_do_not_cut(void **state)
{
    struct small s;

    (void)state;
    small_init(&s, gpu_cpu, 2);
    struct tensor *x = input(&s, "x");
    struct tensor *a = named(op_mul_mat(&s.g, weight(&s, "w", 0), x), "a");
    struct tensor *v = named(op_transpose(&s.g, x), "v"); /* of a CPU tensor, amid GPU ops */
    struct tensor *b = named(op_add(&s.g, a, v), "b");
    plan_is(&s, b, "a GPU 1.wgt0; v CPU 4.vsrc; b GPU 2.sup; x CPU 1.inp; | GPU[0..2]<x,v ");
    small_release(&s);
}

/* A second weight to copy starts a split of its own, so that the first one's memory is free again. */
static void test_weight_cut(void **state)
{
    static const struct fake_row rows[] = {
        {.name = "GPU", .kind = DEVICE_GPU, .shares = -1, .offload = OP_BIT(OP_MUL_MAT)},
        {.name = "CPU", .kind = DEVICE_CPU, .shares = -1},
    };
    struct small s;

    (void)state;
    small_init(&s, rows, 2);
    struct tensor *w = weight(&s, "w0", 1);
    struct tensor *x = named(op_mul_mat(&s.g, w, input(&s, "x")), "a");
    x = named(op_mul_mat(&s.g, w, x), "b"); /* the same weight again: it is there already */
    x = named(op_mul_mat(&s.g, weight(&s, "w1", 1), x), "c");
    x = named(op_mul_mat(&s.g, w, x), "d"); /* its copy is gone */
    plan_is(&s, x,
            "a GPU 1.off; b GPU 1.off; c GPU 1.off; d GPU 1.off; x CPU 1.inp; "
            "| GPU[0..1]<x,w0 | GPU[2..2]<w1 | GPU[3..3]<w0 ");
    small_release(&s);
}

/* One copy of an input serves all later splits of the device; of what is written to, each makes its
 * own. */
static void test_copies_are_shared(void **state)
{
    static const struct fake_row rows[] = {
        {.name = "GPU", .kind = DEVICE_GPU, .shares = -1},
        {.name = "CPU", .kind = DEVICE_CPU, .shares = -1, .holes = OP_BIT(OP_ADD)},
    };
    struct small s;
    struct tensor *x, *cache, *ids, *a, *b, *c, *store;

    (void)state;
    small_init(&s, rows, 2);
    x = input(&s, "x");
    cache = in_memory(&s, "cache", 1, USAGE_ANY);
    ids = named(graph_leaf(&s.g, DT_I64, 1, (int64_t[]){N}, TENSOR_INPUT), "ids");
    a = named(op_mul_mat(&s.g, weight(&s, "w0", 0), x), "a");
    a = named(op_add(&s.g, a, cache), "b");
    store = named(op_set_rows(&s.g, cache, a, ids), "store");
    graph_expand(&s.g, store);
    b = named(op_mul_mat(&s.g, weight(&s, "w1", 0), x), "c");
    c = named(op_add(&s.g, b, cache), "d");
    plan_is(&s, c,
            "a GPU 1.wgt0; b GPU 2.sup; store CPU 1.vsrc; c GPU 1.wgt0; d GPU 2.sup; "
            "x CPU 1.inp; ids CPU 1.inp; | GPU[0..1]<x,cache | CPU[2..2]<b | GPU[3..4]<cache ");
    small_release(&s);
}

/* Host weights are copied last. */
static void test_host_weights_last(void **state)
{
    static const struct fake_row rows[] = {
        {.name = "GPU", .kind = DEVICE_GPU, .shares = -1, .offload = OP_BIT(OP_MUL_MAT)},
        {.name = "CPU", .kind = DEVICE_CPU, .shares = -1},
    };
    struct small s;

    (void)state;
    small_init(&s, rows, 2);
    struct tensor *a = named(op_mul_mat(&s.g, weight(&s, "w", 1), input(&s, "x")), "a");
    struct tensor *b = named(op_add(&s.g, a, input(&s, "y")), "b");
    struct tensor *c = named(op_mul_mat(&s.g, weight(&s, "wg", 0), b), "c");
    plan_is(&s, c,
            "a GPU 1.off; b GPU 2.sup; c GPU 1.wgt0; x CPU 1.inp; y CPU 1.inp; "
            "| GPU[0..2]<x,y,w ");
    small_release(&s);
}

/* What is only ordered neither cuts nor is copied for. */
static void test_not_computed(void **state)
{
    struct small s;

    (void)state;
    small_init(&s, gpu_cpu, 2);
    struct tensor *a = named(op_mul_mat(&s.g, weight(&s, "w0", 0), input(&s, "x")), "a");
    struct tensor *skip = named(op_mul_mat(&s.g, weight(&s, "w1", 1), a), "skip");
    graph_expand(&s.g, a);
    graph_order(&s.g, skip);
    plan_is(&s, named(op_mul_mat(&s.g, weight(&s, "w2", 0), a), "b"),
            "a GPU 1.wgt0; skip CPU 1.wgt0; b GPU 1.wgt0; x CPU 1.inp; | GPU[0..2]<x ");
    assert_int_equal(s.p->n_run, 2);
    small_release(&s);
}

static void test_nothing_to_compute(void **state)
{
    struct small s;

    (void)state;
    small_init(&s, gpu_cpu, 2);
    plan_is(&s, named(op_transpose(&s.g, input(&s, "x")), "v"), "v CPU 4.vsrc; x CPU 1.inp; ");
    small_release(&s);
}

/* No limit on splits, nor on the inputs of one. */
static void test_many(void **state)
{
    enum { PAIRS = 600, WIDE = 300 };
    struct small s;
    struct tensor *x, *wg, *wc, *in[WIDE];
    struct err e;

    (void)state;
    small_init(&s, gpu_cpu, 2);
    graph_release(&s.g);
    assert_int_equal(graph_init(&s.g, 2 * PAIRS + 3 * WIDE, NULL), ST_OK);
    wg = weight(&s, "wg", 0);
    wc = weight(&s, "wc", 1);
    x = input(&s, "x");
    for (int i = 0; i < PAIRS; i++)
        x = op_mul_mat(&s.g, wc, op_mul_mat(&s.g, wg, x));
    for (int i = 0; i < WIDE; i++)
        in[i] = input(&s, "in");
    x = op_mul_mat(&s.g, wg, x);
    for (int i = 0; i < WIDE; i++)
        x = op_add(&s.g, x, in[i]);
    graph_expand(&s.g, x);
    assert_int_equal(graph_status(&s.g, &e), ST_OK);
    assert_int_equal(sched_plan(s.p, &s.g, &e), ST_OK);
    assert_int_equal(check_sched(s.p, &s.g, &e), ST_OK);
    assert_int_equal(s.p->n_splits, 2 * PAIRS + 1);
    assert_int_equal(s.p->splits[2 * PAIRS].n_inputs, WIDE + 1);
    small_release(&s);
}

/* ---- random ---- */

static const struct fake_row four[] = {
    {.name = "GPU0",
     .kind = DEVICE_GPU,
     .shares = -1,
     .holes = OP_BIT(OP_GET_ROWS),
     .offload = OP_BIT(OP_MUL_MAT)},
    {.name = "GPU1",
     .kind = DEVICE_GPU,
     .shares = -1,
     .reads = 1,
     .holes = OP_BIT(OP_RMS_NORM) | OP_BIT(OP_SET_ROWS)},
    {.name = "BLAS", .kind = DEVICE_ACCEL, .shares = -1, .only = OP_BIT(OP_MUL_MAT)},
    {.name = "CPU", .kind = DEVICE_CPU, .shares = 2},
};

/* The graph is const: planning twice gives the same, and changes nothing in it. */
static void test_random(void **state)
{
    struct machine m;
    struct plan *p = NULL, *q = NULL;
    int n_causes[CAUSE_4_ANY + 1] = {0};

    (void)state;
    machine_init(&m, four, 4);
    assert_int_equal(plan_new(&p, &m.devs, NULL), ST_OK);
    assert_int_equal(plan_new(&q, &m.devs, NULL), ST_OK);
    p->check = q->check = true; /* each pass keeps its promise */
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct rand_options o = {.seed = seed, .n_ops = 20 + (int)(seed % 150)};
        struct rand_graph rg;
        struct tensor before;
        struct err e = {0};

        assert_true(rand_graph_init(&rg, &m.devs, &o));
        before = *rg.g.nodes[rg.g.n_nodes / 2];
        if (sched_plan(p, &rg.g, &e) || check_sched(p, &rg.g, &e) || sched_plan(q, &rg.g, &e))
            fail_msg("seed %d: %s", (int)seed, e.msg);
        assert_true(plan_equal(p, q));
        assert_memory_equal(&before, rg.g.nodes[rg.g.n_nodes / 2], sizeof before);
        for (int i = 0; i < p->n_tensors; i++)
            n_causes[p->tensors[i].cause]++;
        rand_graph_release(&rg);
    }
    assert_int_equal(n_causes[CAUSE_NONE], 0);
    for (int c = CAUSE_1_DST; c <= CAUSE_4_ANY; c++) {
        char name[16];

        if (n_causes[c] == 0 && c != CAUSE_3_ANY)
            fail_msg("no random graph has a tensor with cause %s",
                     cause_name((enum cause)c, 0, name));
    }
    plan_free(p);
    plan_free(q);
}

/* Pipeline slots change neither devices nor splits nor copies. */
static void test_random_slots(void **state)
{
    struct machine m;
    struct plan *p = NULL, *q = NULL;
    int n_twins = 0;

    (void)state;
    machine_init(&m, four, 4);
    assert_int_equal(plan_new(&p, &m.devs, NULL), ST_OK);
    assert_int_equal(plan_new(&q, &m.devs, NULL), ST_OK);
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct rand_options o = {.seed = seed, .n_ops = 20 + (int)(seed % 80)};
        struct rand_graph rg;
        struct err e = {0};

        p->n_pipe = 2 + (int)(seed % 7);
        assert_true(rand_graph_init(&rg, &m.devs, &o));
        if (sched_plan(p, &rg.g, &e) || check_sched(p, &rg.g, &e) || sched_plan(q, &rg.g, &e))
            fail_msg("seed %d: %s", (int)seed, e.msg);
        assert_false(plan_equal(p, q));
        assert_true(p->n_splits == q->n_splits && p->n_inputs == q->n_inputs &&
                    p->n_run == q->n_run);
        for (int s = 0; s < p->n_splits; s++)
            assert_memory_equal(&p->splits[s], &q->splits[s], sizeof p->splits[s]);
        for (int i = 0; i < q->n_tensors; i++) {
            assert_true(p->tensors[i].dev == q->tensors[i].dev && q->tensors[i].twin < 0);
            n_twins += p->tensors[i].twin >= 0;
        }
        rand_graph_release(&rg);
    }
    assert_true(n_twins > 2000);
    plan_free(p);
    plan_free(q);
}

/* The checker sees what a broken scheduler would do. */
static void test_checker(void **state)
{
    struct machine m;
    struct plan *p = NULL;
    int n_seen = 0, n_changes = 0;

    (void)state;
    machine_init(&m, four, 4);
    assert_int_equal(plan_new(&p, &m.devs, NULL), ST_OK);
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct rand_options o = {.seed = seed, .n_ops = 60};
        struct rand_graph rg;
        struct err e;
        int c;

        assert_true(rand_graph_init(&rg, &m.devs, &o));
        assert_int_equal(sched_plan(p, &rg.g, &e), ST_OK);
        if (p->n_inputs > 0) {
            c = p->inputs[p->n_inputs - 1];
            n_changes += 3;
            p->splits[p->tensors[c].split].n_inputs--; /* a copy is not made */
            n_seen += check_sched(p, &rg.g, &e) != ST_OK;
            p->splits[p->tensors[c].split].n_inputs++;
            p->splits[0].i_end--; /* a hole between splits */
            n_seen += check_sched(p, &rg.g, &e) != ST_OK;
            p->splits[0].i_end++;
            p->run[p->n_run - 1] = p->run[0]; /* the wrong node is computed */
            n_seen += check_sched(p, &rg.g, &e) != ST_OK || p->n_run == 1;
        }
        rand_graph_release(&rg);
    }
    assert_true(n_changes > 300);
    assert_int_equal(n_seen, n_changes);
    plan_free(p);
}

/* ... and what one would do that confuses pipeline slots. */
static void test_checker_slots(void **state)
{
    struct machine m;
    struct plan *p = NULL;
    int n_seen = 0, n_changes = 0;

    (void)state;
    machine_init(&m, four, 4);
    assert_int_equal(plan_new(&p, &m.devs, NULL), ST_OK);
    p->n_pipe = 3;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct rand_options o = {.seed = seed, .n_ops = 60};
        struct rand_graph rg;
        struct err e;

        assert_true(rand_graph_init(&rg, &m.devs, &o));
        assert_int_equal(sched_plan(p, &rg.g, &e), ST_OK);
        for (int r = 0; r < p->n_run; r++) {
            struct tensor *second = p->run[p->n_run + r];

            if (second == p->run[r])
                continue;
            n_changes += 2;
            p->run[p->n_run + r] = p->run[r]; /* reads what the first slot reads */
            n_seen += check_sched(p, &rg.g, &e) != ST_OK;
            p->run[p->n_run + r] = p->run[2 * p->n_run + r]; /* or the third */
            n_seen += check_sched(p, &rg.g, &e) != ST_OK;
            p->run[p->n_run + r] = second;
        }
        for (int i = 0; i < p->n_tensors; i++) {
            if (p->tensors[i].twin < 0)
                continue;
            n_changes++;
            p->tensors[i].twin = -1; /* shared by all */
            n_seen += check_sched(p, &rg.g, &e) != ST_OK;
            break;
        }
        rand_graph_release(&rg);
    }
    assert_true(n_changes > 300);
    assert_int_equal(n_seen, n_changes);
    plan_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_weight_view),
        cmocka_unit_test(test_existing_bytes),
        cmocka_unit_test(test_memory_stays),
        cmocka_unit_test(test_offload),
        cmocka_unit_test(test_small_weights),
        cmocka_unit_test(test_weight_without_op),
        cmocka_unit_test(test_spread_accelerators_first),
        cmocka_unit_test(test_spread_past_a_hole),
        cmocka_unit_test(test_spread_cpu),
        cmocka_unit_test(test_four_sweeps),
        cmocka_unit_test(test_upgrade),
        cmocka_unit_test(test_no_upgrade_elsewhere),
        cmocka_unit_test(test_best),
        cmocka_unit_test(test_any),
        cmocka_unit_test(test_follow),
        cmocka_unit_test(test_writers),
        cmocka_unit_test(test_orphan),
        cmocka_unit_test(test_views_do_not_cut),
        cmocka_unit_test(test_weight_cut),
        cmocka_unit_test(test_copies_are_shared),
        cmocka_unit_test(test_host_weights_last),
        cmocka_unit_test(test_not_computed),
        cmocka_unit_test(test_nothing_to_compute),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_random_slots),
        cmocka_unit_test(test_checker),
        cmocka_unit_test(test_checker_slots),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
