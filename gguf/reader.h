/*
 * Reading GGUF files (versions 2 and 3, little-endian), whole or split into shards.
 *
 * Opening checks everything: each count, length, offset, type, alignment and product, against the real
 * size of the file and with overflow in mind. What is returned can be used without further checks: every
 * tensor's bytes lie inside its file, rows are whole blocks, dimensions are positive, names are unique.
 * An error names the file, the key or tensor, what was found and what was expected. What looks like a
 * git-lfs pointer, a web page, a truncated download, an old format (ggml, ggmf, ggjt, ggla, GGUF v1), a
 * big-endian file, an archive, a directory or an empty file is recognised and said so.
 * Limits: 2^24 keys, 2^24 tensors, names of tensors 63 bytes, of keys 65535, alignment a power of two from
 * 8 to 2^20. No allocation made while opening is larger than a small multiple of the file. A file that
 * another process cuts short while it is mapped is out of reach: the system ends the program then.
 *
 * Source of the format: GGUF specification, ggml docs/gguf.md.
 */
#ifndef GGRUN_GGUF_READER_H
#define GGRUN_GGUF_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gguf/base/status.h"
#include "gguf/dtype.h"

enum gguf_type { /* value types, numbered as in files */
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STR = 8,
    GGUF_ARR = 9,
    GGUF_U64 = 10,
    GGUF_I64 = 11,
    GGUF_F64 = 12,
    GGUF_TYPE_COUNT = 13,
};

const char *gguf_type_name(enum gguf_type t); /* "u32", "str", ... */
size_t gguf_type_size(enum gguf_type t);      /* bytes of a fixed-size type; 0 for str and arr */

/* A string in the file: not NUL-terminated, any bytes. Lives as long as the struct gguf. */
struct gguf_str {
    const char *p;
    size_t n;
};

struct gguf_kv {
    char *key;            /* NUL-terminated (a key with a NUL inside is refused) */
    enum gguf_type type;  /* GGUF_ARR for arrays */
    enum gguf_type elem;  /* type of the elements; same as `type` when not an array */
    uint64_t n;           /* elements; 1 when not an array */
    const void *raw;      /* first element as in the file, possibly unaligned; for strings: u64 length, bytes, ... */
    size_t n_raw;         /* bytes of all elements */
    bool overridden;      /* by gguf_override */
};

struct gguf_tensor {
    char *name; /* NUL-terminated, at most 63 bytes */
    enum dtype type;
    int n_dims;      /* 1..4 (0 in files is refused) */
    int64_t ne[4];   /* innermost first; 1 beyond n_dims */
    uint64_t offset; /* from the start of its file */
    size_t n_bytes;
    int shard;          /* index of the file that holds it */
    const void *data;   /* mapped or read bytes; NULL when opened with GGUF_NO_DATA */
};

struct gguf_file {
    char *path;
    uint64_t n_bytes;
    const void *map; /* whole file; NULL when data is not mapped */
};

struct gguf {
    uint32_t version;
    size_t alignment;
    size_t n_kv, n_tensors, n_files;
    struct gguf_kv *kv;          /* in file order; of shard 0 */
    struct gguf_tensor *tensors; /* in file order, shards one after the other */
    struct gguf_file *files;
    struct gguf_impl *impl; /* reader's own: arenas, index by name */
};

enum gguf_mode {
    GGUF_MMAP,    /* map files read-only; tensor->data points into the mapping */
    GGUF_READ,    /* read metadata and data into memory: for file systems where mapping is slow or unsafe */
    GGUF_NO_DATA, /* metadata only; tensor->data is NULL, but sizes are checked all the same */
};

/*
 * Open the file at `path`; when it is one of a split set (-00001-of-0000N), open all of it. On
 * success *out is set and released with gguf_close; on failure *out is NULL. A shard that is missing,
 * belongs to another model or has a name that does not lead to the others is an error that names the
 * file; so are shards joined into one file.
 */
enum status gguf_open(struct gguf **out, const char *path, enum gguf_mode mode, struct err *e);

/* The same for bytes in memory (the embedded model, tests); `data` must be aligned to 8 bytes (asserted;
 * tensor data is then as well) and outlive *out. `label` stands for the path in messages. Split sets are
 * refused here. */
enum status gguf_open_memory(struct gguf **out, const void *data, size_t n, const char *label,
                             struct err *e);

void gguf_close(struct gguf *g); /* NULL is fine */

/*
 * Give a key another value, or add one: "KEY=TYPE:VALUE" with TYPE int, float, bool (true, false) or
 * str (the rest of the text). A key of the file keeps its type, which must be of that kind and hold
 * the value; a new one is i64, f64, bool or str. To be called before anything else is read from g:
 * pointers to keys become invalid. ST_USAGE: bad syntax, a value or type that does not fit, an
 * array, or a key that opening the file has used (general.alignment, split.*).
 */
enum status gguf_override(struct gguf *g, const char *text, struct err *e);

/* NULL if absent. O(1). */
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

/*
 * Typed access. Returns ST_OK and sets *out, or: key absent: ST_MODEL "key 'x' is missing" when
 * `required`, else ST_OK with *out untouched. Wrong type or range: ST_MODEL naming key, type or value
 * found and what was expected. Integers of any width and sign are accepted where the value fits;
 * f32 also takes f64, and no integers; u32 takes neither floats nor bool; bool takes the integers 0, 1.
 */
enum status gguf_get_u32(const struct gguf *g, const char *key, bool required, uint32_t *out,
                         struct err *e);
enum status gguf_get_f32(const struct gguf *g, const char *key, bool required, float *out,
                         struct err *e);
enum status gguf_get_bool(const struct gguf *g, const char *key, bool required, bool *out,
                          struct err *e);
enum status gguf_get_str(const struct gguf *g, const char *key, bool required, struct gguf_str *out,
                         struct err *e);

/* Element i of an integer, float or bool value or array as i64 / f64; `i` must be below kv->n. What
 * does not fit an i64 gives its nearest (NaN: 0). */
int64_t gguf_kv_int(const struct gguf_kv *kv, uint64_t i);
double gguf_kv_float(const struct gguf_kv *kv, uint64_t i);
bool gguf_type_is_int(enum gguf_type t); /* integers and bool */

/*
 * Walk the strings of a string value or array in O(1) per step:
 *     struct gguf_str_iter it = gguf_strs(kv);
 *     while (gguf_str_next(&it, &s)) ...
 */
struct gguf_str_iter {
    const unsigned char *p;
    uint64_t left;
};
struct gguf_str_iter gguf_strs(const struct gguf_kv *kv);
bool gguf_str_next(struct gguf_str_iter *it, struct gguf_str *out);

/* One value as text for people ("info"): arrays show at most `max` elements and their count. */
struct text;
void gguf_kv_print(struct text *t, const struct gguf_kv *kv, uint64_t max);

#endif
