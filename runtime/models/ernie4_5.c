/*
 * ernie4_5: dense ERNIE 4.5. As llama; models with experts have a name of their own, so a number of
 * experts in a file means nothing.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,
    ROWS_ATTN_OUT,
    ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_FFN,
};

const struct arch arch_ernie4_5 = {
    .name = "ernie4_5",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .build = decoder_build_plain,
};
