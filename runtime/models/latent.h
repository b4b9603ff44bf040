/*
 * Latent attention with absorbed matrices: all heads share one cached vector per token, a latent c of
 * n_kv_lora elements and a rotated key of n_rot. A head's key is k_b^T c and its value v_b c, so q.k =
 * (k_b q).c and the weighted sum of values is v_b of the weighted sum of c: attention runs on what is cached.
 * Source: DeepSeek-V2, arXiv:2405.04434, section 2.1.
 */
#ifndef GGRUN_RUNTIME_MODELS_LATENT_H
#define GGRUN_RUNTIME_MODELS_LATENT_H

#include "runtime/models/blocks.h"

struct block_latent {
    struct tensor *q;               /* [n_embd, n_head * n_embd_head_k], or by way of a latent: */
    struct tensor *q_a, *q_a_norm, *q_b; /* [n_embd, n_q_lora], [n_q_lora], [n_q_lora, n_head * n_embd_head_k] */
    struct tensor *kv_a, *kv_a_norm; /* [n_embd, n_kv_lora + n_rot], [n_kv_lora] */
    struct tensor *k_b;             /* [n_embd_head_k - n_rot, n_kv_lora, n_head] */
    struct tensor *v_b;             /* [n_kv_lora, n_embd_head_v, n_head] */
    struct tensor *o;               /* [n_head * n_embd_head_v, n_embd] */
};

/* As block_attn and block_attn_store. */
struct tensor *block_latent(struct build *b, const struct block_latent *w,
                            const struct block_attn_in *in, struct tensor *x, uint32_t il);
void block_latent_store(struct build *b, const struct block_latent *w,
                        const struct block_attn_in *in, struct tensor *x, uint32_t il);

#endif
