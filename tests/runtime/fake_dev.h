/*
 * Devices for tests of the runtime: made of host memory, described by a row, computing with the
 * plainest loops. They notice when they are given what they said they cannot do.
 */
#ifndef GGRUN_TESTS_FAKE_DEV_H
#define GGRUN_TESTS_FAKE_DEV_H

#include "backends/backend.h"

#define OP_BIT(op) (UINT64_C(1) << (op))

struct fake_row {
    const char *name;
    enum device_kind kind;
    int shares;       /* index of an earlier device whose buffer type it uses, or -1 */
    uint64_t only;    /* ops that it computes; 0 = all */
    uint64_t holes;   /* ops that it does not compute */
    uint64_t offload; /* ops that it wants although the weights are in host memory */
    uint64_t reads;   /* bit d: can read the memory of device d where it is */
    size_t alignment; /* 0 = 64 */
    size_t max_size;  /* 0 = no limit */
    size_t pad;       /* rounds sizes up to a multiple; 0 = plain bytes */
    bool opaque;      /* addresses mean nothing to the host */
    size_t work;      /* bytes of scratch for MUL_MAT */
    bool idle;        /* does not compute at all, nor look: what is left is the time of the others */
};

struct fake {
    struct device dev;
    struct buft bt;
    struct fake_row row;
    struct machine *m;
    int n_computed; /* nodes */
    int n_spans, n_syncs;
    bool busy; /* computed since the last synchronize */
};

#define FAKES_MAX 8

struct machine {
    struct devices devs;
    struct device *list[FAKES_MAX];
    struct fake fakes[FAKES_MAX];
    char wrong[256]; /* first thing that should not have happened */
};

/* The last row is the CPU. */
void machine_init(struct machine *m, const struct fake_row *rows, int n);

/* Compute node t; data pointers of it and its sources are host addresses. */
void naive_compute(struct tensor *t);

#endif
