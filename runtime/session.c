/*
 * One evaluation, micro-batch by micro-batch:
 *
 *     batch_next -> kvcache_place -> facts -> replay an earlier graph? -> inputs -> replay -> logits
 *                                      | no
 *                                      +--> build -> plan and bind
 *
 * With several slots the replay of a micro-batch without outputs is not waited for before the next one.
 * What happened to n_past, the cache and the recurrent state is undone when anything fails.
 */
#include "runtime/session.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gguf/base/log.h"
#include "gguf/base/mem.h"
#include "runtime/arch.h"
#include "runtime/batch.h"
#include "runtime/inputs.h"
#include "runtime/kvcache.h"
#include "runtime/plan.h"
#include "runtime/reuse.h"
#include "runtime/state.h"

/* Multiples of what backends sum together of the positions, in one attention op and in matrix products. */
#define CHUNK_FLASH KV_PAD
#define CHUNK_STEPS (3 * KV_PAD)

#define CTX_DEFAULT 4096 /* positions: memory is capped where the model could do more */

/* A graph with its plan: what a replay needs. */
struct ready {
    struct graph g;
    struct plan *plan;
    struct inputs in;
    struct reuse_facts facts;
    struct tensor *logits; /* [n_vocab, n_outputs] or NULL */
    struct sampled_nodes sampled;
    uint64_t used; /* when: a counter of evaluations */
    bool valid;    /* built, planned and bound without error */
};

/* Graphs that are kept: decoding, the inside and the end of a prompt, and the next length of the cache. */
#define READY_MAX 4

struct session {
    struct model *m;
    struct session_options opt;
    uint32_t n_past[SEQ_MAX]; /* [opt.n_seqs] */
    struct exec *exec;
    struct kvcache kv;
    struct state state; /* of recurrent layers */
    struct ubatch u;
    struct ready ready[READY_MAX]; /* the one that was not used for longest makes room */
    struct ready *cur;             /* of the last micro-batch */
    struct ready check;            /* only with check_reuse */
    int graph_cap;                 /* tensors that a graph may need */
    struct buffer io;              /* host memory of the next four */
    float *logits;                 /* [n_vocab] of the last token */
    float *row;                    /* [n_vocab] of the token being handed out */
    float *rows;     /* [n_vocab, n_outputs_max] with check_reuse: the replayed logits */
    float *mask_row; /* [n_cells] */
    struct graph_sampling sampling;
    struct sampled sampled; /* of the last token */
    struct session_stats stats;
    char stopped_at[TENSOR_NAME]; /* node after which the user's watch stopped a replay */
};

/* ---- options ---- */

static bool is_kv_type(enum dtype t)
{
    return t == DT_F32 || t == DT_F16 || t == DT_BF16 || t == DT_Q8_0 || t == DT_Q4_0;
}

/* n_head: size of a head. */
static enum status check_kv_type(const char *flag, enum dtype t, uint32_t n_head, struct err *e)
{
    if (!is_kv_type(t))
        return err_set(e, ST_USAGE,
                       "%s '%s' is not a type for the KV cache, expected f32, f16, bf16, q8_0 or "
                       "q4_0",
                       flag, dtype_known((uint32_t)t) ? dtype_name(t) : "?");
    if (n_head % dtype_info(t)->block)
        return err_set(e, ST_USAGE,
                       "%s '%s' stores blocks of %u elements, the heads of this model have %u; try "
                       "%s f16",
                       flag, dtype_name(t), dtype_info(t)->block, n_head, flag);
    return ST_OK;
}

/* Without flash attention values are read across blocks. */
static enum status check_kv_attn(const struct session_options *o, const struct hparams *hp,
                                 struct err *e)
{
    bool latent = hp->latent.n_kv_lora != 0; /* values are part of the keys */
    enum dtype t = latent ? o->type_k : o->type_v;
    const char *flag = latent ? "-ctk" : "-ctv";

    if (!o->no_flash_attn || !dtype_quantised(t))
        return ST_OK;
    return err_set(e, ST_USAGE, "%s '%s' needs flash attention; try -fa on, or %s f16", flag,
                   dtype_name(t), flag);
}

static enum status check_kv_types(const struct session_options *o, const struct hparams *hp,
                                  struct err *e)
{
    enum status st = check_kv_type("-ctk", o->type_k, hp->n_embd_head_k, e);

    if (!st && hp->latent.n_kv_lora) /* values are the first elements of keys */
        st = check_kv_type("-ctk", o->type_k, hp->n_embd_head_v, e);
    else if (!st)
        st = check_kv_type("-ctv", o->type_v, hp->n_embd_head_v, e);
    return st ? st : check_kv_attn(o, hp, e);
}

/* Does the type, or its scale, end at 65504? */
static bool kv_type_small(enum dtype t)
{
    return t != DT_F32 && t != DT_BF16;
}

/* What each sequence gets of the context, which is made a multiple of that. */
static enum status share_context(struct session_options *o, uint32_t n_train, uint32_t n_table,
                                 struct err *e)
{
    uint32_t n_each, n_asked = o->n_ctx;

    if (o->n_ctx > INT32_MAX - KV_PAD)
        return err_set(e, ST_USAGE, "-c %u is more than the largest context, %d", o->n_ctx,
                       INT32_MAX - KV_PAD);
    n_each = sequences_n_ctx(o->n_ctx, o->n_seqs, o->kv_unified);
    if (n_each != o->n_ctx) {
        o->n_ctx = n_each * o->n_seqs;
        log_line(o->n_ctx == n_asked ? LOG_INFO : LOG_NOTE,
                 "each of the %u sequences holds %u tokens of a context of %u", o->n_seqs, n_each,
                 o->n_ctx);
    }
    if (n_table && n_each > n_table)
        return err_set(e, ST_USAGE,
                       "-c %u is more than the %u positions that the model has embeddings for",
                       n_each, n_table);
    if (n_each > n_train)
        log_warn("-c %u is more than the %u positions that the model was trained for", n_each,
                 n_train);
    return ST_OK;
}

static enum status settle_context(struct session_options *o, const struct model *m, struct err *e)
{
    uint32_t n_train = m->hp.n_ctx_train, n_table = arch_positions(m);

    if (o->n_ctx == SESSION_CTX_ALL) {
        o->n_ctx = n_train;
    } else if (!o->n_ctx && n_train > CTX_DEFAULT) {
        o->n_ctx = CTX_DEFAULT;
        log_note("the context holds %u of the model's %u tokens; -c N for another, -c 0 for all",
                 CTX_DEFAULT, n_train);
    } else if (!o->n_ctx) {
        o->n_ctx = n_train;
    }
    log_info("a context of %u tokens, of the model's %u", o->n_ctx, n_train);
    return share_context(o, n_train, n_table, e);
}

/* Defaults and limits; what the user wrote and cannot be is refused, what does no harm is cut. */
static enum status settle_options(struct session_options *o, const struct model *m, struct err *e)
{
    enum status st = sequences_check(o->n_seqs, e);

    if (!o->n_seqs)
        o->n_seqs = 1;
    if (!st)
        st = settle_context(o, m, e);
    if (st)
        return st;
    if (!o->n_batch)
        o->n_batch = 2048;
    if (o->n_batch > o->n_ctx)
        o->n_batch = o->n_ctx;
    if (o->n_ubatch > o->n_batch)
        log_info("-ub %u is cut to the batch of %u", o->n_ubatch, o->n_batch);
    if (!o->n_ubatch)
        o->n_ubatch = 512;
    if (o->n_ubatch > o->n_batch)
        o->n_ubatch = o->n_batch;
    if (o->n_threads < 0 || o->n_threads_batch < 0)
        return err_set(e, ST_USAGE, "-t %d is not a number of threads",
                       o->n_threads < 0 ? o->n_threads : o->n_threads_batch);
    if (!o->n_threads_batch)
        o->n_threads_batch = o->n_threads;
    return check_kv_types(o, &m->hp, e);
}

static uint32_t outputs_max(const struct session *s)
{
    uint32_t n_seqs = s->opt.n_seqs;

    return s->opt.all_outputs || n_seqs > s->opt.n_ubatch ? s->opt.n_ubatch : n_seqs;
}

/* ---- build and plan ---- */

static enum status build_graph(const struct session *s, struct ready *r,
                               const struct reuse_facts *f, struct err *e)
{
    struct build b = {.g = &r->g,
                      .m = s->m,
                      .kv = &s->kv,
                      .state = &s->state,
                      .f = f,
                      .in = &r->in,
                      .no_flash_attn = s->opt.no_flash_attn};

    r->valid = false;
    r->in.n = 0;
    r->facts = *f;
    graph_reset(&r->g);
    graph_sampling_begin(&b, &s->sampling);
    s->m->arch->build(&b);
    graph_sampling_build(&b, &s->sampling, &r->sampled);
    r->logits = b.logits;
    return graph_status(&r->g, e);
}

static enum status prepare(struct session *s, struct ready *r, const struct reuse_facts *f,
                           struct err *e)
{
    enum status st = exec_wait(s->exec, e); /* the graph may be in work */

    if (!st && !r->g.cap)
        st = graph_init(&r->g, s->graph_cap, e);

    if (!st)
        st = build_graph(s, r, f, e);
    if (!st)
        st = exec_plan(s->exec, &r->plan, &r->g, e);
    r->valid = !st;
    return st;
}

static void ready_release(struct ready *r)
{
    plan_free(r->plan);
    graph_release(&r->g);
}

/* Facts of the graph for a micro-batch of n_seqs sequences, equally many tokens of each. */
static struct reuse_facts facts_of(const struct session *s, uint32_t n_tokens, uint32_t n_seqs,
                                   uint32_t n_outputs, uint32_t n_kv)
{
    struct reuse_facts f = {
        .kind = GRAPH_LOGITS,
        .n_tokens = (int32_t)n_tokens,
        .n_seq_tokens = (int32_t)(n_tokens / n_seqs),
        .n_seqs = (int32_t)n_seqs,
        .n_seqs_unq = (int32_t)n_seqs,
        .equal_seqs = true,
        .carriers = s->opt.embd ? CARRIER_EMBD : CARRIER_TOKEN,
        .n_outputs = (int32_t)n_outputs,
        .samplers = graph_sampling_key(&s->sampling, s->m->hp.n_vocab),
        .n_kv = n_kv,
        .n_kv_window = kvcache_n_kv_window(&s->kv, n_kv),
    };

    for (int32_t i = 0; i < f.n_seqs; i++)
        f.seq_id_unq[i] = i;
    return f;
}

/* Sequences that a graph has to tell apart: they have cells or states of their own. 1: none. */
static uint32_t seqs_apart(const struct session *s)
{
    return s->kv.n_streams > 1 || s->state.n_bytes ? s->opt.n_seqs : 1;
}

/* Tokens of the largest graph: a multiple of the number of sequences that it is for. */
static uint32_t n_reserve(const struct session *s)
{
    uint32_t n = seqs_apart(s);

    return (s->opt.n_ubatch + n - 1) / n * n;
}

/* A graph counts what it would need even when its pool is too small: build once to know the size. */
static enum status size_graphs(struct session *s, struct err *e)
{
    struct reuse_facts f = facts_of(s, n_reserve(s), seqs_apart(s), outputs_max(s), s->kv.n_cells);
    int n_others = s->m->n_weights + s->m->n_row_parts + 4 * (int)s->kv.n_layer;
    struct ready trial = {.plan = NULL};
    enum status st = graph_init(&trial.g, 1, e);

    if (st)
        return st;
    build_graph(s, &trial, &f, NULL);
    s->graph_cap = trial.g.pool.wanted;
    graph_release(&trial.g);
    if (s->graph_cap < n_others) /* as much room for tensors that are not its own */
        s->graph_cap = n_others;
    s->graph_cap += GRAPH_SAMPLING_NODES;
    return ST_OK;
}

static enum status reserve_shape(struct session *s, struct ready *r, uint32_t n_tokens,
                                 uint32_t n_seqs, uint32_t n_outputs, uint32_t n_kv, struct err *e)
{
    struct reuse_facts f = facts_of(s, n_tokens, n_seqs, n_outputs, n_kv);
    enum status st;

    if (n_tokens > n_reserve(s) || n_kv > s->kv.n_cells)
        return ST_OK;
    st = build_graph(s, r, &f, e);
    return st ? st : exec_reserve(s->exec, &r->g, e);
}

/* Sequences that take part together, and those that are left when some have ended: prompts and decode. */
static enum status reserve_sequences(struct session *s, struct ready *r, struct err *e)
{
    const uint32_t n_ub = s->opt.n_ubatch, n_kv = s->kv.n_cells;
    enum status st = ST_OK;

    for (uint32_t n = outputs_max(s) < s->opt.n_seqs ? outputs_max(s) : s->opt.n_seqs; n && !st;
         n--) {
        uint32_t n_seqs = seqs_apart(s) > 1 ? n : 1;

        st = reserve_shape(s, r, n_ub / n * n, n_seqs, outputs_max(s), n_kv, e);
        if (!st)
            st = reserve_shape(s, r, n, n_seqs, n, n_kv, e);
        if (!st)
            st = reserve_shape(s, r, n, n_seqs, n, KV_PAD, e);
    }
    return st;
}

/*
 * Plan the largest graphs, so that all later ones find their memory there. Best fit is not
 * monotone: where the logits are by far the largest tensor, how the few small ones before them fit
 * decides where they end up, so that small micro-batches at short lengths are planned as well.
 */
static enum status reserve(struct session *s, struct err *e)
{
    static const uint32_t small[] = {1, 2, 4};    /* tokens */
    static const uint32_t short_kv[] = {1, 2, 3}; /* times KV_PAD */
    const uint32_t n_ub = n_reserve(s), n_seqs = seqs_apart(s), n_kv = s->kv.n_cells;
    struct ready trial = {.plan = NULL}; /* graphs that are in use stay as they are */
    enum status st = graph_init(&trial.g, s->graph_cap, e);

    if (!st)
        st = reserve_shape(s, &trial, n_ub, n_seqs, outputs_max(s), n_kv, e); /* a prompt's end */
    if (!st)
        st = reserve_shape(s, &trial, n_ub, n_seqs, 0, n_kv, e); /* before its end */
    if (!st && s->opt.n_seqs > 1)
        st = reserve_sequences(s, &trial, e);
    for (size_t i = 0; i < sizeof small / sizeof small[0] && !st; i++) {
        st = reserve_shape(s, &trial, small[i], 1, 1, n_kv, e); /* with 1: decode */
        for (size_t k = 0; k < sizeof short_kv / sizeof short_kv[0] && !st; k++)
            st = reserve_shape(s, &trial, small[i], 1, 1, short_kv[k] * KV_PAD, e);
    }
    graph_release(&trial.g);
    return st ? st : exec_reserve_done(s->exec, e);
}

/* ---- life ---- */

/* Take over the samplers of the graph, with room for their results. */
static enum status settle_sampling(struct session *s, const struct graph_sampling *gs,
                                   struct err *e)
{
    enum status st = graph_sampling_check(gs, e);

    if (!st)
        st = sampled_reserve(&s->sampled, graph_sampling_n(gs, s->m->hp.n_vocab), e);
    if (st)
        return st;
    s->sampling = *gs;
    s->sampled.n = 0;
    return ST_OK;
}

/* Host memory for rows of logits and of the mask. */
static enum status alloc_io(struct session *s, struct err *e)
{
    const struct buft *host = devices_cpu(s->opt.devs)->buft;
    size_t n_vocab = s->m->hp.n_vocab, n_rows = s->opt.check_reuse ? outputs_max(s) : 0;
    size_t n = (2 + n_rows) * n_vocab + s->kv.n_cells; /* both far below SIZE_MAX / 8 */
    enum status st;

    if (s->opt.exec.dry) {
        buffer_describe(&s->io, host, n * sizeof *s->logits, USAGE_ANY);
        return ST_OK;
    }
    st = buffer_init(&s->io, host, n * sizeof *s->logits, USAGE_ANY, e);
    if (st)
        return st;
    s->logits = s->io.base;
    s->row = s->logits + n_vocab;
    s->rows = s->row + n_vocab;
    s->mask_row = s->rows + n_rows * n_vocab;
    return ST_OK;
}

/* The KV cache and the recurrent state, each layer's where the model's placement has it. */
static enum status alloc_memory(struct session *s, struct err *e)
{
    const struct session_options *o = &s->opt;
    uint32_t n_layer = s->m->hp.n_layer;
    const struct device **dev = mem_array(n_layer, sizeof(*dev));
    struct kv_options kvo = {
        .layer_dev = dev,
        .n_ctx = sequences_n_ctx(o->n_ctx, o->n_seqs, o->kv_unified),
        .n_seqs = o->n_seqs,
        .unified = o->kv_unified,
        .n_ubatch = o->n_ubatch,
        .type_k = o->type_k,
        .type_v = o->type_v,
        .n_chunk = o->no_flash_attn ? CHUNK_STEPS : CHUNK_FLASH,
        .keep_all = o->swa_full,
        .dry = o->exec.dry,
    };
    enum status st;

    if (!dev)
        return err_nomem(e, "a list of devices", n_layer * sizeof(*dev));
    for (uint32_t il = 0; il < n_layer; il++)
        dev[il] = placement_kv(s->m->placement, il);
    st = kvcache_init(&s->kv, &s->m->hp, &kvo, e);
    if (!st)
        st = state_init(&s->state, &s->m->hp, dev, o->n_seqs, o->exec.dry, e);
    mem_free(dev);
    return st;
}

enum status session_new(struct session **out, struct model *m, const struct session_options *opt,
                        struct err *e)
{
    struct session *s = mem_zalloc(sizeof *s);
    enum status st;

    *out = NULL;
    if (!s)
        return err_nomem(e, "a session", sizeof *s);
    s->m = m;
    s->opt = *opt;
    s->cur = &s->ready[0];
    st = settle_options(&s->opt, m, e);
    if (st)
        goto fail;
    st = alloc_memory(s, e);
    if (!st)
        st = ubatch_init(&s->u, (int32_t)s->opt.n_ubatch, e);
    if (!st)
        st = alloc_io(s, e);
    if (!st)
        st = settle_sampling(s, &opt->sampling, e);
    if (!st)
        st = exec_new(&s->exec, opt->devs, &opt->exec, e);
    if (!st)
        st = size_graphs(s, e);
    if (!st)
        st = reserve(s, e);
    if (st)
        goto fail;
    *out = s;
    return ST_OK;
fail:
    session_free(s);
    return st;
}

void session_free(struct session *s)
{
    if (!s)
        return;
    for (int i = 0; i < READY_MAX; i++)
        ready_release(&s->ready[i]);
    ready_release(&s->check);
    exec_free(s->exec);
    ubatch_release(&s->u);
    kvcache_release(&s->kv);
    state_release(&s->state);
    buffer_release(&s->io);
    sampled_release(&s->sampled);
    mem_free(s);
}

enum status session_set_sampling(struct session *s, const struct graph_sampling *gs, struct err *e)
{
    uint32_t n_vocab = s->m->hp.n_vocab;
    struct graph_sampling old = s->sampling;
    enum status st = settle_sampling(s, gs, e);

    if (st || graph_sampling_key(&old, n_vocab) == graph_sampling_key(gs, n_vocab))
        return st;
    for (int i = 0; i < READY_MAX; i++)
        s->ready[i].valid &= &s->ready[i] == s->cur; /* others are of no use with the new ones */
    st = reserve(s, e);
    if (st)
        s->sampling = old;
    return st;
}

enum status session_plan(struct session *s, uint32_t n_tokens, uint32_t n_outputs, uint32_t n_kv,
                         struct err *e)
{
    struct reuse_facts f = facts_of(s, n_tokens, 1, n_outputs, n_kv);
    enum status st;

    assert(n_tokens && n_tokens <= s->opt.n_ubatch && n_outputs <= outputs_max(s));
    assert(n_kv && n_kv % KV_PAD == 0 && n_kv <= s->kv.n_cells);
    st = prepare(s, s->cur, &f, e);
    s->cur->valid = false;
    return st;
}

/* ---- values that are not finite ---- */

static bool all_finite(const float *x, size_t n)
{
    uint32_t bad = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !bad;
}

struct first_bad {
    char node[TENSOR_NAME];
    float value;
    int64_t at, n; /* element of n */
    int64_t n_rows;
    bool found;
};

static bool has_values(const struct tensor *t)
{
    return t->type == DT_F32 && !tensor_is_noop(t) && !(op_info(t->op)->flags & OPF_WRITES) &&
           tensor_contiguous(t);
}

static bool watch_finite(void *ctx, const struct tensor *t, bool ask)
{
    struct first_bad *b = ctx;
    float part[256];
    int64_t n = tensor_n(t);

    if (ask || b->found)
        return ask ? has_values(t) : false;
    for (int64_t i = 0; i < n; i += 256) {
        int64_t k = n - i < 256 ? n - i : 256;

        if (tensor_get(t, (size_t)i * sizeof *part, part, (size_t)k * sizeof *part, NULL))
            return false;
        for (int64_t j = 0; j < k; j++) {
            if (isfinite(part[j]))
                continue;
            *b = (struct first_bad){.value = part[j], .at = i + j, .n = n, .found = true};
            b->n_rows = t->ne[2] > 1 ? t->ne[2] : t->ne[1];
            memcpy(b->node, t->name, sizeof b->node);
            return false;
        }
    }
    return true;
}

/* Position of the token that an element belongs to: tokens, or outputs, are the outermost
 * dimension. */
static int32_t position_of(const struct ubatch *u, const struct first_bad *b)
{
    int64_t row;

    if (u->n_tokens == 1)
        return u->pos[0];
    row = b->at / (b->n / b->n_rows);
    if (b->n_rows == u->n_tokens)
        return u->pos[row];
    return b->n_rows == u->n_outputs ? u->pos[u->out[row]] : u->pos[u->n_tokens - 1];
}

static int n_threads(const struct session *s)
{
    return s->u.n_tokens > 1 ? s->opt.n_threads_batch : s->opt.n_threads;
}

static struct input_data input_data(const struct session *s)
{
    return (struct input_data){.u = &s->u,
                               .kv = &s->kv,
                               .hp = &s->m->hp,
                               .state = &s->state,
                               .allowed = s->sampling.allowed,
                               .row = s->mask_row};
}

/* Run the graph again, looking at every node, to say where the trouble starts. */
static enum status explain_not_finite(struct session *s, int32_t pos, struct err *e)
{
    struct first_bad bad = {0};
    struct replay rp = {.n_threads = n_threads(s),
                        .cancel = s->opt.cancel,
                        .watch = watch_finite,
                        .watch_ctx = &bad};
    struct input_data d = input_data(s);
    bool small_cache = kv_type_small(s->opt.type_k) || kv_type_small(s->opt.type_v);
    enum status st = inputs_set(&s->cur->in, &d, e);

    if (!st)
        st = exec_replay(s->exec, s->cur->plan, &rp, e);
    if (st)
        return st;
    if (!bad.found)
        return err_set(e, ST_MODEL, "the logits at position %d are not finite", (int)pos);
    return err_set(
        e, ST_MODEL,
        "the logits at position %d are not finite: '%s' is the first node with %g in it, at "
        "position %d; the weights may be damaged, try --check-tensors%s",
        (int)pos, bad.node, (double)bad.value, (int)position_of(&s->u, &bad),
        small_cache ? ", or too large for the cache, try -ctk f32 -ctv f32" : "");
}

/* ---- evaluation ---- */

/* The user's watch, remembering whether it stopped the replay. */
static bool watch_user(void *ctx, const struct tensor *t, bool ask)
{
    struct session *s = ctx;
    bool yes = s->opt.watch(s->opt.watch_ctx, t, ask);

    if (!ask && !yes)
        memcpy(s->stopped_at, t->name, sizeof s->stopped_at);
    return yes;
}

/* Hand over the work of s->u, and wait for it where somebody looks at the results. */
static enum status replay(struct session *s, struct ready *r, struct err *e)
{
    struct replay rp = {.n_threads = n_threads(s),
                        .cancel = s->opt.cancel,
                        .watch = s->opt.watch ? watch_user : NULL,
                        .watch_ctx = s};
    struct input_data d = input_data(s);
    enum status st = exec_begin(s->exec, r->plan, e);

    if (!st)
        st = inputs_set(&r->in, &d, e);
    s->stopped_at[0] = 0;
    if (!st)
        st = exec_submit(s->exec, r->plan, &rp, e);
    if (!st && (s->u.n_outputs || s->opt.check_reuse))
        st = exec_wait(s->exec, e);
    if (!st && s->stopped_at[0])
        st = err_set(e, ST_CANCELLED, "stopped after node '%s'", s->stopped_at);
    return st;
}

static enum status get_row(const struct session *s, const struct ready *r, int32_t i, float *out,
                           struct err *e)
{
    size_t n = s->m->hp.n_vocab * sizeof *out;

    return tensor_get(r->logits, (size_t)i * r->logits->nb[1], out, n, e);
}

/* May the graph serve the micro-batch, and if not, why? */
static enum reuse_reason may_reuse(const struct session *s, const struct ready *r,
                                   const struct reuse_facts *f)
{
    enum reuse_reason why;

    if (!r->valid || !r->plan->bound) /* memory may be lost when it could not grow for another */
        return REUSE_FIRST;
    if (s->opt.no_reuse)
        return REUSE_OFF;
    why = reuse_compare(&r->facts, f);
    return why ? why : inputs_fit(&r->in, f);
}

/* The graph to use: one that may serve, else, to be built, the one that is missed least. */
static struct ready *choose_ready(struct session *s, const struct reuse_facts *f)
{
    struct ready *oldest = s->cur;

    for (int i = 0; i < READY_MAX; i++) {
        struct ready *r = &s->ready[i];

        if (may_reuse(s, r, f) == REUSE_OK)
            return r;
        if (!s->opt.no_reuse && r->used < oldest->used)
            oldest = r;
    }
    return oldest;
}

/* Compute the step again with a graph of its own and compare the bits of all logits. */
static enum status check_step(struct session *s, const struct reuse_facts *f, struct err *e)
{
    size_t n_vocab = s->m->hp.n_vocab;
    enum status st = ST_OK;
    bool same = true;

    for (int32_t i = 0; i < s->u.n_outputs && !st; i++)
        st = get_row(s, s->cur, i, s->rows + (size_t)i * n_vocab, e);
    if (!st)
        st = prepare(s, &s->check, f, e);
    if (!st)
        st = replay(s, &s->check, e);
    for (int32_t i = 0; i < s->u.n_outputs && !st; i++) {
        st = get_row(s, &s->check, i, s->row, e);
        same &= memcmp(s->row, s->rows + (size_t)i * n_vocab, n_vocab * sizeof *s->row) == 0;
    }
    if (!st && !same) {
        s->stats.check_failures++;
        log_warn("at position %d a replayed graph gives other logits than a new one",
                 (int)s->u.pos[0]);
    }
    return st; /* both share the buffers: what is in them now are the new graph's results */
}

/*
 * The length of cache for a micro-batch that was just cut off. Only micro-batches of one shape can be in
 * work together, so with several slots all of a batch take the length that its last one needs.
 */
static uint32_t n_kv_of(const struct session *s, const struct batch *b)
{
    uint32_t n_kv = kvcache_n_kv(&s->kv), n_batch = s->opt.n_batch, end;

    if (s->opt.exec.n_slots < 2 || s->opt.n_seqs > 1)
        return n_kv;
    end = (b->done + n_batch - 1) / n_batch * n_batch;
    end = (uint32_t)b->pos[0] + (end < b->n ? end : b->n) - b->done;
    end = (end + KV_PAD - 1) / KV_PAD * KV_PAD;
    return end > n_kv && end <= s->kv.n_cells ? end : n_kv;
}

/* Evaluate s->u, whose tokens have their cells. */
static enum status eval_ubatch(struct session *s, uint32_t n_kv, const struct ready **res,
                               struct err *e)
{
    struct reuse_facts f;
    enum reuse_reason why;
    struct ready *r;
    enum status st;

    reuse_facts(&f, &s->u, n_kv, kvcache_n_kv_window(&s->kv, n_kv));
    f.samplers = graph_sampling_key(&s->sampling, s->m->hp.n_vocab);
    r = choose_ready(s, &f);
    why = may_reuse(s, r, &f) ? may_reuse(s, s->cur, &f) : REUSE_OK;
    s->cur = r;
    s->stats.evals++;
    r->used = s->stats.evals;
    if (why) {
        st = prepare(s, r, &f, e);
        if (st)
            return st;
        s->stats.graphs_built++;
        s->stats.rebuilds[why - 1]++;
        log_info("graph built for %d tokens and %u cells: %s", (int)f.n_tokens, f.n_kv,
                 reuse_name(why));
    } else {
        s->stats.graphs_reused++;
    }
    *res = r;
    st = replay(s, r, e);
    if (!st && !why && s->opt.check_reuse) {
        st = check_step(s, &f, e);
        *res = &s->check;
    }
    return st;
}

/* Where logits go: to one of the two, or to s->logits. */
struct sink {
    logits_sink *fn;
    seq_logits_sink *seq_fn;
    void *ctx;
};

static enum status give(const struct sink *sink, int32_t seq, uint32_t pos, const float *logits,
                        struct err *e)
{
    if (sink->seq_fn)
        return sink->seq_fn(sink->ctx, seq, pos, logits, e);
    return sink->fn ? sink->fn(sink->ctx, pos, logits, e) : ST_OK;
}

/* What the samplers in the graph say of the last output; its row is read only to say what is wrong. */
static enum status take_sampled(struct session *s, const struct ready *r, struct err *e)
{
    int32_t i = s->u.n_outputs - 1;
    enum status st = sampled_read(&s->sampled, &r->sampled, i, e);

    s->stats.graph_sampled++;
    if (st || sampled_finite(&s->sampled))
        return st;
    st = get_row(s, r, i, s->row, e);
    if (!st && !all_finite(s->row, s->m->hp.n_vocab))
        st = explain_not_finite(s, s->u.pos[s->u.out[i]], e);
    return st;
}

/*
 * Hand out the logits of the micro-batch; without a sink the last row becomes s->logits, unless samplers in
 * the graph stand in for it.
 */
static enum status hand_out(struct session *s, const struct ready *r, const struct sink *sink,
                            struct err *e)
{
    if (s->u.n_outputs && graph_sampling_on(&s->sampling)) {
        enum status st = take_sampled(s, r, e);

        if (st || (!sink->fn && !s->sampling.logits))
            return st;
    }
    for (int32_t i = 0; i < s->u.n_outputs; i++) {
        float *to = sink->fn || sink->seq_fn ? s->row : s->logits;
        int32_t pos = s->u.pos[s->u.out[i]], seq = s->u.seq_id[s->u.out[i]];
        enum status st = get_row(s, r, i, to, e);

        if (!st && !all_finite(to, s->m->hp.n_vocab))
            st = explain_not_finite(s, pos, e);
        if (!st)
            st = give(sink, seq, (uint32_t)pos, to, e);
        if (st)
            return st;
    }
    return ST_OK;
}

static enum status cancelled(const struct session *s, const struct batch *b, struct err *e)
{
    if (s->opt.n_seqs > 1)
        return err_set(e, ST_CANCELLED, "stopped after %u of %u tokens", b->done, b->n);
    return err_set(e, ST_CANCELLED, "stopped at position %u", (uint32_t)b->pos[0]);
}

static enum status eval_batch(struct session *s, struct batch *b, const struct sink *sink,
                              struct err *e)
{
    for (;;) {
        uint32_t room =
            s->opt.n_batch - b->done % s->opt.n_batch; /* micro-batches end with the batch */
        const struct ready *r;
        enum status st;

        if (s->opt.cancel && atomic_load_explicit(s->opt.cancel, memory_order_relaxed))
            return cancelled(s, b, e);
        if (!batch_next(b, &s->u, room < s->opt.n_ubatch ? room : s->opt.n_ubatch))
            return ST_OK;
        st = kvcache_place(&s->kv, &s->u, e);
        state_step(&s->state, &s->u);
        if (!st)
            st = eval_ubatch(s, n_kv_of(s, b), &r, e);
        if (!st)
            st = hand_out(s, r, sink, e);
        if (st)
            return st;
        state_advance(&s->state, &s->u);
        if (s->opt.progress)
            s->opt.progress(s->opt.progress_ctx, b->done, b->n);
    }
}

/* An evaluation has failed: every sequence is what it was or, where its windows are gone, empty. */
static void take_back(struct session *s, enum status why)
{
    s->cur->valid = false; /* a replay that was stopped half-way is not built upon */
    for (int32_t i = 0; i < (int32_t)s->opt.n_seqs; i++)
        kvcache_truncate(&s->kv, i, (int32_t)s->n_past[i]);
    if (why == ST_MODEL)
        kvcache_scrub(&s->kv, NULL);
    for (int32_t i = 0; i < (int32_t)s->opt.n_seqs; i++) {
        /* the ring went on over what would be needed */
        if (!kvcache_reaches(&s->kv, i, (int32_t)s->n_past[i]))
            session_truncate_of(s, i, 0);
    }
}

static enum status eval(struct session *s, struct batch *b, const struct sink *sink, struct err *e)
{
    enum status st, st_wait;

    if (s->opt.exec.dry)
        return err_set(e, ST_USAGE, "a dry session has no memory to evaluate in");
    for (uint32_t i = 0; i < s->opt.n_seqs; i++)
        b->pos[i] = (int32_t)s->n_past[i];
    state_begin(&s->state);
    st = eval_batch(s, b, sink, e);
    st_wait = exec_wait(s->exec, st ? NULL : e);
    st = st ? st : st_wait;
    if (st) {
        take_back(s, st);
        return st;
    }
    state_keep(&s->state);
    for (uint32_t i = 0; i < s->opt.n_seqs; i++)
        s->n_past[i] = (uint32_t)b->pos[i];
    return ST_OK;
}

static enum status check_tokens(const struct session *s, const struct seq_tokens *t, struct err *e)
{
    struct seq_limits l = {.n_seqs = s->opt.n_seqs,
                           .n_vocab = s->m->hp.n_vocab,
                           .n_outputs = s->opt.all_outputs ? UINT32_MAX : s->opt.n_seqs};

    assert(s->opt.embd ? !!t->embd : !!t->ids || !t->n);
    return seq_tokens_check(t, &l, &s->kv, e);
}

enum status session_eval(struct session *s, const int32_t *ids, uint32_t n, enum want want,
                         logits_sink *fn, void *sink_ctx, struct err *e)
{
    struct sink sink = {.fn = want == WANT_ALL ? fn : NULL, .ctx = sink_ctx};
    struct batch b = {
        .token = ids, .n = n, .out_all = want == WANT_ALL, .out_last = want == WANT_LAST};
    enum status st = check_tokens(s, &(struct seq_tokens){.ids = ids, .n = n}, e);

    assert(want != WANT_ALL || (s->opt.all_outputs && fn));
    return st ? st : eval(s, &b, &sink, e);
}

enum status session_eval_batch(struct session *s, const struct seq_tokens *t, seq_logits_sink *fn,
                               void *sink_ctx, struct err *e)
{
    struct sink sink = {.seq_fn = fn, .ctx = sink_ctx};
    struct batch b = {.split = SPLIT_SEQUENCE,
                      .token = t->ids,
                      .embd = t->embd,
                      .seq_id = t->seq,
                      .out = t->out,
                      .n = t->n};
    enum status st = check_tokens(s, t, e);

    if (st)
        return st;
    if (graph_sampling_on(&s->sampling))
        return err_set(e, ST_USAGE, "samplers in the graph are for one sequence");
    if (s->opt.n_seqs > 1)
        b.split = seqs_apart(s) > 1 ? SPLIT_EQUAL : SPLIT_SIMPLE;
    return eval(s, &b, &sink, e);
}

enum status session_copy(struct session *s, int32_t from, int32_t to, struct err *e)
{
    enum status st;

    assert(from >= 0 && (uint32_t)from < s->opt.n_seqs && to >= 0 && (uint32_t)to < s->opt.n_seqs);
    if (from == to)
        return ST_OK;
    st = kvcache_copy(&s->kv, from, to, e);
    if (!st)
        st = state_copy(&s->state, from, to, e);
    if (st)
        session_truncate_of(s, to, 0);
    s->n_past[to] = st ? 0 : s->n_past[from];
    return st;
}

const float *session_logits(const struct session *s)
{
    return s->logits;
}

int32_t session_sampled(const struct session *s, const int32_t **ids, const float **logits)
{
    *ids = s->sampled.ids;
    *logits = s->sampled.values;
    return s->sampled.n;
}

uint32_t session_n_ctx(const struct session *s)
{
    return s->kv.n_ctx;
}

uint32_t session_n_ubatch(const struct session *s)
{
    return s->opt.n_ubatch;
}

uint32_t session_room(const struct session *s, int32_t seq)
{
    return kvcache_room(&s->kv, seq);
}

uint32_t session_n_past_of(const struct session *s, int32_t seq)
{
    return s->n_past[seq];
}

bool session_can_truncate_of(const struct session *s, int32_t seq, uint32_t n)
{
    return n == 0 || n == s->n_past[seq] ||
           (n < s->n_past[seq] && !s->state.n_bytes && kvcache_reaches(&s->kv, seq, (int32_t)n));
}

void session_truncate_of(struct session *s, int32_t seq, uint32_t n)
{
    assert(session_can_truncate_of(s, seq, n));
    if (n == 0)
        state_reset(&s->state, seq);
    kvcache_truncate(&s->kv, seq, (int32_t)n);
    s->n_past[seq] = n;
}

uint32_t session_n_past(const struct session *s)
{
    return session_n_past_of(s, 0);
}

bool session_can_truncate(const struct session *s, uint32_t n)
{
    return session_can_truncate_of(s, 0, n);
}

void session_truncate(struct session *s, uint32_t n)
{
    session_truncate_of(s, 0, n);
}

/* ---- statistics ---- */

void session_stats(const struct session *s, struct session_stats *out)
{
    *out = s->stats;
    out->n_kv_bytes = s->kv.n_bytes;
    out->n_state_bytes = s->state.n_bytes;
    out->n_graph_bytes = 0;
    for (int i = 0; i < READY_MAX; i++)
        out->n_graph_bytes += graph_bytes(&s->ready[i].g);
    if (s->opt.check_reuse)
        out->n_graph_bytes += graph_bytes(&s->check.g);
    out->graph_nodes = s->cur->g.n_nodes;
    exec_stats(s->exec, &out->exec);
}

struct session_memory session_memory(const struct session *s, const struct device *dev)
{
    struct exec_memory xm = exec_memory(s->exec, dev);
    struct session_memory m = {.n_kv = store_bytes_on(&s->kv.store, dev) +
                                       store_bytes_on(&s->state.store, dev),
                               .n_compute = xm.n_compute,
                               .n_scratch = xm.n_scratch,
                               .n_staging = xm.n_staging};

    if (dev == devices_cpu(s->opt.devs))
        m.n_output = s->io.size;
    return m;
}

const struct plan *session_last_plan(const struct session *s)
{
    return s->cur->plan;
}

const char *session_rebuild_name(int i)
{
    return i >= 0 ? reuse_name((enum reuse_reason)(i + 1)) : NULL; /* without REUSE_OK */
}
