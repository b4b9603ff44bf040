/*
 * The tables that the command line is made of: commands and options. Reading them: options.c
 * (parsing), help.c (help, man page check, completion).
 */
#ifndef GGRUN_CLI_OPTION_TABLE_H
#define GGRUN_CLI_OPTION_TABLE_H

#include <stddef.h>

#include "cli/options.h"

struct command_info {
    const char *name, *usage, *summary; /* summary: one line, lower case */
};
extern const struct command_info commands[CMD_COUNT];

enum option_kind {
    KIND_FLAG,     /* bool */
    KIND_INT,      /* int32_t from min to max */
    KIND_NUMBER,   /* float from min to max */
    KIND_ABOVE,    /* float above min */
    KIND_SEED,     /* uint64_t, -1 for a random one */
    KIND_CHOICE,   /* int32_t: index into choices */
    KIND_LEVEL,    /* int32_t from min to max, min without a value */
    KIND_STRING,   /* const char * */
    KIND_MODEL,    /* adds to models */
    KIND_MODELS,   /* adds a list to models */
    KIND_OVERRIDE, /* adds to overrides */
    KIND_PLACE,    /* adds to tensor_rules */
    KIND_SOURCE,   /* adds to sources; min = enum of struct source */
    KIND_INTS,     /* struct int_list, each from min to max */
    KIND_BIAS,     /* adds to biases */
    KIND_ORDER,    /* order of the samplers: min = 0 names, 1 letters */
    KIND_BREAKER,  /* adds to breakers */
};

enum option_group {
    G_MODEL,
    G_PROMPT,
    G_SAMPLING,
    G_CONTEXT,
    G_COMPUTE,
    G_PLACE,
    G_BENCH,
    G_OUTPUT,
    G_DEBUG,
    G_COUNT
};

struct option_row {
    const char *names; /* as shown, separated by spaces; the first is the usual one */
    enum option_kind kind;
    size_t offset; /* in struct options */
    double min, max;
    const char *arg; /* what the value is called in the help; for choices "a|b|c" */
    unsigned cmds;
    enum option_group group;
    const char *help;
};

extern const struct option_row option_rows[];
extern const int n_option_rows;
extern const char *const option_group_names[G_COUNT];

/* Walks the names of a row: *p starts at row->names. Returns the next name's length, 0 at the end. */
size_t option_next_name(const char **p);
const char *option_skip_dashes(const char *s);

/*
 * The row for "-x", "--xyz" or "--xyz=value" among the options of a set of commands (bit 1 << enum
 * command); NULL if there is none.
 */
const struct option_row *option_find(const char *word, unsigned cmds);
#define ALL_COMMANDS ((1u << CMD_COUNT) - 1)

#endif
