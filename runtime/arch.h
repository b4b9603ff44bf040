/*
 * Architectures: data plus one function. To add one: models/<name>.c and a row in arch.def; the loader,
 * the shape checks, `info` and the random models of the tests read its table of tensors, and nobody else
 * asks which architecture it is.
 *
 * Weights land in two structs that hold nothing but pointers to tensors: the architecture's `globals`, once,
 * and its `layer`, once per layer. model->weights is these structs one after the other:
 *
 *     weights: | globals | layer 0 | layer 1 | ... |      a row's slot = index of its pointer in its struct
 */
#ifndef GGRUN_RUNTIME_ARCH_H
#define GGRUN_RUNTIME_ARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/tensor.h"
#include "gguf/base/status.h"
#include "gguf/reader.h"
#include "runtime/hparams.h"
#include "runtime/model.h"

struct graph;
struct inputs;
struct kvcache;
struct reuse_facts;
struct state;

/* Sizes in terms of hyperparameters; arch_dim gives the number. */
enum dim {
    D_NONE,     /* no such dimension */
    D_EMBD,     /* n_embd */
    D_Q,        /* n_head * n_embd_head_k */
    D_K,        /* n_head_kv * n_embd_head_k */
    D_V,        /* n_head_kv * n_embd_head_v */
    D_O,        /* n_head * n_embd_head_v: what attention gives */
    D_Q_2,      /* twice D_Q: queries with gates */
    D_QKV,      /* D_Q + D_K + D_V: one product for all three */
    D_HEAD_K,   /* n_embd_head_k */
    D_N_HEAD,   /* n_head */
    D_N_HEAD_KV, /* n_head_kv */
    D_FF,       /* n_ff */
    D_FF_2,     /* 2 * n_ff: gate and up in one product */
    D_FF_EXP,   /* n_ff of an expert */
    D_FF_EXP_2, /* twice that */
    D_FF_SHARED, /* n_ff of the shared expert */
    D_EXPERTS,  /* n_expert */
    D_Q_LORA,   /* latent attention: n_q_lora */
    D_KV_LORA,  /* n_kv_lora */
    D_KV_LATENT, /* n_kv_lora + n_rot */
    D_Q_MLA,    /* n_head * n_embd_head_k of a head before the latent product */
    D_NOPE_MLA, /* n_embd_head_k less n_rot of it */
    D_V_MLA,    /* n_embd_head_v of it */
    D_O_MLA,    /* n_head * that */
    D_CONV_KERNEL, /* recurrences: n_kernel of hparams.ssm */
    D_CONV,     /* n_conv */
    D_INNER,    /* n_inner */
    D_INNER_2,  /* twice that */
    D_STATE,    /* n_state */
    D_RANK,     /* n_rank */
    D_RANK_2,   /* twice that */
    D_SSM_X,    /* n_rank + 2 * n_state: time steps, B and C */
    D_SSM_IN,   /* n_inner + n_conv + n_rank: gate, x with B and C, time steps */
    D_SSM_GROUP, /* n_inner / n_group */
    D_N_GROUP,  /* n_group */
    D_EMBD_3,   /* 3 * n_embd */
    D_ONE,      /* 1, where a dimension has to be there */
    D_VOCAB,    /* n_vocab */
    D_CTX,      /* n_ctx_train */
    D_ROT_HALF, /* n_rot / 2 */
};

/* The op that reads a weight decides which types it may have. */
enum weight_use {
    USE_MATRIX, /* MUL_MAT: any float or quantised type */
    USE_EXPERTS, /* MUL_MAT_ID: likewise */
    USE_ROWS,   /* GET_ROWS: likewise */
    USE_VECTOR, /* norms, biases, RoPE factors: f32 */
};

/* Which layers have the tensor. */
enum weight_layers {
    ALL_LAYERS,
    DENSE_LAYERS,     /* with a network that is no mixture of experts */
    EXPERT_LAYERS,
    ATTENTION_LAYERS, /* with heads of keys and values */
    RECURRENT_LAYERS,
};

enum weight_place { PLACE_INPUT, PLACE_LAYER, PLACE_OUTPUT };

struct arch_tensor {
    const char *name; /* in files; "%d" stands for the layer, and makes the tensor one per layer */
    int slot;         /* index of its pointer in globals or, with "%d", in layer: ARCH_SLOT */
    enum dim ne[3];   /* innermost first */
    enum weight_use use;
    enum weight_place place; /* which part of the model it goes with, when devices share one */
    enum weight_layers layers;
    bool optional;
    const char *instead; /* name of the tensor that takes the place of an absent one (tied output) */
    const char *unless;  /* name of the tensor beside which this one may be absent (fused weights) */
};

#define ARCH_SLOT(type, field) ((int)(offsetof(type, field) / sizeof(struct tensor *)))
#define ARCH_SLOTS(type)       ((int)(sizeof(type) / sizeof(struct tensor *)))

/* What a build sees: the model and plain facts. Equal facts give an equal graph. */
struct build {
    struct graph *g;
    const struct model *m;
    const struct kvcache *kv;
    const struct state *state; /* of recurrent layers */
    const struct reuse_facts *f;
    struct inputs *in;     /* filled with the graph's inputs */
    bool no_flash_attn;    /* attention as products and a softmax: the session's choice, in all its graphs */
    struct tensor *logits; /* set by build: [n_vocab, n_outputs]; NULL when there are no outputs */
};

struct arch {
    const char *name;
    enum rope_mode rope;
    bool partial; /* layers may lack attention or a network: keys of 0 are right */
    const struct arch_tensor *tensors;
    int n_tensors;
    int n_globals, n_layer; /* slots of the two structs */
    /* Read keys that not all architectures have into hp, which holds the common ones; optional. */
    enum status (*keys)(struct hparams *hp, const struct gguf *g, struct err *e);
    /* Refuse what the file asks for and we cannot do; optional. */
    enum status (*check)(const struct hparams *hp, const struct gguf *g, struct err *e);
    /* One micro-batch as a graph. Errors stay in b->g. */
    void (*build)(struct build *b);
};

/* NULL when there is none of that name. */
const struct arch *arch_find(const char *name, size_t n);
/* Name of row i, NULL beyond the last. */
const char *arch_name(int i);

/* In layer il; dimensions of all layers do not look at it. */
int64_t arch_dim(const struct hparams *hp, enum dim d, uint32_t il);
/* Does layer il have a tensor of this row at all? */
bool arch_has(const struct arch_tensor *t, const struct hparams *hp, uint32_t il);
static inline bool arch_per_layer(const struct arch_tensor *t)
{
    return t->place == PLACE_LAYER;
}
/* Expected sizes of a row in layer il, 1 beyond its last; returns the number of dimensions. */
int arch_shape(const struct arch_tensor *t, const struct hparams *hp, uint32_t il,
               int64_t ne[TENSOR_DIMS]);
/* A name of the table (name, instead, unless) in files; `il` is ignored where there is no "%d". */
void arch_tensor_name(const char *name, uint32_t il, char out[TENSOR_NAME]);
/* Positions that a loaded model has a learned embedding for; 0: it encodes positions without a table. */
uint32_t arch_positions(const struct model *m);
/* Index in model->weights. */
int arch_index(const struct arch *a, const struct arch_tensor *t, uint32_t il);

/* The weights of a loaded model as the architecture's own structs. */
static inline const void *arch_globals(const struct model *m)
{
    return m->weights;
}
static inline const void *arch_layer(const struct model *m, uint32_t il)
{
    return m->weights + m->arch->n_globals + (size_t)il * (size_t)m->arch->n_layer;
}

#endif
