/*
 * From options to what a command works with: file, vocabulary, devices, model, session. Each step
 * needs the ones before it; a command takes as many as it wants. And what --stats prints about
 * them.
 */
#ifndef GGRUN_CLI_SETUP_H
#define GGRUN_CLI_SETUP_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "cli/cli.h"
#include "gguf/reader.h"
#include "runtime/model.h"
#include "runtime/session.h"
#include "runtime/vocab.h"

struct dump; /* --dump-node */

struct setup {
    struct cli *c;
    const char *path; /* NULL: the embedded model */
    struct gguf *file;
    bool model_has_file; /* the model closes it */
    bool dry;            /* plan only: descriptions instead of memory; set by the command */
    struct vocab *vocab;
    struct devices devs;
    struct model *model;
    struct session *session;
    struct dump *dump;
    /* for --stats */
    uint64_t load_us, first_token_us, prompt_us, decode_us;
    uint64_t n_prompt, n_generated;
    uint64_t n_truncated; /* tokens of the prompt that --truncate dropped */
    uint64_t n_shifts; /* how often the older half of the context was dropped */
};

void setup_init(struct setup *s, struct cli *c);
void setup_release(struct setup *s);

/* path NULL: the embedded model; says so on stderr. metadata_only: tensors get no data. */
enum status setup_file(struct setup *s, const char *path, bool metadata_only, struct err *e);
enum status setup_vocab(struct setup *s, struct err *e);
/* Threads that the options ask for, the larger of -t and -tb. */
int setup_threads(const struct options *o);
/* n_threads 0: usable cores. */
enum status setup_devices(struct setup *s, int n_threads, struct err *e);
/* so: the largest session to come; -ngl auto plans for it, and may switch off that ops are offloaded. */
enum status setup_model(struct setup *s, struct session_options *so, struct err *e);
/* The options of a session as the command line has them; the caller may change them. */
void setup_session_options(struct setup *s, struct session_options *so);
enum status setup_session(struct setup *s, const struct session_options *so, struct err *e);

/* File, vocabulary, devices and model, as run and logits need them. */
enum status setup_all(struct setup *s, struct session_options *so, struct err *e);

/*
 * After the last evaluation, which ended with st and *e: what --dump-node and --check-reuse found
 * wrong, or st. A failed dump is why an evaluation was stopped, so it comes first.
 */
enum status setup_finish(struct setup *s, enum status st, struct err *e);
/* ST_LIMIT: an answer has filled the context. */
enum status setup_at_limit(const struct setup *s, struct err *e);
/* --stats. What was not reached is left out. */
void setup_print_stats(struct setup *s);

enum dtype kv_type(int32_t option); /* of options.type_k and type_v */

#endif
