#include "tests/runtime/model_graph.h"

#include "runtime/arch.h"

#define N_TENSORS 4096 /* of a graph */

enum status model_graph_init(struct model_graph *mg, const struct model *m, uint32_t n_ctx,
                             uint32_t n_ubatch, struct err *e)
{
    const struct device *dev[LAYERS_MAX];
    struct kv_options kvo = {.layer_dev = dev,
                             .n_ctx = n_ctx,
                             .n_ubatch = n_ubatch,
                             .type_k = DT_F16,
                             .type_v = DT_F16,
                             .n_chunk = 3 * KV_PAD,
                             .dry = true};
    enum status st;

    *mg = (struct model_graph){.m = m};
    for (uint32_t il = 0; il < m->hp.n_layer; il++)
        dev[il] = placement_kv(m->placement, il);
    st = kvcache_init(&mg->kv, &m->hp, &kvo, e);
    if (!st)
        st = state_init(&mg->state, &m->hp, dev, 1, true, e);
    if (!st)
        st = graph_init(&mg->g, N_TENSORS, e);
    if (st)
        model_graph_release(mg);
    return st;
}

void model_graph_release(struct model_graph *mg)
{
    graph_release(&mg->g);
    state_release(&mg->state);
    kvcache_release(&mg->kv);
    *mg = (struct model_graph){0};
}

enum status model_graph_build(struct model_graph *mg, const struct model_shape *s, struct err *e)
{
    struct reuse_facts f = {
        .kind = GRAPH_LOGITS,
        .n_tokens = (int32_t)s->n_tokens,
        .n_seq_tokens = (int32_t)s->n_tokens,
        .n_seqs = 1,
        .n_seqs_unq = 1,
        .equal_seqs = true,
        .carriers = CARRIER_TOKEN,
        .n_outputs = (int32_t)s->n_outputs,
        .n_kv = s->n_kv,
        .n_kv_window = kvcache_n_kv_window(&mg->kv, s->n_kv),
    };
    struct build b = {.g = &mg->g,
                      .m = mg->m,
                      .kv = &mg->kv,
                      .state = &mg->state,
                      .f = &f,
                      .in = &mg->in,
                      .no_flash_attn = s->no_flash_attn};

    mg->in.n = 0;
    graph_reset(&mg->g);
    mg->m->arch->build(&b);
    return graph_status(&mg->g, e);
}
