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

struct hparams {
    uint32_t n_vocab;
    uint32_t n_ctx_train;  /* <arch>.context_length */
    uint32_t n_embd;       /* <arch>.embedding_length */
    uint32_t n_layer;      /* <arch>.block_count */
    uint32_t n_ff;         /* <arch>.feed_forward_length */
    uint32_t n_head;       /* <arch>.attention.head_count */
    uint32_t n_head_kv;    /* <arch>.attention.head_count_kv; default n_head */
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
    bool windowed[LAYERS_MAX]; /* [n_layer] */
    float rope_base_window;    /* RoPE of windowed layers: <arch>.rope.freq_base_swa */
    float softcap_attn, softcap_logits; /* 0: none; of architectures that call hparams_read_softcaps */
    float yarn_log_mul;       /* <arch>.rope.scaling.yarn_log_multiplier; default 0 */
    bool rope_finetuned;      /* <arch>.rope.scaling.finetuned; default true */
    uint32_t rope_sections[4]; /* <arch>.rope.dimension_sections: pairs per axis; default 0 */
    /* Factors; 0: not given. */
    float embd_scale;         /* <arch>.embedding_scale */
    float residual_scale;     /* <arch>.residual_scale */
    float logit_scale;        /* <arch>.logit_scale */
    float attn_scale;         /* <arch>.attention.scale: of q.k */
    float attn_temp_scale;    /* <arch>.attention.temperature_scale */
};

/* Read and check; every error names the key, the value found and the range or relation expected. */
enum status hparams_read(struct hparams *hp, const struct gguf *g, const char *arch, struct err *e);

/*
 * <arch>.attention.sliding_window and .sliding_window_pattern (one boolean per layer, or a period n: all
 * layers have a window but every n-th). hp holds the defaults of n_window and rope_base_window; `period` is
 * the pattern's. n_window 0 or 1 << 31 and above: no layer has a window.
 */
enum status hparams_read_window(struct hparams *hp, const struct gguf *g, const char *arch,
                                uint32_t period, struct err *e);
/* <arch>.attn_logit_softcapping and .final_logit_softcapping; hp holds the defaults. */
enum status hparams_read_softcaps(struct hparams *hp, const struct gguf *g, const char *arch,
                                  struct err *e);

#endif
