/*
 * Comparing logits with an oracle's file.
 */
#ifndef GGRUN_TESTS_LOGITS_H
#define GGRUN_TESTS_LOGITS_H

#include <stdint.h>

#include "gguf/base/status.h"

/* Comma-separated ids; returns how many (at most max), -1 when the file cannot be read. */
int read_ids(const char *path, int32_t *ids, int max);
/* A whole file; NULL when it cannot be read. Ends with a NUL; released with mem_free. */
char *read_file(const char *path, size_t *n);

/*
 * Evaluate ids in micro-batches of n_ubatch (0: the default) with an F32 cache and give
 * sum((a-b)^2) / sum(b^2) against the little-endian f32 rows in `oracle`.
 */
struct session_options;
/* The same with other options; devices, types of the cache and outputs are set here. */
enum status nmse_with(const char *model, const char *oracle, const int32_t *ids, int n,
                      const struct session_options *so, double *nmse, struct err *e);
enum status nmse_of(const char *model, const char *oracle, const int32_t *ids, int n,
                    uint32_t n_ubatch, double *nmse, struct err *e);

#endif
