/*
 * One GGUF file: header, keys, tensor table. Nothing here trusts a number from the file: it is
 * compared with what is left of the file before it is used, and products and sums are checked.
 *
 *   "GGUF"  u32 version  u64 n_tensors  u64 n_kv
 *   n_kv times       str key, u32 type, value
 *   n_tensors times  str name, u32 n_dims, u64 ne[n_dims], u32 type, u64 offset
 *   padding to a multiple of general.alignment (32 if absent)
 *   tensor data; offsets count from here
 *
 * str: u64 length, bytes. Array: u32 type, u64 n, elements.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/base/text.h"
#include "gguf/reader_impl.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "values are used from the file as they are, in little-endian order"
#endif

#define MIN_KV     13        /* bytes: length 8, type 4, value 1 */
#define MIN_TENSOR 32        /* bytes: length 8, n_dims 4, one dimension 8, type 4, offset 8 */
#define MAX_ITEMS  (1 << 24) /* keys or tensors; an index is 32 bits */

struct quoted quoted(const char *name)
{
    struct quoted q;

    text_quote(q.s, sizeof q.s, name, strlen(name));
    return q;
}

/* ---- cursor: walks the file, remembers the first failure ---- */

struct cursor {
    struct source *src;
    size_t pos;
    const char *kind; /* where we are, for messages: "key" or "tensor"; NULL in the header */
    const char *name; /* its name, once known */
    size_t i, n;      /* and its number */
    enum status st;
    struct err *e;
};

static enum status cursor_cut_off(struct cursor *c, uint64_t n, const char *what)
{
    char place[QUOTE_SIZE + 64] = "the header";

    if (c->name)
        snprintf(place, sizeof place, "%s '%s'", c->kind, quoted(c->name).s);
    else if (c->kind)
        snprintf(place, sizeof place, "%s %zu of %zu", c->kind, c->i + 1, c->n);
    return c->st = err_set(
               c->e, ST_MODEL,
               "file is cut off or damaged: %s of %s needs %llu bytes at byte %zu, the file "
               "has %zu",
               what, place, (unsigned long long)n, c->pos, c->src->n);
}

/* The next n bytes, or NULL (and the failure is set) when the file has fewer. */
static const uint8_t *take(struct cursor *c, uint64_t n, const char *what)
{
    const uint8_t *p;

    if (c->st)
        return NULL;
    if (n > c->src->n - c->pos) {
        cursor_cut_off(c, n, what);
        return NULL;
    }
    if (c->pos + n > c->src->n_ready) {
        c->st = source_fill(c->src, c->pos + (size_t)n, c->e);
        if (c->st)
            return NULL;
    }
    p = c->src->p + c->pos;
    c->pos += (size_t)n;
    return p;
}

static uint32_t take_u32(struct cursor *c, const char *what)
{
    const uint8_t *p = take(c, 4, what);
    uint32_t v = 0;

    if (p)
        memcpy(&v, p, 4);
    return v;
}

static uint64_t take_u64(struct cursor *c, const char *what)
{
    const uint8_t *p = take(c, 8, what);
    uint64_t v = 0;

    if (p)
        memcpy(&v, p, 8);
    return v;
}

/* A key or tensor name of 1..max bytes, copied to the arena; NULL on failure. */
static char *take_name(struct cursor *c, struct arena *a, uint64_t max)
{
    uint64_t n = take_u64(c, "name");
    const uint8_t *p;
    char *name;

    if (c->st)
        return NULL;
    if (n == 0 || n > max) {
        c->st = err_set(c->e, ST_MODEL,
                        "the name of %s %zu of %zu has %llu bytes, expected 1 to %llu; the file is "
                        "damaged",
                        c->kind, c->i + 1, c->n, (unsigned long long)n, (unsigned long long)max);
        return NULL;
    }
    p = take(c, n, "name");
    if (!p)
        return NULL;
    if (memchr(p, 0, (size_t)n)) {
        c->st =
            err_set(c->e, ST_MODEL, "the name of %s %zu of %zu has a NUL byte; the file is damaged",
                    c->kind, c->i + 1, c->n);
        return NULL;
    }
    name = arena_strndup(a, (const char *)p, (size_t)n);
    if (!name)
        c->st = err_nomem(c->e, "names", (size_t)n);
    return name;
}

/* ---- keys ---- */

static enum status take_strings(struct cursor *c, uint64_t n)
{
    if (n > (c->src->n - c->pos) / 8) /* each has a length */
        return cursor_cut_off(c, n > UINT64_MAX / 8 ? UINT64_MAX : 8 * n, "value");
    for (uint64_t i = 0; i < n && !c->st; i++)
        take(c, take_u64(c, "length of a string"), "string");
    return c->st;
}

static enum status check_bools(struct cursor *c, const struct gguf_kv *kv)
{
    const uint8_t *p = kv->raw;

    for (uint64_t i = 0; i < kv->n; i++) {
        if (p[i] > 1)
            return c->st =
                       err_set(c->e, ST_MODEL, "key '%s' has a bool of value %d, expected 0 or 1",
                               quoted(kv->key).s, p[i]);
    }
    return ST_OK;
}

static enum status take_value(struct cursor *c, struct gguf_kv *kv)
{
    size_t start = c->pos, size = gguf_type_size(kv->elem);
    uint64_t n_bytes;

    if (kv->elem == GGUF_STR) {
        take_strings(c, kv->n);
    } else {
        if (__builtin_mul_overflow(kv->n, (uint64_t)size, &n_bytes))
            n_bytes = UINT64_MAX;
        take(c, n_bytes, "value");
    }
    if (c->st)
        return c->st;
    kv->raw = c->src->p + start;
    kv->n_raw = c->pos - start;
    return kv->elem == GGUF_BOOL ? check_bools(c, kv) : ST_OK;
}

static enum status take_type(struct cursor *c, const char *key, enum gguf_type *out)
{
    uint32_t t = take_u32(c, "type");

    if (!c->st && t >= GGUF_TYPE_COUNT)
        c->st = err_set(c->e, ST_MODEL, "key '%s' has value type %u, expected 0 to %d",
                        quoted(key).s, t, GGUF_TYPE_COUNT - 1);
    *out = (enum gguf_type)t;
    return c->st;
}

static enum status take_kv(struct cursor *c, struct arena *a, struct gguf_kv *kv)
{
    kv->key = take_name(c, a, GGUF_MAX_KEY);
    c->name = kv->key;
    kv->n = 1;
    if (c->st || take_type(c, kv->key, &kv->type))
        return c->st;
    kv->elem = kv->type;
    if (kv->type == GGUF_ARR) {
        if (take_type(c, kv->key, &kv->elem))
            return c->st;
        kv->n = take_u64(c, "length");
        if (!c->st && kv->elem == GGUF_ARR)
            c->st = err_set(c->e, ST_UNSUPPORTED,
                            "key '%s' is an array of arrays, which is not supported",
                            quoted(kv->key).s);
    }
    return c->st ? c->st : take_value(c, kv);
}

static enum status take_kvs(struct cursor *c, struct gguf *g)
{
    struct index *ix = &g->impl->keys;

    if (index_init(ix, g->kv, sizeof g->kv[0], g->n_kv, c->e))
        return c->st = ST_NOMEM;
    c->kind = "key";
    c->n = g->n_kv;
    for (c->i = 0; c->i < g->n_kv; c->i++) {
        c->name = NULL;
        if (take_kv(c, &g->impl->names, &g->kv[c->i]))
            return c->st;
        if (index_add(ix, c->i) != INDEX_NONE)
            return c->st = err_set(c->e, ST_MODEL, "key '%s' appears twice", quoted(c->name).s);
    }
    return ST_OK;
}

/* ---- tensors ---- */

static enum status check_type(const char *name, uint32_t type, struct err *e)
{
    const char *gone = dtype_gone_name(type);

    if (dtype_known(type))
        return ST_OK;
    if (gone)
        return err_set(
            e, ST_UNSUPPORTED,
            "tensor '%s' has type %u (%s), which files no longer use; convert or quantize "
            "the model again",
            quoted(name).s, type, gone);
    return err_set(
        e, ST_UNSUPPORTED,
        "tensor '%s' has type %u, expected a number below %d; the file is damaged or newer "
        "than this program, otherwise quantize the model again to a known type",
        quoted(name).s, type, DT_COUNT);
}

/* Bytes of the tensor's data; the number of its elements must fit an int64_t as well. */
static enum status tensor_size(struct gguf_tensor *t, struct err *e)
{
    int64_t n = 1;
    size_t row;
    bool fits = true;

    if (t->ne[0] % dtype_info(t->type)->block)
        return err_set(e, ST_MODEL,
                       "tensor '%s' has rows of %lld elements, but type %s needs a multiple of %u",
                       quoted(t->name).s, (long long)t->ne[0], dtype_name(t->type),
                       dtype_info(t->type)->block);
    for (int i = 0; i < 4; i++)
        fits = fits && !__builtin_mul_overflow(n, t->ne[i], &n);
    fits = fits && dtype_row_size(t->type, t->ne[0], &row) &&
           mem_mul(row, (size_t)(n / t->ne[0]), &t->n_bytes);
    if (!fits)
        return err_set(e, ST_MODEL,
                       "tensor '%s' of %lld x %lld x %lld x %lld elements is too large: its size "
                       "overflows 64 bits; the file is damaged",
                       quoted(t->name).s, (long long)t->ne[0], (long long)t->ne[1],
                       (long long)t->ne[2], (long long)t->ne[3]);
    return ST_OK;
}

static enum status take_shape(struct cursor *c, struct gguf_tensor *t)
{
    uint32_t n_dims = take_u32(c, "number of dimensions");

    if (c->st)
        return c->st;
    if (n_dims < 1 || n_dims > 4)
        return c->st = err_set(c->e, ST_MODEL, "tensor '%s' has %u dimensions, expected 1 to 4",
                               quoted(t->name).s, n_dims);
    t->n_dims = (int)n_dims;
    for (int i = 0; i < 4; i++) {
        uint64_t ne = i < t->n_dims ? take_u64(c, "shape") : 1;
        if (c->st)
            return c->st;
        if (ne < 1 || ne > INT64_MAX)
            return c->st = err_set(c->e, ST_MODEL,
                                   "dimension %d of tensor '%s' is %llu, expected 1 to 2^63 - 1", i,
                                   quoted(t->name).s, (unsigned long long)ne);
        t->ne[i] = (int64_t)ne;
    }
    return ST_OK;
}

static enum status take_tensor(struct cursor *c, const struct gguf *g, struct gguf_tensor *t)
{
    uint32_t type;

    t->name = take_name(c, &g->impl->names, GGUF_MAX_NAME);
    c->name = t->name;
    if (c->st || take_shape(c, t))
        return c->st;
    type = take_u32(c, "type");
    t->offset = take_u64(c, "offset");
    if (c->st)
        return c->st;
    c->st = check_type(t->name, type, c->e);
    if (c->st)
        return c->st;
    t->type = (enum dtype)type;
    if (t->offset % g->alignment)
        return c->st = err_set(c->e, ST_MODEL,
                               "tensor '%s' has offset %llu, not a multiple of the alignment %zu",
                               quoted(t->name).s, (unsigned long long)t->offset, g->alignment);
    return c->st = tensor_size(t, c->e);
}

/* Turn offsets into positions in the file, and see that the data is there. */
static enum status place_tensors(struct gguf *g, size_t data_start, size_t n_file, struct err *e)
{
    const struct gguf_tensor *first = NULL;
    size_t end, last = 0;
    char missing[32];

    for (size_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        size_t start;
        if (!mem_add((size_t)t->offset, data_start, &start) || !mem_add(start, t->n_bytes, &end))
            return err_set(e, ST_MODEL,
                           "tensor '%s' has offset %llu and %zu bytes, which no file can hold",
                           quoted(t->name).s, (unsigned long long)t->offset, t->n_bytes);
        t->offset = start;
        if (end > n_file && !first)
            first = t;
        last = end > last ? end : last;
    }
    if (!first)
        return ST_OK;
    return err_set(e, ST_MODEL,
                   "file is cut off: tensor '%s' needs bytes up to %llu, the file has %zu; %s are "
                   "missing, download or convert it again",
                   quoted(first->name).s, (unsigned long long)first->offset + first->n_bytes,
                   n_file, text_size(missing, sizeof missing, last - n_file));
}

static int by_offset(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a;
    const struct gguf_tensor *y = *(const struct gguf_tensor *const *)b;

    return (x->offset > y->offset) - (x->offset < y->offset);
}

static enum status check_overlap(const struct gguf *g, struct err *e)
{
    const struct gguf_tensor **order;
    enum status st = ST_OK;
    bool sorted = true;

    for (size_t i = 1; i < g->n_tensors && sorted; i++)
        sorted = g->tensors[i - 1].offset + g->tensors[i - 1].n_bytes <= g->tensors[i].offset;
    if (sorted) /* as every converter writes them */
        return ST_OK;
    order = mem_array(g->n_tensors, sizeof(const struct gguf_tensor *));
    if (!order)
        return err_nomem(e, "tensor table", g->n_tensors * sizeof(const struct gguf_tensor *));
    for (size_t i = 0; i < g->n_tensors; i++)
        order[i] = &g->tensors[i];
    qsort(order, g->n_tensors, sizeof order[0], by_offset);
    for (size_t i = 1; i < g->n_tensors && !st; i++) {
        const struct gguf_tensor *a = order[i - 1], *b = order[i];
        if (a->offset + a->n_bytes > b->offset)
            st = err_set(
                e, ST_MODEL,
                "tensors '%s' and '%s' overlap: one ends at byte %llu, the other starts at %llu",
                quoted(a->name).s, quoted(b->name).s, (unsigned long long)a->offset + a->n_bytes,
                (unsigned long long)b->offset);
    }
    mem_free(order);
    return st;
}

static enum status take_tensors(struct cursor *c, struct gguf *g)
{
    size_t data_start;

    c->kind = "tensor";
    c->n = g->n_tensors;
    for (c->i = 0; c->i < g->n_tensors; c->i++) {
        c->name = NULL;
        if (take_tensor(c, g, &g->tensors[c->i]))
            return c->st;
    }
    if (!mem_round_up(c->pos, g->alignment, &data_start))
        data_start = c->src->n; /* only in a file that ends where memory ends */
    c->st = place_tensors(g, data_start, c->src->n, c->e);
    g->impl->n_used = data_start < c->src->n ? data_start : c->src->n;
    for (size_t i = 0; !c->st && i < g->n_tensors; i++)
        if (g->tensors[i].offset + g->tensors[i].n_bytes > g->impl->n_used)
            g->impl->n_used = g->tensors[i].offset + g->tensors[i].n_bytes;
    return c->st ? c->st : check_overlap(g, c->e);
}

/* ---- header ---- */

static enum status check_version(uint32_t v, struct err *e)
{
    if (v == 2 || v == 3)
        return ST_OK;
    if (v == 1)
        return err_set(e, ST_UNSUPPORTED,
                       "GGUF version 1, which is no longer read; convert the original model again");
    if (v && !(v & 0xffff))
        return err_set(e, ST_UNSUPPORTED,
                       "a big-endian GGUF file (version %u); convert the model for little-endian "
                       "machines",
                       __builtin_bswap32(v));
    return err_set(
        e, ST_UNSUPPORTED,
        "GGUF version %u, expected 2 or 3; the file is damaged or newer than this program", v);
}

static enum status check_count(struct cursor *c, uint64_t n, size_t min_bytes, const char *what)
{
    if (c->st)
        return c->st;
    if (n > (c->src->n - c->pos) / min_bytes)
        return c->st =
                   err_set(c->e, ST_MODEL,
                           "file is cut off or damaged: the header says %llu %s, which need more "
                           "than the file's %zu bytes",
                           (unsigned long long)n, what, c->src->n);
    if (n > MAX_ITEMS)
        return c->st = err_set(c->e, ST_UNSUPPORTED, "the header says %llu %s, more than %d",
                               (unsigned long long)n, what, MAX_ITEMS);
    return ST_OK;
}

static enum status take_header(struct cursor *c, struct gguf *g)
{
    size_t n_look = c->src->n < 512 ? c->src->n : 512;
    uint64_t n_tensors, n_kv;

    c->st = source_fill(c->src, n_look, c->e);
    if (c->st)
        return c->st;
    if (n_look < 4 || memcmp(c->src->p, "GGUF", 4) != 0)
        return c->st = gguf_sniff(c->src->p, n_look, c->src->n, c->e);
    take(c, 4, "magic");
    g->version = take_u32(c, "version");
    if (c->st)
        return c->st;
    c->st = check_version(g->version, c->e);
    n_tensors = take_u64(c, "number of tensors");
    n_kv = take_u64(c, "number of keys");
    if (check_count(c, n_tensors, MIN_TENSOR, "tensors") || check_count(c, n_kv, MIN_KV, "keys"))
        return c->st;
    g->n_tensors = (size_t)n_tensors;
    g->n_kv = (size_t)n_kv;
    g->kv = mem_array(g->n_kv, sizeof g->kv[0]);
    g->tensors = mem_array(g->n_tensors, sizeof g->tensors[0]);
    if (!g->kv || !g->tensors)
        return c->st = err_nomem(c->e, "keys and tensor table",
                                 g->n_kv * sizeof g->kv[0] + g->n_tensors * sizeof g->tensors[0]);
    return ST_OK;
}

static enum status find_alignment(struct gguf *g, struct err *e)
{
    uint32_t a = GGUF_ALIGN;
    enum status st = gguf_get_u32(g, "general.alignment", false, &a, e);

    if (st)
        return st;
    if (a < GGUF_MIN_ALIGN || a > GGUF_MAX_ALIGN || (a & (a - 1)))
        return err_set(e, ST_MODEL,
                       "key 'general.alignment' is %u, expected a power of two from %d to %d", a,
                       GGUF_MIN_ALIGN, GGUF_MAX_ALIGN);
    g->alignment = a;
    return ST_OK;
}

enum status gguf_parse(struct gguf *g, struct source *s, struct err *e)
{
    struct cursor c = {.src = s, .e = e};
    enum status st;

    if (take_header(&c, g) || take_kvs(&c, g))
        return c.st;
    st = find_alignment(g, e);
    return st ? st : take_tensors(&c, g);
}
