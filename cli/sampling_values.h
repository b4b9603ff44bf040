/*
 * Values of --logit-bias and --dry-sequence-breaker, as they are written on the command line.
 */
#ifndef GGRUN_CLI_SAMPLING_VALUES_H
#define GGRUN_CLI_SAMPLING_VALUES_H

#include <stdbool.h>

#include "cli/options.h"
#include "gguf/base/text.h"

#define BIAS_EXPECTED    "a token id, + or -, and a number, such as 42-1.5"
#define BREAKER_EXPECTED "1 to 40 bytes, with escapes as in C, or none"

/* "42+1.5", "42-inf"; false for anything else. */
bool bias_parse(const char *s, struct bias *out);
/*
 * Text with \n, \t, \r, \\, \", \' and \xHH as in C, of 1 to DRY_BREAKER_MAX bytes. False for other
 * escapes and lengths: then *out is empty. out->failed when memory is short.
 */
bool breaker_parse(const char *s, struct text *out);

#endif
