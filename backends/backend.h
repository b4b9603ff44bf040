/*
 * Devices and memory: all that the runtime sees of a backend, and all that a backend sees of a graph.
 *
 *     registry -> device -> buffer type -> buffer
 *
 * Scheduling and allocation read descriptions only (device and buffer type, never memory), so a plan can
 * be made for a device whose buffers do not exist.
 */
#ifndef GGRUN_BACKENDS_BACKEND_H
#define GGRUN_BACKENDS_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/tensor.h"
#include "gguf/base/status.h"

struct device;
struct buft;

/* ---- memory ---- */

enum usage {
    USAGE_ANY,     /* KV cache, staging */
    USAGE_WEIGHTS, /* constant during runs; ops follow them (scheduler pass 1) */
    USAGE_COMPUTE, /* addresses come from the allocator */
};

struct buffer {
    const struct buft *buft;
    size_t size; /* bytes */
    enum usage usage;
    void *base;  /* first byte, aligned to buft->alignment; NULL: a description without memory */
    bool borrowed; /* base belongs to somebody else (a mapped file) */
};

/* Buffer type: how one kind of memory behaves. Constant; owned by its device (or static). */
struct buft {
    const char *name; /* "CPU" */
    size_t alignment; /* of every tensor's address; power of two */
    size_t max_size;  /* of one allocation; SIZE_MAX if there is no limit */
    bool is_host;     /* data is a host address that the host may read and write */
    size_t row_align; /* rows of weights start at multiples of it; 0: they lie end to end */
    /* Bytes to reserve for t; NULL = tensor_bytes(t). May exceed the plain bytes, never less. */
    size_t (*tensor_size)(const struct buft *bt, const struct tensor *t);
    /* Zeroed memory of `size` bytes into b->base. NULL = mem_pages. Failure: ST_NOMEM with numbers. */
    enum status (*alloc)(const struct buft *bt, struct buffer *b, struct err *e);
    void (*release)(const struct buft *bt, struct buffer *b); /* required if alloc is given */
    /* Transfers for memory that is not host memory; NULL when is_host. `offs` bytes into t's data. */
    enum status (*set)(struct tensor *t, size_t offs, const void *src, size_t n, struct err *e);
    enum status (*get)(const struct tensor *t, size_t offs, void *dst, size_t n, struct err *e);
    void *impl;
};

/* Allocate (zeroed). The buffer object itself is the caller's. */
enum status buffer_init(struct buffer *b, const struct buft *bt, size_t size, enum usage usage,
                        struct err *e);
/* A description without memory: same fields, base NULL. */
void buffer_describe(struct buffer *b, const struct buft *bt, size_t size, enum usage usage);
/* Host memory that exists already (a mapped file); not released. bt must be a host type. */
void buffer_borrow(struct buffer *b, const struct buft *bt, void *base, size_t size,
                   enum usage usage);
void buffer_release(struct buffer *b);

size_t buft_tensor_size(const struct buft *bt, const struct tensor *t);
/* Give t, whose type and shape are set, the strides of a weight in bt. False when a size overflows. */
bool buft_set_strides(const struct buft *bt, struct tensor *t);
/* Write / read bytes of a bound tensor; ranges are asserted. */
enum status tensor_set(struct tensor *t, size_t offs, const void *src, size_t n, struct err *e);
enum status tensor_get(const struct tensor *t, size_t offs, void *dst, size_t n, struct err *e);

/* ---- work ---- */

/*
 * Nodes to compute, in order. No-op nodes (views) may be among them and are skipped; so are nodes without
 * TENSOR_COMPUTE. `uses` lets a backend fuse: a node whose result only the next one reads need not be
 * written (never one that is TENSOR_OUTPUT).
 */
struct span {
    struct tensor *const *nodes;
    const int32_t *uses; /* [n] consumers of each node in the whole graph */
    int n;
    uint64_t uid;              /* names this span for captures; 0 = unknown */
    int n_threads;             /* CPU threads to use; 0 = all of the pool */
    const atomic_bool *cancel; /* NULL, or: when true, return ST_CANCELLED at the next node */
};

struct event; /* a mark in a device's queue; the backend's own */

enum device_kind {
    DEVICE_CPU,   /* always there, always last */
    DEVICE_ACCEL, /* shares the CPU's memory: BLAS */
    DEVICE_GPU,   /* own memory */
};

struct device_memory {
    size_t n_total, n_free; /* bytes; both 0 when unknown */
    size_t n_used;          /* bytes of this process's buffers there, as they were asked for */
};

struct device_ops {
    void (*free)(struct device *d);
    /* optional */
    void (*memory)(const struct device *d, struct device_memory *out);
    /* Can d compute this node (op, types, shapes, layouts)? Reads no data. O(1). */
    bool (*supports_op)(const struct device *d, const struct tensor *t);
    /* Can d read sources that live in bt? */
    bool (*supports_buft)(const struct device *d, const struct buft *bt);
    /* Would d rather compute t although its weights are in host memory? optional (NULL = no) */
    bool (*offload_op)(const struct device *d, const struct tensor *t);
    /* Bytes of scratch that computing t needs; optional (NULL = 0). Same answer in plan and run. */
    size_t (*work_size)(const struct device *d, const struct tensor *t);
    /* Compute the span; `work` has at least the largest work_size of its nodes, MEM_ALIGN-aligned.
     * May return before the work is done if synchronize is given, but not before it has read the span
     * and its tensors: their addresses may change then. */
    enum status (*compute)(struct device *d, const struct span *s, void *work, size_t n_work,
                           struct err *e);
    /* Wait until all submitted work is done; the first error of it is returned, once. optional */
    enum status (*synchronize)(struct device *d, struct err *e);
    /*
     * The queue: all of these or none. Each is handed over and done in the order of submission, behind
     * earlier work of d; tensors are read before the call returns, as by compute. Host memory (src, dst)
     * must stay until the work is done. copy_async goes through the queue of d, which holds src; dst is on
     * a device of the same backend.
     */
    enum status (*set_async)(struct device *d, struct tensor *t, size_t offs, const void *src,
                             size_t n, struct err *e);
    enum status (*get_async)(struct device *d, const struct tensor *t, size_t offs, void *dst,
                             size_t n, struct err *e);
    enum status (*copy_async)(struct device *d, const struct tensor *src, struct tensor *dst,
                              struct err *e);
    /* Events: record marks what d was given so far; wait lets later work of d wait for it (of any
     * device of the same backend); event_synchronize lets the caller wait. One that was never
     * recorded has happened. */
    enum status (*event_new)(struct device *d, struct event **out, struct err *e);
    void (*event_free)(struct event *ev);
    enum status (*event_record)(struct device *d, struct event *ev, struct err *e);
    enum status (*event_wait)(struct device *d, struct event *ev, struct err *e);
    enum status (*event_synchronize)(struct event *ev, struct err *e);
    /* Name of the kernel that would run t ("mul_mat_q4_1_avx2"), for --exec-debug; optional. */
    const char *(*kernel_name)(const struct device *d, const struct tensor *t);
};

struct device {
    const struct device_ops *ops;
    const char *name; /* "CPU", "BLAS"; compared without case */
    const char *desc; /* for people: "AMD EPYC, avx2" */
    enum device_kind kind;
    const struct buft *buft; /* where its results live */
    const struct buft *const *more; /* [n_more] other buffer types, for weights that are put there by name */
    int n_more;
    void *impl;
};

/* Thin wrappers that supply the defaults above. */
bool device_supports_op(const struct device *d, const struct tensor *t);
bool device_supports_buft(const struct device *d, const struct buft *bt);
struct device_memory device_memory(const struct device *d); /* zeros if unknown */
/*
 * ST_NOMEM for n bytes that do not fit: "not enough memory on 'SIM0': <what> needs 6.0 GiB, 3.8 GiB of 8.0 GiB
 * are free; <hint>".
 */
enum status device_nomem(const struct device *d, const char *what, size_t n, const char *hint,
                         struct err *e);
bool device_offload_op(const struct device *d, const struct tensor *t);
size_t device_work_size(const struct device *d, const struct tensor *t);
enum status device_compute(struct device *d, const struct span *s, void *work, size_t n_work,
                           struct err *e);
enum status device_synchronize(struct device *d, struct err *e);
const char *device_kernel_name(const struct device *d, const struct tensor *t); /* "" if unknown */

/* ---- registry ---- */

struct device_spec;

struct device_options {
    int n_threads;   /* threads of the CPU's pool, the caller included; 0 = usable cores */
    const char *isa; /* highest instruction set to use ("scalar", "avx2"); NULL = the best here */
    bool blas;       /* open the BLAS device too */
    const char *sim; /* simulated accelerators: their number, or their sizes "24GiB,8GiB"; NULL: none */
    const struct device_spec *described; /* [n_described] devices to plan for that need not be here */
    int n_described;
};

/* A device without memory or queue: it can be planned for, buffers of it cannot be allocated. */
struct device_spec {
    char name[16];  /* "SIM0": a kind and a number, counted from 0 in each kind; compared without case */
    size_t n_bytes; /* of memory */
};

#define DEVICES_MAX 64

/* The devices of a run in order of priority: accelerators first, the CPU last. */
struct devices {
    struct device **dev; /* owned */
    int n;
};

/*
 * Open every backend of backends.def that the options ask for. An explicit request that cannot be met
 * (BLAS not compiled in, unknown or unavailable --isa, a described device of an unknown kind) is ST_USAGE or
 * ST_DEVICE, never a silent fallback.
 */
enum status devices_open(struct devices *out, const struct device_options *opt, struct err *e);
void devices_close(struct devices *d); /* also of a half-opened or zeroed one */
/* For backends: add a device to the list, which owns it then; on failure (too many) it is freed. */
enum status devices_append(struct devices *d, struct device *dev, struct err *e);
struct device *devices_cpu(const struct devices *d);
/*
 * Keep the accelerators of a list "SIM1,SIM0", in its order, or none of them ("none"); what works in the
 * CPU's memory, and the CPU, stay. ST_USAGE, with those that are known, for other names and for repetitions.
 */
enum status devices_select(struct devices *d, const char *names, struct err *e);
/* By name, without case; NULL if there is none. */
struct device *devices_find(const struct devices *d, const char *name);
/* Buffer type by name, without case, of any device, which goes to *dev; NULL if there is none. */
const struct buft *devices_buft(const struct devices *d, const char *name, const struct device **dev);

/* Cores this process may use: affinity mask and cgroup CPU quota, at least 1. */
int usable_cores(void);

#endif
