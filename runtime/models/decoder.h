/*
 * Decoder: the transformer that most architectures are, with what they vary. An architecture lists its
 * tensors from the rows below and calls decoder_build; a step whose weight is absent (a norm, a bias, a
 * gate) is left out.
 *
 *     x = embd * embd_scale
 *     per layer:  x += attn_post_norm(attention(attn_norm(x))) * residual_scale
 *                 x += ffn_post_norm(ffn(ffn_norm(x))) * residual_scale
 *     or parallel: x += attention(attn_norm(x)) + ffn(ffn_norm(x)), one norm for both where there is but one
 *     logits = softcap((output(output_norm(x)) + bias) * logit_scale)
 *
 * In recurrent layers (layer_hparams.recurrent) a recurrence stands in for attention or, where there are heads of
 * keys, is added to it. A layer with neither is a network after attn_norm, one without a network ends before ffn_norm.
 * Layers with a sliding window (layer_hparams.windowed) have a mask and a RoPE base of their own.
 */
#ifndef GGRUN_RUNTIME_MODELS_DECODER_H
#define GGRUN_RUNTIME_MODELS_DECODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/arch.h"
#include "runtime/models/blocks.h"
#include "runtime/models/experts.h"
#include "runtime/models/latent.h"
#include "runtime/models/recurrent.h"

struct decoder_globals {
    struct tensor *tok_embd;               /* [n_embd, n_vocab] */
    struct tensor *tok_norm, *tok_norm_b;  /* [n_embd] norm of what tok_embd gives */
    struct tensor *pos_embd;               /* [n_embd, n_ctx_train] added to it, by position */
    struct tensor *output_norm, *output_norm_b; /* [n_embd] */
    struct tensor *output, *output_b;      /* [n_embd, n_vocab] */
    struct tensor *rope_freqs;             /* [n_rot/2] factors */
    struct tensor *rope_long, *rope_short; /* the same by the length of the context (longrope) */
};

struct decoder_layer {
    struct tensor *attn_norm, *attn_norm_b;     /* [n_embd], as all norms */
    struct tensor *attn_norm_2, *attn_norm_2_b; /* of attention alone; attn_norm is then the network's */
    struct block_attn attn;
    struct block_latent latent; /* in place of attn, where kv_a is there */
    struct block_recurrent recurrent; /* in place of attn, or beside it where there are heads of keys */
    struct tensor *attn_post_norm;
    struct tensor *ffn_norm, *ffn_norm_b;
    struct block_ffn ffn;
    struct block_experts experts; /* in place of ffn, in layers that have them */
    struct tensor *ffn_post_norm;
};

/* What is no weight. Zero: as in llama. */
struct decoder {
    float embd_scale, residual_scale, logit_scale; /* 0: none */
    bool embd_scale_ids;     /* embeddings given in place of ids are not scaled */
    float attn_scale;        /* of q.k; 0: 1 / sqrt(n_embd_head_k) */
    float clamp_qkv;         /* Q, K and V are kept within -clamp_qkv .. clamp_qkv; 0: not */
    float attn_softcap;      /* of attn_scale q.k; 0: none */
    float alibi;             /* max_bias of ALiBi; 0: none. Goes with no_rope_step 1, and without windows */
    enum ffn_act act;        /* of the feed-forward network */
    struct experts_kind experts;
    enum norm_kind norm;     /* of all norms */
    bool bare_norms;         /* the norms of x have no weights: absent ones are computed all the same */
    bool parallel;           /* attention and feed-forward network see the same x */
    struct tensor *q_scale;  /* [1, 1, n_tok] or NULL */
    bool scale_unrotated;    /* q_scale is for layers without positions only */
    bool unit_norm;          /* heads of Q and K are normalised after RoPE, without weights */
    uint32_t no_rope_step;   /* every such layer does without positions; 0: none does */
    bool rope_windows_only;  /* layers that see everything do without positions */
    bool norm_after_rope;
    bool window_unscaled;    /* layers with a window rotate without RoPE's scaling, of whatever type */
    bool gated;              /* queries come with as wide a gate of what attention gives, head by head */
    bool rope_neox;          /* pairs as in ROPE_NEOX whatever the row of the architecture says */
};

/* One micro-batch. */
void decoder_build(struct build *b, const struct decoder *d);
/* The same with nothing special, as an architecture's build. */
void decoder_build_plain(struct build *b);

/* ST_UNSUPPORTED "...: `what` are not supported yet" when key <arch>.`name` is there and not 0. */
enum status decoder_refuse(const struct gguf *g, const char *name, const char *what, struct err *e);
/* A check: mixtures of experts. */
enum status decoder_check_dense(const struct hparams *hp, const struct gguf *g, struct err *e);
/* Keys of mixtures of experts. */
enum status decoder_keys_experts(struct hparams *hp, const struct gguf *g, struct err *e);
/* A check: longrope without its tables. */
enum status decoder_check_factors(const struct hparams *hp, const struct gguf *g, struct err *e);
/* Both. */
enum status decoder_check_dense_factors(const struct hparams *hp, const struct gguf *g,
                                        struct err *e);

/* ---- rows of tensor tables ---- */

#define DG(field) ARCH_SLOT(struct decoder_globals, field)
#define DL(field) ARCH_SLOT(struct decoder_layer, field)

/* clang-format off */
#define ROW_TOKENS \
    {"token_embd.weight", DG(tok_embd), {D_EMBD, D_VOCAB}, USE_ROWS, PLACE_INPUT}
#define ROW_OUTPUT_NORM \
    {"output_norm.weight", DG(output_norm), {D_EMBD}, USE_VECTOR, PLACE_OUTPUT}
#define ROW_GLOBAL_BIAS(name, field) \
    {name ".bias", DG(field), {D_EMBD}, USE_VECTOR, PLACE_OUTPUT, .optional = true}
/* Of a layer norm. */
#define ROWS_OUTPUT_NORM ROW_OUTPUT_NORM, ROW_GLOBAL_BIAS("output_norm", output_norm_b)
#define ROW_POSITIONS \
    {"position_embd.weight", DG(pos_embd), {D_EMBD, D_CTX}, USE_ROWS, PLACE_INPUT}
#define ROW_OUTPUT \
    {"output.weight", DG(output), {D_EMBD, D_VOCAB}, USE_MATRIX, PLACE_OUTPUT}
#define ROW_OUTPUT_OR_TIED \
    {"output.weight", DG(output), {D_EMBD, D_VOCAB}, USE_MATRIX, PLACE_OUTPUT, \
     .optional = true, .instead = "token_embd.weight"}
#define ROW_OUTPUT_BIAS \
    {"output.bias", DG(output_b), {D_VOCAB}, USE_VECTOR, PLACE_OUTPUT, .optional = true}
#define ROW_ROPE_FACTORS(name, field) \
    {name ".weight", DG(field), {D_ROT_HALF}, USE_VECTOR, PLACE_INPUT, .optional = true}
#define ROWS_ROPE_FACTORS \
    ROW_ROPE_FACTORS("rope_freqs", rope_freqs), \
    ROW_ROPE_FACTORS("rope_factors_long", rope_long), \
    ROW_ROPE_FACTORS("rope_factors_short", rope_short)

#define ROW_NORM(name, field, n) \
    {"blk.%d." name ".weight", DL(field), {n}, USE_VECTOR, PLACE_LAYER}
#define ROW_OPTIONAL_NORM(name, field) \
    {"blk.%d." name ".weight", DL(field), {D_EMBD}, USE_VECTOR, PLACE_LAYER, .optional = true}
#define ROW_MATRIX(name, field, k, n) \
    {"blk.%d." name ".weight", DL(field), {k, n}, USE_MATRIX, PLACE_LAYER}
#define ROW_BIAS(name, field, n) \
    {"blk.%d." name ".bias", DL(field), {n}, USE_VECTOR, PLACE_LAYER, .optional = true}

/* A layer norm: weight and bias [n_embd]. */
#define ROWS_NORM(name, field) \
    ROW_NORM(name, field, D_EMBD), ROW_BIAS(name, field##_b, D_EMBD)

#define ROWS_QKV \
    ROW_MATRIX("attn_q", attn.q, D_EMBD, D_Q), ROW_BIAS("attn_q", attn.q_b, D_Q), \
    ROW_MATRIX("attn_k", attn.k, D_EMBD, D_K), ROW_BIAS("attn_k", attn.k_b, D_K), \
    ROW_MATRIX("attn_v", attn.v, D_EMBD, D_V), ROW_BIAS("attn_v", attn.v_b, D_V)
/* Of some layers only. */
#define ROW_NORM_OF(name, field, n, which) \
    {"blk.%d." name ".weight", DL(field), {n}, USE_VECTOR, PLACE_LAYER, which}
#define ROW_MATRIX_OF(name, field, k, n, which) \
    {"blk.%d." name ".weight", DL(field), {k, n}, USE_MATRIX, PLACE_LAYER, which}
#define ROW_BIAS_OF(name, field, n, which) \
    {"blk.%d." name ".bias", DL(field), {n}, USE_VECTOR, PLACE_LAYER, which, .optional = true}
/* Attention of some layers: Q, K, V and the output. */
#define ROWS_QKV_OF(which) \
    ROW_MATRIX_OF("attn_q", attn.q, D_EMBD, D_Q, which), ROW_BIAS_OF("attn_q", attn.q_b, D_Q, which), \
    ROW_MATRIX_OF("attn_k", attn.k, D_EMBD, D_K, which), ROW_BIAS_OF("attn_k", attn.k_b, D_K, which), \
    ROW_MATRIX_OF("attn_v", attn.v, D_EMBD, D_V, which), ROW_BIAS_OF("attn_v", attn.v_b, D_V, which), \
    ROW_MATRIX_OF("attn_output", attn.o, D_O, D_EMBD, which), \
    ROW_BIAS_OF("attn_output", attn.o_b, D_EMBD, which)
#define ROW_UNLESS_FUSED(name, field, n) \
    {"blk.%d." name ".weight", DL(field), {D_EMBD, n}, USE_MATRIX, PLACE_LAYER, \
     .unless = "blk.%d.attn_qkv.weight"}
/* Three matrices or one for all. */
#define ROWS_QKV_OR_FUSED \
    ROW_UNLESS_FUSED("attn_q", attn.q, D_Q), ROW_BIAS("attn_q", attn.q_b, D_Q), \
    ROW_UNLESS_FUSED("attn_k", attn.k, D_K), ROW_BIAS("attn_k", attn.k_b, D_K), \
    ROW_UNLESS_FUSED("attn_v", attn.v, D_V), ROW_BIAS("attn_v", attn.v_b, D_V), \
    {"blk.%d.attn_qkv.weight", DL(attn.qkv), {D_EMBD, D_QKV}, USE_MATRIX, PLACE_LAYER, \
     .optional = true}, \
    ROW_BIAS("attn_qkv", attn.qkv_b, D_QKV)
#define ROWS_QK_NORM(n_q, n_k) \
    ROW_NORM("attn_q_norm", attn.q_norm, n_q), ROW_NORM("attn_k_norm", attn.k_norm, n_k)
/* One norm for all heads, or none. */
#define ROW_HEAD_NORM(name, field) \
    {"blk.%d." name ".weight", DL(field), {D_HEAD_K}, USE_VECTOR, PLACE_LAYER, .optional = true}
/* A norm of each head's own. */
#define ROW_HEAD_NORMS(name, field, n) \
    {"blk.%d." name ".weight", DL(field), {D_HEAD_K, n}, USE_VECTOR, PLACE_LAYER, .optional = true}
#define ROW_SINKS \
    {"blk.%d.attn_sinks.weight", DL(attn.sinks), {D_N_HEAD}, USE_VECTOR, PLACE_LAYER}
#define ROWS_ATTN_OUT \
    ROW_MATRIX("attn_output", attn.o, D_O, D_EMBD), ROW_BIAS("attn_output", attn.o_b, D_EMBD)

#define ROW_DENSE(name, field, k, n) \
    {"blk.%d." name ".weight", DL(field), {k, n}, USE_MATRIX, PLACE_LAYER, DENSE_LAYERS}
#define ROWS_FFN \
    ROW_DENSE("ffn_gate", ffn.gate, D_EMBD, D_FF), ROW_BIAS("ffn_gate", ffn.gate_b, D_FF), \
    ROW_DENSE("ffn_up", ffn.up, D_EMBD, D_FF), ROW_BIAS("ffn_up", ffn.up_b, D_FF), \
    ROW_DENSE("ffn_down", ffn.down, D_FF, D_EMBD), ROW_BIAS("ffn_down", ffn.down_b, D_EMBD)
/* Without a gate. */
#define ROWS_FFN_PLAIN \
    ROW_MATRIX("ffn_up", ffn.up, D_EMBD, D_FF), ROW_BIAS("ffn_up", ffn.up_b, D_FF), \
    ROW_MATRIX("ffn_down", ffn.down, D_FF, D_EMBD), ROW_BIAS("ffn_down", ffn.down_b, D_EMBD)
/* Gate and up in one matrix. */
#define ROWS_FFN_FUSED \
    ROW_MATRIX("ffn_up", ffn.up, D_EMBD, D_FF_2), \
    ROW_MATRIX("ffn_down", ffn.down, D_FF, D_EMBD)

#define ROW_ROUTER \
    {"blk.%d.ffn_gate_inp.weight", DL(experts.gate_inp), {D_EMBD, D_EXPERTS}, USE_MATRIX, PLACE_LAYER, \
     EXPERT_LAYERS}
#define ROW_SELECTION_BIAS \
    {"blk.%d.exp_probs_b.bias", DL(experts.probs_b), {D_EXPERTS}, USE_VECTOR, PLACE_LAYER, EXPERT_LAYERS, \
     .optional = true}
#define ROW_EXPERTS(name, field, k, n) \
    {"blk.%d." name "_exps.weight", DL(field), {k, n, D_EXPERTS}, USE_EXPERTS, PLACE_LAYER, EXPERT_LAYERS}
#define ROWS_EXPERTS \
    ROW_ROUTER, \
    ROW_EXPERTS("ffn_gate", experts.gate, D_EMBD, D_FF_EXP), \
    ROW_EXPERTS("ffn_up", experts.up, D_EMBD, D_FF_EXP), \
    ROW_EXPERTS("ffn_down", experts.down, D_FF_EXP, D_EMBD)
#define ROW_EXPERTS_BIAS(name, field, n) \
    {"blk.%d." name "_exps.bias", DL(field), {n, D_EXPERTS}, USE_VECTOR, PLACE_LAYER, EXPERT_LAYERS, \
     .optional = true}
#define ROWS_EXPERTS_BIASES \
    {"blk.%d.ffn_gate_inp.bias", DL(experts.gate_inp_b), {D_EXPERTS}, USE_VECTOR, PLACE_LAYER, EXPERT_LAYERS, \
     .optional = true}, \
    ROW_EXPERTS_BIAS("ffn_gate", experts.gate_b, D_FF_EXP), \
    ROW_EXPERTS_BIAS("ffn_up", experts.up_b, D_FF_EXP), \
    ROW_EXPERTS_BIAS("ffn_down", experts.down_b, D_EMBD)
#define ROW_EXPERTS_UNLESS_FUSED(name, field) \
    {"blk.%d." name "_exps.weight", DL(field), {D_EMBD, D_FF_EXP, D_EXPERTS}, USE_EXPERTS, PLACE_LAYER, \
     EXPERT_LAYERS, .unless = "blk.%d.ffn_gate_up_exps.weight"}
/* Gate and up apart or in one. */
#define ROWS_EXPERTS_OR_FUSED \
    ROW_ROUTER, \
    ROW_EXPERTS_UNLESS_FUSED("ffn_gate", experts.gate), \
    ROW_EXPERTS_UNLESS_FUSED("ffn_up", experts.up), \
    {"blk.%d.ffn_gate_up_exps.weight", DL(experts.gate_up), {D_EMBD, D_FF_EXP_2, D_EXPERTS}, USE_EXPERTS, \
     PLACE_LAYER, EXPERT_LAYERS, .optional = true}, \
    ROW_EXPERTS("ffn_down", experts.down, D_FF_EXP, D_EMBD)
#define ROW_SHARED_GATE \
    {"blk.%d.ffn_gate_inp_shexp.weight", DL(experts.shared_gate), {D_EMBD}, USE_MATRIX, PLACE_LAYER, \
     EXPERT_LAYERS}
#define ROW_SHARED(name, field, k, n, may_miss) \
    {"blk.%d." name "_shexp.weight", DL(experts.shared.field), {k, n}, USE_MATRIX, PLACE_LAYER, EXPERT_LAYERS, \
     .optional = may_miss}
#define ROWS_SHARED_IF(may_miss) \
    ROW_SHARED("ffn_gate", gate, D_EMBD, D_FF_SHARED, may_miss), \
    ROW_SHARED("ffn_up", up, D_EMBD, D_FF_SHARED, may_miss), \
    ROW_SHARED("ffn_down", down, D_FF_SHARED, D_EMBD, may_miss)
#define ROWS_SHARED ROWS_SHARED_IF(false)
#define ROWS_SHARED_OPTIONAL ROWS_SHARED_IF(true)
/* clang-format on */

/* The members of struct arch that follow from a table of these rows. */
#define DECODER_TABLE(t)                                                                           \
    .tensors = (t), .n_tensors = sizeof(t) / sizeof(t)[0],                                         \
    .n_globals = ARCH_SLOTS(struct decoder_globals), .n_layer = ARCH_SLOTS(struct decoder_layer)

#endif
