/*
 * Every architecture of arch.def against logits of an independent implementation: the oracles beside
 * the checkout, when they are there. Micro-batches of 13 ask for the same numbers, and so does attention
 * without FLASH_ATTN.
 */
#include "tests/unit.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/reader.h"
#include "runtime/arch.h"
#include "runtime/session.h"
#include "tests/runtime/logits.h"

#define FILES_MAX 512

static char folder[512];       /* of the oracles */
static char *files[FILES_MAX]; /* names without .gguf, sorted */
static int n_files;
static int32_t ids[64];
static int n_ids;

static bool known(const char *path)
{
    struct gguf_str name = {0};
    struct gguf *g;
    struct err e;
    bool yes;

    if (gguf_open(&g, path, GGUF_MMAP, &e))
        fail_msg("%s: %s", path, e.msg);
    assert_int_equal(gguf_get_str(g, "general.architecture", true, &name, &e), ST_OK);
    yes = arch_find(name.p, name.n) != NULL;
    gguf_close(g);
    return yes;
}

/* A file that lacks a key which real ones have: refused by its name. */
static bool lacks_a_key(const char *file, enum status st, const struct err *e)
{
    return strcmp(file, "qwen2vl-dense") == 0 && st == ST_MODEL &&
           strstr(e->msg, "layer_norm_rms_epsilon' is missing");
}

static bool check(const char *file, const char *model, const char *oracle)
{
    double nmse[4] = {0}, worst = 0;
    struct err e = {0};

    for (int i = 0; i < 4; i++) {
        struct session_options so = {.n_ubatch = i % 2 ? 13 : 512, .no_flash_attn = i / 2};
        enum status st = nmse_with(model, oracle, ids, n_ids, &so, &nmse[i], &e);

        if (lacks_a_key(file, st, &e)) {
            print_message("%-28s refused: %s\n", file, e.msg);
            return true;
        }
        if (st) {
            print_message("%-28s %s\n", file, e.msg);
            return false;
        }
        worst = nmse[i] < worst ? worst : nmse[i]; /* NaN too */
    }
    print_message("%-28s NMSE %.2g, micro-batches of 13 %.2g, -fa off %.2g, %.2g\n", file, nmse[0],
                  nmse[1], nmse[2], nmse[3]);
    return worst < 1e-8;
}

static void test_every_file(void **state)
{
    int n = 0, n_bad = 0;

    (void)state;
    for (int i = 0; i < n_files; i++) {
        char model[1024], oracle[1024];

        snprintf(model, sizeof model, "%s/archs/%s.gguf", folder, files[i]);
        snprintf(oracle, sizeof oracle, "%s/archs/%s.logits.f32", folder, files[i]);
        if (!known(model))
            continue;
        n++;
        n_bad += !check(files[i], model, oracle);
    }
    print_message("%d files\n", n);
    assert_int_equal(n_bad, 0);
    assert_true(n >= 20);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list_files(void)
{
    char path[600];
    struct dirent *d;
    DIR *dir;

    snprintf(path, sizeof path, "%s/archs", folder);
    dir = opendir(path);
    while (dir && n_files < FILES_MAX && (d = readdir(dir))) {
        size_t n = strlen(d->d_name);

        if (n > 5 && strcmp(d->d_name + n - 5, ".gguf") == 0)
            files[n_files++] = strndup(d->d_name, n - 5);
    }
    if (dir)
        closedir(dir);
    qsort(files, (size_t)n_files, sizeof files[0], by_name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_file)};
    const char *source = getenv("GGRUN_SOURCE_DIR");
    char path[640];
    int st;

    snprintf(folder, sizeof folder, "%s/../shared/oracles", source ? source : ".");
    snprintf(path, sizeof path, "%s/archs/ids.txt", folder);
    n_ids = read_ids(path, ids, 64);
    if (n_ids < 0) {
        printf("%s is not there\n", folder);
        return 77;
    }
    list_files();
    st = cmocka_run_group_tests(tests, NULL, NULL);
    while (n_files)
        free(files[--n_files]);
    return st;
}
