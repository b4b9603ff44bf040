/*
 * The command line: one table row per option gives names, parsing, range, help text and the
 * commands that take it. Errors are ST_USAGE and name the option as it was typed, the value, and
 * what was expected.
 */
#ifndef GGRUN_CLI_OPTIONS_H
#define GGRUN_CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "gguf/base/status.h"
#include "gguf/base/text.h"
#include "runtime/sampler.h"

enum command { CMD_RUN, CMD_INFO, CMD_TOKENIZE, CMD_LOGITS, CMD_BENCH, CMD_PLAN, CMD_HELP, CMD_COUNT };

/* Words of the command line that say where a text comes from, in their order. */
struct source {
    enum { SOURCE_WORD, SOURCE_TEXT, SOURCE_FILE } kind; /* PROMPT, -p, -f */
    const char *arg; /* the text, or a path; "-" as a path is stdin */
};

struct int_list {
    int32_t *v; /* owned */
    int n;
};

struct bias { /* --logit-bias */
    int32_t id;
    float value; /* -INFINITY: never */
};

struct options {
    enum command cmd;
    const char *topic; /* help: name of a command, or NULL */

    const char **models; /* [n_models], owned array; bench takes several, the others one */
    int n_models;        /* 0: the embedded model */
    const char **overrides; /* [n_overrides], owned array; --override-kv, unparsed */
    int n_overrides;
    bool no_mmap, check_tensors;

    struct source *sources; /* [n_sources], owned */
    int n_sources;
    const char *system, *chat_template; /* NULL: not given */
    bool chat, raw, no_bos, no_special;
    bool decode;
    const char *ids; /* --ids, unparsed; NULL: not given */
    const char *embd; /* --embd: a file; NULL: not given */

    int32_t n_predict; /* -1: until the end of the text or of the context */
    bool ignore_eos, seed_given, backend_sampling;
    struct sampler_options sampling;
    struct bias *biases; /* [n_biases], owned */
    int n_biases;
    struct text *breakers; /* [n_breakers], owned: --dry-sequence-breaker, escapes undone */
    int n_breakers;
    bool breakers_given;

    int32_t n_ctx;                      /* 0: the model's; -1: that, at most 4096 */
    int32_t n_keep;                     /* -1: the whole prompt */
    int32_t truncate;                   /* TRUNCATE_NO, ... */
    bool context_shift;
    int32_t n_seqs;                     /* 0: 1 */
    bool kv_unified;
    int32_t n_batch, n_ubatch;          /* 0: default */
    int32_t n_threads, n_threads_batch; /* 0: default */
    int32_t type_k, type_v;             /* index into kv_types */
    int32_t flash_attn;                 /* FA_AUTO, FA_ON, FA_OFF */
    bool swa_full;
    bool no_reuse, check_reuse;
    const char *isa; /* NULL: the best here */
    int32_t blas;    /* 1: on */

    const char *sim;                 /* --sim, unparsed; NULL: none */
    const char *n_gpu_layers;        /* -ngl, unparsed; NULL: not given */
    const char *tensor_split;        /* -ts, unparsed; NULL: not given */
    const char **tensor_rules;       /* [n_tensor_rules], owned array; -ot, unparsed */
    int n_tensor_rules;
    int32_t split_mode;              /* 0: layer, 1: none, 2: row */
    int32_t main_gpu, n_cpu_moe;
    bool cpu_moe, no_kv_offload, no_op_offload;
    const char *device; /* -dev, unparsed; NULL: not given */
    bool list_devices, mlock, fit;
    int32_t n_slots; /* 0: default */

    struct int_list bench_prompt, bench_gen, bench_depth, bench_threads, bench_batch, bench_ubatch;
    int32_t repetitions, format; /* format: index into bench_formats */

    const char *device_memory;           /* --device-memory, unparsed; NULL: not given */
    int32_t plan_tokens, plan_depth;     /* plan_tokens 0: default */
    bool nodes, dot;

    const char *output; /* -o FILE; NULL: not given */
    bool json;
    int32_t top; /* 0: default */
    bool keys, tensors, check;

    int32_t sched_debug;
    bool alloc_debug, exec_debug, stats, verbose, quiet;
    const char *dump_node, *dump_file;
    bool help, version, words;
};

/* Values of -ctk and -ctv, of --truncate, of -fa, and of bench -o, in the order of their indices. */
enum { KV_F16, KV_F32, KV_BF16, KV_Q8_0, KV_Q4_0 };
enum { TRUNCATE_NO, TRUNCATE_HEAD, TRUNCATE_MIDDLE };
enum { FA_AUTO, FA_ON, FA_OFF };
enum { FORMAT_MD, FORMAT_JSON, FORMAT_JSONL, FORMAT_CSV };

/* argv[0] is the program. *o is released with options_release, after a failure too. */
enum status options_parse(struct options *o, int argc, char **argv, struct err *e);
void options_release(struct options *o);

bool command_find(const char *name, enum command *out);

#endif
