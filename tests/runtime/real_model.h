/*
 * Where the real models are (scripts/get-models).
 */
#ifndef GGRUN_TESTS_REAL_MODEL_H
#define GGRUN_TESTS_REAL_MODEL_H

#include <stdbool.h>

#define REAL_MODEL_PATH 512

/* Path of a model's file, in $GGRUN_MODELS or ~/.cache/ggrun; false and a line on stdout if it is not there. */
bool real_model(const char *name, char path[REAL_MODEL_PATH]);

#endif
