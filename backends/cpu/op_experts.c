/*
 * Mixtures of experts: PICK, SHARES, MIX, ADD_ID, MUL_MAT_ID.
 *
 * MUL_MAT_ID sorts the (token, slot) pairs by expert; an item is a run of rows of one expert's matrix,
 * multiplied with all rows of x that go there. One pair takes the product of one column (cpu_vec_fn);
 * more are gathered and take the tiles of MUL_MAT. Both sum in the order of kernels.h, so which tokens
 * share a micro-batch changes no bit.
 */
#include <string.h>

#include "backends/cpu/ops.h"

#define TILE_ROWS 32
#define TILE_COLS 48

static int32_t id_at(const struct tensor *ids, int64_t j, int64_t tok)
{
    return *(const int32_t *)((const char *)row_of(ids, tok, 0, 0) + (size_t)j * ids->nb[0]);
}

/* Fails the job and says so: ids come from TOP_K, but a kernel does not trust what it indexes with. */
static bool good_id(const struct cpu_task *k, const struct tensor *t, int32_t id, int64_t n)
{
    if (id >= 0 && id < n)
        return true;
    task_fail(k, t, "expert %d is not in 0..%lld", (int)id, (long long)n - 1);
    return false;
}

/* ---- PICK, SHARES, MIX, ADD_ID ---- */

static bool pick_supports(const struct tensor *t)
{
    return f32_rows(t) && f32_rows(t->src[0]);
}

static void pick_run(const struct cpu_task *k, const struct tensor *t)
{
    int64_t from, to, n = t->src[0]->ne[0];

    task_range(k, t->ne[1], &from, &to);
    for (int64_t r = from; r < to; r++) {
        const float *x = row_at(t->src[0], r);
        float *y = row_at(t, r);

        for (int64_t j = 0; j < t->ne[0]; j++) {
            int32_t id = id_at(t->src[1], j, r);

            if (!good_id(k, t, id, n))
                return;
            y[j] = x[id];
        }
    }
}

const struct cpu_op cpu_op_pick = {.supports = pick_supports, .run = pick_run};

static void shares_run(const struct cpu_task *k, const struct tensor *t)
{
    struct param_shares p;
    int64_t from, to;

    op_param_get(t, &p);
    task_range(k, tensor_rows(t), &from, &to);
    for (int64_t r = from; r < to; r++) {
        const float *x = row_at(t->src[0], r);
        float *y = row_at(t, r), sum = 0;

        for (int64_t i = 0; i < t->ne[0]; i++)
            sum += x[i];
        sum = sum < p.floor ? p.floor : sum; /* a NaN stays */
        for (int64_t i = 0; i < t->ne[0]; i++)
            y[i] = x[i] / sum;
    }
}

const struct cpu_op cpu_op_shares = {.supports = pick_supports, .run = shares_run};

static bool mix_supports(const struct tensor *t)
{
    return f32_rows(t) && f32_rows(t->src[0]) && (!t->src[1] || f32_rows(t->src[1]));
}

static void mix_run(const struct cpu_task *k, const struct tensor *t)
{
    const struct tensor *x = t->src[0], *w = t->src[1];
    int64_t from, to;

    task_range(k, t->ne[1], &from, &to);
    for (int64_t r = from; r < to; r++) {
        const float *share = w ? row_of(w, r, 0, 0) : NULL;
        float *y = row_of(t, r, 0, 0);

        memset(y, 0, (size_t)t->ne[0] * sizeof *y);
        for (int64_t j = 0; j < x->ne[1]; j++) {
            const float *from_j = row_of(x, j, r, 0);
            float s = share ? share[j] : 1;

            for (int64_t i = 0; i < t->ne[0]; i++)
                y[i] += s * from_j[i];
        }
    }
}

const struct cpu_op cpu_op_mix = {.supports = mix_supports, .run = mix_run};

static bool add_id_supports(const struct tensor *t)
{
    return f32_rows(t) && f32_rows(t->src[0]) && f32_rows(t->src[1]);
}

static void add_id_run(const struct cpu_task *k, const struct tensor *t)
{
    int64_t from, to;

    task_range(k, tensor_rows(t), &from, &to);
    for (int64_t r = from; r < to; r++) {
        int32_t id = id_at(t->src[2], r % t->ne[1], r / t->ne[1]);
        const float *x = row_at(t->src[0], r), *b;
        float *y = row_at(t, r);

        if (!good_id(k, t, id, t->src[1]->ne[1]))
            return;
        b = row_of(t->src[1], id, 0, 0);
        for (int64_t i = 0; i < t->ne[0]; i++)
            y[i] = x[i] + b[i];
    }
}

const struct cpu_op cpu_op_add_id = {.supports = add_id_supports, .run = add_id_run};

/* ---- MUL_MAT_ID ---- */

/* Pairs by expert: those of the i-th expert that has any are order[start[i]] .. order[start[i + 1] - 1]. */
struct by_expert {
    int64_t n_pair, n_expert;
    int32_t *order;  /* [n_pair] tok * n_used + slot */
    int32_t *start;  /* [n_active + 1] */
    int32_t *expert; /* [n_active] */
    int n_active;
    float *w, *x, *y; /* [TILE_ROWS][MAT_CHUNK], [TILE_COLS][MAT_CHUNK], [TILE_COLS][TILE_ROWS] */
};

static bool mul_mat_id_supports(const struct tensor *t)
{
    const struct tensor *w = t->src[0];

    return tensor_rows_contiguous(w) && f32_rows(t->src[1]) && f32_rows(t) &&
           w->ne[0] <= INT32_MAX && w->ne[1] <= INT32_MAX && w->ne[2] <= INT32_MAX &&
           t->ne[1] * t->ne[2] <= INT32_MAX;
}

static size_t mul_mat_id_scratch(const struct cpu_isa *isa, const struct tensor *t)
{
    size_t n_pair = (size_t)(t->ne[1] * t->ne[2]), n_expert = (size_t)t->src[0]->ne[2];
    size_t n_tile = TILE_ROWS * MAT_CHUNK + TILE_COLS * MAT_CHUNK + TILE_COLS * TILE_ROWS;

    (void)isa;
    return n_tile * sizeof(float) + (n_pair + 2 * n_expert + 1) * sizeof(int32_t);
}

/* A counting sort; every thread does it for itself. False when an id is out of range. */
static bool sort_pairs(const struct cpu_task *k, const struct tensor *t, struct by_expert *s)
{
    int32_t at = 0;

    s->n_pair = t->ne[1] * t->ne[2];
    s->n_expert = t->src[0]->ne[2];
    s->w = k->scratch;
    s->x = s->w + TILE_ROWS * MAT_CHUNK;
    s->y = s->x + TILE_COLS * MAT_CHUNK;
    s->order = (int32_t *)(s->y + TILE_COLS * TILE_ROWS);
    s->start = s->order + s->n_pair;
    s->expert = s->start + s->n_expert + 1;
    memset(s->start, 0, (size_t)(s->n_expert + 1) * sizeof *s->start);
    for (int64_t i = 0; i < s->n_pair; i++) {
        int32_t id = id_at(t->src[2], i % t->ne[1], i / t->ne[1]);

        if (!good_id(k, t, id, s->n_expert))
            return false;
        s->start[id]++;
    }
    for (int64_t e = 0; e < s->n_expert; e++) {
        int32_t n = s->start[e];

        s->start[e] = at;
        at += n;
    }
    for (int64_t i = 0; i < s->n_pair; i++)
        s->order[s->start[id_at(t->src[2], i % t->ne[1], i / t->ne[1])]++] = (int32_t)i;
    /* start[e] is now where e ends; keep those that have any */
    s->n_active = 0;
    at = 0;
    for (int32_t e = 0; e < s->n_expert; e++) {
        int32_t end = s->start[e];

        if (end == at)
            continue;
        s->start[s->n_active] = at;
        s->expert[s->n_active++] = e;
        at = end;
    }
    s->start[s->n_active] = at;
    return true;
}

static const float *pair_x(const struct tensor *t, int32_t pair)
{
    const struct tensor *x = t->src[1];

    return row_of(x, x->ne[1] == 1 ? 0 : pair % t->ne[1], pair / t->ne[1], 0);
}

static float *pair_y(const struct tensor *t, int32_t pair)
{
    return row_of(t, pair % t->ne[1], pair / t->ne[1], 0);
}

/* Rows i .. i + n_i - 1 (n_i <= TILE_ROWS) of w against n_col pairs (<= TILE_COLS). */
static void expert_tile(const struct cpu_task *k, const struct tensor *t, const struct by_expert *s,
                        const char *w, int64_t i, int n_i, const int32_t *pairs, int n_col)
{
    const struct tensor *wt = t->src[0];
    const struct dtype_info *type = dtype_info(wt->type);
    quant_decode_fn *decode = task_decoder(k->isa, wt->type);
    int64_t n_in = wt->ne[0];

    for (int64_t k0 = 0; k0 < n_in; k0 += MAT_CHUNK) {
        int n_k = (int)(n_in - k0 < MAT_CHUNK ? n_in - k0 : MAT_CHUNK);
        size_t offs = (size_t)(k0 / type->block) * type->bytes;

        for (int r = 0; r < n_i; r++)
            decode(w + (size_t)(i + r) * wt->nb[1] + offs, s->w + (size_t)r * MAT_CHUNK, n_k);
        for (int c = 0; c < n_col; c++)
            memcpy(s->x + (size_t)c * MAT_CHUNK, pair_x(t, pairs[c]) + k0,
                   (size_t)n_k * sizeof(float));
        k->isa->kernels->mat_chunk(s->w, MAT_CHUNK, n_i, s->x, MAT_CHUNK, n_col, n_k, s->y,
                                   TILE_ROWS, k0 > 0);
    }
    for (int c = 0; c < n_col; c++)
        memcpy(pair_y(t, pairs[c]) + i, s->y + (size_t)c * TILE_ROWS, (size_t)n_i * sizeof(float));
}

static void expert_rows(const struct cpu_task *k, const struct tensor *t, const struct by_expert *s,
                        int a, int64_t i, int64_t n_i)
{
    const struct tensor *wt = t->src[0];
    const char *w = row_of(wt, 0, s->expert[a], 0);
    const int32_t *pairs = s->order + s->start[a];
    int32_t n_pair = s->start[a + 1] - s->start[a];
    cpu_vec_fn *vec = k->isa->quants->vec[wt->type];

    if (n_pair == 1 && vec) {
        vec(w + (size_t)i * wt->nb[1], wt->nb[1], (int)n_i, pair_x(t, *pairs), wt->ne[0],
            pair_y(t, *pairs) + i);
        return;
    }
    for (int64_t r = 0; r < n_i; r += TILE_ROWS) {
        int n_r = (int)(n_i - r < TILE_ROWS ? n_i - r : TILE_ROWS);

        for (int32_t c = 0; c < n_pair; c += TILE_COLS)
            expert_tile(k, t, s, w, i + r, n_r, pairs + c,
                        n_pair - c < TILE_COLS ? n_pair - c : TILE_COLS);
    }
}

/* Items of 32 KiB, some ten rows and more: enough of them that all threads end together. */
static int64_t rows_per_item(const struct tensor *w)
{
    int64_t each = 32768 / (int64_t)(w->nb[1] + 1) & ~3ll;

    return each < 8 ? 8 : each > TILE_ROWS ? TILE_ROWS : each;
}

static void mul_mat_id_run(const struct cpu_task *k, const struct tensor *t)
{
    int64_t each = rows_per_item(t->src[0]), n_row = t->ne[0], n_item, item;
    struct by_expert s;

    if (!t->src[0]->ne[0]) {
        if (k->ith == 0)
            memset(t->data, 0, tensor_bytes(t));
        return;
    }
    if (!sort_pairs(k, t, &s))
        return;
    n_item = (n_row + each - 1) / each;
    while ((item = task_next(k)) < n_item * s.n_active) {
        int64_t i = item % n_item * each;

        expert_rows(k, t, &s, (int)(item / n_item), i, n_row - i < each ? n_row - i : each);
    }
}

const struct cpu_op cpu_op_mul_mat_id = {.supports = mul_mat_id_supports,
                                         .scratch = mul_mat_id_scratch,
                                         .run = mul_mat_id_run,
                                         .heavy = true,
                                         .isa_in_name = true};
