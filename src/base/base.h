/* What the other parts may use of base/: memory, arenas, growing arrays, hash maps, strings, log switches, threads.
 * Nothing here knows of tensors. */
#ifndef WICK_BASE_BASE_H
#define WICK_BASE_BASE_H

#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include "base/thread.h"
#include "wick/base.h"

#define WK_LIKELY(x) __builtin_expect(!!(x), 1)
#define WK_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define WK_COUNT(array) (sizeof(array) / sizeof((array)[0]))

static inline int64_t wk__min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t wk__max(int64_t a, int64_t b) { return a > b ? a : b; }
int64_t wk__nanoseconds(void); /* of a clock that is never set (threads.c) */
/* Often 1, and a division costs 40 to 90 cycles on many processors. */
static inline int64_t wk__ceil_div(int64_t a, int64_t b) { return a > 0 && a <= b ? 1 : (a + b - 1) / b; }
static inline int64_t wk__greatest_divisor(int64_t a, int64_t b) { /* that both have; not negative */
  while (b) {
    int64_t rest = a % b;
    a = b, b = rest;
  }
  return a < 0 ? -a : a;
}

/* ---- memory.c: the one door to the heap. NULL means failure with WK_OUT_OF_MEMORY set. WICK_FAULT=alloc:N (debug
 * builds) makes the N-th call fail. A size of zero gives a unique pointer. ---- */
void *wk__alloc(size_t size) WK_MUST_USE;
void *wk__alloc_zeroed(size_t size) WK_MUST_USE;
void *wk__alloc_aligned(size_t size, size_t alignment) WK_MUST_USE; /* for wk__free too */
void *wk__realloc(void *p, size_t size) WK_MUST_USE;                /* p stays valid on failure */
char *wk__strdup(const char *s) WK_MUST_USE;
void wk__free(void *p);
bool wk__fault_now(void);           /* counts one fallible event; true when WICK_FAULT asks this one to fail */
void wk__fault_arm(int64_t n);      /* for tests: the n-th event from now fails, once; 0 disarms */
int64_t wk__live_allocations(void); /* blocks not yet freed (debug builds, else 0): tests count it back to zero */

/* Makes room for `needed` items of `item` bytes in *array; *capacity is in items. Contents are kept. */
WK_MUST_USE wk_status wk__grow(void *array, int64_t *capacity, int64_t needed, size_t item);

/* Whether long work should end soon because the user interrupted it (Ctrl-C). Set by the embedding language; NULL: work
 * is never interrupted. */
extern bool (*wk__is_interrupted)(void);

/* ---- arena.c: memory that lives as long as one compilation; freed all at once. ---- */
typedef struct wk__arena {
  struct wk__arena_block *head; /* newest block; older ones behind it */
} wk__arena;
void *wk__arena_alloc(wk__arena *arena, size_t size) WK_MUST_USE; /* 16-byte aligned, zeroed */
char *wk__arena_strdup(wk__arena *arena, const char *s) WK_MUST_USE;
void wk__arena_release(wk__arena *arena); /* frees every block; the arena is empty and usable again */

/* ---- map.c: open addressing, pointer-sized keys to pointers. Key 0 is not allowed. ---- */
typedef struct wk__map {
  struct wk__map_slot *slots;
  uint32_t capacity; /* power of two, or 0 */
  uint32_t count;
} wk__map;
void *wk__map_get(const wk__map *map, uint64_t key);                        /* NULL when absent */
WK_MUST_USE wk_status wk__map_set(wk__map *map, uint64_t key, void *value); /* replaces */
void wk__map_remove(wk__map *map, uint64_t key);
void wk__map_release(wk__map *map);
uint64_t wk__hash_bytes(const void *data, size_t size, uint64_t seed);
/* What is only known by its hash must not meet another: small numbers (kinds, places) and addresses do not, in
 * whichever order they are mixed. */
static inline uint64_t wk__hash_mix(uint64_t h, uint64_t v) {
  h = (h ^ h >> 32) * 0x9fb21c651e98df25ull + v;
  return (h ^ h >> 32) * 0xff51afd7ed558ccdull;
}

/* ---- string_builder.c: text that grows. A failed append is remembered; take() reports it. ---- */
typedef struct wk__string {
  char *text; /* always terminated when not NULL */
  int64_t length, capacity;
  bool failed;
} wk__string;
void wk__string_append(wk__string *s, const char *text);
void wk__string_append_n(wk__string *s, const char *text, int64_t n);
void wk__string_append_integer(wk__string *s, int64_t number);
void wk__string_printf(wk__string *s, const char *format, ...) WK_PRINTF(2, 3);
void wk__string_vprintf(wk__string *s, const char *format, va_list args);
char *wk__string_take(wk__string *s) WK_MUST_USE; /* owned text, wk__free; NULL with the error set */
void wk__string_release(wk__string *s);

/* ---- log.c: WICK_LOGS=name,name,... switches; one bit test when off. ---- */
typedef enum wk__log {
  WK__LOG_OPS,          /* every computed call: operator and argument shapes */
  WK__LOG_LOOP,         /* every nest when it is made */
  WK__LOG_GRAPH,        /* graphs, after every pass */
  WK__LOG_BREAKS,       /* "graph_breaks": where segments end, and why */
  WK__LOG_GUARDS,       /* what has to hold for each segment */
  WK__LOG_RECOMPILES,   /* which guard failed when something is captured again */
  WK__LOG_KERNEL,       /* fused kernels: their nests and what they stand for */
  WK__LOG_REGIONS,      /* what a program's hot loops and functions were found to be (python -m wick --compile) */
  WK__LOG_PROFILE,      /* what each step of a compiled graph took, when the graph goes */
  WK__LOG_KERNEL_TIMES, /* what a device's kernels took, when the process ends */
  WK__LOG_CUDAGRAPHS,   /* which steps a device gives again by one call, and which not and why */
  WK__LOG_COUNT
} wk__log;
extern uint32_t wk__log_mask;
static inline bool wk__log_on(wk__log channel) { return WK_UNLIKELY(wk__log_mask >> channel & 1); }
const char *wk__log_name(wk__log channel);
bool wk__log_set(const char *name, bool on);                                  /* false: there is no such channel */
void wk__log_print(wk__log channel, const char *format, ...) WK_PRINTF(2, 3); /* a line on stderr, "[wick:ops] ..." */

/* ---- threads.c: one pool for the process; the caller works too. Workers spin, then sleep; a fork starts a new pool.
 * Two OS threads may call at once: the second finds the pool busy and runs inline. ---- */
typedef void wk__range_fn(void *context, int64_t begin, int64_t end);
/* Calls `fn` on disjoint ranges that cover [0, count), each a multiple of `grain` long but the last. Runs inline when
 * there is one range, one thread, or when called from inside another parallel_for. Returns when all are done. */
void wk__parallel_for(int64_t count, int64_t grain, wk__range_fn *fn, void *context);
int wk__thread_index(void); /* 0 for the caller, 1.. for workers, inside parallel_for */

/* ---- cpu.c: the CPU level, chosen once. ---- */
typedef enum wk__cpu_level { WK__CPU_PORTABLE, WK__CPU_AVX2, WK__CPU_AVX512, WK__CPU_LEVEL_COUNT } wk__cpu_level;
wk__cpu_level wk__cpu_level_get(void);
/* Lowers (or restores) the level; more than the machine has is WK_VALUE_ERROR. WICK_CPU=portable|avx2|avx512 does it at
 * start; an impossible request there keeps the machine's level and is what wk__cpu_level_check reports, which the first
 * operator call asks. */
WK_MUST_USE wk_status wk__cpu_level_set(wk__cpu_level level);
WK_MUST_USE wk_status wk__cpu_level_check(void);
wk__cpu_level wk__cpu_level_max(void);
bool wk__cpu_has_bf16(void); /* products of pairs of bfloat16 in vectors of 512 bits: no level of its own either */
bool wk__cpu_has_vnni(void); /* products of bytes, four at a time, in vectors of 512 bits: no level of its own */
const char *wk__cpu_level_name(wk__cpu_level level);

#endif
