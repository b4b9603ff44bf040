/*
 * What the architectures of Qwen with gated delta nets share: qwen3next, qwen35, qwen35moe.
 */
#ifndef GGRUN_RUNTIME_MODELS_QWEN_DELTA_H
#define GGRUN_RUNTIME_MODELS_QWEN_DELTA_H

#include "runtime/models/decoder.h"

/* Keys of experts (where there are any), of the recurrence and of which layers have one. */
enum status qwen_delta_keys(struct hparams *hp, const struct gguf *g, const char *arch,
                            enum ssm_kind kind, struct err *e);
void qwen_delta_build(struct build *b);

/* clang-format off */
#define ROWS_QWEN_DELTA \
    ROW_TOKENS, \
    ROW_OUTPUT_NORM, \
    ROW_OUTPUT_OR_TIED, \
    ROW_NORM("attn_norm", attn_norm, D_EMBD), \
    ROW_MATRIX_OF("attn_q", attn.q, D_EMBD, D_Q_2, ATTENTION_LAYERS), \
    ROW_MATRIX_OF("attn_k", attn.k, D_EMBD, D_K, ATTENTION_LAYERS), \
    ROW_MATRIX_OF("attn_v", attn.v, D_EMBD, D_V, ATTENTION_LAYERS), \
    ROW_MATRIX_OF("attn_output", attn.o, D_O, D_EMBD, ATTENTION_LAYERS), \
    ROW_NORM_OF("attn_q_norm", attn.q_norm, D_HEAD_K, ATTENTION_LAYERS), \
    ROW_NORM_OF("attn_k_norm", attn.k_norm, D_HEAD_K, ATTENTION_LAYERS), \
    ROWS_DELTA(RECURRENT_LAYERS), \
    ROW_NORM("post_attention_norm", ffn_norm, D_EMBD)
#define ROWS_QWEN_DELTA_EXPERTS \
    ROWS_EXPERTS_OR_FUSED, \
    ROW_SHARED_GATE, \
    ROWS_SHARED
/* clang-format on */

#endif
