#include "cli/options.h"

#include <assert.h>
#include <errno.h>
#include <float.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/option_table.h"
#include "cli/sampling_values.h"
#include "gguf/base/mem.h"
#include "gguf/base/text.h"

/* ---- values ---- */

static bool parse_int(const char *s, int64_t *out)
{
    char *end;
    long long v;

    if (!*s || strspn(s, "+-0123456789") != strlen(s))
        return false;
    errno = 0;
    v = strtoll(s, &end, 10);
    if (*end || errno)
        return false;
    *out = v;
    return true;
}

/* Decimal notation only: no "inf", "nan", hexadecimal or spaces. */
static bool parse_number(const char *s, double *out)
{
    char *end;
    double v;

    if (!*s || strspn(s, "+-.0123456789eE") != strlen(s))
        return false;
    v = strtod(s, &end);
    if (*end || !isfinite(v))
        return false;
    *out = v;
    return true;
}

/* "expected a number from 0 to 1"; the sentence for what a row takes. */
static void expectation(const struct option_row *r, char *out, size_t n_out)
{
    struct text t = {0};
    bool whole = r->kind == KIND_INT || r->kind == KIND_INTS || r->kind == KIND_LEVEL;
    const char *what = whole ? "a whole number" : "a number";

    if (r->kind == KIND_CHOICE) {
        text_str(&t, "one of: ");
        for (const char *p = r->arg; *p; p++)
            text_str(&t, *p == '|' ? ", " : (char[]){*p, 0});
    } else if (r->kind == KIND_SEED) {
        text_addf(&t, "a whole number from 0 to %llu, or -1", (unsigned long long)UINT64_MAX);
    } else if (r->kind == KIND_ABOVE) {
        text_addf(&t, "%s above %g", what, r->min);
    } else if (r->kind == KIND_BIAS) {
        text_str(&t, BIAS_EXPECTED);
    } else if (r->kind == KIND_BREAKER) {
        text_str(&t, BREAKER_EXPECTED);
    } else if (r->min == -(double)FLT_MAX) {
        text_str(&t, what);
    } else if (r->max == (double)FLT_MAX) {
        text_addf(&t, "%s of at least %g", what, r->min);
    } else {
        text_addf(&t, whole ? "%s from %.0f to %.0f" : "%s from %g to %g", what, r->min, r->max);
    }
    text_quote(out, n_out, t.p ? t.p : "", t.n);
    text_release(&t);
}

static enum status bad_value(const struct option_row *r, const char *name, const char *value,
                             struct err *e)
{
    char quoted[128], expected[160];

    expectation(r, expected, sizeof expected);
    return err_set(e, ST_USAGE, "%s is '%s', expected %s", name,
                   text_quote(quoted, sizeof quoted, value, strlen(value)), expected);
}

static bool set_int(const struct option_row *r, void *field, const char *value)
{
    int64_t v;

    if (!parse_int(value, &v) || (double)v < r->min || (double)v > r->max)
        return false;
    *(int32_t *)field = (int32_t)v;
    return true;
}

static bool set_number(const struct option_row *r, void *field, const char *value)
{
    double v;

    if (!parse_number(value, &v) || v < r->min || v > r->max)
        return false;
    if (r->kind == KIND_ABOVE && !((float)v > (float)r->min))
        return false;
    *(float *)field = (float)v;
    return true;
}

static bool set_seed(struct options *o, void *field, const char *value)
{
    char *end;
    unsigned long long v;

    if (strcmp(value, "-1") == 0) {
        o->seed_given = false;
        return true;
    }
    if (!*value || strspn(value, "0123456789") != strlen(value))
        return false;
    errno = 0;
    v = strtoull(value, &end, 10);
    if (errno)
        return false;
    *(uint64_t *)field = v;
    o->seed_given = true;
    return true;
}

static bool set_choice(const struct option_row *r, void *field, const char *value)
{
    size_t n = strlen(value);
    int32_t i = 0;

    for (const char *p = r->arg;; i++) {
        size_t k = strcspn(p, "|");
        if (k == n && memcmp(p, value, n) == 0) {
            *(int32_t *)field = i;
            return true;
        }
        if (!p[k])
            return false;
        p += k + 1;
    }
}

/* Put one more element of `size` bytes onto *array; NULL when memory is short. */
static void *append(void *array, int *n, size_t size)
{
    void **p = array;
    void *grown = mem_grow(*p, (size_t)*n + 1, size);

    if (!grown)
        return NULL;
    *p = grown;
    return (char *)grown + (size_t)(*n)++ * size;
}

static enum status add_ints(const struct option_row *r, struct int_list *list, const char *name,
                            const char *value, struct err *e)
{
    for (const char *p = value;; p++) {
        size_t k = strcspn(p, ",");
        char item[32];
        int32_t *slot;
        int32_t v;
        if (k >= sizeof item)
            return bad_value(r, name, value, e);
        memcpy(item, p, k);
        item[k] = 0;
        if (!set_int(r, &v, item))
            return bad_value(r, name, item, e);
        slot = append(&list->v, &list->n, sizeof *slot);
        if (!slot)
            return err_nomem(e, "options", sizeof *slot);
        *slot = v;
        p += k;
        if (!*p)
            return ST_OK;
    }
}

static enum status add_models(struct options *o, char *value, bool list, const char *name,
                              struct err *e)
{
    for (char *p = value;;) {
        size_t k = list ? strcspn(p, ",") : strlen(p);
        bool last = !p[k];
        const char **slot;
        if (!k)
            return err_set(e, ST_USAGE, "%s is empty, expected the name of a file", name);
        slot = append(&o->models, &o->n_models, sizeof *slot);
        if (!slot)
            return err_nomem(e, "options", sizeof *slot);
        p[k] = 0;
        *slot = p;
        if (last)
            return ST_OK;
        p += k + 1;
    }
}

static enum status add_string(const char ***list, int *n, const char *value, struct err *e)
{
    const char **slot = append(list, n, sizeof *slot);

    if (!slot)
        return err_nomem(e, "options", sizeof *slot);
    *slot = value;
    return ST_OK;
}

static enum status add_source(struct options *o, int kind, const char *arg, struct err *e)
{
    struct source *s = append(&o->sources, &o->n_sources, sizeof *s);

    if (!s)
        return err_nomem(e, "options", sizeof *s);
    s->kind = kind;
    s->arg = arg;
    return ST_OK;
}

static enum status add_bias(struct options *o, const struct option_row *r, const char *name,
                            const char *value, struct err *e)
{
    struct bias b, *slot;

    if (!bias_parse(value, &b))
        return bad_value(r, name, value, e);
    slot = append(&o->biases, &o->n_biases, sizeof *slot);
    if (!slot)
        return err_nomem(e, "options", sizeof *slot);
    *slot = b;
    return ST_OK;
}

/* The first one takes the place of the usual ones; "none" takes away all before it. */
static enum status add_breaker(struct options *o, const struct option_row *r, const char *name,
                               const char *value, struct err *e)
{
    struct text t = {0}, *slot;

    o->breakers_given = true;
    if (strcmp(value, "none") == 0) {
        while (o->n_breakers)
            text_release(&o->breakers[--o->n_breakers]);
        return ST_OK;
    }
    if (!breaker_parse(value, &t))
        return bad_value(r, name, value, e);
    slot = t.failed ? NULL : append(&o->breakers, &o->n_breakers, sizeof *slot);
    if (!slot) {
        text_release(&t);
        return err_nomem(e, "options", sizeof *slot);
    }
    *slot = t;
    return ST_OK;
}

static enum status set_value(struct options *o, const struct option_row *r, const char *name,
                             char *value, struct err *e)
{
    void *field = (char *)o + r->offset;
    bool ok = true;

    switch (r->kind) {
    case KIND_FLAG:
        *(bool *)field = true;
        break;
    case KIND_LEVEL:
        if (!value)
            *(int32_t *)field = (int32_t)r->min;
        else
            ok = set_int(r, field, value);
        break;
    case KIND_INT:
        ok = set_int(r, field, value);
        break;
    case KIND_NUMBER:
    case KIND_ABOVE:
        ok = set_number(r, field, value);
        break;
    case KIND_SEED:
        ok = set_seed(o, field, value);
        break;
    case KIND_CHOICE:
        ok = set_choice(r, field, value);
        break;
    case KIND_STRING:
        *(const char **)field = value;
        break;
    case KIND_MODEL:
    case KIND_MODELS:
        return add_models(o, value, r->kind == KIND_MODELS, name, e);
    case KIND_OVERRIDE:
        return add_string(&o->overrides, &o->n_overrides, value, e);
    case KIND_PLACE:
        return add_string(&o->tensor_rules, &o->n_tensor_rules, value, e);
    case KIND_SOURCE:
        return add_source(o, (int)r->min, value, e);
    case KIND_INTS:
        return add_ints(r, field, name, value, e);
    case KIND_BIAS:
        return add_bias(o, r, name, value, e);
    case KIND_BREAKER:
        return add_breaker(o, r, name, value, e);
    case KIND_ORDER:
        return r->min > 0 ? sampler_set_letters(&o->sampling, name, value, e)
                          : sampler_set_names(&o->sampling, name, value, e);
    }
    return ok ? ST_OK : bad_value(r, name, value, e);
}

/* ---- words ---- */

/* Edit distance of a[0..na) and b[0..nb), both shorter than 32; more than that is "far". */
static int distance(const char *a, size_t na, const char *b, size_t nb)
{
    int d[32];

    if (na >= 32 || nb >= 32)
        return INT_MAX;
    for (size_t j = 0; j <= nb; j++)
        d[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int diagonal = d[0];
        d[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = d[j];
            d[j] = change;
            if (d[j - 1] + 1 < d[j])
                d[j] = d[j - 1] + 1;
            if (diagonal + 1 < d[j])
                d[j] = diagonal + 1;
        }
    }
    return d[nb];
}

/* The name of an option of `cmds` that is most like `word`, or NULL. */
static const char *similar_option(const char *word, unsigned cmds, size_t *n_out)
{
    const char *name = option_skip_dashes(word), *best = NULL;
    size_t n = strcspn(name, "=");
    int best_d = n > 4 ? 3 : 2; /* not more than this many edits, exclusive */

    for (int i = 0; i < n_option_rows; i++) {
        const char *p = option_rows[i].names;
        if (!(option_rows[i].cmds & cmds))
            continue;
        for (size_t k; (k = option_next_name(&p)) > 0; p += k) {
            const char *bare = option_skip_dashes(p);
            size_t n_bare = (size_t)(p + k - bare);
            int d = distance(name, n, bare, n_bare);
            if (n >= 2 && n < n_bare && memcmp(name, bare, n) == 0)
                d = 1; /* an abbreviation */
            if (n_bare > 1 && d < best_d) {
                best_d = d;
                best = p;
                *n_out = k;
            }
        }
    }
    return best;
}

static enum status unknown_option(enum command cmd, const char *word, struct err *e)
{
    size_t n = strcspn(word, "="), n_hint;
    char quoted[128];
    const char *hint;

    text_quote(quoted, sizeof quoted, word, n);
    if (option_find(word, ALL_COMMANDS))
        return err_set(e, ST_USAGE, "'%s' is not an option of 'ggrun %s'; see 'ggrun help %s'",
                       quoted, commands[cmd].name, commands[cmd].name);
    hint = similar_option(word, 1u << cmd, &n_hint);
    if (hint)
        return err_set(e, ST_USAGE, "unknown option '%s'; did you mean '%.*s'?", quoted,
                       (int)n_hint, hint);
    return err_set(e, ST_USAGE, "unknown option '%s'; see 'ggrun help %s'", quoted,
                   commands[cmd].name);
}

static enum status add_word(struct options *o, char *word, struct err *e)
{
    char quoted[96];

    switch (o->cmd) {
    case CMD_RUN:
    case CMD_TOKENIZE:
    case CMD_LOGITS:
        if (o->n_sources && o->sources[o->n_sources - 1].kind == SOURCE_WORD)
            return err_set(e, ST_USAGE,
                           "'%s' is a second text after the first; put quotes around a text of "
                           "several words",
                           text_quote(quoted, sizeof quoted, word, strlen(word)));
        return add_source(o, SOURCE_WORD, word, e);
    case CMD_INFO:
    case CMD_PLAN:
        return add_models(o, word, false, "the file", e);
    case CMD_HELP:
        if (!o->topic) {
            o->topic = word;
            return ST_OK;
        }
        break;
    default:
        break;
    }
    return err_set(e, ST_USAGE, "unexpected word '%s'; see 'ggrun help %s'",
                   text_quote(quoted, sizeof quoted, word, strlen(word)), commands[o->cmd].name);
}

/* ---- getopt's view of the table ---- */

struct getopt_view {
    struct option *longs; /* names of two and more letters; val = N_SHORT + row */
    char *shorts;         /* names of one letter; ":" behind those that take a value */
};
enum { N_SHORT = 256 };

static int getopt_has_arg(const struct option_row *r)
{
    return r->kind == KIND_FLAG    ? no_argument
           : r->kind == KIND_LEVEL ? optional_argument
                                   : required_argument;
}

static enum status getopt_view_init(struct getopt_view *v, enum command cmd, struct err *e)
{
    size_t n_names = 4 * (size_t)n_option_rows; /* no row has more than 4 */
    size_t n = 0, n_short = 2;

    v->longs = mem_array(n_names + 1, sizeof *v->longs);
    v->shorts = mem_alloc(2 * n_names + sizeof "-:");
    if (!v->longs || !v->shorts)
        return err_nomem(e, "options", n_names * sizeof *v->longs);
    memcpy(v->shorts, "-:", 2); /* words are handed out in their place; errors are ours to print */
    for (int i = 0; i < n_option_rows; i++) {
        const char *p = option_rows[i].names;
        if (!(option_rows[i].cmds & 1u << cmd))
            continue;
        for (size_t k; (k = option_next_name(&p)) > 0; p += k) {
            const char *bare = option_skip_dashes(p);
            size_t n_bare = (size_t)(p + k - bare);
            if (n_bare == 1) {
                v->shorts[n_short++] = *bare;
                if (option_rows[i].kind != KIND_FLAG)
                    v->shorts[n_short++] = ':';
            } else {
                char *name = mem_strndup(bare, n_bare);
                if (!name)
                    return err_nomem(e, "options", n_bare);
                v->longs[n++] =
                    (struct option){name, getopt_has_arg(&option_rows[i]), NULL, N_SHORT + i};
            }
        }
    }
    v->shorts[n_short] = 0;
    return ST_OK;
}

static void getopt_view_release(struct getopt_view *v)
{
    for (struct option *o = v->longs; o && o->name; o++)
        mem_free((char *)o->name);
    mem_free(v->longs);
    mem_free(v->shorts);
}

/*
 * One step of getopt. It would accept abbreviations and bundles; so each word is looked up as a
 * whole first. Sets *done behind the last word.
 */
static enum status parse_step(struct options *o, const struct getopt_view *v, int argc, char **argv,
                              bool *done, struct err *e)
{
    int i = optind ? optind : 1, c;
    const char *word = i < argc ? argv[i] : NULL;
    const struct option_row *r = NULL;
    char name[64] = "";

    if (word && word[0] == '-' && word[1] && strcmp(word, "--") != 0) {
        r = option_find(word, 1u << o->cmd);
        if (!r)
            return unknown_option(o->cmd, word, e);
        text_quote(name, sizeof name, word, strcspn(word, "="));
        if (strchr(word, '=') && strcspn(option_skip_dashes(word), "=") == 1)
            return err_set(e, ST_USAGE, "option '%s' takes its value as the next word", name);
    }
    c = getopt_long_only(argc, argv, v->shorts, v->longs, NULL);
    if (c == -1) {
        *done = true;
        return ST_OK;
    }
    if (c == 1)
        return add_word(o, optarg, e);
    if (c == ':')
        return err_set(e, ST_USAGE, "option '%s' needs a value", name);
    if (c == '?' || !r)
        return err_set(e, ST_USAGE, "option '%s' takes no value", name);
    assert(c < N_SHORT || r == &option_rows[c - N_SHORT]);
    return set_value(o, r, name, optarg, e);
}

static void options_init(struct options *o)
{
    *o = (struct options){.n_predict = -1, .n_ctx = -1, .repetitions = 5};
    sampler_defaults(&o->sampling);
}

enum status options_parse(struct options *o, int argc, char **argv, struct err *e)
{
    struct getopt_view v = {0};
    enum status st;
    bool done = false;

    options_init(o);
    if (argc > 1 && command_find(argv[1], &o->cmd)) {
        argc--;
        argv++;
    }
    st = getopt_view_init(&v, o->cmd, e);
    optind = 0; /* GNU: start afresh; the first call makes it 1 */
    opterr = 0;
    while (!st && !done)
        st = parse_step(o, &v, argc, argv, &done, e);
    for (int i = optind; !st && i < argc; i++)
        st = add_word(o, argv[i], e);
    getopt_view_release(&v);
    if (!st && o->cmd != CMD_BENCH && o->n_models > 1)
        st = err_set(e, ST_USAGE, "%d model files are given, expected one", o->n_models);
    return st;
}

void options_release(struct options *o)
{
    mem_free(o->models);
    mem_free(o->overrides);
    mem_free(o->tensor_rules);
    mem_free(o->sources);
    mem_free(o->biases);
    for (int i = 0; i < o->n_breakers; i++)
        text_release(&o->breakers[i]);
    mem_free(o->breakers);
    mem_free(o->bench_prompt.v);
    mem_free(o->bench_gen.v);
    mem_free(o->bench_depth.v);
    mem_free(o->bench_threads.v);
    mem_free(o->bench_batch.v);
    mem_free(o->bench_ubatch.v);
    *o = (struct options){0};
}
