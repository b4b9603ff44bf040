/*
 * Memory: checked allocation, arenas, and the two hooks that tests use.
 *
 * Every allocation below cli/ goes through here, so that a test can let the n-th one fail and can
 * prove that a replayed step makes none. All functions return NULL on failure and never abort.
 */
#ifndef GGRUN_GGUF_BASE_MEM_H
#define GGRUN_GGUF_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEM_ALIGN 64 /* bytes; what mem_aligned and buffers promise: one cache line, one zmm */

/* a*b and a+b into *out; false (and *out untouched) on overflow. */
bool mem_mul(size_t a, size_t b, size_t *out);
bool mem_add(size_t a, size_t b, size_t *out);
/* Round n up to a multiple of align (a power of two); false on overflow. */
bool mem_round_up(size_t n, size_t align, size_t *out);

void *mem_alloc(size_t n_bytes);                /* uninitialised; 0 bytes is a valid pointer */
void *mem_zalloc(size_t n_bytes);               /* zeroed */
void *mem_array(size_t n, size_t size);         /* zeroed; NULL when n*size overflows */
void *mem_grow(void *p, size_t n, size_t size); /* realloc to n*size; on failure p stays valid */
/*
 * Make room for n elements of `size` bytes in an array that only grows: `array` is the address of the pointer to
 * it, *cap the elements that fit. False when memory is short, and nothing changed.
 */
bool mem_room(void *array, int *cap, int n, size_t size);
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n); /* copies n bytes, adds NUL */
void mem_free(void *p);                     /* of all the above; NULL is fine */

/* MEM_ALIGN-aligned, uninitialised; released with mem_free. */
void *mem_aligned(size_t n_bytes);

/*
 * Zeroed pages from the system (anonymous mapping, page-aligned), for buffers: they cost memory only
 * when touched. n_bytes of mem_pages_free must be that of mem_pages. n_bytes == 0 gives one page.
 */
void *mem_pages(size_t n_bytes);
void mem_pages_free(void *p, size_t n_bytes);

/* Keep pages in memory until they are unmapped; false with errno where the system refuses. */
bool mem_lock(const void *p, size_t n_bytes);
/* Bytes that this process may lock; SIZE_MAX: no limit. */
size_t mem_lock_limit(void);

/*
 * Arena: many small objects that die together. Sticky: after a failed allocation `failed` is set and
 * every later call returns NULL, so that one check at the end is enough. Results are zeroed and
 * 16-byte aligned.
 */
struct arena {
    struct arena_block *blocks; /* newest first */
    size_t block_size;          /* bytes of a fresh block */
    size_t n_bytes;             /* bytes handed out, alignment included */
    bool failed;
};

void arena_init(struct arena *a, size_t block_size);
void *arena_alloc(struct arena *a, size_t n_bytes);
void *arena_array(struct arena *a, size_t n, size_t size);
char *arena_strndup(struct arena *a, const char *s, size_t n);
void arena_release(struct arena *a); /* frees all blocks; the arena may be used again */

/* ---- hooks for tests and --stats ---- */

/* Let the n-th allocation from now fail (1 = the next); every later one works. 0 switches off. */
void mem_fail_at(uint64_t n);
/* Number of allocation calls since the start of the process (all threads). */
uint64_t mem_calls(void);
/* Between begin and end every allocation is counted as a violation; end returns how many. */
void mem_guard_begin(void);
uint64_t mem_guard_end(void);

#endif
