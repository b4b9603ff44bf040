/*
 * MUL_MAT: y[i, j] = sum over k of w[i, k] x[j, k]. Weights stay in their type.
 *
 * One column: rows are decoded on the fly (cpu_vec_fn), where the instruction set can.
 * More columns, or a type without such a kernel: an item is a tile of TILE_ROWS rows by TILE_COLS
 * columns; for each chunk of k the rows are decoded into scratch, then multiplied with all columns.
 * Turned weights (rows innermost, as the values in a KV cache) are decoded k by k and turned back.
 * All sum in the order of kernels.h, so that a prompt evaluated at once and token by token gives
 * the same bits.
 */
#include <string.h>

#include "backends/cpu/ops.h"

#define TILE_ROWS 32
#define TILE_COLS 192

/* The product as the loops see it: one or more planes, each [n_k, n_row] times [n_k, n_col]. */
struct product {
    const struct tensor *t, *w, *x;
    int64_t n_k, n_row, n_col;
    int64_t n_plane;  /* planes of x, those merged into one counted as one */
    int64_t n_merged; /* in ne[2] */
    size_t ldx;      /* floats */
};

/* Elements of a column side by side, not those of a row. */
static bool turned(const struct tensor *w)
{
    const struct dtype_info *type = dtype_info(w->type);

    return type->block == 1 && w->nb[1] == type->bytes && w->nb[0] != type->bytes;
}

static bool mul_mat_supports(const struct tensor *t)
{
    return (tensor_rows_contiguous(t->src[0]) || turned(t->src[0])) && f32_rows(t->src[1]) &&
           f32_rows(t) && t->ne[0] <= INT32_MAX && t->ne[1] <= INT32_MAX &&
           t->src[0]->ne[0] <= INT32_MAX;
}

/*
 * How many consecutive planes of x share one of w and have all their columns one stride apart, so that they
 * are one: the heads of a group.
 */
static int64_t mergeable(const struct tensor *w, const struct tensor *x)
{
    if (x->ne[2] == 0 || (x->ne[1] != 1 && x->nb[2] != x->nb[1] * (size_t)x->ne[1]))
        return 1;
    return x->ne[2] / w->ne[2];
}

static struct product product_of(const struct tensor *t)
{
    const struct tensor *w = t->src[0], *x = t->src[1];
    int64_t n = mergeable(w, x);
    struct product p = {.t = t,
                        .w = w,
                        .x = x,
                        .n_k = w->ne[0],
                        .n_row = w->ne[1],
                        .n_col = x->ne[1] * n,
                        .n_plane = x->ne[2] / n * x->ne[3],
                        .n_merged = n,
                        .ldx = (x->ne[1] == 1 && n > 1 ? x->nb[2] : x->nb[1]) / 4};

    /* One matrix for all, and ne[3] goes on where ne[2] ends: a single plane. */
    if (x->ne[3] > 1 && w->ne[3] == 1 && n == x->ne[2] && x->nb[3] == 4 * p.ldx * (size_t)p.n_col) {
        p.n_col *= x->ne[3];
        p.n_plane = 1;
    }
    return p;
}

static const char *plane_w(const struct product *p, int64_t plane)
{
    int64_t n2 = p->x->ne[2] / p->n_merged, i2 = plane % n2 * p->n_merged, i3 = plane / n2;

    return row_of(p->w, 0, i2 / (p->x->ne[2] / p->w->ne[2]), i3 / (p->x->ne[3] / p->w->ne[3]));
}
static const float *plane_x(const struct product *p, int64_t plane)
{
    int64_t n2 = p->x->ne[2] / p->n_merged;

    return row_of(p->x, 0, plane % n2 * p->n_merged, plane / n2);
}
static float *plane_y(const struct product *p, int64_t plane)
{
    return (float *)p->t->data + plane * p->n_row * p->n_col;
}

static bool by_vec(const struct cpu_isa *isa, const struct product *p)
{
    return p->n_col == 1 && isa->quants->vec[p->w->type] && !turned(p->w);
}

static size_t mul_mat_scratch(const struct cpu_isa *isa, const struct tensor *t)
{
    struct product p = product_of(t);

    return by_vec(isa, &p) ? 0 : (turned(p.w) ? 2 : 1) * TILE_ROWS * MAT_CHUNK * sizeof(float);
}

/* Items of some ten rows to 32 KiB: enough of them that both threads end together. */
static void run_vec(const struct cpu_task *k, const struct product *p)
{
    cpu_vec_fn *vec = k->isa->quants->vec[p->w->type];
    int64_t each = 32768 / (int64_t)(p->w->nb[1] + 1), fair = p->n_row / (8 * k->nth), n_item, item;

    each = (each < fair ? each : fair) & ~3ll;
    each = each < 4 ? 4 : each;
    n_item = (p->n_row + each - 1) / each;
    while ((item = task_next(k)) < n_item * p->n_plane) {
        int64_t plane = item / n_item, i = item % n_item * each;
        int64_t n = p->n_row - i < each ? p->n_row - i : each;

        vec(plane_w(p, plane) + (size_t)i * p->w->nb[1], p->w->nb[1], (int)n, plane_x(p, plane),
            p->n_k, plane_y(p, plane) + i);
    }
}

/* Elements k0 .. k0+n_k-1 of n_i rows, the first at w: [MAT_CHUNK, n_i]. */
static void load_rows(const struct cpu_task *k, const struct product *p, const char *w, int64_t k0,
                      int n_k, int n_i, float *tile)
{
    const struct dtype_info *type = dtype_info(p->w->type);
    quant_decode_fn *decode = task_decoder(k->isa, p->w->type);
    float *columns = tile + TILE_ROWS * MAT_CHUNK; /* [TILE_ROWS, n_k] */
    int n_k4 = (n_k + 3) & ~3;

    if (!turned(p->w)) {
        for (int r = 0; r < n_i; r++)
            decode(w + (size_t)r * p->w->nb[1] + (size_t)(k0 / type->block) * type->bytes,
                   tile + (size_t)r * MAT_CHUNK, n_k);
        return;
    }
    for (int c = 0; c < n_k; c++)
        decode(w + (size_t)(k0 + c) * p->w->nb[0], columns + (size_t)c * TILE_ROWS, n_i);
    for (int c = n_k; c < n_k4; c++) /* squares of 4 are turned: whole ones */
        memset(columns + (size_t)c * TILE_ROWS, 0, TILE_ROWS * sizeof *columns);
    k->isa->kernels->transpose(columns, TILE_ROWS, n_k4, (n_i + 3) & ~3, tile, MAT_CHUNK);
}

/* Rows i .. i+n_i-1 by columns j .. j+n_j-1 of a plane. */
static void run_tile(const struct cpu_task *k, const struct product *p, int64_t plane, int64_t i,
                     int n_i, int64_t j, int n_j)
{
    const char *w = plane_w(p, plane) + (size_t)i * p->w->nb[1];
    const float *x = plane_x(p, plane) + (size_t)j * p->ldx;
    float *y = plane_y(p, plane) + j * p->n_row + i, *tile = k->scratch;

    for (int64_t k0 = 0; k0 < p->n_k; k0 += MAT_CHUNK) {
        int n_k = (int)(p->n_k - k0 < MAT_CHUNK ? p->n_k - k0 : MAT_CHUNK);

        load_rows(k, p, w, k0, n_k, n_i, tile);
        k->isa->kernels->mat_chunk(tile, MAT_CHUNK, n_i, x + k0, p->ldx, n_j, n_k, y,
                                   (size_t)p->n_row, k0 > 0);
    }
}

static void run_tiles(const struct cpu_task *k, const struct product *p)
{
    int64_t n_i = (p->n_row + TILE_ROWS - 1) / TILE_ROWS;
    int64_t n_j = (p->n_col + TILE_COLS - 1) / TILE_COLS;
    int64_t item;

    while ((item = task_next(k)) < n_i * n_j * p->n_plane) {
        int64_t plane = item / (n_i * n_j), i = item % n_i * TILE_ROWS;
        int64_t j = item / n_i % n_j * TILE_COLS;

        run_tile(k, p, plane, i, (int)(p->n_row - i < TILE_ROWS ? p->n_row - i : TILE_ROWS), j,
                 (int)(p->n_col - j < TILE_COLS ? p->n_col - j : TILE_COLS));
    }
}

static void mul_mat_run(const struct cpu_task *k, const struct tensor *t)
{
    struct product p = product_of(t);

    if (p.n_k == 0) {
        if (k->ith == 0)
            memset(t->data, 0, tensor_bytes(t));
    } else if (by_vec(k->isa, &p)) {
        run_vec(k, &p);
    } else {
        run_tiles(k, &p);
    }
}

const struct cpu_op cpu_op_mul_mat = {.supports = mul_mat_supports,
                                      .scratch = mul_mat_scratch,
                                      .run = mul_mat_run,
                                      .heavy = true,
                                      .isa_in_name = true};
