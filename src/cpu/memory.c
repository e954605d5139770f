/* The CPU's memory for tensor data: a cache of blocks by size class, so that a training step asks the system for
 * nothing and touches pages that are already there.
 *
 * Classes: multiples of 64 bytes up to 1 KiB, then eight steps an octave (at most 12.5 % slack). Small blocks wait in a
 * per-thread list, large ones in a shared one. What waits is bounded: per class in a thread, and in all by 64 MiB, or
 * by what makes it and the live bytes an eighth more than the most that has lately been live: a step that is run again
 * and again finds all its memory waiting, and the process has little more than it needed. "Lately" fades with every
 * large block that is freed. Past the bound blocks go back to the system, those first whose class has gone unused for
 * longest: what another part of the program left behind makes room. Blocks of 2 MiB and more ask for huge pages.
 * Tests: tests/c/test_tensor.c, tests/fault/. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "cpu/memory.h"

#include "wick/base.h"

enum {
  ALIGNMENT = 64,
  LINEAR_LIMIT = 1024,
  LINEAR_CLASSES = LINEAR_LIMIT / ALIGNMENT,
  STEPS = 8,
  CLASS_COUNT = LINEAR_CLASSES + 8 * 40,
  THREAD_LIMIT_BYTES = 1 << 16, /* blocks up to this size wait per thread */
  THREAD_CLASSES = LINEAR_CLASSES + 8 * 7,
  THREAD_DEPTH = 16,
  FADE = 1 << 16,
};
static const int64_t HUGE_PAGE = 2 << 20, CACHE_FLOOR = 64 << 20, COUNTED = 1 << 20;

typedef struct block {
  struct block *next;
} block;

static struct {
  pthread_mutex_t lock;
  block *free[CLASS_COUNT];
  uint64_t used[CLASS_COUNT]; /* when a block of the class was last taken or given back, by `uses` */
  uint64_t uses;
  int64_t cached_bytes;
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Atomic int64_t live_bytes, peak_bytes;
static _Atomic int32_t live_blocks[CLASS_COUNT]; /* of classes from COUNTED bytes on: what an error tells of */
static _Atomic int64_t high_water; /* the most that has lately been live; a hint, so races do not matter */

typedef struct thread_cache {
  block *free[THREAD_CLASSES];
  uint8_t depth[THREAD_CLASSES];
} thread_cache;
static WK__THREAD_LOCAL thread_cache *cache; /* NULL before the thread's first release, and when the thread is ending */
static WK__THREAD_LOCAL bool cache_ended;
static pthread_key_t cache_key;
static pthread_once_t cache_once = PTHREAD_ONCE_INIT;

static int class_of(int64_t bytes) {
  if (bytes <= LINEAR_LIMIT) return (int)((bytes + ALIGNMENT - 1) / ALIGNMENT) - 1 + (bytes == 0);
  int octave = 63 - __builtin_clzll((uint64_t)(bytes - 1)); /* 2^octave <= bytes - 1 */
  int step = (int)((bytes - 1) >> (octave - 3)) & (STEPS - 1);
  return LINEAR_CLASSES + (octave - 10) * STEPS + step;
}

static int64_t class_bytes(int class) {
  if (class < LINEAR_CLASSES) return (int64_t)(class + 1) * ALIGNMENT;
  int octave = (class - LINEAR_CLASSES) / STEPS + 10, step = (class - LINEAR_CLASSES) % STEPS;
  return (int64_t)(STEPS + step + 1) << (octave - 3);
}

/* ---- for the address sanitizer a block ends where its tensor does, and cached blocks may not be touched ---- */

#ifdef __SANITIZE_ADDRESS__
static int64_t hand_out(void *p, int64_t bytes, int class) {
  int64_t used = wk__max(bytes, 1);
  __asan_unpoison_memory_region(p, (size_t)used);
  __asan_poison_memory_region((char *)p + used, (size_t)(class_bytes(class) - used));
  return used;
}
static void take_back(void *p, int class) {
  __asan_unpoison_memory_region(p, sizeof(block));
  __asan_poison_memory_region((char *)p + sizeof(block), (size_t)class_bytes(class) - sizeof(block));
}
#else
static int64_t hand_out(void *p, int64_t bytes, int class) { /* how much of it may be used */
  (void)p, (void)bytes;
  return class_bytes(class);
}
static void take_back(void *p, int class) { (void)p, (void)class; }
#endif

static void *system_allocate(int64_t bytes) {
  if (wk__fault_now()) return NULL;
  if (bytes < HUGE_PAGE) return aligned_alloc(ALIGNMENT, (size_t)bytes);
  void *p = aligned_alloc((size_t)HUGE_PAGE, (size_t)((bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE));
  if (p) madvise(p, (size_t)bytes, MADV_HUGEPAGE);
  return p;
}

static void end_cache(void *mine) {
  thread_cache *ended = mine;
  cache = NULL;
  cache_ended = true;
  for (int c = 0; c < THREAD_CLASSES; c++) {
    for (block *b = ended->free[c]; b;) {
      block *next = b->next;
      free(b);
      b = next;
    }
  }
  free(ended);
}
static void make_key(void) { (void)pthread_key_create(&cache_key, end_cache); }

/* NULL: nothing can wait in this thread. */
static thread_cache *start_cache(void) {
  if (cache_ended) return NULL;
  pthread_once(&cache_once, make_key);
  thread_cache *mine = calloc(1, sizeof *mine);
  if (mine && pthread_setspecific(cache_key, mine) == 0) return cache = mine;
  free(mine);
  return NULL;
}

static void *shared_take(int class) {
  pthread_mutex_lock(&shared.lock);
  block *b = shared.free[class];
  shared.used[class] = ++shared.uses;
  if (b) {
    shared.free[class] = b->next;
    shared.cached_bytes -= class_bytes(class);
  }
  pthread_mutex_unlock(&shared.lock);
  return b;
}

/* How many bytes may wait while so many are live: an eighth more than the difference from the most, because no two
 * steps have quite the same, and a large block that just does not fit would come from the system in each of them. */
static int64_t waiting_limit(int64_t live) {
  int64_t high = atomic_load_explicit(&high_water, memory_order_relaxed);
  return wk__max(CACHE_FLOOR, high + high / 8 - live);
}

static void fade_high_water(int64_t live) {
  int64_t high = atomic_load_explicit(&high_water, memory_order_relaxed);
  if (high > live) atomic_store_explicit(&high_water, high - (high - live) / FADE, memory_order_relaxed);
}

static int stalest_class(void) {
  int stalest = -1;
  for (int c = 0; c < CLASS_COUNT; c++)
    if (shared.free[c] && (stalest < 0 || shared.used[c] < shared.used[stalest])) stalest = c;
  return stalest;
}

/* Gives blocks back to the system until no more than `limit` bytes wait. Under the lock. */
static void trim(int64_t limit) {
  while (shared.cached_bytes > limit) {
    int c = stalest_class();
    while (shared.free[c] && shared.cached_bytes > limit) {
      block *b = shared.free[c];
      shared.free[c] = b->next;
      shared.cached_bytes -= class_bytes(c);
      free(b);
    }
  }
}

static bool shared_keep(void *p, int class) {
  int64_t bytes = class_bytes(class), live = atomic_load_explicit(&live_bytes, memory_order_relaxed);
  int64_t limit = waiting_limit(live);
  if (bytes >= HUGE_PAGE) fade_high_water(live);
  pthread_mutex_lock(&shared.lock);
  shared.used[class] = ++shared.uses;
  bool keep = bytes <= limit;
  if (keep) {
    trim(limit - bytes);
    ((block *)p)->next = shared.free[class];
    shared.free[class] = p;
    shared.cached_bytes += bytes;
  }
  pthread_mutex_unlock(&shared.lock);
  return keep;
}

static void count_live(int64_t bytes) {
  int64_t live = atomic_fetch_add_explicit(&live_bytes, bytes, memory_order_relaxed) + bytes;
  if (live > atomic_load_explicit(&high_water, memory_order_relaxed))
    atomic_store_explicit(&high_water, live, memory_order_relaxed);
  int64_t peak = atomic_load_explicit(&peak_bytes, memory_order_relaxed);
  while (live > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, live)) {
  }
}

/* Before the system is asked for a large block: what it gets back it can give again, without looking for other pages.
 */
static void make_room(int64_t bytes) {
  int64_t live = atomic_load_explicit(&live_bytes, memory_order_relaxed) + bytes;
  pthread_mutex_lock(&shared.lock);
  trim(waiting_limit(live));
  pthread_mutex_unlock(&shared.lock);
}

static void count_block(int class, int32_t change) {
  if (class_bytes(class) >= COUNTED) atomic_fetch_add_explicit(&live_blocks[class], change, memory_order_relaxed);
}

/* ---- there is none ---- */

typedef struct text {
  char of[400];
  int length;
} text;

__attribute__((format(printf, 2, 3))) static void add_text(text *t, const char *format, ...) {
  va_list list;
  va_start(list, format);
  int left = (int)sizeof t->of - t->length, written = vsnprintf(t->of + t->length, (size_t)left, format, list);
  va_end(list);
  t->length += wk__max(0, wk__min(written, left - 1));
}

static void add_size(text *t, int64_t bytes) {
  if (bytes >> 30)
    add_text(t, "%.4g GiB", (double)bytes / (1 << 30));
  else
    add_text(t, "%.4g MiB", (double)bytes / (1 << 20));
}

/* What lives, the largest first; on the stack, since there is no memory. */
static void describe_live(text *t) {
  enum { MOST_SIZES = 6 };
  int sizes = 0;
  add_text(t, "tensors hold ");
  add_size(t, atomic_load(&live_bytes));
  for (int c = CLASS_COUNT - 1; c >= 0 && sizes < MOST_SIZES; c--) {
    int count = atomic_load_explicit(&live_blocks[c], memory_order_relaxed);
    if (count <= 0) continue;
    add_text(t, sizes++ ? ", %d of up to " : ": %d of up to ", count);
    add_size(t, class_bytes(c));
  }
}

static __attribute__((cold)) void *no_memory(int64_t bytes) {
  text live = {.length = 0};
  describe_live(&live);
  (void)wk_fail(WK_OUT_OF_MEMORY,
                "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried "
                "to allocate %lld bytes. Error code 12 (Cannot allocate memory)\n%s",
                (long long)bytes, live.of);
  return NULL;
}

void *wk__cpu_allocate(wk__stream *none, int64_t bytes, const void *wanted, int64_t *out_capacity) {
  (void)none, (void)wanted;
  *out_capacity = 0;
  if (bytes < 0 || bytes > INT64_C(1) << 46) return no_memory(bytes);
  int class = class_of(bytes);
  int64_t capacity = class_bytes(class);
  void *p = NULL;
  if (class < THREAD_CLASSES && cache && (p = cache->free[class])) {
    cache->free[class] = ((block *)p)->next;
    cache->depth[class]--;
  } else if (!(p = shared_take(class))) {
    if (capacity >= HUGE_PAGE) make_room(capacity);
    p = system_allocate(capacity);
    if (!p) {
      wk__allocator_release_cached();
      p = system_allocate(capacity);
    }
  }
  if (!p) return no_memory(bytes);
  *out_capacity = hand_out(p, bytes, class);
  count_live(*out_capacity);
  count_block(class, 1);
  return p;
}

void wk__cpu_release(wk__stream *none, void *data, int64_t capacity) {
  (void)none;
  if (!data) return;
  int class = class_of(capacity);
  take_back(data, class);
  count_block(class, -1);
  atomic_fetch_sub_explicit(&live_bytes, capacity, memory_order_relaxed);
  thread_cache *mine = WK_LIKELY(cache) ? cache : start_cache();
  if (class < THREAD_CLASSES && mine && mine->depth[class] < THREAD_DEPTH) {
    ((block *)data)->next = mine->free[class];
    mine->free[class] = data;
    mine->depth[class]++;
  } else if (!shared_keep(data, class)) {
    free(data);
  }
}

void wk__allocator_release_cached(void) {
  pthread_mutex_lock(&shared.lock);
  for (int c = 0; c < CLASS_COUNT; c++) {
    for (block *b = shared.free[c]; b;) {
      block *next = b->next;
      free(b);
      b = next;
    }
    shared.free[c] = NULL;
  }
  shared.cached_bytes = 0;
  pthread_mutex_unlock(&shared.lock);
}

int64_t wk__allocator_live_bytes(void) { return atomic_load(&live_bytes); }
int64_t wk__allocator_cached_bytes(void) {
  pthread_mutex_lock(&shared.lock);
  int64_t bytes = shared.cached_bytes;
  pthread_mutex_unlock(&shared.lock);
  return bytes;
}
int64_t wk__allocator_peak_bytes(void) { return atomic_load(&peak_bytes); }
void wk__allocator_reset_peak(void) { atomic_store(&peak_bytes, atomic_load(&live_bytes)); }
