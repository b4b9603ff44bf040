/*
 * gptneox: GPT-NeoX 20B, Pythia, Dolly. Layer norms, one matrix for Q, K and V, GELU; attention and network
 * work side by side, or (by a key) one after the other. Source: arXiv:2204.06745.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROWS_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROWS_NORM("attn_norm", attn_norm),
    ROWS_QKV_OR_FUSED,
    ROWS_ATTN_OUT,
    ROWS_NORM("ffn_norm", ffn_norm),
    ROWS_FFN_PLAIN,
};

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.norm = NORM_LAYER,
                                       .act = FFN_GELU,
                                       .parallel = b->m->hp.parallel_residual});
}

const struct arch arch_gptneox = {
    .name = "gptneox",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = build,
};
