/*
 * The CPU device: table of ops, and the walk of a span.
 *
 * A span is one job of the pool. All its threads walk the nodes in groups, with a barrier after
 * each group:
 *   - small nodes, one after the other, which thread 0 computes alone; or
 *   - up to GROUP nodes that all threads share and that do not touch each other's memory (the
 *     products for q, k and v): a thread that is done with one goes on to the next.
 * The last thread at a barrier looks for cancellation and failure, so that all leave at the same
 * place.
 */
#include "backends/cpu/cpu.h"

#include <assert.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backends/cpu/ops.h"
#include "backends/cpu/pool.h"
#include "gguf/base/mem.h"
#include "gguf/base/text.h"

/* An empty cell is an op that this device does not compute. */
static const struct cpu_op *const table[OP_COUNT] = {
    [OP_CONT] = &cpu_op_cont,
    [OP_CONCAT] = &cpu_op_concat,
    [OP_GET_ROWS] = &cpu_op_get_rows,
    [OP_SET_ROWS] = &cpu_op_set_rows,
    [OP_ADD] = &cpu_op_add,
    [OP_MUL] = &cpu_op_mul,
    [OP_DIV] = &cpu_op_div,
    [OP_SCALE] = &cpu_op_scale,
    [OP_CLAMP] = &cpu_op_clamp,
    [OP_SOFT_MAX] = &cpu_op_soft_max,
    [OP_SOFTCAP] = &cpu_op_softcap,
    [OP_UNARY] = &cpu_op_unary,
    [OP_NORM] = &cpu_op_norm,
    [OP_RMS_NORM] = &cpu_op_rms_norm,
    [OP_ROPE] = &cpu_op_rope,
    [OP_GLU] = &cpu_op_glu,
    [OP_MUL_MAT] = &cpu_op_mul_mat,
    [OP_MUL_MAT_ID] = &cpu_op_mul_mat_id,
    [OP_ADD_ID] = &cpu_op_add_id,
    [OP_TOP_K] = &cpu_op_top_k,
    [OP_ARGMAX] = &cpu_op_argmax,
    [OP_MASK_BITS] = &cpu_op_mask_bits,
    [OP_PICK] = &cpu_op_pick,
    [OP_SHARES] = &cpu_op_shares,
    [OP_MIX] = &cpu_op_mix,
    [OP_SSM_CONV] = &cpu_op_ssm_conv,
    [OP_SSM_SCAN] = &cpu_op_ssm_scan,
    [OP_DELTA_NET] = &cpu_op_delta_net,
    [OP_FLASH_ATTN] = &cpu_op_flash_attn,
};

#define SMALL 8192 /* elements: below, a barrier costs more than the other threads save */

struct cpu {
    struct device dev;
    struct pool *pool;
    const struct cpu_isa *isa;
    char desc[96];
    char names[OP_COUNT][DT_COUNT][32]; /* of kernels, by type of src[0] (of K for attention) */
};

static _Atomic size_t n_host_used; /* bytes of all buffers */

static enum status host_alloc(const struct buft *bt, struct buffer *b, struct err *e)
{
    char text[32];

    (void)bt;
    b->base = mem_pages(b->size);
    if (!b->base)
        return err_set(e, ST_NOMEM, "not enough memory on 'CPU': a buffer needs %s",
                       text_size(text, sizeof text, b->size));
    n_host_used += b->size;
    return ST_OK;
}

static void host_release(const struct buft *bt, struct buffer *b)
{
    (void)bt;
    n_host_used -= b->size;
    mem_pages_free(b->base, b->size);
}

static const struct buft host_memory = {.name = "CPU",
                                        .alignment = MEM_ALIGN,
                                        .max_size = SIZE_MAX,
                                        .is_host = true,
                                        .alloc = host_alloc,
                                        .release = host_release};

const struct buft *cpu_buft(void)
{
    return &host_memory;
}

static const struct cpu *cpu_of(const struct device *d)
{
    return d->impl;
}

struct pool *cpu_pool(const struct device *cpu)
{
    return cpu_of(cpu)->pool;
}

void task_fail(const struct cpu_task *k, const struct tensor *t, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    if (atomic_exchange(&k->fault->taken, true))
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    err_set(&k->fault->err, ST_MODEL, "node '%s' (%s): %s", t->name, op_name(t->op), text);
}

/* ---- what it can do ---- */

static bool cpu_supports_op(const struct device *d, const struct tensor *t)
{
    (void)d;
    return tensor_is_noop(t) || (table[t->op] && table[t->op]->supports(t));
}

static void cpu_device_memory(const struct device *d, struct device_memory *out)
{
    (void)d;
    out->n_used = n_host_used;
    cpu_memory("", &out->n_free, &out->n_total);
}

static bool cpu_supports_buft(const struct device *d, const struct buft *bt)
{
    (void)d;
    return bt->is_host;
}

/* Scratch of one thread, rounded so that each starts aligned. */
static size_t scratch_of(const struct cpu *c, const struct tensor *t)
{
    const struct cpu_op *op = table[t->op];
    size_t n = op && op->scratch ? op->scratch(c->isa, t) : 0;

    return (n + MEM_ALIGN - 1) & ~(size_t)(MEM_ALIGN - 1);
}

static size_t cpu_work_size(const struct device *d, const struct tensor *t)
{
    const struct cpu *c = cpu_of(d);

    return scratch_of(c, t) * (size_t)pool_size(c->pool);
}

static const char *cpu_kernel_name(const struct device *d, const struct tensor *t)
{
    if (!table[t->op])
        return "";
    return cpu_of(d)->names[t->op][t->src[t->op == OP_FLASH_ATTN]->type];
}

/* ---- running a span ---- */

#define GROUP 4 /* shared nodes between two barriers */

struct job {
    const struct cpu *cpu;
    const struct span *span;
    char *work;
    size_t n_scratch;         /* bytes of `work` that each thread has */
    atomic_llong next[GROUP]; /* work counters of the nodes of a group */
    bool stop;                /* decided by the last thread at a barrier */
    struct cpu_fault fault;
};

static bool computes(const struct tensor *t)
{
    return (t->flags & TENSOR_COMPUTE) && !tensor_is_noop(t) && tensor_n(t) > 0;
}

/* First node from i on that is computed; span->n if there is none. */
static int next_node(const struct span *s, int i)
{
    while (i < s->n && !computes(s->nodes[i]))
        i++;
    return i;
}

static bool shared(const struct tensor *t, int nth)
{
    return nth > 1 && (table[t->op]->heavy || tensor_n(t) >= SMALL);
}

static bool overlap(const struct tensor *a, const struct tensor *b)
{
    uintptr_t pa = (uintptr_t)a->data, pb = (uintptr_t)b->data;

    return pa < pb + tensor_bytes(b) && pb < pa + tensor_bytes(a);
}

/* Does node b read what a writes, or write what a reads or writes? */
static bool depends(const struct tensor *b, const struct tensor *a)
{
    if (overlap(b, a))
        return true;
    for (int i = 0; i < TENSOR_SRC; i++)
        if ((b->src[i] && overlap(b->src[i], a)) || (a->src[i] && overlap(b, a->src[i])))
            return true;
    return false;
}

/* Between two groups, one thread only. */
static void between(void *ctx)
{
    struct job *j = ctx;

    for (int i = 0; i < GROUP; i++)
        atomic_store_explicit(&j->next[i], 0, memory_order_relaxed);
    j->stop = atomic_load(&j->fault.taken) || (j->span->cancel && atomic_load(j->span->cancel));
}

static void run_node(struct job *j, const struct tensor *t, int ith, int nth, atomic_llong *next)
{
    struct cpu_task k = {
        .isa = j->cpu->isa,
        .ith = ith,
        .nth = nth,
        .scratch = j->work + (size_t)ith * j->n_scratch,
        .next = next,
        .fault = &j->fault,
    };

    table[t->op]->run(&k, t);
}

/* Small nodes from i on, by thread 0 alone; returns the first that is not. */
static int run_small(struct job *j, int i, int ith, int nth)
{
    const struct span *s = j->span;

    for (; i < s->n && !shared(s->nodes[i], nth); i = next_node(s, i + 1)) {
        atomic_llong own = 0;
        if (ith == 0)
            run_node(j, s->nodes[i], 0, 1, &own);
        if (nth == 1) {
            between(j);
            if (j->stop)
                return s->n;
        }
    }
    return i;
}

/*
 * Shared nodes from i on that do not depend on each other; returns the first that is none of these.
 */
static int run_shared(struct job *j, int i, int ith, int nth)
{
    const struct span *s = j->span;
    struct tensor *group[GROUP];
    int n = 0;

    for (; n < GROUP && i < s->n && shared(s->nodes[i], nth); i = next_node(s, i + 1)) {
        for (int g = 0; g < n; g++)
            if (depends(s->nodes[i], group[g]))
                return i;
        group[n] = s->nodes[i];
        run_node(j, group[n], ith, nth, &j->next[n]);
        n++;
    }
    return i;
}

static void walk(void *ctx, int ith, int nth)
{
    struct job *j = ctx;
    const struct span *s = j->span;
    int i = next_node(s, 0);

    while (i < s->n && !j->stop) {
        i = shared(s->nodes[i], nth) ? run_shared(j, i, ith, nth) : run_small(j, i, ith, nth);
        if (i < s->n)
            pool_barrier(j->cpu->pool, between, j);
    }
}

static enum status cpu_compute(struct device *d, const struct span *s, void *work, size_t n_work,
                               struct err *e)
{
    const struct cpu *c = cpu_of(d);
    int nth = pool_size(c->pool);
    struct job j = {.cpu = c,
                    .span = s,
                    .work = work,
                    .n_scratch = n_work / (size_t)nth & ~(size_t)(MEM_ALIGN - 1)};

    if (s->n_threads > 0 && s->n_threads < nth)
        nth = s->n_threads;
    for (int i = 0; i < s->n; i++)
        assert(!computes(s->nodes[i]) ||
               (table[s->nodes[i]->op] && cpu_work_size(d, s->nodes[i]) <= n_work));
    between(&j);
    if (!j.stop)
        pool_run(c->pool, nth, walk, &j);
    if (atomic_load(&j.fault.taken)) {
        if (e)
            *e = j.fault.err;
        return j.fault.err.code;
    }
    if (j.stop)
        return err_set(e, ST_CANCELLED, "stopped");
    return ST_OK;
}

/* ---- life cycle ---- */

static void cpu_free(struct device *d)
{
    struct cpu *c = d->impl;

    pool_free(c->pool);
    mem_free(c);
}

static const struct device_ops cpu_ops = {
    .memory = cpu_device_memory,
    .free = cpu_free,
    .supports_op = cpu_supports_op,
    .supports_buft = cpu_supports_buft,
    .work_size = cpu_work_size,
    .compute = cpu_compute,
    .kernel_name = cpu_kernel_name,
};

/*
 * "mul_mat_q4_1_avx2", "get_rows_q6_k_avx2", "flash_attn_f16_avx2"; "add" where all sets share the
 * code.
 */
static void name_kernels(struct cpu *c)
{
    for (int op = 0; op < OP_COUNT; op++)
        for (uint32_t t = 0; table[op] && t < DT_COUNT; t++) {
            char *name = c->names[op][t];
            bool typed =
                op == OP_MUL_MAT || op == OP_MUL_MAT_ID || op == OP_GET_ROWS || op == OP_FLASH_ATTN;
            if (!dtype_known(t))
                continue;
            snprintf(name, sizeof c->names[op][t], "%s%s%s%s%s", op_name((enum op)op),
                     typed ? "_" : "", typed ? dtype_name((enum dtype)t) : "",
                     table[op]->isa_in_name ? "_" : "", table[op]->isa_in_name ? c->isa->name : "");
            for (; *name; name++)
                *name = (char)tolower((unsigned char)*name);
        }
}

enum status cpu_open(struct device **out, const struct device_options *opt, struct err *e)
{
    struct cpu *c = mem_zalloc(sizeof *c);
    int n_threads = opt->n_threads ? opt->n_threads : usable_cores();
    char brand[64];
    enum status st;

    *out = NULL;
    if (!c)
        return err_nomem(e, "CPU device", sizeof *c);
    if (n_threads < 1 || n_threads > POOL_MAX) {
        st = opt->n_threads ? err_set(e, ST_USAGE, "number of threads is %d, expected 1 to %d",
                                      n_threads, POOL_MAX)
                            : ST_OK;
        if (st)
            goto fail;
        n_threads = POOL_MAX;
    }
    st = cpu_isa_select(&c->isa, opt->isa, e);
    if (st)
        goto fail;
    st = pool_new(&c->pool, n_threads, e);
    if (st)
        goto fail;
    name_kernels(c);
    snprintf(c->desc, sizeof c->desc, "%s, %s", cpu_brand(brand, sizeof brand), c->isa->name);
    c->dev = (struct device){.ops = &cpu_ops,
                             .name = "CPU",
                             .desc = c->desc,
                             .kind = DEVICE_CPU,
                             .buft = &host_memory,
                             .impl = c};
    *out = &c->dev;
    return ST_OK;
fail:
    pool_free(c->pool);
    mem_free(c);
    return st;
}
