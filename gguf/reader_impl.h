/*
 * Private to reader*.c and writer.c.
 */
#ifndef GGRUN_GGUF_READER_IMPL_H
#define GGRUN_GGUF_READER_IMPL_H

#include "gguf/base/mem.h"
#include "gguf/base/status.h"
#include "gguf/reader.h"

#define GGUF_MAX_KEY   65535 /* bytes, GGUF specification */
#define GGUF_MAX_NAME  63    /* bytes of a tensor's name */
#define GGUF_ALIGN     32    /* of tensor data, when key general.alignment does not say */
#define GGUF_MIN_ALIGN 8
#define GGUF_MAX_ALIGN (1 << 20)

/*
 * The bytes of one file. A mapping and bytes in memory are there at once (n_ready == n); with
 * GGUF_READ they arrive as the parser asks for them, so that a bad file is refused before it is
 * read whole.
 */
struct source {
    const uint8_t *p;
    size_t n;       /* size of the file */
    size_t n_ready; /* bytes at p that may be looked at */
    int fd;         /* where more come from; -1 when n_ready == n for good */
};

/* Make the first n_want (<= n) bytes ready. */
enum status source_fill(struct source *s, size_t n_want, struct err *e);

/* Index of items by name: open addressing, half empty. Items start with a `char *name`. */
struct index {
    uint32_t *slots; /* item + 1; 0 is free */
    size_t mask;     /* slots - 1, a power of two minus one */
    const void *items;
    size_t stride; /* bytes from item to item */
};

#define INDEX_NONE SIZE_MAX

enum status index_init(struct index *ix, const void *items, size_t stride, size_t n, struct err *e);
/* Add item i; returns the item that has its name already, or INDEX_NONE. */
size_t index_add(struct index *ix, size_t i);
size_t index_find(const struct index *ix, const char *name);

enum held { HELD_NOT, HELD_MAP, HELD_MEMORY };

struct gguf_impl {
    struct arena names; /* keys and tensor names */
    struct index keys, tensors;
    void *bytes; /* of the file, when held here */
    size_t n_bytes;
    size_t n_used; /* bytes up to the end of the last tensor's data */
    enum held held;
    struct gguf **parts; /* files 1.. of a split set; their tensors are copied to the set's */
    size_t n_parts;
};

/*
 * Read header, keys and tensor table of one file into g (zeroed but for impl), check them, and
 * index the keys. Tensors get shard 0 and no data pointer.
 */
enum status gguf_parse(struct gguf *g, struct source *s, struct err *e);

/* Open one file, whatever its keys say of other parts. Tensors are not indexed. */
enum status gguf_open_one(struct gguf **out, const char *path, enum gguf_mode mode, struct err *e);
enum status gguf_index_tensors(struct gguf *g, struct err *e);

/* What a file says of the set it belongs to. */
struct split {
    uint32_t no, count; /* part (0 first) and number of parts; count 0 or 1: a file of its own */
    uint32_t n_tensors; /* of all parts; 0 if not said */
};
enum status gguf_split(const struct gguf *g, struct split *s, struct err *e);

/* ST_MODEL saying what a file looks like whose first bytes are p[0..n) and not "GGUF". */
enum status gguf_sniff(const uint8_t *p, size_t n, uint64_t n_file, struct err *e);

/* Quote a name from a file for a message: at most 60 bytes of it. */
#define QUOTE_SIZE 64
struct quoted {
    char s[QUOTE_SIZE];
};
struct quoted quoted(const char *name);

/* A path for a message: escaped, and when it is long, its end, which tells more. */
struct quoted_path {
    char s[256];
};
struct quoted_path quoted_path(const char *path);

#endif
