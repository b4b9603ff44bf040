/*
 * A mixture of experts: a router sends each token to a few of many feed-forward networks, and their
 * results are mixed by weight. Tensors of the experts are one behind the other in ne[2].
 * Sources: Shazeer et al., arXiv:1701.06538; shared experts: DeepSeekMoE, arXiv:2401.06066; sigmoid, bias
 * of selection and groups: DeepSeek-V3, arXiv:2412.19437.
 */
#ifndef GGRUN_RUNTIME_MODELS_EXPERTS_H
#define GGRUN_RUNTIME_MODELS_EXPERTS_H

#include "runtime/models/blocks.h"

struct block_experts {
    struct tensor *gate_inp, *gate_inp_b; /* the router: [n_embd, n_expert] */
    struct tensor *probs_b;               /* [n_expert] added for the selection, not to the weights */
    struct tensor *gate, *gate_b;         /* [n_embd, n_ff, n_expert], biases [n_ff, n_expert]; none where act has no gate */
    struct tensor *up, *up_b;
    struct tensor *gate_up;               /* both in one: [n_embd, 2 * n_ff, n_expert] */
    struct tensor *down, *down_b;         /* [n_ff, n_embd, n_expert] */
    struct block_ffn shared;              /* every token's; up NULL: none */
    struct tensor *shared_gate;           /* [n_embd] its result is multiplied by sigmoid(shared_gate x) */
};

/* What the router's numbers become; the values are those of the key expert_gating_func. */
enum router {
    ROUTER_SOFTMAX = 1,    /* softmax over all experts */
    ROUTER_SIGMOID,
    ROUTER_SOFTMAX_PICKED, /* softmax over the selected ones */
};

struct experts_kind {
    enum router router;  /* 0: softmax */
    bool norm;           /* weights are divided by their sum */
    bool weigh_input;    /* a token is weighted before its experts, not after */
    enum ffn_act act;
};

/* x [n_embd, n] -> [n_embd, n]; sizes and scale are in hparams.experts. */
struct tensor *block_experts(struct build *b, const struct block_experts *w,
                             const struct experts_kind *kind, struct tensor *x, uint32_t il);

#endif
