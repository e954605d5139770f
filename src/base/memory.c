/* The one door to the heap.
 *
 * In: sizes. Out: memory, or NULL with WK_OUT_OF_MEMORY set in the calling thread.
 * Invariant: every block of any of these functions is freed by wk__free; debug builds count the blocks alive and can be
 * asked to fail the n-th event, which is how the fault tests walk through every failure path.
 * Tests: tests/c/test_base.c, memory_* and the fault walks. */
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

/* ---- Fault injection and the live count: nothing of it is left in release builds. ---- */

#ifdef WICK_DEBUG
static atomic_int_fast64_t live_blocks;
static atomic_int_fast64_t events_until_fault; /* 0: disarmed */

__attribute__((constructor)) static void read_fault_setting(void) {
  const char *setting = getenv("WICK_FAULT");
  if (!setting) return;
  char *end = NULL;
  long long n = strncmp(setting, "alloc:", 6) == 0 ? strtoll(setting + 6, &end, 10) : 0;
  if (n > 0 && *end == 0) {
    wk__fault_arm(n);
  } else {
    fprintf(stderr, "[wick] WICK_FAULT: expected alloc:N with N >= 1, got '%s'\n", setting);
  }
}

void wk__fault_arm(int64_t n) { atomic_store(&events_until_fault, n); }

bool wk__fault_now(void) {
  if (WK_LIKELY(atomic_load_explicit(&events_until_fault, memory_order_relaxed) <= 0)) return false;
  return atomic_fetch_sub(&events_until_fault, 1) == 1;
}

int64_t wk__live_allocations(void) { return atomic_load(&live_blocks); }

static void count_blocks(int change) { atomic_fetch_add_explicit(&live_blocks, change, memory_order_relaxed); }
#else
void wk__fault_arm(int64_t n) { (void)n; }
bool wk__fault_now(void) { return false; }
int64_t wk__live_allocations(void) { return 0; }
static void count_blocks(int change) { (void)change; }
#endif

/* ---- Allocation ---- */

static __attribute__((cold)) void *out_of_memory(size_t size) {
  (void)wk_fail(WK_OUT_OF_MEMORY, "out of memory: you tried to allocate %zu bytes", size);
  return NULL;
}

static void *counted(void *p, size_t size) {
  if (WK_UNLIKELY(!p)) return out_of_memory(size);
  count_blocks(1);
  return p;
}

void *wk__alloc(size_t size) {
  if (wk__fault_now()) return out_of_memory(size);
  return counted(malloc(size ? size : 1), size);
}

void *wk__alloc_zeroed(size_t size) {
  if (wk__fault_now()) return out_of_memory(size);
  return counted(calloc(1, size ? size : 1), size);
}

void *wk__alloc_aligned(size_t size, size_t alignment) {
  void *p = NULL;
  if (alignment < sizeof(void *)) alignment = sizeof(void *);
  if (wk__fault_now() || posix_memalign(&p, alignment, size ? size : 1) != 0) return out_of_memory(size);
  return counted(p, size);
}

void *wk__realloc(void *p, size_t size) {
  if (wk__fault_now()) return out_of_memory(size);
  void *moved = realloc(p, size ? size : 1);
  if (!moved) return out_of_memory(size);
  if (!p) count_blocks(1);
  return moved;
}

char *wk__strdup(const char *s) {
  size_t size = strlen(s) + 1;
  char *copy = wk__alloc(size);
  return copy ? memcpy(copy, s, size) : NULL;
}

void wk__free(void *p) {
  if (p) count_blocks(-1);
  free(p);
}

wk_status wk__grow(void *array, int64_t *capacity, int64_t needed, size_t item) {
  if (WK_LIKELY(needed <= *capacity)) return WK_OK;
  int64_t wanted = wk__max(needed, *capacity < 8 ? 8 : *capacity + *capacity / 2);
  size_t size;
  if (__builtin_mul_overflow((size_t)wanted, item, &size)) {
    return wk_fail(WK_OUT_OF_MEMORY, "out of memory: an array of %lld items is too large", (long long)wanted);
  }
  void *old, *moved; /* `array` is a T **: copied in and out as bytes, since T is not known here */
  memcpy(&old, array, sizeof old);
  moved = wk__realloc(old, size);
  if (!moved) return WK_OUT_OF_MEMORY;
  memcpy(array, &moved, sizeof moved);
  *capacity = wanted;
  return WK_OK;
}
