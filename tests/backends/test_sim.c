/* Simulated accelerators: results of the CPU bit for bit, memory that the host cannot see, a queue. */
#include "tests/unit.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backends/backend.h"
#include "backends/op.h"
#include "backends/sim/sim.h"
#include "gguf/base/mem.h"
#include "tests/backends/fixture.h"

static struct err err;

static void open_sims(struct devices *d, struct sim_options o)
{
    static struct device *list[SIM_MAX];

    *d = (struct devices){.dev = list};
    for (int i = 0; i < o.n; i++)
        o.limit[i] = o.limit[i] ? o.limit[i] : 64u << 20;
    assert_int_equal(sim_open_with(d, &o, &(struct device_options){0}, &err), ST_OK);
    assert_int_equal(d->n, o.n);
}

static void close_sims(struct devices *d)
{
    for (int i = 0; i < d->n; i++)
        d->dev[i]->ops->free(d->dev[i]);
}

/* A vector of n floats on the device. */
static struct tensor *on(struct buffer *b, const struct buft *bt, struct tensor *t)
{
    size_t n = tensor_bytes(t);

    assert_int_equal(buffer_init(b, bt, n, USAGE_ANY, &err), ST_OK);
    t->buffer = b;
    t->data = b->base;
    return t;
}

static struct tensor vector(int64_t n)
{
    struct tensor t = {0};

    assert_true(tensor_set_shape(&t, DT_F32, 1, &n));
    return t;
}

/* y = 2 x, in place of memory of the same size. */
static struct tensor doubled(struct tensor *x, struct buffer *b)
{
    struct param_scale p = {.s = 2};
    struct tensor t = vector(x->ne[0]);

    t.op = OP_SCALE;
    memcpy(t.params, &p, sizeof p);
    t.src[0] = x;
    t.flags = TENSOR_COMPUTE;
    on(b, x->buffer->buft, &t);
    tensor_set_name(&t, "doubled");
    return t;
}

static void submit(struct device *d, struct tensor *t)
{
    struct tensor *nodes[1] = {t};
    int32_t uses[1] = {1};
    struct span s = {.nodes = nodes, .uses = uses, .n = 1};

    assert_int_equal(device_compute(d, &s, NULL, 0, &err), ST_OK);
}

static void test_spec(void **state)
{
    static const char *const bad[] = {"",      "0",          "33",         "-1",   "abc",  "1,",
                                      ",1GiB", "1GiB,",      "GiB",        "1XiB", "0x1G", "1e3G",
                                      "nan",   "1GiB,,1GiB", "999999999T", "1k"};
    struct sim_options o;

    (void)state;
    assert_int_equal(sim_parse(&o, "3", &err), ST_OK);
    assert_int_equal(o.n, 3);
    assert_true(o.limit[2] == (size_t)16 << 30);
    assert_int_equal(sim_parse(&o, "24GiB,1.5g,512MiB", &err), ST_OK);
    assert_int_equal(o.n, 3);
    assert_true(o.limit[0] == (size_t)24 << 30 && o.limit[1] == (size_t)3 << 29 &&
                o.limit[2] == (size_t)512 << 20);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(sim_parse(&o, bad[i], &err), ST_USAGE);
        assert_non_null(strstr(err.msg, "--sim"));
    }
}

static void test_list(void **state)
{
    const struct device *dev;
    struct devices d;

    (void)state;
    assert_int_equal(
        devices_open(&d, &(struct device_options){.n_threads = 1, .sim = "1GiB,2GiB"}, &err),
        ST_OK);
    assert_int_equal(d.n, 3);
    assert_string_equal(d.dev[0]->name, "SIM0");
    assert_string_equal(d.dev[1]->desc, "simulated accelerator");
    assert_ptr_equal(devices_buft(&d, "sim1_rows", &dev), d.dev[1]->more[0]);
    assert_ptr_equal(dev, d.dev[1]);
    assert_ptr_equal(devices_buft(&d, "cpu", &dev), devices_cpu(&d)->buft);
    assert_ptr_equal(dev, devices_cpu(&d));
    assert_null(devices_buft(&d, "SIM2", &dev));
    devices_close(&d);
}

/* Devices that are not here: they can be asked all that a plan asks, but have no memory. */
static void test_described(void **state)
{
    static const struct device_spec specs[] = {{"sim0", (size_t)1 << 45}, {"Sim1", 4096}},
                                    gap[] = {{"SIM1", 4096}}, odd[] = {{"GPU0", 4096}};
    struct device_options o = {.n_threads = 1, .described = specs, .n_described = 2};
    struct device_memory m;
    struct buffer b;
    struct devices d;

    (void)state;
    assert_int_equal(devices_open(&d, &o, &err), ST_OK);
    assert_int_equal(d.n, 3);
    assert_string_equal(d.dev[1]->name, "SIM1");
    m = device_memory(d.dev[0]);
    assert_true(m.n_free == (size_t)1 << 45 && m.n_total == m.n_free && m.n_used == 0);
    assert_int_equal(buffer_init(&b, d.dev[0]->buft, 64, USAGE_ANY, &err), ST_DEVICE);
    devices_close(&d);
    o.n_described = 1;
    o.described = gap;
    assert_int_equal(devices_open(&d, &o, &err), ST_USAGE);
    assert_non_null(strstr(err.msg, "'SIM0'"));
    o.described = odd;
    assert_int_equal(devices_open(&d, &o, &err), ST_USAGE);
    assert_non_null(strstr(err.msg, "'GPU0'"));
}

static void test_select(void **state)
{
    static const char *const bad[] = {"",    "SIM3",      "SIM0,",     ",SIM0", "SIM0,SIM0",
                                      "CPU", "none,SIM0", "SIM0,none", "SIM",   "SIM00"};
    static const struct {
        const char *names, *want;
    } good[] = {{"sim2,Sim0", "SIM2 SIM0 CPU "}, {"SIM1", "SIM1 CPU "}, {"none", "CPU "}};
    struct device_options o = {.n_threads = 1, .sim = "3"};
    struct devices d;

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char got[64] = "";

        assert_int_equal(devices_open(&d, &o, &err), ST_OK);
        assert_int_equal(devices_select(&d, good[i].names, &err), ST_OK);
        for (int k = 0; k < d.n; k++) {
            strcat(got, d.dev[k]->name);
            strcat(got, " ");
        }
        assert_string_equal(got, good[i].want);
        devices_close(&d);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(devices_open(&d, &o, &err), ST_OK);
        assert_int_equal(devices_select(&d, bad[i], &err), ST_USAGE);
        assert_non_null(strstr(err.msg, "none"));
        devices_close(&d);
    }
}

/* A product with a quantised weight whose rows lie apart, and the CPU's result. */
static void test_same_bits(void **state)
{
    static const enum dtype types[] = {DT_F32, DT_F16, DT_BF16, DT_Q4_0, DT_Q8_0};
    enum { N = 96, M = 33, COLS = 5 };
    struct devices d, cpu;

    (void)state;
    open_sims(&d, (struct sim_options){.n = 1});
    assert_int_equal(devices_open(&cpu, &(struct device_options){.n_threads = 2}, &err), ST_OK);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct tensor *w = fx_random(fx_tensor(types[i], N, M, 1, 1, 0), 1);
        struct tensor *x = fx_random(fx_tensor(DT_F32, N, COLS, 1, 1, 0), 1);
        struct tensor *y = fx_op(OP_MUL_MAT, NULL, 0, w, x, NULL, NULL);
        struct tensor sw = *w, sx = *x, sy = *y;
        struct buffer bw, bx, by, work = {0};
        struct tensor *nodes[1] = {y}, *snodes[1] = {&sy};
        int32_t uses[1] = {1};
        struct span s = {.nodes = nodes, .uses = uses, .n = 1};
        size_t n_work = device_work_size(cpu.dev[0], y);
        void *cpu_work = mem_aligned(n_work ? n_work : 64);
        float got[M * COLS];

        y->flags |= TENSOR_COMPUTE;
        sy.flags |= TENSOR_COMPUTE;
        assert_int_equal(device_compute(cpu.dev[0], &s, cpu_work, n_work, &err), ST_OK);
        assert_true(buft_set_strides(d.dev[0]->more[0], &sw));
        assert_int_equal(sw.nb[1] % 128, 0);
        on(&bw, d.dev[0]->more[0], &sw);
        on(&bx, d.dev[0]->buft, &sx);
        on(&by, d.dev[0]->buft, &sy);
        for (int r = 0; r < M; r++)
            assert_int_equal(tensor_set(&sw, (size_t)r * sw.nb[1],
                                        (char *)w->data + (size_t)r * w->nb[1], tensor_row_bytes(w),
                                        &err),
                             ST_OK);
        assert_int_equal(tensor_set(&sx, 0, x->data, tensor_bytes(x), &err), ST_OK);
        sy.src[0] = &sw;
        sy.src[1] = &sx;
        n_work = device_work_size(d.dev[0], &sy);
        if (n_work)
            assert_int_equal(buffer_init(&work, d.dev[0]->buft, n_work, USAGE_COMPUTE, &err),
                             ST_OK);
        s.nodes = snodes;
        assert_int_equal(device_compute(d.dev[0], &s, work.base, n_work, &err), ST_OK);
        assert_int_equal(tensor_get(&sy, 0, got, sizeof got, &err), ST_OK);
        assert_memory_equal(got, y->data, sizeof got);
        buffer_release(&bw);
        buffer_release(&bx);
        buffer_release(&by);
        buffer_release(&work);
        mem_free(cpu_work);
    }
    fx_end();
    devices_close(&cpu);
    close_sims(&d);
}

/* Its memory is not the host's: who reads it dies. */
static void test_host_faults(void **state)
{
    struct devices d;
    struct buffer b;
    struct tensor t = vector(8);
    int status;
    pid_t pid;

    (void)state;
    open_sims(&d, (struct sim_options){.n = 1});
    on(&b, d.dev[0]->buft, &t);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        _exit(*(volatile char *)t.data ? 2 : 3);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    buffer_release(&b);
    close_sims(&d);
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/*
 * Submitting returns while the work waits for an event that the host has not let happen yet: recorded
 * on a device whose own node takes a while.
 */
static void test_asynchronous(void **state)
{
    const double node_s = 0.3;
    struct devices d;
    struct buffer b[4];
    struct tensor x0 = vector(4), x1 = vector(4), y0, y1;
    const float one[4] = {1, 1, 1, 1}, three[4] = {3, 3, 3, 3};
    float got[4];
    struct event *ev;
    double t0, t1, t2;

    (void)state;
    open_sims(&d, (struct sim_options){.n = 2, .op_ns = (uint64_t)(node_s * 1e9)});
    on(&b[0], d.dev[0]->buft, &x0);
    on(&b[1], d.dev[1]->buft, &x1);
    y0 = doubled(&x0, &b[2]);
    y1 = doubled(&x1, &b[3]);
    assert_int_equal(d.dev[0]->ops->event_new(d.dev[0], &ev, &err), ST_OK);
    assert_int_equal(d.dev[0]->ops->event_synchronize(ev, &err), ST_OK); /* never recorded */
    assert_int_equal(tensor_set(&x0, 0, three, sizeof three, &err), ST_OK);
    assert_int_equal(tensor_set(&x1, 0, one, sizeof one, &err), ST_OK);
    t0 = seconds();
    submit(d.dev[0], &y0); /* 6 */
    assert_int_equal(d.dev[0]->ops->copy_async(d.dev[0], &y0, &x1, &err), ST_OK);
    assert_int_equal(d.dev[0]->ops->event_record(d.dev[0], ev, &err), ST_OK);
    assert_int_equal(d.dev[1]->ops->event_wait(d.dev[1], ev, &err), ST_OK);
    submit(d.dev[1], &y1); /* of what was copied: 12, not 2 */
    t1 = seconds();
    assert_int_equal(tensor_get(&y1, 0, got, sizeof got, &err), ST_OK);
    t2 = seconds();
    for (int i = 0; i < 4; i++)
        assert_true(got[i] == 12);
    assert_true(t2 - t0 >= 2 * node_s);      /* by construction: two nodes, one after the other */
    assert_true(t1 - t0 < t2 - t0 - node_s); /* the submitter did not wait for the second */
    assert_int_equal(d.dev[0]->ops->event_synchronize(ev, &err), ST_OK);
    d.dev[0]->ops->event_free(ev);
    for (int i = 0; i < 4; i++)
        buffer_release(&b[i]);
    close_sims(&d);
}

static void test_memory(void **state)
{
    struct devices d;
    struct buffer a, b, c;
    struct device_memory m;

    (void)state;
    open_sims(&d, (struct sim_options){.n = 1, .limit = {1u << 20}});
    assert_int_equal(buffer_init(&a, d.dev[0]->buft, 600u << 10, USAGE_ANY, &err), ST_OK);
    assert_int_equal(buffer_init(&b, d.dev[0]->buft, 500u << 10, USAGE_ANY, &err), ST_NOMEM);
    assert_string_equal(err.msg, "not enough memory on 'SIM0': a buffer needs 500.0 KiB, 424.0 KiB "
                                 "of 1.0 MiB are free");
    assert_int_equal(buffer_init(&b, d.dev[0]->buft, 424u << 10, USAGE_ANY, &err), ST_OK);
    m = device_memory(d.dev[0]);
    assert_true(m.n_free == 0 && m.n_total == 1u << 20 && m.n_used == 1u << 20);
    buffer_release(&a);
    assert_int_equal(buffer_init(&c, d.dev[0]->buft, 600u << 10, USAGE_ANY, &err), ST_OK);
    assert_true((char *)c.base + c.size <= (char *)b.base ||
                (char *)b.base + b.size <= (char *)c.base);
    buffer_release(&b);
    buffer_release(&c);
    m = device_memory(d.dev[0]);
    assert_true(m.n_free == 1u << 20 && m.n_used == 0);
    close_sims(&d);
}

/* An error comes once, and later work is skipped until then. */
static void test_errors(void **state)
{
    static const atomic_bool stop = true;
    struct devices d;
    float host[4] = {0};
    struct buffer b[2];
    struct tensor x = vector(4), y, stray = vector(4);
    struct tensor *nodes[1] = {&y};
    struct span s = {.nodes = nodes, .n = 1, .cancel = &stop};

    (void)state;
    open_sims(&d, (struct sim_options){.n = 1, .refuse = UINT64_C(1) << OP_ADD});
    on(&b[0], d.dev[0]->buft, &x);
    y = doubled(&x, &b[1]);
    assert_true(device_supports_op(d.dev[0], &y));
    y.op = OP_ADD;
    assert_false(device_supports_op(d.dev[0], &y));
    y.op = OP_SCALE;
    assert_int_equal(device_compute(d.dev[0], &s, NULL, 0, &err), ST_OK);
    submit(d.dev[0], &y);
    assert_int_equal(device_synchronize(d.dev[0], &err), ST_CANCELLED);
    assert_int_equal(device_synchronize(d.dev[0], &err), ST_OK);
    /* what is not in its memory is refused when it is submitted */
    stray.data = host;
    y.src[0] = &stray;
    s.cancel = NULL;
    assert_int_equal(device_compute(d.dev[0], &s, NULL, 0, &err), ST_DEVICE);
    assert_non_null(strstr(err.msg, "'doubled'"));
    buffer_release(&b[0]);
    buffer_release(&b[1]);
    close_sims(&d);
}

static void test_no_memory(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        struct devices d;
        enum status st;

        mem_fail_at(n);
        st = devices_open(&d, &(struct device_options){.n_threads = 1, .sim = "2"}, NULL);
        mem_fail_at(0);
        devices_close(&d);
        if (st == ST_OK) {
            assert_true(n > 5);
            return;
        }
        assert_int_equal(st, ST_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spec),         cmocka_unit_test(test_list),
        cmocka_unit_test(test_described),    cmocka_unit_test(test_select),
        cmocka_unit_test(test_same_bits),    cmocka_unit_test(test_host_faults),
        cmocka_unit_test(test_asynchronous), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_errors),       cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
