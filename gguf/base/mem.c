#define _GNU_SOURCE
#include "gguf/base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/*
 * The only mutable file-level state of the library: counters that must see every allocation of the
 * process, whoever makes it. They never change what the program computes.
 */
static _Atomic uint64_t n_calls;
static _Atomic uint64_t fail_at; /* value of n_calls that fails; 0 = never */
static _Atomic uint64_t n_guarded;
static _Atomic bool guarded;

static bool may_alloc(void)
{
    uint64_t n = atomic_fetch_add_explicit(&n_calls, 1, memory_order_relaxed) + 1;

    if (atomic_load_explicit(&guarded, memory_order_relaxed))
        atomic_fetch_add_explicit(&n_guarded, 1, memory_order_relaxed);
    return n != atomic_load_explicit(&fail_at, memory_order_relaxed);
}

bool mem_mul(size_t a, size_t b, size_t *out)
{
    size_t r;

    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

bool mem_add(size_t a, size_t b, size_t *out)
{
    size_t r;

    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

bool mem_round_up(size_t n, size_t align, size_t *out)
{
    size_t r;

    if (!mem_add(n, align - 1, &r))
        return false;
    *out = r & ~(align - 1);
    return true;
}

void *mem_alloc(size_t n_bytes)
{
    return may_alloc() ? malloc(n_bytes ? n_bytes : 1) : NULL;
}

void *mem_zalloc(size_t n_bytes)
{
    return may_alloc() ? calloc(1, n_bytes ? n_bytes : 1) : NULL;
}

void *mem_array(size_t n, size_t size)
{
    size_t n_bytes;

    return mem_mul(n, size, &n_bytes) ? mem_zalloc(n_bytes) : NULL;
}

void *mem_grow(void *p, size_t n, size_t size)
{
    size_t n_bytes;

    if (!mem_mul(n, size, &n_bytes) || !may_alloc())
        return NULL;
    return realloc(p, n_bytes ? n_bytes : 1);
}

char *mem_strndup(const char *s, size_t n)
{
    size_t n_bytes;
    char *d;

    if (!mem_add(n, 1, &n_bytes))
        return NULL;
    d = mem_alloc(n_bytes);
    if (d) {
        memcpy(d, s, n);
        d[n] = 0;
    }
    return d;
}

bool mem_room(void *array, int *cap, int n, size_t size)
{
    int want = *cap;
    void *p;

    if (n <= want)
        return true;
    want = n > INT32_MAX / 2 ? n : n + n / 2;
    memcpy(&p, array, sizeof p);
    p = mem_grow(p, (size_t)want, size);
    if (!p)
        return false;
    memcpy(array, &p, sizeof p);
    *cap = want;
    return true;
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}

void mem_free(void *p)
{
    free(p);
}

void *mem_aligned(size_t n_bytes)
{
    size_t n;

    if (!mem_round_up(n_bytes ? n_bytes : 1, MEM_ALIGN, &n) || !may_alloc())
        return NULL;
    return aligned_alloc(MEM_ALIGN, n);
}

static bool page_round(size_t n_bytes, size_t *out)
{
    return mem_round_up(n_bytes ? n_bytes : 1, (size_t)sysconf(_SC_PAGESIZE), out);
}

void *mem_pages(size_t n_bytes)
{
    size_t n;
    void *p;

    if (!page_round(n_bytes, &n) || !may_alloc())
        return NULL;
    p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void mem_pages_free(void *p, size_t n_bytes)
{
    size_t n;

    if (p && page_round(n_bytes, &n))
        munmap(p, n);
}

bool mem_lock(const void *p, size_t n_bytes)
{
    return mlock(p, n_bytes) == 0;
}

size_t mem_lock_limit(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_MEMLOCK, &r) != 0 || r.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    return (size_t)r.rlim_cur;
}

struct arena_block {
    struct arena_block *next;
    size_t size; /* bytes after the header */
    size_t used;
    _Alignas(16) unsigned char data[];
};

void arena_init(struct arena *a, size_t block_size)
{
    *a = (struct arena){.block_size = block_size};
}

void *arena_alloc(struct arena *a, size_t n_bytes)
{
    struct arena_block *b = a->blocks;
    size_t n, total;
    void *p;

    if (a->failed)
        return NULL;
    if (!mem_round_up(n_bytes ? n_bytes : 1, 16, &n))
        goto fail;
    if (!b || b->size - b->used < n) {
        size_t size = n > a->block_size ? n : a->block_size;
        if (!mem_add(size, sizeof *b, &total))
            goto fail;
        b = mem_zalloc(total);
        if (!b)
            goto fail;
        b->size = size;
        b->next = a->blocks;
        a->blocks = b;
    }
    p = b->data + b->used;
    b->used += n;
    a->n_bytes += n;
    return p;
fail:
    a->failed = true;
    return NULL;
}

void *arena_array(struct arena *a, size_t n, size_t size)
{
    size_t n_bytes;

    if (!mem_mul(n, size, &n_bytes)) {
        a->failed = true;
        return NULL;
    }
    return arena_alloc(a, n_bytes);
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    size_t n_bytes;
    char *d;

    if (!mem_add(n, 1, &n_bytes)) {
        a->failed = true;
        return NULL;
    }
    d = arena_alloc(a, n_bytes);
    if (d)
        memcpy(d, s, n);
    return d;
}

void arena_release(struct arena *a)
{
    struct arena_block *b = a->blocks;

    while (b) {
        struct arena_block *next = b->next;
        mem_free(b);
        b = next;
    }
    arena_init(a, a->block_size);
}

void mem_fail_at(uint64_t n)
{
    atomic_store(&fail_at, n ? atomic_load(&n_calls) + n : 0);
}

uint64_t mem_calls(void)
{
    return atomic_load(&n_calls);
}

void mem_guard_begin(void)
{
    atomic_store(&n_guarded, 0);
    atomic_store(&guarded, true);
}

uint64_t mem_guard_end(void)
{
    atomic_store(&guarded, false);
    return atomic_load(&n_guarded);
}
