#include "runtime/tok_ranks.h"

#include <string.h>

#include "gguf/base/mem.h"

#define MERGES_KEY "tokenizer.ggml.merges"

void ranks_release(struct ranks *t)
{
    mem_free(t->rule);
    mem_free(t->slot);
    *t = (struct ranks){0};
}

uint32_t ranks_key(const void *ctx, const char *p, size_t n_left, size_t n_right)
{
    const struct ranks *t = ctx;
    uint64_t hash;

    if (n_left + n_right > t->max_pair)
        return MERGE_NONE;
    hash = tok_hash_pair(tok_hash(p, n_left), tok_hash(p + n_left, n_right));
    for (size_t i = hash & t->slot_mask; t->slot[i].ref; i = (i + 1) & t->slot_mask) {
        const struct rule *r;

        if (t->slot[i].tag != (uint32_t)(hash >> 32))
            continue;
        r = &t->rule[t->slot[i].ref - 1];
        if (r->n_left == n_left && r->n_right == n_right && memcmp(r->p, p, n_left) == 0 &&
            memcmp(r->p + n_left + 1, p + n_left, n_right) == 0)
            return t->slot[i].ref - 1;
    }
    return MERGE_NONE;
}

/* A pair that is listed twice keeps its first rank. */
static void index_rule(struct ranks *t, uint32_t rank, uint64_t hash)
{
    const struct rule *r = &t->rule[rank];
    size_t i = hash & t->slot_mask;

    for (; t->slot[i].ref; i = (i + 1) & t->slot_mask) {
        const struct rule *o = &t->rule[t->slot[i].ref - 1];

        if (t->slot[i].tag == (uint32_t)(hash >> 32) && o->n_left == r->n_left &&
            o->n_right == r->n_right && memcmp(o->p, r->p, r->n_left + 1 + r->n_right) == 0)
            return;
    }
    t->slot[i] = (struct rule_slot){.tag = (uint32_t)(hash >> 32), .ref = rank + 1};
}

static enum status bad_rule(uint64_t i, struct gguf_str line, const char *why, struct gguf_str part,
                            struct err *e)
{
    char q[64], q2[64] = "";

    return err_set(e, ST_MODEL, "key '" MERGES_KEY "': element %llu, '%s', %s%s",
                   (unsigned long long)i, text_quote(q, sizeof q, line.p, line.n), why,
                   part.n ? text_quote(q2, sizeof q2, part.p, part.n) : "");
}

/* The first space that has something in front of it parts the two. */
static enum status parse_rule(struct ranks *t, uint64_t i, struct gguf_str s, struct err *e)
{
    const char *space = s.n > 1 ? memchr(s.p + 1, ' ', s.n - 1) : NULL;
    struct gguf_str none = {"", 0};
    size_t n_left;

    if (!space || space == s.p + s.n - 1 || s.n > UINT32_MAX / 4)
        return bad_rule(i, s, "is not two pieces with a space between them", none, e);
    n_left = (size_t)(space - s.p);
    t->rule[i] = (struct rule){s.p, (uint32_t)n_left, (uint32_t)(s.n - n_left - 1)};
    if (s.n - 1 > t->max_pair)
        t->max_pair = s.n - 1;
    return ST_OK;
}

struct rule_hash {
    uint64_t left, right, pair;
};

static struct rule_hash hash_rule(const struct vocab *v, const struct ranks *t, size_t i)
{
    const struct rule *r = &t->rule[i];
    struct rule_hash h = {tok_hash(r->p, r->n_left), tok_hash(r->p + r->n_left + 1, r->n_right), 0};

    h.pair = tok_hash_pair(h.left, h.right);
    tok_prefetch(v, h.left);
    tok_prefetch(v, h.right);
    __builtin_prefetch(&t->slot[h.pair & t->slot_mask], 1);
    return h;
}

/* Both parts of a rule must be tokens. What they make need not be: it is then written as bytes. */
static enum status check_rule(const struct vocab *v, const struct ranks *t, size_t i,
                              const struct rule_hash *h, struct err *e)
{
    const struct rule *r = &t->rule[i];
    struct gguf_str line = {r->p, r->n_left + 1 + r->n_right};

    if (!tok_may_find(v, h->left))
        return bad_rule(i, line, "joins what is not a token: ", (struct gguf_str){r->p, r->n_left},
                        e);
    if (!tok_may_find(v, h->right))
        return bad_rule(i, line, "joins what is not a token: ",
                        (struct gguf_str){r->p + r->n_left + 1, r->n_right}, e);
    return ST_OK;
}

static enum status index_rules(const struct vocab *v, struct ranks *t, struct err *e)
{
    struct rule_hash hash[TOK_AHEAD] = {0};

    for (size_t i = 0; i < t->n_rules + TOK_AHEAD; i++) {
        struct rule_hash *h = &hash[i % TOK_AHEAD];

        if (i >= TOK_AHEAD) {
            enum status st = check_rule(v, t, i - TOK_AHEAD, h, e);

            if (st)
                return st;
            index_rule(t, (uint32_t)(i - TOK_AHEAD), h->pair);
        }
        if (i < t->n_rules)
            *h = hash_rule(v, t, i);
    }
    return ST_OK;
}

enum status ranks_load(struct ranks *t, const struct vocab *v, const struct gguf *g, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, MERGES_KEY);
    struct gguf_str_iter it;
    struct gguf_str s;
    size_t n_slots = 16;
    enum status st;

    if (kv && kv->type == GGUF_ARR && kv->n == 0) { /* bytes only: no merges is not an error */
        t->slot = mem_array(1, sizeof *t->slot);
        return t->slot ? ST_OK : err_nomem(e, "vocabulary merges", sizeof *t->slot);
    }
    st = tok_get_array(g, MERGES_KEY, GGUF_STR, 0, true, &kv, e);
    if (st)
        return st;
    if (kv->n > INT32_MAX / 4)
        return err_set(e, ST_MODEL, "key '%s' has %llu elements, at most %d are possible", kv->key,
                       (unsigned long long)kv->n, INT32_MAX / 4);
    while (n_slots * 3 < 4 * (size_t)kv->n + 4)
        n_slots *= 2;
    t->n_rules = (size_t)kv->n;
    t->slot_mask = n_slots - 1;
    t->rule = mem_array(t->n_rules, sizeof *t->rule);
    t->slot = mem_array(n_slots, sizeof *t->slot);
    if (!t->rule || !t->slot)
        return err_nomem(e, "vocabulary merges",
                         n_slots * sizeof *t->slot + t->n_rules * sizeof *t->rule);
    it = gguf_strs(kv);
    for (uint64_t i = 0; gguf_str_next(&it, &s); i++) {
        st = parse_rule(t, i, s, e);
        if (st)
            return st;
    }
    return index_rules(v, t, e);
}
