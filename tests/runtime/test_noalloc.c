/*
 * A replayed decode step allocates nothing: model, sampler, detokenizer and output included. This binary
 * interposes the allocation functions of the whole process, libc's own callers included, and counts calls
 * while a steady step runs. Not with sanitizers, which interpose the same functions.
 */
#define _GNU_SOURCE
#include "tests/unit.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/backend.h"
#include "gguf/reader.h"
#include "runtime/model.h"
#include "runtime/sampler.h"
#include "runtime/session.h"
#include "runtime/vocab.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifdef SANITIZED
int main(void)
{
    puts("the allocation functions cannot be interposed under a sanitizer");
    return 77;
}
#else

static atomic_bool watching;
static atomic_int n_calls;

static void count(void)
{
    if (atomic_load_explicit(&watching, memory_order_relaxed))
        atomic_fetch_add(&n_calls, 1);
}

/* glibc's own names for what we replace. */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

void *malloc(size_t n)
{
    count();
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    count();
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    count();
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    count();
    return __libc_memalign(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    count();
    *out = __libc_memalign(align, n);
    return *out ? 0 : 12;
}

void *mmap(void *p, size_t n, int prot, int flags, int fd, off_t offset)
{
    count();
    return (void *)syscall(SYS_mmap, p, n, prot, flags, fd, offset);
}

struct fixture {
    struct devices devs;
    struct model *model;
    struct session *session;
    struct vocab *vocab;
    struct sampler *sampler;
    bool in_graph;
    int32_t next[3]; /* tokens that sequences go on with */
    struct text out;
    FILE *sink;
};

/* As much of the chain as can be is put into the graph; one id is never picked, so that there is a mask. */
static void to_graph(struct fixture *f)
{
    struct graph_sampling gs;
    const char *why;
    struct err e = {0};

    assert_int_equal(sampler_ban(f->sampler, 0, &e), ST_OK);
    assert_true(sampler_in_graph(f->sampler, &gs, &why));
    assert_int_equal(session_set_sampling(f->session, &gs, &e), ST_OK);
    f->in_graph = true;
}

static void open_fixture(struct fixture *f, const struct sampler_options *so)
{
    struct device_options dopt = {.n_threads = 2};
    struct session_options opt = {.n_ctx = 512, .devs = &f->devs};
    struct gguf *file;
    struct err e = {0};
    char path[4096];

    memset(f, 0, sizeof *f);
    snprintf(path, sizeof path, "%s/cli/ggrun-tiny-q8_0.gguf", getenv("GGRUN_SOURCE_DIR"));
    assert_int_equal(devices_open(&f->devs, &dopt, &e), ST_OK);
    assert_int_equal(gguf_open(&file, path, GGUF_MMAP, &e), ST_OK);
    assert_int_equal(vocab_load(&f->vocab, file, &e), ST_OK);
    assert_int_equal(model_load(&f->model, file, &(struct model_options){.devs = &f->devs}, &e), ST_OK);
    assert_int_equal(session_new(&f->session, f->model, &opt, &e), ST_OK);
    assert_int_equal(sampler_new(&f->sampler, so, vocab_n_tokens(f->vocab), 512, &e), ST_OK);
    f->sink = fopen("/dev/null", "w");
    assert_non_null(f->sink);
    text_reserve(&f->out, 4096);
}

static void close_fixture(struct fixture *f)
{
    session_free(f->session);
    sampler_free(f->sampler);
    vocab_free(f->vocab);
    model_free(f->model);
    devices_close(&f->devs);
    text_release(&f->out);
    fclose(f->sink);
}

static void choose(struct fixture *f, int32_t *id)
{
    struct err e = {0};
    const int32_t *ids;
    const float *logits;
    int32_t n;

    if (f->in_graph) {
        n = session_sampled(f->session, &ids, &logits);
        assert_int_equal(sampler_sample_of(f->sampler, ids, logits, n, id, &e), ST_OK);
        return;
    }
    assert_int_equal(sampler_sample(f->sampler, session_logits(f->session), id, &e), ST_OK);
}

/* One step of generation as the program does it: sample, accept, detokenize, write, evaluate. */
static void step(struct fixture *f, struct detok *d)
{
    struct err e = {0};
    int32_t id;
    size_t n;

    choose(f, &id);
    sampler_accept(f->sampler, id);
    assert_int_equal(detok_add(d, id, &f->out, &e), ST_OK);
    n = utf8_complete(f->out.p ? f->out.p : "", f->out.n);
    fwrite(f->out.p ? f->out.p : "", 1, n, f->sink);
    fflush(f->sink);
    text_clear(&f->out);
    assert_int_equal(session_eval(f->session, &id, 1, WANT_LAST, NULL, NULL, &e), ST_OK);
}

static void run_steps(const struct sampler_options *so, bool in_graph)
{
    struct fixture f;
    struct detok d;
    struct err e = {0};
    int32_t prompt[] = {1, 696, 789, 262, 453};
    int replayed = 0;

    open_fixture(&f, so);
    if (in_graph)
        to_graph(&f);
    assert_int_equal(session_eval(f.session, prompt, 5, WANT_LAST, NULL, NULL, &e), ST_OK);
    detok_init(&d, f.vocab, false);
    step(&f, &d);
    step(&f, &d);
    for (int i = 0; i < 200; i++) {
        struct session_stats before, after;

        session_stats(f.session, &before);
        atomic_store(&n_calls, 0);
        atomic_store(&watching, true);
        step(&f, &d);
        atomic_store(&watching, false);
        session_stats(f.session, &after);
        if (after.graphs_reused > before.graphs_reused) {
            assert_int_equal(atomic_load(&n_calls), 0);
            replayed++;
        }
    }
    assert_true(replayed >= 196);
    close_fixture(&f);
}

/* ---- several sequences ---- */

#define N_SEQS 3

static enum status choose_of(void *ctx, int32_t seq, uint32_t pos, const float *logits, struct err *e)
{
    struct fixture *f = ctx;

    (void)pos;
    return sampler_sample(f->sampler, logits, &f->next[seq], e);
}

static void step_all(struct fixture *f)
{
    static const int32_t seq[N_SEQS] = {0, 1, 2};
    static const bool out[N_SEQS] = {true, true, true};
    struct seq_tokens t = {.ids = f->next, .seq = seq, .out = out, .n = N_SEQS};
    struct err e = {0};

    for (int i = 0; i < N_SEQS; i++)
        sampler_accept(f->sampler, f->next[i]);
    assert_int_equal(session_eval_batch(f->session, &t, choose_of, f, &e), ST_OK);
}

static void run_sequences(bool unified)
{
    struct session_options opt = {.n_ctx = 768, .n_seqs = N_SEQS, .kv_unified = unified};
    struct sampler_options so;
    struct fixture f;
    struct err e = {0};
    int32_t prompt[] = {1, 696, 789, 262, 453};
    int replayed = 0;

    sampler_defaults(&so);
    so.seed = 7;
    open_fixture(&f, &so);
    session_free(f.session);
    opt.devs = &f.devs;
    assert_int_equal(session_new(&f.session, f.model, &opt, &e), ST_OK);
    assert_int_equal(session_eval(f.session, prompt, 5, WANT_LAST, NULL, NULL, &e), ST_OK);
    for (int i = 0; i < N_SEQS; i++) {
        assert_int_equal(session_copy(f.session, 0, i, &e), ST_OK);
        f.next[i] = 300 + i;
    }
    step_all(&f);
    for (int i = 0; i < 200; i++) {
        struct session_stats before, after;

        session_stats(f.session, &before);
        atomic_store(&n_calls, 0);
        atomic_store(&watching, true);
        step_all(&f);
        atomic_store(&watching, false);
        session_stats(f.session, &after);
        if (after.graphs_reused > before.graphs_reused) {
            assert_int_equal(atomic_load(&n_calls), 0);
            replayed++;
        }
    }
    assert_true(replayed >= 196);
    close_fixture(&f);
}

static void test_sequences(void **state)
{
    (void)state;
    run_sequences(false);
    run_sequences(true);
}

static void test_greedy(void **state)
{
    struct sampler_options so;

    (void)state;
    sampler_defaults(&so);
    so.temp = 0;
    run_steps(&so, false);
    run_steps(&so, true);
}

static void test_sampled(void **state)
{
    struct sampler_options so;

    (void)state;
    sampler_defaults(&so);
    so.seed = 7;
    run_steps(&so, true);
    so.repeat_penalty = 1.1f;
    run_steps(&so, false);
}

static void test_every_sampler(void **state)
{
    struct sampler_options so;

    (void)state;
    for (int mirostat = 0; mirostat < 3; mirostat++) {
        sampler_defaults(&so);
        so.repeat_penalty = 1.1f;
        so.dry_multiplier = 1;
        so.top_n_sigma = 3;
        so.typ_p = 0.99f;
        so.xtc_probability = 0.5f;
        so.dynatemp_range = 0.3f;
        so.adaptive_target = 0.7f;
        so.mirostat = mirostat;
        so.seed = 7;
        run_steps(&so, false);
    }
}

/* The counter sees what it should: libc's own allocation inside fopen, and a direct mapping. */
static void test_counter_counts(void **state)
{
    FILE *fp;
    void *p;

    (void)state;
    atomic_store(&n_calls, 0);
    atomic_store(&watching, true);
    fp = fopen("/dev/null", "r");
    p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    atomic_store(&watching, false);
    assert_true(atomic_load(&n_calls) >= 2);
    munmap(p, 4096);
    fclose(fp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counter_counts),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_sampled),
        cmocka_unit_test(test_every_sampler),
        cmocka_unit_test(test_sequences),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
