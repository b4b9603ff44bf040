#include "backends/tensor.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gguf/base/mem.h"

bool tensor_set_shape(struct tensor *t, enum dtype type, int n_dims, const int64_t *ne)
{
    int64_t shape[TENSOR_DIMS] = {1, 1, 1, 1};
    size_t nb[TENSOR_DIMS + 1];

    for (int i = 0; i < n_dims; i++) {
        if (ne[i] < 0)
            return false;
        shape[i] = ne[i];
    }
    nb[0] = dtype_info(type)->bytes;
    if (!dtype_row_size(type, shape[0], &nb[1]))
        return false;
    for (int i = 1; i < TENSOR_DIMS; i++) {
        if (!mem_mul(nb[i], (size_t)shape[i], &nb[i + 1]))
            return false;
    }
    if (nb[TENSOR_DIMS] > INT64_MAX)
        return false;
    t->type = type;
    memcpy(t->ne, shape, sizeof t->ne);
    memcpy(t->nb, nb, sizeof t->nb);
    return true;
}

void tensor_set_name(struct tensor *t, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(t->name, sizeof t->name, fmt, ap);
    va_end(ap);
}

size_t tensor_bytes(const struct tensor *t)
{
    size_t n;

    for (int i = 0; i < TENSOR_DIMS; i++) {
        if (t->ne[i] <= 0)
            return 0;
    }
    /* The last row ends after its own bytes, whatever the padding between rows. Along dimension 0 the
     * elements of a transposed view may be far apart. */
    if (dtype_info(t->type)->block > 1)
        n = tensor_row_bytes(t);
    else
        n = dtype_info(t->type)->bytes + (size_t)(t->ne[0] - 1) * t->nb[0];
    for (int i = 1; i < TENSOR_DIMS; i++)
        n += (size_t)(t->ne[i] - 1) * t->nb[i];
    return n;
}

bool tensor_same_shape(const struct tensor *a, const struct tensor *b)
{
    return memcmp(a->ne, b->ne, sizeof a->ne) == 0;
}

bool tensor_same_layout(const struct tensor *a, const struct tensor *b)
{
    return a->type == b->type && tensor_same_shape(a, b) && memcmp(a->nb, b->nb, sizeof a->nb) == 0;
}

bool tensor_rows_contiguous(const struct tensor *t)
{
    return t->nb[0] == dtype_info(t->type)->bytes;
}

bool tensor_contiguous(const struct tensor *t)
{
    size_t nb = tensor_row_bytes(t);

    if (!tensor_rows_contiguous(t))
        return false;
    for (int i = 1; i < TENSOR_DIMS; i++) {
        /* the stride of a dimension of one element is never walked */
        if (t->ne[i] != 1 && t->nb[i] != nb)
            return false;
        nb *= (size_t)t->ne[i];
    }
    return true;
}

bool tensor_can_repeat(const struct tensor *b, const struct tensor *a)
{
    for (int i = 0; i < TENSOR_DIMS; i++) {
        if (b->ne[i] <= 0 || a->ne[i] % b->ne[i] != 0)
            return false;
    }
    return true;
}
