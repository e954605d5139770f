/* Arenas: memory that lives as long as one compilation.
 *
 * In: sizes. Out: zeroed memory, 16-byte aligned, that is never freed alone; wk__arena_release frees all of it.
 * Invariant: only the head block is allocated from; what does not fit opens a new head, except a piece larger than a
 * block, which gets a block of its own behind the head so that the head's free space is not lost.
 * Tests: tests/c/test_base.c, arena_*. */
#include "base/base.h"

enum { FIRST_BLOCK = 4096, LARGEST_BLOCK = 256 << 10, ALIGNMENT = 16 };

struct wk__arena_block {
  struct wk__arena_block *older;
  size_t capacity, used; /* bytes of data */
  _Alignas(ALIGNMENT) unsigned char data[];
};

static struct wk__arena_block *block_create(size_t capacity) {
  struct wk__arena_block *block = wk__alloc_zeroed(sizeof *block + capacity);
  if (block) block->capacity = capacity;
  return block;
}

static void *block_take(struct wk__arena_block *block, size_t size) {
  void *p = block->data + block->used;
  block->used += size;
  return p;
}

/* A block for `size` bytes in the place where the invariant wants it; NULL when out of memory. */
static struct wk__arena_block *add_block(wk__arena *arena, size_t size) {
  struct wk__arena_block *head = arena->head;
  size_t capacity = !head ? FIRST_BLOCK : head->capacity < LARGEST_BLOCK ? head->capacity * 2 : LARGEST_BLOCK;
  bool own_block = head && size > capacity / 2;
  struct wk__arena_block *block = block_create(own_block || size > capacity ? size : capacity);
  if (!block) return NULL;
  struct wk__arena_block **place = own_block ? &head->older : &arena->head;
  block->older = *place;
  *place = block;
  return block;
}

void *wk__arena_alloc(wk__arena *arena, size_t size) {
  if (size > SIZE_MAX / 2) {
    (void)wk_fail(WK_OUT_OF_MEMORY, "out of memory: you tried to allocate %zu bytes", size);
    return NULL;
  }
  size = (size + !size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
  struct wk__arena_block *block = arena->head;
  if (WK_UNLIKELY(!block || block->capacity - block->used < size)) block = add_block(arena, size);
  return block ? block_take(block, size) : NULL;
}

char *wk__arena_strdup(wk__arena *arena, const char *s) {
  size_t size = strlen(s) + 1;
  char *copy = wk__arena_alloc(arena, size);
  return copy ? memcpy(copy, s, size) : NULL;
}

void wk__arena_release(wk__arena *arena) {
  struct wk__arena_block *block = arena->head;
  arena->head = NULL;
  while (block) {
    struct wk__arena_block *older = block->older;
    wk__free(block);
    block = older;
  }
}
