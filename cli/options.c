#include "cli/options.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <errno.h>
#include <float.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/base/mem.h"

/* ---- commands ---- */

static const struct {
    const char *name, *usage, *summary;
} commands[CMD_COUNT] = {
    [CMD_RUN] = {"run", "[run] [OPTION]... [PROMPT | -]", "continue a text or answer a request"},
    [CMD_INFO] = {"info", "info [OPTION]... [FILE]", "show what is in a model file"},
    [CMD_TOKENIZE] = {"tokenize", "tokenize [OPTION]... [TEXT | -]",
                      "turn text into token ids, and back with --decode"},
    [CMD_LOGITS] = {"logits", "logits [OPTION]... [TEXT | -]",
                    "write what the model computes for each token"},
    [CMD_BENCH] = {"bench", "bench [OPTION]...", "measure tokens per second"},
    [CMD_HELP] = {"help", "help [COMMAND]", "show help"},
};

const char *command_name(enum command c)
{
    return commands[c].name;
}

const char *command_summary(enum command c)
{
    return commands[c].summary;
}

bool command_find(const char *name, enum command *out)
{
    for (int c = 0; c < CMD_COUNT; c++) {
        if (strcmp(name, commands[c].name) == 0) {
            *out = (enum command)c;
            return true;
        }
    }
    return false;
}

/* ---- the table ---- */

enum kind {
    KIND_FLAG,   /* bool */
    KIND_INT,    /* int32_t from min to max */
    KIND_NUMBER, /* float from min to max */
    KIND_ABOVE,  /* float above min */
    KIND_SEED,   /* uint64_t, -1 for a random one */
    KIND_CHOICE, /* int32_t: index into choices */
    KIND_LEVEL,  /* int32_t from min to max, min without a value */
    KIND_STRING, /* const char * */
    KIND_MODEL,  /* adds to models */
    KIND_MODELS, /* adds a list to models */
    KIND_SOURCE, /* adds to sources; min = enum of struct source */
    KIND_INTS,   /* struct int_list, each from min to max */
};

enum {
    RUN = 1 << CMD_RUN,
    INFO = 1 << CMD_INFO,
    TOKENIZE = 1 << CMD_TOKENIZE,
    LOGITS = 1 << CMD_LOGITS,
    BENCH = 1 << CMD_BENCH,
    HELP = 1 << CMD_HELP,
    COMPUTE = RUN | LOGITS | BENCH,
    ALL = COMPUTE | INFO | TOKENIZE | HELP,
};

enum group { G_MODEL, G_PROMPT, G_SAMPLING, G_CONTEXT, G_COMPUTE, G_BENCH, G_OUTPUT, G_DEBUG, G_COUNT };

static const char *const group_names[G_COUNT] = {
    "Model", "Prompt", "Generation", "Context", "Computing", "Measuring", "Output", "Diagnostics",
};

struct row {
    const char *names; /* as shown, separated by spaces; the first is the usual one */
    enum kind kind;
    size_t offset; /* in struct options */
    double min, max;
    const char *arg; /* what the value is called in the help; for choices "a|b|c" */
    unsigned cmds;
    enum group group;
    const char *help;
};

#define AT(field) offsetof(struct options, field)
#define N_MAX     INT32_MAX

/* clang-format off */
static const struct row rows[] = {
    {"-m --model", KIND_MODEL, 0, 0, 0, "FILE", ALL & ~(BENCH | HELP), G_MODEL,
     "GGUF file (the first of a split one); without it the embedded story model is used"},
    {"-m --model", KIND_MODELS, 0, 0, 0, "FILE,...", BENCH, G_MODEL,
     "GGUF files, one after the other; may repeat"},
    {"--no-mmap", KIND_FLAG, AT(no_mmap), 0, 0, NULL, ALL & ~HELP, G_MODEL,
     "read the file into memory instead of mapping it"},
    {"--check-tensors", KIND_FLAG, AT(check_tensors), 0, 0, NULL, COMPUTE, G_MODEL,
     "refuse weights that are NaN or infinite"},

    {"-p --prompt", KIND_SOURCE, 0, SOURCE_TEXT, 0, "TEXT", RUN | TOKENIZE | LOGITS, G_PROMPT,
     "the text, word for word"},
    {"-f --file", KIND_SOURCE, 0, SOURCE_FILE, 0, "FILE", RUN | TOKENIZE | LOGITS, G_PROMPT,
     "the text is what FILE holds, byte for byte; - is stdin; tokenize takes several"},
    {"--chat", KIND_FLAG, AT(chat), 0, 0, NULL, RUN, G_PROMPT,
     "the text is a request: put it into the model's chat template"},
    {"--system -sys --system-prompt", KIND_STRING, AT(system), 0, 0, "TEXT", RUN, G_PROMPT,
     "system message of the chat (implies --chat)"},
    {"--chat-template", KIND_STRING, AT(chat_template), 0, 0, "NAME", RUN, G_PROMPT,
     "use this template instead of the file's: chatml (implies --chat)"},
    {"--raw", KIND_FLAG, AT(raw), 0, 0, NULL, RUN, G_PROMPT,
     "no template: continue the text"},
    {"--ids", KIND_STRING, AT(ids), 0, 0, "1,2,3", TOKENIZE | LOGITS, G_PROMPT,
     "token ids instead of a text"},
    {"--decode", KIND_FLAG, AT(decode), 0, 0, NULL, TOKENIZE, G_PROMPT,
     "turn ids (--ids, or lists in a text) into their exact bytes"},
    {"--no-bos", KIND_FLAG, AT(no_bos), 0, 0, NULL, RUN | TOKENIZE | LOGITS, G_PROMPT,
     "add no begin-of-text token, whatever the file says"},
    {"--no-special", KIND_FLAG, AT(no_special), 0, 0, NULL, RUN | TOKENIZE | LOGITS, G_PROMPT,
     "control tokens written in the text are text"},

    {"-n --predict --n-predict", KIND_INT, AT(n_predict), -1, N_MAX, "N", RUN, G_SAMPLING,
     "tokens to generate; -1: until the text or the context ends [-1]"},
    {"--temp --temperature", KIND_NUMBER, AT(sampling.temp), 0, FLT_MAX, "T", RUN, G_SAMPLING,
     "temperature; 0: always the most likely token [0.8]"},
    {"--top-k", KIND_INT, AT(sampling.top_k), -N_MAX, N_MAX, "N", RUN, G_SAMPLING,
     "keep the N most likely tokens; 0 or less: all [40]"},
    {"--top-p", KIND_NUMBER, AT(sampling.top_p), 0, 1, "P", RUN, G_SAMPLING,
     "keep the most likely tokens up to a sum of P; 1: all [0.95]"},
    {"--min-p", KIND_NUMBER, AT(sampling.min_p), 0, 1, "P", RUN, G_SAMPLING,
     "keep tokens at least P times as likely as the first; 0: all [0.05]"},
    {"--repeat-penalty", KIND_ABOVE, AT(sampling.repeat_penalty), 0, FLT_MAX, "X", RUN, G_SAMPLING,
     "make recent tokens less likely; 1: off [1]"},
    {"--repeat-last-n", KIND_INT, AT(sampling.repeat_last_n), -1, N_MAX, "N", RUN, G_SAMPLING,
     "tokens that count as recent; 0: off, -1: the whole context [64]"},
    {"-s --seed", KIND_SEED, AT(sampling.seed), -1, 0, "N", RUN, G_SAMPLING,
     "same seed, same text; -1: a new one each time [-1]"},
    {"--ignore-eos", KIND_FLAG, AT(ignore_eos), 0, 0, NULL, RUN, G_SAMPLING,
     "never choose a token that ends the text"},

    {"-c --ctx --ctx-size", KIND_INT, AT(n_ctx), 0, N_MAX, "N", RUN | LOGITS, G_CONTEXT,
     "tokens of context; 0: the model's, at most 4096 [0]"},
    {"-b --batch-size", KIND_INT, AT(n_batch), 1, N_MAX, "N", RUN | LOGITS, G_CONTEXT,
     "tokens between two looks at Ctrl-C and progress [2048]"},
    {"-ub --ubatch-size", KIND_INT, AT(n_ubatch), 1, N_MAX, "N", RUN | LOGITS, G_CONTEXT,
     "tokens computed together, at most -b [512]"},
    {"-ctk --cache-type-k", KIND_CHOICE, AT(type_k), 0, 0, "f16|f32", COMPUTE, G_CONTEXT,
     "type of the keys in the KV cache [f16]"},
    {"-ctv --cache-type-v", KIND_CHOICE, AT(type_v), 0, 0, "f16|f32", COMPUTE, G_CONTEXT,
     "type of the values in the KV cache [f16]"},

    {"-t --threads", KIND_INT, AT(n_threads), 1, 1024, "N", RUN | LOGITS, G_COMPUTE,
     "CPU threads [the cores that this process may use]"},
    {"-tb --threads-batch", KIND_INT, AT(n_threads_batch), 1, 1024, "N", COMPUTE, G_COMPUTE,
     "CPU threads for prompts [as -t]"},
    {"--isa", KIND_STRING, AT(isa), 0, 0, "NAME", COMPUTE | INFO, G_COMPUTE,
     "highest CPU instruction set to use, such as scalar or avx2 [the best here]"},
    {"--blas", KIND_CHOICE, AT(blas), 0, 0, "off|on", COMPUTE | INFO, G_COMPUTE,
     "OpenBLAS for large float products; its results may differ in the last bits [off]"},
    {"--no-reuse", KIND_FLAG, AT(no_reuse), 0, 0, NULL, COMPUTE, G_COMPUTE,
     "build a new graph for every step"},

    {"-p --n-prompt", KIND_INTS, AT(bench_prompt), 0, N_MAX, "N,...", BENCH, G_BENCH,
     "tokens of the prompt; 0: no such test [512]"},
    {"-n --n-gen", KIND_INTS, AT(bench_gen), 0, N_MAX, "N,...", BENCH, G_BENCH,
     "tokens to generate; 0: no such test [128]"},
    {"-d --n-depth", KIND_INTS, AT(bench_depth), 0, N_MAX, "N,...", BENCH, G_BENCH,
     "tokens in the context before each test [0]"},
    {"-t --threads", KIND_INTS, AT(bench_threads), 1, 1024, "N,...", BENCH, G_BENCH,
     "CPU threads [the cores that this process may use]"},
    {"-b --batch-size", KIND_INTS, AT(bench_batch), 1, N_MAX, "N,...", BENCH, G_BENCH,
     "tokens between two looks at Ctrl-C [2048]"},
    {"-ub --ubatch-size", KIND_INTS, AT(bench_ubatch), 1, N_MAX, "N,...", BENCH, G_BENCH,
     "tokens computed together, at most -b [512]"},
    {"-r --repetitions", KIND_INT, AT(repetitions), 1, 1000000, "N", BENCH, G_BENCH,
     "how often each test is repeated [5]"},
    {"-o --output", KIND_CHOICE, AT(format), 0, 0, "md|json|jsonl|csv", BENCH, G_BENCH,
     "format of the results on stdout [md]"},

    {"-o --output", KIND_STRING, AT(output), 0, 0, "FILE", LOGITS, G_OUTPUT,
     "write float32 logits, little-endian, n_vocab per token; - is stdout"},
    {"--json", KIND_FLAG, AT(json), 0, 0, NULL, INFO | TOKENIZE | LOGITS | HELP, G_OUTPUT,
     "print JSON"},
    {"--top", KIND_INT, AT(top), 1, 1000, "N", LOGITS, G_OUTPUT,
     "how many of the most likely tokens to show [10]"},
    {"--tensors", KIND_FLAG, AT(tensors), 0, 0, NULL, INFO, G_OUTPUT,
     "list every tensor"},
    {"--keys", KIND_FLAG, AT(keys), 0, 0, NULL, INFO, G_OUTPUT,
     "list every metadata key"},
    {"--check", KIND_FLAG, AT(check), 0, 0, NULL, INFO, G_OUTPUT,
     "look for NaN and infinity in every tensor"},
    {"--words", KIND_FLAG, AT(words), 0, 0, NULL, HELP, G_OUTPUT,
     "print the option names alone, for shell completion"},

    {"--stats", KIND_FLAG, AT(stats), 0, 0, NULL, COMPUTE, G_DEBUG,
     "print counters, times and sizes as 'name value' lines at the end"},
    {"-v --verbose", KIND_FLAG, AT(verbose), 0, 0, NULL, ALL & ~HELP, G_DEBUG,
     "say what is being done"},
    {"-q --quiet", KIND_FLAG, AT(quiet), 0, 0, NULL, ALL & ~HELP, G_DEBUG,
     "print nothing on stderr but errors and what was asked for"},
    {"--sched-debug", KIND_LEVEL, AT(sched_debug), 1, 2, "1|2", COMPUTE, G_DEBUG,
     "print the splits of each plan; 2: and every node, its device and the cause"},
    {"--alloc-debug", KIND_FLAG, AT(alloc_debug), 0, 0, NULL, COMPUTE, G_DEBUG,
     "print what the allocator does"},
    {"--exec-debug", KIND_FLAG, AT(exec_debug), 0, 0, NULL, COMPUTE, G_DEBUG,
     "print device, kernel and microseconds of each node"},
    {"--dump-node", KIND_STRING, AT(dump_node), 0, 0, "NAME", RUN | LOGITS, G_DEBUG,
     "print the values of this node whenever it was computed"},
    {"--dump-file", KIND_STRING, AT(dump_file), 0, 0, "FILE", RUN | LOGITS, G_DEBUG,
     "write them to FILE instead of stderr"},
    {"--check-reuse", KIND_FLAG, AT(check_reuse), 0, 0, NULL, RUN | LOGITS, G_DEBUG,
     "compute each reused step a second time with a new graph and compare the bits"},

    {"-h --help", KIND_FLAG, AT(help), 0, 0, NULL, ALL, G_OUTPUT, "show this help"},
    {"--version", KIND_FLAG, AT(version), 0, 0, NULL, ALL, G_OUTPUT, "show version and build"},
};
/* clang-format on */
enum { N_ROWS = sizeof rows / sizeof rows[0] };

/* Walks the names of a row: *p starts at row->names. Returns the next name's length, 0 at the end. */
static size_t next_name(const char **p)
{
    *p += strspn(*p, " ");
    return strcspn(*p, " ");
}

static const char *skip_dashes(const char *s)
{
    while (*s == '-')
        s++;
    return s;
}

/* The row for "-x", "--xyz" or "--xyz=value" among the options of the commands; NULL if there is none. */
static const struct row *find_row(const char *word, unsigned cmds)
{
    const char *name = skip_dashes(word);
    size_t n = strcspn(name, "=");
    bool dash_dash = name - word == 2;

    if (name - word > 2 || !n || (n == 1 && dash_dash))
        return NULL;
    for (int i = 0; i < N_ROWS; i++) {
        const char *p = rows[i].names;
        if (!(rows[i].cmds & cmds))
            continue;
        for (size_t k; (k = next_name(&p)) > 0; p += k) {
            const char *bare = skip_dashes(p);
            if ((size_t)(p + k - bare) == n && memcmp(bare, name, n) == 0)
                return &rows[i];
        }
    }
    return NULL;
}

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
static void expectation(const struct row *r, char *out, size_t n_out)
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
    } else if (r->max == (double)FLT_MAX) {
        text_addf(&t, "%s of at least %g", what, r->min);
    } else {
        text_addf(&t, whole ? "%s from %.0f to %.0f" : "%s from %g to %g", what, r->min, r->max);
    }
    text_quote(out, n_out, t.p ? t.p : "", t.n);
    text_release(&t);
}

static enum status bad_value(const struct row *r, const char *name, const char *value, struct err *e)
{
    char quoted[128], expected[160];

    expectation(r, expected, sizeof expected);
    return err_set(e, ST_USAGE, "%s is '%s', expected %s", name,
                   text_quote(quoted, sizeof quoted, value, strlen(value)), expected);
}

static bool set_int(const struct row *r, void *field, const char *value)
{
    int64_t v;

    if (!parse_int(value, &v) || (double)v < r->min || (double)v > r->max)
        return false;
    *(int32_t *)field = (int32_t)v;
    return true;
}

static bool set_number(const struct row *r, void *field, const char *value)
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

static bool set_choice(const struct row *r, void *field, const char *value)
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

static enum status add_ints(const struct row *r, struct int_list *list, const char *name,
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

static enum status add_source(struct options *o, int kind, const char *arg, struct err *e)
{
    struct source *s = append(&o->sources, &o->n_sources, sizeof *s);

    if (!s)
        return err_nomem(e, "options", sizeof *s);
    s->kind = kind;
    s->arg = arg;
    return ST_OK;
}

static enum status set_value(struct options *o, const struct row *r, const char *name, char *value,
                             struct err *e)
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
    case KIND_SOURCE:
        return add_source(o, (int)r->min, value, e);
    case KIND_INTS:
        return add_ints(r, field, name, value, e);
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
    const char *name = skip_dashes(word), *best = NULL;
    size_t n = strcspn(name, "=");
    int best_d = n > 4 ? 3 : 2; /* not more than this many edits, exclusive */

    for (int i = 0; i < N_ROWS; i++) {
        const char *p = rows[i].names;
        if (!(rows[i].cmds & cmds))
            continue;
        for (size_t k; (k = next_name(&p)) > 0; p += k) {
            const char *bare = skip_dashes(p);
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
    if (find_row(word, ALL))
        return err_set(e, ST_USAGE, "'%s' is not an option of 'ggrun %s'; see 'ggrun help %s'",
                       quoted, command_name(cmd), command_name(cmd));
    hint = similar_option(word, 1u << cmd, &n_hint);
    if (hint)
        return err_set(e, ST_USAGE, "unknown option '%s'; did you mean '%.*s'?", quoted,
                       (int)n_hint, hint);
    return err_set(e, ST_USAGE, "unknown option '%s'; see 'ggrun help %s'", quoted,
                   command_name(cmd));
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
                   text_quote(quoted, sizeof quoted, word, strlen(word)), command_name(o->cmd));
}

/* ---- getopt's view of the table ---- */

struct getopt_view {
    struct option *longs; /* names of two and more letters; val = N_SHORT + row */
    char shorts[2 + 3 * N_ROWS + 1];
};
enum { N_SHORT = 256 };

static int getopt_has_arg(const struct row *r)
{
    return r->kind == KIND_FLAG    ? no_argument
           : r->kind == KIND_LEVEL ? optional_argument
                                   : required_argument;
}

static enum status getopt_view_init(struct getopt_view *v, enum command cmd, struct err *e)
{
    int n = 0;
    size_t n_short = 2;

    memcpy(v->shorts, "-:", 3); /* words are handed out in their place; errors are ours to print */
    v->longs = mem_array(4 * N_ROWS + 1, sizeof *v->longs);
    if (!v->longs)
        return err_nomem(e, "options", (4 * N_ROWS + 1) * sizeof *v->longs);
    for (int i = 0; i < N_ROWS; i++) {
        const char *p = rows[i].names;
        if (!(rows[i].cmds & 1u << cmd))
            continue;
        for (size_t k; (k = next_name(&p)) > 0; p += k) {
            const char *bare = skip_dashes(p);
            size_t n_bare = (size_t)(p + k - bare);
            if (n_bare == 1) {
                v->shorts[n_short++] = *bare;
                if (rows[i].kind != KIND_FLAG)
                    v->shorts[n_short++] = ':';
            } else {
                char *name = mem_strndup(bare, n_bare);
                if (!name)
                    return err_nomem(e, "options", n_bare);
                v->longs[n++] =
                    (struct option){name, getopt_has_arg(&rows[i]), NULL, N_SHORT + i};
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
}

/*
 * One step of getopt. It would accept abbreviations and bundles; so each word is looked up as a whole first.
 * Sets *done behind the last word.
 */
static enum status parse_step(struct options *o, const struct getopt_view *v, int argc, char **argv,
                              bool *done, struct err *e)
{
    int i = optind ? optind : 1, c;
    const char *word = i < argc ? argv[i] : NULL;
    const struct row *r = NULL;
    char name[64] = "";

    if (word && word[0] == '-' && word[1] && strcmp(word, "--") != 0) {
        r = find_row(word, 1u << o->cmd);
        if (!r)
            return unknown_option(o->cmd, word, e);
        text_quote(name, sizeof name, word, strcspn(word, "="));
        if (strchr(word, '=') && strcspn(skip_dashes(word), "=") == 1)
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
    assert(c < N_SHORT || r == &rows[c - N_SHORT]);
    return set_value(o, r, name, optarg, e);
}

static void options_init(struct options *o)
{
    *o = (struct options){.n_predict = -1, .repetitions = 5};
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
    mem_free(o->sources);
    mem_free(o->bench_prompt.v);
    mem_free(o->bench_gen.v);
    mem_free(o->bench_depth.v);
    mem_free(o->bench_threads.v);
    mem_free(o->bench_batch.v);
    mem_free(o->bench_ubatch.v);
    *o = (struct options){0};
}

/* ---- help ---- */

static void row_heading(const struct row *r, struct text *t)
{
    const char *p = r->names;

    for (size_t k, i = 0; (k = next_name(&p)) > 0; p += k, i++) {
        if (i)
            text_str(t, ", ");
        text_bytes(t, p, k);
    }
    if (r->kind == KIND_LEVEL)
        text_addf(t, "[=%s]", r->arg);
    else if (r->arg)
        text_addf(t, " %s", r->arg);
}

/* Words of s from column `indent` on, wrapped before column 100. */
static void wrap(struct text *t, const char *s, size_t indent)
{
    size_t column = indent;

    while (*s) {
        size_t k = strcspn(s, " ");
        if (column > indent && column + 1 + k > 99) {
            text_addf(t, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            text_byte(t, ' ');
            column++;
        }
        text_bytes(t, s, k);
        column += k;
        s += k + (s[k] == ' ');
    }
    text_byte(t, '\n');
}

static void help_rows(struct text *t, enum command c, enum group g)
{
    bool any = false;

    for (int i = 0; i < N_ROWS; i++) {
        struct text head = {0};
        if (rows[i].group != g || !(rows[i].cmds & 1u << c))
            continue;
        if (!any)
            text_addf(t, "\n%s:\n", group_names[g]);
        any = true;
        row_heading(&rows[i], &head);
        text_addf(t, "  %-30s", head.p ? head.p : "");
        if (head.n > 29)
            text_addf(t, "\n%32s", "");
        wrap(t, rows[i].help, 32);
        text_release(&head);
    }
}

static const char *const examples[CMD_COUNT] = {
    [CMD_RUN] = "  ggrun \"Tell me a story about a fox and a lantern\"\n"
                "  ggrun -m model.gguf -p \"The capital of France is\" -n 16 --temp 0\n"
                "  ggrun -m model.gguf --chat \"Why is the sky blue?\"\n"
                "  cat notes.txt | ggrun -m model.gguf -n 100 -\n",
    [CMD_INFO] = "  ggrun info model.gguf\n"
                 "  ggrun info -m model.gguf --json | jq .architecture\n",
    [CMD_TOKENIZE] = "  ggrun tokenize -m model.gguf \"Hello world\"\n"
                     "  ggrun tokenize -m model.gguf -f a.txt -f b.txt --json --no-bos\n"
                     "  ggrun tokenize -m model.gguf --decode --ids 1,2,3\n",
    [CMD_LOGITS] = "  ggrun logits -m model.gguf --ids 1,2,3 -ctk f32 -ctv f32 -o logits.f32\n"
                   "  ggrun logits -m model.gguf -p \"Hello\" --json --top 5\n",
    [CMD_BENCH] = "  ggrun bench -m model.gguf -p 512 -n 128 -r 3\n"
                  "  ggrun bench -m a.gguf,b.gguf -t 1,2,4 -o jsonl\n",
};

static const char run_notes[] =
    "\nThe text comes from one place: PROMPT, -p, -f, or - (stdin). Without any, stdin is read when it is\n"
    "not a terminal. With -m the text is continued; the embedded model answers a PROMPT, and --chat makes\n"
    "any model do so. stdout holds the answer alone, with a newline at its end.\n";

void help_command(struct text *t, enum command c)
{
    text_addf(t, "Usage: ggrun %s\n\n", commands[c].usage);
    text_addf(t, "%c%s.\n", commands[c].summary[0] - 'a' + 'A', commands[c].summary + 1);
    if (c == CMD_RUN)
        text_str(t, run_notes);
    for (int g = 0; g < G_COUNT; g++)
        help_rows(t, c, (enum group)g);
    if (examples[c])
        text_addf(t, "\nExamples:\n%s", examples[c]);
}

void help_program(struct text *t)
{
    text_str(t, "Usage: ggrun [COMMAND] [OPTION]... [PROMPT]\n\n"
                "Run GGUF language models. Without -m, the embedded story model is used.\n\n"
                "Commands:\n");
    for (int c = 0; c < CMD_COUNT; c++)
        text_addf(t, "  %-10s %s%s\n", commands[c].name, commands[c].summary,
                  c == CMD_RUN ? " (when no command is named)" : "");
    text_str(t, "\nA first word that is the name of a command is the command; -- ends the options.\n"
                "'ggrun help COMMAND' lists a command's options.\n\nExamples:\n");
    for (int c = 0; c < CMD_COUNT; c++) {
        const char *x = examples[c];
        if (x)
            text_bytes(t, x, strcspn(x, "\n") + 1);
    }
}

void help_words(struct text *t, enum command c)
{
    for (int i = 0; i < N_ROWS; i++)
        if (rows[i].cmds & 1u << c)
            text_addf(t, "%s\n", rows[i].names);
}

static cJSON *row_json(const struct row *r)
{
    static const char *const kinds[] = {
        [KIND_FLAG] = "flag",     [KIND_INT] = "int",       [KIND_NUMBER] = "number",
        [KIND_ABOVE] = "number",  [KIND_SEED] = "seed",     [KIND_CHOICE] = "choice",
        [KIND_LEVEL] = "level",   [KIND_STRING] = "string", [KIND_MODEL] = "file",
        [KIND_MODELS] = "files",  [KIND_SOURCE] = "source", [KIND_INTS] = "ints",
    };
    cJSON *o = cJSON_CreateObject();
    cJSON *names = cJSON_AddArrayToObject(o, "names");
    cJSON *cmds = cJSON_AddArrayToObject(o, "commands");
    const char *p = r->names;

    for (size_t k; (k = next_name(&p)) > 0; p += k) {
        char name[32];
        cJSON_AddItemToArray(names, cJSON_CreateString(text_quote(name, sizeof name, p, k)));
    }
    for (int c = 0; c < CMD_COUNT; c++)
        if (r->cmds & 1u << c)
            cJSON_AddItemToArray(cmds, cJSON_CreateString(commands[c].name));
    cJSON_AddStringToObject(o, "kind", kinds[r->kind]);
    if (r->arg)
        cJSON_AddStringToObject(o, "argument", r->arg);
    if (r->kind == KIND_INT || r->kind == KIND_INTS || r->kind == KIND_LEVEL ||
        r->kind == KIND_NUMBER || r->kind == KIND_ABOVE) {
        cJSON_AddNumberToObject(o, "min", r->min);
        cJSON_AddNumberToObject(o, "max", r->max);
    }
    cJSON_AddStringToObject(o, "group", group_names[r->group]);
    cJSON_AddStringToObject(o, "help", r->help);
    return o;
}

cJSON *help_json(void)
{
    cJSON *list = cJSON_CreateArray();

    for (int i = 0; i < N_ROWS; i++)
        cJSON_AddItemToArray(list, row_json(&rows[i]));
    return list;
}
