#include "cli/placement.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "gguf/base/mem.h"
#include "gguf/base/text.h"

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

/* ---- -ot ---- */

struct pattern {
    pcre2_code *code;
    pcre2_match_data *data;
};

/* A name is short, but a pattern may be such that a match takes for ever; PCRE2 gives up then. */
static enum status match(const struct place_rule *r, const char *name, bool *yes, struct err *e)
{
    const struct pattern *p = r->pattern;
    int rc = pcre2_match(p->code, (PCRE2_SPTR)name, strlen(name), 0, 0, p->data, NULL);
    PCRE2_UCHAR why[128] = "";

    *yes = rc >= 0;
    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH)
        return ST_OK;
    pcre2_get_error_message(rc, why, sizeof why);
    return err_set(e, ST_USAGE, "-ot '%s' cannot be matched with '%s': %s", r->text, name,
                   (const char *)why);
}

static void pattern_free(struct pattern *p)
{
    if (!p)
        return;
    pcre2_match_data_free(p->data);
    pcre2_code_free(p->code);
    mem_free(p);
}

/*
 * Length of the first entry of a list: a comma ends one only directly after "=NAME", so that patterns
 * may hold commas. *eq: where its last '=' is, or NULL.
 */
static size_t entry_length(const char *s, const char **eq)
{
    *eq = NULL;
    for (size_t i = 0;; i++) {
        if (s[i] == '=')
            *eq = s + i;
        if (!s[i])
            return i;
        if (s[i] == ',' && *eq && s + i > *eq + 1 &&
            strspn(*eq + 1, NAME_CHARS) == (size_t)(s + i - *eq - 1))
            return i;
    }
}

static enum status unknown_memory(const char *entry, const char *name, const struct devices *devs,
                                  struct err *e)
{
    struct text known = {0};
    enum status st;

    for (int i = 0; i < devs->n; i++) {
        const struct device *d = devs->dev[i];

        if (d->kind == DEVICE_ACCEL) /* works in the CPU's */
            continue;
        text_addf(&known, "%s%s", known.n ? ", " : "", d->buft->name);
        for (int k = 0; k < d->n_more; k++)
            text_addf(&known, ", %s", d->more[k]->name);
    }
    st = err_set(e, ST_USAGE, "-ot '%s': '%s' is no memory here; there are: %s", entry, name,
                 known.p ? known.p : "");
    text_release(&known);
    return st;
}

/* The first n bytes of the rule's text. */
static enum status compile(struct place_rule *r, size_t n, struct err *e)
{
    struct pattern *p = mem_zalloc(sizeof *p);
    PCRE2_UCHAR why[128] = "";
    PCRE2_SIZE at = 0;
    int rc = PCRE2_ERROR_NOMEMORY;

    r->pattern = p;
    if (p)
        p->code = pcre2_compile((PCRE2_SPTR)r->text, n, PCRE2_NEVER_BACKSLASH_C, &rc, &at, NULL);
    if (p && p->code)
        p->data = pcre2_match_data_create_from_pattern(p->code, NULL);
    if (p && p->data)
        return ST_OK;
    if (!p || p->code || rc == PCRE2_ERROR_HEAP_FAILED || rc == PCRE2_ERROR_NOMEMORY)
        return err_nomem(e, "-ot", n);
    pcre2_get_error_message(rc, why, sizeof why);
    return err_set(e, ST_USAGE, "-ot '%s': the pattern is not understood: %s at %zu", r->text,
                   (const char *)why, (size_t)at);
}

/* One "REGEX=NAME" of n bytes. */
static enum status add_rule(struct place_rules *r, const char *s, size_t n, const char *eq,
                            const struct devices *devs, struct err *e)
{
    struct place_rule *grown, *rule;
    char *entry = mem_strndup(s, n), *name;

    grown = mem_grow(r->rules, (size_t)r->n + 1, sizeof *grown);
    if (grown)
        r->rules = grown;
    if (!grown || !entry) {
        mem_free(entry);
        return err_nomem(e, "-ot", n);
    }
    rule = &r->rules[r->n];
    *rule = (struct place_rule){.text = entry, .match = match};
    r->n++; /* entry is released with it from here on */
    if (!eq || eq == s || eq + 1 == s + n)
        return err_set(e, ST_USAGE, "-ot is '%s', expected REGEX=MEMORY, such as ffn_.*=CPU",
                       entry);
    name = entry + (eq - s) + 1;
    rule->bt = devices_buft(devs, name, &rule->dev);
    if (!rule->bt)
        return unknown_memory(entry, name, devs, e);
    return compile(rule, (size_t)(eq - s), e);
}

static enum status add_rules(struct place_rules *r, const char *list, const struct devices *devs,
                             struct err *e)
{
    for (const char *p = list;; p++) {
        const char *eq;
        size_t n = entry_length(p, &eq);
        enum status st = add_rule(r, p, n, eq, devs, e);

        if (st)
            return st;
        p += n;
        if (!*p)
            return ST_OK;
    }
}

void place_rules_release(struct place_rules *r)
{
    for (int i = 0; i < r->n; i++) {
        pattern_free(r->rules[i].pattern);
        mem_free((char *)r->rules[i].text);
    }
    mem_free(r->rules);
    *r = (struct place_rules){0};
}

/* ---- -ngl, -ts ---- */

static bool has_accelerator(const struct devices *devs)
{
    for (int i = 0; i < devs->n; i++) {
        if (devs->dev[i]->kind == DEVICE_GPU)
            return true;
    }
    return false;
}

static enum status parse_layers(const char *s, const struct devices *devs, int32_t *out,
                                struct err *e)
{
    char *end;
    long n;

    if (!s || strcmp(s, "auto") == 0) {
        *out = has_accelerator(devs) ? PLACE_AUTO : 0;
        return ST_OK;
    }
    if (strcmp(s, "all") == 0) {
        *out = PLACE_ALL;
        return ST_OK;
    }
    errno = 0;
    n = strtol(s, &end, 10);
    if (!*s || strspn(s, "0123456789") != strlen(s) || errno || n > INT32_MAX)
        return err_set(e, ST_USAGE, "-ngl is '%s', expected a number of layers, auto or all", s);
    *out = (int32_t)n;
    return ST_OK;
}

static enum status parse_shares(const char *s, float *out, int *n, struct err *e)
{
    for (const char *p = s;; p++) {
        char *end;
        size_t k = strcspn(p, ",");

        if (*n == DEVICES_MAX)
            return err_set(e, ST_USAGE, "-ts has more than %d shares", DEVICES_MAX);
        out[*n] = strtof(p, &end);
        if (k == 0 || strspn(p, "0123456789.") != k || end != p + k)
            return err_set(e, ST_USAGE, "-ts is '%s', expected shares such as 3,1, of at least 0",
                           s);
        (*n)++;
        p += k;
        if (!*p)
            return ST_OK;
    }
}

enum status placement_from_options(struct placement_options *po, struct place_rules *r,
                                   const struct options *o, const struct devices *devs,
                                   struct err *e)
{
    static const enum split_mode modes[] = {SPLIT_LAYER, SPLIT_NONE, SPLIT_ROW};
    enum status st;

    *r = (struct place_rules){0};
    *po = (struct placement_options){.split = modes[o->split_mode],
                                     .main_gpu = o->main_gpu,
                                     .tensor_split = r->shares,
                                     .cpu_moe = o->cpu_moe,
                                     .n_cpu_moe = o->n_cpu_moe,
                                     .no_kv_offload = o->no_kv_offload};
    if (o->fit && o->n_gpu_layers && strcmp(o->n_gpu_layers, "auto") != 0)
        return err_set(e, ST_USAGE, "--fit and -ngl %s are given; use one of them",
                       o->n_gpu_layers);
    st = parse_layers(o->n_gpu_layers, devs, &po->n_gpu_layers, e);
    if (!st && o->tensor_split)
        st = parse_shares(o->tensor_split, r->shares, &po->n_tensor_split, e);
    for (int i = 0; i < o->n_tensor_rules && !st; i++)
        st = add_rules(r, o->tensor_rules[i], devs, e);
    po->rules = r->rules;
    po->n_rules = r->n;
    return st;
}

/* ---- --device-memory ---- */

enum status parse_device_memory(const char *s, struct device_spec *specs, int *n, struct err *e)
{
    *n = 0;
    for (const char *p = s;; p++) {
        size_t k = strcspn(p, ","), n_name = strcspn(p, "=,");
        struct device_spec *d = &specs[*n];
        char size[32] = "";
        uint64_t v = 0;

        if (*n == DEVICES_MAX - 1)
            return err_set(e, ST_USAGE, "--device-memory has more than %d devices",
                           DEVICES_MAX - 1);
        if (n_name < k && k - n_name - 1 < sizeof size)
            memcpy(size, p + n_name + 1, k - n_name - 1);
        if (!n_name || n_name >= sizeof d->name || !text_parse_size(size, &v) || !v ||
            v > SIZE_MAX / 4)
            return err_set(e, ST_USAGE,
                           "--device-memory is '%s', expected devices and their sizes, such as "
                           "sim0=24GiB,sim1=8GiB",
                           s);
        *d = (struct device_spec){.n_bytes = (size_t)v};
        memcpy(d->name, p, n_name);
        (*n)++;
        p += k;
        if (!*p)
            return ST_OK;
    }
}
