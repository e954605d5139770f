/* Per-thread scratch memory; see workspace.h. A pthread key's destructor frees it at the thread's end, which
 * thread-local variables alone cannot. */
#define _GNU_SOURCE
#include "cpu/workspace.h"

#include <pthread.h>
#include <sys/mman.h>

enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };

typedef struct block {
  void *memory;
  size_t size;
} block;

static WK__THREAD_LOCAL block blocks[WK__WORKSPACE_COUNT];
static pthread_key_t at_thread_end;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static bool key_exists;

void wk__workspace_release(void) {
  for (int i = 0; i < WK__WORKSPACE_COUNT; i++) {
    wk__free(blocks[i].memory);
    blocks[i] = (block){0};
  }
}

static void release_at_thread_end(void *unused) {
  (void)unused;
  wk__workspace_release();
}

static void create_key(void) { key_exists = pthread_key_create(&at_thread_end, release_at_thread_end) == 0; }

/* Packed blocks are walked in strides of kilobytes: with small pages a good part of the time would go into translating
 * addresses. Only advice; a system without huge pages ignores it. */
static void *allocate(size_t size) {
  if (size < HUGE_PAGE) return wk__alloc_aligned(size, PAGE);
  void *memory = wk__alloc_aligned(size, HUGE_PAGE);
  if (memory) madvise(memory, size, MADV_HUGEPAGE);
  return memory;
}

/* Grows by at least a half, so that a run of growing problems allocates seldom. */
static void *grow(block *b, size_t size) {
  size_t wanted = size < b->size + b->size / 2 ? b->size + b->size / 2 : size;
  size_t unit = wanted < HUGE_PAGE ? PAGE : HUGE_PAGE;
  wanted = (wanted + unit - 1) & ~(unit - 1);
  wk__free(b->memory);
  *b = (block){0};
  b->memory = allocate(wanted);
  if (b->memory) b->size = wanted;
  return b->memory;
}

void *wk__workspace_get(wk__workspace_purpose purpose, size_t size) {
  block *b = &blocks[purpose];
  if (WK_LIKELY(b->memory && size <= b->size)) return b->memory;
  pthread_once(&key_once, create_key);
  if (key_exists) pthread_setspecific(at_thread_end, blocks); /* any value but NULL has the destructor called */
  return grow(b, size);
}

static size_t align_slot(size_t size) { return (size + WK__SLOT_ALIGNMENT - 1) & ~(size_t)(WK__SLOT_ALIGNMENT - 1); }

wk_status wk__slots_init(wk__slots *slots, wk__workspace_purpose purpose, size_t shared_size, size_t slot_size,
                         bool several_threads) {
  slots->count = several_threads ? (int)wk__min(wk_get_num_threads(), WK__MAX_SLOTS) : 1;
  slots->size = align_slot(slot_size);
  slots->shared = wk__workspace_get(purpose, align_slot(shared_size) + slots->size * (size_t)slots->count);
  if (!slots->shared) return WK_OUT_OF_MEMORY;
  slots->first = slots->shared + align_slot(shared_size);
  for (int i = 0; i < slots->count; i++) atomic_init(&slots->taken[i], false);
  return WK_OK;
}

/* There are as many slots as threads, so the search ends at once, unless the thread count was raised this very moment.
 */
char *wk__slots_take(wk__slots *slots) {
  for (int i = wk__thread_index() % slots->count;; i = (i + 1) % slots->count) {
    if (!atomic_exchange_explicit(&slots->taken[i], true, memory_order_acquire)) {
      return slots->first + slots->size * (size_t)i;
    }
  }
}

void wk__slots_give(wk__slots *slots, char *slot) {
  atomic_store_explicit(&slots->taken[(size_t)(slot - slots->first) / slots->size], false, memory_order_release);
}
