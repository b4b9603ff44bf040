#include "tests/unit.h"

#include "tests/backends/fixture.h"

#include <stdlib.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "gguf/block.h"
#include "gguf/quants.h"

#define GUARD     64
#define MAX_THING 4096

static struct thing {
    void *block;
    size_t n_bytes; /* between the guards; 0: no guards */
} things[MAX_THING];
static int n_things;
static uint64_t seed = 1;

uint32_t fx_u32(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 32);
}

float fx_uniform(float lo, float hi)
{
    float u = (float)(fx_u32() >> 8) / 16777216.0f;

    return lo * (1 - u) + hi * u; /* hi - lo might overflow */
}

/* n bytes, 64-byte aligned, with GUARD bytes of 0xa5 on both sides. */
static void *guarded(size_t n)
{
    char *p = mem_aligned(n + 2 * GUARD);

    assert_non_null(p);
    assert_true(n_things < MAX_THING);
    memset(p, 0xa5, n + 2 * GUARD);
    memset(p + GUARD, 0, n);
    things[n_things++] = (struct thing){p, n};
    return p + GUARD;
}

static struct tensor *new_tensor(void)
{
    struct tensor *t = mem_zalloc(sizeof *t);

    assert_non_null(t);
    assert_true(n_things < MAX_THING);
    things[n_things++] = (struct thing){t, 0};
    return t;
}

struct tensor *fx_tensor(enum dtype type, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3,
                         size_t row_pad)
{
    struct tensor *t = new_tensor();

    assert_true(tensor_set_shape(t, type, 4, (int64_t[]){ne0, ne1, ne2, ne3}));
    t->nb[1] += row_pad;
    t->nb[2] = t->nb[1] * (size_t)ne1;
    t->nb[3] = t->nb[2] * (size_t)ne2;
    t->data = guarded(tensor_bytes(t));
    tensor_set_name(t, "src%d", n_things);
    return t;
}

/* Offsets of the half scales of a block; -1 = none. */
static void half_offsets(enum dtype t, int out[2])
{
    out[0] = out[1] = -1;
    switch ((int)t) {
    case DT_Q4_1:
    case DT_Q5_1:
    case DT_Q4_K:
    case DT_Q5_K:
        out[1] = 2;
        out[0] = 0;
        break;
    case DT_Q4_0:
    case DT_Q5_0:
    case DT_Q8_0:
    case DT_Q8_1:
    case DT_IQ4_NL:
    case DT_IQ4_XS:
    case DT_IQ2_XXS:
    case DT_IQ2_XS:
    case DT_IQ2_S:
    case DT_IQ3_XXS:
    case DT_IQ3_S:
    case DT_IQ1_S:
    case DT_Q1_0:
    case DT_Q2_0:
        out[0] = 0;
        break;
    case DT_Q2_K:
        out[0] = offsetof(struct block_q2_K, d);
        out[1] = offsetof(struct block_q2_K, dmin);
        break;
    case DT_Q3_K:
        out[0] = offsetof(struct block_q3_K, d);
        break;
    case DT_Q6_K:
        out[0] = offsetof(struct block_q6_K, d);
        break;
    case DT_TQ1_0:
        out[0] = offsetof(struct block_tq1_0, d);
        break;
    case DT_TQ2_0:
        out[0] = offsetof(struct block_tq2_0, d);
        break;
    default:
        break;
    }
}

static void random_block(enum dtype type, unsigned char *b, float scale)
{
    int offs[2];

    half_offsets(type, offs);
    for (uint32_t i = 0; i < dtype_info(type)->bytes; i++)
        b[i] = (unsigned char)fx_u32();
    for (int i = 0; i < 2; i++) {
        uint16_t h = f32_to_f16(fx_uniform(-scale, scale));
        if (offs[i] >= 0)
            memcpy(b + offs[i], &h, sizeof h);
    }
    if (type == DT_Q8_K) {
        float d = fx_uniform(-scale, scale);
        memcpy(b, &d, sizeof d);
    }
    if (type == DT_MXFP4)
        b[0] = (unsigned char)(118 + b[0] % 12);
    if (type == DT_IQ1_M) /* the half's upper four bits: a small positive scale */
        b[offsetof(struct block_iq1_m, scales) + 7] =
            0x20 | (b[offsetof(struct block_iq1_m, scales) + 7] & 15);
}

struct tensor *fx_random(struct tensor *t, float scale)
{
    const struct dtype_info *info = dtype_info(t->type);
    quant_encode_fn *encode = quant_encoder(t->type);

    for (int64_t r = 0; r < tensor_rows(t); r++) {
        int64_t i23 = r / t->ne[1];
        unsigned char *row = (unsigned char *)t->data + (size_t)(r % t->ne[1]) * t->nb[1] +
                             (size_t)(i23 % t->ne[2]) * t->nb[2] +
                             (size_t)(i23 / t->ne[2]) * t->nb[3];
        for (int64_t i = 0; i < t->ne[0]; i += info->block) {
            unsigned char *p = row + (size_t)(i / info->block) * info->bytes;
            float f = fx_uniform(-scale, scale);
            if (info->block > 1)
                random_block(t->type, p, scale / 8);
            else if (t->type >= DT_I8 && t->type <= DT_I64)
                encode((float[]){f * 10}, p, 1);
            else
                encode(&f, p, 1);
        }
    }
    return t;
}

float *fx_f32(struct tensor *t, int64_t i, int64_t r)
{
    return (float *)((char *)t->data + (size_t)r * t->nb[1]) + i;
}

struct tensor *fx_op(enum op op, const void *params, unsigned n_params, struct tensor *a,
                     struct tensor *b, struct tensor *c, struct tensor *d)
{
    struct tensor *src[4] = {a, b, c, d};

    return fx_op_n(op, params, n_params, src, 4);
}

struct tensor *fx_op_n(enum op op, const void *params, unsigned n_params,
                       struct tensor *const *src, int n_src)
{
    struct tensor *t = new_tensor();
    struct err e = {0};

    t->op = op;
    memcpy(t->src, src, (size_t)n_src * sizeof *src);
    t->flags = TENSOR_COMPUTE;
    tensor_set_name(t, "%s_%d", op_name(op), n_things);
    if (params)
        op_param_copy_in(t, params, n_params);
    if (op_shape(t, &e))
        fail_msg("%s", e.msg);
    t->data = t->view_src ? (char *)t->view_src->data + t->view_offs : guarded(tensor_bytes(t));
    return t;
}

void fx_poison(struct tensor *t)
{
    if (!t->view_src)
        memset(t->data, 0xd7, tensor_bytes(t));
}

enum status fx_try(struct device *d, struct tensor *t, int n_threads, struct err *e)
{
    size_t n_work = device_work_size(d, t);
    void *work = mem_aligned(n_work);
    int32_t uses = 1;
    struct span s = {.nodes = &t, .uses = &uses, .n = 1, .n_threads = n_threads};
    enum status st;

    assert_true(device_supports_op(d, t));
    assert_non_null(work);
    fx_poison(t);
    st = device_compute(d, &s, work, n_work, e);
    mem_free(work);
    return st;
}

void fx_run(struct device *d, struct tensor *t, int n_threads)
{
    struct err e = {0};

    if (fx_try(d, t, n_threads, &e))
        fail_msg("%s", e.msg);
}

void fx_end(void)
{
    int n_bad = 0;

    for (int i = 0; i < n_things; i++) {
        const unsigned char *p = things[i].block;
        for (size_t j = 0; things[i].n_bytes && j < GUARD; j++)
            n_bad += p[j] != 0xa5 || p[GUARD + things[i].n_bytes + j] != 0xa5;
        mem_free(things[i].block);
    }
    n_things = 0;
    assert_int_equal(n_bad, 0);
}
