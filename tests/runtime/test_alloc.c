/* Allocator: its rules by hand, then random graphs against check.c and the lower bound. */
#include "tests/unit.h"

#include <stdio.h>
#include <string.h>

#include "gguf/base/log.h"
#include "gguf/base/mem.h"
#include "runtime/alloc.h"
#include "runtime/check.h"
#include "runtime/sched.h"
#include "tests/runtime/fake_dev.h"
#include "tests/runtime/llama_graph.h"
#include "tests/runtime/rand_graph.h"

#define N   64
#define ONE ((size_t)N * N * 4) /* bytes of a tensor [N, N] */

struct small {
    struct machine m;
    struct graph g;
    struct plan *p;
};

static const struct fake_row cpu[] = {{.name = "CPU", .kind = DEVICE_CPU, .shares = -1}};

static void small_init(struct small *s, const struct fake_row *rows, int n, int cap)
{
    memset(s, 0, sizeof *s);
    machine_init(&s->m, rows, n);
    assert_int_equal(graph_init(&s->g, cap, NULL), ST_OK);
    assert_int_equal(plan_new(&s->p, &s->m.devs, NULL), ST_OK);
    s->p->check = true;
}

static void small_release(struct small *s)
{
    plan_free(s->p);
    graph_release(&s->g);
}

static struct tensor *leaf(struct small *s, uint32_t flags)
{
    return graph_leaf(&s->g, DT_F32, 2, (int64_t[]){N, N}, flags);
}

static void plan_it(struct small *s, const struct alloc_options *ao)
{
    struct err e = {0};

    assert_int_equal(graph_status(&s->g, NULL), ST_OK);
    if (sched_plan(s->p, &s->g, &e) || alloc_plan(s->p, ao, &e) || check_alloc(s->p, &s->g, &e))
        fail_msg("%s", e.msg);
}

static const struct plan_tensor *entry(const struct small *s, const struct tensor *t)
{
    return &s->p->tensors[plan_slot(s->p, &s->g, t)];
}

static bool same_place(const struct small *s, const struct tensor *a, const struct tensor *b)
{
    const struct plan_tensor *x = entry(s, a), *y = entry(s, b);

    return x->buf == y->buf && x->chunk == y->chunk && x->offs < y->offs + y->size &&
           y->offs < x->offs + x->size;
}

/* ---- in place ---- */

/* A chain of elementwise ops lives in the bytes of its input. */
static void test_chain_in_place(void **state)
{
    struct small s;
    struct tensor *x;

    (void)state;
    small_init(&s, cpu, 1, 32);
    x = leaf(&s, TENSOR_INPUT);
    for (int i = 0; i < 10; i++)
        x = i % 2 ? op_scale(&s.g, x, 2, 0) : op_rms_norm(&s.g, x, NULL, 0);
    graph_expand(&s.g, x);
    plan_it(&s, NULL);
    assert_int_equal(s.p->peak, ONE);
    assert_int_equal(s.p->sum_nodes, 10 * ONE);
    assert_int_equal(s.p->least, ONE);
    small_release(&s);
}

/* Reshape, norm, scale: through the view to its owner. */
static void test_in_place_through_view(void **state)
{
    struct small s;
    struct tensor *x, *y;

    (void)state;
    small_init(&s, cpu, 1, 32);
    x = op_mul_mat(&s.g, leaf(&s, TENSOR_INPUT), leaf(&s, TENSOR_INPUT));
    y = op_reshape(&s.g, x, 3, (int64_t[]){N / 2, 2, N});
    y = op_reshape(&s.g, y, 2, (int64_t[]){N / 4, N * 4});
    y = op_rms_norm(&s.g, y, NULL, 0);
    graph_expand(&s.g, op_scale(&s.g, y, 2, 0));
    plan_it(&s, NULL);
    assert_int_equal(entry(&s, y)->offs, entry(&s, x)->offs);
    assert_int_equal(s.p->peak, 3 * ONE); /* two inputs and what becomes of x */
    small_release(&s);
}

/* Somebody else still reads the source: directly, or through another view. */
static void test_not_in_place(void **state)
{
    struct small s;
    struct tensor *x, *y, *v, *z, *w;

    (void)state;
    small_init(&s, cpu, 1, 32);
    x = op_mul_mat(&s.g, leaf(&s, TENSOR_INPUT), leaf(&s, TENSOR_INPUT));
    y = op_scale(&s.g, x, 2, 0); /* x is read again below */
    v = op_transpose(&s.g, x);
    z = op_scale(&s.g, op_reshape(&s.g, x, 2, (int64_t[]){N, N}), 3, 0); /* v still needs x */
    w = op_add(&s.g, y, z);
    graph_expand(&s.g, w);
    graph_expand(&s.g, op_mul(&s.g, w, v));
    plan_it(&s, NULL);
    assert_false(same_place(&s, x, y));
    assert_false(same_place(&s, x, z));
    small_release(&s);
}

/* Both sources the same tensor: it is named twice, and the second reading must find it. */
static void test_twice_the_same(void **state)
{
    struct small s;
    struct tensor *x, *y;

    (void)state;
    small_init(&s, cpu, 1, 32);
    x = op_mul_mat(&s.g, leaf(&s, TENSOR_INPUT), leaf(&s, TENSOR_INPUT));
    y = op_mul(&s.g, x, x);
    graph_expand(&s.g, y);
    plan_it(&s, NULL);
    assert_false(same_place(&s, x, y));
    small_release(&s);
}

/* A row of the tensor itself is repeated over it: in place would change the row under way. */
static void test_row_of_itself(void **state)
{
    struct small s;
    struct tensor *x, *y;

    (void)state;
    small_init(&s, cpu, 1, 32);
    x = op_mul_mat(&s.g, leaf(&s, TENSOR_INPUT), leaf(&s, TENSOR_INPUT));
    y = op_mul(&s.g, x, op_view(&s.g, x, 1, (int64_t[]){N}, NULL, 5 * N * 4));
    graph_expand(&s.g, y);
    plan_it(&s, NULL);
    assert_false(same_place(&s, x, y));
    small_release(&s);
}

/* A result over the front of a larger owner: the rest is free at once. */
static void test_surplus(void **state)
{
    struct small s;
    struct tensor *x, *y, *z;
    struct alloc_options ao = {.walk_only = true};

    (void)state;
    small_init(&s, cpu, 1, 32);
    x = op_mul_mat(&s.g, leaf(&s, TENSOR_INPUT), leaf(&s, TENSOR_INPUT));
    y = op_view(&s.g, x, 2, (int64_t[]){N, N / 4}, (size_t[]){N * 4}, 0);
    y = op_scale(&s.g, y, 2, 0);
    z = op_mul_mat(&s.g, y, y);
    graph_expand(&s.g, op_add(&s.g, z, z));
    plan_it(&s, &ao);
    assert_int_equal(entry(&s, y)->offs, entry(&s, x)->offs);
    assert_int_equal(entry(&s, y)->size, ONE / 4);
    assert_int_equal(s.p->peak, 3 * ONE);
    small_release(&s);
}

/* Not from the middle of its owner: the addresses would differ. */
static void test_view_with_offset(void **state)
{
    struct small s;
    struct tensor *x, *y;

    (void)state;
    small_init(&s, cpu, 1, 32);
    x = op_mul_mat(&s.g, leaf(&s, TENSOR_INPUT), leaf(&s, TENSOR_INPUT));
    y = op_view(&s.g, x, 2, (int64_t[]){N, N / 4}, (size_t[]){N * 4}, ONE / 2);
    y = op_scale(&s.g, y, 2, 0);
    graph_expand(&s.g, y);
    plan_it(&s, NULL);
    assert_false(same_place(&s, x, y));
    small_release(&s);
}

/* ---- what stays ---- */

/* Outputs (also as views), kept inputs and constants are where nothing else ever is. */
static void test_what_stays(void **state)
{
    struct small s;
    struct tensor *keep, *constant, *out, *viewed, *x, *all[40];
    int n = 0;

    (void)state;
    small_init(&s, cpu, 1, 128);
    keep = leaf(&s, TENSOR_INPUT | TENSOR_KEEP);
    constant = leaf(&s, 0);
    x = op_mul_mat(&s.g, keep, constant);
    out = output(op_scale(&s.g, x, 2, 0));
    viewed = op_scale(&s.g, out, 3, 0);
    x = op_mul_mat(&s.g, viewed, output(op_transpose(&s.g, viewed)));
    for (int i = 0; i < 30; i++) {
        x = i % 3 ? op_scale(&s.g, x, 2, 0) : op_mul_mat(&s.g, x, x);
        all[n++] = x;
    }
    graph_expand(&s.g, x);
    plan_it(&s, NULL);
    for (int i = 0; i < n; i++) {
        assert_false(same_place(&s, all[i], keep));
        assert_false(same_place(&s, all[i], constant));
        assert_false(same_place(&s, all[i], out));
        assert_false(same_place(&s, all[i], viewed));
    }
    small_release(&s);
}

/* A result that nobody reads is one: it stays although nobody called it an output. */
static void test_sinks_stay(void **state)
{
    struct small s;
    struct tensor *x, *sink, *y;

    (void)state;
    small_init(&s, cpu, 1, 64);
    x = leaf(&s, TENSOR_INPUT);
    sink = op_mul_mat(&s.g, x, x);
    graph_expand(&s.g, sink);
    y = sink == NULL ? NULL : op_mul_mat(&s.g, x, x);
    for (int i = 0; i < 8; i++)
        y = op_mul_mat(&s.g, y, y);
    graph_expand(&s.g, y);
    plan_it(&s, NULL);
    for (int i = 0; i < s.g.n_nodes; i++) {
        if (s.g.nodes[i] != sink)
            assert_false(same_place(&s, sink, s.g.nodes[i]));
    }
    small_release(&s);
}

/* An input used late is there until then; its bytes are used again afterwards. */
static void test_late_input(void **state)
{
    struct small s;
    struct tensor *x, *late, *y;

    (void)state;
    small_init(&s, cpu, 1, 64);
    x = leaf(&s, TENSOR_INPUT);
    late = leaf(&s, TENSOR_INPUT);
    for (int i = 0; i < 6; i++)
        x = op_mul_mat(&s.g, x, x);
    x = op_mul_mat(&s.g, x, late);
    y = op_mul_mat(&s.g, x, x);
    y = op_mul_mat(&s.g, y, y);
    graph_expand(&s.g, y);
    plan_it(&s, NULL);
    for (int i = 0; i < 7; i++)
        assert_false(same_place(&s, late, s.g.nodes[i]));
    assert_int_equal(s.p->peak, 3 * ONE);
    small_release(&s);
}

/* ---- buffers and chunks ---- */

/* Devices that share memory share a buffer; others have their own. */
static void test_buffers(void **state)
{
    static const struct fake_row rows[] = {
        {.name = "GPU", .kind = DEVICE_GPU, .shares = -1, .alignment = 256, .pad = 1000},
        {.name = "BLAS", .kind = DEVICE_ACCEL, .shares = -1, .only = OP_BIT(OP_MUL_MAT)},
        {.name = "CPU", .kind = DEVICE_CPU, .shares = 1},
    };
    struct tensor w = {0};
    struct buffer b;
    struct small s;
    struct tensor *x;

    (void)state;
    small_init(&s, rows, 3, 64);
    tensor_set_shape(&w, DT_F32, 2, (int64_t[]){N, N});
    buffer_describe(&b, s.m.devs.dev[0]->buft, ONE, USAGE_WEIGHTS);
    w.buffer = &b;
    x = op_mul_mat(&s.g, &w, leaf(&s, TENSOR_INPUT));
    graph_expand(&s.g, x);
    plan_it(&s, NULL);
    assert_int_equal(s.p->n_bufs, 2);
    assert_int_equal(s.p->dev[1].buf, s.p->dev[2].buf);
    assert_int_equal(entry(&s, x)->buf, s.p->dev[0].buf);
    assert_int_equal(entry(&s, x)->size, (ONE + 999) / 1000 * 1000 / 256 * 256 + 256);
    assert_int_equal(s.p->bufs[0].size,
                     2 * entry(&s, x)->size); /* the copy of the input, the result */
    assert_int_equal(s.p->bufs[1].size, ONE);
    small_release(&s);
}

/* A limit per chunk splits the buffer; more than it at once is refused with the numbers. */
static void test_chunks(void **state)
{
    struct fake_row row = {.name = "CPU", .kind = DEVICE_CPU, .shares = -1, .max_size = 3 * ONE};
    struct small s;
    struct err e;
    struct tensor *x[8];

    (void)state;
    small_init(&s, &row, 1, 64);
    for (int i = 0; i < 8; i++)
        x[i] = leaf(&s, TENSOR_INPUT | TENSOR_KEEP);
    for (int i = 1; i < 8; i++)
        graph_expand(&s.g, op_mul_mat(&s.g, x[i - 1], x[i]));
    plan_it(&s, NULL);
    assert_int_equal(s.p->bufs[0].n_chunks, 5); /* 8 inputs and 7 results that stay */
    for (int c = 0; c < 5; c++)
        assert_int_equal(s.p->chunks[c].size, 3 * ONE);
    s.m.fakes[0].bt.max_size = ONE - 1;
    assert_int_equal(sched_plan(s.p, &s.g, &e), ST_OK);
    assert_int_equal(alloc_plan(s.p, NULL, &e), ST_NOMEM);
    assert_string_equal(e.msg,
                        "'node_0' needs 16384 bytes, 'CPU' allocates at most 16383 bytes at once");
    small_release(&s);
}

/* ---- log ---- */

static void count_lines(void *ctx, enum log_level level, const char *line)
{
    int *n = ctx;

    (void)level;
    n[0] += strstr(line, " in place of ") != NULL;
    n[1] += strstr(line, " bytes at CPU 0+") != NULL;
    n[2] += strstr(line, " is free") != NULL;
}

static void test_debug(void **state)
{
    struct alloc_options ao = {.debug = true};
    struct small s;
    struct tensor *x;
    int n[3] = {0};

    (void)state;
    small_init(&s, cpu, 1, 64);
    x = op_mul_mat(&s.g, leaf(&s, TENSOR_INPUT), leaf(&s, TENSOR_INPUT));
    graph_expand(&s.g, op_scale(&s.g, x, 1, 0));
    log_set_sink(count_lines, n, LOG_DEBUG);
    plan_it(&s, &ao);
    log_set_sink(NULL, NULL, LOG_WARN);
    assert_int_equal(n[0], 1);
    assert_int_equal(n[1], 3);
    assert_int_equal(n[2], 2);
    small_release(&s);
}

/* ---- random ---- */

static const struct fake_row four[] = {
    {.name = "GPU0",
     .kind = DEVICE_GPU,
     .shares = -1,
     .holes = OP_BIT(OP_GET_ROWS),
     .alignment = 256,
     .offload = OP_BIT(OP_MUL_MAT)},
    {.name = "GPU1",
     .kind = DEVICE_GPU,
     .shares = -1,
     .reads = 1,
     .pad = 100,
     .holes = OP_BIT(OP_RMS_NORM) | OP_BIT(OP_SET_ROWS)},
    {.name = "BLAS", .kind = DEVICE_ACCEL, .shares = -1, .only = OP_BIT(OP_MUL_MAT)},
    {.name = "CPU", .kind = DEVICE_CPU, .shares = 2},
};

static void random_plans(const struct fake_row *rows, int n_rows, uint64_t first, uint64_t n,
                         int n_ops, int scale, const struct alloc_options *ao, bool bounded)
{
    struct machine m;
    struct plan *p = NULL;
    int n_bounded = 0;

    machine_init(&m, rows, n_rows);
    assert_int_equal(plan_new(&p, &m.devs, NULL), ST_OK);
    for (uint64_t seed = first; seed < first + n; seed++) {
        struct rand_options o = {.seed = seed, .n_ops = n_ops, .scale = scale};
        struct rand_graph rg;
        struct err e = {0};

        assert_true(rand_graph_init(&rg, &m.devs, &o));
        if (sched_plan(p, &rg.g, &e) || alloc_plan(p, ao, &e) || check_alloc(p, &rg.g, &e))
            fail_msg("seed %d: %s", (int)seed, e.msg);
        for (int b = 0; b < p->n_bufs && bounded; b++) {
            size_t least = check_least(p, &rg.g, b);

            /* two computations of the bound, from counts and from lifetimes */
            assert_int_equal(least, p->bufs[b].least);
            if (least <= 64 << 10)
                continue;
            n_bounded++;
            if (p->bufs[b].size > least + least / 20)
                fail_msg("seed %d: %zu bytes are planned, %zu would do", (int)seed, p->bufs[b].size,
                         least);
        }
        rand_graph_release(&rg);
    }
    if (bounded)
        assert_true(n_bounded * 2 > (int)n);
    plan_free(p);
}

static void test_random_one_device(void **state)
{
    (void)state;
    random_plans(cpu, 1, 0, 1500, 60, 8, NULL, true);
    random_plans(cpu, 1, 5000, 150, 250, 4, NULL, true);
}

static void test_random_four_devices(void **state)
{
    (void)state;
    random_plans(four, 4, 0, 1500, 80, 8, NULL, true);
}

/* The walk alone keeps all promises but the bound. */
static void test_random_walk(void **state)
{
    struct alloc_options ao = {.walk_only = true};

    (void)state;
    random_plans(four, 4, 10000, 1500, 80, 1, &ao, false);
}

static void test_random_chunks(void **state)
{
    struct fake_row rows[4];

    (void)state;
    memcpy(rows, four, sizeof rows);
    for (int i = 0; i < 4; i++)
        rows[i].max_size = 100 << 10;
    random_plans(rows, 4, 20000, 500, 80, 1, NULL, false);
}

/* The same graph, the same plan, to the byte; also in a plan that was used for others before. */
static void test_replan(void **state)
{
    struct machine m;
    struct plan *p = NULL, *q = NULL;

    (void)state;
    machine_init(&m, four, 4);
    assert_int_equal(plan_new(&p, &m.devs, NULL), ST_OK);
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct rand_options o = {.seed = seed, .n_ops = 100, .scale = 4};
        struct rand_graph rg;
        struct err e;

        assert_true(rand_graph_init(&rg, &m.devs, &o));
        assert_int_equal(plan_new(&q, &m.devs, NULL), ST_OK);
        assert_int_equal(sched_plan(p, &rg.g, &e) || alloc_plan(p, NULL, &e), 0);
        assert_int_equal(sched_plan(q, &rg.g, &e) || alloc_plan(q, NULL, &e), 0);
        assert_int_equal(p->peak, q->peak);
        for (int i = 0; i < p->n_tensors; i++) {
            assert_int_equal(p->tensors[i].offs, q->tensors[i].offs);
            assert_int_equal(p->tensors[i].chunk, q->tensors[i].chunk);
        }
        plan_free(q);
        rand_graph_release(&rg);
    }
    plan_free(p);
}

/* The checker sees what a broken allocator would do: tensors are moved onto each other. */
static void test_checker(void **state)
{
    struct machine m;
    struct plan *p = NULL;
    struct rng r = {12345};
    int n_seen = 0, n_changes = 0;

    (void)state;
    machine_init(&m, cpu, 1);
    assert_int_equal(plan_new(&p, &m.devs, NULL), ST_OK);
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct rand_options o = {.seed = seed, .n_ops = 60};
        struct rand_graph rg;
        struct err e;
        struct plan_tensor *a, *b, old;

        assert_true(rand_graph_init(&rg, &m.devs, &o));
        assert_int_equal(sched_plan(p, &rg.g, &e) || alloc_plan(p, NULL, &e), 0);
        a = &p->tensors[rng_below(&r, p->n_tensors)];
        b = &p->tensors[rng_below(&r, p->n_tensors)];
        old = *a;
        if (a->buf >= 0) {
            n_changes++;
            a->offs += 4; /* not aligned */
            n_seen += check_alloc(p, &rg.g, &e) != ST_OK;
            *a = old;
            n_changes++;
            a->offs = p->chunks[0].size; /* outside */
            n_seen += check_alloc(p, &rg.g, &e) != ST_OK;
            *a = old;
        }
        /* inputs are all there at the start: none may be on another */
        if (a->buf >= 0 && b->buf >= 0 && a != b && a->op == OP_NONE && b->op == OP_NONE &&
            b->offs + a->size <= p->chunks[0].size) {
            n_changes++;
            a->offs = b->offs;
            n_seen += check_alloc(p, &rg.g, &e) != ST_OK;
        }
        rand_graph_release(&rg);
    }
    assert_true(n_changes > 200);
    assert_int_equal(n_seen, n_changes);
    plan_free(p);
}

/* ---- pipeline slots ---- */

static bool overlap(const struct plan_tensor *a, const struct plan_tensor *b)
{
    return a->buf >= 0 && a->buf == b->buf && a->chunk == b->chunk && a->offs < b->offs + b->size &&
           b->offs < a->offs + a->size;
}

/* What exists once per pipeline slot shares its memory with nothing, at no time; else all is as ever. */
static void test_random_slots(void **state)
{
    struct machine m;
    struct plan *p = NULL;
    int n_twins = 0, n_seen = 0;

    (void)state;
    machine_init(&m, four, 4);
    assert_int_equal(plan_new(&p, &m.devs, NULL), ST_OK);
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct rand_options o = {.seed = seed, .n_ops = 20 + (int)(seed % 80)};
        struct rand_graph rg;
        struct err e = {0};

        p->n_pipe = 1 + (int)(seed % 4);
        assert_true(rand_graph_init(&rg, &m.devs, &o));
        if (sched_plan(p, &rg.g, &e) || alloc_plan(p, NULL, &e) || check_alloc(p, &rg.g, &e))
            fail_msg("seed %d: %s", (int)seed, e.msg);
        for (int i = 0; i < p->n_tensors; i++) {
            struct plan_tensor *a = &p->tensors[i], old = *a;

            if (a->buf < 0 || (a->twin < 0 && a->twin_of < 0))
                continue;
            for (int k = 0; k < p->n_tensors; k++)
                assert_true(k == i || !overlap(a, &p->tensors[k]));
            if (a->twin_of < 0)
                continue;
            n_twins++;
            a->chunk = p->tensors[a->twin_of].chunk; /* the checker sees when it is not so */
            a->offs = p->tensors[a->twin_of].offs;
            n_seen += check_alloc(p, &rg.g, &e) != ST_OK;
            *a = old;
        }
        rand_graph_release(&rg);
    }
    assert_true(n_twins > 1000);
    assert_int_equal(n_seen, n_twins);
    plan_free(p);
}

/* ---- size and speed ---- */

/* 100,000 nodes in a chain. */
static void test_deep(void **state)
{
    enum { DEEP = 100000 };
    struct small s;
    struct tensor *x;
    struct err e;

    (void)state;
    small_init(&s, cpu, 1, DEEP + 1);
    s.p->check = false;
    x = leaf(&s, TENSOR_INPUT);
    for (int i = 0; i < DEEP; i++)
        x = i % 3 == 0   ? op_mul_mat(&s.g, x, x)
            : i % 3 == 1 ? op_scale(&s.g, x, 2, 0)
                         : op_transpose(&s.g, x);
    graph_expand(&s.g, x);
    /* 60 ms are usual; a quadratic walk would take minutes, more than the test has */
    assert_int_equal(sched_plan(s.p, &s.g, &e) || alloc_plan(s.p, NULL, &e), 0);
    assert_int_equal(check_alloc(s.p, &s.g, &e), ST_OK);
    assert_int_equal(s.p->peak, 2 * ONE);
    small_release(&s);
}

/* A model of 30 layers is planned close to the bound. */
static void test_llama(void **state)
{
    static struct tensor w[30][LLAMA_WEIGHTS];
    struct llama_memory mem;
    struct small s;
    struct err e;

    (void)state;
    small_init(&s, cpu, 1, 2048);
    s.p->check = false;
    for (int64_t n_tok = 512; n_tok > 0; n_tok /= 512) {
        const struct buft *bt = s.m.devs.dev[0]->buft;
        struct llama_graph o = {30, n_tok, &bt, 1, 1, &mem, w};

        llama_graph(&s.g, &o);
        assert_int_equal(graph_status(&s.g, &e), ST_OK);
        assert_int_equal(sched_plan(s.p, &s.g, &e) || alloc_plan(s.p, NULL, &e), 0);
        assert_int_equal(check_alloc(s.p, &s.g, &e), ST_OK);
        assert_true(s.p->peak <= s.p->least + s.p->least / 20);
        assert_true(s.p->sum_nodes > 20 * s.p->peak);
    }
    small_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_in_place),
        cmocka_unit_test(test_in_place_through_view),
        cmocka_unit_test(test_not_in_place),
        cmocka_unit_test(test_twice_the_same),
        cmocka_unit_test(test_row_of_itself),
        cmocka_unit_test(test_surplus),
        cmocka_unit_test(test_view_with_offset),
        cmocka_unit_test(test_what_stays),
        cmocka_unit_test(test_sinks_stay),
        cmocka_unit_test(test_late_input),
        cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_debug),
        cmocka_unit_test(test_random_one_device),
        cmocka_unit_test(test_random_four_devices),
        cmocka_unit_test(test_random_walk),
        cmocka_unit_test(test_random_chunks),
        cmocka_unit_test(test_replan),
        cmocka_unit_test(test_checker),
        cmocka_unit_test(test_random_slots),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_llama),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
