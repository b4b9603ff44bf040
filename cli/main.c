/*
 * The program's entry: signals, the table of commands, and the only exit.
 */
#include <cjson/cJSON.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/backend.h"
#include "cli/cli.h"
#include "cli/help.h"
#include "cli/option_table.h"
#include "cli/version.h"
#include "gguf/base/mem.h"

/* A signal handler can reach nothing else. */
static atomic_bool cancelled;
static volatile sig_atomic_t stop_signal;

static void on_stop(int sig)
{
    if (stop_signal)
        _exit(128 + sig); /* asked twice: at once */
    stop_signal = sig;
    atomic_store(&cancelled, true);
}

static void catch_signals(void)
{
    struct sigaction stop = {.sa_handler = on_stop}, ignore = {.sa_handler = SIG_IGN};

    /* No SA_RESTART: a read or write that waits must end. A broken pipe shows as EPIPE. */
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
}

/*
 * A program may be started with stdin, stdout or stderr closed; the next file opened would take the
 * number. Reading then finds the end, writing fails as it should.
 */
static void fill_standard_fds(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY);
}

/* docs/exit-codes.md */
static int exit_code(enum status st)
{
    switch (st) {
    case ST_OK:
        return 0;
    case ST_IO:
    case ST_DEVICE:
        return 1;
    case ST_USAGE:
        return 2;
    case ST_MODEL:
    case ST_UNSUPPORTED:
        return 3;
    case ST_NOMEM:
        return 4;
    case ST_LIMIT:
        return 5;
    case ST_CANCELLED:
        return 128 + (stop_signal ? stop_signal : SIGINT);
    }
    return 1;
}

static enum status cmd_version(struct cli *c, struct err *e)
{
    struct text t = {0};

    text_addf(&t, "ggrun %s\nbuilt with %s, %s; backends: cpu%s\n", GGRUN_VERSION, GGRUN_COMPILER,
              GGRUN_BUILDTYPE, GGRUN_OPENBLAS ? ", blas (OpenBLAS)" : "");
    return out_text(c->out, &t, e);
}

enum status cmd_help(struct cli *c, struct err *e)
{
    const char *topic = c->opt->topic;
    struct text t = {0};
    enum command about = CMD_HELP;
    char quoted[64];

    if (c->opt->json)
        return out_json(c->out, help_json(), false, e);
    if (topic && !command_find(topic, &about))
        return err_set(e, ST_USAGE, "'%s' is not a command; see 'ggrun help'",
                       text_quote(quoted, sizeof quoted, topic, strlen(topic)));
    if (c->opt->words)
        help_words(&t, topic ? about : CMD_RUN);
    else if (topic)
        help_command(&t, about);
    else
        help_program(&t);
    return out_text(c->out, &t, e);
}

static enum status (*const functions[CMD_COUNT])(struct cli *, struct err *) = {
    [CMD_RUN] = cmd_run,       [CMD_INFO] = cmd_info,   [CMD_TOKENIZE] = cmd_tokenize,
    [CMD_LOGITS] = cmd_logits, [CMD_BENCH] = cmd_bench, [CMD_PLAN] = cmd_plan,
    [CMD_HELP] = cmd_help,
};

/* GGRUN_SCHED_DEBUG=1|2 stands for --sched-debug where a command line cannot be changed. */
static enum status read_environment(struct options *o, struct err *e)
{
    const char *s = getenv("GGRUN_SCHED_DEBUG");
    char quoted[64];

    if (!s || !*s || o->sched_debug || strcmp(s, "0") == 0)
        return ST_OK;
    if (strcmp(s, "1") != 0 && strcmp(s, "2") != 0)
        return err_set(e, ST_USAGE, "GGRUN_SCHED_DEBUG is '%s', expected 0, 1 or 2",
                       text_quote(quoted, sizeof quoted, s, strlen(s)));
    o->sched_debug = s[0] - '0';
    return ST_OK;
}

/*
 * More threads than cores only wait for each other: 4 on 2 cores compute several times slower than 2.
 * Results do not depend on the number, so nothing but time is lost by using fewer.
 */
static void limit_threads(const char *flag, int32_t *n)
{
    int cores = usable_cores();

    if (*n <= cores)
        return;
    log_warn("%s %d: this process may use %d %s, so %d compute%s", flag, (int)*n, cores,
             cores == 1 ? "core" : "cores", cores, cores == 1 ? "s" : "");
    *n = cores;
}

static void limit_all_threads(struct options *o)
{
    limit_threads("-t", &o->n_threads);
    limit_threads("-tb", &o->n_threads_batch);
    for (int i = 0; i < o->bench_threads.n; i++)
        limit_threads("-t", &o->bench_threads.v[i]);
}

/* --help on its own is about the program, behind a command about that command. */
static enum status dispatch(struct cli *c, bool named, struct err *e)
{
    struct options *o = c->opt;

    if (o->version)
        return cmd_version(c, e);
    if (o->help) {
        o->topic = named ? commands[o->cmd].name : NULL;
        return cmd_help(c, e);
    }
    if (o->list_devices)
        return list_devices(c, e);
    limit_all_threads(o);
    return functions[o->cmd](c, e);
}

int main(int argc, char **argv)
{
    cJSON_Hooks hooks = {mem_alloc, mem_free};
    struct options opt;
    struct out out;
    struct cli cli = {&opt, &out, &cancelled};
    struct err e = {0};
    enum command cmd;
    enum status st;
    bool named = argc > 1 && command_find(argv[1], &cmd);

    fill_standard_fds();
    catch_signals();
    cJSON_InitHooks(&hooks);
    out_init(&out, &cancelled);
    st = options_parse(&opt, argc, argv, &e);
    if (!st)
        st = read_environment(&opt, &e);
    out.quiet = opt.quiet;
    out.verbose = opt.verbose;
    log_set_sink(out_log, &out,
                 opt.sched_debug || opt.alloc_debug || opt.exec_debug ? LOG_DEBUG
                 : opt.verbose                                        ? LOG_INFO
                                                                      : LOG_NOTE);
    if (!st)
        st = dispatch(&cli, named, &e);
    out_progress_end(&out);
    if (st == ST_IO && out.reader_gone)
        st = ST_OK;
    if (st == ST_CANCELLED)
        err_set(&e, st, stop_signal == SIGTERM ? "terminated" : "interrupted");
    if (st)
        out_error(&out, &e);
    options_release(&opt);
    return exit_code(st);
}
