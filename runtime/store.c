#include "runtime/store.h"

#include <stdio.h>

#include "gguf/base/mem.h"
#include "gguf/base/text.h"

void store_init(struct store *s, enum usage usage)
{
    *s = (struct store){.usage = usage};
}

void store_release(struct store *s)
{
    for (int i = 0; i < s->n_parts; i++) {
        buffer_release(s->parts[i].buffer);
        mem_free(s->parts[i].buffer);
    }
    mem_free(s->parts);
    mem_free(s->entries);
    *s = (struct store){0};
}

/* ---- places ---- */

static enum status new_part(struct store *s, const struct device *dev, const struct buft *bt,
                            int *part, struct err *e)
{
    struct buffer *b;

    if (!mem_room(&s->parts, &s->cap_parts, s->n_parts + 1, sizeof *s->parts))
        return err_nomem(e, "a list of buffers", sizeof *s->parts);
    b = mem_zalloc(sizeof *b);
    if (!b)
        return err_nomem(e, "a buffer's description", sizeof *b);
    buffer_describe(b, bt, 0, s->usage);
    *part = s->n_parts++;
    s->parts[*part] = (struct store_part){.dev = dev, .bt = bt, .buffer = b};
    return ST_OK;
}

static int open_part(const struct store *s, const struct buft *bt)
{
    for (int i = 0; i < s->n_parts; i++) {
        if (s->parts[i].bt == bt && !s->parts[i].full)
            return i;
    }
    return -1;
}

static enum status too_large(const struct device *dev, const struct tensor *t, size_t size,
                             struct err *e)
{
    char need[32], most[32];

    return err_set(e, ST_NOMEM,
                   "not enough memory on '%s': tensor '%s' needs %s, one allocation holds %s",
                   dev->name, t->name, text_size(need, sizeof need, size),
                   text_size(most, sizeof most, dev->buft->max_size));
}

enum status store_add(struct store *s, const struct device *dev, const struct buft *bt,
                      struct tensor *t, struct err *e)
{
    int i = open_part(s, bt);
    size_t at = 0, end, size;
    enum status st;

    size = buft_set_strides(bt, t) ? buft_tensor_size(bt, t) : SIZE_MAX;
    if (size > bt->max_size || size == SIZE_MAX)
        return too_large(dev, t, size, e);
    if (i >= 0 && (!mem_round_up(s->parts[i].n_bytes, bt->alignment, &at) ||
                   !mem_add(at, size, &end) || end > bt->max_size)) {
        s->parts[i].full = true;
        i = -1;
    }
    if (i < 0) {
        st = new_part(s, dev, bt, &i, e);
        if (st)
            return st;
        at = 0;
    }
    if (!mem_room(&s->entries, &s->cap_entries, s->n_entries + 1, sizeof *s->entries))
        return err_nomem(e, "a list of tensors", sizeof *s->entries);
    s->entries[s->n_entries++] = (struct store_entry){.t = t, .part = i, .offs = at};
    s->parts[i].n_bytes = at + size;
    t->buffer = s->parts[i].buffer;
    t->data = NULL;
    return ST_OK;
}

/* ---- memory ---- */

size_t store_bytes_on(const struct store *s, const struct device *dev)
{
    size_t n = 0;

    for (int i = 0; i < s->n_parts; i++) {
        if (!dev || s->parts[i].dev == dev)
            n = mem_add(n, s->parts[i].n_bytes, &n) ? n : SIZE_MAX;
    }
    return n;
}

size_t store_bytes(const struct store *s)
{
    return store_bytes_on(s, NULL);
}

/* "a copy of its weights (the largest is 'output.weight', 28.7 MiB)" does not fit. */
static enum status no_room(const struct store *s, const struct device *dev, const char *what,
                           size_t n, const char *hint, struct err *e)
{
    const struct tensor *largest = NULL;
    char text[256], size[32];

    for (int i = 0; i < s->n_entries; i++) {
        const struct tensor *t = s->entries[i].t;

        if (s->parts[s->entries[i].part].dev == dev &&
            (!largest || tensor_bytes(t) > tensor_bytes(largest)))
            largest = t;
    }
    snprintf(text, sizeof text, "%s (the largest is '%s', %s)", what, largest ? largest->name : "",
             text_size(size, sizeof size, largest ? tensor_bytes(largest) : 0));
    return device_nomem(dev, text, n, hint, e);
}

/* The system may promise more than there is, and take the process down later: ask before. */
static enum status fits(const struct store *s, const struct device *dev, const char *what,
                        const char *hint, struct err *e)
{
    size_t n = store_bytes_on(s, dev);
    struct device_memory m = device_memory(dev);

    if (m.n_total ? n <= m.n_free : n < SIZE_MAX)
        return ST_OK;
    return no_room(s, dev, what, n, hint, e);
}

enum status store_bind(struct store *s, bool dry, const char *what, const char *hint, struct err *e)
{
    enum status st = ST_OK;

    for (int i = 0; i < s->n_parts && !dry && !st; i++)
        st = fits(s, s->parts[i].dev, what, hint, e);
    for (int i = 0; i < s->n_parts && !st; i++) {
        struct store_part *p = &s->parts[i];

        if (dry)
            buffer_describe(p->buffer, p->bt, p->n_bytes, s->usage);
        else if (buffer_init(p->buffer, p->bt, p->n_bytes, s->usage, NULL))
            st = no_room(s, p->dev, what, p->n_bytes, hint, e);
    }
    for (int i = 0; i < s->n_entries && !st && !dry; i++) {
        struct store_entry *en = &s->entries[i];

        en->t->data = (char *)s->parts[en->part].buffer->base + en->offs;
    }
    return st;
}

enum status store_copy_rows(struct tensor *t, uint32_t from, uint32_t to, uint32_t n, struct err *e)
{
    char part[16384];
    size_t left = (size_t)n * t->nb[1], at = 0;
    enum status st = ST_OK;

    if (!tensor_n(t))
        return ST_OK;
    while (left && !st) {
        size_t k = left < sizeof part ? left : sizeof part;

        st = tensor_get(t, (size_t)from * t->nb[1] + at, part, k, e);
        if (!st)
            st = tensor_set(t, (size_t)to * t->nb[1] + at, part, k, e);
        at += k;
        left -= k;
    }
    return st;
}
