/*
 * Writing GGUF version 3 files: keys, then tensors, then gguf_write. Used by tests and tools.
 *
 * Sticky: a failed step is remembered and returned by gguf_write, which writes to a temporary name beside
 * `path` and renames, so that nothing half-written is left under the final name.
 */
#ifndef GGRUN_GGUF_WRITER_H
#define GGRUN_GGUF_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gguf/base/status.h"
#include "gguf/dtype.h"
#include "gguf/reader.h"

struct gguf_writer;

struct gguf_writer *gguf_writer_new(void); /* NULL: out of memory */
void gguf_writer_free(struct gguf_writer *w);

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gguf_put_u64(struct gguf_writer *w, const char *key, uint64_t v);
void gguf_put_i32(struct gguf_writer *w, const char *key, int32_t v);
void gguf_put_f32(struct gguf_writer *w, const char *key, float v);
void gguf_put_bool(struct gguf_writer *w, const char *key, bool v);
void gguf_put_str(struct gguf_writer *w, const char *key, const char *s);
void gguf_put_str_n(struct gguf_writer *w, const char *key, const char *s, size_t n);
/* n fixed-size elements of type `elem`, little-endian as in memory. */
void gguf_put_arr(struct gguf_writer *w, const char *key, enum gguf_type elem, const void *data,
                  size_t n);
void gguf_put_strs(struct gguf_writer *w, const char *key, const struct gguf_str *s, size_t n);
/* Copy a key of a file that was read, as it is. */
void gguf_put_kv(struct gguf_writer *w, const struct gguf_kv *kv);
/* Put or replace: a key put twice keeps its place and takes the later value. */

/* Add a tensor; `data` (dtype bytes of ne) is not copied and must live until gguf_write. */
void gguf_put_tensor(struct gguf_writer *w, const char *name, enum dtype t, int n_dims,
                     const int64_t *ne, const void *data);

enum status gguf_write(struct gguf_writer *w, const char *path, struct err *e);
/* The file as bytes in memory; *out is released with mem_free. */
enum status gguf_write_memory(struct gguf_writer *w, void **out, size_t *n, struct err *e);

#endif
