#include "gguf/dtype.h"

#include <assert.h>
#include <strings.h>

#include "gguf/base/mem.h"
#include "gguf/block.h"

/* The size of each layout is the number in the specification, and nothing is padded. */
#define DTYPE(NAME, number, name, block, layout, bytes)                                            \
    static_assert(sizeof(layout) == (bytes), name " has the size that the specification says");    \
    static_assert((number) < DT_COUNT, name " is below DT_COUNT");
#include "gguf/dtype.def"

static const struct dtype_info infos[DT_COUNT] = {
#define DTYPE(NAME, number, name, block, layout, bytes)                                            \
    [number] = {name, block, (uint32_t)sizeof(layout)},
#include "gguf/dtype.def"
};

bool dtype_known(uint32_t number)
{
    return number < DT_COUNT && infos[number].block;
}

const struct dtype_info *dtype_info(enum dtype t)
{
    assert(dtype_known((uint32_t)t));
    return &infos[t];
}

const char *dtype_gone_name(uint32_t number)
{
    switch (number) {
#define DTYPE(NAME, number, name, block, layout, bytes)
#define DTYPE_GONE(number, name)                                                                   \
    case number:                                                                                   \
        return name;
#include "gguf/dtype.def"
    default:
        return NULL;
    }
}

bool dtype_from_name(const char *name, enum dtype *out)
{
    for (uint32_t i = 0; i < DT_COUNT; i++) {
        if (infos[i].block && strcasecmp(name, infos[i].name) == 0) {
            *out = (enum dtype)i;
            return true;
        }
    }
    return false;
}

bool dtype_row_size(enum dtype t, int64_t n, size_t *n_bytes)
{
    const struct dtype_info *info = dtype_info(t);

    if (n < 0 || n % info->block)
        return false;
    return mem_mul((size_t)(n / info->block), info->bytes, n_bytes);
}

size_t dtype_row_bytes(enum dtype t, int64_t n)
{
    size_t n_bytes = 0;
    bool ok = dtype_row_size(t, n, &n_bytes);

    assert(ok);
    (void)ok;
    return n_bytes;
}
