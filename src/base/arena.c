#include "base/base.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct tn_chunk {
    struct tn_chunk *next;
    _Alignas(16) char data[];
};

enum { FIRST_CHUNK = 16 << 10, LARGEST_CHUNK = 4 << 20 };

static _Noreturn void out_of_memory(tn_arena *arena)
{
    if (arena->on_oom)
        longjmp(*arena->on_oom, 1);
    abort();
}

/* A chunk of at least `size` bytes becomes the current one. Chunks double up to a limit, so that a small session stays
 * small and a large one calls malloc seldom. */
static void add_chunk(tn_arena *arena, size_t size)
{
    size_t wanted = arena->bytes < FIRST_CHUNK ? FIRST_CHUNK : arena->bytes;
    if (wanted > LARGEST_CHUNK)
        wanted = LARGEST_CHUNK;
    if (wanted < size)
        wanted = size;
    struct tn_chunk *chunk;
    if (wanted > SIZE_MAX / 2 || !(chunk = calloc(1, sizeof *chunk + wanted)))
        out_of_memory(arena);
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->at = chunk->data;
    arena->end = chunk->data + wanted;
    arena->bytes += sizeof *chunk + wanted;
}

void *tn_alloc_aligned(tn_arena *arena, size_t size, size_t align)
{
    if (size > SIZE_MAX / 4 || align > SIZE_MAX / 4)
        out_of_memory(arena);
    size_t pad = -(uintptr_t)arena->at & (align - 1);
    if (!arena->at || pad + size > (size_t)(arena->end - arena->at)) {
        add_chunk(arena, size + align);
        pad = -(uintptr_t)arena->at & (align - 1);
    }
    char *block = arena->at + pad;
    arena->at = block + size;
    return block;
}

void *tn_alloc(tn_arena *arena, size_t size)
{
    return tn_alloc_aligned(arena, size, 16);
}

void *tn_alloc_array(tn_arena *arena, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        out_of_memory(arena);
    return tn_alloc(arena, bytes);
}

void *tn_memdup(tn_arena *arena, const void *data, size_t size)
{
    void *copy = tn_alloc(arena, size);
    if (size)
        memcpy(copy, data, size);
    return copy;
}

void tn_arena_free(tn_arena *arena)
{
    for (struct tn_chunk *chunk = arena->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    arena->chunks = NULL;
    arena->at = arena->end = NULL;
    arena->bytes = 0;
}

void tn_vec_grow(tn_arena *arena, void **at, size_t *cap, size_t elem_size)
{
    size_t wanted = *cap ? *cap * 2 : 8;
    void *grown = tn_alloc_array(arena, wanted, elem_size);
    if (*cap)
        memcpy(grown, *at, *cap * elem_size);
    *at = grown;
    *cap = wanted;
}

/* ---- tensors --------------------------------------------------------------------------------------------------------- */

void *tn_alloc_tensor(size_t size)
{
    enum { LINE = 64, HUGE_PAGE = 2 << 20 };
    size_t align = size >= 2 * (size_t)HUGE_PAGE ? HUGE_PAGE : LINE;
    if (size > SIZE_MAX - align)
        return NULL;
    size_t rounded = ((size ? size : 1) + align - 1) & ~(align - 1);
    void *memory = aligned_alloc(align, rounded);
    if (memory && align == HUGE_PAGE)
        madvise(memory, rounded, MADV_HUGEPAGE); /* a wish: refused, the memory serves all the same */
    return memory;
}
