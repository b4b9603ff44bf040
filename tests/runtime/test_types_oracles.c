/* One llama model in every tensor type: the oracles beside the checkout, when they are there. */
#include "tests/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "tests/runtime/logits.h"

static char folder[512]; /* of the oracles */
static char *json;
static int32_t ids[64];
static int n_ids;

static void check(const char *name, double bound)
{
    char model[640], oracle[640];
    struct err e;
    double nmse;

    snprintf(model, sizeof model, "%s/types/%s.gguf", folder, name);
    snprintf(oracle, sizeof oracle, "%s/types/%s.logits.f32", folder, name);
    if (nmse_of(model, oracle, ids, n_ids, 0, &nmse, &e))
        fail_msg("%s: %s", name, e.msg);
    print_message("%-8s NMSE %.3g, allowed %.3g\n", name, nmse, bound);
    assert_true(nmse <= bound);
}

/* The file holds one `"name": number` per type; f32 has no figure of its own. */
static void test_every_type(void **state)
{
    const char *p = json;
    int n = 0;

    (void)state;
    check("f32", 1e-5);
    while ((p = strchr(p, '"'))) {
        const char *end = strchr(p + 1, '"');
        char name[32];

        assert_non_null(end);
        snprintf(name, sizeof name, "%.*s", (int)(end - p - 1), p + 1);
        assert_true(end[1] == ':');
        check(name, fmax(1.1 * strtod(end + 2, NULL), 1e-5));
        p = end + 1;
        n++;
    }
    assert_in_range(n, 20, 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_type)};
    const char *source = getenv("GGRUN_SOURCE_DIR");
    char path[640];
    size_t n;
    int st;

    snprintf(folder, sizeof folder, "%s/../shared/oracles", source ? source : ".");
    snprintf(path, sizeof path, "%s/types/llama.cpp-nmse.json", folder);
    json = read_file(path, &n);
    snprintf(path, sizeof path, "%s/archs/ids.txt", folder);
    n_ids = read_ids(path, ids, 64);
    if (!json || n_ids < 0) {
        printf("%s is not there\n", folder);
        mem_free(json);
        return 77;
    }
    st = cmocka_run_group_tests(tests, NULL, NULL);
    mem_free(json);
    return st;
}
