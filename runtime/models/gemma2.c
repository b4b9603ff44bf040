/*
 * gemma2: Gemma 2. RMS norms before and after attention and feed-forward network, GEGLU, soft caps on
 * the scores of attention and on the logits; every other layer sees a sliding window only. In files the
 * norms' weights hold the + 1 of the published definition. Sources: Gemma Team, "Gemma 2: Improving
 * Open Language Models at a Practical Size", arXiv:2408.00118; tensor names: GGUF specification,
 * "Standardized tensor names".
 */
#include <math.h>

#include "runtime/arch.h"
#include "runtime/models/blocks.h"

struct globals {
    struct tensor *tok_embd;    /* [n_embd, n_vocab] */
    struct tensor *output_norm; /* [n_embd] */
    struct tensor *output;      /* [n_embd, n_vocab] */
};

struct layer {
    struct tensor *attn_norm; /* [n_embd] */
    struct block_attn attn;
    struct tensor *attn_post_norm; /* [n_embd] */
    struct tensor *ffn_norm;       /* [n_embd] */
    struct block_ffn ffn;
    struct tensor *ffn_post_norm; /* [n_embd] */
};

#define G(field) ARCH_SLOT(struct globals, field)
#define L(field) ARCH_SLOT(struct layer, field)

/* clang-format off */
static const struct arch_tensor tensors[] = {
    {"token_embd.weight",                  G(tok_embd),       {D_EMBD, D_VOCAB}, USE_ROWS,   PLACE_INPUT},
    {"output_norm.weight",                 G(output_norm),    {D_EMBD},          USE_VECTOR, PLACE_OUTPUT},
    {"output.weight",                      G(output),         {D_EMBD, D_VOCAB}, USE_MATRIX, PLACE_OUTPUT,
     .optional = true, .instead = "token_embd.weight"},
    {"blk.%d.attn_norm.weight",            L(attn_norm),      {D_EMBD},          USE_VECTOR, PLACE_LAYER},
    {"blk.%d.attn_q.weight",               L(attn.q),         {D_EMBD, D_Q},     USE_MATRIX, PLACE_LAYER},
    {"blk.%d.attn_k.weight",               L(attn.k),         {D_EMBD, D_K},     USE_MATRIX, PLACE_LAYER},
    {"blk.%d.attn_v.weight",               L(attn.v),         {D_EMBD, D_V},     USE_MATRIX, PLACE_LAYER},
    {"blk.%d.attn_output.weight",          L(attn.o),         {D_O, D_EMBD},     USE_MATRIX, PLACE_LAYER},
    {"blk.%d.post_attention_norm.weight",  L(attn_post_norm), {D_EMBD},          USE_VECTOR, PLACE_LAYER},
    {"blk.%d.ffn_norm.weight",             L(ffn_norm),       {D_EMBD},          USE_VECTOR, PLACE_LAYER},
    {"blk.%d.ffn_gate.weight",             L(ffn.gate),       {D_EMBD, D_FF},    USE_MATRIX, PLACE_LAYER},
    {"blk.%d.ffn_up.weight",               L(ffn.up),         {D_EMBD, D_FF},    USE_MATRIX, PLACE_LAYER},
    {"blk.%d.ffn_down.weight",             L(ffn.down),       {D_FF, D_EMBD},    USE_MATRIX, PLACE_LAYER},
    {"blk.%d.post_ffw_norm.weight",        L(ffn_post_norm),  {D_EMBD},          USE_VECTOR, PLACE_LAYER},
};
/* clang-format on */

/* Old files lack some keys; the defaults are the published models' values. */
static enum status keys(struct hparams *hp, const struct gguf *g, struct err *e)
{
    enum status st;

    hp->n_window = 4096;
    hp->rope_base_window = hp->rope_base;
    hp->softcap_attn = 50;
    hp->softcap_logits = 30;
    st = hparams_read_window(hp, g, "gemma2", 2, e);
    return st ? st : hparams_read_softcaps(hp, g, "gemma2", e);
}

/* The 27B model, told by its depth, divides by its width per head: files have no key for it. */
static float attn_scale(const struct hparams *hp)
{
    float width =
        hp->n_layer == 46 ? (float)hp->n_embd / (float)hp->n_head : (float)hp->n_embd_head_k;

    return 1 / sqrtf(width);
}

static void build(struct build *b)
{
    const struct globals *w = arch_globals(b->m);
    const struct hparams *hp = &b->m->hp;
    const float eps = hp->norm_eps;
    struct graph *g = b->g;
    struct tensor *x, *out_ids = NULL;
    struct block_attn_in global = {0}, local;

    x = named(op_get_rows(g, w->tok_embd, input_tokens(b->in, g, b->f)), "embd");
    x = named(op_scale(g, x, sqrtf((float)hp->n_embd), 0), "embd_scaled");
    global.pos = input_pos(b->in, g, b->f);
    global.kv_rows = input_kv_rows(b->in, g, b->f);
    global.mask = input_mask(b->in, g, b->f);
    global.scale = attn_scale(hp);
    global.softcap = hp->softcap_attn;
    block_rope_params(&global.rope, hp, b->m->arch->rope);
    local = global;
    local.mask = input_window_mask(b->in, g, b->f);
    local.rope.base = hp->rope_base_window;
    if (b->f->n_outputs)
        out_ids = input_out_ids(b->in, g, b->f);

    for (uint32_t il = 0; il < hp->n_layer; il++) {
        const struct layer *l = arch_layer(b->m, il);
        const struct block_attn_in *in = hp->windowed[il] ? &local : &global;
        bool last = il == hp->n_layer - 1;
        struct tensor *y = named(op_rms_norm(g, x, l->attn_norm, eps), "attn_norm-%u", il);

        if (last && !b->f->n_outputs) {
            block_attn_store(b, &l->attn, in, y, il);
            return;
        }
        y = block_attn(b, &l->attn, in, y, il);
        if (last) { /* what follows works row by row: leave out the rows that nobody reads */
            y = op_get_rows(g, y, out_ids);
            x = op_get_rows(g, x, out_ids);
        }
        y = named(op_rms_norm(g, y, l->attn_post_norm, eps), "attn_post_norm-%u", il);
        x = named(op_add(g, y, x), "ffn_inp-%u", il);
        y = named(op_rms_norm(g, x, l->ffn_norm, eps), "ffn_norm-%u", il);
        y = block_ffn(b, &l->ffn, GLU_GEGLU, y, il);
        y = named(op_rms_norm(g, y, l->ffn_post_norm, eps), "ffn_post_norm-%u", il);
        x = named(op_add(g, y, x), "l_out-%u", il);
    }
    x = named(op_rms_norm(g, x, w->output_norm, eps), "result_norm");
    block_logits(b, w->output, x);
}

const struct arch arch_gemma2 = {
    .name = "gemma2",
    .rope = ROPE_NEOX,
    .tensors = tensors,
    .n_tensors = sizeof tensors / sizeof tensors[0],
    .n_globals = ARCH_SLOTS(struct globals),
    .n_layer = ARCH_SLOTS(struct layer),
    .keys = keys,
    .build = build,
};
