/*
 * Commands: one function and one file each. They return a status; only main exits.
 */
#ifndef GGRUN_CLI_CLI_H
#define GGRUN_CLI_CLI_H

#include <stdatomic.h>

#include "cli/options.h"
#include "cli/out.h"
#include "gguf/base/status.h"

struct cli {
    struct options *opt; /* a command may fill in defaults */
    struct out *out;
    const atomic_bool *cancel; /* set by SIGINT and SIGTERM: stop soon, with ST_CANCELLED */
};

enum status cmd_run(struct cli *c, struct err *e);
enum status cmd_info(struct cli *c, struct err *e);
enum status cmd_tokenize(struct cli *c, struct err *e);
enum status cmd_logits(struct cli *c, struct err *e);
enum status cmd_bench(struct cli *c, struct err *e);
enum status cmd_plan(struct cli *c, struct err *e);
enum status list_devices(struct cli *c, struct err *e); /* --list-devices of any command */
enum status cmd_help(struct cli *c, struct err *e);

#endif
