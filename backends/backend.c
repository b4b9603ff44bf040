#include "backends/backend.h"

#include <assert.h>
#include <string.h>

#include "gguf/base/mem.h"
#include "gguf/base/text.h"

enum status buffer_init(struct buffer *b, const struct buft *bt, size_t size, enum usage usage,
                        struct err *e)
{
    char text[32];

    buffer_describe(b, bt, size, usage);
    if (bt->alloc)
        return bt->alloc(bt, b, e);
    b->base = mem_pages(size);
    if (!b->base)
        return err_set(e, ST_NOMEM, "not enough memory on '%s': a buffer needs %s", bt->name,
                       text_size(text, sizeof text, size));
    return ST_OK;
}

void buffer_describe(struct buffer *b, const struct buft *bt, size_t size, enum usage usage)
{
    *b = (struct buffer){.buft = bt, .size = size, .usage = usage};
}

void buffer_borrow(struct buffer *b, const struct buft *bt, void *base, size_t size,
                   enum usage usage)
{
    assert(bt->is_host);
    *b = (struct buffer){.buft = bt, .size = size, .usage = usage, .base = base, .borrowed = true};
}

void buffer_release(struct buffer *b)
{
    if (b->base && !b->borrowed) {
        if (b->buft->release)
            b->buft->release(b->buft, b);
        else
            mem_pages_free(b->base, b->size);
    }
    *b = (struct buffer){0};
}

size_t buft_tensor_size(const struct buft *bt, const struct tensor *t)
{
    return bt->tensor_size ? bt->tensor_size(bt, t) : tensor_bytes(t);
}

bool buft_set_strides(const struct buft *bt, struct tensor *t)
{
    size_t row = tensor_row_bytes(t);

    if (bt->row_align < 2)
        return true;
    if (!mem_round_up(row, bt->row_align, &t->nb[1]))
        return false;
    for (int d = 2; d < TENSOR_DIMS; d++) {
        if (!mem_mul(t->nb[d - 1], (size_t)t->ne[d - 1], &t->nb[d]))
            return false;
    }
    return true;
}

enum status tensor_set(struct tensor *t, size_t offs, const void *src, size_t n, struct err *e)
{
    assert(t->data && t->buffer && offs <= tensor_bytes(t) && n <= tensor_bytes(t) - offs);
    if (t->buffer->buft->set)
        return t->buffer->buft->set(t, offs, src, n, e);
    memcpy((char *)t->data + offs, src, n);
    return ST_OK;
}

enum status tensor_get(const struct tensor *t, size_t offs, void *dst, size_t n, struct err *e)
{
    assert(t->data && t->buffer && offs <= tensor_bytes(t) && n <= tensor_bytes(t) - offs);
    if (t->buffer->buft->get)
        return t->buffer->buft->get(t, offs, dst, n, e);
    memcpy(dst, (const char *)t->data + offs, n);
    return ST_OK;
}

bool device_supports_op(const struct device *d, const struct tensor *t)
{
    return tensor_is_noop(t) || d->ops->supports_op(d, t);
}

bool device_supports_buft(const struct device *d, const struct buft *bt)
{
    return bt == d->buft || d->ops->supports_buft(d, bt);
}

struct device_memory device_memory(const struct device *d)
{
    struct device_memory m = {0};

    if (d->ops->memory)
        d->ops->memory(d, &m);
    return m;
}

enum status device_nomem(const struct device *d, const char *what, size_t n, const char *hint,
                         struct err *e)
{
    struct device_memory m = device_memory(d);
    char need[32], has[32], all[32];

    text_size(need, sizeof need, n);
    if (!m.n_total)
        return err_set(e, ST_NOMEM, "not enough memory on '%s': %s needs %s; %s", d->name, what,
                       need, hint);
    return err_set(e, ST_NOMEM, "not enough memory on '%s': %s needs %s, %s of %s are free; %s",
                   d->name, what, need, text_size(has, sizeof has, m.n_free),
                   text_size(all, sizeof all, m.n_total), hint);
}

bool device_offload_op(const struct device *d, const struct tensor *t)
{
    return d->ops->offload_op && d->ops->offload_op(d, t);
}

size_t device_work_size(const struct device *d, const struct tensor *t)
{
    return d->ops->work_size && !tensor_is_noop(t) ? d->ops->work_size(d, t) : 0;
}

enum status device_compute(struct device *d, const struct span *s, void *work, size_t n_work,
                           struct err *e)
{
    return d->ops->compute(d, s, work, n_work, e);
}

enum status device_synchronize(struct device *d, struct err *e)
{
    return d->ops->synchronize ? d->ops->synchronize(d, e) : ST_OK;
}

const char *device_kernel_name(const struct device *d, const struct tensor *t)
{
    return d->ops->kernel_name ? d->ops->kernel_name(d, t) : "";
}
