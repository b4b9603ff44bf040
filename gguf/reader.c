/*
 * Opening one file. Sets of files are reader_split.c, parsing is reader_parse.c, values are reader_kv.c.
 */
#define _GNU_SOURCE
#include "gguf/reader.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf/base/text.h"
#include "gguf/reader_impl.h"

#define READ_CHUNK  (1u << 20) /* bytes read ahead while parsing */
#define ARENA_BLOCK 4096

struct quoted_path quoted_path(const char *path)
{
    struct quoted_path q;
    size_t n = strlen(path), n_max = sizeof q.s - 8, cut = 0;

    if (n > n_max) {
        cut = n - n_max;
        while (cut < n && ((unsigned char)path[cut] & 0xc0) == 0x80)
            cut++;
        memcpy(q.s, "...", 3);
    }
    text_quote(q.s + (cut ? 3 : 0), sizeof q.s - (cut ? 3 : 0), path + cut, n - cut);
    return q;
}

/* ---- index by name ---- */

/* FNV-1a, started at the table's address, so that a file cannot be made to collide on purpose, and
 * mixed, since its low bits are weak. */
static size_t index_slot(const struct index *ix, const char *name)
{
    uint64_t h = 0xcbf29ce484222325 ^ (uint64_t)(uintptr_t)ix->slots * 0x9e3779b97f4a7c15;

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3;
    h ^= h >> 32;
    h *= 0x9e3779b97f4a7c15;
    return (size_t)(h >> 32) & ix->mask;
}

static const char *index_name(const struct index *ix, size_t i)
{
    return *(char *const *)((const char *)ix->items + i * ix->stride);
}

enum status index_init(struct index *ix, const void *items, size_t stride, size_t n, struct err *e)
{
    size_t n_slots = 4;

    while (n_slots < 2 * n)
        n_slots *= 2;
    ix->slots = mem_array(n_slots, sizeof ix->slots[0]);
    if (!ix->slots)
        return err_nomem(e, "index of names", n_slots * sizeof ix->slots[0]);
    ix->mask = n_slots - 1;
    ix->items = items;
    ix->stride = stride;
    return ST_OK;
}

size_t index_add(struct index *ix, size_t i)
{
    const char *name = index_name(ix, i);
    size_t k = index_slot(ix, name);

    for (; ix->slots[k]; k = (k + 1) & ix->mask) {
        if (strcmp(index_name(ix, ix->slots[k] - 1), name) == 0)
            return ix->slots[k] - 1;
    }
    ix->slots[k] = (uint32_t)i + 1;
    return INDEX_NONE;
}

size_t index_find(const struct index *ix, const char *name)
{
    if (!ix->slots)
        return INDEX_NONE;
    for (size_t k = index_slot(ix, name); ix->slots[k]; k = (k + 1) & ix->mask) {
        if (strcmp(index_name(ix, ix->slots[k] - 1), name) == 0)
            return ix->slots[k] - 1;
    }
    return INDEX_NONE;
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
    size_t i = index_find(&g->impl->keys, key);

    return i == INDEX_NONE ? NULL : &g->kv[i];
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
    size_t i = index_find(&g->impl->tensors, name);

    return i == INDEX_NONE ? NULL : &g->tensors[i];
}

enum status gguf_index_tensors(struct gguf *g, struct err *e)
{
    struct index *ix = &g->impl->tensors;
    enum status st = index_init(ix, g->tensors, sizeof g->tensors[0], g->n_tensors, e);

    for (size_t i = 0; i < g->n_tensors && !st; i++) {
        size_t j = index_add(ix, i);
        if (j == INDEX_NONE)
            continue;
        if (g->tensors[i].shard == g->tensors[j].shard)
            st = err_set(e, ST_MODEL, "tensor '%s' appears twice", quoted(g->tensors[i].name).s);
        else
            st = err_set(e, ST_MODEL, "tensor '%s' appears in parts %d and %d of the model",
                         quoted(g->tensors[i].name).s, g->tensors[j].shard + 1,
                         g->tensors[i].shard + 1);
    }
    return st;
}

/* ---- bytes ---- */

enum status source_fill(struct source *s, size_t n_want, struct err *e)
{
    size_t n_goal = n_want;

    if (n_want <= s->n_ready)
        return ST_OK;
    if (n_goal < s->n_ready + READ_CHUNK)
        n_goal = s->n_ready + READ_CHUNK < s->n ? s->n_ready + READ_CHUNK : s->n;
    while (s->n_ready < n_goal) {
        ssize_t k = read(s->fd, (uint8_t *)(uintptr_t)s->p + s->n_ready, n_goal - s->n_ready);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_set(e, ST_IO, "cannot read: %s", strerror(errno));
        if (k == 0)
            return err_set(e, ST_IO, "file became shorter while it was read: %zu of %zu bytes",
                           s->n_ready, s->n);
        s->n_ready += (size_t)k;
    }
    return ST_OK;
}

static const char *kind_of(mode_t mode)
{
    if (S_ISDIR(mode))
        return "a directory";
    if (S_ISFIFO(mode))
        return "a pipe";
    if (S_ISSOCK(mode))
        return "a socket";
    return "a device";
}

/* Open for reading and find the size; *fd is set on success only. */
static enum status open_regular(const char *path, int *fd, size_t *n_bytes, struct err *e)
{
    struct stat sb;
    /* O_NONBLOCK: opening a pipe would wait for a writer */
    int f = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (f < 0)
        return err_set(e, ST_IO, "cannot open '%s': %s", quoted_path(path).s, strerror(errno));
    if (fstat(f, &sb) < 0) {
        err_set(e, ST_IO, "cannot read '%s': %s", quoted_path(path).s, strerror(errno));
        goto fail;
    }
    if (!S_ISREG(sb.st_mode)) {
        err_set(e, ST_IO, "'%s' is %s, expected a GGUF file", quoted_path(path).s,
                kind_of(sb.st_mode));
        goto fail;
    }
    *fd = f;
    *n_bytes = (size_t)sb.st_size;
    return ST_OK;
fail:
    close(f);
    return ST_IO;
}

/* Map the file, or get memory for it; s becomes what the parser walks. */
static enum status hold_bytes(struct gguf_impl *im, struct source *s, enum gguf_mode mode,
                              struct err *e)
{
    if (s->n == 0)
        return err_set(e, ST_MODEL, "file is empty, expected a GGUF file");
    if (mode == GGUF_READ) {
        im->bytes = mem_aligned(s->n);
        if (!im->bytes)
            return err_nomem(e, "the file", s->n);
        im->held = HELD_MEMORY;
    } else {
        im->bytes = mmap(NULL, s->n, PROT_READ, MAP_PRIVATE, s->fd, 0);
        if (im->bytes == MAP_FAILED) {
            im->bytes = NULL;
            return err_set(e, errno == ENOMEM ? ST_NOMEM : ST_IO,
                           "cannot be mapped: %s; try to read it instead", strerror(errno));
        }
        im->held = HELD_MAP;
        s->n_ready = s->n;
    }
    im->n_bytes = s->n;
    s->p = im->bytes;
    return ST_OK;
}

/* ---- one file ---- */

static struct gguf *gguf_new(void)
{
    struct gguf *g = mem_zalloc(sizeof *g);

    if (!g)
        return NULL;
    g->impl = mem_zalloc(sizeof *g->impl);
    if (!g->impl) {
        mem_free(g);
        return NULL;
    }
    arena_init(&g->impl->names, ARENA_BLOCK);
    return g;
}

void gguf_close(struct gguf *g)
{
    struct gguf_impl *im;

    if (!g)
        return;
    im = g->impl;
    for (size_t i = 0; i < im->n_parts; i++)
        gguf_close(im->parts[i]); /* parts have no parts: depth is two */
    mem_free(im->parts);
    if (im->held == HELD_MAP)
        munmap(im->bytes, im->n_bytes);
    else if (im->held == HELD_MEMORY)
        mem_free(im->bytes);
    for (size_t i = 0; i < g->n_files; i++)
        mem_free(g->files[i].path);
    mem_free(g->files);
    mem_free(g->kv);
    mem_free(g->tensors);
    mem_free(im->keys.slots);
    mem_free(im->tensors.slots);
    arena_release(&im->names);
    mem_free(im);
    mem_free(g);
}

/* Parse what s holds into g, which then has one file. */
static enum status fill_in(struct gguf *g, struct source *s, const char *path, enum gguf_mode mode,
                           struct err *e)
{
    enum status st = gguf_parse(g, s, e);

    if (!st && mode == GGUF_READ)
        st = source_fill(s, s->n, e);
    if (st)
        return st;
    g->files = mem_array(1, sizeof g->files[0]);
    if (!g->files)
        return err_nomem(e, "table of files", sizeof g->files[0]);
    g->n_files = 1;
    g->files[0].path = mem_strdup(path);
    if (!g->files[0].path)
        return err_nomem(e, "path", strlen(path));
    g->files[0].n_bytes = s->n;
    if (mode != GGUF_NO_DATA) {
        g->files[0].map = s->p;
        for (size_t i = 0; i < g->n_tensors; i++)
            g->tensors[i].data = s->p + g->tensors[i].offset;
    }
    return ST_OK;
}

/* Is this called like a piece of a file that was cut by size ("x.gguf.part1of3", "x.gguf-split-a")? */
static bool is_piece(const char *path)
{
    const char *name = strrchr(path, '/');

    name = name ? name + 1 : path;
    return strstr(name, ".gguf-split-") || strstr(name, ".gguf.part") || strstr(name, ".gguf-part");
}

enum status gguf_open_one(struct gguf **out, const char *path, enum gguf_mode mode, struct err *e)
{
    struct source s = {.fd = -1};
    struct gguf *g;
    enum status st = open_regular(path, &s.fd, &s.n, e);

    if (st)
        return st;
    g = gguf_new();
    if (!g)
        st = err_nomem(e, "model file", sizeof *g);
    if (!st)
        st = hold_bytes(g->impl, &s, mode, e);
    if (!st)
        st = fill_in(g, &s, path, mode, e);
    close(s.fd);
    if (st) {
        err_context(e, is_piece(path) ? "'%s' (a piece of a file? then join the pieces with cat)"
                                      : "'%s'",
                    quoted_path(path).s);
        gguf_close(g);
        return st;
    }
    *out = g;
    return ST_OK;
}

/* ---- bytes in memory ---- */

enum status gguf_open_memory(struct gguf **out, const void *data, size_t n, const char *label,
                             struct err *e)
{
    struct source s = {.p = data, .n = n, .n_ready = n, .fd = -1};
    struct gguf *g = gguf_new();
    struct split split;
    enum status st = ST_OK;

    assert((uintptr_t)data % 8 == 0);
    *out = NULL;
    if (!g)
        st = err_nomem(e, "model file", sizeof *g);
    if (!st && n == 0)
        st = err_set(e, ST_MODEL, "file is empty, expected a GGUF file");
    if (!st)
        st = fill_in(g, &s, label, GGUF_MMAP, e);
    if (!st)
        st = gguf_split(g, &split, e);
    if (!st && split.count > 1)
        st = err_set(e, ST_UNSUPPORTED, "part %u of %u of a split model, expected a whole one",
                     split.no + 1, split.count);
    if (!st)
        st = gguf_index_tensors(g, e);
    if (st) {
        err_context(e, "'%s'", quoted_path(label).s);
        gguf_close(g);
        return st;
    }
    *out = g;
    return ST_OK;
}
