/*
 * How long planning takes, per node of graphs of any length over two accelerators and the CPU; and what a
 * replay costs beside its kernels. To be run by hand on a quiet machine, or by `meson test --benchmark`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "gguf/base/mem.h"
#include "runtime/alloc.h"
#include "runtime/exec.h"
#include "runtime/sched.h"
#include "tests/runtime/described.h"
#include "tests/runtime/fake_dev.h"
#include "tests/runtime/llama_graph.h"
#include "tests/runtime/model_graph.h"

#define N_BEST 5

static struct err err;

static void must(enum status st)
{
    if (!st)
        return;
    fprintf(stderr, "%s: %s\n", status_name(st), err.msg);
    exit(1);
}

static double now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec * 1e-6;
}

/* ---- planning ---- */

struct times {
    double build, sched, alloc; /* ms, each the best */
};

static void best(double *t, double since)
{
    double ms = now_ms() - since;

    if (*t == 0 || ms < *t)
        *t = ms;
}

static void print_times(const struct plan *p, const char *what, const struct times *t)
{
    double plan = t->sched + t->alloc;

    printf("%-16s %6d nodes %5d splits  build %7.2f ms  schedule %7.2f  allocate %7.2f  plan %7.2f"
           "  %4.0f ns/node\n",
           what, p->n_nodes, p->n_splits, t->build, t->sched, t->alloc, plan,
           plan * 1e6 / p->n_nodes);
}

/* Decode graphs of about n_nodes; layers change their device every n_turn, or once for each device. */
static void plan_nodes(const struct devices *devs, int n_nodes, int n_turn, const char *what)
{
    enum { PER_LAYER = 23 }; /* nodes */
    const struct buft *bt[3];
    struct llama_memory mem[3];
    struct llama_graph o = {.n_layer = n_nodes / PER_LAYER + 1, .n_tok = 1, .bt = bt, .mem = mem};
    struct times t = {0};
    struct graph g;
    struct plan *p;

    o.n_bt = devs->n;
    o.n_turn = n_turn ? n_turn : (o.n_layer + devs->n - 1) / devs->n;
    o.w = mem_array((size_t)o.n_layer, sizeof *o.w);
    if (!o.w)
        must(err_nomem(&err, "weights", (size_t)o.n_layer * sizeof *o.w));
    for (int d = 0; d < devs->n; d++)
        bt[d] = devs->dev[d]->buft;
    must(graph_init(&g, (PER_LAYER + LLAMA_WEIGHTS) * o.n_layer + 16, &err));
    must(plan_new(&p, devs, &err));
    for (int i = 0; i < N_BEST; i++) {
        double since = now_ms();

        llama_graph(&g, &o);
        must(graph_status(&g, &err));
        best(&t.build, since);
        since = now_ms();
        must(sched_plan(p, &g, &err));
        best(&t.sched, since);
        since = now_ms();
        must(alloc_plan(p, NULL, &err));
        best(&t.alloc, since);
    }
    print_times(p, what, &t);
    plan_free(p);
    graph_release(&g);
    mem_free(o.w);
}

static void bench_planning(void)
{
    static const int n_nodes[] = {1000, 10000, 30000, 100000};
    struct device_options opt = {.n_threads = 1, .sim = "2"};
    struct devices devs;

    must(devices_open(&devs, &opt, &err));
    for (int i = 0; i < 4; i++)
        plan_nodes(&devs, n_nodes[i], 0, "thirds");
    for (int i = 0; i < 4; i++)
        plan_nodes(&devs, n_nodes[i], 1, "layers by turns");
    devices_close(&devs);
}

/* ---- replay ---- */

/* Microseconds of a replay of g, the best. */
static void replay(const struct devices *devs, struct graph *g, const char *what)
{
    enum { N_WARM = 100, N_STEPS = 10000 };
    static const struct replay one_thread = {.n_threads = 1};
    struct plan *p = NULL;
    struct exec_stats st;
    struct exec *x;
    double ms = 0;

    must(exec_new(&x, devs, NULL, &err));
    must(exec_plan(x, &p, g, &err));
    for (int i = 0; i < N_WARM; i++)
        must(exec_replay(x, p, &one_thread, &err));
    for (int k = 0; k < N_BEST; k++) {
        double since = now_ms();

        for (int i = 0; i < N_STEPS; i++)
            must(exec_replay(x, p, &one_thread, &err));
        best(&ms, since);
    }
    exec_stats(x, &st);
    printf("%-16s %6d nodes %5d splits %4d copies  replay without kernels %.3f us\n", what,
           p->n_nodes, p->n_splits, (int)(st.copies / st.replays), ms * 1e3 / N_STEPS);
    plan_free(p);
    exec_free(x);
}

/* The decode graph of SmolLM2 135M. */
static void replay_smollm2(const struct devices *devs)
{
    static const struct hparams hp = {.n_vocab = 49152,
                                      .n_ctx_train = 8192,
                                      .n_embd = 576,
                                      .n_layer = 30,
                                      .n_ff = 1536,
                                      .n_head = 9,
                                      .n_head_kv = 3,
                                      .n_embd_head_k = 64,
                                      .n_embd_head_v = 64,
                                      .n_rot = 64};
    static struct described d;
    struct model_graph mg;

    must(described_init(&d, &hp, devs, &err));
    must(model_graph_init(&mg, &d.m, 4096, 1, &err));
    must(model_graph_build(&mg, &(struct model_shape){1, 1, 256, false}, &err));
    replay(devs, &mg.g, "SmolLM2");
    model_graph_release(&mg);
    described_release(&d);
}

/* Its layers on three devices by turns. */
static void replay_turns(const struct devices *devs)
{
    enum { N_LAYER = 30 };
    static struct tensor w[N_LAYER][LLAMA_WEIGHTS];
    const struct buft *bt[3] = {devs->dev[0]->buft, devs->dev[1]->buft, devs->dev[2]->buft};
    struct llama_memory mem[3];
    struct llama_graph o = {N_LAYER, 1, bt, 3, 1, mem, w};
    struct graph g;

    must(graph_init(&g, 1024, &err));
    llama_graph(&g, &o);
    must(graph_status(&g, &err));
    replay(devs, &g, "layers by turns");
    graph_release(&g);
}

/* Devices that return at once: what is left is what exec does itself. */
static void bench_replay(void)
{
    static const struct fake_row rows[] = {
        {.name = "GPU0", .kind = DEVICE_GPU, .shares = -1, .idle = true},
        {.name = "GPU1", .kind = DEVICE_GPU, .shares = -1, .idle = true},
        {.name = "CPU", .kind = DEVICE_CPU, .shares = -1, .idle = true},
    };
    static struct machine one, three;

    machine_init(&one, &rows[2], 1);
    machine_init(&three, rows, 3);
    replay_smollm2(&one.devs);
    replay_turns(&three.devs);
}

int main(void)
{
    bench_planning();
    bench_replay();
    return 0;
}
