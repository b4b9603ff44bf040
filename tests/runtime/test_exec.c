/* Exec: random graphs computed against an evaluator that never reuses memory; growth, failure,
 * watching. */
#include "tests/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/base/log.h"
#include "gguf/base/mem.h"
#include "runtime/check.h"
#include "runtime/exec.h"
#include "runtime/plan.h"
#include "tests/runtime/fake_dev.h"
#include "tests/runtime/oracle.h"
#include "tests/runtime/rand_graph.h"

#define N 16

static const struct fake_row cpu[] = {
    {.name = "CPU", .kind = DEVICE_CPU, .shares = -1, .work = 100}};
static const struct fake_row two_cpus[] = {
    {.name = "DEV1", .kind = DEVICE_GPU, .shares = -1},
    {.name = "CPU", .kind = DEVICE_CPU, .shares = -1},
};
static const struct fake_row four[] = {
    {.name = "GPU0",
     .kind = DEVICE_GPU,
     .shares = -1,
     .holes = OP_BIT(OP_GET_ROWS),
     .alignment = 256,
     .offload = OP_BIT(OP_MUL_MAT),
     .opaque = true,
     .work = 1000},
    {.name = "GPU1",
     .kind = DEVICE_GPU,
     .shares = -1,
     .reads = 1 << 3,
     .pad = 100,
     .opaque = true,
     .holes = OP_BIT(OP_RMS_NORM) | OP_BIT(OP_SET_ROWS)},
    {.name = "BLAS", .kind = DEVICE_ACCEL, .shares = -1, .only = OP_BIT(OP_MUL_MAT)},
    {.name = "CPU", .kind = DEVICE_CPU, .shares = 2, .work = 500},
};

/* ---- helpers ---- */

static struct exec *new_exec(struct machine *m, const struct fake_row *rows, int n)
{
    struct exec_options opt = {.check = true};
    struct exec *x;

    machine_init(m, rows, n);
    assert_int_equal(exec_new(&x, &m->devs, &opt, NULL), ST_OK);
    return x;
}

static void plan_graph(struct exec *x, struct plan **p, struct graph *g)
{
    struct err e = {0};

    if (exec_plan(x, p, g, &e))
        fail_msg("%s", e.msg);
}

static void replay(struct exec *x, struct plan *p)
{
    struct err e = {0};

    mem_guard_begin();
    if (exec_replay(x, p, NULL, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(mem_guard_end(), 0); /* a replay allocates nothing */
}

/* A graph of one product and its sum with the input: two tensors more than the input. */
static struct tensor *build_small(struct graph *g, int64_t rows)
{
    struct tensor *x;

    graph_reset(g);
    x = named(graph_leaf(g, DT_F32, 2, (int64_t[]){N, rows}, TENSOR_INPUT), "x");
    x = named(op_add(g, named(op_mul_mat(g, x, x), "product"), op_mul_mat(g, x, x)), "sum");
    graph_expand(g, output(x));
    assert_int_equal(graph_status(g, NULL), ST_OK);
    return x;
}

/* ---- results ---- */

static void random_results(const struct fake_row *rows, int n_rows, uint64_t first, uint64_t n,
                           int n_ops)
{
    struct machine m, host;
    struct exec *x = new_exec(&m, rows, n_rows);
    struct plan *p = NULL;
    struct exec_stats stats;

    machine_init(&host, cpu, 1);
    for (uint64_t seed = first; seed < first + n; seed++) {
        struct rand_options o = {.seed = seed, .n_ops = n_ops, .memory = true};
        struct rand_graph rg, ref;
        struct oracle oracle;

        assert_true(rand_graph_init(&rg, &m.devs, &o));
        assert_true(rand_graph_init(&ref, &host.devs, &o));
        oracle_init(&oracle, &ref.g);
        plan_graph(x, &p, &rg.g); /* memory of earlier, larger and smaller graphs is used again */
        for (int run = 0; run < 3; run++) {
            write_inputs(&rg.g, run);
            replay(x, p);
            assert_string_equal(m.wrong, "");
            oracle_run(&oracle, run);
            results_are(&rg.g, &oracle, seed, run);
        }
        assert_int_equal(check_bind(p, &rg.g, NULL), ST_OK);
        oracle_release(&oracle);
        rand_graph_release(&rg);
        rand_graph_release(&ref);
    }
    exec_stats(x, &stats);
    assert_int_equal(stats.replays, 3 * n);
    assert_int_equal(stats.plans, n);
    for (int d = 0; d < n_rows; d++)
        assert_true(m.fakes[d].n_computed > 0);
    assert_true((stats.copies > 0) == (n_rows > 1));
    plan_free(p);
    exec_free(x);
}

static void test_one_device(void **state)
{
    (void)state;
    random_results(cpu, 1, 0, 150, 60);
}

static void test_two_devices(void **state)
{
    (void)state;
    random_results(two_cpus, 2, 0, 150, 60);
}

static void test_four_devices(void **state)
{
    (void)state;
    random_results(four, 4, 0, 300, 60);
    random_results(four, 4, 5000, 10, 400);
}

/* The real CPU: spans in reused memory against its own kernels, one node at a time in fresh memory. */
static void test_real_cpu(void **state)
{
    struct device_options dopt = {.n_threads = 2};
    struct exec_options opt = {.check = true};
    struct devices devs;
    struct exec *x;
    struct plan *p = NULL;
    int n = 0;

    (void)state;
    assert_int_equal(devices_open(&devs, &dopt, NULL), ST_OK);
    assert_int_equal(exec_new(&x, &devs, &opt, NULL), ST_OK);
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct rand_options o = {.seed = seed, .n_ops = 30, .memory = true};
        struct rand_graph rg, ref;
        struct oracle oracle;
        struct err e;
        enum status st;

        assert_true(rand_graph_init(&rg, &devs, &o));
        assert_true(rand_graph_init(&ref, &devs, &o));
        oracle_init(&oracle, &ref.g);
        oracle.dev = devices_cpu(&devs);
        st = exec_plan(x, &p, &rg.g, &e);
        for (int run = 0; run < 2 && !st; run++) {
            write_inputs(&rg.g, run);
            replay(x, p);
            oracle_run(&oracle, run);
            results_are(&rg.g, &oracle, seed, run);
            n++;
        }
        assert_true(st == ST_OK || st == ST_UNSUPPORTED); /* a layout that the CPU does not take */
        oracle_release(&oracle);
        rand_graph_release(&rg);
        rand_graph_release(&ref);
    }
    print_message("%d runs on the real CPU\n", n);
    assert_true(n > 40);
    plan_free(p);
    exec_free(x);
    devices_close(&devs);
}

/* The same graph planned again, computed again: its own buffers are not taken for somebody's data. */
static void test_same_graph_again(void **state)
{
    struct machine m, host;
    struct exec *x = new_exec(&m, two_cpus, 2);
    struct rand_options o = {.seed = 11, .n_ops = 120, .memory = true};
    struct rand_graph rg, ref;
    struct oracle oracle;
    struct plan *p = NULL;

    (void)state;
    machine_init(&host, cpu, 1);
    assert_true(rand_graph_init(&rg, &m.devs, &o));
    assert_true(rand_graph_init(&ref, &host.devs, &o));
    oracle_init(&oracle, &ref.g);
    for (int run = 0; run < 3; run++) {
        int splits = p ? p->n_splits : 0;
        size_t peak = p ? p->peak : 0;

        plan_graph(x, &p, &rg.g);
        assert_true(run == 0 || (p->n_splits == splits && p->peak == peak));
        write_inputs(&rg.g, 0);
        replay(x, p);
        if (run == 0)
            oracle_run(&oracle, 0);
    }
    /* caches have been written three times with the same rows */
    results_are(&rg.g, &oracle, o.seed, 2);
    oracle_release(&oracle);
    plan_free(p);
    exec_free(x);
    rand_graph_release(&rg);
    rand_graph_release(&ref);
}

/* ---- memory ---- */

static uint64_t allocated(const struct exec *x, const char *name)
{
    static struct exec_stats s;

    exec_stats(x, &s);
    for (int i = 0; i < s.n_buffers; i++) {
        if (strcmp(s.buffers[i].name, name) == 0)
            return s.buffers[i].n_allocated;
    }
    return 0;
}

/* Reserve once: what fits causes no growth; what does not grows, and the earlier plan is bound
 * again. */
static void test_reserve_and_regrow(void **state)
{
    struct machine m;
    struct exec *x = new_exec(&m, cpu, 1);
    struct graph g[2];
    struct plan *p[2] = {NULL, NULL};
    struct exec_stats s;
    struct tensor *small;
    float want[N * N], got[N * N], one[N * N];

    (void)state;
    for (int i = 0; i < N * N; i++)
        one[i] = 1;
    assert_int_equal(graph_init(&g[0], 16, NULL), ST_OK);
    assert_int_equal(graph_init(&g[1], 16, NULL), ST_OK);
    build_small(&g[0], 64);
    assert_int_equal(exec_reserve(x, &g[0], NULL), ST_OK);
    assert_null(g[0].nodes[0]->buffer);
    build_small(&g[0], 8);
    assert_int_equal(exec_reserve(x, &g[0], NULL), ST_OK);
    exec_stats(x, &s);
    assert_int_equal(s.buffers[0].n_allocated, 0);
    assert_int_equal(exec_reserve_done(x, NULL), ST_OK);
    exec_stats(x, &s);
    assert_string_equal(s.buffers[0].name, "CPU compute");
    assert_int_equal(s.buffers[0].n_planned, 64 * N * 4 + 2 * 64 * 64 * 4);
    assert_int_equal(s.buffers[0].n_allocated, s.buffers[0].n_planned);
    assert_string_equal(s.buffers[1].name, "CPU scratch");
    assert_int_equal(s.buffers[1].n_allocated, 100);

    small = build_small(&g[0], N);
    plan_graph(x, &p[0], &g[0]);
    tensor_set(g[0].leafs[0], 0, one, sizeof one, NULL);
    replay(x, p[0]);
    tensor_get(small, 0, want, sizeof want, NULL);
    exec_stats(x, &s);
    assert_int_equal(s.regrows, 0);
    assert_int_equal(s.rebinds, 0);

    build_small(&g[1], 65);
    plan_graph(x, &p[1], &g[1]);
    exec_stats(x, &s);
    assert_int_equal(s.regrows, 1);
    assert_int_equal(s.rebinds, 1);
    assert_true(allocated(x, "CPU compute") > s.buffers[0].n_planned);
    tensor_set(g[0].leafs[0], 0, one, sizeof one, NULL); /* at its new address */
    replay(x, p[0]);
    tensor_get(small, 0, got, sizeof got, NULL);
    assert_memory_equal(got, want, sizeof want);
    assert_int_equal(check_bind(p[0], &g[0], NULL), ST_OK);
    plan_free(p[0]);
    plan_free(p[1]);
    exec_free(x);
    graph_release(&g[0]);
    graph_release(&g[1]);
}

/* A memory limit: refused with numbers, and what was planned before still works. */
static enum status limited_alloc(const struct buft *bt, struct buffer *b, struct err *e)
{
    if (b->size > 10000)
        return err_set(e, ST_NOMEM,
                       "not enough memory on '%s': %zu bytes are needed, 10000 are free", bt->name,
                       b->size);
    b->base = mem_pages(b->size);
    return b->base ? ST_OK : err_nomem(e, bt->name, b->size);
}

static void limited_release(const struct buft *bt, struct buffer *b)
{
    (void)bt;
    mem_pages_free(b->base, b->size);
}

static void test_does_not_fit(void **state)
{
    struct machine m;
    struct exec *x = new_exec(&m, cpu, 1);
    struct graph g[2];
    struct plan *p[2] = {NULL, NULL};
    struct err e;

    (void)state;
    m.fakes[0].bt.alloc = limited_alloc;
    m.fakes[0].bt.release = limited_release;
    assert_int_equal(graph_init(&g[0], 16, NULL), ST_OK);
    assert_int_equal(graph_init(&g[1], 16, NULL), ST_OK);
    build_small(&g[0], 8);
    plan_graph(x, &p[0], &g[0]);
    build_small(&g[1], 100);
    assert_int_equal(exec_plan(x, &p[1], &g[1], &e), ST_NOMEM);
    assert_string_equal(
        e.msg,
        "not enough memory on 'CPU': the compute buffer (most of it for 'product', 39.1 KiB) "
        "needs 84.4 KiB; try a smaller micro-batch (-ub) or context (-c)");
    assert_null(p[1]);
    write_inputs(&g[0], 0);
    replay(x, p[0]);
    assert_int_equal(exec_reserve(x, &g[1], &e), ST_OK);
    assert_int_equal(exec_reserve_done(x, &e), ST_NOMEM);
    /* a plan that failed is not replayed, and may be used for another graph */
    assert_int_equal(exec_plan(x, &p[0], &g[1], &e), ST_NOMEM);
    assert_int_equal(exec_replay(x, p[0], NULL, &e), ST_NOMEM);
    plan_graph(x, &p[0], &g[0]);
    write_inputs(&g[0], 0);
    replay(x, p[0]);
    plan_free(p[0]);
    exec_free(x);
    graph_release(&g[0]);
    graph_release(&g[1]);
}

/* Let the n-th allocation fail, for every n: a status, nothing lost, and a later call works. */
static void test_out_of_memory(void **state)
{
    struct machine m;
    struct rand_options o = {.seed = 5, .n_ops = 120, .scale = 2, .memory = true};
    struct exec_options opt = {.check = true};
    struct rand_graph rg;
    struct err e;
    int n = 0;

    (void)state;
    machine_init(&m, four, 4);
    assert_true(rand_graph_init(&rg, &m.devs, &o));
    for (bool done = false; !done; n++) {
        struct exec *x = NULL;
        struct plan *p = NULL;
        enum status st;

        for (int i = 0; i < rg.g.n_nodes + rg.g.n_leafs; i++) { /* as if just built */
            struct tensor *t = i < rg.g.n_nodes ? rg.g.nodes[i] : rg.g.leafs[i - rg.g.n_nodes];
            if (t >= rg.g.pool.t && t < rg.g.pool.t + rg.g.pool.cap) {
                t->buffer = NULL;
                t->data = NULL;
            }
        }
        mem_fail_at((uint64_t)n + 1);
        st = exec_new(&x, &m.devs, &opt, &e);
        if (!st)
            st = exec_reserve(x, &rg.g, &e);
        if (!st)
            st = exec_reserve_done(x, &e);
        if (!st)
            st = exec_plan(x, &p, &rg.g, &e);
        mem_fail_at(0);
        done = st == ST_OK;
        if (!done) {
            assert_int_equal(st, ST_NOMEM);
            assert_true(strlen(e.msg) > 10);
        }
        if (x) {
            plan_graph(x, &p, &rg.g);
            write_inputs(&rg.g, 0);
            replay(x, p);
        }
        plan_free(p);
        exec_free(x);
    }
    print_message("%d allocations failed in turn\n", n - 1);
    assert_true(n > 50);
    rand_graph_release(&rg);
}

/* Without memory: plans and sizes are the same, nothing is bound, replay is refused. */
static void test_dry(void **state)
{
    struct machine m;
    struct exec_options opt = {.check = true, .dry = true};
    struct exec *wet = new_exec(&m, four, 4), *x;
    struct exec_stats s[2];
    struct plan *p = NULL, *q = NULL;
    struct rand_options o = {.seed = 3, .n_ops = 100};
    struct rand_graph rg;
    struct err e;

    (void)state;
    assert_int_equal(exec_new(&x, &m.devs, &opt, NULL), ST_OK);
    assert_true(rand_graph_init(&rg, &m.devs, &o)); /* weights are descriptions */
    assert_int_equal(exec_reserve(x, &rg.g, &e), ST_OK);
    assert_int_equal(exec_reserve_done(x, &e), ST_OK);
    plan_graph(x, &p, &rg.g);
    for (int i = 0; i < rg.g.n_nodes; i++) {
        assert_non_null(rg.g.nodes[i]->buffer);
        assert_null(rg.g.nodes[i]->data);
    }
    assert_int_equal(exec_replay(x, p, NULL, &e), ST_UNSUPPORTED);
    exec_stats(x, &s[0]);
    assert_int_equal(s[0].regrows, 0);
    rand_graph_release(&rg);
    assert_true(rand_graph_init(&rg, &m.devs, &o));
    assert_int_equal(exec_reserve(wet, &rg.g, &e), ST_OK);
    assert_int_equal(exec_reserve_done(wet, &e), ST_OK);
    plan_graph(wet, &q, &rg.g);
    assert_true(plan_equal(p, q));
    exec_stats(wet, &s[1]);
    assert_int_equal(s[0].n_buffers, s[1].n_buffers);
    assert_int_equal(s[0].peak, s[1].peak);
    for (int i = 0; i < s[0].n_buffers; i++) {
        assert_int_equal(s[0].buffers[i].n_planned, s[1].buffers[i].n_planned);
        assert_int_equal(s[0].buffers[i].n_allocated, 0);
        /* a run requests exactly what was planned */
        assert_int_equal(s[1].buffers[i].n_allocated, s[1].buffers[i].n_planned);
    }
    plan_free(p);
    plan_free(q);
    exec_free(x);
    exec_free(wet);
    rand_graph_release(&rg);
}

/* An exec's own tensors are another's external ones. */
static void test_result_as_input(void **state)
{
    struct machine m;
    struct exec *x = new_exec(&m, cpu, 1), *y;
    struct graph g[2];
    struct plan *p = NULL, *q = NULL;
    struct tensor *a, *b;
    float got[N * N], ones[N * N];

    (void)state;
    for (int i = 0; i < N * N; i++)
        ones[i] = 1;
    assert_int_equal(exec_new(&y, &m.devs, NULL, NULL), ST_OK);
    assert_int_equal(graph_init(&g[0], 16, NULL), ST_OK);
    assert_int_equal(graph_init(&g[1], 16, NULL), ST_OK);
    a = build_small(&g[0], N);
    plan_graph(x, &p, &g[0]);
    b = op_scale(&g[1], a, 2, 0);
    b->src[0] = named(graph_leaf(&g[1], DT_F32, 2, (int64_t[]){N, N}, 0), "from x");
    b->src[0]->buffer = a->buffer;
    b->src[0]->data = a->data;
    graph_expand(&g[1], b);
    plan_graph(y, &q, &g[1]);
    assert_ptr_equal(b->src[0]->data, a->data);
    tensor_set(g[0].leafs[0], 0, ones, sizeof ones, NULL);
    replay(x, p);
    replay(y, q);
    tensor_get(b, 0, got, sizeof got, NULL);
    assert_true(got[0] == 2 * 2 * N * 0.125f);
    plan_free(p);
    plan_free(q);
    exec_free(x);
    exec_free(y);
    graph_release(&g[0]);
    graph_release(&g[1]);
}

/* ---- watching, stopping, logging ---- */

struct seen {
    const struct graph *g;
    const struct oracle *o;
    int n_asked, n_shown, stop_at;
};

/* Ask for everything; each node's data is that of the evaluator at this moment. */
static bool watch_all(void *ctx, const struct tensor *t, bool ask)
{
    struct seen *s = ctx;
    float got, want;

    if (ask) {
        s->n_asked++;
        return true;
    }
    s->n_shown++;
    if (s->o && tensor_owner(t)->buffer->usage == USAGE_COMPUTE) {
        const struct tensor *r = s->o->g->nodes[graph_node_index(s->g, t)];

        assert_int_equal(tensor_get(t, 0, &got, sizeof got, NULL), ST_OK);
        memcpy(&want, oracle_data(s->o, r), sizeof want);
        assert_true(memcmp(&got, &want, sizeof got) == 0);
    }
    return s->n_shown != s->stop_at;
}

static void test_watch(void **state)
{
    struct machine m, host;
    struct exec *x = new_exec(&m, four, 4);
    struct plan *p = NULL;

    (void)state;
    machine_init(&host, cpu, 1);
    for (uint64_t seed = 0; seed < 50; seed++) {
        /* without ops that overwrite, a node's value is the same at every later time */
        struct rand_options o = {.seed = seed, .n_ops = 60, .memory = true, .plain_inputs = true};
        struct rand_graph rg, ref;
        struct oracle oracle;
        struct seen seen = {.stop_at = -1};
        struct replay r = {.watch = watch_all, .watch_ctx = &seen};
        int n_computed = 0;

        assert_true(rand_graph_init(&rg, &m.devs, &o));
        assert_true(rand_graph_init(&ref, &host.devs, &o));
        oracle_init(&oracle, &ref.g);
        oracle_run(&oracle, 0);
        seen.g = &rg.g;
        seen.o = &oracle;
        plan_graph(x, &p, &rg.g);
        write_inputs(&rg.g, 0);
        assert_int_equal(exec_replay(x, p, &r, NULL), ST_OK);
        for (int i = 0; i < rg.g.n_nodes; i++)
            n_computed += (rg.g.nodes[i]->flags & TENSOR_COMPUTE) != 0;
        assert_int_equal(seen.n_asked, p->n_splits ? n_computed : 0);
        assert_int_equal(seen.n_shown, seen.n_asked);
        seen = (struct seen){.g = &rg.g, .stop_at = 1};
        assert_int_equal(exec_replay(x, p, &r, NULL), ST_OK);
        assert_int_equal(seen.n_shown, p->n_splits > 0);
        oracle_release(&oracle);
        rand_graph_release(&rg);
        rand_graph_release(&ref);
    }
    plan_free(p);
    exec_free(x);
}

static void test_cancel(void **state)
{
    struct machine m;
    struct exec *x = new_exec(&m, cpu, 1);
    atomic_bool cancel = true;
    struct replay r = {.cancel = &cancel};
    struct graph g;
    struct plan *p = NULL;
    struct err e;

    (void)state;
    assert_int_equal(graph_init(&g, 16, NULL), ST_OK);
    build_small(&g, 8);
    plan_graph(x, &p, &g);
    write_inputs(&g, 0);
    assert_int_equal(exec_replay(x, p, &r, &e), ST_CANCELLED);
    assert_int_equal(m.fakes[0].n_computed, 0);
    cancel = false;
    assert_int_equal(exec_replay(x, p, &r, &e), ST_OK);
    assert_int_equal(m.fakes[0].n_computed, 3);
    plan_free(p);
    exec_free(x);
    graph_release(&g);
}

static void keep_lines(void *ctx, enum log_level level, const char *line)
{
    char *all = ctx;

    assert_int_equal(level, LOG_DEBUG);
    assert_true(strlen(all) + strlen(line) < 8000);
    strcat(strcat(all, line), "\n");
}

static void test_debug(void **state)
{
    struct machine m;
    struct exec_options opt = {.sched_debug = 2, .alloc_debug = true, .exec_debug = true};
    struct exec *x;
    struct graph g;
    struct plan *p = NULL;
    char lines[8192] = "";

    (void)state;
    machine_init(&m, cpu, 1);
    assert_int_equal(exec_new(&x, &m.devs, &opt, NULL), ST_OK);
    assert_int_equal(graph_init(&g, 16, NULL), ST_OK);
    build_small(&g, 8);
    log_set_sink(keep_lines, lines, LOG_DEBUG);
    plan_graph(x, &p, &g);
    write_inputs(&g, 0);
    replay(x, p);
    log_set_sink(NULL, NULL, LOG_WARN);
    assert_non_null(strstr(lines, "split 0: CPU, nodes 0..2, 3 computed\n"));
    assert_non_null(strstr(lines, "  0 product MUL_MAT 8x8 f32 CPU 3.best 256 B\n"));
    assert_non_null(strstr(lines, "alloc: 'sum' in place of 'product'\n"));
    assert_non_null(strstr(lines, "exec: product MUL_MAT CPU mul_mat_naive "));
    assert_non_null(strstr(lines, "exec: sum ADD CPU naive "));
    plan_free(p);
    exec_free(x);
    graph_release(&g);
}

/* One span per split when nobody watches; its name is new after each binding. */
static void test_spans(void **state)
{
    struct machine m;
    struct exec *x = new_exec(&m, cpu, 1);
    struct graph g;
    struct plan *p = NULL;
    uint64_t uid;

    (void)state;
    assert_int_equal(graph_init(&g, 16, NULL), ST_OK);
    build_small(&g, 8);
    plan_graph(x, &p, &g);
    uid = p->uid;
    assert_int_not_equal(uid, 0);
    write_inputs(&g, 0);
    replay(x, p);
    assert_int_equal(m.fakes[0].n_spans, 1);
    assert_int_equal(p->uid, uid);
    plan_graph(x, &p, &g);
    assert_int_not_equal(p->uid, uid);
    plan_free(p);
    exec_free(x);
    graph_release(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_device),
        cmocka_unit_test(test_two_devices),
        cmocka_unit_test(test_four_devices),
        cmocka_unit_test(test_real_cpu),
        cmocka_unit_test(test_same_graph_again),
        cmocka_unit_test(test_reserve_and_regrow),
        cmocka_unit_test(test_does_not_fit),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_dry),
        cmocka_unit_test(test_result_as_input),
        cmocka_unit_test(test_watch),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_debug),
        cmocka_unit_test(test_spans),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
