/* Instruction sets by name; cores by control group, on made-up /proc and /sys trees. */
#include "tests/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "backends/backend.h"
#include "backends/cpu/features.h"

static void test_isa(void **state)
{
    const struct cpu_isa *isa, *best;
    struct err e;

    (void)state;
    assert_int_equal(cpu_isa_select(&best, NULL, NULL), ST_OK);
    for (int i = 0; i < cpu_isa_count(); i++) {
        if (!cpu_isa_at(i)->available())
            continue;
        assert_int_equal(cpu_isa_select(&isa, cpu_isa_at(i)->name, NULL), ST_OK);
        assert_string_equal(isa->kernels->isa, cpu_isa_at(i)->name);
        assert_string_equal(isa->name, cpu_isa_at(i)->name);
    }
    assert_string_equal(cpu_isa_at(0)->name, "scalar");
    assert_int_equal(cpu_isa_select(&isa, "SCALAR", NULL), ST_OK);
    assert_null(isa->quants->vec[DT_Q4_1]);
    assert_int_equal(cpu_isa_select(&isa, "avx9\n", &e), ST_USAGE);
    assert_null(isa);
    assert_non_null(strstr(e.msg, "'avx9\\n'"));
    assert_non_null(strstr(e.msg, "scalar"));
    assert_non_null(strstr(e.msg, best->name));
}

/* Write text to root/path, making the folders. */
static void put(const char *root, const char *path, const char *text)
{
    char full[1024];
    FILE *f;

    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(full, 0755);
        *p = '/';
    }
    f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static const char *tree(char out[512], const char *name)
{
    const char *tmp = getenv("GGRUN_TEST_TMP");

    snprintf(out, 512, "%s/cgroup-%s", tmp ? tmp : ".", name);
    mkdir(out, 0755);
    return out;
}

/* What an earlier run of the test left behind. */
static void clean(const char *root, const char *path)
{
    char full[1024];

    snprintf(full, sizeof full, "%s%s", root, path);
    remove(full);
}

static void test_quota(void **state)
{
    char root[512];

    (void)state;
    tree(root, "none");
    assert_int_equal(cpu_quota_cores(root), 0); /* no /proc at all */

    tree(root, "v2");
    clean(root, "/sys/fs/cgroup/a/b/cpu.max");
    clean(root, "/sys/fs/cgroup/a/cpu.max");
    put(root, "/proc/self/cgroup", "0::/a/b\n");
    assert_int_equal(cpu_quota_cores(root), 0);
    put(root, "/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    assert_int_equal(cpu_quota_cores(root), 0);
    put(root, "/sys/fs/cgroup/a/b/cpu.max", "150000 100000\n"); /* 1.5 cores */
    assert_int_equal(cpu_quota_cores(root), 2);
    put(root, "/sys/fs/cgroup/a/cpu.max", "50000 100000\n"); /* the parent has less */
    assert_int_equal(cpu_quota_cores(root), 1);
    put(root, "/sys/fs/cgroup/a/cpu.max", "rubbish");
    assert_int_equal(cpu_quota_cores(root), 2);

    tree(root, "v2-namespace"); /* inside a container the group is the root */
    put(root, "/proc/self/cgroup", "0::/\n");
    put(root, "/sys/fs/cgroup/cpu.max", "400000 100000\n");
    assert_int_equal(cpu_quota_cores(root), 4);

    tree(root, "v1");
    put(root, "/proc/self/cgroup", "12:cpuset:/x\n4:cpuacct,cpu:/job\n1:name=systemd:/x\n");
    put(root, "/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    put(root, "/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(cpu_quota_cores(root), 0);
    put(root, "/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "300000\n");
    assert_int_equal(cpu_quota_cores(root), 3);
    put(root, "/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "0\n");
    assert_int_equal(cpu_quota_cores(root), 0);
}

static void test_memory(void **state)
{
    struct rlimit all, some;
    size_t n_free, n_total;
    char root[512];
    bool ok;

    (void)state;
    tree(root, "memory-none");
    assert_false(cpu_memory(root, &n_free, &n_total));

    tree(root, "memory");
    clean(root, "/sys/fs/cgroup/a/b/memory.max");
    clean(root, "/sys/fs/cgroup/a/memory.max");
    clean(root, "/sys/fs/cgroup/a/memory.stat");
    put(root, "/proc/meminfo",
        "MemTotal:       8000 kB\nMemFree:  100 kB\nMemAvailable:    3000 kB\n");
    put(root, "/proc/self/cgroup", "1:name=x:/y\n0::/a/b\n");
    assert_true(cpu_memory(root, &n_free, &n_total));
    assert_true(n_free == 3000 << 10 && n_total == 8000 << 10);
    put(root, "/sys/fs/cgroup/a/b/memory.max", "max\n");
    assert_true(cpu_memory(root, &n_free, &n_total));
    assert_true(n_free == 3000 << 10 && n_total == 8000 << 10);
    put(root, "/sys/fs/cgroup/a/memory.max", "4000000\n"); /* the parent has less */
    put(root, "/sys/fs/cgroup/a/memory.current", "3000000\n");
    assert_true(cpu_memory(root, &n_free, &n_total));
    assert_true(n_free == 1000000 && n_total == 4000000);
    put(root, "/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 500000\nactive_file 7\n");
    assert_true(cpu_memory(root, &n_free, &n_total));
    assert_true(n_free == 1500000 && n_total == 4000000);

    put(root, "/proc/self/statm", "10 5 1\n");
    assert_int_equal(getrlimit(RLIMIT_AS, &all), 0);
    some = (struct rlimit){.rlim_cur = 3000000, .rlim_max = all.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &some), 0);
    ok = cpu_memory(root, &n_free, &n_total);
    assert_int_equal(setrlimit(RLIMIT_AS, &all), 0);
    assert_true(ok && n_total == 3000000);
    assert_true(n_free == 1500000); /* the group leaves less than the limit does */

    assert_true(cpu_memory("", &n_free, &n_total)); /* of this machine */
    assert_true(n_free > 0 && n_free <= n_total);
}

static void test_cores(void **state)
{
    (void)state;
    assert_true(usable_cores() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_isa),
        cmocka_unit_test(test_quota),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_cores),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
