#include "tests/runtime/real_model.h"

#include <stdio.h>
#include <stdlib.h>

bool real_model(const char *name, char path[REAL_MODEL_PATH])
{
    const char *models = getenv("GGRUN_MODELS"), *home = getenv("HOME");
    FILE *f;

    if (models)
        snprintf(path, REAL_MODEL_PATH, "%s/%s", models, name);
    else
        snprintf(path, REAL_MODEL_PATH, "%s/.cache/ggrun/%s", home ? home : "", name);
    f = fopen(path, "rb");
    if (f)
        fclose(f);
    else
        printf("%s is not there\n", path);
    return f != NULL;
}
