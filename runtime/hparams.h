/*
 * Hyperparameters: the metadata keys that architectures share. Keys of one architecture only are in its
 * own file (models/<name>.c).
 */
#ifndef GGRUN_RUNTIME_HPARAMS_H
#define GGRUN_RUNTIME_HPARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "gguf/base/status.h"
#include "gguf/reader.h"

#define LAYERS_MAX 1024 /* more in a file is refused as damage */

enum rope_scaling { ROPE_SCALING_NONE, ROPE_SCALING_LINEAR, ROPE_SCALING_YARN, ROPE_SCALING_LONGROPE };

/* Mixtures of experts, of architectures that call hparams_read_experts; n_expert 0: there are none. */
struct hparams_experts {
    uint32_t n_expert;      /* <arch>.expert_count */
    uint32_t n_used;        /* <arch>.expert_used_count: of each token */
    uint32_t n_ff;          /* <arch>.expert_feed_forward_length; default n_ff */
    uint32_t n_shared;      /* <arch>.expert_shared_count */
    uint32_t n_ff_shared;   /* <arch>.expert_shared_feed_forward_length; default n_shared * n_ff of experts */
    uint32_t n_dense;       /* <arch>.leading_dense_block_count: layers without experts before the others */
    uint32_t step;          /* <arch>.interleave_moe_layer_step: every such layer has them; default 1 */
    uint32_t n_group, n_group_used; /* <arch>.expert_group_count, .expert_group_used_count; default 0 */
    uint32_t gating;        /* <arch>.expert_gating_func: enum router; 0: the architecture's own */
    float weights_scale;    /* <arch>.expert_weights_scale; 0: none */
    bool weights_norm;      /* <arch>.expert_weights_norm */
};

/* Latent attention, of architectures that read it; n_kv_lora 0: none. */
struct hparams_latent {
    uint32_t n_q_lora;      /* <arch>.attention.q_lora_rank; 0: queries come straight from x */
    uint32_t n_kv_lora;     /* <arch>.attention.kv_lora_rank: width of what is cached, less its rotated part */
    uint32_t n_embd_head_k; /* <arch>.attention.key_length_mla: of a head, n_rot of them rotated */
    uint32_t n_embd_head_v; /* <arch>.attention.value_length_mla */
};

enum ssm_kind {
    SSM_MAMBA,       /* no groups; n_inner channels are convolved */
    SSM_MAMBA2,      /* n_rank heads, in n_group groups; n_inner + 2 n_group n_state channels */
    SSM_DELTA,       /* n_rank heads of values, n_group of keys; as many channels */
    SSM_DELTA_TILED, /* the same; head h of values goes with head h % n_group of keys */
    SSM_SHORTCONV,   /* n_embd channels are convolved, nothing is scanned */
};

/* Recurrences, of architectures that call hparams_read_ssm; all 0: none. */
struct hparams_ssm {
    enum ssm_kind kind;
    uint32_t n_kernel; /* <arch>.ssm.conv_kernel or .shortconv.l_cache: tokens that a convolution sees */
    uint32_t n_conv;   /* channels that are convolved */
    uint32_t n_inner;  /* <arch>.ssm.inner_size: width of what the scan gives */
    uint32_t n_state;  /* <arch>.ssm.state_size: numbers that the scan keeps for each of n_inner */
    uint32_t n_rank;   /* <arch>.ssm.time_step_rank: rank of the time steps, or number of heads */
    uint32_t n_group;  /* <arch>.ssm.group_count */
    bool norm_dt_b_c;  /* <arch>.ssm.dt_b_c_rms: time steps, B and C are normalised */
};

/* What differs from layer to layer. */
struct layer_hparams {
    uint32_t n_ff;      /* <arch>.feed_forward_length: a number, or one per layer; 0: no such network */
    uint32_t n_head;    /* <arch>.attention.head_count: likewise */
    uint32_t n_head_kv; /* <arch>.attention.head_count_kv: likewise; default n_head; 0: no attention */
    bool recurrent;     /* has a recurrence, and so a state; with or in place of attention */
    bool windowed;      /* sees n_window positions only */
    bool experts;       /* its feed-forward network is a mixture of experts */
};

struct hparams {
    uint32_t n_vocab;
    uint32_t n_ctx_train;  /* <arch>.context_length */
    uint32_t n_embd;       /* <arch>.embedding_length */
    uint32_t n_layer;      /* <arch>.block_count */
    uint32_t n_ff, n_head, n_head_kv; /* the largest of a layer */
    uint32_t n_embd_head_k; /* <arch>.attention.key_length; default n_embd / n_head */
    uint32_t n_embd_head_v; /* <arch>.attention.value_length; default n_embd / n_head */
    uint32_t n_rot;        /* <arch>.rope.dimension_count; default n_embd_head_k */
    float norm_eps;        /* <arch>.attention.layer_norm_rms_epsilon or .layer_norm_epsilon */
    float rope_base;       /* <arch>.rope.freq_base; default 10000 */
    enum rope_scaling rope_scaling;
    float rope_scale;      /* 1 / <arch>.rope.scaling.factor; default 1 */
    uint32_t rope_n_ctx_orig; /* <arch>.rope.scaling.original_context_length; default n_ctx_train */
    float rope_attn_factor;   /* <arch>.rope.scaling.attn_factor; default 1 */
    float yarn_ext_factor;    /* default 1 for yarn, else 0 */
    float yarn_beta_fast, yarn_beta_slow; /* defaults 32, 1 */

    /* Sliding windows, of architectures that call hparams_read_window; else no layer has one. */
    uint32_t n_window;     /* positions that a windowed layer sees, the token's own among them; 0: all */
    bool window_chunked;   /* a windowed layer sees from the last multiple of n_window on instead */
    float rope_base_window;    /* RoPE of windowed layers: <arch>.rope.freq_base_swa */
    float softcap_attn, softcap_logits; /* 0: none; of architectures that call hparams_read_softcaps */
    float yarn_log_mul;       /* <arch>.rope.scaling.yarn_log_multiplier; default 0 */
    bool parallel_residual;   /* <arch>.use_parallel_residual; default true */
    bool rope_finetuned;      /* <arch>.rope.scaling.finetuned; default true */
    uint32_t rope_sections[4]; /* <arch>.rope.dimension_sections: pairs per axis; default 0 */
    /* Factors; 0: not given. */
    float embd_scale;         /* <arch>.embedding_scale */
    float residual_scale;     /* <arch>.residual_scale */
    float logit_scale;        /* <arch>.logit_scale */
    float attn_scale;         /* <arch>.attention.scale: of q.k */
    float max_alibi_bias;     /* <arch>.attention.max_alibi_bias */
    float clamp_qkv;          /* <arch>.attention.clamp_kqv: of Q, K and V */
    float attn_temp_scale;    /* <arch>.attention.temperature_scale */
    struct hparams_experts experts;
    struct hparams_latent latent; /* values are then the first n_embd_head_v elements of the cached keys */
    struct hparams_ssm ssm;
    struct layer_hparams layer[LAYERS_MAX]; /* [n_layer] */
};

/*
 * Read and check; every error names the key, the value found and the range or relation expected. `partial`:
 * layers may lack attention (head counts of 0) or a network (length 0), and RoPE.
 */
enum status hparams_read(struct hparams *hp, const struct gguf *g, const char *arch, bool partial,
                         struct err *e);

/* Give every layer the sizes n_ff, n_head and n_head_kv of hp. */
void hparams_same_layers(struct hparams *hp);

/*
 * <arch>.attention.sliding_window and .sliding_window_pattern (one boolean per layer, or a period n: all
 * layers have a window but every n-th). hp holds the defaults of n_window and rope_base_window; `period` is
 * the pattern's. n_window 0 or 1 << 31 and above: no layer has a window.
 */
enum status hparams_read_window(struct hparams *hp, const struct gguf *g, const char *arch,
                                uint32_t period, struct err *e);
/* The keys of hp->experts, and which layers have them. */
enum status hparams_read_experts(struct hparams *hp, const struct gguf *g, const char *arch,
                                 struct err *e);
/* The keys of hp->latent, all but n_q_lora required; n_embd_head_k and _v become those of the cache. */
enum status hparams_read_latent(struct hparams *hp, const struct gguf *g, const char *arch,
                                struct err *e);
/* The keys of hp->ssm. */
enum status hparams_read_ssm(struct hparams *hp, const struct gguf *g, const char *arch,
                             enum ssm_kind kind, struct err *e);
/* Layers without heads of keys are recurrent, the others are not. */
void hparams_recurrent_without_kv(struct hparams *hp);
/*
 * <arch>.attention.recurrent_layers (one boolean per layer) or, without it, .full_attention_interval: every such
 * layer has attention; default `interval`. Recurrent layers have no heads of keys.
 */
enum status hparams_read_recurrent_layers(struct hparams *hp, const struct gguf *g, const char *arch,
                                          uint32_t interval, struct err *e);
/* All layers are, without attention and without a network, whatever the keys say. */
void hparams_recurrent_only(struct hparams *hp);
/* Elements of a layer's state. */
static inline int64_t hparams_n_conv_state(const struct hparams *hp)
{
    return hp->ssm.n_kernel ? (int64_t)(hp->ssm.n_kernel - 1) * hp->ssm.n_conv : 0;
}
static inline int64_t hparams_n_ssm_state(const struct hparams *hp)
{
    return (int64_t)hp->ssm.n_state * hp->ssm.n_inner;
}
/* Is any layer recurrent? Positions of such a model cannot be moved or taken back. */
bool hparams_recurrent(const struct hparams *hp);
/* Leave out the last <arch>.nextn_predict_layers layers, which predict further tokens. */
enum status hparams_drop_nextn(struct hparams *hp, const struct gguf *g, const char *arch,
                               struct err *e);
/* <arch>.attn_logit_softcapping and .final_logit_softcapping; hp holds the defaults. */
enum status hparams_read_softcaps(struct hparams *hp, const struct gguf *g, const char *arch,
                                  struct err *e);

#endif
