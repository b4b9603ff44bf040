/*
 * Log lines of the library. Nothing below cli/ prints: a line goes to the one sink that the program
 * sets, or nowhere.
 */
#ifndef GGRUN_GGUF_BASE_LOG_H
#define GGRUN_GGUF_BASE_LOG_H

#include <stdbool.h>

enum log_level {
    LOG_WARN,  /* the user should know: something was not as asked, or is odd in the file */
    LOG_NOTE,  /* what was chosen where the user might have chosen otherwise */
    LOG_INFO,  /* one line per phase, --verbose */
    LOG_DEBUG, /* explicitly asked for: --sched-debug, --alloc-debug, --exec-debug */
};

/* `line` has no newline and no prefix. Called from the thread that logs. */
typedef void log_sink(void *ctx, enum log_level level, const char *line);

/* Lines above `max` are not even formatted. sink NULL: silence. Call before other threads start. */
void log_set_sink(log_sink *sink, void *ctx, enum log_level max);

/* Drop all lines until false is given, for work that is done to see what would come of it. */
void log_mute(bool on);

void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_note(...)  log_line(LOG_NOTE, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

#endif
