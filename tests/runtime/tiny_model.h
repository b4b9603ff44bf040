/*
 * Random tiny models for tests, made from an architecture's table of tensors: a GGUF file in memory.
 */
#ifndef GGRUN_TESTS_TINY_MODEL_H
#define GGRUN_TESTS_TINY_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "gguf/base/status.h"
#include "gguf/writer.h"
#include "runtime/model.h"
#include "runtime/session.h"

/* One tensor before it is written; a hook may change all of it. */
struct tiny_tensor {
    char name[64];
    enum dtype type;
    int n_dims;
    int64_t ne[4];
    float *x; /* [ne] values to encode; a hook that makes ne larger gets zeros there */
    bool skip;
};

struct tiny_options {
    const char *arch; /* NULL: "llama" */
    uint32_t n_layer, n_embd, n_head, n_head_kv, n_ff, n_vocab, n_ctx; /* 0: 2, 64, 4, 2, 96, 128, 512 */
    enum dtype type;  /* of matrices and rows */
    uint64_t seed;
    bool tied;      /* leave out what another tensor can stand in for */
    bool experts;   /* of an architecture with and without: with, but for the first layer */
    bool optionals; /* write the optional tensors too: biases */
    const char *sim; /* of tiny_load: all layers on simulated accelerators, "2" of them; NULL: on the CPU */
    void (*keys)(void *ctx, struct gguf_writer *w);    /* after the usual keys; may be NULL */
    void (*tensor)(void *ctx, struct tiny_tensor *t);  /* for each tensor; may be NULL */
    void *ctx;
};

/* Sizes and keys with which every architecture of arch.def can be made, of every type: 4 layers, 256 wide. */
struct tiny_options tiny_arch(const char *arch, enum dtype type);
/* A hook for `keys` with the architecture's name as ctx: factors that some need; the others do not look. */
void tiny_scales(void *ctx, struct gguf_writer *w);

/* *bytes is released with mem_free. */
enum status tiny_write(const struct tiny_options *o, void **bytes, size_t *n, struct err *e);

/* The same, loaded. */
struct tiny {
    void *bytes;
    size_t n_bytes;
    struct devices devs;
    struct model *m;
};
enum status tiny_load(struct tiny *t, const struct tiny_options *o, struct err *e);
/* Load on the CPU from bytes that were written before (owned by t afterwards). */
enum status tiny_load_bytes(struct tiny *t, void *bytes, size_t n, struct err *e);
void tiny_release(struct tiny *t);
/* Options of a session on it: F32 cache, all outputs. */
struct session_options tiny_session(const struct tiny *t, uint32_t n_ctx, uint32_t n_ubatch);

/* A small generator: xorshift64*. */
struct tiny_rng {
    uint64_t s;
};
uint32_t tiny_next(struct tiny_rng *r);
float tiny_uniform(struct tiny_rng *r, float lo, float hi);

#endif
