/*
 * Help texts, made from the tables of commands and options.
 */
#ifndef GGRUN_CLI_HELP_H
#define GGRUN_CLI_HELP_H

#include "cli/options.h"
#include "gguf/base/text.h"

struct cJSON;

void help_program(struct text *t);
void help_command(struct text *t, enum command c);
/* The table of options as JSON; NULL when memory is short. */
struct cJSON *help_json(void);
/* The option names of a command alone, for completion. */
void help_words(struct text *t, enum command c);

#endif
