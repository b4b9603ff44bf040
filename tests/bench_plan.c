/*
 * How long planning takes: nanoseconds per node for graphs of any length over two accelerators and the
 * CPU. Prints a table; to be run by hand on a quiet machine, or with `meson test --benchmark`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "gguf/base/mem.h"
#include "runtime/alloc.h"
#include "runtime/sched.h"
#include "tests/runtime/llama_graph.h"

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

int main(void)
{
    bench_planning();
    return 0;
}
