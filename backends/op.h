/*
 * Ops: what each computes, its sources and parameters. The rows are in op.def; constructors are in
 * runtime/graph.h. Every result is f32 and contiguous unless said otherwise; x, a, b below are f32.
 *
 * CONT        src0 any layout, any type                       same elements, contiguous, same type
 * CONCAT      a [n, ...], b [m, ...]                          [n + m, ...]: rows of a with those of b behind them
 * GET_ROWS    src0 [n, m] any type, src1 ids [k] i32          [n, k]: row ids[j] of src0, decoded
 * SET_ROWS    src0 [n, m] any type that can be encoded, src1 x [n, k], src2 ids [k] i64
 *                                                             view of src0 in which row ids[j] = x[j]
 * ADD, MUL, DIV  a, b                                         a (+|*|/) b, b repeated to a's shape
 * SCALE       x; s, bias                                      x * s + bias
 * CLAMP       x; lo, hi                                       min(max(x, lo), hi)
 * SOFT_MAX    x [n, n_tok, n_head, m], mask optional [n, n_tok, 1, m] (f16 or f32), sinks optional [n_head]; struct
 *             param_attn
 *                                                             exp(s) / sum over ne0 of exp(s), s = cap(scale x) + slope
 *                                                             mask, the sink among what is summed; see FLASH_ATTN
 * SOFTCAP     x; cap                                          cap * tanh(x / cap)
 * UNARY       x; kind                                         f(x): enum unary_kind
 * NORM        x, w and b optional [ne0]; eps                  (x - mean) / sqrt(variance + eps) [* w] [+ b], mean and
 *                                                             variance (of n, not n - 1) over ne0
 * RMS_NORM    x, w optional [ne0]; eps                        x / sqrt(mean(x^2 over ne0) + eps) [* w]
 * ROPE        x [d, n_head, n_tok], pos [n_tok] i32, freqs optional [n_rot/2]; struct param_rope
 * GLU         a, b same shape; kind                           act(a) * b
 * MUL_MAT     w [k, n] any type, or f32, f16, bf16 with n innermost; x [k, m, ...]
 *                                                             [n, m, ...]: sum over k of w[k,i] x[k,j];
 *             w's outer dimensions divide x's: consecutive planes of x share one of w, as heads do
 *
 * Choosing among the elements of a row:
 * TOP_K       x [n, n_tok]; struct param_top_k                [k, n_tok] i32: the places of the k largest of each row, the
 *             largest first; of equal ones the first; NaN is as small as -inf
 * ARGMAX      x [n, n_tok]                                    [n_tok] i32: the first of TOP_K
 * PICK        x [n, n_tok], ids [k, n_tok]                    [k, n_tok]: x[ids[i, j], j]
 * MASK_BITS   x [n, ...], bits [(n + 31) / 32] i32            x where bit i % 32 of bits[i / 32] is 1, else -inf
 *
 * Mixtures of experts; ids [n_used, n_tok] i32, of TOP_K, say which experts a token goes to:
 * MUL_MAT_ID  w [n_in, n_out, n_expert] any type, x [n_in, n_used or 1, n_tok], ids
 *                                                             [n_out, n_used, n_tok]: x[j, t] times w[ids[j, t]]
 * ADD_ID      x [n, n_used, n_tok], b [n, n_expert], ids      x[j, t] + b[ids[j, t]]
 * SHARES      x; floor                                        x / max(sum of x over ne0, floor)
 * MIX         x [n, n_used, n_tok], w [n_used, n_tok] or none [n, n_tok]: sum over j of w[j, t] x[j, t]
 *
 * Recurrences, token by token in one order, whatever the cut into micro-batches. The state before the first token is row
 * `from` ([1] i32) of `state` [n_state, n_slot], or zero when that is -1. The result's first n_tok rows are the outputs;
 * the n_state elements behind them are the state after the last token. With from [n_seqs] the tokens are those of as many
 * sequences, n_tok / n_seqs of each one after the other, and n_seqs states are behind the outputs:
 * SSM_CONV    x [d, n_tok], w [n, d], state [(n - 1) d], from  [d, n_tok + n - 1]: sum over j of w[j, c] x[c, t + j - (n - 1)], where
 *             the state stands for the n - 1 tokens before the first
 * SSM_SCAN    x [d, n_head, n_tok], dt [n_head, n_tok], a [n or 1, n_head], b and c [n, n_group, n_tok], state [n d n_head], from
 *                                                             [d n_head, n_tok + n]: s = exp(dt a) s + dt x b, then c.s, s [n]
 *             of each element of x; head h reads group h / (n_head/n_group)
 *             Sources: Mamba, arXiv:2312.00752, section 3.2; Mamba-2, arXiv:2405.21060, section 7
 * DELTA_NET   q and k [d, n_head_k, n_tok], v [d_v, n_head, n_tok], decay and beta [n_head, n_tok], state [d d_v n_head], from; tiled
 *                                                             [d_v n_head, n_tok + d]: s = exp(decay) s, then
 *             s += beta (v - s.k) k, then s.q, s [d] of each element of v; head h reads h / (n_head/n_head_k) of q and k or,
 *             tiled, h % n_head_k
 *             Source: Gated Delta Networks, arXiv:2412.06464, section 3.1
 *
 * FLASH_ATTN  q [d, n_head, n_tok], k [d, n_head_kv, n_kv], v [d_v, n_head_kv, n_kv] (any type, any
 *             outer strides), mask [n_kv, n_tok] (f16 or f32), sinks optional [n_head], cells optional
 *             [n_kv, n_seqs] i32; struct param_attn
 *                                                             [d_v, n_head, n_tok]:
 *             softmax over n_kv of (cap(scale q.k) + slope mask) times v, where cap(s) = softcap tanh(s / softcap),
 *             or s when softcap is 0; head h reads kv head h / (n_head/n_head_kv). A sink takes part in the softmax
 *             of its head like a score, and has no value: the weights add up to less than 1. With cells, place j of
 *             the mask is row cells[j] of k and v, which may have more rows than n_kv: places are taken in order,
 *             wherever their rows are. The tokens are then those of n_seqs sequences, n_tok / n_seqs of each one after
 *             the other; a token reads the cells of its sequence
 */
#ifndef GGRUN_BACKENDS_OP_H
#define GGRUN_BACKENDS_OP_H

#include <stdint.h>

#include "gguf/base/status.h"

#define OP(NAME, sources, flags, shape) OP_##NAME,
enum op {
#include "backends/op.def"
    OP_COUNT
};

enum op_flag {
    OPF_VIEW = 1,
    OPF_INPLACE = 2,
    OPF_WRITES = 4,
};

struct tensor;

struct op_info {
    const char *name;
    int n_src;
    unsigned flags; /* enum op_flag */
    enum status (*shape)(struct tensor *t, struct err *e);
};

const struct op_info *op_info(enum op op);
static inline const char *op_name(enum op op)
{
    return op_info(op)->name;
}

/*
 * Shape rule of t->op: with op, sources, params (and for RESHAPE, VIEW, PERMUTE the fields named in
 * runtime/graph.h) set, check the sources and set type, ne, nb, view_src and view_offs. A mismatch is
 * ST_MODEL and names op, tensors and shapes: the shapes come from a file.
 */
enum status op_shape(struct tensor *t, struct err *e);

/* ---- parameters, stored in tensor.params ---- */

struct param_scale {
    float s, bias;
};

struct param_clamp {
    float lo, hi; /* lo <= hi */
};

/*
 * With n_group > 0 the row is n_group parts of equal length; only the n_group_used parts with the largest
 * sums of their two largest elements take part. Source: DeepSeek-V3, arXiv:2412.19437, section 2.1.2.
 */
struct param_top_k {
    int32_t k;
    int32_t n_group, n_group_used;
};

struct param_shares {
    float floor;
};

struct param_softcap {
    float cap; /* finite, above 0 */
};

enum unary_kind {
    UNARY_SILU,    /* x / (1 + exp(-x)) */
    UNARY_GELU,    /* tanh form, as GLU_GEGLU */
    UNARY_RELU,    /* max(x, 0) */
    UNARY_RELU_SQR, /* max(x, 0)^2 */
    UNARY_SIGMOID, /* 1 / (1 + exp(-x)) */
    UNARY_SOFTPLUS, /* log(1 + exp(x)) */
    UNARY_COUNT,
};

struct param_unary {
    int32_t kind; /* enum unary_kind */
};

/* Of NORM too. */
struct param_rms_norm {
    float eps;
};

enum rope_mode {
    ROPE_NORM, /* pairs (2i, 2i+1) */
    ROPE_NEOX, /* pairs (i, i + n_rot/2) */
};

/*
 * Rotate pairs of each head by the token's position.
 *   angle of pair i: theta_i = pos * base^(-2i/n_rot) / freqs[i] (freqs absent: 1)
 *   interpolated     theta_i * freq_scale; YaRN mixes both by a ramp over i from corr_lo to corr_hi with
 *                    weight ext_factor; cos and sin are multiplied by attn_factor
 *   (attn_factor holds the whole magnitude; model code computes it, kernels only multiply)
 * Elements beyond n_rot are copied.
 * Sources: RoFormer, arXiv:2104.09864; YaRN, arXiv:2309.00071, section 3.
 */
struct param_rope {
    int32_t mode;  /* enum rope_mode */
    int32_t n_rot; /* even, <= ne[0] */
    float base;
    float freq_scale;  /* 1 / scaling factor */
    float ext_factor;  /* 0: no YaRN mix; 1: full */
    float attn_factor; /* magnitude of cos and sin */
    float corr_lo, corr_hi; /* pairs where the YaRN ramp starts and ends (0..n_rot-1) */
};

enum glu_kind {
    GLU_SWIGLU, /* act(a) = a / (1 + exp(-a)) */
    GLU_SWIGLU_OAI, /* (b' + 1) a' / (1 + exp(-1.702 a')), a' = min(a, 7), b' = b within -7 .. 7 */
    GLU_GEGLU,  /* act(a) = GELU, tanh form: a/2 (1 + tanh(sqrt(2/pi) (a + 0.044715 a^3))), computed in f32 */
    GLU_COUNT,
};

struct param_glu {
    int32_t kind; /* enum glu_kind */
};

struct param_delta_net {
    int32_t tiled; /* bool */
};

/*
 * Of FLASH_ATTN and SOFT_MAX.
 *
 * max_bias b above 0: ALiBi. A head's slope multiplies the mask, which then holds minus the distance from
 * query to key. With p the largest power of two that is not above n_head, head h = 0, 1, ... has the slope
 * 2^(-b (h + 1) / p), and where h >= p, 2^(-b (h - p + 1/2) / p). Else the slope is 1.
 * Sources: ALiBi, arXiv:2108.12409, section 3; head counts that are no power of two: its authors' code.
 * Sinks: arXiv:2309.17453, section 3.2, and OpenAI's gpt-oss.
 */
struct param_attn {
    float scale;
    float softcap;  /* finite, above 0; 0: none */
    float max_bias; /* finite, above 0; 0: none */
};

/* Parameters of t->op, read (a copy) and written; size is at most 64 bytes. */
#define op_param_get(t, ptr) op_param_copy_out((t), (ptr), sizeof *(ptr))
#define op_param_set(t, ptr) op_param_copy_in((t), (ptr), sizeof *(ptr))
void op_param_copy_out(const struct tensor *t, void *p, unsigned n);
void op_param_copy_in(struct tensor *t, const void *p, unsigned n);

#endif
