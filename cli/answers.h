/*
 * Several answers to one prompt at once (-np): each is the text that a run of its own with its seed gives.
 */
#ifndef GGRUN_CLI_ANSWERS_H
#define GGRUN_CLI_ANSWERS_H

#include "cli/setup.h"

/* ST_USAGE names an option that is for one answer. */
enum status answers_check(const struct options *o, struct err *e);

/*
 * Evaluate the prompt once, let every sequence of the session go on from it with the seed of -s and its number,
 * and print all answers, in order, when the last has ended. ST_LIMIT when one of them met the context limit.
 */
enum status answers_run(struct setup *s, const struct tokens *prompt, struct err *e);

#endif
