#include "runtime/sampler.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "gguf/base/log.h"
#include "gguf/base/mem.h"
#include "runtime/sample.h"

/* The samplers, in the order in which they are applied unless --samplers says otherwise; behind
 * them those without a letter, which the chain adds itself. */
static const struct sampler_row *const rows[] = {
    /* clang-format off */
    &sample_penalties,
    &sample_dry,
    &sample_top_n_sigma,
    &sample_top_k,
    &sample_typ_p,
    &sample_top_p,
    &sample_min_p,
    &sample_xtc,
    &sample_temperature,
    &sample_adaptive_p,
    &sample_mirostat,
    &sample_dist,
    /* clang-format on */
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };
_Static_assert(sizeof rows / sizeof rows[0] <= SAMPLER_MAX,
               "struct sampler_options has a place for every row");

struct step {
    const struct sampler_row *row;
    void *state;
    bool skip; /* would change nothing */
};

struct sampler {
    struct sampler_options opt;
    float *bias;       /* [n_vocab] -INFINITY: never picked */
    uint32_t *allowed; /* [(n_vocab + 31) / 32] bit 1: may be picked; for graphs */
    struct step steps[SAMPLER_MAX];
    int32_t n_steps;
    struct sample list;
    struct candidate *kept; /* [n_vocab] result for sampler_kept */
    int32_t n_kept;
};

/* ---- options ---- */

void sampler_defaults(struct sampler_options *o)
{
    *o = (struct sampler_options){
        .temp = 0.8f,
        .dynatemp_exp = 1,
        .top_n_sigma = -1,
        .top_k = 40,
        .typ_p = 1,
        .top_p = 0.95f,
        .min_p = 0.05f,
        .xtc_threshold = 0.1f,
        .adaptive_target = -1,
        .adaptive_decay = 0.9f,
        .mirostat_lr = 0.1f,
        .mirostat_ent = 5,
        .dry_base = 1.75f,
        .dry_allowed_length = 2,
        .dry_penalty_last_n = 64,
        .repeat_penalty = 1,
        .repeat_last_n = 64,
    };
    for (int i = 0; i < N_ROWS; i++)
        if (rows[i]->letter)
            o->order[o->n_order++] = (int8_t)i;
}

enum status sample_expect(bool ok, const char *flag, double v, const char *expected, struct err *e)
{
    return ok ? ST_OK : err_set(e, ST_USAGE, "%s is '%g', expected %s", flag, v, expected);
}

enum status sampler_check(const struct sampler_options *o, struct err *e)
{
    for (int i = 0; i < N_ROWS; i++) {
        enum status st = rows[i]->check ? rows[i]->check(o, e) : ST_OK;
        if (st)
            return st;
    }
    return ST_OK;
}

/* Is s[0..n) the name, where case, '-' and '_' do not count? */
static bool same_name(const char *name, const char *s, size_t n)
{
    size_t i = 0;

    if (!name)
        return false;
    for (;; i++, name++) {
        while (*name == '_')
            name++;
        while (i < n && (s[i] == '_' || s[i] == '-'))
            i++;
        if (i == n || !*name)
            return i == n && !*name;
        if (tolower((unsigned char)s[i]) != *name)
            return false;
    }
}

static int find_name(const char *s, size_t n)
{
    for (int i = 0; i < N_ROWS; i++)
        if (rows[i]->letter && (same_name(rows[i]->name, s, n) || same_name(rows[i]->alias, s, n)))
            return i;
    return -1;
}

static int find_letter(char c)
{
    for (int i = 0; i < N_ROWS; i++)
        if (rows[i]->letter == c)
            return c ? i : -1;
    return -1;
}

/* The error for word[0..n) of an option; row -1: there is no such sampler. */
static enum status bad_name(const char *flag, const char *word, size_t n, int row, struct err *e)
{
    struct text all = {0};
    char quoted[64];

    text_quote(quoted, sizeof quoted, word, n);
    if (row >= 0)
        return err_set(e, ST_USAGE, "%s names '%s' twice, expected each sampler once", flag,
                       rows[row]->name);
    for (int i = 0; i < N_ROWS; i++)
        if (rows[i]->letter)
            text_addf(&all, "%s%s (%c)", all.n ? ", " : "", rows[i]->name, rows[i]->letter);
    err_set(e, ST_USAGE, "%s names '%s', expected some of: %s", flag, quoted, all.p ? all.p : "");
    text_release(&all);
    return ST_USAGE;
}

/* Put the row at the end of the order; false if it is there already. */
static bool add_row(struct sampler_options *o, int row)
{
    for (int i = 0; i < o->n_order; i++)
        if (o->order[i] == row)
            return false;
    o->order[o->n_order++] = (int8_t)row;
    return true;
}

enum status sampler_set_names(struct sampler_options *o, const char *flag, const char *names,
                              struct err *e)
{
    o->n_order = 0;
    for (const char *p = names;; p++) {
        size_t n = strcspn(p, ";");
        int row = find_name(p, n);
        if (row < 0 || !add_row(o, row))
            return bad_name(flag, p, n, row, e);
        p += n;
        if (!*p)
            return ST_OK;
    }
}

enum status sampler_set_letters(struct sampler_options *o, const char *flag, const char *letters,
                                struct err *e)
{
    const char *p = letters;

    o->n_order = 0;
    do {
        int row = find_letter(*p);
        if (row < 0 || !add_row(o, row))
            return bad_name(flag, p, strnlen(p, 1), row, e);
    } while (*++p);
    return ST_OK;
}

/* ---- the chain ---- */

static void add_step(struct sampler *s, const struct sampler_row *row)
{
    s->steps[s->n_steps++] = (struct step){.row = row};
}

/* The rows in their order; one that draws goes last, dist if there is none. Mirostat chooses among
 * all tokens: before it comes the temperature alone. */
static void make_chain(struct sampler *s)
{
    const struct sampler_options *o = &s->opt;
    const struct sampler_row *last = &sample_dist;

    for (int i = 0; i < o->n_order && !o->mirostat; i++) {
        const struct sampler_row *row = rows[o->order[i]];
        if (!row->draws)
            add_step(s, row);
        else if (row->active(o))
            last = row;
    }
    if (o->mirostat) {
        add_step(s, &sample_temperature);
        last = &sample_mirostat;
    }
    add_step(s, last);
}

static bool is_active(const struct sampler_row *row, const struct sampler_options *o)
{
    return !row->active || row->active(o);
}

/* Immediately before a greedy choice, what never removes the most likely would change nothing. */
static void skip_steps(struct sampler *s)
{
    bool greedy = false;

    for (int i = s->n_steps - 1; i >= 0; i--) {
        struct step *p = &s->steps[i];
        if (!is_active(p->row, &s->opt)) {
            p->skip = true;
            continue;
        }
        p->skip = greedy && p->row->keeps_first;
        greedy = p->skip ||
                 (p->row == &sample_temperature && s->opt.temp == 0 && s->opt.dynatemp_range == 0);
    }
}

static bool in_chain(const struct sampler *s, const struct sampler_row *row)
{
    for (int i = 0; i < s->n_steps; i++)
        if (s->steps[i].row == row)
            return true;
    return false;
}

/* A value that was set in vain: not the default, for a sampler that is not in the chain. */
static void warn_unused(const struct sampler *s)
{
    struct sampler_options defaults;

    sampler_defaults(&defaults);
    for (int i = 0; i < N_ROWS; i++) {
        struct text set = {0}, usual = {0};
        if (!rows[i]->letter || in_chain(s, rows[i]) || !is_active(rows[i], &s->opt))
            continue;
        rows[i]->describe(&s->opt, &set);
        rows[i]->describe(&defaults, &usual);
        if (set.p && usual.p && strcmp(set.p, usual.p) != 0)
            log_warn("%s%s has no effect: %s", rows[i]->name, set.p,
                     s->opt.mirostat ? "mirostat goes without it" : "it is not among the samplers");
        text_release(&set);
        text_release(&usual);
    }
}

void sampler_describe(const struct sampler *s, struct text *t)
{
    int32_t n_bias = 0;

    for (int32_t id = 0; id < s->list.n_vocab; id++)
        n_bias += s->bias[id] != 0;
    if (n_bias)
        text_addf(t, "logit_bias(%d tokens) -> ", (int)n_bias);
    for (int i = 0; i < s->n_steps; i++) {
        const struct sampler_row *row = s->steps[i].row;
        text_addf(t, "%s%s", i ? " -> " : "", row->name);
        if (is_active(row, &s->opt))
            row->describe(&s->opt, t);
        else
            text_str(t, " off");
    }
}

/* ---- life ---- */

static enum status open_steps(struct sampler *s, uint32_t n_ctx, struct err *e)
{
    struct sampler_setup u = {&s->opt, s->list.n_vocab, n_ctx};

    for (int i = 0; i < s->n_steps; i++) {
        struct step *p = &s->steps[i];
        enum status st = p->row->open && !p->skip ? p->row->open(&p->state, &u, e) : ST_OK;
        if (st)
            return st;
    }
    return ST_OK;
}

static bool open_list(struct sampler *s, int32_t n_vocab)
{
    struct sample *l = &s->list;
    size_t n = (size_t)n_vocab;

    *l = (struct sample){.opt = &s->opt, .n_vocab = n_vocab};
    rng_seed(l->rng, s->opt.seed);
    l->picks = mem_array(n, sizeof *l->picks);
    l->spare = mem_array(n, sizeof *l->spare);
    l->weights = mem_array(n, sizeof *l->weights);
    s->bias = mem_array(n, sizeof *s->bias);
    s->allowed = mem_array((n + 31) / 32, sizeof *s->allowed);
    s->kept = mem_array(n, sizeof *s->kept);
    if (!l->picks || !l->spare || !l->weights || !s->bias || !s->allowed || !s->kept)
        return false;
    memset(s->allowed, 0xff, (n + 31) / 32 * sizeof *s->allowed);
    return true;
}

enum status sampler_new(struct sampler **out, const struct sampler_options *o, int32_t n_vocab,
                        uint32_t n_ctx, struct err *e)
{
    struct sampler *s;
    enum status st;

    *out = NULL;
    assert(n_vocab > 0);
    st = sampler_check(o, e);
    if (st)
        return st;
    s = mem_zalloc(sizeof *s);
    if (!s)
        return err_nomem(e, "sampler", sizeof *s);
    s->opt = *o;
    make_chain(s);
    skip_steps(s);
    if (!open_list(s, n_vocab)) {
        sampler_free(s);
        return err_nomem(e, "sampler",
                         (size_t)n_vocab * (2 * sizeof *s->list.picks + sizeof *s->list.weights +
                                            sizeof *s->bias + sizeof *s->kept));
    }
    st = open_steps(s, n_ctx, e);
    if (st) {
        sampler_free(s);
        return st;
    }
    warn_unused(s);
    *out = s;
    return ST_OK;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n_steps; i++)
        if (s->steps[i].row->close)
            s->steps[i].row->close(s->steps[i].state);
    mem_free(s->list.picks);
    mem_free(s->list.spare);
    mem_free(s->list.weights);
    mem_free(s->bias);
    mem_free(s->allowed);
    mem_free(s->kept);
    mem_free(s);
}

enum status sampler_bias(struct sampler *s, int32_t id, float bias, struct err *e)
{
    float sum;

    if (id < 0 || id >= s->list.n_vocab)
        return err_set(e, ST_USAGE, "token id %d is not in the vocabulary of %d", (int)id,
                       (int)s->list.n_vocab);
    sum = s->bias[id] + bias;
    if (!(sum < INFINITY))
        return err_set(e, ST_USAGE, "the bias of token %d is '%g', expected a number or -inf",
                       (int)id, (double)bias);
    s->bias[id] = sum;
    if (sum == -INFINITY)
        s->allowed[id / 32] &= ~(UINT32_C(1) << id % 32);
    return ST_OK;
}

enum status sampler_ban(struct sampler *s, int32_t id, struct err *e)
{
    return sampler_bias(s, id, -INFINITY, e);
}

static const struct step *dry_step(const struct sampler *s)
{
    for (int i = 0; i < s->n_steps; i++)
        if (s->steps[i].row == &sample_dry && !s->steps[i].skip)
            return &s->steps[i];
    return NULL;
}

bool sampler_wants_breakers(const struct sampler *s)
{
    return dry_step(s) != NULL;
}

enum status sampler_add_breaker(struct sampler *s, const int32_t *ids, int32_t n, struct err *e)
{
    const struct step *p = dry_step(s);

    assert(n >= 1);
    if (!p || ids[0] < 0 || ids[0] >= s->list.n_vocab)
        return ST_OK;
    return sample_dry_breaker(p->state, ids, n, e);
}

/* ---- what a graph can do ---- */

/* Biases that are more than a ban change logits before any sampler. */
static bool has_biases(const struct sampler *s, bool *bans)
{
    for (int32_t id = 0; id < s->list.n_vocab; id++) {
        *bans |= s->bias[id] == -INFINITY;
        if (s->bias[id] != 0 && s->bias[id] != -INFINITY)
            return true;
    }
    return false;
}

static const struct sampler_row *first_row(const struct sampler *s)
{
    int i = 0;

    while (s->steps[i].skip) /* dist and its like never are */
        i++;
    return s->steps[i].row;
}

bool sampler_in_graph(const struct sampler *s, struct graph_sampling *gs, const char **why)
{
    const struct sampler_options *o = &s->opt;
    const struct sampler_row *row = first_row(s);
    bool bans = false, biases = has_biases(s, &bans);
    bool greedy = row == &sample_temperature && o->temp == 0 && o->dynatemp_range == 0;
    bool top = row == &sample_top_k && o->top_k < s->list.n_vocab; /* all of them are no choice */

    *gs = (struct graph_sampling){.argmax = greedy || (top && o->top_k == 1),
                                  .top_k = top ? o->top_k : 0,
                                  .allowed = bans ? s->allowed : NULL};
    *why = biases ? "logit_bias" : row->name;
    return !biases && graph_sampling_on(gs);
}

/* ---- a sample ---- */

void sampler_accept(struct sampler *s, int32_t id)
{
    if (id < 0 || id >= s->list.n_vocab)
        return;
    for (int i = 0; i < s->n_steps; i++) {
        struct step *p = &s->steps[i];
        if (p->row->accept && !p->skip)
            p->row->accept(p->state, id);
    }
}

static enum status bad_logit(float x, int32_t id, struct err *e)
{
    return err_set(e, ST_MODEL, "the logit of token %d is %s", (int)id,
                   isnan(x) ? "not a number" : "infinite");
}

static enum status none_left(const struct sampler *s, struct err *e)
{
    return err_set(e, ST_MODEL, "no token is left to pick: all %d have probability 0",
                   (int)s->list.n_vocab);
}

/* The candidates: all ids whose logit, with its bias, is not -inf. */
static enum status begin_list(struct sampler *s, const float *logits, struct err *e)
{
    struct sample *l = &s->list;
    struct pick *end = l->picks;

    for (int32_t id = 0; id < l->n_vocab; id++) {
        double x = (double)logits[id] + (double)s->bias[id];
        if (!(x < INFINITY))
            return bad_logit(logits[id], id, e);
        *end = (struct pick){x, id}; /* there is room for all */
        end += x > -INFINITY;
    }
    l->n = (int32_t)(end - l->picks);
    if (!l->n)
        return none_left(s, e);
    l->by_id = true;
    sample_changed(l, false);
    return ST_OK;
}

/* The candidates that a graph has chosen, in the order of sample_sort. */
static enum status begin_chosen(struct sampler *s, const int32_t *ids, const float *logits,
                                int32_t n, struct err *e)
{
    struct sample *l = &s->list;

    l->n = 0;
    for (int32_t i = 0; i < n; i++) {
        double x = (double)logits[i];
        if (!(x < INFINITY))
            return bad_logit(logits[i], ids[i], e);
        l->picks[l->n] = (struct pick){x, ids[i]};
        l->n += x > -INFINITY;
    }
    if (!l->n)
        return none_left(s, e);
    sample_changed(l, true);
    return ST_OK;
}

static void keep_result(struct sampler *s)
{
    const struct sample *l = &s->list;
    double sum = sample_weigh(&s->list);

    for (int32_t i = 0; i < l->n; i++)
        s->kept[i] = (struct candidate){l->picks[i].id, (float)(l->weights[i] / sum)};
    s->n_kept = l->n;
}

/* From the candidates to an id. */
static int32_t apply_chain(struct sampler *s)
{
    for (int i = 0; i < s->n_steps; i++)
        if (!s->steps[i].skip)
            s->steps[i].row->apply(s->steps[i].state, &s->list);
    keep_result(s);
    return s->list.picks[s->list.drawn].id;
}

enum status sampler_sample(struct sampler *s, const float *logits, int32_t *id, struct err *e)
{
    enum status st;

    s->n_kept = 0;
    st = begin_list(s, logits, e);
    if (!st)
        *id = apply_chain(s);
    return st;
}

enum status sampler_sample_of(struct sampler *s, const int32_t *ids, const float *logits, int32_t n,
                              int32_t *id, struct err *e)
{
    enum status st;

    s->n_kept = 0;
    st = begin_chosen(s, ids, logits, n, e);
    if (!st)
        *id = apply_chain(s);
    return st;
}

const struct candidate *sampler_kept(const struct sampler *s, int32_t *n)
{
    *n = s->n_kept;
    return s->kept;
}
