/*
 * What the tables of tensors say about each architecture, a line each for scripts/make-models-doc:
 * name, how RoPE pairs elements, features.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/arch.h"

/* A feature is there when a tensor of this name is. */
static const struct {
    const char *part, *feature;
} features[] = {
    {"position_embd.weight", "learned positions"},
    {"token_embd_norm.weight", "norm of embeddings"},
    {"attn_norm.bias", "biases of norms"},
    {"attn_qkv.weight", "Q, K and V in one matrix"},
    {"attn_q_norm.weight", "norms of Q and K"},
    {"attn_kv_a_mqa.weight", "latent attention"},
    {"attn_sinks.weight", "attention sinks"},
    {"ssm_conv1d.weight", "recurrent state"},
    {"shortconv.conv.weight", "short convolutions"},
    {"ffn_down_exps.weight", "experts"},
    {"exp_probs_b.bias", "bias of selection"},
    {"ffn_up_shexp.weight", "shared expert"},
    {"rope_freqs.weight", "RoPE factors"},
    {"rope_factors_long.weight", "longrope"},
};

static bool has(const struct arch *a, const char *part)
{
    for (int i = 0; i < a->n_tensors; i++) {
        if (strstr(a->tensors[i].name, part))
            return true;
    }
    return false;
}

static bool tied(const struct arch *a)
{
    for (int i = 0; i < a->n_tensors; i++) {
        if (a->tensors[i].instead)
            return true;
    }
    return false;
}

int main(void)
{
    for (int i = 0; arch_name(i); i++) {
        const struct arch *a = arch_find(arch_name(i), strlen(arch_name(i)));
        const char *sep = "";

        printf("%s\t%s\t", a->name, a->rope == ROPE_NEOX ? "halves" : "neighbours");
        for (size_t k = 0; k < sizeof features / sizeof features[0]; k++) {
            if (!has(a, features[k].part))
                continue;
            printf("%s%s", sep, features[k].feature);
            sep = ", ";
        }
        printf("%s\n", tied(a) ? *sep ? ", tied output" : "tied output" : "");
    }
    return 0;
}
