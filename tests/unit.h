/*
 * Unit tests: cmocka where it is there, else the part of it that the tests use, so that they build with
 * libc alone (on a machine that has a device to test and nothing else).
 */
#ifndef GGRUN_TESTS_UNIT_H
#define GGRUN_TESTS_UNIT_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#ifdef GGRUN_HAVE_CMOCKA
#include <cmocka.h>
#else

#include <math.h>
#include <stdio.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*test)(void **state);
    int (*setup)(void **state);
    int (*teardown)(void **state);
    void *initial_state;
};

/* Where a failed or skipped test goes back to: one test runs at a time. */
static jmp_buf unit_back;
enum { UNIT_FAILED = 1, UNIT_SKIPPED = 2 };

__attribute__((unused, noreturn, format(printf, 3, 4))) static void
unit_fail(const char *file, int line, const char *fmt, ...)
{
    va_list ap;

    printf("%s:%d: ", file, line);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    longjmp(unit_back, UNIT_FAILED);
}

/* noinline: what the caller keeps across setjmp stays out of it. */
__attribute__((unused, noinline)) static int unit_run_one(const struct CMUnitTest *t, void **state)
{
    int how = setjmp(unit_back);

    if (how)
        return how;
    if (t->setup && t->setup(state))
        unit_fail(t->name, 0, "setup failed");
    t->test(state);
    return 0;
}

__attribute__((unused)) static int unit_run(const struct CMUnitTest *tests, size_t n,
                                            int (*setup)(void **), int (*teardown)(void **))
{
    void *state = NULL;
    int n_failed = 0;

    if (setup && setup(&state)) {
        puts("setup of the group failed");
        return 1;
    }
    for (size_t i = 0; i < n; i++) {
        void *own = tests[i].initial_state ? tests[i].initial_state : state;
        int how;

        printf("[ RUN      ] %s\n", tests[i].name);
        fflush(stdout);
        how = unit_run_one(&tests[i], &own);
        if (tests[i].teardown)
            tests[i].teardown(&own);
        n_failed += how == UNIT_FAILED;
        printf("[ %s ] %s\n", how == UNIT_FAILED ? " FAILED " : how ? "SKIPPED " : "      OK",
               tests[i].name);
    }
    if (teardown)
        teardown(&state);
    return n_failed;
}

#define UNIT_CHECK(ok, ...)                                                                        \
    do {                                                                                           \
        if (!(ok))                                                                                 \
            unit_fail(__FILE__, __LINE__, __VA_ARGS__);                                            \
    } while (0)

#define cmocka_unit_test(f)          {#f, f, NULL, NULL, NULL}
#define cmocka_unit_test_setup(f, s) {#f, f, s, NULL, NULL}
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    unit_run(tests, sizeof(tests) / sizeof(tests)[0], setup, teardown)
#define cmocka_run_group_tests_name(name, tests, setup, teardown)                                  \
    cmocka_run_group_tests(tests, setup, teardown)

#define skip()             longjmp(unit_back, UNIT_SKIPPED)
#define fail()             unit_fail(__FILE__, __LINE__, "failed")
#define fail_msg(...)      unit_fail(__FILE__, __LINE__, __VA_ARGS__)
#define print_message(...) printf(__VA_ARGS__)

#define assert_true(c)     UNIT_CHECK(c, "not true: %s", #c)
#define assert_false(c)    UNIT_CHECK(!(c), "not false: %s", #c)
#define assert_non_null(p) UNIT_CHECK((p) != NULL, "NULL: %s", #p)
#define assert_null(p)     UNIT_CHECK((p) == NULL, "not NULL: %s", #p)
#define assert_int_equal(a, b)                                                                     \
    UNIT_CHECK((long long)(a) == (long long)(b), "%s is %lld, expected %lld", #a, (long long)(a),  \
               (long long)(b))
#define assert_int_not_equal(a, b)                                                                 \
    UNIT_CHECK((long long)(a) != (long long)(b), "%s is %lld", #a, (long long)(a))
#define assert_in_range(v, lo, hi)                                                                 \
    UNIT_CHECK((unsigned long long)(v) >= (unsigned long long)(lo) &&                              \
                   (unsigned long long)(v) <= (unsigned long long)(hi),                            \
               "%s is %llu", #v, (unsigned long long)(v))
#define assert_ptr_equal(a, b) UNIT_CHECK((const void *)(a) == (const void *)(b), "%s differs", #a)
#define assert_string_equal(a, b)                                                                  \
    UNIT_CHECK(strcmp(a, b) == 0, "%s is \"%s\", expected \"%s\"", #a, a, b)
#define assert_string_not_equal(a, b) UNIT_CHECK(strcmp(a, b) != 0, "%s is \"%s\"", #a, a)
#define assert_memory_equal(a, b, n)                                                               \
    UNIT_CHECK(memcmp(a, b, n) == 0, "%s differs from %s", #a, #b)
#define assert_float_equal(a, b, eps)                                                              \
    UNIT_CHECK(fabs((double)(a) - (double)(b)) <= (double)(eps), "%s is %g, expected %g", #a,      \
               (double)(a), (double)(b))

#endif
#endif
