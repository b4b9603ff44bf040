/*
 * ggrun info: what is in a model file. Everything that can be read is shown, for architectures and
 * tokenizers that we cannot run too.
 */
#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

#include "cli/chat.h"
#include "cli/cli.h"
#include "cli/setup.h"
#include "gguf/base/mem.h"
#include "gguf/quants.h"
#include "runtime/arch.h"

enum { N_SHOWN = 8 }; /* elements of an array, end tokens */

/* All facts about a file; what could not be had is NULL or zero, with its error text. */
struct facts {
    struct cli *c;
    struct setup s;
    struct gguf_str arch, name;
    bool arch_known, has_hparams, has_chat;
    struct hparams hp;
    struct chat chat;
    struct err hparams_err, vocab_err, chat_err;
    uint64_t n_bytes, n_params, n_tensor_bytes;
    struct {
        uint64_t n, n_bytes;
    } types[DT_COUNT];
};

static void facts_release(struct facts *f)
{
    chat_release(&f->chat);
    setup_release(&f->s);
}

static void count_tensors(struct facts *f)
{
    const struct gguf *g = f->s.file;

    for (size_t i = 0; i < g->n_files; i++)
        f->n_bytes += g->files[i].n_bytes;
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        f->n_params += (uint64_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
        f->n_tensor_bytes += t->n_bytes;
        f->types[t->type].n++;
        f->types[t->type].n_bytes += t->n_bytes;
    }
}

static enum status facts_read(struct facts *f, struct cli *c, struct err *e)
{
    const struct options *o = c->opt;
    const struct arch *known;
    enum status st;

    *f = (struct facts){.c = c};
    setup_init(&f->s, c);
    st = setup_file(&f->s, o->n_models ? o->models[0] : NULL, !o->check, e);
    if (!st)
        st = setup_devices(&f->s, 0, e);
    if (st)
        return st;
    count_tensors(f);
    gguf_get_str(f->s.file, "general.architecture", false, &f->arch, NULL);
    gguf_get_str(f->s.file, "general.name", false, &f->name, NULL);
    if (f->arch.p) {
        char *arch = mem_strndup(f->arch.p, f->arch.n);
        if (!arch)
            return err_nomem(e, "architecture name", f->arch.n);
        known = arch_find(f->arch.p, f->arch.n);
        f->arch_known = known != NULL;
        f->has_hparams = hparams_read(&f->hp, f->s.file, arch, !known || known->partial,
                                      &f->hparams_err) == ST_OK;
        mem_free(arch);
    } else {
        err_set(&f->hparams_err, ST_MODEL, "key 'general.architecture' is missing");
    }
    setup_vocab(&f->s, &f->vocab_err);
    f->has_chat = chat_find(&f->chat, NULL, f->s.file, &f->chat_err) == ST_OK;
    chat_set_pieces(&f->chat, f->s.vocab);
    return ST_OK;
}

/* ---- text ---- */

static void put_field(struct text *t, const char *name)
{
    text_addf(t, "%-14s", name);
}

static void put_file(struct text *t, const struct facts *f)
{
    const struct gguf *g = f->s.file;
    char size[32];

    put_field(t, "file");
    if (f->s.path)
        text_escape(t, f->s.path, strlen(f->s.path));
    else
        text_str(t, "embedded model");
    text_addf(t, ", %s, GGUF version %u", text_size(size, sizeof size, f->n_bytes), g->version);
    if (g->n_files > 1)
        text_addf(t, ", %zu files", g->n_files);
    text_byte(t, '\n');
    if (f->name.p) {
        put_field(t, "name");
        text_escape(t, f->name.p, f->name.n);
        text_byte(t, '\n');
    }
    put_field(t, "architecture");
    if (f->arch.p) {
        text_escape(t, f->arch.p, f->arch.n);
        text_str(t, f->arch_known ? "\n"
                                  : ", not supported: it can be shown and tokenized, not run\n");
    } else {
        text_str(t, "not named\n");
    }
}

static void put_hparams(struct text *t, const struct facts *f)
{
    static const char *const scalings[] = {
        [ROPE_SCALING_NONE] = "none",
        [ROPE_SCALING_LINEAR] = "linear",
        [ROPE_SCALING_YARN] = "yarn",
        [ROPE_SCALING_LONGROPE] = "longrope",
    };
    const struct hparams *hp = &f->hp;
    bool scaled = hp->rope_scaling != ROPE_SCALING_NONE &&
                  !(hp->rope_scaling == ROPE_SCALING_LINEAR && hp->rope_scale == 1);

    if (!f->has_hparams) {
        text_addf(t, "%-14s%s\n", "settings", f->hparams_err.msg);
        return;
    }
    text_addf(t, "%-14s%u tokens\n", "context", hp->n_ctx_train);
    text_addf(t, "%-14s%u layers, embedding %u, feed-forward %u\n", "size", hp->n_layer, hp->n_embd,
              hp->n_ff);
    text_addf(t, "%-14s%u heads, %u for keys and values, key %u, value %u\n", "attention",
              hp->n_head, hp->n_head_kv, hp->n_embd_head_k, hp->n_embd_head_v);
    text_addf(t, "%-14sbase %g, %u dimensions, scaling %s", "rope", (double)hp->rope_base,
              hp->n_rot, scalings[scaled ? hp->rope_scaling : ROPE_SCALING_NONE]);
    if (scaled)
        text_addf(t, " %g from %u tokens", 1.0 / (double)hp->rope_scale, hp->rope_n_ctx_orig);
    text_byte(t, '\n');
}

static void put_types(struct text *t, const struct facts *f)
{
    char size[32];

    text_addf(t, "%-14s%zu, %.2f million parameters, %s\n", "tensors", f->s.file->n_tensors,
              (double)f->n_params / 1e6, text_size(size, sizeof size, f->n_tensor_bytes));
    for (int i = 0; i < DT_COUNT; i++)
        if (f->types[i].n)
            text_addf(t, "  %-12s%llu tensors, %s\n", dtype_name((enum dtype)i),
                      (unsigned long long)f->types[i].n,
                      text_size(size, sizeof size, f->types[i].n_bytes));
}

static void put_id(struct text *t, const char *what, const struct vocab *v, int32_t id)
{
    struct gguf_str piece;

    if (id == VOCAB_NONE)
        return;
    piece = vocab_piece(v, id);
    text_addf(t, ", %s %d '", what, (int)id);
    text_escape(t, piece.p, piece.n);
    text_byte(t, '\'');
}

static void put_vocab(struct text *t, const struct facts *f)
{
    const struct vocab *v = f->s.vocab;
    int n = 0;

    put_field(t, "vocabulary");
    if (!v) {
        text_addf(t, "%s\n", f->vocab_err.msg);
        return;
    }
    text_addf(t, "%s, %d tokens", vocab_kind(v), (int)vocab_n_tokens(v));
    if (!vocab_has_text(v)) {
        text_byte(t, '\n');
        return;
    }
    text_addf(t, ", pre-tokenizer %s", vocab_pre(v));
    put_id(t, vocab_add_bos(v) ? "bos (added)" : "bos", v, vocab_bos(v));
    put_id(t, vocab_add_eos(v) ? "eos (added)" : "eos", v, vocab_eos(v));
    text_byte(t, '\n');
    put_field(t, "stops at");
    for (int32_t id = 0; id < vocab_n_tokens(v); id++) {
        struct gguf_str piece;
        if (!vocab_is_eog(v, id))
            continue;
        piece = vocab_piece(v, id);
        text_addf(t, "%s%d '", n++ ? ", " : "", (int)id);
        text_escape(t, piece.p, piece.n);
        text_byte(t, '\'');
    }
    text_str(t, n ? "\n" : "nothing: the file names no token that ends a text\n");
}

/* What a request looks like when the model sees it. */
static enum status chat_sample(const struct facts *f, struct text *t, struct err *e)
{
    static const struct chat_message hello = {"user", "Hello", 5};

    return chat_render(&f->chat, &hello, 1, true, t, NULL, e);
}

static void put_chat(struct text *t, const struct facts *f)
{
    struct text sample = {0};

    put_field(t, "chat");
    if (!f->has_chat) {
        text_addf(t, "%s\n", f->chat_err.msg);
        return;
    }
    text_addf(t, "%s%s: ", chat_family_name(f->chat.family),
              f->chat.exact ? "" : " (told by its marks)");
    if (chat_sample(f, &sample, NULL) == ST_OK)
        text_escape(t, sample.p, sample.n);
    text_release(&sample);
    text_byte(t, '\n');
}

static void put_devices(struct text *t, const struct facts *f)
{
    for (int i = 0; i < f->s.devs.n; i++) {
        const struct device *d = f->s.devs.dev[i];
        text_addf(t, "%-14s%s: %s", i ? "" : "devices", d->name, d->desc);
        if (d->kind == DEVICE_CPU)
            text_addf(t, ", %d usable cores", usable_cores());
        text_byte(t, '\n');
    }
}

static void put_tensors(struct text *t, const struct gguf *g)
{
    text_str(t, "\n");
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *x = &g->tensors[i];
        size_t n = t->n;
        text_escape(t, x->name, strlen(x->name));
        n = t->n - n < 32 ? 32 - (t->n - n) : 0;
        text_addf(t, "%*s %-8s [%lld", (int)n, "", dtype_name(x->type), (long long)x->ne[0]);
        for (int d = 1; d < x->n_dims; d++)
            text_addf(t, ", %lld", (long long)x->ne[d]);
        text_addf(t, "] %zu bytes\n", x->n_bytes);
    }
}

static void put_keys(struct text *t, const struct gguf *g)
{
    text_str(t, "\n");
    for (size_t i = 0; i < g->n_kv; i++) {
        const struct gguf_kv *kv = &g->kv[i];
        text_escape(t, kv->key, strlen(kv->key));
        text_addf(t, " %s%s = ", kv->type == GGUF_ARR ? "array of " : "", gguf_type_name(kv->elem));
        gguf_kv_print(t, kv, N_SHOWN);
        text_str(t, kv->overridden ? " (overridden)\n" : "\n");
    }
}

static enum status print_text(const struct facts *f, struct err *e)
{
    const struct options *o = f->c->opt;
    struct text t = {0};

    put_file(&t, f);
    put_hparams(&t, f);
    put_types(&t, f);
    put_vocab(&t, f);
    put_chat(&t, f);
    put_devices(&t, f);
    if (o->tensors)
        put_tensors(&t, f->s.file);
    if (o->keys)
        put_keys(&t, f->s.file);
    return out_text(f->c->out, &t, e);
}

/* ---- JSON ---- */

static void add_str(cJSON *o, const char *name, const void *p, size_t n)
{
    cJSON_AddItemToObject(o, name, json_string(p, n));
}

static void add_zstr(cJSON *o, const char *name, const char *s)
{
    add_str(o, name, s, strlen(s));
}

static void add_id(cJSON *o, const char *name, int32_t id)
{
    if (id == VOCAB_NONE)
        cJSON_AddNullToObject(o, name);
    else
        cJSON_AddNumberToObject(o, name, id);
}

static void hparams_to_json(cJSON *o, const struct hparams *hp)
{
    cJSON_AddNumberToObject(o, "context_length", hp->n_ctx_train);
    cJSON_AddNumberToObject(o, "block_count", hp->n_layer);
    cJSON_AddNumberToObject(o, "embedding_length", hp->n_embd);
    cJSON_AddNumberToObject(o, "feed_forward_length", hp->n_ff);
    cJSON_AddNumberToObject(o, "head_count", hp->n_head);
    cJSON_AddNumberToObject(o, "head_count_kv", hp->n_head_kv);
    cJSON_AddNumberToObject(o, "key_length", hp->n_embd_head_k);
    cJSON_AddNumberToObject(o, "value_length", hp->n_embd_head_v);
    cJSON_AddNumberToObject(o, "rope_dimension_count", hp->n_rot);
    cJSON_AddNumberToObject(o, "rope_freq_base", (double)hp->rope_base);
}

static cJSON *vocab_to_json(const struct facts *f)
{
    const struct vocab *v = f->s.vocab;
    cJSON *o = cJSON_CreateObject(), *ends;

    if (!v) {
        add_zstr(o, "error", f->vocab_err.msg);
        return o;
    }
    add_zstr(o, "kind", vocab_kind(v));
    add_zstr(o, "pre", vocab_pre(v));
    cJSON_AddNumberToObject(o, "tokens", vocab_n_tokens(v));
    add_id(o, "bos", vocab_bos(v));
    add_id(o, "eos", vocab_eos(v));
    add_id(o, "eot", vocab_eot(v));
    cJSON_AddBoolToObject(o, "add_bos", vocab_add_bos(v));
    cJSON_AddBoolToObject(o, "add_eos", vocab_add_eos(v));
    ends = cJSON_AddArrayToObject(o, "stops_at");
    for (int32_t id = 0; id < vocab_n_tokens(v); id++)
        if (vocab_is_eog(v, id))
            cJSON_AddItemToArray(ends, cJSON_CreateNumber(id));
    return o;
}

static cJSON *chat_to_json(const struct facts *f)
{
    cJSON *o = cJSON_CreateObject();
    struct text sample = {0};

    if (!f->has_chat) {
        add_zstr(o, "error", f->chat_err.msg);
        return o;
    }
    add_zstr(o, "family", chat_family_name(f->chat.family));
    cJSON_AddBoolToObject(o, "exact", f->chat.exact);
    if (chat_sample(f, &sample, NULL) == ST_OK)
        add_str(o, "sample", sample.p, sample.n);
    text_release(&sample);
    return o;
}

static cJSON *types_to_json(const struct facts *f)
{
    cJSON *list = cJSON_CreateArray();

    for (int i = 0; i < DT_COUNT; i++) {
        cJSON *o;
        if (!f->types[i].n)
            continue;
        o = cJSON_CreateObject();
        add_zstr(o, "type", dtype_name((enum dtype)i));
        cJSON_AddNumberToObject(o, "tensors", (double)f->types[i].n);
        cJSON_AddNumberToObject(o, "bytes", (double)f->types[i].n_bytes);
        cJSON_AddItemToArray(list, o);
    }
    return list;
}

static cJSON *devices_to_json(const struct facts *f)
{
    cJSON *list = cJSON_CreateArray();

    for (int i = 0; i < f->s.devs.n; i++) {
        const struct device *d = f->s.devs.dev[i];
        cJSON *o = cJSON_CreateObject();
        add_zstr(o, "name", d->name);
        add_zstr(o, "description", d->desc);
        if (d->kind == DEVICE_CPU)
            cJSON_AddNumberToObject(o, "usable_cores", usable_cores());
        cJSON_AddItemToArray(list, o);
    }
    return list;
}

static cJSON *tensors_to_json(const struct gguf *g)
{
    cJSON *list = cJSON_CreateArray();

    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *x = &g->tensors[i];
        cJSON *o = cJSON_CreateObject(), *ne;
        add_zstr(o, "name", x->name);
        add_zstr(o, "type", dtype_name(x->type));
        ne = cJSON_AddArrayToObject(o, "ne");
        for (int d = 0; d < x->n_dims; d++)
            cJSON_AddItemToArray(ne, cJSON_CreateNumber((double)x->ne[d]));
        cJSON_AddNumberToObject(o, "offset", (double)x->offset);
        cJSON_AddNumberToObject(o, "bytes", (double)x->n_bytes);
        cJSON_AddNumberToObject(o, "file", x->shard);
        cJSON_AddItemToArray(list, o);
    }
    return list;
}

/* Numbers and strings as such, arrays as a count and their first elements. */
static cJSON *kv_to_json(const struct gguf_kv *kv)
{
    struct gguf_str_iter it;
    struct gguf_str s;
    cJSON *o, *list;

    if (kv->type != GGUF_ARR && kv->type == GGUF_STR) {
        it = gguf_strs(kv);
        return gguf_str_next(&it, &s) ? json_string(s.p, s.n) : cJSON_CreateNull();
    }
    if (kv->type == GGUF_BOOL)
        return cJSON_CreateBool(gguf_kv_int(kv, 0) != 0);
    if (kv->type != GGUF_ARR)
        return cJSON_CreateNumber(gguf_type_is_int(kv->type) ? (double)gguf_kv_int(kv, 0)
                                                             : gguf_kv_float(kv, 0));
    o = cJSON_CreateObject();
    add_zstr(o, "array_of", gguf_type_name(kv->elem));
    cJSON_AddNumberToObject(o, "count", (double)kv->n);
    list = cJSON_AddArrayToObject(o, "first");
    if (kv->elem == GGUF_STR) {
        it = gguf_strs(kv);
        for (int i = 0; i < N_SHOWN && gguf_str_next(&it, &s); i++)
            cJSON_AddItemToArray(list, json_string(s.p, s.n));
    } else if (kv->elem != GGUF_ARR) {
        for (uint64_t i = 0; i < kv->n && i < N_SHOWN; i++)
            cJSON_AddItemToArray(list, cJSON_CreateNumber(gguf_type_is_int(kv->elem)
                                                              ? (double)gguf_kv_int(kv, i)
                                                              : gguf_kv_float(kv, i)));
    }
    return o;
}

static cJSON *keys_to_json(const struct gguf *g)
{
    cJSON *o = cJSON_CreateObject();

    for (size_t i = 0; i < g->n_kv; i++)
        cJSON_AddItemToObject(o, g->kv[i].key, kv_to_json(&g->kv[i]));
    return o;
}

static enum status print_json(const struct facts *f, struct err *e)
{
    const struct options *o = f->c->opt;
    const struct gguf *g = f->s.file;
    cJSON *j = cJSON_CreateObject(), *hp;

    add_zstr(j, "file", f->s.path ? f->s.path : "embedded model");
    cJSON_AddNumberToObject(j, "bytes", (double)f->n_bytes);
    cJSON_AddNumberToObject(j, "files", (double)g->n_files);
    cJSON_AddNumberToObject(j, "gguf_version", g->version);
    if (f->name.p)
        add_str(j, "name", f->name.p, f->name.n);
    if (f->arch.p)
        add_str(j, "architecture", f->arch.p, f->arch.n);
    cJSON_AddBoolToObject(j, "supported", f->arch_known);
    hp = cJSON_AddObjectToObject(j, "hparams");
    if (f->has_hparams)
        hparams_to_json(hp, &f->hp);
    else
        add_zstr(hp, "error", f->hparams_err.msg);
    cJSON_AddNumberToObject(j, "tensor_count", (double)g->n_tensors);
    cJSON_AddNumberToObject(j, "parameters", (double)f->n_params);
    cJSON_AddNumberToObject(j, "tensor_bytes", (double)f->n_tensor_bytes);
    cJSON_AddItemToObject(j, "types", types_to_json(f));
    cJSON_AddItemToObject(j, "vocabulary", vocab_to_json(f));
    cJSON_AddItemToObject(j, "chat", chat_to_json(f));
    cJSON_AddItemToObject(j, "devices", devices_to_json(f));
    if (o->tensors)
        cJSON_AddItemToObject(j, "tensors", tensors_to_json(g));
    if (o->keys)
        cJSON_AddItemToObject(j, "keys", keys_to_json(g));
    return out_json(f->c->out, j, false, e);
}

/* ---- --check ---- */

/* First element that is not finite, or -1. `row`: room for the longest row. */
static int64_t find_bad(const struct gguf_tensor *t, float *row)
{
    size_t n_row = dtype_row_bytes(t->type, t->ne[0]);
    int64_t n_rows = t->ne[1] * t->ne[2] * t->ne[3];

    for (int64_t r = 0; r < n_rows; r++) {
        quant_decoder(t->type)((const char *)t->data + (size_t)r * n_row, row, t->ne[0]);
        for (int64_t i = 0; i < t->ne[0]; i++)
            if (!isfinite(row[i]))
                return r * t->ne[0] + i;
    }
    return -1;
}

static enum status check_tensor(const struct gguf_tensor *t, struct err *e)
{
    float *row = mem_array((size_t)t->ne[0], sizeof *row);
    int64_t bad, block = dtype_info(t->type)->block;

    if (!row)
        return err_nomem(e, "a row of a tensor", (size_t)t->ne[0] * sizeof *row);
    bad = find_bad(t, row);
    if (bad >= 0)
        err_set(e, ST_MODEL, "tensor '%s' has a value that is not finite: element %lld, block %lld",
                t->name, (long long)bad, (long long)(bad / block));
    mem_free(row);
    return bad >= 0 ? ST_MODEL : ST_OK;
}

/* All tensors; each bad one gets a line, and the status is that of the first. */
static enum status check_tensors(const struct facts *f, struct err *e)
{
    const struct gguf *g = f->s.file;
    size_t n_bad = 0;

    for (size_t i = 0; i < g->n_tensors; i++) {
        struct err one;
        enum status st;
        if (atomic_load(f->c->cancel))
            return err_set(e, ST_CANCELLED, "interrupted");
        st = check_tensor(&g->tensors[i], &one);
        if (st == ST_NOMEM) {
            *e = one;
            return st;
        }
        out_progress(f->c->out, "checking", (double)i / (double)g->n_tensors);
        if (st && n_bad++)
            out_note(f->c->out, "%s", one.msg);
        else if (st)
            *e = one;
    }
    out_progress_end(f->c->out);
    if (n_bad > 1)
        err_context(e, "%zu tensors are damaged", n_bad);
    return n_bad ? ST_MODEL : ST_OK;
}

enum status cmd_info(struct cli *c, struct err *e)
{
    struct facts f;
    enum status st = facts_read(&f, c, e);

    if (!st)
        st = c->opt->json ? print_json(&f, e) : print_text(&f, e);
    if (!st && c->opt->check)
        st = check_tensors(&f, e);
    facts_release(&f);
    return st;
}
