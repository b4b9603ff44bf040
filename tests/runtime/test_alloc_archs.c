/*
 * Plans of the graphs of every architecture, as sessions make them: valid, and within 5 % of what lives
 * at one time, in the memory of each device.
 */
#include "tests/unit.h"

#include <stdio.h>
#include <string.h>

#include "runtime/alloc.h"
#include "runtime/arch.h"
#include "runtime/check.h"
#include "runtime/sched.h"
#include "tests/runtime/model_graph.h"
#include "tests/runtime/tiny_model.h"

#define N_UBATCH 512
#define N_CTX    2048 /* more than a window and a micro-batch: such layers have rings */
#define N_WINDOW 128
#define SMALL    ((size_t)64 << 10) /* bytes: below, sizes are alignment more than anything else */

static struct err err;

static void ok(enum status st)
{
    if (st)
        fail_msg("%s: %s", status_name(st), err.msg);
}

struct subject {
    struct tiny t;
    struct model_graph mg;
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

    *x = (struct subject){.what = arch};
    o.experts = o.optionals = true;
    o.keys = put_window;
    o.sim = sim;
    ok(tiny_load(&x->t, &o, &err));
    ok(model_graph_init(&x->mg, x->t.m, N_CTX, N_UBATCH, &err));
    ok(plan_new(&x->p, &x->t.devs, &err));
    x->p->check = true; /* what each pass of the scheduler promises */
}

static void subject_release(struct subject *x)
{
    plan_free(x->p);
    model_graph_release(&x->mg);
    tiny_release(&x->t);
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

static void check_buffer(struct subject *x, const struct model_shape *s, int buf)
{
    const struct plan_buf *pb = &x->p->bufs[buf];
    size_t least =
        check_least(x->p, &x->mg.g, buf); /* from lifetimes; the allocator counts readers */

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

static void check_shape(struct subject *x, const struct model_shape *s)
{
    ok(model_graph_build(&x->mg, s, &err));
    if (sched_plan(x->p, &x->mg.g, &err) || alloc_plan(x->p, NULL, &err) ||
        check_alloc(x->p, &x->mg.g, &err))
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

            check_shape(&x, &(struct model_shape){n_tokens[i], outputs[k / 2], N_CTX, k % 2});
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
