/*
 * Loading a model: find the architecture, read and check the keys, then walk the architecture's
 * table of tensors. Nothing here knows one architecture from another.
 *
 * Weights of the CPU are used where the reader put them (mapped file or memory): one borrowed buffer
 * per file. Bytes in a file may have any alignment that its header says; kernels read weights
 * unaligned. Weights of other devices are copied.
 */
#include "runtime/model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gguf/base/log.h"
#include "gguf/base/mem.h"
#include "gguf/base/text.h"
#include "gguf/quants.h"
#include "runtime/arch.h"
#include "runtime/store.h"

#define EXTRAS_NAMED 20 /* unused tensors that get a line of their own */

/* Rows of a matrix that is split by rows. */
struct row_part {
    struct tensor t;
    const struct gguf_tensor *from;
    int64_t first_row;
};

struct model_impl {
    const struct devices *devs;
    struct tensor *tensors;          /* [n_weights] what model->weights points to */
    struct buffer *buffers;          /* [n_files] */
    bool *used, *in_place;           /* [n_tensors] of the file: used at all, used where it is */
    struct store copies;             /* weights that are not used where the file has them */
    struct row_part *parts;          /* [n_row_parts] those of a matrix one after the other */
    int32_t *first_part, *n_parts;   /* [n_weights] of split matrices */
    const struct gguf_tensor **from; /* [n_weights] where a copied weight comes from; else NULL */
    const char *cannot; /* first weight that its layer's device cannot compute with; NULL: none */
    const char *cannot_dev; /* that device */
    int n_cannot;
};

#define UPLOAD_MAX ((size_t)16 << 20) /* bytes between two looks at Ctrl-C */

/* ---- which tensor goes where ---- */

/* One line for a tensor that is not as expected: "[64, 63]". */
static const char *ne_text(char out[96], const int64_t *ne, int n_dims)
{
    int n = snprintf(out, 96, "[%lld", (long long)ne[0]);

    for (int i = 1; i < n_dims; i++)
        n += snprintf(out + n, 96 - (size_t)n, ", %lld", (long long)ne[i]);
    snprintf(out + n, 96 - (size_t)n, "]");
    return out;
}

static enum status check_shape(const struct gguf_tensor *gt, const struct arch_tensor *at,
                               const struct hparams *hp, uint32_t il, struct err *e)
{
    char found[96], expected[96];
    int64_t ne[TENSOR_DIMS];
    int n_dims = arch_shape(at, hp, il, ne);

    if (memcmp(ne, gt->ne, sizeof ne) == 0)
        return ST_OK;
    return err_set(e, ST_MODEL, "tensor '%s' has shape %s, expected %s", gt->name,
                   ne_text(found, gt->ne, gt->n_dims), ne_text(expected, ne, n_dims));
}

/* Can the device compute what the weight is for? Asked with an input of one column (per matrix). */
static bool can_use(const struct device *dev, const struct tensor *w, enum weight_use use)
{
    static const enum op ops[] = {
        [USE_MATRIX] = OP_MUL_MAT, [USE_EXPERTS] = OP_MUL_MAT_ID, [USE_ROWS] = OP_GET_ROWS};
    struct tensor x = {0}, ids = {0}, t = {.op = ops[use]};
    int64_t n[3] = {use == USE_ROWS ? 1 : w->ne[0], 1, use == USE_MATRIX ? w->ne[2] : 1}, one = 1;

    if (!tensor_set_shape(&x, use == USE_ROWS ? DT_I32 : DT_F32, 3, n) ||
        !tensor_set_shape(&ids, DT_I32, 1, &one))
        return false;
    t.src[0] = (struct tensor *)w;
    t.src[1] = &x;
    t.src[2] = use == USE_EXPERTS ? &ids : NULL;
    return op_shape(&t, NULL) == ST_OK && device_supports_op(dev, &t);
}

static enum status check_use(const struct device *dev, const struct tensor *w, enum weight_use use,
                             struct err *e)
{
    const char *type = dtype_name(w->type);

    if (use == USE_VECTOR && w->type != DT_F32)
        return err_set(e, ST_UNSUPPORTED, "tensor '%s' has type %s, expected f32", w->name, type);
    if (use == USE_VECTOR)
        return ST_OK;
    if (w->type >= DT_I8 && w->type <= DT_I64)
        return err_set(e, ST_UNSUPPORTED,
                       "tensor '%s' has type %s, expected a float or quantised type", w->name,
                       type);
    if (!can_use(dev, w, use))
        return err_set(e, ST_UNSUPPORTED,
                       "tensor '%s' has type %s, which '%s' cannot compute with; try "
                       "another quantisation of the model",
                       w->name, type, dev->name);
    return ST_OK;
}

/*
 * Where a weight goes. What the user named must work; where a layer's device cannot compute with a
 * weight, it stays on the CPU, and warn_cannot says so.
 */
static enum status find_place(struct model *m, const struct arch_tensor *at, uint32_t il,
                              const struct tensor *w, struct place *out, struct err *e)
{
    const struct device *cpu = devices_cpu(m->impl->devs);
    struct place pl;
    enum status st = placement_weight(m->placement, at, il, w->name, &pl, e);

    if (st)
        return st;
    if (!pl.by_rule && pl.dev != cpu && at->use != USE_VECTOR && !can_use(pl.dev, w, at->use)) {
        if (!m->impl->n_cannot++) {
            m->impl->cannot = w->name;
            m->impl->cannot_dev = pl.dev->name;
        }
        pl = (struct place){.dev = cpu, .bt = cpu->buft};
    }
    *out = pl;
    return check_use(pl.dev, w, at->use, e);
}

/* ---- steps of loading ---- */

static enum status find_arch(struct model *m, struct err *e)
{
    struct gguf_str name = {0};
    struct text known = {0};
    char quoted[64];
    enum status st;

    st = gguf_get_str(m->file, "general.architecture", true, &name, e);
    if (st)
        return st;
    if (!m->file->n_tensors)
        return err_set(e, ST_UNSUPPORTED, "holds a vocabulary only, no tensors to compute with");
    m->arch = arch_find(name.p, name.n);
    if (m->arch)
        return ST_OK;
    for (int i = 0; arch_name(i); i++)
        text_addf(&known, "%s%s", i ? ", " : "", arch_name(i));
    st = err_set(e, ST_UNSUPPORTED, "architecture '%s' is not supported; known are: %s",
                 text_quote(quoted, sizeof quoted, name.p, name.n), known.p ? known.p : "");
    text_release(&known);
    return st;
}

static enum status alloc_tables(struct model *m, const struct model_options *opt, struct err *e)
{
    struct model_impl *impl = m->impl;

    m->n_weights = m->arch->n_globals + (int)m->hp.n_layer * m->arch->n_layer;
    m->weights = mem_array((size_t)m->n_weights, sizeof *m->weights);
    impl->tensors = mem_array((size_t)m->n_weights, sizeof *impl->tensors);
    impl->used = mem_array(m->file->n_tensors, sizeof *impl->used);
    impl->in_place = mem_array(m->file->n_tensors, sizeof *impl->in_place);
    impl->buffers = mem_array(m->file->n_files, sizeof *impl->buffers);
    impl->from = mem_array((size_t)m->n_weights, sizeof(*impl->from));
    impl->first_part = mem_array((size_t)m->n_weights, sizeof *impl->first_part);
    impl->n_parts = mem_array((size_t)m->n_weights, sizeof *impl->n_parts);
    if (opt->place && opt->place->split == SPLIT_ROW)
        impl->parts = mem_array((size_t)m->n_weights * (size_t)impl->devs->n, sizeof *impl->parts);
    if (!m->weights || !impl->tensors || !impl->used || !impl->in_place || !impl->buffers ||
        !impl->from || !impl->first_part || !impl->n_parts ||
        (opt->place && opt->place->split == SPLIT_ROW && !impl->parts))
        return err_nomem(e, "the table of weights", (size_t)m->n_weights * sizeof *impl->tensors);
    for (size_t i = 0; i < m->file->n_files; i++)
        buffer_describe(&impl->buffers[i], devices_cpu(impl->devs)->buft, 0, USAGE_WEIGHTS);
    return ST_OK;
}

static enum status missing(const struct arch_tensor *at, const char *name, uint32_t il,
                           const struct hparams *hp, struct err *e)
{
    if (arch_per_layer(at))
        return err_set(e, ST_MODEL, "tensor '%s' is missing: layer %u of %u is incomplete", name,
                       il, hp->n_layer);
    return err_set(e, ST_MODEL, "tensor '%s' is missing", name);
}

static bool may_miss(const struct gguf *g, const struct arch_tensor *at, uint32_t il)
{
    char name[TENSOR_NAME];

    if (at->optional || !at->unless)
        return at->optional;
    arch_tensor_name(at->unless, il, name);
    return gguf_find_tensor(g, name) != NULL;
}

/*
 * A tied weight stands in two slots. Where both are in the same memory one tensor serves them, or the
 * scheduler would see two weights.
 */
static struct tensor *tied(const struct model *m, const char *name, const struct buft *bt)
{
    for (int i = 0; i < m->arch->n_globals; i++) {
        struct tensor *t = m->weights[i];

        if (t && t->buffer && t->buffer->buft == bt && strcmp(t->name, name) == 0)
            return t;
    }
    return NULL;
}

/* In the mapped file, or a place to copy it to. */
static enum status put_weight(struct model *m, int i, const struct gguf_tensor *gt,
                              const struct place *pl, struct err *e)
{
    struct tensor *t = &m->impl->tensors[i];

    if (pl->bt != devices_cpu(m->impl->devs)->buft) {
        m->impl->from[i] = gt;
        return store_add(&m->impl->copies, pl->dev, pl->bt, t, e);
    }
    t->data = (void *)gt->data; /* never written: the buffer's usage is weights */
    t->buffer = &m->impl->buffers[gt->shard];
    m->impl->in_place[gt - m->file->tensors] = true;
    return ST_OK;
}

/* Rows of matrix i on several devices; whole, if one of them gets all or cannot compute with it. */
static enum status put_rows(struct model *m, int i, const struct gguf_tensor *gt,
                            const struct place *pl, struct err *e)
{
    const struct tensor *w = &m->impl->tensors[i];
    struct row_share shares[DEVICES_MAX];
    int n = placement_rows(m->placement, w->ne[1], shares);
    bool split = n > 1 && w->ne[2] == 1;
    enum status st = ST_OK;

    for (int k = 0; k < n && split; k++)
        split = can_use(shares[k].dev, w, USE_MATRIX);
    if (!split)
        return put_weight(m, i, gt, pl, e);
    m->impl->first_part[i] = m->n_row_parts;
    m->impl->n_parts[i] = n;
    for (int k = 0; k < n && !st; k++) {
        struct row_part *part = &m->impl->parts[m->n_row_parts++];

        *part = (struct row_part){.t = *w, .from = gt, .first_row = shares[k].first};
        part->t.ne[1] = shares[k].n;
        tensor_set_name(&part->t, "%.50s/%d", w->name, k);
        st = store_add(&m->impl->copies, shares[k].dev, shares[k].dev->buft, &part->t, e);
    }
    return st;
}

struct tensor *model_row_part(const struct model *m, const struct tensor *w, int i)
{
    ptrdiff_t k;

    if (!m->n_row_parts || !w)
        return NULL;
    k = w - m->impl->tensors;
    return i < m->impl->n_parts[k] ? &m->impl->parts[m->impl->first_part[k] + i].t : NULL;
}

/* Enter one weight into its slot; the bytes are bound later. */
static enum status load_weight(struct model *m, const struct arch_tensor *at, uint32_t il,
                               struct err *e)
{
    struct place pl;
    int i = arch_index(m->arch, at, il);
    struct tensor *t = &m->impl->tensors[i];
    const struct gguf_tensor *gt;
    char name[TENSOR_NAME];
    enum status st;

    arch_tensor_name(at->name, il, name);
    gt = gguf_find_tensor(m->file, name);
    if (!gt && at->instead)
        gt = gguf_find_tensor(m->file, at->instead);
    if (!gt)
        return may_miss(m->file, at, il) ? ST_OK : missing(at, name, il, &m->hp, e);
    st = check_shape(gt, at, &m->hp, il, e);
    if (st)
        return st;
    if (!tensor_set_shape(t, gt->type, gt->n_dims, gt->ne))
        return err_set(e, ST_MODEL, "tensor '%s' is too large", gt->name);
    tensor_set_name(t, "%s", gt->name);
    st = find_place(m, at, il, t, &pl, e);
    if (st)
        return st;
    m->weights[i] = arch_per_layer(at) || pl.by_rows ? NULL : tied(m, gt->name, pl.bt);
    if (!m->weights[i]) {
        st = pl.by_rows ? put_rows(m, i, gt, &pl, e) : put_weight(m, i, gt, &pl, e);
        m->weights[i] = t;
    }
    if (st)
        return st;
    if (!m->impl->used[gt - m->file->tensors]) {
        m->impl->used[gt - m->file->tensors] = true;
        m->n_weight_bytes += gt->n_bytes;
        m->n_params += (uint64_t)tensor_n(t);
    }
    return ST_OK;
}

static enum status load_weights(struct model *m, struct err *e)
{
    for (int i = 0; i < m->arch->n_tensors; i++) {
        const struct arch_tensor *at = &m->arch->tensors[i];
        uint32_t n = arch_per_layer(at) ? m->hp.n_layer : 1;

        for (uint32_t il = 0; il < n; il++) {
            enum status st = arch_has(at, &m->hp, il) ? load_weight(m, at, il, e) : ST_OK;
            if (st)
                return st;
        }
    }
    return ST_OK;
}

/*
 * The bytes of each file that hold weights become a buffer; memory that exists is not copied. Of a
 * file that was opened without data the buffer is a description.
 */
static void bind_files(struct model *m, const struct buft *bt)
{
    const struct gguf *g = m->file;

    for (size_t i = 0; i < g->n_files; i++) {
        const char *lo = NULL, *hi = NULL;
        size_t n_bytes = 0;

        for (size_t k = 0; k < g->n_tensors; k++) {
            const struct gguf_tensor *gt = &g->tensors[k];
            const char *p = gt->data;

            if (!m->impl->in_place[k] || (size_t)gt->shard != i)
                continue;
            n_bytes += gt->n_bytes;
            if (!p)
                continue;
            lo = !lo || p < lo ? p : lo;
            hi = !hi || p + gt->n_bytes > hi ? p + gt->n_bytes : hi;
        }
        if (lo)
            buffer_borrow(&m->impl->buffers[i], bt, (void *)lo, (size_t)(hi - lo), USAGE_WEIGHTS);
        else
            buffer_describe(&m->impl->buffers[i], bt, n_bytes, USAGE_WEIGHTS);
    }
}

/* Asked for by name, so what the system refuses is an error. */
static enum status lock_files(const struct model *m, struct err *e)
{
    char want[32], limit[32];

    for (size_t i = 0; i < m->file->n_files; i++) {
        const struct buffer *b = &m->impl->buffers[i];

        if (!b->base || mem_lock(b->base, b->size))
            continue;
        return err_set(e, ST_NOMEM,
                       "--mlock: %s of weights cannot be locked in memory: %s; the limit is %s "
                       "(ulimit -l)",
                       text_size(want, sizeof want, b->size), strerror(errno),
                       mem_lock_limit() == SIZE_MAX
                           ? "the system's"
                           : text_size(limit, sizeof limit, mem_lock_limit()));
    }
    return ST_OK;
}

static void warn_extras(const struct model *m)
{
    size_t n = 0;

    for (size_t i = 0; i < m->file->n_tensors; i++) {
        if (!m->impl->used[i] && n++ < EXTRAS_NAMED)
            log_warn("tensor '%s' is not used by architecture '%s'", m->file->tensors[i].name,
                     m->arch->name);
    }
    if (n > EXTRAS_NAMED)
        log_warn("and %zu more tensors are not used", n - EXTRAS_NAMED);
}

static void warn_cannot(const struct model *m)
{
    if (m->impl->n_cannot)
        log_warn(
            "%d weights stay on the CPU: '%s' cannot compute with their types (the first is '%s')",
            m->impl->n_cannot, m->impl->cannot_dev, m->impl->cannot);
}

/* A mapped file costs no memory of its own, but each token reads all of it. */
static void warn_large(const struct model *m)
{
    const struct device *cpu = devices_cpu(m->impl->devs);
    uint64_t n = model_memory(m, cpu).n_mapped;
    size_t n_total = device_memory(cpu).n_total;
    char need[32], has[32];

    if (n_total && n > n_total)
        log_warn(
            "the weights on the CPU take %s, its memory is %s: they will be read from the file "
            "again for every token",
            text_size(need, sizeof need, n), text_size(has, sizeof has, n_total));
}

struct model_memory model_memory(const struct model *m, const struct device *dev)
{
    struct model_memory mm = {.n_copied = store_bytes_on(&m->impl->copies, dev)};

    for (size_t i = 0; i < m->file->n_tensors && dev == devices_cpu(m->impl->devs); i++) {
        if (m->impl->in_place[i])
            mm.n_mapped += m->file->tensors[i].n_bytes;
    }
    return mm;
}

/* ---- copies ---- */

static bool stop_asked(const struct model_options *opt)
{
    return opt->cancel && atomic_load_explicit(opt->cancel, memory_order_relaxed);
}

/* n bytes from the file to the tensor, in pieces. */
static enum status upload(struct tensor *t, size_t offs, const char *src, size_t n,
                          const struct model_options *opt, struct err *e)
{
    enum status st = ST_OK;

    for (size_t i = 0; i < n && !st; i += UPLOAD_MAX) {
        if (stop_asked(opt))
            return err_set(e, ST_CANCELLED, "stopped while loading");
        st = tensor_set(t, offs + i, src + i, n - i < UPLOAD_MAX ? n - i : UPLOAD_MAX, e);
    }
    return st;
}

/* All rows of t, from row `first` of gt on. They lie end to end in the file, and maybe apart in memory. */
static enum status upload_tensor(struct tensor *t, const struct gguf_tensor *gt, int64_t first,
                                 const struct model_options *opt, struct err *e)
{
    size_t n_row = tensor_row_bytes(t);
    const char *data = (const char *)gt->data + (size_t)first * n_row;
    enum status st = ST_OK;

    if (tensor_contiguous(t))
        return upload(t, 0, data, n_row * (size_t)tensor_rows(t), opt, e);
    for (int64_t r = 0; r < tensor_rows(t) && !st; r++) {
        int64_t i1 = r % t->ne[1], i2 = r / t->ne[1] % t->ne[2], i3 = r / t->ne[1] / t->ne[2];
        size_t offs = (size_t)i1 * t->nb[1] + (size_t)i2 * t->nb[2] + (size_t)i3 * t->nb[3];

        st = upload(t, offs, data + (size_t)r * n_row, n_row, opt, e);
    }
    return st;
}

/* Give copied weights their memory and bytes. */
static enum status bind_copies(struct model *m, const struct model_options *opt, struct err *e)
{
    uint64_t n_all = store_bytes(&m->impl->copies), n_done = 0;
    enum status st = store_bind(&m->impl->copies, opt->dry, "a copy of its weights",
                                "try fewer layers on it (-ngl)", e);

    for (int i = 0; i < m->n_weights && !st && !opt->dry; i++) {
        if (!m->impl->from[i])
            continue;
        st = upload_tensor(&m->impl->tensors[i], m->impl->from[i], 0, opt, e);
        n_done += m->impl->from[i]->n_bytes;
        if (!st && opt->progress)
            opt->progress(opt->progress_ctx, (double)n_done / (double)n_all);
    }
    for (int i = 0; i < m->n_row_parts && !st && !opt->dry; i++) {
        struct row_part *part = &m->impl->parts[i];

        st = upload_tensor(&part->t, part->from, part->first_row, opt, e);
        n_done += tensor_bytes(&part->t);
        if (!st && opt->progress)
            opt->progress(opt->progress_ctx, (double)n_done / (double)n_all);
    }
    return st;
}

/* ---- check of values ---- */

static enum status check_values(const struct gguf_tensor *gt, float *row, struct err *e)
{
    quant_decode_fn *decode = quant_decoder(gt->type);
    uint32_t block = dtype_info(gt->type)->block;
    size_t n_row = dtype_row_bytes(gt->type, gt->ne[0]);
    size_t n_rows = n_row ? gt->n_bytes / n_row : 0;

    for (size_t r = 0; r < n_rows; r++) {
        decode((const char *)gt->data + r * n_row, row, gt->ne[0]);
        for (int64_t i = 0; i < gt->ne[0]; i++) {
            if (!isfinite(row[i]))
                return err_set(e, ST_MODEL,
                               "tensor '%s' has the value %g in block %llu (element %lld of "
                               "row %zu)",
                               gt->name, (double)row[i],
                               (unsigned long long)((r * (size_t)gt->ne[0] + (size_t)i) / block),
                               (long long)i, r);
        }
    }
    return ST_OK;
}

static enum status check_all_values(const struct model *m, const struct model_options *opt,
                                    struct err *e)
{
    const struct gguf *g = m->file;
    enum status st = ST_OK;
    int64_t n_max = 1;
    uint64_t n_done = 0;
    float *row;

    for (size_t i = 0; i < g->n_tensors; i++)
        n_max = m->impl->used[i] && g->tensors[i].ne[0] > n_max ? g->tensors[i].ne[0] : n_max;
    row = mem_array((size_t)n_max, sizeof *row);
    if (!row)
        return err_nomem(e, "checking the weights", (size_t)n_max * sizeof *row);
    for (size_t i = 0; i < g->n_tensors && !st; i++) {
        if (!m->impl->used[i])
            continue;
        if (stop_asked(opt))
            st = err_set(e, ST_CANCELLED, "stopped while checking the weights");
        else
            st = check_values(&g->tensors[i], row, e);
        n_done += g->tensors[i].n_bytes;
        if (!st && opt->progress)
            opt->progress(opt->progress_ctx, (double)n_done / (double)m->n_weight_bytes);
    }
    mem_free(row);
    return st;
}

/* ---- the whole ---- */

enum status model_load(struct model **out, struct gguf *file, const struct model_options *opt,
                       struct err *e)
{
    static const struct placement_options on_cpu;
    struct model *m = mem_zalloc(sizeof *m);
    enum status st;

    *out = NULL;
    if (!m) {
        if (!opt->borrow_file)
            gguf_close(file);
        return err_nomem(e, "a model", sizeof *m);
    }
    m->file = file;
    m->borrows_file = opt->borrow_file;
    m->impl = mem_zalloc(sizeof *m->impl);
    if (!m->impl) {
        st = err_nomem(e, "a model", sizeof *m->impl);
        goto fail;
    }
    m->impl->devs = opt->devs;
    store_init(&m->impl->copies, USAGE_WEIGHTS);
    st = find_arch(m, e);
    if (!st)
        st = hparams_read(&m->hp, file, m->arch->name, m->arch->partial, e);
    if (!st && m->arch->keys)
        st = m->arch->keys(&m->hp, file, e);
    if (!st && m->arch->check)
        st = m->arch->check(&m->hp, file, e);
    if (!st)
        st = placement_new(&m->placement, opt->devs, &m->hp, opt->place ? opt->place : &on_cpu, e);
    if (!st)
        st = alloc_tables(m, opt, e);
    if (!st)
        st = load_weights(m, e);
    if (!st)
        st = placement_done(m->placement, e);
    if (!st)
        st = bind_copies(m, opt, e);
    if (st)
        goto fail;
    bind_files(m, devices_cpu(opt->devs)->buft);
    if (opt->lock)
        st = lock_files(m, e);
    if (st)
        goto fail;
    warn_extras(m);
    warn_cannot(m);
    warn_large(m);
    if (opt->check_tensors)
        st = check_all_values(m, opt, e);
    if (!st && stop_asked(opt))
        st = err_set(e, ST_CANCELLED, "stopped while loading");
    if (st)
        goto fail;
    if (opt->progress)
        opt->progress(opt->progress_ctx, 1);
    *out = m;
    return ST_OK;
fail:
    model_free(m);
    return st;
}

void model_free(struct model *m)
{
    if (!m)
        return;
    if (m->impl) {
        for (size_t i = 0; m->impl->buffers && i < m->file->n_files; i++)
            buffer_release(&m->impl->buffers[i]);
        mem_free(m->impl->buffers);
        mem_free(m->impl->tensors);
        mem_free(m->impl->used);
        mem_free(m->impl->in_place);
        mem_free(m->impl->from);
        mem_free(m->impl->parts);
        mem_free(m->impl->first_part);
        mem_free(m->impl->n_parts);
        store_release(&m->impl->copies);
        mem_free(m->impl);
    }
    placement_free(m->placement);
    mem_free(m->weights);
    if (!m->borrows_file)
        gguf_close(m->file);
    mem_free(m);
}
