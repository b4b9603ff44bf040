/*
 * CONT, GET_ROWS, SET_ROWS: moving rows about. Row numbers are checked before any byte is touched.
 */
#include <string.h>

#include "backends/cpu/ops.h"

/* ---- CONT ---- */

static bool cont_supports(const struct tensor *t)
{
    const struct tensor *x = t->src[0];

    return t->type == x->type &&
           (!dtype_quantised(t->type) || x->nb[0] == dtype_info(t->type)->bytes);
}

/* n elements of `size` bytes, `stride` bytes apart. */
static void gather(char *dst, const char *src, int64_t n, size_t size, size_t stride)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(dst + (size_t)i * size, src + (size_t)i * stride, size);
}

static void cont_run(const struct cpu_task *k, const struct tensor *t)
{
    const struct tensor *x = t->src[0];
    size_t size = dtype_info(t->type)->bytes, row = tensor_row_bytes(t);
    int64_t from, to;

    task_range(k, tensor_rows(t), &from, &to);
    for (int64_t r = from; r < to; r++) {
        if (x->nb[0] == size)
            memcpy(row_at(t, r), row_at(x, r), row);
        else if (size == 4) /* a constant size: one load and store per element */
            gather(row_at(t, r), row_at(x, r), t->ne[0], 4, x->nb[0]);
        else
            gather(row_at(t, r), row_at(x, r), t->ne[0], size, x->nb[0]);
    }
}

const struct cpu_op cpu_op_cont = {.supports = cont_supports, .run = cont_run};

/* ---- GET_ROWS ---- */

static bool get_rows_supports(const struct tensor *t)
{
    const struct tensor *a = t->src[0], *ids = t->src[1];

    return f32_rows(t) && tensor_rows_contiguous(a) && ids->type == DT_I32 && ids->nb[0] == 4;
}

static void get_rows_run(const struct cpu_task *k, const struct tensor *t)
{
    const struct tensor *a = t->src[0];
    const int32_t *ids = t->src[1]->data;
    quant_decode_fn *decode = task_decoder(k->isa, a->type);
    int64_t from, to;

    for (int64_t j = 0; j < t->ne[1]; j++)
        if (ids[j] < 0 || ids[j] >= a->ne[1]) {
            task_fail(k, t, "row %d of '%s' does not exist, there are %lld", (int)ids[j], a->name,
                      (long long)a->ne[1]);
            return;
        }
    task_range(k, t->ne[1], &from, &to);
    for (int64_t j = from; j < to; j++)
        decode(row_of(a, ids[j], 0, 0), row_of(t, j, 0, 0), t->ne[0]);
}

const struct cpu_op cpu_op_get_rows = {
    .supports = get_rows_supports, .run = get_rows_run, .isa_in_name = true};

/* ---- SET_ROWS ---- */

static bool set_rows_supports(const struct tensor *t)
{
    const struct tensor *x = t->src[1], *ids = t->src[2];

    return quant_encoder(t->type) && tensor_rows_contiguous(t) && f32_rows(x) &&
           ids->type == DT_I64 && ids->nb[0] == 8;
}

/*
 * Columns are divided among the threads, not rows: of two rows with one number the later one wins.
 */
static void set_rows_run(const struct cpu_task *k, const struct tensor *t)
{
    const struct tensor *x = t->src[1];
    const int64_t *ids = t->src[2]->data;
    quant_encode_fn *encode = quant_encoder(t->type);
    int64_t from, to, unit = dtype_info(t->type)->block;

    for (int64_t j = 0; j < x->ne[1]; j++)
        if (ids[j] < 0 || ids[j] >= t->ne[1]) {
            task_fail(k, t, "row %lld of '%s' does not exist, there are %lld", (long long)ids[j],
                      t->src[0]->name, (long long)t->ne[1]);
            return;
        }
    if (t->type == DT_F16 && k->isa->quants->encode_f16)
        encode = k->isa->quants->encode_f16;
    unit = unit > 32 ? unit : 32; /* whole blocks */
    task_range(k, (t->ne[0] + unit - 1) / unit, &from, &to);
    from *= unit;
    to = to * unit < t->ne[0] ? to * unit : t->ne[0];
    if (from >= to)
        return;
    for (int64_t j = 0; j < x->ne[1]; j++)
        encode((const float *)row_of(x, j, 0, 0) + from,
               (char *)row_of(t, ids[j], 0, 0) + dtype_row_bytes(t->type, from), to - from);
}

const struct cpu_op cpu_op_set_rows = {
    .supports = set_rows_supports, .run = set_rows_run, .isa_in_name = true};

/* ---- CONCAT ---- */

static bool concat_supports(const struct tensor *t)
{
    return f32_rows(t) && f32_rows(t->src[0]) && f32_rows(t->src[1]);
}

static void concat_run(const struct cpu_task *k, const struct tensor *t)
{
    const struct tensor *a = t->src[0], *b = t->src[1];
    int64_t from, to;

    task_range(k, tensor_rows(t), &from, &to);
    for (int64_t r = from; r < to; r++) {
        float *y = row_at(t, r);

        memcpy(y, row_at(a, r), (size_t)a->ne[0] * sizeof *y);
        memcpy(y + a->ne[0], row_at(b, r), (size_t)b->ne[0] * sizeof *y);
    }
}

const struct cpu_op cpu_op_concat = {.supports = concat_supports, .run = concat_run};
