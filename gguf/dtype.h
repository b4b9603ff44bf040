/*
 * Tensor types: numbers, names, block sizes. One row each in dtype.def.
 */
#ifndef GGRUN_GGUF_DTYPE_H
#define GGRUN_GGUF_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DTYPE(NAME, number, name, block, layout, bytes) DT_##NAME = number,
enum dtype {
#include "gguf/dtype.def"
    DT_COUNT = 43, /* one more than the largest number; there are holes below it */
};

struct dtype_info {
    const char *name; /* as people write it: "q4_K" */
    uint32_t block;   /* elements per block; 1 for plain types; 0 in a hole of the numbering */
    uint32_t bytes;   /* bytes per block */
};

/* Info of a type that exists; `t` must be valid (see dtype_known). */
const struct dtype_info *dtype_info(enum dtype t);
static inline const char *dtype_name(enum dtype t)
{
    return dtype_info(t)->name;
}

/* Is `number` (from a file) a type that we know? */
bool dtype_known(uint32_t number);
/* Name of a number that files once used and that is refused today, else NULL. */
const char *dtype_gone_name(uint32_t number);
/* Type for a name, case-insensitive ("Q4_K", "f16"); false if there is none. */
bool dtype_from_name(const char *name, enum dtype *out);

/* Quantised: more than one element per block. */
static inline bool dtype_quantised(enum dtype t)
{
    return dtype_info(t)->block > 1;
}

/*
 * Bytes of a row of n elements; false if n is not a whole number of blocks, is negative, or the
 * product overflows. dtype_row_bytes is the same for an n known to be good (asserted).
 */
bool dtype_row_size(enum dtype t, int64_t n, size_t *n_bytes);
size_t dtype_row_bytes(enum dtype t, int64_t n);

#endif
