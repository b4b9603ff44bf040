/*
 * Replay over devices with queues: simulated accelerators that take their time. Random graphs against
 * the CPU's own kernels, and how often the host waits.
 */
#include "tests/unit.h"

#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/check.h"
#include "runtime/exec.h"
#include "runtime/plan.h"
#include "tests/runtime/oracle.h"
#include "tests/runtime/rand_graph.h"
#include "tests/runtime/sims.h"

static struct err err;

/* ---- simulated accelerators and the CPU, the host's waits counted ---- */

struct waits {
    int synchronize, event; /* calls of the host */
} waits;

static const char *fails; /* the device whose work has failed when it is waited for next */

static const struct device_ops *sim_ops;
static struct device_ops counted;

static enum status count_synchronize(struct device *d, struct err *e)
{
    enum status st = sim_ops->synchronize(d, e);

    waits.synchronize++;
    if (!fails || strcmp(fails, d->name))
        return st;
    fails = NULL;
    return err_set(e, ST_DEVICE, "'%s' failed", d->name);
}

static enum status count_event(struct event *ev, struct err *e)
{
    waits.event++;
    return sim_ops->event_synchronize(ev, e);
}

static void open_devices(struct devices *d, const struct sim_options *o)
{
    assert_int_equal(sims_open(d, o, &err), ST_OK);
    sim_ops = d->dev[0]->ops;
    counted = *sim_ops;
    counted.synchronize = count_synchronize;
    counted.event_synchronize = count_event;
    for (int i = 0; i < o->n; i++)
        d->dev[i]->ops = &counted;
}

static void replay(struct exec *x, struct plan *p)
{
    if (exec_replay(x, p, NULL, &err))
        fail_msg("%s", err.msg);
}

/* ---- results ---- */

struct world {
    int n_sims, n_slots;
    uint64_t first, n; /* seeds */
    int n_ops;
    uint64_t op_ns;
    double byte_ns;
    enum sims_kind kind;
};

/* Runs [from, to), waited for at the end only; results are those of the last. */
static void some_runs(struct exec *x, struct plan *p, struct graph *g, int from, int to)
{
    for (int run = from; run < to; run++) {
        if (exec_begin(x, p, &err))
            fail_msg("%s", err.msg);
        write_inputs(g, run);
        if (exec_submit(x, p, NULL, &err))
            fail_msg("%s", err.msg);
    }
    if (exec_wait(x, &err))
        fail_msg("%s", err.msg);
}

static int runs_of(struct exec *x, struct plan **p, const struct world *w,
                   const struct devices *devs, uint64_t seed)
{
    struct devices host = {.dev = &devs->dev[devs->n - 1], .n = 1};
    struct rand_options o = {.seed = seed, .n_ops = w->n_ops, .memory = true};
    struct rand_graph rg, ref;
    struct oracle oracle;
    enum status st;
    int run = 0;

    assert_true(rand_graph_init(&rg, devs, &o));
    assert_true(rand_graph_init(&ref, &host, &o));
    oracle_init(&oracle, &ref.g);
    oracle.dev = host.dev[0];
    st = exec_plan(x, p, &rg.g, &err);
    assert_true(st == ST_OK || st == ST_UNSUPPORTED); /* a layout that the CPU does not take */
    for (int next; run < 8 && !st; run = next) {
        next = run + 1 + (int)(seed + (uint64_t)run) % 5;
        some_runs(x, *p, &rg.g, run, next);
        for (int k = run; k < next; k++)
            oracle_run(&oracle, k); /* caches remember every run */
        results_are(&rg.g, &oracle, seed, next - 1);
        assert_int_equal(check_bind(*p, &rg.g, &err), ST_OK);
    }
    oracle_release(&oracle);
    rand_graph_release(&rg);
    rand_graph_release(&ref);
    return run;
}

static void random_results(const struct world *w)
{
    struct exec_options opt = {.check = true, .n_slots = w->n_slots};
    struct devices devs;
    struct exec *x;
    struct exec_stats stats;
    struct plan *p = NULL;
    int runs = 0;

    open_devices(&devs,
                 &(struct sim_options){.n = w->n_sims, .op_ns = w->op_ns, .byte_ns = w->byte_ns});
    sims_turn(&devs, w->kind);
    assert_int_equal(exec_new(&x, &devs, &opt, &err), ST_OK);
    for (uint64_t seed = w->first; seed < w->first + w->n; seed++)
        runs += runs_of(x, &p, w, &devs, seed);
    exec_stats(x, &stats);
    print_message("%d runs over %d devices, %d slots: %d copies\n", runs, w->n_sims + 1, w->n_slots,
                  (int)stats.copies);
    assert_true(runs > (int)w->n / 2);
    assert_int_equal(stats.replays, runs);
    assert_true(stats.copies > (uint64_t)runs);
    plan_free(p);
    exec_free(x);
    devices_close(&devs);
}

static void test_one_slot(void **state)
{
    (void)state;
    random_results(&(struct world){1, 1, .first = 0, .n = 60, .n_ops = 30});
    random_results(&(struct world){1, 1, .first = 100, .n = 20, .n_ops = 30, .op_ns = 20000});
    random_results(&(struct world){3, 1, .first = 200, .n = 60, .n_ops = 40});
    random_results(&(struct world){3, 1, .first = 300, .n = 20, .n_ops = 40, .op_ns = 20000});
    random_results(&(struct world){3, 1, .first = 400, .n = 20, .n_ops = 40, .byte_ns = 20});
    random_results(&(struct world){4, 1, .first = 600, .n = 40, .n_ops = 80, .op_ns = 50000});
}

static void test_more_slots(void **state)
{
    (void)state;
    random_results(&(struct world){1, 2, .first = 0, .n = 60, .n_ops = 30});
    random_results(&(struct world){1, 3, .first = 100, .n = 20, .n_ops = 30, .op_ns = 20000});
    random_results(&(struct world){3, 2, .first = 200, .n = 60, .n_ops = 40});
    random_results(&(struct world){3, 2, .first = 300, .n = 20, .n_ops = 40, .op_ns = 20000});
    random_results(&(struct world){3, 8, .first = 400, .n = 20, .n_ops = 40, .byte_ns = 20});
    random_results(&(struct world){2, 3, .first = 500, .n = 20, .n_ops = 80, .byte_ns = 5});
}

/* Without queue functions, and where queues cannot copy into each other's memory. */
static void test_kinds(void **state)
{
    (void)state;
    for (enum sims_kind kind = SIMS_NO_QUEUE; kind <= SIMS_STRANGERS; kind++) {
        random_results(&(struct world){3, 1, 200, .n = 60, .n_ops = 40, .kind = kind});
        random_results(
            &(struct world){3, 1, 300, .n = 20, .n_ops = 40, .op_ns = 20000, .kind = kind});
        random_results(&(struct world){3, 2, 200, .n = 60, .n_ops = 40, .kind = kind});
        random_results(
            &(struct world){3, 3, 300, .n = 20, .n_ops = 40, .byte_ns = 10, .kind = kind});
    }
}

/* ---- waiting ---- */

#define N 16

/* A chain over devices: the matrix of step i is in the memory of device place[i]. */
struct chain {
    struct devices devs;
    struct graph g;
    struct tensor w[8];
    struct buffer b[8];
    struct tensor *x, *y;
    struct exec *exec;
    struct plan *p;
    int n;
};

static void chain_init(struct chain *c, int n_sims, int n_slots, const int *place, int n)
{
    struct exec_options opt = {.check = true, .n_slots = n_slots};
    float eye[N * N] = {0};
    struct tensor *t;

    memset(c, 0, sizeof *c);
    c->n = n;
    open_devices(&c->devs, &(struct sim_options){.n = n_sims});
    for (int i = 0; i < N; i++)
        eye[i * N + i] = 2;
    assert_int_equal(graph_init(&c->g, 64, &err), ST_OK);
    t = c->x = named(graph_leaf(&c->g, DT_F32, 2, (int64_t[]){N, 4}, TENSOR_INPUT), "x");
    for (int i = 0; i < n; i++) {
        assert_true(tensor_set_shape(&c->w[i], DT_F32, 2, (int64_t[]){N, N}));
        assert_int_equal(
            buffer_init(&c->b[i], c->devs.dev[place[i]]->buft, sizeof eye, USAGE_WEIGHTS, &err),
            ST_OK);
        c->w[i].buffer = &c->b[i];
        c->w[i].data = c->b[i].base;
        tensor_set(&c->w[i], 0, eye, sizeof eye, NULL);
        t = op_mul_mat(&c->g, &c->w[i], t);
    }
    c->y = output(t);
    graph_expand(&c->g, t);
    assert_int_equal(exec_new(&c->exec, &c->devs, &opt, &err), ST_OK);
    assert_int_equal(exec_plan(c->exec, &c->p, &c->g, &err), ST_OK);
    assert_int_equal(c->p->n_splits, n);
}

static void chain_release(struct chain *c)
{
    plan_free(c->p);
    exec_free(c->exec);
    for (int i = 0; i < c->n; i++)
        buffer_release(&c->b[i]);
    graph_release(&c->g);
    devices_close(&c->devs);
}

/* Replay a chain over `place` and say how often the host waited. */
static struct waits waits_of(int n_sims, const int *place, int n)
{
    struct chain c;
    float in[N * 4], got[N * 4];
    struct waits w;

    for (int i = 0; i < N * 4; i++)
        in[i] = (float)i;
    chain_init(&c, n_sims, 1, place, n);
    tensor_set(c.x, 0, in, sizeof in, NULL);
    waits = (struct waits){0};
    replay(c.exec, c.p);
    w = waits;
    tensor_get(c.y, 0, got, sizeof got, NULL);
    for (int i = 0; i < N * 4; i++)
        assert_true(got[i] == in[i] * (float)(1 << n));
    chain_release(&c);
    return w;
}

static void test_waits(void **state)
{
    struct waits w;

    (void)state;
    /* from device to device: only for the results, once per device */
    w = waits_of(3, (int[]){0, 1, 2, 0, 1, 2}, 6);
    assert_int_equal(w.synchronize, 3);
    assert_int_equal(w.event, 0);
    /* through the CPU: for its memory that a queue may still read, and for what it reads */
    w = waits_of(2, (int[]){2, 0, 2, 1, 2}, 5);
    assert_int_equal(w.synchronize, 2);
    assert_int_equal(w.event, 2);
    w = waits_of(2, (int[]){2, 0, 1, 2}, 4);
    assert_int_equal(w.synchronize, 2); /* SIM0 at the end, when nothing is in work any more */
    assert_int_equal(w.event, 1);
}

static void begin_and_submit(struct chain *c, struct plan *p)
{
    assert_int_equal(exec_begin(c->exec, p, &err), ST_OK);
    assert_int_equal(exec_submit(c->exec, p, NULL, &err), ST_OK);
}

/* With slots: for the slot's last replay when it is begun, for all before a plan is made or changed. */
static void test_slot_waits(void **state)
{
    struct chain c;
    struct plan *q = NULL;
    struct graph g;

    (void)state;
    chain_init(&c, 2, 2, (int[]){0, 1}, 2);
    waits = (struct waits){0};
    begin_and_submit(&c, c.p);
    begin_and_submit(&c, c.p);
    assert_true(waits.synchronize == 0 && waits.event == 0);
    begin_and_submit(&c, c.p);
    assert_true(waits.synchronize == 0 && waits.event == 2);
    assert_int_equal(graph_init(&g, 16, &err), ST_OK);
    graph_expand(&g, op_scale(&g, graph_leaf(&g, DT_F32, 1, (int64_t[]){N}, TENSOR_INPUT), 2, 0));
    assert_int_equal(exec_plan(c.exec, &q, &g, &err), ST_OK);
    assert_int_equal(waits.synchronize, 2);
    begin_and_submit(&c, c.p);
    assert_int_equal(waits.synchronize, 2);
    begin_and_submit(&c, q);
    assert_int_equal(waits.synchronize, 4);
    plan_free(q);
    graph_release(&g);
    chain_release(&c);
}

/* What fails while nobody waits is told by who waits next, once. */
static void test_late_failure(void **state)
{
    struct chain c;
    struct plan *q;

    (void)state;
    chain_init(&c, 2, 2, (int[]){0, 1, 0}, 3);
    q = c.p;
    for (int i = 0; i < 2; i++) {
        fails = i ? "SIM0" : "SIM1";
        begin_and_submit(&c, c.p);
        begin_and_submit(&c, c.p);
        if (i)
            assert_int_equal(exec_plan(c.exec, &q, &c.g, &err), ST_DEVICE);
        else
            assert_int_equal(exec_wait(c.exec, &err), ST_DEVICE);
        assert_string_equal(err.msg, i ? "'SIM0' failed" : "'SIM1' failed");
        assert_int_equal(exec_wait(c.exec, &err), ST_OK);
        replay(c.exec, c.p);
    }
    chain_release(&c);
}

/* A replay allocates nothing. What a simulated queue keeps for its jobs has its size after a while. */
static void test_no_allocation(void **state)
{
    struct chain c;

    (void)state;
    chain_init(&c, 2, 3, (int[]){2, 0, 1, 2, 1}, 5);
    for (int i = 0; i < 100; i++)
        begin_and_submit(&c, c.p);
    mem_guard_begin();
    for (int i = 0; i < 100; i++)
        begin_and_submit(&c, c.p);
    assert_int_equal(mem_guard_end(), 0);
    chain_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_slot),      cmocka_unit_test(test_more_slots),
        cmocka_unit_test(test_kinds),         cmocka_unit_test(test_waits),
        cmocka_unit_test(test_slot_waits),    cmocka_unit_test(test_late_failure),
        cmocka_unit_test(test_no_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
