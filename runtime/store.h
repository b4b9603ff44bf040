/*
 * Store: tensors that live as long as a model or a session (weights, KV cache, recurrent state), in as few
 * buffers as there are buffer types, or more where one allocation of a type may not hold all of it.
 *
 *     store_add, store_add, ...    each tensor gets its place
 *     store_bind                   buffers are allocated; data and buffer of all tensors set
 */
#ifndef GGRUN_RUNTIME_STORE_H
#define GGRUN_RUNTIME_STORE_H

#include <stdbool.h>
#include <stddef.h>

#include "backends/backend.h"
#include "gguf/base/status.h"

struct store_part {
    const struct device *dev; /* whose memory it is */
    const struct buft *bt;
    struct buffer *buffer; /* owned; tensors point to it */
    size_t n_bytes;
    bool full; /* a later part goes on */
};

struct store_entry {
    struct tensor *t;
    int part;
    size_t offs;
};

struct store {
    enum usage usage;
    struct store_part *parts; /* [n_parts] */
    int n_parts, cap_parts;
    struct store_entry *entries; /* [n_entries] */
    int n_entries, cap_entries;
};

void store_init(struct store *s, enum usage usage);
void store_release(struct store *s); /* of a zeroed one too */

/*
 * Give t, whose shape is set, a place in memory of type bt of the device; its strides become those of bt.
 * t->buffer is a description until store_bind. ST_NOMEM: the sizes overflow, or t is larger than an
 * allocation may be.
 */
enum status store_add(struct store *s, const struct device *dev, const struct buft *bt,
                      struct tensor *t, struct err *e);

/*
 * Allocate (zeroed) and set data. `dry`: descriptions only. What does not fit is ST_NOMEM: device_nomem with
 * `what` and `hint`.
 */
enum status store_bind(struct store *s, bool dry, const char *what, const char *hint, struct err *e);

/* Copy rows from .. from + n - 1 of a bound tensor over those from `to` on, which are others: through the host. */
enum status store_copy_rows(struct tensor *t, uint32_t from, uint32_t to, uint32_t n, struct err *e);

/* Bytes of all parts; of those of a device. SIZE_MAX when the sum overflows. */
size_t store_bytes(const struct store *s);
size_t store_bytes_on(const struct store *s, const struct device *dev);

#endif
