/*
 * Plans of the graphs of every architecture, as sessions make them: valid, and within 5 % of what lives
 * at one time, in the memory of each device.
 */
#include "tests/unit.h"

#include <stdio.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/alloc.h"
#include "runtime/arch.h"
#include "runtime/check.h"
#include "runtime/inputs.h"
#include "runtime/kvcache.h"
#include "runtime/sched.h"
#include "runtime/state.h"
#include "tests/runtime/tiny_model.h"

#define N_UBATCH 512
#define N_CTX    2048 /* more than a window and a micro-batch: such layers have rings */
#define N_WINDOW 128
#define N_NODES  4096
#define SMALL    ((size_t)64 << 10) /* bytes: below, sizes are alignment more than anything else */

static struct err err;

static void ok(enum status st)
{
    if (st)
        fail_msg("%s: %s", status_name(st), err.msg);
}

/* One shape of micro-batch of one architecture. */
struct shape {
    uint32_t n_tokens, n_outputs;
    bool no_flash_attn;
};

/* What a session has: a model, its cache and its state, without memory for these. */
struct subject {
    struct tiny t;
    struct kvcache kv;
    struct state state;
    struct graph g;
    struct inputs in;
    struct plan *p;
    const char *what;
    int n_large; /* buffers with a bound above SMALL so far */
};

static void put_window(void *ctx, struct gguf_writer *w)
{
    char key[128];

    tiny_scales(ctx, w);
    snprintf(key, sizeof key, "%s.attention.sliding_window", (const char *)ctx);
    gguf_put_u32(w, key, N_WINDOW);
}

static void subject_init(struct subject *x, const char *arch, const char *sim)
{
    struct tiny_options o = tiny_arch(arch, DT_Q4_0);
    const struct device *dev[LAYERS_MAX];
    struct kv_options kvo = {.layer_dev = dev,
                             .n_ctx = N_CTX,
                             .n_ubatch = N_UBATCH,
                             .type_k = DT_F16,
                             .type_v = DT_F16,
                             .n_chunk = 3 * KV_PAD,
                             .dry = true};

    *x = (struct subject){.what = arch};
    o.experts = o.optionals = true;
    o.keys = put_window;
    o.sim = sim;
    ok(tiny_load(&x->t, &o, &err));
    for (uint32_t il = 0; il < x->t.m->hp.n_layer; il++)
        dev[il] = placement_kv(x->t.m->placement, il);
    ok(kvcache_init(&x->kv, &x->t.m->hp, &kvo, &err));
    ok(state_init(&x->state, &x->t.m->hp, dev, true, &err));
    ok(graph_init(&x->g, N_NODES, &err));
    ok(plan_new(&x->p, &x->t.devs, &err));
    x->p->check = true; /* what each pass of the scheduler promises */
}

static void subject_release(struct subject *x)
{
    plan_free(x->p);
    graph_release(&x->g);
    state_release(&x->state);
    kvcache_release(&x->kv);
    tiny_release(&x->t);
}

static void build(struct subject *x, const struct shape *s)
{
    struct reuse_facts f = {
        .kind = GRAPH_LOGITS,
        .n_tokens = (int32_t)s->n_tokens,
        .n_seq_tokens = (int32_t)s->n_tokens,
        .n_seqs = 1,
        .n_seqs_unq = 1,
        .equal_seqs = true,
        .carriers = CARRIER_TOKEN,
        .n_outputs = (int32_t)s->n_outputs,
        .n_kv = N_CTX,
        .n_kv_window = kvcache_n_kv_window(&x->kv, N_CTX),
    };
    struct build bd = {.g = &x->g,
                       .m = x->t.m,
                       .kv = &x->kv,
                       .state = &x->state,
                       .f = &f,
                       .in = &x->in,
                       .no_flash_attn = s->no_flash_attn};

    x->in.n = 0;
    graph_reset(&x->g);
    x->t.m->arch->build(&bd);
    ok(graph_status(&x->g, &err));
}

/* Sizes are what the buffer type asks for and not a byte more: the bound is made of them. */
static void check_sizes(const struct subject *x)
{
    for (int i = 0; i < x->p->n_tensors; i++) {
        const struct plan_tensor *pt = &x->p->tensors[i];
        const struct buft *bt = pt->buf < 0 ? NULL : x->p->bufs[pt->buf].buft;
        size_t n = bt ? bt->tensor_size ? bt->tensor_size(bt, pt->t) : tensor_bytes(pt->t) : 0;

        if (bt && pt->size >= (n ? n : 1) + bt->alignment)
            fail_msg("%s: '%s' has %zu bytes, %zu would do", x->what, pt->t->name, pt->size, n);
    }
}

static void check_buffer(struct subject *x, const struct shape *s, int buf)
{
    const struct plan_buf *pb = &x->p->bufs[buf];
    size_t least = check_least(x->p, &x->g, buf); /* from lifetimes; the allocator counts readers */

    if (least != pb->least)
        fail_msg("%s, %s: not less than %zu, says the allocator; %zu", x->what, pb->buft->name,
                 pb->least, least);
    if (least <= SMALL)
        return;
    x->n_large++;
    if (pb->size > least + least / 20)
        fail_msg("%s, %s, %u tokens, %u outputs, -fa %s: %zu bytes are planned, %zu would do",
                 x->what, pb->buft->name, s->n_tokens, s->n_outputs,
                 s->no_flash_attn ? "off" : "on", pb->size, least);
}

static void check_shape(struct subject *x, const struct shape *s)
{
    build(x, s);
    if (sched_plan(x->p, &x->g, &err) || alloc_plan(x->p, NULL, &err) ||
        check_alloc(x->p, &x->g, &err))
        fail_msg("%s, %u tokens, %u outputs, -fa %s: %s", x->what, s->n_tokens, s->n_outputs,
                 s->no_flash_attn ? "off" : "on", err.msg);
    check_sizes(x);
    for (int buf = 0; buf < x->p->n_bufs; buf++)
        check_buffer(x, s, buf);
}

static void check_arch(const char *arch, const char *sim, int n_bufs)
{
    static const uint32_t n_tokens[] = {1, 7, N_UBATCH};
    struct subject x;

    subject_init(&x, arch, sim);
    assert_int_equal(x.p->n_bufs, n_bufs);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 6; k++) {
            const uint32_t outputs[] = {0, 1, n_tokens[i]};

            check_shape(&x, &(struct shape){n_tokens[i], outputs[k / 2], k % 2});
        }
    }
    assert_true(x.n_large >= 6 * n_bufs); /* at N_UBATCH tokens: there is something to prove */
    subject_release(&x);
}

static void test_cpu(void **state)
{
    (void)state;
    for (int i = 0; arch_name(i); i++)
        check_arch(arch_name(i), NULL, 1);
}

static void test_two_accelerators(void **state)
{
    (void)state;
    for (int i = 0; arch_name(i); i++)
        check_arch(arch_name(i), "2", 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_two_accelerators),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
