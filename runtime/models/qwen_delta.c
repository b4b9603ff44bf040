#include "runtime/models/qwen_delta.h"

enum status qwen_delta_keys(struct hparams *hp, const struct gguf *g, const char *arch,
                            enum ssm_kind kind, struct err *e)
{
    enum status st = hparams_read_recurrent_layers(hp, g, arch, 4, e);

    if (!st)
        st = hparams_drop_nextn(hp, g, arch, e);
    if (!st)
        st = hparams_read_experts(hp, g, arch, e);
    if (!st && hp->experts.n_expert && !hp->experts.n_ff_shared)
        hp->experts.n_ff_shared = hp->n_ff;
    return st ? st : hparams_read_ssm(hp, g, arch, kind, e);
}

void qwen_delta_build(struct build *b)
{
    decoder_build(b, &(struct decoder){
                         .attn_scale = b->m->hp.attn_scale, .gated = true, .experts.norm = true});
}
