/*
 * Experts on the host whose products are computed elsewhere: only those that are in use are copied, and
 * the results are the CPU's.
 */
#include "tests/unit.h"

#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/graph.h"
#include "runtime/plan.h"
#include "tests/runtime/sims.h"
#include "tests/runtime/tiny_model.h"

static struct err err;

static void ok(enum status st)
{
    if (st)
        fail_msg("%s: %s", status_name(st), err.msg);
}

/* ---- by hand: where ids come from ---- */

enum { N = 32, N_EXPERT = 8, N_TOK = 3 };

enum from {
    FROM_INPUT, /* the host writes them */
    FROM_SELF,  /* the device that needs the experts computes them */
    FROM_OTHER, /* another device does */
    FROM_VIEW,  /* part of what the device computes */
    FROM_TWO,   /* two products ask for different experts of one weight */
};

struct hand {
    struct devices devs;
    struct graph g;
    struct tensor w, router;
    struct buffer b[2];
    struct exec *x;
    struct plan *p;
    struct tensor *ids, *other, *in, *out;
};

static void put(struct tensor *t, struct buffer *b, const struct buft *bt, const char *name, int n2)
{
    int64_t ne[3] = {N, n2 ? N : N_EXPERT, n2 ? n2 : 1};
    struct tiny_rng r = {9};
    float *v;

    assert_true(tensor_set_shape(t, DT_F32, 3, ne));
    tensor_set_name(t, "%s", name);
    ok(buffer_init(b, bt, tensor_bytes(t), USAGE_WEIGHTS, &err));
    t->buffer = b;
    t->data = b->base;
    v = mem_array((size_t)tensor_n(t), sizeof *v);
    for (int64_t i = 0; i < tensor_n(t); i++)
        v[i] = tiny_uniform(&r, -1, 1);
    ok(tensor_set(t, 0, v, tensor_bytes(t), &err));
    mem_free(v);
}

static struct tensor *new_ids(struct hand *h, const char *name)
{
    return named(graph_leaf(&h->g, DT_I32, 2, (int64_t[]){2, N_TOK}, TENSOR_INPUT), "%s", name);
}

static struct tensor *ids_of(struct hand *h, enum from from)
{
    struct param_top_k two = {.k = 2}, three = {.k = 3};
    struct tensor *t;

    if (from == FROM_INPUT || from == FROM_TWO)
        return h->ids = new_ids(h, "ids");
    t = op_mul_mat(&h->g, &h->router, h->in);
    t = op_top_k(&h->g, t, from == FROM_VIEW ? &three : &two);
    return from == FROM_VIEW ? op_view(&h->g, t, 2, (int64_t[]){2, N_TOK}, &t->nb[1], 4) : t;
}

/* Sums of products with experts of w, whose ids come from somewhere. */
static void hand_open(struct hand *h, enum from from, int n_sims, int n_slots, enum sims_kind kind)
{
    struct sim_options sim = {.n = n_sims, .offload = 1};
    struct exec_options opt = {.check = true, .n_slots = n_slots};
    const struct buft *host;
    struct tensor *x, *ids, *y;
    int at = n_sims == 0 ? 0 : from == FROM_OTHER ? 1 : 0;

    memset(h, 0, sizeof *h);
    ok(sims_open(&h->devs, &sim, &err));
    sims_turn(&h->devs, kind);
    host = devices_cpu(&h->devs)->buft;
    put(&h->w, &h->b[0], host, "experts", N_EXPERT);
    put(&h->router, &h->b[1], h->devs.dev[at]->buft, "router", 0);
    ok(graph_init(&h->g, 64, &err));
    h->in = named(graph_leaf(&h->g, DT_F32, 2, (int64_t[]){N, N_TOK}, TENSOR_INPUT), "x");
    x = op_reshape(&h->g, h->in, 3, (int64_t[]){N, 1, N_TOK});
    ids = ids_of(h, from);
    y = op_mul_mat_id(&h->g, &h->w, x, ids);
    y = op_mul_mat_id(&h->g, &h->w, y, ids); /* the same experts again */
    if (from == FROM_TWO) {
        h->other = new_ids(h, "other");
        y = op_add(&h->g, y, op_mul_mat_id(&h->g, &h->w, x, h->other));
    }
    h->out = output(y);
    graph_expand(&h->g, y);
    ok(graph_status(&h->g, &err));
    ok(exec_new(&h->x, &h->devs, &opt, &err));
    ok(exec_plan(h->x, &h->p, &h->g, &err));
}

static void hand_close(struct hand *h)
{
    plan_free(h->p);
    exec_free(h->x);
    graph_release(&h->g);
    buffer_release(&h->b[0]);
    buffer_release(&h->b[1]);
    devices_close(&h->devs);
}

/* ---- somebody who watches the copies ---- */

struct watcher {
    struct hand *h;
    int n_seen, n_filled;
    bool after_weight, fill; /* in this split a weight was seen; fill weights itself */
};

static const struct tensor *copy_at(const struct plan *p, int split, int input)
{
    int c = p->inputs[p->splits[split].first_input + input];

    return p->tensors[plan_in_pipe(p, c, p->pipe)].t;
}

static const struct plan_tensor *original_at(const struct plan *p, int split, int input)
{
    return &p->tensors[p->tensors[p->inputs[p->splits[split].first_input + input]].copy_of];
}

/* The inputs before this one are there; weights of the host come last. */
static bool watch_copy(void *ctx, const struct plan *p, int split, int input)
{
    struct watcher *w = ctx;
    const struct plan_tensor *orig = original_at(p, split, input);
    char was[8192], is[8192];

    w->n_seen++;
    w->after_weight = input > 0 && w->after_weight;
    assert_true(!w->after_weight || orig->weight);
    w->after_weight |= orig->weight;
    for (int k = 0; k < input; k++) {
        const struct tensor *a = original_at(p, split, k)->t, *b = copy_at(p, split, k);
        size_t n = tensor_bytes(b);

        if (original_at(p, split, k)->weight) /* maybe not all of it */
            continue;
        assert_true(n <= sizeof is);
        ok(tensor_get(a, 0, was, n, &err));
        ok(tensor_get(b, 0, is, n, &err));
        assert_memory_equal(is, was, n);
    }
    if (!w->fill || !orig->weight)
        return false;
    w->n_filled++;
    ok(tensor_set((struct tensor *)copy_at(p, split, input), 0, orig->t->data,
                  tensor_bytes(orig->t), &err));
    return true;
}

static void hand_run(struct hand *h, int run, struct watcher *w, float out[2 * N * N_TOK])
{
    struct replay rp = {.copy = w ? watch_copy : NULL, .copy_ctx = w};
    int32_t ids[2 * N_TOK], other[2 * N_TOK];
    struct tiny_rng r = {(uint64_t)run + 1};
    float in[N * N_TOK];

    for (int i = 0; i < N * N_TOK; i++)
        in[i] = tiny_uniform(&r, -1, 1);
    for (int i = 0; i < 2 * N_TOK; i++) {
        ids[i] = (int32_t)(tiny_next(&r) % 3) * 3 % N_EXPERT; /* 0, 3, 6 */
        other[i] = 7 - ids[i];
    }
    ok(exec_begin(h->x, h->p, &err));
    ok(tensor_set(h->in, 0, in, sizeof in, &err));
    if (h->ids)
        ok(tensor_set(h->ids, 0, ids, sizeof ids, &err));
    if (h->other)
        ok(tensor_set(h->other, 0, other, sizeof other, &err));
    ok(exec_submit(h->x, h->p, &rp, &err));
    ok(exec_wait(h->x, &err));
    ok(tensor_get(h->out, 0, out, tensor_bytes(h->out), &err));
}

static void by_hand(enum from from, int n_slots, enum sims_kind kind)
{
    float want[2 * N * N_TOK], got[2 * N * N_TOK];
    struct hand cpu, h;
    struct exec_stats s;

    hand_open(&cpu, from, 0, 1, SIMS_ALIKE);
    hand_open(&h, from, 2, n_slots, kind);
    for (int run = 0; run < 6; run++) {
        hand_run(&cpu, run, NULL, want);
        hand_run(&h, run, NULL, got);
        if (memcmp(got, want, sizeof got) != 0)
            fail_msg("ids from %d, %d slots, run %d: another result", (int)from, n_slots, run);
    }
    exec_stats(h.x, &s);
    if (from == FROM_TWO)
        assert_int_equal(s.experts_skipped, 0);
    else
        assert_true(s.experts_skipped >= 6 * (N_EXPERT - 2 * N_TOK));
    exec_stats(cpu.x, &s);
    assert_true(s.copies == 0 && s.bytes_copied == 0);
    hand_close(&h);
    hand_close(&cpu);
}

static void test_by_hand(void **state)
{
    (void)state;
    for (int from = FROM_INPUT; from <= FROM_TWO; from++) {
        by_hand((enum from)from, 1, SIMS_ALIKE);
        by_hand((enum from)from, 2, SIMS_ALIKE);
        by_hand((enum from)from, 1, SIMS_NO_QUEUE);
        by_hand((enum from)from, 2, SIMS_STRANGERS);
    }
}

static void watched(enum from from, bool fill)
{
    float want[2 * N * N_TOK], got[2 * N * N_TOK];
    struct watcher w = {.fill = fill};
    struct hand cpu, h;
    struct exec_stats s;

    hand_open(&cpu, from, 0, 1, SIMS_ALIKE);
    hand_open(&h, from, 2, 1, SIMS_ALIKE);
    for (int run = 0; run < 4; run++) {
        hand_run(&cpu, run, NULL, want);
        hand_run(&h, run, &w, got);
        assert_memory_equal(got, want, sizeof got);
    }
    exec_stats(h.x, &s);
    assert_true(w.n_seen >= 8);
    assert_int_equal(w.n_filled > 0, fill);
    assert_int_equal(s.copies, w.n_seen - w.n_filled);
    hand_close(&h);
    hand_close(&cpu);
}

static void test_watched(void **state)
{
    (void)state;
    for (int from = FROM_INPUT; from <= FROM_TWO; from++) {
        watched((enum from)from, false);
        watched((enum from)from, true);
    }
}

/* ---- models ---- */

enum { N_VOCAB = 128, N_IDS = 48 };

struct result {
    float logits[2][N_VOCAB];
    struct exec_stats prompt, token; /* of the prompt, then of one more token */
};

static void run_model(const struct rig *r, int n_ids, int n_slots, struct result *out)
{
    struct session_options so = {.devs = &r->devs,
                                 .n_ctx = 256,
                                 .n_ubatch = 16,
                                 .type_k = DT_F32,
                                 .type_v = DT_F32,
                                 .exec = {.check = true, .n_slots = n_slots}};
    int32_t ids[N_IDS];
    struct tiny_rng rng = {3};
    struct session_stats before, after;
    struct session *s;

    for (int i = 0; i < N_IDS; i++)
        ids[i] = (int32_t)(tiny_next(&rng) % N_VOCAB);
    so.n_ubatch = n_ids < 16 ? 16 : N_IDS;
    ok(session_new(&s, r->m, &so, &err));
    ok(session_eval(s, ids, (uint32_t)n_ids, WANT_LAST, NULL, NULL, &err));
    memcpy(out->logits[0], session_logits(s), sizeof out->logits[0]);
    session_stats(s, &before);
    ok(session_eval(s, ids, 1, WANT_LAST, NULL, NULL, &err));
    memcpy(out->logits[1], session_logits(s), sizeof out->logits[1]);
    session_stats(s, &after);
    session_free(s);
    out->prompt = before.exec;
    out->token = after.exec;
    out->token.bytes_copied -= before.exec.bytes_copied;
    out->token.experts_skipped -= before.exec.experts_skipped;
}

/* Bytes of all experts of the model, and their number. */
static uint64_t all_experts(const struct model *m, uint64_t *n)
{
    uint64_t bytes = 0;

    *n = 0;
    for (int i = 0; i < m->n_weights; i++) {
        const struct tensor *t = m->weights[i];

        if (!t || !strstr(t->name, "_exps.weight"))
            continue;
        bytes += tensor_bytes(t);
        *n += (uint64_t)t->ne[2];
    }
    return bytes;
}

/*
 * Experts of `arch` on the host: with the usual threshold a prompt of 48 tokens uses the accelerators,
 * with one of 1 every token does.
 */
static void one_model(const char *arch, int n_slots)
{
    const struct placement_options place = {.n_gpu_layers = PLACE_ALL, .cpu_moe = true};
    struct result want, got;
    struct rig r;
    uint64_t bytes, n, used;

    ok(rig_open(&r, arch, 3, &(struct sim_options){0}, NULL, &err));
    run_model(&r, N_IDS, 1, &want);
    rig_close(&r);

    ok(rig_open(&r, arch, 3, &(struct sim_options){.n = 2}, &place, &err));
    run_model(&r, N_IDS, n_slots, &got);
    bytes = all_experts(r.m, &n);
    assert_memory_equal(got.logits, want.logits, sizeof got.logits);
    assert_true(got.prompt.bytes_copied > bytes / 2);
    assert_true(got.token.bytes_copied < bytes / 8 && got.token.experts_skipped == 0);
    rig_close(&r);

    ok(rig_open(&r, arch, 3, &(struct sim_options){.n = 2, .offload = 1}, &place, &err));
    run_model(&r, N_IDS, n_slots, &got);
    assert_memory_equal(got.logits, want.logits, sizeof got.logits);
    /* one token: of each weight as many experts as a token uses, no more */
    used = n / r.m->hp.experts.n_expert * r.m->hp.experts.n_used;
    assert_int_equal(got.token.experts_skipped, n - used);
    assert_true(got.token.bytes_copied >= bytes / n * used);
    assert_true(got.token.bytes_copied < bytes);
    rig_close(&r);
}

static void test_models(void **state)
{
    static const char *const archs[] = {"qwen3moe", "gpt-oss", "deepseek2", "qwen2moe", "llama4"};

    (void)state;
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++)
        one_model(archs[i], 1 + (int)i % 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_watched),
        cmocka_unit_test(test_models),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
