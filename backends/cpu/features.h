/*
 * What this machine has: instruction sets (and the one that a run uses), cores, its name.
 */
#ifndef GGRUN_BACKENDS_CPU_FEATURES_H
#define GGRUN_BACKENDS_CPU_FEATURES_H

#include <stdbool.h>
#include <stddef.h>

#include "backends/cpu/kernels.h"
#include "gguf/base/status.h"

/* One instruction set that is compiled in. The first is the slowest and works everywhere. */
struct cpu_isa {
    const char *name;
    const struct cpu_kernels *kernels;
    const struct cpu_quants *quants;
    bool (*available)(void); /* processor and operating system both support it */
};

/* Number of compiled-in sets, and the i-th. */
int cpu_isa_count(void);
const struct cpu_isa *cpu_isa_at(int i);

/*
 * The set called `name`, or for NULL the best that is available. Unknown or unavailable: ST_USAGE
 * with those that are.
 */
enum status cpu_isa_select(const struct cpu_isa **out, const char *name, struct err *e);

/* "AMD EPYC 7B13", or "processor" where it has no name; returns out. */
const char *cpu_brand(char *out, size_t n_out);

/*
 * Cores that the CPU quota of this process's control groups (v2 and v1, each level up to the root)
 * is worth, rounded up; 0 if there is no quota. `root` is put in front of /proc and /sys ("" but in
 * tests).
 * Source: Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.max), scheduler/sched-bwc.rst.
 */
int cpu_quota_cores(const char *root);

/*
 * Memory of this machine, or what this process's control groups (v2, each level up to the root) and ulimit -v
 * leave of it, in bytes: all, and what is available without swapping (the page cache counts as available). False
 * if unknown.
 * Source: Linux, Documentation/filesystems/proc.rst (MemTotal, MemAvailable), admin-guide/cgroup-v2.rst
 * (memory.max, memory.current, inactive_file of memory.stat).
 */
bool cpu_memory(const char *root, size_t *n_free, size_t *n_total);

#endif
