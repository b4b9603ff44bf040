#include "runtime/pack.h"

#include <stdlib.h>
#include <string.h>

#include "gguf/base/mem.h"

#define PAIRS_MAX ((size_t)4 << 20) /* more pairs that live together: not packed */
#define WORK_MAX  ((size_t)1 << 20) /* pairs looked at from one order to start with */

/* How to search: the first line is quick, the others for what is hard and still above least / 32. */
struct effort {
    int rounds;  /* attempts from each of the orders to start with */
    int quarter; /* move to this many quarters of its place; 0 = anywhere in front */
    int period;  /* every so many rounds to the very front instead; 0 = never */
    size_t near; /* near enough: least + least / near */
};
static const struct effort efforts[] = {
    {40, 2, 4, 64}, {5000, 2, 4, 32}, {5000, 3, 8, 32}, {5000, 0, 0, 32}};

enum key { KEY_SIZE, KEY_AREA, KEY_SPAN, N_KEYS };

struct rank {
    double demand;
    int32_t span; /* steps */
    int32_t run;
};

struct gap { /* offsets in (lo, hi) are taken, seen from the run that is being placed */
    int64_t lo, hi;
};

struct search {
    struct pack *k;
    struct arena arena;
    int n;             /* runs of the group */
    int32_t *runs;     /* [n] */
    int32_t *order;    /* [n] being tried */
    size_t *offs;      /* [n_runs] of the attempt; SIZE_MAX = not placed yet */
    int32_t *peer_at;  /* [n_items + 1] into peers */
    int32_t *peers;    /* items that live at the same time */
    struct gap *gaps;  /* room for those of any run */
    struct rank *rank; /* [n] */
    size_t work;
    uint32_t random;
    bool better;
};

/* ---- who lives together ---- */

/*
 * Pairs of items that live together: go through them in the order of birth with a list of those
 * still alive. Called twice, first to count (peers NULL), then to fill.
 */
static size_t find_peers(struct search *s, int32_t *alive)
{
    const struct pack_item *items = s->k->items;
    size_t n_pairs = 0;
    int n_alive = 0;

    for (int i = 0; i < s->k->n_items; i++) {
        int kept = 0;

        if (s->k->runs[items[i].run].group != s->k->group)
            continue;
        for (int y = 0; y < n_alive; y++) {
            int32_t j = alive[y];

            if (items[j].to < items[i].from)
                continue;
            alive[kept++] = j;
            if (s->peers) {
                s->peers[s->peer_at[i]++] = j;
                s->peers[s->peer_at[j]++] = i;
            } else {
                s->peer_at[i]++;
                s->peer_at[j]++;
            }
        }
        n_pairs += (size_t)kept;
        if (n_pairs > PAIRS_MAX)
            return n_pairs;
        n_alive = kept;
        alive[n_alive++] = i;
    }
    return n_pairs;
}

/* Peers of all items of a run. */
static size_t n_peers(const struct search *s, int32_t r)
{
    size_t n = 0;

    for (int32_t i = s->k->runs[r].first; i >= 0; i = s->k->items[i].next)
        n += (size_t)(s->peer_at[i + 1] - s->peer_at[i]);
    return n;
}

/* False: too many pairs, or no memory. */
static bool list_peers(struct search *s)
{
    int n_items = s->k->n_items;
    int32_t *alive = arena_array(&s->arena, (size_t)n_items, sizeof *alive);
    size_t n_pairs, at = 0, most = 0;

    s->peer_at = arena_array(&s->arena, (size_t)n_items + 1, sizeof *s->peer_at);
    if (!alive || !s->peer_at)
        return false;
    n_pairs = find_peers(s, alive);
    if (n_pairs > PAIRS_MAX)
        return false;
    for (int i = 0; i <= n_items; i++) { /* counts become starts */
        size_t n = (size_t)s->peer_at[i];

        s->peer_at[i] = (int32_t)at;
        at += n;
    }
    s->peers = arena_array(&s->arena, 2 * n_pairs, sizeof *s->peers);
    if (!s->peers)
        return false;
    find_peers(s, alive);
    for (int i = n_items; i > 0; i--) /* filling moved each start to its end */
        s->peer_at[i] = s->peer_at[i - 1];
    s->peer_at[0] = 0;
    for (int x = 0; x < s->n; x++) {
        size_t n = n_peers(s, s->runs[x]);

        most = n > most ? n : most;
    }
    s->gaps = arena_array(&s->arena, most, sizeof *s->gaps);
    return s->gaps;
}

/* ---- one attempt ---- */

static int by_lo(const void *x, const void *y)
{
    const struct gap *g = x, *h = y;

    return (g->lo > h->lo) - (g->lo < h->lo);
}

/* The lowest offset of the tightest gap among what is placed already and lives at the same time. */
static size_t find_offset(struct search *s, int32_t r)
{
    const struct pack_item *items = s->k->items;
    int64_t cur = 0, best = -1, best_slack = INT64_MAX;
    int n = 0;

    for (int32_t i = s->k->runs[r].first; i >= 0; i = items[i].next) {
        for (int32_t x = s->peer_at[i]; x < s->peer_at[i + 1]; x++) {
            const struct pack_item *peer = &items[s->peers[x]];
            size_t offs = s->offs[peer->run];

            s->work++;
            if (offs != SIZE_MAX)
                s->gaps[n++] = (struct gap){(int64_t)offs - (int64_t)items[i].size,
                                            (int64_t)(offs + peer->size)};
        }
    }
    qsort(s->gaps, (size_t)n, sizeof *s->gaps, by_lo);
    for (int i = 0; i < n; i++) {
        int64_t slack = s->gaps[i].lo - cur;

        if (slack >= 0 && slack < best_slack) {
            best = cur;
            best_slack = slack;
        }
        if (s->gaps[i].hi > cur)
            cur = s->gaps[i].hi;
    }
    return (size_t)(best >= 0 ? best : cur);
}

/*
 * Place the runs in s->order; those before `from` are where they were. Returns the place in the
 * order of the run that ends highest, or of the first that ends above `limit`.
 */
static int attempt(struct search *s, int from, size_t limit)
{
    size_t peak = 0;
    int top = 0;

    for (int x = from; x < s->n; x++)
        s->offs[s->order[x]] = SIZE_MAX;
    for (int x = 0; x < s->n; x++) {
        int32_t r = s->order[x];
        size_t end;

        if (x >= from)
            s->offs[r] = find_offset(s, r);
        end = s->offs[r] + s->k->items[s->k->runs[r].first].size;
        if (end > peak) {
            peak = end;
            top = x;
        }
        if (end > limit)
            return top;
    }
    if (peak < s->k->peak) {
        s->k->peak = peak;
        s->better = true;
        memcpy(s->k->offs, s->offs, (size_t)s->k->n_runs * sizeof *s->offs);
    }
    return top;
}

/* ---- the search ---- */

/* The most demanding first; then the longest-lived; then the earliest. */
static int by_demand(const void *x, const void *y)
{
    const struct rank *i = x, *j = y;

    if (i->demand < j->demand || i->demand > j->demand)
        return i->demand > j->demand ? -1 : 1;
    if (i->span != j->span)
        return i->span > j->span ? -1 : 1;
    return (i->run > j->run) - (i->run < j->run);
}

static void sort_runs(struct search *s, enum key key)
{
    const struct pack_item *items = s->k->items;

    for (int x = 0; x < s->n; x++) {
        const struct pack_run *r = &s->k->runs[s->runs[x]];
        int32_t span = items[r->last].to - items[r->first].from + 1;
        double size = (double)items[r->first].size;

        s->rank[x] = (struct rank){
            .demand = key == KEY_SIZE   ? size
                      : key == KEY_AREA ? size * span
                                        : span,
            .span = span,
            .run = s->runs[x],
        };
    }
    qsort(s->rank, (size_t)s->n, sizeof *s->rank, by_demand);
    for (int x = 0; x < s->n; x++)
        s->order[x] = s->rank[x].run;
}

static int next_place(struct search *s, const struct effort *ef, int round, int top)
{
    if (ef->quarter == 0) {
        s->random = s->random * 1664525u + 1013904223u;
        return (int)((s->random >> 8) % (uint32_t)top);
    }
    if (round % ef->period == ef->period - 1)
        return 0;
    return top * ef->quarter / 4;
}

static void move(int32_t *order, int from, int to)
{
    int32_t r = order[from];

    memmove(&order[to + 1], &order[to], (size_t)(from - to) * sizeof *order);
    order[to] = r;
}

static void search_from(struct search *s, enum key key, const struct effort *ef)
{
    size_t enough = s->k->least + s->k->least / ef->near;
    int top;

    if (s->k->peak <= enough)
        return;
    sort_runs(s, key);
    s->work = 0;
    top = attempt(s, 0, SIZE_MAX);
    for (int round = 0; round < ef->rounds; round++) {
        int to;

        if (s->k->peak <= enough || top == 0 || s->work > WORK_MAX)
            return;
        to = next_place(s, ef, round, top);
        move(s->order, top, to);
        top = attempt(s, to, enough + (s->k->peak - enough) / 2);
    }
}

/* False: too many pairs, or no memory. */
static bool search_init(struct search *s)
{
    size_t n = (size_t)s->k->n_runs;

    arena_init(&s->arena, 64 << 10);
    s->random = 1;
    s->runs = arena_array(&s->arena, n, sizeof *s->runs);
    s->order = arena_array(&s->arena, n, sizeof *s->order);
    s->offs = arena_array(&s->arena, n, sizeof *s->offs);
    s->rank = arena_array(&s->arena, n, sizeof *s->rank);
    if (s->arena.failed)
        return false;
    for (int32_t r = 0; r < s->k->n_runs; r++) {
        if (s->k->runs[r].group == s->k->group)
            s->runs[s->n++] = r;
    }
    return list_peers(s);
}

enum status pack(struct pack *k, bool *better, struct err *e)
{
    struct search s = {.k = k};
    enum status st = ST_OK;

    if (search_init(&s)) {
        for (size_t i = 0; i < sizeof efforts / sizeof efforts[0]; i++) {
            for (int key = 0; key < N_KEYS; key++)
                search_from(&s, (enum key)key, &efforts[i]);
        }
    } else if (s.arena.failed) {
        st = err_nomem(e, "packing a plan", s.arena.n_bytes);
    }
    *better = s.better;
    arena_release(&s.arena);
    return st;
}
