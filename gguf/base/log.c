#include "gguf/base/log.h"

#include <stdarg.h>
#include <stdio.h>

/* Set once by the program before threads start; a context object for it would have to be handed to
 * every function of the tree for the sake of a few lines. */
static log_sink *the_sink;
static void *the_ctx;
static enum log_level the_max;
static bool muted;

void log_set_sink(log_sink *sink, void *ctx, enum log_level max)
{
    the_sink = sink;
    the_ctx = ctx;
    the_max = max;
}

void log_mute(bool on)
{
    muted = on;
}

void log_line(enum log_level level, const char *fmt, ...)
{
    char line[1024];
    va_list ap;

    if (!the_sink || muted || level > the_max)
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    the_sink(the_ctx, level, line);
}
