/*
 * Blocks: the parts that architectures are built from. All take and give tensors of the graph in the
 * build; n_tok is the micro-batch's number of tokens. Weights that may be NULL are biases.
 */
#ifndef GGRUN_RUNTIME_MODELS_BLOCKS_H
#define GGRUN_RUNTIME_MODELS_BLOCKS_H

#include "runtime/arch.h"
#include "runtime/graph.h"
#include "runtime/hparams.h"
#include "runtime/inputs.h"
#include "runtime/kvcache.h"
#include "runtime/reuse.h"

enum norm_kind { NORM_RMS, NORM_LAYER };

/* act of a feed-forward network: with a gate (up to FFN_GEGLU) act(gate x) * up x, without act(up x). */
enum ffn_act { FFN_SWIGLU, FFN_SWIGLU_OAI, FFN_GEGLU, FFN_GELU, FFN_RELU_SQR };

struct block_attn {
    struct tensor *q, *q_b; /* [n_embd, n_head * n_embd_head_k] */
    struct tensor *k, *k_b; /* [n_embd, n_head_kv * n_embd_head_k] */
    struct tensor *v, *v_b; /* [n_embd, n_head_kv * n_embd_head_v] */
    struct tensor *qkv, *qkv_b; /* [n_embd, all three]; where set, q, k, v are not used */
    struct tensor *o, *o_b; /* [n_head * n_embd_head_v, n_embd] */
    /*
     * Norms before RoPE: [n_embd_head_k] the same for each head, [n_embd_head_k, n_head] for each its own,
     * or of the whole row (as long as it). Keys are normalised only where queries are.
     */
    struct tensor *q_norm, *k_norm;
    struct tensor *q_norm_b, *k_norm_b; /* of norms of the whole row */
    struct tensor *sinks;               /* [n_head] */
};

struct block_ffn {
    struct tensor *gate, *gate_b; /* [n_embd, n_ff]; NULL: the first half of up is the gate, or there is none */
    struct tensor *up, *up_b;     /* [n_embd, n_ff] or, gate and up in one, [n_embd, 2 * n_ff] */
    struct tensor *down, *down_b; /* [n_ff, n_embd] */
    struct tensor *act_scale;     /* [n_ff] divides what act gives */
};

/* What the attention of every layer shares. */
struct block_attn_in {
    struct tensor *pos;     /* [n_tok] i32 */
    struct tensor *kv_rows; /* [n_tok] i64 */
    struct tensor *mask;    /* [n_kv, n_tok] f16 or f32; not used by block_attn_store */
    struct tensor *cells;   /* [n_kv, n_seqs] i32: rows of the cache that the mask's places stand for */
    int32_t n_seqs;         /* sequences with cells of their own; 0: no cells, the places are the first rows */
    uint32_t n_rows;        /* rows of the cache that are looked at: n_kv, more where cells choose among them */
    struct tensor *freqs;   /* RoPE frequency factors [n_rot/2], or NULL */
    struct param_rope rope;
    float scale;            /* of q.k */
    float softcap;          /* of scale q.k; 0: none */
    float max_bias;         /* of ALiBi, the mask then holds distances; 0: none */
    float clamp_qkv;        /* what the weights give is kept within; 0: not */
    struct tensor *q_scale; /* [1, 1, n_tok]: times q after RoPE; or NULL */
    bool no_rope;           /* positions are not encoded */
    enum norm_kind norm;    /* of queries and keys */
    bool unit_norm;         /* heads that were rotated are then normalised, without weights */
    bool gated;             /* q gives [query, gate] of each head; what attention gives is times sigmoid(gate) */
    bool norm_after_rope;   /* norms of heads come after RoPE */
};

/*
 * RoPE's parameters from the file's keys. YaRN's magnitude 1 + 0.1 ln(factor) is applied when the mix is
 * on (ext_factor != 0) and the factor is above 1, times the file's attn_factor; a log multiplier m divides it
 * by 1 + 0.1 m ln(factor), which is 1 in all for m = 1.
 * Source: YaRN, arXiv:2309.00071, sections 3.2 (ramp) and 3.4 (magnitude).
 */
void block_rope_params(struct param_rope *r, const struct hparams *hp, enum rope_mode mode);

/* x normalised over its rows; w and bias [ne0] may be NULL. */
struct tensor *block_norm(struct build *b, enum norm_kind kind, struct tensor *x, struct tensor *w,
                          struct tensor *bias);

/* w x + bias: x [n, ...] -> [m, ...]. */
/* w x, also where the rows of w are on several devices: each computes its own, and they are put together. */
struct tensor *block_product(struct build *b, struct tensor *w, struct tensor *x);
struct tensor *block_linear(struct build *b, struct tensor *w, struct tensor *bias, struct tensor *x);

/*
 * q [d, n_head, n_tok] against k [d, n_head_kv, n_kv] and v [d_v, n_head_kv, n_kv], views of the cache ->
 * [d_v, n_head, n_tok]; sinks [n_head] may be NULL.
 */
struct tensor *block_attend(struct build *b, const struct block_attn_in *in, struct tensor *q,
                            struct tensor *k, struct tensor *v, struct tensor *sinks);

/* x [n_embd, n_tok], normalised -> [n_embd, n_tok]; stores this micro-batch's keys and values first. */
struct tensor *block_attn(struct build *b, const struct block_attn *w, const struct block_attn_in *in,
                          struct tensor *x, uint32_t il);
/* Only store the keys and values: for the last layer of a micro-batch without outputs. */
void block_attn_store(struct build *b, const struct block_attn *w, const struct block_attn_in *in,
                      struct tensor *x, uint32_t il);

/* What act computes where there is no gate. */
enum unary_kind block_ffn_unary(enum ffn_act act);

/* x [n_embd, n] -> [n_embd, n]: down(act(gate x) * up x), or down(act(up x)) without a gate. */
struct tensor *block_ffn(struct build *b, const struct block_ffn *w, enum ffn_act act,
                         struct tensor *x, uint32_t il);

#endif
