#include "runtime/hparams_keys.h"

#include <math.h>
#include <stdio.h>

const char *keys_name(struct keys *k, const char *name)
{
    snprintf(k->key, sizeof k->key, "%s.%s", k->arch, name);
    return k->key;
}

bool keys_has(struct keys *k, const char *name)
{
    return gguf_find(k->g, keys_name(k, name)) != NULL;
}

void keys_check_u32(struct keys *k, uint32_t v, uint32_t lo, uint32_t hi)
{
    if (!k->st && (v < lo || v > hi))
        k->st = err_set(k->e, ST_MODEL, "key '%s' is %u, expected %u to %u", k->key, v, lo, hi);
}

void keys_u32(struct keys *k, const char *name, bool required, uint32_t lo, uint32_t hi,
              uint32_t *out)
{
    if (k->st)
        return;
    k->st = gguf_get_u32(k->g, keys_name(k, name), required, out, k->e);
    keys_check_u32(k, *out, lo, hi);
}

void keys_u32_per_layer(struct keys *k, struct hparams *hp, const char *name, bool required,
                        size_t field, uint32_t *max)
{
    const struct gguf_kv *kv = k->st ? NULL : gguf_find(k->g, keys_name(k, name));
    bool array = kv && kv->type == GGUF_ARR;
    uint32_t least = k->partial ? 0 : 1;

    if (k->st)
        return;
    if (!array)
        keys_u32(k, name, required, least, N_MAX, max);
    else if (!gguf_type_is_int(kv->elem) || kv->n != hp->n_layer)
        k->st =
            err_set(k->e, ST_MODEL,
                    "key '%s' is an array of %llu %s, expected one integer or one per layer (%u)",
                    k->key, (unsigned long long)kv->n, gguf_type_name(kv->elem), hp->n_layer);
    else
        *max = 0;
    for (uint32_t il = 0; il < hp->n_layer && !k->st; il++) {
        int64_t v = array ? gguf_kv_int(kv, il) : *max;

        if (v < least || v > N_MAX)
            k->st = err_set(k->e, ST_MODEL, "key '%s' is %lld for layer %u, expected %u to %u",
                            k->key, (long long)v, il, least, N_MAX);
        *(uint32_t *)((char *)&hp->layer[il] + field) = (uint32_t)v;
        *max = v > *max ? (uint32_t)v : *max;
    }
}

void keys_f32(struct keys *k, const char *name, bool required, bool zero_ok, float *out)
{
    if (k->st)
        return;
    k->st = gguf_get_f32(k->g, keys_name(k, name), required, out, k->e);
    if (!k->st && (!isfinite(*out) || *out < 0 || (*out == 0 && !zero_ok)))
        k->st = err_set(k->e, ST_MODEL, "key '%s' is %g, expected a finite number %s 0", k->key,
                        (double)*out, zero_ok ? "not below" : "above");
}
