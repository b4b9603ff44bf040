/* Merging against the obvious quadratic way, and under failing allocations. */
#include "tests/unit.h"

#include <string.h>

#include "gguf/base/mem.h"
#include "runtime/tok_merge.h"

enum { N_TEXT = 400 };

struct rnd {
    uint64_t s;
};

static uint32_t next(struct rnd *r)
{
    r->s = r->s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->s >> 33);
}

/* A key that depends on the pair alone: some pairs have none, many share one. */
static uint32_t key(const void *ctx, const char *p, size_t n_left, size_t n_right)
{
    uint32_t h = *(const uint32_t *)ctx;

    if (n_left + n_right > 9)
        return MERGE_NONE;
    for (size_t i = 0; i < n_left + n_right; i++)
        h = (h ^ (unsigned char)p[i]) * 16777619u;
    h = (h ^ (uint32_t)n_left) * 16777619u;
    return h % 3 == 0 ? MERGE_NONE : h / 3 % 40;
}

/* Lengths of the pieces that are left when the best pair is looked for again each time. */
static size_t merge_slowly(const char *text, size_t n, uint32_t seed, size_t *len)
{
    size_t n_len = n;

    for (size_t i = 0; i < n; i++)
        len[i] = 1;
    for (;;) {
        uint32_t best = MERGE_NONE;
        size_t at = 0, pos = 0;

        for (size_t i = 0; i + 1 < n_len; pos += len[i++]) {
            uint32_t k = key(&seed, text + pos, len[i], len[i + 1]);

            if (k < best) {
                best = k;
                at = i;
            }
        }
        if (best == MERGE_NONE)
            return n_len;
        len[at] += len[at + 1];
        memmove(len + at + 1, len + at + 2, (n_len - at - 2) * sizeof *len);
        n_len--;
    }
}

static void make_text(struct rnd *r, char *text, size_t n)
{
    uint32_t letters = 1 + next(r) % 4;

    for (size_t i = 0; i < n; i++)
        text[i] = (char)('a' + next(r) % letters);
}

static void same_as_slow(void **state)
{
    struct merge m = {0};
    struct rnd r = {1};
    char text[N_TEXT];
    size_t len[N_TEXT], n_merged = 0;

    (void)state;
    for (int round = 0; round < 600; round++) {
        size_t n = 1 + next(&r) % N_TEXT, n_len, j = 0;
        uint32_t seed = next(&r);

        make_text(&r, text, n);
        n_len = merge_slowly(text, n, seed, len);
        n_merged += n - n_len;
        merge_clear(&m);
        assert_true(merge_reserve(&m, n));
        for (size_t i = 0; i < n; i++)
            merge_add(&m, 1);
        assert_true(merge_run(&m, text, key, &seed));
        for (uint32_t i = 0; i != MERGE_NONE; i = m.sym[i].next, j++) {
            assert_true(j < n_len);
            assert_int_equal(m.sym[i].len, len[j]);
        }
        assert_int_equal(j, n_len);
    }
    assert_true(n_merged > 10000);
    merge_release(&m);
}

static void out_of_memory(void **state)
{
    struct rnd r = {7};
    char text[N_TEXT];
    uint32_t seed = 5;
    bool done = false;
    uint64_t n = 0;

    (void)state;
    make_text(&r, text, N_TEXT);
    while (!done) {
        struct merge m = {0};

        mem_fail_at(++n);
        done = merge_reserve(&m, N_TEXT);
        for (size_t i = 0; done && i < N_TEXT; i++)
            merge_add(&m, 1);
        done = done && merge_run(&m, text, key, &seed);
        mem_fail_at(0);
        merge_release(&m);
    }
    assert_true(n > 3); /* the symbols, the heap, the heap grown */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_slow),
        cmocka_unit_test(out_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
