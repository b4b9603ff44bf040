/* The story model that is part of the program: a GGUF file, used when no -m is given. */
#ifndef GGRUN_CLI_EMBEDDED_H
#define GGRUN_CLI_EMBEDDED_H

#include <stddef.h>

#define EMBEDDED_NAME "ggrun-tiny"

/* The bytes of the file, aligned like a mapped one. */
const void *embedded_model(size_t *n_bytes);

#endif
