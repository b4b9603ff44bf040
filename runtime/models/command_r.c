/*
 * command-r: Command-R, Aya 23. One layer norm without bias for attention and network, which work side by
 * side; large ones also norm each head of Q and K; logits times a factor. Source: Hugging Face transformers,
 * CohereForCausalLM.
 */
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV,
    ROWS_ATTN_OUT,
    ROW_HEAD_NORMS("attn_q_norm", attn.q_norm, D_N_HEAD),
    ROW_HEAD_NORMS("attn_k_norm", attn.k_norm, D_N_HEAD_KV),
    ROWS_FFN,
};

static void build(struct build *b)
{
    decoder_build(b, &(struct decoder){.norm = NORM_LAYER,
                                       .parallel = true,
                                       .logit_scale = b->m->hp.logit_scale});
}

const struct arch arch_command_r = {
    .name = "command-r",
    .rope = ROPE_NORM,
    DECODER_TABLE(tensors),
    .check = decoder_check_dense,
    .build = build,
};
