/*
 * Real models against the exact result of their weights: how far are our distributions from it?
 * Needs the models (scripts/get-models) and the oracles beside the checkout.
 */
#include "tests/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/backend.h"
#include "gguf/base/mem.h"
#include "gguf/reader.h"
#include "runtime/model.h"
#include "runtime/session.h"
#include "tests/runtime/logits.h"
#include "tests/runtime/real_model.h"

#define N_TOP 48

struct pair {
    const char *model, *oracle;
    char model_path[REAL_MODEL_PATH];
    char *json; /* the oracle's text; owned */
};

static struct pair pairs[] = {
    {.model = "SmolLM2-135M-Instruct.Q4_1.gguf", .oracle = "smollm2-135m-q4_1.text1.json"},
    {.model = "gemma-3-270m-q4_k_m.gguf", .oracle = "gemma3-270m.text1.json"},
};
#define N_PAIRS (sizeof pairs / sizeof pairs[0])

/* All numbers of the (nested) array or the number behind "key":, in order; returns how many. */
static size_t numbers(const char *json, const char *key, double *out, size_t max)
{
    char quoted[64];
    const char *p;
    size_t n = 0;
    int depth = 0;

    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    p = strstr(json, quoted);
    assert_non_null(p);
    p += strlen(quoted);
    do {
        if (*p == '[' || *p == ']') {
            depth += *p++ == '[' ? 1 : -1;
        } else if (*p == ',' || *p == ' ') {
            p++;
        } else {
            assert_true(n < max);
            out[n++] = strtod(p, (char **)&p);
        }
    } while (depth > 0);
    return n;
}

struct compare {
    const double *top_ids, *top_logprobs; /* [N_TOP, n] */
    double kl_sum;
    uint32_t n, n_top1;
    size_t n_vocab;
};

/*
 * KL of the exact distribution p to ours q over the listed ids and the rest as one more outcome.
 */
static enum status compare_row(void *ctx, uint32_t pos, const float *logits, struct err *e)
{
    struct compare *c = ctx;
    const double *ids = c->top_ids + (size_t)pos * N_TOP,
                 *lp = c->top_logprobs + (size_t)pos * N_TOP;
    double max = -INFINITY, sum = 0, p_rest = 1, q_rest = 1, kl = 0;
    size_t best = 0;

    (void)e;
    for (size_t i = 0; i < c->n_vocab; i++) {
        if (logits[i] > max) {
            max = (double)logits[i];
            best = i;
        }
    }
    for (size_t i = 0; i < c->n_vocab; i++)
        sum += exp((double)logits[i] - max);
    for (int i = 0; i < N_TOP; i++) {
        double p = exp(lp[i]), log_q = (double)logits[(size_t)ids[i]] - max - log(sum);

        kl += p * (lp[i] - log_q);
        p_rest -= p;
        q_rest -= exp(log_q);
    }
    if (p_rest > 0)
        kl += p_rest * log(p_rest / fmax(q_rest, 1e-12));
    c->kl_sum += kl;
    c->n_top1 += best == (size_t)ids[0];
    c->n++;
    return ST_OK;
}

static void test_distance(void **state)
{
    const struct pair *pair = *state;
    static double ids[4096], top_ids[4096 * N_TOP], top_logprobs[4096 * N_TOP];
    static int32_t tokens[4096];
    struct compare c = {.top_ids = top_ids, .top_logprobs = top_logprobs};
    struct device_options dopt = {0};
    struct devices devs;
    struct model_options mo = {.devs = &devs};
    struct session_options so = {
        .devs = &devs, .type_k = DT_F16, .type_v = DT_F16, .all_outputs = true};
    double kl_bound, top1_bound, kl, top1;
    size_t n = numbers(pair->json, "ids", ids, 4096);
    struct session *s = NULL;
    struct model *m = NULL;
    struct gguf *g;
    struct err e;

    assert_int_equal(numbers(pair->json, "top_ids", top_ids, 4096 * N_TOP), n * N_TOP);
    assert_int_equal(numbers(pair->json, "top_logprobs", top_logprobs, 4096 * N_TOP), n * N_TOP);
    numbers(pair->json, "kl49_llama_cpp_mean", &kl_bound, 1);
    numbers(pair->json, "top1_llama_cpp", &top1_bound, 1);
    for (size_t i = 0; i < n; i++)
        tokens[i] = (int32_t)ids[i];
    assert_int_equal(devices_open(&devs, &dopt, &e), ST_OK);
    if (gguf_open(&g, pair->model_path, GGUF_MMAP, &e) || model_load(&m, g, &mo, &e) ||
        session_new(&s, m, &so, &e))
        fail_msg("%s", e.msg);
    c.n_vocab = m->hp.n_vocab;
    if (session_eval(s, tokens, (uint32_t)n, WANT_ALL, compare_row, &c, &e))
        fail_msg("%s", e.msg);
    kl = c.kl_sum / c.n;
    top1 = (double)c.n_top1 / c.n;
    print_message("%u positions: mean KL %.3g (allowed %.3g), top-1 %.4f (at least %.4f)\n", c.n,
                  kl, kl_bound, top1, top1_bound);
    assert_true(kl <= kl_bound);
    assert_true(top1 >= top1_bound);
    session_free(s);
    model_free(m);
    devices_close(&devs);
}

/* Both files of a pair; false and a line on stdout when one is not there. */
static bool find(struct pair *p)
{
    const char *source = getenv("GGRUN_SOURCE_DIR");
    char path[512];
    size_t n;

    snprintf(path, sizeof path, "%s/../shared/oracles/logits/%s", source ? source : ".", p->oracle);
    if (!real_model(p->model, p->model_path))
        return false;
    p->json = read_file(path, &n);
    if (!p->json)
        printf("%s is not there\n", path);
    return p->json != NULL;
}

int main(void)
{
    struct CMUnitTest tests[N_PAIRS];
    size_t n = 0;
    int st = 0;

    for (size_t i = 0; i < N_PAIRS; i++)
        if (find(&pairs[i]))
            tests[n++] = (struct CMUnitTest){pairs[i].model, test_distance, NULL, NULL, &pairs[i]};
    for (size_t i = 0; i < n; i++) { /* one by one: the macro takes whole arrays */
        const struct CMUnitTest one[] = {tests[i]};

        st += cmocka_run_group_tests(one, NULL, NULL);
    }
    for (size_t i = 0; i < N_PAIRS; i++)
        mem_free(pairs[i].json);
    return st == 0 && n < N_PAIRS ? 77 : st;
}
