/*
 * A file is laid out as reader_parse.c says. The part before the data is built in memory; the data
 * is written from where the caller has it.
 */
#define _GNU_SOURCE
#include "gguf/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf/base/mem.h"
#include "gguf/base/text.h"
#include "gguf/reader_impl.h"

struct item { /* a key */
    char *key;
    enum gguf_type type, elem;
    uint64_t n;
    void *raw; /* elements as in the file */
    size_t n_raw;
};

struct gguf_writer {
    struct item *kv;
    struct gguf_tensor *tensors; /* offset counts from the start of the data */
    size_t n_kv, n_tensors;
    struct err err; /* first failure */
};

struct gguf_writer *gguf_writer_new(void)
{
    return mem_zalloc(sizeof(struct gguf_writer));
}

void gguf_writer_free(struct gguf_writer *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->n_kv; i++) {
        mem_free(w->kv[i].key);
        mem_free(w->kv[i].raw);
    }
    for (size_t i = 0; i < w->n_tensors; i++)
        mem_free(w->tensors[i].name);
    mem_free(w->kv);
    mem_free(w->tensors);
    mem_free(w);
}

/* ---- keys ---- */

/* The key's place: the one it has already, or a new one; NULL (and the failure is set) without
 * memory. */
static struct item *item_of(struct gguf_writer *w, const char *key)
{
    struct item *kv;
    size_t n = strlen(key);

    for (size_t i = 0; i < w->n_kv; i++) {
        if (strcmp(w->kv[i].key, key) == 0)
            return &w->kv[i];
    }
    if (n < 1 || n > GGUF_MAX_KEY) {
        err_set(&w->err, ST_USAGE, "a key of %zu bytes, expected 1 to %d", n, GGUF_MAX_KEY);
        return NULL;
    }
    kv = mem_grow(w->kv, w->n_kv + 1, sizeof *kv);
    if (!kv) {
        err_nomem(&w->err, "keys", (w->n_kv + 1) * sizeof *kv);
        return NULL;
    }
    w->kv = kv;
    kv[w->n_kv] = (struct item){.key = mem_strdup(key)};
    if (!kv[w->n_kv].key) {
        err_nomem(&w->err, "keys", n);
        return NULL;
    }
    return &kv[w->n_kv++];
}

/* Take `raw` over (NULL: out of memory). */
static void put(struct gguf_writer *w, const char *key, enum gguf_type type, enum gguf_type elem,
                uint64_t n, void *raw, size_t n_raw)
{
    struct item *it = NULL;

    if (!raw && !w->err.code)
        err_nomem(&w->err, "keys", n_raw);
    if (!w->err.code)
        it = item_of(w, key);
    if (!it) {
        mem_free(raw);
        return;
    }
    mem_free(it->raw);
    it->type = type;
    it->elem = elem;
    it->n = n;
    it->raw = raw;
    it->n_raw = n_raw;
}

static void put_copy(struct gguf_writer *w, const char *key, enum gguf_type type,
                     enum gguf_type elem, uint64_t n, const void *data, size_t n_raw)
{
    void *raw = mem_alloc(n_raw);

    if (raw && n_raw)
        memcpy(raw, data, n_raw);
    put(w, key, type, elem, n, raw, n_raw);
}

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v)
{
    put_copy(w, key, GGUF_U32, GGUF_U32, 1, &v, sizeof v);
}

void gguf_put_u64(struct gguf_writer *w, const char *key, uint64_t v)
{
    put_copy(w, key, GGUF_U64, GGUF_U64, 1, &v, sizeof v);
}

void gguf_put_i32(struct gguf_writer *w, const char *key, int32_t v)
{
    put_copy(w, key, GGUF_I32, GGUF_I32, 1, &v, sizeof v);
}

void gguf_put_f32(struct gguf_writer *w, const char *key, float v)
{
    put_copy(w, key, GGUF_F32, GGUF_F32, 1, &v, sizeof v);
}

void gguf_put_bool(struct gguf_writer *w, const char *key, bool v)
{
    uint8_t b = v;

    put_copy(w, key, GGUF_BOOL, GGUF_BOOL, 1, &b, sizeof b);
}

/* The bytes of strings as in a file; NULL without memory. */
static void *pack_strs(const struct gguf_str *s, size_t n, size_t *n_raw)
{
    size_t total = 0;
    uint8_t *raw, *p;

    for (size_t i = 0; i < n; i++) {
        if (!mem_add(total, 8, &total) || !mem_add(total, s[i].n, &total))
            return NULL;
    }
    *n_raw = total;
    raw = p = mem_alloc(total);
    if (!raw)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        uint64_t len = s[i].n;
        memcpy(p, &len, 8);
        if (len)
            memcpy(p + 8, s[i].p, s[i].n);
        p += 8 + len;
    }
    return raw;
}

void gguf_put_str_n(struct gguf_writer *w, const char *key, const char *s, size_t n)
{
    struct gguf_str str = {s, n};
    size_t n_raw = 0;
    void *raw = pack_strs(&str, 1, &n_raw);

    put(w, key, GGUF_STR, GGUF_STR, 1, raw, n_raw);
}

void gguf_put_str(struct gguf_writer *w, const char *key, const char *s)
{
    gguf_put_str_n(w, key, s, strlen(s));
}

void gguf_put_strs(struct gguf_writer *w, const char *key, const struct gguf_str *s, size_t n)
{
    size_t n_raw = 0;
    void *raw = pack_strs(s, n, &n_raw);

    put(w, key, GGUF_ARR, GGUF_STR, n, raw, n_raw);
}

void gguf_put_arr(struct gguf_writer *w, const char *key, enum gguf_type elem, const void *data,
                  size_t n)
{
    size_t size = gguf_type_size(elem), n_raw = 0;

    if (w->err.code)
        return;
    if (!size)
        err_set(&w->err, ST_USAGE, "key '%s': elements of an array must have a fixed size, not %s",
                quoted(key).s, gguf_type_name(elem));
    else if (!mem_mul(n, size, &n_raw))
        err_nomem(&w->err, "keys", SIZE_MAX);
    else
        put_copy(w, key, GGUF_ARR, elem, n, data, n_raw);
}

void gguf_put_kv(struct gguf_writer *w, const struct gguf_kv *kv)
{
    put_copy(w, kv->key, kv->type, kv->elem, kv->n, kv->raw, kv->n_raw);
}

/* ---- tensors ---- */

static enum status check_tensor(const struct gguf_tensor *t, int n_dims, struct err *e)
{
    struct quoted q = quoted(t->name);
    const char *name = q.s;
    int64_t n_rows = 1;
    size_t row;

    if (!*t->name || strlen(t->name) > GGUF_MAX_NAME)
        return err_set(e, ST_USAGE, "tensor '%s' has a name of %zu bytes, expected 1 to %d", name,
                       strlen(t->name), GGUF_MAX_NAME);
    if (n_dims < 1 || n_dims > 4)
        return err_set(e, ST_USAGE, "tensor '%s' has %d dimensions, expected 1 to 4", name, n_dims);
    for (int i = 0; i < n_dims; i++) {
        if (t->ne[i] < 1)
            return err_set(e, ST_USAGE, "dimension %d of tensor '%s' is %lld, expected at least 1",
                           i, name, (long long)t->ne[i]);
        if (i > 0 && __builtin_mul_overflow(n_rows, t->ne[i], &n_rows))
            return err_set(e, ST_USAGE, "tensor '%s' is too large", name);
    }
    if (!dtype_row_size(t->type, t->ne[0], &row))
        return err_set(e, ST_USAGE,
                       "tensor '%s' has rows of %lld elements, but type %s needs a multiple of %u",
                       name, (long long)t->ne[0], dtype_name(t->type), dtype_info(t->type)->block);
    return ST_OK;
}

void gguf_put_tensor(struct gguf_writer *w, const char *name, enum dtype type, int n_dims,
                     const int64_t *ne, const void *data)
{
    struct gguf_tensor t = {.type = type, .n_dims = n_dims, .ne = {1, 1, 1, 1}, .data = data};
    struct gguf_tensor *all;
    size_t n_bytes;

    if (w->err.code)
        return;
    t.name = mem_strdup(name);
    all = mem_grow(w->tensors, w->n_tensors + 1, sizeof *all);
    if (all)
        w->tensors = all;
    if (!t.name || !all) {
        err_nomem(&w->err, "tensor table", (w->n_tensors + 1) * sizeof *all);
        goto fail;
    }
    for (int i = 0; i < n_dims && i < 4; i++)
        t.ne[i] = ne[i];
    if (check_tensor(&t, n_dims, &w->err))
        goto fail;
    n_bytes = dtype_row_bytes(type, t.ne[0]);
    for (int i = 1; i < 4; i++) {
        if (!mem_mul(n_bytes, (size_t)t.ne[i], &n_bytes)) {
            err_set(&w->err, ST_USAGE, "tensor '%s' is too large", quoted(name).s);
            goto fail;
        }
    }
    t.n_bytes = n_bytes;
    all[w->n_tensors++] = t;
    return;
fail:
    mem_free(t.name);
}

/* ---- layout ---- */

/* The alignment that a key asks for, or 32. */
static enum status alignment_of(const struct gguf_writer *w, size_t *out, struct err *e)
{
    uint32_t a = GGUF_ALIGN;

    for (size_t i = 0; i < w->n_kv; i++) {
        const struct item *it = &w->kv[i];
        if (strcmp(it->key, "general.alignment") != 0)
            continue;
        if (it->type != GGUF_U32)
            return err_set(e, ST_USAGE, "key 'general.alignment' has type %s, expected u32",
                           gguf_type_name(it->type));
        memcpy(&a, it->raw, sizeof a);
        if (a < GGUF_MIN_ALIGN || a > GGUF_MAX_ALIGN || (a & (a - 1)))
            return err_set(e, ST_USAGE,
                           "key 'general.alignment' is %u, expected a power of two from %d to %d",
                           a, GGUF_MIN_ALIGN, GGUF_MAX_ALIGN);
    }
    *out = a;
    return ST_OK;
}

/* Give each tensor its offset; names must differ. *n_data: bytes of all data with padding. */
static enum status place(struct gguf_writer *w, size_t align, size_t *n_data, struct err *e)
{
    struct index ix = {0};
    size_t pos = 0;
    enum status st = index_init(&ix, w->tensors, sizeof w->tensors[0], w->n_tensors, e);

    for (size_t i = 0; i < w->n_tensors && !st; i++) {
        struct gguf_tensor *t = &w->tensors[i];
        t->offset = pos;
        if (index_add(&ix, i) != INDEX_NONE)
            st = err_set(e, ST_USAGE, "tensor '%s' is put twice", quoted(t->name).s);
        else if (!mem_add(pos, t->n_bytes, &pos) || !mem_round_up(pos, align, &pos))
            st = err_set(e, ST_USAGE, "the tensors are too large for a file");
    }
    mem_free(ix.slots);
    *n_data = pos;
    return st;
}

static void add_u32(struct text *t, uint32_t v)
{
    text_bytes(t, &v, sizeof v);
}

static void add_u64(struct text *t, uint64_t v)
{
    text_bytes(t, &v, sizeof v);
}

static void add_name(struct text *t, const char *s)
{
    add_u64(t, strlen(s));
    text_str(t, s);
}

static void add_zeros(struct text *t, size_t align)
{
    while (t->n % align && !t->failed)
        text_byte(t, 0);
}

/* All before the data, padding included. */
static enum status build_head(struct text *t, const struct gguf_writer *w, size_t align,
                              struct err *e)
{
    text_str(t, "GGUF");
    add_u32(t, 3);
    add_u64(t, w->n_tensors);
    add_u64(t, w->n_kv);
    for (size_t i = 0; i < w->n_kv; i++) {
        const struct item *it = &w->kv[i];
        add_name(t, it->key);
        add_u32(t, it->type);
        if (it->type == GGUF_ARR) {
            add_u32(t, it->elem);
            add_u64(t, it->n);
        }
        text_bytes(t, it->raw, it->n_raw);
    }
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct gguf_tensor *x = &w->tensors[i];
        add_name(t, x->name);
        add_u32(t, (uint32_t)x->n_dims);
        for (int k = 0; k < x->n_dims; k++)
            add_u64(t, (uint64_t)x->ne[k]);
        add_u32(t, x->type);
        add_u64(t, x->offset);
    }
    add_zeros(t, align);
    return t->failed ? err_nomem(e, "keys and tensor table", t->n) : ST_OK;
}

/* Check, place and build; the same for both ways out. */
static enum status lay_out(struct gguf_writer *w, struct text *head, size_t *align, size_t *n_data,
                           struct err *e)
{
    enum status st = w->err.code;

    if (st) {
        if (e)
            *e = w->err;
        return st;
    }
    st = alignment_of(w, align, e);
    if (!st)
        st = place(w, *align, n_data, e);
    return st ? st : build_head(head, w, *align, e);
}

enum status gguf_write_memory(struct gguf_writer *w, void **out, size_t *n, struct err *e)
{
    struct text head = {0};
    size_t align, n_data, total;
    uint8_t *p = NULL;
    enum status st = lay_out(w, &head, &align, &n_data, e);

    *out = NULL;
    if (!st && (!mem_add(head.n, n_data, &total) || !(p = mem_zalloc(total))))
        st = err_nomem(e, "the file", n_data);
    if (!st) {
        memcpy(p, head.p, head.n);
        for (size_t i = 0; i < w->n_tensors; i++)
            memcpy(p + head.n + w->tensors[i].offset, w->tensors[i].data, w->tensors[i].n_bytes);
        *out = p;
        *n = total;
    }
    text_release(&head);
    return st;
}

/* ---- file ---- */

static enum status write_all(int fd, const void *data, size_t n, struct err *e)
{
    const uint8_t *p = data;

    while (n) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_set(e, ST_IO, "cannot write: %s", strerror(errno));
        p += k;
        n -= (size_t)k;
    }
    return ST_OK;
}

static enum status write_padding(int fd, size_t n, struct err *e)
{
    static const uint8_t zeros[4096];
    enum status st = ST_OK;

    for (; n && !st; n -= n < sizeof zeros ? n : sizeof zeros)
        st = write_all(fd, zeros, n < sizeof zeros ? n : sizeof zeros, e);
    return st;
}

static enum status write_parts(int fd, const struct gguf_writer *w, const struct text *head,
                               size_t align, struct err *e)
{
    enum status st = write_all(fd, head->p, head->n, e);

    for (size_t i = 0; i < w->n_tensors && !st; i++) {
        const struct gguf_tensor *t = &w->tensors[i];
        st = write_all(fd, t->data, t->n_bytes, e);
        if (!st)
            st = write_padding(fd, -t->n_bytes & (align - 1), e);
    }
    return st;
}

/* A new file beside `path`; its name goes to *tmp. What has the name already is never touched. */
static int open_temporary(const char *path, struct text *tmp)
{
    int fd = -1;

    for (int i = 0; i < 100 && fd < 0; i++) {
        text_clear(tmp);
        text_addf(tmp, "%s.tmp%d", path, i);
        if (tmp->failed)
            break;
        fd = open(tmp->p, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    return fd;
}

static enum status write_file(const char *path, const struct gguf_writer *w,
                              const struct text *head, size_t align, struct err *e)
{
    struct text tmp = {0};
    struct stat sb;
    enum status st;
    int fd;

    if (stat(path, &sb) == 0 && !S_ISREG(sb.st_mode))
        return err_set(e, ST_IO, "there is something other than a file");
    fd = open_temporary(path, &tmp);
    if (fd < 0) {
        st = tmp.failed ? err_nomem(e, "path", strlen(path))
                        : err_set(e, ST_IO, "cannot create: %s", strerror(errno));
        text_release(&tmp);
        return st;
    }
    st = write_parts(fd, w, head, align, e);
    if (close(fd) != 0 && !st)
        st = err_set(e, ST_IO, "cannot write: %s", strerror(errno));
    if (!st && rename(tmp.p, path) != 0)
        st = err_set(e, ST_IO, "cannot rename the finished file: %s", strerror(errno));
    if (st)
        unlink(tmp.p);
    text_release(&tmp);
    return st;
}

enum status gguf_write(struct gguf_writer *w, const char *path, struct err *e)
{
    struct text head = {0};
    size_t align, n_data;
    char name[256];
    enum status st = lay_out(w, &head, &align, &n_data, e);

    if (!st)
        st = write_file(path, w, &head, align, e);
    if (st)
        err_context(e, "'%s'", text_quote(name, sizeof name, path, strlen(path)));
    text_release(&head);
    return st;
}
