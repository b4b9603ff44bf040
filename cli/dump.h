/*
 * --dump-node: the values of one node, as text, each time it was computed.
 *
 *     node blk.0.attn_out f32 [256, 5, 1, 1]
 *     0.125 -0.5 ...            one line per row, innermost dimension along the line
 */
#ifndef GGRUN_CLI_DUMP_H
#define GGRUN_CLI_DUMP_H

#include "cli/cli.h"
#include "runtime/exec.h"

struct dump;

/* To --dump-file, or stderr. */
enum status dump_new(struct dump **out, struct cli *c, struct err *e);
void dump_free(struct dump *d); /* NULL is fine */

/* For struct session_options: exec_watch with a struct dump. */
bool dump_watch(void *dump, const struct tensor *t, bool ask);

bool dump_failed(const struct dump *d);
/* What went wrong, if anything: writing failed, or no node had that name (ST_USAGE). */
enum status dump_finish(struct dump *d, struct err *e);

#endif
