/*
 * Reading a model's keys into hyperparameters, for hparams*.c: each value with its range.
 */
#ifndef GGRUN_RUNTIME_HPARAMS_KEYS_H
#define GGRUN_RUNTIME_HPARAMS_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gguf/base/status.h"
#include "gguf/reader.h"
#include "runtime/hparams.h"

#define EXPERTS_MAX 4096       /* as many are refused as damage */
#define N_MAX       (1u << 28) /* no width, head count or vocabulary of a real model comes near */

/* A sticky reader: after the first failure later reads do nothing, so the keys read as a list. */
struct keys {
    const struct gguf *g;
    const char *arch;
    struct err *e;
    enum status st;
    bool partial;  /* numbers per layer may be 0 */
    char key[128]; /* of the last read, with the architecture in front */
};

/* k->key of a name: "llama.block_count". */
const char *keys_name(struct keys *k, const char *name);
bool keys_has(struct keys *k, const char *name);
/* ST_MODEL naming the key read last, v and the range, unless lo <= v <= hi. */
void keys_check_u32(struct keys *k, uint32_t v, uint32_t lo, uint32_t hi);
/* *out holds the default; an absent optional key leaves it. */
void keys_u32(struct keys *k, const char *name, bool required, uint32_t lo, uint32_t hi,
              uint32_t *out);
/*
 * A number for all layers, or an array of one per layer; `field` is its place in struct layer_hparams, *max the
 * default and then the largest.
 */
void keys_u32_per_layer(struct keys *k, struct hparams *hp, const char *name, bool required,
                        size_t field, uint32_t *max);
/* A finite number above (or, with zero_ok, not below) 0. */
void keys_f32(struct keys *k, const char *name, bool required, bool zero_ok, float *out);

#endif
