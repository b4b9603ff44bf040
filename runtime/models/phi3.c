/*
 * phi3: Phi 3, 3.5 and 4 (mini, small-width). As llama, with one matrix for Q, K and V and one for gate
 * and up; long contexts through longrope. Source: arXiv:2404.14219.
 */
#include "gguf/base/log.h"
#include "runtime/models/decoder.h"

static const struct arch_tensor tensors[] = {
    ROW_TOKENS,
    ROW_OUTPUT_NORM,
    ROW_OUTPUT_OR_TIED,
    ROW_ROPE_FACTORS("rope_factors_long", rope_long),
    ROW_ROPE_FACTORS("rope_factors_short", rope_short),
    ROW_NORM("attn_norm", attn_norm, D_EMBD),
    ROWS_QKV_OR_FUSED,
    ROWS_ATTN_OUT,
    ROW_NORM("ffn_norm", ffn_norm, D_EMBD),
    ROWS_FFN_FUSED,
};

/*
 * The window of the first models is as long as half their context. Inside it the result is exact;
 * beyond, all positions stay visible, which is what other runners of these files do.
 */
static enum status check(const struct hparams *hp, const struct gguf *g, struct err *e)
{
    uint32_t window = 0;
    enum status st = decoder_check_dense_factors(hp, g, e);

    if (!st)
        st = gguf_get_u32(g, "phi3.attention.sliding_window", false, &window, e);
    if (!st && window && window < hp->n_ctx_train)
        log_warn("key 'phi3.attention.sliding_window' is %u: windows are not applied", window);
    return st;
}

const struct arch arch_phi3 = {
    .name = "phi3",
    .rope = ROPE_NEOX,
    DECODER_TABLE(tensors),
    .check = check,
    .build = decoder_build_plain,
};
