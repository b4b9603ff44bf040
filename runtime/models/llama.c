/*
 * llama: Llama 1 to 3, SmolLM, Mistral, TinyLlama and whoever converts to it. Pre-norm transformer
 * with RMS norms, grouped-query attention, RoPE on pairs (2i, 2i+1) and a SwiGLU feed-forward
 * network. Sources: Touvron et al., arXiv:2302.13971; tensor names: GGUF specification,
 * "Standardized tensor names".
 */
#include <math.h>

#include "runtime/arch.h"
#include "runtime/models/blocks.h"

struct globals {
    struct tensor *tok_embd;               /* [n_embd, n_vocab] */
    struct tensor *output_norm;            /* [n_embd] */
    struct tensor *output;                 /* [n_embd, n_vocab] */
    struct tensor *rope_freqs;             /* [n_rot/2] factors, optional */
    struct tensor *rope_long, *rope_short; /* the same by the length of the context (longrope) */
};

struct layer {
    struct tensor *attn_norm; /* [n_embd] */
    struct block_attn attn;
    struct tensor *ffn_norm; /* [n_embd] */
    struct block_ffn ffn;
};

#define G(field) ARCH_SLOT(struct globals, field)
#define L(field) ARCH_SLOT(struct layer, field)

/* clang-format off */
static const struct arch_tensor tensors[] = {
    {"token_embd.weight",         G(tok_embd),    {D_EMBD, D_VOCAB}, USE_ROWS,   PLACE_INPUT},
    {"output_norm.weight",        G(output_norm), {D_EMBD},          USE_VECTOR, PLACE_OUTPUT},
    {"output.weight",             G(output),      {D_EMBD, D_VOCAB}, USE_MATRIX, PLACE_OUTPUT,
     .optional = true, .instead = "token_embd.weight"},
    {"rope_freqs.weight",         G(rope_freqs),  {D_ROT_HALF},      USE_VECTOR, PLACE_INPUT, .optional = true},
    {"rope_factors_long.weight",  G(rope_long),   {D_ROT_HALF},      USE_VECTOR, PLACE_INPUT, .optional = true},
    {"rope_factors_short.weight", G(rope_short),  {D_ROT_HALF},      USE_VECTOR, PLACE_INPUT, .optional = true},
    {"blk.%d.attn_norm.weight",   L(attn_norm),   {D_EMBD},          USE_VECTOR, PLACE_LAYER},
    {"blk.%d.attn_q.weight",      L(attn.q),      {D_EMBD, D_Q},     USE_MATRIX, PLACE_LAYER},
    {"blk.%d.attn_q.bias",        L(attn.q_b),    {D_Q},             USE_VECTOR, PLACE_LAYER, .optional = true},
    {"blk.%d.attn_k.weight",      L(attn.k),      {D_EMBD, D_K},     USE_MATRIX, PLACE_LAYER},
    {"blk.%d.attn_k.bias",        L(attn.k_b),    {D_K},             USE_VECTOR, PLACE_LAYER, .optional = true},
    {"blk.%d.attn_v.weight",      L(attn.v),      {D_EMBD, D_V},     USE_MATRIX, PLACE_LAYER},
    {"blk.%d.attn_v.bias",        L(attn.v_b),    {D_V},             USE_VECTOR, PLACE_LAYER, .optional = true},
    {"blk.%d.attn_output.weight", L(attn.o),      {D_O, D_EMBD},     USE_MATRIX, PLACE_LAYER},
    {"blk.%d.attn_output.bias",   L(attn.o_b),    {D_EMBD},          USE_VECTOR, PLACE_LAYER, .optional = true},
    {"blk.%d.ffn_norm.weight",    L(ffn_norm),    {D_EMBD},          USE_VECTOR, PLACE_LAYER},
    {"blk.%d.ffn_gate.weight",    L(ffn.gate),    {D_EMBD, D_FF},    USE_MATRIX, PLACE_LAYER},
    {"blk.%d.ffn_gate.bias",      L(ffn.gate_b),  {D_FF},            USE_VECTOR, PLACE_LAYER, .optional = true},
    {"blk.%d.ffn_up.weight",      L(ffn.up),      {D_EMBD, D_FF},    USE_MATRIX, PLACE_LAYER},
    {"blk.%d.ffn_up.bias",        L(ffn.up_b),    {D_FF},            USE_VECTOR, PLACE_LAYER, .optional = true},
    {"blk.%d.ffn_down.weight",    L(ffn.down),    {D_FF, D_EMBD},    USE_MATRIX, PLACE_LAYER},
    {"blk.%d.ffn_down.bias",      L(ffn.down_b),  {D_EMBD},          USE_VECTOR, PLACE_LAYER, .optional = true},
};
/* clang-format on */

static enum status check(const struct hparams *hp, const struct gguf *g, struct err *e)
{
    uint32_t n_expert = 0;
    enum status st = gguf_get_u32(g, "llama.expert_count", false, &n_expert, e);

    if (st)
        return st;
    if (n_expert)
        return err_set(e, ST_UNSUPPORTED,
                       "key 'llama.expert_count' is %u: mixtures of experts are not supported yet",
                       n_expert);
    if (hp->rope_scaling == ROPE_SCALING_LONGROPE && !gguf_find_tensor(g, "rope_freqs.weight") &&
        (!gguf_find_tensor(g, "rope_factors_long.weight") ||
         !gguf_find_tensor(g, "rope_factors_short.weight")))
        return err_set(
            e, ST_MODEL,
            "key 'llama.rope.scaling.type' is longrope, but tensor 'rope_factors_long.weight' "
            "or 'rope_factors_short.weight' is missing");
    return ST_OK;
}

static struct tensor *rope_factors(const struct build *b, const struct globals *w)
{
    if (w->rope_freqs || b->m->hp.rope_scaling != ROPE_SCALING_LONGROPE)
        return w->rope_freqs;
    return b->kv->n_ctx > b->m->hp.rope_n_ctx_orig ? w->rope_long : w->rope_short;
}

static void build(struct build *b)
{
    const struct globals *w = arch_globals(b->m);
    const struct hparams *hp = &b->m->hp;
    struct graph *g = b->g;
    struct tensor *x, *out_ids = NULL;
    struct block_attn_in in = {0};

    x = named(op_get_rows(g, w->tok_embd, input_tokens(b->in, g, b->f)), "embd");
    in.pos = input_pos(b->in, g, b->f);
    in.kv_rows = input_kv_rows(b->in, g, b->f);
    in.mask = input_mask(b->in, g, b->f);
    in.freqs = rope_factors(b, w);
    in.scale = 1 / sqrtf((float)hp->n_embd_head_k);
    block_rope_params(&in.rope, hp, b->m->arch->rope);
    if (b->f->n_outputs)
        out_ids = input_out_ids(b->in, g, b->f);

    for (uint32_t il = 0; il < hp->n_layer; il++) {
        const struct layer *l = arch_layer(b->m, il);
        bool last = il == hp->n_layer - 1;
        struct tensor *y = named(op_rms_norm(g, x, l->attn_norm, hp->norm_eps), "attn_norm-%u", il);

        if (last && !b->f->n_outputs) {
            block_attn_store(b, &l->attn, &in, y, il);
            return;
        }
        y = block_attn(b, &l->attn, &in, y, il);
        if (last) { /* what follows works row by row: leave out the rows that nobody reads */
            y = op_get_rows(g, y, out_ids);
            x = op_get_rows(g, x, out_ids);
        }
        x = named(op_add(g, y, x), "ffn_inp-%u", il);
        y = named(op_rms_norm(g, x, l->ffn_norm, hp->norm_eps), "ffn_norm-%u", il);
        y = block_ffn(b, &l->ffn, GLU_SWIGLU, y, il);
        x = named(op_add(g, y, x), "l_out-%u", il);
    }
    x = named(op_rms_norm(g, x, w->output_norm, hp->norm_eps), "result_norm");
    b->logits = output(named(op_mul_mat(g, w->output, x), "result_output"));
    graph_expand(g, b->logits);
}

const struct arch arch_llama = {
    .name = "llama",
    .rope = ROPE_NORM,
    .tensors = tensors,
    .n_tensors = sizeof tensors / sizeof tensors[0],
    .n_globals = ARCH_SLOTS(struct globals),
    .n_layer = ARCH_SLOTS(struct layer),
    .check = check,
    .build = build,
};
