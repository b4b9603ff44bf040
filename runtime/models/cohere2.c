/*
 * cohere2: Command R7B, Command A, Aya Expanse. As command-r; of every four layers three see a sliding
 * window, and only those rotate. Source: Hugging Face transformers, Cohere2ForCausalLM.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS, ROW_OUTPUT_NORM, ROW_OUTPUT_OR_TIED, ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,   ROWS_ATTN_OUT,   ROWS_FFN,
};

static enum status keys(struct hparams *hp, const struct gguf *g, struct err *e)
{
    hp->rope_base_window = hp->rope_base;
    return hparams_read_window(hp, g, "cohere2", 4, e);
}

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.norm = NORM_LAYER,
                                       .parallel = true,
                                       .rope_windows_only = true,
                                       .logit_scale = b->m->hp.logit_scale});
}

const struct arch arch_cohere2 = {
    .name = "cohere2",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .keys = keys,
    .check = decoder_check_dense,
    .build = build,
};
