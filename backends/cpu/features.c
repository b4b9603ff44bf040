#define _GNU_SOURCE /* CPU_COUNT_S */
#include "backends/cpu/features.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "backends/backend.h"
#include "gguf/base/text.h"

/* ---- instruction sets ---- */

static bool always(void)
{
    return true;
}

#ifdef GGRUN_HAVE_AVX2
/*
 * AVX2, FMA and F16C, and an operating system that saves the wide registers (XCR0 bits 1 and 2).
 * Source: Intel SDM volume 1, sections 14.3 and 14.7.1.
 */
static bool have_avx2(void)
{
    unsigned a, b, c, d, xcr0, high;
    const unsigned want1 = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;

    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & want1) != want1)
        return false;
    __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
    if ((xcr0 & 6) != 6)
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
}
#endif

static const struct cpu_quants no_quants;

static const struct cpu_isa isas[] = {
    {"scalar", &cpu_kernels_scalar, &no_quants, always},
#ifdef GGRUN_HAVE_AVX2
    {"avx2", &cpu_kernels_avx2, &cpu_quants_avx2, have_avx2},
#endif
};

int cpu_isa_count(void)
{
    return (int)(sizeof isas / sizeof isas[0]);
}

const struct cpu_isa *cpu_isa_at(int i)
{
    return &isas[i];
}

enum status cpu_isa_select(const struct cpu_isa **out, const char *name, struct err *e)
{
    char list[128] = "", quoted[64];
    size_t n = 0;

    *out = NULL;
    for (int i = cpu_isa_count() - 1; i >= 0; i--) {
        if (!isas[i].available())
            continue;
        if (!name || strcasecmp(name, isas[i].name) == 0) {
            *out = &isas[i];
            return ST_OK;
        }
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", isas[i].name);
    }
    return err_set(e, ST_USAGE,
                   "instruction set '%s' is not available; this machine and program have: %s",
                   text_quote(quoted, sizeof quoted, name, strlen(name)), list);
}

const char *cpu_brand(char *out, size_t n_out)
{
    const char *name = "processor";
#if defined(__x86_64__)
    unsigned r[13] = {0};
    char *p = (char *)r, *end;

    if (__get_cpuid(0x80000000, &r[0], &r[1], &r[2], &r[3]) && r[0] >= 0x80000004) {
        for (unsigned i = 0; i < 3; i++)
            __get_cpuid(0x80000002 + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2], &r[4 * i + 3]);
        while (*p == ' ')
            p++;
        for (end = p + strlen(p); end > p && end[-1] == ' ';)
            *--end = '\0';
        if (*p)
            name = p;
    }
#endif
    snprintf(out, n_out, "%s", name);
    return out;
}

/* ---- cores ---- */

/* The first n - 1 bytes of a file, NUL-terminated; false if it cannot be read. */
static bool read_file(const char *path, char *buf, size_t n)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t have = 0;
    ssize_t got;

    if (fd < 0)
        return false;
    while (have < n - 1 && (got = read(fd, buf + have, n - 1 - have)) > 0)
        have += (size_t)got;
    close(fd);
    buf[have] = '\0';
    return true;
}

/* Cores for a quota and a period in microseconds, rounded up; 0 = no limit. */
static int cores_of(long quota, long period)
{
    if (quota <= 0 || period <= 0)
        return 0;
    return quota / period >= 1 << 20 ? 0 : (int)((quota + period - 1) / period);
}

/* Quota of one control group directory; v2 has both numbers in one file, v1 has two files. */
static int group_quota(const char *dir, bool v2)
{
    char path[1200], line[64];
    long quota, period;

    if (v2) {
        snprintf(path, sizeof path, "%s/cpu.max", dir);
        if (!read_file(path, line, sizeof line) || sscanf(line, "%ld %ld", &quota, &period) != 2)
            return 0; /* "max 100000": no limit */
        return cores_of(quota, period);
    }
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir);
    if (!read_file(path, line, sizeof line) || sscanf(line, "%ld", &quota) != 1)
        return 0;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
    if (!read_file(path, line, sizeof line) || sscanf(line, "%ld", &period) != 1)
        return 0;
    return cores_of(quota, period);
}

/* Smallest quota from mount + group up to the mount itself. */
static int path_quota(const char *mount, const char *group, bool v2)
{
    char dir[1024];
    size_t n_mount = strlen(mount);
    int best = 0;

    if (snprintf(dir, sizeof dir, "%s%s", mount, group) >= (int)sizeof dir)
        return 0;
    for (;;) {
        int q = group_quota(dir, v2);
        char *slash = strrchr(dir, '/');
        if (q && (!best || q < best))
            best = q;
        if (strlen(dir) <= n_mount || !slash)
            return best;
        *slash = '\0';
    }
}

/* Is "cpu" in a comma-separated list of n bytes? */
static bool lists_cpu(const char *p, size_t n)
{
    const char *end = p + n;

    while (p < end) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        size_t len = (size_t)((comma ? comma : end) - p);
        if (len == 3 && memcmp(p, "cpu", 3) == 0)
            return true;
        p += len + 1;
    }
    return false;
}

/* Quota of one line of /proc/self/cgroup: "0::/group" (v2) or "4:cpu,cpuacct:/group" (v1). */
static int line_quota(const char *root, char *line)
{
    char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL, mount[512];
    bool v2;

    if (!group)
        return 0;
    v2 = group == list + 1;
    if (!v2 && !lists_cpu(list + 1, (size_t)(group - list - 1)))
        return 0;
    group++;
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s", root, v2 ? "" : "/cpu");
    return path_quota(mount, strcmp(group, "/") == 0 ? "" : group, v2);
}

int cpu_quota_cores(const char *root)
{
    char path[512], groups[8192], *line = groups;
    int best = 0;

    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (!read_file(path, groups, sizeof groups))
        return 0;
    while (line) {
        char *end = strchr(line, '\n');
        int q;
        if (end)
            *end++ = '\0';
        q = line_quota(root, line);
        if (q && (!best || q < best))
            best = q;
        line = end;
    }
    return best;
}

int usable_cores(void)
{
    cpu_set_t sets[16]; /* 16384 processors; CPU_SETSIZE alone fails on larger machines */
    int n = 1, quota = cpu_quota_cores("");

    memset(sets, 0, sizeof sets);
    if (sched_getaffinity(0, sizeof sets, sets) == 0)
        n = CPU_COUNT_S(sizeof sets, sets);
    if (quota && quota < n)
        n = quota;
    return n < 1 ? 1 : n;
}

/* ---- memory ---- */

/* The number behind `name` in a file of lines "name  123 ..."; an empty name: the first one. */
static bool read_number(const char *path, const char *name, unsigned long long *v)
{
    char text[8192], *line = text;
    size_t n = strlen(name);

    if (!read_file(path, text, sizeof text))
        return false;
    while (line) {
        if (strncmp(line, name, n) == 0 && sscanf(line + n, " %llu", v) == 1)
            return true;
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return false;
}

/* What one control group leaves. */
static void group_memory(const char *dir, size_t *n_free, size_t *n_total)
{
    unsigned long long max, used = 0, cache = 0;
    char path[1200];

    snprintf(path, sizeof path, "%s/memory.max", dir);
    if (!read_number(path, "", &max))
        return; /* "max": no limit */
    snprintf(path, sizeof path, "%s/memory.current", dir);
    read_number(path, "", &used);
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    read_number(path, "inactive_file ", &cache);
    used -= cache < used ? cache : used;
    if (max < *n_total)
        *n_total = (size_t)max;
    if (max - (used < max ? used : max) < *n_free)
        *n_free = (size_t)(max - (used < max ? used : max));
}

/* What the limit of this process's addresses (ulimit -v) leaves. */
static void limit_memory(const char *root, size_t *n_free, size_t *n_total)
{
    unsigned long long used;
    struct rlimit r;
    char path[512];

    snprintf(path, sizeof path, "%s/proc/self/statm", root);
    if (getrlimit(RLIMIT_AS, &r) != 0 || r.rlim_cur == RLIM_INFINITY ||
        !read_number(path, "", &used))
        return;
    used *= (unsigned long long)sysconf(_SC_PAGESIZE);
    if (r.rlim_cur < *n_total)
        *n_total = (size_t)r.rlim_cur;
    if (r.rlim_cur - (used < r.rlim_cur ? used : r.rlim_cur) < *n_free)
        *n_free = (size_t)(r.rlim_cur - (used < r.rlim_cur ? used : r.rlim_cur));
}

bool cpu_memory(const char *root, size_t *n_free, size_t *n_total)
{
    unsigned long long total, avail;
    char path[512], groups[8192], dir[1024], *own;
    size_t n_mount;

    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (!read_number(path, "MemTotal:", &total) || !read_number(path, "MemAvailable:", &avail))
        return false;
    *n_total = (size_t)total << 10; /* the file says kB and means KiB */
    *n_free = (size_t)avail << 10;
    limit_memory(root, n_free, n_total);
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (!read_file(path, groups, sizeof groups))
        return true;
    own = strncmp(groups, "0::", 3) == 0 ? groups : strstr(groups, "\n0::");
    if (!own)
        return true;
    own = strchr(own, ':') + 2;
    own[strcspn(own, "\n")] = 0;
    n_mount = (size_t)snprintf(dir, sizeof dir, "%s/sys/fs/cgroup", root);
    if (snprintf(dir + n_mount, sizeof dir - n_mount, "%s", strcmp(own, "/") ? own : "") >=
        (int)(sizeof dir - n_mount))
        return true;
    for (;;) {
        char *slash = strrchr(dir, '/');

        group_memory(dir, n_free, n_total);
        if (strlen(dir) <= n_mount || !slash)
            return true;
        *slash = 0;
    }
}
