/*
 * Layers with a recurrence in place of, or beside, attention: their memory is a state of fixed size
 * (runtime/state.h). Which kind is in hparams.ssm.
 *
 *   SSM_MAMBA      Mamba, arXiv:2312.00752
 *   SSM_MAMBA2     Mamba-2, arXiv:2405.21060
 *   SSM_DELTA*     Gated DeltaNet, arXiv:2412.06464
 *   SSM_SHORTCONV  a gated convolution over a few tokens: LFM2, arXiv:2511.23404
 */
#ifndef GGRUN_RUNTIME_MODELS_RECURRENT_H
#define GGRUN_RUNTIME_MODELS_RECURRENT_H

#include "runtime/models/blocks.h"

struct block_recurrent {
    struct tensor *in;            /* [n_embd, ...]: what follows is taken from its result */
    struct tensor *gate;          /* [n_embd, n_inner], or part of in */
    struct tensor *conv, *conv_b; /* [n_kernel, n_conv], [n_conv] */
    struct tensor *x;             /* [n_inner, n_rank + 2 * n_state]: time steps, B and C */
    struct tensor *dt, *dt_b;     /* [n_rank, n_inner] of time steps; bias of them, or of decays */
    struct tensor *dt_norm, *b_norm, *c_norm;
    struct tensor *a, *d;         /* rates of decay; share of x in the result */
    struct tensor *ba;            /* [n_embd, 2 * n_rank] strength of learning and decay, by head of keys */
    struct tensor *alpha, *beta;  /* [n_embd, n_rank] decay, strength of learning */
    struct tensor *norm;          /* of the result: [n_inner / n_group, n_group], or of a head */
    struct tensor *out;           /* [n_inner, n_embd] */
};

/* x [n_embd, n_tok], normalised -> [n_embd, n_tok]. The new state is stored whether the result is used or not. */
struct tensor *block_recurrent(struct build *b, const struct block_recurrent *w, struct tensor *x,
                               uint32_t il);

/* ---- rows of tensor tables ---- */

/* clang-format off */
#define ROW_REC_MATRIX(name, field, k, n, which) \
    {"blk.%d." name ".weight", DL(recurrent.field), {k, n}, USE_MATRIX, PLACE_LAYER, which}
#define ROW_REC_F32(name, field, k, n, which, may_miss) \
    {"blk.%d." name, DL(recurrent.field), {k, n}, USE_VECTOR, PLACE_LAYER, which, .optional = may_miss}
#define ROWS_CONV(which, may_miss_bias) \
    ROW_REC_F32("ssm_conv1d.weight", conv, D_CONV_KERNEL, D_CONV, which, false), \
    ROW_REC_F32("ssm_conv1d.bias", conv_b, D_CONV, D_NONE, which, may_miss_bias)
#define ROWS_MAMBA(which) \
    ROW_REC_MATRIX("ssm_in", in, D_EMBD, D_INNER_2, which), \
    ROWS_CONV(which, false), \
    ROW_REC_MATRIX("ssm_x", x, D_INNER, D_SSM_X, which), \
    ROW_REC_MATRIX("ssm_dt", dt, D_RANK, D_INNER, which), \
    ROW_REC_F32("ssm_dt.bias", dt_b, D_INNER, D_NONE, which, false), \
    ROW_REC_F32("ssm_a", a, D_STATE, D_INNER, which, false), \
    ROW_REC_F32("ssm_d", d, D_INNER, D_NONE, which, false), \
    ROW_REC_MATRIX("ssm_out", out, D_INNER, D_EMBD, which)
#define ROWS_MAMBA2(which, may_miss_norm) \
    ROW_REC_MATRIX("ssm_in", in, D_EMBD, D_SSM_IN, which), \
    ROWS_CONV(which, true), \
    ROW_REC_F32("ssm_dt.bias", dt_b, D_RANK, D_NONE, which, false), \
    ROW_REC_F32("ssm_a", a, D_ONE, D_RANK, which, false), \
    ROW_REC_F32("ssm_d", d, D_ONE, D_RANK, which, false), \
    ROW_REC_F32("ssm_norm.weight", norm, D_SSM_GROUP, D_N_GROUP, which, may_miss_norm), \
    ROW_REC_MATRIX("ssm_out", out, D_INNER, D_EMBD, which)
#define ROWS_SHORTCONV(which) \
    ROW_REC_MATRIX("shortconv.in_proj", in, D_EMBD, D_EMBD_3, which), \
    ROW_REC_F32("shortconv.conv.weight", conv, D_CONV_KERNEL, D_CONV, which, false), \
    ROW_REC_MATRIX("shortconv.out_proj", out, D_EMBD, D_EMBD, which)
#define ROWS_DELTA(which) \
    ROW_REC_MATRIX("attn_qkv", in, D_EMBD, D_CONV, which), \
    ROW_REC_MATRIX("attn_gate", gate, D_EMBD, D_INNER, which), \
    ROW_REC_F32("ssm_conv1d.weight", conv, D_CONV_KERNEL, D_CONV, which, false), \
    ROW_REC_F32("ssm_dt.bias", dt_b, D_RANK, D_NONE, which, false), \
    ROW_REC_F32("ssm_a", a, D_RANK, D_NONE, which, false), \
    ROW_REC_F32("ssm_norm.weight", norm, D_STATE, D_NONE, which, false), \
    ROW_REC_MATRIX("ssm_out", out, D_INNER, D_EMBD, which)
/* clang-format on */

#endif
