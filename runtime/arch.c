#include "runtime/arch.h"

#include <stdio.h>
#include <string.h>

#define ARCH(name) extern const struct arch arch_##name;
#include "runtime/arch.def"

#define ARCH(name) &arch_##name,
static const struct arch *const archs[] = {
#include "runtime/arch.def"
};

#define N_ARCHS ((int)(sizeof archs / sizeof archs[0]))

const struct arch *arch_find(const char *name, size_t n)
{
    for (int i = 0; i < N_ARCHS; i++) {
        if (strlen(archs[i]->name) == n && memcmp(archs[i]->name, name, n) == 0)
            return archs[i];
    }
    return NULL;
}

const char *arch_name(int i)
{
    return i >= 0 && i < N_ARCHS ? archs[i]->name : NULL;
}

int64_t arch_dim(const struct hparams *hp, enum dim d, uint32_t il)
{
    const struct layer_hparams *l = &hp->layer[il];

    switch (d) {
    case D_NONE:
        return 1;
    case D_EMBD:
        return hp->n_embd;
    case D_Q:
        return (int64_t)l->n_head * hp->n_embd_head_k;
    case D_K:
        return (int64_t)l->n_head_kv * hp->n_embd_head_k;
    case D_V:
        return (int64_t)l->n_head_kv * hp->n_embd_head_v;
    case D_O:
        return (int64_t)l->n_head * hp->n_embd_head_v;
    case D_Q_2:
        return 2 * arch_dim(hp, D_Q, il);
    case D_QKV:
        return arch_dim(hp, D_Q, il) + arch_dim(hp, D_K, il) + arch_dim(hp, D_V, il);
    case D_HEAD_K:
        return hp->n_embd_head_k;
    case D_N_HEAD:
        return l->n_head;
    case D_N_HEAD_KV:
        return l->n_head_kv;
    case D_FF:
        return l->n_ff;
    case D_FF_2:
        return 2 * (int64_t)l->n_ff;
    case D_FF_EXP:
        return hp->experts.n_ff;
    case D_FF_EXP_2:
        return 2 * (int64_t)hp->experts.n_ff;
    case D_FF_SHARED:
        return hp->experts.n_ff_shared;
    case D_EXPERTS:
        return hp->experts.n_expert;
    case D_Q_LORA:
        return hp->latent.n_q_lora;
    case D_KV_LORA:
        return hp->latent.n_kv_lora;
    case D_KV_LATENT:
        return (int64_t)hp->latent.n_kv_lora + hp->n_rot;
    case D_Q_MLA:
        return (int64_t)l->n_head * hp->latent.n_embd_head_k;
    case D_NOPE_MLA:
        return (int64_t)hp->latent.n_embd_head_k - hp->n_rot;
    case D_V_MLA:
        return hp->latent.n_embd_head_v;
    case D_O_MLA:
        return (int64_t)l->n_head * hp->latent.n_embd_head_v;
    case D_CONV_KERNEL:
        return hp->ssm.n_kernel;
    case D_CONV:
        return hp->ssm.n_conv;
    case D_INNER:
        return hp->ssm.n_inner;
    case D_INNER_2:
        return 2 * (int64_t)hp->ssm.n_inner;
    case D_STATE:
        return hp->ssm.n_state;
    case D_RANK:
        return hp->ssm.n_rank;
    case D_RANK_2:
        return 2 * (int64_t)hp->ssm.n_rank;
    case D_SSM_X:
        return (int64_t)hp->ssm.n_rank + 2 * (int64_t)hp->ssm.n_state;
    case D_SSM_IN:
        return (int64_t)hp->ssm.n_inner + hp->ssm.n_conv + hp->ssm.n_rank;
    case D_SSM_GROUP:
        return hp->ssm.n_inner / hp->ssm.n_group;
    case D_N_GROUP:
        return hp->ssm.n_group;
    case D_EMBD_3:
        return 3 * (int64_t)hp->n_embd;
    case D_ONE:
        return 1;
    case D_VOCAB:
        return hp->n_vocab;
    case D_CTX:
        return hp->n_ctx_train;
    case D_ROT_HALF:
        return hp->n_rot / 2;
    }
    return 1;
}

bool arch_has(const struct arch_tensor *t, const struct hparams *hp, uint32_t il)
{
    switch (t->layers) {
    case ALL_LAYERS:
        return true;
    case DENSE_LAYERS:
        return !hp->layer[il].experts && hp->layer[il].n_ff;
    case EXPERT_LAYERS:
        return hp->layer[il].experts;
    case ATTENTION_LAYERS:
        return hp->layer[il].n_head_kv;
    case RECURRENT_LAYERS:
        return hp->layer[il].recurrent;
    }
    return true;
}

int arch_shape(const struct arch_tensor *t, const struct hparams *hp, uint32_t il,
               int64_t ne[TENSOR_DIMS])
{
    int n_dims = 1;

    for (int i = 0; i < TENSOR_DIMS; i++) {
        ne[i] = i < 3 ? arch_dim(hp, t->ne[i], il) : 1;
        n_dims = i < 3 && t->ne[i] != D_NONE ? i + 1 : n_dims;
    }
    return n_dims;
}

void arch_tensor_name(const char *name, uint32_t il, char out[TENSOR_NAME])
{
    const char *p = strstr(name, "%d");

    if (p)
        snprintf(out, TENSOR_NAME, "%.*s%u%s", (int)(p - name), name, il, p + 2);
    else
        snprintf(out, TENSOR_NAME, "%s", name);
}

int arch_index(const struct arch *a, const struct arch_tensor *t, uint32_t il)
{
    return arch_per_layer(t) ? a->n_globals + (int)il * a->n_layer + t->slot : t->slot;
}

uint32_t arch_positions(const struct model *m)
{
    for (int i = 0; i < m->arch->n_tensors; i++) {
        const struct arch_tensor *t = &m->arch->tensors[i];

        if (!arch_per_layer(t) && t->ne[1] == D_CTX && m->weights[t->slot])
            return m->hp.n_ctx_train;
    }
    return 0;
}
