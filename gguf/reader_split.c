/*
 * Sets of files: parts of a split model (-00001-of-0000N.gguf).
 */
#include <stdio.h>
#include <string.h>

#include "gguf/base/text.h"
#include "gguf/reader_impl.h"

enum status gguf_split(const struct gguf *g, struct split *s, struct err *e)
{
    enum status st;

    *s = (struct split){0};
    st = gguf_get_u32(g, "split.count", false, &s->count, e);
    if (!st)
        st = gguf_get_u32(g, "split.no", s->count > 1, &s->no, e);
    if (!st)
        st = gguf_get_u32(g, "split.tensors.count", false, &s->n_tensors, e);
    if (!st && s->count > 1 && (s->count > 65535 || s->no >= s->count))
        st = err_set(e, ST_MODEL,
                     "keys say part %u of %u, expected a part below the count, at most 65535",
                     s->no, s->count);
    return st;
}

#define SPLIT_NAME   "-%05u-of-%05u.gguf"
#define N_SPLIT_NAME (sizeof "-00001-of-00002.gguf" - 1)

/* Path of part `no` in the set of the part at `path`; NULL if the name has not the form for `s`
 * (then *formed is false) or memory is out. */
static char *part_path(const char *path, const struct split *s, uint32_t no, bool *formed)
{
    size_t n = strlen(path);
    char ending[40], *p;

    snprintf(ending, sizeof ending, SPLIT_NAME, s->no + 1, s->count);
    *formed = n >= N_SPLIT_NAME && strcmp(path + n - N_SPLIT_NAME, ending) == 0;
    if (!*formed)
        return NULL;
    p = mem_strdup(path);
    if (p) {
        snprintf(ending, sizeof ending, SPLIT_NAME, no + 1, s->count);
        memcpy(p + n - N_SPLIT_NAME, ending, N_SPLIT_NAME);
    }
    return p;
}

/* Parts put one behind the other ("cat a b > c") are no model: the keys hold for the first alone. */
static enum status check_joined(const struct gguf *g, const struct split *s, struct err *e)
{
    const struct gguf_impl *im = g->impl;
    size_t end = im->n_used, padded;

    if (mem_round_up(end, g->alignment, &padded) && padded + 4 <= im->n_bytes &&
        memcmp((const char *)im->bytes + padded, "GGUF", 4) == 0)
        end = padded;
    else if (im->n_bytes - end < 4 || memcmp((const char *)im->bytes + end, "GGUF", 4) != 0)
        return ST_OK;
    return err_set(e, ST_MODEL,
                   "parts of a split model joined into one file: part %u of %u ends at byte %zu, "
                   "where another begins; use the parts as they were, or merge them with "
                   "llama-gguf-split",
                   s->no + 1, s->count, end);
}

/* The file at `path` is not the first of its set: open the first in its place. */
static enum status open_first(struct gguf **g, const char *path, struct split *s,
                              enum gguf_mode mode, struct err *e)
{
    bool formed;
    char *first = part_path(path, s, 0, &formed);
    struct split given = *s;
    enum status st;

    if (!formed)
        return err_set(e, ST_USAGE,
                       "part %u of %u of a split model; give the first part, whose name ends in "
                       "'" SPLIT_NAME "'",
                       s->no + 1, s->count, 1u, s->count);
    if (!first)
        return err_nomem(e, "path", strlen(path));
    gguf_close(*g);
    *g = NULL;
    st = gguf_open_one(g, first, mode, e);
    if (!st)
        st = gguf_split(*g, s, e);
    if (!st && (s->no || s->count != given.count))
        st = err_set(e, ST_MODEL, "'%s' is not the first part of the model", quoted_path(first).s);
    if (st)
        err_context(e, "part %u of %u of a split model", given.no + 1, given.count);
    mem_free(first);
    return st;
}

/* Does `part` belong to the set as part `no`? */
static enum status check_part(const struct gguf *set, const struct split *s, uint32_t no,
                              const struct gguf *part, struct err *e)
{
    static const char arch[] = "general.architecture";
    struct gguf_str a = {0}, b = {0};
    struct split t;
    enum status st = gguf_split(part, &t, e);

    if (st)
        return st;
    if (t.count != s->count || t.no != no) {
        if (t.count < 2)
            return err_set(e, ST_MODEL,
                           "a file of its own, expected part %u of %u of a split model", no + 1,
                           s->count);
        return err_set(e, ST_MODEL, "keys say part %u of %u, expected part %u of %u of the model",
                       t.no + 1, t.count, no + 1, s->count);
    }
    if (s->n_tensors && t.n_tensors && s->n_tensors != t.n_tensors)
        return err_set(e, ST_MODEL,
                       "part of another model: its set has %u tensors, that of the first part %u",
                       t.n_tensors, s->n_tensors);
    st = gguf_get_str(set, arch, false, &a, e);
    if (!st)
        st = gguf_get_str(part, arch, false, &b, e);
    if (!st && a.p && b.p && (a.n != b.n || memcmp(a.p, b.p, a.n) != 0))
        return err_set(e, ST_MODEL, "part of another model: key '%s' differs from the first part's",
                       arch);
    return st;
}

/* Copy the tensors and the file of a part into the set, which takes the part over. */
static enum status add_part(struct gguf *set, struct gguf *part, struct err *e)
{
    struct gguf_impl *im = set->impl;
    size_t n = set->n_tensors + part->n_tensors;
    struct gguf_tensor *tensors;
    struct gguf_file *files;
    struct gguf **parts;

    tensors = mem_grow(set->tensors, n, sizeof *tensors);
    if (!tensors)
        return err_nomem(e, "tensor table", n * sizeof *tensors);
    set->tensors = tensors;
    files = mem_grow(set->files, set->n_files + 1, sizeof *files);
    if (!files)
        return err_nomem(e, "table of files", (set->n_files + 1) * sizeof *files);
    set->files = files;
    parts = mem_grow(im->parts, im->n_parts + 1, sizeof(struct gguf *));
    if (!parts)
        return err_nomem(e, "table of files", (im->n_parts + 1) * sizeof(struct gguf *));
    im->parts = parts;

    for (size_t i = 0; i < part->n_tensors; i++) {
        tensors[set->n_tensors + i] = part->tensors[i];
        tensors[set->n_tensors + i].shard = (int)set->n_files;
    }
    set->n_tensors = n;
    files[set->n_files++] = part->files[0];
    part->n_files = 0; /* its path is the set's now */
    im->parts[im->n_parts++] = part;
    return ST_OK;
}

static enum status open_part(struct gguf *set, const struct split *s, uint32_t no,
                             enum gguf_mode mode, struct err *e)
{
    struct gguf *part = NULL;
    bool formed;
    char *path = part_path(set->files[0].path, s, no, &formed);
    enum status st;

    if (!formed)
        return err_set(e, ST_MODEL,
                       "keys say part 1 of %u, but the name does not end in '" SPLIT_NAME
                       "', so the other parts cannot be found",
                       s->count, 1u, s->count);
    if (!path)
        return err_nomem(e, "path", strlen(set->files[0].path));
    st = gguf_open_one(&part, path, mode, e);
    if (!st) {
        st = check_part(set, s, no, part, e);
        if (st)
            err_context(e, "'%s'", quoted_path(path).s);
    }
    if (!st)
        st = add_part(set, part, e);
    if (st) {
        err_context(e, "part %u of %u", no + 1, s->count);
        gguf_close(part);
    }
    mem_free(path);
    return st;
}

static enum status open_parts(struct gguf *g, const struct split *s, enum gguf_mode mode,
                              struct err *e)
{
    enum status st = ST_OK;

    for (uint32_t no = 1; no < s->count && !st; no++)
        st = open_part(g, s, no, mode, e);
    if (!st && s->n_tensors && g->n_tensors != s->n_tensors)
        st =
            err_set(e, ST_MODEL, "the %u parts hold %zu tensors, key 'split.tensors.count' says %u",
                    s->count, g->n_tensors, s->n_tensors);
    return st;
}

enum status gguf_open(struct gguf **out, const char *path, enum gguf_mode mode, struct err *e)
{
    struct gguf *g = NULL;
    struct split s;
    enum status st;

    *out = NULL;
    st = gguf_open_one(&g, path, mode, e);
    if (st)
        return st;
    st = gguf_split(g, &s, e);
    if (!st && s.count > 1)
        st = check_joined(g, &s, e);
    if (!st && s.count > 1 && s.no)
        st = open_first(&g, path, &s, mode, e);
    if (!st && s.count > 1)
        st = open_parts(g, &s, mode, e);
    if (!st)
        st = gguf_index_tensors(g, e);
    if (st) {
        err_context(e, "'%s'", quoted_path(path).s);
        gguf_close(g);
        return st;
    }
    *out = g;
    return ST_OK;
}
