/*
 * Ops of the CPU device: what cpu.c tells each op and what the op_<family>.c files provide.
 *
 * An op is run by all threads of a job at once, each with its own task. How the work is divided
 * never changes a result: every output element is computed by one thread, in one order.
 */
#ifndef GGRUN_BACKENDS_CPU_OPS_H
#define GGRUN_BACKENDS_CPU_OPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/cpu/features.h"
#include "backends/tensor.h"

/* First failure of a job; `taken` decides who writes err. */
struct cpu_fault {
    atomic_bool taken;
    struct err err;
};

struct cpu_task {
    const struct cpu_isa *isa;
    int ith, nth;  /* this thread, and how many share the op */
    void *scratch; /* this thread's bytes, as many as the op's `scratch` said; MEM_ALIGN-aligned */
    atomic_llong *next; /* shared; 0 when the op starts */
    struct cpu_fault *fault;
};

/* The next item of an op's work, 0, 1, 2, ...: threads that are done early take more. */
static inline int64_t task_next(const struct cpu_task *k)
{
    return atomic_fetch_add_explicit(k->next, 1, memory_order_relaxed);
}

/* This thread's part of n equal items: [*from, *to). */
static inline void task_range(const struct cpu_task *k, int64_t n, int64_t *from, int64_t *to)
{
    int64_t each = n / k->nth, extra = n % k->nth;

    *from = each * k->ith + (k->ith < extra ? k->ith : extra);
    *to = *from + each + (k->ith < extra);
}

/* Address of row r (0 .. tensor_rows - 1) and of row (i1, i2, i3). */
static inline void *row_of(const struct tensor *t, int64_t i1, int64_t i2, int64_t i3)
{
    return (char *)t->data + (size_t)i1 * t->nb[1] + (size_t)i2 * t->nb[2] + (size_t)i3 * t->nb[3];
}
static inline void *row_at(const struct tensor *t, int64_t r)
{
    int64_t i1 = r % t->ne[1], i23 = r / t->ne[1];

    return row_of(t, i1, i23 % t->ne[2], i23 / t->ne[2]);
}

/* f32 with the elements of a row side by side and whole-element strides. */
static inline bool f32_rows(const struct tensor *t)
{
    return t->type == DT_F32 && t->nb[0] == 4 && t->nb[1] % 4 == 0 && t->nb[2] % 4 == 0 &&
           t->nb[3] % 4 == 0;
}

static inline quant_decode_fn *task_decoder(const struct cpu_isa *isa, enum dtype t)
{
    return isa->quants->decode[t] ? isa->quants->decode[t] : quant_decoder(t);
}

/* One op. supports and run are required. */
struct cpu_op {
    bool (*supports)(const struct tensor *t); /* types and layouts */
    size_t (*scratch)(const struct cpu_isa *isa,
                      const struct tensor *t); /* bytes per thread; NULL = 0 */
    void (*run)(const struct cpu_task *k, const struct tensor *t);
    bool heavy; /* worth all threads at any size; others only from some thousand elements up */
    bool isa_in_name; /* its kernels differ by instruction set */
};

/* ADD, MUL, DIV: a, b f32 rows. SCALE, SOFTCAP, UNARY, GLU: f32 rows. */
extern const struct cpu_op cpu_op_add, cpu_op_mul, cpu_op_div, cpu_op_scale, cpu_op_softcap, cpu_op_unary,
    cpu_op_glu, cpu_op_clamp;
/* Sums in double: no overflow, one order on every instruction set. */
extern const struct cpu_op cpu_op_norm, cpu_op_rms_norm;
extern const struct cpu_op cpu_op_rope;
/*
 * CONT any type. GET_ROWS decodes any type. SET_ROWS encodes to any type that has an encoder. Row numbers are checked:
 * ST_MODEL.
 */
extern const struct cpu_op cpu_op_concat, cpu_op_cont, cpu_op_get_rows, cpu_op_set_rows;
extern const struct cpu_op cpu_op_mul_mat;
extern const struct cpu_op cpu_op_top_k, cpu_op_argmax, cpu_op_mask_bits;
/* Row numbers are checked: ST_MODEL. */
extern const struct cpu_op cpu_op_mul_mat_id, cpu_op_add_id, cpu_op_pick, cpu_op_shares, cpu_op_mix;
extern const struct cpu_op cpu_op_ssm_conv, cpu_op_ssm_scan, cpu_op_delta_net;
/* Slope of head h for the mask, 1 without ALiBi: see struct param_attn. */
float attn_slope(float max_bias, int64_t n_head, int64_t h);
extern const struct cpu_op cpu_op_flash_attn, cpu_op_soft_max;

/* Report a failure of t (the first one of a job counts). */
void task_fail(const struct cpu_task *k, const struct tensor *t, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
